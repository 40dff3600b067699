//! A queue of completions between the threads that complete requests and those that wait for them.
//!
//! Invariant: each expected request is added once and handed out once.

#![expect(clippy::disallowed_methods, reason = "threads wait for requests here")]
#![expect(clippy::disallowed_types, reason = "threads meet here")]

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Completion;
use super::bank::{Waiter, Waker};

/// Completions that were not handed out yet.
#[derive(Debug, Default)]
pub(super) struct Completions {
    state: Mutex<State>,
    /// Signalled when a waiting thread should look again.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    there: Vec<Completion>,
    /// Requests that were expected and not handed out yet.
    outstanding: usize,
    woken: bool,
    closed: bool,
}

impl Completions {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each critical section keeps the data consistent at every step, even when it unwinds.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that one more request is in flight.
    pub(super) fn expect(&self) {
        self.lock().outstanding += 1;
    }

    /// Adds the completion of an expected request.
    pub(super) fn add(&self, completion: Completion) {
        self.lock().there.push(completion);
        self.changed.notify_one();
    }

    /// Hands out what has completed, without waiting.
    pub(super) fn reap(&self, completions: &mut Vec<Completion>) {
        self.hand_out(&mut self.lock(), completions);
    }

    fn hand_out(&self, state: &mut State, completions: &mut Vec<Completion>) {
        state.outstanding -= state.there.len();
        completions.append(&mut state.there);
        if state.outstanding == 0 {
            // Another thread may be waiting until nothing is in flight.
            self.changed.notify_all();
        }
    }

    /// Waits for at least one completion, a wake, the timeout, [`Completions::close`] or, if
    /// `until_idle`, until nothing is in flight; then hands out what has completed.
    pub(super) fn await_some(
        &self,
        timeout: Option<Duration>,
        until_idle: bool,
        completions: &mut Vec<Completion>,
    ) {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.lock();
        loop {
            let idle = until_idle && state.outstanding == 0;
            if !state.there.is_empty() || state.closed || idle {
                break;
            }
            // A wake is meant for the waiter, not for a submitter that drains the bank.
            if !until_idle && std::mem::take(&mut state.woken) {
                break;
            }
            state = match deadline {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        self.hand_out(&mut state, completions);
    }

    /// Ends the current wait, or the next one.
    pub(super) fn end_wait(&self) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.woken, true) {
            self.changed.notify_all();
        }
    }

    /// Ends the current wait and all later ones.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

/// For banks that add every completion here without being polled.
impl Waiter for Arc<Completions> {
    fn wait(&self, timeout: Option<Duration>, completions: &mut Vec<Completion>) {
        self.await_some(timeout, false, completions);
    }
}

/// Cost of a wake: a lock, and one system call unless a wake is already pending.
impl Waker for Arc<Completions> {
    fn wake(&self) {
        self.end_wait();
    }
}
