//! Changes that take effect when a record is durable, and not before.

use super::World;
use crate::engine::ids::SpaceId;
use crate::engine::quarantine::QUARANTINE_SPACE;
use crate::engine::registry::PUT;
use crate::error::{Error, RequestError, RetryError};

/// Updates of a space that wait for their record.
fn pending(world: &World, space: SpaceId) -> usize {
    world.core.base.index.directory().space(space).map_or(0, |space| space.pending.len())
}

#[test]
fn a_space_is_there_when_its_record_is_durable() {
    let mut world = World::new();
    let (space, seq) = world.core.create_space("new", "table", true).expect("a new name");
    assert!(world.core.space_named("new").is_none(), "its record is not durable");
    assert!(world.core.published() < seq);
    let twice = world.core.create_space("new", "table", true);
    assert!(matches!(twice, Err(Error::Retry(RetryError::Busy))), "{twice:?}");
    world.until_published();
    assert_eq!(world.core.space_named("new").map(|record| record.space), Some(space));
    let taken = world.core.create_space("new", "table", true);
    let Err(Error::Request(RequestError::TableMismatch { .. })) = taken else {
        panic!("{taken:?}")
    };
    let unknown = world.core.create_space("other", "no format", true);
    let Err(Error::Request(RequestError::UnknownFormat(_))) = unknown else {
        panic!("{unknown:?}")
    };
}

#[test]
fn an_update_of_a_shared_block_waits_for_its_record_and_concerns_one_side() {
    let mut world = World::new();
    (0..200).for_each(|number| world.put(world.space, &format!("k{number:04}"), number));
    world.sweep();
    let (clone, _) = world.core.clone_space(world.space, "clone").expect("a new name");
    world.until_published();
    let blocks = world.core.directory_size().0;
    let nodes = world.core.tree_counters().nodes_changed;
    world.put(clone, "k0003", 1000);
    assert_eq!(world.core.directory_size().0, blocks, "nothing is copied before it is durable");
    assert_eq!(pending(&world, clone), 1, "it is pending");
    let view = world.view(clone, "k0003");
    assert_eq!(view.updates().len(), 1, "queries see it at once");
    world.until_published();
    assert_eq!(pending(&world, clone), 0, "it is on the queue of its block");
    assert_eq!(world.core.directory_size().0, blocks + 1, "one block became two");
    assert!(world.core.tree_counters().nodes_changed > nodes, "the path to it was copied");
    assert_eq!(world.get(clone, "k0003"), Some(1000));
    assert_eq!(world.get(world.space, "k0003"), Some(3));
    world.put(clone, "k0003", 1001);
    assert_eq!(pending(&world, clone), 0, "the block is the clone's alone now");
    world.sweep();
    assert_eq!(world.get(clone, "k0003"), Some(1001));
    assert_eq!(world.get(world.space, "k0003"), Some(3));
    world.check();
}

#[test]
fn what_comes_after_the_record_of_a_clone_is_not_in_the_clone() {
    let mut world = World::new();
    world.put(world.space, "k", 1);
    let (clone, _) = world.core.clone_space(world.space, "clone").expect("a new name");
    world.put(world.space, "k", 2);
    world.until_published();
    assert_eq!(world.get(clone, "k"), Some(1));
    assert_eq!(world.get(world.space, "k"), Some(2));
    let mut world = world.reopen();
    assert_eq!(world.get(clone, "k"), Some(1), "in replay as well");
    assert_eq!(world.get(world.space, "k"), Some(2));
}

#[test]
fn what_was_dropped_comes_back_in_portions() {
    let mut world = World::new();
    let dropped = world.create("dropped");
    for number in 0..3000 {
        world.put(dropped, &format!("a longer key {number:06}"), number);
    }
    world.sweep();
    world.checkpoint();
    let (blocks, used) = (world.core.directory_size().0, world.core.space_map().used_bytes());
    assert!(blocks > 16, "{blocks}");
    world.core.drop_space(dropped).expect("it is there");
    world.until_published();
    assert!(world.core.space_record(dropped).is_none());
    world.until("nothing is left", |core| !core.is_releasing());
    world.checkpoint();
    assert!(world.core.directory_size().0 <= blocks - 16);
    assert!(world.core.space_map().used_bytes() < used / 2);
    world.check();
}

#[test]
fn a_range_goes_with_what_waits_for_it_and_later_updates_stay() {
    let mut world = World::new();
    (0..2000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    world.add("k000500", 1);
    let (from, to) = (&b"k000100"[..], &b"k001900"[..]);
    world.core.remove_range(world.space, from, Some(to)).expect("it keeps keys in order");
    world.add("k000600", 7);
    world.until_published();
    for (key, value) in
        [("k000099", Some(99)), ("k000100", None), ("k000500", None), ("k001900", Some(1900))]
    {
        assert_eq!(world.get(world.space, key), value, "{key}");
    }
    assert_eq!(world.get(world.space, "k000600"), Some(7), "it came later");
    let mut world = world.reopen();
    assert_eq!(world.get(world.space, "k000500"), None);
    assert_eq!(world.get(world.space, "k000600"), Some(7));
    world.sweep();
    assert_eq!(world.core.space_size(world.space).records, 201);
    world.check();
}

#[test]
fn what_a_modifier_refuses_is_in_the_quarantine_with_the_run_that_refused_it() {
    let mut world = World::new();
    world.accept(world.space, PUT, b"text", b"no number");
    world.add("text", 1);
    world.add("number", 2);
    world.sweep();
    assert_eq!(world.core.metrics().quarantined_updates_total.get(), 1);
    assert_eq!(world.get(world.space, "number"), Some(2), "others of the block go on");
    world.sweep();
    assert_eq!(world.core.space_size(QUARANTINE_SPACE).records, 1);
    let mut world = world.reopen();
    world.sweep();
    assert_eq!(world.core.space_size(QUARANTINE_SPACE).records, 1, "once, whatever crashes");
    world.check();
}
