//! Callers that submit an operation when their last one has ended, or when a system wants more, and
//! what they see.

use std::collections::{BTreeMap, VecDeque};

use upsweep_sim::random::Random;

use super::{Finished, System, Traffic};
use crate::problem::Problem;

/// A closed loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Callers; each has one operation under way.
    pub(crate) callers: usize,
    /// Operations that end before what is measured begins.
    pub(crate) warm_up: u64,
    /// Operations that are measured.
    pub(crate) measured: u64,
}

/// What the callers saw.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Operations in a second.
    pub(crate) per_second: f64,
    /// Mean time from when the system began with an operation to its end, in milliseconds.
    pub(crate) service_ms: f64,
    /// Mean time from when a caller submitted an operation to its end, in milliseconds.
    pub(crate) latency_ms: f64,
    /// Operations that were measured.
    pub(crate) operations: u64,
    /// Requests to the devices meanwhile.
    pub(crate) traffic: Traffic,
}

impl Seen {
    /// Requests to the devices for each operation.
    pub(crate) fn requests_per_operation(&self) -> f64 {
        self.traffic.requests() as f64 / self.operations as f64
    }
}

impl Load {
    /// Runs it; `next` gives the operations.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if the system rests before all operations have ended, or did
    /// something wrong.
    pub(crate) fn run<S: System>(
        &self,
        system: &mut S,
        next: impl FnMut() -> S::Operation,
    ) -> Result<Seen, Problem> {
        self.run_while(system, next, |_, under_way| under_way < self.callers)
    }

    /// As [`Load::run`], but it is `is_wanted` that tells, from the system and the number of
    /// operations under way, whether one more is submitted; not the number of callers.
    ///
    /// # Errors
    /// As [`Load::run`].
    pub(crate) fn run_while<S: System>(
        &self,
        system: &mut S,
        mut next: impl FnMut() -> S::Operation,
        is_wanted: impl Fn(&S, usize) -> bool,
    ) -> Result<Seen, Problem> {
        let mut phases = Phases::new(system, is_wanted);
        phases.run(&mut next, |_, ended| ended < self.warm_up)?;
        phases.run(&mut next, |_, ended| ended < self.measured)
    }
}

/// A closed loop in phases, each with operations of its own; those under way go on from one to the
/// next.
pub(crate) struct Phases<'a, S: System, W> {
    system: &'a mut S,
    /// Tells, from the system and the number of operations under way, whether one more is
    /// submitted.
    is_wanted: W,
    /// When each operation under way was submitted.
    submitted_us: BTreeMap<u64, u64>,
    /// The number of the next one.
    number: u64,
    /// Operations that have ended and are not counted in a phase yet.
    finished: VecDeque<Finished>,
}

impl<'a, S: System, W: Fn(&S, usize) -> bool> Phases<'a, S, W> {
    /// Before the first phase.
    pub(crate) fn new(system: &'a mut S, is_wanted: W) -> Self {
        let (submitted_us, finished) = (BTreeMap::new(), VecDeque::new());
        Self { system, is_wanted, submitted_us, number: 0, finished }
    }

    /// Runs a phase while `goes_on`, which gets the system and the number of operations that have
    /// ended in the phase; `next` gives the operations.
    ///
    /// # Errors
    /// As [`Load::run`].
    pub(crate) fn run(
        &mut self,
        mut next: impl FnMut() -> S::Operation,
        goes_on: impl Fn(&S, u64) -> bool,
    ) -> Result<Seen, Problem> {
        let (from_us, before) = (self.system.now_us(), self.system.traffic());
        let (mut ended, mut latency_us, mut service_us) = (0, 0, 0);
        while goes_on(self.system, ended) {
            let Some(done) = self.finished.pop_front() else {
                self.submit(&mut next);
                let Some(us) = self.system.next_event_us() else {
                    let ended = self.number - self.submitted_us.len() as u64;
                    let reason = format!("nothing happens any more, after {ended} operations");
                    return Err(Problem::Simulation(reason));
                };
                let mut finished = Vec::new();
                self.system.advance_to(us, &mut finished)?;
                self.finished.extend(finished);
                continue;
            };
            let now_us = self.system.now_us();
            latency_us += now_us - self.submitted_us.remove(&done.number).unwrap_or(now_us);
            service_us += now_us - done.begun_us;
            ended += 1;
        }
        let seconds = (self.system.now_us() - from_us) as f64 / 1e6;
        Ok(Seen {
            per_second: ended as f64 / seconds,
            service_ms: service_us as f64 / ended as f64 / 1e3,
            latency_ms: latency_us as f64 / ended as f64 / 1e3,
            operations: ended,
            traffic: self.system.traffic().since(before),
        })
    }

