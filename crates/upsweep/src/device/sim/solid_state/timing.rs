//! A solid-state device as a device of a bank in virtual time.

use super::device::{Demand, SolidState};
use crate::device::random::SplitMix64;
use crate::device::sim::timing::Timing;

impl Timing for SolidState {
    fn arrive(
        &mut self,
        number: u64,
        demand: Option<Demand>,
        now_us: u64,
        _random: &mut SplitMix64,
    ) {
        let now_ns = now_us.saturating_mul(1000);
        match demand {
            Some(demand) => self.arrive(number, demand, now_ns),
            None => self.end_at_once(number, now_ns),
        }
    }

    fn next_us(&self) -> Option<u64> {
        self.next_ns().map(|ns| ns.div_ceil(1000))
    }

    fn advance(&mut self, now_us: u64, completed: &mut Vec<(u64, u64)>) {
        let mut ended = Vec::new();
        self.advance(now_us.saturating_mul(1000), &mut ended);
        completed.extend(ended.into_iter().map(|(number, ns)| (ns.div_ceil(1000), number)));
    }

    fn forget(&mut self, now_us: u64) {
        self.advance(now_us.saturating_mul(1000), &mut Vec::new());
        self.forget();
    }

    fn copy(&self, now_us: u64) -> Box<dyn Timing> {
        let mut copy = self.clone();
        Timing::forget(&mut copy, now_us);
        Box::new(copy)
    }
}
