//! One file or raw block device of the host: how to open it and find its geometry, and operations
//! that block the calling thread.
//!
//! Direct I/O is used where the file system supports it: the engine has its own cache, and the page
//! cache would keep a second copy of every block. Invariants: a `HostFile` never shrinks, and its
//! size is a multiple of its logical block. A failed flush is not repeated, because the kernel may
//! have dropped the pages: the error goes to the caller.

#![expect(clippy::disallowed_methods, reason = "the file device opens and reads files")]
#![expect(clippy::disallowed_types, reason = "callers grow a file from several threads")]

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::HostOptions;
use super::os::{self, Basics, BlockLimits, OpenMode, OperatingSystem, System};
use super::stable::StableWrites;
use crate::device::{Buffer, DeviceError, Geometry, WriteMode};
use crate::error::{Error, RequestError, RetryError};

/// Block size in bytes where the host does not report one.
const FALLBACK_BLOCK_BYTES: u32 = 4096;
const FALLBACK: BlockLimits = BlockLimits {
    logical_bytes: FALLBACK_BLOCK_BYTES,
    physical_bytes: FALLBACK_BLOCK_BYTES,
    rotational: false,
};

/// A path to open as one device of a bank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPath {
    /// A file or a block device.
    pub path: PathBuf,
    /// Whether to create a new, empty file; the path must not exist then.
    pub create: bool,
}

/// An open file or block device.
#[derive(Debug)]
pub(super) struct HostFile {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) direct: bool,
    /// The reasons for its settings, as text for `stat`.
    pub(super) reasons: Vec<String>,
    pub(super) block_device: bool,
    /// Whether a stable write needs a sync after it.
    pub(super) syncs_writes: bool,
    logical_block_bytes: u32,
    physical_block_bytes: u32,
    size_bytes: AtomicU64,
    rotational: bool,
    /// Held while the size changes: two concurrent changes could shrink the file.
    growing: Mutex<()>,
}

/// How often to retry opening a file that is in use, and the pause before each retry.
const IN_USE_TRIES: u32 = 50;
const IN_USE_PAUSE: Duration = Duration::from_millis(20);

impl HostFile {
    /// Opens or creates the file at `host_path`.
    ///
    /// # Errors
    /// `AlreadyExists` when creating; `InUse` for a file that another process has locked, or a
    /// block device that is mounted or claimed; `Path` for any other error of the system.
    pub(super) fn open(host_path: &HostPath, options: &HostOptions) -> Result<Self, Error> {
        let path = &host_path.path;
        if host_path.create {
            create(path)?;
        }
        let mut reasons = Vec::new();
        let metadata = std::fs::metadata(path).map_err(|error| path_error(path, &error))?;
        let block_device = System::is_block_device(&metadata);
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
            StableWrites::of_file_system(System::file_system_kind(&file))
        };
        reasons.push(stable.reason);
        let limits = System::block_limits(&metadata).unwrap_or_else(|reason| {
            reasons.push(format!("{reason}: blocks of {FALLBACK_BLOCK_BYTES} bytes"));
            FALLBACK
        });
        // The page cache needs no alignment.
        let is_cached = dio_align.is_none() && !block_device;
        let least = if is_cached { 0 } else { limits.logical_bytes };
        let logical_block_bytes = least.max(dio_align.unwrap_or(0)).clamp(512, 4096);
        // The metadata of a block device has no size, so seek to its end.
        let end = (&file).seek(SeekFrom::End(0)).map_err(|error| path_error(path, &error))?;
        Ok(Self {
            path: path.clone(),
            file,
            direct: dio_align.is_some(),
            reasons,
            block_device,
            syncs_writes: !stable.by_themselves,
            logical_block_bytes,
            physical_block_bytes: limits.physical_bytes.max(logical_block_bytes),
            size_bytes: AtomicU64::new(end - end % u64::from(logical_block_bytes)),
            rotational: limits.rotational,
            growing: Mutex::new(()),
        })
    }

    /// The current geometry.
    pub(super) fn geometry(&self) -> Geometry {
        Geometry {
            size_bytes: self.size_bytes.load(Ordering::Acquire),
            logical_block_bytes: self.logical_block_bytes,
            physical_block_bytes: self.physical_block_bytes,
            rotational: self.rotational,
            growable: !self.block_device,
        }
    }

    /// Notes that the file is at least `bytes` long, and that its length is stable.
    pub(super) fn set_grown(&self, bytes: u64) {
        self.size_bytes.fetch_max(bytes, Ordering::AcqRel);
    }

    /// Fills `buffer` from `offset`.
    pub(super) fn read(&self, offset: u64, buffer: &mut Buffer) -> Result<(), DeviceError> {
        os::read_exact_at(&self.file, buffer, offset).map_err(|error| match error.kind() {
            // Another program has truncated the file.
            ErrorKind::UnexpectedEof => DeviceError::InvalidRange,
            _ => io_error(&error),
        })
    }

    /// Writes `buffer` at `offset`.
    pub(super) fn write(
        &self,
        offset: u64,
        buffer: &Buffer,
        mode: WriteMode,
    ) -> Result<(), DeviceError> {
        let write_all = |write_at| os::write_all_at(write_at, &self.file, buffer, offset);
        if mode == WriteMode::Stable && !self.syncs_writes {
            match write_all(System::write_stable_at) {
                // Some of it may have been written; all of it is written again.
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                written => return written.map_err(|error| io_error(&error)),
            }
        }
        write_all(System::write_at).map_err(|error| io_error(&error))?;
        if mode == WriteMode::Stable { self.flush() } else { Ok(()) }
    }

    /// Makes completed writes and the size of the file stable.
    pub(super) fn flush(&self) -> Result<(), DeviceError> {
        self.file.sync_data().map_err(|error| io_error(&error))
    }

    /// Discards the range: punches a hole into a file, or tells a block device.
    pub(super) fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let discard = if self.block_device { System::discard_blocks } else { System::punch_hole };
        discard(&self.file, offset, bytes).map_err(|error| io_error(&error))
    }

    /// Bytes that the file system has allocated for the file; the size of a block device.
    pub(super) fn allocated_bytes(&self) -> u64 {
        let size = self.geometry().size_bytes;
        let found = self.file.metadata().ok().filter(|_| !self.block_device);
        found.and_then(|found| System::allocated_bytes(&found)).unwrap_or(size)
    }

    /// Allocates space for the range, extends the file to the end of the range if it is shorter,
    /// and makes both stable. Where space cannot be reserved, a later write may fail with
    /// `NoSpace`.
    pub(super) fn allocate(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let alone = self.grow_alone();
        match System::reserve(&self.file, offset, bytes) {
            Err(error) if error.kind() != ErrorKind::Unsupported => return Err(io_error(&error)),
            _ => self.extend(&alone, offset + bytes)?,
        }
        drop(alone);
        self.file.sync_data().map_err(|error| extended_in_vain(&error))?;
        self.set_grown(offset + bytes);
        Ok(())
    }

    /// Makes the file `bytes` long, if it is shorter.
    #[cfg(all(feature = "io-uring", target_os = "linux", not(feature = "generic-unix")))]
    pub(super) fn extend_to(&self, bytes: u64) -> Result<(), DeviceError> {
        self.extend(&self.grow_alone(), bytes)
    }

    fn grow_alone(&self) -> MutexGuard<'_, ()> {
        self.growing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn extend(&self, _alone: &MutexGuard<'_, ()>, bytes: u64) -> Result<(), DeviceError> {
        let present = self.file.metadata().map_err(|error| io_error(&error))?.len();
        if present < bytes {
            self.file.set_len(bytes).map_err(|error| io_error(&error))?;
        }
        Ok(())
    }
}

