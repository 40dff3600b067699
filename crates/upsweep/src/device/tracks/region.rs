//! The search in one region: which block is read next, and what follows from its phase.
//!
//! The anchor is the first known block of a track: a boundary, or the start of the region. Other
//! blocks are on its track if their phase is what the pace of the track says. Where everything is
//! as expected, one reading is enough; anything else counts only when two readings agree.
//!
//! Where a zone begins, a track may happen to go on nearly where the last one has ended. Such a
//! boundary is no jump of the phase. It shows because no track is longer than those before it, and
//! because the new zone has another pace. It is looked for once the track behind has been found,
//! which says how long the tracks of the zone are and what their pace is.
//!
//! What comes before two tracks of a region were equally long is less certain, because nothing is
//! usual yet. It counts for nothing: the region before goes on up to there.

use serde::{Deserialize, Serialize};

use super::line::{Hidden, Line, wrapped};
use crate::device::random::SplitMix64;

/// A phase is what was expected if it is off by at most this part of a turn: more than some slipped
/// sectors in one place shift it, and less than a skew.
pub(super) const OFF_MAX: f64 = 1.0 / 20.0;
/// The same where pace and length are known from other tracks, and nothing may have been slipped.
const KNOWN_OFF_MAX: f64 = 1.0 / 64.0;
/// Two readings of a block agree if they differ by at most this part of a turn.
const DIFFERENCE_MAX: f64 = 1.0 / 96.0;
/// Readings of a block of which no two agree: then something disturbs them.
const READINGS_MAX: usize = 7;
/// Weight of the last track in the pace of tracks of the usual length.
const LAST_WEIGHT: f64 = 0.25;

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
    /// The track does not end there: a block in the middle of the usual length is read.
    Middle,
    /// The hidden boundary is between a block on the first track and one on the second.
    Split { before: u64, after: u64 },
    /// The first boundary behind the end of the region is found.
    Done,
}

/// The search in a region. Places and lengths are in blocks, phases in turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Region {
    start: u64,
    end: u64,
    /// The search goes on up to the first boundary at or behind this.
    until: u64,
    /// The end of the device.
    limit: u64,
    boundaries: Vec<u64>,
    /// The first of them behind two tracks of equal length.
    certain: Option<u64>,
    /// The track that is searched, from its anchor.
    line: Line,
    /// The distance from the anchor over which its pace was measured.
    measured: u64,
    /// The length that the next track is expected to have, 0 if none was seen twice; and its pace.
    usual: u64,
    usual_pace: f64,
    last_length: u64,
    /// Tracks before the anchor, or before the last boundary, that may be two.
    hidden: Option<Hidden>,
    /// Whether phases say that what was read since the last boundary is not one track of the usual
    /// pace.
    is_odd: bool,
    step: Step,
    /// Readings of the present block that do not agree.
    readings: Vec<f64>,
    /// Phases of the nearest blocks that were read on the track and beyond it.
    on_track_phase: f64,
    beyond_phase: f64,
}

