//! The threads of a run: callers of the class, readers, scanners.
//!
//! In a closed loop a caller hands over its next updates when the last are acknowledged. In an open
//! loop calls are due at random times, whichever caller is free takes the next, and a latency
//! counts from when the call was due: what waits behind slow calls counts as slow too.
//!
//! A run that may be longer than it is asked to be goes on, second by second, until the engine's
//! state is steady.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::acknowledged::Acknowledged;
use super::recorder::Recorder;
use crate::engine::{Batch, Change, Durability, Engine};
use crate::failure::Failure;
use crate::workload::keys::Keys;
use crate::workload::random::Random;
use crate::workload::stream::{Operation, Shared, Stream};
use crate::workload::{Class, Workload};

/// Bytes of a thread's stack; only what is touched takes memory.
const STACK_BYTES: usize = 1 << 20;
/// Time between two looks whether the state is steady.
const LOOK: Duration = Duration::from_secs(1);
/// Longest sleep before a look whether a caller has failed.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// What is run.
pub(crate) struct Run<'a> {
    pub(crate) engine: &'a dyn Engine,
    pub(crate) keys: Keys,
    pub(crate) workload: Workload,
    pub(crate) class: Class,
    /// Length of the run at least.
    pub(crate) duration: Duration,
    /// Length at most; the run is longer than at least until the state is steady.
    pub(crate) duration_max: Duration,
    /// Updates per second of all callers together, open loop; none: closed loop.
    pub(crate) rate: Option<f64>,
    pub(crate) seed: u64,
    /// Number of the run in its store.
    pub(crate) number: u64,
    pub(crate) text: Option<&'a Path>,
    pub(crate) acknowledged: Option<&'a Acknowledged>,
}

/// When calls are due in an open loop, for all callers together. A schedule for each caller would
/// measure how single callers queue: where one is busy for 80 % of the time and its calls take
/// exponentially long, p99.9 is ten times the median by the theory of queues alone (M/M/1).
struct Schedule {
    next: Mutex<(Instant, Random)>,
    calls_per_second: f64,
    end: Instant,
}

impl Schedule {
    /// When the next call is due; none once the run is over.
    fn take(&self) -> Option<Instant> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let (due, random) = &mut *next;
        *due += Duration::from_secs_f64((random.exponential() / self.calls_per_second).min(3600.0));
        (*due < self.end).then_some(*due)
    }
}

/// What a thread does.
#[derive(Clone, Copy)]
struct Role<'a> {
    workload: Workload,
    /// Place among the threads that do the same, and their number.
    place: (usize, usize),
    /// Operations that are gathered before their updates are handed over.
    batch: usize,
    /// None: closed loop.
    schedule: Option<&'a Schedule>,
}

/// What the threads of a run tell each other.
#[derive(Default)]
struct Shown {
    /// Updates that were acknowledged.
    updates: AtomicU64,
    has_failed: AtomicBool,
    is_over: AtomicBool,
}

/// Ends the run when it goes, so that no caller goes on by itself.
struct End<'a>(&'a Shown);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

struct Caller<'a> {
    run: &'a Run<'a>,
    role: Role<'a>,
    stream: Stream<'a>,
    durability: Durability,
    recorder: Recorder,
    shown: &'a Shown,
    batch: Batch,
    issued: u64,
}

impl Run<'_> {
    /// Runs all threads to the end and gives what they have measured, and after what time callers
    /// were told to end.
    ///
    /// # Errors
    /// The first error of any thread, after which all end.
    pub(crate) fn execute(&self) -> Result<(Recorder, Duration), Failure> {
        let (started, shown) = (Instant::now(), Shown::default());
        let schedule = self.schedule(started);
        let inserted = Arc::new(AtomicU64::new(0));
        let mut all = Recorder::new(started);
        thread::scope(|scope| {
            let ending = End(&shown);
            let mut threads = Vec::new();
            for role in self.roles(schedule.as_ref()) {
                let (inserted, shown) = (Arc::clone(&inserted), &shown);
                let body = move || {
                    let caller = self.caller(role, inserted, started, shown);
                    let done = caller.and_then(|caller| caller.serve(started));
                    shown.has_failed.fetch_or(done.is_err(), Ordering::Relaxed);
                    done
                };
                let builder = thread::Builder::new().stack_size(STACK_BYTES);
                let refused = |error| Failure::Refused(format!("no thread: {error}"));
                threads.push(builder.spawn_scoped(scope, body).map_err(refused)?);
            }
            let lasted = self.wait(started, &shown);
            drop(ending);
            for thread in threads {
                let ended = thread.join();
                let recorder = ended.map_err(|_| Failure::engine("a caller panicked"))??;
                all.merge(&recorder);
            }
            Ok((all, lasted))
        })
    }

    /// Waits until the run is long enough, and steady or as long as it may be, or a caller has
    /// failed; how long that was.
    fn wait(&self, started: Instant, shown: &Shown) -> Duration {
        let mut until = self.duration;
        while !shown.has_failed.load(Ordering::Relaxed) {
            let left = until.saturating_sub(started.elapsed());
            if !left.is_zero() {
                thread::sleep(left.min(SLEEP_MAX));
                continue;
            }
            let turns = || self.engine.turns(shown.updates.load(Ordering::Relaxed));
            if until >= self.duration_max || turns().is_none_or(|turns| turns.are_enough()) {
                break;
            }
            until = (until + LOOK).min(self.duration_max);
        }
        started.elapsed()
    }

    fn schedule(&self, started: Instant) -> Option<Schedule> {
        // A sequence that no caller's stream has.
        let random = Random::new(self.seed ^ (self.number << 32), u64::MAX);
        self.rate.map(|rate| Schedule {
            next: Mutex::new((started, random)),
            calls_per_second: rate / self.class.batch() as f64,
            end: started + self.duration,
        })
    }

    fn roles<'a>(&self, schedule: Option<&'a Schedule>) -> Vec<Role<'a>> {
        let mut roles = Vec::new();
        let mut add = |count, workload, batch, schedule| {
            roles.extend((0..count).map(|place| Role {
                workload,
                place: (place, count),
                batch,
                schedule,
            }));
        };
        let (readers, scanners) = self.workload.readers_and_scanners();
        if self.workload.has_updates() {
            add(self.class.callers(), self.workload, self.class.batch(), schedule);
        }
        add(readers, Workload::Reads, 1, None);
        add(scanners, Workload::Scans, 1, None);
        roles
    }

    fn caller<'a>(
        &'a self,
        role: Role<'a>,
        inserted: Arc<AtomicU64>,
        started: Instant,
        shown: &'a Shown,
    ) -> Result<Caller<'a>, Failure> {
        let (keys, run, seed, text) = (self.keys, self.number, self.seed, self.text);
        let shared = Shared { keys, run, seed, inserted, text };
        Ok(Caller {
            run: self,
            role,
            stream: Stream::new(role.workload, shared, role.place)?,
            durability: self.class.durability(),
            recorder: Recorder::new(started),
            shown,
            batch: Batch::default(),
            issued: 0,
        })
    }
}

