//! redb: a copy-on-write B+ tree with one writer and a cache of its own.
//!
//! Configuration, and why:
//! - three eighths of the limit as its cache: the heap takes up to twice that, and it reads through
//!   the page cache, which has the rest;
//! - one writer: callers share commits (group commit), and the updates of a commit go in key order,
//!   so that neighbours share pages. Before a caller joins it reads its keys, those of a batch by
//!   eight threads, so that the device is busy and the writer finds the pages in memory;
//! - durable: commits of one phase, its default, which is sound and needs one sync;
//! - relaxed: commits without durability, and one with it every 250 ms by a thread, which also lets
//!   their pages be used again;
//! - no quick repair: it would make every commit slower; so an open after a kill reads everything;
//! - loaded in key order in large transactions; it has no bulk load.

use std::path::Path;
use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::Entry;
use super::changes::{by_key, changed, needs_current};
use super::fetch::fetch_before_commit;
use super::group::{Background, Group, RELAXED_PERIOD};
use crate::engine::{
    Batch, Config, Durability, Engine, Records, Scanned, Update, VALUE_BYTES, Value, counter,
};
use crate::failure::Failure;

pub(super) const ENTRY: Entry = Entry {
    name: "redb",
    open,
    room_factor: 4.0,
    configuration: "three eighths of the limit as cache, group commit in key order; relaxed: \
                    commits without durability and one with it every 250 ms",
};

const RECORDS: TableDefinition<'_, &[u8], [u8; VALUE_BYTES]> = TableDefinition::new("records");
/// Records of a transaction while loading.
const LOAD_RECORDS: usize = 200_000;

struct Redb {
    /// Drops first: its thread uses the database.
    _background: Option<Background>,
    database: Arc<Database>,
    group: Group<Batch>,
}

fn open(folder: &Path, config: &Config) -> Result<Box<dyn Engine>, Failure> {
    let cache_bytes = usize::try_from(config.memory_bytes / 8 * 3).unwrap_or(usize::MAX);
    let database = Database::builder()
        .set_cache_size(cache_bytes)
        .create(folder.join("records.redb"))
        .map_err(Failure::engine)?;
    let database = Arc::new(database);
    let background = (config.durability == Durability::Relaxed).then(|| {
        let database = Arc::clone(&database);
        Background::every(RELAXED_PERIOD, move || make_durable(&database).is_ok())
    });
    let redb = Redb { _background: background, database, group: Group::new() };
    redb.commit(&mut [], Durability::Durable).map_err(Failure::engine)?;
    Ok(Box::new(redb))
}

/// A commit that makes all those before it durable.
fn make_durable(database: &Database) -> Result<(), redb::Error> {
    Ok(database.begin_write()?.commit()?)
}

impl Redb {
    fn commit(
        &self,
        updates: &mut [Update<'_>],
        durability: Durability,
    ) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        if durability == Durability::Relaxed {
            transaction.set_durability(redb::Durability::None)?;
        }
        let mut table = transaction.open_table(RECORDS)?;
        for group in by_key(updates) {
            let key = group[0].key;
            let current: Option<Value> = if needs_current(group) {
                table.get(key)?.map(|found| found.value())
            } else {
                None
            };
            match changed(group, current.as_ref().map(Value::as_slice)) {
                Some(value) => drop(table.insert(key, value)?),
                None => drop(table.remove(key)?),
            }
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn load_some(
        &self,
        records: &mut dyn Iterator<Item = (Vec<u8>, Value)>,
    ) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(redb::Durability::Immediate)?;
        let mut table = transaction.open_table(RECORDS)?;
        for (key, value) in records {
            table.insert(key.as_slice(), value)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn read(&self, key: &[u8]) -> Result<Option<u64>, redb::Error> {
        let table = self.database.begin_read()?.open_table(RECORDS)?;
        Ok(table.get(key)?.map(|found| counter(&found.value())))
    }

    fn sum(&self, from: &[u8], count: u64) -> Result<Scanned, redb::Error> {
        let table = self.database.begin_read()?.open_table(RECORDS)?;
        let mut scanned = Scanned::default();
        let records = table.range(from..)?;
        for record in records.take(usize::try_from(count).unwrap_or(usize::MAX)) {
            scanned.add(&record?.1.value());
        }
        Ok(scanned)
    }
}

impl Engine for Redb {
    fn load(&self, records: Records<'_>) -> Result<(), Failure> {
        let mut records = records.peekable();
        while records.peek().is_some() {
            self.load_some(&mut records.by_ref().take(LOAD_RECORDS)).map_err(Failure::engine)?;
        }
        Ok(())
    }

    fn apply(&self, updates: &[Update<'_>], durability: Durability) -> Result<(), Failure> {
        fetch_before_commit(updates, |key| drop(self.get(key)));
        self.group.apply(
            |all| all.extend(updates),
            |all| self.commit(&mut all.updates(), durability).map_err(Failure::engine),
        )
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>, Failure> {
        self.read(key).map_err(Failure::engine)
    }

    fn scan(&self, from: &[u8], count: u64) -> Result<Scanned, Failure> {
        self.sum(from, count).map_err(Failure::engine)
    }

    fn quiesce(&self) -> Result<(), Failure> {
        make_durable(&self.database).map_err(Failure::engine)
    }
}
