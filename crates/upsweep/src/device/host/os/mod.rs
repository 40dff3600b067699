//! The operating system: everything that is done differently from one to the next.
//!
//! [`Basics`] is what all systems have, [`OperatingSystem`] what each does in its own way or not at
//! all, and [`System`] the one that `cfg` chooses:
//!
//! | file | system | state |
//! |---|---|---|
//! | `linux.rs` | Linux | tested |
//! | `unix.rs` | other Unixes | tested on Linux alone, with the feature `generic-unix` |
//! | `windows.rs` | Windows | written from documentation, never compiled there |
//! | `posix.rs` | what Linux and other Unixes do alike | tested on Linux |
//!
//! By default a system says that it cannot do something, and callers have a path for that. What
//! `std` does on every system is not here: locks, flushes (`sync_data`), lengths.

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

/// How to open a file or block device that is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenMode {
    /// For writing too.
    pub(crate) write: bool,
    /// Past the page cache.
    pub(crate) direct: bool,
    /// It is a block device, which nobody else may use: `ResourceBusy` if somebody does.
    pub(crate) exclusive: bool,
}

/// What the system tells of the device below a file, or of a block device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockLimits {
    /// Smallest unit of I/O in bytes.
    pub(crate) logical_bytes: u32,
    /// Unit that the device writes without reading first, in bytes.
    pub(crate) physical_bytes: u32,
    /// Whether access time depends on distance.
    pub(crate) rotational: bool,
}

/// What the library asks of every operating system. All of it blocks the calling thread.
///
/// Errors are those of the system. Callers judge them by their kind: `Unsupported` where the
/// system, the file system or this library cannot do it at all; `StorageFull`, `QuotaExceeded` and
/// `FileTooLarge` for a lack of room.
pub(crate) trait Basics {
    /// Error number of I/O that failed for no reason the system gave.
    const IO_ERROR: i32;
    /// Error number of what cannot be done here.
    const UNSUPPORTED: i32;
    /// Error number of what was asked of a file that is closed.
    const CLOSED: i32;

    /// Makes an empty file where nothing may be yet. Others can read it at most.
    fn create(path: &Path) -> io::Result<()>;

    /// Makes the names of files in `folder` stable.
    fn sync_folder(folder: &Path) -> io::Result<()>;

    /// Reads some bytes at `offset`, none at the end of the file.
    fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes some bytes at `offset`.
    fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Maps zeros at a multiple of `alignment`, a power of two; both are multiples of 64 KiB, which
    /// is the largest page in use. `None` if there is no memory.
    fn map(bytes: usize, alignment: usize) -> Option<NonNull<u8>>;

    /// Gives memory back.
    ///
    /// # Safety
    /// It came from [`Basics::map`] with these lengths, and nobody uses it any more.
    unsafe fn unmap(start: NonNull<u8>, bytes: usize, alignment: usize);

    /// Bytes that the file system has allocated for a file.
    fn allocated_bytes(_found: &Metadata) -> Option<u64> {
        None
    }

    /// A number of the file system that a file lies on, which no other has on this machine.
    fn file_system(_found: &Metadata) -> Option<u64> {
        None
    }

    /// The number of a file or folder in its file system: it keeps it when it is renamed, and a
    /// copy has another.
    fn file_number(_found: &Metadata) -> Option<u64> {
        None
    }
}

/// What each system does in its own way, or cannot do: then it says so, which is the default.
pub(crate) trait OperatingSystem: Basics {
    /// Opens what is at `path`. `Unsupported` or `InvalidInput` if there is no direct I/O on it.
    fn open(path: &Path, mode: OpenMode) -> io::Result<File>;

    /// As [`Basics::write_at`], and the bytes are on stable media when it returns.
    fn write_stable_at(_file: &File, _bytes: &[u8], _offset: u64) -> io::Result<usize> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Reserves space for a range of a file, in its holes and behind its end; what has space keeps
    /// its bytes. May make the file as long as that. After an error the file is as long as before,
    /// if its length did not change in the meantime.
    fn reserve(_file: &File, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Makes a range of a file a hole, which reads as zeros and takes no space.
    fn punch_hole(_file: &File, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Tells a block device that a range holds nothing of value.
    fn discard_blocks(_device: &File, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Whether this is a block device that can be opened as a device of a bank.
    fn is_block_device(_found: &Metadata) -> bool {
        false
    }

    /// The limits of what is below, or in words why they are unknown.
    fn block_limits(_found: &Metadata) -> Result<BlockLimits, String> {
        Err("this system does not tell the sizes of blocks".to_owned())
    }

    /// The alignment in bytes that direct I/O on `file` needs, 0 if there is none after all;
    /// `None` if the system does not tell.
    fn direct_alignment(_file: &File) -> Option<u32> {
        None
    }

    /// The kind of file system that `file` lies on, by the number that Linux gives it.
    fn file_system_kind(_file: &File) -> Option<u64> {
        None
    }

    /// CPU time that this process has used so far, user and system.
    fn process_cpu() -> Option<Duration> {
        None
    }

    /// Asks that huge pages back the memory, which came from [`Basics::map`].
    fn use_huge_pages(_start: NonNull<u8>, _bytes: usize) {}

    /// Asks that children of this process find zeros in the memory, which came from
    /// [`Basics::map`]. Whether they will.
    fn clear_in_children(_start: NonNull<u8>, _bytes: usize) -> bool {
        false
    }
}

/// Fills `bytes` from `offset`; `UnexpectedEof` if the file ends before.
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

/// Memory straight from the system, all zeros at first, which has one owner.
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

    /// As [`OperatingSystem::clear_in_children`].
    pub(crate) fn clear_in_children(&self) -> bool {
        System::clear_in_children(self.start, self.bytes)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with these lengths, and whoever refers to it does so no longer than
        // its owner lives.
        unsafe { System::unmap(self.start, self.bytes, self.alignment) };
    }
}

#[cfg(test)]
mod tests;
