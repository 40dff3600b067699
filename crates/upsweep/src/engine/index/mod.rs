//! The index of the data: the directory, the queue of every block, and the places of images.
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | the state, and the figures that others ask for |
//! | `queues.rs` | updates reach queues; runs and spills take what waits and return it |
//! | `publish.rs` | changes of the directory take effect, in replay as in normal operation |
//! | `places.rs` | places of images, and release of unused space |
//! | `spilled.rs` | which spill segments concern which blocks |
//! | `checkpointed.rs` | what a checkpoint has to write, and how it is read again |
//! | `unregistered.rs` | spaces whose block format this process does not have |
//! | `owner.rs` | the space through which a block is seen, and the others that share it |
//!
//! The parts above may read everything here; only the functions here change it, and keep related
//! fields consistent. Invariants: an update waits in exactly one place, a queue, a frozen copy, the
//! pending updates of a space, or a spill segment; `frozen_bytes`, `pending_bytes` and `copy_bytes`
//! are the sums over the existing items; a place is in use if and only if it holds an image, a
//! spill segment, or the last checkpoint.

mod checkpointed;
mod owner;
mod places;
mod publish;
mod queues;
mod spilled;
mod unregistered;

use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) use places::Release;
pub(super) use queues::Separation;

use super::block_format::Routing;
use super::cache::Cache;
use super::config::Config;
use super::directory::{BlockId, Directory, Target};
use super::format::record_format::{RangeRecord, SpaceRecord};
use super::key::BlockKey;
use super::queue::Arena;
use super::registry::{Bindings, Registry};
use super::reserved::ReservedExtents;
use super::spill_segments::SpillSegments;
use super::visitor::{BlockVisitor, Visitors};
use crate::device::DeviceId;
use crate::engine::ids::{SnapshotId, SpaceId};
use crate::error::{Error, RequestError, RetryError};
use crate::log::Seq;
use crate::placement::{Extent, SpaceMap};

/// Directory, queues and places.
pub(super) struct Index {
    pub(super) bindings: Bindings,
    visitors: Arc<Visitors>,
    directory: Directory,
    arena: Arena,
    pub(super) space_map: SpaceMap,
    /// Places of blocks; several may share one.
    physical: BTreeSet<(DeviceId, u64, BlockId)>,
    /// Blocks without an image that have waiting updates: space, key.
    unplaced: BTreeSet<(SpaceId, BlockKey, BlockId)>,
    /// Blocks to be swept out of turn.
    out_of_turn: BTreeSet<BlockId>,
    pub(super) spill_segments: SpillSegments,
    /// Space of the data devices that others use.
    pub(super) reserved: ReservedExtents,
    pub(super) cache: Cache,
    /// Memory of what runs and spills have taken out of queues.
    frozen_bytes: usize,
    /// Memory of updates that wait for their record: see `pending.rs`.
    pending_bytes: usize,
    /// Memory of queues that will be copied for updates which are accepted.
    promised_bytes: usize,
    /// Fences of all spaces.
    fences: usize,
    /// Bytes of images that blocks with waiting updates share with others: their next images are
    /// separate.
    copy_bytes: u64,
    /// Places that only the last checkpoint refers to: of images since changes were carried, and of
    /// spill segments that are no longer needed. The next checkpoint frees them.
    outdated: Vec<Extent>,
    /// The number of the next space.
    next_space: SpaceId,
    /// The last update that is in the queues.
    accepted: Seq,
    /// Every update up to this sequence is inside a published image or a spill segment.
    frontier: Seq,
    /// The data devices had no room for the last run.
    full: bool,
    /// The second pass of recovery is in progress: updates arrive with the sequences of the log.
    replaying: bool,
    /// There are spaces whose block format is not registered.
    has_unregistered: bool,
    /// Ranges of keys whose removal replay has yet to reach: sequence and range.
    removed_ranges: Vec<(Seq, RangeRecord)>,
    /// A block whose queue reaches this many bytes is swept out of turn.
    oversized_queue_bytes: usize,
    /// Buffer for the destinations of the updates of a record; empty between uses.
    targets: Vec<Option<Target>>,
}

