//! A drive that works on several commands at a time: its processor on one, the bus for others, the
//! media for one more, or for what is in the buffer.
//!
//! The processor takes the commands in the drive in the order of arrival, leaving out those that
//! wait for room in the buffer. One that the buffer can serve then needs the bus only; the others
//! wait for the media (`hold.rs`), which takes the best of them when it is free (`media.rs`).
//!
//! Everything that the drive does is an [`Act`] at a time. Which is next follows from the state
//! alone: [`Pipeline::next`] changes nothing.

mod media;

use std::collections::VecDeque;

use super::bus::Ramp;
use super::cache::{Buffer, Destage, Place};
use super::command::{Command, Operation, Served};
use super::description::DriveDescription;
use super::hold::{MediaQueue, Queued};
use super::mechanics::Direction;
use super::queue::Parts;
use super::reading::Reading;

/// What a drive does.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Dirty sectors are on the media.
    EndDestage(Destage),
    /// All that a flush waited for is on the media.
    EndFlush(usize),
    /// The processor takes a command.
    Process(usize, Verdict),
    /// The media takes a command or dirty sectors.
    UseMedia,
}

/// What becomes of a command that the processor takes.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// A read finds its sectors in this segment.
    Hit(u64),
    /// A write is accepted into the buffer.
    Accept(Place),
    /// It needs the media.
    Media,
    /// A flush waits for what is dirty now.
    Flush,
}

/// A flush that was processed.
#[derive(Clone, Copy, Debug)]
struct Flush {
    number: u64,
    arrival_ms: f64,
    /// Writes accepted before it.
    accepted: u64,
    served: Served,
}

/// The state of a drive that works on several commands at a time.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    buffer: Buffer,
    queue: MediaQueue,
    flushes: Vec<Flush>,
    reading: Option<Reading>,
    /// Dirty sectors that are being written to the media, and when that ends.
    destaging: Option<(Destage, f64)>,
    /// The time of the last act.
    now_ms: f64,
    processor_free_ms: f64,
    /// When the media is free, reading ahead apart.
    media_free_ms: f64,
    interrupt_ms: f64,
    /// Commands whose end is known, in the order in which it became known.
    ended: VecDeque<(u64, Served)>,
}

impl Pipeline {
    pub(super) fn new(description: &DriveDescription) -> Self {
        Self {
            buffer: Buffer::new(&description.cache),
            queue: MediaQueue::new(&description.queue),
            flushes: Vec::new(),
            reading: None,
            destaging: None,
            now_ms: 0.0,
            processor_free_ms: 0.0,
            media_free_ms: 0.0,
            interrupt_ms: description.host.completion_interrupt_ms,
            ended: VecDeque::new(),
        }
    }

    /// When the drive next does something.
    pub(super) fn next_ms(&self, parts: &Parts) -> Option<f64> {
        if self.ended.is_empty() { Some(self.next(parts)?.0) } else { Some(self.now_ms) }
    }

    /// Does everything up to a time or up to the first command whose end is known then.
    pub(super) fn serve_until(
        &mut self,
        parts: &mut Parts,
        limit_ms: f64,
    ) -> Option<(u64, Served)> {
        while self.ended.is_empty() {
            let (now_ms, act) = self.next(parts)?;
            if now_ms > limit_ms {
                return None;
            }
            self.now_ms = now_ms;
            parts.arrivals.forget(now_ms);
            parts.path.bus.forget(now_ms);
            match act {
                Act::EndDestage(destage) => {
                    self.destaging = None;
                    self.buffer.end(&destage);
                }
                Act::EndFlush(place) => self.end_flush(parts, place),
                Act::Process(place, verdict) => self.process(parts, place, verdict),
                Act::UseMedia => self.use_media(parts),
            }
        }
        self.ended.pop_front()
    }

    /// Drops the commands in the drive, and what is in the buffer.
    pub(super) fn forget(&mut self, parts: &mut Parts) {
        self.stop_reading(parts, self.now_ms.max(self.media_free_ms));
        self.buffer.clear();
        self.queue.clear();
        self.flushes.clear();
        self.ended.clear();
        self.destaging = None;
    }

    /// The next act, and its time.
    fn next(&self, parts: &Parts) -> Option<(f64, Act)> {
        let mut now_ms = self.now_ms;
        loop {
            if let Some(act) = self.act(parts, now_ms) {
                return Some((now_ms, act));
            }
            now_ms = self.next_change_ms(parts, now_ms)?;
        }
    }

