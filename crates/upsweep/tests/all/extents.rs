//! Reserved extents of a running store: what is written there stays, and nothing else goes there.

#![expect(clippy::disallowed_methods, reason = "a test with threads")]

use upsweep::layers::device::{
    Buffer, Class, DeviceId, FailureKind, HostileDevices, MemoryDevices, ThreadedDevices, WriteMode,
};
use upsweep::layers::runtime::{BlockStore, ExtentRead, ReservedExtent};
use upsweep::{
    ClosedError, CreateOptions, Durability, Error, Location, RequestError, RetryError, SpaceId,
    Store,
};

const UNIT: usize = 4096;

fn options() -> CreateOptions {
    CreateOptions::default().log_bytes(8 << 20)
}

fn write(reserved: &ReservedExtent, offset: u64, byte: u8) -> Result<Buffer, Error> {
    let buffer = Buffer::copy_of(&[byte; UNIT]);
    reserved.write(offset, buffer, WriteMode::Cached, Class::SweepWrite)
}

fn read(reserved: &ReservedExtent, offset: u64) -> Vec<u8> {
    let buffer = Buffer::zeroed(UNIT);
    reserved.read(offset, buffer, Class::ForegroundRead).expect("readable").to_vec()
}

/// A store, and the number of a table in it.
fn with_table(store: &Store) -> (BlockStore, SpaceId) {
    store.table("index").expect("a table");
    let blocks = store.blocks().clone();
    let space = blocks.space("index").expect("it was made").space;
    (blocks, space)
}

/// Fills the table and sweeps it, twice.
fn sweep_much(store: &Store) {
    let table = store.table("index").expect("a table");
    for round in 0..2_i64 {
        let mut batch = store.batch();
        for key in 0..20_000_u32 {
            batch.put(&table, &key.to_be_bytes(), &round.to_be_bytes());
            if key % 1000 == 999 {
                let full = std::mem::replace(&mut batch, store.batch());
                full.commit(Durability::Ticket).expect("accepted");
            }
        }
        store.sweep().expect("swept");
    }
}

#[test]
fn what_an_owner_has_written_is_there_after_sweeps_and_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = Store::builder().create(&path, &options()).expect("made");
    let (blocks, space) = with_table(&store);
    let small = blocks.reserve_extent(space, 64 << 10).expect("room");
    let large = blocks.reserve_extent(space, 48 << 20).expect("the file grows");
    assert_eq!((small.space(), small.extent().bytes), (space, 64 << 10));
    write(&small, 0, 1).expect("written");
    write(&small, 60 << 10, 2).expect("written");
    write(&large, 40 << 20, 3).expect("written");
    small.flush().expect("stable");
    sweep_much(&store);
    assert_eq!(store.status().reserved_bytes, (48 << 20) + (64 << 10));
    let places = [small.extent(), large.extent()];
    drop((small, large));
    drop(blocks);
    store.close().expect("closed");

    let store = Store::builder().open(&path).expect("opens");
    let (blocks, space) = with_table(&store);
    let mut again = blocks.extents(space).expect("the table is there");
    assert!(blocks.extents(space).expect("the table is there").is_empty(), "each has one handle");
    again.sort_by_key(|reserved| reserved.extent().bytes);
    assert!(again.iter().map(ReservedExtent::extent).eq(places));
    let [small, large] = <[ReservedExtent; 2]>::try_from(again).expect("both");
    assert_eq!(read(&small, 0), [1; UNIT]);
    assert_eq!(read(&small, 60 << 10), [2; UNIT]);
    assert_eq!(read(&large, 40 << 20), [3; UNIT]);
    blocks.give_extent_back(small).expect("it is reserved");
    drop(large);
    let left = blocks.extents(space).expect("the table is there");
    assert!(left.iter().map(ReservedExtent::extent).eq([places[1]]));
    drop((left, blocks));
    store.close().expect("closed");
    let report = Store::builder().verify(&path).expect("readable");
    assert!(report.damage.is_empty(), "{:?}", report.damage);
}

