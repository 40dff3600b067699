//! Deliberately broken engines: the simulator must notice each of these faults.
//!
//! A fault is active only in a build with the feature `broken`, and only once it was chosen. In any
//! other build [`is`] is a constant, so the compiler removes the faults.
//!
//! The choice is the only static of the engine, which otherwise has no global state. Only tests set
//! it, once per process; as a value it would have to be passed through every layer.

/// Defines the faults and, for those who choose one, the list of them.
macro_rules! faults {
    ($($(#[doc = $text:literal])+ $name:ident,)+) => {
        /// A fault of the engine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($(#[doc = $text])+ $name,)+
        }

        /// Every fault, and what is broken then.
        #[cfg(feature = "broken")]
        pub const FAULTS: &[(Fault, &str)] = &[$((Fault::$name, concat!($($text),+)),)+];
    };
}

faults! {
    // The log.
    /// Updates are acknowledged when their batch is submitted, not when it is durable.
    EarlyAcknowledgement,
    /// A durable batch is acknowledged although an earlier one is not durable.
    AcknowledgementOverGap,
    /// A log ring grows at a time when replay would then miss a batch.
    EarlyLogGrowth,
    /// Recovery does not look for batches behind the cursors.
    SkipsUnseen,
    /// The log is released when a checkpoint begins, not when it is complete.
    EarlyRelease,

    // Copy-on-write and free space.
    /// A run overwrites its blocks in place.
    OverwriteInPlace,
    /// The space of unreferenced blocks is never freed.
    Leak,
    /// An image is freed by the first of its owners.
    FreedWhileShared,
    /// Holes of a file are written to without being allocated.
    UnallocatedHole,
    /// Space is freed while the cache still has its old content.
    StaleCache,
    /// A reserved extent is free before the record that gives it back is durable.
    EarlyGiveBack,
    /// The cache keeps memory that waiting updates need.
    CacheKeepsMemory,

    // The order of write, flush and record.
    /// The change of a run is logged before its images are flushed.
    ChangeBeforeFlush,
    /// A spill is logged before it is flushed.
    SpillBeforeFlush,
    /// A flush in progress also counts for later writes.
    FlushForLaterWrites,
    /// Only one of several data devices is flushed.
    FlushOfOneDevice,
    /// Changes take effect, and free places, before their record is durable.
    EarlyPublication,

    // Checkpoints.
    /// The superblock names a root that is not stable.
    SuperblockBeforeFlush,
    /// A checkpoint releases the log of updates pending in memory.
    ReleaseOfWaiting,
    /// A checkpoint releases the log of updates frozen by a run.
    ReleaseOfFrozen,
    /// A node that changes during a checkpoint is written with the later content.
    CheckpointOfLaterNodes,
    /// Space that only the last checkpoint lists is free before the next one is complete.
    EarlyReuse,
    /// A checkpoint does not list reserved extents.
    CheckpointWithoutExtents,
    /// The space of spilled updates is free while the last complete checkpoint still lists them.
    EarlyReuseOfSpill,

    // Runs of the sweep.
    /// A run does not wait for updates that are being accepted for its blocks.
    RunPassesPending,
    /// Updates accepted for a block since a run began are lost when the block splits or merges.
    SplitForgets,
    /// The updates of an abandoned run are lost.
    GivenUpForgets,
    /// A compaction moves blocks that another run holds.
    CompactionOfPinnedBlocks,
    /// A compaction ignores the spilled updates of the blocks that it moves.
    CompactionWithoutSpills,

    // Replay.
    /// A torn batch no longer ends the log.
    ReplayOfTornBatch,
    /// Replay reapplies updates that images already contain.
    ReplayIgnoresFrontier,
    /// Replay reapplies the last update of an image.
    ReplayFromFrontier,
    /// Replay reapplies spilled updates.
    ReplayIgnoresSpills,

    // Clones, and queries.
    /// An update of a shared block affects all its owners.
    SharedInPlace,
    /// A block that is no longer shared loses its pending updates.
    CloneWithoutWaiting,
    /// A query ignores spilled updates.
    QueryWithoutSpills,
    /// Long refused updates do not reach the quarantine.
    LostRefusal,

    // Waiting for room.
    /// Waiters are not notified when a run frees memory.
    LostWake,
    /// The sweep idles while a caller waits.
    RestWhileOneWaits,
    /// Spills begin only when the resource that they relieve is full.
    LateSpill,

    // Work that callers do themselves.
    /// A stale read of a block is taken for its current image.
    ReadOfMoved,
    /// A scan takes a block that it has read ahead for its current image.
    ScanOfMoved,
    /// A scan shows blocks as they were when it gathered their views.
    StaleScan,
    /// A caller that has read a block does not notify those that wait for the same one.
    LostReaders,
    /// Updates go to an anticipated position that is stale.
    StaleAnticipation,
    /// Callers that wait for durability are answered when the batch is submitted.
    EarlyAnswer,
    /// A caller that had to wait submits its records again from the first.
    OffersBeginAnew,
    /// Changes parked for room are overtaken by later ones.
    ParkedOvertakes,
}

/// Whether this fault was chosen.
#[cfg(not(feature = "broken"))]
#[must_use]
#[inline]
pub const fn is(_fault: Fault) -> bool {
    false
}

#[cfg(feature = "broken")]
pub use chosen::{choose, is};

#[cfg(feature = "broken")]
mod chosen {
    //! The choice, in builds that have one.

    use std::sync::OnceLock;

    use super::Fault;

    static CHOSEN: OnceLock<Fault> = OnceLock::new();

    /// Breaks the engine of this process permanently. The first choice counts.
    pub fn choose(fault: Fault) {
        CHOSEN.get_or_init(|| fault);
    }

    /// Whether this fault was chosen.
    #[must_use]
    pub fn is(fault: Fault) -> bool {
        CHOSEN.get() == Some(&fault)
    }
}
