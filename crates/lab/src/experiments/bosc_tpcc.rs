//! Trees with and without queues and logs, under the changes that TPC-C makes to its indexes.

use std::cell::RefCell;
use std::collections::BTreeSet;

use upsweep::layers::log::LogMode;

use super::indexes::{DATA_DISKS, DISKS, FILL_TENTHS, ORDERING, PROCESSOR_US};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::outcome::{Axis, Cell, Column, Curve, Figure, Outcome, PaperPoints, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::banks;
use crate::systems::in_place::{self, ANY_VALUE, Access, InPlace};
use crate::systems::load::{Load, Seen};
use crate::systems::loggers::{Append, FILE_SYSTEM, FileAppend};
use crate::systems::pages::{Leaves, Shape};
use crate::systems::plan::{Memory, Plan};
use crate::systems::queued::{self, PER_PAGE, Queued, Queues, Update};
use crate::systems::store::Store;
use crate::systems::trail::Trail;
use crate::systems::{Bench, Model};
use crate::workloads::tpcc::{Layout, RECORD_BYTES, TpcC};

const PAPER: &str = "bosc-fig-3-tpcc-variants";
const DRIVE: &str = "dtla307030";

const OVER_APPEND: &str = "BOSC over Multi-Queue-Append (value of fast logging)";
const OVER_ONE_QUEUE: &str = "BOSC over One-Queue-Trail (value of per-block queues)";
const OVER_VANILLA_80: &str = "BOSC over vanilla, 80 warehouses";
const OVER_VANILLA_20: &str = "BOSC over vanilla, 20 warehouses";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "bosc-fig-3",
    title: "Queues and logs under TPC-C",
    method: "\
        The changes that TPC-C makes to its indexes, generated as its specification (revision \
        5.11) says, on a tree in leaves of 64 KB that were seven tenths full, over five simulated \
        IBM DTLA-307030. A row takes as many records of 64 bytes as hold it, and the change of a \
        row is that of one record. The index of a warehouse has 0.8 GB, as in the paper: customers \
        and stock as specified, and as many orders as that takes. Memory is 1 GB. The trees that \
        have a log use one disk for it, and four for their leaves. One-Queue and Multi-Queue are \
        models of the paper's variants: Append logs through a file system with a journal, Trail \
        where the head is, and both write together what comes together, up to 64 KB. One-Queue \
        takes 32 updates from the head of its queue, and reads and writes their leaves in the \
        order of their addresses. Multi-Queue sweeps runs of up to 32 leaves of which half have \
        updates, in place. Multi-Queue-Trail is what the paper describes as BOSC. Upsweep is the \
        product's engine, with the log mode predict, which writes where the head is, and with the \
        default, idle, which writes behind the last batch. The vanilla tree changes leaves in a \
        cache that is as after a long run, and logs nothing. Ten callers for each warehouse, as \
        TPC-C has terminals (4.2.2), have one change under way each.",
    scaling: "\
        Upsweep and the Multi-Queue trees have a twentieth of the warehouses, of the memory and of \
        the log, as what waits is real, and as many callers as all warehouses. The others have \
        their full size: an untouched leaf is computed. A quick run has 20 and 80 warehouses with \
        a quarter of the index (less orders), and measures 1,000 changes of the trees of full \
        size; a full run has four sizes, the whole index, and 10,000 changes. Multi-Queue-Trail \
        takes more updates than its memory has room for before it is measured, and an eighth of \
        that or, in a full run, as many again. Upsweep takes updates until hardly more of them \
        wait once all earlier ones are applied, and then as many. Multi-Queue-Append does not fill \
        its memory, so that its log alone bounds it. Only a full run varies the number of callers; \
        a single caller of Multi-Queue-Trail makes 20,000 changes before it is measured, and of \
        both as many while it is.",
    papers: &[PAPER],
    bindings: &[
        Binding::ratio(
            PAPER,
            OVER_APPEND,
            ("Upsweep, 80 warehouses", "Multi-Queue-Append, 80 warehouses"),
            Better::More,
        ),
        Binding::ratio(
            PAPER,
            OVER_ONE_QUEUE,
            ("Upsweep, 80 warehouses", "One-Queue-Trail, 80 warehouses"),
            Better::More,
        ),
        Binding::ratio(
            PAPER,
            OVER_VANILLA_80,
            ("Upsweep, 80 warehouses", "vanilla, 80 warehouses"),
            Better::More,
        ),
        Binding::ratio(
            PAPER,
            OVER_VANILLA_20,
            ("Upsweep, 20 warehouses", "vanilla, 20 warehouses"),
            Better::More,
        ),
    ],
    run,
};

