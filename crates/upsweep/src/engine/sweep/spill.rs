//! Spills: waiting updates go to the data devices in spill segments when memory holds too few of
//! them for each block.
//!
//! Updates are spilled for memory where data is many times the memory for queues, and for the log
//! wherever that fills before memory does: as records that wait alone take a page of log each, the
//! log is full of few updates then, and a sweep for so few would move a block for each.
//!
//! Several spills may be on their way, each with blocks of its own. Steps of a spill:
//! 1. *gather*: freeze the queues of neighbouring blocks, as many as fill a spill segment, and some
//!    such spill segments, one with each pump, so that nobody waits for more than one;
//! 2. encode the spill segments, on a worker;
//! 3. write them to free space with one request, and flush;
//! 4. log what is in them and where; when that record is durable, the frozen updates are given up,
//!    for the spill segments have them.
//!
//! The next sweep of a block reads its spill segments and applies what they have before what waits
//! in memory. So memory no longer bounds how many updates a visit of a block applies; see
//! `spill_segments.rs`.
//!
//! Spilled are ordered spaces only, tables and hash tables, in key order, round and round. A block
//! is left to the sweep that is shared, has no image or a damaged one, or waits for the removal of
//! a range: what is in a spill segment is simple, and others have no word in it.

use super::Flushing;
use super::job::Job;
use super::place::write_requests;
use super::run::only;
use super::spill_job::{Encoded, NewSpillSegment, SpillJob, SpillOutput};
use crate::device::{Completion, Durability, Operation};
use crate::engine::block_format::Routing;
use crate::engine::core::{Actions, Core, IoKind, Publish, Release};
use crate::engine::directory::{BlockId, Space};
use crate::engine::format::record_format::{BlockRef, encode_spill};
use crate::engine::format::spill_segment_format::Spilled;
use crate::engine::measure::Timed;
use crate::engine::policy::{Costs, DirectorySize, Gauge, LEVELS_MAX, Round, Spilling};
use crate::engine::quarantine::FIRST_USER_SPACE;
use crate::engine::spill_segments::{self, Filter};
use crate::log::AppendError;
use crate::placement::Extent;

/// Blocks that the search looks at for one spill segment, and after which a spill takes no more
/// spill segments.
const LOOK_BLOCKS: usize = 2048;
/// Spills on their way at one time: one is written while others wait for the flush and the log.
pub(in crate::engine) const SPILLS_IN_FLIGHT_MAX: usize = 8;
/// Updates after which there may be another round when one has found nothing.
const LOOK_AGAIN_UPDATES: u64 = 256;
/// Updates after which their costs are known well enough to decide by them.
const COSTS_UPDATES_MIN: u64 = 4096;
/// Costs of an entry before that: memory and log, in bytes.
const COSTS_BEFORE: (f64, f64) = (16.0, 64.0);
/// A spill segment that is filled to less than one part in so many is not worth its page and its
/// entry, unless what is in it would hold the log.
const FILL_PART: usize = 8;

/// Number of a spill within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) struct SpillId(u64);

/// A spill on its way.
pub(in crate::engine) struct Spill {
    /// Blocks whose updates are in it, in order.
    blocks: Vec<BlockRef>,
    frozen_bytes: usize,
    /// How much blocks may grow by what is frozen.
    pub(super) growth_bytes: u64,
    /// Memory that its spill segments will take.
    spill_segments_memory_bytes: usize,
    phase: Phase,
    began_us: u64,
    /// Its spill segments, from the time at which they have places.
    spill_segments: Vec<Prepared>,
}

/// A spill segment on its way.
struct Prepared {
    spilled: Spilled,
    filter: Filter,
}

enum Phase {
    Gathering {
        spill_segments: Vec<NewSpillSegment>,
        /// Blocks that were looked at for them.
        looked: usize,
    },
    Encoding,
    Placing(Box<SpillOutput>),
    Writing {
        pending: usize,
    },
    Flushing,
    /// The spill segments are to be logged; `refused` if the log had no room for that.
    Logging {
        refused: bool,
    },
    Committing,
}

