//! The callers of a run.
//!
//! In a closed loop a caller hands over its next batch when the last call has returned. In an open
//! loop calls are due at random times, whichever caller is free takes the next, and a call counts
//! from when it was due: what waits behind slow calls is slow too. What was due and had not begun
//! when the run ended counts as a call that ended then, without an update.

use std::num::NonZeroU64;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use upsweep::layers::engine::LoggedUpdate;
use upsweep::layers::engine::registry::ModifierId;
use upsweep::{Durability, SpaceId, Store};

use super::records::Records;
use super::series::{Calls, Recorder, Series};
use crate::bench::Random;
use crate::failure::Failure;

/// Bytes of a thread's stack; only what is touched takes memory.
const STACK_BYTES: usize = 512 << 10;
/// Longest sleep of a caller, after which it looks whether the run is over.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// What is run.
pub(super) struct Run<'a> {
    pub(super) store: &'a Store,
    pub(super) space: SpaceId,
    pub(super) modifier: ModifierId,
    pub(super) records: Records,
    pub(super) callers: u64,
    /// Updates of a call.
    pub(super) batch: usize,
    pub(super) durability: Durability,
    /// Updates per second of all callers together; none: closed loop.
    pub(super) rate: Option<f64>,
    pub(super) seed: u64,
    pub(super) started: Instant,
}

/// What a run has measured.
pub(super) struct Measured {
    pub(super) series: Series,
    pub(super) calls: Calls,
    /// Updates that were due before the end, in an open loop.
    pub(super) due_updates: u64,
}

/// When calls are due in an open loop, for all callers together. A schedule for each caller would
/// measure how single callers queue.
struct Schedule {
    next: Mutex<(Instant, Random)>,
    calls_per_second: f64,
}

impl Schedule {
    /// When the next call is due.
    fn take(&self) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let (due, random) = &mut *next;
        // Above 0 and up to 1, so that its logarithm is finite.
        let part = ((random.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        *due += Duration::from_secs_f64((-part.ln() / self.calls_per_second).min(3600.0));
        *due
    }
}

/// Ends the run when it goes, so that nobody waits for callers that do not know.
struct End<'a>(&'a OnceLock<Instant>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.get_or_init(Instant::now);
    }
}

struct Caller<'a> {
    run: &'a Run<'a>,
    /// When the run has ended.
    end: &'a OnceLock<Instant>,
    random: Random,
    keys: Vec<u8>,
    recorder: Recorder<'a>,
    due_updates: u64,
}

impl Run<'_> {
    /// Runs all callers until `goes_on`, called at the end of each second with its number, says no.
    ///
    /// # Errors
    /// The first error of any caller, after which all end.
    pub(super) fn execute(
        &self,
        mut goes_on: impl FnMut(u64) -> bool,
    ) -> Result<Measured, Failure> {
        let (series, end) = (Series::default(), OnceLock::new());
        let schedule = self.schedule();
        let (mut calls, mut due_updates) = (Calls::new(), 0);
        thread::scope(|scope| {
            let ending = End(&end);
            let mut threads = Vec::new();
            for place in 1..=self.callers {
                let caller = self.caller(place, &series, &end);
                let schedule = schedule.as_ref();
                let builder = thread::Builder::new().stack_size(STACK_BYTES);
                let thread = builder.spawn_scoped(scope, move || caller.serve(schedule));
                threads.push(thread.map_err(|e| Failure::Refused(format!("no thread: {e}")))?);
            }
            for second in 0.. {
                let until = self.started + Duration::from_secs(second + 1);
                sleep_until(until, || end.get().is_some());
                if end.get().is_some() || !goes_on(second) {
                    break;
                }
            }
            drop(ending);
            for thread in threads {
                let ended = thread.join();
                let panicked = |_| Failure::Refused("a caller panicked".to_owned());
                let (mine, due) = ended.map_err(panicked)??;
                calls.merge(&mine);
                due_updates += due;
            }
            Ok::<(), Failure>(())
        })?;
        Ok(Measured { series, calls, due_updates })
    }

    fn schedule(&self) -> Option<Schedule> {
        self.rate.map(|rate| Schedule {
            next: Mutex::new((self.started, Random::new(self.seed))),
            calls_per_second: rate / self.batch as f64,
        })
    }

    fn caller<'a>(
        &'a self,
        place: u64,
        series: &'a Series,
        end: &'a OnceLock<Instant>,
    ) -> Caller<'a> {
        Caller {
            run: self,
            end,
            random: Random::new(self.seed ^ (place << 32)),
            keys: Vec::with_capacity(self.batch * self.records.key_bytes),
            recorder: Recorder::new(series),
            due_updates: 0,
        }
    }
}

