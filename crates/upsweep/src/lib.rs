//! Upsweep, an update-aware storage engine.
//!
//! An application *declares* an update, such as "add 1 to this counter", and does not read the
//! record first. The update is durable at once, in a log. It waits in memory beside the block that
//! it targets, until one mostly sequential sweep brings that block in, applies everything that
//! waits for it, and writes it elsewhere. Queries see updates from the moment they are declared.
//!
//! `docs/architecture.md` tells how it works, `docs/durability.md` what it promises and why,
//! `docs/on-disk-format.md` what it writes.
//!
//! # A store and a table
//!
//! A [`Store`] is a folder. A [`Table`] is an ordered map from keys to values, both bytes.
//!
//! ```
//! use upsweep::{CreateOptions, Store};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("store");
//! // The log takes up to 512 MiB unless told otherwise.
//! let small = CreateOptions { log_bytes: Some(1 << 20), ..CreateOptions::default() };
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
//! // It is all there again.
//! let store = Store::open(&path)?;
//! assert_eq!(store.existing_table("hits")?.iter().count(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! A scan goes forward or, with [`Iterator::rev`], backward, and from both ends. It is not a
//! snapshot: each block is shown as it is when the scan gets there.
//!
//! # Hash tables
//!
//! A [`HashTable`] has the updates and queries of a table, and no ranges of keys. Its records lie
//! in the order of the hashes of their keys, so updates spread evenly over all blocks whatever the
//! keys are. It grows one block at a time, in the sweep.
//!
//! ```
//! # use upsweep::{CreateOptions, Store};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let small = CreateOptions { log_bytes: Some(1 << 20), ..CreateOptions::default() };
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
//! # Several changes together
//!
//! The changes of a [`Batch`] take effect all or none, whatever crashes. They may be of several
//! tables, and of hash tables too.
//!
//! ```
//! # use upsweep::{CreateOptions, Durability, Store};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let small = CreateOptions { log_bytes: Some(1 << 20), ..CreateOptions::default() };
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
//! # let small = CreateOptions { log_bytes: Some(1 << 20), ..CreateOptions::default() };
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
//! [`Store::backup`] copies all structures, as they are at one moment, while the store goes on. One
//! that keeps its snapshot can be followed by increments, which have only what changed since.
//!
//! ```
//! # use upsweep::{CreateOptions, Store};
//! use upsweep::BackupOptions;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let small = CreateOptions { log_bytes: Some(1 << 20), ..CreateOptions::default() };
//! # let builder = Store::builder().memory_bytes(64 << 20);
//! # let store = builder.create(folder.path().join("store"), &small)?;
//! # let [monday, tuesday, copy] = ["a", "b", "c"].map(|name| folder.path().join(name));
//! let hits = store.table("hits")?;
//! hits.add(b"/index.html", 1)?;
//! let keep = BackupOptions { snapshot: Some("monday"), ..BackupOptions::default() };
//! store.backup(&monday, &keep)?;
//! hits.add(b"/index.html", 2)?;
//! let since = BackupOptions { since: Some(&monday), ..BackupOptions::default() };
//! store.backup(&tuesday, &since)?;
//!
//! Store::restore(&tuesday, &copy)?;
//! let hits = Store::open(&copy)?.existing_table("hits")?;
//! assert_eq!(hits.get(b"/index.html")?.and_then(|value| value.as_i64()), Some(3));
//! # Ok(())
//! # }
//! ```
//!
//! # When a call returns
//!
//! A change returns when it is on stable media, which is [`Durability::Wait`], the default. With
//! [`Durability::Ticket`] it returns at once, and its [`Ticket`] can be waited on. One ticket
//! covers every change before it, so a loop waits for the last one only.
//!
//! ```
//! # use upsweep::{CreateOptions, Durability, Store};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let small = CreateOptions { log_bytes: Some(1 << 20), ..CreateOptions::default() };
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
//! # Without a thread that waits
//!
//! A [`Ticket`] is a future, and so is a query by [`Table::get_async`]; any executor will do. One
//! thread can so have many changes and queries on their way. [`Ticket::on_durable`] takes a
//! callback instead.
//!
//! ```
//! use upsweep::{Durability, Error, Store};
//!
//! # fn main() -> Result<(), Error> {
//! // In memory, as for tests of an application: no folder and no file.
//! let store = Store::in_memory()?;
//! let hits = store.table("hits")?.with_durability(Durability::Ticket);
//! let counted = async {
//!     hits.add(b"/index.html", 1)?.await?; // durable
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
//! A [`TypedTable`] has keys and values of Rust types. Keys keep their order: numbers that of
//! numbers, text that of its bytes. A [`TypedHashTable`] is the same over a hash table.
//!
//! ```
//! # use upsweep::{CreateOptions, Store};
//! use upsweep::TableDefinition;
//!
//! const SCORES: TableDefinition<str, i64> = TableDefinition::new("scores");
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let small = CreateOptions { log_bytes: Some(1 << 20), ..CreateOptions::default() };
//! # let builder = Store::builder().memory_bytes(64 << 20);
//! # let store = builder.create(folder.path().join("store"), &small)?;
//! let scores = store.typed(SCORES)?;
//! scores.max("ada", 17)?;
//! scores.max("ada", 12)?;
//! assert_eq!(scores.get("ada")?, Some(17));
//! # Ok(())
//! # }
//! ```
//!
//! # Arrays
//!
//! An [`Array`] has a cell of fixed size for every index below 2^48. All cells are there from the
//! start and zero, and only those that are not zero take space. A *visitor* sees each block while
//! the sweep has it in memory: so a garbage collector finds the counts of zero without reading.
//!
//! ```
//! # use upsweep::{CreateOptions, Store};
//! use std::sync::mpsc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let small = CreateOptions { log_bytes: Some(1 << 20), ..CreateOptions::default() };
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
//! # let small = CreateOptions { log_bytes: Some(1 << 20), ..CreateOptions::default() };
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
//! # Errors
//!
//! An [`Error`] is named for what the caller does next.
//!
//! ```
//! # use upsweep::{CreateOptions, Store};
//! use upsweep::{Error, RetryError};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let small = CreateOptions { log_bytes: Some(1 << 20), ..CreateOptions::default() };
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
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Layers
//!
//! Most applications need [`Store`] and what it gives. The layers below are public for structures
//! of one's own and for tools: [`runtime::BlockStore`] is the block API, [`engine`] the state
//! machine that it drives, [`device`] the devices, with simulated and hostile ones for tests. A
//! store runs on any bank of devices: see [`StoreBuilder::create_on`].

pub mod device;
pub mod engine;
mod error;
mod events;
pub mod log;
pub mod metrics;
pub mod placement;
pub mod runtime;
mod store;
pub mod structures;

pub use engine::modifier::{Modifier, Outcome, Refusal, ValueKind, ValueRef};
pub use error::{ClosedError, Damage, Error, RequestError, RetryError};
pub use runtime::{CreateOptions, Durability, LoadSummary, OpenOptions, Status, Ticket};
pub use store::{QuarantinedUpdate, Retried, Store, StoreBuilder};
pub use structures::array::{Array, ArrayScan, BlockCells, Cell, CellKind, NumberCell};
pub use structures::backup::{
    BackupOptions, BackupSummary, CopyProgress, RestoreOptions, RestoreSummary,
};
pub use structures::batch::{Batch, Structure, Sums};
pub use structures::hash::{HashTable, TypedHashTable};
pub use structures::kind::Kind;
pub use structures::snapshot::{Change, Changes, Snapshot};
pub use structures::table::{AsValue, LoadOptions, Scan, Table, Value};
pub use structures::typed::{TableDefinition, TypedTable};
