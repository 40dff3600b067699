//! What a store of the product's engine is to be, and the configuration that follows: the one that
//! production computes, except where a plan says otherwise.

use upsweep::layers::device::{DeviceId, Profile, Simulated};
use upsweep::layers::engine::policy::{self, CACHE_PART, Options, Scale, Shape, Suited};
use upsweep::layers::engine::{Config, Spilling};
use upsweep::layers::log::{LogMode, LogRegion};

use super::pages::Records;

/// Bytes that a record takes in a block besides its key and value, about.
const RECORD_OVERHEAD_BYTES: u64 = 4;
/// Memory of the directory for a block, about, in bytes.
const DIRECTORY_BYTES_PER_BLOCK: u64 = 170;

/// What of a cache the sweep needs for spill segments, which does not become smaller with the rest
/// of a store.
const CACHE_BYTES: usize = 4 << 20;

/// In which order a store has its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An ordered table.
    Table,
    /// A hash table.
    HashTable,
}

/// The memory of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// So many bytes for everything, as an application gives it.
    Whole(u64),
    /// So many bytes for updates that wait, and besides these what everything else needs.
    Queues(u64),
    /// So many bytes for updates that wait and the directory, and besides these what everything
    /// else needs: for a store that is smaller than the one that it stands for, as buffers do not
    /// become smaller with it.
    Shrunk(u64),
    /// As [`Memory::Shrunk`], with one of so many parts of what a store with so many bytes for
    /// everything has for updates that wait and the directory.
    Part(u64, u64),
    /// So many bytes for the cache of images, and what everything else gets beside such a cache, or
    /// needs at least.
    Cache(u64),
}

impl Memory {
    /// Its bytes, whatever they are for.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Whole(bytes) | Self::Queues(bytes) | Self::Shrunk(bytes) | Self::Cache(bytes) => {
                bytes
            }
            Self::Part(bytes, parts) => bytes / parts,
        }
    }
}

/// What a store is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// In which order it has its records.
    pub(crate) kind: Kind,
    /// Devices of the bank that hold data: the first ones. The others hold the log.
    pub(crate) data_devices: u16,
    /// Bytes of the log on each of its devices.
    pub(crate) log_bytes: u64,
    /// What the log writes while there are no records, and where it writes them.
    pub(crate) log_mode: LogMode,
    /// The memory of the store.
    pub(crate) memory: Memory,
    /// Bytes of a block, however much memory the directory then takes; `None`: as production
    /// chooses them.
    pub(crate) block_bytes: Option<u32>,
    /// Whether updates are swept as soon as they wait, as production does on drives; else only when
    /// room is needed.
    pub(crate) sweeps_when_idle: bool,
    /// Whether updates may be spilled to the data devices, as production does where it pays.
    pub(crate) spills: bool,
    /// Bytes of a record, key and value: 16 at least.
    pub(crate) record_bytes: u64,
    /// How full the blocks are initially, in per cent.
    pub(crate) fill_percent: u32,
    /// Processor time of an operation.
    pub(crate) processor_us: u64,
    /// For how long the caller of a scan processes each block, in microseconds.
    pub(crate) scan_block_us: u64,
    /// Workers that apply updates, each on a processor of its own.
    pub(crate) workers: usize,
    /// How scans read ahead.
    pub(crate) read_ahead: ReadAhead,
}

/// How scans read ahead, as options of production.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadAhead {
    /// Bytes of a request; `None`: as production chooses them.
    pub(crate) request_bytes: Option<u32>,
    /// Requests in flight; `None`: as production chooses them.
    pub(crate) requests_in_flight: Option<usize>,
}

impl ReadAhead {
    /// Not at all, so that no memory is kept for it.
    pub(crate) const NONE: Self = Self { request_bytes: None, requests_in_flight: Some(0) };
    /// As production does.
    pub(crate) const CHOSEN: Self = Self { request_bytes: None, requests_in_flight: None };
}

