//! The base: division of budgets, and held blocks in a store that is open for upkeep.

use super::format;
use super::ground::{Ground, exact_space, space};
use crate::device::{Class, Completion, DeviceError, DeviceId, Token};
use crate::engine::base::InHand;
use crate::engine::format::record_format::{LoggedUpdate, ModifierRecord};
use crate::engine::held::Held;
use crate::engine::ids::Seq;
use crate::engine::journal::Publish;
use crate::engine::policy::Shortage;
use crate::engine::quarantine::QUARANTINE_SPACE;
use crate::engine::registry::{DELETE_RANGE, FIRST_USER_ID, ModifierId, PUT};
use crate::error::{ClosedError, Error, RequestError, RetryError};
use crate::metrics::WaitCause;

#[test]
fn what_runs_have_in_hand_is_memory_that_queues_cannot_have() {
    let mut ground = Ground::new();
    let base = &mut ground.base;
    let (limit, resident) = (base.queue_limit_bytes(), base.resident_bytes());
    assert_eq!(limit + resident, base.config.memory_bytes, "the budget is shared out");
    assert_eq!(base.waiting_limit_bytes(), limit, "no spill segment is there");
    base.in_hand = InHand { values_bytes: 10_000, ..InHand::default() };
    assert_eq!(base.queue_limit_bytes(), limit - 10_000);
    base.in_hand.values_bytes = base.config.memory_bytes;
    assert_eq!(base.queue_limit_bytes(), base.config.queue_bytes_min(), "it never stops");
}

#[test]
fn room_is_demanded_for_all_that_waits_wherever_it_waits() {
    let mut ground = Ground::new();
    let nothing = ground.base.demand(0, 0, 0);
    assert_eq!((nothing.waiting_bytes, nothing.blocks), (0, 0));
    ground.put("k", 1);
    let one = ground.base.demand(0, 0, 0);
    assert!(one.waiting_bytes > 0 && one.blocks == 1);
    ground.accept(exact_space(), PUT, "k", b"a value");
    let pending = ground.base.demand(0, 0, 0);
    assert!(pending.waiting_bytes > one.waiting_bytes, "what waits for its record");
    assert!(pending.copied_bytes > 0, "and the image that its block will have");
    let block = ground.block_of("k");
    ground.base.index.pin(block);
    ground.base.index.freeze(&[block]);
    ground.base.in_hand = InHand { unlogged_blocks: 1, growth_bytes: 500, values_bytes: 0 };
    let frozen = ground.base.demand(0, 0, 0);
    assert!(frozen.waiting_bytes >= 500 && frozen.blocks == 1, "{frozen:?}");
    assert_eq!(ground.base.demand(7, 2, 9).waiting_bytes, frozen.waiting_bytes + 7);
    assert_eq!(ground.base.demand(7, 2, 9).blocks, frozen.blocks + 2);
    assert_eq!(ground.base.demand(7, 2, 9).kept_bytes, 9);
}

#[test]
fn the_log_is_fuller_for_callers_than_it_is_by_what_changes_will_take() {
    let mut ground = Ground::new();
    let empty = ground.base.log_gauge();
    for number in 0..50 {
        ground.put(&format!("k{number}"), 1);
    }
    ground.write_log();
    let filled = ground.base.log_gauge();
    assert!(filled.used > empty.used && filled.limit <= empty.limit, "{empty:?} {filled:?}");
    assert!(!ground.base.is_log_short_of_changes());
    ground.base.in_hand.unlogged_blocks = 1_000_000;
    assert!(ground.base.is_log_short_of_changes());
}

