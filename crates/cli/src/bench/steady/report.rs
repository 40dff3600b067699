//! What a run says in the end: a report for people, JSON, and a line of CSV for each second.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use upsweep::Status;

use super::device::Longest;
use super::machine::Machine;
use super::series::{FIRST_SECONDS, Rates};
use super::{CYCLES, Findings, Loaded};
use crate::args::{BenchArgs, CallReturns};
use crate::bench::Latencies;
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// What was measured.
#[derive(Serialize)]
pub(super) struct Outcome {
    device: String,
    records: u64,
    key_bytes: u32,
    value_bytes: u32,
    table_bytes: u64,
    /// None if nothing was loaded.
    load_seconds: Option<f64>,
    callers: u64,
    batch: u32,
    durability: String,
    seconds: usize,
    updates: u64,
    first_updates_per_second: f64,
    median_updates_per_second: f64,
    mean_updates_per_second: f64,
    worst_second_updates: u64,
    worst_second: usize,
    seconds_below_half_of_median: usize,
    /// Updates that were due, in an open loop.
    rate_asked: Option<u64>,
    served_fraction: Option<f64>,
    calls: Latencies,
    longest_call_ms: f64,
    longest_call_second: f64,
    cycles: u64,
    is_steady: bool,
    updates_per_visit: f64,
    written_bytes_per_update: f64,
    cpu_us_per_update: f64,
    bound_updates_per_second: f64,
    bound_by: &'static str,
    median_fraction_of_bound: f64,
    reads: Latencies,
    memory_bytes: u64,
    memory_bytes_peak: Option<u64>,
    machine: Machine,
    /// None if the device was not watched.
    small_requests: Option<SmallRequests>,
}

/// The longest small read and small stable write beside the run, and the seconds in which they
/// ended.
#[derive(Serialize)]
struct SmallRequests {
    longest_read_ms: f64,
    longest_read_second: usize,
    longest_write_ms: f64,
    longest_write_second: usize,
}

impl SmallRequests {
    fn of(seen: &[Longest]) -> Option<Self> {
        let longest = |time: fn(&Longest) -> Duration| {
            let (second, longest) = seen.iter().enumerate().max_by_key(|(_, of)| time(of))?;
            Some((time(longest).as_secs_f64() * 1e3, second))
        };
        let (longest_read_ms, longest_read_second) = longest(|of| of.read)?;
        let (longest_write_ms, longest_write_second) = longest(|of| of.write)?;
        Some(Self { longest_read_ms, longest_read_second, longest_write_ms, longest_write_second })
    }

    fn text(&self) -> String {
        format!(
            "a read of 4 KiB beside the run took {:.1} ms at most, at {} s; a stable write {:.1} \
             ms, at {} s",
            self.longest_read_ms,
            self.longest_read_second,
            self.longest_write_ms,
            self.longest_write_second
        )
    }
}

/// What bounds the run, and by what: the store, or the commits of callers who wait. Each of them
/// has a batch on its way, for as long as a write of the log takes.
fn bound(args: &BenchArgs, status: &Status) -> (f64, &'static str) {
    let of_store = &status.bound;
    let waits = matches!(args.durability, CallReturns::Durable);
    let seconds = of_store.session.log_write_seconds;
    let commits = args.callers as f64 * f64::from(args.batch) / seconds.max(1e-9);
    if waits && commits < of_store.steady {
        (commits, "commits")
    } else {
        (of_store.steady, of_store.binds)
    }
}

