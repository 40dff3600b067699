//! One volume: reads and writes.

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLockReadGuard;
use upsweep::layers::device::{Buffer, Class};
use upsweep::layers::runtime::ExtentRead;

use crate::address::{BLOCK_BYTES, Branch, CHUNK_BLOCKS, CHUNK_LEVEL, LEVEL_MAX, Span, spans};
use crate::catalog::{Activity, Writer, blocks_of};
use crate::entry::{Content, Entry};
use crate::error::Error;
use crate::looks::Look;
use crate::payload::{Allocation, Data, Place, Slot};
use crate::rows::SnapshotRow;
use crate::sight::Sight;
use crate::versions::Seen;
use crate::volumes::Inner;
use crate::walks::ZeroWalk;

const BLOCK: usize = BLOCK_BYTES as usize;
/// How often a read begins again because the volume was rolled back or resized meanwhile.
const READ_TRIES: usize = 100;
/// Blocks of which [`Volume::status`] says at a time what they are: 1 GiB.
const STATUS_BLOCKS_MAX: u64 = 1 << 18;
/// Blocks whose entries are declared in one record.
const RECORD_BLOCKS: u64 = 16 * CHUNK_BLOCKS;
/// Their bytes: 1 MiB.
const RECORD_BYTES: usize = (RECORD_BLOCKS * BLOCK_BYTES) as usize;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledge {
    /// When it can be read. It is durable after a later [`Volume::flush`]; a power cut before may
    /// lose it, block by block.
    #[default]
    Written,
    /// When it is on stable media.
    Durable,
}

/// A volume, or a snapshot of one, which several threads may use at a time. Requests that overlap
/// in time and place have their effects in any order, block by block.
#[derive(Clone)]
pub struct Volume {
    pub(crate) inner: Arc<Inner>,
    pub(crate) number: u32,
    pub(crate) writer: Writer,
    /// What it shows in place of the present.
    pub(crate) snapshot: Option<Arc<OfSnapshot>>,
}

/// The snapshot that a [`Volume`] shows.
pub struct OfSnapshot {
    /// The number of the volume, and the name.
    pub key: (u32, String),
    /// Another one of the same name has another row.
    pub row: SnapshotRow,
}

/// A change of a volume that may declare its records, as long as this is there.
struct Entered<'a> {
    _gate: RwLockReadGuard<'a, ()>,
    branch: Branch,
    activity: Arc<Activity>,
    /// How many blocks the volume may use.
    quota: Option<u64>,
}

/// What a range of a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its length in bytes.
    pub bytes: u64,
    /// What it is.
    pub kind: ExtentKind,
}

/// Kinds of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtentKind {
    /// It reads as zeros and takes no space.
    Zero,
    /// It has been written.
    Data {
        /// 0: to the volume itself; 1: to what it was cloned from or rolled back to, before; 2: to
        /// what that was cloned from, and so on.
        depth: u16,
    },
}

/// Checks that a range is inside a volume of this size.
fn check_range(volume_bytes: u64, offset: u64, bytes: u64) -> Result<(), Error> {
    let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= volume_bytes);
    if is_inside { Ok(()) } else { Err(Error::OutOfRange { offset, bytes, volume_bytes }) }
}

impl Volume {
    fn look(&self) -> Result<Look, Error> {
        let catalog = self.inner.catalog.read();
        let Some(OfSnapshot { key, row }) = self.snapshot.as_deref() else {
            return catalog.shown(self.number);
        };
        if catalog.snapshot(key)? == *row {
            return Ok(row.look());
        }
        let volume = catalog.row(self.number)?.name.clone();
        Err(Error::NoSnapshot { volume, snapshot: key.1.clone() })
    }

    fn check(&self, offset: u64, bytes: u64) -> Result<Look, Error> {
        let look = self.look()?;
        check_range(look.bytes, offset, bytes).map(|()| look)
    }

