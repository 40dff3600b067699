//! From what production computes a configuration, and simulated stores have theirs.

use upsweep::layers::engine::Config;
use upsweep::layers::engine::policy::{self, Options, Scale, Shape};

/// A store that is opened, small.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What it is from its creation on.
    pub shape: Shape,
    /// What whoever opens it chooses.
    pub options: Options,
    /// How small it is.
    pub scale: Scale,
}

impl Settings {
    /// The configuration.
    #[must_use]
    pub fn config(&self) -> Config {
        policy::configure(&self.shape, &self.options, &self.scale)
    }

    /// Gives it a budget that leaves so many bytes beside the cache, or the least.
    pub fn leave_beside_cache(&mut self, bytes: usize) {
        let memory_bytes = bytes * policy::CACHE_PART / (policy::CACHE_PART - 1);
        self.options.memory_bytes = memory_bytes.max(self.memory_bytes_min());
    }

    /// The least memory with which it opens, in bytes.
    #[must_use]
    pub fn memory_bytes_min(&self) -> usize {
        policy::memory_bytes_min(&self.shape, &self.options, &self.scale)
    }
}
