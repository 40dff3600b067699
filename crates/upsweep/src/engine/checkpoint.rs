//! Checkpoints: the directory goes to the data devices, a page at a time, so that the log holds a
//! bounded amount.
//!
//! Steps: note the published sequence (*begin*); write each node and each page of the block table
//! that has changed to free space; flush; write the root, which lists them all; flush; write the
//! superblock, which names the root. What is written is the directory as it is at the begin,
//! exactly: a node or page that is about to change is written before it changes, and publication
//! waits while many such writes are under way. Only when the superblock is stable is free what the
//! last root lists and this one does not, and is the log released.
//!
//! When the log has no room for the changes of the sweep, which alone can release it, a checkpoint
//! *carries* them: they are published in memory when it begins, and become durable with its
//! superblock. (Bounded log space can therefore never bring the sweep to a stand.)
//!
//! Recovery needs the log from `min(begin, global frontier) + 1` on. A frontier that moves without
//! a checkpoint is published by a superblock alone.

use std::collections::BTreeMap;

use super::config::SUPERBLOCK_SLOTS;
use super::core::{Actions, Core, IoKind};
use super::directory::Directory;
use super::format::checkpoint_format::{
    ImageRecord, Root, SLOT_BYTES, SpillSegmentList, encode_root, encode_superblock,
};
use super::format::image_format::{self, Identity, ImageKind};
use super::measure::Timed;
use super::policy::{START_PERCENT, Shortage};
use super::sweep::Flushing;
use super::tree::NodeId;
use crate::device::{Buffer, Completion, DeviceId, Durability, Operation};
use crate::placement::{Extent, UNIT_BYTES};

/// Page writes in flight while nobody waits for the log.
const PAGES_IN_FLIGHT: usize = 4;
/// The same while somebody does.
const PAGES_IN_FLIGHT_MAX: usize = 32;
/// Publication waits while so many writes of the checkpoint are under way.
const WRITES_MAX: usize = 64;
/// Spill segments that are listed in one step, a few tens of microseconds.
const SPILL_SEGMENTS_LISTED: usize = 256;
/// A checkpoint is due when the log since the last one takes this part of the ring, in per cent.
const DUE_PERCENT: u64 = 20;
/// Fill of the log in per cent from which on a superblock alone is worth its write.
const SUPERBLOCK_PERCENT: u32 = 25;

/// Where the images of nodes and of pages of the block table are, by number.
#[derive(Clone, Default)]
pub(super) struct Listing {
    pub(super) nodes: BTreeMap<u32, ImageRecord>,
    pub(super) pages: BTreeMap<u32, ImageRecord>,
}

impl Listing {
    /// All images.
    pub(super) fn images(&self) -> impl Iterator<Item = (ImageKind, &ImageRecord)> {
        let nodes = self.nodes.values().map(|image| (ImageKind::Node, image));
        nodes.chain(self.pages.values().map(|image| (ImageKind::Page, image)))
    }

    /// The extents of those that another listing does not have.
    fn missing_in<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = Extent> + 'a {
        let missing = self.images().filter(|(kind, image)| !other.has(*kind, image));
        missing.map(|(_, image)| image.extent)
    }

    fn has(&self, kind: ImageKind, image: &ImageRecord) -> bool {
        let list = if kind == ImageKind::Node { &self.nodes } else { &self.pages };
        list.get(&image.number) == Some(image)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Pages,
    PagesFlush,
    Root,
    RootFlush,
    Superblock,
    /// There was no room; writes are still under way.
    Abandoned,
}

