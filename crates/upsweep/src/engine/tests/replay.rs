//! Replay: updates that wait again after a crash, and those that do not.

use super::{World, config, format};
use crate::device::{
    Completion, DeviceError, DeviceId, Devices, Geometry, MemoryDevices, Operation, Request,
};
use crate::engine::directory::BlockId;
use crate::engine::registry::PUT;
use crate::engine::{Access, Config, Core, open};
use crate::placement::Extent;

/// The block that covers a key of the table.
fn block_of(world: &World, key: &str) -> BlockId {
    let found = world.core.base.index.directory().covering(world.space, key.as_bytes());
    found.expect("a table covers every key")
}

fn extent_of(world: &World, block: BlockId) -> Extent {
    world.core.base.index.directory().block(block).extent().expect("it was swept")
}

/// Sweeps one block only.
fn sweep_alone(world: &mut World, block: BlockId) {
    let Core { base, pipeline, .. } = &mut world.core;
    pipeline.start(base, &[block]);
    world.until("the run is published", |core| core.pipeline.is_empty());
}

/// Places images so that the next one of 8 KiB goes to `hole`: nothing above it is free.
fn leave_free_from(world: &mut World, hole: Extent) -> Vec<Extent> {
    let map = &mut world.core.base.index.space_map;
    let mut taken = Vec::new();
    while let Some(extent) = map.allocate_high(4096) {
        if extent.offset < hole.end() {
            map.free(extent);
            break;
        }
        taken.push(extent);
    }
    taken
}

/// Three neighbouring blocks of which the middle one was swept last; for the others older updates
/// wait. In total more waits than fits into a small memory.
fn with_a_young_image_among_old_ones() -> (World, String) {
    let mut config = Config { block_bytes: 8192, memory_bytes: 16 << 20, ..config() };
    config.log_regions[0].bytes = 128 * super::SEGMENT;
    let mut world = World::with(config, 4 << 20);
    let map = &mut world.core.base.index.space_map;
    let low = map.allocate_run(&[4096; 128]).expect("an empty device");
    (0..4000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    world.checkpoint();
    // Free space of which no piece has room for 8 KiB.
    let map = &mut world.core.base.index.space_map;
    low.into_iter().step_by(2).for_each(|extent| map.free(extent));
    let keys: Vec<String> = (0..4000).map(|number| format!("k{number:06}")).collect();
    let second = keys.iter().find(|key| block_of(&world, key) != block_of(&world, &keys[0]));
    let left = block_of(&world, second.expect("the table has many blocks"));
    let place = extent_of(&world, left);
    let at = |world: &World, offset| {
        let is_there = |key: &&String| extent_of(world, block_of(world, key)).offset == offset;
        keys.iter().find(is_there).expect("blocks lie side by side").clone()
    };
    let (middle, right) = (at(&world, place.end()), at(&world, place.end() + 8192));
    let left = at(&world, place.offset);
    let hole = extent_of(&world, block_of(&world, &middle));
    world.add(&middle, 1);
    let block = block_of(&world, &middle);
    sweep_alone(&mut world, block);
    world.add(&left, 1);
    world.add(&right, 1);
    let value = vec![b'v'; 600];
    for number in (1500..4000).step_by(5) {
        world.accept(world.space, PUT, format!("k{number:06}+").as_bytes(), &value);
    }
    world.add(&middle, 1);
    let taken = leave_free_from(&mut world, hole);
    sweep_alone(&mut world, block);
    assert_eq!(extent_of(&world, block), hole, "it is between its old neighbours again");
    let map = &mut world.core.base.index.space_map;
    taken.into_iter().for_each(|extent| map.free(extent));
    (world, middle)
}

#[test]
fn a_sweep_during_replay_does_not_take_an_image_back() {
    let (mut world, middle) = with_a_young_image_among_old_ones();
    let expected = world.get(world.space, &middle);
    let frontier = |world: &World| {
        let block = block_of(world, &middle);
        world.core.base.index.directory().block(block).placement().frontier
    };
    let before = frontier(&world);
    world.config.memory_bytes = world.config.memory_bytes_min();
    let mut world = world.reopen();
    assert!(world.core.metrics().sweep_runs_total.get() > 0, "memory was short during replay");
    assert_eq!(world.get(world.space, &middle), expected, "no update is applied twice");
    assert!(frontier(&world) >= before, "{} after {before}", frontier(&world));
    world.check();
}

/// A bank whose devices could grow, but have room only up to `end`.
struct Exhausted {
    devices: MemoryDevices,
    end: u64,
    allocations: Vec<Completion>,
    refusals: u32,
}

impl Devices for Exhausted {
    fn count(&self) -> u16 {
        self.devices.count()
    }

    fn geometry(&self, device: DeviceId) -> Geometry {
        Geometry { growable: true, ..self.devices.geometry(device) }
    }

    fn submit(&mut self, request: Request) {
        let Operation::Allocate { offset, bytes } = request.operation else {
            return self.devices.submit(request);
        };
        let has_room = offset + bytes <= self.end;
        self.refusals += u32::from(!has_room);
        assert!(self.refusals < 5000, "it asks for room without end");
        self.allocations.push(request.end(has_room.then_some(()).ok_or(DeviceError::NoSpace)));
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.allocations);
        self.devices.reap(completions);
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.allocations);
        self.devices.wait(completions);
    }
}

/// A core that was opened with little memory on devices with room up to `end`, and how often they
/// refused to grow.
fn opened_with_room_to(end: u64) -> (Core, u32) {
    let (world, _) = with_a_young_image_among_old_ones();
    let World { mut devices, mut config, core, .. } = world;
    drop(core);
    devices.wait(&mut Vec::new());
    config.memory_bytes = config.memory_bytes_min();
    config.file_space.step_bytes_min = 64 << 20;
    config.file_space.granule_bytes = 4096;
    let mut devices = Exhausted { devices, end, allocations: Vec::new(), refusals: 0 };
    let core = open(&mut devices, config, &format::registry(), Access::ReadWrite);
    (core.expect("a sound store"), devices.refusals)
}

#[test]
fn replay_makes_room_in_memory_though_the_devices_cannot_grow() {
    let (core, refusals) = opened_with_room_to(4 << 20);
    assert!(refusals > 0, "they were asked to grow");
    let (queues, limit) = (core.base.index.queue_bytes(), core.base.queue_limit_bytes());
    assert!(queues <= limit && !core.is_full(), "{queues} of {limit} bytes");
}

#[test]
fn a_full_store_opens_with_more_memory_than_it_was_given() {
    let (core, refusals) = opened_with_room_to(0);
    assert!(refusals > 0 && core.is_full());
    let (queues, limit) = (core.base.index.queue_bytes(), core.base.queue_limit_bytes());
    assert!(queues > limit, "{queues} of {limit} bytes");
}
