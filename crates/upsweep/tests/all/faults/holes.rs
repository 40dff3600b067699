//! Free space of files that goes back to their file system, and what somebody else may do with it
//! there: nothing is lost, and what was accepted has room.

use super::{cut_at_every_step, recover_and_go_on};
use crate::support::{DATA, KEYS, World};
use upsweep::layers::device::{Devices, Simulated};
use upsweep::layers::engine::FileSpace;
use upsweep::{Error, RetryError};

/// Steps and reserves that suit data of less than a MiB. Each step of a world takes a second.
const SMALL: FileSpace = FileSpace {
    step_bytes_min: 64 << 10,
    granule_bytes: 16 << 10,
    kept_bytes_min: 0,
    window_us: 10_000_000,
};
/// The same, and nothing goes back by itself.
const PATIENT: FileSpace = FileSpace { window_us: u64::MAX, ..SMALL };
/// Steps in which all that is in excess goes back.
const STEPS: u32 = 400;
/// Keys that come and go.
const MORE: std::ops::Range<u32> = KEYS..KEYS + 1500;

/// Bytes that the data device has space for.
fn allocated(world: &World) -> u64 {
    let size = world.devices.bank.geometry(DATA).size_bytes;
    size - world.devices.bank.bank().unallocated_bytes(DATA, 0, size)
}

fn rest(world: &mut World) {
    for _ in 0..STEPS {
        world.step();
    }
}

fn fill(world: &mut World) {
    MORE.for_each(|number| world.add(number).expect("accepted"));
    world.flush().expect("durable");
    world.sweep().expect("swept");
}

fn empty(world: &mut World) {
    MORE.for_each(|number| world.delete(number).expect("accepted"));
    world.sweep().expect("swept");
    world.checkpoint().expect("a checkpoint");
}

/// An open store without a key in [`MORE`], which had all of them.
fn emptied(seed: u64) -> World {
    emptied_with(seed, SMALL)
}

fn emptied_with(seed: u64, file_space: FileSpace) -> World {
    let mut world = World::with_file_space(seed, file_space);
    world.open().expect("opens");
    world.add_all(1).expect("accepted");
    fill(&mut world);
    empty(&mut world);
    world
}

#[test]
fn free_space_goes_back_and_is_allocated_again() {
    let mut world = emptied(1);
    rest(&mut world);
    let least = allocated(&world);
    assert!(least < 512 << 10, "{least} bytes for {KEYS} keys");
    fill(&mut world);
    rest(&mut world);
    let most = allocated(&world);
    assert!(most > least + (256 << 10), "{most} bytes after {least}");
    empty(&mut world);
    rest(&mut world);
    let left = allocated(&world);
    assert!(left < (least + most) / 2, "{left} bytes after {least} and {most}");
    let metrics = world.core().metrics().read();
    assert!(metrics.holes_punched_total > 2 && metrics.holes_filled_total > 2, "{metrics:?}");
    fill(&mut world);
    world.check();
    world.stop();
    world.check_sound();
    world.open().expect("opens");
    for number in MORE {
        assert_eq!(world.get(number), Ok(world.expected(number)), "key {number}");
    }
    world.check();
}

#[test]
fn only_what_was_free_for_a_while_goes_back_unless_asked_for() {
    let mut world = emptied_with(2, PATIENT);
    rest(&mut world);
    let before = allocated(&world);
    assert_eq!(world.core().metrics().holes_punched_total.get(), 0);
    world.core().request_punching();
    world.until(|core| !core.is_punching()).expect("punched");
    assert!(allocated(&world) < before / 2, "{} bytes of {before}", allocated(&world));
    world.check();
}

#[test]
fn what_an_earlier_session_left_goes_back_too() {
    let mut world = emptied_with(3, PATIENT);
    world.stop();
    let before = allocated(&world);
    world.open().expect("opens");
    world.core().request_punching();
    world.until(|core| !core.is_punching()).expect("punched");
    assert!(allocated(&world) < before / 2, "{} bytes of {before}", allocated(&world));
    world.check();
}

#[test]
fn a_store_whose_space_others_took_is_full_and_goes_on_once_there_is_space() {
    let mut world = emptied(4);
    rest(&mut world);
    let capacity = allocated(&world);
    world.devices.bank.set_capacity(DATA, capacity);
    let refused = MORE.map(|number| (number, world.add(number))).find(|(_, added)| added.is_err());
    let (number, error) = refused.expect("it is full before all are there");
    assert!(matches!(error, Err(Error::Retry(RetryError::Full { .. }))), "{error:?}");
    world.check();
    assert_eq!(world.get(number - 1), Ok(world.expected(number - 1)));
    world.devices.bank.set_capacity(DATA, u64::MAX);
    let mut tries = 0;
    while world.add(number).is_err() {
        world.step();
        tries += 1;
        assert!(tries < 1000, "space is there, and the store does not take it");
    }
    world.flush().expect("durable");
    world.sweep().expect("swept");
    world.check();
    world.stop();
    world.check_sound();
}

#[test]
fn a_hole_that_is_refused_does_not_hide_space_behind_it() {
    let mut world = World::new(5);
    let hole = 1 << 20;
    world.devices.bank.bank_mut().punch_now(DATA, 256 << 10, hole);
    let capacity = allocated(&world);
    world.devices.bank.set_capacity(DATA, capacity);
    world.open().expect("opens");
    let error = (MORE.start..100_000).find_map(|number| world.add(number).err());
    let capacity_bytes = (4 << 20) - 4 * 4096 - hole;
    assert_eq!(error, Some(Error::Retry(RetryError::Full { capacity_bytes })));
    world.check();
}

#[test]
fn a_device_that_cannot_punch_holes_is_asked_once() {
    let mut world = emptied(6);
    let before = world.core().metrics().holes_punched_total.get();
    world.devices.bank.fail_after(0, upsweep::layers::device::FailureKind::Writes);
    world.core().request_punching();
    world.until(|core| !core.is_punching()).expect("it gives up");
    world.devices.bank.stop_failing();
    rest(&mut world);
    assert_eq!(world.core().metrics().holes_punched_total.get(), before + 1);
    fill(&mut world);
    world.check();
}

#[test]
fn a_power_cut_at_any_step_while_space_goes_back_loses_nothing_acknowledged() {
    for window_us in [0, 4_000_000] {
        cut_at_every_step(|seed| {
            World::with_file_space(seed, FileSpace { window_us, granule_bytes: 4096, ..SMALL })
        });
    }
}

#[test]
fn a_power_cut_while_space_goes_back_and_forth_loses_nothing_acknowledged() {
    for cut_at in 0..60 {
        let mut world = emptied(7);
        let (_, finished) = world.cut_during(cut_at, |world| {
            world.core().request_punching();
            world.until(|core| !core.is_punching())?;
            world.add_all(4)?;
            world.sweep()
        });
        recover_and_go_on(&mut world);
        assert!(!finished || cut_at > 20, "only {cut_at} steps");
    }
}
