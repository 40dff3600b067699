//! The configuration of a store for one open.

use super::growth::{GRANULE_BYTES, KEPT_BYTES_MIN, STEP_BYTES_MIN, WINDOW_US};
use super::limits::SCAN_REQUESTS_LIMIT;
use super::spill::{SPILL_FILL_PERCENT, SPILL_SEGMENT_BYTES, SPILL_SEGMENT_BYTES_ROTATING};
use super::suited::Suited;
use crate::device::Bulk;
use crate::engine::config::{Config, FANOUT_MIN, FileSpace, Spilling};
use crate::error::{Error, RequestError};
use crate::log::{DEPTH_MAX, LogMode, LogRegion, Motion, SPARE_SEGMENTS};
use crate::placement::{Boundaries, UNIT_BYTES};

/// Memory budget if none is given: 256 MiB.
pub const MEMORY_BYTES_DEFAULT: usize = 256 << 20;
/// Divisor of the memory that gives the cache for images of blocks.
pub const CACHE_PART: usize = 8;
/// Blocks are made larger where the directory would take more than this share of the memory, in per
/// cent.
const DIRECTORY_PERCENT: u32 = 20;
/// Most blocks of a run, if no other number is given (Bosc paper).
const RUN_BLOCKS_MAX: usize = 32;
/// Least part of a run that must have waiting updates, in per cent, if no other is given (Bosc
/// paper).
const RUN_DENSITY_PERCENT: u32 = 50;
/// Divisor of the memory that gives the length of a run, at most this many times what suits the
/// devices.
const RUN_PART: usize = 128;
const RUN_TIMES_MAX: usize = 8;
/// A run is as long as suits the devices, if that takes no more of the memory than this divisor
/// gives: the pipeline has eight times as much in its buffers.
const RUN_PART_SUITED: usize = 64;
/// Divisor of the memory that gives the share for the queues, or the large values, of one run.
const RUN_CONTENT_PART: usize = 32;
/// Runs in the pipeline, if no other number is given: one being read, one applied, one written, and
/// a spare because these take unequal times.
const RUNS_IN_FLIGHT_MAX: usize = 4;
/// Divisor of the memory that gives the longest request of recovery and bulk loads that is chosen:
/// four or more are in flight.
const BULK_PART: usize = 128;
/// Requests in flight for a scan on each rotating drive, if no other number is given: one is read
/// while the scan goes over another.
const SCAN_REQUESTS_ROTATING: usize = 2;
/// The same on a solid-state device, with requests half as long as stream alone: as many bytes in
/// flight as two of these, and each of them is there sooner.
const SCAN_REQUESTS: usize = 4;
/// The same on either while queries read of it: they wait for the requests before them, and a
/// drive that serves what is nearest goes on with a scan as long as it has its next request.
const SCAN_REQUESTS_BESIDE_QUERIES: usize = 1;
/// Bounds of a request that has the length of a unit between boundaries: of shorter ones it takes
/// several.
const SCAN_UNIT_BYTES_RANGE: (u64, u64) = (128 << 10, 4 << 20);
/// Whole tracks of a request on a single drive: beside others each begins with a seek, which takes
/// a third of the time of one track.
pub const SCAN_TRACKS: f64 = 4.0;
/// The same while queries read of it, which wait for its end, unless turns of scans are rare. As a
/// request ends at the end of a track, it has half to one and a half, wherever it begins.
const SCAN_TRACKS_BESIDE_QUERIES: f64 = 1.5;
/// Divisor of the memory that gives the share of all scans, within the two bounds below.
const SCAN_PART: usize = 32;
/// Least memory for what is read ahead: one scan at full speed.
const SCAN_BYTES_MIN: usize = 1 << 20;
/// Most memory for it: several scans at full speed.
const SCAN_BYTES_MAX: usize = 64 << 20;
/// A queue of this many bytes is folded for the first time.
const FOLD_BYTES_MIN: u64 = 4096;
/// The log grows up to this multiple of the data: a longer one hardly saves sweeps.
const LOG_TIMES_DATA: u32 = 4;
/// Batches in flight per log device, if no other number is given (Bosc paper).
const LOG_DEPTH: u8 = 2;
/// How long a relaxed update may wait for its batch to fill, in microseconds.
const LOG_DELAY_US_MAX: u64 = 5_000;
/// Divisor of a segment that gives the longest batch, which may not cross its end.
const LOG_BATCH_PART: u32 = 4;
/// Divisor of the memory that does the same: several batches are filled or under way.
const LOG_BATCH_PART_OF_MEMORY: usize = 256;
/// Least number of entries of a node that trees work with.
const FANOUT_LEAST: usize = 6;
/// Most threads that apply updates, if no other number is given.
const WORKERS_MAX: usize = 4;

