//! Reads of single keys from a tree, by the vanilla tree and by Upsweep.

use upsweep_sim::random::Random;

use super::indexes::{Changes, DATA_DISKS, DISKS, Upsweep, Vanilla, tree, tree_of};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Cell, Column, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::System;
use crate::systems::fed::Fed;
use crate::systems::in_place::Access;
use crate::systems::load::{Load, Seen};
use crate::systems::pages::Records;
use crate::systems::plan::Memory;

const PAPER: &str = "bosc-table-1";
/// Sizes at which the vanilla tree is measured by itself.
const INDEX_GB: [u64; 4] = [16, 32, 64, 128];
/// The size of which both stores get an equal part.
const BOTH_GB: u64 = 16;
const LEAF_BYTES: u64 = 4096;
const RECORD_BYTES: u64 = 64;
const MEMORY_MB: u64 = 256;
/// By how much a store beside another is smaller, in a quick run and in a full run.
const SHRUNK: (u64, u64) = (64, 16);
/// Fill at which a block of Upsweep holds as many records as a leaf of the vanilla tree, though
/// each takes four bytes more.
const FILL_PERCENT: u32 = 75;
/// How much of the memory for queues has updates in it when some wait.
const QUEUES_PERCENT: u32 = 40;
/// Updates in a second when some arrive.
const ARRIVING_PER_SECOND: u64 = 100;

const OVER_VANILLA: &str = "latency of a read by Upsweep over that by the vanilla tree";
const OVER_VANILLA_WAITING: &str = "the same while updates wait";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "bosc-table-1",
    title: "Latency of reads from a tree",
    method: "\
        A B+ tree in leaves of 4 KB over simulated IBM DTLA-307030, with 256 MB of memory. One \
        caller reads records with random keys, one after another. The vanilla tree reads the leaf \
        unless it is in its cache, which is full from the beginning. It is measured by itself on \
        five disks, and beside Upsweep with an equal part of an index of 16 GB on four disks, in \
        blocks of the size of a leaf, each with as many records, and with an equal cache. Upsweep \
        has its log on another disk, and its directory in memory besides, as the tree has its \
        inner nodes. Meanwhile nothing else happens; or updates wait in Upsweep's queues and are \
        not swept; or 100 random updates arrive in a second at each store.",
    scaling: "\
        A quick run measures 300 reads of the vanilla tree by itself and 20,000 of both stores, a \
        full run 5,000 and 100,000; one in 20 of these while updates arrive.",
    papers: &[PAPER, "goals-reads"],
    bindings: &[
        Binding::ratio(
            "goals-reads",
            OVER_VANILLA,
            ("Upsweep, nothing", "vanilla, nothing"),
            Better::Less,
        ),
        Binding::ratio(
            "goals-reads",
            OVER_VANILLA_WAITING,
            ("Upsweep, updates wait", "vanilla, updates wait"),
            Better::Less,
        ),
    ],
    run,
};

/// What happens while records are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    /// Only Upsweep has updates that wait.
    Waiting,
    Arriving,
}

impl Meanwhile {
    const ALL: [Self; 3] = [Self::Nothing, Self::Waiting, Self::Arriving];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Waiting => "updates wait",
            Self::Arriving => "updates arrive",
        }
    }

    /// What it is for the vanilla tree, where no update waits outside of its cache.
    fn of_vanilla(self) -> Self {
        match self {
            Self::Waiting => Self::Nothing,
            other => other,
        }
    }
}

/// A store, and what happens while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// The vanilla tree by itself, of so many GB.
    Alone(u64),
    /// The vanilla tree under the conditions of Upsweep.
    Vanilla(Meanwhile),
    Upsweep(Meanwhile),
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let mut cases = INDEX_GB.map(Case::Alone).to_vec();
    cases.extend([Meanwhile::Nothing, Meanwhile::Arriving].map(Case::Vanilla));
    cases.extend(Meanwhile::ALL.map(Case::Upsweep));
    let seen = progress.each(&cases, |case| measure(*case, scale))?;
    let find = |wanted: Case| {
        cases.iter().zip(&seen).find(|(case, _)| **case == wanted).map(|(_, seen)| seen)
    };
    let mut outcome = Outcome::default();
    let mut rows = Vec::new();
    for index_gb in INDEX_GB {
        rows.push(row(index_gb as f64, "", find(Case::Alone(index_gb)), None));
    }
    for meanwhile in Meanwhile::ALL {
        let vanilla = find(Case::Vanilla(meanwhile.of_vanilla()));
        let upsweep = find(Case::Upsweep(meanwhile));
        for (store, seen) in [("vanilla", vanilla), ("Upsweep", upsweep)] {
            if let Some(seen) = seen {
                outcome.value(format!("{store}, {}", meanwhile.name()), seen.latency_ms, "ms");
            }
        }
        let index_gb = BOTH_GB as f64 / shrunk(scale) as f64;
        rows.push(row(index_gb, meanwhile.name(), vanilla, upsweep));
    }
    outcome.setup(
        "cache of each beside the other",
        format!("{} MB", short((cache_bytes(scale) >> 20) as f64)),
    );
    outcome.tables.push(table(rows));
    outcome.caveat(&[], SIZE_OPEN);
    outcome.caveat(&[OVER_VANILLA_WAITING], WAITING);
    outcome.caveat(&[], ARRIVING);
    outcome.caveat(&[], "Queries of ranges are not measured.");
    Ok(outcome)
}

