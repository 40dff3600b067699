//! Scans of stores through the public API: what is read ahead changes neither what they show nor
//! what others find in the cache.

#![expect(clippy::disallowed_methods, reason = "tests with threads")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use crate::gate::gated;
use upsweep::layers::device::{Class, FailureKind, HostileDevices, MemoryDevices, ThreadedDevices};
use upsweep::{CreateOptions, Durability, Error, OpenOptions, Scan, Store, Table};

const MEMORY_BYTES: usize = 32 << 20;

fn options(requests: usize, request_bytes: u32) -> OpenOptions {
    let options = OpenOptions::default().memory_bytes(MEMORY_BYTES);
    options.scan_requests_in_flight(requests).scan_request_bytes(request_bytes)
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// A value that depends on the key, and is large for some.
fn value(number: u32, round: u8) -> Vec<u8> {
    let length = if number.is_multiple_of(400) { 20_000 } else { 200 };
    vec![round ^ number as u8; length]
}

/// A store in `folder` with a swept table of 10,000 records.
fn filled(folder: &Path) -> Store {
    let create = CreateOptions::default().log_bytes(16 << 20);
    let builder = Store::builder().options(options(4, 64 << 10));
    let store = builder.create(folder.join("store"), &create).expect("made");
    let table = store.table("main").expect("a table").with_durability(Durability::Relaxed);
    for number in 0..10_000 {
        table.put(&key(number), &value(number, 0)).expect("accepted");
    }
    store.sweep().expect("swept");
    store
}

type HostileBank = ThreadedDevices<HostileDevices<MemoryDevices>>;

/// A store on devices that fail on demand, with a swept table of 10,000 records.
fn hostile() -> (HostileBank, Store, Table) {
    let bank = ThreadedDevices::new(HostileDevices::new(MemoryDevices::with_sizes(&[0, 0], 1), 1));
    let create = CreateOptions::default().log_bytes(16 << 20);
    let builder = Store::builder().options(options(4, 64 << 10));
    let store = builder.create_on(bank.clone(), 1, &create).expect("made");
    let table = store.table("main").expect("a table").with_durability(Durability::Relaxed);
    for number in 0..10_000 {
        table.put(&key(number), &value(number, 0)).expect("accepted");
    }
    store.sweep().expect("swept");
    (bank, store, table)
}

fn reopened(folder: &Path, options: OpenOptions) -> (Store, Table) {
    let store = Store::builder().options(options).open(folder.join("store")).expect("opens");
    let table = store.existing_table("main").expect("the table");
    (store, table)
}

#[test]
fn what_is_read_ahead_does_not_change_what_a_scan_shows() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path()).close().expect("closed");
    for (requests, bytes) in [(0, 4096), (1, 4096), (2, 64 << 10), (8, 1 << 20), (64, 16 << 20)] {
        let (store, table) = reopened(folder.path(), options(requests, bytes));
        let expected: Vec<_> =
            (0..10_000).map(|number| (key(number).to_vec(), value(number, 0))).collect();
        let shown = |records: &mut dyn Iterator<Item = Result<_, Error>>| -> Vec<_> {
            let record = |record: Result<(Vec<u8>, upsweep::Value), Error>| {
                let (key, value) = record.expect("readable");
                (key, value.bytes)
            };
            records.map(record).collect()
        };
        assert_eq!(shown(&mut table.iter()), expected, "{requests} of {bytes}");
        let mut reverse = shown(&mut table.iter().rev());
        reverse.reverse();
        assert_eq!(reverse, expected, "{requests} of {bytes}, in reverse");
        let range = key(1234)..key(8765);
        assert_eq!(shown(&mut table.scan(range)), expected[1234..8765]);
        // Both ends take turns, and meet.
        let mut ends = table.iter();
        let (mut low, mut high) = (Vec::new(), Vec::new());
        loop {
            low.extend(shown(&mut ends.next().into_iter()));
            let more = shown(&mut ends.by_ref().rev().take(3));
            if more.is_empty() {
                break;
            }
            high.extend(more);
        }
        high.reverse();
        low.extend(high);
        assert_eq!(low, expected, "{requests} of {bytes}, from both ends");
        let read_ahead = store.metrics().scan_read_bytes_total;
        assert_eq!(read_ahead > 0, requests > 0, "{read_ahead} bytes");
    }
}

