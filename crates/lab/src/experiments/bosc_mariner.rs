//! The map of a continuous data protection system, updated for every version that it logs.

use super::indexes::{Changes, DATA_DISKS, DISKS, FILL_TENTHS, ORDERING, PROCESSOR_US, Vanilla};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Axis, Cell, Column, Curve, Figure, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::banks;
use crate::systems::combined::{Both, Paced};
use crate::systems::load::{Load, Seen};
use crate::systems::loggers::{Append, FILE_SYSTEM, FileAppend};
use crate::systems::pages::{Leaves, Records};
use crate::systems::plan::{Memory, Plan};
use crate::systems::queued::{PER_PAGE, Queued, Sizes, Update};
use crate::systems::store::Store;
use crate::systems::trail::Trail;
use crate::systems::{Bench, System};

const PAPER: &str = "bosc-fig-10-mariner";
const DRIVE: &str = "dtla307030";
const OVER_VANILLA: &str = "BOSC map over TPIE map, logging throughput";
const OVER_APPEND: &str = "BOSC map over append-logged per-block-queue map";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "bosc-fig-10",
    title: "The map of versions in continuous data protection",
    method: "\
        Every version of a block of 4 KB is logged, and an entry of 24 bytes for it, with a \
        random block number, is inserted into a map of 935 MB. Versions are logged where the \
        head is, on a disk of their own, each with a write; the map is on five other disks. A \
        version has ended when it is logged and its entry is where it has to be: in a cached \
        leaf of the vanilla tree, or else logged as well. Disks are simulated IBM DTLA-307030. A \
        request comes at an interval after the one before it, and up to 64 are under way. The \
        maps are those of figure 3: a vanilla tree with a cache of 64 MB, a model of the paper's \
        tree with a queue of updates for each leaf and a log in a file, and a table of Upsweep, \
        with 64 MB of memory each. What volumes cost that keep every version, payload and map in \
        one store, is in mariner.",
    scaling: "\
        In a quick run the map of Upsweep and its memory have a quarter of their size; there are \
        two intervals, and 300 versions are measured in each case, of Upsweep ten times as many. \
        A full run has the whole map, eight intervals and 3,000 versions. Without an interval, \
        Upsweep takes a version for each 64 bytes of memory before it is measured, which is more \
        than it has room for. The memory of the other tree with queues is not filled, so that \
        its log alone bounds it.",
    papers: &[PAPER],
    bindings: &[
        Binding::ratio(
            PAPER,
            OVER_VANILLA,
            ("Upsweep, without interval", "vanilla, without interval"),
            Better::More,
        ),
        Binding::ratio(
            PAPER,
            OVER_APPEND,
            ("Upsweep, without interval", "Multi-Queue-Append, without interval"),
            Better::More,
        ),
    ],
    run,
};

const MAP_BYTES: u64 = 935 << 20;
const MEMORY_BYTES: u64 = 64 << 20;
/// By how much the map and the memory are smaller in a quick run.
const SHRUNK: u64 = 4;
const ENTRY_BYTES: u64 = 24;
const VERSION_BYTES: u64 = 4096;
const LEAF_BYTES: u64 = 64 << 10;
/// Versions that are under way.
const UNDER_WAY: usize = 64;
/// Names of the maps, as the paper has them.
const VANILLA: &str = "vanilla TPIE B+ tree";
const APPENDED: &str = "per-block queues with file-append logging";
const UPSWEEP: &str = "BOSC B+ tree";

/// How versions are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Map {
    None,
    Upsweep,
    MultiQueueAppend,
    Vanilla,
}

const MAPS: [Map; 4] = [Map::None, Map::Upsweep, Map::MultiQueueAppend, Map::Vanilla];

