//! The train: batches without records, what they may take, and recovery across them.

use super::world::{World, config};
use crate::device::{Operation, Request};
use crate::log::format::BatchHeader;
use crate::log::{LogConfig, LogMode, Motion, Quota, Seq, Urgency};

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

/// A dummy of a cut-off tail begins with the very record from which the log is read, and the device
/// loses the write at the start of the segment that has this record.
#[test]
fn a_segment_of_which_the_first_write_is_lost_is_not_taken_for_an_unused_one() {
    let mut world = full(LogConfig { depth: 1, ..config(2, 8, 4, 2) });
    let put = |world: &mut World, records: u8| {
        for fill in 1..=records {
            let urgency = if fill == records { Urgency::Now } else { Urgency::Relaxed };
            world.append(7, &[fill], urgency, Quota::User).expect("room");
        }
    };
    put(&mut world, 5);
    world.log.start_train();
    world.dispatch();
    let of =
        |request: &Request| (request.device.0, header(request).number, header(request).first_seq);
    let flights: Vec<_> = world.flights.iter().map(of).collect();
    assert_eq!(flights, [(0, 1, Seq::FIRST), (1, 2, Seq::new(6))]);
    world.complete(1);
    world.reopen(Seq::FIRST);
    for records in [4, 2, 1] {
        put(&mut world, records);
        world.drain();
        world.reopen(Seq::FIRST);
    }
    assert_eq!(world.model.len(), 7);
    let wanted = world.model[5..].to_vec();
    world.bank.media[0][4096..][..4096].fill(0);
    assert_eq!(world.replay(Seq::new(6)), Ok(wanted));
}

/// A page passes in 10 us, and a turn has 800 of them.
const MOTION: Motion = Motion { turn_ns: 8_000_000, turn_bytes: 800 * 4096 };

fn predicting(mode: LogMode, config: LogConfig) -> World {
    World::new(LogConfig { mode, motion: Some(MOTION), ..config })
}

#[test]
fn sentinels_and_records_go_where_the_head_is_expected() {
    let mut world = predicting(LogMode::Sentinel, config(1, 16, 1000, 2));
    world.log.start_train();
    world.dispatch();
    assert_eq!(in_flight(&world), [(0, 4096, 0)]);
    world.put(64, 1).expect("room");
    world.now_us += 100;
    world.complete(0);
    world.dispatch();
    // The look-ahead is half a turn at first.
    assert_eq!(in_flight(&world), [(401, 4096, 1)]);
    world.now_us += 4010;
    world.complete(0);
    world.dispatch();
    assert_eq!(in_flight(&world), [(802, 4096, 0)]);
    world.dispatch();
    assert_eq!(in_flight(&world).len(), 1, "one at a time");
    world.now_us += 1000;
    world.put(4096, 1).expect("room");
    world.dispatch();
    let both = [(802, 4096, 0), (902, 8192, 1)];
    assert_eq!(in_flight(&world), both, "behind it, by the time that has passed");
    world.complete(0);
    world.complete(0);
    let metrics = world.log.metrics();
    assert_eq!(metrics.log_predictions_total.get(), 1);
    world.log.stop_train();
    world.drain();
    world.reopen(Seq::FIRST);
}

#[test]
fn without_sentinels_a_lone_record_goes_where_the_head_is_expected() {
    let mut world = predicting(LogMode::Predict, config(2, 16, 1000, 2));
    world.log.start_train();
    for number in 0..40 {
        world.put(64, number).expect("room");
        world.drain();
        world.now_us += 12_345;
    }
    let metrics = world.log.metrics();
    assert_eq!(metrics.log_dummy_batches_total.get(), 0);
    assert!(metrics.log_predictions_total.get() > 30);
    assert_eq!(world.log.known_heads(), 2);
    assert!(world.log.used_bytes() > 40 * 4096 * 10, "{}", world.log.used_bytes());
    world.reopen(Seq::FIRST);
    assert_eq!(world.model.len(), 40);
    world.release(Seq::new(31));
    world.reopen(Seq::new(31));
}

/// The space of those that wait was promised to them.
#[test]
fn a_record_that_others_follow_goes_where_the_head_is_expected_if_there_is_room_for_all() {
    for (segments, page) in [(16, 501), (6, 1)] {
        let mut world = predicting(LogMode::Predict, config(1, segments, 1000, 1));
        world.log.start_train();
        world.put(64, 1).expect("room");
        world.drain();
        world.now_us += 1000;
        for _ in 0..3 {
            world.put(3000, 2).expect("room");
        }
        world.dispatch();
        assert_eq!(in_flight(&world), [(page, 4096, 1), (page + 1, 4096, 1)]);
        world.drain();
        world.reopen(Seq::FIRST);
    }
}

/// A batch that was torn behind a cursor is gone before the next run writes anything.
#[test]
fn what_was_torn_behind_a_cursor_never_comes_back() {
    let mut world = predicting(LogMode::Predict, config(1, 16, 1000, 2));
    world.log.start_train();
    world.put(64, 1).expect("room");
    world.drain();
    world.now_us += 1000;
    world.put(4096, 2).expect("room");
    world.dispatch();
    assert_eq!(in_flight(&world), [(501, 8192, 1)]);
    let torn = world.flights.remove(0);
    world.bank.tear(&torn, |sector| sector < 8);
    world.reopen(Seq::FIRST);
    assert_eq!(world.model.len(), 1);
    // The rest arrives late, which changes nothing any more.
    world.bank.tear(&torn, |sector| sector >= 8);
    world.reopen(Seq::FIRST);
    assert_eq!(world.model.len(), 1);
    world.put(64, 3).expect("room");
    world.dispatch();
    assert_eq!(in_flight(&world), [(1, 4096, 1)], "the first batch of a run is at the cursor");
    world.drain();
    world.reopen(Seq::FIRST);
    assert_eq!(world.model.len(), 2);
}

