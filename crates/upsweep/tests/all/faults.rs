//! Every fault of the fault model (see `device/sim/hostile.rs` and `docs/durability.md`) against
//! the whole engine: it survives the fault, or it reports it, and it never gives a wrong answer.

mod conditional;
mod holes;
mod spills;

use crate::support::{DATA, KEYS, LOG, LOG_START, PAGE, SEGMENT, SEGMENTS, World};
use upsweep::layers::device::{DeviceError, DeviceId, FailureKind, Simulated};
use upsweep::layers::engine::DATA_START;
use upsweep::layers::engine::format::checkpoint_format::{SLOT_BYTES, decode_superblock};
use upsweep::layers::engine::format::image_format::ImageKind;
use upsweep::layers::log::Seq;
use upsweep::layers::log::format::BatchHeader;
use upsweep::{ClosedError, Damage, Error, Location, RetryError};

/// Offsets of the superblock slots on the first data device.
const SLOTS: [u64; 2] = [4096, 8192];

/// Updates, sweeps, checkpoints and two more sessions, on a new store: what power cuts interrupt.
fn workload(world: &mut World) -> Result<(), Error> {
    world.open()?;
    world.add_all(1)?;
    world.sweep()?;
    world.checkpoint()?;
    for number in 0..KEYS {
        world.add(number)?;
    }
    world.sweep()?;
    world.add_all(1)?;
    world.stop();
    world.open()?;
    world.add_all(1)?;
    world.checkpoint()?;
    for number in 0..KEYS / 2 {
        world.add(number)?;
    }
    world.sweep()?;
    world.stop();
    world.open()?;
    world.add_all(1)?;
    world.sweep()
}

/// Opens the store after a crash, checks it, works on, and checks it once more from outside.
fn recover_and_go_on(world: &mut World) {
    world.open().expect("recovers");
    world.check_crash();
    world.add_all(1).expect("takes updates");
    world.sweep().expect("sweeps");
    world.check();
    assert_eq!(world.quarantined(), []);
    world.stop();
    world.check_sound();
}

/// The damage that an error reports.
fn damage(error: Error) -> Damage {
    match error {
        Error::Damaged(damage) => damage,
        other => panic!("damage was expected: {other}"),
    }
}

/// The device that is damaged.
fn device_of(damage: &Damage) -> DeviceId {
    damage.location.expect("it is on a device").device
}

fn at(device: DeviceId, offset: u64) -> Option<Location> {
    Some(Location { device, offset })
}

#[test]
fn without_faults_the_model_holds() {
    let mut world = World::new(1);
    workload(&mut world).expect("no fault");
    world.check();
    world.stop();
    world.check_sound();
    world.open().expect("opens");
    world.check();
}

/// Cuts the power at each step of the workload in turn, in a world of its own.
fn cut_at_every_step(world: impl Fn(u64) -> World) {
    let mut step = 0;
    loop {
        let mut world = world(step);
        let (_, finished) = world.cut_during(step, workload);
        recover_and_go_on(&mut world);
        if finished {
            break;
        }
        step += 1;
    }
    assert!(step > 200, "the workload has only {step} steps");
}

#[test]
fn a_power_cut_at_any_step_loses_nothing_acknowledged() {
    cut_at_every_step(World::new);
}

#[test]
fn a_power_cut_at_any_step_with_small_log_pages_loses_nothing_acknowledged() {
    cut_at_every_step(|seed| World::with_log_pages(seed, 512));
}

#[test]
fn a_power_cut_at_any_step_of_recovery_loses_nothing_acknowledged() {
    for seed in 0..4 {
        let crashed = || {
            let mut world = World::swept(seed);
            world.add_all(1).expect("accepted");
            world.cut_during(10 + 7 * seed, |world| {
                (0..KEYS).try_for_each(|number| world.add(number))?;
                world.sweep()
            });
            world
        };
        let mut step = 0;
        loop {
            let mut world = crashed();
            let (_, finished) = world.cut_during(step, World::open);
            // Once more, a little later: recovery of an interrupted recovery.
            world.cut_during(step / 2, World::open);
            recover_and_go_on(&mut world);
            if finished {
                break;
            }
            step += 1;
        }
        assert!(step > 20, "recovery has only {step} steps");
    }
}

