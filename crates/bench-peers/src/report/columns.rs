//! The columns of the tables: what an outcome says under each title.

use super::bounds::Bounds;
use crate::outcome::{Latency, Outcome};
use crate::text::{short, size};

/// A column: its title, its number (none: the outcome has none), and how that is shown.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) number: Box<dyn Fn(&Outcome) -> Option<f64>>,
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
    ]
}

/// Percentiles of one latency.
pub(super) fn latencies(of: fn(&Outcome) -> Option<&Latency>) -> Vec<Column> {
    let parts: [(&'static str, fn(&Latency) -> f64); 6] = [
        ("p50", |latency| latency.p50_us),
        ("p90", |latency| latency.p90_us),
        ("p99", |latency| latency.p99_us),
        ("p99.9", |latency| latency.p999_us),
        ("p99.99", |latency| latency.p9999_us),
        ("max", |latency| latency.max_us),
    ];
    let one = |(title, part): (&'static str, fn(&Latency) -> f64)| {
        column(title, short, move |outcome| of(outcome).map(part))
    };
    parts.into_iter().map(one).collect()
}
