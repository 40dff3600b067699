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
//! visits every device once, then the blocks that have no image yet. A *fat* block, whose queue has
//! grown far beyond its size, is swept out of turn.
//!
//! The *global frontier* is not derived from the order of visits, which splits and merges disturb,
//! but found by a scan over all blocks at the end of a cycle, in portions.

mod bundle;
mod change;
mod compact;
mod flush;
mod job;
mod load;
mod owner;
mod pacing;
mod place;
mod run;
mod spill;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use compact::{CompactionId, CompactionProgress};
pub(super) use job::Quarantined;
pub use job::{JobOutput, RunJob};
pub use load::{Chunk, LOADING, LoadTarget, LoadedBlock};
pub(super) use run::{Run, RunSummary};

use super::bundles::Bundle;
use super::core::{Actions, Core};
use super::directory::BlockId;
use crate::device::{DeviceId, Token};
use crate::engine::key::Key;
use crate::error::Error;

/// Number of a run within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId(pub u64);

/// Blocks that the scan for the global frontier looks at in one step.
const SCAN_BLOCKS: u32 = 8192;
/// Bundles that it looks at in one step.
const SCAN_BUNDLES: usize = 256;
/// Runs and spills between two scans of a cycle, at least.
const SCAN_RUNS_MIN: u64 = 64;

/// Where a cycle is.
pub(super) struct Cycle {
    start_seq: u64,
    /// Per device: the next offset to look at; `None` when done.
    cursors: Vec<Option<u64>>,
    /// Where the pass over blocks without image is; `None` when done.
    unplaced: Option<(u32, Key, BlockId)>,
}

/// The scan for the global frontier, and then for bundles that nobody needs any more.
struct Scan {
    next: u32,
    oldest: u64,
    bundles: Option<Vec<Arc<Bundle>>>,
}

/// State of the sweep.
pub(super) struct Sweep {
    pub(super) runs: BTreeMap<RunId, Run>,
    pub(super) spill: Option<spill::Spill>,
    search: spill::Search,
    /// Bundles on their way to runs, with how often they were asked for.
    bundle_reads: BTreeMap<Token, (Arc<Bundle>, u32)>,
    /// Those that did not come, and will be asked for again.
    bundle_retries: Vec<(Arc<Bundle>, u32)>,
    pub(super) loads: load::Loads,
    compaction: Option<compact::Compaction>,
    compactions: u64,
    ended_compactions: Vec<(CompactionId, Result<CompactionProgress, Error>)>,
    next_run: u64,
    /// Blocks of runs whose change is still to be logged, as of the last pump.
    pub(super) unlogged_blocks: usize,
    /// How much blocks may grow by what runs have frozen, as of the last pump.
    pub(super) frozen_growth_bytes: u64,
    cycle: Option<Cycle>,
    scan: Option<Scan>,
    /// Runs and spills that were published when the last scan began.
    scanned_at: u64,
    fat: BTreeSet<BlockId>,
    /// Every update up to this sequence is inside a published image or a bundle.
    pub(super) frontier: u64,
    /// Sweep until the frontier reaches this sequence.
    requested: u64,
    pub(super) flush: FlushState,
    pacing: pacing::Pacing,
    log_fill_allowed: u32,
    /// Somebody found no room while the sweep was at work, and has to be told when it is not.
    pub(super) is_room_wanted: bool,
}

/// Runs and checkpoint writes that wait for a flush share it.
#[derive(Default)]
pub(super) struct FlushState {
    /// Flush requests in flight.
    pub(super) in_flight: usize,
    /// Written, and not covered by a flush in flight.
    pub(super) waiting: Vec<Flushing>,
    /// Covered by the flush in flight.
    pub(super) covered: Vec<Flushing>,
}

/// Who waits for a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushing {
    Run(RunId),
    Spill,
    Checkpoint,
}

