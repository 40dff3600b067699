//! A store on the file system: a folder with
//!
//! | file | what it is |
//! |---|---|
//! | `store.json` | the [`Description`]: identity, paths of the devices, sizes, profiles |
//! | `lock` | locked by the one process that has the store open; holds its number |
//! | `session.json` | what the last session measured, for `stat` |
//! | `data-0`, `log-0` | the devices, unless others were named |
//!
//! Every device starts with a label: an image of kind label that names store and device and repeats
//! the description, so that devices cannot be swapped and a lost description can be restored.

#![expect(clippy::disallowed_methods, reason = "the runtime is where files enter the system")]
#![expect(clippy::disallowed_types, reason = "a store that ends lets go of its lock at once")]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::log_page;
use super::new_devices::{NewDevices, check_parent};
use crate::device::{
    self, Buffer, DeviceId, DeviceProfile, Devices, HostDevices, HostOptions, HostPath,
    ScratchRange,
};
use crate::engine::format::image_format::{self, Identity, ImageKind};
use crate::engine::{Access, Config, DATA_START, FANOUT_MIN, FileSpace, Spilling};
use crate::error::{ClosedError, Damage, Error, RequestError, RetryError};
use crate::log::LogRegion;

/// Latest version of a description.
const VERSION_MAX: u32 = 3;
/// Bytes at the start of every device that the label may take.
pub(super) const LABEL_BYTES: usize = 4096;
/// Name of the file with the description.
pub(super) const DESCRIPTION: &str = "store.json";
/// Where the ring of a log device starts.
pub(super) const LOG_START: u64 = LABEL_BYTES as u64;
/// Most bytes of the log of a new store, in bytes, unless another is given.
pub const LOG_BYTES_DEFAULT: u64 = 512 << 20;
/// The log becomes so many times as long as the data, at most.
const LOG_TIMES_DATA: u32 = 4;
/// Segments with which a log file begins.
pub(super) const LOG_SEGMENTS_FIRST: u64 = 8;
/// Blocks are larger where the directory would have more than this part of the memory, in per cent.
const DIRECTORY_PERCENT: u32 = 20;
/// Most blocks of a run, unless another number is given.
const RUN_BLOCKS_MAX: usize = 32;
/// One part in so many of a store's memory is how long a run is, within the two bounds below.
const RUN_PART: usize = 128;
/// Runs of this many bytes are sequential enough.
const RUN_BYTES_MIN: usize = 512 << 10;
/// Most bytes of the blocks of a run.
const RUN_BYTES_MAX: usize = 4 << 20;
/// Below this fill, in per cent, updates batch in memory.
const SPILL_FILL_PERCENT: u32 = 50;
/// A query that needs a bundle reads this much.
const BUNDLE_BYTES: u32 = 16 << 10;
/// One part in so many of a store's memory caches images of blocks.
pub const CACHE_PART: usize = 8;
/// One part in so many of a store's memory is for the queues, or the large values, of one run.
const RUN_CONTENT_PART: usize = 32;
/// Smallest log of one device, in bytes.
pub const LOG_BYTES_MIN: u64 = 1 << 20;

/// How to create a store.
#[derive(Clone, Debug, Default)]
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
}

/// What a store consists of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Version of this description. 3: a log file may be shorter than its ring may become, and its
    /// length says how long the ring is. 2: the log has pages of less than 4096 bytes, which
    /// programs that know 1 only would take for an empty log.
    pub version: u32,
    /// Identity of the store, 32 hexadecimal digits.
    pub store: String,
    /// Data devices; relative paths are relative to the folder.
    pub data: Vec<PathBuf>,
    /// Log devices, likewise.
    pub log: Vec<PathBuf>,
    /// Target size of a block in bytes.
    pub block_bytes: u32,
    /// Bytes of a log segment.
    pub log_segment_bytes: u32,
    /// Bytes of a page of the log.
    #[serde(default = "log_page::page_bytes_before")]
    pub log_page_bytes: u32,
    /// Bytes of the ring on each log device, as long as it may become.
    pub log_ring_bytes: Vec<u64>,
    /// What was measured of the first data device when the store was created.
    pub data_profile: DeviceProfile,
    /// What was measured of the first log device when the store was created.
    pub log_profile: DeviceProfile,
}

impl Description {
    fn store_id(&self) -> Option<[u8; 16]> {
        u128::from_str_radix(&self.store, 16).ok().map(u128::to_be_bytes)
    }

