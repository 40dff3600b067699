//! Extents that the engine leaves to others.

use super::{SEGMENT, World, config};
use crate::device::{
    Buffer, Class, Devices, Geometry, MemoryDevices, Operation, Request, Token, WriteMode,
};
use crate::engine::ids::SpaceId;
use crate::engine::{Access, open};
use crate::error::{Error, RequestError, RetryError};
use crate::placement::{Extent, UNIT_BYTES};

const BYTES: u32 = 16 * UNIT_BYTES as u32;

fn reserve(world: &mut World, space: SpaceId) -> Extent {
    let (extent, _) = world.core.reserve_extent(space, BYTES).expect("there is room");
    world.until_published();
    extent
}

fn extents(world: &World, space: SpaceId) -> Vec<Extent> {
    world.core.extents_of(space).collect()
}

#[test]
fn an_extent_is_reserved_until_it_is_given_back_whatever_crashes() {
    let mut world = World::new();
    let space = world.space;
    let kept = reserve(&mut world, space);
    world.checkpoint();
    let mut all = vec![kept, reserve(&mut world, space)];
    all.sort_unstable();
    let mut world = world.reopen();
    assert_eq!(extents(&world, space), all, "one is in the checkpoint, the other in the log");
    assert_eq!(world.core.reserved_bytes(), 2 * u64::from(BYTES));
    assert!(all.iter().all(|extent| world.core.space_map().is_used(*extent)));
    let given_back = all[0];
    world.core.give_extent_back(space, given_back).expect("it is reserved");
    assert!(world.core.space_map().is_used(given_back), "not before that is durable");
    world.until_published();
    assert!(!world.core.space_map().is_used(given_back));
    let mut world = world.reopen();
    assert_eq!(extents(&world, space), all[1..]);
    assert!(!world.core.space_map().is_used(given_back));
    world.check();
}

#[test]
fn a_reservation_that_is_not_durable_is_lost_in_a_crash() {
    let mut world = World::new();
    let space = world.space;
    let free = world.core.space_map().free_bytes();
    world.core.reserve_extent(space, BYTES).expect("there is room");
    assert_eq!(world.core.space_map().free_bytes(), free - u64::from(BYTES), "at once");
    assert!(extents(&world, space).is_empty());
    let world = world.reopen();
    assert!(extents(&world, space).is_empty());
    assert_eq!(world.core.space_map().free_bytes(), free);
}

#[test]
fn extents_go_with_their_space_and_with_no_other() {
    let mut world = World::new();
    let (space, other) = (world.space, world.create("other"));
    let of_space = reserve(&mut world, space);
    let of_other = [reserve(&mut world, other), reserve(&mut world, other)];
    world.core.create_snapshot(Some("s"), None, [1; 16]).expect("a new name");
    world.core.drop_space(other).expect("it is there");
    // Accepted before the drop takes effect, and too late.
    let (late, _) = world.core.reserve_extent(other, BYTES).expect("there is room");
    world.until_published();
    assert_eq!(extents(&world, space), [of_space]);
    assert_eq!(world.core.reserved_bytes(), u64::from(BYTES));
    let map = world.core.space_map();
    assert!(of_other.iter().chain([&late]).all(|extent| !map.is_used(*extent)));
    let mut world = world.reopen();
    assert_eq!(extents(&world, space), [of_space]);
    world.check();
}

