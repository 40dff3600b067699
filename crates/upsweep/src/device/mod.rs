//! Block devices: the only layer that performs I/O and the only one that may hold `unsafe`.
//!
//! A [`Devices`] value is a bank of block devices, numbered from 0. A caller *submits* a
//! [`Request`] and later *reaps* its [`Completion`]. The [`Buffer`] moves with both, so the caller
//! cannot touch memory that the device is using. Requests may complete in any order; two requests
//! in flight on overlapping bytes are unordered.
//!
//! Durability is explicit. A write completes with [`WriteMode::Cached`] when the device has
//! accepted it, and with [`WriteMode::Stable`] when it is on stable media. A flush makes stable
//! every write that had completed when the flush was submitted. The fault model in
//! `docs/durability.md` says what else a device may do to bytes, above all in a power cut.

mod alone;
mod bank;
mod buffer;
mod chunks;
mod completions;
mod host;
mod joined;
mod joint;
mod process;
mod profile;
mod random;
mod sim;
mod stripes;
mod tracks;

use std::fs::Metadata;
use std::path::Path;
use std::time::Duration;

pub use alone::{Bulk, read_all, read_alone, read_together, run_alone, write_alone};
pub use bank::{Bank, DeviceDescription, Performer, Waiter, Waker};
pub(crate) use buffer::LARGE_BYTES_MIN;
pub use buffer::{ALIGNMENT, Buffer};
use host::os::{self, Basics, OperatingSystem};
pub use host::{EngineChoice, HostDevices, HostOptions, HostPath};
pub use joined::JoinedDevices;
pub(crate) use joint::{Joint, join};
pub use process::Process;
pub use profile::{
    Access, BlockWrites, Curve, DeviceProfile, Effort, Load, Measurement, Order, Profile, Progress,
    Range, Reads, Region, Varies, Writes, measure, probe_block_writes,
};
pub use sim::{
    FailureKind, FaultRange, Faults, HostileDevices, LatencyModel, MemoryDevices, PowerCut,
    Simulated, ThreadedDevices, VirtualClock,
};
pub use sim::{drive, solid_state};
pub use stripes::{Parallelism, Stripes, find_parallelism};
pub use tracks::{Stretch, TRACKS_LOOKED_AT, TrackSearch, Tracks, TracksCheck, TracksError};

/// Position of a device in its bank, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u16);

/// The caller's identifier of one request, returned with the completion. Unique among requests in
/// flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// When a write counts as complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// When the device has accepted the bytes; a later flush makes them stable.
    Cached,
    /// When the bytes are on stable media.
    Stable,
}

/// What a request does. Offsets and lengths are in bytes and are multiples of the device's logical
/// block size. An empty range is a bug of the caller.
#[derive(Debug)]
pub enum Operation {
    /// Fills the whole buffer from `offset`.
    Read {
        /// First byte.
        offset: u64,
        /// Receives the bytes; its length is the length of the read.
        buffer: Buffer,
    },
    /// Writes the whole buffer at `offset`.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        buffer: Buffer,
        /// When the write completes.
        mode: WriteMode,
    },
    /// Makes stable every write that completed before this request was submitted.
    Flush,
    /// Tells the device that the content of the range is no longer needed; reads of it then return
    /// arbitrary bytes. A file returns the space to its file system: the range becomes a *hole*,
    /// and a write into it may fail with [`DeviceError::NoSpace`] until the range is allocated
    /// again. After a failure any part of the range may be a hole. Fails where the host does not
    /// support it.
    Discard {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// Guarantees space for a range of a growable device (except on file systems that cannot
    /// reserve space): fills its holes, and extends the device if the range ends beyond its end.
    /// New space reads as zeros, allocated space keeps its content, and all of it is stable when
    /// the request completes. After a failure, part of the range may have been allocated; after
    /// [`DeviceError::NoSpace`] the device has its previous length.
    Allocate {
        /// First byte, at most the size of the device.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
    },
}

