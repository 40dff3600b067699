//! Random inserts into a hash table, and random updates of it, with more and more memory.

use super::indexes::{
    Changes, DISKS, Published, SHRUNK_CAVEAT, Sweep, Upsweep, Vanilla, upsweep, vanilla,
};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::pages::{Buckets, Records};
use crate::systems::plan::{Kind, Memory};

const PARTITION_GB: u64 = 20;
const PRELOADED_GB: u64 = 10;
const PAGE_BYTES: u64 = 4096;
const RECORD_BYTES: u64 = 16;
const KEY_STEP: u64 = 1_000_000;
/// How full the pages are initially, in per cent.
const FILL_PERCENT: u32 = (100 * PRELOADED_GB / PARTITION_GB) as u32;

/// By how much Upsweep is smaller, in a quick run and in a full run.
const SHRUNK: (u64, u64) = (256, 64);

const METHOD: &str = "\
    A hash table in a partition of 20 GB with pages of 4 KB over five simulated IBM DTLA-307030, \
    preloaded with 10 GB of records of 16 bytes, whose keys are a million apart. The vanilla \
    table reads the page of a random key unless it is in its cache, changes it there, and writes \
    the page that was used least recently when it has to leave; a full page is followed by \
    another. It begins with a cache full of changed pages, as after a long run. Upsweep has a hash \
    table on four of the disks, in the blocks that it chooses for drives, half full at first, and \
    its log on one; a change has ended when it is durable. The memory is that of its queues, as in \
    the dissertation. It is measured in its steady state: first it takes updates until hardly more \
    of them wait once all earlier ones are applied. Callers have one operation under way each.";
const SCALING: &str = "\
    A quick run measures 1,000 operations of the vanilla table in each case with two sizes of \
    memory, a full run 10,000 with six sizes. That table has its full size in both: an untouched \
    page is computed. The table and the queues of Upsweep are one part in 256 in a quick run, \
    one in 64 in a full run. It is measured for a quarter as many changes as its table has \
    records, but at most 1,000 by each caller and eight times as many bytes of records as it has \
    memory.";

const OVER_VANILLA: (&str, &str) = ("Upsweep with 960 MB", "vanilla with 960 MB");

pub(super) const INSERT: Experiment = Experiment {
    id: "bosc-fig-5.12",
    title: "Random inserts into a hash table by memory",
    method: METHOD,
    scaling: SCALING,
    papers: &["bosc-fig-5.12-hash-insert", "goals-hash"],
    bindings: &[
        Binding::ratio(
            "bosc-fig-5.12-hash-insert",
            "BOSC over vanilla at 960 MB",
            OVER_VANILLA,
            Better::More,
        ),
        Binding::ratio(
            "goals-hash",
            "Upsweep over the vanilla hash table, random insert",
            OVER_VANILLA,
            Better::More,
        ),
    ],
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
    bindings: &[Binding::ratio(
        "bosc-fig-5.13-hash-update",
        "BOSC over vanilla, stated to equal the insert case",
        OVER_VANILLA,
        Better::More,
    )],
    run: |scale, progress| run(Changes::Update, None, scale, progress),
};

const MEMORY_BESIDES: &str = "\
    Besides the memory of its queues Upsweep needs some for its directory, for buffers, and for a \
    cache, which does nothing here.";

fn run(
    changes: Changes,
    published: Option<Published>,
    scale: &Scale,
    progress: &Progress,
) -> Result<Outcome, Problem> {
    let measured = scale.pick(1000, 10_000);
    let memory_mb = scale.pick(vec![512, 960], vec![64, 256, 512, 960, 1536, 2048]);
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
            disks: DISKS,
        };
        store.measure(load, scale.seed, changes.random(records, scale.seed))
    };
    let part = scale.pick(SHRUNK.0, SHRUNK.1);
    let swept = |memory_mb, callers| {
        let records = Records { count: records.count / part, ..records };
        let memory = Memory::Queues((memory_mb << 20) / part);
        let mut store = Upsweep::table(records, RECORD_BYTES, memory);
        store.plan.kind = Kind::HashTable;
        store.plan.fill_percent = FILL_PERCENT;
        store.measure(callers, changes, scale)
    };
    let sweep = Sweep { title, changes, memory_mb, published };
    let mut contenders = vanilla(measured, &in_place);
    contenders.extend(upsweep(&swept));
    let mut outcome = sweep.run(&contenders, progress)?;
    outcome.setup("table", "10 GB of records of 16 bytes in 20 GB of pages of 4 KB");
    outcome.setup("table and memory of Upsweep", format!("one part in {part} of both"));
    outcome
        .caveat(&[], "In the dissertation a bucket is a file of unknown size; here it is a page.");
    outcome.caveat(&[], MEMORY_BESIDES);
    outcome.caveat(&[], SHRUNK_CAVEAT);
    Ok(outcome)
}
