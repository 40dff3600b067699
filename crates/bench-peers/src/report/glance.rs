//! Increments at a glance: all engines on all data sets, and where Upsweep is behind another.

use super::columns::{
    longest_wait_ms, median_second, processor_us, read, used_per_update, worst_second, written,
};
use super::markdown::line;
use super::{Table, measured, tables};
use crate::outcome::{Outcome, Results};
use crate::spread::Spread;
use crate::text::short;
use crate::workload::Workload;

/// The engine that the others are compared with, at its defaults.
const OWN: &str = "upsweep";

/// What engines are compared by.
struct Measure {
    title: &'static str,
    is_more_better: bool,
    number: fn(&Outcome) -> Option<f64>,
}

const MEASURES: [Measure; 6] = [
    Measure { title: "median second", is_more_better: true, number: median_second },
    Measure { title: "worst second", is_more_better: true, number: worst_second },
    Measure { title: "longest wait", is_more_better: false, number: longest_wait_ms },
    Measure {
        title: "B written",
        is_more_better: false,
        number: |outcome| used_per_update(outcome, written),
    },
    Measure {
        title: "B read",
        is_more_better: false,
        number: |outcome| used_per_update(outcome, read),
    },
    Measure {
        title: "processor",
        is_more_better: false,
        number: |outcome| used_per_update(outcome, processor_us),
    },
];

/// Writes both tables; nothing without increments.
pub(super) fn write(results: &Results, out: &mut String) {
    let tables = tables(results);
    let tables: Vec<&Table<'_>> =
        tables.iter().filter(|table| table.name.workload == Workload::Increments).collect();
    if tables.is_empty() {
        return;
    }
    rates(results, &tables, out);
    if results.settings.engines.iter().any(|engine| engine == OWN) {
        behind(&tables, out);
    }
}

fn head(titles: &[&str], out: &mut String) {
    line(out, &format!("| ratio | bytes of a key | class | {} |", titles.join(" | ")));
    line(out, &format!("|---:|---:|---|{}", "---:|".repeat(titles.len())));
}

fn start_of_row(table: &Table<'_>) -> String {
    let name = table.name;
    format!("| {} | {} | {} |", name.set.ratio, name.set.key_bytes, name.class.name())
}

fn rates(results: &Results, tables: &[&Table<'_>], out: &mut String) {
    line(
        out,
        "## Increments at a glance\n\nUpdates in the median second. In brackets: the state was not \
         steady, or that is not known. Nothing: there is no result.\n",
    );
    let engines: Vec<&str> = results.settings.engines.iter().map(String::as_str).collect();
    head(&engines, out);
    for table in tables {
        let mut row = start_of_row(table);
        for engine in &engines {
            let runs = runs(table, engine);
            let is_steady = runs.iter().all(|run| run.is_steady == Some(true));
            let shown = median(&runs, median_second).map(short).unwrap_or_default();
            let shown = match is_steady {
                false if !shown.is_empty() => format!("({shown})"),
                _ => shown,
            };
            row.push_str(&format!(" {shown} |"));
        }
        line(out, &row);
    }
    line(out, "");
}

fn behind(tables: &[&Table<'_>], out: &mut String) {
    line(
        out,
        "### Where Upsweep is behind\n\nThe best of the other engines where it is better than \
         `upsweep`, beside which its own number stands; nothing where none is. Waits are in ms, \
         processor time is in µs; it and bytes are those of an update.\n",
    );
    head(&MEASURES.each_ref().map(|measure| measure.title), out);
    for table in tables {
        let mut row = start_of_row(table);
        for measure in &MEASURES {
            row.push_str(&format!(" {} |", better(table, measure)));
        }
        line(out, &row);
    }
    line(out, "");
}

/// The best other engine by a measure, if it is better.
fn better(table: &Table<'_>, measure: &Measure) -> String {
    let sign = if measure.is_more_better { 1.0 } else { -1.0 };
    let of = |engine: &str| median(&runs(table, engine), measure.number);
    let names = table.rows.iter().map(|(engine, _)| *engine);
    let others = names.filter(|engine| !engine.starts_with(OWN));
    let others = others.filter_map(|engine| Some((engine, of(engine)?)));
    let best = others.max_by(|(_, first), (_, second)| (sign * first).total_cmp(&(sign * second)));
    match (of(OWN), best) {
        (Some(own), Some((engine, best))) if sign * best > sign * own => {
            format!("{engine} {} beside {}", short(best), short(own))
        }
        (None, Some((engine, best))) => format!("{engine} {} beside none", short(best)),
        _ => String::new(),
    }
}

fn runs<'a>(table: &Table<'a>, engine: &str) -> Vec<&'a Outcome> {
    let row = table.rows.iter().find(|(name, _)| *name == engine);
    row.map_or_else(Vec::new, |(_, outcomes)| measured(outcomes))
}

/// The median over the runs that have the number.
fn median(runs: &[&Outcome], number: fn(&Outcome) -> Option<f64>) -> Option<f64> {
    let numbers: Vec<f64> = runs.iter().filter_map(|run| number(run)).collect();
    (!numbers.is_empty()).then(|| Spread::of(numbers).median)
}
