//! The operating system: everything that differs between systems.
//!
//! [`Basics`] has what all systems support, [`OperatingSystem`] what each does in its own way or
//! not at all. [`System`] is the one that `cfg` selects:
//!
//! | file | system | state |
//! |---|---|---|
//! | `linux.rs` | Linux | tested |
//! | `unix.rs` | other Unixes | tested on Linux alone, with the feature `generic-unix` |
//! | `windows.rs` | Windows | written from documentation, never compiled there |
//! | `posix.rs` | what Linux and other Unixes do alike | tested on Linux |
//!
//! The default implementations report `Unsupported`, which callers handle. What `std` does on every
//! system is not here: locks, flushes (`sync_data`), lengths.

#[cfg(all(target_os = "linux", not(feature = "generic-unix")))]
mod linux;
#[cfg(unix)]
mod posix;
#[cfg(all(unix, any(not(target_os = "linux"), feature = "generic-unix")))]
mod unix;
#[cfg(windows)]
mod windows;

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

#[cfg(all(target_os = "linux", not(feature = "generic-unix")))]
pub(crate) use linux::System;
#[cfg(all(feature = "io-uring", target_os = "linux", not(feature = "generic-unix")))]
pub(super) use linux::{PUNCH_MODE, RESERVE_MODE};
#[cfg(all(unix, any(not(target_os = "linux"), feature = "generic-unix")))]
pub(crate) use unix::System;
#[cfg(windows)]
pub(crate) use windows::System;

/// How to open an existing file or block device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenMode {
    /// For writing as well as reading.
    pub(crate) write: bool,
    /// Bypassing the page cache.
    pub(crate) direct: bool,
    /// As a block device that nobody else may use: `ResourceBusy` if somebody does.
    pub(crate) exclusive: bool,
}

/// What the system reports about a block device, or about the device that holds a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockLimits {
    /// Smallest unit of I/O in bytes.
    pub(crate) logical_bytes: u32,
    /// Smallest unit that the device writes without a read-modify-write, in bytes.
    pub(crate) physical_bytes: u32,
    /// Whether access time depends on distance.
    pub(crate) rotational: bool,
}

/// What the library needs from every operating system. All calls block the calling thread.
///
/// Errors are those of the system. Callers distinguish them by kind: `Unsupported` where the
/// system, the file system or this library does not support the call; `StorageFull`,
/// `QuotaExceeded` and `FileTooLarge` for a lack of space.
pub(crate) trait Basics {
    /// Error number of I/O that failed without one from the system.
    const IO_ERROR: i32;
    /// Error number of an unsupported call.
    const UNSUPPORTED: i32;
    /// Error number of a call on a closed file.
    const CLOSED: i32;

    /// Creates an empty file; the path must not exist. Other users can read it at most.
    fn create(path: &Path) -> io::Result<()>;

    /// Makes the file names in `folder` stable.
    fn sync_folder(folder: &Path) -> io::Result<()>;

    /// Reads some bytes at `offset`, or none at the end of the file.
    fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes some bytes at `offset`.
    fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Maps `bytes` zeros at a multiple of `alignment`, a power of two. Both are multiples of
    /// 64 KiB, the largest page size in use. `None` if there is no memory.
    fn map(bytes: usize, alignment: usize) -> Option<NonNull<u8>>;

    /// Returns memory to the system.
    ///
    /// # Safety
    /// It came from [`Basics::map`] with these lengths, and nobody uses it any more.
    unsafe fn unmap(start: NonNull<u8>, bytes: usize, alignment: usize);

    /// Bytes that the file system has allocated for a file.
    fn allocated_bytes(_found: &Metadata) -> Option<u64> {
        None
    }

    /// An identifier of the file system that a file is on, unique on this machine.
    fn file_system(_found: &Metadata) -> Option<u64> {
        None
    }

    /// The number of a file or folder in its file system. It survives a rename; a copy has a
    /// different one.
    fn file_number(_found: &Metadata) -> Option<u64> {
        None
    }
}

/// What each system does in its own way. The default is that it is not supported.
pub(crate) trait OperatingSystem: Basics {
    /// Opens the file at `path`. `Unsupported` or `InvalidInput` if it does not support direct I/O.
    fn open(path: &Path, mode: OpenMode) -> io::Result<File>;

