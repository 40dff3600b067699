//! The clocks of production: microseconds since the store was opened, and the time of day.
//!
//! The time of day affects only expiring records. When the sweep drops them must make no
//! difference. So every query and every update is evaluated as of a time, and no update is accepted
//! as of a time before the one up to which the sweep drops records:
//! - The time of day never goes back while a store is open, whatever the system's does.
//! - An update takes its [`Moment`] before it is submitted, and holds it until it is accepted. The
//!   sweep drops what has expired by the earliest moment held, or by now.

#![expect(clippy::disallowed_methods, reason = "the runtime is where time enters the system")]

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::block_store::BlockStore;
use crate::device::VirtualClock;

/// Monotonic time since a moment, which is given a time itself.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    source: Source,
    start_us: u64,
}

/// What tells the time, and what it said at the start.
#[derive(Clone, Debug)]
enum Source {
    Host(Instant),
    Devices(VirtualClock, u64),
}

impl Clock {
    pub(super) fn start() -> Self {
        Self::start_at(0, None)
    }

    /// It is this time now, in microseconds. The host tells the time, unless there is a virtual
    /// clock.
    pub(super) fn start_at(start_us: u64, clock: Option<VirtualClock>) -> Self {
        let source = match clock {
            None => Source::Host(Instant::now()),
            Some(clock) => {
                let now_us = clock.now_us();
                Source::Devices(clock, now_us)
            }
        };
        Self { source, start_us }
    }

    pub(super) fn now_us(&self) -> u64 {
        let elapsed_us = u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.start_us.saturating_add(elapsed_us)
    }

    pub(super) fn elapsed(&self) -> Duration {
        match &self.source {
            Source::Host(start) => start.elapsed(),
            Source::Devices(clock, start_us) => Duration::from_micros(clock.now_us() - start_us),
        }
    }
}

/// The source of a store's time of day: by default the system clock.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl WallClock {
    /// A clock that is read by this function, from any thread.
    #[must_use]
    pub fn new(read: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
}

impl Default for WallClock {
    fn default() -> Self {
        Self::new(SystemTime::now)
    }
}

impl Debug for WallClock {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("WallClock")
    }
}

/// A time of day in microseconds since the Unix epoch, as stored in records: 0 if it is before the
/// epoch; the largest number, which never comes, if it is more than 584,000 years after.
#[must_use]
pub fn unix_us(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The time of day of one open store.
#[derive(Debug)]
pub(super) struct TimeOfDay {
    clock: WallClock,
    /// The latest that was read.
    latest_us: AtomicU64,
    /// The moments held by updates being declared, with counts.
    moments: Mutex<BTreeMap<u64, u64>>,
}

impl TimeOfDay {
    pub(super) fn new(clock: WallClock) -> Self {
        Self { clock, latest_us: AtomicU64::new(0), moments: Mutex::default() }
    }

    pub(super) fn now_us(&self) -> u64 {
        let read_us = unix_us((self.clock.0)());
        self.latest_us.fetch_max(read_us, Ordering::Relaxed).max(read_us)
    }

    pub(super) fn moment(self: &Arc<Self>) -> Moment {
        self.now_us();
        let mut moments = self.moments.lock();
        // Under the lock, so that it is not before a time given to a sweep meanwhile.
        let us = self.latest_us.load(Ordering::Relaxed);
        *moments.entry(us).or_default() += 1;
        Moment { us, of: Arc::clone(self) }
    }

    /// What has expired by this time is absent for every query and update from now on.
    pub(super) fn expired_us(&self) -> u64 {
        let now_us = self.now_us();
        let moments = self.moments.lock();
        moments.first_key_value().map_or(now_us, |(first_us, _)| now_us.min(*first_us))
    }
}

/// A time of day as of which an update is declared. While it is held, the sweep keeps records that
/// expire later.
#[derive(Debug)]
#[must_use = "it has to be there until the update is accepted"]
pub struct Moment {
    us: u64,
    of: Arc<TimeOfDay>,
}

impl Moment {
    /// Microseconds since the Unix epoch.
    #[must_use]
    pub fn us(&self) -> u64 {
        self.us
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        let mut moments = self.of.moments.lock();
        let Some(count) = moments.get_mut(&self.us) else { return };
        *count -= 1;
        if *count == 0 {
            moments.remove(&self.us);
        }
    }
}

impl BlockStore {
    /// The time of day, in microseconds since the Unix epoch, as of which a query determines
    /// expiry. It does not go back while the store is open.
    ///
    /// A query reads it after the block: whatever the sweep had dropped by then has expired by
    /// then.
    #[must_use]
    pub fn time_of_day_us(&self) -> u64 {
        self.inner.shared.time_of_day.now_us()
    }

    /// The time since the store was opened, by a clock that nobody sets; with devices in virtual
    /// time, by theirs.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.inner.shared.clock.elapsed()
    }

    /// A moment for an update whose effect depends on whether a record has expired: the update
    /// carries it, and the caller holds it until the update is accepted. Until then the sweep keeps
    /// everything that expires later, in the whole store.
    pub fn moment(&self) -> Moment {
        self.inner.shared.time_of_day.moment()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time of day, and what sets its clock, in microseconds.
    fn settable() -> (Arc<TimeOfDay>, Arc<AtomicU64>) {
        let time = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&time);
        let clock = WallClock::new(move || {
            SystemTime::UNIX_EPOCH + Duration::from_micros(read.load(Ordering::Relaxed))
        });
        (Arc::new(TimeOfDay::new(clock)), time)
    }

    #[test]
    fn the_time_of_day_does_not_go_back() {
        let (day, clock) = settable();
        for (set_us, read_us) in [(100, 100), (90, 100), (110, 110)] {
            clock.store(set_us, Ordering::Relaxed);
            assert_eq!(day.now_us(), read_us);
            assert_eq!(day.moment().us(), read_us);
        }
    }

    #[test]
    fn what_expires_after_a_moment_is_kept_while_that_is_there() {
        let (day, clock) = settable();
        clock.store(100, Ordering::Relaxed);
        let (first, twin) = (day.moment(), day.moment());
        clock.store(200, Ordering::Relaxed);
        let second = day.moment();
        clock.store(300, Ordering::Relaxed);
        assert_eq!(day.expired_us(), 100);
        drop(first);
        assert_eq!(day.expired_us(), 100, "another has the same moment");
        drop(twin);
        assert_eq!(day.expired_us(), 200);
        drop(second);
        assert_eq!(day.expired_us(), 300);
        clock.store(0, Ordering::Relaxed);
        assert_eq!(day.moment().us(), 300, "not before what was dropped");
    }

    #[test]
    fn times_beyond_what_can_be_stored_are_the_ends() {
        let second = Duration::from_secs(1);
        assert_eq!(unix_us(SystemTime::UNIX_EPOCH - second), 0);
        assert_eq!(unix_us(SystemTime::UNIX_EPOCH + second), 1_000_000);
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::MAX / 1_000_000 + 1);
        assert_eq!(unix_us(far), u64::MAX);
    }
}