    /// The engine settings that follow, with `memory_bytes` and the defaults of the engine.
    pub(super) fn config(&self, folder: &Path, memory_bytes: usize) -> Result<Config, Error> {
        let store = self.store_id().ok_or_else(|| RequestError::Path {
            path: folder.join(DESCRIPTION),
            reason: "the store's identity is not 32 hexadecimal digits".to_owned(),
        })?;
        let data_devices = u16::try_from(self.data.len()).unwrap_or(u16::MAX);
        let rings = self.log_ring_bytes.iter().zip(data_devices..);
        let log_regions = rings
            .map(|(&bytes, device)| LogRegion {
                device: DeviceId(device),
                offset: LOG_START,
                bytes,
            })
            .collect();
        Ok(Config {
            store,
            data_devices,
            log_regions,
            log_times_data: LOG_TIMES_DATA,
            log_segment_bytes: self.log_segment_bytes,
            log_page_bytes: self.log_page_bytes,
            log_batch_bytes: (128 << 10).min(self.log_segment_bytes / 4 / 4096 * 4096).max(4096),
            log_depth: 2,
            log_delay_us_max: 5_000,
            block_bytes: self.block_bytes,
            directory_percent: DIRECTORY_PERCENT,
            memory_bytes,
            cache_bytes: memory_bytes / CACHE_PART,
            fold_bytes_min: 4096,
            run_blocks_max: run_blocks_max(self.block_bytes, memory_bytes),
            run_bytes_max: memory_bytes / RUN_CONTENT_PART,
            run_density_percent_min: 50,
            runs_in_flight_max: 4,
            spilling: Spilling::WhenItPays,
            spill_fill_percent: SPILL_FILL_PERCENT,
            bundle_bytes: BUNDLE_BYTES,
            fanout_min: FANOUT_MIN,
            sweep_always: self.data_profile.rotational,
            file_space: FileSpace::default(),
        })
    }

    /// All devices in the order of the bank.
    fn paths(&self, folder: &Path) -> Vec<PathBuf> {
        self.data.iter().chain(&self.log).map(|path| folder.join(path)).collect()
    }
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
        fs::metadata(&self.path).ok().map(|found| found.ino())
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
fn read_file(path: &Path) -> std::io::Result<String> {
    if fs::metadata(path)?.is_file() {
        fs::read_to_string(path)
    } else {
        Err(std::io::Error::other("not a regular file; restore it from a copy"))
    }
}

/// Locks the store in `folder` and opens its devices, for reading only if that is all.
pub(super) fn open(
    folder: &Path,
    access: Access,
) -> Result<(Folder, Description, HostDevices), Error> {
    let file = folder.join(DESCRIPTION);
    let text = read_file(&file).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            RequestError::NoStore(folder.to_owned()).into()
        }
        _ => path_error(&file, error),
    })?;
    let read_only = access == Access::ReadOnly;
    let locked = if read_only { Folder::lock_shared(folder) } else { Folder::lock(folder) }?;
    let description: Description = serde_json::from_str(&text).map_err(|error| {
        path_error(&file, format!("{error}; the devices have a copy, which a repair restores"))
    })?;
    if !(1..=VERSION_MAX).contains(&description.version) {
        let reason =
            format!("version {}; this program knows 1 to {VERSION_MAX}", description.version);
        return Err(path_error(&file, reason));
    }
    let paths: Vec<HostPath> = description
        .paths(folder)
        .into_iter()
        .map(|path| HostPath { path, create: false })
        .collect();
    let options = HostOptions { read_only, ..HostOptions::default() };
    let mut devices = HostDevices::open(&paths, options)?;
    check_labels(&mut devices, &description, folder)?;
    Ok((locked, description, devices))
}

fn check_labels(
    devices: &mut HostDevices,
    description: &Description,
    folder: &Path,
) -> Result<(), Error> {
    let store = description.config(folder, 0)?.store;
    for index in 0..devices.count() {
        let device = DeviceId(index);
        let identity = label_identity(store, index);
        let checked = device::read_alone(devices, device, 0, LABEL_BYTES)
            .map_err(|error| error.to_string())
            .and_then(|label| {
                let body = image_format::decode(&label, &identity)?;
                check_description(&label[body], description)
            });
        if let Err(reason) = checked {
            let what = format!("label of {}", devices.description(device).path.display());
            return Err(Damage { device, offset: 0, what, reason }.into());
        }
    }
    Ok(())
}

