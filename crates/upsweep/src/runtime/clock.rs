//! The clock of production: microseconds since the store was opened, and CPU time of the process.

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

/// CPU time that this process has used so far, user and system; zero where `/proc` is missing.
pub(super) fn process_cpu() -> Duration {
    const TICKS_PER_SECOND: u64 = 100;
    let Ok(text) = std::fs::read_to_string("/proc/self/stat") else { return Duration::ZERO };
    // The second field is the name in parentheses, which may hold blanks; fields 14 and 15 are
    // user and system time in ticks, a unit that Linux fixes at 100 per second for user space.
    let Some((_, rest)) = text.rsplit_once(')') else { return Duration::ZERO };
    let ticks: u64 = rest
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}
