//! Spills: waiting updates go to the data devices in bundles when memory holds too few of them for
//! each block.
//!
//! Updates are spilled for memory where data is many times the memory for queues, and for the log
//! wherever that fills before memory does: as records that wait alone take a page of log each, the
//! log is full of few updates then, and a sweep for so few would move a block for each.
//!
//! Steps of a spill: freeze the queues of neighbouring blocks, as many as fill a bundle, and some
//! such bundles; write them to free space with one request; flush; log what is in them and where;
//! when that record is durable, the frozen updates are given up, for the bundles have them. The
//! next sweep of a block reads its bundles and applies what they have before what waits in memory.
//! So memory no longer bounds how many updates a visit of a block applies; see `bundles.rs`.
//!
//! Spilled are ordered spaces only, tables and hash tables, in key order, round and round. A block
//! is left to the sweep that is shared, has no image or a damaged one, or waits for the removal of
//! a range: what is in a bundle is simple, and others have no word in it.

use std::sync::Arc;

use super::place::write_requests;
use super::{Flushing, pacing};
use crate::device::{Buffer, Completion, Durability, Operation, Request};
use crate::engine::block_format::Routing;
use crate::engine::bundles::{self, Filter};
use crate::engine::core::{Actions, Core, Publish, Purpose, Release};
use crate::engine::directory::{BlockId, Space};
use crate::engine::format::bundle_format::{BundleRecord, Spilled, encode_bundle};
use crate::engine::format::image_format;
use crate::engine::format::record_format::{BlockRef, encode_spill};
use crate::engine::quarantine::FIRST_USER_SPACE;
use crate::engine::queue::Packed;
use crate::log::AppendError;
use crate::placement::{Extent, UNIT_BYTES};

/// Blocks that the search looks at for one bundle, and after which it looks for no more of them in
/// one step.
const LOOK_BLOCKS: usize = 2048;
/// Updates after which there may be another round when one has found nothing.
const LOOK_AGAIN_UPDATES: u64 = 256;
/// Bundles that may lie one upon the other: a query looks at the filter of each.
const LEVELS_MAX: usize = 20;
/// A bundle that is filled to less than one part in so many is not worth its page and its entry,
/// unless what is in it would hold the log.
const FILL_PART: usize = 8;

/// The spill on its way.
pub(in crate::engine) struct Spill {
    bundles: Vec<Prepared>,
    /// Blocks whose updates are in them, in order.
    blocks: Vec<BlockId>,
    frozen_bytes: usize,
    /// How much blocks may grow by what is frozen.
    pub(super) growth_bytes: u64,
    phase: Phase,
}

/// A bundle on its way.
struct Prepared {
    spilled: Spilled,
    filter: Filter,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Writing { pending: usize },
    Flushing,
    Logging,
    Committing,
}

/// Where the search for something to spill is. It goes round over all blocks in key order, so that
/// bundles of one round end where those of others do.
#[derive(Default)]
pub(super) struct Search {
    space: u32,
    /// The next key to look at.
    from: Box<[u8]>,
    /// What was accepted up to here when the round began: this round is to spill it all.
    began: Option<u64>,
    /// Bytes of memory that this round has spilled.
    spilled_bytes: u64,
    /// A round has come to its end: the frontier may have moved far.
    pub(super) is_round_complete: bool,
    /// What runs and updates were when a round had found nothing, or there was no room for a spill.
    in_vain: Option<(u64, u64)>,
}

/// Neighbouring blocks whose queues fill a bundle.
struct Found {
    space: u32,
    blocks: Vec<(BlockId, Packed)>,
    bytes: usize,
    first_seq: u64,
}

impl Spill {
    /// Whether it has what waited for a block.
    pub(super) fn has(&self, block: BlockId) -> bool {
        self.blocks.binary_search(&block).is_ok()
    }
}

