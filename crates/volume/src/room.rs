//! Room for payload on the devices, and what follows from it: when dead slots are looked for, when
//! segments are cleaned, and when writers have to help.
//!
//! The later a segment is cleaned, the more of it is dead, and the less has to be copied. So on
//! devices of which the end is known, cleaning begins when little is left. Files grow instead, and
//! what is dead in them may only be a share of all: cleaning begins at a fifth, and at half of all
//! writers have to help.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::address::BLOCK_BYTES;
use crate::payload::{Payload, State};

/// Share of the slots that may be dead where devices can grow, in per cent.
const DEAD_PERCENT_MAX: u64 = 20;
/// Share of the slots that may be dead there before writers have to help, in per cent.
const DEAD_PERCENT_SHORT: u64 = 50;
/// With less than this dead, in per cent, cleaning costs more than it gains.
const DEAD_PERCENT_MIN: u64 = 3;
/// Slots that are taken between two sweeps at most, in per cent of all.
const UNSEEN_PERCENT_MAX: u64 = 20;
/// As if there were so many segments at least: 1 GiB.
const SEGMENTS_PER_SWEEP_MIN: u64 = 256;
/// Which part of the room, with what is known to be dead, may be taken between two sweeps.
const UNSEEN_PART: u64 = 4;
/// There is little room when less than this part of the segments can still be reserved.
const SHORT_PART: u64 = 128;
/// The same in segments, at least and at most.
const SHORT_MIN: u64 = 4;
const SHORT_MAX: u64 = 64;
/// Segments that are cleaned in a step, with one flush.
const CLEANED_MAX: u64 = 4;

/// Room for payload.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Segments for which there is free space; `None` if devices can grow.
    reservable: Option<u64>,
    /// How many of them would be in pieces.
    in_pieces: u64,
    /// Segments that are reserved and empty.
    spares: u64,
    /// Segments that are in use.
    segments: u64,
    /// Slots of these that nobody needs.
    dead: u64,
    slots_per_segment: u64,
}

/// What requests for segments have shown of the free space.
#[derive(Default)]
pub struct Refusals {
    /// Segments for which there was free space when the last one could not be reserved.
    in_pieces: AtomicU64,
    /// Free segments of devices that were refused when they were to grow; `None` if they can.
    known_free: Mutex<Option<u64>>,
}

impl Refusals {
    /// Takes note that a segment has been given back.
    pub fn note_given_back(&self) {
        if let Some(known) = &mut *self.known_free.lock() {
            *known += 1;
        }
    }
}

impl Room {
    fn slots(&self) -> u64 {
        self.segments * self.slots_per_segment
    }

    /// With fewer segments left there is little room.
    fn short(&self) -> u64 {
        (self.segments / SHORT_PART).clamp(SHORT_MIN, SHORT_MAX)
    }

    /// Segments that can still be filled, without the one for cleaning; `None` if devices can grow.
    pub fn free(&self) -> Option<u64> {
        let whole = self.reservable.map(|reservable| reservable.saturating_sub(self.in_pieces));
        whole.map(|whole| whole + self.spares.saturating_sub(1))
    }

    /// Whether more than a share of the slots is dead.
    fn has_dead(&self, percent: u64) -> bool {
        self.dead * 100 > self.slots() * percent
    }

    /// Whether there is so little room, or devices have grown so far, that writers have to help.
    pub fn is_short(&self) -> bool {
        match self.free() {
            None => self.has_dead(DEAD_PERCENT_SHORT),
            Some(free) => free < self.short(),
        }
    }

    /// Whether a segment has been gained since then.
    pub fn is_gained(&self, then: &Self) -> bool {
        match (then.free(), self.free()) {
            (Some(then), Some(now)) => now > then,
            _ => self.segments < then.segments,
        }
    }

    /// Whether an empty segment stays reserved. Where it would be reserved again soon, it does, but
    /// not the last ones that the rest of the store can get.
    pub fn keeps_spare(&self) -> bool {
        let is_needed = |reservable: u64| {
            reservable > 0 && reservable.saturating_sub(self.in_pieces) < self.short()
        };
        self.spares == 0 || self.reservable.is_some_and(is_needed) && self.spares < self.short()
    }

    /// How many segments to clean now.
    pub fn segments_to_clean(&self) -> Option<usize> {
        let (dead_percent, most) = match self.free() {
            None => (DEAD_PERCENT_MAX, CLEANED_MAX),
            Some(free) if free >= 2 * self.short() => return None,
            // What is needed of them has to fit.
            Some(free) => (DEAD_PERCENT_MIN, free.clamp(1, CLEANED_MAX)),
        };
        self.has_dead(dead_percent).then_some(most as usize)
    }

    /// How many slots may be taken before a sweep has to show what they supersede.
    pub fn unseen_max(&self) -> u64 {
        let all = self.segments.max(SEGMENTS_PER_SWEEP_MIN) * self.slots_per_segment;
        let most = all * UNSEEN_PERCENT_MAX / 100;
        match self.free() {
            None => most,
            Some(free) => {
                let spare = free * self.slots_per_segment + self.dead;
                (spare / UNSEEN_PART).clamp(self.slots_per_segment, most)
            }
        }
    }
}

