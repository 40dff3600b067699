//! Banks of simulated drives, and of simulated solid-state devices.

use upsweep::layers::device::drive::{Detail, Drive, DriveDescription, Scheduler, SeekCurve};
use upsweep::layers::device::solid_state::{FillOrder, SolidState, SolidStateDescription, Start};
use upsweep::layers::device::{DeviceId, Geometry, MemoryDevices, Simulated};

use crate::problem::Problem;

/// The drives of the experiments, by their identifiers.
const DRIVES: [(&str, &str); 10] = [
    ("atlas10k", include_str!("../../drives/atlas10k.toml")),
    ("atlas10k3", include_str!("../../drives/atlas10k3.toml")),
    ("caviar-black-1tb", include_str!("../../drives/caviar-black-1tb.toml")),
    ("caviar-blue-1tb", include_str!("../../drives/caviar-blue-1tb.toml")),
    ("cheetah-x15", include_str!("../../drives/cheetah-x15.toml")),
    ("cheetah9lp", include_str!("../../drives/cheetah9lp.toml")),
    ("dtla307030", include_str!("../../drives/dtla307030.toml")),
    ("modern-18tb-cmr", include_str!("../../drives/modern-18tb-cmr.toml")),
    ("st39133lwv", include_str!("../../drives/st39133lwv.toml")),
    ("ultrastar18es", include_str!("../../drives/ultrastar18es.toml")),
];

/// The solid-state devices of the experiments, by their identifiers.
const SOLID_STATE: [(&str, &str); 4] = [
    ("d7-p5500-8tb", include_str!("../../drives/solid-state/d7-p5500-8tb.toml")),
    ("dc-p4500-2tb", include_str!("../../drives/solid-state/dc-p4500-2tb.toml")),
    ("dc-s3700-200gb", include_str!("../../drives/solid-state/dc-s3700-200gb.toml")),
    ("jmf612-slc-64gb", include_str!("../../drives/solid-state/jmf612-slc-64gb.toml")),
];

/// Turns by which the angle of a drive is ahead of that of the one before it: the golden section,
/// whose multiples stay apart.
const APART_TURNS: f64 = 0.618;

/// How requests that wait for a drive are ordered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ordering {
    /// How many are looked at, at least 1.
    pub(crate) depth: usize,
    /// Which comes next.
    pub(crate) scheduler: Scheduler,
}

/// A bank of so many drives of a kind, with the order that their description says unless another is
/// given, at rest at time 0. The buffer of a drive and its queue are not simulated.
///
/// # Errors
/// [`Problem::Data`] if there is no such drive, or its description is wrong.
pub(crate) fn drives(
    id: &str,
    count: u16,
    ordering: Option<Ordering>,
    seed: u64,
) -> Result<Box<dyn Simulated>, Problem> {
    parts_of_drives(id, count, u64::MAX, ordering, seed)
}

/// The same, of which only so many bytes at the outer edge are used.
///
/// # Errors
/// [`Problem::Data`] if there is no such drive, or its description is wrong.
pub(crate) fn parts_of_drives(
    id: &str,
    count: u16,
    bytes_max: u64,
    ordering: Option<Ordering>,
    seed: u64,
) -> Result<Box<dyn Simulated>, Problem> {
    let descriptions = vec![description(id)?; usize::from(count)];
    Ok(bank(ordering, seed, Detail::Overheads, bytes_max, &descriptions))
}

/// The same as [`drives()`], and one more, of which only so many bytes at the outer edge are used:
/// for a log.
///
/// # Errors
/// [`Problem::Data`] if there is no such drive, or its description is wrong.
pub(crate) fn drives_and_log(
    id: &str,
    count: u16,
    log_bytes: u64,
    ordering: Option<Ordering>,
    seed: u64,
) -> Result<Box<dyn Simulated>, Problem> {
    let one = description(id)?;
    let mut parts = vec![(&one, u64::MAX); usize::from(count)];
    parts.push((&one, log_bytes));
    Ok(bank_of_parts(ordering, seed, Detail::Overheads, &parts))
}

