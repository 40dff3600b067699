//! What the experiments of the paper on shadowed B-trees share: its trees, its hardware, its
//! operations, and the stores that perform them.

use upsweep::layers::device::Simulated;
use upsweep_sim::random::Random;

use super::indexes::PROCESSOR_US;
use crate::experiment::Scale;
use crate::outcome::{Cell, Column, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::banks;
use crate::systems::bare::{BarePages, PageAccess};
use crate::systems::in_place::{ANY_VALUE, Access, InPlace, Sizes};
use crate::systems::load::{Load, Seen};
use crate::systems::pages::{Leaves, Records};
use crate::systems::plan::{Memory, Plan};
use crate::systems::raid::{Raid, Striping};
use crate::systems::store::Store;
use crate::systems::{Bench, System};

pub(super) const DRIVE: &str = "st39133lwv";
pub(super) const NODE_BYTES: u64 = 4096;
/// The area of the array that the paper uses.
pub(super) const AREA_BYTES: u64 = 1 << 30;
/// Eight strips of data and one of parity.
const STRIPING: Striping = Striping {
    drives: 9,
    parity: true,
    strip_bytes: 64 << 10,
    drive_offset: 0,
    used_bytes: AREA_BYTES,
    one_by_one: false,
};
/// Bytes of a record in a block besides key and value.
const OVERHEAD_BYTES: u64 = 4;
/// Bytes of a block for records, about.
const ROOM_BYTES: u64 = 4032;
/// The distance between two keys.
const STRIDE: u64 = 2;
/// Keys of a range.
pub(super) const RANGE: u64 = 100;
/// Operations before an update is measured.
pub(super) const AGING: u64 = 1000;
/// How many tasks there are.
pub(super) const TASKS: [usize; 2] = [1, 10];
/// Nodes that are in memory, in per cent, unless that is varied.
pub(super) const IN_MEMORY: u64 = 5;

/// A tree of the paper.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    pub(super) name: &'static str,
    keys: u64,
    /// Records of a leaf, on average and at most.
    per_leaf: u64,
    leaf_max: u64,
    leaves: u64,
    index_nodes: u64,
    record_bytes: u64,
}

pub(super) const TREES: [Tree; 2] = [
    Tree {
        name: "T235",
        keys: 7_520_000,
        per_leaf: 117,
        leaf_max: 235,
        leaves: 64_273,
        index_nodes: 554,
        record_bytes: 16,
    },
    Tree {
        name: "T150",
        keys: 4_800_000,
        per_leaf: 75,
        leaf_max: 150,
        leaves: 63_999,
        index_nodes: 865,
        // 20, and what the paper wastes of a node so that it has room for 150.
        record_bytes: 23,
    },
];

impl Tree {
    /// Its records, or one part in so many of them.
    pub(super) fn records(self, part: u64) -> Records {
        Records { count: self.keys / part, stride: STRIDE }
    }
}

/// What a tree is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hardware {
    /// Nine drives as the paper's array.
    Array,
    /// One drive.
    Drive,
    /// Such an array of other drives, or that works otherwise: what the paper leaves open.
    Other(Open),
}

/// What the paper leaves open of its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Open {
    /// How long a seek takes, as a share of what it takes here, in per cent.
    seeks_percent: u32,
    /// Whether the parts of a short write are done one after another.
    one_by_one: bool,
}

pub(super) const HARDWARE: [Hardware; 2] = [Hardware::Array, Hardware::Drive];

