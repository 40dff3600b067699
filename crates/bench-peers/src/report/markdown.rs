//! The report as Markdown.

use std::fmt::Write;

use super::columns::{Column, costs, latencies, rates};
use super::spread::Spread;
use super::{Table, bounds, measured, tables};
use crate::engines;
use crate::outcome::{Outcome, Reference, Results};
use crate::text::{short, size};
use crate::workload::{Class, Workload};

/// The whole report. `plots` are names of files beside it, with what they show.
pub(super) fn report(results: &Results, plots: &[(String, String)]) -> String {
    let mut out = String::from("# Upsweep and its peers\n\n");
    head(results, &mut out);
    engines_and_classes(results, &mut out);
    for (file, title) in plots {
        line(&mut out, &format!("![{title}]({file})\n"));
    }
    let (mut ratio, mut workload) = (None, None);
    for table in tables(results) {
        if ratio != Some(table.name.ratio) {
            ratio = Some(table.name.ratio);
            workload = None;
            line(&mut out, &format!("## Data {} times the memory\n", table.name.ratio));
        }
        if workload != Some(table.name.workload) {
            workload = Some(table.name.workload);
            let about = table.name.workload.about();
            line(&mut out, &format!("### {}\n\n{about}.\n", table.name.workload.name()));
        }
        compare(results, &table, &mut out);
    }
    loads(results, &mut out);
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn head(results: &Results, out: &mut String) {
    let (machine, settings) = (&results.machine, &results.settings);
    let memory = size(settings.memory_bytes as f64);
    let lines = [
        format!(
            "- Machine: {} x {}, {} of memory, Linux {}",
            machine.processors,
            machine.processor,
            size(machine.memory_bytes as f64),
            machine.kernel
        ),
        format!("- Device: {}, file system {}", machine.device, machine.file_system),
        format!("- Command: `{}`, version {}", settings.command, settings.version),
        format!(
            "- Memory of each engine: {memory}, enforced by {}; `MALLOC_ARENA_MAX=2` for all, \
             because little memory is no place for a heap for each thread",
            settings.limit
        ),
        format!(
            "- Runs of {} s after {} s of random reads that warm caches (none before cold reads); \
             {}; medians, with the lowest and the highest in brackets",
            short(settings.seconds),
            short(settings.warm_up_seconds),
            settings.repeats
        ),
        "- Every run is a process of its own, on a store whose pages were dropped from the page \
         cache. All runs of an engine at a ratio use one store, one after the other, workloads \
         that only increment first; engines take turns run by run unless the notes say otherwise"
            .to_owned(),
        "- *All paid*: updates over the time of the run and of the deferred work (sweep, \
         compaction, checkpoint) after it. Bytes and processor time include that work too"
            .to_owned(),
        "- Latencies of closed loops count from the call. In `latency50`, `latency80` and \
         `reads-while-updating` updates come at random times at a rate, a part of what \
         `increments` reached with all paid; whichever caller is free takes the next, and \
         latencies count from when they were due"
            .to_owned(),
        "- Counters were added up after the last repeat of each cell of increments (at ratios \
         above 8 and with `--quick` after the last such cell of a store only, for all before it): \
         a sum that is not the number of acknowledged increments is shown as a failure"
            .to_owned(),
        "- *Stolen*: the part of the processors' time, from the start of a run to the end of its \
         deferred work, that the host of the virtual machine gave to others. *Paused*: by how \
         much a thread that comes before all others was late on any processor; no engine can \
         answer sooner than the machine runs"
            .to_owned(),
        format!("- Text of `ngrams`: {}", settings.text),
    ];
    line(out, &lines.join("\n"));
    for note in &results.notes {
        line(out, &format!("- Note: {note}"));
    }
    match &results.reference {
        Some(reference) => physical(results, reference, out),
        None => line(out, "\nNo physical reference was measured."),
    }
}

fn physical(results: &Results, reference: &Reference, out: &mut String) {
    let rate = |bytes: f64| format!("{}/s", size(bytes));
    line(
        out,
        "\n## What the device does\n\nMeasured by fio in the same run, past the page cache.\n",
    );
    line(out, "| | |\n|---|---:|");
    let rows = [
        ("sequential reads of 1 MiB", rate(reference.read_bytes_per_second)),
        ("sequential writes of 1 MiB", rate(reference.write_bytes_per_second)),
        ("random pairs, a read and a write of 4 KiB, 32 deep", short(reference.pairs_per_second)),
        ("synchronous writes of 4 KiB, one at a time", short(reference.syncs_per_second)),
        ("their median, µs", short(reference.sync_p50_us)),
        ("their 99th percentile, µs", short(reference.sync_p99_us)),
    ];
    for (name, value) in rows {
        line(out, &format!("| {name} | {value} |"));
    }
    line(out, &format!("\n{}\n", bounds::explanation()));
    line(
        out,
        "| ratio | sweep, updates/s | pairs, updates/s | syncs, updates/s |\n|---:|---:|---:|---:|",
    );
    for ratio in &results.settings.ratios {
        let bounds = bounds::at(&results.settings, reference, *ratio);
        let (sweep, pairs, syncs) = (short(bounds.sweep), short(bounds.pairs), short(bounds.syncs));
        line(out, &format!("| {ratio} | {sweep} | {pairs} | {syncs} |"));
    }
}

fn engines_and_classes(results: &Results, out: &mut String) {
    line(
        out,
        "\n## Engines\n\nWhy they are configured so stands at the top of each engine's source.\n",
    );
    for name in &results.settings.engines {
        let known = engines::find(name).map_or("not in this build", |entry| entry.configuration);
        line(out, &format!("- **{name}**: {known}"));
    }
    line(out, "\nClasses of durability, which are not compared with each other:\n");
    for class in Class::ALL {
        line(out, &format!("- **{}**: {}", class.name(), class.about()));
    }
    line(out, "");
}

fn compare(results: &Results, table: &Table<'_>, out: &mut String) {
    let name = table.name;
    line(out, &format!("#### {}, {}\n", name.workload.name(), name.class.name()));
    let reference = results.reference.as_ref();
    let is_bounded = name.workload == Workload::Increments;
    let bounds = reference
        .filter(|_| is_bounded)
        .map(|reference| bounds::at(&results.settings, reference, name.ratio));
    write_table(&rates(bounds), table, "", out);
    write_table(&latencies(|outcome| outcome.update_latency.as_ref()), table, "update, µs", out);
    write_table(&latencies(|outcome| outcome.read_latency.as_ref()), table, "read, µs", out);
    write_table(&latencies(|outcome| outcome.scan_latency.as_ref()), table, "scan, µs", out);
    write_table(&costs(), table, "", out);
    for (engine, outcomes) in &table.rows {
        for failure in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            line(out, &format!("- {engine}: {failure}"));
        }
    }
    line(out, "");
}

