//! Dense logging by the size of records.

use super::dense::{self, Dense, METHOD, Measured, USUAL};
use crate::experiment::{Experiment, Scale};
use crate::outcome::{Axis, Column, Curve, Figure, Outcome, PaperPoints, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::log::HEADER_BYTES;

const PAPER: &str = "beluga-table-6.4";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "beluga-table-6.4",
    title: "Dense logging by the size of records",
    method: METHOD,
    scaling: dense::SCALING,
    papers: &[PAPER],
    bindings: &[],
    run,
};

const RECORD_BYTES: [u64; 4] = [512, 256, 128, 64];

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let whole = RECORD_BYTES.map(|record_bytes| Dense { record_bytes, ..USUAL });
    let payload =
        whole.map(|case| Dense { record_bytes: case.record_bytes + HEADER_BYTES, ..case });
    let cases = [whole, payload].concat();
    let batches = dense::batches(scale);
    let measured = progress.each(&cases, |case| case.measure(batches, scale.seed))?;
    let (with_header, without_header) = measured.split_at(whole.len());
    let mut outcome = dense::outcome(scale);
    outcome.tables.push(table(with_header, without_header));
    outcome.figures.push(figure(with_header, without_header));
    outcome.caveat(&[], HEADER);
    Ok(outcome)
}

const HEADER: &str = "\
    The paper counts 128 records of 256 bytes to a batch of 32 KB, so that its records have no \
    header, or have it within their size. Upsweep's header has 20 bytes and a batch begins with \
    128. The columns that are compared have records of the size with the header in it; the last \
    two have payloads of that size.";

fn table(with_header: &[Measured], without_header: &[Measured]) -> Table {
    let row = |(bytes, (with, without)): (&u64, (&Measured, &Measured))| {
        vec![
            (*bytes as f64).into(),
            with.latency_us().into(),
            with.seen.per_second.into(),
            with.payload_mb().into(),
            without.latency_us().into(),
            without.seen.per_second.into(),
        ]
    };
    Table {
        name: "table".into(),
        title: "Latency and throughput in batches of 32 KB".into(),
        paper: Some(PAPER.into()),
        keys: 1,
        columns: vec![
            Column::published("record [bytes]"),
            Column::published("latency [us]"),
            Column::published("throughput [ops/s]"),
            Column::own("payload [MB/s]"),
            Column::own("payload of this size: latency [us]"),
            Column::own("payload of this size: throughput [ops/s]"),
        ],
        rows: RECORD_BYTES.iter().zip(with_header.iter().zip(without_header)).map(row).collect(),
    }
}

fn figure(with_header: &[Measured], without_header: &[Measured]) -> Figure {
    let curve = |name: &str, measured: &[Measured]| {
        let points = RECORD_BYTES.iter().zip(measured);
        let points = points.map(|(bytes, found)| (*bytes as f64, found.seen.per_second));
        Curve { name: name.into(), points: points.collect() }
    };
    Figure {
        name: "throughput".into(),
        title: "Records in a second by their size".into(),
        across: Axis::logarithmic("size [bytes]"),
        up: Axis::logarithmic("records in a second"),
        curves: vec![
            curve("size with the header", with_header),
            curve("size of the payload", without_header),
        ],
        papers: vec![PaperPoints {
            name: "Beluga, paper".into(),
            paper: PAPER.into(),
            across: "record [bytes]".into(),
            up: "throughput [ops/s]".into(),
            only: None,
        }],
    }
}
