//! Reference counts of a petabyte on 24 drives: how far rates hold as everything grows in
//! proportion.

use upsweep_sim::random::Random;

use crate::claims::{Better, Binding, DIFFERENT_BEYOND};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Axis, Cell, Column, Curve, Figure, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::in_place::{Access, InPlace, Sizes};
use crate::systems::load::{Load, Seen};
use crate::systems::pages::{Leaves, Records};
use crate::systems::plan::{Memory, Plan};
use crate::systems::store::{CellKind, Store};
use crate::systems::{Bench, banks};

const GOALS: &str = "goals-petabyte";
const SAME: &str = "rate of changes, largest part over smallest";
const OVER_VANILLA: &str = "rate of changes, largest part over the array in place";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "petabyte",
    title: "Reference counts of a petabyte on 24 drives",
    method: "\
        1 PB of data in blocks of 8 KB has 2^37 blocks. Each has a reference count of 2 bytes in \
        an array of 256 GB, with 32 GB of memory, on 24 simulated typical drives of 18 TB: 20 hold \
        the array, four the log. The data itself is elsewhere. As in table 2 of BOSC, a backup \
        changes the counts of segments of 256 neighbouring blocks, 2 MB of data, three segments at \
        random places for each that it stores. Upsweep is measured with a part of the petabyte and \
        the same part of the memory, once it has taken twice the changes that there is room for: \
        all of its blocks are real, but their content is kept compressed. That memory is for \
        updates that wait and for the directory; the buffers of 40 runs of the sweep are besides. \
        Runs are longer with more memory. The array in place reads a chunk of 128 KB, changes it \
        and writes it, without a log; it has the whole petabyte on all 24 drives, as a chunk that \
        nobody has changed is computed.",
    scaling: "\
        A quick run has 1/4096 and 1/1024 of the petabyte, a full run also 1/256 and 1/64; of each \
        four times the changes are measured that there is memory for, in which the array is swept \
        a few times. Nothing is said of larger parts but what follows by arithmetic, in a table of \
        its own.",
    papers: &[GOALS],
    bindings: &[
        Binding::ratio(
            GOALS,
            SAME,
            ("Upsweep, largest part", "Upsweep, smallest part"),
            Better::More,
        ),
        Binding::ratio(GOALS, OVER_VANILLA, ("Upsweep, largest part", "in place"), Better::More),
    ],
    run,
};

const DRIVE: &str = "modern-18tb-cmr";
const DRIVES: u16 = 24;
const LOG_DRIVES: u16 = 4;
const DATA_BYTES: u64 = 1 << 50;
const BLOCK_BYTES: u64 = 8 << 10;
const COUNTERS: u64 = DATA_BYTES / BLOCK_BYTES;
const CELL: CellKind = CellKind::U16;
const CELL_BYTES: u64 = 2;
/// Memory for the whole petabyte.
const MEMORY_BYTES: u64 = 32 << 30;
/// Parts of a petabyte, in a quick run and in a full run.
const PARTS: (&[u64], &[u64]) = (&[4096, 1024], &[4096, 1024, 256, 64]);
/// Counters of a segment.
const SEGMENT: u64 = 256;
/// Segments whose counters change for one that is stored.
const CHANGED: u64 = 3;
/// Processor time for the counters of a segment.
const PROCESSOR_US: u64 = 25;
/// Workers that apply updates.
const WORKERS: usize = 16;
/// Runs of the sweep under way.
const RUNS: usize = 2 * (DRIVES - LOG_DRIVES) as usize;
/// Changes that are made before what is measured, and that are measured: so many times as many as
/// there is memory for. By then every part of the array was swept, and it is swept again a few
/// times.
const WARM_UP: u64 = 2;
const MEASURED: u64 = 4;
/// Changes of segments that are not durable.
const UNDER_WAY: usize = 512;
const CHUNK_BYTES: u64 = 128 << 10;
/// Changes under way in the array in place, for each drive.
const THREADS: usize = 8;

/// Changes of segments at random places.
fn segments(counters: u64, seed: u64) -> impl FnMut() -> Access {
    let mut random = Random::new(seed, "segments");
    move || Access::Count(random.below(counters / SEGMENT) * SEGMENT, SEGMENT)
}

