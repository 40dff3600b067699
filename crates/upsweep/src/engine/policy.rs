//! Policy: from figures of what is used to what is admitted, swept and spilled.
//!
//! Updates wait for three resources: memory for queues, space in the log, space on the data
//! devices. Each is a [`Gauge`], and its limit is the very figure at which admission refuses an
//! update. The pace of the sweep and the time of spills follow from the same gauges. So nobody
//! rests while somebody waits: whoever was refused is one of the figures, and what can make the
//! room that it waits for then runs at full speed.
//!
//! Everything here is a pure function.

use crate::broken::{self, Fault};

/// Fill in per cent at which a cycle of the sweep starts, and spills; below it, updates batch.
pub(super) const START_PERCENT: u32 = 50;
/// Fill in per cent from which the sweep never rests, nor do spills.
pub(super) const FULL_PERCENT: u32 = 85;
/// Where spills relieve memory or log, neither fills so far while they keep up; in per cent.
pub(super) const SPILLS_FAIL_PERCENT: u32 = 95;

/// Fill of the log in per cent up to which a cycle that alone can release it admits updates at its
/// start. The rest opens as the cycle proceeds, so that callers are slowed down run by run and not
/// stopped for a whole cycle.
const LOG_PERCENT_AT_START: f64 = 60.0;
/// The same where the log is fuller when the cycle begins to be the only one that can release it.
const LOG_PERCENT_AT_START_MAX: f64 = 90.0;
/// How much the log may fill while a round of spills releases it, in per cent, before updates are
/// admitted only as the round proceeds.
const LOG_PERCENT_OF_ROUND: f64 = 10.0;
/// Fill of the log in per cent up to which any round admits updates at its start.
const LOG_PERCENT_OF_ROUND_MAX: f64 = 95.0;

/// Most blocks that are swept out of turn to release the log.
pub(super) const HOLDERS_MAX: u64 = 32;
/// They must hold at least one part in so many of what holds the log.
const HOLDERS_PART: u64 = 4;

/// Spill segments that may lie one upon the other: a query looks at the filter of each.
pub(super) const LEVELS_MAX: usize = 64;
/// Fill of the levels in per cent at which the sweep keeps up with updates.
const LEVELS_STEADY_PERCENT: f64 = 50.0;
/// What is relieved late is relieved from this part of the fill on at which it is to settle.
const LATE_START: f64 = 0.72;
/// Part of a resource that is in use in steady state, where the pace of the sweep settles.
const STEADY_FILL: f64 = 0.675;
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
/// Part of what the directory may have up to which it is filled by making blocks smaller again.
const SHRINK_PART: f64 = 0.75;
/// How full blocks are on average that come from splits.
const BLOCK_FILL: f64 = 0.7;
/// Memory of the directory for a block, in bytes, about.
const ENTRY_BYTES: u64 = 170;
/// Bytes of a spill segment for a byte of queue memory, about: page padding and headers included.
const SPILL_SEGMENT_OVERHEAD: f64 = 1.1;

/// When updates are spilled to the data devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spilling {
    /// Never.
    Never,
    /// For the log when that fills before memory does; for memory where it pays.
    WhenItPays,
    /// Whenever memory or log are filled to the part that [`Config`](super::Config) names.
    Always,
}

/// How much of a resource is in use, and from which use on admission refuses more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    /// In use, in bytes, or in what the resource is counted in.
    pub used: u64,
    /// Refused from here on.
    pub limit: u64,
}

impl Gauge {
    /// How full it is, from 0 to 100.
    #[must_use]
    pub fn percent(self) -> u32 {
        if self.used >= self.limit {
            return 100;
        }
        // Below 100 as used is below the limit.
        (u128::from(self.used) * 100 / u128::from(self.limit)) as u32
    }

    /// How full it is in per cent, not rounded; above 100 where more is used than the limit.
    pub(super) fn exact_percent(self) -> f64 {
        self.used as f64 * 100.0 / self.limit.max(1) as f64
    }
}

/// What an update was refused for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// Memory for waiting updates.
    Memory,
    /// Space in the log.
    Log,
    /// Space on the data devices.
    Device,
}

