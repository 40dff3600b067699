//! Tracks which bytes of a hostile bank are on stable media and which are at risk in a power cut.
//!
//! The underlying bank has the content that reads return. For every sector whose content is not
//! certain to survive, this module keeps the certain content and the versions written since, in
//! order of completion.
//!
//! Invariants: a sector without an entry is stable; an entry exists exactly while a write to its
//! sector is in flight or not stable. A power cut leaves each sector with its stable content or
//! with one of the versions at risk, never with a mixture or anything else.

use std::collections::BTreeMap;

use super::Simulated;
use crate::device::random::SplitMix64;
use crate::device::{DeviceId, WriteMode};

/// Unit that a device writes atomically, in bytes, whatever its logical block.
pub(super) const SECTOR_BYTES: usize = 512;

/// A completion number that no flush covers: the version never becomes certain.
const NEVER: u64 = u64::MAX;

/// What a power cut did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerCut {
    /// Requests in flight that vanished.
    pub requests_in_flight: usize,
    /// Writes at risk that survived completely.
    pub writes_kept: usize,
    /// Writes at risk of which nothing survived.
    pub writes_lost: usize,
    /// Writes at risk of which a random subset of sectors survived.
    pub writes_torn: usize,
}

/// A write that is at risk until it is stable.
#[derive(Clone, Debug)]
pub(super) struct Write {
    /// Unique, increasing with submission.
    pub(super) ticket: u64,
    pub(super) device: DeviceId,
    /// Where the bytes land, a multiple of [`SECTOR_BYTES`].
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) mode: WriteMode,
}

/// The sectors at risk.
#[derive(Clone, Debug, Default)]
pub(super) struct Volatile {
    sectors: BTreeMap<(DeviceId, u64), Sector>,
    /// Number of the latest completion of a write.
    completed: u64,
}

#[derive(Clone, Debug)]
struct Sector {
    stable: Vec<u8>,
    versions: Vec<Version>,
    writes_in_flight: u32,
}

#[derive(Clone, Debug)]
struct Version {
    completed: u64,
    ticket: u64,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Kept,
    Lost,
    Torn,
}

/// The sectors of a range with the bytes that belong to each.
fn sectors(device: DeviceId, offset: u64, bytes: &[u8]) -> Vec<((DeviceId, u64), &[u8])> {
    let first = offset / SECTOR_BYTES as u64;
    let chunks = bytes.chunks(SECTOR_BYTES).zip(first..);
    chunks.map(|(chunk, number)| ((device, number), chunk)).collect()
}

impl Volatile {
    /// Notes that a write has been submitted; `bank` still shows the content before it.
    pub(super) fn begin(&mut self, write: &Write, bank: &impl Simulated) {
        for (place, _) in sectors(write.device, write.offset, &write.bytes) {
            let sector = self.sectors.entry(place).or_insert_with(|| Sector {
                stable: bank.peek(place.0, place.1 * SECTOR_BYTES as u64, SECTOR_BYTES),
                versions: Vec::new(),
                writes_in_flight: 0,
            });
            sector.writes_in_flight += 1;
        }
    }

    /// Notes that a write has completed and that reads see it.
    pub(super) fn complete(&mut self, write: &Write) {
        self.completed += 1;
        let completed = self.completed;
        self.end(write, |sector, bytes| match write.mode {
            WriteMode::Stable => {
                sector.stable = bytes.to_vec();
                sector.versions.clear();
            }
            WriteMode::Cached => {
                let bytes = bytes.to_vec();
                sector.versions.push(Version { completed, ticket: write.ticket, bytes });
            }
        });
    }

    /// Notes that a write has failed. Each of its sectors becomes visible in `bank` nevertheless
    /// with a probability of one half; no flush makes it certain.
    pub(super) fn fail(
        &mut self,
        write: &Write,
        bank: &mut impl Simulated,
        random: &mut SplitMix64,
    ) {
        let mut at = write.offset;
        self.end(write, |sector, bytes| {
            if random.coin() {
                bank.poke(write.device, at, bytes);
                let (ticket, bytes) = (write.ticket, bytes.to_vec());
                sector.versions.push(Version { completed: NEVER, ticket, bytes });
            }
            at += SECTOR_BYTES as u64;
        });
    }

    /// Notes that a write has ended without any effect.
    pub(super) fn abandon(&mut self, write: &Write) {
        self.end(write, |_, _| {});
    }

