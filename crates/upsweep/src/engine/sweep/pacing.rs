//! How fast the sweep goes: smoothly faster as queue memory or log space fills.
//!
//! Below [`START_PERCENT`] no cycle starts, so that updates batch. From there to [`FULL_PERCENT`]
//! the sweep works for a growing part of the time and rests between runs; above it never rests.
//! A caller that finds no room waits for the next publication, that is for one run: read, apply,
//! write, flush and log of at most 32 blocks. No caller waits for a cycle.
//! (In the manner of OpenZFS's pacing of its dedup log.)

/// Fill in per cent at which a cycle starts.
pub(super) const START_PERCENT: u32 = 50;
/// Fill in per cent from which the sweep never rests.
pub(super) const FULL_PERCENT: u32 = 85;
/// Where updates are spilled, neither memory nor log fills so far while spills keep up; in per
/// cent.
pub(super) const SPILLS_FAIL_PERCENT: u32 = 95;
/// Longest rest between two runs, in microseconds.
const REST_US_MAX: u64 = 200_000;
/// How long no run is tried after one that found no room, in microseconds.
const RETRY_US: u64 = 20_000;

/// Fill of the log that a cycle finds acceptable at its start.
const LOG_FILL_PERCENT_START: f64 = 60.0;
/// Part of the log that opens for updates as the cycle proceeds; the rest is the log's reserve.
const LOG_FILL_PERCENT_CYCLE: f64 = 40.0;

/// How full the log may become, given how far the cycle is.
pub(super) fn log_fill_allowed_percent(progress: Option<f64>) -> u32 {
    progress.map_or(100, |done| (LOG_FILL_PERCENT_START + LOG_FILL_PERCENT_CYCLE * done) as u32)
}

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

    /// Starts no run for a while.
    pub(super) fn rest(&mut self, now: u64) {
        self.rest_until = Some(now + RETRY_US);
    }

    /// When the next run may start; `None` if at any time.
    pub(super) fn next_run_at(&self) -> Option<u64> {
        self.rest_until.max(self.next_run_at)
    }
}
