//! Arrays of a store on files, through the public API.

#![expect(clippy::disallowed_types, reason = "visitors run on the threads of the store")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use upsweep::layers::runtime::{BlockVisitor, LoggedUpdate, VisitedBlock};
use upsweep::layers::structures::array::body_format::key_of;
use upsweep::layers::structures::modifiers::{
    ADD_U64, BYTE_PATCH, PUT, patch_operand, value_operand,
};
use upsweep::{
    Array, Cell, CellKind, CreateOptions, Durability, Error, Kind, OpenOptions, RequestError,
    SpaceId, Store, ValueKind,
};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const LAST: u64 = (1 << 48) - 1;

fn create(folder: &Path) -> Store {
    let small = CreateOptions::default().log_bytes(8 << 20);
    Store::builder().memory_bytes(32 << 20).create(folder, &small).expect("a new store")
}

fn cells<T: Cell>(array: &Array<T>, range: impl std::ops::RangeBounds<u64>) -> Vec<(u64, T)> {
    array.iter(range).collect::<Result<_, _>>().expect("readable")
}

fn mismatch(table: &str, found: &str, wanted: &str) -> Error {
    let [table, found, wanted] = [table, found, wanted].map(str::to_owned);
    RequestError::TableMismatch { table, found, wanted }.into()
}

#[test]
fn sparse_cells_are_there_at_once_after_a_sweep_and_after_reopening() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let array = store.array::<u32>("counts").expect("an array").with_durability(Durability::Ticket);
    let sparse = [0, 1, 4_000, 1 << 30, LAST - 1_000_000, LAST];
    for (index, times) in sparse.into_iter().zip(1..) {
        for _ in 0..times {
            array.add(index, 10).expect("accepted");
        }
    }
    let wanted: Vec<(u64, u32)> = sparse.into_iter().zip((10..).step_by(10)).collect();
    let check = |array: &Array<u32>| {
        for (index, cell) in &wanted {
            assert_eq!(array.get(*index).expect("readable"), *cell, "cell {index}");
        }
        assert_eq!(array.get(2).expect("readable"), 0);
        assert_eq!(array.get(1 << 40).expect("readable"), 0);
        assert_eq!(cells(array, ..), wanted);
        let reversed: Result<Vec<_>, _> = array.iter(..).rev().collect();
        let mut reversed = reversed.expect("readable");
        reversed.reverse();
        assert_eq!(reversed, wanted);
        assert_eq!(cells(array, 1..4_000), wanted[1..2]);
        assert_eq!(cells(array, 1..=4_000), wanted[1..3]);
        assert_eq!(cells(array, LAST..), wanted[5..]);
        assert_eq!(cells(array, 2..4_000), []);
        assert_eq!(cells(array, LAST + 1..), []);
        let mut both = array.iter(..);
        let ends = [both.next(), both.next_back(), both.next_back(), both.next()];
        let ends: Vec<_> =
            ends.into_iter().map(|cell| cell.expect("some").expect("fine")).collect();
        assert_eq!(ends, [wanted[0], wanted[5], wanted[4], wanted[1]]);
        assert_eq!(both.count(), 2);
    };
    check(&array);
    store.sweep().expect("swept");
    check(&array);
    drop((array.clear(4_000).expect("accepted"), array.set(4_000, 30).expect("accepted"), array));
    store.close().expect("closed");
    let store = Store::open(&path).expect("opens again");
    check(&store.existing_array("counts").expect("the array"));
    drop(store);
    let report = Store::builder().verify(&path).expect("verified");
    assert_eq!((report.damage, report.records), (vec![], 6));
}

#[test]
fn cells_that_are_zero_take_no_space() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let array = store.array::<i64>("counts").expect("an array").with_durability(Durability::Ticket);
    let size = || store.structures()[0].2;
    for index in 0..10_000 {
        array.add(index, 1).expect("accepted");
    }
    store.sweep().expect("swept");
    assert_eq!(size().records, 10_000);
    // 8 bytes and a bit for each cell, in full blocks.
    assert!(size().bytes < 90_000, "{}", size().bytes);
    for index in 0..10_000 {
        array.add(index, -1).expect("accepted");
    }
    store.sweep().expect("swept");
    assert_eq!((size().records, size().bytes), (0, 0));
    assert_eq!(cells(&array, ..), []);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Object {
    references: U16,
    place: U64,
}

impl Cell for Object {}

