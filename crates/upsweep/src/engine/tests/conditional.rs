//! Conditional updates: accepted only if what was seen still holds.

use super::{World, format};
use crate::engine::registry::{ADD_I64, DELETE_RANGE, PUT};
use crate::engine::view::{View, Wanted};
use crate::engine::{Accept, Conditional, LoggedUpdate, Seen};
use crate::error::Error;
use crate::log::Urgency;

/// Offers a put of one key if the view of another still holds.
fn put_if(world: &mut World, key: &str, view: &View) -> Result<Conditional, Error> {
    let (space, operand) = (world.space, format::number(100));
    let wanted = Wanted::Point(key.into());
    let seen = [Seen { space, wanted: &wanted, view }];
    let update = LoggedUpdate { space, modifier: PUT, key: b"target", operand: &operand };
    world.core.modify_if(&seen, &[update], Urgency::Now, world.now_us)
}

fn holds(answer: Result<Conditional, Error>) -> bool {
    match answer.expect("a sound update") {
        Conditional::Holds(accept) => {
            assert!(matches!(accept, Accept::Accepted(_)), "there is room");
            true
        }
        Conditional::Changed => false,
        Conditional::Unsettled => panic!("no change is in progress"),
    }
}

#[test]
fn what_was_seen_holds_until_an_update_of_the_same_key_comes() {
    let mut world = World::new();
    world.add("k", 1);
    let view = world.view(world.space, "k");
    assert!(holds(put_if(&mut world, "k", &view)));
    world.add("other", 1);
    assert!(holds(put_if(&mut world, "k", &view)), "others do not concern it");
    world.add("k", 0);
    let last = world.core.last();
    assert!(!holds(put_if(&mut world, "k", &view)), "whatever it comes to");
    assert_eq!(world.core.last(), last, "nothing was accepted");
    let view = world.view(world.space, "k");
    assert!(holds(put_if(&mut world, "k", &view)));
}

#[test]
fn the_absence_of_a_key_is_something_that_was_seen() {
    let mut world = World::new();
    let view = world.view(world.space, "k");
    assert!(holds(put_if(&mut world, "k", &view)));
    world.put(world.space, "k", 1);
    assert!(!holds(put_if(&mut world, "k", &view)));
}

#[test]
fn a_sweep_costs_another_look_though_the_value_is_the_same() {
    let mut world = World::new();
    world.add("k", 1);
    let view = world.view(world.space, "k");
    world.sweep();
    assert!(!holds(put_if(&mut world, "k", &view)));
    let view = world.view(world.space, "k");
    assert!(holds(put_if(&mut world, "k", &view)), "an image is compared by its place and name");
}

#[test]
fn a_change_that_was_swept_in_between_is_noticed_though_nothing_waits_before_or_after() {
    let mut world = World::new();
    world.put(world.space, "k", 1);
    world.sweep();
    let view = world.view(world.space, "k");
    assert_eq!(view.updates().len(), 0);
    world.add("k", 1);
    world.sweep();
    assert_eq!(world.view(world.space, "k").updates().len(), 0);
    assert!(!holds(put_if(&mut world, "k", &view)));
}

#[test]
fn nothing_is_said_while_a_range_is_on_its_way_out() {
    let mut world = World::new();
    world.add("k", 1);
    let view = world.view(world.space, "k");
    world.core.remove_range(world.space, b"a", None).expect("it keeps keys in order");
    assert!(!world.core.is_settled(world.space));
    assert_eq!(put_if(&mut world, "k", &view).ok(), Some(Conditional::Unsettled));
    world.until_published();
    assert!(world.core.is_settled(world.space));
    assert!(!holds(put_if(&mut world, "k", &view)), "it is gone");
}

#[test]
fn a_record_that_is_wrong_in_itself_is_refused_whatever_was_seen() {
    let mut world = World::new();
    let view = world.view(world.space, "k");
    let wanted = Wanted::Point(b"k".to_vec());
    let seen = [Seen { space: world.space, wanted: &wanted, view: &view }];
    for (modifier, operand) in [(ADD_I64, &b"1"[..]), (DELETE_RANGE, b"")] {
        let update = LoggedUpdate { space: world.space, modifier, key: b"k", operand };
        let refused = world.core.modify_if(&seen, &[update], Urgency::Now, 0);
        assert!(matches!(refused, Err(Error::Request(_))), "{refused:?}");
    }
    world.core.begin_close();
    assert!(matches!(put_if(&mut world, "k", &view), Err(Error::Closed(_))));
}
