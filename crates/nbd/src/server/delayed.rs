//! Requests of a connection that wait for their time, in the order in which they came.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::workers::Job;

/// These requests. There are no more of them than a session has in flight.
#[derive(Default)]
pub(super) struct Delayed {
    /// Without a time, that is too far away to be told.
    jobs: VecDeque<(Option<Instant>, Job)>,
}

impl Delayed {
    /// Adds a request that has just been received, and comes after all others.
    pub(super) fn push(&mut self, job: Job, delay: Duration) {
        self.jobs.push_back((job.received.checked_add(delay), job));
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// When the time of the first one comes.
    pub(super) fn due(&self) -> Option<Instant> {
        self.jobs.front().and_then(|(due, _)| *due)
    }

    /// Takes the first one, if its time has come.
    pub(super) fn take_due(&mut self) -> Option<Job> {
        if self.due()? <= Instant::now() { self.take() } else { None }
    }

    /// Takes the first one, whatever its time.
    pub(super) fn take(&mut self) -> Option<Job> {
        self.jobs.pop_front().map(|(_, job)| job)
    }
}

impl Drop for Delayed {
    fn drop(&mut self) {
        self.jobs.drain(..).for_each(|(_, job)| job.device.cancel(&job.request.command));
    }
}