/// Where the search for something to spill is. It goes round over all blocks in key order, so that
/// spill segments of one round end where those of others do.
#[derive(Default)]
pub(super) struct Search {
    space: u32,
    /// The next key to look at.
    from: Box<[u8]>,
    /// What was accepted up to here when the round began: this round is to spill it all.
    began: Option<u64>,
    /// Fill of the log in per cent when the round began.
    log_percent_at_start: f64,
    /// Blocks that the round has passed.
    looked: u64,
    /// Bytes of memory that this round has spilled.
    spilled_bytes: u64,
    /// A part of the round has found nothing, and nothing else is on its way that would have the
    /// search go on.
    pub(super) goes_on: bool,
    /// What runs and updates were when a round had found nothing, or there was no room for a spill.
    in_vain: Option<(u64, u64)>,
}

/// Neighbouring blocks whose queues fill a spill segment.
struct Found {
    space: u32,
    blocks: Vec<BlockId>,
    bytes: usize,
    first_seq: u64,
}

impl Spill {
    /// Whether spill segments are added, which only the youngest spill has.
    pub(super) fn is_gathering(&self) -> bool {
        matches!(self.phase, Phase::Gathering { .. })
    }

    /// Whether it is written and the log has no room for its record.
    pub(super) fn waits_for_log(&self) -> bool {
        matches!(self.phase, Phase::Logging { refused: true })
    }

    /// Whether it has what waited for a block.
    pub(super) fn has(&self, block: BlockId) -> bool {
        self.blocks.binary_search_by_key(&block.0, |block| block.number).is_ok()
    }
}

impl Core {
    /// Whether updates are spilled for memory: so few would wait in it for each visit of a block
    /// that the sweep would move many times their bytes.
    #[must_use]
    pub fn spills_for_memory(&self) -> bool {
        self.spills_for_memory
    }

    /// Decides by what updates cost whether they are spilled for memory, how many spill segments
    /// are worth having, and how large blocks are made.
    pub(in crate::engine) fn weigh_costs(&mut self) {
        let costs = self.costs();
        let directory = DirectorySize {
            blocks: costs.blocks,
            image_bytes: costs.image_bytes,
            memory_bytes: self.directory.memory_bytes() as u64,
        };
        self.block_bytes = self.config.block_sizes().target(&directory, self.block_bytes);
        self.spill_segments_worth_bytes = costs.spill_segments_worth_bytes() as u64;
        self.spills_for_memory = match self.config.spilling {
            Spilling::Never => false,
            Spilling::Always => true,
            Spilling::WhenItPays => {
                let are_known = self.metrics.updates_total.get() >= COSTS_UPDATES_MIN;
                let before = self.spills_for_memory;
                if are_known { costs.spilling_pays(before) } else { before }
            }
        };
    }

    /// What updates cost at present, and how much may wait.
    #[must_use]
    pub fn costs(&self) -> Costs {
        let entries = self.entries_came() as f64;
        let are_known = self.metrics.updates_total.get() >= COSTS_UPDATES_MIN;
        let (mut entry_bytes, mut log_bytes_per_entry) = COSTS_BEFORE;
        if are_known {
            log_bytes_per_entry = self.log.metrics().log_written_bytes_total.get() as f64 / entries;
        }
        if self.arena.entries() >= COSTS_UPDATES_MIN {
            entry_bytes = self.arena.used_bytes() as f64 / self.arena.entries() as f64;
        }
        Costs {
            blocks: self.directory.len() as u64,
            image_bytes: self
                .space_map
                .used_bytes()
                .saturating_sub(self.spill_segments.disk_bytes()),
            waiting_bytes: self.waiting_limit_bytes() as u64,
            entry_bytes,
            spilled_entry_bytes: spill_segments::MEMORY_BYTES_PER_UPDATE,
            log_bytes: self.log.user_bytes().1,
            log_bytes_per_entry,
        }
    }

    /// Updates that wait in spill segments. Cost: a pass over all blocks.
    #[must_use]
    pub fn spilled_entries(&self) -> u64 {
        self.directory.table.from(0).map(|block| u64::from(block.spilled)).sum()
    }

    /// Number of spill segments, and bytes of them on the devices.
    #[must_use]
    pub fn spill_segments_size(&self) -> (usize, u64) {
        (self.spill_segments.len(), self.spill_segments.disk_bytes())
    }

    /// Memory of spill segments, those on their way included, and what it may be, in bytes.
    #[must_use]
    pub fn spill_segments_memory(&self) -> (usize, usize) {
        let spills = self.sweep.spills.values();
        let coming: usize = spills.map(|spill| spill.spill_segments_memory_bytes).sum();
        (self.spill_segments.memory_bytes() + coming, self.waiting_limit_bytes() / 2)
    }

