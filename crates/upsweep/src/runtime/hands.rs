//! A store without threads: callers that wait do what its threads would.
//!
//! Everything happens in calls, so with devices in virtual time the same calls have the same
//! results, in the same order. That is for simulations of whatever stands on a store.

#![expect(clippy::disallowed_types, reason = "jobs and calls reach threads through channels")]

use std::sync::mpsc::Receiver;

use super::commit::Call;
use super::shared::Shared;
use super::threads::{drive_once, make_call, run_job};
use crate::device::Waiter;
use crate::engine::Job;

/// What the threads of a store would own.
pub(super) struct Hands {
    pub(super) waiter: Box<dyn Waiter>,
    pub(super) jobs: Receiver<Job>,
    pub(super) calls: Receiver<Call>,
}

impl Shared {
    /// In a store without threads: runs the jobs and calls that are due, and then waits for devices
    /// or time once. Returns false if the store has threads.
    pub(super) fn lend_hands(&self) -> bool {
        let Some(hands) = &self.hands else { return false };
        // A call may wait for something itself.
        let hands = hands.lock();
        hands.jobs.try_iter().for_each(|job| run_job(self, job));
        hands.calls.try_iter().for_each(make_call);
        drive_once(self, &*hands.waiter, &mut Vec::new());
        true
    }

    /// In a store without threads: makes the last calls.
    pub(super) fn make_last_calls(&self) {
        if let Some(hands) = &self.hands {
            hands.lock().calls.try_iter().for_each(make_call);
        }
    }
}
