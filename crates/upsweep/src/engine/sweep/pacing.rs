//! How fast the sweep goes: smoothly faster as queue memory or log space fills.
//!
//! Below [`START_PERCENT`] no cycle starts, so that updates batch. From there to [`FULL_PERCENT`]
//! the sweep works for a growing part of the time and rests between runs; above it never rests, nor
//! while somebody waits for the room that it makes, which counts as full pressure. A caller that
//! finds no room waits for the next publication, that is for one run: read, apply, write, flush and
//! log of at most 32 blocks. No caller waits for a cycle.
//! (In the manner of OpenZFS's pacing of its dedup log.)

use crate::engine::policy::{FULL_PERCENT, START_PERCENT};

/// Longest rest between two runs, in microseconds.
const REST_US_MAX: u64 = 20_000;
/// How long no run is tried after one that found no room, in microseconds.
const RETRY_US: u64 = 20_000;

/// When the next run may start.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    next_run_at: Option<u64>,
    last_started: Option<u64>,
    run_us: u64,
    /// No run at all before this time: the last one found no room.
    rest_until: Option<u64>,
}

impl Pacing {
    /// Asks to start a run at `now`; `idle` if no other run is in the pipeline. At full speed the
    /// pipeline is kept full; below it, one run at a time with a rest in proportion to its length.
    pub(super) fn may_start(&mut self, pressure_percent: u32, idle: bool, now: u64) -> bool {
        if self.rest_until.is_some_and(|until| now < until) {
            return false;
        }
        if pressure_percent >= FULL_PERCENT {
            self.next_run_at = None;
            self.rest_until = None;
            self.last_started = Some(now);
            return true;
        }
        if !idle {
            return false;
        }
        let Some(at) = self.next_run_at else {
            let rest = self.rest_us(pressure_percent, now);
            self.next_run_at = Some(now + rest);
            return self.may_start_at(now + rest, now);
        };
        self.may_start_at(at, now)
    }

    fn may_start_at(&mut self, at: u64, now: u64) -> bool {
        if now < at {
            return false;
        }
        self.next_run_at = None;
        self.last_started = Some(now);
        true
    }

    fn rest_us(&mut self, pressure_percent: u32, now: u64) -> u64 {
        self.run_us = self.last_started.map_or(0, |started| now.saturating_sub(started));
        let above = u64::from(pressure_percent.saturating_sub(START_PERCENT)).max(1);
        let range = u64::from(FULL_PERCENT - START_PERCENT);
        let rest = self.run_us * range.saturating_sub(above) / above;
        rest.min(REST_US_MAX)
    }

    /// The next run starts at this time, unless it is pressed to start before.
    pub(super) fn start_at(&mut self, us: u64) {
        self.next_run_at = Some(us);
    }

    /// Starts no run for a while.
    pub(super) fn rest(&mut self, now: u64) {
        self.rest_until = Some(now + RETRY_US);
    }

    /// No run is wanted at present: the rest before the next one begins anew.
    pub(super) fn forget_rest(&mut self) {
        self.next_run_at = None;
    }

    /// When the next run may start; `None` if at any time.
    pub(super) fn next_run_at(&self) -> Option<u64> {
        self.rest_until.max(self.next_run_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pacing whose first run has taken so long, at the time at which it has ended.
    fn after_a_run_of(run_us: u64, pressure_percent: u32) -> Pacing {
        let mut pacing = Pacing::default();
        assert!(
            pacing.may_start(pressure_percent, true, 0),
            "the first run has nothing to rest for"
        );
        assert!(!pacing.may_start(pressure_percent, false, run_us), "one at a time");
        pacing
    }

    #[test]
    fn a_rest_is_in_proportion_to_the_run_and_shorter_the_higher_the_pressure() {
        let rest_after = |run_us: u64, pressure_percent: u32| {
            let mut pacing = after_a_run_of(run_us, pressure_percent);
            let may_start = |at: &u64| pacing.may_start(pressure_percent, true, *at);
            (run_us..).find(may_start).expect("it ends") - run_us
        };
        assert_eq!(rest_after(1000, 60), 2500);
        assert_eq!(rest_after(1000, 75), 400);
        assert_eq!(rest_after(1000, 84), 29);
        assert_eq!(rest_after(1000, 51), REST_US_MAX, "34 times as long, but for the bound");
        assert_eq!(rest_after(5000, 50), REST_US_MAX);
    }

    #[test]
    fn nothing_rests_at_full_pressure_nor_longer_than_the_bound() {
        let mut pacing = after_a_run_of(1000, 60);
        assert!(!pacing.may_start(60, true, 1000));
        assert_eq!(pacing.next_run_at(), Some(3500));
        assert!(pacing.may_start(FULL_PERCENT, false, 1000), "also beside other runs");
        assert_eq!(pacing.next_run_at(), None);
        let mut pacing = after_a_run_of(1_000_000, 51);
        assert!(!pacing.may_start(51, true, 1_000_000));
        assert_eq!(pacing.next_run_at(), Some(1_000_000 + REST_US_MAX));
    }

    #[test]
    fn a_run_that_found_no_room_is_not_tried_again_at_once() {
        let mut pacing = Pacing::default();
        pacing.rest(100);
        assert!(!pacing.may_start(100, true, 100 + RETRY_US - 1));
        assert!(pacing.may_start(100, true, 100 + RETRY_US));
    }
}
