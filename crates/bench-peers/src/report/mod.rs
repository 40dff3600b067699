//! The report: Markdown with tables, and SVG plots, made of `results.json` alone.

mod bounds;
mod columns;
mod markdown;
mod plots;
pub(crate) mod spread;

use std::path::Path;

use crate::failure::Failure;
use crate::outcome::{CellName, Outcome, Results};
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

/// All engines' runs of one workload in one class at one ratio.
struct Table<'a> {
    /// A name of one of its cells, for all but the engine.
    name: &'a CellName,
    /// Engines in the order of the runs, with the outcomes of all repeats.
    rows: Vec<(&'a str, Vec<&'a Result<Outcome, String>>)>,
}

/// All cells, by what engines are compared in; in the order in which they were run.
fn tables(results: &Results) -> Vec<Table<'_>> {
    let key = |name: &CellName| (name.ratio, name.workload, name.class);
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

/// An outcome in a line, to follow a run by.
pub(crate) fn in_a_line(outcome: &Outcome) -> String {
    let per_update = |number: f64| short(number / outcome.updates.max(1) as f64);
    let mut parts = Vec::new();
    if let Some(recovery) = &outcome.recovery {
        parts.push(format!("recovered in {} s", short(recovery.seconds)));
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
mod tests {
    use super::*;
    use crate::outcome::{CellRun, Latency, Reference, Settings};
    use crate::workload::{Class, Workload};

    fn results() -> Results {
        let mut results = Results {
            settings: Settings { memory_bytes: 128 << 20, ..Settings::default() },
            reference: Some(Reference {
                read_bytes_per_second: 1e9,
                write_bytes_per_second: 1e9,
                pairs_per_second: 20_000.0,
                ..Reference::default()
            }),
            notes: vec!["a note".to_owned()],
            ..Results::default()
        };
        for (engine, rate) in [("upsweep", 100_000.0), ("lmdb", 1000.0)] {
            for repeat in 0..2u32 {
                let rate = rate + f64::from(repeat) * 100.0;
                let latency =
                    Latency { samples: 9, p50_us: 50.0, max_us: 900.0, ..Latency::default() };
                let mut outcome = Outcome {
                    updates: 1_000_000,
                    updates_per_second: rate,
                    paid_updates_per_second: rate,
                    update_latency: Some(latency),
                    written_bytes: 64_000_000,
                    ..Outcome::default()
                };
                outcome.series.counts = vec![10, 20, 30];
                outcome.series.longest_us = vec![1, 2, 3];
                let (workload, class) = (Workload::Increments, Class::Relaxed);
                let name = CellName { ratio: 8, workload, class, engine: engine.to_owned() };
                results.cells.push(CellRun { name, repeat, outcome: Ok(outcome) });
            }
        }
        let failed = CellRun { outcome: Err("it broke".to_owned()), ..results.cells[3].clone() };
        results.cells.push(failed);
        results
    }

    #[test]
    fn report_and_plots_have_every_engine_and_every_failure() {
        let folder = tempfile::tempdir().expect("a folder");
        results().write(folder.path()).expect("written");
        remake(folder.path()).expect("a report");
        let text = std::fs::read_to_string(folder.path().join(FILE)).expect("read");
        assert!(text.contains("| upsweep | 100,050 (100,000 to 100,100) |"), "{text}");
        assert!(text.contains("| lmdb | 1,050 (1,000 to 1,100) |"), "{text}");
        assert!(text.contains("lmdb: it broke") && text.contains("a note"), "{text}");
        for name in ["throughput-relaxed", "time-8-increments-relaxed"] {
            assert!(text.contains(&format!("({name}.svg)")), "{text}");
            let svg = std::fs::read_to_string(folder.path().join(format!("{name}.svg")));
            assert!(svg.expect("a plot").contains("lmdb"));
        }
    }

    #[test]
    fn repeats_of_an_engine_stand_in_one_row() {
        let results = results();
        let tables = tables(&results);
        assert_eq!(tables.len(), 1);
        let rows: Vec<(&str, usize)> =
            tables[0].rows.iter().map(|(name, outcomes)| (*name, outcomes.len())).collect();
        assert_eq!(rows, [("upsweep", 2), ("lmdb", 3)]);
        assert_eq!(measured(&tables[0].rows[1].1).len(), 2);
    }
}
