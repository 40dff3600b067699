//! Checkpoints: the directory is written to the data devices, a page at a time, so that the log
//! stays bounded.
//!
//! Steps: note the published sequence (*begin*); write each changed node and each changed page of
//! the block table to free space; flush; write the root, which lists them all; flush; write the
//! superblock, which names the root. A checkpoint holds the directory exactly as it is at its
//! begin: a node or page that is about to change is written before it changes, and publication
//! waits while many such writes are under way. What the last root lists and this one does not
//! becomes free, and the log is released, only when the superblock is stable.
//!
//! When the log has no room for the changes of the sweep, which alone can release it, a checkpoint
//! *carries* them: they are published in memory when it begins, and become durable with its
//! superblock. (So bounded log space can never stall the sweep.) They may contain updates whose
//! records are still being written, so that superblock waits until these are durable.
//!
//! Recovery needs the log from `min(begin, global frontier) + 1` on. A frontier that moves without
//! a checkpoint is published by a superblock alone.

use std::collections::BTreeMap;

use super::base::Base;
use super::config::SUPERBLOCK_SLOTS;
use super::flush::Flushing;
use super::format::checkpoint_format::{
    ImageRecord, Root, SLOT_BYTES, SpillSegmentList, Superblock, encode_root, encode_superblock,
};
use super::format::image_format::{self, Identity, ImageKind};
use super::growth::Growth;
use super::io::IoKind;
use super::measure::Timed;
use super::policy::{self, CHECKPOINT_WRITES_MAX, Figures, START_PERCENT, SUPERBLOCK_PERCENT};
use super::tree::NodeId;
use crate::broken::{self, Fault};
use crate::device::{Buffer, Completion, DeviceId, Operation, WriteMode};
use crate::log::Seq;
use crate::placement::{Extent, UNIT_BYTES};

/// Spill segments that are listed in one step, a few tens of microseconds.
const SPILL_SEGMENTS_LISTED: usize = 256;

/// The places of the images of nodes and of pages of the block table, by number.
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

    /// The extents of those that another listing does not contain.
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
enum CheckpointPhase {
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

/// Writes checkpoints and superblocks.
pub(super) struct Checkpointer {
    phase: CheckpointPhase,
    /// The superblock on the device, except that the number of the next space is kept in the index.
    superblock: Superblock,
    /// The superblock that is being written.
    next_superblock: Option<Superblock>,
    /// The begin of the checkpoint whose root is in the superblock.
    root_begin: Seq,
    /// What the last root lists.
    listed: Listing,
    requested: bool,
    /// Writes of nodes, pages and roots in flight.
    pending: usize,
    bytes_at_last: u64,
    /// The begin of the checkpoint in progress.
    begin: Seq,
    began_us: u64,
    /// What its root will list.
    next: Listing,
    /// That root without its images: the directory at the begin.
    next_root: Root,
    /// The place of that root.
    root: Option<Extent>,
    /// Places that it frees, besides those that it no longer lists.
    outdated: Vec<Extent>,
}

impl Checkpointer {
    /// The state of a store that was opened from this superblock, whose root lists `listed`.
    pub(super) fn after_open(superblock: Superblock, listed: Listing) -> Self {
        Self {
            phase: CheckpointPhase::Idle,
            superblock,
            next_superblock: None,
            root_begin: superblock.root_seq,
            listed,
            requested: false,
            pending: 0,
            bytes_at_last: 0,
            begin: Seq::NONE,
            began_us: 0,
            next: Listing::default(),
            next_root: Root::default(),
            root: None,
            outdated: Vec::new(),
        }
    }

    /// The superblock on the device.
    pub(super) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The begin of the checkpoint whose root is in the superblock.
    pub(super) fn root_begin(&self) -> Seq {
        self.root_begin
    }

    /// Images of nodes and pages that the last root lists.
    pub(super) fn listed(&self) -> &Listing {
        &self.listed
    }

    /// Places that the checkpoint in progress frees, besides those that it no longer lists.
    pub(super) fn outdated(&self) -> &[Extent] {
        &self.outdated
    }

    /// Whether nodes and pages are being written.
    fn is_writing(&self) -> bool {
        self.phase == CheckpointPhase::Pages
    }

    /// Whether a checkpoint is requested or in progress. One that finds no room is abandoned.
    pub(super) fn is_under_way(&self) -> bool {
        self.requested || self.phase != CheckpointPhase::Idle
    }

    /// Whether a checkpoint or a superblock is requested or in progress.
    pub(super) fn is_active(&self) -> bool {
        self.is_under_way() || self.next_superblock.is_some()
    }

    /// Requests a checkpoint.
    pub(super) fn request(&mut self) {
        self.requested = true;
    }