const LEAF_BYTES: u64 = 64 << 10;
const MEMORY_BYTES: u64 = 1 << 30;
/// Bytes of the index of a warehouse: 16 GB for 20 of them. In a quick run, and in a full run.
const INDEX_BYTES: (u64, u64) = ((16 << 30) / 80, (16 << 30) / 20);
/// Terminals of a warehouse.
const TERMINALS: u64 = 10;
/// By how much Upsweep and the Multi-Queue trees are smaller.
const SHRUNK: u64 = 20;
/// Bytes of the log of Upsweep: a twentieth of its disk.
const LOG_BYTES: u64 = (30 << 30) / SHRUNK / 4096 * 4096;
/// Time without changes at first, in which the log measures how its disk turns.
const REST_US: u64 = 5_000_000;
/// Updates that One-Queue takes at a time, except where that is varied.
const BATCH: usize = 32;
/// So few changes of the vanilla tree are under way where that is varied.
const FEW: [usize; 4] = [1, 2, 4, 8];
/// Bytes of an update in the log of a model: its record, and a header.
const LOGGED_BYTES: u64 = RECORD_BYTES + 32;
/// Bytes of memory of an update that waits in a model: its record, and its place in a queue.
const WAITING_BYTES: u64 = RECORD_BYTES + 32;

/// A tree of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Vanilla,
    OneQueueAppend { batch: usize },
    OneQueueTrail { batch: usize },
    MultiQueueAppend,
    MultiQueueTrail,
    Upsweep(LogMode),
}

const VARIANTS: [Variant; 7] = [
    Variant::Upsweep(LogMode::Predict),
    Variant::Upsweep(LogMode::Idle),
    Variant::MultiQueueTrail,
    Variant::MultiQueueAppend,
    Variant::OneQueueTrail { batch: BATCH },
    Variant::OneQueueAppend { batch: BATCH },
    Variant::Vanilla,
];

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::OneQueueAppend { .. } => "One-Queue-Append",
            Self::OneQueueTrail { .. } => "One-Queue-Trail",
            Self::MultiQueueAppend => "Multi-Queue-Append",
            Self::MultiQueueTrail => "Multi-Queue-Trail",
            Self::Upsweep(LogMode::Idle) => "Upsweep, idle",
            Self::Upsweep(_) => "Upsweep",
        }
    }

    /// The column of the paper that has it.
    fn column(self) -> Option<&'static str> {
        match self {
            Self::Vanilla | Self::MultiQueueTrail | Self::Upsweep(LogMode::Idle) => None,
            Self::OneQueueAppend { .. } => Some("One-Queue-Append [req/s]"),
            Self::OneQueueTrail { .. } => Some("One-Queue-Trail [req/s]"),
            Self::MultiQueueAppend => Some("Multi-Queue-Append [req/s]"),
            Self::Upsweep(_) => Some("BOSC [req/s]"),
        }
    }

    fn is_shrunk(self) -> bool {
        !matches!(self, Self::Vanilla | Self::OneQueueAppend { .. } | Self::OneQueueTrail { .. })
    }
}

/// A measurement.
#[derive(Clone, Copy, Debug)]
struct Case {
    variant: Variant,
    warehouses: u64,
    callers: usize,
}

impl Case {
    /// With the callers of so many warehouses.
    fn new(variant: Variant, warehouses: u64) -> Self {
        Self { variant, warehouses, callers: (TERMINALS * warehouses) as usize }
    }

