//! The sweep: commits waiting updates to the data devices in physical order, run by run.
//!
//! A *run* is a stretch of neighbouring blocks on one device: as long as 32 of the target size at
//! most, at least half of their bytes in blocks with waiting updates, both ends waiting (Bosc
//! paper, section 4.2). The sweep decides which blocks become the next run, and when; the pipeline
//! takes the run from there (`pipeline/`). A *cycle* visits every device once (`cycle.rs`), at the
//! pace that policy sets (`flow.rs`). *Oversized* blocks, whose queue has grown far beyond their
//! size, and a few that hold the log (`holders.rs`) are swept out of turn. Bulk loads (`load.rs`)
//! and compactions (`compact.rs`) use the same pipeline.
//!
//! The *global frontier* is not derived from the order of visits, which splits and merges disturb,
//! but from the ages of all queues: see `queue/ages.rs`.

mod compact;
pub(super) mod cycle;
mod holders;
mod load;

pub use compact::{CompactionId, CompactionProgress};
use cycle::{Cycle, Next};
use load::Loads;
pub use load::{Chunk, LOADING, LoadTarget, LoadedBlock};

use super::base::Base;
use super::directory::BlockId;
use super::flow::Flow;
use super::foreground::{ForegroundRequests, QUIET_US, RecentRequests};
use super::pipeline::Pipeline;
use super::policy::{self, Figures};
use super::spill_segments::Place;
use super::spiller::Spiller;
use crate::engine::ids::SpaceId;
use crate::error::Error;
use crate::events::event;
use crate::log::Seq;

/// Spill segments that are examined in one step for whether they are still needed.
const SPILL_SEGMENTS_LOOKED_AT: usize = 64;

/// State of the sweep.
#[derive(Default)]
pub(super) struct Sweep {
    cycle: Option<Cycle>,
    /// Images that earlier cycles have passed.
    passed: u64,
    flow: Flow,
    /// Bytes of waiting updates that queries had gone through at the last pump.
    passed_by_queries: u64,
    /// Updates that may be applied for these, once they are as many as a run applies.
    earned: f64,
    /// Reads for which callers wait, as it has seen them.
    foreground: RecentRequests,
    /// Until when it leaves the devices to these, though it would sweep whatever waits.
    gives_way_until: Option<u64>,
    /// Sweep until everything up to this sequence is swept.
    requested: Seq,
    /// Spill segments after this place may be unneeded, since tables or ranges were removed: they
    /// are still to be examined.
    suspects_behind: Option<Place>,
    holders: holders::Holders,
    /// The fill of the log in per cent, and the progress of the cycle, when the cycle became the
    /// only means to release the log; `None` while it is not.
    log_at_start: Option<(f64, f64)>,
    /// Fill of the memory for spill segments in per cent when the cycle began.
    spilled_at_start: f64,
    loads: Loads,
    compaction: Option<compact::Compaction>,
    compactions: u64,
    ended_compactions: Vec<(CompactionId, Result<CompactionProgress, Error>)>,
}

impl Sweep {
    /// Requests a sweep of everything that was accepted so far, at full speed.
    pub(super) fn request(&mut self, base: &mut Base) {
        self.requested = base.index.accepted();
        base.index.mark_accepted();
    }

    /// No sweep is requested any more.
    pub(super) fn withdraw(&mut self) {
        self.requested = Seq::NONE;
    }

    /// Whether a requested sweep has not ended, though it may be between two cycles: the first of
    /// them may have skipped pinned blocks.
    pub(super) fn is_needed(&self, base: &Base) -> bool {
        self.requested > base.swept_but_held()
            && !base.index.is_full()
            && !base.gate.is_paused()
            && !base.gate.is_closed()
    }

    /// Whether it has work to do by itself.
    pub(super) fn is_active(&self, base: &Base) -> bool {
        (self.cycle.is_some() && self.flow.goes_on())
            || self.suspects_behind.is_some()
            || base.index.has_out_of_turn()
            || !self.loads.is_empty()
            || self.compaction.is_some()
    }