    /// Whether another checkpoint may begin.
    pub(super) fn is_idle(&self) -> bool {
        self.phase == CheckpointPhase::Idle && self.next_superblock.is_none()
    }

    /// Writes a superblock alone if the store is about to be closed and the last one does not
    /// record that the whole log is durable; returns whether it does.
    pub(super) fn attest(&mut self, base: &mut Base) -> bool {
        let is_due = base.gate.is_closing() && base.journal.durable() > self.superblock.durable;
        if is_due {
            self.write_superblock_alone(base);
        }
        is_due
    }

    /// Whether a checkpoint is due, by the fill of the log.
    pub(super) fn is_due(&self, base: &Base, figures: &Figures) -> bool {
        let log = base.journal.log();
        let written = base.metrics.log_written_bytes_total.get();
        let since = written.saturating_sub(self.bytes_at_last);
        let much = policy::is_checkpoint_worth(since, log.prospect_bytes());
        let pressed = figures.is_release_due(START_PERCENT)
            && base.index.frontier() > self.root_begin
            && base.journal.published() > self.root_begin;
        self.requested || base.journal.is_ahead() || much || pressed
    }

    /// Writes a superblock alone if that releases a worthwhile part of the log.
    pub(super) fn move_frontier(&mut self, base: &mut Base, figures: &Figures) {
        if self.superblock_frees(base) && figures.is_release_due(SUPERBLOCK_PERCENT) {
            self.write_superblock_alone(base);
        }
    }

    /// Advances a checkpoint.
    pub(super) fn pump(&mut self, base: &mut Base, growth: &mut Growth) {
        match self.phase {
            CheckpointPhase::Root if self.pending == 0 => self.write_root(base, growth),
            CheckpointPhase::Superblock
                if self.next_superblock.is_none() && base.journal.covers_carried() =>
            {
                self.write_superblock(base, self.begin, (self.root, self.begin));
            }
            _ => {}
        }
        if self.phase == CheckpointPhase::Pages {
            self.write_pages(base, growth);
        }
    }

    /// Whether a superblock alone would release a segment of the log.
    pub(super) fn superblock_frees(&self, base: &Base) -> bool {
        let replay_from = self.root_begin.min(base.index.frontier()).next();
        let oldest = base.journal.log().oldest_segment_last_seq();
        replay_from > self.superblock.replay_from && oldest.is_some_and(|last| replay_from > last)
    }

    /// Begins a checkpoint of the directory as it is now.
    pub(super) fn begin(&mut self, base: &mut Base) {
        assert!(self.is_idle() && self.pending == 0, "one checkpoint at a time");
        base.index.begin_checkpoint(self.superblock.replay_from);
        self.began_us = base.now_us;
        self.requested = false;
        self.phase = CheckpointPhase::Pages;
        self.begin = base.journal.published();
        assert!(self.begin >= self.root_begin, "checkpoints go forward");
        self.bytes_at_last = base.metrics.log_written_bytes_total.get();
        self.next.clone_from(&self.listed);
        let trees = &base.index.directory().trees;
        self.next.nodes.retain(|number, _| trees.is_used(NodeId(*number)));
        self.outdated.append(&mut base.index.take_outdated());
        let carried = base.quarantine.still_carried(&base.index);
        let directory = &base.index.directory();
        let spaces = directory.spaces().map(|space| (space.record.clone(), space.root.0));
        self.next_root = Root {
            spaces: spaces.collect(),
            snapshots: directory.snapshots.iter().cloned().collect(),
            modifiers: base.index.bindings.records().to_vec(),
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
            reserved: match broken::is(Fault::CheckpointWithoutExtents) {
                true => Vec::new(),
                false => base.index.reserved.iter().collect(),
            },
        };
        base.index.spill_segments.begin_list(self.begin);
        if broken::is(Fault::EarlyRelease) {
            let replay_from = base.journal.published().min(base.index.frontier()).next();
            base.journal.log_mut().release(replay_from);
        }
    }

    /// Whether publication has to wait for the checkpoint to write what would change.
    pub(super) fn is_behind(&self) -> bool {
        self.is_writing() && self.pending >= CHECKPOINT_WRITES_MAX
    }

    /// Whether it can proceed without an event: there is more to list, and nothing in flight.
    pub(super) fn is_ready(&self, base: &Base) -> bool {
        self.is_writing() && self.pending == 0 && base.index.spill_segments.is_listing()
    }

