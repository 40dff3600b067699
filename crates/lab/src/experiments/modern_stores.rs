//! Stores on modern devices in all ways of using them, and what callers see of them.

use upsweep::layers::device::Simulated;
use upsweep_sim::random::Random;

use super::indexes::{CHANGES_OF_CALLER, Changes, FILL_TENTHS, ORDERING, records_of};
use crate::experiment::Scale;
use crate::problem::Problem;
use crate::systems::in_place::{Access, InPlace, Sizes};
use crate::systems::load::{Load, Seen};
use crate::systems::pages::{Leaves, Records};
use crate::systems::plan::{Memory, Plan};
use crate::systems::store::Store;
use crate::systems::{Bench, banks};

const INDEX_BYTES: u64 = 16 << 30;
const RECORD_BYTES: u64 = 64;
/// Memory, in MB.
pub(super) const MEMORY_MB: [u64; 2] = [256, 1024];
pub(super) const LEAF_KB: [u64; 2] = [4, 64];
/// Callers of the vanilla tree that make changes.
pub(super) const VANILLA_CALLERS: [usize; 2] = [64, 1024];
/// By how much Upsweep is smaller, in a quick run and in a full run.
pub(super) const SHRUNK: (u64, u64) = (128, 64);
/// Bytes that Upsweep may use on the devices for data, over those of its index.
pub(super) const ROOM: u64 = 2;
/// Time after it is loaded and before look-ups, in which the devices write and clean.
const REST_US: u64 = 4_000_000;
/// Bytes before its log, at least.
const LOG_LABEL_BYTES: u64 = 1 << 20;
/// Bytes of its log, at least.
const LOG_BYTES_MIN: u64 = 64 << 20;
/// Processor time of an operation.
pub(super) const PROCESSOR_US: u64 = 1;
/// Workers that apply updates.
pub(super) const WORKERS: usize = 8;

/// What the stores are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Media {
    Drives,
    SolidState,
}

impl Media {
    fn devices(self) -> u16 {
        match self {
            Self::Drives => 5,
            Self::SolidState => 2,
        }
    }

    /// The devices, of which only so many bytes are used.
    fn bank(self, bytes_max: u64, seed: u64) -> Result<Box<dyn Simulated>, Problem> {
        let (count, ordering) = (self.devices(), Some(ORDERING));
        match self {
            Self::Drives => {
                banks::parts_of_drives("modern-18tb-cmr", count, bytes_max, ordering, seed)
            }
            Self::SolidState => banks::solid_state("d7-p5500-8tb", count, 90, bytes_max, seed),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Drives => "five typical drives of 18 TB, 7,200 rpm, caches off",
            Self::SolidState => "two Intel SSD D7-P5500 of 7.68 TB, nine tenths full at random",
        }
    }
}

/// What callers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    Change(Changes),
    LookUp,
}

pub(super) const WORKLOADS: [Workload; 3] =
    [Workload::Change(Changes::Insert), Workload::Change(Changes::Update), Workload::LookUp];

impl Workload {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Change(Changes::Insert) => "random insert",
            Self::Change(Changes::Update) => "random update",
            Self::LookUp => "look-up",
        }
    }

    fn next(self, records: Records, seed: u64) -> Box<dyn FnMut() -> Access> {
        match self {
            Self::Change(changes) => Box::new(changes.random(records, seed)),
            Self::LookUp => {
                let mut random = Random::new(seed, "look-ups");
                Box::new(move || Access::Get(random.below(records.count) * records.stride))
            }
        }
    }
}

/// A store in a way of using it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Vanilla { leaf_kb: u64, callers: usize },
    Upsweep { callers: usize },
}

impl Way {
    /// All of them for a workload, those of one store next to each other.
    pub(super) fn all(workload: Workload, scale: &Scale) -> Vec<Self> {
        let [few, many] = VANILLA_CALLERS;
        let (of_vanilla, of_ours) = match workload {
            Workload::Change(_) => (scale.pick(vec![many], vec![few, many]), [64, 16_384]),
            Workload::LookUp => (vec![1, 64], [1, 64]),
        };
        let of_leaf = |leaf_kb| {
            let callers = of_vanilla.iter();
            callers.map(move |callers| Self::Vanilla { leaf_kb, callers: *callers })
        };
        let vanilla = LEAF_KB.into_iter().flat_map(of_leaf);
        vanilla.chain(of_ours.map(|callers| Self::Upsweep { callers })).collect()
    }

    pub(super) fn store(self) -> &'static str {
        match self {
            Self::Vanilla { .. } => "vanilla",
            Self::Upsweep { .. } => "Upsweep",
        }
    }

    pub(super) fn name(self) -> String {
        let (what, callers) = match self {
            Self::Vanilla { leaf_kb, callers } => (format!("vanilla, {leaf_kb} KB"), callers),
            Self::Upsweep { callers } => ("Upsweep".to_owned(), callers),
        };
        format!("{what}, {callers} caller{}", if callers == 1 { "" } else { "s" })
    }

    pub(super) fn callers(self) -> usize {
        match self {
            Self::Vanilla { callers, .. } | Self::Upsweep { callers } => callers,
        }
    }
}

