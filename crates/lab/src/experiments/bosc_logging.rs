//! Logging where the head is (Trail), logging one record after another, and Upsweep's log.

use upsweep::layers::device::drive::Scheduler;
use upsweep::layers::log::LogMode;
use upsweep_sim::random::Random;

use super::dense::{APPEND_NS, SEGMENT_BYTES, SUBMIT_NS};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::outcome::{Axis, Cell, Column, Curve, Figure, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::banks::{self, Ordering};
use crate::systems::batching::Batching;
use crate::systems::load::{Arrivals, Load};
use crate::systems::log::{self, Host, Layout, UpsweepLog};
use crate::systems::loggers::{Append, RawAppend};
use crate::systems::trail::Trail;
use crate::systems::{Bench, System};

const PAPER: &str = "bosc-logging";
const GOALS: &str = "goals-trail";
const DRIVE: &str = "dtla307030";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "bosc-logging",
    title: "Logging where the head is, and Upsweep's log",
    method: "\
        Three loggers on one simulated IBM DTLA-307030, the drive of BOSC's testbed. Trail is a \
        model: it knows the geometry and the angle of the drive, and writes where the head will be \
        0.2 ms later, if these sectors of the track are free, and else on the next track. The \
        ordinary logger writes one record after another to consecutive sectors. Upsweep's log is \
        the code of the product with two writes in flight. In the mode full it writes batches \
        without records while there are none; in the mode predict it measures how the drive turns, \
        and writes a lone record where the head will be. A second drive beside it is a WD Caviar \
        Black. First, blocks of 4 KB arrive one at a time, on average every 20 ms, each at a \
        random angle of the drive. Then there are as many callers as are said, each of which logs \
        an update of 64 bytes after another: Trail and the ordinary logger write those that wait \
        together, up to 64 KB, and so does Upsweep. The space that is used of a track is counted \
        when Trail leaves it.",
    scaling: "\
        A quick run measures 300 blocks and 100,000 updates in each case, a full run 10,000 and \
        2,000,000.",
    papers: &[PAPER, GOALS],
    bindings: &[
        Binding::ratio(
            PAPER,
            "latency advantage over ordinary disk logging",
            ("ordinary, latency of a block", "Trail, latency of a block"),
            Better::Neither,
        ),
        Binding::value(
            GOALS,
            "latency of logging a block of 4 KB, Trail",
            "Trail, latency of a block",
            Better::Neither,
        ),
        Binding::value(
            GOALS,
            "records of single inserts logged in a second, Trail",
            "Trail, records in a second",
            Better::Neither,
        ),
        Binding::value(
            GOALS,
            "use of the space of the log, Trail",
            "Trail, space",
            Better::Neither,
        ),
    ],
    run,
};

const BLOCK_BYTES: u64 = 4096;
/// Of an update in the log, with what a log adds.
const RECORD_BYTES: u64 = 64;
const BATCH_BYTES: u64 = 64 << 10;
/// Other sizes of what Trail writes together, in KB.
const BATCHES_KB: [u64; 7] = [1, 4, 8, 16, 32, 64, 128];
const CALLERS: [usize; 4] = [1, 16, 256, 4096];
const INTERVAL_US: u64 = 20_000;
/// Before the first block, while the log finds the stride of its train, or measures the drive.
const SETTLE_US: u64 = 10_000_000;
/// Processor time of a record in Trail and the ordinary logger.
const PROCESSOR_US: u64 = 1;

/// A logger and its drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logger {
    Ordinary,
    Trail,
    Upsweep(&'static str, LogMode),
}

const LOGGERS: [Logger; 6] = [
    Logger::Ordinary,
    Logger::Trail,
    Logger::Upsweep(DRIVE, LogMode::Predict),
    Logger::Upsweep(DRIVE, LogMode::Full),
    Logger::Upsweep(super::dense::DRIVE, LogMode::Predict),
    Logger::Upsweep(super::dense::DRIVE, LogMode::Full),
];

/// What callers log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workload {
    Blocks,
    Updates { callers: usize },
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    latency_ms: f64,
    per_second: f64,
    /// Space used of the tracks that were left, in per cent.
    space: Option<f64>,
}

impl Measured {
    fn space(self) -> Cell {
        self.space.filter(|space| space.is_finite()).map_or(Cell::from("-"), Cell::Number)
    }
}

