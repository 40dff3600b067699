//! Bulk loading through the public API: all of it or nothing, and then a table like any other.

#![expect(clippy::disallowed_methods, reason = "a test looks at the files of a store")]

use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use upsweep::layers::runtime::LoadedBlock;
use upsweep::layers::structures::table::TableLoader;
use upsweep::{
    CreateOptions, Error, LoadOptions, RequestError, SpaceId, Store, Table, Value, ValueKind,
};

fn create(folder: &std::path::Path) -> Store {
    let options = CreateOptions::default().log_bytes(16 << 20).block_bytes(4096);
    Store::builder().memory_bytes(32 << 20).create(folder, &options).expect("a new store")
}

fn record(number: u32) -> Result<(Vec<u8>, Value), Error> {
    let key = if number == 0 { Vec::new() } else { format!("key{number:08}").into_bytes() };
    let eight = (u64::from(number) << 40).to_le_bytes().to_vec();
    let (kind, bytes) = match number % 5 {
        0 => (ValueKind::I64, eight),
        1 => (ValueKind::U64, eight),
        2 => (ValueKind::F64, (-f64::from(number) / 3.0).to_le_bytes().to_vec()),
        3 if number % 1000 == 3 => (ValueKind::Bytes, vec![number as u8; 40_000]),
        _ => (ValueKind::Bytes, number.to_string().into_bytes()),
    };
    Ok((key, Value { kind, bytes }))
}

#[test]
fn a_loaded_table_has_every_record_and_takes_updates() {
    const COUNT: u32 = 20_000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.table("loaded").expect("a table");
    let summary = table.load((0..COUNT).map(record), LoadOptions::default()).expect("loaded");
    assert_eq!((summary.records, summary.values), (u64::from(COUNT), 20));
    assert!(summary.blocks > 100 && summary.bytes > 20 * 40_000, "{summary:?}");
    let check = |store: &Store| {
        let table = store.existing_table("loaded").expect("the table");
        assert!(table.iter().eq((0..COUNT).map(record)));
        assert_eq!(table.get(b"key00000003").expect("readable"), Some(record(3).expect("one").1));
    };
    check(&store);
    drop(table);
    store.close().expect("closed");
    let store = Store::open(&path).expect("opens again");
    check(&store);
    let table = store.existing_table("loaded").expect("the table");
    table.add(b"key00000005", 7).expect("durable").wait().expect("durable");
    table.delete(b"").expect("durable").wait().expect("durable");
    store.sweep().expect("swept");
    let sum = table.get(b"key00000005").expect("readable").and_then(|value| value.as_i64());
    assert_eq!(sum, Some((5 << 40) + 7));
    assert_eq!(table.iter().count(), COUNT as usize - 1);
    drop((table, store));
    let report = Store::builder().verify(&path).expect("verified");
    assert_eq!(report.damage, []);
}

#[test]
fn a_load_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let table = store.table("loaded").expect("a table");
    let load =
        |records: Vec<Result<(Vec<u8>, Value), Error>>| table.load(records, LoadOptions::default());
    let own = Error::from(RequestError::BadTableName("of the caller".to_owned()));
    let mut records: Vec<_> = (0..5000).map(record).collect();
    records.push(Err(own.clone()));
    assert_eq!(load(records), Err(own));
    assert_eq!(table.iter().count(), 0);
    let refused = load((0..5000).map(record).chain([record(17)]).collect());
    let reason = "the key is below the one before it; keys must ascend".to_owned();
    assert_eq!(refused, Err(RequestError::BadRecord { number: 5001, reason }.into()));
    assert_eq!(table.iter().count(), 0);
    // An empty load is a load; after another, the table is no longer empty.
    assert_eq!(load(Vec::new()).map(|summary| summary.blocks), Ok(0));
    assert_eq!(load((0..10).map(record).collect()).map(|summary| summary.records), Ok(10));
    let refused = load((20..30).map(record).collect());
    assert_eq!(refused, Err(RequestError::NotEmpty("loaded".to_owned()).into()));
    assert_eq!(table.iter().count(), 10);
}

#[test]
fn only_tables_are_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let raw = store.blocks().create_space("images", "raw", false).expect("a space").space;
    let load = |space| store.blocks().load(space, &mut std::iter::empty());
    assert!(matches!(load(raw), Err(Error::Request(RequestError::BadFormat { .. }))));
    assert!(matches!(load(SpaceId::new(9999)), Err(Error::Request(RequestError::NoTable(_)))));
    let table = store.table("loaded").expect("a table");
    let body = b"no leaf".to_vec();
    let block = LoadedBlock { body, ..LoadedBlock::default() };
    let refused = store.blocks().load(table.space(), &mut std::iter::once(Ok(block)));
    assert!(matches!(refused, Err(Error::Request(RequestError::BadFormat { .. }))));
    assert_eq!(table.iter().count(), 0);
}