#[test]
fn a_log_of_which_three_fourths_are_used_predicts_nothing() {
    let mut world = predicting(LogMode::Predict, config(1, 16, 1000, 2));
    world.log.start_train();
    let mut pages = Vec::new();
    for _ in 0..100 {
        world.put(64, 1).expect("room");
        world.now_us += 1234;
        world.dispatch();
        pages.push(in_flight(&world)[0].0);
        world.drain();
    }
    let behind = pages.windows(2).filter(|two| two[1] == two[0] + 1).count();
    assert!((50..90).contains(&behind), "{pages:?}");
    assert!((11_000..12_000).contains(&pages[99]), "{pages:?}");
    world.reopen(Seq::FIRST);
}

/// What an earlier lap left in between may claim the pages up to the next batch and beyond.
#[test]
fn what_is_found_in_between_does_not_hide_what_follows() {
    let mut world = predicting(LogMode::Sentinel, config(1, 8, 256, 2));
    world.config.motion = Some(Motion { turn_bytes: 80 * 4096, ..MOTION });
    world.reopen(Seq::FIRST);
    // Each segment begins with a batch of one page, and one of a hundred pages behind it.
    for _ in 0..16 {
        for bytes in [64, 100 * 4096 - 200] {
            world.put(bytes, 1).expect("room");
            world.drain();
        }
        world.release(world.log.durable());
    }
    world.log.start_train();
    // In the rest of the last segment, then from its beginning on.
    while in_flight(&world).is_empty() || in_flight(&world)[0].0 > 64 {
        world.flights.is_empty().then(|| world.dispatch());
        world.complete(0);
        world.dispatch();
    }
    world.put(64, 2).expect("room");
    world.complete(0);
    world.now_us += 5000;
    world.dispatch();
    let page = in_flight(&world)[0].0;
    assert!((2..256).contains(&page), "{page}");
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

#[test]
fn a_batch_of_many_records_is_no_longer_than_the_train_allows() {
    let mut world = full(config(1, 64, 64, 32));
    world.log.start_train();
    let mut written = 0;
    for step in 0..4000 {
        while world.put(1000, 1).is_ok() {}
        world.dispatch();
        let Operation::Write { buffer, .. } = &world.flights[0].operation else {
            panic!("a write")
        };
        let pages = buffer.len() as u64 / 4096;
        written = if step < 3900 { 0 } else { pages.max(written) };
        world.now_us += if pages * 40 < 250 { 8000 } else { pages * 40 };
        world.complete(0);
        world.release(world.log.durable().next());
    }
    assert_eq!((written, world.log.train_stride_bytes()), (7, 7 * 4096));
    world.log.stop_train();
    world.drain();
    world.reopen(world.released);
}

/// A drive with a turn of 8 ms in which 400 pages pass, and a host that needs 300 us.
fn write_at_its_turn(world: &mut World) {
    let (page, bytes, _) = in_flight(world)[0];
    let ready_us = world.now_us + 300;
    let begins_us = ready_us + (u64::from(page) * 20 + 8000 - ready_us % 8000) % 8000;
    world.now_us = begins_us + 20 * bytes as u64 / 4096;
    world.complete(0);
}

#[test]
fn a_drive_is_measured_by_lone_records_and_while_others_wait() {
    for waiting in [1, 3] {
        let mode = LogMode::Predict;
        let mut world = World::new(LogConfig { mode, ..config(1, 16, 2000, 8) });
        world.log.start_train();
        let mut writes = 0;
        while world.log.known_heads() == 0 {
            for _ in 0..waiting {
                let full = world.put(3000, waiting).is_err();
                assert!(!full || waiting > 1, "there is room");
            }
            world.dispatch();
            assert_eq!(in_flight(&world).len(), 1, "one at a time");
            write_at_its_turn(&mut world);
            world.dispatch();
            world.release(world.log.durable().next());
            writes += 1;
            assert!(writes < 300, "it is measured");
        }
        assert_eq!(world.log.metrics().log_dummy_batches_total.get(), 0);
        world.drain();
        world.reopen(world.released);
    }
}

#[test]
fn where_no_records_come_a_drive_is_measured_after_a_pause() {
    let mode = LogMode::Predict;
    let mut world = World::new(LogConfig { mode, ..config(1, 16, 2000, 8) });
    assert_eq!(world.log.deadline_us(), None, "it was not started");
    world.log.start_train();
    while world.log.known_heads() == 0 {
        if let Some(us) = world.log.deadline_us() {
            world.now_us = world.now_us.max(us);
        }
        world.dispatch();
        assert_eq!(world.log.deadline_us(), None, "it is on its way");
        write_at_its_turn(&mut world);
        world.dispatch();
        assert_eq!(in_flight(&world), [], "there is a pause");
    }
    assert_eq!(world.log.deadline_us(), None, "nothing is to be done any more");
    let dummies = world.log.metrics().log_dummy_batches_total.get();
    assert!((50..200).contains(&dummies), "{dummies}");
    world.put(64, 1).expect("room");
    world.dispatch();
    let before = world.now_us;
    write_at_its_turn(&mut world);
    assert!(world.now_us - before < 1000, "{} us", world.now_us - before);
    world.reopen(Seq::FIRST);
}
