//! The index: an update waits in one place, and a place is in use if something is there.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::format;
use super::ground::{Ground, exact_space, record, space};
use crate::device::Buffer;
use crate::engine::accept;
use crate::engine::cache::Image;
use crate::engine::directory::BlockId;
use crate::engine::event::Event;
use crate::engine::format::checkpoint_format::Root;
use crate::engine::format::image_format::ImageKind;
use crate::engine::format::record_format::{
    CloneRecord, DirectoryChange, LoggedUpdate, Placement, RangeRecord, SpaceRecord,
};
use crate::engine::format::spill_segment_format::{SpillSegmentRecord, Spilled};
use crate::engine::ids::{Seq, SpaceId};
use crate::engine::index::Release;
use crate::engine::registry::{DELETE_RANGE, KeyRange, PUT};

/// A clone of the ordered space, at once.
fn clone(ground: &mut Ground) -> SpaceId {
    let number = space().plus(20);
    let source = ground.base.index.check_space(space()).expect("it is there").clone();
    let record = SpaceRecord { space: number, name: "clone".to_owned(), ..source };
    let clone = CloneRecord { snapshot: None, pairs: vec![(space(), record)] };
    let seq = ground.base.journal.last();
    ground.base.index.apply_event(seq, Event::Clone(clone), Release::Now);
    number
}

fn keys_waiting(ground: &Ground, key: &str) -> Vec<(Seq, String)> {
    let block = ground.base.index.directory().block(ground.block_of(key));
    let packed = ground.base.index.arena().snapshot(&block.queue, &block.key);
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    packed.unpack().updates().map(|update| (update.seq, text(update.key))).collect()
}

#[test]
fn what_was_frozen_waits_before_what_came_since_when_a_run_gives_up() {
    let mut ground = Ground::new();
    let first = ground.put("b", 1);
    let block = ground.block_of("b");
    let index = &mut ground.base.index;
    index.pin(block);
    let frozen: usize = index.freeze(&[block]).iter().map(|packed| packed.memory_bytes()).sum();
    assert_eq!(index.directory().block(block).queue.count(), 0);
    assert_eq!((index.waiting_entries(), index.queue_bytes()), (1, frozen));
    let second = ground.put("a", 2);
    let index = &mut ground.base.index;
    index.end_freeze(frozen);
    index.unfreeze(block);
    assert!(!index.directory().block(block).pinned);
    assert_eq!(keys_waiting(&ground, "a"), [(first, "b".to_owned()), (second, "a".to_owned())]);
    assert_eq!(ground.base.index.queue_bytes(), ground.base.index.arena().used_bytes());
}

#[test]
#[should_panic(expected = "what is given back was frozen")]
fn nobody_gives_back_what_was_not_frozen() {
    Ground::new().base.index.end_freeze(1);
}

#[test]
fn a_block_without_an_image_is_listed_while_something_waits_for_it_that_no_run_has() {
    let mut ground = Ground::new();
    assert!(ground.base.index.unplaced().is_empty());
    ground.put("k", 1);
    let block = ground.block_of("k");
    assert_eq!(ground.base.index.unplaced().len(), 1);
    ground.base.index.pin(block);
    let frozen = ground.base.index.freeze(&[block]);
    assert!(ground.base.index.unplaced().is_empty(), "a run has it");
    ground.base.index.end_freeze(frozen.iter().map(|packed| packed.memory_bytes()).sum());
    ground.base.index.unfreeze(block);
    assert_eq!(ground.base.index.unplaced().len(), 1);
    ground.sweep(&[block]);
    assert!(ground.base.index.unplaced().is_empty());
    assert_eq!(ground.base.index.placed().len(), 1);
}

#[test]
fn the_frontier_stops_before_what_waits_and_never_moves_back() {
    let mut ground = Ground::new();
    ground.base.find_frontier();
    assert_eq!(ground.base.index.frontier(), Seq::new(0));
    ground.publish();
    let first = ground.put("k", 1);
    ground.put("l", 1);
    ground.base.find_frontier();
    assert_eq!(ground.base.index.frontier(), first.previous());
    let block = ground.block_of("k");
    ground.sweep(&[block]);
    ground.base.find_frontier();
    let frontier = ground.base.index.frontier();
    assert_eq!(frontier, ground.base.journal.last(), "nothing waits");
    ground.put("k", 2);
    ground.base.find_frontier();
    assert_eq!(ground.base.index.frontier(), frontier);
}

