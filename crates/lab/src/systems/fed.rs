//! A system that gets operations at a steady rate besides those of its callers, whether or not
//! earlier ones have ended.

use super::{Finished, System, Traffic};
use crate::problem::Problem;

/// Numbers of the operations that are not those of callers begin here.
const NUMBERS: u64 = 1 << 63;

/// The system.
pub(crate) struct Fed<S, N> {
    system: S,
    next: N,
    per_second: u64,
    from_us: u64,
    /// Operations submitted so far.
    submitted: u64,
}

impl<S: System, N: FnMut() -> S::Operation> Fed<S, N> {
    /// A system that gets so many operations in a second, at least 1, which `next` gives.
    pub(crate) fn new(system: S, per_second: u64, next: N) -> Self {
        let from_us = system.now_us();
        Self { system, next, per_second, from_us, submitted: 0 }
    }

    fn due_us(&self) -> u64 {
        self.from_us + self.submitted * 1_000_000 / self.per_second
    }
}

impl<S: System, N: FnMut() -> S::Operation> System for Fed<S, N> {
    type Operation = S::Operation;

    fn now_us(&self) -> u64 {
        self.system.now_us()
    }

    fn submit(&mut self, number: u64, operation: S::Operation) {
        self.system.submit(number, operation);
    }

    fn next_event_us(&self) -> Option<u64> {
        let due_us = self.due_us();
        Some(self.system.next_event_us().map_or(due_us, |us| us.min(due_us)))
    }

    fn advance_to(&mut self, us: u64, finished: &mut Vec<Finished>) -> Result<(), Problem> {
        self.system.advance_to(us, finished)?;
        finished.retain(|done| done.number < NUMBERS);
        while self.due_us() <= us {
            self.system.submit(NUMBERS + self.submitted, (self.next)());
            self.submitted += 1;
        }
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        self.system.traffic()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::load::Load;

    /// Performs operations one after another; each takes as long as it says.
    struct Server {
        now_us: u64,
        waiting: Vec<(u64, u64, u64)>,
    }

    impl System for Server {
        type Operation = u64;

        fn now_us(&self) -> u64 {
            self.now_us
        }

        fn submit(&mut self, number: u64, us: u64) {
            let free_us = self.waiting.last().map_or(self.now_us, |(due_us, ..)| *due_us);
            self.waiting.push((free_us.max(self.now_us) + us, number, self.now_us));
        }

        fn next_event_us(&self) -> Option<u64> {
            self.waiting.first().map(|(us, ..)| *us)
        }

        fn advance_to(&mut self, us: u64, finished: &mut Vec<Finished>) -> Result<(), Problem> {
            self.now_us = us;
            while self.waiting.first().is_some_and(|(due_us, ..)| *due_us <= us) {
                let (_, number, begun_us) = self.waiting.remove(0);
                finished.push(Finished { number, begun_us, found: None });
            }
            Ok(())
        }

        fn traffic(&self) -> Traffic {
            Traffic::default()
        }
    }

    #[test]
    fn callers_wait_for_what_comes_steadily_and_see_only_their_own() {
        let server = || Server { now_us: 0, waiting: Vec::new() };
        let load = Load { callers: 1, warm_up: 10, measured: 100 };
        let alone = load.run(&mut server(), || 1000).expect("it ends");
        // One of 500 us comes every 2 ms, so that a quarter of the time is taken.
        let fed = load.run(&mut Fed::new(server(), 500, || 500), || 1000).expect("it ends");
        assert_eq!((alone.operations, fed.operations), (100, 100));
        assert!((alone.per_second - 1000.0).abs() < 1e-6, "{}", alone.per_second);
        assert!((fed.per_second - 750.0).abs() < 15.0, "{}", fed.per_second);
    }
}
