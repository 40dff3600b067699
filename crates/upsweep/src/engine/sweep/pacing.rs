//! How fast spills follow each other: smoothly faster as queue memory or log space fills.
//!
//! Below [`START_PERCENT`] there are none, so that updates batch. From there to [`FULL_PERCENT`]
//! the time from the start of one spill to that of the next shrinks from many times what a spill
//! takes to nothing: at first they rest in between, half-way one follows the other, then several
//! are on their way. Above they never rest, nor while somebody waits for the room that they make,
//! which counts as full pressure. (In the manner of OpenZFS's pacing of its dedup log.)

use crate::engine::policy::{FULL_PERCENT, START_PERCENT};

/// What a spill takes, in microseconds, as long as none has ended.
const SPILL_US: u64 = 5_000;
/// Longest rest after a spill, in microseconds.
const REST_US_MAX: u64 = 20_000;

/// When the next spill may start.
#[derive(Debug)]
pub(super) struct Pacing {
    next_at: Option<u64>,
    last_started: Option<u64>,
    /// What the last spill took that has ended, in microseconds; a guess before.
    spill_us: u64,
}

impl Default for Pacing {
    fn default() -> Self {
        Self { next_at: None, last_started: None, spill_us: SPILL_US }
    }
}

impl Pacing {
    /// Asks to start a spill at `now`. How many are on their way at full speed is not decided here.
    pub(super) fn may_start(&mut self, pressure_percent: u32, now: u64) -> bool {
        if let Some(started) = self.last_started.filter(|_| pressure_percent < FULL_PERCENT) {
            let due = started + interval_us(self.spill_us, pressure_percent);
            if now < due {
                self.next_at = Some(due);
                return false;
            }
        }
        self.next_at = None;
        self.last_started = Some(now);
        true
    }

    /// A spill has ended that took so long.
    pub(super) fn ended(&mut self, spill_us: u64) {
        self.spill_us = spill_us;
    }

    /// What was to start did not, for there was nothing to do: the next one need not rest.
    pub(super) fn not_started(&mut self) {
        self.last_started = None;
    }

    /// The next one may start at this time.
    pub(super) fn start_at(&mut self, us: u64) {
        self.next_at = Some(us);
    }

    /// None is wanted at present, or as many are on their way as may be.
    pub(super) fn forget_rest(&mut self) {
        self.next_at = None;
    }

    /// When the next spill may start; `None` if at any time.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.next_at
    }
}

/// The time from one start to the next.
fn interval_us(spill_us: u64, pressure_percent: u32) -> u64 {
    let above = u64::from(pressure_percent.saturating_sub(START_PERCENT)).max(1);
    let left = u64::from(FULL_PERCENT.saturating_sub(pressure_percent));
    (spill_us * left / above).min(spill_us + REST_US_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pacing whose first spill has started at 0, and has ended after so long.
    fn after_a_spill_of(spill_us: u64) -> Pacing {
        let mut pacing = Pacing::default();
        assert!(pacing.may_start(START_PERCENT, 0), "the first spill has nothing to rest for");
        assert!(!pacing.may_start(START_PERCENT, SPILL_US), "how long a spill takes is guessed");
        pacing.ended(spill_us);
        pacing
    }

    #[test]
    fn spills_follow_each_other_faster_the_higher_the_pressure() {
        let next_after = |spill_us: u64, pressure_percent: u32| {
            let mut pacing = after_a_spill_of(spill_us);
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
        let mut pacing = after_a_spill_of(1000);
        assert!(!pacing.may_start(60, 1000));
        assert_eq!(pacing.next_at(), Some(2500));
        assert!(pacing.may_start(FULL_PERCENT, 1000) && pacing.may_start(FULL_PERCENT, 1000));
        assert_eq!(pacing.next_at(), None);
        let mut pacing = after_a_spill_of(1_000_000);
        assert!(!pacing.may_start(50, 1_000_000));
        assert_eq!(pacing.next_at(), Some(1_000_000 + REST_US_MAX));
    }

    #[test]
    fn who_found_nothing_may_look_again_at_once() {
        let mut pacing = Pacing::default();
        assert!(pacing.may_start(60, 2500));
        assert!(!pacing.may_start(60, 2500));
        pacing.not_started();
        assert!(pacing.may_start(60, 2500));
    }
}
