//! Zeros ahead of small durable writes.
//!
//! When space of a file is written for the first time, the file system has to record that it has
//! content now, for a durable write before that ends, which can take three times as long. So if
//! flushes write little, one after another, such a flush writes zeros behind it too, up to the end
//! of a part of the segment: the next ones write to space that has content.
//!
//! Invariant: nobody else writes where zeros are being written.

use crate::address::Physical;
use crate::buffer::Stretch;

/// Parts end at multiples of this many slots: 256 KiB.
const PART_SLOTS: u16 = 64;
/// Longer stretches, beyond 32 KiB, get no zeros: few of them follow in a part.
const STRETCH_SLOTS_MAX: u16 = 8;

/// Where flushes have written.
#[derive(Default)]
pub struct Ahead {
    /// The slot behind what the last flush has written.
    flushed: Physical,
    /// Whether slots of its home before this one get zeros has been decided.
    decided: u16,
    /// The first slot to which zeros are being written, and how many.
    zeros: Option<(Physical, u16)>,
}

impl Ahead {
    /// Takes note that a flush writes a stretch, and returns how many slots of zeros it should
    /// write behind it, of a home with so many slots.
    pub fn note(&mut self, stretch: &Stretch, slots_per_home: u16) -> u16 {
        let follows = stretch.first == self.flushed;
        if !follows {
            self.decided = 0;
        }
        self.flushed = stretch.end();
        let end = self.flushed.slot;
        let is_small = stretch.slots() <= STRETCH_SLOTS_MAX;
        if !follows || !is_small || end <= self.decided || self.zeros.is_some() {
            return 0;
        }
        self.decided = end.next_multiple_of(PART_SLOTS).min(slots_per_home);
        self.decided - end
    }

    /// So many slots of zeros are written behind the last stretch: nobody may write there until
    /// [`Ahead::end`].
    pub fn begin(&mut self, slots: u16) {
        self.zeros = Some((self.flushed, slots));
    }

    /// The zeros are written.
    pub fn end(&mut self) {
        self.zeros = None;
    }

    /// Whether zeros are being written to any of some slots of a home.
    pub fn is_writing_to(&self, first: Physical, slots: u16) -> bool {
        self.zeros.is_some_and(|(from, zeros)| {
            let overlap = first.slot < from.slot + zeros && from.slot < first.slot + slots;
            first.home == from.home && overlap
        })
    }
}