    fn measure(self, scale: &Scale) -> Result<Seen, Problem> {
        let shrunk = if self.variant.is_shrunk() { SHRUNK } else { 1 };
        let memory_bytes = MEMORY_BYTES / shrunk / 4096 * 4096;
        let index_bytes = scale.pick(INDEX_BYTES.0, INDEX_BYTES.1);
        let records = index_bytes / RECORD_BYTES * FILL_TENTHS / 10;
        let layout = Layout::of(self.warehouses / shrunk, records);
        let mut stream = TpcC::new(layout.size, scale.seed);
        let next_key = || layout.key(stream.next_change().row);
        match self.variant {
            Variant::Vanilla => self.vanilla(&layout, next_key, scale),
            Variant::Upsweep(mode) => {
                let mut store = Self::upsweep(mode, &layout, memory_bytes, scale)?;
                store.rest(REST_US)?;
                let measured = self.full_load(memory_bytes, scale).measured;
                let next_key = RefCell::new(next_key);
                let next = || Access::Put(next_key.borrow_mut()(), ANY_VALUE);
                store.measure_steady(self.callers, next, measured, next)
            }
            Variant::OneQueueAppend { batch } => {
                let queues = Queues::One { batch };
                let tree = self.queued(FileAppend::new(FILE_SYSTEM), &layout, queues);
                let load = self.load((batch * 8) as u64, scale.pick(1000, 10_000));
                run_queued(tree, load, next_key, scale)
            }
            Variant::OneQueueTrail { batch } => {
                let log = Trail::new(&banks::description(DRIVE)?);
                let tree = self.queued(log, &layout, Queues::One { batch });
                let load = self.load((batch * 8) as u64, scale.pick(1000, 10_000));
                run_queued(tree, load, next_key, scale)
            }
            Variant::MultiQueueAppend => {
                let tree = self.queued(FileAppend::new(FILE_SYSTEM), &layout, PER_PAGE);
                let load = self.load(20_000, scale.pick(20_000, 200_000));
                run_queued(tree, load, next_key, scale)
            }
            Variant::MultiQueueTrail => {
                let log = Trail::new(&banks::description(DRIVE)?);
                let tree = self.queued(log, &layout, PER_PAGE);
                run_queued(tree, self.full_load(memory_bytes, scale), next_key, scale)
            }
        }
    }

    fn load(self, warm_up: u64, measured: u64) -> Load {
        Load { callers: self.callers, warm_up: warm_up + self.callers as u64, measured }
    }

    /// Fills the memory first, unless there are so few callers that it never fills.
    fn full_load(self, memory_bytes: u64, scale: &Scale) -> Load {
        let filling = if self.callers == 1 { 20_000 } else { memory_bytes / 64 };
        self.load(filling, filling / scale.pick(8, 1))
    }

    fn queued<L: Model<Operation = Append>>(
        self,
        log: L,
        layout: &Layout,
        queues: Queues,
    ) -> Queued<L, Leaves> {
        let waiting_max = match queues {
            // A longer queue has no effect on what is taken from its head.
            Queues::One { batch } => 4 * batch as u64,
            Queues::PerPage { .. } => MEMORY_BYTES / SHRUNK / WAITING_BYTES,
        };
        let sizes = queued::Sizes {
            page_bytes: LEAF_BYTES,
            records_max: LEAF_BYTES / RECORD_BYTES,
            data_disks: DATA_DISKS,
            logged_bytes: LOGGED_BYTES,
            waiting_max,
        };
        Queued::new(log, leaves(layout), sizes, queues)
    }

    fn upsweep(
        log_mode: LogMode,
        layout: &Layout,
        memory_bytes: u64,
        scale: &Scale,
    ) -> Result<Store, Problem> {
        let disks = banks::drives(DRIVE, DATA_DISKS + 1, Some(ORDERING), scale.seed)?;
        let plan = Plan {
            data_devices: DATA_DISKS,
            log_bytes: LOG_BYTES,
            log_mode,
            memory: Memory::Whole(memory_bytes),
            record_bytes: RECORD_BYTES,
            fill_percent: 10 * FILL_TENTHS as u32,
            processor_us: PROCESSOR_US,
            ..Plan::TABLE
        };
        Store::create(plan, layout.records(), disks)
    }

