//! One run on its way through the pipeline: read, freeze, apply, place, write, flush, log, publish.

use std::sync::Arc;

use super::job::Job;
use super::run_job::{JobBlock, JobDone, JobResult, RunJob, RunOutput};
use super::spill_segment::RunSpillSegment;
use super::{Flushing, RunId, values};
use crate::device::{Buffer, Completion, Operation};
use crate::engine::cache::Image;
use crate::engine::core::{Actions, Core, IoKind, Publish, Release};
use crate::engine::directory::{BlockId, BlockTable};
use crate::engine::format::image_format::{self, Identity, ImageKind};
use crate::engine::format::record_format::{BlockRef, Change, LOST_UPDATES, Placement};
use crate::engine::quarantine;
use crate::engine::queue::excess_bytes;
use crate::engine::spill_segments::SpillSegment;
use crate::log::AppendError;
use crate::placement::Extent;

/// A block of a run.
pub(in crate::engine) struct RunBlock {
    pub(in crate::engine) id: BlockId,
    birth: u64,
    /// Where it was when the run began; it moves by no other way than this run.
    placement: Placement,
    /// The space through which the run sees it, from the time at which its updates are frozen.
    pub(super) owner: u32,
    /// No space has it any more.
    pub(super) is_gone: bool,
    image: Option<Arc<Image>>,
    /// Why the block cannot be used, if so.
    pub(super) damage: Option<String>,
    /// Updates of it were in a spill segment that cannot be read.
    pub(super) has_lost_updates: bool,
    /// A damaged block of the quarantine table cannot send its updates to the quarantine, which is
    /// itself: they go to a new image, and what was in the old one is lost with it.
    starts_anew: bool,
}

/// The large values that were loaded for a block, by key.
type LoadedValues = (BlockId, Vec<(Vec<u8>, Vec<u8>)>);

/// Where a run is.
pub(super) enum Phase {
    Reading {
        pending: usize,
    },
    Applying,
    LoadingValues {
        pending: usize,
        job: Box<RunJob>,
    },
    Placing(Box<JobDone>),
    Writing {
        pending: usize,
    },
    Flushing,
    /// The change is to be logged; `refused` if the log had no room for it.
    Logging {
        refused: bool,
    },
    Committing,
}

/// One run.
pub(in crate::engine) struct Run {
    pub(in crate::engine) blocks: Vec<RunBlock>,
    /// Those that have updates of its blocks; `None` until they are looked for.
    pub(super) spill_segments: Option<Vec<RunSpillSegment>>,
    /// Those of them whose updates of its blocks are in the images on their way.
    pub(super) applied_spill_segments: Vec<Arc<SpillSegment>>,
    pub(super) phase: Phase,
    pub(super) frontier: u64,
    pub(super) frozen_bytes: usize,
    /// Bytes of the large values that it has in memory.
    pub(super) values_bytes: usize,
    /// Memory that its worker needs for long queues beyond the room of any run.
    pub(super) excess_bytes: usize,
    /// How much the blocks grow if every update makes a new record, about.
    pub(super) growth_bytes: u64,
    /// Target size of the blocks that come out, in bytes: less than the store's where free space is
    /// in pieces.
    pub(super) block_bytes: u32,
    /// The space whose blocks these are, if they are loaded and nothing was there before.
    pub(super) load: Option<u32>,
    /// Large values were loaded of a space that the run no longer sees their block through.
    pub(super) has_stale_values: bool,
    /// Shared blocks may be split as well, for one space, because there is no room for whole ones.
    pub(super) may_split_shared: bool,
    pub(super) updates: u64,
    pub(in crate::engine) change: Change,
    pub(in crate::engine) quarantined: Vec<super::run_job::Quarantined>,
}

impl Run {
    pub(super) fn new(ids: &[BlockId], table: &BlockTable, block_bytes: u32) -> Self {
        let blocks = ids.iter().map(|&id| {
            let block = table.get(id);
            RunBlock {
                id,
                birth: block.birth,
                placement: block.placement(),
                owner: block.space,
                is_gone: false,
                image: None,
                damage: None,
                has_lost_updates: false,
                starts_anew: block.space == quarantine::QUARANTINE_SPACE,
            }
        });
        Self { block_bytes, ..Self::of(blocks.collect(), Phase::Reading { pending: 0 }) }
    }

    /// A chunk of a load, whose images are made.
    pub(super) fn of_load(space: u32, seq: u64, done: Box<JobDone>) -> Self {
        Self { frontier: seq, load: Some(space), ..Self::of(Vec::new(), Phase::Placing(done)) }
    }

