//! The throughput of the trees of the paper on shadowed B-trees: its workloads with one task and
//! with ten, beside a checkpoint, and with more and less memory.

use super::shadowed::{
    AGE, AGING, Caller, DRIVES_OPEN, HARDWARE, Hardware, IN_MEMORY, Mix, TASKS, TREES, Tree,
    WORKLOADS, any_page, drain, in_place, setup, until, upsweep,
};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::outcome::{Axis, Cell, Column, Curve, Figure, Outcome, PaperPoints, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::bare::PageAccess;
use crate::systems::store::Store;

const RATES: &str = "sbt-table-5";
const CHECKPOINT: &str = "sbt-table-6";
const MEMORY: &str = "sbt-table-8";

const TEN: &str = "ten tasks over one";
const READS: &str = "disk limit for Search-100, text value";
const INSERTS: &str = "disk limit for Insert";
const LOSS: &str = "loss with ten tasks on update workloads";
const TEN_OF_READS: &str = "ten tasks over one below 100 %";

const METHOD: &str = "\
    The paper's two trees, in nodes of 4 KB that are half full, on a simulated RAID 5 array of \
    nine Seagate ST39133LWV, and on one such drive. Its four workloads are mixes of look-ups, \
    inserts and removals of random keys, by one task and by ten. The tree in place is a model: it \
    keeps leaves in a cache and writes the changed one that was used least recently when it has to \
    leave; nothing is logged. Upsweep has a table in blocks of 4 KB, filled so that there are as \
    many as leaves of the paper's tree, with its log on another drive; its directory is in memory \
    besides the cache. Its changes are durable when they have ended. The rates in which they are \
    swept include the time until all of them are in the tree.";

const SCALING: &str = "\
    The tree in place has its full size, as an untouched leaf is computed, and performs 12,000 \
    operations in each case, as in the paper. Upsweep has an eighth of the tree and of the cache \
    in a quick run, and performs 2,000 operations; in a full run it has the whole tree and \
    performs 12,000.";

pub(super) const THROUGHPUT: Experiment = Experiment {
    id: "sbt-table-5",
    title: "Throughput of the shadowed B-trees' workloads (with table 6)",
    method: METHOD,
    scaling: SCALING,
    papers: &[RATES, CHECKPOINT],
    bindings: &[
        Binding::value(RATES, TEN, "lowest gain of ten tasks, Upsweep", Better::More),
        Binding::value(RATES, READS, "bare pages read by ten tasks", Better::Neither),
        Binding::value(RATES, INSERTS, "bare pages read and written by ten tasks", Better::Neither),
        Binding::value(CHECKPOINT, LOSS, "loss by a checkpoint, Upsweep", Better::Less),
    ],
    run: throughput,
};

pub(super) const BY_MEMORY: Experiment = Experiment {
    id: "sbt-table-8",
    title: "Look-ups in a shadowed B-tree by memory",
    method: METHOD,
    scaling: SCALING,
    papers: &[MEMORY],
    bindings: &[Binding::value(
        MEMORY,
        TEN_OF_READS,
        "mean gain of ten tasks below 100 %, Upsweep",
        Better::More,
    )],
    run: by_memory,
};

const OPERATIONS: u64 = 12_000;
/// After how many of ten operations a checkpoint begins.
const BEFORE_TENTHS: u64 = 2;

/// A store, in a way of using it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    InPlace,
    Durable,
    Swept,
    /// As durable, with a checkpoint.
    Checkpoint,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::InPlace => "in place",
            Self::Durable => "Upsweep",
            Self::Swept => "Upsweep, swept",
            Self::Checkpoint => "Upsweep with a checkpoint",
        }
    }
}

/// The rate of a workload.
#[derive(Clone, Copy, Debug)]
struct Found {
    way: Way,
    tasks: usize,
    workload: &'static str,
    per_second: f64,
}

/// Operations of Upsweep.
fn operations(scale: &Scale) -> u64 {
    scale.pick(2000, OPERATIONS)
}

/// By how much its tree is smaller.
fn part(scale: &Scale) -> u64 {
    scale.pick(8, 1)
}

