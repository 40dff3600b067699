//! Write buffers of LSM trees: how often updates have filled them.

use crate::engine::Turns;

/// How often the write buffers have been filled when the state is taken to be steady.
const FILLED: f64 = 4.0;

/// All write buffers of a tree.
pub(super) struct Buffers {
    /// Bytes that they hold at most, by the configuration.
    pub(super) bytes: u64,
    /// Bytes that an increment takes there.
    pub(super) increment_bytes: u64,
}

impl Buffers {
    /// How often so many increments have filled them.
    pub(super) fn turns(&self, increments: u64) -> Turns {
        let done = (increments * self.increment_bytes) as f64 / self.bytes.max(1) as f64;
        Turns { done, enough: FILLED }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_steady_when_the_buffers_were_filled_four_times() {
        let buffers = Buffers { bytes: 1000, increment_bytes: 40 };
        let found = [0, 25, 99, 100].map(|increments| buffers.turns(increments));
        assert_eq!(found.map(|turns| turns.done), [0.0, 1.0, 3.96, 4.0]);
        assert_eq!(found.map(|turns| turns.are_enough()), [false, false, false, true]);
    }
}
