//! Calls and updates that do not fit what they meet, through the public API, on files.

#![expect(clippy::disallowed_methods, reason = "tests of a store on files")]

use std::path::Path;
use std::sync::Arc;

use upsweep::layers::runtime::BlockStore;
use upsweep::layers::structures::registry;
use upsweep::{
    CreateOptions, Durability, Error, Modifier, OpenOptions, Outcome, Refusal, RequestError,
    RetryError, Store, TableDefinition, ValueKind, ValueRef,
};

fn small() -> CreateOptions {
    CreateOptions::default().log_bytes(8 << 20)
}

fn create(folder: &Path) -> Store {
    Store::builder().memory_bytes(32 << 20).create(folder, &small()).expect("a new store")
}

#[test]
fn a_number_added_to_a_text_is_quarantined_however_long_the_text() {
    const NUMBERS: TableDefinition<str, i64> = TableDefinition::new("main");
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let (table, numbers) = (store.table("main").expect("a table"), store.typed(NUMBERS));
    let numbers = numbers.expect("the same table");
    let texts = [("t7", "2024010"), ("t8", "20240101"), ("t9", "202401011")];
    for (key, text) in texts {
        table.put(key.as_bytes(), text.as_bytes()).expect("durable");
        table.add(key.as_bytes(), 1).expect("durable");
    }
    let _bits = table.bit_or(b"t8", &[0; 8]).expect("bits of a text");
    numbers.put("number", 41).expect("durable").wait().expect("durable");
    numbers.add("number", 1).expect("durable");
    let _bits = table.bit_or(b"number", &[0xff; 8]).expect("durable");
    let check = || {
        for (key, text) in texts {
            let value = table.get(key.as_bytes()).expect("readable").expect("there");
            assert_eq!((value.kind, value.as_i64()), (ValueKind::Bytes, None), "{key}");
            assert_eq!(*value, *text.as_bytes());
            let error = numbers.get(key).expect_err("a text is not a number");
            assert!(matches!(error, Error::Request(RequestError::TypeMismatch { .. })), "{error}");
        }
        assert_eq!(numbers.get("number").expect("readable"), Some(42));
    };
    check();
    store.sweep().expect("swept");
    check();
    let quarantined = store.quarantined().expect("listed");
    let mut keys: Vec<&[u8]> = quarantined.iter().map(|update| &*update.key).collect();
    keys.sort_unstable();
    assert_eq!(keys, [&b"number"[..], b"t7", b"t8", b"t9"]);
}

#[test]
fn a_batch_takes_only_tables_of_its_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let other = create(&folder.path().join("other"));
    let mine = store.table("mine").expect("a table");
    let theirs = other.table("theirs").expect("a table");
    let mut batch = store.batch();
    batch.put(&mine, b"k", b"v").put(&theirs, b"k", b"v");
    let error = batch.commit(Durability::Wait).map(|_| ()).expect_err("a foreign table");
    assert_eq!(error, RequestError::WrongStore { table: "theirs".to_owned() }.into());
    assert_eq!(mine.get(b"k").expect("readable"), None);
    assert_eq!(theirs.get(b"k").expect("readable"), None);
    let mut batch = store.batch();
    batch.put(&store.table("mine").expect("another handle"), b"k", b"v");
    batch.commit(Durability::Wait).expect("durable").wait().expect("durable");
}

/// Puts its operand; has the name and version 1.
struct Named(String);

impl Modifier for Named {
    fn name(&self) -> &str {
        &self.0
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(
        &self,
        _key: &[u8],
        _current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        Ok(Outcome::Put(ValueKind::Bytes, operand.to_vec()))
    }
}

#[test]
fn the_name_of_a_modifier_has_1_to_64_bytes_and_no_control_characters() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let long = "n".repeat(65);
    for name in ["", &*long, "with\nnewline", "with\0zero"] {
        let builder = Store::builder().modifier(Named(name.to_owned()));
        let error = builder.create(&path, &small()).map(|_| ()).expect_err("a bad name");
        assert_eq!(error, RequestError::BadModifierName(name.to_owned()).into());
        assert!(!path.exists(), "nothing is made");
    }
    let builder = || Store::builder().memory_bytes(32 << 20);
    let store =
        builder().modifier(Named(long[1..].to_owned())).create(&path, &small()).expect("64 bytes");
    drop(store);

    let mut registry = registry();
    registry.modifiers.push(Arc::new(Named(long.clone())));
    let opened = BlockStore::open(&path, &OpenOptions::default(), &registry);
    let error = opened.map(|_| ()).expect_err("a bad name for the block API too");
    assert_eq!(error, RequestError::BadModifierName(long.to_owned()).into());
}

#[test]
fn verification_needs_no_modifier_of_the_application() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let builder = Store::builder().memory_bytes(32 << 20).modifier(Named("mine".to_owned()));
    let store = builder.create(&path, &small()).expect("a new store");
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    for number in 0..2000u32 {
        table.modify(b"key", &Named("mine".to_owned()), &number.to_be_bytes()).expect("logged");
        table.put(&number.to_be_bytes(), b"value").expect("logged");
    }
    drop(table);
    store.close().expect("closed");
    let report = Store::builder().verify(&path).expect("verified");
    assert_eq!(report.damage, []);
    assert!(report.waiting >= 2001, "{} wait", report.waiting);
    let error = Store::open(&path).map(|_| ()).expect_err("to work on it, it is needed");
    let unknown = RequestError::UnknownModifier { name: "mine".to_owned(), version: 1 };
    assert_eq!(error, unknown.into());
}

