//! What a measurement consists of: sizes, numbers of requests in flight, and times.

use std::time::Duration;

use super::Effort;
use super::curve::{Access, Order};
use super::load::Span;
use super::rows::Rows;

/// Requests in flight while their size varies: as many as the sweep has.
const PIPELINE: u32 = 4;
/// How often each load is made.
pub(super) const ROUNDS: usize = 2;
/// Batches in flight on a log device.
pub(super) const LOG_PIPELINE: u32 = 2;
/// Bytes of a request that goes anywhere, while the number in flight varies: a block.
const BLOCK_BYTES: u64 = 16 << 10;
/// All that requests do where nothing has to be durable, in every order.
const KINDS: [(Access, Order); 6] = [
    (Access::Read, Order::Sequential),
    (Access::Write, Order::Sequential),
    (Access::Mixed, Order::Sequential),
    (Access::Read, Order::Random),
    (Access::Write, Order::Random),
    (Access::Mixed, Order::Random),
];

/// Sizes, numbers and times of an [`Effort`] on a device that rotates or does not.
pub(super) struct Plan {
    is_full: bool,
    rotates: bool,
    /// How long; nothing is gained by going over a short range again and again.
    pub(super) span: Span,
    /// The same for requests whose times count, one at a time.
    pub(super) small: Span,
    /// Bytes that are written first, at most.
    pub(super) fill_bytes_max: u64,
}

/// Powers of two.
fn doubling(from: u64, to: u64) -> Vec<u64> {
    std::iter::successors(Some(from), |size| Some(size * 2))
        .take_while(|size| *size <= to)
        .collect()
}

impl Plan {
    pub(super) fn new(effort: Effort, rotates: bool) -> Self {
        let is_full = effort == Effort::Full;
        let (millis, requests_min, requests_max) = match (is_full, rotates) {
            // A rotating drive makes some hundred random requests a second.
            (true, true) => (800, 32, 1 << 14),
            (true, false) => (200, 16, 1 << 17),
            (false, _) => (50, 8, 1 << 15),
        };
        let span = |millis, requests_min, requests_max| Span {
            time: Duration::from_millis(millis),
            requests_min,
            requests_max,
        };
        Self {
            is_full,
            rotates,
            span: span(millis, requests_min, requests_max),
            small: if is_full { span(500, 16, 1024) } else { span(200, 16, 64) },
            fill_bytes_max: if is_full { 1 << 30 } else { 256 << 20 },
        }
    }

    /// The sizes of requests, in bytes.
    fn sizes(&self) -> Vec<u64> {
        match (self.is_full, self.rotates) {
            (true, _) => doubling(4 << 10, 4 << 20),
            (false, true) => vec![64 << 10, 256 << 10, 1 << 20],
            (false, false) => doubling(64 << 10, 2 << 20),
        }
    }

    /// The numbers of requests in flight.
    fn depths(&self) -> Vec<u32> {
        match (self.is_full, self.rotates) {
            (true, _) => vec![1, 2, 4, 8, 16, 32, 64],
            (false, true) => vec![1, 4],
            (false, false) => vec![1, 4, 16, 64],
        }
    }

    /// Rates by size.
    pub(super) fn by_size(&self, writes: bool) -> Vec<Rows> {
        let is_wanted = |(access, order): &(Access, Order)| {
            (writes || *access == Access::Read) && (self.is_full || *order == Order::Sequential)
        };
        let kinds = KINDS.into_iter().filter(is_wanted);
        kinds.map(|kind| Rows::by_size(kind, &self.sizes(), PIPELINE)).collect()
    }

    /// Rates by requests in flight; those of sequential requests have so many bytes.
    pub(super) fn by_depth(&self, writes: bool, sequential_bytes: u64) -> Vec<Rows> {
        let is_wanted = |(access, order): &(Access, Order)| {
            let is_random_read = (*access, *order) == (Access::Read, Order::Random);
            is_random_read || (self.is_full && (writes || *access == Access::Read))
        };
        let rows = |kind: (Access, Order)| {
            let is_sequential = kind.1 == Order::Sequential;
            let bytes = if is_sequential { sequential_bytes } else { BLOCK_BYTES };
            Rows::by_depth(kind, &self.depths(), bytes)
        };
        KINDS.into_iter().filter(is_wanted).map(rows).collect()
    }

    /// Rates of durable writes by size, as the log makes them.
    pub(super) fn durable(&self) -> Vec<Rows> {
        let sizes = match (self.is_full, self.rotates) {
            (true, _) => doubling(4 << 10, 4 << 20),
            (false, true) => vec![4 << 10, 128 << 10],
            (false, false) => doubling(4 << 10, 512 << 10),
        };
        vec![Rows::by_size((Access::DurableWrite, Order::Sequential), &sizes, LOG_PIPELINE)]
    }

    /// What is measured in a region.
    pub(super) fn region(&self, writes: bool, streaming_bytes: u64) -> Vec<Rows> {
        let kinds = [(Access::Read, Order::Sequential), (Access::Write, Order::Sequential)];
        let kinds = kinds.into_iter().filter(|kind| writes || kind.0 == Access::Read);
        let streams = kinds.map(|kind| Rows::by_size(kind, &[streaming_bytes], PIPELINE));
        streams.chain(if writes { self.durable() } else { Vec::new() }).collect()
    }

    /// Whether it looks for what no setting needs.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Regions of a device.
    pub(super) fn regions(&self) -> u64 {
        if self.is_full && self.rotates { 8 } else { 0 }
    }
}