impl Outcome {
    pub(super) fn new(
        args: &BenchArgs,
        loaded: &Loaded,
        found: Findings,
        reads: Latencies,
        memory_bytes_peak: Option<u64>,
    ) -> Self {
        let Findings { seconds, samples, calls, due_updates, machine, device, status } = found;
        let updates: Vec<u64> = seconds.iter().map(|second| second.updates).collect();
        let (rates, updates) = (Rates::of(&updates), updates.iter().sum());
        let (bound, bound_by) = bound(args, &status);
        let cycles = samples.last().map_or(0, |sample| sample.cycles);
        let cpu_us = samples.last().map_or(0.0, |sample| sample.cpu.as_secs_f64() * 1e6);
        let served = updates as f64 / due_updates.max(1) as f64;
        let took = Latencies::of(&calls.took);
        let durability = args.durability.to_possible_value();
        Self {
            device: status.reason,
            records: args.records,
            key_bytes: args.key_bytes,
            value_bytes: args.value_bytes,
            table_bytes: loaded.bytes,
            load_seconds: (!args.empty).then_some(loaded.seconds),
            callers: args.callers,
            batch: args.batch,
            durability: durability.map_or_else(String::new, |value| value.get_name().to_owned()),
            seconds: seconds.len(),
            updates,
            first_updates_per_second: rates.first,
            median_updates_per_second: rates.median,
            mean_updates_per_second: rates.mean,
            worst_second_updates: rates.worst.0,
            worst_second: rates.worst.1,
            seconds_below_half_of_median: rates.slow_seconds,
            rate_asked: args.rate,
            served_fraction: args.rate.map(|_| served.min(1.0)),
            calls: Latencies { max_us: calls.longest.as_nanos() as f64 / 1e3, ..took },
            longest_call_ms: calls.longest.as_secs_f64() * 1e3,
            longest_call_second: calls.longest_at.as_secs_f64(),
            cycles,
            is_steady: cycles >= CYCLES,
            updates_per_visit: status.sweep.batching_degree,
            written_bytes_per_update: status.sweep.written_bytes_per_update,
            cpu_us_per_update: cpu_us / updates.max(1) as f64,
            bound_updates_per_second: bound,
            bound_by,
            median_fraction_of_bound: rates.median / bound,
            reads,
            memory_bytes: args.memory.0,
            memory_bytes_peak,
            machine,
            small_requests: SmallRequests::of(&device),
        }
    }

    /// The lines about the store and the load on it.
    fn setting(&self) -> Vec<(&'static str, String)> {
        let Self { key_bytes, value_bytes, seconds, callers, durability, .. } = self;
        let (records, times) = (text::count(self.records), self.times_memory(self.table_bytes));
        let table = match self.load_seconds {
            Some(_) => format!(
                "{records} records of {key_bytes} + {value_bytes} bytes, {} on the device, \
                 {times:.1} times the memory",
                text::size(self.table_bytes)
            ),
            None => {
                format!("new; {records} possible records of {key_bytes} + {value_bytes} bytes")
            }
        };
        let pace = match self.rate_asked {
            Some(rate) => format!("{}/s asked for", text::count(rate)),
            None => "as fast as they are taken".to_owned(),
        };
        let batch = match self.batch {
            1 => "one by one".to_owned(),
            batch => format!("in batches of {batch}"),
        };
        let mut rows = vec![("device", self.device.clone()), ("table", table)];
        if let Some(seconds) = self.load_seconds {
            let rate = text::rate(self.records as f64 / seconds.max(1e-9));
            rows.push(("load", format!("{seconds:.1} s, {rate} records/s")));
        }
        let callers =
            if *callers == 1 { "1 caller".to_owned() } else { format!("{callers} callers") };
        let run = format!("{seconds} s of {durability} updates {batch}, {callers}, {pace}");
        rows.push(("run", run));
        rows
    }

    /// The lines about updates.
    fn updates(&self) -> Vec<(&'static str, String)> {
        let rate = |rate| format!("{}/s", text::rate(rate));
        let first = format!(
            "{} in the first {} s, which begin with memory and log empty",
            rate(self.first_updates_per_second),
            self.seconds.min(FIRST_SECONDS)
        );
        let worst = format!(
            "{}/s, at {} s; {} of {} seconds below half of the median",
            text::count(self.worst_second_updates),
            self.worst_second,
            self.seconds_below_half_of_median,
            self.seconds
        );
        let longest = format!(
            "{:.1} ms, which ended at {:.1} s",
            self.longest_call_ms, self.longest_call_second
        );
        let mut rows = vec![
            ("updates", format!("{} the median second", rate(self.median_updates_per_second))),
            ("", format!("{} the mean", rate(self.mean_updates_per_second))),
            ("", first),
            ("worst second", worst),
        ];
        if let Some(served) = self.served_fraction {
            rows.push(("served", format!("{:.2} % of the updates that were due", 100.0 * served)));
        }
        rows.extend([("calls", self.calls.text()), ("longest call", longest)]);
        rows
    }

    /// The lines about the engine and the machine.
    fn causes(&self) -> Vec<(&'static str, String)> {
        let bound = format!(
            "{}/s by {}; the median second reached {:.0} % of it",
            text::rate(self.bound_updates_per_second),
            self.bound_by,
            100.0 * self.median_fraction_of_bound
        );
        let memory = self.memory_bytes_peak.map_or_else(
            || "unknown on this system".to_owned(),
            |peak| {
                let (size, times) = (text::size(peak), self.times_memory(peak));
                let budget = text::size(self.memory_bytes);
                format!("{size} resident at most, {times:.2} times the budget of {budget}")
            },
        );
        let sweep = match self.cycles {
            0 => "no cycle".to_owned(),
            cycles => format!(
                "{cycles} {}, {:.1} updates applied per visit of a block",
                if cycles == 1 { "cycle" } else { "cycles" },
                self.updates_per_visit
            ),
        };
        vec![
            ("sweep", sweep),
            ("cost", self.cost()),
            ("bound", bound),
            ("single reads", self.reads.text()),
            ("memory", memory),
            ("machine", self.machine.text()),
            ("", self.small_requests.as_ref().map_or_else(String::new, SmallRequests::text)),
        ]
    }