/// Divisors of the production constants from which a configuration is computed; 0 counts as 1.
/// Simulated stores are small, so that many events happen in a short time. Every production store
/// uses [`Scale::FULL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Of blocks and runs, and of the queues that are folded.
    pub blocks: u32,
    /// Of the number of entries of a node of the directory. The same at every open of a store.
    pub nodes: u32,
    /// Of the share of the memory that the directory may take.
    pub directory: u32,
    /// Of segments of the log.
    pub log: u32,
    /// Of the maximum length of the log as a multiple of the data.
    pub log_times_data: u32,
    /// Of spill segments.
    pub spill_segments: u32,
    /// Of the steps in which files grow and shrink, and of the time for which returned space was
    /// free. It must not be smaller at later opens of a store.
    pub file_space: u32,
}

impl Scale {
    /// The scale of production.
    pub const FULL: Self = Self {
        blocks: 1,
        nodes: 1,
        directory: 1,
        log: 1,
        log_times_data: 1,
        spill_segments: 1,
        file_space: 1,
    };

    pub(super) fn part(full: u64, divisor: u32) -> u64 {
        full / u64::from(divisor.max(1))
    }
}

/// The properties of a store, fixed at creation, that determine its configuration.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Identity of the store.
    pub store: [u8; 16],
    /// Number of data devices; they are numbers 0.. of the bank.
    pub data_devices: u16,
    /// Whether any of them rotates.
    pub rotates: bool,
    /// The rings of the log at their maximum length.
    pub log_regions: Vec<LogRegion>,
    /// Least target size of a block, in bytes: [`block_bytes`](super::block_bytes).
    pub block_bytes: u32,
    /// Bytes of a segment of the log: [`log_segment_bytes`](super::log_segment_bytes).
    pub log_segment_bytes: u32,
    /// Bytes of a page of the log: [`log_page_bytes`](super::log_page_bytes).
    pub log_page_bytes: u32,
    /// What suits the devices.
    pub suited: Suited,
    /// Boundaries on each data device that images do not straddle; further devices have none.
    pub boundaries: Vec<Boundaries>,
}

/// Options chosen by the caller that opens a store.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memory for queues, directory, cache and buffers together, in bytes.
    pub memory_bytes: usize,
    /// Greatest length of a run, in blocks of the target size; `None`: depending on the memory.
    pub run_blocks_max: Option<usize>,
    /// Least part of a run that must have waiting updates, in per cent of its bytes.
    pub run_density_percent_min: u32,
    /// Most runs that are read, applied or written at a time.
    pub runs_in_flight_max: usize,
    /// Batches in flight per log device.
    pub log_depth: u8,
    /// Longest batch of the log, in bytes, but at most a quarter of a segment; `None`: what suits
    /// the devices, if there is memory for it.
    pub log_batch_bytes: Option<u32>,
    /// What the log writes while there are no records.
    pub log_mode: LogMode,
    /// How the log devices move, if that need not be measured.
    pub log_motion: Option<Motion>,
    /// When updates are spilled to the data devices.
    pub spilling: Spilling,
    /// How full queue memory has to be before updates are spilled for it, and the fill at which
    /// spills keep the log, in per cent; 0 to spill everything possible at once.
    pub spill_fill_percent: u32,
    /// Target size of a spill segment, in bytes; `None`: what suits the kind of the data devices.
    pub spill_segment_bytes: Option<u32>,
    /// Length of the requests of recovery and of bulk loads, in bytes; `None`: what suits the
    /// devices, if there is memory for it.
    pub bulk_request_bytes: Option<u32>,
    /// Longest request that reads ahead for a scan, in bytes; `None`: what suits the
    /// devices.
    pub scan_request_bytes: Option<u32>,
    /// Requests in flight that read ahead for one scan; `None`: the default.
    pub scan_requests_in_flight: Option<usize>,
}

