//! Volumes that many threads use at a time: writers, readers, flushes, snapshots, the work in the
//! background, and scrubs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use upsweep::layers::device::{
    Buffer, FailureKind, HostileDevices, MemoryDevices, ThreadedDevices,
};
use upsweep::{CreateOptions, OpenOptions, Store};
use upsweep_volume::{Acknowledge, BLOCK_BYTES, Past, ScrubPosition, Volume, Volumes};

const BLOCK: usize = BLOCK_BYTES as usize;
const WRITERS: u64 = 4;
/// Blocks of each writer.
const BLOCKS: u64 = 64;
const ROUNDS: u64 = 60;
/// Power cuts, each in a store of its own.
const CUTS: u64 = 20;

/// A block that says which it is, and in which round it was written.
fn block_of(block: u64, round: u64) -> Vec<u8> {
    [block.to_le_bytes(), round.to_le_bytes()].concat().repeat(BLOCK / 16)
}

/// The round in which a block was written, 0 if never; all of it must be of one round.
fn round_of(block: u64, found: &[u8]) -> u64 {
    if found.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let round = u64::from_le_bytes(found[8..16].try_into().expect("8 bytes"));
    assert!(found == block_of(block, round), "block {block} is mixed");
    round
}

/// Writes the blocks of a writer round after round, in pieces of 1, 16 and 47 blocks, and says
/// which rounds are finished, or accepted.
fn write_rounds(volume: &Volume, writer: u64, finished: &AtomicU64) {
    for round in 1..=ROUNDS {
        let acknowledge = match round % 3 {
            0 => Acknowledge::Durable,
            _ => Acknowledge::Written,
        };
        for (first, blocks) in [(0, 1), (1, 16), (17, 47)] {
            let range = writer * BLOCKS + first..writer * BLOCKS + first + blocks;
            let offset = range.start * BLOCK_BYTES;
            let data: Vec<u8> = range.flat_map(|block| block_of(block, round)).collect();
            if blocks < 47 || acknowledge == Acknowledge::Durable {
                volume.write(offset, &data, acknowledge).expect("written");
                continue;
            }
            let mut accepted = || finished.store(round, Ordering::Release);
            let data = Buffer::copy_of(&data);
            volume.write_behind(offset, data, &mut accepted).expect("written");
        }
        finished.store(round, Ordering::Release);
    }
}

/// Reads the blocks of one writer after another, which must not be older than the rounds that were
/// finished before.
fn read_rounds(volume: &Volume, finished: &[AtomicU64], is_over: &AtomicBool) {
    let mut found = vec![0; BLOCKS as usize * BLOCK];
    for writer in (0..WRITERS).cycle() {
        if is_over.load(Ordering::Acquire) {
            return;
        }
        let least = finished[writer as usize].load(Ordering::Acquire);
        volume.read(writer * BLOCKS * BLOCK_BYTES, &mut found).expect("readable");
        for (block, found) in (writer * BLOCKS..).zip(found.chunks(BLOCK)) {
            let round = round_of(block, found);
            assert!(round >= least, "block {block} is of {round}, before {least}");
        }
    }
}

/// Takes a snapshot, looks at it twice through a clone, and deletes both.
fn look_at_a_snapshot(volumes: &Volumes, snapshot: &str, finished: &[AtomicU64]) {
    let least: Vec<u64> = finished.iter().map(|round| round.load(Ordering::Acquire)).collect();
    volumes.snapshot(&["disk"], snapshot).expect("taken");
    let look = volumes.clone_volume("disk", Some(Past::Snapshot(snapshot)), "look").expect("made");
    for _ in 0..2 {
        let mut rounds = Vec::new();
        let mut found = vec![0; (WRITERS * BLOCKS) as usize * BLOCK];
        look.read(0, &mut found).expect("readable");
        for (block, found) in (0..).zip(found.chunks(BLOCK)) {
            let round = round_of(block, found);
            assert!(round >= least[(block / BLOCKS) as usize], "{block} in {snapshot}");
            rounds.push(round);
        }
        // A write is in a snapshot with all of its blocks, or none.
        for piece in rounds.chunks(BLOCKS as usize) {
            assert!(piece[1..17].iter().all(|round| *round == piece[1]), "{piece:?}");
            assert!(piece[17..].iter().all(|round| *round == piece[17]), "{piece:?}");
        }
    }
    volumes.delete("look").expect("deleted");
    volumes.delete_snapshot("disk", snapshot).expect("deleted");
}