impl Core {
    /// Whether updates are spilled for memory: the data is so much larger than the memory for
    /// queues that a sweep moves many times the bytes of an update for it.
    #[must_use]
    pub fn spill_pays(&self) -> bool {
        self.spill_pays_beside(self.resident_bytes())
    }

    pub(in crate::engine) fn spill_pays_beside(&self, resident: usize) -> bool {
        let ratio = self.config.spill_ratio_min;
        let enough = u64::from(ratio).saturating_mul(self.waiting_limit_beside(resident) as u64);
        ratio < u32::MAX && self.image_bytes() >= enough
    }

    /// How many times the memory for waiting updates the images take on the devices.
    #[must_use]
    pub fn data_ratio(&self) -> f64 {
        self.image_bytes() as f64 / self.waiting_limit_bytes().max(1) as f64
    }

    fn image_bytes(&self) -> u64 {
        self.space_map.used_bytes().saturating_sub(self.bundles.disk_bytes())
    }

    /// Queue entries that can wait in memory and in bundles, at so many bytes of memory for each.
    #[must_use]
    pub fn entries_max(&self, queue_bytes_per_entry: f64) -> f64 {
        let limit = self.waiting_limit_bytes() as f64;
        if self.spill_pays() {
            limit / 2.0 / queue_bytes_per_entry + limit / 2.0 / bundles::MEMORY_BYTES_PER_UPDATE
        } else {
            limit / queue_bytes_per_entry
        }
    }

    /// Updates that wait in bundles. Cost: a pass over all blocks.
    #[must_use]
    pub fn spilled_entries(&self) -> u64 {
        self.directory.table.from(0).map(|block| u64::from(block.spilled)).sum()
    }

    /// Number of bundles, and bytes of them on the devices.
    #[must_use]
    pub fn bundles_size(&self) -> (usize, u64) {
        (self.bundles.len(), self.bundles.disk_bytes())
    }

    /// Memory of bundles and what it may be, in bytes.
    #[must_use]
    pub fn bundles_memory(&self) -> (usize, usize) {
        (self.bundles.memory_bytes(), self.waiting_limit_bytes() / 2)
    }

    /// Memory for queues and for the filters of bundles together.
    fn waiting_limit_bytes(&self) -> usize {
        self.waiting_limit_beside(self.resident_bytes())
    }

    pub(in crate::engine) fn waiting_limit_beside(&self, resident: usize) -> usize {
        let others = resident - self.bundles.memory_bytes();
        self.config.memory_bytes.saturating_sub(others).max(self.config.queue_bytes_min())
    }

    /// How much of what bundles may take is taken, of memory or of patience of queries, in per
    /// cent.
    #[must_use]
    pub fn bundles_fill_percent(&self) -> u32 {
        let (used, limit) = self.bundles_memory();
        let memory = used * 100 / limit.max(1);
        let levels = self.bundles.levels() * 100 / LEVELS_MAX;
        memory.max(levels).min(100) as u32
    }

    /// Whether the log is released by spills: where memory calls for them, and where memory is not
    /// what is full.
    fn spills_for_log(&self) -> bool {
        self.config.spill_ratio_min < u32::MAX
            && self.bundles_fill_percent() < 100
            && !self.is_search_in_vain()
            && (self.spill_pays() || self.queue_fill_percent() < pacing::START_PERCENT)
    }

    /// Whether a round has found nothing, or there was no room, and hardly anything has happened
    /// since.
    fn is_search_in_vain(&self) -> bool {
        self.sweep.search.in_vain.is_some_and(|(runs, accepted)| {
            self.statistics.runs == runs && self.accepted < accepted + LOOK_AGAIN_UPDATES
        })
    }

    /// Starts the next spill if one is due, and moves the one on its way on.
    pub(super) fn pump_spill(&mut self, actions: &mut Actions) {
        match self.sweep.spill.as_ref().map(|spill| spill.phase) {
            Some(Phase::Logging) => self.log_spill(),
            None if self.is_spill_due() => self.start_spill(actions),
            _ => {}
        }
    }

