//! Hash tables through the public API, on files.

use upsweep::{
    CreateOptions, Durability, Error, HashTable, Kind, RequestError, Store, TableDefinition,
    ValueKind,
};

fn create(folder: &std::path::Path) -> Store {
    let options = CreateOptions::default().log_bytes(16 << 20);
    Store::builder().memory_bytes(32 << 20).create(folder, &options).expect("a new store")
}

fn verified_records(path: &std::path::Path) -> u64 {
    let report = Store::builder().verify(path).expect("verified");
    assert_eq!(report.damage, []);
    report.records
}

/// Keys in ascending order, of which an ordered table would change its last leaf only.
const KEYS: u32 = 250_000;

#[test]
fn buckets_split_while_the_table_is_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.hash_table("hits").expect("new").with_durability(Durability::Ticket);
    let check = |store: &Store, amount: i64| {
        let table = store.existing_hash_table("hits").expect("the table");
        for number in (0..KEYS).step_by(997) {
            let value = table.get(&number.to_be_bytes()).expect("readable").expect("there");
            assert_eq!(value.as_i64(), Some(amount), "key {number}");
        }
        assert_eq!(table.get(b"none").expect("readable"), None);
        let mut seen = vec![false; KEYS as usize];
        for record in table.iter() {
            let (key, value) = record.expect("readable");
            assert_eq!(value.as_i64(), Some(amount));
            let number = u32::from_be_bytes(key.try_into().expect("4 bytes"));
            assert!(!std::mem::replace(&mut seen[number as usize], true), "{number} twice");
        }
        assert!(seen.iter().all(|seen| *seen));
    };
    for _ in 0..2 {
        let mut last = None;
        for number in 0..KEYS {
            last = Some(table.add(&number.to_be_bytes(), 1).expect("accepted"));
        }
        last.expect("updates").wait().expect("durable");
    }
    check(&store, 2);
    store.sweep().expect("swept");
    check(&store, 2);
    let [(name, kind, size)] = &store.structures()[..] else { panic!("one structure") };
    assert_eq!((name.as_str(), kind), ("hits", &Kind::hash_table()));
    assert!(size.blocks > 200 && size.records == u64::from(KEYS), "{size:?}");
    assert_eq!(store.tables(), [], "it is no ordered table");
    drop((store, table));
    let store = Store::open(&path).expect("opens again");
    check(&store, 2);
    drop(store);
    assert_eq!(verified_records(&path), u64::from(KEYS));
}

#[test]
fn buckets_join_when_records_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.hash_table("hits").expect("new").with_durability(Durability::Ticket);
    let blocks = || store.structures()[0].2.blocks;
    for number in 0..50_000u32 {
        table.put(&number.to_be_bytes(), b"value").expect("accepted");
    }
    store.sweep().expect("swept");
    let before = blocks();
    for number in (0..50_000u32).filter(|number| number % 50 != 0) {
        table.delete(&number.to_be_bytes()).expect("accepted");
    }
    store.sweep().expect("swept");
    // The neighbours of one run join; those of different runs meet in a later one.
    assert!(blocks() < before / 4, "{} of {before} buckets", blocks());
    assert_eq!(table.iter().rev().count(), 1000);
    drop((store, table));
    assert_eq!(verified_records(&path), 1000);
}

#[test]
fn all_updates_of_tables_are_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.hash_table("all").expect("new").with_durability(Durability::Ticket);
    let update = |table: &HashTable| -> Result<(), Error> {
        table.put(b"put", b"value")?;
        table.put(b"gone", b"value")?;
        table.delete(b"gone")?;
        table.add(b"sum", 40)?;
        table.add(b"sum", 2)?;
        table.max(b"most", 3)?;
        table.max(b"most", 1)?;
        table.min(b"least", 1)?;
        table.min(b"least", 3)?;
        table.insert_if_absent(b"first", b"1")?;
        table.insert_if_absent(b"first", b"2")?;
        table.put(b"bytes", b"abc")?;
        table.append(b"bytes", b"def")?;
        table.patch(b"bytes", 1, b"BC")?;
        table.put(b"bits", &[1, 2])?;
        table.bit_or(b"bits", &[2, 4])?.wait()
    };
    let check = |table: &HashTable| {
        let get = |key: &[u8]| table.get(key).expect("readable");
        let bytes = |key: &[u8]| get(key).map(|value| value.bytes);
        let number = |key: &[u8]| get(key).and_then(|value| value.as_i64());
        assert_eq!(
            (number(b"sum"), number(b"most"), number(b"least")),
            (Some(42), Some(3), Some(1))
        );
        assert_eq!(bytes(b"put").as_deref(), Some(&b"value"[..]));
        assert_eq!(bytes(b"first").as_deref(), Some(&b"1"[..]));
        assert_eq!(bytes(b"bytes").as_deref(), Some(&b"aBCdef"[..]));
        assert_eq!(bytes(b"bits").as_deref(), Some(&[3, 6][..]));
        assert!(!table.contains(b"gone").expect("readable"));
        assert_eq!(table.iter().count(), 7);
    };
    update(&table).expect("durable");
    check(&table);
    store.sweep().expect("swept");
    check(&table);
    drop((store, table));
    check(&Store::open(&path).expect("opens again").existing_hash_table("all").expect("there"));
}