/// Scrubs all volumes in small steps, again and again.
fn scrub(volumes: &Volumes, is_over: &AtomicBool) {
    let mut next = None;
    while !is_over.load(Ordering::Acquire) {
        let from: ScrubPosition = next.unwrap_or_default();
        let step = volumes.scrub(None, from, 1 << 18).expect("readable");
        assert_eq!(step.damage, []);
        next = step.next;
    }
}

#[test]
fn every_reader_sees_whole_blocks_that_never_get_older() {
    let store = Store::in_memory().expect("made");
    let volumes = Volumes::open_with(&store, 64).expect("opens");
    let volume = volumes.create("disk", WRITERS * BLOCKS * BLOCK_BYTES).expect("made");
    // Rounds that were finished, by writer.
    let finished: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (volume, finished) = (&volume, &finished[writer as usize]);
                scope.spawn(move || write_rounds(volume, writer, finished))
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| read_rounds(&volume, &finished, &is_over));
        }
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                volumes.work().expect("no fault is injected");
                volumes.flush().expect("no fault is injected");
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                store.sweep().expect("swept");
            }
        });
        scope.spawn(|| scrub(&volumes, &is_over));
        for number in 0..20 {
            look_at_a_snapshot(&volumes, &format!("s{number}"), &finished);
        }
        for writer in writers {
            writer.join().expect("no panic in there");
        }
        is_over.store(true, Ordering::Release);
    });
    let mut found = vec![0; (WRITERS * BLOCKS) as usize * BLOCK];
    volume.read(0, &mut found).expect("readable");
    for (block, found) in (0..).zip(found.chunks(BLOCK)) {
        assert_eq!(round_of(block, found), ROUNDS);
    }
}

/// Writes a block again and again, flushes each time, and says which rounds were flushed, until
/// the devices fail.
fn flush_rounds(volume: &Volume, block: u64, flushed: &AtomicU64) {
    for round in 1.. {
        let data = block_of(block, round);
        let written = volume.write(block * BLOCK_BYTES, &data, Acknowledge::Written);
        if written.and_then(|()| volume.flush()).is_err() {
            return;
        }
        flushed.store(round, Ordering::Release);
    }
}

/// Threads that flush at about the same time share rounds, which must have begun after each of them
/// had written.
#[test]
fn whatever_a_flush_has_covered_is_there_after_a_power_cut() {
    for seed in 0..CUTS {
        let memory = MemoryDevices::with_sizes(&[0, 0], seed);
        let bank = ThreadedDevices::new(HostileDevices::new(memory, seed));
        let builder = || Store::builder().options(OpenOptions::default().memory_bytes(64 << 20));
        let sizes = CreateOptions::default().log_bytes(8 << 20);
        let store = builder().create_on(bank.clone(), 1, &sizes).expect("made");
        let volumes = Volumes::open_with(&store, 64).expect("opens");
        let volume = volumes.create("disk", WRITERS * BLOCK_BYTES).expect("made");
        let flushed: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for (block, flushed) in (0..).zip(&flushed) {
                let volume = &volume;
                scope.spawn(move || flush_rounds(volume, block, flushed));
            }
            let all = || flushed.iter().map(|round| round.load(Ordering::Acquire)).sum::<u64>();
            while all() < 20 + seed {
                std::thread::yield_now();
            }
            bank.with(|devices| devices.fail_after(0, FailureKind::All));
        });
        // Before the devices forget, or its last writes would arrive later.
        drop((volume, volumes, store));
        bank.with(|devices| {
            devices.power_cut();
            devices.stop_failing();
        });
        let store = builder().open_on(bank.clone()).expect("opens");
        let volume = Volumes::open(&store).expect("recovers").volume("disk").expect("there");
        for (block, flushed) in (0..).zip(&flushed) {
            let mut found = vec![0; BLOCK];
            volume.read(block * BLOCK_BYTES, &mut found).expect("readable");
            let (round, flushed) = (round_of(block, &found), flushed.load(Ordering::Acquire));
            assert!(round >= flushed, "block {block} is of {round}, not {flushed}, seed {seed}");
        }
    }
}
