//! Quotas of volumes.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use upsweep::Store;
use upsweep::layers::device::{HostileDevices, MemoryDevices, ThreadedDevices};
use upsweep::{CreateOptions, OpenOptions};
use upsweep_volume::{Acknowledge, BLOCK_BYTES, Error, History, Past, Volume, Volumes};

const MIB: u64 = 1 << 20;
const QUOTA: u64 = 4 * MIB;
const QUOTA_BLOCKS: u64 = QUOTA / BLOCK_BYTES;

fn opened() -> (Store, Volumes) {
    let memory = MemoryDevices::with_sizes(&[0, 0], 1);
    let bank = ThreadedDevices::in_virtual_time(HostileDevices::new(memory, 1));
    let options = OpenOptions::default().memory_bytes(64 << 20).without_threads();
    let sizes = CreateOptions::default().log_bytes(8 << 20);
    let store = Store::builder().options(options).create_on(bank, 1, &sizes).expect("made");
    let volumes = Volumes::open_with(&store, 256).expect("opens");
    (store, volumes)
}

fn limited(volumes: &Volumes, name: &str, quota_bytes: u64) -> Volume {
    let disk = volumes.create(name, 1 << 30).expect("made");
    set_quota(volumes, name, quota_bytes);
    disk
}

fn set_quota(volumes: &Volumes, name: &str, quota_bytes: u64) {
    let change = volumes
        .change_settings(name, |settings| settings.quota_bytes = NonZeroU64::new(quota_bytes));
    assert_eq!(change.expect("changed").quota_bytes, NonZeroU64::new(quota_bytes));
}

fn write(volume: &Volume, block: u64, blocks: u64) -> Result<(), Error> {
    let data = vec![block as u8 | 1; (blocks * BLOCK_BYTES) as usize];
    volume.write(block * BLOCK_BYTES, &data, Acknowledge::Written)
}

fn discard(volume: &Volume, block: u64, blocks: u64) {
    let (offset, bytes) = (block * BLOCK_BYTES, blocks * BLOCK_BYTES);
    volume.zero(offset, bytes, Acknowledge::Written).expect("zeroed");
}

/// Blocks that a volume uses, once everything is swept and trimmed.
fn used_in_the_end(store: &Store, volumes: &Volumes, name: &str) -> u64 {
    volumes.flush().expect("flushed");
    store.sweep().expect("swept");
    while volumes.work().expect("no fault") {}
    used(volumes, name)
}

fn used(volumes: &Volumes, name: &str) -> u64 {
    volumes.used_bytes(name).expect("there") / BLOCK_BYTES
}

fn reached(name: &str, quota_bytes: u64) -> Result<(), Error> {
    Err(Error::QuotaReached { volume: name.to_owned(), quota_bytes })
}

#[test]
fn a_volume_that_has_reached_its_quota_is_refused_until_something_is_discarded() {
    let (store, volumes) = opened();
    let disk = limited(&volumes, "disk", QUOTA);
    let other = volumes.create("other", 1 << 30).expect("made");
    write(&disk, 0, QUOTA_BLOCKS).expect("exactly as much");
    assert_eq!(used(&volumes, "disk"), QUOTA_BLOCKS);
    assert_eq!(write(&disk, QUOTA_BLOCKS, 1), reached("disk", QUOTA));
    assert_eq!(write(&disk, 0, 1), reached("disk", QUOTA), "it needs room before the old one goes");
    assert_eq!(used(&volumes, "disk"), QUOTA_BLOCKS);
    write(&other, 0, QUOTA_BLOCKS + 1).expect("it has no quota");
    let message = write(&disk, 0, 1).expect_err("refused").to_string();
    assert!(message.contains("quota of 4194304 bytes"), "{message}");
    discard(&disk, 8, 100);
    assert_eq!(used_in_the_end(&store, &volumes, "disk"), QUOTA_BLOCKS - 100);
    write(&disk, 5000, 50).expect("there is room");
    // A larger quota counts at once, a smaller one takes nothing away.
    set_quota(&volumes, "disk", 2 * QUOTA);
    write(&disk, 6000, QUOTA_BLOCKS).expect("there is room");
    set_quota(&volumes, "disk", QUOTA);
    assert_eq!(write(&disk, 0, 1), reached("disk", QUOTA));
    discard(&disk, 0, 10_000);
    assert_eq!(used_in_the_end(&store, &volumes, "disk"), 0);
    write(&disk, 0, QUOTA_BLOCKS).expect("all of it is free");
    set_quota(&volumes, "disk", 0);
    write(&disk, QUOTA_BLOCKS, QUOTA_BLOCKS).expect("there is none any more");
}

