//! Changes of the directory, each represented by a log record.

use super::format::record_format::{CloneRecord, DirectoryChange, RangeRecord, SpaceRecord};
use super::ids::{SnapshotId, SpaceId};
use crate::placement::Extent;

/// A change of the directory that no run makes.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// Updates need blocks at these positions of these spaces, each belonging to its space alone.
    /// Admission has kept so many bytes of queues for what is copied to them.
    Blocks(Vec<(SpaceId, Box<[u8]>)>, usize),
    /// Empty blocks are removed.
    Forget(DirectoryChange),
    /// A new space.
    Create(SpaceRecord),
    /// A space is dropped.
    Drop(SpaceId),
    /// New spaces that are clones.
    Clone(CloneRecord),
    /// A snapshot is dropped.
    DropSnapshot(SnapshotId),
    /// A range of keys is removed.
    RemoveRange(RangeRecord),
    /// A space takes over the blocks of another, which is then removed.
    Adopt {
        /// The space, which is empty.
        space: SpaceId,
        /// The source of its blocks.
        source: SpaceId,
    },
    /// A portion of what was dropped is released.
    Release(usize),
    /// An extent of the data devices is reserved for the owner of a space.
    Reserve(SpaceId, Extent),
    /// A reserved extent is free again.
    GiveBack(Extent),
    /// These references were added to cells of the reference array.
    DeferredCounts(Vec<(u64, i64)>),
}

impl Event {
    /// Whether it releases memory or places of blocks.
    pub(super) fn makes_room(&self) -> bool {
        matches!(
            self,
            Self::Forget(_) | Self::RemoveRange(_) | Self::Release(_) | Self::GiveBack(_)
        )
    }
}
