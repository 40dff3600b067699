//! What callers measure: how long each call took, and what was done in each second of the run.
//!
//! A call belongs to the second in which it ends. Each caller counts the present second by itself
//! and adds it to those of all callers when the next begins, so that calls share no lock.
//!
//! Invariant: memory is bounded by the callers and the length of the run; recording allocates
//! nothing but at the turn of a second.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest call that is told from others, in nanoseconds: an hour.
const CALL_NS_MAX: u64 = 3_600_000_000_000;
/// Longest of those in a second, in microseconds: an hour.
const CALL_US_MAX: u64 = 3_600_000_000;

/// One second of the run, of one caller or of all.
#[derive(Clone)]
pub(super) struct Second {
    pub(super) updates: u64,
    pub(super) longest: Duration,
    /// Microseconds, within 6 %: 4 KiB for each second.
    calls: Histogram<u32>,
}

impl Second {
    fn new() -> Self {
        let calls = Histogram::new_with_bounds(1, CALL_US_MAX, 1).expect("the bounds are valid");
        Self { updates: 0, longest: Duration::ZERO, calls }
    }

    fn clear(&mut self) {
        self.updates = 0;
        self.longest = Duration::ZERO;
        self.calls.reset();
    }

    fn add(&mut self, updates: u64, took: Duration) {
        self.updates += updates;
        self.longest = self.longest.max(took);
        self.calls.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    fn merge(&mut self, other: &Self) {
        self.updates += other.updates;
        self.longest = self.longest.max(other.longest);
        self.calls.add(&other.calls).expect("histograms have equal bounds");
    }

    /// Microseconds that this part of the calls took at most.
    pub(super) fn quantile_us(&self, quantile: f64) -> u64 {
        self.calls.value_at_quantile(quantile)
    }
}

/// The seconds of a run from its beginning, of all callers together.
#[derive(Default)]
pub(super) struct Series(Mutex<Vec<Second>>);

impl Series {
    fn add(&self, index: usize, second: &Second) {
        let mut seconds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seconds.len() <= index {
            seconds.resize_with(index + 1, Second::new);
        }
        seconds[index].merge(second);
    }

    /// The first `count` seconds.
    pub(super) fn into_seconds(self, count: usize) -> Vec<Second> {
        let mut seconds = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        seconds.resize_with(count, Second::new);
        seconds
    }
}

/// How long calls took, all together.
pub(super) struct Calls {
    /// Nanoseconds, within 1 %: 40 KiB.
    pub(super) took: Histogram<u64>,
    pub(super) longest: Duration,
    /// When the longest ended, from the beginning of the run.
    pub(super) longest_at: Duration,
}

impl Calls {
    pub(super) fn new() -> Self {
        let took = Histogram::new_with_bounds(1, CALL_NS_MAX, 2).expect("the bounds are valid");
        Self { took, longest: Duration::ZERO, longest_at: Duration::ZERO }
    }

    fn add(&mut self, at: Duration, took: Duration) {
        self.took.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        self.longest_is(took, at);
    }

    fn longest_is(&mut self, took: Duration, at: Duration) {
        if took > self.longest {
            (self.longest, self.longest_at) = (took, at);
        }
    }

    /// Takes in those of another caller.
    pub(super) fn merge(&mut self, other: &Self) {
        self.took.add(&other.took).expect("histograms have equal bounds");
        self.longest_is(other.longest, other.longest_at);
    }
}

/// What one caller measures.
pub(super) struct Recorder<'a> {
    all: &'a Series,
    index: usize,
    second: Second,
    calls: Calls,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(all: &'a Series) -> Self {
        Self { all, index: 0, second: Second::new(), calls: Calls::new() }
    }

    /// A call of so many updates ended at `at`, from the beginning of the run.
    pub(super) fn ended(&mut self, at: Duration, took: Duration, updates: u64) {
        let index = usize::try_from(at.as_secs()).unwrap_or(usize::MAX);
        if index > self.index {
            self.all.add(self.index, &self.second);
            self.second.clear();
            self.index = index;
        }
        self.second.add(updates, took);
        self.calls.add(at, took);
    }

