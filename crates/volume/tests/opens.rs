//! How much an open reads.

use upsweep::layers::device::{FailureKind, HostileDevices, MemoryDevices, ThreadedDevices};
use upsweep::{CreateOptions, OpenOptions, Store, StoreBuilder};
use upsweep_volume::{Acknowledge, BLOCK_BYTES, Volume, Volumes};

const BLOCKS: u64 = 1 << 20;
const WRITTEN: u64 = 30_000;

type Bank = ThreadedDevices<HostileDevices>;

fn builder() -> StoreBuilder {
    Store::builder().options(OpenOptions::default().memory_bytes(64 << 20).without_threads())
}

/// The places of writes, far from each other, and all different.
fn place(nth: u64) -> u64 {
    nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) & (BLOCKS - 1)
}

fn write(disk: &Volume, nth: u64) {
    let data = nth.to_le_bytes().repeat(BLOCK_BYTES as usize / 8);
    disk.write(place(nth) * BLOCK_BYTES, &data, Acknowledge::Written).expect("written");
}

fn has(disk: &Volume, nth: u64) -> bool {
    let mut found = [0; 8];
    disk.read(place(nth) * BLOCK_BYTES, &mut found).expect("readable");
    u64::from_le_bytes(found) == nth
}

/// Opens store and volumes; returns how often that read the devices for the map.
fn open(bank: &Bank) -> (Store, Volumes, u64) {
    let store = builder().open_on(bank.clone()).expect("opens");
    let before = store.metrics().query_reads_total;
    let volumes = Volumes::open_with(&store, 256).expect("opens");
    let reads = store.metrics().query_reads_total - before;
    (store, volumes, reads)
}

#[test]
fn an_open_reads_what_was_written_after_the_last_flush() {
    let bank = ThreadedDevices::in_virtual_time(HostileDevices::new(
        MemoryDevices::with_sizes(&[0, 0], 1),
        1,
    ));
    let options = CreateOptions::default().log_bytes(16 << 20);
    let store = builder().create_on(bank.clone(), 1, &options).expect("made");
    let volumes = Volumes::open_with(&store, 256).expect("opens");
    let disk = volumes.create("disk", BLOCKS * BLOCK_BYTES).expect("made");
    disk.zero(0, BLOCKS / 2 * BLOCK_BYTES, Acknowledge::Durable).expect("zeroed");
    (0..WRITTEN).for_each(|nth| write(&disk, nth));
    volumes.flush().expect("flushed");
    store.sweep().expect("swept");
    let map_blocks = store.status().blocks;
    drop((disk, volumes, store));

    let (store, volumes, reads) = open(&bank);
    assert!(map_blocks > 50, "{map_blocks} blocks");
    // Most of them of the other tables.
    assert!(reads <= 10, "{reads} reads of {map_blocks} blocks, and all was flushed");
    let disk = volumes.volume("disk").expect("it is there");
    // The power fails when these are in the log alone.
    (WRITTEN..WRITTEN + 3).for_each(|nth| write(&disk, nth));
    store.flush().expect("flushed");
    bank.with(|devices| devices.fail_after(0, FailureKind::All));
    drop((disk, volumes, store));
    bank.with(|devices| {
        devices.power_cut();
        devices.stop_failing();
    });

    let (_store, volumes, reads) = open(&bank);
    assert!(reads <= 14, "{reads} reads of {map_blocks} blocks for 3 writes");
    let disk = volumes.volume("disk").expect("it is there");
    assert!((0..WRITTEN).all(|nth| has(&disk, nth)));
    assert!((WRITTEN..WRITTEN + 3).all(|nth| !has(&disk, nth)), "their payload did not arrive");
}

/// Ends a process without a power cut: nothing more is done, and what it has written is in the
/// caches of the devices.
fn kill(volumes: Volumes, store: Store) {
    std::mem::forget((volumes, store));
}

#[test]
fn what_a_killed_process_has_written_is_stable_after_the_next_flush() {
    let (options, data) = (CreateOptions::default().log_bytes(16 << 20), vec![7; 300 << 10]);
    for seed in 0..8 {
        let memory = MemoryDevices::with_sizes(&[0, 0], seed);
        let bank = ThreadedDevices::in_virtual_time(HostileDevices::new(memory, seed));
        let store = builder().create_on(bank.clone(), 1, &options).expect("made");
        let volumes = Volumes::open_with(&store, 256).expect("opens");
        let disk = volumes.create("disk", 1 << 20).expect("made");
        disk.write(0, &data, Acknowledge::Written).expect("written");
        store.flush().expect("flushed");
        kill(volumes, store);

        let (store, volumes, _) = open(&bank);
        volumes.flush().expect("flushed");
        kill(volumes, store);
        bank.with(HostileDevices::power_cut);

        let (_store, volumes, _) = open(&bank);
        let mut found = vec![0; data.len()];
        volumes.volume("disk").expect("there").read(0, &mut found).expect("readable");
        assert!(found == data, "seed {seed}");
    }
}
