//! Decides whether spilling pays, and what is worth a spill segment.

use super::pace::{LEVELS_STEADY_PERCENT, late_pace_at};
use super::{Gauge, START_PERCENT, STEADY_FILL};
use crate::engine::config::Spilling;

/// Maximum number of levels of spill segments: a query checks the filter of each.
pub(in crate::engine) const LEVELS_MAX: usize = 64;
/// Rounds of spills in the time of a cycle, for each level that is left. Where updates come faster
/// than the sweep applies them, as many levels are made as removed with three fourths of
/// [`LEVELS_MAX`].
const ROUNDS_PER_LEVEL_LEFT: f64 = 3.0;
/// Concurrent spills: one is written while others wait for the flush and the log.
pub(in crate::engine) const SPILLS_IN_FLIGHT_MAX: usize = 8;
/// Fill in per cent at which updates are spilled for memory, and which spills maintain in the log;
/// below it, updates batch in memory.
pub(super) const SPILL_FILL_PERCENT: u32 = START_PERCENT;
/// A query that needs a spill segment reads this many bytes: of a solid-state device, and of a
/// rotating drive, where a run then needs a fourth of the seeks.
pub(super) const SPILL_SEGMENT_BYTES: u32 = 16 << 10;
pub(super) const SPILL_SEGMENT_BYTES_ROTATING: u32 = 64 << 10;
/// Spill segments of one spill, if they have [`SPILL_SEGMENT_BYTES`]: the core gathers one in each
/// step, and writes all with one request.
pub(super) const SPILL_SEGMENTS_PER_SPILL: usize = 8;
/// Divisor of the memory for waiting updates that gives the limit of spill segment filters.
const FILTERS_PART: usize = 2;
/// A spill segment that is filled to less than this fraction is not worth its page and its entry,
/// unless its content would hold the log.
const FILL_PART: usize = 8;
/// Updates after which another round may start if one has found nothing.
const LOOK_AGAIN_UPDATES: u64 = 256;
/// Spilling begins when an update then writes this many times fewer bytes, log included.
const SPILL_GAIN_ON: f64 = 1.6;
/// Spilling ends when an update does not even write this many times fewer bytes.
const SPILL_GAIN_OFF: f64 = 1.3;
/// Sweeping fewer blocks than this takes hardly any time.
const SPILL_BLOCKS_MIN: u64 = 64;
/// More updates in spill segments reduce the block bytes written. They suffice once these bytes are
/// this part of the others that an update writes, those of the log and of spill segments.
const BLOCKS_PART: f64 = 0.5;
/// A visit of a block applies the updates of at least this many rounds of spills.
const ROUNDS_MIN: f64 = 2.0;
/// Approximate bytes of a spill segment per byte of queue memory: page padding and headers
/// included.
const SPILL_SEGMENT_OVERHEAD: f64 = 1.1;
/// Updates after which their costs are known well enough to decide by them.
const COSTS_UPDATES_MIN: u64 = 4096;
/// Memory of an entry before that, and its log bytes.
const ENTRY_BYTES_BEFORE: f64 = 16.0;
const LOG_BYTES_BEFORE: f64 = 64.0;

/// How many items of `each` bytes fit; no entry takes less than a thousandth of a byte.
fn per(amount: f64, each: f64) -> f64 {
    amount / each.max(1e-3)
}

/// Counters of the costs of updates.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Measured {
    /// Updates that were accepted.
    pub(in crate::engine) updates: u64,
    /// Queue entries that they became.
    pub(in crate::engine) entries: u64,
    /// Bytes of the log that they took.
    pub(in crate::engine) log_bytes: u64,
    /// Entries that wait in queues.
    pub(in crate::engine) queue_entries: u64,
    /// Memory of those, in bytes.
    pub(in crate::engine) queue_bytes: u64,
}

impl Measured {
    /// Memory of an entry of a queue, in bytes.
    pub(in crate::engine) fn entry_bytes(&self) -> f64 {
        if self.queue_entries < COSTS_UPDATES_MIN {
            return ENTRY_BYTES_BEFORE;
        }
        per(self.queue_bytes as f64, self.queue_entries as f64)
    }

