//! Spills: waiting updates go to the data devices in spill segments when memory holds too few of
//! them per block.
//!
//! Updates are spilled for memory where the data is many times the memory for queues, and for the
//! log wherever that fills before memory does: records that wait alone take a page of log each, so
//! the log is full with few updates, and a sweep for so few would move a block for each.
//!
//! Several spills may be in progress, each with separate blocks. Steps of a spill:
//! 1. *gather*: freeze the queues of neighbouring blocks, enough to fill a spill segment, and
//!    repeat this for some spill segments, one per pump, so that nothing waits for more than one;
//! 2. encode the spill segments, on a worker;
//! 3. write them to free space with one request, and flush;
//! 4. log their ranges and places; when that record is durable, the frozen updates are dropped,
//!    because the spill segments have them.
//!
//! The next sweep of a block reads its spill segments and applies their updates before those in
//! memory. So memory no longer bounds how many updates a visit of a block applies; see
//! `spill_segments.rs`.
//!
//! Only ordered spaces are spilled, tables and hash tables, cyclically in key order. A block that
//! is shared, has no image or a damaged one, or waits for the removal of a range is left to the
//! sweep: so spill segments stay simple, and concern a single space.

mod gather;

use std::collections::BTreeMap;

use gather::{LOOK_BLOCKS, Search};

use super::base::Base;
use super::config::Spilling;
use super::directory::BlockId;
use super::flow::Flow;
use super::flush::Flushing;
use super::format::record_format::{BlockRef, encode_spill};
use super::format::spill_segment_format::Spilled;
use super::growth::Growth;
use super::index::Release;
use super::io::{IoKind, SpillId, owner_of};
use super::jobs::{Encoded, Job, NewSpillSegment, SpillJob, SpillOutput};
use super::journal::Publish;
use super::measure::Timed;
use super::pipeline::write_requests;
use super::policy::{self, Costs, Figures, Gauge, LEVELS_MAX, Round, SPILLS_IN_FLIGHT_MAX};
use super::spill_segments::Filter;
use crate::broken::{self, Fault};
use crate::device::Completion;
use crate::log::{AppendError, Seq};
use crate::placement::Extent;

/// A spill in progress.
struct Spill {
    /// Blocks whose updates are in it, in order.
    blocks: Vec<BlockRef>,
    frozen_bytes: usize,
    /// By how much blocks may grow by what is frozen.
    growth_bytes: u64,
    /// Memory that its spill segments will take.
    spill_segments_memory_bytes: usize,
    phase: SpillPhase,
    began_us: u64,
    /// Its spill segments, once they have places.
    spill_segments: Vec<Prepared>,
}

/// A spill segment in progress.
struct Prepared {
    spilled: Spilled,
    filter: Filter,
}

enum SpillPhase {
    Gathering {
        spill_segments: Vec<NewSpillSegment>,
        /// Blocks that were examined for them.
        looked: usize,
    },
    Encoding,
    Placing(Box<SpillOutput>),
    Writing {
        pending: usize,
    },
    Flushing,
    /// The spill segments are to be logged; `refused` if the log had no room for that.
    Logging {
        refused: bool,
    },
    Committing,
}

impl Spill {
    /// Whether spill segments can be added, which only the youngest spill allows.
    fn is_gathering(&self) -> bool {
        matches!(self.phase, SpillPhase::Gathering { .. })
    }

    /// Whether it is written and the log has no room for its record.
    fn waits_for_log(&self) -> bool {
        matches!(self.phase, SpillPhase::Logging { refused: true })
    }

    /// Whether it has the updates that waited for a block.
    fn has(&self, block: BlockId) -> bool {
        self.blocks.binary_search_by_key(&block.0, |block| block.number).is_ok()
    }
}

