//! A drive as a device of a bank in virtual time.

use super::command::{Command, Operation};
use super::queue::Drive;
use crate::device::random::SplitMix64;
use crate::device::sim::solid_state::Demand;
use crate::device::sim::timing::{Scheduled, Timing};

/// A [`Drive`] whose requests come from a bank. The drive decides what to do next once the time has
/// passed at which it has to, so that it knows all the commands that have arrived by then.
#[derive(Debug)]
pub(in crate::device::sim) struct Rotating {
    drive: Drive,
    scheduled: Scheduled,
}

impl Rotating {
    /// A drive that has nothing to do.
    pub(in crate::device::sim) fn new(drive: Drive) -> Self {
        Self { drive, scheduled: Scheduled::default() }
    }

    /// Lets the drive do everything that it begins before this time.
    fn catch_up(&mut self, now_us: u64) {
        let is_past = |ms: &f64| ms * 1e3 < now_us as f64;
        while let Some(ms) = self.drive.next_ms().filter(is_past) {
            if let Some((number, served)) = self.drive.serve_until(ms) {
                let end_us = (served.completion_ms * 1e3).ceil() as u64;
                // One that ends at the very moment of the decision is known only after it.
                self.scheduled.add(end_us.max((ms * 1e3).floor() as u64 + 1), number);
            }
        }
    }
}

impl Timing for Rotating {
    fn arrive(
        &mut self,
        number: u64,
        demand: Option<Demand>,
        now_us: u64,
        _random: &mut SplitMix64,
    ) {
        let (operation, offset, bytes) = match demand {
            Some(Demand::Read { offset, bytes }) => (Operation::Read, offset, bytes),
            Some(Demand::Write { offset, bytes, stable: false }) => {
                (Operation::Write, offset, bytes)
            }
            Some(Demand::Write { offset, bytes, stable: true }) => {
                (Operation::StableWrite, offset, bytes)
            }
            Some(Demand::Flush) => (Operation::Flush, 0, 0),
            Some(Demand::Discard { .. }) | None => return self.scheduled.add(now_us, number),
        };
        self.catch_up(now_us);
        let sector_bytes = u64::from(self.drive.sector_bytes());
        let (lbn, sectors) = (offset / sector_bytes, bytes / sector_bytes);
        let arrival_ms = now_us as f64 / 1e3;
        self.drive.offer(number, Command { arrival_ms, operation, lbn, sectors });
    }

    fn next_us(&self) -> Option<u64> {
        let decision = self.drive.next_ms().map(|ms| (ms * 1e3).floor() as u64 + 1);
        [decision, self.scheduled.next_us()].into_iter().flatten().min()
    }

    fn advance(&mut self, now_us: u64, completed: &mut Vec<(u64, u64)>) {
        self.catch_up(now_us);
        self.scheduled.take_due(now_us, completed);
    }

    fn forget(&mut self, now_us: u64) {
        self.catch_up(now_us);
        self.drive.forget();
        self.scheduled.clear();
    }

    fn copy(&self, now_us: u64) -> Box<dyn Timing> {
        let mut copy = Self::new(self.drive.clone());
        copy.forget(now_us);
        Box::new(copy)
    }
}
