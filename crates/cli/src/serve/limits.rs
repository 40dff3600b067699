//! Limits to what is performed of a volume in a second, for all its clients together: those of the
//! command line, and those of its settings, which may change at any time.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use upsweep_volume::{Volume, VolumeSettings, Volumes};

use super::access::{Setting, Settings};
use crate::text::Size;

/// For so long a bucket is filled at most, in seconds: what is performed at once after a pause.
const FULL_SECONDS: f64 = 0.1;

/// So many in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rate(pub(crate) NonZeroU64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = text.parse::<Size>().ok().map(|Size(rate)| rate);
        let wrong = || "give a number from 1, or one with a unit such as 100MiB".to_owned();
        rate.and_then(NonZeroU64::new).map(Self).ok_or_else(wrong)
    }
}

/// A token bucket, if there is a limit. What is taken beyond what it has is owed, and waited for.
#[derive(Default)]
struct Bucket(Mutex<Option<State>>);

struct State {
    per_second: f64,
    /// What it has, or owes.
    level: f64,
    /// When that was so.
    at: Instant,
}

impl Bucket {
    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the limit. With the first one it is full; with another one it owes what it owed.
    fn set(&self, rate: Option<Rate>, now: Instant) {
        let mut state = self.lock();
        *state = rate.map(|Rate(per_second)| {
            let per_second = per_second.get() as f64;
            let full = per_second * FULL_SECONDS;
            match &*state {
                Some(State { level, at, .. }) => {
                    State { per_second, level: level.min(full), at: *at }
                }
                None => State { per_second, level: full, at: now },
            }
        });
    }

    /// Takes so much, and returns how long to wait until it is there.
    fn take(&self, amount: u64, now: Instant) -> Duration {
        let mut state = self.lock();
        let Some(State { per_second, level, at }) = &mut *state else { return Duration::ZERO };
        let filled = now.saturating_duration_since(*at).as_secs_f64() * *per_second;
        *level = (*level + filled).min(*per_second * FULL_SECONDS) - amount as f64;
        *at = now.max(*at);
        Duration::from_secs_f64((-*level).max(0.0) / *per_second)
    }

    /// Gives back what was taken in vain.
    fn give_back(&self, amount: u64) {
        if let Some(State { per_second, level, .. }) = &mut *self.lock() {
            *level = (*level + amount as f64).min(*per_second * FULL_SECONDS);
        }
    }
}

/// The limits of one volume, and of its snapshots.
#[derive(Default)]
pub(super) struct Limit {
    requests: Bucket,
    bytes: Bucket,
    /// How often settings had changed when it was set.
    seen: AtomicU64,
}

impl Limit {
    /// How long a request waits that reads or writes so many bytes.
    pub(super) fn take(&self, bytes: u64, now: Instant) -> Duration {
        self.requests.take(1, now).max(self.bytes.take(bytes, now))
    }

    /// A request for which this was taken is not performed.
    pub(super) fn give_back(&self, bytes: u64) {
        self.requests.give_back(1);
        self.bytes.give_back(bytes);
    }

    fn set(&self, [requests, bytes]: [Option<Rate>; 2], now: Instant) {
        self.requests.set(requests, now);
        self.bytes.set(bytes, now);
    }
}

/// The limits of all volumes.
pub(super) struct Limits {
    requests: Settings<Rate>,
    bytes: Settings<Rate>,
    /// Those of volumes that clients have had, by number.
    known: Mutex<BTreeMap<u32, Arc<Limit>>>,
}

impl Limits {
    /// With the least of several for a volume.
    pub(super) fn new(requests: &[Setting<Rate>], bytes: &[Setting<Rate>]) -> Self {
        let [requests, bytes] = [requests, bytes].map(|given| Settings::new(given, Rate::min));
        Self { requests, bytes, known: Mutex::default() }
    }

