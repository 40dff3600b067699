//! The content of `stat`: devices and why their settings were chosen, the bound of the speed,
//! queues, log, sweep, and all metrics.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::boundaries::BoundariesStatus;
use super::choices::{self, Choice};
use super::description::{Described, Description};
use super::layout::Folder;
use super::log_page;
use super::shared::Shared;
use crate::device::{Bank, DeviceId, DeviceProfile};
use crate::engine::Core;
use crate::engine::quarantine::QUARANTINE_SPACE;
use crate::log::{LogMode, Seq};
use crate::metrics::{Histogram, Metric, Readings};

/// The status of a running store.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// Identity of the store.
    pub store: String,
    /// This folder is not the one in which the store was last changed: it is a copy, or was moved
    /// from another file system. A copy has the identity of the store, but its own history from now
    /// on.
    pub is_copy: bool,
    /// All devices, data first.
    pub devices: Vec<DeviceStatus>,
    /// Least target size of a block in bytes.
    pub block_bytes: u32,
    /// Current target size of the blocks that the sweep makes, in bytes: larger than the minimum if
    /// the directory would take more than a fifth of the memory.
    pub block_bytes_now: u32,
    /// Why the minimum block size and the time of sweeping were chosen.
    pub reason: String,
    /// How the profiles of the devices were made.
    pub profile_reason: String,
    /// Sizes that follow from these profiles.
    pub choices: Vec<Choice>,
    /// Free space in pieces behind images at the boundaries of devices, in bytes: of little use.
    pub remainder_bytes: u64,
    /// Bytes of a page of the log, of which a batch takes whole ones.
    pub log_page_bytes: u32,
    /// Why this size was chosen.
    pub log_page_reason: String,
    /// Bytes of images of blocks, directory and roots, of spill segments and reserved extents.
    pub data_bytes: u64,
    /// Bytes of reserved extents.
    pub reserved_bytes: u64,
    /// Bytes of the data devices; of a file, what its file system has allocated for it.
    pub data_capacity_bytes: u64,
    /// Blocks in the directory.
    pub blocks: u64,
    /// Blocks that cannot be swept: updates of modifiers that are not registered wait for them.
    pub held_blocks: u64,
    /// Memory, in bytes.
    pub memory: MemoryStatus,
    /// Updates that wait in spill segments.
    pub spill: SpillStatus,
    /// The log.
    pub log: LogStatus,
    /// The sweep.
    pub sweep: SweepStatus,
    /// The trees of the directory.
    pub tree: TreeStatus,
    /// All metrics since the store was opened.
    pub metrics: Readings,
    /// The last session that changed anything, if it ended cleanly.
    pub last_session: Option<LastSession>,
    /// Updates in quarantine, including those that a sweep has yet to move into its table.
    pub quarantined: u64,
    /// What bounds the rate of updates.
    pub bound: Bound,
    /// Damage found since the store was opened.
    pub damage: Vec<String>,
}

/// One device.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DeviceStatus {
    /// `data` or `log`.
    pub role: &'static str,
    /// Its path.
    pub path: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes that the file system has allocated for it, which are less where a file has holes; the
    /// size of a block device.
    pub allocated_bytes: u64,
    /// How requests reach it.
    pub engine: &'static str,
    /// Whether the page cache is bypassed.
    pub direct: bool,
    /// Why.
    pub reasons: Vec<String>,
    /// What was measured of it.
    pub profile: DeviceProfile,
    /// The boundaries that its profile knows, if it is for data.
    pub boundaries: Option<BoundariesStatus>,
}

/// Where memory goes, in bytes.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MemoryStatus {
    /// The budget.
    pub budget: u64,
    /// Waiting updates.
    pub queues: u64,
    /// Limit of waiting updates.
    pub queues_limit: u64,
    /// The directory.
    pub directory: u64,
    /// Images that were read.
    pub cache: u64,
    /// Buffers of runs and of the log, at most.
    pub buffers: u64,
}

/// Updates that wait in spill segments on the data devices, because memory holds too few.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SpillStatus {
    /// Whether updates are spilled for memory; for the log they are spilled whenever it fills
    /// first.
    pub is_on: bool,
    /// Queue entries that a visit of a block applies in steady state without spilling for memory,
    /// by the model.
    pub entries_per_visit_without: f64,
    /// The same with spilling.
    pub entries_per_visit_with: f64,
    /// Spill segments.
    pub spill_segments: u64,
    /// Updates in them that wait for a sweep.
    pub updates: u64,
    /// Bytes of them on the devices.
    pub bytes: u64,
    /// Memory of the filters of their keys, in bytes.
    pub memory: u64,
    /// Limit of that memory.
    pub memory_limit: u64,
}