impl Logger {
    fn name(self) -> &'static str {
        match self {
            Self::Ordinary => "ordinary",
            Self::Trail => "Trail",
            Self::Upsweep(DRIVE, LogMode::Predict) => "Upsweep, predict",
            Self::Upsweep(DRIVE, _) => "Upsweep, full",
            Self::Upsweep(_, LogMode::Predict) => "Upsweep, predict, on a Caviar Black",
            Self::Upsweep(..) => "Upsweep, full, on a Caviar Black",
        }
    }

    fn measure(self, workload: Workload, scale: &Scale) -> Result<Measured, Problem> {
        self.measure_with(BATCH_BYTES, workload, scale)
    }

    /// With so many bytes written together.
    fn measure_with(
        self,
        batch_bytes: u64,
        workload: Workload,
        scale: &Scale,
    ) -> Result<Measured, Problem> {
        let devices = || banks::drives(DRIVE, 1, None, scale.seed);
        match self {
            Self::Ordinary => {
                let logger = Batching::new(RawAppend::new(512, 8 << 30), batch_bytes);
                let mut system = Bench::new(logger, devices()?, PROCESSOR_US);
                measure(&mut system, workload, |bytes| Append { bytes }, scale)
            }
            Self::Trail => {
                let trail = Trail::new(&banks::description(DRIVE)?);
                let logger = Batching::new(trail, batch_bytes);
                let mut system = Bench::new(logger, devices()?, PROCESSOR_US);
                let seen = measure(&mut system, workload, |bytes| Append { bytes }, scale)?;
                Ok(Measured { space: Some(system.model.log.utilisation_percent()), ..seen })
            }
            Self::Upsweep(drive, mode) => {
                let ordering = Ordering { depth: 2, scheduler: Scheduler::Sptf };
                let devices = banks::full_drives(drive, 1, Some(ordering), scale.seed)?;
                let layout = Layout {
                    drives: 1,
                    offset: 0,
                    batch_bytes: batch_bytes as u32,
                    segment_bytes: SEGMENT_BYTES,
                    depth: 2,
                    mode,
                };
                let host = Host { append_ns: APPEND_NS, submit_ns: SUBMIT_NS, jitter_ns: 0 };
                let late = (0, banks::revolution_us(drive)?);
                let mut system = UpsweepLog::new(devices, layout, host, late, scale.seed)?;
                measure(&mut system, workload, |bytes| log::Append { bytes }, scale)
            }
        }
    }
}

fn measure<S: System>(
    system: &mut S,
    workload: Workload,
    append: impl Fn(u64) -> S::Operation,
    scale: &Scale,
) -> Result<Measured, Problem> {
    match workload {
        Workload::Blocks => {
            let measured = scale.pick(300, 10_000);
            let (interval_us, settle_us, warm_up) = (INTERVAL_US, SETTLE_US, 10);
            let arrivals = Arrivals { interval_us, settle_us, warm_up, measured };
            let mut random = Random::new(scale.seed, "arrivals");
            let latencies_us = arrivals.run(system, || append(BLOCK_BYTES), &mut random)?;
            let mean_us = latencies_us.iter().sum::<u64>() as f64 / latencies_us.len() as f64;
            let per_second = 1e6 / INTERVAL_US as f64;
            Ok(Measured { latency_ms: mean_us / 1e3, per_second, space: None })
        }
        Workload::Updates { callers } => {
            let most = scale.pick(100_000, 2_000_000);
            let measured = most.min(callers as u64 * scale.pick(500, 10_000));
            let load = Load { callers, warm_up: measured / 4, measured };
            let seen = load.run(system, || append(RECORD_BYTES))?;
            let (latency_ms, per_second) = (seen.latency_ms, seen.per_second);
            Ok(Measured { latency_ms, per_second, space: None })
        }
    }
}

type Case = (Logger, Workload);

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let updates = CALLERS.map(|callers| Workload::Updates { callers });
    let workloads = [&[Workload::Blocks], &updates[..]].concat();
    let of_logger = |logger| workloads.iter().map(move |workload| (logger, *workload));
    let cases: Vec<Case> = LOGGERS.into_iter().flat_map(of_logger).collect();
    let found = progress.each(&cases, |(logger, workload)| logger.measure(*workload, scale))?;
    let measured: Vec<(Case, Measured)> = cases.into_iter().zip(found).collect();
    let mut outcome = Outcome::default();
    outcome.setup("drive", "IBM DTLA-307030, 7,200 rpm, write cache off");
    outcome.setup("look-ahead of Trail", "0.2 ms");
    outcome.setup("records that are written together", "64 KB at most");
    let of = |logger, workload| {
        let is_it = |((one, what), _): &&(Case, Measured)| *one == logger && *what == workload;
        measured.iter().find(is_it).map(|(_, found)| *found)
    };
    for (logger, name) in [(Logger::Ordinary, "ordinary"), (Logger::Trail, "Trail")] {
        if let Some(found) = of(logger, Workload::Blocks) {
            outcome.value(format!("{name}, latency of a block"), found.latency_ms, "ms");
        }
    }
    // Under the most callers.
    if let Some(found) = of(Logger::Trail, updates[updates.len() - 1]) {
        outcome.value("Trail, records in a second", found.per_second, "records/s");
        outcome.value("Trail, space", found.space.unwrap_or(f64::NAN), "%");
    }
    outcome.tables.push(blocks_table(&measured));
    outcome.tables.push(updates_table(&measured));
    outcome.tables.push(batches_table(scale, progress)?);
    outcome.figures.push(figure(&measured));
    outcome.caveat(&[LATENCY, ADVANTAGE], LOOK_AHEAD);
    outcome.caveat(&[SPACE], SPACE_BY_LOAD);
    outcome.caveat(&[], ARRAY);
    outcome.caveat(&[], GUESSED);
    Ok(outcome)
}

