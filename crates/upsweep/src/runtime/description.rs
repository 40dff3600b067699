//! What a store consists of, as it describes itself: identity, devices, sizes and profiles.
//!
//! Every device starts with a label: an image of kind label that names store and device and repeats
//! the description, so that devices cannot be swapped and a lost description can be restored.

#![expect(clippy::disallowed_methods, reason = "the system's randomness enters here")]

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::layout::{CreateOptions, path_error};
use super::log_page;
use super::profiles::position_of;
use crate::device::{
    self, Bank, Buffer, DeviceError, DeviceId, DeviceProfile, Effort, Measurement, Profile, Range,
};
use crate::engine::format::image_format::{self, Identity, ImageKind};
use crate::engine::policy::{self, Options, Scale, Shape, Suited};
use crate::engine::{self, Config, DATA_START};
use crate::error::{ClosedError, Damage, Error, Location, RequestError};
use crate::log::{LogRegion, Seq};

/// Latest version of a description.
const VERSION_MAX: u32 = 4;
/// First version in which every device has a profile.
const PROFILES_SINCE: u32 = 4;
/// Bytes at the start of every device that the label may take.
pub(super) const LABEL_BYTES: usize = 4096;
/// Where the ring of a log device starts.
pub(super) const LOG_START: u64 = LABEL_BYTES as u64;
/// What a store consists of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Version of this description. 4: each device has a profile. 3: a log file may be shorter than
    /// its ring may become, and its length says how long the ring is. 2: the log has pages of less
    /// than 4096 bytes, which programs that know 1 only would take for an empty log.
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
    /// What was measured when the store was created: one for each device.
    #[serde(default)]
    pub profiles: Vec<Measured>,
}

/// What was measured of devices that are one below, such as files of one file system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Their numbers.
    pub devices: Vec<u16>,
    /// What they do.
    #[serde(flatten)]
    pub profile: DeviceProfile,
}

/// What a store says of itself, and what is known of its devices.
pub(super) struct Described {
    pub(super) description: Description,
    pub(super) profiles: Vec<Profile>,
}

impl Described {
    /// What is known of a device beyond the description.
    pub(super) fn profile(&self, device: DeviceId) -> Option<&Profile> {
        position_of(&self.profiles, device).map(|position| &self.profiles[position])
    }

    /// The figures of a device: of its profile, or as they were when the store was created.
    pub(super) fn figures(&self, device: DeviceId) -> DeviceProfile {
        let known = self.profile(device).and_then(Profile::figures);
        known.unwrap_or_else(|| self.description.profile(device).clone())
    }

    /// Bytes per second that a device reads and writes together, half of them each: as it was
    /// measured, or if reads and writes take turns.
    pub(super) fn mixed(&self, device: DeviceId) -> u64 {
        let known = self.profile(device).and_then(|profile| profile.writes);
        let taking_turns = || {
            let figures = self.figures(device);
            let [read, write] = [
                figures.sequential_read_bytes_per_second,
                figures.sequential_write_bytes_per_second,
            ]
            .map(|rate| rate.max(1) as f64);
            (2.0 / (1.0 / read + 1.0 / write)) as u64
        };
        known.map_or_else(taking_turns, |writes| writes.mixed_bytes_per_second)
    }

    /// Numbers of the data devices.
    pub(super) fn data(&self) -> impl Iterator<Item = DeviceId> + use<> {
        (0..self.description.data_count()).map(DeviceId)
    }

    /// Numbers of the log devices.
    pub(super) fn log(&self) -> impl Iterator<Item = DeviceId> + use<> {
        (self.description.data_count()..self.description.device_count()).map(DeviceId)
    }

    /// What the configuration of the store follows from, but for boundaries and stripes of devices.
    pub(super) fn shape(&self) -> Shape {
        let data = self.data().filter_map(|device| self.profile(device));
        let log = self.log().filter_map(|device| self.profile(device));
        Shape { suited: Suited::of(data, log), ..self.description.shape() }
    }

