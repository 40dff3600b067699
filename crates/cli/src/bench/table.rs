//! The benchmark of a table: load, random durable additions, single updates, single reads.
//!
//! Keys are scrambled numbers, so that neighbours in time are strangers in key order. A record has
//! the given length: its key is padded, its value is the counter of 8 bytes. The additions are
//! handed over in groups and durable in groups, as `upsweep apply` does it.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use upsweep::engine::LoggedUpdate;
use upsweep::structures::modifiers::ADD_I64;
use upsweep::{CreateOptions, Durability, Store};

use super::{Latencies, Random, note, scramble};
use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::{output, text};

/// Updates that are handed over under one lock.
const GROUP: u64 = 512;
/// Bytes of the counter.
const COUNTER_BYTES: usize = 8;

/// What was measured.
#[derive(Serialize)]
struct Outcome {
    records: u64,
    record_bytes: u32,
    memory_bytes: u64,
    table_bytes: u64,
    load_records_per_second: f64,
    updates: u64,
    updates_per_second: f64,
    /// Of the second half of the updates, when the sweep has found its pace.
    steady_updates_per_second: f64,
    bound_updates_per_second: f64,
    bound_by: &'static str,
    steady_fraction_of_bound: f64,
    batching_degree: f64,
    written_bytes_per_update: f64,
    stall_us_max: u64,
    update_latency: Latencies,
    read_latency: Latencies,
    memory_bytes_peak: Option<u64>,
    device: String,
}

/// The keys of the table.
struct Keys {
    bytes: usize,
}

impl Keys {
    /// Appends key `number` to `out`.
    fn push(&self, number: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&scramble(number).to_be_bytes());
        out.resize(start + self.bytes, b'.');
    }
}

pub(super) fn run(args: &BenchArgs, folder: &Path) -> Result<(), Failure> {
    let options = CreateOptions { log_bytes: Some(args.log_size.0), ..CreateOptions::default() };
    let path = folder.join("store");
    let builder = Store::builder().memory_bytes(args.memory.in_memory());
    let store = builder.clone().create(&path, &options)?;
    let table = store.table("bench")?;
    let keys = Keys { bytes: args.record_bytes as usize - COUNTER_BYTES };

    note("loading");
    let started = Instant::now();
    add_all(&store, table.space(), args.records, |number, key| keys.push(number, key))?;
    store.sweep()?;
    let load_seconds = started.elapsed().as_secs_f64();
    let loaded = store.status();
    drop(table);
    store.close()?;
    // Opened anew, the store counts the updates alone.
    let store = builder.open(&path)?;
    let table = store.existing_table("bench")?;

    note("random updates");
    let (mut random, records) = (Random::new(args.seed), args.records);
    let started = Instant::now();
    let mut push_any = |_, key: &mut Vec<u8>| keys.push(random.below(records), key);
    add_all(&store, table.space(), args.updates / 2, &mut push_any)?;
    let half = started.elapsed().as_secs_f64();
    add_all(&store, table.space(), args.updates - args.updates / 2, &mut push_any)?;
    let seconds = started.elapsed().as_secs_f64();
    let status = store.status();

    note("single updates, then single reads");
    let duration = Duration::from_secs(args.seconds);
    let waiting = table.with_durability(Durability::Wait);
    let mut key = Vec::new();
    let update_latency = Latencies::measure(duration, || {
        key.clear();
        keys.push(random.below(records), &mut key);
        Ok(waiting.add(&key, 1)?.wait()?)
    })?;
    let read_latency = Latencies::measure(duration, || {
        key.clear();
        keys.push(random.below(records), &mut key);
        let value = table.get(&key)?;
        value.map(drop).ok_or_else(|| Failure::Damage(Some("a loaded key is gone".to_owned())))
    })?;

    let bound = status.bound.log.min(status.bound.sweep).min(status.bound.cpu);
    let steady = (args.updates - args.updates / 2) as f64 / (seconds - half).max(1e-9);
    let outcome = Outcome {
        records: args.records,
        record_bytes: args.record_bytes,
        memory_bytes: args.memory.0,
        table_bytes: loaded.data_bytes,
        load_records_per_second: args.records as f64 / load_seconds.max(1e-9),
        updates: args.updates,
        updates_per_second: args.updates as f64 / seconds.max(1e-9),
        steady_updates_per_second: steady,
        bound_updates_per_second: bound,
        bound_by: status.bound.binds,
        steady_fraction_of_bound: steady / bound,
        batching_degree: status.sweep.batching_degree,
        written_bytes_per_update: status.sweep.written_bytes_per_update,
        stall_us_max: status.sweep.stall_us_max,
        update_latency,
        read_latency,
        memory_bytes_peak: memory_bytes_peak(),
        device: status.reason.clone(),
    };
    if args.json { output::json(&outcome) } else { show(&outcome) }
}

