//! Room on the data devices: the reserve for waiting updates, and growth of devices.

use super::ground::{Ground, allocation, data_device, geometry, space};
use super::{SEGMENT, config, format};
use crate::device::{DeviceError, Operation, Request};
use crate::engine::config::DATA_START;
use crate::engine::format::record_format::LoggedUpdate;
use crate::engine::growth::Growth;
use crate::engine::policy::REFUSAL_US;
use crate::engine::registry::{DELETE, PUT};
use crate::engine::{Config, FileSpace};

const GRANULE: u64 = 64 << 10;

/// A store on a file of this many bytes after its superblocks.
fn on_a_file(bytes: u64) -> (Ground, Growth) {
    let file_space = FileSpace {
        step_bytes_min: 4 * GRANULE,
        granule_bytes: GRANULE,
        kept_bytes_min: GRANULE,
        window_us: 1000,
    };
    let config = Config { file_space, ..config() };
    let (data, log) = (geometry(DATA_START + bytes, true), geometry(4096 + 16 * SEGMENT, false));
    (Ground::with(config, data, log), Growth::new(&[true]))
}

fn put(operand: &[u8]) -> [LoggedUpdate<'_>; 1] {
    [LoggedUpdate { space: space(), modifier: PUT, key: b"k", operand }]
}

/// Makes the device perform the request.
fn grow(ground: &mut Ground, growth: &mut Growth, request: Request) {
    let completion = ground.end(request);
    growth.file_space_done(&mut ground.base, &completion);
}

fn refuse(ground: &mut Ground, growth: &mut Growth, request: Request) {
    let completion = ground.fail(request, DeviceError::NoSpace);
    growth.file_space_done(&mut ground.base, &completion);
}

#[test]
fn an_update_without_room_has_a_device_grow_and_then_has_the_room() {
    let (mut ground, mut growth) = on_a_file(GRANULE);
    let (value, bytes) = (format::number(1), 20 * GRANULE);
    assert!(!growth.has_room_for(&ground.base, &put(&value), bytes, 0));
    assert!(growth.grows_for_room(&ground.base));
    growth.pump(&mut ground.base);
    let request = ground.request();
    let (offset, step) = allocation(&request);
    assert_eq!(offset, ground.base.index.space_map.end(data_device()), "at the end of the file");
    assert!(step.is_multiple_of(GRANULE), "{step}");
    growth.pump(&mut ground.base);
    assert!(ground.requests().is_empty(), "one request at a time");
    grow(&mut ground, &mut growth, request);
    assert!(growth.has_room_for(&ground.base, &put(&value), bytes, 0));
    let reserved = growth.reserved_bytes(&ground.base, bytes, 1);
    assert!(ground.base.index.space_map.free_bytes() >= reserved, "the invariant");
    assert!(!growth.grows_for_room(&ground.base), "no caller waits");
}

#[test]
fn what_waits_and_what_is_copied_is_reserved() {
    let (ground, mut growth) = on_a_file(64 * GRANULE);
    let (value, free) = (format::number(1), ground.base.index.space_map.free_bytes());
    assert!(growth.has_room_for(&ground.base, &put(&value), 1000, 0));
    assert!(!growth.has_room_for(&ground.base, &put(&value), 1000, free), "images of its own");
    assert!(!growth.has_room_for(&ground.base, &put(&value), free, 0));
}

#[test]
fn deletions_are_the_way_out_of_full_devices_unless_they_copy_a_block() {
    let (mut ground, mut growth) = on_a_file(GRANULE);
    ground.take_space_but(0);
    let delete = LoggedUpdate { space: space(), modifier: DELETE, key: b"k", operand: &[] };
    let value = format::number(1);
    assert!(growth.has_room_for(&ground.base, &[delete], 10, 0));
    assert!(!growth.has_room_for(&ground.base, &[delete], 10, 4096));
    assert!(!growth.has_room_for(&ground.base, &[delete, put(&value)[0]], 10, 0));
}

#[test]
fn a_device_that_refuses_is_asked_for_less_and_then_for_nothing_until_some_time_has_passed() {
    let (mut ground, mut growth) = on_a_file(GRANULE);
    ground.take_space_but(0);
    let value = format::number(1);
    assert!(!growth.has_room_for(&ground.base, &put(&value), 1000, 0));
    let mut before = u64::MAX;
    let refusals = (0..).find(|_| {
        growth.pump(&mut ground.base);
        let Some(request) = ground.requests().pop() else { return true };
        let (_, step) = allocation(&request);
        assert!(step < before, "{step} after {before}");
        before = step;
        refuse(&mut ground, &mut growth, request);
        false
    });
    assert!(refusals > Some(1), "{refusals:?}");
    assert!(growth.is_out_of_room(&ground.base, true), "neither growth nor a sweep makes room");
    assert!(!growth.is_out_of_room(&ground.base, false), "a sweep may");
    ground.base.now_us += REFUSAL_US;
    growth.pump(&mut ground.base);
    let request = ground.request();
    assert!(allocation(&request).1 > before, "room may have become available");
}