    /// Bytes of log for an entry.
    pub(in crate::engine) fn log_bytes_per_entry(&self) -> f64 {
        if self.updates < COSTS_UPDATES_MIN {
            return LOG_BYTES_BEFORE;
        }
        per(self.log_bytes as f64, self.entries as f64)
    }
}

/// Whether updates are spilled for memory: memory would hold so few per visit of a block that the
/// sweep would move many times their bytes. `spills` if they are now.
pub(in crate::engine) fn spills_for_memory(
    spilling: Spilling,
    updates: u64,
    costs: &Costs,
    spills: bool,
) -> bool {
    match spilling {
        Spilling::Never => false,
        Spilling::Always => true,
        Spilling::WhenItPays if updates < COSTS_UPDATES_MIN => spills,
        Spilling::WhenItPays => costs.spilling_pays(spills),
    }
}

/// Part of the memory for waiting updates that filters of spill segments may take, in bytes.
pub(in crate::engine) fn filter_bytes_max(waiting_bytes: usize) -> usize {
    waiting_bytes / FILTERS_PART
}

/// How many rounds of spills may pass all blocks in the time of a cycle of the sweep, at this fill
/// of the levels: any number while there are so few that the sweep does not hurry for them. If
/// rounds took all levels in some place, its updates would fill the memory until the sweep comes,
/// and further rounds would find so little elsewhere that spill segments became small and many.
pub(in crate::engine) fn rounds_per_cycle(levels: Gauge) -> f64 {
    if late_pace_at(levels.exact_percent(), LEVELS_STEADY_PERCENT) == 0.0 {
        return f64::INFINITY;
    }
    let left = LEVELS_MAX as f64 * (100.0 - levels.exact_percent()).max(0.0) / 100.0;
    ROUNDS_PER_LEVEL_LEFT * left
}

/// Whether spill segments leave the room that the sweep will need: space for one spill being
/// gathered and one being written is free beyond the reserve.
pub(in crate::engine) fn has_room_to_spill(
    free: u64,
    spill_bytes_max: usize,
    reserved: u64,
) -> bool {
    let wanted = (spill_bytes_max as u64).saturating_mul(2).saturating_add(reserved);
    free >= wanted
}

/// Whether at least half of the log that recovery needs is there for updates that wait in memory:
/// `held` sequences of `needed`; or whether only these hold it.
pub(in crate::engine) fn is_log_held_by_queues(
    held: u64,
    needed: u64,
    is_all: impl FnOnce() -> bool,
) -> bool {
    held > 0 && (held >= needed / 2 || is_all())
}

/// Whether another search for updates to spill is as useless as the one that found nothing this
/// many runs and updates ago: no run has ended since, and few updates have arrived.
pub(in crate::engine) fn is_search_in_vain(runs_since: u64, updates_since: u64) -> bool {
    runs_since == 0 && updates_since < LOOK_AGAIN_UPDATES
}

/// Whether a spill segment with this many of `wanted` bytes is worth writing: it is full enough, or
/// `is_old`, so that its updates would hold the log.
pub(in crate::engine) fn is_worth_a_spill_segment(bytes: usize, wanted: u32, is_old: bool) -> bool {
    bytes.saturating_mul(FILL_PART) >= wanted as usize || is_old
}

/// Whether a spill segment with this many of `wanted` bytes may end where older ones do: from half
/// the length on.
pub(in crate::engine) fn may_end_early(bytes: usize, wanted: u32) -> bool {
    bytes >= wanted as usize / 2
}

/// Whether a spill segment with this many of `wanted` bytes is full: one that `has_end`, that of
/// older ones, may be a quarter longer.
pub(in crate::engine) fn is_filled(bytes: usize, wanted: u32, has_end: bool) -> bool {
    let wanted = wanted as usize;
    bytes >= if has_end { wanted / 4 * 5 } else { wanted }
}

