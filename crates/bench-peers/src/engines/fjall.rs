//! fjall: an LSM tree in Rust. It has no merge operator, so an increment is a get and a put.
//!
//! Configuration by default, and why:
//! - memtables of a sixteenth of the limit: the default of 64 MiB does not fit, for up to five are
//!   there at once and take half as much again as fjall counts (with an eighth it was killed);
//! - a block cache of a quarter (the default is 32 MiB). It reads and writes through the page
//!   cache, which has the rest;
//! - partitioned index and filters: whole ones, which is the default for tables that are ingested,
//!   outgrow the limit (with 64 callers it was killed);
//! - all else at its defaults.
//!
//! Beyond that if tuned, and why:
//! - no filters at the last level (`expect_point_read_hits`): what is read is there;
//! - a journal of twice the limit, 64 MiB at least, instead of 512 MiB.
//!
//! In both:
//! - no compression: values do not compress, and it is built without;
//! - durable: the journal is synchronised once for all callers that wait for it (group commit);
//!   relaxed: the journal goes to the page cache with every write, its default;
//! - read-modify-write under locks of the application, one for each of many parts of the keys; a
//!   batch reads its records by eight threads before it changes them;
//! - loaded by its ingestion, straight into the last level.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use fjall::config::PartitioningPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::Entry;
use super::changes::{by_key, changed, needs_current};
use super::fetch::fetch;
use super::group::Group;
use super::lsm::Tree;
use super::stripes::Stripes;
use crate::engine::{
    Config, Durability, Engine, Records, Scanned, Turns, Update, VALUE_BYTES, counter,
};
use crate::failure::Failure;

pub(super) const ENTRY: Entry = Entry {
    name: "fjall",
    open: |folder, config| open(folder, config, false),
    room_factor: 1.8,
    configuration: "memtables of a sixteenth of the limit (the default of 64 MiB does not fit, for \
                    up to five are there at once), a block cache of a quarter, partitioned index \
                    and filters (whole ones, the default for ingested tables, do not fit); all \
                    else at its defaults; group commit of the journal, read-modify-write under \
                    locks of the application",
};

pub(super) const TUNED: Entry = Entry {
    name: "fjall-tuned",
    open: |folder, config| open(folder, config, true),
    room_factor: 1.8,
    configuration: "as fjall, but without filters at the last level and with a journal of twice \
                    the limit (64 MiB at least)",
};

/// Memtables that there are at most: one that is written to, and four that wait to be flushed.
const MEMTABLES: u64 = 5;
/// Bytes of an entry of a memtable beside its key and its value, as fjall counts them.
const ENTRY_BYTES: usize = 64;
/// Bytes of an entry of a file beside them, about: sequence number and lengths.
const STORED_ENTRY_BYTES: usize = 8;
/// Smallest size of all journals that fjall takes.
const JOURNAL_BYTES_MIN: u64 = 64 << 20;
/// Time between two looks whether it is at rest.
const PAUSE: Duration = Duration::from_millis(10);
/// Looks in a row that must find it at rest.
const LOOKS: u32 = 5;

struct Fjall {
    database: Database,
    records: Keyspace,
    stripes: Stripes,
    group: Group<()>,
    tree: Tree,
}

fn open(folder: &Path, config: &Config, is_tuned: bool) -> Result<Box<dyn Engine>, Failure> {
    let (memory_bytes, memtable_bytes) = (config.memory_bytes, config.memory_bytes / 16);
    let mut builder = Database::builder(folder.join("db")).cache_size(memory_bytes / 4);
    if is_tuned {
        let journal_bytes = (memory_bytes * 2).max(JOURNAL_BYTES_MIN);
        builder = builder.max_journaling_size(journal_bytes);
    }
    let database = builder.open().map_err(Failure::engine)?;
    let options = || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(memtable_bytes)
            .expect_point_read_hits(is_tuned)
            .index_block_partitioning_policy(PartitioningPolicy::all(true))
            .filter_block_partitioning_policy(PartitioningPolicy::all(true))
    };
    let records = database.keyspace("records", options).map_err(Failure::engine)?;
    let entry_bytes = usize::from(config.key_bytes) + VALUE_BYTES;
    let tree = Tree {
        buffer_bytes: memtable_bytes * MEMTABLES,
        buffered_bytes: (entry_bytes + ENTRY_BYTES) as u64,
        data_bytes: config.data_bytes,
        stored_bytes: (entry_bytes + STORED_ENTRY_BYTES) as u64,
    };
    let (stripes, group) = (Stripes::new(), Group::new());
    Ok(Box::new(Fjall { database, records, stripes, group, tree }))
}

impl Fjall {
    fn change(&self, updates: &[Update<'_>]) -> Result<(), fjall::Error> {
        let _locked = self.stripes.lock(updates);
        let mut updates = updates.to_vec();
        // An error shows again below.
        fetch(&updates, |key| drop(self.records.get(key)));
        let mut batch = self.database.batch();
        for group in by_key(&mut updates) {
            let key = group[0].key;
            let current = if needs_current(group) { self.records.get(key)? } else { None };
            match changed(group, current.as_deref()) {
                Some(value) => batch.insert(&self.records, key, value.as_slice()),
                None => batch.remove(&self.records, key),
            }
        }
        batch.commit()
    }

    fn is_at_rest(&self) -> bool {
        self.database.outstanding_flushes() == 0
            && self.database.active_compactions() == 0
            && self.records.sealed_memtable_count() == 0
    }
}

impl Engine for Fjall {
    fn load(&self, records: Records<'_>) -> Result<(), Failure> {
        let mut ingestion = self.records.start_ingestion().map_err(Failure::engine)?;
        for (key, value) in records {
            ingestion.write(key.as_slice(), value.as_slice()).map_err(Failure::engine)?;
        }
        ingestion.finish().map_err(Failure::engine)
    }

    fn apply(&self, updates: &[Update<'_>], durability: Durability) -> Result<(), Failure> {
        self.change(updates).map_err(Failure::engine)?;
        if durability == Durability::Relaxed {
            return Ok(());
        }
        let persist =
            |(): &()| self.database.persist(PersistMode::SyncData).map_err(Failure::engine);
        self.group.apply(|()| (), persist)
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>, Failure> {
        let value = self.records.get(key).map_err(Failure::engine)?;
        Ok(value.map(|value| counter(&value)))
    }

    fn scan(&self, from: &[u8], count: u64) -> Result<Scanned, Failure> {
        let mut scanned = Scanned::default();
        let records = self.records.range(from..);
        for record in records.take(usize::try_from(count).unwrap_or(usize::MAX)) {
            scanned.add(&record.into_inner().map_err(Failure::engine)?.1);
        }
        Ok(scanned)
    }

    fn quiesce(&self) -> Result<(), Failure> {
        self.records.rotate_memtable_and_wait().map_err(Failure::engine)?;
        let mut looks = 0;
        while looks < LOOKS {
            std::thread::sleep(PAUSE);
            looks = if self.is_at_rest() { looks + 1 } else { 0 };
        }
        self.database.persist(PersistMode::SyncAll).map_err(Failure::engine)
    }

    fn turns(&self, increments: u64) -> Option<Turns> {
        Some(self.tree.turns(increments))
    }

    fn statistics(&self) -> BTreeMap<String, f64> {
        let numbers = [
            ("tables", self.records.table_count() as f64),
            ("journals", self.database.journal_count() as f64),
            ("compactions", self.database.compactions_completed() as f64),
            ("compacting_seconds", self.database.time_compacting().as_secs_f64()),
        ];
        numbers.into_iter().map(|(name, number)| (name.to_owned(), number)).collect()
    }
}