/// The same as [`drives()`], with seeks that take so much of their time, in per cent.
///
/// # Errors
/// [`Problem::Data`] if there is no such drive, or its description is wrong.
pub(crate) fn drives_with_seeks(
    id: &str,
    count: u16,
    percent: u32,
    seed: u64,
) -> Result<Box<dyn Simulated>, Problem> {
    let mut one = description(id)?;
    let times = f64::from(percent) / 100.0;
    match &mut one.seek {
        SeekCurve::Points { points } => points.iter_mut().for_each(|point| point.1 *= times),
        SeekCurve::ThreePoint { single_ms, average_ms, full_ms } => {
            [single_ms, average_ms, full_ms].into_iter().for_each(|ms| *ms *= times);
        }
    }
    Ok(bank(None, seed, Detail::Overheads, u64::MAX, &vec![one; usize::from(count)]))
}

/// A bank of so many drives, with everything that a drive does. Each drive begins at another angle,
/// because the spindles of several drives do not turn in step.
///
/// # Errors
/// [`Problem::Data`] if there is no such drive, or its description is wrong.
pub(crate) fn full_drives(
    id: &str,
    count: u16,
    ordering: Option<Ordering>,
    seed: u64,
) -> Result<Box<dyn Simulated>, Problem> {
    Ok(full_drives_of(&description(id)?, count, ordering, seed))
}

/// The same of drives that are described so.
pub(crate) fn full_drives_of(
    one: &DriveDescription,
    count: u16,
    ordering: Option<Ordering>,
    seed: u64,
) -> Box<dyn Simulated> {
    let turned = |device: u16| {
        let mut drive = one.clone();
        let turns = drive.start.angle_at_time_zero + f64::from(device) * APART_TURNS;
        drive.start.angle_at_time_zero = turns.fract();
        drive
    };
    let drives: Vec<_> = (0..count).map(turned).collect();
    bank(ordering, seed, Detail::Full, u64::MAX, &drives)
}

/// A bank of one drive, with everything that it does, of which only so many bytes at the outer edge
/// are used.
///
/// # Errors
/// [`Problem::Data`] if there is no such drive, or its description is wrong.
pub(crate) fn part_of_full_drive(
    id: &str,
    bytes_max: u64,
    seed: u64,
) -> Result<Box<dyn Simulated>, Problem> {
    Ok(full_drive(&description(id)?, bytes_max, seed))
}

/// The same of a drive that is described otherwise.
pub(crate) fn full_drive(
    description: &DriveDescription,
    bytes_max: u64,
    seed: u64,
) -> Box<dyn Simulated> {
    bank(None, seed, Detail::Full, bytes_max, std::slice::from_ref(description))
}

/// All drives, by their identifiers.
pub(crate) fn ids() -> impl Iterator<Item = &'static str> {
    DRIVES.iter().map(|(id, _)| *id)
}

/// All solid-state devices, by their identifiers.
pub(crate) fn solid_state_ids() -> impl Iterator<Item = &'static str> {
    SOLID_STATE.iter().map(|(id, _)| *id)
}

/// A bank of so many solid-state devices of a kind, which begin with so much of them written, in
/// per cent, at random and for so long that cleaning is in its steady state. Only the first
/// `bytes_max` of each are used. They do not clean in idle time: under steady writes there is none,
/// and without writes this is over after some seconds, which are not simulated.
///
/// # Errors
/// [`Problem::Data`] if there is no such device, or its description is wrong.
pub(crate) fn solid_state(
    id: &str,
    count: u16,
    filled_percent: u32,
    bytes_max: u64,
    seed: u64,
) -> Result<Box<dyn Simulated>, Problem> {
    let mut description = solid_state_description(id)?;
    description.start = Start { filled_percent, order: FillOrder::Random };
    description.cleaning.free_blocks_idle = description.cleaning.free_blocks_low;
    Ok(solid_state_bank(&description, count, bytes_max, seed))
}

