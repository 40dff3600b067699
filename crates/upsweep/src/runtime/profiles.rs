//! Device profiles as files: plain TOML, which people may edit and share, and which is beside a
//! store as `profile.toml`.
//!
//! A file has one or more profiles. Each names the devices of the store that it is of; one that
//! names none is of any device. A store without the file knows what its description says.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::layout::{path_error, read_file};
use crate::device::{Bank, DeviceId, Profile};
use crate::error::Error;

/// Name of the file in the folder of a store.
pub(super) const PROFILE: &str = "profile.toml";
/// The version of the form of such files.
const FORMAT: u32 = 1;
/// What every file begins with.
const HEAD: &str = "\
# What the devices do, as `upsweep device profile` measured it. The settings of a store follow from
# [profile.reads] and [profile.writes], which may be edited; the curves show where these come from.

";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    profile: Vec<Profile>,
}

/// The text of a file with these profiles.
#[must_use]
pub fn profiles_to_toml(profiles: &[Profile]) -> String {
    let file = File { format: FORMAT, profile: profiles.to_vec() };
    let text = toml::to_string(&file).expect("a profile has nothing that TOML lacks");
    HEAD.to_owned() + &text
}

/// The profiles in the text of a file.
///
/// # Errors
/// What is wrong with it and where, as text for people.
pub fn profiles_from_toml(text: &str) -> Result<Vec<Profile>, String> {
    let File { format, profile } = toml::from_str(text).map_err(|error| error.to_string())?;
    if format != FORMAT {
        return Err(format!("format {format}; this program knows {FORMAT}"));
    }
    if profile.is_empty() {
        return Err("it has no profile".to_owned());
    }
    profile.iter().try_for_each(Profile::check)?;
    Ok(profile)
}

/// Reads the profiles in a file.
///
/// # Errors
/// [`RequestError::Path`](crate::RequestError::Path) with what is wrong: mend the file, or measure
/// anew.
pub fn read_profiles(path: &Path) -> Result<Vec<Profile>, Error> {
    let text = read_file(path).map_err(|error| path_error(path, error))?;
    profiles_from_toml(&text).map_err(|reason| path_error(path, reason))
}

/// What a bank knows of its devices.
pub(super) fn of_bank(bank: &dyn Bank) -> Vec<Profile> {
    let known = (0..bank.count()).filter_map(|index| {
        let profile = bank.profile(DeviceId(index))?;
        Some(Profile { devices: vec![index], ..profile })
    });
    known.collect()
}

/// Where the profile of a device is among these: the one that names it, else the first that names
/// none.
pub(super) fn position_of(profiles: &[Profile], device: DeviceId) -> Option<usize> {
    let names = |profile: &Profile| profile.devices.contains(&device.0);
    let of_any = |profile: &Profile| profile.devices.is_empty();
    profiles.iter().position(names).or_else(|| profiles.iter().position(of_any))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::device::{
        Effort, Measurement, MemoryDevices, Range, Simulated, ThreadedDevices, measure,
    };

    fn measured() -> Profile {
        let mut bank = MemoryDevices::with_sizes(&[4 << 20], 1);
        let clock = bank.clock();
        let now = || Duration::from_micros(clock.now_us());
        let range = Range { offset: 0, bytes: 4 << 20 };
        let measurement = Measurement { effort: Effort::Full, range, writes: true };
        measure(&mut bank, DeviceId(0), &measurement, now, &mut |_| ()).expect("measured")
    }

    #[test]
    fn a_file_says_what_was_measured() {
        let bank = ThreadedDevices::new(MemoryDevices::with_sizes(&[4 << 20], 1));
        let memory = bank.profile(DeviceId(0)).expect("known");
        let profiles = [Profile { devices: vec![1, 0], ..measured() }, memory];
        let text = profiles_to_toml(&profiles);
        assert!(text.starts_with("# What the devices do"), "{text}");
        assert!(text.contains("\n[profile.reads]\nstreaming_bytes_per_second = "), "{text}");
        assert_eq!(profiles_from_toml(&text).as_deref(), Ok(&profiles[..]));
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named() {
        let text = profiles_to_toml(&[measured()]);
        let refused = |from: &str, to: &str| {
            assert!(text.contains(from), "{text}");
            profiles_from_toml(&text.replacen(from, to, 1)).expect_err("wrong")
        };
        assert_eq!(refused("format = 1", "format = 2"), "format 2; this program knows 1");
        let shown = refused("small_us = ", "smal_us = ");
        assert!(shown.contains("smal_us") && shown.contains("line "), "{shown}");
        let shown = refused("requests_in_flight = ", "requests_in_flight = -");
        assert!(shown.contains("requests_in_flight"), "{shown}");
        assert_eq!(
            profiles_from_toml("format = 1\nprofile = []"),
            Err("it has no profile".to_owned())
        );
    }

    #[test]
    fn a_profile_that_names_a_device_comes_before_one_of_any() {
        let of = |devices: &[u16]| Profile { devices: devices.to_vec(), ..measured() };
        let profiles = [of(&[]), of(&[2, 3]), of(&[1])];
        let found = [0, 1, 2, 3].map(|device| position_of(&profiles, DeviceId(device)));
        assert_eq!(found, [Some(0), Some(2), Some(1), Some(1)]);
        assert_eq!(position_of(&profiles[1..], DeviceId(0)), None);
    }
}