#[test]
fn a_power_cut_at_any_step_with_a_full_log_loses_nothing_acknowledged() {
    // So little log that callers wait for the sweep, and checkpoints carry its changes.
    let mut step = 0;
    loop {
        let mut world = World::with_log(step, 4);
        let (_, finished) = world.cut_during(step, |world| {
            world.open()?;
            world.add_all(9)?;
            world.checkpoint()
        });
        recover_and_go_on(&mut world);
        if finished {
            break;
        }
        step += 1;
    }
    assert!(step > 100, "the workload has only {step} steps");
}

#[test]
fn unflushed_writes_may_be_kept_lost_or_torn() {
    let (mut kept, mut lost, mut torn) = (0, 0, 0);
    for seed in 100..140 {
        let mut world = World::swept(seed);
        let (cut, _) = world.cut_during(1 + seed % 19, |world| {
            world.add_all(2)?;
            world.sweep()
        });
        kept += cut.writes_kept;
        lost += cut.writes_lost;
        torn += cut.writes_torn;
        recover_and_go_on(&mut world);
    }
    assert!(kept > 0 && lost > 0 && torn > 0, "{kept} kept, {lost} lost, {torn} torn");
}

#[test]
fn a_misdirected_block_is_reported_with_its_place_and_the_others_answer() {
    // The place is free; or it is another block's.
    for hits_another in [false, true] {
        let mut world = World::swept(7);
        let (victim, number) = world.some_block();
        let free = world.devices.bank.bank().peek(DATA, 0, 4 << 20).len() as u64 - (64 << 10);
        world.add(number).expect("accepted");
        world.flush().expect("durable");
        let to = if hits_another { victim.offset } else { free };
        world.devices.bank.misdirect_next_write(DATA, to);
        world.sweep().expect("the device says that all is well");
        let errors = world.check_or_damaged();
        assert!(!errors.is_empty(), "the block is nowhere");
        for error in errors {
            let damage = damage(error);
            assert_eq!(device_of(&damage), DATA);
            assert!(damage.what.starts_with("block \"key "), "{damage}");
            assert!(damage.what.ends_with(&format!("of space {}", world.space)), "{damage}");
        }
        world.stop();
        let report = world.verify().expect("verified");
        assert!(!report.damage.is_empty());
    }
}

#[test]
fn a_misdirected_log_batch_is_missed_as_soon_as_a_later_one_attests_it() {
    let mut world = World::swept(8);
    world.devices.bank.misdirect_next_write(LOG, LOG_START + 11 * SEGMENT);
    world.add_all(1).expect("the device says that all is well");
    world.add_all(1).expect("accepted");
    world.check();
    world.stop();
    let found = damage(world.open().expect_err("a batch is missing"));
    assert_eq!(device_of(&found), LOG);
    assert!(found.what.starts_with("log batch "), "{found}");
    let report = world.verify().expect("verified");
    assert_eq!(report.damage, [found]);
}

#[test]
fn a_bit_flip_in_a_block_is_reported_and_its_updates_are_kept_apart() {
    let mut world = World::swept(9);
    let (block, number) = world.some_block();
    world.stop();
    world.devices.bank.flip_bit(DATA, block.offset + 100, 3);
    world.open().expect("opens: blocks are read when they are needed");
    let found = damage(world.get(number).expect_err("damaged"));
    assert_eq!(found.location, at(DATA, block.offset));
    let what = format!("block {:?} of space {}", String::from_utf8_lossy(&block.key), world.space);
    assert_eq!((found.what.as_str(), found.reason.as_str()), (&*what, "malformed checksum"));
    let damaged = world.check_or_damaged().len();
    assert!(damaged < KEYS as usize / 2, "one block is damaged, not {damaged} keys");

    // Updates of the damaged block go to the quarantine; the others take effect.
    world.add_all(1).expect("accepted");
    world.sweep().expect("swept");
    assert_eq!(world.check_or_damaged().len(), damaged);
    assert_eq!(world.quarantined().len(), damaged);
    world.stop();
    let report = world.verify().expect("verified");
    assert_eq!(report.damage, [found]);
    world.open().expect("opens");
    assert_eq!(world.quarantined().len(), damaged);
}

