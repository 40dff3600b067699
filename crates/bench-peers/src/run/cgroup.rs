//! A memory cgroup, in which page cache counts: version 1 or version 2, whichever the machine has.
//!
//! Invariant: the group is gone when the value is dropped, unless a process is still in it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Where version 1 has its memory controller.
const SEPARATE_ROOT: &str = "/sys/fs/cgroup/memory";
/// Where version 2 is.
const UNIFIED_ROOT: &str = "/sys/fs/cgroup";

/// A group with a limit.
pub(crate) struct Cgroup {
    path: PathBuf,
    version: u8,
}

impl Cgroup {
    /// Makes a group with this limit in bytes and without swap.
    ///
    /// # Errors
    /// [`Failure::Refused`], which says what to do.
    pub(crate) fn create(name: &str, memory_bytes: u64) -> Result<Self, Failure> {
        let (root, version) = if Path::new(SEPARATE_ROOT).join("memory.limit_in_bytes").exists() {
            (SEPARATE_ROOT, 1)
        } else {
            (UNIFIED_ROOT, 2)
        };
        let group = Self { path: Path::new(root).join(name), version };
        group.set_up(root, memory_bytes).map_err(|error| {
            Failure::Refused(format!(
                "cannot limit memory by the cgroup {}: {error}; run as root on a machine whose \
                 memory controller (version 1 at {SEPARATE_ROOT}, or version 2 with `memory` in \
                 {UNIFIED_ROOT}/cgroup.controllers) is mounted writable, or give --no-limit, with \
                 which engines that use the page cache have the memory of the whole machine",
                group.path.display()
            ))
        })?;
        Ok(group)
    }

    fn set_up(&self, root: &str, memory_bytes: u64) -> std::io::Result<()> {
        if self.version == 2 {
            // It may be on already; if it is off, the write of the limit fails.
            drop(fs::write(Path::new(root).join("cgroup.subtree_control"), "+memory"));
        }
        fs::create_dir(&self.path)?;
        let (limit, swap) = match self.version {
            1 => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
            _ => ("memory.max", "memory.swap.max"),
        };
        fs::write(self.path.join(limit), memory_bytes.to_string())?;
        // Version 1 counts memory and swap together. Kernels without swap have no such file.
        let swap_bytes = if self.version == 1 { memory_bytes } else { 0 };
        drop(fs::write(self.path.join(swap), swap_bytes.to_string()));
        Ok(())
    }

    /// Its folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What it is, for the report.
    pub(crate) fn about(&self) -> String {
        format!("a memory cgroup of version {}, in which page cache counts", self.version)
    }

    /// The most memory that it had, page cache included, in bytes.
    pub(crate) fn bytes_peak(&self) -> Option<u64> {
        let file = if self.version == 1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        fs::read_to_string(self.path.join(file)).ok()?.trim().parse().ok()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Page cache that is left would be counted nowhere, and stay.
        let reclaim = if self.version == 1 { "memory.force_empty" } else { "memory.reclaim" };
        drop(fs::write(self.path.join(reclaim), if self.version == 1 { "0" } else { "1G" }));
        drop(fs::remove_dir(&self.path));
    }
}
