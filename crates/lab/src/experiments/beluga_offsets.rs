//! Dense logging over the whole drive: the best batch for each region, and what it brings.

use upsweep::layers::log::LogMode;

use super::dense::{self, Dense, METHOD, Measured, USUAL};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Axis, Column, Curve, Figure, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;

const PAPER: &str = "beluga-table-6.5";
const PAPER_FIGURE: &str = "beluga-fig-6.3-adaptive-batch";

pub(super) const TABLE: Experiment = Experiment {
    id: "beluga-table-6.5",
    title: "Dense logging by the place on the drive, with the best batch there",
    method: METHOD,
    scaling: dense::SCALING,
    papers: &[PAPER],
    bindings: &[],
    run: table,
};

pub(super) const FIGURE: Experiment = Experiment {
    id: "beluga-fig-6.3",
    title: "Dense logging over the whole drive, with one batch size and with the best one",
    method: METHOD,
    scaling: "\
        A quick run has five places on the drive, a full run twenty. A quick run measures \
        1,000 batches in each case, a full run 40,000.",
    papers: &[PAPER_FIGURE],
    bindings: &[
        Binding::value(
            PAPER_FIGURE,
            "latency with adaptive batch, whole disk",
            "highest latency, best batches",
            Better::Less,
        ),
        Binding::value(
            PAPER_FIGURE,
            "latency growth near the centre with fixed 32 KB",
            "growth of latency, one batch size",
            Better::Neither,
        ),
    ],
    run: figure,
};

/// Batch sizes that a calibration tries.
const TRIED_KB: [u32; 12] = [4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 64];
/// Batches that it writes with each.
const TRIED_BATCHES: u64 = 400;

/// What calibrations found.
struct Calibrated {
    /// The smallest batch of which none is late, for each place.
    best_kb: Vec<u32>,
    /// The smallest batch with a mean latency below a time, for each place; the one with the lowest
    /// latency where there is none.
    fast_kb: Vec<u32>,
}

/// A mean latency is low below this, for [`Calibrated::fast_kb`].
const LOW_LATENCY_MS: f64 = 1.0;

fn calibrate(offsets: &[u64], scale: &Scale, progress: &Progress) -> Result<Calibrated, Problem> {
    let cases: Vec<Dense> = offsets
        .iter()
        .flat_map(|&offset_gb| TRIED_KB.map(|batch_kb| Dense { offset_gb, batch_kb, ..USUAL }))
        .collect();
    let tried = progress.each(&cases, |case| case.measure(TRIED_BATCHES, scale.seed))?;
    let mut calibrated = Calibrated { best_kb: Vec::new(), fast_kb: Vec::new() };
    for (offset_gb, tried) in offsets.iter().zip(tried.chunks(TRIED_KB.len())) {
        let of_sizes = || TRIED_KB.into_iter().zip(tried);
        let best = of_sizes().find(|(_, found)| found.stages.late_batches == 0);
        let Some((best_kb, _)) = best else {
            let reason = format!("at {offset_gb} GB, no batch size is always in time");
            return Err(Problem::Simulation(reason));
        };
        let latency = |found: &Measured| found.seen.latency_ms;
        let fast = of_sizes().find(|(_, found)| latency(found) < LOW_LATENCY_MS);
        let lowest = || of_sizes().min_by(|one, other| latency(one.1).total_cmp(&latency(other.1)));
        calibrated.best_kb.push(best_kb);
        calibrated.fast_kb.push(fast.or_else(lowest).map_or(best_kb, |(batch_kb, _)| batch_kb));
    }
    Ok(calibrated)
}

fn table(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let offsets = [900, 750, 500, 0];
    let Calibrated { best_kb, fast_kb } = calibrate(&offsets, scale, progress)?;
    let case = |(&offset_gb, &batch_kb): (&u64, &u32)| Dense { offset_gb, batch_kb, ..USUAL };
    let best = offsets.iter().zip(&best_kb).map(case);
    let fixed = offsets.iter().map(|&offset_gb| Dense { offset_gb, ..USUAL });
    let cases: Vec<Dense> = best.chain(fixed).collect();
    let batches = dense::batches(scale);
    let measured = progress.each(&cases, |case| case.measure(batches, scale.seed))?;
    let (best, fixed) = measured.split_at(offsets.len());
    let row = |at: usize| {
        vec![
            (offsets[at] as f64).into(),
            f64::from(best_kb[at]).into(),
            best[at].latency_us().into(),
            best[at].seen.per_second.into(),
            f64::from(fast_kb[at]).into(),
            fixed[at].latency_us().into(),
            fixed[at].seen.per_second.into(),
        ]
    };
    let mut outcome = dense::outcome(scale);
    outcome.tables.push(Table {
        name: "table".into(),
        title: "Records of 256 bytes, with the smallest batch of which none is late".into(),
        paper: Some(PAPER.into()),
        keys: 1,
        columns: vec![
            Column::published("start offset [GB]"),
            Column::published("optimal batch [KB]"),
            Column::published("latency [us]"),
            Column::published("throughput [ops/s]"),
            Column::own("smallest batch below 1 ms [KB]"),
            Column::own("32 KB: latency [us]"),
            Column::own("32 KB: throughput [ops/s]"),
        ],
        rows: (0..offsets.len()).map(row).collect(),
    });
    calibration_setup(&mut outcome);
    outcome.caveat(&[], BEST);
    Ok(outcome)
}

