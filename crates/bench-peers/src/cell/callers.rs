//! The threads of a run: callers of the class, readers, scanners.
//!
//! In a closed loop a caller hands over its next updates when the last are acknowledged. In an open
//! loop each caller has a schedule, with random times between calls, and a latency counts from when
//! the call was due: what waits behind a slow call counts as slow too.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::acknowledged::Acknowledged;
use super::recorder::Recorder;
use crate::engine::{Change, Durability, Engine, Update};
use crate::failure::Failure;
use crate::workload::keys::Keys;
use crate::workload::random::Random;
use crate::workload::stream::{Operation, Shared, Stream};
use crate::workload::{Class, Workload};

/// Bytes of a thread's stack; only what is touched takes memory.
const STACK_BYTES: usize = 1 << 20;

/// What is run.
pub(crate) struct Run<'a> {
    pub(crate) engine: &'a dyn Engine,
    pub(crate) keys: Keys,
    pub(crate) workload: Workload,
    pub(crate) class: Class,
    pub(crate) duration: Duration,
    /// Updates per second of all callers together, open loop; none: closed loop.
    pub(crate) rate: Option<f64>,
    pub(crate) seed: u64,
    /// Number of the run in its store.
    pub(crate) number: u64,
    pub(crate) text: Option<&'a Path>,
    pub(crate) acknowledged: Option<&'a Acknowledged>,
}

/// What a thread does.
#[derive(Clone, Copy)]
struct Role {
    workload: Workload,
    /// Place among the threads that do the same, and their number.
    place: (usize, usize),
    /// Operations that are gathered before their updates are handed over.
    batch: usize,
    /// Calls per second; none: closed loop.
    rate: Option<f64>,
}

struct Caller<'a> {
    run: &'a Run<'a>,
    role: Role,
    stream: Stream<'a>,
    durability: Durability,
    recorder: Recorder,
    updates: Vec<Update>,
    issued: u64,
}

impl Run<'_> {
    /// Runs all threads to the end and gives what they have measured.
    ///
    /// # Errors
    /// The first error of any thread, after which all end.
    pub(crate) fn execute(&self) -> Result<Recorder, Failure> {
        let (roles, started, has_failed) = (self.roles(), Instant::now(), AtomicBool::new(false));
        let inserted = Arc::new(AtomicU64::new(0));
        let mut all = Recorder::new(started);
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for role in roles {
                let (inserted, has_failed) = (Arc::clone(&inserted), &has_failed);
                let body = move || {
                    let caller = self.caller(role, inserted, started);
                    let done = caller.and_then(|caller| caller.serve(started, has_failed));
                    has_failed.fetch_or(done.is_err(), Ordering::Relaxed);
                    done
                };
                let builder = thread::Builder::new().stack_size(STACK_BYTES);
                let refused = |error| Failure::Refused(format!("no thread: {error}"));
                threads.push(builder.spawn_scoped(scope, body).map_err(refused)?);
            }
            for thread in threads {
                let ended = thread.join();
                let recorder = ended.map_err(|_| Failure::engine("a caller panicked"))??;
                all.merge(&recorder);
            }
            Ok(all)
        })
    }

    fn roles(&self) -> Vec<Role> {
        let mut roles = Vec::new();
        let mut add = |count, workload, batch, rate| {
            roles.extend((0..count).map(|place| Role {
                workload,
                place: (place, count),
                batch,
                rate,
            }));
        };
        let (readers, scanners) = self.workload.readers_and_scanners();
        if self.workload.has_updates() {
            let (callers, batch) = (self.class.callers(), self.class.batch());
            let rate = self.rate.map(|rate| rate / (callers * batch) as f64);
            add(callers, self.workload, batch, rate);
        }
        add(readers, Workload::Reads, 1, None);
        add(scanners, Workload::Scans, 1, None);
        roles
    }

    fn caller(
        &self,
        role: Role,
        inserted: Arc<AtomicU64>,
        started: Instant,
    ) -> Result<Caller<'_>, Failure> {
        let (keys, run, seed, text) = (self.keys, self.number, self.seed, self.text);
        let shared = Shared { keys, run, seed, inserted, text };
        Ok(Caller {
            run: self,
            role,
            stream: Stream::new(role.workload, shared, role.place)?,
            durability: self.class.durability(),
            recorder: Recorder::new(started),
            updates: Vec::with_capacity(role.batch),
            issued: 0,
        })
    }
}

impl Caller<'_> {
    /// Calls until the run is over.
    fn serve(mut self, started: Instant, has_failed: &AtomicBool) -> Result<Recorder, Failure> {
        let goes_on = || !has_failed.load(Ordering::Relaxed);
        match self.role.rate {
            None => {
                let end = started + self.run.duration;
                while goes_on() && Instant::now() < end {
                    self.turn(None)?;
                }
            }
            Some(rate) => self.keep_schedule(started, rate, goes_on)?,
        }
        Ok(self.recorder)
    }

    /// Calls when calls are due. What was due before the end and is not begun long after it counts
    /// as a call that ends then.
    fn keep_schedule(
        &mut self,
        started: Instant,
        rate: f64,
        goes_on: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        // The kernel may let a thread sleep 50 us longer otherwise; if it refuses, it does.
        nix::sys::prctl::set_timerslack(1).unwrap_or_default();
        let place = self.role.place.0 as u64;
        let mut random = Random::new(self.run.seed, (self.run.number << 16) ^ place);
        let (mut due, patience) = (started, self.run.duration * 2);
        while goes_on() {
            due += Duration::from_secs_f64((random.exponential() / rate).min(3600.0));
            if due >= started + self.run.duration {
                break;
            }
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
        self.updates.clear();
        for _ in 0..self.role.batch {
            let operation = self.stream.next()?;
            let since = Instant::now();
            match operation {
                Operation::Update(update) => self.updates.push(update),
                Operation::Read(key) => {
                    engine.get(key.as_bytes())?;
                    self.recorder.read(since);
                }
                Operation::ReadAndIncrement(key) => {
                    engine.get(key.as_bytes())?;
                    self.recorder.read(since);
                    self.updates.push(Update { key, change: Change::Increment });
                }
                Operation::Scan(key, records) => {
                    engine.scan(key.as_bytes(), records)?;
                    self.recorder.scanned(since);
                }
            }
        }
        if self.updates.is_empty() {
            return Ok(());
        }
        let since = due.unwrap_or_else(Instant::now);
        self.issued += self.updates.len() as u64;
        if let Some(noted) = self.run.acknowledged {
            noted.issue(self.role.place.0, self.issued)?;
        }
        engine.apply(&self.updates, self.durability)?;
        if let Some(noted) = self.run.acknowledged {
            noted.acknowledge(self.role.place.0, self.issued)?;
        }
        self.recorder.acknowledged(self.updates.len() as u64, since);
        Ok(())
    }
}