    fn is_spill_due(&self) -> bool {
        let wanted = self.config.spill_fill_percent;
        let for_memory = self.spill_pays() && self.queue_fill_percent() >= wanted;
        let for_log = self.spills_for_log()
            && self.log_claim_percent(0) >= self.fill_of_next_spill_percent()
            && self.is_log_held_by_queues()
            && !self.is_frontier_looked_for();
        (for_memory || for_log)
            && self.arena.queues() > 0
            && !(self.paused || self.full || self.is_search_in_vain())
            && self.bundles_fill_percent() < 100
            && self.has_room_to_spill()
    }

    /// How full the log is when the next spill for it is due: the further the round is, the
    /// fuller. As only a whole round releases the log, spills one after the other would go on until
    /// its end, and for so long callers would wait for a device and a core that both are busy.
    fn fill_of_next_spill_percent(&self) -> u32 {
        let end = u64::from(pacing::SPILLS_FAIL_PERCENT);
        let start = u64::from(self.config.spill_fill_percent).min(end);
        let spilled = self.sweep.search.spilled_bytes;
        let all = (spilled + self.queue_bytes() as u64).max(1);
        (start + (end - start) * spilled / all) as u32
    }

    /// Whether half of the log is there for updates that wait in memory, or more. If not, it will
    /// be released without them.
    fn is_log_held_by_queues(&self) -> bool {
        let held = self.log.last().saturating_sub(self.sweep.frontier);
        let needed = self.log.last().saturating_sub(self.superblock.replay_from);
        held >= needed / 2
    }

    /// Whether the frontier is about to move: what holds the log is not known.
    fn is_frontier_looked_for(&self) -> bool {
        self.sweep.search.is_round_complete || self.sweep.scan.is_some()
    }

    /// Bundles take no room from what the sweep will need.
    fn has_room_to_spill(&self) -> bool {
        let wanted = 2 * self.config.spill_bytes_max() as u64 + self.reserved_bytes(0, 0);
        self.space_map.free_bytes() >= wanted
    }

    fn start_spill(&mut self, actions: &mut Actions) {
        let mut found = Vec::new();
        let (mut bytes, mut looked) = (0, 0);
        self.sweep.search.began.get_or_insert(self.accepted);
        while bytes < self.config.spill_bytes_max() && looked < LOOK_BLOCKS {
            let Some(bundle) = self.next_bundle(&mut looked) else {
                self.end_round();
                break;
            };
            if self.is_worth_a_bundle(&bundle) {
                bytes += bundle.bytes;
                self.sweep.search.spilled_bytes += bundle.bytes as u64;
                found.push(bundle);
            } else {
                self.put_back(bundle);
            }
        }
        if !found.is_empty() {
            self.write_spill(found, actions);
        }
    }

    /// The next round begins at the beginning; not at once if this one has found nothing.
    fn end_round(&mut self) {
        let round = std::mem::take(&mut self.sweep.search);
        self.sweep.search.is_round_complete = round.spilled_bytes > 0;
        if round.spilled_bytes == 0 {
            self.search_in_vain();
        }
    }

    /// The search is worth another try when runs or updates are beyond what they are now.
    fn search_in_vain(&mut self) {
        self.sweep.search.in_vain = Some((self.statistics.runs, self.accepted));
    }

    /// Goes on with the round and freezes the queues of the next blocks that fill a bundle; `None`
    /// when the round is complete.
    fn next_bundle(&mut self, looked: &mut usize) -> Option<Found> {
        let spaces = self.directory.spaces().filter(|space| may_spill(space));
        let mut search = std::mem::take(&mut self.sweep.search);
        let space = spaces.map(|space| space.record.space).find(|space| *space >= search.space);
        let found = space.map(|space| {
            if space > search.space {
                (search.space, search.from) = (space, Box::default());
            }
            let mut found = Found { space, blocks: Vec::new(), bytes: 0, first_seq: u64::MAX };
            self.fill_bundle(&mut found, &mut search, looked);
            found
        });
        self.sweep.search = search;
        found
    }

