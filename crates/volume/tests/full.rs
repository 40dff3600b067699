//! Volumes on devices that get full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use upsweep::layers::device::{
    DeviceId, FailureKind, HostileDevices, LatencyModel, MemoryDevices, ThreadedDevices,
};
use upsweep::layers::runtime::ReservedExtent;
use upsweep::{CreateOptions, Durability, OpenOptions, RetryError, Store};
use upsweep_volume::{Acknowledge, BLOCK_BYTES, Error, History, Traffic, Volume, Volumes};

const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 256 * MIB;

fn opened(capacity: u64) -> (Store, Volumes) {
    opened_on(MemoryDevices::with_sizes(&[0, 0], 1), capacity)
}

fn opened_on(memory: MemoryDevices, capacity: u64) -> (Store, Volumes) {
    let bank = ThreadedDevices::in_virtual_time(HostileDevices::new(memory, 1));
    bank.with(|devices| devices.set_capacity(DeviceId(0), capacity));
    let options = OpenOptions::default().memory_bytes(64 << 20).without_threads();
    let builder = Store::builder().options(options);
    let sizes = CreateOptions::default().log_bytes(8 << 20);
    let store = builder.create_on(bank, 1, &sizes).expect("made");
    let volumes = Volumes::open_with(&store, 256).expect("opens");
    (store, volumes)
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Store(upsweep::Error::Retry(RetryError::Full { .. })))
}

fn write(volume: &Volume, block: u64, content: u64) -> Result<(), Error> {
    let data = content.to_le_bytes().repeat(BLOCK_BYTES as usize / 8);
    volume.write(block * BLOCK_BYTES, &data, Acknowledge::Written)
}

fn read(volume: &Volume, block: u64) -> u64 {
    let mut found = [0; 8];
    volume.read(block * BLOCK_BYTES, &mut found).expect("readable");
    u64::from_le_bytes(found)
}

/// A block of `blocks`, one after another in an order that is not that of their places.
fn scattered(nth: u64, blocks: u64) -> u64 {
    nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 & (blocks - 1)
}

#[test]
fn a_volume_that_fits_is_overwritten_without_end() {
    let (_store, volumes) = opened(CAPACITY);
    let blocks = CAPACITY / 2 / BLOCK_BYTES;
    let disk = volumes.create("disk", blocks * BLOCK_BYTES).expect("made");
    let mut last = vec![0; blocks as usize];
    // Nobody works in the background: writes make room where they must.
    for nth in 1..=4 * blocks {
        let block = scattered(nth, blocks);
        write(&disk, block, nth).unwrap_or_else(|error| panic!("write {nth}: {error}"));
        last[block as usize] = nth;
    }
    (0..blocks).for_each(|block| assert_eq!(read(&disk, block), last[block as usize]));
}

/// Overwrites a volume that takes so many sixteenths of the devices, of which the last `part`th is
/// half free, in pieces.
fn overwrite_beside_pieces(sixteenths: u64, part: u64) {
    const PIECE: u32 = 64 << 10;
    let capacity = 64 * MIB;
    let (store, volumes) = opened(capacity);
    let other = store.table("other").expect("made");
    let reserve = || store.blocks().reserve_extent(other.space(), PIECE).ok();
    let pieces: Vec<ReservedExtent> = std::iter::from_fn(reserve).collect();
    let top = pieces.iter().map(|piece| piece.extent().offset).max().expect("some");
    let is_kept = |piece: &ReservedExtent| {
        let offset = piece.extent().offset;
        offset + capacity / part > top && (offset / u64::from(PIECE)).is_multiple_of(2)
    };
    let (_kept, given_back): (Vec<_>, Vec<_>) = pieces.into_iter().partition(is_kept);
    for piece in given_back {
        store.blocks().give_extent_back(piece).expect("given back");
    }
    let blocks = capacity * sixteenths / 16 / BLOCK_BYTES;
    let disk = volumes.create("disk", blocks * BLOCK_BYTES).expect("made");
    let mut last = vec![0; blocks as usize];
    for nth in 1..=4 * blocks {
        let block = scattered(nth, 1 << 32) % blocks;
        write(&disk, block, nth).unwrap_or_else(|error| {
            panic!("write {nth} to {sixteenths} sixteenths, a {part}th in pieces: {error}")
        });
        last[block as usize] = nth;
    }
    (0..blocks).for_each(|block| assert_eq!(read(&disk, block), last[block as usize]));
    let Traffic { written_bytes, copied_bytes, .. } = volumes.traffic();
    assert_eq!(written_bytes, 4 * blocks * BLOCK_BYTES);
    assert!(copied_bytes > 0 && copied_bytes < 4 * written_bytes, "{copied_bytes} were copied");
}

