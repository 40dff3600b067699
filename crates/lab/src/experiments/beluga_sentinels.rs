//! The distance of sentinels, and the margin for records that merge with them.

use upsweep::layers::device::drive::Scheduler;
use upsweep::layers::log::LogMode;

use super::beluga_sparse::Sparse;
use super::dense::DRIVE;
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Axis, Cell, Column, Curve, Figure, Outcome, PaperPoints, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::banks::{self, Ordering};
use crate::systems::sentinels::{Dispatch, Seen, Sentinels};

const DISTANCES: &str = "beluga-table-6.7";
const MARGINS: &str = "beluga-table-6.8";
const CLOSE: &str = "latency whenever D is under 270";
const ORDER: &str = "reordering from D = 270 on";
const CHOSEN: &str = "chosen distance and margin";
const WRITTEN: &str = "idle writes against full mode at D = 290 (8 of 290 sectors)";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "beluga-table-6.7",
    title: "Sentinels: distance and margin (with table 6.8)",
    method: "\
        A model of the low-power mode of Beluga on one simulated WD Caviar Black, all of its \
        behaviour simulated, with up to four commands in its queue. Sentinels of 4 KB are written \
        at equal distances; when one has completed, the one after the next is submitted. Between \
        any two a record of 4 KB is submitted for the sectors right behind the next sentinel. For \
        the distances of table 6.7 this is done as soon as a sentinel has completed. For those of \
        table 6.8 it is done when the head is as many sectors before the next sentinel as the \
        margin says, for ten margins, of which the one with the lowest latency counts; half a \
        distance is added for the time that a record waits in its interval on average. Beside it, \
        Upsweep's log in the mode sentinel, which finds its distance itself and has no margin.",
    scaling: "\
        A quick run measures 500 records in each case, a full run 20,000, or 2,000 where it varies \
        what is open.",
    papers: &[DISTANCES, MARGINS],
    bindings: &[
        Binding::value(DISTANCES, CLOSE, "lowest latency below 270 sectors", Better::Neither),
        Binding::value(DISTANCES, ORDER, "most reordered from 270 sectors on", Better::Neither),
        Binding::tuple(MARGINS, CHOSEN, &["best distance", "best margin"]),
        Binding::value(MARGINS, WRITTEN, "written at the best distance", Better::Neither),
    ],
    run,
};

const OF_DISTANCES: [u64; 9] = [220, 230, 240, 250, 260, 270, 280, 290, 300];
const OF_MARGINS: [u64; 5] = [260, 270, 280, 290, 300];
const TRIED: [u64; 10] = [10, 30, 50, 70, 90, 110, 130, 150, 170, 190];
/// Times of a command.
const COMMANDS_MS: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.45, 0.5, 0.525, 0.55, 0.6];
/// Closer ones, to see from where on the model does not keep the order.
const CLOSER: [u64; 8] = [60, 80, 100, 120, 140, 160, 180, 200];
/// From here on the paper has little reordering.
const APART: u64 = 270;
/// Sectors of a sentinel.
const SENTINEL: f64 = 8.0;
/// Interrupt of the host.
const NOTICE_US: f64 = 100.0;
/// Mean time between records of Upsweep.
const INTERVAL_US: u64 = 10_000;

/// Time in which a sector of the outermost track passes the head.
fn sector_us() -> Result<f64, Problem> {
    let description = banks::description(DRIVE)?;
    let sectors = description.zones.first().map_or(1, |zone| zone.sectors_per_track);
    Ok(banks::revolution_us(DRIVE)? / f64::from(sectors))
}

/// What the dissertation leaves open of the drive and the host.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Time in which the drive processes a command; else as its description says.
    command_ms: Option<f64>,
    /// Whether the host submits a sentinel before the record, where it submits both.
    sentinel_first: bool,
}

const USUAL: Open = Open { command_ms: None, sentinel_first: false };

/// A measurement.
#[derive(Clone, Copy, Debug)]
struct Case {
    open: Open,
    distance: u64,
    dispatch: Dispatch,
    records: u64,
}

impl Case {
    fn at_once(open: Open, distance: u64, records: u64) -> Self {
        Self { open, distance, dispatch: Dispatch::AtOnce, records }
    }

