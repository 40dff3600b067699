//! Volumes and their snapshots as NBD exports.

use std::sync::Arc;
use std::time::{Duration, Instant};

use upsweep::layers::device::Buffer;
use upsweep::{ClosedError, RetryError};
use upsweep_nbd::server::{Address, Closing, Device, Exports, IncomingWrite, Peer, Zeroing};
use upsweep_nbd::{Command, Context as Meta, End, ErrorCode, Export, Extent, Fault, Refusal};
use upsweep_volume::{
    Acknowledge, BLOCK_BYTES, BUFFERED_BYTES_MAX, Error, ExtentKind, Volume, VolumeInfo, Volumes,
};

use super::access::{Clients, Settings};
use super::bitmaps::{self, Bitmaps};
use super::limits::{Limit, Limits};
use crate::context::Context;
use crate::open_store::OpenStore;

/// Bytes that are written at a time where zeros are to take space.
const ZEROS_BYTES: usize = 1 << 20;
/// Bytes that are looked at first when a client asks what a range is, and by how much more each
/// time that these have fewer extents than it wants.
const STATUS_BYTES_MIN: u64 = 1 << 20;
const STATUS_GROWTH: u64 = 4;
/// Bytes that a client is told of at a time.
const STATUS_BYTES_MAX: u64 = 1 << 30;

/// The volumes of a store, for clients of a server.
pub(super) struct VolumeExports {
    pub(super) store: Arc<OpenStore>,
    /// Which of them can only be read.
    pub(super) read_only: ReadOnly,
    /// Who may use them; all may if there is nothing for one.
    pub(super) allowed: Settings<Clients>,
    /// How much of them is performed in a second.
    pub(super) limits: Arc<Limits>,
    /// Where is told what clients did wrong.
    pub(super) context: Context,
}

/// Which volumes can only be read.
pub(super) enum ReadOnly {
    All,
    These(Vec<String>),
}

impl ReadOnly {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.iter().any(|found| found == name),
        }
    }
}

impl VolumeExports {
    fn volumes(&self) -> Result<Volumes, Refusal> {
        match self.store.existing_volumes() {
            Ok(volumes) => volumes.ok_or(Refusal::Unknown),
            Err(error) => {
                self.context.note(&format!("upsweep: volumes cannot be opened: {error}"));
                Err(Refusal::Policy)
            }
        }
    }

    /// The volumes that a client may use; it is not told of others, nor of those that are not
    /// complete.
    fn allowed(&self, volumes: &Volumes, peer: &Peer) -> Vec<VolumeInfo> {
        let may = |volume: &VolumeInfo| {
            let clients = self.allowed.of(&volume.name, Clients::kept(&volume.settings));
            !volume.is_incomplete() && clients.is_none_or(|clients| clients.have(peer))
        };
        volumes.list().into_iter().filter(may).collect()
    }

    /// What a client means: a volume, or a snapshot as VOLUME@SNAPSHOT. The default is the only
    /// volume.
    fn find(&self, name: &str, peer: &Peer) -> Result<(Export, Disk), Refusal> {
        let volumes = self.volumes()?;
        let list = self.allowed(&volumes, peer);
        let (of, snapshot) = match name.split_once('@') {
            Some((of, snapshot)) => (of, Some(snapshot)),
            None => (name, None),
        };
        let info = match (name, list.as_slice()) {
            ("", [only]) => only,
            _ => list.iter().find(|found| found.name == of).ok_or(Refusal::Unknown)?,
        };
        let volume = match snapshot {
            Some(snapshot) => volumes.at_snapshot(&info.name, snapshot),
            None => volumes.volume(&info.name),
        };
        // It may have been deleted meanwhile, or another one may have its name, for other clients.
        let volume = volume.map_err(|_| Refusal::Unknown)?;
        if volume.number() != info.number {
            return Err(Refusal::Unknown);
        }
        let bytes = volume.bytes().map_err(|_| Refusal::Unknown)?;
        let mut export = Export::new(if name.is_empty() { &info.name } else { name }, bytes);
        let is_fixed = volume.is_read_only().map_err(|_| Refusal::Unknown)?;
        export.read_only = is_fixed || self.read_only.has(&info.name);
        // Volumes are flushed together, and a read sees every write that was answered.
        export.multi_connection = true;
        export.block_bytes_min = info.block_size.bytes();
        // Some clients do not look at it, and the volume can do it.
        export.unaligned = true;
        export.block_bytes_preferred = BLOCK_BYTES as u32;
        export.contexts = vec![Meta::Allocation, Meta::AllocationDepth];
        let bitmaps = bitmaps::names(&volumes, info, snapshot);
        export.contexts.extend(bitmaps.into_iter().map(Meta::DirtyBitmap));
        let (limits, bitmaps) = (Arc::clone(&self.limits), Bitmaps::default());
        let limit = limits.of(&volumes, &volume);
        let disk = Disk { volumes, volume, bitmaps, limits, limit };
        Ok((export, disk))
    }
}

