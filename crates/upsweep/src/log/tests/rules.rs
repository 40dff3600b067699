//! Each rule of the log individually.

use proptest::prelude::*;

use super::world::{STORE, World, config, in_small_pages};
use crate::device::{Buffer, DeviceError, DeviceId, Operation, Request};
use crate::error::{Error, Location, RequestError};
use crate::log::format::{self, BATCH_HEADER_BYTES, BatchHeader, Invalid, RECORD_HEADER_BYTES};
use crate::log::{
    AppendError, LOG_TOKEN_BIT, Log, LogConfig, LogFailure, Quota, Seq, StreamId, Urgency, recover,
};
use crate::metrics::LogRefusal;

fn write(request: &Request) -> (u64, &Buffer) {
    match &request.operation {
        Operation::Write { offset, buffer, .. } => (*offset, buffer),
        other => panic!("{other:?} is not a write"),
    }
}

fn header(request: &Request) -> BatchHeader {
    BatchHeader::decode(write(request).1).expect("a batch")
}

fn targets(world: &World) -> Vec<u16> {
    world.flights.iter().map(|request| request.device.0).collect()
}

#[test]
fn a_lone_record_costs_one_page_and_carries_the_token_bit() {
    let mut world = World::new(config(1, 4, 8, 4));
    assert_eq!(world.put(64, 1), Ok(Seq::FIRST));
    world.dispatch();
    let (offset, buffer) = write(&world.flights[0]);
    assert_eq!((offset, buffer.len()), (4096, 4096));
    assert_eq!(world.flights[0].token.0, LOG_TOKEN_BIT | 1);
    assert_eq!((world.log.last(), world.log.durable()), (Seq::FIRST, Seq::NONE));
    world.complete(0);
    assert_eq!(world.log.durable(), Seq::FIRST);
}

#[test]
fn batches_are_cut_to_pages_of_a_logical_block() {
    let mut world = World::new(in_small_pages(config(1, 4, 8, 4)));
    let mut places = Vec::new();
    for bytes in [64, 300, 1000, 4000, 1] {
        world.put(bytes, 1).expect("room");
        world.dispatch();
        let (offset, buffer) = write(&world.flights[0]);
        let found = header(&world.flights[0]);
        assert_eq!(u64::from(found.page) * 512, offset - 4096);
        assert_eq!(u64::from(found.cursors[0]) * 512, offset - 4096 + buffer.len() as u64);
        places.push((found.page, found.previous_page, buffer.len()));
        world.drain();
    }
    let expected = [(0, 0, 512), (1, 0, 512), (2, 1, 1536), (5, 2, 4608), (14, 5, 512)];
    assert_eq!(places, expected);
    assert_eq!(world.log.used_bytes(), 15 * 512);
    world.reopen(Seq::FIRST);
    world.put(1, 2).expect("room");
    world.dispatch();
    assert_eq!(write(&world.flights[0]).0, 4096 + 15 * 512);
    world.drain();
    world.reopen(Seq::new(4));
}

#[test]
fn only_reading_works_on_devices_with_larger_blocks_than_pages() {
    let mut world = World::new(in_small_pages(config(2, 4, 8, 4)));
    for fill in 0..40 {
        world.put(200 * usize::from(fill % 4), fill).expect("room");
        world.dispatch();
        world.complete(0);
    }
    world.bank.block_bytes = 4096;
    for from in [1, 2, 20, 41] {
        let found = world.replay(Seq::new(from)).expect("only reads");
        assert_eq!(found, world.model[from as usize - 1..]);
    }
    let mut reader = recover(&mut world.bank, &world.config, Seq::FIRST).expect("only reads");
    let next = LogConfig { epoch: 2, ..world.config.clone() };
    assert!(reader.to_log_read_only(next.clone()).is_ok());
    let refused = reader.to_log(&mut world.bank, next.clone()).map(|_| ());
    let expected = "log page: 512 bytes, but device 0 has blocks of 4096: move the log to a device \
                    with blocks of at most 512 bytes, or restore a backup";
    assert_eq!(refused.expect_err("it cannot write a page").to_string(), expected);
    assert!(Log::format(&mut world.bank, &next).is_err());
}