impl Operation {
    /// Its first byte on the device; `None` for a flush.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::Read { offset, .. }
            | Self::Write { offset, .. }
            | Self::Discard { offset, .. }
            | Self::Allocate { offset, .. } => Some(*offset),
            Self::Flush => None,
        }
    }

    /// Checks that a device of this geometry can perform the operation. Every implementation does
    /// this on submission.
    ///
    /// # Errors
    /// [`DeviceError::InvalidRange`] if the range is empty, outside the device or not aligned to
    /// its logical blocks, or, for an allocation, if the device cannot grow or the range begins
    /// beyond its end. It is a bug of the caller.
    pub fn check(&self, geometry: &Geometry) -> Result<(), DeviceError> {
        let block = u64::from(geometry.logical_block_bytes);
        let valid = |offset: u64, bytes: u64| {
            let inside = offset.checked_add(bytes).is_some_and(|end| end <= geometry.size_bytes);
            inside && bytes > 0 && offset.is_multiple_of(block) && bytes.is_multiple_of(block)
        };
        let valid = match self {
            Self::Read { offset, buffer } | Self::Write { offset, buffer, .. } => {
                valid(*offset, buffer.len() as u64)
            }
            Self::Flush => true,
            Self::Discard { offset, bytes } => valid(*offset, *bytes),
            Self::Allocate { offset, bytes } => {
                let end = offset.checked_add(*bytes).and_then(|end| i64::try_from(end).ok());
                let is_aligned = offset.is_multiple_of(block) && bytes.is_multiple_of(block);
                let follows = *offset <= geometry.size_bytes;
                geometry.growable && *bytes > 0 && is_aligned && follows && end.is_some()
            }
        };
        if valid { Ok(()) } else { Err(DeviceError::InvalidRange) }
    }
}

/// The purpose of a request. A bank that orders requests uses only this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Class {
    /// A write of the log: callers wait for it, or soon will.
    Log,
    /// A read that a caller waits for.
    ForegroundRead,
    /// A read of blocks that a scan has yet to reach.
    ScanRead,
    /// A read of blocks or spilled updates for the sweep.
    SweepRead,
    /// A write of swept blocks.
    SweepWrite,
    /// A write of content of the application's own that a caller waits for.
    ForegroundWrite,
    /// A write of updates that move from memory to a spill segment.
    Spill,
    /// A write of the directory or of the superblock.
    Checkpoint,
    /// A flush of a data device, which the sweep, a spill, a checkpoint or a caller waits for.
    Flush,
    /// An allocation or discard that changes the space a file occupies.
    FileSpace,
    /// Creation, recovery, verification or measurement, with nothing else in flight.
    Upkeep,
}

impl Class {
    /// Whether it is a read or write of the data devices that a caller waits for.
    #[must_use]
    pub fn is_foreground(self) -> bool {
        matches!(self, Self::ForegroundRead | Self::ForegroundWrite)
    }
}

/// What a bank may know about a request besides its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hint {
    /// Its purpose.
    pub class: Class,
    /// The space that its content belongs to, if there is exactly one.
    pub owner: Option<u32>,
    /// The time after submission within which it should complete; `None` if unknown.
    pub deadline: Option<Duration>,
}

impl From<Class> for Hint {
    fn from(class: Class) -> Self {
        Self { class, owner: None, deadline: None }
    }
}

/// One operation on one device.
#[derive(Debug)]
pub struct Request {
    /// The device in the bank.
    pub device: DeviceId,
    /// The caller's identifier of this request.
    pub token: Token,
    /// Its purpose, for scheduling.
    pub hint: Hint,
    /// What to do.
    pub operation: Operation,
}

impl Request {
    /// The completion of this request, with its buffer if it has one.
    #[must_use]
    pub fn end(self, result: Result<(), DeviceError>) -> Completion {
        let buffer = match self.operation {
            Operation::Read { buffer, .. } | Operation::Write { buffer, .. } => Some(buffer),
            Operation::Flush | Operation::Discard { .. } | Operation::Allocate { .. } => None,
        };
        let (device, token, class) = (self.device, self.token, self.hint.class);
        Completion { device, token, class, buffer, result }
    }
}

