//! Callers that wait for the log, many at a time: every one is woken, when its update is durable
//! and not before, or when the store closes.

#![expect(clippy::disallowed_methods, reason = "tests of callers on threads, and of files")]

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use upsweep::layers::engine::LoggedUpdate;
use upsweep::layers::structures::modifiers::ADD_I64;
use upsweep::{ClosedError, CreateOptions, Durability, Error, Store, Table};

const CALLERS: u64 = 16;
const ROUNDS: u64 = 300;

fn create(folder: &Path) -> Store {
    let options = CreateOptions::default().log_bytes(8 << 20);
    Store::builder().memory_bytes(32 << 20).create(folder, &options).expect("a new store")
}

/// Calls `body` with the number of each of [`CALLERS`] threads, all at the same time.
fn at_once(body: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let body = &body;
            scope.spawn(move || body(caller));
        }
    });
}

#[test]
fn every_caller_returns_once_its_updates_are_durable() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let space = store.table("sums").expect("a table").space();
    let one = 1i64.to_le_bytes();
    let declared = AtomicU64::new(0);
    at_once(|caller| {
        let key = caller.to_be_bytes();
        let update = LoggedUpdate { space, modifier: ADD_I64, key: &key, operand: &one };
        let record = [update, update];
        for round in 0..ROUNDS {
            let blocks = store.blocks();
            let ticket = match (caller + round) % 5 {
                0 => blocks.modify(&record[..1], Durability::Wait).expect("durable"),
                1 => blocks.modify(&record, Durability::Wait).expect("durable"),
                2 => {
                    let records = [&record[..], &record[..1]];
                    blocks.modify_each(records, Durability::Wait).expect("durable")
                }
                3 => {
                    let ticket = blocks.modify(&record[..1], Durability::Ticket).expect("taken");
                    ticket.wait().expect("durable");
                    ticket
                }
                _ => {
                    drop(blocks.modify(&record, Durability::Relaxed).expect("taken"));
                    let ticket = blocks.modify(&record[..1], Durability::Relaxed).expect("taken");
                    ticket.wait().expect("durable");
                    ticket
                }
            };
            assert!(ticket.is_durable() && blocks.durable() >= ticket.sequence());
            declared.fetch_add([1, 2, 3, 1, 3][((caller + round) % 5) as usize], Ordering::Relaxed);
        }
    });
    store.close().expect("closed");
    let store = Store::open(&path).expect("opens again");
    let table = store.existing_table("sums").expect("the table");
    let sums = table.iter().map(|record| record.expect("readable").1.as_i64().expect("a number"));
    assert_eq!(sums.sum::<i64>() as u64, declared.into_inner());
}

/// Adds to the caller's key until that fails; after a thousand additions of all callers somebody
/// makes `trouble`.
fn add_until_it_fails(
    table: &Table,
    caller: u64,
    acknowledged: &AtomicU64,
    trouble: impl Fn(),
) -> Error {
    loop {
        match table.add(&caller.to_be_bytes(), 1) {
            Ok(_) if acknowledged.fetch_add(1, Ordering::Relaxed) == 1000 => trouble(),
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

#[test]
fn every_caller_returns_when_the_store_is_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.table("sums").expect("a table");
    let acknowledged = AtomicU64::new(0);
    at_once(|caller| {
        let close = || store.clone().close().expect("everything is durable");
        let ended = add_until_it_fails(&table, caller, &acknowledged, close);
        assert_eq!(ended, Error::Closed(ClosedError::Closed));
    });
    drop((table, store));
    let store = Store::open(&path).expect("opens again");
    let table = store.existing_table("sums").expect("the table");
    let sums = table.iter().map(|record| record.expect("readable").1.as_i64().expect("a number"));
    assert!(sums.sum::<i64>() as u64 >= acknowledged.into_inner());
}

/// Puts the log of the store into memory, where a seal makes all later writes fail.
fn log_in_memory(store: &Path) -> std::os::fd::OwnedFd {
    use rustix::fs::MemfdFlags;
    use std::os::fd::AsRawFd;
    let memory = rustix::fs::memfd_create("log", MemfdFlags::ALLOW_SEALING).expect("a memory file");
    let log = store.join("log-0");
    let mut target = File::from(memory.try_clone().expect("another handle"));
    std::io::copy(&mut File::open(&log).expect("the log"), &mut target).expect("copied");
    std::fs::remove_file(&log).expect("removed");
    let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
    std::os::unix::fs::symlink(path, &log).expect("a link");
    memory
}

#[test]
fn every_caller_learns_of_a_write_that_failed() {
    // Made in memory too, as the blocks of its log must not be smaller than those of the copy.
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let path = folder.path().join("store");
    create(&path).close().expect("closed");
    let memory = log_in_memory(&path);
    let store = Store::open(&path).expect("opens on the copy");
    let table = store.table("sums").expect("a table");
    let acknowledged = AtomicU64::new(0);
    at_once(|caller| {
        let seal = || {
            rustix::fs::fcntl_add_seals(&memory, rustix::fs::SealFlags::WRITE).expect("sealed");
        };
        let ended = add_until_it_fails(&table, caller, &acknowledged, seal);
        assert!(matches!(ended, Error::Closed(ClosedError::WriteFailed { .. })), "{ended}");
    });
    let refused = store.flush().expect_err("what was not acknowledged is not durable");
    assert!(matches!(refused, Error::Closed(ClosedError::WriteFailed { .. })), "{refused}");
}