    /// The configuration with more memory than anything needs, to make a store or to check it.
    pub(super) fn config_with_any_memory(&self) -> Config {
        let options = Options { memory_bytes: usize::MAX / 4, ..Options::default() };
        policy::configure(&self.shape(), &options, &Scale::FULL)
    }
}

/// What all descriptions have.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// The profiles of descriptions of before version 4: one for all devices of a sort.
#[derive(Deserialize)]
struct ProfilesBefore {
    data_profile: DeviceProfile,
    log_profile: DeviceProfile,
}

/// Whether this program knows the version of the description in `text`, if it has one. A later one
/// may have other fields, so this is asked first.
pub(super) fn check_version(text: &[u8]) -> Result<(), String> {
    match serde_json::from_slice(text) {
        Ok(Versioned { version }) if !(1..=VERSION_MAX).contains(&version) => {
            Err(format!("version {version}; this program knows 1 to {VERSION_MAX}"))
        }
        _ => Ok(()),
    }
}

impl Description {
    /// Reads one, whatever its version: those of before version 4 get a profile for each device.
    ///
    /// # Errors
    /// A description of the problem, as text for people.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let mut found: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if found.store_id().is_none() {
            return Err("the store's identity is not 32 hexadecimal digits".to_owned());
        }
        if found.version < PROFILES_SINCE {
            found.profiles = found.profiles_before(text)?;
        }
        match (0..found.device_count()).find(|device| found.measured(*device).is_none()) {
            Some(device) => Err(format!("device {device} has no profile")),
            None => Ok(found),
        }
    }

    fn profiles_before(&self, text: &[u8]) -> Result<Vec<Measured>, String> {
        let before: ProfilesBefore =
            serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let ProfilesBefore { data_profile, log_profile } = before;
        if data_profile == log_profile {
            let devices = (0..self.device_count()).collect();
            return Ok(vec![Measured { devices, profile: data_profile }]);
        }
        let data = Measured { devices: (0..self.data_count()).collect(), profile: data_profile };
        let devices = (self.data_count()..self.device_count()).collect();
        Ok(vec![data, Measured { devices, profile: log_profile }])
    }

    fn data_count(&self) -> u16 {
        u16::try_from(self.data.len()).unwrap_or(u16::MAX)
    }

    fn device_count(&self) -> u16 {
        u16::try_from(self.data.len() + self.log.len()).unwrap_or(u16::MAX)
    }

    fn measured(&self, device: u16) -> Option<&Measured> {
        self.profiles.iter().find(|measured| measured.devices.contains(&device))
    }

    /// What a device of the store does.
    ///
    /// # Panics
    /// If there is no such device.
    pub(super) fn profile(&self, device: DeviceId) -> &DeviceProfile {
        &self.measured(device.0).expect("each device has one").profile
    }

    /// The profiles of the data devices.
    pub(super) fn data_profiles(&self) -> impl Iterator<Item = &DeviceProfile> {
        (0..self.data_count()).map(|device| self.profile(DeviceId(device)))
    }

    /// The profiles of the log devices.
    pub(super) fn log_profiles(&self) -> impl Iterator<Item = &DeviceProfile> {
        (self.data_count()..self.device_count()).map(|device| self.profile(DeviceId(device)))
    }

    /// Whether a device of the log is one below with one for data.
    pub(super) fn log_shares_device(&self) -> bool {
        let count = self.data_count();
        self.profiles.iter().any(|Measured { devices, .. }| {
            devices.iter().any(|device| *device < count)
                && devices.iter().any(|device| *device >= count)
        })
    }

    fn store_id(&self) -> Option<[u8; 16]> {
        u128::from_str_radix(&self.store, 16).ok().map(u128::to_be_bytes)
    }

    /// What the configuration of the store follows from, where nothing else is known of its
    /// devices.
    pub(super) fn shape(&self) -> Shape {
        let data_devices = self.data_count();
        let rings = self.log_ring_bytes.iter().zip(data_devices..);
        let log_regions = rings
            .map(|(&bytes, device)| LogRegion {
                device: DeviceId(device),
                offset: LOG_START,
                bytes,
            })
            .collect();
        Shape {
            store: self.store_id().expect("checked when it was read"),
            data_devices,
            rotates: self.data_profiles().any(|profile| profile.rotational),
            log_regions,
            block_bytes: self.block_bytes,
            log_segment_bytes: self.log_segment_bytes,
            log_page_bytes: self.log_page_bytes,
            suited: Suited::default(),
            boundaries: Vec::new(),
        }
    }

    /// All devices in the order of the bank.
    pub(super) fn paths(&self, folder: &Path) -> Vec<PathBuf> {
        self.data.iter().chain(&self.log).map(|path| folder.join(path)).collect()
    }
}

