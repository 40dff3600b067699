//! Places of images, and release of unused space.
//!
//! Invariant: nothing durable refers to freed space. So space that a logged change leaves behind is
//! free at once, and space that a carried change leaves behind is free when the checkpoint which
//! carries it is complete.

use super::Index;
use crate::broken::{self, Fault};
use crate::engine::directory::BlockId;
use crate::engine::format::record_format::Placement;
use crate::placement::Extent;

/// When the space that a change leaves behind becomes free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Release {
    /// Now: the change is in the log.
    Now,
    /// When the next checkpoint is complete, which will hold the change.
    AfterCheckpoint,
    /// Never: in replay the map of free space is not kept, and queues are empty.
    Never,
}

impl Index {
    /// Sets the place of a block.
    pub(super) fn place(&mut self, id: BlockId, placement: Placement, release: Release) {
        let before = self.directory.table.place(id, placement);
        assert!(
            before.frontier <= placement.frontier,
            "the frontier of a block never moves back: replay relies on it"
        );
        let block = self.directory.block_mut(id);
        block.spilled = 0; // A run applies the updates of spill segments too.
        let copied = std::mem::take(&mut block.copied_bytes);
        self.mark_if_spilled(id);
        self.copy_bytes -= u64::from(copied);
        if before.extent != placement.extent {
            self.leave(id, before.extent, release);
            self.enter(id, placement.extent, release);
        }
        if release == Release::Never {
            return;
        }
        let block = self.directory.block(id);
        let entry = (block.space, block.key.clone(), id);
        if block.extent().is_none() && block.waits() {
            self.unplaced.insert(entry);
        } else if block.extent().is_some() {
            self.unplaced.remove(&entry);
        }
    }

    /// Adds a block to this extent. Replay indexes places at its end.
    pub(super) fn enter(&mut self, id: BlockId, extent: Option<Extent>, release: Release) {
        if let Some(extent) = extent.filter(|_| release != Release::Never) {
            self.physical.insert((extent.device, extent.offset, id));
        }
    }

    /// Removes a block from this extent, which is released unless another block is there.
    fn leave(&mut self, id: BlockId, extent: Option<Extent>, release: Release) {
        let Some(extent) = extent else { return };
        let (device, offset) = (extent.device, extent.offset);
        self.physical.remove(&(device, offset, id));
        if !self.directory.leave_image(extent) || broken::is(Fault::FreedWhileShared) {
            self.discard(Some(extent), release);
        }
    }

    /// The blocks that are at this extent.
    pub(in crate::engine) fn blocks_at(&self, extent: Extent) -> impl Iterator<Item = BlockId> {
        let (device, offset) = (extent.device, extent.offset);
        let places = (device, offset, BlockId(0))..=(device, offset, BlockId(u32::MAX));
        self.physical.range(places).map(|place| place.2)
    }

    /// Releases an extent that no block uses.
    pub(super) fn discard(&mut self, extent: Option<Extent>, release: Release) {
        let Some(extent) = extent else { return };
        if !broken::is(Fault::StaleCache) {
            self.cache.remove(extent);
        }
        match release {
            Release::Now => self.space_map.free(extent),
            Release::AfterCheckpoint => self.outdated.push(extent),
            Release::Never => {}
        }
    }

    /// Releases the memory and the places of blocks that no space has any more.
    pub(super) fn give_back(&mut self, release: Release) {
        for (id, mut block) in self.directory.take_freed() {
            self.out_of_turn.remove(&id);
            self.copy_bytes -= u64::from(block.copied_bytes);
            self.arena.clear(&mut block.queue);
            block.frozen.iter().for_each(|frozen| self.arena.let_go(frozen));
            if !broken::is(Fault::Leak) {
                self.leave(id, block.extent(), release);
            }
            self.unplaced.remove(&(block.space, block.key, id));
        }
    }

    /// Takes the extents that the next checkpoint is to free.
    pub(in crate::engine) fn take_outdated(&mut self) -> Vec<Extent> {
        std::mem::take(&mut self.outdated)
    }

    /// Builds the index of places, which replay does not keep.
    pub(in crate::engine) fn index_places(&mut self) {
        self.physical.clear();
        for id in self.directory.table.ids() {
            if let Some(extent) = self.directory.block(id).extent() {
                self.physical.insert((extent.device, extent.offset, id));
            }
        }
    }
}
