//! From a finished run to the change of the directory that it stands for, and the way back: what
//! happens to queues when blocks split, merge, or keep their old image because there is no room.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::RunId;
use super::job::{NewBlock, Quarantined};
use super::run::{Run, RunBlock};

use crate::engine::block_format::UpdateRef;
use crate::engine::core::Core;
use crate::engine::directory::{BlockId, Directory};
use crate::engine::format::record_format::{Change, Placed};
use crate::engine::quarantine::QUARANTINE_SPACE;
use crate::engine::queue::Waiting;
use crate::placement::Extent;

/// A large value: space and key, and where it is; no place if it is gone.
pub(super) type PlacedValue = ((u32, Vec<u8>), Option<Extent>);

/// The change that publishes `run`: `blocks` are its images, whose extents are `extents` in order
/// (empty blocks have none); `large` are the large values that were written or are gone.
pub(super) fn describe(
    directory: &Directory,
    run: &Run,
    blocks: &[NewBlock],
    extents: &[Extent],
    large: Vec<PlacedValue>,
) -> Change {
    let frontier = run.frontier;
    let mut change = Change::default();
    let mut extents = extents.iter().copied();
    for block in blocks {
        let extent = if block.bytes > 0 { extents.next() } else { None };
        let (space, key, records) = (block.space, block.key.clone(), block.records);
        change.placed.push(Placed { space, key, frontier, image_seq: frontier, records, extent });
    }
    let kept: BTreeMap<(u32, &[u8]), ()> =
        blocks.iter().map(|block| ((block.space, &*block.key), ())).collect();
    for run_block in &run.blocks {
        let block = directory.block(run_block.id);
        if run_block.is_set_aside() {
            let (space, key, records) = (block.space, block.key.clone(), block.records);
            let (image_seq, extent) = (run_block.image_seq, run_block.extent);
            change.placed.push(Placed { space, key, frontier, image_seq, records, extent });
        } else if !kept.contains_key(&(block.space, &*block.key)) {
            change.removed.push((block.space, block.key.clone()));
        }
    }
    for ((space, key), extent) in large {
        let key = key.into_boxed_slice();
        match extent {
            Some(_) => change.placed.push(Placed {
                space,
                key,
                frontier,
                image_seq: frontier,
                records: 1,
                extent,
            }),
            None => change.removed.push((space, key)),
        }
    }
    change
}

/// Everything that waits for damaged blocks goes to the quarantine: it can be applied neither now
/// nor later, and must not pin the log. What waits for a damaged block of the quarantine itself is
/// lost: put there again, it would come back for ever, one entry inside another. Whoever lists the
/// quarantine is told of the damage.
pub(super) fn of_damaged(directory: &Directory, blocks: &[RunBlock]) -> Vec<Quarantined> {
    let mut quarantined = Vec::new();
    for run_block in blocks {
        if !run_block.is_set_aside() {
            continue;
        }
        let damage = run_block.damage.as_deref().unwrap_or_default();
        let block = directory.block(run_block.id);
        let Some(frozen) = block.frozen.as_ref().filter(|_| block.space != QUARANTINE_SPACE) else {
            continue;
        };
        frozen.for_each(|update| {
            quarantined.push(Quarantined {
                space: block.space,
                seq: update.seq,
                modifier: update.modifier,
                key: update.key.to_vec(),
                operand: update.operand.to_vec(),
                reason: format!("its block is damaged: {damage}"),
            });
        });
    }
    quarantined
}

/// Updates on their way from one queue to another, with the space they belong to.
pub(super) type Moved = Vec<(u32, Arc<Waiting>)>;

impl Core {
    /// Takes the live queue of a block of a run, whose time with the run is over.
    pub(super) fn take_live(&mut self, id: BlockId, moved: &mut Moved) {
        let block = self.directory.block_mut(id);
        block.busy = false;
        block.frozen = None;
        if block.queue.is_empty() {
            return;
        }
        let waiting = self.arena.snapshot(&block.queue);
        self.arena.clear(&mut block.queue);
        self.unplaced.remove(&(block.space, block.key.clone()));
        moved.push((block.space, Arc::new(waiting)));
    }

    /// Puts updates back on the queues of the blocks that cover their keys now.
    pub(super) fn push_all(&mut self, moved: &[(u32, Arc<Waiting>)]) {
        let by_space = |left: &(u32, Arc<Waiting>), right: &(u32, Arc<Waiting>)| left.0 == right.0;
        for group in moved.chunk_by(by_space) {
            let space = group[0].0;
            let mut updates: Vec<UpdateRef<'_>> = Vec::new();
            group.iter().for_each(|(_, waiting)| waiting.for_each(|update| updates.push(update)));
            updates.sort_by_key(|update| update.seq);
            if let Some(first) = updates.first() {
                self.sweep.note_moved(first.seq);
            }
            for update in &updates {
                if let Some(id) = self.route(space, update.key) {
                    self.push(id, update);
                }
            }
        }
    }

    /// Gives a run up for lack of room: its updates wait again, before those that came since. After
    /// a rest the next run asks the devices to grow once more: somebody may have made room.
    pub(super) fn cancel_run(&mut self, id: RunId) {
        self.full = true;
        self.room_events += 1;
        self.growth.forget_refusals();
        self.sweep.rest_until(self.now_us);
        let run = self.sweep.runs.remove(&id).expect("a run lives until it is published");
        self.frozen_bytes -= run.frozen_bytes;
        let mut moved = Moved::new();
        for run_block in &run.blocks {
            let block = self.directory.block_mut(run_block.id);
            let space = block.space;
            if let Some(frozen) = block.frozen.take() {
                moved.push((space, frozen));
            }
            self.take_live(run_block.id, &mut moved);
        }
        self.push_all(&moved);
    }
}
