//! Continuous data protection: keeps every version of every block of a volume, and answers where
//! a block was at any time.
//!
//!     cargo run --release --example versions -- --help
//!
//! A map from (block number, time) to location. Both numbers of the key are big-endian, so all
//! versions of a block stand together, oldest first. A write adds a version and never reads. "Where
//! was block b as of time t" is the last key from (b, 0) to (b, t): one seek, and one record of a
//! reverse scan.
//!
//! The program writes random blocks while time goes by, then asks about random blocks and times. A
//! model in memory, which shares nothing with the store, knows every answer; one wrong answer ends
//! the program with status 1.

#![expect(clippy::disallowed_methods, reason = "an example is a program: it tells the time")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytesize::ByteSize;
use clap::Parser;
use upsweep::{CreateOptions, Durability, Error, Store, Table, Ticket};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Keeps every version of every block, and answers as of any time
#[derive(Parser)]
struct Options {
    /// Block writes
    #[arg(long, value_name = "N", default_value_t = 2_000_000)]
    writes: u64,
    /// Blocks of the volume
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    blocks: u64,
    /// Questions about random blocks and times
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    queries: u64,
    /// Memory of the store: less than the map takes
    #[arg(long, value_name = "SIZE", default_value = "24MiB")]
    memory: ByteSize,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Make the store here and keep it; without it, it is in a temporary folder and removed
    #[arg(long, value_name = "FOLDER")]
    store: Option<PathBuf>,
}

fn main() -> Outcome<()> {
    let options = Options::parse();
    if let Some(path) = &options.store {
        return run(&options, path);
    }
    let folder = tempfile::tempdir()?;
    let outcome = run(&options, &folder.path().join("store"));
    let removed = folder.close();
    outcome?;
    Ok(removed?)
}

fn run(options: &Options, path: &Path) -> Outcome<()> {
    let memory_bytes = usize::try_from(options.memory.as_u64())?;
    let log = CreateOptions::default().log_bytes(128 << 20);
    let store = Store::builder().memory_bytes(memory_bytes).create(path, &log)?;
    let versions = Versions::of(&store)?;
    let mut model = Model::new(options.blocks);
    let mut random = Random(options.seed);

    let began = Instant::now();
    let mut last = None;
    for time in 1..=options.writes {
        let (block, location) = (random.below(options.blocks), random.next());
        last = Some(versions.write(block, time, location)?);
        model.write(block, time, location);
    }
    // A ticket covers every change before it.
    last.map_or(Ok(()), |ticket| ticket.wait())?;
    let writing = began.elapsed().as_secs_f64();
    store.sweep()?;
    let swept = began.elapsed().as_secs_f64();

    let before = store.metrics();
    let began = Instant::now();
    for _ in 0..options.queries {
        let (block, time) = (random.below(options.blocks), random.below(options.writes + 1));
        let (found, wanted) = (versions.as_of(block, time)?, model.as_of(block, time));
        if found != wanted {
            let question = format!("block {block} as of {time}");
            return Err(format!("{question}: {found:?} in the store, not {wanted:?}").into());
        }
    }
    let asking = began.elapsed().as_secs_f64();
    let after = store.metrics();

    let (writes, queries) = (options.writes as f64, options.queries as f64);
    let reads = (after.query_seconds.count - before.query_seconds.count) as f64;
    let (data, memory) = (ByteSize(store.status().data_bytes), options.memory);
    say(&format!("the map takes {data}, the store had {memory} of memory"))?;
    say(&format!(
        "writes     {:.0} a second until durable, {:.0} with the sweep; {:.1} bytes written each",
        writes / writing.max(1e-9),
        writes / swept.max(1e-9),
        before.written_bytes_per_update()
    ))?;
    say(&format!(
        "questions  {:.0} a second, {:.2} device reads each; all {queries:.0} answers are right",
        queries / asking.max(1e-9),
        reads / queries.max(1.0)
    ))
}

/// The map in a store.
struct Versions {
    table: Table,
}

impl Versions {
    fn of(store: &Store) -> Result<Self, Error> {
        // Writes return at once; whoever needs one on stable media waits for its ticket.
        Ok(Self { table: store.table("versions")?.with_durability(Durability::Ticket) })
    }

    /// Block `block` is at `location` from `time` on.
    fn write(&self, block: u64, time: u64, location: u64) -> Result<Ticket, Error> {
        self.table.put(&key(block, time), &location.to_be_bytes())
    }

    /// Where `block` was at `time`; `None` if it was not written yet.
    fn as_of(&self, block: u64, time: u64) -> Outcome<Option<u64>> {
        let up_to_then = key(block, 0)..=key(block, time);
        let Some(youngest) = self.table.scan(up_to_then).next_back() else { return Ok(None) };
        let (_, location) = youngest?;
        Ok(Some(u64::from_be_bytes(location.bytes.as_slice().try_into()?)))
    }
}

fn key(block: u64, time: u64) -> [u8; 16] {
    ((u128::from(block) << 64) | u128::from(time)).to_be_bytes()
}

/// The same in memory: times and locations of each block, in the order of time.
struct Model {
    blocks: Vec<Vec<(u64, u64)>>,
}

impl Model {
    fn new(blocks: u64) -> Self {
        Self { blocks: (0..blocks).map(|_| Vec::new()).collect() }
    }

    fn write(&mut self, block: u64, time: u64, location: u64) {
        self.blocks[block as usize].push((time, location));
    }

    fn as_of(&self, block: u64, time: u64) -> Option<u64> {
        let versions = &self.blocks[block as usize];
        let later = versions.partition_point(|(written, _)| *written <= time);
        later.checked_sub(1).map(|youngest| versions[youngest].1)
    }
}

/// Random numbers, the same for the same seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

fn say(text: &str) -> Outcome<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}
