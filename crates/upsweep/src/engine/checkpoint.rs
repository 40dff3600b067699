//! Checkpoints: the directory goes to the data devices, a page at a time, so that the log holds a
//! bounded amount.
//!
//! Steps: note the published sequence (*begin*); write each changed page to free space; flush;
//! write the root, which lists all pages; flush; write the superblock, which names the root. Each
//! page is written as it is at its own moment and carries the sequence of that moment, so the
//! foreground never waits for a consistent image: replay skips, page by page, what a page already
//! holds. Only when the superblock is stable are the old pages free and the log released.
//!
//! When the log has no room for the changes of the sweep, which alone can release it, a checkpoint
//! *carries* them: they are published in memory when it begins, and become durable with its
//! superblock. (Bounded log space can therefore never bring the sweep to a stand.)
//!
//! Recovery needs the log from `min(begin, global frontier) + 1` on. A frontier that moves without
//! a checkpoint is published by a superblock alone. (Design document, "Checkpoint".)

use super::block_format::Routing;
use super::config::SUPERBLOCK_SLOTS;
use super::core::{Actions, Core, Purpose};
use super::directory::{BlockId, Page};
use super::format::checkpoint_format::{
    PageRecord, Root, SLOT_BYTES, encode_page, encode_root, encode_superblock,
};
use super::format::image_format::{self, Identity, ImageKind};
use super::format::record_format::{ModifierRecord, Placed, SpaceRecord};
use super::sweep::Flushing;
use crate::device::{Buffer, Completion, DeviceId, Durability, Operation, Request};
use crate::placement::{Extent, UNIT_BYTES};

/// Page writes in flight.
const PAGES_IN_FLIGHT: usize = 4;
/// A checkpoint is due when the log since the last one takes this part of the ring, in per cent.
const DUE_PERCENT: u64 = 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Pages,
    PagesFlush,
    Root,
    RootFlush,
    Superblock,
}

/// Where the checkpoint is.
#[derive(Default)]
pub(super) struct CheckpointState {
    phase: Phase,
    begin: u64,
    /// The begin of the checkpoint whose root is in the superblock.
    pub(super) root_begin: u64,
    requested: bool,
    /// Images that nothing refers to once the next checkpoint is complete.
    pub(super) outdated: Vec<Extent>,
    /// The part of them that the root on its way does not list: free once that root counts. A page
    /// whose space is dropped after the root was written is listed in it, and stays one more time.
    unlisted: Vec<Extent>,
    spaces: Vec<SpaceRecord>,
    modifiers: Vec<ModifierRecord>,
    pages: Vec<(u32, usize)>,
    pending: usize,
    root: Option<Extent>,
    root_seq: u64,
    superblock_in_flight: bool,
    /// The next checkpoint to complete makes changes durable that are not in the log.
    carries: bool,
    /// What the superblock in flight says of the replay.
    replay_from: u64,
    bytes_at_last: u64,
}

impl CheckpointState {
    /// The state of a store that was opened from a root of this sequence.
    pub(super) fn after_open(root_seq: u64) -> Self {
        Self { root_begin: root_seq, ..Self::default() }
    }

    /// Whether changes were published that only the next checkpoint makes durable.
    pub(super) fn carries_changes(&self) -> bool {
        self.carries
    }

    pub(super) fn is_active(&self) -> bool {
        self.carries || self.phase != Phase::Idle || self.superblock_in_flight || self.requested
    }
}

impl Core {
    /// Asks for a checkpoint.
    pub fn request_checkpoint(&mut self) {
        self.checkpoint.requested = true;
    }

