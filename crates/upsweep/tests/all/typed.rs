//! Tables of Rust types.

#![expect(clippy::disallowed_methods, reason = "callers at the same time")]

use std::collections::BTreeSet;

use upsweep::modifiers as builtin;
use upsweep::typed::ModifierOf;
use upsweep::{
    Compared, Durability, Error, LoadOptions, Modifier, Outcome, Refusal, RequestError, Store,
    TableDefinition, ValueKind, ValueRef,
};

/// Hits by page, country and day.
const HITS: TableDefinition<(String, [u8; 2], u32), u64> = TableDefinition::new("hits");
const NAMES: TableDefinition<i32, str> = TableDefinition::new("names");
const BLOBS: TableDefinition<[u8], Vec<u8>> = TableDefinition::new("blobs");
const FLAGS: TableDefinition<bool, [u8; 4]> = TableDefinition::new("flags");
const SEEN: TableDefinition<u128, ()> = TableDefinition::new("seen");
const MEANS: TableDefinition<String, f64> = TableDefinition::new("means");

#[test]
fn keys_of_several_parts_have_ranges_and_prefixes() {
    let store = Store::in_memory().expect("a store");
    let hits = store.typed(HITS).expect("a table").with_durability(Durability::Ticket);
    for page in ["/", "/a", "/a\0b", "/ab"] {
        for country in [b"de", b"fr"] {
            for day in [1, 2, 300] {
                hits.add((page, country, day), u64::from(day)).expect("accepted");
            }
        }
    }
    type Found = Result<((String, [u8; 2], u32), u64), Error>;
    let collect = |scan: &mut dyn Iterator<Item = Found>| {
        scan.map(|record| record.expect("readable").1)
            .fold((0, 0), |(n, sum), one| (n + 1, sum + one))
    };
    assert_eq!(collect(&mut hits.iter()), (24, 8 * 303));
    assert_eq!(collect(&mut hits.prefix(("/a",))), (6, 2 * 303));
    assert_eq!(collect(&mut hits.prefix(("/a", b"de"))), (3, 303));
    assert_eq!(collect(&mut hits.prefix(("/b",)).rev()), (0, 0));
    let range = ("/a", b"de", 2)..=("/a\0b", b"de", 1);
    assert_eq!(collect(&mut hits.range(range.clone())), (6, 302 + 303 + 1));
    let last = hits.range(range).next_back().expect("some").expect("readable").0;
    assert_eq!(last, ("/a\0b".to_owned(), *b"de", 1));
    let order: Vec<_> = hits.iter().map(|record| record.expect("readable").0).collect();
    assert!(order.is_sorted(), "{order:?}");
    hits.remove_range(("/a", b"fr", 0), Some(("/ab", b"aa", 0))).expect("removed");
    assert_eq!(hits.iter().count(), 24 - 3 - 6);
    assert!(!hits.contains(("/a\0b", b"de", 1)).expect("readable"));
    assert_eq!(hits.get(("/a", b"de", 300)).expect("readable"), Some(300));
}

