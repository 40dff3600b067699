//! Bulk loads of the largest table beside `dd`, which writes as many bytes past the page cache; and
//! drops of what was loaded.
//!
//! Counters first: many short records, which take processor time each. Then as many bytes in longer
//! records, which take less and less. Runs of `dd` and loads take turns.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;

use super::{Bench, COUNTER_BYTES, cell, drops, head, load, note, row, timed};
use crate::bench::Spread;
use crate::failure::Failure;
use crate::text;

/// Bytes of the values: counters, records of a cache line, and such of about a kilobyte.
const VALUE_BYTES: [usize; 3] = [COUNTER_BYTES, 56, 1000];
/// Bytes of a key.
const KEY_BYTES: usize = 8;
/// Bytes that `dd` writes at once.
const DD_BLOCK_BYTES: u64 = 1 << 20;

/// What was measured.
#[derive(Serialize)]
pub(super) struct Outcome {
    runs: u32,
    loads: Vec<Load>,
    /// Why there is nothing from `dd`.
    dd_problem: Option<String>,
}

/// Of records of one length.
#[derive(Serialize)]
struct Load {
    value_bytes: usize,
    records: u64,
    blocks: u64,
    /// Bytes of the images that were written.
    image_bytes: u64,
    seconds: Spread,
    mb_per_second: Spread,
    dd_mb_per_second: Option<Spread>,
    /// Rate of the load, as a part of that of `dd`.
    by_dd: Option<f64>,
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<(Outcome, Vec<drops::Outcome>), Failure> {
    let largest = bench.sizes().into_iter().next_back().unwrap_or(1);
    let mut outcome = Outcome { runs: bench.args.runs, loads: Vec::new(), dd_problem: None };
    let mut dropped = drops::Drops::default();
    for value_bytes in VALUE_BYTES {
        let bytes = largest as usize * (KEY_BYTES + COUNTER_BYTES);
        let records = (bytes / (KEY_BYTES + value_bytes)).max(1) as u64;
        let [mut seconds, mut rates, mut of_dd] = [const { vec![] }; 3];
        let (mut blocks, mut image_bytes) = (0, bytes as u64);
        for run in 1..=bench.args.runs {
            note(&format!("load {run} of {} records", text::count(records)));
            bench.in_store(|store| {
                match dd(bench.folder, image_bytes) {
                    Ok(rate) => of_dd.push(rate / 1e6),
                    Err(problem) => outcome.dd_problem = Some(problem),
                }
                let before = store.status().data_bytes;
                let ((_, loaded), took) = timed(|| load(store, "table", records, value_bytes))?;
                image_bytes = store.status().data_bytes - before;
                blocks = loaded.blocks;
                seconds.push(took);
                rates.push(image_bytes as f64 / took.max(1e-9) / 1e6);
                if value_bytes == COUNTER_BYTES {
                    dropped.measure(bench, store, records, blocks)?;
                }
                Ok(())
            })?;
        }
        let mb_per_second = Spread::of(rates);
        let dd_mb_per_second = (!of_dd.is_empty()).then(|| Spread::of(of_dd));
        outcome.loads.push(Load {
            value_bytes,
            records,
            blocks,
            image_bytes,
            seconds: Spread::of(seconds),
            by_dd: dd_mb_per_second.as_ref().map(|dd| mb_per_second.median / dd.median.max(1e-9)),
            mb_per_second,
            dd_mb_per_second,
        });
    }
    Ok((outcome, dropped.outcomes()))
}

/// Has `dd` write about so many bytes into a file, until they are on the device; bytes per second,
/// or why not.
fn dd(folder: &Path, bytes: u64) -> Result<f64, String> {
    let path = folder.join("dd");
    let count = bytes.div_ceil(DD_BLOCK_BYTES);
    let mut command = Command::new("dd");
    command
        .arg("if=/dev/zero")
        .arg(format!("of={}", path.display()))
        .arg(format!("bs={DD_BLOCK_BYTES}"))
        .arg(format!("count={count}"))
        .args(["oflag=direct", "conv=fsync"])
        .stdin(Stdio::null());
    let ran = timed(|| command.output());
    // If it is not there, it was not made; if it stays, it goes with the folder.
    drop(std::fs::remove_file(&path));
    let (ended, seconds) = ran.map_err(|error| match error.kind() {
        ErrorKind::NotFound => "dd is not installed".to_owned(),
        _ => format!("dd cannot be started: {error}"),
    })?;
    if !ended.status.success() {
        let errors = String::from_utf8_lossy(&ended.stderr);
        return Err(errors.lines().next().unwrap_or("dd failed without a word").to_owned());
    }
    Ok((count * DD_BLOCK_BYTES) as f64 / seconds.max(1e-9))
}

impl Outcome {
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "\nbulk loads, {} of each, beside dd with direct I/O; MB/s of images",
                self.runs
            ),
            head("records", ["bytes each", "images", "load", "dd", "load / dd"]),
        ];
        lines.extend(self.loads.iter().map(|load| {
            let missing = || "none".to_owned();
            let dd = load.dd_mb_per_second.as_ref().map_or_else(missing, |dd| cell(dd, 0));
            let ratio = load.by_dd.map_or_else(missing, |ratio| format!("{ratio:.2}"));
            let bytes = (KEY_BYTES + load.value_bytes).to_string();
            let images = text::size(load.image_bytes);
            row(
                &text::count(load.records),
                &[bytes, images, cell(&load.mb_per_second, 0), dd, ratio],
            )
        }));
        lines.extend(self.dd_problem.iter().map(|problem| format!("  no rate of dd: {problem}")));
        lines
    }
}
