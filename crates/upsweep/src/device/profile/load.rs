//! Requests of one kind for a while: how many bytes a second, and how long each took.
//!
//! Invariant: only ranges that the caller named are read and written; writes destroy what is there.

use std::time::Duration;

use super::curve::{Access, Load, Order};
use crate::device::random::SplitMix64;
use crate::device::{
    Buffer, Class, Completion, DeviceError, DeviceId, Devices, Operation, Request, Token, WriteMode,
};

/// A load is given up after this many times the time that it should take.
const WAIT_TIMES: u32 = 20;

/// A range of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte, a multiple of 4096.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Range {
    /// Its two halves, in units of so many bytes.
    pub(super) fn halves(self, unit: u64) -> [Self; 2] {
        let half = self.bytes / 2 / unit * unit;
        [Self { bytes: half, ..self }, Self { offset: self.offset + half, bytes: half }]
    }
}

/// How long requests are made: until so much time has passed and the minimum has completed, or the
/// maximum was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) time: Duration,
    pub(super) requests_min: u64,
    pub(super) requests_max: u64,
}

impl Span {
    /// The same, but at most so many requests, or the minimum if that is more.
    pub(super) fn with_at_most(self, requests: u64) -> Self {
        let requests_max = requests.max(self.requests_min).min(self.requests_max);
        Self { requests_max, ..self }
    }
}

/// What the requests of a load achieved.
#[derive(Clone, Debug)]
pub(super) struct Achieved {
    pub(super) bytes_per_second: u64,
    /// Times of requests in microseconds, ascending.
    times_us: Vec<u64>,
}

impl Achieved {
    fn new(mut times_us: Vec<u64>, request_bytes: u64, time: Duration) -> Self {
        times_us.sort_unstable();
        let bytes = times_us.len() as u128 * u128::from(request_bytes);
        let bytes_per_second = (bytes * 1_000_000 / time.as_micros().max(1)) as u64;
        Self { bytes_per_second, times_us }
    }

    /// The time in microseconds within which this many per cent of requests completed.
    pub(super) fn percentile_us(&self, per_cent: usize) -> u64 {
        let last = self.times_us.len().saturating_sub(1);
        self.times_us.get(last * per_cent / 100).copied().unwrap_or(0)
    }
}

/// A load in a range, under way.
struct Stream {
    load: Load,
    /// Where it reads, and where it writes.
    ranges: [Range; 2],
    /// Requests in sequence so far, of reads and of writes.
    places: [u64; 2],
    submitted: u64,
    times_us: Vec<u64>,
}

impl Stream {
    fn new(load: Load, range: Range) -> Self {
        let is_divided = load.access == Access::Mixed && load.order == Order::Sequential;
        let ranges = if is_divided { range.halves(load.request_bytes) } else { [range; 2] };
        Self { load, ranges, places: [0; 2], submitted: 0, times_us: Vec::new() }
    }

    /// The next request.
    fn next(&mut self, buffer: Buffer, random: &mut SplitMix64) -> Operation {
        let Load { access, order, request_bytes, .. } = self.load;
        let writes = match access {
            Access::Read => false,
            Access::Write | Access::DurableWrite => true,
            Access::Mixed => self.submitted % 2 == 1,
        };
        self.submitted += 1;
        let (range, place) =
            (self.ranges[usize::from(writes)], &mut self.places[usize::from(writes)]);
        let count = range.bytes / request_bytes;
        let at = match order {
            Order::Random => random.below(count),
            Order::Sequential => *place % count,
        };
        *place += 1;
        let offset = range.offset + at * request_bytes;
        let durable = access == Access::DurableWrite;
        let mode = if durable { WriteMode::Stable } else { WriteMode::Cached };
        match writes {
            true => Operation::Write { offset, buffer, mode },
            false => Operation::Read { offset, buffer },
        }
    }

    /// Whether what it writes is not stable yet.
    fn leaves_cached(&self) -> bool {
        matches!(self.load.access, Access::Write | Access::Mixed)
    }

    /// Whether it has gone on long enough. A device may keep one load waiting for another.
    fn is_over(&self, span: Span, passed: Duration) -> bool {
        let is_late = passed >= span.time && self.times_us.len() as u64 >= span.requests_min;
        let waits = passed >= span.time.saturating_mul(WAIT_TIMES);
        is_late || waits || self.submitted >= span.requests_max
    }
}

/// A request that is made again and again.
struct Slot {
    stream: usize,
    /// `None` while the request is in flight.
    buffer: Option<Buffer>,
    submitted_at: Duration,
}

