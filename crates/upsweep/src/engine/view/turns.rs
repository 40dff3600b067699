//! Turns of scans: their requests, in the order in which they are submitted.
//!
//! All scans of a rotating drive together have as many requests in flight as one of them has: one
//! head serves them, so more would only make queries wait. Each scan has made its next requests,
//! and they are submitted in this order as others complete. On other devices all are submitted at
//! once.
//!
//! Scans and queries take turns, too. When no request of a scan is in flight any more, queries have
//! the drive as long as one of them waits for a read or another begins within [`GAP_US`], but no
//! longer than the last request of a scan was under way that did not just follow another. So reads
//! that follow each other do not each wait for a request of a scan, and the head seeks less often.
//! If queries would have used the drive for longer several times in a row, the next request of a
//! scan is long. (Anticipatory scheduling: Iyer and Druschel, SOSP 2001.)
//!
//! Invariant: if requests wait for a device, one of a scan is in flight there, or queries have it
//! until a certain time.

use std::collections::{BTreeMap, VecDeque};

use super::ahead::ScanId;
use crate::device::{DeviceId, Request, Token};
use crate::engine::base::Base;
use crate::engine::foreground::{ForegroundRequests, RecentRequests};

/// For how long queries keep a drive after a read, in microseconds: enough for a caller to process
/// what it has read and to read again, and short beside a seek.
const GAP_US: u64 = 500;
/// So many turns in a row that queries would have used for longer: one is often but a transaction
/// that reads several pages.
const CONTENDED_TURNS: u8 = 2;

/// Requests of scans that wait for their turn, and how many are in flight.
#[derive(Default)]
pub(super) struct Turns {
    waiting: VecDeque<Waiting>,
    devices: BTreeMap<DeviceId, Device>,
    /// How many may be in flight on each device, if that is limited.
    in_flight_max: Option<usize>,
    queries: RecentRequests,
    /// How many turns of queries in a row ended although they would have used the drive, counted up
    /// to [`CONTENDED_TURNS`].
    contended_turns: u8,
    /// When the turn of queries ends for which requests wait, in microseconds.
    until_us: Option<u64>,
}

/// A request that waits for its turn.
pub(super) struct Waiting {
    /// The scan that has made it.
    pub(super) scan: ScanId,
    /// Bytes that it reads.
    pub(super) bytes: usize,
    /// Whether the drive had nothing else to do since the last request of the scan.
    pub(super) follows: bool,
    pub(super) request: Request,
}

/// Requests of scans to a device.
#[derive(Default)]
struct Device {
    in_flight: usize,
    /// When the last one was submitted, in microseconds, and whether it follows another.
    submitted_us: u64,
    follows: bool,
    /// For how long the last one was under way that does not follow another.
    took_us: u64,
    /// Whether one has completed since the last pump, so that a turn of queries may begin.
    has_completed: bool,
    /// When that turn ends at the latest, in microseconds.
    until_us: u64,
}

impl Device {
    fn submit(&mut self, base: &mut Base, waiting: Waiting) {
        self.in_flight += 1;
        (self.submitted_us, self.follows) = (base.now_us, waiting.follows);
        base.metrics.scan_read_bytes_total.add(waiting.bytes as u64);
        base.io.send(waiting.request);
    }
}

impl Turns {
    /// A scan has made a request: where scans take turns it is submitted in its turn, at the next
    /// pump at the earliest, and at once elsewhere.
    pub(super) fn wait(&mut self, base: &mut Base, waiting: Waiting) {
        if self.in_flight_max.is_some() {
            self.waiting.push_back(waiting);
        } else {
            let device = self.devices.entry(waiting.request.device).or_default();
            device.submit(base, waiting);
        }
    }

    /// From now on so many requests may be in flight on each device; `None` for any number.
    pub(super) fn limit(&mut self, in_flight_max: Option<usize>) {
        self.in_flight_max = in_flight_max;
    }

    /// Submits what may be in flight where scans take turns.
    pub(super) fn pump(&mut self, base: &mut Base, queries: ForegroundRequests) {
        let now_us = base.now_us;
        let queries_us = self.queries.look(queries, now_us, GAP_US);
        let queries_us = queries_us.unwrap_or(0);
        let in_flight_max = self.in_flight_max.unwrap_or(usize::MAX).max(1);
        self.until_us = None;
        for device in self.devices.values_mut() {
            if std::mem::take(&mut device.has_completed) {
                if !device.follows {
                    device.took_us = now_us - device.submitted_us;
                }
                device.until_us = now_us + device.took_us;
            }
        }
        for next in std::mem::take(&mut self.waiting) {
            let device = self.devices.entry(next.request.device).or_default();
            let until_us = device.until_us.min(queries_us);
            let is_theirs = device.in_flight == 0 && now_us < until_us;
            if !is_theirs && device.in_flight < in_flight_max {
                self.contended_turns = match queries_us > now_us {
                    true => (self.contended_turns + 1).min(CONTENDED_TURNS),
                    false => 0,
                };
                device.submit(base, next);
                continue;
            }
            if is_theirs {
                self.until_us = Some(self.until_us.map_or(until_us, |first| first.min(until_us)));
            }
            self.waiting.push_back(next);
        }
    }

    /// Whether queries use a drive so much that scans seldom have their turn, and should use it.
    pub(super) fn is_contended(&self) -> bool {
        self.contended_turns == CONTENDED_TURNS
    }

    /// When the next pump has something to submit even if nothing happens, in microseconds.
    pub(super) fn deadline_us(&self) -> Option<u64> {
        self.until_us
    }

    /// A request that was submitted to this device has completed.
    pub(super) fn completed(&mut self, device: DeviceId) {
        let device = self.devices.get_mut(&device).expect("one is in flight there");
        device.in_flight -= 1;
        device.has_completed = true;
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
