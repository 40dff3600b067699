//! What is run, and in what order: settings with their defaults, the cells of a ratio, the room
//! that they need.

use crate::args::RunArgs;
use crate::engine::RECORD_BYTES;
use crate::engines::{self, Entry};
use crate::failure::Failure;
use crate::workload::{Class, Workload};
use clap::ValueEnum;

/// Part of the free bytes that is used at most.
const ROOM_PART: f64 = 0.9;
/// Bytes that a store may take besides its records: logs, most of all.
const ROOM_FIXED_BYTES: u64 = 1 << 30;
/// Longest time of random reads that warm caches, in seconds.
const WARM_UP_SECONDS_MAX: f64 = 15.0;
/// Longest run that only finds out what rate others may have, in seconds.
const RATE_SECONDS_MAX: f64 = 60.0;
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
    pub(crate) ratios: Vec<u64>,
    pub(crate) engines: Vec<&'static Entry>,
    pub(crate) workloads: Vec<Workload>,
    classes: Vec<Class>,
    is_every_ratio: bool,
    is_quick: bool,
    pub(crate) seconds: f64,
    pub(crate) warm_up_seconds: f64,
    /// Increments were not asked for: they run to find the rates of other workloads.
    is_rate_only: bool,
    /// Runs of each cell, if that was asked for.
    repeats: Option<u32>,
}

impl Plan {
    /// From the command line.
    ///
    /// # Errors
    /// [`Failure::Refused`] for an engine that is not built in.
    pub(crate) fn new(args: &RunArgs) -> Result<Self, Failure> {
        let or = |given: &[u64], usual: &[u64]| {
            if given.is_empty() { usual.to_vec() } else { given.to_vec() }
        };
        let usual_workloads =
            if args.quick { QUICK.to_vec() } else { Workload::value_variants().to_vec() };
        let mut workloads =
            if args.workloads.is_empty() { usual_workloads } else { args.workloads.clone() };
        // Their rates are parts of what increments have reached.
        let is_rate_only = !workloads.contains(&Workload::Increments);
        if workloads.iter().any(|workload| workload.load().is_some()) {
            workloads.push(Workload::Increments);
        }
        workloads.sort();
        workloads.dedup();
        let mut ratios = or(&args.ratios, if args.quick { &[8] } else { &[2, 8, 32] });
        ratios.sort_unstable();
        ratios.dedup();
        let seconds = args.seconds.unwrap_or(if args.quick { 2.0 } else { 5.0 });
        Ok(Self {
            memory_bytes: args
                .memory
                .map_or(if args.quick { 64 << 20 } else { 128 << 20 }, |size| size.0),
            ratios,
            engines: chosen(&args.engines)?,
            workloads,
            classes: args.classes.clone(),
            is_every_ratio: args.every_ratio,
            is_quick: args.quick,
            seconds,
            warm_up_seconds: (seconds / 4.0).min(WARM_UP_SECONDS_MAX),
            is_rate_only,
            repeats: args.repeats,
        })
    }

    /// Runs of each cell of a workload: more of increments, which everything else is measured by.
    pub(crate) fn repeats(&self, workload: Workload) -> u32 {
        let is_repeated = workload == Workload::Increments && !self.is_quick;
        self.repeats.unwrap_or(if is_repeated { 3 } else { 1 })
    }

    /// Length of a run of a workload in seconds.
    pub(crate) fn seconds(&self, workload: Workload) -> f64 {
        if self.is_rate_only && workload == Workload::Increments {
            self.seconds.min(RATE_SECONDS_MAX)
        } else {
            self.seconds
        }
    }

    /// Records of a data set.
    pub(crate) fn records(&self, ratio: u64) -> u64 {
        (self.memory_bytes * ratio / RECORD_BYTES).max(1)
    }

    /// What runs at a ratio, in order, and whether the counters are added up after it. What changes
    /// the records comes last. Sums take long where there are many records: at high ratios and in
    /// quick runs only the last one is made, which covers all runs before it.
    pub(crate) fn cells(&self, ratio: u64) -> Vec<(Workload, Class, bool)> {
        let cells = self.unchecked_cells(ratio);
        let counts = |workload: Workload| workload.is_counted() && workload.has_updates();
        let last = cells.iter().rposition(|(workload, _)| counts(*workload));
        let cells = cells.into_iter().enumerate();
        let check = |(place, (workload, class)): (usize, (Workload, Class))| {
            let is_due = ratio <= USUAL_RATIO && !self.is_quick || last == Some(place);
            (workload, class, counts(workload) && is_due)
        };
        cells.map(check).collect()
    }

    fn unchecked_cells(&self, ratio: u64) -> Vec<(Workload, Class)> {
        let distance = |ratio: u64| ratio.abs_diff(USUAL_RATIO);
        let usual = self.ratios.iter().copied().min_by_key(|ratio| distance(*ratio));
        let mut cells = Vec::new();
        for workload in &self.workloads {
            let is_increments = *workload == Workload::Increments;
            if !is_increments && !self.is_every_ratio && usual != Some(ratio) {
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

    #[test]
    fn increments_run_in_all_classes_at_all_ratios_and_others_once() {
        let plan = plan("");
        let count = |ratio, workload| {
            plan.cells(ratio).iter().filter(|(found, ..)| *found == workload).count()
        };
        assert_eq!([2, 8, 32].map(|ratio| count(ratio, Workload::Increments)), [4, 4, 4]);
        assert_eq!([2, 8, 32].map(|ratio| count(ratio, Workload::YcsbA)), [0, 1, 0]);
        assert!(plan.cells(8).is_sorted_by_key(|(workload, ..)| *workload));
        let checks = |ratio| plan.cells(ratio).iter().filter(|(.., check)| *check).count();
        assert_eq!([2, 8, 32].map(checks), [4, 13, 1]);
    }

    #[test]
    fn what_needs_a_saturation_brings_increments_along_and_nothing_relaxed_is_killed() {
        let plan = plan("--workloads latency80,recovery --classes relaxed,single --ratios 3");
        assert_eq!(
            plan.unchecked_cells(3),
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
