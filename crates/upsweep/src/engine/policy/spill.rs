//! Whether spilling pays, and what is worth a spill segment.

use super::START_PERCENT;
use super::STEADY_FILL;
use super::pace::LEVELS_STEADY_PERCENT;
use crate::engine::config::Spilling;

/// Spill segments that may lie one upon the other: a query looks at the filter of each.
pub(in crate::engine) const LEVELS_MAX: usize = 64;
/// Spills on their way at one time: one is written while others wait for the flush and the log.
pub(in crate::engine) const SPILLS_IN_FLIGHT_MAX: usize = 8;
/// Fill in per cent at which updates are spilled for memory, and at which spills keep the log;
/// below it, updates batch in memory.
pub(super) const SPILL_FILL_PERCENT: u32 = START_PERCENT;
/// A query that needs a spill segment reads this much, in bytes.
pub(super) const SPILL_SEGMENT_BYTES: u32 = 16 << 10;
/// Spill segments of one spill: what the core gathers of them, one in a step, and writes with one
/// request.
pub(super) const SPILL_SEGMENTS_PER_SPILL: usize = 8;
/// One part in so many of the memory for what waits is for filters of spill segments, at most.
const FILTERS_PART: usize = 2;
/// A spill segment that is filled to less than one part in so many is not worth its page and its
/// entry, unless what is in it would hold the log.
const FILL_PART: usize = 8;
/// Updates after which there may be another round when one has found nothing.
const LOOK_AGAIN_UPDATES: u64 = 256;
/// Spilling begins where an update then writes so many times fewer bytes, the log included.
const SPILL_GAIN_ON: f64 = 1.6;
/// Spilling ends where it does not even write so many times fewer.
const SPILL_GAIN_OFF: f64 = 1.3;
/// Fewer blocks than this are swept in no time.
const SPILL_BLOCKS_MIN: u64 = 64;
/// More updates in spill segments are for fewer bytes of blocks. It is enough where these are such
/// a part of the other bytes that an update writes, those of the log and of spill segments.
const BLOCKS_PART: f64 = 0.5;
/// A visit of a block applies what so many rounds of spills bring, at least.
const ROUNDS_MIN: f64 = 2.0;
/// Bytes of a spill segment for a byte of queue memory, about: page padding and headers included.
const SPILL_SEGMENT_OVERHEAD: f64 = 1.1;
/// Updates after which their costs are known well enough to decide by them.
const COSTS_UPDATES_MIN: u64 = 4096;
/// Memory of an entry before that, and its bytes of log.
const ENTRY_BYTES_BEFORE: f64 = 16.0;
const LOG_BYTES_BEFORE: f64 = 64.0;

/// How many there are of what takes `each` bytes; no entry takes less than a thousandth of one.
fn per(amount: f64, each: f64) -> f64 {
    amount / each.max(1e-3)
}

/// What was counted of the costs of updates.
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

/// Whether updates are spilled for memory: so few would wait in it for each visit of a block that
/// the sweep would move many times their bytes. `spills` if they are now.
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

/// Memory that filters of spill segments may take of that for what waits, in bytes.
pub(in crate::engine) fn filter_bytes_max(waiting_bytes: usize) -> usize {
    waiting_bytes / FILTERS_PART
}

/// Whether spill segments take no room from what the sweep will need: that of one spill that is
/// gathered and one that is written is free beyond the reserve.
pub(in crate::engine) fn has_room_to_spill(
    free: u64,
    spill_bytes_max: usize,
    reserved: u64,
) -> bool {
    let wanted = (spill_bytes_max as u64).saturating_mul(2).saturating_add(reserved);
    free >= wanted
}

/// Whether half of the log that recovery needs, or more, is there for updates that wait in memory:
/// `held` sequences of `needed`; or whether they are all that holds it.
pub(in crate::engine) fn is_log_held_by_queues(
    held: u64,
    needed: u64,
    is_all: impl FnOnce() -> bool,
) -> bool {
    held > 0 && (held >= needed / 2 || is_all())
}

