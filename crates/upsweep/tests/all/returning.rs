//! Updates that return what they have found or made.

#![expect(clippy::disallowed_methods, reason = "tests of a store on files, with threads")]

use std::collections::BTreeSet;
use std::path::Path;

use upsweep::{
    Compared, CreateOptions, Durability, Error, Modifier, Outcome, Refusal, RequestError, Store,
    ValueKind, ValueRef,
};

const THREADS: i64 = 8;

fn create(folder: &Path) -> Store {
    let small = CreateOptions::default().log_bytes(8 << 20);
    Store::builder().memory_bytes(32 << 20).modifier(UpTo100).create(folder, &small).expect("new")
}

/// Adds a byte to a number in text, and refuses more than 100.
struct UpTo100;

impl Modifier for UpTo100 {
    fn name(&self) -> &'static str {
        "up to 100"
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
        let text = current.map_or("0", |value| std::str::from_utf8(value.bytes).unwrap_or("101"));
        let sum = text.parse().unwrap_or(101) + u32::from(operand[0]);
        if sum > 100 {
            return Err(Refusal(format!("{sum} is more than 100")));
        }
        Ok(Outcome::Put(ValueKind::Bytes, sum.to_string().into_bytes()))
    }
}

#[test]
fn each_of_many_callers_gets_a_number_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let per_thread = 500;
    for durability in [Durability::Ticket, Durability::Relaxed, Durability::Wait] {
        let table = store.table("numbers").expect("a table").with_durability(durability);
        let per_thread = if durability == Durability::Wait { per_thread / 10 } else { per_thread };
        let key = format!("{durability:?}").into_bytes();
        let mut seen = BTreeSet::new();
        std::thread::scope(|scope| {
            let take = || -> Vec<i64> {
                let taken = (0..per_thread).map(|_| table.fetch_add(&key, 1).expect("accepted").0);
                taken.collect()
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(take)).collect();
            // The key is swept meanwhile, and so is read again.
            store.sweep().expect("swept");
            for thread in threads {
                let numbers = thread.join().expect("no panic");
                assert!(numbers.is_sorted(), "of one caller they ascend");
                seen.extend(numbers);
            }
        });
        let all: BTreeSet<i64> = (0..THREADS * per_thread).collect();
        assert_eq!(seen, all, "{durability:?}: every number exactly once");
    }
    store.close().expect("closed");
    let store = Store::builder().modifier(UpTo100).open(&path).expect("opens again");
    let table = store.existing_table("numbers").expect("the table");
    let next = table.add_and_get(b"Wait", 1).expect("accepted").0;
    assert_eq!(next, THREADS * per_thread / 10 + 1, "all of it was durable");
}

#[test]
fn cells_too_are_counted_exactly_also_beside_updates_that_return_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let cells = store.array::<u16>("cells").expect("an array").with_durability(Durability::Ticket);
    let seen = std::thread::scope(|scope| {
        let take = || -> Vec<u16> {
            (0..400).map(|_| cells.fetch_add(5, 1).expect("accepted").0).collect()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(take)).collect();
        scope.spawn(|| {
            for _ in 0..400 {
                drop(cells.add(6, 1).expect("accepted"));
            }
        });
        store.sweep().expect("swept");
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let seen: BTreeSet<u16> = seen;
    assert_eq!(seen, (0..3200).collect());
    assert_eq!((cells.get(5).expect("read"), cells.get(6).expect("read")), (3200, 400));
}

#[test]
fn a_sum_that_was_returned_is_not_refused_with_others_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let cells = store.array::<u8>("cells").expect("an array");
    cells.set(3, 250).expect("durable");
    // Refused by itself, and waiting.
    cells.add(3, 10).expect("durable");
    assert_eq!(cells.add_and_get(3, 1).expect("fits").0, 251);
    cells.add(3, 9).expect("durable");
    assert_eq!(cells.add_and_get(3, 2).expect("fits").0, 253);
    let refused = cells.fetch_add(3, 3).expect_err("256 is no u8");
    assert!(matches!(refused, Error::Request(RequestError::Refused { .. })), "{refused}");
    store.sweep().expect("swept");
    assert_eq!(cells.get(3).expect("readable"), 253);
    assert!(cells.compare_and_set(3, 253, 7).expect("answered").is_done());
    let Compared::Differs(7) = cells.compare_and_set(3, 253, 8).expect("answered") else {
        panic!("it is 7 by now")
    };
}