    /// Checks that a range can be written; returns what has been written to the volume.
    fn check_write(&self, offset: u64, bytes: u64) -> Result<Arc<Activity>, Error> {
        if let Some(snapshot) = self.snapshot() {
            self.check(offset, bytes)?;
            return Err(Error::ReadOnly(format!("{}@{snapshot}", self.name()?)));
        }
        let catalog = self.inner.catalog.read();
        check_range(catalog.written(self.number, self.writer)?.bytes, offset, bytes)?;
        catalog.activity(self.number).map(Arc::clone)
    }

    /// Whether it can only be read, because it shows a moment in the past, or by its settings.
    ///
    /// # Errors
    /// [`Error::Deleted`] or [`Error::NoSnapshot`] if it has been deleted.
    pub fn is_read_only(&self) -> Result<bool, Error> {
        match self.check_write(0, 0) {
            Ok(_) => Ok(false),
            Err(Error::ReadOnly(_)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The name of the snapshot, if it shows one.
    #[must_use]
    pub fn snapshot(&self) -> Option<&str> {
        self.snapshot.as_ref().map(|snapshot| snapshot.key.1.as_str())
    }

    /// The name of the volume, which may change.
    ///
    /// # Errors
    /// [`Error::Deleted`] if it has been deleted.
    pub fn name(&self) -> Result<String, Error> {
        Ok(self.inner.catalog.read().row(self.number)?.name.clone())
    }

    /// A number that tells the volume from others as long as the store is open; its snapshots have
    /// the same.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its size in bytes.
    ///
    /// # Errors
    /// [`Error::Deleted`] or [`Error::NoSnapshot`] if it has been deleted.
    pub fn bytes(&self) -> Result<u64, Error> {
        Ok(self.look()?.bytes)
    }

    /// Reads `into.len()` bytes at `offset`. Cost: a look-up in the map for neighbouring blocks,
    /// and a read of the devices for what was written together; these are in flight at the same
    /// time where the host can.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Damaged`] if a checksum does not match; [`Error::Deleted`]
    /// or [`Error::NoSnapshot`] if it has been deleted; [`Error::Store`].
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let bytes = into.len() as u64;
        if offset.is_multiple_of(BLOCK_BYTES) && bytes.is_multiple_of(BLOCK_BYTES) {
            return self.read_blocks(offset, bytes, into);
        }
        let whole = self.read_around(offset, bytes)?;
        into.copy_from_slice(&whole[(offset % BLOCK_BYTES) as usize..][..into.len()]);
        Ok(())
    }

    /// The blocks that a range covers in whole or in part.
    pub(crate) fn read_around(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, Error> {
        self.check(offset, bytes)?;
        let blocks = blocks_of(offset, bytes);
        let mut whole = vec![0; ((blocks.end - blocks.start) * BLOCK_BYTES) as usize];
        self.read_blocks(offset, bytes, &mut whole)?;
        Ok(whole)
    }

    /// As [`Volume::read`], for several ranges, whose results are in the same order. Everything
    /// that has to be read for them is in flight at the same time, where the host can: for several
    /// short ones this takes little longer than for one.
    pub fn read_all(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), Error>> {
        if let Ok(true) = self.read_together(reads) {
            return reads.iter().map(|_| Ok(())).collect();
        }
        // One after another, they tell which ones fail.
        reads.iter_mut().map(|(offset, into)| self.read(*offset, into)).collect()
    }

    /// Reads ranges of whole blocks, and returns whether it could.
    fn read_together(&self, reads: &mut [(u64, &mut [u8])]) -> Result<bool, Error> {
        let _looking = self.inner.stamps.look();
        let look = self.look()?;
        let mut ranges = Vec::with_capacity(reads.len());
        for (offset, into) in reads.iter() {
            let bytes = into.len() as u64;
            check_range(look.bytes, *offset, bytes)?;
            let is_whole = offset.is_multiple_of(BLOCK_BYTES) && bytes.is_multiple_of(BLOCK_BYTES);
            if !is_whole || bytes == 0 {
                return Ok(false);
            }
            ranges.push(blocks_of(*offset, bytes));
        }
        let sights = self.inner.see_all(&self.inner.line(look), &ranges)?;
        let seen = sights.iter().zip(ranges).zip(reads);
        let seen = seen.map(|((sight, blocks), (_, into))| (sight, blocks, &mut **into));
        let is_read = self.inner.read_seen(look.branch, seen)?;
        // If it looks at something else now, what was looked at may have been trimmed.
        Ok(is_read && self.look()? == look)
    }

    /// Reads the blocks that a range covers in whole or in part.
    fn read_blocks(&self, offset: u64, bytes: u64, into: &mut [u8]) -> Result<(), Error> {
        let blocks = blocks_of(offset, bytes);
        for _ in 0..READ_TRIES {
            let _looking = self.inner.stamps.look();
            let look = self.check(offset, bytes)?;
            let sight = self.inner.see(&self.inner.line(look), blocks.clone())?;
            let seen = (&sight, blocks.clone(), &mut *into);
            let is_read = self.inner.read_seen(look.branch, [seen])?;
            // If it looks at something else now, what was looked at may have been trimmed.
            if self.look()? == look && is_read {
                return Ok(());
            }
        }
        let (branch, reason) = (self.look()?.branch.0, "its payload is missing".to_owned());
        Err(Error::Damaged { branch, block: blocks.start, reason })
    }

    /// What a range is, as far as it is known without reading payload: extents in order, the first
    /// of which begins at `offset`. They cover the range, or its first GiB or so. Cost: a scan of
    /// the map for the range.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Deleted`] or [`Error::NoSnapshot`] if it has been deleted;
    /// [`Error::Store`].
    pub fn status(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, Error> {
        let _looking = self.inner.stamps.look();
        let look = self.check(offset, bytes)?;
        let mut blocks = blocks_of(offset, bytes);
        blocks.end = blocks.end.min(blocks.start + STATUS_BLOCKS_MAX);
        let sight = self.inner.see(&self.inner.line(look), blocks.clone())?;
        // If it has been deleted meanwhile, what it showed may have been trimmed.
        self.look()?;
        let mut extents: Vec<Extent> = Vec::new();
        for block in blocks {
            let found = sight.of(block);
            let kind = match found.seen {
                Seen::Slot(..) => ExtentKind::Data { depth: found.depth },
                Seen::Absent | Seen::Zero => ExtentKind::Zero,
            };
            let from = offset.max(block * BLOCK_BYTES);
            let bytes = (offset + bytes).min((block + 1) * BLOCK_BYTES) - from;
            match extents.last_mut() {
                Some(last) if last.kind == kind => last.bytes += bytes,
                _ => extents.push(Extent { bytes, kind }),
            }
        }
        Ok(extents)
    }

    /// Writes `data` at `offset`. Blocks that are covered in part are read first. Cost: the payload
    /// once, and a log record, with 34 bytes of key and value for each block, or 94 for a chunk
    /// of 64 KiB.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::ReadOnly`]; [`Error::Deleted`]; [`Error::Store`], after
    /// which the range has its old or its new content, block by block, once the store is open
    /// again.
    pub fn write(&self, offset: u64, data: &[u8], acknowledge: Acknowledge) -> Result<(), Error> {
        self.write_data(offset, Data::Lent(data), &mut || ())?;
        // Others need not wait until it is durable.
        self.inner.acknowledge(acknowledge)
    }

    /// As [`Volume::write`] with [`Acknowledge::Written`], and may call `accepted` before the
    /// devices have the data: from then on, reads and flushes wait for it. So a server need not let
    /// its client wait. It does so as long as what is on its way takes at most 16 MiB with this,
    /// for all volumes of the store. Whole blocks go to the devices without a copy in memory, but
    /// for [`BUFFERED_BYTES_MAX`](crate::BUFFERED_BYTES_MAX) and less, for more than 1 MiB, and
    /// where they lie in more than one piece.
    ///
    /// # Errors
    /// As [`Volume::write`]. If it has called `accepted`, the store is closed, so the next flush
    /// fails.
    pub fn write_behind(
        &self,
        offset: u64,
        data: Buffer,
        accepted: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        self.write_data(offset, Data::Own(data), accepted)
    }

    /// Makes a range zero. Cost: a log record; blocks that are covered in part are written.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn zero(&self, offset: u64, bytes: u64, acknowledge: Acknowledge) -> Result<(), Error> {
        let activity = self.check_write(offset, bytes)?;
        let (end, first) = (offset + bytes, offset.next_multiple_of(BLOCK_BYTES));
        let last = end / BLOCK_BYTES * BLOCK_BYTES;
        if first >= last {
            return self.write(offset, &vec![0; bytes as usize], acknowledge);
        }
        // What comes last makes all of it durable.
        if offset < first {
            self.write(offset, &vec![0; (first - offset) as usize], Acknowledge::Written)?;
        }
        if last < end {
            self.write(last, &vec![0; (end - last) as usize], Acknowledge::Written)?;
        }
        let blocks = first / BLOCK_BYTES..last / BLOCK_BYTES;
        let beside_others = activity.partial.read();
        self.inner.with_room(|| self.zero_blocks(blocks.clone()))?;
        drop(beside_others);
        self.inner.acknowledge(acknowledge)
    }

    /// Makes everything durable that was acknowledged before the call, of all volumes of the store.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn flush(&self) -> Result<(), Error> {
        self.inner.flush()
    }
}

impl Volume {
    /// Lets a change of blocks of the volume declare its records, if they are still in it.
    fn enter(&self, blocks: &Range<u64>) -> Result<Entered<'_>, Error> {
        let gate = self.inner.stamps.enter();
        let catalog = self.inner.catalog.read();
        let Look { branch, bytes, .. } = catalog.written(self.number, self.writer)?;
        let (offset, length) = (blocks.start, blocks.end - blocks.start);
        let whole_bytes = bytes.next_multiple_of(BLOCK_BYTES);
        check_range(whole_bytes, offset * BLOCK_BYTES, length * BLOCK_BYTES)?;
        let activity = Arc::clone(&catalog.activities[&self.number]);
        let quota = match self.writer {
            Writer::Resize => None,
            _ => catalog.row(self.number)?.settings.quota_blocks(),
        };
        Ok(Entered { _gate: gate, branch, activity, quota })
    }

    /// The error that says so.
    fn reaches_quota(&self) -> Error {
        let settings = self.settings();
        let quota_bytes = settings.ok().and_then(|settings| settings.quota_bytes);
        let volume = self.name().unwrap_or_default();
        Error::QuotaReached { volume, quota_bytes: quota_bytes.map_or(0, NonZeroU64::get) }
    }

    /// Writes any range, which is not durable then.
    fn write_data(
        &self,
        offset: u64,
        data: Data<'_>,
        accepted: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let bytes = data.len() as u64;
        let activity = self.check_write(offset, bytes)?;
        let blocks = blocks_of(offset, bytes);
        if offset.is_multiple_of(BLOCK_BYTES) && bytes == (blocks.end - blocks.start) * BLOCK_BYTES
        {
            let _beside_others = activity.partial.read();
            return self.write_blocks(blocks, data, accepted);
        }
        let _alone = activity.partial.write();
        let mut whole = self.read_around(offset, bytes)?;
        whole[(offset % BLOCK_BYTES) as usize..][..data.len()].copy_from_slice(&data);
        self.write_blocks(blocks, Data::Lent(&whole), accepted)
    }

    /// Writes whole blocks; they are not durable then.
    pub(crate) fn write_blocks(
        &self,
        blocks: Range<u64>,
        data: Data<'_>,
        accepted: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        if data.len() <= RECORD_BYTES {
            return self.write_record(blocks, data, accepted);
        }
        let mut rest = &data[..];
        for first in blocks.step_by(RECORD_BLOCKS as usize) {
            let (part, later) = rest.split_at(rest.len().min(RECORD_BYTES));
            let blocks = first..first + part.len() as u64 / BLOCK_BYTES;
            let mut accepted = || {
                if later.is_empty() {
                    accepted();
                }
            };
            self.write_record(blocks, Data::Lent(part), &mut accepted)?;
            rest = later;
        }
        Ok(())
    }

    /// Writes payload and record.
    fn write_record(
        &self,
        blocks: Range<u64>,
        data: Data<'_>,
        accepted: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let declare = || self.declare_write(blocks.clone(), &data);
        let allocation = self.inner.with_quota(self.number, blocks.end - blocks.start, declare)?;
        if allocation.is_accepted {
            accepted();
        }
        // If it fails the store is closed, and the next open drops the entries.
        self.inner.payload.write(&allocation, data)
    }

    /// Takes slots for blocks and declares their entries; the payload has to be written then.
    fn declare_write(&self, blocks: Range<u64>, data: &[u8]) -> Result<Allocation, Error> {
        let (inner, start, count) = (&self.inner, blocks.start, blocks.end - blocks.start);
        let entered = self.enter(&blocks)?;
        let spans: Vec<Span> = spans(blocks, CHUNK_LEVEL).collect();
        let lengths: Vec<u16> =
            spans.iter().map(|span| (span.blocks().end - span.blocks().start) as u16).collect();
        let taken = entered.activity.used.take(count, entered.quota);
        let taken = taken.ok_or_else(|| self.reaches_quota())?;
        let change = inner.stamps.begin(inner.now_us(), inner.last_seq());
        let allocation = inner.payload.allocate(&change, &lengths, data)?;
        let checksums = |span: &Span| {
            let range = span.blocks();
            let of = |block: u64| ((block - start) * BLOCK_BYTES) as usize;
            let data = &data[of(range.start)..of(range.end)];
            data.chunks(BLOCK_BYTES as usize).map(crc32c::crc32c).collect()
        };
        let entries: Vec<Entry> = spans
            .iter()
            .zip(&allocation.pieces)
            .map(|(span, piece)| Entry {
                span: *span,
                stamp: change.stamp,
                content: Content::Payload { first: piece.first, checksums: checksums(span) },
            })
            .collect();
        let mut batch = inner.store.batch();
        entered.activity.used.declare(count as i64, &mut batch);
        if let Err(error) = inner.declare(entered.branch, &entries, batch) {
            inner.payload.leave(&allocation)?;
            return Err(error);
        }
        taken.keep();
        entered.activity.note(change.stamp, data.len() as u64);
        Ok(allocation)
    }

    fn zero_blocks(&self, blocks: Range<u64>) -> Result<(), Error> {
        let inner = &self.inner;
        let entered = self.enter(&blocks)?;
        let change = inner.stamps.begin(inner.now_us(), inner.last_seq());
        let entry = |span| Entry { span, stamp: change.stamp, content: Content::Zero };
        let entries: Vec<Entry> = spans(blocks, LEVEL_MAX).map(entry).collect();
        inner.declare(entered.branch, &entries, inner.store.batch())?;
        inner.add_long_zeros(entered.branch, &entries);
        entered.activity.used.note_discarded();
        entered.activity.note(change.stamp, 0);
        Ok(())
    }
}

impl Inner {
    /// Makes what has been written durable, if it has to be.
    fn acknowledge(&self, acknowledge: Acknowledge) -> Result<(), Error> {
        match acknowledge {
            Acknowledge::Written => Ok(()),
            Acknowledge::Durable => self.flush(),
        }
    }

