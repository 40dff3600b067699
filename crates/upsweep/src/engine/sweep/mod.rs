//! The sweep: commits waiting updates to the data devices in physical order, run by run.
//!
//! A *run* is a stretch of neighbouring blocks on one device: at most 32, at least half of their
//! bytes in blocks with waiting updates, both ends waiting (Bosc paper, section 4.2). Its steps:
//! 1. read the stretch in one request;
//! 2. *freeze* the queues of its blocks (as late as possible, so that more is batched): the run's
//!    frontier is the last update accepted at that moment;
//! 3. apply the frozen updates, on a worker; blocks split and merge here;
//! 4. write the new images to free space, in one request where free space allows;
//! 5. flush (one flush serves all runs that wait for it), then log the change;
//! 6. when the log record is durable, publish: the directory changes, the old space is free.
//!
//! Several runs are in the pipeline, so that reading, applying and writing overlap. A *cycle*
//! visits every device once, from the place of its next image round to that place again, then the
//! blocks that have no image yet. Swept out of turn are *oversized*
//! blocks, whose queue has grown far beyond their size, and a few that hold the log (`holders`).
//!
//! The *global frontier* is not derived from the order of visits, which splits and merges disturb,
//! but from the ages of all queues: see `queue/ages.rs`.

mod change;
mod compact;
mod flow;
mod flush;
mod holders;
mod job;
mod load;
mod owner;
mod place;
mod run;
mod run_job;
mod spill;
mod spill_job;
mod spill_segment;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

pub use compact::{CompactionId, CompactionProgress};
pub use job::{Job, JobOutput};
pub use load::{Chunk, LOADING, LoadTarget, LoadedBlock};
pub(super) use run::{Run, RunSummary};
pub(super) use run_job::Quarantined;
pub(super) use spill::{SPILLS_IN_FLIGHT_MAX, SpillId};

use super::core::{Actions, Core};
use super::directory::BlockId;
use super::spill_segments::{Place, SpillSegment};
use crate::device::{DeviceId, Token};
use crate::engine::key::Key;
use crate::error::Error;

/// Number of a run within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId(pub u64);

/// Spill segments that are looked at in one step for whether anybody needs them.
const SPILL_SEGMENTS_LOOKED_AT: usize = 64;

/// Where a cycle is.
pub(super) struct Cycle {
    start_seq: u64,
    /// Per device: the stretches that are still to be looked at, by offsets; the next one is last.
    left: Vec<Vec<Range<u64>>>,
    /// Images at its start, and how many of them were passed.
    images: u64,
    passed: u64,
    /// Where the pass over blocks without image is; `None` when done.
    unplaced: Option<(u32, Key, BlockId)>,
}

/// What a cycle goes on with.
enum Next {
    Run(Vec<BlockId>),
    /// A spill has the next block in hand.
    Later,
    /// Every block was visited.
    End,
}