#[test]
fn a_device_that_cannot_grow_is_not_asked() {
    let (mut ground, _) = on_a_file(GRANULE);
    let (mut growth, value) = (Growth::new(&[false]), format::number(1));
    assert!(!growth.has_room_for(&ground.base, &put(&value), 20 * GRANULE, 0));
    assert!(!growth.grows_for_room(&ground.base));
    growth.pump(&mut ground.base);
    assert!(ground.requests().is_empty());
    assert!(growth.is_out_of_room(&ground.base, true));
}

#[test]
fn devices_grow_before_anybody_has_to_wait_and_not_while_the_store_rests() {
    let (mut ground, mut growth) = on_a_file(64 * GRANULE);
    let ahead = growth.reserved_bytes(&ground.base, 0, 0) + 2 * GRANULE;
    ground.take_space_but(ahead / 2);
    ground.base.gate.pause();
    growth.pump(&mut ground.base);
    assert!(ground.requests().is_empty());
    ground.base.gate.resume();
    growth.pump(&mut ground.base);
    assert!(growth.is_under_way());
    allocation(&ground.request());
}

#[test]
fn holes_are_allocated_before_a_file_grows_at_its_end() {
    let (mut ground, mut growth) = on_a_file(64 * GRANULE);
    let end = ground.base.index.space_map.end(data_device());
    growth.find_holes(&mut ground.base);
    let map = &ground.base.index.space_map;
    let (lowest, _) = map.holes(data_device()).next().expect("free granules may be holes");
    assert!(map.free_bytes() < 2 * GRANULE, "holes are not free");
    growth.pump(&mut ground.base);
    let request = ground.request();
    assert_eq!(allocation(&request).0, lowest);
    let holes = ground.base.index.space_map.hole_bytes();
    grow(&mut ground, &mut growth, request);
    let map = &ground.base.index.space_map;
    assert!(map.hole_bytes() < holes && map.end(data_device()) == end);
    assert_eq!(ground.base.metrics.holes_filled_total.get(), 1);
}

#[test]
fn a_hole_that_is_refused_however_short_is_passed_by() {
    let (mut ground, mut growth) = on_a_file(64 * GRANULE);
    growth.find_holes(&mut ground.base);
    let mut offsets = Vec::new();
    for _ in 0..40 {
        growth.pump(&mut ground.base);
        let Some(request) = ground.requests().pop() else { break };
        offsets.push(allocation(&request).0);
        refuse(&mut ground, &mut growth, request);
    }
    assert!(offsets.is_sorted(), "{offsets:?}");
    assert!(offsets.first() < offsets.last(), "the next hole is tried");
}

#[test]
fn space_in_excess_goes_back_piece_by_piece_down_to_what_the_store_keeps() {
    let (mut ground, mut growth) = on_a_file(64 * GRANULE);
    growth.request_punching();
    assert!(growth.is_punching());
    let mut pieces = 0;
    while growth.is_punching() {
        growth.pump(&mut ground.base);
        if let Some(request) = ground.requests().pop() {
            assert!(matches!(request.operation, Operation::Discard { .. }));
            pieces += 1;
            grow(&mut ground, &mut growth, request);
        }
        assert!(pieces < 100, "it never ends");
    }
    let map = &ground.base.index.space_map;
    assert!(pieces > 0 && map.hole_bytes() > 0);
    let reserved = growth.reserved_bytes(&ground.base, 0, 0);
    assert!(map.free_bytes() >= reserved + GRANULE, "the reserve stays");
    let value = format::number(1);
    assert!(growth.has_room_for(&ground.base, &put(&value), 100, 0));
}

#[test]
fn a_device_that_cannot_punch_holes_is_not_asked_again() {
    let (mut ground, mut growth) = on_a_file(64 * GRANULE);
    growth.request_punching();
    growth.pump(&mut ground.base);
    let request = ground.request();
    refuse(&mut ground, &mut growth, request);
    growth.pump(&mut ground.base);
    assert!(ground.requests().is_empty());
    assert!(!growth.is_punching());
}