/// The end of one request.
#[derive(Debug)]
pub struct Completion {
    /// The device in the bank.
    pub device: DeviceId,
    /// The token of the request.
    pub token: Token,
    /// The class of the request.
    pub class: Class,
    /// The buffer of a read or write; `None` for other operations.
    pub buffer: Option<Buffer>,
    /// Success, or why the operation failed. After a failed write the content of its range is
    /// undefined.
    pub result: Result<(), DeviceError>,
}

/// Why a device operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// The range is outside the device or not aligned to its logical blocks: a bug of the caller.
    InvalidRange,
    /// There is no space to allocate or to write (such as `ENOSPC`, `EDQUOT`).
    NoSpace,
    /// The device or the operating system reported any other error, such as `EIO`. The number is
    /// that of the operating system: `errno` on Unix.
    Failed {
        /// Operating system error number.
        errno: i32,
    },
}

impl DeviceError {
    /// The error of a request to a bank that has been dropped.
    fn gone() -> Self {
        Self::Failed { errno: os::System::CLOSED }
    }
}

impl std::fmt::Display for DeviceError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InvalidRange => write!(formatter, "range outside the device or not aligned"),
            Self::NoSpace => write!(formatter, "no space left on the device"),
            Self::Failed { errno } => {
                write!(formatter, "{}", std::io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl std::error::Error for DeviceError {}

/// The properties of a device that the engine's choices depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Current size in bytes.
    pub size_bytes: u64,
    /// Smallest unit of I/O in bytes (512 to 4096).
    pub logical_block_bytes: u32,
    /// Smallest unit that the device writes without a read-modify-write, in bytes.
    pub physical_block_bytes: u32,
    /// Whether access time depends on distance, as on rotating disks.
    pub rotational: bool,
    /// Whether [`Operation::Allocate`] can extend it: true for files, false for raw devices.
    pub growable: bool,
}

/// A bank of block devices.
///
/// Implementations: files and raw block devices through io_uring or a thread pool, memory in
/// virtual time, and a hostile bank that wraps another and injects the faults of
/// `docs/durability.md`.
pub trait Devices: Send {
    /// Number of devices in the bank.
    fn count(&self) -> u16;

    /// The current geometry of one device.
    fn geometry(&self, device: DeviceId) -> Geometry;

    /// The clock by which requests of `device` take time, if it is a virtual one; `None` if it is
    /// that of the host.
    fn clock_of(&self, _device: DeviceId) -> Option<VirtualClock> {
        None
    }

    /// Starts a request, without waiting for the device. Every request completes exactly once.
    fn submit(&mut self, request: Request);

    /// Appends the available completions to `completions`, without waiting.
    fn reap(&mut self, completions: &mut Vec<Completion>);

    /// As [`Devices::reap`], but waits for at least one completion if any request is in flight
    /// (in virtual time: advances the clock to the next one).
    fn wait(&mut self, completions: &mut Vec<Completion>);
}

/// An identifier of the file system that a file is on, unique on this machine; `None` if the host
/// does not report one.
pub(crate) fn file_system(found: &Metadata) -> Option<u64> {
    os::System::file_system(found)
}

/// The number of a file or folder in its file system. It survives a rename; a copy has a different
/// one. `None` if the host does not report one.
pub(crate) fn file_number(found: &Metadata) -> Option<u64> {
    os::System::file_number(found)
}

/// Makes the file names in `folder` stable.
pub(crate) fn sync_folder(folder: &Path) -> std::io::Result<()> {
    os::System::sync_folder(folder)
}

/// CPU time that this process has used so far, user and system; zero if the host does not report
/// it.
pub(crate) fn process_cpu() -> Duration {
    os::System::process_cpu().unwrap_or_default()
}

#[cfg(test)]
mod tests;
