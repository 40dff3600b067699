//! The steps of a run through the pipeline: read, freeze, apply, place, write, flush, log, publish.

use std::sync::Arc;

use super::block::RunBlock;
use super::spill_segment::{RunSpillSegment, job_spill_segments, spill_segment_damage};
use super::{Pipeline, values};
use crate::broken::{self, Fault};
use crate::device::{Buffer, Completion, Operation};
use crate::engine::base::Base;
use crate::engine::directory::{BlockId, BlockTable};
use crate::engine::flush::Flushing;
use crate::engine::format::record_format::DirectoryChange;
use crate::engine::growth::Growth;
use crate::engine::ids::SpaceId;
use crate::engine::index::{Index, Release};
use crate::engine::io::{IoKind, RunId, owner_of};
use crate::engine::jobs::{Job, JobBlock, JobDone, JobResult, Quarantined, RunJob, RunOutput};
use crate::engine::journal::Publish;
use crate::engine::measure::RunSummary;
use crate::engine::quarantine;
use crate::engine::queue::excess_bytes;
use crate::engine::spill_segments::SpillSegment;
use crate::log::{AppendError, Seq};
use crate::placement::Extent;

/// The large values that were loaded for a block, by key.
type LoadedValues = (BlockId, Vec<(Vec<u8>, Vec<u8>)>);

/// The phase of a run.
pub(super) enum RunPhase {
    /// Its blocks are to be read one by one.
    Scattered,
    Reading {
        pending: usize,
    },
    Applying,
    /// Its job asks for large values.
    NeedsValues(Box<RunJob>),
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
pub(super) struct Run {
    pub(super) blocks: Vec<RunBlock>,
    /// Those that have updates of its blocks; `None` until they are looked up.
    pub(super) spill_segments: Option<Vec<RunSpillSegment>>,
    /// Those of them whose updates of its blocks are in the images being written.
    pub(super) applied_spill_segments: Vec<Arc<SpillSegment>>,
    pub(super) phase: RunPhase,
    pub(super) frontier: Seq,
    /// The time of day through which records had expired when its updates were frozen.
    pub(super) expired_us: u64,
    pub(super) frozen_bytes: usize,
    /// Bytes of the large values that it has in memory.
    pub(super) values_bytes: usize,
    /// Memory that its worker needs for long queues beyond the allowance of a run.
    pub(super) excess_bytes: usize,
    /// Approximately how much the blocks grow if every update makes a new record.
    pub(super) growth_bytes: u64,
    /// Target size of the resulting blocks, in bytes: less than the store's if free space is
    /// fragmented.
    pub(super) block_bytes: u32,
    /// The space of these blocks, if they are loaded and nothing was there before.
    pub(super) load: Option<SpaceId>,
    /// Large values were loaded from a space through which the run no longer sees their block.
    pub(super) has_stale_values: bool,
    /// Shared blocks may be split as well, for one space, because there is no room for whole ones.
    pub(super) may_split_shared: bool,
    pub(super) updates: u64,
    pub(super) change: DirectoryChange,
    pub(super) quarantined: Vec<Quarantined>,
}

impl Run {
    pub(super) fn new(ids: &[BlockId], table: &BlockTable, block_bytes: u32) -> Self {
        let blocks = ids.iter().map(|id| RunBlock::new(*id, table));
        Self { block_bytes, ..Self::of(blocks.collect(), RunPhase::Reading { pending: 0 }) }
    }

    /// A chunk of a load, whose images exist already.
    pub(super) fn of_load(space: SpaceId, seq: Seq, done: Box<JobDone>) -> Self {
        Self { frontier: seq, load: Some(space), ..Self::of(Vec::new(), RunPhase::Placing(done)) }
    }

    pub(super) fn of(blocks: Vec<RunBlock>, phase: RunPhase) -> Self {
        Self {
            blocks,
            spill_segments: None,
            applied_spill_segments: Vec::new(),
            phase,
            frontier: Seq::NONE,
            expired_us: 0,
            frozen_bytes: 0,
            values_bytes: 0,
            excess_bytes: 0,
            growth_bytes: 0,
            block_bytes: 0,
            load: None,
            has_stale_values: false,
            may_split_shared: false,
            updates: 0,
            change: DirectoryChange::default(),
            quarantined: Vec::new(),
        }
    }

    pub(super) fn read_one_by_one(&mut self) {
        self.phase = RunPhase::Scattered;
    }

