//! What was measured, as it stands in `results.json`.
//!
//! Invariant: after every cell the file is replaced as a whole, so that it is complete whenever the
//! run is interrupted.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cell::resources::Used;
use crate::engine::{KEY_BYTES_MIN, Turns};
use crate::failure::Failure;
use crate::spread::Spread;
use crate::workload::{Class, Workload};

/// Name of the file in the folder of results.
const FILE: &str = "results.json";
/// Shortest interval of a series, in milliseconds. Doubled thrice it is a second, so runs of up to
/// twenty minutes can be seen second by second.
const INTERVAL_MS_MIN: u64 = 125;
/// Intervals in results that do not say how long they are.
const INTERVAL_MS_BEFORE: u64 = 100;
/// What settings say where no text was read.
pub(crate) const NO_TEXT: &str = "none";
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
    #[serde(default = "interval_ms_before")]
    pub(crate) interval_ms: u64,
    /// How many: updates that were acknowledged, or pauses.
    #[serde(alias = "updates")]
    pub(crate) counts: Vec<u64>,
    /// The longest latency of calls that ended, or the longest pause, in microseconds.
    #[serde(alias = "latency_us_max")]
    pub(crate) longest_us: Vec<u64>,
}

fn interval_ms_before() -> u64 {
    INTERVAL_MS_BEFORE
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

    /// The counts of the first whole seconds; none if no intervals add up to a second.
    fn seconds(&self, count: usize) -> Option<Vec<u64>> {
        if !1000u64.is_multiple_of(self.interval_ms) {
            return None;
        }
        let of_second = self.counts.chunks((1000 / self.interval_ms) as usize);
        let mut seconds: Vec<u64> = of_second.map(|counts| counts.iter().sum()).collect();
        seconds.resize(count, 0);
        Some(seconds)
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
    /// Length of the run, in seconds, to the end of the last call.
    pub(crate) seconds: f64,
    /// When callers were told to end, in seconds; none in older results.
    pub(crate) callers_seconds: Option<f64>,
    /// Of increments: how often what was held back had been replaced; none if nothing is.
    pub(crate) turns: Option<Turns>,
    /// Of increments: whether the state was steady at the end; none in older results.
    pub(crate) is_steady: Option<bool>,
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
    /// What was used before the deferred work; none in older results.
    pub(crate) in_run: Option<Used>,
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

impl Outcome {
    /// Updates in each whole second of the run; none if there were no updates, not one whole
    /// second, or intervals are too long to tell.
    pub(crate) fn updates_by_second(&self) -> Option<Vec<u64>> {
        let count = self.callers_seconds.unwrap_or(self.seconds) as usize;
        let is_run = self.update_latency.is_some() && count > 0;
        self.series.seconds(count).filter(|_| is_run)
    }

    /// The rate of the run: its median second; its mean if seconds cannot be told.
    pub(crate) fn rate_of_run(&self) -> f64 {
        let seconds = self.updates_by_second();
        seconds.map_or(self.updates_per_second, |seconds| {
            Spread::of(seconds.iter().map(|updates| *updates as f64).collect()).median
        })
    }

    /// What a load that lasts can be measured by: the rate of a run in steady state; of any other,
    /// the rate with all deferred work paid.
    pub(crate) fn lasting_rate(&self) -> f64 {
        match self.is_steady {
            Some(true) => self.rate_of_run(),
            _ => self.paid_updates_per_second,
        }
    }
}

/// Records that are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct DataSet {
    /// Their bytes as a multiple of the memory.
    pub(crate) ratio: u64,
    /// Bytes of a key.
    #[serde(default = "key_bytes_before")]
    pub(crate) key_bytes: u8,
}

/// Bytes of keys in results that do not say.
fn key_bytes_before() -> u8 {
    KEY_BYTES_MIN
}

/// What tells a cell from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct CellName {
    #[serde(flatten)]
    pub(crate) set: DataSet,
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
    #[serde(flatten)]
    pub(crate) set: DataSet,
    pub(crate) outcome: Result<Outcome, String>,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) device: String,
    pub(crate) file_system: String,
}