/// Spills, and the search for what to spill next.
#[derive(Default)]
pub(super) struct Spiller {
    spills: BTreeMap<SpillId, Spill>,
    last_spill: u64,
    flow: Flow,
    /// The blocks that the search may examine as the sweep passes blocks.
    rounds: Flow,
    search: Search,
    /// Fill of the memory for spill segments, in per cent, up to which the cycle has opened it.
    opened_percent: f64,
    /// Memory is relieved by spilling, as of the last pump.
    is_for_memory: bool,
    /// Worthwhile memory of spill segments, as of the last pump.
    worth_bytes: u64,
}

impl Spiller {
    /// Decides by the costs of updates whether they are spilled for memory, and how many spill
    /// segments are worthwhile.
    pub(super) fn weigh(&mut self, base: &Base, costs: &Costs) {
        self.worth_bytes = costs.spill_segments_worth_bytes() as u64;
        let (spilling, updates) = (base.config.spilling, base.metrics.updates_total.get());
        self.is_for_memory =
            policy::spills_for_memory(spilling, updates, costs, self.is_for_memory);
    }

    /// Takes note of the sweep, with which spills go on where their room is short: so many images
    /// has it passed so far, and so full may the memory for spill segments be by now.
    pub(super) fn note_sweep(&mut self, base: &Base, passed: u64, opened_percent: f64) {
        self.rounds.note(passed, policy::rounds_per_cycle(self.levels_gauge(base)));
        self.opened_percent = opened_percent;
    }

    /// Whether updates are spilled for memory: memory would hold so few per visit of a block that
    /// the sweep would move many times their bytes.
    pub(super) fn is_for_memory(&self) -> bool {
        self.is_for_memory
    }

    /// Worthwhile memory of spill segments, as of the last pump, in bytes.
    pub(super) fn worth_bytes(&self) -> u64 {
        self.worth_bytes
    }

    /// Whether no spill is in progress.
    pub(super) fn is_empty(&self) -> bool {
        self.spills.is_empty()
    }

    /// By how much blocks may grow by what spills have taken, in bytes.
    pub(super) fn growth_bytes(&self) -> u64 {
        self.spills.values().map(|spill| spill.growth_bytes).sum()
    }

    /// Whether a spill has the updates that waited for a block.
    pub(super) fn has(&self, block: BlockId) -> bool {
        self.spills.values().any(|spill| spill.has(block))
    }

    /// Spills for whose records the log has no room.
    pub(super) fn waiting_for_log(&self) -> Vec<SpillId> {
        let waiting = self.spills.iter().filter(|(_, spill)| spill.waits_for_log());
        waiting.map(|(id, _)| *id).collect()
    }

    /// Whether a spill waits for log space that is not available.
    pub(super) fn waits_for_log(&self) -> bool {
        self.spills.values().any(Spill::waits_for_log)
    }

    /// Whether it can proceed without an event.
    pub(super) fn goes_on(&self) -> bool {
        self.search.goes_on || self.is_gathering()
    }

    /// Whether the youngest spill takes further spill segments.
    fn is_gathering(&self) -> bool {
        self.spills.values().next_back().is_some_and(Spill::is_gathering)
    }

    /// Memory of spill segments, those in progress included, and its limit, in bytes.
    pub(super) fn spill_segments_memory(&self, base: &Base) -> (usize, usize) {
        let spills = self.spills.values();
        let coming: usize = spills.map(|spill| spill.spill_segments_memory_bytes).sum();
        let limit = policy::filter_bytes_max(base.waiting_limit_bytes());
        (base.index.spill_segments.memory_bytes() + coming, limit)
    }

    /// The use of the memory for spill segments.
    pub(super) fn spilled_gauge(&self, base: &Base) -> Gauge {
        let (used, limit) = self.spill_segments_memory(base);
        Gauge { used: used as u64, limit: limit as u64 }
    }

    /// The number of levels of spill segments, and its limit: in hundredths, because the present
    /// round adds to a level as it proceeds.
    pub(super) fn levels_gauge(&self, base: &Base) -> Gauge {
        let of_round = self.round(base).map_or(0.0, |round| round.done);
        let used = base.index.spill_segments.levels() as u64 * 100 + (of_round * 100.0) as u64;
        Gauge { used, limit: LEVELS_MAX as u64 * 100 }
    }

