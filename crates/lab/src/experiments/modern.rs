//! The workloads of BOSC's indexes on devices of today: a large drive with conventional recording,
//! and a solid-state device.

use super::indexes::{Changes, NOT_DURABLE, SHRUNK_CAVEAT};
use super::modern_stores::{
    Case, LEAF_KB, MEMORY_MB, Media, PROCESSOR_US, SHRUNK, STORES, VANILLA_CALLERS, WORKERS,
    WORKLOADS, Way, Workload, best, vanilla,
};
use crate::claims::{Better, Binding, DIFFERENT_BEYOND};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Axis, Cell, Column, Curve, Figure, Outcome, PaperPoints, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::load::Seen;

const PAPER: &str = "bosc-fig-2a-random-insert";

const OVER_VANILLA: &str = "BOSC over vanilla at 1024 MB";
const INSERT: &str = "random insert with 1 GB of memory, Upsweep over vanilla";
const INSERT_LITTLE: &str = "random insert with 256 MB of memory, Upsweep over vanilla";
const UPDATE: &str = "random update with 1 GB of memory, Upsweep over vanilla";
const WRITTEN: &str = "bytes written for an insert with 1 GB of memory, Upsweep over vanilla";
const LOOK_UP: &str = "latency of a look-up with 1 GB of memory, Upsweep over vanilla";

/// The claims of one kind of devices.
const fn bindings(goals: &'static str) -> [Binding; 6] {
    [
        Binding::ratio(
            PAPER,
            OVER_VANILLA,
            ("Upsweep, random insert, 1024 MB", "vanilla, random insert, 1024 MB"),
            Better::More,
        ),
        Binding::ratio(
            goals,
            INSERT,
            ("Upsweep, random insert, 1024 MB", "vanilla, random insert, 1024 MB"),
            Better::More,
        ),
        Binding::ratio(
            goals,
            INSERT_LITTLE,
            ("Upsweep, random insert, 256 MB", "vanilla, random insert, 256 MB"),
            Better::More,
        ),
        Binding::ratio(
            goals,
            UPDATE,
            ("Upsweep, random update, 1024 MB", "vanilla, random update, 1024 MB"),
            Better::More,
        ),
        Binding::ratio(
            goals,
            WRITTEN,
            ("Upsweep, bytes written, 1024 MB", "vanilla, bytes written, 1024 MB"),
            Better::Less,
        ),
        Binding::ratio(
            goals,
            LOOK_UP,
            ("Upsweep, latency of a look-up, 1024 MB", "vanilla, latency of a look-up, 1024 MB"),
            Better::Less,
        ),
    ]
}

const SCALING: &str = "\
    The vanilla tree has its full size, as an untouched leaf is computed; 5,000 operations are \
    measured in a quick run, 50,000 in a full run; on solid-state devices changes of 64 MB of \
    leaves and of 256 MB, after 192 MB and 256 MB, which is more than their buffers hide. In a \
    quick run only its 1,024 callers make changes. The index and the memory of Upsweep are one \
    part in 128 of that in a quick run, one in 64 in a full run; it is measured for a quarter as \
    many changes as its index has records, but on drives for at most 1,000 by each caller.";

pub(super) const DRIVE: Experiment = Experiment {
    id: "modern-drive",
    title: "BOSC's workloads on a modern drive",
    method: "\
        Random inserts into a tree, random updates of it, and look-ups, with the sizes of figure \
        2: 16 GB in records of 64 bytes, seven tenths full. The devices are five drives as they \
        are sold today: a simulated typical 18 TB drive with conventional recording, caches off. \
        The vanilla tree has its leaves on all five; it is given leaves of 4 KB and of 64 KB, and \
        64 and 1,024 callers, and the best counts. Upsweep has blocks as production chooses them \
        on four, and its log on one; 64 and 16,384 callers make durable changes. It is measured in \
        its steady state: first it takes updates until hardly more of them wait once all earlier \
        ones are applied. For look-ups there are 1 and 64 callers, and nothing changes. Upsweep \
        has twice the space of its index on the drives.",
    scaling: SCALING,
    papers: &[PAPER, "goals-modern-drive"],
    bindings: &bindings("goals-modern-drive"),
    run: |scale, progress| run(Media::Drives, scale, progress),
};