/// The state of a session at its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LastSession {
    /// All its metrics.
    #[serde(default)]
    pub metrics: Readings,
    /// What its log wrote while there were no records.
    #[serde(default)]
    pub log_mode: LogMode,
}

/// The current state of the log; its activity is among the metrics.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LogStatus {
    /// Bytes that recovery would need.
    pub used_bytes: u64,
    /// Current size of all rings, in bytes.
    pub capacity_bytes: u64,
    /// Maximum size of all rings, in bytes.
    pub capacity_bytes_max: u64,
    /// Everything up to this sequence is on stable media.
    pub durable: Seq,
    /// The last sequence that was assigned.
    pub last: Seq,
    /// The next open reads the log from this sequence on; nothing if it is above `last`.
    pub replay_from: Seq,
    /// What it writes while there are no records.
    pub mode: LogMode,
}

/// The current state of the sweep, and figures derived from its metrics.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SweepStatus {
    /// Progress of the current cycle, from 0 to 1; none between cycles.
    pub progress: Option<f64>,
    /// Everything up to this sequence is inside images.
    pub frontier: Seq,
    /// Queue entries applied per block visited.
    pub batching_degree: f64,
    /// Bytes written to all devices per accepted update.
    pub written_bytes_per_update: f64,
}

/// The trees of the directory, and what changing them has cost since the store was opened.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct TreeStatus {
    /// Nodes of all trees.
    pub nodes: u64,
    /// Levels of the deepest one.
    pub depth_max: u64,
    /// Nodes changed: the different ones of each operation, added up.
    pub nodes_changed: u64,
    /// Those changed by removals of ranges.
    pub range_nodes_changed: u64,
}

/// The cost of the updates of a session.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Session {
    /// Bytes of log per update.
    pub log_bytes_per_update: f64,
    /// Bytes of queue memory per waiting entry.
    pub queue_bytes_per_entry: f64,
    /// Updates that one queue entry stands for, after folding.
    pub updates_per_entry: f64,
    /// CPU seconds per update.
    pub cpu_seconds_per_update: f64,
    /// Seconds per update for which a thread held the lock of the engine's core, to accept it and
    /// to direct the sweep and spills. One thread at a time holds it.
    #[serde(default)]
    pub core_seconds_per_update: f64,
    /// Seconds from the dispatch of a batch of the log until it is stable, on average; 0 if there
    /// was none. A waiting caller can have no more than one batch in this time.
    #[serde(default)]
    pub log_write_seconds: f64,
}

/// The content of `session.json`.
#[derive(Serialize, Deserialize)]
struct Kept {
    costs: Option<Session>,
    session: LastSession,
    /// Inode number of the folder.
    #[serde(default)]
    folder: Option<u64>,
}

/// What bounds the rate of updates in steady state, over whole cycles of the sweep, in updates per
/// second.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Bound {
    /// Log bandwidth over log bytes per update.
    pub log: f64,
    /// The time in which the data devices read and write what the sweep and spills move for an
    /// update; infinite (`null` in JSON) while there is no data.
    pub sweep: f64,
    /// Both of them, where log and data are on one device.
    pub device: f64,
    /// Processors over CPU seconds per update.
    pub cpu: f64,
    /// One over the seconds per update for which the core is locked.
    pub core: f64,
    /// The smallest.
    pub steady: f64,
    /// The name of the smallest: `log`, `sweep`, `device`, `cpu` or `core`.
    pub binds: &'static str,
    /// Where the measurements come from: `this session`, `the last session`, or `estimates`.
    pub source: &'static str,
    /// The measurements.
    pub session: Session,
}

/// The sources of a status.
pub(super) struct Sources<'a> {
    pub(super) shared: &'a Shared,
    pub(super) described: &'a Described,
    /// Of each data device.
    pub(super) known_boundaries: &'a [Option<BoundariesStatus>],
    /// None if the store was opened on a bank.
    pub(super) folder: Option<&'a Folder>,
    pub(super) cpu: Duration,
    pub(super) memory_bytes: usize,
    pub(super) workers: usize,
}

/// The role of data devices.
const DATA: &str = "data";
/// A session with fewer updates than this says little about costs.
const SESSION_UPDATES_MIN: u64 = 10_000;

/// This session's activity and measurements, as JSON; `None` if it changed nothing. The costs of
/// the previous session are kept if this one did too little to measure.
pub(super) fn session(shared: &Shared, cpu: Duration, folder: &Folder) -> Option<String> {
    let last = folder.read_session();
    let costs = measured(shared, cpu).or_else(|| kept(last.as_deref())?.costs);
    let log_mode = {
        let core = &shared.lock().core;
        core.note_levels();
        core.config().log_mode
    };
    let metrics = shared.metrics.read();
    if !metrics.has_changes() {
        return None;
    }
    let session = LastSession { metrics, log_mode };
    serde_json::to_string(&Kept { costs, session, folder: folder.number() }).ok()
}

