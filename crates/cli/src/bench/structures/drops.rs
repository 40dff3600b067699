//! Drops of a large clone of which every block was changed, and of a large table: how fast their
//! room comes back, and how long another caller waits meanwhile for one durable addition.
//!
//! Steps: another caller adds to a small table, first alone, then during the drop; the clock runs
//! from the call that drops until [`Store::reclaim`] returns; a checkpoint follows, because room
//! that the last one names is free only after the next. What was given back is counted in the map
//! of free space.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use upsweep::{Store, Table};

use super::additions::add_all;
use super::{Bench, cell, head, key, note, row};
use crate::bench::{Latencies, Random, Spread};
use crate::failure::Failure;
use crate::text;

/// How long the other caller adds alone.
const ALONE: Duration = Duration::from_secs(1);
/// Keys to which it adds.
const FOREGROUND_KEYS: u64 = 1000;
/// Changes of a clone for each block that it has: more than enough to hit every one.
const CHANGES_PER_BLOCK: u64 = 4;

/// What was measured.
#[derive(Serialize)]
pub(super) struct Outcome {
    what: &'static str,
    blocks: u64,
    bytes: u64,
    seconds: Spread,
    blocks_per_second: Spread,
    mb_per_second: Spread,
    /// Until a checkpoint has made the room free.
    seconds_with_checkpoint: Spread,
    /// The other caller alone, and during the drop, in milliseconds.
    alone_ms_p50: Spread,
    alone_ms_max: Spread,
    foreground_ms_p50: Spread,
    foreground_ms_max: Spread,
    foreground_samples: Spread,
}

/// One drop.
struct Dropped {
    blocks: u64,
    bytes: u64,
    seconds: f64,
    seconds_with_checkpoint: f64,
    alone: Latencies,
    during: Latencies,
}

/// Drops of all runs.
#[derive(Default)]
pub(super) struct Drops {
    clones: Vec<Dropped>,
    tables: Vec<Dropped>,
}

impl Drops {
    /// Drops a clone of the loaded table "table", and then the table.
    pub(super) fn measure(
        &mut self,
        bench: &Bench<'_>,
        store: &Store,
        records: u64,
        blocks: u64,
    ) -> Result<(), Failure> {
        note("drops");
        let foreground = store.table("foreground")?;
        let clone = store.clone_table("table", "clone")?;
        let changes = (CHANGES_PER_BLOCK * blocks).min(records);
        let spread = |number| u128::from(number) * u128::from(records) / u128::from(changes);
        add_all(store, clone.space(), changes, |number, bytes| {
            let record = u64::try_from(spread(number)).unwrap_or(0);
            bytes.extend_from_slice(&key(record));
        })?;
        store.sweep()?;
        drop(clone);
        let mut random = Random::new(bench.args.seed);
        self.clones.push(drop_one(store, "clone", &foreground, &mut random)?);
        self.tables.push(drop_one(store, "table", &foreground, &mut random)?);
        Ok(())
    }

    pub(super) fn outcomes(&self) -> Vec<Outcome> {
        let whats = [("clone, changed", &self.clones), ("loaded table", &self.tables)];
        let dropped = whats.into_iter().filter(|(_, runs)| !runs.is_empty());
        dropped.map(|(what, runs)| Outcome::of(what, runs)).collect()
    }
}

fn drop_one(
    store: &Store,
    name: &str,
    foreground: &Table,
    random: &mut Random,
) -> Result<Dropped, Failure> {
    let mut add = || Ok(foreground.add(&key(random.below(FOREGROUND_KEYS)), 1)?.wait()?);
    let alone = Latencies::measure(ALONE, &mut add)?;
    store.sweep()?;
    store.blocks().checkpoint()?;
    let before = store.status();
    let has_ended = AtomicBool::new(false);
    let both_ready = Barrier::new(2);
    let goes_on = || !has_ended.load(Ordering::Relaxed);
    let (timed, during) = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            both_ready.wait();
            Latencies::measure_while(goes_on, &mut add)
        });
        both_ready.wait();
        let timed = time_drop(store, name, &has_ended);
        has_ended.store(true, Ordering::Relaxed);
        (timed, other.join())
    });
    let (seconds, seconds_with_checkpoint) = timed?;
    let during = during.map_err(|_| Failure::Refused("a caller panicked".to_owned()))??;
    let after = store.status();
    Ok(Dropped {
        blocks: before.blocks.saturating_sub(after.blocks),
        bytes: before.data_bytes.saturating_sub(after.data_bytes),
        seconds,
        seconds_with_checkpoint,
        alone,
        during,
    })
}

/// Seconds until everything has been given back, and until the next checkpoint.
fn time_drop(store: &Store, name: &str, has_ended: &AtomicBool) -> Result<(f64, f64), Failure> {
    let began = Instant::now();
    store.drop_table(name)?;
    store.reclaim()?;
    let seconds = began.elapsed().as_secs_f64();
    has_ended.store(true, Ordering::Relaxed);
    store.blocks().checkpoint()?;
    Ok((seconds, began.elapsed().as_secs_f64()))
}

impl Outcome {
    fn of(what: &'static str, runs: &[Dropped]) -> Self {
        let of = |number: &dyn Fn(&Dropped) -> f64| Spread::of(runs.iter().map(number).collect());
        let per_second = |run: &Dropped, amount: u64| amount as f64 / run.seconds.max(1e-9);
        Self {
            what,
            blocks: runs[0].blocks,
            bytes: runs[0].bytes,
            seconds: of(&|run| run.seconds),
            blocks_per_second: of(&|run| per_second(run, run.blocks)),
            mb_per_second: of(&|run| per_second(run, run.bytes) / 1e6),
            seconds_with_checkpoint: of(&|run| run.seconds_with_checkpoint),
            alone_ms_p50: of(&|run| run.alone.p50_us / 1e3),
            alone_ms_max: of(&|run| run.alone.max_us / 1e3),
            foreground_ms_p50: of(&|run| run.during.p50_us / 1e3),
            foreground_ms_max: of(&|run| run.during.max_us / 1e3),
            foreground_samples: of(&|run| run.during.samples as f64),
        }
    }
}

/// The part of the results for people.
pub(super) fn lines(outcomes: &[Outcome]) -> Vec<String> {
    let mut lines =
        vec!["\ndrops, while another caller adds durably, one after the other".to_owned()];
    lines.push(head("what", ["room", "ms until given back", "blocks/s", "MB/s"]));
    lines.extend(outcomes.iter().map(|dropped| {
        let room = format!("{} blocks, {}", text::count(dropped.blocks), text::size(dropped.bytes));
        let seconds = &dropped.seconds;
        let ms = Spread {
            median: 1e3 * seconds.median,
            lowest: 1e3 * seconds.lowest,
            highest: 1e3 * seconds.highest,
        };
        let cells = [
            room,
            cell(&ms, 1),
            text::rate(dropped.blocks_per_second.median),
            cell(&dropped.mb_per_second, 0),
        ];
        row(dropped.what, &cells)
    }));
    lines.push(head(
        "the other caller",
        ["alone, median ms", "longest", "during it, median", "longest"],
    ));
    lines.extend(outcomes.iter().map(|dropped| {
        let spreads = [
            &dropped.alone_ms_p50,
            &dropped.alone_ms_max,
            &dropped.foreground_ms_p50,
            &dropped.foreground_ms_max,
        ];
        row(dropped.what, &spreads.map(|spread| cell(spread, 2)))
    }));
    lines
}