impl Caller<'_> {
    /// Calls until the run is over.
    fn serve(mut self, started: Instant) -> Result<Recorder, Failure> {
        match self.role.schedule {
            None => {
                while !self.shown.is_over.load(Ordering::Relaxed) {
                    self.turn(None)?;
                }
            }
            Some(schedule) => self.keep(schedule, started)?,
        }
        Ok(self.recorder)
    }

    /// Calls when calls are due. What was due before the end and is not begun long after it counts
    /// as a call that ends then.
    fn keep(&mut self, schedule: &Schedule, started: Instant) -> Result<(), Failure> {
        // The kernel may let a thread sleep 50 us longer otherwise; if it refuses, it does.
        nix::sys::prctl::set_timerslack(1).unwrap_or_default();
        let patience = self.run.duration * 2;
        while !self.shown.has_failed.load(Ordering::Relaxed) {
            let Some(due) = schedule.take() else { break };
            if started.elapsed() > patience {
                self.recorder.acknowledged(0, due);
                continue;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            self.turn(Some(due))?;
        }
        Ok(())
    }

    /// A batch of operations, due at a time or now.
    fn turn(&mut self, due: Option<Instant>) -> Result<(), Failure> {
        let engine = self.run.engine;
        self.batch.clear();
        for _ in 0..self.role.batch {
            let operation = self.stream.next()?;
            let since = Instant::now();
            match operation {
                Operation::Update(key, change) => self.batch.push(&key, change),
                Operation::Read(key) => {
                    engine.get(&key.to_vec())?;
                    self.recorder.read(since);
                }
                Operation::ReadAndIncrement(key) => {
                    engine.get(&key.to_vec())?;
                    self.recorder.read(since);
                    self.batch.push(&key, Change::Increment);
                }
                Operation::Scan(key, records) => {
                    engine.scan(&key.to_vec(), records)?;
                    self.recorder.scanned(since);
                }
            }
        }
        let updates = self.batch.updates();
        if updates.is_empty() {
            return Ok(());
        }
        let count = updates.len() as u64;
        let since = due.unwrap_or_else(Instant::now);
        self.issued += count;
        if let Some(noted) = self.run.acknowledged {
            noted.issue(self.role.place.0, self.issued)?;
        }
        engine.apply(&updates, self.durability)?;
        if let Some(noted) = self.run.acknowledged {
            noted.acknowledge(self.role.place.0, self.issued)?;
        }
        self.recorder.acknowledged(count, since);
        self.shown.updates.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_share_one_schedule_of_the_rate_that_was_asked_for() {
        let started = Instant::now();
        let (next, end) =
            (Mutex::new((started, Random::new(1, 2))), started + Duration::from_secs(10));
        let schedule = Schedule { next, calls_per_second: 1000.0, end };
        let taken = thread::scope(|scope| {
            let take_all = || std::iter::from_fn(|| schedule.take()).collect::<Vec<_>>();
            let callers: Vec<_> = (0..4).map(|_| scope.spawn(take_all)).collect();
            callers.into_iter().map(|caller| caller.join().expect("takes")).collect::<Vec<_>>()
        });
        for due in &taken {
            assert!(due.is_sorted(), "each caller gets what comes next");
        }
        let mut all = taken.concat();
        assert!((9_500..10_500).contains(&all.len()), "{}", all.len());
        assert!(all.iter().all(|due| (started..end).contains(due)));
        all.sort();
        all.dedup();
        assert!(all.len() >= 9_400, "no call is due for two: {}", all.len());
    }
}