/// A bank of so many solid-state devices of a kind, which begin empty.
///
/// # Errors
/// [`Problem::Data`] if there is no such device, or its description is wrong.
pub(crate) fn empty_solid_state(
    id: &str,
    count: u16,
    seed: u64,
) -> Result<Box<dyn Simulated>, Problem> {
    Ok(solid_state_bank(&solid_state_description(id)?, count, u64::MAX, seed))
}

/// A solid-state device as data.
///
/// # Errors
/// [`Problem::Data`] if there is no such device, or its description is wrong.
pub(crate) fn solid_state_description(id: &str) -> Result<SolidStateDescription, Problem> {
    let found = SOLID_STATE.iter().find(|(name, _)| *name == id);
    let (_, text) = found.ok_or_else(|| Problem::Data(format!("there is no device {id}")))?;
    let wrong = |reason: String| Problem::Data(format!("{id}.toml: {reason}"));
    let description: SolidStateDescription =
        toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
    description.check().map_err(|error| wrong(error.to_string()))?;
    Ok(description)
}

fn solid_state_bank(
    description: &SolidStateDescription,
    count: u16,
    bytes_max: u64,
    seed: u64,
) -> Box<dyn Simulated> {
    let geometry = Geometry {
        size_bytes: description.capacity.bytes.min(bytes_max),
        logical_block_bytes: description.capacity.logical_block_bytes,
        physical_block_bytes: description.mapping.unit_bytes,
        rotational: false,
        growable: false,
    };
    let mut devices = MemoryDevices::new(vec![geometry; usize::from(count)], seed);
    for device in 0..count {
        devices.set_solid_state(DeviceId(device), SolidState::new(description));
    }
    Box::new(devices)
}

/// Time of a revolution of a drive.
///
/// # Errors
/// [`Problem::Data`] if there is no such drive, or its description is wrong.
pub(crate) fn revolution_us(id: &str) -> Result<f64, Problem> {
    Ok(60e6 / description(id)?.mechanics.rpm)
}

/// A drive as data.
///
/// # Errors
/// [`Problem::Data`] if there is no such drive, or its description is wrong.
pub(crate) fn description(id: &str) -> Result<DriveDescription, Problem> {
    let found = DRIVES.iter().find(|(name, _)| *name == id);
    let (_, text) = found.ok_or_else(|| Problem::Data(format!("there is no drive {id}")))?;
    let wrong = |reason: String| Problem::Data(format!("{id}.toml: {reason}"));
    let description: DriveDescription =
        toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
    description.check().map_err(|error| wrong(error.to_string()))?;
    Ok(description)
}

fn bank(
    ordering: Option<Ordering>,
    seed: u64,
    detail: Detail,
    bytes_max: u64,
    descriptions: &[DriveDescription],
) -> Box<dyn Simulated> {
    let parts: Vec<_> = descriptions.iter().map(|description| (description, bytes_max)).collect();
    bank_of_parts(ordering, seed, detail, &parts)
}

/// A bank of drives, of each of which only so many bytes are used.
fn bank_of_parts(
    ordering: Option<Ordering>,
    seed: u64,
    detail: Detail,
    parts: &[(&DriveDescription, u64)],
) -> Box<dyn Simulated> {
    let drive = |(description, bytes_max): &(&DriveDescription, u64)| {
        let mut drive = Drive::new(description, detail);
        if let Some(Ordering { depth, scheduler }) = ordering {
            drive.set_queue(depth, scheduler);
        }
        (drive, *bytes_max)
    };
    let drives: Vec<(Drive, u64)> = parts.iter().map(drive).collect();
    let geometry = |(drive, bytes_max): &(Drive, u64)| Geometry {
        size_bytes: drive.bytes().min(*bytes_max),
        logical_block_bytes: drive.sector_bytes(),
        physical_block_bytes: drive.sector_bytes(),
        rotational: true,
        growable: false,
    };
    let mut devices = MemoryDevices::new(drives.iter().map(geometry).collect(), seed);
    for (device, (drive, _)) in (0..).zip(drives) {
        devices.set_drive(DeviceId(device), drive);
    }
    Box::new(devices)
}