    /// Blocks whose change is still to be logged.
    pub(super) fn unlogged_blocks(&self) -> usize {
        if matches!(self.phase, RunPhase::Committing) { 0 } else { self.blocks.len() }
    }

    /// Whether images of the run are in memory: those that were read, or those to be written.
    pub(super) fn holds_buffers(&self) -> bool {
        !matches!(self.phase, RunPhase::Flushing | RunPhase::Logging { .. } | RunPhase::Committing)
    }

    /// Whether it has large values in memory: loaded, or to be written.
    pub(super) fn has_values_in_hand(&self) -> bool {
        self.values_bytes > 0 && self.holds_buffers()
    }

    /// Whether its change is in the log, or can only be made durable by a checkpoint.
    fn may_be_published(&self) -> bool {
        matches!(self.phase, RunPhase::Committing) || self.waits_for_log()
    }

    /// Whether the run is written and the log has no room for its change.
    pub(super) fn waits_for_log(&self) -> bool {
        matches!(self.phase, RunPhase::Logging { refused: true })
    }

    /// Takes the images of its blocks from the cache, if all of them are there; returns whether
    /// they were.
    fn take_cached(&mut self, index: &Index) -> bool {
        let extents = self.blocks.iter().filter_map(RunBlock::extent);
        let images: Option<Vec<_>> = extents.map(|extent| index.cache.peek(extent)).collect();
        let Some(images) = images else { return false };
        let placed = self.blocks.iter_mut().filter(|block| block.extent().is_some());
        let table = &index.directory().table;
        placed.zip(images).for_each(|(block, image)| block.take_image(image, table));
        true
    }

    /// The space of these blocks, if they are all of one.
    pub(super) fn owner(&self) -> Option<SpaceId> {
        self.load.or_else(|| owner_of(self.blocks.iter().map(|block| block.owner)))
    }

    /// Whether its blocks are being read, or yet to be requested.
    fn is_reading(&self) -> bool {
        matches!(self.phase, RunPhase::Scattered | RunPhase::Reading { .. })
    }

    /// Whether the run reads from this data device.
    pub(super) fn reads_from(&self, device: usize) -> bool {
        let first = self.blocks.iter().find_map(RunBlock::extent);
        self.is_reading() && first.is_some_and(|extent| usize::from(extent.device.0) == device)
    }
}

impl Pipeline {
    pub(super) fn begin_read(&mut self, base: &mut Base, id: RunId) {
        let run = &self.runs[&id];
        let owner = run.owner();
        let extents: Vec<Extent> = run.blocks.iter().filter_map(RunBlock::extent).collect();
        let (Some(first), Some(last)) = (extents.first(), extents.last()) else { return };
        if self.run_mut(id).take_cached(&base.index) {
            return;
        }
        let (device, offset) = (first.device, first.offset);
        let buffer = Buffer::recycled((last.end() - offset) as usize);
        base.metrics.sweep_read_bytes_total.add(buffer.len() as u64);
        let operation = Operation::Read { offset, buffer };
        base.io.submit(IoKind::RunRead(id), owner, device, operation);
        self.run_mut(id).phase = RunPhase::Reading { pending: 1 };
    }

    pub(super) fn run_mut(&mut self, id: RunId) -> &mut Run {
        self.runs.get_mut(&id).expect("a run lives until it is published")
    }

    pub(in crate::engine) fn read_done(&mut self, base: &Base, id: RunId, completion: Completion) {
        let store = base.config.store;
        let run = self.runs.get_mut(&id).expect("a run lives until it is published");
        let is_read = matches!(run.phase, RunPhase::Reading { pending: 1 });
        debug_assert!(is_read, "a read must begin before it ends");
        let Some(buffer) = completion.buffer.filter(|_| completion.result.is_ok()) else {
            // One bad sector must not condemn the whole stretch: read block by block.
            run.phase = RunPhase::Scattered;
            return;
        };
        let buffer = Arc::new(buffer);
        let start = run.blocks.iter().find_map(RunBlock::extent).map_or(0, |e| e.offset);
        for block in &mut run.blocks {
            let Some(extent) = block.extent() else { continue };
            let at = (extent.offset - start) as usize;
            block.check_image(&buffer, at, &base.index.directory().table, store);
        }
        run.phase = RunPhase::Reading { pending: 0 };
    }

