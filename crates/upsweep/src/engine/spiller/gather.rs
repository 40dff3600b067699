//! The search for updates to spill, in key order, cyclically over all blocks.

use super::{Spill, Spiller};
use crate::engine::base::Base;
use crate::engine::block_format::Routing;
use crate::engine::catalog::{FIRST_USER_SPACE, Space};
use crate::engine::directory::BlockId;
use crate::engine::ids::{SnapshotId, SpaceId};
use crate::engine::jobs::NewSpillSegment;
use crate::engine::policy::{self, LEVELS_MAX};
use crate::log::Seq;

/// Blocks that the search examines for one spill segment, and after which a spill takes no more
/// spill segments.
pub(super) const LOOK_BLOCKS: usize = 2048;

/// The position of the search for updates to spill. It cycles over all blocks in key order, so that
/// the spill segments of one round end where those of others do.
#[derive(Default)]
pub(super) struct Search {
    space: SpaceId,
    /// The next key to examine.
    from: Box<[u8]>,
    /// The last update accepted when the round began: this round is to spill everything up to it.
    pub(super) began: Option<Seq>,
    /// Fill of the log in per cent when the round began.
    pub(super) log_percent_at_start: f64,
    /// Blocks that the round has examined.
    pub(super) looked: u64,
    /// Bytes of memory that this round has spilled.
    spilled_bytes: u64,
    /// A part of the round has found nothing, and nothing else is in progress that would continue
    /// the search.
    pub(super) goes_on: bool,
    /// Counts of runs and updates when a round found nothing, or there was no room for a spill.
    pub(super) in_vain: Option<(u64, Seq)>,
}

/// Neighbouring blocks whose queues fill a spill segment.
pub(super) struct Candidate {
    space: SpaceId,
    blocks: Vec<BlockId>,
    bytes: usize,
    first_seq: Seq,
}

impl Spiller {
    /// Adds what was found to a spill, if it is worth a spill segment.
    pub(super) fn take_spill_segment(
        &mut self,
        base: &mut Base,
        found: &Candidate,
        spill: &mut Spill,
    ) -> Option<NewSpillSegment> {
        let (Some(first), Some(last)) = (found.blocks.first(), found.blocks.last()) else {
            return None;
        };
        let low = base.index.directory().block(*first).key.clone();
        let high = base.index.high_of(found.space, &base.index.directory().block(*last).key);
        let depth = base.index.spill_segments.depth(found.space, &low, high.as_deref());
        if depth >= LEVELS_MAX || !self.is_worth_a_spill_segment(base, found) {
            return None;
        }
        for id in &found.blocks {
            base.index.pin(*id);
        }
        let frozen = base.index.freeze(&found.blocks);
        let blocks =
            found.blocks.iter().map(|id| base.index.directory().table.reference(*id)).collect();
        let segment = NewSpillSegment {
            space: found.space,
            low: (*low).into(),
            high,
            first_seq: found.first_seq,
            through: base.index.accepted(),
            blocks,
            frozen,
        };
        debug_assert!(segment.first_seq <= segment.through, "its updates were accepted");
        debug_assert_eq!(segment.blocks.len(), segment.frozen.len(), "each block has its updates");
        let bytes = segment.memory_bytes();
        self.search.spilled_bytes += bytes as u64;
        spill.frozen_bytes += bytes;
        spill.growth_bytes += segment.growth_bytes();
        spill.spill_segments_memory_bytes += segment.spill_segment_memory_bytes();
        spill.blocks.extend(&segment.blocks);
        spill.blocks.sort_unstable();
        Some(segment)
    }

    /// The next round starts from the first key; not at once if this one has found nothing.
    pub(super) fn end_round(&mut self, base: &Base) {
        let round = std::mem::take(&mut self.search);
        if round.spilled_bytes == 0 {
            self.search_in_vain(base);
        }
    }

    /// The search is worth another try when runs or updates have advanced from here.
    pub(super) fn search_in_vain(&mut self, base: &Base) {
        self.search.in_vain = Some((base.metrics.sweep_runs_total.get(), base.index.accepted()));
    }

