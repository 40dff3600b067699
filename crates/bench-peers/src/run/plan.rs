//! What is run, and in what order: settings with their defaults, the cells of a data set, the room
//! that they need.

use crate::args::RunArgs;
use crate::engine::{KEY_BYTES_MIN, record_bytes};
use crate::engines::{self, Entry};
use crate::failure::Failure;
use crate::outcome::DataSet;
use crate::workload::{Class, Workload};
use clap::ValueEnum;

/// Part of the free bytes that is used at most.
const ROOM_PART: f64 = 0.9;
/// Bytes that a store may take besides its records: logs, most of all.
const ROOM_FIXED_BYTES: u64 = 1 << 30;
/// Longest time of random reads that warm caches, in seconds.
const WARM_UP_SECONDS_MAX: f64 = 15.0;
/// Length of a run of increments in seconds, at least and at most.
const INCREMENTS_SECONDS: (f64, f64) = (60.0, 300.0);
/// Length of any other run.
const SECONDS: f64 = 5.0;
/// Length of all runs with `--quick`.
const QUICK_SECONDS: f64 = 2.0;
/// The ratio at which workloads other than increments are run.
const USUAL_RATIO: u64 = 8;
/// What is run with `--quick`.
const QUICK: [Workload; 6] = [
    Workload::Increments,
    Workload::Latency80,
    Workload::Reads,
    Workload::Recovery,
    Workload::InsertRandom,
    Workload::YcsbA,
];

/// What was asked for, with defaults filled in.
pub(crate) struct Plan {
    pub(crate) memory_bytes: u64,
    /// In the order in which they are run.
    pub(crate) sets: Vec<DataSet>,
    pub(crate) engines: Vec<&'static Entry>,
    pub(crate) workloads: Vec<Workload>,
    classes: Vec<Class>,
    is_every_set: bool,
    is_quick: bool,
    /// Length of a run, but for increments.
    pub(crate) seconds: f64,
    /// Length of a run of increments, at least and at most.
    pub(crate) increments_seconds: (f64, f64),
    /// Runs of each cell.
    pub(crate) repeats: u32,
}

impl Plan {
    /// From the command line.
    ///
    /// # Errors
    /// [`Failure::Refused`] for an engine that is not built in.
    pub(crate) fn new(args: &RunArgs) -> Result<Self, Failure> {
        let usual_workloads =
            if args.quick { QUICK.to_vec() } else { Workload::value_variants().to_vec() };
        let mut workloads =
            if args.workloads.is_empty() { usual_workloads } else { args.workloads.clone() };
        // Their rates are parts of what increments have reached. An hour of others needs no hour of
        // increments.
        let is_rate_only = !workloads.contains(&Workload::Increments);
        if workloads.iter().any(|workload| workload.load().is_some()) {
            workloads.push(Workload::Increments);
        }
        workloads.sort();
        workloads.dedup();
        let (least, most) =
            if args.quick { (QUICK_SECONDS, QUICK_SECONDS) } else { INCREMENTS_SECONDS };
        let asked = args.seconds.map(|asked| if is_rate_only { asked.min(least) } else { asked });
        let least = asked.unwrap_or(least);
        let usual = if args.quick { QUICK_SECONDS } else { SECONDS };
        let usual_memory = if args.quick { 64 << 20 } else { 128 << 20 };
        Ok(Self {
            memory_bytes: args.memory.map_or(usual_memory, |size| size.0),
            sets: sets(args),
            engines: chosen(&args.engines)?,
            workloads,
            classes: args.classes.clone(),
            is_every_set: args.every_set,
            is_quick: args.quick,
            seconds: args.seconds.unwrap_or(usual),
            increments_seconds: (least, args.seconds_max.unwrap_or(most).max(least)),
            repeats: args.repeats,
        })
    }

    /// Length of a run of a workload in seconds, at least and at most.
    pub(crate) fn seconds(&self, workload: Workload) -> (f64, f64) {
        match workload {
            Workload::Increments => self.increments_seconds,
            _ => (self.seconds, self.seconds),
        }
    }

    /// Time of random reads before a run of a workload, which warm caches, in seconds.
    pub(crate) fn warm_up_seconds(&self, workload: Workload) -> f64 {
        (self.seconds(workload).0 / 4.0).min(WARM_UP_SECONDS_MAX)
    }