fn in_place(scale: &Scale) -> Result<Seen, Problem> {
    let per_chunk = CHUNK_BYTES / CELL_BYTES;
    let threads = THREADS * usize::from(DRIVES);
    let sizes = Sizes {
        page_bytes: CHUNK_BYTES,
        records_max: per_chunk,
        // A chunk for each change under way, and two that are nobody's.
        frames: threads + 3,
        devices: DRIVES,
    };
    let records = Records { count: COUNTERS, stride: 1 };
    let array = InPlace::new(Leaves::new(records, per_chunk), sizes);
    let drives = banks::drives(DRIVE, DRIVES, None, scale.seed)?;
    let warm_up = 2 * threads as u64;
    let load = Load { callers: threads, warm_up, measured: scale.pick(5000, 50_000) };
    load.run(&mut Bench::new(array, drives, PROCESSOR_US), segments(COUNTERS, scale.seed))
}

fn upsweep(part: u64, scale: &Scale) -> Result<Seen, Problem> {
    let memory_bytes = MEMORY_BYTES / part;
    let plan = Plan {
        data_devices: DRIVES - LOG_DRIVES,
        log_bytes: (16 * memory_bytes / u64::from(LOG_DRIVES)).max(64 << 20),
        memory: Memory::Shrunk(memory_bytes),
        record_bytes: 16,
        fill_percent: 100,
        processor_us: PROCESSOR_US,
        workers: WORKERS,
        ..Plan::TABLE
    };
    let counters = COUNTERS / part;
    let drives = banks::drives(DRIVE, DRIVES, None, scale.seed)?;
    let mut store = Store::with_counters(plan, (CELL, counters), RUNS, drives)?;
    // More than there is room for, at 8 bytes for a change of a counter.
    let filling = memory_bytes / 8 / SEGMENT;
    let (warm_up, measured) = (WARM_UP * filling, MEASURED * filling);
    let load = Load { callers: UNDER_WAY, warm_up, measured };
    load.run(&mut store, segments(counters, scale.seed))
}

/// Data that is stored in a second, in MB.
fn stored_mb(seen: &Seen) -> f64 {
    seen.per_second * (SEGMENT * BLOCK_BYTES) as f64 / CHANGED as f64 / 1e6
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let parts = scale.pick(PARTS.0, PARTS.1);
    let cases: Vec<Option<u64>> =
        std::iter::once(None).chain(parts.iter().copied().map(Some)).collect();
    let seen = progress.each(&cases, |part| match part {
        Some(part) => upsweep(*part, scale),
        None => in_place(scale),
    })?;
    let mut outcome = Outcome::default();
    outcome.setup("drives", format!("{DRIVES} typical drives of 18 TB, 7,200 rpm, caches off"));
    outcome.setup("of them for the log of Upsweep", short(f64::from(LOG_DRIVES)));
    outcome.setup("processor time for the counters of a segment", format!("{PROCESSOR_US} us"));
    outcome.setup("workers of Upsweep", format!("{WORKERS}, 200 MB of blocks in a second each"));
    outcome.setup("runs of the sweep under way", short(RUNS as f64));
    if let [in_place, first, .., last] = seen.as_slice() {
        outcome.value("in place", in_place.per_second, "changes/s");
        outcome.value("Upsweep, smallest part", first.per_second, "changes/s");
        outcome.value("Upsweep, largest part", last.per_second, "changes/s");
        outcome.finding(format!(
            "Measured up to 1/{} of a petabyte: from 1/{} on, the rate changes by a factor of {}.",
            parts[parts.len() - 1],
            parts[0],
            short(last.per_second / first.per_second),
        ));
        let times = last.per_second / in_place.per_second;
        let verdict = match times {
            _ if (times - 1.0).abs() <= DIFFERENT_BEYOND => "there is no difference".to_owned(),
            _ if times > 1.0 => format!("Upsweep wins by a factor of {}", short(times)),
            _ => format!("the array in place wins by a factor of {}", short(1.0 / times)),
        };
        outcome.finding(format!(
            "Between the two, {verdict}: the largest part of Upsweep takes {} changes in a second, \
             durable, and the array in place {}, not logged.",
            short(last.per_second),
            short(in_place.per_second),
        ));
    }
    outcome.tables.push(table(&cases, &seen));
    outcome.tables.push(whole());
    outcome.figures.push(figure(parts, &seen));
    outcome.caveat(&[SAME], PROPORTION);
    outcome.caveat(&[OVER_VANILLA], ASSUMED);
    outcome.caveat(&[], LOGGED);
    Ok(outcome)
}

