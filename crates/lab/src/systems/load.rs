//! Callers that submit an operation when their last one has ended, and what they see.

use std::collections::BTreeMap;

use super::{System, Traffic};
use crate::problem::Problem;

/// A closed loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Callers; each has one operation under way.
    pub(crate) callers: usize,
    /// Operations that end before what is measured begins.
    pub(crate) warm_up: u64,
    /// Operations that are measured.
    pub(crate) measured: u64,
}

/// What the callers saw.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Operations in a second.
    pub(crate) per_second: f64,
    /// Mean time from when the system began with an operation to its end, in milliseconds.
    pub(crate) service_ms: f64,
    /// Mean time from when a caller submitted an operation to its end, in milliseconds.
    pub(crate) latency_ms: f64,
    /// Operations that were measured.
    pub(crate) operations: u64,
    /// Requests to the devices meanwhile.
    pub(crate) traffic: Traffic,
}

impl Seen {
    /// Requests to the devices for each operation.
    pub(crate) fn requests_per_operation(&self) -> f64 {
        self.traffic.requests() as f64 / self.operations as f64
    }
}

impl Load {
    /// Runs it; `next` gives the operations.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if the system rests before all operations have ended, or did
    /// something wrong.
    pub(crate) fn run<S: System>(
        &self,
        system: &mut S,
        mut next: impl FnMut() -> S::Operation,
    ) -> Result<Seen, Problem> {
        let (mut submitted_us, mut number) = (BTreeMap::new(), 0);
        let mut submit = |system: &mut S, submitted_us: &mut BTreeMap<u64, u64>| {
            submitted_us.insert(number, system.now_us());
            system.submit(number, next());
            number += 1;
        };
        for _ in 0..self.callers {
            submit(system, &mut submitted_us);
        }
        let (mut ended, mut finished) = (0, Vec::new());
        let (mut from_us, mut before) = (system.now_us(), system.traffic());
        let (mut latency_us, mut service_us) = (0, 0);
        while ended < self.warm_up + self.measured {
            let Some(us) = system.next_event_us() else {
                let reason = format!("nothing happens any more, after {ended} operations");
                return Err(Problem::Simulation(reason));
            };
            system.advance_to(us, &mut finished)?;
            for done in finished.drain(..) {
                let started_us = submitted_us.remove(&done.number).unwrap_or(us);
                ended += 1;
                if ended > self.warm_up {
                    latency_us += us - started_us;
                    service_us += us - done.begun_us;
                }
                if ended == self.warm_up {
                    (from_us, before) = (us, system.traffic());
                }
                submit(system, &mut submitted_us);
            }
        }
        let operations = ended - self.warm_up;
        let seconds = (system.now_us() - from_us) as f64 / 1e6;
        Ok(Seen {
            per_second: operations as f64 / seconds,
            service_ms: service_us as f64 / operations as f64 / 1e3,
            latency_ms: latency_us as f64 / operations as f64 / 1e3,
            operations,
            traffic: system.traffic().since(before),
        })
    }
}
