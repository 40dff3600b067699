//! `upsweep bench grid`: what a store chose for its devices beside a grid of settings by hand.
//!
//! Steps: load a table larger than the memory; open the store with each point of the grid, and with
//! what it chooses itself, and measure updates, a scan beside updates, and queries beside a scan;
//! do this several times, in another order each time. For each of the three the best point is then
//! measured again beside the choice, in turns: the best of many points would else be better by
//! chance alone.
//!
//! The grid has two planes: lengths of runs and of batches of the log, with scans as chosen, and
//! lengths and numbers of the requests of scans, with runs and batches as chosen. What the settings
//! of a plane do not change is not measured there.
//!
//! Updates are made for some seconds before those that count, until they fill the memory. Before
//! queries everything is swept, so that no sweep disturbs them.

mod report;
mod settings;

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::spread::Spread;
use super::table::Bench;
use super::{Latencies, Random, describe_devices, note};
use crate::args::GridArgs;
use crate::context::Context;
use crate::failure::Failure;
use settings::{Settings, grid};

/// How long updates are made before those that count, if a phase is not shorter.
const WARM_UP_SECONDS: u64 = 5;

/// What is measured of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Goal {
    /// Updates in a second, with nothing else.
    Updates,
    /// Bytes of images that a scan goes over in a second beside updates, in 10^6.
    ScanBesideUpdates,
    /// The 99th percentile of the times of queries beside a scan, in microseconds.
    QueriesBesideScan,
}

impl Goal {
    const ALL: [Self; 3] = [Self::Updates, Self::ScanBesideUpdates, Self::QueriesBesideScan];

    fn name(self) -> &'static str {
        match self {
            Self::Updates => "updates/s",
            Self::ScanBesideUpdates => "scan beside updates, MB/s",
            Self::QueriesBesideScan => "p99 of queries beside a scan, µs",
        }
    }

    /// How good one number is, as a part of another.
    fn ratio(self, of: f64, to: f64) -> f64 {
        match self {
            Self::Updates | Self::ScanBesideUpdates => of / to.max(1e-12),
            Self::QueriesBesideScan => to / of.max(1e-12),
        }
    }
}

/// A point of the grid, and what was found of each of its goals in the rounds.
#[derive(Serialize)]
struct Point {
    settings: Settings,
    found: Vec<(Goal, Spread)>,
}

impl Point {
    fn median(&self, goal: Goal) -> Option<f64> {
        let found = self.found.iter().find(|(of, _)| *of == goal);
        found.map(|(_, spread)| spread.median)
    }
}

/// The choice of the store beside the best point of the grid.
#[derive(Serialize)]
struct Compared {
    goal: Goal,
    best: Settings,
    /// How good the choice is, as a part of the best point, in each pair; none if it is the best.
    ratio: Option<Spread>,
}

/// What was measured.
#[derive(Serialize)]
struct Outcome {
    seed: u64,
    records: u64,
    value_bytes: u32,
    memory_bytes: u64,
    seconds: u64,
    rounds: u32,
    pairs: u32,
    devices: Vec<String>,
    /// What the store chose, and why.
    choices: Vec<upsweep::layers::runtime::Choice>,
    /// The choice first.
    points: Vec<Point>,
    compared: Vec<Compared>,
}

pub(super) fn run(context: &Context, args: &GridArgs, folder: &Path) -> Result<(), Failure> {
    let path = folder.join("store");
    let status = args.table.load(&path)?;
    let measurer = Measurer { args, path: &path };
    let points = measurer.points()?;
    let compared: Result<_, _> =
        Goal::ALL.into_iter().map(|goal| measurer.compare(goal, &points)).collect();
    let outcome = Outcome {
        seed: args.seed,
        records: args.table.records,
        value_bytes: args.table.value_bytes,
        memory_bytes: args.table.memory.0,
        seconds: args.seconds,
        rounds: args.rounds,
        pairs: args.pairs,
        devices: describe_devices(&status),
        choices: status.choices,
        points,
        compared: compared?,
    };
    report::print(context, args, &outcome)
}

struct Measurer<'a> {
    args: &'a GridArgs,
    path: &'a Path,
}

