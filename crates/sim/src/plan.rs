//! What a seed stands for: the devices, the settings of the store and the faults of one history.

use upsweep::layers::device::{DeviceId, Geometry, HostileDevices, LatencyModel, MemoryDevices};
use upsweep::layers::engine::{Config, DATA_START, FileSpace, Spilling};
use upsweep::layers::log::LogRegion;

use crate::bank::Bank;
use crate::random::Random;

/// Up to how many times the data logs are made longer.
const LOG_TIMES_DATA: [u32; 4] = [0, 4, 1000, u32::MAX];

/// What kind of trouble a history has, besides power cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Power cuts only.
    Crashes,
    /// Writes fail at some time; the store is closed and opened again.
    WriteErrors,
    /// Bits flip and sectors become unreadable on the data devices.
    DataDamage,
    /// Bits flip in the log.
    LogDamage,
}

/// One history, as far as it is decided beforehand.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of everything.
    pub seed: u64,
    /// Settings of the store at its first open.
    pub config: Config,
    /// The trouble.
    pub trouble: Trouble,
    /// Sizes of the data devices in bytes.
    pub data_bytes: Vec<u64>,
    /// Bytes of a logical block of the log devices, at most a page of the log.
    pub log_block_bytes: u32,
    /// Segments of each log device at the beginning, if they are to be fewer than later.
    pub log_segments_first: Option<u64>,
    /// Whether data devices can grow.
    pub growable: bool,
    /// Size beyond which growth fails, in bytes.
    pub capacity_bytes: Option<u64>,
    /// How fast the devices are.
    pub latency: LatencyModel,
    /// Distinct keys that the workload scatters over.
    pub keys: u64,
    /// Longest ordinary key, in bytes.
    pub key_bytes_max: u64,
    /// Whether sweeps and checkpoints are asked for, or left to the engine.
    pub sweeps: bool,
    /// Power cuts in 10,000 steps.
    pub cuts: u64,
    /// Longest time that a job takes, in microseconds.
    pub job_us_max: u64,
    /// Whether tables are cloned and kept in snapshots.
    pub clones: bool,
    /// Whether empty tables are filled by bulk loads.
    pub loads: bool,
    /// Whether ranges of keys are removed.
    pub ranges: bool,
    /// Whether additions to the same few keys come in bursts, also beside a running sweep.
    pub bursts: bool,
    /// Whether some of the tables are hash tables.
    pub hash_tables: bool,
    /// Whether some tables are arrays.
    pub arrays: bool,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, "plan");
        let trouble = match random.below(10) {
            0 | 1 => Trouble::WriteErrors,
            2 => Trouble::DataDamage,
            3 => Trouble::LogDamage,
            _ => Trouble::Crashes,
        };
        let mut config = config(&mut random);
        let mut of_queues = Random::new(seed, "queues");
        let mut of_log = Random::new(seed, "log pages");
        config.log_page_bytes = of_log.pick(&[512, 1024, 4096]);
        config.fold_bytes_min = of_queues.pick(&[64, 512, 4096]);
        config.run_bytes_max = of_queues.pick(&[1, 4 << 10, 64 << 10]);
        // The smallest log that any depth takes, a quarter of the time.
        if of_log.percent(25) {
            let bytes = 6 * u64::from(config.log_segment_bytes);
            config.log_regions.iter_mut().for_each(|region| region.bytes = bytes);
        }
        let log_segments_first = log_growth(&mut config, &mut Random::new(seed, "log growth"));
        let log_block_bytes = of_log.pick(&[512, config.log_page_bytes]);
        config.file_space = file_space(&mut Random::new(seed, "file space"));
        let least = config.memory_bytes_min();
        draw_spills(&mut config, &mut Random::new(seed, "spills"));
        config.memory_bytes += config.memory_bytes_min() - least;
        let mut of_structures = Random::new(seed, "structures");
        let growable = random.percent(60);
        let small = random.percent(30);
        let data_bytes = (0..config.data_devices)
            .map(|_| match (growable, small) {
                (true, _) => DATA_START + random.pick(&[0, 64 * KIB, MIB]),
                (false, true) => random.between(12, 80) * 8 * KIB,
                (false, false) => random.between(8, 32) * MIB,
            })
            .collect();
        let capacity_bytes =
            (growable && random.percent(15)).then(|| random.between(1, 8) * MIB / 2);
        let latency = LatencyModel {
            base_us: random.pick(&[1, 20, 100, 2000]),
            bytes_per_us: random.pick(&[50, 500, 2000]),
            jitter_us: random.pick(&[0, 10, 300, 5000]),
        };
        Self {
            seed,
            config,
            trouble,
            data_bytes,
            log_block_bytes,
            log_segments_first,
            growable,
            capacity_bytes,
            latency,
            keys: random.pick(&[3, 30, 300, 3000]),
            key_bytes_max: random.pick(&[8, 24, 24, 300]),
            sweeps: random.percent(60),
            cuts: random.pick(&[0, 10, 30, 100, 300]),
            job_us_max: random.pick(&[0, 50, 1000, 20_000]),
            clones: of_structures.percent(70),
            ranges: of_structures.percent(60),
            loads: Random::new(seed, "loads").percent(40),
            bursts: of_queues.percent(25),
            hash_tables: of_structures.percent(40),
            arrays: of_structures.percent(40),
        }
    }

    /// The devices, empty.
    #[must_use]
    pub fn bank(&self) -> Bank {
        let mut geometries = Vec::new();
        for size_bytes in &self.data_bytes {
            geometries.push(geometry(*size_bytes, 4096, self.growable));
        }
        for region in &self.config.log_regions {
            let block_bytes = self.log_block_bytes;
            let segment_bytes = u64::from(self.config.log_segment_bytes);
            let first = self.log_segments_first.map(|segments| segments * segment_bytes);
            let first = first.filter(|first| *first < region.bytes);
            let size = region.offset + first.unwrap_or(region.bytes);
            geometries.push(geometry(size, block_bytes, first.is_some()));
        }
        let mut memory = MemoryDevices::new(geometries, self.seed);
        memory.set_latency(self.latency);
        let mut devices = HostileDevices::new(memory, self.seed);
        if let Some(bytes) = self.capacity_bytes {
            for device in 0..self.config.data_devices {
                devices.set_capacity(DeviceId(device), bytes);
            }
        }
        Bank::new(devices)
    }

    /// Whether the store may run out of space.
    #[must_use]
    pub fn may_be_full(&self) -> bool {
        !self.growable || self.capacity_bytes.is_some()
    }

    /// The settings at a later open: what may differ between two opens differs.
    #[must_use]
    pub fn reopened(&self, random: &mut Random) -> Config {
        let mut config = self.config.clone();
        draw_run(&mut config, random);
        draw_memory(&mut config, random);
        config.log_depth = random.between(1, 4) as u8;
        config.log_delay_us_max = random.pick(&[0, 200, 5000]);
        // So logs are made longer in any lap of theirs, and not only in the first.
        config.log_times_data = random.pick(&LOG_TIMES_DATA);
        draw_memory(&mut config, random);
        config
    }
}

