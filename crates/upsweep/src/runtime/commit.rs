//! Callers that wait for the log: who writes a batch, and how its callers are woken.
//!
//! Steps of a durable update: it is accepted; if a device had a free place, the write of its batch
//! comes out of that, and the caller does the write itself, as it would only wait for it otherwise.
//! If not, the batch goes out when an earlier one completes, through the bank, and the driver takes
//! its completion. All callers of a batch sleep on one [`Group`], and are woken by one call.
//!
//! Invariants: [`Shared::durable`] and `closed` change before a group is woken, so nobody sleeps
//! through it; a group is of one batch, so nobody is woken in vain; a caller that writes tells the
//! core how that went before it returns, whether its own update is durable by then or not.

#![expect(clippy::disallowed_types, reason = "the runtime is where threads meet")]

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::shared::{Locked, Shared, State};
use crate::device::Request;
use crate::engine::Core;
use crate::error::{ClosedError, Error};
use crate::log::LOG_TOKEN_BIT;

/// The callers that wait for one batch.
#[derive(Default)]
struct Group {
    /// Held between a look at what is waited for and the sleep.
    looking: Mutex<()>,
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
        // Whoever has looked before this sleeps now.
        drop(self.looking.lock());
        self.over.notify_all();
    }
}

/// The callers that wait for the log, by the number of their batch.
#[derive(Default)]
pub(super) struct Groups(BTreeMap<u64, Arc<Group>>);

/// Groups that are to be woken once the lock is gone.
#[derive(Default)]
pub(super) struct Woken(Vec<Arc<Group>>);

impl Groups {
    fn join(&mut self, batch: u64) -> Arc<Group> {
        Arc::clone(self.0.entry(batch).or_default())
    }

    /// Takes out who waits for a batch below this one.
    pub(super) fn take_below(&mut self, batch: u64, woken: &mut Woken) {
        while let Some(first) = self.0.first_entry().filter(|first| *first.key() < batch) {
            woken.0.push(first.remove());
        }
    }
}

impl Woken {
    pub(super) fn wake(self) {
        self.0.iter().for_each(|group| group.wake());
    }
}

/// Takes out the youngest write of the log.
fn take_log_write(requests: &mut Vec<Request>) -> Option<Request> {
    let position = requests.iter().rposition(|request| request.token.0 & LOG_TOKEN_BIT != 0)?;
    Some(requests.swap_remove(position))
}

impl Shared {
    /// Waits until `seq` is durable.
    pub(super) fn wait_durable(&self, seq: u64) -> Result<(), Error> {
        if self.durable() >= seq {
            return Ok(());
        }
        self.check_caller()?;
        let group = join(&mut self.lock(), seq);
        self.sleep_until_durable(&group, seq)
    }

    /// As [`Shared::pump`], and waits until the update just accepted, if one is given, is durable.
    pub(super) fn pump_and_wait(
        &self,
        mut guard: Locked<'_>,
        accepted: Option<u64>,
    ) -> Result<(), Error> {
        let Some(seq) = accepted else {
            self.pump(guard);
            return Ok(());
        };
        let group = join(&mut guard, seq);
        // Who waits for a batch may as well write it: that saves waking the driver and being woken.
        if let Some(write) = self.pump_but(guard, take_log_write) {
            let began_us = self.clock.now_us();
            let completion = self.performer.perform(write);
            let took_us = self.clock.now_us() - began_us;
            let mut guard = self.lock();
            guard.log_writes.0 += 1;
            guard.log_writes.1 += took_us;
            guard.core.complete(completion);
            self.pump(guard);
        }
        self.sleep_until_durable(&group, seq)
    }

    fn sleep_until_durable(&self, group: &Group, seq: u64) -> Result<(), Error> {
        let is_closed = || self.closed.load(Ordering::Acquire);
        if self.durable() < seq {
            group.sleep_until(|| self.durable() >= seq || is_closed());
        }
        if self.durable() >= seq {
            return Ok(());
        }
        let reason = self.lock().core.closed().cloned();
        Err(reason.unwrap_or(ClosedError::Closed).into())
    }
}

fn join(state: &mut State, seq: u64) -> Arc<Group> {
    let batch = state.core.log().batch_of(seq);
    state.groups.join(batch)
}

/// The batches below this one are durable.
pub(super) fn first_awaited(core: &Core) -> u64 {
    match core.closed() {
        Some(_) => u64::MAX,
        None => core.log().batch_of(core.durable() + 1),
    }
}