    /// As [`Basics::write_at`], and the bytes are on stable media when it returns.
    fn write_stable_at(_file: &File, _bytes: &[u8], _offset: u64) -> io::Result<usize> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Reserves space for a range of a file, in its holes and beyond its end; allocated space keeps
    /// its content. May extend the file to the end of the range. After an error the file has its
    /// previous length, unless another change of its length happened in the meantime.
    fn reserve(_file: &File, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Makes a range of a file a hole, which reads as zeros and occupies no space.
    fn punch_hole(_file: &File, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Tells a block device that the content of a range is no longer needed.
    fn discard_blocks(_device: &File, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Whether this is a block device that a bank can use.
    fn is_block_device(_found: &Metadata) -> bool {
        false
    }

    /// The limits of the underlying device, or as text why they are unknown.
    fn block_limits(_found: &Metadata) -> Result<BlockLimits, String> {
        Err("this system does not report block sizes".to_owned())
    }

    /// The alignment in bytes that direct I/O on `file` needs, 0 if the file does not support it;
    /// `None` if the system does not report it.
    fn direct_alignment(_file: &File) -> Option<u32> {
        None
    }

    /// The type of the file system that `file` is on, by the number that Linux has for it.
    fn file_system_kind(_file: &File) -> Option<u64> {
        None
    }

    /// CPU time that this process has used so far, user and system.
    fn process_cpu() -> Option<Duration> {
        None
    }

    /// Asks the system to back memory from [`Basics::map`] by huge pages.
    fn use_huge_pages(_start: NonNull<u8>, _bytes: usize) {}

    /// Asks the system not to back memory from [`Basics::map`] by huge pages from now on.
    fn use_small_pages(_start: NonNull<u8>, _bytes: usize) {}

    /// Gives the pages behind a part of memory from [`Basics::map`] back to the system, which backs
    /// it by others when it is next used. Its content is arbitrary from now on.
    ///
    /// # Safety
    /// Nobody uses that part.
    unsafe fn discard_memory(_start: NonNull<u8>, _bytes: usize) {}

    /// Asks the system to clear memory from [`Basics::map`] in children of this process. Returns
    /// whether it will.
    fn clear_in_children(_start: NonNull<u8>, _bytes: usize) -> bool {
        false
    }
}

/// Fills `bytes` from `offset`; `UnexpectedEof` if the file is too short.
pub(super) fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match System::read_at(file, &mut bytes[done..], offset + done as u64) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// One of the two ways to write: [`Basics::write_at`] and
/// [`OperatingSystem::write_stable_at`].
pub(super) type WriteAt = fn(&File, &[u8], u64) -> io::Result<usize>;

/// Writes all of `bytes` at `offset`; `WriteZero` if that makes no progress.
pub(super) fn write_all_at(
    write_at: WriteAt,
    file: &File,
    bytes: &[u8],
    offset: u64,
) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match write_at(file, &bytes[done..], offset + done as u64) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Memory mapped from the system, initially zero, with one owner.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    alignment: usize,
}

// SAFETY: a `Mapping` owns its memory exclusively, as a `Box<[u8]>` does.
unsafe impl Send for Mapping {}
// SAFETY: a shared `Mapping` gives no more than the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// As [`Basics::map`], backed by huge pages where the system has them.
    pub(crate) fn new(bytes: usize, alignment: usize) -> Option<Self> {
        let start = System::map(bytes, alignment)?;
        System::use_huge_pages(start, bytes);
        Some(Self { start, bytes, alignment })
    }

    /// Its first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// As [`OperatingSystem::use_small_pages`].
    pub(crate) fn use_small_pages(&self) {
        System::use_small_pages(self.start, self.bytes);
    }

    /// As [`OperatingSystem::discard_memory`], for `bytes` from `offset` on.
    ///
    /// # Safety
    /// Nobody uses them.
    pub(crate) unsafe fn discard(&self, offset: usize, bytes: usize) {
        assert!(offset + bytes <= self.bytes, "a part of the mapping");
        // SAFETY: they are in the mapping, and the caller says that nobody uses them.
        unsafe { System::discard_memory(self.start.add(offset), bytes) };
    }

    /// As [`OperatingSystem::clear_in_children`].
    pub(crate) fn clear_in_children(&self) -> bool {
        System::clear_in_children(self.start, self.bytes)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with these lengths, and no reference to it outlives its owner.
        unsafe { System::unmap(self.start, self.bytes, self.alignment) };
    }
}

#[cfg(test)]
mod tests;
