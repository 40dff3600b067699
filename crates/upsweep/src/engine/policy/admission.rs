//! Decides which updates are refused: for memory, for the log, or permanently.

use super::{FULL_PERCENT, Figures, Gauge, SPILLS_FAIL_PERCENT, START_PERCENT, Shortage};
use crate::engine::queue::CELL_BYTES;

/// Fill of the log in per cent up to which a cycle that alone can release it admits updates at its
/// start. The rest is admitted as the cycle proceeds, so that callers are slowed down run by run
/// instead of being stopped for a whole cycle.
const LOG_PERCENT_AT_START: f64 = 60.0;
/// The same if the log is fuller when the cycle becomes the only means to release it.
const LOG_PERCENT_AT_START_MAX: f64 = 90.0;
/// How much the log may fill while a round of spills releases it, in per cent, before updates are
/// admitted only as the round proceeds.
const LOG_PERCENT_OF_ROUND: f64 = 10.0;
/// Fill of the log in per cent up to which any round admits updates at its start.
const LOG_PERCENT_OF_ROUND_MAX: f64 = 95.0;

/// Approximate log bytes of the change of one block, besides a page for its run.
const CHANGE_BYTES: u64 = 48;
/// Queue memory that admission always keeps, besides a fraction: queues that split take more cells,
/// and new blocks take directory memory from the queues.
const QUEUE_BYTES_KEPT: usize = 4096;
const QUEUE_PART_KEPT: usize = 32;
/// Divisor of a record that bounds the additional bytes of its updates in queues.
const QUEUE_OVERHEAD_PART: usize = 8;
/// Most bytes of a record of updates before the first of them: its kind and their number.
const RECORD_HEAD_BYTES: usize = 6;

/// The part of a limit of queue memory that admission gives out.
fn given_out(limit: usize) -> usize {
    limit.saturating_sub(limit / QUEUE_PART_KEPT + QUEUE_BYTES_KEPT)
}

/// Most queue memory that the updates of a record of this many bytes take.
pub(in crate::engine) fn queue_bytes_of(record_bytes: usize) -> usize {
    record_bytes.saturating_add(record_bytes / QUEUE_OVERHEAD_PART).saturating_add(CELL_BYTES)
}

/// Longest record of updates, in bytes, that is ever accepted: the limit of the log, and that of
/// the queues of an empty store.
pub(in crate::engine) fn record_bytes_max(queue_bytes_max: usize, of_log: usize) -> usize {
    let queues = given_out(queue_bytes_max).saturating_sub(CELL_BYTES);
    // The count of updates comes before them.
    let log = of_log.saturating_sub(RECORD_HEAD_BYTES);
    log.min(queues / (QUEUE_OVERHEAD_PART + 1) * QUEUE_OVERHEAD_PART)
}

/// Memory of waiting updates. Long queues count three times with their `excess_bytes`: while a run
/// has one, there are the cells, the copy, and the output of the worker.
pub(in crate::engine) fn queues_gauge(
    limit: usize,
    queue_bytes: usize,
    excess_bytes: usize,
) -> Gauge {
    let used = queue_bytes.saturating_add(excess_bytes.saturating_mul(2));
    Gauge { used: used as u64, limit: given_out(limit) as u64 }
}

/// Log space that updates have taken, and may take, if they may fill it to `limit` of
/// `prospect_bytes`. The rest is for the changes of waiting updates; if that is too little for this
/// many blocks, more is kept, because checkpoints would have to carry the changes, a few runs at a
/// time.
pub(in crate::engine) fn log_gauge(
    Gauge { used, limit }: Gauge,
    prospect_bytes: u64,
    change_bytes: u64,
) -> Gauge {
    let reserve = prospect_bytes.saturating_sub(limit);
    let kept = change_bytes.saturating_sub(reserve / 2).min(limit / 4);
    Gauge { used, limit: limit - kept }
}

/// Approximate log bytes of the changes of a sweep of this many blocks.
pub(in crate::engine) fn change_bytes(
    blocks: usize,
    run_blocks_max: usize,
    page_bytes: u32,
) -> u64 {
    let runs = blocks.div_ceil(run_blocks_max.max(1)) as u64;
    let of_runs = runs.saturating_mul(u64::from(page_bytes));
    (blocks as u64).saturating_mul(CHANGE_BYTES).saturating_add(of_runs)
}