/// A table of those columns in which any engine has a number; nothing if there is none.
fn write_table(columns: &[Column], table: &Table<'_>, corner: &str, out: &mut String) {
    let numbers = |column: &Column, outcomes: &[&Result<Outcome, String>]| -> Vec<f64> {
        measured(outcomes).into_iter().filter_map(|outcome| (column.number)(outcome)).collect()
    };
    let used: Vec<&Column> = columns
        .iter()
        .filter(|column| table.rows.iter().any(|(_, runs)| !numbers(column, runs).is_empty()))
        .collect();
    if used.is_empty() {
        return;
    }
    let titles: Vec<&str> = used.iter().map(|column| column.title).collect();
    line(out, &format!("| {corner} | {} |", titles.join(" | ")));
    line(out, &format!("|---|{}", "---:|".repeat(used.len())));
    for (engine, runs) in &table.rows {
        let mut row = format!("| {engine} |");
        for column in &used {
            let shown = spread(&numbers(column, runs), column.show);
            // Writing to a string does not fail.
            let _ = write!(row, " {shown} |");
        }
        line(out, &row);
    }
    line(out, "");
}

/// The median, and the ends if they show as other numbers.
fn spread(numbers: &[f64], show: fn(f64) -> String) -> String {
    if numbers.is_empty() {
        return String::new();
    }
    let Spread { median, lowest, highest } = Spread::of(numbers.to_vec());
    if show(lowest) == show(highest) {
        return show(median);
    }
    format!("{} ({} to {})", show(median), show(lowest), show(highest))
}

fn loads(results: &Results, out: &mut String) {
    line(out, "## Loads\n\nRecords of 64 bytes in key order, until all is durable and at rest.\n");
    line(out, "| engine | ratio | s | records/s | on disk |\n|---|---:|---:|---:|---:|");
    for load in &results.loads {
        let row = match &load.outcome {
            Ok(outcome) => format!(
                "{} | {} | {}",
                short(outcome.seconds),
                short(outcome.updates as f64 / outcome.seconds.max(1e-9)),
                size(outcome.disk_bytes as f64)
            ),
            Err(failure) => format!("{failure} | |"),
        };
        line(out, &format!("| {} | {} | {row} |", load.engine, load.ratio));
    }
}
