//! What the machine and the file system are, for the report.

use std::fs;
use std::path::Path;

use nix::sys::statvfs::statvfs;

use crate::outcome::Machine;

/// The machine, and what is under a folder.
pub(crate) fn describe(folder: &Path) -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let after = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let memory_kib = after(&read("/proc/meminfo"), "MemTotal");
    let memory_kib = memory_kib.split_whitespace().next().and_then(|number| number.parse().ok());
    let (device, file_system) = mount(&read("/proc/self/mountinfo"), folder);
    Machine {
        processor: after(&read("/proc/cpuinfo"), "model name"),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: memory_kib.unwrap_or(0u64) * 1024,
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        device,
        file_system,
    }
}

/// Bytes that files in a folder can still take.
pub(crate) fn free_bytes(folder: &Path) -> u64 {
    statvfs(folder).map_or(0, |found| found.blocks_available() * found.fragment_size())
}

/// Device and file system of the mount that holds a folder, by the text of `mountinfo`.
fn mount(mounts: &str, folder: &Path) -> (String, String) {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let best = mounts
        .lines()
        .filter_map(|line| {
            let (place, about) = line.split_once(" - ")?;
            let point = place.split(' ').nth(4)?;
            let mut about = about.split(' ');
            let (file_system, device) = (about.next()?, about.next()?);
            folder.starts_with(point).then_some((point.len(), device, file_system))
        })
        .max_by_key(|(length, ..)| *length);
    let unknown = || ("unknown".to_owned(), "unknown".to_owned());
    best.map_or_else(unknown, |(_, device, file_system)| {
        (device.to_owned(), file_system.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_is_found() {
        let mounts = "1 2 8:1 / / rw - ext4 /dev/a rw\n3 4 8:2 / /nowhere/b rw - xfs /dev/b rw\n";
        let expected = ("/dev/b".to_owned(), "xfs".to_owned());
        assert_eq!(mount(mounts, Path::new("/nowhere/b/c")), expected);
        let expected = ("/dev/a".to_owned(), "ext4".to_owned());
        assert_eq!(mount(mounts, Path::new("/nowhere/bc")), expected);
    }
}