/// Where the checkpoint is.
#[derive(Default)]
pub(super) struct CheckpointState {
    phase: Phase,
    begin: u64,
    began_us: u64,
    /// The begin of the checkpoint whose root is in the superblock.
    pub(super) root_begin: u64,
    requested: bool,
    /// Images of blocks that only the last checkpoint refers to, since changes were carried, and
    /// spill segments that nobody needs any more.
    pub(super) outdated: Vec<Extent>,
    /// The part of them that the checkpoint on its way gives free.
    carried_extents: Vec<Extent>,
    /// What the last root lists.
    pub(super) listed: Listing,
    /// What the root on its way will list.
    next: Listing,
    /// That root but for its images: the directory at the begin.
    next_root: Root,
    pending: usize,
    root: Option<Extent>,
    root_seq: u64,
    superblock_in_flight: bool,
    /// The next checkpoint to complete makes changes durable that are not in the log.
    carries: bool,
    /// What the superblock in flight says of the replay, and of how much of the log is stable.
    replay_from: u64,
    durable: u64,
    bytes_at_last: u64,
}

impl CheckpointState {
    /// The state of a store that was opened from a root of this sequence.
    pub(super) fn after_open(root_seq: u64) -> Self {
        Self { root_begin: root_seq, ..Self::default() }
    }

    /// Whether nodes and pages are being written.
    fn is_writing(&self) -> bool {
        self.phase == Phase::Pages
    }

    /// Whether one is asked for or on its way.
    fn is_under_way(&self) -> bool {
        self.requested || self.phase != Phase::Idle
    }

    /// Whether changes were published that only the next checkpoint makes durable.
    pub(super) fn carries_changes(&self) -> bool {
        self.carries
    }

    pub(super) fn is_active(&self) -> bool {
        self.carries || self.is_under_way() || self.superblock_in_flight
    }
}

impl Core {
    /// Asks for a checkpoint.
    pub fn request_checkpoint(&mut self) {
        self.checkpoint.requested = true;
    }

    /// From where on the next open would have to read the log after a checkpoint made now.
    #[must_use]
    pub fn replay_from_next(&self) -> u64 {
        self.published.min(self.sweep.frontier) + 1
    }

    /// From where on the next open has to read the log.
    #[must_use]
    pub fn replay_from(&self) -> u64 {
        self.superblock.replay_from
    }

    /// Whether a checkpoint is asked for or on its way. One that finds no room is given up.
    #[must_use]
    pub fn is_checkpointing(&self) -> bool {
        self.checkpoint.is_under_way()
    }

    pub(super) fn pump_checkpoint(&mut self, actions: &mut Actions) {
        match self.checkpoint.phase {
            Phase::Idle if self.checkpoint.superblock_in_flight => {}
            Phase::Idle if self.closing && self.log.durable() > self.superblock.durable => {
                self.write_superblock_alone(actions);
            }
            Phase::Idle if self.paused && !self.change_waits_for_log() => {}
            Phase::Idle if self.change_waits_for_log() => {
                self.carry_changes();
                self.checkpoint.carries = true;
                self.begin_checkpoint();
            }
            Phase::Idle if self.checkpoint_due() => self.begin_checkpoint(),
            Phase::Idle if self.superblock_due() => self.write_superblock_alone(actions),
            Phase::Root if self.checkpoint.pending == 0 => self.write_root(actions),
            Phase::Superblock if !self.checkpoint.superblock_in_flight => {
                let (root, seq) = (self.checkpoint.root, self.checkpoint.root_seq);
                self.write_superblock(self.checkpoint.begin, root, seq, actions);
            }
            _ => {}
        }
        if self.checkpoint.phase == Phase::Pages {
            self.write_pages(actions);
        }
    }

    fn checkpoint_due(&self) -> bool {
        let since = self
            .log
            .metrics()
            .log_written_bytes_total
            .get()
            .saturating_sub(self.checkpoint.bytes_at_last);
        let much = since * 100 >= self.log.prospect_bytes() * DUE_PERCENT;
        let pressed = self.figures().is_release_due(START_PERCENT)
            && self.sweep.frontier > self.checkpoint.root_begin
            && self.published > self.checkpoint.root_begin;
        self.checkpoint.requested || self.checkpoint.carries || much || pressed
    }

    /// Whether a superblock alone would release a worthwhile part of the log.
    fn superblock_due(&self) -> bool {
        self.superblock_frees() && self.figures().is_release_due(SUPERBLOCK_PERCENT)
    }

