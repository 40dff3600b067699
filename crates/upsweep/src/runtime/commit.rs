//! Callers that wait for the log: which thread writes a batch, and how its callers are woken.
//!
//! Steps of a durable update: it is accepted; if a device has a free slot, this yields the write of
//! its batch, which the caller performs itself, as it would only wait for it otherwise. If not, the
//! batch is submitted through the bank when an earlier one completes, and the driver handles its
//! completion. All callers of a batch sleep on one [`Group`], and are woken by one call. A caller
//! that does not want to sleep registers a [`Call`] instead, which a separate thread makes.
//!
//! Invariants: [`Shared::durable`] and `closed` change before a group is woken, so no wake-up is
//! lost; a group has one batch, so there are no needless wake-ups; a caller that writes reports the
//! result to the core before it returns, whether or not its own update is durable by then; a
//! registered call is made once.

#![expect(clippy::disallowed_types, reason = "the runtime is where threads meet")]

use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, PoisonError};
use std::thread::Thread;

use parking_lot::Mutex;

use super::shared::{Locked, Shared, State};
use crate::device::{Class, Request};
use crate::error::{ClosedError, Error};
use crate::log::Seq;
use crate::metrics::LockCause;

/// A callback for completion.
pub(super) type Call = Box<dyn FnOnce() + Send>;

/// The callers that sleep until one batch is durable.
#[derive(Default)]
struct Group {
    /// Held from checking the condition until sleeping.
    looking: std::sync::Mutex<()>,
    over: Condvar,
}

impl Group {
    fn sleep_until(&self, is_over: impl Fn() -> bool) {
        let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_over() {
            looking = self.over.wait(looking).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wake(&self) {
        // Every waiter that checked before this is asleep now.
        drop(self.looking.lock());
        self.over.notify_all();
    }
}

/// The waiters for one batch.
#[derive(Default)]
pub(super) struct Waiting {
    sleepers: Arc<Group>,
    calls: Vec<Call>,
}

/// The waiters to wake.
#[derive(Default)]
pub(super) struct Woken {
    groups: Vec<Arc<Group>>,
    threads: Vec<Thread>,
    calls: Vec<Call>,
}

impl Waiting {
    /// The calls that are made when the batch is durable.
    pub(super) fn calls(&mut self) -> &mut Vec<Call> {
        &mut self.calls
    }
}

impl Woken {
    /// Adds all waiters of a durable batch.
    pub(super) fn group(&mut self, waiting: Waiting) {
        self.groups.push(waiting.sleepers);
        self.calls.extend(waiting.calls);
    }

    pub(super) fn thread(&mut self, thread: Thread) {
        self.threads.push(thread);
    }

    pub(super) fn call(&mut self, call: Call) {
        self.calls.push(call);
    }

    /// Wakes all; `calls` go to the thread that makes them.
    pub(super) fn wake(self, calls: &Mutex<Option<Sender<Call>>>) {
        self.groups.into_iter().for_each(|group| group.wake());
        self.threads.into_iter().for_each(|thread| thread.unpark());
        if !self.calls.is_empty()
            && let Some(sender) = &*calls.lock()
        {
            // That thread outlives the sender.
            self.calls.into_iter().for_each(|call| drop(sender.send(call)));
        }
    }
}

/// Takes out the latest log write.
fn take_log_write(requests: &mut Vec<Request>) -> Option<Request> {
    let position = requests.iter().rposition(|request| request.hint.class == Class::Log)?;
    Some(requests.swap_remove(position))
}

impl Shared {
    /// Waits until `seq` is durable.
    pub(super) fn wait_durable(&self, seq: Seq) -> Result<(), Error> {
        if self.durable() >= seq {
            return Ok(());
        }
        self.check_caller()?;
        let mut guard = self.lock();
        if guard.core.hurry(seq) {
            return self.pump_and_wait(guard, Some(seq));
        }
        let group = Arc::clone(&waiting_for(&mut guard, seq).sleepers);
        drop(guard);
        self.sleep_until_durable(&group, seq)
    }

    /// As [`Shared::pump`], and waits until the update just accepted, if one is given, is durable.
    pub(super) fn pump_and_wait(
        &self,
        mut guard: Locked<'_>,
        accepted: Option<Seq>,
    ) -> Result<(), Error> {
        let Some(seq) = accepted else {
            self.pump(guard);
            return Ok(());
        };
        let group = Arc::clone(&waiting_for(&mut guard, seq).sleepers);
        // A caller that waits for a batch may as well write it: that saves waking the driver and
        // being woken.
        if let Some(write) = self.pump_but(guard, take_log_write) {
            let completion = self.performer.perform(write);
            let mut guard = self.lock_for(LockCause::Completion);
            guard.core.complete(completion);
            self.pump(guard);
        }
        self.sleep_until_durable(&group, seq)
    }

    /// The outcome of the update with this sequence. `None` if it is in flight: then `call` is made
    /// when it completes.
    pub(super) fn outcome_or(
        &self,
        seq: Seq,
        call: impl FnOnce() -> Call,
    ) -> Option<Result<(), Error>> {
        if self.durable() >= seq {
            return Some(Ok(()));
        }
        if let Err(error) = self.check_caller() {
            return Some(Err(error));
        }
        let mut guard = self.lock();
        if guard.core.durable() >= seq {
            return Some(Ok(()));
        }
        if let Some(reason) = guard.core.closed() {
            return Some(Err(reason.clone().into()));
        }
        waiting_for(&mut guard, seq).calls.push(call());
        None
    }

    fn sleep_until_durable(&self, group: &Group, seq: Seq) -> Result<(), Error> {
        let is_closed = || self.closed.load(Ordering::Acquire);
        let is_over = || self.durable() >= seq || is_closed();
        while !is_over() {
            if !self.lend_hands() {
                group.sleep_until(is_over);
            }
        }
        self.final_outcome(seq)
    }

    /// The outcome of the update with this sequence, which must have completed.
    pub(super) fn final_outcome(&self, seq: Seq) -> Result<(), Error> {
        if self.durable() >= seq {
            return Ok(());
        }
        let reason = self.lock().core.closed().cloned();
        Err(reason.unwrap_or(ClosedError::Closed).into())
    }
}

fn waiting_for(state: &mut State, seq: Seq) -> &mut Waiting {
    state.groups.of(&state.core, seq)
}
