//! Upsweep, an update-aware storage engine.
//!
//! An application *declares* an update, such as "add 1 to this counter", and does not read the
//! record first. The update is durable at once, in a log. It is kept in memory with the block that
//! it targets, until one mostly sequential sweep reads that block, applies everything pending for
//! it, and writes it elsewhere. Queries see updates from the moment they are declared.
//!
//! `docs/architecture.md` describes how it works, `docs/durability.md` what it promises and why,
//! `docs/on-disk-format.md` what it writes.
//!
//! # A store and a table
//!
//! A [`Store`] is a folder. [`Store::open`] opens one that exists, [`Store::create`] makes a new
//! one, [`Store::open_or_create`] does either, and [`Store::open_read_only`] changes nothing.
//! Likewise [`Store::table`] makes the table if it does not exist, and [`Store::existing_table`]
//! does not. A [`Table`] is an ordered map from keys to values, both bytes.
//!
//! ```
//! use upsweep::{CreateOptions, Store};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("store");
//! // The log takes up to 512 MiB unless told otherwise.
//! let small = CreateOptions::default().log_bytes(1 << 20);
//! let store = Store::builder().memory_bytes(64 << 20).create(&path, &small)?;
//!
//! let hits = store.table("hits")?;
//! hits.add(b"/index.html", 1)?;
//! hits.add(b"/index.html", 2)?;
//! hits.put(b"/about.html", b"never counted")?;
//! assert_eq!(hits.get(b"/index.html")?.and_then(|value| value.as_i64()), Some(3));
//! assert_eq!(hits.get(b"/nothing")?, None);
//!
//! let mut keys = Vec::new();
//! for record in hits.scan_prefix(b"/") {
//!     let (key, _value) = record?;
//!     keys.push(key);
//! }
//! assert_eq!(keys, [&b"/about.html"[..], b"/index.html"]);
//! drop(hits);
//! store.close()?;
//!
//! // All data is still there.
//! let store = Store::open(&path)?;
//! assert_eq!(store.existing_table("hits")?.iter().count(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! A scan goes forward, backward with [`Iterator::rev`], or from both ends. It is not a snapshot:
//! each block is shown as it is when the scan reaches it.
//!
//! # Hash tables
//!
//! A [`HashTable`] has the updates and queries of a table, but no ranges of keys. Its records are
//! ordered by the hashes of their keys, so updates spread evenly over all blocks whatever the keys
//! are. It grows one block at a time, in the sweep.
//!
//! ```
//! # use upsweep::{CreateOptions, Store};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let small = CreateOptions::default().log_bytes(1 << 20);
//! # let builder = Store::builder().memory_bytes(64 << 20);
//! # let store = builder.create(folder.path().join("store"), &small)?;
//! let sessions = store.hash_table("sessions")?;
//! sessions.put(b"c0ffee", b"alice")?;
//! sessions.append(b"c0ffee", b", seen twice")?;
//! assert_eq!(sessions.get(b"c0ffee")?.expect("a value").bytes, b"alice, seen twice");
//! sessions.delete(b"c0ffee")?;
//! assert!(!sessions.contains(b"c0ffee")?);
//! # Ok(())
//! # }
//! ```
//!
//! # Records that expire
//!
//! In an [`ExpiringTable`] each record has an expiry time, from which on it is absent. The sweep
//! drops it when it next writes the block.
//!
//! # Several changes together
//!
//! The changes of a [`Batch`] take effect together or not at all, even if the process crashes. They
//! may be to several tables, hash tables and arrays.
//!
//! ```
//! # use upsweep::{CreateOptions, Durability, Store};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let small = CreateOptions::default().log_bytes(1 << 20);
//! # let builder = Store::builder().memory_bytes(64 << 20);
//! # let store = builder.create(folder.path().join("store"), &small)?;
//! let accounts = store.table("accounts")?;
//! let mut transfer = store.batch();
//! transfer.add(&accounts, b"alice", -30).add(&accounts, b"bob", 30);
//! transfer.commit(Durability::Wait)?.wait()?;
//! assert_eq!(accounts.get(b"alice")?.and_then(|value| value.as_i64()), Some(-30));
//! # Ok(())
//! # }
//! ```
//!
//! # Many records at once
//!
//! [`Table::load`] fills an empty table with records in key order, all of them or none.
//!
//! ```
//! # use upsweep::{CreateOptions, Store};
//! use upsweep::{LoadOptions, Value, ValueKind};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let small = CreateOptions::default().log_bytes(1 << 20);
//! # let builder = Store::builder().memory_bytes(64 << 20);
//! # let store = builder.create(folder.path().join("store"), &small)?;
//! let squares = store.table("squares")?;
//! let records = (0u32..1000).map(|number| {
//!     let bytes = u64::from(number).pow(2).to_le_bytes().to_vec();
//!     Ok((number.to_be_bytes(), Value { kind: ValueKind::U64, bytes }))
//! });
//! let loaded = squares.load(records, LoadOptions::default())?;
//! assert_eq!(loaded.records, 1000);
//! # Ok(())
//! # }
//! ```
//!
//! # Backups
//!
//! [`Store::backup`] copies all structures as of one moment, while the store remains in use. A
//! backup that keeps its snapshot can be followed by increments, which contain only what changed
//! since.
//!
//! ```
//! # use upsweep::{CreateOptions, Store};
//! use upsweep::BackupOptions;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let small = CreateOptions::default().log_bytes(1 << 20);
//! # let builder = Store::builder().memory_bytes(64 << 20);
//! # let store = builder.create(folder.path().join("store"), &small)?;
//! # let [monday, tuesday, copy] = ["a", "b", "c"].map(|name| folder.path().join(name));
//! let hits = store.table("hits")?;
//! hits.add(b"/index.html", 1)?;
//! let keep = BackupOptions::default().snapshot("monday");
//! store.backup(&monday, &keep)?;
//! hits.add(b"/index.html", 2)?;
//! let since = BackupOptions::default().since(&monday);
//! store.backup(&tuesday, &since)?;
//!
//! Store::restore(&tuesday, &copy)?;
//! let hits = Store::open(&copy)?.existing_table("hits")?;
//! assert_eq!(hits.get(b"/index.html")?.and_then(|value| value.as_i64()), Some(3));
//! # Ok(())
//! # }
//! ```
//!
//! # Updates that return a value
//!
//! An update returns nothing about the record, so it need not read it. Where the new or the old
//! value is needed, there are forms that read and return it, exactly, whatever other callers do:
//! [`Table::fetch_add`], [`Table::add_and_get`], [`Table::modify_and_get`],
//! [`Table::compare_and_put`]; hash tables, typed tables and arrays have them too. They cost a
//! device read if the block is not in memory.
//!
//! ```
//! # fn main() -> Result<(), upsweep::Error> {
//! use upsweep::{Compared, Store};
//!
//! let store = Store::in_memory()?;
//! let table = store.table("numbers")?;
//! let (number, _ticket) = table.fetch_add(b"next order", 1)?; // nobody else gets it
//! assert_eq!(number, 0);
//! match table.compare_and_put(b"leader", None, b"node 7")? {
//!     Compared::Done(_ticket) => println!("we lead"),
//!     Compared::Differs(leader) => println!("{leader:?} leads"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # When a call returns
//!
//! A change returns when it is on stable media, which is [`Durability::Wait`], the default. With
//! [`Durability::Ticket`] it returns at once, and its [`Ticket`] can be waited on. A ticket covers
//! every change before it, so a loop need only wait for the last one.
//!
//! ```
//! # use upsweep::{CreateOptions, Durability, Store};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let small = CreateOptions::default().log_bytes(1 << 20);
//! # let builder = Store::builder().memory_bytes(64 << 20);
//! # let store = builder.create(folder.path().join("store"), &small)?;
//! let words = store.table("words")?.with_durability(Durability::Ticket);
//! let mut last = None;
//! for word in ["log", "queue", "sweep", "log"] {
//!     last = Some(words.add(word.as_bytes(), 1)?);
//! }
//! if let Some(ticket) = last {
//!     ticket.wait()?;
//! }
//! assert_eq!(words.get(b"log")?.and_then(|value| value.as_i64()), Some(2));
//! # Ok(())
//! # }
//! ```
//!
//! # Without blocking a thread
//!
//! A [`Ticket`] is a future, and so is a query by [`Table::get_async`]; any executor will do. One
//! thread can thus have many changes and queries in flight. [`Ticket::on_durable`] takes a callback
//! instead.
//!
//! A call that changes something blocks while there is no room, with any [`Durability`]. Changes by
//! [`Structure::put_async`], [`Sums::add_async`] and [`Batch::commit_async`] wait for room without
//! blocking a thread: see [`PendingCommit`].
//!
//! ```
//! use upsweep::{Error, Store, Sums};
//!
//! # fn main() -> Result<(), Error> {
//! // In memory, as for tests of an application: no folder and no file.
//! let store = Store::in_memory()?;
//! let hits = store.table("hits")?;
//! let counted = async {
//!     hits.add_async(b"/index.html", 1).await?; // durable
//!     hits.get_async(b"/index.html").await
//! };
//! let hits = futures::executor::block_on(counted)?.and_then(|value| value.as_i64());
//! assert_eq!(hits, Some(1));
//! # Ok(())
//! # }
//! ```
//!
//! # Typed tables
//!
//! A [`TypedTable`] has keys and values of Rust types, and only the updates that fit them; others
//! do not compile. Keys keep their natural order: numbers numerically, text by its characters,
//! tuples by their parts. A [`TypedHashTable`] is the same over a hash table.
//!
//! ```
//! # fn main() -> Result<(), upsweep::Error> {
//! use upsweep::{Store, TableDefinition};
//!
//! /// Best scores by game and player.
//! const SCORES: TableDefinition<(u32, String), i64> = TableDefinition::new("scores");
//!
//! let store = Store::in_memory()?;
//! let scores = store.typed(SCORES)?;
//! scores.max((1, "ada"), 17)?;
//! scores.max((1, "ada"), 12)?;
//! scores.max((2, "grace"), 30)?;
//! assert_eq!(scores.get((1, "ada"))?, Some(17));
//! assert_eq!(scores.prefix((1,)).count(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Table`] of bytes does not check kinds when an update is declared: a number added to a text
//! is found when the update is applied, and goes to the quarantine. For the types of keys and
//! values see [`typed`]; for structs whose fields each change by their own rule, [`Counters`].
//!
//! # Arrays
//!
//! An [`Array`] has a cell of fixed size for every index below 2^48. All cells start at zero, and
//! only nonzero cells take space. A *visitor* sees each block while the sweep has it in memory, so
//! a garbage collector can find counts of zero without extra reads.
//!
//! ```
//! # use upsweep::{CreateOptions, Store};
//! use std::sync::mpsc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let small = CreateOptions::default().log_bytes(1 << 20);
//! # let builder = Store::builder().memory_bytes(64 << 20);
//! # let store = builder.create(folder.path().join("store"), &small)?;
//! // 1 more than the number of references; 0 if there is no such object.
//! let counts = store.array::<i64>("counts")?;
//! let (garbage, found) = mpsc::channel();
//! counts.set_visitor(move |first, cells| {
//!     for (index, _) in (first..).zip(cells).filter(|(_, cell)| *cell == 1) {
//!         let _ = garbage.send(index);
//!     }
//! })?;
//! let names = store.table("names")?;
//! let mut batch = store.batch();
//! batch.put(&names, b"new object", b"700").add(&counts, &700, 2);
//! batch.commit(upsweep::Durability::Wait)?.wait()?;
//! counts.add(700, -1)?;
//! store.sweep()?;
//! assert_eq!(found.try_recv(), Ok(700));
//! counts.clear(700)?;
//! assert_eq!(counts.get(700)?, 0);
//! # Ok(())
//! # }
//! ```
//!
//! A cell can also be a struct: see [`Cell`].
//!
//! # Modifiers of your own
//!
//! A [`Modifier`] is a pure function from key, current value and operand to a new value. It is
//! logged by name and version, so a store needs it again at every open.
//!
//! ```
//! # use upsweep::{CreateOptions, Store};
//! use upsweep::{Modifier, Outcome, Refusal, ValueKind, ValueRef};
//!
//! /// Keeps the longer of two values.
//! struct Longest;
//!
//! impl Modifier for Longest {
//!     fn name(&self) -> &'static str {
//!         "longest"
//!     }
//!     fn version(&self) -> u16 {
//!         1
//!     }
//!     fn apply(
//!         &self,
//!         _key: &[u8],
//!         current: Option<ValueRef<'_>>,
//!         operand: &[u8],
//!     ) -> Result<Outcome, Refusal> {
//!         match current {
//!             Some(value) if value.bytes.len() >= operand.len() => Ok(Outcome::Keep),
//!             _ => Ok(Outcome::Put(ValueKind::Bytes, operand.to_vec())),
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let small = CreateOptions::default().log_bytes(1 << 20);
//! # let builder = Store::builder().memory_bytes(64 << 20);
//! let store = builder.modifier(Longest).create(folder.path().join("store"), &small)?;
//! let names = store.table("names")?;
//! names.modify(b"greeting", &Longest, b"hello")?;
//! names.modify(b"greeting", &Longest, b"hi")?;
//! assert_eq!(names.get(b"greeting")?.expect("a value").bytes, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! An update that its modifier refuses, or on which it panics, goes to the quarantine: see
//! [`Store::quarantined`] and [`Store::retry_quarantined`]. The other updates go on.
//!
//! # Structures of your own
//!
//! Tables and arrays are built on a public interface. Structures of other crates are treated the
//! same: they take part in batches, snapshots, clones, backups, listing, dropping and verification,
//! and the program shows them by name. Such a crate has
//!
//! - a [`BlockFormat`](layers::engine::block_format::BlockFormat): how a block is laid out and
//!   checked, applies updates, and shows its records;
//! - a [`StructureKind`]: its name, its format, its modifiers, and how backups copy it if putting
//!   its records again is not enough. An application registers it with [`StoreBuilder::kind`];
//! - a handle over an [`OpenSpace`], which [`Store::space`] makes or finds by name and
//!   [`Snapshot::space`] finds as of a snapshot. It updates, views and scans blocks and sets
//!   visitors; implementing [`Structure`] for the handle allows it in a [`Batch`].
//!
//! The format of a space, `bitmap:15`, is the name of the kind and the parameters of the structure.
//! So a program without the kind can name the structure, list, clone, snapshot, verify and drop it;
//! anything else fails with [`RequestError::UnknownFormat`].
//!
//! `crates/bitmap` in the repository is a complete example, with tests: sets of integers.
//!
//! # Errors
//!
//! An [`Error`] is named for what the caller should do next.
//!
//! ```
//! # use upsweep::{CreateOptions, Store};
//! use upsweep::{Error, RetryError};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let small = CreateOptions::default().log_bytes(1 << 20);
//! # let builder = Store::builder().memory_bytes(64 << 20);
//! # let store = builder.create(folder.path().join("store"), &small)?;
//! let table = store.table("hits")?;
//! match table.add(b"key", 1) {
//!     Ok(_ticket) => {}
//!     Err(Error::Request(wrong)) => panic!("a bug of the caller: {wrong}"),
//!     Err(Error::Retry(RetryError::Full { .. })) => { /* add space or delete, then again */ }
//!     Err(Error::Retry(later)) => println!("try again: {later}"),
//!     Err(Error::Closed(why)) => println!("mend the cause and open the store again: {why}"),
//!     Err(Error::Damaged(place)) => println!("restore from a backup: {place}"),
//!     Err(other) => return Err(other.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Layers
//!
//! The API for applications is here at the root. The layers below are in [`layers`], for custom
//! structures and for tools: [`layers::runtime::BlockStore`] is the block API, [`layers::engine`]
//! the state machine that it drives, [`layers::device`] the devices, with simulated and hostile
//! ones for tests. A store runs on any bank of devices: see [`StoreBuilder::create_on`].

