//! `upsweep bench scan`: how fast a whole table is scanned, and what a scan does to queries and
//! updates beside it.
//!
//! Steps: load a table several times larger than the memory; read the device in sequence, past the
//! page cache, as the limit of any scan; open the store anew; then one phase after another, of the
//! same length: the scan alone, queries alone, both, updates alone, and updates beside the scan.
//! The scan begins again at the first record when it is at the end. It counts the records that it
//! returns, and the bytes of the images that they lie in.
//!
//! Most queries are of a part of the table that half of the cache holds. So how many of them reach
//! the device shows whether the scan drives that part out.

mod beside;
mod device;

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use upsweep::{CreateOptions, LoadOptions, OpenOptions, Store, Table, ValueKind, ValueRef};

use super::{Latencies, note, process_cpu};
use crate::args::ScanBenchArgs;
use crate::failure::Failure;
use crate::text::Size;
use crate::{output, text};
use beside::Beside;

/// Bytes of a key.
const KEY_BYTES: u64 = 8;
/// Records between two looks of the scan at the time.
const RECORDS_PER_LOOK: u64 = 1024;

/// What was measured.
#[derive(Serialize)]
struct Outcome {
    seed: u64,
    records: u64,
    value_bytes: u32,
    blocks: u64,
    /// Bytes of the images of all blocks.
    image_bytes: u64,
    memory_bytes: u64,
    cache_bytes: u64,
    seconds: u64,
    devices: Vec<String>,
    /// Reads of 1 MiB in sequence, 4 at a time.
    device_mb_per_second: f64,
    phases: Vec<Phase>,
}

/// What happened in one phase.
#[derive(Serialize)]
struct Phase {
    name: &'static str,
    seconds: f64,
    /// Processor time of the whole process.
    cpu_seconds: f64,
    scan: Option<Scanned>,
    queries: Option<Queries>,
    updates_per_second: Option<f64>,
}

/// Of the scan.
#[derive(Serialize)]
struct Scanned {
    records_per_second: f64,
    /// Bytes of images, in 10^6.
    mb_per_second: f64,
    /// Bytes that were read ahead, in 10^6.
    read_ahead_mb_per_second: f64,
    /// Part of them that the scan did not use.
    unused_ratio: f64,
}

/// Of the queries.
#[derive(Serialize)]
struct Queries {
    per_second: f64,
    latency: Latencies,
    /// Part of all queries that the cache, or memory, answered alone. A scan that reads block by
    /// block counts as queries that were not, so then this is too low.
    hit_ratio: f64,
}

pub(super) fn run(args: &ScanBenchArgs, folder: &Path) -> Result<(), Failure> {
    let path = folder.join("store");
    let (devices, data) = load(args, &path)?;
    note("reading the device in sequence");
    let device_mb_per_second = device::sequential(&data, args.duration())? / 1e6;
    let store = Store::builder().options(args.options()).open(&path)?;
    let mut outcome = measure(args, &store)?;
    store.close()?;
    (outcome.devices, outcome.device_mb_per_second) = (devices, device_mb_per_second);
    if args.json { output::json(&outcome) } else { outcome.show() }
}

/// The key of a record, in the order of numbers.
fn key(number: u64) -> [u8; KEY_BYTES as usize] {
    number.to_be_bytes()
}

/// Makes the store with its table; returns what its devices are, and the file of the first one.
fn load(args: &ScanBenchArgs, path: &Path) -> Result<(Vec<String>, std::path::PathBuf), Failure> {
    note(&format!("loading {} records", text::count(args.records)));
    let options = CreateOptions::default().log_bytes(args.log_size.0);
    let store = Store::builder().options(args.options()).create(path, &options)?;
    let mut value = vec![b'.'; args.value_bytes as usize];
    value[..8].fill(0);
    let record = |number| Ok((key(number), ValueRef { kind: ValueKind::Bytes, bytes: &value }));
    store.table("table")?.load((0..args.records).map(record), LoadOptions::default())?;
    let status = store.status();
    let found = (super::describe_devices(&status), path.join(&status.devices[0].path));
    store.close()?;
    Ok(found)
}

/// A phase: whether it scans, and how many threads ask and update.
struct Plan {
    name: &'static str,
    scans: bool,
    queries: u64,
    updates: u64,
}

fn measure(args: &ScanBenchArgs, store: &Store) -> Result<Outcome, Failure> {
    let table = store.existing_table("table")?;
    let size = store.tables().into_iter().map(|(_, size)| size).next().unwrap_or_default();
    let cache_bytes = (args.memory.0) / upsweep::layers::runtime::layout::CACHE_PART as u64;
    let image_bytes_per_record = size.bytes as f64 / args.records as f64;
    let hot = (cache_bytes as f64 / 2.0 / image_bytes_per_record) as u64;
    let bench = Bench { args, store, table, hot: hot.clamp(1, args.records) };
    let (queries, updates) = (args.queries, args.updates);
    let plan = |name, scans, queries, updates| Plan { name, scans, queries, updates };
    let plans = [
        plan("scan", true, 0, 0),
        plan("queries", false, queries, 0),
        plan("scan, queries", true, queries, 0),
        plan("updates", false, 0, updates),
        plan("scan, updates", true, 0, updates),
    ];
    let phases = plans.iter().map(|plan| bench.phase(plan, image_bytes_per_record));
    Ok(Outcome {
        seed: args.seed,
        records: args.records,
        value_bytes: args.value_bytes,
        blocks: size.blocks,
        image_bytes: size.bytes,
        memory_bytes: args.memory.0,
        cache_bytes,
        seconds: args.seconds,
        devices: Vec::new(),
        device_mb_per_second: 0.0,
        phases: phases.collect::<Result<_, _>>()?,
    })
}

