//! Completion without a blocked thread: tickets and queries as futures, and callbacks.

#![expect(clippy::disallowed_methods, reason = "tests with threads")]

use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker as TaskWaker};
use std::time::Duration;

use crate::gate::gated;
use futures::executor::block_on;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use upsweep::layers::device::{Class, FailureKind, HostileDevices, MemoryDevices, ThreadedDevices};
use upsweep::layers::structures::modifiers;
use upsweep::{
    ClosedError, CreateOptions, Durability, Error, Modifier, Outcome, PendingCommit, Refusal,
    RequestError, Store, Structure, Sums, Table, TableDefinition, Ticket, ValueRef,
};

/// More than the log takes without a completion.
const IN_FLIGHT: u64 = 100_000;

fn options() -> CreateOptions {
    CreateOptions::default().log_bytes(32 << 20)
}

fn memory() -> MemoryDevices {
    MemoryDevices::with_sizes(&[0, 0], 1)
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

#[test]
fn one_thread_has_a_hundred_thousand_durable_updates_in_flight() {
    let (store, is_shut) = gated(Class::Log);
    let table = store.table("main").expect("a table");
    is_shut.store(true, Ordering::Release);
    let mut in_flight: FuturesUnordered<_> =
        (0..IN_FLIGHT).map(|number| table.add_async(&key(number), 1)).collect();
    let mut context = Context::from_waker(TaskWaker::noop());
    assert!(in_flight.poll_next_unpin(&mut context).is_pending());
    assert_eq!(in_flight.len() as u64, IN_FLIGHT, "none is durable yet");
    let accepted = table.iter().count() as u64;
    assert!(accepted < IN_FLIGHT, "a call that blocks would wait for room");
    is_shut.store(false, Ordering::Release);
    let mut durable = 0;
    block_on(async {
        while let Some(outcome) = in_flight.next().await {
            assert!(outcome.expect("durable").is_durable());
            durable += 1;
        }
    });
    assert_eq!(durable, IN_FLIGHT);
    assert_eq!(table.iter().count() as u64, IN_FLIGHT);
}

/// Polls each of these once; none may be over.
fn begin(changes: &mut [PendingCommit]) {
    let mut context = Context::from_waker(TaskWaker::noop());
    for change in changes {
        assert!(Pin::new(change).poll(&mut context).is_pending());
    }
}

/// A store with a shut gate and no room in its log, and the changes that took it.
fn without_room() -> (Store, Arc<AtomicBool>, Table, Vec<PendingCommit>) {
    let (store, is_shut) = gated(Class::Log);
    let table = store.table("main").expect("a table");
    is_shut.store(true, Ordering::Release);
    let mut took_it: Vec<_> =
        (0..IN_FLIGHT).map(|number| table.add_async(&key(number), 1)).collect();
    begin(&mut took_it);
    (store, is_shut, table, took_it)
}

#[test]
fn changes_are_accepted_in_the_order_in_which_they_are_polled() {
    let (store, is_shut) = gated(Class::Log);
    let table = store.table("main").expect("a table");
    is_shut.store(true, Ordering::Release);
    // Where a long one has to wait, there is room for a short one.
    let value = [7; 100_000];
    let length = |number: u64| if number.is_multiple_of(2) { value.len() } else { 1 };
    let change = |number| table.put_async(&key(number), &value[..length(number)]);
    let mut changes: Vec<_> = (0..200).rev().map(change).collect();
    begin(&mut changes);
    assert!(table.iter().count() < 200, "some wait for room");
    is_shut.store(false, Ordering::Release);
    let tickets = changes.into_iter().map(|change| block_on(change).expect("durable"));
    let sequences: Vec<_> = tickets.map(|ticket| ticket.sequence()).collect();
    assert!(sequences.is_sorted_by(|left, right| left < right));
}

#[test]
fn a_change_is_not_made_if_it_is_dropped_before_it_is_accepted() {
    let (store, is_shut, table, took_it) = without_room();
    let accepted = table.iter().count() as u64;
    let mut later: Vec<_> =
        [b"a", b"b", b"c"].iter().map(|key| table.put_async(*key, b"")).collect();
    begin(&mut later);
    let behind = later.pop().expect("the last");
    drop((later, took_it, table.add_async(b"never polled", 1)));
    is_shut.store(false, Ordering::Release);
    block_on(behind).expect("durable");
    store.blocks().flush().expect("durable");
    let keys: Vec<_> = table.iter().map(|record| record.expect("readable").0).collect();
    assert_eq!(keys.len() as u64, accepted + 1, "what was accepted stays");
    assert_eq!(keys.last().expect("some"), b"c");
}

#[test]
fn changes_that_wait_for_room_end_when_the_store_closes() {
    let (store, is_shut, table, took_it) = without_room();
    let accepted = table.iter().count();
    let closing = std::thread::spawn(move || store.close());
    std::thread::sleep(Duration::from_millis(50));
    is_shut.store(false, Ordering::Release);
    let ended: Vec<_> = took_it.into_iter().map(block_on).collect();
    closing.join().expect("no panic").expect("closed");
    let closed = Error::Closed(ClosedError::Closed);
    let (durable, refused) = ended.split_at(ended.partition_point(Result::is_ok));
    assert!(durable.len() >= accepted && refused.len() > 1, "{} of {accepted}", durable.len());
    assert!(refused.iter().all(|found| found.as_ref().err() == Some(&closed)));
    let late = block_on(table.add_async(b"key", 1));
    assert_eq!(late.err(), Some(closed));
}

#[test]
fn a_fork_cannot_poll_changes_that_wait_for_room() {
    let (_store, is_shut, table, mut took_it) = without_room();
    match fork::fork().expect("forks") {
        fork::Fork::Child => {
            let forked = Err(Error::Closed(ClosedError::Forked));
            let mut late = table.add_async(b"key", 1);
            let last = took_it.pop().expect("one that waits");
            let mut context = Context::from_waker(TaskWaker::noop());
            let is_refused = [&mut late, &mut { last }].into_iter().all(|change| {
                Pin::new(change).poll(&mut context).map(|found| found.map(drop))
                    == Poll::Ready(forked.clone())
            });
            drop(took_it);
            std::process::exit(if is_refused { 0 } else { 1 });
        }
        fork::Fork::Parent(child) => {
            let child = rustix::process::Pid::from_raw(child).expect("a process");
            let options = rustix::process::WaitOptions::empty();
            let ended = rustix::process::waitpid(Some(child), options).expect("waited for");
            assert_eq!(ended.expect("it has ended").1.exit_status(), Some(0));
        }
    }
    is_shut.store(false, Ordering::Release);
    for change in took_it {
        block_on(change).expect("durable");
    }
}

#[test]
fn structures_of_all_kinds_change_without_blocking() {
    const SCORES: TableDefinition<str, i64> = TableDefinition::new("scores");
    let store = Store::in_memory().expect("made");
    let table = store.table("main").expect("a table");
    let sessions = store.hash_table("sessions").expect("a hash table");
    let scores = store.typed(SCORES).expect("a typed table");
    let cells = store.array::<u32>("cells").expect("an array");
    let mut batch = store.batch();
    batch.put(&table, b"key", b"value").add(&scores, "ada", 17).delete(&cells, &7);
    let changes = [
        batch.commit_async(Durability::Wait),
        store.batch().commit_async(Durability::Wait),
        table.update_async(b"key", modifiers::APPEND, b"s"),
        sessions.put_async(b"c0ffee", b"alice"),
        sessions.delete_async(b"c0ffee"),
        scores.put_async("eve", &12),
        scores.add_async("eve", 1),
        cells.put_async(&12, &34),
        cells.add_async(&12, 1),
        table.modify_async(b"key", &Keeping, b""),
        cells.add_async(&u64::MAX, 1),
    ];
    let outcomes = block_on(join_all(changes));
    let refused: Vec<_> = outcomes[9..].iter().filter_map(|found| found.as_ref().err()).collect();
    let unknown = RequestError::UnknownModifier { name: "keeping".to_owned(), version: 1 };
    assert_eq!(*refused[0], unknown.into());
    assert!(matches!(refused[1], Error::Request(RequestError::IndexTooLarge { .. })));
    assert!(outcomes[..9].iter().all(|found| found.as_ref().is_ok_and(Ticket::is_durable)));
    assert_eq!(*table.get(b"key").expect("readable").expect("there"), *b"values");
    assert!(!sessions.contains(b"c0ffee").expect("readable"));
    let scores = ["ada", "eve"].map(|key| scores.get(key).expect("readable"));
    assert_eq!(scores, [Some(17), Some(13)]);
    assert_eq!(cells.get(12), Ok(35));
    store.drop_table("main").expect("dropped");
    let gone = Error::Request(RequestError::NoTable("main".to_owned()));
    assert_eq!(block_on(table.put_async(b"key", b"value")).err(), Some(gone));
}

/// Changes nothing; not registered.
struct Keeping;

impl Modifier for Keeping {
    fn name(&self) -> &'static str {
        "keeping"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(&self, _: &[u8], _: Option<ValueRef<'_>>, _: &[u8]) -> Result<Outcome, Refusal> {
        Ok(Outcome::Keep)
    }
}

/// A store whose log is full all the time.
fn with_little_room(folder: &Path) -> Store {
    let options = CreateOptions::default().log_bytes(1 << 20);
    let builder = Store::builder().memory_bytes(32 << 20);
    builder.create(folder.join("store"), &options).expect("made")
}

#[test]
fn no_wake_up_is_lost_where_there_is_little_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = with_little_room(folder.path());
    let table = store.table("main").expect("a table").with_durability(Durability::Relaxed);
    let value = [7; 1000];
    let changes = (0..IN_FLIGHT).map(|number| table.put_async(&key(number % 5000), &value));
    for outcome in block_on(changes.collect::<FuturesUnordered<_>>().collect::<Vec<_>>()) {
        outcome.expect("accepted");
    }
    let found = store.metrics();
    assert_eq!(found.admission_unasked_total, 0, "found by the driver's own looks");
    assert!(found.admission_refusals_total["log"] > 0);
    assert!(found.admission_wait_seconds["log"].longest > 0.0, "waits without a thread count too");
    assert_eq!(found.admission_waiting["log"], 0.0, "nobody waits any more");
    assert_eq!(table.iter().count(), 5000);
}