#[test]
fn every_type_has_the_updates_that_fit_it() {
    let store = Store::in_memory().expect("a store");
    let names = store.typed(NAMES).expect("a table");
    names.put(-1, "Ada").expect("durable");
    names.append(-1, " Lovelace").expect("durable");
    names.insert_if_absent(-1, "nobody").expect("durable");
    names.insert_if_absent(2, "Grace").expect("durable");
    assert_eq!(names.get(-1).expect("readable").as_deref(), Some("Ada Lovelace"));
    assert_eq!(names.range(..0).count() + names.range(2..).count(), 2);
    let blobs = store.typed(BLOBS).expect("a table");
    blobs.put(b"key", b"0123").expect("durable");
    blobs.patch(b"key", 2, b"xyz").expect("durable");
    blobs.bit_or(b"other", &[1, 0]).expect("durable");
    blobs.bit_or(b"other", &[2, 4]).expect("durable");
    let all: Vec<_> = blobs.prefix(b"").map(|record| record.expect("readable")).collect();
    let expected = [(b"key".to_vec(), b"01xyz".to_vec()), (b"other".to_vec(), vec![3, 4])];
    assert_eq!(all, expected);
    let flags = store.typed(FLAGS).expect("a table");
    flags.bit_or(true, &[0, 1, 0, 0]).expect("durable");
    flags.bit_or(true, &[8, 0, 0, 0]).expect("durable");
    assert_eq!(flags.get(true).expect("readable"), Some([8, 1, 0, 0]));
    let seen = store.typed(SEEN).expect("a table");
    seen.put(u128::MAX, ()).expect("durable");
    assert!(seen.contains(u128::MAX).expect("readable") && !seen.contains(7).expect("readable"));
    assert_eq!(seen.get(u128::MAX).expect("readable"), Some(()));
    let means = store.typed_hash_table(MEANS).expect("a table");
    means.max("day", 1.5).expect("durable");
    means.min("day", 0.5).expect("durable");
    assert_eq!(means.add_and_get("day", 0.25).expect("durable").0, 0.75);
    assert_eq!(means.fetch_add("night", 2.0).expect("durable").0, 0.0);
    store.sweep().expect("swept");
    assert_eq!(store.quarantined().expect("listed"), []);
    let error = store.existing_typed(MEANS).expect_err("it is a hash table");
    assert!(matches!(error, Error::Request(RequestError::TableMismatch { .. })), "{error}");
    assert!(store.existing_typed_hash_table(MEANS).is_ok());
}

#[test]
fn batches_take_typed_tables_and_refuse_what_does_not_fit() {
    let store = Store::in_memory().expect("a store");
    let (names, means) =
        (store.typed(NAMES).expect("a table"), store.typed_hash_table(MEANS).expect("a table"));
    let mut batch = store.batch();
    batch.put(&names, &1, "one").put(&names, &2, "two").delete(&names, &1);
    batch.add(&means, &"day".to_owned(), 1.5).add(&means, &"day".to_owned(), 2.0);
    batch.update(&names, &2, builtin::APPEND, b" and more");
    batch.commit(Durability::Wait).expect("durable");
    assert_eq!(names.get(2).expect("readable").as_deref(), Some("two and more"));
    assert_eq!(names.get(1).expect("readable"), None);
    assert_eq!(means.get("day").expect("readable"), Some(3.5));
    let number = builtin::value_operand(ValueKind::F64, &1f64.to_le_bytes());
    let no_text = builtin::value_operand(ValueKind::Bytes, &[0xff]);
    let one = 1i64.to_le_bytes();
    let misfits = [
        (builtin::ADD_I64, &one[..]),
        (builtin::BYTE_PATCH, &[0, 0, 0, 0, 0xff]),
        (builtin::PUT, &number),
        (builtin::PUT, &no_text),
        (builtin::INSERT_IF_ABSENT, &number),
        (builtin::COUNTERS, &[0x89]),
    ];
    for (modifier, operand) in misfits {
        let mut batch = store.batch();
        batch.put(&names, &3, "three").update(&names, &3, modifier, operand);
        let error = batch.commit(Durability::Wait).expect_err("no update of texts");
        assert!(matches!(error, Error::Request(RequestError::BadOperand { .. })), "{error}");
    }
    assert_eq!(names.get(3).expect("readable"), None, "none of the batch was declared");
}

#[test]
fn a_typed_table_is_loaded_in_bulk() {
    let store = Store::in_memory().expect("a store");
    let names = store.typed(NAMES).expect("a table");
    let records = (-500..500).map(|number: i32| Ok((number, format!("number {number}"))));
    let loaded = names.load(records, LoadOptions::default()).expect("loaded");
    assert_eq!(loaded.records, 1000);
    assert_eq!(names.get(-7).expect("readable").as_deref(), Some("number -7"));
    let keys: Vec<i32> = names.iter().map(|record| record.expect("readable").0).collect();
    assert!(keys.into_iter().eq(-500..500));
}