fn calibration_setup(outcome: &mut Outcome) {
    let tried: Vec<String> = TRIED_KB.iter().map(ToString::to_string).collect();
    outcome.setup("batch sizes that are tried [KB]", tried.join(", "));
    outcome.setup("batches tried of each", short(TRIED_BATCHES as f64));
}

const BEST: &str = "\
    The best batch is the smallest of which none takes a revolution or more while several sizes \
    are tried at that place. The paper's text defines it in this way, and then uses the smallest \
    with a mean latency below 1 ms. It finds none at 900 GB, and does not go below 24 KB; smaller \
    batches are in time there, because the media needs longer for them.";

/// A log that finds the length of its batches itself, from 128 KB on.
const SEARCHING: Dense = Dense { batch_kb: 128, mode: LogMode::Full, ..USUAL };

const FOUND: &str = "\
    In mode full the log tries shorter batches until two of 128 are late, and goes on with the \
    length before that, so what it finds is up to a quarter more than the best. It needs no \
    calibration, and finds another length where the drive is slower.";

fn figure(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let step = scale.pick(247, 52);
    let offsets: Vec<u64> = (0..=988).step_by(step).collect();
    let Calibrated { best_kb, .. } = calibrate(&offsets, scale, progress)?;
    let best = offsets.iter().zip(&best_kb);
    let best = best.map(|(&offset_gb, &batch_kb)| Dense { offset_gb, batch_kb, ..USUAL });
    let fixed = offsets.iter().map(|&offset_gb| Dense { offset_gb, ..USUAL });
    let found = offsets.iter().map(|&offset_gb| Dense { offset_gb, ..SEARCHING });
    let cases: Vec<Dense> = best.chain(fixed).chain(found).collect();
    let batches = dense::batches(scale);
    let measured = progress.each(&cases, |case| case.measure(batches, scale.seed))?;
    let [best, fixed, found] = measured.chunks(offsets.len()).collect::<Vec<_>>()[..] else {
        unreachable!("three cases for each place")
    };
    let mut outcome = dense::outcome(scale);
    calibration_setup(&mut outcome);
    let highest = |measured: &[Measured]| {
        measured.iter().map(|found| found.seen.latency_ms).fold(0.0, f64::max)
    };
    outcome.value("highest latency, best batches", highest(best), "ms");
    let growth = highest(fixed) / fixed[0].seen.latency_ms - 1.0;
    outcome.value("growth of latency, one batch size", 100.0 * growth, "%");
    outcome.tables.push(whole_drive(&offsets, &best_kb, [best, fixed, found]));
    let curve = |name: &str, measured: &[Measured]| {
        let points = offsets.iter().zip(measured);
        let points = points.map(|(offset, found)| (*offset as f64, found.latency_us()));
        Curve { name: name.into(), points: points.collect() }
    };
    outcome.figures.push(Figure {
        name: "latency".into(),
        title: "Latency of records of 256 bytes over the whole drive".into(),
        across: Axis::linear("offset [GB]"),
        up: Axis::linear("latency [us]"),
        curves: vec![
            curve("batches of 32 KB", fixed),
            curve("best batch of the region", best),
            curve("mode full, batch found by the log", found),
        ],
        papers: Vec::new(),
    });
    outcome.caveat(&[], BEST);
    outcome.caveat(&[], FOUND);
    outcome.caveat(&[], "The paper does not state the points of its figure.");
    Ok(outcome)
}

/// The table of the whole drive: with the best batches, with one size, and with what the log finds.
fn whole_drive(offsets: &[u64], best_kb: &[u32], [best, fixed, found]: [&[Measured]; 3]) -> Table {
    let row = |at: usize| {
        vec![
            (offsets[at] as f64).into(),
            f64::from(best_kb[at]).into(),
            best[at].latency_us().into(),
            best[at].seen.per_second.into(),
            fixed[at].latency_us().into(),
            fixed[at].seen.per_second.into(),
            found[at].batch_kb.into(),
            found[at].latency_us().into(),
            found[at].seen.per_second.into(),
        ]
    };
    Table {
        name: "table".into(),
        title: "Records of 256 bytes by the place on the drive".into(),
        paper: None,
        keys: 1,
        columns: vec![
            Column::own("offset [GB]"),
            Column::own("best batch [KB]"),
            Column::own("best batch: latency [us]"),
            Column::own("best batch: throughput [ops/s]"),
            Column::own("32 KB: latency [us]"),
            Column::own("32 KB: throughput [ops/s]"),
            Column::own("batch found by a log in mode full [KB]"),
            Column::own("mode full: latency [us]"),
            Column::own("mode full: throughput [ops/s]"),
        ],
        rows: (0..offsets.len()).map(row).collect(),
    }
}