/// The names of the devices of a new store.
#[derive(Clone)]
pub(super) struct Names {
    pub(super) data: Vec<PathBuf>,
    pub(super) log: Vec<PathBuf>,
}

/// Checks that the label of each device of the store names it.
pub(super) fn check_labels(devices: &mut dyn Bank, description: &Description) -> Result<(), Error> {
    let store = description.shape().store;
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
            let what = format!("label of {}", devices.description(device).name);
            let location = Some(Location { device, offset: 0 });
            return Err(Damage { location, what, reason }.into());
        }
    }
    Ok(())
}

/// The text of the description in a label, or why there is none.
pub(super) fn described(label: &[u8]) -> Result<&[u8], String> {
    let (identity, body) = image_format::parse(label).map_err(|error| format!("label: {error}"))?;
    if identity.kind != ImageKind::Label {
        return Err("it does not begin with a label".to_owned());
    }
    if body.is_empty() {
        return Err("its label has no description, whose paths were too long for it".to_owned());
    }
    Ok(&label[body])
}

/// The description that the first device of a bank has in its label.
///
/// # Errors
/// [`RequestError::Path`](crate::RequestError::Path) with its name, if it has none.
pub(super) fn of_bank(devices: &mut dyn Bank) -> Result<Description, Error> {
    let first = DeviceId(0);
    let found = match devices.count() {
        0 => Err("no devices".to_owned()),
        _ => device::read_alone(devices, first, 0, LABEL_BYTES)
            .map_err(|error| error.to_string())
            .and_then(|label| {
                let text = described(&label)?;
                check_version(text).and_then(|()| Description::parse(text))
            }),
    };
    found.map_err(|reason| {
        let name =
            if devices.count() > 0 { devices.description(first).name } else { String::new() };
        path_error(Path::new(&name), format!("no store: {reason}"))
    })
}

/// Whether the copy of the description in a label agrees with `store.json`. Paths may differ:
/// whoever moves devices changes them by hand.
fn check_description(label: &[u8], description: &Description) -> Result<(), String> {
    if label.is_empty() {
        return Ok(()); // its paths were too long for a label
    }
    let copy = Description::parse(label)?;
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
    Identity { store, kind: ImageKind::Label, number: u32::from(index), seq: Seq::NONE, key: &[] }
}

pub(super) fn to_json(description: &Description) -> String {
    serde_json::to_string_pretty(description).expect("its paths are UTF-8")
}

/// Makes an empty store of `devices`, whose rings may become so long; returns what is known of it.
/// `places` tells what each of them lies on, as far as that is known.
pub(super) fn format(
    devices: &mut dyn Bank,
    options: &CreateOptions,
    names: Names,
    rings: Vec<u64>,
    places: &[Option<u64>],
) -> Result<Described, Error> {
    let described = describe(devices, options, names, rings, places)?;
    let config = described.config_with_any_memory();
    config.check()?;
    write_labels(devices, &described.description, config.store)?;
    engine::create(devices, &config)?;
    Ok(described)
}

/// What is known of a device, or is measured now. `clock` tells the time.
fn profile(devices: &mut dyn Bank, device: DeviceId, clock: &Clock) -> Result<Profile, Error> {
    if let Some(known) = devices.profile(device) {
        return Ok(known);
    }
    let range = scratch(devices.geometry(device).size_bytes);
    let measurement = Measurement { effort: Effort::Short, range, writes: true };
    let profile = device::measure(devices, device, &measurement, || clock.elapsed(), &mut |_| ())
        .map_err(|error| device_error(devices, device, &error))?;
    Ok(Profile { name: devices.description(device).name, ..profile })
}

