//! The report.
pub(crate) mod spread;
use crate::failure::Failure;
use crate::outcome::{Outcome, Results};
use crate::text::{short, size};
use std::path::Path;

pub(crate) fn remake(folder: &Path) -> Result<(), Failure> {
    Results::read(folder).map(drop)
}

/// An outcome in a line, to follow a run by.
pub(crate) fn in_a_line(outcome: &Outcome) -> String {
    let per_update = |number: u64| number as f64 / outcome.updates.max(1) as f64;
    let mut parts = Vec::new();
    if let Some(recovery) = &outcome.recovery {
        parts.push(format!("recovered in {} s", short(recovery.seconds)));
    }
    if let Some(latency) = &outcome.update_latency {
        parts.push(format!(
            "{} updates/s, {}/s paid, p50 {} us, p99 {} us, max {} us, {} B written, {} B read, {} \
             us of processor per update",
            short(outcome.updates_per_second),
            short(outcome.paid_updates_per_second),
            short(latency.p50_us),
            short(latency.p99_us),
            short(latency.max_us),
            short(per_update(outcome.written_bytes)),
            short(per_update(outcome.read_bytes)),
            short(outcome.cpu_seconds * 1e6 / outcome.updates.max(1) as f64),
        ));
    }
    if outcome.read_latency.is_some() {
        parts.push(format!("{} reads/s", short(outcome.reads_per_second)));
    }
    if outcome.scan_latency.is_some() {
        parts.push(format!("{} scans/s", short(outcome.scans_per_second)));
    }
    parts.push(format!("{} resident", size(outcome.resident_bytes_peak as f64)));
    parts.join("; ")
}
