//! Which file systems honour a request for a stable write (`RWF_DSYNC` on Linux), and which need a
//! sync after it.
//!
//! Linux does not promise it: on FUSE the asynchronous direct path, which io_uring takes, skips the
//! sync (seen with 6.18), so a power cut loses the write. Therefore stable writes are trusted only
//! on file systems where they were verified; `docs/durability.md` says which, and how. On all
//! others a sync of the file follows, which costs a second request.

/// File systems on which stable writes were verified, by the type that `statfs` reports.
const VERIFIED: [(u64, &str); 4] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    // Nothing there survives a power cut, synced or not.
    (0x0102_1994, "tmpfs"),
];

/// How a write becomes stable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StableWrites {
    /// Whether a write with `RWF_DSYNC` is enough.
    pub(super) by_themselves: bool,
    /// Why, for people.
    pub(super) reason: String,
}

impl StableWrites {
    /// On a block device: the kernel writes through the cache of the device, or flushes it.
    pub(super) fn of_block_device() -> Self {
        let reason = "a stable write is one request: block device".to_owned();
        Self { by_themselves: true, reason }
    }

    /// On a file system of this type; `None` if the system does not report it.
    pub(super) fn of_file_system(kind: Option<u64>) -> Self {
        let found = VERIFIED.iter().find(|(verified, _)| Some(*verified) == kind);
        if let Some((_, name)) = found {
            let reason = format!("a stable write is one request: verified for {name}");
            return Self { by_themselves: true, reason };
        }
        let kind = kind.map_or("unknown".to_owned(), |kind| format!("{kind:#x}"));
        let reason = format!(
            "a sync follows every stable write: writes that are stable by themselves were not \
             verified for this file system (type {kind})"
        );
        Self { by_themselves: false, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_nobody_has_looked_at_is_not_trusted() {
        const FUSE: u64 = 0x6573_5546;
        const NFS: u64 = 0x6969;
        assert!(StableWrites::of_file_system(Some(0xef53)).by_themselves);
        for kind in [Some(FUSE), Some(NFS), Some(0), None] {
            let found = StableWrites::of_file_system(kind);
            assert!(!found.by_themselves);
            assert!(found.reason.contains("not verified"), "{}", found.reason);
        }
    }
}
