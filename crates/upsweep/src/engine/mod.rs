//! The engine: directory, queues, sweep, recovery, cache.

pub mod block_format;
pub mod modifier;
pub mod registry;