/// Measures all workloads on one tree.
fn measure(tree: Tree, hardware: Hardware, scale: &Scale) -> Result<Vec<Found>, Problem> {
    let (mut all, seed) = (Vec::new(), scale.seed);
    for tasks in TASKS {
        for (workload, mix) in WORKLOADS {
            let mut system = in_place(tree, hardware, IN_MEMORY, seed)?;
            let mut caller = Caller::new(tree.records(1), seed);
            if workload != "Search-100" {
                until(&mut system, 1, AGING, || caller.next(AGE), drain)?;
            }
            let way = Way::InPlace;
            let per_second = until(&mut system, tasks, OPERATIONS, || caller.next(mix), drain)?;
            all.push(Found { way, tasks, workload, per_second });
        }
    }
    let mut store = upsweep(tree, hardware, (part(scale), IN_MEMORY), seed)?;
    let mut caller = Caller::new(tree.records(part(scale)), seed);
    let count = operations(scale);
    for tasks in TASKS {
        for (workload, mix) in WORKLOADS {
            let mut add = |way, per_second| all.push(Found { way, tasks, workload, per_second });
            let next = || caller.next(mix);
            add(Way::Durable, until(&mut store, tasks, count, next, Store::settle)?);
            store.sweep()?;
            let next = || caller.next(mix);
            add(Way::Swept, until(&mut store, tasks, count, next, Store::sweep)?);
            add(Way::Checkpoint, beside_checkpoint(&mut store, &mut caller, (tasks, mix), count)?);
            store.sweep()?;
        }
    }
    Ok(all)
}

/// The rate of a workload in which a checkpoint begins.
fn beside_checkpoint(
    store: &mut Store,
    caller: &mut Caller,
    (tasks, mix): (usize, Mix),
    count: u64,
) -> Result<f64, Problem> {
    let before = count * BEFORE_TENTHS / 10;
    let first = until(
        store,
        tasks,
        before,
        || caller.next(mix),
        |store| {
            store.settle()?;
            store.begin_checkpoint();
            Ok(())
        },
    )?;
    let rest = count - before;
    let second = until(store, tasks, rest, || caller.next(mix), Store::settle)?;
    Ok(count as f64 / (before as f64 / first + rest as f64 / second))
}

fn throughput(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let cases: Vec<(Tree, Hardware)> =
        TREES.iter().flat_map(|tree| HARDWARE.map(|hardware| (*tree, hardware))).collect();
    let found = progress.each(&cases, |(tree, hardware)| measure(*tree, *hardware, scale))?;
    let array = Hardware::Array;
    let reads = array.bare(|random| PageAccess::Read(any_page(random)), TASKS[1], scale)?;
    let both = array.bare(
        |random| PageAccess::ReadWrite(any_page(random), any_page(random)),
        TASKS[1],
        scale,
    )?;
    let mut outcome = Outcome::default();
    setup(&mut outcome);
    outcome.value("bare pages read by ten tasks", reads.per_second, "ops/s");
    outcome.value("bare pages read and written by ten tasks", both.per_second, "ops/s");
    let on_array = || cases.iter().zip(&found).filter(|(case, _)| case.1 == array);
    let gains = on_array().flat_map(|(_, found)| {
        WORKLOADS.map(|(workload, _)| {
            let [one, ten] = TASKS.map(|tasks| rate(found, Way::Durable, tasks, workload));
            ten / one
        })
    });
    let lowest = gains.fold(f64::INFINITY, f64::min);
    outcome.value("lowest gain of ten tasks, Upsweep", lowest, "x");
    if let Some((_, found)) = on_array().next() {
        let of_updates = WORKLOADS.iter().filter(|(name, _)| *name != "Search-100");
        let losses: Vec<f64> = of_updates
            .map(|(workload, _)| {
                let [without, with] =
                    [Way::Durable, Way::Checkpoint].map(|way| rate(found, way, TASKS[1], workload));
                100.0 * (1.0 - with / without)
            })
            .collect();
        let mean = losses.iter().sum::<f64>() / losses.len() as f64;
        outcome.value("loss by a checkpoint, Upsweep", mean, "%");
    }
    let ways = [Way::InPlace, Way::Durable, Way::Swept];
    outcome.tables.push(table(("table", RATES), &ways, &cases, &found));
    let of_t235 = cases.iter().take_while(|(tree, _)| tree.name == TREES[0].name).count();
    let with = [Way::Checkpoint];
    outcome.tables.push(table(
        ("checkpoint", CHECKPOINT),
        &with,
        &cases[..of_t235],
        &found[..of_t235],
    ));
    outcome.figures.push(figure(&found));
    outcome.caveat(&[READS, INSERTS], DRIVES_OPEN);
    outcome.caveat(&[TEN], GAIN);
    outcome.caveat(&[LOSS], CHECKPOINTS);
    outcome.caveat(&[], SWEPT);
    Ok(outcome)
}

