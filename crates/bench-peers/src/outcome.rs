//! What was measured, as it stands in `results.json`.
//!
//! Invariant: after every cell the file is replaced as a whole, so that it is complete whenever the
//! run is interrupted.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::workload::{Class, Workload};

/// Name of the file in the folder of results.
const FILE: &str = "results.json";
/// Shortest interval of a series, in milliseconds.
const INTERVAL_MS_MIN: u64 = 100;
/// Intervals of a series at most; they become longer in longer runs.
const INTERVALS_MAX: u64 = 1200;

/// Percentiles of a latency in microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) samples: u64,
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) p9999_us: f64,
    pub(crate) max_us: f64,
}

impl Latency {
    /// Names of what [`Latency::percentiles`] gives.
    pub(crate) const NAMES: [&str; 6] = ["p50", "p90", "p99", "p99.9", "p99.99", "max"];

    /// All percentiles, in microseconds.
    pub(crate) fn percentiles(&self) -> [f64; 6] {
        [self.p50_us, self.p90_us, self.p99_us, self.p999_us, self.p9999_us, self.max_us]
    }
}

/// What happened in each interval, and how long the longest of it took. Long runs have longer
/// intervals, for the memory of a series counts as that of the engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    /// Length of an interval, in milliseconds.
    #[serde(default = "interval_ms_min")]
    pub(crate) interval_ms: u64,
    /// How many: updates that were acknowledged, or pauses.
    #[serde(alias = "updates")]
    pub(crate) counts: Vec<u64>,
    /// The longest latency of calls that ended, or the longest pause, in microseconds.
    #[serde(alias = "latency_us_max")]
    pub(crate) longest_us: Vec<u64>,
}

fn interval_ms_min() -> u64 {
    INTERVAL_MS_MIN
}

impl Default for Series {
    fn default() -> Self {
        Self { interval_ms: INTERVAL_MS_MIN, counts: Vec::new(), longest_us: Vec::new() }
    }
}

impl Series {
    /// So many came to their end at this time after the start, and took so long.
    pub(crate) fn add(&mut self, after: Duration, count: u64, took: Duration) {
        let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        while after_ms / self.interval_ms >= INTERVALS_MAX {
            self.coarsen();
        }
        let interval = (after_ms / self.interval_ms) as usize;
        self.lengthen(interval + 1);
        self.counts[interval] += count;
        let longest = &mut self.longest_us[interval];
        *longest = (*longest).max(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// Takes in another series of the same run.
    pub(crate) fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        while self.interval_ms != other.interval_ms {
            let finer = if self.interval_ms < other.interval_ms { &mut *self } else { &mut other };
            finer.coarsen();
        }
        self.lengthen(other.counts.len());
        for (interval, count) in other.counts.iter().enumerate() {
            self.counts[interval] += count;
            let longest = &mut self.longest_us[interval];
            *longest = (*longest).max(other.longest_us[interval]);
        }
    }

    /// Makes one interval of two.
    fn coarsen(&mut self) {
        self.interval_ms *= 2;
        self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
        let longest = |pair: &[u64]| pair.iter().copied().max().unwrap_or(0);
        self.longest_us = self.longest_us.chunks(2).map(longest).collect();
    }

    fn lengthen(&mut self, intervals: usize) {
        if self.counts.len() < intervals {
            self.counts.resize(intervals, 0);
            self.longest_us.resize(intervals, 0);
        }
    }
}

/// The counters after a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Check {
    /// What they should add up to.
    pub(crate) expected: u64,
    /// What they add up to.
    pub(crate) found: u64,
}

/// When the machine itself did not run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pauses {
    /// Part of the processors' time that the host of a virtual machine gave to others, 0 to 1.
    pub(crate) stolen_fraction: f64,
    /// Pauses of any processor; none if real-time priority, which it takes to see them, is refused.
    pub(crate) series: Option<Series>,
}

impl Pauses {
    /// The longest, in milliseconds; none if they were not watched.
    pub(crate) fn longest_ms(&self) -> Option<f64> {
        let longest = self.series.as_ref()?.longest_us.iter().max();
        Some(longest.copied().unwrap_or(0) as f64 / 1e3)
    }
}

/// How a store came back after SIGKILL.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Recovery {
    /// Until the store was open and had answered a query.
    pub(crate) seconds: f64,
    /// Increments that were handed over before the kill.
    pub(crate) issued: u64,
    /// Increments that were acknowledged before the kill.
    pub(crate) acknowledged: u64,
    /// Increments that are there.
    pub(crate) found: u64,
}