#[test]
fn numbers_of_tickets_are_given_out_once() {
    const NEXT: TableDefinition<str, u64> = TableDefinition::new("next");
    let store = Store::in_memory().expect("a store");
    let next = store.typed(NEXT).expect("a table").with_durability(Durability::Ticket);
    let take = || -> Vec<u64> {
        (0..300).map(|_| next.fetch_add("ticket", 1).expect("accepted").0).collect()
    };
    let taken: BTreeSet<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(taken.into_iter().eq(0..1200));
    let Compared::Differs(Some(1200)) = next.compare_and_put("ticket", Some(7), 8).expect("ok")
    else {
        panic!("it is 1200")
    };
    assert!(next.compare_and_put("ticket", Some(1200), 8).expect("ok").is_done());
    assert!(next.compare_and_delete("ticket", 8).expect("ok").is_done());
    assert_eq!(next.get("ticket").expect("readable"), None);
}

/// Keeps the shorter of two texts.
struct Shorter;

impl Modifier for Shorter {
    fn name(&self) -> &'static str {
        "shorter"
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
        match current {
            Some(value) if value.bytes.len() <= operand.len() => Ok(Outcome::Keep),
            _ => Ok(Outcome::Put(ValueKind::Bytes, operand.to_vec())),
        }
    }
}

impl ModifierOf<str> for Shorter {}

#[test]
fn modifiers_of_the_application_say_for_which_values_they_are() {
    let store = Store::builder().modifier(Shorter).in_memory().expect("a store");
    let names = store.typed(NAMES).expect("a table");
    names.modify(1, &Shorter, b"long").expect("durable");
    let (made, _) = names.modify_and_get(1, &Shorter, b"short").expect("durable");
    assert_eq!(made.as_deref(), Some("long"));
    let (made, _) = names.modify_and_get(1, &Shorter, b"s").expect("durable");
    assert_eq!(made.as_deref(), Some("s"));
}

#[cfg(feature = "postcard")]
#[test]
fn values_of_any_type_with_serde() {
    use serde::{Deserialize, Serialize};
    use upsweep::Postcard;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Order {
        items: Vec<(String, u32)>,
        paid: Option<f32>,
    }

    /// One that cannot be written.
    #[derive(Deserialize)]
    struct Broken;

    impl Serialize for Broken {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("broken"))
        }
    }

    const ORDERS: TableDefinition<u64, Postcard<Order>> = TableDefinition::new("orders");
    const BROKEN: TableDefinition<u64, Postcard<Broken>> = TableDefinition::new("orders");
    let store = Store::in_memory().expect("a store");
    let orders = store.typed(ORDERS).expect("a table");
    let order = Order { items: vec![("bolt".to_owned(), 7)], paid: Some(1.5) };
    orders.put(1, &order).expect("durable");
    assert_eq!(orders.get(1).expect("readable"), Some(order.clone()));
    let paid = Order { paid: None, ..order.clone() };
    assert!(orders.compare_and_put(1, Some(&order), &paid).expect("ok").is_done());
    let mut batch = store.batch();
    batch.put(&orders, &2, &Postcard(order.clone()));
    batch.commit(Durability::Wait).expect("durable");
    assert_eq!(orders.iter().count(), 2);
    // A byte too many is no order.
    let bytes = orders.raw().get(&1u64.to_be_bytes()).expect("readable").expect("there").bytes;
    orders.raw().put(&3u64.to_be_bytes(), &[&bytes[..], &[0]].concat()).expect("durable");
    let error = orders.get(3).expect_err("another type");
    assert!(matches!(error, Error::Request(RequestError::TypeMismatch { .. })), "{error}");
    let broken = store.typed(BROKEN).expect("the same table");
    let mut batch = store.batch();
    batch.put(&broken, &1, &Postcard(Broken));
    for error in [
        broken.put(1, &Broken).expect_err("it has no bytes"),
        batch.commit(Durability::Wait).expect_err("it has no bytes"),
    ] {
        assert!(matches!(error, Error::Request(RequestError::BadOperand { .. })), "{error}");
    }
}
