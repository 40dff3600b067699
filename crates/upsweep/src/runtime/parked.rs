//! Changes that wait for room without blocking a thread.
//!
//! A change that finds no room, or others before it, is *parked*: it waits in a queue, with its
//! updates and the waker of its future. A thread that finds that there may be room asks the driver,
//! which submits the changes again, a portion at a time, from the front.
//!
//! Invariants: parked changes are accepted in order of arrival; one that was taken back is not
//! accepted later; no lock except that of the core is held while application code runs; if threads
//! wait for room too, they and parked changes take turns when there may be room, so neither
//! starves. The driver also checks after being idle, which compensates for a wake-up that a bank
//! loses.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::block_store::Inner;
use super::callers::Turn;
use super::commit::{Call, Woken};
use super::options::Durability;
use super::shared::{Sampling, Shared, State};
use super::stall::Wait;
use super::ticket::Ticket;
use crate::engine::registry::ModifierId;
use crate::engine::{Accept, Core, LoggedUpdate, SpaceId};
use crate::error::{ClosedError, Error};
use crate::log::{Seq, Urgency};

/// A [`LoggedUpdate`] that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedUpdate {
    /// The space.
    pub space: SpaceId,
    /// The modifier.
    pub modifier: ModifierId,
    /// Key of the record that it targets.
    pub key: Vec<u8>,
    /// The modifier's operand.
    pub operand: Vec<u8>,
}

impl OwnedUpdate {
    /// The same update, borrowed.
    #[must_use]
    pub fn borrow(&self) -> LoggedUpdate<'_> {
        let Self { space, modifier, key, operand } = self;
        LoggedUpdate { space: *space, modifier: *modifier, key, operand }
    }
}

/// A change that is declared when it is first polled; a [`Future`] for any executor. See
/// [`BlockStore::modify_async`](super::BlockStore::modify_async).
#[must_use = "a change is declared when it is first polled"]
pub struct PendingChange {
    inner: Arc<Inner>,
    durability: Durability,
    stage: Stage,
}

enum Stage {
    New(Vec<OwnedUpdate>),
    Parked(Arc<Parked>),
    Accepted(Ticket),
    Over,
}

impl std::fmt::Debug for PendingChange {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stage = match &self.stage {
            Stage::New(_) => "not declared",
            Stage::Parked(_) => "waits for room",
            Stage::Accepted(_) => "accepted",
            Stage::Over => "over",
        };
        formatter.debug_tuple("PendingChange").field(&stage).finish()
    }
}

impl PendingChange {
    pub(super) fn new(
        inner: &Arc<Inner>,
        updates: Vec<OwnedUpdate>,
        durability: Durability,
    ) -> Self {
        Self { inner: Arc::clone(inner), durability, stage: Stage::New(updates) }
    }

    fn waits_until_durable(&self) -> bool {
        self.durability == Durability::Wait
    }

    /// Declares the change.
    fn declare(&self, updates: Vec<OwnedUpdate>, waker: &Waker) -> Result<Stage, Error> {
        let shared = &self.inner.shared;
        shared.check_caller()?;
        if updates.is_empty() {
            // Nothing changes; it is durable when all before it is.
            let last = shared.lock().core.last();
            return Ok(Stage::Accepted(Ticket::new(&self.inner, last)));
        }
        let parked = Parked {
            urgency: self.durability.urgency(),
            waits_until_durable: self.waits_until_durable(),
            began_us: shared.clock.now_us(),
            slot: Mutex::new(Slot { updates, waker: Some(waker.clone()), ..Slot::default() }),
        };
        Ok(match shared.offer_or_park(parked)? {
            Ok(seq) => Stage::Accepted(Ticket::new(&self.inner, seq)),
            Err(parked) => Stage::Parked(parked),
        })
    }

    /// Advances a stage: the next one, and the result of the future if that is the last.
    fn step(
        &self,
        stage: Stage,
        context: &mut Context<'_>,
    ) -> (Stage, Poll<Result<Ticket, Error>>) {
        let accepted = match stage {
            Stage::New(updates) => match self.declare(updates, context.waker()) {
                Ok(Stage::Accepted(ticket)) => ticket,
                Ok(stage) => return (stage, Poll::Pending),
                Err(error) => return (Stage::Over, Poll::Ready(Err(error))),
            },
            Stage::Parked(parked) => {
                let outcome = match self.inner.shared.check_process() {
                    Ok(()) => parked.outcome_or_waker(context.waker()),
                    Err(error) => Some(Err(error)),
                };
                match outcome {
                    None => return (Stage::Parked(parked), Poll::Pending),
                    Some(Ok(seq)) => Ticket::new(&self.inner, seq),
                    Some(Err(error)) => return (Stage::Over, Poll::Ready(Err(error))),
                }
            }
            Stage::Accepted(ticket) => ticket,
            Stage::Over => panic!("a change is polled after its end"),
        };
        if !self.waits_until_durable() {
            return (Stage::Over, Poll::Ready(Ok(accepted)));
        }
        let mut durable = accepted.clone();
        match Pin::new(&mut durable).poll(context) {
            Poll::Ready(outcome) => (Stage::Over, Poll::Ready(outcome.map(|()| accepted))),
            Poll::Pending => (Stage::Accepted(accepted), Poll::Pending),
        }
    }
}

impl Future for PendingChange {
    type Output = Result<Ticket, Error>;

    /// # Panics
    /// If it is polled after completion.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        let (stage, outcome) = self.step(stage, context);
        self.stage = stage;
        outcome
    }
}

impl Drop for PendingChange {
    fn drop(&mut self) {
        let shared = &self.inner.shared;
        // In a fork, a thread of the parent may hold the locks forever.
        if let Stage::Parked(parked) = &self.stage
            && shared.check_process().is_ok()
        {
            parked.take_back(shared);
            // There may be room for those behind it.
            shared.ask_to_admit();
        }
    }
}