#[test]
fn free_space_in_pieces_is_no_room_for_segments() {
    for (sixteenths, part) in [(9, 5), (8, 12), (12, 8), (12, 12)] {
        overwrite_beside_pieces(sixteenths, part);
    }
}

#[test]
fn what_is_overwritten_is_found_although_nobody_flushes() {
    let (store, volumes) = opened(CAPACITY);
    let blocks = 16 * MIB / BLOCK_BYTES;
    let disk = volumes.create("disk", blocks * BLOCK_BYTES).expect("made");
    let mut most = 0;
    for nth in 1..=12 * blocks {
        write(&disk, scattered(nth, blocks), nth).expect("there is room");
        if nth % 64 == 0 {
            volumes.work().expect("no fault");
            store.blocks().work();
            most = most.max(store.status().reserved_bytes);
        }
    }
    // A sweep is asked for when 51 MiB have been written.
    assert!(most < 128 * MIB, "{most} bytes for a volume of 16 MiB");
}

#[test]
fn writers_help_before_most_of_a_file_is_dead() {
    let (store, volumes) = opened(8 * CAPACITY);
    let blocks = CAPACITY / 2 / BLOCK_BYTES;
    let disk = volumes.create("disk", blocks * BLOCK_BYTES).expect("made");
    let mut most = 0;
    for nth in 1..=8 * blocks {
        write(&disk, scattered(scattered(nth, 1 << 40), blocks), nth).expect("there is room");
        // 16 segments are filled for each step, which cleans four.
        if nth % (16 * 256) == 0 {
            volumes.work().expect("no fault");
            store.blocks().work();
            most = most.max(store.status().reserved_bytes);
        }
    }
    // Twice what is needed, what is written before a sweep is asked for, and during one.
    assert!(most < 2 * (128 + 51 + 16) * MIB, "{most} bytes for a volume of 128 MiB");
}

#[test]
fn a_history_that_is_limited_in_time_only_can_fill_the_devices() {
    let (_store, volumes) = opened(CAPACITY);
    let blocks = 16 * MIB / BLOCK_BYTES;
    let disk = volumes.create("disk", blocks * BLOCK_BYTES).expect("made");
    let window = Some(Duration::from_secs(3600));
    volumes.set_history("disk", History { window, bytes: None }).expect("set");
    let next = |nth: u64| write(&disk, scattered(nth, blocks), nth);
    let all = CAPACITY / BLOCK_BYTES;
    let written = (1..=all).find(|nth| next(*nth).is_err_and(|error| is_full(&error)));
    assert!(written.is_some_and(|nth| nth > all / 2), "refused: {written:?} of {all}");
    volumes.set_history("disk", History::OFF).expect("set");
    (1..=all).for_each(|nth| next(nth).expect("there is room again"));
}

#[test]
fn whoever_rests_is_woken_before_writers_have_to_help() {
    let (store, volumes) =
        opened_on(MemoryDevices::with_fixed_sizes(&[CAPACITY, 64 * MIB], 1), CAPACITY);
    let blocks = 3 * CAPACITY / 4 / BLOCK_BYTES;
    let disk = volumes.create("disk", blocks * BLOCK_BYTES).expect("made");
    let is_due = Arc::new(AtomicBool::new(false));
    let due = Arc::clone(&is_due);
    volumes.wake_when_due(move || due.store(true, Ordering::Release));
    for nth in 0..32 * MIB / BLOCK_BYTES {
        write(&disk, nth, nth).expect("there is room");
    }
    assert!(!is_due.load(Ordering::Acquire), "there is much room, and nothing is superseded");
    let mut copied_by_writers = 0;
    for nth in 1..=2 * blocks {
        let before = volumes.traffic().copied_bytes;
        write(&disk, scattered(nth, 1 << 32) % blocks, nth).expect("there is room");
        copied_by_writers += volumes.traffic().copied_bytes - before;
        if is_due.swap(false, Ordering::AcqRel) {
            while volumes.work().expect("no fault") {}
            store.blocks().work();
        }
    }
    assert!(volumes.traffic().copied_bytes > 0, "segments were cleaned");
    assert_eq!(copied_by_writers, 0, "and not by writers");
}