    pub(in crate::engine) fn block_read_done(
        &mut self,
        base: &Base,
        id: RunId,
        position: usize,
        completion: Completion,
    ) {
        let store = base.config.store;
        let run = self.runs.get_mut(&id).expect("a run lives until it is published");
        let block = &mut run.blocks[position];
        match (completion.result, completion.buffer) {
            (Ok(()), Some(buffer)) => {
                block.check_image(&Arc::new(buffer), 0, &base.index.directory().table, store);
            }
            (result, _) => {
                block.damage = Some(result.err().map_or_else(String::new, |e| e.to_string()));
            }
        }
        let RunPhase::Reading { pending } = &mut run.phase else {
            unreachable!("a run waits for all its reads")
        };
        assert!(*pending > 0, "a read must begin before it ends");
        *pending -= 1;
    }

    /// Advances every run that waits for the engine, not for a device or a worker.
    /// `spills_growth_bytes` is the growth of blocks by what spills in progress have taken.
    pub(in crate::engine) fn pump(
        &mut self,
        base: &mut Base,
        growth: &mut Growth,
        spills_growth_bytes: u64,
        jobs: &mut Vec<Job>,
    ) {
        let ids: Vec<RunId> = self.runs.keys().copied().collect();
        self.count_in_hand(base, spills_growth_bytes);
        self.retry_spill_segments(base);
        for id in ids {
            let run = &self.runs[&id];
            if run.is_reading() && run.spill_segments.is_none() {
                self.read_spill_segments(base, id);
            }
            let run = &self.runs[&id];
            match &run.phase {
                RunPhase::Reading { pending: 0 } if run.has_spill_segments() => {
                    self.freeze(base, id, jobs);
                }
                RunPhase::Scattered => self.read_block_by_block(base, id),
                RunPhase::LoadingValues { pending: 0, .. } => self.apply_again(base, id, jobs),
                RunPhase::NeedsValues(_) => self.load_values(base, id, jobs),
                RunPhase::Placing(_) => self.place_run(base, growth, id, jobs),
                RunPhase::Logging { .. } => self.log_run(base, id),
                _ => {}
            }
        }
        self.count_in_hand(base, spills_growth_bytes);
    }

    fn read_block_by_block(&mut self, base: &mut Base, id: RunId) {
        let run = &self.runs[&id];
        let owner = run.owner();
        let extents: Vec<_> = run
            .blocks
            .iter()
            .enumerate()
            .filter_map(|(position, block)| block.extent().map(|extent| (position, extent)))
            .collect();
        for &(position, extent) in &extents {
            let kind = IoKind::BlockRead(id, position);
            base.read_for_sweep(kind, owner, extent);
        }
        self.run_mut(id).phase = RunPhase::Reading { pending: extents.len() };
    }

    /// Takes the waiting updates of the run's blocks out of their queues and starts applying them.
    ///
    /// The frontier of the run states that everything up to it is applied. So a block with accepted
    /// updates that have not reached its queue yet has to wait. What waits for a block that no
    /// space has any more is irrelevant, and must not pin the log until the block is released.
    fn freeze(&mut self, base: &mut Base, id: RunId, jobs: &mut Vec<Job>) {
        let mut run = self.runs.remove(&id).expect("a run lives until it is published");
        debug_assert!(run.frozen_bytes == 0 && run.frontier == Seq::NONE, "a run freezes once");
        let mut expects = false;
        for block in &mut run.blocks {
            let found = base.index.directory().table.find(block.reference());
            match found.and_then(|id| base.index.directory().owner(id)) {
                None => {
                    block.is_gone = true;
                    found.into_iter().for_each(|id| base.index.applied(id));
                }
                Some((space, _)) => {
                    block.owner = space.record.space;
                    let now = base.index.directory().block(block.id);
                    if now.spilled > 0 {
                        block.high = base.index.high_of(block.owner, &now.key);
                    }
                    expects |= base.index.expects_updates(block.id)
                        && !broken::is(Fault::RunPassesPending);
                }
            }
        }
        if expects {
            self.runs.insert(id, run);
            return;
        }
        run.frontier = base.index.accepted();
        run.expired_us = base.expired_us;
        let table = &base.index.directory().table;
        run.blocks.sort_by(|left, right| {
            let key = |block: &RunBlock| (block.is_gone, block.owner, &table.get(block.id).key);
            key(left).cmp(&key(right))
        });
        let blocks: Vec<BlockId> =
            run.blocks.iter().filter(|block| !block.is_gone).map(|block| block.id).collect();
        for (id, frozen) in blocks.iter().zip(base.index.freeze(&blocks)) {
            let block = base.index.directory().block(*id);
            assert!(block.placement().frontier <= run.frontier, "a run goes beyond its images");
            run.frozen_bytes += frozen.memory_bytes();
            run.excess_bytes +=
                excess_bytes(frozen.memory_bytes(), base.config.oversized_queue_bytes());
            run.growth_bytes += u64::from(frozen.growth_bytes());
            run.updates += u64::from(frozen.count()) + u64::from(block.spilled);
        }
        let damaged: Vec<Option<String>> =
            run.blocks.iter().map(|block| spill_segment_damage(base, &run, block)).collect();
        for (block, damage) in run.blocks.iter_mut().zip(damaged) {
            block.has_lost_updates = damage.is_some();
            block.damage = block.damage.take().or(damage);
        }
        let is_empty = run.blocks.iter().all(|block| block.is_gone);
        self.runs.insert(id, run);
        if is_empty {
            self.give_run_up(base, id);
        } else {
            self.send_job(base, id, Vec::new(), jobs);
        }
    }