    pub(super) fn of(blocks: Vec<RunBlock>, phase: Phase) -> Self {
        Self {
            blocks,
            spill_segments: None,
            applied_spill_segments: Vec::new(),
            phase,
            frontier: 0,
            frozen_bytes: 0,
            values_bytes: 0,
            excess_bytes: 0,
            growth_bytes: 0,
            block_bytes: 0,
            load: None,
            has_stale_values: false,
            may_split_shared: false,
            updates: 0,
            change: Change::default(),
            quarantined: Vec::new(),
        }
    }

    pub(super) fn read_one_by_one(&mut self) {
        self.phase = Phase::Reading { pending: usize::MAX };
    }

    /// Blocks whose change is still to be logged.
    pub(super) fn unlogged_blocks(&self) -> usize {
        if matches!(self.phase, Phase::Committing) { 0 } else { self.blocks.len() }
    }

    /// Whether images of the run are in memory: those that were read, or those to be written.
    pub(super) fn holds_buffers(&self) -> bool {
        !matches!(self.phase, Phase::Flushing | Phase::Logging { .. } | Phase::Committing)
    }

    /// Whether it has large values in memory: loaded, or to be written.
    pub(super) fn has_values_in_hand(&self) -> bool {
        self.values_bytes > 0 && self.holds_buffers()
    }

    /// Whether the run is written and the log has no room for its change.
    pub(super) fn waits_for_log(&self) -> bool {
        matches!(self.phase, Phase::Logging { refused: true })
    }

    /// The space whose blocks these are, if they are all of one.
    pub(super) fn owner(&self) -> Option<u32> {
        self.load.or_else(|| only(self.blocks.iter().map(|block| block.owner)))
    }

    /// Whether the run reads from this data device.
    pub(super) fn reads_from(&self, device: usize) -> bool {
        let first = self.blocks.iter().find_map(RunBlock::extent);
        matches!(self.phase, Phase::Reading { .. })
            && first.is_some_and(|extent| usize::from(extent.device.0) == device)
    }
}

impl Core {
    pub(super) fn begin_read(&mut self, id: RunId, actions: &mut Actions) {
        let run = &self.sweep.runs[&id];
        let owner = run.owner();
        let extents: Vec<Extent> = run.blocks.iter().filter_map(RunBlock::extent).collect();
        let (Some(first), Some(last)) = (extents.first(), extents.last()) else { return };
        let (device, offset) = (first.device, first.offset);
        let buffer = Buffer::recycled((last.end() - offset) as usize);
        self.metrics.sweep_read_bytes_total.add(buffer.len() as u64);
        let operation = Operation::Read { offset, buffer };
        actions.requests.push(self.request(IoKind::RunRead(id), owner, device, operation));
        self.run_mut(id).phase = Phase::Reading { pending: 1 };
    }

    pub(super) fn run_mut(&mut self, id: RunId) -> &mut Run {
        self.sweep.runs.get_mut(&id).expect("a run lives until it is published")
    }

    pub(in crate::engine) fn run_read_done(&mut self, id: RunId, completion: Completion) {
        let store = self.config.store;
        let run = self.sweep.runs.get_mut(&id).expect("a run lives until it is published");
        let Some(buffer) = completion.buffer.filter(|_| completion.result.is_ok()) else {
            // One bad sector must not condemn the whole stretch: read block by block.
            run.phase = Phase::Reading { pending: usize::MAX };
            return;
        };
        let buffer = Arc::new(buffer);
        let start = run.blocks.iter().find_map(RunBlock::extent).map_or(0, |e| e.offset);
        for block in &mut run.blocks {
            let Some(extent) = block.extent() else { continue };
            let at = (extent.offset - start) as usize;
            block.check_image(&buffer, at, &self.directory.table, store);
        }
        run.phase = Phase::Reading { pending: 0 };
    }

    pub(in crate::engine) fn block_read_done(
        &mut self,
        id: RunId,
        position: usize,
        completion: Completion,
    ) {
        let store = self.config.store;
        let run = self.sweep.runs.get_mut(&id).expect("a run lives until it is published");
        let block = &mut run.blocks[position];
        match (completion.result, completion.buffer) {
            (Ok(()), Some(buffer)) => {
                block.check_image(&Arc::new(buffer), 0, &self.directory.table, store);
            }
            (result, _) => {
                block.damage = Some(result.err().map_or_else(String::new, |e| e.to_string()));
            }
        }
        if let Phase::Reading { pending } = &mut run.phase {
            *pending -= 1;
        }
    }