    fn vanilla(
        self,
        layout: &Layout,
        mut next_key: impl FnMut() -> u64,
        scale: &Scale,
    ) -> Result<Seen, Problem> {
        let sizes = in_place::Sizes {
            page_bytes: LEAF_BYTES,
            records_max: LEAF_BYTES / RECORD_BYTES,
            frames: (MEMORY_BYTES / LEAF_BYTES) as usize,
            devices: DISKS,
        };
        let shape = leaves(layout);
        let used = used_last(&shape, layout, sizes.frames, scale.seed);
        let mut store = InPlace::new(shape, sizes);
        store.fill(used.into_iter(), true);
        let disks = banks::drives(DRIVE, DISKS, Some(ORDERING), scale.seed)?;
        let mut system = Bench::new(store, disks, PROCESSOR_US);
        let load = self.load(1000, scale.pick(1000, 10_000));
        load.run(&mut system, || Access::Put(next_key(), ANY_VALUE))
    }
}

fn leaves(layout: &Layout) -> Leaves {
    Leaves::new(layout.records(), LEAF_BYTES / RECORD_BYTES * FILL_TENTHS / 10)
}

/// The leaves that a long run used last, so many at most, the last one last: what it has used is as
/// likely the other way round.
fn used_last(shape: &Leaves, layout: &Layout, count: usize, seed: u64) -> Vec<u64> {
    let mut stream = TpcC::new(layout.size, seed + 1);
    let (mut seen, mut used) = (BTreeSet::new(), Vec::new());
    // Where all of the leaves in use fit, new ones become rare.
    for _ in 0..200 * count {
        if used.len() == count {
            break;
        }
        let leaf = shape.first_page(layout.key(stream.next_change().row));
        if seen.insert(leaf) {
            used.push(leaf);
        }
    }
    used.reverse();
    used
}

fn run_queued<L: Model<Operation = Append>>(
    tree: Queued<L, Leaves>,
    load: Load,
    mut next_key: impl FnMut() -> u64,
    scale: &Scale,
) -> Result<Seen, Problem> {
    let disks = banks::drives(DRIVE, DATA_DISKS + 1, Some(ORDERING), scale.seed)?;
    let mut system = Bench::new(tree, disks, PROCESSOR_US);
    load.run(&mut system, || Update { key: next_key(), value: 1 })
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let sizes = scale.pick(vec![20, 80], vec![20, 40, 60, 80]);
    let by_size: Vec<Case> = sizes
        .iter()
        .flat_map(|warehouses| VARIANTS.map(|variant| Case::new(variant, *warehouses)))
        .collect();
    let largest = sizes.last().copied().unwrap_or_default();
    let callers: Vec<usize> = scale.pick(Vec::new(), vec![1, 64, 4096]);
    let by_callers: Vec<Case> = callers
        .iter()
        .flat_map(|callers| {
            VARIANTS.map(|variant| Case { variant, warehouses: largest, callers: *callers })
        })
        .collect();
    let batches: Vec<usize> = scale.pick(vec![1], vec![1, 8, 128, 1024]);
    let one_queue = |batch: &usize| Case::new(Variant::OneQueueTrail { batch: *batch }, largest);
    let by_batch: Vec<Case> = batches.iter().map(one_queue).collect();
    let few = |warehouses: &u64| {
        let case = Case::new(Variant::Vanilla, *warehouses);
        FEW.map(|callers| Case { callers, ..case })
    };
    let by_few: Vec<Case> = sizes.iter().flat_map(few).collect();
    let cases = [&by_size[..], &by_callers, &by_batch, &by_few].concat();
    let seen = progress.each(&cases, |case| case.measure(scale))?;
    let (of_sizes, others) = seen.split_at(by_size.len());
    let (of_callers, others) = others.split_at(by_callers.len());
    let (of_batches, of_few) = others.split_at(by_batch.len());
    let mut outcome = Outcome::default();
    outcome.setup("disks", format!("{DISKS} simulated IBM DTLA-307030, write cache off"));
    outcome.setup("requests to a disk", format!("up to {} are ordered by C-LOOK", ORDERING.depth));
    outcome.setup("processor time of a change", format!("{PROCESSOR_US} us"));
    outcome.setup("memory", "1 GB");
    outcome.setup("warehouses and memory of Upsweep and Multi-Queue", format!("1/{SHRUNK}"));
    for (case, seen) in by_size.iter().zip(of_sizes) {
        let name = format!("{}, {} warehouses", case.variant.name(), case.warehouses);
        outcome.value(name, seen.per_second, "req/s");
    }
    outcome.tables.push(sizes_table(&sizes, of_sizes));
    if !callers.is_empty() {
        outcome.tables.push(callers_table(&callers, largest, of_callers));
        outcome.figures.push(callers_figure(&callers, of_callers));
    }
    outcome.tables.push(batches_table(&batches, of_batches));
    outcome.tables.push(few_table(&sizes, of_sizes, of_few));
    outcome.figures.push(sizes_figure(&sizes, of_sizes));
    outcome.caveat(&[], TRACE);
    outcome.caveat(&[OVER_APPEND], GROUPS);
    outcome.caveat(&[OVER_ONE_QUEUE], ONE_QUEUE);
    outcome.caveat(&[OVER_VANILLA_80, OVER_VANILLA_20], AT_A_TIME);
    outcome.caveat(&[], DELETED);
    Ok(outcome)
}