#[test]
fn the_frontier_stops_before_a_change_that_is_not_in_effect() {
    let mut ground = Ground::new();
    ground.accept(exact_space(), PUT, "k", b"v");
    let seq = ground.base.journal.last();
    ground.base.find_frontier();
    assert_eq!(ground.base.index.frontier(), seq.previous(), "its update will be queued with it");
    ground.publish();
    ground.base.find_frontier();
    assert_eq!(ground.base.index.frontier(), seq.previous(), "and waits from then on");
}

#[test]
fn what_is_in_spill_segments_is_not_swept() {
    let mut ground = Ground::new();
    let blocks = ground.fill(10);
    ground.base.find_frontier();
    assert_eq!(ground.base.index.swept(), ground.base.index.frontier());
    let added = add_segment(&mut ground, Seq::new(5), &blocks);
    assert!(added);
    assert_eq!(ground.base.index.swept(), Seq::new(4));
    assert!(ground.base.index.frontier() > Seq::new(4), "the log may be released all the same");
}

/// Adds a spill segment whose oldest update has this sequence.
fn add_segment(ground: &mut Ground, first_seq: Seq, blocks: &[BlockId]) -> bool {
    let extent = ground.base.index.space_map.allocate_high(4096).expect("there is room");
    let seq = ground.base.journal.last();
    let record = SpillSegmentRecord {
        space: space(),
        low: Box::default(),
        high: None,
        first_seq,
        through: seq.plus(5),
        updates: 1,
        growth_bytes: 10,
        extent,
    };
    let table = &ground.base.index.directory().table;
    let blocks = blocks.iter().map(|block| table.reference(*block)).collect();
    let spilled = Spilled { record, blocks };
    ground.base.index.add_spill_segment(seq.plus(6), &spilled, None, Release::Now)
}

#[test]
fn a_spill_segment_is_added_only_while_its_blocks_are_the_spaces_alone() {
    let mut ground = Ground::new();
    let blocks = ground.fill(10);
    clone(&mut ground);
    let used = ground.base.index.space_map.used_bytes();
    assert!(!add_segment(&mut ground, Seq::new(1), &blocks));
    assert!(ground.base.index.spill_segments.is_empty());
    assert_eq!(ground.base.index.space_map.used_bytes(), used, "its place is free again");
}

#[test]
fn a_spill_segment_goes_when_no_block_has_an_update_of_it_and_its_place_with_a_checkpoint() {
    let mut ground = Ground::new();
    let blocks = ground.fill(10);
    assert!(add_segment(&mut ground, Seq::new(1), &blocks));
    let through = ground.base.journal.last().plus(5);
    let index = &mut ground.base.index;
    assert!(index.count_spilled(blocks[0], through), "it is beyond the frontier of the block");
    let segments = index.spill_segments_of(space(), blocks[0]);
    assert_eq!(segments.len(), 1);
    assert!(!index.drop_unless_needed(&segments[0]), "a block has an update of it");
    let reference = index.directory().table.reference(blocks[0]);
    let before = index.directory().block(blocks[0]).placement();
    let moved = Placement { frontier: through, image_seq: through, ..before };
    let change = DirectoryChange { moved: vec![(reference, moved)], ..DirectoryChange::default() };
    index.apply_change(through, &change, Release::Now);
    assert_eq!(index.spilled_entries(), 0, "a run applies all that spill segments have");
    assert!(index.drop_unless_needed(&segments[0]));
    assert_eq!(index.take_outdated(), [segments[0].record.extent]);
    assert!(!index.drop_unless_needed(&segments[0]), "once");
}

#[test]
fn an_image_that_several_blocks_share_is_given_back_by_the_last_of_them() {
    let mut ground = Ground::new();
    let block = ground.fill(10)[0];
    let old = ground.placement(block).extent.expect("it was swept");
    let copy = clone(&mut ground);
    ground.accept(copy, PUT, "k0001", &format::number(9));
    ground.publish();
    let index = &ground.base.index;
    let own = index.directory().covering(copy, b"k0001").expect("a block of its own");
    assert_ne!(own, block);
    assert_eq!(index.blocks_at(old).count(), 2, "they share the image");
    assert_eq!(index.copy_bytes(), u64::from(old.bytes), "and will not always");
    ground.base.index.cache.put(old, image());
    ground.sweep(&[own]);
    let is_used = |ground: &Ground| {
        let free: Vec<(u64, u64)> = ground.base.index.space_map.free_extents(old.device).collect();
        !free.iter().any(|(start, bytes)| (*start..start + bytes).contains(&old.offset))
    };
    assert!(is_used(&ground), "another block is there");
    assert!(ground.base.index.cache.get(old).is_some());
    assert_eq!(ground.base.index.copy_bytes(), 0);
    ground.put("k0001", 1);
    ground.sweep(&[block]);
    assert!(!is_used(&ground));
    assert!(ground.base.index.cache.get(old).is_none(), "what comes there is something else");
}

