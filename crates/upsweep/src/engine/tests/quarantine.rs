//! The quarantine: a refused update is put there once, whatever happens to the run or the store.

use super::ground::{Ground, space};
use crate::engine::base::Base;
use crate::engine::format::record_format::{self, DirectoryChange, Payload};
use crate::engine::ids::Seq;
use crate::engine::index::Index;
use crate::engine::jobs::Quarantined;
use crate::engine::journal::Journal;
use crate::engine::quarantine::{QUARANTINE_SPACE, Quarantine, encode_with_change};
use crate::engine::registry::{ADD_I64, PUT};

fn refused(seq: Seq, key: &[u8]) -> Quarantined {
    Quarantined {
        space: space(),
        seq,
        modifier: ADD_I64,
        key: key.to_vec(),
        operand: vec![1],
        reason: "no number".to_owned(),
    }
}

/// Operates on the quarantine and its base.
fn with<T>(
    ground: &mut Ground,
    act: impl FnOnce(&mut Quarantine, &mut Index, &mut Journal) -> T,
) -> T {
    let Base { quarantine, index, journal, .. } = &mut ground.base;
    act(quarantine, index, journal)
}

fn queued(ground: &Ground) -> u32 {
    let index = &ground.base.index;
    let block = index.directory().covering(QUARANTINE_SPACE, b"").expect("it has a block");
    index.directory().block(block).queue.count()
}

fn keys_of(quarantined: &[Quarantined]) -> Vec<Vec<u8>> {
    let payload = encode_with_change(&DirectoryChange::default(), quarantined);
    let Ok(Payload::Change(_, mut updates)) = record_format::decode(&payload) else {
        panic!("a change is a change")
    };
    let mut keys = Vec::new();
    while let Some(update) = updates.next_update().expect("as it was encoded") {
        assert_eq!((update.space, update.modifier), (QUARANTINE_SPACE, PUT));
        keys.push(update.key.to_vec());
    }
    keys
}

#[test]
fn a_run_that_is_repeated_puts_the_same_keys_and_equal_updates_get_different_ones() {
    let all = [
        refused(Seq::new(5), b"a"),
        refused(Seq::new(5), b"a"),
        refused(Seq::new(5), b"b"),
        refused(Seq::new(6), b"a"),
    ];
    let keys = keys_of(&all);
    let mut different = keys.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), 4);
    // Another run has other blocks: the key of an update does not depend on its position.
    assert_eq!(keys_of(&all[2..]), keys[2..]);
}

#[test]
fn what_a_logged_change_refuses_is_queued_at_its_sequence_and_accepted_with_it() {
    let mut ground = Ground::new();
    let seq = ground.put("k", 1).next();
    with(&mut ground, |quarantine, index, journal| {
        quarantine.take(seq, &[refused(Seq::new(1), b"a")], index, journal);
        assert!(quarantine.overdraft_bytes() > 0, "no caller can be made to wait for room");
    });
    assert_eq!(ground.base.index.accepted(), seq, "no sweep of the table passes it by");
    assert_eq!(queued(&ground), 1);
    ground.base.settle_overdraft();
    assert_eq!(ground.base.quarantine.overdraft_bytes(), 0, "the queues are inside their limit");
}

#[test]
fn during_replay_it_is_put_off_for_replay_has_not_come_so_far() {
    let mut ground = Ground::new();
    ground.base.index.begin_replay();
    with(&mut ground, |quarantine, index, journal| {
        quarantine.take(Seq::new(9), &[refused(Seq::new(1), b"a")], index, journal);
    });
    assert_eq!(queued(&ground), 0);
    ground.base.index.end_replay();
    ground.base.enqueue_deferred();
    assert_eq!((queued(&ground), ground.base.index.accepted()), (1, Seq::new(9)));
}

#[test]
fn checkpoints_carry_what_no_record_holds_until_it_is_in_its_block() {
    let mut ground = Ground::new();
    ground.put("k", 1);
    let carried = with(&mut ground, |quarantine, index, journal| {
        quarantine.carry(&[refused(Seq::new(1), b"a")], index, journal);
        quarantine.still_carried(index)
    });
    assert_eq!((carried.len(), carried[0].barrier), (1, ground.base.index.accepted()));
    assert_eq!(queued(&ground), 1);
    ground.put("k", 2);
    let block = ground.base.index.directory().covering(QUARANTINE_SPACE, b"");
    ground.sweep(&[block.expect("it has a block")]);
    let left = with(&mut ground, |quarantine, index, _| quarantine.still_carried(index));
    assert_eq!(left, [], "it is inside its image");
}

#[test]
fn replay_queues_what_a_checkpoint_carried_before_the_records_that_came_later_and_once() {
    let mut ground = Ground::new();
    ground.put("k", 1);
    ground.put("k", 2);
    let mut carried = with(&mut ground, |quarantine, index, journal| {
        quarantine.carry(&[refused(Seq::new(1), b"a"), refused(Seq::new(1), b"b")], index, journal);
        quarantine.still_carried(index)
    });
    carried[0].barrier = Seq::new(1);
    let mut ground = Ground::new();
    ground.base.index.begin_replay();
    ground.base.quarantine.restore(&carried);
    assert!(ground.base.quarantine.has_to_replay());
    ground.base.replay_carried(Seq::new(1));
    assert_eq!(queued(&ground), 0, "they came after the record before");
    ground.base.replay_carried(Seq::new(2));
    assert_eq!(queued(&ground), 1);
    ground.base.replay_carried(Seq::new(u64::MAX));
    ground.base.replay_carried(Seq::new(u64::MAX));
    assert_eq!(queued(&ground), 2);
    assert!(!ground.base.quarantine.has_to_replay());
    assert_eq!(ground.base.index.accepted(), Seq::new(2), "a sweep now has them in its frontier");
}