const GAIN: &str = "\
    The drives of the array are what ten tasks gain from. Durable changes of Upsweep wait for the \
    drive of its log instead: ten of them share a batch, or wait for the one before it.";
const CHECKPOINTS: &str = "\
    A checkpoint of Upsweep writes nodes of its directory, not the blocks of the table, while a \
    checkpoint of the paper's tree writes all changed pages.";

const SWEPT: &str = "\
    A few thousand updates of a tree with many more blocks leave hardly two for a block. Swept \
    rates have the time to read and write nearly as many blocks as there are updates, so that \
    nothing is gained by their waiting together: with ten tasks the tree in place is faster.";

fn rate(found: &[Found], way: Way, tasks: usize, workload: &str) -> f64 {
    let is_it = |one: &&Found| one.way == way && one.tasks == tasks && one.workload == workload;
    found.iter().find(is_it).map_or(f64::NAN, |one| one.per_second)
}

fn table(
    (name, paper): (&str, &str),
    ways: &[Way],
    cases: &[(Tree, Hardware)],
    found: &[Vec<Found>],
) -> Table {
    let mut columns = vec![
        Column::published("tree"),
        Column::published("tasks"),
        Column::own("disks"),
        Column::own("store"),
    ];
    let title = |(workload, _): (&str, Mix)| format!("{workload} [ops/s]");
    columns.extend(WORKLOADS.map(|workload| Column::published(&title(workload))));
    let mut rows = Vec::new();
    for ((tree, hardware), found) in cases.iter().zip(found) {
        for tasks in TASKS {
            for way in ways {
                let mut row: Vec<Cell> = vec![
                    tree.name.into(),
                    (tasks as f64).into(),
                    hardware.name().into(),
                    way.name().into(),
                ];
                let rates = WORKLOADS.map(|(workload, _)| rate(found, *way, tasks, workload));
                row.extend(rates.map(Cell::Number));
                rows.push(row);
            }
        }
    }
    let title = match paper {
        CHECKPOINT => "The same with a checkpoint after a fifth of the operations",
        _ => "Operations in a second",
    };
    Table {
        name: name.into(),
        title: title.into(),
        paper: Some(paper.into()),
        keys: 4,
        columns,
        rows,
    }
}

/// The first tree on the array, by its workloads; `found` has it first.
fn figure(found: &[Vec<Found>]) -> Figure {
    let curve = |way: Way, tasks: usize| {
        let rates = WORKLOADS.iter().zip(1..).map(|((workload, _), place)| {
            let rates = found.first().map(Vec::as_slice).unwrap_or_default();
            (f64::from(place), rate(rates, way, tasks, workload))
        });
        let plural = if tasks == 1 { "" } else { "s" };
        Curve { name: format!("{}, {tasks} task{plural}", way.name()), points: rates.collect() }
    };
    let ways = [Way::InPlace, Way::Durable, Way::Swept];
    Figure {
        name: "rates".into(),
        title: "T235 on the array".into(),
        across: Axis::linear("Search-100 (1), Search-80 (2), Modify (3), Insert (4)"),
        up: Axis::logarithmic("ops/s"),
        curves: ways.iter().flat_map(|way| TASKS.map(|tasks| curve(*way, tasks))).collect(),
        papers: Vec::new(),
    }
}