    /// The system.
    pub(crate) fn system(&self) -> &S {
        self.system
    }

    fn submit(&mut self, next: &mut impl FnMut() -> S::Operation) {
        while (self.is_wanted)(self.system, self.submitted_us.len()) {
            self.submitted_us.insert(self.number, self.system.now_us());
            self.system.submit(self.number, next());
            self.number += 1;
        }
    }
}

/// Operations that arrive at intervals, whether or not others have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrivals {
    /// Mean time from one to the next, in microseconds. Each is anything from half to one and a
    /// half of it, evenly at random.
    pub(crate) interval_us: u64,
    /// Time before the first one, in microseconds.
    pub(crate) settle_us: u64,
    /// Operations that end before what is measured begins.
    pub(crate) warm_up: u64,
    /// Operations that are measured.
    pub(crate) measured: u64,
}

impl Arrivals {
    /// Runs them; `next` gives the operations. Returns the latency of each that is measured, in
    /// microseconds, in the order of their ends.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if the system did something wrong.
    pub(crate) fn run<S: System>(
        &self,
        system: &mut S,
        mut next: impl FnMut() -> S::Operation,
        random: &mut Random,
    ) -> Result<Vec<u64>, Problem> {
        let (mut submitted_us, mut number) = (BTreeMap::new(), 0);
        let (mut latencies_us, mut ended, mut finished) = (Vec::new(), 0, Vec::new());
        let mut due_us = system.now_us() + self.settle_us;
        while ended < self.warm_up + self.measured {
            let event_us = system.next_event_us().unwrap_or(u64::MAX);
            let us = event_us.min(due_us.max(system.now_us()));
            system.advance_to(us, &mut finished)?;
            for done in finished.drain(..) {
                ended += 1;
                if ended > self.warm_up
                    && let Some(since_us) = submitted_us.remove(&done.number)
                {
                    latencies_us.push(us - since_us);
                }
            }
            while due_us <= us {
                submitted_us.insert(number, us);
                system.submit(number, next());
                number += 1;
                due_us += self.interval_us / 2 + random.below(self.interval_us + 1);
            }
        }
        Ok(latencies_us)
    }
}

/// Others that use a system besides the callers that are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Others {
    /// Nobody.
    None,
    /// Turns arrive at random, so many in a second on average, whether or not earlier ones have
    /// ended: a Poisson process.
    Arriving(f64),
    /// So many terminals, each with one turn at a time, and a time to think between two of them
    /// that is exponentially distributed, with a mean of so many microseconds.
    Terminals(usize, f64),
}

/// What one of the others does at a time: some operations one after another, each submitted when
/// the one before it has ended, and then others together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn<O> {
    /// One after another.
    pub(crate) first: Vec<O>,
    /// Together, one at least. The turn ends when all of them have.
    pub(crate) last: Vec<O>,
}

impl<O> From<O> for Turn<O> {
    fn from(only: O) -> Self {
        Self { first: Vec::new(), last: vec![only] }
    }
}

/// Callers that make some operations, beside others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    /// Callers; each has one operation under way.
    pub(crate) callers: usize,
    /// The others.
    pub(crate) others: Others,
    /// How long it lasts at least, in microseconds.
    pub(crate) us_min: u64,
}

/// Latencies of operations, in microseconds, ascending, each with the time at which the operation
/// ended, since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latencies(Vec<(u64, u64)>);

impl Latencies {
    fn of(mut us: Vec<(u64, u64)>) -> Self {
        us.sort_unstable();
        Self(us)
    }

    /// Those of operations that ended until this time.
    fn until(&self, us: u64) -> Self {
        Self(self.0.iter().filter(|(_, end_us)| *end_us <= us).copied().collect())
    }

    /// These, and others since this time.
    fn and(self, us: u64, others: Self) -> Self {
        let later = others.0.into_iter().map(|(latency_us, end_us)| (latency_us, us + end_us));
        Self::of(self.0.into_iter().chain(later).collect())
    }

