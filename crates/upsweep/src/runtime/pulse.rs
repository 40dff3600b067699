//! What of a status changes from moment to moment, for those who look often.
//!
//! A [`Status`](super::Status) counts what waits block by block, under the lock; a pulse reads
//! numbers that are kept anyway.

use super::block_store::BlockStore;
use super::status::{LogStatus, SweepStatus, log_status, sweep_status};
use crate::metrics::Readings;

/// Log, sweep, and how full the memory for waiting updates is, at one moment.
#[derive(Clone, Debug)]
pub struct Pulse {
    /// The log.
    pub log: LogStatus,
    /// The sweep.
    pub sweep: SweepStatus,
    /// All that is counted and timed.
    pub metrics: Readings,
    /// Memory of waiting updates, in bytes.
    pub queue_bytes: u64,
    /// What it may be at most.
    pub queue_limit_bytes: u64,
    /// Memory of the filters of spilled updates, in bytes.
    pub spill_bytes: u64,
    /// What it may be at most.
    pub spill_limit_bytes: u64,
}

impl BlockStore {
    /// What the store does at this moment. The cost does not grow with the number of blocks, so it
    /// can be asked for often; [`BlockStore::status`] tells more and makes passes over all blocks,
    /// under the lock that updates need.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        let shared = &self.inner.shared;
        let state = shared.lock();
        let core = &state.core;
        core.note_levels();
        let metrics = core.metrics().read();
        let (spill_bytes, spill_limit_bytes) = core.spill_segments_memory();
        Pulse {
            log: log_status(core),
            sweep: sweep_status(core, &metrics),
            metrics,
            queue_bytes: core.queue_bytes() as u64,
            queue_limit_bytes: core.queue_limit_bytes() as u64,
            spill_bytes: spill_bytes as u64,
            spill_limit_bytes: spill_limit_bytes as u64,
        }
    }
}
