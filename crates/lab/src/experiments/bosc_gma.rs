//! Reference counts of a backup system, in an array that is larger than memory.

use upsweep_sim::random::Random;

use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Axis, Column, Curve, Figure, Outcome, PaperPoints, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::Bench;
use crate::systems::banks;
use crate::systems::in_place::{Access, InPlace, Sizes};
use crate::systems::load::{Load, Seen};
use crate::systems::pages::{Leaves, Records};
use crate::systems::plan::{Memory, Plan};
use crate::systems::raid::{Raid, Striping};
use crate::systems::store::{CellKind, Store};

const PAPER: &str = "bosc-table-2";
const SIZING: &str = "bosc-gma-sizing";
const DRIVE: &str = "caviar-blue-1tb";

const ONE_THREAD: &str = "BOSC with one thread, share of the no-GC bound";
const FOUR_THREADS: &str = "BOSC with four threads, share of the no-GC bound";
const VANILLA: &str = "vanilla at any thread count, share of the no-GC bound";
const BEST: &str = "best number of commit threads";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "bosc-table-2",
    title: "Reference counts of a deduplicating backup by commit threads",
    method: "\
        Every fingerprint that a backup processes changes up to three entries of an array, one for \
        each physical block: here always three. Fingerprints come in segments of 256, whose blocks \
        lie next to each other, so that a segment changes three random stretches of 256 entries of \
        4 bytes, a count and an expiry of 2 bytes each. The array is on two simulated WD Caviar \
        Blue. The vanilla array is striped over them, 64 KB on each in turn, and takes stretches \
        as they come: a commit thread reads a chunk of 128 KB, changes it, and writes it. Upsweep \
        has an array of the product, with its log on a third disk; the number of threads is that \
        of the runs which its sweep has under way. The deduplication is given as a processor time \
        of 4.6 us for each fingerprint, which is the paper's rate without counts.",
    scaling: "\
        The array of Upsweep has four times the size of its memory, which is 32 MB in a quick run \
        with one and four threads, and 64 MB in a full run with 1, 2, 4 and 10; the last table has \
        other sizes. Upsweep takes more changes than its memory has room for before it is \
        measured, and a quarter of that or, in a full run, as many again. The vanilla array has \
        100 GB in both, as a chunk that nobody has touched is computed; 300 stretches are measured \
        in a quick run, 3,000 in a full run.",
    papers: &[PAPER, SIZING],
    bindings: &[
        Binding::value(PAPER, ONE_THREAD, "Upsweep with 1 thread, share", Better::More),
        Binding::value(PAPER, FOUR_THREADS, "Upsweep with 4 threads, share", Better::More),
        Binding::value(PAPER, VANILLA, "vanilla, best share", Better::Neither),
        Binding::value(PAPER, BEST, "best number of threads", Better::Neither),
    ],
    run,
};

/// Fingerprints of a segment.
const SEGMENT: u64 = 256;
/// Stretches that a segment changes: for the block that was there before, for the one that is there
/// now, and for one with the same content.
const STRETCHES: u64 = 3;
/// Processor time of a stretch: a third of that of 256 fingerprints.
const PROCESSOR_US: u64 = 392;
const ENTRY_BYTES: u64 = 4;
const CHUNK_BYTES: u64 = 128 << 10;
const VANILLA_BYTES: u64 = 100 << 30;
const DATA_DISKS: u16 = 2;
/// How the vanilla array is on them.
const STRIPING: Striping = Striping {
    drives: DATA_DISKS,
    parity: false,
    strip_bytes: 64 << 10,
    drive_offset: 0,
    used_bytes: VANILLA_BYTES,
    one_by_one: false,
};
/// By how much the array of Upsweep is larger than its memory, except where that is varied.
const TIMES_MEMORY: u64 = 4;
/// The number of threads where that is varied.
const THREADS: usize = 4;
/// Stretches of Upsweep that are not durable.
const UNDER_WAY: usize = 64;

/// Stretches of an array of so many bytes.
fn stretches(bytes: u64, seed: u64) -> impl FnMut() -> Access {
    let mut random = Random::new(seed, "stretches");
    move || Access::Count(random.below(bytes / ENTRY_BYTES / SEGMENT) * SEGMENT, SEGMENT)
}

