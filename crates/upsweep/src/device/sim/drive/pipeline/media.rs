//! What the media of a drive does next: commands that wait for it, dirty sectors, reading ahead.

use super::super::bus::Ramp;
use super::super::cache::Destage;
use super::super::command::{Path, Served};
use super::super::hold::Queued;
use super::super::layout::Piece;
use super::super::mechanics::Direction;
use super::super::queue::Parts;
use super::super::reading::Reading;
use super::Pipeline;

/// What the media can do next.
#[derive(Clone, Copy, Debug)]
enum Task {
    Command(usize),
    Destage(Destage),
}

impl Pipeline {
    /// Whether the media is free and has something to do.
    pub(super) fn needs_media(&self, parts: &Parts, now_ms: f64) -> bool {
        if self.media_free_ms > now_ms || self.destaging.is_some() {
            return false;
        }
        if self.queue.waiting().iter().any(|queued| queued.is_ready(&self.buffer, now_ms)) {
            return true;
        }
        let can = || self.buffer.destages(now_ms).next().is_some();
        let is_wanted = || self.is_idle(now_ms) || self.demand_ms(parts, now_ms).is_some();
        self.buffer.is_dirty() && can() && is_wanted()
    }

    /// Whether the media does nothing, and nothing waits for it.
    pub(super) fn is_idle(&self, now_ms: f64) -> bool {
        self.media_free_ms <= now_ms
            && self.destaging.is_none()
            && self.reading.as_ref().is_none_or(|reading| reading.end_ms() <= now_ms)
            && self.queue.waiting().is_empty()
    }

    /// The arrival of the first command that waits until dirty sectors are on the media.
    fn demand_ms(&self, parts: &Parts, now_ms: f64) -> Option<f64> {
        let entered = parts.arrivals.entered(now_ms, self.inside());
        let commands = (0..entered).map(|place| parts.arrivals.get(place));
        let waiting = commands.filter(|command| self.verdict(command, now_ms).is_none());
        let blocked =
            self.queue.waiting().iter().filter(|queued| {
                self.buffer.touches_dirty(queued.command.lbn, queued.command.end())
            });
        let arrivals = waiting.map(|command| command.arrival_ms);
        let arrivals = arrivals.chain(blocked.map(|queued| queued.command.arrival_ms));
        let arrivals = arrivals.chain(self.flushes.iter().map(|flush| flush.arrival_ms));
        arrivals.min_by(f64::total_cmp)
    }

    /// The media takes what is best.
    pub(super) fn use_media(&mut self, parts: &mut Parts) {
        self.stop_reading(parts, self.now_ms);
        if self.media_free_ms > self.now_ms {
            // It ends what it has begun, and then takes what is best at that time.
            return;
        }
        let now_ms = self.now_ms;
        let in_buffer = self.queue.waiting().iter().position(|queued| {
            let (from, to) = (queued.command.lbn, queued.command.end());
            let is_read = queued.command.operation.direction() == Direction::Read;
            is_read && queued.ready_ms <= now_ms && self.hit(from, to, now_ms).is_some()
        });
        if let Some(place) = in_buffer {
            // Another read has brought its sectors.
            let Queued { number, command, mut served, .. } = self.queue.take(place);
            let whole = parts.path.hold_whole_read;
            let end_ms = parts.path.bus.block(now_ms, command.sectors, whole);
            (served.media_end_ms, served.transfer_ms) = (now_ms, end_ms - now_ms);
            return self.end(parts, number, served, end_ms);
        }
        match self.best(parts) {
            Some(Task::Command(place)) => {
                let direction = self.queue.waiting()[place].command.operation.direction();
                match direction {
                    Direction::Read => {
                        let queued = self.queue.take(place);
                        self.read(parts, &queued);
                    }
                    Direction::Write => {
                        let buffer = &self.buffer;
                        let is_ready = |queued: &Queued| queued.is_ready(buffer, now_ms);
                        let merged = self.queue.take_merged(place, is_ready);
                        self.write(parts, &merged);
                    }
                }
            }
            Some(Task::Destage(destage)) => self.destage(parts, destage),
            None => {}
        }
    }

