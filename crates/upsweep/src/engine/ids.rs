//! Numbers of spaces and snapshots, each of a separate type, so that they cannot be confused with
//! each other or with a count; also the numbers of log records, for structures, which do not know
//! the log.
//!
//! Spaces and snapshots draw their numbers from one sequence, and no number is used twice.

use std::fmt;

pub use crate::log::Seq;

/// A number of one kind, displayed as a plain number.
macro_rules! number {
    ($(#[$about:meta])+ $name:ident) => {
        $(#[$about])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(u32);

        impl $name {
            /// The one with this number; 0 is `NONE`.
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

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

number! {
    /// Number of a space within its store, from 1. Tables, arrays and all other structures are
    /// spaces.
    SpaceId
}

impl SpaceId {
    /// No space.
    pub const NONE: Self = Self(0);
    /// The greatest number.
    pub const MAX: Self = Self(u32::MAX);

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

number! {
    /// Number of a snapshot within its store, from 1.
    SnapshotId
}

impl SnapshotId {
    /// No snapshot: spaces that belong to none can be changed.
    pub const NONE: Self = Self(0);
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