/// The part of a device that a short measurement uses.
fn scratch(bytes: u64) -> Range {
    Range { offset: 0, bytes: bytes.min(PROBE_BYTES) }
}

fn device_error(devices: &dyn Bank, device: DeviceId, error: &DeviceError) -> Error {
    path_error(Path::new(&devices.description(device).name), error)
}

fn describe(
    devices: &mut dyn Bank,
    options: &CreateOptions,
    Names { data, log }: Names,
    rings: Vec<u64>,
    places: &[Option<u64>],
) -> Result<Described, Error> {
    let first_log = DeviceId(u16::try_from(data.len()).unwrap_or(u16::MAX));
    // Simulated devices are as fast as their own clock says.
    let clock = Clock::start_at(0, devices.clock_of(DeviceId(0)));
    let mut profiles = match options.profiles.is_empty() {
        true => measure(devices, first_log, places, &clock)?,
        false => given(devices.count(), &options.profiles)?,
    };
    let mut description = Description {
        version: VERSION_MAX,
        store: format!("{:032x}", u128::from_be_bytes(random_id()?)),
        data,
        log,
        block_bytes: 0,
        log_segment_bytes: policy::log_segment_bytes(&rings, &Scale::FULL),
        log_page_bytes: log_page::page_bytes_before(),
        log_ring_bytes: rings,
        profiles: figures(&profiles),
    };
    let rotates = description.data_profiles().any(|profile| profile.rotational);
    description.block_bytes = policy::block_bytes(rotates, options.block_bytes, &Scale::FULL);
    if !description.log_profiles().any(|profile| profile.rotational) {
        let rings = &description.log_ring_bytes;
        let chosen = log_page::choose(devices, first_log, rings, scratch, || clock.elapsed())
            .map_err(|(device, error)| device_error(devices, device, &error))?;
        description.log_page_bytes = chosen.page_bytes;
        for (device, found) in chosen.writes {
            let of = |profile: &&mut Profile| profile.devices.contains(&device.0);
            let profile = profiles.iter_mut().find(of).expect("each device has one");
            if let Some(writes) = &mut profile.writes {
                let all = writes.block_writes.into_iter().chain([found]);
                writes.block_writes = all.max_by(log_page::slower);
            }
        }
        description.profiles = figures(&profiles);
    }
    Ok(Described { description, profiles })
}

/// What a description keeps of profiles that name their devices.
fn figures(profiles: &[Profile]) -> Vec<Measured> {
    let measured = |profile: &Profile| {
        let figures = profile.figures().expect("checked when it was given");
        Measured { devices: profile.devices.clone(), profile: figures }
    };
    profiles.iter().map(measured).collect()
}

/// The profiles that were given, each with the devices that it is of.
fn given(devices: u16, profiles: &[Profile]) -> Result<Vec<Profile>, Error> {
    let bad = |reason: String| RequestError::BadConfig { setting: "profile", reason };
    let mut of = vec![Vec::new(); profiles.len()];
    for index in 0..devices {
        let Some(position) = position_of(profiles, DeviceId(index)) else {
            let reason = format!(
                "none is of device {index}, data devices numbered first; list it in `devices` of \
                 one"
            );
            return Err(bad(reason).into());
        };
        of[position].push(index);
    }
    let used = profiles.iter().zip(of).filter(|(_, devices)| !devices.is_empty());
    let used = used.map(|(profile, devices)| Profile { devices, ..profile.clone() });
    let check = |profile: Profile| {
        profile.check().map_err(bad)?;
        match profile.writes {
            Some(_) => Ok(profile),
            None => Err(bad("it has no writes; give one that was measured with writes".to_owned())),
        }
    };
    Ok(used.map(check).collect::<Result<_, RequestError>>()?)
}

