//! Checkpoints: what they hold, what they release, and the outcome of one that finds no room.

use super::ground::Ground;
use super::{Core, World, config};
use crate::engine::Config;
use crate::engine::catalog::FIRST_USER_SPACE;
use crate::engine::checkpoint::{Checkpointer, Listing};
use crate::engine::flush::Flushing;
use crate::engine::format::checkpoint_format::Superblock;
use crate::engine::growth::Growth;
use crate::engine::ids::Seq;
use crate::engine::io::IoKind;

#[test]
fn a_checkpoint_holds_the_directory_of_its_begin_and_releases_the_log() {
    let mut world = World::new();
    (0..1000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    let before = world.core.replay_from();
    world.checkpoint();
    assert!(world.core.replay_from() > before, "the log is no longer needed");
    assert_eq!(world.core.metrics().checkpoints_total.get(), 1);
    let waits = world.core.accepted();
    world.add("k000001", 10);
    world.until("it is durable", |core| core.durable() == core.last());
    let mut world = world.reopen();
    assert!(world.core.is_swept(waits), "what the checkpoint has is not replayed");
    assert_eq!(world.core.waiting_entries(), 1, "what came later is");
    assert_eq!(world.get(world.space, "k000001"), Some(11));
    assert_eq!(world.get(world.space, "k000999"), Some(999));
    world.check();
}

#[test]
fn what_changes_while_a_checkpoint_is_written_is_in_the_next_one() {
    let mut world = World::new();
    (0..1000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    world.core.request_checkpoint();
    world.step();
    assert!(world.core.is_checkpointing());
    let begin = world.core.published();
    (0..1000).for_each(|number| world.add(&format!("k{number:06}"), 1));
    let accepted = world.core.accepted();
    world.core.request_sweep();
    world.until("a checkpoint", |core| !core.is_checkpointing());
    assert!(world.core.checkpointer.root_begin() <= begin);
    world.until("all is swept", |core| core.is_swept(accepted));
    let mut world = world.reopen();
    assert_eq!(world.get(world.space, "k000500"), Some(501));
    world.check();
}

#[test]
fn only_what_has_changed_is_written_again() {
    let mut world = World::new();
    (0..8000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    world.checkpoint();
    let all = world.core.metrics().checkpoint_written_bytes_total.get();
    world.add("k000001", 1);
    world.sweep();
    world.checkpoint();
    let changed = world.core.metrics().checkpoint_written_bytes_total.get() - all;
    assert!(changed * 2 < all, "{changed} bytes after {all}");
    world.check();
}

#[test]
fn a_superblock_alone_releases_the_log_when_only_the_frontier_has_moved() {
    let mut world = World::new();
    world.checkpoint();
    let superblock = *world.core.checkpointer.superblock();
    let checkpoints = world.core.metrics().checkpoints_total.get();
    assert!(superblock.root.is_some());
    world.core.begin_close();
    world.until("a superblock says so", Core::is_attested);
    let after = world.core.checkpointer.superblock();
    assert_eq!(after.root, superblock.root);
    assert_eq!(world.core.metrics().checkpoints_total.get(), checkpoints);
}

#[test]
fn the_log_never_stops_the_sweep_however_full_it_is() {
    let log = 8 * super::SEGMENT;
    let mut regions = config().log_regions;
    regions[0].bytes = log;
    let mut world = World::with(Config { log_regions: regions, ..config() }, 16 << 20);
    for number in 0..20_000u32 {
        let key = format!("k{:010}", number.wrapping_mul(2_654_435_761));
        world.put(world.space, &key, i64::from(number));
    }
    world.sweep();
    assert!(world.core.metrics().checkpoints_total.get() > 1, "the log went round");
    assert_eq!(world.core.space_size(world.space).records, 20_000);
    world.check();
    let mut world = world.reopen();
    assert_eq!(world.get(world.space, "k0000000000"), Some(0));
}

#[test]
fn one_that_finds_no_room_gives_back_what_it_has_written() {
    // A log so long that no checkpoint is due by itself.
    let mut config = config();
    config.log_regions[0].bytes = 64 * super::SEGMENT;
    let mut world = World::with(config, 4 << 20);
    (0..4000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    world.until("it rests", |core| !core.is_active());
    // Allocates all space except a few units, in pieces.
    let map = &mut world.core.base.index.space_map;
    let mut taken = Vec::new();
    while map.free_bytes() > 3 * 4096 {
        taken.push(map.allocate_high(4096).expect("it is free"));
    }
    let used = world.core.space_map().used_bytes();
    world.core.request_checkpoint();
    world.until("it gives up", |core| !core.is_checkpointing());
    assert_eq!(world.core.metrics().checkpoints_total.get(), 0);
    assert!(world.core.is_full());
    assert_eq!(world.core.space_map().used_bytes(), used, "all of it is released");
    let map = &mut world.core.base.index.space_map;
    taken.into_iter().for_each(|extent| map.free(extent));
    world.checkpoint();
    assert_eq!(world.core.metrics().checkpoints_total.get(), 1, "with room it succeeds");
    assert!(!world.core.is_full());
    let mut world = world.reopen();
    assert_eq!(world.get(world.space, "k003999"), Some(3999));
    world.check();
}

/// Advances a checkpoint as far as possible without the log; returns whether it writes a
/// superblock.
fn advance(ground: &mut Ground, checkpointer: &mut Checkpointer) -> bool {
    let mut growth = Growth::new(&[false]);
    for _ in 0..20 {
        checkpointer.pump(&mut ground.base, &mut growth);
        ground.pump_flushes();
        for request in ground.requests() {
            let kind = ground.base.io.completed(request.token).kind;
            let completion = ground.perform(request);
            match kind {
                IoKind::CheckpointWrite => checkpointer.write_done(&mut ground.base, &completion),
                IoKind::Flush => {
                    let covered = ground.base.flushes.device_done(true);
                    assert!(covered.iter().all(|who| matches!(who, Flushing::Checkpoint)));
                    checkpointer.flushed();
                }
                IoKind::Superblock => return true,
                other => panic!("{other:?} is not of a checkpoint"),
            }
        }
    }
    false
}

/// That of a store whose log is needed from the beginning.
fn superblock(root_seq: Seq) -> Superblock {
    Superblock {
        store: config().store,
        generation: 1,
        epoch: 1,
        replay_from: Seq::FIRST,
        root_seq,
        next_space: FIRST_USER_SPACE.plus(3),
        root: None,
        durable: Seq::NONE,
    }
}

/// No root has the images of changes that no checkpoint has carried, whatever the sweep has done.
#[test]
fn a_close_keeps_the_log_of_what_no_checkpoint_had_room_for() {
    for is_ahead in [true, false] {
        let mut ground = Ground::new();
        ground.fill(10);
        let last = ground.base.journal.published();
        ground.base.index.find_frontier(None, last);
        let mut checkpointer = Checkpointer::after_open(superblock(last), Listing::default());
        if is_ahead {
            ground.base.journal.run_ahead();
        }
        ground.base.gate.begin_close();
        assert!(checkpointer.attest(&mut ground.base));
        let request = ground.request();
        let completion = ground.end(request);
        checkpointer.superblock_done(&mut ground.base, &completion);
        let expected = if is_ahead { Seq::FIRST } else { last.next() };
        assert_eq!(checkpointer.superblock().replay_from, expected);
        assert_eq!(checkpointer.superblock().durable, ground.base.journal.durable());
    }
}

/// The images of a carried run may have updates whose records are still being written. Without
/// these records, others would get their sequences, and count as parts of the images.
#[test]
fn a_checkpoint_that_carries_waits_until_the_records_before_it_are_durable() {
    for carries in [true, false] {
        let mut ground = Ground::new();
        ground.fill(10);
        let mut checkpointer = Checkpointer::after_open(superblock(Seq::NONE), Listing::default());
        ground.put("k0001", 7);
        if carries {
            ground.base.journal.run_ahead();
        }
        checkpointer.begin(&mut ground.base);
        assert_eq!(advance(&mut ground, &mut checkpointer), !carries);
        if carries {
            ground.write_log();
            assert!(advance(&mut ground, &mut checkpointer));
        }
    }
}
