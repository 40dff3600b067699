//! Holders of the log: where the oldest updates of a few blocks keep the log from being released,
//! and no spill can take them, these blocks are swept out of turn. A cycle would come to them too,
//! but callers that wait for the log would wait for half a cycle, and the log would be full of the
//! cycle's own records by then.
//!
//! Such blocks are those at which as many spill segments lie as may, while the sweep is elsewhere;
//! all that wait when the memory of spill segments is full; arrays, which are not spilled.

use crate::engine::core::Core;
use crate::engine::directory::BlockId;
use crate::engine::policy::{self, Figures, HOLDERS_MAX};

/// Blocks that are looked at in one step, in less than a millisecond.
const LOOK_BLOCKS: u32 = 2048;

/// The search for holders, which goes over the table of blocks.
#[derive(Default)]
pub(super) struct Holders {
    /// The next number to look at.
    next: u32,
    /// The frontier at the end of the last search: it has found all there was.
    searched_at: Option<u64>,
}

impl Core {
    /// Goes on with the search, while somebody waits for what it may release.
    pub(super) fn look_for_holders(&mut self, figures: &Figures) {
        let frontier = self.sweep.frontier;
        if !figures.is_cycle_waited_for_log() || self.sweep.holders.searched_at == Some(frontier) {
            return;
        }
        let below = self.arena.below_which_wait(HOLDERS_MAX).min(self.accepted + 1);
        // Where nothing waits the frontier is beyond the last update.
        let in_all = self.accepted.saturating_sub(frontier);
        let held = below.saturating_sub(frontier);
        if !policy::are_worth_a_visit(held, in_all) {
            return;
        }
        let start = self.sweep.holders.next;
        let end = self.directory.table.numbers().min(start + LOOK_BLOCKS);
        for id in (start..end).map(BlockId) {
            let block = self.directory.block(id);
            if !block.pinned && !block.queue.is_empty() && block.queue.first_seq() < below {
                self.sweep.sweep_out_of_turn(id);
            }
        }
        let is_at_end = end == self.directory.table.numbers();
        self.sweep.holders = Holders {
            next: if is_at_end { 0 } else { end },
            searched_at: is_at_end.then_some(frontier),
        };
    }
}
