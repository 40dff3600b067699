//! Flow control of the sweep and of spills: both go as fast as updates arrive, and faster the
//! fuller the resource.
//!
//! Waiting updates are a stock between two flows. While it is filled to the level that the policy
//! wants, the sweep applies one update for each that arrives, and spills take one; the pace says
//! how many more or fewer. So the stock settles there, and both run evenly, whatever updates, runs
//! and devices cost. (When it was paced by time, the sweep was slow below two thirds and fast
//! above: cycles differed by up to a minute, and callers saw the difference in their rate. This is
//! similar to the gears of bLSM, which couple a merge to the inserts that it has to keep up with.)
//!
//! Where the pace is unbounded they never rest: a resource is nearly full, or a caller waits for
//! room. A caller that finds no room waits for the next publication, that is for one run: read,
//! apply, write, flush and log of at most 32 blocks. No caller waits for a whole cycle.
//!
//! The sweep also goes on while queries go through many waiting updates: see
//! `policy::earned_by_queries`.
//!
//! Where levels of spill segments are short, the search for what to spill has an allowance too: of
//! blocks, for the images that the sweep passes.

use super::policy::{self, RETRY_US};

/// The allowance of the sweep, of spills, or of the search for what to spill.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Updates that may be applied at once; negative if the last run has applied more.
    credit: f64,
    /// Updates that had arrived at the last call of `note`.
    came: u64,
    /// Updates of the last run. No more credit than that accumulates while no run can start.
    of_run: f64,
    /// No run at all before this time: the last one found no room.
    rest_until: Option<u64>,
}

impl Flow {
    /// `came` updates have arrived so far, and `pace` are to be applied or spilled for each.
    pub(super) fn note(&mut self, came: u64, pace: f64) {
        let new = came.saturating_sub(self.came) as f64;
        self.came = came;
        self.credit = policy::credit(self.credit, self.of_run, new, pace);
    }

    /// This many updates may be applied besides.
    pub(super) fn earn(&mut self, updates: f64) {
        self.credit += updates;
    }

    /// Whether a run may start, now or after a rest.
    pub(super) fn goes_on(&self) -> bool {
        self.credit > 0.0
    }

    /// Whether a run may start at `now_us`.
    pub(super) fn may_start(&self, now_us: u64) -> bool {
        self.goes_on() && self.rest_until.is_none_or(|until| until <= now_us)
    }

    /// A run has started that applies this many updates.
    pub(super) fn started(&mut self, updates: f64) {
        self.rest_until = None;
        self.credit -= updates;
        self.of_run = updates;
    }

    /// No run fitted: the next one is tried after a rest, not at once.
    pub(super) fn rest(&mut self, now_us: u64) {
        self.rest_until = Some(now_us + RETRY_US);
    }

    /// Until when the sweep rests although it may start a run, if it does.
    pub(super) fn rests_until(&self) -> Option<u64> {
        self.rest_until.filter(|_| self.goes_on())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies the allowed updates with runs of `of_run` updates each, while updates arrive one by
    /// one.
    fn applied(flow: &mut Flow, pace: f64, came: std::ops::Range<u64>, of_run: f64) -> f64 {
        let mut applied = 0.0;
        for came in came {
            flow.note(came + 1, pace);
            while flow.may_start(0) {
                flow.started(of_run);
                applied += of_run;
            }
        }
        applied
    }

    #[test]
    fn as_many_updates_are_applied_as_the_pace_says() {
        for (pace, of_run) in [(0.25, 10.0), (1.0, 10.0), (1.0, 0.5), (3.0, 1000.0)] {
            let mut flow = Flow::default();
            let found = applied(&mut flow, pace, 0..100_000, of_run);
            let wanted = 100_000.0 * pace;
            assert!((found - wanted).abs() <= of_run, "{pace} {of_run}: {found}");
        }
        assert_eq!(applied(&mut Flow::default(), 0.0, 0..1000, 1.0), 0.0);
    }

    #[test]
    fn what_came_while_the_pace_was_nothing_or_no_run_could_start_is_not_made_up_for() {
        let mut flow = Flow::default();
        flow.note(1_000_000, 0.0);
        flow.note(1_000_010, 1.0);
        assert!(flow.may_start(0));
        flow.started(10.0);
        assert!(!flow.may_start(0));
        (1_000_011..2_000_000).for_each(|came| flow.note(came, 1.0));
        flow.started(10.0);
        assert!(flow.may_start(0), "what came last");
        flow.started(10.0);
        assert!(!flow.may_start(0), "one run was saved up, and no more");
    }

    #[test]
    fn what_is_earned_is_applied_though_nothing_comes() {
        let mut flow = Flow::default();
        flow.note(0, 0.0);
        flow.earn(10.0);
        assert!(flow.may_start(0));
        flow.started(15.0);
        flow.earn(4.0);
        assert!(!flow.may_start(0), "the run took more than was earned");
        flow.earn(2.0);
        assert!(flow.may_start(0));
    }

    #[test]
    fn nothing_is_counted_at_full_pace() {
        let mut flow = Flow::default();
        flow.note(1, f64::INFINITY);
        for _ in 0..100 {
            assert!(flow.may_start(0));
            flow.started(1e9);
        }
        flow.note(2, 1.0);
        assert!(!flow.may_start(0), "as if it had just begun");
        flow.note(2 + 1_000_000, 1.0);
        assert!(flow.may_start(0), "and no debt is left");
    }

    #[test]
    fn a_run_that_found_no_room_is_not_tried_again_at_once() {
        let mut flow = Flow::default();
        flow.note(1, f64::INFINITY);
        flow.rest(100);
        assert!(!flow.may_start(100 + RETRY_US - 1));
        assert_eq!(flow.rests_until(), Some(100 + RETRY_US));
        assert!(flow.may_start(100 + RETRY_US));
        flow.note(1, 0.0);
        assert_eq!(flow.rests_until(), None, "it has nothing to wait for");
    }
}
