//! Turns of scans: their requests, in the order in which they are submitted.
//!
//! All scans of a rotating drive together have as many requests in flight as one of them has: one
//! head serves them, so more would only make queries wait. Each scan has made its next requests,
//! and they are submitted in this order as others complete. On other devices all are submitted at
//! once.
//!
//! Invariant: if requests wait for a device, one of a scan is in flight there.

use std::collections::{BTreeMap, VecDeque};

use super::ahead::ScanId;
use crate::device::{DeviceId, Request, Token};
use crate::engine::base::Base;

/// Requests of scans that wait for their turn, and how many are in flight.
#[derive(Default)]
pub(super) struct Turns {
    waiting: VecDeque<Waiting>,
    in_flight: BTreeMap<DeviceId, usize>,
    /// How many may be in flight on each device, if that is limited.
    in_flight_max: Option<usize>,
}

/// A request that waits for its turn.
pub(super) struct Waiting {
    /// The scan that has made it.
    pub(super) scan: ScanId,
    /// Bytes that it reads.
    pub(super) bytes: usize,
    pub(super) request: Request,
}

impl Turns {
    /// A scan has made a request: it is submitted in its turn.
    pub(super) fn wait(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// From now on so many requests may be in flight on each device; `None` for any number.
    pub(super) fn limit(&mut self, base: &mut Base, in_flight_max: Option<usize>) {
        self.in_flight_max = in_flight_max;
        self.submit(base);
    }

    /// Submits what may be in flight.
    pub(super) fn submit(&mut self, base: &mut Base) {
        let in_flight_max = self.in_flight_max.unwrap_or(usize::MAX).max(1);
        for next in std::mem::take(&mut self.waiting) {
            let in_flight = self.in_flight.entry(next.request.device).or_default();
            if *in_flight < in_flight_max {
                *in_flight += 1;
                base.metrics.scan_read_bytes_total.add(next.bytes as u64);
                base.io.send(next.request);
            } else {
                self.waiting.push_back(next);
            }
        }
    }

    /// A request that was submitted to this device has completed.
    pub(super) fn completed(&mut self, base: &mut Base, device: DeviceId) {
        *self.in_flight.get_mut(&device).expect("one is in flight there") -= 1;
        self.submit(base);
    }

    /// Withdraws the requests of a scan that wait.
    pub(super) fn withdraw(&mut self, base: &mut Base, id: ScanId) -> Vec<Token> {
        let all = std::mem::take(&mut self.waiting).into_iter();
        let (of_scan, others): (Vec<_>, Vec<_>) = all.partition(|waiting| waiting.scan == id);
        self.waiting = others.into();
        let withdraw = |waiting: Waiting| {
            base.io.completed(waiting.request.token);
            waiting.request.token
        };
        of_scan.into_iter().map(withdraw).collect()
    }
}