impl Map {
    fn name(self) -> &'static str {
        match self {
            Self::None => "no map",
            Self::Upsweep => "Upsweep",
            Self::MultiQueueAppend => "Multi-Queue-Append",
            Self::Vanilla => "vanilla",
        }
    }

    /// Logs versions and maps them, one at most every so many microseconds.
    fn measure(self, interval_us: u64, scale: &Scale) -> Result<Seen, Problem> {
        let shrunk = scale.pick(SHRUNK, 1);
        let records = |shrunk| Records {
            count: MAP_BYTES / shrunk / ENTRY_BYTES * FILL_TENTHS / 10,
            stride: 1 << 30,
        };
        let next = |shrunk| Changes::Insert.random(records(shrunk), scale.seed);
        let leaves =
            |shrunk| Leaves::new(records(shrunk), LEAF_BYTES / ENTRY_BYTES * FILL_TENTHS / 10);
        let versions = Bench::new(
            Trail::new(&banks::description(DRIVE)?),
            banks::drives(DRIVE, 1, None, scale.seed)?,
            PROCESSOR_US,
        );
        let version = Append { bytes: VERSION_BYTES };
        let measured = scale.pick(300, 3000);
        let few = Load { callers: UNDER_WAY, warm_up: 2 * UNDER_WAY as u64, measured };
        let filling = if interval_us == 0 { MEMORY_BYTES / shrunk / 64 } else { few.warm_up };
        let many = Load { warm_up: filling, measured: 10 * measured, ..few };
        let index_disks = || banks::drives(DRIVE, DATA_DISKS + 1, Some(ORDERING), scale.seed);
        match self {
            Self::None => paced(versions, interval_us, few, || version),
            Self::Vanilla => {
                let vanilla = Vanilla {
                    shape: leaves(1),
                    page_bytes: LEAF_BYTES,
                    record_bytes: ENTRY_BYTES,
                    memory_mb: MEMORY_BYTES >> 20,
                    are_changed: true,
                    disks: DISKS,
                };
                let both = Both::new(versions, vanilla.make(scale.seed)?)?;
                let mut next = next(1);
                paced(both, interval_us, few, || (version, next()))
            }
            Self::MultiQueueAppend => {
                let sizes = Sizes {
                    page_bytes: LEAF_BYTES,
                    records_max: LEAF_BYTES / ENTRY_BYTES,
                    data_disks: DATA_DISKS,
                    logged_bytes: ENTRY_BYTES + 32,
                    waiting_max: MEMORY_BYTES / (ENTRY_BYTES + 32),
                };
                let log = FileAppend::new(FILE_SYSTEM);
                let tree = Queued::new(log, leaves(1), sizes, PER_PAGE);
                let tree = Bench::new(tree, index_disks()?, PROCESSOR_US);
                let mut next = next(1);
                let both = Both::new(versions, tree)?;
                paced(both, interval_us, few, || (version, Update { key: next().key(), value: 1 }))
            }
            Self::Upsweep => {
                let plan = Plan {
                    data_devices: DATA_DISKS,
                    log_bytes: 4 * MEMORY_BYTES,
                    memory: Memory::Whole(MEMORY_BYTES / shrunk),
                    record_bytes: ENTRY_BYTES,
                    fill_percent: 10 * FILL_TENTHS as u32,
                    processor_us: PROCESSOR_US,
                    ..Plan::TABLE
                };
                let store = Store::create(plan, records(shrunk), index_disks()?)?;
                let mut next = next(shrunk);
                let both = Both::new(versions, store)?;
                paced(both, interval_us, many, || (version, next()))
            }
        }
    }
}

