//! Options of stores and of changes. Methods set those of stores, so that more can be added later.

use std::path::PathBuf;

use super::clock::WallClock;
use super::description::Description;
use super::layout::CreateOptions;
use crate::device::Profile;
use crate::engine::Config;
use crate::engine::policy::{self, Scale, Shape};
use crate::error::{Error, RequestError};
use crate::log::{LogMode, Urgency};

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

    /// Sets [`CreateOptions::profiles`].
    #[must_use]
    pub fn profiles(mut self, profiles: Vec<Profile>) -> Self {
        self.profiles = profiles;
        self
    }
}

/// How to open a store: the defaults, unless set otherwise.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Memory for queues, directory, cache and buffers together, in bytes.
    pub memory_bytes: usize,
    /// Threads that apply updates; 0: one per processor, at most 4.
    pub workers: usize,
    /// Maximum length of a run, in blocks of the target size (1 to 1024; paper: 32); of smaller
    /// ones it may have up to four times as many. None: 32, but no more bytes than suit the
    /// devices, by their profile, and the memory, because that for the buffers of runs grows with
    /// their length in bytes.
    pub run_blocks_max: Option<usize>,
    /// Minimum fraction of a run's bytes in blocks with waiting updates, in per cent (paper: 50).
    pub run_density_percent_min: u32,
    /// Most runs that are read, applied or written at a time (1 to 64): one in each stage and a
    /// spare, unless more are given. The buffers of each take twice its length of the memory.
    pub runs_in_flight_max: usize,
    /// Batches in flight per log device (1 to 16; paper: 2). A new log is short and has room for 6;
    /// after it has grown, the next open allows more.
    pub log_depth: u8,
    /// Longest batch of the log, in bytes (a multiple of 4 KiB); longer ones than a quarter of a
    /// segment are cut to that. None: what suits the devices, by their profile, and 128 KiB without
    /// one, but at most a 256th of the memory if that is more.
    pub log_batch_bytes: Option<u32>,
    /// What the log writes while there are no records, and where it puts a lone one. All modes but
    /// the default, [`LogMode::Idle`], are for rotating drives that hold the log alone, and are
    /// refused if one of them holds data too.
    pub log_mode: LogMode,
    /// Target size of a spill segment, in bytes (1 to 131072). A query may have to read one as a
    /// whole, and the sweep reads one for several blocks. None: 16 KiB, and 64 KiB if a data device
    /// rotates.
    pub spill_segment_bytes: Option<u32>,
    /// Length of the requests of recovery and of bulk loads, in bytes (4 KiB to 4 MiB, a multiple
    /// of 4 KiB). None: what suits the devices, by their profile, 1 to 4 MiB, but above 1 MiB at
    /// most a 128th of the memory.
    pub bulk_request_bytes: Option<u32>,
    /// Longest request that reads ahead for a scan, in bytes (4 KiB to 16 MiB, a multiple of 4
    /// KiB), unless a single block is longer. On a solid-state device the one beside queries may be
    /// longer: give the number in flight, too, to prevent that. None: what suits the devices, by
    /// their profile, and 256 KiB without one.
    pub scan_request_bytes: Option<u32>,
    /// Requests in flight that read ahead for one scan (0 to 64); with 0 scans read block by block,
    /// and take no memory for it. None: 4, on rotating drives 2, as many more as an array has
    /// drives, and one for each drive while queries read, on solid-state devices of four times the
    /// length. All scans of a single rotating drive together have as many. What is read ahead for
    /// all scans takes at most a part of the memory, 8 MiB of 256 MiB.
    pub scan_requests_in_flight: Option<usize>,
    /// The source of the time of day: the system, unless a test sets another clock.
    pub wall_clock: WallClock,
    /// Whether the store has threads of its own. Without, its work is done by the calls that wait
    /// for something, and nothing happens between calls. On devices in virtual time
    /// ([`ThreadedDevices`](crate::device::ThreadedDevices)`::in_virtual_time`) the same calls from
    /// one thread then have the same results. Futures and callbacks make no progress by themselves:
    /// call [`BlockStore::work`](super::BlockStore::work). For simulations.
    pub has_threads: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let policy::Options {
            memory_bytes,
            run_blocks_max,
            run_density_percent_min,
            runs_in_flight_max,
            log_depth,
            log_batch_bytes,
            log_mode,
            spill_segment_bytes,
            bulk_request_bytes,
            scan_request_bytes,
            scan_requests_in_flight,
            ..
        } = policy::Options::default();
        let wall_clock = WallClock::default();
        Self {
            memory_bytes,
            workers: 0,
            run_blocks_max,
            run_density_percent_min,
            runs_in_flight_max,
            log_depth,
            log_batch_bytes,
            log_mode,
            spill_segment_bytes,
            bulk_request_bytes,
            scan_request_bytes,
            scan_requests_in_flight,
            wall_clock,
            has_threads: true,
        }
    }
}

