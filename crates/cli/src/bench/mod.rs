//! `upsweep bench`: measures the engine in steady state, or its log alone, in a temporary store;
//! `upsweep bench rodeh` repeats the measurements of a paper, `upsweep bench structures` compares
//! structures and operations on them, `upsweep bench scan` scans a table beside queries and
//! updates, `upsweep bench grid` compares what a store chose for its devices with settings by hand.

mod grid;
mod log;
mod rodeh;
mod scan;
mod spread;
mod steady;
mod structures;
mod table;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use upsweep::Status;

use crate::args::{BenchCommand, Workload};
use crate::context::Context;
use crate::failure::Failure;
use spread::Spread;

/// What the names of the folders begin with in which stores are measured.
const FOLDER_PREFIX: &str = "upsweep-bench-";

pub(crate) fn run(context: &Context, command: &BenchCommand) -> Result<(), Failure> {
    match &command.workload {
        Some(Workload::Rodeh(args)) => {
            return in_new_folder(&args.dir, |folder| rodeh::run(context, args, folder));
        }
        Some(Workload::Structures(args)) => {
            return in_new_folder(&args.dir, |folder| structures::run(context, args, folder));
        }
        Some(Workload::Scan(args)) => {
            return in_new_folder(&args.dir, |folder| scan::run(context, args, folder));
        }
        Some(Workload::Grid(args)) => {
            return in_new_folder(&args.dir, |folder| grid::run(context, args, folder));
        }
        None => {}
    }
    let Some(args) = &command.own else { return Ok(()) };
    in_new_folder(&args.dir, |folder| {
        if args.log_only {
            log::run(context, args, folder)
        } else {
            steady::run(context, args, folder)
        }
    })
}

/// Measures in a new folder inside `dir`, which is removed at the end.
fn in_new_folder(
    dir: &Path,
    measure: impl FnOnce(&Path) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if !dir.is_dir() {
        let is_there = dir.exists();
        let problem =
            if is_there { "not a folder; name one" } else { "no such folder; make it first" };
        return Err(Failure::Refused(format!("{}: {problem}", dir.display())));
    }
    name_leftovers(dir);
    let folder = tempfile::Builder::new()
        .prefix(FOLDER_PREFIX)
        .tempdir_in(dir)
        .map_err(|error| Failure::file(dir, &error))?;
    let outcome = measure(folder.path());
    let removed = folder.close().map_err(|error| Failure::file(dir, &error));
    outcome.and(removed)
}

/// Names the folders of earlier runs on standard error: who is killed leaves one, of some GiB.
fn name_leftovers(dir: &Path) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().map(std::ffi::OsStr::to_string_lossy).unwrap_or_default();
        if name.starts_with(FOLDER_PREFIX) {
            // Nobody misses it if standard error is gone.
            drop(writeln!(
                std::io::stderr(),
                "{} is of another run: remove it if none is going on",
                path.display()
            ));
        }
    }
}

/// Says on standard error, if that is a terminal, what takes so long.
fn note(step: &str) {
    let mut errors = std::io::stderr();
    if errors.is_terminal() {
        // Nobody misses it if standard error is gone.
        drop(writeln!(errors, "{step} ..."));
    }
}

/// What lies below: the kind of each device, and whether reads really reach it.
pub(super) fn describe_devices(status: &Status) -> Vec<String> {
    let device = |device: &upsweep::layers::runtime::DeviceStatus| {
        let how = if device.direct { "past the page cache" } else { "through the page cache" };
        format!("{} device: {}, {how}", device.role, device.engine)
    };
    let devices = status.devices.iter().map(device);
    std::iter::once(status.reason.clone()).chain(devices).collect()
}

/// Processor time of all threads so far.
pub(super) fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// A sequence of random numbers, the same for the same seed (SplitMix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// The numbers below `count` in random order.
    pub(super) fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_cached_key(|_| self.next());
        order
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(end)) >> 64).unwrap_or(0)
    }
}

/// A permutation of all 64-bit numbers that leaves no order behind.
pub(super) fn scramble(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Latencies in microseconds.
#[derive(Serialize)]
pub(super) struct Latencies {
    samples: u64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

impl Latencies {
    /// Runs `step` again and again for this long and takes its times.
    pub(super) fn measure(
        duration: Duration,
        step: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let started = Instant::now();
        Self::measure_while(|| started.elapsed() < duration, step)
    }

    /// Runs `step` once, and again and again as long as `goes_on`, and takes its times.
    pub(super) fn measure_while(
        goes_on: impl Fn() -> bool,
        mut step: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let mut histogram = Self::empty();
        loop {
            let before = Instant::now();
            step()?;
            histogram
                .saturating_record(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
            if !goes_on() {
                break;
            }
        }
        Ok(Self::of(&histogram))
    }

    /// Nanoseconds up to a minute; what is longer counts as that.
    fn empty() -> Histogram<u64> {
        Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are valid")
    }

    /// Of times in nanoseconds.
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            samples: histogram.len(),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max() as f64 / 1e3,
        }
    }

    pub(super) fn text(&self) -> String {
        let Self { samples, p50_us, p99_us, p999_us, max_us } = self;
        format!(
            "p50 {p50_us:.1} µs, p99 {p99_us:.1} µs, p99.9 {p999_us:.1} µs, \
             max {max_us:.1} µs ({samples} samples)"
        )
    }
}