impl Hardware {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Array | Self::Other(_) => "RAID 5, 8+P",
            Self::Drive => "one drive",
        }
    }

    /// It as device 0, and so many drives more.
    pub(super) fn bank(self, more: u16, seed: u64) -> Result<Box<dyn Simulated>, Problem> {
        match self {
            Self::Array => {
                let drives = banks::drives(DRIVE, STRIPING.drives + more, None, seed)?;
                Ok(Box::new(Raid::new(drives, STRIPING)))
            }
            Self::Drive => banks::drives(DRIVE, 1 + more, None, seed),
            Self::Other(Open { seeks_percent, one_by_one }) => {
                let count = STRIPING.drives + more;
                let drives = banks::drives_with_seeks(DRIVE, count, seeks_percent, seed)?;
                Ok(Box::new(Raid::new(drives, Striping { one_by_one, ..STRIPING })))
            }
        }
    }

    /// Measures pages at random places of the paper's area.
    pub(super) fn bare(
        self,
        access: fn(&mut Random) -> PageAccess,
        tasks: usize,
        scale: &Scale,
    ) -> Result<Seen, Problem> {
        let mut random = Random::new(scale.seed, "pages");
        let mut pages = Bench::new(BarePages::new(NODE_BYTES), self.bank(0, scale.seed)?, 0);
        let load = Load { callers: tasks, warm_up: 100, measured: scale.pick(2000, 12_000) };
        load.run(&mut pages, || access(&mut random))
    }
}

/// The offset of a random page.
pub(super) fn any_page(random: &mut Random) -> u64 {
    random.below(AREA_BYTES / NODE_BYTES) * NODE_BYTES
}

/// An operation of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Lookup,
    Insert,
    Remove,
    Append,
    LookupRange,
    RemoveRange,
}

impl Operation {
    pub(super) const ALL: [Self; 6] = [
        Self::Lookup,
        Self::Insert,
        Self::Remove,
        Self::Append,
        Self::LookupRange,
        Self::RemoveRange,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Insert => "insert",
            Self::Remove => "remove",
            Self::Append => "append",
            Self::LookupRange => "lookup range",
            Self::RemoveRange => "remove range",
        }
    }

    pub(super) fn changes(self) -> bool {
        !matches!(self, Self::Lookup | Self::LookupRange)
    }
}

/// Operations of a workload, in per cent.
pub(super) type Mix = &'static [(Operation, u64)];

pub(super) const WORKLOADS: [(&str, Mix); 4] = [
    ("Search-100", &[(Operation::Lookup, 100)]),
    ("Search-80", &[(Operation::Lookup, 80), (Operation::Insert, 10), (Operation::Remove, 10)]),
    ("Modify", &[(Operation::Lookup, 20), (Operation::Insert, 40), (Operation::Remove, 40)]),
    ("Insert", &[(Operation::Insert, 100)]),
];

/// What is done before an update is measured.
pub(super) const AGE: Mix = &[(Operation::Insert, 50), (Operation::Remove, 50)];

/// A tree that is to be built.
const FIRST: Records = Records { count: 1, stride: STRIDE };

/// What callers do with a tree of these records.
pub(super) struct Caller {
    records: Records,
    random: Random,
    appended: u64,
}

impl Caller {
    pub(super) fn new(records: Records, seed: u64) -> Self {
        Self { records, random: Random::new(seed, "operations"), appended: 0 }
    }

    /// One that appends to a tree with nothing but its first key.
    pub(super) fn appending(seed: u64) -> Self {
        Self::new(FIRST, seed)
    }

    /// An operation of a mix.
    pub(super) fn next(&mut self, mix: Mix) -> Access {
        let mut drawn = self.random.below(100);
        let found = mix.iter().find(|(_, percent)| {
            let is_it = drawn < *percent;
            drawn = drawn.saturating_sub(*percent);
            is_it
        });
        self.access(found.map_or(Operation::Lookup, |(operation, _)| *operation))
    }

    /// An operation with a random key; inserts have the keys between those of the tree.
    pub(super) fn access(&mut self, operation: Operation) -> Access {
        let Records { count, stride } = self.records;
        match operation {
            Operation::Lookup => Access::Get(self.random.below(count) * stride),
            Operation::Insert => Access::Put(self.random.below(count) * stride + 1, ANY_VALUE),
            Operation::Remove => Access::Remove(self.random.below(count) * stride),
            Operation::Append => {
                self.appended += 1;
                Access::Put((count + self.appended) * stride, ANY_VALUE)
            }
            Operation::LookupRange | Operation::RemoveRange => {
                let from = self.random.below(count - RANGE) * stride;
                let to = from + RANGE * stride;
                match operation {
                    Operation::LookupRange => Access::Scan(from, to),
                    _ => Access::RemoveRange(from, to),
                }
            }
        }
    }
}

