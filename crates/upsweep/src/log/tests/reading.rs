//! How much of a log recovery reads, and how often.

use std::collections::BTreeMap;

use super::world::{World, config};
use crate::log::{LogReader, Seq, StreamId, read_back, recover};

const PAGE: u64 = 4096;
const SEGMENT_PAGES: u64 = 32;
const SEGMENTS: u64 = 6;
/// Half a segment.
const WINDOW_PAGES: u64 = 16;

/// A log with so many batches of three pages on each of its devices.
fn written(devices: u16, batches: u64, kept_bytes: usize) -> World {
    let mut config = config(devices, SEGMENTS, SEGMENT_PAGES as u32, 4);
    config.kept_bytes = kept_bytes;
    let mut world = World::new(config);
    for number in 0..batches * u64::from(devices) {
        world.put(10_000, number as u8).expect("room");
        world.drain();
    }
    world.bank.reads.clear();
    world
}

/// How often each window of the devices was read, by device and number.
fn windows_read(world: &World) -> BTreeMap<(u16, u64), u64> {
    let mut windows = BTreeMap::new();
    for (device, offset, bytes) in &world.bank.reads {
        // The ring begins with the second page.
        let (first, pages) = (offset / PAGE - 1, bytes / PAGE);
        if pages > 1 {
            assert!(first.is_multiple_of(WINDOW_PAGES) && pages.is_multiple_of(WINDOW_PAGES));
        }
        for number in first / WINDOW_PAGES..(first + pages) / WINDOW_PAGES {
            *windows.entry((*device, number)).or_default() += 1;
        }
    }
    windows
}

fn pass(world: &mut World, reader: &mut LogReader) -> u64 {
    let mut records = 0;
    reader.rewind();
    while let Some(batch) = reader.next_batch(&mut world.bank).expect("it is there") {
        records += batch.records.len() as u64;
    }
    records
}

#[test]
fn a_log_that_fits_into_memory_is_read_once() {
    for devices in [1, 3] {
        let mut world = written(devices, 25, usize::MAX);
        let mut reader = recover(&mut world.bank, &world.config, Seq::FIRST).expect("recovers");
        let records = 25 * u64::from(devices);
        assert_eq!([pass(&mut world, &mut reader), pass(&mut world, &mut reader)], [records; 2]);
        let windows = windows_read(&world);
        // 10 batches fit into a segment, so there are 5 in the third one.
        let needed = (0..devices).flat_map(|device| (0..5).map(move |number| (device, number)));
        assert!(needed.into_iter().all(|at| windows.contains_key(&at)), "{windows:?}");
        assert!(windows.values().all(|times| *times == 1), "{windows:?}");
    }
}

#[test]
fn without_memory_every_pass_reads_each_window_once() {
    for devices in [1, 3] {
        let mut world = written(devices, 25, 0);
        let mut reader = recover(&mut world.bank, &world.config, Seq::FIRST).expect("recovers");
        for _ in 0..2 {
            world.bank.reads.clear();
            assert_eq!(pass(&mut world, &mut reader), 25 * u64::from(devices));
            let windows = windows_read(&world);
            assert!(windows.values().all(|times| *times == 1), "{windows:?}");
            assert!(windows.keys().all(|(_, number)| *number < 6), "{windows:?}");
        }
    }
}

#[test]
fn with_half_the_memory_a_pass_reads_half() {
    let (batches, windows) = (35, 7);
    let kept_bytes = (windows / 2 * WINDOW_PAGES * PAGE) as usize;
    let mut world = written(1, batches, kept_bytes);
    let mut reader = recover(&mut world.bank, &world.config, Seq::FIRST).expect("recovers");
    for _ in 0..3 {
        world.bank.reads.clear();
        assert_eq!(pass(&mut world, &mut reader), batches);
        let read = windows_read(&world).len() as u64;
        assert!((windows / 2 - 1..=windows / 2 + 2).contains(&read), "{read} of {windows}");
    }
    reader.keep_at_most(0);
    world.bank.reads.clear();
    pass(&mut world, &mut reader);
    assert!(windows_read(&world).len() as u64 >= windows - 2);
}

#[test]
fn the_windows_of_all_devices_are_read_at_the_same_time() {
    let mut world = written(3, 25, 0);
    let mut reader = recover(&mut world.bank, &world.config, Seq::FIRST).expect("recovers");
    world.bank.reads.clear();
    pass(&mut world, &mut reader);
    let of_device = |device| world.bank.reads.iter().filter(move |read| read.0 == device);
    let first_of_last = world.bank.reads.iter().position(|read| read.0 == 2).expect("it is read");
    assert!(first_of_last < 6 && of_device(0).count() > 2, "{:?}", world.bank.reads);
}

#[test]
fn old_records_can_be_read_while_the_log_is_open() {
    let mut world = World::new(config(2, SEGMENTS, SEGMENT_PAGES as u32, 4));
    for number in 0..20u8 {
        world.put(5000, number).expect("room");
        world.drain();
        let World { bank, config, .. } = &mut world;
        let back = read_back(bank, config, Seq::FIRST, StreamId(7), 3).expect("it reads");
        let fills: Vec<u8> = back.iter().map(|record| record.payload[0]).collect();
        let newest: Vec<u8> = (0..=number).rev().take(3).collect();
        assert_eq!(fills, newest, "newest first");
    }
    world.drain();
    world.reopen(Seq::FIRST);
    assert_eq!(world.model.len(), 20, "reading has changed nothing");
}