    /// The fill in per cent of the memory for spilled updates, or of the levels that queries
    /// tolerate.
    pub(super) fn fill_percent(&self, base: &Base) -> u32 {
        self.spilled_gauge(base).percent().max(self.levels_gauge(base).percent())
    }

    /// Whether a spill would find updates, and room for them.
    pub(super) fn can_spill(&self, base: &Base, growth: &Growth) -> bool {
        base.config.spilling != Spilling::Never
            && base.index.arena().queues() > 0
            && !(base.gate.is_paused() || base.index.is_full() || self.is_search_in_vain(base))
            && (self.is_gathering() || self.rounds.goes_on())
            && self.has_memory(base)
            && self.has_room_to_spill(base, growth)
    }

    /// Whether there is memory for another spill segment: all of it is for the spill that is being
    /// gathered, and what the cycle has opened for another one.
    fn has_memory(&self, base: &Base) -> bool {
        let gauge = self.spilled_gauge(base);
        gauge.used < gauge.limit
            && (self.is_gathering() || gauge.exact_percent() < self.opened_percent)
    }

    /// Whether a round has found nothing, or there was no room, and hardly anything has happened
    /// since.
    fn is_search_in_vain(&self, base: &Base) -> bool {
        self.search.in_vain.is_some_and(|(runs, accepted)| {
            let (runs, accepted) =
                (base.metrics.sweep_runs_total.get() - runs, base.index.accepted().since(accepted));
            policy::is_search_in_vain(runs, accepted)
        })
    }

    /// Advances the spills in progress. Returns whether another one may start: the youngest takes
    /// no more spill segments.
    pub(super) fn pump(&mut self, base: &mut Base, growth: &Growth, jobs: &mut Vec<Job>) -> bool {
        let mut gathers = false;
        let ids: Vec<SpillId> = self.spills.keys().copied().collect();
        for id in ids {
            match self.spills[&id].phase {
                SpillPhase::Gathering { .. } => gathers = true,
                SpillPhase::Placing(_) => self.write_spill(base, id),
                SpillPhase::Logging { .. } => self.log_spill(base, id),
                _ => {}
            }
        }
        if gathers {
            self.gather(base, growth, jobs);
        }
        !gathers
    }

    /// Starts another spill if one is due.
    pub(super) fn start_if_due(
        &mut self,
        base: &mut Base,
        growth: &Growth,
        figures: Figures,
        jobs: &mut Vec<Job>,
    ) {
        self.search.goes_on = false;
        self.flow.note(base.metrics.updates_total.get(), figures.spill_pace());
        // A round that began before the last one is complete would soon come to blocks whose
        // updates spills in progress have. Its spill segments would end there, and have little.
        let begins_round = self.search.began.is_none();
        let has_place =
            self.spills.len() < SPILLS_IN_FLIGHT_MAX && (!begins_round || self.spills.is_empty());
        if has_place && self.flow.may_start(base.now_us) {
            self.start_spill(base);
            self.gather(base, growth, jobs);
        }
    }

    /// Whether spill segments leave the room that the sweep will need.
    fn has_room_to_spill(&self, base: &Base, growth: &Growth) -> bool {
        let (free, reserved) =
            (base.index.space_map.free_bytes(), growth.reserved_bytes(base, 0, 0));
        policy::has_room_to_spill(free, base.config.spill_bytes_max(), reserved)
    }

    fn start_spill(&mut self, base: &Base) {
        if self.search.began.is_none() {
            self.search.began = Some(base.index.accepted());
            self.search.log_percent_at_start = base.log_gauge().exact_percent();
        }
        self.last_spill += 1;
        let spill = Spill {
            blocks: Vec::new(),
            frozen_bytes: 0,
            growth_bytes: 0,
            spill_segments_memory_bytes: 0,
            phase: SpillPhase::Gathering { spill_segments: Vec::new(), looked: 0 },
            began_us: base.now_us,
            spill_segments: Vec::new(),
        };
        self.spills.insert(SpillId(self.last_spill), spill);
    }