/// A measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) workload: Workload,
    pub(super) memory_mb: u64,
    pub(super) way: Way,
}

impl Case {
    pub(super) fn measure(self, media: Media, scale: &Scale) -> Result<Seen, Problem> {
        match self.way {
            Way::Vanilla { leaf_kb, callers } => vanilla(
                media,
                INDEX_BYTES,
                (self.memory_mb, leaf_kb),
                self.workload,
                callers,
                scale,
            ),
            Way::Upsweep { callers } => self.upsweep(media, callers, scale),
        }
    }

    fn upsweep(self, media: Media, callers: usize, scale: &Scale) -> Result<Seen, Problem> {
        let shrunk = scale.pick(SHRUNK.0, SHRUNK.1);
        let records = records_of(INDEX_BYTES / shrunk, RECORD_BYTES);
        let memory = Memory::Part(self.memory_mb << 20, shrunk);
        let data_devices = media.devices() - 1;
        let log_bytes = (4 * memory.bytes()).max(LOG_BYTES_MIN);
        let plan = Plan {
            data_devices,
            log_bytes,
            memory,
            sweeps_when_idle: media == Media::Drives,
            record_bytes: RECORD_BYTES,
            fill_percent: 10 * FILL_TENTHS as u32,
            processor_us: PROCESSOR_US,
            workers: WORKERS,
            ..Plan::TABLE
        };
        // Without a bound the sweep would go on to places that were never used, and the content of
        // the places that it left would take memory.
        let data_bytes = ROOM * INDEX_BYTES / shrunk / u64::from(data_devices);
        let bytes_max = data_bytes.max(log_bytes + LOG_LABEL_BYTES);
        let mut store = Store::create(plan, records, media.bank(bytes_max, scale.seed)?)?;
        let mut next = self.workload.next(records, scale.seed);
        if self.workload == Workload::LookUp {
            store.rest(REST_US)?;
            let (warm_up, measured) = (memory.bytes() / 4096, scale.pick(5000, 50_000));
            return Load { callers, warm_up, measured }.run(&mut store, &mut next);
        }
        let before = Changes::Update.random(records, scale.seed + 1);
        let mut measured = records.count / 4;
        if media == Media::Drives {
            measured = measured.min(callers as u64 * CHANGES_OF_CALLER);
        }
        store.measure_steady(callers, before, measured, next)
    }
}

/// Measures a vanilla tree of so many bytes, with so many MB of memory and leaves of so many KB.
pub(super) fn vanilla(
    media: Media,
    index_bytes: u64,
    (memory_mb, leaf_kb): (u64, u64),
    workload: Workload,
    callers: usize,
    scale: &Scale,
) -> Result<Seen, Problem> {
    let page_bytes = leaf_kb << 10;
    let per_leaf = page_bytes / RECORD_BYTES * FILL_TENTHS / 10;
    // Far enough apart that random keys hardly meet a record or each other.
    let records = Records { count: index_bytes / page_bytes * per_leaf, stride: 1 << 20 };
    let sizes = Sizes {
        page_bytes,
        records_max: page_bytes / RECORD_BYTES,
        frames: ((memory_mb << 20) / page_bytes) as usize,
        devices: media.devices(),
    };
    let (pages, frames) = (index_bytes / page_bytes, sizes.frames);
    let mut random = Random::new(scale.seed, "pages in the cache");
    let any = std::iter::repeat_with(|| random.below(pages));
    let mut store = InPlace::new(Leaves::new(records, per_leaf), sizes);
    store.fill(any.take(8 * frames), workload != Workload::LookUp);
    let mut system = Bench::new(store, media.bank(u64::MAX, scale.seed)?, PROCESSOR_US);
    let (warm_up, measured) = (2 * callers as u64, scale.pick(5000, 50_000));
    let load = match (media, workload) {
        (Media::SolidState, Workload::Change(_)) => {
            // More than the buffers of the devices hide, before and after.
            let of_bytes = |mb: u64| (mb << 20) / page_bytes;
            let (warm_up, measured) = scale.pick((192, 64), (256, 256));
            Load { callers, warm_up: of_bytes(warm_up), measured: of_bytes(measured) }
        }
        _ => Load { callers, warm_up, measured },
    };
    load.run(&mut system, workload.next(records, scale.seed))
}

/// What the callers of the best way of a store saw: the one with the highest rate, of look-ups with
/// one caller that with the lowest latency.
pub(super) fn best<'a>(
    (store, workload, memory_mb): (&str, Workload, u64),
    measured: &'a [(Case, Seen)],
) -> Option<&'a (Case, Seen)> {
    let of_it = measured.iter().filter(|(case, _)| {
        let is_it = case.way.store() == store && case.workload == workload;
        is_it && case.memory_mb == memory_mb
    });
    match workload {
        Workload::Change(_) => {
            of_it.max_by(|one, other| one.1.per_second.total_cmp(&other.1.per_second))
        }
        Workload::LookUp => of_it
            .filter(|(case, _)| case.way.callers() == 1)
            .min_by(|one, other| one.1.latency_ms.total_cmp(&other.1.latency_ms)),
    }
}

pub(super) const STORES: [&str; 2] = ["vanilla", "Upsweep"];
