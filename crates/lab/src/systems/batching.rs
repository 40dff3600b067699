//! A logger that gets the records that wait together, as one.

use std::collections::VecDeque;

use upsweep::layers::device::Token;

use super::loggers::Append;
use super::{Finished, Io, Model};

/// Gathers records while the logger writes those before them.
pub(crate) struct Batching<L> {
    /// The logger.
    pub(crate) log: L,
    batch_bytes: u64,
    waiting: VecDeque<(u64, Append)>,
    /// The records that the logger has, and when they began.
    under_way: Vec<u64>,
    begun_us: u64,
}

impl<L: Model<Operation = Append>> Batching<L> {
    /// Up to so many bytes together; a single record may have more.
    pub(crate) fn new(log: L, batch_bytes: u64) -> Self {
        let (waiting, under_way) = (VecDeque::new(), Vec::new());
        Self { log, batch_bytes, waiting, under_way, begun_us: 0 }
    }

    fn start(&mut self, io: &mut Io) {
        if !self.under_way.is_empty() {
            return;
        }
        let mut bytes = 0;
        while let Some((number, append)) = self.waiting.front().copied() {
            if !self.under_way.is_empty() && bytes + append.bytes > self.batch_bytes {
                break;
            }
            bytes += append.bytes;
            self.under_way.push(number);
            self.waiting.pop_front();
        }
        if !self.under_way.is_empty() {
            self.begun_us = io.now_us();
            self.log.begin(0, Append { bytes }, io);
        }
    }
}

impl<L: Model<Operation = Append>> Model for Batching<L> {
    type Operation = Append;

    fn begin(&mut self, number: u64, append: Append, io: &mut Io) {
        self.waiting.push_back((number, append));
        self.start(io);
    }

    fn ended(&mut self, token: Token, io: &mut Io) {
        // The logger finishes what it was given: all records under way.
        let before = io.finished.len();
        self.log.ended(token, io);
        if io.finished.len() > before {
            io.finished.truncate(before);
            for number in self.under_way.drain(..) {
                io.finish(Finished { number, begun_us: self.begun_us, found: None });
            }
        }
        self.start(io);
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::Load;
    use super::super::loggers::RawAppend;
    use super::super::{Bench, banks};
    use super::*;

    #[test]
    fn records_that_wait_are_written_together_and_each_ends_once() {
        let devices = banks::drives("dtla307030", 1, None, 1).expect("a drive");
        let logger = Batching::new(RawAppend::new(512, 1 << 30), 64 << 10);
        let load = Load { callers: 1000, warm_up: 1000, measured: 30_000 };
        let mut system = Bench::new(logger, devices, 0);
        let seen = load.run(&mut system, || Append { bytes: 100 }).expect("no write fails");
        // 655 fit into a batch, and the others of 1,000 wait for the next one.
        let per_write = seen.operations as f64 / seen.traffic.writes as f64;
        assert!((490.0..=656.0).contains(&per_write), "{per_write}");
        let turns_ms = 2.0 * 60e3 / 7200.0;
        assert!((0.9 * turns_ms..1.3 * turns_ms).contains(&seen.latency_ms), "{}", seen.latency_ms);
    }
}