/// Whether the log has no room for this many bytes of changes.
pub(in crate::engine) fn is_log_short_of_changes(
    change_bytes: u64,
    prospect_bytes: u64,
    used_bytes: u64,
) -> bool {
    change_bytes > prospect_bytes.saturating_sub(used_bytes)
}

/// The division of the memory of a store, for a record that takes `needed_bytes` of queues.
pub(in crate::engine) struct Budget {
    /// The total.
    pub(in crate::engine) bytes: usize,
    /// Memory that no sweep releases.
    pub(in crate::engine) lasting_bytes: usize,
    /// The minimum for queues.
    pub(in crate::engine) queue_bytes_min: usize,
    /// The most that admission gives out for queues, once everything is swept.
    pub(in crate::engine) queue_bytes_max: usize,
    /// The memory of the record.
    pub(in crate::engine) needed_bytes: usize,
}

/// The memory that a store would need for a record that it cannot accept however long its caller
/// waits; `None` if it can.
pub(in crate::engine) fn budget_lacking(budget: &Budget) -> Option<usize> {
    let least = budget.lasting_bytes.saturating_add(budget.queue_bytes_min);
    if least > budget.bytes {
        return Some(least);
    }
    let lacking = budget.needed_bytes.saturating_sub(budget.queue_bytes_max);
    (lacking > 0).then(|| budget.bytes.saturating_add(lacking))
}

/// The resource that is short for `wanted` more bytes of queues, ignoring room on the data devices.
pub(in crate::engine) fn shortage(
    wanted: u64,
    queues: Gauge,
    log: Gauge,
    log_percent_refused: f64,
) -> Option<Shortage> {
    if queues.used.saturating_add(wanted) > queues.limit {
        return Some(Shortage::Memory);
    }
    is_log_refused(log, log_percent_refused).then_some(Shortage::Log)
}

/// Whether updates are refused for the fill of the log, whatever their length.
pub(in crate::engine) fn is_log_refused(log: Gauge, log_percent_refused: f64) -> bool {
    log.exact_percent() >= log_percent_refused
}

/// The fill of the log in per cent that is allowed so far, from `percent` at the start of the
/// releasing process to 100 at its end.
fn opened(percent: f64, done: f64) -> f64 {
    percent + (100.0 - percent) * done.clamp(0.0, 1.0)
}

/// The fill of the memory for spill segments in per cent up to which another spill may begin, if it
/// was `at_start` per cent full when the cycle began: what was free then lasts until the end of the
/// cycle. What the cycle releases may be used at once.
pub(in crate::engine) fn spilled_percent_opened(at_start: f64, progress: f64) -> f64 {
    opened(at_start.clamp(f64::from(START_PERCENT), 100.0), progress)
}

impl Figures {
    /// Whether only a cycle of the sweep can release the log: it is held by updates that are not
    /// spilled, or will not be, as there is hardly any room for more spill segments.
    pub(in crate::engine) fn is_cycle_for_log(&self) -> bool {
        let spills = self.can_spill || self.is_spilling;
        let spills_fail = self.spilled.percent().max(self.levels.percent()) >= SPILLS_FAIL_PERCENT;
        self.is_log_held_by_queues && (!spills || spills_fail)
    }

    /// The fill of the log in per cent from which updates are refused. The process that releases
    /// the log covers all blocks, and releases hardly any of it before its end if all waiting
    /// updates are equally old.
    pub(in crate::engine) fn log_percent_refused(&self) -> f64 {
        if self.is_cycle_for_log() {
            let Some(progress) = self.progress else { return 100.0 };
            let (percent, start) = self.log_at_start;
            let percent = percent.clamp(LOG_PERCENT_AT_START, LOG_PERCENT_AT_START_MAX);
            let left = 1.0 - start;
            let done = if left > 0.0 { (progress - start) / left } else { 1.0 };
            return opened(percent, done);
        }
        let Some(round) = self.round.filter(|_| self.is_log_held_by_queues) else { return 100.0 };
        let percent = round.log_percent_at_start + LOG_PERCENT_OF_ROUND;
        opened(percent.clamp(f64::from(FULL_PERCENT), LOG_PERCENT_OF_ROUND_MAX), round.done)
    }
}

#[cfg(test)]
mod tests;
