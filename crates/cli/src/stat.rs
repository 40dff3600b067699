//! `upsweep stat` and `upsweep tables`.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::json;
use upsweep::layers::runtime::{BoundariesStatus, Choice, SpillStatus};
use upsweep::metrics::{Distribution, Readings};
use upsweep::{LogMode, Status};

use crate::args::{ShowArgs, StatArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::{structure, text};

pub(crate) fn tables(context: &Context, args: &ShowArgs) -> Result<(), Failure> {
    let tables = context.open_to_read(&args.open)?.structures();
    let mut out = context.out();
    if !args.json {
        let width = tables.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0).max(5);
        let heads = ("table", "kind", "records", "bytes", "waiting");
        let (name, kind, records, bytes, waiting) = heads;
        writeln!(out, "{name:width$}  {kind:9}  {records:>14}  {bytes:>12}  {waiting:>14}")?;
        for (name, kind, found) in &tables {
            let (records, waiting) = (text::count(found.records), text::count(found.waiting));
            let (kind, bytes) = (structure::name_of(kind), text::size(found.bytes));
            writeln!(out, "{name:width$}  {kind:9}  {records:>14}  {bytes:>12}  {waiting:>14}")?;
        }
        return Ok(out.flush()?);
    }
    for (name, kind, found) in &tables {
        let line = json!({
            "table": name,
            "kind": structure::name_of(kind),
            "records": found.records,
            "bytes": found.bytes,
            "blocks": found.blocks,
            "waiting": found.waiting,
        });
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

pub(crate) fn stat(
    context: &Context,
    StatArgs { show: args, metrics }: &StatArgs,
) -> Result<(), Failure> {
    let store = context.open_to_read(&args.open)?;
    if *metrics {
        let mut out = context.out();
        out.write_all(store.metrics_text().as_bytes())?;
        if let Some(last) = store.status().last_session {
            out.write_all(last.metrics.text_of_last_session().as_bytes())?;
        }
        return Ok(out.flush()?);
    }
    let status = store.status();
    if args.json {
        return context.json(&status);
    }
    let mut out = context.out();
    let path = args.open.store.display();
    writeln!(out, "store {path}")?;
    show_store(&mut out, &status)?;
    show_devices(&mut out, &status)?;
    show_bound(&mut out, &status)?;
    show_memory(&mut out, &status)?;
    show_activity(&mut out, &status)?;
    if !status.damage.is_empty() {
        writeln!(out, "\ndamage met since the store was opened")?;
        status.damage.iter().try_for_each(|damage| writeln!(out, "  {damage}"))?;
    }
    Ok(out.flush()?)
}

fn row(out: &mut impl Write, name: &str, value: &str) -> std::io::Result<()> {
    writeln!(out, "  {name:20}{value}")
}

/// A part of a whole, in per cent.
fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

fn show_store(out: &mut impl Write, status: &Status) -> std::io::Result<()> {
    row(out, "identity", &status.store)?;
    if status.is_copy {
        row(out, "", "a copy, or moved here: the store was last changed in another folder")?;
    }
    let (used, whole) = (status.data_bytes, status.data_capacity_bytes);
    let share = percent(used, whole);
    row(out, "data", &format!("{} of {}, {share}", text::size(used), text::size(whole)))?;
    if status.reserved_bytes > 0 {
        let reserved = status.reserved_bytes;
        let share = percent(reserved, whole);
        row(out, "", &format!("{}, {share}, in reserved extents", text::size(reserved)))?;
    }
    if status.remainder_bytes > 0 {
        let lost = status.remainder_bytes;
        let share = percent(lost, whole);
        row(out, "", &format!("{}, {share}, lost at boundaries of the devices", text::size(lost)))?;
    }
    let [least, now] = [status.block_bytes, status.block_bytes_now].map(u64::from).map(text::size);
    let why = if now == least {
        String::new()
    } else {
        format!(" (not {least}, so that the directory leaves memory for updates)")
    };
    row(out, "blocks", &format!("{}, of {now} at best{why}", text::count(status.blocks)))
}

fn show_devices(out: &mut impl Write, status: &Status) -> std::io::Result<()> {
    writeln!(out, "\ndevices, and why they are used as they are")?;
    for device in &status.devices {
        let cache = if device.direct { "direct" } else { "through the page cache" };
        let [size, allocated] = [device.size_bytes, device.allocated_bytes].map(text::size);
        let holes = if device.allocated_bytes < device.size_bytes {
            format!(" ({allocated} allocated)")
        } else {
            String::new()
        };
        let about = format!("{} of {size}{holes}, {}, {cache}", device.path, device.engine);
        row(out, device.role, &about)?;
        device.reasons.iter().try_for_each(|reason| row(out, "", reason))?;
        if let Some(known) = &device.boundaries {
            row(out, "", &boundaries(known))?;
        }
    }
    row(out, "profile", &status.profile_reason)?;
    row(out, "chosen", &status.reason)?;
    for Choice { name, bytes, reason, .. } in &status.choices {
        row(out, name, &format!("{}: {reason}", text::size(*bytes)))?;
    }
    row(out, "pages of the log", &status.log_page_reason)
}

/// What the profile of a device knows of its boundaries, and whether they are used.
fn boundaries(known: &BoundariesStatus) -> String {
    let BoundariesStatus { of, count, confidence, is_used, reason, .. } = known;
    let used = if *is_used { "kept to" } else { "not used" };
    let (count, percent) = (text::count(*count), 100.0 * confidence);
    format!("{count} {of} by the profile, {percent:.1} % certain; {used}: {reason}")
}

fn show_bound(out: &mut impl Write, status: &Status) -> std::io::Result<()> {
    let bound = &status.bound;
    writeln!(out, "\nwhat bounds the speed, in updates a second (from {})", bound.source)?;
    let session = &bound.session;
    let terms = [
        ("log", bound.log, format!("{:.1} bytes of log per update", session.log_bytes_per_update)),
        (
            "sweep",
            bound.sweep,
            format!(
                "{:.1} bytes of memory per waiting entry, {:.2} updates per entry",
                session.queue_bytes_per_entry, session.updates_per_entry
            ),
        ),
        (
            "cpu",
            bound.cpu,
            format!("{:.2} µs of processor per update", session.cpu_seconds_per_update * 1e6),
        ),
        (
            "core",
            bound.core,
            format!(
                "{:.2} µs per update in the core, one thread at a time",
                session.core_seconds_per_update * 1e6
            ),
        ),
    ];
    for (name, per_second, why) in terms {
        let binds = if name == bound.binds { "  <- binds" } else { "" };
        let shown = match name {
            // With next to no data, an estimate would be out of all proportion.
            "sweep" if bound.source == "estimates" && bound.binds != name => {
                "nothing measured".into()
            }
            _ if per_second.is_finite() => text::rate(per_second),
            _ => "no data yet".into(),
        };
        row(out, name, &format!("{shown:>14}  {why}{binds}"))?;
    }
    Ok(())
}

fn show_memory(out: &mut impl Write, status: &Status) -> std::io::Result<()> {
    let memory = &status.memory;
    writeln!(out, "\nmemory")?;
    row(out, "budget", &text::size(memory.budget))?;
    let share = percent(memory.queues, memory.queues_limit);
    let limit = text::size(memory.queues_limit);
    row(out, "waiting updates", &format!("{} of {limit}, {share}", text::size(memory.queues)))?;
    row(out, "spilled updates", &spilled(&status.spill))?;
    row(out, "directory", &text::size(memory.directory))?;
    row(out, "cache", &text::size(memory.cache))?;
    row(out, "buffers", &format!("{} at most", text::size(memory.buffers)))
}

fn spilled(spill: &SpillStatus) -> String {
    let (with, without) = (spill.entries_per_visit_with, spill.entries_per_visit_without);
    let visits =
        format!("a visit of a block applies {with:.0} updates with spilling, {without:.0} without");
    if spill.is_on || spill.spill_segments > 0 {
        return format!(
            "{} in {} spill segments, {} on the devices, {} of {} in memory; in steady state \
             {visits}",
            text::count(spill.updates),
            text::count(spill.spill_segments),
            text::size(spill.bytes),
            text::size(spill.memory),
            text::size(spill.memory_limit),
        );
    }
    format!("none, as memory and log hold enough; in steady state {visits}")
}

/// What was done: since the store was opened, or, if that is nothing, in the last session. One
/// process has a store at a time, so in the program it is the last session as a rule.
fn show_activity(out: &mut impl Write, status: &Status) -> std::io::Result<()> {
    let (metrics, log_mode, when) = match &status.last_session {
        Some(last) if !status.metrics.has_changes() => {
            (&last.metrics, last.log_mode, "in the last session")
        }
        _ => (&status.metrics, status.log.mode, "since the store was opened"),
    };
    writeln!(out, "\nlog, {when}")?;
    let (used, whole) = (status.log.used_bytes, status.log.capacity_bytes);
    let share = percent(used, whole);
    let mut used = format!("{} of {}, {share}, now", text::size(used), text::size(whole));
    let most = status.log.capacity_bytes_max;
    if whole < most {
        used += &format!("; may become {}", text::size(most));
    }
    row(out, "needed by recovery", &used)?;
    let log_now = &status.log;
    let waiting = log_now.last.since(log_now.durable);
    let durable =
        format!("through {}, {} on their way, now", log_now.durable, text::count(waiting));
    row(out, "durable", &durable)?;
    show_log(out, metrics, log_mode)?;
    writeln!(out, "\nsweep, {when}")?;
    show_sweep(out, status, metrics)?;
    show_times(out, metrics, when)
}

fn show_log(out: &mut impl Write, metrics: &Readings, log_mode: LogMode) -> std::io::Result<()> {
    let fill = metrics.batch_fill() * 100.0;
    let written = format!(
        "{} records in {} batches, {} written, {fill:.0} % of it in use",
        text::count(metrics.log_records_total),
        text::count(metrics.log_batches_total),
        text::size(metrics.log_written_bytes_total)
    );
    row(out, "written", &written)?;
    let mode = match log_mode {
        LogMode::Idle => "idle".to_owned(),
        train => format!(
            "{}: {} batches without records, {} written",
            train.name(),
            text::count(metrics.log_dummy_batches_total),
            text::size(metrics.log_dummy_written_bytes_total)
        ),
    };
    row(out, "mode", &mode)?;
    if matches!(log_mode, LogMode::Predict | LogMode::Sentinel) {
        row(out, "predictions", &predictions(metrics))?;
    }
    Ok(())
}

/// How sure the log is of where the heads of its drives are.
fn predictions(metrics: &Readings) -> String {
    let count = metrics.log_predictions_total;
    if count == 0 && metrics.log_known_heads == 0.0 {
        return "none: how the log devices turn is not known".to_owned();
    }
    let failed = metrics.log_predictions_failed_total as f64 * 100.0 / count.max(1) as f64;
    format!(
        "{} batches where a head was expected, {failed:.1} % of them a turn late",
        text::count(count)
    )
}

fn show_sweep(out: &mut impl Write, status: &Status, metrics: &Readings) -> std::io::Result<()> {
    let progress = match status.sweep.progress {
        Some(progress) => format!("{:.0} % of a cycle, now", progress * 100.0),
        None => "between cycles, now".to_owned(),
    };
    row(out, "position", &progress)?;
    row(out, "committed", &format!("through {}, now", status.sweep.frontier))?;
    let degree = metrics.batching_degree();
    row(out, "batching degree", &format!("{degree:.2} updates per visit"))?;
    let read = text::size(metrics.sweep_read_bytes_total);
    let moved = [
        ("cycles", metrics.sweep_cycles_total, None),
        ("runs", metrics.sweep_runs_total, Some(metrics.sweep_written_bytes_total)),
        ("checkpoints", metrics.checkpoints_total, Some(metrics.checkpoint_written_bytes_total)),
        ("updates spilled", metrics.spilled_entries_total, Some(metrics.spill_written_bytes_total)),
    ];
    for (name, count, written) in moved {
        let read = if name == "runs" { format!(", {read} read") } else { String::new() };
        let written = written.map(|bytes| format!(", {} written", text::size(bytes)));
        row(out, name, &(text::count(count) + &read + &written.unwrap_or_default()))?;
    }
    row(out, "updates", &text::count(metrics.updates_total))?;
    let waits = metrics.admission_wait_seconds.values();
    let (count, longest) = waits.fold((0, 0.0_f64), |(count, longest), wait| {
        (count + wait.count, longest.max(wait.longest))
    });
    let waits = match count {
        0 => "none".to_owned(),
        _ => format!("{}, the longest {}", text::counted(count, "call"), text::time(longest)),
    };
    row(out, "waits for room", &waits)?;
    let per_update = match metrics.updates_total {
        0 => "no updates".to_owned(),
        _ => format!("{:.1} bytes to all devices", metrics.written_bytes_per_update()),
    };
    row(out, "written per update", &per_update)?;
    row(out, "sent to quarantine", &text::count(metrics.quarantined_updates_total))?;
    row(out, "in quarantine", &format!("{}, now", text::count(status.quarantined)))
}

/// How long things took: what callers see first, then what may be the cause.
fn show_times(out: &mut impl Write, metrics: &Readings, when: &str) -> std::io::Result<()> {
    let of_label = |name: &str, family: &BTreeMap<String, Distribution>| {
        let rows = family.iter().map(|(value, times)| (format!("{name}{value}"), *times));
        rows.collect::<Vec<_>>()
    };
    let mut rows = vec![
        ("until durable".to_owned(), metrics.acknowledge_seconds),
        ("query of a device".to_owned(), metrics.query_seconds),
    ];
    rows.extend(of_label("wait for room: ", &metrics.admission_wait_seconds));
    rows.extend([
        ("write of the log".to_owned(), metrics.log_write_seconds),
        ("flush of the data".to_owned(), metrics.flush_seconds),
        ("cycle of the sweep".to_owned(), metrics.sweep_cycle_seconds),
        ("checkpoint".to_owned(), metrics.checkpoint_seconds),
        ("spill".to_owned(), metrics.spill_seconds),
    ]);
    rows.extend(of_label("growth: ", &metrics.growth_seconds));
    rows.extend(of_label("core locked: ", &metrics.core_lock_seconds));
    rows.retain(|(_, times)| times.count > 0);
    writeln!(out, "\ntimes, {when}")?;
    if rows.is_empty() {
        return writeln!(out, "  nothing measured yet");
    }
    let heads = ("count", "p50", "p99", "p99.9", "longest");
    let (count, p50, p99, p999, longest) = heads;
    writeln!(out, "  {:26}{count:>14}{p50:>10}{p99:>10}{p999:>10}{longest:>10}", "")?;
    for (name, times) in rows {
        write!(out, "  {name:26}{:>14}", text::count(times.count))?;
        for seconds in [times.p50, times.p99, times.p999, times.longest] {
            write!(out, "{:>10}", text::time(seconds))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
