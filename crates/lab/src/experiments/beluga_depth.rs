//! Dense logging by the number of writes in flight.

use super::dense::{self, Dense, METHOD, Measured, USUAL};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Axis, Column, Curve, Figure, Outcome, PaperPoints, Table};
use crate::problem::Problem;
use crate::progress::Progress;

const PAPER: &str = "beluga-fig-6.4-ncq";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "beluga-fig-6.4",
    title: "Dense logging by the number of writes in flight",
    method: METHOD,
    scaling: dense::SCALING,
    papers: &[PAPER],
    bindings: &[],
    run,
};

const DEPTHS: [u8; 7] = [1, 2, 3, 4, 6, 8, 16];

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let cases = DEPTHS.map(|depth| Dense { depth, ..USUAL });
    let batches = dense::batches(scale);
    let measured = progress.each(&cases, |case| case.measure(batches, scale.seed))?;
    let mut outcome = dense::outcome(scale);
    let by_latency = |one: &(u8, &Measured), other: &(u8, &Measured)| {
        one.1.latency_us().total_cmp(&other.1.latency_us())
    };
    if let Some((depth, _)) = DEPTHS.into_iter().zip(&measured).min_by(by_latency) {
        outcome.setup("depth with the lowest latency", short(f64::from(depth)));
    }
    let row = |(depth, found): (u8, &Measured)| {
        vec![
            f64::from(depth).into(),
            found.seen.latency_ms.into(),
            found.seen.per_second.into(),
            (found.stages.device_us() / 1e3).into(),
            found.stages.late_percent().into(),
        ]
    };
    outcome.tables.push(Table {
        name: "table".into(),
        title: "Latency and throughput of records of 256 bytes in batches of 32 KB".into(),
        paper: Some(PAPER.into()),
        keys: 1,
        columns: vec![
            Column::published("NCQ length"),
            Column::published("latency [ms]"),
            Column::own("throughput [ops/s]"),
            Column::own("D2C [ms]"),
            Column::own("batches that took a revolution or more [%]"),
        ],
        rows: DEPTHS.into_iter().zip(&measured).map(row).collect(),
    });
    let points = DEPTHS.into_iter().zip(&measured);
    let points = points.map(|(depth, found)| (f64::from(depth), found.seen.latency_ms));
    outcome.figures.push(figure("latency", "latency [ms]", points.collect(), true));
    let points = DEPTHS.into_iter().zip(&measured);
    let points = points.map(|(depth, found)| (f64::from(depth), found.seen.per_second));
    outcome.figures.push(figure("throughput", "records in a second", points.collect(), false));
    outcome.caveat(&[], BOTH);
    Ok(outcome)
}

const BOTH: &str = "\
    The log keeps as many writes in flight as the drive holds commands.";

fn figure(name: &str, up: &str, points: Vec<(f64, f64)>, is_published: bool) -> Figure {
    let published = PaperPoints {
        name: "Beluga, paper".into(),
        paper: PAPER.into(),
        across: "NCQ length".into(),
        up: up.into(),
        only: None,
    };
    Figure {
        name: name.into(),
        title: "Dense logging by the number of writes in flight".into(),
        across: Axis::linear("writes in flight"),
        up: if is_published { Axis::logarithmic(up) } else { Axis::linear(up) },
        curves: vec![Curve { name: "Upsweep".into(), points }],
        papers: if is_published { vec![published] } else { Vec::new() },
    }
}