#[test]
fn a_ring_has_as_many_pages_as_a_header_can_count() {
    let mut config = LogConfig::new(STORE, 1, config(1, 4, 8, 1).regions, 1 << 30);
    let segment = u64::from(config.segment_bytes);
    for (page_bytes, limit) in [(512, 2 << 40), (4096, 16 << 40)] {
        config.page_bytes = page_bytes;
        config.regions[0].bytes = limit - segment;
        assert_eq!(config.check(), Ok(()));
        config.regions[0].bytes = limit;
        let refused = config.check().expect_err("one page too many").to_string();
        let limit = limit - u64::from(page_bytes);
        assert!(refused.ends_with(&format!("at most {limit} bytes, in pages of {page_bytes}")));
    }
}

#[test]
fn a_record_stays_in_the_batch_that_it_was_appended_to() {
    let mut world = World::new(config(1, 4, 8, 1));
    let batches = |world: &World| [1, 2, 3, 4].map(|seq| world.log.batch_of(Seq::new(seq)));
    assert_eq!(world.log.batch_of(Seq::NONE), 0);
    assert_eq!(world.log.batch_of(Seq::FIRST), 1);
    world.put(64, 1).expect("room");
    world.dispatch();
    world.put(64, 2).expect("room");
    world.put(64, 3).expect("room");
    assert_eq!(batches(&world), [1, 2, 2, 2], "the open batch takes the next one too");
    world.complete(0);
    world.dispatch();
    assert_eq!(batches(&world), [1, 2, 2, 3]);
    world.drain();
    assert_eq!((world.log.durable(), batches(&world)), (Seq::new(3), [2, 2, 2, 3]));
}

#[test]
fn relaxed_records_wait_for_a_full_batch_time_or_an_urgent_one() {
    let mut world = World::new(config(1, 4, 8, 1));
    world.now_us = 1000;
    let relaxed = (Urgency::Relaxed, Quota::User);
    world.append(7, b"a", relaxed.0, relaxed.1).expect("room");
    world.dispatch();
    assert_eq!((world.flights.len(), world.log.deadline_us()), (0, Some(1200)));
    world.now_us = 1200;
    world.dispatch();
    assert_eq!((world.flights.len(), world.log.deadline_us()), (1, None));
    assert_eq!(world.log.metrics().log_delayed_batches_total.get(), 1);
    world.drain();
    world.append(7, &[0; 2000], relaxed.0, relaxed.1).expect("room");
    world.append(7, &[0; 2000], relaxed.0, relaxed.1).expect("room");
    world.dispatch();
    assert_eq!(world.flights.len(), 1, "the full batch went out, the other one waits");
    world.put(1, 0).expect("room");
    world.dispatch();
    assert_eq!(world.flights.len(), 2);
    world.drain();
    let last = world.log.last();
    assert!(!world.log.hurry(last), "nothing is delayed");
    world.append(7, b"b", relaxed.0, relaxed.1).expect("room");
    world.dispatch();
    assert_eq!(world.flights.len(), 0, "it came after the haste");
    assert!(!world.log.hurry(last), "that is another record");
    world.dispatch();
    assert_eq!(world.flights.len(), 0);
    let last = world.log.last();
    assert!(world.log.hurry(last));
    world.dispatch();
    assert_eq!(world.flights.len(), 1);
}

/// Puts urgent records, dispatches, and returns the devices that are writing.
fn put_and_dispatch(world: &mut World, records: usize) -> Vec<u16> {
    for _ in 0..records {
        world.put(8, 1).expect("room");
    }
    world.dispatch();
    targets(world)
}

#[test]
fn a_batch_waits_for_those_who_are_expected_back_while_its_device_writes() {
    let mut world = World::new(config(1, 4, 8, 1));
    put_and_dispatch(&mut world, 1);
    world.complete(0);
    assert_eq!(put_and_dispatch(&mut world, 1), [0], "nothing is in flight");
    for _ in 0..7 {
        world.put(8, 1).expect("room");
    }
    world.complete(0);
    assert_eq!(put_and_dispatch(&mut world, 0), [0], "seven of the eight that have waited");
    assert_eq!(put_and_dispatch(&mut world, 1), [0, 0], "all eight are here");
    world.complete(0);
    assert_eq!(put_and_dispatch(&mut world, 1), [0], "more are expected than the one in flight");
    assert_eq!(put_and_dispatch(&mut world, 1), [0, 0], "twice as many as are in flight");
    world.complete(0);
    assert_eq!(put_and_dispatch(&mut world, 1), [0]);
    world.complete(0);
    assert_eq!(put_and_dispatch(&mut world, 0), [0], "the device has nothing to do");
    assert_eq!(put_and_dispatch(&mut world, 1), [0]);
    world.now_us += world.config.delay_us_max;
    assert_eq!(put_and_dispatch(&mut world, 0), [0, 0], "it has waited as long as a batch may");
}