    /// A call that was due had not begun when the run ended at `at`, so long after.
    pub(super) fn missed(&mut self, at: Duration, late: Duration) {
        self.calls.add(at, late);
    }

    pub(super) fn finish(self) -> Calls {
        self.all.add(self.index, &self.second);
        self.calls
    }
}

/// Rates of updates over the seconds of a run.
#[derive(Debug, PartialEq)]
pub(super) struct Rates {
    /// Mean of the first ten seconds.
    pub(super) first: f64,
    pub(super) median: f64,
    pub(super) mean: f64,
    /// Updates of the worst second, and which it was.
    pub(super) worst: (u64, usize),
    /// Seconds with less than half of the median.
    pub(super) slow_seconds: usize,
}

/// Seconds that count as the beginning.
pub(super) const FIRST_SECONDS: usize = 10;

impl Rates {
    /// Of the updates in each second; zero without any.
    pub(super) fn of(updates: &[u64]) -> Self {
        let mean =
            |updates: &[u64]| updates.iter().sum::<u64>() as f64 / updates.len().max(1) as f64;
        let mut sorted = updates.to_vec();
        sorted.sort_unstable();
        let middle = |half: usize| sorted.get(half).map_or(0.0, |updates| *updates as f64);
        let (low, high) = (sorted.len().saturating_sub(1) / 2, sorted.len() / 2);
        let median = f64::midpoint(middle(low), middle(high));
        let numbered = updates.iter().enumerate().map(|(second, updates)| (*updates, second));
        Self {
            first: mean(&updates[..updates.len().min(FIRST_SECONDS)]),
            median,
            mean: mean(updates),
            worst: numbered.min().unwrap_or((0, 0)),
            slow_seconds: updates.iter().filter(|u| (**u as f64) < median / 2.0).count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn callers_together_have_the_sum_of_what_each_has() {
        let series = Series::default();
        let mut all = Calls::new();
        for factor in [1, 2] {
            let mut one = Recorder::new(&series);
            one.ended(100 * MS, 5 * MS, 10);
            one.ended(900 * MS, factor * 7 * MS, 10);
            // Nothing ends in second 1; what ends after the last whole second is cut off.
            one.ended(2500 * MS, factor * 1600 * MS, 1);
            one.ended(3001 * MS, MS, 100);
            one.missed(3001 * MS, 2 * MS);
            all.merge(&one.finish());
        }
        let seconds = series.into_seconds(3);
        let found: Vec<_> = seconds.iter().map(|second| (second.updates, second.longest)).collect();
        assert_eq!(found, [(40, 14 * MS), (0, Duration::ZERO), (2, 3200 * MS)]);
        assert!((4700..=5400).contains(&seconds[0].quantile_us(0.5)), "5 ms within 6 %");
        assert_eq!(seconds[1].quantile_us(0.99), 0);
        assert_eq!((all.took.len(), all.longest, all.longest_at), (10, 3200 * MS, 2500 * MS));
    }

    #[test]
    fn a_run_without_a_call_has_empty_seconds() {
        let series = Series::default();
        Recorder::new(&series).finish();
        assert!(series.into_seconds(2).iter().all(|second| second.updates == 0));
    }

    #[test]
    fn rates_are_those_of_the_seconds() {
        let mut updates = vec![100; 10];
        updates.extend([10, 50, 49, 48, 10, 60, 70, 50]);
        let rates = Rates::of(&updates);
        assert_eq!((rates.first, rates.median), (100.0, 100.0));
        assert_eq!((rates.worst, rates.slow_seconds), ((10, 10), 4));
        assert!((rates.mean - 1347.0 / 18.0).abs() < 1e-9, "{rates:?}");
        assert!((Rates::of(&[1, 4, 3, 2]).median - 2.5).abs() < 1e-9);
        let none = Rates { first: 0.0, median: 0.0, mean: 0.0, worst: (0, 0), slow_seconds: 0 };
        assert_eq!(Rates::of(&[]), none);
    }
}