#[test]
fn structs_and_every_kind_of_number_are_cells() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let objects = store.array::<Object>("objects").expect("an array");
    let object = Object { references: U16::new(3), place: U64::new(1 << 50) };
    objects.set(7, object).expect("durable").wait().expect("durable");
    let patch = patch_operand(0, &U16::new(4).to_bytes());
    objects.update(7, BYTE_PATCH, &patch).expect("durable");
    objects.update(8, BYTE_PATCH, &patch).expect("a zero cell has all its bytes");
    let references = |object: Object| object.references.get();
    for _ in 0..2 {
        assert_eq!(objects.get(7).expect("readable").place, object.place);
        assert_eq!(references(objects.get(7).expect("readable")), 4);
        assert_eq!(references(objects.get(8).expect("readable")), 4);
        store.sweep().expect("swept");
    }
    let bytes = store.array::<u8>("u8").expect("an array");
    let _ = (bytes.add(0, 200).expect("durable"), bytes.min(0, 100).expect("durable"));
    let signed = store.array::<i64>("i64").expect("an array");
    let _ = (signed.add(0, -5).expect("durable"), signed.max(0, -3).expect("durable"));
    let floats = store.array::<f64>("f64").expect("an array");
    let _ = (floats.add(0, 0.5).expect("durable"), floats.add(0, 0.25).expect("durable"));
    store.sweep().expect("swept");
    assert_eq!(bytes.get(0).expect("readable"), 100);
    assert_eq!(signed.get(0).expect("readable"), -3);
    assert_eq!(floats.get(0).expect("readable"), 0.75);
    let kinds: Vec<(String, Kind)> =
        store.structures().into_iter().map(|(name, kind, _)| (name, kind)).collect();
    let kind_of = |name: &str, kind| (name.to_owned(), Kind::array(kind));
    let wanted = [
        kind_of("objects", CellKind::Bytes(10)),
        kind_of("u8", CellKind::U8),
        kind_of("i64", CellKind::I64),
        kind_of("f64", CellKind::F64),
    ];
    assert_eq!(kinds, wanted);
    assert_eq!(store.tables(), []);
}

#[test]
fn a_batch_changes_tables_and_arrays_together_or_neither() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let objects = store.table("objects").expect("a table");
    let counts = store.array::<u16>("counts").expect("an array");
    let mut batch = store.batch();
    batch.put(&objects, b"name", b"7").add(&counts, &7, 2).put(&counts, &8, &5);
    batch.delete(&counts, &8).add(&objects, b"objects", 1);
    batch.commit(Durability::Wait).expect("durable").wait().expect("durable");
    assert_eq!(objects.get(b"name").expect("readable").expect("there").bytes, b"7");
    assert_eq!(cells(&counts, ..), [(7, 2)]);

    let mut batch = store.batch();
    batch.put(&objects, b"name", b"8").add(&counts, &(LAST + 1), 1);
    let error = batch.commit(Durability::Wait).map(|_| ()).expect_err("no such cell");
    assert_eq!(error, RequestError::IndexTooLarge { index: LAST + 1, limit: LAST }.into());
    assert_eq!(objects.get(b"name").expect("readable").expect("there").bytes, b"7");

    let other = create(&folder.path().join("other"));
    let mut batch = other.batch();
    batch.add(&counts, &7, 1);
    let error = batch.commit(Durability::Wait).map(|_| ()).expect_err("of another store");
    assert_eq!(error, RequestError::WrongStore { table: "counts".to_owned() }.into());
}

#[test]
fn names_belong_to_one_kind_of_structure() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    store.table("table").expect("a table");
    store.array::<u32>("array").expect("an array");
    store.array::<u32>("array").expect("the same array");
    let of = |error: Result<(), Error>| error.expect_err("another kind");
    let found = of(store.array::<i64>("array").map(|_| ()));
    assert_eq!(found, mismatch("array", "an array of u32", "an array of i64"));
    let found = of(store.existing_array::<Object>("array").map(|_| ()));
    assert_eq!(found, mismatch("array", "an array of u32", "an array of bytes10"));
    let found = of(store.array::<i64>("table").map(|_| ()));
    assert_eq!(found, mismatch("table", "a table", "an array of i64"));
    let found = of(store.table("array").map(|_| ()));
    assert_eq!(found, mismatch("array", "an array of u32", "a table"));
    let missing = Error::from(RequestError::NoTable("none".to_owned()));
    assert_eq!(of(store.existing_array::<u8>("none").map(|_| ())), missing);
    assert_eq!(of(store.drop_structure("none")), missing);
    assert!(store.drop_table("array").is_err(), "an array is no table");
    store.drop_structure("array").expect("dropped");
    store.drop_structure("table").expect("dropped");
    assert_eq!(store.structures(), []);
    store.array::<i64>("array").expect("the name is free");
}