    /// The first time after this one at which the drive may have something to do.
    fn next_change_ms(&self, parts: &Parts, now_ms: f64) -> Option<f64> {
        let mut next_ms = f64::INFINITY;
        let mut consider = |time_ms: Option<f64>| {
            if let Some(time_ms) = time_ms.filter(|time_ms| *time_ms > now_ms) {
                next_ms = next_ms.min(time_ms);
            }
        };
        consider(Some(self.processor_free_ms));
        consider(Some(self.media_free_ms));
        consider(self.destaging.map(|(_, end_ms)| end_ms));
        consider(parts.arrivals.next_entry_ms(now_ms, self.inside()));
        self.queue.waiting().iter().for_each(|queued| consider(Some(queued.ready_ms)));
        if self.buffer.is_dirty() {
            consider(self.buffer.next_ready_ms(now_ms));
            consider(self.reading.as_ref().map(Reading::end_ms));
        }
        next_ms.is_finite().then_some(next_ms)
    }

    /// Commands in the drive whose end is not known, those that were not processed apart.
    fn inside(&self) -> usize {
        self.queue.waiting().len() + self.flushes.len()
    }

    /// What the drive does at a time, if it does something.
    fn act(&self, parts: &Parts, now_ms: f64) -> Option<Act> {
        if let Some((destage, _)) = self.destaging.filter(|(_, end_ms)| *end_ms <= now_ms) {
            return Some(Act::EndDestage(destage));
        }
        let has_ended = |flush: &Flush| {
            let processed_ms = flush.served.start_ms + flush.served.overhead_ms;
            processed_ms <= now_ms && !self.buffer.is_dirty_of(flush.accepted)
        };
        if let Some(place) = self.flushes.iter().position(has_ended) {
            return Some(Act::EndFlush(place));
        }
        if self.processor_free_ms <= now_ms {
            let entered = 0..parts.arrivals.entered(now_ms, self.inside());
            let verdict = |place| {
                let verdict = self.verdict(parts.arrivals.get(place), now_ms)?;
                Some(Act::Process(place, verdict))
            };
            if let Some(act) = entered.into_iter().find_map(verdict) {
                return Some(act);
            }
        }
        self.needs_media(parts, now_ms).then_some(Act::UseMedia)
    }

    /// What becomes of a command if the processor takes it now; `None` if dirty sectors have to be
    /// on the media first.
    fn verdict(&self, command: &Command, now_ms: f64) -> Option<Verdict> {
        let (from, to) = (command.lbn, command.end());
        match command.operation {
            Operation::Flush => Some(Verdict::Flush),
            Operation::Write => match self.buffer.place(from, to) {
                Place::Waits => None,
                Place::Media => Some(Verdict::Media),
                place => Some(Verdict::Accept(place)),
            },
            Operation::Read | Operation::StableWrite if self.buffer.flushes_first() => None,
            Operation::StableWrite => Some(Verdict::Media),
            Operation::Read => {
                let hit = self.hit(from, to, now_ms);
                Some(hit.map_or(Verdict::Media, Verdict::Hit))
            }
        }
    }

    /// The segment that holds all sectors of a read, or that holds the first and into which the
    /// drive is reading the others. It does not go on reading for that if other commands wait for
    /// the media, or over dirty sectors.
    fn hit(&self, from: u64, to: u64, now_ms: f64) -> Option<u64> {
        let (segment, end) = self.buffer.hit(from)?;
        let reading = self.reading.as_ref().filter(|reading| reading.segment == segment);
        let Some(reading) = reading else { return (to <= end).then_some(segment) };
        if from + u64::from(self.buffer.rules().segment_sectors) < reading.passed(now_ms) {
            // It was overwritten.
            return None;
        }
        if reading.end_ms() <= now_ms {
            return (to <= end).then_some(segment);
        }
        let is_there = to <= end && reading.read_ms(to) <= now_ms.max(self.media_free_ms);
        let can_go_on = || !self.buffer.touches_dirty(from, to) && self.queue.waiting().is_empty();
        (is_there || can_go_on()).then_some(segment)
    }