    pub(super) fn pump_checkpoint(&mut self, actions: &mut Actions) {
        match self.checkpoint.phase {
            Phase::Idle if self.checkpoint.superblock_in_flight => {}
            Phase::Idle if self.paused && !self.change_waits_for_log() => {}
            Phase::Idle if self.change_waits_for_log() => {
                self.carry_changes();
                self.checkpoint.carries = true;
                self.begin_checkpoint();
            }
            Phase::Idle if self.checkpoint_due() => self.begin_checkpoint(),
            Phase::Idle if self.superblock_due() => {
                let (root, seq) = (self.superblock.root, self.superblock.root_seq);
                self.write_superblock(self.checkpoint.root_begin, root, seq, actions);
            }
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
        let since = self.log.statistics().bytes.saturating_sub(self.checkpoint.bytes_at_last);
        let much = since * 100 >= self.log.capacity_bytes() * DUE_PERCENT;
        let pressed = self.log_fill_percent() >= 50
            && self.sweep.frontier > self.checkpoint.root_begin
            && self.published > self.checkpoint.root_begin;
        self.checkpoint.requested || self.checkpoint.carries || much || pressed
    }

    /// Whether a superblock alone would release a worthwhile part of the log.
    fn superblock_due(&self) -> bool {
        let replay_from = self.checkpoint.root_begin.min(self.sweep.frontier) + 1;
        let first_held = self.superblock.replay_from;
        replay_from > first_held && self.log_fill_percent() >= 25
    }

    fn begin_checkpoint(&mut self) {
        self.forget_empty_blocks();
        let outdated = self.directory.balance_pages();
        let checkpoint = &mut self.checkpoint;
        checkpoint.outdated.extend(outdated);
        checkpoint.requested = false;
        checkpoint.phase = Phase::Pages;
        checkpoint.begin = self.published;
        checkpoint.bytes_at_last = self.log.statistics().bytes;
        checkpoint.modifiers.clone_from(&self.modifier_records);
        checkpoint.spaces = self.directory.spaces().map(|space| space.record.clone()).collect();
        checkpoint.pages.clear();
        for space in self.directory.spaces() {
            let dirty = (0..space.pages.len()).rev().filter(|&page| space.pages[page].dirty);
            checkpoint.pages.extend(dirty.map(|page| (space.record.space, page)));
        }
    }

    /// Blocks of exact routing that hold nothing, and whose deletion no replay can see any more.
    fn forget_empty_blocks(&mut self) {
        let replay_from = self.superblock.replay_from;
        let exact = self.directory.spaces().filter(|space| {
            space.format.routing() == Routing::Exact && !space.record.name.is_empty()
        });
        let ids: Vec<BlockId> =
            exact.flat_map(|space| space.pages.iter().flat_map(Page::blocks)).copied().collect();
        for id in ids {
            let block = self.directory.block(id);
            let empty = block.extent.is_none() && !block.busy && !block.waits();
            if empty && block.frontier < replay_from {
                self.sweep.unmark_fat(id);
                self.directory.remove(id);
            }
        }
    }

    fn write_pages(&mut self, actions: &mut Actions) {
        while self.checkpoint.pending < PAGES_IN_FLIGHT {
            let Some((space, page)) = self.checkpoint.pages.pop() else {
                if self.checkpoint.pending == 0 {
                    self.checkpoint.phase = Phase::PagesFlush;
                    self.sweep.flush.waiting.push(Flushing::Checkpoint);
                }
                return;
            };
            if !self.write_page(space, page, actions) {
                self.abandon();
                return;
            }
        }
    }

    /// Writes one page; `false` if there is no room.
    fn write_page(&mut self, space: u32, page: usize, actions: &mut Actions) -> bool {
        let Some(found) = self.directory.space(space) else { return true };
        let page_ref = &found.pages[page];
        let placed: Vec<Placed> = page_ref
            .blocks()
            .iter()
            .map(|id| {
                let block = self.directory.block(*id);
                Placed {
                    space,
                    key: block.key.clone(),
                    frontier: block.frontier,
                    image_seq: block.image_seq,
                    records: block.records,
                    extent: block.extent,
                }
            })
            .collect();
        let low = page_ref.low.clone();
        let body = encode_page(placed.iter());
        let seq = self.published;
        let Some(extent) = self.write_image(ImageKind::Page, space, seq, &low, &body, actions)
        else {
            return false;
        };
        let found = self.directory.space_mut(space).expect("looked up above");
        let page = &mut found.pages[page];
        page.dirty = false;
        page.image_seq = seq;
        let before = page.image.replace(extent);
        self.checkpoint.outdated.extend(before);
        true
    }

    /// Writes a page or root to free space; `None` if there is no room.
    fn write_image(
        &mut self,
        kind: ImageKind,
        space: u32,
        seq: u64,
        key: &[u8],
        body: &[u8],
        actions: &mut Actions,
    ) -> Option<Extent> {
        let bytes = image_format::image_bytes(key, body).next_multiple_of(UNIT_BYTES as usize);
        let extent = self.space_map.allocate_high(u32::try_from(bytes).ok()?);
        let Some(extent) = extent else {
            self.begin_growth(bytes as u64, actions);
            return None;
        };
        let mut buffer = Buffer::zeroed(bytes);
        let store = self.config.store;
        image_format::encode(&Identity { store, kind, space, seq, key }, body, &mut buffer);
        let token = self.token(Purpose::CheckpointWrite);
        let (offset, durability) = (extent.offset, Durability::Cached);
        let operation = Operation::Write { offset, buffer, durability };
        actions.requests.push(Request { device: extent.device, token, operation });
        self.full = false;
        self.checkpoint.pending += 1;
        self.statistics.checkpoint_written_bytes += bytes as u64;
        Some(extent)
    }

    /// Gives this checkpoint up for lack of room. What was written stays valid for the next one.
    fn abandon(&mut self) {
        self.checkpoint.requested = self.growth.is_under_way();
        self.full |= !self.growth.is_under_way();
        self.room_events += 1;
        self.checkpoint.phase = Phase::Idle;
        self.checkpoint.pages.clear();
    }

    fn write_root(&mut self, actions: &mut Actions) {
        let mut root = Root {
            spaces: Vec::new(),
            modifiers: std::mem::take(&mut self.checkpoint.modifiers),
            pages: Vec::new(),
            carried: self.still_carried(),
        };
        for record in std::mem::take(&mut self.checkpoint.spaces) {
            let Some(space) = self.directory.space(record.space) else { continue };
            for page in &space.pages {
                let extent = page.image.expect("every page was written by now");
                let (low, image_seq) = (page.low.clone(), page.image_seq);
                root.pages.push(PageRecord { space: record.space, low, image_seq, extent });
            }
            root.spaces.push(record);
        }
        let (body, seq) = (encode_root(&root), self.checkpoint.begin);
        let Some(extent) = self.write_image(ImageKind::Root, 0, seq, &[], &body, actions) else {
            self.abandon();
            return;
        };
        let outdated = std::mem::take(&mut self.checkpoint.outdated);
        self.checkpoint.unlisted.extend(outdated);
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
    }

    pub(super) fn checkpoint_flushed(&mut self) {
        self.checkpoint.phase = match self.checkpoint.phase {
            Phase::PagesFlush => Phase::Root,
            Phase::RootFlush => Phase::Superblock,
            other => other,
        };
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
        self.checkpoint.replay_from = superblock.replay_from;
        let mut buffer = Buffer::zeroed(SLOT_BYTES);
        let bytes = encode_superblock(&superblock);
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let token = self.token(Purpose::Superblock);
        let offset = SUPERBLOCK_SLOTS[(superblock.generation % 2) as usize];
        let operation = Operation::Write { offset, buffer, durability: Durability::Stable };
        actions.requests.push(Request { device: DeviceId(0), token, operation });
        self.checkpoint.superblock_in_flight = true;
    }

    pub(super) fn superblock_done(&mut self, completion: &Completion) {
        self.checkpoint.superblock_in_flight = false;
        if completion.result.is_err() {
            self.fail_write(completion, 0);
            return;
        }
        self.superblock.replay_from = self.checkpoint.replay_from;
        if self.checkpoint.phase == Phase::Superblock {
            self.checkpoint.phase = Phase::Idle;
            self.checkpoint.carries = false;
            self.checkpoint.root_begin = self.checkpoint.begin;
            self.superblock.root_seq = self.checkpoint.root_seq;
            let before = std::mem::replace(&mut self.superblock.root, self.checkpoint.root);
            let unlisted = std::mem::take(&mut self.checkpoint.unlisted);
            unlisted.into_iter().chain(before).for_each(|extent| self.space_map.free(extent));
            self.statistics.checkpoints += 1;
        }
        self.log.release(self.superblock.replay_from);
        self.room_events += 1;
    }
}
