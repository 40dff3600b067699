//! A drive as a device of a bank in virtual time.

use super::command::Command;
use super::mechanics::Direction;
use super::queue::Drive;
use crate::device::random::SplitMix64;
use crate::device::sim::timing::{Demand, Scheduled, Timing};

/// A [`Drive`] whose requests come from a bank. The drive decides what to do next once the time has
/// passed at which it has to, so that it knows all the commands that have arrived by then.
///
/// Every write ends on the media, so a flush takes no time.
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

    /// Lets the drive decide everything that it has to before this time.
    fn catch_up(&mut self, now_us: u64) {
        let is_past = |ms: f64| ms * 1e3 < now_us as f64;
        while self.drive.next_ms().is_some_and(is_past) {
            let Some((number, served)) = self.drive.serve_next() else { return };
            self.scheduled.add((served.completion_ms * 1e3).ceil() as u64, number);
        }
    }
}

impl Timing for Rotating {
    fn arrive(&mut self, number: u64, demand: Demand, now_us: u64, _random: &mut SplitMix64) {
        let (direction, offset, bytes) = match demand {
            Demand::Read { offset, bytes } => (Direction::Read, offset, bytes),
            Demand::Write { offset, bytes, .. } => (Direction::Write, offset, bytes),
            Demand::Flush | Demand::Discard { .. } | Demand::Nothing => {
                return self.scheduled.add(now_us, number);
            }
        };
        self.catch_up(now_us);
        let sector_bytes = u64::from(self.drive.sector_bytes());
        let (lbn, sectors) = (offset / sector_bytes, bytes / sector_bytes);
        self.drive
            .offer(number, Command { arrival_ms: now_us as f64 / 1e3, direction, lbn, sectors });
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
