//! Systems that are made of others: two that perform each operation together, and one that takes
//! operations at intervals.

use std::collections::{BTreeMap, VecDeque};

use super::{Finished, System, Traffic};
use crate::problem::Problem;

/// Two systems on different devices. An operation has a part for each, which begin together; it has
/// ended when both have.
pub(crate) struct Both<A, B> {
    first: A,
    second: B,
    /// Operations of which one part has ended.
    half: BTreeMap<u64, Finished>,
}

impl<A: System, B: System> Both<A, B> {
    /// Both at the time of the later one.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if one of them did something wrong.
    pub(crate) fn new(mut first: A, mut second: B) -> Result<Self, Problem> {
        let now_us = first.now_us().max(second.now_us());
        let mut finished = Vec::new();
        catch_up(&mut first, now_us, &mut finished)?;
        catch_up(&mut second, now_us, &mut finished)?;
        Ok(Self { first, second, half: BTreeMap::new() })
    }
}

/// Moves a system to a time, event by event.
fn catch_up(system: &mut impl System, us: u64, into: &mut Vec<Finished>) -> Result<(), Problem> {
    while let Some(next_us) = system.next_event_us().filter(|next_us| *next_us < us) {
        system.advance_to(next_us, into)?;
    }
    system.advance_to(us, into)
}

impl<A: System, B: System> System for Both<A, B> {
    type Operation = (A::Operation, B::Operation);

    fn now_us(&self) -> u64 {
        self.first.now_us()
    }

    fn submit(&mut self, number: u64, (first, second): Self::Operation) {
        self.first.submit(number, first);
        self.second.submit(number, second);
    }

    fn next_event_us(&self) -> Option<u64> {
        [self.first.next_event_us(), self.second.next_event_us()].into_iter().flatten().min()
    }

    fn advance_to(&mut self, us: u64, finished: &mut Vec<Finished>) -> Result<(), Problem> {
        let mut parts = Vec::new();
        self.first.advance_to(us, &mut parts)?;
        self.second.advance_to(us, &mut parts)?;
        for part in parts {
            match self.half.remove(&part.number) {
                Some(other) => {
                    let begun_us = part.begun_us.min(other.begun_us);
                    finished.push(Finished { begun_us, ..part });
                }
                None => {
                    self.half.insert(part.number, part);
                }
            }
        }
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        self.first.traffic().and(self.second.traffic())
    }
}

/// A system that takes an operation at most every so often.
pub(crate) struct Paced<S: System> {
    system: S,
    interval_us: u64,
    free_us: u64,
    /// Operations that wait for their turn, and when that is.
    waiting: VecDeque<(u64, u64, S::Operation)>,
}

impl<S: System> Paced<S> {
    /// With so many microseconds from one operation to the next.
    pub(crate) fn new(system: S, interval_us: u64) -> Self {
        Self { free_us: system.now_us(), system, interval_us, waiting: VecDeque::new() }
    }
}

impl<S: System> System for Paced<S> {
    type Operation = S::Operation;

    fn now_us(&self) -> u64 {
        self.system.now_us()
    }

    fn submit(&mut self, number: u64, operation: Self::Operation) {
        let due_us = self.free_us.max(self.now_us());
        self.free_us = due_us + self.interval_us;
        self.waiting.push_back((due_us, number, operation));
    }

    fn next_event_us(&self) -> Option<u64> {
        let due_us = self.waiting.front().map(|(us, ..)| *us);
        [due_us, self.system.next_event_us()].into_iter().flatten().min()
    }

    fn advance_to(&mut self, us: u64, finished: &mut Vec<Finished>) -> Result<(), Problem> {
        self.system.advance_to(us, finished)?;
        while let Some((_, number, operation)) =
            self.waiting.pop_front_if(|(due_us, ..)| *due_us <= us)
        {
            self.system.submit(number, operation);
        }
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        self.system.traffic()
    }
}

#[cfg(test)]
mod tests {
    use upsweep::layers::device::{LatencyModel, MemoryDevices};

    use super::super::Bench;
    use super::super::load::Load;
    use super::super::loggers::{Append, RawAppend};
    use super::*;

    /// A logger whose writes take so long.
    fn logger(base_us: u64) -> Bench<RawAppend> {
        let mut devices = MemoryDevices::with_sizes(&[1 << 30], 1);
        devices.set_latency(LatencyModel { base_us, bytes_per_us: 1 << 40, jitter_us: 0 });
        Bench::new(RawAppend::new(4096, 1 << 30), Box::new(devices), 0)
    }

    #[test]
    fn an_operation_takes_as_long_as_its_longer_part() {
        for (one_us, other_us) in [(1000, 3000), (3000, 1000)] {
            let mut both = Both::new(logger(one_us), logger(other_us)).expect("no write fails");
            let load = Load { callers: 1, warm_up: 10, measured: 100 };
            let next = || (Append { bytes: 4096 }, Append { bytes: 4096 });
            let seen = load.run(&mut both, next).expect("no write fails");
            assert!((seen.latency_ms - 3.0).abs() < 0.01, "{}", seen.latency_ms);
            assert_eq!(seen.traffic.writes, 200);
        }
    }

    #[test]
    fn two_systems_begin_at_the_same_time() {
        let mut late = logger(1000);
        late.advance_to(5_000, &mut Vec::new()).expect("nothing happens");
        let both = Both::new(logger(1000), late).expect("nothing happens");
        assert_eq!((both.first.now_us(), both.second.now_us()), (5_000, 5_000));
    }

    #[test]
    fn operations_come_at_intervals_unless_the_system_is_slower() {
        for (interval_us, per_second) in [(0, 1000.0), (500, 1000.0), (4000, 250.0)] {
            let mut paced = Paced::new(logger(1000), interval_us);
            let load = Load { callers: 4, warm_up: 10, measured: 200 };
            let seen = load.run(&mut paced, || Append { bytes: 4096 }).expect("no write fails");
            assert!((seen.per_second - per_second).abs() < 1.0, "{}", seen.per_second);
        }
    }
}
