//! How fast the sweep goes: smoothly faster as queue memory or log space fills.
//!
//! Below [`START_PERCENT`] no cycle starts, so that updates batch. From there to [`FULL_PERCENT`]
//! the time from the start of one run to that of the next shrinks from many times what a run takes
//! to nothing: at first the sweep rests between runs, half-way one run follows the other, and
//! then several are on their way. Above it never rests, nor while somebody waits for the room that
//! it makes, which counts as full pressure. A caller that finds no room waits for the next
//! publication, that is for one run: read, apply, write, flush and log of at most 32 blocks. No
//! caller waits for a cycle. (In the manner of OpenZFS's pacing of its dedup log.)

use crate::engine::policy::{FULL_PERCENT, START_PERCENT};

/// What a run takes, in microseconds, as long as none has ended.
const RUN_US: u64 = 5_000;
/// Longest rest after a run, in microseconds.
const REST_US_MAX: u64 = 20_000;
/// How long no run is tried after one that found no room, in microseconds.
const RETRY_US: u64 = 20_000;

/// When the next run may start.
#[derive(Debug)]
pub(super) struct Pacing {
    next_run_at: Option<u64>,
    last_started: Option<u64>,
    /// What the last run took that has ended, in microseconds; a guess before.
    run_us: u64,
    /// No run at all before this time: the last one found no room.
    rest_until: Option<u64>,
}

impl Default for Pacing {
    fn default() -> Self {
        Self { next_run_at: None, last_started: None, run_us: RUN_US, rest_until: None }
    }
}

impl Pacing {
    /// Asks to start a run at `now`. How many are on their way at full speed is for others to say.
    pub(super) fn may_start(&mut self, pressure_percent: u32, now: u64) -> bool {
        if self.rest_until.is_some_and(|until| now < until) {
            return false;
        }
        if let Some(started) = self.last_started.filter(|_| pressure_percent < FULL_PERCENT) {
            let due = started + interval_us(self.run_us, pressure_percent);
            if now < due {
                self.next_run_at = Some(due);
                return false;
            }
        }
        self.next_run_at = None;
        self.rest_until = None;
        self.last_started = Some(now);
        true
    }

    /// A run has ended that took so long.
    pub(super) fn ended(&mut self, run_us: u64) {
        self.run_us = run_us;
    }

    /// What was to start did not, for there was nothing to do: the next one need not rest.
    pub(super) fn not_started(&mut self) {
        self.last_started = None;
    }

    /// The next one may start at this time.
    pub(super) fn start_at(&mut self, us: u64) {
        self.next_run_at = Some(us);
    }

    /// Starts no run for a while.
    pub(super) fn rest(&mut self, now: u64) {
        self.rest_until = Some(now + RETRY_US);
    }

    /// No run is wanted at present, or as many are on their way as may be.
    pub(super) fn forget_rest(&mut self) {
        self.next_run_at = None;
    }

    /// When the next run may start; `None` if at any time.
    pub(super) fn next_run_at(&self) -> Option<u64> {
        self.rest_until.max(self.next_run_at)
    }
}

/// The time from one start to the next.
fn interval_us(run_us: u64, pressure_percent: u32) -> u64 {
    let above = u64::from(pressure_percent.saturating_sub(START_PERCENT)).max(1);
    let left = u64::from(FULL_PERCENT.saturating_sub(pressure_percent));
    (run_us * left / above).min(run_us + REST_US_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pacing whose first run has started at 0, and has ended after so long.
    fn after_a_run_of(run_us: u64) -> Pacing {
        let mut pacing = Pacing::default();
        assert!(pacing.may_start(START_PERCENT, 0), "the first run has nothing to rest for");
        assert!(!pacing.may_start(START_PERCENT, RUN_US), "how long a run takes is guessed");
        pacing.ended(run_us);
        pacing
    }

    #[test]
    fn runs_follow_each_other_faster_the_higher_the_pressure() {
        let next_after = |run_us: u64, pressure_percent: u32| {
            let mut pacing = after_a_run_of(run_us);
            let may_start = |at: &u64| pacing.may_start(pressure_percent, *at);
            (0..).find(may_start).expect("it may start some time")
        };
        assert_eq!(next_after(1000, 60), 2500, "a rest");
        assert_eq!(next_after(1000, 67), 1058, "one after the other");
        assert_eq!(next_after(1000, 75), 400, "several on their way");
        assert_eq!(next_after(1000, 84), 29);
        assert_eq!(next_after(1000, 51), 1000 + REST_US_MAX, "34 times as long, but for the bound");
    }

    #[test]
    fn nothing_rests_at_full_pressure_nor_longer_than_the_bound() {
        let mut pacing = after_a_run_of(1000);
        assert!(!pacing.may_start(60, 1000));
        assert_eq!(pacing.next_run_at(), Some(2500));
        assert!(pacing.may_start(FULL_PERCENT, 1000) && pacing.may_start(FULL_PERCENT, 1000));
        assert_eq!(pacing.next_run_at(), None);
        let mut pacing = after_a_run_of(1_000_000);
        assert!(!pacing.may_start(50, 1_000_000));
        assert_eq!(pacing.next_run_at(), Some(1_000_000 + REST_US_MAX));
    }

    #[test]
    fn who_found_nothing_may_look_again_at_once() {
        let mut pacing = Pacing::default();
        assert!(pacing.may_start(60, 2500));
        assert!(!pacing.may_start(60, 2500));
        pacing.not_started();
        assert!(pacing.may_start(60, 2500));
    }

    #[test]
    fn a_run_that_found_no_room_is_not_tried_again_at_once() {
        let mut pacing = Pacing::default();
        pacing.rest(100);
        assert!(!pacing.may_start(100, 100 + RETRY_US - 1));
        assert!(pacing.may_start(100, 100 + RETRY_US));
    }
}
