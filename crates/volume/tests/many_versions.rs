//! Blocks that are overwritten again and again while a history keeps every version.

use std::time::Duration;

use upsweep::layers::device::{HostileDevices, MemoryDevices, ThreadedDevices};
use upsweep::{CreateOptions, OpenOptions, Store, StoreBuilder};
use upsweep_volume::{Acknowledge, BLOCK_BYTES, History, Past, Volume, Volumes};

/// More than fit in one record of the log, if each is deleted.
const VERSIONS: u64 = 100_000;
/// The block that is overwritten; others of its chunk are not.
const HOT: u64 = 8;

fn builder() -> StoreBuilder {
    Store::builder().options(OpenOptions::default().memory_bytes(64 << 20).without_threads())
}

fn history() -> History {
    History { window: Some(Duration::from_secs(24 * 3600)), bytes: None }
}

fn write(disk: &Volume, block: u64, number: u64) {
    let data = number.to_le_bytes().repeat(BLOCK_BYTES as usize / 8);
    disk.write(block * BLOCK_BYTES, &data, Acknowledge::Written).expect("written");
}

fn number(disk: &Volume, block: u64) -> u64 {
    let mut found = [0; 8];
    disk.read(block * BLOCK_BYTES, &mut found).expect("readable");
    u64::from_le_bytes(found)
}

/// Writes all versions; returns a moment after half of them.
fn overwrite(volumes: &Volumes, disk: &Volume) -> u64 {
    write(disk, HOT + 1, 7);
    (0..VERSIONS / 2).for_each(|nth| write(disk, HOT, nth));
    let half = volumes.moment();
    (VERSIONS / 2..VERSIONS).for_each(|nth| write(disk, HOT, nth));
    volumes.flush().expect("flushed");
    half
}

#[test]
fn a_read_costs_the_same_however_many_versions_there_are() {
    let bank = ThreadedDevices::in_virtual_time(HostileDevices::new(
        MemoryDevices::with_sizes(&[0, 0], 1),
        1,
    ));
    let options = CreateOptions::default().log_bytes(16 << 20);
    let store = builder().create_on(bank.clone(), 1, &options).expect("made");
    let volumes = Volumes::open(&store).expect("opens");
    let disk = volumes.create("disk", 1 << 30).expect("made");
    volumes.set_history("disk", history()).expect("set");
    let half = overwrite(&volumes, &disk);
    volumes.view("disk", Past::At(half), "was").expect("in the history");
    store.sweep().expect("swept");
    drop((disk, volumes));
    store.close().expect("closed");

    let store = builder().open_on(bank).expect("opens");
    let volumes = Volumes::open(&store).expect("opens");
    let reads = |volume: &str, block: u64, content: u64| {
        let volume = volumes.volume(volume).expect("there");
        let before = store.metrics();
        assert_eq!(number(&volume, block), content);
        let now = store.metrics();
        assert_eq!(now.scan_read_bytes_total, before.scan_read_bytes_total);
        now.query_reads_total - before.query_reads_total
    };
    assert!(reads("disk", HOT, VERSIONS - 1) <= 4);
    assert!(reads("was", HOT, VERSIONS / 2 - 1) <= 4);
    assert!(reads("disk", HOT + 1, 7) + reads("was", HOT + 1, 7) <= 4);
}

#[test]
fn whatever_number_of_versions_is_trimmed() {
    let store = Store::in_memory().expect("made");
    let volumes = Volumes::open(&store).expect("opens");
    let disk = volumes.create("disk", 1 << 30).expect("made");
    volumes.set_history("disk", history()).expect("set");
    overwrite(&volumes, &disk);
    volumes.set_history("disk", History::OFF).expect("set");
    while volumes.work().expect("no fault") {}
    let entries = store.existing_table("volumes/map").expect("there").iter().count();
    assert_eq!(entries, 2);
    assert_eq!((number(&disk, HOT), number(&disk, HOT + 1)), (VERSIONS - 1, 7));
    let usage = volumes.usage().expect("known");
    assert_eq!(usage.payload_bytes, 2 * BLOCK_BYTES);
    assert!(usage.reclaimable_bytes < 16 << 20, "{usage:?}");
    drop((disk, volumes));
    Volumes::verify(&store).expect("no damage");
}
