//! What runs beside a scan: threads that ask for single records, and threads that update them.

use std::thread;
use std::time::Instant;

use hdrhistogram::Histogram;
use upsweep::{Durability, Store, Table};

use super::key;
use crate::bench::{Latencies, Random};
use crate::failure::Failure;

/// Queries of the part of the table that the cache can hold, in per cent.
const HOT_PERCENT: u64 = 90;
/// Updates of a call, one atomic batch.
const UPDATES_PER_CALL: u64 = 64;

/// What the threads work on.
pub(super) struct Beside<'a> {
    pub(super) store: &'a Store,
    pub(super) table: &'a Table,
    pub(super) records: u64,
    /// Records, from the first on, that most queries are of.
    pub(super) hot: u64,
}

/// What a phase has counted.
pub(super) struct Ended<T> {
    /// The outcome of the main thread.
    pub(super) main: T,
    /// Times of queries in nanoseconds.
    pub(super) queries: Histogram<u64>,
    pub(super) updates: u64,
}

impl Beside<'_> {
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
        let random = |place: u64| Random::new(seed.wrapping_add(place << 32));
        thread::scope(|scope| {
            let asking: Vec<_> =
                (0..queries).map(|at| scope.spawn(move || self.ask(until, random(at)))).collect();
            let updating: Vec<_> = (queries..queries + updates)
                .map(|at| scope.spawn(move || self.update(until, random(at))))
                .collect();
            let mut ended = Ended { main: main()?, queries: Latencies::empty(), updates: 0 };
            for thread in asking {
                let asked = thread.join().map_err(|_| panicked())??;
                ended.queries.add(asked).expect("both have the same bounds");
            }
            for thread in updating {
                ended.updates += thread.join().map_err(|_| panicked())??;
            }
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
                batch.put(self.table, &key(random.below(self.records)), &value);
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