#[test]
fn a_full_batch_does_not_wait_for_those_who_are_expected_back() {
    let mut world = World::new(config(1, 4, 8, 1));
    put_and_dispatch(&mut world, 8);
    world.complete(0);
    assert_eq!(put_and_dispatch(&mut world, 1), [0], "nothing is in flight");
    world.complete(0);
    assert_eq!(put_and_dispatch(&mut world, 1), [0], "nothing is in flight");
    world.put(3000, 1).expect("room");
    assert_eq!(put_and_dispatch(&mut world, 0), [0, 0], "no other of this length fits");
}

#[test]
fn a_batch_that_expects_more_records_goes_to_an_idle_device() {
    let mut world = World::new(config(2, 4, 8, 1));
    assert_eq!(put_and_dispatch(&mut world, 6), [0]);
    assert_eq!(put_and_dispatch(&mut world, 3), [0, 1]);
    world.complete(0);
    world.complete(0);
    assert_eq!(put_and_dispatch(&mut world, 2), [0], "both are idle");
    world.complete(0);
    // Places came free in the order 0, 0, 1, 1; one of the first was taken and came free again.
    assert_eq!(put_and_dispatch(&mut world, 2), [0]);
    assert_eq!(put_and_dispatch(&mut world, 1), [0, 1], "a place of the busy device is skipped");
}

#[test]
fn devices_start_staggered_and_the_first_to_complete_takes_the_next_batch() {
    let mut world = World::new(config(3, 4, 8, 1));
    for _ in 0..4 {
        world.put(3900, 1).expect("room");
    }
    world.dispatch();
    assert_eq!(targets(&world), [0, 1, 2], "one place each until the first completion");
    world.complete(2);
    world.put(3900, 1).expect("room");
    world.put(3900, 1).expect("room");
    world.dispatch();
    assert_eq!(targets(&world), [0, 1, 2, 2], "then two");
    world.complete(0);
    world.dispatch();
    assert_eq!(targets(&world), [1, 2, 2, 0]);
}

#[test]
fn durable_advances_in_batch_order_only() {
    let mut world = World::new(config(2, 4, 8, 1));
    world.put(3900, 1).expect("room");
    world.put(3900, 2).expect("room");
    world.dispatch();
    world.complete(1);
    assert_eq!(world.log.durable(), Seq::NONE);
    world.complete(0);
    assert_eq!(world.log.durable(), Seq::new(2));
    world.put(10, 2).expect("room");
    world.dispatch();
    assert_eq!(header(&world.flights[0]).durable, 2);
}

#[test]
fn batches_never_cross_segments_and_name_their_predecessor() {
    let mut world = World::new(config(1, 6, 4, 3));
    let mut previous = None;
    for _ in 0..12 {
        world.put(3 * 4096 - 200, 1).expect("room");
        world.dispatch();
        let next = header(&world.flights[0]);
        assert_eq!((next.page % 4, next.bytes(4096)), (0, 3 * 4096));
        if let Some(page) = previous {
            assert_eq!((next.previous_page, next.previous_device), (page, 0));
        }
        previous = Some(next.page);
        world.drain();
        world.release(world.log.durable());
    }
}

#[test]
fn a_long_record_gets_a_batch_of_its_own_of_up_to_a_segment() {
    let mut world = World::new(config(1, 5, 8, 2));
    let limit = world.log.record_bytes_max();
    assert_eq!(limit, 8 * 4096 - BATCH_HEADER_BYTES - RECORD_HEADER_BYTES);
    assert_eq!(world.put(limit + 1, 0), Err(AppendError::TooLong { limit }));
    world.append(7, b"before", Urgency::Relaxed, Quota::User).expect("room");
    world.put(limit, 9).expect("room");
    world.append(7, b"after", Urgency::Relaxed, Quota::User).expect("room");
    world.drain();
    assert_eq!(world.log.metrics().log_batches_total.get(), 3);
    assert_eq!(world.log.metrics().log_written_bytes_total.get(), 10 * 4096);
    world.reopen(Seq::FIRST);
}

