//! The pace of the sweep, of spills and of checkpoints.

use super::{FULL_PERCENT, Figures, Gauge, SPILLS_FAIL_PERCENT, START_PERCENT, Shortage};
use crate::broken::{self, Fault};

/// Most blocks that are swept out of turn to release the log.
pub(in crate::engine) const HOLDERS_MAX: u64 = 32;
/// They must hold at least this fraction of what holds the log.
const HOLDERS_PART: u64 = 4;
/// Fill of the levels in per cent at which the sweep keeps up with updates.
pub(super) const LEVELS_STEADY_PERCENT: f64 = 50.0;
/// Late relief starts at this part of the fill at which it is to settle.
const LATE_START: f64 = 0.72;
/// Time without another run after one that found no room, in microseconds.
pub(in crate::engine) const RETRY_US: u64 = 20_000;
/// The fixed costs of a cycle, such as the flushes of its runs, as a number of bytes that could be
/// moved in that time: so a small store is not swept for every few queries.
const CYCLE_BYTES: u64 = 1 << 20;
/// A checkpoint is due when the log since the last one takes this part of the ring, in per cent.
const CHECKPOINT_PERCENT: u64 = 20;
/// Page writes of a checkpoint in flight while no caller waits for the log.
const PAGES_IN_FLIGHT: usize = 4;
/// The same while a caller does.
const PAGES_IN_FLIGHT_MAX: usize = 32;
/// Publication waits while this many writes of a checkpoint are in flight.
pub(in crate::engine) const CHECKPOINT_WRITES_MAX: usize = 64;
/// Fill of queue memory in per cent from which deferred reference counts have to wait, as they are
/// not subject to backpressure.
const DEFERRED_COUNTS_PERCENT_MAX: u32 = 75;

impl Figures {
    /// How many updates the sweep is to apply per arriving update, by the fill of what it alone can
    /// relieve: none where there is room, and without rest where there is hardly any or a caller
    /// waits for it.
    pub(in crate::engine) fn pace(&self) -> f64 {
        if self.is_sweep_waited_for() {
            return f64::INFINITY;
        }
        let is_relieved =
            self.spills_for_memory && self.can_spill && self.queues.percent() < SPILLS_FAIL_PERCENT;
        let start = f64::from(START_PERCENT);
        let queues = if is_relieved { 0.0 } else { pace_at(self.queues.exact_percent(), start) };
        let log = if self.is_cycle_for_log() {
            pace_at(self.log.exact_percent() * 100.0 / self.log_percent_refused(), start)
        } else {
            0.0
        };
        let spilled = self.spilled.exact_percent().max(self.spilled_worth.exact_percent());
        let spilled = pace_at(spilled, start);
        let levels = late_pace_at(self.levels.exact_percent(), LEVELS_STEADY_PERCENT);
        queues.max(log).max(spilled).max(levels)
    }

    /// Whether a caller waits for room that only the sweep makes, not spills and checkpoints.
    pub(in crate::engine) fn is_sweep_waited_for(&self) -> bool {
        match self.shortage {
            None => false,
            Some(Shortage::Memory) => !(self.spills_for_memory && self.can_spill),
            Some(Shortage::Log) => self.is_cycle_waited_for_log(),
            Some(Shortage::Device) => !self.can_grow,
        }
    }

    /// Whether a caller waits for the log, and only a cycle can release it.
    pub(in crate::engine) fn is_cycle_waited_for_log(&self) -> bool {
        self.shortage == Some(Shortage::Log) && self.is_cycle_for_log()
    }

    /// How many updates are to be spilled per arriving update: for memory, and to release the log.
    /// None where nothing can be spilled or nothing would be relieved.
    pub(in crate::engine) fn spill_pace(&self) -> f64 {
        let pace_of = |gauge: Gauge, shortage: Shortage, pace_at: fn(f64, f64) -> f64| {
            if broken::is(Fault::LateSpill) && gauge.percent() < 100 {
                0.0
            } else if self.spill_percent == 0 || self.shortage == Some(shortage) {
                f64::INFINITY
            } else {
                pace_at(gauge.exact_percent(), f64::from(self.spill_percent))
            }
        };
        let mut pace = 0.0f64;
        if self.can_spill && self.spills_for_memory {
            pace = pace.max(pace_of(self.queues, Shortage::Memory, pace_at));
        }
        if self.can_spill && self.is_log_held_by_queues {
            pace = pace.max(pace_of(self.log, Shortage::Log, late_pace_at));
        }
        pace
    }

