//! Sparse logging: records that arrive one at a time, with and without a train.

use upsweep::layers::device::drive::Scheduler;
use upsweep::layers::log::LogMode;
use upsweep_sim::random::Random;

use super::dense::{APPEND_NS, DRIVE, SEGMENT_BYTES, SUBMIT_NS};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::outcome::{Axis, Column, Curve, Figure, Outcome, PaperPoints, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::System;
use crate::systems::banks::{self, Ordering};
use crate::systems::load::Arrivals;
use crate::systems::log::{Append, Host, Layout, UpsweepLog};

const PAPER: &str = "beluga-sparse-full";
const GOALS: &str = "goals-sparse-log";
const LOW_POWER: &str = "beluga-table-6.8";
const HIGHEST: &str = "highest of the average latencies, full";
const WRITTEN: &str = "written while idle, sentinel over full";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "beluga-sparse-full",
    title: "Sparse logging: trains of batches without records",
    method: "\
        Upsweep's log, the code of the product, on one simulated WD Caviar Black with nothing else \
        on it, in pages of 4 KiB, two writes in flight. Records of 256 bytes arrive one at a time, \
        whether or not others are durable; the time from one to the next is anything from half to \
        one and a half of its mean, so that arrivals do not keep step with the drive. In the mode \
        full the log writes batches without records, one after another, while there are none. In \
        the mode sentinel these are single pages at a distance, and both they and records go where \
        the head is expected; in the mode predict only records are written, in this way. It finds \
        the length of batches, and how the drive turns, in the ten seconds before the first \
        record. In the mode idle a record goes right behind the one before. A lone record takes a \
        page, but for the mode full. The ring has 18 segments \
        of 256 MiB, of which the older half is released as it fills. The host is that of dense \
        logging: 100 ns to append a record, and 2 us from when it knows of a completion, 100 us of \
        interrupt after it, until the next write is at the drive.",
    scaling: "\
        A quick run measures 0.2 seconds in each case, and at least 150 records; a full run 5 \
        seconds, and at least 5,000 records. A tenth more comes before.",
    papers: &[PAPER, LOW_POWER, GOALS],
    bindings: &[
        Binding::value(
            GOALS,
            "highest average latency in full sparse mode, gaps of 10 us to 0.1 s",
            HIGHEST,
            Better::Less,
        ),
        Binding::value(
            LOW_POWER,
            "idle writes against full mode at D = 290 (8 of 290 sectors)",
            WRITTEN,
            Better::Less,
        ),
    ],
    run,
};

const INTERVALS_US: [u64; 5] = [10, 100, 1000, 10_000, 100_000];
const BATCH_BYTES: u32 = 128 << 10;
const RECORD_BYTES: u64 = 256;
/// Before the first record, while the log finds the stride of its train.
const SETTLE_US: u64 = 10_000_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct Sparse {
    pub(super) mode: LogMode,
    pub(super) interval_us: u64,
}

/// Latencies of a case, in microseconds.
pub(super) struct Measured {
    pub(super) mean_us: f64,
    highest_us: f64,
    /// Bytes of batches without records in a second.
    idle_bytes: f64,
    /// From the beginning of one of them to that of the next, at the end.
    pub(super) stride_kb: f64,
}

impl Sparse {
    pub(super) fn measure(&self, scale: &Scale) -> Result<Measured, Problem> {
        let Self { mode, interval_us } = *self;
        let ordering = Ordering { depth: 2, scheduler: Scheduler::Sptf };
        let devices = banks::full_drives(DRIVE, 1, Some(ordering), scale.seed)?;
        let (batch_bytes, segment_bytes) = (BATCH_BYTES, SEGMENT_BYTES);
        let layout = Layout { drives: 1, offset: 0, batch_bytes, segment_bytes, depth: 2, mode };
        let host = Host { append_ns: APPEND_NS, submit_ns: SUBMIT_NS, jitter_ns: 0 };
        let measured = self.records(scale);
        let warm_up = measured / 10;
        let measured_from = (warm_up, banks::revolution_us(DRIVE)?);
        let mut system = UpsweepLog::new(devices, layout, host, measured_from, scale.seed)?;
        let arrivals = Arrivals { interval_us, settle_us: SETTLE_US, warm_up, measured };
        let mut random = Random::new(scale.seed, "arrivals");
        let next = || Append { bytes: RECORD_BYTES };
        let latencies_us = arrivals.run(&mut system, next, &mut random)?;
        Ok(Measured {
            mean_us: latencies_us.iter().sum::<u64>() as f64 / latencies_us.len() as f64,
            highest_us: latencies_us.iter().copied().max().unwrap_or(0) as f64,
            idle_bytes: system.dummy_bytes() as f64 * 1e6 / system.now_us() as f64,
            stride_kb: system.train_stride_bytes() as f64 / 1024.0,
        })
    }