#[test]
fn the_queue_of_sealed_batches_is_bounded() {
    let mut world = World::new(config(1, 8, 16, 1));
    let accepted = (0..20).take_while(|_| world.put(3900, 0).is_ok()).count();
    assert_eq!(accepted, 5, "1 * 2 + 2 sealed, one open");
    assert_eq!(world.put(3900, 0), Err(AppendError::Busy));
    assert_eq!(world.log.metrics().log_refusals_total[LogRefusal::Busy].get(), 2);
    assert!(world.log.buffer_bytes() <= 12 * 4096);
    world.drain();
    assert!(world.log.buffer_bytes() <= 12 * 4096);
}

#[test]
fn users_leave_a_reserve_and_release_makes_room() {
    let mut world = World::new(config(1, 4, 4, 1));
    let fill = |world: &mut World, space| {
        let mut count = 0;
        while world.append(7, &[3; 3900], Urgency::Now, space).is_ok() {
            world.drain();
            count += 1;
        }
        count
    };
    assert_eq!(fill(&mut world, Quota::User), 8, "two of four segments");
    assert_eq!(world.put(3900, 0), Err(AppendError::Full));
    assert_eq!(fill(&mut world, Quota::Internal), 8, "and the rest");
    assert_eq!(world.log.used_bytes(), world.log.capacity_bytes());
    assert_eq!(world.log.oldest_segment_last_seq(), Some(Seq::new(4)));
    world.release(Seq::new(4));
    assert_eq!(world.log.used_bytes(), world.log.capacity_bytes(), "record 4 is needed");
    world.release(Seq::new(5));
    assert_eq!(world.log.used_bytes(), 3 * 4 * 4096);
    world.release(Seq::new(17));
    assert_eq!(world.log.used_bytes(), 4 * 4096, "the youngest stays");
    assert_eq!(fill(&mut world, Quota::User), 8, "now the youngest is another one");
    world.reopen(Seq::new(17));
}

#[test]
fn a_failed_write_poisons_the_log() {
    let mut world = World::new(config(1, 4, 8, 1));
    world.put(10, 1).expect("room");
    world.drain();
    world.put(10, 1).expect("room");
    world.dispatch();
    let mut done = world.bank.perform(world.flights.remove(0));
    let error = DeviceError::Failed { errno: 5 };
    done.result = Err(error.clone());
    let failure = LogFailure { device: DeviceId(0), offset: 8192, error };
    assert_eq!(world.log.complete(done), Err(failure));
    assert!(world.log.failed());
    assert_eq!(world.put(10, 1), Err(AppendError::Failed));
    world.dispatch();
    assert_eq!((world.flights.len(), world.log.durable()), (0, Seq::FIRST));
}

#[test]
fn streams_are_named_and_open_twice() {
    let mut world = World::new(config(1, 4, 8, 1));
    let data = world.log.open("data").expect("no collision");
    assert_eq!(world.log.open("data"), Ok(data));
    assert_ne!(world.log.open("meta"), Ok(data));
    assert_eq!(data, StreamId::of("data"));
    world.log.open("wcjifoae").expect("the first of two names with one crc32c");
    let refused = world.log.open("ccaoacux");
    assert!(matches!(refused, Err(RequestError::BadConfig { setting: "stream", .. })));
}

#[test]
fn epochs_must_rise_and_configurations_must_match() {
    let mut world = World::new(config(1, 4, 8, 1));
    world.put(10, 1).expect("room");
    world.drain();
    let mut reader = recover(&mut world.bank, &world.config, Seq::FIRST).expect("recovers");
    assert_eq!(reader.epoch_seen(), 1);
    let refused = reader.to_log(&mut world.bank, world.config.clone());
    let setting = |result| match result {
        Err(Error::Request(RequestError::BadConfig { setting, .. })) => setting,
        other => panic!("{other:?}"),
    };
    assert_eq!(setting(refused.map(|_| ())), "epoch");
    type Change = fn(&mut LogConfig);
    let checks: [(&str, Change); 9] = [
        ("epoch", |config| config.epoch = 0),
        ("depth", |config| config.depth = 0),
        ("batch_bytes", |config| config.batch_bytes = 9 * 4096),
        ("segment_bytes", |config| config.segment_bytes = 1000),
        ("page_bytes", |config| config.page_bytes = 256),
        ("page_bytes", |config| config.page_bytes = 3 * 512),
        ("page_bytes", |config| config.page_bytes = 8192),
        ("regions", |config| config.regions.clear()),
        ("regions", |config| config.regions.push(config.regions[0])),
    ];
    for (name, change) in checks {
        let mut config = world.config.clone();
        change(&mut config);
        assert_eq!(setting(config.check().map_err(Error::from)), name);
    }
}

