//! `upsweep bench structures`: what structures and operations on whole tables cost, in one run.
//!
//! | module | question |
//! |---|---|
//! | [`clones`] | do clones and snapshots take equally long, whatever the size? |
//! | [`ranges`] | what does the removal of a range cost, by its part of the table? |
//! | [`loads`] | how near does a bulk load come to writing the same bytes with `dd`? |
//! | [`drops`] | how fast does room come back, and who has to wait meanwhile? |
//! | [`additions`] | how do ordered tables, hash tables and arrays take random additions? |
//!
//! Every part has stores of its own, so that nothing is in them that another part has left.

mod additions;
mod clones;
mod drops;
mod loads;
mod ranges;

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use upsweep::{
    CreateOptions, LoadOptions, LoadSummary, RequestError, Store, Table, ValueKind, ValueRef,
};

use super::{Spread, note};
use crate::args::StructuresArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// Records of the table whose ranges are removed, and cells or keys of those that are added to.
const RECORDS: u64 = 1_000_000;
/// Bytes of a counter.
const COUNTER_BYTES: usize = 8;
/// Different values among those that are loaded.
const NUMBERS: u64 = 4096;

/// What was measured.
#[derive(Serialize)]
struct Outcome {
    seed: u64,
    memory_bytes: u64,
    devices: Vec<String>,
    clones: clones::Outcome,
    ranges: ranges::Outcome,
    loads: loads::Outcome,
    drops: Vec<drops::Outcome>,
    additions: additions::Outcome,
}

pub(super) fn run(context: &Context, args: &StructuresArgs, folder: &Path) -> Result<(), Failure> {
    let bench = Bench { args, folder };
    let devices = bench.in_store(|store| Ok(super::describe_devices(&store.status())))?;
    let clones = clones::measure(&bench)?;
    let ranges = ranges::measure(&bench)?;
    let (loads, drops) = loads::measure(&bench)?;
    let additions = additions::measure(&bench)?;
    let (seed, memory_bytes) = (args.seed, args.memory.0);
    let outcome = Outcome { seed, memory_bytes, devices, clones, ranges, loads, drops, additions };
    if args.json { context.json(&outcome) } else { outcome.show(context) }
}

impl Outcome {
    fn show(&self, context: &Context) -> Result<(), Failure> {
        let mut lines = self.devices.clone();
        lines.push(format!(
            "memory of {}; medians, with the lowest and the highest; MB are 10^6 bytes",
            text::size(self.memory_bytes)
        ));
        lines.extend(self.clones.lines());
        lines.extend(self.ranges.lines());
        lines.extend(self.loads.lines());
        lines.extend(drops::lines(&self.drops));
        lines.extend(self.additions.lines());
        context.line(&lines.join("\n"))
    }
}

/// How and where to measure.
struct Bench<'a> {
    args: &'a StructuresArgs,
    folder: &'a Path,
}

impl Bench<'_> {
    /// Measures in a new, empty store, which is removed afterwards.
    fn in_store<T>(
        &self,
        measure: impl FnOnce(&Store) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let path: PathBuf = self.folder.join("store");
        let block_bytes = self.args.block_size.map(|size| u32::try_from(size.0));
        let too_large = |_| {
            let reason = "give 4KiB to 1MiB".to_owned();
            upsweep::Error::from(RequestError::BadConfig { setting: "block size", reason })
        };
        let mut options = CreateOptions::default().log_bytes(self.args.log_size.0);
        options.block_bytes = block_bytes.transpose().map_err(too_large)?;
        let memory = self.args.memory.in_memory();
        let store = Store::builder().memory_bytes(memory).create(&path, &options)?;
        let measured = measure(&store);
        // What went wrong with the measurement tells more than what follows from it.
        let closed = store.close();
        let removed = std::fs::remove_dir_all(&path).map_err(|error| Failure::file(&path, &error));
        let measured = measured?;
        closed?;
        removed?;
        Ok(measured)
    }

    /// The sizes of tables, ascending, none above the limit.
    fn sizes(&self) -> Vec<u64> {
        let capped = self.args.sizes.iter().map(|size| (*size).min(self.args.records));
        capped.collect::<std::collections::BTreeSet<u64>>().into_iter().collect()
    }

    /// Records where the size is no question.
    fn records(&self) -> u64 {
        RECORDS.min(self.args.records)
    }
}

/// The key of a record, in the order of numbers.
fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Makes a table with the records 0 to below `records`, counters or longer values.
fn load(
    store: &Store,
    name: &str,
    records: u64,
    value_bytes: usize,
) -> Result<(Table, LoadSummary), Failure> {
    let table = store.table(name)?;
    let kind = if value_bytes == COUNTER_BYTES { ValueKind::I64 } else { ValueKind::Bytes };
    // The values lie ready: the load is measured, not the making of its records.
    let numbers: Vec<u8> = (0..NUMBERS + value_bytes as u64).flat_map(u64::to_le_bytes).collect();
    let record = |number: u64| {
        let start = (number % NUMBERS) as usize * COUNTER_BYTES;
        Ok((key(number), ValueRef { kind, bytes: &numbers[start..start + value_bytes] }))
    };
    let loaded = table.load((0..records).map(record), LoadOptions::default())?;
    Ok((table, loaded))
}

/// The result of `work` with the seconds that it took.
fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(T, f64), E> {
    let began = Instant::now();
    let done = work()?;
    Ok((done, began.elapsed().as_secs_f64()))
}

/// Times in microseconds.
fn microseconds(seconds: &[f64]) -> Spread {
    Spread::of(seconds.iter().map(|seconds| 1e6 * seconds).collect())
}

/// A line of a table: what it is about, and its columns.
fn row(name: &str, cells: &[String]) -> String {
    let cells = cells.iter().map(|cell| format!("  {cell:>23}"));
    std::iter::once(format!("  {name:>18}")).chain(cells).collect()
}

/// The first line of a table.
fn head<const N: usize>(name: &str, columns: [&str; N]) -> String {
    row(name, &columns.map(str::to_owned))
}

/// A spread in a column, with so many digits behind the point.
fn cell(spread: &Spread, digits: usize) -> String {
    let Spread { median, lowest, highest } = spread;
    format!("{median:.digits$} ({lowest:.digits$} to {highest:.digits$})")
}