/// Whether the copy of the description in a label agrees with `store.json`. Paths may differ:
/// whoever moves devices changes them by hand.
fn check_description(label: &[u8], description: &Description) -> Result<(), String> {
    if label.is_empty() {
        return Ok(()); // its paths were too long for a label
    }
    let copy: Description = serde_json::from_slice(label).map_err(|error| error.to_string())?;
    let without_paths = |description: &Description| Description {
        data: vec![PathBuf::new(); description.data.len()],
        log: vec![PathBuf::new(); description.log.len()],
        ..description.clone()
    };
    let (copy, found) = (without_paths(&copy), without_paths(description));
    if copy == found {
        return Ok(());
    }
    let text = |description| serde_json::to_string(description).unwrap_or_default();
    Err(format!(
        "it says {}, but store.json says {}: a repair restores that from the label",
        text(&copy),
        text(&found)
    ))
}

fn label_identity(store: [u8; 16], index: u16) -> Identity<'static> {
    Identity { store, kind: ImageKind::Label, space: u32::from(index), seq: 0, key: &[] }
}

/// Makes a store folder with its devices; whatever it made is removed again if it fails.
pub(super) fn create(
    folder: &Path,
    options: &CreateOptions,
    format: impl FnOnce(&mut HostDevices, &Config) -> Result<(), Error>,
) -> Result<(), Error> {
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
    let result = create_inside(folder, options, format, &devices);
    if result.is_err() {
        // Best effort: what cannot be removed is reported by the next attempt to create.
        let made = devices.paths.iter().filter(|path| path.create);
        made.for_each(|made| drop(fs::remove_file(&made.path)));
        for file in ["store.json", "lock"] {
            drop(fs::remove_file(folder.join(file)));
        }
        if !was_there {
            drop(fs::remove_dir(folder));
        }
    }
    result
}

fn create_inside(
    folder: &Path,
    options: &CreateOptions,
    format: impl FnOnce(&mut HostDevices, &Config) -> Result<(), Error>,
    new: &NewDevices,
) -> Result<(), Error> {
    let _lock = Folder::lock(folder)?;
    let mut devices = HostDevices::open(&new.paths, HostOptions::default())?;
    let rings = new.size(&mut devices)?;
    let description = describe(folder, options, new, rings, &mut devices)?;
    let config = description.config(folder, usize::MAX / 4)?;
    config.check()?;
    write_labels(&mut devices, &description, config.store)?;
    format(&mut devices, &config)?;
    sync_file(&folder.join(DESCRIPTION), &to_json(&description))?;
    File::open(folder).and_then(|dir| dir.sync_all()).map_err(|error| path_error(folder, error))
}

fn to_json(description: &Description) -> String {
    serde_json::to_string_pretty(description).expect("its paths are UTF-8")
}

/// Writes a file so that it is whole or not there after a crash.
pub(super) fn sync_file(path: &Path, text: &str) -> Result<(), Error> {
    let temporary = path.with_extension("new");
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| path_error(path, error))
}

fn describe(
    folder: &Path,
    options: &CreateOptions,
    new: &NewDevices,
    rings: Vec<u64>,
    devices: &mut HostDevices,
) -> Result<Description, Error> {
    let (data, log) = (new.data.clone(), new.log.clone());
    let first_log = u16::try_from(data.len()).unwrap_or(u16::MAX);
    let clock = Clock::start();
    let scratch = |bytes: u64| ScratchRange { offset: 0, bytes: bytes.min(PROBE_BYTES) };
    let profile = |devices: &mut HostDevices, device: DeviceId| {
        let range = scratch(devices.geometry(device).size_bytes);
        // The first pass meets space that the file system has yet to allocate; the second counts.
        device::probe(devices, device, range, || clock.elapsed())
            .and_then(|_| device::probe(devices, device, range, || clock.elapsed()))
            .map_err(|error| path_error(&devices.description(device).path, error))
    };
    let mut log_profile = profile(devices, DeviceId(first_log))?;
    let mut log_page_bytes = log_page::page_bytes_before();
    if !log_profile.rotational {
        let first = DeviceId(first_log);
        let chosen = log_page::choose(devices, first, &rings, scratch, || clock.elapsed())
            .map_err(|(device, error)| path_error(&devices.description(device).path, error))?;
        log_page_bytes = chosen.page_bytes;
        log_profile.block_writes = chosen.writes;
    }
    // A new data file is too small for a good measurement; on the log's file system it shares the
    // log's device.
    let shares =
        |path: &Path| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|m| m.dev());
    let data_device = shares(&folder.join(&data[0]));
    let data_profile = if data_device.is_some() && data_device == shares(&folder.join(&log[0])) {
        log_profile.clone()
    } else {
        profile(devices, DeviceId(0))?
    };
    let can_grow = (first_log..)
        .map(DeviceId)
        .zip(&rings)
        .any(|(device, ring)| devices.geometry(device).size_bytes < LOG_START + *ring);
    let log_segment_bytes = segment_bytes(&rings);
    let block_bytes = if data_profile.rotational { 64 << 10 } else { 16 << 10 };
    Ok(Description {
        version: match (can_grow, log_page_bytes < log_page::page_bytes_before()) {
            (true, _) => 3,
            (false, true) => 2,
            (false, false) => 1,
        },
        store: format!("{:032x}", u128::from_be_bytes(random_id(folder)?)),
        data,
        log,
        block_bytes: options.block_bytes.unwrap_or(block_bytes),
        log_segment_bytes,
        log_page_bytes,
        log_ring_bytes: rings,
        data_profile,
        log_profile,
    })
}

