//! The meaning of a seed in a load history: a store like those of production, scaled down, its
//! devices, its data and its callers; and the duration of the steps of its sweep there.
//!
//! Block, run, segment and spill segment are scaled down, by 4 and more; the rules by which one
//! follows from the other are those of production. So a whole cycle takes thousands of updates
//! instead of millions.

use upsweep::layers::device::{DeviceId, Geometry, LatencyModel, MemoryDevices};
use upsweep::layers::engine::policy::{self, Options, Scale, Shape, Suited};
use upsweep::layers::engine::{Config, DATA_START, Spilling};
use upsweep::layers::log::{LogRegion, Urgency};

use crate::oracle::Layout;
use crate::random::Random;
use crate::settings::Settings;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Speed of applying updates to a run: bytes of images per microsecond and worker.
pub const JOB_BYTES_PER_US: u64 = 200;
/// Workers that run jobs.
pub const WORKERS: usize = 2;
/// Most bytes of data, so that several passes over them take little real time.
const DATA_BYTES_MAX: u64 = 4 * MIB;
/// Smallest log: its batches are short because its segments are, but hold some records of all
/// callers.
const LOG_BYTES_MIN: u64 = 512 * KIB;
/// Most initial records of a store.
const RECORDS_MAX: u64 = 8000;
/// Upper estimate of directory memory per block besides two copies of a key.
const DIRECTORY_BYTES_PER_BLOCK: u64 = 250;
/// Bytes of an update in the log besides key and operand.
const UPDATE_BYTES: usize = 32;
/// Most writes of a checkpoint that a publication waits for.
const CHECKPOINT_WRITES_MAX: u64 = 64;
/// Concurrent writes of a checkpoint.
const CHECKPOINT_WRITES: u64 = 4;

/// Durations in microseconds, with nothing else on the devices than stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A full run from its start to its publication, behind as many others as possible.
    pub run_us: u64,
    /// A spill, from its start to its publication.
    pub spill_us: u64,
    /// The time that a publication may have to wait for a running checkpoint.
    pub portion_us: u64,
    /// The part of a cycle of the sweep that admits updates to a segment of the log, where no spill
    /// can release it: a cycle admits updates to 40 per cent of the log, and a log takes updates
    /// segment by segment.
    pub segment_us: u64,
}

/// One load history, as far as it is determined in advance.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The seed of everything.
    pub seed: u64,
    /// The inputs of the configuration.
    pub settings: Settings,
    /// Settings of the store.
    pub config: Config,
    /// Memory for waiting updates besides everything else, once the data is loaded.
    pub waiting_bytes: u64,
    /// The speed of the devices.
    pub latency: LatencyModel,
    /// The structure that is updated.
    pub layout: Layout,
    /// Distinct keys.
    pub keys: u64,
    /// Bytes of each key.
    pub key_bytes: usize,
    /// Whether the common part of keys is at their beginning.
    pub common_first: bool,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Bytes of a value that an update replaces; if that is 8, they are a number to add to.
    pub patch_bytes: usize,
    /// Whether the data is present when the load begins; if not, the table is new and empty.
    pub preloaded: bool,
    /// Approximate bytes of the data when all keys are present.
    pub data_bytes: u64,
    /// Callers.
    pub callers: usize,
    /// Updates of one record.
    pub batch: usize,
    /// Whether callers wait until their records are durable.
    pub urgency: Urgency,
}

