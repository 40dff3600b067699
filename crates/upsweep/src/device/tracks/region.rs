//! The search in one region: which block is read next, and what follows from its phase.
//!
//! The anchor is the first known block of a track: a boundary, or the start of the region. Other
//! blocks are on its track if their phase is what the pace of the track says. Where everything is
//! as expected, one reading is enough; anything else counts only when two readings agree.

use serde::{Deserialize, Serialize};

use crate::device::random::SplitMix64;

/// A phase is what was expected if it is off by at most this part of a turn: more than some slipped
/// sectors in one place shift it, and less than a skew.
const OFF_MAX: f64 = 1.0 / 20.0;
/// Two readings of a block agree if they differ by at most this part of a turn.
const DIFFERENCE_MAX: f64 = 1.0 / 96.0;
/// Readings of a block of which no two agree: then something disturbs them.
const READINGS_MAX: usize = 7;

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Step {
    /// The anchor is read; then the pace of its track is measured, or taken to be known.
    Anchor { measures: bool },
    /// A block at this distance from the anchor is read: each time twice as far, until one is not
    /// on the track.
    Measure { distance: u64 },
    /// The boundary is between a block on the track and one beyond it, which ends up next to it.
    Bisect { on_track: u64, beyond: u64 },
    /// The last block of a track of the usual length is read.
    Last,
    /// The first block of the track after that is read.
    Next,
    /// The first boundary behind the end of the region is found.
    Done,
}

/// The search in a region. Places and lengths are in blocks, phases in turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Region {
    start: u64,
    end: u64,
    /// The end of the device.
    limit: u64,
    boundaries: Vec<u64>,
    anchor: u64,
    anchor_phase: f64,
    /// Turns for a block, and the distance from the anchor over which it was measured.
    pace: f64,
    measured: u64,
    /// The length that the next track is expected to have; 0 if none was seen twice.
    usual: u64,
    last_length: u64,
    step: Step,
    /// Readings of the present block that do not agree.
    readings: Vec<f64>,
    /// Phases of the nearest blocks that were read on the track and beyond it.
    on_track_phase: f64,
    beyond_phase: f64,
}

/// A difference of phases, from -1/2 to 1/2.
fn wrapped(turns: f64) -> f64 {
    turns - turns.round()
}

impl Region {
    pub(super) fn new(start: u64, end: u64, limit: u64) -> Self {
        Self {
            start,
            end,
            limit,
            boundaries: Vec::new(),
            anchor: start,
            anchor_phase: 0.0,
            pace: 0.0,
            measured: 0,
            usual: 0,
            last_length: 0,
            step: Step::Anchor { measures: true },
            readings: Vec::new(),
            on_track_phase: 0.0,
            beyond_phase: 0.0,
        }
    }

    /// Its first block.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Any of its blocks.
    pub(super) fn any(&self, random: &mut SplitMix64) -> u64 {
        self.start + random.below(self.end - self.start)
    }

