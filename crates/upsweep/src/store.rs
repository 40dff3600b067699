//! A store with tables, hash tables and arrays: what most applications use.

mod backup;
mod builder;

pub use builder::StoreBuilder;

use std::path::Path;
use std::sync::Arc;

use crate::engine::format::quarantine_format as quarantine;
use crate::engine::quarantine::{FIRST_USER_SPACE, QUARANTINE_SPACE};
use crate::engine::registry::Modifiers;
use crate::engine::{SpaceId, SpaceSize};
use crate::error::{Error, RequestError};
use crate::metrics::Readings;
use crate::runtime::{
    BlockStore, CompactionProgress, CreateOptions, Durability, SnapshotInfo, SpaceRecord, Status,
};
use crate::structures::array::{Array, Cell};
use crate::structures::batch::Batch;
use crate::structures::expiring::ExpiringTable;
use crate::structures::hash::{HashTable, TypedHashTable};
use crate::structures::kind::{Kind, Kinds};
use crate::structures::modifiers as builtin;
use crate::structures::snapshot::Snapshot;
use crate::structures::space::OpenSpace;
use crate::structures::table::Table;
use crate::structures::typed::{Key, TableDefinition, TypedTable, Value};

/// An open store. Cheap to clone; usable from any thread. When the last clone and the last table of
/// it are dropped, everything accepted is made durable and the store closes.
#[derive(Clone, Debug)]
pub struct Store {
    blocks: BlockStore,
    kinds: Arc<Kinds>,
}

/// An update in the quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedUpdate {
    /// Its id, for [`Store::retry_quarantined`].
    pub id: Vec<u8>,
    /// Its table; `None` if that was dropped.
    pub table: Option<String>,
    /// Name of its modifier, or its number if that is not registered.
    pub modifier: String,
    /// Its key.
    pub key: Vec<u8>,
    /// Its operand.
    pub operand: Vec<u8>,
    /// Why it was refused.
    pub reason: String,
}

/// The outcome of [`Store::retry_quarantined`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retried {
    /// The update was declared again.
    Declared,
    /// The table of the update was dropped, so the update was removed from the quarantine, without
    /// effect.
    Removed,
}

impl Store {
    /// Settings for opening a store.
    #[must_use]
    pub fn builder() -> StoreBuilder {
        StoreBuilder::default()
    }

