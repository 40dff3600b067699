//! The benchmark of a table in steady state.
//!
//! A store is fast while its memory and its log fill up, and has settled once the sweep has gone
//! over all data some times. Steps: load a table; open the store anew, so that it counts the
//! updates alone; increment random counters until the run is long enough, and note each second what
//! the store has done; read records at random. A watch beside the run tells what the machine itself
//! did.

mod callers;
mod device;
mod machine;
mod records;
mod report;
mod series;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use upsweep::layers::runtime::Pulse;
use upsweep::{CreateOptions, Durability, Status, Store, StoreBuilder, Table};

use super::{Latencies, Random, note, process_cpu};
use crate::args::{BenchArgs, CallReturns};
use crate::context::Context;
use crate::failure::Failure;
use callers::{Measured, Run};
use device::{DeviceWatch, Longest};
use machine::{Machine, Ring, Watch};
use records::Records;
use series::{Calls, Second};

/// Cycles of the sweep after which the state is steady.
const CYCLES: u64 = 3;
/// Length of a run that waits for cycles, in seconds.
const SECONDS_MIN: u64 = 60;
const SECONDS_MAX: u64 = 600;
/// Longest time for single reads.
const READ_SECONDS: u64 = 5;
/// The table.
const TABLE_NAME: &str = "bench";

/// What the store was like at the end of a second; numbers of bytes and visits are since the run
/// began.
struct Sample {
    log_fill: f64,
    queue_fill: f64,
    /// Memory of the updates that are spilled.
    spill_fill: f64,
    cycles: u64,
    progress: Option<f64>,
    updates_per_visit: f64,
    written_bytes: u64,
    read_bytes: u64,
    cpu: Duration,
}

impl Sample {
    fn of(pulse: &Pulse, cpu: Duration) -> Self {
        let Pulse { log, sweep, metrics, .. } = pulse;
        let part = |used: u64, limit: u64| used as f64 / limit.max(1) as f64;
        Self {
            log_fill: part(log.used_bytes, log.capacity_bytes_max),
            queue_fill: part(pulse.queue_bytes, pulse.queue_limit_bytes),
            spill_fill: part(pulse.spill_bytes, pulse.spill_limit_bytes),
            cycles: metrics.sweep_cycles_total,
            progress: sweep.progress,
            updates_per_visit: sweep.batching_degree,
            written_bytes: metrics.written_bytes(),
            read_bytes: metrics.sweep_read_bytes_total,
            cpu,
        }
    }
}

/// What a run was like.
struct Findings {
    seconds: Vec<Second>,
    samples: Vec<Sample>,
    calls: Calls,
    due_updates: u64,
    machine: Machine,
    /// By seconds, as far as it was watched.
    device: Vec<Longest>,
    /// At the end.
    status: Status,
}

/// The table that was loaded.
struct Loaded {
    bytes: u64,
    seconds: f64,
}

pub(super) fn run(context: &Context, args: &BenchArgs, folder: &Path) -> Result<(), Failure> {
    let create = |path| File::create(path).map_err(|error| Failure::file(path, &error));
    let series = args.series.as_deref().map(create).transpose()?;
    let records = Records {
        number: args.records,
        key_bytes: args.key_bytes as usize,
        value_bytes: args.value_bytes as usize,
    };
    let memory_bytes = args.memory.in_memory();
    let builder = Store::builder().memory_bytes(memory_bytes).modifier(records.count());
    let path = folder.join("store");
    let loaded = load(args, records, &builder, &path)?;
    let store = builder.open(&path)?;
    let table = store.existing_table(TABLE_NAME)?;
    let ring = Arc::new(Ring::new());
    forget_memory_peak();

    note("random updates");
    let found = update(args, records, folder, &store, &table, &ring)?;
    let memory_bytes_peak = memory_bytes_peak().map(|peak| peak.saturating_sub(ring.bytes()));
    note("single reads");
    let reads = read(args, records, &table)?;
    drop(table);
    store.close()?;

    if let (Some(file), Some(path)) = (series, &args.series) {
        report::write_series(file, &found).map_err(|error| Failure::file(path, &error))?;
    }
    report::print(
        context,
        args,
        &report::Outcome::new(args, &loaded, found, reads, memory_bytes_peak),
    )
}

