//! The meaning of a seed: the devices, the settings of the store and the faults of one history.

use upsweep::layers::device::{
    DeviceId, Devices, Geometry, HostileDevices, LatencyModel, MemoryDevices,
};
use upsweep::layers::engine::policy::{self, Options, Scale, Shape, Suited};
use upsweep::layers::engine::{Config, DATA_START, Spilling};
use upsweep::layers::log::{LogMode, LogRegion, Motion};
use upsweep::layers::placement::Boundaries;

use crate::bank::Bank;
use crate::drives::Drives;
use crate::random::Random;
use crate::settings::Settings;

/// Divisors of the length of logs relative to their data in production; with the last one they keep
/// their length.
const LOG_TIMES_DATA: [u32; 4] = [1, 1, 4, 8];

/// The kind of trouble in a history, besides power cuts.
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

/// One history, as far as it is determined in advance.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of everything.
    pub seed: u64,
    /// The inputs of the configuration, at the first open.
    settings: Settings,
    /// Settings of the store at its first open.
    pub config: Config,
    /// The trouble.
    pub trouble: Trouble,
    /// Sizes of the data devices in bytes.
    pub data_bytes: Vec<u64>,
    /// Bytes of a logical block of the log devices, at most a page of the log.
    pub log_block_bytes: u32,
    /// Whether the log is initially short.
    pub log_grows: bool,
    /// Whether the log has a train in half of its opens.
    trains: bool,
    /// Whether data devices can grow.
    pub growable: bool,
    /// Size beyond which growth fails, in bytes.
    pub capacity_bytes: Option<u64>,
    /// The speed of the devices, unless they are drives.
    pub latency: LatencyModel,
    /// The drives that the devices are, if they are.
    pub drives: Option<Drives>,
    /// Distinct keys that the workload scatters over.
    pub keys: u64,
    /// Longest ordinary key, in bytes.
    pub key_bytes_max: u64,
    /// Whether sweeps and checkpoints are requested, or left to the engine.
    pub sweeps: bool,
    /// Power cuts in 10,000 steps.
    pub cuts: u64,
    /// Whether there are more of them while a checkpoint is in progress.
    pub cuts_of_checkpoints: bool,
    /// Longest time that a job takes, in microseconds.
    pub job_us_max: u64,
    /// Chance in per cent that something else happens between two steps of a scan, and again.
    pub turns_of_scans: u64,
    /// Whether tables are cloned and preserved in snapshots.
    pub clones: bool,
    /// Whether empty tables are filled by bulk loads.
    pub loads: bool,
    /// Whether ranges of keys are removed.
    pub ranges: bool,
    /// Whether additions to the same few keys come in bursts, also during a running sweep.
    pub bursts: bool,
    /// Whether long records come in floods, which fill the log.
    pub floods: bool,
    /// Whether some of the tables are hash tables.
    pub hash_tables: bool,
    /// Whether some tables are arrays.
    pub arrays: bool,
    /// Whether owners of tables reserve extents.
    pub extents: bool,
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
        let mut of_pressure = Random::new(seed, "pressure");
        let floods = of_pressure.percent(60);
        let flooded = floods.then(|| match of_pressure.percent(50) {
            true => Flooded::Tight,
            false => Flooded::Growing,
        });
        let (mut settings, log_grows) = settings(seed, flooded);
        let trains = draw_train(seed, &mut settings);
        let config = settings.config();
        let mut of_log = Random::new(seed, "log pages");
        let log_block_bytes = of_log.pick(&[512, config.log_page_bytes]);
        let mut of_queues = Random::new(seed, "queues");
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
            settings,
            config,
            trouble,
            data_bytes,
            log_block_bytes,
            log_grows,
            trains,
            growable,
            capacity_bytes,
            latency,
            drives: Drives::of(seed),
            keys: random.pick(&[3, 30, 300, 3000]),
            key_bytes_max: random.pick(&[8, 24, 24, 300]),
            sweeps: random.percent(60),
            cuts: random.pick(&[0, 10, 30, 100, 300]),
            turns_of_scans: Random::new(seed, "turns of scans").pick(&[0, 20, 60]),
            job_us_max: random.pick(&[0, 50, 1000, 20_000]),
            clones: of_structures.percent(70),
            ranges: of_structures.percent(60),
            loads: Random::new(seed, "loads").percent(40),
            bursts: of_queues.percent(25),
            floods,
            cuts_of_checkpoints: floods && of_pressure.percent(50),
            hash_tables: of_structures.percent(40),
            arrays: of_structures.percent(40),
            extents: Random::new(seed, "extents").percent(30),
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
            let first = policy::log_bytes_first(region.bytes, self.config.log_segment_bytes);
            let bytes = if self.log_grows { first } else { region.bytes };
            let size = region.offset + bytes;
            geometries.push(geometry(size, self.log_block_bytes, self.log_grows));
        }
        let mut memory = MemoryDevices::new(geometries, self.seed);
        memory.set_latency(self.latency);
        if let Some(drives) = &self.drives {
            (0..memory.count()).for_each(|device| memory.set_drive(DeviceId(device), drives.one()));
        }
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

    /// The settings at a later open: everything that may differ between two opens is varied.
    #[must_use]
    pub fn reopened(&self, random: &mut Random) -> Config {
        let mut settings = self.settings.clone();
        // So logs are extended in any of their laps.
        settings.scale.log_times_data = random.pick(&LOG_TIMES_DATA);
        draw_options(&mut settings, random);
        if self.trains {
            draw_log_mode(&mut settings, random);
        }
        settings.config()
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

/// The scale with the shortest segments of the log.
const SMALLEST_LOG: u32 = 128;

/// A log that floods fill.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flooded {
    /// Of the smallest size: the log records of runs take much of it, so that checkpoints have to
    /// carry changes.
    Tight,
    /// Initially short.
    Growing,
}

