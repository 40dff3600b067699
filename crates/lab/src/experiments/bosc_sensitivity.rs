//! The sensitivity study: what the size of leaves, of records, of both, of the index and of the
//! memory does to the rates of a tree.

use upsweep_sim::random::Random;

use super::indexes::{
    CALLERS, Changes, DISKS, NOT_DURABLE, SHRUNK_CAVEAT, UPSWEEP_CALLERS, Upsweep, Vanilla,
    records_of, tree,
};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::outcome::{Axis, Cell, Column, Curve, Figure, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::in_place::{ANY_VALUE, Access};
use crate::systems::load::{Load, Seen};
use crate::systems::pages::Records;
use crate::systems::plan::Memory;

const METHOD: &str = "\
    A B+ tree, seven tenths full, over five simulated IBM DTLA-307030: unless it is varied, 64 GB \
    in leaves of 64 KB with records of 64 bytes, and 1 GB of memory. The vanilla tree keeps leaves \
    in that memory and writes the one that was used least recently when it has to leave; it begins \
    with a cache full of changed leaves and has 64 callers. Upsweep has a table in blocks of the \
    size of a leaf on four of the disks, and its log on one; the memory is that of its queues, as \
    in the paper, and 16,384 callers make durable changes. It does not spill, as in the paper: all \
    updates that wait are in memory. It is measured once it has taken more of them than its queues \
    have room for. Sequential inserts have keys one after another, from a random one on; clustered \
    inserts come as 32 such from each random key.";
const SCALING: &str = "\
    The index of Upsweep and its queues are one part in 256 of the vanilla tree's in a quick run, \
    and one in 64 in a full run. The vanilla tree has its full size, and makes 1,000 changes in a \
    quick run, 10,000 in a full run; 32 times as many clustered and 256 times as many sequential \
    ones.";
/// By how much Upsweep is smaller, in a quick run and in a full run.
const SHRUNK: (u64, u64) = (256, 64);
/// How many times as many bytes of records as its queues have are changed before it is measured,
/// and while it is.
const PHASES: u64 = 2;

/// What is varied, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    leaf_kb: u64,
    record_bytes: u64,
    index_gb: u64,
    memory_mb: u64,
}

const USUAL: Setting = Setting { leaf_kb: 64, record_bytes: 64, index_gb: 64, memory_mb: 1024 };

/// What callers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workload {
    Sequential,
    Clustered,
    Random(Changes),
}

/// Inserts of a cluster.
const CLUSTER: u64 = 32;
const INSERTS: [Workload; 3] =
    [Workload::Random(Changes::Insert), Workload::Clustered, Workload::Sequential];
const ALL: [Workload; 4] = [
    Workload::Random(Changes::Insert),
    Workload::Random(Changes::Update),
    Workload::Clustered,
    Workload::Sequential,
];

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential insert",
            Self::Clustered => "clustered insert",
            Self::Random(Changes::Insert) => "random insert",
            Self::Random(Changes::Update) => "random update",
        }
    }

    /// Changes that hit a leaf of the vanilla tree, about, before it is no longer in memory.
    fn together(self) -> u64 {
        match self {
            Self::Sequential => 256,
            Self::Clustered => CLUSTER,
            Self::Random(_) => 1,
        }
    }

    /// The changes, of a tree with these records.
    fn changes(self, records: Records, seed: u64) -> Box<dyn FnMut() -> Access> {
        let run_length = match self {
            Self::Random(changes) => return Box::new(changes.random(records, seed)),
            Self::Clustered => CLUSTER,
            Self::Sequential => u64::MAX,
        };
        let mut random = Random::new(seed, self.name());
        let (mut key, mut left) = (0, 0);
        Box::new(move || {
            if left == 0 {
                (key, left) = (random.below(records.count * records.stride), run_length);
            }
            (key, left) = (key + 1, left - 1);
            Access::Put(key, ANY_VALUE)
        })
    }
}

/// One figure.
struct Study {
    /// What is varied: the title of its axis.
    parameter: &'static str,
    /// The setting for a value of it.
    setting: fn(u64) -> Setting,
    /// The values in a quick run, and in a full run.
    values: (&'static [u64], &'static [u64]),
    workloads: &'static [Workload],
}