#[test]
fn a_space_is_not_dropped_while_its_extents_are_in_use() {
    let store = Store::in_memory().expect("made");
    let (blocks, space) = with_table(&store);
    let reserved = blocks.reserve_extent(space, 1 << 20).expect("room");
    let refused = store.drop_table("index").expect_err("in use");
    assert_eq!(refused, RequestError::ExtentsInUse("index".to_owned()).into());
    write(&reserved, 0, 1).expect("still its own");
    drop(reserved);
    store.drop_table("index").expect("nobody uses them");
    assert_eq!(store.status().reserved_bytes, 0);
    let gone = blocks.extents(space).expect_err("the table is gone");
    assert!(matches!(gone, Error::Request(RequestError::NoTable(_))), "{gone}");
}

#[test]
fn a_range_that_is_not_inside_is_refused() {
    let store = Store::in_memory().expect("made");
    let (blocks, space) = with_table(&store);
    let reserved = blocks.reserve_extent(space, 8192).expect("room");
    for (offset, bytes) in [(8192, UNIT), (4096, 2 * UNIT), (1, UNIT), (0, 100), (0, 0)] {
        let buffer = Buffer::zeroed(bytes);
        let refused = reserved.read(offset, buffer, Class::ForegroundRead).expect_err("refused");
        assert!(
            matches!(refused, Error::Request(RequestError::OutsideExtent { .. })),
            "{offset} {bytes}: {refused}"
        );
    }
    let refused = reserved.read(u64::MAX - 4095, Buffer::zeroed(UNIT), Class::ForegroundRead);
    refused.expect_err("an offset near the end of all numbers");
    let other = Store::in_memory().expect("made");
    let refused = other.blocks().give_extent_back(reserved).expect_err("of another store");
    assert!(matches!(refused, Error::Request(RequestError::WrongStore { .. })), "{refused}");
}

#[test]
fn parts_of_several_extents_are_read_at_a_time_and_come_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let in_file = Store::builder().create(folder.path().join("store"), &options()).expect("made");
    for store in [in_file, Store::in_memory().expect("made")] {
        let (blocks, space) = with_table(&store);
        let all = [8192, 1 << 20, 64 << 10]
            .map(|bytes| blocks.reserve_extent(space, bytes).expect("room"));
        let place = |nth: usize| (&all[nth % 3], (nth / 3 % 2 * UNIT) as u64);
        for nth in 0..6 {
            let (reserved, offset) = place(nth);
            write(reserved, offset, nth as u8).expect("written");
        }
        let read = |nth: usize| {
            let (reserved, offset) = place(nth);
            ExtentRead { reserved, offset, buffer: Buffer::zeroed(UNIT) }
        };
        let places: Vec<usize> = (0..500).map(|nth| nth * 5 % 6).collect();
        let reads = places.iter().map(|nth| read(*nth)).collect();
        let found = blocks.read_extents(reads, Class::ForegroundRead).expect("readable");
        assert_eq!(found.len(), places.len());
        for (content, nth) in found.iter().zip(places) {
            assert_eq!(**content, [nth as u8; UNIT]);
        }
        let none = blocks.read_extents(Vec::new(), Class::ForegroundRead).expect("nothing to do");
        assert!(none.is_empty());

        let outside = ExtentRead { offset: 8192, ..read(0) };
        let refused = blocks.read_extents(vec![read(1), outside], Class::ForegroundRead);
        let refused = refused.expect_err("the second one is outside");
        let is_outside = matches!(refused, Error::Request(RequestError::OutsideExtent { .. }));
        assert!(is_outside, "{refused}");
        let other = Store::in_memory().expect("made");
        let refused = other.blocks().read_extents(vec![read(0)], Class::ForegroundRead);
        let refused = refused.expect_err("of another store");
        assert!(matches!(refused, Error::Request(RequestError::WrongStore { .. })), "{refused}");
    }
}

