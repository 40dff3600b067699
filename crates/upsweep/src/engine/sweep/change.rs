//! From a finished run to the change of the directory that it stands for, and the way back: what
//! happens to queues when blocks split, merge, or keep their old image because there is no room.
//!
//! A block that comes out as one block has *moved*, for all spaces that share it. Blocks that split
//! or merged, or whose large values changed, are *rebuilt* for one space: that changes trees, and
//! whoever shares them keeps the blocks and what waits for them.

use std::sync::Arc;

use super::RunId;
use super::run::{Run, RunBlock};
use super::run_job::{JobDone, JobSpillSegments, Quarantined};
use super::spill::{Spill, SpillId};
use crate::engine::block_format::UpdateRef;
use crate::engine::core::{Core, Publish, Release};
use crate::engine::directory::{BlockId, Directory};
use crate::engine::format::record_format::{Change, Placement, Rebuilt};
use crate::engine::modifier::Refusal;
use crate::engine::quarantine::QUARANTINE_SPACE;
use crate::engine::queue::{Packed, Waiting};
use crate::engine::registry::KeyRange;
use crate::engine::spill_segments;
use crate::log::AppendError;
use crate::placement::Extent;

/// The change that publishes `run`: `extents` are those of its images in order (empty blocks have
/// none), `values` those of its large values (`None` for those that are gone).
pub(super) fn describe(
    directory: &Directory,
    run: &Run,
    done: &JobDone,
    extents: &[Extent],
    values: &[Option<Extent>],
) -> Change {
    let mut change = Change::default();
    if let Some(space) = run.load {
        let placements = Placements { frontier: run.frontier, space };
        change.rebuilt.push(describe_load(directory, &placements, done, extents, values));
        return change;
    }
    let sound: Vec<&RunBlock> = run.blocks.iter().filter(|block| block.is_sound()).collect();
    let mut extents = extents.iter().copied();
    let mut news = done.blocks.iter().peekable();
    let mut first = 0;
    while first < sound.len() {
        let joined = done.joined[first + 1..].iter().take_while(|joined| **joined).count();
        let blocks = &sound[first..=first + joined];
        let space = blocks[0].owner;
        let placement = |records, extent| Placement {
            frontier: run.frontier,
            image_seq: run.frontier,
            image_space: space,
            records,
            extent,
        };
        let mut group = Rebuilt { space, ..Rebuilt::default() };
        group.olds = blocks.iter().map(|block| block.reference()).collect();
        while let Some(block) = news.next_if(|block| block.position <= first + joined) {
            let extent = if block.bytes > 0 { extents.next() } else { None };
            group.news.push((block.key.clone(), placement(block.records, extent)));
        }
        let companion = directory.space(space).map_or(0, |space| space.record.companion);
        for ((position, key, _), extent) in done.values.iter().zip(values) {
            if (first..=first + joined).contains(position) {
                let value = extent.map(|extent| Placement {
                    image_space: companion,
                    ..placement(1, Some(extent))
                });
                group.values.push((key.clone().into_boxed_slice(), value));
            }
        }
        match (group.olds.as_slice(), group.news.as_slice()) {
            ([old], [(_, placement)]) if group.values.is_empty() => {
                change.moved.push((*old, *placement));
            }
            _ => change.rebuilt.push(group),
        }
        first += joined + 1;
    }
    for block in run.blocks.iter().filter(|block| block.is_set_aside()) {
        let Some(id) = directory.table.find(block.reference()) else { continue };
        let block_now = directory.block(id);
        let waits = block_now.frozen.as_ref().is_some_and(|frozen| frozen.count() > 0);
        if waits || block_now.spilled > 0 {
            let placement = block_now.placement();
            let image_seq = if block.has_lost_updates { 0 } else { placement.image_seq };
            let set_aside = Placement { frontier: run.frontier, image_seq, ..placement };
            change.moved.push((block.reference(), set_aside));
        }
    }
    change
}