pub(super) const SOLID_STATE: Experiment = Experiment {
    id: "modern-solid-state",
    title: "BOSC's workloads on solid-state devices",
    method: "\
        The same as on a modern drive, on two simulated Intel SSD D7-P5500 of 7.68 TB, which begin \
        nine tenths full, written at random for so long that cleaning is in its steady state; \
        they do not clean in idle time. The vanilla tree has its leaves on both. Upsweep has its \
        blocks on one and its log on the other, and sweeps only when it needs room.",
    scaling: SCALING,
    papers: &[PAPER, "goals-solid-state"],
    bindings: &bindings("goals-solid-state"),
    run: |scale, progress| run(Media::SolidState, scale, progress),
};

/// An index that the drives are about half full of.
const LARGE_INDEX_BYTES: u64 = 40 << 40;

fn named(changes: Changes) -> &'static str {
    match changes {
        Changes::Insert => "Random inserts",
        Changes::Update => "Random updates",
    }
}

fn written(seen: &Seen) -> f64 {
    seen.traffic.bytes_written as f64 / seen.operations as f64
}

fn run(media: Media, scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let mut cases = Vec::new();
    for workload in WORKLOADS {
        for memory_mb in MEMORY_MB {
            let ways = Way::all(workload, scale).into_iter();
            cases.extend(ways.map(|way| Case { workload, memory_mb, way }));
        }
    }
    let seen = progress.each(&cases, |case| case.measure(media, scale))?;
    let measured: Vec<(Case, Seen)> = cases.into_iter().zip(seen).collect();
    let mut outcome = Outcome::default();
    outcome.setup("devices", media.name());
    outcome.setup("processor time of an operation", format!("{PROCESSOR_US} us"));
    outcome.setup("workers of Upsweep", format!("{WORKERS}, 200 MB of blocks in a second each"));
    outcome.setup("index and memory of Upsweep", format!("1/{}", scale.pick(SHRUNK.0, SHRUNK.1)));
    values(&mut outcome, &measured);
    findings(&mut outcome, media, &measured);
    for workload in WORKLOADS {
        outcome.tables.push(table(workload, &measured));
    }
    outcome.tables.push(all_ways(&measured));
    if media == Media::Drives {
        outcome.tables.push(large(media, scale, progress)?);
    }
    for changes in [Changes::Insert, Changes::Update] {
        outcome.figures.push(figure(changes, &measured));
    }
    outcome.caveat(&[INSERT, INSERT_LITTLE, UPDATE, WRITTEN, LOOK_UP], OPEN);
    outcome.caveat(&[OVER_VANILLA], TODAY);
    outcome.caveat(&[LOOK_UP], CACHES);
    outcome.caveat(&[], SHRUNK_CAVEAT);
    outcome.caveat(&[], NOT_DURABLE);
    outcome.caveat(
        &[],
        match media {
            Media::Drives => SHORT,
            Media::SolidState => DEVICE,
        },
    );
    Ok(outcome)
}

const OPEN: &str = "\
    The processor time of an operation, and the rate at which a worker applies updates to blocks, \
    are assumed and not measured; the first bounds every store at 1,000,000 operations in a \
    second.";
const CACHES: &str = "\
    The vanilla tree has all of the memory for its cache. Upsweep divides it between its \
    directory, its queues, buffers and a cache; the last two are not smaller in proportion. Its \
    blocks are larger than 4 KB, and a look-up reads a whole one.";
const TODAY: &str = "\
    The paper has drives of the year 2000. A drive of today transfers several times as many bytes \
    in a second and seeks hardly faster, which is good for a sweep; a solid-state device reads and \
    writes pages at random at nearly its full rate, which leaves little to gain.";
const SHORT: &str = "\
    16 GB are a thousandth of what five such drives hold, so that seeks are short, which is good \
    for the vanilla tree. A table has it with an index that half fills the drives.";
const DEVICE: &str = "\
    How the maker's device cleans is not published; the model meets its published rates. Bytes \
    written are those that the host writes, without what the device copies.";

fn values(outcome: &mut Outcome, measured: &[(Case, Seen)]) {
    for store in STORES {
        for memory_mb in MEMORY_MB {
            for workload in WORKLOADS {
                let Some((_, seen)) = best((store, workload, memory_mb), measured) else {
                    continue;
                };
                let name = |what: &str| format!("{store}, {what}, {memory_mb} MB");
                match workload {
                    Workload::LookUp => {
                        outcome.value(name("latency of a look-up"), seen.latency_ms, "ms");
                    }
                    Workload::Change(_) => {
                        outcome.value(name(workload.name()), seen.per_second, "ops/s");
                    }
                }
                if workload == Workload::Change(Changes::Insert) {
                    outcome.value(name("bytes written"), written(seen), "bytes");
                }
            }
        }
    }
}

