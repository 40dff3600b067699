//! `upsweep bench rodeh`: the measurements of the paper on shadowed B-trees, on this engine.
//!
//! Steps, for each of the two trees: load it; open the store anew with so much memory that the
//! cache has the paper's part of the tree; run every workload with one caller and with ten, and
//! every single operation with one; show medians beside the paper's numbers ([`paper`]).
//!
//! What differs from the paper: updates are durable in a log, or will be; the index of the tree,
//! the engine's directory, is in memory as a whole besides the cache; between runs the operations
//! are undone, but for removals of ranges, which have a clone that is dropped ([`operations`]).

mod operations;
mod outcome;
mod paper;

use std::path::Path;
use std::time::Instant;

use upsweep::{
    CreateOptions, Durability, Error, LoadOptions, RequestError, Store, Value, ValueKind,
};

use super::{Spread, note};
use crate::args::RodehArgs;
use crate::context::Context;
use crate::failure::Failure;
use operations::{Base, Operation, Run, Seconds};
use outcome::{Latency, Outcome, Throughput, TreeOutcome};
use paper::{
    FILL_PERCENT, IN_MEMORY_PERCENT, LATENCIES, Mix, NODE_BYTES, RANGE_KEYS, TASKS, TREES, Tree,
    WORKLOADS,
};

/// Smallest tree, in keys, whatever the scale.
const KEYS_MIN: u64 = 10 * RANGE_KEYS;
/// Step in which memory is added until the store opens.
const MEMORY_STEP_BYTES: u64 = 1 << 20;

pub(super) fn run(context: &Context, args: &RodehArgs, folder: &Path) -> Result<(), Failure> {
    let mut trees = Vec::with_capacity(TREES.len());
    let mut devices = Vec::new();
    for tree in &TREES {
        let path = folder.join(tree.name);
        let (base, mut outcome) = load(args, tree, &path)?;
        outcome.throughput = measure_throughput(args, tree, &base)?;
        outcome.latency = measure_latency(args, tree, &base)?;
        devices = super::describe_devices(&base.store.status());
        trees.push(outcome);
        drop(base);
        std::fs::remove_dir_all(&path).map_err(|error| Failure::file(&path, &error))?;
    }
    let RodehArgs { scale, operations, runs, seed, .. } = *args;
    let outcome = Outcome { scale, operations, runs, seed, devices, trees };
    if args.json { context.json(&outcome) } else { outcome.show(context) }
}

/// Makes a base tree and opens it with the memory for the measurements.
fn load(args: &RodehArgs, tree: &Tree, path: &Path) -> Result<(Base, TreeOutcome), Failure> {
    let keys = ((tree.keys as f64 * args.scale) as u64).max(KEYS_MIN);
    note(&format!("loading {}, {keys} keys", tree.name));
    let options = CreateOptions::default().block_bytes(NODE_BYTES).log_bytes(args.log_size.0);
    let store = Store::builder().create(path, &options)?;
    let records = (0..keys).map(|number| {
        let bytes = operations::value(2 * number, tree.value_bytes);
        Ok((operations::key(2 * number), Value { kind: ValueKind::Bytes, bytes }))
    });
    let began = Instant::now();
    store.table(tree.name)?.load(records, LoadOptions::default().fill_percent(FILL_PERCENT))?;
    let load_seconds = began.elapsed().as_secs_f64();
    let size = store.tables().into_iter().map(|(_, size)| size).next().unwrap_or_default();
    store.close()?;
    let wanted = size.bytes * IN_MEMORY_PERCENT / 100;
    let store = open_with(path, wanted)?;
    let (memory_bytes, free_bytes) = memory(&store);
    let table = store.existing_table(tree.name)?;
    let base = Base { store, table, keys, value_bytes: tree.value_bytes };
    let outcome = TreeOutcome {
        name: tree.name,
        keys,
        value_bytes: tree.value_bytes,
        blocks: size.blocks,
        bytes: size.bytes,
        paper_leaves: tree.leaves,
        load_seconds,
        memory_bytes,
        cache_and_queues_bytes: free_bytes,
        cache_and_queues_percent: 100.0 * free_bytes as f64 / size.bytes.max(1) as f64,
        throughput: Vec::new(),
        latency: Vec::new(),
    };
    Ok((base, outcome))
}