#[test]
fn a_bit_flip_in_a_page_node_or_root_of_the_checkpoint_keeps_the_store_closed() {
    for kind in [ImageKind::Page, ImageKind::Node, ImageKind::Root] {
        let mut world = World::swept(10);
        let images = world.live_images();
        let newest = images.iter().rev().find(|image| image.kind == kind);
        let offset = newest.expect("a checkpoint has all").offset;
        world.stop();
        world.devices.bank.flip_bit(DATA, offset + 48, 0);
        let found = damage(world.open().expect_err("the directory is damaged"));
        assert_eq!(found.location, at(DATA, offset));
        assert!(found.what.starts_with(&format!("{kind:?} ")), "{found}");
        assert_eq!(found.reason, "malformed checksum");
        let report = world.verify().expect("verified");
        assert_eq!(report.damage, [found]);
    }
}

#[test]
fn a_bit_flip_in_one_superblock_is_survived_or_reported_and_in_both_reported() {
    for slot in SLOTS {
        let mut world = World::swept(11);
        world.add_all(1).expect("accepted");
        world.stop();
        world.devices.bank.flip_bit(DATA, slot + 50, 7);
        match world.open() {
            Ok(()) => {
                world.check();
                world.stop();
                world.check_sound();
            }
            Err(error) => drop(damage(error)),
        }
    }
    let mut world = World::swept(11);
    world.stop();
    SLOTS.iter().for_each(|slot| world.devices.bank.flip_bit(DATA, slot + 50, 7));
    let found = damage(world.open().expect_err("no superblock"));
    assert_eq!((found.location, &*found.what), (at(DATA, 4096), "both superblocks"));
    assert_eq!(world.verify().expect("verified").damage, [found]);
}

#[test]
fn a_torn_superblock_leaves_the_other_one() {
    // The one that was written last, with any number of its sectors old.
    for seed in 0..30 {
        let mut world = World::swept(seed);
        world.add_all(1).expect("accepted");
        world.cut_during(seed % 10, World::checkpoint);
        recover_and_go_on(&mut world);
    }
}

/// Where the whole batches of the log lie, in the order of their numbers.
fn batches(world: &World) -> Vec<(u64, BatchHeader)> {
    let ring = world.devices.bank.bank().peek(LOG, LOG_START, (SEGMENTS * SEGMENT) as usize);
    let headers = (0..ring.len() as u64 / PAGE).filter_map(|page| {
        let at = page * PAGE;
        BatchHeader::decode(&ring[at as usize..]).ok().map(|header| (LOG_START + at, header))
    });
    let mut headers: Vec<_> = headers.collect();
    headers.sort_by_key(|(_, header)| header.number);
    headers
}

fn replay_from(world: &World) -> Seq {
    let slots = SLOTS.map(|at| world.devices.bank.bank().peek(DATA, at, SLOT_BYTES));
    let superblocks = slots.iter().filter_map(|slot| decode_superblock(slot).ok());
    superblocks.max_by_key(|found| found.generation).expect("a superblock").replay_from
}