#[cfg(not(feature = "broken"))]
mod broken;
#[cfg(feature = "broken")]
pub mod broken;
#[doc(hidden)]
pub mod device;
#[doc(hidden)]
pub mod engine;
mod error;
mod events;
pub mod layers;
#[doc(hidden)]
pub mod log;
pub mod metrics;
#[doc(hidden)]
pub mod placement;
#[doc(hidden)]
pub mod runtime;
mod store;
#[doc(hidden)]
pub mod structures;

pub use engine::modifier::{Modifier, Outcome, Refusal, ValueKind, ValueRef};
pub use engine::registry::ModifierId;
pub use engine::{Report, SpaceId, SpaceSize};
pub use error::{ClosedError, Damage, Error, Location, RequestError, RetryError};
pub use log::{LogMode, Seq};
pub use runtime::{
    CompactionProgress, CreateOptions, Durability, LoadSummary, OpenOptions, Status, Ticket,
    WallClock,
};
pub use store::{QuarantinedUpdate, Retried, Store, StoreBuilder};
pub use structures::array::{Array, ArrayScan, BlockCells, Cell, CellKind, NumberCell};
pub use structures::backup::{
    BackupOptions, BackupSummary, CopyProgress, RestoreOptions, RestoreSummary,
};
pub use structures::batch::{Batch, PendingCommit, Structure, Sums};
pub use structures::expiring::{ExpiringScan, ExpiringTable};
pub use structures::hash::{HashTable, TypedHashTable};
pub use structures::kind::{Kind, StructureKind};
pub use structures::modifiers;
pub use structures::snapshot::{Change, Changes, Snapshot};
pub use structures::space::{BlockScan, OpenSpace, WholeBlock};
pub use structures::table::{AsValue, Compared, LoadOptions, Scan, Table, Value};
#[cfg(feature = "postcard")]
pub use structures::typed::Postcard;
pub use structures::typed::{self, Counters, TableDefinition, TypedScan, TypedTable};
#[cfg(feature = "derive")]
pub use upsweep_derive::Counters;
