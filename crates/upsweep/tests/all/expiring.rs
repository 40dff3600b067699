//! Tables of records that expire, through the public interface and with a clock that the tests set.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use proptest::collection::vec;
use proptest::prelude::*;
use upsweep::layers::runtime::Wanted;
use upsweep::modifiers::{ADD_I64, INSERT_IF_ABSENT, PUT, value_operand};
use upsweep::{
    BackupOptions, CreateOptions, Durability, Error, ExpiringTable, Kind, LoadOptions,
    RequestError, Store, StoreBuilder, Structure, TableDefinition, ValueKind,
};

const SESSIONS: TableDefinition<str, u64> = TableDefinition::new("sessions");
const PAGES: TableDefinition<(u32, String), str> = TableDefinition::new("pages");

/// A clock in seconds since the Unix epoch.
#[derive(Clone)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn at(seconds: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seconds)))
    }

    fn set(&self, seconds: u64) {
        self.0.store(seconds, Ordering::Relaxed);
    }

    fn builder(&self) -> StoreBuilder {
        let seconds = Arc::clone(&self.0);
        Store::builder()
            .memory_bytes(64 << 20)
            .wall_clock(move || time(seconds.load(Ordering::Relaxed)))
    }

    fn create(&self, folder: &Path) -> Store {
        let small = CreateOptions::default().log_bytes(1 << 20);
        self.builder().create(folder, &small).expect("a store")
    }
}

fn time(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Records in the blocks of a structure, those that have expired and were not dropped included.
fn stored(store: &Store, name: &str) -> u64 {
    let found = store.structures().into_iter().find(|(found, ..)| found == name);
    found.expect("a structure").2.records
}

#[test]
fn a_record_is_absent_from_its_time_on() {
    let clock = Clock::at(100);
    let store = clock.builder().in_memory().expect("a store");
    let sessions = store.typed_expiring_table(SESSIONS).expect("a table");
    sessions.put("a", 1, time(110)).expect("durable");
    sessions.put("b", 2, time(100)).expect("durable");
    sessions.put("c", 3, time(130)).expect("durable");
    let get = |key| sessions.get(key).expect("readable");
    assert_eq!((get("a"), get("b"), get("c")), (Some(1), None, Some(3)));
    assert_eq!(sessions.expires_at("a").expect("readable"), Some(time(110)));
    assert_eq!(sessions.expires_at("b").expect("readable"), None);
    clock.set(109);
    assert!(sessions.contains("a").expect("readable"));
    clock.set(110);
    assert!(!sessions.contains("a").expect("readable"));
    assert_eq!((get("a"), get("c")), (None, Some(3)));
    let seen = futures::executor::block_on(sessions.get_async("a")).expect("readable");
    assert_eq!(seen, None);
    // A touch does not bring it back; an insertion puts another.
    sessions.touch("a", time(150)).expect("durable");
    sessions.touch("c", time(150)).expect("durable");
    sessions.insert_if_absent("b", 20, time(150)).expect("durable");
    sessions.insert_if_absent("c", 30, time(200)).expect("durable");
    assert_eq!((get("a"), get("b"), get("c")), (None, Some(20), Some(3)));
    assert_eq!(sessions.expires_at("c").expect("readable"), Some(time(150)));
    sessions.delete("b").expect("durable");
    sessions.touch("c", time(1)).expect("durable");
    assert_eq!((get("b"), get("c")), (None, None));
    let far = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(1 << 45));
    sessions.put("d", 4, far.unwrap_or_else(|| time(1 << 40))).expect("durable");
    clock.set(1 << 37);
    assert_eq!(get("d"), Some(4), "never");
    assert!(sessions.expires_at("d").expect("readable").is_some_and(|at| at > time(1 << 37)));
}