#[test]
fn the_engine_never_writes_to_a_reserved_extent() {
    let mut world = World::with(config(), 1 << 20);
    let space = world.space;
    let extent = reserve(&mut world, space);
    let pattern = vec![0xa5; BYTES as usize];
    let run = |devices: &mut MemoryDevices, operation| {
        devices.submit(Request {
            device: extent.device,
            token: Token(7),
            hint: Class::Upkeep.into(),
            operation,
        });
        let mut done = Vec::new();
        devices.wait(&mut done);
        let completion = done.pop().expect("nothing else is in flight");
        completion.result.expect("a sound device");
        completion.buffer.map(|buffer| buffer.to_vec()).unwrap_or_default()
    };
    world.until("nothing is in flight", |core| !core.is_writing());
    let (offset, buffer) = (extent.offset, Buffer::copy_of(&pattern));
    run(&mut world.devices, Operation::Write { offset, buffer, mode: WriteMode::Stable });
    for round in 0..30 {
        for key in 0..200 {
            world.add(&format!("{key:05}"), round);
        }
        world.sweep();
        world.checkpoint();
    }
    world.until("nothing is in flight", |core| !core.is_writing());
    let buffer = Buffer::zeroed(BYTES as usize);
    assert_eq!(run(&mut world.devices, Operation::Read { offset, buffer }), pattern);
    world.check();
}

#[test]
fn what_cannot_be_reserved_or_given_back_is_refused() {
    let mut world = World::new();
    let space = world.space;
    for bytes in [0, 1, 4095, 4097] {
        let refused = world.core.reserve_extent(space, bytes).expect_err("not in whole units");
        assert_eq!(refused, RequestError::ExtentLength { bytes }.into());
    }
    let nowhere = world.core.reserve_extent(space.plus(90), BYTES);
    assert!(matches!(nowhere, Err(Error::Request(RequestError::NoTable(_)))), "{nowhere:?}");
    let snapshot = world.core.create_snapshot(Some("s"), None, [1; 16]).expect("a new name");
    world.until_published();
    let of_snapshot = world.core.reserve_extent(snapshot.clones[0].1, BYTES);
    assert!(matches!(of_snapshot, Err(Error::Request(RequestError::ReadOnly(_)))));
    let other = world.create("other");
    let extent = reserve(&mut world, space);
    let refused = world.core.give_extent_back(other, extent).expect_err("not its own");
    assert_eq!(refused, RequestError::NoExtent(extent.location()).into());
    world.core.give_extent_back(space, extent).expect("its own");
    world.core.give_extent_back(space, extent).expect_err("once");
}

#[test]
fn a_reservation_leaves_what_waiting_updates_need() {
    let mut world = World::with(config(), 1 << 20);
    let space = world.space;
    let mut reserved = 0;
    let refused = loop {
        match world.core.reserve_extent(space, BYTES) {
            Ok(_) => reserved += 1,
            Err(error) => break error,
        }
        world.until_published();
    };
    assert!(matches!(refused, Error::Retry(RetryError::Full { .. })), "{refused:?}");
    assert!(reserved > 5, "{reserved}");
    for key in 0..50 {
        world.add(&format!("{key:05}"), 1);
    }
    world.sweep();
    world.checkpoint();
    world.check();
}

#[test]
fn a_file_grows_for_a_reservation() {
    let config = config();
    let geometry = |size_bytes, growable| Geometry {
        size_bytes,
        logical_block_bytes: 512,
        physical_block_bytes: 4096,
        rotational: false,
        growable,
    };
    let log = geometry(4096 + 16 * SEGMENT, false);
    let mut devices = MemoryDevices::new(vec![geometry(1 << 20, true), log], 1);
    crate::engine::create(&mut devices, &config).expect("a new store");
    let registry = super::format::registry();
    let core = open(&mut devices, config.clone(), &registry, Access::ReadWrite).expect("a store");
    let mut world =
        World { core, devices, config, now_us: 0, space: SpaceId::NONE, room_events: 0 };
    world.space = world.create("t");
    let (space, bytes) = (world.space, 8 << 20);
    let mut waits = 0;
    let extent = loop {
        match world.core.reserve_extent(space, bytes) {
            Ok((extent, _)) => break extent,
            Err(Error::Retry(RetryError::Busy)) if waits < 100 => waits += 1,
            Err(error) => panic!("{error}"),
        }
        world.step();
    };
    assert!(waits > 0, "the device was shorter than that");
    world.until_published();
    assert_eq!(extents(&world.reopen(), space), [extent]);
}