    /// Moves every run on that waits for the engine and not for a device or a worker.
    pub(super) fn pump_runs(&mut self, actions: &mut Actions) {
        let ids: Vec<RunId> = self.sweep.runs.keys().copied().collect();
        self.sweep.count_unpublished();
        self.retry_spill_segments(actions);
        for id in ids {
            let run = &self.sweep.runs[&id];
            if matches!(run.phase, Phase::Reading { .. }) && run.spill_segments.is_none() {
                self.read_spill_segments(id, actions);
            }
            let run = &self.sweep.runs[&id];
            match &run.phase {
                Phase::Reading { pending: 0 } if run.has_spill_segments() => {
                    self.freeze(id, actions);
                }
                Phase::Reading { pending: usize::MAX } => self.read_block_by_block(id, actions),
                Phase::LoadingValues { pending: 0, .. } => self.apply_again(id, actions),
                Phase::LoadingValues { pending: usize::MAX, .. } => self.load_values(id, actions),
                Phase::Placing(_) => self.place_run(id, actions),
                Phase::Logging { .. } => self.log_run(id),
                _ => {}
            }
        }
        self.sweep.count_unpublished();
    }

    fn read_block_by_block(&mut self, id: RunId, actions: &mut Actions) {
        let run = &self.sweep.runs[&id];
        let owner = run.owner();
        let extents: Vec<_> = run
            .blocks
            .iter()
            .enumerate()
            .filter_map(|(position, block)| block.extent().map(|extent| (position, extent)))
            .collect();
        for &(position, extent) in &extents {
            let kind = IoKind::BlockRead(id, position);
            actions.requests.push(self.read_request(kind, owner, extent));
        }
        self.run_mut(id).phase = Phase::Reading { pending: extents.len() };
    }

    /// Takes the waiting updates of the run's blocks out of their queues and has them applied.
    ///
    /// The frontier of the run says that everything up to it is applied. So a block waits for which
    /// accepted updates are still on their way to the queue. What waits for a block that no space
    /// has any more concerns nobody, and must not pin the log until the block is given back.
    fn freeze(&mut self, id: RunId, actions: &mut Actions) {
        let mut run = self.sweep.runs.remove(&id).expect("a run lives until it is published");
        let mut expects = false;
        for block in &mut run.blocks {
            let found = self.directory.table.find(block.reference());
            match found.and_then(|id| self.directory.owner(id)) {
                None => {
                    block.is_gone = true;
                    found.into_iter().for_each(|id| self.applied(id));
                }
                Some((space, _)) => {
                    block.owner = space.record.space;
                    expects |= self.expects_updates(block.id);
                }
            }
        }
        if expects {
            self.sweep.runs.insert(id, run);
            return;
        }
        run.frontier = self.accepted;
        let table = &self.directory.table;
        run.blocks.sort_by(|left, right| {
            let key = |block: &RunBlock| (block.is_gone, block.owner, &table.get(block.id).key);
            key(left).cmp(&key(right))
        });
        let blocks: Vec<BlockId> =
            run.blocks.iter().filter(|block| !block.is_gone).map(|block| block.id).collect();
        for (id, frozen) in blocks.iter().zip(self.take_queues(&blocks)) {
            let block = self.directory.block(*id);
            self.unplaced.remove(&(block.space, block.key.clone(), *id));
            run.frozen_bytes += frozen.memory_bytes();
            run.excess_bytes +=
                excess_bytes(frozen.memory_bytes(), self.config.oversized_queue_bytes());
            run.growth_bytes += u64::from(frozen.growth_bytes());
            run.updates += u64::from(frozen.count()) + u64::from(block.spilled);
        }
        self.frozen_bytes += run.frozen_bytes;
        let damaged: Vec<Option<String>> =
            run.blocks.iter().map(|block| self.spill_segment_damage(&run, block)).collect();
        for (block, damage) in run.blocks.iter_mut().zip(damaged) {
            block.has_lost_updates = damage.is_some();
            block.damage = block.damage.take().or(damage);
        }
        let is_empty = run.blocks.iter().all(|block| block.is_gone);
        self.sweep.runs.insert(id, run);
        if is_empty {
            self.give_run_up(id);
        } else {
            self.send_job(id, Vec::new(), actions);
        }
    }

