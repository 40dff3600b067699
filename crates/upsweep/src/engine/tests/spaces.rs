//! Spaces, snapshots and modifiers are created and dropped: refusals, and assignment of numbers.

use super::World;
use crate::engine::KEY_BYTES_MAX;
use crate::engine::ids::SnapshotId;
use crate::engine::quarantine::{QUARANTINE_SPACE, REFERENCES_SPACE};
use crate::error::{Error, RequestError, RetryError};

fn refusal<T: std::fmt::Debug>(answer: Result<T, Error>) -> RequestError {
    match answer {
        Err(Error::Request(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_name_has_1_to_255_bytes_and_no_control_characters() {
    let mut world = World::new();
    for bad in ["", "line\nfeed", &"n".repeat(256)] {
        let next = world.core.base.index.next_space();
        let refused = refusal(world.core.create_space(bad, "table", true));
        assert!(matches!(refused, RequestError::BadTableName(_)), "{refused:?}");
        let refused = refusal(world.core.clone_space(world.space, bad));
        assert!(matches!(refused, RequestError::BadTableName(_)), "{refused:?}");
        let refused = refusal(world.core.create_snapshot(Some(bad), None, [1; 16]));
        assert!(matches!(refused, RequestError::BadSnapshotName(_)), "{refused:?}");
        assert_eq!(world.core.base.index.next_space(), next, "no number is used up");
    }
    world.core.create_space(&"n".repeat(255), "table", true).expect("a name");
}

#[test]
fn a_name_is_taken_from_the_moment_at_which_its_record_is_on_its_way() {
    let mut world = World::new();
    world.core.clone_space(world.space, "twice").expect("a new name");
    let busy = world.core.create_space("twice", "table", true);
    assert!(matches!(busy, Err(Error::Retry(RetryError::Busy))), "{busy:?}");
    world.core.create_snapshot(Some("monday"), None, [1; 16]).expect("a new name");
    let taken = refusal(world.core.create_snapshot(Some("monday"), None, [2; 16]));
    assert!(matches!(taken, RequestError::SnapshotExists(_)), "{taken:?}");
    world.until_published();
    let taken = refusal(world.core.create_space("twice", "table", true));
    assert!(matches!(taken, RequestError::TableMismatch { .. }), "{taken:?}");
    let snapshot = world.core.snapshot_named("monday").expect("it is there");
    world.core.drop_snapshot(snapshot).expect("it is there");
    world.until_published();
    world.core.create_snapshot(Some("monday"), None, [3; 16]).expect("the name is free again");
}

#[test]
fn a_snapshot_has_the_spaces_that_were_asked_for_under_their_names() {
    let mut world = World::new();
    let other = world.create("other");
    let all = world.core.create_snapshot(None, None, [1; 16]).expect("a snapshot");
    let one = world.core.create_snapshot(None, Some(&[other]), [2; 16]).expect("a snapshot");
    world.until_published();
    let names = |world: &World, snapshot| -> Vec<String> {
        world.core.spaces_of(snapshot).map(|record| record.name.clone()).collect()
    };
    assert_eq!(names(&world, all.number), ["t", "other"]);
    assert_eq!(names(&world, one.number), ["other"]);
    assert_eq!(world.core.snapshot(one.number).map(|(_, seq)| seq), Some(one.seq));
    assert!(world.core.snapshot(one.number).is_some_and(|(record, _)| record.temporary));
    assert_eq!(names(&world, SnapshotId::new(0)), ["(quarantine)", "(references)", "t", "other"]);
}

#[test]
fn what_is_not_there_or_is_the_stores_own_is_neither_dropped_nor_cloned() {
    let mut world = World::new();
    let nowhere = world.space.plus(90);
    let refused = refusal(world.core.drop_space(nowhere));
    assert!(matches!(refused, RequestError::NoTable(_)), "{refused:?}");
    let refused = refusal(world.core.clone_space(nowhere, "clone"));
    assert!(matches!(refused, RequestError::NoTable(_)), "{refused:?}");
    let refused = refusal(world.core.drop_snapshot(SnapshotId::new(90)));
    assert!(matches!(refused, RequestError::NoSnapshot(_)), "{refused:?}");
    for own in [QUARANTINE_SPACE, REFERENCES_SPACE] {
        let refused = refusal(world.core.drop_space(own));
        assert!(matches!(refused, RequestError::ReadOnly(_)), "{refused:?}");
        let refused = refusal(world.core.clone_space(own, "clone"));
        assert!(matches!(refused, RequestError::NoTable(_)), "{refused:?}");
    }
    let made = world.core.create_snapshot(Some("s"), None, [1; 16]).expect("a snapshot");
    world.until_published();
    let refused = refusal(world.core.drop_space(made.clones[0].1));
    assert!(matches!(refused, RequestError::ReadOnly(_)), "it goes with its snapshot: {refused:?}");
}

#[test]
fn a_range_is_removed_only_where_keys_are_in_order_and_its_bounds_may_be_keys() {
    let mut world = World::new();
    let (exact, _) = world.core.create_space("exact", "raw", false).expect("a new name");
    world.until_published();
    let refused = refusal(world.core.remove_range(exact, b"a", None));
    assert!(matches!(refused, RequestError::NotOrdered(_)), "{refused:?}");
    let long = vec![b'k'; KEY_BYTES_MAX + 1];
    for (from, to) in [(&long[..], None), (b"a", Some(&long[..]))] {
        let refused = refusal(world.core.remove_range(world.space, from, to));
        assert!(matches!(refused, RequestError::KeyTooLong { .. }), "{refused:?}");
    }
    world.core.remove_range(world.space, &long[1..], None).expect("the longest key");
}

#[test]
fn two_spaces_differ_where_one_of_them_has_changed_and_nowhere_else() {
    let mut world = World::new();
    (0..2000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    let (clone, _) = world.core.clone_space(world.space, "clone").expect("a new name");
    world.until_published();
    let differences = |world: &World| {
        world.core.differences(world.space, clone, b"", 10).expect("both are there")
    };
    assert_eq!(differences(&world).len(), 0, "they share everything");
    world.put(clone, "k000700", 1);
    world.until_published();
    let differ = differences(&world);
    assert_eq!(differ.len(), 1, "{differ:?}");
    assert!(world.core.differences(world.space, clone.plus(90), b"", 10).is_err());
}

#[test]
fn a_store_that_closes_takes_no_calls() {
    let mut world = World::new();
    world.core.begin_close();
    let space = world.space;
    let core = &mut world.core;
    let answers = [
        core.create_space("new", "table", true).map(drop),
        core.clone_space(space, "clone").map(drop),
        core.create_snapshot(None, None, [1; 16]).map(drop),
        core.drop_space(space).map(drop),
        core.remove_range(space, b"a", None).map(drop),
    ];
    assert!(answers.iter().all(|answer| matches!(answer, Err(Error::Closed(_)))), "{answers:?}");
}
