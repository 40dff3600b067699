//! Boundaries on a device that no image straddles if it need not: the tracks of a rotating drive,
//! or the stripe units of an array. An access within one unit takes one positioning.
//!
//! (Lachesis paper, section 3: access delay boundaries.)

use super::UNIT_BYTES;

/// Units of one length, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    offset: u64,
    unit_bytes: u64,
    units: u64,
}

impl Stretch {
    fn end(&self) -> u64 {
        self.offset + self.unit_bytes * self.units
    }
}

/// The boundaries of a device; none by default. Space outside of the units that are known is one
/// unit. Memory: 24 bytes for each change of length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boundaries {
    /// Ascending, and not overlapping.
    stretches: Vec<Stretch>,
}

/// The part of a range in which whole pages lie.
fn pages(start: u64, end: u64) -> (u64, u64) {
    (start.next_multiple_of(UNIT_BYTES), end - end % UNIT_BYTES)
}

impl Boundaries {
    /// Units as (first byte, bytes of each, how many), in order.
    ///
    /// # Errors
    /// Which of them overlaps the one before it or has no length, as text for people.
    pub fn new(stretches: impl IntoIterator<Item = (u64, u64, u64)>) -> Result<Self, String> {
        let mut known: Vec<Stretch> = Vec::new();
        for (offset, unit_bytes, units) in stretches {
            let is_behind = known.last().is_none_or(|last| last.end() <= offset);
            let end = unit_bytes.checked_mul(units).and_then(|bytes| bytes.checked_add(offset));
            if !is_behind || unit_bytes == 0 || units == 0 || end.is_none() {
                return Err(format!(
                    "boundaries: {units} units of {unit_bytes} bytes at {offset} are none, or \
                     overlap those before them"
                ));
            }
            known.push(Stretch { offset, unit_bytes, units });
        }
        Ok(Self { stretches: known })
    }

    /// Whether none are known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// The unit that a byte is in: its first byte, and the first one behind it. Cost: O(log
    /// stretches).
    #[must_use]
    pub fn unit_of(&self, offset: u64) -> (u64, u64) {
        let behind = self.stretches.partition_point(|stretch| stretch.offset <= offset);
        let next = self.stretches.get(behind).map_or(u64::MAX, |stretch| stretch.offset);
        let Some(stretch) = behind.checked_sub(1).map(|index| self.stretches[index]) else {
            return (0, next);
        };
        if offset >= stretch.end() {
            return (stretch.end(), next);
        }
        let unit = (offset - stretch.offset) / stretch.unit_bytes;
        let start = stretch.offset + unit * stretch.unit_bytes;
        (start, start + stretch.unit_bytes)
    }

    /// Bytes of the longest unit that is known; `None` without boundaries.
    #[must_use]
    pub fn unit_bytes_max(&self) -> Option<u64> {
        self.stretches.iter().map(|stretch| stretch.unit_bytes).max()
    }

    /// Where an access of at most so many bytes should end: at the last boundary that it reaches,
    /// so that it is of whole units behind the first one, or within the unit if that is longer.
    /// Cost: as [`Boundaries::unit_of`].
    #[must_use]
    pub fn end_of_access(&self, start: u64, bytes_max: u64) -> u64 {
        let end = start + bytes_max;
        let (boundary, _) = self.unit_of(end);
        if boundary > start { boundary } else { end }
    }