impl Region {
    pub(super) fn new(start: u64, end: u64, limit: u64) -> Self {
        Self {
            start,
            end,
            until: end + 1,
            limit,
            boundaries: Vec::new(),
            certain: None,
            line: Line { block: start, ..Line::default() },
            measured: 0,
            usual: 0,
            usual_pace: 0.0,
            last_length: 0,
            hidden: None,
            is_odd: false,
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

    /// Boundaries that were found and are certain, in order. All count in a region that has no two
    /// tracks of equal length, or that is the first.
    pub(super) fn boundaries(&self) -> impl Iterator<Item = u64> + '_ {
        let certain = self.certain.filter(|_| self.start > 0);
        self.boundaries.iter().copied().filter(move |boundary| certain <= Some(*boundary))
    }

    /// Goes on up to where the next region becomes certain.
    pub(super) fn meet(&mut self, next: &Self) {
        let Some(certain) = next.certain.filter(|certain| *certain > self.until) else { return };
        self.until = certain;
        if let Some(last) = self.boundaries.last().filter(|last| **last < certain)
            && self.step == Step::Done
        {
            self.line.block = *last;
            self.step = Step::Anchor { measures: self.usual == 0 };
        }
    }

    /// Blocks that are searched.
    pub(super) fn searched(&self) -> u64 {
        let is_done = self.step == Step::Done;
        (if is_done { self.end } else { self.line.block.min(self.end) }) - self.start
    }

    /// Phases have another origin from now on.
    pub(super) fn restart(&mut self) {
        if self.step == Step::Done {
            return;
        }
        if let Some(Hidden { before, .. }) = self.hidden.take() {
            self.boundaries.retain(|boundary| *boundary <= before.block);
            self.line = before;
        }
        self.readings.clear();
        self.is_odd = false;
        self.step = Step::Anchor { measures: self.usual == 0 };
    }

    /// The block to read; `None` if the region is done.
    pub(super) fn next(&self) -> Option<u64> {
        match self.step {
            Step::Anchor { .. } => Some(self.line.block),
            Step::Measure { distance } => Some(self.line.block + distance),
            Step::Bisect { on_track, beyond } => Some(on_track + (beyond - on_track) / 2),
            Step::Last => Some(self.line.block + self.usual - 1),
            Step::Next => Some(self.line.block + self.usual),
            Step::Middle => Some(self.line.block + self.usual / 2),
            Step::Split { before, after } => self.hidden?.between(before, after),
            Step::Done => None,
        }
    }

    /// Records the phase of the block that was to be read; `None` if its readings do not agree.
    pub(super) fn saw(&mut self, phase: f64) -> Option<()> {
        let block = self.next()?;
        let is_expected = match self.step {
            Step::Last | Step::Middle => self.is_as_known(block, phase),
            Step::Next => self.jumps(phase, OFF_MAX),
            _ => false,
        };
        if is_expected {
            self.readings.clear();
            self.step(block, phase);
            self.settle();
            return Some(());
        }
        let agrees = |other: &&f64| wrapped(phase - **other).abs() <= DIFFERENCE_MAX;
        let Some(other) = self.readings.iter().find(agrees) else {
            self.readings.push(phase);
            return (self.readings.len() < READINGS_MAX).then_some(());
        };
        let phase = phase + wrapped(other - phase) / 2.0;
        self.readings.clear();
        self.step(block, phase);
        self.settle();
        Some(())
    }

    fn step(&mut self, block: u64, phase: f64) {
        if let Step::Split { before, after } = self.step {
            let is_after = self.hidden.is_some_and(|hidden| hidden.is_after(block, phase));
            self.step = match is_after {
                true => Step::Split { before, after: block },
                false => Step::Split { before: block, after },
            };
            return;
        }
        let is_on_track = match self.step {
            Step::Last | Step::Middle => self.is_as_known(block, phase),
            Step::Next => !self.jumps(phase, OFF_MAX / 2.0),
            _ => self.line.off(block, phase).abs() <= OFF_MAX,
        };
        *if is_on_track { &mut self.on_track_phase } else { &mut self.beyond_phase } = phase;
        match self.step {
            Step::Anchor { measures } => {
                (self.line.phase, self.on_track_phase) = (phase, phase);
                if measures {
                    (self.line.pace, self.measured) = (0.0, 0);
                    self.step = Step::Measure { distance: 1 };
                } else {
                    self.line.pace = self.usual_pace;
                    self.step = Step::Last;
                }
            }
            // No track is longer than the usual ones, and farther on another may be taken for it.
            Step::Measure { distance }
                if is_on_track && self.usual > 0 && distance > self.usual =>
            {
                self.hide(block);
            }
            Step::Measure { distance } if is_on_track => {
                self.measure(block, phase);
                self.step = Step::Measure { distance: 2 * distance };
            }
            Step::Measure { .. } => {
                let on_track = self.line.block + self.measured;
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
                let distance = (block - self.line.block).max(1) as f64;
                self.line.pace += LAST_WEIGHT * self.line.off(block, phase) / distance;
                self.step = Step::Next;
            }
            // The track is shorter, or it is not one.
            Step::Last => {
                self.is_odd = true;
                self.step = Step::Anchor { measures: true };
            }
            // It is longer, or it is not one.
            Step::Next if is_on_track => self.step = Step::Middle,
            Step::Middle => {
                self.is_odd = !is_on_track;
                self.hide(self.line.block + self.usual);
            }
            Step::Next => self.found(block),
            Step::Split { .. } | Step::Done => {}
        }
    }

    /// Goes on where nothing is to be read: neighbours, and the end of the device.
    fn settle(&mut self) {
        if let Step::Measure { distance } = self.step
            && self.line.block + distance >= self.limit
        {
            let on_track = self.line.block + self.measured;
            self.step = Step::Bisect { on_track, beyond: self.limit };
        }
        if let Step::Bisect { on_track, beyond } = self.step
            && beyond - on_track == 1
        {
            let drifts = self.usual > 0
                && beyond < self.limit
                && !self.jumps(self.beyond_phase, OFF_MAX / 2.0);
            if drifts {
                self.is_odd = true;
                self.hide(beyond);
            } else {
                self.found(beyond);
            }
        }
        if self.step == Step::Last && self.line.block + self.usual > self.limit {
            self.step = Step::Anchor { measures: true };
        }
        if self.step == Step::Next && self.line.block + self.usual == self.limit {
            self.found(self.limit);
        }
        if let Step::Split { before, after } = self.step
            && let Some(hidden) = self.hidden
            && hidden.between(before, after).is_none()
        {
            self.split(&hidden, before, after);
        }
    }

    /// Whether a phase jumps from the last block on the track to the next one, by more than this.
    fn jumps(&self, phase: f64, off_max: f64) -> bool {
        wrapped(phase - self.on_track_phase - self.line.pace).abs() > off_max
    }

    /// The track of the anchor has ended before this block, and that did not show: the search goes
    /// on from it.
    fn hide(&mut self, block: u64) {
        let before = Line { pace: self.usual_pace, ..self.line };
        self.hidden.get_or_insert(Hidden { before, after: None });
        self.line.block = block;
        self.step = Step::Anchor { measures: true };
    }

    /// A boundary before this block, whose phase is that of the last one beyond the track.
    fn found(&mut self, block: u64) {
        match self.hidden {
            // The track behind what may be two has ended, and gives the second one its pace.
            Some(Hidden { before, after: Some(after) }) => {
                let after = Line { pace: self.line.pace, ..after };
                let end = after.block + 1;
                let is_split = block - end < end - before.block;
                self.hidden = is_split.then_some(Hidden { before, after: Some(after) });
                self.ended(block - end);
            }
            _ => self.hidden = self.ended_as_one_or_two(block),
        }
        self.boundaries.push(block);
        if self.usual > 0 {
            self.certain.get_or_insert(block);
        }
        self.line = Line { block, phase: self.beyond_phase, pace: self.usual_pace };
        self.is_odd = false;
        match self.hidden {
            Some(Hidden { before, after: Some(after) }) if after.block + 1 < block => {
                self.step = Step::Split { before: before.block, after: after.block };
            }
            Some(_) => self.step = Step::Anchor { measures: true },
            None => self.go_on(),
        }
        self.settle();
    }

    /// What ends before this block is a track, or may be two.
    fn ended_as_one_or_two(&mut self, block: u64) -> Option<Hidden> {
        let known = Line { pace: self.usual_pace, ..self.line };
        let before = self.hidden.map_or(known, |hidden| hidden.before);
        if self.boundaries.is_empty() && before.block > 0 {
            return None;
        }
        let length = block - before.block;
        let off = before.off(block - 1, self.on_track_phase).abs();
        let is_two = 16 * length > 17 * self.usual
            || off > OFF_MAX / 2.0
            || (self.is_odd && (length > self.usual || self.hidden.is_some()));
        if self.usual == 0 || !is_two {
            self.ended(length);
            return None;
        }
        self.last_length = length;
        if block >= self.limit {
            self.boundaries.push(before.block + self.usual);
            return None;
        }
        let after = Line { block: block - 1, phase: self.on_track_phase, pace: 0.0 };
        Some(Hidden { before, after: Some(after) })
    }

    /// A track of this length has ended.
    fn ended(&mut self, length: u64) {
        if length == self.last_length {
            (self.usual, self.usual_pace) = (length, self.line.pace);
        }
        self.last_length = length;
    }

    /// The hidden boundary is between these blocks, and nothing tells more.
    fn split(&mut self, hidden: &Hidden, before: u64, after: u64) {
        let place = self.boundaries.partition_point(|boundary| *boundary <= before);
        // Zones begin with whole tracks, or end with them.
        let end = hidden.after.map_or(after, |line| line.block) + 1;
        let length = self.last_length;
        let guesses = [after, end.saturating_sub(length), hidden.before.block + self.usual];
        let is_between = |guess: &&u64| before < **guess && **guess <= after;
        let is_known = after - before == 1;
        let guess = guesses[usize::from(!is_known)..].iter().find(is_between);
        self.boundaries.insert(place, *guess.unwrap_or(&after));
        self.hidden = None;
        self.go_on();
        self.settle();
    }

    /// After a boundary: the next track, unless all are found.
    fn go_on(&mut self) {
        let before = self.boundaries.partition_point(|boundary| *boundary < self.until);
        self.step = if before < self.boundaries.len() || self.line.block >= self.limit {
            self.boundaries.truncate(before + 1);
            Step::Done
        } else if self.usual > 0 {
            Step::Last
        } else {
            Step::Anchor { measures: true }
        };
    }

    /// Whether the phase of a block is what it is on a track of the usual pace; the error of that
    /// grows with the distance.
    fn is_as_known(&self, block: u64, phase: f64) -> bool {
        let part = (block - self.line.block) as f64 / self.usual as f64;
        self.line.off(block, phase).abs() <= KNOWN_OFF_MAX * part
    }

    /// Measures the pace anew, over the distance to a block on the track.
    fn measure(&mut self, block: u64, phase: f64) {
        let distance = block - self.line.block;
        if distance > 0 {
            self.line.pace += self.line.off(block, phase) / distance as f64;
            self.measured = distance;
        }
    }
}