fn geometry(size_bytes: u64, logical_block_bytes: u32, growable: bool) -> Geometry {
    Geometry {
        size_bytes,
        logical_block_bytes,
        physical_block_bytes: 4096,
        rotational: false,
        growable,
    }
}

fn config(random: &mut Random) -> Config {
    let mut store = [0; 16];
    store.copy_from_slice(&random.bytes(16));
    let data_devices = random.pick(&[1, 1, 2, 3, 4]);
    let segment_bytes = random.pick(&[16, 32, 64]) * KIB as u32;
    let log_devices = random.pick(&[1, 1, 2, 3]);
    let log_regions = (0..log_devices)
        .map(|index| {
            let device = DeviceId(data_devices + index);
            let offset = random.pick(&[0, 4096]);
            let bytes = random.between(8, 16) * u64::from(segment_bytes) + random.pick(&[0, 4096]);
            LogRegion { device, offset, bytes }
        })
        .collect();
    let batch_bytes = random.pick(&[4, 8, 16]) * KIB as u32;
    let mut config = Config {
        store,
        data_devices,
        log_regions,
        log_times_data: 4,
        log_segment_bytes: segment_bytes,
        log_page_bytes: 4096,
        log_batch_bytes: batch_bytes,
        log_depth: random.between(1, 4) as u8,
        log_delay_us_max: random.pick(&[0, 200, 5000]),
        block_bytes: random.pick(&[4, 4, 8, 16]) * KIB as u32,
        directory_percent: random.pick(&[0, 5, 20, 20]),
        memory_bytes: 0,
        cache_bytes: 0,
        fold_bytes_min: 0,
        run_blocks_max: 1,
        run_bytes_max: 0,
        run_density_percent_min: 50,
        runs_in_flight_max: 1,
        spilling: Spilling::Never,
        spill_fill_percent: 70,
        spill_segment_bytes: 4 << 10,
        fanout_min: 6,
        sweep_always: false,
        file_space: FileSpace::default(),
    };
    draw_run(&mut config, random);
    draw_memory(&mut config, random);
    config
}

/// Whether and how far logs are made longer: half of them begin shorter than they may become, with
/// as many segments as this returns.
fn log_growth(config: &mut Config, random: &mut Random) -> Option<u64> {
    config.log_times_data = random.pick(&LOG_TIMES_DATA);
    let first = random.percent(50).then(|| random.between(6, 9))?;
    let bytes = first * random.between(2, 8) * u64::from(config.log_segment_bytes);
    config.log_regions.iter_mut().for_each(|region| region.bytes = bytes);
    Some(first)
}

/// Small enough for small files to give space back often, and to run into a full file system then.
fn file_space(random: &mut Random) -> FileSpace {
    FileSpace {
        step_bytes_min: random.pick(&[64 * KIB, 256 * KIB, MIB, 16 * MIB]),
        granule_bytes: random.pick(&[4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB]),
        kept_bytes_min: random.pick(&[0, 0, 64 * KIB, MIB]),
        window_us: random.pick(&[0, 1000, 100_000, 10_000_000]),
    }
}

/// Half of the stores spill what waits, whatever the size of the data.
fn draw_spills(config: &mut Config, random: &mut Random) {
    if random.percent(50) {
        config.spilling = Spilling::Always;
        config.spill_fill_percent = random.pick(&[0, 0, 20, 60]);
        config.spill_segment_bytes = random.pick(&[64, 512, 4096, 16 * KIB]) as u32;
    }
}

fn draw_run(config: &mut Config, random: &mut Random) {
    config.run_blocks_max = random.pick(&[1, 2, 4, 8, 32]);
    config.run_density_percent_min = random.pick(&[0, 30, 50, 100]);
    config.runs_in_flight_max = random.between(1, 4) as usize;
    config.sweep_always = random.percent(20);
}

fn draw_memory(config: &mut Config, random: &mut Random) {
    config.cache_bytes = random.pick(&[0, 16 * KIB, 256 * KIB]) as usize;
    let more = random.pick(&[0, 16 * KIB, 256 * KIB, 4 * MIB]);
    config.memory_bytes = config.memory_bytes_min() + random.below(more + 1) as usize;
}