#[test]
fn scans_show_what_has_not_expired() {
    let clock = Clock::at(100);
    let store = clock.builder().in_memory().expect("a store");
    let pages = store.typed_expiring_table(PAGES).expect("a table");
    for number in 0..300u32 {
        let name = format!("page {}", number % 7);
        let at = time(if number % 3 == 0 { 110 } else { 120 });
        let pages = pages.with_durability(Durability::Ticket);
        pages.put((number / 30, &name), &number.to_string(), at).expect("accepted");
    }
    let there = |seconds| -> BTreeMap<(u32, String), String> {
        let of = |number: u32| ((number / 30, format!("page {}", number % 7)), number.to_string());
        let all: BTreeMap<_, _> = (0..300).map(of).collect();
        let expires = |text: &str| match text.parse::<u32>() {
            Ok(number) if number % 3 == 0 => 110,
            _ => 120,
        };
        all.into_iter().filter(|(_, text)| expires(text) > seconds).collect()
    };
    for (seconds, sweeps) in [(100, false), (115, false), (115, true), (120, false), (120, true)] {
        clock.set(seconds);
        if sweeps {
            store.sweep().expect("swept");
        }
        let all: BTreeMap<_, _> = pages.iter().map(|record| record.expect("readable")).collect();
        assert_eq!(all, there(seconds));
        let back: Vec<_> = pages.iter().rev().map(|record| record.expect("readable")).collect();
        assert!(back.into_iter().rev().eq(there(seconds)));
        let of = |first: u32| there(seconds).keys().filter(|key| key.0 == first).count();
        assert_eq!(pages.prefix((4,)).count(), of(4));
        assert_eq!(pages.range((2, "")..(4, "")).count(), of(2) + of(3));
    }
    clock.set(121);
    pages.put((5, "x"), "y", time(200)).expect("durable");
    pages.remove_range((5, ""), None).expect("durable");
    assert_eq!(pages.iter().count(), 0);
}

#[test]
fn batches_and_futures_declare_as_of_their_commit() {
    let clock = Clock::at(100);
    let store = clock.builder().in_memory().expect("a store");
    let sessions = store.typed_expiring_table(SESSIONS).expect("a table");
    let counts = store.table("counts").expect("a table");
    let mut batch = store.batch();
    batch
        .put_expiring(&sessions, "a", &1, time(110))
        .insert_expiring(&sessions, "b", &2, time(120))
        .add(&counts, b"sessions", 2);
    batch.commit(Durability::Wait).expect("durable");
    // Built before it expires, and committed after.
    let mut late = store.batch();
    late.touch(&sessions, "a", time(200)).insert_expiring(&sessions, "b", &3, time(200));
    let mut later = store.batch();
    later.insert_expiring(&sessions, "a", &4, time(200)).delete(&sessions, "b");
    clock.set(115);
    late.commit(Durability::Wait).expect("durable");
    assert_eq!(sessions.get("a").expect("readable"), None);
    assert_eq!(sessions.get("b").expect("readable"), Some(2));
    later.commit(Durability::Wait).expect("durable");
    assert_eq!(sessions.get("a").expect("readable"), Some(4));
    assert_eq!(sessions.get("b").expect("readable"), None);
    futures::executor::block_on(async {
        sessions.put_async("c", &5, time(130)).await.expect("durable");
        sessions.touch_async("c", time(140)).await.expect("durable");
        sessions.insert_if_absent_async("c", &6, time(150)).await.expect("durable");
    });
    assert_eq!(sessions.expires_at("c").expect("readable"), Some(time(140)));
    // Asked for in time, and done when a sweep could have dropped the record.
    let mut touched = sessions.touch_async("c", time(300));
    clock.set(141);
    sessions.put("beside", 7, time(300)).expect("durable");
    store.sweep().expect("swept");
    futures::executor::block_on(&mut touched).expect("durable");
    assert_eq!(sessions.get("c").expect("readable"), Some(5));
    sessions.touch("c", time(141)).expect("durable");
    store.sweep().expect("swept");
    assert_eq!(stored(&store, "sessions"), 2, "nothing is kept for futures that are done");
    drop(touched);
}