/// State of the sweep.
pub(super) struct Sweep {
    pub(super) runs: BTreeMap<RunId, Run>,
    pub(super) spills: BTreeMap<SpillId, spill::Spill>,
    next_spill: u64,
    spill_flow: flow::Flow,
    search: spill::Search,
    /// Spill segments on their way to runs, with how often they were asked for.
    spill_segment_reads: BTreeMap<Token, (Arc<SpillSegment>, u32)>,
    /// Those that did not come, and will be asked for again.
    spill_segment_retries: Vec<(Arc<SpillSegment>, u32)>,
    pub(super) loads: load::Loads,
    compaction: Option<compact::Compaction>,
    compactions: u64,
    ended_compactions: Vec<(CompactionId, Result<CompactionProgress, Error>)>,
    next_run: u64,
    /// Blocks of runs whose change is still to be logged, as of the last pump.
    pub(super) unlogged_blocks: usize,
    /// How much blocks may grow by what runs have frozen, as of the last pump.
    pub(super) frozen_growth_bytes: u64,
    /// See [`Core::values_bytes`].
    pub(super) values_bytes: usize,
    cycle: Option<Cycle>,
    /// Those behind this place may be there for nobody, since tables or ranges went: they are still
    /// to be looked at.
    suspects_behind: Option<Place>,
    /// Blocks that are swept out of turn.
    out_of_turn: BTreeSet<BlockId>,
    holders: holders::Holders,
    /// Every update up to this sequence is inside a published image or a spill segment.
    pub(super) frontier: u64,
    /// Sweep until the frontier reaches this sequence.
    requested: u64,
    pub(super) flush: FlushState,
    flow: flow::Flow,
    /// The fill of the log in per cent from which on updates are refused, as of the last pump.
    pub(super) log_percent_refused: f64,
    /// Checkpoints carry all runs and spills, as of the last pump. A cycle alone can release the
    /// log, and opens it to callers as it proceeds; its changes would take all of that.
    pub(super) leaves_log_to_callers: bool,
    /// The fill of the log in per cent, and how far the cycle was, when it began to be the only one
    /// that can release the log; `None` while it is not.
    pub(super) log_at_start: Option<(f64, f64)>,
}

/// Runs and checkpoint writes that wait for a flush share it.
#[derive(Default)]
pub(super) struct FlushState {
    /// Flush requests in flight.
    pub(super) in_flight: usize,
    /// When the flush in flight began.
    pub(super) began_us: u64,
    /// Written, and not covered by a flush in flight.
    pub(super) waiting: Vec<Flushing>,
    /// Covered by the flush in flight.
    pub(super) covered: Vec<Flushing>,
}

/// Who waits for a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushing {
    Run(RunId),
    Spill(SpillId),
    Checkpoint,
}

impl Sweep {
    pub(super) fn new(frontier: u64) -> Self {
        Self {
            runs: BTreeMap::new(),
            spills: BTreeMap::new(),
            next_spill: 0,
            spill_flow: flow::Flow::default(),
            search: spill::Search::default(),
            spill_segment_reads: BTreeMap::new(),
            spill_segment_retries: Vec::new(),
            loads: load::Loads::default(),
            compaction: None,
            compactions: 0,
            ended_compactions: Vec::new(),
            next_run: 0,
            unlogged_blocks: 0,
            frozen_growth_bytes: 0,
            values_bytes: 0,
            cycle: None,
            suspects_behind: None,
            out_of_turn: BTreeSet::new(),
            holders: holders::Holders::default(),
            frontier,
            requested: 0,
            flush: FlushState::default(),
            flow: flow::Flow::default(),
            log_percent_refused: 100.0,
            leaves_log_to_callers: false,
            log_at_start: None,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        (self.cycle.is_some() && self.flow.goes_on())
            || self.suspects_behind.is_some()
            || !self.runs.is_empty()
            || !self.spills.is_empty()
            || !self.out_of_turn.is_empty()
            || !self.loads.is_empty()
            || self.compaction.is_some()
    }

    /// Whether a run or a spill is on its way.
    pub(super) fn is_on_its_way(&self) -> bool {
        !self.runs.is_empty() || !self.spills.is_empty()
    }

    fn new_run_id(&mut self) -> RunId {
        self.next_run += 1;
        RunId(self.next_run)
    }

    pub(super) fn sweep_out_of_turn(&mut self, block: BlockId) {
        self.out_of_turn.insert(block);
    }

    pub(super) fn not_out_of_turn(&mut self, block: BlockId) {
        self.out_of_turn.remove(&block);
    }

    pub(super) fn deadline_us(&self) -> Option<u64> {
        let gathers = self.spills.values().next_back().is_some_and(spill::Spill::is_gathering);
        if self.suspects_behind.is_some() || gathers || self.search.goes_on {
            return Some(0);
        }
        // What is on its way has the cycle go on when it ends. But a run may have ended as the last
        // thing of a pump.
        let has_none = self.runs.is_empty() && self.spills.is_empty();
        let goes_on = has_none && self.cycle.is_some() && self.flow.goes_on();
        let cycle = goes_on.then(|| self.flow.rests_until().unwrap_or(0));
        let compaction = self.compaction.as_ref().and_then(compact::Compaction::deadline_us);
        cycle.into_iter().chain(compaction).min()
    }

    /// Counts anew what every admission of an update asks for.
    fn count_unpublished(&mut self) {
        self.unlogged_blocks = self.runs.values().map(Run::unlogged_blocks).sum();
        let of_spills: u64 = self.spills.values().map(|spill| spill.growth_bytes).sum();
        let of_runs: u64 = self.runs.values().map(|run| run.growth_bytes).sum();
        self.frozen_growth_bytes = of_runs + of_spills;
        let holding = self.runs.values().filter(|run| run.holds_buffers());
        // What large values are made of is long queues.
        self.values_bytes = holding.map(|run| run.values_bytes.max(run.excess_bytes)).sum();
    }

    /// How far the present cycle has come, from 0 to 1; `None` between cycles.
    fn progress(&self) -> Option<f64> {
        let Cycle { passed, images, .. } = self.cycle.as_ref()?;
        Some((*passed as f64 / (*images).max(1) as f64).min(1.0))
    }

    /// No run fitted: try again after a rest, not at once.
    pub(super) fn rest(&mut self, now_us: u64) {
        self.flow.rest(now_us);
    }
}

impl Core {
    /// Asks for a sweep of everything that was accepted so far, at full speed.
    pub fn request_sweep(&mut self) {
        self.sweep.requested = self.accepted;
        self.arena.mark(self.accepted + 1);
    }

