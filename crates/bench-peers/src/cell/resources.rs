//! What the process has used, as the kernel counts it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::{Deserialize, Serialize};

/// Bytes of the blocks by which a file system counts.
const BLOCK_BYTES: u64 = 512;

/// Use up to a moment, or between two.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
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

/// What the processors have done up to a moment, in ticks of the kernel's clock.
#[derive(Clone, Copy, Default)]
pub(crate) struct Processors {
    ticks: u64,
    stolen: u64,
}

impl Processors {
    /// Since the machine started.
    pub(crate) fn now() -> Self {
        Self::read(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// From the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq and
    /// stolen; times of guests come after them and are in user time too.
    fn read(stat: &str) -> Self {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
        let fields = line.unwrap_or_default().split_whitespace().take(8);
        let ticks: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
        Self { ticks: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    /// The part of all time since an earlier moment that the host gave to others.
    pub(crate) fn stolen_since(self, before: Self) -> f64 {
        let stolen = self.stolen.saturating_sub(before.stolen);
        stolen as f64 / self.ticks.saturating_sub(before.ticks).max(1) as f64
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
    fn stolen_time_is_a_part_of_all_time() {
        let before = Processors::read("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
        let now = Processors::read("cpu  11 2 3 14 5 6 7 28 99 99\n");
        assert!((now.stolen_since(before) - 0.5).abs() < 1e-9);
        assert!(before.stolen_since(before).abs() < 1e-9);
        assert!(Processors::read("").stolen_since(before).abs() < 1e-9);
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
