//! The figures that all decisions follow from, collected from the parts.

use super::Core;
use crate::engine::policy::{self, Figures, Gauge};

impl Core {
    /// The input of all policy decisions.
    pub(super) fn figures(&self) -> Figures {
        let Self { base, spiller, growth, sweep, .. } = self;
        let spilled = spiller.spilled_gauge(base);
        Figures {
            queues: base.queues_gauge(base.resident_bytes()),
            log: base.log_gauge(),
            spilled,
            spilled_worth: Gauge { limit: spiller.worth_bytes(), ..spilled },
            levels: spiller.levels_gauge(base),
            spills_for_memory: spiller.is_for_memory(),
            spill_percent: base.config.spill_fill_percent,
            can_spill: spiller.can_spill(base, growth),
            is_spilling: !spiller.is_empty(),
            is_log_held_by_queues: self.is_log_held_by_queues(),
            can_grow: growth.grows_for_room(base),
            progress: sweep.progress(),
            log_at_start: sweep.log_at_start(),
            round: spiller.round(base),
            shortage: base.waiters.shortage(),
        }
    }

    /// Whether at least half of the log that recovery needs is there for updates that wait in
    /// memory, or only these hold it. If not, checkpoints release it without them.
    fn is_log_held_by_queues(&self) -> bool {
        let Self { base, checkpointer, .. } = self;
        let frontier = base.index.frontier();
        let held = base.journal.last().checked_since(frontier).unwrap_or(0);
        let needed =
            base.journal.last().checked_since(checkpointer.superblock().replay_from).unwrap_or(0);
        // The last condition examines all segments of the log, so it is evaluated last.
        let is_all =
            || checkpointer.root_begin() >= frontier && !checkpointer.superblock_frees(base);
        policy::is_log_held_by_queues(held, needed, is_all)
    }

    /// Decides by the current costs of updates how large blocks are made and what is spilled.
    pub(super) fn weigh_costs(&mut self) {
        let costs = self.base.costs();
        self.base.choose_block_bytes(&costs);
        self.spiller.weigh(&self.base, &costs);
    }

    /// Whether nothing waits from which a sweep could make room.
    pub(super) fn is_all_swept(&self) -> bool {
        let index = &self.base.index;
        index.arena().queues() == 0
            && self.pipeline.is_empty()
            && self.spiller.is_empty()
            && index.spill_segments.is_empty()
    }

    /// Whether the last update lacked room that neither growth nor a sweep will make.
    pub(super) fn is_out_of_room(&self) -> bool {
        self.growth.is_out_of_room(&self.base, self.is_all_swept())
    }
}