/// Batch 1 is lost and 2 lands; the next run is cut off twice before it gets anywhere.
#[test]
fn batches_beyond_a_gap_never_come_back() {
    let mut world = World::new(config(2, 4, 8, 1));
    world.put(3900, 1).expect("room");
    world.put(3900, 2).expect("room");
    world.dispatch();
    world.bank.tear(&world.flights.pop().expect("batch 2"), |_| true);
    world.reopen(Seq::FIRST);
    assert_eq!(world.model.len(), 0);
    world.put(3900, 3).expect("room");
    world.put(3900, 4).expect("room");
    world.dispatch();
    world.bank.tear(&world.flights.pop().expect("batch 2"), |_| false);
    world.reopen(Seq::FIRST);
    world.put(3900, 5).expect("room");
    world.dispatch();
    world.bank.tear(&world.flights.pop().expect("batch 1"), |_| true);
    world.reopen(Seq::FIRST);
    assert_eq!(world.model.len(), 1, "batch 2 of epoch 1 follows another batch 1");
    world.put(3900, 6).expect("room");
    world.drain();
    world.reopen(Seq::FIRST);
}

/// The sector missing from a torn batch arrives as part of another batch with the same bytes there.
#[test]
fn a_torn_batch_is_not_completed_by_a_later_one() {
    let mut world = World::new(config(1, 4, 8, 2));
    world.append(7, b"lost", Urgency::Relaxed, Quota::User).expect("room");
    world.put(6000, 0xaa).expect("room");
    world.dispatch();
    world.bank.tear(&world.flights[0], |sector| sector != 5);
    world.reopen(Seq::FIRST);
    assert_eq!(world.model.len(), 0);
    world.append(7, b"next", Urgency::Relaxed, Quota::User).expect("room");
    world.put(6000, 0xaa).expect("room");
    world.dispatch();
    world.bank.tear(&world.flights[0], |sector| sector == 5);
    world.reopen(Seq::FIRST);
    assert_eq!(world.model.len(), 0);
}

#[test]
fn a_missing_batch_that_a_later_one_attests_is_damage() {
    let mut world = World::new(config(1, 4, 8, 1));
    for fill in 0..3 {
        world.put(100, fill).expect("room");
        world.drain();
    }
    world.bank.media[0][8192 + 200] ^= 1;
    match world.replay(Seq::FIRST) {
        Err(Error::Damaged(damage)) => {
            assert_eq!(damage.location, Some(Location { device: DeviceId(0), offset: 8192 }));
            assert_eq!(damage.what, "log batch 2");
        }
        other => panic!("{other:?}"),
    }
    world.bank.media[0][8192 + 200] ^= 1;
    world.bank.media[0][12288 + 200] ^= 1;
    assert_eq!(
        world.replay(Seq::FIRST).map(|found| found.len()),
        Ok(2),
        "nothing attests the youngest"
    );
    assert!(
        matches!(world.replay(Seq::new(5)), Err(Error::Damaged(_))),
        "record 4 was never there"
    );
}

#[test]
fn damage_below_replay_from_does_no_harm() {
    let mut world = World::new(config(1, 4, 8, 1));
    for fill in 0..4 {
        world.put(100, fill).expect("room");
        world.drain();
    }
    for at in [4096, 4096 + 200, 8192] {
        world.bank.media[0][at] ^= 1;
    }
    assert_eq!(world.replay(Seq::new(4)).map(|found| found.len()), Ok(1));
}

/// A batch in whose segment all records are released may be overwritten in part, behind its header:
/// by a batch that begins before it, and that a power cut has torn.
#[test]
fn the_record_before_may_be_gone_where_its_header_is_not() {
    let mut world = World::new(config(1, 4, 4, 4));
    for bytes in [64, 64, 3 * 2000, 64] {
        world.put(bytes, 1).expect("room");
        world.drain();
    }
    // Batches on pages 0, 1, and 2 to 3; record 4 begins the next segment.
    world.bank.media[0][4096 + 2 * 4096 + 4096] ^= 1;
    assert_eq!(world.replay(Seq::new(4)).map(|found| found.len()), Ok(1), "3 is not needed");
    assert!(matches!(world.replay(Seq::new(3)), Err(Error::Damaged(_))));
}

