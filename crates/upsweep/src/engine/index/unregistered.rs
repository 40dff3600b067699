//! Spaces whose block format is not registered in this process.
//!
//! Which block covers a key of such a space is unknown. So a store in which updates wait for one
//! opens for reading and for upkeep only; then they keep the log, as those of unregistered
//! modifiers do, and each waits at a block that is held. If the log since the last checkpoint may
//! have made blocks of such a space, the numbers of blocks cannot be determined: the store does not
//! open. Closing a store leaves a checkpoint.
//!
//! Invariant: all blocks of such spaces are pinned from the open on, so that no run, spill or
//! compaction takes one.

use super::Index;
use crate::engine::catalog::Space;
use crate::engine::directory::BlockId;
use crate::engine::ids::SpaceId;
use crate::error::Error;
use crate::log::Seq;

impl Index {
    /// Pins all blocks of spaces whose formats are not registered.
    pub(in crate::engine) fn pin_unregistered(&mut self) {
        let all = self.directory.spaces();
        let unregistered: Vec<&Space> = all.filter(|space| !space.is_registered()).collect();
        let has_any = !unregistered.is_empty();
        let blocks = unregistered.into_iter().flat_map(|space| self.directory.blocks_of(space));
        let blocks: Vec<BlockId> = blocks.collect();
        self.has_unregistered = has_any;
        blocks.into_iter().for_each(|id| self.directory.block_mut(id).pinned = true);
    }

    /// Whether there are spaces whose block format is not registered.
    pub(in crate::engine) fn has_unregistered(&self) -> bool {
        self.has_unregistered
    }

    /// The error that names a format that is not registered; `None` if there is no such space.
    pub(in crate::engine) fn missing_format(&self) -> Option<Error> {
        if !self.has_unregistered {
            return None;
        }
        self.directory.spaces().find_map(|space| space.check_format().err())
    }

    /// The error that names the format of the spaces that have what was accepted for a space at
    /// this sequence, if it is not registered.
    pub(in crate::engine) fn missing_format_of(&self, space: SpaceId, seq: Seq) -> Option<Error> {
        let holders = self.directory.clones.holders(space, seq);
        let mut found = holders.iter().filter_map(|space| self.directory.space(*space));
        found.find_map(|space| space.check_format().err())
    }
}
