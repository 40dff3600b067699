//! The inputs from which production computes a configuration, for simulated stores.

use upsweep::layers::engine::Config;
use upsweep::layers::engine::policy::{self, Options, Scale, Shape};

/// Settings of a small store.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its properties from creation.
    pub shape: Shape,
    /// The options of the open.
    pub options: Options,
    /// Its scale.
    pub scale: Scale,
}

impl Settings {
    /// The configuration.
    #[must_use]
    pub fn config(&self) -> Config {
        policy::configure(&self.shape, &self.options, &self.scale)
    }

    /// Sets a budget that leaves this many bytes beside the cache, or the minimum.
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
