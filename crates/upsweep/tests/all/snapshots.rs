//! Clones, snapshots, what changed between them, and ranges of keys, through the public interface.

use std::collections::BTreeMap;

use upsweep::{Error, RequestError, Store, Table};

type Rows = BTreeMap<Vec<u8>, i64>;

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn rows(table: &Table) -> Rows {
    let rows = table.iter().map(|row| row.expect("readable"));
    rows.map(|(key, value)| (key, value.as_i64().expect("a number"))).collect()
}

fn add_all(table: &Table, numbers: impl Iterator<Item = u32>, amount: i64) {
    let table = table.with_durability(upsweep::Durability::Relaxed);
    for number in numbers {
        table.add(&key(number), amount).expect("accepted");
    }
}

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::create(folder.path().join("store")).expect("created");
    (folder, store)
}

#[test]
fn a_clone_has_what_waits_and_goes_its_own_way() {
    let (folder, store) = store();
    let source = store.table("source").expect("a table");
    add_all(&source, 0..20_000, 1);
    store.sweep().expect("swept");
    // These wait when the table is cloned.
    add_all(&source, 0..5_000, 1);
    let clone = store.clone_table("source", "clone").expect("cloned");
    assert_eq!(rows(&clone), rows(&source));
    add_all(&clone, 4_000..6_000, 100);
    add_all(&source, 5_500..5_600, 7);
    let wanted = |source: bool| -> Rows {
        let value = |n: u32| {
            let both = 1 + i64::from(n < 5_000);
            if source {
                both + if (5_500..5_600).contains(&n) { 7 } else { 0 }
            } else {
                both + if (4_000..6_000).contains(&n) { 100 } else { 0 }
            }
        };
        (0..20_000).map(|n| (key(n), value(n))).collect()
    };
    assert_eq!((rows(&source), rows(&clone)), (wanted(true), wanted(false)));
    store.sweep().expect("swept");
    assert_eq!((rows(&source), rows(&clone)), (wanted(true), wanted(false)));
    drop((source, clone, store));

    let path = folder.path().join("store");
    let report = Store::builder().verify(&path).expect("verified");
    assert_eq!(report.damage, []);
    let store = Store::open(&path).expect("opens");
    let table = |name| store.existing_table(name).expect("there");
    assert_eq!((rows(&table("source")), rows(&table("clone"))), (wanted(true), wanted(false)));
    store.drop_table("source").expect("dropped");
    assert_eq!(rows(&table("clone")), wanted(false));
}

#[test]
fn a_dropped_clone_gives_back_what_only_it_had() {
    let (_folder, store) = store();
    let source = store.table("source").expect("a table");
    add_all(&source, 0..50_000, 1);
    store.sweep().expect("swept");
    let used = || store.status().data_bytes;
    let before = used();
    let clone = store.clone_table("source", "clone").expect("cloned");
    add_all(&clone, 0..50_000, 1);
    store.sweep().expect("swept");
    assert!(used() > before + before / 2, "every block of the clone is its own by now");
    drop(clone);
    store.drop_table("clone").expect("dropped");
    store.reclaim().expect("given back");
    assert!(used() <= before + before / 8, "{} bytes, {before} before", used());
    assert_eq!(rows(&source).len(), 50_000);
}

#[test]
fn a_snapshot_shows_one_moment_and_cannot_be_changed() {
    let (folder, store) = store();
    let table = store.table("table").expect("a table");
    add_all(&table, 0..3_000, 1);
    let before = rows(&table);
    let snapshot = store.create_snapshot("monday").expect("made");
    let unnamed = store.snapshot().expect("made");
    add_all(&table, 1_000..4_000, 5);
    table.remove_range(&key(100), Some(&key(200))).expect("removed");
    store.sweep().expect("swept");
    for kept in [&snapshot, &unnamed] {
        assert_eq!(rows(&kept.table("table").expect("kept")), before);
    }
    let refused = snapshot.table("table").expect("kept").add(b"key", 1).map(drop);
    assert!(matches!(refused, Err(Error::Request(RequestError::ReadOnly(_)))), "{refused:?}");
    let taken = store.create_snapshot("monday").map(drop);
    assert!(matches!(taken, Err(Error::Request(RequestError::SnapshotExists(_)))), "{taken:?}");
    store.clone_from_snapshot(&snapshot, "table", "again").expect("cloned");
    add_all(&store.existing_table("again").expect("there"), 0..1, 1);
    assert_eq!(rows(&snapshot.table("table").expect("kept")), before);
    drop((table, snapshot, unnamed, store));

    let store = Store::open(folder.path().join("store")).expect("opens");
    let names: Vec<_> =
        store.snapshots().iter().map(|found| found.name().map(str::to_owned)).collect();
    assert_eq!(names, [Some("monday".to_owned())]);
    let kept = store.existing_snapshot("monday").expect("kept").table("table").expect("kept");
    assert_eq!(rows(&kept), before);
    store.drop_snapshot("monday").expect("dropped");
    assert!(matches!(kept.get(b"key"), Err(Error::Request(RequestError::NoTable(_)))));
}