#[test]
fn who_finds_no_room_in_the_log_is_told_whether_it_ever_will() {
    let mut ground = Ground::new();
    let publish = || Publish::Nothing;
    let long = vec![0; ground.base.journal.log().record_bytes_max() + 1];
    let refused = ground.base.append_or_make_room(&long, publish());
    assert!(
        matches!(refused, Err(Error::Request(RequestError::BatchTooLong { .. }))),
        "{refused:?}"
    );
    assert_eq!(ground.base.waiters.shortage(), None, "no caller waits for what never happens");
    ground.base.journal.run_ahead();
    let refused = ground.base.append_or_make_room(b"change", publish());
    assert!(matches!(refused, Err(Error::Retry(RetryError::Busy))), "{refused:?}");
    ground.base.journal.caught_up();
    assert!(ground.base.append_or_make_room(b"change", publish()).is_ok());
    let part = vec![0; 30_000];
    while ground.base.journal.append(&part, publish(), 0).is_ok() {}
    let refused = ground.base.append_or_make_room(&part, publish());
    assert!(matches!(refused, Err(Error::Retry(RetryError::Busy))), "{refused:?}");
    assert_eq!(ground.base.waiters.shortage(), Some(Shortage::Log), "room is to be made");
    assert_eq!(ground.base.measured.wait_cause(), WaitCause::Log);
}

#[test]
fn the_first_failure_closes_the_store_and_names_its_place() {
    let mut ground = Ground::new();
    let completion = |result| Completion {
        device: DeviceId(1),
        token: Token(1),
        class: Class::SweepWrite,
        buffer: None,
        result,
    };
    ground.base.close_if_failed(&completion(Ok(())), Some(1));
    assert!(ground.base.gate.closed().is_none());
    let failed = Err(DeviceError::NoSpace);
    ground.base.close_if_failed(&completion(failed.clone()), Some(4096));
    ground.base.close_if_failed(&completion(failed), Some(8192));
    let Some(ClosedError::WriteFailed { device, offset, .. }) = ground.base.gate.closed() else {
        panic!("it is closed")
    };
    assert_eq!((device.0, *offset), (1, Some(4096)));
    assert!(ground.base.waiters.take_news(), "waiting callers are notified");
}

fn missing() -> ModifierId {
    ModifierId(FIRST_USER_ID)
}

/// A store that is open for upkeep, with a missing modifier.
fn in_upkeep() -> Ground {
    let mut ground = Ground::new();
    let record = ModifierRecord { id: missing(), version: 1, name: "gone".to_owned() };
    ground.base.index.bindings.bind(record);
    ground.base.held = Some(Held::default());
    ground
}

#[test]
fn a_block_is_held_for_an_update_that_nobody_can_apply_and_no_run_takes_it() {
    let mut ground = in_upkeep();
    let block = ground.block_of("k");
    ground.base.note_waiting(block, PUT, false).expect("it is known");
    ground.base.note_waiting(block, DELETE_RANGE, false).expect("the engine's own");
    assert!(!ground.base.index.directory().block(block).pinned);
    for _ in 0..2 {
        ground.base.note_waiting(block, missing(), false).expect("it is held");
    }
    assert!(ground.base.index.directory().block(block).pinned);
    let held = |ground: &Ground| {
        ground.base.held.as_ref().map_or(0, |held| held.blocks(&ground.base.index))
    };
    assert_eq!(held(&ground), 1);
    let refused = ground.base.note_waiting(block, missing(), true);
    assert!(
        matches!(&refused, Err(Error::Request(RequestError::UnknownModifier { name, .. }))
            if name == "gone"),
        "where it would be applied the store does not open: {refused:?}"
    );
}

#[test]
fn what_is_held_does_not_keep_a_cycle_from_having_swept_all_the_rest() {
    let mut ground = in_upkeep();
    ground.put("k", 1);
    let block = ground.block_of("k");
    let note = |ground: &mut Ground| {
        let index = &ground.base.index;
        ground.base.held.iter_mut().for_each(|held| held.note_swept(index));
        ground.base.swept_but_held()
    };
    assert_eq!(note(&mut ground), Seq::new(0), "it waits");
    ground.base.hold(block);
    assert_eq!(note(&mut ground), ground.base.index.accepted());
}

#[test]
fn in_upkeep_only_the_quarantine_takes_updates_while_something_is_missing() {
    let ground = in_upkeep();
    let operand = format::number(1);
    let update = |space| LoggedUpdate { space, modifier: PUT, key: b"k", operand: &operand };
    assert!(ground.base.check_upkeep(&[update(QUARANTINE_SPACE)]).is_ok());
    assert!(ground.base.check_upkeep(&[update(QUARANTINE_SPACE), update(space())]).is_err());
    assert!(ground.base.missing_modifier().is_some());
    assert!(Ground::new().base.check_upkeep(&[update(space())]).is_ok());
}