/// Where the ideas win, and where they do not.
fn findings(outcome: &mut Outcome, media: Media, measured: &[(Case, Seen)]) {
    for workload in WORKLOADS {
        for memory_mb in MEMORY_MB {
            let of = |store| best((store, workload, memory_mb), measured);
            let [Some((their_case, theirs)), Some((case, ours))] = STORES.map(of) else {
                continue;
            };
            let (quantity, theirs_is, ours_is, times) = match workload {
                Workload::Change(_) => {
                    let rates = (theirs.per_second, ours.per_second);
                    ("in a second", rates.0, rates.1, rates.1 / rates.0)
                }
                Workload::LookUp => {
                    let latencies = (theirs.latency_ms, ours.latency_ms);
                    ("ms", latencies.0, latencies.1, latencies.0 / latencies.1)
                }
            };
            let verdict = match times {
                _ if (times - 1.0).abs() <= DIFFERENT_BEYOND => "no difference".to_owned(),
                _ if times > 1.0 => format!("Upsweep wins by a factor of {}", short(times)),
                _ => format!("the vanilla tree wins by a factor of {}", short(1.0 / times)),
            };
            let name = match workload {
                Workload::Change(changes) => named(changes),
                Workload::LookUp => "Look-ups",
            };
            outcome.finding(format!(
                "{name} with {memory_mb} MB: {verdict}, {} {quantity} ({}) against {} ({}).",
                short(ours_is),
                case.way.name(),
                short(theirs_is),
                their_case.way.name(),
            ));
            if workload == Workload::Change(Changes::Insert) {
                let [theirs, ours] = [theirs, ours].map(written);
                outcome.finding(format!(
                    "For such an insert, Upsweep writes {} bytes, its log included, and the \
                     vanilla tree {}.",
                    short(ours),
                    short(theirs),
                ));
            }
        }
    }
    let bound = 1e6 / PROCESSOR_US as f64;
    let is_bound = |(_, seen): &&(Case, Seen)| seen.per_second > 0.95 * bound;
    let mut bound: Vec<String> = measured
        .iter()
        .filter(is_bound)
        .map(|(case, _)| format!("{}s, {}", case.workload.name(), case.way.name()))
        .collect();
    bound.sort_unstable();
    bound.dedup();
    if !bound.is_empty() {
        outcome.finding(format!(
            "Bound by the assumed processor time, and not by the {}: {}.",
            match media {
                Media::Drives => "drives",
                Media::SolidState => "devices",
            },
            bound.join("; ")
        ));
    }
}

fn table(workload: Workload, measured: &[(Case, Seen)]) -> Table {
    let is_insert = workload == Workload::Change(Changes::Insert);
    let of_paper = |title: &str, paper: &str| Column {
        title: title.into(),
        paper: is_insert.then(|| paper.to_owned()),
    };
    let mut columns = vec![of_paper("buffer memory [MB]", "buffer memory [MB]")];
    let unit = if workload == Workload::LookUp { "ms" } else { "ops/s" };
    columns.push(of_paper(&format!("vanilla, best [{unit}]"), "vanilla B+ tree [inserts/s]"));
    columns.push(of_paper(&format!("Upsweep, best [{unit}]"), "BOSC B+ tree [inserts/s]"));
    columns.push(Column::own("Upsweep over vanilla"));
    columns.extend(STORES.map(|store| Column::own(&format!("{store}, bytes written"))));
    columns.extend(STORES.map(|store| Column::own(&format!("{store}, bytes read"))));
    let row = |memory_mb: u64| {
        let mut row: Vec<Cell> = vec![(memory_mb as f64).into()];
        let found = STORES.map(|store| best((store, workload, memory_mb), measured));
        let figure = |seen: &Seen| match workload {
            Workload::LookUp => seen.latency_ms,
            Workload::Change(_) => seen.per_second,
        };
        let numbers = found.map(|one| one.map_or(f64::NAN, |(_, seen)| figure(seen)));
        row.extend(numbers.map(Cell::Number));
        row.push((numbers[1] / numbers[0]).into());
        row.extend(found.map(|one| Cell::Number(one.map_or(f64::NAN, |one| written(&one.1)))));
        let read = |seen: &Seen| seen.traffic.bytes_read as f64 / seen.operations as f64;
        row.extend(found.map(|one| Cell::Number(one.map_or(f64::NAN, |one| read(&one.1)))));
        row
    };
    Table {
        name: workload.name().replace(' ', "-"),
        title: match workload {
            Workload::LookUp => "Look-ups by one caller; bytes are those of one".into(),
            Workload::Change(changes) => format!("{}; bytes are those of one", named(changes)),
        },
        paper: is_insert.then(|| PAPER.to_owned()),
        keys: 1,
        columns,
        rows: MEMORY_MB.map(row).to_vec(),
    }
}