#[test]
fn neither_threads_nor_futures_starve_where_both_wait_for_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = with_little_room(folder.path());
    let table = store.table("main").expect("a table").with_durability(Durability::Relaxed);
    let value = [7; 20_000];
    // As long as either needs, there always are threads and futures that wait.
    let (blocking, parked) = (AtomicU64::new(0), AtomicU64::new(0));
    let counts = || [&blocking, &parked].map(|count| count.load(Ordering::Relaxed));
    let goes_on = || counts().iter().any(|count| *count < 1000);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (table, value, blocking, goes_on) = (&table, &value, &blocking, &goes_on);
            scope.spawn(move || {
                while goes_on() {
                    table.put(&key(thread), value).expect("accepted");
                    blocking.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut changes = FuturesUnordered::new();
        while goes_on() {
            while changes.len() < 100 {
                changes.push(table.put_async(b"parked", &value));
            }
            block_on(changes.next()).expect("one").expect("accepted");
            parked.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(counts().iter().all(|count| *count < 50_000), "{:?}", counts());
}

#[test]
fn a_call_is_made_once_when_its_change_is_durable() {
    let (store, is_shut) = gated(Class::Log);
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    is_shut.store(true, Ordering::Release);
    let (sender, receiver) = mpsc::channel();
    for number in 0..1000 {
        let sender = sender.clone();
        let ticket = table.add(&key(number), 1).expect("accepted");
        ticket.on_durable(move |outcome| drop(sender.send((number, outcome))));
    }
    assert!(receiver.try_recv().is_err(), "none is durable yet");
    is_shut.store(false, Ordering::Release);
    drop(sender);
    let mut calls: Vec<_> = receiver.iter().collect();
    calls.sort_by_key(|call| call.0);
    let expected: Vec<_> = (0..1000).map(|number| (number, Ok(()))).collect();
    assert_eq!(calls, expected);
}

#[test]
fn a_call_may_use_the_store_and_its_panic_hurts_nobody() {
    let (store, is_shut) = gated(Class::Log);
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    is_shut.store(true, Ordering::Release);
    let ticket = table.add(b"key", 1).expect("accepted");
    ticket.on_durable(|_| panic!("of the caller"));
    let (sender, receiver) = mpsc::channel();
    let waits = table.with_durability(Durability::Wait);
    ticket.on_durable(move |_| drop(sender.send(waits.add(b"key", 1).map(drop))));
    is_shut.store(false, Ordering::Release);
    assert_eq!(receiver.recv(), Ok(Ok(())));
    assert_eq!(table.get(b"key").expect("readable").and_then(|found| found.as_i64()), Some(2));
    store.close().expect("closed");
    let (sender, receiver) = mpsc::channel();
    ticket.on_durable(move |outcome| drop(sender.send(outcome)));
    assert_eq!(receiver.try_recv(), Ok(Ok(())), "durable before it was closed: called at once");
    block_on(ticket).expect("durable before it was closed");
}

#[test]
fn a_call_may_have_the_last_handle_of_a_store_or_close_it() {
    for closes in [false, true] {
        let (store, is_shut) = gated(Class::Log);
        let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
        is_shut.store(true, Ordering::Release);
        let ticket = table.add(b"key", 1).expect("accepted");
        let (sender, receiver) = mpsc::channel();
        // It has the store in any case.
        ticket.on_durable(move |outcome| {
            drop(table);
            let closed = if closes { store.close() } else { Ok(()) };
            drop(sender.send((outcome, closed)));
        });
        drop(ticket);
        is_shut.store(false, Ordering::Release);
        assert_eq!(receiver.recv(), Ok((Ok(()), Ok(()))), "closes: {closes}");
    }
}

#[test]
fn whoever_waits_for_the_log_is_told_when_it_fails() {
    let bank = ThreadedDevices::new(HostileDevices::new(memory(), 1));
    let store = Store::builder().create_on(bank.clone(), 1, &options()).expect("made");
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    bank.with(|hostile| hostile.fail_after(0, FailureKind::Writes));
    let ticket = table.add(b"key", 1).expect("accepted");
    let (sender, receiver) = mpsc::channel();
    ticket.on_durable(move |outcome| drop(sender.send(outcome)));
    let by_future = block_on(ticket.clone());
    assert!(matches!(by_future, Err(Error::Closed(_))), "{by_future:?}");
    assert_eq!(receiver.recv(), Ok(by_future));
}

#[test]
fn queries_of_one_thread_are_on_their_way_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let builder = Store::builder().memory_bytes(32 << 20);
    let store = builder.clone().create(&path, &options()).expect("made");
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    let large = vec![7; 100_000];
    for number in 0..20_000 {
        table.put(&key(number), &key(number)).expect("accepted");
    }
    table.put(b"large", &large).expect("accepted");
    let cells = store.array::<i64>("cells").expect("an array");
    cells.set(12, 34).expect("durable");
    store.sweep().expect("swept");
    store.close().expect("closed");

    let store = builder.clone().open(&path).expect("opens");
    let table = store.existing_table("main").expect("the table");
    let numbers: Vec<u64> = (0..30_000).step_by(7).collect();
    let keys: Vec<[u8; 8]> = numbers.iter().map(|number| key(*number)).collect();
    let found = block_on(join_all(keys.iter().map(|key| table.get_async(key))));
    for (number, found) in numbers.iter().zip(found) {
        let value = found.expect("readable").map(|value| value.bytes);
        assert_eq!(value, (*number < 20_000).then(|| key(*number).to_vec()), "{number}");
    }
    let found = block_on(table.get_async(b"large")).expect("readable").expect("there");
    assert_eq!(*found, *large);
    let cells = store.array::<i64>("cells").expect("the array");
    assert_eq!(block_on(cells.get_async(12)), Ok(34));
    // Queries that nobody waits for any more leave nothing behind.
    let mut context = Context::from_waker(TaskWaker::noop());
    for key in &keys {
        let mut query = Box::pin(table.get_async(key));
        if let Poll::Ready(found) = query.as_mut().poll(&mut context) {
            found.expect("readable");
        }
    }
    drop((cells, table));
    store.close().expect("closed");

    // One that is on its way when the store closes ends too.
    let store = builder.open(&path).expect("opens");
    let table = store.existing_table("main").expect("the table");
    let mut late = Box::pin(table.get_async(b"large"));
    let asked = late.as_mut().poll(&mut context);
    store.close().expect("closed");
    let found = if let Poll::Ready(found) = asked { found } else { block_on(late) };
    assert!(matches!(found, Ok(Some(_)) | Err(Error::Closed(ClosedError::Closed))), "{found:?}");
}