    /// Those of a volume, with the name that it has now.
    pub(super) fn of(&self, volumes: &Volumes, volume: &Volume) -> Arc<Limit> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = Arc::clone(known.entry(volume.number()).or_default());
        drop(known);
        self.set(&limit, volumes, volume);
        limit
    }

    /// Has them follow the settings of their volume if any have changed.
    pub(super) fn refresh(&self, limit: &Limit, volumes: &Volumes, volume: &Volume) {
        if limit.seen.load(Ordering::Acquire) != volumes.settings_changes() {
            self.set(limit, volumes, volume);
        }
    }

    fn set(&self, limit: &Limit, volumes: &Volumes, volume: &Volume) {
        // Of two at a time, the later one reads the later settings.
        let _alone = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Before they are read: what comes later is another change.
        limit.seen.store(volumes.settings_changes(), Ordering::Release);
        // For a volume that has been deleted it does not matter.
        if let (Ok(name), Ok(settings)) = (volume.name(), volume.settings()) {
            limit.set(self.rates(&name, &settings), Instant::now());
        }
    }

    /// How many requests and bytes of a volume are performed in a second.
    fn rates(&self, volume: &str, kept: &VolumeSettings) -> [Option<Rate>; 2] {
        let requests = self.requests.of(volume, kept.requests_per_second.map(Rate));
        [requests, self.bytes.of(volume, kept.bytes_per_second.map(Rate))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Option<Rate> {
        Some(text.parse().expect("a rate"))
    }

    #[test]
    fn requests_wait_until_there_is_enough_for_them() {
        let (limit, now) = (Limit::default(), Instant::now());
        assert_eq!(limit.take(u64::MAX, now), Duration::ZERO);
        limit.set([rate("10"), rate("1000")], now);
        let take = |bytes, after_ms| {
            let wait = limit.take(bytes, now + Duration::from_millis(after_ms));
            (wait.as_secs_f64() * 1e3).round()
        };
        // At first there is a request and 100 bytes.
        let waits = [take(0, 0), take(0, 0), take(0, 50), take(0, 50)];
        assert_eq!(waits, [0.0, 100.0, 150.0, 250.0]);
        assert_eq!(take(1000, 1000), 900.0);
        assert_eq!(take(100, 2000), 0.0);
        // No more than a tenth of a second is saved.
        assert_eq!((take(100, 9000), take(100, 9000)), (0.0, 100.0));
        assert!(limit.take(1 << 32, now) > Duration::from_secs(4_000_000));
        // A client that leaves before its request is performed owes nothing.
        limit.give_back(1 << 32);
        assert_eq!(take(100, 99_000), 0.0);
        limit.take(100_000, now);
        limit.give_back(100_000);
        assert_eq!(take(0, 99_100), 0.0);
    }

    #[test]
    fn a_limit_that_changes_counts_at_once() {
        let (limit, now) = (Limit::default(), Instant::now());
        limit.set([rate("10"), None], now);
        let take = || limit.take(0, now).as_millis();
        assert_eq!([take(), take(), take()], [0, 100, 200]);
        // Two are owed.
        limit.set([rate("100"), None], now);
        assert_eq!(take(), 30);
        limit.set([rate("100"), None], now);
        assert_eq!(take(), 40);
        limit.set([None, None], now);
        assert_eq!(take(), 0);
    }

    #[test]
    fn clients_of_a_volume_share_its_limits() {
        let store = upsweep::Store::in_memory().expect("made");
        let volumes = Volumes::open(&store).expect("opens");
        let given = ["disk=10", "disk=5", "20"].map(|text| text.parse().expect("a limit"));
        let limits = Limits::new(&given, &[]);
        let of = |name: &str| {
            let volume = volumes.volume(name).expect("there");
            let limit = limits.of(&volumes, &volume);
            let per_second = limit.requests.lock().as_ref().map(|state| state.per_second);
            (limit, per_second)
        };
        for name in ["disk", "other", "more"] {
            volumes.create(name, 4096).expect("made");
        }
        let change = |settings: &mut VolumeSettings| {
            settings.requests_per_second = NonZeroU64::new(7);
        };
        for name in ["disk", "more"] {
            volumes.change_settings(name, change).expect("changed");
        }
        let per_second = ["disk", "other", "more"].map(|name| of(name).1);
        assert_eq!(per_second, [Some(5.0), Some(20.0), Some(7.0)]);
        assert!(Arc::ptr_eq(&of("disk").0, &of("disk").0));
        assert!(!Arc::ptr_eq(&of("other").0, &of("more").0));
        volumes.rename("disk", "renamed").expect("renamed");
        assert_eq!(of("renamed").1, Some(7.0), "what was given is for a name");
        assert_eq!("0".parse::<Rate>().ok(), None);
        assert_eq!("2KiB".parse().ok(), rate("2048"));
    }
}
