//! Limits that follow from a configuration, and the division of its memory.

use super::block_size::BlockSizes;
use super::spill::{SPILL_SEGMENT_BYTES, SPILL_SEGMENTS_PER_SPILL, SPILLS_IN_FLIGHT_MAX};
use crate::engine::config::{Config, Spilling};
use crate::error::{Error, RequestError};
use crate::log::DEPTH_MAX;
use crate::placement::{DEVICES_MAX, UNIT_BYTES};

/// Memory for the directory of a small store.
const DIRECTORY_BYTES_MIN: usize = 64 << 10;
/// Most blocks of a run that can be chosen.
const RUN_BLOCKS_LIMIT: usize = 1024;
/// Most runs at a time that can be chosen, for some on each of many devices: their buffers take
/// memory from waiting updates.
const RUNS_LIMIT: usize = 64;
/// Largest spill segment that can be chosen, in bytes: as much as one spill writes.
const SPILL_SEGMENT_LIMIT: u32 = SPILL_SEGMENTS_PER_SPILL as u32 * SPILL_SEGMENT_BYTES;
/// Longest request of recovery and of bulk loads that can be chosen, in bytes.
const BULK_REQUEST_LIMIT: u32 = 4 << 20;
/// Longest request of a scan that can be chosen, in bytes.
const SCAN_REQUEST_LIMIT: u32 = 16 << 20;
/// Most requests of a scan that can be chosen.
pub(super) const SCAN_REQUESTS_LIMIT: usize = 64;
/// Largest block that is ever made.
const BLOCK_BYTES_MAX: u64 = 1 << 20;
/// Least number of blocks of a run; with fewer, updates of neighbours would not be batched.
const LARGE_BLOCKS_PER_RUN: u64 = 2;
/// Values above this fraction of a block are stored outside it.
const INLINE_VALUE_PART: usize = 4;
/// A block whose queue has grown to this multiple of its size is swept out of turn.
const OVERSIZED_TIMES: usize = 8;

impl Config {
    /// Checks every range, and that the memory is enough.
    ///
    /// # Errors
    /// [`RequestError::BadConfig`] with the setting, its range and what to do.
    pub fn check(&self) -> Result<(), Error> {
        self.check_ranges()?;
        let least = self.memory_bytes_min();
        if self.memory_bytes < least {
            let (given, needed) = (self.memory_bytes, least.div_ceil(1 << 20));
            let reason = format!("{given} bytes; this store needs at least {needed}MiB");
            return Err(RequestError::BadConfig { setting: "memory", reason }.into());
        }
        Ok(())
    }

    /// Checks every range. The memory required can only be computed for settings in range.
    ///
    /// # Errors
    /// As [`Config::check`].
    pub fn check_ranges(&self) -> Result<(), Error> {
        let bad = |setting, reason: String| {
            Err(Error::Request(RequestError::BadConfig { setting, reason }))
        };
        let block = self.block_bytes;
        if !block.is_multiple_of(4096) || !(4096..=1 << 20).contains(&block) {
            return bad("block size", format!("{block} bytes; give 4KiB to 1MiB in steps of 4KiB"));
        }
        if self.data_devices == 0 {
            return bad("data devices", "none; give at least one".to_owned());
        }
        if self.data_devices > DEVICES_MAX {
            let given = self.data_devices;
            return bad("data devices", format!("{given}; give at most {DEVICES_MAX}"));
        }
        if self.log_regions.is_empty() {
            return bad("log devices", "none; give at least one".to_owned());
        }
        if !(1..=DEPTH_MAX).contains(&self.log_depth) {
            return bad("log depth", format!("{}; give 1 to {DEPTH_MAX}", self.log_depth));
        }
        let batch = self.log_batch_bytes;
        if batch == 0 || !batch.is_multiple_of(4096) {
            return bad("log batch", format!("{batch} bytes; give a multiple of 4KiB"));
        }
        if !(1..=RUN_BLOCKS_LIMIT).contains(&self.run_blocks_max) {
            let given = self.run_blocks_max;
            return bad("blocks of a run", format!("{given}; give 1 to {RUN_BLOCKS_LIMIT}"));
        }
        if !(1..=RUNS_LIMIT).contains(&self.runs_in_flight_max) {
            let given = self.runs_in_flight_max;
            return bad("runs in flight", format!("{given}; give 1 to {RUNS_LIMIT}"));
        }
        if !(1..=SPILL_SEGMENT_LIMIT).contains(&self.spill_segment_bytes) {
            let given = self.spill_segment_bytes;
            return bad("spill segment", format!("{given} bytes; give 1 to {SPILL_SEGMENT_LIMIT}"));
        }
        let request = self.bulk.request_bytes;
        if !request.is_multiple_of(4096) || !(4096..=BULK_REQUEST_LIMIT).contains(&request) {
            let reason = format!("{request} bytes; give 4KiB to 4MiB in steps of 4KiB");
            return bad("bulk request", reason);
        }
        let request = self.scan_request_bytes;
        if !request.is_multiple_of(4096) || !(4096..=SCAN_REQUEST_LIMIT).contains(&request) {
            let reason = format!("{request} bytes; give 4KiB to 16MiB in steps of 4KiB");
            return bad("scan request", reason);
        }
        if self.scan_requests_in_flight > SCAN_REQUESTS_LIMIT {
            let given = self.scan_requests_in_flight;
            return bad("scan requests", format!("{given}; give 0 to {SCAN_REQUESTS_LIMIT}"));
        }
        if self.run_density_percent_min > 100 {
            let given = self.run_density_percent_min;
            return bad("run density", format!("{given} per cent; give 0 to 100"));
        }
        let granule = self.file_space.granule_bytes;
        if granule == 0 || !granule.is_multiple_of(UNIT_BYTES) {
            return bad("granule", format!("{granule} bytes; give a multiple of 4KiB"));
        }
        Ok(())
    }