    /// Whether a superblock alone would release a segment of the log.
    pub(super) fn superblock_frees(&self) -> bool {
        let replay_from = self.checkpoint.root_begin.min(self.sweep.frontier) + 1;
        let oldest = self.log.oldest_segment_last_seq();
        replay_from > self.superblock.replay_from && oldest.is_some_and(|last| replay_from > last)
    }

    fn begin_checkpoint(&mut self) {
        self.forget_empty_blocks();
        let directory = &mut self.directory;
        directory.trees.changes().begin_checkpoint();
        directory.table.changes().begin_checkpoint();
        let replay_from = self.superblock.replay_from;
        let oldest_spill_segment = self.spill_segments.oldest().unwrap_or(u64::MAX);
        let needed_from = replay_from.min(oldest_spill_segment);
        directory.clones.forget_before(needed_from);
        let checkpoint = &mut self.checkpoint;
        checkpoint.began_us = self.now_us;
        checkpoint.requested = false;
        checkpoint.phase = Phase::Pages;
        checkpoint.begin = self.published;
        checkpoint.bytes_at_last = self.log.metrics().log_written_bytes_total.get();
        checkpoint.carried_extents.append(&mut checkpoint.outdated);
        checkpoint.next.clone_from(&checkpoint.listed);
        let in_use = |number: &u32| directory.trees.is_used(NodeId(*number));
        checkpoint.next.nodes.retain(|number, _| in_use(number));
        let carried = self.still_carried();
        let directory = &self.directory;
        let spaces = directory.spaces().map(|space| (space.record.clone(), space.root.0));
        self.checkpoint.next_root = Root {
            spaces: spaces.collect(),
            snapshots: directory.snapshots.iter().cloned().collect(),
            modifiers: self.modifier_records.clone(),
            nodes: Vec::new(),
            pages: Vec::new(),
            condemned: directory.trees.condemned().iter().map(|node| node.0).collect(),
            deferred: directory
                .trees
                .deferred()
                .iter()
                .map(|(index, deferred)| (*index, *deferred))
                .collect(),
            clones: directory.clones.to_vec(),
            carried,
            spill_segments: SpillSegmentList::default(),
        };
        self.spill_segments.begin_list(self.checkpoint.begin);
    }

    /// Whether publication has to wait for the checkpoint to write what would change.
    pub(super) fn checkpoint_is_behind(&self) -> bool {
        self.checkpoint.is_writing() && self.checkpoint.pending >= WRITES_MAX
    }

    /// Whether it goes on though nothing happens: there is more to list, and nothing on its way.
    pub(super) fn is_checkpoint_ready(&self) -> bool {
        self.checkpoint.is_writing()
            && self.checkpoint.pending == 0
            && self.spill_segments.is_listing()
    }

    /// Writes what has changed since the begin, as it was, and then a part of all the rest.
    fn write_pages(&mut self, actions: &mut Actions) {
        let is_waited_for = self.shortage() == Some(Shortage::Log);
        let most = if is_waited_for { PAGES_IN_FLIGHT_MAX } else { PAGES_IN_FLIGHT };
        loop {
            let saved_node = self.directory.trees.changes().take_saved();
            let saved = saved_node.map(|(number, body)| (ImageKind::Node, number, body));
            let saved = saved.or_else(|| {
                let page = self.directory.table.changes().take_saved();
                page.map(|(number, body)| (ImageKind::Page, number, body))
            });
            let next = saved.or_else(|| {
                if self.checkpoint.pending < most { self.next_unwritten() } else { None }
            });
            let Some((kind, number, body)) = next else { break };
            if !self.write_listed(kind, number, &body, actions) {
                self.mark_unwritten(kind, number);
                self.abandon();
                return;
            }
        }
        self.spill_segments.list_some(SPILL_SEGMENTS_LISTED);
        if self.checkpoint.pending == 0 && !self.spill_segments.is_listing() {
            self.checkpoint.phase = Phase::PagesFlush;
            self.sweep.flush.waiting.push(Flushing::Checkpoint);
        }
    }

