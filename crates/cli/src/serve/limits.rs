//! Limits to what is performed of a volume in a second, for all its clients together.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::access::{Setting, Settings};
use crate::text::Size;

/// For so long a bucket is filled at most, in seconds: what is performed at once after a pause.
const FULL_SECONDS: f64 = 0.1;

/// So many in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rate(u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = text.parse::<Size>().ok().map(|Size(rate)| rate);
        let wrong = || "give a number from 1, or one with a unit such as 100MiB".to_owned();
        rate.filter(|rate| *rate > 0).map(Self).ok_or_else(wrong)
    }
}

/// A token bucket. What is taken beyond what it has is owed, and waited for.
struct Bucket {
    per_second: f64,
    state: Mutex<State>,
}

struct State {
    /// What it has, or owes.
    level: f64,
    /// When that was so.
    at: Instant,
}

impl Bucket {
    /// A full one.
    fn new(Rate(per_second): Rate) -> Self {
        let per_second = per_second as f64;
        let state = State { level: per_second * FULL_SECONDS, at: Instant::now() };
        Self { per_second, state: Mutex::new(state) }
    }

    /// Takes so much, and returns how long to wait until it is there.
    fn take(&self, amount: u32, now: Instant) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = now.saturating_duration_since(state.at).as_secs_f64() * self.per_second;
        let level = (state.level + filled).min(self.per_second * FULL_SECONDS);
        *state = State { level: level - f64::from(amount), at: now.max(state.at) };
        Duration::from_secs_f64((-state.level).max(0.0) / self.per_second)
    }
}

/// The limits of one volume.
pub(super) struct Limit {
    requests: Option<Bucket>,
    bytes: Option<Bucket>,
}

impl Limit {
    /// How long a request waits that reads or writes so many bytes.
    pub(super) fn take(&self, bytes: u32, now: Instant) -> Duration {
        let take = |bucket: &Option<Bucket>, amount| {
            bucket.as_ref().map_or(Duration::ZERO, |bucket| bucket.take(amount, now))
        };
        take(&self.requests, 1).max(take(&self.bytes, bytes))
    }
}

/// The limits of all volumes.
pub(super) struct Limits {
    requests: Settings<Rate>,
    bytes: Settings<Rate>,
    /// Those of volumes that clients have had, by name.
    known: Mutex<BTreeMap<String, Arc<Limit>>>,
}

impl Limits {
    /// With the least of several for a volume.
    pub(super) fn new(requests: &[Setting<Rate>], bytes: &[Setting<Rate>]) -> Self {
        let [requests, bytes] = [requests, bytes].map(|given| Settings::new(given, Rate::min));
        Self { requests, bytes, known: Mutex::default() }
    }

    /// Those of a volume.
    pub(super) fn of(&self, volume: &str) -> Arc<Limit> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = |rates: &Settings<Rate>| rates.of(volume).copied().map(Bucket::new);
        let new =
            || Arc::new(Limit { requests: bucket(&self.requests), bytes: bucket(&self.bytes) });
        Arc::clone(known.entry(volume.to_owned()).or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(requests: &[&str], bytes: &[&str]) -> Limits {
        let [requests, bytes] = [requests, bytes].map(|given| {
            let setting = |text: &&str| text.parse().expect("a limit");
            given.iter().map(setting).collect::<Vec<Setting<Rate>>>()
        });
        Limits::new(&requests, &bytes)
    }

    #[test]
    fn requests_wait_until_there_is_enough_for_them() {
        let limit = limits(&["disk=10"], &["disk=1000"]).of("disk");
        let now = Instant::now();
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
        assert!(limit.take(u32::MAX, now) > Duration::from_secs(4_000_000));
    }

    #[test]
    fn clients_of_a_volume_share_its_limits() {
        let limits = limits(&["disk=10", "disk=5", "20"], &[]);
        let of = |volume: &str| {
            let limit = limits.of(volume);
            limit.requests.as_ref().map(|bucket| bucket.per_second)
        };
        assert_eq!([of("disk"), of("other"), of("more")], [Some(5.0), Some(20.0), Some(20.0)]);
        assert!(Arc::ptr_eq(&limits.of("disk"), &limits.of("disk")));
        assert!(!Arc::ptr_eq(&limits.of("other"), &limits.of("more")));
        assert_eq!("0".parse::<Rate>().ok(), None);
        assert_eq!("2KiB".parse(), Ok(Rate(2048)));
    }
}
