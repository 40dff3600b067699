//! What a thread measures while it runs: latencies, and counts over time.
//!
//! Invariant: memory is bounded by the length of the run; recording does not allocate but once for
//! each interval of time.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::outcome::{Latency, Series};

/// Longest latency that is told from others, in nanoseconds: ten minutes.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// Latencies of one kind of operation.
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    fn new() -> Self {
        // Two digits: buckets of 1 %, 30 KiB for each thread.
        Self(Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("the bounds are valid"))
    }

    fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The percentiles in microseconds; none without samples.
    pub(crate) fn summary(&self) -> Option<Latency> {
        let at = |quantile: f64| self.0.value_at_quantile(quantile) as f64 / 1e3;
        (!self.0.is_empty()).then(|| Latency {
            samples: self.0.len(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            p9999_us: at(0.9999),
            max_us: self.0.max() as f64 / 1e3,
        })
    }
}

/// What one thread, or all together, have measured.
pub(crate) struct Recorder {
    started: Instant,
    pub(crate) updates: u64,
    pub(crate) reads: u64,
    pub(crate) scans: u64,
    /// Of calls that hand over updates.
    pub(crate) update_latencies: Latencies,
    pub(crate) read_latencies: Latencies,
    pub(crate) scan_latencies: Latencies,
    pub(crate) series: Series,
}

impl Recorder {
    /// Of a run that started then.
    pub(crate) fn new(started: Instant) -> Self {
        Self {
            started,
            updates: 0,
            reads: 0,
            scans: 0,
            update_latencies: Latencies::new(),
            read_latencies: Latencies::new(),
            scan_latencies: Latencies::new(),
            series: Series::default(),
        }
    }

    /// So many updates, acknowledged now, were handed over (or due) at `since`.
    pub(crate) fn acknowledged(&mut self, updates: u64, since: Instant) {
        let latency = since.elapsed();
        self.updates += updates;
        self.update_latencies.record(latency);
        self.series.add(self.started.elapsed(), updates, latency);
    }

    /// A point read has just ended.
    pub(crate) fn read(&mut self, since: Instant) {
        self.reads += 1;
        self.read_latencies.record(since.elapsed());
    }

    /// A scan has just ended.
    pub(crate) fn scanned(&mut self, since: Instant) {
        self.scans += 1;
        self.scan_latencies.record(since.elapsed());
    }

    /// Takes in what another thread of the same run has measured.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.updates += other.updates;
        self.reads += other.reads;
        self.scans += other.scans;
        for (mine, theirs) in [
            (&mut self.update_latencies, &other.update_latencies),
            (&mut self.read_latencies, &other.read_latencies),
            (&mut self.scan_latencies, &other.scan_latencies),
        ] {
            mine.0.add(&theirs.0).expect("histograms have equal bounds");
        }
        self.series.merge(&other.series);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_samples() {
        let mut latencies = Latencies::new();
        assert!(latencies.summary().is_none());
        (1..=10_000).for_each(|us| latencies.record(Duration::from_micros(us)));
        let found = latencies.summary().expect("samples");
        let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.01;
        assert_eq!(found.samples, 10_000);
        assert!(near(found.p50_us, 5_000.0), "{found:?}");
        assert!(near(found.p90_us, 9_000.0), "{found:?}");
        assert!(near(found.p99_us, 9_900.0), "{found:?}");
        assert!(near(found.p999_us, 9_990.0), "{found:?}");
        assert!(near(found.p9999_us, 9_999.0), "{found:?}");
        assert!(near(found.max_us, 10_000.0), "{found:?}");
    }

    #[test]
    fn threads_together_have_the_sum_of_what_each_has() {
        let started = Instant::now();
        let mut all = Recorder::new(started);
        for updates in [64, 1] {
            let mut one = Recorder::new(started);
            one.acknowledged(updates, started);
            one.read(started);
            all.merge(&one);
        }
        assert_eq!((all.updates, all.reads, all.scans), (65, 2, 0));
        assert_eq!(all.series.counts.iter().sum::<u64>(), 65);
        assert_eq!(all.read_latencies.summary().expect("samples").samples, 2);
    }

    #[test]
    fn long_runs_have_longer_intervals_and_not_more_of_them() {
        let (mut long, mut short) = (Series::default(), Series::default());
        for second in 0..3600 {
            long.add(Duration::from_secs(second), 2, Duration::from_micros(second));
        }
        short.add(Duration::from_secs(1), 5, Duration::from_secs(9));
        assert!(long.counts.len() <= 1200, "{}", long.counts.len());
        for (mut all, other) in [(long.clone(), &short), (short.clone(), &long)] {
            all.merge(other);
            assert_eq!(all.counts.iter().sum::<u64>(), 2 * 3600 + 5);
            assert_eq!(all.interval_ms, long.interval_ms);
            assert_eq!((all.longest_us[0], all.longest_us.last()), (9_000_000, Some(&3599)));
        }
    }
}
