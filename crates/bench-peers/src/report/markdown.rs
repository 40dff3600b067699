//! The report as Markdown.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::columns::{Column, costs, increments, latencies, others};
use super::{Table, about, bounds, glance, measured, tables};
use crate::outcome::{DataSet, Outcome, Reference, Results};
use crate::spread::Spread;
use crate::text::{short, size};
use crate::workload::{Class, Workload};

/// Length of a run in seconds below which it is called short.
const STEADY_SECONDS_MIN: f64 = 60.0;

/// What the relaxed class promises, which differs by engine.
const RELAXED: &str = "\nThe relaxed class is not one promise. A crash of the machine loses about \
    5 ms of updates with Upsweep, 250 ms with LMDB and redb, what came after the last checkpoint \
    with SQLite, and with RocksDB and fjall, which never sync then, what the system has not \
    written back from its page cache, 30 s of it by default. A crash of the process alone loses \
    the same with Upsweep and redb, and nothing with the others.\n\nProcessor time is that of the \
    whole process: callers included, and the threads that read the records of a batch ahead for \
    engines that read before they write.";

/// The whole report. `plots` are names of files beside it, with what they show.
pub(super) fn report(results: &Results, plots: &[(String, String)]) -> String {
    let mut out = String::from("# Upsweep and its peers\n\n");
    head(results, &mut out);
    engines_and_classes(results, &mut out);
    glance::write(results, &mut out);
    for (file, title) in plots {
        line(&mut out, &format!("![{title}]({file})\n"));
    }
    let (mut set, mut workload) = (None, None);
    for table in tables(results) {
        if set != Some(table.name.set) {
            set = Some(table.name.set);
            workload = None;
            let about = about(table.name.set).replacen('d', "D", 1);
            line(&mut out, &format!("## {about}\n"));
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

pub(super) fn line(out: &mut String, text: &str) {
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
        lengths(results),
        "- Every run is a process of its own, on a store whose pages were dropped from the page \
         cache. All runs of an engine on a data set use one store, one after the other, workloads \
         that only increment first; engines take turns run by run unless the notes say otherwise. \
         Of several runs the median is shown, with the lowest and the highest in brackets"
            .to_owned(),
        "- A key is a number of 8 bytes and, in longer ones, bytes that do not compress and that \
         no two keys share: no engine can shorten them"
            .to_owned(),
        "- *Turns*: how often what an engine holds back of updates has been replaced in the run: \
         for Upsweep cycles of the sweep; for LSM trees how often increments have filled all write \
         buffers, as they are configured, or four times the part that they have filled of the \
         levels above the last, a tenth of the data, whichever is less. An engine without turns \
         holds back nothing beyond a transaction"
            .to_owned(),
        "- *Seconds* are whole seconds of the run. Bytes and processor time are those of the run; \
         *all paid* adds the deferred work (sweep, compaction, checkpoint) after it, to them and \
         to the time"
            .to_owned(),
        "- Latencies of closed loops count from the call. In `latency50`, `latency80` and \
         `reads-while-updating` updates come at random times at a rate, a part of what \
         `increments` reached: of their median second if they were steady, else of their mean with \
         all paid. Whichever caller is free takes the next, and latencies count from when they \
         were due"
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

/// How long runs are, and what that means.
fn lengths(results: &Results) -> String {
    let seconds = short(results.settings.seconds);
    let warm_up = "after a quarter as long, 15 s at most, of random reads that warm caches (none \
                   before cold reads)";
    let short_runs = |least: f64| {
        if least < STEADY_SECONDS_MIN {
            "**Short runs**: they show that everything works, and little of steady state. "
        } else {
            ""
        }
    };
    match results.settings.increments_seconds {
        None => format!(
            "- {}Runs of {seconds} s {warm_up}; whether the state was steady was not noted",
            short_runs(results.settings.seconds)
        ),
        Some((least, most)) => format!(
            "- {}Increments run for {} s at least and until the state is steady, {} s at most; \
             other workloads {seconds} s; {warm_up}",
            short_runs(least),
            short(least),
            short(most)
        ),
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
        "| ratio | bytes of a key | sweep, updates/s | pairs, updates/s | syncs, updates/s |\n\
         |---:|---:|---:|---:|---:|",
    );
    let sets: BTreeSet<DataSet> = results.cells.iter().map(|run| run.name.set).collect();
    for set in sets {
        let bounds = bounds::of(&results.settings, reference, set);
        let (sweep, pairs, syncs) = (short(bounds.sweep), short(bounds.pairs), short(bounds.syncs));
        let DataSet { ratio, key_bytes } = set;
        line(out, &format!("| {ratio} | {key_bytes} | {sweep} | {pairs} | {syncs} |"));
    }
}

fn engines_and_classes(results: &Results, out: &mut String) {
    line(
        out,
        "\n## Engines\n\nWhy they are configured so stands at the top of each engine's source. \
         Where an engine is there twice, one has its defaults and one is tuned.\n",
    );
    for name in &results.settings.engines {
        let configuration = results.settings.configurations.get(name);
        let configuration = configuration.map_or("not noted", String::as_str);
        line(out, &format!("- **{name}**: {configuration}"));
    }
    line(out, "\nClasses of durability, which are not compared with each other:\n");
    for class in Class::ALL {
        line(out, &format!("- **{}**: {}", class.name(), class.about()));
    }
    line(out, RELAXED);
    line(out, "");
}

fn compare(results: &Results, table: &Table<'_>, out: &mut String) {
    let name = table.name;
    line(out, &format!("#### {}, {}\n", name.workload.name(), name.class.name()));
    let reference = results.reference.as_ref();
    let columns = if name.workload == Workload::Increments {
        let bounds = reference.map(|reference| bounds::of(&results.settings, reference, name.set));
        increments(bounds)
    } else {
        others()
    };
    write_table(&columns, table, "", out);
    write_table(&latencies(|outcome| outcome.update_latency.as_ref()), table, "update, µs", out);
    write_table(&latencies(|outcome| outcome.read_latency.as_ref()), table, "read, µs", out);
    write_table(&latencies(|outcome| outcome.scan_latency.as_ref()), table, "scan, µs", out);
    write_table(&costs(), table, "", out);
    for (engine, outcomes) in &table.rows {
        let unsteady = |run: &&&Outcome| run.is_steady == Some(false);
        for turns in measured(outcomes).iter().filter(unsteady).filter_map(|run| run.turns) {
            let (done, enough) = (short(turns.done), short(turns.enough));
            line(out, &format!("- {engine}: not steady: {done} turns, where {enough} are enough"));
        }
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
        let mut row = match runs.len() {
            1 => format!("| {engine} |"),
            count => format!("| {engine}, {count} runs |"),
        };
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
    line(out, "## Loads\n\nRecords in key order, until all is durable and at rest.\n");
    line(
        out,
        "| engine | ratio | bytes of a key | s | records/s | on disk |\n\
         |---|---:|---:|---:|---:|---:|",
    );
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
        let DataSet { ratio, key_bytes } = load.set;
        line(out, &format!("| {} | {ratio} | {key_bytes} | {row} |", load.engine));
    }
}