/// Makes the store and its table and closes it.
fn load(
    args: &BenchArgs,
    records: Records,
    builder: &StoreBuilder,
    path: &Path,
) -> Result<Loaded, Failure> {
    let mut options = CreateOptions::default();
    options.log_bytes = args.log_size.map(|size| size.0);
    let store = builder.clone().create(path, &options)?;
    let table = store.table(TABLE_NAME)?;
    // The number that a modifier has in the store is made now, and not in the run.
    records.modifier(&store)?;
    let started = Instant::now();
    if !args.empty {
        note("loading");
        records.load(&table)?;
    }
    store.sweep()?;
    let seconds = started.elapsed().as_secs_f64();
    let bytes = store.status().data_bytes;
    drop(table);
    store.close()?;
    Ok(Loaded { bytes, seconds })
}

/// The run of updates.
fn update(
    args: &BenchArgs,
    records: Records,
    folder: &Path,
    store: &Store,
    table: &Table,
    ring: &Arc<Ring>,
) -> Result<Findings, Failure> {
    let started = Instant::now();
    let watch = Watch::begin(started, ring);
    let device_watch = DeviceWatch::begin(started, folder);
    let cpu_before = process_cpu();
    let run = Run {
        store,
        space: table.space(),
        modifier: records.modifier(store)?,
        records,
        callers: args.callers,
        batch: args.batch as usize,
        durability: match args.durability {
            CallReturns::Durable => Durability::Wait,
            CallReturns::Ticket => Durability::Ticket,
            CallReturns::Relaxed => Durability::Relaxed,
        },
        rate: args.rate.map(|rate| rate as f64),
        seed: args.seed,
        started,
    };
    let mut samples: Vec<Sample> = Vec::new();
    let Measured { series, calls, due_updates } = run.execute(|second| {
        let pulse = store.blocks().pulse();
        samples.push(Sample::of(&pulse, process_cpu().saturating_sub(cpu_before)));
        goes_on(args.seconds, second + 1, pulse.metrics.sweep_cycles_total)
    })?;
    let count = samples.len();
    Ok(Findings {
        seconds: series.into_seconds(count),
        samples,
        calls,
        due_updates,
        machine: watch.end(count),
        device: device_watch.end(),
        status: store.status(),
    })
}

/// Whether a run of so many seconds and cycles is too short, where this length was asked for.
fn goes_on(asked: Option<u64>, seconds: u64, cycles: u64) -> bool {
    match asked {
        Some(asked) => seconds < asked,
        None => seconds < SECONDS_MIN || (cycles < CYCLES && seconds < SECONDS_MAX),
    }
}

/// Single reads at random, one after the other.
fn read(args: &BenchArgs, records: Records, table: &Table) -> Result<Latencies, Failure> {
    let duration = Duration::from_secs(args.seconds.unwrap_or(READ_SECONDS).min(READ_SECONDS));
    let mut random = Random::new(args.seed);
    let mut key = Vec::new();
    Latencies::measure(duration, || {
        key.clear();
        records.push_key(random.below(records.number), &mut key);
        let counter = table.get(&key)?.map(|value| Records::counter(&value));
        // Without a load, records are there that were updated.
        match counter {
            Some(None) => Err(Failure::Damage(Some("a value has no counter".to_owned()))),
            None if !args.empty => Err(Failure::Damage(Some("a loaded key is gone".to_owned()))),
            _ => Ok(()),
        }
    })
}

/// Lets the kernel find the most resident memory anew: loading is not what is measured.
fn forget_memory_peak() {
    // Where this is refused the number is the peak of the load too, so too high and never too low.
    std::fs::write("/proc/self/clear_refs", "5").unwrap_or_default();
}

/// The most memory that this process had resident, as the kernel counts it.
fn memory_bytes_peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small new store, in a folder that goes with it.
    pub(super) fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = CreateOptions::default().log_bytes(4 << 20);
        let store = Store::builder().create(folder.path().join("store"), &options);
        (folder, store.expect("a store"))
    }

    #[test]
    fn a_run_ends_when_asked_or_when_steady() {
        assert!(goes_on(Some(2), 1, 9) && !goes_on(Some(2), 2, 0));
        assert!(goes_on(None, 59, 9) && !goes_on(None, 60, 3));
        assert!(goes_on(None, 599, 2) && !goes_on(None, 600, 2));
    }
}
