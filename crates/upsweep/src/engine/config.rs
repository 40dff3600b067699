//! The engine's configuration at open, and constants common to all stores.
//!
//! `policy` computes a configuration, and everything that follows from one.

use crate::device::Bulk;
use crate::log::{LogMode, LogRegion, Motion};
use crate::placement::Boundaries;

/// Longest key of a record, in bytes.
pub const KEY_BYTES_MAX: usize = 4096;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Longest operand: a value and the byte that gives its kind, or an offset.
pub const OPERAND_BYTES_MAX: usize = VALUE_BYTES_MAX + 16;
/// Longest text of a refusal that is kept, in bytes.
pub const REASON_BYTES_MAX: usize = 256;
/// Longest value that is stored, in bytes. The application's are at most [`VALUE_BYTES_MAX`] long,
/// and every update that they can be part of must fit in the quarantine, whose entries have its
/// key, its operand, the reason, and some numbers.
pub const STORED_BYTES_MAX: usize = OPERAND_BYTES_MAX + KEY_BYTES_MAX + REASON_BYTES_MAX + 64;
/// Start of the managed range of a data device: after the label and the superblock slots.
pub const DATA_START: u64 = 4 * 4096;
/// Offsets of the two superblock slots on the first data device.
pub const SUPERBLOCK_SLOTS: [u64; 2] = [4096, 2 * 4096];

/// Least number of entries of a node of the directory: at the maximum, 192, with short keys, a node
/// fills one image.
pub const FANOUT_MIN: usize = 64;

/// How data files grow, and when their free space goes back to the file system. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSpace {
    /// Smallest step in which a data file grows, unless its file system has less.
    pub step_bytes_min: u64,
    /// Unit of holes and of all steps, a multiple of 4 KiB. A store that was opened with one is
    /// never opened with a larger one: a granule that it assumes to be allocated might contain a
    /// hole.
    pub granule_bytes: u64,
    /// Least free space that a store keeps beyond what is reserved. It keeps a quarter of the used
    /// space if that is more.
    pub kept_bytes_min: u64,
    /// Only space that was free for this long, in microseconds, goes back.
    pub window_us: u64,
}

/// When updates are spilled to the data devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spilling {
    /// Never.
    Never,
    /// For the log when that fills before memory does; for memory where it pays.
    WhenItPays,
    /// Whenever memory or log is filled to the level that [`Config`] gives.
    Always,
}

/// Settings of one open store. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Identity of the store.
    pub store: [u8; 16],
    /// Number of data devices; they are numbers 0.. of the bank.
    pub data_devices: u16,
    /// The rings of the log at their maximum length. A shorter file is extended as needed; on any
    /// other device the ring stays as long as the device permits.
    pub log_regions: Vec<LogRegion>,
    /// The log is extended up to this multiple of the data: see `engine/log_growth.rs`.
    pub log_times_data: u32,
    /// Bytes of a log segment.
    pub log_segment_bytes: u32,
    /// Bytes of a page of the log; batches are whole pages (512 to 4096, a power of two). The same
    /// at every open of a store.
    pub log_page_bytes: u32,
    /// Capacity of a log batch (4 KiB to 4 MiB).
    pub log_batch_bytes: u32,
    /// Batches in flight per log device (1 to 64).
    pub log_depth: u8,
    /// How long a relaxed update may wait for its batch to fill, in microseconds.
    pub log_delay_us_max: u64,
    /// What the log writes while there are no records.
    pub log_mode: LogMode,
    /// How the log devices move, if known: see
    /// [`LogConfig::motion`](crate::log::LogConfig::motion).
    pub log_motion: Option<Motion>,
    /// Least target size of a block (4 KiB to 1 MiB, a multiple of 4 KiB): the engine makes larger
    /// ones where the directory would take too much of the memory.
    pub block_bytes: u32,
    /// Share of the memory that the directory may take before blocks are made larger, in per cent.
    pub directory_percent: u32,
    /// Memory for queues, directory, cache and buffers together.
    pub memory_bytes: usize,
    /// Share of the memory for cached images, in bytes.
    pub cache_bytes: usize,
    /// Whether cached images may also take the memory for queues that these do not use.
    pub cache_borrows: bool,
    /// A queue that reaches this many bytes is folded for the first time.
    pub fold_bytes_min: u32,
    /// Greatest length of a run, in blocks of the target size (paper: 32).
    pub run_blocks_max: usize,
    /// Bytes of queues, and of large values, that a run processes, unless a single block has more.
    pub run_bytes_max: usize,
    /// Smallest part of a run that must have waiting updates, in per cent of its bytes (paper: 50).
    pub run_density_percent_min: u32,
    /// Concurrent runs that hold buffers: that are read, applied or written.
    pub runs_in_flight_max: usize,
    /// Longest request that reads ahead for a scan, in bytes, unless a single block is longer.
    pub scan_request_bytes: u32,
    /// Requests in flight that read ahead for one scan (0 to 64); 0 to read block by block.
    pub scan_requests_in_flight: usize,
    /// The longest request while queries read of the devices.
    pub scan_request_bytes_beside_queries: u32,
    /// Requests in flight for one scan meanwhile.
    pub scan_requests_beside_queries: usize,
    /// Whether scans take turns: all together have as many requests in flight on a device as one
    /// has. If there are several, these are as long beside queries as otherwise. So are those of
    /// one scan if queries use the device as much as they may, unless it is far ahead.
    pub scans_take_turns: bool,
    /// The longest request beside queries of the only scan that takes turns, if nothing else was
    /// requested since its last one. `None` if such requests are as long as others.
    pub scan_request_bytes_following: Option<u32>,
    /// Memory for what is read ahead for all scans together, in bytes.
    pub scan_bytes_max: usize,
    /// Requests of recovery and of bulk loads. The gap is that of scans, too.
    pub bulk: Bulk,
    /// Least number of entries of a node of the directory; the maximum is three times that. The
    /// same at every open of a store.
    pub fanout_min: usize,
    /// When updates are spilled to the data devices.
    pub spilling: Spilling,
    /// How full queue memory has to be before updates are spilled for it, and the fill at which
    /// spills keep the log, in per cent; 0 to spill everything possible at once.
    pub spill_fill_percent: u32,
    /// Target size of a spill segment of spilled updates.
    pub spill_segment_bytes: u32,
    /// Sweep whatever waits while no caller reads, instead of only when memory or log space
    /// requires it.
    pub sweep_when_idle: bool,
    /// Sweep also for queries: for each byte of waiting updates that they go through, the sweep may
    /// move one byte of blocks. Not on rotating drives, where a query takes the time of a seek.
    pub sweep_for_queries: bool,
    /// How data files grow and shrink.
    pub file_space: FileSpace,
    /// Boundaries on each data device that images do not straddle; further devices have none.
    pub boundaries: Vec<Boundaries>,
}