/// A store and the settings of its open, and whether its log is initially short.
fn settings(seed: u64, flooded: Option<Flooded>) -> (Settings, bool) {
    let mut random = Random::new(seed, "settings");
    let mut scale = scale(&mut random);
    if flooded == Some(Flooded::Tight) {
        scale.log = SMALLEST_LOG;
    }
    let mut store = [0; 16];
    store.copy_from_slice(&random.bytes(16));
    let data_devices = random.pick(&[1, 1, 2, 3, 4]);
    let (log_regions, log_grows) = log_regions(&mut random, data_devices, &scale, flooded);
    let rings: Vec<u64> = log_regions.iter().map(|region| region.bytes).collect();
    // Some sweep whatever waits while nobody reads.
    let rotates = random.percent(20);
    let asked = random.pick(&[None, None, Some(4 << 10), Some(8 << 10), Some(16 << 10)]);
    let shape = Shape {
        store,
        data_devices,
        rotates,
        log_regions,
        block_bytes: policy::block_bytes(rotates, asked, &scale),
        log_segment_bytes: policy::log_segment_bytes(&rings, &scale),
        log_page_bytes: match flooded {
            Some(Flooded::Tight) => 4096,
            _ => random.pick(&[512, 1024, 4096]),
        },
        suited: Suited::default(),
        boundaries: boundaries(seed, data_devices),
    };
    let mut options = Options::default();
    // Half of the stores spill waiting updates, whatever the size of the data.
    if random.percent(50) {
        options.spilling = Spilling::Always;
        options.spill_fill_percent = random.pick(&[0, 0, 20, 60]);
    }
    let mut settings = Settings { shape, options, scale };
    draw_options(&mut settings, &mut random);
    (settings, log_grows)
}

/// Boundaries on some devices, such as tracks, which need not lie between sectors.
fn boundaries(seed: u64, data_devices: u16) -> Vec<Boundaries> {
    let mut random = Random::new(seed, "boundaries");
    let mut of_device = |_| {
        if random.percent(60) {
            return Boundaries::default();
        }
        let mut next = 512 * random.below(100);
        let stretches = (0..1 + random.below(4)).map(|_| {
            let (unit_bytes, units) = (512 * (20 + random.below(300)), 1 + random.below(40));
            let offset = next;
            next += unit_bytes * units + 512 * random.below(50);
            (offset, unit_bytes, units)
        });
        Boundaries::new(stretches.collect::<Vec<_>>()).expect("in order")
    };
    (0..data_devices).map(&mut of_device).collect()
}

/// Small enough for much to happen in a short history: blocks of 4 KiB mostly, nodes of a few
/// entries, segments of 8 to 64 KiB, files that return space often. Where the directory may take
/// hardly any memory, blocks become larger.
fn scale(random: &mut Random) -> Scale {
    Scale {
        blocks: random.pick(&[4, 16, 64]),
        nodes: 10,
        directory: random.pick(&[1, 1, 4, 100]),
        log: random.pick(&[32, 64, SMALLEST_LOG, SMALLEST_LOG]),
        log_times_data: random.pick(&LOG_TIMES_DATA),
        spill_segments: random.pick(&[1, 4, 32, 256]),
        file_space: random.pick(&[1, 16, 64, 256, 4096]),
    }
}

