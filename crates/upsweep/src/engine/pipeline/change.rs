//! Converts a finished run to the change of the directory that it represents, and handles the
//! queues when blocks split, merge, or keep their old image because there is no room.
//!
//! A block that results in one block has *moved*, for all spaces that share it. Blocks that split
//! or merged, or whose large values changed, are *rebuilt* for one space: that changes trees, and
//! other spaces that share the blocks keep them and what waits for them.

use super::Pipeline;
use super::block::RunBlock;
use super::run::Run;
use super::spill_segment::job_spill_segments;
use crate::engine::base::Base;
use crate::engine::directory::Directory;
use crate::engine::format::record_format::{DirectoryChange, Placement, Rebuilt};
use crate::engine::growth::Growth;
use crate::engine::ids::SpaceId;
use crate::engine::io::RunId;
use crate::engine::jobs::{JobDone, JobSpillSegments, Quarantined};
use crate::engine::modifier::Refusal;
use crate::engine::quarantine::QUARANTINE_SPACE;
use crate::engine::queue::Waiting;
use crate::engine::spill_segments;
use crate::log::Seq;
use crate::placement::Extent;

/// The change that publishes `run`: `extents` are those of its images in order (empty blocks have
/// none), `values` those of its large values (`None` for removed ones).
pub(super) fn describe(
    directory: &Directory,
    run: &Run,
    done: &JobDone,
    extents: &[Extent],
    values: &[Option<Extent>],
) -> DirectoryChange {
    let mut change = DirectoryChange::default();
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
        let companion =
            directory.space(space).map_or(SpaceId::NONE, |space| space.record.companion);
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
            let image_seq = if block.has_lost_updates { Seq::NONE } else { placement.image_seq };
            let set_aside = Placement { frontier: run.frontier, image_seq, ..placement };
            change.moved.push((block.reference(), set_aside));
        }
    }
    change
}

/// Properties of the images of a load.
struct Placements {
    frontier: Seq,
    space: SpaceId,
}

/// The blocks of a chunk: all new, except the first of a space, which always exists.
fn describe_load(
    directory: &Directory,
    of: &Placements,
    done: &JobDone,
    extents: &[Extent],
    values: &[Option<Extent>],
) -> Rebuilt {
    let companion = directory.space(of.space).map_or(SpaceId::NONE, |space| space.record.companion);
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

/// Sends everything that waits for damaged blocks to the quarantine, as far as it can be read: it
/// can be applied neither now nor later, and must not pin the log. What waits for a damaged block
/// of the quarantine itself is lost: put there again, it would return endlessly, nesting one entry
/// inside another. Listing the quarantine reports the damage.
pub(super) fn of_damaged(base: &Base, run: &Run) -> Vec<Quarantined> {
    let mut quarantined = Vec::new();
    for run_block in run.blocks.iter().filter(|block| block.is_set_aside()) {
        let damage = run_block.damage.as_deref().unwrap_or_default();
        let space = run_block.owner;
        let block = base.index.directory().block(run_block.id);
        let Some(frozen) = block.frozen.as_ref().filter(|_| space != QUARANTINE_SPACE) else {
            continue;
        };
        let JobSpillSegments { images, high, .. } = job_spill_segments(base, run, run_block);
        let Some(format) = base.index.directory().space(space).map(|space| &*space.format) else {
            continue;
        };
        let spilled = images.iter().filter_map(|image| {
            spill_segments::waiting_in(image.body(), &block.key, high.as_deref(), format, |_| true)
                .ok()
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

impl Pipeline {
    /// Abandons a run for lack of room. After a rest the next run asks the devices to grow once
    /// more: room may have become available.
    pub(super) fn cancel_run(&mut self, base: &mut Base, growth: &mut Growth, id: RunId) {
        base.index.set_full(true);
        base.waiters.tell();
        growth.forget_refusals();
        self.has_found_no_room = true;
        self.give_run_up(base, id);
    }

    /// Ends a run without changes: what it has frozen waits again.
    pub(super) fn give_run_up(&mut self, base: &mut Base, id: RunId) {
        let run = self.runs.remove(&id).expect("a run lives until it is published");
        base.index.end_freeze(run.frozen_bytes);
        for block in &run.blocks {
            if let Some(id) = base.index.directory().table.find(block.reference()) {
                base.index.unfreeze(id);
            }
        }
    }
}