impl Index {
    /// An empty index, in which everything up to `frontier` is swept.
    pub(super) fn new(
        config: &Config,
        registry: &Registry,
        space_map: SpaceMap,
        (frontier, next_space): (Seq, SpaceId),
    ) -> Self {
        let oversized_queue_bytes = config.oversized_queue_bytes();
        Self {
            bindings: Bindings::new(registry),
            visitors: Arc::default(),
            directory: Directory::new(config.fanout_min),
            arena: Arena::new(config.fold_bytes_min, oversized_queue_bytes),
            space_map,
            physical: BTreeSet::new(),
            unplaced: BTreeSet::new(),
            out_of_turn: BTreeSet::new(),
            spill_segments: SpillSegments::default(),
            reserved: ReservedExtents::default(),
            cache: Cache::new(config.cache_bytes),
            frozen_bytes: 0,
            pending_bytes: 0,
            promised_bytes: 0,
            fences: 0,
            copy_bytes: 0,
            outdated: Vec::new(),
            next_space,
            accepted: frontier,
            frontier,
            full: false,
            replaying: false,
            has_unregistered: false,
            removed_ranges: Vec::new(),
            oversized_queue_bytes,
            targets: Vec::new(),
        }
    }

    /// Bytes of the data devices that the engine uses itself.
    pub(super) fn used_bytes(&self) -> u64 {
        self.space_map.used_bytes() - self.reserved.bytes()
    }

    /// Spaces, trees and blocks.
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The memory of all queues.
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Places of blocks, in physical order; several blocks may share one.
    pub(super) fn placed(&self) -> &BTreeSet<(DeviceId, u64, BlockId)> {
        &self.physical
    }

    /// Blocks without an image that have waiting updates, in key order.
    pub(super) fn unplaced(&self) -> &BTreeSet<(SpaceId, BlockKey, BlockId)> {
        &self.unplaced
    }

    /// Places that only the last checkpoint refers to.
    pub(super) fn outdated(&self) -> &[Extent] {
        &self.outdated
    }

    /// Memory of updates that wait for their record.
    pub(super) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Bytes of images that will become separate ones, because blocks with waiting updates share
    /// them.
    pub(super) fn copy_bytes(&self) -> u64 {
        self.copy_bytes
    }

    /// The visitors of the blocks of all spaces.
    pub(super) fn visitors(&self) -> &Arc<Visitors> {
        &self.visitors
    }

    /// Shows the blocks of a space to `visitor` from now on.
    pub(super) fn set_visitor(&mut self, space: SpaceId, visitor: Option<Arc<dyn BlockVisitor>>) {
        Arc::make_mut(&mut self.visitors).set(space, visitor);
    }

    /// The number of the next space.
    pub(super) fn next_space(&self) -> SpaceId {
        self.next_space
    }

    /// The number of the next space, as snapshots draw theirs from those of spaces.
    pub(super) fn next_snapshot(&self) -> SnapshotId {
        SnapshotId::new(self.next_space.get())
    }

    /// Assigns numbers to this many spaces, and as many companions.
    pub(super) fn take_spaces(&mut self, count: u32) {
        self.next_space = self.next_space.plus(2 * count);
    }

    /// The last update that is in the queues.
    pub(super) fn accepted(&self) -> Seq {
        self.accepted
    }

    /// Updates up to this sequence are in the queues, or will be before any later ones.
    pub(super) fn accept_through(&mut self, seq: Seq) {
        self.accepted = self.accepted.max(seq);
    }

    /// Separates what was accepted so far from what follows, for queries of ages.
    pub(super) fn mark_accepted(&mut self) {
        self.arena.mark(self.accepted.next());
    }

    /// Every update up to this sequence is inside a published image or a spill segment.
    pub(super) fn frontier(&self) -> Seq {
        self.frontier
    }

    /// Whether the data devices had no room for the last run or checkpoint.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Sets whether they had room.
    pub(super) fn set_full(&mut self, is_full: bool) {
        self.full = is_full;
    }

    /// Marks a block to be swept out of turn.
    pub(super) fn sweep_out_of_turn(&mut self, block: BlockId) {
        self.out_of_turn.insert(block);
    }

    /// Whether any block is to be swept out of turn.
    pub(super) fn has_out_of_turn(&self) -> bool {
        !self.out_of_turn.is_empty()
    }

    /// Takes out the next block to be swept out of turn.
    pub(super) fn next_out_of_turn(&mut self) -> Option<BlockId> {
        while let Some(id) = self.out_of_turn.pop_first() {
            let block = self.directory.block(id);
            if !block.pinned && block.waits() {
                return Some(id);
            }
        }
        None
    }

    /// The second pass of recovery begins.
    pub(super) fn begin_replay(&mut self) {
        debug_assert!(!self.replaying, "replay begins once");
        self.replaying = true;
    }

    /// Everything of the log is in images, queues and spill segments.
    pub(super) fn end_replay(&mut self) {
        debug_assert!(self.replaying, "replay must begin before it ends");
        self.replaying = false;
        self.removed_ranges.clear();
    }

    /// Whether the second pass of recovery is in progress.
    pub(super) fn is_replaying(&self) -> bool {
        self.replaying
    }

