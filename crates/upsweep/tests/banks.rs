//! Stores on banks that are no files: in memory, hostile, and joined of others, with real threads.

#![expect(clippy::disallowed_methods, reason = "tests with threads")]

use upsweep::layers::device::{
    Bank, Devices, FailureKind, HostDevices, HostOptions, HostPath, HostileDevices, JoinedDevices,
    MemoryDevices, ThreadedDevices,
};
use upsweep::{CreateOptions, Durability, Error, LogMode, OpenOptions, RequestError, Store};

const KEYS: u64 = 5_000;
const CALLERS: u64 = 4;

fn options() -> CreateOptions {
    CreateOptions::default().log_bytes(8 << 20)
}

fn empty(devices: usize) -> ThreadedDevices<MemoryDevices> {
    ThreadedDevices::new(MemoryDevices::with_sizes(&vec![0; devices], 1))
}

/// Several callers add to the same keys, while sweeps go on.
fn work(store: &Store) {
    let table = store.table("main").expect("a table");
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let table = table.with_durability(Durability::Ticket);
            scope.spawn(move || {
                for key in 0..KEYS {
                    let ticket = table.add(&key.to_be_bytes(), 1).expect("accepted");
                    if key % 1000 == caller {
                        ticket.wait().expect("durable");
                    }
                }
            });
        }
        scope.spawn(|| (0..3).for_each(|_| store.sweep().expect("swept")));
    });
    store.flush().expect("durable");
}

fn check(store: &Store) {
    let table = store.existing_table("main").expect("the table");
    assert_eq!(table.iter().count() as u64, KEYS);
    for entry in table.iter() {
        let (_, value) = entry.expect("readable");
        assert_eq!(*value, CALLERS.to_le_bytes());
    }
}

#[test]
fn a_store_in_memory_needs_no_folder() {
    let store = Store::in_memory().expect("made");
    work(&store);
    check(&store);
    let status = store.status();
    assert_eq!(status.devices.len(), 2);
    assert!(status.devices.iter().all(|device| device.engine == "memory"), "{status:?}");
    store.close().expect("closed");
}

#[test]
fn a_store_on_a_bank_is_there_when_it_is_opened_again() {
    let bank = empty(2);
    let store = Store::builder().create_on(bank.clone(), 1, &options()).expect("made");
    work(&store);
    store.close().expect("closed");
    let store = Store::builder().open_on(bank.clone()).expect("opens");
    check(&store);
    store.sweep().expect("swept");
    drop(store);
    check(&Store::builder().open_on(bank).expect("opens"));
}

#[test]
fn a_log_on_a_device_of_its_own_can_have_any_mode() {
    for mode in [LogMode::Full, LogMode::Sentinel, LogMode::Predict] {
        let bank = empty(2);
        let builder = || Store::builder().options(OpenOptions::default().log_mode(mode));
        let store = builder().create_on(bank.clone(), 1, &options()).expect("made");
        work(&store);
        let status = store.status();
        assert_eq!(status.log.mode, mode);
        if mode == LogMode::Full {
            assert!(status.metrics.log_dummy_batches_total > 0, "{status:?}");
        }
        store.close().expect("it does not wait for the train");
        let store = builder().open_on(bank.clone()).expect("opens");
        check(&store);
        drop(store);
        let store = Store::builder().open_on(bank).expect("opens");
        check(&store);
        let status = store.status();
        assert_eq!((status.log.mode, status.metrics.log_dummy_batches_total), (LogMode::Idle, 0));
    }
}

#[test]
fn a_store_on_a_bank_that_is_joined_of_two_in_memory() {
    let (data, log) = (empty(1), empty(1));
    let joined = || {
        let banks: Vec<Box<dyn Bank>> = vec![Box::new(data.clone()), Box::new(log.clone())];
        JoinedDevices::new(banks).expect("threads")
    };
    let store = Store::builder().create_on(joined(), 1, &options()).expect("made");
    work(&store);
    store.close().expect("closed");
    check(&Store::builder().open_on(joined()).expect("opens"));
}

#[test]
fn a_store_on_a_bank_that_is_joined_of_files_and_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |create| {
        let path = HostPath { path: folder.path().join("data"), create };
        HostDevices::open(&[path], HostOptions::default()).expect("a file")
    };
    let log = empty(1);
    let joined = |create| {
        let banks: Vec<Box<dyn Bank>> = vec![Box::new(file(create)), Box::new(log.clone())];
        JoinedDevices::new(banks).expect("threads")
    };
    let store = Store::builder().create_on(joined(true), 1, &options()).expect("made");
    work(&store);
    store.close().expect("closed");
    check(&Store::builder().open_on(joined(false)).expect("opens"));
}

#[test]
fn a_write_error_of_a_hostile_bank_closes_the_store() {
    let bank = ThreadedDevices::new(HostileDevices::new(MemoryDevices::with_sizes(&[0, 0], 1), 1));
    let store = Store::builder().create_on(bank.clone(), 1, &options()).expect("made");
    work(&store);
    let other = store.table("other").expect("a table");
    bank.with(|hostile| hostile.fail_after(0, FailureKind::Writes));
    assert!(matches!(other.add(b"key", 1).map(drop), Err(Error::Closed(_))));
    drop((other, store));
    bank.with(HostileDevices::stop_failing);
    check(&Store::builder().open_on(bank).expect("opens"));
}

#[test]
fn a_bank_without_a_store_or_without_a_log_is_refused() {
    let refused = Store::builder().open_on(empty(2)).err();
    let Some(Error::Request(RequestError::Path { path, reason })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(path, std::path::Path::new("memory-0"));
    assert!(reason.starts_with("no store: "), "{reason}");
    for data_devices in [0, 2] {
        let refused = Store::builder().create_on(empty(2), data_devices, &options()).err();
        let is_setting = matches!(
            refused,
            Some(Error::Request(RequestError::BadConfig { setting: "data devices", .. }))
        );
        assert!(is_setting, "{refused:?}");
    }
    assert_eq!(empty(2).count(), 2);
}
