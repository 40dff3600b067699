//! Clones and snapshots of tables of several sizes, each alone in its store.
//!
//! Steps, for each size: load the table; update a record as often as there will be clones, for
//! comparison; then again and again clone the table, update a random record of the clone, drop the
//! clone and wait until its room has come back; the same with snapshots of the store. Every call
//! waits until it is durable, so the time of the device is in each.

use serde::Serialize;

use super::{Bench, COUNTER_BYTES, cell, head, key, load, microseconds, note, row, timed};
use crate::bench::{Random, Spread};
use crate::failure::Failure;
use crate::text;

/// What was measured.
#[derive(Serialize)]
pub(super) struct Outcome {
    clones: u32,
    sizes: Vec<Size>,
    /// Medians of the largest size, as multiples of those of the smallest.
    largest_by_smallest: Ratios,
}

/// Of one size; times in microseconds.
#[derive(Serialize)]
struct Size {
    records: u64,
    blocks: u64,
    bytes: u64,
    /// Update of a random record while nothing is shared.
    update_us: Spread,
    clone_us: Spread,
    /// First update of a clone, of a random record.
    first_update_us: Spread,
    drop_us: Spread,
    snapshot_us: Spread,
}

#[derive(Serialize)]
struct Ratios {
    records: f64,
    update: f64,
    clone: f64,
    first_update: f64,
    drop: f64,
    snapshot: f64,
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Outcome, Failure> {
    let measured = bench.sizes().into_iter().map(|records| measure_size(bench, records));
    let sizes = measured.collect::<Result<Vec<Size>, Failure>>()?;
    let ratio = |of: &dyn Fn(&Size) -> f64| {
        let ends = sizes.first().zip(sizes.last());
        ends.map_or(1.0, |(smallest, largest)| of(largest) / of(smallest).max(1e-9))
    };
    let largest_by_smallest = Ratios {
        records: ratio(&|size| size.records as f64),
        update: ratio(&|size| size.update_us.median),
        clone: ratio(&|size| size.clone_us.median),
        first_update: ratio(&|size| size.first_update_us.median),
        drop: ratio(&|size| size.drop_us.median),
        snapshot: ratio(&|size| size.snapshot_us.median),
    };
    Ok(Outcome { clones: bench.args.clones, sizes, largest_by_smallest })
}

fn measure_size(bench: &Bench<'_>, records: u64) -> Result<Size, Failure> {
    note(&format!("clones of a table of {} records", text::count(records)));
    bench.in_store(|store| {
        let (table, loaded) = load(store, "table", records, COUNTER_BYTES)?;
        let bytes = store.status().data_bytes;
        let mut random = Random::new(bench.args.seed);
        let [mut updates, mut clones, mut firsts, mut drops, mut snapshots] = [const { vec![] }; 5];
        // One more than asked for: the first of each finds caches cold, and does not count.
        for _ in 0..=bench.args.clones {
            updates.push(timed(|| table.add(&key(random.below(records)), 1)?.wait())?.1);
        }
        store.sweep()?;
        for _ in 0..=bench.args.clones {
            let (clone, seconds) = timed(|| store.clone_table("table", "clone"))?;
            clones.push(seconds);
            firsts.push(timed(|| clone.add(&key(random.below(records)), 1)?.wait())?.1);
            drop(clone);
            drops.push(timed(|| store.drop_table("clone"))?.1);
            store.reclaim()?;
        }
        for _ in 0..=bench.args.clones {
            let (snapshot, seconds) = timed(|| store.snapshot())?;
            snapshots.push(seconds);
            drop(snapshot);
            store.reclaim()?;
        }
        Ok(Size {
            records,
            blocks: loaded.blocks,
            bytes,
            update_us: microseconds(&updates[1..]),
            clone_us: microseconds(&clones[1..]),
            first_update_us: microseconds(&firsts[1..]),
            drop_us: microseconds(&drops[1..]),
            snapshot_us: microseconds(&snapshots[1..]),
        })
    })
}

impl Outcome {
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "\nclones of whole tables, {} of each; microseconds until durable",
                self.clones
            ),
            head(
                "records",
                ["blocks", "update", "clone", "first update of it", "drop of it", "snapshot"],
            ),
        ];
        lines.extend(self.sizes.iter().map(|size| {
            let spreads = [
                &size.update_us,
                &size.clone_us,
                &size.first_update_us,
                &size.drop_us,
                &size.snapshot_us,
            ];
            let [a, b, c, d, e] = spreads.map(|spread| cell(spread, 0));
            row(&text::count(size.records), &[text::count(size.blocks), a, b, c, d, e])
        }));
        let Ratios { records, update, clone, first_update, drop, snapshot } =
            &self.largest_by_smallest;
        let ratios = [update, clone, first_update, drop, snapshot];
        let [a, b, c, d, e] = ratios.map(|ratio| format!("x {ratio:.2}"));
        let label = format!("x {}", text::rate(*records));
        lines.push(row(&label, &["largest / smallest".to_owned(), a, b, c, d, e]));
        lines
    }
}