#[test]
fn a_few_records_are_read_without_reading_ahead() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path()).close().expect("closed");
    let (store, table) = reopened(folder.path(), options(4, 1 << 20));
    assert_eq!(table.iter().take(20).count(), 20);
    assert_eq!(table.iter().rev().take(20).count(), 20);
    assert_eq!(table.scan(key(5000)..key(5010)).count(), 10);
    let mut skipping = table.iter();
    skipping.skip_to(&key(7000));
    assert_eq!(skipping.next().map(|record| record.expect("readable").0), Some(key(7000).to_vec()));
    let found = store.metrics();
    assert_eq!(found.scan_read_bytes_total, 0);
    assert!(found.query_reads_total <= 8, "{} reads", found.query_reads_total);
    // Somewhat more records are not worth megabytes.
    assert_eq!(table.iter().take(500).count(), 500);
    let read_ahead = store.metrics().scan_read_bytes_total;
    assert!((1..=512 << 10).contains(&read_ahead), "{read_ahead} bytes");
}

#[test]
fn a_scan_does_not_drive_out_what_others_have_in_the_cache() {
    let folder = tempfile::tempdir().expect("a folder");
    // Many times as much as the cache, an eighth of the memory, holds.
    let store = filled(folder.path());
    let table = store.table("main").expect("a table").with_durability(Durability::Relaxed);
    for number in 10_000..100_000 {
        table.put(&key(number), &value(number, 0)).expect("accepted");
    }
    store.sweep().expect("swept");
    drop(table);
    store.close().expect("closed");
    let (store, table) = reopened(folder.path(), options(4, 64 << 10));
    let ask = || {
        for number in 50_001..50_200 {
            assert!(table.get(&key(number)).expect("readable").is_some());
        }
    };
    ask();
    for scanned in [table.iter().count(), table.iter().rev().count()] {
        assert_eq!(scanned, 100_000);
        let before = store.metrics().query_reads_total;
        ask();
        assert_eq!(store.metrics().query_reads_total, before, "all of it is in the cache");
    }
}

#[test]
fn scans_show_every_update_made_before_while_sweeps_move_the_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = filled(folder.path());
    let table = store.existing_table("main").expect("a table").with_durability(Durability::Relaxed);
    std::thread::scope(|scope| {
        let sweeping = scope.spawn(|| {
            for _ in 0..8 {
                store.sweep().expect("swept");
            }
        });
        let mut expected: BTreeMap<u32, u8> = (0..10_000).map(|number| (number, 0)).collect();
        let mut round = 0u8;
        while !sweeping.is_finished() || round < 3 {
            round = round.wrapping_add(1).max(1);
            for number in (u32::from(round) % 7..10_000).step_by(7) {
                table.put(&key(number), &value(number, round)).expect("accepted");
                expected.insert(number, round);
            }
            let mut shown = table.iter();
            for (number, round) in &expected {
                let (found, bytes) = shown.next().expect("a record").expect("readable");
                assert_eq!((&*found, bytes.bytes), (&key(*number)[..], value(*number, *round)));
            }
            assert!(shown.next().is_none());
        }
    });
}

#[test]
fn scans_that_are_dropped_leave_room_for_others() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path()).close().expect("closed");
    let (store, table) = reopened(folder.path(), options(4, 64 << 10));
    for records in 0..300 {
        assert_eq!(table.iter().take(records * 20).count(), records * 20);
    }
    let before = store.metrics();
    assert_eq!(table.iter().count(), 10_000);
    let after = store.metrics();
    let read = after.scan_read_bytes_total - before.scan_read_bytes_total;
    let alone = after.query_reads_total - before.query_reads_total;
    assert!(read > 1 << 20 && alone < 120, "{read} bytes ahead, {alone} reads without");
    assert!(before.scan_unused_bytes_total > 0, "what a dropped scan had read");
}

#[test]
fn many_scans_share_what_memory_there_is() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path()).close().expect("closed");
    let (_store, table) = reopened(folder.path(), options(8, 256 << 10));
    let mut scans: Vec<_> = (0..40).map(|_| table.iter()).collect();
    for number in 0..10_000 {
        for scan in &mut scans {
            let (found, _) = scan.next().expect("a record").expect("readable");
            assert_eq!(*found, key(number));
        }
    }
}

