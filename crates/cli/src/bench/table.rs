//! A table larger than the memory, and what is measured on it: a scan, threads that ask for single
//! records, and threads that update them.

use std::path::Path;
use std::thread;
use std::time::Instant;

use hdrhistogram::Histogram;
use upsweep::{
    CreateOptions, Durability, LoadOptions, OpenOptions, Status, Store, Table, ValueKind, ValueRef,
};

use super::{Latencies, Random, note};
use crate::args::TableArgs;
use crate::failure::Failure;
use crate::text;

/// The table.
const NAME: &str = "table";
/// Bytes of a key.
pub(super) const KEY_BYTES: u64 = 8;
/// Records between two looks of a scan at the time.
const RECORDS_PER_LOOK: u64 = 1024;

/// Most queries are of records whose images take this part of the memory: the cache can hold them
/// even when all other memory is in use.
const HOT_PART: u64 = 16;
/// Queries of these records, in per cent.
const HOT_PERCENT: u64 = 90;
/// Updates of a call, one atomic batch.
const UPDATES_PER_CALL: u64 = 64;

/// The key of a record, in the order of numbers.
fn key(number: u64) -> [u8; KEY_BYTES as usize] {
    number.to_be_bytes()
}

impl TableArgs {
    /// The options of the store but for what is measured.
    pub(super) fn options(&self) -> OpenOptions {
        OpenOptions::default().memory_bytes(self.memory.in_memory())
    }

    /// Makes the store with its table, and closes it; returns its state before that.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn load(&self, path: &Path) -> Result<Status, Failure> {
        note(&format!("loading {} records", text::count(self.records)));
        let options = CreateOptions::default().log_bytes(self.log_size.0);
        let store = Store::builder().options(self.options()).create(path, &options)?;
        let mut value = vec![b'.'; self.value_bytes as usize];
        value[..8].fill(0);
        let record = |number| Ok((key(number), ValueRef { kind: ValueKind::Bytes, bytes: &value }));
        store.table(NAME)?.load((0..self.records).map(record), LoadOptions::default())?;
        let status = store.status();
        store.close()?;
        Ok(status)
    }
}

/// The table, open.
pub(super) struct Bench {
    pub(super) store: Store,
    table: Table,
    records: u64,
    pub(super) blocks: u64,
    /// Bytes of the images of all blocks.
    pub(super) image_bytes: u64,
    /// Records, from the first on, that most queries are of.
    hot: u64,
}

/// What a phase has counted.
pub(super) struct Ended<T> {
    /// What the main thread has counted.
    pub(super) main: T,
    pub(super) seconds: f64,
    /// Times of queries in nanoseconds.
    pub(super) queries: Histogram<u64>,
    pub(super) updates: u64,
}

impl Bench {
    /// Opens the store in this folder.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn open(
        args: &TableArgs,
        path: &Path,
        options: OpenOptions,
    ) -> Result<Self, Failure> {
        let store = Store::builder().options(options).open(path)?;
        let table = store.existing_table(NAME)?;
        let size = store.tables().into_iter().map(|(_, size)| size).next().unwrap_or_default();
        let (records, blocks, image_bytes) = (args.records, size.blocks, size.bytes);
        let bytes_per_record = image_bytes as f64 / records as f64;
        let hot = ((args.memory.0 / HOT_PART) as f64 / bytes_per_record) as u64;
        Ok(Self { store, table, records, blocks, image_bytes, hot: hot.clamp(1, records) })
    }

    /// Bytes of images, in 10^6, in which so many records lie.
    pub(super) fn megabytes(&self, records: f64) -> f64 {
        records * self.image_bytes as f64 / self.records as f64 / 1e6
    }

    /// Scans until that time, again and again; returns the number of records.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn scan(&self, until: Instant) -> Result<u64, Failure> {
        let mut records = 0;
        loop {
            for record in self.table.iter() {
                std::hint::black_box(record?);
                records += 1;
                if records % RECORDS_PER_LOOK == 0 && Instant::now() >= until {
                    return Ok(records);
                }
            }
            if Instant::now() >= until {
                return Ok(records);
            }
        }
    }

    /// Runs `main`, and so many threads with queries and with updates, until that time.
    ///
    /// # Errors
    /// The first error of any of them.
    pub(super) fn run<T>(
        &self,
        until: Instant,
        (queries, updates): (u64, u64),
        seed: u64,
        main: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<Ended<T>, Failure> {
        let began = Instant::now();
        let random = |place: u64| Random::new(seed.wrapping_add(place << 32));
        thread::scope(|scope| {
            let asking: Vec<_> =
                (0..queries).map(|at| scope.spawn(move || self.ask(until, random(at)))).collect();
            let updating: Vec<_> = (queries..queries + updates)
                .map(|at| scope.spawn(move || self.update(until, random(at))))
                .collect();
            let (main, queries) = (main()?, Latencies::empty());
            let mut ended = Ended { main, seconds: 0.0, queries, updates: 0 };
            for thread in asking {
                let asked = thread.join().map_err(|_| panicked())??;
                ended.queries.add(asked).expect("both have the same bounds");
            }
            for thread in updating {
                ended.updates += thread.join().map_err(|_| panicked())??;
            }
            ended.seconds = began.elapsed().as_secs_f64().max(1e-9);
            Ok(ended)
        })
    }

    fn ask(&self, until: Instant, mut random: Random) -> Result<Histogram<u64>, Failure> {
        let mut times = Latencies::empty();
        loop {
            let is_hot = random.below(100) < HOT_PERCENT;
            let number = random.below(if is_hot { self.hot } else { self.records });
            let before = Instant::now();
            std::hint::black_box(self.table.get(&key(number))?);
            let now = Instant::now();
            let took = u64::try_from((now - before).as_nanos()).unwrap_or(u64::MAX);
            times.saturating_record(took);
            if now >= until {
                return Ok(times);
            }
        }
    }

    fn update(&self, until: Instant, mut random: Random) -> Result<u64, Failure> {
        let mut updates = 0;
        let mut value = self.table.get(&key(0))?.map(|value| value.bytes).unwrap_or_default();
        loop {
            let mut batch = self.store.batch();
            for _ in 0..UPDATES_PER_CALL {
                value[..8].copy_from_slice(&random.next().to_le_bytes());
                batch.put(&self.table, &key(random.below(self.records)), &value);
            }
            batch.commit(Durability::Relaxed)?;
            updates += UPDATES_PER_CALL;
            if Instant::now() >= until {
                return Ok(updates);
            }
        }
    }
}

fn panicked() -> Failure {
    Failure::Refused("a thread panicked".to_owned())
}