    /// Opens the store in `folder` with default settings.
    ///
    /// # Errors
    /// As [`StoreBuilder::open`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().open(folder)
    }

    /// Opens the store in `folder` with default settings for reading: nothing is written, not even
    /// the lock, and any number of processes may do so at once. See
    /// [`StoreBuilder::open_read_only`].
    ///
    /// # Errors
    /// As [`StoreBuilder::open_read_only`].
    pub fn open_read_only(folder: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().open_read_only(folder)
    }

    /// Opens the store in `folder` with default settings, or makes an empty one there: see
    /// [`StoreBuilder::open_or_create`].
    ///
    /// # Errors
    /// As [`StoreBuilder::open_or_create`].
    pub fn open_or_create(folder: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().open_or_create(folder, &CreateOptions::default())
    }

    /// Makes an empty store in memory with default settings: see [`StoreBuilder::in_memory`].
    ///
    /// # Errors
    /// Only errors of the system, such as a lack of threads.
    pub fn in_memory() -> Result<Self, Error> {
        Self::builder().in_memory()
    }

    /// Makes an empty store in `folder` with default settings, and opens it.
    ///
    /// # Errors
    /// As [`StoreBuilder::create`].
    pub fn create(folder: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().create(folder, &CreateOptions::default())
    }

    /// The block API under the structures.
    #[must_use]
    pub fn blocks(&self) -> &BlockStore {
        &self.blocks
    }

    /// The ordered table of this name (1 to 255 bytes without control characters), made if it does
    /// not exist. Cost: making it waits for the log.
    ///
    /// # Errors
    /// [`RequestError::BadTableName`]; [`RequestError::TableMismatch`] if the name belongs to
    /// something other than a table: use another; [`Error::Closed`].
    pub fn table(&self, name: &str) -> Result<Table, Error> {
        Ok(self.space(name, &Kind::table())?.table())
    }

    /// The ordered table of this name.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::TableMismatch`].
    pub fn existing_table(&self, name: &str) -> Result<Table, Error> {
        Ok(self.existing_space(name, &Kind::table())?.table())
    }

    /// The table of expiring records of this name (1 to 255 bytes without control characters), with
    /// keys and values of bytes, made if it does not exist. Cost: making it waits for the log.
    ///
    /// # Errors
    /// [`RequestError::BadTableName`]; [`RequestError::TableMismatch`] if the name belongs to
    /// something else, including a table of records that do not expire: use another;
    /// [`Error::Closed`].
    pub fn expiring_table(&self, name: &str) -> Result<ExpiringTable, Error> {
        Ok(ExpiringTable::new(self.space(name, &Kind::expiring_table())?.table()))
    }

    /// The table of expiring records of this name.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::TableMismatch`].
    pub fn existing_expiring_table(&self, name: &str) -> Result<ExpiringTable, Error> {
        Ok(ExpiringTable::new(self.existing_space(name, &Kind::expiring_table())?.table()))
    }

    /// The hash table of this name (1 to 255 bytes without control characters), made if it does not
    /// exist. Cost: making it waits for the log.
    ///
    /// # Errors
    /// [`RequestError::BadTableName`]; [`RequestError::TableMismatch`] if the name belongs to
    /// something other than a hash table: use another; [`Error::Closed`].
    pub fn hash_table(&self, name: &str) -> Result<HashTable, Error> {
        Ok(self.space(name, &Kind::hash_table())?.table())
    }

    /// The hash table of this name.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::TableMismatch`].
    pub fn existing_hash_table(&self, name: &str) -> Result<HashTable, Error> {
        Ok(self.existing_space(name, &Kind::hash_table())?.table())
    }

    /// The array of this name (1 to 255 bytes without control characters) with cells of type `T`,
    /// made if it does not exist. Cost: making it waits for the log.
    ///
    /// # Errors
    /// [`RequestError::BadTableName`]; [`RequestError::TableMismatch`] if the name belongs to an
    /// array of other cells or to something other than an array: use another; [`Error::Closed`].
    pub fn array<T: Cell>(&self, name: &str) -> Result<Array<T>, Error> {
        Ok(self.space(name, &Kind::array(T::KIND))?.array())
    }

    /// The array of this name with cells of type `T`.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::TableMismatch`].
    pub fn existing_array<T: Cell>(&self, name: &str) -> Result<Array<T>, Error> {
        Ok(self.existing_space(name, &Kind::array(T::KIND))?.array())
    }

    /// The space of the structure of this name (1 to 255 bytes without control characters), made if
    /// it does not exist: a structure of another crate builds its handle on it. Cost: making it
    /// waits for the log.
    ///
    /// # Errors
    /// [`RequestError::BadTableName`]; [`RequestError::TableMismatch`] if the name belongs to
    /// something of another kind or with other parameters: use another;
    /// [`RequestError::UnknownFormat`] if the kind is not registered: see [`StoreBuilder::kind`];
    /// [`RequestError::BadFormat`] for invalid parameters; [`Error::Closed`].
    pub fn space(&self, name: &str, kind: &Kind) -> Result<OpenSpace, Error> {
        match self.existing_space(name, kind) {
            Err(Error::Request(RequestError::NoTable(_))) => {}
            other => return other,
        }
        match kind.create(&self.blocks, name) {
            // Another caller was faster.
            Err(Error::Request(RequestError::TableMismatch { .. })) => {
                self.existing_space(name, kind)
            }
            other => other,
        }
    }

    /// The space of the structure of this name, which must be of this kind.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::TableMismatch`];
    /// [`RequestError::UnknownFormat`].
    pub fn existing_space(&self, name: &str, kind: &Kind) -> Result<OpenSpace, Error> {
        let record = self.record(name)?;
        let found = self.kinds.of_format(&record.format);
        kind.open(&self.blocks, record, &found)
    }

    /// The kind of the structure of this name; `None` if there is none.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<Kind> {
        self.blocks.space(name).map(|space| self.kinds.of_format(&space.format))
    }

    fn record(&self, name: &str) -> Result<SpaceRecord, Error> {
        let missing = || RequestError::NoTable(name.to_owned()).into();
        self.blocks.space(name).ok_or_else(missing)
    }

    /// The typed table that `definition` describes, made if it does not exist.
    ///
    /// # Errors
    /// As [`Store::table`].
    pub fn typed<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        definition: TableDefinition<K, V>,
    ) -> Result<TypedTable<K, V>, Error> {
        Ok(TypedTable::new(self.table(definition.name())?))
    }

    /// The typed table that `definition` describes, which must exist.
    ///
    /// # Errors
    /// As [`Store::existing_table`].
    pub fn existing_typed<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        definition: TableDefinition<K, V>,
    ) -> Result<TypedTable<K, V>, Error> {
        Ok(TypedTable::new(self.existing_table(definition.name())?))
    }

    /// The typed hash table that `definition` describes, which must exist.
    ///
    /// # Errors
    /// As [`Store::existing_hash_table`].
    pub fn existing_typed_hash_table<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        definition: TableDefinition<K, V>,
    ) -> Result<TypedHashTable<K, V>, Error> {
        Ok(TypedHashTable::new(self.existing_hash_table(definition.name())?))
    }

    /// The typed hash table that `definition` describes, made if it does not exist.
    ///
    /// # Errors
    /// As [`Store::hash_table`].
    pub fn typed_hash_table<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        definition: TableDefinition<K, V>,
    ) -> Result<TypedHashTable<K, V>, Error> {
        Ok(TypedHashTable::new(self.hash_table(definition.name())?))
    }

    /// The table of expiring records that `definition` describes, made if it does not exist.
    ///
    /// # Errors
    /// As [`Store::expiring_table`].
    pub fn typed_expiring_table<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        definition: TableDefinition<K, V>,
    ) -> Result<ExpiringTable<K, V>, Error> {
        Ok(ExpiringTable::new(self.expiring_table(definition.name())?.raw().clone()))
    }

    /// The table of expiring records that `definition` describes, which must exist.
    ///
    /// # Errors
    /// As [`Store::existing_expiring_table`].
    pub fn existing_typed_expiring_table<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        definition: TableDefinition<K, V>,
    ) -> Result<ExpiringTable<K, V>, Error> {
        Ok(ExpiringTable::new(self.existing_expiring_table(definition.name())?.raw().clone()))
    }

    /// Names and sizes of all ordered tables, in order of creation. Cost: a pass over the
    /// directory.
    #[must_use]
    pub fn tables(&self) -> Vec<(String, SpaceSize)> {
        let tables = self.structures().into_iter().filter(|(_, kind, _)| *kind == Kind::table());
        tables.map(|(name, _, size)| (name, size)).collect()
    }

    /// Names, kinds and sizes of all structures, including those of unregistered kinds, in order of
    /// creation. Cost: a pass over the directory.
    #[must_use]
    pub fn structures(&self) -> Vec<(String, Kind, SpaceSize)> {
        let spaces = self.blocks.spaces().into_iter();
        spaces
            .filter(|(space, _)| space.space >= FIRST_USER_SPACE)
            .map(|(space, size)| {
                let kind = self.kinds.of_format(&space.format);
                (space.name, kind, size)
            })
            .collect()
    }

    /// Drops an ordered table with all its records; its space is freed in the background.
    ///
    /// # Errors
    /// As [`Store::drop_structure`]; [`RequestError::TableMismatch`] for another structure.
    pub fn drop_table(&self, name: &str) -> Result<(), Error> {
        self.existing_space(name, &Kind::table())?;
        self.drop_structure(name)
    }

    /// Drops a structure of any kind, registered or not, with all its records; its space is freed
    /// in the background. Cost: one log record; then, in portions between other work, one addition
    /// to a reference count for each node and block that it does not share, and for each topmost
    /// one that it does. Nothing is read.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::BadTableName`] for structures of the store
    /// itself; [`Error::Closed`].
    pub fn drop_structure(&self, name: &str) -> Result<(), Error> {
        let record = self.record(name)?;
        if record.space < FIRST_USER_SPACE {
            return Err(RequestError::BadTableName(name.to_owned()).into());
        }
        self.blocks.drop_space(record.space)
    }

    /// Makes `name` a clone of the structure `source`, of any kind: both have everything declared
    /// so far, and change independently from then on. Cost: one log record and memory only for the
    /// name, whatever the size; every node and block is shared until one of them changes it.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::BadTableName`]; [`RequestError::TableMismatch`]
    /// if the name is taken: drop that structure first or choose another name; [`Error::Closed`].
    pub fn clone_structure(&self, source: &str, name: &str) -> Result<(), Error> {
        let space = self.record(source)?.space;
        self.blocks.clone_space(space, name).map(drop)
    }

    /// As [`Store::clone_structure`] for an ordered table; opens the clone.
    ///
    /// # Errors
    /// As [`Store::clone_structure`]; [`RequestError::TableMismatch`] also for another structure.
    pub fn clone_table(&self, source: &str, name: &str) -> Result<Table, Error> {
        let space = self.existing_space(source, &Kind::table())?.number();
        Ok(Table::new(self.blocks.clone(), self.blocks.clone_space(space, name)?))
    }

    /// Makes `name` a clone of a structure as of a snapshot; the clone can be changed.
    ///
    /// # Errors
    /// As [`Store::clone_structure`]; [`RequestError::NoTable`] if the snapshot does not have it;
    /// [`RequestError::WrongStore`] for a snapshot of another store.
    pub fn clone_from_snapshot(
        &self,
        snapshot: &Snapshot,
        source: &str,
        name: &str,
    ) -> Result<(), Error> {
        if !snapshot.is_of(&self.blocks) {
            return Err(RequestError::WrongStore { table: source.to_owned() }.into());
        }
        let space = snapshot.record(source)?.space;
        self.blocks.clone_space(space, name).map(drop)
    }

    fn kept(&self, info: SnapshotInfo) -> Snapshot {
        Snapshot::new(&self.blocks, &self.kinds, info)
    }

    /// A snapshot of the current state of all structures. It ends with the last handle that refers
    /// to it, and with the process. Cost: one log record; memory for the names of all structures.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        Ok(self.kept(self.blocks.create_snapshot(None, None)?))
    }

    /// A snapshot of the current state of all structures, kept under a name (1 to 255 bytes without
    /// control characters) until [`Store::drop_snapshot`]. Cost: as [`Store::snapshot`].
    ///
    /// # Errors
    /// [`RequestError::BadSnapshotName`]; [`RequestError::SnapshotExists`]; [`Error::Closed`].
    pub fn create_snapshot(&self, name: &str) -> Result<Snapshot, Error> {
        Ok(self.kept(self.blocks.create_snapshot(Some(name), None)?))
    }

    /// As [`Store::create_snapshot`], of these structures only.
    ///
    /// # Errors
    /// As [`Store::create_snapshot`]; [`RequestError::NoTable`].
    pub fn create_snapshot_of(&self, name: &str, structures: &[&str]) -> Result<Snapshot, Error> {
        let spaces: Result<Vec<SpaceId>, Error> =
            structures.iter().map(|structure| Ok(self.record(structure)?.space)).collect();
        Ok(self.kept(self.blocks.create_snapshot(Some(name), Some(&spaces?))?))
    }

    /// All named snapshots, in order of creation.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let named = self.blocks.snapshots().into_iter().filter(|snapshot| snapshot.name.is_some());
        named.map(|info| self.kept(info)).collect()
    }

    /// The snapshot of this name.
    ///
    /// # Errors
    /// [`RequestError::NoSnapshot`].
    pub fn existing_snapshot(&self, name: &str) -> Result<Snapshot, Error> {
        let missing = || RequestError::NoSnapshot(name.to_owned());
        let info = self.blocks.snapshot_named(name).ok_or_else(missing)?;
        Ok(self.kept(info))
    }

    /// Drops a snapshot; space that only it used is freed in the background. Structures opened from
    /// it become unusable. Cost: as [`Store::drop_structure`], for each structure.
    ///
    /// # Errors
    /// [`RequestError::NoSnapshot`]; [`Error::Closed`].
    pub fn drop_snapshot(&self, name: &str) -> Result<(), Error> {
        self.blocks.drop_snapshot(self.existing_snapshot(name)?.number())
    }

    /// Moves the blocks of a structure into key order on the devices, so that scans on rotating
    /// ones do not seek, waits for completion, and returns what was done. `progress` is called now
    /// and then. The sweep and callers have priority. Cost: a read and a write of every block that
    /// is out of order.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`Error::Retry`] when there is no room to move blocks;
    /// [`Error::Closed`].
    pub fn compact(
        &self,
        name: &str,
        progress: impl FnMut(CompactionProgress),
    ) -> Result<CompactionProgress, Error> {
        self.blocks.compact(self.record(name)?.space, progress)
    }

    /// Waits until the space of everything dropped or removed so far is free, and free space of
    /// data files beyond their reserve has been returned to the file system. Both happen in the
    /// background anyway, the second after 10 seconds without use. The reserve is what pending
    /// updates and the next checkpoint may need and 8 MiB, plus a quarter of the used space, at
    /// least 64 MiB. Files keep their length: they get holes. Cost: log records in proportion to
    /// what was dropped, and one request for every 16 MiB of holes.
    ///
    /// # Errors
    /// [`Error::Closed`]. It is not an error if the file system cannot punch holes: nothing is
    /// returned to it then.
    pub fn reclaim(&self) -> Result<(), Error> {
        self.blocks.reclaim()
    }

    /// An empty batch: several changes that take effect together.
    #[must_use]
    pub fn batch(&self) -> Batch {
        Batch::new(self.blocks.clone())
    }

    /// Writes all pending updates to the data devices, and waits for completion. In a store open
    /// for upkeep, updates that need missing modifiers stay pending.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Retry`] when the data devices are full.
    pub fn sweep(&self) -> Result<(), Error> {
        self.blocks.sweep()
    }

    /// Waits until everything that was accepted so far is on stable media.
    ///
    /// # Errors
    /// [`Error::Closed`] if a log write failed.
    pub fn flush(&self) -> Result<(), Error> {
        self.blocks.flush()
    }

    /// The configuration, activity and current bottleneck of the store.
    #[must_use]
    pub fn status(&self) -> Status {
        self.blocks.status()
    }

    /// All metrics since the store was opened; `docs/metrics.md` lists them. Gauges are at most a
    /// tenth of a second old. It can be called at any time and blocks nothing, nor is it blocked.
    #[must_use]
    pub fn metrics(&self) -> Readings {
        self.blocks.metrics()
    }

    /// The same in the text format of Prometheus (version 0.0.4), about 50 KiB, for an application
    /// to serve as `text/plain; version=0.0.4` where Prometheus fetches it.
    ///
    /// ```
    /// let store = upsweep::Store::in_memory()?;
    /// store.table("hits")?.add(b"page", 1)?;
    /// assert!(store.metrics_text().contains("\nupsweep_updates_total 1\n"));
    /// # Ok::<(), upsweep::Error>(())
    /// ```
    #[must_use]
    pub fn metrics_text(&self) -> String {
        self.blocks.metrics_text()
    }

    /// Makes everything durable and closes the store, also for all other handles, tickets, tables
    /// and snapshots of it: every later call is refused, and the folder can be opened again.
    /// Dropping the last handle does the same.
    ///
    /// # Errors
    /// [`Error::Closed`] if something could not be made durable; the store is closed nevertheless.
    pub fn close(self) -> Result<(), Error> {
        self.blocks.close()
    }

    fn quarantine(&self) -> Result<Table, Error> {
        let found = self.blocks.space_numbered(QUARANTINE_SPACE);
        let missing = || RequestError::NoTable("quarantine".to_owned());
        Ok(Table::new(self.blocks.clone(), found.ok_or_else(missing)?))
    }

    /// All updates in the quarantine, oldest first.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the quarantine itself is.
    pub fn quarantined(&self) -> Result<Vec<QuarantinedUpdate>, Error> {
        let modifiers = self.blocks.modifiers();
        let mut found = Vec::new();
        for record in self.quarantine()?.iter() {
            let (id, value) = record?;
            let Ok(entry) = quarantine::decode_entry(&value) else { continue };
            found.push(QuarantinedUpdate {
                id,
                table: self.blocks.space_numbered(entry.space).map(|space| space.name),
                modifier: name_of(&modifiers, &entry),
                key: entry.key,
                operand: entry.operand,
                reason: entry.reason,
            });
        }
        Ok(found)
    }

    /// Declares a quarantined update again and removes it from the quarantine, atomically; for the
    /// removal of a range the two are separate steps, in this order, and a crash may come between
    /// them. If it is refused again it returns to the quarantine under a new id. An update whose
    /// table was dropped can never take effect: it is only removed.
    ///
    /// # Errors
    /// [`RequestError::NoQuarantined`]; [`RequestError::ReadOnly`] for an update to a snapshot,
    /// which stays in quarantine; [`Error::Retry`]; [`Error::Closed`].
    pub fn retry_quarantined(&self, id: &[u8]) -> Result<Retried, Error> {
        let table = self.quarantine()?;
        let entry = table.get(id)?.and_then(|value| quarantine::decode_entry(&value).ok());
        let Some(entry) = entry else { return Err(no_quarantined(id)) };
        let update = |space, modifier, key, operand| crate::engine::LoggedUpdate {
            space,
            modifier,
            key,
            operand,
        };
        if let Some(range) = entry.range() {
            let declared = self.blocks.remove_range(entry.space, range.from, range.to);
            let retried = match declared {
                Ok(()) => Retried::Declared,
                Err(Error::Request(RequestError::NoTable(_))) => Retried::Removed,
                Err(error) => return Err(error),
            };
            let removed = update(QUARANTINE_SPACE, builtin::DELETE, id, &[]);
            return self.blocks.modify(&[removed], Durability::Wait).map(|_| retried);
        }
        // An update that carries a time is declared as of now.
        let (mut operand, moment) = (entry.operand, self.blocks.moment());
        if entry.modifier == builtin::EXPIRES_AT {
            builtin::set_moment(&mut operand, moment.us());
        }
        let declared = update(entry.space, entry.modifier, &entry.key, &operand);
        let removed = update(QUARANTINE_SPACE, builtin::DELETE, id, &[]);
        match self.blocks.modify(&[declared, removed], Durability::Wait) {
            Ok(_) => Ok(Retried::Declared),
            Err(Error::Request(RequestError::NoTable(_))) => {
                self.blocks.modify(&[removed], Durability::Wait).map(|_| Retried::Removed)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes an update from the quarantine permanently: it never takes effect.
    ///
    /// # Errors
    /// [`RequestError::NoQuarantined`]; [`Error::Retry`]; [`Error::Closed`].
    pub fn discard_quarantined(&self, id: &[u8]) -> Result<(), Error> {
        if !self.quarantine()?.contains(id)? {
            return Err(no_quarantined(id));
        }
        let removed = crate::engine::LoggedUpdate {
            space: QUARANTINE_SPACE,
            modifier: builtin::DELETE,
            key: id,
            operand: &[],
        };
        self.blocks.modify(&[removed], Durability::Wait).map(drop)
    }
}

fn no_quarantined(id: &[u8]) -> Error {
    let shown = id.iter().map(|byte| format!("{byte:02x}")).collect();
    RequestError::NoQuarantined(shown).into()
}

/// The name of the modifier of an entry, or its number if it is not registered.
fn name_of(modifiers: &Modifiers, entry: &quarantine::QuarantineEntry) -> String {
    if entry.range().is_some() {
        return "delete_range".to_owned();
    }
    let number = || format!("number {}", entry.modifier.0);
    modifiers.get(entry.modifier).map_or_else(number, |modifier| modifier.name().to_owned())
}