    /// The best that the media can do now, by its cost, and then by its arrival.
    fn best(&self, parts: &Parts) -> Option<Task> {
        let now_ms = self.now_ms;
        let cost = |direction, lbn, first: &Piece, data_ms| {
            parts.choice.cost(&parts.path, direction, (lbn, first), now_ms, data_ms)
        };
        let queued = self.queue.waiting().iter().enumerate();
        let ready = queued.filter(|(_, queued)| queued.is_ready(&self.buffer, now_ms));
        let commands = ready.map(|(place, Queued { command, first, data_ms, .. })| {
            let cost = cost(command.operation.direction(), command.lbn, first, *data_ms);
            (cost, command.arrival_ms, Task::Command(place))
        });
        let best = |one: &(f64, f64, Task), other: &(f64, f64, Task)| {
            one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1))
        };
        let command = commands.min_by(best);
        let demand_ms = if self.buffer.is_dirty() { self.demand_ms(parts, now_ms) } else { None };
        let mut destages: Vec<_> = Vec::new();
        if command.is_none() || demand_ms.is_some() {
            destages = self.buffer.destages(now_ms).collect();
        }
        let arrival_ms = demand_ms.unwrap_or(f64::INFINITY);
        let destages = destages.into_iter().map(|(since, destage)| {
            let first = parts.path.layout.piece(destage.first, destage.end);
            let cost = cost(Direction::Write, destage.first, &first, now_ms);
            (cost, since, destage)
        });
        let destage =
            destages.min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let destage = destage.map(|(cost, _, destage)| (cost, arrival_ms, Task::Destage(destage)));
        command.into_iter().chain(destage).min_by(best).map(|(.., task)| task)
    }

    /// Stops reading from a time on at which no command needs it.
    pub(super) fn stop_reading(&mut self, parts: &mut Parts, at_ms: f64) {
        let Some(reading) = self.reading.take() else { return };
        let stopped = reading.stop(at_ms, self.buffer.rules().read_ahead_stops_in_sector);
        parts.path.mechanism.rest_at(stopped.head);
        self.buffer.cut(reading.segment, stopped.end);
        self.media_free_ms = self.media_free_ms.max(stopped.free_ms);
    }

    /// Begins to read ahead from the end of a segment in which a read found its sectors.
    pub(super) fn read_ahead_from_buffer(
        &mut self,
        parts: &mut Parts,
        range: (u64, u64),
        segment: u64,
    ) {
        // What has ended is forgotten.
        self.stop_reading(parts, self.now_ms);
        let Some((_, end)) = self.buffer.hit(range.0) else { return };
        let mut reading = Reading::new(&parts.path, segment, end, self.processor_free_ms);
        let (_, ahead) = self.buffer.keep_read(Some(segment), range, 0, &parts.path.layout);
        if end < ahead {
            reading.read_ahead(&mut parts.path, ahead);
            let needed = self.buffer.needed(range.1).min(ahead);
            if end < needed {
                self.media_free_ms = reading.read_ms(needed);
            }
            self.reading = Some(reading);
        }
    }

    /// Reads the sectors of a command that the buffer does not have.
    fn read(&mut self, parts: &mut Parts, queued: &Queued) {
        let Queued { number, command, mut served, .. } = *queued;
        let (now_ms, from, to) = (self.now_ms, command.lbn, command.end());
        let found = self.buffer.hit(from);
        let first = found.map_or(from, |(_, end)| end);
        let mut reading = Reading::new(&parts.path, 0, first, now_ms);
        reading.read(&mut parts.path, to, &mut served);
        let media_end_ms = reading.end_ms();
        let slots_before = if found.is_some() { 0 } else { reading.slots_before() };
        let id = found.map(|(id, _)| id);
        let (segment, ahead) =
            self.buffer.keep_read(id, (from, to), slots_before, &parts.path.layout);
        let ramps = self.crossing(&reading, (from, first, to));
        let end_ms = parts.path.bus.stream(&ramps, parts.path.hold_whole_read);
        self.media_free_ms = media_end_ms;
        if let Some(segment) = segment {
            reading.segment = segment;
            reading.read_ahead(&mut parts.path, ahead);
            let needed = self.buffer.needed(to).min(reading.end());
            self.media_free_ms = reading.read_ms(needed);
            self.reading = Some(reading);
        }
        parts.choice.next_lbn = to;
        served.media_end_ms = media_end_ms;
        let end_ms = end_ms.max(media_end_ms);
        served.transfer_ms = end_ms - now_ms - served.seek_ms - served.rotation_ms;
        self.end(parts, number, served, end_ms);
    }

    /// When the sectors of a read can cross the bus: those up to `first` are in the buffer, the
    /// others are being read.
    fn crossing(&self, reading: &Reading, (from, first, to): (u64, u64, u64)) -> Vec<Ramp> {
        let rules = self.buffer.rules();
        let mut ramps = reading.ramps(first, to);
        let mut begin_ms = self.now_ms;
        if from < first {
            if !rules.partial_hit_transfers_at_once {
                begin_ms = reading.read_ms(to);
            }
            ramps.insert(0, Ramp::at(from, first - from, self.now_ms));
        }
        // The watermark: this many sectors are in the buffer before any crosses.
        let mut before = (rules.watermark_read * (to - from) as f64).ceil() as u64;
        for ramp in &ramps {
            if before > 0 {
                let within = before.min(u64::from(ramp.sectors));
                begin_ms = begin_ms.max(ramp.ms(within - 1));
                before -= within;
            }
        }
        ramps.iter().map(|ramp| ramp.not_before(begin_ms)).collect()
    }

    /// Writes the sectors of commands that follow one another. Each ends with its own last sector.
    fn write(&mut self, parts: &mut Parts, merged: &[Queued]) {
        let (Some(first), Some(last)) = (merged.first(), merged.last()) else { return };
        let (from, to) = (first.command.lbn, last.command.end());
        let ready_ms = |path: &Path, piece: &Piece, lbn| {
            let parts = merged.iter().map(|queued| self.part_ready_ms(path, queued, piece, lbn));
            parts.fold(self.now_ms, f64::max)
        };
        let mut passes = Passes::new(from, self.now_ms);
        let mut ends = Vec::new();
        while passes.lbn < to {
            let before = passes.lbn;
            passes.write(&mut parts.path, to, &ready_ms);
            for queued in merged {
                let end = queued.command.end();
                if before < end && end <= passes.lbn {
                    let end_ms = passes.end_of(&parts.path, before, end);
                    ends.push((queued.number, queued.served, end_ms, passes.served));
                }
            }
        }
        self.media_free_ms = passes.end_ms;
        parts.choice.next_lbn = to;
        self.queue.set_writing(&last.command, passes.end_ms);
        self.buffer.pass_through(from, to);
        for (number, mut served, end_ms, passed) in ends {
            served.seek_ms = passed.seek_ms;
            served.rotation_ms = passed.rotation_ms;
            served.media_end_ms = end_ms;
            served.transfer_ms = end_ms - self.now_ms - passed.seek_ms - passed.rotation_ms;
            self.end(parts, number, served, end_ms);
        }
    }

    /// From when on a piece that begins at `lbn` can be written without a pause, as far as the data
    /// of one command is concerned.
    fn part_ready_ms(&self, path: &Path, queued: &Queued, piece: &Piece, lbn: u64) -> f64 {
        let Queued { command, data_ms, .. } = queued;
        let first = command.lbn.max(lbn);
        let end = command.end().min(lbn + u64::from(piece.sectors));
        if first >= end {
            return self.now_ms;
        }
        let sector_ms = path.bus.sector_ms();
        let slots = path.layout.piece(lbn, first + 1).slots - 1;
        let from_ms = data_ms + (first - command.lbn) as f64 * sector_ms;
        let ready_ms = path.part_ready_ms(from_ms, slots, (end - first) as u32, piece);
        let part = self.buffer.rules().watermark_write * command.sectors as f64;
        ready_ms.max(data_ms + part * sector_ms)
    }

    /// Writes dirty sectors to the media.
    fn destage(&mut self, parts: &mut Parts, destage: Destage) {
        let mut passes = Passes::new(destage.first, self.now_ms);
        while passes.lbn < destage.end {
            passes.write(&mut parts.path, destage.end, &|_, _, _| self.now_ms);
        }
        self.buffer.begin(&destage);
        self.media_free_ms = passes.end_ms;
        self.destaging = Some((destage, passes.end_ms));
        parts.choice.next_lbn = destage.end;
    }
}

