//! What the core measures of itself, beside what is counted where it happens: times, levels and
//! damage.
//!
//! The core has no clock. What ends at the completion of a request is noted then, and timed by the
//! next pump, which knows the time and follows at once. Levels are written at most every 10 ms, so
//! that a pump, of which there is one for each call, costs no more for them.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::sweep::RunSummary;
use crate::events::event;
use crate::metrics::{Finder, GrowthOf, Metrics, Place, Resource, WaitCause};
use crate::placement::Extent;

/// Damage that is remembered for `stat`; more is only counted.
const DAMAGE_KEPT_MAX: usize = 64;
/// How old levels may be when the core is pumped, in microseconds.
const LEVELS_AGE_US_MAX: u64 = 10_000;

/// Records between two events of the progress of replay.
const REPLAY_TOLD_EVERY: u64 = 100_000;

/// What changes of the trees of the directory have cost, without what gives dropped room back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeCounters {
    /// Nodes changed: the different ones of each operation on a tree, added up.
    pub nodes_changed: u64,
    /// Those of removals of ranges alone.
    pub range_nodes_changed: u64,
}

/// Something that has a length in time.
#[derive(Clone, Copy)]
pub(super) enum Timed {
    Flush,
    Checkpoint,
    Spill,
    Growth(GrowthOf),
}

/// What measuring needs to remember.
#[derive(Default)]
pub(super) struct Measured {
    /// What has ended since the last pump, and when it began.
    ended: Vec<(Timed, u64)>,
    cycle_began_us: u64,
    levels_due_us: u64,
    /// The first damage that was met: where, and how.
    damage: Vec<(Option<Extent>, String)>,
    /// What the last update that was refused has to wait for.
    wait_cause: Option<WaitCause>,
}

impl Core {
    /// What the core and its log have measured since the store was opened. It may be read at any
    /// time, from any thread.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The first damage that was met since the store was opened.
    pub fn damage(&self) -> impl Iterator<Item = &str> {
        self.measured.damage.iter().map(|(_, reason)| reason.as_str())
    }

    /// What the update that was refused last has to wait for; [`WaitCause::Pipeline`] before any.
    #[must_use]
    pub fn wait_cause(&self) -> WaitCause {
        self.measured.wait_cause.unwrap_or(WaitCause::Pipeline)
    }

    pub(super) fn note_refusal(&mut self, cause: WaitCause) {
        self.measured.wait_cause = Some(cause);
        self.metrics.admission_refusals_total[cause].add(1);
    }

    /// Replay has come to the last accepted update; `told` is the sequence of the last event.
    pub(super) fn note_replayed(&self, told: &mut u64) {
        if self.accepted >= *told + REPLAY_TOLD_EVERY {
            *told = self.accepted;
            event!(
                info,
                sequence = self.accepted,
                last = self.published,
                "updates are being replayed"
            );
        }
    }

    pub(super) fn note_cycle_began(&mut self) {
        self.measured.cycle_began_us = self.now_us;
        event!(debug, blocks = self.physical.len(), "a cycle of the sweep begins");
    }

    pub(super) fn note_cycle_ended(&mut self) {
        let time = Duration::from_micros(self.now_us - self.measured.cycle_began_us);
        self.metrics.sweep_cycles_total.add(1);
        self.metrics.sweep_cycle_seconds.record(time);
        event!(
            info,
            cycle = self.metrics.sweep_cycles_total.get(),
            seconds = time.as_secs_f64(),
            "a cycle of the sweep is complete"
        );
    }

    pub(super) fn note_run(&mut self, run: RunSummary) {
        self.metrics.sweep_runs_total.add(1);
        self.metrics.swept_blocks_total.add(run.blocks);
        self.metrics.swept_entries_total.add(run.updates);
        for (extent, reason) in run.damaged {
            self.note_damage(Finder::Sweep, extent, &reason);
        }
    }

