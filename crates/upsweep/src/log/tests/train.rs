//! The train: batches without records, what they may take, and recovery across them.

use super::world::{World, config};
use crate::device::{Operation, Request};
use crate::log::format::BatchHeader;
use crate::log::{LogConfig, LogMode, Seq};

fn full(config: LogConfig) -> World {
    World::new(LogConfig { mode: LogMode::Full, ..config })
}

fn header(request: &Request) -> BatchHeader {
    let Operation::Write { buffer, .. } = &request.operation else { panic!("a write") };
    BatchHeader::decode(buffer).expect("a batch")
}

/// Page, bytes written and records of the writes in flight.
fn in_flight(world: &World) -> Vec<(u32, usize, u32)> {
    let seen = |request: &Request| {
        let Operation::Write { buffer, .. } = &request.operation else { panic!("a write") };
        (header(request).page, buffer.len(), header(request).records)
    };
    world.flights.iter().map(seen).collect()
}

#[test]
fn every_free_place_is_used_and_records_go_along() {
    let mut world = full(config(1, 16, 8, 2));
    world.dispatch();
    assert_eq!(in_flight(&world), [], "it was not started");
    world.log.start_train();
    world.dispatch();
    assert_eq!(in_flight(&world), [(0, 8192, 0)], "one place until the first completion");
    world.complete(0);
    world.dispatch();
    assert_eq!(in_flight(&world), [(2, 8192, 0), (4, 8192, 0)]);
    world.put(64, 1).expect("room");
    world.dispatch();
    assert_eq!(in_flight(&world).len(), 2, "no place is free");
    assert_eq!(world.log.batch_of(Seq::FIRST), 4);
    world.complete(0);
    world.dispatch();
    assert_eq!(in_flight(&world), [(4, 8192, 0), (6, 8192, 1)], "as long as a full batch");
    assert_eq!((header(&world.flights[1]).number, world.log.durable()), (4, Seq::NONE));
    world.complete(0);
    world.complete(0);
    world.dispatch();
    assert_eq!(world.log.durable(), Seq::FIRST);
    assert_eq!(in_flight(&world), [(8, 8192, 0), (10, 8192, 0)]);
    let metrics = world.log.metrics();
    assert_eq!((metrics.log_batches_total.get(), metrics.log_dummy_batches_total.get()), (1, 5));
    world.log.stop_train();
    world.drain();
    assert_eq!(world.log.metrics().log_dummy_batches_total.get(), 5);
    world.reopen(Seq::FIRST);
}

#[test]
fn records_that_fill_several_batches_are_not_padded_and_find_their_room() {
    let mut world = full(config(1, 16, 8, 2));
    world.log.start_train();
    for _ in 0..3 {
        world.put(5000, 1).expect("room");
    }
    world.put(100, 1).expect("room");
    world.drain();
    assert_eq!(world.log.durable(), Seq::new(4));
    world.reopen(Seq::FIRST);
}

#[test]
fn it_stops_when_half_of_the_log_is_used_until_some_of_it_is_released() {
    let mut world = full(config(1, 16, 8, 2));
    world.log.start_train();
    world.put(64, 1).expect("room");
    world.drain();
    let dummies = |world: &World| world.log.metrics().log_dummy_batches_total.get();
    // It has just entered the eighth of 16 segments; each has four batches of two pages.
    assert_eq!((world.log.used_bytes(), dummies(&world)), (29 * 8192, 28));
    world.release(Seq::new(2));
    world.drain();
    assert_eq!(dummies(&world), 28, "they lead to the next record, which may be needed");
    for _ in 0..2 {
        world.put(64, 2).expect("room");
        world.drain();
    }
    assert_eq!(dummies(&world), 28, "record 2 may be needed");
    world.release(Seq::new(3));
    world.drain();
    assert!(dummies(&world) > 28);
    assert!(world.log.used_bytes() <= world.log.capacity_bytes() / 2);
    world.reopen(Seq::new(3));
}

#[test]
fn a_log_without_half_a_lap_to_spare_has_no_train() {
    let mut world = full(config(1, 4, 8, 2));
    world.log.start_train();
    world.put(64, 1).expect("room");
    world.dispatch();
    assert_eq!(in_flight(&world), [(0, 4096, 1)]);
    world.drain();
    assert_eq!(world.log.metrics().log_dummy_batches_total.get(), 0);
}

#[test]
fn there_is_always_room_for_the_records_that_free_what_the_train_took() {
    for (devices, segments) in [(1, 6), (1, 16), (2, 4), (3, 5)] {
        let mut world = full(config(devices, segments, 4, 1));
        let longest = world.log.record_bytes_max();
        for step in 0..200 {
            world.log.start_train();
            world.drain();
            let bytes = if step % 2 == 0 { longest } else { 1 };
            world.put(bytes, 1).expect("there is room");
            world.drain();
            world.release(world.log.last().next());
        }
        assert!(world.log.metrics().log_dummy_batches_total.get() > 0, "{devices} {segments}");
        world.reopen(world.released);
    }
}

#[test]
fn dummies_between_records_are_kept_as_long_as_the_later_one() {
    let mut world = full(config(1, 16, 4, 1));
    world.put(64, 1).expect("room");
    world.drain();
    world.log.start_train();
    world.drain();
    world.log.stop_train();
    let used = world.log.used_bytes();
    for fill in 2..4 {
        world.put(64, fill).expect("room");
        world.drain();
    }
    world.release(Seq::new(2));
    assert!(world.log.used_bytes() >= used, "they lead to record 2");
    world.reopen(Seq::new(2));
    world.release(Seq::new(3));
    assert!(world.log.used_bytes() < used);
    while world.put(3000, 4).is_ok() {
        world.drain();
    }
    world.reopen(Seq::new(3));
}