/// Opens the store so that cache and queues have `wanted` bytes together, or more if it takes no
/// less memory.
fn open_with(path: &Path, wanted: u64) -> Result<Store, Failure> {
    let mut memory_bytes = wanted;
    loop {
        match Store::builder().memory_bytes(memory_bytes as usize).open(path) {
            Err(Error::Request(RequestError::BadConfig { setting: "memory", .. })) => {
                memory_bytes += MEMORY_STEP_BYTES;
            }
            opened => {
                let store = opened?;
                let lacks = wanted.saturating_sub(memory(&store).1);
                if lacks == 0 {
                    return Ok(store);
                }
                store.close()?;
                memory_bytes += lacks;
            }
        }
    }
}

/// The memory of a store, and what its directory and buffers leave of it for cache and queues.
fn memory(store: &Store) -> (u64, u64) {
    let memory = store.status().memory;
    (memory.budget, memory.budget.saturating_sub(memory.directory + memory.buffers))
}

/// A line of the results: what was done, and the seconds that each run took.
struct Line {
    name: String,
    seconds: Vec<f64>,
}

/// Runs a mix: one line for reads; for updates one until they are durable as they go, one until
/// relaxed ones are durable at the end, and one until these are inside the tree.
fn measure(
    args: &RodehArgs,
    base: &Base,
    (name, mix): (&str, Mix),
    callers: usize,
) -> Result<Vec<Line>, Failure> {
    let runs = |durability| -> Result<Vec<Seconds>, Failure> {
        let seeds = (0..u64::from(args.runs)).map(|number| args.seed.wrapping_add(number));
        let operations = args.operations;
        seeds.map(|seed| base.run(Run { mix, operations, callers, durability, seed })).collect()
    };
    let line = |mode: &str, runs: &[Seconds], seconds: fn(&Seconds) -> f64| Line {
        name: format!("{name}{mode}"),
        seconds: runs.iter().map(seconds).collect(),
    };
    let durable = runs(Durability::Wait)?;
    if !mix.iter().any(|(operation, _)| operation.updates()) {
        return Ok(vec![line("", &durable, |run| run.durable)]);
    }
    if mix.iter().any(|(operation, _)| *operation == Operation::RemoveRange) {
        // There is no relaxed removal of a range.
        return Ok(vec![
            line(", durable", &durable, |run| run.durable),
            line(", durable, swept", &durable, |run| run.swept),
        ]);
    }
    let relaxed = runs(Durability::Relaxed)?;
    Ok(vec![
        line(", durable", &durable, |run| run.durable),
        line(", relaxed", &relaxed, |run| run.durable),
        line(", relaxed, swept", &relaxed, |run| run.swept),
    ])
}

fn measure_throughput(
    args: &RodehArgs,
    tree: &Tree,
    base: &Base,
) -> Result<Vec<Throughput>, Failure> {
    let mut found = Vec::new();
    let rates = |line: &Line, callers: usize| {
        let operations = (args.operations / callers as u64 * callers as u64) as f64;
        Spread::of(line.seconds.iter().map(|seconds| operations / seconds.max(1e-9)).collect())
    };
    for (index, workload) in WORKLOADS.into_iter().enumerate() {
        note(&format!("{}, {}", tree.name, workload.0));
        let with_one = measure(args, base, workload, 1)?;
        let with_ten = measure(args, base, workload, TASKS)?;
        let paper = (tree.with_one[index], tree.with_ten[index]);
        let both = with_one.into_iter().zip(with_ten);
        found.extend(both.map(|(one, ten)| {
            Throughput::new(one.name.clone(), rates(&one, 1), rates(&ten, TASKS), paper)
        }));
    }
    Ok(found)
}

fn measure_latency(args: &RodehArgs, tree: &Tree, base: &Base) -> Result<Vec<Latency>, Failure> {
    let mut found = Vec::new();
    for (operation, paper_ms) in LATENCIES.into_iter().zip(tree.latency_ms) {
        note(&format!("{}, latency of {}", tree.name, operation.0));
        let milliseconds = |line: &Line| {
            let each = |seconds: &f64| 1e3 * seconds / args.operations as f64;
            Spread::of(line.seconds.iter().map(each).collect())
        };
        let lines = measure(args, base, operation, 1)?;
        found.extend(lines.into_iter().map(|line| {
            let ms = milliseconds(&line);
            Latency { operation: line.name, ms, paper_ms }
        }));
    }
    Ok(found)
}