    /// Records that are measured.
    fn records(&self, scale: &Scale) -> u64 {
        let (us, least) = scale.pick((200_000, 150), (5_000_000, 5000));
        (us / self.interval_us).max(least)
    }
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let of_mode = |mode| INTERVALS_US.map(|interval_us| Sparse { mode, interval_us });
    let cases = [LogMode::Full, LogMode::Sentinel, LogMode::Predict, LogMode::Idle];
    let cases = cases.map(of_mode).concat();
    let measured = progress.each(&cases, |case| case.measure(scale))?;
    let modes: Vec<&[Measured]> = measured.chunks(INTERVALS_US.len()).collect();
    let [full, sentinel, predict, idle] = modes[..] else { unreachable!("four modes") };
    let mut outcome = Outcome::default();
    outcome.setup("device", "WD Caviar Black 1 TB, all of the drive's behaviour simulated");
    outcome.setup("record", format!("{RECORD_BYTES} bytes, with the header of the log"));
    let highest_us = full.iter().map(|found| found.mean_us).fold(0.0, f64::max);
    outcome.value(HIGHEST, highest_us / 1e3, "ms");
    // Where there are fewest records.
    let last = INTERVALS_US.len() - 1;
    let written = sentinel[last].idle_bytes / full[last].idle_bytes;
    outcome.value(WRITTEN, written, "fraction (1/36)");
    outcome.tables.push(intervals(full, idle));
    outcome.tables.push(low_power(sentinel, predict));
    outcome.figures.push(figure([full, sentinel, predict, idle]));
    outcome.caveat(&[], POINTS);
    outcome.caveat(&["chosen distance and margin"], MARGIN);
    Ok(outcome)
}

const POINTS: &str = "\
    The paper says that the latency remains virtually constant at 938 us from 10 us to 0.1 s \
    between two records; the rows of its table are the two ends.";

const MARGIN: &str = "\
    Our log has no margin beside the distance: it finds one look-ahead, for sentinels and for \
    records. A record goes where the head will be after that, behind the sentinel that is on its \
    way if there is time enough, else further on. The paper measures both on a table of its own, \
    which another experiment repeats.";

fn intervals(full: &[Measured], idle: &[Measured]) -> Table {
    let row = |at: usize| {
        vec![
            (INTERVALS_US[at] as f64).into(),
            full[at].mean_us.into(),
            full[at].highest_us.into(),
            full[at].stride_kb.into(),
            (full[at].idle_bytes / 1e6).into(),
            idle[at].mean_us.into(),
            idle[at].highest_us.into(),
        ]
    };
    Table {
        name: "table".into(),
        title: "Latency of lone records of 256 bytes".into(),
        paper: Some(PAPER.into()),
        keys: 1,
        columns: vec![
            Column::published("interval between operations [us]"),
            Column::published("latency [us]"),
            Column::own("highest [us]"),
            Column::own("length of a batch without records at the end [KB]"),
            Column::own("written in such batches [MB/s]"),
            Column::own("without a train [us]"),
            Column::own("without a train, highest [us]"),
        ],
        rows: (0..INTERVALS_US.len()).map(row).collect(),
    }
}

fn low_power(sentinel: &[Measured], predict: &[Measured]) -> Table {
    let row = |at: usize| {
        let Measured { mean_us, highest_us, idle_bytes, stride_kb } = &sentinel[at];
        vec![
            (INTERVALS_US[at] as f64).into(),
            (*mean_us).into(),
            (*highest_us).into(),
            (stride_kb * 2.0).into(),
            (idle_bytes / 1e6).into(),
            predict[at].mean_us.into(),
            predict[at].highest_us.into(),
        ]
    };
    Table {
        name: "low-power".into(),
        title: "The same with sentinels".into(),
        paper: None,
        keys: 1,
        columns: vec![
            Column::own("interval between operations [us]"),
            Column::own("latency [us]"),
            Column::own("highest [us]"),
            Column::own("from one sentinel to the next at the end [sectors]"),
            Column::own("written in sentinels [MB/s]"),
            Column::own("without sentinels [us]"),
            Column::own("without sentinels, highest [us]"),
        ],
        rows: (0..INTERVALS_US.len()).map(row).collect(),
    }
}

fn figure([full, sentinel, predict, idle]: [&[Measured]; 4]) -> Figure {
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
        curves: vec![
            curve("Upsweep, full", full),
            curve("Upsweep, sentinel", sentinel),
            curve("Upsweep, predict", predict),
            curve("Upsweep, idle", idle),
        ],
        papers: vec![PaperPoints {
            name: "Beluga, paper".into(),
            paper: PAPER.into(),
            across: "interval between operations [us]".into(),
            up: "latency [us]".into(),
            only: None,
        }],
    }
}