    /// Whether a sweep that was asked for is not at its end, though it may be between two cycles:
    /// the first one of them may have passed by what was pinned.
    pub(super) fn is_sweep_needed(&self) -> bool {
        self.sweep.requested > self.swept_but_held()
            && !self.full
            && !self.paused
            && self.closed.is_none()
    }

    /// Whether everything that was accepted up to `seq` is inside published images, but for what is
    /// held (see `held.rs`).
    #[must_use]
    pub fn is_swept(&self, seq: u64) -> bool {
        self.swept_but_held() >= seq
    }

    /// Memory that runs have in hand for large values and long queues, in bytes, as of the last
    /// pump.
    #[must_use]
    pub fn values_bytes(&self) -> usize {
        self.sweep.values_bytes
    }

    /// Every update up to this sequence is inside a published image.
    #[must_use]
    pub fn sweep_frontier(&self) -> u64 {
        let of_spill_segments = self.spill_segments.first_seq().map_or(u64::MAX, |first| first - 1);
        self.sweep.frontier.min(of_spill_segments)
    }

    /// How far the present sweep cycle has come, from 0 to 1; `None` between cycles.
    #[must_use]
    pub fn sweep_progress(&self) -> Option<f64> {
        self.sweep.progress()
    }

    pub(super) fn pump_sweep(&mut self, actions: &mut Actions) {
        self.pump_spills(actions);
        self.look_at_suspects();
        if self.paused {
            self.pump_runs(actions);
            return;
        }
        let mut figures = self.figures();
        let progress = figures.progress.filter(|_| figures.is_cycle_for_log());
        let now = progress.map(|progress| (figures.log.exact_percent(), progress));
        self.sweep.log_at_start = now.map(|now| self.sweep.log_at_start.unwrap_or(now));
        figures.log_at_start = self.sweep.log_at_start.unwrap_or_default();
        self.sweep.log_percent_refused = figures.log_percent_refused();
        self.sweep.leaves_log_to_callers =
            figures.is_cycle_for_log() && self.is_log_short_of_changes() && !self.full;
        self.look_for_holders(&figures);
        let swept = self.swept_but_held();
        let requested = self.sweep.requested > swept;
        let always = self.config.sweep_always && self.accepted > swept;
        let pace = match requested || always {
            true => f64::INFINITY,
            false if self.held.is_some() && swept >= self.accepted => 0.0,
            false => figures.pace(),
        };
        self.sweep.flow.note(self.metrics.updates_total.get(), pace);
        if pace > 0.0 && self.sweep.cycle.is_none() {
            self.start_cycle();
        }
        while self.has_buffers_for_a_run() && !self.full_wait() {
            let Some(blocks) = self.next_out_of_turn() else { break };
            self.start_run(&blocks, actions);
        }
        while self.sweep.cycle.is_some()
            && self.has_buffers_for_a_run()
            && !self.full_wait()
            && self.sweep.flow.may_start(self.now_us)
        {
            match self.next_run() {
                Next::Run(blocks) => {
                    self.sweep.flow.started(self.updates_of(&blocks));
                    self.start_run(&blocks, actions);
                }
                Next::End if self.sweep.runs.is_empty() => self.end_cycle(),
                Next::End | Next::Later => break,
            }
        }
        self.start_loads();
        self.pump_compaction();
        self.pump_runs(actions);
    }

