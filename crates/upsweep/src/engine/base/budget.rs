//! What memory, log and devices are used for, and the limits at which admission refuses more.

use super::Base;
use crate::engine::block_format::UpdateRef;
use crate::engine::pending::Pending;
use crate::engine::policy::{Costs, DirectorySize, Gauge};
use crate::engine::queue::CELL_BYTES;
use crate::engine::spill_segments;
use crate::placement::UNIT_BYTES;

/// What the change of one block takes in the log, about, besides a page for its run.
const CHANGE_BYTES: u64 = 48;
/// Queue memory that admission keeps in any case.
const QUEUE_BYTES_KEPT: usize = 4096;

/// Updates after which their costs are known well enough to decide by them.
pub(in crate::engine) const COSTS_UPDATES_MIN: u64 = 4096;
/// Costs of an entry before that: memory and log, in bytes.
const COSTS_BEFORE: (f64, f64) = (16.0, 64.0);

/// What of a limit of queue memory admission gives out.
pub(in crate::engine) fn kept_from(limit: usize) -> usize {
    limit.saturating_sub(limit / 32 + QUEUE_BYTES_KEPT)
}

impl Base {
    /// Memory that is in use whether updates wait in queues or not.
    pub(in crate::engine) fn resident_bytes(&self) -> usize {
        self.lasting_bytes() + self.index.spill_segments.memory_bytes() + self.in_hand.values_bytes
    }

    /// The part of it that a sweep does not give back, as it does the filters of spill segments and
    /// the large values on their way: buffers, cache, directory, space map.
    pub(in crate::engine) fn lasting_bytes(&self) -> usize {
        self.config.fixed_bytes()
            + self.config.cache_bytes
            + self.index.directory().memory_bytes()
            + self.index.placed().len() * 32
            + self.index.space_map.memory_bytes()
    }

    /// Memory that waiting updates may take: the budget less everything else. What waits already
    /// keeps a minimum also when the directory has outgrown the budget, and no update is accepted.
    pub(in crate::engine) fn queue_limit_bytes(&self) -> usize {
        self.queue_limit_beside(self.resident_bytes())
    }

    fn queue_limit_beside(&self, resident: usize) -> usize {
        let least = self.config.queue_bytes_min();
        self.config.memory_bytes.saturating_sub(resident).max(least)
    }

    /// Memory of waiting updates, beside so much that is resident. Long queues count three times:
    /// while a run has one, there are the cells, the copy, and what the worker makes of it. A part
    /// is kept for what moves: queues that split take more cells, and new blocks take directory
    /// memory from the queues.
    pub(in crate::engine) fn queues_gauge(&self, resident: usize) -> Gauge {
        let limit = kept_from(self.queue_limit_beside(resident));
        let used = self.index.queue_bytes() + 2 * self.index.arena().excess_bytes();
        Gauge { used: used as u64, limit: limit as u64 }
    }

    /// How full the queue memory is, in per cent: at 100 updates are refused.
    pub(in crate::engine) fn queue_fill_percent(&self) -> u32 {
        self.queues_gauge(self.resident_bytes()).percent()
    }

    /// Memory for queues and for the filters of spill segments together.
    pub(in crate::engine) fn waiting_limit_bytes(&self) -> usize {
        self.waiting_limit_beside(self.resident_bytes())
    }

    fn waiting_limit_beside(&self, resident: usize) -> usize {
        let others = resident - self.index.spill_segments.memory_bytes();
        self.config.memory_bytes.saturating_sub(others).max(self.config.queue_bytes_min())
    }

    /// Log space that updates have taken, and may take. The log's reserve is for the changes of
    /// what waits; where that is too little for so many blocks, more is kept, for checkpoints would
    /// have to carry the changes, a few runs at a time.
    pub(in crate::engine) fn log_gauge(&self) -> Gauge {
        let log = self.journal.log();
        let (used, limit) = log.user_bytes();
        let reserve = log.prospect_bytes() - limit;
        let kept = self.change_bytes().saturating_sub(reserve / 2).min(limit / 4);
        Gauge { used, limit: limit - kept }
    }

    /// What the changes of a sweep of all that waits take of the log, about.
    fn change_bytes(&self) -> u64 {
        let waiting = self.index.arena().queues() + self.in_hand.unlogged_blocks;
        let runs = waiting.div_ceil(self.config.run_blocks_max) as u64;
        waiting as u64 * CHANGE_BYTES + runs * u64::from(self.config.log_page_bytes)
    }