/// What a child process has measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Length of the run, in seconds.
    pub(crate) seconds: f64,
    /// How long the deferred work took afterwards, in seconds.
    pub(crate) quiesce_seconds: f64,
    /// The rate that was asked for, in updates per second; none: as fast as it went.
    pub(crate) rate: Option<f64>,
    /// Updates that were acknowledged.
    pub(crate) updates: u64,
    /// By the length of the run.
    pub(crate) updates_per_second: f64,
    /// By the length of the run and of the deferred work.
    pub(crate) paid_updates_per_second: f64,
    pub(crate) reads_per_second: f64,
    pub(crate) scans_per_second: f64,
    /// Of calls that hand over updates.
    pub(crate) update_latency: Option<Latency>,
    pub(crate) read_latency: Option<Latency>,
    pub(crate) scan_latency: Option<Latency>,
    pub(crate) series: Series,
    /// None for what is not a run, and in older results.
    pub(crate) pauses: Option<Pauses>,
    /// Bytes that devices read, deferred work included.
    pub(crate) read_bytes: u64,
    /// Bytes that devices wrote, deferred work included.
    pub(crate) written_bytes: u64,
    /// Processor time of all threads, deferred work included, in seconds.
    pub(crate) cpu_seconds: f64,
    /// Allocated bytes of the store's files at the end.
    pub(crate) disk_bytes: u64,
    /// Most memory resident, mapped files included.
    pub(crate) resident_bytes_peak: u64,
    /// Most memory of the cgroup, page cache included; none without one.
    pub(crate) cgroup_bytes_peak: Option<u64>,
    pub(crate) check: Option<Check>,
    pub(crate) recovery: Option<Recovery>,
    /// Numbers of the engine's own.
    pub(crate) statistics: BTreeMap<String, f64>,
}

/// What tells a cell from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct CellName {
    pub(crate) ratio: u64,
    pub(crate) workload: Workload,
    pub(crate) class: Class,
    pub(crate) engine: String,
}

/// One run of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CellRun {
    #[serde(flatten)]
    pub(crate) name: CellName,
    /// From 0.
    pub(crate) repeat: u32,
    /// What was measured, or why nothing was.
    pub(crate) outcome: Result<Outcome, String>,
}

/// How a data set was loaded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) engine: String,
    pub(crate) ratio: u64,
    pub(crate) outcome: Result<Outcome, String>,
}

/// The machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) device: String,
    pub(crate) file_system: String,
}

/// What the device does without any engine, measured by fio past the page cache.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reference {
    /// Sequential reads of 1 MiB, bytes per second.
    pub(crate) read_bytes_per_second: f64,
    /// Sequential writes of 1 MiB, bytes per second.
    pub(crate) write_bytes_per_second: f64,
    /// Pairs of a random read and a random write of 4 KiB per second, 32 at a time.
    pub(crate) pairs_per_second: f64,
    /// Synchronous writes of 4 KiB, one at a time, per second.
    pub(crate) syncs_per_second: f64,
    /// Their median latency, in microseconds.
    pub(crate) sync_p50_us: f64,
    /// Their 99th percentile, in microseconds.
    pub(crate) sync_p99_us: f64,
}

/// What was asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) command: String,
    pub(crate) version: String,
    pub(crate) memory_bytes: u64,
    pub(crate) ratios: Vec<u64>,
    pub(crate) engines: Vec<String>,
    pub(crate) seconds: f64,
    pub(crate) warm_up_seconds: f64,
    /// How often cells were run.
    pub(crate) repeats: String,
    pub(crate) seed: u64,
    /// What enforced the limit of memory.
    pub(crate) limit: String,
    /// What text the sequences of words are from.
    pub(crate) text: String,
}

/// Everything.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) settings: Settings,
    pub(crate) machine: Machine,
    /// None if fio is missing or failed; the notes say why.
    pub(crate) reference: Option<Reference>,
    /// What a reader has to know: what was skipped and why, in what order stores took turns.
    pub(crate) notes: Vec<String>,
    pub(crate) loads: Vec<Load>,
    pub(crate) cells: Vec<CellRun>,
}

impl Results {
    /// Reads them from a folder.
    ///
    /// # Errors
    /// [`Failure::File`]; [`Failure::Refused`] if the file is not of this program.
    pub(crate) fn read(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(|error| Failure::file(&path, error))?;
        serde_json::from_str(&text)
            .map_err(|error| Failure::Refused(format!("{}: {error}", path.display())))
    }

    /// Replaces the file in a folder.
    ///
    /// # Errors
    /// [`Failure::File`].
    pub(crate) fn write(&self, folder: &Path) -> Result<(), Failure> {
        let (path, new) = (folder.join(FILE), folder.join("results.json.new"));
        let text =
            serde_json::to_string(self).map_err(|error| Failure::Refused(error.to_string()))?;
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| Failure::file(&path, error))
    }
}