    fn next_unwritten(&mut self) -> Option<(ImageKind, u32, Vec<u8>)> {
        let directory = &mut self.directory;
        if let Some(number) = directory.trees.changes().next_unwritten() {
            let body = directory.trees.node(NodeId(number)).encode();
            return Some((ImageKind::Node, number, body));
        }
        let page = directory.table.changes().next_unwritten()?;
        Some((ImageKind::Page, page, directory.table.encode_page(page)))
    }

    /// Writes one node or page; `false` if there is no room.
    fn write_listed(
        &mut self,
        kind: ImageKind,
        number: u32,
        body: &[u8],
        actions: &mut Actions,
    ) -> bool {
        let image_seq = self.checkpoint.begin;
        let Some(extent) = self.write_image(kind, number, image_seq, body, actions) else {
            return false;
        };
        let image = ImageRecord { number, image_seq, extent };
        let next = &mut self.checkpoint.next;
        let list = if kind == ImageKind::Node { &mut next.nodes } else { &mut next.pages };
        list.insert(number, image);
        true
    }

    /// Writes a node, page or root to free space; `None` if there is no room.
    fn write_image(
        &mut self,
        kind: ImageKind,
        number: u32,
        seq: u64,
        body: &[u8],
        actions: &mut Actions,
    ) -> Option<Extent> {
        let bytes =
            image_format::image_bytes(&[], body.len()).next_multiple_of(UNIT_BYTES as usize);
        let extent = self.space_map.allocate_high(u32::try_from(bytes).ok()?);
        let Some(extent) = extent else {
            self.begin_growth(bytes as u64, actions);
            return None;
        };
        let mut buffer = Buffer::recycled(bytes);
        let store = self.config.store;
        let identity = Identity { store, kind, space: number, seq, key: &[] };
        image_format::encode(&identity, body, &mut buffer);
        let (offset, durability) = (extent.offset, Durability::Cached);
        let operation = Operation::Write { offset, buffer, durability };
        let kind = IoKind::CheckpointWrite;
        actions.requests.push(self.request(kind, None, extent.device, operation));
        self.full = false;
        self.checkpoint.pending += 1;
        self.metrics.checkpoint_written_bytes_total.add(bytes as u64);
        Some(extent)
    }

    /// Gives this checkpoint up for lack of room. Its places are free once its writes are done.
    fn abandon(&mut self) {
        self.checkpoint.requested = self.growth.is_under_way();
        self.full |= !self.growth.is_under_way();
        self.room_events += 1;
        self.directory.trees.changes().abandon_checkpoint();
        self.directory.table.changes().abandon_checkpoint();
        self.spill_segments.take_list();
        self.checkpoint.phase = Phase::Abandoned;
        self.end_abandoned();
    }

    /// Frees what an abandoned checkpoint has written, for no root will list it.
    fn end_abandoned(&mut self) {
        if self.checkpoint.phase == Phase::Abandoned && self.checkpoint.pending == 0 {
            let next = std::mem::take(&mut self.checkpoint.next);
            let unlisted: Vec<Extent> = next.missing_in(&self.checkpoint.listed).collect();
            unlisted.into_iter().for_each(|extent| self.space_map.free(extent));
            // What was written is not in the root that counts.
            for (kind, image) in next.images() {
                if !self.checkpoint.listed.has(kind, image) {
                    self.mark_unwritten(kind, image.number);
                }
            }
            self.checkpoint.phase = Phase::Idle;
        }
    }

    /// The next checkpoint has to write this node or page, if it is still there.
    fn mark_unwritten(&mut self, kind: ImageKind, number: u32) {
        let Directory { trees, table, .. } = &mut self.directory;
        if kind == ImageKind::Page {
            table.changes().mark_dirty(number);
        } else if trees.is_used(NodeId(number)) {
            trees.changes().mark_dirty(number);
        }
    }

