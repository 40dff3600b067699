//! The end of a store and what comes after: closing, forks, readers, calls from within.

#![expect(clippy::disallowed_methods, reason = "tests of a store on files")]

use std::path::Path;
use std::sync::{Arc, OnceLock};

use fork::Fork;
use futures::executor::block_on;
use upsweep::{
    ClosedError, CreateOptions, Durability, Error, Modifier, Outcome, Refusal, RequestError,
    RetryError, Store, Structure, Table, ValueRef,
};

fn small() -> CreateOptions {
    CreateOptions::default().log_bytes(8 << 20)
}

fn create(folder: &Path) -> Store {
    Store::builder().memory_bytes(32 << 20).create(folder, &small()).expect("a new store")
}

const CLOSED: Error = Error::Closed(ClosedError::Closed);

#[test]
fn closing_ends_all_handles_and_the_folder_can_be_opened_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    assert_eq!(Store::open(&path).err(), Some(RetryError::OpenHere(path.clone()).into()));
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    let ticket = table.put(b"key", b"value").expect("accepted");
    let snapshot = store.snapshot().expect("made");
    store.clone().close().expect("closed");
    ticket.wait().expect("durable before it was closed");
    let again = Store::open(&path).expect("opens although handles are left");
    let there = again.existing_table("main").expect("the table");
    assert_eq!(*there.get(b"key").expect("readable").expect("there"), *b"value");
    there.put(b"key", b"later").expect("durable");
    again.sweep().expect("swept");
    // What is left of the first one neither reads nor writes.
    assert_eq!(table.put(b"key", b"lost").map(drop), Err(CLOSED));
    assert_eq!(table.get(b"key"), Err(CLOSED));
    assert_eq!(snapshot.table("main").expect("known").get(b"key"), Err(CLOSED));
    assert_eq!(store.sweep(), Err(CLOSED));
    assert_eq!(store.flush(), Err(CLOSED));
    drop((table, snapshot));
    assert_eq!(store.close(), Ok(()), "it is closed");
    assert_eq!(*there.get(b"key").expect("readable").expect("there"), *b"later");
}

#[test]
fn the_next_open_has_nothing_to_replay() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let options = small().log_bytes(64 << 20);
    let store = Store::builder().create(&path, &options).expect("a new store");
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    for number in 0..100_000u32 {
        table.add(&number.to_be_bytes(), 1).expect("accepted");
    }
    let accepted = store.status().log.last;
    store.sweep().expect("swept");
    let log = store.status().log;
    assert!(log.replay_from > accepted, "{log:?}");
    assert!(log.used_bytes <= 2 << 20, "more than a segment: {log:?}");
    let other = store.table("other").expect("a table");
    let last = store.status().log.last;
    assert!(last >= log.replay_from, "nothing was logged since");
    drop((table, other));
    store.close().expect("closed");
    let store = Store::open(&path).expect("opens");
    let log = store.status().log;
    assert!(log.replay_from > last, "{log:?}");
    let before = log.last;
    store.close().expect("closed");
    let store = Store::open(&path).expect("opens");
    assert_eq!(store.status().log.last, before, "an open and a close log nothing");
    let table = store.existing_table("main").expect("the table");
    assert_eq!(table.iter().count(), 100_000);
}

#[test]
fn a_log_that_has_lost_its_end_since_the_store_was_closed_is_damage() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    for number in 0..500u32 {
        table.add(&number.to_be_bytes(), 1).expect("accepted");
    }
    drop(table);
    store.close().expect("closed");
    let log = path.join("log-0");
    let whole = std::fs::read(&log).expect("readable");
    let last = whole.iter().rposition(|byte| *byte != 0).expect("something was logged");
    // In the last batch; a store that was not closed would take it for a torn one.
    let mut damaged = whole.clone();
    damaged[last] ^= 1;
    std::fs::write(&log, &damaged).expect("written");
    let report = Store::builder().verify(&path).expect("readable");
    let Err(Error::Damaged(damage)) = Store::open(&path) else { panic!("opened") };
    assert_eq!(report.damage, std::slice::from_ref(&damage));
    assert!(damage.what.starts_with("log record "), "{damage}");
    assert!(damage.reason.contains("what came between is lost"), "{damage}");
    std::fs::write(&log, &whole).expect("written");
    let store = Store::open(&path).expect("opens");
    assert_eq!(store.existing_table("main").expect("the table").iter().count(), 500);
}

#[test]
fn a_fork_of_the_process_cannot_use_the_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.table("main").expect("a table");
    table.put(b"key", b"value").expect("durable");
    let forked = Error::Closed(ClosedError::Forked);
    match fork::fork().expect("forks") {
        Fork::Child => {
            let later = table.with_durability(Durability::Ticket);
            let refused = [
                table.put(b"key", b"child").map(drop),
                later.put(b"key", b"child").map(drop),
                table.get(b"key").map(drop),
                store.sweep(),
                store.clone().close(),
            ];
            let is_refused = refused.iter().all(|found| *found == Err(forked.clone()));
            drop((table, later, store));
            std::process::exit(if is_refused { 0 } else { 1 });
        }
        Fork::Parent(child) => {
            let child = rustix::process::Pid::from_raw(child).expect("a process");
            let ended =
                rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
            let (_, status) = ended.expect("waited for").expect("it has ended");
            assert_eq!(status.exit_status(), Some(0), "every call is refused in the child");
        }
    }
    table.put(b"key", b"parent").expect("the parent goes on");
    assert_eq!(
        Store::open(&path).err(),
        Some(RetryError::OpenHere(path.clone()).into()),
        "the child has not let go of the lock"
    );
    drop(table);
    store.close().expect("closed");
    let store = Store::open(&path).expect("opens");
    let table = store.existing_table("main").expect("the table");
    assert_eq!(*table.get(b"key").expect("readable").expect("there"), *b"parent");
}

