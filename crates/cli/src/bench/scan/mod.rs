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

mod device;

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use upsweep::OpenOptions;

use super::table::{Bench, KEY_BYTES};
use super::{Latencies, describe_devices, note, process_cpu};
use crate::args::ScanBenchArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::text;
use crate::text::Size;

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

pub(super) fn run(context: &Context, args: &ScanBenchArgs, folder: &Path) -> Result<(), Failure> {
    let path = folder.join("store");
    let status = args.table.load(&path)?;
    let data = path.join(&status.devices[0].path);
    note("reading the device in sequence");
    let device_mb_per_second = device::sequential(&data, args.duration())? / 1e6;
    let bench = Bench::open(&args.table, &path, args.options())?;
    let mut outcome = measure(args, &bench)?;
    bench.store.close()?;
    outcome.devices = describe_devices(&status);
    outcome.device_mb_per_second = device_mb_per_second;
    if args.json { context.json(&outcome) } else { outcome.show(context) }
}

/// A phase: whether it scans, and how many threads ask and update.
struct Plan {
    name: &'static str,
    scans: bool,
    queries: u64,
    updates: u64,
}

fn measure(args: &ScanBenchArgs, bench: &Bench) -> Result<Outcome, Failure> {
    let (queries, updates) = (args.queries, args.updates);
    let plan = |name, scans, queries, updates| Plan { name, scans, queries, updates };
    let plans = [
        plan("scan", true, 0, 0),
        plan("queries", false, queries, 0),
        plan("scan, queries", true, queries, 0),
        plan("updates", false, 0, updates),
        plan("scan, updates", true, 0, updates),
    ];
    let phases = plans.iter().map(|plan| phase(args, bench, plan));
    Ok(Outcome {
        seed: args.seed,
        records: args.table.records,
        value_bytes: args.table.value_bytes,
        blocks: bench.blocks,
        image_bytes: bench.image_bytes,
        memory_bytes: args.table.memory.0,
        seconds: args.seconds,
        devices: Vec::new(),
        device_mb_per_second: 0.0,
        phases: phases.collect::<Result<_, _>>()?,
    })
}

fn phase(args: &ScanBenchArgs, bench: &Bench, plan: &Plan) -> Result<Phase, Failure> {
    note(plan.name);
    let (before, cpu) = (bench.store.metrics(), process_cpu());
    let until = Instant::now() + args.duration();
    let ended = bench.run(until, (plan.queries, plan.updates), args.seed, || {
        if plan.scans { bench.scan(until).map(Some) } else { Ok(None) }
    })?;
    let seconds = ended.seconds;
    let cpu_seconds = process_cpu().saturating_sub(cpu).as_secs_f64();
    let after = bench.store.metrics();
    let per_second = |count: u64| count as f64 / seconds;
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
        mb_per_second: bench.megabytes(per_second(records)),
        read_ahead_mb_per_second: per_second(ahead) / 1e6,
        unused_ratio: unused as f64 / ahead.max(1) as f64,
    });
    let updates_per_second = (plan.updates > 0).then(|| per_second(ended.updates));
    let name = plan.name;
    Ok(Phase { name, seconds, cpu_seconds, scan, queries, updates_per_second })
}

impl ScanBenchArgs {
    fn options(&self) -> OpenOptions {
        let mut options = self.table.options();
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
    fn show(&self, context: &Context) -> Result<(), Failure> {
        let mut lines = self.devices.clone();
        lines.push(format!(
            "{} records of {KEY_BYTES} + {} bytes in {} blocks, {}; memory of {}",
            text::count(self.records),
            self.value_bytes,
            text::count(self.blocks),
            text::size(self.image_bytes),
            text::size(self.memory_bytes),
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
        context.line(&lines.join("\n"))
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
