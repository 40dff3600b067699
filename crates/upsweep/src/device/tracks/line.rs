//! Phases along a track, and two tracks between which the phase hardly jumps.

use serde::{Deserialize, Serialize};

/// A block tells which of two lines it is on where these are at least this part of a turn from each
/// other.
const APART_MIN: f64 = 1.0 / 96.0;

/// A difference of phases, from -1/2 to 1/2.
pub(super) fn wrapped(turns: f64) -> f64 {
    turns - turns.round()
}

/// The phases of the blocks of a track. Phases are in turns.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Line {
    /// A block of it.
    pub(super) block: u64,
    /// The phase of that.
    pub(super) phase: f64,
    /// Turns for a block.
    pub(super) pace: f64,
}

impl Line {
    /// How far a phase is from that which a block has on this line.
    pub(super) fn off(&self, block: u64, phase: f64) -> f64 {
        wrapped(phase - self.at(block))
    }

    fn at(&self, block: u64) -> f64 {
        self.phase + (block as f64 - self.block as f64) * self.pace
    }

    /// How far the phases of a block on two lines are from each other.
    fn apart(&self, other: &Self, block: u64) -> f64 {
        wrapped(self.at(block) - other.at(block)).abs()
    }
}

/// Two tracks between which the phase hardly jumps. The boundary is where blocks cease to be on the
/// line of the first and begin to be on that of the second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Hidden {
    /// The line of the first track, from its first block.
    pub(super) before: Line,
    /// The line of the second one, from its last block, once the track behind it is known; that
    /// gives it its pace.
    pub(super) after: Option<Line>,
}

impl Hidden {
    /// A block between these, exclusive, which tells the two lines apart: the middle one or the
    /// nearest to it. The lines may cross.
    pub(super) fn between(&self, before: u64, after: u64) -> Option<u64> {
        let second = self.after?;
        let middle = before + (after - before) / 2;
        let is_apart = |block: &u64| self.before.apart(&second, *block) >= APART_MIN;
        let down = (before + 1..=middle).rev().find(is_apart);
        down.filter(|block| *block == middle)
            .or_else(|| (middle + 1..after).find(is_apart))
            .or(down)
    }

    /// Whether a block with this phase is on the second line rather than on the first.
    pub(super) fn is_after(&self, block: u64, phase: f64) -> bool {
        let off = |line: &Line| line.off(block, phase).abs();
        self.after.is_some_and(|after| off(&after) < off(&self.before))
    }
}
