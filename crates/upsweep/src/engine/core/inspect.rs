//! Inspection of a core, for status, tests and the simulator.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Core;
use crate::engine::base::Base;
use crate::engine::catalog::Space;
use crate::engine::config::Config;
use crate::engine::directory::Block;
use crate::engine::format::record_format::SpaceRecord;
use crate::engine::held::Held;
use crate::engine::ids::SpaceId;
use crate::engine::measure::TreeCounters;
use crate::engine::policy::Costs;
use crate::engine::quarantine::QUARANTINE_SPACE;
use crate::engine::registry::Modifiers;
use crate::engine::sweep::LOADING;
use crate::error::{ClosedError, Error};
use crate::log::{Log, Seq};
use crate::placement::{Extent, SpaceMap};

impl Core {
    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.base.config
    }

    /// Everything up to this log sequence is on stable media.
    #[must_use]
    pub fn durable(&self) -> Seq {
        self.base.journal.durable()
    }

    /// The last sequence that was assigned to a record.
    #[must_use]
    pub fn last(&self) -> Seq {
        self.base.journal.last()
    }

    /// Every record up to this one, other than pure updates, has taken effect.
    #[must_use]
    pub fn published(&self) -> Seq {
        self.base.journal.published()
    }

    /// The last update that is in the queues.
    #[must_use]
    pub fn accepted(&self) -> Seq {
        self.base.index.accepted()
    }

    /// The log, for its counters.
    #[must_use]
    pub fn log(&self) -> &Log {
        self.base.journal.log()
    }

    /// The map of free space.
    #[must_use]
    pub fn space_map(&self) -> &SpaceMap {
        &self.base.index.space_map
    }

    /// Number of blocks in the directory, and the memory it takes in bytes.
    #[must_use]
    pub fn directory_size(&self) -> (usize, usize) {
        (self.base.index.directory().len(), self.base.index.directory().memory_bytes())
    }

    /// Current target size of the blocks that the sweep makes, in bytes: see
    /// [`BlockSizes`](crate::engine::BlockSizes).
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.base.block_bytes
    }

    /// Number of nodes of the directory, and levels of its deepest tree.
    #[must_use]
    pub fn tree_size(&self) -> (usize, usize) {
        let trees = &self.base.index.directory().trees;
        let depths = self.base.index.directory().roots().into_iter().map(|root| trees.depth(root));
        (trees.node_count(), depths.max().unwrap_or(0))
    }

    /// The cost of changes to the trees since the store was opened.
    #[must_use]
    pub fn tree_counters(&self) -> TreeCounters {
        self.base.index.directory().trees.counters()
    }

    /// Bytes of images in the cache.
    #[must_use]
    pub fn cache_bytes(&self) -> usize {
        self.base.index.cache.bytes()
    }

    /// The modifiers under their numbers in this store.
    #[must_use]
    pub fn modifiers(&self) -> Arc<Modifiers> {
        Arc::clone(self.base.index.bindings.modifiers())
    }

    /// The space with this number.
    #[must_use]
    pub fn space_record(&self, space: SpaceId) -> Option<SpaceRecord> {
        self.base.index.directory().space(space).map(|space| space.record.clone())
    }

    /// Whether the data devices have no room for an update that grows or for the last run, and
    /// cannot grow.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.base.index.is_full() || self.is_out_of_room()
    }

    /// Why the store accepts no more updates, if it does not.
    #[must_use]
    pub fn closed(&self) -> Option<&ClosedError> {
        self.base.gate.closed()
    }

    /// Whether a superblock records that the whole log is durable: if the log is truncated later,
    /// the next open detects it.
    #[must_use]
    pub fn is_attested(&self) -> bool {
        self.checkpointer.superblock().durable == self.base.journal.last()
    }

    /// Whether everything that was accepted up to `seq` is inside published images, except what is
    /// held (see `held.rs`).
    #[must_use]
    pub fn is_swept(&self, seq: Seq) -> bool {
        self.base.swept_but_held() >= seq
    }

    /// Every update up to this sequence is inside a published image.
    #[must_use]
    pub fn sweep_frontier(&self) -> Seq {
        self.base.index.swept()
    }

    /// Progress of the present sweep cycle, from 0 to 1; `None` between cycles.
    #[must_use]
    pub fn sweep_progress(&self) -> Option<f64> {
        self.sweep.progress()
    }

    /// Memory that runs use for large values and long queues, in bytes, as of the last pump.
    #[must_use]
    pub fn values_bytes(&self) -> usize {
        self.base.in_hand.values_bytes
    }

    /// Memory that waiting updates take, those of running sweeps included.
    #[must_use]
    pub fn queue_bytes(&self) -> usize {
        self.base.index.queue_bytes()
    }

    /// Memory that waiting updates may take: the budget less everything else. Updates that already
    /// wait keep a minimum even when the directory has outgrown the budget and no update is
    /// accepted.
    #[must_use]
    pub fn queue_limit_bytes(&self) -> usize {
        self.base.queue_limit_bytes()
    }

    /// By how much quarantined updates may currently exceed the memory for queues, in bytes. They
    /// have no caller that could be made to wait; other callers wait for them.
    #[must_use]
    pub fn queue_overdraft_bytes(&self) -> usize {
        self.base.quarantine.overdraft_bytes()
    }

    /// Queue entries that wait, those of running sweeps included. Cost: a pass over all blocks.
    #[must_use]
    pub fn waiting_entries(&self) -> u64 {
        self.base.index.waiting_entries()
    }

    /// Memory that one waiting entry takes on average, in bytes. Cost: a pass over all blocks.
    #[must_use]
    pub fn queue_bytes_per_entry(&self) -> f64 {
        self.base.queue_bytes_per_entry()
    }

    /// How full the log is for updates, in per cent: at 100 they are refused.
    #[must_use]
    pub fn log_fill_percent(&self) -> u32 {
        self.base.log_gauge().percent()
    }

    /// How full the queue memory is, in per cent: at 100 updates are refused.
    #[must_use]
    pub fn queue_fill_percent(&self) -> u32 {
        self.base.queue_fill_percent()
    }

    /// Whether updates are spilled for memory: memory would hold so few per visit of a block that
    /// the sweep would move many times their bytes.
    #[must_use]
    pub fn spills_for_memory(&self) -> bool {
        self.spiller.is_for_memory()
    }

    /// The current costs of updates, and how much may wait.
    #[must_use]
    pub fn costs(&self) -> Costs {
        self.base.costs()
    }

    /// Updates that wait in spill segments. Cost: a pass over all blocks.
    #[must_use]
    pub fn spilled_entries(&self) -> u64 {
        self.base.index.spilled_entries()
    }

    /// Number of spill segments, and their bytes on the devices.
    #[must_use]
    pub fn spill_segments_size(&self) -> (usize, u64) {
        let spill_segments = &self.base.index.spill_segments;
        (spill_segments.len(), spill_segments.disk_bytes())
    }

    /// Memory of spill segments, those in progress included, and its limit, in bytes.
    #[must_use]
    pub fn spill_segments_memory(&self) -> (usize, usize) {
        self.spiller.spill_segments_memory(&self.base)
    }

    /// The fill in per cent of the memory for spilled updates, or of the levels that queries
    /// tolerate.
    #[must_use]
    pub fn spilled_fill_percent(&self) -> u32 {
        self.spiller.fill_percent(&self.base)
    }

    /// Blocks that are held: updates of modifiers that are not registered wait for them.
    #[must_use]
    pub fn held_blocks(&self) -> u64 {
        let blocks = |held: &Held| held.blocks(&self.base.index);
        self.base.held.as_ref().map_or(0, blocks)
    }

    /// The error for full data devices.
    #[must_use]
    pub fn full_error(&self) -> Error {
        self.base.index.full_error()
    }

    /// The maximum size of the log in bytes.
    #[must_use]
    pub fn log_bytes_max(&self) -> u64 {
        let segment_bytes = u64::from(self.base.config.log_segment_bytes);
        let whole = |bytes: u64| bytes - bytes % segment_bytes;
        self.base.config.log_regions.iter().map(|region| whole(region.bytes)).sum()
    }

    /// The sequence from which the next open would have to read the log after a checkpoint made
    /// now.
    #[must_use]
    pub fn replay_from_next(&self) -> Seq {
        self.base.journal.published().min(self.base.index.frontier()).next()
    }

    /// The sequence from which the next open has to read the log.
    #[must_use]
    pub fn replay_from(&self) -> Seq {
        self.checkpointer.superblock().replay_from
    }

    /// The last checkpoint has the directory as it was at this sequence.
    #[must_use]
    pub fn checkpointed(&self) -> Seq {
        self.checkpointer.superblock().root_seq
    }

    /// Whether a checkpoint is requested or in progress. One that finds no room is abandoned.
    #[must_use]
    pub fn is_checkpointing(&self) -> bool {
        self.checkpointer.is_under_way()
    }

    /// Whether anything that was dropped is still to be released.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        self.reclaimer.is_releasing(&self.base)
    }

    /// Whether free space of files is being returned. This ends when there is no excess any more,
    /// when devices refuse, or when they have to grow and cannot.
    #[must_use]
    pub fn is_punching(&self) -> bool {
        self.growth.is_punching()
    }

    /// The hidden spaces that loads have left.
    #[must_use]
    pub fn abandoned_loads(&self) -> Vec<SpaceId> {
        self.spaces_of(LOADING).map(|record| record.space).collect()
    }

    /// Faults of the directory: its trees, its references, the places of its blocks, what waits for
    /// them, and what of it is durable. All checks except the sum of used space hold between any
    /// two calls, whatever is in progress. Cost: a pass over the directory.
    #[must_use]
    pub fn audit(&self) -> Vec<String> {
        let (mut faults, _) = self.base.index.directory().audit();
        faults.extend(self.audit_places());
        faults.extend(self.audit_ages());
        faults.extend(self.audit_waiting());
        faults.extend(self.audit_durable());
        faults
    }

    /// Checks that updates waiting for a block are younger than its image, and that pending bytes
    /// add up.
    fn audit_waiting(&self) -> Vec<String> {
        let Base { index, .. } = &self.base;
        let mut faults = Vec::new();
        for block in index.directory().table.from(0).filter(|block| block.waits()) {
            let (first, frontier) = (block.queue.first_seq(), block.placement().frontier);
            let Block { space, key, .. } = block;
            // A put that a checkpoint carries to the quarantine may be as old as the image there.
            let is_carried = *space == QUARANTINE_SPACE && first == frontier;
            // Without its format nobody can tell what the image has: replay queues all updates.
            let space_found = index.directory().space(*space);
            let is_known = space_found.is_some_and(Space::is_registered);
            if first <= frontier && is_known && !is_carried {
                faults.push(format!(
                    "update {first} waits for block {key:02x?} of space {space}, whose image has \
                     all up to {frontier}"
                ));
            }
        }
        let pending: usize = index.directory().spaces().map(|space| space.pending.bytes()).sum();
        if pending != index.pending_bytes() {
            let counted = index.pending_bytes();
            faults.push(format!("{counted} pending bytes are counted, but {pending} are pending"));
        }
        faults
    }

    /// Checks that what has taken effect is durable, and that the log has all that the next open
    /// needs.
    fn audit_durable(&self) -> Vec<String> {
        let Base { journal, .. } = &self.base;
        let (published, durable) = (journal.published(), journal.durable());
        let (kept, needed) = (journal.log().kept_from(), self.replay_from());
        let mut faults = Vec::new();
        if published > durable {
            faults.push(format!("{published} has taken effect, but only {durable} is durable"));
        }
        if kept > needed.max(Seq::FIRST) {
            faults.push(format!("the log is kept from {kept} on, but needed from {needed} on"));
        }
        faults
    }

    /// Checks that the waiting queues and frozen copies are all counted by age.
    fn audit_ages(&self) -> Option<String> {
        let waits = |block: &Block| {
            let frozen = block.frozen.as_ref().is_some_and(|frozen| frozen.count() > 0);
            u64::from(block.waits()) + u64::from(frozen)
        };
        let waiting: u64 = self.base.index.directory().table.from(0).map(waits).sum();
        let held = self.base.index.arena().held();
        (waiting != held).then(|| format!("{held} queues are counted by age, but {waiting} wait"))
    }

    /// Checks that used space is exactly that of blocks, nodes, pages, spill segments, the root and
    /// reserved extents.
    fn audit_places(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let table = &self.base.index.directory().table;
        let mut extents = BTreeSet::new();
        for id in table.ids() {
            let Some(extent) = table.get(id).extent() else { continue };
            extents.insert(extent);
            if !self.base.index.placed().contains(&(extent.device, extent.offset, id)) {
                faults.push(format!("block {} is not in the index of places", id.0));
            }
        }
        if self.base.index.placed().len()
            != table.ids().filter(|id| table.get(*id).extent().is_some()).count()
        {
            faults.push("the index of places names blocks that do not exist".to_owned());
        }
        let images = self.checkpointer.listed().images().map(|(_, image)| image.extent);
        let carried =
            self.base.index.outdated().iter().chain(self.checkpointer.outdated()).copied();
        let spill_segments =
            self.base.index.spill_segments.iter().map(|segment| segment.record.extent);
        let all = extents
            .into_iter()
            .chain(images)
            .chain(self.checkpointer.superblock().root)
            .chain(carried);
        let reserved = self.base.index.reserved.iter().map(|(_, extent)| extent);
        let all: Vec<Extent> = all.chain(spill_segments).chain(reserved).collect();
        let map = &self.base.index.space_map;
        for extent in all.iter().filter(|extent| !map.is_used(**extent)) {
            faults.push(format!("{extent:?} is free, but referred to"));
        }
        if self.is_active() {
            return faults; // Runs and checkpoints in progress use other space.
        }
        let referenced: u64 = all.iter().map(|extent| u64::from(extent.bytes)).sum();
        let used = map.used_bytes();
        if referenced != used {
            faults.push(format!("{used} bytes are used, but {referenced} are referred to"));
        }
        faults
    }
}