    /// Writes what has changed since the begin, in its state at the begin, then a part of the rest.
    fn write_pages(&mut self, base: &mut Base, growth: &mut Growth) {
        let most = policy::checkpoint_pages_in_flight(base.waiters.shortage());
        loop {
            let saved = base.index.take_saved();
            let next = saved
                .or_else(|| if self.pending < most { base.index.next_unwritten() } else { None });
            let Some((kind, number, body)) = next else { break };
            if !self.write_listed(base, growth, kind, (number, &body)) {
                base.index.mark_unwritten(kind, number);
                self.abandon(base, growth);
                return;
            }
        }
        base.index.spill_segments.list_some(SPILL_SEGMENTS_LISTED);
        if self.pending == 0 && !base.index.spill_segments.is_listing() {
            self.phase = CheckpointPhase::PagesFlush;
            base.flushes.wait(Flushing::Checkpoint);
        }
    }

    /// Writes one node or page; `false` if there is no room.
    fn write_listed(
        &mut self,
        base: &mut Base,
        growth: &mut Growth,
        kind: ImageKind,
        (number, body): (u32, &[u8]),
    ) -> bool {
        let image_seq = self.begin;
        let identity = identity_of(base, kind, number, image_seq);
        let Some(extent) = self.write_image(base, growth, &identity, body) else {
            return false;
        };
        let image = ImageRecord { number, image_seq, extent };
        let next = &mut self.next;
        let list = if kind == ImageKind::Node { &mut next.nodes } else { &mut next.pages };
        list.insert(number, image);
        true
    }

    /// Writes a node, page or root to free space; `None` if there is no room.
    fn write_image(
        &mut self,
        base: &mut Base,
        growth: &mut Growth,
        identity: &Identity<'_>,
        body: &[u8],
    ) -> Option<Extent> {
        let bytes =
            image_format::image_bytes(&[], body.len()).next_multiple_of(UNIT_BYTES as usize);
        let extent = base.index.space_map.allocate_high(u32::try_from(bytes).ok()?);
        let Some(extent) = extent else {
            growth.begin(base, bytes as u64);
            return None;
        };
        let mut buffer = Buffer::recycled(bytes);
        image_format::encode(identity, body, &mut buffer);
        base.io.write(IoKind::CheckpointWrite, None, extent, buffer);
        base.index.set_full(false);
        self.pending += 1;
        base.metrics.checkpoint_written_bytes_total.add(bytes as u64);
        Some(extent)
    }

    /// Abandons this checkpoint for lack of room. Its places are free once its writes are done.
    fn abandon(&mut self, base: &mut Base, growth: &Growth) {
        let was_writing = matches!(self.phase, CheckpointPhase::Pages | CheckpointPhase::Root);
        assert!(was_writing, "a superblock names only images with a place");
        self.requested = growth.is_under_way();
        base.index.set_full(base.index.is_full() || !growth.is_under_way());
        base.waiters.tell();
        base.index.abandon_checkpoint();
        base.index.spill_segments.take_list();
        self.phase = CheckpointPhase::Abandoned;
        self.end_abandoned(base);
    }

    /// Frees what an abandoned checkpoint has written, because no root will list it.
    fn end_abandoned(&mut self, base: &mut Base) {
        if self.phase == CheckpointPhase::Abandoned && self.pending == 0 {
            let next = std::mem::take(&mut self.next);
            let unlisted: Vec<Extent> = next.missing_in(&self.listed).collect();
            unlisted.into_iter().for_each(|extent| base.index.space_map.free(extent));
            // What was written is not in the current root.
            for (kind, image) in next.images() {
                if !self.listed.has(kind, image) {
                    base.index.mark_unwritten(kind, image.number);
                }
            }
            self.phase = CheckpointPhase::Idle;
        }
    }

    fn write_root(&mut self, base: &mut Base, growth: &mut Growth) {
        assert!(self.pending == 0, "a root lists only stable images");
        let mut root = std::mem::take(&mut self.next_root);
        root.nodes = self.next.nodes.values().copied().collect();
        root.pages = self.next.pages.values().copied().collect();
        root.spill_segments = base.index.spill_segments.take_list();
        if broken::is(Fault::EarlyReuse) {
            self.free_unlisted(base);
        }
        let (body, seq) = (encode_root(&root), self.begin);
        let identity = identity_of(base, ImageKind::Root, 0, seq);
        let Some(extent) = self.write_image(base, growth, &identity, &body) else {
            self.abandon(base, growth);
            return;
        };
        self.root = Some(extent);
        self.phase = CheckpointPhase::RootFlush;
    }

    pub(super) fn write_done(&mut self, base: &mut Base, completion: &Completion) {
        assert!(self.pending > 0, "a write must begin before it ends");
        self.pending -= 1;
        if completion.result.is_err() {
            return;
        }
        debug_assert!(
            matches!(
                self.phase,
                CheckpointPhase::Pages | CheckpointPhase::RootFlush | CheckpointPhase::Abandoned
            ),
            "nothing is written in {:?}",
            self.phase
        );
        if self.phase == CheckpointPhase::RootFlush && broken::is(Fault::SuperblockBeforeFlush) {
            self.phase = CheckpointPhase::Superblock;
        } else if self.phase == CheckpointPhase::RootFlush {
            base.flushes.wait(Flushing::Checkpoint);
        }
        self.end_abandoned(base);
    }

