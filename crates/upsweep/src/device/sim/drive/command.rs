//! One command in a drive: overhead, positioning, passing under the head, crossing the bus.

use super::bus::{BusTime, Ramp};
use super::description::{Bus, DriveDescription, Overheads};
use super::layout::{Layout, Piece};
use super::mechanics::{Direction, Mechanism, Pass};

/// What a command wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sectors of the drive.
    Read,
    /// That sectors are written; they may still be in a buffer that forgets them without power.
    Write,
    /// That sectors are written to the media.
    StableWrite,
    /// That everything that was accepted before is on the media. It has no sectors.
    Flush,
}

impl Operation {
    /// Where the data goes; a flush counts as a write.
    #[must_use]
    pub fn direction(self) -> Direction {
        match self {
            Self::Read => Direction::Read,
            Self::Write | Self::StableWrite | Self::Flush => Direction::Write,
        }
    }
}

impl From<Direction> for Operation {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Read => Self::Read,
            Direction::Write => Self::Write,
        }
    }
}

/// A command to a drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Command {
    /// When the host sends it, in milliseconds.
    pub arrival_ms: f64,
    /// What it wants.
    pub operation: Operation,
    /// Its first sector; of no meaning in a flush.
    pub lbn: u64,
    /// Its sectors, at least 1; of no meaning in a flush.
    pub sectors: u64,
}

impl Command {
    /// The LBN after its last sector.
    pub(super) fn end(&self) -> u64 {
        self.lbn + self.sectors
    }
}

/// How the time of a command passed, in milliseconds.
///
/// With [`Detail::Full`] the time from `start_ms` to `completion_ms` also has parts that are not
/// listed: waiting for the media or for room in the buffer, and the host's interrupt.
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
    /// When the media has done its part, and is free for the next command; of one that needs no
    /// media, the end of its processing.
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
    /// Everything: also the buffer, the work on one command during that on another, held and
    /// merged writes, and the host's interrupt.
    Full,
}

/// The parts of a drive that a command passes through.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) layout: Layout,
    pub(super) mechanism: Mechanism,
    pub(super) bus: BusTime,
    /// Whether a read keeps the bus from its first to its last sector.
    pub(super) hold_whole_read: bool,
    /// Whether a write does.
    pub(super) hold_whole_write: bool,
    /// None of them, if they are not simulated.
    overheads: Option<Overheads>,
    /// The kind of the command before.
    previous: Direction,
}

impl Path {
    pub(super) fn new(description: &DriveDescription, detail: Detail) -> Self {
        let Bus { sector_ms, hold_whole_read, hold_whole_write, .. } = description.bus;
        let is_complete = detail != Detail::Mechanics;
        Self {
            layout: Layout::new(description),
            mechanism: Mechanism::new(description),
            bus: BusTime::new(if is_complete { sector_ms } else { 0.0 }),
            hold_whole_read,
            hold_whole_write,
            overheads: is_complete.then(|| description.overhead_ms.clone()),
            previous: Direction::Read,
        }
    }

    /// Serves a command from `start_ms` on, with everything that it needs one after another.
    pub(super) fn serve(&mut self, command: &Command, start_ms: f64) -> Served {
        let direction = command.operation.direction();
        let overhead_ms = self.overhead_ms(direction, false);
        let begin_ms = start_ms + overhead_ms;
        let data_ms = begin_ms.max(self.bus.free_ms());
        let mut served = Served { start_ms, overhead_ms, ..Served::default() };
        let (mut now_ms, mut sent, mut ramps) = (begin_ms, 0, Vec::new());
        for piece in self.layout.pieces(command.lbn, command.sectors) {
            let ready_ms = match direction {
                Direction::Read => begin_ms,
                Direction::Write => self.ready_ms(data_ms, sent, &piece),
            };
            let pass = self.mechanism.pass(&piece, direction, now_ms, ready_ms);
            self.mechanism.move_to(&piece);
            served.seek_ms += pass.positioned_ms - now_ms;
            served.rotation_ms += pass.end_ms - pass.positioned_ms - pass.transfer_ms;
            if direction == Direction::Read {
                ramps.extend(self.ramps(command.lbn + u64::from(sent), &piece, &pass));
            }
            now_ms = pass.end_ms;
            sent += piece.sectors;
        }
        self.bus.forget(start_ms);
        match direction {
            Direction::Read => self.bus.stream(&ramps, self.hold_whole_read),
            Direction::Write => {
                let data = Ramp::at(command.lbn, command.sectors, data_ms);
                self.bus.stream(&[data], self.hold_whole_write)
            }
        };
        self.previous = direction;
        served.media_end_ms = now_ms;
        served.completion_ms = match direction {
            Direction::Read => now_ms.max(self.bus.free_ms()),
            Direction::Write => now_ms,
        };
        let others = overhead_ms + served.seek_ms + served.rotation_ms;
        served.transfer_ms = served.completion_ms - start_ms - others;
        served
    }

