//! Sparse logging: records that arrive one at a time, with and without a train.

use upsweep::layers::device::drive::Scheduler;
use upsweep::layers::log::LogMode;
use upsweep_sim::random::Random;

use super::dense::{APPEND_NS, DRIVE, SEGMENT_BYTES, SUBMIT_NS};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Axis, Column, Curve, Figure, Outcome, PaperPoints, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::banks::{self, Ordering};
use crate::systems::load::Arrivals;
use crate::systems::log::{Append, Host, Layout, UpsweepLog};

const PAPER: &str = "beluga-sparse-full";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "beluga-sparse-full",
    title: "Sparse logging: a train of batches without records",
    method: "\
        Upsweep's log, the code of the product, on one simulated WD Caviar Black with nothing else \
        on it, in pages of 4 KiB, two writes in flight. Records of 256 bytes arrive one at a time, \
        whether or not others are durable; the time from one to the next is anything from half to \
        one and a half of its mean, so that arrivals do not keep step with the drive. In the mode \
        full the log writes batches without records while there are none, each as long as a full \
        one; in the mode idle it writes nothing, and a lone record takes a page. The ring has 18 \
        segments of 256 MiB, of which the older half is released as it fills. The host is that of \
        dense logging: 100 ns to append a record, and 2 us from when it knows of a completion, 100 \
        us of interrupt after it, until the next write is at the drive.",
    scaling: "A quick run measures 150 records in each case, a full run 5,000.",
    papers: &[PAPER],
    bindings: &[],
    run,
};

const INTERVALS_US: [u64; 5] = [10, 100, 1000, 10_000, 100_000];
/// Batch sizes that are compared at [`COMPARED_US`].
const BATCH_KB: [u32; 6] = [16, 24, 32, 48, 64, 128];
const COMPARED_US: u64 = 10_000;
const USUAL_KB: u32 = 32;
const RECORD_BYTES: u64 = 256;
const WARM_UP: u64 = 20;

#[derive(Clone, Copy, Debug)]
struct Sparse {
    mode: LogMode,
    interval_us: u64,
    batch_kb: u32,
}

/// Latencies of a case, in microseconds.
struct Measured {
    mean_us: f64,
    highest_us: f64,
    /// Batches without records for each record.
    dummies: f64,
}

impl Sparse {
    fn measure(&self, scale: &Scale) -> Result<Measured, Problem> {
        let Self { mode, interval_us, batch_kb } = *self;
        let ordering = Ordering { depth: 2, scheduler: Scheduler::Sptf };
        let devices = banks::full_drives(DRIVE, 1, Some(ordering), scale.seed)?;
        let (batch_bytes, segment_bytes) = (batch_kb << 10, SEGMENT_BYTES);
        let layout = Layout { drives: 1, offset: 0, batch_bytes, segment_bytes, depth: 2, mode };
        let host = Host { append_ns: APPEND_NS, submit_ns: SUBMIT_NS, jitter_ns: 0 };
        let measured_from = (WARM_UP, banks::revolution_us(DRIVE)?);
        let mut system = UpsweepLog::new(devices, layout, host, measured_from, scale.seed)?;
        let arrivals = Arrivals { interval_us, warm_up: WARM_UP, measured: records(scale) };
        let mut random = Random::new(scale.seed, "arrivals");
        let next = || Append { bytes: RECORD_BYTES };
        let latencies_us = arrivals.run(&mut system, next, &mut random)?;
        Ok(Measured {
            mean_us: latencies_us.iter().sum::<u64>() as f64 / latencies_us.len() as f64,
            highest_us: latencies_us.iter().copied().max().unwrap_or(0) as f64,
            dummies: system.dummies() as f64 / (WARM_UP + records(scale)) as f64,
        })
    }
}

fn records(scale: &Scale) -> u64 {
    scale.pick(150, 5000)
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let by_interval =
        |mode| INTERVALS_US.map(|interval_us| Sparse { mode, interval_us, batch_kb: USUAL_KB });
    let by_size =
        BATCH_KB.map(|batch_kb| Sparse { mode: LogMode::Full, interval_us: COMPARED_US, batch_kb });
    let cases = [by_interval(LogMode::Full), by_interval(LogMode::Idle)].concat();
    let cases = [&cases[..], &by_size].concat();
    let measured = progress.each(&cases, |case| case.measure(scale))?;
    let (by_interval, by_size) = measured.split_at(2 * INTERVALS_US.len());
    let (full, idle) = by_interval.split_at(INTERVALS_US.len());
    let mut outcome = Outcome::default();
    outcome.setup("device", "WD Caviar Black 1 TB, all of the drive's behaviour simulated");
    outcome.setup("records measured", short(records(scale) as f64));
    outcome.setup("record", format!("{RECORD_BYTES} bytes, with the header of the log"));
    outcome.tables.push(intervals(full, idle));
    outcome.tables.push(sizes(by_size));
    outcome.figures.push(figure(full, idle));
    outcome.caveat(&[], POINTS);
    Ok(outcome)
}

const POINTS: &str = "\
    The paper says that the latency remains virtually constant at 938 us from 10 us to 0.1 s \
    between two records; the rows of its table are the two ends.";

fn intervals(full: &[Measured], idle: &[Measured]) -> Table {
    let row = |at: usize| {
        vec![
            (INTERVALS_US[at] as f64).into(),
            full[at].mean_us.into(),
            full[at].highest_us.into(),
            full[at].dummies.into(),
            idle[at].mean_us.into(),
            idle[at].highest_us.into(),
        ]
    };
    Table {
        name: "table".into(),
        title: "Latency of lone records of 256 bytes in batches of 32 KB".into(),
        paper: Some(PAPER.into()),
        keys: 1,
        columns: vec![
            Column::published("interval between operations [us]"),
            Column::published("latency [us]"),
            Column::own("highest [us]"),
            Column::own("batches without records for each record"),
            Column::own("without a train [us]"),
            Column::own("without a train, highest [us]"),
        ],
        rows: (0..INTERVALS_US.len()).map(row).collect(),
    }
}

fn sizes(measured: &[Measured]) -> Table {
    let row = |(batch_kb, found): (&u32, &Measured)| {
        vec![f64::from(*batch_kb).into(), found.mean_us.into(), found.highest_us.into()]
    };
    Table {
        name: "sizes".into(),
        title: "Latency with a train, 10 ms from one record to the next".into(),
        paper: None,
        keys: 1,
        columns: vec![
            Column::own("batch [KB]"),
            Column::own("latency [us]"),
            Column::own("highest [us]"),
        ],
        rows: BATCH_KB.iter().zip(measured).map(row).collect(),
    }
}

fn figure(full: &[Measured], idle: &[Measured]) -> Figure {
    let curve = |name: &str, measured: &[Measured]| {
        let points = INTERVALS_US.iter().zip(measured);
        let points = points.map(|(interval_us, found)| (*interval_us as f64, found.mean_us));
        Curve { name: name.into(), points: points.collect() }
    };
    Figure {
        name: "latency".into(),
        title: "Latency of lone records".into(),
        across: Axis::logarithmic("time between records [us]"),
        up: Axis::logarithmic("latency [us]"),
        curves: vec![curve("Upsweep, full", full), curve("Upsweep, idle", idle)],
        papers: vec![PaperPoints {
            name: "Beluga, paper".into(),
            paper: PAPER.into(),
            across: "interval between operations [us]".into(),
            up: "latency [us]".into(),
            only: None,
        }],
    }
}