#[test]
fn a_bit_flip_in_the_log_is_reported_if_the_record_is_needed_and_harmless_if_not() {
    let prepared = || {
        let mut world = World::swept(12);
        world.add_all(3).expect("accepted");
        world.stop();
        world
    };
    let world = prepared();
    let (all, from) = (batches(&world), replay_from(&world));
    let (mut reported, mut harmless) = (0, 0);
    // The youngest two are left out: no batch attests the youngest, so its loss is not seen.
    for (offset, header) in &all[..all.len() - 2] {
        let mut world = prepared();
        world.devices.bank.flip_bit(LOG, offset + 200, 1);
        let needed = header.last_seq() >= from;
        match world.open() {
            Ok(()) => {
                assert!(!needed, "batch {} was damaged and is needed", header.number);
                world.check();
                harmless += 1;
            }
            Err(error) => {
                let found = damage(error);
                assert_eq!(device_of(&found), LOG);
                assert!(found.what.starts_with("log "), "{found}");
                assert_eq!(world.verify().expect("verified").damage, [found]);
                reported += 1;
            }
        }
    }
    assert!(reported > 0 && harmless > 0, "{reported} reported, {harmless} harmless");
}

#[test]
fn an_unreadable_sector_of_a_block_is_reported_and_the_others_answer() {
    let mut world = World::swept(13);
    let (block, number) = world.some_block();
    world.stop();
    world.devices.bank.make_unreadable(DATA, block.offset + 512, 1);
    world.open().expect("opens");
    world.add_all(1).expect("accepted");
    let found = damage(world.get(number).expect_err("unreadable"));
    assert_eq!(found.location, at(DATA, block.offset));
    // The sweep reads the whole stretch, fails, and reads block by block.
    world.sweep().expect("swept");
    let damaged = world.check_or_damaged().len();
    assert!(damaged < KEYS as usize / 2, "one block is damaged, not {damaged} keys");
    assert_eq!(world.quarantined().len(), damaged);
    world.stop();
    assert_eq!(world.verify().expect("verified").damage, [found]);
}

#[test]
fn an_unreadable_sector_of_the_log_is_reported() {
    let mut world = World::swept(14);
    world.add_all(2).expect("accepted");
    world.stop();
    let (offset, _) = batches(&world).swap_remove(3);
    world.devices.bank.make_unreadable(LOG, offset, 1);
    match world.open() {
        // The batch is not needed any more, and its page is not the first of a segment.
        Ok(()) => world.check(),
        Err(error) => assert_eq!(device_of(&damage(error)), LOG),
    }
    let mut world = World::swept(14);
    world.add_all(2).expect("accepted");
    world.stop();
    let (offset, _) = batches(&world).pop().expect("batches");
    world.devices.bank.make_unreadable(LOG, offset, 1);
    let found = damage(world.open().expect_err("the tail cannot be read"));
    assert_eq!(device_of(&found), LOG);
    assert!(found.reason.starts_with("read failed: "), "{found}");
    assert_eq!(world.verify().expect("verified").damage, [found]);
}

#[test]
fn a_write_error_after_any_number_of_operations_closes_the_store_and_loses_nothing() {
    let (mut closed, mut of_flushes) = (0, 0);
    for operations in 0..400 {
        let mut world = World::swept(operations);
        world.devices.bank.fail_after(operations, FailureKind::Writes);
        let result = workload_of_one_session(&mut world);
        if let Err(error) = &result {
            let Error::Closed(ClosedError::WriteFailed { offset, error: found, .. }) = error else {
                panic!("{error}")
            };
            assert_eq!(*found, DeviceError::Failed { errno: 5 });
            of_flushes += u32::from(offset.is_none());
            assert_eq!(world.add(0), Err(error.clone()), "a closed store takes no updates");
            closed += 1;
        }
        world.stop();
        world.devices.bank.stop_failing();
        // The operating system may have dropped what a failed write or flush was to cover.
        world.power_cut();
        recover_and_go_on(&mut world);
        if result.is_ok() {
            break;
        }
    }
    assert!(closed > 10, "only {closed} runs met an error");
    assert!(of_flushes > 0 && of_flushes < closed, "{of_flushes} of {closed} in flushes");
}