/// A tree that is updated in place, with so much of its nodes in memory, all index nodes among
/// them.
pub(super) fn in_place(
    tree: Tree,
    hardware: Hardware,
    in_memory_percent: u64,
    seed: u64,
) -> Result<Bench<InPlace<Leaves>>, Problem> {
    let nodes = (tree.leaves + tree.index_nodes) * in_memory_percent / 100;
    let frames = nodes.saturating_sub(tree.index_nodes) as usize;
    let sizes = Sizes { page_bytes: NODE_BYTES, records_max: tree.leaf_max, frames, devices: 1 };
    let mut store = InPlace::new(Leaves::new(tree.records(1), tree.per_leaf), sizes);
    let mut random = Random::new(seed, "leaves in the cache");
    match in_memory_percent {
        100 => store.fill(0..tree.leaves, false),
        _ => {
            let any = std::iter::repeat_with(|| random.below(tree.leaves));
            store.fill(any.take(8 * frames), false);
        }
    }
    Ok(Bench::new(store, hardware.bank(0, seed)?, PROCESSOR_US))
}

/// A tree to be built in place up to one part in so many, with the usual share of that in memory.
pub(super) fn empty_in_place(
    tree: Tree,
    hardware: Hardware,
    part: u64,
    seed: u64,
) -> Result<Bench<InPlace<Leaves>>, Problem> {
    let nodes = (tree.leaves + tree.index_nodes) * IN_MEMORY / 100;
    let frames = (nodes.saturating_sub(tree.index_nodes) / part) as usize;
    let sizes = Sizes { page_bytes: NODE_BYTES, records_max: tree.leaf_max, frames, devices: 1 };
    let store = InPlace::new(Leaves::new(FIRST, tree.per_leaf), sizes);
    Ok(Bench::new(store, hardware.bank(0, seed)?, PROCESSOR_US))
}

/// What [`upsweep()`] makes of a tree, before it is built.
pub(super) fn empty_upsweep(
    tree: Tree,
    hardware: Hardware,
    part: u64,
    seed: u64,
) -> Result<Store, Problem> {
    Store::create(plan(tree, part, IN_MEMORY), FIRST, hardware.bank(1, seed)?)
}

/// Records in a second with which [`upsweep()`] is loaded.
pub(super) fn bulk_load(
    tree: Tree,
    hardware: Hardware,
    part: u64,
    seed: u64,
) -> Result<f64, Problem> {
    let empty_us = empty_upsweep(tree, hardware, part, seed)?.now_us();
    let loaded_us = upsweep(tree, hardware, (part, IN_MEMORY), seed)?.now_us();
    let us = loaded_us.saturating_sub(empty_us).max(1);
    Ok(tree.records(part).count as f64 / (us as f64 / 1e6))
}

/// One part in so many of a tree as a table of Upsweep, with so much of its blocks in the cache,
/// and a log on a drive of its own.
pub(super) fn upsweep(
    tree: Tree,
    hardware: Hardware,
    (part, in_memory_percent): (u64, u64),
    seed: u64,
) -> Result<Store, Problem> {
    let plan = plan(tree, part, in_memory_percent);
    Store::create(plan, tree.records(part), hardware.bank(1, seed)?)
}

/// What one part in so many of a tree is to be as a table.
fn plan(tree: Tree, part: u64, in_memory_percent: u64) -> Plan {
    let bytes = tree.per_leaf * (tree.record_bytes + OVERHEAD_BYTES);
    let cache_bytes = tree.leaves / part * NODE_BYTES * in_memory_percent / 100;
    Plan {
        log_bytes: 512 << 20,
        memory: Memory::Cache(cache_bytes),
        block_bytes: Some(NODE_BYTES as u32),
        record_bytes: tree.record_bytes,
        fill_percent: (100 * bytes).div_ceil(ROOM_BYTES) as u32,
        processor_us: PROCESSOR_US,
        ..Plan::TABLE
    }
}