/// The profiles of all devices; those in one place have the same.
fn measure(
    devices: &mut dyn Bank,
    first_log: DeviceId,
    places: &[Option<u64>],
    clock: &Clock,
) -> Result<Vec<Profile>, Error> {
    let mut profiles: Vec<Profile> = Vec::new();
    // Logs first: a new data file is too small for a good measurement.
    for index in (first_log.0..devices.count()).chain(0..first_log.0) {
        let place = places[usize::from(index)];
        let same = |found: &&mut Profile| {
            place.is_some() && places[usize::from(found.devices[0])] == place
        };
        match profiles.iter_mut().find(same) {
            Some(found) => found.devices.push(index),
            None => {
                let found = profile(devices, DeviceId(index), clock)?;
                profiles.push(Profile { devices: vec![index], ..found });
            }
        }
    }
    Ok(profiles)
}

/// What the short measurement may write and read of a device.
const PROBE_BYTES: u64 = 256 << 20;

fn write_labels(
    devices: &mut dyn Bank,
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
            .map_err(|error| ClosedError::WriteFailed { device, offset: Some(0), error })?;
    }
    Ok(())
}

/// Random bytes, which tell what has them from everything else.
pub(super) fn random_id() -> Result<[u8; 16], Error> {
    let mut id = [0; 16];
    match getrandom::fill(&mut id) {
        Ok(()) => Ok(id),
        Err(error) => {
            let reason = format!("the system gives no random bytes: {error}");
            Err(RequestError::BadConfig { setting: "random identity", reason }.into())
        }
    }
}

const _: () = assert!(LABEL_BYTES as u64 <= DATA_START);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{MemoryDevices, ThreadedDevices};

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
        let found = Description::parse(text.as_bytes()).expect("a description");
        assert_eq!((found.log_page_bytes, found.shape().log_page_bytes), (4096, 4096));
        assert_eq!(found.profiles.len(), 1, "both are on one device");
        assert_eq!(found.profile(DeviceId(1)).block_writes, None);
        assert!(found.log_shares_device());
        assert_eq!(check_description(text.as_bytes(), &found), Ok(()));
        let other = Description { log_page_bytes: 512, ..found };
        assert!(check_description(text.as_bytes(), &other).is_err());
    }

    #[test]
    fn of_a_later_version_nothing_but_that_is_read() {
        let later = br#"{"version": 5, "store": 7}"#;
        assert_eq!(check_version(later), Err("version 5; this program knows 1 to 4".to_owned()));
        assert_eq!(check_version(br#"{"version": 4}"#), Ok(()));
        assert_eq!(check_version(b"no description"), Ok(()), "that is told by who reads it");
    }

    #[test]
    fn devices_in_one_place_are_measured_once_and_each_has_a_profile() {
        let bank = MemoryDevices::with_sizes(&[16 << 20; 4], 1);
        let mut devices = ThreadedDevices::new(bank);
        let places = [Some(7), None, Some(7), None];
        let clock = Clock::start();
        let found = measure(&mut devices, DeviceId(2), &places, &clock).expect("measured");
        let groups: Vec<_> = found.iter().map(|measured| measured.devices.clone()).collect();
        assert_eq!(groups, [vec![2, 0], vec![3], vec![1]]);
        let names = |count| vec![PathBuf::from("device"); count];
        let description = Description {
            version: VERSION_MAX,
            store: "00".to_owned(),
            data: names(2),
            log: names(2),
            block_bytes: 16384,
            log_segment_bytes: 65536,
            log_page_bytes: 4096,
            log_ring_bytes: vec![1 << 20; 2],
            profiles: figures(&found),
        };
        assert!(description.log_shares_device());
        let text = to_json(&description);
        assert_eq!(Description::parse(text.as_bytes()).as_ref(), Ok(&description));
        let mut lacking = description;
        lacking.profiles.pop();
        let refused = Description::parse(to_json(&lacking).as_bytes());
        assert_eq!(refused, Err("device 1 has no profile".to_owned()));
    }
}
