//! Counters of one open store, since it was opened.

use crate::placement::Extent;

/// Damage that is remembered for `stat`; more is only counted.
const DAMAGE_KEPT_MAX: usize = 64;

/// Counters; all monotonic.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Updates accepted.
    pub updates: u64,
    /// Times that a record found no room in queue memory and had to wait.
    pub waits_for_room: u64,
    /// Times that a record found no room in the log and had to wait.
    pub waits_for_log: u64,
    /// Runs published.
    pub runs: u64,
    /// Blocks that those runs held.
    pub blocks_swept: u64,
    /// Queue entries that those runs applied (folded updates count as one).
    pub entries_swept: u64,
    /// Bytes that the sweep read from data devices.
    pub sweep_read_bytes: u64,
    /// Bytes that the sweep wrote to data devices.
    pub sweep_written_bytes: u64,
    /// Spills published.
    pub spills: u64,
    /// Those of them that a checkpoint carried, because the log had no room for their records.
    pub spills_carried: u64,
    /// Queue entries that those spills held.
    pub updates_spilled: u64,
    /// Bytes that spills wrote to data devices.
    pub spill_written_bytes: u64,
    /// Spill segments of spilled updates that the sweep read, in bytes; part of what it read in
    /// all.
    pub spill_read_bytes: u64,
    /// Bytes that checkpoints wrote.
    pub checkpoint_written_bytes: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Holes punched: times that free space went back to a file system.
    pub punches: u64,
    /// Times that holes, or what may be holes since the store was opened, were allocated.
    pub holes_filled: u64,
    /// Reads for queries.
    pub view_reads: u64,
    /// Updates sent to the quarantine.
    pub quarantined: u64,
    /// Sweep cycles completed.
    pub cycles: u64,
    /// Length of the last complete cycle, in microseconds.
    pub cycle_us_last: u64,
    /// Blocks found damaged, by the sweep or by queries.
    pub damaged: u64,
    /// The first of them: where, and how.
    pub damage: Vec<(Option<Extent>, String)>,
    cycle_started_us: u64,
}

/// What changes of the trees of the directory have cost, without what gives dropped room back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeCounters {
    /// Nodes changed: the different ones of each operation on a tree, added up.
    pub nodes_changed: u64,
    /// Those of removals of ranges alone.
    pub range_nodes_changed: u64,
}

/// What counters want to know of a run that was published.
pub(super) struct RunSummary {
    pub(super) blocks: u64,
    /// Queue entries that it applied.
    pub(super) updates: u64,
    pub(super) damaged: Vec<(Option<Extent>, String)>,
}

impl Statistics {
    /// Queue entries that one visit of a block applied, on average: the batching degree.
    #[must_use]
    pub fn batching_degree(&self) -> f64 {
        self.entries_swept as f64 / self.blocks_swept.max(1) as f64
    }

    pub(super) fn cycle_started(&mut self, now_us: u64) {
        self.cycle_started_us = now_us;
    }

    pub(super) fn cycle_ended(&mut self, now_us: u64) {
        self.cycles += 1;
        self.cycle_us_last = now_us.saturating_sub(self.cycle_started_us);
    }

    pub(super) fn run_published(&mut self, run: &RunSummary) {
        self.runs += 1;
        self.blocks_swept += run.blocks;
        self.entries_swept += run.updates;
        for (extent, reason) in &run.damaged {
            self.damaged += 1;
            if self.damage.len() < DAMAGE_KEPT_MAX {
                self.damage.push((*extent, reason.clone()));
            }
        }
    }
}
