//! Policy: from figures to decisions.
//!
//! Every decision in which the engine has a choice is made here, by pure functions: callers collect
//! the figures and carry the decisions out. Every rule is defined for all figures.
//!
//! | file | what it decides |
//! |---|---|
//! | `creation` | what is fixed at creation: blocks, segments and pages of the log |
//! | `configure` | the configuration of one open, from memory and the user's options |
//! | `limits` | how the memory of a configuration is divided, and its other limits |
//! | `admission` | which updates are refused |
//! | `pace` | the pace of the sweep, of spills and of checkpoints |
//! | `spill` | whether spilling pays, and what is worth a spill segment |
//! | `run` | where a run of the sweep ends |
//! | `block_size` | the target size of blocks |
//! | `growth` | the reserve on the devices; growth of data devices and the log; space to return |
//!
//! Updates wait for three resources: memory for queues, space in the log, space on the data
//! devices. Each is a [`Gauge`], and its limit is exactly the figure at which admission refuses an
//! update. The pace of the sweep and the time of spills follow from the same gauges. So nothing
//! rests while a caller waits: refused callers are part of the figures, and whatever can make the
//! room that they wait for then runs at full speed.

mod admission;
mod block_size;
mod configure;
mod creation;
mod growth;
mod limits;
mod pace;
mod run;
mod spill;
mod suited;

pub(super) use admission::{
    Budget, budget_lacking, change_bytes, is_log_refused, is_log_short_of_changes, log_gauge,
    queue_bytes_of, queues_gauge, record_bytes_max, shortage, spilled_percent_opened,
};
pub use block_size::BlockSizes;
pub(super) use block_size::DirectorySize;
pub use configure::{
    CACHE_PART, MEMORY_BYTES_DEFAULT, Options, SCAN_TRACKS, Scale, Shape, check_memory, configure,
    memory_bytes_min, scan_units_bytes, workers,
};
pub use creation::{
    DATA_BYTES_MIN, LOG_BYTES_DEFAULT, LOG_BYTES_MAX, LOG_BYTES_MIN, LOG_DEVICES_MAX,
    are_pages_numbered, block_bytes, log_bytes_first, log_page_bytes, log_page_to_try,
    log_segment_bytes,
};
pub(super) use growth::{
    ANY_STEP, Demand, HOLES_REFUSED_MAX, PUNCH_BYTES_MAX, REFUSAL_US, ahead_bytes,
    checkpoint_bytes, doubled_step, excess_bytes, extension_bytes, extent_margin_bytes,
    growth_wanted, half_step, kept_bytes, log_bytes_wanted, reserved_bytes, shadow_bytes,
    step_bytes,
};
pub(super) use pace::{
    CHECKPOINT_WRITES_MAX, HOLDERS_MAX, RETRY_US, are_worth_a_visit, checkpoint_pages_in_flight,
    credit, cycle_pace, earned_by_queries, is_checkpoint_worth, may_add_deferred_counts,
};
pub(super) use run::RunLimits;
pub use spill::Costs;
pub(super) use spill::{
    LEVELS_MAX, Measured, SPILLS_IN_FLIGHT_MAX, filter_bytes_max, has_room_to_spill, is_filled,
    is_log_held_by_queues, is_search_in_vain, is_worth_a_spill_segment, may_end_early,
    rounds_per_cycle, spills_for_memory,
};
pub use suited::{Suited, boundaries, stripe_bytes};

/// Fill in per cent at which a cycle of the sweep starts, and spills start; below it, updates
/// batch.
pub(super) const START_PERCENT: u32 = 50;
/// Fill in per cent from which neither the sweep nor spills rest.
pub(super) const FULL_PERCENT: u32 = 85;
/// Fill of the log in per cent from which a superblock alone is worth its write.
pub(super) const SUPERBLOCK_PERCENT: u32 = 25;
/// Where spills relieve memory or log, neither fills up to this while they keep up; in per cent.
const SPILLS_FAIL_PERCENT: u32 = 95;
/// Part of a resource that is in use in steady state, where the pace of the sweep settles: halfway
/// from [`START_PERCENT`] to [`FULL_PERCENT`].
const STEADY_FILL: f64 = 0.675;

/// The use of a resource, and the use at which admission refuses more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    /// In use, in bytes or in the unit of the resource.
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

    /// How full it is in per cent, not rounded; above 100 if the use exceeds the limit.
    pub(in crate::engine) fn exact_percent(self) -> f64 {
        self.used as f64 * 100.0 / self.limit.max(1) as f64
    }
}

/// The reason why an update was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// Memory for waiting updates.
    Memory,
    /// Space in the log.
    Log,
    /// Space on the data devices.
    Device,
}

/// The input for the decisions of a running store.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// Memory of waiting updates.
    pub(super) queues: Gauge,
    /// Space in the log.
    pub(super) log: Gauge,
    /// Memory of spilled updates.
    pub(super) spilled: Gauge,
    /// The same, with the worthwhile amount as limit: [`Costs::spill_segments_worth_bytes`].
    pub(super) spilled_worth: Gauge,
    /// The levels of spill segments.
    pub(super) levels: Gauge,
    /// Memory is relieved by spilling.
    pub(super) spills_for_memory: bool,
    /// The fill of memory in per cent from which updates are spilled for it, and the fill of the
    /// log that spills are to maintain. If it is 0, everything is spilled at once.
    pub(super) spill_percent: u32,
    /// A spill would find updates, and room for them.
    pub(super) can_spill: bool,
    /// A spill is in progress.
    pub(super) is_spilling: bool,
    /// At least half of the log that recovery needs is there for updates in memory.
    pub(super) is_log_held_by_queues: bool,
    /// The data devices can be asked for the room that a caller waits for.
    pub(super) can_grow: bool,
    /// Progress of the present cycle of the sweep, from 0 to 1.
    pub(super) progress: Option<f64>,
    /// The fill of the log in per cent, and the progress of the cycle, when the cycle became the
    /// only means to release the log.
    pub(super) log_at_start: (f64, f64),
    /// The present round of spills.
    pub(super) round: Option<Round>,
    /// The resource that a caller waits for.
    pub(super) shortage: Option<Shortage>,
}

/// A round of spills over all blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Round {
    /// Its progress, from 0 to 1.
    pub(super) done: f64,
    /// The fill of the log in per cent when it began.
    pub(super) log_percent_at_start: f64,
}

#[cfg(test)]
mod tests;
