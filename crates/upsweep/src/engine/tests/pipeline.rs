//! Runs: what they wait for, what they leave behind, and the outcome of failed ones.

use super::ground::{Ground, space};
use crate::device::{self, DeviceError, Operation};
use crate::engine::directory::BlockId;
use crate::engine::event::Event;
use crate::engine::format::record_format::{DirectoryChange, Rebuilt};
use crate::engine::growth::Growth;
use crate::engine::ids::{Seq, SpaceId};
use crate::engine::index::Release;
use crate::engine::io::IoKind;
use crate::engine::journal::Publish;
use crate::engine::pipeline::Pipeline;
use crate::engine::policy::Figures;
use crate::engine::quarantine::QUARANTINE_SPACE;
use crate::engine::spiller::Spiller;
use crate::engine::sweep::Sweep;
use crate::engine::{Chunk, LoadTarget, LoadedBlock};

/// The base, the runs on it, and devices that do not grow.
pub(super) struct Line {
    pub(super) ground: Ground,
    pub(super) pipeline: Pipeline,
    growth: Growth,
}

impl Line {
    fn new() -> Self {
        Self::on(Ground::new())
    }

    pub(super) fn on(ground: Ground) -> Self {
        Self { ground, pipeline: Pipeline::default(), growth: Growth::new(&[false]) }
    }

    pub(super) fn start(&mut self, blocks: &[BlockId]) {
        self.pipeline.start(&mut self.ground.base, blocks);
    }

    /// Pumps; returns how many jobs were done.
    pub(super) fn pump(&mut self) -> usize {
        self.ground.pump_runs(&mut self.pipeline, &mut self.growth)
    }

    /// The kinds of the requests to submit, which then end as devices end them.
    pub(super) fn end_requests(&mut self) -> Vec<IoKind> {
        let requests = self.ground.requests();
        let ended = requests.into_iter().map(|request| {
            let kind = self.ground.base.io.completed(request.token).kind;
            let completion = self.ground.perform(request);
            self.ground.complete(&mut self.pipeline, kind, completion);
            kind
        });
        ended.collect()
    }

    pub(super) fn fail_requests(&mut self) -> usize {
        let requests = self.ground.requests();
        let count = requests.len();
        for request in requests {
            let kind = self.ground.base.io.completed(request.token).kind;
            let completion = request.end(Err(DeviceError::Failed { errno: 5 }));
            self.ground.complete(&mut self.pipeline, kind, completion);
        }
        count
    }

    /// Advances until what the runs have written is stable.
    fn until_flushed(&mut self) {
        for _ in 0..100 {
            self.pump();
            let ended = self.end_requests();
            if ended.iter().any(|kind| matches!(kind, IoKind::Flush)) {
                return;
            }
        }
        panic!("nothing is ever flushed");
    }

    pub(super) fn finish(&mut self) {
        for _ in 0..100 {
            self.ground.step_runs(&mut self.pipeline, &mut self.growth);
        }
        assert!(self.pipeline.is_empty(), "a run never ends");
    }

    fn last(&self) -> Seq {
        self.ground.base.journal.last()
    }

    pub(super) fn waiting(&self) -> u64 {
        self.ground.base.index.waiting_entries()
    }
}

#[test]
fn a_change_is_logged_when_its_images_are_stable_and_takes_effect_when_it_is_durable() {
    let mut line = Line::new();
    line.ground.put("k", 1);
    let (block, last) = (line.ground.block_of("k"), line.last());
    line.start(&[block]);
    assert_eq!(line.pump(), 1, "without an image there is nothing to read");
    assert_eq!(line.pump(), 0);
    assert!(matches!(line.end_requests()[..], [IoKind::RunWrite(_)]));
    assert_eq!(line.last(), last, "written is not stable");
    line.pump();
    assert_eq!(line.last(), last);
    assert_eq!(line.end_requests(), [IoKind::Flush]);
    assert_eq!(line.last(), last.next());
    assert_eq!(line.ground.placement(block).extent, None, "its change is not durable");
    line.finish();
    let placement = line.ground.placement(block);
    assert!(placement.extent.is_some());
    assert_eq!((placement.frontier, placement.records), (last, 1));
    assert_eq!(line.waiting(), 0);
}

