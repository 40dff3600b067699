//! What is done to the stores: workloads, and the classes in which updates are acknowledged.

pub(crate) mod keys;
pub(crate) mod ngrams;
pub(crate) mod random;
pub(crate) mod stream;
pub(crate) mod zipf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::engine::Durability;

/// How many callers there are, how much they hand over at once, and when that is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub(crate) enum Class {
    /// 64 concurrent blocking callers with single updates, durable when acknowledged
    Callers64,
    /// two callers with atomic batches of 64 updates, durable when acknowledged
    Batches64,
    /// one caller, one update at a time, durable when acknowledged
    Single,
    /// two callers with atomic batches of 64 updates, acknowledged before they are durable
    Relaxed,
}

impl Class {
    /// All of them.
    pub(crate) const ALL: [Self; 4] =
        [Self::Callers64, Self::Batches64, Self::Single, Self::Relaxed];

    /// Concurrent callers.
    pub(crate) fn callers(self) -> usize {
        match self {
            Self::Callers64 => 64,
            Self::Batches64 | Self::Relaxed => 2,
            Self::Single => 1,
        }
    }

    /// Operations that a caller gathers before it hands over the updates among them.
    pub(crate) fn batch(self) -> usize {
        match self {
            Self::Callers64 | Self::Single => 1,
            Self::Batches64 | Self::Relaxed => 64,
        }
    }

    /// When updates are acknowledged.
    pub(crate) fn durability(self) -> Durability {
        if self == Self::Relaxed { Durability::Relaxed } else { Durability::Durable }
    }

    /// Its name on the command line and in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Callers64 => "callers64",
            Self::Batches64 => "batches64",
            Self::Single => "single",
            Self::Relaxed => "relaxed",
        }
    }

    /// What it is, in a line.
    pub(crate) fn about(self) -> String {
        help(&self)
    }
}

/// The documentation of a value of the command line.
fn help(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
}

/// A workload. Their order is that of the runs in one store: the last ones change what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// increments of uniformly random records
    Increments,
    /// increments of zipfian records, theta 0.99
    Zipfian,
    /// 95 % increments and 5 % point reads
    Mixed95,
    /// 50 % increments and 50 % point reads
    Mixed50,
    /// increments beside one thread that scans 1000 records at a time
    BesideScans,
    /// increments at half of what the class has reached, open loop
    Latency50,
    /// increments at 80 % of what the class has reached, open loop
    Latency80,
    /// cold point reads of uniformly random records by 16 threads
    Reads,
    /// the same beside increments at half of what the class has reached
    ReadsWhileUpdating,
    /// scans of 1000 records from random places by two threads
    Scans,
    /// counts of the sequences of one to five words of real text
    Ngrams,
    /// increments until SIGKILL, then recovery and a count
    Recovery,
    /// new records with random keys
    InsertRandom,
    /// new records in clusters of 64 neighbours at random places
    InsertClustered,
    /// new records in ascending order behind all others
    InsertSequential,
    /// half new records with random keys, half deletions of random records
    DeleteHeavy,
    /// YCSB A: 50 % reads, 50 % replaced values, zipfian
    YcsbA,
    /// YCSB B: 95 % reads, 5 % replaced values, zipfian
    YcsbB,
    /// YCSB C: reads only, zipfian
    YcsbC,
    /// YCSB D: 95 % reads of the latest records, 5 % new records
    YcsbD,
    /// YCSB E: 95 % scans of up to 100 records, 5 % new records
    YcsbE,
    /// YCSB F: 50 % reads, 50 % read-modify-writes (a read and an increment), zipfian
    YcsbF,
}

impl Workload {
    /// Its name on the command line and in results.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What it does, in a line.
    pub(crate) fn about(self) -> String {
        help(&self)
    }

    /// Whether increments are all that changes, so that the counters can be checked by their sum.
    pub(crate) fn is_counted(self) -> bool {
        self <= Self::Recovery
    }

    /// The class in which it runs unless others are asked for; `None`: in all.
    pub(crate) fn usual_class(self) -> Option<Class> {
        match self {
            Self::Increments => None,
            Self::Latency50 | Self::Latency80 => Some(Class::Callers64),
            _ => Some(Class::Batches64),
        }
    }

    /// The part of what the class has reached at which updates come, open loop.
    pub(crate) fn load(self) -> Option<f64> {
        match self {
            Self::Latency50 | Self::ReadsWhileUpdating => Some(0.5),
            Self::Latency80 => Some(0.8),
            _ => None,
        }
    }

    /// Whether the callers of the class take part.
    pub(crate) fn has_updates(self) -> bool {
        !matches!(self, Self::Reads | Self::Scans)
    }

    /// Threads that only read records, and threads that only scan.
    pub(crate) fn readers_and_scanners(self) -> (usize, usize) {
        match self {
            Self::Reads | Self::ReadsWhileUpdating => (16, 0),
            Self::Scans => (0, 2),
            Self::BesideScans => (0, 1),
            _ => (0, 0),
        }
    }

    /// Whether what is measured is reads from a cold cache.
    pub(crate) fn is_cold(self) -> bool {
        matches!(self, Self::Reads | Self::ReadsWhileUpdating | Self::Recovery)
    }
}
