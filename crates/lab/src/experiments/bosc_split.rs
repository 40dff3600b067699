//! How many of five disks are for the log, and how many for data.

use std::cell::RefCell;

use upsweep::layers::log::LogMode;
use upsweep_sim::random::Random;

use super::indexes::{DISKS, FILL_TENTHS, ORDERING, PROCESSOR_US};
use crate::claims::{Better, Binding, DIFFERENT_BEYOND};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Axis, Cell, Column, Curve, Figure, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::banks;
use crate::systems::crowd::Crowd;
use crate::systems::in_place::{ANY_VALUE, Access};
use crate::systems::load::Load;
use crate::systems::plan::{Memory, Plan};
use crate::systems::store::Store;
use crate::workloads::tpcc::{Kind, Layout, RECORD_BYTES, TpcC};

const PAPER: &str = "bosc-fig-5.3-disk-split";
const DIRECTIONS: &str = "goals-disk-split";
const DRIVE: &str = "dtla307030";

const BEST: &str = "best split of five disks (log disks, data disks)";
const LOGGING: &str = "logging latency during these runs";
const CHANGES: &str = "changes, one log disk over four";
const READS: &str = "reads of rows beside changes, one log disk over four";
const THREE_OVER_TWO: &str = "changes, three log disks over two";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "bosc-fig-5.3",
    title: "How many of five disks are for the log",
    method: "\
        Upsweep with the indexes of TPC-C, as in figure 3, on five simulated IBM DTLA-307030, of \
        which one to four hold the log and the others the blocks. The log has its disks to itself \
        and writes where their heads are (mode predict), as that of the dissertation. First 16 \
        callers make changes: their latency is that of the log. Then ten callers for each of 80 \
        warehouses have a change under way each, and the changes are measured in the steady state: \
        no more of them wait than before, once all that were made earlier are applied. At last one \
        more caller reads, one record after another, while the others go on: rows that \
        transactions are about to update, or records at random. A read hits a queue if updates \
        that wait answer it without the block. Of the splits whose changes are within 2 % of the \
        fastest, the one with the fastest reads of rows counts as the best.",
    scaling: "\
        The index, the log disks, and the memory for what waits are a twentieth of those of 80 \
        warehouses, 30 GB, and 1 GB; the callers are as many as all warehouses have. A quick run \
        has a fortieth of the warehouses, each with a quarter of its index (less orders), and so \
        much less memory, and reads 60 records of each kind; a full run reads 600.",
    papers: &[PAPER, DIRECTIONS],
    bindings: &[
        Binding::tuple(
            PAPER,
            BEST,
            &["log disks of the best split", "data disks of the best split"],
        ),
        Binding::value(PAPER, LOGGING, "highest latency of the log", Better::Less),
        Binding::ratio(
            DIRECTIONS,
            CHANGES,
            ("changes, 1 log disks", "changes, 4 log disks"),
            Better::Neither,
        ),
        Binding::ratio(
            DIRECTIONS,
            READS,
            ("reads of rows, 1 log disks", "reads of rows, 4 log disks"),
            Better::Neither,
        ),
        Binding::ratio(
            DIRECTIONS,
            THREE_OVER_TWO,
            ("changes, 3 log disks", "changes, 2 log disks"),
            Better::Neither,
        ),
    ],
    run,
};

/// Disks for the log.
const LOG_DISKS: [u16; 4] = [1, 2, 3, 4];
const WAREHOUSES: u64 = 80;
/// By how much warehouses and memory are fewer: in a quick run, and in a full run.
const SHRUNK: (u64, u64) = (40, 20);
const CALLERS: usize = 800;
const MEMORY_BYTES: u64 = 1 << 30;
/// Bytes of the index of a warehouse, in a quick run and in a full run.
const INDEX_BYTES: (u64, u64) = ((16 << 30) / 80, (16 << 30) / 20);
/// Bytes of the log on each of its disks: a twentieth of the disk.
const LOG_BYTES: u64 = (30 << 30) / 20 / 4096 * 4096;
/// Time without changes at first, in which the log measures how its disks turn.
const REST_US: u64 = 5_000_000;
/// Changes whose latency is that of the log: by so few callers that none waits for the processor,
/// and after so many that the log knows how early it has to write.
const FIRST: Load = Load { callers: 16, warm_up: 30_000, measured: 10_000 };
/// Reads before those that are measured.
const FIRST_READS: u64 = 4;

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// Rows that are about to be updated.
    Rows,
    /// Any records.
    Any,
}

const READ: [Reads; 2] = [Reads::Rows, Reads::Any];

impl Reads {
    fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Any => "any records",
        }
    }

    /// The keys.
    fn keys(self, layout: Layout, seed: u64) -> Box<dyn FnMut() -> u64> {
        let records = layout.records();
        match self {
            Self::Rows => {
                // Another stream than that of the changes.
                let mut stream = TpcC::new(layout.size, seed + 1);
                Box::new(move || {
                    loop {
                        let change = stream.next_change();
                        if change.kind == Kind::Update {
                            return layout.key(change.row);
                        }
                    }
                })
            }
            Self::Any => {
                let mut random = Random::new(seed, "reads");
                Box::new(move || random.below(records.count) * records.stride)
            }
        }
    }
}