impl OpenOptions {
    /// The configuration of a store opened with these options.
    pub(super) fn config(&self, shape: &Shape) -> Result<Config, Error> {
        let options = policy::Options {
            memory_bytes: self.memory_bytes,
            run_blocks_max: self.run_blocks_max,
            run_density_percent_min: self.run_density_percent_min,
            runs_in_flight_max: self.runs_in_flight_max,
            log_depth: self.log_depth,
            log_batch_bytes: self.log_batch_bytes,
            log_mode: self.log_mode,
            spill_segment_bytes: self.spill_segment_bytes,
            bulk_request_bytes: self.bulk_request_bytes,
            scan_request_bytes: self.scan_request_bytes,
            scan_requests_in_flight: self.scan_requests_in_flight,
            ..policy::Options::default()
        };
        let config = policy::configure(shape, &options, &Scale::FULL);
        config.check_ranges()?;
        policy::check_memory(shape, &options, &Scale::FULL)?;
        Ok(config)
    }

    /// Checks that the devices are those that the options are for.
    pub(super) fn check_devices(&self, description: &Description) -> Result<(), Error> {
        if self.log_mode == LogMode::Idle || !description.log_shares_device() {
            return Ok(());
        }
        let reason = format!(
            "{}, but a device holds both log and data: put the log on a drive of its own, or open \
             with idle",
            self.log_mode.name()
        );
        Err(RequestError::BadConfig { setting: "log mode", reason }.into())
    }

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

    /// Sets [`OpenOptions::runs_in_flight_max`].
    #[must_use]
    pub fn runs_in_flight_max(mut self, runs: usize) -> Self {
        self.runs_in_flight_max = runs;
        self
    }

    /// Sets [`OpenOptions::log_depth`].
    #[must_use]
    pub fn log_depth(mut self, batches: u8) -> Self {
        self.log_depth = batches;
        self
    }

    /// Sets [`OpenOptions::log_batch_bytes`].
    #[must_use]
    pub fn log_batch_bytes(mut self, bytes: u32) -> Self {
        self.log_batch_bytes = Some(bytes);
        self
    }

    /// Sets [`OpenOptions::log_mode`].
    #[must_use]
    pub fn log_mode(mut self, mode: LogMode) -> Self {
        self.log_mode = mode;
        self
    }

    /// Sets [`OpenOptions::spill_segment_bytes`].
    #[must_use]
    pub fn spill_segment_bytes(mut self, bytes: u32) -> Self {
        self.spill_segment_bytes = Some(bytes);
        self
    }

    /// Sets [`OpenOptions::bulk_request_bytes`].
    #[must_use]
    pub fn bulk_request_bytes(mut self, bytes: u32) -> Self {
        self.bulk_request_bytes = Some(bytes);
        self
    }

    /// Sets [`OpenOptions::scan_request_bytes`].
    #[must_use]
    pub fn scan_request_bytes(mut self, bytes: u32) -> Self {
        self.scan_request_bytes = Some(bytes);
        self
    }

    /// Sets [`OpenOptions::scan_requests_in_flight`].
    #[must_use]
    pub fn scan_requests_in_flight(mut self, requests: usize) -> Self {
        self.scan_requests_in_flight = Some(requests);
        self
    }

    /// Sets [`OpenOptions::has_threads`] to false.
    #[must_use]
    pub fn without_threads(mut self) -> Self {
        self.has_threads = false;
        self
    }

    /// Sets [`OpenOptions::wall_clock`].
    #[must_use]
    pub fn wall_clock(mut self, clock: WallClock) -> Self {
        self.wall_clock = clock;
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
    /// As soon as there is room for it; the change is in flight, and the `Ticket` can be waited on.
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