    /// Boundaries that were found, in order.
    pub(super) fn boundaries(&self) -> impl Iterator<Item = u64> + '_ {
        self.boundaries.iter().copied()
    }

    /// Blocks that are searched.
    pub(super) fn searched(&self) -> u64 {
        self.anchor.min(self.end) - self.start
    }

    /// Phases have another origin from now on.
    pub(super) fn restart(&mut self) {
        if self.step != Step::Done {
            self.readings.clear();
            self.step = Step::Anchor { measures: self.usual == 0 };
        }
    }

    /// The block to read; `None` if the region is done.
    pub(super) fn next(&self) -> Option<u64> {
        match self.step {
            Step::Anchor { .. } => Some(self.anchor),
            Step::Measure { distance } => Some(self.anchor + distance),
            Step::Bisect { on_track, beyond } => Some(on_track + (beyond - on_track) / 2),
            Step::Last => Some(self.anchor + self.usual - 1),
            Step::Next => Some(self.anchor + self.usual),
            Step::Done => None,
        }
    }

    /// Records the phase of the block that was to be read; `None` if its readings do not agree.
    pub(super) fn saw(&mut self, phase: f64) -> Option<()> {
        let block = self.next()?;
        let is_expected = match self.step {
            Step::Last => self.is_on_track(block, phase),
            Step::Next => !self.is_on_track(block, phase),
            _ => false,
        };
        let agrees = |other: &&f64| wrapped(phase - **other).abs() <= DIFFERENCE_MAX;
        if !is_expected && self.readings.iter().find(agrees).is_none() {
            self.readings.push(phase);
            return (self.readings.len() < READINGS_MAX).then_some(());
        }
        self.readings.clear();
        self.step(block, phase);
        self.settle();
        Some(())
    }

    fn step(&mut self, block: u64, phase: f64) {
        let is_on_track = self.is_on_track(block, phase);
        *if is_on_track { &mut self.on_track_phase } else { &mut self.beyond_phase } = phase;
        match self.step {
            Step::Anchor { measures } => {
                (self.anchor_phase, self.on_track_phase) = (phase, phase);
                if measures {
                    (self.pace, self.measured) = (0.0, 0);
                    self.step = Step::Measure { distance: 1 };
                } else {
                    self.step = Step::Last;
                }
            }
            Step::Measure { distance } if is_on_track => {
                self.measure(block, phase);
                self.step = Step::Measure { distance: 2 * distance };
            }
            Step::Measure { .. } => {
                let on_track = self.anchor + self.measured;
                self.step = Step::Bisect { on_track, beyond: block };
            }
            Step::Bisect { beyond, .. } if is_on_track => {
                self.measure(block, phase);
                self.step = Step::Bisect { on_track: block, beyond };
            }
            Step::Bisect { on_track, .. } => {
                self.step = Step::Bisect { on_track, beyond: block };
            }
            Step::Last if is_on_track => {
                self.measure(block, phase);
                self.step = Step::Next;
            }
            // The track is shorter, or has another pace.
            Step::Last => self.step = Step::Anchor { measures: true },
            // It is longer.
            Step::Next if is_on_track => {
                self.measure(block, phase);
                self.step = Step::Measure { distance: 2 * self.usual };
            }
            Step::Next => self.found(block),
            Step::Done => {}
        }
    }

    /// Goes on where nothing is to be read: neighbours, and the end of the device.
    fn settle(&mut self) {
        if let Step::Measure { distance } = self.step
            && self.anchor + distance >= self.limit
        {
            let on_track = self.anchor + self.measured;
            self.step = Step::Bisect { on_track, beyond: self.limit };
        }
        if let Step::Bisect { on_track, beyond } = self.step
            && beyond - on_track == 1
        {
            if self.usual > 0 && beyond < self.limit && !self.jumps() {
                // The phase drifts away: this is another track, which has another pace.
                self.found(self.anchor + self.usual);
                if self.step != Step::Done {
                    self.step = Step::Anchor { measures: true };
                }
            } else {
                self.found(beyond);
            }
        }
        if self.step == Step::Last && self.anchor + self.usual > self.limit {
            self.step = Step::Anchor { measures: true };
        }
        if self.step == Step::Next && self.anchor + self.usual == self.limit {
            self.found(self.limit);
        }
    }

    /// Whether the phase jumps from the last block on the track to the next one.
    fn jumps(&self) -> bool {
        wrapped(self.beyond_phase - self.on_track_phase - self.pace).abs() > OFF_MAX / 2.0
    }

    /// A boundary before this block, whose phase is that of the last one beyond the track.
    fn found(&mut self, block: u64) {
        let is_track = !self.boundaries.is_empty() || self.anchor == 0;
        if is_track {
            let mut length = block - self.anchor;
            // No track is much longer than the one before it: at the start of a zone, a track may
            // happen to go on where the last one has ended.
            if self.usual > 0 && 2 * length >= 3 * self.usual {
                self.boundaries.push(self.anchor + self.usual);
                length -= self.usual;
            }
            if length == self.last_length {
                self.usual = length;
            }
            self.last_length = length;
        }
        self.boundaries.push(block);
        (self.anchor, self.anchor_phase) = (block, self.beyond_phase);
        // One at the very end is not among those that the next region finds.
        self.step = if block > self.end || block >= self.limit {
            Step::Done
        } else if self.usual > 0 {
            Step::Last
        } else {
            Step::Anchor { measures: true }
        };
        self.settle();
    }

    /// Whether the phase of a block is what it is on the track of the anchor.
    fn is_on_track(&self, block: u64, phase: f64) -> bool {
        let expected = self.anchor_phase + (block - self.anchor) as f64 * self.pace;
        wrapped(phase - expected).abs() <= OFF_MAX
    }

    /// Measures the pace anew, over the distance to a block on the track.
    fn measure(&mut self, block: u64, phase: f64) {
        let distance = block - self.anchor;
        if distance == 0 {
            return;
        }
        let expected = self.anchor_phase + distance as f64 * self.pace;
        self.pace += wrapped(phase - expected) / distance as f64;
        self.measured = distance;
    }
}
