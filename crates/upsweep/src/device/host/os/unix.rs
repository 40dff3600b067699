//! Unixes other than Linux: macOS and the BSDs, through calls that they have in common.
//!
//! Only files are supported, through the page cache, and a sync follows every stable write: there
//! are no common calls for direct I/O, holes, durable writes and exclusive use of raw devices.
//! Space is reserved on FreeBSD. On macOS the sync of `std` is `F_FULLFSYNC`, which also flushes
//! the cache of the drive.

#![expect(clippy::disallowed_methods, reason = "the file device opens and reads files")]

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use super::{OpenMode, OperatingSystem};

/// See the module.
pub(crate) struct System;

impl OperatingSystem for System {
    fn open(path: &Path, mode: OpenMode) -> io::Result<File> {
        if mode.direct || mode.exclusive {
            return Err(ErrorKind::Unsupported.into());
        }
        OpenOptions::new().read(true).write(mode.write).open(path)
    }

    /// Not on macOS, where the call also shortens files, nor on NetBSD and OpenBSD, which do not
    /// have it.
    #[cfg(any(target_os = "freebsd", target_os = "linux"))]
    fn reserve(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;

        let present = file.metadata()?.len();
        loop {
            match fallocate(file, FallocateFlags::empty(), offset, bytes) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                // ZFS refuses with this, because it writes everything to new places.
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
}