impl Exports for VolumeExports {
    /// Volumes only: there may be thousands of snapshots.
    fn list(&self, peer: &Peer) -> Result<Vec<(String, String)>, Refusal> {
        match self.volumes() {
            Ok(volumes) => {
                let list = self.allowed(&volumes, peer).into_iter();
                Ok(list.map(|volume| (volume.name, String::new())).collect())
            }
            Err(Refusal::Unknown) => Ok(Vec::new()),
            Err(refusal) => Err(refusal),
        }
    }

    fn describe(&self, name: &str, peer: &Peer) -> Result<Export, Refusal> {
        self.find(name, peer).map(|(export, _)| export)
    }

    fn open(&self, name: &str, peer: &Peer) -> Result<(Export, Arc<dyn Device>), Refusal> {
        let (export, disk) = self.find(name, peer)?;
        Ok((export, Arc::new(disk)))
    }

    fn closed(&self, peer: &Peer, closing: &Closing) {
        if matches!(closing, Closing::Ended(End::Violated(_)) | Closing::Tls(_)) {
            let who = match peer.address {
                Address::Tcp(address) => address.to_string(),
                Address::Unix { user: Some(user) } => format!("of user {user}"),
                Address::Unix { user: None } => "of this machine".to_owned(),
            };
            self.context.note(&format!("upsweep: a client, {who}: {closing}"));
        }
    }
}

/// A volume, or a snapshot of one, as a device.
struct Disk {
    volumes: Volumes,
    volume: Volume,
    bitmaps: Bitmaps,
    limits: Arc<Limits>,
    limit: Arc<Limit>,
}

fn acknowledge(durable: bool) -> Acknowledge {
    if durable { Acknowledge::Durable } else { Acknowledge::Written }
}

/// What a client is told of a failure.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err passes")]
fn fault(error: Error) -> Fault {
    let code = match &error {
        Error::OutOfRange { .. } => ErrorCode::Invalid,
        Error::ReadOnly(_) => ErrorCode::NotPermitted,
        Error::QuotaReached { .. }
        | Error::Store(upsweep::Error::Retry(RetryError::Full { .. })) => ErrorCode::NoSpace,
        Error::Store(upsweep::Error::Closed(ClosedError::Closed)) => ErrorCode::Shutdown,
        _ => ErrorCode::Io,
    };
    Fault { code, message: error.to_string(), offset: None }
}

/// What a client is told of a failed write: beyond the end, which may have come nearer, there is no
/// space.
fn write_fault(error: Error) -> Fault {
    let is_beyond = matches!(error, Error::OutOfRange { .. });
    let fault = fault(error);
    if is_beyond { Fault { code: ErrorCode::NoSpace, ..fault } } else { fault }
}

/// How many bytes of payload a request reads or writes.
fn payload_bytes(command: &Command) -> u64 {
    match *command {
        Command::Read { length, .. } | Command::Write { length, .. } => length.into(),
        Command::WriteZeroes { length, no_hole: true, .. } => length,
        _ => 0,
    }
}

impl Device for Disk {
    fn delay(&self, command: &Command) -> Duration {
        self.limits.refresh(&self.limit, &self.volumes, &self.volume);
        self.limit.take(payload_bytes(command), Instant::now())
    }