#[test]
fn what_comes_after_the_freeze_waits_for_the_next_run() {
    let mut line = Line::new();
    let first = line.ground.put("k", 1);
    let block = line.ground.block_of("k");
    line.start(&[block]);
    line.pump();
    let second = line.ground.put("l", 2);
    assert_eq!(line.waiting(), 2, "what is frozen waits still");
    line.finish();
    assert_eq!((line.ground.queued(block), line.waiting()), (1, 1));
    assert_eq!(line.ground.placement(block).frontier, first);
    line.ground.sweep(&[block]);
    let placement = line.ground.placement(block);
    assert!(placement.frontier >= second && placement.records == 2, "{placement:?}");
}

#[test]
fn a_stretch_that_cannot_be_read_is_read_block_by_block() {
    let mut line = Line::new();
    let blocks = line.ground.fill(600);
    assert!(blocks.len() > 2, "{} blocks", blocks.len());
    let key = line.ground.key_of(blocks[1]);
    line.ground.add(&key, 1);
    line.start(&blocks);
    assert_eq!(line.fail_requests(), 1, "they lie side by side");
    assert_eq!(line.pump(), 0);
    let read = line.end_requests();
    assert_eq!(read.len(), blocks.len());
    assert!(read.iter().all(|kind| matches!(kind, IoKind::BlockRead(..))));
    line.finish();
    assert_eq!(line.waiting(), 0, "one bad sector does not condemn the others");
    assert_eq!(line.ground.base.measured.damage().count(), 0);
}

#[test]
fn a_block_that_cannot_be_read_keeps_its_image_and_its_updates_go_to_the_quarantine() {
    let mut line = Line::new();
    let block = line.ground.fill(600)[1];
    let (key, before) = (line.ground.key_of(block), line.ground.placement(block));
    let seq = line.ground.add(&key, 1);
    line.start(&[block]);
    line.fail_requests();
    line.pump();
    line.fail_requests();
    line.finish();
    let after = line.ground.placement(block);
    assert_eq!((after.extent, after.image_seq), (before.extent, before.image_seq));
    assert!(after.frontier >= seq && after.frontier > after.image_seq, "it is set aside");
    assert_eq!(line.ground.queued(block), 0, "it holds the log no longer");
    let index = &line.ground.base.index;
    let quarantine = index.directory().covering(QUARANTINE_SPACE, b"").expect("one block");
    assert_eq!(line.ground.queued(quarantine), 1);
    assert_eq!(line.ground.base.metrics.quarantined_updates_total.get(), 1);
    assert_eq!(line.ground.base.measured.damage().count(), 1);
}

#[test]
fn an_image_of_another_sequence_is_no_image_of_the_block() {
    let mut line = Line::new();
    let blocks = line.ground.fill(600);
    let key = line.ground.key_of(blocks[1]);
    let old = line.ground.placement(blocks[1]).extent.expect("it was swept");
    line.ground.add(&key, 1);
    line.start(&[blocks[1]]);
    // A lost write of the new image: the old content remains.
    line.pump();
    line.end_requests();
    line.pump();
    line.pump();
    let mut write = line.ground.request();
    let stale =
        device::read_alone(&mut line.ground.devices, old.device, old.offset, old.bytes as usize);
    let Operation::Write { buffer, .. } = &mut write.operation else { panic!("{write:?}") };
    buffer.copy_from_slice(&stale.expect("a sound device"));
    let kind = line.ground.base.io.completed(write.token).kind;
    let done = line.ground.perform(write);
    line.ground.complete(&mut line.pipeline, kind, done);
    line.finish();
    line.ground.add(&key, 1);
    line.ground.sweep(&[blocks[1]]);
    assert_eq!(line.ground.base.measured.damage().count(), 1, "it is found, and not applied");
}

#[test]
fn a_run_waits_for_what_its_space_has_accepted_and_not_queued() {
    let mut line = Line::new();
    let change = DirectoryChange {
        rebuilt: vec![Rebuilt { space: space(), ..Rebuilt::default() }],
        ..DirectoryChange::default()
    };
    let publish = Publish::Event(Event::Forget(change));
    let seq = line.ground.base.journal.append(b"a change", publish, 0).expect("there is room");
    line.ground.base.index.raise_fence(space(), seq);
    let update = line.ground.put("k", 1);
    let block = line.ground.block_of("k");
    line.start(&[block]);
    assert_eq!(line.pump(), 0, "its frontier would pass the update");
    line.ground.publish();
    assert_eq!(line.pump(), 1);
    line.finish();
    let placement = line.ground.placement(block);
    assert!(placement.frontier >= update && placement.records == 1, "{placement:?}");
}

