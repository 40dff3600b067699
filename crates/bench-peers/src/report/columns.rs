//! The columns of the tables: what an outcome says under each title.

use super::bounds::Bounds;
use crate::cell::resources::Used;
use crate::outcome::{Latency, Outcome};
use crate::text::{short, size};

/// The number of a column in an outcome.
type Number = Box<dyn Fn(&Outcome) -> Option<f64>>;

/// A column: its title, its number (none: the outcome has none), and how that is shown.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) number: Number,
    pub(super) show: fn(f64) -> String,
}

fn column(
    title: &'static str,
    show: fn(f64) -> String,
    number: impl Fn(&Outcome) -> Option<f64> + 'static,
) -> Column {
    Column { title, number: Box::new(number), show }
}

fn percent(fraction: f64) -> String {
    format!("{} %", short(100.0 * fraction))
}

/// Seconds that count as the beginning of a run.
const FIRST_SECONDS: usize = 10;

/// Updates in the median second of a run.
pub(super) fn median_second(outcome: &Outcome) -> Option<f64> {
    outcome.updates_by_second().map(|_| outcome.rate_of_run())
}

/// Updates in its worst whole second.
pub(super) fn worst_second(outcome: &Outcome) -> Option<f64> {
    Some(outcome.updates_by_second()?.into_iter().min()? as f64)
}

/// Updates in one of its first ten seconds, on average.
fn first_seconds(outcome: &Outcome) -> Option<f64> {
    let mut seconds = outcome.updates_by_second()?;
    seconds.truncate(FIRST_SECONDS);
    Some(seconds.iter().sum::<u64>() as f64 / seconds.len().max(1) as f64)
}

/// The longest time that a call took, in milliseconds.
pub(super) fn longest_wait_ms(outcome: &Outcome) -> Option<f64> {
    Some(outcome.update_latency.as_ref()?.max_us / 1e3)
}

fn per_update(outcome: &Outcome, number: f64) -> Option<f64> {
    let is_run = outcome.update_latency.is_some() && outcome.updates > 0;
    is_run.then(|| number / outcome.updates as f64)
}

/// What a run used for an update, without the deferred work after it.
pub(super) fn used_per_update(outcome: &Outcome, used: fn(&Used) -> f64) -> Option<f64> {
    per_update(outcome, used(outcome.in_run.as_ref()?))
}

/// Bytes that devices wrote.
pub(super) fn written(used: &Used) -> f64 {
    used.written_bytes as f64
}

/// Bytes that devices read.
pub(super) fn read(used: &Used) -> f64 {
    used.read_bytes as f64
}

/// Processor time in microseconds.
pub(super) fn processor_us(used: &Used) -> f64 {
    used.cpu_seconds * 1e6
}

fn ran(outcome: &Outcome) -> bool {
    outcome.update_latency.is_some()
}

/// The first columns of increments: how fast they were, and against what is possible.
pub(super) fn increments(bounds: Option<Bounds>) -> Vec<Column> {
    let mut columns = vec![
        column("s", short, |outcome| outcome.callers_seconds.or(Some(outcome.seconds))),
        column("updates, median second", short, median_second),
        column("worst second", short, worst_second),
        column("first ten seconds, mean", short, first_seconds),
        column("longest wait, ms", short, longest_wait_ms),
        column("machine paused at most, ms", short, machine_paused_ms),
        column("turns", short, |outcome| Some(outcome.turns?.done)),
        column("updates/s, mean", short, |outcome| {
            ran(outcome).then_some(outcome.updates_per_second)
        }),
        column("mean, all paid", short, |outcome| {
            ran(outcome).then_some(outcome.paid_updates_per_second)
        }),
    ];
    if let Some(Bounds { sweep, pairs, syncs }) = bounds {
        for (title, bound) in [("of sweep", sweep), ("of pairs", pairs), ("of syncs", syncs)] {
            columns.push(column(title, percent, move |outcome| {
                (bound > 0.0).then_some(outcome.rate_of_run() / bound)
            }));
        }
    }
    columns
}

/// The first columns of other workloads.
pub(super) fn others() -> Vec<Column> {
    vec![
        column("updates/s, all paid", short, |outcome| {
            ran(outcome).then_some(outcome.paid_updates_per_second)
        }),
        column("updates/s in the run", short, |outcome| {
            ran(outcome).then_some(outcome.updates_per_second)
        }),
        column("asked for", short, |outcome| outcome.rate),
        column("s to quiesce", short, |outcome| ran(outcome).then_some(outcome.quiesce_seconds)),
        column("reads/s", short, |outcome| {
            outcome.read_latency.is_some().then_some(outcome.reads_per_second)
        }),
        column("scans/s", short, |outcome| {
            outcome.scan_latency.is_some().then_some(outcome.scans_per_second)
        }),
        column("machine paused at most, ms", short, machine_paused_ms),
        column("recovery, s", short, |outcome| Some(outcome.recovery.as_ref()?.seconds)),
        column("increments acknowledged", short, |outcome| {
            Some(outcome.recovery.as_ref()?.acknowledged as f64)
        }),
        column("found", short, |outcome| Some(outcome.recovery.as_ref()?.found as f64)),
    ]
}

fn machine_paused_ms(outcome: &Outcome) -> Option<f64> {
    outcome.pauses.as_ref()?.longest_ms()
}

/// What it cost.
pub(super) fn costs() -> Vec<Column> {
    let per_read = |outcome: &Outcome| {
        let reads = outcome.reads_per_second * outcome.seconds;
        let is_only = outcome.update_latency.is_none() && reads >= 1.0;
        is_only.then(|| outcome.read_bytes as f64 / reads)
    };
    let in_run = |title, used: fn(&Used) -> f64| {
        column(title, short, move |outcome| used_per_update(outcome, used))
    };
    vec![
        in_run("B written per update", written),
        in_run("B read per update", read),
        in_run("processor µs per update", processor_us),
        column("B written, all paid", short, |outcome| {
            per_update(outcome, outcome.written_bytes as f64)
        }),
        column("B read, all paid", short, |outcome| per_update(outcome, outcome.read_bytes as f64)),
        column("processor µs, all paid", short, |outcome| {
            per_update(outcome, outcome.cpu_seconds * 1e6)
        }),
        column("B read per read", short, per_read),
        column("on disk", size, |outcome| Some(outcome.disk_bytes as f64)),
        column("resident at most", size, |outcome| Some(outcome.resident_bytes_peak as f64)),
        column("of the limit, with page cache", size, |outcome| {
            Some(outcome.cgroup_bytes_peak? as f64)
        }),
        column("stolen by the host", percent, |outcome| {
            Some(outcome.pauses.as_ref()?.stolen_fraction)
        }),
    ]
}

/// Percentiles of one latency.
pub(super) fn latencies(of: fn(&Outcome) -> Option<&Latency>) -> Vec<Column> {
    let one = |(place, title): (usize, &'static str)| {
        column(title, short, move |outcome| Some(of(outcome)?.percentiles()[place]))
    };
    Latency::NAMES.into_iter().enumerate().map(one).collect()
}