fn kept(text: Option<&str>) -> Option<Kept> {
    serde_json::from_str(text?).ok()
}

fn measured(shared: &Shared, cpu: Duration) -> Option<Session> {
    let metrics = &shared.metrics;
    let updates = metrics.updates_total.get();
    if updates < SESSION_UPDATES_MIN {
        return None;
    }
    let (waiting, queue_bytes_per_entry) = {
        let core = &shared.lock().core;
        (core.waiting_entries() + core.spilled_entries(), core.queue_bytes_per_entry())
    };
    let entries = waiting + metrics.swept_entries_total.get();
    let per_update = |value: f64| value / updates as f64;
    let held: Duration = metrics.core_lock_seconds.iter().map(Histogram::sum).sum();
    Some(Session {
        log_bytes_per_update: per_update(metrics.log_written_bytes_total.get() as f64),
        queue_bytes_per_entry,
        updates_per_entry: updates as f64 / entries.max(1) as f64,
        cpu_seconds_per_update: per_update(cpu.as_secs_f64()),
        core_seconds_per_update: per_update(held.as_secs_f64()),
        log_write_seconds: metrics.log_write_seconds.read().mean(),
    })
}

pub(super) fn log_status(core: &Core) -> LogStatus {
    LogStatus {
        used_bytes: core.log().used_bytes(),
        capacity_bytes: core.log().capacity_bytes(),
        capacity_bytes_max: core.log_bytes_max(),
        durable: core.durable(),
        last: core.last(),
        replay_from: core.replay_from(),
        mode: core.config().log_mode,
    }
}

pub(super) fn sweep_status(core: &Core, metrics: &Readings) -> SweepStatus {
    SweepStatus {
        progress: core.sweep_progress(),
        frontier: core.sweep_frontier(),
        batching_degree: metrics.batching_degree(),
        written_bytes_per_update: metrics.written_bytes_per_update(),
    }
}

fn tree_status(core: &Core) -> TreeStatus {
    let (size, counters) = (core.tree_size(), core.tree_counters());
    TreeStatus {
        nodes: size.0 as u64,
        depth_max: size.1 as u64,
        nodes_changed: counters.nodes_changed,
        range_nodes_changed: counters.range_nodes_changed,
    }
}

fn spill_status(core: &Core) -> SpillStatus {
    let (spill_segments, bytes) = core.spill_segments_size();
    let (memory, memory_limit) = core.spill_segments_memory();
    let costs = core.costs();
    SpillStatus {
        is_on: core.spills_for_memory(),
        entries_per_visit_without: costs.entries_per_visit(false),
        entries_per_visit_with: costs.entries_per_visit(true),
        spill_segments: spill_segments as u64,
        updates: core.spilled_entries(),
        bytes,
        memory: memory as u64,
        memory_limit: memory_limit as u64,
    }
}

pub(super) fn gather(sources: &Sources<'_>) -> Status {
    let kept = kept(sources.folder.and_then(Folder::read_session).as_deref());
    let this_session = measured(sources.shared, sources.cpu);
    let costs = session_or_last(this_session, kept.as_ref().and_then(|kept| kept.costs));
    let state = sources.shared.lock();
    let core = &state.core;
    core.note_levels();
    let metrics = core.metrics().read();
    let description = &sources.described.description;
    let (blocks, directory_bytes) = core.directory_size();
    let data_bytes = core.space_map().used_bytes();
    let in_quarantine = core.space_size(QUARANTINE_SPACE);
    let bank = sources.shared.devices();
    let devices = bank.as_deref().map(|bank| devices(sources, bank)).unwrap_or_default();
    drop(bank);
    let of_data = devices.iter().filter(|device| device.role == DATA);
    let data_capacity_bytes = of_data.map(|device| device.allocated_bytes).sum();
    let last_folder = kept.as_ref().and_then(|kept| kept.folder);
    Status {
        store: description.store.clone(),
        is_copy: last_folder.is_some() && last_folder != sources.folder.and_then(Folder::number),
        devices,
        block_bytes: description.block_bytes,
        block_bytes_now: core.block_bytes(),
        reason: reason(description),
        profile_reason: choices::profile_reason(sources.described),
        choices: choices::choices(sources.described, core.config()),
        remainder_bytes: core.space_map().remainder_bytes(),
        log_page_bytes: description.log_page_bytes,
        log_page_reason: log_page::reason(description),
        data_bytes,
        reserved_bytes: core.reserved_bytes(),
        data_capacity_bytes,
        blocks: blocks as u64,
        held_blocks: core.held_blocks(),
        memory: MemoryStatus {
            budget: sources.memory_bytes as u64,
            queues: core.queue_bytes() as u64,
            queues_limit: core.queue_limit_bytes() as u64,
            directory: directory_bytes as u64,
            cache: core.cache_bytes() as u64,
            buffers: core.config().fixed_bytes() as u64,
        },
        spill: spill_status(core),
        log: log_status(core),
        sweep: sweep_status(core, &metrics),
        tree: tree_status(core),
        metrics,
        last_session: kept.map(|kept| kept.session),
        quarantined: in_quarantine.records + in_quarantine.waiting,
        bound: bound(sources, costs, core),
        damage: core.damage().map(str::to_owned).collect(),
    }
}

