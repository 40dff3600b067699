//! The wait of a call for room: how long it is, what for, and who is told.

use std::time::Duration;

use super::shared::Shared;
use crate::events::event;
use crate::metrics::WaitCause;

/// A wait of so many microseconds is an event.
const STALL_US: u64 = 100_000;

/// The wait of one call, from the first time that its update found no room. It ends when the update
/// is accepted or refused, at the latest when this is dropped.
pub(super) struct Stall<'a> {
    shared: &'a Shared,
    wait: Option<Wait>,
}

struct Wait {
    cause: WaitCause,
    began_us: u64,
    is_told: bool,
}

impl<'a> Stall<'a> {
    /// No wait yet.
    pub(super) fn none(shared: &'a Shared) -> Self {
        Self { shared, wait: None }
    }

    /// The update has found no room, the first time or again.
    pub(super) fn goes_on(&mut self, cause: WaitCause) {
        let (now_us, metrics) = (self.shared.clock.now_us(), &self.shared.metrics);
        let wait = self.wait.get_or_insert_with(|| {
            metrics.admission_waiting[cause].change(1.0);
            Wait { cause, began_us: now_us, is_told: false }
        });
        if now_us - wait.began_us >= STALL_US && !wait.is_told {
            wait.is_told = true;
            event!(warn, cause = wait.cause.name(), "a call waits for room for more than 100 ms");
        }
    }

    /// The update is accepted or refused.
    pub(super) fn end(&mut self) {
        let Some(wait) = self.wait.take() else { return };
        let metrics = &self.shared.metrics;
        let us = self.shared.clock.now_us() - wait.began_us;
        metrics.admission_waiting[wait.cause].change(-1.0);
        metrics.admission_wait_seconds[wait.cause].record_shared(Duration::from_micros(us));
        if us >= STALL_US {
            event!(warn, cause = wait.cause.name(), seconds = us as f64 / 1e6, "a wait has ended");
        }
    }
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