    fn end(&mut self, write: &Write, mut each: impl FnMut(&mut Sector, &[u8])) {
        for (place, bytes) in sectors(write.device, write.offset, &write.bytes) {
            let sector = self.sectors.get_mut(&place).expect("added when the write began");
            sector.writes_in_flight -= 1;
            each(sector, bytes);
            if sector.is_certain() {
                self.sectors.remove(&place);
            }
        }
    }

    /// The last completion that a flush submitted now covers.
    pub(super) fn mark(&self) -> u64 {
        self.completed
    }

    /// Notes that a flush with this mark has succeeded on `device`.
    pub(super) fn flushed(&mut self, device: DeviceId, mark: u64) {
        self.sectors.retain(|place, sector| {
            if place.0 == device {
                let covered = |version: &&Version| version.completed <= mark;
                if let Some(latest) = sector.versions.iter().rfind(covered) {
                    sector.stable.clone_from(&latest.bytes);
                    let completed = latest.completed;
                    // The latest stable version overwrites failed writes before it.
                    let position = sector.versions.iter().rposition(|v| v.completed == completed);
                    sector.versions.drain(..=position.expect("just found"));
                }
            }
            !sector.is_certain()
        });
    }

    /// Notes that a flush with this mark has failed. The writes that it should have covered stay at
    /// risk forever, because an operating system may consider them clean and not write them again.
    pub(super) fn flush_failed(&mut self, device: DeviceId, mark: u64) {
        for (place, sector) in &mut self.sectors {
            let versions = sector.versions.iter_mut().filter(|_| place.0 == device);
            for version in versions.filter(|version| version.completed <= mark) {
                version.completed = NEVER;
            }
        }
    }

    /// Notes that a range was discarded: its content in `bank` is certain.
    pub(super) fn discarded(
        &mut self,
        device: DeviceId,
        offset: u64,
        bytes: u64,
        bank: &impl Simulated,
    ) {
        let first = offset / SECTOR_BYTES as u64;
        let end = (offset + bytes) / SECTOR_BYTES as u64;
        let mut certain = Vec::new();
        for (place, sector) in self.sectors.range_mut((device, first)..(device, end)) {
            sector.versions.clear();
            sector.stable = bank.peek(device, place.1 * SECTOR_BYTES as u64, SECTOR_BYTES);
            if sector.is_certain() {
                certain.push(*place);
            }
        }
        for place in certain {
            self.sectors.remove(&place);
        }
    }

    /// Flips a bit of every version of the sector at `offset`.
    pub(super) fn flip(&mut self, device: DeviceId, offset: u64, bit: u8) {
        let place = (device, offset / SECTOR_BYTES as u64);
        let within = (offset % SECTOR_BYTES as u64) as usize;
        if let Some(sector) = self.sectors.get_mut(&place) {
            sector.stable[within] ^= 1 << bit;
            for version in &mut sector.versions {
                version.bytes[within] ^= 1 << bit;
            }
        }
    }

    /// Decides which writes at risk survive a power cut, and puts the result into `bank`.
    /// `in_flight` are the writes that have not completed.
    pub(super) fn power_cut(
        &mut self,
        in_flight: Vec<Write>,
        bank: &mut impl Simulated,
        random: &mut SplitMix64,
    ) -> PowerCut {
        // Writes in flight reach the media in any order, after those that have completed.
        let mut in_flight = in_flight;
        while !in_flight.is_empty() {
            let write = in_flight.swap_remove(random.below(in_flight.len() as u64) as usize);
            let cached = Write { mode: WriteMode::Cached, ..write };
            self.complete(&cached);
        }
        let mut fates = BTreeMap::new();
        for version in self.sectors.values().flat_map(|sector| &sector.versions) {
            fates.insert(version.ticket, Fate::Lost);
        }
        let mut cut = PowerCut::default();
        for fate in fates.values_mut() {
            *fate = match random.below(3) {
                0 => Fate::Kept,
                1 => Fate::Lost,
                _ => Fate::Torn,
            };
            match fate {
                Fate::Kept => cut.writes_kept += 1,
                Fate::Lost => cut.writes_lost += 1,
                Fate::Torn => cut.writes_torn += 1,
            }
        }
        for ((device, number), sector) in std::mem::take(&mut self.sectors) {
            let mut survivor = sector.stable;
            for version in sector.versions {
                let kept = match fates[&version.ticket] {
                    Fate::Kept => true,
                    Fate::Lost => false,
                    Fate::Torn => random.coin(),
                };
                if kept {
                    survivor = version.bytes;
                }
            }
            bank.poke(device, number * SECTOR_BYTES as u64, &survivor);
        }
        cut
    }
}

impl Sector {
    fn is_certain(&self) -> bool {
        self.versions.is_empty() && self.writes_in_flight == 0
    }
}
