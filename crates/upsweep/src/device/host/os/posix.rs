//! [`Basics`] of Linux and the other Unixes.

#![expect(clippy::disallowed_methods, reason = "the file device opens and reads files")]

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::{Basics, System};

/// Unit in which `stat` counts the space allocated for a file, in bytes.
const STAT_BLOCK_BYTES: u64 = 512;

impl Basics for System {
    const IO_ERROR: i32 = Errno::IO.raw_os_error();
    const UNSUPPORTED: i32 = Errno::OPNOTSUPP.raw_os_error();
    const CLOSED: i32 = Errno::BADF.raw_os_error();

    fn create(path: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o640).open(path).map(drop)
    }

    fn sync_folder(folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(bytes, offset)
    }

    fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }

    /// Maps more than requested, and unmaps what lies before and after the aligned part.
    fn map(bytes: usize, alignment: usize) -> Option<NonNull<u8>> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let mapped_bytes = bytes.checked_add(alignment)?;
        // SAFETY: a new private mapping, at an address that the system chooses, affects no other
        // memory.
        let mapped =
            unsafe { mmap_anonymous(std::ptr::null_mut(), mapped_bytes, protection, flags) };
        let mapped = mapped.ok()?.cast::<u8>();
        let before = mapped.addr().next_multiple_of(alignment) - mapped.addr();
        // SAFETY: `before` is below `alignment`, so both places are inside the new mapping.
        let (start, end) = unsafe { (mapped.add(before), mapped.add(before + bytes)) };
        // SAFETY: these are the two ends of the new mapping, which nobody else uses.
        let trimmed = unsafe {
            [(mapped, before), (end, alignment - before)]
                .map(|(start, bytes)| if bytes > 0 { munmap(start.cast(), bytes) } else { Ok(()) })
        };
        debug_assert!(trimmed.iter().all(Result::is_ok), "our own mapping can be unmapped");
        NonNull::new(start)
    }

    unsafe fn unmap(start: NonNull<u8>, bytes: usize, _alignment: usize) {
        // SAFETY: the caller promises that the mapping has this length and that nobody uses it.
        let unmapped = unsafe { munmap(start.as_ptr().cast(), bytes) };
        debug_assert!(unmapped.is_ok(), "our own mapping can be unmapped");
    }

    fn allocated_bytes(found: &Metadata) -> Option<u64> {
        Some(found.blocks() * STAT_BLOCK_BYTES)
    }

    fn file_system(found: &Metadata) -> Option<u64> {
        Some(found.dev())
    }

    fn file_number(found: &Metadata) -> Option<u64> {
        Some(found.ino())
    }
}