    /// Records of a data set.
    pub(crate) fn records(&self, set: DataSet) -> u64 {
        (self.memory_bytes * set.ratio / record_bytes(set.key_bytes)).max(1)
    }

    /// What runs on a data set, in order, and whether the counters are added up after it. What
    /// changes the records comes last. Sums take long where there are many records: at high ratios
    /// and in quick runs only the last one is made, which covers all runs before it.
    pub(crate) fn cells(&self, set: DataSet) -> Vec<(Workload, Class, bool)> {
        let cells = self.unchecked_cells(set);
        let counts = |workload: Workload| workload.is_counted() && workload.has_updates();
        let last = cells.iter().rposition(|(workload, _)| counts(*workload));
        let cells = cells.into_iter().enumerate();
        let check = |(place, (workload, class)): (usize, (Workload, Class))| {
            let is_due = set.ratio <= USUAL_RATIO && !self.is_quick || last == Some(place);
            (workload, class, counts(workload) && is_due)
        };
        cells.map(check).collect()
    }

    fn unchecked_cells(&self, set: DataSet) -> Vec<(Workload, Class)> {
        let distance = |set: &DataSet| (set.ratio.abs_diff(USUAL_RATIO), set.key_bytes);
        let usual = self.sets.iter().copied().min_by_key(distance);
        let mut cells = Vec::new();
        for workload in &self.workloads {
            let is_increments = *workload == Workload::Increments;
            if !is_increments && !self.is_every_set && usual != Some(set) {
                continue;
            }
            let classes = match workload.usual_class() {
                _ if !self.classes.is_empty() => self.classes.clone(),
                Some(class) => vec![class],
                None => Class::ALL.to_vec(),
            };
            cells.extend(classes.into_iter().map(|class| (*workload, class)));
        }
        // What is killed must have been durable.
        cells.retain(|cell| *cell != (Workload::Recovery, Class::Relaxed));
        cells
    }

    /// The most bytes that an engine's files take at a ratio.
    pub(crate) fn room_bytes(&self, entry: &Entry, ratio: u64) -> u64 {
        let data = (self.memory_bytes * ratio) as f64;
        (data * entry.room_factor) as u64 + ROOM_FIXED_BYTES
    }

    /// Groups of engines whose stores can lie side by side at a ratio, and names of those for which
    /// there is no room at all.
    pub(crate) fn groups(
        &self,
        ratio: u64,
        free_bytes: u64,
    ) -> (Vec<Vec<&'static Entry>>, Vec<&'static str>) {
        let room = (free_bytes as f64 * ROOM_PART) as u64;
        let need = |entry: &Entry| self.room_bytes(entry, ratio);
        let (fitting, skipped): (Vec<&'static Entry>, Vec<&'static Entry>) =
            self.engines.iter().copied().partition(|entry| need(entry) <= room);
        let all: u64 = fitting.iter().map(|entry| need(entry)).sum();
        let groups = if all <= room {
            vec![fitting]
        } else {
            fitting.into_iter().map(|entry| vec![entry]).collect()
        };
        (groups, skipped.into_iter().map(|entry| entry.name).collect())
    }
}

/// All data sets: ratios from low to high, in each from short keys to long ones.
fn sets(args: &RunArgs) -> Vec<DataSet> {
    let usual_ratios: &[u64] = if args.quick { &[USUAL_RATIO] } else { &[2, USUAL_RATIO, 32] };
    let ratios = if args.ratios.is_empty() { usual_ratios } else { &args.ratios };
    let lengths = if args.key_bytes.is_empty() { &[KEY_BYTES_MIN] } else { &*args.key_bytes };
    let mut sets: Vec<DataSet> = ratios
        .iter()
        .flat_map(|&ratio| lengths.iter().map(move |&key_bytes| DataSet { ratio, key_bytes }))
        .collect();
    sets.sort_unstable();
    sets.dedup();
    sets
}