/// The rings of the log, and whether they are initially short.
fn log_regions(
    random: &mut Random,
    first: u16,
    scale: &Scale,
    flooded: Option<Flooded>,
) -> (Vec<LogRegion>, bool) {
    let devices = random.pick(&[1, 1, 2, 3]);
    let segment = policy::log_segment_bytes(&[policy::LOG_BYTES_MIN], scale);
    // Some logs have the minimum size, most of the others are initially short.
    let (is_smallest, log_grows) = match (flooded, random.below(8)) {
        (Some(Flooded::Tight), _) | (None, 0 | 1) => (true, false),
        (Some(Flooded::Growing), _) | (None, 2..6) => (false, true),
        _ => (false, false),
    };
    let region = |index| {
        let segments = match (is_smallest, log_grows) {
            // Fewer than the initial number in production: the minimum for the deepest pipeline.
            _ if flooded == Some(Flooded::Tight) => 6,
            (true, _) => 8,
            // As long as its maximum in production, so that it grows in many of its laps.
            (_, true) => 8 * random.pick(&[2, 4, 8, 8, 8]),
            _ => random.between(8, 16),
        };
        let bytes = segments * u64::from(segment) + random.pick(&[0, 4096]);
        let offset = random.pick(&[0, 4096]);
        LogRegion { device: DeviceId(first + index), offset, bytes }
    };
    ((0..devices).map(region).collect(), log_grows)
}

/// The mode of the log, and how its devices are taken to move: as they are no such drives, batches
/// go anywhere in the next part of the ring.
fn draw_log_mode(settings: &mut Settings, random: &mut Random) {
    let modes = [LogMode::Idle, LogMode::Full, LogMode::Sentinel, LogMode::Predict];
    settings.options.log_mode = random.pick(&modes);
    let turn_ns = random.pick(&[50_000, 1_000_000, 8_000_000]);
    let turn_bytes = random.pick(&[4096, 16 << 10, 100_000]);
    let motion = Motion { turn_ns, turn_bytes };
    settings.options.log_motion = random.percent(75).then_some(motion);
}

/// Whether the log has a train in half of its opens; if so, its mode at the first.
fn draw_train(seed: u64, settings: &mut Settings) -> bool {
    let mut random = Random::new(seed, "trains");
    let trains = random.percent(40);
    if trains {
        draw_log_mode(settings, &mut random);
    }
    trains
}

fn draw_options(settings: &mut Settings, random: &mut Random) {
    let options = &mut settings.options;
    options.run_blocks_max = random.pick(&[None, Some(1), Some(2), Some(4), Some(8), Some(32)]);
    options.run_density_percent_min = random.pick(&[0, 30, 50, 100]);
    options.log_depth = random.between(1, 4) as u8;
    options.log_batch_bytes = random.pick(&[None, None, Some(4 << 10), Some(20 << 10)]);
    options.scan_request_bytes = random.pick(&[None, Some(4 << 10), Some(16 << 10)]);
    options.scan_requests_in_flight = random.pick(&[None, None, Some(0), Some(1), Some(2)]);
    let more = random.pick(&[0, 16 * KIB, 256 * KIB, 4 * MIB]);
    let more = random.below(more + 1) as usize;
    options.runs_in_flight_max = random.pick(&[1, 2, 4, 4, 8]);
    options.spill_segment_bytes = random.pick(&[None, None, Some(1 << 10), Some(128 << 10)]);
    options.bulk_request_bytes = random.pick(&[None, Some(4 << 10), Some(32 << 10)]);
    settings.options.memory_bytes = settings.memory_bytes_min() + more;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_every_seed_are_sound() {
        for seed in 0..300 {
            let plan = Plan::new(seed);
            assert_eq!(plan.config.check(), Ok(()), "seed {seed}");
            let mut random = Random::new(seed, "reopened");
            assert_eq!(plan.reopened(&mut random).check(), Ok(()), "seed {seed}");
            let segment_bytes = plan.config.log_segment_bytes;
            assert!((8 << 10..=64 << 10).contains(&segment_bytes), "seed {seed}");
        }
    }
}
