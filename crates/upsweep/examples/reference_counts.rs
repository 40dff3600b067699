//! Counts references to objects in a sparse array of 10^9 cells, and collects the garbage.
//!
//!     cargo run --release --example reference_counts -- --help
//!
//! A store of objects keeps a count of references for each, and a collector has to find those that
//! nobody refers to. Counts change at random places, far more of them than fit into memory; each
//! change would cost a read and a write. Here it is a declared update, and the sweep commits many
//! of them at one visit of a block. The collector reads nothing: a visitor sees each block while
//! the sweep has it in memory. (Sungem thesis, section 3.3.2.)
//!
//! A cell is 0 if there is no such object, else 1 more than the number of its references. So a cell
//! of 1 is garbage, which the visitor hands to the collector. That clears the cell, and puts it on
//! the list of free ones.
//!
//! The program keeps an independent model of all objects and ends with status 1 unless
//! - no object was collected that the model refers to, and every other one was;
//! - the array has as many cells that are not zero as the model has objects;
//! - a random thousand of objects, of free cells and of cells without an object hold what the model
//!   says.

#![expect(clippy::disallowed_methods, reason = "an example is a program: it tells the time")]
#![expect(clippy::disallowed_types, reason = "the visitor runs on the threads of the store")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytesize::ByteSize;
use clap::Parser;
use upsweep::{Array, CreateOptions, Durability, OpenOptions, Store, Ticket};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Updates of one batch, which is one log record.
const BATCH: usize = 1000;
/// Blocks of a run of the sweep, at most.
const RUN_BLOCKS: usize = 256;
/// Cells of each sort that are checked one by one at the end.
const SAMPLE: usize = 1000;
/// What a cell holds whose object has no references.
const GARBAGE: i64 = 1;

fn main() -> Outcome<()> {
    let options = Options::parse();
    match &options.store {
        Some(path) => demonstrate(&options, path),
        None => {
            let work = tempfile::Builder::new().prefix("upsweep-references-").tempdir()?;
            demonstrate(&options, &work.path().join("store"))?;
            Ok(work.close()?)
        }
    }
}

fn say(text: impl Display) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Counts references to objects in a sparse array of 10^9 cells, and collects the garbage
#[derive(Parser)]
struct Options {
    /// Memory of the store: the more, the more updates each visit of a block applies
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory: ByteSize,
    /// Updates of reference counts
    #[arg(long, value_name = "COUNT", default_value_t = 4_000_000)]
    updates: u64,
    /// Cells of the array over which the objects are spread
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000_000,
          value_parser = clap::value_parser!(u64).range(1..1 << 48))]
    cells: u64,
    /// Seed of the random choices: equal seeds make equal updates
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Where the store goes, and stays; otherwise in a temporary folder, removed at the end
    #[arg(long, value_name = "FOLDER")]
    store: Option<PathBuf>,
}

/// Random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// All objects, and how many references each has.
#[derive(Default)]
struct Model {
    references: BTreeMap<u64, u64>,
    /// Objects with references, in no order.
    alive: Vec<u64>,
}

impl Model {
    /// Changes the references of a random object, or makes a new one: cell and amount to add.
    fn step(&mut self, random: &mut Random, cells: u64) -> (u64, i64) {
        if self.alive.is_empty() || random.below(3) == 0 {
            // There are more cells than updates, so one of them was never used.
            let mut index = random.below(cells);
            while self.references.contains_key(&index) {
                index = random.below(cells);
            }
            self.references.insert(index, 1);
            self.alive.push(index);
            return (index, GARBAGE + 1);
        }
        let is_loss = random.below(100) < 55;
        let chosen = random.below(self.alive.len() as u64) as usize;
        let index = self.alive[chosen];
        let references = self.references.get_mut(&index).expect("what is alive has a count");
        if !is_loss {
            *references += 1;
            return (index, 1);
        }
        *references -= 1;
        if *references == 0 {
            self.alive.swap_remove(chosen);
        }
        (index, -1)
    }
}

/// Takes what the visitor finds, and frees it.
struct Collector {
    found: Arc<Mutex<Vec<u64>>>,
    /// Cells whose object is gone.
    free: BTreeSet<u64>,
}

impl Collector {
    fn start(counts: &Array<i64>) -> Outcome<Self> {
        let found: Arc<Mutex<Vec<u64>>> = Arc::default();
        let sees = Arc::clone(&found);
        counts.set_visitor(move |first, cells| {
            let garbage = (first..).zip(cells).filter(|(_, cell)| *cell == GARBAGE);
            let mut garbage = garbage.map(|(index, _)| index).peekable();
            if garbage.peek().is_some() {
                sees.lock().unwrap_or_else(PoisonError::into_inner).extend(garbage);
            }
        })?;
        Ok(Self { found, free: BTreeSet::new() })
    }