    /// Replay will reach the removal of this range.
    pub(super) fn will_remove(&mut self, seq: Seq, range: RangeRecord) {
        self.removed_ranges.push((seq, range));
    }

    /// Ranges of keys whose removal replay has yet to reach, with their sequences.
    pub(super) fn removed_ranges(&self) -> &[(Seq, RangeRecord)] {
        &self.removed_ranges
    }

    /// Returns the buffer of [`Index::route`].
    pub(super) fn keep_targets(&mut self, mut targets: Vec<Option<Target>>) {
        targets.clear();
        self.targets = targets;
    }

    /// Checks that a space exists, and returns its record.
    ///
    /// # Errors
    /// [`RequestError::NoTable`].
    pub(super) fn check_space(&self, space: SpaceId) -> Result<&SpaceRecord, Error> {
        let no_table = || RequestError::NoTable(format!("number {space}")).into();
        self.directory.space(space).map(|space| &space.record).ok_or_else(no_table)
    }

    /// The end of the positions of the block at `low`.
    pub(super) fn high_of(&self, space: SpaceId, low: &[u8]) -> Option<Box<[u8]>> {
        let found = self.directory.space(space)?;
        if found.format.routing() == Routing::Exact {
            return Some([low, &[0]].concat().into());
        }
        let above = self.directory.above(space, low)?;
        Some((*self.directory.block(above).key).into())
    }

    /// From now on updates of a space wait until the record of this sequence has taken effect: they
    /// come after it.
    pub(super) fn raise_fence(&mut self, space: SpaceId, seq: Seq) {
        if let Some(space) = self.directory.space_mut(space) {
            debug_assert!(space.fences.back().is_none_or(|last| *last <= seq), "in log order");
            space.fences.push_back(seq);
            self.fences += 1;
        }
    }

    /// The change of this sequence to a space as a whole has taken effect.
    fn lower_fence(&mut self, space: SpaceId, seq: Seq) {
        if let Some(space) = self.directory.space_mut(space) {
            let before = space.fences.len();
            space.fences.retain(|fence| *fence != seq);
            self.fences -= before - space.fences.len();
        }
    }

    /// Moves the global frontier: what is older than all waiting updates is in images or spill
    /// segments. Records not in effect yet may still put updates of their sequence on queues:
    /// `next` is the first such sequence, `last` that of the last record.
    pub(super) fn find_frontier(&mut self, next: Option<Seq>, last: Seq) {
        let next = next.unwrap_or(Seq::MAX);
        let before = self.frontier;
        assert!(before < next, "records not in effect yet are beyond the frontier");
        let waiting = self.arena.oldest().unwrap_or(Seq::MAX).min(next);
        // Records that are not updates need no sweep, and replay has not seen all of them.
        let seen = if self.replaying { self.accepted } else { last };
        let frontier = waiting.previous().min(seen);
        self.frontier = before.max(frontier);
        assert!(self.frontier < next && self.frontier <= last, "nor does it pass the log");
        debug_assert!(self.swept() <= self.frontier, "swept updates are no longer queued");
    }

    /// Every update up to this sequence is inside a published image.
    pub(super) fn swept(&self) -> Seq {
        let of_spill_segments = self.spill_segments.first_seq().map_or(Seq::MAX, Seq::previous);
        self.frontier.min(of_spill_segments)
    }

    /// Memory that waiting updates take, those of running sweeps included.
    pub(super) fn queue_bytes(&self) -> usize {
        self.arena.used_bytes() + self.frozen_bytes + self.pending_bytes
    }

    /// Memory that they will take in addition, because blocks become separate.
    pub(super) fn promised_bytes(&self) -> usize {
        self.promised_bytes
    }

    /// Queue entries that wait, those of running sweeps included. Cost: a pass over all blocks.
    pub(super) fn waiting_entries(&self) -> u64 {
        let of_block = |block: &super::directory::Block| {
            let frozen = block.frozen.as_ref().map_or(0, |frozen| frozen.count());
            u64::from(frozen) + u64::from(block.queue.count())
        };
        let pending: usize = self.directory.spaces().map(|space| space.pending.len()).sum();
        self.directory.table.from(0).map(of_block).sum::<u64>() + pending as u64
    }

    /// Updates that wait in spill segments. Cost: a pass over all blocks.
    pub(super) fn spilled_entries(&self) -> u64 {
        self.directory.table.from(0).map(|block| u64::from(block.spilled)).sum()
    }

    /// The error for full data devices.
    pub(super) fn full_error(&self) -> Error {
        RetryError::Full { capacity_bytes: self.space_map.capacity_bytes() }.into()
    }
}