fn workload_of_one_session(world: &mut World) -> Result<(), Error> {
    world.add_all(1)?;
    world.sweep()?;
    world.add_all(1)?;
    world.checkpoint()?;
    world.add_all(1)
}

#[test]
fn a_write_error_during_recovery_is_reported_and_the_next_open_recovers() {
    for operations in 0..4 {
        let mut world = World::swept(operations);
        world.add_all(1).expect("accepted");
        world.power_cut();
        world.devices.bank.fail_after(operations, FailureKind::Writes);
        match world.open() {
            Ok(()) => {}
            Err(error) => assert!(matches!(error, Error::Closed(_)), "{error}"),
        }
        world.power_cut();
        recover_and_go_on(&mut world);
    }
}

#[test]
fn a_read_error_after_any_number_of_operations_is_reported_and_passes() {
    for operations in 0..60 {
        let mut world = World::swept(operations);
        world.add_all(1).expect("accepted");
        world.stop();
        world.devices.bank.fail_after(operations, FailureKind::Reads);
        if let Err(error) = world.open() {
            damage(error);
            world.stop();
            world.devices.bank.stop_failing();
            world.open().expect("the device reads again");
        } else {
            world.check_or_damaged();
        }
        world.devices.bank.stop_failing();
        world.check();
    }
}

#[test]
fn what_a_sweep_cannot_read_goes_to_the_quarantine_and_is_accounted_for() {
    let mut world = World::swept(15);
    world.add_all(1).expect("accepted");
    world.devices.bank.fail_after(0, FailureKind::Reads);
    world.sweep().expect("swept");
    world.devices.bank.stop_failing();
    let quarantined = world.quarantined();
    assert_eq!(quarantined.len(), KEYS as usize);
    for number in 0..KEYS {
        // The block can be read again, but what is in it is not the answer.
        damage(world.get(number).expect_err("updates of it are set aside"));
    }
    // The next sweep finds it sound; what was set aside stays listed.
    world.add_all(2).expect("accepted");
    world.sweep().expect("swept");
    for number in 0..KEYS {
        let apart = quarantined.iter().filter(|(key, _)| *key == number);
        let apart: i64 = apart.map(|(_, delta)| delta).sum();
        let found = world.get(number).expect("readable again");
        assert_eq!(found + apart, world.expected(number), "key {number}");
    }
}

#[test]
fn updates_of_a_damaged_block_are_quarantined_once_whatever_is_cut() {
    // With little log, checkpoints carry what goes to the quarantine.
    for segments in [4, SEGMENTS] {
        let mut step = 0;
        loop {
            let mut world = World::with_log(step, segments);
            world.open().expect("opens");
            world.add_all(1).expect("accepted");
            world.sweep().expect("swept");
            world.checkpoint().expect("a checkpoint");
            let (block, _) = world.some_block();
            let before: Vec<i64> = (0..KEYS).map(|number| world.expected(number)).collect();
            world.stop();
            world.devices.bank.flip_bit(DATA, block.offset + 100, 3);
            let (_, finished) = world.cut_during(step, |world| {
                world.open()?;
                world.add_all(5)?;
                world.sweep()?;
                world.checkpoint()
            });
            world.open().expect("recovers");
            world.sweep().expect("swept");
            let mut sums = vec![0; KEYS as usize];
            for (number, delta) in world.quarantined() {
                sums[number as usize] += delta;
            }
            for number in 0..KEYS {
                let at = number as usize;
                sums[at] += match world.get(number) {
                    Ok(found) => found,
                    Err(error) => {
                        damage(error);
                        before[at]
                    }
                };
            }
            world.check_moment(&sums);
            if finished {
                break;
            }
            step += 1;
        }
    }
}

