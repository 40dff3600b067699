//! A store through its public API, on files.

#![expect(clippy::disallowed_methods, reason = "tests of a store on files")]

use upsweep::layers::device::{Bank, DeviceId, MemoryDevices, ThreadedDevices};
use upsweep::{
    ClosedError, CreateOptions, Durability, Error, LogMode, Modifier, OpenOptions, Outcome,
    Refusal, RequestError, Retried, RetryError, Store, Table, TableDefinition, ValueKind, ValueRef,
};

/// With devices that are known: the least memory, for one, depends on what they do.
fn small() -> CreateOptions {
    let bank = ThreadedDevices::new(MemoryDevices::with_sizes(&[1 << 20], 1));
    let profile = bank.profile(DeviceId(0)).expect("that of memory");
    CreateOptions::default().log_bytes(8 << 20).profiles(vec![profile])
}

fn create(folder: &std::path::Path) -> Store {
    Store::builder().memory_bytes(32 << 20).create(folder, &small()).expect("a new store")
}

#[test]
fn updates_are_there_at_once_after_a_sweep_and_after_reopening() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.table("hits").expect("a table").with_durability(Durability::Ticket);
    let mut last = None;
    for round in 0..3u32 {
        for number in 0..20_000u32 {
            let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
            last = Some(table.add(&key, 1 + i64::from(round)).expect("accepted"));
        }
    }
    last.expect("updates").wait().expect("durable");
    let check = |store: &Store| {
        let table = store.existing_table("hits").expect("the table");
        for number in (0..20_000u32).step_by(97) {
            let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
            let value = table.get(&key).expect("readable").expect("there");
            assert_eq!(value.as_i64(), Some(6), "key {number}");
        }
        let scanned = table.iter().map(|record| record.expect("readable"));
        assert_eq!(
            scanned.map(|(_, value)| value.as_i64().expect("a number")).sum::<i64>(),
            120_000
        );
        assert_eq!(table.iter().rev().count(), 20_000);
    };
    check(&store);
    store.sweep().expect("swept");
    check(&store);
    drop(table);
    store.close().expect("closed");
    let store = Store::open(&path).expect("opens again");
    check(&store);
    drop(store);
    let report = Store::builder().verify(&path).expect("verified");
    assert_eq!(report.damage, []);
    assert_eq!(report.records, 20_000);
}

#[test]
fn a_new_store_opens_with_any_allowed_number_of_log_batches_in_flight() {
    let folder = tempfile::tempdir().expect("a folder");
    let builder = |depth| {
        let options = OpenOptions::default().memory_bytes(32 << 20).log_depth(depth);
        Store::builder().options(options)
    };
    for depth in [1, 7, 16] {
        let path = folder.path().join(format!("store-{depth}"));
        let store = builder(depth).create(&path, &small()).expect("a new store");
        let table = store.table("hits").expect("a table");
        (0..100u32).for_each(|number| drop(table.add(&number.to_be_bytes(), 1).expect("durable")));
        drop(table);
        store.close().expect("closed");
        let store = builder(depth).open(&path).expect("opens again");
        assert_eq!(store.existing_table("hits").expect("the table").iter().count(), 100);
    }
}

#[test]
fn settings_out_of_range_are_named_and_leave_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = || OpenOptions::default().memory_bytes(32 << 20);
    let cases = [
        (options().log_depth(0), "log depth: 0; give 1 to 16"),
        (options().log_depth(17), "log depth: 17; give 1 to 16"),
        (options().run_blocks_max(0), "blocks of a run: 0; give 1 to 1024"),
        (options().run_blocks_max(1025), "blocks of a run: 1025; give 1 to 1024"),
        (options().run_density_percent_min(101), "run density: 101 per cent; give 0 to 100"),
        (
            options().scan_request_bytes(5000),
            "scan request: 5000 bytes; give 4KiB to 16MiB in steps of 4KiB",
        ),
        (options().scan_requests_in_flight(65), "scan requests: 65; give 0 to 64"),
        (options().memory_bytes(1000), "memory: 1000 bytes; this store needs at least 6MiB"),
        (
            options().log_mode(LogMode::Full),
            "log mode: full, but a device holds both log and data: put the log on a drive of its \
             own, or open with idle",
        ),
    ];
    for (options, text) in cases {
        let path = folder.path().join("store");
        let refused = Store::builder().options(options).create(&path, &small()).err();
        assert_eq!(refused.map(|error| error.to_string()).as_deref(), Some(text));
        assert!(!path.exists(), "{text}");
    }
}

