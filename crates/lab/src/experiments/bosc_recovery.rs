//! The time of recovery by the number of updates that wait when the process ends.

use super::indexes::{Changes, ORDERING, records_of};
use crate::claims::{Better, Binding};
use crate::experiment::{Experiment, Scale};
use crate::numbers::short;
use crate::outcome::{Axis, Column, Curve, Figure, Outcome, Table};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::systems::banks;
use crate::systems::plan::{Memory, Plan};
use crate::systems::store::{Restart, Store};

const INDEX_BYTES: u64 = 1 << 30;
const MEMORY_BYTES: u64 = 64 << 20;
const RECORD_BYTES: u64 = 16;
const DATA_DISKS: u16 = 4;
/// Processor time of an update, when it is made and when it is replayed.
const PROCESSOR_US: u64 = 1;
const POWER: &str = "power of the number of pending updates that recovery time grows with, beyond \
                     that without any";
/// Rates of updates, in a quick run and in a full run.
const RATES: (&[u64], &[u64]) =
    (&[0, 1000, 8000, 64_000], &[0, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000]);
/// How long updates are made, in seconds.
const SECONDS: u64 = 20;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "bosc-fig-9",
    title: "Time of recovery by pending updates",
    method: "\
        A table of 1 GB in blocks of 64 KB with records of 16 bytes, on four simulated IBM \
        DTLA-307030 and one for the log. Records are updated at random at a steady rate for 20 \
        seconds, then the process ends without warning and the store is opened again. The time is \
        that of the disks, and 1 us of processor for each update that is replayed.",
    scaling: "\
        A quick run has three rates besides none, up to 64,000 in a second, a full run nine, up to \
        128,000. So up to 2.5 million updates are issued, with 64 MB of memory, where the paper \
        has 64 million and 256 MB.",
    papers: &["bosc-fig-9-recovery", "goals-recovery"],
    bindings: &[Binding::value(
        "goals-recovery",
        POWER,
        "power of the number of pending updates",
        Better::Neither,
    )],
    run,
};

fn run(scale: &Scale, progress: &Progress) -> Result<Outcome, Problem> {
    let rates = scale.pick(RATES.0.to_vec(), RATES.1.to_vec());
    let restarts = progress.each(&rates, |rate| measure(*rate, scale.seed))?;
    let mut outcome = Outcome::default();
    outcome.setup("index", "1 GB, blocks of 64 KB, seven tenths full of records of 16 bytes");
    outcome.setup("memory", short((MEMORY_BYTES >> 20) as f64) + " MB");
    let points: Vec<(f64, f64)> =
        restarts.iter().map(|restart| (restart.waiting as f64, seconds(restart))).collect();
    let without = points.first().map_or(0.0, |(_, seconds)| *seconds);
    let beyond: Vec<_> =
        points.iter().skip(1).map(|(pending, seconds)| (*pending, seconds - without)).collect();
    outcome.value("power of the number of pending updates", power(&beyond), "power");
    outcome.setup("recovery without pending updates", format!("{} s", short(without)));
    let rows = rates.iter().zip(&restarts).map(|(rate, restart)| {
        let Restart { waiting, replayed, .. } = restart;
        let numbers = [*rate as f64, *waiting as f64, *replayed as f64, seconds(restart)];
        numbers.map(Into::into).to_vec()
    });
    outcome.tables.push(Table {
        name: "table".into(),
        title: "Recovery after random updates at a steady rate".into(),
        paper: None,
        keys: 1,
        columns: vec![
            Column::own("input rate [updates/s]"),
            Column::own("pending updates"),
            Column::own("updates replayed"),
            Column::own("recovery [s]"),
        ],
        rows: rows.collect(),
    });
    outcome.figures.push(Figure {
        name: "recovery".into(),
        title: "Time of recovery".into(),
        across: Axis::linear("pending updates"),
        up: Axis::linear("recovery [s]"),
        curves: vec![Curve { name: "Upsweep".into(), points }],
        papers: Vec::new(),
    });
    outcome.caveat(&[POWER], MORE_REPLAYED);
    outcome.caveat(&[], "The paper gives no numbers for the whole recovery, only its figure.");
    Ok(outcome)
}

const MORE_REPLAYED: &str = "\
    More updates are replayed than wait, as the log is read from the last checkpoint on; the fewer \
    wait, the larger that share is.";

fn seconds(restart: &Restart) -> f64 {
    (restart.open_us + restart.replayed * PROCESSOR_US) as f64 / 1e6
}

fn measure(rate: u64, seed: u64) -> Result<Restart, Problem> {
    let disks = banks::drives("dtla307030", DATA_DISKS + 1, Some(ORDERING), seed)?;
    let records = records_of(INDEX_BYTES, RECORD_BYTES);
    let plan = Plan {
        data_devices: DATA_DISKS,
        log_bytes: 1 << 30,
        memory: Memory::Whole(MEMORY_BYTES),
        record_bytes: RECORD_BYTES,
        fill_percent: 70,
        processor_us: PROCESSOR_US,
        ..Plan::TABLE
    };
    let mut store = Store::create(plan, records, disks)?;
    let mut next = Changes::Update.random(records, seed);
    let count = (rate * SECONDS) as usize;
    store.feed(rate, std::iter::repeat_with(&mut next).take(count))?;
    store.restart()
}

/// The power of x that y grows with: the slope of the line through the logarithms that has the
/// least squares.
fn power(points: &[(f64, f64)]) -> f64 {
    let logarithms: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logarithms.len() as f64;
    let mean_x = logarithms.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logarithms.iter().map(|(_, y)| y).sum::<f64>() / count;
    let shared: f64 = logarithms.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let own: f64 = logarithms.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    shared / own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_power_of_a_power_is_found() {
        for wanted in [0.5, 1.0, 2.0] {
            let points = [1.0, 3.0, 10.0, 40.0].map(|x: f64| (x, 7.0 * x.powf(wanted)));
            assert!((power(&points) - wanted).abs() < 1e-9, "{wanted}");
        }
    }
}