impl Payload {
    /// What room there is.
    pub fn room(&self, state: &State) -> Room {
        let slots = u64::from(self.slots_per_home);
        // Of one that cleaning has begun to empty, some homes may still have parts.
        let unused = state.retired.iter().filter(|segment| Arc::strong_count(segment) == 1);
        let spares = state.spares.len() as u64;
        let idle = spares + unused.count() as u64;
        let segments = self.segments.load(Ordering::Acquire).saturating_sub(idle);
        // A home that is open has all its slots from the beginning; that of survivors fills up.
        let unfilled = state.survivors.as_ref().map_or(0, |(_, next)| slots - u64::from(*next));
        let dead = (segments * slots).saturating_sub(state.homes.living() + unfilled);
        let (reservable, in_pieces) =
            (self.reservable(), self.refusals.in_pieces.load(Ordering::Acquire));
        Room { reservable, in_pieces, spares, segments, dead, slots_per_segment: slots }
    }

    /// Segments for which there is free space, whether or not in one piece; `None` if devices can
    /// grow.
    fn reservable(&self) -> Option<u64> {
        let bytes = self.store.blocks().reservable_bytes();
        let whole = bytes.map(|bytes| bytes / (u64::from(self.slots_per_home) * BLOCK_BYTES));
        whole.or(*self.refusals.known_free.lock())
    }

    /// Takes note that a segment has been reserved, or that there was no room for it: devices that
    /// can grow have none beside what comes back, and what others have is in pieces.
    pub fn note_reserved(&self, is_reserved: bool) {
        let mut known_free = self.refusals.known_free.lock();
        *known_free = match *known_free {
            _ if !is_reserved => Some(0),
            Some(known) if known > 0 => Some(known - 1),
            // A device has grown.
            _ => None,
        };
        drop(known_free);
        let Some(now) = self.reservable() else { return };
        let known = self.refusals.in_pieces.load(Ordering::Acquire);
        let in_pieces = if is_reserved { known.min(now) } else { now };
        self.refusals.in_pieces.store(in_pieces, Ordering::Release);
    }

    /// The same, when nothing is held.
    pub fn room_now(&self) -> Room {
        self.room(&self.state.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u64 = 1024;

    fn room(reservable: Option<u64>, segments: u64, dead_percent: u64) -> Room {
        let dead = segments * SLOTS * dead_percent / 100;
        Room { reservable, in_pieces: 0, spares: 1, segments, dead, slots_per_segment: SLOTS }
    }

    #[test]
    fn files_are_cleaned_by_what_is_dead_and_devices_by_what_is_left() {
        assert_eq!(room(None, 1000, 20).segments_to_clean(), None);
        assert_eq!(room(None, 1000, 21).segments_to_clean(), Some(4));
        assert_eq!(room(Some(14), 1000, 90).segments_to_clean(), None);
        assert_eq!(room(Some(13), 1000, 4).segments_to_clean(), Some(4));
        assert_eq!(room(Some(3), 1000, 4).segments_to_clean(), Some(3));
        assert_eq!(room(Some(0), 1000, 4).segments_to_clean(), Some(1));
        assert_eq!(room(Some(0), 1000, 3).segments_to_clean(), None);
    }

    #[test]
    fn writers_help_when_little_is_left() {
        let is_short = |free, segments| room(free, segments, 10).is_short();
        assert!(!is_short(Some(7), 1000) && is_short(Some(6), 1000));
        assert!(is_short(Some(3), 10) && !is_short(Some(4), 10));
        assert!(is_short(Some(63), 1_000_000) && !is_short(Some(64), 1_000_000));
        assert!(!room(None, 1000, 50).is_short() && room(None, 1000, 51).is_short());
        let is_gained = |then, now| room(now, 9, 10).is_gained(&room(then, 10, 10));
        assert!(is_gained(Some(3), Some(4)) && !is_gained(Some(3), Some(3)));
        assert!(is_gained(None, None) && !room(None, 10, 10).is_gained(&room(None, 10, 20)));
    }

    #[test]
    fn empty_segments_stay_where_they_would_be_reserved_again() {
        let keeps =
            |reservable, spares| Room { spares, ..room(reservable, 1000, 10) }.keeps_spare();
        assert!(keeps(None, 0) && !keeps(None, 1));
        assert!(keeps(Some(0), 0) && !keeps(Some(0), 1), "the rest of the store may need it");
        assert!(keeps(Some(1), 6) && !keeps(Some(1), 7));
        assert!(keeps(Some(6), 1) && !keeps(Some(7), 1));
        let free = |in_pieces| Room { spares: 10, in_pieces, ..room(Some(5), 1000, 10) }.free();
        assert_eq!([free(0), free(2), free(9)], [Some(14), Some(12), Some(9)]);
        let in_pieces = |reservable| Room { in_pieces: 20, ..room(Some(reservable), 1000, 10) };
        assert!(in_pieces(5).keeps_spare() && in_pieces(26).keeps_spare());
        assert!(!in_pieces(27).keeps_spare(), "there is room beside what is in pieces");
    }

    #[test]
    fn the_less_room_the_sooner_a_sweep_shows_what_is_dead() {
        let segments = |room: Room| room.unseen_max() as f64 / SLOTS as f64;
        assert_eq!(segments(room(None, 1000, 10)), 200.0);
        assert_eq!(segments(room(Some(5000), 1000, 10)), 200.0);
        assert_eq!(segments(room(Some(100), 1000, 10)), 50.0);
        assert_eq!(segments(room(Some(0), 10, 0)), 1.0);
        assert_eq!(room(None, 10, 10).unseen_max(), 256 * SLOTS / 5);
    }
}