    /// Clears the cells of the garbage that was found. A block may be visited again before that is
    /// committed, so garbage may be found twice.
    fn collect(&mut self, counts: &Array<i64>, model: &Model) -> Outcome<()> {
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        for index in found {
            if self.free.insert(index) {
                if model.references.get(&index) != Some(&0) {
                    return Err(format!("cell {index} was collected, and has references").into());
                }
                drop(counts.clear(index)?);
            }
        }
        Ok(())
    }
}

fn demonstrate(options: &Options, path: &Path) -> Outcome<()> {
    if options.cells < options.updates {
        return Err("give at least as many cells as updates: each may make an object".into());
    }
    let memory_bytes = usize::try_from(options.memory.as_u64())?;
    let log = CreateOptions::default().log_bytes(512 << 20);
    // Images of a sparse array are short, so a run takes more of them than usual.
    let open = OpenOptions::default().memory_bytes(memory_bytes).run_blocks_max(RUN_BLOCKS);
    let store = Store::builder().options(open).create(path, &log)?;
    let counts = store.array::<i64>("references")?.with_durability(Durability::Ticket);
    let mut collector = Collector::start(&counts)?;
    let (mut model, mut random) = (Model::default(), Random(options.seed));
    say(format_args!(
        "{} updates of an array of {} cells, {} of memory",
        options.updates, options.cells, options.memory
    ))?;
    let started = Instant::now();
    let mut last: Option<Ticket> = None;
    let mut left = options.updates;
    while left > 0 {
        let mut batch = store.batch();
        for _ in 0..left.min(BATCH as u64) {
            let (index, amount) = model.step(&mut random, options.cells);
            batch.add(&counts, &index, amount);
        }
        left -= batch.len() as u64;
        last = Some(batch.commit(Durability::Ticket)?);
        collector.collect(&counts, &model)?;
    }
    if let Some(last) = last {
        last.wait()?;
    }
    let seconds = started.elapsed().as_secs_f64();
    let rate = options.updates as f64 / seconds;
    say(format_args!("  {rate:.0} durable updates a second, for {seconds:.1} s"))?;
    // The first sweep shows the collector what is left, the second commits what it has cleared.
    for _ in 0..2 {
        store.sweep()?;
        collector.collect(&counts, &model)?;
    }
    report(&store, &collector, &model, started)?;
    check(options, &store, &counts, &collector, &model)
}

fn report(store: &Store, collector: &Collector, model: &Model, started: Instant) -> Outcome<()> {
    let status = store.status();
    let (objects, free) = (model.references.len(), collector.free.len());
    let seconds = started.elapsed().as_secs_f64();
    say(format_args!("  all in their blocks after {seconds:.1} s"))?;
    let degree = status.sweep.batching_degree;
    say(format_args!("  {degree:.1} updates at a visit of a block (batching degree)"))?;
    let (space, directory) = (ByteSize(status.data_bytes), ByteSize(status.memory.directory));
    let blocks = status.blocks;
    say(format_args!("  {blocks} blocks take {space}, their directory {directory} of memory"))?;
    let written = ByteSize(status.metrics.sweep_written_bytes_total);
    say(format_args!("  the sweep wrote {written}"))?;
    say(format_args!("  {objects} objects made, {free} of them collected"))
}

fn check(
    options: &Options,
    store: &Store,
    counts: &Array<i64>,
    collector: &Collector,
    model: &Model,
) -> Outcome<()> {
    if let Some(message) = counts.visitor_panic() {
        return Err(format!("the visitor panicked: {message}").into());
    }
    if let Some(refused) = store.quarantined()?.first() {
        return Err(format!("an update was refused: {}", refused.reason).into());
    }
    let garbage = model.references.iter().filter(|(_, references)| **references == 0);
    let missed = garbage.filter(|(index, _)| !collector.free.contains(index)).count();
    if missed > 0 {
        return Err(format!("{missed} objects without references were not collected").into());
    }
    let alive = (model.references.len() - collector.free.len()) as u64;
    let stored = store.structures().first().map_or(0, |(_, _, size)| size.records);
    if stored != alive {
        return Err(format!("{stored} cells are not zero, for {alive} objects").into());
    }
    say(format_args!("  the collector found all garbage, and {alive} cells are not zero"))?;
    let mut random = Random(!options.seed);
    let check = |index: u64| -> Outcome<()> {
        let references = model.references.get(&index).copied().unwrap_or(0);
        let wanted = if references == 0 { 0 } else { GARBAGE + i64::try_from(references)? };
        let found = counts.get(index)?;
        let differs = || format!("cell {index} is {found}, and should be {wanted}");
        if found == wanted { Ok(()) } else { Err(differs().into()) }
    };
    let free: Vec<u64> = collector.free.iter().copied().collect();
    for _ in 0..SAMPLE {
        for some in [&model.alive, &free].into_iter().filter(|some| !some.is_empty()) {
            check(some[random.below(some.len() as u64) as usize])?;
        }
        check(random.below(options.cells))?;
    }
    say(format_args!("  {} cells hold what the model says", 3 * SAMPLE))
}
