//! Random inserts into a hash table, and random updates of it, with more and more memory.

use super::indexes::{Changes, Published, Sweep, Vanilla, vanilla};
use crate::experiment::{Experiment, Scale};
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::pages::{Buckets, Records};

const PARTITION_GB: u64 = 20;
const PRELOADED_GB: u64 = 10;
const PAGE_BYTES: u64 = 4096;
const RECORD_BYTES: u64 = 16;
const KEY_STEP: u64 = 1_000_000;

const METHOD: &str = "\
    A hash table in a partition of 20 GB with pages of 4 KB over five simulated IBM DTLA-307030, \
    preloaded with 10 GB of records of 16 bytes, whose keys are a million apart. The vanilla \
    table reads the page of a random key unless it is in its cache, changes it there, and writes \
    the page that was used least recently when it has to leave; a full page is followed by \
    another. It begins with a cache full of changed pages, as after a long run. Callers have one \
    operation under way each.";
const SCALING: &str = "\
    A quick run measures 1,000 operations in each case with two sizes of memory, a full run \
    10,000 with eight sizes. The table has its full size in both: an untouched page is computed.";

pub(super) const INSERT: Experiment = Experiment {
    id: "bosc-fig-5.12",
    title: "Random inserts into a hash table by memory",
    method: METHOD,
    scaling: SCALING,
    papers: &["bosc-fig-5.12-hash-insert", "goals-hash"],
    bindings: &[],
    run: |scale, progress| {
        let published = Published {
            id: "bosc-fig-5.12-hash-insert",
            columns: &[
                ("vanilla", "vanilla hash table [inserts/s]"),
                ("Upsweep", "BOSC hash table [inserts/s]"),
            ],
        };
        run(Changes::Insert, Some(published), scale, progress)
    },
};

pub(super) const UPDATE: Experiment = Experiment {
    id: "bosc-fig-5.13",
    title: "Random updates of a hash table by memory",
    method: METHOD,
    scaling: SCALING,
    papers: &["bosc-fig-5.13-hash-update"],
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
    let memory_mb = scale.pick(vec![64, 960], vec![1, 16, 64, 256, 512, 960, 1536, 2048]);
    let title = match changes {
        Changes::Insert => "Random inserts into a hash table",
        Changes::Update => "Random updates of a hash table",
    };
    let records = Records { count: (PRELOADED_GB << 30) / RECORD_BYTES, stride: KEY_STEP };
    let in_place = |memory_mb, load| {
        let store = Vanilla {
            shape: Buckets::new(records, (PARTITION_GB << 30) / PAGE_BYTES),
            page_bytes: PAGE_BYTES,
            record_bytes: RECORD_BYTES,
            memory_mb,
            are_changed: true,
        };
        store.measure(load, scale.seed, changes.random(records, scale.seed))
    };
    let sweep = Sweep { title, changes, memory_mb, published };
    let mut outcome = sweep.run(&vanilla(measured, &in_place), progress)?;
    outcome.setup("table", "10 GB of records of 16 bytes in 20 GB of pages of 4 KB");
    outcome
        .caveat(&[], "In the dissertation a bucket is a file of unknown size; here it is a page.");
    Ok(outcome)
}
