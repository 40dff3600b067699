//! One file or raw block device of the host: opening it, learning its geometry, and operations on
//! it that block the calling thread.
//!
//! Direct I/O is used where the file system takes it, as the engine has a cache of its own and
//! the page cache would only hold every block twice. Invariants: a `HostFile` never shrinks, and
//! its size is a multiple of its logical block; what a failed flush covered is not flushed again,
//! as the kernel may have dropped the pages: the error goes to the caller.

#![expect(clippy::disallowed_methods, reason = "the file device opens and reads files")]
#![expect(clippy::disallowed_types, reason = "callers grow a file from several threads")]

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{IoSlice, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::HostOptions;
use super::stable::StableWrites;
use crate::device::{Buffer, DeviceError, Durability, Geometry};
use crate::error::{Error, RequestError, RetryError};

/// Block size in bytes where the host does not tell one.
const FALLBACK_BLOCK_BYTES: u32 = 4096;
/// Space first and the length after it: `fallocate` that fails may have extended the file in part.
pub(super) const ALLOCATE_MODE: FallocateFlags = FallocateFlags::KEEP_SIZE;
/// Unit in which the host counts what is allocated for a file, in bytes.
const STAT_BLOCK_BYTES: u64 = 512;

/// A path to open as one device of a bank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPath {
    /// A file or a block device.
    pub path: PathBuf,
    /// Whether to make a new, empty file; then nothing may be at the path yet.
    pub create: bool,
}

/// An open file or block device.
#[derive(Debug)]
pub(super) struct HostFile {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) direct: bool,
    /// Why it is as it is, in words for `stat`.
    pub(super) reasons: Vec<String>,
    block_device: bool,
    /// A sync has to follow every write that is to be stable.
    pub(super) syncs_writes: bool,
    logical_block_bytes: u32,
    physical_block_bytes: u32,
    size_bytes: AtomicU64,
    rotational: AtomicBool,
    /// Held while the size changes by truncation, which could shrink the file in a race.
    growing: Mutex<()>,
}

/// How often, and after which pause each time, a file that is in use is tried again.
const IN_USE_TRIES: u32 = 50;
const IN_USE_PAUSE: Duration = Duration::from_millis(20);

impl HostFile {
    /// Opens or creates the file at `host_path`.
    ///
    /// # Errors
    /// `AlreadyExists` when creating; `InUse` for a file that another process has locked, or a
    /// block device that is mounted or claimed; `Path` for whatever else the system says.
    pub(super) fn open(host_path: &HostPath, options: &HostOptions) -> Result<Self, Error> {
        let path = &host_path.path;
        if host_path.create {
            create(path)?;
        }
        let mut reasons = Vec::new();
        let metadata = std::fs::metadata(path).map_err(|error| path_error(path, &error))?;
        let block_device = metadata.file_type().is_block_device();
        if !block_device && !metadata.is_file() {
            let reason = "neither a file nor a block device".to_owned();
            return Err(RequestError::Path { path: path.clone(), reason }.into());
        }
        let (file, dio_align) = patiently(|| {
            reasons.clear();
            let (file, dio_align) = open_file(path, block_device, options, &mut reasons)?;
            if !block_device {
                lock(&file, path, options.read_only)?;
            }
            Ok((file, dio_align))
        })?;
        let stable = if block_device {
            StableWrites::of_block_device()
        } else {
            StableWrites::of_file_system(rustix::fs::fstatfs(&file).ok().map(|found| found.f_type))
        };
        reasons.push(stable.reason);
        let number = if block_device { metadata.rdev() } else { metadata.dev() };
        let queue = QueueLimits::read(number, &mut reasons);
        // The page cache takes any bytes.
        let is_cached = dio_align.is_none() && !block_device;
        let least = if is_cached { 0 } else { queue.logical };
        let logical_block_bytes = least.max(dio_align.unwrap_or(0)).clamp(512, 4096);
        // For a block device the metadata has no size; its end has.
        let end = (&file).seek(SeekFrom::End(0)).map_err(|error| path_error(path, &error))?;
        Ok(Self {
            path: path.clone(),
            file,
            direct: dio_align.is_some(),
            reasons,
            block_device,
            syncs_writes: !stable.by_themselves,
            logical_block_bytes,
            physical_block_bytes: queue.physical.max(logical_block_bytes),
            size_bytes: AtomicU64::new(end - end % u64::from(logical_block_bytes)),
            rotational: AtomicBool::new(queue.rotational),
            growing: Mutex::new(()),
        })
    }

    /// The geometry at this moment.
    pub(super) fn geometry(&self) -> Geometry {
        Geometry {
            size_bytes: self.size_bytes.load(Ordering::Acquire),
            logical_block_bytes: self.logical_block_bytes,
            physical_block_bytes: self.physical_block_bytes,
            rotational: self.rotational.load(Ordering::Relaxed),
            growable: !self.block_device,
        }
    }

    pub(super) fn set_rotational(&self, rotational: bool) {
        self.rotational.store(rotational, Ordering::Relaxed);
    }