    /// Memory for queues and for the filters of spill segments together.
    fn waiting_limit_bytes(&self) -> usize {
        self.waiting_limit_beside(self.resident_bytes())
    }

    pub(in crate::engine) fn waiting_limit_beside(&self, resident: usize) -> usize {
        let others = resident - self.spill_segments.memory_bytes();
        self.config.memory_bytes.saturating_sub(others).max(self.config.queue_bytes_min())
    }

    /// How much of the memory for spill segments is taken.
    pub(in crate::engine) fn spilled_gauge(&self) -> Gauge {
        let (used, limit) = self.spill_segments_memory();
        Gauge { used: used as u64, limit: limit as u64 }
    }

    /// How many levels of spill segments there are, of those that there may be: in hundredths, for
    /// the present round adds to a level as it proceeds.
    pub(in crate::engine) fn levels_gauge(&self) -> Gauge {
        let of_round = self.round().map_or(0.0, |round| round.done);
        let used = self.spill_segments.levels() as u64 * 100 + (of_round * 100.0) as u64;
        Gauge { used, limit: LEVELS_MAX as u64 * 100 }
    }

    /// How full the memory of spilled updates is, or the patience of queries, in per cent.
    #[must_use]
    pub fn spilled_fill_percent(&self) -> u32 {
        self.spilled_gauge().percent().max(self.levels_gauge().percent())
    }

    /// Whether a spill would find updates, and room for them.
    pub(in crate::engine) fn can_spill(&self) -> bool {
        let has_memory = || {
            let (used, limit) = self.spill_segments_memory();
            used < limit
        };
        self.config.spilling != Spilling::Never
            && self.arena.queues() > 0
            && !(self.paused || self.full || self.is_search_in_vain())
            && has_memory()
            && self.has_room_to_spill()
    }

    /// Whether a round has found nothing, or there was no room, and hardly anything has happened
    /// since.
    fn is_search_in_vain(&self) -> bool {
        self.sweep.search.in_vain.is_some_and(|(runs, accepted)| {
            self.metrics.sweep_runs_total.get() == runs
                && self.accepted < accepted + LOOK_AGAIN_UPDATES
        })
    }

    /// Moves the spills on their way on, and starts another one if it is due.
    pub(super) fn pump_spills(&mut self, actions: &mut Actions) {
        let mut gathers = false;
        let ids: Vec<SpillId> = self.sweep.spills.keys().copied().collect();
        for id in ids {
            match self.sweep.spills[&id].phase {
                Phase::Gathering { .. } => gathers = true,
                Phase::Placing(_) => self.write_spill(id, actions),
                Phase::Logging { .. } => self.log_spill(id),
                _ => {}
            }
        }
        if gathers {
            return self.gather_spill_segment(actions);
        }
        let mut figures = self.figures();
        // What spills on their way have in hand holds the log too: a round that began now would
        // find what came since, and that is little.
        let is_round_over = self.sweep.search.began.is_none();
        figures.is_log_held_by_queues &= !is_round_over || self.sweep.spills.is_empty();
        self.sweep.search.goes_on = false;
        self.sweep.spill_flow.note(self.metrics.updates_total.get(), figures.spill_pace());
        let has_place = self.sweep.spills.len() < SPILLS_IN_FLIGHT_MAX;
        if has_place && self.sweep.spill_flow.may_start(self.now_us) {
            self.start_spill();
            self.gather_spill_segment(actions);
        }
    }

    /// Whether half of the log that recovery needs, or more, is there for updates that wait in
    /// memory, or they are all that holds it. If not, checkpoints release it without them.
    pub(in crate::engine) fn is_log_held_by_queues(&self) -> bool {
        let frontier = self.sweep.frontier;
        let held = self.log.last().saturating_sub(frontier);
        let needed = self.log.last().saturating_sub(self.superblock.replay_from);
        // The last looks at all segments of the log, and is asked for last.
        let is_all = || self.checkpoint.root_begin >= frontier && !self.superblock_frees();
        held > 0 && (held >= needed / 2 || is_all())
    }

    /// Spill segments take no room from what the sweep will need.
    fn has_room_to_spill(&self) -> bool {
        let wanted = 2 * self.config.spill_bytes_max() as u64 + self.reserved_bytes(0, 0);
        self.space_map.free_bytes() >= wanted
    }