#[test]
fn an_update_meanwhile_ends_the_load_and_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.table("loaded").expect("a table");
    // Nothing is left to be seen of the deletion: the table is as empty as before.
    for change in [
        |table: &Table| drop(table.delete(b"key00000100").expect("durable")),
        |table: &Table| {
            table.remove_range(b"", None).expect("durable");
        },
    ] {
        let records = (0..5000).inspect(|number| {
            if *number == 4000 {
                change(&table);
                store.sweep().expect("swept");
            }
        });
        let refused = table.load(records.map(record), LoadOptions::default());
        assert_eq!(refused, Err(RequestError::NotEmpty("loaded".to_owned()).into()));
    }
    table.load((0..5000).map(record), LoadOptions::default()).expect("loaded");
    drop((table, store));
    let store = Store::open(&path).expect("opens again");
    let table = store.existing_table("loaded").expect("the table");
    assert!(table.iter().eq((0..5000).map(record)));
}

#[test]
fn a_panic_among_the_records_gives_everything_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let table = store.table("loaded").expect("a table");
    let free = |store: &Store| store.status().data_bytes;
    let before = free(&store);
    let records =
        (0..50_000).map(|number| if number == 40_000 { panic!("stop") } else { record(number) });
    let load = AssertUnwindSafe(|| table.load(records, LoadOptions::default()));
    assert!(catch_unwind(load).is_err());
    store.reclaim().expect("given back");
    assert_eq!((table.iter().count(), free(&store)), (0, before));
    table.load((0..10).map(record), LoadOptions::default()).expect("loaded");
}

#[test]
fn large_values_are_those_that_the_block_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let table = store.table("loaded").expect("a table");
    let large = |letter: u8| Value { kind: ValueKind::Bytes, bytes: vec![letter; 40_000] };
    let records = [b"a", b"b"].map(|key| Ok((key, large(key[0]))));
    let limits = store.blocks().limits();
    let loader = TableLoader::new(records.into_iter(), limits, LoadOptions::default());
    let packed = loader.expect("the default fill").collect::<Result<Vec<_>, _>>();
    let mut block = packed.expect("sound records").remove(0);
    block.values.swap(0, 1);
    let refused = store.blocks().load(table.space(), &mut std::iter::once(Ok(block)));
    let message = refused.expect_err("values in the wrong order").to_string();
    assert!(message.contains("its large values are not those to which it refers"), "{message}");
}

/// Whether the system makes holes in files.
const HOLES: bool = cfg!(all(target_os = "linux", not(feature = "generic-unix")));

#[test]
fn the_room_of_a_dropped_table_goes_back_to_the_file_system() {
    const MIB: u64 = 1 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let file = || std::fs::metadata(path.join("data-0")).expect("a file of data");
    let allocated = || file().blocks() * 512;
    let record = |number: u32| {
        let (kind, bytes) = (ValueKind::Bytes, vec![number as u8; 100_000]);
        Ok((format!("key{number:08}").into_bytes(), Value { kind, bytes }))
    };
    let fill = |store: &Store, name: &str, count: u32| {
        let table = store.table(name).expect("a table");
        table.load((0..count).map(record), LoadOptions::default()).expect("loaded");
    };
    let check = |store: &Store, name: &str, count: u32| {
        let table = store.existing_table(name).expect("the table");
        assert!(table.iter().eq((0..count).map(record)), "{name}");
    };
    fill(&store, "kept", 100);
    fill(&store, "dropped", 2000);
    let length = file().len();
    assert!(allocated() > 190 * MIB, "{} MiB", allocated() / MIB);
    store.drop_table("dropped").expect("dropped");
    store.reclaim().expect("given back");
    // 10 MB of data, 72 MiB of reserve and a little more; all of it where files have no holes.
    let is_given_back = allocated() < 100 * MIB;
    assert_eq!(is_given_back, HOLES, "{} MiB", allocated() / MIB);
    assert_eq!(file().len(), length);
    let status = store.status();
    assert_eq!((status.data_capacity_bytes, status.devices[0].size_bytes), (allocated(), length));
    check(&store, "kept", 100);
    store.close().expect("closed");
    assert_eq!(Store::builder().verify(&path).expect("verified").damage, []);
    let store = Store::open(&path).expect("opens again");
    fill(&store, "again", 2000);
    assert!(allocated() > 190 * MIB, "{} MiB", allocated() / MIB);
    assert!(file().len() <= length + length / 4, "holes come before the end");
    check(&store, "kept", 100);
    check(&store, "again", 2000);
    drop(store);
    assert_eq!(Store::builder().verify(&path).expect("verified").damage, []);
}