impl Default for Options {
    /// The defaults, for when nothing is known.
    fn default() -> Self {
        Self {
            memory_bytes: MEMORY_BYTES_DEFAULT,
            run_blocks_max: None,
            run_density_percent_min: RUN_DENSITY_PERCENT,
            runs_in_flight_max: RUNS_IN_FLIGHT_MAX,
            log_depth: LOG_DEPTH,
            log_batch_bytes: None,
            log_mode: LogMode::Idle,
            log_motion: None,
            spilling: Spilling::WhenItPays,
            spill_fill_percent: SPILL_FILL_PERCENT,
            spill_segment_bytes: None,
            bulk_request_bytes: None,
            scan_request_bytes: None,
            scan_requests_in_flight: None,
        }
    }
}

/// The configuration with which a store is opened.
#[must_use]
pub fn configure(shape: &Shape, options: &Options, scale: &Scale) -> Config {
    let memory_bytes = options.memory_bytes;
    let spill_segment_bytes =
        if shape.rotates { SPILL_SEGMENT_BYTES_ROTATING } else { SPILL_SEGMENT_BYTES };
    let spill_segment_bytes = Scale::part(u64::from(spill_segment_bytes), scale.spill_segments);
    let spill_segment_bytes = spill_segment_bytes.max(1) as u32;
    let scans = scan_requests(shape, options);
    Config {
        store: shape.store,
        data_devices: shape.data_devices,
        log_regions: shape.log_regions.clone(),
        log_times_data: Scale::part(u64::from(LOG_TIMES_DATA), scale.log_times_data) as u32,
        log_segment_bytes: shape.log_segment_bytes,
        log_page_bytes: shape.log_page_bytes,
        log_batch_bytes: log_batch_bytes(shape, options),
        log_depth: log_depth(shape, options.log_depth),
        log_delay_us_max: LOG_DELAY_US_MAX,
        log_mode: options.log_mode,
        log_motion: options.log_motion,
        block_bytes: shape.block_bytes,
        directory_percent: Scale::part(u64::from(DIRECTORY_PERCENT), scale.directory) as u32,
        memory_bytes,
        cache_bytes: memory_bytes / CACHE_PART,
        cache_borrows: true,
        fold_bytes_min: Scale::part(FOLD_BYTES_MIN, scale.blocks) as u32,
        run_blocks_max: options
            .run_blocks_max
            .unwrap_or_else(|| run_blocks_max(shape, memory_bytes, scale)),
        run_bytes_max: memory_bytes / RUN_CONTENT_PART,
        run_density_percent_min: options.run_density_percent_min,
        runs_in_flight_max: options.runs_in_flight_max,
        scan_request_bytes: scans.bytes,
        scan_requests_in_flight: scans.in_flight,
        scan_request_bytes_beside_queries: scans.bytes_beside_queries,
        scan_requests_beside_queries: scans.beside_queries,
        scans_take_turns: scans.take_turns,
        scan_request_bytes_following: scans.bytes_following,
        scan_bytes_max: scan_bytes_max(scans.in_flight, memory_bytes, scale),
        bulk: bulk(shape, options),
        fanout_min: (FANOUT_MIN / (scale.nodes.max(1) as usize)).max(FANOUT_LEAST),
        spilling: options.spilling,
        spill_fill_percent: options.spill_fill_percent,
        spill_segment_bytes: options.spill_segment_bytes.unwrap_or(spill_segment_bytes),
        sweep_when_idle: shape.rotates,
        sweep_for_queries: !shape.rotates,
        file_space: file_space(scale),
        boundaries: shape.boundaries.clone(),
    }
}

/// Batches in flight per log device: as many as requested, but no more than the shortest log has
/// segments for. A new log is short; once it has grown, the next open allows more. Values out of
/// range are kept, for [`Config::check`] to refuse.
fn log_depth(shape: &Shape, wanted: u8) -> u8 {
    let segments = |region: &LogRegion| region.bytes / u64::from(shape.log_segment_bytes);
    let segments = shape.log_regions.iter().map(segments).min().unwrap_or(0);
    let possible = segments.saturating_sub(SPARE_SEGMENTS).max(LOG_DEPTH.into());
    if wanted <= DEPTH_MAX { possible.min(wanted.into()) as u8 } else { wanted }
}

