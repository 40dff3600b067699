//! `upsweep stat` and `upsweep tables`.

use std::io::Write;

use serde_json::json;
use upsweep::Status;
use upsweep::layers::runtime::{Latencies, LogStatus, SpillStatus, SweepStatus};

use crate::args::ShowArgs;
use crate::failure::Failure;
use crate::{output, structure, text};

pub(crate) fn tables(args: &ShowArgs) -> Result<(), Failure> {
    let tables = output::open_to_read(&args.open)?.structures();
    let mut out = output::out();
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

pub(crate) fn stat(args: &ShowArgs) -> Result<(), Failure> {
    let store = output::open_to_read(&args.open)?;
    let status = store.status();
    if args.json {
        return output::json(&status);
    }
    let mut out = output::out();
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
    }
    row(out, "chosen", &status.reason)?;
    row(out, "pages of the log", &status.log_page_reason)
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
    let is_idle = status.sweep.updates == 0 && status.sweep.runs == 0;
    let (log, sweep, latencies, when) = match &status.last_session {
        Some(last) if is_idle => (&last.log, &last.sweep, &last.latencies, "in the last session"),
        _ => (&status.log, &status.sweep, &status.latencies, "since the store was opened"),
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
    let waiting = log_now.last.saturating_sub(log_now.durable);
    let durable =
        format!("through {}, {} on their way, now", log_now.durable, text::count(waiting));
    row(out, "durable", &durable)?;
    show_log(out, log)?;
    writeln!(out, "\nsweep, {when}")?;
    show_sweep(out, sweep)?;
    row(out, "in quarantine", &format!("{}, now", text::count(status.quarantined)))?;
    writeln!(out, "\nlatencies, in µs, {when}")?;
    show_latencies(out, latencies)
}

fn show_log(out: &mut impl Write, log: &LogStatus) -> std::io::Result<()> {
    let fill = log.batch_fill * 100.0;
    let written = format!(
        "{} records in {} batches, {} written, {fill:.0} % of it in use",
        text::count(log.records),
        text::count(log.batches),
        text::size(log.batch_bytes)
    );
    row(out, "written", &written)?;
    row(out, "waits for space", &text::count(log.waits))
}

fn show_sweep(out: &mut impl Write, sweep: &SweepStatus) -> std::io::Result<()> {
    let progress = match sweep.progress {
        Some(progress) => format!("{:.0} % of a cycle", progress * 100.0),
        None => "between cycles".to_owned(),
    };
    row(out, "position", &progress)?;
    let last = match sweep.cycles {
        0 => "none complete".to_owned(),
        cycles => format!("{cycles}, the last in {:.2} s", sweep.cycle_seconds_last),
    };
    row(out, "cycles", &last)?;
    row(out, "committed", &format!("through {}", sweep.frontier))?;
    row(out, "batching degree", &format!("{:.2} updates per visit", sweep.batching_degree))?;
    let moved = (text::size(sweep.read_bytes), text::size(sweep.written_bytes));
    let runs = text::count(sweep.runs);
    row(out, "runs", &format!("{runs}, {} read, {} written", moved.0, moved.1))?;
    let checkpoints = (text::count(sweep.checkpoints), text::size(sweep.checkpoint_bytes));
    row(out, "checkpoints", &format!("{}, {} written", checkpoints.0, checkpoints.1))?;
    let spilled = (text::count(sweep.spilled), text::size(sweep.spilled_bytes));
    row(out, "spilled", &format!("{} updates, {} written", spilled.0, spilled.1))?;
    row(out, "updates", &text::count(sweep.updates))?;
    let per_update = match sweep.updates {
        0 => "no updates".to_owned(),
        _ => format!("{:.1} bytes to all devices", sweep.written_bytes_per_update),
    };
    row(out, "written per update", &per_update)?;
    row(out, "longest wait", &format!("{:.3} ms for room", sweep.stall_us_max as f64 / 1e3))?;
    row(out, "sent to quarantine", &text::count(sweep.quarantined))
}

fn show_latencies(out: &mut impl Write, latencies: &Latencies) -> std::io::Result<()> {
    let rows = [("until durable", &latencies.acknowledge), ("of queries", &latencies.query)];
    for (name, found) in rows {
        let shown = match found.count {
            0 => "nothing measured yet".to_owned(),
            count => format!(
                "p50 {}, p99 {}, p99.9 {}, max {} ({} samples)",
                found.p50,
                found.p99,
                found.p999,
                found.max,
                text::count(count)
            ),
        };
        row(out, name, &shown)?;
    }
    Ok(())
}
