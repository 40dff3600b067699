//! Windows, through `std` alone.
//!
//! A sync (`FlushFileBuffers`) follows every stable write. Only files are supported: raw devices
//! and holes need calls that `std` does not have, and so do file numbers and CPU time. NTFS
//! allocates the space of a file when the file is extended. The system serialises positioned I/O on
//! one file, because `std` opens files for synchronous use.

#![expect(clippy::disallowed_methods, reason = "the file device opens and reads files")]

use std::alloc::Layout;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;

use super::{Basics, OpenMode, OperatingSystem};

/// Bypasses the page cache. Offsets, lengths and memory must then be aligned to sectors, as blocks
/// of 4096 bytes are.
const FILE_FLAG_NO_BUFFERING: u32 = 0x2000_0000;

/// See the module.
pub(crate) struct System;

impl Basics for System {
    /// `ERROR_IO_DEVICE`.
    const IO_ERROR: i32 = 1117;
    /// `ERROR_CALL_NOT_IMPLEMENTED`.
    const UNSUPPORTED: i32 = 120;
    /// `ERROR_INVALID_HANDLE`.
    const CLOSED: i32 = 6;

    /// The file inherits its permissions from the folder.
    fn create(path: &Path) -> io::Result<()> {
        File::create_new(path).map(drop)
    }

    /// Does nothing: NTFS logs changes of names in order, and `std` cannot open a folder.
    fn sync_folder(_folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        file.seek_read(bytes, offset)
    }

    fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.seek_write(bytes, offset)
    }

    fn map(bytes: usize, alignment: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(bytes, alignment).ok()?;
        if bytes == 0 {
            return None;
        }
        // SAFETY: the layout is not empty.
        NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
    }

    unsafe fn unmap(start: NonNull<u8>, bytes: usize, alignment: usize) {
        let layout = Layout::from_size_align(bytes, alignment);
        // SAFETY: the caller promises that this memory came from `map` with these lengths.
        unsafe { std::alloc::dealloc(start.as_ptr(), layout.expect("as it was mapped")) };
    }
}

impl OperatingSystem for System {
    fn open(path: &Path, mode: OpenMode) -> io::Result<File> {
        if mode.exclusive {
            return Err(ErrorKind::Unsupported.into());
        }
        let flags = if mode.direct { FILE_FLAG_NO_BUFFERING } else { 0 };
        OpenOptions::new().read(true).write(mode.write).custom_flags(flags).open(path)
    }
}
