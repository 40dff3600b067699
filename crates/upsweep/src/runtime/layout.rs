//! A store on the file system: a folder with
//!
//! | file | what it is |
//! |---|---|
//! | `store.json` | what the store is: identity, paths of the devices, sizes, profiles |
//! | `lock` | locked by the one process that has the store open; holds its number |
//! | `profile.toml` | what the devices do, which settings follow from (`profiles.rs`) |
//! | `profile.tracks` | searches for tracks that are not over (`searching.rs`) |
//! | `session.json` | what the last session measured, for `stat` |
//! | `data-0`, `log-0` | the devices, unless others were named |

#![expect(clippy::disallowed_methods, reason = "the runtime is where files enter the system")]
#![expect(clippy::disallowed_types, reason = "a store that ends lets go of its lock at once")]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::description::{self, Description};
use super::new_devices::{NewDevices, check_parent};
use super::profiles::{PROFILE, profiles_to_toml, read_profiles};
use crate::device::{self, HostDevices, HostOptions, HostPath, Profile};
use crate::engine::Access;
pub use crate::engine::policy::LOG_BYTES_DEFAULT;
use crate::error::{Error, RequestError, RetryError};

/// Name of the file with the description.
pub(super) const DESCRIPTION: &str = "store.json";

/// How to create a store: the defaults, and what is set otherwise.
///
/// ```
/// let options = upsweep::CreateOptions::default().log_bytes(64 << 20).block_bytes(32 << 10);
/// assert_eq!(options.log_bytes, Some(64 << 20));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CreateOptions {
    /// Data devices: files to be made, or existing raw block devices. None: one file in the store.
    pub data: Vec<PathBuf>,
    /// Log devices, likewise, 8 at most.
    pub log: Vec<PathBuf>,
    /// Least target size of a block in bytes (4 KiB to 1 MiB, a multiple of 4 KiB). None: 16 KiB on
    /// solid-state devices, 64 KiB on rotating ones. A block takes some 170 bytes of the memory
    /// budget, and where all would take more than a fifth of it, the sweep makes larger blocks:
    /// with the default for data of more than ten times the memory or so. A cold point query reads
    /// more then.
    pub block_bytes: Option<u32>,
    /// Most bytes that each log device takes that is a file (1 MiB to below 16 TiB). None: 512 MiB;
    /// a raw device is used whole. A file begins with an eighth of it, or 16 MiB if that is more,
    /// and becomes longer while that is needed, up to four times the data. Values up to 1 MiB need
    /// 16 MiB or more: a record takes an eighth of the smallest log device at most.
    pub log_bytes: Option<u64>,
    /// What the devices do, if that is known, in place of a measurement of some seconds:
    /// [`read_profiles`](crate::layers::runtime::read_profiles) reads it from a file. A profile is
    /// of the devices that it names, data devices numbered first, or of any if it names none.
    pub profiles: Vec<Profile>,
}

/// An open store folder: the lock is held until [`Folder::unlock`], or until this is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    lock: Mutex<Option<File>>,
}

pub(super) fn path_error(path: &Path, error: impl std::fmt::Display) -> Error {
    RequestError::Path { path: path.to_owned(), reason: error.to_string() }.into()
}

/// A lock file that cannot be opened for writing.
fn lock_error(path: &Path, error: &std::io::Error) -> Error {
    let advice = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "; only opening for reading works there"
        }
        _ => "",
    };
    path_error(path, format!("{error}{advice}"))
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.unlock();
    }
}

/// The folder with its lock file locked by `try_lock`.
fn locked(
    path: &Path,
    mut lock: File,
    try_lock: fn(&File) -> Result<(), TryLockError>,
) -> Result<Folder, Error> {
    match try_lock(&lock) {
        Ok(()) => Ok(Folder { path: path.to_owned(), lock: Mutex::new(Some(lock)) }),
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let read = lock.read_to_string(&mut text);
            let pid = read.ok().and_then(|_| text.trim().parse().ok());
            if pid == Some(std::process::id()) {
                return Err(RetryError::OpenHere(path.to_owned()).into());
            }
            Err(RetryError::InUse { path: path.to_owned(), pid }.into())
        }
        Err(TryLockError::Error(error)) => Err(path_error(&path.join("lock"), error)),
    }
}

impl Folder {
    /// Locks the folder for somebody who only looks, perhaps on read-only media. Without a lock
    /// file nobody has had the store open; its devices are locked all the same.
    fn lock_shared(path: &Path) -> Result<Self, Error> {
        let lock_path = path.join("lock");
        let lock = match File::open(&lock_path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self { path: path.to_owned(), lock: Mutex::default() });
            }
            Err(error) => return Err(path_error(&lock_path, error)),
        };
        locked(path, lock, File::try_lock_shared)
    }

    pub(super) fn lock(path: &Path) -> Result<Self, Error> {
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(|error| lock_error(&lock_path, &error))?;
        let folder = locked(path, lock, File::try_lock)?;
        if let Some(lock) = &mut *folder.lock_file() {
            let written = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
            written.map_err(|error| path_error(&lock_path, error))?;
        }
        Ok(folder)
    }

    fn lock_file(&self) -> MutexGuard<'_, Option<File>> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets others have the store.
    pub(super) fn unlock(&self) {
        // Closing alone would not do: a child process that is being started has the file open too.
        if let Some(lock) = self.lock_file().take() {
            drop(lock.unlock());
        }
    }

    /// Leaves the lock to the process that this one is a fork of.
    pub(super) fn forget(&self) {
        std::mem::forget(self.lock_file().take());
    }

    /// Its number in its file system, which it keeps when it is renamed; a copy has another.
    pub(super) fn number(&self) -> Option<u64> {
        fs::metadata(&self.path).ok().and_then(|found| device::file_number(&found))
    }

    /// The profiles of the devices; none if there is no file with them.
    pub(super) fn read_profiles(&self) -> Result<Vec<Profile>, Error> {
        let file = self.path.join(PROFILE);
        if file.exists() { read_profiles(&file) } else { Ok(Vec::new()) }
    }

    /// What the last session measured, as the text of a JSON value.
    pub(super) fn read_session(&self) -> Option<String> {
        read_file(&self.path.join("session.json")).ok()
    }

    /// Keeps what this session measured. Nothing depends on it, so failing is harmless.
    pub(super) fn write_session(&self, text: &str) {
        // The measurement is for information only; a store on a full disk must still close.
        drop(fs::write(self.path.join("session.json"), text));
    }
}