    /// How many operations they are of.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Their mean, in milliseconds, if there are any.
    pub(crate) fn mean_ms(&self) -> Option<f64> {
        let sum: u64 = self.0.iter().map(|(us, _)| us).sum();
        (self.count() > 0).then(|| sum as f64 / self.count() as f64 / 1e3)
    }

    /// The latency within which 99 % of the operations ended, in milliseconds, if there are any.
    pub(crate) fn p99_ms(&self) -> Option<f64> {
        self.0.get(self.count() * 99 / 100).map(|(us, _)| *us as f64 / 1e3)
    }
}

/// What was seen of callers and others.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenBeside {
    /// Until the last operation of a caller ended.
    pub(crate) seconds: f64,
    /// Of the operations of turns that come one after another, those that ended meanwhile.
    pub(crate) first: Latencies,
    /// Of the last operations of turns, all of a turn together, those that ended meanwhile.
    pub(crate) last: Latencies,
}

impl SeenBeside {
    /// Turns of others that ended in a second.
    pub(crate) fn turns_per_second(&self) -> f64 {
        self.last.count() as f64 / self.seconds
    }

    /// What was seen until so many turns had ended; `None` if fewer have.
    pub(crate) fn until(&self, turns: usize) -> Option<Self> {
        let mut ends_us: Vec<u64> = self.last.0.iter().map(|(_, end_us)| *end_us).collect();
        ends_us.sort_unstable();
        let us = turns.checked_sub(1).map_or(Some(0), |last| ends_us.get(last).copied())?;
        let (first, last) = (self.first.until(us), self.last.until(us));
        Some(Self { seconds: us as f64 / 1e6, first, last })
    }

    /// Turns that have ended at these times, in microseconds, without first operations.
    #[cfg(test)]
    pub(crate) fn of_turns(ends_us: &[u64]) -> Self {
        let seconds = ends_us.last().map_or(0.0, |us| *us as f64 / 1e6);
        let last = Latencies::of(ends_us.iter().map(|us| (1, *us)).collect());
        Self { seconds, last, ..Self::default() }
    }

    /// This and what was seen after it.
    pub(crate) fn and(self, other: Self) -> Self {
        let us = (self.seconds * 1e6).round() as u64;
        Self {
            seconds: self.seconds + other.seconds,
            first: self.first.and(us, other.first),
            last: self.last.and(us, other.last),
        }
    }
}

/// Numbers of the operations of others begin here.
const OTHERS: u64 = 1 << 63;