/// Sectors that are written, track by track.
struct Passes {
    /// The next one.
    lbn: u64,
    /// When those before it are on the media.
    end_ms: f64,
    /// Seeks and rotation so far.
    served: Served,
    /// Slots of the last piece, their time, and whether they passed in order.
    last: (u32, f64, bool),
}

impl Passes {
    fn new(lbn: u64, begin_ms: f64) -> Self {
        Self { lbn, end_ms: begin_ms, served: Served::default(), last: (0, 0.0, true) }
    }

    /// Writes the next piece, up to an LBN; `ready_ms` says from when on its data allows that.
    fn write(&mut self, path: &mut Path, to: u64, ready_ms: &impl Fn(&Path, &Piece, u64) -> f64) {
        let piece = path.layout.piece(self.lbn, to);
        let ready_ms = ready_ms(path, &piece, self.lbn);
        let pass = path.mechanism.pass(&piece, Direction::Write, self.end_ms, ready_ms);
        path.mechanism.move_to(&piece);
        self.served.seek_ms += pass.positioned_ms - self.end_ms;
        self.served.rotation_ms += pass.end_ms - pass.positioned_ms - pass.transfer_ms;
        let slot_ms = path.mechanism.turn_ms() / f64::from(piece.track_slots);
        self.last = (piece.slots, slot_ms, pass.last_slots == piece.slots);
        self.end_ms = pass.end_ms;
        self.lbn += u64::from(piece.sectors);
    }

    /// When the sectors of the last piece, which began at `first`, are on the media up to `end`.
    fn end_of(&self, path: &Path, first: u64, end: u64) -> f64 {
        let (slots, slot_ms, is_in_order) = self.last;
        let after = slots - path.layout.piece(first, end).slots;
        self.end_ms - if is_in_order { f64::from(after) * slot_ms } else { 0.0 }
    }
}