impl Sweep {
    pub(super) fn new(frontier: u64) -> Self {
        Self {
            runs: BTreeMap::new(),
            spill: None,
            search: spill::Search::default(),
            bundle_reads: BTreeMap::new(),
            bundle_retries: Vec::new(),
            loads: load::Loads::default(),
            compaction: None,
            compactions: 0,
            ended_compactions: Vec::new(),
            next_run: 0,
            unlogged_blocks: 0,
            frozen_growth_bytes: 0,
            cycle: None,
            scan: None,
            scanned_at: 0,
            fat: BTreeSet::new(),
            frontier,
            requested: 0,
            flush: FlushState::default(),
            pacing: pacing::Pacing::default(),
            log_fill_allowed: 100,
            is_room_wanted: false,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.cycle.is_some()
            || self.scan.is_some()
            || !self.runs.is_empty()
            || self.spill.is_some()
            || !self.fat.is_empty()
            || !self.loads.is_empty()
            || self.compaction.is_some()
    }

    fn new_run_id(&mut self) -> RunId {
        self.next_run += 1;
        RunId(self.next_run)
    }

    pub(super) fn mark_fat(&mut self, block: BlockId) {
        self.fat.insert(block);
    }

    pub(super) fn unmark_fat(&mut self, block: BlockId) {
        self.fat.remove(&block);
    }

    pub(super) fn deadline_us(&self) -> Option<u64> {
        if self.scan.is_some() {
            return Some(0); // goes on at once: log space may depend on it
        }
        let cycle = self.cycle.as_ref().and_then(|_| self.pacing.next_run_at());
        let compaction = self.compaction.as_ref().and_then(compact::Compaction::deadline_us);
        [cycle, compaction].into_iter().flatten().min()
    }

    /// The fill of the log in per cent up to which updates are admitted: while a cycle runs, the
    /// log may fill only as fast as the cycle proceeds, so that callers are slowed down run by run
    /// and not stopped for a whole cycle.
    pub(super) fn log_fill_allowed_percent(&self) -> u32 {
        self.log_fill_allowed
    }

    /// Counts anew what every admission of an update asks for.
    fn count_unpublished(&mut self) {
        self.unlogged_blocks = self.runs.values().map(Run::unlogged_blocks).sum();
        let of_spill = self.spill.as_ref().map_or(0, |spill| spill.growth_bytes);
        let of_runs: u64 = self.runs.values().map(|run| run.growth_bytes).sum();
        self.frozen_growth_bytes = of_runs + of_spill;
    }

    /// How far the present cycle has come, from 0 to 1; `None` between cycles.
    pub(super) fn progress(&self, ends: &[u64]) -> Option<f64> {
        let cycle = self.cycle.as_ref()?;
        let total: u64 = ends.iter().sum();
        let done: u64 =
            cycle.cursors.iter().zip(ends).map(|(cursor, end)| cursor.unwrap_or(*end)).sum();
        Some(done as f64 / total.max(1) as f64)
    }

    /// No run fitted: try again after a rest, not at once.
    pub(super) fn rest_until(&mut self, now_us: u64) {
        self.pacing.rest(now_us);
    }

    /// Keeps the scan honest when an old update moves to a block that it has passed.
    pub(super) fn note_moved(&mut self, seq: u64) {
        if let Some(scan) = &mut self.scan {
            scan.oldest = scan.oldest.min(seq);
        }
    }
}

impl Core {
    /// Asks for a sweep of everything that was accepted so far, at full speed.
    pub fn request_sweep(&mut self) {
        self.sweep.requested = self.accepted;
    }

    /// Whether a sweep that was asked for is not at its end, though it may be between two cycles:
    /// the first one of them may have passed by what was busy.
    pub(super) fn is_sweep_owed(&self) -> bool {
        self.sweep.requested > self.sweep_frontier()
            && !self.full
            && !self.paused
            && self.closed.is_none()
    }

    /// Whether everything that was accepted up to `seq` is inside published images.
    #[must_use]
    pub fn is_swept(&self, seq: u64) -> bool {
        self.sweep_frontier() >= seq
    }

    /// Every update up to this sequence is inside a published image.
    #[must_use]
    pub fn sweep_frontier(&self) -> u64 {
        let of_bundles = self.bundles.first_seq().map_or(u64::MAX, |first| first - 1);
        self.sweep.frontier.min(of_bundles)
    }

    /// How far the present sweep cycle has come, from 0 to 1; `None` between cycles.
    #[must_use]
    pub fn sweep_progress(&self) -> Option<f64> {
        let ends: Vec<u64> =
            (0..self.config.data_devices).map(|i| self.space_map.end(DeviceId(i))).collect();
        self.sweep.progress(&ends)
    }