#[test]
fn what_is_discarded_is_found_in_the_background_although_the_quota_is_reached() {
    let (store, volumes) = opened();
    let disk = limited(&volumes, "disk", QUOTA);
    write(&disk, 0, QUOTA_BLOCKS).expect("exactly as much");
    assert_eq!(write(&disk, 0, 1), reached("disk", QUOTA));
    discard(&disk, 0, QUOTA_BLOCKS / 2);
    for _ in 0..1000 {
        volumes.work().expect("no fault");
        store.blocks().work();
    }
    write(&disk, 0, QUOTA_BLOCKS / 4).expect("a sweep has shown that there is room");
}

#[test]
fn a_volume_within_its_quota_is_overwritten_without_end() {
    let (_store, volumes) = opened();
    let blocks = QUOTA_BLOCKS * 7 / 8;
    let disk = limited(&volumes, "disk", QUOTA);
    for nth in 0..20 * blocks {
        let block = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks;
        write(&disk, block, 1).unwrap_or_else(|error| panic!("write {nth}: {error}"));
        assert!(used(&volumes, "disk") <= QUOTA_BLOCKS);
    }
}

#[test]
fn the_past_of_a_volume_counts_and_so_does_what_clones_need_of_it() {
    let (store, volumes) = opened();
    let disk = limited(&volumes, "disk", QUOTA);
    write(&disk, 0, QUOTA_BLOCKS / 2).expect("it fits");
    volumes.snapshot(&["disk"], "monday").expect("taken");
    let clone = volumes.clone_volume("disk", Some(Past::Snapshot("monday")), "clone");
    let clone = clone.expect("made");
    write(&disk, 0, QUOTA_BLOCKS / 2).expect("the old one stays");
    assert_eq!(write(&disk, 0, 1), reached("disk", QUOTA));
    assert_eq!(used_in_the_end(&store, &volumes, "disk"), QUOTA_BLOCKS);
    assert_eq!((used(&volumes, "clone"), clone.settings().expect("there").quota_bytes), (0, None));
    write(&clone, 0, 10).expect("it has no quota");
    assert_eq!(used(&volumes, "clone"), 10);
    volumes.delete_snapshot("disk", "monday").expect("deleted");
    assert_eq!(used_in_the_end(&store, &volumes, "disk"), QUOTA_BLOCKS, "the clone needs it");
    volumes.delete("clone").expect("deleted");
    assert_eq!(used_in_the_end(&store, &volumes, "disk"), QUOTA_BLOCKS / 2);
    // A rollback begins a new branch of the same volume.
    volumes.snapshot(&["disk"], "tuesday").expect("taken");
    volumes.roll_back("disk", Past::Snapshot("tuesday")).expect("rolled back");
    write(&disk, 0, QUOTA_BLOCKS / 2).expect("it fits");
    assert_eq!(write(&disk, 0, 1), reached("disk", QUOTA));
    volumes.delete_snapshot("disk", "tuesday").expect("deleted");
    let in_the_end = used_in_the_end(&store, &volumes, "disk");
    assert_eq!(in_the_end, QUOTA_BLOCKS, "the new branch continues all of the old one");
    let kept = limited(&volumes, "kept", QUOTA);
    volumes.set_history("kept", History { bytes: Some(1 << 40), ..History::OFF }).expect("set");
    (0..2).for_each(|_| write(&kept, 0, QUOTA_BLOCKS / 2).expect("it fits"));
    assert_eq!(write(&kept, 0, 1), reached("kept", QUOTA), "every version is kept");
    volumes.set_history("kept", History::OFF).expect("set");
    assert_eq!(used_in_the_end(&store, &volumes, "kept"), QUOTA_BLOCKS / 2);
}

#[test]
fn what_is_used_is_known_after_an_open_and_a_new_volume_uses_nothing() {
    let (store, volumes) = opened();
    let disk = limited(&volumes, "disk", QUOTA);
    let clone = volumes.clone_volume("disk", None, "clone").expect("made");
    write(&disk, 3, 20).expect("it fits");
    write(&clone, 3, 7).expect("it fits");
    drop((disk, clone));
    volumes.delete("clone").expect("deleted");
    drop(volumes);
    let volumes = Volumes::open_with(&store, 256).expect("opens");
    volumes.create("new", 1 << 30).expect("made");
    assert_eq!((used(&volumes, "disk"), used(&volumes, "new")), (20, 0));
    // What the clone had dies now.
    assert_eq!(used_in_the_end(&store, &volumes, "new"), 0);
    assert_eq!(volumes.used_bytes("none"), Err(Error::NoVolume("none".to_owned())));
    drop(volumes);
    let report = Volumes::verify(&store).expect("readable").expect("there are volumes");
    assert_eq!(report.faults, Vec::<String>::new());
}