#[test]
fn a_store_of_the_largest_blocks_opens_with_the_default_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let options = small().block_bytes(1 << 20);
    let store = Store::builder().create(&path, &options).expect("opens");
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    for number in 0..3000u32 {
        let _later = table.put(&number.to_be_bytes(), &[7; 3000]).expect("accepted");
    }
    store.sweep().expect("swept");
    assert_eq!(table.iter().count(), 3000);
    drop((store, table));
    assert_eq!(Store::builder().verify(&path).expect("verified").damage, []);
}

#[test]
fn latency_until_durable_counts_from_the_call_and_without_anyone_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let table = store.table("main").expect("a table").with_durability(Durability::Relaxed);
    for number in 0..10_000u32 {
        table.add(&number.to_be_bytes(), 1).expect("accepted");
    }
    store.flush().expect("durable");
    let before = store.metrics().acknowledge_seconds;
    assert!((1..10_000).contains(&before.count), "one update at a time is measured: {before:?}");
    let ticket = table.add(b"last", 1).expect("accepted");
    while !ticket.is_durable() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let found = store.metrics().acknowledge_seconds;
    assert_eq!(found.count, before.count + 1, "nobody waited for it");
    assert!(found.longest >= 0.002, "it waited up to 5 ms for others: {found:?}");
}

#[test]
fn a_store_whose_lock_file_is_gone_is_still_in_use() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = Store::create(&path).expect("a new store");
    std::fs::remove_file(path.join("lock")).expect("removed");
    let refused = Store::open(&path).expect_err("its devices are in use");
    assert!(matches!(refused, Error::Retry(RetryError::InUse { .. })), "{refused}");
    let refused = Store::builder().verify(&path).expect_err("its devices are in use");
    assert!(matches!(refused, Error::Retry(RetryError::InUse { .. })), "{refused}");
    drop(store);
    Store::open(&path).expect("free again");
}

#[test]
fn a_copied_store_folder_that_names_the_same_devices_cannot_be_used_beside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, copy) = (folder.path().join("store"), folder.path().join("copy"));
    let options = CreateOptions::default().data(vec![folder.path().join("data")]);
    let store = Store::builder().create(&path, &options).expect("a new store");
    std::fs::create_dir(&copy).expect("a folder");
    for file in ["store.json", "log-0"] {
        std::fs::copy(path.join(file), copy.join(file)).expect("copied");
    }
    let refused = Store::open(&copy).expect_err("its data device is in use");
    assert!(matches!(refused, Error::Retry(RetryError::InUse { .. })), "{refused}");
    drop(store);
}

#[test]
fn verification_writes_nothing_and_compares_the_description_with_the_labels() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    drop(Store::create(&path).expect("a new store"));
    std::fs::remove_file(path.join("lock")).expect("removed");
    assert_eq!(Store::builder().verify(&path).expect("verified").damage, []);
    assert!(!path.join("lock").exists(), "verification has written");
    let description = path.join("store.json");
    let text = std::fs::read_to_string(&description).expect("readable");
    assert!(text.contains("16384"));
    std::fs::write(&description, text.replace("16384", "32768")).expect("written");
    let damaged = Store::builder().verify(&path).expect_err("the label says something else");
    assert!(matches!(&damaged, Error::Damaged(damage) if damage.what.contains("label")));
    assert_eq!(Store::open(&path).expect_err("nor is it opened").to_string(), damaged.to_string());
}

#[test]
fn a_snapshot_of_another_store_and_what_the_store_needs_itself_are_not_cloned() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, other) = (create(&folder.path().join("one")), create(&folder.path().join("other")));
    let tables = [&one, &other].map(|store| store.table("hits").expect("a table"));
    tables.iter().for_each(|table| drop(table.put(b"key", b"value").expect("durable")));
    let snapshot = other.snapshot().expect("made");
    let wrong = RequestError::WrongStore { table: "hits".to_owned() };
    assert_eq!(one.clone_from_snapshot(&snapshot, "hits", "copy"), Err(wrong.into()));
    let refused = one.clone_structure("(quarantine)", "copy");
    assert_eq!(refused, Err(RequestError::NoTable("(quarantine)".to_owned()).into()));
    assert_eq!(one.tables().len(), 1);
}

#[test]
fn what_the_log_can_never_take_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = CreateOptions::default().log_bytes(1 << 20);
    let store = Store::builder().create(folder.path().join("store"), &options).expect("created");
    let table = store.table("hits").expect("a table");
    let refused = table.remove_range(b"a", Some(&[b'b'; 4097]));
    let too_long = RequestError::KeyTooLong { bytes: 4097, limit: 4096 };
    assert_eq!(refused, Err(too_long.into()));
    // The names of all tables stand in the record of a snapshot.
    for number in 0..600 {
        store.table(&format!("{number:0>255}")).expect("a table");
    }
    let refused = store.snapshot().map(drop);
    let refused = refused.expect_err("a record of 150 KiB in a log of 1 MiB");
    assert!(matches!(refused, Error::Request(RequestError::BatchTooLong { .. })), "{refused}");
}

#[test]
fn whoever_is_told_of_a_compaction_may_call_the_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let table = store.table("hits").expect("a table").with_durability(Durability::Relaxed);
    // Parts of the keys in falling order, each swept, so that blocks do not lie in that of keys.
    for part in (0..20u32).rev() {
        for number in 0..10_000 {
            let key = (part << 16 | number).to_be_bytes();
            let _later = table.put(&key, &[1; 20]).expect("accepted");
        }
        store.sweep().expect("swept");
    }
    let mut told = 0;
    let done = store.compact("hits", |now| told += u64::from(now.total <= store.status().blocks));
    let done = done.expect("compacted");
    assert!(told > 0 && done.seen == done.total, "{told} times, {done:?}");
}
