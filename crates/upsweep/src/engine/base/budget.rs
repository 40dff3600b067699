//! The use of memory, log and devices, and the limits at which admission refuses more.

use super::Base;
use crate::broken::{self, Fault};
use crate::engine::block_format::UpdateRef;
use crate::engine::config::Config;
use crate::engine::pending::Pending;
use crate::engine::policy::{self, Costs, Demand, DirectorySize, Gauge, Measured};
use crate::engine::queue::CELL_BYTES;
use crate::engine::spill_segments;
use crate::log::{Log, LogRoom};

/// What follows from the configuration alone; every admission needs it.
pub(in crate::engine) struct FixedFigures {
    /// Memory of buffers and of the cache.
    fixed_bytes: usize,
    /// Longest record of updates, in bytes, that the store accepts: the limit of the log, and that
    /// of the queues of an empty store.
    pub(in crate::engine) record_bytes_max: usize,
}

impl FixedFigures {
    pub(super) fn new(config: &Config, log: &Log) -> Self {
        let (queues, log) = (config.queue_bytes_max(), log.record_bytes_max());
        Self {
            fixed_bytes: config.fixed_bytes() + config.cache_bytes,
            record_bytes_max: policy::record_bytes_max(queues, log),
        }
    }
}

impl Base {
    /// Memory that is in use whether updates wait in queues or not.
    pub(in crate::engine) fn resident_bytes(&self) -> usize {
        self.lasting_bytes() + self.passing_bytes()
    }

    /// The part of it that a sweep releases: the filters of spill segments, and the large values in
    /// progress.
    pub(in crate::engine) fn passing_bytes(&self) -> usize {
        self.index.spill_segments.memory_bytes() + self.in_hand.values_bytes
    }

    /// The part of it that a sweep does not release: buffers, cache, directory, space map.
    pub(in crate::engine) fn lasting_bytes(&self) -> usize {
        self.fixed.fixed_bytes
            + self.index.directory().memory_bytes()
            + self.index.placed().len() * 32
            + self.index.space_map.memory_bytes()
            + self.index.reserved.memory_bytes()
    }

    /// Memory that waiting updates may take: the budget less everything else. Updates that already
    /// wait keep a minimum even when the directory has outgrown the budget and no update is
    /// accepted.
    pub(in crate::engine) fn queue_limit_bytes(&self) -> usize {
        self.config.queue_bytes_beside(self.resident_bytes())
    }

    /// Memory of waiting updates, and of the copies that they will need, given this much resident
    /// memory.
    pub(in crate::engine) fn queues_gauge(&self, resident: usize) -> Gauge {
        let limit = self.config.queue_bytes_beside(resident);
        let queue_bytes = self.index.queue_bytes() + self.index.promised_bytes();
        policy::queues_gauge(limit, queue_bytes, self.index.arena().excess_bytes())
    }

    /// Lets the cache have, besides its share of the memory, what waiting updates leave of theirs.
    /// Cost: to drop the images for which there is no room any more.
    pub(in crate::engine) fn fit_cache(&mut self) {
        let mut limit = self.config.cache_bytes;
        if self.config.cache_borrows {
            let queues = self.queues_gauge(self.resident_bytes());
            let taken = (queues.used as usize).max(self.index.arena().memory_bytes());
            limit += (queues.limit as usize).saturating_sub(taken);
        }
        if !broken::is(Fault::CacheKeepsMemory) || limit > self.index.cache.bytes() {
            self.index.cache.set_limit(limit);
        }
    }

    /// How full the queue memory is, in per cent: at 100 updates are refused.
    pub(in crate::engine) fn queue_fill_percent(&self) -> u32 {
        self.queues_gauge(self.resident_bytes()).percent()
    }

    /// Memory for queues and for the filters of spill segments together.
    pub(in crate::engine) fn waiting_limit_bytes(&self) -> usize {
        let others = self.resident_bytes() - self.index.spill_segments.memory_bytes();
        self.config.queue_bytes_beside(others)
    }

