//! Tells without a lock whether a block may have changed.
//!
//! A scan takes views of several blocks while it has the core, and uses them one by one. The
//! version of a view says whether it still shows its block as it is. It has the count of changes of
//! the block, and that of changes of anything but single blocks: of trees, spaces, and updates that
//! are pending. Blocks share counters. So a version may be outdated although its block has not
//! changed, but never the other way round.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that blocks share, 128 KiB: of a thousand blocks that change while a scan uses its
/// views, six in a hundred outdate that of another one.
const COUNTERS: usize = 1 << 14;

/// The counters. Only who has the core changes them.
#[derive(Debug)]
pub struct Versions {
    all: AtomicU64,
    blocks: Box<[AtomicU64]>,
}

/// The version of a view: see [`Versions::is_current`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    all: u64,
    /// The counter of the block, and what it said.
    block: Option<(usize, u64)>,
}

impl Default for Versions {
    fn default() -> Self {
        let blocks = (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
        Self { all: AtomicU64::new(0), blocks }
    }
}

impl Versions {
    /// The block with this number changes.
    pub(super) fn change(&self, block: u32) {
        count(&self.blocks[block as usize % COUNTERS]);
    }

    /// Something changes that concerns no single block.
    pub(super) fn change_all(&self) {
        count(&self.all);
    }

    /// The version of what is known of the block with this number now; `None`: that there is none.
    pub(super) fn now(&self, block: Option<u32>) -> Version {
        let all = self.all.load(Ordering::Acquire);
        let of_counter = |counter: usize| (counter, self.blocks[counter].load(Ordering::Acquire));
        Version { all, block: block.map(|block| of_counter(block as usize % COUNTERS)) }
    }

    /// Whether nothing that was accepted before this call has changed what the view shows.
    #[must_use]
    pub fn is_current(&self, version: Version) -> bool {
        let is_current =
            |(counter, count): (usize, u64)| self.blocks[counter].load(Ordering::Acquire) == count;
        self.all.load(Ordering::Acquire) == version.all && version.block.is_none_or(is_current)
    }
}

/// Counts one more. There is one writer, so this need not be one operation.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_outdated_by_changes_of_its_block_or_of_everything() {
        let versions = Versions::default();
        let of = |block: u32| versions.now(Some(block));
        let (first, second, none) = (of(1), of(2), versions.now(None));
        versions.change(1);
        let are_current = || [first, second, none].map(|version| versions.is_current(version));
        assert_eq!(are_current(), [false, true, true]);
        assert!(versions.is_current(of(1)));
        versions.change(2 + COUNTERS as u32);
        assert_eq!(are_current(), [false, false, true]);
        versions.change_all();
        assert_eq!(are_current(), [false, false, false]);
    }
}
