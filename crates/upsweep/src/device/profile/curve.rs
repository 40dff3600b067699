//! Curves: what a device does by the size of requests, or by how many are in flight.

use serde::{Deserialize, Serialize};

/// Per cent of the best rate that is as good as the best.
const GOOD_PERCENT: u64 = 90;

/// What requests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// They read.
    Read,
    /// They write, without waiting for stable media.
    Write,
    /// They write to stable media, as the log does.
    DurableWrite,
    /// Every second one writes, and the others read, as the sweep does.
    Mixed,
}

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Each behind the one before; if some read and some write, in a range for each.
    Sequential,
    /// To multiples of their length, at random.
    Random,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// What they do.
    pub access: Access,
    /// Where they go.
    pub order: Order,
    /// Length of each in bytes.
    pub request_bytes: u64,
    /// How many of them are in flight at a time.
    pub requests_in_flight: u32,
}

/// What varies along a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Varies {
    /// The length of requests.
    RequestBytes,
    /// How many are in flight.
    RequestsInFlight,
}

/// A curve: columns of equal length, one row for each load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// What requests do.
    pub access: Access,
    /// Where they go.
    pub order: Order,
    /// What varies.
    pub varies: Varies,
    /// Length of requests in bytes.
    pub request_bytes: Vec<u64>,
    /// Requests in flight at a time.
    pub requests_in_flight: Vec<u32>,
    /// Bytes read and written a second.
    pub bytes_per_second: Vec<u64>,
    /// Median time of a request, in microseconds.
    pub median_us: Vec<u64>,
    /// Time within which 99 % of the requests complete, in microseconds.
    pub p99_us: Vec<u64>,
}

impl Curve {
    /// The knee: the smallest value of what varies with which the rate is within 10 % of the best.
    /// `None` if there are no points.
    #[must_use]
    pub fn knee(&self) -> Option<u64> {
        self.reaching(self.best())
    }

    /// The smallest value of what varies with which the rate is at least 90 % of this one, in bytes
    /// per second; `None` if it never is.
    #[must_use]
    pub fn reaching(&self, bytes_per_second: u64) -> Option<u64> {
        let is_good = |rate: &u64| {
            u128::from(*rate) * 100 >= u128::from(bytes_per_second) * u128::from(GOOD_PERCENT)
        };
        let index = self.bytes_per_second.iter().position(is_good)?;
        match self.varies {
            Varies::RequestBytes => self.request_bytes.get(index).copied(),
            Varies::RequestsInFlight => self.requests_in_flight.get(index).copied().map(u64::from),
        }
    }

    /// The best rate, in bytes per second; 0 if there are no points.
    #[must_use]
    pub fn best(&self) -> u64 {
        self.bytes_per_second.iter().copied().max().unwrap_or(0)
    }

    /// Whether the size of requests varies.
    pub(super) fn is_by_size(&self) -> bool {
        self.varies == Varies::RequestBytes
    }

    /// Checks that all columns have as many rows.
    pub(super) fn check(&self) -> Result<(), String> {
        let lengths = [
            self.request_bytes.len(),
            self.requests_in_flight.len(),
            self.median_us.len(),
            self.p99_us.len(),
        ];
        let rows = self.bytes_per_second.len();
        if lengths.iter().all(|length| *length == rows) {
            return Ok(());
        }
        let (access, order) = (self.access, self.order);
        Err(format!(
            "the curve of {access:?}, {order:?}, has {rows} rates but {lengths:?} values in other \
             columns"
        ))
    }
}