#[test]
fn of_several_reads_the_first_that_failed_is_named() {
    let bank = ThreadedDevices::new(HostileDevices::new(MemoryDevices::with_sizes(&[0, 0], 1), 1));
    let store = Store::builder().create_on(bank.clone(), 1, &options()).expect("made");
    let (blocks, space) = with_table(&store);
    let reserved = blocks.reserve_extent(space, 1 << 20).expect("room");
    let (device, offset) = (reserved.extent().device, reserved.extent().offset);
    for bad in [3, 7] {
        let place = offset + bad * UNIT as u64;
        bank.with(|devices| devices.make_unreadable(device, place, UNIT as u64));
    }
    let read = |nth| {
        let (reserved, buffer) = (&reserved, Buffer::zeroed(UNIT));
        ExtentRead { reserved, offset: nth * UNIT as u64, buffer }
    };
    let reads = (0..10).rev().map(read).collect();
    let refused = blocks.read_extents(reads, Class::ForegroundRead).expect_err("two are damaged");
    let Error::Damaged(damage) = refused else { panic!("{refused}") };
    let location = Location { device, offset: offset + 7 * UNIT as u64 };
    assert_eq!(damage.location, Some(location));
}

#[test]
fn a_full_store_refuses_a_reservation_and_goes_on() {
    let bank = ThreadedDevices::new(HostileDevices::new(MemoryDevices::with_sizes(&[0, 0], 1), 1));
    bank.with(|devices| devices.set_capacity(DeviceId(0), 64 << 20));
    let store = Store::builder().create_on(bank, 1, &options()).expect("made");
    let (blocks, space) = with_table(&store);
    assert_eq!(blocks.reservable_bytes(), None, "the file can grow");
    sweep_much(&store);
    let mut all = Vec::new();
    let refused = loop {
        match blocks.reserve_extent(space, 4 << 20) {
            Ok(reserved) => all.push(reserved),
            Err(error) => break error,
        }
        assert!(all.len() < 16, "the device has no more");
    };
    assert!(matches!(refused, Error::Retry(RetryError::Full { .. })), "{refused}");
    assert!(all.len() >= 4, "{}", all.len());
    let table = store.table("index").expect("a table");
    for key in 0..100_u32 {
        table.put(&key.to_be_bytes(), b"changed").expect("accepted");
    }
    store.sweep().expect("swept");
    let bytes = all.len() as u64 * (4 << 20);
    assert_eq!(store.status().reserved_bytes, bytes);
    blocks.give_extent_back(all.swap_remove(0)).expect("it is reserved");
    all.push(blocks.reserve_extent(space, 4 << 20).expect("there is room again"));
}

#[test]
fn a_device_that_cannot_grow_says_how_much_can_be_reserved() {
    let memory = MemoryDevices::with_fixed_sizes(&[64 << 20, 64 << 20], 1);
    let bank = ThreadedDevices::new(HostileDevices::new(memory, 1));
    let store = Store::builder().create_on(bank, 1, &options()).expect("made");
    let (blocks, space) = with_table(&store);
    let at_first = blocks.reservable_bytes().expect("it cannot grow");
    assert!((32 << 20..62 << 20).contains(&at_first), "{at_first}, with a margin of a 32nd");
    let mut all = Vec::new();
    while let Ok(reserved) = blocks.reserve_extent(space, 1 << 20) {
        all.push(reserved);
        let left = blocks.reservable_bytes().expect("it cannot grow");
        assert!(left <= at_first - ((all.len() as u64) << 20));
    }
    let left = blocks.reservable_bytes().expect("it cannot grow");
    assert!(left < 1 << 20, "{left}");
    blocks.give_extent_back(all.swap_remove(0)).expect("it is reserved");
    let more = blocks.reservable_bytes().expect("it cannot grow");
    assert!(more > left + (1 << 19), "{more} after {left}");
}

#[test]
fn after_a_failed_write_or_flush_the_store_is_closed() {
    for is_flush in [false, true] {
        let memory = MemoryDevices::with_sizes(&[0, 0], 1);
        let bank = ThreadedDevices::new(HostileDevices::new(memory, 1));
        let store = Store::builder().create_on(bank.clone(), 1, &options()).expect("made");
        let (blocks, space) = with_table(&store);
        let reserved = blocks.reserve_extent(space, 8192).expect("room");
        write(&reserved, 0, 1).expect("written");
        bank.with(|devices| devices.fail_after(0, FailureKind::Writes));
        let failed = if is_flush { reserved.flush() } else { write(&reserved, 0, 2).map(drop) };
        let failed = failed.expect_err("the device fails");
        let Error::Closed(ClosedError::WriteFailed { offset, .. }) = &failed else {
            panic!("{failed}");
        };
        assert_eq!(offset.is_none(), is_flush);
        let refused = write(&reserved, 0, 1).expect_err("the store is closed");
        assert_eq!(refused, failed);
        let table = store.table("index");
        assert_eq!(table.and_then(|table| table.add(b"key", 1)).expect_err("closed"), failed);
    }
}