    /// Fills a bundle, and ends it where older ones end if it is about as long: bundles that begin
    /// anywhere would take more levels for as many updates.
    fn fill_bundle(&mut self, found: &mut Found, search: &mut Search, looked: &mut usize) {
        let space = search.space;
        let exact = self.directory.exact(space, &search.from);
        let mut next = exact.or_else(|| self.directory.above(space, &search.from));
        let looked_max = *looked + LOOK_BLOCKS;
        let wanted = self.config.bundle_bytes as usize;
        let mut end: Option<Box<[u8]>> = None;
        while let Some(id) = next {
            let key = &self.directory.block(id).key;
            if end.is_none() && found.bytes >= wanted / 2 {
                end = self.bundles.end_above(space, key).map(Box::from);
            }
            let is_at_end = end.as_ref().is_some_and(|end| **key >= **end);
            let filled = if end.is_some() { wanted / 4 * 5 } else { wanted };
            if is_at_end || found.bytes >= filled || *looked >= looked_max {
                break;
            }
            *looked += 1;
            let block = self.directory.block(id);
            next = self.directory.above(space, &block.key);
            if block.busy || block.waits() {
                match self.freeze_for_spill(space, id) {
                    Some(frozen) => {
                        found.first_seq = found.first_seq.min(frozen.first_seq());
                        found.bytes += frozen.memory_bytes();
                        found.blocks.push((id, frozen));
                    }
                    // A bundle has all that waits for its keys.
                    None if !found.blocks.is_empty() => break,
                    None => {}
                }
            }
        }
        match next {
            Some(id) => search.from = (*self.directory.block(id).key).into(),
            None => {
                search.space += 1;
                search.from = Box::default();
            }
        }
    }

    /// Takes what waits for a block out of its queue, if it may be spilled.
    fn freeze_for_spill(&mut self, space: u32, id: BlockId) -> Option<Packed> {
        let block = self.directory.block(id);
        let placement = block.placement();
        let is_sound = placement.extent.is_some() && placement.frontier == placement.image_seq;
        if block.busy || !is_sound || self.is_shared(space, id) {
            return None;
        }
        let packed = self.arena.snapshot(&block.queue, &block.key);
        if packed.has_ranges() {
            return None;
        }
        let block = self.directory.block_mut(id);
        self.arena.clear(&mut block.queue);
        block.busy = true;
        self.sweep.unmark_fat(id);
        Some(packed)
    }

    /// Whether enough is in it, or what is old.
    fn is_worth_a_bundle(&self, found: &Found) -> bool {
        let is_filled = found.bytes * FILL_PART >= self.config.bundle_bytes as usize;
        let is_old = self.sweep.search.began.is_some_and(|began| found.first_seq <= began);
        !found.blocks.is_empty() && (is_filled || is_old)
    }

