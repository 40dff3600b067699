//! Synchronous logging through a file, and to a raw device.

use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Axis, Column, Curve, Figure, Outcome, PaperPoints, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::Bench;
use crate::systems::banks;
use crate::systems::load::{Load, Seen};
use crate::systems::loggers::{Append, FILE_SYSTEM, FileAppend, RawAppend};

const PAPER: &str = "beluga-table-6.1";

const FILE_REQUESTS: &str = "disk I/Os caused by one file-based logging operation";
const RAW_REQUESTS: &str = "disk I/Os caused by one raw-device logging operation";
const FILE_RATE: &str = "file-based logging throughput, text bound";
const RAW_RATE: &str = "raw logging throughput, text value with 8 threads";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "beluga-table-6.1",
    title: "Synchronous logging through a file and to a raw device",
    method: "\
        Records of 512 bytes are appended to a log on one simulated WD Caviar Black, each with a \
        synchronous write of its own, by one caller and by eight that take turns. The raw logger \
        writes consecutive sectors. The file logger bypasses the cache of a file system with \
        blocks of 4 KiB: it reads the last block unless the record begins a new one, writes it, \
        and commits a transaction of a journal, whose blocks are requests of their own: a \
        descriptor and the inode, with bitmap and group descriptor when the file gets a block, \
        and then the commit block.",
    scaling: "A quick run measures 200 appends in each case, a full run 5,000.",
    papers: &[PAPER],
    bindings: &[
        Binding::value(PAPER, FILE_REQUESTS, "requests for an append, file", Better::Neither),
        Binding::value(PAPER, RAW_REQUESTS, "requests for an append, raw device", Better::Neither),
        Binding::value(PAPER, FILE_RATE, "appends in a second, file, 8 callers", Better::Neither),
        Binding::value(
            PAPER,
            RAW_RATE,
            "appends in a second, raw device, 8 callers",
            Better::Neither,
        ),
    ],
    run,
};

const RECORD_BYTES: u64 = 512;
const CALLERS: [usize; 2] = [1, 8];
const TARGETS: [&str; 2] = ["file", "raw device"];
/// Time that the loggers spend between one write and the next.
const PROCESSOR_US: u64 = 20;

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let load = |callers| Load { callers, warm_up: 16, measured: scale.pick(200, 5000) };
    let cases: Vec<(&str, usize)> =
        TARGETS.iter().flat_map(|target| CALLERS.map(|callers| (*target, callers))).collect();
    let seen =
        progress.each(&cases, |(target, callers)| measure(target, load(*callers), scale.seed))?;
    let mut outcome = Outcome::default();
    outcome.setup("device", "one WD Caviar Black 1 TB, write cache off");
    outcome.setup("record", format!("{RECORD_BYTES} bytes"));
    outcome.setup("appends measured", short(load(1).measured as f64));
    for ((target, callers), seen) in cases.iter().zip(&seen) {
        let rate = format!("appends in a second, {target}, {callers} callers");
        outcome.value(rate, seen.per_second, "ops/s");
        let requests = format!("requests for an append, {target}");
        outcome.value(requests, seen.requests_per_operation(), "I/Os");
    }
    outcome.tables.push(table(&cases, &seen));
    outcome.figures.push(figure(&cases, &seen));
    outcome.caveat(&[], LATENCY);
    outcome.caveat(&[FILE_REQUESTS, FILE_RATE], LAYOUT);
    Ok(outcome)
}

const LATENCY: &str = "\
    Latency is counted from when the logger begins with an append to its end. With several \
    callers, each also waits for those before it; that is the last column but one. The paper \
    issues one append at a time too, and does not say which latency it means.";
const LAYOUT: &str = "\
    The paper does not name its file system. The distance between journal and file (here 1 GiB), \
    which blocks of metadata an append changes, and whether they are one request or several are \
    ours. In-place writes of metadata, a few every five seconds, are left out.";

fn measure(target: &str, load: Load, seed: u64) -> Result<Seen, Problem> {
    let devices = banks::drives("caviar-black-1tb", 1, None, seed)?;
    let append = || Append { bytes: RECORD_BYTES };
    if target == "file" {
        let mut system = Bench::new(FileAppend::new(FILE_SYSTEM), devices, PROCESSOR_US);
        load.run(&mut system, append)
    } else {
        let size_bytes = FILE_SYSTEM.file_bytes;
        let mut system =
            Bench::new(RawAppend::new(RECORD_BYTES, size_bytes), devices, PROCESSOR_US);
        load.run(&mut system, append)
    }
}

fn table(cases: &[(&str, usize)], seen: &[Seen]) -> Table {
    let row = |((target, callers), seen): (&(&str, usize), &Seen)| {
        vec![
            (*target).into(),
            (*callers as f64).into(),
            seen.service_ms.into(),
            seen.per_second.into(),
            seen.latency_ms.into(),
            seen.requests_per_operation().into(),
        ]
    };
    Table {
        name: "table".into(),
        title: "Latency and throughput of synchronous appends".into(),
        paper: Some(PAPER.into()),
        keys: 2,
        columns: vec![
            Column::published("target"),
            Column::published("threads"),
            Column::published("latency [ms]"),
            Column::published("throughput [ops/s]"),
            Column::own("latency with waiting [ms]"),
            Column::own("requests for an append"),
        ],
        rows: cases.iter().zip(seen).map(row).collect(),
    }
}

fn figure(cases: &[(&str, usize)], seen: &[Seen]) -> Figure {
    let curve = |target: &&str| {
        let of_it = cases.iter().zip(seen).filter(|((of, _), _)| of == target);
        let points = of_it.map(|((_, callers), seen)| (*callers as f64, seen.per_second));
        Curve { name: (*target).into(), points: points.collect() }
    };
    let published = |target: &&str| PaperPoints {
        name: format!("{target}, paper"),
        paper: PAPER.into(),
        across: "threads".into(),
        up: "throughput [ops/s]".into(),
        only: Some(("target".into(), (*target).into())),
    };
    Figure {
        name: "throughput".into(),
        title: "Synchronous appends of 512 bytes".into(),
        across: Axis::linear("callers"),
        up: Axis::linear("appends in a second"),
        curves: TARGETS.iter().map(curve).collect(),
        papers: TARGETS.iter().map(published).collect(),
    }
}