/// The least budget with which an empty store of this shape opens, in bytes, independent of the
/// budget in `options`. As cache and runs grow with the budget, this is more than a smaller budget
/// lacks.
#[must_use]
pub fn memory_bytes_min(shape: &Shape, options: &Options, scale: &Scale) -> usize {
    let needed = |memory_bytes: usize| {
        configure(shape, &Options { memory_bytes, ..*options }, scale).memory_bytes_min()
    };
    // The smallest larger budgets with which runs are a block longer, or batches a page, so that
    // they need more at once.
    let steps = [
        RUN_PART_SUITED.saturating_mul((shape.block_bytes as usize).max(1)),
        LOG_BATCH_PART_OF_MEMORY * 4096,
    ];
    let mut memory_bytes = 0;
    // The requirement grows by less than half of the budget, so the loop terminates.
    loop {
        let longer = steps.map(|step| (memory_bytes / step + 1).saturating_mul(step));
        // More memory must not be too little.
        let too_little = longer.into_iter().find(|longer| needed(*longer) > *longer);
        memory_bytes = match needed(memory_bytes) {
            more if more > memory_bytes => more,
            _ => match too_little {
                Some(longer) => longer,
                None => return memory_bytes,
            },
        };
    }
}

/// Checks that the budget is enough for an empty store.
///
/// # Errors
/// [`RequestError::BadConfig`] with the minimum.
pub fn check_memory(shape: &Shape, options: &Options, scale: &Scale) -> Result<(), Error> {
    let (given, least) = (options.memory_bytes, memory_bytes_min(shape, options, scale));
    if given >= least {
        return Ok(());
    }
    let needed = least.div_ceil(1 << 20);
    let reason = format!("{given} bytes; this store needs at least {needed}MiB");
    Err(RequestError::BadConfig { setting: "memory", reason }.into())
}

/// Threads that apply updates: the number `asked` for, or one per processor up to a limit.
#[must_use]
pub fn workers(asked: usize, processors: usize) -> usize {
    if asked > 0 { asked } else { processors.clamp(1, WORKERS_MAX) }
}

/// Bytes of a batch of the log: whole pages of any length. If none is given, it is longer than
/// where nothing is known of the devices only with memory for it. One that is not whole pages is
/// kept, for [`Config::check`] to refuse.
fn log_batch_bytes(shape: &Shape, options: &Options) -> u32 {
    let most = (shape.log_segment_bytes / LOG_BATCH_PART / 4096 * 4096).max(4096);
    let suited = || {
        let any = Suited::default().log_batch_bytes;
        let of_memory = (options.memory_bytes / LOG_BATCH_PART_OF_MEMORY) as u64;
        let bytes = shape.suited.log_batch_bytes.min(of_memory.max(any));
        ((bytes - bytes % 4096) as u32).max(4096)
    };
    options.log_batch_bytes.unwrap_or_else(suited).min(most)
}

/// Bounded in bytes too, because the buffers of runs take memory from waiting updates, however
/// large the blocks are.
fn run_blocks_max(shape: &Shape, memory_bytes: usize, scale: &Scale) -> usize {
    let scaled = |bytes: u64| (Scale::part(bytes, scale.blocks) as usize).max(1);
    let (suited, any) = (scaled(shape.suited.run_bytes), scaled(Suited::default().run_bytes));
    let least = suited.min((memory_bytes / RUN_PART_SUITED).max(any));
    let run_bytes = (memory_bytes / RUN_PART).clamp(least, RUN_TIMES_MAX * suited);
    (run_bytes / shape.block_bytes.max(1) as usize).clamp(1, RUN_BLOCKS_MAX)
}

/// How scans read ahead: as the fields of [`Config`].
struct ScanRequests {
    bytes: u32,
    in_flight: usize,
    bytes_beside_queries: u32,
    beside_queries: usize,
    take_turns: bool,
    bytes_following: Option<u32>,
}