    /// All margins of all distances.
    fn of_margins(open: Open, records: u64) -> Vec<Self> {
        let cases = OF_MARGINS
            .iter()
            .flat_map(|distance| TRIED.map(|margin| (*distance, Dispatch::Margin(margin))));
        cases.map(|(distance, dispatch)| Self { open, distance, dispatch, records }).collect()
    }

    fn measure(self, seed: u64) -> Result<Seen, Problem> {
        let Self { open: Open { command_ms, sentinel_first }, distance, dispatch, records } = self;
        let mut drive = banks::description(DRIVE)?;
        if let Some(command_ms) = command_ms {
            drive.overhead_ms.write_miss_after_write = command_ms;
        }
        let ordering = Ordering { depth: 4, scheduler: Scheduler::Sptf };
        let mut devices = banks::full_drives_of(&drive, 1, Some(ordering), seed);
        let (sector_us, notice_us) = (sector_us()?, NOTICE_US);
        let sentinels = Sentinels { distance, dispatch, sentinel_first, sector_us, notice_us };
        sentinels.run(&mut *devices, records)
    }
}

/// The best of the margins at a distance.
struct Best {
    distance: u64,
    margin: u64,
    latency_us: f64,
    /// With the time that a record waits before it is submitted.
    whole_us: f64,
    reordered_percent: f64,
}

fn best_margins(of_margin: &[Seen], sector_us: f64) -> Vec<Best> {
    OF_MARGINS
        .iter()
        .zip(of_margin.chunks(TRIED.len()))
        .filter_map(|(distance, seen)| {
            let tried = TRIED.iter().zip(seen);
            let (margin, seen) =
                tried.min_by(|one, other| one.1.latency_us.total_cmp(&other.1.latency_us))?;
            let (latency_us, reordered_percent) = (seen.latency_us, seen.reordered_percent);
            let whole_us = latency_us + *distance as f64 / 2.0 * sector_us;
            let (distance, margin) = (*distance, *margin);
            Some(Best { distance, margin, latency_us, whole_us, reordered_percent })
        })
        .collect()
}

/// From which distance on the order is kept.
fn order(of_closer: &[Seen], of_distance: &[Seen]) -> String {
    let all = CLOSER.iter().zip(of_closer).chain(OF_DISTANCES.iter().zip(of_distance));
    let reordered = all.filter(|(_, seen)| seen.reordered_percent > 1.0);
    match reordered.map(|(distance, _)| *distance).max() {
        Some(distance) => format!(
            "The model completes more than 1 % of the sentinels out of order at {distance} sectors \
             and at none of the larger distances."
        ),
        None => format!(
            "The model completes less than 1 % of the sentinels out of order at all distances, \
             from {} sectors on.",
            CLOSER[0]
        ),
    }
}

/// What comes out with one choice of what is open.
struct Chosen {
    open: Open,
    of_distance: Vec<Seen>,
    best: Vec<Best>,
}

fn of_open(scale: &Scale, progress: &Progress) -> Result<Vec<Chosen>, Problem> {
    let records = scale.pick(500, 2000);
    let choices: Vec<Open> = [false, true]
        .into_iter()
        .flat_map(|sentinel_first| {
            COMMANDS_MS.map(|ms| Open { command_ms: Some(ms), sentinel_first })
        })
        .collect();
    let cases = |open: &Open| {
        let at_once = OF_DISTANCES.map(|distance| Case::at_once(*open, distance, records));
        [at_once.to_vec(), Case::of_margins(*open, records)].concat()
    };
    let cases: Vec<Case> = choices.iter().flat_map(cases).collect();
    let seen = progress.each(&cases, |case| case.measure(scale.seed))?;
    let sector_us = sector_us()?;
    let chosen = choices.iter().zip(seen.chunks(cases.len() / choices.len()));
    let chosen = chosen.map(|(open, seen)| {
        let (of_distance, of_margin) = seen.split_at(OF_DISTANCES.len());
        let best = best_margins(of_margin, sector_us);
        Chosen { open: *open, of_distance: of_distance.to_vec(), best }
    });
    Ok(chosen.collect())
}

