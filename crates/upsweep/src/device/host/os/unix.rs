//! Unixes other than Linux: macOS and the BSDs, with calls that they have in common.
//!
//! I/O goes through the page cache, a sync follows every stable write, and files only: holes,
//! durable writes and exclusive use of raw devices have no call in common. Space is reserved on
//! FreeBSD. On macOS the sync of `std` is `F_FULLFSYNC`, which empties the cache of the drive.

#![expect(clippy::disallowed_methods, reason = "the file device opens and reads files")]

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

use super::{OpenMode, OperatingSystem, posix};

/// See the module.
pub(crate) struct System;

impl OperatingSystem for System {
    const IO_ERROR: i32 = posix::IO_ERROR;
    const UNSUPPORTED: i32 = posix::UNSUPPORTED;
    const CLOSED: i32 = posix::CLOSED;

    fn create(path: &Path) -> io::Result<()> {
        posix::create(path)
    }

    fn open(path: &Path, mode: OpenMode) -> io::Result<File> {
        if mode.direct || mode.exclusive {
            return Err(ErrorKind::Unsupported.into());
        }
        OpenOptions::new().read(true).write(mode.write).open(path)
    }

    fn sync_folder(folder: &Path) -> io::Result<()> {
        posix::sync_folder(folder)
    }

    fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(bytes, offset)
    }

    fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }

    /// Not on macOS, where the call also shortens files, nor on NetBSD and OpenBSD, which have
    /// none.
    #[cfg(any(target_os = "freebsd", target_os = "linux"))]
    fn reserve(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;

        let present = file.metadata()?.len();
        loop {
            match fallocate(file, FallocateFlags::empty(), offset, bytes) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                // So ZFS refuses, as it writes everything to new places.
                Err(Errno::INVAL) => return Err(ErrorKind::Unsupported.into()),
                Err(errno) => {
                    if file.metadata()?.len() > present {
                        file.set_len(present)?;
                    }
                    return Err(errno.into());
                }
            }
        }
    }

    fn allocated_bytes(found: &Metadata) -> Option<u64> {
        Some(posix::allocated_bytes(found))
    }

    fn file_system(found: &Metadata) -> Option<u64> {
        Some(posix::file_system(found))
    }

    fn file_number(found: &Metadata) -> Option<u64> {
        Some(posix::file_number(found))
    }

    /// Not on NetBSD, for which `rustix` does not name the clock.
    #[cfg(any(
        target_vendor = "apple",
        target_os = "freebsd",
        target_os = "openbsd",
        target_os = "linux"
    ))]
    fn process_cpu() -> Option<Duration> {
        use rustix::time::{ClockId, clock_gettime};

        Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()
    }

    fn map(bytes: usize, alignment: usize) -> Option<NonNull<u8>> {
        posix::map(bytes, alignment)
    }

    unsafe fn unmap(start: NonNull<u8>, bytes: usize, _alignment: usize) {
        // SAFETY: the caller says so.
        unsafe { posix::unmap(start, bytes) }
    }
}