/// The text of a regular file: reading a pipe might never end.
pub(super) fn read_file(path: &Path) -> std::io::Result<String> {
    if fs::metadata(path)?.is_file() {
        fs::read_to_string(path)
    } else {
        Err(std::io::Error::other("not a regular file; restore it from a copy"))
    }
}

/// Locks the store in `folder`, for reading only if that is all, and reads its description.
pub(super) fn lock(folder: &Path, access: Access) -> Result<(Folder, Description), Error> {
    let file = folder.join(DESCRIPTION);
    let text = read_file(&file).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            RequestError::NoStore(folder.to_owned()).into()
        }
        _ => path_error(&file, error),
    })?;
    let read_only = access == Access::ReadOnly;
    let locked = if read_only { Folder::lock_shared(folder) } else { Folder::lock(folder) }?;
    description::check_version(text.as_bytes()).map_err(|reason| path_error(&file, reason))?;
    let description = Description::parse(text.as_bytes()).map_err(|error| {
        path_error(&file, format!("{error}; the devices have a copy, which a repair restores"))
    })?;
    Ok((locked, description))
}

/// Locks the store in `folder` and opens its devices, for reading only if that is all.
pub(super) fn open(
    folder: &Path,
    access: Access,
) -> Result<(Folder, Description, HostDevices), Error> {
    let (locked, description) = lock(folder, access)?;
    let paths: Vec<HostPath> = description
        .paths(folder)
        .into_iter()
        .map(|path| HostPath { path, create: false })
        .collect();
    let read_only = access == Access::ReadOnly;
    let options = HostOptions { read_only, ..HostOptions::default() };
    let mut devices = HostDevices::open(&paths, options)?;
    description::check_labels(&mut devices, &description)?;
    Ok((locked, description, devices))
}

/// A store folder that was just made, with the devices that are files of it.
pub(super) struct Made {
    folder: PathBuf,
    was_there: bool,
    files: Vec<PathBuf>,
}

impl Made {
    /// Removes it again. Best effort: what cannot be removed is reported by the next attempt to
    /// create.
    pub(super) fn remove(&self) {
        self.files.iter().for_each(|file| drop(fs::remove_file(file)));
        for file in [DESCRIPTION, PROFILE, "lock"] {
            drop(fs::remove_file(self.folder.join(file)));
        }
        if !self.was_there {
            drop(fs::remove_dir(&self.folder));
        }
    }
}

/// Makes a store folder with its devices; whatever it made is removed again if it fails.
pub(super) fn create(folder: &Path, options: &CreateOptions) -> Result<Made, Error> {
    let was_there = folder.exists();
    let occupied = was_there
        && (!folder.is_dir() || fs::read_dir(folder).is_ok_and(|mut d| d.next().is_some()));
    if occupied {
        return Err(RequestError::AlreadyExists(folder.to_owned()).into());
    }
    check_parent(folder)?;
    let devices = NewDevices::check(folder, options)?;
    if !was_there {
        fs::create_dir(folder).map_err(|error| path_error(folder, error))?;
    }
    let files = devices.paths.iter().filter(|path| path.create).map(|path| path.path.clone());
    let made = Made { folder: folder.to_owned(), was_there, files: files.collect() };
    let inside = create_inside(folder, options, &devices);
    let named = inside.and_then(|()| if was_there { Ok(()) } else { sync_name(folder) });
    named.inspect_err(|_| made.remove())?;
    Ok(made)
}

/// Makes the name of a new folder durable.
fn sync_name(folder: &Path) -> Result<(), Error> {
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    device::sync_folder(parent.unwrap_or(Path::new("."))).map_err(|error| path_error(folder, error))
}

fn create_inside(folder: &Path, options: &CreateOptions, new: &NewDevices) -> Result<(), Error> {
    let _lock = Folder::lock(folder)?;
    let mut devices = HostDevices::open(&new.paths, HostOptions::default())?;
    let rings = new.size(&mut devices)?;
    let places = new.places(folder);
    let names = new.names.clone();
    let made = description::format(&mut devices, options, names, rings, &places)?;
    sync_file(&folder.join(PROFILE), &profiles_to_toml(&made.profiles))?;
    sync_file(&folder.join(DESCRIPTION), &description::to_json(&made.description))?;
    device::sync_folder(folder).map_err(|error| path_error(folder, error))
}

/// Writes a file so that it is whole or not there after a crash.
pub(super) fn sync_file(path: &Path, text: &str) -> Result<(), Error> {
    let temporary = path.with_extension("new");
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| path_error(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_write_is_told_why_that_is_needed() {
        let shown = |kind: ErrorKind| lock_error(Path::new("s/lock"), &kind.into()).to_string();
        let advice = "; only opening for reading works there";
        for kind in [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem] {
            let shown = shown(kind);
            assert!(shown.starts_with("s/lock: ") && shown.contains(advice), "{shown}");
        }
        assert!(!shown(ErrorKind::IsADirectory).contains(advice));
    }
}