const LEAVES: Study = Study {
    parameter: "leaf size [KB]",
    setting: |leaf_kb| Setting { leaf_kb, index_gb: 64, ..USUAL },
    values: (&[16, 256], &[16, 32, 64, 128, 256, 512, 1024]),
    workloads: &INSERTS,
};
const RECORDS: Study = Study {
    parameter: "record size [bytes]",
    setting: |record_bytes| Setting { record_bytes, ..USUAL },
    values: (&[64, 1024], &[64, 128, 256, 512, 1024]),
    workloads: &INSERTS,
};
const RECORDS_AND_LEAVES: Study = Study {
    parameter: "record size [bytes], 128 to a leaf",
    setting: |record_bytes| Setting { record_bytes, leaf_kb: record_bytes / 8, ..USUAL },
    values: (&[64, 1024], &[64, 128, 256, 512, 1024]),
    workloads: &INSERTS,
};
const INDEXES: Study = Study {
    parameter: "index size [GB]",
    setting: |index_gb| Setting { index_gb, ..USUAL },
    values: (&[16, 64], &[16, 32, 64, 128]),
    workloads: &ALL,
};
const MEMORIES: Study = Study {
    parameter: "memory [MB]",
    setting: |memory_mb| Setting { memory_mb, ..USUAL },
    values: (&[512, 1536], &[512, 768, 1024, 1280, 1536]),
    workloads: &INSERTS,
};