/// The lowest latency at distances below [`APART`].
fn lowest_us(of_distance: &[Seen]) -> f64 {
    let all = OF_DISTANCES.iter().zip(of_distance).filter(|(distance, _)| **distance < APART);
    all.map(|(_, seen)| seen.latency_us).fold(f64::INFINITY, f64::min)
}

/// The distance with the lowest latency of all.
fn best_of(best: &[Best]) -> Option<&Best> {
    best.iter().min_by(|one, other| one.whole_us.total_cmp(&other.whole_us))
}

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let records = scale.pick(500, 20_000);
    let at_once = OF_DISTANCES.map(|distance| Case::at_once(USUAL, distance, records));
    let closer = CLOSER.map(|distance| Case::at_once(USUAL, distance, records));
    let cases = [&at_once[..], &closer[..], &Case::of_margins(USUAL, records)].concat();
    let seen = progress.each(&cases, |case| case.measure(scale.seed))?;
    let of_open = of_open(scale, progress)?;
    let ours = progress.each(&[LogMode::Sentinel], |mode| {
        Sparse { mode: *mode, interval_us: INTERVAL_US }.measure(scale)
    })?;
    let (of_distance, others) = seen.split_at(OF_DISTANCES.len());
    let (of_closer, of_margin) = others.split_at(CLOSER.len());
    let sector_us = sector_us()?;
    let best = best_margins(of_margin, sector_us);
    let mut outcome = Outcome::default();
    outcome.setup("device", "WD Caviar Black 1 TB, all of the drive's behaviour simulated");
    outcome.setup("sector passes the head in", format!("{} us", short(sector_us)));
    let apart = OF_DISTANCES.iter().zip(of_distance).filter(|(distance, _)| **distance >= APART);
    let most = apart.map(|(_, seen)| seen.reordered_percent).fold(0.0, f64::max);
    outcome.value("lowest latency below 270 sectors", lowest_us(of_distance) / 1e3, "ms");
    outcome.value("most reordered from 270 sectors on", most, "%");
    if let Some(best) = best_of(&best) {
        outcome.value("best distance", best.distance as f64, "sectors");
        outcome.value("best margin", best.margin as f64, "sectors");
        let written = SENTINEL / best.distance as f64;
        outcome.value("written at the best distance", written, "fraction (1/36)");
    }
    outcome.finding(order(of_closer, of_distance));
    if let [ours] = ours.as_slice() {
        outcome.finding(format!(
            "Upsweep's log in the mode sentinel, a record every {} ms: {} us from arrival to \
             completion, with {} sectors from one sentinel to the next, which it found itself.",
            INTERVAL_US / 1000,
            short(ours.mean_us),
            short(ours.stride_kb * 2.0),
        ));
    }
    outcome.tables.push(distances_table(of_distance));
    outcome.tables.push(closer_table(of_closer));
    outcome.tables.push(margins_table(&best));
    outcome.tables.push(open_table(&of_open));
    outcome.figures.push(figure(of_closer, of_distance));
    outcome.caveat(&[CLOSE, ORDER, CHOSEN, WRITTEN], FIRMWARE);
    outcome.caveat(&[CHOSEN, WRITTEN], FLAT);
    outcome.caveat(&[], NO_DISTANCE);
    Ok(outcome)
}

const FIRMWARE: &str = "\
    From which distance on a drive keeps the order of sentinels follows from what its firmware \
    does, of which only two facts are published: it holds a write that it cannot merge for about 1 \
    ms, and merges none below 4 KB. Open are the time in which it processes a command, and whether \
    the host submits the record or the sentinel first where it submits both. The last table varies \
    them. A time from 0.5 to 0.55 ms with the sentinel first would do: below 270 sectors a turn is \
    lost, from 270 to 300 sectors on none is, and the best margin is 130 sectors. Here it is the \
    0.1 ms of the description, which is an estimate.";
const FLAT: &str = "\
    Where the order is kept, half a distance is waited for on average, so that the whole latency \
    grows with the distance, and the best margin is the least with which the record is still in \
    time. In the paper it is much the same from 270 to 300 sectors, from 1,316 to 1,373 us.";
const NO_DISTANCE: &str = "\
    The log of the product has no fixed distance: it shortens it until sentinels miss their \
    place, and has no setting for it. So its mode is a point beside these tables and no part of \
    the sweep.";

