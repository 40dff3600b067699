//! What was dropped is released in portions, one record each, and one at a time.

use super::ground::{Ground, exact_space};
use crate::engine::event::Event;
use crate::engine::format::record_format::{DirectoryChange, Placement};
use crate::engine::ids::Seq;
use crate::engine::index::Release;
use crate::engine::journal::Publish;
use crate::engine::quarantine::REFERENCES_SPACE;
use crate::engine::reclaim::Reclaimer;
use crate::engine::registry::PUT;

/// Makes the reclaimer take one step and its record take effect; returns whether there was one.
fn step(ground: &mut Ground, reclaimer: &mut Reclaimer) -> bool {
    let before = ground.base.journal.last();
    reclaimer.pump(&mut ground.base);
    let appended = ground.base.journal.last().since(before);
    assert!(appended <= 1, "one portion at a time");
    ground.write_log();
    while let Some((seq, Publish::Event(event))) = ground.base.journal.next_durable() {
        reclaimer.note(&event);
        ground.base.index.apply_event(seq, event, Release::Now);
    }
    appended > 0
}

fn blocks(ground: &Ground) -> usize {
    ground.base.index.directory().len()
}

#[test]
fn a_dropped_space_comes_back_in_portions_and_the_next_follows_when_one_has_taken_effect() {
    let (mut ground, mut reclaimer) = (Ground::new(), Reclaimer::default());
    let before = blocks(&ground);
    ground.make_blocks((0..600).map(|number| format!("k{number:04}")));
    assert_eq!(blocks(&ground), before + 600);
    assert!(!reclaimer.is_releasing(&ground.base));
    ground.base.index.apply_event(Seq::new(9), Event::Drop(exact_space()), Release::Now);
    assert!(reclaimer.is_releasing(&ground.base));
    reclaimer.pump(&mut ground.base);
    let last = ground.base.journal.last();
    reclaimer.pump(&mut ground.base);
    assert_eq!(ground.base.journal.last(), last, "one portion is in progress");
    let mut portions = 0;
    let mut left = blocks(&ground);
    while reclaimer.is_releasing(&ground.base) {
        step(&mut ground, &mut reclaimer);
        assert!(left - blocks(&ground) <= 256, "a portion is bounded");
        left = blocks(&ground);
        portions += 1;
        assert!(portions < 100, "it never ends");
    }
    assert!(portions > 2, "{portions} portions");
    assert_eq!(blocks(&ground), before);
    assert!(!step(&mut ground, &mut reclaimer), "nothing is left to do");
}

#[test]
fn nothing_is_given_back_while_the_store_rests_replays_or_is_ahead_of_its_log() {
    let (mut ground, mut reclaimer) = (Ground::new(), Reclaimer::default());
    ground.base.index.apply_event(Seq::new(9), Event::Drop(exact_space()), Release::Now);
    let last = ground.base.journal.last();
    ground.base.gate.pause();
    reclaimer.pump(&mut ground.base);
    ground.base.gate.resume();
    ground.base.index.begin_replay();
    reclaimer.pump(&mut ground.base);
    ground.base.index.end_replay();
    ground.base.journal.run_ahead();
    reclaimer.pump(&mut ground.base);
    assert_eq!(ground.base.journal.last(), last);
    ground.base.journal.caught_up();
    assert!(step(&mut ground, &mut reclaimer));
}

#[test]
fn deferred_counts_become_updates_of_the_reference_array_with_the_record_that_settles_them() {
    let (mut ground, mut reclaimer) = (Ground::new(), Reclaimer::default());
    let settled = Event::DeferredCounts(vec![(7, -3), (9, -1)]);
    ground.base.index.apply_event(Seq::new(1), settled, Release::Now);
    assert_eq!(ground.base.index.directory().trees.deferred().len(), 2);
    reclaimer.pump(&mut ground.base);
    let pending = |ground: &Ground| {
        let space = ground.base.index.directory().space(REFERENCES_SPACE);
        space.map_or(0, |space| space.pending.len())
    };
    assert_eq!(pending(&ground), 2, "accepted, and not yet in effect");
    assert_eq!(ground.base.index.directory().trees.deferred().len(), 2);
    assert_eq!(ground.base.index.accepted(), ground.base.journal.last());
    assert!(!step(&mut ground, &mut reclaimer), "the same cells are not updated twice");
    assert_eq!(pending(&ground), 0);
    assert_eq!(ground.base.index.directory().trees.deferred().len(), 0);
    assert_eq!(ground.base.index.waiting_entries(), 2, "on the queues of their blocks");
}

#[test]
fn a_block_is_forgotten_when_it_holds_nothing_and_no_replay_comes_to_its_deletion() {
    let (mut ground, mut reclaimer) = (Ground::new(), Reclaimer::default());
    let before = blocks(&ground);
    ground.make_blocks(["empty", "swept", "waits"].map(str::to_owned));
    ground.accept(exact_space(), PUT, "waits", b"a value");
    let swept = ground.base.index.directory().exact(exact_space(), b"swept").expect("made above");
    let swept = ground.base.index.directory().table.reference(swept);
    let emptied =
        Placement { frontier: Seq::new(20), image_seq: Seq::new(20), ..Placement::default() };
    let change = DirectoryChange { moved: vec![(swept, emptied)], ..DirectoryChange::default() };
    ground.base.index.apply_change(Seq::new(20), &change, Release::Now);
    reclaimer.forget_empty_blocks(&mut ground.base, Seq::new(20));
    ground.publish();
    assert_eq!(blocks(&ground), before + 2, "a replay from 20 on would see the deletion");
    reclaimer.forget_empty_blocks(&mut ground.base, Seq::new(21));
    ground.publish();
    assert_eq!(blocks(&ground), before + 1, "what waits for a block keeps it");
    assert!(ground.base.index.directory().exact(exact_space(), b"waits").is_some());
}

#[test]
fn updates_of_a_space_that_forgets_blocks_wait_for_that_record() {
    let (mut ground, mut reclaimer) = (Ground::new(), Reclaimer::default());
    ground.make_blocks(["k".to_owned()]);
    reclaimer.forget_empty_blocks(&mut ground.base, Seq::new(100));
    ground.accept(exact_space(), PUT, "k", b"a value");
    let pending = |ground: &Ground| {
        let space = ground.base.index.directory().space(exact_space());
        space.map_or(0, |space| space.pending.len())
    };
    assert_eq!(pending(&ground), 1, "its block may be gone when it is durable");
    ground.publish();
    assert_eq!(pending(&ground), 0);
    let block = ground.base.index.directory().exact(exact_space(), b"k").expect("made anew");
    assert_eq!(ground.base.index.directory().block(block).queue.count(), 1);
}
