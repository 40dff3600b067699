//! The devices of a new store: their paths and sizes, checked before anything is made or written.

#![expect(clippy::disallowed_methods, reason = "the runtime is where files enter the system")]

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::description::{LOG_START, Names};
use super::layout::{CreateOptions, path_error};
use crate::device::{self, Bank, DeviceId, Geometry, HostDevices, HostPath, Operation};
use crate::engine::policy::{
    self, DATA_BYTES_MIN, LOG_BYTES_DEFAULT, LOG_BYTES_MAX, LOG_BYTES_MIN, LOG_DEVICES_MAX, Scale,
};
use crate::error::{Error, RequestError};

/// The devices of a new store.
pub(super) struct NewDevices {
    /// The devices as the description names them.
    pub(super) names: Names,
    /// All of them in the order of the bank. Those that do not exist are files to be made.
    pub(super) paths: Vec<HostPath>,
    /// Maximum size of the ring in a log file, in bytes.
    log_bytes: u64,
}

impl NewDevices {
    /// The devices that `options` ask for, if they are valid.
    pub(super) fn check(folder: &Path, options: &CreateOptions) -> Result<Self, Error> {
        let log_bytes = log_bytes(options, options.log.len())?;
        let data = named(&options.data, "data-0")?;
        let log = named(&options.log, "log-0")?;
        let folder = absolute(folder)?;
        let (mut paths, mut places) = (Vec::new(), BTreeSet::new());
        for path in data.iter().chain(&log) {
            let path = folder.join(path);
            if !places.insert(place(&path)) {
                return Err(path_error(&path, "given twice; each device needs its own"));
            }
            let create = is_new(&path)?;
            if create && path.parent().map(place) != Some(place(&folder)) {
                check_parent(&path)?;
            }
            paths.push(HostPath { path, create });
        }
        Ok(Self { names: Names { data, log }, paths, log_bytes })
    }

    /// As [`size`], for a bank that has opened the paths.
    pub(super) fn size(&self, devices: &mut HostDevices) -> Result<Vec<u64>, Error> {
        size(devices, self.names.data.len(), self.log_bytes)
    }

    /// The location of each device: the number of its file system, if it is a file.
    pub(super) fn places(&self, folder: &Path) -> Vec<Option<u64>> {
        let place = |path: &PathBuf| {
            let found = fs::metadata(folder.join(path)).ok().filter(fs::Metadata::is_file);
            found.and_then(|found| device::file_system(&found))
        };
        self.names.data.iter().chain(&self.names.log).map(place).collect()
    }
}

/// The size of each log device of a new store with this many of them.
pub(super) fn log_bytes(options: &CreateOptions, log_devices: usize) -> Result<u64, Error> {
    let bytes = options.log_bytes.unwrap_or(LOG_BYTES_DEFAULT);
    if !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&bytes) {
        let reason = format!("{bytes} bytes; give 1MiB to below 16TiB");
        return Err(RequestError::BadConfig { setting: "log size", reason }.into());
    }
    if log_devices > LOG_DEVICES_MAX {
        let reason = format!("{log_devices} devices; give 1 to {LOG_DEVICES_MAX}");
        return Err(RequestError::BadConfig { setting: "log devices", reason }.into());
    }
    Ok(bytes)
}

