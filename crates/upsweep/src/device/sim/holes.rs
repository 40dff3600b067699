//! The holes of one simulated file: ranges without allocated space.
//!
//! Invariants: ranges are disjoint and not empty.

use std::collections::BTreeMap;

/// Ranges, from first byte to the byte after the last.
#[derive(Clone, Debug, Default)]
pub(super) struct Holes(BTreeMap<u64, u64>);

impl Holes {
    /// Makes the range a hole.
    pub(super) fn punch(&mut self, from: u64, to: u64) {
        self.fill(from, to);
        if from < to {
            self.0.insert(from, to);
        }
    }

    /// Allocates all of the range.
    pub(super) fn fill(&mut self, from: u64, to: u64) {
        let touched: Vec<(u64, u64)> = self.touching(from, to).collect();
        for (start, end) in touched {
            self.0.remove(&start);
            if start < from {
                self.0.insert(start, from);
            }
            if end > to {
                self.0.insert(to, end);
            }
        }
    }

    /// Bytes of the range that are in holes.
    pub(super) fn bytes_in(&self, from: u64, to: u64) -> u64 {
        self.touching(from, to).map(|(start, end)| end.min(to) - start.max(from)).sum()
    }

    fn touching(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let before = self.0.range(..from).next_back().filter(move |(_, end)| **end > from);
        let inside = if from < to { Some(self.0.range(from..to)) } else { None };
        before.into_iter().chain(inside.into_iter().flatten()).map(|(start, end)| (*start, *end))
    }
}

#[cfg(test)]
mod tests {
    use super::Holes;

    #[test]
    fn holes_are_punched_and_filled_in_part() {
        let mut holes = Holes::default();
        holes.punch(10, 20);
        holes.punch(15, 30);
        assert_eq!((holes.bytes_in(0, 100), holes.bytes_in(12, 16)), (20, 4));
        holes.fill(14, 18);
        assert_eq!((holes.bytes_in(0, 100), holes.bytes_in(14, 18)), (16, 0));
        holes.punch(40, 40);
        holes.fill(0, 11);
        holes.fill(29, 50);
        assert_eq!((holes.bytes_in(0, 100), holes.bytes_in(20, 20)), (14, 0));
    }
}
