//! Measures devices out of band: those of a store that is not open, or any file, folder or block
//! device.
//!
//! Files are measured through a file beside them, which has no name and vanishes with the process.
//! What has content is written only if the caller says so; the raw devices of a store never are:
//! of those, reads are measured, and what is known of writes is kept. Raw devices can also be
//! searched for their tracks (`searching.rs`), first of all, so that a long search is not lost if
//! the rest fails.

#![expect(clippy::disallowed_methods, reason = "the runtime is where files enter the system")]

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::clock::Clock;
use super::description::{Description, LABEL_BYTES, described};
use super::layout::{self, path_error, sync_file};
use super::profiles::{PROFILE, position_of, profiles_to_toml};
use super::searching::KeptSearches;
use crate::device::{
    self, DeviceError, DeviceId, Devices, Effort, Geometry, HostDevices, HostOptions, HostPath,
    Measurement, Operation, Profile, Progress, Range, Tracks, Writes,
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

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasureOptions {
    /// How thoroughly.
    pub effort: Effort,
    /// Whether writes are measured, by which content is lost.
    pub writes: bool,
    /// Whether raw devices are searched for their tracks, and the file in which searches are kept
    /// that are not over. Of a store its data devices are searched.
    pub tracks: Option<PathBuf>,
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
/// or 256 MiB if it is to be short; if writes are wanted, the content of a file or a block device
/// is lost. `keep` gets the profile, before searches for tracks are forgotten.
///
/// # Errors
/// [`RequestError::Path`] with the path and why it cannot be measured, or what disturbed the search
/// for tracks, which then goes on the next time; [`RetryError::InUse`](crate::RetryError::InUse);
/// the error of `keep`.
pub fn measure_path<E: From<Error>>(
    path: &Path,
    wanted: &MeasureOptions,
    progress: &mut dyn FnMut(Progress),
    keep: impl FnOnce(&Profile) -> Result<(), E>,
) -> Result<Profile, E> {
    let found = measurable(path)?;
    if wanted.tracks.is_some() && !is_raw(path) {
        return Err(no_raw_device(path, "it is none").into());
    }
    let mut searches = wanted.tracks.as_deref().map(KeptSearches::read).transpose()?;
    let tracks = search(path, searches.as_mut(), progress)?;
    let MeasureOptions { effort, writes, .. } = *wanted;
    let profile = match found {
        Measurable::Store => Err(path_error(path, "a store, which has several devices")),
        Measurable::Folder(_) if !writes => Err(path_error(path, "there is nothing to read")),
        Measurable::Folder(folder) => measure_folder(&folder, effort, progress),
        Measurable::Content(_) => measure_device(path, effort, writes, progress),
    };
    let profile = Profile { name: path.display().to_string(), tracks, ..profile? };
    keep(&profile)?;
    searches.map_or(Ok(()), KeptSearches::remove)?;
    Ok(profile)
}

/// Measures the devices of the store in a folder, and keeps the profile there. Devices on one file
/// system are measured once, in a file of 1 GiB. If writes are not wanted, and of raw devices in
/// any case, reads are measured, and what is known of writes is kept, as are tracks that are not
/// searched.
///
/// # Errors
/// As [`measure_path`]; [`RetryError::InUse`](crate::RetryError::InUse) while the store is open.
pub fn measure_store(
    folder: &Path,
    wanted: &MeasureOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Profile>, Error> {
    let (locked, description) = layout::lock(folder, Access::ReadWrite)?;
    let before = locked.read_profiles()?;
    let paths = description.paths(folder);
    let data = &paths[..description.data.len()];
    let is_searched = |path: &PathBuf| data.contains(path) && is_raw(path);
    if wanted.tracks.is_some() && !data.iter().any(is_searched) {
        return Err(no_raw_device(folder, "none of its data devices is one"));
    }
    let mut searches = wanted.tracks.as_deref().map(KeptSearches::read).transpose()?;
    let mut profiles = Vec::new();
    for measured in &description.profiles {
        let device = measured.devices.first().copied().unwrap_or(0);
        let path = &paths[usize::from(device)];
        let before = position_of(&before, DeviceId(device)).map(|position| &before[position]);
        let searches = searches.as_mut().filter(|_| is_searched(path));
        let searched = search(path, searches, progress)?;
        let tracks = searched.or_else(|| before.and_then(|before| before.tracks.clone()));
        let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
        let found = match is_file && wanted.writes {
            true => measure_folder(&folder_of(path), wanted.effort, progress)?,
            false => measure_device(path, wanted.effort, false, progress)?,
        };
        let writes = match found.writes {
            None => before.and_then(|before| before.writes),
            Some(writes) => Some(Writes { block_writes: measured.profile.block_writes, ..writes }),
        };
        let (name, devices) = (path.display().to_string(), measured.devices.clone());
        profiles.push(Profile { name, devices, writes, tracks, ..found });
    }
    sync_file(&folder.join(PROFILE), &profiles_to_toml(&profiles))?;
    device::sync_folder(folder).map_err(|error| path_error(folder, error))?;
    searches.map_or(Ok(()), KeptSearches::remove)?;
    Ok(profiles)
}

/// Whether a path is a block device.
fn is_raw(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

fn no_raw_device(path: &Path, why: &str) -> Error {
    let reason = "a search for tracks takes a raw device, because files need not be contiguous";
    path_error(path, format!("{reason}, and {why}"))
}

/// Searches a raw device for its tracks, if that is wanted.
fn search(
    path: &Path,
    searches: Option<&mut KeptSearches>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Option<Tracks>, Error> {
    let Some(searches) = searches else { return Ok(None) };
    let mut devices = open(path, false)?;
    let clock = Clock::start();
    let searched = (path, &mut devices as &mut dyn Devices, DeviceId(0));
    searches.search(searched, || clock.elapsed(), progress).map(Some)
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
    let mut devices = open(path, writes)?;
    let Geometry { size_bytes, .. } = devices.geometry(DeviceId(0));
    let range = Range { offset: 0, bytes: size_bytes - size_bytes % 4096 };
    measure(&mut devices, path, &Measurement { effort, range, writes }, progress)
}

fn open(path: &Path, writes: bool) -> Result<HostDevices, Error> {
    let options = HostOptions { read_only: !writes, ..HostOptions::default() };
    HostDevices::open(&[HostPath { path: path.to_owned(), create: false }], options)
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
