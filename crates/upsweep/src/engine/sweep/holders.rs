//! Holders of the log: where the oldest updates of a few blocks keep the log from being released,
//! and no spill can take them, these blocks are swept out of turn. A cycle would reach them too,
//! but callers that wait for the log would wait for half a cycle, and the log would be full of the
//! cycle's own records by then.
//!
//! Such blocks are those at the maximum number of levels of spill segments while the sweep is
//! elsewhere; all waiting blocks when the memory of spill segments is full; arrays, which are not
//! spilled.

use super::Sweep;
use crate::engine::base::Base;
use crate::engine::directory::BlockId;
use crate::engine::policy::{self, Figures, HOLDERS_MAX};
use crate::log::Seq;

/// Blocks that are examined in one step, in less than a millisecond.
const LOOK_BLOCKS: u32 = 2048;

/// The search for holders, which goes over the block table.
#[derive(Default)]
pub(super) struct Holders {
    /// The next number to examine.
    next: u32,
    /// The frontier at the end of the last search: all holders were found.
    searched_at: Option<Seq>,
}

impl Sweep {
    /// Continues the search, while a caller waits for what it may release.
    pub(super) fn look_for_holders(&mut self, base: &mut Base, figures: &Figures) {
        let frontier = base.index.frontier();
        if !figures.is_cycle_waited_for_log() || self.holders.searched_at == Some(frontier) {
            return;
        }
        let below =
            base.index.arena().below_which_wait(HOLDERS_MAX).min(base.index.accepted().next());
        // If nothing waits, the frontier is beyond the last update.
        let in_all = base.index.accepted().checked_since(frontier).unwrap_or(0);
        let held = below.checked_since(frontier).unwrap_or(0);
        if !policy::are_worth_a_visit(held, in_all) {
            return;
        }
        let start = self.holders.next;
        let end = base.index.directory().table.numbers().min(start + LOOK_BLOCKS);
        for id in (start..end).map(BlockId) {
            let block = base.index.directory().block(id);
            if !block.pinned && !block.queue.is_empty() && block.queue.first_seq() < below {
                base.index.sweep_out_of_turn(id);
            }
        }
        let is_at_end = end == base.index.directory().table.numbers();
        self.holders = Holders {
            next: if is_at_end { 0 } else { end },
            searched_at: is_at_end.then_some(frontier),
        };
    }
}