const TRACE: &str = "\
    The paper replays what MySQL asked of its indexes in three hours of TPC-C, which is not \
    published. Nor is what its 0.8 GB for each warehouse consist of: the initial population has \
    0.1 GB. Only changes are made here: the dissertation has about 50 reads a second, so that the \
    paper's rates cannot have many in them.";
const GROUPS: &str = "\
    What logging by appending costs depends on how many changes wait for one write of the log, \
    that is, on the number of callers, which the paper does not give. A full run has a table by \
    callers.";
const ONE_QUEUE: &str = "\
    The paper has 20 requests a second for the trees with one queue. Here, these trees have up to \
    32 requests under way on their disks; the table by updates at a time shows what fewer and more \
    of them do.";
const AT_A_TIME: &str = "\
    How many changes of the vanilla tree are under way is open: the paper does not say how many \
    callers it has, and its ratios fit the 20 requests a second of the trees with one queue. The \
    dissertation mentions a global lock of the tree, under which there would be one. Here there \
    are as many as callers, and the disks order them. The last table has fewer: two to four would \
    do with 80 warehouses, and one to two with 20. The vanilla tree also finds the leaves that \
    take new rows, and part of the others, in its cache.";
const DELETED: &str = "\
    The deletion of a row changes its record, as in InnoDB, which marks what is deleted.";

/// The rates at each of these places, variant by variant.
fn rates(seen: &[Seen]) -> Vec<Vec<f64>> {
    let rows = seen.chunks(VARIANTS.len());
    rows.map(|row| row.iter().map(|seen| seen.per_second).collect()).collect()
}

fn sizes_table(sizes: &[u64], seen: &[Seen]) -> Table {
    let mut columns = vec![Column::published("warehouses")];
    columns.extend(VARIANTS.map(|variant| Column {
        title: format!("{} [req/s]", variant.name()),
        paper: variant.column().map(str::to_owned),
    }));
    let row = |(warehouses, rates): (&u64, Vec<f64>)| {
        let mut row: Vec<Cell> = vec![(*warehouses as f64).into()];
        row.extend(rates.into_iter().map(Cell::Number));
        row
    };
    Table {
        name: "table".into(),
        title: "Changes of the indexes of TPC-C, by warehouses".into(),
        paper: Some(PAPER.into()),
        keys: 1,
        columns,
        rows: sizes.iter().zip(rates(seen)).map(row).collect(),
    }
}

