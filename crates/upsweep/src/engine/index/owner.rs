//! The space through which a run sees a block: one of those that have it. Its format, companion and
//! visitor are used, and the block is rebuilt for it alone if it splits.

use super::Index;
use crate::engine::directory::BlockId;
use crate::engine::format::record_format::BlockRef;
use crate::engine::ids::{SnapshotId, SpaceId};

impl Index {
    /// Whether a space has accepted updates for the block that are not on its queue yet. This
    /// matters for unshared blocks too: other spaces may release them before those updates arrive.
    pub(in crate::engine) fn expects_updates(&self, id: BlockId) -> bool {
        let key = &self.directory.block(id).key;
        // A space of a snapshot takes no updates.
        self.directory.spaces_of(SnapshotId::NONE).any(|space| {
            let number = space.record.space;
            let covers = |position: &[u8]| self.directory.covering(number, position) == Some(id);
            space.pending.first_from(key).is_some_and(covers)
                || !space.fences.is_empty() && self.directory.exact(number, key) == Some(id)
        })
    }

    /// Whether other spaces share the block, or `space` has another one by now.
    pub(in crate::engine) fn is_shared(&self, space: SpaceId, id: BlockId) -> bool {
        let Some(found) = self.directory.space(space) else { return false };
        let key = &self.directory.block(id).key;
        self.directory.find(found, key).is_none_or(|found| found.shared || found.item != id.0)
    }

    /// Whether a space has exactly this block.
    pub(in crate::engine) fn has_block(&self, space: SpaceId, block: BlockRef) -> bool {
        let found = self.directory.table.find(block);
        found.is_some_and(|id| {
            let key = &self.directory.block(id).key;
            self.directory.exact(space, key) == Some(id)
        })
    }
}
