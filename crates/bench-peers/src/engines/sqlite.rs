//! SQLite, bundled: a B-tree with a write-ahead log and one writer.
//!
//! Configuration, and why:
//! - a table without row numbers, so that a record lies in one tree; the counter is a column of its
//!   own, so that an increment is one statement;
//! - a page cache of a quarter of the limit for the connection that writes, small ones for those
//!   that read; the rest is the system's page cache, of which both have use;
//! - one writer: callers share transactions (group commit), and updates go in key order, so that
//!   neighbours share pages. Before a caller joins it reads its keys, those of a batch by eight
//!   threads, so that the device is busy and the writer finds the pages in memory;
//! - `journal_mode` WAL, copied back when it has an eighth of the limit: rarely, and it stays in
//!   memory until then;
//! - durable: `synchronous` FULL, a sync of the log at each commit; relaxed: NORMAL, a sync before
//!   each copying back;
//! - loaded in key order in large transactions with `synchronous` OFF, then synchronised.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, params};

use super::Entry;
use super::fetch::fetch_before_commit;
use super::group::Group;
use crate::engine::{
    Batch, COUNTER_BYTES, Change, Config, Durability, Engine, Records, Scanned, Update,
    VALUE_BYTES, value,
};
use crate::failure::Failure;

pub(super) const ENTRY: Entry = Entry {
    name: "sqlite",
    open,
    room_factor: 2.2,
    configuration: "write-ahead log copied back at an eighth of the limit, a quarter of the limit \
                    as page cache of the writer, group commit in key order; durable: \
                    synchronous=FULL, relaxed: NORMAL",
};

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;
/// Records of a transaction while loading.
const LOAD_RECORDS: usize = 200_000;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS records \
     (key BLOB PRIMARY KEY, counter INTEGER NOT NULL, rest BLOB NOT NULL) WITHOUT ROWID";
const INCREMENT: &str = "INSERT INTO records VALUES (?1, 1, zeroblob(48)) \
     ON CONFLICT (key) DO UPDATE SET counter = counter + 1";
const PUT: &str = "INSERT OR REPLACE INTO records VALUES (?1, 0, ?2)";
const DELETE: &str = "DELETE FROM records WHERE key = ?1";
const GET: &str = "SELECT counter, rest FROM records WHERE key = ?1";
const SCAN: &str = "SELECT counter, rest FROM records WHERE key >= ?1 ORDER BY key LIMIT ?2";

struct Sqlite {
    file: PathBuf,
    config: Config,
    writer: Mutex<Connection>,
    /// Connections that nobody reads with just now.
    readers: Mutex<Vec<Connection>>,
    group: Group<Batch>,
}

fn open(folder: &Path, config: &Config) -> Result<Box<dyn Engine>, Failure> {
    let file = folder.join("records.sqlite");
    let writer = connect(&file, config, config.memory_bytes / 4).map_err(Failure::engine)?;
    writer.execute(TABLE, []).map_err(Failure::engine)?;
    let (writer, readers) = (Mutex::new(writer), Mutex::default());
    Ok(Box::new(Sqlite { file, config: *config, writer, readers, group: Group::new() }))
}

fn connect(file: &Path, config: &Config, cache_bytes: u64) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    let synchronous = if config.durability == Durability::Durable { "FULL" } else { "NORMAL" };
    connection.execute_batch(&format!(
        "PRAGMA page_size = {PAGE_BYTES}; PRAGMA journal_mode = WAL; \
         PRAGMA synchronous = {synchronous}; PRAGMA cache_size = -{}; \
         PRAGMA wal_autocheckpoint = {}; PRAGMA busy_timeout = 10000; PRAGMA temp_store = MEMORY",
        cache_bytes / 1024,
        config.memory_bytes / 8 / PAGE_BYTES,
    ))?;
    Ok(connection)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sqlite {
    fn commit(&self, updates: &mut [Update<'_>]) -> rusqlite::Result<()> {
        updates.sort_by_key(|update| update.key);
        let mut writer = lock(&self.writer);
        let transaction = writer.transaction()?;
        for update in updates {
            let key = update.key;
            match update.change {
                Change::Increment => transaction.prepare_cached(INCREMENT)?.execute([key])?,
                Change::Put(stamp) => {
                    let rest = &value(stamp)[COUNTER_BYTES..];
                    transaction.prepare_cached(PUT)?.execute(params![key, rest])?
                }
                Change::Delete => transaction.prepare_cached(DELETE)?.execute([key])?,
            };
        }
        transaction.commit()
    }

    fn fill(&self, records: Records<'_>) -> rusqlite::Result<()> {
        let mut writer = lock(&self.writer);
        writer.execute_batch("PRAGMA synchronous = OFF")?;
        let mut records = records.peekable();
        while records.peek().is_some() {
            let transaction = writer.transaction()?;
            let mut put = transaction.prepare_cached(PUT)?;
            for (key, value) in records.by_ref().take(LOAD_RECORDS) {
                put.execute(params![key, &value[COUNTER_BYTES..]])?;
            }
            drop(put);
            transaction.commit()?;
        }
        writer.execute_batch("PRAGMA synchronous = FULL")
    }

    /// Reads with a connection that nobody else uses meanwhile.
    fn read<T>(&self, body: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Failure> {
        let idle = lock(&self.readers).pop();
        let connect = || connect(&self.file, &self.config, self.config.memory_bytes / 256);
        let connection = idle.map_or_else(connect, Ok).map_err(Failure::engine)?;
        let found = body(&connection).map_err(Failure::engine);
        lock(&self.readers).push(connection);
        found
    }
}

/// The counter of a row, whose other bytes are read too.
fn counter(row: &rusqlite::Row<'_>) -> rusqlite::Result<[u8; VALUE_BYTES]> {
    let mut value = [0; VALUE_BYTES];
    value[..COUNTER_BYTES].copy_from_slice(&row.get::<_, i64>(0)?.to_le_bytes());
    let rest = row.get_ref(1)?.as_blob()?;
    let end = VALUE_BYTES.min(COUNTER_BYTES + rest.len());
    value[COUNTER_BYTES..end].copy_from_slice(&rest[..end - COUNTER_BYTES]);
    Ok(value)
}

impl Engine for Sqlite {
    fn load(&self, records: Records<'_>) -> Result<(), Failure> {
        self.fill(records).map_err(Failure::engine)?;
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
        let found = self.read(|connection| {
            connection.prepare_cached(GET)?.query_row([key], counter).optional()
        })?;
        Ok(found.map(|value| crate::engine::counter(&value)))
    }

    fn scan(&self, from: &[u8], count: u64) -> Result<Scanned, Failure> {
        self.read(|connection| {
            let mut scanned = Scanned::default();
            let mut statement = connection.prepare_cached(SCAN)?;
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            let mut rows = statement.query(params![from, count])?;
            while let Some(row) = rows.next()? {
                scanned.add(&counter(row)?);
            }
            Ok(scanned)
        })
    }

    fn quiesce(&self) -> Result<(), Failure> {
        let copy = "PRAGMA wal_checkpoint(TRUNCATE)";
        lock(&self.writer).query_row(copy, [], |_| Ok(())).map_err(Failure::engine)
    }
}