fn callers_table(callers: &[usize], warehouses: u64, seen: &[Seen]) -> Table {
    let mut columns = vec![Column::own("callers")];
    columns.extend(VARIANTS.map(|variant| Column::own(&format!("{} [req/s]", variant.name()))));
    let row = |(callers, rates): (&usize, Vec<f64>)| {
        let mut row: Vec<Cell> = vec![(*callers as f64).into()];
        row.extend(rates.into_iter().map(Cell::Number));
        row
    };
    Table {
        name: "callers".into(),
        title: format!("The same with {warehouses} warehouses, by callers"),
        paper: None,
        keys: 1,
        columns,
        rows: callers.iter().zip(rates(seen)).map(row).collect(),
    }
}

fn batches_table(batches: &[usize], seen: &[Seen]) -> Table {
    let row = |(batch, seen): (&usize, &Seen)| {
        vec![(*batch as f64).into(), seen.per_second.into(), seen.requests_per_operation().into()]
    };
    Table {
        name: "batches".into(),
        title: "One-Queue-Trail by the number of updates that are taken at a time".into(),
        paper: None,
        keys: 1,
        columns: vec![
            Column::own("updates at a time"),
            Column::own("rate [req/s]"),
            Column::own("I/Os for an update"),
        ],
        rows: batches.iter().zip(seen).map(row).collect(),
    }
}

/// The vanilla tree with few changes under way.
fn few_table(sizes: &[u64], of_sizes: &[Seen], of_few: &[Seen]) -> Table {
    let mut rows = Vec::new();
    for ((warehouses, ours), few) in sizes.iter().zip(rates(of_sizes)).zip(of_few.chunks(FEW.len()))
    {
        for (callers, vanilla) in FEW.iter().zip(few) {
            let numbers = [vanilla.per_second, ours[0] / vanilla.per_second];
            let mut row = vec![Cell::Number(*warehouses as f64), Cell::Number(*callers as f64)];
            row.extend(numbers.map(Cell::Number));
            rows.push(row);
        }
    }
    Table {
        name: "few".into(),
        title: "The vanilla tree with few changes under way".into(),
        paper: None,
        keys: 2,
        columns: vec![
            Column::own("warehouses"),
            Column::own("changes under way"),
            Column::own("vanilla [req/s]"),
            Column::own("Upsweep over vanilla"),
        ],
        rows,
    }
}

fn curves(across: &[f64], seen: &[Seen]) -> Vec<Curve> {
    let all = rates(seen);
    let curve = |(place, variant): (usize, Variant)| Curve {
        name: variant.name().into(),
        points: across.iter().zip(&all).map(|(across, rates)| (*across, rates[place])).collect(),
    };
    VARIANTS.into_iter().enumerate().map(curve).collect()
}

fn sizes_figure(sizes: &[u64], seen: &[Seen]) -> Figure {
    let across: Vec<f64> = sizes.iter().map(|warehouses| *warehouses as f64).collect();
    let points = |column: &str| PaperPoints {
        name: format!("paper: {}", column.trim_end_matches(" [req/s]")),
        paper: PAPER.into(),
        across: "warehouses".into(),
        up: column.into(),
        only: None,
    };
    Figure {
        name: "rates".into(),
        title: "Changes of the indexes of TPC-C".into(),
        across: Axis::linear("warehouses"),
        up: Axis::logarithmic("req/s"),
        curves: curves(&across, seen),
        papers: VARIANTS.into_iter().filter_map(Variant::column).map(points).collect(),
    }
}

fn callers_figure(callers: &[usize], seen: &[Seen]) -> Figure {
    let across: Vec<f64> = callers.iter().map(|callers| *callers as f64).collect();
    Figure {
        name: "callers".into(),
        title: "Changes of the indexes of TPC-C, by callers".into(),
        across: Axis::logarithmic("callers"),
        up: Axis::logarithmic("req/s"),
        curves: curves(&across, seen),
        papers: Vec::new(),
    }
}
