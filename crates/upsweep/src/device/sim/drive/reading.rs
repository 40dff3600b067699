//! What the drive reads from the media at present: the sectors of a command, and then those that it
//! reads ahead, until it is stopped or at the end of what it may read.
//!
//! All of it is known when it begins. Stopping it takes back what lies later.

use super::bus::Ramp;
use super::command::{Path, Served};
use super::layout::Piece;
use super::mechanics::{Direction, Head, Pass};

/// What began less than this before a moment counts as beginning at that moment. Otherwise the
/// drive would now and then wait for a sector because of rounding.
const AT_ONCE_MS: f64 = 1e-5;

/// Sectors of one track.
#[derive(Clone, Debug)]
struct Stretch {
    /// When the head begins to move there.
    begun_ms: f64,
    /// When it is at rest.
    positioned_ms: f64,
    head: Head,
    /// In the order in which they pass.
    ramps: Vec<Ramp>,
}

/// Sectors that pass under the head.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// The segment that keeps them.
    pub(super) segment: u64,
    /// Where the head was before.
    origin: Head,
    first: u64,
    end: u64,
    end_ms: f64,
    stretches: Vec<Stretch>,
}

/// Where reading stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stopped {
    /// When the media is free.
    pub(super) free_ms: f64,
    /// The LBN after the last sector that was read.
    pub(super) end: u64,
    /// Where the head is.
    pub(super) head: Head,
}

impl Reading {
    /// Nothing yet, of a segment: reading can begin at `begin_ms`, with the sector `first`.
    pub(super) fn new(path: &Path, segment: u64, first: u64, begin_ms: f64) -> Self {
        Self {
            segment,
            origin: path.mechanism.head(),
            first,
            end: first,
            end_ms: begin_ms,
            stretches: Vec::new(),
        }
    }

    /// The LBN after the last sector.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// When the last sector has passed.
    pub(super) fn end_ms(&self) -> f64 {
        self.end_ms
    }

    /// Reads on up to an LBN for a command, and adds to how its time passed.
    pub(super) fn read(&mut self, path: &mut Path, to: u64, served: &mut Served) {
        while self.end < to {
            let piece = path.layout.piece(self.end, to);
            let pass = path.mechanism.pass(&piece, Direction::Read, self.end_ms, self.end_ms);
            served.seek_ms += pass.positioned_ms - self.end_ms;
            served.rotation_ms += pass.end_ms - pass.positioned_ms - pass.transfer_ms;
            self.add(path, &piece, &pass);
        }
    }

    /// Reads ahead up to an LBN, in the order of LBNs.
    pub(super) fn read_ahead(&mut self, path: &mut Path, to: u64) {
        while self.end < to {
            let piece = path.layout.piece(self.end, to);
            let pass = path.mechanism.pass_in_order(&piece, self.end_ms);
            self.add(path, &piece, &pass);
        }
    }

    fn add(&mut self, path: &mut Path, piece: &Piece, pass: &Pass) {
        self.stretches.push(Stretch {
            begun_ms: self.end_ms,
            positioned_ms: pass.positioned_ms,
            head: piece.head(),
            ramps: path.ramps(self.end, piece, pass),
        });
        path.mechanism.move_to(piece);
        self.end += u64::from(piece.sectors);
        self.end_ms = pass.end_ms;
    }

    /// Whole slots that pass between the arrival of the head on the first track and the first
    /// sector; all of them, if the head began in the middle of the command.
    pub(super) fn slots_before(&self) -> u64 {
        let Some(Stretch { positioned_ms, ramps, .. }) = self.stretches.first() else { return 0 };
        if ramps.first().is_some_and(|ramp| ramp.lbn != self.first) {
            return u64::MAX;
        }
        ramps.first().map_or(0, |ramp| {
            let waited_ms = ramp.first_ms - ramp.slot_ms - positioned_ms;
            ((waited_ms + AT_ONCE_MS) / ramp.slot_ms) as u64
        })
    }

    /// The LBN after the last sector that has passed by now.
    pub(super) fn passed(&self, now_ms: f64) -> u64 {
        self.stop(now_ms, true).end
    }

    /// When the sectors of this range that are not in the buffer yet are.
    pub(super) fn ramps(&self, from: u64, to: u64) -> Vec<Ramp> {
        let ramps = self.stretches.iter().flat_map(|stretch| &stretch.ramps);
        ramps.filter_map(|ramp| ramp.within(from, to)).collect()
    }

    /// When all sectors up to this LBN are in the buffer.
    pub(super) fn read_ms(&self, to: u64) -> f64 {
        let ramps = self.ramps(self.first, to);
        ramps.iter().map(|ramp| ramp.last_ms).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Where the drive stops if something else needs the media from `at_ms` on, which is not before
    /// the last command's sectors have passed. It ends a movement of the head that has begun, and a
    /// sector that has, unless it stops `in_sector`.
    pub(super) fn stop(&self, at_ms: f64, in_sector: bool) -> Stopped {
        let mut stopped = Stopped { free_ms: at_ms, end: self.first, head: self.origin };
        let has_begun = |begun_ms: f64| at_ms - begun_ms > AT_ONCE_MS;
        for stretch in &self.stretches {
            if !has_begun(stretch.begun_ms) {
                break;
            }
            stopped.head = stretch.head;
            stopped.free_ms = at_ms.max(stretch.positioned_ms);
            for ramp in &stretch.ramps {
                if ramp.last_ms <= at_ms + AT_ONCE_MS {
                    stopped.end = stopped.end.max(ramp.end());
                    continue;
                }
                let passed = (at_ms + AT_ONCE_MS - ramp.first_ms) / ramp.slot_ms + 1.0;
                // Nothing, if it is negative.
                let mut passed = passed as u64;
                let next_ms = ramp.ms(passed);
                if !in_sector && has_begun(next_ms - ramp.slot_ms) {
                    stopped.free_ms = stopped.free_ms.max(next_ms);
                    passed += 1;
                }
                stopped.end = stopped.end.max(ramp.lbn + passed);
                return stopped;
            }
        }
        stopped
    }
}