/// What the probe may write and read of a device.
const PROBE_BYTES: u64 = 256 << 20;

/// Segments of a sixty-fourth of the ring, so that little of it waits for a whole segment to be
/// free, but of at least 2 MiB where the ring is large enough, so that a value of 1 MiB fits.
pub(super) fn segment_bytes(rings: &[u64]) -> u32 {
    let ring_bytes = rings.iter().copied().min().unwrap_or(0);
    let wanted = (ring_bytes / 64).max((2 << 20).min(ring_bytes / 8)).min(64 << 20);
    u32::try_from(wanted - wanted % 4096).unwrap_or(64 << 20)
}

/// Bounded in bytes too, because the buffers of runs are memory in which no update waits, however
/// large the blocks are.
fn run_blocks_max(block_bytes: u32, memory_bytes: usize) -> usize {
    let run_bytes = (memory_bytes / RUN_PART).clamp(RUN_BYTES_MIN, RUN_BYTES_MAX);
    (run_bytes / block_bytes.max(1) as usize).clamp(1, RUN_BLOCKS_MAX)
}

fn write_labels(
    devices: &mut HostDevices,
    description: &Description,
    store: [u8; 16],
) -> Result<(), Error> {
    let text = to_json(description);
    let room = LABEL_BYTES - image_format::HEADER_BYTES;
    // A description with very long paths does not fit; the label then names the store only.
    let body = if text.len() <= room { text.as_bytes() } else { &[] };
    for index in 0..devices.count() {
        let device = DeviceId(index);
        let mut label = Buffer::zeroed(LABEL_BYTES);
        image_format::encode(&label_identity(store, index), body, &mut label);
        device::write_alone(devices, device, 0, label)
            .map_err(|error| ClosedError::WriteFailed { device, offset: 0, error })?;
    }
    Ok(())
}

/// Random bytes, which tell what has them from everything else; `folder` is for the error.
pub(super) fn random_id(folder: &Path) -> Result<[u8; 16], Error> {
    let mut id = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut id));
    read.map_err(|error| path_error(folder, error))?;
    Ok(id)
}

const _: () = assert!(LABEL_BYTES as u64 <= DATA_START);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_of_before_have_pages_of_4096_bytes() {
        let profile = r#"{"sequential_read_bytes_per_second": 1, "random_read_us": 3,
            "sequential_write_bytes_per_second": 2, "sync_write_us": 4, "rotational": false,
            "reason": "fast"}"#;
        let text = format!(
            r#"{{"version": 1, "store": "00", "data": ["d"], "log": ["l"], "block_bytes": 16384,
            "log_segment_bytes": 65536, "log_ring_bytes": [1048576], "data_profile": {profile},
            "log_profile": {profile}}}"#
        );
        let found: Description = serde_json::from_str(&text).expect("a description");
        let config = found.config(Path::new("s"), 64 << 20).expect("an identity");
        assert_eq!((found.log_page_bytes, config.log_page_bytes), (4096, 4096));
        assert_eq!(found.log_profile.block_writes, None);
        assert_eq!(check_description(text.as_bytes(), &found), Ok(()));
        let other = Description { log_page_bytes: 512, ..found };
        assert!(check_description(text.as_bytes(), &other).is_err());
    }

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