    fn start_spill(&mut self) {
        if self.sweep.search.began.is_none() {
            self.sweep.search.began = Some(self.accepted);
            self.sweep.search.log_percent_at_start = self.log_gauge().exact_percent();
        }
        self.sweep.next_spill += 1;
        let spill = Spill {
            blocks: Vec::new(),
            frozen_bytes: 0,
            growth_bytes: 0,
            spill_segments_memory_bytes: 0,
            phase: Phase::Gathering { spill_segments: Vec::new(), looked: 0 },
            began_us: self.now_us,
            spill_segments: Vec::new(),
        };
        self.sweep.spills.insert(SpillId(self.sweep.next_spill), spill);
    }

    /// Adds another spill segment to the youngest spill, and has it encoded if that is all.
    fn gather_spill_segment(&mut self, actions: &mut Actions) {
        let mut is_complete = !self.can_spill();
        let Some((id, mut spill)) = self.sweep.spills.pop_last() else { return };
        let phase = std::mem::replace(&mut spill.phase, Phase::Encoding);
        let Phase::Gathering { mut spill_segments, mut looked } = phase else { return };
        if !is_complete {
            match self.next_spill_segment(&mut looked) {
                Some(found) => spill_segments.extend(self.take_spill_segment(&found, &mut spill)),
                None => {
                    self.end_round();
                    is_complete = true;
                }
            }
            let is_filled = spill.frozen_bytes >= self.config.spill_bytes_max();
            is_complete |= is_filled || looked >= LOOK_BLOCKS;
        }
        if is_complete && spill_segments.is_empty() {
            self.sweep.search.goes_on = self.sweep.spills.is_empty() && self.can_spill();
            return;
        }
        if is_complete {
            let entries = spill_segments.iter().map(|segment| u64::from(segment.updates())).sum();
            self.sweep.spill_flow.started(self.updates_in(entries));
            let job = SpillJob { spill: id, store: self.config.store, spill_segments };
            actions.jobs.push(Job::Spill(job));
        } else {
            spill.phase = Phase::Gathering { spill_segments, looked };
        }
        self.sweep.spills.insert(id, spill);
    }

    /// Has a spill take what was found, if that is worth a spill segment.
    fn take_spill_segment(&mut self, found: &Found, spill: &mut Spill) -> Option<NewSpillSegment> {
        let (Some(first), Some(last)) = (found.blocks.first(), found.blocks.last()) else {
            return None;
        };
        let low = self.directory.block(*first).key.clone();
        let high = self.high_of(found.space, &self.directory.block(*last).key);
        let depth = self.spill_segments.depth(found.space, &low, high.as_deref());
        if depth >= LEVELS_MAX || !self.is_worth_a_spill_segment(found) {
            return None;
        }
        for id in &found.blocks {
            self.directory.block_mut(*id).pinned = true;
            self.sweep.not_out_of_turn(*id);
        }
        let frozen = self.take_queues(&found.blocks);
        let blocks = found.blocks.iter().map(|id| self.directory.table.reference(*id)).collect();
        let segment = NewSpillSegment {
            space: found.space,
            low: (*low).into(),
            high,
            first_seq: found.first_seq,
            through: self.accepted,
            blocks,
            frozen,
        };
        let bytes = segment.memory_bytes();
        self.sweep.search.spilled_bytes += bytes as u64;
        self.frozen_bytes += bytes;
        spill.frozen_bytes += bytes;
        spill.growth_bytes += segment.growth_bytes();
        spill.spill_segments_memory_bytes += segment.spill_segment_memory_bytes();
        spill.blocks.extend(&segment.blocks);
        spill.blocks.sort_unstable();
        Some(segment)
    }

    /// The present round. Blocks that are never spilled count too, so it may jump to its end.
    pub(in crate::engine) fn round(&self) -> Option<Round> {
        let Search { began, log_percent_at_start, looked, .. } = self.sweep.search;
        let done = (looked as f64 / self.directory.len().max(1) as f64).min(1.0);
        began.map(|_| Round { done, log_percent_at_start })
    }

    /// The next round begins at the beginning; not at once if this one has found nothing.
    fn end_round(&mut self) {
        let round = std::mem::take(&mut self.sweep.search);
        if round.spilled_bytes == 0 {
            self.search_in_vain();
        }
    }

