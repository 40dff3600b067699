//! A store that is opened without the modifiers of its application, to sweep and to clean up.

use std::path::Path;

use upsweep::{
    CreateOptions, Error, LoadOptions, Modifier, Outcome, Refusal, RequestError, Store, Table,
    Value, ValueKind, ValueRef,
};

/// Appends a byte, so that an update that is lost or applied twice shows; refuses one.
struct Mark;

impl Modifier for Mark {
    fn name(&self) -> &'static str {
        "mark"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(
        &self,
        _key: &[u8],
        current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        if operand == b"refuse" {
            return Err(Refusal("as asked".to_owned()));
        }
        let old = current.map(|value| value.bytes).unwrap_or_default();
        Ok(Outcome::Put(ValueKind::Bytes, [old, operand].concat()))
    }
}

fn missing() -> Error {
    RequestError::UnknownModifier { name: "mark".to_owned(), version: 1 }.into()
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:08}").into_bytes()
}

fn create(path: &Path) -> Store {
    let options = CreateOptions::default().log_bytes(1 << 20).block_bytes(4096);
    let builder = Store::builder().memory_bytes(12 << 20).modifier(Mark);
    builder.create(path, &options).expect("a new store")
}

fn open(path: &Path) -> Store {
    Store::builder().memory_bytes(12 << 20).modifier(Mark).open(path).expect("opens")
}

fn open_for_upkeep(path: &Path) -> Store {
    Store::builder().memory_bytes(12 << 20).open_for_upkeep(path).expect("opens")
}

fn waiting(store: &Store, name: &str) -> u64 {
    let structures = store.structures();
    structures.iter().find(|found| found.0 == name).expect("the table").2.waiting
}

const RECORDS: u32 = 30_000;
/// Keys of the table `marked` that are marked: few blocks of many.
const MARKED_EVERY: u32 = 150;

fn is_marked(number: u32) -> bool {
    number.is_multiple_of(MARKED_EVERY)
}

fn fill(table: &Table) {
    let record =
        |number| Ok((key(number), Value { kind: ValueKind::Bytes, bytes: vec![b'.'; 100] }));
    table.load((0..RECORDS).map(record), LoadOptions::default()).expect("loaded");
}

/// Adds to all records of both tables, one update after another all over them, and marks some.
fn update(store: &Store) {
    let tables = ["marked", "plain"].map(|name| store.existing_table(name).expect("the table"));
    let mut last = None;
    for number in (0..RECORDS).map(|n| n.wrapping_mul(7919) % RECORDS) {
        for table in &tables {
            last = Some(table.append(&key(number), b"+").expect("accepted"));
        }
        if is_marked(number) {
            last = Some(tables[0].modify(&key(number), &Mark, b"!").expect("accepted"));
        }
    }
    last.expect("an update").wait().expect("durable");
}

#[test]
fn what_needs_no_missing_modifier_is_swept_and_the_rest_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    for name in ["marked", "plain"] {
        fill(&store.table(name).expect("a table"));
    }
    update(&store);
    assert!(store.status().spill.updates > 0, "updates wait in spill segments too");
    store.close().expect("closed");

    let refused = Store::open(&path).map(drop).expect_err("a modifier is missing");
    assert_eq!(refused, missing());
    for _ in 0..2 {
        let store = open_for_upkeep(&path);
        store.sweep().expect("swept");
        let held = store.status().held_blocks;
        assert!(0 < held && held <= u64::from(RECORDS / MARKED_EVERY), "{held} blocks are held");
        assert_eq!(waiting(&store, "plain"), 0);
        assert!(waiting(&store, "marked") >= held);
        let table = store.existing_table("plain").expect("the table");
        assert_eq!(table.get(&key(7)).expect("readable").expect("there").len(), 101);
        assert_eq!(table.put(b"k", b"v").map(drop), Err(missing()));
        let table = store.existing_table("marked").expect("the table");
        let unknown = (0..RECORDS).filter(|number| is_marked(*number)).filter(|number| {
            let found = table.get(&key(*number));
            found.as_ref().err().is_some_and(|error| *error == missing()) || {
                // It was swept while the modifier was there.
                assert_eq!(found.expect("readable").expect("there").len(), 102);
                false
            }
        });
        assert!(unknown.count() as u64 >= held);
        assert_eq!(table.get(&key(7)).expect("readable").expect("there").len(), 101);
        store.blocks().checkpoint().expect("a checkpoint");
        store.close().expect("closed");
    }

    assert_eq!(Store::builder().verify(&path).expect("verified").damage, []);
    let store = open(&path);
    assert_eq!(store.status().held_blocks, 0);
    let check = |name: &str| {
        let table = store.existing_table(name).expect("the table");
        let wanted = |number| {
            let mark: &[u8] = if name == "marked" && is_marked(number) { b"+!" } else { b"+" };
            [&[b'.'; 100], mark].concat()
        };
        let found = table.iter().map(|record| record.expect("readable"));
        assert!(found.map(|(_, value)| value.bytes).eq((0..RECORDS).map(wanted)), "{name}");
    };
    check("marked");
    store.sweep().expect("swept");
    ["marked", "plain"].into_iter().for_each(check);
    assert_eq!(store.quarantined().expect("listed"), []);
}

#[test]
fn a_table_can_be_dropped_and_refused_updates_discarded_without_the_modifier() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.table("marked").expect("a table");
    table.modify(b"k", &Mark, b"refuse").expect("accepted").wait().expect("durable");
    store.sweep().expect("swept");
    table.modify(b"k", &Mark, b"!").expect("accepted").wait().expect("durable");
    drop(table);
    store.close().expect("closed");

    let store = open_for_upkeep(&path);
    let [refused] = &store.quarantined().expect("listed")[..] else { panic!("one was refused") };
    assert_eq!(store.retry_quarantined(&refused.id), Err(missing()));
    store.discard_quarantined(&refused.id).expect("discarded");
    store.sweep().expect("swept");
    assert_eq!(store.status().held_blocks, 1);
    store.drop_table("marked").expect("dropped");
    store.reclaim().expect("given back");
    store.sweep().expect("swept");
    assert_eq!(store.status().held_blocks, 0);
    store.close().expect("closed");

    assert_eq!(Store::builder().verify(&path).expect("verified").damage, []);
    let store = Store::open(&path).expect("needs no modifier any more");
    assert!(store.structures().is_empty());
    assert_eq!(store.quarantined().expect("listed"), []);
}
