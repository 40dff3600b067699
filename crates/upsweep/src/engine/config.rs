//! What the engine is told at open, and the limits that follow from it.

use super::flow::SPILLS_IN_FLIGHT_MAX;
use super::policy::{BlockSizes, Spilling};
use crate::device::DeviceId;
use crate::error::{Error, RequestError};
use crate::log::LogRegion;
use crate::placement::{DEVICES_MAX, UNIT_BYTES};

/// Longest key of a record, in bytes.
pub const KEY_BYTES_MAX: usize = 4096;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Longest operand: a value and the byte that tells its kind, or an offset.
pub const OPERAND_BYTES_MAX: usize = VALUE_BYTES_MAX + 16;
/// Longest text that is kept of why an update was refused, in bytes.
pub const REASON_BYTES_MAX: usize = 256;
/// Longest value that is stored, in bytes. The application's are [`VALUE_BYTES_MAX`] long at most,
/// and every update that they can be part of finds room in the quarantine, whose entries have its
/// key, its operand, the reason, and some numbers.
pub const STORED_BYTES_MAX: usize = OPERAND_BYTES_MAX + KEY_BYTES_MAX + REASON_BYTES_MAX + 64;
/// Where the managed range of a data device starts: behind the label and the superblock slots.
pub const DATA_START: u64 = 4 * 4096;
/// Offsets of the two superblock slots on the first data device.
pub const SUPERBLOCK_SLOTS: [u64; 2] = [4096, 2 * 4096];

/// Least number of entries of a node of the directory: the most, 192, with short keys take the
/// space of one image.
pub const FANOUT_MIN: usize = 64;

/// How files of data grow, and when free space of them goes back to their file system. Sizes are in
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSpace {
    /// Smallest step in which a data file grows, unless its file system has less.
    pub step_bytes_min: u64,
    /// Unit of holes and of all steps, a multiple of 4 KiB. A store that was opened with one is
    /// never opened with a larger one: what it takes for a granule with space might have a hole.
    pub granule_bytes: u64,
    /// Least free space that a store keeps beyond what is reserved. It keeps a quarter of what is
    /// used if that is more.
    pub kept_bytes_min: u64,
    /// Only what was free for so long, in microseconds, goes back.
    pub window_us: u64,
}

impl Default for FileSpace {
    /// What stores on files have.
    ///
    /// Granules of 256 KiB: what a run leaves behind is 512 KiB long or more, and so has a whole
    /// granule; with smaller ones a file would lie in more pieces. Four of the smallest steps are
    /// kept, so that small stores do not give back and allocate by turns. A window of 10 s is
    /// longer than runs and checkpoints take, which use space for a while.
    fn default() -> Self {
        Self {
            step_bytes_min: 16 << 20,
            granule_bytes: 256 << 10,
            kept_bytes_min: 64 << 20,
            window_us: 10_000_000,
        }
    }
}

/// Memory for the directory of a small store.
const DIRECTORY_BYTES_MIN: usize = 64 << 10;

/// Settings of one open store. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which store.
    pub store: [u8; 16],
    /// Number of data devices; they are numbers 0.. of the bank.
    pub data_devices: u16,
    /// The rings of the log, as long as they may become. A file that is shorter is made longer as
    /// that is needed; with any other device the ring stays as long as that has room for.
    pub log_regions: Vec<LogRegion>,
    /// The log is made longer up to so many times the data: see `engine/log_growth.rs`.
    pub log_times_data: u32,
    /// Bytes of a log segment.
    pub log_segment_bytes: u32,
    /// Bytes of a page of the log, of which a batch takes whole ones (512 to 4096, a power of two).
    /// The same at every open of a store.
    pub log_page_bytes: u32,
    /// Capacity of a log batch (4 KiB to 4 MiB).
    pub log_batch_bytes: u32,
    /// Batches in flight per log device (1 to 64).
    pub log_depth: u8,
    /// How long a relaxed update may wait for its batch to fill, in microseconds.
    pub log_delay_us_max: u64,
    /// Least target size of a block (4 KiB to 1 MiB, a multiple of 4 KiB): the engine makes larger
    /// ones where the directory would have too much of the memory.
    pub block_bytes: u32,
    /// Part of the memory that the directory may have before blocks are made larger, in per cent.
    pub directory_percent: u32,
    /// Memory for queues, directory, cache and buffers together.
    pub memory_bytes: usize,
    /// Part of the memory for images that were read.
    pub cache_bytes: usize,
    /// A queue that reaches this many bytes is folded for the first time.
    pub fold_bytes_min: u32,
    /// Most blocks of a run (paper: 32).
    pub run_blocks_max: usize,
    /// Bytes of queues, and of large values, that a run takes in hand, unless a single block has
    /// more.
    pub run_bytes_max: usize,
    /// Smallest part of a run that must have waiting updates, in per cent of its bytes (paper: 50).
    pub run_density_percent_min: u32,
    /// Runs at one time that hold buffers: that are read, applied or written.
    pub runs_in_flight_max: usize,
    /// Least number of entries of a node of the directory; the most are three times as many. The
    /// same at every open of a store.
    pub fanout_min: usize,
    /// When updates are spilled to the data devices.
    pub spilling: Spilling,
    /// How full queue memory has to be before updates are spilled for it, and how full spills keep
    /// the log, in per cent; 0 to spill at once whatever can be spilled.
    pub spill_fill_percent: u32,
    /// Target size of a spill segment of spilled updates.
    pub spill_segment_bytes: u32,
    /// Sweep whenever anything waits, instead of when memory or log space calls for it.
    pub sweep_always: bool,
    /// How data files grow and shrink.
    pub file_space: FileSpace,
}