    /// How many updates wait for these blocks, about.
    fn updates_of(&self, blocks: &[BlockId]) -> f64 {
        let entries_of = |id: &BlockId| {
            let block = self.directory.block(*id);
            u64::from(block.queue.count()) + u64::from(block.spilled)
        };
        self.updates_in(blocks.iter().map(entries_of).sum())
    }

    /// How many updates so many entries are, about: as many as entries have on average that were
    /// folded.
    fn updates_in(&self, entries: u64) -> f64 {
        let per_entry = self.metrics.updates_total.get() as f64 / self.entries_came() as f64;
        entries as f64 * per_entry.max(1.0)
    }

    /// Queue entries that updates became, after folding: those that were swept and those that wait.
    fn entries_came(&self) -> u64 {
        let waiting = self.arena.entries() + self.spill_segments.entries();
        (self.metrics.swept_entries_total.get() + waiting).max(1)
    }

    /// A run that waits for a flush or the log has its bytes on the device, and holds no buffer.
    fn has_buffers_for_a_run(&self) -> bool {
        let holding = self.sweep.runs.values().filter(|run| run.holds_buffers()).count();
        holding < self.config.runs_in_flight_max
    }

    /// With full devices one run at a time is tried, so that what it frees can be used.
    fn full_wait(&self) -> bool {
        self.full && !self.sweep.runs.is_empty()
    }

    /// Moves the global frontier: what is older than all that waits is in images or spill segments.
    /// What is not in effect yet may still put updates of its sequence on queues.
    pub(in crate::engine) fn find_frontier(&mut self) {
        let next = self.publishes.front().map_or(u64::MAX, |(seq, _)| *seq);
        let waiting = self.arena.oldest().unwrap_or(u64::MAX).min(next);
        // Records that are not updates need no sweep, and replay has not seen all of them.
        let seen = if self.replaying { self.accepted } else { self.log.last() };
        let frontier = (waiting - 1).min(seen);
        self.sweep.frontier = self.sweep.frontier.max(frontier);
    }

    fn start_cycle(&mut self) {
        self.arena.mark(self.accepted + 1);
        // What was placed longest ago comes first, and lies behind the next place: so all blocks
        // wait equally long for a visit.
        let stretches = |device| {
            let next = self.space_map.next_place(DeviceId(device));
            vec![0..next, next..u64::MAX]
        };
        let left = (0..self.config.data_devices).map(stretches).collect();
        let unplaced = Some((0, Key::default(), BlockId(0)));
        let (start_seq, images) = (self.accepted, self.physical.len() as u64);
        self.sweep.cycle = Some(Cycle { start_seq, left, images, passed: 0, unplaced });
        self.note_cycle_began();
    }

    /// The runs of the cycle have dropped the spill segments that they have applied the last
    /// updates of. There may be others that are for nobody.
    fn end_cycle(&mut self) {
        self.sweep.cycle = None;
        self.sweep.suspects_behind = Some(Place::default());
        self.note_cycle_ended();
        self.note_what_is_held();
    }