fn distances_table(seen: &[Seen]) -> Table {
    let row = |(distance, seen): (&u64, &Seen)| {
        [*distance as f64, seen.latency_us, seen.reordered_percent].map(Into::into).to_vec()
    };
    Table {
        name: "distances".into(),
        title: "Records that are submitted when a sentinel has completed".into(),
        paper: Some(DISTANCES.into()),
        keys: 1,
        columns: vec![
            Column::published("sentinel distance D [sectors]"),
            Column::published("latency [us]"),
            Column::published("reordered sentinels [%]"),
        ],
        rows: OF_DISTANCES.iter().zip(seen).map(row).collect(),
    }
}

fn closer_table(seen: &[Seen]) -> Table {
    let row = |(distance, seen): (&u64, &Seen)| {
        [*distance as f64, seen.latency_us, seen.reordered_percent].map(Into::into).to_vec()
    };
    Table {
        name: "closer".into(),
        title: "The same, closer than in the paper".into(),
        paper: None,
        keys: 1,
        columns: vec![
            Column::own("distance [sectors]"),
            Column::own("latency [us]"),
            Column::own("reordered sentinels [%]"),
        ],
        rows: CLOSER.iter().zip(seen).map(row).collect(),
    }
}

fn margins_table(best: &[Best]) -> Table {
    let row = |best: &Best| {
        let numbers = [
            best.distance as f64,
            best.margin as f64,
            best.latency_us,
            best.whole_us,
            best.reordered_percent,
        ];
        numbers.map(Into::into).to_vec()
    };
    Table {
        name: "margins".into(),
        title: "The best margin for each distance".into(),
        paper: Some(MARGINS.into()),
        keys: 1,
        columns: vec![
            Column::published("D [sectors]"),
            Column::published("best margin M [sectors]"),
            Column::published("latency from dispatch [us]"),
            Column::published("end-to-end latency [us]"),
            Column::own("reordered sentinels [%]"),
        ],
        rows: best.iter().map(row).collect(),
    }
}

fn open_table(chosen: &[Chosen]) -> Table {
    let row = |chosen: &Chosen| {
        let Open { command_ms, sentinel_first } = chosen.open;
        let first = if sentinel_first { "the sentinel" } else { "the record" };
        let mut row: Vec<Cell> = vec![first.into()];
        row.extend(command_ms.map(Cell::Number));
        row.push(Cell::Number(lowest_us(&chosen.of_distance)));
        let best = best_of(&chosen.best);
        let number = |of: fn(&Best) -> f64| best.map_or(Cell::from("-"), |best| of(best).into());
        row.push(number(|best| best.distance as f64));
        row.push(number(|best| best.margin as f64));
        row.push(number(|best| best.latency_us));
        row.push(number(|best| best.whole_us));
        row
    };
    Table {
        name: "open".into(),
        title: "By what is open: what is submitted first, and the time of a command".into(),
        paper: None,
        keys: 2,
        columns: vec![
            Column::own("submitted first"),
            Column::own("time of a command [ms]"),
            Column::own(&format!("lowest latency below {APART} sectors [us]")),
            Column::own("best distance [sectors]"),
            Column::own("its best margin [sectors]"),
            Column::own("latency from dispatch [us]"),
            Column::own("end-to-end latency [us]"),
        ],
        rows: chosen.iter().map(row).collect(),
    }
}

fn figure(of_closer: &[Seen], of_distance: &[Seen]) -> Figure {
    let points = CLOSER.iter().zip(of_closer).chain(OF_DISTANCES.iter().zip(of_distance));
    let points = points.map(|(distance, seen)| (*distance as f64, seen.latency_us));
    Figure {
        name: "distances".into(),
        title: "Latency of records by the distance of sentinels".into(),
        across: Axis::linear("distance [sectors]"),
        up: Axis::linear("latency [us]"),
        curves: vec![Curve { name: "model".into(), points: points.collect() }],
        papers: vec![PaperPoints {
            name: "paper".into(),
            paper: DISTANCES.into(),
            across: "sentinel distance D [sectors]".into(),
            up: "latency [us]".into(),
            only: None,
        }],
    }
}
