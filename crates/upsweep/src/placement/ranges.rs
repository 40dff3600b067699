//! Sets of bytes as ranges.

use std::collections::BTreeMap;

/// Ranges by first byte, with their lengths: disjoint and not adjacent.
#[derive(Clone, Default)]
pub(super) struct Ranges {
    pub(super) by_start: BTreeMap<u64, u64>,
    pub(super) bytes: u64,
}

impl Ranges {
    /// Removes a range, if all of it is present.
    pub(super) fn take(&mut self, offset: u64, bytes: u64) -> bool {
        let Some((&start, &length)) = self.by_start.range(..=offset).next_back() else {
            return false;
        };
        let (end, taken_end) = (start + length, offset.saturating_add(bytes));
        if taken_end > end {
            return false;
        }
        self.by_start.remove(&start);
        if offset > start {
            self.by_start.insert(start, offset - start);
        }
        if end > taken_end {
            self.by_start.insert(taken_end, end - taken_end);
        }
        self.bytes -= bytes;
        true
    }

    pub(super) fn give(&mut self, offset: u64, bytes: u64) {
        let (mut start, mut end) = (offset, offset + bytes);
        if let Some((&before, &length)) = self.by_start.range(..offset).next_back() {
            assert!(before + length <= offset, "extent at {offset} freed twice");
            if before + length == offset {
                self.by_start.remove(&before);
                start = before;
            }
        }
        if let Some((&after, &length)) = self.by_start.range(offset..).next() {
            assert!(end <= after, "extent at {offset} freed twice");
            if end == after {
                self.by_start.remove(&after);
                end = after + length;
            }
        }
        self.by_start.insert(start, end - start);
        self.bytes += bytes;
    }

    /// The ranges from `from` on, as first byte and length.
    pub(super) fn starting_at(&self, from: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let cut = self.by_start.range(..from).next_back();
        let cut = cut.filter(move |(start, length)| **start + **length > from);
        let cut = cut.map(move |(start, length)| (from, start + length - from));
        cut.into_iter().chain(self.by_start.range(from..).map(|(start, length)| (*start, *length)))
    }

    /// The ranges below `to`, the highest first, as first byte and length.
    pub(super) fn below(&self, to: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let ranges = self.by_start.range(..to).rev();
        ranges.map(move |(start, length)| (*start, (*length).min(to - start)))
    }
}