    /// The range of block sizes. The largest are half as long as a run: in longer ones updates of
    /// neighbours would not be batched.
    #[must_use]
    pub fn block_sizes(&self) -> BlockSizes {
        let directory = self.memory_bytes as f64 * f64::from(self.directory_percent) / 100.0;
        let most = (self.run_span_bytes() / LARGE_BLOCKS_PER_RUN).max(u64::from(self.block_bytes));
        BlockSizes {
            least: self.block_bytes,
            most: most.min(BLOCK_BYTES_MAX) as u32,
            directory_bytes: directory as u64,
        }
    }

    /// Bytes that one run may read, gaps included.
    #[must_use]
    pub fn run_span_bytes(&self) -> u64 {
        (self.run_blocks_max as u64).saturating_mul(u64::from(self.block_bytes))
    }

    /// Values above this many bytes are stored outside their block.
    #[must_use]
    pub fn inline_value_bytes_max(&self) -> usize {
        self.block_bytes as usize / INLINE_VALUE_PART
    }

    /// Whether a block that may grow this much by its queue is swept out of turn.
    pub(in crate::engine) fn is_oversized(&self, growth_bytes: u32) -> bool {
        growth_bytes as usize >= self.oversized_queue_bytes()
    }

    /// A block whose queue reaches this many bytes is swept out of turn.
    #[must_use]
    pub fn oversized_queue_bytes(&self) -> usize {
        OVERSIZED_TIMES * self.block_bytes as usize
    }

    /// Most bytes that are spilled with one write: the core gathers this in a few milliseconds at
    /// most.
    #[must_use]
    pub fn spill_bytes_max(&self) -> usize {
        SPILL_SEGMENTS_PER_SPILL * self.spill_segment_bytes.min(SPILL_SEGMENT_BYTES) as usize
    }

    /// Whether data devices rotate: only there it pays to read over a gap.
    #[must_use]
    pub fn rotates(&self) -> bool {
        self.bulk.gap_bytes_max > 0
    }

    /// Bytes that are read ahead for one scan at most: the requests in flight, and the one that it
    /// goes over.
    #[must_use]
    pub fn scan_window_bytes(&self) -> usize {
        let bytes_of = |requests: usize, bytes: usize| match requests {
            0 => 0,
            requests => bytes.saturating_mul(requests + 1),
        };
        let alone = bytes_of(self.scan_requests_in_flight, self.scan_request_bytes as usize);
        let beside = self.scan_request_bytes_beside_queries as usize;
        alone.max(bytes_of(self.scan_requests_beside_queries, beside))
    }

    /// Bytes that are read ahead for a scan at least, once it reads ahead. Where devices rotate, a
    /// long request takes little longer than a short one: as much as makes requests of full length.
    #[must_use]
    pub fn scan_window_bytes_min(&self) -> usize {
        let two = 2 * self.scan_request_bytes_beside_queries as usize;
        if self.rotates() { self.scan_window_bytes().min(two) } else { 0 }
    }

    /// Memory for the buffers of runs, of scans and of the log, whatever the load: the bytes read
    /// and written per run in the pipeline, the share of scans, the batches of the log, and the
    /// bytes that spills write.
    #[must_use]
    pub fn fixed_bytes(&self) -> usize {
        let span = usize::try_from(self.run_span_bytes()).unwrap_or(usize::MAX);
        let run = span.saturating_add(self.oversized_queue_bytes()).saturating_mul(2);
        let batches = self.log_regions.len() * usize::from(self.log_depth) * 2 + 3;
        let batches = batches.saturating_mul(self.log_batch_bytes as usize);
        let spills = match self.spilling {
            Spilling::Never => 0,
            Spilling::WhenItPays | Spilling::Always => {
                SPILLS_IN_FLIGHT_MAX * self.spill_bytes_max()
            }
        };
        let runs = run.saturating_mul(self.runs_in_flight_max);
        runs.saturating_add(batches).saturating_add(spills).saturating_add(self.scan_bytes_max)
    }

    /// Memory that is never available for queues, filters or large values, in an empty store.
    fn others_bytes(&self) -> usize {
        self.fixed_bytes().saturating_add(self.cache_bytes).saturating_add(DIRECTORY_BYTES_MIN)
    }

    /// The least budget with which an empty store with this cache and these runs works: see
    /// [`memory_bytes_min`](super::memory_bytes_min) for that of one whose cache and runs follow
    /// from its budget.
    #[must_use]
    pub fn memory_bytes_min(&self) -> usize {
        self.others_bytes().saturating_add(self.queue_bytes_min())
    }

    /// Memory for queues in an empty store, which is their maximum.
    #[must_use]
    pub fn queue_bytes_max(&self) -> usize {
        self.queue_bytes_beside(self.others_bytes())
    }

    /// Memory for what recovery keeps of the log before anything waits and any image is cached. The
    /// other half of the memory for queues is for the directory, which has yet to be loaded.
    pub(in crate::engine) fn log_kept_bytes(&self) -> usize {
        self.cache_bytes + self.queue_bytes_max() / 2
    }

    /// Memory for waiting updates besides this many bytes for everything else. Updates that already
    /// wait keep a minimum even when the directory has outgrown the budget and no update is
    /// accepted.
    pub(in crate::engine) fn queue_bytes_beside(&self, others_bytes: usize) -> usize {
        self.memory_bytes.saturating_sub(others_bytes).max(self.queue_bytes_min())
    }

    /// The least memory for queues with which the engine still makes progress.
    #[must_use]
    pub fn queue_bytes_min(&self) -> usize {
        2 * self.oversized_queue_bytes()
    }
}

#[cfg(test)]
mod tests;