/// A row for an index of so many GB, with what the callers of the vanilla tree and of Upsweep saw.
fn row(
    index_gb: f64,
    meanwhile: &str,
    vanilla: Option<&Seen>,
    upsweep: Option<&Seen>,
) -> Vec<Cell> {
    let latency_ms = |seen: Option<&Seen>| seen.map(|seen| seen.latency_ms);
    let reads = |seen: &Seen| seen.traffic.reads as f64 / seen.operations as f64;
    let ratio =
        upsweep.zip(vanilla).map(|(upsweep, vanilla)| upsweep.latency_ms / vanilla.latency_ms);
    let numbers =
        [latency_ms(vanilla), latency_ms(upsweep), ratio, vanilla.map(reads), upsweep.map(reads)];
    let mut row = vec!["B+ tree".into(), index_gb.into(), meanwhile.into()];
    row.extend(numbers.map(|number| number.map_or("".into(), Cell::Number)));
    row
}

fn table(rows: Vec<Vec<Cell>>) -> Table {
    Table {
        name: "table".into(),
        title: "Mean latency of a read of one record".into(),
        paper: Some(PAPER.into()),
        keys: 3,
        columns: vec![
            Column::published("index"),
            Column::own("size [GB]"),
            Column::own("meanwhile"),
            Column::published("point query without BOSC [ms]"),
            Column::published("point query with BOSC [ms]"),
            Column::own("with over without"),
            Column::own("disk reads for a query, without"),
            Column::own("with"),
        ],
        rows,
    }
}

fn shrunk(scale: &Scale) -> u64 {
    scale.pick(SHRUNK.0, SHRUNK.1)
}

/// The cache of a store with its part of the index.
fn cache_bytes(scale: &Scale) -> u64 {
    (MEMORY_MB << 20) / shrunk(scale)
}

fn measure(case: Case, scale: &Scale) -> Result<Seen, Problem> {
    let reads = |records: Records| {
        let mut random = Random::new(scale.seed, "reads");
        move || Access::Get(random.below(records.count) * records.stride)
    };
    let (part, records) = tree_of((BOTH_GB << 30) / shrunk(scale), LEAF_BYTES, RECORD_BYTES);
    let vanilla = |shape, memory_mb, disks| Vanilla {
        shape,
        page_bytes: LEAF_BYTES,
        record_bytes: RECORD_BYTES,
        memory_mb,
        are_changed: false,
        disks,
    };
    match case {
        Case::Alone(index_gb) => {
            let (shape, records) = tree(index_gb, LEAF_BYTES, RECORD_BYTES);
            let load = Load { callers: 1, warm_up: 10, measured: scale.pick(300, 5000) };
            vanilla(shape, MEMORY_MB, DISKS).measure(load, scale.seed, reads(records))
        }
        Case::Vanilla(meanwhile) => {
            let store = vanilla(part, cache_bytes(scale) >> 20, DATA_DISKS).make(scale.seed)?;
            read(store, meanwhile, records, scale, reads(records))
        }
        Case::Upsweep(meanwhile) => {
            let memory = Memory::Cache(cache_bytes(scale));
            let mut store = Upsweep::table(records, RECORD_BYTES, memory);
            store.plan.block_bytes = Some(LEAF_BYTES as u32);
            store.plan.fill_percent = FILL_PERCENT;
            store.plan.sweeps_when_idle = meanwhile != Meanwhile::Waiting;
            let mut store = store.make(scale.seed)?;
            if meanwhile == Meanwhile::Waiting {
                store.fill_queues(QUEUES_PERCENT, Changes::Update.random(records, scale.seed))?;
            }
            read(store, meanwhile, records, scale, reads(records))
        }
    }
}

/// Reads of a store whose cache they have filled several times.
fn read(
    mut store: impl System<Operation = Access>,
    meanwhile: Meanwhile,
    records: Records,
    scale: &Scale,
    next: impl FnMut() -> Access,
) -> Result<Seen, Problem> {
    let warm_up = 3 * cache_bytes(scale) / LEAF_BYTES;
    let load = Load { callers: 1, warm_up, measured: scale.pick(20_000, 100_000) };
    if meanwhile != Meanwhile::Arriving {
        return load.run(&mut store, next);
    }
    let load = Load { measured: load.measured / 20, ..load };
    let changes = Changes::Update.random(records, scale.seed);
    load.run(&mut Fed::new(store, ARRIVING_PER_SECOND, changes), next)
}

const SIZE_OPEN: &str = "\
    The paper does not give the size of the index, nor where on the disks it lies. All sizes of \
    its other experiments are measured of the vanilla tree; they begin at the outer edge of each \
    disk, so that a larger one has longer seeks. The blocks of Upsweep are real, so that both \
    stores are compared with a small part of an index, whose seeks are short.";
const WAITING: &str = "\
    A query for a record whose value a waiting update decides is answered from memory, without \
    reading the block. The vanilla tree has nothing like it: it is compared as it is when nothing \
    else happens.";
const ARRIVING: &str = "\
    While updates arrive, Upsweep sweeps without a pause, as production does on drives: a read \
    waits for the run of blocks that its disk is reading or writing. The vanilla tree reads and \
    later writes a leaf for each update, without logging it.";
