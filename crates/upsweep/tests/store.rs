//! A store through its public API, on files.

use upsweep::{CreateOptions, Durability, Store, TableDefinition};

fn small() -> CreateOptions {
    CreateOptions { log_bytes: Some(8 << 20), ..CreateOptions::default() }
}

fn create(folder: &std::path::Path) -> Store {
    Store::builder().memory_bytes(32 << 20).create(folder, &small()).expect("a new store")
}

#[test]
fn updates_are_there_at_once_after_a_sweep_and_after_reopening() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.table("hits").expect("a table").with_durability(Durability::Ticket);
    let mut last = None;
    for round in 0..3u32 {
        for number in 0..20_000u32 {
            let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
            last = Some(table.add(&key, 1 + i64::from(round)).expect("accepted"));
        }
    }
    last.expect("updates").wait().expect("durable");
    let check = |store: &Store| {
        let table = store.existing_table("hits").expect("the table");
        for number in (0..20_000u32).step_by(97) {
            let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
            let value = table.get(&key).expect("readable").expect("there");
            assert_eq!(value.as_i64(), Some(6), "key {number}");
        }
        let scanned = table.iter().map(|record| record.expect("readable"));
        assert_eq!(
            scanned.map(|(_, value)| value.as_i64().expect("a number")).sum::<i64>(),
            120_000
        );
        assert_eq!(table.iter().rev().count(), 20_000);
    };
    check(&store);
    store.sweep().expect("swept");
    check(&store);
    drop(table);
    store.close().expect("closed");
    let store = Store::open(&path).expect("opens again");
    check(&store);
    drop(store);
    let report = Store::builder().verify(&path).expect("verified");
    assert_eq!(report.damage, []);
    assert_eq!(report.records, 20_000);
}

#[test]
fn a_typed_table_keeps_the_order_of_its_keys() {
    const SCORES: TableDefinition<i64, f64> = TableDefinition::new("scores");
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let scores = store.typed(SCORES).expect("a table");
    for key in [-5i64, 3, 0, i64::MIN, i64::MAX] {
        scores.put(&key, &(key as f64)).expect("durable").wait().expect("durable");
    }
    let keys: Vec<i64> = scores.iter().map(|record| record.expect("readable").0).collect();
    assert_eq!(keys, [i64::MIN, -5, 0, 3, i64::MAX]);
    let some: Vec<i64> =
        scores.range(&-5..&3).rev().map(|record| record.expect("readable").0).collect();
    assert_eq!(some, [0, -5]);
}