impl LoadPlan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, "load plan");
        // Spill segments may take half of it, and queues take at least 64 KiB.
        let waiting_bytes = random.pick(&[224, 224, 256, 320, 448]) * KIB;
        let ratio_halves = random.pick(&[1, 2, 4, 8, 16, 32, 48]);
        let data_bytes = (waiting_bytes * ratio_halves / 2).min(DATA_BYTES_MAX);
        let layout = match random.below(10) {
            0 => Layout::Hash,
            1 => Layout::Array,
            _ => Layout::Table,
        };
        let key_bytes = if layout == Layout::Array { 8 } else { random.pick(&[8, 24, 56, 200]) };
        let value_bytes = match (data_bytes / RECORDS_MAX).saturating_sub(key_bytes as u64) {
            0..32 => 8,
            bytes => bytes.min(900) as usize,
        };
        let patch_bytes = random.pick(&[8, value_bytes.min(100), value_bytes]);
        let keys = if layout == Layout::Array {
            data_bytes / 8
        } else {
            data_bytes / (key_bytes + value_bytes + 8) as u64
        };
        let callers = random.pick(&[1, 1, 4, 16, 64]);
        let settings = settings(&mut random, waiting_bytes, data_bytes, key_bytes as u64);
        let config = settings.config();
        let update_bytes = key_bytes + value_bytes + UPDATE_BYTES;
        let longest = config.log_segment_bytes as usize / 2 / update_bytes;
        Self {
            seed,
            settings,
            config,
            waiting_bytes,
            latency: LatencyModel {
                base_us: random.between(20, 100),
                bytes_per_us: random.pick(&[50, 150, 500, 1000, 2000]),
                jitter_us: random.pick(&[0, 5, 20]),
            },
            layout,
            keys: keys.max(16),
            key_bytes,
            common_first: random.percent(50),
            value_bytes,
            patch_bytes,
            preloaded: !random.percent(15),
            data_bytes,
            callers,
            batch: random.pick(&[1, 1, 64]).min(longest),
            urgency: if random.percent(60) { Urgency::Now } else { Urgency::Relaxed },
        }
    }

    /// The devices, empty.
    #[must_use]
    pub fn devices(&self) -> MemoryDevices {
        let data_bytes = DATA_START + 4 * self.data_bytes + 16 * MIB;
        let data = (0..self.config.data_devices).map(|_| geometry(data_bytes, true));
        let regions = self.config.log_regions.iter();
        let log = regions.map(|region| geometry(region.offset + region.bytes, false));
        MemoryDevices::new(data.chain(log).collect(), self.seed)
    }

    /// The key with this number, in the order of numbers.
    #[must_use]
    pub fn key(&self, number: u64) -> Vec<u8> {
        if self.layout == Layout::Array {
            return number.to_be_bytes().to_vec();
        }
        let spread = (number * (u64::MAX / self.keys)).to_be_bytes();
        let common = vec![b'k'; self.key_bytes.saturating_sub(spread.len())];
        if self.common_first {
            [&common[..], &spread].concat()
        } else {
            [&spread[..], &common].concat()
        }
    }

    /// The durations of the steps of the sweep.
    #[must_use]
    pub fn times(&self) -> Times {
        let Config { block_bytes, run_blocks_max, runs_in_flight_max, .. } = self.config;
        let LatencyModel { base_us, bytes_per_us, jitter_us } = self.latency;
        let transfer = |bytes: u64| bytes / bytes_per_us;
        let request = base_us + jitter_us;
        let behind = runs_in_flight_max as u64;
        let read = run_blocks_max as u64 * u64::from(block_bytes);
        // A run writes what it read, with the waiting updates: most for an oversized block.
        let written = read + self.config.oversized_queue_bytes() as u64;
        let job = written / JOB_BYTES_PER_US;
        let batch = u64::from(self.config.log_batch_bytes) * u64::from(self.config.log_depth);
        let log = request + transfer(batch);
        let spill = self.config.spill_bytes_max() as u64;
        let page = 2 * u64::from(block_bytes);
        let region = &self.config.log_regions[0];
        let segments = region.bytes / u64::from(self.config.log_segment_bytes);
        let opened = ((segments - segments.div_ceil(8).max(2)) * 2 / 5).max(1);
        let runs = self.data_bytes.div_ceil(read);
        let cycle = runs * (transfer(2 * read) + read / JOB_BYTES_PER_US + 3 * request + log);
        Times {
            segment_us: cycle / opened,
            run_us: behind * transfer(read + written)
                + behind.div_ceil(WORKERS as u64) * job
                + 3 * request
                + log,
            spill_us: transfer(spill) + 2 * request + log,
            portion_us: transfer(CHECKPOINT_WRITES_MAX * page)
                + CHECKPOINT_WRITES_MAX / CHECKPOINT_WRITES * request,
        }
    }

    /// A one-line description.
    #[must_use]
    pub fn describe(&self) -> String {
        let Self { layout, keys, key_bytes, value_bytes, callers, batch, urgency, .. } = self;
        let LatencyModel { base_us, bytes_per_us, .. } = self.latency;
        let new = if self.preloaded { "" } else { "new " };
        let spills = if self.config.spilling == Spilling::Never { "no" } else { "with" };
        format!(
            "{new}{layout:?} of {} KiB ({keys} keys of {key_bytes}, values of {value_bytes}, \
             patches of {}), memory {} KiB for what waits, log {} KiB, runs of {} blocks of {}, \
             {bytes_per_us} MB/s, {base_us} us, {callers} callers, records of {batch}, \
             {urgency:?}, {spills} spills",
            self.data_bytes / KIB,
            self.patch_bytes,
            self.waiting_bytes / KIB,
            self.config.log_regions.iter().map(|region| region.bytes).sum::<u64>() / KIB,
            self.config.run_blocks_max,
            self.config.block_bytes,
        )
    }
}