    /// Whether a checkpoint, or a superblock, that would release some of the log is due.
    pub(in crate::engine) fn is_release_due(&self, from_percent: u32) -> bool {
        self.log.percent() >= from_percent || self.shortage == Some(Shortage::Log)
    }
}

/// How many updates are applied, or spilled, per arriving update at this fill of a resource, in per
/// cent: one halfway from `start` to [`FULL_PERCENT`], so that it settles there.
fn pace_at(percent: f64, start: f64) -> f64 {
    let full = f64::from(FULL_PERCENT);
    if percent >= full {
        return f64::INFINITY;
    }
    (percent - start).max(0.0) / (full - percent)
}

/// The same for what settles at `steady` and is relieved late: the log, whose fill corresponds to
/// the time since spills last visited the place that they visit next, and levels of spill segments,
/// whose number corresponds to the rounds of spills since the last visit of the sweep. A faster
/// round takes effect only in the round after it. So the pace changes little with the fill, or
/// rounds would alternate between slow and fast. One that starts when all blocks have waited
/// equally long ends before [`FULL_PERCENT`] if `steady` is 50.
pub(super) fn late_pace_at(percent: f64, steady: f64) -> f64 {
    if percent >= f64::from(FULL_PERCENT) {
        return f64::INFINITY;
    }
    let of_steady = percent / steady.max(f64::MIN_POSITIVE);
    if of_steady < LATE_START { 0.0 } else { of_steady * of_steady }
}

/// How many updates the sweep is to apply per arriving update: without rest if it is `asked` to
/// sweep, none if nothing waits except what is `held`, else by the fill.
pub(in crate::engine) fn cycle_pace(asked: bool, is_all_held: bool, by_fill: f64) -> f64 {
    match (asked, is_all_held) {
        (true, _) => f64::INFINITY,
        (false, true) => 0.0,
        (false, false) => by_fill,
    }
}

/// Updates that may be applied at once, after `new` have arrived, each adding `pace`: `credit` was
/// left, of which at most the size of the last run is saved up.
pub(in crate::engine) fn credit(credit: f64, of_last_run: f64, new: f64, pace: f64) -> f64 {
    match pace {
        f64::INFINITY => f64::INFINITY,
        _ if credit == f64::INFINITY => 0.0,
        pace => credit.min(of_last_run) + new * pace,
    }
}

/// Updates that the sweep may apply because queries have gone through `passed_bytes` of waiting
/// updates: as many as it applies while it moves that many bytes, if a sweep of all that are
/// `waiting` moves `sweep_bytes`. So queries take about as long for what waits as the sweep that
/// spares them the same work: rarer sweeps would cost queries more, and further ones would cost
/// more than they spare.
pub(in crate::engine) fn earned_by_queries(
    passed_bytes: u64,
    waiting: f64,
    sweep_bytes: u64,
) -> f64 {
    let sweep_bytes = sweep_bytes.saturating_add(CYCLE_BYTES) as f64;
    waiting * (passed_bytes as f64 / sweep_bytes).min(1.0)
}

/// Whether blocks are swept out of turn because `held` of the `in_all` sequences that hold the log
/// are held by them alone.
pub(in crate::engine) fn are_worth_a_visit(held: u64, in_all: u64) -> bool {
    held > 0 && held.saturating_mul(HOLDERS_PART) >= in_all
}

/// Whether a checkpoint is due by the bytes of log that it would save the next open from reading.
pub(in crate::engine) fn is_checkpoint_worth(log_bytes_since: u64, prospect_bytes: u64) -> bool {
    let part = u128::from(prospect_bytes) * u128::from(CHECKPOINT_PERCENT);
    u128::from(log_bytes_since) * 100 >= part
}

/// Page writes that a checkpoint has in flight.
pub(in crate::engine) fn checkpoint_pages_in_flight(waited_for: Option<Shortage>) -> usize {
    if waited_for == Some(Shortage::Log) { PAGES_IN_FLIGHT_MAX } else { PAGES_IN_FLIGHT }
}

/// Whether deferred reference counts may be added to the reference array at this fill of queue
/// memory.
pub(in crate::engine) fn may_add_deferred_counts(queue_percent: u32) -> bool {
    queue_percent < DEFERRED_COUNTS_PERCENT_MAX
}

#[cfg(test)]
mod tests;