    fn look_at_suspects(&mut self) {
        let Some(last) = &self.sweep.suspects_behind else { return };
        let portion = self.spill_segments.behind(last, SPILL_SEGMENTS_LOOKED_AT);
        portion.iter().for_each(|(_, segment)| self.drop_unless_needed(segment));
        self.sweep.suspects_behind = portion.into_iter().next_back().map(|(place, _)| place);
    }

    /// Drops a spill segment if no block has any of its updates. Its place is free when the next
    /// checkpoint is complete, which will not list it.
    fn drop_unless_needed(&mut self, segment: &SpillSegment) {
        let record = &segment.record;
        if !self.spill_segments.has(record) {
            return; // A run that had the last updates of it was earlier.
        }
        let holders = self.directory.clones.holders(record.space, segment.seq).into_iter();
        let has_block_left = |space: u32| {
            let mut covering = self.directory.covering(space, &record.low);
            while let Some(id) = covering {
                let block = self.directory.block(id);
                if record.high.as_ref().is_some_and(|high| **high <= *block.key) {
                    return false;
                }
                if block.spilled > 0 && block.placement().frontier < record.through {
                    return true;
                }
                covering = self.directory.above(space, &block.key);
            }
            false
        };
        let is_needed =
            holders.filter(|space| self.directory.space(*space).is_some()).any(has_block_left);
        if !is_needed {
            self.spill_segments.remove(record);
            self.cache.remove(record.extent);
            self.checkpoint.outdated.push(record.extent);
            self.room_events += 1;
        }
    }

    fn next_out_of_turn(&mut self) -> Option<Vec<BlockId>> {
        while let Some(id) = self.sweep.out_of_turn.pop_first() {
            let block = self.directory.block(id);
            if !block.pinned && block.waits() {
                return Some(vec![id]);
            }
        }
        None
    }

    /// What the cycle goes on with.
    fn next_run(&mut self) -> Next {
        let Some(mut cycle) = self.sweep.cycle.take() else { return Next::End };
        let next = loop {
            let busy_runs = |device: usize| {
                self.sweep.runs.values().filter(|run| run.reads_from(device)).count()
            };
            let open = (0..cycle.left.len()).filter(|&device| !cycle.left[device].is_empty());
            let Some(device) = open.min_by_key(|&device| busy_runs(device)) else {
                break self.next_unplaced(&mut cycle).map_or(Next::End, Next::Run);
            };
            let stretches = cycle.left[device].len();
            if let Some(run) = self.next_placed(&mut cycle, device) {
                break Next::Run(run);
            }
            if cycle.left[device].len() == stretches {
                break Next::Later;
            }
        };
        self.sweep.cycle = Some(cycle);
        next
    }