fn paced<S: System>(
    system: S,
    interval_us: u64,
    load: Load,
    next: impl FnMut() -> S::Operation,
) -> Result<Seen, Problem> {
    load.run(&mut Paced::new(system, interval_us), next)
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let intervals_us: Vec<u64> =
        scale.pick(vec![0, 5000], vec![0, 200, 500, 1000, 2000, 5000, 10_000, 20_000]);
    let cases: Vec<(u64, Map)> =
        intervals_us.iter().flat_map(|us| MAPS.map(|map| (*us, map))).collect();
    let seen = progress.each(&cases, |(interval_us, map)| map.measure(*interval_us, scale))?;
    let rates: Vec<Vec<f64>> = seen
        .chunks(MAPS.len())
        .map(|row| row.iter().map(|seen| seen.per_second).collect())
        .collect();
    let mut outcome = Outcome::default();
    outcome.setup("disks", "six simulated IBM DTLA-307030, write cache off");
    outcome.setup("requests to a disk", format!("up to {} are ordered by C-LOOK", ORDERING.depth));
    outcome.setup("processor time of a version and of an entry", format!("{PROCESSOR_US} us each"));
    outcome.setup("versions under way", short(UNDER_WAY as f64));
    outcome.setup("map and memory of Upsweep", format!("1/{}", scale.pick(SHRUNK, 1)));
    if let Some(rates) = rates.first() {
        for (map, rate) in MAPS.iter().zip(rates) {
            outcome.value(format!("{}, without interval", map.name()), *rate, "versions/s");
        }
    }
    outcome.tables.push(table(&intervals_us, &rates));
    outcome.tables.push(losses(&rates));
    outcome.figures.push(figure(&intervals_us, &rates));
    outcome.caveat(&[OVER_VANILLA, OVER_APPEND], OPEN);
    Ok(outcome)
}

const OPEN: &str = "\
    The paper gives neither its intervals nor its rates, nor how many versions are under way, how \
    they are logged, and on which disks. Here the bound is one write for each version, and five \
    disks have the map; what logging in a file costs depends on how many entries are written \
    together. With the stated losses, of 95 and 15 per cent at most, the map of BOSC is at most 20 \
    times as fast as the vanilla one, not 45 times.";

fn row(key: Cell, rates: &[f64]) -> Vec<Cell> {
    std::iter::once(key).chain(rates.iter().copied().map(Cell::Number)).collect()
}

fn table(intervals_us: &[u64], rates: &[Vec<f64>]) -> Table {
    let mut columns = vec![Column::own("interval [us]")];
    columns.extend(MAPS.map(|map| Column::own(&format!("{} [versions/s]", map.name()))));
    let rows = intervals_us.iter().zip(rates);
    Table {
        name: "table".into(),
        title: "Versions logged and mapped, by the interval between requests".into(),
        paper: None,
        keys: 1,
        columns,
        rows: rows.map(|(us, rates)| row((*us as f64).into(), rates)).collect(),
    }
}

/// How much less than without a map there is, at worst.
fn losses(rates: &[Vec<f64>]) -> Table {
    let loss = |map: Map| {
        let place = MAPS.iter().position(|one| *one == map).unwrap_or_default();
        let of_each = rates.iter().map(|rates| 100.0 * (1.0 - rates[place] / rates[0]));
        of_each.fold(0.0, f64::max)
    };
    let rows =
        [(VANILLA, Map::Vanilla), (APPENDED, Map::MultiQueueAppend), (UPSWEEP, Map::Upsweep)];
    Table {
        name: "losses".into(),
        title: "Loss of throughput against no map, at the worst of the intervals".into(),
        paper: Some(PAPER.into()),
        keys: 1,
        columns: vec![
            Column::published("map index"),
            Column::published("worst throughput loss against no index [%]"),
        ],
        rows: rows.map(|(name, map)| vec![name.into(), loss(map).into()]).into(),
    }
}

fn figure(intervals_us: &[u64], rates: &[Vec<f64>]) -> Figure {
    let curve = |(place, map): (usize, Map)| Curve {
        name: map.name().into(),
        points: intervals_us.iter().zip(rates).map(|(us, all)| (*us as f64, all[place])).collect(),
    };
    Figure {
        name: "versions".into(),
        title: "Versions logged and mapped".into(),
        across: Axis::linear("interval between requests [us]"),
        up: Axis::logarithmic("versions/s"),
        curves: MAPS.into_iter().enumerate().map(curve).collect(),
        papers: Vec::new(),
    }
}