/// Every way of using the stores.
fn all_ways(measured: &[(Case, Seen)]) -> Table {
    let row = |(case, seen): &(Case, Seen)| {
        let numbers = [case.memory_mb as f64, seen.per_second, seen.latency_ms];
        let mut row: Vec<Cell> = vec![case.workload.name().into(), case.way.name().as_str().into()];
        row.extend(numbers.map(Cell::Number));
        row
    };
    Table {
        name: "ways".into(),
        title: "All that was measured".into(),
        paper: None,
        keys: 3,
        columns: vec![
            Column::own("workload"),
            Column::own("store"),
            Column::own("buffer memory [MB]"),
            Column::own("rate [ops/s]"),
            Column::own("latency [ms]"),
        ],
        rows: measured.iter().map(row).collect(),
    }
}

/// The vanilla tree with an index that half fills the drives.
fn large(media: Media, scale: &Scale, progress: &Progress) -> Result<Table, Problem> {
    let workload = Workload::Change(Changes::Insert);
    let both = |leaf_kb| VANILLA_CALLERS.map(|callers| (leaf_kb, callers));
    let cases: Vec<(u64, usize)> = LEAF_KB.into_iter().flat_map(both).collect();
    let seen = progress.each(&cases, |(leaf_kb, callers)| {
        vanilla(media, LARGE_INDEX_BYTES, (MEMORY_MB[1], *leaf_kb), workload, *callers, scale)
    })?;
    let row = |((leaf_kb, callers), seen): (&(u64, usize), &Seen)| {
        [*leaf_kb as f64, *callers as f64, seen.per_second].map(Cell::Number).to_vec()
    };
    Ok(Table {
        name: "large".into(),
        title: "Random inserts into a vanilla tree of 40 TB, with 1 GB of memory".into(),
        paper: None,
        keys: 2,
        columns: vec![
            Column::own("leaf size [KB]"),
            Column::own("callers"),
            Column::own("vanilla [ops/s]"),
        ],
        rows: cases.iter().zip(&seen).map(row).collect(),
    })
}

fn figure(changes: Changes, measured: &[(Case, Seen)]) -> Figure {
    let workload = Workload::Change(changes);
    let mut ways: Vec<Way> = Vec::new();
    for (case, _) in measured.iter().filter(|(case, _)| case.workload == workload) {
        if !ways.contains(&case.way) {
            ways.push(case.way);
        }
    }
    let curve = |way: Way| {
        let of_it =
            measured.iter().filter(|(case, _)| case.way == way && case.workload == workload);
        let points = of_it.map(|(case, seen)| (case.memory_mb as f64, seen.per_second));
        Curve { name: way.name(), points: points.collect() }
    };
    let points = |name: &str, column: &str| PaperPoints {
        name: name.into(),
        paper: PAPER.into(),
        across: "buffer memory [MB]".into(),
        up: column.into(),
        only: None,
    };
    let papers = match changes {
        Changes::Insert => vec![
            points("paper: vanilla", "vanilla B+ tree [inserts/s]"),
            points("paper: BOSC", "BOSC B+ tree [inserts/s]"),
        ],
        Changes::Update => Vec::new(),
    };
    Figure {
        name: workload.name().replace(' ', "-"),
        title: format!("{} by memory", named(changes)),
        across: Axis::logarithmic("buffer memory [MB]"),
        up: Axis::logarithmic("ops/s"),
        curves: ways.into_iter().map(curve).collect(),
        papers,
    }
}
