//! Waiting updates that are spilled to the data devices: nothing is lost, nothing is applied twice,
//! and damage is told, whatever happens between a spill and the sweep that ends it.

use super::recover_and_go_on;
use crate::support::{DATA, KEYS, Live, SEGMENT, World, key};
use upsweep::Error;
use upsweep::layers::engine::format::image_format::ImageKind;
use upsweep::metrics::{Finder, Readings};

/// Updates that go to spill segments, twice, and a sweep that empties them.
fn workload(world: &mut World) -> Result<(), Error> {
    world.add_all(1)?;
    world.spill()?;
    world.add_all(2)?;
    world.spill()?;
    world.checkpoint()?;
    world.add_all(1)?;
    world.sweep()
}

fn spill_segments(world: &mut World) -> Vec<Live> {
    let mut live = world.live_images();
    live.retain(|image| image.kind == ImageKind::SpillSegment);
    live
}

#[test]
fn spilled_updates_are_seen_kept_and_applied_once() {
    let mut world = World::spilling(1);
    world.add_all(1).expect("accepted");
    world.spill().expect("spilled");
    world.check();
    world.add_all(1).expect("accepted");
    world.spill().expect("spilled");
    world.check();
    assert!(world.core().spill_segments_size().0 > 2, "several spill segments, one upon the other");
    assert_eq!(world.core().spilled_entries(), u64::from(2 * KEYS));
    world.stop();
    let report = world.verify().expect("verified");
    assert_eq!(report.damage, []);
    assert_eq!(report.waiting, u64::from(2 * KEYS));
    assert!(report.spill_segments > 2);
    world.open().expect("opens");
    assert_eq!(world.core().spilled_entries(), u64::from(2 * KEYS));
    world.check();
    world.sweep().expect("swept");
    assert_eq!((world.core().spilled_entries(), world.core().spill_segments_size()), (0, (0, 0)));
    world.check();
    world.checkpoint().expect("a checkpoint");
    assert_eq!(spill_segments(&mut world).len(), 0, "their space is free");
    assert_eq!(world.core().audit(), Vec::<String>::new());
    world.stop();
    world.check_sound();
}

#[test]
fn a_query_reads_only_spill_segments_that_have_its_key() {
    let mut world = World::spilling(2);
    let wanted = 7;
    for number in (0..KEYS).filter(|number| *number != wanted) {
        world.add(number).expect("accepted");
    }
    world.spill().expect("spilled");
    // Whether the block is in the cache or not, what is read beside it tells.
    let reads = |world: &mut World, number: u32| {
        let before = world.core().metrics().query_reads_total.get();
        let found = world.get(number).expect("readable");
        assert_eq!(found, world.expected(number));
        world.core().metrics().query_reads_total.get() - before
    };
    reads(&mut world, wanted);
    assert_eq!(reads(&mut world, wanted), 0, "the block is in the cache");
    assert_eq!(
        reads(&mut world, wanted + 1),
        1,
        "its spill segment, or the block and its spill segment"
    );
}

#[test]
fn a_power_cut_at_any_step_of_spills_loses_nothing_acknowledged() {
    let mut step = 0;
    loop {
        let mut world = World::spilling(step);
        let (_, finished) = world.cut_during(step, workload);
        recover_and_go_on(&mut world);
        if finished {
            break;
        }
        step += 1;
    }
    assert!(step > 60, "the workload has only {step} steps");
}

#[test]
fn a_power_cut_at_any_step_of_carried_spills_loses_nothing_acknowledged() {
    let (mut step, mut carried) = (0, 0);
    loop {
        let mut world = World::spilling_late(step);
        let (_, finished) = world.cut_during(step, |world| {
            world.add_all(1)?;
            world.fill_log(12)?;
            world.add_all(2)?;
            carried += world.core().metrics().spills_carried_total.get();
            world.checkpoint()
        });
        recover_and_go_on(&mut world);
        if finished {
            break;
        }
        step += 1;
    }
    assert!(step > 60, "the workload has only {step} steps");
    assert!(carried > 0, "no spill is carried");
}

#[test]
fn a_log_full_of_few_updates_is_released_by_spills_alone() {
    let segments = 40;
    let mut world = World::spilling_for_log(4, segments);
    let before = world.core().metrics().read();
    // Each takes a page of the log, half of which is filled eight times: below the ten spill
    // segments upon each other from which the sweep has to help.
    let pages = 4 * segments * SEGMENT / 4096;
    for number in 0..pages as u32 {
        world.add(number % KEYS).expect("accepted");
        world.flush().expect("durable");
    }
    let after = world.core().metrics().read();
    assert!(after.spills_total >= before.spills_total + 6, "{after:?}");
    assert_eq!(after.sweep_runs_total, before.sweep_runs_total, "nothing is swept");
    assert_eq!(after.sweep_cycles_total, before.sweep_cycles_total, "nor looked at for that");
    let refusals = |found: &Readings| found.admission_refusals_total["log"];
    assert_eq!(refusals(&after), refusals(&before), "nobody waits");
    world.check();
}

#[test]
fn a_damaged_spill_segment_is_told_and_what_it_does_not_concern_is_not() {
    let count = {
        let mut world = World::spilling(3);
        world.add_all(1).expect("accepted");
        world.spill().expect("spilled");
        spill_segments(&mut world).len()
    };
    assert!(count > 2);
    for damaged in 0..count {
        let mut world = World::spilling(3);
        world.add_all(1).expect("accepted");
        world.spill().expect("spilled");
        let segment = spill_segments(&mut world).swap_remove(damaged);
        world.devices.bank.flip_bit(DATA, segment.offset + 100, 3);
        world.stop();
        assert_eq!(world.verify().expect("looks").damage.len(), 1);
        for reopened in [false, true] {
            if reopened {
                world.stop();
            }
            world.open().expect("opens all the same");
            let errors = world.check_or_damaged();
            assert!(!errors.is_empty() && errors.len() < KEYS as usize, "{} errors", errors.len());
        }
        // A sweep gives the updates up that cannot be read, and nothing else.
        world.sweep().expect("swept");
        let errors = world.check_or_damaged();
        assert!(!errors.is_empty() && errors.len() < KEYS as usize, "{} errors", errors.len());
        assert!(world.core().metrics().damage_total[Finder::Sweep].get() > 0);
        let first = (0..KEYS).find(|number| key(*number) >= segment.key).expect("a key");
        assert!(world.get(first).is_err());
    }
}