#[test]
fn what_does_not_fit_is_refused() {
    let store = Clock::at(100).builder().in_memory().expect("a store");
    let sessions = store.typed_expiring_table(SESSIONS).expect("a table");
    let refused = |modifier, operand: &[u8]| {
        let mut batch = store.batch();
        batch.update(&sessions, "a", modifier, operand);
        let error = batch.commit(Durability::Wait).expect_err("a refusal");
        assert!(matches!(error, Error::Request(RequestError::BadOperand { .. })), "{error}");
    };
    refused(ADD_I64, &[0; 8]);
    refused(INSERT_IF_ABSENT, &value_operand(ValueKind::Bytes, &[0; 20]));
    refused(PUT, &value_operand(ValueKind::Bytes, &[0; 8]));
    refused(PUT, &value_operand(ValueKind::Bytes, &[0; 17]));
    let mismatch = |error| matches!(error, Error::Request(RequestError::TableMismatch { .. }));
    assert!(mismatch(store.table("sessions").expect_err("another kind")));
    store.table("plain").expect("a table");
    assert!(mismatch(store.expiring_table("plain").expect_err("another kind")));
    let text = store.expiring_table("sessions").expect("a table");
    sessions.put("a", 1, time(200)).expect("durable");
    let error = text.get(b"a").expect_err("a number");
    assert!(matches!(error, Error::Request(RequestError::TypeMismatch { .. })), "{error}");
    let longest = vec![7; (1 << 20) - 9];
    text.put(b"long", &longest, time(200)).expect("durable");
    assert_eq!(text.get(b"long").expect("readable"), Some(longest.clone()));
    let error = text.put(b"long", &[&longest[..], b"0"].concat(), time(200)).expect_err("longer");
    let limit = longest.len();
    let wanted = RequestError::ValueTooLong { bytes: limit + 1, limit };
    assert_eq!(error, Error::Request(wanted));
    assert_eq!(store.quarantined().expect("readable"), []);
}

#[test]
fn the_sweep_drops_what_it_writes_anyway_and_reads_nothing_for_it() {
    // Equal but for the time at which half of the records expire.
    let [[dropped_blocks, dropped_records], [kept_blocks, kept_records]] =
        [120, 1000].map(|expires| {
            let clock = Clock::at(100);
            let store = clock.builder().in_memory().expect("a store");
            let table = store.expiring_table("table").expect("a table");
            let table = table.with_durability(Durability::Ticket);
            let large = vec![7; 20_000];
            for number in 0..2000u32 {
                let key = number.to_be_bytes();
                let value = if number % 100 == 1 { &large[..] } else { &large[..50] };
                let at = if number % 2 == 1 { time(expires) } else { time(1000) };
                table.put(&key, value, at).expect("accepted");
            }
            store.sweep().expect("swept");
            assert_eq!(stored(&store, "table"), 2000);
            clock.set(120);
            // Nothing waits for these blocks.
            store.sweep().expect("swept");
            assert_eq!(stored(&store, "table"), 2000);
            let read = |store: &Store| {
                let readings = store.metrics();
                [readings.sweep_read_bytes_total, readings.query_reads_total]
            };
            let before = read(&store);
            for number in (0..2000u32).step_by(4) {
                table.touch(&number.to_be_bytes(), time(2000)).expect("accepted");
            }
            store.sweep().expect("swept");
            let after = read(&store);
            assert_eq!(after[1], before[1]);
            assert_eq!(table.iter().count(), if expires == 120 { 1000 } else { 2000 });
            [after[0] - before[0], stored(&store, "table")]
        });
    assert_eq!((dropped_records, kept_records), (1000, 2000));
    // Where blocks lie, and so what lies between those of a run, differs from store to store. The
    // 20 large values that expire have 400,000 bytes: none of them was read.
    assert!(dropped_blocks > 0);
    assert!(dropped_blocks < kept_blocks + 200_000, "{dropped_blocks} and {kept_blocks}");
}

