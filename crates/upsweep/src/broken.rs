//! Engines that are broken on purpose: the simulator has to notice each of these faults.
//!
//! Only a build with the feature `broken` can have one, and only once it was chosen. In any other
//! build [`is`] is a constant, so nothing of a fault is left in the code.
//!
//! The choice is the one static of the engine, which has no state outside of its values otherwise.
//! Tests alone set it, once in a process, and as a value it would go through every layer.

/// Defines the faults and, for those who choose one, the list of them.
macro_rules! faults {
    ($($(#[doc = $text:literal])+ $name:ident,)+) => {
        /// A way to be broken.
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
    /// A batch that is durable counts, though an earlier one is not.
    AcknowledgementOverGap,
    /// A ring of the log becomes longer at a time when replay would then miss a batch.
    EarlyLogGrowth,
    /// The log is released when a checkpoint begins, not when it is complete.
    EarlyRelease,

    // Writing elsewhere, and what is free then.
    /// A run writes its blocks to where they are.
    OverwriteInPlace,
    /// Places of blocks that nobody has any more are never free.
    Leak,
    /// An image is given back by the first of those who share it.
    FreedWhileShared,
    /// Holes of a file are written to without being allocated.
    UnallocatedHole,
    /// A place is free and the cache still has what was there.
    StaleCache,

    // The order of write, flush and record.
    /// The change of a run is logged before its images are flushed.
    ChangeBeforeFlush,
    /// A spill is logged before it is flushed.
    SpillBeforeFlush,
    /// A flush that is under way also counts for what was written since it began.
    FlushForLaterWrites,
    /// One data device of several is flushed.
    FlushOfOneDevice,
    /// Changes take effect, and free places, before their record is durable.
    EarlyPublication,

    // Checkpoints.
    /// The superblock names a root that is not stable.
    SuperblockBeforeFlush,
    /// A checkpoint releases the log of updates that wait in memory.
    ReleaseOfWaiting,
    /// A checkpoint releases the log of updates that a run has in hand.
    ReleaseOfFrozen,
    /// A node that changes while a checkpoint is on its way is not written as it was.
    CheckpointOfLaterNodes,
    /// What only the last checkpoint lists is free before the next one is complete.
    EarlyReuse,
    /// The place of spilled updates is free while the last complete checkpoint still lists them.
    EarlyReuseOfSpill,

    // Runs of the sweep.
    /// A run does not wait for updates that are on their way to its blocks.
    RunPassesPending,
    /// What came for a block since a run began is lost when the block splits or merges.
    SplitForgets,
    /// What a run had in hand that was given up is lost.
    GivenUpForgets,
    /// A compaction moves blocks that another run has in hand.
    CompactionOfPinnedBlocks,
    /// A compaction passes the spilled updates of the blocks that it moves.
    CompactionWithoutSpills,

    // Replay.
    /// A batch of which a part was never written ends the log no more.
    ReplayOfTornBatch,
    /// Replay applies again what is in images.
    ReplayIgnoresFrontier,
    /// Replay applies the last update of an image again.
    ReplayFromFrontier,
    /// Replay applies again what was spilled.
    ReplayIgnoresSpills,

    // Clones, and queries.
    /// An update of a shared block goes to all who share it.
    SharedInPlace,
    /// A block that is no longer shared loses what waited for it.
    CloneWithoutWaiting,
    /// A query does not look at what was spilled.
    QueryWithoutSpills,
    /// Long updates that were refused do not come to the quarantine.
    LostRefusal,

    // Those who wait for room.
    /// Nobody is told that a run has made room.
    LostWake,
    /// The sweep is at its ease while somebody waits.
    RestWhileOneWaits,
    /// Spills begin when what they relieve is full.
    LateSpill,

    // What callers do themselves.
    /// What was read of a block is its image, though it has another one meanwhile.
    ReadOfMoved,
    /// A caller that has read a block does not tell those who wait for the same one.
    LostReaders,
    /// Updates go to where others were expected to go.
    StaleAnticipation,
    /// Callers whose record is to be durable are answered when its batch is on its way.
    EarlyAnswer,
    /// A caller that had to wait offers its records again from the first.
    OffersBeginAnew,
    /// Changes that wait for room are passed by those that came later.
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

    /// Breaks the engine of this process, for good. The first choice counts.
    pub fn choose(fault: Fault) {
        CHOSEN.get_or_init(|| fault);
    }

    /// Whether this fault was chosen.
    #[must_use]
    pub fn is(fault: Fault) -> bool {
        CHOSEN.get() == Some(&fault)
    }
}