#[test]
fn a_run_of_blocks_that_no_space_has_any_more_changes_nothing() {
    let mut line = Line::new();
    let blocks = line.ground.fill(600);
    let key = line.ground.key_of(blocks[1]);
    line.ground.add(&key, 1);
    line.start(&blocks);
    line.ground.base.index.apply_event(line.last(), Event::Drop(space()), Release::Now);
    let last = line.last();
    line.end_requests();
    assert_eq!(line.pump(), 0);
    assert!(line.pipeline.is_empty());
    assert_eq!(line.last(), last);
    assert_eq!(line.waiting(), 0, "what waited is irrelevant, and does not hold the log");
}

#[test]
fn a_run_without_room_in_the_log_waits_and_a_checkpoint_can_carry_it() {
    let mut line = Line::new();
    let block = line.ground.fill(10)[0];
    let before = line.ground.placement(block).extent.expect("it was swept");
    line.ground.add("k0001", 1);
    line.ground.base.journal.leave_to_callers(true);
    line.start(&[block]);
    line.until_flushed();
    assert!(line.pipeline.waits_for_log());
    let waiting = line.pipeline.waiting_for_log();
    assert_eq!(line.pump(), 0);
    assert_eq!(line.pipeline.waiting_for_log(), waiting, "it waits for room");
    let free = line.ground.base.index.space_map.free_bytes();
    let birth = 1 << 63 | 1;
    line.pipeline.publish(
        &mut line.ground.base,
        waiting[0],
        Seq::new(birth),
        Release::AfterCheckpoint,
    );
    let index = &line.ground.base.index;
    assert_ne!(line.ground.placement(block).extent, Some(before));
    assert_eq!(index.outdated(), [before], "the last checkpoint refers to it");
    assert_eq!(index.space_map.free_bytes(), free);
    assert_eq!(line.waiting(), 0);
}

#[test]
fn a_run_that_finds_no_room_gives_back_what_it_has_frozen_and_says_so_once() {
    let mut line = Line::new();
    line.ground.put("k", 1);
    line.ground.put("l", 1);
    let block = line.ground.block_of("k");
    line.ground.take_space_but(4096);
    line.start(&[block]);
    line.pump();
    line.pump();
    assert!(line.pipeline.is_empty());
    assert!(line.ground.requests().is_empty(), "nothing was written");
    assert!(line.ground.base.index.is_full());
    assert!(line.pipeline.take_no_room() && !line.pipeline.take_no_room());
    assert_eq!((line.ground.queued(block), line.waiting()), (2, 2));
    assert!(!line.ground.base.index.directory().block(block).pinned);
    assert_eq!(line.ground.base.in_hand.unlogged_blocks, 0);
}

#[test]
fn a_run_holds_buffers_until_its_images_are_written_and_reads_until_they_are_read() {
    let mut line = Line::new();
    let blocks = line.ground.fill(600);
    let config = line.ground.base.config.clone();
    assert!(line.pipeline.has_buffers(&config));
    line.start(&blocks[..1]);
    line.start(&blocks[1..2]);
    assert_eq!(line.pipeline.readers_of(0), 2);
    assert!(!line.pipeline.has_buffers(&config), "two at a time");
    line.end_requests();
    line.pump();
    assert_eq!(line.pipeline.readers_of(0), 0);
    assert_eq!(line.ground.base.in_hand.unlogged_blocks, 2);
    line.pump();
    line.end_requests();
    assert!(line.pipeline.has_buffers(&config), "its bytes are on the device");
    line.finish();
    assert_eq!(line.ground.base.in_hand.unlogged_blocks, 0);
}

#[test]
fn a_loaded_chunk_that_finds_no_room_fails_and_is_told_once() {
    let mut line = Line::new();
    line.ground.take_space_but(0);
    let store = line.ground.base.config.store;
    let target = LoadTarget { store, space: space(), companion: SpaceId::new(0), seq: Seq::new(1) };
    let block = LoadedBlock { key: Vec::new(), body: vec![0; 100], records: 1, values: Vec::new() };
    let mut sweep = Sweep::default();
    let id = sweep.load(&mut line.pipeline, Chunk::new(&target, &[block]));
    let (base, spiller) = (&mut line.ground.base, Spiller::default());
    sweep.pump(base, &mut line.pipeline, &spiller, &Figures::default());
    assert!(line.pipeline.has(id));
    line.pump();
    assert!(!line.pipeline.has(id) && line.pipeline.take_failed_load(id));
    assert!(!line.pipeline.take_failed_load(id));
}