/// How scans read ahead. On a rotating device with boundaries a request has the length of whole
/// units: one of whole tracks waits for no sector, and one of a whole stripe unit moves one head.
/// Of an array, as many drives as there are have a default number of requests each. Where one head
/// serves all, scans take turns; if it is known how the drive reads ahead, a request that goes on
/// where the head is need not be long. Where a device serves requests at the same time, as many
/// bytes are in flight beside queries as otherwise, in fewer requests: the slowest queries were
/// faster beside these.
fn scan_requests(shape: &Shape, options: &Options) -> ScanRequests {
    let is_array = shape.suited.stripe_bytes > 0;
    let length = |tracks| {
        let units = if is_array { 1.0 } else { tracks };
        let of_units = scan_units_bytes(shape.rotates, &shape.boundaries, units);
        let suited = of_units.unwrap_or(shape.suited.scan_request_bytes as u32);
        options.scan_request_bytes.unwrap_or(suited)
    };
    let bytes = length(SCAN_TRACKS);
    let drives = shape.suited.stripe_bytes.div_ceil(u64::from(bytes.max(1)));
    let each = if shape.rotates { SCAN_REQUESTS_ROTATING } else { SCAN_REQUESTS };
    let drives = drives.clamp(1, (SCAN_REQUESTS_LIMIT / each) as u64) as usize;
    let chosen = (drives * each, drives * SCAN_REQUESTS_BESIDE_QUERIES);
    let (in_flight, beside_queries) =
        options.scan_requests_in_flight.map_or(chosen, |given| (given, given));
    let times = (in_flight / beside_queries.max(1)).max(1) as u32;
    let bytes_beside_queries = match shape.rotates {
        true => length(SCAN_TRACKS_BESIDE_QUERIES),
        false => bytes.saturating_mul(times),
    };
    let take_turns = shape.rotates && !is_array;
    let following = shape.suited.following_request_bytes.unwrap_or(u64::MAX);
    let is_short = take_turns
        && options.scan_request_bytes.is_none()
        && following < u64::from(bytes_beside_queries);
    let bytes_following = is_short.then_some(following as u32);
    ScanRequests {
        bytes,
        in_flight,
        bytes_beside_queries,
        beside_queries,
        take_turns,
        bytes_following,
    }
}

/// Bytes of a request of a scan of so many units between these boundaries, of the longest. `None`
/// without boundaries, and on devices that do not rotate.
#[must_use]
pub fn scan_units_bytes(rotates: bool, boundaries: &[Boundaries], units: f64) -> Option<u32> {
    let longest = boundaries.iter().filter_map(Boundaries::unit_bytes_max).max();
    let (least, most) = SCAN_UNIT_BYTES_RANGE;
    let of_units = |bytes: u64| {
        let wanted = ((bytes as f64 * units) as u64).min(most);
        wanted.next_multiple_of(UNIT_BYTES).max(least) as u32
    };
    longest.filter(|_| rotates).map(of_units)
}

/// Requests of recovery and of bulk loads. If no length is given, it is longer than where nothing
/// is known of the devices only with memory for it.
fn bulk(shape: &Shape, options: &Options) -> Bulk {
    let Suited { gap_bytes, bulk_request_bytes, bulk_requests_in_flight, .. } = shape.suited;
    let suited = || {
        let any = Suited::default().bulk_request_bytes;
        let of_memory = (options.memory_bytes / BULK_PART) as u64;
        let bytes = bulk_request_bytes.min(of_memory.max(any));
        (bytes - bytes % UNIT_BYTES) as u32
    };
    Bulk {
        request_bytes: options.bulk_request_bytes.unwrap_or_else(suited),
        requests_in_flight: bulk_requests_in_flight,
        gap_bytes_max: if shape.rotates { gap_bytes } else { 0 },
    }
}

/// Memory for what is read ahead for all scans; none if they do not.
fn scan_bytes_max(requests_in_flight: usize, memory_bytes: usize, scale: &Scale) -> usize {
    if requests_in_flight == 0 {
        return 0;
    }
    let scaled = |bytes: usize| Scale::part(bytes as u64, scale.blocks) as usize;
    (memory_bytes / SCAN_PART).clamp(scaled(SCAN_BYTES_MIN), scaled(SCAN_BYTES_MAX))
}

/// How data files grow and shrink.
pub(super) fn file_space(scale: &Scale) -> FileSpace {
    let scaled = |full| Scale::part(full, scale.file_space);
    let granule = scaled(GRANULE_BYTES);
    FileSpace {
        step_bytes_min: scaled(STEP_BYTES_MIN),
        granule_bytes: (granule - granule % UNIT_BYTES).max(UNIT_BYTES),
        kept_bytes_min: scaled(KEPT_BYTES_MIN),
        window_us: scaled(WINDOW_US),
    }
}

#[cfg(test)]
pub(super) mod tests;