impl Caller<'_> {
    /// Calls until the run is over; gives what calls took, and the updates that were due.
    fn serve(mut self, schedule: Option<&Schedule>) -> Result<(Calls, u64), Failure> {
        let ending = End(self.end);
        match schedule {
            None => {
                while self.end.get().is_none() {
                    self.turn(None)?;
                }
            }
            Some(schedule) => self.keep(schedule)?,
        }
        // The run is over already, unless this caller has failed.
        drop(ending);
        Ok((self.recorder.finish(), self.due_updates))
    }

    /// Calls when calls are due.
    fn keep(&mut self, schedule: &Schedule) -> Result<(), Failure> {
        // The kernel may let a thread sleep 50 us longer otherwise; if it refuses, it does.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).unwrap_or_default();
        let end = self.end;
        loop {
            let due = schedule.take();
            sleep_until(due, || end.get().is_some());
            if let Some(end) = end.get() {
                self.count_missed(schedule, due, *end);
                return Ok(());
            }
            self.turn(Some(due))?;
            self.due_updates += self.run.batch as u64;
        }
    }

    /// The run is over: what is due since before the end, from `due` on, is served no more.
    fn count_missed(&mut self, schedule: &Schedule, mut due: Instant, end: Instant) {
        while due < end {
            self.recorder.missed(end - self.run.started, end - due);
            self.due_updates += self.run.batch as u64;
            due = schedule.take();
        }
    }

    /// A call, due at a time or now.
    fn turn(&mut self, due: Option<Instant>) -> Result<(), Failure> {
        let Run { store, space, modifier, records, batch, durability, started, .. } = *self.run;
        self.keys.clear();
        for _ in 0..batch {
            records.push_key(self.random.below(records.number), &mut self.keys);
        }
        let one = 1i64.to_le_bytes();
        let keys = self.keys.chunks(records.key_bytes);
        let updates: Vec<LoggedUpdate<'_>> =
            keys.map(|key| LoggedUpdate { space, modifier, key, operand: &one }).collect();
        let since = due.unwrap_or_else(Instant::now);
        // A ticket of a durable call has been waited on; for the others nobody waits.
        drop(store.blocks().modify(&updates, durability)?);
        let now = Instant::now();
        self.recorder.ended(now - started, now - since, batch as u64);
        Ok(())
    }
}

/// Sleeps until then, or until `is_over`.
fn sleep_until(then: Instant, is_over: impl Fn() -> bool) {
    while !is_over() {
        let left = then.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(SLEEP_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_share_one_schedule_of_the_rate_that_was_asked_for() {
        let started = Instant::now();
        let end = started + Duration::from_secs(10);
        let schedule =
            Schedule { next: Mutex::new((started, Random::new(1))), calls_per_second: 1000.0 };
        let taken = thread::scope(|scope| {
            let next = || Some(schedule.take()).filter(|due| *due < end);
            let take_all = move || std::iter::from_fn(next).collect::<Vec<_>>();
            let callers: Vec<_> = (0..4).map(|_| scope.spawn(take_all)).collect();
            callers.into_iter().map(|caller| caller.join().expect("takes")).collect::<Vec<_>>()
        });
        assert!(taken.iter().all(|due| due.is_sorted()), "each caller gets what comes next");
        let mut all = taken.concat();
        assert!((9_500..10_500).contains(&all.len()), "{}", all.len());
        all.sort();
        // Half of exponential gaps are below ln 2 of the mean.
        let gaps = all.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64());
        let short = gaps.filter(|gap| *gap < 0.000_693).count();
        assert!((4_500..5_500).contains(&short), "{short}");
    }

    #[test]
    fn what_was_due_and_not_begun_counts_as_late() {
        let started = Instant::now();
        let end = started + Duration::from_secs(1);
        let store = crate::bench::steady::tests::store();
        let run = Run {
            store: &store.1,
            space: SpaceId::NONE,
            modifier: ModifierId(0),
            records: Records { number: 1, key_bytes: 8, value_bytes: 8 },
            callers: 1,
            batch: 10,
            durability: Durability::Wait,
            rate: Some(1000.0),
            seed: 1,
            started,
        };
        let (series, over) = (Series::default(), OnceLock::from(end));
        let schedule = run.schedule().expect("an open loop");
        let (calls, due) = run.caller(1, &series, &over).serve(Some(&schedule)).ok().expect("ends");
        assert_eq!(due, 10 * calls.took.len());
        assert!((50..150).contains(&calls.took.len()), "100 a second: {}", calls.took.len());
        assert!(calls.longest <= end - started && calls.longest_at == end - started);
        assert_eq!(series.into_seconds(1)[0].updates, 0);
    }
}