impl Machine {
    /// Whether runs on both can be compared. After an update of the system the kernel is another,
    /// and has a little more or less of the memory for itself.
    fn is_comparable(&self, other: &Self) -> bool {
        let parts = |machine: &Self| {
            let names = [&machine.processor, &machine.device, &machine.file_system];
            (names.map(Clone::clone), machine.processors)
        };
        let apart = self.memory_bytes.abs_diff(other.memory_bytes);
        parts(self) == parts(other) && apart <= self.memory_bytes / 100
    }
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
    /// In the order in which they were run.
    pub(crate) engines: Vec<String>,
    /// How each engine is configured, in a sentence.
    #[serde(default)]
    pub(crate) configurations: BTreeMap<String, String>,
    /// Length of a run, but for increments where they have their own.
    pub(crate) seconds: f64,
    /// Length of a run of increments, at least and at most; none in older results.
    pub(crate) increments_seconds: Option<(f64, f64)>,
    pub(crate) seed: u64,
    /// What enforced the limit of memory.
    pub(crate) limit: String,
    /// What text the sequences of words are from.
    pub(crate) text: String,
}

impl Settings {
    /// Each setting that must be the same for cells to be compared, with its name.
    fn compared(&self) -> [(&'static str, String); 6] {
        [
            ("version", self.version.clone()),
            ("memory", self.memory_bytes.to_string()),
            ("length of runs", self.seconds.to_string()),
            ("length of runs of increments", format!("{:?}", self.increments_seconds)),
            ("seed", self.seed.to_string()),
            ("limit", self.limit.clone()),
        ]
    }
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

    /// Whether a folder has any.
    pub(crate) fn exist(folder: &Path) -> bool {
        folder.join(FILE).exists()
    }

    /// What the runs of a cell have measured, as far as they have.
    pub(crate) fn outcomes(&self, name: &CellName) -> impl Iterator<Item = &Outcome> {
        let runs = self.cells.iter().filter(move |run| run.name == *name);
        runs.filter_map(|run| run.outcome.as_ref().ok())
    }

    /// Adds a run of a cell, behind those that there are of it.
    pub(crate) fn add(&mut self, name: CellName, outcome: Result<Outcome, String>) {
        let before = self.cells.iter().filter(|run| run.name == name).count();
        let repeat = u32::try_from(before).unwrap_or(u32::MAX);
        self.cells.push(CellRun { name, repeat, outcome });
    }

    /// Prepares for the cells of one more run with these settings on this machine.
    ///
    /// # Errors
    /// [`Failure::Refused`] if its cells could not be compared with those that are there.
    pub(crate) fn admit(&mut self, added: Settings, machine: &Machine) -> Result<(), Failure> {
        let differ = |what: &str, here: &str, there: &str| {
            Failure::Refused(format!(
                "these results are of another {what}: {there}, not {here}; name another folder"
            ))
        };
        for ((name, here), (_, there)) in added.compared().iter().zip(&self.settings.compared()) {
            if here != there {
                return Err(differ(name, here, there));
            }
        }
        if !machine.is_comparable(&self.machine) {
            let texts = [machine, &self.machine].map(|machine| format!("{machine:?}"));
            return Err(differ("machine", &texts[0], &texts[1]));
        }
        for (engine, here) in added.configurations {
            let there = self.settings.configurations.entry(engine).or_insert_with(|| here.clone());
            if *there != here {
                return Err(differ("configuration", &here, there));
            }
        }
        for engine in added.engines {
            if !self.settings.engines.contains(&engine) {
                self.settings.engines.push(engine);
            }
        }
        if self.settings.text == NO_TEXT {
            self.settings.text = added.text;
        } else if added.text != NO_TEXT && added.text != self.settings.text {
            return Err(differ("text", &added.text, &self.settings.text));
        }
        self.notes.push(format!("added by `{}`", added.command));
        if machine.kernel != self.machine.kernel {
            self.notes.push(format!("Linux {} then", machine.kernel));
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(engine: &str) -> Settings {
        Settings {
            command: format!("bench-peers {engine}"),
            memory_bytes: 1 << 20,
            engines: vec![engine.to_owned()],
            configurations: [(engine.to_owned(), "usual".to_owned())].into(),
            increments_seconds: Some((60.0, 300.0)),
            text: NO_TEXT.to_owned(),
            ..Settings::default()
        }
    }

    #[test]
    fn what_can_be_compared_is_added_and_nothing_else() {
        let machine = Machine::default();
        let mut results = Results { settings: settings("lmdb"), ..Results::default() };
        let with_text = Settings { text: "a book".to_owned(), ..settings("redb") };
        results.admit(with_text, &machine).expect("the same but for engine and text");
        results.admit(settings("lmdb"), &machine).expect("the same");
        assert_eq!(results.settings.engines, ["lmdb", "redb"]);
        assert_eq!(results.settings.configurations.len(), 2);
        assert_eq!(results.settings.text, "a book");
        assert_eq!(results.notes[0], "added by `bench-peers redb`");

        let tuned = [("lmdb".to_owned(), "tuned".to_owned())].into();
        let others = [
            ("memory", Settings { memory_bytes: 2 << 20, ..settings("lmdb") }),
            ("seed", Settings { seed: 2, ..settings("lmdb") }),
            ("limit", Settings { limit: "none".to_owned(), ..settings("lmdb") }),
            ("length of runs of incr", Settings { increments_seconds: None, ..settings("lmdb") }),
            ("configuration", Settings { configurations: tuned, ..settings("lmdb") }),
            ("text", Settings { text: "another book".to_owned(), ..settings("lmdb") }),
        ];
        for (what, other) in others {
            let refused = results.admit(other, &machine).expect_err(what).to_string();
            assert!(refused.contains(&format!("another {what}")), "{refused}");
        }
        for other in [
            Machine { processors: 64, ..Machine::default() },
            Machine { memory_bytes: 1 << 30, ..Machine::default() },
        ] {
            let refused = results.admit(settings("lmdb"), &other).expect_err("a machine");
            assert!(refused.to_string().contains("another machine"), "{refused}");
        }
    }

    #[test]
    fn another_kernel_on_the_same_machine_is_noted() {
        let machine = |kernel: &str, memory_bytes| Machine {
            kernel: kernel.to_owned(),
            memory_bytes,
            ..Machine::default()
        };
        let (settings, machine_then) = (settings("lmdb"), machine("6.1", 1_000_000));
        let mut results = Results { settings, machine: machine_then, ..Results::default() };
        let admitted = results.admit(self::settings("lmdb"), &machine("6.2", 1_001_000));
        admitted.expect("the same machine");
        assert_eq!(results.notes, ["added by `bench-peers lmdb`", "Linux 6.2 then"]);
    }

    #[test]
    fn seconds_are_whole_ones_until_callers_were_told_to_end() {
        let mut outcome = Outcome {
            update_latency: Some(Latency::default()),
            callers_seconds: Some(2.0),
            seconds: 3.9,
            ..Outcome::default()
        };
        let add = |series: &mut Series, ms, count| {
            series.add(Duration::from_millis(ms), count, Duration::ZERO);
        };
        add(&mut outcome.series, 999, 5);
        // What ends late is in no second, and a second in which nothing ends is one with nothing.
        add(&mut outcome.series, 3_900, 64);
        assert_eq!(outcome.updates_by_second(), Some(vec![5, 0]));
        add(&mut outcome.series, 1_000_000, 1);
        assert_eq!(outcome.series.interval_ms, 1000);
        assert_eq!(outcome.updates_by_second(), Some(vec![5, 0]));
        add(&mut outcome.series, 2_000_000, 1);
        assert_eq!(outcome.updates_by_second(), None, "intervals are longer");
        outcome.callers_seconds = Some(0.9);
        assert_eq!(outcome.updates_by_second(), None, "there is no whole second");
    }
}
