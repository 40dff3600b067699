//! Free and used space of one device, and where the next images go on it.

use super::UNIT_BYTES;
use super::boundaries::Boundaries;
use super::ranges::Ranges;

/// The whole granules of a range, as first byte and length, if it has any.
pub(super) fn whole_granules((start, bytes): (u64, u64), granule: u64) -> Option<(u64, u64)> {
    let (first, end) = (start.next_multiple_of(granule), start + bytes);
    let end = end - end % granule;
    (first < end).then(|| (first, end - first))
}

#[derive(Clone)]
pub(super) struct DeviceSpace {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) free: Ranges,
    pub(super) holes: Ranges,
    pub(super) cursor: u64,
    pub(super) boundaries: Boundaries,
}

impl DeviceSpace {
    /// All of `start..end` free.
    pub(super) fn new(start: u64, end: u64) -> Self {
        let (free, holes, boundaries) =
            (Ranges::default(), Ranges::default(), Boundaries::default());
        let mut space = Self { start, end, free, holes, cursor: start, boundaries };
        if end > start {
            space.free.give(start, end - start);
        }
        space
    }

    /// Places for images of these lengths in the first gap after the cursor that holds them,
    /// wrapping once, and the end of the last.
    pub(super) fn next_fit(&self, lengths: &[u32]) -> Option<(Vec<u64>, u64)> {
        let total: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        let fits = |(start, length): (u64, u64)| {
            let range = (start, start + length);
            (length >= total).then(|| self.boundaries.lay_out(range, lengths)).flatten()
        };
        let before = self.free.by_start.range(..self.cursor);
        let before = before.map(|(start, length)| (*start, *length));
        self.free.starting_at(self.cursor).chain(before).find_map(fits)
    }

    /// The highest place that holds `bytes`.
    pub(super) fn last_fit(&self, bytes: u64) -> Option<u64> {
        let fits = |(&start, &length): (&u64, &u64)| {
            self.boundaries.highest((start, start + length), bytes)
        };
        self.free.by_start.iter().rev().find_map(fits)
    }

    /// Bytes that are free at the end of a unit in which the images before leave no room: what is
    /// lost to boundaries unless something short comes.
    pub(super) fn remainder_bytes(&self) -> u64 {
        if self.boundaries.is_empty() {
            return 0;
        }
        let remainder = |(&start, &length): (&u64, &u64)| {
            let (unit_start, unit_end) = self.boundaries.unit_of(start);
            // The page that a boundary cuts belongs to it: no image can have it.
            let (from, to) =
                (unit_end - unit_end % UNIT_BYTES, unit_end.next_multiple_of(UNIT_BYTES));
            let is_remainder = start > unit_start && (from..=to).contains(&(start + length));
            if is_remainder { length } else { 0 }
        };
        self.free.by_start.iter().map(remainder).sum()
    }

    /// The highest free granules outside of the range in which the next run is placed; if there are
    /// none, the highest in it.
    pub(super) fn highest_free(&self, granule: u64) -> Option<(u64, u64)> {
        let behind = self.free.starting_at(self.cursor).next();
        let (start, length) = behind.or_else(|| self.free.starting_at(0).next())?;
        let is_next = |range: (u64, u64)| range.0 + range.1 == start + length;
        let highest = |of_next: bool| {
            let ranges = self.free.below(self.end).filter(|range| is_next(*range) == of_next);
            ranges.filter_map(|range| whole_granules(range, granule)).next()
        };
        highest(false).or_else(|| highest(true))
    }
}