/// One batch fills a segment here. The last dummy arrives, the one before it is lost; so only a
/// head of a cut-off tail states that the dummies before it are durable, and the next run does not
/// leave it there. That run comes round on one of two devices, and then loses its first record.
#[test]
fn where_recovery_begins_does_not_depend_on_who_attests_it() {
    let mut world = full(config(2, 8, 1, 1));
    world.put(64, 1).expect("room");
    world.log.start_train();
    world.dispatch();
    for _ in 0..4 {
        world.complete(0);
        world.dispatch();
    }
    let of = |request: &Request| (header(request).number, header(request).durable);
    let flights: Vec<_> = world.flights.iter().map(of).collect();
    assert_eq!(flights, [(5, 3), (6, 4)]);
    world.bank.tear(&world.flights[1], |_| true);
    let from = Seq::new(2);
    world.config.mode = LogMode::Idle;
    world.reopen(from);
    world.put(64, 2).expect("room");
    world.dispatch();
    let lost = world.flights.remove(0);
    assert_eq!((lost.device.0, header(&lost).first_seq), (0, from));
    while world.put(64, 3).is_ok() {
        world.dispatch();
        if world.flights.is_empty() {
            break;
        }
        world.complete(0);
    }
    world.reopen(from);
    assert_eq!(world.model.len(), 1);
}

/// A dummy is lost, and a record after it arrives. The next run does not see that record, so it
/// must never come back.
#[test]
fn a_batch_beyond_a_lost_dummy_never_comes_back() {
    let mut world = full(LogConfig { depth: 1, ..config(2, 8, 4, 1) });
    world.put(64, 1).expect("room");
    world.drain();
    world.reopen(Seq::FIRST);
    world.log.start_train();
    world.dispatch();
    world.complete(1);
    world.put(64, 2).expect("room");
    world.dispatch();
    let of = |request: &Request| (header(request).number, header(request).records);
    let flights: Vec<_> = world.flights.iter().map(of).collect();
    assert_eq!(flights, [(2, 0), (4, 1)], "batch 3 has arrived, and has no record");
    world.bank.tear(&world.flights[1], |_| true);
    world.reopen(Seq::FIRST);
    assert_eq!(world.model.len(), 1);
    world.reopen(Seq::new(2));
    assert_eq!(world.model.len(), 1);
    assert!(world.put(64, 3).is_ok());
    world.drain();
    world.reopen(Seq::new(2));
}

#[test]
fn sentinels_are_single_pages_at_a_distance_and_records_take_their_places() {
    let mut world = World::new(LogConfig { mode: LogMode::Sentinel, ..config(1, 16, 256, 2) });
    world.log.start_train();
    world.dispatch();
    assert_eq!(in_flight(&world), [(0, 4096, 0)]);
    world.put(64, 1).expect("room");
    world.complete(0);
    world.dispatch();
    assert_eq!(in_flight(&world), [(64, 4096, 1)], "the stride is 256 KiB at first");
    world.complete(0);
    world.dispatch();
    assert_eq!(in_flight(&world), [(128, 4096, 0)]);
    world.dispatch();
    assert_eq!(in_flight(&world).len(), 1, "one at a time");
    world.put(4096, 1).expect("room");
    world.dispatch();
    assert_eq!(
        in_flight(&world),
        [(128, 4096, 0), (192, 8192, 1)],
        "a record does not wait for it"
    );
    world.complete(0);
    world.complete(0);
    world.log.stop_train();
    world.drain();
    world.reopen(Seq::FIRST);
}

/// What an earlier lap left between two sentinels may claim the pages up to the second one and
/// beyond.
#[test]
fn what_is_found_between_sentinels_does_not_hide_what_follows() {
    let mut world = World::new(LogConfig { mode: LogMode::Sentinel, ..config(1, 8, 256, 2) });
    // Each segment begins with a batch of one page, and one of a hundred pages behind it.
    for _ in 0..16 {
        for bytes in [64, 100 * 4096 - 200] {
            world.put(bytes, 1).expect("room");
            world.drain();
        }
        world.release(world.log.durable());
    }
    world.log.start_train();
    world.dispatch();
    assert_eq!(in_flight(&world), [(1993, 4096, 0)], "in the rest of the last segment");
    world.complete(0);
    world.dispatch();
    assert_eq!(in_flight(&world), [(0, 4096, 0)]);
    world.put(64, 2).expect("room");
    world.complete(0);
    world.dispatch();
    assert_eq!(in_flight(&world), [(64, 4096, 1)]);
    world.complete(0);
    world.log.stop_train();
    world.put(64, 3).expect("room");
    world.drain();
    world.reopen(world.log.last());
}

/// A drive that writes a page in 40 us and makes a turn in 8 ms, and a host that needs 250 us from
/// a completion to the next submission: 7 pages are the least that take as long.
#[test]
fn dummies_become_as_short_as_the_drive_and_the_host_allow() {
    let mut world = full(config(1, 64, 64, 32));
    world.log.start_train();
    for step in 0..2500 {
        if step % 16 == 0 {
            world.put(1, 1).expect("room");
        }
        world.dispatch();
        let pages = match &world.flights[0].operation {
            Operation::Write { buffer, .. } => buffer.len() as u64 / 4096,
            other => panic!("{other:?}"),
        };
        world.now_us += if pages * 40 < 250 { 8000 } else { pages * 40 };
        world.complete(0);
        world.release(world.log.durable().next());
    }
    assert_eq!(world.log.train_stride_bytes(), 7 * 4096);
    world.log.stop_train();
    world.dispatch();
    assert_eq!(world.log.train_stride_bytes(), 0);
}