/// What all decisions follow from.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// Memory of waiting updates.
    pub(super) queues: Gauge,
    /// Space in the log.
    pub(super) log: Gauge,
    /// Memory of spilled updates.
    pub(super) spilled: Gauge,
    /// The same, of what is worth having: [`Costs::spill_segments_worth_bytes`].
    pub(super) spilled_worth: Gauge,
    /// Levels in which they lie.
    pub(super) levels: Gauge,
    /// Spilling is what relieves memory.
    pub(super) spills_for_memory: bool,
    /// The fill of memory in per cent from which on updates are spilled for it, and that of the log
    /// which spills are to keep it at. If it is 0, all is spilled at once.
    pub(super) spill_percent: u32,
    /// A spill would find updates, and room for them.
    pub(super) can_spill: bool,
    /// A spill is on its way.
    pub(super) is_spilling: bool,
    /// Half of the log that recovery needs, or more, is there for updates in memory.
    pub(super) is_log_held_by_queues: bool,
    /// The data devices may be asked for the room that somebody waits for.
    pub(super) can_grow: bool,
    /// How far the present cycle of the sweep is, from 0 to 1.
    pub(super) progress: Option<f64>,
    /// The fill of the log in per cent, and how far the cycle was, when it began to be the only one
    /// that can release the log.
    pub(super) log_at_start: (f64, f64),
    /// The present round of spills.
    pub(super) round: Option<Round>,
    /// What somebody waits for.
    pub(super) shortage: Option<Shortage>,
}

/// A round of spills over all blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Round {
    /// How far it is, from 0 to 1.
    pub(super) done: f64,
    /// The fill of the log in per cent when it began.
    pub(super) log_percent_at_start: f64,
}

/// The fill of the log in per cent that is allowed so far, from `percent` at the start of what
/// releases it to 100 at its end.
fn opened(percent: f64, done: f64) -> f64 {
    percent + (100.0 - percent) * done.clamp(0.0, 1.0)
}

impl Figures {
    /// Whether only a cycle of the sweep can release the log: updates hold it that are not spilled,
    /// or will not be, as there is hardly any room for more spill segments.
    pub(super) fn is_cycle_for_log(&self) -> bool {
        let spills = self.can_spill || self.is_spilling;
        let spills_fail = self.spilled.percent().max(self.levels.percent()) >= SPILLS_FAIL_PERCENT;
        self.is_log_held_by_queues && (!spills || spills_fail)
    }