    /// Has the run's sound blocks applied, with these large values at hand.
    pub(super) fn send_job(
        &mut self,
        id: RunId,
        mut values: Vec<LoadedValues>,
        actions: &mut Actions,
    ) {
        self.renew_owners(id);
        if std::mem::take(&mut self.run_mut(id).has_stale_values) {
            values.clear();
        }
        let run = &self.sweep.runs[&id];
        let sound: Vec<&RunBlock> = run.blocks.iter().filter(|b| b.is_sound()).collect();
        let shared: Vec<bool> =
            sound.iter().map(|block| self.is_shared(block.owner, block.id)).collect();
        let mut blocks = Vec::with_capacity(sound.len());
        for (position, run_block) in sound.iter().enumerate() {
            let block = self.directory.block(run_block.id);
            let Some(space) = self.directory.space(run_block.owner) else {
                // Dropped meanwhile: nothing of the run is to be kept for it.
                return self.give_run_up(id);
            };
            let next = sound.get(position + 1).filter(|next| next.owner == run_block.owner);
            let next = next.filter(|_| !shared[position] && !shared[position + 1]);
            let loaded = values.iter_mut().find(|(id, _)| *id == run_block.id);
            blocks.push(JobBlock {
                id: run_block.id,
                space: run_block.owner,
                companion: space.record.companion,
                key: (*block.key).into(),
                format: Arc::clone(&space.format),
                image: run_block.image.clone(),
                spill_segments: self.job_spill_segments(run, run_block),
                frozen: block.frozen.clone().unwrap_or_default(),
                values: loaded.map(|(_, values)| std::mem::take(values)).unwrap_or_default(),
                next_is_neighbour: next.is_some_and(|next| {
                    self.directory.above(run_block.owner, &block.key) == Some(next.id)
                }),
                keep_whole: shared[position] && !run.may_split_shared,
            });
        }
        let job = RunJob {
            run: id,
            store: self.config.store,
            frontier: run.frontier,
            block_bytes: run.block_bytes as usize,
            inline_value_bytes_max: self.config.inline_value_bytes_max(),
            modifiers: Arc::clone(&self.modifiers),
            visitors: Arc::clone(&self.visitors),
            blocks,
        };
        self.run_mut(id).phase = Phase::Applying;
        actions.jobs.push(Job::Run(job));
    }

    pub(super) fn run_applied(&mut self, output: RunOutput) {
        let id = output.job.run;
        let RunOutput { mut job, result } = output;
        self.run_mut(id).values_bytes = values::values_bytes(&result);
        match result {
            JobResult::Done(done) => self.run_mut(id).phase = Phase::Placing(done),
            JobResult::NeedValues(needed) => {
                for (position, key) in needed {
                    job.blocks[position].values.push((key, Vec::new()));
                }
                let job = Box::new(job);
                self.run_mut(id).phase = Phase::LoadingValues { pending: usize::MAX, job };
            }
            JobResult::Corrupt(position, reason) => {
                self.condemn(id, job.blocks[position].id, reason);
                self.run_mut(id).phase = Phase::LoadingValues { pending: 0, job: Box::new(job) };
            }
        }
    }

    /// Marks a block as damaged, so that the next attempt leaves it out.
    pub(super) fn condemn(&mut self, id: RunId, block: BlockId, reason: String) {
        let run = self.run_mut(id);
        if let Some(block) = run.blocks.iter_mut().find(|found| found.id == block) {
            block.damage = Some(reason);
            block.image = None;
        }
    }

    /// A further attempt, with the values that the last one asked for or without a damaged block.
    fn apply_again(&mut self, id: RunId, actions: &mut Actions) {
        let phase = std::mem::replace(&mut self.run_mut(id).phase, Phase::Applying);
        let Phase::LoadingValues { job, .. } = phase else { return };
        let values = job.blocks.into_iter().map(|mut block| {
            block.values.sort();
            (block.id, block.values)
        });
        let values = values.collect();
        self.send_job(id, values, actions);
    }

    pub(in crate::engine) fn run_write_done(&mut self, id: RunId, completion: &Completion) {
        if completion.result.is_err() {
            self.fail_write(completion, 0);
            return;
        }
        let Phase::Writing { pending } = &mut self.run_mut(id).phase else { return };
        *pending -= 1;
        if *pending == 0 {
            self.run_written(id);
        }
    }

    pub(super) fn run_written(&mut self, id: RunId) {
        self.run_mut(id).phase = Phase::Flushing;
        self.sweep.flush.waiting.push(Flushing::Run(id));
    }

