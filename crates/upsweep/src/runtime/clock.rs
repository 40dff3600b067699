//! The clock of production: microseconds since the store was opened.

#![expect(clippy::disallowed_methods, reason = "the runtime is where time enters the system")]

use std::time::{Duration, Instant};

/// Monotonic time since the store was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(super) fn now_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}
