//! Decides where a run of the sweep ends.

use crate::engine::config::Config;

/// A run has up to this many times as many blocks as its length of blocks of the target size, if
/// they are smaller: blocks of an array have 16 KiB, also where 64 KiB suit the device.
const SMALL_BLOCKS: usize = 4;
/// Blocks without waiting updates at the end of a run are dropped; this many in a row end it.
const IDLE_BLOCKS_MAX: usize = 16;

/// The limits of length and density of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct RunLimits {
    /// Most blocks.
    blocks: usize,
    /// Most bytes from its start to its end.
    span_bytes: u64,
    /// Most bytes of queues.
    queue_bytes: u64,
    /// Most bytes by which blocks without an image may grow.
    growth_bytes: u64,
    /// Least share of its bytes in blocks with waiting updates, in per cent.
    density_percent: u32,
}

impl Config {
    /// The limits of a run.
    pub(in crate::engine) fn run_limits(&self) -> RunLimits {
        let span_bytes = self.run_span_bytes();
        RunLimits {
            blocks: self.run_blocks_max.saturating_mul(SMALL_BLOCKS),
            span_bytes,
            queue_bytes: span_bytes.max(self.run_bytes_max as u64),
            growth_bytes: span_bytes.max(self.oversized_queue_bytes() as u64),
            density_percent: self.run_density_percent_min,
        }
    }
}

impl RunLimits {
    /// Whether another block is too much for a run with this many, given the resulting span and
    /// bytes of queues.
    pub(in crate::engine) fn is_too_long(
        &self,
        blocks: usize,
        span: u64,
        queue_bytes: u64,
    ) -> bool {
        blocks >= self.blocks || span > self.span_bytes || queue_bytes > self.queue_bytes
    }

    /// Whether too little of a span has waiting updates.
    pub(in crate::engine) fn is_too_sparse(&self, waiting_bytes: u64, span: u64) -> bool {
        u128::from(waiting_bytes) * 100 < u128::from(span) * u128::from(self.density_percent)
    }

    /// Whether another block without an image is too much for a run with this many, given the
    /// resulting growth in bytes.
    pub(in crate::engine) fn is_full(&self, blocks: usize, growth_bytes: u64) -> bool {
        blocks >= self.blocks || growth_bytes > self.growth_bytes
    }

    /// Whether a run ends after this many blocks without waiting updates.
    pub(in crate::engine) fn ends_after(idle_blocks: usize) -> bool {
        idle_blocks >= IDLE_BLOCKS_MAX
    }
}

#[cfg(test)]
mod tests;