/// Creates an empty file that only its owner may write, and makes its name durable.
fn create(path: &Path) -> Result<(), Error> {
    match System::create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(RequestError::AlreadyExists(path.to_owned()).into());
        }
        Err(error) => return Err(path_error(path, &error)),
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    System::sync_folder(folder).map_err(|error| path_error(folder, &error))
}

/// Retries for about a second while the file is in use: the kernel releases the files of an
/// io_uring only some time after its process has ended.
fn patiently<T>(mut open: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..IN_USE_TRIES {
        match open() {
            Err(Error::Retry(RetryError::InUse { .. })) => std::thread::sleep(IN_USE_PAUSE),
            answer => return answer,
        }
    }
    open()
}

/// Locks the file against use by other stores: a copy of a store's folder, for example, may name
/// the same devices. Block devices are opened exclusively instead.
fn lock(file: &File, path: &Path, read_only: bool) -> Result<(), Error> {
    let locked = if read_only { file.try_lock_shared() } else { file.try_lock() };
    locked.map_err(|error| match error {
        TryLockError::WouldBlock => RetryError::InUse { path: path.to_owned(), pid: None }.into(),
        TryLockError::Error(error) => path_error(path, &error),
    })
}

/// Opens `path`, for direct I/O if the options ask for it and the file system supports it; then
/// also returns the alignment in bytes that direct I/O needs.
fn open_file(
    path: &Path,
    block_device: bool,
    options: &HostOptions,
    reasons: &mut Vec<String>,
) -> Result<(File, Option<u32>), Error> {
    let open = |direct| {
        System::open(path, OpenMode { write: !options.read_only, direct, exclusive: block_device })
    };
    let buffered = || open(false).map_err(|error| path_error(path, &error));
    if !options.direct {
        reasons.push("buffered, as requested".to_owned());
        return Ok((buffered()?, None));
    }
    let file = match open(true) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            reasons.push("buffered: the system or file system has no direct I/O".to_owned());
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
    // A block device has one exclusive user, which until now is this file.
    drop(file);
    Ok((buffered()?, None))
}

/// The alignment in bytes that direct I/O on `file` needs (0 if the kernel does not report it), or
/// why direct I/O does not work although the file could be opened for it.
fn direct_alignment(file: &File) -> Result<u32, String> {
    let align = System::direct_alignment(file);
    if align == Some(0) {
        return Err("the file system does not support direct I/O for this file".to_owned());
    }
    let mut trial = Buffer::zeroed(4096);
    match System::read_at(file, &mut trial, 0) {
        Ok(_) => Ok(align.unwrap_or(0)),
        Err(error) => Err(format!("a trial direct read failed: {error}")),
    }
}

/// The device error for an error of the system.
pub(super) fn io_error(error: &io::Error) -> DeviceError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            DeviceError::NoSpace
        }
        _ => extended_in_vain(error),
    }
}

/// The device error if the new length of a file cannot be made stable: whatever the number, this is
/// no lack of space.
pub(super) fn extended_in_vain(error: &io::Error) -> DeviceError {
    // An error that is not from the system has no number: an unsupported call, or a write that
    // makes no progress.
    let unsaid = match error.kind() {
        ErrorKind::Unsupported => System::UNSUPPORTED,
        _ => System::IO_ERROR,
    };
    DeviceError::Failed { errno: error.raw_os_error().unwrap_or(unsaid) }
}

fn path_error(path: &Path, error: &io::Error) -> Error {
    if error.kind() == ErrorKind::ResourceBusy {
        return RetryError::InUse { path: path.to_owned(), pid: None }.into();
    }
    RequestError::Path { path: path.to_owned(), reason: error.to_string() }.into()
}
