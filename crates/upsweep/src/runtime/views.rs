//! Callers that wait for views: threads, which read the block themselves, and futures.
//!
//! Invariant: an answer is stored with its waiter before the waiter is notified, so neither is
//! lost.

#![expect(clippy::disallowed_methods, reason = "the runtime is where threads meet")]

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::commit::{Call, Woken};
use super::shared::{Locked, Shared};
use crate::engine::{Core, SpaceId, View, ViewId, ViewPoll, ViewRead, Wanted};
use crate::error::{ClosedError, Error};
use crate::metrics::LockCause;

type Answer = Result<View, Error>;

/// A waiter for a view that another thread reads.
#[derive(Default)]
pub(super) struct ViewWaiter(Mutex<Awaited>);

#[derive(Default)]
struct Awaited {
    answer: Option<Answer>,
    waiter: Option<Tell>,
}

/// How to notify the waiter.
enum Tell {
    Thread(Thread),
    Call(Call),
}

impl ViewWaiter {
    /// Stores the answer; the waiter is notified together with the others in `woken`.
    pub(super) fn answer(&self, answer: Answer, woken: &mut Woken) {
        let mut awaited = self.0.lock();
        awaited.answer = Some(answer);
        match awaited.waiter.take() {
            Some(Tell::Thread(thread)) => woken.thread(thread),
            Some(Tell::Call(call)) => woken.call(call),
            None => {}
        }
    }

    /// The answer if it has arrived; if not, the waiter is notified when it does.
    fn take(&self, tell: impl FnOnce() -> Tell) -> Option<Answer> {
        let mut awaited = self.0.lock();
        let answer = awaited.answer.take();
        if answer.is_none() {
            awaited.waiter = Some(tell());
        }
        answer
    }
}

/// A view that is requested when first polled; a [`Future`] for any executor. The driver of the
/// store processes the device read, so no thread blocks.
#[must_use = "a view is asked for when it is first polled"]
pub struct PendingView {
    shared: Arc<Shared>,
    state: State,
}

enum State {
    New { space: SpaceId, wanted: Wanted },
    Waits { id: ViewId, waiter: Arc<ViewWaiter>, began_us: u64 },
    Over,
}

impl std::fmt::Debug for PendingView {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match &self.state {
            State::New { .. } => "not asked for",
            State::Waits { .. } => "on its way",
            State::Over => "over",
        };
        formatter.debug_tuple("PendingView").field(&state).finish()
    }
}

impl PendingView {
    pub(super) fn new(shared: Arc<Shared>, space: SpaceId, wanted: Wanted) -> Self {
        Self { shared, state: State::New { space, wanted } }
    }
}

impl Future for PendingView {
    type Output = Answer;

    /// # Panics
    /// If it is polled after completion.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let view = &mut *self;
        let state = match std::mem::replace(&mut view.state, State::Over) {
            State::New { space, wanted } => match view.shared.begin_view(space, wanted) {
                Ok(Begun::Ready(found)) => return Poll::Ready(Ok(found)),
                Ok(Begun::Waits(id, waiter)) => {
                    State::Waits { id, waiter, began_us: view.shared.clock.now_us() }
                }
                Err(error) => return Poll::Ready(Err(error)),
            },
            state @ State::Waits { .. } => state,
            State::Over => panic!("a view is polled after its end"),
        };
        let State::Waits { waiter, began_us, .. } = &state else {
            unreachable!("it was asked for")
        };
        let tell = || {
            let waker = context.waker().clone();
            Tell::Call(Box::new(move || waker.wake()))
        };
        match waiter.take(tell) {
            Some(answer) => Poll::Ready(view.shared.end_view(*began_us, answer)),
            None => {
                view.state = state;
                Poll::Pending
            }
        }
    }
}

impl Drop for PendingView {
    fn drop(&mut self) {
        if let State::Waits { id, .. } = self.state {
            self.shared.forget_view(id);
        }
    }
}

enum Begun {
    Ready(View),
    Waits(ViewId, Arc<ViewWaiter>),
}

impl Shared {
    /// Gathers what a query needs, waiting for the device if necessary.
    pub(super) fn view(&self, space: SpaceId, wanted: Wanted) -> Answer {
        self.view_with(LockCause::Query, |core| core.view(space, wanted))
    }

    /// The view that `ask` requests, waiting for the device if necessary.
    pub(super) fn view_with(
        &self,
        cause: LockCause,
        ask: impl FnOnce(&mut Core) -> Result<ViewPoll, Error>,
    ) -> Answer {
        self.check_caller()?;
        let mut guard = self.lock_for(cause);
        let id = match ask(&mut guard.core)? {
            ViewPoll::Ready(view) => {
                self.pump_views(guard);
                return Ok(view);
            }
            ViewPoll::Pending(id) => id,
        };
        let began_us = self.clock.now_us();
        // A caller that waits for a block may as well read it itself, which saves waking another
        // thread.
        let answer = loop {
            let Some(read) = guard.core.take_read(id) else {
                break self.wait_for_view(guard, id);
            };
            self.pump_views(guard);
            let checked = read.run(|request| self.performer.perform(request));
            guard = self.lock_for(LockCause::Query);
            if let Some(answer) = guard.core.complete_read(id, checked) {
                self.pump_views(guard);
                break answer;
            }
        };
        self.end_view(began_us, answer)
    }