    /// Lays out images of these lengths in a range, all in whole pages: each in one unit, if it is
    /// not longer, and in order but for those that fill the end of a unit in which the next one has
    /// no room. Returns the first byte of each, and the end of the last; `None` if the range is too
    /// short. Cost: O(images) for each unit that they take.
    pub(super) fn lay_out(&self, range: (u64, u64), lengths: &[u32]) -> Option<(Vec<u64>, u64)> {
        let (mut at, range_end) = range;
        let mut places = vec![0; lengths.len()];
        let mut waiting: Vec<usize> = (0..lengths.len()).collect();
        let mut end = at;
        loop {
            let (unit_start, unit_end) = self.unit_of(at);
            let (first, limit) = pages(unit_start, unit_end.min(range_end));
            let is_whole = at <= first;
            let before = waiting.len();
            waiting.retain(|&index| {
                let fits = at + u64::from(lengths[index]) <= limit;
                if fits {
                    places[index] = at;
                    at += u64::from(lengths[index]);
                    end = at;
                }
                !fits
            });
            let Some(&next) = waiting.first() else { return Some((places, end)) };
            if waiting.len() == before && is_whole && unit_end <= range_end {
                // It is longer than a unit.
                let bytes = u64::from(lengths[next]);
                if at + bytes > range_end {
                    return None;
                }
                places[next] = at;
                at += bytes;
                end = at;
                waiting.remove(0);
                if waiting.is_empty() {
                    return Some((places, end));
                }
            } else {
                at = unit_end.min(range_end).next_multiple_of(UNIT_BYTES);
            }
            if at >= range_end {
                return None;
            }
        }
    }