    fn write_root(&mut self, actions: &mut Actions) {
        let mut root = std::mem::take(&mut self.checkpoint.next_root);
        root.nodes = self.checkpoint.next.nodes.values().copied().collect();
        root.pages = self.checkpoint.next.pages.values().copied().collect();
        root.spill_segments = self.spill_segments.take_list();
        let (body, seq) = (encode_root(&root), self.checkpoint.begin);
        let Some(extent) = self.write_image(ImageKind::Root, 0, seq, &body, actions) else {
            self.abandon();
            return;
        };
        self.checkpoint.root = Some(extent);
        self.checkpoint.root_seq = seq;
        self.checkpoint.phase = Phase::RootFlush;
    }

    pub(super) fn checkpoint_write_done(&mut self, completion: &Completion) {
        self.checkpoint.pending -= 1;
        if completion.result.is_err() {
            self.fail_write(completion, 0);
        } else if self.checkpoint.phase == Phase::RootFlush {
            self.sweep.flush.waiting.push(Flushing::Checkpoint);
        }
        self.end_abandoned();
    }

    pub(super) fn checkpoint_flushed(&mut self) {
        self.checkpoint.phase = match self.checkpoint.phase {
            Phase::PagesFlush => Phase::Root,
            Phase::RootFlush => Phase::Superblock,
            other => other,
        };
    }

    /// Writes a superblock with the root that counts already.
    fn write_superblock_alone(&mut self, actions: &mut Actions) {
        let (root, seq) = (self.superblock.root, self.superblock.root_seq);
        self.write_superblock(self.checkpoint.root_begin, root, seq, actions);
    }

    fn write_superblock(
        &mut self,
        begin: u64,
        root: Option<Extent>,
        root_seq: u64,
        actions: &mut Actions,
    ) {
        self.superblock.generation += 1;
        let mut superblock = self.superblock;
        superblock.replay_from =
            (begin.min(self.sweep.frontier) + 1).max(self.superblock.replay_from);
        superblock.root = root;
        superblock.root_seq = root_seq;
        superblock.durable = self.log.durable();
        self.checkpoint.durable = superblock.durable;
        self.checkpoint.replay_from = superblock.replay_from;
        let mut buffer = Buffer::zeroed(SLOT_BYTES);
        let bytes = encode_superblock(&superblock);
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let offset = SUPERBLOCK_SLOTS[(superblock.generation % 2) as usize];
        let operation = Operation::Write { offset, buffer, durability: Durability::Stable };
        let write = self.request(IoKind::Superblock, None, DeviceId(0), operation);
        actions.requests.push(write);
        self.checkpoint.superblock_in_flight = true;
    }

    pub(super) fn superblock_done(&mut self, completion: &Completion) {
        self.checkpoint.superblock_in_flight = false;
        if completion.result.is_err() {
            self.fail_write(completion, 0);
            return;
        }
        self.superblock.replay_from = self.checkpoint.replay_from;
        self.superblock.durable = self.checkpoint.durable;
        if self.checkpoint.phase == Phase::Superblock {
            self.checkpoint.phase = Phase::Idle;
            self.checkpoint.carries = false;
            self.checkpoint.root_begin = self.checkpoint.begin;
            self.superblock.root_seq = self.checkpoint.root_seq;
            let before = std::mem::replace(&mut self.superblock.root, self.checkpoint.root);
            let next = std::mem::take(&mut self.checkpoint.next);
            let last = std::mem::replace(&mut self.checkpoint.listed, next);
            let outdated = std::mem::take(&mut self.checkpoint.carried_extents);
            let unlisted = last.missing_in(&self.checkpoint.listed);
            let free: Vec<Extent> = unlisted.chain(outdated).chain(before).collect();
            free.into_iter().for_each(|extent| self.space_map.free(extent));
            self.metrics.checkpoints_total.add(1);
            self.note_ended(Timed::Checkpoint, self.checkpoint.began_us);
        }
        self.log.release(self.superblock.replay_from);
        self.room_events += 1;
    }
}