    /// Takes in the long ones of entries of zeros.
    pub fn add_long_zeros(&self, branch: Branch, entries: &[Entry]) {
        let mut zeros = self.trimming.zeros.write();
        for entry in entries.iter().filter(|entry| entry.span.level > CHUNK_LEVEL) {
            zeros.add(branch, entry.span, entry.stamp);
        }
        drop(zeros);
        let walks = entries.iter().filter_map(|entry| ZeroWalk::of(branch, entry));
        self.zero_walks.lock().extend(walks);
    }

    /// Reads ranges of blocks that have been seen; returns whether all payload is still there. What
    /// is on the devices is read at the same time.
    pub fn read_seen<'a>(
        &self,
        branch: Branch,
        ranges: impl IntoIterator<Item = (&'a Sight, Range<u64>, &'a mut [u8])>,
    ) -> Result<bool, Error> {
        let mut on_devices = Vec::new();
        for (sight, blocks, into) in ranges {
            if !self.find_seen(branch, sight, blocks, into, &mut on_devices)? {
                return Ok(false);
            }
        }
        self.read_places(branch, on_devices)?;
        Ok(true)
    }

    /// Fills in what is in memory of blocks that have been seen, and finds the rest on the devices;
    /// returns whether all payload is still there.
    fn find_seen<'a>(
        &self,
        branch: Branch,
        sight: &Sight,
        blocks: Range<u64>,
        mut into: &'a mut [u8],
        on_devices: &mut Vec<(Place, Wanted<'a>)>,
    ) -> Result<bool, Error> {
        let mut next = blocks.start;
        while next < blocks.end {
            let Seen::Slot(slot, _) = sight.of(next).seen else {
                let (absent, rest) = into.split_at_mut(BLOCK);
                absent.fill(0);
                (next, into) = (next + 1, rest);
                continue;
            };
            let follows = |(nth, block): (usize, u64)| match sight.of(block).seen {
                Seen::Slot(found, checksum) if found == slot.plus(nth as u16) => Some(checksum),
                _ => None,
            };
            let mut checksums: Vec<u32> =
                (next..blocks.end).enumerate().map_while(follows).collect();
            let found = match self.payload.find(slot, checksums.len() as u16) {
                None => return Ok(false),
                Some(found) => found,
            };
            checksums.truncate(match &found {
                Slot::Memory(data) => data.len() / BLOCK,
                Slot::Device(place) => place.slots.into(),
            });
            let (part, rest) = into.split_at_mut(checksums.len() * BLOCK);
            let wanted = Wanted { first: next, checksums, into: part };
            (next, into) = (next + wanted.checksums.len() as u64, rest);
            match found {
                Slot::Memory(data) => wanted.fill(branch, &data)?,
                Slot::Device(place) => on_devices.push((place, wanted)),
            }
        }
        Ok(true)
    }