    /// What was written before the flush began is stable.
    pub(super) fn flushed(&mut self) {
        assert!(self.pending == 0, "a flush covers only completed writes");
        self.phase = match self.phase {
            CheckpointPhase::PagesFlush => CheckpointPhase::Root,
            CheckpointPhase::RootFlush => CheckpointPhase::Superblock,
            other => unreachable!("no flush is awaited in {other:?}"),
        };
    }

    /// Writes a superblock with the current root. As long as changes wait to be carried by a
    /// checkpoint, no root has their images, and the log is needed as before.
    fn write_superblock_alone(&mut self, base: &mut Base) {
        let root = (self.superblock.root, self.superblock.root_seq);
        let begin = if base.journal.is_ahead() { Seq::NONE } else { self.root_begin };
        self.write_superblock(base, begin, root);
    }

    fn write_superblock(
        &mut self,
        base: &mut Base,
        begin: Seq,
        (root, root_seq): (Option<Extent>, Seq),
    ) {
        assert!(self.next_superblock.is_none(), "one of the two slots is valid at any time");
        let waits_behind =
            if broken::is(Fault::ReleaseOfWaiting) { begin } else { base.index.frontier() };
        let replay_from = begin.min(waits_behind).next().max(self.superblock.replay_from);
        let end = base.journal.published().next();
        assert!(
            begin < end && replay_from <= end,
            "the log is kept from the published sequence on"
        );
        let superblock = Superblock {
            generation: self.superblock.generation + 1,
            replay_from,
            root,
            root_seq,
            durable: base.journal.durable(),
            next_space: base.index.next_space(),
            ..self.superblock
        };
        // A generation is never written twice, whatever the outcome of the write.
        self.superblock.generation = superblock.generation;
        let mut buffer = Buffer::zeroed(SLOT_BYTES);
        let bytes = encode_superblock(&superblock);
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let offset = SUPERBLOCK_SLOTS[(superblock.generation % 2) as usize];
        let operation = Operation::Write { offset, buffer, mode: WriteMode::Stable };
        base.io.submit(IoKind::Superblock, None, DeviceId(0), operation);
        self.next_superblock = Some(superblock);
    }

    /// The next root takes effect: frees what only the last one lists.
    fn free_unlisted(&mut self, base: &mut Base) {
        let next = std::mem::take(&mut self.next);
        let last = std::mem::replace(&mut self.listed, next);
        let unlisted = last.missing_in(&self.listed);
        unlisted.for_each(|extent| base.index.space_map.free(extent));
    }

    /// The superblock is stable, and takes effect.
    pub(super) fn superblock_done(&mut self, base: &mut Base, completion: &Completion) {
        let superblock = self.next_superblock.take().expect("a superblock is being written");
        if completion.result.is_err() {
            return;
        }
        assert!(superblock.replay_from >= self.superblock.replay_from, "the log is released once");
        assert!(superblock.durable >= self.superblock.durable, "stable records stay stable");
        assert!(superblock.generation == self.superblock.generation, "one is written at a time");
        let before = std::mem::replace(&mut self.superblock, superblock);
        if self.phase == CheckpointPhase::Superblock {
            self.end(base, before.root);
        }
        base.journal.log_mut().release(superblock.replay_from);
        base.waiters.tell();
    }

    /// The checkpoint is complete. Frees what the previous root lists and this one does not.
    fn end(&mut self, base: &mut Base, root_before: Option<Extent>) {
        let superblock = &self.superblock;
        assert!(
            superblock.root == self.root && superblock.root_seq == self.begin,
            "the superblock names the root"
        );
        assert!(self.pending == 0, "what it lists is stable");
        self.phase = CheckpointPhase::Idle;
        base.journal.caught_up();
        self.root_begin = self.begin;
        if !broken::is(Fault::EarlyReuse) {
            self.free_unlisted(base);
        }
        let outdated = std::mem::take(&mut self.outdated).into_iter();
        outdated.chain(root_before).for_each(|extent| base.index.space_map.free(extent));
        base.metrics.checkpoints_total.add(1);
        base.measured.note_ended(Timed::Checkpoint, self.began_us);
    }
}

fn identity_of(base: &Base, kind: ImageKind, number: u32, seq: Seq) -> Identity<'static> {
    Identity { store: base.config.store, kind, number, seq, key: &[] }
}