fn image() -> Arc<Image> {
    Arc::new(Image::new(Arc::new(Buffer::zeroed(64)), 0..8))
}

#[test]
fn space_that_a_carried_change_leaves_is_free_after_the_checkpoint_and_in_replay_nothing_is() {
    let mut ground = Ground::new();
    let block = ground.fill(10)[0];
    let before = ground.placement(block);
    let old = before.extent.expect("it was swept");
    let used = ground.base.index.space_map.used_bytes();
    let mut apply = |frontier: Seq, release| {
        let index = &mut ground.base.index;
        let extent = index.space_map.allocate_high(4096);
        let moved = Placement { frontier, image_seq: frontier, extent, ..before };
        let reference = index.directory().table.reference(block);
        let change =
            DirectoryChange { moved: vec![(reference, moved)], ..DirectoryChange::default() };
        index.apply_change(frontier, &change, release);
        (index.take_outdated(), index.space_map.used_bytes(), extent)
    };
    let (outdated, used_now, second) = apply(before.frontier.plus(10), Release::AfterCheckpoint);
    assert_eq!((outdated, used_now), (vec![old], used + 4096));
    let (outdated, used_now, third) = apply(before.frontier.plus(20), Release::Now);
    assert_eq!((outdated, used_now), (vec![], used + 4096), "{second:?} is free");
    let (outdated, used_now, _) = apply(before.frontier.plus(30), Release::Never);
    assert_eq!((outdated, used_now), (vec![], used + 8192), "{third:?}");
}

#[test]
#[should_panic(expected = "the frontier of a block never moves back")]
fn a_block_never_gets_an_image_that_is_older_than_its_own() {
    let mut ground = Ground::new();
    let block = ground.fill(10)[0];
    let before = ground.placement(block);
    let older = Placement { frontier: before.frontier.previous(), ..before };
    let reference = ground.base.index.directory().table.reference(block);
    let change = DirectoryChange { moved: vec![(reference, older)], ..DirectoryChange::default() };
    ground.base.index.apply_change(Seq::new(99), &change, Release::Now);
}

#[test]
fn a_block_is_swept_out_of_turn_once_and_not_while_somebody_has_it_in_hand() {
    let mut ground = Ground::new();
    ground.put("k", 1);
    let block = ground.block_of("k");
    let index = &mut ground.base.index;
    index.sweep_out_of_turn(block);
    assert!(index.has_out_of_turn());
    assert_eq!(index.next_out_of_turn(), Some(block));
    assert_eq!(index.next_out_of_turn(), None);
    index.sweep_out_of_turn(block);
    index.pin(block);
    assert!(!index.has_out_of_turn());
}

#[test]
fn the_removal_of_a_range_is_told_once_to_the_blocks_that_it_concerns() {
    let mut ground = Ground::new();
    let blocks = ground.fill(900);
    assert!(blocks.len() > 3);
    let (from, to) = (ground.key_of(blocks[1]).into_bytes(), ground.key_of(blocks[3]));
    let range = KeyRange { from: &from, to: Some(to.as_bytes()) };
    let (seq, mut told) = (ground.base.journal.last().next(), BTreeSet::new());
    for _ in 0..2 {
        ground.base.index.push_range(seq, space(), &range, &mut told);
    }
    assert_eq!(told, BTreeSet::from([blocks[1], blocks[2]]));
    let queued: Vec<u32> = blocks[..4].iter().map(|block| ground.queued(*block)).collect();
    assert_eq!(queued, [0, 1, 1, 0]);
    let old = ground.placement(blocks[1]).frontier;
    ground.base.index.push_range(old, space(), &range, &mut BTreeSet::new());
    assert_eq!(ground.queued(blocks[1]), 1, "its image knows of what is older");
    let update = LoggedUpdate { space: space(), modifier: DELETE_RANGE, key: &from, operand: b"" };
    assert!(accept::check(&ground.base.index, &[update]).is_err(), "callers cannot");
}

#[test]
fn what_a_later_removal_covers_is_not_tried_in_replay() {
    let mut ground = Ground::new();
    let range = RangeRecord { space: space(), from: b"c".to_vec(), to: Some(b"m".to_vec()) };
    ground.base.index.begin_replay();
    ground.base.index.will_remove(Seq::new(10), range);
    let is_removed = |seq, key: &[u8]| ground.base.index.is_removed(space(), seq, key);
    assert!(
        is_removed(Seq::new(9), b"c")
            && !is_removed(Seq::new(9), b"m")
            && !is_removed(Seq::new(9), b"b")
    );
    assert!(!is_removed(Seq::new(10), b"c"), "what comes later stays");
    assert!(!ground.base.index.is_removed(exact_space(), Seq::new(9), b"c"), "of that space");
    ground.base.index.end_replay();
    assert!(ground.base.index.removed_ranges().is_empty());
}