#[test]
fn records_of_other_epochs_and_stores_do_not_pass_and_dummies_are_marked() {
    let mut record = vec![7; RECORD_HEADER_BYTES + 9];
    let seed = format::record_seed(&STORE, 5);
    format::seal_record(&mut record, seed, StreamId(3), Seq::new(12), true);
    let read = format::decode_record(&record, seed).expect("the same seed");
    assert_eq!(
        (read.seq, read.stream, read.payload, read.valid),
        (Seq::new(12), StreamId(3), &[7; 9][..], true)
    );
    for other in [format::record_seed(&STORE, 6), format::record_seed(b"another store...", 5)] {
        assert_eq!(format::decode_record(&record, other), Err(Invalid::Checksum));
    }
    format::seal_record(&mut record, seed, StreamId(3), Seq::NONE, false);
    assert!(!format::decode_record(&record, seed).expect("a dummy").valid);
}

#[test]
fn readers_skip_dummies() {
    let mut world = World::new(config(1, 4, 8, 1));
    world.put(100, 1).expect("room");
    world.dispatch();
    let request = world.flights.remove(0);
    let (offset, batch) = write(&request);
    let mut batch = batch.to_vec();
    let mut header = header(&request);
    let at = header.records_end();
    let seed = format::record_seed(&STORE, header.epoch);
    format::seal_record(&mut batch[at..at + 50], seed, StreamId(0), Seq::NONE, false);
    header.record_bytes += 50;
    header.encode(&mut batch);
    world.bank.media[0][offset as usize..offset as usize + 4096].copy_from_slice(&batch);
    world.reopen(Seq::FIRST);
    assert_eq!(world.model.len(), 1);
}

proptest! {
    #[test]
    fn decoders_take_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400), fix: bool) {
        let mut bytes = bytes;
        if fix && bytes.len() >= BATCH_HEADER_BYTES {
            // A header that checks, with any fields.
            bytes[..6].copy_from_slice(b"UpLg\x01\0");
            let crc = crc32c::crc32c(&bytes[..124]);
            bytes[124..128].copy_from_slice(&crc.to_le_bytes());
        }
        let _ = format::decode_record(&bytes, 0);
        if let Ok(header) = BatchHeader::decode(&bytes) {
            let _ = (header.last_seq(), [512, 4096].map(|page_bytes| header.bytes(page_bytes)));
            let _ = format::check_records(&header, &bytes);
        }
    }
}

/// Extends the ring of a device until all steps are done.
fn grow(world: &mut World, more: u64) {
    world.grow(more);
    while world.log.is_growing() {
        world.grow(more);
    }
}

#[test]
fn a_ring_that_is_half_full_becomes_longer_and_goes_on() {
    let mut world = World::new(config(1, 4, 4, 1));
    world.log.want(0, 8 * 4 * 4096);
    for _ in 0..8 {
        world.put(3000, 1).expect("there is room");
        world.drain();
    }
    assert_eq!(world.log.prospect_bytes(), 8 * 4 * 4096, "before it is");
    assert_eq!(world.put(3000, 1), Err(AppendError::Full));
    grow(&mut world, 4);
    assert_eq!(world.log.capacity_bytes(), 8 * 4 * 4096);
    for _ in 0..12 {
        world.put(3000, 1).expect("there is room");
        world.drain();
    }
    world.reopen(Seq::FIRST);
    assert_eq!(world.log.capacity_bytes(), 8 * 4 * 4096, "its device says how long it is");
}

#[test]
fn a_ring_does_not_become_longer_while_something_leads_from_its_end_to_its_beginning() {
    let mut world = World::new(config(1, 4, 4, 1));
    let fill = |world: &mut World, pages: usize| {
        for _ in 0..pages {
            world.append(7, &[1; 3000], Urgency::Now, Quota::Internal).expect("there is room");
            world.drain();
        }
    };
    fill(&mut world, 12);
    world.release(world.log.last().next());
    fill(&mut world, 5);
    // The record before the first that is needed is at the end of the ring.
    world.grow(4);
    assert!(!world.log.is_growing() && world.log.prospect_bytes() == world.log.capacity_bytes());
    world.reopen(world.released);
    world.release(world.log.last().next());
    fill(&mut world, 1);
    grow(&mut world, 4);
    assert_eq!(world.log.capacity_bytes(), 4 * 4 * 4096, "what the ring begins with is not known");
}