    /// The fill of the log in per cent from which on updates are refused. What releases the log
    /// goes over all blocks, and hardly releases any before its end where all that waits is equally
    /// old.
    pub(super) fn log_percent_refused(&self) -> f64 {
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

    /// How many updates the sweep is to apply for each that comes, by the fill of what it alone can
    /// relieve: none where there is room, and without rest where there is hardly any or somebody
    /// waits for it.
    pub(super) fn pace(&self) -> f64 {
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

    /// Whether somebody waits for what the sweep makes room for, and spills and checkpoints do not.
    pub(super) fn is_sweep_waited_for(&self) -> bool {
        match self.shortage {
            None => false,
            Some(Shortage::Memory) => !(self.spills_for_memory && self.can_spill),
            Some(Shortage::Log) => self.is_cycle_waited_for_log(),
            Some(Shortage::Device) => !self.can_grow,
        }
    }

    /// Whether somebody waits for the log, and a cycle alone can release it.
    pub(super) fn is_cycle_waited_for_log(&self) -> bool {
        self.shortage == Some(Shortage::Log) && self.is_cycle_for_log()
    }

    /// How many updates are to be spilled for each that comes: for memory, and for the log that is
    /// released so. None where nothing can be spilled or nothing would be relieved.
    pub(super) fn spill_pace(&self) -> f64 {
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
    pub(super) fn is_release_due(&self, from_percent: u32) -> bool {
        self.log.percent() >= from_percent || self.shortage == Some(Shortage::Log)
    }
}

/// How many updates are applied, or spilled, for each that comes while a resource is filled so far,
/// in per cent: one half-way from `start` to [`FULL_PERCENT`], so that it settles there.
fn pace_at(percent: f64, start: f64) -> f64 {
    let full = f64::from(FULL_PERCENT);
    if percent >= full {
        return f64::INFINITY;
    }
    (percent - start).max(0.0) / (full - percent)
}

/// The same for what settles at `steady` and is relieved late: the log, which is as full as the
/// time is long since spills came by at the place that they come to next, and levels of spill
/// segments, of which there are as many as there were rounds of spills since the sweep came by. To
/// go round faster shows when the next time round is over. So the pace changes little with the
/// fill, or one would be slow and the next one fast. One that starts when all blocks have waited
/// equally long is over before [`FULL_PERCENT`], where `steady` is 50.
fn late_pace_at(percent: f64, steady: f64) -> f64 {
    if percent >= f64::from(FULL_PERCENT) {
        return f64::INFINITY;
    }
    let of_steady = percent / steady;
    if of_steady < LATE_START { 0.0 } else { of_steady * of_steady }
}

/// Whether blocks are swept out of turn because `held` of the sequences that hold the log, of
/// `in_all`, are there for them alone.
pub(super) fn are_worth_a_visit(held: u64, in_all: u64) -> bool {
    held > 0 && held.saturating_mul(HOLDERS_PART) >= in_all
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
        let memory = 2.0 * self.waiting_bytes as f64 / self.entry_bytes;
        let log = self.log_bytes as f64 / self.log_bytes_per_entry;
        STEADY_FILL * memory.min(log) / self.blocks.max(1) as f64
    }

    /// The same with spilling: filters may have half of the memory, and have as much as is worth
    /// it; each round over all blocks makes a level.
    fn entries_per_visit_spilled(&self) -> f64 {
        let filters = self.spill_segments_worth_bytes().min(self.waiting_bytes as f64 / 2.0);
        let of_filters = 2.0 * STEADY_FILL * filters / self.spilled_entry_bytes;
        let levels = LEVELS_MAX as f64 * LEVELS_STEADY_PERCENT / 100.0;
        of_filters.min(levels * self.entries_per_round()) / self.blocks.max(1) as f64
    }

    /// Entries that a round of spills brings: those of queues, which have what filters do not take,
    /// or those of the log.
    fn entries_per_round(&self) -> f64 {
        let queues = self.waiting_bytes as f64 * (1.0 - STEADY_FILL / 2.0) / self.entry_bytes;
        let log = self.log_bytes as f64 / self.log_bytes_per_entry;
        STEADY_FILL * queues.min(log)
    }

    /// Memory of spill segments that is worth having, in bytes: so many updates wait in them that
    /// blocks write little beside the rest. More would write hardly less, and queries pay for them
    /// with reads.
    pub(super) fn spill_segments_worth_bytes(&self) -> f64 {
        let others = self.log_bytes_per_entry + self.spill_segment_bytes_per_entry();
        let entries_per_cycle = self.image_bytes as f64 / (BLOCKS_PART * others);
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

/// How large blocks are made: as small as the store says, which queries like, unless the directory,
/// which has an entry for each, would leave updates too little memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Least target size of a block, in bytes.
    pub least: u32,
    /// Largest target size.
    pub most: u32,
    /// Memory that the directory may have before blocks are made larger, in bytes.
    pub directory_bytes: u64,
}

impl BlockSizes {
    /// The target size of blocks where it was `now`: the least, times a power of two. To make
    /// blocks smaller again takes more room than to leave them as they are, so that the answer
    /// does not change to and fro.
    pub(super) fn target(&self, directory: &DirectorySize, now: u32) -> u32 {
        let expected = |target| directory.expected_bytes(target);
        let mut target = now;
        if directory.memory_bytes > self.directory_bytes {
            target = self.grown(now, expected);
        }
        let room = SHRINK_PART * self.directory_bytes as f64;
        while target > self.least && expected(target / 2) <= room {
            target /= 2;
        }
        target
    }

    /// The target size of blocks with which so many bytes of full ones take what the directory may
    /// have at most, if a target does.
    #[must_use]
    pub fn target_for(&self, image_bytes: u64) -> u32 {
        self.grown(self.least, |target| (image_bytes / u64::from(target) * ENTRY_BYTES) as f64)
    }

    /// The first target from `now` up with which the directory, whose bytes are `expected` of it,
    /// has what it may have; the largest if none.
    fn grown(&self, now: u32, expected: impl Fn(u32) -> f64) -> u32 {
        let mut target = now;
        while expected(target) > self.directory_bytes as f64 && target <= self.most / 2 {
            target *= 2;
        }
        target
    }
}

/// What the directory takes, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirectorySize {
    /// Number of blocks.
    pub(super) blocks: u64,
    /// Bytes of their images.
    pub(super) image_bytes: u64,
    /// Memory of the directory.
    pub(super) memory_bytes: u64,
}

impl DirectorySize {
    /// Memory that it will take when all blocks have come to this target size.
    fn expected_bytes(&self, target: u32) -> f64 {
        let blocks = self.image_bytes as f64 / (BLOCK_FILL * f64::from(target));
        blocks * self.memory_bytes as f64 / self.blocks.max(1) as f64
    }
}

#[cfg(test)]
mod tests;