/// What the images of a load say of themselves.
struct Placements {
    frontier: u64,
    space: u32,
}

/// The blocks of a chunk: new ones, but for the first of a space, which is always there.
fn describe_load(
    directory: &Directory,
    of: &Placements,
    done: &JobDone,
    extents: &[Extent],
    values: &[Option<Extent>],
) -> Rebuilt {
    let companion = directory.space(of.space).map_or(0, |space| space.record.companion);
    let placement = |image_space, records, extent| Placement {
        frontier: of.frontier,
        image_seq: of.frontier,
        image_space,
        records,
        extent,
    };
    let mut group = Rebuilt { space: of.space, ..Rebuilt::default() };
    for (block, extent) in done.blocks.iter().zip(extents) {
        if block.key.is_empty() {
            let first = directory.exact(of.space, &[]);
            group.olds.extend(first.map(|id| directory.table.reference(id)));
        }
        group.news.push((block.key.clone(), placement(of.space, block.records, Some(*extent))));
    }
    for ((_, key, _), extent) in done.values.iter().zip(values) {
        let value = placement(companion, 1, *extent);
        group.values.push((key.clone().into_boxed_slice(), Some(value)));
    }
    group
}

impl Core {
    /// Everything that waits for damaged blocks goes to the quarantine, as far as it can be read:
    /// it can be applied neither now nor later, and must not pin the log. What waits for a damaged
    /// block of the quarantine itself is lost: put there again, it would come back for ever, one
    /// entry inside another. Whoever lists the quarantine is told of the damage.
    pub(super) fn of_damaged(&self, run: &Run) -> Vec<Quarantined> {
        let mut quarantined = Vec::new();
        for run_block in run.blocks.iter().filter(|block| block.is_set_aside()) {
            let damage = run_block.damage.as_deref().unwrap_or_default();
            let space = run_block.owner;
            let block = self.directory.block(run_block.id);
            let Some(frozen) = block.frozen.as_ref().filter(|_| space != QUARANTINE_SPACE) else {
                continue;
            };
            let JobSpillSegments { images, high, .. } = self.job_spill_segments(run, run_block);
            let Some(format) = self.directory.space(space).map(|space| &*space.format) else {
                continue;
            };
            let spilled = images.iter().filter_map(|image| {
                spill_segments::waiting_in(image.body(), &block.key, high.as_deref(), format).ok()
            });
            let waiting: Vec<Waiting<'_>> = spilled.flatten().chain([frozen.unpack()]).collect();
            let updates = waiting.iter().flat_map(Waiting::updates);
            quarantined.extend(updates.map(|update| Quarantined {
                space,
                seq: update.seq,
                modifier: update.modifier,
                key: update.key.to_vec(),
                operand: update.operand.to_vec(),
                reason: Refusal(format!("its block is damaged: {damage}")).into_reason(),
            }));
        }
        quarantined
    }

    /// What a run has applied to a block is in its image now, or concerns nobody; what came since
    /// is taken out of its queue, for it may have to go elsewhere.
    pub(in crate::engine) fn applied(&mut self, id: BlockId) {
        let block = self.directory.block_mut(id);
        block.pinned = false;
        block.spilled = 0;
        block.frozen.take().iter().for_each(|frozen| self.arena.let_go(frozen));
        self.arena.clear(&mut block.queue);
        self.unplaced.remove(&(block.space, block.key.clone(), id));
    }