#[test]
fn writers_together_keep_to_a_quota() {
    const WRITERS: u64 = 8;
    let store = Store::in_memory().expect("made");
    let volumes = Volumes::open_with(&store, 256).expect("opens");
    let disk = limited(&volumes, "disk", QUOTA);
    let written: u64 = std::thread::scope(|scope| {
        let all = (0..WRITERS).map(|writer| {
            let disk = &disk;
            scope.spawn(move || {
                let own = (0..QUOTA_BLOCKS).map(|nth| write(disk, nth * WRITERS + writer, 1));
                own.take_while(Result::is_ok).count() as u64
            })
        });
        let all: Vec<_> = all.collect();
        all.into_iter().map(|writer| writer.join().expect("no panic")).sum()
    });
    // The last 64th is refused once one of them had to wait for a sweep.
    assert!((QUOTA_BLOCKS - QUOTA_BLOCKS / 64..=QUOTA_BLOCKS).contains(&written), "{written}");
    assert_eq!(used(&volumes, "disk"), written);
}

#[test]
fn a_long_discard_frees_what_was_swept_long_ago() {
    let (store, volumes) = opened();
    let blocks = 8 * QUOTA_BLOCKS;
    let disk = limited(&volumes, "disk", 8 * QUOTA);
    // Many entries, in many blocks of the map.
    (0..blocks).for_each(|block| write(&disk, block, 1).expect("it fits"));
    assert_eq!(used_in_the_end(&store, &volumes, "disk"), blocks);
    discard(&disk, 0, blocks / 2);
    assert_eq!(used_in_the_end(&store, &volumes, "disk"), blocks / 2);
}

/// What is left of a volume without a past is what it shows.
#[test]
fn in_the_end_a_volume_uses_what_it_shows() {
    let (store, volumes) = opened();
    let blocks = 4096_u64;
    let disk = volumes.create("disk", blocks * BLOCK_BYTES).expect("made");
    let mut is_written = vec![false; blocks as usize];
    let mut random = 7_u64;
    let mut below = |end: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % end
    };
    for round in 0..40 {
        let (first, count) = (below(blocks), 1 + below([4, 64, 1024][round % 3]));
        let count = count.min(blocks - first);
        let is_write = below(2) == 0;
        match is_write {
            true => write(&disk, first, count).expect("written"),
            false => discard(&disk, first, count),
        }
        is_written[first as usize..][..count as usize].fill(is_write);
        if round % 4 == 0 {
            let shown = is_written.iter().filter(|written| **written).count() as u64;
            assert_eq!(used_in_the_end(&store, &volumes, "disk"), shown, "in round {round}");
        }
    }
}

#[test]
fn a_count_of_a_volume_that_is_gone_may_say_anything() {
    let (store, volumes) = opened();
    write(&limited(&volumes, "disk", QUOTA), 0, 1).expect("there is room");
    let catalog = store.existing_table("volumes/catalog").expect("there");
    let records = || -> BTreeMap<Vec<u8>, Vec<u8>> {
        let records = catalog.iter().map(|record| record.expect("readable"));
        records.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    };
    let before = records();
    volumes.delete("disk").expect("deleted");
    let after = records();
    let is_count = |(key, value): &(&Vec<u8>, &Vec<u8>)| {
        !after.contains_key(*key) && **value == 1_i64.to_le_bytes()
    };
    let (count, _) = before.iter().find(is_count).expect("it was there");
    catalog.put(count, &(-1_i64).to_le_bytes()).expect("put");
    drop(volumes);
    let volumes = Volumes::open(&store).expect("opens");
    volumes.create("disk", MIB).expect("made");
    assert_eq!(used(&volumes, "disk"), 0);
}

#[test]
fn what_was_swept_before_it_was_stable_is_shown_later() {
    let (store, volumes) = opened();
    let disk = limited(&volumes, "disk", 3 * QUOTA);
    for _ in 0..3 {
        write(&disk, 0, QUOTA_BLOCKS).expect("there is room");
        // Nothing is superseded stably, and no later sweep writes these blocks of the map.
        store.sweep().expect("swept");
    }
    assert_eq!(used(&volumes, "disk"), 3 * QUOTA_BLOCKS);
    write(&disk, 10, 1).expect("it overwrites itself");
    assert_eq!(used_in_the_end(&store, &volumes, "disk"), QUOTA_BLOCKS);
}

#[test]
fn what_was_swept_before_it_was_stable_is_given_back_once_it_is_much() {
    let (store, volumes) = opened();
    let disk = volumes.create("disk", 1 << 30).expect("made");
    for _ in 0..3 {
        write(&disk, 0, 4 * QUOTA_BLOCKS).expect("there is room");
        store.sweep().expect("swept");
    }
    volumes.flush().expect("flushed");
    while volumes.work().expect("no fault") {}
    let used = used(&volumes, "disk");
    assert!(used <= 5 * QUOTA_BLOCKS, "{used} of {}", 4 * QUOTA_BLOCKS);
    let usage = volumes.usage().expect("known");
    assert!(usage.reclaimable_bytes <= 2 * QUOTA, "{usage:?}");
}
