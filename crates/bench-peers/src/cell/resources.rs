//! What the process has used, as the kernel counts it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// Bytes of the blocks by which a file system counts.
const BLOCK_BYTES: u64 = 512;

/// Use up to a moment.
#[derive(Clone, Copy, Default)]
pub(crate) struct Used {
    /// Bytes that devices had to read for the process.
    pub(crate) read_bytes: u64,
    /// Bytes that it made devices write, now or later.
    pub(crate) written_bytes: u64,
    /// Processor time of all threads, in user and kernel mode, in seconds.
    pub(crate) cpu_seconds: f64,
}

impl Used {
    /// By this process so far.
    pub(crate) fn now() -> Self {
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
        Self {
            read_bytes: field(&io, "read_bytes:"),
            written_bytes: field(&io, "write_bytes:"),
            cpu_seconds: usage
                .map_or(0.0, |usage| seconds(usage.user_time()) + seconds(usage.system_time())),
        }
    }

    /// Since an earlier moment.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
        }
    }
}

/// The most memory that the process ever had resident, in bytes.
pub(crate) fn resident_bytes_peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, "VmHWM:") * 1024
}

/// Bytes that the files under a folder take, by allocated blocks.
pub(crate) fn disk_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(about) if about.is_dir() => disk_bytes(&entry.path()),
            Ok(about) => about.blocks() * BLOCK_BYTES,
            Err(_) => 0,
        })
        .sum()
}

/// The number that follows `name` in a file of `/proc`.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let io = "rchar: 1\nread_bytes: 22\nwrite_bytes: 333\ncancelled_write_bytes: 4\n";
        assert_eq!((field(io, "read_bytes:"), field(io, "write_bytes:")), (22, 333));
        assert_eq!(field("VmHWM:\t   120 kB\n", "VmHWM:"), 120);
    }

    #[test]
    fn allocated_blocks_count_and_holes_do_not() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("inner")).expect("a folder");
        fs::write(folder.path().join("inner/file"), vec![1; 100_000]).expect("written");
        let hole = fs::File::create(folder.path().join("hole")).expect("made");
        hole.set_len(1 << 30).expect("lengthened");
        assert!((100_000..1_000_000).contains(&disk_bytes(folder.path())));
    }
}
