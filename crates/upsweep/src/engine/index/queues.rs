//! Updates reach the queues of blocks, and runs and spills take what waits out of them.
//!
//! An update is pushed on the queue of its block, or stays *pending* until its record is durable if
//! the block is shared or does not exist (`pending.rs`). A run or a spill *freezes* a queue: the
//! block keeps what waited, as a packed copy, until that is in an image or a spill segment; new
//! updates are queued separately. If the run is abandoned, what was frozen waits again, before the
//! rest.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Index;
use crate::broken::{self, Fault};
use crate::engine::block_format::UpdateRef;
use crate::engine::directory::{BlockId, Target};
use crate::engine::event::Event;
use crate::engine::format::record_format::{BlockRef, LoggedUpdate};
use crate::engine::ids::SpaceId;
use crate::engine::journal::{Journal, Publish};
use crate::engine::pending::Pending;
use crate::engine::queue::{Packed, Waiting};
use crate::engine::registry::{DELETE_RANGE, KeyRange};
use crate::log::Seq;

/// The cost of making a block separate: memory of its queue, room of its image.
#[derive(Default)]
pub(in crate::engine) struct Separation {
    pub(in crate::engine) queue_bytes: usize,
    pub(in crate::engine) growth_bytes: u64,
    pub(in crate::engine) image_bytes: u64,
}

impl Separation {
    pub(in crate::engine) fn add(&mut self, other: &Self) {
        self.queue_bytes += other.queue_bytes;
        self.growth_bytes += other.growth_bytes;
        self.image_bytes += other.image_bytes;
    }
}

