//! Numbers of spaces and snapshots, each with a type of its own, so that none is taken for another
//! or for a count.
//!
//! Spaces and snapshots draw their numbers from one sequence, and no number is used twice.

use std::fmt;

pub use crate::log::Seq;

/// Number of a space within its store, from 1. Tables, arrays and all other structures are spaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SpaceId(u32);

impl SpaceId {
    /// No space.
    pub const NONE: Self = Self(0);
    /// The greatest number.
    pub const MAX: Self = Self(u32::MAX);

    /// The space with this number; 0 is [`SpaceId::NONE`].
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The next number.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The number that is `count` greater.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0 + count)
    }
}

impl fmt::Display for SpaceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Number of a snapshot within its store, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SnapshotId(u32);

impl SnapshotId {
    /// No snapshot: what belongs to none can be changed.
    pub const NONE: Self = Self(0);

    /// The snapshot with this number; 0 is [`SnapshotId::NONE`].
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_bare_and_padded_as_asked() {
        assert_eq!(format!("{} {:>3}", SpaceId::new(7), SnapshotId::new(9)), "7   9");
    }

    #[test]
    fn companions_follow_their_spaces() {
        let space = SpaceId::new(5);
        assert_eq!((space.next(), space.plus(2)), (SpaceId::new(6), SpaceId::new(7)));
        assert!(SpaceId::NONE < space && space < SpaceId::MAX);
    }
}