/// A change that waits for room, or did.
pub(super) struct Parked {
    urgency: Urgency,
    waits_until_durable: bool,
    began_us: u64,
    slot: Mutex<Slot>,
}

/// The state that a change shares with its future.
#[derive(Default)]
struct Slot {
    /// Empty while they are being submitted.
    updates: Vec<OwnedUpdate>,
    waker: Option<Waker>,
    outcome: Option<Result<Seq, Error>>,
    is_taken_back: bool,
    wait: Option<Wait>,
}

impl Parked {
    /// Its outcome, if it has one; if not, `waker` is woken when it does.
    fn outcome_or_waker(&self, waker: &Waker) -> Option<Result<Seq, Error>> {
        let mut slot = self.slot.lock();
        let outcome = slot.outcome.take();
        if outcome.is_none() && !slot.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            let before = slot.waker.replace(waker.clone());
            drop(slot);
            drop(before);
        }
        outcome
    }

    /// Withdraws it, unless it was already accepted.
    fn take_back(&self, shared: &Shared) {
        let mut slot = self.slot.lock();
        slot.is_taken_back = true;
        let taken = (std::mem::take(&mut slot.updates), slot.waker.take());
        let wait = slot.wait.take();
        drop(slot);
        drop(taken);
        if let Some(wait) = wait {
            wait.end(shared);
        }
    }

    /// Submits it; `None` if it still waits for room, otherwise its outcome, unless it was taken
    /// back.
    fn offer(
        &self,
        core: &mut Core,
        sample: &mut Sampling,
        now_us: u64,
    ) -> Option<Option<Result<Seq, Error>>> {
        let mut slot = self.slot.lock();
        if slot.is_taken_back {
            return Some(None);
        }
        let updates = std::mem::take(&mut slot.updates);
        drop(slot);
        let borrowed: Vec<_> = updates.iter().map(OwnedUpdate::borrow).collect();
        match core.modify(&borrowed, self.urgency, now_us) {
            Ok(Accept::Wait) => {
                let mut slot = self.slot.lock();
                if slot.is_taken_back {
                    return Some(None);
                }
                slot.updates = updates;
                None
            }
            Ok(Accept::Accepted(seq)) => {
                sample.note_accepted(seq, self.began_us);
                Some(Some(Ok(seq)))
            }
            Err(error) => Some(Some(Err(error))),
        }
    }

    /// Stores its outcome, and returns the waker of the task that polls it.
    fn end(&self, shared: &Shared, outcome: Result<Seq, Error>) -> Option<Call> {
        let mut slot = self.slot.lock();
        slot.outcome = Some(outcome);
        let (waker, wait) = (slot.waker.take(), slot.wait.take());
        drop(slot);
        if let Some(wait) = wait {
            wait.end(shared);
        }
        let waker = waker?;
        Some(Box::new(move || waker.wake()))
    }

    /// Ends it because the store has closed.
    pub(super) fn end_closed(&self, shared: &Shared, woken: &mut Woken) {
        let call = self.end(shared, Err(ClosedError::Closed.into()));
        call.into_iter().for_each(|call| woken.call(call));
    }
}

impl Shared {
    /// Submits the change, or parks it; returns its sequence, or its parked state.
    fn offer_or_park(&self, change: Parked) -> Result<Result<Seq, Arc<Parked>>, Error> {
        let mut guard = self.lock();
        // Parked changes are not processed once the store is closed.
        if let Some(reason) = guard.core.closed() {
            return Err(reason.clone().into());
        }
        let State { core, sample, parked, .. } = &mut *guard;
        if parked.is_empty()
            && let Some(Some(outcome)) = change.offer(core, sample, change.began_us)
        {
            let ended = outcome?;
            self.pump(guard);
            return Ok(Ok(ended));
        }
        change.slot.lock().wait = Some(Wait::begin(self, guard.core.wait_cause()));
        let change = Arc::new(change);
        guard.parked.push(Arc::clone(&change));
        self.pump(guard);
        Ok(Err(change))
    }

    /// Asks the driver to submit parked changes.
    pub(super) fn ask_to_admit(&self) {
        if !self.admits.swap(true, Ordering::AcqRel) {
            self.wake_driver();
        }
    }

    /// Whether the driver was asked to submit parked changes.
    pub(super) fn is_asked_to_admit(&self) -> bool {
        self.admits.swap(false, Ordering::AcqRel)
    }

    /// Submits a portion of the parked changes. `is_asked`: because there may be room, not only
    /// because nothing has happened for a while.
    pub(super) fn admit(&self, is_asked: bool) {
        let mut guard = self.lock();
        let now_us = self.clock.now_us();
        let is_asked = is_asked || self.admits.load(Ordering::Acquire);
        let State { core, sample, parked, groups, woken, .. } = &mut *guard;
        let admitted = parked.admit(|first| {
            let Some(ended) = first.offer(core, sample, now_us) else { return Turn::Waits };
            let Some(outcome) = ended else { return Turn::TakenBack };
            self.metrics.admission_unasked_total.add(u64::from(!is_asked));
            let durable = outcome.as_ref().ok().filter(|_| first.waits_until_durable).copied();
            match (first.end(self, outcome), durable) {
                (Some(call), Some(seq)) => groups.of(core, seq).calls().push(call),
                (Some(call), None) => woken.call(call),
                (None, _) => {}
            }
            Turn::Over
        });
        self.pump(guard);
        if admitted.hands_on {
            self.hand_room_on();
        }
        if admitted.asks_again {
            self.ask_to_admit();
        }
    }
}
