//! The space through which a run sees a block: one of those that have it. Its format, companion and
//! visitor are used, and the block is rebuilt for it alone if it splits.

use super::Pipeline;
use crate::engine::base::Base;
use crate::engine::io::RunId;

impl Pipeline {
    /// Ensures that every block is still seen through a space that has it, because others may have
    /// got a separate block or been dropped; returns whether any had to be changed.
    pub(super) fn renew_owners(&mut self, base: &mut Base, id: RunId) -> bool {
        let mut run = self.runs.remove(&id).expect("a run lives until it is published");
        let mut changed = false;
        for block in run.blocks.iter_mut().filter(|block| !block.is_gone) {
            if base.index.has_block(block.owner, block.reference()) {
                continue;
            }
            changed = true;
            let found = base.index.directory().table.find(block.reference());
            match found.and_then(|id| base.index.directory().owner(id)) {
                Some((space, _)) => block.owner = space.record.space,
                None => {
                    block.is_gone = true;
                    found.into_iter().for_each(|id| base.index.applied(id));
                }
            }
        }
        run.has_stale_values |= changed;
        self.runs.insert(id, run);
        changed
    }
}