    /// Starts applying the run's sound blocks, with these large values available.
    pub(super) fn send_job(
        &mut self,
        base: &mut Base,
        id: RunId,
        mut values: Vec<LoadedValues>,
        jobs: &mut Vec<Job>,
    ) {
        self.renew_owners(base, id);
        if std::mem::take(&mut self.run_mut(id).has_stale_values) {
            values.clear();
        }
        let run = &self.runs[&id];
        let sound: Vec<&RunBlock> = run.blocks.iter().filter(|b| b.is_sound()).collect();
        let shared: Vec<bool> =
            sound.iter().map(|block| base.index.is_shared(block.owner, block.id)).collect();
        let mut blocks = Vec::with_capacity(sound.len());
        for (position, run_block) in sound.iter().enumerate() {
            let block = base.index.directory().block(run_block.id);
            let Some(space) = base.index.directory().space(run_block.owner) else {
                // Dropped in the meantime: no result of the run is needed.
                return self.give_run_up(base, id);
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
                image: run_block.image().cloned(),
                is_cached: run_block.extent().is_some_and(|at| base.index.cache.has(at)),
                spill_segments: job_spill_segments(base, run, run_block),
                frozen: block.frozen.clone().unwrap_or_default(),
                values: loaded.map(|(_, values)| std::mem::take(values)).unwrap_or_default(),
                next_is_neighbour: next.is_some_and(|next| {
                    base.index.directory().above(run_block.owner, &block.key) == Some(next.id)
                }),
                keep_whole: shared[position] && !run.may_split_shared,
            });
        }
        let job = RunJob {
            run: id,
            store: base.config.store,
            frontier: run.frontier,
            expired_us: run.expired_us,
            block_bytes: run.block_bytes as usize,
            inline_value_bytes_max: base.config.inline_value_bytes_max(),
            modifiers: Arc::clone(base.index.bindings.modifiers()),
            visitors: Arc::clone(base.index.visitors()),
            blocks,
        };
        self.run_mut(id).phase = RunPhase::Applying;
        jobs.push(Job::Run(job));
    }

    pub(in crate::engine) fn applied(&mut self, output: RunOutput) {
        let id = output.job.run;
        let RunOutput { mut job, result } = output;
        debug_assert!(matches!(self.run_mut(id).phase, RunPhase::Applying), "it was to be applied");
        self.run_mut(id).values_bytes = values::values_bytes(&result);
        match result {
            JobResult::Done(done) => self.run_mut(id).phase = RunPhase::Placing(done),
            JobResult::NeedValues(needed) => {
                for (position, key) in needed {
                    job.blocks[position].values.push((key, Vec::new()));
                }
                self.run_mut(id).phase = RunPhase::NeedsValues(Box::new(job));
            }
            JobResult::Corrupt(position, reason) => {
                self.condemn(id, job.blocks[position].id, reason);
                self.run_mut(id).phase = RunPhase::LoadingValues { pending: 0, job: Box::new(job) };
            }
        }
    }

    /// Marks a block as damaged, so that the next attempt leaves it out.
    pub(super) fn condemn(&mut self, id: RunId, block: BlockId, reason: String) {
        let run = self.run_mut(id);
        if let Some(block) = run.blocks.iter_mut().find(|found| found.id == block) {
            block.condemn(reason);
        }
    }

