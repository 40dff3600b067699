//! Requests to the data devices for which callers wait: whether there are some at present.

/// Time without such requests after which they count as over, in microseconds: ten in a second go
/// on all the time.
pub(super) const QUIET_US: u64 = 100_000;

/// Requests for which callers wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForegroundRequests {
    /// How many there have been.
    pub begun: u64,
    /// Whether a caller waits for one.
    pub are_waiting: bool,
}

impl ForegroundRequests {
    /// These and others.
    pub(super) fn and(self, others: Self) -> Self {
        Self {
            begun: self.begun + others.begun,
            are_waiting: self.are_waiting || others.are_waiting,
        }
    }
}

/// The same, as seen from time to time.
#[derive(Default)]
pub(super) struct RecentRequests {
    begun: u64,
    last_us: Option<u64>,
}

impl RecentRequests {
    /// Nothing is recent yet; there have been so many requests before.
    pub(super) fn since(begun: u64) -> Self {
        Self { begun, last_us: None }
    }

    /// Takes a look at `now_us`. If there are some now, or were not long ago: until when they count
    /// as going on, in microseconds, should no other follow.
    pub(super) fn look(&mut self, requests: ForegroundRequests, now_us: u64) -> Option<u64> {
        let ForegroundRequests { begun, are_waiting } = requests;
        if std::mem::replace(&mut self.begun, begun) != begun || are_waiting {
            self.last_us = Some(now_us);
        }
        self.last_us.map(|last_us| last_us + QUIET_US).filter(|until_us| now_us < *until_us)
    }
}
