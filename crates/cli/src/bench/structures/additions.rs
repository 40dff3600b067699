//! Random additions to an ordered table, a hash table and an array, of equally many records.
//!
//! Steps, for each structure and run, in a store of its own: add 1 to every record, and sweep; then
//! time random additions, in groups and durable in groups, with the sweep that brings the last of
//! them in. The structures take turns.

use std::time::Instant;

use serde::Serialize;
use upsweep::layers::engine::LoggedUpdate;
use upsweep::layers::structures::array::body_format::key_of;
use upsweep::layers::structures::modifiers::ADD_I64;
use upsweep::{Array, Durability, SpaceId, Store};

use super::{Bench, cell, head, key, note, row};
use crate::bench::{Random, Spread, scramble};
use crate::failure::Failure;
use crate::text;

/// The structures.
const NAMES: [&str; 3] = ["ordered table", "hash table", "array"];

/// Updates that are handed over under one lock.
const GROUP: u64 = 512;

/// What was measured.
#[derive(Serialize)]
pub(super) struct Outcome {
    records: u64,
    updates: u64,
    runs: u32,
    structures: Vec<OfStructure>,
}

/// Of one structure.
#[derive(Serialize)]
struct OfStructure {
    structure: &'static str,
    blocks: u64,
    bytes: u64,
    /// Until the last addition is durable.
    durable_per_second: Spread,
    /// Until the last addition is in its block.
    swept_per_second: Spread,
}

/// One run.
struct Run {
    blocks: u64,
    bytes: u64,
    durable_seconds: f64,
    swept_seconds: f64,
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Outcome, Failure> {
    let (records, updates, runs) = (bench.records(), bench.args.updates, bench.args.runs);
    let mut of_each = NAMES.map(|_| Vec::new());
    for run in 0..runs {
        for (name, found) in NAMES.into_iter().zip(&mut of_each) {
            note(&format!("additions to {name}, run {}", run + 1));
            let seed = bench.args.seed.wrapping_add(u64::from(run));
            found.push(bench.in_store(|store| measure_run(store, name, records, updates, seed))?);
        }
    }
    let rates = |found: &[Run], seconds: fn(&Run) -> f64| {
        Spread::of(found.iter().map(|run| updates as f64 / seconds(run).max(1e-9)).collect())
    };
    let of_structure = |(structure, found): (&'static str, Vec<Run>)| OfStructure {
        structure,
        blocks: found[0].blocks,
        bytes: found[0].bytes,
        durable_per_second: rates(&found, |run| run.durable_seconds),
        swept_per_second: rates(&found, |run| run.swept_seconds),
    };
    let structures = NAMES.into_iter().zip(of_each).map(of_structure).collect();
    Ok(Outcome { records, updates, runs, structures })
}

fn measure_run(
    store: &Store,
    name: &str,
    records: u64,
    updates: u64,
    seed: u64,
) -> Result<Run, Failure> {
    let array: Option<Array<i64>> = (name == "array").then(|| store.array(name)).transpose()?;
    let space = match (&array, name) {
        (Some(array), _) => array.space(),
        (None, "hash table") => store.hash_table(name)?.space(),
        _ => store.table(name)?.space(),
    };
    let push = |number: u64, out: &mut Vec<u8>| match &array {
        Some(_) => out.extend_from_slice(&key_of(number)),
        None => out.extend_from_slice(&key(scramble(number))),
    };
    add_all(store, space, records, push)?;
    store.sweep()?;
    let filled = store.status();
    let mut random = Random::new(seed);
    let began = Instant::now();
    add_all(store, space, updates, |_, out| push(random.below(records), out))?;
    let durable_seconds = began.elapsed().as_secs_f64();
    store.sweep()?;
    let swept_seconds = began.elapsed().as_secs_f64();
    let (blocks, bytes) = (filled.blocks, filled.data_bytes);
    Ok(Run { blocks, bytes, durable_seconds, swept_seconds })
}

impl Outcome {
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "\nadditions, {} to {} records, {} runs; thousands a second until the last is \
                 durable, and until it is swept",
                text::count(self.updates),
                text::count(self.records),
                self.runs
            ),
            head("structure", ["size", "durable", "swept"]),
        ];
        lines.extend(self.structures.iter().map(|of| {
            let [durable, swept] = [&of.durable_per_second, &of.swept_per_second]
                .map(|rate| cell(&thousands(rate), 0));
            row(of.structure, &[text::size(of.bytes), durable, swept])
        }));
        lines
    }
}

fn thousands(rate: &Spread) -> Spread {
    let Spread { median, lowest, highest } = rate;
    Spread { median: median / 1e3, lowest: lowest / 1e3, highest: highest / 1e3 }
}

/// Adds 1 to `number` records of a space, in groups, and waits until all of it is durable.
/// `push_key` appends the key of each, all of one length.
pub(super) fn add_all(
    store: &Store,
    space: SpaceId,
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
