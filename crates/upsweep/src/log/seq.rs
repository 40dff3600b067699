//! The sequence number: the position of a record in the log.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Position of a record in the log, consecutive over all streams, from 1.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[repr(transparent)]
#[serde(transparent)]
pub struct Seq(u64);

impl Seq {
    /// No record: below all of them.
    pub const NONE: Self = Self(0);
    /// The first record of a log.
    pub const FIRST: Self = Self(1);
    /// Above all records.
    pub const MAX: Self = Self(u64::MAX);

    /// The record with this number; 0 is [`Seq::NONE`].
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next one.
    #[must_use]
    #[inline]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The one before.
    #[must_use]
    #[inline]
    pub const fn previous(self) -> Self {
        Self(self.0 - 1)
    }

    /// The one that comes `count` records later.
    #[must_use]
    #[inline]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0 + count)
    }

    /// As [`Seq::plus`], unless that is above [`Seq::MAX`]: for what was read from a device.
    #[must_use]
    #[inline]
    pub const fn checked_plus(self, count: u64) -> Option<Self> {
        match self.0.checked_add(count) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// How many records later it is than `earlier`, or `None` if it comes before that.
    #[must_use]
    #[inline]
    pub const fn checked_since(self, earlier: Self) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }

    /// How many records later it is than `earlier`.
    #[must_use]
    #[inline]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0 - earlier.0
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_is_shown_and_stored_as_its_number() {
        let seq = Seq::new(1234);
        assert_eq!(format!("{seq} {seq:>6}"), "1234   1234");
        assert_eq!(serde_json::to_string(&seq).expect("a number"), "1234");
        assert_eq!(serde_json::from_str::<Seq>("1234").expect("a number"), seq);
    }

    #[test]
    fn distances_end_at_the_bounds() {
        assert_eq!(Seq::FIRST.previous(), Seq::NONE);
        assert_eq!((Seq::new(7).since(Seq::new(3)), Seq::new(3).plus(4)), (4, Seq::new(7)));
        assert_eq!(Seq::new(3).checked_since(Seq::new(7)), None);
        assert_eq!(Seq::MAX.checked_plus(1), None);
        assert_eq!(Seq::MAX.previous().checked_plus(1), Some(Seq::MAX));
    }
}