#[test]
fn a_write_and_the_log_become_stable_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let in_file = Store::builder().create(folder.path().join("store"), &options()).expect("made");
    for store in [in_file, Store::in_memory().expect("made")] {
        let (blocks, space) = with_table(&store);
        let reserved = blocks.reserve_extent(space, 1 << 20).expect("room");
        for nth in 0..100_u8 {
            let mut batch = store.batch();
            batch.put(&store.table("index").expect("a table"), b"key", &[nth]);
            let ticket = batch.commit(Durability::Relaxed).expect("accepted");
            let offset = u64::from(nth) * UNIT as u64;
            let buffer = Buffer::copy_of(&[nth; UNIT]);
            let (mode, class) = (WriteMode::Stable, Class::ForegroundWrite);
            let buffer = reserved.write_and_flush_log(offset, buffer, mode, class);
            assert_eq!(*buffer.expect("written"), [nth; UNIT]);
            assert!(ticket.is_durable());
            assert_eq!(read(&reserved, offset), [nth; UNIT]);
        }
    }
}

#[test]
fn a_write_beside_the_log_fails_if_either_does() {
    // Both, and only the log, which comes second.
    for writes in [0, 1] {
        let memory = MemoryDevices::with_sizes(&[0, 0], 1);
        let bank = ThreadedDevices::new(HostileDevices::new(memory, 1));
        let store = Store::builder().create_on(bank.clone(), 1, &options()).expect("made");
        let (blocks, space) = with_table(&store);
        let reserved = blocks.reserve_extent(space, 8192).expect("room");
        let table = store.table("index").expect("a table").with_durability(Durability::Relaxed);
        table.put(b"key", b"value").expect("accepted");
        bank.with(|devices| devices.fail_after(writes, FailureKind::Writes));
        let (buffer, mode) = (Buffer::zeroed(UNIT), WriteMode::Stable);
        let failed = reserved.write_and_flush_log(0, buffer, mode, Class::ForegroundWrite);
        let failed = failed.expect_err("a device fails");
        assert!(matches!(failed, Error::Closed(ClosedError::WriteFailed { .. })), "{failed}");
        let refused = write(&reserved, 0, 1).expect_err("the store is closed");
        assert!(matches!(refused, Error::Closed(ClosedError::WriteFailed { .. })), "{refused}");
    }
}

#[test]
fn threads_reserve_what_others_give_back() {
    let store = Store::in_memory().expect("made");
    let (blocks, space) = with_table(&store);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let blocks = &blocks;
            scope.spawn(move || {
                for _ in 0..300 {
                    let reserved = blocks.reserve_extent(space, 8192).expect("room");
                    write(&reserved, 4096, number).expect("written");
                    assert_eq!(read(&reserved, 4096), [number; UNIT]);
                    blocks.give_extent_back(reserved).expect("it is reserved");
                }
            });
        }
    });
    assert!(blocks.extents(space).expect("a space").is_empty());
    assert_eq!(store.status().reserved_bytes, 0);
}

#[test]
fn a_closed_store_takes_no_request() {
    let store = Store::in_memory().expect("made");
    let (blocks, space) = with_table(&store);
    let reserved = blocks.reserve_extent(space, 8192).expect("room");
    store.close().expect("closed");
    let closed = Error::from(ClosedError::Closed);
    assert_eq!(write(&reserved, 0, 1).expect_err("closed"), closed);
    assert_eq!(reserved.flush().expect_err("closed"), closed);
    let unread = reserved.read(0, Buffer::zeroed(UNIT), Class::ForegroundRead);
    assert_eq!(unread.expect_err("closed"), closed);
    assert_eq!(blocks.reserve_extent(space, 8192).expect_err("closed"), closed);
}
