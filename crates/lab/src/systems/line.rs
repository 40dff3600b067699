//! What tests of callers use as a system: a line of operations that each take a known time.

use std::collections::VecDeque;

use super::{Finished, System, Traffic};
use crate::problem::Problem;

/// Performs operations one after another; each takes as many microseconds as it says.
#[derive(Default)]
pub(super) struct Line {
    now_us: u64,
    /// Operations that have not ended: when each ends, and its number.
    waiting: VecDeque<(u64, u64)>,
    /// When each operation so far begins, and how long it takes.
    pub(super) begun: Vec<(u64, u64)>,
}

impl System for Line {
    type Operation = u64;

    fn now_us(&self) -> u64 {
        self.now_us
    }

    fn submit(&mut self, number: u64, us: u64) {
        let free_us = self.waiting.back().map_or(self.now_us, |(end_us, _)| *end_us);
        self.waiting.push_back((free_us + us, number));
        self.begun.push((free_us, us));
    }

    fn next_event_us(&self) -> Option<u64> {
        self.waiting.front().map(|(end_us, _)| *end_us)
    }

    fn advance_to(&mut self, us: u64, finished: &mut Vec<Finished>) -> Result<(), Problem> {
        self.now_us = us;
        while let Some((_, number)) = self.waiting.pop_front_if(|(end_us, _)| *end_us <= us) {
            finished.push(Finished { number, begun_us: us, found: None });
        }
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}
