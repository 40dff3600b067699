//! Building the trees of the paper on shadowed B-trees by appending.

use super::shadowed::{
    Caller, DRIVES_OPEN, HARDWARE, Hardware, IN_MEMORY, Operation, TREES, Tree, bulk_load, drain,
    empty_in_place, empty_upsweep, in_place, setup, until,
};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Cell, Column, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::store::Store;

const PAPER: &str = "sbt-table-7";
const ADVANTAGE: &str = "advantage over other single-task workloads";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "sbt-table-7",
    title: "Building the trees of the shadowed B-trees by appending",
    method: "\
        The paper's two trees, in nodes of 4 KB, are built from nothing by one task that appends \
        keys in ascending order, on a simulated RAID 5 array of nine Seagate ST39133LWV, and on \
        one such drive. The tree in place is a model: a full leaf is split in halves, so that \
        appending leaves half-full leaves behind; it has 5 % of the nodes of the final tree in \
        memory, and writes the changed leaf that was used least recently when it has to leave; \
        nothing is logged. Upsweep has a table in blocks of 4 KB, its log on another drive and a \
        cache of 5 %. It appends one by one, each durable before the next begins; 4,096 at a time, \
        with the sweep that brings all of them into the tree; and it is loaded in bulk, as \
        production loads sorted records. The tree in place also inserts random keys with one task, \
        which is the workload that its appending is compared with.",
    scaling: "\
        A quick run builds a sixteenth of each tree with a sixteenth of the memory, a full run the \
        whole of it. Upsweep appends 500 keys one by one in a quick run, 5,000 in a full run.",
    papers: &[PAPER],
    bindings: &[Binding::ratio(
        PAPER,
        ADVANTAGE,
        ("in place, T235, appends", "in place, T235, random inserts"),
        Better::Neither,
    )],
    run,
};

/// Tasks that make appends durable together.
const TOGETHER: usize = 4096;
/// Random inserts with which appending is compared.
const INSERTS: u64 = 12_000;

/// A store, in a way of using it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    InPlace,
    RandomInserts,
    Durable,
    Swept,
    Loaded,
}

const WAYS: [Way; 5] = [Way::InPlace, Way::RandomInserts, Way::Durable, Way::Swept, Way::Loaded];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::InPlace => "in place",
            Self::RandomInserts => "in place, random inserts",
            Self::Durable => "Upsweep, durable one by one",
            Self::Swept => "Upsweep, durable together and swept",
            Self::Loaded => "Upsweep, loaded in bulk",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    tree: Tree,
    hardware: Hardware,
    way: Way,
}

/// Keys that were added, and how many in a second.
type Found = (u64, f64);

impl Case {
    fn measure(self, scale: &Scale) -> Result<Found, Problem> {
        let Self { tree, hardware, way } = self;
        let (part, seed) = (scale.pick(16, 1), scale.seed);
        let keys = tree.records(part).count;
        let mut caller = Caller::appending(seed);
        let append = || caller.access(Operation::Append);
        let found = match way {
            Way::InPlace => {
                let mut system = empty_in_place(tree, hardware, part, seed)?;
                (keys, until(&mut system, 1, keys, append, drain)?)
            }
            Way::RandomInserts => {
                let mut system = in_place(tree, hardware, IN_MEMORY, seed)?;
                let mut caller = Caller::new(tree.records(1), seed);
                let next = || caller.access(Operation::Insert);
                (INSERTS, until(&mut system, 1, INSERTS, next, drain)?)
            }
            Way::Durable => {
                let mut store = empty_upsweep(tree, hardware, part, seed)?;
                let appends = scale.pick(500, 5000);
                (appends, until(&mut store, 1, appends, append, Store::settle)?)
            }
            Way::Swept => {
                let mut store = empty_upsweep(tree, hardware, part, seed)?;
                (keys, until(&mut store, TOGETHER, keys, append, Store::sweep)?)
            }
            Way::Loaded => (keys, bulk_load(tree, hardware, part, seed)?),
        };
        Ok(found)
    }
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let mut cases = Vec::new();
    for tree in TREES {
        for hardware in HARDWARE {
            cases.extend(WAYS.map(|way| Case { tree, hardware, way }));
        }
    }
    let found = progress.each(&cases, |case| case.measure(scale))?;
    let mut outcome = Outcome::default();
    setup(&mut outcome);
    for (case, (_, rate)) in cases.iter().zip(&found) {
        // What is compared with the paper is the first tree on the array.
        if case.hardware == Hardware::Array && case.tree.name == TREES[0].name {
            match case.way {
                Way::InPlace => outcome.value("in place, T235, appends", *rate, "ops/s"),
                Way::RandomInserts => {
                    outcome.value("in place, T235, random inserts", *rate, "ops/s");
                    outcome.finding(format!(
                        "T235 on the array, in place: {} random inserts in a second by one task.",
                        short(*rate)
                    ));
                }
                Way::Durable | Way::Swept | Way::Loaded => {
                    outcome.finding(format!(
                        "T235 on the array, {}: {} appends in a second.",
                        case.way.name(),
                        short(*rate)
                    ));
                }
            }
        }
    }
    outcome.tables.push(table(&cases, &found));
    outcome.caveat(&[ADVANTAGE], OTHERS);
    outcome.caveat(&[ADVANTAGE], DRIVES_OPEN);
    outcome.caveat(&[], FLUSHED);
    outcome.caveat(&[], BOUND);
    outcome.caveat(&[], DURABLE);
    Ok(outcome)
}

const OTHERS: &str = "\
    The paper speaks of other workloads with a single task, and does not say which. Its own rates \
    are 23 times those of look-ups alone and 109 times those of inserts alone, which we take. The \
    tree in place does one write for each leaf that it leaves behind, and does nothing else \
    meanwhile.";
const FLUSHED: &str = "\
    The leaves that are in memory at the end, at most 5 % of all, are not written by the tree in \
    place. When the paper's trees had checkpoints while they were built is not said.";
const BOUND: &str = "\
    The processor time of an operation bounds all that append at 100,000 in a second. Upsweep that \
    is swept, and the tree in place but for its writes, are at that bound.";
const DURABLE: &str = "\
    The paper logs nothing. A single append to Upsweep waits for about a turn of the drive of its \
    log, so that one task appends more slowly than in place. The time of a bulk load is that of \
    the devices and the workers alone.";

fn table(cases: &[Case], found: &[Found]) -> Table {
    let row = |(case, (keys, rate)): (&Case, &Found)| {
        let mut row: Vec<Cell> =
            vec![case.tree.name.into(), case.hardware.name().into(), case.way.name().into()];
        row.extend([*keys as f64, *keys as f64 / rate, *rate].map(Cell::Number));
        row
    };
    Table {
        name: "table".into(),
        title: "Appending by one task".into(),
        paper: Some(PAPER.into()),
        keys: 3,
        columns: vec![
            Column::published("tree"),
            Column::own("disks"),
            Column::own("store"),
            Column::own("keys added"),
            Column::own("time of these [s]"),
            Column::published("appends per second"),
        ],
        rows: cases
            .iter()
            .zip(found)
            .filter(|(case, _)| case.way != Way::RandomInserts)
            .map(row)
            .collect(),
    }
}