    /// Writes what was found, if there is room.
    fn write_spill(&mut self, found: Vec<Found>, actions: &mut Actions) {
        let sections = |found: &Found| -> Vec<u8> {
            encode_bundle(found.blocks.iter().map(|(_, packed)| packed.as_section()))
        };
        let bodies: Vec<Vec<u8>> = found.iter().map(sections).collect();
        let length = |(found, body): (&Found, &Vec<u8>)| {
            let low = &self.directory.block(found.blocks[0].0).key;
            let bytes = image_format::image_bytes(low, body);
            u32::try_from(bytes.next_multiple_of(UNIT_BYTES as usize)).expect("below 4 GiB")
        };
        let lengths: Vec<u32> = found.iter().zip(&bodies).map(length).collect();
        let Some(extents) = self.space_map.allocate_run(&lengths) else {
            self.search_in_vain();
            self.room_events += 1;
            return found.into_iter().for_each(|found| self.put_back(found));
        };
        let mut buffer = Buffer::recycled(lengths.iter().map(|bytes| *bytes as usize).sum());
        let mut spill = Spill {
            bundles: Vec::with_capacity(found.len()),
            blocks: Vec::new(),
            frozen_bytes: 0,
            growth_bytes: 0,
            phase: Phase::Writing { pending: 0 },
        };
        let mut at = 0;
        for ((found, extent), body) in found.into_iter().zip(&extents).zip(&bodies) {
            let prepared = self.prepare(found, *extent, &mut spill);
            let end = at + extent.bytes as usize;
            let identity = bundles::identity(self.config.store, &prepared.spilled.record);
            image_format::encode(&identity, body, &mut buffer[at..end]);
            at = end;
            spill.bundles.push(prepared);
        }
        spill.blocks.sort_unstable();
        self.frozen_bytes += spill.frozen_bytes;
        let writes = write_requests(&extents, buffer);
        spill.phase = Phase::Writing { pending: writes.len() };
        for (extent, buffer) in writes {
            self.statistics.spill_written_bytes += buffer.len() as u64;
            let token = self.token(Purpose::SpillWrite);
            let (offset, durability) = (extent.offset, Durability::Cached);
            let operation = Operation::Write { offset, buffer, durability };
            actions.requests.push(Request { device: extent.device, token, operation });
        }
        self.sweep.spill = Some(spill);
    }

    /// No bundle comes of this: its updates wait in memory again.
    fn put_back(&mut self, found: Found) {
        for (id, packed) in found.blocks {
            self.directory.block_mut(id).frozen = Some(Arc::new(packed));
            self.unfreeze(id);
        }
    }

    /// The record of a bundle, and the filter of its keys; its blocks keep what was frozen.
    fn prepare(&mut self, found: Found, extent: Extent, spill: &mut Spill) -> Prepared {
        let (first, last) = (found.blocks[0].0, found.blocks[found.blocks.len() - 1].0);
        let low = (*self.directory.block(first).key).into();
        let high = self.high_of(found.space, &self.directory.block(last).key);
        let waiting = found.blocks.iter().map(|(_, packed)| packed.unpack());
        let waiting: Vec<_> = waiting.collect();
        let keys = waiting.iter().flat_map(|waiting| waiting.updates().map(|update| update.key));
        let updates: u32 = found.blocks.iter().map(|(_, packed)| packed.count()).sum();
        let growth = found.blocks.iter().map(|(_, packed)| u64::from(packed.growth_bytes()));
        let record = BundleRecord {
            space: found.space,
            low,
            high,
            first_seq: found.first_seq,
            through: self.accepted,
            updates,
            growth_bytes: growth.sum(),
            extent,
        };
        let filter = Filter::new(updates as usize, keys);
        spill.growth_bytes += record.growth_bytes;
        let mut blocks = Vec::with_capacity(found.blocks.len());
        for (id, packed) in found.blocks {
            spill.frozen_bytes += packed.memory_bytes();
            self.directory.block_mut(id).frozen = Some(Arc::new(packed));
            blocks.push(self.directory.table.reference(id));
            spill.blocks.push(id);
        }
        Prepared { spilled: Spilled { record, blocks }, filter }
    }

    pub(in crate::engine) fn spill_write_done(&mut self, completion: &Completion) {
        if completion.result.is_err() {
            self.fail_write(completion, 0);
            return;
        }
        let Some(spill) = &mut self.sweep.spill else { return };
        let Phase::Writing { pending } = &mut spill.phase else { return };
        *pending -= 1;
        if *pending == 0 {
            spill.phase = Phase::Flushing;
            self.sweep.flush.waiting.push(Flushing::Spill);
        }
    }

    pub(super) fn spill_flushed(&mut self) {
        if let Some(spill) = &mut self.sweep.spill {
            spill.phase = Phase::Logging;
        }
        self.log_spill();
    }

