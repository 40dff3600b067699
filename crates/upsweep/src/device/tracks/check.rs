//! Whether the tracks of a profile are those of a device, by some of their boundaries.
//!
//! Of each track that is looked at, three blocks are read: its last one, its first one, and the one
//! before it. The phase has to grow by as much as a track of that length takes, and it has to jump
//! at its beginning. At a boundary that is off by a block it does not jump, and over a track that
//! is none it grows by anything.
//!
//! Drives keep what they have read, and what is around it. Between two blocks of a track, blocks of
//! all other tracks are read, in the order of their places: of more tracks than the buffer has
//! segments. What is answered from a buffer all the same does not count.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::line::wrapped;
use super::region::OFF_MAX;
use super::rotation::Rotation;
use super::{DeviceError, DeviceId, Devices, Geometry, SplitMix64, Tracks, read_alone};

/// Fewest blocks of a track that is looked at.
const BLOCKS_MIN: u64 = 8;
/// A read that takes less than this is answered from the buffer of the drive, as no head gets to
/// another track so soon. It says nothing: if several in succession are, their times agree with
/// anything.
const BUFFER_TIME: Duration = Duration::from_micros(500);
/// Tracks are those of the device if of a hundred that were looked at so many show it. Of those of
/// another drive a few do by chance, of the right ones nearly all.
const CONFIRMED_PERCENT_MIN: u64 = 80;

/// How many tracks are looked at to tell whether tracks are those of a device.
///
/// On ten simulated drives hardly any look at a right track fails to confirm it; with readings that
/// are up to 20 us late one of twenty does. If looks are independent, 40 of them refuse tracks of
/// which 95 of 100 show with a probability of 0.0002, and accept those of which 50 of 100 show with
/// 0.0001; of those of another drive fewer do. The buffers of these drives have up to 32 segments.
pub const TRACKS_LOOKED_AT: u64 = 40;

/// How many tracks of a profile show on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracksCheck {
    /// Tracks that were looked at.
    pub looked_at: u64,
    /// Those that begin where the profile says, and have no other boundary inside.
    pub confirmed: u64,
}

impl TracksCheck {
    /// The part of all tracks that may be expected to be right, from 0 to 1: by Laplace's rule of
    /// succession, so that a few do not make certain. 0 if none was looked at.
    #[must_use]
    pub fn confidence(&self) -> f64 {
        let Self { looked_at, confirmed } = *self;
        if looked_at == 0 { 0.0 } else { (confirmed + 1) as f64 / (looked_at + 2) as f64 }
    }

    /// Whether the tracks are those of the device: of all others hardly any show.
    #[must_use]
    pub fn is_right(&self) -> bool {
        let percent = 100 * self.confirmed;
        self.looked_at > 0 && percent >= CONFIRMED_PERCENT_MIN * self.looked_at
    }
}

/// A track that is looked at, in blocks.
struct Sample {
    first: u64,
    blocks: u64,
    /// Phases of its last block, its first one, and the one before; not numbers if they are not
    /// known, which confirms nothing.
    phases: [f64; 3],
}

impl Sample {
    /// What is read, in the order of phases.
    fn blocks(&self) -> [u64; 3] {
        [self.first + self.blocks - 1, self.first, self.first - 1]
    }

    fn is_confirmed(&self) -> bool {
        let [last, first, before] = self.phases;
        let pace = 1.0 / self.blocks as f64;
        let jump = wrapped(first - before - pace).abs();
        // The last block of a track that is a turn long ends a block before the first one does.
        let off = wrapped(first - last - pace).abs();
        jump > OFF_MAX / 2.0 && off <= OFF_MAX
    }
}

impl Tracks {
    /// Looks at so many of these tracks on a device that nothing else uses: more than its buffer
    /// has segments, such as [`TRACKS_LOOKED_AT`]. Which are looked at follows
    /// from the seed: those of stretches, as single ones may be parts. `read` is as in
    /// [`TrackSearch::round`](super::TrackSearch::round). If the tracks do not end where the device
    /// does, none is confirmed, and nothing is read.
    /// Cost: three reads for each, in the order of their places.
    ///
    /// # Errors
    /// A read failed: look at the device.
    pub fn check(
        &self,
        geometry: &Geometry,
        samples: u64,
        seed: u64,
        mut read: impl FnMut(u64, u64) -> Result<Duration, DeviceError>,
    ) -> Result<TracksCheck, DeviceError> {
        let mut check = TracksCheck { looked_at: samples, confirmed: 0 };
        let block_bytes = u64::from(geometry.logical_block_bytes);
        if self.end() != geometry.size_bytes / block_bytes * block_bytes {
            return Ok(check);
        }
        let mut samples = self.samples(samples, block_bytes, seed);
        let rotation = Rotation::of_turn(self.turn_ns);
        let mut before = None;
        for place in 0..3 {
            for sample in &mut samples {
                let at = read(sample.blocks()[place] * block_bytes, block_bytes)?;
                let is_from_buffer = before.is_some_and(|before| at < before + BUFFER_TIME);
                sample.phases[place] = if is_from_buffer { f64::NAN } else { rotation.phase(at) };
                before = Some(at);
            }
        }
        check.confirmed = samples.iter().filter(|sample| sample.is_confirmed()).count() as u64;
        Ok(check)
    }

    /// As [`Tracks::check`], on a device of a bank; `now` returns the time since any fixed moment.
    ///
    /// # Errors
    /// A read failed: look at the device.
    pub fn check_on(
        &self,
        devices: &mut dyn Devices,
        device: DeviceId,
        samples: u64,
        now: impl Fn() -> Duration,
    ) -> Result<TracksCheck, DeviceError> {
        let geometry = devices.geometry(device);
        let seed = now().as_nanos() as u64;
        self.check(&geometry, samples, seed, |offset, bytes| {
            read_alone(devices, device, offset, bytes as usize)?;
            Ok(now())
        })
    }

    /// Different tracks at random that are as long as the one before them, in order.
    fn samples(&self, count: u64, block_bytes: u64, seed: u64) -> Vec<Sample> {
        let mut random = SplitMix64::new(seed);
        let mut samples = BTreeMap::new();
        for _ in 0..4 * count {
            let offset = random.below(self.end().max(1));
            let Some(sample) = self.sample_at(offset, block_bytes) else { continue };
            samples.insert(sample.first, sample);
            if samples.len() as u64 == count {
                break;
            }
        }
        samples.into_values().collect()
    }

    /// The track that a byte is on, if it can be looked at.
    fn sample_at(&self, offset: u64, block_bytes: u64) -> Option<Sample> {
        let track = self.track_at(offset)?;
        let is_whole = track.start.is_multiple_of(block_bytes);
        let (first, blocks) = (track.start / block_bytes, (track.end - track.start) / block_bytes);
        let before = self.track_at(track.start.checked_sub(1)?)?;
        let is_usual = before.end - before.start == track.end - track.start;
        let is_used = is_whole && is_usual && blocks >= BLOCKS_MIN;
        is_used.then_some(Sample { first, blocks, phases: [0.0; 3] })
    }
}
