//! What a caller has of a change that is on its way to stable media.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::block_store::Inner;
use crate::error::Error;
use crate::log::Seq;

/// A change on its way to stable media.
///
/// After [`Durability::Wait`](crate::Durability::Wait) it is there already. A ticket that is
/// dropped changes nothing: the change becomes durable all the same, and nobody is told. It is a
/// [`Future`] too, of no particular executor: one thread can have any number of changes in flight.
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
    /// [`Error::Closed`] if a log write failed first: the change may or may not be there after the
    /// store is opened again.
    pub fn wait(&self) -> Result<(), Error> {
        self.inner.shared.wait_durable(self.seq)
    }

    /// Has `call` called once, with what [`Ticket::wait`] would return: by this thread if that
    /// would return at once, else, when it would, by the thread of the store that makes all such
    /// calls, one after the other. It may use the store; what it waits for holds up other calls,
    /// and the end of the store, but no updates. Nobody is told if it panics.
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

/// Resolves to what [`Ticket::wait`] returns, when that returns.
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