    pub(super) fn pump_sweep(&mut self, actions: &mut Actions) {
        self.pump_spill(actions);
        if self.paused {
            self.pump_runs(actions);
            return;
        }
        let nothing_waits = self.arena.queues() == 0 && self.publishes.is_empty();
        let nothing_runs = self.sweep.runs.is_empty() && self.sweep.spill.is_none();
        if !self.replaying && nothing_runs && nothing_waits {
            // Nothing waits, so every record that is not an update yet to come is dealt with.
            self.sweep.frontier = self.sweep.frontier.max(self.log.last());
        }
        self.scan_frontier();
        self.rescan();
        self.sweep.log_fill_allowed = pacing::log_fill_allowed_percent(self.cycle_for_log());
        let pressure = self.sweep_pressure();
        let requested = self.sweep.requested > self.sweep_frontier();
        let always = self.config.sweep_always && self.accepted > self.sweep_frontier();
        let wanted = requested || always || pressure >= pacing::START_PERCENT;
        if wanted && self.sweep.cycle.is_none() && self.sweep.scan.is_none() {
            self.start_cycle();
        }
        let urgent = if requested || always { 100 } else { pressure };
        while self.has_buffers_for_a_run() && !self.full_wait() {
            let Some(blocks) = self.next_fat() else { break };
            self.start_run(&blocks, actions);
        }
        while self.sweep.cycle.is_some()
            && self.has_buffers_for_a_run()
            && !self.full_wait()
            && self.sweep.pacing.may_start(urgent, self.sweep.runs.is_empty(), self.now_us)
        {
            match self.next_run() {
                Some(blocks) => self.start_run(&blocks, actions),
                // What a spill has in hand is waited for.
                None if self.sweep.runs.is_empty() && self.sweep.spill.is_none() => {
                    self.end_cycle();
                }
                None => break,
            }
        }
        self.start_loads();
        self.pump_compaction();
        self.pump_runs(actions);
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

    /// While the log or the memory of bundles is half full, the frontier and what bundles are not
    /// needed is looked for again and again, so that room comes back as the cycle proceeds and not
    /// only at its end, and as updates are spilled; also when the search for those has come round.
    fn rescan(&mut self) {
        if self.sweep.scan.is_some() {
            return;
        }
        let ended = self.ended_runs_and_spills() - self.sweep.scanned_at;
        let is_round_complete =
            self.sweep.spill.is_none() && std::mem::take(&mut self.sweep.search.is_round_complete);
        let fill = self.log_fill_percent().max(self.bundles_fill_percent());
        let many = SCAN_RUNS_MIN.max(self.directory.len() as u64 / 512);
        if is_round_complete || (fill >= pacing::START_PERCENT && ended >= many) {
            self.start_scan();
        }
    }

    fn ended_runs_and_spills(&self) -> u64 {
        self.statistics.runs + self.statistics.spills
    }

    fn start_scan(&mut self) {
        self.sweep.scanned_at = self.ended_runs_and_spills();
        // What is not in effect yet may still put updates of its sequence on queues.
        let next = self.publishes.front().map(|(seq, _)| *seq);
        let oldest = next.map_or(self.accepted + 1, |seq| seq.min(self.accepted + 1));
        self.sweep.scan = Some(Scan { next: 0, oldest, bundles: None });
    }

    fn start_cycle(&mut self) {
        let cursors = vec![Some(0); usize::from(self.config.data_devices)];
        let unplaced = Some((0, Key::default(), BlockId(0)));
        self.sweep.cycle = Some(Cycle { start_seq: self.accepted, cursors, unplaced });
        self.statistics.cycle_started(self.now_us);
    }

    fn end_cycle(&mut self) {
        self.sweep.cycle = None;
        // A scan that began before the last runs were published would find too little.
        self.start_scan();
        self.statistics.cycle_ended(self.now_us);
        self.scan_frontier();
    }

    /// One portion of the search for the oldest update that is neither inside a published image
    /// nor in a bundle, or of the search for bundles that are not needed.
    fn scan_frontier(&mut self) {
        let Some(scan) = &mut self.sweep.scan else { return };
        if let Some(bundles) = &mut scan.bundles {
            let portion = bundles.split_off(bundles.len().saturating_sub(SCAN_BUNDLES));
            portion.iter().for_each(|bundle| self.drop_unless_needed(bundle));
            return self.end_scan_if_done();
        }
        let mut seen = 0;
        for block in self.directory.table.from(scan.next).take(SCAN_BLOCKS as usize) {
            seen += 1;
            scan.oldest = block.oldest_waiting().map_or(scan.oldest, |seq| scan.oldest.min(seq));
        }
        scan.next += seen;
        if seen < SCAN_BLOCKS {
            self.sweep.frontier = self.sweep.frontier.max(scan.oldest - 1);
            scan.bundles = Some(self.bundles.iter().map(Arc::clone).collect());
            self.end_scan_if_done();
        }
    }

    /// Whoever asked for room meanwhile has been told to wait. Nobody else is woken: to look again
    /// without cause would keep others from the core.
    fn end_scan_if_done(&mut self) {
        let bundles = self.sweep.scan.as_ref().and_then(|scan| scan.bundles.as_ref());
        if bundles.is_some_and(Vec::is_empty) {
            self.sweep.scan = None;
            self.room_events += u64::from(std::mem::take(&mut self.sweep.is_room_wanted));
        }
    }

    /// Drops a bundle if no block has any of its updates. Its place is free when the next
    /// checkpoint is complete, which will not list it.
    fn drop_unless_needed(&mut self, bundle: &Bundle) {
        let record = &bundle.record;
        let holders = self.directory.holders(record.space, bundle.seq).into_iter();
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
            self.bundles.remove(record);
            self.cache.remove(record.extent);
            self.checkpoint.outdated.push(record.extent);
            self.room_events += 1;
        }
    }

