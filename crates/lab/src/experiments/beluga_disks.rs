//! Dense logging on one to three drives.

use super::dense::{self, Dense, ESTIMATED, METHOD, Measured, USUAL};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::outcome::{Axis, Column, Curve, Figure, Outcome, PaperPoints, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::log::HEADER_BYTES;

const PAPER: &str = "beluga-table-6.6";
const HEADLINE: &str = "beluga-headline";
const GOALS: &str = "goals-dense-log";

const LATENCY: &str = "latency of each logging operation in both cases";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "beluga-table-6.6",
    title: "Dense logging on one to three drives",
    method: METHOD,
    scaling: dense::SCALING,
    papers: &[PAPER, HEADLINE, GOALS],
    bindings: &[
        Binding::value(
            PAPER,
            "rounded headline for three disks",
            "rate, 256 bytes, 3 drives",
            Better::More,
        ),
        Binding::value(
            HEADLINE,
            "256-byte logging operations, three disks",
            "rate, 256 bytes, 3 drives",
            Better::More,
        ),
        Binding::value(
            HEADLINE,
            "64-byte logging operations, three disks (abstract, ch 8)",
            "rate, 64 bytes, 3 drives",
            Better::More,
        ),
        Binding::value(HEADLINE, LATENCY, "higher latency on 3 drives", Better::Less),
        Binding::value(
            GOALS,
            "256-byte records logged on one Caviar Black",
            "rate, 256 bytes, 1 drives",
            Better::More,
        ),
        Binding::value(
            GOALS,
            "average latency of that logging",
            "latency, 256 bytes, 1 drives",
            Better::Less,
        ),
        Binding::ratio(
            GOALS,
            "rate on three disks over that on one",
            ("rate, 256 bytes, 3 drives", "rate, 256 bytes, 1 drives"),
            Better::More,
        ),
    ],
    run,
};

const DRIVES: [u16; 3] = [1, 2, 3];
/// The smaller record.
const SMALL_BYTES: u64 = 64;
/// The smallest batch that is in time at the beginning of a drive, in the calibration of
/// `beluga-table-6.5`.
const SMALLER_KB: u32 = 28;

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let kinds = [
        USUAL,
        Dense { record_bytes: SMALL_BYTES, ..USUAL },
        Dense { record_bytes: USUAL.record_bytes + HEADER_BYTES, ..USUAL },
        Dense { batch_kb: SMALLER_KB, ..USUAL },
    ];
    let of_kind = |kind: Dense| DRIVES.map(|drives| Dense { drives, ..kind });
    let cases: Vec<Dense> = kinds.into_iter().flat_map(of_kind).collect();
    let batches = dense::batches(scale);
    let measured = progress.each(&cases, |case| case.measure(batches, scale.seed))?;
    let mut outcome = dense::outcome(scale);
    let of_kind = |kind: usize| &measured[kind * DRIVES.len()..][..DRIVES.len()];
    let [usual, small, payload, smaller] = [0, 1, 2, 3].map(of_kind);
    for (bytes, measured) in [(USUAL.record_bytes, usual), (SMALL_BYTES, small)] {
        for (drives, found) in DRIVES.iter().zip(measured) {
            let name = |what: &str| format!("{what}, {bytes} bytes, {drives} drives");
            outcome.value(name("rate"), found.seen.per_second, "ops/s");
            outcome.value(name("latency"), found.seen.latency_ms, "ms");
        }
    }
    let on_all = [usual, small].into_iter().filter_map(<[Measured]>::last);
    let higher_ms = on_all.map(|found| found.seen.latency_ms).fold(0.0, f64::max);
    outcome.value("higher latency on 3 drives", higher_ms, "ms");
    outcome.tables.push(table(usual, small, payload));
    outcome.tables.push(order(usual, smaller));
    outcome.figures.push(figure(usual));
    outcome.caveat(&["256-byte records logged on one Caviar Black"], ESTIMATED);
    outcome.caveat(&[LATENCY], ORDER);
    outcome.caveat(&[], HEADER);
    Ok(outcome)
}

const ORDER: &str = "\
    A record of Upsweep is durable when all records before it are, on whatever drive they lie: \
    recovery never finds a record without those before it. So with several drives a record also \
    waits for earlier batches on the others. Beluga tells of each batch when its own write has \
    completed. Smaller batches, that are still in time, leave room for that wait.";
const HEADER: &str = "\
    Sizes of records are with the log's header of 20 bytes, because the paper fills its batches \
    with records and nothing else. The last two columns have payloads of 256 bytes beside the \
    header.";

fn table(usual: &[Measured], small: &[Measured], payload: &[Measured]) -> Table {
    let row = |at: usize| {
        vec![
            f64::from(DRIVES[at]).into(),
            usual[at].latency_us().into(),
            usual[at].seen.per_second.into(),
            small[at].latency_us().into(),
            small[at].seen.per_second.into(),
            payload[at].latency_us().into(),
            payload[at].seen.per_second.into(),
        ]
    };
    Table {
        name: "table".into(),
        title: "Latency and throughput of records of 256 bytes in batches of 32 KB".into(),
        paper: Some(PAPER.into()),
        keys: 1,
        columns: vec![
            Column::published("disks"),
            Column::published("latency [us]"),
            Column::published("throughput [ops/s]"),
            Column::own("64 bytes: latency [us]"),
            Column::own("64 bytes: throughput [ops/s]"),
            Column::own("payload of 256 bytes: latency [us]"),
            Column::own("payload of 256 bytes: throughput [ops/s]"),
        ],
        rows: (0..DRIVES.len()).map(row).collect(),
    }
}

/// The wait for earlier batches.
fn order(usual: &[Measured], smaller: &[Measured]) -> Table {
    let row = |batch_kb: u32, drives: u16, found: &Measured| {
        vec![
            f64::from(batch_kb).into(),
            f64::from(drives).into(),
            found.latency_us().into(),
            found.stages.order_us().into(),
            found.seen.per_second.into(),
        ]
    };
    let rows = |batch_kb, measured: &[Measured]| {
        let drives = DRIVES.into_iter().zip(measured);
        drives.map(|(drives, found)| row(batch_kb, drives, found)).collect::<Vec<_>>()
    };
    Table {
        name: "order".into(),
        title: "The wait for earlier batches on other drives, records of 256 bytes".into(),
        paper: None,
        keys: 2,
        columns: vec![
            Column::own("batch [KB]"),
            Column::own("disks"),
            Column::own("latency [us]"),
            Column::own("of which for earlier batches [us]"),
            Column::own("throughput [ops/s]"),
        ],
        rows: [rows(USUAL.batch_kb, usual), rows(SMALLER_KB, smaller)].concat(),
    }
}

fn figure(usual: &[Measured]) -> Figure {
    let points = DRIVES.iter().zip(usual);
    let points = points.map(|(drives, found)| (f64::from(*drives), found.seen.per_second));
    Figure {
        name: "throughput".into(),
        title: "Dense logging of records of 256 bytes".into(),
        across: Axis::linear("drives"),
        up: Axis::linear("records in a second"),
        curves: vec![Curve { name: "Upsweep".into(), points: points.collect() }],
        papers: vec![PaperPoints {
            name: "Beluga, paper".into(),
            paper: PAPER.into(),
            across: "disks".into(),
            up: "throughput [ops/s]".into(),
            only: None,
        }],
    }
}
