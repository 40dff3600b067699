//! What LSM trees hold back of updates: write buffers, and the levels above the last.

use crate::engine::Turns;

/// How often the write buffers have been filled when the state is taken to be steady.
const FILLED: f64 = 4.0;
/// How many times larger a level is than the one above it. The levels above the last together hold
/// about this part of the data; the last one, which all data is loaded into, is merged only once
/// they are full.
const LEVEL_FACTOR: u64 = 10;

/// Sizes of a tree.
pub(super) struct Tree {
    /// Bytes that all write buffers hold at most, by the configuration.
    pub(super) buffer_bytes: u64,
    /// Bytes that an increment takes there.
    pub(super) buffered_bytes: u64,
    /// Bytes of the records.
    pub(super) data_bytes: u64,
    /// Bytes that an increment takes in a file.
    pub(super) stored_bytes: u64,
}

impl Tree {
    /// How often so many increments have filled the write buffers, or four times the part that they
    /// have filled of the levels above the last, whichever is less.
    pub(super) fn turns(&self, increments: u64) -> Turns {
        let filled = |bytes: u64, of: u64| (increments * bytes) as f64 / of.max(1) as f64;
        let buffers = filled(self.buffered_bytes, self.buffer_bytes);
        let levels = filled(self.stored_bytes, self.data_bytes / LEVEL_FACTOR);
        Turns { done: buffers.min(FILLED * levels), enough: FILLED }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(data_bytes: u64) -> Tree {
        Tree { buffer_bytes: 1000, buffered_bytes: 40, data_bytes, stored_bytes: 20 }
    }

    #[test]
    fn the_state_is_steady_when_the_buffers_were_filled_four_times() {
        let found = [0, 25, 99, 100].map(|increments| tree(1000).turns(increments));
        assert_eq!(found.map(|turns| turns.done), [0.0, 1.0, 3.96, 4.0]);
        assert_eq!(found.map(|turns| turns.are_enough()), [false, false, false, true]);
    }

    #[test]
    fn with_much_data_the_state_is_steady_when_the_upper_levels_were_filled() {
        let found = [0, 100, 999, 1000].map(|increments| tree(200_000).turns(increments));
        assert_eq!(found.map(|turns| turns.done), [0.0, 0.4, 3.996, 4.0]);
        assert_eq!(found.map(|turns| turns.are_enough()), [false, false, false, true]);
    }
}