    /// Puts updates that waited for blocks on the queues of the `news` in their place: those that
    /// cover their keys; all, if a range of keys is removed.
    pub(in crate::engine) fn push_moved(
        &mut self,
        space: u32,
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

    /// Appends the record of a run or a spill, unless the log is left to callers.
    pub(super) fn append_change(
        &mut self,
        payload: &[u8],
        publish: Publish,
    ) -> Result<u64, AppendError> {
        if self.sweep.leaves_log_to_callers {
            return Err(AppendError::Full);
        }
        self.append_internal(payload, publish)
    }

    /// Whether a run or a spill waits for log space that is not there.
    pub(in crate::engine) fn change_waits_for_log(&self) -> bool {
        self.sweep.runs.values().any(Run::waits_for_log)
            || self.sweep.spills.values().any(Spill::waits_for_log)
    }

    /// Publishes the runs and spills for whose records the log has no room. The checkpoint that
    /// begins now makes them durable; until it is complete no other is logged, because it might
    /// build on one of these, and the space they leave behind is not reused. So the sweep can
    /// always go on and release log space, however full the log is.
    pub(in crate::engine) fn carry_changes(&mut self) {
        let carried = self.sweep.runs.iter().filter(|(_, run)| run.waits_for_log());
        let carried: Vec<RunId> = carried.map(|(id, _)| *id).collect();
        for id in carried {
            // Blocks that come into being here are born at a sequence that no record has.
            let birth = 1 << 63 | self.superblock.generation;
            self.publish_run(id, birth, Release::AfterCheckpoint);
        }
        let carried = self.sweep.spills.iter().filter(|(_, spill)| spill.waits_for_log());
        let carried: Vec<SpillId> = carried.map(|(id, _)| *id).collect();
        for id in carried {
            // Behind all that the checkpoint has, and before all that replay comes to.
            self.metrics.spills_carried_total.add(1);
            self.publish_spill(id, self.published, Release::AfterCheckpoint);
        }
    }

    /// Takes what waits for some blocks out of their queues. They keep it until it is in an image
    /// or a spill segment.
    pub(super) fn take_queues(&mut self, blocks: &[BlockId]) -> Vec<Arc<Packed>> {
        let queues = blocks.iter().map(|id| {
            let block = self.directory.block(*id);
            (&block.queue, &*block.key)
        });
        let packed: Vec<Arc<Packed>> =
            self.arena.snapshots(queues).into_iter().map(Arc::new).collect();
        for (id, packed) in blocks.iter().zip(&packed) {
            let block = self.directory.block_mut(*id);
            self.arena.clear(&mut block.queue);
            self.arena.hold(packed);
            let before = block.frozen.replace(Arc::clone(packed));
            debug_assert!(before.is_none(), "a block is in one run or spill at a time");
        }
        packed
    }

    /// Ends the time of a block with a run that was not applied to it: its updates wait again,
    /// before those that came since.
    pub(in crate::engine) fn unfreeze(&mut self, id: BlockId) {
        let block = self.directory.block_mut(id);
        block.pinned = false;
        let Some(frozen) = block.frozen.take() else { return };
        self.arena.let_go(&frozen);
        let live = self.arena.snapshot(&block.queue, &block.key);
        self.arena.clear(&mut block.queue);
        self.push_waiting(id, &[frozen.unpack(), live.unpack()]);
    }

    /// Gives a run up for lack of room. After a rest the next run asks the devices to grow once
    /// more: somebody may have made room.
    pub(super) fn cancel_run(&mut self, id: RunId) {
        self.full = true;
        self.room_events += 1;
        self.growth.forget_refusals();
        self.sweep.rest(self.now_us);
        self.give_run_up(id);
    }

    /// Ends a run that changes nothing.
    pub(super) fn give_run_up(&mut self, id: RunId) {
        let run = self.sweep.runs.remove(&id).expect("a run lives until it is published");
        self.frozen_bytes -= run.frozen_bytes;
        self.unfreeze_all(&run);
    }

    /// Ends the time of all blocks with a run whose updates it has not applied.
    pub(super) fn unfreeze_all(&mut self, run: &Run) {
        for block in &run.blocks {
            if let Some(id) = self.directory.table.find(block.reference()) {
                self.unfreeze(id);
            }
        }
    }
}
