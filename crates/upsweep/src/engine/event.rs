//! Changes of the directory, each of which a record of the log stands for.

use super::format::record_format::{CloneRecord, DirectoryChange, RangeRecord, SpaceRecord};
use super::ids::{SnapshotId, SpaceId};

/// A change of the directory that is not a run's.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// Updates need blocks at these positions of these spaces, each for its space alone.
    Blocks(Vec<(SpaceId, Box<[u8]>)>),
    /// Blocks that are empty go.
    Forget(DirectoryChange),
    /// A new space.
    Create(SpaceRecord),
    /// The end of a space.
    Drop(SpaceId),
    /// New spaces that are clones.
    Clone(CloneRecord),
    /// The end of a snapshot.
    DropSnapshot(SnapshotId),
    /// A range of keys goes.
    RemoveRange(RangeRecord),
    /// A space gets the blocks of another, which ends.
    Adopt {
        /// The space, which is empty.
        space: SpaceId,
        /// Where its blocks come from.
        source: SpaceId,
    },
    /// A portion of what was dropped is given back.
    Release(usize),
    /// Cells of the reference array were told of these references.
    DeferredCounts(Vec<(u64, i64)>),
}

impl Event {
    /// Whether it gives memory or places of blocks back.
    pub(super) fn makes_room(&self) -> bool {
        matches!(self, Self::Forget(_) | Self::RemoveRange(_) | Self::Release(_))
    }
}
