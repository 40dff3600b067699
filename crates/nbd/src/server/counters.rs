//! What a server has done: counters, without a lock.
//!
//! Each is recorded where it happens, in relaxed atomics. A snapshot is not of one moment, but no
//! counter in it ever decreases.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::request::Command;

/// How many powers of two a histogram has; the last is for everything longer.
const BUCKETS: usize = 32;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names of the protocol")]
pub enum Kind {
    Read,
    Write,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    BlockStatus,
}

impl Kind {
    /// All, in the order of [`Counters::requests`].
    pub const ALL: [Self; 7] = [
        Self::Read,
        Self::Write,
        Self::Flush,
        Self::Trim,
        Self::Cache,
        Self::WriteZeroes,
        Self::BlockStatus,
    ];

    pub(super) fn of(command: &Command) -> Self {
        match command {
            Command::Read { .. } => Self::Read,
            Command::Write { .. } => Self::Write,
            Command::Flush => Self::Flush,
            Command::Trim { .. } => Self::Trim,
            Command::Cache { .. } => Self::Cache,
            Command::WriteZeroes { .. } => Self::WriteZeroes,
            Command::BlockStatus { .. } => Self::BlockStatus,
        }
    }

    /// Its name, in small letters with underscores.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Trim => "trim",
            Self::Cache => "cache",
            Self::WriteZeroes => "write_zeroes",
            Self::BlockStatus => "block_status",
        }
    }
}

/// How long something took, by powers of two: element `n` counts what took less than 2^n
/// microseconds, but not less than half of that; the last element everything longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The counts.
    pub counts: [u64; BUCKETS],
    /// All times together, in microseconds.
    pub sum_us: u64,
}

/// What became of the requests of one kind. Those that the session refuses by itself, because they
/// do not fit the export, are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounters {
    /// How many are answered, be it that the client has gone meanwhile.
    pub answered: u64,
    /// How many of these with an error.
    pub failed: u64,
    /// Bytes of the ranges of those that succeeded.
    pub bytes: u64,
    /// From when a request had come completely until its answer was there to be sent.
    pub latency: Histogram,
}

/// What a server has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that were served.
    pub connections_accepted: u64,
    /// Connections that were closed at once, because there were too many.
    pub connections_refused: u64,
    /// Connections that the system could not give: too many descriptors or threads.
    pub connections_failed: u64,
    /// Connections that are open now.
    pub connections_open: u64,
    /// Connections that were closed because the handshake took too long.
    pub handshakes_late: u64,
    /// Connections on which TLS failed.
    pub tls_failures: u64,
    /// Connections on which the client broke the protocol.
    pub violations: u64,
    /// Bytes received, as they are within TLS.
    pub received_bytes: u64,
    /// Bytes sent, as they are within TLS.
    pub sent_bytes: u64,
    /// Requests that wait for a worker or are being performed now.
    pub requests_in_flight: u64,
    /// By kind, in the order of [`Kind::ALL`].
    pub requests: [RequestCounters; Kind::ALL.len()],
}

impl Counters {
    /// Those of one kind of request.
    #[must_use]
    pub fn of(&self, kind: Kind) -> &RequestCounters {
        &self.requests[kind as usize]
    }
}

#[derive(Default)]
struct RequestMeter {
    answered: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    latency: [AtomicU64; BUCKETS],
    latency_us: AtomicU64,
}

impl RequestMeter {
    fn read(&self) -> RequestCounters {
        RequestCounters {
            answered: self.answered.load(Relaxed),
            failed: self.failed.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            latency: Histogram {
                counts: std::array::from_fn(|at| self.latency[at].load(Relaxed)),
                sum_us: self.latency_us.load(Relaxed),
            },
        }
    }
}

/// Where the counters are recorded.
#[derive(Default)]
pub(super) struct Meters {
    pub(super) connections_accepted: AtomicU64,
    pub(super) connections_refused: AtomicU64,
    pub(super) connections_failed: AtomicU64,
    pub(super) connections_open: AtomicU64,
    pub(super) handshakes_late: AtomicU64,
    pub(super) tls_failures: AtomicU64,
    pub(super) violations: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) requests_in_flight: AtomicU64,
    requests: [RequestMeter; Kind::ALL.len()],
}

impl Meters {
    /// A request is answered.
    pub(super) fn answered(&self, kind: Kind, bytes: Option<u64>, took: Duration) {
        let meter = &self.requests[kind as usize];
        meter.answered.fetch_add(1, Relaxed);
        match bytes {
            Some(bytes) => meter.bytes.fetch_add(bytes, Relaxed),
            None => meter.failed.fetch_add(1, Relaxed),
        };
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        meter.latency[bucket(us)].fetch_add(1, Relaxed);
        meter.latency_us.fetch_add(us, Relaxed);
    }

    pub(super) fn read(&self) -> Counters {
        Counters {
            connections_accepted: self.connections_accepted.load(Relaxed),
            connections_refused: self.connections_refused.load(Relaxed),
            connections_failed: self.connections_failed.load(Relaxed),
            connections_open: self.connections_open.load(Relaxed),
            handshakes_late: self.handshakes_late.load(Relaxed),
            tls_failures: self.tls_failures.load(Relaxed),
            violations: self.violations.load(Relaxed),
            received_bytes: self.received_bytes.load(Relaxed),
            sent_bytes: self.sent_bytes.load(Relaxed),
            requests_in_flight: self.requests_in_flight.load(Relaxed),
            requests: std::array::from_fn(|at| self.requests[at].read()),
        }
    }
}

/// The smallest power of two that is above.
fn bucket(us: u64) -> usize {
    ((u64::BITS - us.leading_zeros()) as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_below_the_bound_of_its_bucket_and_no_lower_one() {
        for us in (0..5000).chain([u64::from(u32::MAX) / 4]) {
            let at = bucket(us);
            assert!(us < 1 << at && (at == 0 || us >= 1 << at >> 1), "{us} in {at}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_request_counts_for_its_kind_and_an_error_has_no_bytes() {
        let meters = Meters::default();
        meters.answered(Kind::Write, Some(512), Duration::from_micros(3));
        meters.answered(Kind::Write, None, Duration::from_micros(5));
        let counters = meters.read();
        let write = counters.of(Kind::Write);
        assert_eq!((write.answered, write.failed, write.bytes), (2, 1, 512));
        assert_eq!((write.latency.counts[2], write.latency.counts[3]), (1, 1));
        assert_eq!(write.latency.sum_us, 8);
        let others = Kind::ALL.iter().filter(|kind| **kind != Kind::Write);
        assert!(others.into_iter().all(|kind| *counters.of(*kind) == RequestCounters::default()));
        let in_order = Kind::ALL.iter().enumerate();
        assert!(in_order.into_iter().all(|(at, kind)| *kind as usize == at));
    }
}