/// Puts its operand, unless it is to ask the store for it.
#[derive(Clone, Default)]
struct Asking(Arc<OnceLock<Table>>);

impl Modifier for Asking {
    fn name(&self) -> &'static str {
        "asking"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(
        &self,
        key: &[u8],
        _current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        if operand == b"ask" {
            let table = self.0.get().expect("set before");
            let found = table.get(key).map_err(|error| Refusal(error.to_string()))?;
            assert!(found.is_none(), "a query may evaluate it, where no lock is held");
        }
        Ok(Outcome::Put(upsweep::ValueKind::Bytes, operand.to_vec()))
    }

    fn check_operand(&self, operand: &[u8]) -> Result<(), Refusal> {
        if operand == b"ask at once" {
            let table = self.0.get().expect("set before");
            table.get(b"key").map_err(|error| Refusal(error.to_string()))?;
        }
        if operand == b"put at once" {
            let table = self.0.get().expect("set before");
            block_on(table.put_async(b"key", b"")).map_err(|error| Refusal(error.to_string()))?;
        }
        Ok(())
    }
}

#[test]
fn a_modifier_that_calls_its_store_is_refused_and_does_not_wait_for_ever() {
    let folder = tempfile::tempdir().expect("a folder");
    let asking = Asking::default();
    let builder = Store::builder().memory_bytes(32 << 20).modifier(asking.clone());
    let store = builder.create(folder.path().join("store"), &small()).expect("a new store");
    let table = store.table("main").expect("a table");
    asking.0.set(table.clone()).expect("once");
    let reason = RequestError::FromWithin.to_string();
    let bad = RequestError::BadOperand { modifier: "asking".to_owned(), reason: reason.clone() };
    for operand in [&b"ask at once"[..], b"put at once"] {
        let refused = table.modify(b"key", &asking, operand).map(drop);
        assert_eq!(refused, Err(bad.clone().into()));
    }
    table.modify(b"key", &asking, b"ask").expect("durable");
    store.sweep().expect("swept");
    let quarantined = store.quarantined().expect("listed");
    assert_eq!(quarantined.len(), 1);
    assert_eq!(quarantined[0].reason, reason);
    store.close().expect("closed");
}

#[test]
fn a_store_is_read_without_modifiers_and_without_writing_to_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let asking = Asking::default();
    let builder = Store::builder().memory_bytes(32 << 20).modifier(asking.clone());
    let store = builder.create(&path, &small()).expect("a new store");
    let (one, other) = (store.table("one").expect("a table"), store.table("other").expect("one"));
    one.put(b"key", b"value").expect("durable");
    other.modify(b"key", &asking, b"value").expect("durable");
    other.put(b"plain", b"value").expect("durable");
    drop((one, other));
    store.close().expect("closed");
    let content = || {
        let entries = std::fs::read_dir(&path).expect("readable").map(|entry| {
            let file = entry.expect("readable").path();
            let bytes = std::fs::read(&file).expect("readable");
            (file, bytes)
        });
        entries.collect::<std::collections::BTreeMap<_, _>>()
    };
    let unknown = RequestError::UnknownModifier { name: "asking".to_owned(), version: 1 };
    assert_eq!(Store::open(&path).err(), Some(unknown.clone().into()));
    let before = content();
    let store = Store::builder().open_read_only(&path).expect("opens to be read");
    assert_eq!(store.tables().len(), 2);
    assert_eq!(store.quarantined().expect("listed"), []);
    assert!(store.status().log.used_bytes > 0);
    let [one, other] = ["one", "other"].map(|name| store.existing_table(name).expect("a table"));
    assert_eq!(*one.get(b"key").expect("readable").expect("there"), *b"value");
    assert_eq!(*other.get(b"plain").expect("readable").expect("there"), *b"value");
    assert_eq!(other.get(b"key"), Err(unknown.clone().into()));
    assert_eq!(other.iter().next().expect("one").map(drop), Err(unknown.into()));
    let read_only = Error::Closed(ClosedError::ReadOnly);
    assert_eq!(one.put(b"key", b"other").map(drop), Err(read_only.clone()));
    assert_eq!(store.table("new").map(drop), Err(read_only.clone()));
    assert_eq!(store.snapshot().map(drop), Err(read_only));
    drop((one, other));
    store.close().expect("closed");
    assert!(content() == before, "something was written");
}

#[test]
fn handles_say_what_they_are_and_an_empty_batch_commits() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.table("main").expect("a table");
    assert_eq!(format!("{table:?}"), "Table(\"main\")");
    assert!(format!("{store:?}").contains(&format!("{path:?}")), "{store:?}");
    store.batch().commit(Durability::Wait).expect("nothing to do").wait().expect("durable");
    store.drop_table("main").expect("dropped");
    let gone = Error::Request(RequestError::NoTable("main".to_owned()));
    assert_eq!(table.put(b"key", b"value").map(drop), Err(gone.clone()));
    assert_eq!(table.get(b"key"), Err(gone.clone()));
    let mut batch = store.batch();
    batch.put(&table, b"key", b"value");
    assert_eq!(batch.commit(Durability::Wait).map(drop), Err(gone));
}