#[test]
fn what_changed_between_two_snapshots_is_told_key_by_key() {
    let (_folder, store) = store();
    let table = store.table("table").expect("a table");
    add_all(&table, 0..30_000, 1);
    store.sweep().expect("swept");
    let first = store.snapshot().expect("made");
    let same = store.snapshot().expect("made");
    assert_eq!(same.changed_since(&first, "table").expect("compared").count(), 0);
    add_all(&table, (0..30_000).step_by(5_000), 1);
    table.remove_range(&key(12_000), Some(&key(14_000))).expect("removed");
    add_all(&table, 13_000..13_001, 9);
    for swept in [false, true] {
        if swept {
            store.sweep().expect("swept");
        }
        let second = store.snapshot().expect("made");
        let old = rows(&first.table("table").expect("kept"));
        let new = rows(&second.table("table").expect("kept"));
        let changes = second.changed_since(&first, "table").expect("compared");
        let mut found: BTreeMap<Vec<u8>, (Option<i64>, Option<i64>)> = BTreeMap::new();
        for change in changes {
            let change = change.expect("readable");
            let number = |value: Option<upsweep::Value>| value.and_then(|value| value.as_i64());
            found.insert(change.key, (number(change.before), number(change.after)));
        }
        let keys = old.keys().chain(new.keys());
        let wanted: BTreeMap<_, _> = keys
            .filter(|key| old.get(*key) != new.get(*key))
            .map(|key| (key.clone(), (old.get(key).copied(), new.get(key).copied())))
            .collect();
        assert_eq!(found, wanted, "swept: {swept}");
    }
    let newer = store.table("newer").expect("a table");
    add_all(&newer, 0..10, 1);
    let third = store.snapshot().expect("made");
    assert_eq!(third.changed_since(&first, "newer").expect("compared").count(), 10);
}

#[test]
fn a_range_goes_with_what_waits_for_it_and_only_from_ordered_tables() {
    let (_folder, store) = store();
    let table = store.table("table").expect("a table");
    add_all(&table, 0..40_000, 1);
    store.sweep().expect("swept");
    add_all(&table, 0..40_000, 1);
    table.remove_range(&key(10), Some(&key(39_990))).expect("removed");
    table.put(&key(20_000), b"new").expect("put");
    let left: Vec<_> = table.iter().map(|row| row.expect("readable").0).collect();
    let wanted: Vec<_> = (0..10).chain([20_000]).chain(39_990..40_000).map(key).collect();
    assert_eq!(left, wanted);
    store.sweep().expect("swept");
    assert_eq!(table.iter().count(), wanted.len());
    table.remove_range(b"", None).expect("removed");
    assert_eq!(table.iter().count(), 0);
    let hashed = store.hash_table("hashed").expect("a hash table");
    let refused = store.blocks().remove_range(hashed.space(), b"", None);
    assert!(matches!(refused, Err(Error::Request(RequestError::NotOrdered(_)))), "{refused:?}");
}

#[test]
fn ten_thousand_snapshots_take_no_longer_each_than_a_few() {
    // No time is measured. When each went through all, 2,000 took over a minute to make and drop.
    const COUNT: u32 = 10_000;
    let (_folder, store) = store();
    let table = store.table("main").expect("a table");
    table.put(b"key", b"value").expect("accepted").wait().expect("durable");
    for number in 0..COUNT {
        store.create_snapshot(&format!("number {number}")).expect("made");
    }
    assert_eq!(store.snapshots().len(), COUNT as usize);
    for number in 0..COUNT {
        store.drop_snapshot(&format!("number {number}")).expect("dropped");
    }
    assert!(store.snapshots().is_empty());
}
