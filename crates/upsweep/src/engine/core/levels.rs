//! Measurements of the whole core: levels, and events that need data from several parts.
//!
//! Levels are written at most every 10 ms: there is a pump for each call, and most of them should
//! not pay for that.

use std::sync::Arc;

use super::Core;
use crate::engine::measure::Timed;
use crate::events::event;
use crate::log::Seq;
use crate::metrics::{Metrics, Place, Resource, WaitCause};

/// Maximum age of levels when the core is pumped, in microseconds.
const LEVELS_AGE_US_MAX: u64 = 10_000;
/// Records between two events of the progress of replay.
const REPLAY_TOLD_EVERY: u64 = 100_000;

impl Core {
    /// Measurements of the core and its log since the store was opened. They may be read at any
    /// time, from any thread.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.base.metrics
    }

    /// The first damage found since the store was opened.
    pub fn damage(&self) -> impl Iterator<Item = &str> {
        self.base.measured.damage()
    }

    /// What the last refused update has to wait for; [`WaitCause::Pipeline`] if none was refused.
    #[must_use]
    pub fn wait_cause(&self) -> WaitCause {
        self.base.measured.wait_cause()
    }

    /// Replay has reached the last accepted update; `told` is the sequence of the last event.
    pub(in crate::engine) fn note_replayed(&self, told: &mut Seq) {
        if self.accepted() >= told.plus(REPLAY_TOLD_EVERY) {
            *told = self.accepted();
            event!(
                info,
                sequence = self.accepted().get(),
                last = self.published().get(),
                "updates are being replayed"
            );
        }
    }

    /// Completes the measurements of the last events now that the time is known.
    pub(super) fn measure(&mut self) {
        let now_us = self.base.now_us;
        for (what, time) in self.base.measured.take_ended(now_us) {
            match what {
                Timed::Flush => self.metrics().flush_seconds.record(time),
                Timed::Checkpoint => {
                    self.metrics().checkpoint_seconds.record(time);
                    event!(
                        info,
                        seconds = time.as_secs_f64(),
                        replay_from = self.replay_from().get(),
                        "a checkpoint is complete"
                    );
                }
                Timed::Spill => self.metrics().spill_seconds.record(time),
                Timed::Growth(of) => {
                    self.metrics().growth_seconds[of].record(time);
                    event!(
                        info,
                        of = of.name(),
                        seconds = time.as_secs_f64(),
                        data_bytes = self.space_map().capacity_bytes(),
                        log_bytes = self.log().capacity_bytes(),
                        "growth has ended"
                    );
                }
            }
        }
        if now_us >= self.levels_due_us {
            self.levels_due_us = now_us + LEVELS_AGE_US_MAX;
            self.note_levels();
        }
    }

    /// Writes the current levels. Cost: independent of the number of blocks.
    pub fn note_levels(&self) {
        let (metrics, index) = (&self.base.metrics, &self.base.index);
        let flag = |is_set: bool| f64::from(u8::from(is_set));
        let gauges = [
            (&metrics.memory_fill_ratio, f64::from(self.queue_fill_percent()) / 100.0),
            (&metrics.log_fill_ratio, f64::from(self.log_fill_percent()) / 100.0),
            (&metrics.closed, flag(self.closed().is_some())),
            (&metrics.full, flag(self.is_full())),
            (&metrics.log_used_bytes, self.log().used_bytes() as f64),
            (&metrics.log_capacity_bytes, self.log().capacity_bytes() as f64),
            (&metrics.log_capacity_limit_bytes, self.log_bytes_max() as f64),
            (&metrics.log_train_stride_bytes, self.log().train_stride_bytes() as f64),
            (&metrics.log_known_heads, self.log().known_heads() as f64),
            (&metrics.log_last_sequence, self.last().get() as f64),
            (&metrics.log_durable_sequence, self.durable().get() as f64),
            (&metrics.sweep_progress_ratio, self.sweep_progress().unwrap_or(0.0)),
            (&metrics.sweep_frontier_sequence, self.sweep_frontier().get() as f64),
            (&metrics.spill_segments, self.spill_segments_size().0 as f64),
            (&metrics.data_used_bytes, self.space_map().used_bytes() as f64),
            (&metrics.data_reserved_bytes, self.reserved_bytes() as f64),
            (&metrics.data_capacity_bytes, self.space_map().capacity_bytes() as f64),
            (&metrics.waiting_entries[Place::Memory], index.arena().entries() as f64),
            (&metrics.waiting_entries[Place::Device], index.spill_segments.entries() as f64),
            (&metrics.blocks, index.directory().len() as f64),
            (&metrics.memory_used_bytes[Resource::Queues], self.queue_bytes() as f64),
            (&metrics.memory_used_bytes[Resource::Directory], self.directory_size().1 as f64),
            (&metrics.memory_used_bytes[Resource::Cache], self.cache_bytes() as f64),
            (&metrics.memory_used_bytes[Resource::Filters], self.spill_segments_memory().0 as f64),
            (&metrics.memory_used_bytes[Resource::Buffers], self.base.config.fixed_bytes() as f64),
            (&metrics.memory_budget_bytes, self.base.config.memory_bytes as f64),
        ];
        gauges.into_iter().for_each(|(gauge, level)| gauge.set(level));
    }
}