    /// The search is worth another try when runs or updates are beyond what they are now.
    fn search_in_vain(&mut self) {
        self.sweep.search.in_vain = Some((self.metrics.sweep_runs_total.get(), self.accepted));
    }

    /// Goes on with the round to the next blocks that fill a spill segment; `None` when it is
    /// complete.
    fn next_spill_segment(&mut self, looked: &mut usize) -> Option<Found> {
        let spaces = self.directory.spaces_of(0).filter(|space| may_spill(space));
        let mut search = std::mem::take(&mut self.sweep.search);
        let space = spaces.map(|space| space.record.space).find(|space| *space >= search.space);
        let found = space.map(|space| {
            if space > search.space {
                (search.space, search.from) = (space, Box::default());
            }
            let mut found = Found { space, blocks: Vec::new(), bytes: 0, first_seq: u64::MAX };
            self.fill_spill_segment(&mut found, &mut search, looked);
            found
        });
        self.sweep.search = search;
        found
    }

    /// Fills a spill segment, and ends it where older ones end if it is about as long: spill
    /// segments that begin anywhere would take more levels for as many updates.
    fn fill_spill_segment(&self, found: &mut Found, search: &mut Search, looked: &mut usize) {
        let space = search.space;
        let exact = self.directory.exact(space, &search.from);
        let mut next = exact.or_else(|| self.directory.above(space, &search.from));
        let looked_max = *looked + LOOK_BLOCKS;
        let wanted = self.config.spill_segment_bytes as usize;
        let mut end: Option<Box<[u8]>> = None;
        while let Some(id) = next {
            let key = &self.directory.block(id).key;
            if end.is_none() && found.bytes >= wanted / 2 {
                end = self.spill_segments.end_above(space, key).map(Box::from);
            }
            let is_at_end = end.as_ref().is_some_and(|end| **key >= **end);
            let filled = if end.is_some() { wanted / 4 * 5 } else { wanted };
            if is_at_end || found.bytes >= filled || *looked >= looked_max {
                break;
            }
            *looked += 1;
            search.looked += 1;
            let block = self.directory.block(id);
            next = self.directory.above(space, &block.key);
            if self.may_freeze(space, id) {
                found.first_seq = found.first_seq.min(block.queue.first_seq());
                found.bytes += block.queue.bytes() as usize + block.key.len();
                found.blocks.push(id);
            } else if !found.blocks.is_empty() && (block.pinned || block.waits()) {
                break; // A spill segment has all that waits for its keys.
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

    /// Whether something waits for a block that may be spilled. If it is swept out of turn anyway,
    /// a spill segment would be written, and read again, for nothing.
    fn may_freeze(&self, space: u32, id: BlockId) -> bool {
        let block = self.directory.block(id);
        let placement = block.placement();
        let is_sound = placement.extent.is_some() && placement.frontier == placement.image_seq;
        block.waits()
            && !block.pinned
            && is_sound
            && !self.config.is_oversized(&block.queue)
            && !block.queue.has_ranges()
            && !self.is_shared(space, id)
    }

    /// Whether enough is in it, or what is old.
    fn is_worth_a_spill_segment(&self, found: &Found) -> bool {
        let is_filled = found.bytes * FILL_PART >= self.config.spill_segment_bytes as usize;
        let is_old = self.sweep.search.began.is_some_and(|began| found.first_seq <= began);
        is_filled || is_old
    }

    pub(super) fn spill_encoded(&mut self, output: SpillOutput) {
        let id = output.spill;
        self.spill_mut(id).phase = Phase::Placing(Box::new(output));
    }

    /// Writes what is encoded, if there is room.
    fn write_spill(&mut self, id: SpillId, actions: &mut Actions) {
        let phase = std::mem::replace(&mut self.spill_mut(id).phase, Phase::Encoding);
        let Phase::Placing(output) = phase else { return };
        let SpillOutput { spill_segments, buffer, .. } = *output;
        let lengths: Vec<u32> = spill_segments.iter().map(|segment| segment.bytes).collect();
        let Some(extents) = self.space_map.allocate_run(&lengths) else {
            return self.give_spill_up(id);
        };
        let writes = write_requests(&extents, buffer);
        let place = |(segment, extent): (Encoded, &Extent)| {
            let Encoded { segment, filter, .. } = segment;
            Prepared { spilled: segment.placed(*extent), filter }
        };
        let spill = self.spill_mut(id);
        spill.spill_segments = spill_segments.into_iter().zip(&extents).map(place).collect();
        spill.phase = Phase::Writing { pending: writes.len() };
        let owner = only(spill.spill_segments.iter().map(|segment| segment.spilled.record.space));
        for (extent, buffer) in writes {
            self.metrics.spill_written_bytes_total.add(buffer.len() as u64);
            let (offset, durability) = (extent.offset, Durability::Cached);
            let operation = Operation::Write { offset, buffer, durability };
            let kind = IoKind::SpillWrite(id);
            actions.requests.push(self.request(kind, owner, extent.device, operation));
        }
    }

    pub(in crate::engine) fn spill_write_done(&mut self, id: SpillId, completion: &Completion) {
        if completion.result.is_err() {
            self.fail_write(completion, 0);
            return;
        }
        let spill = self.spill_mut(id);
        let Phase::Writing { pending } = &mut spill.phase else { return };
        *pending -= 1;
        if *pending == 0 {
            spill.phase = Phase::Flushing;
            self.sweep.flush.waiting.push(Flushing::Spill(id));
        }
    }

    fn spill_mut(&mut self, id: SpillId) -> &mut Spill {
        self.sweep.spills.get_mut(&id).expect("a spill lives until it is published")
    }

    pub(super) fn spill_flushed(&mut self, id: SpillId) {
        self.spill_mut(id).phase = Phase::Logging { refused: false };
        self.log_spill(id);
    }

    /// Logs the spill. If the log has no room, the spill waits here for the next checkpoint to
    /// carry it (see [`Core::carry_changes`]), or for room.
    fn log_spill(&mut self, id: SpillId) {
        if self.checkpoint.carries_changes() {
            return;
        }
        let spill = &self.sweep.spills[&id];
        let mut payload = Vec::new();
        encode_spill(spill.spill_segments.iter().map(|segment| &segment.spilled), &mut payload);
        match self.append_change(&payload, Publish::Spill(id)) {
            Ok(_) => self.spill_mut(id).phase = Phase::Committing,
            Err(AppendError::Full | AppendError::TooLong { .. }) => {
                self.spill_mut(id).phase = Phase::Logging { refused: true };
            }
            // The log's pipeline is full for a moment, or a failed write has closed the store.
            Err(_) => {}
        }
    }

    /// The record of the spill is durable, or a checkpoint carries it.
    pub(in crate::engine) fn publish_spill(&mut self, id: SpillId, seq: u64, release: Release) {
        let spill = self.sweep.spills.remove(&id).expect("a spill lives until it is published");
        self.frozen_bytes -= spill.frozen_bytes;
        self.room_events += 1;
        self.metrics.spills_total.add(1);
        self.note_ended(Timed::Spill, spill.began_us);
        for Prepared { spilled, filter } in spill.spill_segments {
            let is_added = self.add_spill_segment(seq, &spilled, Some(filter), release);
            if is_added {
                self.metrics.spilled_entries_total.add(u64::from(spilled.record.updates));
            }
            for id in self.found(&spilled.blocks) {
                if !is_added {
                    self.unfreeze(id);
                    continue;
                }
                let block = self.directory.block_mut(id);
                block.pinned = false;
                if let Some(frozen) = block.frozen.take() {
                    block.spilled += frozen.count();
                    self.arena.let_go(&frozen);
                }
            }
        }
    }

    /// Puts back what was frozen: there is no room for the spill segments.
    fn give_spill_up(&mut self, id: SpillId) {
        let spill = self.sweep.spills.remove(&id).expect("a spill lives until it is published");
        self.search_in_vain();
        self.frozen_bytes -= spill.frozen_bytes;
        self.room_events += 1;
        self.found(&spill.blocks).into_iter().for_each(|id| self.unfreeze(id));
    }

    fn found(&self, blocks: &[BlockRef]) -> Vec<BlockId> {
        blocks.iter().filter_map(|block| self.directory.table.find(*block)).collect()
    }
}

/// Whether anything of a space may be spilled at this moment. All that was accepted for it is on
/// its queues.
fn may_spill(space: &Space) -> bool {
    space.record.space >= FIRST_USER_SPACE
        && space.format.routing() == Routing::Ordered
        && space.pending.len() == 0
        && space.fences.is_empty()
}
