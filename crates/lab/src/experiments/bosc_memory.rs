//! Random inserts into a tree, and random updates of it, with more and more memory.

use super::indexes::{Changes, Published, Sweep, Vanilla, tree, vanilla};
use crate::experiment::{Experiment, Scale};
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::progress::Progress;

const INDEX_GB: u64 = 16;
const LEAF_BYTES: u64 = 64 << 10;
const RECORD_BYTES: u64 = 64;

const METHOD: &str = "\
    A B+ tree of 16 GB in leaves of 64 KB, seven tenths full of records of 64 bytes, over five \
    simulated IBM DTLA-307030. Leaves go round the disks; inner nodes are in memory. The vanilla \
    tree reads the leaf of a random key unless it is in its cache, changes it there, and writes \
    the leaf that was used least recently when it has to leave. It begins with a cache full of \
    changed leaves, as after a long run. Callers have one operation under way each.";
const SCALING: &str = "\
    A quick run measures 1,000 operations in each case with two sizes of memory, a full run \
    10,000 with six sizes. The index has its full size in both: an untouched leaf is computed.";

pub(super) const INSERT: Experiment = Experiment {
    id: "bosc-fig-2a",
    title: "Random inserts into a tree by memory",
    method: METHOD,
    scaling: SCALING,
    papers: &["bosc-fig-2a-random-insert", "goals-tree"],
    bindings: &[],
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
    bindings: &[],
    run: |scale, progress| run(Changes::Update, None, scale, progress),
};

fn run(
    changes: Changes,
    published: Option<Published>,
    scale: &Scale,
    progress: &Progress,
) -> Result<Outcome, Problem> {
    let measured = scale.pick(1000, 10_000);
    let memory_mb = scale.pick(vec![256, 1024], vec![256, 512, 768, 1024, 1280, 1536]);
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
        };
        store.measure(load, scale.seed, changes.random(records, scale.seed))
    };
    let sweep = Sweep { title, changes, memory_mb, published };
    let mut outcome = sweep.run(&vanilla(measured, &in_place), progress)?;
    outcome.setup("index", "16 GB, leaves of 64 KB, seven tenths full of records of 64 bytes");
    Ok(outcome)
}