    /// When it wants to proceed without an event; `is_alone`: no run or spill is in progress whose
    /// end would continue the cycle. (But a run may have ended as the last step of a pump.) While
    /// the gate is paused nothing starts, so nothing is due either.
    pub(super) fn deadline_us(&self, base: &Base, is_alone: bool) -> Option<u64> {
        if self.suspects_behind.is_some() {
            return Some(0);
        }
        if base.gate.is_paused() {
            return None;
        }
        let goes_on = is_alone && self.cycle.is_some() && self.flow.goes_on();
        let cycle = goes_on.then(|| self.flow.rests_until().unwrap_or(0));
        let compaction = self.compaction.as_ref().and_then(compact::Compaction::deadline_us);
        [cycle, compaction, self.gives_way_until].into_iter().flatten().min()
    }

    /// Progress of the present cycle, from 0 to 1; `None` between cycles.
    pub(super) fn progress(&self) -> Option<f64> {
        self.cycle.as_ref().map(Cycle::progress)
    }

    /// Images that all cycles have passed, swept or not.
    pub(super) fn passed(&self) -> u64 {
        self.passed + self.cycle.as_ref().map_or(0, Cycle::passed)
    }

    /// The fill of the log in per cent, and the progress of the cycle, when the cycle became the
    /// only means to release the log.
    pub(super) fn log_at_start(&self) -> (f64, f64) {
        self.log_at_start.unwrap_or_default()
    }

    /// How full the memory for spill segments may be by now, in per cent.
    pub(super) fn spilled_percent_opened(&self) -> f64 {
        let progress = self.progress().unwrap_or(1.0);
        policy::spilled_percent_opened(self.spilled_at_start, progress)
    }

    /// Records whether the cycle is the only means to release the log; returns
    /// [`Sweep::log_at_start`].
    pub(super) fn note_log(&mut self, figures: &Figures) -> (f64, f64) {
        let progress = figures.progress.filter(|_| figures.is_cycle_for_log());
        let now = progress.map(|progress| (figures.log.exact_percent(), progress));
        self.log_at_start = now.map(|now| self.log_at_start.unwrap_or(now));
        self.log_at_start()
    }

    /// No run fitted: try again after a rest, not at once.
    pub(super) fn rest(&mut self, now_us: u64) {
        self.flow.rest(now_us);
    }

    /// Records that something was accepted for a space. Cost: a comparison while nothing loads.
    #[inline]
    pub(super) fn note_change(&mut self, space: SpaceId) {
        self.loads.note_change(space);
    }

    /// Continues the search for spill segments that are no longer needed.
    pub(super) fn look_at_suspects(&mut self, base: &mut Base) {
        let Some(last) = &self.suspects_behind else { return };
        let portion = base.index.spill_segments.behind(last, SPILL_SEGMENTS_LOOKED_AT);
        portion.iter().for_each(|(_, segment)| base.drop_unless_needed(segment));
        self.suspects_behind = portion.into_iter().next_back().map(|(place, _)| place);
    }

    /// Takes note of the requests for which callers wait. While there are some, the store is not
    /// idle: what waits is only swept at the pace that something needs, or once there have been
    /// none for a while.
    pub(super) fn give_way_to(&mut self, base: &Base, requests: ForegroundRequests) {
        let until_us = self.foreground.look(requests, base.now_us, QUIET_US);
        let sweeps = base.config.sweep_when_idle && base.index.accepted() > base.swept_but_held();
        self.gives_way_until = until_us.filter(|_| sweeps);
    }