    /// The highest place for an image in a range, both in whole pages: in one unit, if it is not
    /// longer.
    pub(super) fn highest(&self, range: (u64, u64), bytes: u64) -> Option<u64> {
        let (start, mut end) = range;
        while end >= start + bytes {
            let (unit_start, unit_end) = self.unit_of(end - 1);
            let (first, _) = pages(unit_start, unit_end);
            if end - bytes >= first || unit_end - first < bytes {
                return Some(end - bytes);
            }
            end = pages(0, unit_start).1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u32 = UNIT_BYTES as u32;

    fn tracks(stretches: &[(u64, u64, u64)]) -> Boundaries {
        Boundaries::new(stretches.iter().copied()).expect("in order")
    }

    #[test]
    fn every_byte_is_in_a_unit() {
        let known = tracks(&[(1000, 300, 2), (1700, 200, 3)]);
        let units = [
            (0, (0, 1000)),
            (999, (0, 1000)),
            (1000, (1000, 1300)),
            (1599, (1300, 1600)),
            (1600, (1600, 1700)),
            (1700, (1700, 1900)),
            (2299, (2100, 2300)),
            (2300, (2300, u64::MAX)),
        ];
        for (offset, unit) in units {
            assert_eq!(known.unit_of(offset), unit, "{offset}");
        }
        assert_eq!(Boundaries::default().unit_of(7), (0, u64::MAX));
    }

    #[test]
    fn an_access_ends_at_the_last_boundary_within_its_length() {
        let known = tracks(&[(1000, 300, 2), (1700, 200, 3)]);
        let ends = [
            ((1000, 300), 1300),
            ((1100, 300), 1300),
            ((1000, 299), 1299),
            ((1000, 899), 1700),
            ((1000, 900), 1900),
            ((0, 100), 100),
            ((900, 150), 1000),
            ((2299, 100), 2300),
            ((2300, 100), 2400),
        ];
        for ((start, bytes), end) in ends {
            assert_eq!(known.end_of_access(start, bytes), end, "{start} {bytes}");
        }
        assert_eq!(Boundaries::default().end_of_access(7, 5), 12);
        assert_eq!(
            (known.unit_bytes_max(), Boundaries::default().unit_bytes_max()),
            (Some(300), None)
        );
    }

    #[test]
    fn units_that_overlap_are_refused() {
        for bad in [&[(0, 10, 3), (29, 10, 1)][..], &[(0, 0, 1)], &[(0, 1, 0)], &[(9, u64::MAX, 2)]]
        {
            let refused = Boundaries::new(bad.iter().copied()).expect_err("out of order");
            assert!(refused.starts_with("boundaries: "), "{refused}");
        }
    }

    #[test]
    fn an_image_that_fills_a_track_goes_before_one_that_does_not_fit() {
        // Tracks of five pages and a half: the page in the middle of each boundary is of no use.
        let known = tracks(&[(0, 11 * UNIT_BYTES / 2, 20)]);
        let range = (UNIT_BYTES, 60 * UNIT_BYTES);
        let lengths = [3, 3, 1, 2, 4].map(|pages| pages * PAGE);
        let (places, end) = known.lay_out(range, &lengths).expect("room");
        let pages: Vec<u64> = places.iter().map(|place| place / UNIT_BYTES).collect();
        assert_eq!(pages, [1, 6, 4, 9, 11]);
        assert_eq!(end, 15 * UNIT_BYTES);
        assert_eq!(known.lay_out((UNIT_BYTES, 14 * UNIT_BYTES), &lengths), None);
    }

    #[test]
    fn an_image_that_is_longer_than_a_track_begins_with_one() {
        let known = tracks(&[(0, 2 * UNIT_BYTES, 20)]);
        let range = (UNIT_BYTES, 40 * UNIT_BYTES);
        let (places, end) = known.lay_out(range, &[5 * PAGE, PAGE]).expect("room");
        assert_eq!((places, end), (vec![2 * UNIT_BYTES, UNIT_BYTES], 7 * UNIT_BYTES));
        assert_eq!(known.highest(range, 5 * UNIT_BYTES), Some(35 * UNIT_BYTES));
        assert_eq!(known.lay_out((UNIT_BYTES, 6 * UNIT_BYTES), &[5 * PAGE]), None);
    }

    proptest! {
        #[test]
        fn no_image_straddles_a_boundary_if_it_fits_between_two(
            first in 0u64..20_000,
            track in 6 * 4096u64..20 * 4096,
            start in 0u64..40,
            lengths in prop::collection::vec(1u32..8, 1..40),
        ) {
            let known = tracks(&[(first, track, 60)]);
            let range = (start * UNIT_BYTES, 300 * UNIT_BYTES);
            let lengths: Vec<u32> = lengths.iter().map(|pages| pages * PAGE).collect();
            // A unit has all pages but for those at its ends.
            let straddles = |place: u64, bytes: u64| {
                let (unit_start, unit_end) = known.unit_of(place);
                bytes + 2 * UNIT_BYTES <= unit_end - unit_start && place + bytes > unit_end
            };
            if let Some((places, end)) = known.lay_out(range, &lengths) {
                let extents = places.iter().zip(&lengths);
                let extents = extents.map(|(at, bytes)| (*at, at + u64::from(*bytes)));
                let mut extents: Vec<(u64, u64)> = extents.collect();
                for (at, next) in &extents {
                    prop_assert!(!straddles(*at, next - at), "{at} to {next}");
                    prop_assert!(at % UNIT_BYTES == 0);
                }
                extents.sort_unstable();
                prop_assert!(extents.windows(2).all(|pair| pair[0].1 <= pair[1].0));
                prop_assert!(extents[0].0 >= range.0);
                prop_assert_eq!(extents.last().map(|last| last.1), Some(end));
                prop_assert!(end <= range.1);
            } else {
                // With a third of the space lost it fits, or the range is too short.
                let total: u64 = lengths.iter().map(|bytes| u64::from(*bytes)).sum();
                prop_assert!(4 * total >= range.1 - range.0);
            }
            let bytes = u64::from(lengths[0]);
            if let Some(place) = known.highest(range, bytes) {
                prop_assert!(!straddles(place, bytes) && place >= range.0);
            }
        }

        #[test]
        fn without_boundaries_images_follow_each_other(
            lengths in prop::collection::vec(1u32..8, 1..20),
            room in 1u64..100,
        ) {
            let lengths: Vec<u32> = lengths.iter().map(|pages| pages * PAGE).collect();
            let total: u64 = lengths.iter().map(|bytes| u64::from(*bytes)).sum();
            let range = (UNIT_BYTES, (1 + room) * UNIT_BYTES);
            let found = Boundaries::default().lay_out(range, &lengths);
            prop_assert_eq!(found.is_some(), total <= room * UNIT_BYTES);
            if let Some((places, end)) = found {
                prop_assert_eq!(end, UNIT_BYTES + total);
                let mut at = UNIT_BYTES;
                for (place, bytes) in places.iter().zip(&lengths) {
                    prop_assert_eq!(*place, at);
                    at += u64::from(*bytes);
                }
            }
        }
    }
}