    /// As [`Shared::view`], for several blocks: what has to be read for them is in flight at the
    /// same time, where the host can.
    pub(super) fn views(&self, space: SpaceId, wanted: Vec<Wanted>) -> Vec<Answer> {
        if let Err(error) = self.check_caller() {
            return wanted.iter().map(|_| Err(error.clone())).collect();
        }
        let mut guard = self.lock_for(LockCause::Query);
        let polled: Vec<_> =
            wanted.into_iter().map(|wanted| guard.core.view(space, wanted)).collect();
        let pending = polled.iter().filter_map(|poll| match poll {
            Ok(ViewPoll::Pending(id)) => Some(*id),
            _ => None,
        });
        let pending = pending.collect();
        let began_us = self.clock.now_us();
        let mut answers = self.read_views(guard, pending);
        let answer = |polled: Result<ViewPoll, Error>| match polled? {
            ViewPoll::Ready(view) => Ok(view),
            ViewPoll::Pending(id) => {
                let answer = answers.remove(&id).expect("each pending view is answered");
                self.end_view(began_us, answer)
            }
        };
        polled.into_iter().map(answer).collect()
    }

    /// Reads what these views need, and waits for what other threads read.
    fn read_views<'a>(
        &'a self,
        mut guard: Locked<'a>,
        mut pending: Vec<ViewId>,
    ) -> BTreeMap<ViewId, Answer> {
        let (mut answers, mut waiters) = (BTreeMap::new(), Vec::new());
        loop {
            let (mut ids, mut reads) = (Vec::new(), Vec::new());
            for id in pending.drain(..) {
                match guard.core.take_read(id) {
                    Some(read) => {
                        ids.push(id);
                        reads.push(read);
                    }
                    None => waiters.push((id, self.await_view(&mut guard, id))),
                }
            }
            self.pump_views(guard);
            if reads.is_empty() {
                break;
            }
            let perform_all = |requests| self.performer.perform_all(requests);
            let checked = ViewRead::run_all(reads, perform_all);
            guard = self.lock_for(LockCause::Query);
            for (id, checked) in ids.into_iter().zip(checked) {
                match guard.core.complete_read(id, checked) {
                    Some(answer) => drop(answers.insert(id, answer)),
                    None => pending.push(id),
                }
            }
        }
        let waited = waiters.into_iter().map(|(id, waiter)| (id, self.wait_for_answer(&waiter)));
        answers.extend(waited);
        answers
    }

    /// As [`Shared::pump`], but only if it does something for views of others.
    fn pump_views(&self, guard: Locked<'_>) {
        if guard.core.has_views_to_pump() {
            self.pump(guard);
        }
    }

    /// Waits for a view whose block another thread reads.
    fn wait_for_view(&self, mut guard: Locked<'_>, id: ViewId) -> Answer {
        let waiter = self.await_view(&mut guard, id);
        self.pump(guard);
        self.wait_for_answer(&waiter)
    }

    /// A waiter for a view whose block another thread reads.
    fn await_view(&self, guard: &mut Locked<'_>, id: ViewId) -> Arc<ViewWaiter> {
        let waiter = Arc::new(ViewWaiter::default());
        if self.has_ended() {
            waiter.0.lock().answer = Some(Err(ClosedError::Closed.into()));
        } else {
            guard.view_waiters.insert(id, Arc::clone(&waiter));
        }
        waiter
    }

    fn wait_for_answer(&self, waiter: &ViewWaiter) -> Answer {
        loop {
            if let Some(answer) = waiter.take(|| Tell::Thread(std::thread::current())) {
                return answer;
            }
            if !self.lend_hands() {
                std::thread::park();
            }
        }
    }

    /// Requests a view that another thread reads.
    fn begin_view(&self, space: SpaceId, wanted: Wanted) -> Result<Begun, Error> {
        self.check_caller()?;
        let mut guard = self.lock_for(LockCause::Query);
        match guard.core.view(space, wanted)? {
            ViewPoll::Ready(view) => Ok(Begun::Ready(view)),
            ViewPoll::Pending(id) => {
                let waiter = self.await_view(&mut guard, id);
                self.pump(guard);
                Ok(Begun::Waits(id, waiter))
            }
        }
    }

    fn end_view(&self, began_us: u64, answer: Answer) -> Answer {
        let us = self.clock.now_us() - began_us;
        self.metrics.query_seconds.record_shared(Duration::from_micros(us));
        // After the store has closed, another process may have written where this one read.
        if self.has_ended() { Err(ClosedError::Closed.into()) } else { answer }
    }

    /// Cancels a view whose caller no longer wants it.
    fn forget_view(&self, id: ViewId) {
        // Code that the core calls cannot cancel; then the answer is discarded.
        if self.check_caller().is_ok() {
            let mut guard = self.lock_for(LockCause::Query);
            guard.view_waiters.remove(&id);
            guard.core.forget_view(id);
        }
    }
}
