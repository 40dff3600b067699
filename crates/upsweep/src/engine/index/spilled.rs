//! Which spill segments concern which blocks.
//!
//! A block has the number of its updates in spill segments, but not which segments: those are found
//! by the positions that they cover and by the space, or a space that it was cloned from. (For
//! spill segments and their levels see `spill_segments.rs`.)

use std::sync::Arc;

use super::{Index, Release};
use crate::broken::{self, Fault};
use crate::engine::directory::BlockId;
use crate::engine::format::spill_segment_format::{SpillSegmentRecord, Spilled};
use crate::engine::ids::SpaceId;
use crate::engine::spill_segments::{Filter, SpillSegment};
use crate::engine::tree::FoundItem;
use crate::log::Seq;

impl Index {
    /// Adds a spill segment, if its updates are in no other space's queue: each block belongs to
    /// the space alone. Returns whether it was added.
    pub(in crate::engine) fn add_spill_segment(
        &mut self,
        seq: Seq,
        spilled: &Spilled,
        filter: Option<Filter>,
        release: Release,
    ) -> bool {
        let record = &spilled.record;
        debug_assert!(record.first_seq <= record.through, "its updates lie between the two");
        let space = self.directory.space(record.space);
        let is_alone = space.is_some_and(|space| {
            spilled.blocks.iter().all(|block| {
                let Some(id) = self.directory.table.find(*block) else { return false };
                let found = self.directory.find(space, &self.directory.block(id).key);
                found == Some(FoundItem { item: id.0, shared: false })
            })
        });
        if is_alone {
            self.spill_segments.insert(SpillSegment { record: record.clone(), seq, filter });
        } else {
            self.discard(Some(record.extent), release);
        }
        is_alone
    }

    /// Assumes an update for a block in spill segments, if one reaches beyond the block's frontier:
    /// the sweeps during replay run before all updates of spill segments are replayed.
    pub(super) fn mark_if_spilled(&mut self, id: BlockId) {
        if !self.replaying || self.spill_segments.is_empty() {
            return;
        }
        let Some((space, _)) = self.directory.owner(id) else { return };
        let space = space.record.space;
        if !self.spill_segments_beyond(space, id).is_empty() {
            self.directory.block_mut(id).spilled = 1;
        }
    }

    /// The spill segments that have updates of a block which is seen through `space`.
    pub(in crate::engine) fn spill_segments_of(
        &self,
        space: SpaceId,
        id: BlockId,
    ) -> Vec<Arc<SpillSegment>> {
        if self.directory.block(id).spilled == 0 {
            return Vec::new();
        }
        self.spill_segments_beyond(space, id)
    }

    /// The spill segments that cover positions of a block and reach beyond its frontier.
    pub(in crate::engine) fn spill_segments_beyond(
        &self,
        space: SpaceId,
        id: BlockId,
    ) -> Vec<Arc<SpillSegment>> {
        let block = self.directory.block(id);
        let (low, frontier) = (&block.key, block.placement().frontier);
        let (sources, high) = (self.directory.clones.sources(space), self.high_of(space, low));
        let mut found = self.spill_segments.concerning(&sources, low, high.as_deref());
        found.retain(|segment| segment.record.through > frontier);
        found
    }

    /// Whether a block may have updates after this sequence: in its image, in its queue, or in
    /// spill segments.
    pub(in crate::engine) fn is_updated_after(
        &self,
        space: SpaceId,
        id: BlockId,
        after: Seq,
    ) -> bool {
        let block = self.directory.block(id);
        let queued = || self.arena.snapshot(&block.queue, &block.key);
        block.placement().image_seq > after
            || block.frozen.as_ref().is_some_and(|frozen| frozen.unpack().has_after(after))
            || block.waits() && queued().unpack().has_after(after)
            || self.spill_segments_of(space, id).iter().any(|of| of.record.through > after)
    }

    /// Drops a spill segment if no block has any of its updates. Its place is free when the next
    /// checkpoint, which will not list it, is complete. Returns whether it was dropped.
    pub(in crate::engine) fn drop_unless_needed(&mut self, segment: &SpillSegment) -> bool {
        let record = &segment.record;
        if !self.spill_segments.has(record) {
            return false; // A run that had the last updates of it was earlier.
        }
        let holders = self.directory.clones.holders(record.space, segment.seq).into_iter();
        let has_block_left = |space: SpaceId| {
            let mut covering = self.directory.covering(space, &record.low);
            while let Some(id) = covering {
                let block = self.directory.block(id);
                if record.high.as_ref().is_some_and(|high| **high <= *block.key) {
                    return false;
                }
                if block.spilled > 0 && block.placement().frontier < record.through {
                    return true;
                }
                covering = self.directory.above(space, &block.key);
            }
            false
        };
        let is_needed =
            holders.filter(|space| self.directory.space(*space).is_some()).any(has_block_left);
        if !is_needed {
            self.spill_segments.remove(record);
            self.cache.remove(record.extent);
            if broken::is(Fault::EarlyReuseOfSpill) {
                self.space_map.free(record.extent);
            } else {
                self.outdated.push(record.extent);
            }
        }
        !is_needed
    }

    /// Whether a spill segment has what was accepted for a key up to this sequence.
    pub(in crate::engine) fn is_in_spill_segment(
        &self,
        space: SpaceId,
        seq: Seq,
        key: &[u8],
    ) -> bool {
        if self.spill_segments.is_empty() || broken::is(Fault::ReplayIgnoresSpills) {
            return false;
        }
        let Some(found) = self.directory.space(space) else { return false };
        self.spill_segments.hold(
            &self.directory.clones.sources(space),
            &found.format.position(key),
            seq,
        )
    }

    /// A spill segment through this sequence has an update for a block; returns whether it is not
    /// inside the image of the block.
    pub(in crate::engine) fn count_spilled(&mut self, id: BlockId, through: Seq) -> bool {
        let block = self.directory.block_mut(id);
        let waits = block.placement().frontier < through;
        block.spilled += u32::from(waits);
        waits
    }

    /// Assumes an update in a spill segment for every block that covers its keys.
    pub(in crate::engine) fn mark_spilled(&mut self, record: &SpillSegmentRecord, seq: Seq) {
        for space in self.directory.clones.holders(record.space, seq) {
            let mut covering = self.directory.covering(space, &record.low);
            while let Some(id) = covering {
                let key = self.directory.block(id).key.clone();
                if record.high.as_ref().is_some_and(|high| **high <= *key) {
                    break;
                }
                let block = self.directory.block_mut(id);
                if block.placement().frontier < record.through {
                    block.spilled = block.spilled.max(1);
                }
                covering = self.directory.above(space, &key);
            }
        }
    }
}