/// Adds 1 to `number` records of a space, in groups, and waits until all of it is durable.
/// `push_key` appends the key of each, all of one length.
pub(super) fn add_all(
    store: &Store,
    space: u32,
    number: u64,
    mut push_key: impl FnMut(u64, &mut Vec<u8>),
) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    let mut ticket = None;
    let one = 1i64.to_le_bytes();
    let mut done = 0;
    while done < number {
        let group = GROUP.min(number - done);
        bytes.clear();
        (done..done + group).for_each(|index| push_key(index, &mut bytes));
        let updates: Vec<LoggedUpdate<'_>> = bytes
            .chunks(bytes.len() / group as usize)
            .map(|key| LoggedUpdate { space, modifier: ADD_I64, key, operand: &one })
            .collect();
        let ticket_of_group = store.blocks().modify_each(updates.chunks(1), Durability::Ticket);
        ticket = Some(ticket_of_group.map_err(upsweep::Error::from)?);
        done += group;
    }
    Ok(ticket.map_or(Ok(()), |ticket| ticket.wait())?)
}

/// The most memory that this process ever had resident, as the kernel counts it.
fn memory_bytes_peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn show(outcome: &Outcome) -> Result<(), Failure> {
    let Outcome { records, record_bytes, updates, .. } = outcome;
    let (table, memory) = (outcome.table_bytes, outcome.memory_bytes);
    let times = table as f64 / memory.max(1) as f64;
    let peak = outcome.memory_bytes_peak.map_or_else(
        || "unknown on this system".to_owned(),
        |peak| {
            let share = peak as f64 / memory.max(1) as f64;
            format!("{} resident, {share:.2} times the budget", text::size(peak))
        },
    );
    let rows = [
        ("device", outcome.device.clone()),
        (
            "table",
            format!(
                "{} records of {record_bytes} bytes, {} on the device, {times:.1} times the memory",
                text::count(*records),
                text::size(table)
            ),
        ),
        ("load", format!("{} records/s", text::rate(outcome.load_records_per_second))),
        (
            "random updates",
            format!(
                "{} durable additions at {}/s, the second half at {}/s",
                text::count(*updates),
                text::rate(outcome.updates_per_second),
                text::rate(outcome.steady_updates_per_second)
            ),
        ),
        (
            "bound",
            format!(
                "{}/s by {}; the second half reached {:.0} % of it",
                text::rate(outcome.bound_updates_per_second),
                outcome.bound_by,
                100.0 * outcome.steady_fraction_of_bound
            ),
        ),
        ("batching degree", format!("{:.1} updates per visit", outcome.batching_degree)),
        ("written", format!("{:.1} bytes to devices per update", outcome.written_bytes_per_update)),
        ("longest wait", format!("{:.1} ms for room", outcome.stall_us_max as f64 / 1e3)),
        ("single updates", outcome.update_latency.text()),
        ("single reads", outcome.read_latency.text()),
        ("memory", peak),
    ];
    let lines: Vec<String> = rows.iter().map(|(name, value)| format!("{name:17}{value}")).collect();
    output::line(&lines.join("\n"))
}
