//! What a child process is told to do, and what it tells back: files of JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::workload::{Class, Workload};

/// One step of a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Make the store and load it.
    Load,
    /// Run the workload, pay what it has deferred, and check.
    Run,
    /// Run the workload until somebody kills the process.
    RunUntilKilled,
    /// Open the store after a kill, and check.
    Recover,
}

/// Everything that a child process has to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) step: Step,
    pub(crate) engine: String,
    pub(crate) workload: Workload,
    pub(crate) class: Class,
    /// Where the store is.
    pub(crate) folder: PathBuf,
    /// The cgroup that the process enters first; none: no limit.
    pub(crate) cgroup: Option<PathBuf>,
    /// The limit, in bytes.
    pub(crate) memory_bytes: u64,
    /// Loaded records.
    pub(crate) records: u64,
    /// Bytes of their keys.
    pub(crate) key_bytes: u8,
    /// Length of the run, in seconds: at least.
    pub(crate) seconds: f64,
    /// At most, if the state is not steady before.
    pub(crate) seconds_max: f64,
    /// Time of random reads before the run, which warm caches, in seconds.
    pub(crate) warm_up_seconds: f64,
    /// Updates per second, open loop; none: closed loop.
    pub(crate) rate: Option<f64>,
    /// Seed of all random numbers.
    pub(crate) seed: u64,
    /// Number of the run in its store.
    pub(crate) run: u64,
    /// The sum of all counters before the run, if that is known.
    pub(crate) counters: Option<u64>,
    /// Whether the counters are added up after the run.
    pub(crate) has_check: bool,
    /// Text whose sequences of words are counted.
    pub(crate) text: Option<PathBuf>,
    /// Where callers of a run that will be killed note what was acknowledged.
    pub(crate) acknowledged: PathBuf,
    /// Where the reply goes.
    pub(crate) reply: PathBuf,
}

/// What a child process tells back.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// What was measured, or what went wrong.
    pub(crate) outcome: Result<Outcome, String>,
    /// The sum of all counters afterwards, if that is known.
    pub(crate) counters: Option<u64>,
}