#[test]
fn a_scan_of_a_damaged_block_shows_what_comes_before_and_then_the_damage() {
    let (bank, _store, table) = hostile();
    assert_eq!(table.iter().count(), 10_000);
    let mut records = table.iter();
    assert_eq!(records.by_ref().take(2000).filter(Result::is_ok).count(), 2000);
    bank.with(|hostile| hostile.fail_after(0, FailureKind::Reads));
    let rest: Vec<_> = records.collect();
    assert!(rest.len() < 8000, "the device refuses the rest");
    let (last, others) = rest.split_last().expect("the error");
    assert!(matches!(last, Err(Error::Damaged(_))), "{last:?}");
    assert!(others.iter().all(Result::is_ok));
}

#[test]
fn a_scan_ends_when_its_store_is_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = filled(folder.path());
    let table = store.existing_table("main").expect("the table");
    let mut records = table.iter();
    assert_eq!(records.by_ref().take(3000).filter(Result::is_ok).count(), 3000);
    store.close().expect("closed");
    let rest: Vec<_> = records.collect();
    let (last, others) = rest.split_last().expect("the error");
    assert!(matches!(last, Err(Error::Closed(_))), "{last:?}");
    assert!(others.iter().all(Result::is_ok) && others.len() < 7000);
}

#[test]
fn a_scan_that_waits_for_what_it_reads_ahead_is_told_of_it_and_of_the_end_of_the_store() {
    for closes in [false, true] {
        let (store, is_shut) = gated(Class::ScanRead);
        let table = store.table("main").expect("a table").with_durability(Durability::Relaxed);
        for number in 0..10_000 {
            table.put(&key(number), &value(number, 0)).expect("accepted");
        }
        store.sweep().expect("swept");
        is_shut.store(true, Ordering::Release);
        let scanning = std::thread::spawn(move || {
            let mut records = table.iter();
            let shown = records.by_ref().take_while(Result::is_ok).count();
            (shown, records.next().is_none())
        });
        while store.metrics().scan_read_bytes_total == 0 {
            std::thread::yield_now();
        }
        if closes {
            store.close().expect("closed");
        } else {
            // The gate tells of what it has kept when the driver looks again.
            is_shut.store(false, Ordering::Release);
        }
        let (shown, is_over) = scanning.join().expect("no panic");
        assert!(is_over && (shown == 10_000) != closes, "{shown} records, closes: {closes}");
    }
}

/// The records of a scan.
fn shown(scan: Scan) -> Vec<(Vec<u8>, Vec<u8>)> {
    let record = |record: Result<(Vec<u8>, upsweep::Value), Error>| record.expect("readable");
    scan.map(record).map(|(key, value)| (key, value.bytes)).collect()
}

#[test]
fn scans_that_are_begun_together_have_read_their_first_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(folder.path()).close().expect("closed");
    let (store, table) = reopened(folder.path(), options(4, 64 << 10));
    // Twice the same block, and one range without a record.
    let ranges = [1000, 5000, 5001, 9000, 20_000].map(|first| key(first)..key(first + 3));
    let mut scans = table.scans(ranges);
    let read = store.metrics().query_reads_total;
    assert!((3..=4).contains(&read), "{read} blocks");
    let empty = scans.pop().expect("the last one");
    assert_eq!(shown(empty), []);
    for (scan, first) in scans.into_iter().zip([1000, 5000, 5001, 9000]) {
        let expected: Vec<_> =
            (first..first + 3).map(|number| (key(number).to_vec(), value(number, 0))).collect();
        assert_eq!(shown(scan), expected);
    }
    assert!(table.scans(Vec::<std::ops::Range<[u8; 4]>>::new()).is_empty());
}

#[test]
fn scans_that_are_begun_together_each_tell_of_their_damage() {
    let (bank, store, table) = hostile();
    let of = |first: u32| key(first)..key(first + 3);
    assert_eq!(table.scan(of(5000)).count(), 3, "it is in the cache then");
    bank.with(|hostile| hostile.fail_after(0, FailureKind::Reads));
    let found: Vec<Vec<_>> =
        table.scans([1000, 5000, 9000].map(of)).into_iter().map(Iterator::collect).collect();
    assert!(matches!(found[0][..], [Err(Error::Damaged(_))]), "{:?}", found[0]);
    assert!(found[1].len() == 3 && found[1].iter().all(Result::is_ok));
    assert!(matches!(found[2][..], [Err(Error::Damaged(_))]), "{:?}", found[2]);
    store.close().expect("closed");
    let closed: Vec<_> = table.scans([of(5000)]).into_iter().flatten().collect();
    assert!(matches!(closed[..], [Err(Error::Closed(_))]), "{closed:?}");
}