    /// The processor takes a command.
    fn process(&mut self, parts: &mut Parts, place: usize, verdict: Verdict) {
        let (number, command) = parts.arrivals.take(place);
        let direction = command.operation.direction();
        let overhead_ms = match verdict {
            Verdict::Flush => parts.path.flush_overhead_ms(),
            Verdict::Media => parts.path.process_ms(direction, false),
            Verdict::Hit(_) | Verdict::Accept(_) => parts.path.process_ms(direction, true),
        };
        let served = Served { start_ms: self.now_ms, overhead_ms, ..Served::default() };
        self.processor_free_ms = self.now_ms + overhead_ms;
        let arrival_ms = command.arrival_ms;
        match verdict {
            Verdict::Flush => {
                let accepted = self.buffer.accepted();
                self.flushes.push(Flush { number, arrival_ms, accepted, served });
            }
            Verdict::Media => {
                let ready_ms = self.processor_free_ms;
                let first = parts.path.layout.piece(command.lbn, command.end());
                let data_ms = ready_ms;
                let mut queued = Queued { number, command, first, ready_ms, data_ms, served };
                if direction == Direction::Write {
                    let whole = parts.path.hold_whole_write;
                    let end_ms = parts.path.bus.block(ready_ms, command.sectors, whole);
                    queued.data_ms = end_ms - command.sectors as f64 * parts.path.bus.sector_ms();
                }
                self.queue.add(queued, parts.arrivals.depth);
            }
            Verdict::Hit(segment) => {
                let end_ms = self.read_hit(parts, &command, segment);
                self.end_hit(parts, number, served, end_ms);
            }
            Verdict::Accept(place) => {
                let end_ms = self.accept(parts, &command, place);
                self.end_hit(parts, number, served, end_ms);
            }
        }
    }

    /// A command that needs no media ends.
    fn end_hit(&mut self, parts: &mut Parts, number: u64, mut served: Served, end_ms: f64) {
        served.media_end_ms = self.processor_free_ms;
        served.transfer_ms = end_ms - self.processor_free_ms;
        self.end(parts, number, served, end_ms);
    }

    /// A command leaves the drive at a time, and the host knows it after its interrupt.
    fn end(&mut self, parts: &mut Parts, number: u64, mut served: Served, end_ms: f64) {
        served.completion_ms = end_ms + self.interrupt_ms;
        parts.arrivals.end(end_ms);
        self.ended.push_back((number, served));
    }

    fn end_flush(&mut self, parts: &mut Parts, place: usize) {
        let Flush { number, mut served, .. } = self.flushes.remove(place);
        served.media_end_ms = self.now_ms;
        self.end(parts, number, served, self.now_ms);
    }

    /// A write is accepted into the buffer; returns when its data is there.
    fn accept(&mut self, parts: &mut Parts, command: &Command, place: Place) -> f64 {
        let (from, to) = (command.lbn, command.end());
        let is_read_ahead =
            |found: &Reading| from < found.end() && self.buffer.is_kept_in(found.segment, from, to);
        let stops = self.buffer.rules().write_hit_stops_read_ahead;
        if stops || self.reading.as_ref().is_some_and(is_read_ahead) {
            self.stop_reading(parts, self.now_ms.max(self.media_free_ms));
        }
        let whole = parts.path.hold_whole_write;
        let end_ms = parts.path.bus.block(self.processor_free_ms, command.sectors, whole);
        self.buffer.accept(place, (from, to), end_ms);
        end_ms
    }

    /// A read takes its sectors from a segment; returns when they have crossed the bus.
    fn read_hit(&mut self, parts: &mut Parts, command: &Command, segment: u64) -> f64 {
        let begin_ms = self.processor_free_ms;
        let (from, to) = (command.lbn, command.end());
        let whole = parts.path.hold_whole_read;
        let layout = &parts.path.layout;
        let mut ramps = Vec::new();
        let is_under_way =
            |found: &&mut Reading| found.segment == segment && self.now_ms < found.end_ms();
        if let Some(reading) = self.reading.as_mut().filter(is_under_way) {
            let (_, ahead) = self.buffer.keep_read(Some(segment), (from, to), 0, layout);
            reading.read_ahead(&mut parts.path, ahead);
            ramps = reading.ramps(from, to);
            let needed = self.buffer.needed(to).min(reading.end());
            self.media_free_ms = self.media_free_ms.max(reading.read_ms(needed));
        } else {
            self.buffer.touch(segment);
            self.buffer.remember(to);
            let can_begin = self.buffer.rules().read_ahead_on_idle_hit;
            if can_begin && self.buffer.is_read(segment) && self.is_idle(self.now_ms) {
                self.read_ahead_from_buffer(parts, (from, to), segment);
            }
        }
        if ramps.iter().all(|ramp| ramp.last_ms <= begin_ms) {
            return parts.path.bus.block(begin_ms, command.sectors, whole);
        }
        let held = command.sectors - ramps.iter().map(|ramp| u64::from(ramp.sectors)).sum::<u64>();
        let mut all = Vec::new();
        if held > 0 {
            all.push(Ramp::at(from, held, begin_ms));
        }
        all.extend(ramps.iter().map(|ramp| ramp.not_before(begin_ms)));
        parts.path.bus.stream(&all, whole)
    }
}