const PROPORTION: &str = "\
    A part of the petabyte takes a part of each drive, at its outer edge, so that it has shorter \
    seeks and higher rates of transfer than the whole; 256 GB on 20 such drives are less than a \
    thousandth of them, which makes this small. A checkpoint of a larger part takes longer, and \
    comes as much less often.";
const ASSUMED: &str = "\
    The processor time for a segment, and the rate at which workers apply updates, are assumed and \
    not measured. The array in place logs nothing, so that all costs of durability are spared.";

const LOGGED: &str = "\
    A change of a segment logs 256 updates. The sweep bounds the rate: with eight times as many \
    segments changed at a time, a quick run has the same rates within 3 %.";

fn table(cases: &[Option<u64>], seen: &[Seen]) -> Table {
    let row = |(part, seen): (&Option<u64>, &Seen)| {
        let counters = COUNTERS / part.unwrap_or(1);
        let array_bytes = (counters * CELL_BYTES) as f64;
        let seconds = seen.operations as f64 / seen.per_second;
        let traffic = seen.traffic;
        let numbers = [
            (DATA_BYTES / part.unwrap_or(1)) as f64 / 1e12,
            counters as f64,
            seen.per_second,
            stored_mb(seen),
            traffic.bytes_read as f64 / seconds / 1e6,
            traffic.bytes_written as f64 / seconds / 1e6,
            100.0 * traffic.bytes_read as f64 / array_bytes,
        ];
        let mut row: Vec<Cell> = vec![if part.is_some() { "Upsweep" } else { "in place" }.into()];
        row.extend(numbers.map(Cell::Number));
        row
    };
    Table {
        name: "table".into(),
        title: "Changes of the counts of segments".into(),
        paper: None,
        keys: 1,
        columns: vec![
            Column::own("array"),
            Column::own("data [TB]"),
            Column::own("counters"),
            Column::own("changes of segments/s"),
            Column::own("data stored [MB/s]"),
            Column::own("read [MB/s]"),
            Column::own("written, log included [MB/s]"),
            Column::own("part of the array read meanwhile [%]"),
        ],
        rows: cases.iter().zip(seen).map(row).collect(),
    }
}

/// What the whole petabyte amounts to.
fn whole() -> Table {
    let blocks = COUNTERS.div_ceil(CELL.cells_per_block() as u64) as f64;
    let rows = [
        ("counters", COUNTERS as f64),
        ("bytes of the array", (COUNTERS * CELL_BYTES) as f64),
        ("blocks of the array", blocks),
        ("memory of the directory, at 170 bytes for a block", 170.0 * blocks),
    ];
    Table {
        name: "whole".into(),
        title: "The whole petabyte: arithmetic, not measured".into(),
        paper: None,
        keys: 1,
        columns: vec![Column::own("quantity"), Column::own("value")],
        rows: rows.map(|(what, value)| vec![what.into(), value.into()]).into(),
    }
}

fn figure(parts: &[u64], seen: &[Seen]) -> Figure {
    let tera = |part: u64| (DATA_BYTES / part) as f64 / 1e12;
    let ours = parts.iter().zip(&seen[1..]).map(|(part, seen)| (tera(*part), seen.per_second));
    let in_place = (tera(1), seen[0].per_second);
    Figure {
        name: "rates".into(),
        title: "Changes of the counts of segments, by the data that is counted".into(),
        across: Axis::logarithmic("data [TB]"),
        up: Axis::logarithmic("changes of segments/s"),
        curves: vec![
            Curve { name: "Upsweep".into(), points: ours.collect() },
            Curve { name: "in place".into(), points: vec![in_place] },
        ],
        papers: Vec::new(),
    }
}