/// What one of the splits brings.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Of changes by few callers.
    latency_ms: f64,
    /// Changes in a second.
    changes: f64,
    /// For each of [`READ`].
    beside: [Beside; READ.len()],
}

/// Reads beside changes.
#[derive(Clone, Copy, Debug, Default)]
struct Beside {
    reads: f64,
    changes: f64,
    hits_percent: f64,
}

/// By how much memory is less: as much as the index.
fn parts(scale: &Scale) -> u64 {
    scale.pick(SHRUNK.0 * INDEX_BYTES.1 / INDEX_BYTES.0, SHRUNK.1)
}

fn make(log_disks: u16, scale: &Scale) -> Result<(Layout, Store), Problem> {
    let records = scale.pick(INDEX_BYTES.0, INDEX_BYTES.1) / RECORD_BYTES * FILL_TENTHS / 10;
    let layout = Layout::of(WAREHOUSES / scale.pick(SHRUNK.0, SHRUNK.1), records);
    let plan = Plan {
        data_devices: DISKS - log_disks,
        log_bytes: LOG_BYTES,
        log_mode: LogMode::Predict,
        memory: Memory::Part(MEMORY_BYTES, parts(scale)),
        record_bytes: RECORD_BYTES,
        fill_percent: 10 * FILL_TENTHS as u32,
        processor_us: PROCESSOR_US,
        ..Plan::TABLE
    };
    let disks = banks::drives(DRIVE, DISKS, Some(ORDERING), scale.seed)?;
    Ok((layout, Store::create(plan, layout.records(), disks)?))
}

fn measure(log_disks: u16, scale: &Scale) -> Result<Measured, Problem> {
    let (layout, mut store) = make(log_disks, scale)?;
    store.rest(REST_US)?;
    let stream = RefCell::new(TpcC::new(layout.size, scale.seed));
    let mut next = || Access::Put(layout.key(stream.borrow_mut().next_change().row), ANY_VALUE);
    let latency_ms = FIRST.run(&mut store, next)?.latency_ms;
    let measured = MEMORY_BYTES / parts(scale) / RECORD_BYTES;
    let changes = store.measure_steady(CALLERS, next, measured, next)?.per_second;
    let mut beside = [Beside::default(); READ.len()];
    for (reads, found) in READ.iter().zip(&mut beside) {
        store.settle()?;
        let before = store.look_ups();
        let mut crowded = Crowd::new(store, CALLERS, FIRST_READS, &mut next);
        let load = Load { callers: 1, warm_up: FIRST_READS, measured: scale.pick(60, 600) };
        let mut key = reads.keys(layout, scale.seed);
        found.reads = load.run(&mut crowded, || Access::Get(key()))?.per_second;
        found.changes = crowded.per_second();
        store = crowded.system;
        let (all, hits) = store.look_ups();
        found.hits_percent = 100.0 * (hits - before.1) as f64 / (all - before.0) as f64;
    }
    Ok(Measured { latency_ms, changes, beside })
}

/// The log disks of the best split.
fn best(measured: &[Measured]) -> Option<u16> {
    let fastest = measured.iter().map(|found| found.changes).fold(0.0, f64::max);
    let all = LOG_DISKS.iter().zip(measured);
    let among = all.filter(|(_, found)| found.changes >= fastest * (1.0 - DIFFERENT_BEYOND));
    let reads = |found: &Measured| found.beside[0].reads;
    among.max_by(|one, other| reads(one.1).total_cmp(&reads(other.1))).map(|(best, _)| *best)
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let measured = progress.each(&LOG_DISKS, |log_disks| measure(*log_disks, scale))?;
    let mut outcome = Outcome::default();
    outcome.setup("disks", format!("{DISKS} simulated IBM DTLA-307030, write cache off"));
    outcome.setup("requests to a disk", format!("up to {} are ordered by C-LOOK", ORDERING.depth));
    outcome.setup("processor time of a change", format!("{PROCESSOR_US} us"));
    outcome.setup("callers that make changes", short(CALLERS as f64));
    let (warehouses, memory) = (scale.pick(SHRUNK.0, SHRUNK.1), parts(scale));
    outcome.setup("warehouses", format!("1/{warehouses} of {WAREHOUSES}"));
    outcome.setup("memory for what waits", format!("1/{memory} of that of 1 GB"));
    for (log_disks, found) in LOG_DISKS.iter().zip(&measured) {
        outcome.value(format!("changes, {log_disks} log disks"), found.changes, "changes/s");
        let rows = format!("reads of rows, {log_disks} log disks");
        outcome.value(rows, found.beside[0].reads, "records/s");
    }
    let highest_ms = measured.iter().map(|found| found.latency_ms).fold(0.0, f64::max);
    outcome.value("highest latency of the log", highest_ms, "ms");
    if let Some(best) = best(&measured) {
        outcome.value("log disks of the best split", f64::from(best), "disks");
        outcome.value("data disks of the best split", f64::from(DISKS - best), "disks");
    }
    outcome.tables.push(table(&measured));
    outcome.tables.push(reads_table(&measured));
    outcome.figures.push(changes_figure(&measured));
    outcome.figures.push(reads_figure(&measured));
    outcome.caveat(&[BEST, CHANGES, READS], OPEN);
    outcome.caveat(&[BEST, CHANGES, THREE_OVER_TWO], PROCESSOR);
    outcome.caveat(&[THREE_OVER_TWO], ARTEFACT);
    outcome.caveat(&[], HITS);
    Ok(outcome)
}

