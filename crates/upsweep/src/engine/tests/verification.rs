//! Verification and driving: everything is read, nothing is written, and it terminates.

use super::{World, format};
use crate::device::Simulated;
use crate::engine::{drive, verify};

fn filled() -> World {
    let mut world = World::new();
    (0..1000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    world.checkpoint();
    world.add("k000001", 1);
    world.until("it is durable", |core| core.durable() == core.last());
    world.until("it rests", |core| !core.is_active());
    world
}

#[test]
fn a_sound_store_is_read_as_a_whole_and_nothing_is_written() {
    let mut world = filled();
    let digest = world.devices.digest();
    let report = verify(&mut world.devices, world.config.clone(), &format::registry());
    let report = report.expect("it opens");
    assert_eq!((report.damage.len(), report.records, report.waiting), (0, 1000, 1));
    assert_eq!(report.blocks, world.core.space_size(world.space).blocks);
    assert_eq!(world.devices.digest(), digest);
}

#[test]
fn every_torn_block_is_named_and_the_others_are_looked_at_all_the_same() {
    let mut world = filled();
    let index = &world.core.base.index;
    let extents: Vec<_> = index
        .placed()
        .iter()
        .filter_map(|(_, _, id)| index.directory().block(*id).extent())
        .collect();
    assert!(extents.len() > 3);
    for extent in &extents[1..3] {
        world.devices.poke(extent.device, extent.offset + 8, &[0x55; 4]);
    }
    let report = verify(&mut world.devices, world.config.clone(), &format::registry());
    let report = report.expect("it opens");
    let mut found: Vec<u64> =
        report.damage.iter().filter_map(|damage| Some(damage.location?.offset)).collect();
    found.sort_unstable();
    let mut expected: Vec<u64> = extents[1..3].iter().map(|extent| extent.offset).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(report.blocks, extents.len() as u64);
}

#[test]
fn a_core_is_driven_until_it_is_done_or_nothing_more_can_happen() {
    let mut world = filled();
    let World { core, devices, .. } = &mut world;
    assert!(!drive::step(core, devices, 1), "it rests");
    core.request_checkpoint();
    let checkpoints = core.metrics().checkpoints_total.get();
    drive::until(core, devices, |core| core.metrics().checkpoints_total.get() > checkpoints);
    assert!(core.metrics().checkpoints_total.get() > checkpoints);
    drive::until(core, devices, |_| false);
    assert!(!core.is_active() && core.is_quiet(), "waiting for what never happens returns");
}