    /// Notes that the file has `bytes` or more, and that this is stable.
    pub(super) fn set_grown(&self, bytes: u64) {
        self.size_bytes.fetch_max(bytes, Ordering::AcqRel);
    }

    /// Fills `buffer` from `offset`.
    pub(super) fn read(&self, offset: u64, buffer: &mut Buffer) -> Result<(), DeviceError> {
        self.file.read_exact_at(buffer, offset).map_err(|error| match error.kind() {
            // Somebody has truncated the file behind our back.
            std::io::ErrorKind::UnexpectedEof => DeviceError::InvalidRange,
            _ => io_error(&error),
        })
    }

    /// Writes `buffer` at `offset`.
    pub(super) fn write(
        &self,
        offset: u64,
        buffer: &Buffer,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        if durability == Durability::Cached || self.syncs_writes {
            self.file.write_all_at(buffer, offset).map_err(|error| io_error(&error))?;
            return if durability == Durability::Stable { self.flush() } else { Ok(()) };
        }
        let mut done = 0;
        while done < buffer.len() {
            let rest = [IoSlice::new(&buffer[done..])];
            let at = offset + done as u64;
            match rustix::io::pwritev2(&self.file, &rest, at, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(errno_error(Errno::IO)),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.file
                        .write_all_at(&buffer[done..], at)
                        .map_err(|error| io_error(&error))?;
                    return self.flush();
                }
                Err(errno) => return Err(errno_error(errno)),
            }
        }
        Ok(())
    }

    /// Makes completed writes stable, with the size of the file.
    pub(super) fn flush(&self) -> Result<(), DeviceError> {
        rustix::fs::fdatasync(&self.file).map_err(errno_error)
    }

    /// Gives the range up: punches a hole, or tells the block device.
    pub(super) fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if self.block_device {
            return self.discard_blocks(offset, bytes);
        }
        retry(|| rustix::fs::fallocate(&self.file, mode, offset, bytes)).map_err(errno_error)
    }

    fn discard_blocks(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
        // SAFETY: BLKDISCARD takes a pointer to two 64-bit words, offset and length in bytes,
        // which `Setter` passes; it writes no memory.
        let discarded = retry(|| unsafe {
            let range = rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, bytes]);
            rustix::ioctl::ioctl(&self.file, range)
        });
        discarded.map_err(errno_error)
    }

    /// Whether a discard is a system call that blocks.
    #[cfg(feature = "io-uring")]
    pub(super) fn discard_blocks_caller(&self) -> bool {
        self.block_device
    }

    /// Bytes that the file system has allocated for the file; the size of a block device.
    pub(super) fn allocated_bytes(&self) -> u64 {
        let size = self.geometry().size_bytes;
        match self.file.metadata() {
            Ok(found) if !self.block_device => found.blocks() * STAT_BLOCK_BYTES,
            _ => size,
        }
    }

    /// Allocates space for the range, then extends the file to its end, and makes that stable.
    /// Where `fallocate` is unsupported, space is not reserved, and a later write may fail with
    /// `NoSpace`.
    pub(super) fn allocate(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        match retry(|| rustix::fs::fallocate(&self.file, ALLOCATE_MODE, offset, bytes)) {
            Err(errno) if !unsupported(errno) => return Err(errno_error(errno)),
            _ => self.extend_to(offset + bytes)?,
        }
        rustix::fs::fdatasync(&self.file).map_err(extended_in_vain)?;
        self.set_grown(offset + bytes);
        Ok(())
    }

    /// Makes the file `bytes` long, if it is shorter.
    pub(super) fn extend_to(&self, bytes: u64) -> Result<(), DeviceError> {
        let _alone = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let present = self.file.metadata().map_err(|error| io_error(&error))?.len();
        if present < bytes {
            retry(|| rustix::fs::ftruncate(&self.file, bytes)).map_err(errno_error)?;
        }
        Ok(())
    }
}

/// Makes an empty file that only its owner may write, and makes its name durable.
fn create(path: &Path) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    match options.read(true).write(true).create_new(true).mode(0o640).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(RequestError::AlreadyExists(path.to_owned()).into());
        }
        Err(error) => return Err(path_error(path, &error)),
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| path_error(folder, &error))
}

/// Tries again for a moment while the file is in use: the kernel lets go of the files of a ring
/// only some time after the process that had it is gone.
fn patiently<T>(mut open: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..IN_USE_TRIES {
        match open() {
            Err(Error::Retry(RetryError::InUse { .. })) => std::thread::sleep(IN_USE_PAUSE),
            answer => return answer,
        }
    }
    open()
}

/// Keeps other stores off the file: a copy of a store's folder, say, may name the same devices.
/// Block devices are opened for exclusive use instead.
fn lock(file: &File, path: &Path, read_only: bool) -> Result<(), Error> {
    let locked = if read_only { file.try_lock_shared() } else { file.try_lock() };
    locked.map_err(|error| match error {
        TryLockError::WouldBlock => RetryError::InUse { path: path.to_owned(), pid: None }.into(),
        TryLockError::Error(error) => path_error(path, &error),
    })
}