    /// Log space that updates have taken, and may take.
    pub(in crate::engine) fn log_gauge(&self) -> Gauge {
        let LogRoom { used_bytes, limit_bytes, prospect_bytes } = self.journal.log().room();
        let gauge = Gauge { used: used_bytes, limit: limit_bytes };
        policy::log_gauge(gauge, prospect_bytes, self.change_bytes())
    }

    /// Approximate log space for the changes of a sweep of everything that waits.
    fn change_bytes(&self) -> u64 {
        let waiting = self.index.arena().queues() + self.in_hand.unlogged_blocks;
        policy::change_bytes(waiting, self.config.run_blocks_max, self.config.log_page_bytes)
    }

    /// Whether the log has no room for the changes of a sweep of everything that waits.
    pub(in crate::engine) fn is_log_short_of_changes(&self) -> bool {
        let log = self.journal.log();
        let (prospect, used) = (log.prospect_bytes(), log.used_bytes());
        policy::is_log_short_of_changes(self.change_bytes(), prospect, used)
    }

    /// Demand for space on the data devices: for what waits, for `more` bytes of updates of this
    /// many blocks, and for what no waiting update may count on.
    pub(in crate::engine) fn demand(&self, more: u64, blocks: usize, kept_bytes: u64) -> Demand {
        let index = &self.index;
        let queued = index.arena().growth_bytes() + self.in_hand.growth_bytes;
        let pending = index.pending_bytes() as u64;
        let spilled = if index.spill_segments.is_empty() { 0 } else { index.directory().len() };
        let blocks = index.arena().queues().max(spilled) + self.in_hand.unlogged_blocks + blocks;
        Demand {
            waiting_bytes: queued + index.spill_segments.growth_bytes() + pending + more,
            blocks: blocks as u64,
            copied_bytes: index.copy_bytes() + self.pending_images_bytes(),
            kept_bytes,
        }
    }

    /// Upper bound of the images of blocks that have pending updates.
    fn pending_images_bytes(&self) -> u64 {
        let updates = self.index.pending_bytes() / Pending::bytes_of(&[], &UpdateRef::default());
        updates as u64 * u64::from(self.block_bytes)
    }

    /// Approximate bytes that a sweep of everything that waits reads and writes, if it has to visit
    /// all blocks.
    pub(in crate::engine) fn sweep_bytes(&self) -> u64 {
        let spilled = self.index.spill_segments.disk_bytes();
        let images = self.index.used_bytes().saturating_sub(spilled);
        2 * images + spilled + self.index.queue_bytes() as u64
    }

    /// Space that no run may use: a checkpoint needs about this much, and without checkpoints the
    /// log would not be released.
    pub(in crate::engine) fn checkpoint_bytes(&self) -> u64 {
        let directory = self.index.directory();
        let images = directory.table.pages() + directory.trees.node_count();
        let (blocks, key_bytes) = (directory.len(), directory.table.key_bytes());
        policy::checkpoint_bytes(images as u64, blocks as u64, key_bytes as u64)
            + self.index.reserved.root_bytes()
    }

    /// Space for the new images of a run while its old ones are still there.
    pub(in crate::engine) fn shadow_bytes(&self) -> u64 {
        policy::shadow_bytes(self.config.run_span_bytes(), self.index.space_map.capacity_bytes())
    }

    /// The current costs of updates, and how much may wait.
    pub(in crate::engine) fn costs(&self) -> Costs {
        let measured = Measured {
            updates: self.metrics.updates_total.get(),
            entries: self.entries_came(),
            log_bytes: self.metrics.log_written_bytes_total.get(),
            queue_entries: self.index.arena().entries(),
            queue_bytes: self.index.arena().used_bytes() as u64,
        };
        Costs {
            blocks: self.index.directory().len() as u64,
            image_bytes: self
                .index
                .used_bytes()
                .saturating_sub(self.index.spill_segments.disk_bytes()),
            waiting_bytes: self.waiting_limit_bytes() as u64,
            entry_bytes: measured.entry_bytes(),
            spilled_entry_bytes: spill_segments::MEMORY_BYTES_PER_UPDATE,
            log_bytes: self.journal.log().room().limit_bytes,
            log_bytes_per_entry: measured.log_bytes_per_entry(),
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