    fn cost(&self) -> String {
        format!(
            "{:.1} bytes written and {:.2} µs of processor per update",
            self.written_bytes_per_update, self.cpu_us_per_update
        )
    }

    fn times_memory(&self, bytes: u64) -> f64 {
        bytes as f64 / self.memory_bytes.max(1) as f64
    }
}

impl Machine {
    fn text(&self) -> String {
        if self.processors == 0 {
            return "not watched: this system gives no thread to a processor".to_owned();
        }
        let note = if self.is_real_time {
            ""
        } else {
            "\nwatched without real-time priority, so the run itself counts as pauses too"
        };
        format!(
            "paused for {:.1} ms at most, at {} s; some fixed work took over 1.5 times its median\n\
             in {:.1} % of the seconds, {:.2} times in the slowest; reads of memory took\n\
             {:.2} times their median in the slowest second, at {} s{note}",
            self.longest_pause_ms,
            self.longest_pause_second,
            100.0 * self.slow_seconds_fraction,
            self.slowest_second_ratio,
            self.slowest_reads_ratio,
            self.slowest_reads_second
        )
    }
}

/// Prints it as the command line wants it.
pub(super) fn print(context: &Context, args: &BenchArgs, outcome: &Outcome) -> Result<(), Failure> {
    if args.json {
        return context.json(outcome);
    }
    let mut lines = Vec::new();
    for (name, value) in [outcome.setting(), outcome.updates(), outcome.causes()].concat() {
        for (index, line) in value.lines().enumerate() {
            let name = if index == 0 { name } else { "" };
            lines.push(format!("{name:17}{line}"));
        }
    }
    if !outcome.is_steady {
        let (cycles, s) = (outcome.cycles, if outcome.cycles == 1 { "" } else { "s" });
        lines
            .push(format!("\n{cycles} cycle{s}: too short for steady state, which takes {CYCLES}"));
    }
    context.line(&lines.join("\n"))
}

/// The columns of the series. Bytes and processor time count from the beginning of the run.
const COLUMNS: [&str; 20] = [
    "second",
    "updates",
    "longest_call_ms",
    "call_p50_us",
    "call_p99_us",
    "log_fill",
    "queue_fill",
    "spill_fill",
    "cycles",
    "sweep_progress",
    "updates_per_visit",
    "written_bytes",
    "read_bytes",
    "cpu_seconds",
    "pause_ms",
    "work_ratio",
    "work_ratio_median",
    "reads_ratio_median",
    "device_read_ms",
    "device_write_ms",
];

/// One line of CSV for each second.
pub(super) fn write_series(file: File, found: &Findings) -> std::io::Result<()> {
    let mut out = BufWriter::new(file);
    writeln!(out, "{}", COLUMNS.join(","))?;
    let rows = found.seconds.iter().zip(&found.samples).zip(&found.machine.seconds);
    for (number, ((second, sample), machine)) in rows.enumerate() {
        let progress = sample.progress.map_or_else(String::new, |part| format!("{part:.4}"));
        let device = found.device.get(number).copied().unwrap_or_default();
        let row: [String; COLUMNS.len()] = [
            number.to_string(),
            second.updates.to_string(),
            format!("{:.3}", second.longest.as_secs_f64() * 1e3),
            second.quantile_us(0.5).to_string(),
            second.quantile_us(0.99).to_string(),
            format!("{:.4}", sample.log_fill),
            format!("{:.4}", sample.queue_fill),
            format!("{:.4}", sample.spill_fill),
            sample.cycles.to_string(),
            progress,
            format!("{:.3}", sample.updates_per_visit),
            sample.written_bytes.to_string(),
            sample.read_bytes.to_string(),
            format!("{:.3}", sample.cpu.as_secs_f64()),
            format!("{:.3}", machine.pause_ms),
            format!("{:.3}", machine.work_ratio),
            format!("{:.3}", machine.work_ratio_median),
            format!("{:.3}", machine.reads_ratio_median),
            format!("{:.3}", device.read.as_secs_f64() * 1e3),
            format!("{:.3}", device.write.as_secs_f64() * 1e3),
        ];
        writeln!(out, "{}", row.join(","))?;
    }
    out.flush()
}