#[test]
fn readers_of_the_same_cold_blocks_see_every_update_while_sweeps_move_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let table = store.table("hits").expect("a table").with_durability(Durability::Ticket);
    // More than the cache holds, so that reads go to the device.
    let (count, rounds) = (1000u32, 6i64);
    let blob = |number: u32| [&number.to_be_bytes()[..], b"blob"].concat();
    let mut last = None;
    for number in 0..count {
        drop(table.put(&blob(number), &[7; 4000]).expect("accepted"));
        last = Some(table.add(&number.to_be_bytes(), 1).expect("accepted"));
    }
    last.expect("updates").wait().expect("durable");
    store.sweep().expect("swept");
    // Ends readers also when something goes wrong.
    let going = std::sync::Arc::new(());
    let still = std::sync::Arc::downgrade(&going);
    std::thread::scope(|scope| {
        let _going = going;
        let read = || {
            let mut seen = vec![0; count as usize];
            while still.strong_count() > 0 {
                // All readers go the same way, and so wait for the same blocks.
                for number in (0..count).step_by(4) {
                    let value = table.get(&number.to_be_bytes()).expect("readable").expect("there");
                    let value = value.as_i64().expect("a number");
                    assert!((seen[number as usize]..=rounds).contains(&value), "key {number}");
                    seen[number as usize] = value;
                }
            }
        };
        for _ in 0..4 {
            scope.spawn(read);
        }
        for round in 2..=rounds {
            for number in 0..count {
                drop(table.add(&number.to_be_bytes(), 1).expect("accepted"));
                if number % 250 == 0 {
                    let value = table.get(&number.to_be_bytes()).expect("readable").expect("there");
                    assert_eq!(value.as_i64(), Some(round), "one's own update is seen at once");
                }
            }
            store.sweep().expect("swept");
        }
    });
}

#[test]
fn a_typed_table_keeps_the_order_of_its_keys() {
    const SCORES: TableDefinition<i64, f64> = TableDefinition::new("scores");
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let scores = store.typed(SCORES).expect("a table");
    for key in [-5i64, 3, 0, i64::MIN, i64::MAX] {
        scores.put(key, key as f64).expect("durable").wait().expect("durable");
    }
    let keys: Vec<i64> = scores.iter().map(|record| record.expect("readable").0).collect();
    assert_eq!(keys, [i64::MIN, -5, 0, 3, i64::MAX]);
    let some: Vec<i64> =
        scores.range(-5..3).rev().map(|record| record.expect("readable").0).collect();
    assert_eq!(some, [0, -5]);
}

#[test]
fn blocks_of_an_application_are_read_and_written_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let space = store.blocks().create_space("images", "raw", false).expect("a space").space;
    for number in 0..500u32 {
        let bytes = vec![number as u8; 100 + number as usize * 7];
        let ticket = store.blocks().write(space, &number.to_be_bytes(), &bytes, Durability::Ticket);
        ticket.expect("accepted").wait().expect("durable");
    }
    let check = |store: &Store| {
        for number in (0..500u32).step_by(7) {
            let bytes = store.blocks().read(space, &number.to_be_bytes()).expect("readable");
            assert_eq!(bytes, vec![number as u8; 100 + number as usize * 7], "block {number}");
        }
        assert_eq!(store.blocks().read(space, b"none").expect("readable"), b"");
    };
    check(&store);
    store.sweep().expect("swept");
    check(&store);
    store.blocks().checkpoint().expect("a checkpoint");
    drop(store);
    let store = Store::open(&path).expect("opens again");
    check(&store);
    drop(store);
    assert_eq!(Store::builder().verify(&path).expect("verified").damage, []);
}

/// Keeps the number of times that it was applied; refuses an operand that says so, and panics at
/// another. The result depends on the state, so applying twice would show.
struct Count;

impl Modifier for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    fn version(&self) -> u16 {
        3
    }

    fn apply(
        &self,
        _key: &[u8],
        current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        let count = current.map_or(0, |value| value.bytes.len());
        match operand {
            b"refuse" => Err(Refusal("as asked".to_owned())),
            b"panic" if count < 5 => panic!("as asked"),
            _ => Ok(Outcome::Put(ValueKind::Bytes, vec![b'x'; count + 1])),
        }
    }
}