#[test]
fn what_no_cell_can_take_is_refused_at_the_call_or_quarantined() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let array = store.array::<u8>("array").expect("an array");
    let too_large = RequestError::IndexTooLarge { index: LAST + 1, limit: LAST };
    assert_eq!(array.get(LAST + 1).expect_err("no such cell"), too_large.clone().into());
    assert_eq!(array.add(LAST + 1, 1).map(|_| ()).expect_err("no such cell"), too_large.into());
    let text = value_operand(ValueKind::Bytes, b"text");
    let error = array.update(0, PUT, &text).map(|_| ()).expect_err("no cell");
    assert!(matches!(error, Error::Request(RequestError::BadOperand { .. })), "{error}");

    let _ = (array.set(0, 250).expect("durable"), array.add(0, 10).expect("durable"));
    store.sweep().expect("swept");
    // The block API takes what the array refuses, and the format refuses it.
    let blocks = store.blocks();
    let (one, space) = (1u64.to_le_bytes(), array.space());
    let updates = [
        LoggedUpdate { space, modifier: PUT, key: &key_of(0), operand: &text },
        LoggedUpdate { space, modifier: ADD_U64, key: &key_of(LAST + 1), operand: &one },
        LoggedUpdate { space, modifier: ADD_U64, key: b"long", operand: &one },
    ];
    for round in 0..2 {
        blocks.modify(&updates, Durability::Wait).expect("accepted").wait().expect("durable");
        assert_eq!(array.get(0).expect("readable"), 250, "round {round}");
        assert_eq!(cells(&array, ..), [(0, 250)]);
        store.sweep().expect("swept");
    }
    assert_eq!(array.get(0).expect("readable"), 250);
    let reasons: Vec<String> =
        store.quarantined().expect("listed").into_iter().map(|update| update.reason).collect();
    assert_eq!(reasons.len(), 7, "{reasons:?}");
    for (wanted, times) in [("260 does not fit", 1), ("is no u8", 2), ("below 2^48", 4)] {
        let found = reasons.iter().filter(|reason| reason.contains(wanted)).count();
        assert_eq!(found, times, "{wanted}: {reasons:?}");
    }
}

#[test]
fn a_visitor_sees_every_block_as_it_is_swept() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let array = store.array::<u16>("array").expect("an array").with_durability(Durability::Ticket);
    let seen: Arc<Mutex<BTreeMap<u64, u16>>> = Arc::default();
    let visits = Arc::clone(&seen);
    array
        .set_visitor(move |first, cells| {
            let mut seen = visits.lock().expect("no visitor panics");
            for (index, cell) in (first..).zip(cells) {
                seen.insert(index, cell);
            }
        })
        .expect("the array is there");
    let indices = || (0..200_000u64).step_by(7).chain(LAST - 10..=LAST);
    for index in indices() {
        array.add(index, (index % 1000) as u16).expect("accepted");
    }
    store.sweep().expect("swept");
    let wanted: BTreeMap<u64, u16> =
        indices().map(|index| (index, (index % 1000) as u16)).filter(|cell| cell.1 > 0).collect();
    let found = std::mem::take(&mut *seen.lock().expect("no visitor panics"));
    assert!(found.len() > 200_000, "zeros are shown: {}", found.len());
    assert_eq!(found.last_key_value().map(|cell| *cell.0), Some(LAST));
    let found: BTreeMap<u64, u16> = found.into_iter().filter(|cell| cell.1 > 0).collect();
    assert_eq!(found, wanted);

    array.clear(7).expect("accepted");
    store.sweep().expect("swept");
    let found = std::mem::take(&mut *seen.lock().expect("no visitor panics"));
    assert_eq!((found.get(&7), found.get(&14)), (Some(&0), Some(&14)));
    assert_eq!(found.len(), CellKind::U16.cells_per_block(), "one block was swept");

    array.remove_visitor().expect("the array is there");
    array.set(7, 7).expect("accepted");
    store.sweep().expect("swept");
    assert!(seen.lock().expect("no visitor panics").is_empty());
}

#[test]
fn each_cycle_of_the_sweep_visits_blocks_in_the_order_of_the_last() {
    let folder = tempfile::tempdir().expect("a folder");
    // Of several workers, one that the machine interrupts would bring its blocks late.
    let small = CreateOptions::default().log_bytes(8 << 20);
    let options = OpenOptions::default().memory_bytes(32 << 20).workers(1);
    let builder = Store::builder().options(options);
    let store = builder.create(folder.path().join("store"), &small).expect("a new store");
    let array = store.array::<u8>("array").expect("an array").with_durability(Durability::Ticket);
    let visits: Arc<Mutex<Vec<u64>>> = Arc::default();
    let seen = Arc::clone(&visits);
    array
        .set_visitor(move |first, _| seen.lock().expect("no visitor panics").push(first))
        .expect("the array is there");
    let (blocks, cycles) = (1000, 30);
    for _ in 0..cycles {
        for block in 0..blocks {
            let index = block * CellKind::U8.cells_per_block() as u64;
            array.add(index, 1).expect("accepted");
        }
        store.sweep().expect("swept");
    }
    let visits = visits.lock().expect("no visitor panics");
    assert_eq!(visits.len() as u64, cycles * blocks);
    let mut last: BTreeMap<u64, usize> = BTreeMap::new();
    let (mut in_turn, mut out_of_turn) = (0, 0);
    for (at, first) in visits.iter().enumerate().skip(2 * blocks as usize) {
        if let Some(last) = last.insert(*first, at) {
            let waited = (at - last) as u64;
            *if (500..=1500).contains(&waited) { &mut in_turn } else { &mut out_of_turn } += 1;
        }
    }
    // With cycles that begin at the start of the device 928 visits are out of turn.
    assert!(out_of_turn <= 320, "{out_of_turn} visits out of turn, {in_turn} in turn");
}