/// Opens `path`, for direct I/O if asked for and the file system takes it; then gives also the
/// alignment in bytes that direct I/O needs.
fn open_file(
    path: &Path,
    block_device: bool,
    options: &HostOptions,
    reasons: &mut Vec<String>,
) -> Result<(File, Option<u32>), Error> {
    // On a block device, exclusive means: refuse if it is mounted or has another exclusive user.
    let exclusive = if block_device { OFlags::EXCL } else { OFlags::empty() };
    let open = |flags: OFlags| {
        let flags = (flags | exclusive).bits() as i32;
        OpenOptions::new().read(true).write(!options.read_only).custom_flags(flags).open(path)
    };
    let buffered = || open(OFlags::empty()).map_err(|error| path_error(path, &error));
    if !options.direct {
        reasons.push("buffered, as asked for".to_owned());
        return Ok((buffered()?, None));
    }
    let file = match open(OFlags::DIRECT) {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            reasons.push("buffered: the file system refuses O_DIRECT".to_owned());
            return Ok((buffered()?, None));
        }
        Err(error) => return Err(path_error(path, &error)),
    };
    let refusal = match direct_alignment(&file) {
        Ok(align) if align <= 4096 => return Ok((file, Some(align))),
        Ok(align) => format!("direct I/O would need blocks of {align} bytes"),
        Err(reason) => reason,
    };
    reasons.push(format!("buffered: {refusal}"));
    // A block device has one exclusive user, and this one is still it.
    drop(file);
    Ok((buffered()?, None))
}

/// The alignment in bytes that direct I/O on `file` needs, 0 if the kernel does not tell, or why
/// there is no direct I/O although the file could be opened for it.
fn direct_alignment(file: &File) -> Result<u32, String> {
    // STATX_DIOALIGN, known to the kernel from 6.1.
    const DIOALIGN: StatxFlags = StatxFlags::from_bits_retain(0x2000);
    let stat = rustix::fs::statx(file, "", rustix::fs::AtFlags::EMPTY_PATH, DIOALIGN);
    let align = match stat {
        Ok(stat) if stat.stx_mask & DIOALIGN.bits() != 0 => {
            if stat.stx_dio_offset_align == 0 {
                return Err("the file system reports no direct I/O for this file".to_owned());
            }
            stat.stx_dio_offset_align.max(stat.stx_dio_mem_align)
        }
        _ => 0,
    };
    let mut trial = Buffer::zeroed(4096);
    match file.read_at(&mut trial, 0) {
        Ok(_) => Ok(align),
        Err(error) => Err(format!("a direct read failed on trial: {error}")),
    }
}

/// What `/sys` tells of the device below a file.
struct QueueLimits {
    logical: u32,
    physical: u32,
    rotational: bool,
}

impl QueueLimits {
    fn read(device_number: u64, reasons: &mut Vec<String>) -> Self {
        let (major, minor) = (rustix::fs::major(device_number), rustix::fs::minor(device_number));
        let device = format!("/sys/dev/block/{major}:{minor}");
        let queue = [format!("{device}/queue"), format!("{device}/../queue")]
            .into_iter()
            .find(|queue| Path::new(queue).join("logical_block_size").exists());
        let Some(queue) = queue else {
            reasons.push(format!("no block device {major}:{minor} in /sys: blocks of 4096 bytes"));
            let block = FALLBACK_BLOCK_BYTES;
            return Self { logical: block, physical: block, rotational: false };
        };
        let value = |name: &str| {
            let text = std::fs::read_to_string(format!("{queue}/{name}")).ok()?;
            text.trim().parse::<u32>().ok()
        };
        Self {
            logical: value("logical_block_size").unwrap_or(FALLBACK_BLOCK_BYTES),
            physical: value("physical_block_size").unwrap_or(FALLBACK_BLOCK_BYTES),
            rotational: value("rotational") == Some(1),
        }
    }
}

/// Repeats a call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Whether the host says that it cannot do this kind of operation at all.
pub(super) fn unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS)
}

/// The device error for an error number of the system.
pub(super) fn errno_error(errno: Errno) -> DeviceError {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => DeviceError::NoSpace,
        errno => DeviceError::Failed { errno: errno.raw_os_error() },
    }
}

/// A file is longer and that cannot be made stable: whatever the number, this is no lack of room.
pub(super) fn extended_in_vain(errno: Errno) -> DeviceError {
    DeviceError::Failed { errno: errno.raw_os_error() }
}

fn io_error(error: &std::io::Error) -> DeviceError {
    // `WriteZero` has no number: a write that makes no progress.
    errno_error(error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))
}

fn path_error(path: &Path, error: &std::io::Error) -> Error {
    if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) {
        return RetryError::InUse { path: path.to_owned(), pid: None }.into();
    }
    RequestError::Path { path: path.to_owned(), reason: error.to_string() }.into()
}