const LATENCY: &str = "latency of logging a block of 4 KB, Trail";
const ADVANTAGE: &str = "latency advantage over ordinary disk logging";
const SPACE: &str = "use of the space of the log, Trail";

const LOOK_AHEAD: &str = "\
    The paper does not state its look-ahead, an empirical value. It is part of each latency: the \
    model of the drive has no other uncertainty of the angle, so that any look-ahead from the time \
    of the command on would do.";
const SPACE_BY_LOAD: &str = "\
    How much of a track is used depends on the load and on how many records are written together, \
    neither of which the paper states. A write that does not fit into what is left of a track \
    moves on to the next one, and each write leaves out the sectors that pass during the \
    look-ahead. A table has other sizes: 4, 32 or 128 KB together would do.";
const ARRAY: &str = "\
    The paper has an array of log drives, one of which is active at a time, and bounds by a time \
    how long records gather; here it is one drive, and what waits when a write ends is the next \
    one.";
const GUESSED: &str = "\
    Trail has to know the geometry and the angle of a drive; drives do not tell them any more. \
    Upsweep's log knows neither. In the mode full it keeps the head busy, and never rests; in the \
    mode predict it measures how the drive turns and how many bytes pass in a turn, but not where \
    tracks end, so that a record that goes past such a place waits for the skew.";

fn blocks_table(measured: &[(Case, Measured)]) -> Table {
    let rows = measured.iter().filter(|((_, workload), _)| *workload == Workload::Blocks);
    let row = |((logger, _), found): &(Case, Measured)| {
        vec![logger.name().into(), found.latency_ms.into(), found.space()]
    };
    Table {
        name: "blocks".into(),
        title: "Blocks of 4 KB, one every 20 ms".into(),
        paper: None,
        keys: 1,
        columns: vec![
            Column::own("log"),
            Column::own("latency [ms]"),
            Column::own("space used of its tracks [%]"),
        ],
        rows: rows.map(row).collect(),
    }
}

fn updates_table(measured: &[(Case, Measured)]) -> Table {
    let mut rows = Vec::new();
    for ((logger, workload), found) in measured {
        if let Workload::Updates { callers } = workload {
            let numbers = [*callers as f64, found.latency_ms, found.per_second];
            let mut row: Vec<Cell> = vec![logger.name().into()];
            row.extend(numbers.map(Cell::Number));
            row.push(found.space());
            rows.push(row);
        }
    }
    Table {
        name: "updates".into(),
        title: "Updates of 64 bytes".into(),
        paper: None,
        keys: 2,
        columns: vec![
            Column::own("log"),
            Column::own("callers"),
            Column::own("latency [ms]"),
            Column::own("rate [records/s]"),
            Column::own("space used of its tracks [%]"),
        ],
        rows,
    }
}

/// Trail under the most callers, by what it writes together.
fn batches_table(scale: &Scale, progress: &Progress) -> Result<Table, Problem> {
    let callers = CALLERS[CALLERS.len() - 1];
    let found = progress.each(&BATCHES_KB, |kb| {
        Logger::Trail.measure_with(kb << 10, Workload::Updates { callers }, scale)
    })?;
    let row = |(kb, found): (&u64, &Measured)| {
        let numbers = [*kb as f64, found.latency_ms, found.per_second];
        let mut row: Vec<Cell> = numbers.map(Cell::Number).into();
        row.push(found.space());
        row
    };
    Ok(Table {
        name: "batches".into(),
        title: format!("Trail with {callers} callers, by what it writes together"),
        paper: None,
        keys: 1,
        columns: vec![
            Column::own("written together, at most [KB]"),
            Column::own("latency [ms]"),
            Column::own("rate [records/s]"),
            Column::own("space used of its tracks [%]"),
        ],
        rows: BATCHES_KB.iter().zip(&found).map(row).collect(),
    })
}

fn figure(measured: &[(Case, Measured)]) -> Figure {
    let curve = |logger: Logger| {
        let points = measured.iter().filter_map(|((one, workload), found)| match workload {
            Workload::Updates { callers } if *one == logger => {
                Some((*callers as f64, found.per_second))
            }
            _ => None,
        });
        Curve { name: logger.name().into(), points: points.collect() }
    };
    Figure {
        name: "updates".into(),
        title: "Updates of 64 bytes logged in a second".into(),
        across: Axis::logarithmic("callers"),
        up: Axis::logarithmic("records/s"),
        curves: LOGGERS.map(curve).into(),
        papers: Vec::new(),
    }
}
