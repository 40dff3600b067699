//! The wait of a call for room: its duration, its cause, and its reporting.

use std::time::Duration;

use super::shared::Shared;
use crate::events::event;
use crate::metrics::WaitCause;

/// A wait of this many microseconds is an event.
const STALL_US: u64 = 100_000;

/// A wait for room that has begun.
#[derive(Debug)]
pub(super) struct Wait {
    cause: WaitCause,
    began_us: u64,
    is_told: bool,
}

impl Wait {
    /// An update found no room.
    pub(super) fn begin(shared: &Shared, cause: WaitCause) -> Self {
        shared.metrics.admission_waiting[cause].change(1.0);
        Self { cause, began_us: shared.clock.now_us(), is_told: false }
    }

    /// It found none again.
    pub(super) fn goes_on(&mut self, shared: &Shared) {
        if shared.clock.now_us() - self.began_us >= STALL_US && !self.is_told {
            self.is_told = true;
            event!(warn, cause = self.cause.name(), "a call waits for room for more than 100 ms");
        }
    }

    /// It is accepted or refused, or its caller has withdrawn it.
    pub(super) fn end(self, shared: &Shared) {
        let metrics = &shared.metrics;
        let us = shared.clock.now_us() - self.began_us;
        metrics.admission_waiting[self.cause].change(-1.0);
        metrics.admission_wait_seconds[self.cause].record_shared(Duration::from_micros(us));
        if us >= STALL_US {
            event!(warn, cause = self.cause.name(), seconds = us as f64 / 1e6, "a wait has ended");
        }
    }
}

/// The wait of one call, from the first time that its update found no room. It ends when the update
/// is accepted or refused, at the latest when this is dropped.
pub(super) struct Stall<'a> {
    shared: &'a Shared,
    wait: Option<Wait>,
}

impl<'a> Stall<'a> {
    /// No wait yet.
    pub(super) fn none(shared: &'a Shared) -> Self {
        Self { shared, wait: None }
    }

    /// The update found no room, the first time or again.
    pub(super) fn goes_on(&mut self, cause: WaitCause) {
        self.wait.get_or_insert_with(|| Wait::begin(self.shared, cause)).goes_on(self.shared);
    }

    /// The update is accepted or refused.
    pub(super) fn end(&mut self) {
        if let Some(wait) = self.wait.take() {
            wait.end(self.shared);
        }
    }
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