    /// Adds another spill segment to the youngest spill, and encodes the spill if it is complete.
    fn gather(&mut self, base: &mut Base, growth: &Growth, jobs: &mut Vec<Job>) {
        let mut is_complete = !self.can_spill(base, growth);
        let Some((id, mut spill)) = self.spills.pop_last() else { return };
        let phase = std::mem::replace(&mut spill.phase, SpillPhase::Encoding);
        let SpillPhase::Gathering { mut spill_segments, mut looked } = phase else { return };
        if !is_complete {
            match self.next_spill_segment(base, &mut looked) {
                Some(found) => {
                    spill_segments.extend(self.take_spill_segment(base, &found, &mut spill));
                }
                None => {
                    self.end_round(base);
                    is_complete = true;
                }
            }
            let is_filled = spill.frozen_bytes >= base.config.spill_bytes_max();
            is_complete |= is_filled || looked >= LOOK_BLOCKS;
        }
        if is_complete {
            self.rounds.started(looked as f64);
        }
        if is_complete && spill_segments.is_empty() {
            self.search.goes_on = self.spills.is_empty() && self.can_spill(base, growth);
            return;
        }
        if is_complete {
            let entries = spill_segments.iter().map(|segment| u64::from(segment.updates())).sum();
            self.flow.started(base.updates_in(entries));
            let job = SpillJob { spill: id, store: base.config.store, spill_segments };
            jobs.push(Job::Spill(job));
        } else {
            spill.phase = SpillPhase::Gathering { spill_segments, looked };
        }
        self.spills.insert(id, spill);
    }

    /// The present round. Blocks that are never spilled count too, so its progress may jump to the
    /// end.
    pub(super) fn round(&self, base: &Base) -> Option<Round> {
        let Search { began, log_percent_at_start, looked, .. } = self.search;
        let done = (looked as f64 / base.index.directory().len().max(1) as f64).min(1.0);
        began.map(|_| Round { done, log_percent_at_start })
    }

    pub(super) fn encoded(&mut self, output: SpillOutput) {
        let id = output.spill;
        debug_assert!(
            matches!(self.spill_mut(id).phase, SpillPhase::Encoding),
            "it was to be encoded"
        );
        self.spill_mut(id).phase = SpillPhase::Placing(Box::new(output));
    }

    /// Writes the encoded spill segments, if there is room.
    fn write_spill(&mut self, base: &mut Base, id: SpillId) {
        let phase = std::mem::replace(&mut self.spill_mut(id).phase, SpillPhase::Encoding);
        let SpillPhase::Placing(output) = phase else { return };
        let SpillOutput { spill_segments, buffer, .. } = *output;
        let lengths: Vec<u32> = spill_segments.iter().map(|segment| segment.bytes).collect();
        debug_assert_eq!(
            lengths.iter().map(|bytes| *bytes as usize).sum::<usize>(),
            buffer.len(),
            "the images lie one behind the other"
        );
        let Some(extents) = base.index.space_map.allocate_run(&lengths) else {
            return self.give_spill_up(base, id);
        };
        let writes = write_requests(&extents, buffer);
        let place = |(segment, extent): (Encoded, &Extent)| {
            let Encoded { segment, filter, .. } = segment;
            Prepared { spilled: segment.placed(*extent), filter }
        };
        let spill = self.spill_mut(id);
        spill.spill_segments = spill_segments.into_iter().zip(&extents).map(place).collect();
        spill.phase = SpillPhase::Writing { pending: writes.len() };
        let owner =
            owner_of(spill.spill_segments.iter().map(|segment| segment.spilled.record.space));
        for (extent, buffer) in writes {
            base.metrics.spill_written_bytes_total.add(buffer.len() as u64);
            base.io.write(IoKind::SpillWrite(id), owner, extent, buffer);
        }
    }