const IN_MEMORY_PERCENT: [u64; 5] = [100, 50, 10, 5, 2];

fn by_memory(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let tree = TREES[0];
    let lookups = WORKLOADS[0].1;
    let cases: Vec<(u64, Way)> = IN_MEMORY_PERCENT
        .iter()
        .flat_map(|percent| [Way::InPlace, Way::Durable].map(|way| (*percent, way)))
        .collect();
    let rates = progress.each(&cases, |(percent, way)| {
        let seed = scale.seed;
        if *way == Way::InPlace {
            let mut system = in_place(tree, Hardware::Array, *percent, seed)?;
            let mut caller = Caller::new(tree.records(1), seed);
            let mut each =
                |tasks| until(&mut system, tasks, OPERATIONS, || caller.next(lookups), drain);
            return Ok([each(TASKS[0])?, each(TASKS[1])?]);
        }
        let part = part(scale);
        let mut store = upsweep(tree, Hardware::Array, (part, *percent), seed)?;
        let mut caller = Caller::new(tree.records(part), seed);
        // Blocks come into the cache when they are read.
        let filling = 4 * OPERATIONS;
        until(&mut store, TASKS[1], filling, || caller.next(lookups), Store::settle)?;
        let count = operations(scale);
        let mut each =
            |tasks| until(&mut store, tasks, count, || caller.next(lookups), Store::settle);
        Ok([each(TASKS[0])?, each(TASKS[1])?])
    })?;
    let mut outcome = Outcome::default();
    setup(&mut outcome);
    let below = cases.iter().zip(&rates);
    let gains: Vec<f64> = below
        .filter(|((percent, way), _)| *percent < 100 && *way == Way::Durable)
        .map(|(_, [one, ten])| ten / one)
        .collect();
    let mean = gains.iter().sum::<f64>() / gains.len() as f64;
    outcome.value("mean gain of ten tasks below 100 %, Upsweep", mean, "x");
    let rows = cases.iter().zip(&rates).map(|((percent, way), [one, ten])| {
        vec![(*percent as f64).into(), way.name().into(), (*one).into(), (*ten).into()]
    });
    outcome.tables.push(Table {
        name: "table".into(),
        title: "Look-ups in T235 on the array".into(),
        paper: Some(MEMORY.into()),
        keys: 2,
        columns: vec![
            Column::published("in memory [%]"),
            Column::own("store"),
            Column::published("one task [ops/s]"),
            Column::published("ten tasks [ops/s]"),
        ],
        rows: rows.collect(),
    });
    outcome.figures.push(memory_figure(&cases, &rates));
    outcome.caveat(&[TEN_OF_READS], DRIVES_OPEN);
    outcome.caveat(&[], PROCESSOR);
    Ok(outcome)
}

const PROCESSOR: &str = "\
    With all of the tree in memory, a look-up takes the processor time that is given to it, 10 us \
    here and 11 us in the paper, so that this row says nothing.";

fn memory_figure(cases: &[(u64, Way)], rates: &[[f64; 2]]) -> Figure {
    let curve = |way: Way, place: usize| {
        let of_it = cases.iter().zip(rates).filter(|(case, _)| case.1 == way);
        let points = of_it.map(|((percent, _), rates)| (*percent as f64, rates[place]));
        let tasks = ["one task", "ten tasks"][place];
        Curve { name: format!("{}, {tasks}", way.name()), points: points.collect() }
    };
    let points = |tasks: &str| PaperPoints {
        name: format!("paper: {tasks}"),
        paper: MEMORY.into(),
        across: "in memory [%]".into(),
        up: format!("{tasks} [ops/s]"),
        only: None,
    };
    Figure {
        name: "rates".into(),
        title: "Look-ups in T235 on the array".into(),
        across: Axis::logarithmic("nodes in memory [%]"),
        up: Axis::logarithmic("ops/s"),
        curves: vec![
            curve(Way::InPlace, 0),
            curve(Way::InPlace, 1),
            curve(Way::Durable, 0),
            curve(Way::Durable, 1),
        ],
        papers: vec![points("one task"), points("ten tasks")],
    }
}