#[test]
fn a_modifier_of_the_application_lives_on_the_log_by_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let builder = || Store::builder().memory_bytes(32 << 20).modifier(Count);
    let store = builder().create(&path, &small()).expect("a new store");
    let table = store.table("counts").expect("a table");
    for operand in [&b""[..], b"refuse", b"", b"panic", b""] {
        table.modify(b"key", &Count, operand).expect("logged").wait().expect("durable");
    }
    assert_eq!(*table.get(b"key").expect("readable").expect("there"), *b"xxx");
    drop((store, table));

    let refused = Store::open(&path).map(|_| ()).expect_err("the log needs the modifier");
    let unknown = RequestError::UnknownModifier { name: "count".to_owned(), version: 3 };
    assert_eq!(refused, Error::Request(unknown));

    let store = builder().open(&path).expect("opens again");
    let table = store.existing_table("counts").expect("the table");
    assert_eq!(*table.get(b"key").expect("readable").expect("there"), *b"xxx");
    store.sweep().expect("swept");
    let quarantined = store.quarantined().expect("listed");
    let operands: Vec<&[u8]> = quarantined.iter().map(|update| &*update.operand).collect();
    assert_eq!(operands, [&b"refuse"[..], b"panic"]);
    assert_eq!(quarantined[0].table.as_deref(), Some("counts"));
    assert_eq!(quarantined[0].modifier, "count");
    for _ in 0..2 {
        table.modify(b"key", &Count, b"").expect("logged").wait().expect("durable");
    }
    assert_eq!(store.retry_quarantined(&quarantined[1].id), Ok(Retried::Declared));
    assert_eq!(*table.get(b"key").expect("readable").expect("there"), *b"xxxxxx");
    store.sweep().expect("swept");
    assert_eq!(store.quarantined().expect("listed").len(), 1);
    drop((store, table));
    let store = builder().open(&path).expect("opens again");
    assert_eq!(store.quarantined().expect("listed").len(), 1);
    drop(store);
    assert_eq!(builder().verify(&path).expect("verified").damage, []);
}

#[test]
fn a_quarantined_update_of_a_dropped_table_is_taken_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let builder = Store::builder().memory_bytes(32 << 20).modifier(Count);
    let store = builder.create(folder.path().join("store"), &small()).expect("a new store");
    let table = store.table("counts").expect("a table");
    table.modify(b"key", &Count, b"refuse").expect("logged").wait().expect("durable");
    store.sweep().expect("swept");
    store.drop_table("counts").expect("dropped");
    let quarantined = store.quarantined().expect("listed");
    assert_eq!(quarantined[0].table, None);
    let id = &quarantined[0].id;
    assert_eq!(store.retry_quarantined(id), Ok(Retried::Removed));
    assert_eq!(store.quarantined().expect("listed"), []);
    let shown = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let gone = Error::Request(RequestError::NoQuarantined(shown));
    assert_eq!(store.retry_quarantined(id), Err(gone));
}

#[test]
fn large_values_live_outside_of_their_leaf() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = create(&path);
    let table = store.table("large").expect("a table").with_durability(Durability::Ticket);
    let value = |number: u32| vec![number as u8; 3000 + number as usize * 5000];
    let mut last = None;
    for number in 0..60u32 {
        last = Some(table.put(&number.to_be_bytes(), &value(number)).expect("accepted"));
    }
    last.expect("updates").wait().expect("durable");
    store.sweep().expect("swept");
    for number in 0..60u32 {
        table.append(&number.to_be_bytes(), b"more").expect("accepted");
    }
    table.delete(&59u32.to_be_bytes()).expect("accepted").wait().expect("durable");
    let check = |table: &Table| {
        for (record, number) in table.iter().zip(0u32..) {
            let (key, bytes) = record.expect("readable");
            assert_eq!(key, number.to_be_bytes());
            assert_eq!(*bytes, *[value(number), b"more".to_vec()].concat());
        }
        assert_eq!(table.iter().rev().count(), 59);
    };
    check(&table);
    store.sweep().expect("swept");
    check(&table);
    drop((store, table));
    let store = Store::open(&path).expect("opens again");
    check(&store.existing_table("large").expect("the table"));
    store.drop_table("large").expect("dropped");
    assert_eq!(store.existing_table("large").map(|_| ()).expect_err("gone"), no_table("large"));
    drop(store);
    let report = Store::builder().verify(&path).expect("verified");
    assert_eq!((report.damage, report.records), (vec![], 0));
}