    /// Logs the change. If the log has no room, the run waits here for the next checkpoint to carry
    /// its change (see [`Core::carry_changes`]), or for room.
    pub(super) fn log_run(&mut self, id: RunId) {
        if self.checkpoint.carries_changes() {
            return;
        }
        let run = &self.sweep.runs[&id];
        let payload = quarantine::encode_with_change(&run.change, &run.quarantined);
        match self.append_change(&payload, Publish::Run(id)) {
            Ok(seq) => {
                let run = self.run_mut(id);
                run.phase = Phase::Committing;
                let quarantined = std::mem::take(&mut run.quarantined);
                self.take_quarantined(seq, &quarantined);
            }
            // A block whose damage sends all its updates to the quarantine may exceed a record.
            Err(AppendError::Full | AppendError::TooLong { .. }) => {
                self.run_mut(id).phase = Phase::Logging { refused: true };
            }
            // The log's pipeline is full for a moment, or a failed write has closed the store.
            Err(_) => {}
        }
    }

    pub(in crate::engine) fn publish_run(&mut self, id: RunId, seq: u64, release: Release) {
        let run = self.sweep.runs.remove(&id).expect("a run lives until it is published");
        self.frozen_bytes -= run.frozen_bytes;
        self.note_run(run.summary());
        self.room_events += u64::from(!cfg!(feature = "broken-lost-wake"));
        for (block, _) in &run.change.moved {
            if let Some(id) = self.directory.table.find(*block) {
                let block = self.directory.block_mut(id);
                block.pinned = false;
                block.frozen.take().iter().for_each(|frozen| self.arena.let_go(frozen));
            }
        }
        self.apply_change(seq, &run.change, release);
        // What is still pinned was not changed: it is shared, or has left its space.
        let pinned = |block: &RunBlock| {
            let found = self.directory.table.find(block.reference());
            found.filter(|id| self.directory.block(*id).pinned)
        };
        let left: Vec<BlockId> = run.blocks.iter().filter_map(pinned).collect();
        left.into_iter().for_each(|id| self.unfreeze(id));
        self.carry_quarantined(&run.quarantined);
        if !self.replaying {
            run.applied_spill_segments.iter().for_each(|segment| self.drop_unless_needed(segment));
        }
    }
}

/// What is counted of a run.
pub(in crate::engine) struct RunSummary {
    pub(in crate::engine) blocks: u64,
    pub(in crate::engine) updates: u64,
    pub(in crate::engine) damaged: Vec<(Option<Extent>, String)>,
}

impl Run {
    fn summary(&self) -> RunSummary {
        let damaged =
            self.blocks.iter().filter_map(|block| Some((block.extent(), block.damage.clone()?)));
        RunSummary {
            blocks: self.blocks.len() as u64,
            updates: self.updates,
            damaged: damaged.collect(),
        }
    }
}

impl RunBlock {
    /// What names the block for ever.
    pub(super) fn reference(&self) -> BlockRef {
        BlockRef { number: self.id.0, birth: self.birth }
    }

    /// Where its image is.
    pub(super) fn extent(&self) -> Option<Extent> {
        self.placement.extent
    }

    /// Whether the run can do something with it.
    pub(super) fn is_sound(&self) -> bool {
        !self.is_gone && !self.is_set_aside()
    }

    /// Whether the block keeps its image, and its updates go to the quarantine.
    pub(super) fn is_set_aside(&self) -> bool {
        self.damage.is_some() && !self.starts_anew && !self.is_gone
    }

    /// Gives the bytes back that were read: what comes of them has a place.
    pub(super) fn forget_image(&mut self) {
        self.image = None;
    }

    fn check_image(
        &mut self,
        buffer: &Arc<Buffer>,
        at: usize,
        table: &BlockTable,
        store: [u8; 16],
    ) {
        let Some(extent) = self.extent() else { return };
        if table.find(self.reference()).is_none() {
            self.is_gone = true;
            return;
        }
        if self.placement.has_lost_updates() {
            self.damage = Some(LOST_UPDATES.to_owned());
            return;
        }
        let end = at + extent.bytes as usize;
        let identity = Identity {
            store,
            kind: ImageKind::Block,
            space: self.placement.image_space,
            seq: self.placement.image_seq,
            key: &table.get(self.id).key,
        };
        match image_format::decode(&buffer[at..end], &identity) {
            Ok(body) => {
                let body = at + body.start..at + body.end;
                self.image = Some(Arc::new(Image::new(Arc::clone(buffer), body)));
            }
            Err(reason) => self.damage = Some(reason),
        }
    }
}

/// What all of these are, if they are all the same.
pub(super) fn only(spaces: impl IntoIterator<Item = u32>) -> Option<u32> {
    let mut spaces = spaces.into_iter();
    spaces.next().filter(|first| spaces.all(|space| space == *first))
}