#[test]
fn what_cannot_be_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let table = store.table("texts").expect("a table");
    for (operand, expected) in [(60, "60"), (40, "100")] {
        let made = table.modify_and_get(b"key", &UpTo100, &[operand]).expect("accepted").0;
        assert_eq!(made.expect("a value").bytes, expected.as_bytes());
    }
    let refused = table.modify_and_get(b"key", &UpTo100, &[1]).expect_err("more than 100");
    let text = r#"update by "up to 100" refused: 101 is more than 100"#;
    assert_eq!(refused.to_string(), text);
    // A text of 8 bytes is no number.
    let before = table.put(b"text", b"12345678").expect("durable").sequence();
    let refused = table.fetch_add(b"text", 1).expect_err("no number");
    assert!(matches!(refused, Error::Request(RequestError::Refused { .. })), "{refused}");
    let after = table.put(b"text", b"1").expect("durable").sequence();
    assert_eq!(after, before.next(), "nothing else was logged");
    store.sweep().expect("swept");
    assert_eq!(store.quarantined().expect("readable"), []);
}

#[test]
fn an_update_and_what_it_returns_are_one_for_values_of_any_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let hashed = store.hash_table("hashed").expect("a table").with_durability(Durability::Ticket);
    let append = upsweep::modifiers::APPEND;
    let mut length = 0;
    for round in 0..40 {
        let piece = vec![round; 5000];
        let (made, _) = hashed.update_and_get(b"long", append, &piece).expect("accepted");
        let made = made.expect("a value").bytes;
        length += piece.len();
        assert_eq!((made.len(), made.last()), (length, Some(&round)));
        if round % 8 == 0 {
            store.sweep().expect("swept");
        }
    }
}

#[test]
fn comparing_and_putting_makes_a_lock() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let table = store.table("locks").expect("a table").with_durability(Durability::Ticket);
    let inside = std::sync::atomic::AtomicI64::new(0);
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let (table, inside) = (&table, &inside);
            scope.spawn(move || {
                let name = number.to_string();
                for _ in 0..50 {
                    while !table
                        .compare_and_put(b"lock", None, name.as_bytes())
                        .expect("ok")
                        .is_done()
                    {
                        std::thread::yield_now();
                    }
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    // Not atomic by itself: only the lock makes it so.
                    let count = table.get(b"count").expect("readable");
                    let count = count.map_or(0, |value| value.as_i64().expect("a number"));
                    table.add(b"count", 1).expect("accepted");
                    let sum = table.get(b"count").expect("readable").expect("there");
                    assert_eq!(sum.as_i64(), Some(count + 1));
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    let freed = table.compare_and_delete(b"lock", name.as_bytes()).expect("ok");
                    assert!(freed.is_done(), "it was this thread's");
                }
            });
        }
    });
    assert_eq!(table.get(b"count").expect("readable").expect("there").as_i64(), Some(400));
    let Compared::Differs(None) = table.compare_and_delete(b"lock", b"0").expect("ok") else {
        panic!("nobody has it")
    };
}

#[test]
fn a_range_removed_at_the_same_time_comes_before_or_after_what_is_returned() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let table = store.table("numbers").expect("a table").with_durability(Durability::Ticket);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..50 {
                table.remove_range(b"a", Some(b"z")).expect("removed");
            }
        });
        let mut before = -1;
        for _ in 0..2000 {
            let found = table.fetch_add(b"key", 1).expect("accepted").0;
            assert!(found == before + 1 || found == 0, "{found} after {before}");
            before = found;
        }
    });
}