const OPEN: &str = "\
    The figure is only drawn, and the trace that it replays is not published. Nor does the \
    dissertation say how many warehouses it has, how large memory is, and how many callers there \
    are. Its reads and changes take turns on a lock of the tree; Upsweep has no such lock, and \
    both go on at the same time.";
const PROCESSOR: &str = "\
    With one to three log disks the given processor time of a change is the bound in a full run. \
    In the dissertation the data disks are.";
const ARTEFACT: &str = "\
    In the dissertation, three log disks and two data disks are faster than two and three. It \
    calls that an anomaly: reads take so long that the queues are empty when changes begin. Here \
    changes are measured in the steady state.";
const HITS: &str = "\
    How many reads hit a queue depends on what is read, which is not published. Rows that a \
    transaction is about to update are among those that were updated last; records at random \
    almost never are.";

fn table(measured: &[Measured]) -> Table {
    let row = |(log_disks, found): (&u16, &Measured)| {
        let [rows, _] = found.beside;
        let numbers = [
            f64::from(*log_disks),
            f64::from(DISKS - log_disks),
            rows.reads,
            rows.hits_percent,
            found.changes,
            found.latency_ms,
        ];
        numbers.map(Cell::Number).to_vec()
    };
    Table {
        name: "table".into(),
        title: "Changes of the indexes of TPC-C, and reads of rows beside them".into(),
        paper: Some(PAPER.into()),
        keys: 2,
        columns: vec![
            Column::published("log disks"),
            Column::published("data disks"),
            Column::published("read throughput [records/s]"),
            Column::published("read hits in per-block queues [%]"),
            Column::own("changes, no reads [changes/s]"),
            Column::own("latency of the log [ms]"),
        ],
        rows: LOG_DISKS.iter().zip(measured).map(row).collect(),
    }
}

fn reads_table(measured: &[Measured]) -> Table {
    let rows = LOG_DISKS.iter().zip(measured).flat_map(|(log_disks, found)| {
        READ.iter().zip(found.beside).map(move |(reads, beside)| {
            vec![
                f64::from(*log_disks).into(),
                reads.name().into(),
                beside.reads.into(),
                beside.hits_percent.into(),
                beside.changes.into(),
            ]
        })
    });
    Table {
        name: "reads".into(),
        title: "Reads of one caller while all others change".into(),
        paper: None,
        keys: 2,
        columns: vec![
            Column::own("log disks"),
            Column::own("what is read"),
            Column::own("reads [records/s]"),
            Column::own("hits in queues [%]"),
            Column::own("changes meanwhile [changes/s]"),
        ],
        rows: rows.collect(),
    }
}

fn points(measured: &[Measured], up: impl Fn(&Measured) -> f64) -> Vec<(f64, f64)> {
    LOG_DISKS.iter().zip(measured).map(|(disks, found)| (f64::from(*disks), up(found))).collect()
}

fn changes_figure(measured: &[Measured]) -> Figure {
    let curve = |name: &str, up: fn(&Measured) -> f64| Curve {
        name: name.into(),
        points: points(measured, up),
    };
    Figure {
        name: "changes".into(),
        title: "Changes by the number of log disks, of five".into(),
        across: Axis::linear("log disks"),
        up: Axis::linear("changes/s"),
        curves: vec![
            curve("no reads", |found| found.changes),
            curve("beside reads of rows", |found| found.beside[0].changes),
            curve("beside reads of any records", |found| found.beside[1].changes),
        ],
        papers: Vec::new(),
    }
}

fn reads_figure(measured: &[Measured]) -> Figure {
    let curve = |(place, reads): (usize, &Reads)| Curve {
        name: reads.name().into(),
        points: points(measured, |found| found.beside[place].reads),
    };
    Figure {
        name: "reads".into(),
        title: "Reads of one caller beside changes, by the number of log disks".into(),
        across: Axis::linear("log disks"),
        up: Axis::linear("records/s"),
        curves: READ.iter().enumerate().map(curve).collect(),
        papers: Vec::new(),
    }
}