    /// Starts the runs that are due.
    pub(super) fn pump(
        &mut self,
        base: &mut Base,
        pipeline: &mut Pipeline,
        spiller: &Spiller,
        figures: &Figures,
    ) {
        self.look_for_holders(base, figures);
        let pace = self.pace(base, figures);
        self.flow.note(base.metrics.updates_total.get(), pace);
        let goes_on_for_queries = self.note_queries(base);
        if self.cycle.is_none() && (pace > 0.0 || goes_on_for_queries) {
            self.start_cycle(base, spiller);
        }
        while may_start(base, pipeline)
            && let Some(block) = base.index.next_out_of_turn()
        {
            pipeline.start(base, &[block]);
        }
        while may_start(base, pipeline)
            && self.flow.may_start(base.now_us)
            && let Some(cycle) = &mut self.cycle
        {
            match cycle.next(base, pipeline, spiller) {
                Next::Run(blocks) => {
                    self.flow.started(updates_of(base, &blocks));
                    pipeline.start(base, &blocks);
                }
                Next::End if pipeline.is_empty() => self.end_cycle(base, spiller),
                Next::End | Next::Later => break,
            }
        }
        self.start_loads(base, pipeline);
        self.pump_compaction(base, pipeline);
    }

    /// Takes note of what queries have gone through since the last call. Returns whether that is
    /// worth another run.
    fn note_queries(&mut self, base: &Base) -> bool {
        let passed = base.metrics.query_waiting_bytes_total.get();
        let new = passed - std::mem::replace(&mut self.passed_by_queries, passed);
        let entries = base.entries_waiting();
        if new == 0 || entries == 0 || !base.config.sweep_for_queries || is_all_held(base) {
            return false;
        }
        let waiting = base.updates_in(entries);
        self.earned += policy::earned_by_queries(new, waiting, base.sweep_bytes());
        let runs = base.index.directory().len().div_ceil(base.config.run_blocks_max);
        if self.earned < waiting / runs.max(1) as f64 {
            return false;
        }
        self.flow.earn(std::mem::take(&mut self.earned));
        true
    }

    /// How many updates are to be applied per arriving update.
    fn pace(&self, base: &Base, figures: &Figures) -> f64 {
        let swept = base.swept_but_held();
        let is_idle = base.config.sweep_when_idle && self.gives_way_until.is_none();
        let has_time = is_idle && base.index.accepted() > swept;
        policy::cycle_pace(self.requested > swept || has_time, is_all_held(base), figures.pace())
    }

    fn start_cycle(&mut self, base: &mut Base, spiller: &Spiller) {
        self.spilled_at_start = spiller.spilled_gauge(base).exact_percent();
        base.index.mark_accepted();
        self.cycle = Some(Cycle::start(base));
        base.measured.note_cycle_began(base.now_us);
        event!(debug, blocks = base.index.placed().len(), "a cycle of the sweep begins");
    }

    /// The runs of the cycle have dropped the spill segments whose last updates they have applied.
    /// Others may be unneeded too.
    fn end_cycle(&mut self, base: &mut Base, spiller: &Spiller) {
        self.passed = self.passed();
        self.cycle = None;
        self.suspects_behind = Some(Place::default());
        base.measured.note_cycle_ended(base.now_us);
        if spiller.is_empty()
            && base.journal.is_published()
            && let Some(held) = &mut base.held
        {
            held.note_swept(&base.index);
        }
    }
}

/// Whether nothing waits except what is held.
fn is_all_held(base: &Base) -> bool {
    base.held.is_some() && base.swept_but_held() >= base.index.accepted()
}

/// Whether another run may start. With full devices one at a time is tried, so that the space that
/// it frees can be used.
fn may_start(base: &Base, pipeline: &Pipeline) -> bool {
    pipeline.has_buffers(&base.config) && (!base.index.is_full() || pipeline.is_empty())
}

/// Approximate number of updates that wait for these blocks.
fn updates_of(base: &Base, blocks: &[BlockId]) -> f64 {
    let entries_of = |id: &BlockId| {
        let block = base.index.directory().block(*id);
        u64::from(block.queue.count()) + u64::from(block.spilled)
    };
    base.updates_in(blocks.iter().map(entries_of).sum())
}
