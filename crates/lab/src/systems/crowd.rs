//! A system that a crowd keeps busy besides the callers that are measured: each of the crowd has an
//! operation under way at any time.

use super::{Finished, System, Traffic};
use crate::problem::Problem;

/// Numbers of the operations of the crowd begin here.
const NUMBERS: u64 = 1 << 63;

/// The system.
pub(crate) struct Crowd<S, N> {
    /// The system.
    pub(crate) system: S,
    next: N,
    submitted: u64,
    /// Operations of the crowd that have ended.
    ended: u64,
    /// Operations of the callers that end before what is measured begins.
    warm_up: u64,
    /// When that was, and what of the crowd had ended by then.
    from: (u64, u64),
}

impl<S: System, N: FnMut() -> S::Operation> Crowd<S, N> {
    /// A system with so many in the crowd, whose operations `next` gives. Their rate is measured
    /// from when `warm_up` operations of callers have ended.
    pub(crate) fn new(system: S, crowd: usize, warm_up: u64, next: N) -> Self {
        let from = (system.now_us(), 0);
        let mut crowded = Self { system, next, submitted: 0, ended: 0, warm_up, from };
        (0..crowd).for_each(|_| crowded.submit_next());
        crowded
    }

    fn submit_next(&mut self) {
        self.system.submit(NUMBERS + self.submitted, (self.next)());
        self.submitted += 1;
    }

    /// Operations of the crowd in a second.
    pub(crate) fn per_second(&self) -> f64 {
        let (from_us, before) = self.from;
        (self.ended - before) as f64 / ((self.now_us() - from_us) as f64 / 1e6)
    }
}

impl<S: System, N: FnMut() -> S::Operation> System for Crowd<S, N> {
    type Operation = S::Operation;

    fn now_us(&self) -> u64 {
        self.system.now_us()
    }

    fn submit(&mut self, number: u64, operation: S::Operation) {
        self.system.submit(number, operation);
    }

    fn next_event_us(&self) -> Option<u64> {
        self.system.next_event_us()
    }

    fn advance_to(&mut self, us: u64, finished: &mut Vec<Finished>) -> Result<(), Problem> {
        let before = finished.len();
        self.system.advance_to(us, finished)?;
        let all = finished.len() - before;
        finished.retain(|done| done.number < NUMBERS);
        let of_callers = (finished.len() - before) as u64;
        let of_crowd = all as u64 - of_callers;
        self.ended += of_crowd;
        if self.warm_up > 0 && of_callers > 0 {
            self.warm_up = self.warm_up.saturating_sub(of_callers);
            if self.warm_up == 0 {
                self.from = (us, self.ended);
            }
        }
        (0..of_crowd).for_each(|_| self.submit_next());
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        self.system.traffic()
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::Line;
    use super::super::load::Load;
    use super::*;

    #[test]
    fn callers_share_a_system_with_the_crowd_and_both_rates_are_right() {
        // Three of the crowd, of 1 ms each, between two operations of the caller, of 2 ms each.
        let mut crowded = Crowd::new(Line::default(), 3, 10, || 1000);
        let load = Load { callers: 1, warm_up: 10, measured: 100 };
        let seen = load.run(&mut crowded, || 2000).expect("it ends");
        assert!((seen.per_second - 200.0).abs() < 1.0, "{}", seen.per_second);
        assert!((crowded.per_second() - 600.0).abs() < 3.0, "{}", crowded.per_second());
        assert_eq!(seen.operations, 100);
    }
}
