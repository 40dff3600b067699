//! LMDB through heed: a memory-mapped copy-on-write B+ tree with one writer.
//!
//! Configuration, and why:
//! - it has no cache of its own: the page cache, that is all of the limit, is its cache;
//! - no read-ahead (`NORDAHEAD`): accesses are random and the data is larger than memory;
//! - a map four times the data, so that it never has to grow;
//! - one writer: callers share commits (group commit), and the updates of a commit go in key order,
//!   so that neighbours share pages. Before a caller joins it reads its keys, those of a batch by
//!   eight threads, so that the device is busy and the writer finds the pages in memory;
//! - durable: a commit writes pages, then the root, and waits for both;
//! - relaxed: `NOSYNC` (after a crash of the machine the file is sound only if the file system
//!   keeps the order of writes), made durable every 250 ms by a thread;
//! - loaded in key order by `APPEND`.

use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, PutFlags, WithoutTls};

use super::Entry;
use super::changes::{by_key, changed, needs_current};
use super::fetch::fetch_before_commit;
use super::group::{Background, Group, RELAXED_PERIOD};
use crate::engine::{Batch, Config, Durability, Engine, Records, Scanned, Update, counter};
use crate::failure::Failure;

pub(super) const ENTRY: Entry = Entry {
    name: "lmdb",
    open,
    room_factor: 1.5,
    configuration: "all of the limit as page cache, no read-ahead, group commit in key order, \
                    pages read by all callers at once; relaxed: NOSYNC and a sync every 250 ms",
};

/// Records of a transaction while loading.
const LOAD_RECORDS: usize = 200_000;

struct Lmdb {
    /// Drops first: its thread uses the environment.
    _background: Option<Background>,
    env: Env<WithoutTls>,
    records: Database<'static, Bytes, Bytes>,
    group: Group<Batch>,
}

fn open(folder: &Path, config: &Config) -> Result<Box<dyn Engine>, Failure> {
    let map_bytes = (config.data_bytes * 4).next_multiple_of(1 << 20) + (4 << 30);
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(usize::try_from(map_bytes).unwrap_or(usize::MAX)).max_readers(256);
    let mut flags = EnvFlags::NO_READ_AHEAD;
    if config.durability == Durability::Relaxed {
        flags |= EnvFlags::NO_SYNC;
    }
    // SAFETY: NOSYNC loses no more than the newest commits when the process alone ends, and stores
    // that outlive a crash of the machine are not used; the other flag changes no promise.
    unsafe { options.flags(flags) };
    // SAFETY: the file is in a folder of this process's own, so that nobody else changes it while
    // it is mapped.
    let env = unsafe { options.open(folder) }.map_err(Failure::engine)?;
    let transaction = env.write_txn().map_err(Failure::engine)?;
    let records = env
        .create_databases_and_commit(transaction, |opener, transaction| {
            opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
        })
        .map_err(Failure::engine)?
        .unwrap_commit();
    let background = (config.durability == Durability::Relaxed).then(|| {
        let env = env.clone();
        Background::every(RELAXED_PERIOD, move || env.force_sync().is_ok())
    });
    Ok(Box::new(Lmdb { _background: background, env, records, group: Group::new() }))
}

impl Lmdb {
    fn commit(&self, updates: &mut [Update<'_>]) -> Result<(), heed::Error> {
        let mut transaction = self.env.write_txn()?;
        for group in by_key(updates) {
            let key = group[0].key;
            let current =
                if needs_current(group) { self.records.get(&transaction, key)? } else { None };
            match changed(group, current) {
                Some(value) => self.records.put(&mut transaction, key, &value)?,
                None => drop(self.records.delete(&mut transaction, key)?),
            }
        }
        transaction.commit()
    }
}

impl Engine for Lmdb {
    fn load(&self, records: Records<'_>) -> Result<(), Failure> {
        let mut records = records.peekable();
        while records.peek().is_some() {
            let mut transaction = self.env.write_txn().map_err(Failure::engine)?;
            for (key, value) in records.by_ref().take(LOAD_RECORDS) {
                self.records
                    .put_with_flags(&mut transaction, PutFlags::APPEND, &key, &value)
                    .map_err(Failure::engine)?;
            }
            transaction.commit().map_err(Failure::engine)?;
        }
        self.quiesce()
    }

    fn apply(&self, updates: &[Update<'_>], _: Durability) -> Result<(), Failure> {
        fetch_before_commit(updates, |key| drop(self.get(key)));
        self.group.apply(
            |all| all.extend(updates),
            |all| self.commit(&mut all.updates()).map_err(Failure::engine),
        )
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>, Failure> {
        let transaction = self.env.read_txn().map_err(Failure::engine)?;
        let value = self.records.get(&transaction, key).map_err(Failure::engine)?;
        Ok(value.map(counter))
    }

    fn scan(&self, from: &[u8], count: u64) -> Result<Scanned, Failure> {
        let transaction = self.env.read_txn().map_err(Failure::engine)?;
        let mut scanned = Scanned::default();
        // LMDB knows no empty key.
        let from = if from.is_empty() { &[0] } else { from };
        let range = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
        let records = self.records.range(&transaction, &range).map_err(Failure::engine)?;
        for record in records.take(usize::try_from(count).unwrap_or(usize::MAX)) {
            scanned.add(record.map_err(Failure::engine)?.1);
        }
        Ok(scanned)
    }

    fn quiesce(&self) -> Result<(), Failure> {
        self.env.force_sync().map_err(Failure::engine)
    }
}