    /// The next run of neighbours in the present stretch of `device`, which then begins behind it,
    /// or at a block that a spill has in hand. (To pass that by would leave all its spill segments
    /// needed.) A stretch without any more is done.
    fn next_placed(&self, cycle: &mut Cycle, device: usize) -> Option<Vec<BlockId>> {
        let device_id = DeviceId(u16::try_from(device).expect("a bank has few devices"));
        let stretch = cycle.left[device].pop()?;
        let mut run: Vec<BlockId> = Vec::new();
        let (mut start, mut waiting_bytes, mut queue_bytes, mut keep) = (0, 0u64, 0, 0);
        let (mut next, mut passed, mut passed_at_next) = (None, 0, 0);
        let place = |offset| (device_id, offset, BlockId(0));
        for &(_, offset, id) in self.physical.range(place(stretch.start)..place(stretch.end)) {
            let block = self.directory.block(id);
            let bytes = block.extent().map_or(0, |extent| u64::from(extent.bytes));
            // What a run of this cycle has written comes again with the next one.
            let is_of_before = block.placement().frontier <= cycle.start_seq;
            let is_due = block.waits() && block.queue.first_seq() <= cycle.start_seq;
            let waits = !block.pinned && is_of_before && (is_due || block.spilled > 0);
            if run.is_empty() {
                if self.sweep.spills.values().any(|spill| spill.has(id)) {
                    (next, passed_at_next) = (Some(offset), passed);
                    break;
                }
                if !waits {
                    passed += u64::from(is_of_before);
                    continue;
                }
                start = offset;
            }
            let span = offset + bytes - start;
            let sparse = (waiting_bytes + if waits { bytes } else { 0 }) * 100
                < span * u64::from(self.config.run_density_percent_min);
            queue_bytes += u64::from(block.queue.bytes());
            let too_long = run.len() == self.config.run_blocks_max
                || span > self.span_bytes_max()
                || queue_bytes > self.span_bytes_max().max(self.config.run_bytes_max as u64);
            if block.pinned || (!run.is_empty() && (too_long || (waits && sparse))) {
                break;
            }
            if !waits && too_sparse_to_go_on(run.len() - keep) {
                break;
            }
            passed += u64::from(is_of_before);
            let shares = |extent| self.directory.is_image_shared(extent);
            if !waits && block.extent().is_some_and(shares) {
                continue; // Moved by itself it would share its image no longer.
            }
            run.push(id);
            if waits {
                waiting_bytes += bytes;
                keep = run.len();
                (next, passed_at_next) = (Some(offset + bytes), passed);
            }
        }
        run.truncate(keep);
        cycle.passed += if next.is_some() { passed_at_next } else { passed };
        cycle.left[device].extend(next.map(|next| next..stretch.end));
        (!run.is_empty()).then_some(run)
    }

    /// Bytes that one run may read, gaps included.
    fn span_bytes_max(&self) -> u64 {
        self.config.run_blocks_max as u64 * u64::from(self.config.block_bytes)
    }

    /// The next blocks without image, in key order.
    fn next_unplaced(&self, cycle: &mut Cycle) -> Option<Vec<BlockId>> {
        let from = cycle.unplaced.take()?;
        let mut run = Vec::new();
        let mut bytes = 0;
        for entry in self.unplaced.range(from..) {
            let id = entry.2;
            let block = self.directory.block(id);
            bytes += block.queue.growth_bytes() as usize;
            let full = run.len() == self.config.run_blocks_max
                || bytes > self.config.oversized_queue_bytes().max(self.span_bytes_max() as usize);
            if full && !run.is_empty() {
                cycle.unplaced = Some(entry.clone());
                break;
            }
            if block.waits() && !block.pinned {
                run.push(id);
            }
        }
        (!run.is_empty()).then_some(run)
    }

    fn start_run(&mut self, blocks: &[BlockId], actions: &mut Actions) {
        let id = self.add_run(blocks);
        self.begin_read(id, actions);
    }

    /// Starts a run of blocks that do not lie together: each is read by itself.
    fn start_scattered_run(&mut self, blocks: &[BlockId]) -> RunId {
        let id = self.add_run(blocks);
        self.run_mut(id).read_one_by_one();
        id
    }

    fn add_run(&mut self, blocks: &[BlockId]) -> RunId {
        let id = self.sweep.new_run_id();
        for block in blocks {
            self.directory.block_mut(*block).pinned = true;
            self.sweep.not_out_of_turn(*block);
        }
        let table = &self.directory.table;
        let run = Run::new(blocks, table, self.block_bytes);
        self.sweep.runs.insert(id, run);
        id
    }

    /// Takes a finished job.
    pub fn job_done(&mut self, output: JobOutput) {
        match output {
            JobOutput::Run(output) => self.run_applied(output),
            JobOutput::Spill(output) => self.spill_encoded(output),
        }
    }
}

/// Blocks without waiting updates at the end of a run are dropped; this many in a row end it.
fn too_sparse_to_go_on(idle_at_end: usize) -> bool {
    idle_at_end >= 16
}