impl Config {
    /// Checks every range.
    ///
    /// # Errors
    /// [`RequestError::BadConfig`] with the setting, its range and what to do.
    pub fn check(&self) -> Result<(), Error> {
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
        if self.run_blocks_max == 0 || self.runs_in_flight_max == 0 {
            return bad(
                "runs",
                "a run needs at least one block and the pipeline one run".to_owned(),
            );
        }
        let granule = self.file_space.granule_bytes;
        if granule == 0 || !granule.is_multiple_of(UNIT_BYTES) {
            return bad("granule", format!("{granule} bytes; give a multiple of 4KiB"));
        }
        let least = self.memory_bytes_min();
        if self.memory_bytes < least {
            let (given, needed) = (self.memory_bytes, least.div_ceil(1 << 20));
            return bad("memory", format!("{given} bytes; this store needs at least {needed}MiB"));
        }
        Ok(())
    }

    /// Number of a log device in the bank.
    #[must_use]
    pub fn log_device(&self, index: u16) -> DeviceId {
        DeviceId(self.data_devices + index)
    }

    /// How large blocks are made.
    #[must_use]
    pub fn block_sizes(&self) -> BlockSizes {
        let directory = self.memory_bytes as f64 * f64::from(self.directory_percent) / 100.0;
        let run_bytes = self.run_blocks_max as u64 * u64::from(self.block_bytes);
        BlockSizes {
            least: self.block_bytes,
            most: u64::from(self.block_bytes).max(run_bytes / 2).min(1 << 20) as u32,
            directory_bytes: directory as u64,
        }
    }

    /// Values above this many bytes live outside their block.
    #[must_use]
    pub fn inline_value_bytes_max(&self) -> usize {
        self.block_bytes as usize / 4
    }

    /// A block whose queue reaches this many bytes is swept out of turn.
    #[must_use]
    pub fn oversized_queue_bytes(&self) -> usize {
        8 * self.block_bytes as usize
    }

    /// Most bytes that are spilled with one write: what the core gathers in one step, in a few
    /// milliseconds at most.
    #[must_use]
    pub fn spill_bytes_max(&self) -> usize {
        8 * self.spill_segment_bytes as usize
    }

    /// Memory for the buffers of runs and of the log, whatever the load: per run in the pipeline
    /// what is read and what is written, the batches of the log, and what spills write.
    #[must_use]
    pub fn fixed_bytes(&self) -> usize {
        let run = self.run_blocks_max * self.block_bytes as usize + self.oversized_queue_bytes();
        let batches = self.log_regions.len() * usize::from(self.log_depth) * 2 + 3;
        let spills = match self.spilling {
            Spilling::Never => 0,
            Spilling::WhenItPays | Spilling::Always => {
                SPILLS_IN_FLIGHT_MAX * self.spill_bytes_max()
            }
        };
        2 * run * self.runs_in_flight_max + batches * self.log_batch_bytes as usize + spills
    }

    /// The least budget with which an empty store works.
    #[must_use]
    pub fn memory_bytes_min(&self) -> usize {
        self.fixed_bytes() + self.cache_bytes + self.queue_bytes_min() + DIRECTORY_BYTES_MIN
    }

    /// Memory for queues in an empty store, which is the most that they ever have.
    #[must_use]
    pub fn queue_bytes_max(&self) -> usize {
        let others = self.fixed_bytes() + self.cache_bytes + DIRECTORY_BYTES_MIN;
        self.memory_bytes.saturating_sub(others).max(self.queue_bytes_min())
    }

    /// The least memory for queues with which the engine still makes progress.
    #[must_use]
    pub fn queue_bytes_min(&self) -> usize {
        2 * self.oversized_queue_bytes()
    }
}