    /// Reads places on the devices.
    fn read_places(&self, branch: Branch, places: Vec<(Place, Wanted<'_>)>) -> Result<(), Error> {
        let reads = places.iter().map(|(place, wanted)| ExtentRead {
            reserved: &place.segment,
            offset: place.offset,
            buffer: Buffer::recycled(wanted.into.len()),
        });
        let reads = reads.collect();
        let found = self.store.blocks().read_extents(reads, Class::ForegroundRead)?;
        let mut found = places.into_iter().zip(found);
        found.try_for_each(|((_, wanted), data)| wanted.fill(branch, &data))
    }
}

/// Consecutive blocks that are to be read from one place.
struct Wanted<'a> {
    first: u64,
    checksums: Vec<u32>,
    into: &'a mut [u8],
}

impl Wanted<'_> {
    /// Takes their content, if it is what was written.
    fn fill(self, branch: Branch, data: &[u8]) -> Result<(), Error> {
        let Self { first, checksums, into } = self;
        into.copy_from_slice(data);
        for (block, (part, checksum)) in (first..).zip(into.chunks(BLOCK).zip(&checksums)) {
            let found = crc32c::crc32c(part);
            if found != *checksum {
                let reason = format!("its checksum is {found:08x}, not {checksum:08x}");
                return Err(Error::Damaged { branch: branch.0, block, reason });
            }
        }
        Ok(())
    }
}
