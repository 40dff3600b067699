//! Banks of simulated drives.

use upsweep::layers::device::drive::{Detail, Drive, DriveDescription, Scheduler};
use upsweep::layers::device::{DeviceId, Geometry, MemoryDevices, Simulated};

use crate::problem::Problem;

/// The drives of the experiments, by their identifiers.
const DRIVES: [(&str, &str); 2] = [
    ("caviar-black-1tb", include_str!("../../drives/caviar-black-1tb.toml")),
    ("dtla307030", include_str!("../../drives/dtla307030.toml")),
];

/// How requests that wait for a drive are ordered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ordering {
    /// How many are looked at, at least 1.
    pub(crate) depth: usize,
    /// Which comes next.
    pub(crate) scheduler: Scheduler,
}

/// A bank of so many drives of a kind, with the order that their description says unless another is
/// given, at rest at time 0.
///
/// # Errors
/// [`Problem::Data`] if there is no such drive, or its description is wrong.
pub(crate) fn drives(
    id: &str,
    count: u16,
    ordering: Option<Ordering>,
    seed: u64,
) -> Result<Box<dyn Simulated>, Problem> {
    let found = DRIVES.iter().find(|(name, _)| *name == id);
    let (_, text) = found.ok_or_else(|| Problem::Data(format!("there is no drive {id}")))?;
    let wrong = |reason: String| Problem::Data(format!("{id}.toml: {reason}"));
    let description: DriveDescription =
        toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
    description.check().map_err(|error| wrong(error.to_string()))?;
    let mut drive = Drive::new(&description, Detail::Overheads);
    if let Some(Ordering { depth, scheduler }) = ordering {
        drive.set_queue(depth, scheduler);
    }
    let geometry = Geometry {
        size_bytes: drive.bytes(),
        logical_block_bytes: drive.sector_bytes(),
        physical_block_bytes: drive.sector_bytes(),
        rotational: true,
        growable: false,
    };
    let mut devices = MemoryDevices::new(vec![geometry; usize::from(count)], seed);
    (0..count).for_each(|device| devices.set_drive(DeviceId(device), drive.clone()));
    Ok(Box::new(devices))
}
