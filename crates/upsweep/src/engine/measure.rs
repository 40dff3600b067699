//! Measurements other than the counters kept where things happen: times and damage. Levels, which
//! concern the whole core, are in `core/levels.rs`.
//!
//! The engine has no clock. What ends at the completion of a request is noted then, and timed by
//! the next pump, which knows the time and follows at once.

use std::sync::Arc;
use std::time::Duration;

use crate::events::event;
use crate::metrics::{Finder, GrowthOf, Metrics, WaitCause};
use crate::placement::Extent;

/// Damage that is remembered for `stat`; any more is only counted.
const DAMAGE_KEPT_MAX: usize = 64;

/// The cost of changes to the trees of the directory, without the release of dropped spaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeCounters {
    /// Nodes changed: the distinct ones of each operation on a tree, added up.
    pub nodes_changed: u64,
    /// Those of removals of ranges alone.
    pub range_nodes_changed: u64,
}

/// Figures of a published run.
pub(super) struct RunSummary {
    pub(super) blocks: u64,
    /// Queue entries that it applied.
    pub(super) updates: u64,
    pub(super) damaged: Vec<(Option<Extent>, String)>,
}

/// Something with a duration.
#[derive(Clone, Copy)]
pub(super) enum Timed {
    Flush,
    Checkpoint,
    Spill,
    Growth(GrowthOf),
}

/// What is still to be measured, and what is kept besides the metrics.
pub(super) struct Measured {
    metrics: Arc<Metrics>,
    /// What has ended since the last pump, and when it began.
    ended: Vec<(Timed, u64)>,
    cycle_began_us: u64,
    /// The first damage found: location and description.
    damage: Vec<(Option<Extent>, String)>,
    /// What the last refused update has to wait for.
    wait_cause: WaitCause,
}

impl Measured {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            ended: Vec::new(),
            cycle_began_us: 0,
            damage: Vec::new(),
            wait_cause: WaitCause::Pipeline,
        }
    }

    /// The first damage found since the store was opened.
    pub(super) fn damage(&self) -> impl Iterator<Item = &str> {
        self.damage.iter().map(|(_, reason)| reason.as_str())
    }

    /// What the last refused update has to wait for; [`WaitCause::Pipeline`] if none was refused.
    pub(super) fn wait_cause(&self) -> WaitCause {
        self.wait_cause
    }

    pub(super) fn note_refusal(&mut self, cause: WaitCause) {
        self.wait_cause = cause;
        self.metrics.admission_refusals_total[cause].add(1);
    }

    pub(super) fn note_cycle_began(&mut self, now_us: u64) {
        self.cycle_began_us = now_us;
    }

    pub(super) fn note_cycle_ended(&mut self, now_us: u64) {
        let time = Duration::from_micros(now_us - self.cycle_began_us);
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

    /// Damage that is found again is counted again, and listed once.
    pub(super) fn note_damage(&mut self, finder: Finder, extent: Option<Extent>, reason: &str) {
        self.metrics.damage_total[finder].add(1);
        event!(
            error,
            device = extent.map(|extent| extent.device.0),
            offset = extent.map(|extent| extent.offset),
            reason,
            "damage was met"
        );
        let damage = &mut self.damage;
        let is_known = damage.iter().any(|known| (known.0, &*known.1) == (extent, reason));
        if damage.len() < DAMAGE_KEPT_MAX && !is_known {
            damage.push((extent, reason.to_owned()));
        }
    }

    /// Something that began at `began_us` has ended; the next pump knows the time.
    pub(super) fn note_ended(&mut self, what: Timed, began_us: u64) {
        self.ended.push((what, began_us));
    }

    /// What has ended since the last pump, with its duration, now that the time is known.
    pub(super) fn take_ended(&mut self, now_us: u64) -> Vec<(Timed, Duration)> {
        let ended = std::mem::take(&mut self.ended).into_iter();
        let time = |began_us| Duration::from_micros(now_us.saturating_sub(began_us));
        ended.map(|(what, began_us)| (what, time(began_us))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceId;

    fn extent(offset: u64) -> Option<Extent> {
        Some(Extent { device: DeviceId(0), offset, bytes: 4096 })
    }

    #[test]
    fn damage_that_is_met_again_is_counted_again_and_listed_once() {
        let metrics = Arc::new(Metrics::default());
        let mut measured = Measured::new(Arc::clone(&metrics));
        for _ in 0..3 {
            measured.note_damage(Finder::Query, extent(4096), "torn");
        }
        measured.note_damage(Finder::Sweep, extent(8192), "torn");
        assert_eq!(metrics.damage_total[Finder::Query].get(), 3);
        assert_eq!(metrics.damage_total[Finder::Sweep].get(), 1);
        assert_eq!(measured.damage().count(), 2, "one for each place");
        (0..1000).for_each(|at| measured.note_damage(Finder::Query, extent(at * 4096), "bad"));
        assert_eq!(measured.damage().count(), DAMAGE_KEPT_MAX);
        assert_eq!(measured.damage().next(), Some("torn"), "the first is what is remembered");
    }

    #[test]
    fn what_has_ended_is_timed_once_by_the_next_who_knows_the_time() {
        let mut measured = Measured::new(Arc::new(Metrics::default()));
        measured.note_ended(Timed::Flush, 100);
        measured.note_ended(Timed::Spill, 900);
        let ended: Vec<u128> =
            measured.take_ended(600).iter().map(|(_, time)| time.as_micros()).collect();
        assert_eq!(ended, [500, 0], "a clock that stands still takes nothing back");
        assert!(measured.take_ended(700).is_empty());
    }

    #[test]
    fn a_refusal_is_counted_by_its_cause_and_the_last_cause_is_remembered() {
        let metrics = Arc::new(Metrics::default());
        let mut measured = Measured::new(Arc::clone(&metrics));
        measured.note_refusal(WaitCause::Log);
        measured.note_refusal(WaitCause::Memory);
        assert_eq!(measured.wait_cause(), WaitCause::Memory);
        assert_eq!(metrics.admission_refusals_total[WaitCause::Log].get(), 1);
    }

    #[test]
    fn a_run_counts_its_blocks_its_updates_and_what_it_found_damaged() {
        let metrics = Arc::new(Metrics::default());
        let mut measured = Measured::new(Arc::clone(&metrics));
        let damaged = vec![(extent(4096), "torn".to_owned())];
        measured.note_run(RunSummary { blocks: 3, updates: 40, damaged });
        let counted = [
            metrics.sweep_runs_total.get(),
            metrics.swept_blocks_total.get(),
            metrics.swept_entries_total.get(),
            metrics.damage_total[Finder::Sweep].get(),
        ];
        assert_eq!(counted, [1, 3, 40, 1]);
    }
}
