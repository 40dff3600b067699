//! Stores without threads: in virtual time the same calls have the same results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use upsweep::layers::device::{
    DeviceId, FailureKind, HostileDevices, LatencyModel, MemoryDevices, Simulated, ThreadedDevices,
};
use upsweep::{CreateOptions, Durability, Error, OpenOptions, Store, StoreBuilder};

type Bank = ThreadedDevices<HostileDevices>;

fn bank(seed: u64) -> Bank {
    let mut memory = MemoryDevices::with_sizes(&[0, 0], seed);
    memory.set_latency(LatencyModel { base_us: 50, bytes_per_us: 500, jitter_us: 200 });
    ThreadedDevices::in_virtual_time(HostileDevices::new(memory, seed))
}

fn builder() -> StoreBuilder {
    Store::builder().options(OpenOptions::default().memory_bytes(64 << 20).without_threads())
}

fn create(bank: &Bank) -> Store {
    let options = CreateOptions::default().log_bytes(8 << 20);
    builder().create_on(bank.clone(), 1, &options).expect("made")
}

fn now_us(bank: &Bank) -> u64 {
    bank.with(|devices| devices.bank().now_us())
}

/// Updates of every durability, queries, a scan, a sweep and a snapshot.
fn work(store: &Store) {
    let table = store.table("main").expect("a table");
    for round in [1, 2, 3] {
        for key in 0..2000_u32 {
            let durability = match key % 50 {
                0 => Durability::Wait,
                1..10 => Durability::Ticket,
                _ => Durability::Relaxed,
            };
            let table = table.with_durability(durability);
            table.add(&key.wrapping_mul(2_654_435_761).to_be_bytes(), round).expect("accepted");
        }
        store.sweep().expect("swept");
        let snapshot = store.snapshot().expect("taken");
        assert_eq!(snapshot.table("main").expect("in it").iter().count(), 2000);
    }
    let found = table.get(&0_u32.to_be_bytes()).expect("readable").expect("there");
    assert_eq!(found.as_i64(), Some(6));
    assert_eq!(table.iter().filter(Result::is_ok).count(), 2000);
}

#[test]
fn the_same_calls_have_the_same_results_at_the_same_time() {
    // The bytes differ, because stores and snapshots have random identities.
    let run = || {
        let bank = bank(7);
        let store = create(&bank);
        work(&store);
        let (status, found) = (store.status(), store.metrics());
        let sizes = [status.data_bytes, status.blocks, store.blocks().durable().get()];
        let written =
            [found.log_written_bytes_total, found.sweep_runs_total, found.query_reads_total];
        store.close().expect("closed");
        (sizes, written, now_us(&bank))
    };
    let first = run();
    assert!(first.2 > 100_000, "{} us have passed", first.2);
    assert_eq!(run(), first);
}

#[test]
fn what_a_caller_waits_for_is_written_without_delay() {
    let bank = bank(9);
    let store = create(&bank);
    let table = store.table("main").expect("a table").with_durability(Durability::Relaxed);
    for key in 0..20_u32 {
        let ticket = table.add(&key.to_be_bytes(), 1).expect("accepted");
        let before_us = now_us(&bank);
        if key % 2 == 0 { ticket.wait() } else { store.flush() }.expect("durable");
        // A write takes 250 us, a batch of relaxed updates waits 5,000.
        let us = now_us(&bank) - before_us;
        assert!(us < 1000, "{us} us for key {key}");
    }
}

#[test]
fn a_store_works_when_it_is_told_to() {
    let bank = bank(8);
    let store = create(&bank);
    let table = store.table("main").expect("a table").with_durability(Durability::Relaxed);
    let ticket = table.add(b"key", 1).expect("accepted");
    assert!(!ticket.is_durable());
    let is_called = Arc::new(AtomicBool::new(false));
    let call = Arc::clone(&is_called);
    ticket.on_durable(move |durable| call.store(durable.is_ok(), Ordering::Relaxed));
    let before = now_us(&bank);
    for _ in 0..100 {
        store.blocks().work();
    }
    assert!(ticket.is_durable() && is_called.load(Ordering::Relaxed));
    assert!((before + 1..before + 20_000_000).contains(&now_us(&bank)), "time passes");
    drop((store, table, ticket));
    let store = builder().open_on(bank).expect("opens");
    let found = store.table("main").expect("a table").get(b"key").expect("readable");
    assert_eq!(found.and_then(|value| value.as_i64()), Some(1));
}

#[test]
fn a_call_for_durability_may_wait_itself() {
    let store = Arc::new(create(&bank(9)));
    let table = store.table("main").expect("a table");
    let ticket = table.with_durability(Durability::Ticket).add(b"key", 1).expect("accepted");
    let (inner, again) = (Arc::clone(&store), table.clone());
    let is_called = Arc::new(AtomicBool::new(false));
    let call = Arc::clone(&is_called);
    ticket.on_durable(move |_| {
        again.add(b"key", 1).expect("accepted");
        inner.sweep().expect("swept");
        call.store(true, Ordering::Relaxed);
    });
    store.sweep().expect("swept");
    for _ in 0..10 {
        store.blocks().work();
    }
    assert!(is_called.load(Ordering::Relaxed));
    let found = table.get(b"key").expect("readable").expect("there");
    assert_eq!(found.as_i64(), Some(2));
}

#[test]
fn after_a_power_cut_everything_acknowledged_is_there() {
    for operations in (0..400).step_by(7) {
        let bank = bank(operations);
        let store = create(&bank);
        let table = store.table("main").expect("a table");
        bank.with(|devices| devices.fail_after(operations, FailureKind::All));
        let mut acknowledged = 0;
        let ended = loop {
            match table.add(b"key", 1).and_then(|_| {
                acknowledged += 1;
                if acknowledged % 20 == 0 { store.sweep() } else { Ok(()) }
            }) {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(ended, Error::Closed(_) | Error::Damaged(_)), "{ended}");
        drop((store, table));
        bank.with(|devices| {
            devices.power_cut();
            devices.stop_failing();
        });
        let store = builder().open_on(bank).expect("opens");
        let found = store.table("main").expect("a table").get(b"key").expect("readable");
        let found = found.and_then(|value| value.as_i64()).unwrap_or_default();
        assert!((acknowledged..=acknowledged + 1).contains(&found), "{acknowledged}, {found}");
    }
}

#[test]
fn owners_of_extents_wait_in_virtual_time_too() {
    use upsweep::layers::device::{Buffer, Class, WriteMode};
    let bank = bank(10);
    let store = create(&bank);
    store.table("index").expect("a table");
    let blocks = store.blocks();
    let space = blocks.space("index").expect("it was made").space;
    let reserved = blocks.reserve_extent(space, 1 << 20).expect("room");
    let before = now_us(&bank);
    let buffer = Buffer::copy_of(&[7; 4096]);
    reserved.write(0, buffer, WriteMode::Stable, Class::SweepWrite).expect("written");
    let read = reserved.read(0, Buffer::zeroed(4096), Class::ForegroundRead).expect("read");
    assert_eq!(*read, [7; 4096]);
    assert!(now_us(&bank) > before);
    assert_eq!(reserved.extent().device, DeviceId(0));
}
