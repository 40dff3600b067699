//! The moving parts of a drive: where the head is, and how long the pieces of a request take.
//!
//! The angle under the head is a function of the time alone: the phase never resets. Everything is
//! in milliseconds, as `f64`; the same calls give the same bits on every platform, because only
//! `+ - * /`, `sqrt`, `floor` and `ceil` are used.

use super::description::{DriveDescription, Mechanics, SeekCurve, Start};
use super::layout::Piece;

/// A slot that began less than this part of a revolution ago counts as just beginning. Otherwise
/// requests in sequence would now and then lose a revolution to rounding.
const CAUGHT_TURNS: f64 = 2e-6;

/// Whether data goes from or to the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the media.
    Read,
    /// To the media.
    Write,
}

/// Where the head is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The cylinder.
    pub cylinder: u32,
    /// The surface.
    pub surface: u32,
}

/// When the sectors of a piece pass under the head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pass {
    /// When the head is at rest on the track.
    pub positioned_ms: f64,
    /// When the last sector has passed.
    pub end_ms: f64,
    /// The part of the time between the two in which slots of the piece pass.
    pub transfer_ms: f64,
    /// Slots from the first to the one that passes last: all of them, unless the head began in the
    /// middle of the piece.
    pub last_slots: u32,
}

/// The moving parts of a drive at one moment.
#[derive(Clone, Debug)]
pub struct Mechanism {
    mechanics: Mechanics,
    seek: SeekCurve,
    start: Start,
    turn_ms: f64,
    head: Head,
    /// Whether sectors of a track are taken in the order in which they come, where the drive does
    /// that.
    zero_latency: bool,
}

impl Mechanism {
    /// The moving parts of a drive whose description was checked, at time 0.
    #[must_use]
    pub fn new(drive: &DriveDescription) -> Self {
        let start = drive.start.clone();
        Self {
            head: Head { cylinder: start.cylinder, surface: start.surface },
            turn_ms: 60_000.0 / drive.mechanics.rpm,
            mechanics: drive.mechanics.clone(),
            seek: drive.seek.clone(),
            start,
            zero_latency: true,
        }
    }

    /// Takes the sectors of a piece in the order of LBNs from now on, whatever the drive can do.
    pub fn without_zero_latency(&mut self) {
        self.zero_latency = false;
    }

    /// Time of a revolution.
    #[must_use]
    pub fn turn_ms(&self) -> f64 {
        self.turn_ms
    }

    /// Where the head is.
    #[must_use]
    pub fn head(&self) -> Head {
        self.head
    }

    /// The angle under the head, as a fraction of a revolution.
    #[must_use]
    pub fn angle(&self, now_ms: f64) -> f64 {
        fraction(self.start.angle_at_time_zero + now_ms / self.turn_ms)
    }

    /// Time until the head is at rest on a track: a seek, a change of the surface, and the settling
    /// before a write; nothing on the track that it is on.
    #[must_use]
    pub fn positioning_ms(&self, to: Head, direction: Direction) -> f64 {
        let distance = self.head.cylinder.abs_diff(to.cylinder);
        let seek = self.seek.time_ms(distance, self.mechanics.cylinders);
        let is_other = self.head.surface != to.surface;
        let switch = if is_other { self.mechanics.head_switch_ms } else { 0.0 };
        let moved = seek.max(switch);
        let settles = direction == Direction::Write && moved > 0.0;
        moved + if settles { self.mechanics.write_settle_ms } else { 0.0 }
    }

    /// Whether sectors of a track are taken in the order in which they come.
    #[must_use]
    pub fn wraps(&self, direction: Direction) -> bool {
        self.zero_latency
            && match direction {
                Direction::Read => self.mechanics.zero_latency_read,
                Direction::Write => self.mechanics.zero_latency_write,
            }
    }

    /// When a piece would pass if the head began to move at `now_ms`; what is written is in the
    /// buffer in time from `ready_ms` on.
    #[must_use]
    pub fn pass(&self, piece: &Piece, direction: Direction, now_ms: f64, ready_ms: f64) -> Pass {
        self.pass_as(piece, direction, now_ms, ready_ms, self.wraps(direction))
    }

    /// When a piece would be read in the order of LBNs if the head began to move at `now_ms`.
    pub(super) fn pass_in_order(&self, piece: &Piece, now_ms: f64) -> Pass {
        self.pass_as(piece, Direction::Read, now_ms, now_ms, false)
    }

    fn pass_as(
        &self,
        piece: &Piece,
        direction: Direction,
        now_ms: f64,
        ready_ms: f64,
        wraps: bool,
    ) -> Pass {
        let positioned_ms = now_ms + self.positioning_ms(piece.head(), direction);
        let begin_ms = positioned_ms.max(ready_ms);
        let slots = f64::from(piece.track_slots);
        let slot_ms = self.turn_ms / slots;
        // How far the head is past the beginning of the first slot.
        let past = fraction(self.angle(begin_ms) - f64::from(piece.first_slot) / slots);
        let tolerance = CAUGHT_TURNS * slots;
        let past = if past < CAUGHT_TURNS { 0.0 } else { past * slots };
        let is_within = past > 0.0 && past - tolerance <= f64::from(piece.slots - 1);
        let (wait, last_slots) = if wraps && is_within {
            // The last slot that began before the head came has to come again.
            let last = piece.sector_at_or_before((past - tolerance).ceil().max(1.0) as u32 - 1);
            (slots - past, last + 1)
        } else {
            (if past > 0.0 { slots - past } else { 0.0 }, piece.slots)
        };
        let end_ms = begin_ms + (wait + f64::from(last_slots)) * slot_ms;
        let transfer_ms = f64::from(piece.slots) * slot_ms;
        Pass { positioned_ms, end_ms, transfer_ms, last_slots }
    }

    /// Moves the head to the track of a piece.
    pub fn move_to(&mut self, piece: &Piece) {
        self.head = piece.head();
    }

    /// Puts the head where it stopped.
    pub(super) fn rest_at(&mut self, head: Head) {
        self.head = head;
    }
}

impl Piece {
    /// Where the head is for it.
    #[must_use]
    pub fn head(&self) -> Head {
        Head { cylinder: self.cylinder, surface: self.surface }
    }

    /// The nearest slot at or before this one, counted from the first, that is not slipped.
    fn sector_at_or_before(&self, slot: u32) -> u32 {
        let in_gap = |(at, sectors): &&(u32, u32)| (*at..at + sectors).contains(&slot);
        self.gaps.iter().find(in_gap).map_or(slot, |(at, _)| at - 1)
    }
}

/// The fractional part of a number: at least 0, below 1.
fn fraction(number: f64) -> f64 {
    // As `floor`, which is a call on some machines.
    let whole = number as i64 as f64;
    let part = number - if whole > number { whole - 1.0 } else { whole };
    // A negative number just below a whole one is rounded up to it.
    if part < 1.0 { part } else { 0.0 }
}