/// The configuration of a store with these records on these devices, all of which have this
/// profile, if it is known.
pub(super) fn config(
    plan: &Plan,
    records: Records,
    devices: &dyn Simulated,
    profile: Option<&Profile>,
) -> Config {
    let log_regions: Vec<_> = (plan.data_devices..devices.count())
        .map(|device| LogRegion { device: DeviceId(device), offset: 4096, bytes: plan.log_bytes })
        .collect();
    let rings: Vec<u64> = log_regions.iter().map(|region| region.bytes).collect();
    let rotates = devices.geometry(DeviceId(0)).rotational;
    let unit_bytes = devices.geometry(DeviceId(plan.data_devices)).physical_block_bytes;
    let block_bytes = policy::block_bytes(rotates, plan.block_bytes, &Scale::FULL);
    let boundaries = profile.map(|profile| policy::boundaries(profile, block_bytes));
    let stripe_bytes = profile.map_or(0, policy::stripe_bytes);
    let shape = Shape {
        store: *b"upsweep-lab-0001",
        data_devices: plan.data_devices,
        rotates,
        block_bytes,
        log_segment_bytes: policy::log_segment_bytes(&rings, &Scale::FULL),
        log_page_bytes: unit_bytes.clamp(512, 4096),
        suited: Suited { stripe_bytes, ..Suited::of(profile, profile) },
        boundaries: vec![boundaries.unwrap_or_default(); usize::from(plan.data_devices)],
        log_regions,
    };
    let configured = |memory_bytes| {
        let spilling = if plan.spills { Spilling::WhenItPays } else { Spilling::Never };
        let log_mode = plan.log_mode;
        let options = Options {
            memory_bytes,
            log_mode,
            spilling,
            scan_request_bytes: plan.read_ahead.request_bytes,
            scan_requests_in_flight: plan.read_ahead.requests_in_flight,
            ..Options::default()
        };
        let mut config = policy::configure(&shape, &options, &Scale::FULL);
        if plan.block_bytes.is_some() {
            config.directory_percent = 100;
        }
        Config { sweep_when_idle: plan.sweeps_when_idle, ..config }
    };
    let blocks = plan.blocks(records, shape.block_bytes);
    match plan.memory {
        Memory::Whole(bytes) => configured(bytes as usize),
        Memory::Cache(bytes) => {
            let mut memory_bytes = bytes as usize * CACHE_PART;
            let mut config = configured(memory_bytes);
            while config.memory_bytes_min() > memory_bytes {
                memory_bytes = config.memory_bytes_min();
                config = configured(memory_bytes);
            }
            Config { cache_bytes: bytes as usize, cache_borrows: false, ..config }
        }
        Memory::Queues(bytes) => besides(bytes + blocks * DIRECTORY_BYTES_PER_BLOCK, configured),
        Memory::Shrunk(bytes) => besides(bytes, configured),
        Memory::Part(whole, parts) => {
            let of_whole = configured(whole as usize);
            let config = besides(of_whole.queue_bytes_max() as u64 / parts, configured);
            let cache_bytes = of_whole.cache_bytes.min(CACHE_BYTES).max(config.cache_bytes);
            let memory_bytes = config.memory_bytes + cache_bytes - config.cache_bytes;
            // The directory may take the same share of what it would have of the whole.
            let directory_bytes = u64::from(of_whole.directory_percent) * whole / parts;
            let percent = directory_bytes.div_ceil(memory_bytes as u64);
            Config { directory_percent: percent as u32, cache_bytes, memory_bytes, ..config }
        }
    }
}

/// The configuration in which so many bytes are for updates that wait and the directory.
fn besides(bytes: u64, configured: impl Fn(usize) -> Config) -> Config {
    let wanted = bytes as usize;
    let (mut memory_bytes, mut lacks) = (0, wanted);
    while lacks > 0 {
        memory_bytes += lacks;
        let config = configured(memory_bytes);
        let least = config.memory_bytes_min().saturating_sub(memory_bytes);
        lacks = least.max(wanted.saturating_sub(config.queue_bytes_max()));
    }
    configured(memory_bytes)
}

impl Plan {
    /// A table whose blocks, sweep and spills are as production has them: what all plans begin
    /// with.
    pub(crate) const TABLE: Self = Self {
        kind: Kind::Table,
        data_devices: 1,
        log_bytes: 1 << 30,
        log_mode: LogMode::Idle,
        memory: Memory::Whole(256 << 20),
        block_bytes: None,
        sweeps_when_idle: true,
        spills: true,
        record_bytes: 16,
        fill_percent: 70,
        processor_us: 0,
        scan_block_us: 0,
        workers: 2,
        read_ahead: ReadAhead::NONE,
    };

    /// Blocks that these records fill, about, if a block has so many bytes.
    pub(super) fn blocks(&self, records: Records, block_bytes: u32) -> u64 {
        let bytes = records.count * (self.record_bytes + RECORD_OVERHEAD_BYTES);
        bytes * 100 / u64::from(self.fill_percent.max(1)) / u64::from(block_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::banks;
    use super::*;

    #[test]
    fn a_part_of_a_memory_is_divided_as_the_whole() {
        let of = |memory| {
            let plan = Plan { log_bytes: 64 << 20, memory, ..Plan::TABLE };
            let drives = banks::drives("dtla307030", 2, None, 1).expect("drives");
            config(&plan, Records { count: 1000, stride: 1 }, &*drives, None)
        };
        let (whole, part) = (of(Memory::Whole(1 << 30)), of(Memory::Part(1 << 30, 64)));
        assert_eq!(part.queue_bytes_max(), whole.queue_bytes_max() / 64);
        let directory_bytes =
            |config: &Config| config.memory_bytes * config.directory_percent as usize / 100;
        let times = directory_bytes(&whole) as f64 / directory_bytes(&part) as f64;
        // A share is in whole per cent.
        assert!((48.0..=64.0).contains(&times), "{times}");
    }
}