#[test]
fn a_batch_is_one_change_over_tables_and_hash_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let (log, totals) =
        (store.table("log").expect("new"), store.hash_table("totals").expect("new"));
    let mut batch = store.batch();
    batch.put(&log, b"0001", b"alice 7").add(&totals, b"alice", 7).delete(&totals, b"bob");
    batch.commit(Durability::Wait).expect("durable").wait().expect("durable");
    let total = |store: &Store| {
        let totals = store.existing_hash_table("totals").expect("there");
        totals.get(b"alice").expect("readable").expect("there").as_i64()
    };
    assert_eq!(total(&store), Some(7));
    assert!(log.contains(b"0001").expect("readable"));

    let other = create(&folder.path().join("other"));
    let mut batch = other.batch();
    batch.add(&totals, b"alice", 1);
    let refused = batch.commit(Durability::Wait).map(|_| ()).expect_err("another store");
    assert_eq!(refused, Error::Request(RequestError::WrongStore { table: "totals".to_owned() }));
    drop((store, log, totals));
    assert_eq!(total(&Store::open(&path).expect("opens again")), Some(7));
}

#[test]
fn large_values_live_outside_of_their_bucket() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.hash_table("large").expect("new").with_durability(Durability::Ticket);
    let value = |number: u32| vec![number as u8; 3000 + number as usize * 5000];
    for number in 0..60u32 {
        table.put(&number.to_be_bytes(), &value(number)).expect("accepted");
    }
    store.sweep().expect("swept");
    for number in 0..60u32 {
        table.append(&number.to_be_bytes(), b"more").expect("accepted");
    }
    table.delete(&59u32.to_be_bytes()).expect("accepted").wait().expect("durable");
    let check = |table: &HashTable| {
        for number in 0..59u32 {
            let found = table.get(&number.to_be_bytes()).expect("readable").expect("there");
            assert_eq!(*found, *[value(number), b"more".to_vec()].concat());
        }
        assert_eq!(table.iter().filter(Result::is_ok).count(), 59);
    };
    check(&table);
    store.sweep().expect("swept");
    check(&table);
    drop((store, table));
    let store = Store::open(&path).expect("opens again");
    check(&store.existing_hash_table("large").expect("the table"));
    store.drop_structure("large").expect("dropped");
    assert_eq!(store.structures(), []);
    drop(store);
    assert_eq!(verified_records(&path), 0);
}

#[test]
fn a_name_is_of_one_kind() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    store.table("ordered").expect("new");
    store.hash_table("hashed").expect("new");
    store.blocks().create_space("raw", "raw", false).expect("new");
    let mismatch = |table: &str, found: &str, wanted: &str| {
        let (table, found, wanted) = (table.to_owned(), found.to_owned(), wanted.to_owned());
        Some(Error::Request(RequestError::TableMismatch { table, found, wanted }))
    };
    let missing = Some(Error::Request(RequestError::NoTable("none".to_owned())));
    assert_eq!(store.table("hashed").err(), mismatch("hashed", "a hash table", "a table"));
    assert_eq!(store.hash_table("ordered").err(), mismatch("ordered", "a table", "a hash table"));
    let raw = "a structure of the kind \"raw\"";
    assert_eq!(store.hash_table("raw").err(), mismatch("raw", raw, "a hash table"));
    assert_eq!(store.existing_hash_table("none").err(), missing);
    let found = store.structures();
    let kinds: Vec<_> =
        found.iter().map(|(name, kind, _)| (name.as_str(), kind.format())).collect();
    assert_eq!(kinds, [("ordered", "table"), ("hashed", "hash"), ("raw", "raw")]);
    assert!(found[0].1 == Kind::table() && !found[2].1.is_registered());
    store.drop_structure("raw").expect("dropped, though it is no structure");
    assert_eq!(store.kind("raw"), None);
}

#[test]
fn a_typed_hash_table_knows_its_types() {
    const SCORES: TableDefinition<(u32, u32), i64> = TableDefinition::new("scores");
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let scores = store.typed_hash_table(SCORES).expect("new");
    for game in 0..10 {
        scores.add((7, game), i64::from(game)).expect("durable").wait().expect("durable");
    }
    scores.delete((7, 0)).expect("durable").wait().expect("durable");
    assert_eq!(scores.get((7, 9)).expect("readable"), Some(9));
    let sum: i64 = scores.iter().map(|record| record.expect("readable").1).sum();
    assert_eq!((sum, scores.iter().count()), (45, 9));
    let raw = scores.raw().iter().next().expect("a record").expect("readable");
    assert_eq!(raw.1.kind, ValueKind::I64);
}
