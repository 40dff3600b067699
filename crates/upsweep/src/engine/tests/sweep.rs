//! The sweep: what a cycle visits, what is swept out of turn, and how runs read and write.

use super::ground::Ground;
use super::{Core, World, config};
use crate::device::DeviceId;
use crate::engine::base::Base;
use crate::engine::directory::BlockId;
use crate::engine::foreground::{ForegroundRequests, QUIET_US};
use crate::engine::key::BlockKey;
use crate::engine::pipeline::Pipeline;
use crate::engine::registry::PUT;
use crate::engine::spiller::Spiller;
use crate::engine::sweep::cycle::{Cycle, Next};
use crate::engine::{Chunk, Config, LoadTarget, LoadedBlock, SpaceId, Spilling};
use crate::log::Seq;
use crate::placement::Boundaries;

#[test]
fn a_cycle_brings_every_waiting_update_into_an_image_and_moves_the_frontier() {
    let mut world = World::new();
    (0..3000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    let accepted = world.core.accepted();
    assert!(!world.core.is_swept(accepted));
    assert!(world.core.waiting_entries() > 0);
    world.sweep();
    assert_eq!(world.core.waiting_entries(), 0);
    assert!(world.core.sweep_frontier() >= accepted);
    let size = world.core.space_size(world.space);
    assert_eq!(size.records, 3000);
    assert!(size.blocks > 8, "{} blocks: they split", size.blocks);
    for number in [0, 1, 1499, 2999] {
        assert_eq!(world.get(world.space, &format!("k{number:06}")), Some(number));
    }
    world.check();
}

#[test]
fn a_run_reads_the_neighbours_together_and_leaves_out_blocks_that_nobody_updated() {
    let mut world = World::new();
    (0..3000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    let before = world.core.metrics().read();
    let blocks = world.core.space_size(world.space).blocks;
    world.add("k000000", 1);
    world.sweep();
    let after = world.core.metrics().read();
    assert!(
        after.swept_blocks_total - before.swept_blocks_total < blocks / 2,
        "one block was updated"
    );
    let before = after.clone();
    (0..3000).for_each(|number| world.add(&format!("k{number:06}"), 1));
    world.sweep();
    let after = world.core.metrics().read();
    let (runs, swept) = (
        after.sweep_runs_total - before.sweep_runs_total,
        after.swept_blocks_total - before.swept_blocks_total,
    );
    assert!(swept >= blocks, "every block was updated");
    assert!(swept >= 3 * runs, "{swept} blocks in {runs} runs");
    world.check();
}

#[test]
fn blocks_that_have_become_thin_merge() {
    let mut world = World::new();
    (0..3000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    let before = world.core.space_size(world.space).blocks;
    (0..3000).filter(|n| n % 10 > 0).for_each(|n| world.delete(&format!("k{n:06}")));
    world.sweep();
    let after = world.core.space_size(world.space);
    assert!(after.blocks * 2 < before, "{} of {before} blocks are left", after.blocks);
    assert_eq!(after.records, 300);
    world.check();
}

#[test]
fn an_oversized_block_is_swept_out_of_turn() {
    let mut world = World::new();
    let value = vec![b'v'; 800];
    let oversized = world.config.oversized_queue_bytes();
    for number in 0..=oversized / 800 {
        world.accept(world.space, PUT, format!("k{number:06}").as_bytes(), &value);
    }
    assert!(world.core.base.index.has_out_of_turn());
    world.until("it is swept", |core| core.metrics().sweep_runs_total.get() > 0);
    assert_eq!(world.core.metrics().sweep_cycles_total.get(), 0, "without a cycle");
    assert!(!world.core.base.index.has_out_of_turn());
    world.check();
}

#[test]
fn nothing_is_swept_while_there_is_room_and_nobody_asks() {
    let mut world = World::new();
    (0..100).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    (0..100).for_each(|_| world.step());
    assert_eq!(world.core.metrics().sweep_runs_total.get(), 0);
    assert!(!world.core.is_active(), "and it rests");
}

#[test]
fn queries_that_go_through_much_that_waits_have_it_swept_and_no_more_than_that() {
    let mut world = World::with(Config { sweep_for_queries: true, ..config() }, 4 << 20);
    (0..2000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    let read = |world: &mut World, added: i64| {
        for number in 0..2000 {
            let found = world.get(world.space, &format!("k{number:06}"));
            assert_eq!(found, Some(number + added));
            world.step();
        }
    };
    let runs = runs_of(&world);
    (0..30).for_each(|_| read(&mut world, 0));
    assert_eq!(world.core.metrics().query_waiting_bytes_total.get(), 0, "nothing waits");
    assert_eq!(runs_of(&world), runs);

    (0..2000).for_each(|number| world.add(&format!("k{number:06}"), 1));
    assert_eq!(runs_of(&world), runs, "there is room");
    let mut rounds = 0;
    while world.core.waiting_entries() > 200 {
        rounds += 1;
        read(&mut world, 1);
        assert!(rounds < 100, "{} updates wait", world.core.waiting_entries());
    }
    let metrics = world.core.metrics();
    let moved = metrics.sweep_read_bytes_total.get() + metrics.sweep_written_bytes_total.get();
    let passed = metrics.query_waiting_bytes_total.get();
    assert!(moved <= passed, "{moved} bytes moved for {passed} that queries went through");
    world.sweep();
    let runs = runs_of(&world);
    read(&mut world, 1);
    assert_eq!(runs_of(&world), runs, "nothing waits any more");
    world.check();
}

#[test]
fn a_store_that_sweeps_when_it_is_idle_comes_to_rest_when_nothing_waits() {
    let mut world = World::with(Config { sweep_when_idle: true, ..config() }, 4 << 20);
    (0..100).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.until("it rests", |core| core.waiting_entries() == 0 && !core.is_active());
    let runs = world.core.metrics().sweep_runs_total.get();
    assert!(runs > 0);
    (0..100).for_each(|_| world.step());
    assert_eq!(world.core.metrics().sweep_runs_total.get(), runs);
}

fn runs_of(world: &World) -> u64 {
    world.core.metrics().sweep_runs_total.get()
}

/// A store that sweeps when it is idle, with 2000 records that were swept, none of them cached.
fn idle() -> World {
    let config = Config { sweep_when_idle: true, cache_bytes: 0, cache_borrows: false, ..config() };
    let mut world = World::with(config, 16 << 20);
    (0..2000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    world.until("it rests", |core| !core.is_active());
    world
}

#[test]
fn a_store_that_sweeps_when_it_is_idle_leaves_the_devices_to_callers_that_read() {
    let mut world = idle();
    assert_eq!(world.get(world.space, "k001000"), Some(1000));
    let runs = world.core.metrics().sweep_runs_total.get();
    world.add("k000007", 1);
    for _ in 0..10 {
        assert_eq!(world.get(world.space, "k001000"), Some(1000));
        (0..QUIET_US / 2000).for_each(|_| world.step());
        assert_eq!(world.core.metrics().sweep_runs_total.get(), runs);
    }
    assert!(!world.core.is_active());
    let until_us = world.core.deadline_us().expect("it sweeps when they have gone");
    assert!(until_us > world.now_us && until_us <= world.now_us + QUIET_US, "{until_us}");
    world.until("it has swept", |core| core.waiting_entries() == 0 && !core.is_active());
    assert!(world.now_us >= until_us);
    assert_eq!(world.core.deadline_us(), None, "nothing waits any more");
    world.check();
}

#[test]
fn a_store_that_sweeps_when_it_is_idle_leaves_the_devices_to_callers_with_extents() {
    let mut world = idle();
    let runs = world.core.metrics().sweep_runs_total.get();
    let requests = |begun, are_waiting| ForegroundRequests { begun, are_waiting };
    world.core.note_extent_requests(requests(1, true));
    world.add("k000007", 1);
    (0..QUIET_US / 500).for_each(|_| world.step());
    for begun in 2..10 {
        world.core.note_extent_requests(requests(begun, false));
        (0..QUIET_US / 2000).for_each(|_| world.step());
    }
    assert_eq!(world.core.metrics().sweep_runs_total.get(), runs);
    world.until("it has swept", |core| core.waiting_entries() == 0 && !core.is_active());
    world.check();
}

#[test]
fn callers_that_read_do_not_keep_a_sweep_from_what_needs_it() {
    let mut world = idle();
    world.get(world.space, "k001000");
    world.add("k000007", 1);
    world.core.request_sweep();
    world.until("it has swept", |core| core.waiting_entries() == 0);
    let runs = world.core.metrics().sweep_runs_total.get();
    for number in 0..30_000 {
        world.add(&format!("k{:06}", number * 7 % 2000), 1);
        if number % 20 == 0 {
            world.get(world.space, "k001000");
        }
    }
    assert!(world.core.metrics().sweep_runs_total.get() > runs, "memory has to be released");
    world.check();
}

#[test]
fn a_run_that_finds_no_room_puts_its_updates_back_and_succeeds_later() {
    let mut world = World::new();
    (0..2000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    world.until("it rests", |core| !core.is_active());
    (0..2000).for_each(|number| world.add(&format!("k{number:06}"), 1));
    let waiting = world.core.waiting_entries();
    let map = &mut world.core.base.index.space_map;
    let mut taken = Vec::new();
    while map.free_bytes() > 4096 {
        taken.push(map.allocate_high(4096).expect("it is free"));
    }
    world.core.request_sweep();
    world.until("it is full", Core::is_full);
    world.until("nothing is in flight", Core::is_quiet);
    assert_eq!(world.core.waiting_entries(), waiting, "every update waits again");
    let map = &mut world.core.base.index.space_map;
    taken.into_iter().for_each(|extent| map.free(extent));
    world.sweep();
    assert!(!world.core.is_full());
    assert_eq!(world.get(world.space, "k001999"), Some(2000));
    world.check();
}

#[test]
fn what_is_spilled_is_found_by_queries_and_applied_by_the_next_sweep() {
    let mut world = World::with(Config { spilling: Spilling::Always, ..config() }, 16 << 20);
    (0..3000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    (0..3000).for_each(|number| world.add(&format!("k{number:06}"), 1));
    world.until("some are spilled", |core| core.spilled_entries() > 1000);
    assert_eq!(world.get(world.space, "k000007"), Some(8), "from a spill segment");
    let mut world = world.reopen();
    assert!(world.core.spilled_entries() > 1000, "they are not replayed");
    assert_eq!(world.get(world.space, "k000007"), Some(8));
    world.sweep();
    assert_eq!(world.core.spilled_entries(), 0);
    assert_eq!(world.core.spill_segments_size(), (0, 0), "they are no longer needed");
    assert_eq!(world.get(world.space, "k000007"), Some(8));
    world.check();
}

/// A spill segment has updates of many blocks, and so of many runs.
#[test]
fn a_spill_segment_is_read_once_by_the_runs_that_need_it() {
    let config =
        Config { spilling: Spilling::Always, run_blocks_max: 1, runs_in_flight_max: 1, ..config() };
    let mut world = World::with(config, 16 << 20);
    (0..12_000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    (0..12_000).for_each(|number| world.add(&format!("k{number:06}"), 1));
    world.until("some are spilled", |core| core.spilled_entries() > 6000);
    let (segments, _) = world.core.spill_segments_size();
    let before = world.core.metrics().read();
    world.sweep();
    let after = world.core.metrics().read();
    let runs = after.sweep_runs_total - before.sweep_runs_total;
    assert!(runs > segments as u64, "{runs} runs need {segments} spill segments");
    let read = after.spill_read_bytes_total - before.spill_read_bytes_total;
    assert!(read <= after.spill_written_bytes_total, "{read} bytes: some were read twice");
    world.check();
}

/// Two runs that a device may be ahead, and what those of earlier sweeps have ended out of turn.
const MOST_AHEAD: usize = 8;

/// A table that was swept three times on two data devices, and in which some blocks have updates.
fn on_two_devices() -> World {
    let mut config = Config { run_blocks_max: 1, data_devices: 2, ..config() };
    config.log_regions[0].device = DeviceId(2);
    let mut world = World::with(config, 16 << 20);
    (0..12_000).for_each(|number| world.put(world.space, &format!("k{number:06}"), number));
    world.sweep();
    for _ in 0..2 {
        (0..12_000).for_each(|number| world.add(&format!("k{number:06}"), 1));
        world.sweep();
    }
    (0..12_000).step_by(20).for_each(|number| world.add(&format!("k{number:06}"), 1));
    world
}

/// What the first image of a run states, its key and its device: images are older in this order.
type Visit = (Seq, BlockKey, DeviceId);

/// The runs of a cycle beside those of `pipeline`.
fn visits(base: &Base, pipeline: &Pipeline) -> Vec<Visit> {
    let (mut cycle, spiller) = (Cycle::start(base), Spiller::default());
    let mut visits = Vec::new();
    while let Next::Run(run) = cycle.next(base, pipeline, &spiller) {
        let block = base.index.directory().block(run[0]);
        let device = block.extent().expect("it was swept").device;
        visits.push((block.placement().image_seq, block.key.clone(), device));
    }
    assert!(visits.len() > 40, "{} runs", visits.len());
    visits
}

/// How many visits come before one of an older image, at most.
fn most_ahead(visits: &[Visit]) -> usize {
    let ahead = |(place, visit): (usize, &Visit)| {
        visits[..place].iter().filter(|before| *before > visit).count()
    };
    visits.iter().enumerate().map(ahead).max().unwrap_or(0)
}

/// So the runs of several devices are at neighbouring keys, and need the same spill segments.
#[test]
fn images_are_visited_about_in_the_order_in_which_they_were_written_on_whichever_device() {
    let world = on_two_devices();
    let visits = visits(&world.core.base, &Pipeline::default());
    let changes = visits.windows(2).filter(|pair| pair[0].2 != pair[1].2).count();
    assert!(changes > 4, "both devices have images of all keys: {visits:?}");
    // Of the runs of a sweep two are under way, which end in any order.
    assert!(most_ahead(&visits) <= MOST_AHEAD, "{visits:?}");
}

#[test]
fn a_device_is_at_most_a_few_runs_ahead_of_a_busy_one() {
    let mut world = on_two_devices();
    let Core { base, pipeline, .. } = &mut world.core;
    let (mut cycle, spiller) = (Cycle::start(base), Spiller::default());
    let Next::Run(oldest) = cycle.next(base, pipeline, &spiller) else { panic!("all wait") };
    pipeline.start(base, &oldest);
    let visits = visits(base, pipeline);
    assert!(most_ahead(&visits) <= MOST_AHEAD, "{visits:?}");
    assert!(most_ahead(&visits) >= 2, "the other device does not wait for each: {visits:?}");
}

/// Begins a load of this table, with one empty block.
fn load_a_block(world: &mut World, loaded: SpaceId) -> LoadTarget {
    let (target, _) = world.core.begin_load(loaded).expect("it is empty");
    world.until_published();
    let block = LoadedBlock { key: Vec::new(), body: Vec::new(), records: 0, values: Vec::new() };
    let id = world.core.load(Chunk::new(&target, &[block]));
    for _ in 0..super::STEPS_MAX {
        if world.core.load_ended(id).is_some() {
            break;
        }
        world.step();
    }
    target
}

#[test]
fn a_loaded_block_never_says_less_of_itself_than_its_load_did() {
    let mut world = World::new();
    let loaded = world.create("loaded");
    world.put(world.space, "k", 1);
    let target = load_a_block(&mut world, loaded);
    world.core.finish_load(&target, loaded).expect("nothing was accepted for it");
    world.until_published();
    let frontier = |world: &World| {
        let directory = world.core.base.index.directory();
        let block = directory.covering(loaded, b"").expect("it has a block");
        (block, directory.block(block).placement().frontier)
    };
    let (block, before) = frontier(&world);
    assert_eq!(before, target.seq);
    let Core { base, pipeline, .. } = &mut world.core;
    pipeline.start(base, &[block]);
    world.until("the run is published", |core| core.pipeline.is_empty());
    assert!(frontier(&world).1 >= before, "though no update was accepted since");
    world.check();
}

/// Updates that are accepted for the table before it has the loaded blocks do not wait for these:
/// an image that claimed to have them would drop them from the next replay.
#[test]
fn a_block_is_not_swept_before_its_table_has_it() {
    let mut world = World::new();
    let loaded = world.create("loaded");
    let first = world.space;
    (0..300).for_each(|number| world.put(first, &format!("k{number:06}"), number));
    world.sweep();
    let target = load_a_block(&mut world, loaded);
    let placement = |world: &World| {
        let directory = world.core.base.index.directory();
        let block = directory.covering(target.space, b"").expect("it was loaded");
        directory.block(block).placement()
    };
    let before = placement(&world);
    let second = world.create("second");
    // Now there are blocks behind it, then something waits before it and behind it.
    for spaces in [&[second][..], &[first, second]] {
        for space in spaces {
            (0..300).for_each(|number| world.put(*space, &format!("k{number:06}"), number));
        }
        world.sweep();
    }
    assert_eq!(placement(&world), before, "it stays where it is");
    world.core.finish_load(&target, loaded).expect("nothing was accepted for it");
    world.until_published();
    world.check();
}

/// An image may come to lie across the place where a cycle has begun: one of a run that had frozen
/// its updates before.
#[test]
fn a_cycle_may_end_inside_an_image() {
    let mut ground = Ground::new();
    let blocks = ground.fill(600);
    for block in &blocks {
        let key = ground.key_of(*block);
        ground.add(&key, 1);
    }
    let offset = |block: &BlockId| ground.placement(*block).extent.map(|extent| extent.offset);
    let last = blocks.iter().filter_map(offset).max().expect("they have images");
    let mut cycle = Cycle::start(&ground.base);
    cycle.left = vec![vec![0..last + 1]];
    let spiller = Spiller::default();
    let next = cycle.next(&ground.base, &Pipeline::default(), &spiller);
    assert!(matches!(&next, Next::Run(run) if run.len() == blocks.len()), "{next:?}");
    assert_eq!(cycle.next(&ground.base, &Pipeline::default(), &spiller), Next::End);
}

/// So runs are long although a block has few updates, of which some always come while a cycle is
/// under way.
#[test]
fn a_run_goes_on_with_updates_that_came_since_its_cycle_began_but_does_not_begin_with_one() {
    let mut ground = Ground::new();
    let blocks = ground.fill(600);
    let add = |ground: &mut Ground, rest: usize| {
        for block in blocks.iter().skip(rest).step_by(2) {
            let key = ground.key_of(*block);
            ground.add(&key, 1);
        }
    };
    add(&mut ground, 1);
    let mut cycle = Cycle::start(&ground.base);
    add(&mut ground, 0);
    let spiller = Spiller::default();
    let next = cycle.next(&ground.base, &Pipeline::default(), &spiller);
    assert_eq!(next, Next::Run(blocks[1..].to_vec()));
    assert_eq!(cycle.next(&ground.base, &Pipeline::default(), &spiller), Next::End);
}

#[test]
fn a_run_of_small_images_has_more_of_them() {
    let mut ground = Ground::new();
    let blocks = ground.fill(1000);
    assert!(blocks.len() > 4, "{} blocks", blocks.len());
    for block in &blocks {
        let key = ground.key_of(*block);
        ground.add(&key, 1);
    }
    let length_of_run = |ground: &Ground| {
        let mut cycle = Cycle::start(&ground.base);
        match cycle.next(&ground.base, &Pipeline::default(), &Spiller::default()) {
            Next::Run(run) => run.len(),
            other => panic!("{other:?}"),
        }
    };
    ground.base.config.run_blocks_max = 1;
    assert_eq!(length_of_run(&ground), 1);
    // Images are as long as before, much shorter than a block should be.
    ground.base.config.block_bytes = 1 << 20;
    assert_eq!(length_of_run(&ground), 4);
}

#[test]
fn a_run_that_would_be_too_long_ends_at_a_boundary_of_the_device() {
    let mut ground = Ground::new();
    let blocks = ground.fill(1000);
    for block in &blocks {
        let key = ground.key_of(*block);
        ground.add(&key, 1);
    }
    let place = |block: &BlockId| {
        let extent = ground.base.index.directory().block(*block).extent().expect("placed");
        (extent.offset, extent.end())
    };
    let places: Vec<(u64, u64)> = blocks.iter().map(place).collect();
    assert!(places.windows(2).all(|pair| pair[0].1 == pair[1].0), "{places:?}");
    assert!(places.len() >= 5, "{places:?}");
    // Four images and no more.
    let span = places[3].1 - places[0].0;
    ground.base.config.block_bytes = 4096;
    ground.base.config.run_blocks_max = (span / 4096) as usize;
    let mut lengths_of_runs = |boundary: Option<u64>| {
        let known = boundary.map(|end| (places[0].0, end - places[0].0, 1));
        let known = Boundaries::new(known).expect("in order");
        ground.base.index.space_map.set_boundaries(&[known]);
        let (mut cycle, mut lengths) = (Cycle::start(&ground.base), Vec::new());
        while let Next::Run(run) =
            cycle.next(&ground.base, &Pipeline::default(), &Spiller::default())
        {
            lengths.push(run.len());
        }
        lengths
    };
    let rest = places.len() - 4;
    assert_eq!(lengths_of_runs(None), [4, rest]);
    assert_eq!(lengths_of_runs(Some(places[2].1)), [3, rest + 1]);
    assert_eq!(lengths_of_runs(Some(places[0].1)), [4, rest], "else it would be much shorter");
}

#[test]
fn a_cycle_is_not_due_while_the_store_closes() {
    let mut world = World::new();
    let add = |world: &mut World| (0..4000).for_each(|n| world.add(&format!("k{n:06}"), n));
    add(&mut world);
    world.sweep();
    add(&mut world);
    world.core.request_sweep();
    let is_halfway = |core: &Core| core.sweep.progress().is_some_and(|progress| progress > 0.2);
    world.until("a cycle is under way", is_halfway);
    world.core.begin_close();
    world.until("a superblock says so", Core::is_attested);
    world.until("no run is under way", |core| core.pipeline.is_empty());
    assert!(world.core.sweep.progress().is_some(), "the cycle has not ended");
    assert_eq!(world.core.deadline_us(), None);
}
