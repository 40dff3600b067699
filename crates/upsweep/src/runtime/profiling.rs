//! Measures devices out of band: those of a store that is not open, or any file, folder or block
//! device.
//!
//! Files are measured through a file beside them, which has no name and vanishes with the process.
//! What has content is written only if the caller says so; the raw devices of a store never are:
//! of those, reads are measured, and what is known of writes is kept.

#![expect(clippy::disallowed_methods, reason = "the runtime is where files enter the system")]

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::clock::Clock;
use super::description::{Description, LABEL_BYTES, described};
use super::layout::{self, path_error, sync_file};
use super::profiles::{PROFILE, position_of, profiles_to_toml};
use crate::device::{
    self, DeviceError, DeviceId, Devices, Effort, Geometry, HostDevices, HostOptions, HostPath,
    Measurement, Operation, Profile, Progress, Range, Writes,
};
use crate::engine::Access;
use crate::error::{Error, RequestError};

/// Name of the file in which a file system is measured, for the moment for which it has one.
const SCRATCH: &str = ".upsweep-scratch";
/// Bytes at the start of a block device that are zero if it is empty, for all one can tell.
const BLANK_BYTES: u64 = 1 << 20;

/// Bytes of the file in which a file system is measured: as many as are written first.
fn scratch_bytes(effort: Effort) -> u64 {
    match effort {
        Effort::Short => 256 << 20,
        Effort::Full => 1 << 30,
    }
}

/// What a path is to a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measurable {
    /// The folder of a store: its devices are measured, and the store keeps the profile.
    Store,
    /// A folder, an empty file, or nothing yet: a file in this folder, removed at once, is
    /// measured.
    Folder(PathBuf),
    /// A file or a block device, which writes would overwrite; what is there, for people.
    Content(String),
}

/// Tells how a path can be measured. Reads at most 1 MiB.
///
/// # Errors
/// [`RequestError::Path`] if it cannot be read, or there is no folder for it.
pub fn measurable(path: &Path) -> Result<Measurable, Error> {
    if path.join(layout::DESCRIPTION).is_file() {
        return Ok(Measurable::Store);
    }
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            super::new_devices::check_parent(path)?;
            return Ok(Measurable::Folder(folder_of(path)));
        }
        Err(error) => return Err(path_error(path, error)),
    };
    if found.is_dir() {
        return Ok(Measurable::Folder(path.to_owned()));
    }
    if found.is_file() && found.len() == 0 {
        return Ok(Measurable::Folder(folder_of(path)));
    }
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BLANK_BYTES).read_to_end(&mut start));
    read.map_err(|error| path_error(path, error))?;
    let label = start.get(..LABEL_BYTES).ok_or(String::new()).and_then(|label| {
        let text = described(label)?;
        Description::parse(text).map(|found| found.store)
    });
    Ok(Measurable::Content(match label {
        Ok(store) => format!("a device of the Upsweep store {store}"),
        Err(_) if start.iter().any(|byte| *byte != 0) => "data".to_owned(),
        Err(_) => "nothing but zeros at its beginning".to_owned(),
    }))
}