#[test]
fn what_was_swept_before_it_was_stable_is_found_when_room_is_needed() {
    let (store, volumes) = opened(64 * MIB);
    let disk = volumes.create("disk", 1 << 30).expect("made");
    let write_all = |blocks: u64| (0..blocks).for_each(|block| write(&disk, block, 1).expect("ok"));
    write_all(32 * MIB / BLOCK_BYTES);
    volumes.flush().expect("flushed");
    store.sweep().expect("swept");
    write_all(3 * MIB / BLOCK_BYTES);
    store.sweep().expect("swept");
    let first = 64 * MIB / BLOCK_BYTES;
    let refused = (first..).find_map(|block| write(&disk, block, 2).err());
    assert!(is_full(&refused.expect("it gets full")));
    let usage = volumes.usage().expect("known");
    assert!(usage.reclaimable_bytes < 3 * MIB / 2, "{usage:?}");
}

#[test]
fn a_full_device_refuses_writes_until_something_is_discarded() {
    let (_store, volumes) = opened(CAPACITY);
    let disk = volumes.create("disk", 1 << 30).expect("made");
    let refused = (0..).map(|block| (block, write(&disk, block, block + 1)));
    let (full, error) = refused
        .filter_map(|(block, result)| Some((block, result.err()?)))
        .next()
        .expect("it gets full");
    assert!(is_full(&error), "{error}");
    assert!(full > CAPACITY * 3 / 4 / BLOCK_BYTES, "after {full} blocks");
    (0..full).for_each(|block| assert_eq!(read(&disk, block), block + 1));
    // Every second block, so that room has to be made by cleaning.
    for block in (0..full).step_by(2) {
        disk.zero(block * BLOCK_BYTES, BLOCK_BYTES, Acknowledge::Written).expect("zeroed");
    }
    for block in full..full + full / 4 {
        write(&disk, block, block + 1).unwrap_or_else(|error| panic!("block {block}: {error}"));
    }
    for block in 0..full {
        assert_eq!(read(&disk, block), if block % 2 == 0 { 0 } else { block + 1 });
    }
}

/// One of those that are counted has ended, in whichever way.
struct Ended<'a>(&'a AtomicU64);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[test]
fn writers_together_overwrite_a_volume_on_a_device_that_is_nearly_full() {
    const WRITERS: u64 = 32;
    let memory = MemoryDevices::with_fixed_sizes(&[CAPACITY, 64 * MIB], 1);
    let bank = ThreadedDevices::new(HostileDevices::new(memory, 1));
    let builder = Store::builder().options(OpenOptions::default().memory_bytes(64 << 20));
    let sizes = CreateOptions::default().log_bytes(8 << 20);
    let store = builder.create_on(bank, 1, &sizes).expect("made");
    let volumes = Volumes::open_with(&store, 1024).expect("opens");
    let blocks = CAPACITY * 27 / 32 / BLOCK_BYTES;
    let disk = volumes.create("disk", blocks * BLOCK_BYTES).expect("made");
    (0..blocks).for_each(|block| write(&disk, block, block).expect("it fits"));
    // Each has blocks of its own.
    let own = blocks / WRITERS;
    let writing = AtomicU64::new(WRITERS);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while writing.load(Ordering::Acquire) > 0 {
                volumes.work().expect("there is nothing in the way");
            }
        });
        for writer in 0..WRITERS {
            let (disk, writing) = (&disk, &writing);
            scope.spawn(move || {
                let _ended = Ended(writing);
                for nth in 1..=2 * own {
                    let block = writer * own + scattered(nth, 1 << 32) % own;
                    write(disk, block, nth).unwrap_or_else(|error| panic!("write {nth}: {error}"));
                }
            });
        }
    });
}