/// A store that is measured.
struct Bench<'a> {
    args: &'a ScanBenchArgs,
    store: &'a Store,
    table: Table,
    /// Records, from the first on, that most queries are of.
    hot: u64,
}

impl Bench<'_> {
    fn phase(&self, plan: &Plan, image_bytes_per_record: f64) -> Result<Phase, Failure> {
        note(plan.name);
        let (store, table) = (self.store, &self.table);
        let beside = Beside { store, table, records: self.args.records, hot: self.hot };
        let (began, cpu) = (Instant::now(), process_cpu());
        let before = self.store.metrics();
        let until = began + self.args.duration();
        let seed = self.args.seed;
        let ended = beside.run(until, (plan.queries, plan.updates), seed, || {
            if plan.scans { self.scan(until).map(Some) } else { Ok(None) }
        })?;
        let seconds = began.elapsed().as_secs_f64();
        let cpu_seconds = process_cpu().saturating_sub(cpu).as_secs_f64();
        let after = self.store.metrics();
        let per_second = |count: u64| count as f64 / seconds.max(1e-9);
        let reads = after.query_reads_total - before.query_reads_total;
        let ahead = after.scan_read_bytes_total - before.scan_read_bytes_total;
        let unused = after.scan_unused_bytes_total - before.scan_unused_bytes_total;
        let asked = ended.queries.len();
        let queries = (plan.queries > 0).then(|| Queries {
            per_second: per_second(asked),
            latency: Latencies::of(&ended.queries),
            hit_ratio: 1.0 - reads as f64 / asked.max(1) as f64,
        });
        let scan = ended.main.map(|records| Scanned {
            records_per_second: per_second(records),
            mb_per_second: per_second(records) * image_bytes_per_record / 1e6,
            read_ahead_mb_per_second: per_second(ahead) / 1e6,
            unused_ratio: unused as f64 / ahead.max(1) as f64,
        });
        let updates_per_second = (plan.updates > 0).then(|| per_second(ended.updates));
        let name = plan.name;
        Ok(Phase { name, seconds, cpu_seconds, scan, queries, updates_per_second })
    }

    /// Scans until that time, again and again; returns the number of records.
    fn scan(&self, until: Instant) -> Result<u64, Failure> {
        let mut records = 0;
        loop {
            for record in self.table.iter() {
                std::hint::black_box(record?);
                records += 1;
                if records % RECORDS_PER_LOOK == 0 && Instant::now() >= until {
                    return Ok(records);
                }
            }
            if Instant::now() >= until {
                return Ok(records);
            }
        }
    }
}

impl ScanBenchArgs {
    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::default().memory_bytes(self.memory.in_memory());
        // What is too long for its type is refused as what is too long for a scan.
        let bytes = |size: Size| u32::try_from(size.0).unwrap_or(u32::MAX);
        options.scan_request_bytes = self.request_size.map(bytes);
        options.scan_requests_in_flight = self.requests;
        options
    }

    /// Of a phase.
    fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

impl Outcome {
    fn show(&self) -> Result<(), Failure> {
        let mut lines = self.devices.clone();
        lines.push(format!(
            "{} records of {KEY_BYTES} + {} bytes in {} blocks, {}; memory of {}, a cache of {}",
            text::count(self.records),
            self.value_bytes,
            text::count(self.blocks),
            text::size(self.image_bytes),
            text::size(self.memory_bytes),
            text::size(self.cache_bytes),
        ));
        lines.push(format!(
            "the device in sequence: {:.0} MB/s; MB are 10^6 bytes of images\n",
            self.device_mb_per_second
        ));
        lines.push(format!(
            "{:>15}  {:>10}  {:>6}  {:>6}  {:>10}  {:>9}  {:>9}  {:>6}  {:>10}",
            "", "records/s", "MB/s", "CPU", "queries/s", "p50", "p99", "hits", "updates/s"
        ));
        lines.extend(self.phases.iter().map(Phase::line));
        output::line(&lines.join("\n"))
    }
}

impl Phase {
    fn line(&self) -> String {
        let (scan, queries) = (self.scan.as_ref(), self.queries.as_ref());
        let cell = |found: Option<String>| found.unwrap_or_else(|| "-".to_owned());
        let time = |us: f64| text::time(us / 1e6);
        format!(
            "{:>15}  {:>10}  {:>6}  {:>6.2}  {:>10}  {:>9}  {:>9}  {:>6}  {:>10}",
            self.name,
            cell(scan.map(|scan| text::rate(scan.records_per_second))),
            cell(scan.map(|scan| format!("{:.0}", scan.mb_per_second))),
            self.cpu_seconds / self.seconds.max(1e-9),
            cell(queries.map(|queries| text::rate(queries.per_second))),
            cell(queries.map(|queries| time(queries.latency.p50_us))),
            cell(queries.map(|queries| time(queries.latency.p99_us))),
            cell(queries.map(|queries| format!("{:.3}", queries.hit_ratio))),
            cell(self.updates_per_second.map(text::rate)),
        )
    }
}