    /// Whether the log has no room for the changes of a sweep of all that waits.
    pub(in crate::engine) fn is_log_short_of_changes(&self) -> bool {
        let log = self.journal.log();
        self.change_bytes() > log.prospect_bytes().saturating_sub(log.used_bytes())
    }

    /// Bytes that have to stay free for what waits, and for `more` bytes of updates of so many
    /// blocks. A leaf that splits is half full, hence twice; an image is rounded to whole units.
    /// The images that blocks still share with others will be separate ones.
    pub(in crate::engine) fn waiting_space_bytes(&self, more: u64, blocks: usize) -> u64 {
        let index = &self.index;
        let queued = index.arena().growth_bytes() + self.in_hand.growth_bytes;
        let waiting =
            queued + index.spill_segments.growth_bytes() + index.pending_bytes() as u64 + more;
        let spilled = if index.spill_segments.is_empty() { 0 } else { index.directory().len() };
        let blocks = index.arena().queues().max(spilled) + self.in_hand.unlogged_blocks + blocks;
        let copies = index.copy_bytes() + self.pending_images_bytes();
        2 * waiting + UNIT_BYTES * blocks as u64 + copies
    }

    /// Images that blocks will have of which updates are pending, at most.
    fn pending_images_bytes(&self) -> u64 {
        let updates = self.index.pending_bytes() / Pending::bytes_of(&[], &UpdateRef::default());
        updates as u64 * u64::from(self.block_bytes)
    }

    /// Space that no run may use: a checkpoint needs about this much, and without checkpoints the
    /// log would not be released.
    pub(in crate::engine) fn checkpoint_bytes(&self) -> u64 {
        let directory = &self.index.directory();
        let pages = directory.table.pages() + directory.trees.node_count();
        let blocks = 64 * directory.len() + 2 * directory.table.key_bytes();
        UNIT_BYTES * (pages as u64 + 2) + blocks as u64
    }

    /// Space for the new images of a run while its old ones are still there.
    pub(in crate::engine) fn shadow_bytes(&self) -> u64 {
        let run = self.config.run_blocks_max as u64 * u64::from(self.config.block_bytes);
        run.min(self.index.space_map.capacity_bytes() / 16)
    }

    /// What updates cost at present, and how much may wait.
    pub(in crate::engine) fn costs(&self) -> Costs {
        let entries = self.entries_came() as f64;
        let are_known = self.metrics.updates_total.get() >= COSTS_UPDATES_MIN;
        let (mut entry_bytes, mut log_bytes_per_entry) = COSTS_BEFORE;
        if are_known {
            log_bytes_per_entry = self.metrics.log_written_bytes_total.get() as f64 / entries;
        }
        if self.index.arena().entries() >= COSTS_UPDATES_MIN {
            entry_bytes =
                self.index.arena().used_bytes() as f64 / self.index.arena().entries() as f64;
        }
        Costs {
            blocks: self.index.directory().len() as u64,
            image_bytes: self
                .index
                .space_map
                .used_bytes()
                .saturating_sub(self.index.spill_segments.disk_bytes()),
            waiting_bytes: self.waiting_limit_bytes() as u64,
            entry_bytes,
            spilled_entry_bytes: spill_segments::MEMORY_BYTES_PER_UPDATE,
            log_bytes: self.journal.log().user_bytes().1,
            log_bytes_per_entry,
        }
    }

    /// Decides how large blocks are made.
    pub(in crate::engine) fn choose_block_bytes(&mut self, costs: &Costs) {
        let directory = DirectorySize {
            blocks: costs.blocks,
            image_bytes: costs.image_bytes,
            memory_bytes: self.index.directory().memory_bytes() as u64,
        };
        self.block_bytes = self.config.block_sizes().target(&directory, self.block_bytes);
    }

    /// Memory that one waiting entry takes on average, in bytes. Cost: a pass over all blocks.
    pub(in crate::engine) fn queue_bytes_per_entry(&self) -> f64 {
        let entries = self.index.waiting_entries();
        let bytes = self.index.queue_bytes();
        if entries == 0 { CELL_BYTES as f64 } else { bytes as f64 / entries as f64 }
    }
}
