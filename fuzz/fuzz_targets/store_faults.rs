//! Operations on a tiny store against a model, while writes fail after some operations and the
//! power goes at some step; then the store is opened again and compared.
#![no_main]

#[expect(dead_code, reason = "the tests of faults use more of it")]
#[path = "../../crates/upsweep/tests/all/support.rs"]
mod support;

use libfuzzer_sys::fuzz_target;
use support::{KEYS, SEGMENTS, World};
use upsweep::Error;
use upsweep::layers::device::FailureKind;

fn perform(world: &mut World, operation: u8, number: u8) -> Result<(), Error> {
    let key = u32::from(number) % KEYS;
    match operation % 12 {
        0..=3 => world.add(key)?,
        4 => world.add_all(1)?,
        5 => world.flush()?,
        6 => world.sweep()?,
        7 => world.checkpoint()?,
        8 => assert_eq!(world.get(key)?, world.expected(key)),
        9 => {
            world.flush()?;
            world.stop();
            world.open()?;
        }
        10 => world.devices.bank.fail_after(u64::from(number), FailureKind::Writes),
        _ => {
            world.cut_during(u64::from(number), |world| {
                let added = (0..KEYS).try_for_each(|key| world.add(key));
                let done = added.and_then(|()| world.sweep()).and_then(|()| world.checkpoint());
                // A write that failed before may be reported only now.
                if matches!(done, Err(Error::Closed(_))) { Ok(()) } else { done }
            });
            world.open()?;
            world.check_crash();
        }
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let Some((&seed, operations)) = data.split_first() else { return };
    // Every other store has so little log that checkpoints carry changes.
    let mut world = World::with_log(u64::from(seed), if seed % 2 == 0 { 4 } else { SEGMENTS });
    world.open().expect("a new store");
    for pair in operations.chunks_exact(2).take(48) {
        if pair[0] % 12 == 11 {
            world.devices.bank.stop_failing();
        }
        let Err(error) = perform(&mut world, pair[0], pair[1]) else { continue };
        assert!(matches!(error, Error::Closed(_)), "{error}");
        world.power_cut();
        world.open().expect("recovers");
        world.check_crash();
    }
    world.power_cut();
    world.open().expect("recovers");
    world.check_crash();
    world.sweep().expect("sweeps");
    world.check();
    world.stop();
    world.check_sound();
});
