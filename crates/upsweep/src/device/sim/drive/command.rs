//! One command in a drive: overhead, positioning, passing under the head, crossing the bus.

use super::description::{Bus, Overheads};
use super::layout::{Layout, Piece};
use super::mechanics::{Direction, Mechanism, Pass};

/// A command to a drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Command {
    /// When the host sends it, in milliseconds.
    pub arrival_ms: f64,
    /// Whether it reads or writes.
    pub direction: Direction,
    /// Its first sector.
    pub lbn: u64,
    /// Its sectors, at least 1.
    pub sectors: u64,
}

/// How the time of a command passed, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Served {
    /// When the drive began with it.
    pub start_ms: f64,
    /// Processing of the command.
    pub overhead_ms: f64,
    /// Seeks, changes of the surface, and settling.
    pub seek_ms: f64,
    /// Waiting for sectors to come.
    pub rotation_ms: f64,
    /// Sectors passing under the head, and what is left to cross the bus after that.
    pub transfer_ms: f64,
    /// When the media is free for the next command.
    pub media_end_ms: f64,
    /// When the host knows that the command has ended.
    pub completion_ms: f64,
}

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Seeks, rotation and transfer from or to the media.
    Mechanics,
    /// Processing of commands and the bus as well.
    Overheads,
}

/// The parts of a drive that a command passes through.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) layout: Layout,
    pub(super) mechanism: Mechanism,
    pub(super) overheads: Overheads,
    pub(super) bus: Bus,
    pub(super) detail: Detail,
    pub(super) bus_free_ms: f64,
    /// The kind of the command before.
    pub(super) previous: Direction,
}

impl Path {
    /// Serves a command from `start_ms` on.
    pub(super) fn serve(&mut self, command: &Command, start_ms: f64) -> Served {
        let overhead_ms = self.overhead_ms(command.direction);
        let begin_ms = start_ms + overhead_ms;
        let mut served = Served { start_ms, overhead_ms, ..Served::default() };
        let (mut now_ms, mut sent) = (begin_ms, 0);
        for piece in self.layout.pieces(command.lbn, command.sectors) {
            let ready_ms = self.ready_ms(command.direction, begin_ms, sent, &piece);
            let pass = self.mechanism.pass(&piece, command.direction, now_ms, ready_ms);
            self.mechanism.move_to(&piece);
            served.seek_ms += pass.positioned_ms - now_ms;
            served.rotation_ms += pass.end_ms - pass.positioned_ms - pass.transfer_ms;
            if command.direction == Direction::Read {
                self.cross(&piece, &pass);
            }
            now_ms = pass.end_ms;
            sent += piece.sectors;
        }
        if command.direction == Direction::Write {
            // Its data crosses once the bus is free, as for `ready_ms`.
            let from_ms = begin_ms.max(self.bus_free_ms);
            self.bus_free_ms = from_ms + f64::from(sent) * self.sector_ms();
        }
        self.previous = command.direction;
        served.media_end_ms = now_ms;
        served.completion_ms = match command.direction {
            Direction::Read => now_ms.max(self.bus_free_ms),
            Direction::Write => now_ms,
        };
        let others = overhead_ms + served.seek_ms + served.rotation_ms;
        served.transfer_ms = served.completion_ms - start_ms - others;
        served
    }

    /// Time of the seek to a command.
    pub(super) fn seek_ms(&self, command: &Command) -> f64 {
        let first = &self.layout.pieces(command.lbn, 1)[0];
        self.mechanism.positioning_ms(first.head(), command.direction)
    }

    /// Time until the first track of a command has passed, without the time in which its sectors
    /// do.
    pub(super) fn positioning_ms(&self, command: &Command, now_ms: f64) -> f64 {
        let begin_ms = now_ms + self.overhead_ms(command.direction);
        let first = &self.layout.pieces(command.lbn, command.sectors)[0];
        let ready_ms = self.ready_ms(command.direction, begin_ms, 0, first);
        let pass = self.mechanism.pass(first, command.direction, begin_ms, ready_ms);
        pass.end_ms - pass.transfer_ms - begin_ms
    }

    /// Processing of a command that needs the media.
    fn overhead_ms(&self, direction: Direction) -> f64 {
        let Overheads { other, .. } = self.overheads;
        match (self.detail, direction, self.previous) {
            (Detail::Mechanics, ..) => 0.0,
            (_, Direction::Read, Direction::Read) => self.overheads.read_miss_after_read + other,
            (_, Direction::Read, Direction::Write) => self.overheads.read_miss_after_write + other,
            (_, Direction::Write, Direction::Read) => self.overheads.write_miss_after_read + other,
            (_, Direction::Write, Direction::Write) => {
                self.overheads.write_miss_after_write + other
            }
        }
    }

    fn sector_ms(&self) -> f64 {
        match self.detail {
            Detail::Mechanics => 0.0,
            Detail::Overheads => self.bus.sector_ms,
        }
    }

    /// From when on a piece can pass without a pause, if its data crosses the bus after that of
    /// `sent` sectors, from `begin_ms` on.
    fn ready_ms(&self, direction: Direction, begin_ms: f64, sent: u32, piece: &Piece) -> f64 {
        if direction == Direction::Read {
            return begin_ms;
        }
        let sector_ms = self.sector_ms();
        let from_ms = begin_ms.max(self.bus_free_ms) + f64::from(sent) * sector_ms;
        let all_ms = from_ms + f64::from(piece.sectors) * sector_ms;
        if self.mechanism.wraps(direction) {
            return all_ms;
        }
        let slot_ms = self.mechanism.turn_ms() / f64::from(piece.track_slots);
        (from_ms + sector_ms).max(all_ms - f64::from(piece.sectors - 1) * slot_ms)
    }

    /// Sectors that were read cross the bus, each once it is in the buffer and the bus is free.
    fn cross(&mut self, piece: &Piece, pass: &Pass) {
        let sector_ms = self.sector_ms();
        let slot_ms = self.mechanism.turn_ms() / f64::from(piece.track_slots);
        let last = pass.last_slots;
        let turn_ms = self.mechanism.turn_ms();
        let after = |slot: u32| f64::from(last) - 1.0 - f64::from(slot);
        let read_ms = |slot: u32, turns: f64| pass.end_ms - turns * turn_ms - after(slot) * slot_ms;
        for (first, end, turns) in [(last, piece.slots, 1.0), (0, last, 0.0)] {
            for (first, end) in piece.runs(first, end) {
                let all_ms = f64::from(end - first) * sector_ms;
                let begun_ms = self.bus_free_ms.max(read_ms(first, turns));
                self.bus_free_ms = (begun_ms + all_ms).max(read_ms(end - 1, turns) + sector_ms);
            }
        }
    }
}

impl Piece {
    /// The slots from `from` to `to` that are not slipped, as ranges.
    fn runs(&self, from: u32, to: u32) -> Vec<(u32, u32)> {
        let mut runs = Vec::new();
        let mut next = from;
        for (at, sectors) in &self.gaps {
            if (next..to).contains(at) {
                runs.push((next, *at));
            }
            next = next.max(at + sectors);
        }
        runs.push((next, to));
        runs.retain(|(first, end)| first < end);
        runs
    }
}
