//! Loads that become the points of a curve.

use super::curve::{Access, Curve, Load, Order, Varies};
use super::load::Achieved;

/// Loads of one kind that differ in one respect, and the best that each achieved.
pub(super) struct Rows {
    kind: (Access, Order),
    varies: Varies,
    loads: Vec<(Load, Option<Achieved>)>,
}

impl Rows {
    /// Loads that differ in the size of requests, in bytes.
    pub(super) fn by_size(kind: (Access, Order), sizes: &[u64], requests_in_flight: u32) -> Self {
        let loads = sizes.iter().map(|bytes| (*bytes, requests_in_flight));
        Self::new(kind, Varies::RequestBytes, loads)
    }

    /// Loads that differ in how many requests are in flight.
    pub(super) fn by_depth(kind: (Access, Order), depths: &[u32], request_bytes: u64) -> Self {
        let loads = depths.iter().map(|depth| (request_bytes, *depth));
        Self::new(kind, Varies::RequestsInFlight, loads)
    }

    fn new(kind: (Access, Order), varies: Varies, loads: impl Iterator<Item = (u64, u32)>) -> Self {
        let (access, order) = kind;
        let load = |(request_bytes, requests_in_flight)| {
            (Load { access, order, request_bytes, requests_in_flight }, None)
        };
        Self { kind, varies, loads: loads.map(load).collect() }
    }

    /// How many loads there are.
    pub(super) fn len(&self) -> usize {
        self.loads.len()
    }

    /// The loads.
    pub(super) fn loads(&self) -> Vec<Load> {
        self.loads.iter().map(|load| load.0).collect()
    }

    /// Records what a load achieved; the best counts, because other users of a device only ever
    /// slow it down.
    pub(super) fn record(&mut self, index: usize, achieved: Achieved) {
        let best = &mut self.loads[index].1;
        if best.as_ref().is_none_or(|best| best.bytes_per_second < achieved.bytes_per_second) {
            *best = Some(achieved);
        }
    }

    /// The curve through all that was recorded.
    pub(super) fn curve(self) -> Curve {
        let rows = self.loads.iter().filter_map(|(load, best)| Some((load, best.as_ref()?)));
        let rows: Vec<(&Load, &Achieved)> = rows.collect();
        let column =
            |value: &dyn Fn(&Achieved) -> u64| rows.iter().map(|row| value(row.1)).collect();
        Curve {
            access: self.kind.0,
            order: self.kind.1,
            varies: self.varies,
            request_bytes: rows.iter().map(|row| row.0.request_bytes).collect(),
            requests_in_flight: rows.iter().map(|row| row.0.requests_in_flight).collect(),
            bytes_per_second: column(&|achieved| achieved.bytes_per_second),
            median_us: column(&|achieved| achieved.percentile_us(50)),
            p99_us: column(&|achieved| achieved.percentile_us(99)),
        }
    }
}