/// Operations in a second of virtual time, from now until all of these have ended and `finish` has.
pub(super) fn until<S: System<Operation = Access>>(
    system: &mut S,
    tasks: usize,
    operations: u64,
    next: impl FnMut() -> Access,
    finish: impl FnOnce(&mut S) -> Result<(), Problem>,
) -> Result<f64, Problem> {
    let from_us = system.now_us();
    Load { callers: tasks, warm_up: 0, measured: operations }.run(system, next)?;
    finish(system)?;
    Ok(operations as f64 / ((system.now_us() - from_us) as f64 / 1e6))
}

/// Moves a tree that is updated in place to when nothing is under way.
pub(super) fn drain<S: System>(system: &mut S) -> Result<(), Problem> {
    while let Some(us) = system.next_event_us() {
        system.advance_to(us, &mut Vec::new())?;
    }
    Ok(())
}

/// Describes the hardware.
pub(super) fn setup(outcome: &mut Outcome) {
    outcome.setup("drives", "simulated Seagate ST39133LWV, 10,000 rpm, caches off");
    outcome.setup("array", "RAID 5 of nine, strips of 64 KB, of which 1 GB is used");
    outcome.setup("log of Upsweep", "on one more drive");
    outcome.setup("processor time of an operation", format!("{PROCESSOR_US} us"));
}

const OPEN_SEEKS_PERCENT: [u32; 5] = [100, 125, 150, 200, 300];

/// What the array by itself, and inserts into a tree in place on it, bring by what is open.
pub(super) fn open_table(scale: &Scale, progress: &Progress) -> Result<Table, Problem> {
    let cases: Vec<Open> = [false, true]
        .into_iter()
        .flat_map(|one_by_one| {
            OPEN_SEEKS_PERCENT.map(|seeks_percent| Open { seeks_percent, one_by_one })
        })
        .collect();
    let rows = progress.each(&cases, |open| {
        let hardware = Hardware::Other(*open);
        let [read, write] = [
            |random: &mut Random| PageAccess::Read(any_page(random)),
            |random: &mut Random| PageAccess::Write(any_page(random)),
        ];
        let mut tree = in_place(TREES[0], hardware, IN_MEMORY, scale.seed)?;
        let mut caller = Caller::new(TREES[0].records(1), scale.seed);
        until(&mut tree, 1, AGING, || caller.next(AGE), drain)?;
        let inserts = until(&mut tree, 1, 12_000, || caller.access(Operation::Insert), drain)?;
        let numbers = [
            f64::from(open.seeks_percent) / 100.0,
            hardware.bare(read, 1, scale)?.latency_ms,
            hardware.bare(write, 1, scale)?.latency_ms,
            1e3 / inserts,
            hardware.bare(read, TASKS[1], scale)?.per_second,
        ];
        let parts = if open.one_by_one { "one by one" } else { "together" };
        let mut row: Vec<Cell> = vec![parts.into()];
        row.extend(numbers.map(Cell::Number));
        Ok(row)
    })?;
    Ok(Table {
        name: "open".into(),
        title: "By what is open: the order of the parts of a short write, and the seeks".into(),
        paper: None,
        keys: 2,
        columns: vec![
            Column::own("parts of a short write"),
            Column::own("seek time over that of the ST39133LWV"),
            Column::own("page read by one task [ms]"),
            Column::own("page written by one task [ms]"),
            Column::own("insert into T235 in place [ms]"),
            Column::own("pages read by ten tasks [ops/s]"),
        ],
        rows,
    })
}

pub(super) const DRIVES_OPEN: &str = "\
    The paper does not say what drives are in its array, nor in which order its controller does \
    the four parts of a short write. The ST39133LWV is a drive of the years before it, and that of \
    another paper; the cost of the controller, of Fibre Channel and of the object disk around it \
    is not simulated. A table of sbt-table-1 varies both. With the parts one after another and \
    seeks 1.25 to 1.5 times as long, all of these would do: a page is read in 4.9 to 5.1 ms, ten \
    tasks read about 1,250 pages a second, and an insert in place takes 23 ms.";
