//! Admission: permanent refusals, waiting callers, and their notification.

use super::{Core, World, config, format};
use crate::engine::config::KEY_BYTES_MAX;
use crate::engine::quarantine::REFERENCES_SPACE;
use crate::engine::registry::{ADD_I64, DELETE, ModifierId, PUT};
use crate::engine::{Accept, Config, LoggedUpdate};
use crate::error::{Error, RequestError, RetryError};
use crate::log::Urgency;
use crate::metrics::WaitCause;

/// Whether an error is the expected one.
type Reason = fn(&RequestError) -> bool;

#[test]
fn a_wrong_update_is_refused_with_all_others_of_its_record() {
    let mut world = World::new();
    let (space, one) = (world.space, format::number(1));
    let long = vec![b'k'; KEY_BYTES_MAX + 1];
    let wrong = |space, modifier, key, operand| LoggedUpdate { space, modifier, key, operand };
    let cases: [(LoggedUpdate<'_>, Reason); 5] = [
        (wrong(space, ADD_I64, &long, &one), |e| matches!(e, RequestError::KeyTooLong { .. })),
        (wrong(space, ADD_I64, b"k", b"1"), |e| matches!(e, RequestError::BadOperand { .. })),
        (wrong(space, ModifierId(99), b"k", b""), |e| matches!(e, RequestError::BadOperand { .. })),
        (wrong(space.plus(90), PUT, b"k", b""), |e| matches!(e, RequestError::NoTable(_))),
        (wrong(REFERENCES_SPACE, PUT, b"k", b""), |e| matches!(e, RequestError::ReadOnly(_))),
    ];
    let before = (world.core.last(), world.core.queue_bytes());
    let sound = wrong(space, ADD_I64, b"sound", &one);
    for (update, is_it) in cases {
        let refused = world.core.modify(&[sound, update], Urgency::Now, 0);
        let Err(Error::Request(reason)) = &refused else { panic!("{update:?}: {refused:?}") };
        assert!(is_it(reason), "{update:?}: {reason:?}");
    }
    assert_eq!((world.core.last(), world.core.queue_bytes()), before, "nothing was accepted");
    assert_eq!(world.get(space, "sound"), None);
}

#[test]
fn a_snapshot_takes_no_updates() {
    let mut world = World::new();
    world.put(world.space, "k", 1);
    let made = world.core.create_snapshot(Some("s"), None, [7; 16]).expect("a snapshot");
    world.until_published();
    let (_, frozen) = made.clones[0];
    let refused = world.offer(frozen, PUT, b"k", &format::number(2));
    assert!(matches!(refused, Err(Error::Request(RequestError::ReadOnly(_)))), "{refused:?}");
    assert_eq!(world.get(frozen, "k"), Some(1));
}

#[test]
fn who_finds_no_memory_waits_is_told_and_is_accepted_then() {
    // The log accepts more at once than the queues do.
    let mut config = Config { log_batch_bytes: 32 << 10, log_depth: 4, ..config() };
    config.memory_bytes = config.memory_bytes_min();
    let mut world = World::with(config, 4 << 20);
    let value = vec![b'v'; 600];
    for number in 0..600u32 {
        let key = format!("key {:010}", number.wrapping_mul(2_654_435_761));
        while world.offer(world.space, PUT, key.as_bytes(), &value).expect("sound") == Accept::Wait
        {
            let told = world.room_events;
            for _ in 0..super::STEPS_MAX {
                if world.room_events == told {
                    world.step();
                }
            }
            assert_ne!(world.room_events, told, "the waiting caller is not notified");
        }
        assert!(world.core.queue_bytes() <= world.core.queue_limit_bytes(), "inside the budget");
    }
    let refusals = world.core.metrics().admission_refusals_total[WaitCause::Memory].get();
    assert!(refusals > 0, "memory was never short");
    world.sweep();
    assert_eq!(world.core.space_size(world.space).records, 600);
    world.check();
}

/// What waits for a block is copied for a snapshot or clone when the block changes. Until it is
/// copied, nothing else may take the memory for that.
#[test]
fn memory_for_copies_is_taken_when_the_update_that_needs_them_is_accepted() {
    let mut world = World::new();
    (0..50).for_each(|number| world.put(world.space, &format!("k{number}"), number));
    world.until_published();
    let used = |world: &World| world.core.base.queues_gauge(0).used;
    let (before, queued) = (used(&world), world.core.queue_bytes() as u64);
    world.core.create_snapshot(Some("s"), None, [7; 16]).expect("a snapshot");
    let accepted = world.offer(world.space, PUT, b"k7", &format::number(1));
    assert!(matches!(accepted, Ok(Accept::Accepted(_))), "{accepted:?}");
    let promised = used(&world) - before;
    assert!(promised >= queued, "{promised} of {queued}");
    world.until_published();
    let copied = world.core.queue_bytes() as u64 - queued;
    assert!(copied >= queued, "{copied} of {queued}");
    assert_eq!(world.core.base.index.promised_bytes(), 0);
    assert!(used(&world) <= before + promised);
}

#[test]
fn a_record_that_never_fits_is_refused_and_not_left_waiting() {
    let mut world = World::new();
    let value = vec![0; 60 << 10];
    let update = |key| LoggedUpdate { space: world.space, modifier: PUT, key, operand: &value };
    let keys: Vec<Vec<u8>> = (0..64u8).map(|number| vec![number]).collect();
    let updates: Vec<LoggedUpdate<'_>> = keys.iter().map(|key| update(key)).collect();
    let refused = world.core.modify(&updates, Urgency::Now, 0);
    let Err(Error::Request(RequestError::BatchTooLong { bytes, limit })) = refused else {
        panic!("{refused:?}")
    };
    assert!(bytes > limit);
}

#[test]
fn full_devices_refuse_what_grows_and_take_deletions() {
    let mut world = World::with(config(), 1 << 20);
    let value = vec![b'v'; 900];
    let full = (0..4000u32).find_map(|number| {
        for _ in 0..super::STEPS_MAX {
            let key = format!("key {number:08}");
            match world.offer(world.space, PUT, key.as_bytes(), &value) {
                Ok(Accept::Accepted(_)) => return None,
                Ok(Accept::Wait) => world.step(),
                Err(error) => return Some((number, error)),
            }
        }
        panic!("an update waits indefinitely");
    });
    let (count, error) = full.expect("a megabyte is full some time");
    assert!(matches!(error, Error::Retry(RetryError::Full { .. })), "{error:?}");
    assert!(count > 100, "{count} records fit");
    for number in 0..count {
        world.accept(world.space, DELETE, format!("key {number:08}").as_bytes(), &[]);
    }
    world.sweep();
    assert_eq!(world.core.space_size(world.space).records, 0);
    world.put(world.space, "again", 1);
    world.check();
}

#[test]
fn a_store_that_closes_refuses_updates_and_makes_durable_what_it_has() {
    let mut world = World::new();
    world.add("k", 5);
    let last = world.core.last();
    world.core.begin_close();
    let refused = world.offer(world.space, ADD_I64, b"k", &format::number(1));
    assert!(matches!(refused, Err(Error::Closed(_))), "{refused:?}");
    world.until("a superblock says so", Core::is_attested);
    assert!(world.core.durable() >= last);
    let mut world = world.reopen();
    assert_eq!(world.get(world.space, "k"), Some(5));
}