fn no_table(name: &str) -> Error {
    RequestError::NoTable(name.to_owned()).into()
}

#[test]
fn a_batch_is_one_change_over_several_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = create(&folder.path().join("store"));
    let (from, to) = (store.table("from").expect("a table"), store.table("to").expect("a table"));
    let mut batch = store.batch();
    batch.add(&from, b"account", -7).add(&to, b"account", 7).put(&to, b"note", b"paid");
    batch.commit(Durability::Wait).expect("durable").wait().expect("durable");
    let amount = |table: &Table| table.get(b"account").expect("readable").expect("there").as_i64();
    assert_eq!((amount(&from), amount(&to)), (Some(-7), Some(7)));
}

#[test]
fn a_store_opens_with_less_memory_than_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let options = CreateOptions::default().log_bytes(64 << 20);
    let store = Store::builder().memory_bytes(256 << 20).create(&path, &options).expect("new");
    let table = store.table("main").expect("a table").with_durability(Durability::Ticket);
    let value = [5u8; 100];
    let mut last = None;
    for number in 0..200_000u32 {
        let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
        last = Some(table.put(&key, &value).expect("accepted"));
    }
    last.expect("updates").wait().expect("durable");
    drop((store, table));
    let store = Store::builder().memory_bytes(12 << 20).open(&path).expect("opens with less");
    assert_eq!(store.existing_table("main").expect("the table").iter().count(), 200_000);
    drop(store);
    assert_eq!(Store::builder().verify(&path).expect("verified").damage, []);
}

#[test]
fn one_process_at_a_time_and_clear_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let missing = Store::open(&path).map(|_| ()).expect_err("nothing there");
    assert_eq!(missing, Error::Request(RequestError::NoStore(path.clone())));
    let entries = folder.path().read_dir().expect("readable").count();
    assert_eq!(entries, 0, "nothing is created by accident");
    let store = create(&path);
    let error = Store::open(&path).map(|_| ()).expect_err("in use");
    assert_eq!(error, Error::Retry(RetryError::OpenHere(path.clone())));
    let error = Store::create(&path).map(|_| ()).expect_err("there already");
    assert!(matches!(error, Error::Request(RequestError::AlreadyExists(_))), "{error}");
    let table = store.table("t").expect("a table");
    let long = table.put(&[0; 5000], b"").map(|_| ()).expect_err("a long key");
    assert_eq!(long, Error::Request(RequestError::KeyTooLong { bytes: 5000, limit: 4096 }));
    let bad = store.table("").map(|_| ()).expect_err("no name");
    assert_eq!(bad, Error::Request(RequestError::BadTableName(String::new())));
    store.clone().close().expect("closed");
    let closed = table.put(b"k", b"v").map(|_| ()).expect_err("closed");
    assert_eq!(closed, Error::Closed(ClosedError::Closed));
}

#[test]
fn a_directory_that_outgrows_the_memory_refuses_updates_until_there_is_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    create(&path).close().expect("closed");
    let open = |mebibytes: usize| Store::builder().memory_bytes(mebibytes << 20).open(&path);
    let least = (1..64).find(|mebibytes| open(*mebibytes).is_ok()).expect("64 MiB are enough");
    let store = open(least).expect("opens");
    let table = store.table("t").expect("a table").with_durability(Durability::Ticket);
    let put = |table: &Table, number: u32| table.put(&number.to_be_bytes(), &[7; 3000]);
    let refused = (0..200_000).find_map(|number| Some((number, put(&table, number).err()?)));
    let (number, error) = refused.expect("refused at some time");
    let Error::Retry(RetryError::Memory { budget_bytes, needed_bytes }) = error else {
        panic!("refused for another reason: {error}");
    };
    assert_eq!(budget_bytes, least << 20);
    assert!(needed_bytes > budget_bytes);
    store.sweep().expect("what was accepted is swept");
    let value = table.get(&(number - 1).to_be_bytes()).expect("readable");
    assert_eq!(value.expect("there").len(), 3000);
    drop(table);
    store.close().expect("closed");
    let store = open(least + 1).expect("opens");
    let table = store.existing_table("t").expect("a table");
    put(&table, number).expect("there is room").wait().expect("durable");
}