    /// Another attempt, with the values that the last one requested or without a damaged block.
    fn apply_again(&mut self, base: &mut Base, id: RunId, jobs: &mut Vec<Job>) {
        let phase = std::mem::replace(&mut self.run_mut(id).phase, RunPhase::Applying);
        let RunPhase::LoadingValues { job, .. } = phase else { return };
        let values = job.blocks.into_iter().map(|mut block| {
            block.values.sort();
            (block.id, block.values)
        });
        let values = values.collect();
        self.send_job(base, id, values, jobs);
    }

    pub(in crate::engine) fn write_done(
        &mut self,
        base: &mut Base,
        id: RunId,
        completion: &Completion,
    ) {
        if completion.result.is_err() {
            return;
        }
        let RunPhase::Writing { pending } = &mut self.run_mut(id).phase else { return };
        assert!(*pending > 0, "a write must begin before it ends");
        *pending -= 1;
        if *pending == 0 {
            self.run_written(base, id);
        }
    }

    pub(super) fn run_written(&mut self, base: &mut Base, id: RunId) {
        let is_written = matches!(self.run_mut(id).phase, RunPhase::Writing { pending: 0 });
        debug_assert!(is_written, "every image is written");
        if broken::is(Fault::ChangeBeforeFlush) {
            self.run_mut(id).phase = RunPhase::Logging { refused: false };
            return;
        }
        self.run_mut(id).phase = RunPhase::Flushing;
        base.flushes.wait(Flushing::Run(id));
    }

    /// The writes of the run are stable.
    pub(in crate::engine) fn flushed(&mut self, base: &mut Base, id: RunId) {
        let is_written = matches!(self.run_mut(id).phase, RunPhase::Flushing);
        assert!(is_written, "a flush covers only completed writes");
        self.run_mut(id).phase = RunPhase::Logging { refused: false };
        self.log_run(base, id);
    }

    /// Logs the change. If the log has no room, the run waits here for the next checkpoint to carry
    /// its change (see `Core::carry_changes`), or for room.
    pub(super) fn log_run(&mut self, base: &mut Base, id: RunId) {
        if base.journal.is_ahead() {
            return;
        }
        let run = &self.runs[&id];
        debug_assert!(matches!(run.phase, RunPhase::Logging { .. }), "it is written and flushed");
        let payload = quarantine::encode_with_change(&run.change, &run.quarantined);
        match base.journal.append_change(&payload, Publish::Run(id), base.now_us) {
            Ok(seq) => {
                let run = self.run_mut(id);
                run.phase = RunPhase::Committing;
                let quarantined = std::mem::take(&mut run.quarantined);
                base.quarantine.take(seq, &quarantined, &mut base.index, &mut base.journal);
                base.metrics.quarantined_updates_total.add(quarantined.len() as u64);
            }
            // A block whose damage sends all its updates to the quarantine may exceed a record.
            Err(AppendError::Full | AppendError::TooLong { .. }) => {
                self.run_mut(id).phase = RunPhase::Logging { refused: true };
            }
            // The log's pipeline is temporarily full, or a failed write has closed the store.
            Err(_) => {}
        }
    }

    pub(in crate::engine) fn publish(
        &mut self,
        base: &mut Base,
        id: RunId,
        seq: Seq,
        release: Release,
    ) {
        let run = self.runs.remove(&id).expect("a run lives until it is published");
        assert!(
            run.may_be_published(),
            "what is published is written, flushed, and logged or carried"
        );
        assert!(run.frontier < seq, "a change comes after the updates that it has applied");
        base.index.end_freeze(run.frozen_bytes);
        base.measured.note_run(run.summary());
        if !broken::is(Fault::LostWake) {
            base.waiters.tell();
        }
        for (block, _) in &run.change.moved {
            if let Some(id) = base.index.directory().table.find(*block) {
                base.index.let_go(id);
            }
        }
        base.index.apply_change(seq, &run.change, release);
        // A block that is still pinned was not changed: it is shared, or has left its space.
        let pinned = |block: &RunBlock| {
            let found = base.index.directory().table.find(block.reference());
            found.filter(|id| base.index.directory().block(*id).pinned)
        };
        let left: Vec<BlockId> = run.blocks.iter().filter_map(pinned).collect();
        left.into_iter().for_each(|id| base.index.unfreeze(id));
        base.quarantine.carry(&run.quarantined, &mut base.index, &mut base.journal);
        base.metrics.quarantined_updates_total.add(run.quarantined.len() as u64);
        if !base.index.is_replaying() {
            for segment in &run.applied_spill_segments {
                base.drop_unless_needed(segment);
            }
        }
    }
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
