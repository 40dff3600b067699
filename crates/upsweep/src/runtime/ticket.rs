//! The handle of a change in flight to stable media.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::block_store::Inner;
use crate::error::Error;
use crate::log::Seq;

/// A change in flight to stable media.
///
/// After [`Durability::Wait`](crate::Durability::Wait) it is already durable. Dropping a ticket
/// does not affect the change, which becomes durable without notice. A ticket is also a [`Future`]
/// for any executor: one thread can have any number of changes in flight.
#[derive(Clone)]
pub struct Ticket {
    inner: Arc<Inner>,
    seq: Seq,
}

impl Ticket {
    pub(super) fn new(inner: &Arc<Inner>, seq: Seq) -> Self {
        Self { inner: Arc::clone(inner), seq }
    }

    /// Waits until the change, and every one before it, is on stable media.
    ///
    /// # Errors
    /// [`Error::Closed`] if a log write failed first: the change may or may not exist after the
    /// store is opened again.
    pub fn wait(&self) -> Result<(), Error> {
        self.inner.shared.wait_durable(self.seq)
    }

    /// Calls `call` once, with the result of [`Ticket::wait`]: on this thread if that is available
    /// at once, otherwise later on the thread of the store that makes all such calls, one after the
    /// other. It may use the store; blocking in it delays other calls and closing the store, but
    /// not updates. A panic in it is ignored.
    pub fn on_durable(&self, call: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let (seq, mut call) = (self.seq, Some(call));
        let shared = Arc::clone(&self.inner.shared);
        let outcome = self.inner.shared.outcome_or(seq, || {
            let call = call.take().expect("it is left once");
            Box::new(move || call(shared.final_outcome(seq)))
        });
        if let Some((outcome, call)) = outcome.zip(call) {
            call(outcome);
        }
    }

    /// Whether the change is on stable media.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.inner.shared.durable() >= self.seq
    }

    /// The position of the change in the store's history; later changes have higher ones.
    #[must_use]
    pub fn sequence(&self) -> Seq {
        self.seq
    }
}

/// Resolves to the result of [`Ticket::wait`], when that is available.
impl Future for Ticket {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = self.inner.shared.outcome_or(self.seq, || {
            let waker = context.waker().clone();
            Box::new(move || waker.wake())
        });
        outcome.map_or(Poll::Pending, Poll::Ready)
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Ticket({})", self.seq)
    }
}