/// An exponentially distributed time with this mean, in microseconds.
fn exponential_us(random: &mut Random, mean_us: f64) -> u64 {
    let even = (random.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
    (-even.ln() * mean_us) as u64
}

/// The rest of a turn.
struct Rest<O> {
    /// When its operations under way were submitted, and how many they are.
    since_us: u64,
    under_way: usize,
    first: VecDeque<O>,
    /// Empty when they are under way.
    last: Vec<O>,
}

/// Turns that have begun.
struct Turns<O> {
    /// Operations that were submitted so far.
    submitted: u64,
    /// Turns by the number of the first operation under way of each.
    turns: BTreeMap<u64, Rest<O>>,
    /// Latencies of the first operations, and of the last ones of each turn, that have ended, and
    /// when they did.
    first_us: Vec<(u64, u64)>,
    last_us: Vec<(u64, u64)>,
}

impl<O> Turns<O> {
    fn new() -> Self {
        let (first_us, last_us) = (Vec::new(), Vec::new());
        Self { submitted: 0, turns: BTreeMap::new(), first_us, last_us }
    }

    /// Begins a turn that was due at this time.
    fn begin(&mut self, system: &mut impl System<Operation = O>, due_us: u64, turn: Turn<O>) {
        let Turn { first, last } = turn;
        self.go_on(system, Rest { since_us: due_us, under_way: 0, first: first.into(), last });
    }

    /// Submits the next operations of a turn that has none under way.
    fn go_on(&mut self, system: &mut impl System<Operation = O>, mut rest: Rest<O>) {
        let next = match rest.first.pop_front() {
            Some(first) => vec![first],
            None => std::mem::take(&mut rest.last),
        };
        rest.under_way = next.len();
        self.turns.insert(OTHERS + self.submitted, rest);
        for operation in next {
            system.submit(OTHERS + self.submitted, operation);
            self.submitted += 1;
        }
    }

    /// An operation has ended; returns whether its turn has.
    fn ended(&mut self, system: &mut impl System<Operation = O>, number: u64) -> bool {
        let now_us = system.now_us();
        let Some((&turn, rest)) = self.turns.range_mut(..=number).next_back() else { return false };
        rest.under_way -= 1;
        if rest.under_way > 0 {
            return false;
        }
        let Some(mut rest) = self.turns.remove(&turn) else { return false };
        let is_over = rest.last.is_empty();
        let latencies_us = if is_over { &mut self.last_us } else { &mut self.first_us };
        latencies_us.push((now_us - rest.since_us, now_us));
        if !is_over {
            rest.since_us = now_us;
            self.go_on(system, rest);
        }
        is_over
    }
}

impl Beside {
    /// Makes these operations, and for as long the turns that `next` gives to others, on a system
    /// on which nothing is under way.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if the system rests before all operations have ended, or did
    /// something wrong.
    pub(crate) fn run<S: System>(
        &self,
        system: &mut S,
        mut operations: impl Iterator<Item = S::Operation>,
        mut next: impl FnMut() -> Turn<S::Operation>,
        random: &mut Random,
    ) -> Result<SeenBeside, Problem> {
        let from_us = system.now_us();
        let (mut under_way, mut submitted, mut finished) = (0, 0, Vec::new());
        let mut turns = Turns::new();
        let mut due_us: Vec<u64> = match self.others {
            Others::None => Vec::new(),
            Others::Arriving(rate) => vec![from_us + exponential_us(random, 1e6 / rate)],
            Others::Terminals(count, mean_us) => {
                (0..count).map(|_| from_us + exponential_us(random, mean_us)).collect()
            }
        };
        let mut is_over = self.callers == 0;
        loop {
            while under_way < self.callers && !is_over {
                let Some(operation) = operations.next() else {
                    is_over = true;
                    break;
                };
                system.submit(submitted, operation);
                (submitted, under_way) = (submitted + 1, under_way + 1);
            }
            let now_us = system.now_us();
            while let Some(place) = due_us.iter().position(|us| *us <= now_us) {
                let due = due_us.swap_remove(place);
                turns.begin(system, due, next());
                if let Others::Arriving(rate) = self.others {
                    due_us.push(due + exponential_us(random, 1e6 / rate));
                }
            }
            if is_over && under_way == 0 && now_us >= from_us + self.us_min {
                break;
            }
            let times = [system.next_event_us(), due_us.iter().min().copied()];
            let Some(us) = times.into_iter().flatten().min() else {
                return Err(Problem::Simulation("nothing happens any more".to_owned()));
            };
            system.advance_to(us.max(now_us), &mut finished)?;
            for done in finished.drain(..) {
                if done.number < OTHERS {
                    under_way -= 1;
                } else if turns.ended(system, done.number)
                    && let Others::Terminals(_, mean_us) = self.others
                {
                    due_us.push(system.now_us() + exponential_us(random, mean_us));
                }
            }
        }
        let seconds = (system.now_us() - from_us) as f64 / 1e6;
        let since = |all: Vec<(u64, u64)>| {
            Latencies::of(all.into_iter().map(|(us, end_us)| (us, end_us - from_us)).collect())
        };
        Ok(SeenBeside { seconds, first: since(turns.first_us), last: since(turns.last_us) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::Line;
    use super::*;

    /// Performs one operation at a time; each takes as long as it says. At most so many.
    struct Server {
        now_us: u64,
        waiting: Vec<(u64, u64)>,
        left: u64,
    }

    impl System for Server {
        type Operation = u64;

        fn now_us(&self) -> u64 {
            self.now_us
        }

        fn submit(&mut self, number: u64, us: u64) {
            self.waiting.push((number, us));
        }

        fn next_event_us(&self) -> Option<u64> {
            let (_, us) = self.waiting.first()?;
            (self.left > 0).then_some(self.now_us + us)
        }

        fn advance_to(&mut self, us: u64, finished: &mut Vec<Finished>) -> Result<(), Problem> {
            let (number, _) = self.waiting.remove(0);
            finished.push(Finished { number, begun_us: self.now_us, found: None });
            self.now_us = us;
            self.left -= 1;
            Ok(())
        }

        fn traffic(&self) -> Traffic {
            Traffic { writes: 100 - self.left, ..Traffic::default() }
        }
    }

    fn run(callers: usize, left: u64) -> Result<Seen, Problem> {
        let mut server = Server { now_us: 0, waiting: Vec::new(), left };
        let mut number = 0;
        let load = Load { callers, warm_up: 10, measured: 40 };
        load.run(&mut server, || {
            number += 1;
            if number <= 10 { 1_000_000 } else { 2_000 }
        })
    }

    #[test]
    fn what_comes_after_the_warm_up_is_measured() {
        let seen = run(1, 100).expect("it ends");
        assert_eq!((seen.operations, seen.traffic.writes), (40, 40));
        assert!((seen.per_second - 500.0).abs() < 1e-6, "{}", seen.per_second);
        assert!((seen.latency_ms - 2.0).abs() < 1e-9 && (seen.service_ms - 2.0).abs() < 1e-9);
    }

    #[test]
    fn latency_has_the_time_in_which_others_are_served() {
        let seen = run(5, 100).expect("it ends");
        assert!((seen.per_second - 500.0).abs() < 1e-6, "{}", seen.per_second);
        assert!((seen.service_ms - 2.0).abs() < 1e-9, "{}", seen.service_ms);
        // The first four measured ones waited for some of the warm-up.
        let waited = 10.0 + 998.0 * f64::from(4 + 3 + 2 + 1) / 40.0;
        assert!((seen.latency_ms - waited).abs() < 1e-9, "{}", seen.latency_ms);
    }

    #[test]
    fn a_system_may_have_as_many_operations_as_it_wants() {
        let mut server = Server { now_us: 0, waiting: Vec::new(), left: 100 };
        let load = Load { callers: 1, warm_up: 10, measured: 40 };
        let seen = load.run_while(&mut server, || 2000, |server, _| server.waiting.len() < 5);
        let seen = seen.expect("it ends");
        assert!((seen.latency_ms - 10.0).abs() < 1e-9, "{}", seen.latency_ms);
    }

    #[test]
    fn operations_go_on_from_one_phase_to_the_next() {
        let mut server = Server { now_us: 0, waiting: Vec::new(), left: 100 };
        let mut phases = Phases::new(&mut server, |_, under_way| under_way < 5);
        phases.run(|| 1000, |server, _| server.now_us < 10_000).expect("it ends");
        let seen = phases.run(|| 2000, |_, ended| ended < 4).expect("it ends");
        // They were submitted before, and each has waited for the four before it. The first had
        // just ended.
        assert_eq!((seen.operations, seen.latency_ms), (4, 5.0));
        assert_eq!(phases.system().now_us, 13_000);
    }

    #[test]
    fn callers_and_others_are_both_seen() {
        let run = |others, us_min| {
            let beside = Beside { callers: 1, others, us_min };
            let own = std::iter::repeat_n(1000, 50);
            beside
                .run(&mut Line::default(), own, || 500.into(), &mut Random::new(1, "others"))
                .expect("it ends")
        };
        let alone = run(Others::None, 0);
        assert_eq!((alone.seconds, alone.last.count()), (0.05, 0));
        // Each of a terminal waits for one of the caller, and so the other way round; it is over
        // with the last one of the caller.
        let beside = run(Others::Terminals(1, 0.0), 0);
        assert_eq!((beside.seconds, beside.last.count()), (0.0745, 49));
        let mean_ms = beside.last.mean_ms().expect("some ended");
        assert!((mean_ms - 1.5).abs() < 0.02, "{mean_ms}");
        assert_eq!((alone.last.mean_ms(), alone.last.p99_ms()), (None, None));
        let arriving = run(Others::Arriving(400.0), 1_000_000);
        assert!((300.0..500.0).contains(&arriving.turns_per_second()), "{arriving:?}");
        assert!(arriving.last.p99_ms() >= arriving.last.mean_ms());
    }

    fn us_of(latencies: &Latencies) -> Vec<u64> {
        latencies.0.iter().map(|(us, _)| *us).collect()
    }

    /// Turns of terminals without a caller: a first operation of 200 us, a last one of 300 us.
    fn turns(others: Others, us_min: u64) -> (SeenBeside, Line) {
        let (mut line, beside) = (Line::default(), Beside { callers: 0, others, us_min });
        let next = || Turn { first: vec![200], last: vec![300] };
        let seen = beside.run(&mut line, std::iter::empty(), next, &mut Random::new(1, "turns"));
        (seen.expect("it ends"), line)
    }

    #[test]
    fn a_terminal_thinks_when_the_last_operation_of_its_turn_has_ended() {
        let (seen, _) = turns(Others::Terminals(1, 0.0), 10_000);
        assert_eq!(us_of(&seen.first), [200; 20]);
        assert_eq!((us_of(&seen.last), seen.seconds), (vec![300; 20], 0.01));
        let (seen, line) = turns(Others::Terminals(1, 1500.0), 1_000_000);
        // Each is submitted when the one before it has ended, so that nothing waits.
        assert!(seen.first.p99_ms() == Some(0.2) && seen.last.p99_ms() == Some(0.3), "{seen:?}");
        let rate = seen.turns_per_second();
        assert!((440.0..560.0).contains(&rate), "{rate} where a turn and its thought take 2 ms");
        let begins: Vec<u64> = line.begun.iter().map(|(us, _)| *us).collect();
        let thoughts: Vec<u64> = begins.chunks_exact(2).map(|turn| turn[1] - turn[0]).collect();
        assert!(thoughts.iter().all(|us| *us == 200), "no thought between the two operations");
    }

    #[test]
    fn terminals_take_turns_independently_of_each_other() {
        let (seen, line) = turns(Others::Terminals(2, 0.0), 10_000);
        let lengths: Vec<u64> = line.begun.iter().take(6).map(|(_, us)| *us).collect();
        assert_eq!(lengths, [200, 200, 300, 300, 200, 200]);
        // Each waits for the operation of the other: its own 200 and 300 us, and the same again.
        // One of them is half a turn behind, and only the very first operation waits for nothing.
        assert_eq!((seen.first.count(), seen.last.count()), (20, 20));
        assert_eq!((seen.first.mean_ms(), seen.last.mean_ms()), (Some(0.435), Some(0.55)));
    }

    #[test]
    fn a_turn_ends_when_all_that_it_submits_together_has_ended() {
        let (mut line, beside) = (
            Line::default(),
            Beside { callers: 0, others: Others::Terminals(1, 0.0), us_min: 9_000 },
        );
        let next = || Turn { first: vec![100, 200], last: vec![300, 400, 500] };
        let mut random = Random::new(1, "turns");
        let seen = beside.run(&mut line, std::iter::empty(), next, &mut random).expect("it ends");
        // One after another, then one behind the other on the line; six turns of 1.5 ms.
        assert_eq!(us_of(&seen.first), [vec![100; 6], vec![200; 6]].concat());
        assert_eq!(us_of(&seen.last), [1200; 6]);
        let begun: Vec<u64> = line.begun.iter().take(6).map(|(us, _)| *us).collect();
        assert_eq!(begun, [0, 100, 300, 600, 1000, 1500]);
    }

    #[test]
    fn what_was_seen_at_two_times_adds_up() {
        let seen = |us: [(u64, u64); 2]| SeenBeside {
            seconds: 2.0,
            last: Latencies::of(us.into()),
            ..SeenBeside::default()
        };
        let one = seen([(3000, 1_000_000), (1000, 2_000_000)]);
        let both = one.and(seen([(2000, 500_000), (2000, 1_500_000)]));
        assert_eq!((both.seconds, both.turns_per_second()), (4.0, 1.0));
        assert_eq!((both.last.mean_ms(), both.last.p99_ms()), (Some(2.0), Some(3.0)));
        assert_eq!(both.first.count(), 0);
        assert_eq!(both.until(3).map(|seen| seen.seconds), Some(2.5));
    }

    #[test]
    fn what_was_seen_until_some_turns_had_ended_is_a_part() {
        let (seen, _) = turns(Others::Terminals(1, 0.0), 10_000);
        let counts = |seen: SeenBeside| (seen.seconds, seen.first.count(), seen.last.count());
        assert_eq!(seen.until(4).map(counts), Some((0.002, 4, 4)));
        assert_eq!(seen.until(0).map(counts), Some((0.0, 0, 0)));
        assert_eq!(seen.until(20).map(counts), Some((0.01, 20, 20)));
        assert!(seen.until(21).is_none());
    }

    #[test]
    fn a_system_that_rests_is_a_problem() {
        assert!(matches!(run(2, 30), Err(Problem::Simulation(text)) if text.contains("30")));
    }
}
