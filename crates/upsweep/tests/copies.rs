//! How often the payload of a change is copied on its way from the caller to the log device.
//!
//! This program has a `memcpy` and an allocator of its own, which count what the calling thread
//! does: that thread accepts a change, fills the log batch, and submits it or writes it itself.
//! What is counted is copies of half a payload or more. The queue in memory takes another copy,
//! cell by cell, which is not counted: it is not on the way to the log device. Copies that the
//! kernel makes are not seen.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::c_void;

use futures::executor::block_on;
use upsweep::layers::structures::modifiers::APPEND;
use upsweep::{Durability, Error, Store, Structure, Ticket};

/// Bytes of the payload of each change.
const PAYLOAD: usize = 64 << 10;

thread_local! {
    static COPIES: Cell<usize> = const { Cell::new(0) };
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

fn add(count: &'static std::thread::LocalKey<Cell<usize>>, more: usize) {
    // At the end of a thread there is no counter any more, and nothing to count.
    let _ended = count.try_with(|count| count.set(count.get() + more));
}

fn note_copy(bytes: usize) {
    if bytes >= PAYLOAD / 2 {
        add(&COPIES, 1);
    }
}

/// Takes the place of the C library's.
///
/// # Safety
/// As of the C library's: `from` and `to` are of this many bytes, and do not overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void {
    note_copy(bytes);
    let (into, from) = (to.cast::<u8>(), from.cast::<u8>());
    for at in 0..bytes {
        // SAFETY: the caller has both of this many bytes. Volatile, or the compiler would make a
        // call of `memcpy` of it.
        unsafe { into.add(at).write_volatile(from.add(at).read()) };
    }
    to
}

/// The system's allocator, and a count.
struct Counting;

// SAFETY: all of it is the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(&ALLOCATED, layout.size());
        // SAFETY: as the caller has promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as the caller has promised.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        add(&ALLOCATED, bytes);
        // It may move what is there.
        note_copy(layout.size());
        // SAFETY: as the caller has promised.
        unsafe { System.realloc(start, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Copies of the payload, and bytes allocated, of one change: the most and the least of some, for
/// now and then a queue is folded, which takes memory for a copy of it.
fn count(change: impl Fn() -> Result<Ticket, Error>) -> (usize, usize) {
    let counts: Vec<_> = (0..6)
        .map(|_| {
            let before = (COPIES.get(), ALLOCATED.get());
            let ticket = change().expect("accepted");
            let counts = (COPIES.get() - before.0, ALLOCATED.get() - before.1);
            ticket.wait().expect("durable");
            counts
        })
        .collect();
    let (copies, allocated) =
        (counts.iter().map(|count| count.0), counts.iter().map(|count| count.1));
    (copies.max().unwrap_or(0), allocated.min().unwrap_or(0))
}

#[test]
fn a_payload_is_copied_twice_at_most_on_its_way_to_the_log_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::create(folder.path().join("store")).expect("made");
    let table = store.table("main").expect("a table");
    let value: Vec<u8> = (0..PAYLOAD).map(|at| (at % 251) as u8 + 1).collect();
    // Memory of the queues and of the log is used again from here on.
    for number in 0..64u8 {
        table.put(&[number], &value).expect("durable");
    }
    store.sweep().expect("swept");
    for durability in [Durability::Wait, Durability::Ticket, Durability::Relaxed] {
        let table = table.with_durability(durability);
        let batch = || {
            let mut batch = store.batch();
            batch.put(&table, b"key", &value);
            batch
        };
        // One copy makes the operand of what the caller has, one fills the log batch.
        let counts = [
            (1, count(|| table.update(b"key", APPEND, &value))),
            (2, count(|| table.put(b"key", &value))),
            (2, count(|| batch().commit(durability))),
            (2, count(|| block_on(batch().commit_async(durability)))),
            (2, count(|| block_on(table.put_async(b"key", &value)))),
            (2, count(|| block_on(table.update_async(b"key", APPEND, &value)))),
        ];
        for (expected, (copies, allocated)) in counts {
            assert_eq!(copies, expected, "{durability:?}: {counts:?}");
            let operands = (expected - 1) * PAYLOAD;
            assert!(allocated < operands + 16_384, "{durability:?}: {counts:?}");
        }
    }
}
