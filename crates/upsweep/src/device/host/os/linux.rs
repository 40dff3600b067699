//! Linux: direct I/O, durable writes, holes, raw block devices, huge pages.

#![expect(clippy::disallowed_methods, reason = "the file device opens and reads files")]

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::mm::{Advice, madvise};
use rustix::time::{ClockId, clock_gettime};

use super::{BlockLimits, OpenMode, OperatingSystem};

/// Reserves space without changing the length, because a failed `fallocate` could otherwise leave
/// the file partly extended.
pub(in super::super) const RESERVE_MODE: FallocateFlags = FallocateFlags::KEEP_SIZE;
/// Punches a hole, also beyond the end of the file.
pub(in super::super) const PUNCH_MODE: FallocateFlags =
    FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// See the module.
pub(crate) struct System;

impl OperatingSystem for System {
    fn open(path: &Path, mode: OpenMode) -> io::Result<File> {
        let mut flags = OFlags::empty();
        flags.set(OFlags::DIRECT, mode.direct);
        // On a block device: refuse if it is mounted or has another exclusive user.
        flags.set(OFlags::EXCL, mode.exclusive);
        let flags = flags.bits() as i32;
        OpenOptions::new().read(true).write(mode.write).custom_flags(flags).open(path)
    }

    fn write_stable_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let bytes = [IoSlice::new(bytes)];
        Ok(rustix::io::pwritev2(file, &bytes, offset, ReadWriteFlags::DSYNC)?)
    }

    fn reserve(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
        retry(|| rustix::fs::fallocate(file, RESERVE_MODE, offset, bytes))
    }

    fn punch_hole(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
        retry(|| rustix::fs::fallocate(file, PUNCH_MODE, offset, bytes))
    }

    fn discard_blocks(device: &File, offset: u64, bytes: u64) -> io::Result<()> {
        const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
        // SAFETY: BLKDISCARD takes a pointer to two 64-bit words, offset and length in bytes,
        // which `Setter` passes. It does not write to memory.
        retry(|| unsafe {
            let range = rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, bytes]);
            rustix::ioctl::ioctl(device, range)
        })
    }

    fn is_block_device(found: &Metadata) -> bool {
        found.file_type().is_block_device()
    }

    fn block_limits(found: &Metadata) -> Result<BlockLimits, String> {
        let number = if Self::is_block_device(found) { found.rdev() } else { found.dev() };
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let device = format!("/sys/dev/block/{major}:{minor}");
        let queue = [format!("{device}/queue"), format!("{device}/../queue")]
            .into_iter()
            .find(|queue| Path::new(queue).join("logical_block_size").exists())
            .ok_or_else(|| format!("no block device {major}:{minor} in /sys"))?;
        let value = |name: &str| {
            let text = std::fs::read_to_string(format!("{queue}/{name}")).ok()?;
            text.trim().parse::<u32>().ok()
        };
        let bytes = |name| value(name).ok_or_else(|| format!("{queue} does not report {name}"));
        Ok(BlockLimits {
            logical_bytes: bytes("logical_block_size")?,
            physical_bytes: bytes("physical_block_size")?,
            rotational: value("rotational") == Some(1),
        })
    }

    fn direct_alignment(file: &File) -> Option<u32> {
        // STATX_DIOALIGN, since Linux 6.1.
        const DIOALIGN: StatxFlags = StatxFlags::from_bits_retain(0x2000);
        let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, DIOALIGN).ok()?;
        let is_told = stat.stx_mask & DIOALIGN.bits() != 0;
        is_told.then(|| match stat.stx_dio_offset_align {
            0 => 0,
            align => align.max(stat.stx_dio_mem_align),
        })
    }

    fn file_system_kind(file: &File) -> Option<u64> {
        // The types have 32 bits, in a word whose width and sign depend on the architecture.
        rustix::fs::fstatfs(file).ok().map(|found| u64::from(found.f_type as u32))
    }

    fn process_cpu() -> Option<Duration> {
        Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()
    }

    fn use_huge_pages(start: NonNull<u8>, bytes: usize) {
        // A system without huge pages refuses, which does no harm.
        // SAFETY: the mapping is ours, and the advice does not change its content.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
    }

    unsafe fn discard_memory(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller says that nobody uses the content of this part of our mapping.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
    }

    fn use_small_pages(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the mapping is ours, and the advice does not change its content.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxNoHugepage) };
    }

    /// Since Linux 4.14.
    fn clear_in_children(start: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: the advice changes the content in children only, not in this process.
        unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxWipeOnFork) }.is_ok()
    }
}

/// Repeats a call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}