/// Overwrites a volume that takes most of a device of a fixed size, and cuts the power, again and
/// again: each block is what it was at the last flush, or something that was written since.
fn cut_beside_cleaning(seed: u64) {
    const CAPACITY: u64 = 32 * MIB;
    let options = || OpenOptions::default().memory_bytes(64 << 20).without_threads();
    let mut memory = MemoryDevices::with_fixed_sizes(&[CAPACITY, 64 * MIB], seed);
    memory.set_latency(LatencyModel { base_us: 50, bytes_per_us: 500, jitter_us: 5000 });
    let bank = ThreadedDevices::in_virtual_time(HostileDevices::new(memory, seed));
    let sizes = CreateOptions::default().log_bytes(8 << 20);
    let builder = || Store::builder().options(options());
    let mut store = builder().create_on(bank.clone(), 1, &sizes).expect("made");
    let mut volumes = Volumes::open_with(&store, 64).expect("opens");
    let blocks = CAPACITY * 3 / 4 / BLOCK_BYTES;
    volumes.create("disk", blocks * BLOCK_BYTES).expect("made");
    let mut may = vec![vec![0]; blocks as usize];
    let mut nth = seed << 32;
    for cut in 0..6 {
        let disk = volumes.volume("disk").expect("there");
        let stop = 2000 + scattered(nth, 1 << 12);
        for step in 0.. {
            if step == stop {
                bank.with(|devices| devices.fail_after(nth % 40, FailureKind::All));
            }
            nth += 1;
            let (first, length) = (scattered(nth, 1 << 32) % blocks, 1 + scattered(nth, 1 << 5));
            let range = first..(first + length).min(blocks);
            let data = nth.to_le_bytes().repeat(((range.end - first) * BLOCK_BYTES / 8) as usize);
            range.for_each(|block| may[block as usize].push(nth));
            let written = disk.write(first * BLOCK_BYTES, &data, Acknowledge::Written);
            let done = written.and_then(|()| match nth % 64 {
                0 => volumes.work().map(drop),
                32 => {
                    volumes.flush()?;
                    may.iter_mut().for_each(|may| drop(may.drain(..may.len() - 1)));
                    Ok(())
                }
                _ => Ok(()),
            });
            if let Err(error) = done {
                assert!(step >= stop, "{error}");
                break;
            }
        }
        drop((disk, volumes, store));
        bank.with(|devices| {
            devices.power_cut();
            devices.stop_failing();
        });
        store = builder().open_on(bank.clone()).expect("opens");
        volumes = Volumes::open(&store).expect("recovers");
        let disk = volumes.volume("disk").expect("there");
        for (block, may) in (0..).zip(&mut may) {
            let mut found = [0; 8];
            let read = disk.read(block * BLOCK_BYTES, &mut found);
            read.unwrap_or_else(|error| panic!("seed {seed}, cut {cut}: {error}"));
            let found = u64::from_le_bytes(found);
            assert!(may.contains(&found), "seed {seed}, cut {cut}: block {block} is {found}");
            *may = vec![found];
        }
    }
}

#[test]
fn a_power_cut_beside_cleaning_loses_nothing_on_a_device_that_is_nearly_full() {
    let is_long = std::env::var("UPSWEEP_VOLUME_SEEDS").is_ok();
    (0..if is_long { 6 } else { 2 }).for_each(cut_beside_cleaning);
}

#[test]
fn what_cleaning_cannot_read_does_not_keep_it_from_the_rest() {
    let (store, volumes, bank) = {
        let bank = ThreadedDevices::in_virtual_time(HostileDevices::new(
            MemoryDevices::with_sizes(&[0, 0], 1),
            1,
        ));
        let options = OpenOptions::default().memory_bytes(64 << 20).without_threads();
        let builder = Store::builder().options(options);
        let sizes = CreateOptions::default().log_bytes(8 << 20);
        let store = builder.create_on(bank.clone(), 1, &sizes).expect("made");
        let volumes = Volumes::open_with(&store, 256).expect("opens");
        (store, volumes, bank)
    };
    let blocks = 16 * MIB / BLOCK_BYTES;
    let disk = volumes.create("disk", blocks * BLOCK_BYTES).expect("made");
    (0..blocks).for_each(|block| write(&disk, block, block).expect("there is room"));
    volumes.flush().expect("flushed");
    // One of two neighbours is never written again.
    bank.with(|devices| devices.make_unreadable(DeviceId(0), 10 * MIB, 2 * BLOCK_BYTES));
    let (mut errors, mut most) = (0, 0);
    for nth in 1..=12 * blocks {
        write(&disk, scattered(nth, blocks) & !1, nth).expect("there is room");
        if nth % 1024 == 0 {
            volumes.flush().expect("flushed");
            store.sweep().expect("swept");
            let mut goes_on = true;
            while goes_on {
                let worked = volumes.work();
                errors += u32::from(worked.is_err());
                goes_on = worked.unwrap_or(false);
            }
            most = most.max(store.status().reserved_bytes);
        }
    }
    assert!((1..10).contains(&errors), "{errors} errors for one segment");
    assert!(most < 48 * MIB, "{most} bytes for a volume of 16 MiB");
}

#[test]
fn a_flush_needs_no_room() {
    let (store, volumes) = opened(32 * MIB);
    let disk = volumes.create("disk", MIB).expect("made");
    let table = store.table("other").expect("a table").with_durability(Durability::Relaxed);
    write(&disk, 0, 1).expect("there is room");
    let refused = (0_u64..).find_map(|key| table.put(&key.to_be_bytes(), &[7; 2000]).err());
    let refused = refused.expect("it gets full");
    assert!(matches!(refused, upsweep::Error::Retry(RetryError::Full { .. })), "{refused}");
    volumes.flush().expect("everything is in the log");
    assert_eq!(read(&disk, 0), 1);
}