/// Whether a search for what can be spilled would find as little as one that found nothing before
/// so many runs and updates: no run has ended since, and hardly an update has come.
pub(in crate::engine) fn is_search_in_vain(runs_since: u64, updates_since: u64) -> bool {
    runs_since == 0 && updates_since < LOOK_AGAIN_UPDATES
}

/// Whether a spill segment with so many bytes, of `wanted`, is to be written: enough is in it, or
/// what `is_old`, so that it would hold the log.
pub(in crate::engine) fn is_worth_a_spill_segment(bytes: usize, wanted: u32, is_old: bool) -> bool {
    bytes.saturating_mul(FILL_PART) >= wanted as usize || is_old
}

/// Whether a spill segment with so many bytes, of `wanted`, may end where older ones do: from half
/// its length on.
pub(in crate::engine) fn may_end_early(bytes: usize, wanted: u32) -> bool {
    bytes >= wanted as usize / 2
}

/// Whether a spill segment with so many bytes, of `wanted`, is filled: one that `has_end`, that of
/// older ones, may be a quarter longer.
pub(in crate::engine) fn is_filled(bytes: usize, wanted: u32, has_end: bool) -> bool {
    let wanted = wanted as usize;
    bytes >= if has_end { wanted / 4 * 5 } else { wanted }
}

/// What updates cost, and how much may wait: from this follows what a visit of a block applies and
/// what an update writes, with and without spilling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Blocks with images.
    pub blocks: u64,
    /// Bytes of them.
    pub image_bytes: u64,
    /// Memory for queues and for the filters of spilled updates together.
    pub waiting_bytes: u64,
    /// Memory of an entry of a queue, in bytes.
    pub entry_bytes: f64,
    /// Memory of an entry in a spill segment, in bytes.
    pub spilled_entry_bytes: f64,
    /// Bytes of the log that updates may fill.
    pub log_bytes: u64,
    /// Bytes of log for an entry of a queue: of all updates that were folded into it.
    pub log_bytes_per_entry: f64,
}

impl Costs {
    /// Entries that a visit of a block applies in steady state without spilling. The sweep goes
    /// round, so an entry waits for half a cycle, and the log holds a whole one.
    fn entries_per_visit_direct(&self) -> f64 {
        let memory = per(2.0 * self.waiting_bytes as f64, self.entry_bytes);
        let log = per(self.log_bytes as f64, self.log_bytes_per_entry);
        STEADY_FILL * memory.min(log) / self.blocks.max(1) as f64
    }

    /// The same with spilling: filters may have half of the memory, and have as much as is worth
    /// it; each round over all blocks makes a level.
    fn entries_per_visit_spilled(&self) -> f64 {
        let filters = self.spill_segments_worth_bytes().min(self.waiting_bytes as f64 / 2.0);
        let of_filters = per(2.0 * STEADY_FILL * filters, self.spilled_entry_bytes);
        let levels = LEVELS_MAX as f64 * LEVELS_STEADY_PERCENT / 100.0;
        of_filters.min(levels * self.entries_per_round()) / self.blocks.max(1) as f64
    }

    /// Entries that a round of spills brings: those of queues, which have what filters do not take,
    /// or those of the log.
    fn entries_per_round(&self) -> f64 {
        let of_queues = self.waiting_bytes as f64 * (1.0 - STEADY_FILL / 2.0);
        let queues = per(of_queues, self.entry_bytes);
        let log = per(self.log_bytes as f64, self.log_bytes_per_entry);
        STEADY_FILL * queues.min(log)
    }

    /// Memory of spill segments that is worth having, in bytes: so many updates wait in them that
    /// blocks write little beside the rest. More would write hardly less, and queries pay for them
    /// with reads.
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

    /// Bytes that the data devices read, and as many that they write, for an entry in steady state;
    /// without the log.
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

    /// Whether updates are better spilled for memory; `spills` if they are now. To begin takes a
    /// larger gain than to go on, so that the answer does not change to and fro.
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