#[test]
fn a_full_device_refuses_updates_answers_queries_and_goes_on_once_there_is_space() {
    let mut world = World::new(16);
    world.devices.bank.set_capacity(DATA, 4 << 20);
    world.open().expect("opens");
    let mut number = KEYS;
    let error = loop {
        match world.add(number) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
        assert!(number < 100_000, "the device is never full");
    };
    assert_eq!(error, Error::Retry(RetryError::Full { capacity_bytes: (4 << 20) - 4 * 4096 }));
    world.check();
    assert_eq!(world.get(number - 1), Ok(world.expected(number - 1)));

    world.devices.bank.set_capacity(DATA, u64::MAX);
    let mut tries = 0;
    while let Err(error) = world.add(number) {
        assert!(matches!(error, Error::Retry(RetryError::Full { .. })), "{error}");
        world.step();
        tries += 1;
        assert!(tries < 1000, "space is there, and the store does not take it");
    }
    world.flush().expect("durable");
    world.sweep().expect("swept");
    for number in 0..=number {
        assert_eq!(world.get(number), Ok(world.expected(number)), "key {number}");
    }
    world.stop();
    world.check_sound();
}

#[test]
fn a_full_device_takes_deletions_until_there_is_space_again() {
    // Keys in any order, and blocks of several units, leave the free space in pieces.
    for (seed, block_bytes, reopened) in [
        (18, 4096, false),
        (18, 4096, true),
        (19, 65_536, true),
        (20, 65_536, true),
        (21, 32_768, true),
    ] {
        let mut world = World::with_blocks(seed, block_bytes);
        world.devices.bank.set_capacity(DATA, 4 << 20);
        world.open().expect("opens");
        let number = |index: u32| index * 7919 % 32_749;
        let mut end = 0;
        while world.add(number(end)).is_ok() {
            end += 1;
        }
        if reopened {
            world.flush().expect("durable");
            world.stop();
            world.open().expect("opens");
        }
        let mut patience = 0;
        for index in 0..end - 100 {
            while let Err(error) = world.delete(number(index)) {
                assert!(matches!(error, Error::Retry(RetryError::Full { .. })), "{error}");
                world.step();
                patience += 1;
                assert!(patience < 20_000, "deletion {index} of {end} finds no room");
            }
        }
        world.sweep().expect("there is space again");
        assert_eq!(world.get(number(0)), Ok(0));
        let last = number(end - 1);
        assert_eq!(world.get(last), Ok(world.expected(last)));
        for index in 0..2000 {
            world.add(number(index)).expect("there is space again");
        }
        world.sweep().expect("swept");
        world.stop();
        world.check_sound();
    }
}

#[test]
fn a_device_that_refuses_writes_for_lack_of_space_closes_the_store() {
    for device in [DATA, LOG] {
        let mut world = World::swept(17);
        world.add_all(1).expect("accepted");
        world.devices.bank.set_refusing_writes(device, true);
        let error = workload_of_one_session(&mut world).expect_err("no space");
        let Error::Closed(ClosedError::WriteFailed { device: named, offset, error }) = error else {
            panic!("{error}")
        };
        assert_eq!((named, error), (device, DeviceError::NoSpace));
        let begin = if device == DATA { DATA_START } else { 0 };
        assert!(offset.is_some_and(|offset| offset >= begin), "{offset:?} on {device:?}");
        world.stop();
        world.devices.bank.set_refusing_writes(device, false);
        world.power_cut();
        recover_and_go_on(&mut world);
    }
}

#[test]
fn verification_never_writes_not_even_over_a_torn_batch() {
    let mut torn = 0;
    for seed in 0..60 {
        let mut world = World::swept(seed);
        world.cut_during(3 + seed % 5, |world| world.add_all(1));
        let before = world.devices.bank.bank().digest();
        // The bank of `verify` panics on any write.
        let report = world.verify().expect("verified");
        assert_eq!(report.damage, []);
        assert_eq!(world.devices.bank.bank().digest(), before);
        world.open().expect("recovers");
        torn += u32::from(world.devices.bank.bank().digest() != before);
        world.check_crash();
    }
    assert!(torn > 0);
}
