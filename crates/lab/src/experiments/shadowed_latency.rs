//! The latency of operations on the trees of the paper on shadowed B-trees.

use super::shadowed::{
    AGE, AGING, Caller, DRIVES_OPEN, HARDWARE, Hardware, IN_MEMORY, Operation, TREES, Tree, drain,
    in_place, setup, until, upsweep,
};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::outcome::{Cell, Column, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::store::Store;

const KEYS: &str = "sbt-table-2";
const RANGES: &str = "sbt-table-3";
const INSERT: &str = "insert cost expected from one read plus one write";
const APPEND: &str = "append cost, text value";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "sbt-table-2",
    title: "Latency of operations on the trees of the shadowed B-trees (with table 3)",
    method: "\
        The paper's two trees, in nodes of 4 KB that are half full, on a simulated RAID 5 array \
        of nine Seagate ST39133LWV, and on one such drive. One task performs operations one after \
        another: of single keys at random, and of ranges of 100 keys. The tree in place is a \
        model: it keeps leaves in a cache, all index nodes besides, 5 % of all nodes together, \
        and writes the changed leaf that was used least recently when it has to leave; nothing is \
        logged. Upsweep has a table in blocks of 4 KB, filled so that there are as many as leaves \
        of the paper's tree, and a cache of 5 % of them; its directory is in memory besides. Its \
        log is on another drive. Either each change is durable before the next one begins, or \
        changes are made durable together, by 4,096 tasks, and the time includes the sweep that \
        brings all of them into the tree.",
    scaling: "\
        The tree in place has its full size, as an untouched leaf is computed, and performs 12,000 \
        operations of each kind, as in the paper. Upsweep has an eighth of the tree and of the \
        cache in a quick run, and performs 1,000 operations; in a full run it has the whole tree \
        and performs 12,000.",
    papers: &[KEYS, RANGES],
    bindings: &[Binding::value(KEYS, INSERT, "in place, T235, insert", Better::Neither)],
    run,
};

/// Tasks that make changes durable together.
const TOGETHER: usize = 4096;
const OPERATIONS: u64 = 12_000;

/// A store, in a way of using it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    InPlace,
    Durable,
    Swept,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::InPlace => "in place",
            Self::Durable => "Upsweep, durable one by one",
            Self::Swept => "Upsweep, durable together and swept",
        }
    }
}

/// The latency of an operation, in milliseconds.
type Found = (Way, Operation, f64);

/// Measures all operations on one tree.
fn measure(tree: Tree, hardware: Hardware, scale: &Scale) -> Result<Vec<Found>, Problem> {
    let (mut found, seed) = (Vec::new(), scale.seed);
    let mut add = |way, operation, rate: f64| found.push((way, operation, 1e3 / rate));
    for operation in Operation::ALL {
        let mut system = in_place(tree, hardware, IN_MEMORY, seed)?;
        let mut caller = Caller::new(tree.records(1), seed);
        if operation.changes() {
            until(&mut system, 1, AGING, || caller.next(AGE), drain)?;
        }
        let next = || caller.access(operation);
        add(Way::InPlace, operation, until(&mut system, 1, OPERATIONS, next, drain)?);
    }
    let part = scale.pick(8, 1);
    let operations = scale.pick(1000, OPERATIONS);
    let mut store = upsweep(tree, hardware, (part, IN_MEMORY), seed)?;
    let mut caller = Caller::new(tree.records(part), seed);
    for operation in Operation::ALL {
        let next = || caller.access(operation);
        let rate = until(&mut store, 1, operations, next, Store::settle)?;
        add(Way::Durable, operation, rate);
        store.sweep()?;
        if operation.changes() {
            let next = || caller.access(operation);
            let rate = until(&mut store, TOGETHER, operations, next, Store::sweep)?;
            add(Way::Swept, operation, rate);
        }
    }
    Ok(found)
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let cases: Vec<(Tree, Hardware)> =
        TREES.iter().flat_map(|tree| HARDWARE.map(|hardware| (*tree, hardware))).collect();
    let found = progress.each(&cases, |(tree, hardware)| measure(*tree, *hardware, scale))?;
    let mut outcome = Outcome::default();
    setup(&mut outcome);
    for ((tree, hardware), found) in cases.iter().zip(&found) {
        if *hardware == Hardware::Array {
            for (way, operation, ms) in found {
                let name = format!("{}, {}, {}", way.name(), tree.name, operation.name());
                outcome.value(name, *ms, "ms");
            }
        }
    }
    let keys = &Operation::ALL[..4];
    outcome.tables.push(table("table", KEYS, keys, &cases, &found));
    outcome.tables.push(table("ranges", RANGES, &Operation::ALL[4..], &cases, &found));
    outcome.caveat(&[INSERT], DRIVES_OPEN);
    outcome.caveat(&[APPEND], GIVEN);
    outcome.caveat(&[], DURABLE);
    outcome.caveat(&[], PLACE);
    Ok(outcome)
}

fn table(
    name: &str,
    paper: &str,
    operations: &[Operation],
    cases: &[(Tree, Hardware)],
    found: &[Vec<Found>],
) -> Table {
    let mut columns = vec![Column::published("tree"), Column::own("disks"), Column::own("store")];
    let title = |operation: &Operation| format!("{} [ms]", operation.name());
    columns.extend(operations.iter().map(|operation| Column::published(&title(operation))));
    let mut rows = Vec::new();
    for ((tree, hardware), found) in cases.iter().zip(found) {
        for way in [Way::InPlace, Way::Durable, Way::Swept] {
            let latency = |operation: &Operation| {
                let of_it = found.iter().find(|one| one.0 == way && one.1 == *operation);
                of_it.map_or(Cell::from("-"), |(.., ms)| Cell::Number(*ms))
            };
            let mut row: Vec<Cell> =
                vec![tree.name.into(), hardware.name().into(), way.name().into()];
            row.extend(operations.iter().map(latency));
            rows.push(row);
        }
    }
    let title = match operations.contains(&Operation::Lookup) {
        true => "Latency of operations on single keys",
        false => "Latency of operations on ranges of 100 keys",
    };
    Table {
        name: name.into(),
        title: title.into(),
        paper: Some(paper.into()),
        keys: 3,
        columns,
        rows,
    }
}

const GIVEN: &str = "\
    An append changes a leaf that is in memory, so that for the tree in place it takes the \
    processor time that is given to the model.";
const DURABLE: &str = "\
    The paper logs nothing: what it changes is safe at the next checkpoint. A change of Upsweep is \
    durable when it has ended, and alone waits for about a turn of the drive of the log. A single \
    change does not read its block; that a key was there before is not known.";
const PLACE: &str = "\
    A removal of a range is one record of the log for Upsweep. Blocks that are wholly in the range \
    are given up unread.";