impl Index {
    /// Destinations of updates; `None` if their space does not exist. The updates of one record
    /// that go to one block all wait for it or none does, so this is determined before any is
    /// enqueued.
    pub(in crate::engine) fn route<'a>(
        &mut self,
        updates: impl IntoIterator<Item = &'a LoggedUpdate<'a>>,
    ) -> Vec<Option<Target>> {
        let mut targets = std::mem::take(&mut self.targets);
        let target = |update: &LoggedUpdate<'_>| {
            let space = self.directory.space(update.space)?;
            Some(self.directory.target(space, &space.format.position(update.key)))
        };
        targets.extend(updates.into_iter().map(target));
        targets
    }

    /// Looks up the destinations of updates, so that their acceptance finds them in the processor's
    /// cache: the memory accesses of many look-ups overlap, while those of successive acceptances
    /// do not.
    pub(in crate::engine) fn anticipate<'a>(
        &mut self,
        updates: impl Iterator<Item = &'a LoggedUpdate<'a>>,
    ) {
        let targets = self.route(updates);
        self.touch_queues(&targets);
        if broken::is(Fault::StaleAnticipation) {
            self.targets = targets;
        } else {
            self.keep_targets(targets);
        }
    }

    pub(in crate::engine) fn touch_queues(&self, targets: &[Option<Target>]) {
        // Two passes, because the second waits for what the first has prefetched. The key and the
        // queue of a block may be in different lines of the cache.
        let (mut cells, mut touched) = (Vec::with_capacity(targets.len()), 0u32);
        for target in targets {
            if let Some(Target::Block(id)) = target {
                let block = self.directory.block(*id);
                touched = touched.wrapping_add(u32::from(!block.key.is_empty()));
                cells.push(block.queue.last_cell());
            }
        }
        for cell in cells {
            touched = touched.wrapping_add(self.arena.touch(cell));
        }
        std::hint::black_box(touched);
    }

    /// Puts the updates of a record on the queues of their blocks, or among the pending ones.
    pub(in crate::engine) fn enqueue_all(
        &mut self,
        seq: Seq,
        updates: &[LoggedUpdate<'_>],
        journal: &mut Journal,
    ) {
        let targets = self.route(updates);
        self.enqueue_at(seq, updates, targets, 0, journal);
    }

    /// [`Index::enqueue_all`] for updates whose targets are known, and which have so many bytes of
    /// queues copied.
    pub(in crate::engine) fn enqueue_at(
        &mut self,
        seq: Seq,
        updates: &[LoggedUpdate<'_>],
        targets: Vec<Option<Target>>,
        promised_bytes: usize,
        journal: &mut Journal,
    ) {
        let mut later = Vec::new();
        for ((order, update), target) in (0..).zip(updates).zip(&targets) {
            let LoggedUpdate { space, modifier, key, operand } = *update;
            let update = UpdateRef { seq, modifier, key, operand };
            match target {
                None => {}
                Some(Target::Block(id)) => self.push(*id, &update),
                Some(Target::Later(_)) => {
                    let Some(found) = self.directory.space(space) else { continue };
                    let position = found.format.position(key);
                    later.push((space, Box::from(&*position)));
                    self.pending_bytes += Pending::bytes_of(&position, &update);
                    if let Some(found) = self.directory.space_mut(space) {
                        found.pending.push(&position, order, &update);
                    }
                }
            }
        }
        if !later.is_empty() {
            self.promised_bytes += promised_bytes;
            journal.publish_at(seq, Publish::Event(Event::Blocks(later, promised_bytes)));
        }
        self.keep_targets(targets);
    }

    /// Puts one update on the queue of this block.
    pub(in crate::engine) fn push(&mut self, id: BlockId, update: &UpdateRef<'_>) {
        let block = self.directory.block_mut(id);
        let first = block.queue.is_empty();
        self.arena.push(&mut block.queue, &block.key, update, self.bindings.modifiers());
        if first && block.extent().is_none() {
            self.unplaced.insert((block.space, block.key.clone(), id));
        }
        if block.queue.growth_bytes() as usize >= self.oversized_queue_bytes {
            self.out_of_turn.insert(id);
        }
    }

    /// What has to be copied for an update that needs a separate block.
    pub(in crate::engine) fn separation_of(&self, update: &LoggedUpdate<'_>) -> Separation {
        if !self.directory.trees.has_sharing() && self.fences == 0 {
            return Separation::default();
        }
        let Some(space) = self.directory.space(update.space) else { return Separation::default() };
        // A clone may be on its way.
        let will_share = !space.fences.is_empty();
        let position = space.format.position(update.key);
        let covering = || self.directory.covering(update.space, &position).filter(|_| will_share);
        let target = match self.directory.target(space, &position) {
            Target::Later(id) => id.or_else(covering),
            Target::Block(_) => None,
        };
        match target {
            Some(id) => {
                let block = self.directory.block(id);
                let (queue, frozen) = (&block.queue, block.frozen.as_deref());
                Separation {
                    queue_bytes: queue.bytes() as usize + frozen.map_or(0, Packed::memory_bytes),
                    growth_bytes: u64::from(queue.growth_bytes())
                        + u64::from(frozen.map_or(0, Packed::growth_bytes)),
                    image_bytes: block.extent().map_or(0, |extent| u64::from(extent.bytes)),
                }
            }
            None => Separation::default(),
        }
    }

    /// Puts updates on the queue of a block, oldest first.
    pub(in crate::engine) fn push_waiting(&mut self, id: BlockId, parts: &[Waiting<'_>]) {
        let mut updates: Vec<UpdateRef<'_>> = parts.iter().flat_map(Waiting::updates).collect();
        updates.sort_by_key(|update| update.seq);
        for update in &updates {
            self.push(id, update);
        }
    }

    /// Pushes the removal of a range to the blocks that still cover part of it, unless their image
    /// contains it or they are in `told`.
    pub(in crate::engine) fn push_range(
        &mut self,
        seq: Seq,
        space: SpaceId,
        range: &KeyRange<'_>,
        told: &mut BTreeSet<BlockId>,
    ) {
        let operand = range.operand();
        let mut covering = self.directory.covering(space, range.from);
        while let Some(id) = covering {
            let block = self.directory.block(id);
            if range.to.is_some_and(|to| *block.key >= *to) {
                return;
            }
            let next = self.directory.above(space, &block.key);
            if block.placement().frontier < seq && told.insert(id) {
                let (modifier, key) = (DELETE_RANGE, range.from);
                self.push(id, &UpdateRef { seq, modifier, key, operand: &operand });
            }
            covering = next;
        }
    }

    /// What a run has applied to a block is in its image now, or concerns no space; updates that
    /// arrived since are taken out of its queue, because they may have to go elsewhere.
    pub(in crate::engine) fn applied(&mut self, id: BlockId) {
        let block = self.directory.block_mut(id);
        block.pinned = false;
        block.spilled = 0;
        block.frozen.take().iter().for_each(|frozen| self.arena.let_go(frozen));
        self.arena.clear(&mut block.queue);
        self.unplaced.remove(&(block.space, block.key.clone(), id));
    }

    /// Puts updates that waited for blocks on the queues of the `news` that replace them: those
    /// that cover their keys; all, if a range of keys is removed.
    pub(in crate::engine) fn push_moved(
        &mut self,
        space: SpaceId,
        news: &[BlockId],
        moved: &[Waiting<'_>],
    ) {
        let mut updates: Vec<UpdateRef<'_>> = moved.iter().flat_map(Waiting::updates).collect();
        updates.sort_by_key(|update| update.seq);
        for update in &updates {
            if KeyRange::of(update).is_some() {
                news.iter().for_each(|id| self.push(*id, update));
                continue;
            }
            let Some(found) = self.directory.space(space) else { return };
            let position = found.format.position(update.key);
            if let Some(id) = self.directory.covering(space, &position) {
                self.push(id, update);
            }
        }
    }

    /// A run or a spill takes control of a block: it alone moves or splits it.
    pub(in crate::engine) fn pin(&mut self, id: BlockId) {
        let block = self.directory.block_mut(id);
        debug_assert!(!block.pinned, "a block is in one run or spill at a time");
        block.pinned = true;
        self.out_of_turn.remove(&id);
    }

    /// Takes what waits for some blocks out of their queues. They keep it until it is in an image
    /// or a spill segment; then pass the memory of what is returned to [`Index::end_freeze`].
    pub(in crate::engine) fn freeze(&mut self, blocks: &[BlockId]) -> Vec<Arc<Packed>> {
        let queues = blocks.iter().map(|id| {
            let block = self.directory.block(*id);
            (&block.queue, &*block.key)
        });
        let packed: Vec<Arc<Packed>> =
            self.arena.snapshots(queues).into_iter().map(Arc::new).collect();
        for (id, packed) in blocks.iter().zip(&packed) {
            let block = self.directory.block_mut(*id);
            debug_assert!(block.pinned, "only a pinned block is frozen");
            self.arena.clear(&mut block.queue);
            self.arena.hold(packed);
            let before = block.frozen.replace(Arc::clone(packed));
            debug_assert!(before.is_none(), "a block is in one run or spill at a time");
            self.frozen_bytes += packed.memory_bytes();
            if block.extent().is_none() {
                self.unplaced.remove(&(block.space, block.key.clone(), *id));
            }
        }
        packed
    }

    /// This many frozen bytes are no longer needed.
    pub(in crate::engine) fn end_freeze(&mut self, bytes: usize) {
        assert!(self.frozen_bytes >= bytes, "what is given back was frozen");
        self.frozen_bytes -= bytes;
    }

    /// Those of some blocks that still exist.
    pub(in crate::engine) fn found(&self, blocks: &[BlockRef]) -> Vec<BlockId> {
        blocks.iter().filter_map(|block| self.directory.table.find(*block)).collect()
    }

    /// Ends the run of a block: what was frozen is inside its image.
    pub(in crate::engine) fn let_go(&mut self, id: BlockId) {
        let block = self.directory.block_mut(id);
        block.pinned = false;
        block.frozen.take().iter().for_each(|frozen| self.arena.let_go(frozen));
    }

    /// Ends the spill of a block: what was frozen is in a spill segment.
    pub(in crate::engine) fn let_go_spilled(&mut self, id: BlockId) {
        let block = self.directory.block_mut(id);
        block.spilled += block.frozen.as_ref().map_or(0, |frozen| frozen.count());
        self.let_go(id);
    }

    /// Ends the run of a block to which it was not applied: the frozen updates wait again, before
    /// newer ones.
    pub(in crate::engine) fn unfreeze(&mut self, id: BlockId) {
        let block = self.directory.block_mut(id);
        block.pinned = false;
        let Some(frozen) = block.frozen.take() else { return };
        self.arena.let_go(&frozen);
        if broken::is(Fault::GivenUpForgets) {
            return;
        }
        let live = self.arena.snapshot(&block.queue, &block.key);
        self.arena.clear(&mut block.queue);
        self.push_waiting(id, &[frozen.unpack(), live.unpack()]);
    }

    /// Whether a range that contains the key is removed later. Then the block that covers the key
    /// now may never have had it: the update must not even be tried.
    pub(in crate::engine) fn is_removed(&self, space: SpaceId, seq: Seq, key: &[u8]) -> bool {
        self.removed_ranges.iter().any(|(at, record)| {
            *at > seq
                && record.range().contains(key)
                && self.directory.clones.concerns(record.space, *at, space)
        })
    }
}
