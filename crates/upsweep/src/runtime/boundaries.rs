//! Which boundaries of the data devices are used: those of profiles, where they hold.
//!
//! A profile may be of another device, or edited, and boundaries that are none cost space and gain
//! nothing. So tracks and stripe units are checked at each open, by reads that take a second or so
//! for each device. Where a file lies on its device is not known, so boundaries are those of raw
//! devices only.

use std::time::Duration;

use serde::Serialize;

use super::clock::Clock;
use super::description::Described;
use crate::device::{Bank, DeviceError, DeviceId, Profile, Stripes, TRACKS_LOOKED_AT, Tracks};
use crate::engine::policy::{self, Shape, Suited};
use crate::events::event;
use crate::placement::Boundaries;

/// The boundaries of a data device that its profile knows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BoundariesStatus {
    /// What is between them: `tracks` or `stripe units`.
    pub of: &'static str,
    /// How many there are.
    pub count: u64,
    /// How certain the profile is of them, from 0 to 1.
    pub confidence: f64,
    /// Whether blocks and runs keep to them.
    pub is_used: bool,
    /// Why, for people.
    pub reason: String,
}

/// What is known of all data devices.
#[derive(Default)]
pub(super) struct Checked {
    /// The boundaries to use.
    pub(super) boundaries: Vec<Boundaries>,
    /// Bytes of a stripe over all drives of an array, of the longest of them, unless the look at it
    /// showed that there is none; 0 without one.
    pub(super) stripe_bytes: u64,
    /// What the profiles say, and whether it holds.
    pub(super) known: Vec<Option<BoundariesStatus>>,
}

impl Checked {
    /// The shape of the store with what was found.
    pub(super) fn shape(&self, described: &Described) -> Shape {
        let shape = described.shape();
        let suited = Suited { stripe_bytes: self.stripe_bytes, ..shape.suited };
        Shape { suited, boundaries: self.boundaries.clone(), ..shape }
    }
}

/// What a look at boundaries showed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Finding {
    /// They are where the profile says.
    Hold,
    /// They are not.
    Fail,
    /// Nobody looked, as they would not be used.
    Unknown,
}

/// What a profile says.
enum Known<'a> {
    Tracks(&'a Tracks),
    Stripes(Stripes),
}

impl<'a> Known<'a> {
    fn of(profile: &'a Profile) -> Option<Self> {
        let tracks = profile.tracks.as_ref().filter(|tracks| tracks.count() > 0);
        let stripes = || profile.parallelism.and_then(|found| found.stripes).map(Self::Stripes);
        tracks.map(Self::Tracks).or_else(stripes)
    }

    /// Looks whether it holds; why it does or does not.
    fn check(
        &self,
        devices: &mut dyn Bank,
        device: DeviceId,
        now: impl Fn() -> Duration,
    ) -> Result<(bool, String), DeviceError> {
        match self {
            Self::Tracks(tracks) => {
                let found = tracks.check_on(devices, device, TRACKS_LOOKED_AT, now)?;
                let (looked_at, confirmed) = (found.looked_at, found.confirmed);
                let says = "that were looked at are where the profile says";
                Ok((found.is_right(), format!("{confirmed} of {looked_at} {says}")))
            }
            Self::Stripes(stripes) => {
                let holds = stripes.check_on(devices, device, now)?;
                let says = match holds {
                    true => "two reads together take longer on one drive than on two",
                    false => "where they say that two reads are on one drive, these take no longer",
                };
                Ok((holds, says.to_owned()))
            }
        }
    }
}

/// The boundaries and stripes to use on all data devices, with nothing in flight. `is_read_only` if
/// nothing will be written, so that none are needed. Cost: that of [`Tracks::check`] and
/// [`Stripes::check`]; nothing is read where no boundaries are known.
pub(super) fn check(
    devices: &mut dyn Bank,
    described: &Described,
    clock: &Clock,
    is_read_only: bool,
) -> Checked {
    let mut all = Checked::default();
    for device in described.data() {
        let profile = described.profile(device);
        let checked = profile.and_then(|profile| {
            check_device(devices, device, profile, described, clock, is_read_only)
        });
        let (boundaries, stripe_bytes, known) = match checked {
            Some((boundaries, stripe_bytes, known)) => (boundaries, stripe_bytes, Some(known)),
            None => (Boundaries::default(), 0, None),
        };
        all.boundaries.push(boundaries);
        all.stripe_bytes = all.stripe_bytes.max(stripe_bytes);
        all.known.push(known);
    }
    all
}

fn check_device(
    devices: &mut dyn Bank,
    device: DeviceId,
    profile: &Profile,
    described: &Described,
    clock: &Clock,
    is_read_only: bool,
) -> Option<(Boundaries, u64, BoundariesStatus)> {
    let known = Known::of(profile)?;
    let count = profile.units().iter().map(|unit| unit.2).sum();
    let boundaries = policy::boundaries(profile, described.description.block_bytes);
    let (of, confidence) = match &known {
        Known::Tracks(tracks) => ("tracks", tracks.check.confidence()),
        Known::Stripes(stripes) => ("stripe units", stripes.confidence),
    };
    let (finding, reason) = if devices.geometry(device).growable {
        (Finding::Unknown, "where a file lies on its device is not known".to_owned())
    } else if is_read_only {
        (Finding::Unknown, "nothing is written".to_owned())
    } else if boundaries.is_empty() {
        (Finding::Unknown, "images would leave too much of them".to_owned())
    } else if let Some(reason) = refuted(&known, profile) {
        (Finding::Fail, reason)
    } else {
        let (holds, reason) = checked(&known, devices, device, clock);
        (if holds { Finding::Hold } else { Finding::Fail }, reason)
    };
    let is_used = finding == Finding::Hold;
    let boundaries = if is_used { boundaries } else { Boundaries::default() };
    let stripe_bytes = match (&known, finding) {
        (Known::Stripes(_), Finding::Fail) => 0,
        _ => policy::stripe_bytes(profile),
    };
    Some((boundaries, stripe_bytes, BoundariesStatus { of, count, confidence, is_used, reason }))
}

/// Why these are not even looked at; `None` if they may hold.
fn refuted(known: &Known<'_>, profile: &Profile) -> Option<String> {
    match known {
        Known::Tracks(_) if !profile.rotational => {
            Some("by the profile the device does not rotate".to_owned())
        }
        Known::Stripes(stripes) if stripes.confidence < Stripes::CONFIDENCE_MIN => {
            let least = Stripes::CONFIDENCE_MIN;
            Some(format!("the profile is certain to {}, not to {least}", stripes.confidence))
        }
        _ => None,
    }
}

fn checked(
    known: &Known<'_>,
    devices: &mut dyn Bank,
    device: DeviceId,
    clock: &Clock,
) -> (bool, String) {
    let own = devices.clock_of(device);
    let now = || match &own {
        Some(clock) => Duration::from_micros(clock.now_us()),
        None => clock.elapsed(),
    };
    let (is_used, reason) = known
        .check(devices, device, now)
        .unwrap_or_else(|error| (false, format!("looking at them failed: {error}")));
    if !is_used {
        event!(
            warn,
            device = device.0,
            reason = reason.as_str(),
            "the boundaries of a profile do not hold, and are not used"
        );
    }
    (is_used, reason)
}
