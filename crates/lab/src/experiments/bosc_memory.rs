//! Random inserts into a tree, and random updates of it, with more and more memory.

use super::indexes::{
    Changes, DISKS, Published, SHRUNK_CAVEAT, Sweep, Upsweep, Vanilla, records_of, shrunk, tree,
    upsweep, vanilla,
};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::plan::Memory;

const INDEX_GB: u64 = 16;
const LEAF_BYTES: u64 = 64 << 10;
const RECORD_BYTES: u64 = 64;

const METHOD: &str = "\
    A B+ tree of 16 GB in leaves of 64 KB, seven tenths full of records of 64 bytes, over five \
    simulated IBM DTLA-307030. Leaves go round the disks; inner nodes are in memory. The vanilla \
    tree reads the leaf of a random key unless it is in its cache, changes it there, and writes \
    the leaf that was used least recently when it has to leave. It begins with a cache full of \
    changed leaves, as after a long run. Upsweep has a table on four of the disks and its log on \
    one; a change has ended when it is durable. It is measured in its steady state: first it takes \
    updates until hardly more of them wait once all earlier ones are applied. Callers have one \
    operation under way each.";
const SCALING: &str = "\
    A quick run measures 1,000 operations of the vanilla tree in each case with two sizes of \
    memory, a full run 10,000 with six sizes. Its index has its full size in both: an untouched \
    leaf is computed. The index of Upsweep, and what of its memory is for updates that wait and \
    for its directory, are one part in 128 in a quick run, one in 64 in a full run. It is measured \
    for a quarter as many changes as its index has records, but at most 1,000 by each caller and \
    eight times as many bytes of records as it has memory.";

const OVER_VANILLA: (&str, &str) = ("Upsweep with 1024 MB", "vanilla with 1024 MB");

pub(super) const INSERT: Experiment = Experiment {
    id: "bosc-fig-2a",
    title: "Random inserts into a tree by memory",
    method: METHOD,
    scaling: SCALING,
    papers: &["bosc-fig-2a-random-insert", "goals-tree"],
    bindings: &[
        Binding::ratio(
            "bosc-fig-2a-random-insert",
            "BOSC over vanilla at 1024 MB",
            OVER_VANILLA,
            Better::More,
        ),
        Binding::ratio(
            "goals-tree",
            "Upsweep over the vanilla tree, random insert with 1 GB of memory",
            OVER_VANILLA,
            Better::More,
        ),
    ],
    run: |scale, progress| {
        let published = Published {
            id: "bosc-fig-2a-random-insert",
            columns: &[
                ("vanilla", "vanilla B+ tree [inserts/s]"),
                ("Upsweep", "BOSC B+ tree [inserts/s]"),
            ],
        };
        run(Changes::Insert, Some(published), scale, progress)
    },
};

pub(super) const UPDATE: Experiment = Experiment {
    id: "bosc-fig-2b",
    title: "Random updates of a tree by memory",
    method: METHOD,
    scaling: SCALING,
    papers: &["bosc-fig-2b-random-update"],
    bindings: &[Binding::ratio(
        "bosc-fig-2b-random-update",
        "BOSC over vanilla, stated to equal the insert case",
        OVER_VANILLA,
        Better::More,
    )],
    run: |scale, progress| run(Changes::Update, None, scale, progress),
};

fn run(
    changes: Changes,
    published: Option<Published>,
    scale: &Scale,
    progress: &Progress,
) -> Result<Outcome, Problem> {
    let measured = scale.pick(1000, 10_000);
    let memory_mb = scale.pick(vec![1024, 1536], vec![256, 512, 768, 1024, 1280, 1536]);
    let title = match changes {
        Changes::Insert => "Random inserts into a tree",
        Changes::Update => "Random updates of a tree",
    };
    let in_place = |memory_mb, load| {
        let (shape, records) = tree(INDEX_GB, LEAF_BYTES, RECORD_BYTES);
        let store = Vanilla {
            shape,
            page_bytes: LEAF_BYTES,
            record_bytes: RECORD_BYTES,
            memory_mb,
            are_changed: true,
            disks: DISKS,
        };
        store.measure(load, scale.seed, changes.random(records, scale.seed))
    };
    let swept = |memory_mb, callers| {
        let records = records_of((INDEX_GB << 30) / shrunk(scale), RECORD_BYTES);
        let memory = Memory::Part(memory_mb << 20, shrunk(scale));
        Upsweep::table(records, RECORD_BYTES, memory).measure(callers, changes, scale)
    };
    let sweep = Sweep { title, changes, memory_mb, published };
    let mut contenders = vanilla(measured, &in_place);
    contenders.extend(upsweep(&swept));
    let mut outcome = sweep.run(&contenders, progress)?;
    outcome.setup("index", "16 GB, leaves of 64 KB, seven tenths full of records of 64 bytes");
    outcome.setup("index and memory of Upsweep", format!("one part in {} of both", shrunk(scale)));
    outcome.caveat(&[], SHRUNK_CAVEAT);
    Ok(outcome)
}