/// The rate of a workload at the last value of a figure over that at the first, of Upsweep without
/// spills, which is what the paper has; a claim has that name.
type Change = (&'static str, (&'static str, &'static str));

const RANDOM: Change = (
    "random insert, last over first",
    ("Upsweep without spills, random insert, last", "Upsweep without spills, random insert, first"),
);
const CLUSTERED: Change = (
    "clustered insert, last over first",
    (
        "Upsweep without spills, clustered insert, last",
        "Upsweep without spills, clustered insert, first",
    ),
);
const SEQUENTIAL: Change = (
    "sequential insert, last over first",
    (
        "Upsweep without spills, sequential insert, last",
        "Upsweep without spills, sequential insert, first",
    ),
);
const UPDATE_OVER_INSERT: Change = (
    "random update over random insert, last",
    ("Upsweep without spills, random update, last", "Upsweep without spills, random insert, last"),
);

pub(super) const LEAF_SIZE: Experiment = Experiment {
    id: "bosc-fig-4",
    title: "Inserts into a tree by the size of leaves",
    method: METHOD,
    scaling: SCALING,
    papers: &["bosc-fig-4-leaf-size", "goals-leaf-size"],
    bindings: &[
        Binding::ratio("goals-leaf-size", RANDOM.0, RANDOM.1, Better::Neither),
        Binding::ratio("goals-leaf-size", CLUSTERED.0, CLUSTERED.1, Better::Neither),
        Binding::ratio("goals-leaf-size", SEQUENTIAL.0, SEQUENTIAL.1, Better::Neither),
    ],
    run: |scale, progress| {
        let mut outcome = LEAVES.run(scale, progress)?;
        outcome.caveat(&[RANDOM.0], AHEAD);
        Ok(outcome)
    },
};

pub(super) const RECORD_SIZE: Experiment = Experiment {
    id: "bosc-fig-5",
    title: "Inserts into a tree by the size of records",
    method: METHOD,
    scaling: SCALING,
    papers: &["bosc-fig-5-record-size", "goals-record-size"],
    bindings: &[
        Binding::ratio("goals-record-size", RANDOM.0, RANDOM.1, Better::Neither),
        Binding::ratio("goals-record-size", CLUSTERED.0, CLUSTERED.1, Better::Neither),
        Binding::ratio("goals-record-size", SEQUENTIAL.0, SEQUENTIAL.1, Better::Neither),
    ],
    run: |scale, progress| RECORDS.run(scale, progress),
};

pub(super) const RECORD_AND_LEAF_SIZE: Experiment = Experiment {
    id: "bosc-fig-6",
    title: "Inserts into a tree by the size of records and leaves together",
    method: METHOD,
    scaling: SCALING,
    papers: &["bosc-fig-6-record-and-leaf", "goals-record-and-leaf-size"],
    bindings: &[
        Binding::ratio("goals-record-and-leaf-size", RANDOM.0, RANDOM.1, Better::Neither),
        Binding::ratio("goals-record-and-leaf-size", CLUSTERED.0, CLUSTERED.1, Better::Neither),
        Binding::ratio("goals-record-and-leaf-size", SEQUENTIAL.0, SEQUENTIAL.1, Better::Neither),
    ],
    run: |scale, progress| RECORDS_AND_LEAVES.run(scale, progress),
};

pub(super) const INDEX_SIZE: Experiment = Experiment {
    id: "bosc-fig-7",
    title: "Inserts and updates of a tree by its size",
    method: METHOD,
    scaling: SCALING,
    papers: &["bosc-fig-7-index-size", "goals-index-size"],
    bindings: &[
        Binding::ratio("goals-index-size", RANDOM.0, RANDOM.1, Better::Neither),
        Binding::ratio("goals-index-size", SEQUENTIAL.0, SEQUENTIAL.1, Better::Neither),
        Binding::ratio(
            "goals-index-size",
            UPDATE_OVER_INSERT.0,
            UPDATE_OVER_INSERT.1,
            Better::Neither,
        ),
    ],
    run: |scale, progress| INDEXES.run(scale, progress),
};

pub(super) const MEMORY: Experiment = Experiment {
    id: "bosc-fig-8",
    title: "Inserts into a tree by memory",
    method: METHOD,
    scaling: SCALING,
    papers: &["bosc-fig-8-buffer-memory", "goals-memory"],
    bindings: &[
        Binding::ratio("goals-memory", RANDOM.0, RANDOM.1, Better::Neither),
        Binding::ratio("goals-memory", CLUSTERED.0, CLUSTERED.1, Better::Neither),
        Binding::ratio("goals-memory", SEQUENTIAL.0, SEQUENTIAL.1, Better::Neither),
    ],
    run: |scale, progress| MEMORIES.run(scale, progress),
};

/// The stores, as values and figures call them.
const STORES: [&str; 2] = ["vanilla", "Upsweep without spills"];

impl Study {
    fn run(&self, scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
        let values = scale.pick(self.values.0, self.values.1);
        let pairs: Vec<(u64, Workload)> = values
            .iter()
            .flat_map(|value| self.workloads.iter().map(|workload| (*value, *workload)))
            .collect();
        let cases: Vec<_> =
            pairs.iter().flat_map(|pair| STORES.map(|store| (store, pair.0, pair.1))).collect();
        let seen = progress.each(&cases, |(store, value, workload)| {
            let setting = (self.setting)(*value);
            match *store {
                "vanilla" => setting.vanilla(*workload, scale),
                _ => setting.upsweep(*workload, scale),
            }
        })?;
        let mut outcome = Outcome::default();
        outcome.setup("disks", format!("{DISKS} simulated IBM DTLA-307030, write cache off"));
        let part = scale.pick(SHRUNK.0, SHRUNK.1);
        outcome.setup("index and memory of Upsweep", format!("one part in {part} of both"));
        for ((store, value, workload), seen) in cases.iter().zip(&seen) {
            for (place, named) in [("first", values.first()), ("last", values.last())] {
                if named == Some(value) {
                    let name = format!("{store}, {}, {place}", workload.name());
                    outcome.value(name, seen.per_second, "ops/s");
                }
            }
        }
        outcome.tables.push(self.table(&pairs, &seen));
        for workload in self.workloads {
            outcome.figures.push(self.figure(*workload, &pairs, &seen));
        }
        outcome.caveat(&[], "The paper states no rates: its figures are only drawn.");
        outcome.caveat(&[], OPEN);
        outcome.caveat(&[SEQUENTIAL.0], BOUNDS);
        outcome.caveat(&[], MEMORY_BESIDES);
        outcome.caveat(&[], NOT_DURABLE);
        outcome.caveat(&[], SHRUNK_CAVEAT);
        Ok(outcome)
    }

    fn table(&self, pairs: &[(u64, Workload)], seen: &[Seen]) -> Table {
        let row = |((value, workload), seen): (&(u64, Workload), &[Seen])| {
            let mut row: Vec<Cell> = vec![(*value as f64).into(), workload.name().into()];
            row.extend(seen.iter().map(|seen| Cell::Number(seen.per_second)));
            row.push(Cell::Number(seen[1].per_second / seen[0].per_second));
            row
        };
        Table {
            name: "table".into(),
            title: "Changes in a second".into(),
            paper: None,
            keys: 2,
            columns: vec![
                Column::own(self.parameter),
                Column::own("workload"),
                Column::own("vanilla [ops/s]"),
                Column::own("Upsweep without spills [ops/s]"),
                Column::own("Upsweep over vanilla"),
            ],
            rows: pairs.iter().zip(seen.chunks(STORES.len())).map(row).collect(),
        }
    }

    /// The rates of all stores under one workload.
    fn figure(&self, workload: Workload, pairs: &[(u64, Workload)], seen: &[Seen]) -> Figure {
        let curve = |(place, store): (usize, &&str)| {
            let rates = pairs.iter().zip(seen[place..].iter().step_by(STORES.len()));
            let of_it = rates.filter(|(pair, _)| pair.1 == workload);
            let points = of_it.map(|((value, _), seen)| (*value as f64, seen.per_second));
            Curve { name: (*store).into(), points: points.collect() }
        };
        // Rates of sequential inserts are too alike for a logarithmic axis.
        let logarithmic = workload != Workload::Sequential;
        Figure {
            name: workload.name().replace(' ', "-"),
            title: format!("{}s in a second", workload.name()),
            across: Axis::logarithmic(self.parameter),
            up: Axis { title: "ops/s".into(), logarithmic },
            curves: STORES.iter().enumerate().map(curve).collect(),
            papers: Vec::new(),
        }
    }
}

impl Setting {
    fn vanilla(self, workload: Workload, scale: &Scale) -> Result<Seen, Problem> {
        let leaf_bytes = self.leaf_kb << 10;
        let (shape, records) = tree(self.index_gb, leaf_bytes, self.record_bytes);
        let store = Vanilla {
            shape,
            page_bytes: leaf_bytes,
            record_bytes: self.record_bytes,
            memory_mb: self.memory_mb,
            are_changed: true,
            disks: DISKS,
        };
        let callers = CALLERS.into_iter().max().unwrap_or(1);
        let measured = scale.pick(1000, 10_000) * workload.together();
        let load = Load { callers, warm_up: measured / 4, measured };
        store.measure(load, scale.seed, workload.changes(records, scale.seed))
    }

    fn upsweep(self, workload: Workload, scale: &Scale) -> Result<Seen, Problem> {
        let shrunk = scale.pick(SHRUNK.0, SHRUNK.1);
        let records = records_of((self.index_gb << 30) / shrunk, self.record_bytes);
        let memory = Memory::Queues((self.memory_mb << 20) / shrunk);
        let mut store = Upsweep::table(records, self.record_bytes, memory);
        store.plan.block_bytes = Some((self.leaf_kb << 10) as u32);
        store.plan.spills = false;
        let callers = UPSWEEP_CALLERS.into_iter().max().unwrap_or(1);
        let phase = PHASES * memory.bytes() / self.record_bytes;
        let load = Load { callers, warm_up: phase, measured: phase };
        load.run(&mut store.make(scale.seed)?, workload.changes(records, scale.seed))
    }
}

const OPEN: &str = "\
    Only for its figure 4 the paper says what is not varied: 64 GB of index, records of 64 bytes, \
    1 GB of memory for queues. Here that holds for all. Nor does it say how far apart sequential \
    keys are.";
const BOUNDS: &str = "\
    Upsweep takes at most 100,000 changes in a second, as each takes 10 us of the processor, and \
    about 10 MB of records, as its log waits for a turn of its disk before each batch of 128 KB. \
    Sequential inserts are bound by these, whatever the size of leaves. In the paper a sequential \
    insert took 67 us of a processor and one at random 140, and larger ones missed its cache of \
    512 KB more often.";
const AHEAD: &str = "\
    No disk of Upsweep may be more than two runs ahead of the leaf that was written longest ago \
    (decision 40). With leaves of 512 KB and more, of which a run has few, this costs a fifth: \
    with four runs ahead, random inserts are 28 % more there.";
const MEMORY_BESIDES: &str = "\
    Besides the memory of its queues Upsweep needs some for its directory, for buffers, and for a \
    cache, which does nothing here.";

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(workload: Workload, count: usize) -> Vec<u64> {
        let mut changes = workload.changes(Records { count: 1000, stride: 1 << 30 }, 1);
        std::iter::repeat_with(|| changes().key()).take(count).collect()
    }

    #[test]
    fn keys_follow_one_another_as_their_workload_says() {
        let breaks = |workload| {
            let keys = keys(workload, 320);
            keys.windows(2).filter(|pair| pair[1] != pair[0] + 1).count()
        };
        assert_eq!(breaks(Workload::Sequential), 0);
        assert_eq!(breaks(Workload::Clustered), 9);
        assert_eq!(breaks(Workload::Random(Changes::Insert)), 319);
        let updated = keys(Workload::Random(Changes::Update), 100);
        assert!(updated.iter().all(|key| key.is_multiple_of(1 << 30)));
    }
}