    pub(super) fn write_done(&mut self, base: &mut Base, id: SpillId, completion: &Completion) {
        if completion.result.is_err() {
            return;
        }
        let spill = self.spill_mut(id);
        let SpillPhase::Writing { pending } = &mut spill.phase else { return };
        assert!(*pending > 0, "a write must begin before it ends");
        *pending -= 1;
        if *pending == 0 && broken::is(Fault::SpillBeforeFlush) {
            spill.phase = SpillPhase::Logging { refused: false };
        } else if *pending == 0 {
            spill.phase = SpillPhase::Flushing;
            base.flushes.wait(Flushing::Spill(id));
        }
    }

    fn spill_mut(&mut self, id: SpillId) -> &mut Spill {
        self.spills.get_mut(&id).expect("a spill lives until it is published")
    }

    pub(super) fn flushed(&mut self, base: &mut Base, id: SpillId) {
        let spill = self.spill_mut(id);
        let is_written = matches!(spill.phase, SpillPhase::Flushing);
        assert!(is_written, "a flush covers only completed writes");
        spill.phase = SpillPhase::Logging { refused: false };
        self.log_spill(base, id);
    }

    /// Logs the spill. If the log has no room, the spill waits here for the next checkpoint to
    /// carry it (see `Core::carry_changes`), or for room.
    fn log_spill(&mut self, base: &mut Base, id: SpillId) {
        if base.journal.is_ahead() {
            return;
        }
        let spill = &self.spills[&id];
        debug_assert!(
            matches!(spill.phase, SpillPhase::Logging { .. }),
            "it is written and flushed"
        );
        let mut payload = Vec::new();
        encode_spill(spill.spill_segments.iter().map(|segment| &segment.spilled), &mut payload);
        match base.journal.append_change(&payload, Publish::Spill(id), base.now_us) {
            Ok(_) => self.spill_mut(id).phase = SpillPhase::Committing,
            Err(AppendError::Full | AppendError::TooLong { .. }) => {
                self.spill_mut(id).phase = SpillPhase::Logging { refused: true };
            }
            // The log's pipeline is temporarily full, or a failed write has closed the store.
            Err(_) => {}
        }
    }

    /// The record of the spill is durable, or a checkpoint carries it.
    pub(super) fn publish(&mut self, base: &mut Base, id: SpillId, seq: Seq, release: Release) {
        let spill = self.spills.remove(&id).expect("a spill lives until it is published");
        let is_logged = matches!(spill.phase, SpillPhase::Committing);
        assert!(
            is_logged || spill.waits_for_log(),
            "it is written, flushed, and logged or carried"
        );
        let ends = spill.spill_segments.iter().map(|segment| segment.spilled.record.through);
        assert!(!is_logged || ends.max() < Some(seq), "a spill comes after its updates");
        base.index.end_freeze(spill.frozen_bytes);
        base.waiters.tell();
        base.metrics.spills_total.add(1);
        base.measured.note_ended(Timed::Spill, spill.began_us);
        for Prepared { spilled, filter } in spill.spill_segments {
            let is_added = base.index.add_spill_segment(seq, &spilled, Some(filter), release);
            if is_added {
                base.metrics.spilled_entries_total.add(u64::from(spilled.record.updates));
            }
            for id in base.index.found(&spilled.blocks) {
                if is_added {
                    base.index.let_go_spilled(id);
                } else {
                    base.index.unfreeze(id);
                }
            }
        }
    }

    /// Puts back what was frozen: there is no room for the spill segments.
    fn give_spill_up(&mut self, base: &mut Base, id: SpillId) {
        let spill = self.spills.remove(&id).expect("a spill lives until it is published");
        self.search_in_vain(base);
        base.index.end_freeze(spill.frozen_bytes);
        base.waiters.tell();
        base.index.found(&spill.blocks).into_iter().for_each(|id| base.index.unfreeze(id));
    }
}
