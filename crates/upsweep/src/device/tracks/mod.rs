//! Finds where the tracks of a rotating drive begin, by timing reads of single blocks.
//!
//! The time of a completion, modulo the time of a turn, says where on its track a block ends, up to
//! a constant. Along a track this phase grows evenly; at the start of the next one it jumps by the
//! skew. So the blocks on both sides of a boundary show it. If a track is as long as the one before
//! it, that is two reads for a track; only where the length changes, between zones and around
//! slipped sectors, it takes a search (`region.rs`). No geometry has to be known, and nothing is
//! written.
//!
//! Where a zone begins, the phase may happen not to jump: then the change of the pace shows the
//! boundary (`region.rs`, `line.rs`). On ten simulated drives every track is found
//! (`upsweep-lab run lachesis-tracks`). No real drive was searched.
//!
//! Drives keep what they have read and read ahead. The device is therefore divided into regions,
//! whose searches take turns: until a region has its turn again, the buffer has been used for all
//! others. A turn of all regions moves the head over the device once.
//!
//! A store that opens need not search again: [`Tracks::check`] reads a few blocks at random
//! boundaries, and says how many of them are where they should be (`check.rs`).
//!
//! The boundaries are the access delay boundaries of Lachesis (section 3.3); its general method, by
//! response times, takes hours for 9 GB (section 4).

mod check;
mod line;
mod region;
mod rotation;

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::random::SplitMix64;
use super::{DeviceError, DeviceId, Devices, Geometry, read_alone};
pub use check::{TRACKS_LOOKED_AT, TracksCheck};
use region::Region;
use rotation::Rotation;

/// Regions of a device, more than drives have segments in their buffers.
const REGIONS: u64 = 512;
/// Fewest blocks of a region.
const REGION_BLOCKS_MIN: u64 = 1 << 12;
/// Tracks that are looked at again at the end of a search.
const LOOKED_AT_IN_SEARCH: u64 = 160;

/// Why the tracks of a device were not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TracksError {
    /// A read failed: look at the device.
    #[error("a read failed: {0}")]
    Device(#[from] DeviceError),
    /// The times of reads show no rotation: the device is solid state, a buffer answers its reads,
    /// or other requests disturb them. There are no tracks to know, or not now.
    #[error("no boundary found: the times of reads show no rotation")]
    NoRotation,
    /// Reads of a block take times that do not agree, near this byte: other requests disturb them.
    /// Try again on an idle device.
    #[error("times of reads near byte {0} do not agree: is the device idle?")]
    Disturbed(u64),
    /// Tracks were found, and a second look at some of them does not confirm it: other requests
    /// have disturbed the search. Search again on an idle device.
    #[error(
        "of {} tracks that were looked at again, {} are where they were found: is the device idle?",
        .0.looked_at,
        .0.confirmed
    )]
    Unconfirmed(TracksCheck),
}

/// Equally long tracks, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// First byte of the first track.
    pub offset: u64,
    /// Bytes of each track.
    pub track_bytes: u64,
    /// Tracks.
    pub tracks: u64,
}

/// The tracks of a device, in order and without gaps; none if none were found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tracks {
    /// Time of a turn, in nanoseconds.
    pub turn_ns: u64,
    /// What a second look at some of them saw when they were found.
    #[serde(default)]
    pub check: TracksCheck,
    /// The tracks, as few stretches as possible.
    pub stretches: Vec<Stretch>,
}

impl Tracks {
    /// The tracks between these boundaries, which ascend, in bytes; the first one is 0 and the last
    /// one the end. A turn takes so many nanoseconds.
    #[must_use]
    pub fn between(boundaries: impl IntoIterator<Item = u64>, turn_ns: u64) -> Self {
        let mut boundaries = boundaries.into_iter();
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut offset = boundaries.next().unwrap_or(0);
        for end in boundaries {
            match stretches.last_mut() {
                Some(last) if last.track_bytes == end - offset => last.tracks += 1,
                _ => stretches.push(Stretch { offset, track_bytes: end - offset, tracks: 1 }),
            }
            offset = end;
        }
        Self { stretches, turn_ns, check: TracksCheck::default() }
    }

    /// The byte behind the last track.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.stretches.last().map_or(0, |last| last.offset + last.tracks * last.track_bytes)
    }

    /// The bytes of the track that this one is on; `None` behind the last.
    /// Cost: a binary search of the stretches.
    #[must_use]
    pub fn track_at(&self, offset: u64) -> Option<Range<u64>> {
        let behind = self.stretches.partition_point(|stretch| stretch.offset <= offset);
        let stretch = self.stretches[..behind].last()?;
        let track = (offset - stretch.offset) / stretch.track_bytes.max(1);
        let start = stretch.offset + track * stretch.track_bytes;
        (track < stretch.tracks).then_some(start..start + stretch.track_bytes)
    }

    /// Memory that they take, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.stretches.capacity() * size_of::<Stretch>()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.stretches.iter().map(|stretch| stretch.tracks).sum()
    }

    /// The first byte of each track.
    pub fn starts(&self) -> impl Iterator<Item = u64> + '_ {
        let of = |stretch: &Stretch| {
            let Stretch { offset, track_bytes, tracks } = *stretch;
            (0..tracks).map(move |track| offset + track * track_bytes)
        };
        self.stretches.iter().flat_map(of)
    }
}

/// A search under way. It can be kept as data and continued later, also by another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrackSearch {
    block_bytes: u64,
    blocks: u64,
    regions: Vec<Region>,
    reads: u64,
    /// The time of a turn when it was last measured.
    turn_ns: u64,
    /// It has to be measured again when a search goes on.
    #[serde(skip)]
    rotation: Rotation,
    #[serde(skip, default = "random")]
    random: SplitMix64,
}

