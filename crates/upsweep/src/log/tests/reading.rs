//! How much of a log recovery reads, and how often.

use std::collections::BTreeMap;

use super::world::{World, config};
use crate::log::{LogReader, Seq, recover};

const PAGE: u64 = 4096;
const SEGMENT_PAGES: u64 = 256;
const SEGMENTS: u64 = 4;
const FIRST_WINDOW_PAGES: u64 = 64;

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

/// Pages of each device that were read, and how often.
fn pages_read(world: &World) -> BTreeMap<(u16, u64), u64> {
    let mut pages = BTreeMap::new();
    for (device, offset, bytes) in world.bank.reads.iter().flatten() {
        // The ring begins with the second page.
        for page in offset / PAGE - 1..(offset + bytes) / PAGE - 1 {
            *pages.entry((*device, page)).or_default() += 1;
        }
    }
    pages
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
fn the_first_pages_of_all_devices_are_read_at_the_same_time() {
    let mut world = written(3, 1, 0);
    recover(&mut world.bank, &world.config, Seq::FIRST).expect("recovers");
    let mut together = world.bank.reads[0].clone();
    together.sort_unstable();
    let first = |device| (0..SEGMENTS).map(move |segment| (device, segment * SEGMENT_PAGES));
    let wanted = (0..3).flat_map(first).map(|(device, page)| (device, (page + 1) * PAGE, PAGE));
    assert_eq!(together, wanted.collect::<Vec<_>>());
}

#[test]
fn what_follows_the_end_is_read_once_and_what_is_replayed_too_while_it_is_kept() {
    let mut world = written(1, 10, usize::MAX);
    let mut reader = recover(&mut world.bank, &world.config, Seq::FIRST).expect("recovers");
    assert_eq!([pass(&mut world, &mut reader), pass(&mut world, &mut reader)], [10, 10]);
    let pages = pages_read(&world);
    for page in 0..SEGMENTS * SEGMENT_PAGES {
        let is_first = page % SEGMENT_PAGES == 0;
        let is_window = page < FIRST_WINDOW_PAGES;
        // The log ends after 30 pages: the rest of its segment and the next one are searched.
        let is_searched = (30..2 * SEGMENT_PAGES).contains(&page);
        let wanted = u64::from(is_first) + u64::from(is_window) + u64::from(is_searched);
        assert_eq!(pages.get(&(0, page)).copied().unwrap_or(0), wanted, "page {page}");
    }
}

#[test]
fn a_segment_that_was_searched_for_the_beginning_is_not_searched_for_the_end() {
    for kept_bytes in [0, usize::MAX] {
        let mut world = written(1, 10, kept_bytes);
        recover(&mut world.bank, &world.config, Seq::new(5)).expect("recovers");
        let pages = pages_read(&world);
        for page in 1..2 * SEGMENT_PAGES {
            // The batch with the record before the fifth begins with page 9.
            let is_window = (9..9 + FIRST_WINDOW_PAGES).contains(&page) && kept_bytes == 0;
            let is_first = page == SEGMENT_PAGES;
            let wanted = 1 + u64::from(is_window) + u64::from(is_first);
            assert_eq!(pages.get(&(0, page)).copied().unwrap_or(0), wanted, "page {page}");
        }
    }
}

#[test]
fn without_memory_every_pass_reads_up_to_the_end_and_no_further() {
    let mut world = written(1, 10, 0);
    let mut reader = recover(&mut world.bank, &world.config, Seq::FIRST).expect("recovers");
    // What was read last is there still.
    world.bank.reads.clear();
    assert_eq!([pass(&mut world, &mut reader), pass(&mut world, &mut reader)], [10, 10]);
    assert_eq!(world.bank.reads, Vec::<Vec<_>>::new());
    let mut world = written(1, 100, 0);
    let mut reader = recover(&mut world.bank, &world.config, Seq::FIRST).expect("recovers");
    world.bank.reads.clear();
    assert_eq!(pass(&mut world, &mut reader), 100);
    let pages = pages_read(&world);
    // A segment has 85 batches.
    let end = SEGMENT_PAGES + 15 * 3;
    assert!((0..end - 1).all(|page| page == 255 || pages.contains_key(&(0, page))), "{pages:?}");
    assert!(!pages.contains_key(&(0, end)), "{pages:?}");
}