fn folder_of(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// Measures what is at a path, which must not be in use. A folder is measured in a file of 1 GiB,
/// or 256 MiB if it is to be short; with `writes`, the content of a file or a block device is lost.
///
/// # Errors
/// [`RequestError::Path`] with the path and why it cannot be measured;
/// [`RetryError::InUse`](crate::RetryError::InUse).
pub fn measure_path(
    path: &Path,
    effort: Effort,
    writes: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Profile, Error> {
    let profile = match measurable(path)? {
        Measurable::Store => Err(path_error(path, "a store, which has several devices")),
        Measurable::Folder(_) if !writes => Err(path_error(path, "there is nothing to read")),
        Measurable::Folder(folder) => measure_folder(&folder, effort, progress),
        Measurable::Content(_) => measure_device(path, effort, writes, progress),
    };
    profile.map(|profile| Profile { name: path.display().to_string(), ..profile })
}

/// Measures the devices of the store in a folder, and keeps the profile there. Devices on one file
/// system are measured once, in a file of 1 GiB. Without `writes`, and of raw devices in any case,
/// reads are measured, and what is known of writes is kept, as are tracks.
///
/// # Errors
/// As [`measure_path`]; [`RetryError::InUse`](crate::RetryError::InUse) while the store is open.
pub fn measure_store(
    folder: &Path,
    effort: Effort,
    writes: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Profile>, Error> {
    let (locked, description) = layout::lock(folder, Access::ReadWrite)?;
    let before = locked.read_profiles()?;
    let paths = description.paths(folder);
    let mut profiles = Vec::new();
    for measured in &description.profiles {
        let device = measured.devices.first().copied().unwrap_or(0);
        let path = &paths[usize::from(device)];
        let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
        let mut found = match is_file && writes {
            true => measure_folder(&folder_of(path), effort, progress)?,
            false => measure_device(path, effort, false, progress)?,
        };
        let before = position_of(&before, DeviceId(device)).map(|position| &before[position]);
        found.tracks = before.and_then(|before| before.tracks.clone());
        found.writes = match found.writes {
            None => before.and_then(|before| before.writes),
            Some(writes) => Some(Writes { block_writes: measured.profile.block_writes, ..writes }),
        };
        let devices = measured.devices.clone();
        profiles.push(Profile { name: path.display().to_string(), devices, ..found });
    }
    sync_file(&folder.join(PROFILE), &profiles_to_toml(&profiles))?;
    device::sync_folder(folder).map_err(|error| path_error(folder, error))?;
    Ok(profiles)
}

/// Measures a file system, in a file of this folder.
fn measure_folder(
    folder: &Path,
    effort: Effort,
    progress: &mut dyn FnMut(Progress),
) -> Result<Profile, Error> {
    let path = folder.join(SCRATCH);
    // What a process left that was killed while the file had a name.
    drop(fs::remove_file(&path));
    let paths = [HostPath { path: path.clone(), create: true }];
    let opened = HostDevices::open(&paths, HostOptions::default());
    let removed = fs::remove_file(&path);
    let mut devices = opened?;
    removed.map_err(|error| path_error(&path, error))?;
    let range = Range { offset: 0, bytes: scratch_bytes(effort) };
    let allocate = Operation::Allocate { offset: 0, bytes: range.bytes };
    device::run_alone(&mut devices, DeviceId(0), allocate)
        .map_err(|error| no_scratch(folder, range.bytes, &error))?;
    measure(&mut devices, folder, &Measurement { effort, range, writes: true }, progress)
}

fn no_scratch(folder: &Path, bytes: u64, error: &DeviceError) -> Error {
    let mebibytes = bytes >> 20;
    path_error(folder, format!("measuring takes a file of {mebibytes}MiB for a while: {error}"))
}

/// Measures a file or block device itself.
fn measure_device(
    path: &Path,
    effort: Effort,
    writes: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Profile, Error> {
    let options = HostOptions { read_only: !writes, ..HostOptions::default() };
    let paths = [HostPath { path: path.to_owned(), create: false }];
    let mut devices = HostDevices::open(&paths, options)?;
    let Geometry { size_bytes, .. } = devices.geometry(DeviceId(0));
    let range = Range { offset: 0, bytes: size_bytes - size_bytes % 4096 };
    measure(&mut devices, path, &Measurement { effort, range, writes }, progress)
}

fn measure(
    devices: &mut HostDevices,
    path: &Path,
    measurement: &Measurement,
    progress: &mut dyn FnMut(Progress),
) -> Result<Profile, Error> {
    let clock = Clock::start();
    device::measure(devices, DeviceId(0), measurement, || clock.elapsed(), progress).map_err(
        |error| match error {
            DeviceError::InvalidRange => {
                let least = "too small to be measured; it needs at least 1MiB";
                RequestError::Path { path: path.to_owned(), reason: least.to_owned() }.into()
            }
            _ => path_error(path, error),
        },
    )
}