#[test]
fn a_visitor_that_panics_hurts_nobody() {
    struct Panics;
    impl BlockVisitor for Panics {
        fn visit(&self, block: &VisitedBlock<'_>) {
            panic!("a block of {} bytes", block.body.len());
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let (table, array) = (store.table("table"), store.array::<u8>("array"));
    let (table, array) = (table.expect("a table"), array.expect("an array"));
    let blocks = store.blocks();
    blocks.set_visitor(table.space(), Some(Arc::new(Panics))).expect("the table is there");
    array.set_visitor(|_, _| panic!("no cells today")).expect("the array is there");
    assert_eq!(array.visitor_panic(), None);
    for round in 0..2 {
        let _ = (table.add(b"k", 1).expect("durable"), array.add(9, 1).expect("durable"));
        store.sweep().expect("swept");
        assert_eq!(array.visitor_panic().as_deref(), Some("no cells today"), "round {round}");
        let panic = blocks.visitor_panic(table.space()).expect("it panicked");
        assert!(panic.starts_with("a block of "), "{panic}");
    }
    assert_eq!(array.get(9).expect("readable"), 2);
    assert_eq!(table.get(b"k").expect("readable").and_then(|value| value.as_i64()), Some(2));
    array.set_visitor(|_, _| ()).expect("another one");
    assert_eq!(array.visitor_panic(), None);
    let missing = blocks.set_visitor(SpaceId::new(999), None).expect_err("no such space");
    assert!(matches!(missing, Error::Request(RequestError::NoTable(_))), "{missing}");
}

#[derive(Clone, Debug)]
enum Step {
    Add(u64, i64),
    Set(u64, i64),
    Clear(u64),
    Sweep,
    Reopen,
    Scan(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = || prop_oneof![4 => 0u64..30, 2 => 0u64..9_000, 1 => LAST - 5_000..=LAST];
    let step = prop_oneof![
        8 => (index(), -2i64..3).prop_map(|(index, amount)| Step::Add(index, amount)),
        2 => (index(), any::<i64>()).prop_map(|(index, cell)| Step::Set(index, cell)),
        2 => index().prop_map(Step::Clear),
        1 => Just(Step::Sweep),
        1 => Just(Step::Reopen),
        2 => (index(), index()).prop_map(|(from, to)| Step::Scan(from, to)),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn an_array_is_what_a_map_says(steps in steps()) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let mut store = create(&path);
        let later = |store: &Store| {
            store.array::<i64>("array").expect("an array").with_durability(Durability::Ticket)
        };
        let mut array = later(&store);
        let mut oracle: BTreeMap<u64, i64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Add(index, amount) => {
                    array.add(index, amount).expect("accepted");
                    let cell = oracle.entry(index).or_default();
                    *cell = cell.wrapping_add(amount);
                }
                Step::Set(index, cell) => {
                    array.set(index, cell).expect("accepted");
                    oracle.insert(index, cell);
                }
                Step::Clear(index) => {
                    array.clear(index).expect("accepted");
                    oracle.remove(&index);
                }
                Step::Sweep => store.sweep().expect("swept"),
                Step::Reopen => {
                    drop((store, array));
                    store = Store::open(&path).expect("opens again");
                    array = later(&store);
                }
                Step::Scan(from, to) => {
                    let wanted = |cell: &(&u64, &i64)| from <= *cell.0 && *cell.0 < to;
                    let wanted = oracle.iter().filter(wanted).filter(|(_, cell)| **cell != 0);
                    let wanted: Vec<(u64, i64)> = wanted.map(|(i, cell)| (*i, *cell)).collect();
                    prop_assert_eq!(&cells(&array, from..to), &wanted);
                    let back: Result<Vec<_>, _> = array.iter(from..to).rev().collect();
                    let back = back.expect("readable");
                    prop_assert!(back.iter().rev().eq(&wanted));
                    prop_assert_eq!(array.get(from), Ok(oracle.get(&from).copied().unwrap_or(0)));
                }
            }
        }
    }
}
