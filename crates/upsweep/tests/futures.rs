//! Completion without a blocked thread: tickets and queries as futures, and callbacks.

#![expect(clippy::disallowed_methods, reason = "tests with threads")]
#![expect(clippy::disallowed_types, reason = "tests with threads")]

mod gate;

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker as TaskWaker};

use futures::executor::block_on;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use gate::gated;
use upsweep::device::{FailureKind, HostileDevices, MemoryDevices, ThreadedDevices};
use upsweep::{ClosedError, CreateOptions, Durability, Error, Store};

/// What the log takes without a completion.
const IN_FLIGHT: u64 = 10_000;

fn options() -> CreateOptions {
    CreateOptions { log_bytes: Some(32 << 20), ..CreateOptions::default() }
}

fn memory() -> MemoryDevices {
    MemoryDevices::with_sizes(&[0, 0], 1)
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

#[test]
fn one_thread_has_ten_thousand_durable_updates_in_flight() {
    let (store, is_shut) = gated();
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    is_shut.store(true, Ordering::Release);
    let mut in_flight: FuturesUnordered<_> =
        (0..IN_FLIGHT).map(|number| table.add(&key(number), 1).expect("accepted")).collect();
    let mut context = Context::from_waker(TaskWaker::noop());
    assert!(in_flight.poll_next_unpin(&mut context).is_pending());
    assert_eq!(in_flight.len() as u64, IN_FLIGHT, "none is durable yet");
    is_shut.store(false, Ordering::Release);
    let mut durable = 0;
    block_on(async {
        while let Some(outcome) = in_flight.next().await {
            outcome.expect("durable");
            durable += 1;
        }
    });
    assert_eq!(durable, IN_FLIGHT);
    assert_eq!(table.iter().count() as u64, IN_FLIGHT);
}

#[test]
fn a_call_is_made_once_when_its_change_is_durable() {
    let (store, is_shut) = gated();
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
    let (store, is_shut) = gated();
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
        let (store, is_shut) = gated();
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
