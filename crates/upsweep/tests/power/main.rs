//! Power cuts on a file system that loses what was not synced: nothing that was acknowledged may be
//! missing afterwards, whichever way the engine's requests take through the kernel.
//!
//! `UPSWEEP_POWER_CUTS` says how many cuts; without it a few.

#![expect(clippy::disallowed_methods, reason = "tests of a store on files, with threads")]
#![expect(clippy::disallowed_types, reason = "a file system of the test's own is shared")]
#![expect(clippy::print_stderr, reason = "a test that cannot be run says so")]

mod lossy;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lossy::Lossy;
use upsweep::{CreateOptions, Durability, Store, Table};

const CUTS: u64 = 40;
/// Threads that update, each a key of its own, half of them with tickets.
const CALLERS: usize = 4;
/// Updates on their way at one time, of a caller with tickets.
const TICKETS: u64 = 8;

/// How often each caller was promised that its update is there, and has declared one.
#[derive(Default)]
struct Promises {
    acknowledged: [AtomicU64; CALLERS],
    declared: [AtomicU64; CALLERS],
}

impl Promises {
    fn read(counters: &[AtomicU64; CALLERS]) -> [u64; CALLERS] {
        std::array::from_fn(|caller| counters[caller].load(Ordering::SeqCst))
    }
}

fn key(caller: usize) -> Vec<u8> {
    format!("caller {caller}").into_bytes()
}

/// Adds to the key of a caller until it is over.
fn update(table: &Table, caller: usize, promises: &Promises, is_over: &AtomicBool) {
    let with_tickets = caller % 2 == 1;
    let (durability, at_once) =
        if with_tickets { (Durability::Ticket, TICKETS) } else { (Durability::Wait, 1) };
    let table = table.with_durability(durability);
    while !is_over.load(Ordering::Relaxed) {
        promises.declared[caller].fetch_add(at_once, Ordering::SeqCst);
        let tickets: Vec<_> =
            (0..at_once).map(|_| table.add(&key(caller), 1).expect("accepted")).collect();
        tickets.iter().for_each(|ticket| ticket.wait().expect("durable"));
        promises.acknowledged[caller].fetch_add(at_once, Ordering::SeqCst);
    }
}

/// Opens what a power cut has left, and compares it with what was promised.
fn check(left: &[(String, Vec<u8>)], acknowledged: &[u64; CALLERS], declared: &[u64; CALLERS]) {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, content) in left {
        std::fs::write(folder.path().join(name), content).expect("written");
    }
    let store = Store::builder().memory_bytes(16 << 20).open(folder.path()).expect("recovers");
    let table = store.existing_table("sums").expect("the table");
    for caller in 0..CALLERS {
        let found = table.get(&key(caller)).expect("readable");
        let found = found.map_or(0, |value| value.as_i64().expect("a number") as u64);
        let promised = acknowledged[caller]..=declared[caller];
        assert!(promised.contains(&found), "caller {caller}: {found}, promised {promised:?}");
    }
    drop(table);
    store.close().expect("closed");
    let report = Store::builder().verify(folder.path()).expect("verified");
    assert_eq!(report.damage, []);
}

fn cuts() -> u64 {
    std::env::var("UPSWEEP_POWER_CUTS").map_or(CUTS, |cuts| cuts.parse().expect("a number of cuts"))
}

/// Random numbers, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

fn create(folder: &Path) -> Store {
    let options = CreateOptions::default().log_bytes(2 << 20);
    Store::builder().memory_bytes(16 << 20).create(folder, &options).expect("a new store")
}

#[test]
fn nothing_is_lost_on_a_file_system_that_keeps_only_what_was_synced() {
    let folder = tempfile::tempdir().expect("a folder");
    let lossy = Lossy::default();
    let _mounted = match lossy.mount(folder.path()) {
        Ok(mounted) => mounted,
        Err(error) => {
            eprintln!("NOT TESTED: this machine has no FUSE for us: {error}");
            return;
        }
    };
    let store = create(folder.path());
    let devices = store.status().devices;
    let says_so = |reason: &String| reason.contains("a sync follows every stable write");
    assert!(devices.iter().all(|device| device.reasons.iter().any(says_so)), "{devices:?}");
    let table = store.table("sums").expect("a table");
    let (promises, is_over) = (Promises::default(), AtomicBool::new(false));
    let mut random = Random(1);
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (table, promises, is_over) = (&table, &promises, &is_over);
            scope.spawn(move || update(table, caller, promises, is_over));
        }
        // Ends the callers also when something goes wrong.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..cuts() {
                std::thread::sleep(Duration::from_micros(random.below(20_000)));
                if random.below(10) == 0 {
                    store.sweep().expect("swept");
                }
                let acknowledged = Promises::read(&promises.acknowledged);
                let keeps = random.below(3);
                let left = lossy.cut(|| keeps > 0 && random.below(2) < keeps);
                let declared = Promises::read(&promises.declared);
                check(&left, &acknowledged, &declared);
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(lossy.syncs() > cuts(), "the file system was asked to sync");
    drop(table);
    store.close().expect("closed");
}
