//! The space through which a run sees a block: one of those that have it, whose format, companion
//! and visitor count, and for which alone the block is rebuilt if it splits.

use super::RunId;
use super::run::RunBlock;
use crate::engine::core::Core;
use crate::engine::directory::BlockId;

impl Core {
    /// Whether a space has accepted updates for the block that are not on its queue yet. Shared or
    /// not: what others have of it may be given back before those updates come.
    pub(super) fn expects_updates(&self, id: BlockId) -> bool {
        let key = &self.directory.block(id).key;
        // What belongs to a snapshot takes no updates.
        self.directory.spaces_of(0).any(|space| {
            let number = space.record.space;
            let covers = |position: &[u8]| self.directory.covering(number, position) == Some(id);
            space.pending.first_from(key).is_some_and(covers)
                || !space.fences.is_empty() && self.directory.exact(number, key) == Some(id)
        })
    }

    /// Whether others have a block of the space too, or the space has another one by now.
    pub(super) fn is_shared(&self, space: u32, id: BlockId) -> bool {
        let Some(found) = self.directory.space(space) else { return false };
        let key = &self.directory.block(id).key;
        self.directory.find(found, key).is_none_or(|found| found.shared || found.item != id.0)
    }

    /// Looks after whether every block is still seen through a space that has it, for others may
    /// have got a block of their own or gone; returns whether any had to be changed.
    pub(super) fn renew_owners(&mut self, id: RunId) -> bool {
        let mut run = self.sweep.runs.remove(&id).expect("a run lives until it is published");
        let mut changed = false;
        for block in run.blocks.iter_mut().filter(|block| !block.is_gone) {
            if self.has_block(block.owner, block) {
                continue;
            }
            changed = true;
            let found = self.directory.table.find(block.reference());
            match found.and_then(|id| self.directory.owner(id)) {
                Some((space, _)) => block.owner = space.record.space,
                None => {
                    block.is_gone = true;
                    found.into_iter().for_each(|id| self.applied(id));
                }
            }
        }
        run.has_stale_values |= changed;
        self.sweep.runs.insert(id, run);
        changed
    }

    fn has_block(&self, space: u32, block: &RunBlock) -> bool {
        let found = self.directory.table.find(block.reference());
        found.is_some_and(|id| {
            let key = &self.directory.block(id).key;
            self.directory.exact(space, key) == Some(id)
        })
    }
}
