//! The addresses of volumes, and the moments of their histories.
//!
//! There are three levels (Sungem thesis, section 5.3): a *logical* address is a block of a branch,
//! a *physical* address is a slot of a home and never changes while anything refers to it, and a
//! *real* address is a place on a device, which `payload.rs` knows. The map leads from the first to
//! the second.

use std::fmt::{self, Display, Formatter};
use std::ops::Range;

/// Bytes of a block, the unit of the map.
pub const BLOCK_BYTES: u64 = 4096;
/// Blocks of a chunk, the largest span of an entry with payload: 64 KiB.
pub const CHUNK_BLOCKS: u64 = 1 << LEVEL_BITS;
/// A span of the next level is 16 times as long.
const LEVEL_BITS: u32 = 4;
/// The level of a chunk.
pub const CHUNK_LEVEL: u8 = 1;
/// The level of the longest spans: 2^40 blocks, or 4 PiB.
pub const LEVEL_MAX: u8 = 10;
/// The largest volume has this many blocks: 16 PiB.
pub const BLOCKS_MAX: u64 = 1 << 42;

/// A line of versions. A volume writes to one; a clone has one of its own, with that of its source
/// as the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Branch(pub u32);

/// A moment in the history of all volumes of a store, in microseconds since the Unix epoch. No two
/// changes have the same one, so it may be a little ahead of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

impl Stamp {
    /// After every other one: the present.
    pub const NOW: Self = Self(u64::MAX);

    /// Whether a change can have it: there are later ones before the present.
    #[must_use]
    pub fn is_of_a_change(self) -> bool {
        self.0 <= u64::MAX / 2
    }
}

impl Display for Stamp {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A physical address: a slot of a home, which holds one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Physical {
    /// The home. Numbers of homes are not used twice.
    pub home: u64,
    /// The slot in it.
    pub slot: u16,
}

impl Physical {
    /// The address that is `slots` further on.
    #[must_use]
    pub fn plus(self, slots: u16) -> Self {
        Self { slot: self.slot + slots, ..self }
    }

    /// Whether another address follows it, in the same home.
    #[must_use]
    pub fn is_before(self, next: Self) -> bool {
        self.home == next.home && self.slot.checked_add(1) == Some(next.slot)
    }
}

/// An aligned range of 16^level blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// 0 to [`LEVEL_MAX`]: 0 is a block, 1 a chunk.
    pub level: u8,
    /// Its number among those of its level.
    pub index: u64,
}

impl Span {
    /// The span of one block.
    #[must_use]
    pub fn block(block: u64) -> Self {
        Self { level: 0, index: block }
    }

    /// The span of a chunk.
    #[must_use]
    pub fn chunk(chunk: u64) -> Self {
        Self { level: CHUNK_LEVEL, index: chunk }
    }

    /// Its blocks.
    #[must_use]
    pub fn blocks(self) -> Range<u64> {
        let bits = u32::from(self.level) * LEVEL_BITS;
        self.index << bits..(self.index + 1) << bits
    }

    /// Whether a volume can have its blocks.
    #[must_use]
    pub fn is_in_bounds(self) -> bool {
        let bits = u32::from(self.level) * LEVEL_BITS;
        self.level <= LEVEL_MAX && self.index < BLOCKS_MAX >> bits
    }

    /// The span of a level at or above its own that it is in.
    #[must_use]
    pub fn at(self, level: u8) -> Self {
        let bits = u32::from(level - self.level) * LEVEL_BITS;
        Self { level, index: self.index >> bits }
    }
}

/// The chunk that a block is in.
#[must_use]
pub fn chunk_of(block: u64) -> u64 {
    block / CHUNK_BLOCKS
}

/// The fewest spans, of at most this level, that make up a range of blocks, in order.
pub fn spans(range: Range<u64>, level_max: u8) -> impl Iterator<Item = Span> {
    let mut next = range.start;
    std::iter::from_fn(move || {
        let left = range.end.checked_sub(next).filter(|left| *left > 0)?;
        let fits = |level: &u8| {
            let blocks = 1_u64 << (u32::from(*level) * LEVEL_BITS);
            next.is_multiple_of(blocks) && blocks <= left
        };
        let level = (0..=level_max).rev().find(fits)?;
        let span = Span::block(next).at(level);
        next = span.blocks().end;
        Some(span)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_range_is_cut_into_the_longest_spans() {
        let levels = |range, most| spans(range, most).map(|span| span.level).collect::<Vec<_>>();
        assert_eq!(levels(0..16, 10), [1]);
        assert_eq!(levels(15..33, 10), [0, 1, 0]);
        assert_eq!(levels(0..256 * 16, 10), [3]);
        assert_eq!(levels(0..512, 1), [1; 32]);
        assert_eq!(levels(7..7, 10), [0_u8; 0]);
        assert_eq!(levels(0..BLOCKS_MAX, 10), [10; 4]);
    }

    proptest! {
        #[test]
        fn spans_make_up_their_range(start in 0_u64..5000, blocks in 0_u64..5000, most in 0_u8..5) {
            let mut next = start;
            for span in spans(start..start + blocks, most) {
                prop_assert!(span.level <= most);
                prop_assert_eq!(span.blocks().start, next);
                prop_assert_eq!(Span::block(next).at(span.level), span);
                next = span.blocks().end;
            }
            prop_assert_eq!(next, start + blocks);
        }
    }
}