    fn cancel(&self, command: &Command) {
        self.limit.give_back(payload_bytes(command));
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Fault> {
        self.volume.read(offset, buffer).map_err(fault)
    }

    fn read_all(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), Fault>> {
        self.volume.read_all(reads).into_iter().map(|read| read.map_err(fault)).collect()
    }

    fn write(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), Fault> {
        self.volume.write(offset, data, acknowledge(durable)).map_err(write_fault)
    }

    fn begin_write(&self, offset: u64, length: u32) -> Option<Box<dyn IncomingWrite>> {
        let bytes = length as usize;
        // Shorter ones are copied anyway.
        (bytes > BUFFERED_BYTES_MAX).then(|| {
            let (volume, payload) = (self.volume.clone(), Buffer::recycled(bytes));
            Box::new(DiskWrite { volume, offset, payload }) as Box<dyn IncomingWrite>
        })
    }

    fn flush(&self) -> Result<(), Fault> {
        self.volume.flush().map_err(fault)
    }

    fn write_zeroes(&self, offset: u64, length: u64, how: Zeroing) -> Result<(), Fault> {
        // Zeros that take space are written as data, and so is a part of a block.
        let has_block = offset.next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES <= offset + length;
        if how.fast && (how.no_hole || !has_block) {
            return Err(ErrorCode::NotSupported.into());
        }
        if !how.no_hole {
            return self.volume.zero(offset, length, acknowledge(how.durable)).map_err(write_fault);
        }
        let zeros = vec![0; ZEROS_BYTES.min(usize::try_from(length).unwrap_or(ZEROS_BYTES))];
        let mut done = 0;
        while done < length {
            let bytes = (length - done).min(zeros.len() as u64);
            self.write(offset + done, &zeros[..bytes as usize], false)?;
            done += bytes;
        }
        if how.durable { self.flush() } else { Ok(()) }
    }

    fn trim(&self, offset: u64, length: u64, durable: bool) -> Result<(), Fault> {
        // Parts of blocks take their space anyway.
        let first = offset.next_multiple_of(BLOCK_BYTES);
        let end = (offset + length) / BLOCK_BYTES * BLOCK_BYTES;
        match end.checked_sub(first) {
            None | Some(0) => Ok(()),
            Some(bytes) => self.volume.zero(first, bytes, acknowledge(durable)).map_err(fault),
        }
    }

    fn status(
        &self,
        context: &Meta,
        offset: u64,
        length: u64,
        extents_max: u32,
    ) -> Result<Vec<Extent>, Fault> {
        if let Meta::DirtyBitmap(name) = context {
            let (of, range) = ((&self.volumes, &self.volume), offset..offset + length);
            return self.bitmaps.status(of, name, range, extents_max).map_err(fault);
        }
        let end = offset + length.min(STATUS_BYTES_MAX);
        let (mut extents, mut at, mut part): (Vec<Extent>, _, _) =
            (Vec::new(), offset, STATUS_BYTES_MIN);
        while at < end && extents.len() <= extents_max as usize {
            for found in self.volume.status(at, part.min(end - at)).map_err(fault)? {
                let Extent { length, status } = extent(context, found);
                match extents.last_mut().filter(|last| last.status == status) {
                    Some(last) => last.length += length,
                    None => extents.push(Extent { length, status }),
                }
                at += length;
            }
            part *= STATUS_GROWTH;
        }
        Ok(extents)
    }
}

/// A write to a disk, in memory that the devices of the store take.
struct DiskWrite {
    volume: Volume,
    offset: u64,
    payload: Buffer,
}

impl IncomingWrite for DiskWrite {
    fn payload(&mut self) -> &mut [u8] {
        &mut self.payload
    }

    fn perform(self: Box<Self>, accepted: &mut dyn FnMut()) -> Result<(), Fault> {
        let Self { volume, offset, payload } = *self;
        volume.write_behind(offset, payload, accepted).map_err(write_fault)
    }
}

/// What a context says of a range.
fn extent(context: &Meta, found: upsweep_volume::Extent) -> Extent {
    let depth = match found.kind {
        ExtentKind::Data { depth } => Some(depth),
        _ => None,
    };
    let status = match (context, depth) {
        (Meta::AllocationDepth, depth) => depth.map_or(0, |depth| u32::from(depth) + 1),
        (_, Some(_)) => 0,
        (_, None) => Meta::HOLE | Meta::ZERO,
    };
    Extent { length: found.bytes, status }
}