impl Measurer<'_> {
    /// All points, measured in rounds, each in another order.
    fn points(&self) -> Result<Vec<Point>, Failure> {
        let settings = grid(self.args);
        let mut found: Vec<Vec<Vec<f64>>> =
            settings.iter().map(|settings| vec![Vec::new(); settings.goals().len()]).collect();
        let mut random = Random::new(self.args.seed);
        for round in 1..=self.args.rounds {
            for (turn, place) in random.order(settings.len()).into_iter().enumerate() {
                let (turn, of, rounds) = (turn + 1, settings.len(), self.args.rounds);
                note(&format!("round {round} of {rounds}, point {turn} of {of}"));
                let measured = self.measure(&settings[place], settings[place].goals())?;
                for (found, measured) in found[place].iter_mut().zip(measured) {
                    found.push(measured);
                }
            }
        }
        let point = |(settings, found): (Settings, Vec<Vec<f64>>)| {
            let found = found.into_iter().map(Spread::of);
            Point { settings, found: settings.goals().iter().copied().zip(found).collect() }
        };
        Ok(settings.into_iter().zip(found).map(point).collect())
    }

    /// Measures the best point for a goal again, in turns with the choice.
    fn compare(&self, goal: Goal, points: &[Point]) -> Result<Compared, Failure> {
        let found = points.iter().filter_map(|point| Some((point.settings, point.median(goal)?)));
        let best = found.max_by(|one, other| goal.ratio(one.1, other.1).total_cmp(&1.0));
        let best = best.map_or(Settings::CHOSEN, |(settings, _)| settings);
        if best == Settings::CHOSEN {
            return Ok(Compared { goal, best, ratio: None });
        }
        let mut ratios = Vec::new();
        for pair in 0..self.args.pairs {
            note(&format!("{}: pair {} of {}", goal.name(), pair + 1, self.args.pairs));
            let mut of = [Settings::CHOSEN, best];
            // Whichever comes first may have it easier.
            if pair % 2 == 1 {
                of.reverse();
            }
            let first = self.measure(&of[0], &[goal])?[0];
            let second = self.measure(&of[1], &[goal])?[0];
            let [chosen, best] = if pair % 2 == 1 { [second, first] } else { [first, second] };
            ratios.push(goal.ratio(chosen, best));
        }
        Ok(Compared { goal, best, ratio: Some(Spread::of(ratios)) })
    }

    /// Opens the store with these settings and measures what is to be known, in the order of
    /// [`Goal::ALL`].
    fn measure(&self, settings: &Settings, goals: &[Goal]) -> Result<Vec<f64>, Failure> {
        let args = self.args;
        let bench = Bench::open(&args.table, self.path, settings.apply(args.table.options()))?;
        let update_for = |duration: Duration, main: &dyn Fn(Instant) -> Result<u64, Failure>| {
            let until = Instant::now() + duration;
            bench.run(until, (0, args.updates), args.seed, || main(until))
        };
        let sleep = |until: Instant| {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            Ok(0)
        };
        if goals.iter().any(|goal| *goal != Goal::QueriesBesideScan) {
            update_for(Duration::from_secs(args.seconds.min(WARM_UP_SECONDS)), &sleep)?;
        }
        let duration = Duration::from_secs(args.seconds);
        let measured = goals.iter().map(|goal| {
            Ok(match goal {
                Goal::Updates => {
                    let ended = update_for(duration, &sleep)?;
                    ended.updates as f64 / ended.seconds
                }
                Goal::ScanBesideUpdates => {
                    let ended = update_for(duration, &|until| bench.scan(until))?;
                    bench.megabytes(ended.main as f64 / ended.seconds)
                }
                Goal::QueriesBesideScan => {
                    bench.store.sweep()?;
                    let until = Instant::now() + duration;
                    let queries = (args.queries, 0);
                    let ended = bench.run(until, queries, args.seed, || bench.scan(until))?;
                    Latencies::of(&ended.queries).p99_us
                }
            })
        });
        let measured = measured.collect::<Result<_, Failure>>()?;
        bench.store.close()?;
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_better_but_for_times() {
        let ratios = Goal::ALL.map(|goal| goal.ratio(50.0, 100.0));
        assert_eq!(ratios, [0.5, 0.5, 2.0]);
    }
}