    /// Damage that is met again is counted again, and listed once.
    pub(super) fn note_damage(&mut self, finder: Finder, extent: Option<Extent>, reason: &str) {
        self.metrics.damage_total[finder].add(1);
        event!(
            error,
            device = extent.map(|extent| extent.device.0),
            offset = extent.map(|extent| extent.offset),
            reason,
            "damage was met"
        );
        let damage = &mut self.measured.damage;
        let is_known = damage.iter().any(|known| (known.0, &*known.1) == (extent, reason));
        if damage.len() < DAMAGE_KEPT_MAX && !is_known {
            damage.push((extent, reason.to_owned()));
        }
    }

    /// What began then has ended; the next pump will know when.
    pub(super) fn note_ended(&mut self, what: Timed, began_us: u64) {
        self.measured.ended.push((what, began_us));
    }

    /// Measures what the last events have left to be measured now that the time is known.
    pub(super) fn measure(&mut self) {
        for (what, began_us) in std::mem::take(&mut self.measured.ended) {
            let time = Duration::from_micros(self.now_us.saturating_sub(began_us));
            match what {
                Timed::Flush => self.metrics.flush_seconds.record(time),
                Timed::Checkpoint => {
                    self.metrics.checkpoint_seconds.record(time);
                    event!(
                        info,
                        seconds = time.as_secs_f64(),
                        replay_from = self.replay_from(),
                        "a checkpoint is complete"
                    );
                }
                Timed::Spill => self.metrics.spill_seconds.record(time),
                Timed::Growth(of) => {
                    self.metrics.growth_seconds[of].record(time);
                    event!(
                        info,
                        of = of.name(),
                        seconds = time.as_secs_f64(),
                        data_bytes = self.space_map.capacity_bytes(),
                        log_bytes = self.log.capacity_bytes(),
                        "growth has ended"
                    );
                }
            }
        }
        if self.now_us >= self.measured.levels_due_us {
            self.measured.levels_due_us = self.now_us + LEVELS_AGE_US_MAX;
            self.note_levels();
        }
    }

    /// Writes the levels of now. Cost: does not grow with the number of blocks.
    pub fn note_levels(&self) {
        let metrics = &self.metrics;
        let flag = |is_set: bool| f64::from(u8::from(is_set));
        let gauges = [
            (&metrics.memory_fill_ratio, f64::from(self.queue_fill_percent()) / 100.0),
            (&metrics.log_fill_ratio, f64::from(self.log_fill_percent()) / 100.0),
            (&metrics.closed, flag(self.closed.is_some())),
            (&metrics.full, flag(self.is_full())),
            (&metrics.log_used_bytes, self.log.used_bytes() as f64),
            (&metrics.log_capacity_bytes, self.log.capacity_bytes() as f64),
            (&metrics.log_capacity_limit_bytes, self.log_bytes_max() as f64),
            (&metrics.log_last_sequence, self.last() as f64),
            (&metrics.log_durable_sequence, self.durable() as f64),
            (&metrics.sweep_progress_ratio, self.sweep_progress().unwrap_or(0.0)),
            (&metrics.sweep_frontier_sequence, self.sweep_frontier() as f64),
            (&metrics.spill_segments, self.spill_segments_size().0 as f64),
            (&metrics.data_used_bytes, self.space_map.used_bytes() as f64),
            (&metrics.data_capacity_bytes, self.space_map.capacity_bytes() as f64),
            (&metrics.waiting_entries[Place::Memory], self.arena.entries() as f64),
            (&metrics.waiting_entries[Place::Device], self.spill_segments.entries() as f64),
            (&metrics.blocks, self.directory.len() as f64),
            (&metrics.memory_used_bytes[Resource::Queues], self.queue_bytes() as f64),
            (&metrics.memory_used_bytes[Resource::Directory], self.directory_size().1 as f64),
            (&metrics.memory_used_bytes[Resource::Cache], self.cache_bytes() as f64),
            (&metrics.memory_used_bytes[Resource::Filters], self.spill_segments_memory().0 as f64),
            (&metrics.memory_used_bytes[Resource::Buffers], self.config.fixed_bytes() as f64),
            (&metrics.memory_budget_bytes, self.config.memory_bytes as f64),
        ];
        gauges.into_iter().for_each(|(gauge, level)| gauge.set(level));
    }
}
