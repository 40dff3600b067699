//! Flushes of the data devices: one serves all runs, spills and checkpoint writes that wait for it.
//!
//! Invariant: what a flush *covers* was completely written when the flush began. Later writes wait
//! for the next one.

use super::io::{Io, IoKind, RunId, SpillId};
use crate::broken::{self, Fault};
use crate::device::{DeviceId, Operation};

/// The waiters for a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushing {
    Run(RunId),
    Spill(SpillId),
    Checkpoint,
}

/// The waiters for a flush, and those that the present one covers.
#[derive(Default)]
pub(super) struct Flushes {
    /// Flush requests in flight, one for each device.
    in_flight: usize,
    /// Written, but not covered by the flush in flight.
    waiting: Vec<Flushing>,
    covered: Vec<Flushing>,
    /// When the last flush began.
    began_us: u64,
}

impl Flushes {
    /// Adds a waiter for the next flush, whose writes are complete.
    pub(super) fn wait(&mut self, who: Flushing) {
        debug_assert!(!self.waiting.contains(&who), "a waiter waits for one flush only");
        debug_assert!(!self.covered.contains(&who), "a waiter waits for one flush only");
        self.waiting.push(who);
    }

    /// Starts a flush of this many devices for all waiters, unless one is in flight.
    pub(super) fn pump(&mut self, devices: u16, now_us: u64, io: &mut Io) {
        if self.in_flight > 0 || self.waiting.is_empty() {
            return;
        }
        assert!(self.covered.is_empty(), "covered waiters continued when the flush ended");
        self.began_us = now_us;
        self.covered = std::mem::take(&mut self.waiting);
        let devices = if broken::is(Fault::FlushOfOneDevice) { 1 } else { devices };
        for device in 0..devices {
            io.submit(IoKind::Flush, None, DeviceId(device), Operation::Flush);
            self.in_flight += 1;
        }
    }

    /// When the last flush began, in microseconds.
    pub(super) fn began_us(&self) -> u64 {
        self.began_us
    }

    /// One device has flushed, or failed to. Returns the waiters that may continue: all that the
    /// flush covers, once it was the last device. After a failure the store accepts nothing any
    /// more.
    pub(super) fn device_done(&mut self, is_stable: bool) -> Vec<Flushing> {
        assert!(self.in_flight > 0, "a flush must begin before it ends");
        self.in_flight -= 1;
        if self.in_flight > 0 || !is_stable {
            return Vec::new();
        }
        if broken::is(Fault::FlushForLaterWrites) {
            self.covered.append(&mut self.waiting);
        }
        std::mem::take(&mut self.covered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flush_serves_all_who_waited_when_it_began_and_nobody_else() {
        let (mut flushes, mut io) = (Flushes::default(), Io::default());
        flushes.pump(2, 7, &mut io);
        assert!(io.outgoing().is_empty(), "there are no waiters");
        flushes.wait(Flushing::Run(RunId(1)));
        flushes.wait(Flushing::Checkpoint);
        flushes.pump(2, 7, &mut io);
        assert_eq!(io.outgoing().len(), 2, "one for each device");
        flushes.wait(Flushing::Spill(SpillId(1)));
        flushes.pump(2, 7, &mut io);
        assert_eq!(io.outgoing().len(), 2, "one flush at a time");
        assert_eq!(flushes.device_done(true), [], "the other device is not stable yet");
        assert_eq!(flushes.device_done(true), [Flushing::Run(RunId(1)), Flushing::Checkpoint]);
        flushes.pump(2, 7, &mut io);
        assert_eq!(io.outgoing().len(), 4, "late waiters get the next flush");
        flushes.device_done(true);
        assert_eq!(flushes.device_done(true), [Flushing::Spill(SpillId(1))]);
    }
}