    /// Logs the spill; if the log has no room, the updates wait in memory again.
    fn log_spill(&mut self) {
        if self.checkpoint.carries_changes() {
            return;
        }
        let Some(spill) = &self.sweep.spill else { return };
        let mut payload = Vec::new();
        encode_spill(spill.bundles.iter().map(|bundle| &bundle.spilled), &mut payload);
        match self.append_internal(&payload, Publish::Spill) {
            Ok(_) => {
                if let Some(spill) = &mut self.sweep.spill {
                    spill.phase = Phase::Committing;
                }
            }
            Err(AppendError::Full | AppendError::TooLong { .. }) => {
                let Some(spill) = self.sweep.spill.take() else { return };
                self.search_in_vain();
                self.unfreeze_spill(&spill);
                let extents = spill.bundles.iter().map(|bundle| bundle.spilled.record.extent);
                extents.for_each(|extent| self.space_map.free(extent));
            }
            // The log's pipeline is full for a moment, or a failed write has closed the store.
            Err(_) => {}
        }
    }

    /// The record of the spill is durable.
    pub(in crate::engine) fn publish_spill(&mut self, seq: u64) {
        let Some(spill) = self.sweep.spill.take() else { return };
        self.frozen_bytes -= spill.frozen_bytes;
        self.room_events += 1;
        self.statistics.spills += 1;
        for Prepared { spilled, filter } in spill.bundles {
            let is_added = self.add_bundle(seq, &spilled, Some(filter), Release::Now);
            if is_added {
                self.statistics.updates_spilled += u64::from(spilled.record.updates);
            }
            for id in self.found(&spilled.blocks) {
                if is_added {
                    let block = self.directory.block_mut(id);
                    block.busy = false;
                    let frozen = block.frozen.take();
                    block.spilled += frozen.map_or(0, |frozen| frozen.count());
                } else {
                    self.unfreeze(id);
                }
            }
        }
    }

    /// Puts back what was frozen.
    fn unfreeze_spill(&mut self, spill: &Spill) {
        self.frozen_bytes -= spill.frozen_bytes;
        self.room_events += 1;
        for bundle in &spill.bundles {
            self.found(&bundle.spilled.blocks).into_iter().for_each(|id| self.unfreeze(id));
        }
    }

    fn found(&self, blocks: &[BlockRef]) -> Vec<BlockId> {
        blocks.iter().filter_map(|block| self.directory.table.find(*block)).collect()
    }

    /// How much the sweep is pressed, in per cent: by memory and log, or, where they are relieved
    /// by spills, by the memory of bundles.
    pub(super) fn sweep_pressure(&self) -> u32 {
        let unless = |is_relieved: bool, percent: u32| {
            if is_relieved && percent < pacing::SPILLS_FAIL_PERCENT { 0 } else { percent }
        };
        let queues = unless(self.spill_pays(), self.queue_fill_percent());
        let log = unless(!self.is_cycle_for_log(), self.log_claim_percent(0));
        let bundles = if self.bundles.is_empty() { 0 } else { self.bundles_fill_percent() };
        queues.max(log).max(bundles)
    }

    /// How far the cycle is that alone can release the log; `None` if spills or a checkpoint can.
    pub(super) fn cycle_for_log(&self) -> Option<f64> {
        self.sweep_progress().filter(|_| self.is_cycle_for_log())
    }

    /// Whether only a cycle can release the log: updates hold it that are not spilled.
    fn is_cycle_for_log(&self) -> bool {
        self.is_log_held_by_queues() && !self.spills_for_log() && self.sweep.spill.is_none()
    }
}

/// Whether anything of a space may be spilled at this moment. All that was accepted for it is on
/// its queues.
fn may_spill(space: &Space) -> bool {
    space.record.space >= FIRST_USER_SPACE
        && space.record.snapshot == 0
        && space.format.routing() == Routing::Ordered
        && space.pending.len() == 0
        && space.fences.is_empty()
}