    fn next_fat(&mut self) -> Option<Vec<BlockId>> {
        while let Some(id) = self.sweep.fat.pop_first() {
            let block = self.directory.block(id);
            if !block.busy && block.waits() {
                return Some(vec![id]);
            }
        }
        None
    }

    /// The blocks of the next run of the cycle; `None` when the cycle has nothing left to start.
    fn next_run(&mut self) -> Option<Vec<BlockId>> {
        let mut cycle = self.sweep.cycle.take()?;
        let mut run = None;
        while run.is_none() {
            let busy_runs = |device: usize| {
                self.sweep.runs.values().filter(|run| run.reads_from(device)).count()
            };
            let open = (0..cycle.cursors.len()).filter(|&device| cycle.cursors[device].is_some());
            let Some(device) = open.min_by_key(|&device| busy_runs(device)) else {
                run = self.next_unplaced(&mut cycle);
                break;
            };
            run = self.next_placed(&mut cycle, device);
            if run.is_none() && cycle.cursors[device].is_some() {
                break; // at a block that a spill has in hand
            }
        }
        self.sweep.cycle = Some(cycle);
        run
    }

    /// The next run of neighbours on `device` at or behind the cursor, which moves behind it; or to
    /// a block that a spill has in hand. (To pass that by would leave all its bundles needed.)
    fn next_placed(&self, cycle: &mut Cycle, device: usize) -> Option<Vec<BlockId>> {
        let device_id = DeviceId(u16::try_from(device).expect("a bank has few devices"));
        let cursor = cycle.cursors[device]?;
        let mut run: Vec<BlockId> = Vec::new();
        let (mut start, mut waiting_bytes, mut keep) = (0, 0u64, 0);
        let mut next_cursor = None;
        let places = (device_id, cursor, BlockId(0))..=(device_id, u64::MAX, BlockId(u32::MAX));
        for &(_, offset, id) in self.physical.range(places) {
            let block = self.directory.block(id);
            let bytes = block.extent().map_or(0, |extent| u64::from(extent.bytes));
            let is_due = block.waits() && block.queue.first_seq() <= cycle.start_seq;
            let waits = !block.busy && (is_due || block.spilled > 0);
            if run.is_empty() {
                if self.sweep.spill.as_ref().is_some_and(|spill| spill.has(id)) {
                    next_cursor = Some(offset);
                    break;
                }
                if !waits {
                    continue;
                }
                start = offset;
            }
            let span = offset + bytes - start;
            let sparse = (waiting_bytes + if waits { bytes } else { 0 }) * 100
                < span * u64::from(self.config.run_density_percent_min);
            let too_long = run.len() == self.config.run_blocks_max || span > self.span_bytes_max();
            if block.busy || (!run.is_empty() && (too_long || (waits && sparse))) {
                break;
            }
            if !waits && too_sparse_to_go_on(run.len() - keep) {
                break;
            }
            let shares = |extent| self.directory.is_image_shared(extent);
            if !waits && block.extent().is_some_and(shares) {
                continue; // Moved by itself it would share its image no longer.
            }
            run.push(id);
            if waits {
                waiting_bytes += bytes;
                keep = run.len();
                next_cursor = Some(offset + bytes);
            }
        }
        run.truncate(keep);
        cycle.cursors[device] = next_cursor;
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
                || bytes > self.config.fat_queue_bytes().max(self.span_bytes_max() as usize);
            if full && !run.is_empty() {
                cycle.unplaced = Some(entry.clone());
                break;
            }
            if block.waits() && !block.busy {
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
            self.directory.block_mut(*block).busy = true;
            self.sweep.unmark_fat(*block);
        }
        let run = Run::new(blocks, &self.directory.table, self.config.block_bytes);
        self.sweep.runs.insert(id, run);
        id
    }

    /// Takes a finished job of a run.
    pub fn job_done(&mut self, output: JobOutput) {
        self.run_applied(output);
    }
}

/// Blocks without waiting updates at the end of a run are dropped; this many in a row end it.
fn too_sparse_to_go_on(idle_at_end: usize) -> bool {
    idle_at_end >= 16
}