    /// Time from `begin_ms` until the first piece of a command has passed, without the time in
    /// which its sectors do. What it writes crosses the bus from `data_ms` on.
    pub(super) fn positioning_ms(
        &self,
        direction: Direction,
        first: &Piece,
        begin_ms: f64,
        data_ms: f64,
    ) -> f64 {
        let ready_ms = match direction {
            Direction::Read => begin_ms,
            Direction::Write => self.ready_ms(data_ms, 0, first),
        };
        let pass = self.mechanism.pass(first, direction, begin_ms, ready_ms);
        pass.end_ms - pass.transfer_ms - begin_ms
    }

    /// Processing of a command of this kind, which is a hit if it needs no media.
    pub(super) fn overhead_ms(&self, direction: Direction, is_hit: bool) -> f64 {
        let Some(times) = &self.overheads else { return 0.0 };
        let own_ms = match (direction, is_hit, self.previous) {
            (Direction::Read, true, Direction::Read) => times.read_hit_after_read,
            (Direction::Read, true, Direction::Write) => times.read_hit_after_write,
            (Direction::Read, false, Direction::Read) => times.read_miss_after_read,
            (Direction::Read, false, Direction::Write) => times.read_miss_after_write,
            (Direction::Write, true, Direction::Read) => times.write_hit_after_read,
            (Direction::Write, true, Direction::Write) => times.write_hit_after_write,
            (Direction::Write, false, Direction::Read) => times.write_miss_after_read,
            (Direction::Write, false, Direction::Write) => times.write_miss_after_write,
        };
        own_ms + times.other
    }

    /// The same, and remembers the kind for the next one.
    pub(super) fn process_ms(&mut self, direction: Direction, is_hit: bool) -> f64 {
        let overhead_ms = self.overhead_ms(direction, is_hit);
        self.previous = direction;
        overhead_ms
    }

    /// Processing of a flush.
    pub(super) fn flush_overhead_ms(&self) -> f64 {
        self.overheads.as_ref().map_or(0.0, |times| times.other)
    }

    /// From when on a piece can be written without a pause, if its data crosses the bus after that
    /// of `sent` sectors, which cross from `data_ms` on.
    pub(super) fn ready_ms(&self, data_ms: f64, sent: u32, piece: &Piece) -> f64 {
        let from_ms = data_ms + f64::from(sent) * self.bus.sector_ms();
        self.part_ready_ms(from_ms, 0, piece.sectors, piece)
    }

    /// From when on a piece can be written without a pause, as far as a part of it is concerned:
    /// its `sectors` come after `slots` others, and their data crosses the bus from `from_ms` on.
    pub(super) fn part_ready_ms(
        &self,
        from_ms: f64,
        slots: u32,
        sectors: u32,
        piece: &Piece,
    ) -> f64 {
        let sector_ms = self.bus.sector_ms();
        let all_ms = from_ms + f64::from(sectors) * sector_ms;
        if self.mechanism.wraps(Direction::Write) {
            return all_ms;
        }
        let slot_ms = self.mechanism.turn_ms() / f64::from(piece.track_slots);
        let first_ms = from_ms + sector_ms - f64::from(slots) * slot_ms;
        first_ms.max(all_ms - f64::from(slots + sectors - 1) * slot_ms)
    }

    /// When the sectors of a piece that begins at `lbn` are in the buffer, in the order in which
    /// they pass.
    pub(super) fn ramps(&self, lbn: u64, piece: &Piece, pass: &Pass) -> Vec<Ramp> {
        let turn_ms = self.mechanism.turn_ms();
        let slot_ms = turn_ms / f64::from(piece.track_slots);
        let last = pass.last_slots;
        let after = |slot: u32| f64::from(last) - 1.0 - f64::from(slot);
        let read_ms = |slot: u32, turns: f64| pass.end_ms - turns * turn_ms - after(slot) * slot_ms;
        let mut ramps = Vec::new();
        for (first, end, turns) in [(last, piece.slots, 1.0), (0, last, 0.0)] {
            for (first, end) in piece.runs(first, end) {
                ramps.push(Ramp {
                    lbn: lbn + u64::from(first - piece.slipped_before(first)),
                    sectors: end - first,
                    first_ms: read_ms(first, turns),
                    last_ms: read_ms(end - 1, turns),
                    slot_ms,
                });
            }
        }
        ramps
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

    /// Slipped sectors before this slot.
    fn slipped_before(&self, slot: u32) -> u32 {
        let before = self.gaps.iter().take_while(|(at, _)| *at < slot);
        before.map(|(_, sectors)| sectors).sum()
    }
}
