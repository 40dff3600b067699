//! The journal: what takes effect when, and what is not appended.

use super::ground::{Ground, space};
use crate::engine::event::Event;
use crate::engine::ids::{Seq, SpaceId};
use crate::engine::io::{RunId, SpillId};
use crate::engine::journal::{Journal, Publish};
use crate::log::{AppendError, Urgency};

fn append(journal: &mut Journal, publish: Publish) -> Seq {
    journal.append(b"a change", publish, 0).expect("the log has room")
}

fn drop_of(space: SpaceId) -> Publish {
    Publish::Event(Event::Drop(space))
}

#[test]
fn changes_take_effect_in_the_order_of_the_log_and_only_when_durable() {
    let mut ground = Ground::new();
    let first = append(&mut ground.base.journal, Publish::Run(RunId(1)));
    let second = append(&mut ground.base.journal, Publish::Spill(SpillId(2)));
    assert!(ground.base.journal.next_durable().is_none(), "no record is durable");
    assert_eq!(ground.base.journal.next_waiting(), Some(first));
    assert_eq!(ground.base.journal.published(), Seq::new(0));
    ground.write_log();
    let journal = &mut ground.base.journal;
    assert_eq!(journal.published(), Seq::new(0), "durable is not yet in effect");
    assert!(matches!(journal.next_durable(), Some((seq, Publish::Run(_))) if seq == first));
    assert_eq!((journal.published(), journal.is_published()), (first, false));
    assert!(matches!(journal.next_durable(), Some((seq, Publish::Spill(_))) if seq == second));
    assert_eq!((journal.published(), journal.is_published()), (second, true));
    assert!(journal.next_durable().is_none());
}

#[test]
fn updates_alone_are_published_when_durable_and_never_before_a_change_that_is_older() {
    let mut ground = Ground::new();
    let update = ground.put("k", 1);
    ground.base.journal.pass_updates();
    assert_eq!(ground.base.journal.published(), Seq::new(0), "the update is not durable");
    ground.write_log();
    ground.base.journal.pass_updates();
    assert_eq!(ground.base.journal.published(), update);
    let change = append(&mut ground.base.journal, Publish::Nothing);
    let later = ground.put("k", 2);
    ground.write_log();
    ground.base.journal.pass_updates();
    assert_eq!(ground.base.journal.published(), update, "the change is not in effect");
    assert!(ground.base.journal.next_durable().is_some_and(|(seq, _)| seq == change));
    ground.base.journal.pass_updates();
    assert_eq!(ground.base.journal.published(), later);
}

#[test]
fn several_things_may_take_effect_with_one_record() {
    let mut ground = Ground::new();
    let journal = &mut ground.base.journal;
    let seq = append(journal, Publish::Run(RunId(1)));
    journal.publish_at(seq, drop_of(space()));
    ground.write_log();
    let journal = &mut ground.base.journal;
    assert!(matches!(journal.next_durable(), Some((at, Publish::Run(_))) if at == seq));
    assert!(matches!(journal.next_durable(), Some((at, Publish::Event(_))) if at == seq));
}

#[test]
fn a_log_that_is_left_to_callers_takes_no_runs_and_spills_and_all_else() {
    let mut ground = Ground::new();
    let journal = &mut ground.base.journal;
    journal.leave_to_callers(true);
    let last = journal.last();
    let refused = journal.append_change(b"a run", Publish::Run(RunId(1)), 0);
    assert_eq!(refused, Err(AppendError::Full));
    assert_eq!((journal.last(), journal.is_published()), (last, true), "nothing is left of it");
    append(journal, drop_of(space()));
    journal.leave_to_callers(false);
    assert!(journal.append_change(b"a run", Publish::Run(RunId(1)), 0).is_ok());
}

#[test]
fn the_changes_on_their_way_are_told_but_for_runs_and_spills() {
    let mut ground = Ground::new();
    let journal = &mut ground.base.journal;
    append(journal, Publish::Run(RunId(1)));
    append(journal, drop_of(SpaceId::new(7)));
    append(journal, Publish::Nothing);
    append(journal, drop_of(SpaceId::new(8)));
    let dropped =
        |event: &Event| if let Event::Drop(space) = event { *space } else { SpaceId::new(0) };
    assert_eq!(journal.events().map(dropped).collect::<Vec<_>>(), [7, 8].map(SpaceId::new));
    ground.publish();
    assert_eq!(ground.base.journal.events().count(), 0);
}

#[test]
#[should_panic(expected = "what is carried comes before what is logged")]
fn nothing_is_appended_while_the_directory_is_ahead_of_the_log() {
    let mut ground = Ground::new();
    ground.base.journal.run_ahead();
    append(&mut ground.base.journal, Publish::Nothing);
}

#[test]
fn what_the_carried_changes_may_contain_is_written_without_delay() {
    let mut ground = Ground::new();
    let journal = &mut ground.base.journal;
    let mut requests = Vec::new();
    journal.append_updates(1, |_| {}, Urgency::Relaxed, 0).expect("room");
    journal.dispatch(0, &mut requests);
    assert!(requests.is_empty() && journal.covers_carried(), "nobody waits for the update");
    journal.run_ahead();
    assert!(!journal.covers_carried());
    journal.dispatch(0, &mut requests);
    assert_eq!(requests.len(), 1);
}

#[test]
fn the_log_is_there_again_when_what_was_carried_is_durable() {
    let mut ground = Ground::new();
    ground.base.journal.run_ahead();
    assert!(ground.base.journal.is_ahead());
    ground.base.journal.caught_up();
    append(&mut ground.base.journal, Publish::Nothing);
}

#[test]
#[should_panic(expected = "what is published is over")]
fn nothing_takes_effect_at_a_sequence_that_is_over() {
    let mut ground = Ground::new();
    let seq = append(&mut ground.base.journal, Publish::Nothing);
    ground.publish();
    ground.base.journal.publish_at(seq, Publish::Nothing);
}

#[test]
#[should_panic(expected = "recovery puts into effect what it has found")]
fn recovery_puts_nothing_into_effect_that_the_log_has_not() {
    let mut ground = Ground::new();
    let beyond = ground.base.journal.durable().next();
    ground.base.journal.recovered_through(beyond);
}
