//! The report: Markdown with tables, and SVG plots, made of `results.json` alone.

mod bounds;
mod columns;
mod glance;
mod markdown;
mod plots;

use std::path::Path;

use crate::failure::Failure;
use crate::outcome::{CellName, DataSet, Outcome, Reference, Results};
use crate::text::{short, size};

/// Name of the file in the folder of results.
const FILE: &str = "report.md";

/// Makes report and plots of the results in a folder, and puts them beside.
///
/// # Errors
/// [`Failure::File`]; [`Failure::Refused`] if the results cannot be read or drawn.
pub(crate) fn remake(folder: &Path) -> Result<(), Failure> {
    let results = Results::read(folder)?;
    let plots = plots::draw_all(&results, folder)?;
    let path = folder.join(FILE);
    let text = markdown::report(&results, &plots);
    std::fs::write(&path, text).map_err(|error| Failure::file(&path, error))
}

/// All engines' runs of one workload in one class on one data set.
struct Table<'a> {
    /// A name of one of its cells, for all but the engine.
    name: &'a CellName,
    /// Engines in the order of the runs, with the outcomes of all repeats.
    rows: Vec<(&'a str, Vec<&'a Result<Outcome, String>>)>,
}

/// All cells, by what engines are compared in; in the order in which they were run.
fn tables(results: &Results) -> Vec<Table<'_>> {
    let key = |name: &CellName| (name.set, name.workload, name.class);
    let mut tables: Vec<Table<'_>> = Vec::new();
    for cell in &results.cells {
        let found = tables.iter().position(|table| key(table.name) == key(&cell.name));
        let place = found.unwrap_or_else(|| {
            tables.push(Table { name: &cell.name, rows: Vec::new() });
            tables.len() - 1
        });
        let (rows, engine) = (&mut tables[place].rows, cell.name.engine.as_str());
        match rows.iter_mut().find(|(name, _)| *name == engine) {
            Some((_, outcomes)) => outcomes.push(&cell.outcome),
            None => rows.push((engine, vec![&cell.outcome])),
        }
    }
    tables.sort_by_key(|table| key(table.name));
    tables
}

/// The outcomes of those repeats that have one.
fn measured<'a>(outcomes: &[&'a Result<Outcome, String>]) -> Vec<&'a Outcome> {
    outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).collect()
}

/// A data set, for a heading.
fn about(set: DataSet) -> String {
    format!("data {} times the memory, keys of {} bytes", set.ratio, set.key_bytes)
}

/// What a device does, in a line.
pub(crate) fn device(reference: &Reference) -> String {
    format!(
        "{}/s sequential reads, {}/s sequential writes, {} random pairs a second, {} synchronous \
         writes a second",
        size(reference.read_bytes_per_second),
        size(reference.write_bytes_per_second),
        short(reference.pairs_per_second),
        short(reference.syncs_per_second)
    )
}

/// An outcome in a line, to follow a run by.
pub(crate) fn in_a_line(outcome: &Outcome) -> String {
    let per_update = |number: f64| short(number / outcome.updates.max(1) as f64);
    let mut parts = Vec::new();
    if let Some(recovery) = &outcome.recovery {
        parts.push(format!("recovered in {} s", short(recovery.seconds)));
    }
    if let Some(second) = columns::median_second(outcome) {
        let turns = outcome.turns.map_or_else(String::new, |turns| {
            format!(", {} of {} turns", short(turns.done), short(turns.enough))
        });
        parts.push(format!("{} updates in the median second{turns}", short(second)));
    }
    if let Some(latency) = &outcome.update_latency {
        parts.push(format!(
            "{} updates/s, {}/s with deferred work paid, p50 {} us, p99 {} us, max {} us, {} B \
             written, {} B read, {} us of processor per update",
            short(outcome.updates_per_second),
            short(outcome.paid_updates_per_second),
            short(latency.p50_us),
            short(latency.p99_us),
            short(latency.max_us),
            per_update(outcome.written_bytes as f64),
            per_update(outcome.read_bytes as f64),
            per_update(outcome.cpu_seconds * 1e6),
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

#[cfg(test)]
mod tests;