/// Which blocks are read is left to chance now and then, in the same way each time.
fn random() -> SplitMix64 {
    SplitMix64::new(1)
}

impl TrackSearch {
    /// A search for the tracks of a device with this geometry.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        let block_bytes = u64::from(geometry.logical_block_bytes);
        let blocks = geometry.size_bytes / block_bytes;
        let count = (blocks / REGION_BLOCKS_MIN).clamp(1, REGIONS);
        let start = |region: u64| blocks / count * region;
        let region = |number| {
            let end = if number + 1 == count { blocks } else { start(number + 1) };
            Region::new(start(number), end, blocks)
        };
        let regions = (0..count).map(region).collect();
        let (rotation, random) = (Rotation::default(), random());
        Self { block_bytes, blocks, regions, reads: 0, turn_ns: 0, rotation, random }
    }

    /// Reads one block of each region, with nothing else in flight; returns whether the search is
    /// over. `read` gets the first byte and the length of a range, reads it, and says when that was
    /// complete, as the time since any fixed moment; it has to be exact to a hundredth of a turn.
    /// Cost: a short seek and half a turn for each region, on average; the first round of a session
    /// also measures the turn, with nine reads for each region.
    ///
    /// # Errors
    /// [`TracksError`]. After one of the device the search can go on.
    pub fn round(
        &mut self,
        mut read: impl FnMut(u64, u64) -> Result<Duration, DeviceError>,
    ) -> Result<bool, TracksError> {
        let block_bytes = self.block_bytes;
        let mut read = |block: u64| {
            self.reads += 1;
            read(block * block_bytes, block_bytes)
        };
        if !self.rotation.is_known() {
            let blocks: Vec<u64> = self.regions.iter().map(Region::start).collect();
            self.rotation = Rotation::measure(&blocks, &mut self.random, &mut read)?;
            self.turn_ns = self.rotation.turn_ns();
            self.regions.iter_mut().for_each(Region::restart);
        }
        for place in 1..self.regions.len() {
            let (before, from) = self.regions.split_at_mut(place);
            before[place - 1].meet(&from[0]);
        }
        let mut is_done = true;
        for region in &mut self.regions {
            let Some(block) = region.next() else {
                // Others have their turn as late as before.
                read(region.any(&mut self.random))?;
                continue;
            };
            is_done = false;
            let phase = self.rotation.phase(read(block)?);
            if region.saw(phase).is_none() {
                return Err(TracksError::Disturbed(block * block_bytes));
            }
        }
        Ok(is_done)
    }

    /// As [`TrackSearch::round`], on a device of a bank that nothing else uses; `now` returns the
    /// time since any fixed moment.
    ///
    /// # Errors
    /// As [`TrackSearch::round`].
    pub fn round_on(
        &mut self,
        devices: &mut dyn Devices,
        device: DeviceId,
        now: impl Fn() -> Duration,
    ) -> Result<bool, TracksError> {
        self.round(|offset, bytes| {
            read_alone(devices, device, offset, bytes as usize)?;
            Ok(now())
        })
    }

    /// Searches a device of a bank that nothing else uses, from wherever this search is to its end,
    /// and looks at some of the tracks again. `each` is called after each round, and may keep the
    /// search, or end it with an error. `now` returns the time since any fixed moment.
    /// Cost: 3 to 12 reads for each track on simulated drives.
    ///
    /// # Errors
    /// [`TracksError`], after which the search can go on; or the error of `each`.
    pub fn run_on<E: From<TracksError>>(
        &mut self,
        devices: &mut dyn Devices,
        device: DeviceId,
        now: impl Fn() -> Duration,
        mut each: impl FnMut(&Self) -> Result<(), E>,
    ) -> Result<Tracks, E> {
        while !self.round_on(devices, device, &now)? {
            each(self)?;
        }
        let found = self.tracks()?;
        let check = found.check_on(devices, device, LOOKED_AT_IN_SEARCH, now);
        let check = check.map_err(TracksError::from)?;
        if check.is_right() {
            return Ok(Tracks { check, ..found });
        }
        Err(TracksError::Unconfirmed(check).into())
    }

    /// Whether it is a search of a device with this geometry.
    #[must_use]
    pub fn is_of(&self, geometry: &Geometry) -> bool {
        let block_bytes = u64::from(geometry.logical_block_bytes);
        (self.block_bytes, self.blocks) == (block_bytes, geometry.size_bytes / block_bytes)
    }

    /// Whether the device was seen to turn.
    #[must_use]
    pub fn has_seen_rotation(&self) -> bool {
        self.turn_ns > 0
    }

    /// Reads so far.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// How much of the device is searched, from 0 to 1.
    #[must_use]
    pub fn progress(&self) -> f64 {
        let searched: u64 = self.regions.iter().map(Region::searched).sum();
        searched as f64 / self.blocks.max(1) as f64
    }

    /// The tracks, once the search is over. Each region ends with the first boundary of the next
    /// one, which was found there independently.
    ///
    /// # Errors
    /// [`TracksError::Disturbed`] if two regions do not agree.
    pub fn tracks(&self) -> Result<Tracks, TracksError> {
        let mut boundaries: Vec<u64> = vec![0];
        for region in &self.regions {
            let mut found = region.boundaries();
            let meets = found.next();
            let last = *boundaries.last().unwrap_or(&0);
            if last > 0 && meets.is_some_and(|meets| meets != last) {
                return Err(TracksError::Disturbed(last * self.block_bytes));
            }
            boundaries.extend(meets.filter(|meets| *meets != last).into_iter().chain(found));
        }
        let bytes = boundaries.into_iter().map(|block| block * self.block_bytes);
        Ok(Tracks::between(bytes, self.turn_ns))
    }
}

#[cfg(test)]
mod tests;