/// The costs of updates, and how much may wait: these determine what a visit of a block applies and
/// what an update writes, with and without spilling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Blocks with images.
    pub blocks: u64,
    /// Bytes of these images.
    pub image_bytes: u64,
    /// Memory for queues and for the filters of spilled updates together.
    pub waiting_bytes: u64,
    /// Memory of an entry of a queue, in bytes.
    pub entry_bytes: f64,
    /// Memory of an entry in a spill segment, in bytes.
    pub spilled_entry_bytes: f64,
    /// Bytes of the log that updates may fill.
    pub log_bytes: u64,
    /// Log bytes per queue entry: of all updates that were folded into it.
    pub log_bytes_per_entry: f64,
}

impl Costs {
    /// Entries that a visit of a block applies in steady state without spilling. The sweep is
    /// cyclic, so an entry waits for half a cycle, and the log holds a whole one.
    fn entries_per_visit_direct(&self) -> f64 {
        let memory = per(2.0 * self.waiting_bytes as f64, self.entry_bytes);
        let log = per(self.log_bytes as f64, self.log_bytes_per_entry);
        STEADY_FILL * memory.min(log) / self.blocks.max(1) as f64
    }

    /// The same with spilling: filters may take half of the memory, and take as much as is
    /// worthwhile; each round over all blocks makes a level.
    fn entries_per_visit_spilled(&self) -> f64 {
        let filters = self.spill_segments_worth_bytes().min(self.waiting_bytes as f64 / 2.0);
        let of_filters = per(2.0 * STEADY_FILL * filters, self.spilled_entry_bytes);
        let levels = LEVELS_MAX as f64 * LEVELS_STEADY_PERCENT / 100.0;
        of_filters.min(levels * self.entries_per_round()) / self.blocks.max(1) as f64
    }

    /// Entries that a round of spills brings: those of queues, which have the memory that filters
    /// leave, or those of the log.
    fn entries_per_round(&self) -> f64 {
        let of_queues = self.waiting_bytes as f64 * (1.0 - STEADY_FILL / 2.0);
        let queues = per(of_queues, self.entry_bytes);
        let log = per(self.log_bytes as f64, self.log_bytes_per_entry);
        STEADY_FILL * queues.min(log)
    }

    /// Worthwhile memory of spill segments, in bytes: with that many waiting updates the bytes
    /// written for blocks are small compared to the rest. More would save hardly any writes, and
    /// cost queries reads.
    pub(in crate::engine) fn spill_segments_worth_bytes(&self) -> f64 {
        let others = self.log_bytes_per_entry + self.spill_segment_bytes_per_entry();
        let entries_per_cycle = per(self.image_bytes as f64, BLOCKS_PART * others);
        let entries_per_cycle = entries_per_cycle.max(ROUNDS_MIN * self.entries_per_round());
        entries_per_cycle / 2.0 * self.spilled_entry_bytes / STEADY_FILL
    }

    fn spill_segment_bytes_per_entry(&self) -> f64 {
        SPILL_SEGMENT_OVERHEAD * self.entry_bytes
    }

    fn block_bytes(&self) -> f64 {
        self.image_bytes as f64 / self.blocks.max(1) as f64
    }

    /// Bytes that the data devices read, and also write, per entry in steady state; without the
    /// log.
    #[must_use]
    pub fn moved_bytes_per_entry(&self, spills: bool) -> f64 {
        if spills {
            let blocks = self.block_bytes() / self.entries_per_visit_spilled().max(1.0);
            blocks + self.spill_segment_bytes_per_entry()
        } else {
            self.block_bytes() / self.entries_per_visit_direct().max(1.0)
        }
    }

    /// Entries that a visit of a block applies in steady state.
    #[must_use]
    pub fn entries_per_visit(&self, spills: bool) -> f64 {
        if spills { self.entries_per_visit_spilled() } else { self.entries_per_visit_direct() }
    }

    /// Whether updates are better spilled for memory; `spills` if they are now. Starting requires a
    /// larger gain than continuing, so that the answer does not oscillate.
    #[must_use]
    pub fn spilling_pays(&self, spills: bool) -> bool {
        let written = |spills| self.moved_bytes_per_entry(spills) + self.log_bytes_per_entry;
        let gain = written(false) / written(true);
        let wanted = if spills { SPILL_GAIN_OFF } else { SPILL_GAIN_ON };
        self.blocks >= SPILL_BLOCKS_MIN && gain >= wanted
    }
}

#[cfg(test)]
mod tests;