/// Sets the initial size of devices that are empty and can grow, as new files, and checks that of
/// all others. The first `data_devices` are for data, the others for the log. Returns the maximum
/// size of the ring on each log device, in bytes.
pub(super) fn size(
    devices: &mut dyn Bank,
    data_devices: usize,
    log_bytes: u64,
) -> Result<Vec<u64>, Error> {
    let log_bytes = log_bytes.next_multiple_of(4096);
    let all: Vec<(DeviceId, Geometry)> = (0..devices.count())
        .map(|device| (DeviceId(device), devices.geometry(DeviceId(device))))
        .collect();
    let is_data = |device: DeviceId| usize::from(device.0) < data_devices;
    let is_new = |found: &Geometry| found.growable && found.size_bytes == 0;
    let error = |devices: &dyn Bank, device, reason: String| {
        path_error(Path::new(&devices.description(device).name), reason)
    };
    for (device, found) in all.iter().filter(|(_, found)| !is_new(found)) {
        check_raw(is_data(*device), found.size_bytes)
            .map_err(|reason| error(devices, *device, reason))?;
    }
    let rings: Vec<u64> = all
        .iter()
        .filter(|(device, _)| !is_data(*device))
        .map(|(_, found)| match is_new(found) {
            true => log_bytes,
            false => found.size_bytes.saturating_sub(LOG_START),
        })
        .map(|bytes| bytes - bytes % 4096)
        .collect();
    let segment_bytes = policy::log_segment_bytes(&rings, &Scale::FULL);
    let first = policy::log_bytes_first(log_bytes, segment_bytes);
    for (device, _) in all.iter().filter(|(_, found)| is_new(found)) {
        let bytes = if is_data(*device) { DATA_BYTES_MIN } else { LOG_START + first };
        device::run_alone(devices, *device, Operation::Allocate { offset: 0, bytes })
            .map_err(|refusal| error(devices, *device, refusal.to_string()))?;
    }
    Ok(rings)
}

/// The paths as a description has them: absolute, or a file inside the store.
fn named(paths: &[PathBuf], file: &str) -> Result<Vec<PathBuf>, Error> {
    if paths.is_empty() {
        return Ok(vec![PathBuf::from(file)]);
    }
    let text = |path: &PathBuf| {
        let path = absolute(path)?;
        match path.to_str() {
            Some(_) => Ok(path),
            // The description is JSON, which is always UTF-8.
            None => Err(path_error(&path, "not UTF-8; give a path that is")),
        }
    };
    paths.iter().map(text).collect()
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|error| path_error(path, error))
}

/// The canonical path, as far as it exists.
fn place(path: &Path) -> PathBuf {
    match (fs::canonicalize(path), path.parent(), path.file_name()) {
        (Ok(found), _, _) => found,
        (Err(_), Some(parent), Some(name)) => place(parent).join(name),
        (Err(_), _, _) => path.to_owned(),
    }
}

/// Whether nothing is at the path yet; a file there is an error, because it would be lost.
fn is_new(path: &Path) -> Result<bool, Error> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => Err(RequestError::AlreadyExists(path.to_owned()).into()),
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(path_error(path, error)),
    }
}

/// Checks that there is a folder for `path` to be made in.
pub(super) fn check_parent(path: &Path) -> Result<(), Error> {
    let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) else {
        return Ok(());
    };
    match fs::metadata(parent) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(path_error(parent, "not a folder; name one")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(path_error(parent, "no such folder; make it first"))
        }
        Err(error) => Err(path_error(parent, error)),
    }
}

fn check_raw(is_data: bool, bytes: u64) -> Result<(), String> {
    let (role, range) = if is_data {
        ("data", DATA_BYTES_MIN..=u64::MAX)
    } else {
        ("log", LOG_BYTES_MIN..=LOG_BYTES_MAX)
    };
    if range.contains(&bytes) {
        return Ok(());
    }
    let needed = if is_data { "at least 16MiB" } else { "1MiB to below 16TiB" };
    Err(format!("{bytes} bytes; a {role} device needs {needed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_devices_of_no_use_are_refused_with_the_size_they_need() {
        assert_eq!(check_raw(true, 16 << 20), Ok(()));
        assert_eq!(check_raw(false, 1 << 20), Ok(()));
        let small = check_raw(true, 4096).expect_err("too small");
        assert_eq!(small, "4096 bytes; a data device needs at least 16MiB");
        for bytes in [4096, 16 << 40] {
            let refused = check_raw(false, bytes).expect_err("out of range");
            assert!(refused.ends_with("a log device needs 1MiB to below 16TiB"), "{refused}");
        }
    }
}
