//! How the devices of a bank in virtual time take their time.

use std::collections::BTreeSet;
use std::fmt::Debug;

use super::memory::LatencyModel;
use super::solid_state::Demand;
use crate::device::random::SplitMix64;
use crate::device::{Operation, WriteMode};

/// What a valid operation asks of a device; `None` for an allocation, which does not move anything.
pub(super) fn demand_of(operation: &Operation) -> Option<Demand> {
    Some(match operation {
        Operation::Read { offset, buffer } => {
            Demand::Read { offset: *offset, bytes: buffer.len() as u64 }
        }
        Operation::Write { offset, buffer, mode } => Demand::Write {
            offset: *offset,
            bytes: buffer.len() as u64,
            stable: *mode == WriteMode::Stable,
        },
        Operation::Flush => Demand::Flush,
        Operation::Discard { offset, bytes } => Demand::Discard { offset: *offset, bytes: *bytes },
        Operation::Allocate { .. } => return None,
    })
}

/// How one device takes its time. Times are in microseconds of virtual time.
///
/// Invariants: times of calls never go back; what has happened up to a time does not depend on how
/// often the bank asked before; every request completes once, unless it is forgotten.
pub(super) trait Timing: Debug + Send {
    /// A request arrives. `number` is higher than that of any earlier request; it comes back with
    /// the completion. `demand` is `None` for an allocation. `random` decides what is left to
    /// chance.
    fn arrive(&mut self, number: u64, demand: Option<Demand>, now_us: u64, random: &mut SplitMix64);

    /// A time before which nothing completes; `None` if nothing is in flight. Moving there and
    /// calling [`Timing::advance`] makes progress.
    fn next_us(&self) -> Option<u64>;

    /// Moves to `now_us`, and appends the time and number of every request that has completed.
    fn advance(&mut self, now_us: u64, completed: &mut Vec<(u64, u64)>);

    /// Drops all requests in flight.
    fn forget(&mut self, now_us: u64);

    /// A copy with nothing in flight.
    fn copy(&self, now_us: u64) -> Box<dyn Timing>;
}

/// Requests whose time of completion is known, by that time and their number.
#[derive(Clone, Debug, Default)]
pub(super) struct Scheduled(BTreeSet<(u64, u64)>);

impl Scheduled {
    /// The request will complete at `us`.
    pub(super) fn add(&mut self, us: u64, number: u64) {
        self.0.insert((us, number));
    }

    /// When the first one completes.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.0.first().map(|(us, _)| *us)
    }

    /// Moves those that complete up to `now_us` to `completed`.
    pub(super) fn take_due(&mut self, now_us: u64, completed: &mut Vec<(u64, u64)>) {
        while let Some(first) = self.0.pop_first() {
            if first.0 > now_us {
                self.0.insert(first);
                return;
            }
            completed.push(first);
        }
    }

    /// Drops all.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// A device with a [`LatencyModel`].
#[derive(Debug)]
pub(super) struct Latency {
    model: LatencyModel,
    /// When the transfers that have arrived so far end.
    idle_from_us: u64,
    scheduled: Scheduled,
}

impl Latency {
    /// An idle device.
    pub(super) fn new(model: LatencyModel) -> Self {
        Self { model, idle_from_us: 0, scheduled: Scheduled::default() }
    }
}

impl Timing for Latency {
    fn arrive(
        &mut self,
        number: u64,
        demand: Option<Demand>,
        now_us: u64,
        random: &mut SplitMix64,
    ) {
        let LatencyModel { base_us, bytes_per_us, jitter_us } = self.model;
        let jitter_us = if jitter_us == 0 { 0 } else { random.below(jitter_us + 1) };
        let bytes = match demand {
            Some(Demand::Read { bytes, .. } | Demand::Write { bytes, .. }) => bytes,
            Some(Demand::Flush | Demand::Discard { .. }) | None => 0,
        };
        self.idle_from_us = self.idle_from_us.max(now_us) + bytes / bytes_per_us.max(1);
        self.scheduled.add(self.idle_from_us + base_us + jitter_us, number);
    }

    fn next_us(&self) -> Option<u64> {
        self.scheduled.next_us()
    }

    fn advance(&mut self, now_us: u64, completed: &mut Vec<(u64, u64)>) {
        self.scheduled.take_due(now_us, completed);
    }

    fn forget(&mut self, now_us: u64) {
        self.scheduled.clear();
        self.idle_from_us = now_us;
    }

    fn copy(&self, now_us: u64) -> Box<dyn Timing> {
        let mut copy = Self::new(self.model);
        copy.idle_from_us = self.idle_from_us;
        copy.forget(now_us);
        Box::new(copy)
    }
}