#[test]
fn who_owns_a_block_is_known_whatever_happens_to_its_space() {
    let mut ground = Ground::new();
    let block = ground.fill(10)[0];
    let reference = ground.base.index.directory().table.reference(block);
    assert!(!ground.base.index.is_shared(space(), block));
    let copy = clone(&mut ground);
    let index = &mut ground.base.index;
    assert!(index.is_shared(space(), block) && index.has_block(copy, reference));
    index.apply_event(Seq::new(50), Event::Drop(space()), Release::Now);
    index.apply_event(Seq::new(51), Event::Release(1000), Release::Now);
    assert!(!index.has_block(space(), reference));
    let owner = index.directory().owner(block).map(|(space, _)| space.record.space);
    assert_eq!(owner, Some(copy));
    assert!(!index.is_shared(copy, block));
}

#[test]
fn a_checkpoint_gets_what_it_has_to_write_as_it_was_when_it_began() {
    let mut ground = Ground::new();
    let blocks = ground.fill(10);
    ground.base.index.begin_checkpoint(Seq::new(0));
    let page = ground.base.index.directory().table.encode_page(0);
    let reference = ground.base.index.directory().table.reference(blocks[0]);
    let frontier = ground.placement(blocks[0]).frontier.plus(9);
    let moved = Placement { frontier, image_seq: frontier, ..ground.placement(blocks[0]) };
    let change = DirectoryChange { moved: vec![(reference, moved)], ..DirectoryChange::default() };
    ground.base.index.apply_change(frontier, &change, Release::Now);
    assert_ne!(ground.base.index.directory().table.encode_page(0), page);
    let saved = ground.base.index.take_saved();
    assert_eq!(saved, Some((ImageKind::Page, 0, page)));
    let mut nodes = 0;
    while let Some((kind, _, _)) = ground.base.index.next_unwritten() {
        assert_eq!(kind, ImageKind::Node, "the page was written");
        nodes += 1;
    }
    assert_eq!(nodes, ground.base.index.directory().trees.node_count());
    ground.base.index.begin_checkpoint(Seq::new(0));
    let next = ground.base.index.next_unwritten();
    assert!(matches!(next, Some((ImageKind::Page, 0, _))), "it has changed since: {next:?}");
    assert_eq!(ground.base.index.next_unwritten(), None, "and nothing else has");
}

#[test]
fn spaces_of_an_unregistered_format_are_named_and_their_blocks_are_left_alone() {
    let mut ground = Ground::new();
    ground.base.index.pin_unregistered();
    assert!(!ground.base.index.has_unregistered());
    assert!(ground.base.index.missing_format().is_none());
    let mut root = Root::default();
    let block = ground.block_of("k");
    let tree = ground.base.index.directory().space(space()).map_or(0, |space| space.root.0);
    root.spaces.push((record(space(), "gone", "t"), tree));
    let restored = ground.base.index.restore(&root).expect("it opens all the same");
    drop(restored);
    ground.base.index.pin_unregistered();
    assert!(ground.base.index.has_unregistered());
    let named = ground.base.index.missing_format().map(|error| error.to_string());
    assert!(named.is_some_and(|named| named.contains("gone")));
    assert!(ground.base.index.missing_format_of(space(), Seq::new(1)).is_some());
    assert!(ground.base.index.missing_format_of(exact_space(), Seq::new(1)).is_none());
    assert!(ground.base.index.directory().block(block).pinned);
}

#[test]
fn where_a_block_ends_follows_from_its_routing() {
    let mut ground = Ground::new();
    let blocks = ground.fill(600);
    let second = ground.key_of(blocks[1]).into_bytes();
    let index = &ground.base.index;
    assert_eq!(index.high_of(space(), b"").as_deref(), Some(&second[..]));
    let last = ground.key_of(*blocks.last().expect("some"));
    assert_eq!(index.high_of(space(), last.as_bytes()), None);
    assert_eq!(index.high_of(exact_space(), b"k").as_deref(), Some(&b"k\0"[..]));
    assert_eq!(index.high_of(space().plus(90), b""), None);
}

#[test]
fn numbers_of_spaces_are_given_once() {
    let mut ground = Ground::new();
    let index = &mut ground.base.index;
    let first = index.next_space();
    index.take_spaces(2);
    assert_eq!(index.next_space(), first.plus(4), "a space and its companion each");
    index.add_space(record(first.plus(10), "table", "late"), Seq::new(9));
    assert_eq!(index.next_space(), first.plus(12), "also those that replay finds");
}