fn devices(sources: &Sources<'_>, bank: &dyn Bank) -> Vec<DeviceStatus> {
    let described = sources.described;
    let devices = (0..bank.count()).map(|index| {
        let device = DeviceId(index);
        let found = bank.description(device);
        let role = if usize::from(index) < described.description.data.len() { DATA } else { "log" };
        let size_bytes = bank.geometry(device).size_bytes;
        let path = Path::new(&found.name);
        let inside = sources.folder.and_then(|folder| path.strip_prefix(&folder.path).ok());
        DeviceStatus {
            role,
            path: inside.unwrap_or(path).display().to_string(),
            size_bytes,
            allocated_bytes: bank.allocated_bytes(device),
            engine: found.engine,
            direct: found.direct,
            reasons: found.reasons,
            profile: described.figures(device),
            boundaries: sources.known_boundaries.get(usize::from(index)).cloned().flatten(),
        }
    });
    devices.collect()
}

fn reason(description: &Description) -> String {
    let rotates = |profile: &&DeviceProfile| profile.rotational;
    let profile = description.data_profiles().find(rotates);
    let profile = profile.unwrap_or_else(|| description.profile(DeviceId(0)));
    let idle = if profile.rotational { "while nobody reads, or " } else { "" };
    format!("{}; sweeps {idle}when memory or log space calls for it", profile.reason)
}

/// The costs in this session, else in the last one, else estimates; and their source.
fn session_or_last(
    this_session: Option<Session>,
    last_session: Option<Session>,
) -> (Session, &'static str) {
    match (this_session, last_session) {
        (Some(session), _) => (session, "this session"),
        (None, Some(session)) => (session, "the last session"),
        (None, None) => (ESTIMATE, "estimates"),
    }
}

fn bound(sources: &Sources<'_>, (session, source): (Session, &'static str), of: &Core) -> Bound {
    let described = sources.described;
    // Devices with the same role share the work evenly, so the slowest decides.
    let bandwidth = |bytes_per_second: &mut dyn Iterator<Item = u64>| {
        let (devices, slowest) = bytes_per_second
            .fold((0, u64::MAX), |(count, least), next| (count + 1, least.min(next)));
        (slowest as f64 * f64::from(devices)).max(1.0)
    };
    let writes = |device| described.figures(device).sequential_write_bytes_per_second;
    let log_bandwidth = bandwidth(&mut described.log().map(writes));
    let moved = of.costs().moved_bytes_per_entry(of.spills_for_memory());
    let log = log_bandwidth / session.log_bytes_per_update;
    // What is moved is read and written.
    let sweep_bandwidth = bandwidth(&mut described.data().map(|device| described.mixed(device)));
    let sweep = session.updates_per_entry * sweep_bandwidth / (2.0 * moved);
    let shares = described.description.log_shares_device();
    let device = if shares { 1.0 / (1.0 / log + 1.0 / sweep) } else { log.min(sweep) };
    let cpu = sources.workers as f64 / session.cpu_seconds_per_update.max(1e-9);
    let core = 1.0 / session.core_seconds_per_update.max(1e-9);
    let terms = [("cpu", cpu), ("core", core), ("log", log), ("sweep", sweep), ("device", device)];
    // The device is a separate bound only if log and data share it.
    let terms = &terms[..if shares { 5 } else { 4 }];
    let least =
        |left: &&(&'static str, f64), right: &&(&'static str, f64)| left.1.total_cmp(&right.1);
    let (binds, steady) = *terms.iter().min_by(least).expect("there are four");
    Bound { log, sweep, device, cpu, core, steady, binds, source, session }
}

/// Costs of an 8-byte counter increment, before anything was measured.
const ESTIMATE: Session = Session {
    log_bytes_per_update: 48.0,
    queue_bytes_per_entry: 32.0,
    updates_per_entry: 1.0,
    cpu_seconds_per_update: 2e-6,
    core_seconds_per_update: 1e-6,
    log_write_seconds: 0.0,
};
