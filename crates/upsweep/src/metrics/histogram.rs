//! A histogram of times, from one microsecond to more than an hour.
//!
//! The width of buckets doubles after every 32, so times have a relative precision of one part in
//! 32 (below 32 microseconds, of one microsecond). The upper bound of a bucket belongs to it. All
//! powers of two in microseconds are bounds; they are the buckets of the Prometheus text.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cells::{Kind, Metric, Sample, SampleValue};

/// Buckets from one power of two to the next.
const PARTS: u64 = 32;
/// The highest bound is 2 to this power, in microseconds: 72 minutes.
const POWER_MAX: u32 = 32;
/// Number of buckets; the last is for times above the highest bound.
const BUCKETS: usize = (POWER_MAX - PARTS.ilog2() + 1) as usize * PARTS as usize + 1;

/// A distribution of times, with their sum and the longest.
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    sum_ns: AtomicU64,
    longest_ns: AtomicU64,
}

/// The bucket of a time.
fn bucket_of(ns: u64) -> usize {
    let beyond = ns.div_ceil(1000).max(1) - 1;
    if beyond < PARTS {
        return beyond as usize;
    }
    let octave = beyond.ilog2() - PARTS.ilog2();
    let bucket = u64::from(octave) * PARTS + (beyond >> octave);
    usize::try_from(bucket).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// The upper bound of a bucket in microseconds; `None` for the last.
fn bound_us(bucket: usize) -> Option<u64> {
    let bucket = bucket as u64;
    let octave = (bucket / PARTS).saturating_sub(1);
    (bucket + 1 < BUCKETS as u64).then(|| (bucket - octave * PARTS + 1) << octave)
}

fn to_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn to_seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

impl Histogram {
    /// Records a time. Only one thread at a time may do that: the owner of the log or of the core,
    /// or the thread that holds its lock. Cost: three loads and at most three stores.
    #[inline]
    pub(crate) fn record(&self, time: Duration) {
        let ns = to_ns(time);
        let add = |to: &AtomicU64, more| {
            to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        add(&self.buckets[bucket_of(ns)], 1);
        add(&self.sum_ns, ns);
        if ns > self.longest_ns.load(Ordering::Relaxed) {
            self.longest_ns.store(ns, Ordering::Relaxed);
        }
    }

    /// As [`Histogram::record`], but from any thread at any time.
    pub(crate) fn record_shared(&self, time: Duration) {
        let ns = to_ns(time);
        self.buckets[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        self.longest_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// The sum of all times.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed))
    }

    /// The longest time.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_ns.load(Ordering::Relaxed))
    }

    /// The number of recorded times. Cost: a pass over the buckets.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts().into_iter().sum()
    }

    fn counts(&self) -> Vec<u64> {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect()
    }

    /// Every bound that is a power of two, in microseconds, with the number of times up to it; and
    /// the total number of times, at the same moment.
    pub(super) fn by_powers(&self) -> (Vec<(u64, u64)>, u64) {
        let mut total = 0;
        let mut powers = Vec::new();
        for (bucket, count) in self.counts().into_iter().enumerate() {
            total += count;
            if let Some(bound) = bound_us(bucket).filter(|bound| bound.is_power_of_two()) {
                powers.push((bound, total));
            }
        }
        (powers, total)
    }
}

/// A summary of a histogram, in seconds. Quantiles are at most one part in 32 too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Distribution {
    /// The number of recorded times.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The longest.
    pub longest: f64,
}

impl Distribution {
    /// The mean; zero if nothing was recorded.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }
}

impl Metric for Histogram {
    type Reading = Distribution;
    const KIND: Kind = Kind::Histogram;

    fn empty() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum_ns: AtomicU64::new(0),
            longest_ns: AtomicU64::new(0),
        }
    }

    fn read(&self) -> Distribution {
        let counts = self.counts();
        let count: u64 = counts.iter().sum();
        let longest = self.longest().as_secs_f64();
        let quantile = |part: f64| {
            let rank = ((count as f64 * part).ceil() as u64).max(1);
            let mut seen = 0;
            let bucket = counts.iter().position(|count| {
                seen += count;
                seen >= rank
            });
            let bound = bucket.and_then(bound_us).map(|us| to_seconds(us.saturating_mul(1000)));
            if count == 0 { 0.0 } else { bound.unwrap_or(longest).min(longest) }
        };
        Distribution {
            count,
            sum: self.sum().as_secs_f64(),
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
            longest,
        }
    }

    fn samples(&self) -> Vec<Sample<'_>> {
        vec![Sample { label: None, value: SampleValue::Times(self) }]
    }

    fn samples_of(reading: &Distribution) -> Vec<Sample<'static>> {
        vec![Sample { label: None, value: SampleValue::Summary(*reading) }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_bucket_holds_what_is_longer_than_the_bound_before_and_not_longer_than_its_own() {
        let mut before = 0;
        for bucket in 0..BUCKETS - 1 {
            let bound = bound_us(bucket).expect("only the last has none") * 1000;
            assert!(bound > before, "bucket {bucket}");
            assert_eq!((bucket_of(before + 1), bucket_of(bound)), (bucket, bucket));
            assert!(bound - before <= 1000.max(before / PARTS), "bucket {bucket} is too wide");
            before = bound;
        }
        assert_eq!(before, 1000 << POWER_MAX);
        assert_eq!((bucket_of(0), bucket_of(before + 1)), (0, BUCKETS - 1));
        assert_eq!((bucket_of(u64::MAX), bound_us(BUCKETS - 1)), (BUCKETS - 1, None));
    }

    #[test]
    fn times_are_told_apart_from_a_microsecond_to_an_hour() {
        for us in [1, 31, 32, 33, 255, 2_000_000, 3_600_000_000] {
            let histogram = Histogram::empty();
            let time = Duration::from_micros(us);
            histogram.record(time);
            // So that the median is not simply the longest time.
            histogram.record(2 * HOUR);
            let found = histogram.read();
            let seconds = time.as_secs_f64();
            assert!(
                (seconds..=seconds * (1.0 + 1.0 / 32.0)).contains(&found.p50),
                "{us}: {found:?}"
            );
            assert_eq!((found.count, found.longest), (2, 7200.0));
            assert_eq!(found.sum, (time + 2 * HOUR).as_secs_f64());
        }
    }

    #[test]
    fn quantiles_are_those_of_all_that_was_recorded_by_one_or_by_many() {
        let histogram = Histogram::empty();
        for us in 1..=500 {
            histogram.record(Duration::from_micros(us));
            histogram.record_shared(Duration::from_micros(500 + us));
        }
        let found = histogram.read();
        let is_near = |found: f64, us: f64| (us..=us * 1.04).contains(&(found * 1e6));
        assert!(is_near(found.p50, 500.0) && is_near(found.p99, 990.0), "{found:?}");
        assert!((found.mean() - 500.5e-6).abs() < 1e-9 && found.longest == 1e-3, "{found:?}");
        assert_eq!(found.p999, 0.001, "never longer than the longest");
        assert_eq!(Histogram::empty().read(), Distribution::default());
    }

    #[test]
    fn counts_by_powers_of_two_are_exact() {
        let histogram = Histogram::empty();
        for ns in [0, 1, 1000, 1001, 2000, 2001, 4_294_967_296_000, 4_294_967_296_001] {
            histogram.record(Duration::from_nanos(ns));
        }
        let (powers, total) = histogram.by_powers();
        assert_eq!((powers.len(), total), (33, 8));
        assert_eq!(powers[..3], [(1, 3), (2, 5), (4, 6)]);
        assert_eq!(powers[32], (1 << 32, 7));
    }
}
