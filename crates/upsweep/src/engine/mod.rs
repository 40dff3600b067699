//! The engine: directory, queues, sweep, recovery, cache.

pub mod modifier;