/// A device that is measured, with nothing else in flight on its bank.
pub(super) struct Bench<'a, Now> {
    pub(super) devices: &'a mut dyn Devices,
    pub(super) device: DeviceId,
    pub(super) random: SplitMix64,
    /// The time since any fixed moment.
    pub(super) now: Now,
}

impl<Now: Fn() -> Duration> Bench<'_, Now> {
    /// Makes the requests of a load in a range, of two requests or more; what they wrote is stable
    /// in the end, which takes part of the time.
    pub(super) fn run(
        &mut self,
        load: Load,
        range: Range,
        span: Span,
    ) -> Result<Achieved, DeviceError> {
        self.run_beside(&[(load, range)], span)
    }

    /// Reads where a load of reads in sequence begins: the way there is no part of it, and a short
    /// measurement would take it for that of its short requests.
    fn go_to(&mut self, (load, range): &(Load, Range)) -> Result<(), DeviceError> {
        if (load.access, load.order) == (Access::Read, Order::Sequential) {
            let buffer = Buffer::zeroed(4096);
            let operation = Operation::Read { offset: range.offset, buffer };
            crate::device::run_alone(self.devices, self.device, operation)?;
        }
        Ok(())
    }

    /// Makes the requests of several loads side by side until the first has gone on long enough;
    /// returns what that achieved.
    pub(super) fn run_beside(
        &mut self,
        loads: &[(Load, Range)],
        span: Span,
    ) -> Result<Achieved, DeviceError> {
        if loads.iter().any(|(load, range)| range.bytes < 2 * load.request_bytes) {
            return Err(DeviceError::InvalidRange);
        }
        let mut streams: Vec<Stream> =
            loads.iter().map(|(load, range)| Stream::new(*load, *range)).collect();
        let mut slots = self.slots(&streams);
        loads.iter().try_for_each(|load| self.go_to(load))?;
        let begin = (self.now)();
        let (mut end, mut in_flight, mut failure) = (begin, 0, None);
        let mut completions: Vec<Completion> = Vec::new();
        loop {
            for (token, slot) in slots.iter_mut().enumerate() {
                if failure.is_some() || streams[0].is_over(span, end - begin) {
                    break;
                }
                let Some(buffer) = slot.buffer.take() else { continue };
                let operation = streams[slot.stream].next(buffer, &mut self.random);
                let (token, hint) = (Token(token as u64), Class::Upkeep.into());
                slot.submitted_at = (self.now)();
                self.devices.submit(Request { device: self.device, token, hint, operation });
                in_flight += 1;
            }
            if in_flight == 0 {
                break;
            }
            self.devices.wait(&mut completions);
            end = (self.now)();
            for done in completions.drain(..) {
                let slot = &mut slots[done.token.0 as usize];
                let took = end - slot.submitted_at;
                streams[slot.stream].times_us.push(took.as_micros() as u64);
                slot.buffer = done.buffer;
                failure = failure.or(done.result.err());
                in_flight -= 1;
            }
        }
        if failure.is_none() && streams[0].leaves_cached() {
            // A write counts when it is stable: until then it may only be in a cache.
            self.flush()?;
            end = (self.now)();
        }
        let first = streams.swap_remove(0);
        let achieved = Achieved::new(first.times_us, first.load.request_bytes, end - begin);
        failure.map_or(Ok(achieved), Err)
    }

    /// The slots of all streams, with random bytes to write, which no device can compress.
    fn slots(&mut self, streams: &[Stream]) -> Vec<Slot> {
        let mut slots = Vec::new();
        for (stream, of) in streams.iter().enumerate() {
            for _ in 0..of.load.requests_in_flight {
                let mut buffer = Buffer::zeroed(of.load.request_bytes as usize);
                if of.load.access != Access::Read {
                    self.random.fill(&mut buffer);
                }
                let buffer = Some(buffer);
                slots.push(Slot { stream, buffer, submitted_at: Duration::ZERO });
            }
        }
        slots
    }

    /// Writes random bytes, without waiting for stable media.
    pub(super) fn write(&mut self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let mut buffer = Buffer::zeroed(bytes as usize);
        self.random.fill(&mut buffer);
        let operation = Operation::Write { offset, buffer, mode: WriteMode::Cached };
        crate::device::run_alone(self.devices, self.device, operation).map(drop)
    }

    /// Makes stable what was written; returns how long that took.
    pub(super) fn flush(&mut self) -> Result<Duration, DeviceError> {
        let begin = (self.now)();
        crate::device::run_alone(self.devices, self.device, Operation::Flush)?;
        Ok((self.now)() - begin)
    }
}