#[test]
fn a_short_scan_shows_what_waits_in_spill_segments_and_no_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = filled(folder.path());
    let table = store.existing_table("main").expect("a table").with_durability(Durability::Relaxed);
    let mut expected: BTreeMap<u32, u8> = (0..10_000).map(|number| (number, 0)).collect();
    for round in 1..4 {
        for number in (u32::from(round)..10_000).step_by(37) {
            table.put(&key(number), &value(number, round)).expect("accepted");
            expected.insert(number, round);
        }
        let removed = u32::from(round) * 2000..u32::from(round) * 2000 + 300;
        table.remove_range(&key(removed.start), Some(&key(removed.end))).expect("removed");
        expected.retain(|number, _| !removed.contains(number));
        for number in removed.step_by(50) {
            table.put(&key(number), &value(number, round)).expect("accepted");
            expected.insert(number, round);
        }
    }
    // Something else fills the log, and what waits is spilled to release it.
    let other = store.table("other").expect("a table").with_durability(Durability::Relaxed);
    for _ in 0..20_000 {
        other.put(b"hot", &[7; 4000]).expect("accepted");
        if store.metrics().spill_segments > 0.0 {
            break;
        }
    }
    let metrics = store.metrics();
    assert!(metrics.spill_segments > 0.0 && metrics.spilled_entries_total > 500, "{metrics:?}");
    for first in (0..9_900).step_by(33) {
        let ranges = [first, first + 7, 9_000].map(|first| key(first)..key(first + 60));
        let found = table.scans(ranges.clone());
        for (scan, range) in found.into_iter().zip(ranges) {
            let numbers = [&range.start, &range.end].map(|key| u32::from_be_bytes(*key));
            let of_range = expected.range(numbers[0]..numbers[1]);
            let of_range: Vec<_> =
                of_range.map(|(of, round)| (key(*of).to_vec(), value(*of, *round))).collect();
            assert_eq!(shown(scan), of_range, "from {numbers:?}");
        }
    }
}

/// What somebody does with a scan.
#[derive(Clone, Debug)]
enum Step {
    Next(usize),
    NextBack(usize),
    SkipTo(u32),
}

fn any_step() -> impl Strategy<Value = Step> {
    let few = prop_oneof![1..4_usize, 50..150_usize];
    prop_oneof![
        few.clone().prop_map(Step::Next),
        few.prop_map(Step::NextBack),
        (0..1100_u32).prop_map(Step::SkipTo),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_scan_that_skips_shows_what_is_left(
        present in prop::collection::btree_set(0..1000_u32, 0..700),
        removed in prop::collection::btree_set(0..1000_u32, 0..200),
        late in prop::collection::btree_set(0..1000_u32, 0..200),
        (from, records) in (0..1000_u32, 0..1000_u32),
        steps in prop::collection::vec(any_step(), 1..12),
        is_with_others in any::<bool>(),
    ) {
        let store = Store::in_memory().expect("made");
        let table = store.table("main").expect("made");
        let put = |numbers: &BTreeSet<u32>| {
            numbers.iter().for_each(|of| drop(table.put(&key(*of), &[7; 60]).expect("put")));
        };
        put(&present);
        store.sweep().expect("swept");
        removed.iter().for_each(|of| drop(table.delete(&key(*of)).expect("deleted")));
        put(&late);
        let has = |of: &u32| late.contains(of) || present.contains(of) && !removed.contains(of);
        let mut left: VecDeque<u32> = (from..from + records).filter(has).collect();
        let number = |record: Option<Result<(Vec<u8>, upsweep::Value), Error>>| {
            record.map(|record| record.expect("readable").0)
        };
        let range = key(from)..key(from + records);
        let mut scan = match is_with_others {
            true => table.scans([range, key(0)..key(1000)]).remove(0),
            false => table.scan(range),
        };
        for step in steps {
            match step {
                Step::Next(count) => for _ in 0..count {
                    let expected = left.pop_front().map(|of| key(of).to_vec());
                    prop_assert_eq!(number(scan.next()), expected);
                },
                Step::NextBack(count) => for _ in 0..count {
                    let expected = left.pop_back().map(|of| key(of).to_vec());
                    prop_assert_eq!(number(scan.next_back()), expected);
                },
                Step::SkipTo(to) => {
                    left.retain(|of| *of >= to);
                    scan.skip_to(&key(to));
                }
            }
        }
        let rest: Vec<_> = scan.map(|record| record.expect("readable").0).collect();
        prop_assert_eq!(rest, left.into_iter().map(|of| key(of).to_vec()).collect::<Vec<_>>());
    }
}