fn geometry(size_bytes: u64, growable: bool) -> Geometry {
    Geometry {
        size_bytes,
        logical_block_bytes: 512,
        physical_block_bytes: 4096,
        rotational: false,
        growable,
    }
}

/// A store with room for this many bytes of waiting updates besides everything else.
fn settings(random: &mut Random, waiting_bytes: u64, data_bytes: u64, key_bytes: u64) -> Settings {
    let mut store = [0; 16];
    store.copy_from_slice(&random.bytes(16));
    let data_devices = random.pick(&[1, 1, 1, 2]);
    let log_devices = random.pick(&[1, 1, 1, 2]);
    let log_bytes = match random.below(4) {
        0 => LOG_BYTES_MIN,
        1 => 2 * LOG_BYTES_MIN,
        // So large that memory fills first.
        2 => 8 * waiting_bytes,
        _ => 24 * waiting_bytes,
    };
    let ring_bytes = (log_bytes / log_devices).max(LOG_BYTES_MIN);
    let log_regions = (0..log_devices as u16)
        .map(|index| LogRegion {
            device: DeviceId(data_devices + index),
            offset: 4096,
            bytes: ring_bytes - ring_bytes % 4096,
        })
        .collect();
    // If the directory may take little, blocks become larger.
    let directory = random.pick(&[10, 1, 1]);
    let scale = Scale { blocks: 4, directory, log: 16, spill_segments: 4, ..Scale::FULL };
    let shape = Shape {
        store,
        data_devices,
        rotates: false,
        log_regions,
        block_bytes: policy::block_bytes(false, None, &scale),
        log_segment_bytes: policy::log_segment_bytes(&[ring_bytes], &scale),
        log_page_bytes: random.pick(&[512, 4096]) as u32,
        suited: Suited::default(),
        boundaries: Vec::new(),
    };
    let options = Options {
        memory_bytes: 0,
        run_blocks_max: random.pick(&[Some(4), Some(8), None]),
        // Without spills there are more cycles.
        spilling: if random.percent(30) { Spilling::Never } else { Spilling::WhenItPays },
        ..Options::default()
    };
    let mut settings = Settings { shape, options, scale };
    let blocks = 2 * data_bytes / u64::from(settings.shape.block_bytes);
    let each = DIRECTORY_BYTES_PER_BLOCK + 2 * key_bytes;
    let directory = 64 * KIB + blocks * each;
    let others = settings.config().fixed_bytes() as u64 + directory;
    settings.leave_beside_cache((others + waiting_bytes) as usize);
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_every_seed_are_sound() {
        for seed in 0..300 {
            let plan = LoadPlan::new(seed);
            assert_eq!(plan.config.check(), Ok(()), "seed {seed}");
            let segments =
                plan.config.log_regions[0].bytes / u64::from(plan.config.log_segment_bytes);
            assert!((7..=72).contains(&segments), "seed {seed}: {segments} segments");
        }
    }

    #[test]
    fn keys_have_their_length_and_order() {
        let seeds = (0..100).map(LoadPlan::new);
        for plan in seeds.filter(|plan| plan.layout == Layout::Table) {
            assert_eq!(plan.key(0).len(), plan.key_bytes);
            assert!(plan.key(1) < plan.key(plan.keys - 1));
        }
    }

    #[test]
    fn the_time_of_a_run_counts_what_is_before_it() {
        let mut plan = LoadPlan::new(1);
        plan.latency = LatencyModel { base_us: 100, bytes_per_us: 1 << 20, jitter_us: 0 };
        plan.config.run_blocks_max = 1;
        let alone = plan.times().run_us;
        assert!((400..4000).contains(&alone), "{alone}");
        plan.latency.bytes_per_us = 1;
        plan.config.runs_in_flight_max = 2;
        let two = plan.times().run_us;
        plan.config.runs_in_flight_max = 4;
        let written = u64::from(plan.config.block_bytes) * 10;
        assert!(plan.times().run_us >= two + 2 * written);
    }
}
