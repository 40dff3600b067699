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
    seen: ForegroundRequests,
    last_us: Option<u64>,
}

impl RecentRequests {
    /// Nothing is recent yet; there have been so many requests before.
    pub(super) fn since(begun: u64) -> Self {
        Self { seen: ForegroundRequests { begun, are_waiting: false }, last_us: None }
    }

    /// Takes a look at `now_us`. If there are some now, or were less than `quiet_us` ago: until
    /// when they count as going on, in microseconds, should no other follow. Those that were
    /// waiting at the last look count as having ended now.
    pub(super) fn look(
        &mut self,
        requests: ForegroundRequests,
        now_us: u64,
        quiet_us: u64,
    ) -> Option<u64> {
        let before = std::mem::replace(&mut self.seen, requests);
        if before.begun != requests.begun || before.are_waiting || requests.are_waiting {
            self.last_us = Some(now_us);
        }
        self.last_us.map(|last_us| last_us + quiet_us).filter(|until_us| now_us < *until_us)
    }
}
