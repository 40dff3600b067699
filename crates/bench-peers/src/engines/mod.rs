//! The engines that are built in, in the order in which they take turns.

#[cfg(any(feature = "rocksdb", feature = "fjall", feature = "lmdb", feature = "redb"))]
mod changes;
#[cfg(any(
    feature = "rocksdb",
    feature = "fjall",
    feature = "lmdb",
    feature = "redb",
    feature = "sqlite"
))]
mod fetch;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(any(feature = "lmdb", feature = "redb", feature = "sqlite", feature = "fjall"))]
mod group;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(any(feature = "rocksdb", feature = "fjall"))]
mod lsm;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "rocksdb", feature = "fjall"))]
mod stripes;
mod upsweep;

use crate::engine::Open;

/// An engine in one configuration. Where there are two, the one with `-tuned` in its name is made
/// for this memory and these workloads; the other has what the engine does by itself, changed no
/// more than it takes to fit into the memory.
pub(crate) struct Entry {
    /// How it is called on the command line and in results.
    pub(crate) name: &'static str,
    /// How it is opened.
    pub(crate) open: Open,
    /// The most that its files take, as a multiple of the bytes of the records.
    pub(crate) room_factor: f64,
    /// Its configuration in a sentence, for the report.
    pub(crate) configuration: &'static str,
}

/// All engines that are built in.
pub(crate) const ENTRIES: &[Entry] = &[
    upsweep::ENTRY,
    #[cfg(feature = "rocksdb")]
    rocksdb::MERGE,
    #[cfg(feature = "rocksdb")]
    rocksdb::MERGE_TUNED,
    #[cfg(feature = "rocksdb")]
    rocksdb::READ_MODIFY_WRITE_TUNED,
    #[cfg(feature = "fjall")]
    fjall::ENTRY,
    #[cfg(feature = "fjall")]
    fjall::TUNED,
    #[cfg(feature = "lmdb")]
    lmdb::ENTRY,
    #[cfg(feature = "redb")]
    redb::ENTRY,
    #[cfg(feature = "sqlite")]
    sqlite::ENTRY,
];

/// The engine of this name, if it is built in.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}