fn vanilla(threads: usize, scale: &Scale) -> Result<Seen, Problem> {
    let per_chunk = CHUNK_BYTES / ENTRY_BYTES;
    let records = Records { count: VANILLA_BYTES / ENTRY_BYTES, stride: 1 };
    let sizes = Sizes {
        page_bytes: CHUNK_BYTES,
        records_max: per_chunk,
        // A chunk for each thread, and two that are nobody's.
        frames: threads + 3,
        devices: 1,
    };
    let array = InPlace::new(Leaves::new(records, per_chunk), sizes);
    let disks = Box::new(Raid::new(banks::drives(DRIVE, DATA_DISKS, None, scale.seed)?, STRIPING));
    let load = Load { callers: threads, warm_up: 20, measured: scale.pick(300, 3000) };
    let next = stretches(VANILLA_BYTES, scale.seed);
    load.run(&mut Bench::new(array, disks, PROCESSOR_US), next)
}

fn upsweep(threads: usize, times_memory: u64, scale: &Scale) -> Result<Seen, Problem> {
    let memory_bytes: u64 = scale.pick(32 << 20, 64 << 20);
    let plan = Plan {
        data_devices: DATA_DISKS,
        log_bytes: 16 * memory_bytes,
        memory: Memory::Whole(memory_bytes),
        record_bytes: 16,
        fill_percent: 100,
        processor_us: PROCESSOR_US,
        ..Plan::TABLE
    };
    let bytes = times_memory * memory_bytes;
    let disks = banks::drives(DRIVE, DATA_DISKS + 1, None, scale.seed)?;
    let mut store =
        Store::with_counters(plan, (CellKind::U32, bytes / ENTRY_BYTES), threads, disks)?;
    // More than there is room for, at 8 bytes for a change.
    let filling = memory_bytes / 8 / SEGMENT;
    let measured = filling / scale.pick(4, 1);
    let load = Load { callers: UNDER_WAY, warm_up: filling, measured };
    load.run(&mut store, stretches(bytes, scale.seed))
}

/// Fingerprints in a second.
fn fingerprints(seen: &Seen) -> f64 {
    seen.per_second * SEGMENT as f64 / STRETCHES as f64
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let threads: Vec<usize> = scale.pick(vec![1, 4, 10], vec![1, 2, 4, 10]);
    let times: Vec<u64> = scale.pick(vec![1, 16], vec![1, 2, 8, 16]);
    // Threads, and by how much the array of Upsweep is larger than its memory.
    let both = |threads: &usize| [(*threads, None), (*threads, Some(TIMES_MEMORY))];
    let mut cases: Vec<(usize, Option<u64>)> = threads.iter().flat_map(both).collect();
    cases.extend(times.iter().map(|times| (THREADS, Some(*times))));
    let seen = progress.each(&cases, |(threads, times_memory)| match times_memory {
        Some(times_memory) => upsweep(*threads, *times_memory, scale),
        None => vanilla(*threads, scale),
    })?;
    let (seen, of_times) = seen.split_at(2 * threads.len());
    let bound = 1e6 / PROCESSOR_US as f64 * SEGMENT as f64 / STRETCHES as f64;
    let rates: Vec<(f64, f64)> =
        seen.chunks(2).map(|both| (fingerprints(&both[0]), fingerprints(&both[1]))).collect();
    let mut outcome = Outcome::default();
    outcome.setup("disks", "simulated WD Caviar Blue 1 TB: two for the array, one for the log");
    outcome.setup("memory of Upsweep", format!("{} MB", scale.pick(32, 64)));
    outcome.setup("fingerprints in a second without counts", short(bound));
    for (threads, (_, ours)) in threads.iter().zip(&rates) {
        let plural = if *threads == 1 { "" } else { "s" };
        let name = format!("Upsweep with {threads} thread{plural}, share");
        outcome.value(name, 100.0 * ours / bound, "%");
    }
    let vanilla = rates.iter().map(|(vanilla, _)| *vanilla).fold(0.0, f64::max);
    outcome.value("vanilla, best share", 100.0 * vanilla / bound, "%");
    let by_rate = threads.iter().zip(&rates).max_by(|one, other| one.1.1.total_cmp(&other.1.1));
    if let Some((best, _)) = by_rate {
        outcome.value("best number of threads", *best as f64, "threads");
    }
    outcome.tables.push(table(&threads, &rates, bound));
    outcome.tables.push(times_table(&times, of_times, bound));
    outcome.tables.push(sizing());
    outcome.figures.push(figure(&threads, &rates));
    outcome.caveat(&[ONE_THREAD, FOUR_THREADS, BEST], OPEN);
    Ok(outcome)
}