fn chosen(names: &[String]) -> Result<Vec<&'static Entry>, Failure> {
    if names.is_empty() {
        return Ok(engines::ENTRIES.iter().collect());
    }
    let built_in = || {
        let names: Vec<&str> = engines::ENTRIES.iter().map(|entry| entry.name).collect();
        names.join(", ")
    };
    let entry = |name: &String| {
        engines::find(name).ok_or_else(|| {
            Failure::Refused(format!(
                "there is no engine {name} in this build, which has {}; `cargo build --features \
                 all` builds them all in",
                built_in()
            ))
        })
    };
    names.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Arguments;

    fn plan(arguments: &str) -> Plan {
        let words = ["bench-peers", "/tmp"].into_iter().chain(arguments.split_whitespace());
        let parsed = Arguments::try_parse_from(words).expect("valid");
        Plan::new(&parsed.run.expect("a run")).expect("a plan")
    }

    fn set(ratio: u64, key_bytes: u8) -> DataSet {
        DataSet { ratio, key_bytes }
    }

    #[test]
    fn increments_run_in_all_classes_on_all_data_sets_and_others_once() {
        let plan = plan("--key-bytes 56,8,8");
        let count =
            |set, workload| plan.cells(set).iter().filter(|(found, ..)| *found == workload).count();
        let sets = [2, 8, 32].map(|ratio| [set(ratio, 8), set(ratio, 56)]).concat();
        assert_eq!(plan.sets, sets);
        let counts = |workload| sets.iter().map(|set| count(*set, workload)).collect::<Vec<_>>();
        assert_eq!(counts(Workload::Increments), [4; 6]);
        assert_eq!(counts(Workload::YcsbA), [0, 0, 1, 0, 0, 0]);
        assert!(plan.cells(set(8, 8)).is_sorted_by_key(|(workload, ..)| *workload));
        let checks = |ratio| plan.cells(set(ratio, 8)).iter().filter(|(.., check)| *check).count();
        assert_eq!([2, 8, 32].map(checks), [4, 13, 1]);
    }

    #[test]
    fn records_with_longer_keys_are_fewer_in_equal_bytes() {
        let plan = plan("--memory 64MiB --key-bytes 8,200");
        assert_eq!(plan.records(set(2, 8)), 2 << 20);
        assert_eq!(plan.records(set(2, 200)), (128 << 20) / 256);
    }

    #[test]
    fn increments_may_go_on_until_they_are_steady_and_others_may_not() {
        let seconds = |arguments| {
            let plan = plan(arguments);
            (plan.seconds(Workload::Increments), plan.seconds(Workload::YcsbA))
        };
        assert_eq!(seconds(""), ((60.0, 300.0), (5.0, 5.0)));
        assert_eq!(seconds("--quick"), ((2.0, 2.0), (2.0, 2.0)));
        assert_eq!(seconds("--seconds 7 --seconds-max 9"), ((7.0, 9.0), (7.0, 7.0)));
        assert_eq!(seconds("--seconds 900"), ((900.0, 900.0), (900.0, 900.0)));
        let hour = "--seconds 3600 --workloads latency80";
        assert_eq!(seconds(hour), ((60.0, 300.0), (3600.0, 3600.0)));
    }

    #[test]
    fn what_needs_a_saturation_brings_increments_along_and_nothing_relaxed_is_killed() {
        let plan = plan("--workloads latency80,recovery --classes relaxed,single --ratios 3");
        assert_eq!(
            plan.unchecked_cells(set(3, 8)),
            [
                (Workload::Increments, Class::Relaxed),
                (Workload::Increments, Class::Single),
                (Workload::Latency80, Class::Relaxed),
                (Workload::Latency80, Class::Single),
                (Workload::Recovery, Class::Single),
            ]
        );
    }

    #[test]
    fn engines_without_room_are_skipped_and_others_take_turns_if_all_fit() {
        let plan = plan("--engines upsweep --memory 128MiB");
        let need = plan.room_bytes(plan.engines[0], 8);
        assert!(need > 8 * (128 << 20));
        let (groups, skipped) = plan.groups(8, need * 2);
        assert_eq!((groups.len(), groups[0].len(), skipped.len()), (1, 1, 0));
        let (groups, skipped) = plan.groups(8, need);
        assert_eq!((groups.iter().flatten().count(), skipped), (0, vec!["upsweep"]));
    }
}
