//! The columns of the tables: what an outcome says under each title.

use super::bounds::Bounds;
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

/// The first columns: how fast it was, and against what is possible.
pub(super) fn rates(bounds: Option<Bounds>) -> Vec<Column> {
    let ran = |outcome: &Outcome| outcome.update_latency.is_some();
    let mut columns = vec![
        column("updates/s, all paid", short, move |outcome| {
            ran(outcome).then_some(outcome.paid_updates_per_second)
        }),
        column("updates/s in the run", short, move |outcome| {
            ran(outcome).then_some(outcome.updates_per_second)
        }),
        column("asked for", short, |outcome| outcome.rate),
        column("s to quiesce", short, move |outcome| {
            ran(outcome).then_some(outcome.quiesce_seconds)
        }),
        column("reads/s", short, |outcome| {
            outcome.read_latency.is_some().then_some(outcome.reads_per_second)
        }),
        column("scans/s", short, |outcome| {
            outcome.scan_latency.is_some().then_some(outcome.scans_per_second)
        }),
        column("recovery, s", short, |outcome| Some(outcome.recovery.as_ref()?.seconds)),
        column("increments acknowledged", short, |outcome| {
            Some(outcome.recovery.as_ref()?.acknowledged as f64)
        }),
        column("found", short, |outcome| Some(outcome.recovery.as_ref()?.found as f64)),
    ];
    if let Some(Bounds { sweep, pairs, syncs }) = bounds {
        for (title, bound) in [("of sweep", sweep), ("of pairs", pairs), ("of syncs", syncs)] {
            columns.push(column(title, percent, move |outcome| {
                (bound > 0.0).then_some(outcome.paid_updates_per_second / bound)
            }));
        }
    }
    columns
}

/// What it cost.
pub(super) fn costs() -> Vec<Column> {
    let per_update = |outcome: &Outcome, number: f64| {
        let is_run = outcome.update_latency.is_some() && outcome.updates > 0;
        is_run.then(|| number / outcome.updates as f64)
    };
    let per_read = |outcome: &Outcome| {
        let reads = outcome.reads_per_second * outcome.seconds;
        let is_only = outcome.update_latency.is_none() && reads >= 1.0;
        is_only.then(|| outcome.read_bytes as f64 / reads)
    };
    vec![
        column("B written per update", short, move |outcome| {
            per_update(outcome, outcome.written_bytes as f64)
        }),
        column("B read per update", short, move |outcome| {
            per_update(outcome, outcome.read_bytes as f64)
        }),
        column("B read per read", short, per_read),
        column("processor s per million updates", short, move |outcome| {
            per_update(outcome, outcome.cpu_seconds * 1e6)
        }),
        column("on disk", size, |outcome| Some(outcome.disk_bytes as f64)),
        column("resident at most", size, |outcome| Some(outcome.resident_bytes_peak as f64)),
        column("of the limit, with page cache", size, |outcome| {
            Some(outcome.cgroup_bytes_peak? as f64)
        }),
        column("stolen by the host", percent, |outcome| {
            Some(outcome.pauses.as_ref()?.stolen_fraction)
        }),
        column("machine paused at most, ms", short, |outcome| {
            outcome.pauses.as_ref()?.longest_ms()
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