    /// Continues the round to the next blocks that fill a spill segment; `None` when it is
    /// complete.
    pub(super) fn next_spill_segment(
        &mut self,
        base: &Base,
        looked: &mut usize,
    ) -> Option<Candidate> {
        let spaces =
            base.index.directory().spaces_of(SnapshotId::NONE).filter(|space| may_spill(space));
        let mut search = std::mem::take(&mut self.search);
        let space = spaces.map(|space| space.record.space).find(|space| *space >= search.space);
        let found = space.map(|space| {
            if space > search.space {
                (search.space, search.from) = (space, Box::default());
            }
            let mut found = Candidate { space, blocks: Vec::new(), bytes: 0, first_seq: Seq::MAX };
            self.fill_spill_segment(base, &mut found, &mut search, looked);
            found
        });
        self.search = search;
        found
    }

    /// Fills a spill segment, and ends it where older ones end if it is about as long: arbitrary
    /// boundaries would need more levels for as many updates.
    fn fill_spill_segment(
        &self,
        base: &Base,
        found: &mut Candidate,
        search: &mut Search,
        looked: &mut usize,
    ) {
        let space = search.space;
        let exact = base.index.directory().exact(space, &search.from);
        let mut next = exact.or_else(|| base.index.directory().above(space, &search.from));
        let looked_max = *looked + LOOK_BLOCKS;
        let wanted = base.config.spill_segment_bytes;
        let mut end: Option<Box<[u8]>> = None;
        while let Some(id) = next {
            let key = &base.index.directory().block(id).key;
            if end.is_none() && policy::may_end_early(found.bytes, wanted) {
                end = base.index.spill_segments.end_above(space, key).map(Box::from);
            }
            let is_at_end = end.as_ref().is_some_and(|end| **key >= **end);
            let is_filled = policy::is_filled(found.bytes, wanted, end.is_some());
            if is_at_end || is_filled || *looked >= looked_max {
                break;
            }
            *looked += 1;
            search.looked += 1;
            let block = base.index.directory().block(id);
            next = base.index.directory().above(space, &block.key);
            if self.may_freeze(base, space, id) {
                found.first_seq = found.first_seq.min(block.queue.first_seq());
                found.bytes += block.queue.bytes() as usize + block.key.len();
                found.blocks.push(id);
            } else if !found.blocks.is_empty() && (block.pinned || block.waits()) {
                break; // A spill segment has all that waits for its keys.
            }
        }
        match next {
            Some(id) => search.from = (*base.index.directory().block(id).key).into(),
            None => {
                search.space = search.space.next();
                search.from = Box::default();
            }
        }
    }

    /// Whether a block has waiting updates that may be spilled. If it will be swept out of turn
    /// anyway, writing and reading a spill segment would be wasted.
    fn may_freeze(&self, base: &Base, space: SpaceId, id: BlockId) -> bool {
        let block = base.index.directory().block(id);
        let placement = block.placement();
        let is_sound = placement.extent.is_some() && placement.frontier == placement.image_seq;
        block.waits()
            && !block.pinned
            && is_sound
            && !base.config.is_oversized(block.queue.growth_bytes())
            && !block.queue.has_ranges()
            && !base.index.is_shared(space, id)
    }

    /// Whether it holds enough, or old updates.
    fn is_worth_a_spill_segment(&self, base: &Base, found: &Candidate) -> bool {
        let is_old = self.search.began.is_some_and(|began| found.first_seq <= began);
        policy::is_worth_a_spill_segment(found.bytes, base.config.spill_segment_bytes, is_old)
    }
}

/// Whether a space may be spilled at present: everything that was accepted for it is on its queues.
fn may_spill(space: &Space) -> bool {
    space.record.space >= FIRST_USER_SPACE
        && space.format.routing() == Routing::Ordered
        && space.pending.len() == 0
        && space.fences.is_empty()
}