#[test]
fn a_clock_that_goes_back_brings_nothing_back_while_the_store_is_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, clock) = (folder.path().join("store"), Clock::at(200));
    let store = clock.create(&path);
    let table = store.expiring_table("table").expect("a table");
    table.put(b"a", b"1", time(150)).expect("durable");
    table.put(b"b", b"2", time(150)).expect("durable");
    table.put(b"c", b"3", time(300)).expect("durable");
    assert_eq!(table.get(b"a").expect("readable"), None);
    clock.set(100);
    assert_eq!(table.get(b"a").expect("readable"), None);
    table.touch(b"a", time(400)).expect("durable");
    assert_eq!(table.iter().count(), 1);
    table.insert_if_absent(b"b", b"new", time(400)).expect("durable");
    assert_eq!(table.get(b"b").expect("readable").as_deref(), Some(&b"new"[..]));
    drop(table);
    store.close().expect("durable");
    // What was not dropped is there again in a store that is opened at an earlier time.
    let store = clock.builder().open(&path).expect("a store");
    let table = store.existing_expiring_table("table").expect("a table");
    assert_eq!(table.get(b"a").expect("readable").as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_moment_keeps_what_expires_after_it() {
    let clock = Clock::at(100);
    let store = clock.builder().in_memory().expect("a store");
    let table = store.expiring_table("table").expect("a table");
    table.put(b"a", b"1", time(110)).expect("durable");
    table.put(b"b", b"2", time(100)).expect("durable");
    let moment = store.blocks().moment();
    clock.set(120);
    table.put(b"c", b"3", time(200)).expect("durable");
    store.sweep().expect("swept");
    assert_eq!(stored(&store, "table"), 2, "the first is kept, the second is dropped");
    drop(moment);
    table.put(b"c", b"4", time(200)).expect("durable");
    store.sweep().expect("swept");
    assert_eq!(stored(&store, "table"), 1);
}

#[test]
fn what_is_shared_keeps_its_records_and_shows_them_to_nobody() {
    let clock = Clock::at(100);
    let store = clock.builder().in_memory().expect("a store");
    let table = store.expiring_table("table").expect("a table");
    let large = vec![7; 20_000];
    for (key, expires) in [(b"a", 110), (b"b", 110), (b"c", 300)] {
        table
            .put(key, if key == b"b" { &large } else { b"small" }, time(expires))
            .expect("durable");
    }
    store.sweep().expect("swept");
    let snapshot = store.snapshot().expect("made");
    store.clone_structure("table", "clone").expect("made");
    let clone = store.existing_expiring_table("clone").expect("a table");
    let then = snapshot.expiring_table("table").expect("a table");
    assert_eq!((then.iter().count(), clone.iter().count()), (3, 3));
    clock.set(120);
    table.touch(b"c", time(400)).expect("durable");
    store.sweep().expect("swept");
    assert_eq!((stored(&store, "table"), stored(&store, "clone")), (1, 3));
    for table in [&table, &then, &clone] {
        assert_eq!(table.iter().count(), 1);
        assert_eq!(table.get(b"b").expect("readable"), None);
    }
    assert_eq!(then.expires_at(b"c").expect("readable"), Some(time(300)));
    clock.set(300);
    assert_eq!((then.iter().count(), clone.iter().count(), table.iter().count()), (0, 0, 1));
    drop((then, snapshot));
    store.reclaim().expect("reclaimed");
    clone.put(b"d", b"new", time(400)).expect("durable");
    store.sweep().expect("swept");
    assert_eq!((stored(&store, "table"), stored(&store, "clone")), (1, 1));
}

#[test]
fn a_shared_block_that_is_moved_keeps_its_records() {
    let clock = Clock::at(100);
    let store = clock.builder().in_memory().expect("a store");
    let table = store.expiring_table("table").expect("a table");
    let table = table.with_durability(Durability::Ticket);
    let keys = || (0..3000u32).map(u32::to_be_bytes);
    for key in keys() {
        let at = if key[3] % 2 == 1 { time(110) } else { time(1000) };
        table.put(&key, &[7; 100], at).expect("accepted");
    }
    store.sweep().expect("swept");
    let low = |key: &[u8]| {
        let view = store.blocks().view(table.space(), Wanted::Covering(key.to_vec()));
        view.expect("a block").low
    };
    // All blocks but one become the table's own.
    let snapshot = store.snapshot().expect("made");
    let shared = low(&1500u32.to_be_bytes());
    let is_in_shared: Vec<bool> = keys().map(|key| low(&key) == shared).collect();
    let before = low(&0u32.to_be_bytes());
    assert!(before != shared && low(&2999u32.to_be_bytes()) != shared, "in the middle");
    clock.set(110);
    for (key, _) in keys().zip(&is_in_shared).filter(|(key, shared)| key[3] % 2 == 0 && !**shared) {
        table.touch(&key, time(2000)).expect("accepted");
    }
    store.sweep().expect("swept");
    let found: Vec<_> = table.raw().iter().map(|record| record.expect("readable").0).collect();
    let left = keys().zip(is_in_shared).filter(|(key, shared)| key[3] % 2 == 0 || *shared);
    let left: Vec<_> = left.map(|(key, _)| key.to_vec()).collect();
    assert!(left.len() > 1520, "{} records", left.len());
    assert!(found == left, "{} records, not {}", found.len(), left.len());
    assert_eq!((table.iter().count(), content(&table).len()), (1500, 1500));
    drop(snapshot);
}

/// Keys and values that have not expired.
fn content(table: &ExpiringTable) -> BTreeMap<Vec<u8>, Vec<u8>> {
    table.iter().map(|record| record.expect("readable")).collect()
}

#[test]
fn backups_keep_the_times() {
    let folder = tempfile::tempdir().expect("a folder");
    let [path, full, increment, copy] = ["a", "b", "c", "d"].map(|name| folder.path().join(name));
    let clock = Clock::at(100);
    let store = clock.create(&path);
    let table = store.expiring_table("table").expect("a table");
    let large = vec![7; 20_000];
    let records = (0..500u32).map(|number| {
        let value = if number % 50 == 3 { large.clone() } else { number.to_be_bytes().to_vec() };
        Ok((number.to_be_bytes().to_vec(), value, time(110 + u64::from(number % 4) * 10)))
    });
    let loaded = table.load(records, LoadOptions::default()).expect("loaded");
    assert_eq!(loaded.records, 500);
    assert_eq!(content(&table).len(), 500);
    store.backup(&full, &BackupOptions::default().snapshot("full")).expect("a backup");
    clock.set(110);
    for number in 0..100u32 {
        table.touch(&number.to_be_bytes(), time(200)).expect("durable");
    }
    store.sweep().expect("swept");
    store.backup(&increment, &BackupOptions::default().since(&full)).expect("an increment");
    let restored = clock.builder().restore(&increment, &copy, &Default::default());
    restored.expect("restored");
    let kind = Kind::expiring_table();
    assert_eq!(store.kind("table"), Some(kind.clone()));
    let other = clock.builder().open(&copy).expect("a store");
    assert_eq!(other.kind("table"), Some(kind));
    let copied = other.existing_expiring_table("table").expect("a table");
    for (seconds, count) in [(110, 375), (120, 275), (140, 75), (200, 0)] {
        clock.set(seconds);
        assert_eq!(content(&copied), content(&table));
        assert_eq!(content(&copied).len(), count);
    }
    drop((table, copied));
    for (store, path) in [(store, path), (other, copy)] {
        store.close().expect("durable");
        let report = Store::builder().verify(&path).expect("a store");
        assert_eq!(report.damage, []);
    }
}

/// What a test does.
#[derive(Clone, Debug)]
enum Step {
    Put(u8, u64, usize),
    Insert(u8, u64, usize),
    Touch(u8, u64),
    Delete(u8),
    /// The clock moves, by seconds.
    Wait(u64),
    Sweep,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0u8..12;
    let length = || prop_oneof![3 => Just(3usize), 1 => Just(6000usize)];
    let step = prop_oneof![
        6 => (key(), 0..12u64, length()).prop_map(|(key, us, bytes)| Step::Put(key, us, bytes)),
        6 => (key(), 0..12u64, length()).prop_map(|(key, us, bytes)| Step::Insert(key, us, bytes)),
        6 => (key(), 0..12u64).prop_map(|(key, us)| Step::Touch(key, us)),
        2 => key().prop_map(Step::Delete),
        6 => (1..5u64).prop_map(Step::Wait),
        4 => Just(Step::Sweep),
        1 => Just(Step::Reopen),
    ];
    vec(step, 1..80)
}

/// By key: when it expires, and its value.
type Oracle = BTreeMap<u8, (u64, Vec<u8>)>;

/// An open store beside an oracle that drops nothing.
struct Trial {
    path: std::path::PathBuf,
    clock: Clock,
    seconds: u64,
    store: Option<(Store, ExpiringTable<u8, [u8]>)>,
    oracle: Oracle,
}

const TRIAL: TableDefinition<u8, [u8]> = TableDefinition::new("trial");

impl Trial {
    fn new(path: &Path) -> Self {
        let clock = Clock::at(1000);
        let store = clock.create(path);
        let table = store.typed_expiring_table(TRIAL).expect("a table");
        let store = Some((store, table.with_durability(Durability::Ticket)));
        Self { path: path.to_owned(), clock, seconds: 1000, store, oracle: Oracle::new() }
    }

    fn table(&self) -> &ExpiringTable<u8, [u8]> {
        &self.store.as_ref().expect("open").1
    }

    fn close(&mut self) {
        let (store, table) = self.store.take().expect("open");
        drop(table);
        store.close().expect("durable");
    }

    fn there(&self) -> BTreeMap<u8, Vec<u8>> {
        let there = self.oracle.iter().filter(|(_, (expires, _))| *expires > self.seconds);
        there.map(|(key, (_, value))| (*key, value.clone())).collect()
    }

    fn step(&mut self, number: usize, step: &Step) {
        let (now, value) = (self.seconds, |length| vec![number as u8; length]);
        let is_there = |oracle: &Oracle, key| oracle.get(key).is_some_and(|found| found.0 > now);
        match step {
            Step::Put(key, after, length) => {
                let ticket = self.table().put(*key, &value(*length), time(now + after));
                ticket.expect("accepted");
                self.oracle.insert(*key, (now + after, value(*length)));
            }
            Step::Insert(key, after, length) => {
                let table = self.table();
                let ticket = table.insert_if_absent(*key, &value(*length), time(now + after));
                ticket.expect("accepted");
                if !is_there(&self.oracle, key) {
                    self.oracle.insert(*key, (now + after, value(*length)));
                }
            }
            Step::Touch(key, after) => {
                self.table().touch(*key, time(now + after)).expect("accepted");
                if is_there(&self.oracle, key) {
                    self.oracle.entry(*key).and_modify(|found| found.0 = now + after);
                }
            }
            Step::Delete(key) => {
                self.table().delete(*key).expect("accepted");
                self.oracle.remove(key);
            }
            Step::Wait(seconds) => {
                self.seconds += seconds;
                self.clock.set(self.seconds);
            }
            Step::Sweep => self.store.as_ref().expect("open").0.sweep().expect("swept"),
            Step::Reopen => {
                self.close();
                let store = self.clock.builder().open(&self.path).expect("a store");
                let table = store.existing_typed_expiring_table(TRIAL).expect("a table");
                self.store = Some((store, table.with_durability(Durability::Ticket)));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever the sweep has dropped, and when, queries show what an oracle says.
    #[test]
    fn sweeps_and_reopenings_make_no_difference(steps in steps()) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut trial = Trial::new(&folder.path().join("store"));
        for (number, step) in steps.iter().enumerate() {
            trial.step(number, step);
            let there = trial.there();
            let key = (number % 12) as u8;
            prop_assert_eq!(trial.table().get(key).expect("readable"), there.get(&key).cloned());
            if number % 8 == 0 || matches!(step, Step::Sweep | Step::Reopen) {
                let found: BTreeMap<_, _> =
                    trial.table().iter().map(|record| record.expect("readable")).collect();
                prop_assert_eq!(found, there);
            }
        }
        trial.close();
        let report = Store::builder().verify(&trial.path).expect("a store");
        prop_assert_eq!(report.damage, []);
    }
}