const OPEN: &str = "\
    The paper gives neither the size of its array nor the memory of its queues, nor how the blocks \
    of a backup are spread over the array. What bounds Upsweep is how many changes of a block wait \
    together, that is, the size of the array over that of the memory: see the table of sizes.";
fn table(threads: &[usize], rates: &[(f64, f64)], bound: f64) -> Table {
    let row = |(threads, (vanilla, ours)): (&usize, &(f64, f64))| {
        let numbers = [*threads as f64, *vanilla, *ours, 100.0 * vanilla / bound];
        let mut row = numbers.map(Into::into).to_vec();
        row.push((100.0 * ours / bound).into());
        row
    };
    Table {
        name: "table".into(),
        title: "Fingerprints processed in a second".into(),
        paper: Some(PAPER.into()),
        keys: 1,
        columns: vec![
            Column::published("commit threads"),
            Column::published("dedup + vanilla GC [fingerprints/s]"),
            Column::published("dedup + BOSC GC [fingerprints/s]"),
            Column::own("vanilla, share of the bound [%]"),
            Column::own("Upsweep, share of the bound [%]"),
        ],
        rows: threads.iter().zip(rates).map(row).collect(),
    }
}

fn times_table(times: &[u64], seen: &[Seen], bound: f64) -> Table {
    let row = |(times, seen): (&u64, &Seen)| {
        let rate = fingerprints(seen);
        [*times as f64, rate, 100.0 * rate / bound].map(Into::into).to_vec()
    };
    Table {
        name: "sizes".into(),
        title: format!("Upsweep with {THREADS} threads, by the size of the array"),
        paper: None,
        keys: 1,
        columns: vec![
            Column::own("array over memory"),
            Column::own("Upsweep [fingerprints/s]"),
            Column::own("share of the bound [%]"),
        ],
        rows: times.iter().zip(seen).map(row).collect(),
    }
}

/// What the paper's example amounts to: 4 PB in blocks of 4 KB.
fn sizing() -> Table {
    let entries = ((4_u64 << 50) / 4096) as f64;
    let bytes = entries * ENTRY_BYTES as f64;
    let rows = [
        ("physical blocks claimed", entries, "entries"),
        ("GC records touched per backed-up block, at most", STRETCHES as f64, "records"),
        ("size of the array at 4 bytes for an entry", bytes / 1e12, "TB"),
    ];
    Table {
        name: "sizing".into(),
        title: "An array for 4 PB in blocks of 4 KB: arithmetic".into(),
        paper: Some(SIZING.into()),
        keys: 1,
        columns: vec![
            Column::published("quantity"),
            Column::published("value"),
            Column::own("unit of it"),
        ],
        rows: rows.map(|(what, value, unit)| vec![what.into(), value.into(), unit.into()]).into(),
    }
}

fn figure(threads: &[usize], rates: &[(f64, f64)]) -> Figure {
    let curve = |name: &str, rate: fn(&(f64, f64)) -> f64| Curve {
        name: name.into(),
        points: threads.iter().zip(rates).map(|(one, both)| (*one as f64, rate(both))).collect(),
    };
    let points = |name: &str, column: &str| PaperPoints {
        name: name.into(),
        paper: PAPER.into(),
        across: "commit threads".into(),
        up: column.into(),
        only: None,
    };
    Figure {
        name: "fingerprints".into(),
        title: "Fingerprints processed in a second".into(),
        across: Axis::linear("commit threads, or runs under way"),
        up: Axis::logarithmic("fingerprints/s"),
        curves: vec![curve("vanilla", |both| both.0), curve("Upsweep", |both| both.1)],
        papers: vec![
            points("paper: vanilla", "dedup + vanilla GC [fingerprints/s]"),
            points("paper: BOSC", "dedup + BOSC GC [fingerprints/s]"),
            points("paper: no counts", "dedup without GC [fingerprints/s]"),
        ],
    }
}
