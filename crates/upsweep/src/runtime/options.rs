//! Options of stores, which are set by methods so that there may be more of them one day, and of
//! changes.

use std::path::PathBuf;

use super::block_store::OpenOptions;
use super::layout::CreateOptions;
use crate::log::Urgency;

impl CreateOptions {
    /// Sets [`CreateOptions::data`].
    #[must_use]
    pub fn data(mut self, paths: Vec<PathBuf>) -> Self {
        self.data = paths;
        self
    }

    /// Sets [`CreateOptions::log`].
    #[must_use]
    pub fn log(mut self, paths: Vec<PathBuf>) -> Self {
        self.log = paths;
        self
    }

    /// Sets [`CreateOptions::block_bytes`].
    #[must_use]
    pub fn block_bytes(mut self, bytes: u32) -> Self {
        self.block_bytes = Some(bytes);
        self
    }

    /// Sets [`CreateOptions::log_bytes`].
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = Some(bytes);
        self
    }
}

impl OpenOptions {
    /// Sets [`OpenOptions::memory_bytes`].
    #[must_use]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Sets [`OpenOptions::workers`].
    #[must_use]
    pub fn workers(mut self, threads: usize) -> Self {
        self.workers = threads;
        self
    }

    /// Sets [`OpenOptions::run_blocks_max`].
    #[must_use]
    pub fn run_blocks_max(mut self, blocks: usize) -> Self {
        self.run_blocks_max = Some(blocks);
        self
    }

    /// Sets [`OpenOptions::run_density_percent_min`].
    #[must_use]
    pub fn run_density_percent_min(mut self, percent: u32) -> Self {
        self.run_density_percent_min = percent;
        self
    }

    /// Sets [`OpenOptions::log_depth`].
    #[must_use]
    pub fn log_depth(mut self, batches: u8) -> Self {
        self.log_depth = batches;
        self
    }
}

/// When a call that changes something returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When the change is on stable media.
    #[default]
    Wait,
    /// As soon as there is room for it; the change is on its way, and the `Ticket` can be waited
    /// on.
    Ticket,
    /// As soon as there is room for it; the change may wait a bounded time (5 ms) for others to
    /// share its log batch.
    Relaxed,
}

impl Durability {
    pub(super) fn urgency(self) -> Urgency {
        match self {
            Self::Relaxed => Urgency::Relaxed,
            Self::Wait | Self::Ticket => Urgency::Now,
        }
    }
}
