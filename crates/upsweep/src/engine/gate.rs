//! Whether the store accepts updates, and whether it starts work by itself.

use crate::error::{ClosedError, Error};

/// Whether a store is opened for writing or only for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Updates and sweeps are allowed.
    ReadWrite,
    /// As [`Access::ReadWrite`], but modifiers of the application may be missing, and then its
    /// updates are refused, and blocks for which updates of such modifiers wait are not swept.
    /// Memory may exceed the budget.
    Upkeep,
    /// Nothing is written under any circumstances; memory may exceed the budget. Modifiers of the
    /// application may be missing.
    ReadOnly,
}

/// What is admitted.
#[derive(Default)]
pub(super) struct Gate {
    closed: Option<ClosedError>,
    /// It is about to be closed: updates are refused.
    is_closing: bool,
    /// No run, checkpoint or growth starts; those in progress finish.
    is_paused: bool,
}

impl Gate {
    /// Whether calls are accepted.
    ///
    /// # Errors
    /// [`ClosedError`] with the reason: open the store again once its cause is gone.
    pub(super) fn check_open(&self) -> Result<(), Error> {
        match &self.closed {
            Some(closed) => Err(closed.clone().into()),
            None if self.is_closing => Err(ClosedError::Closed.into()),
            None => Ok(()),
        }
    }

    /// Refuses everything from now on, for this reason (the first one counts).
    pub(super) fn close(&mut self, reason: ClosedError) {
        self.closed.get_or_insert(reason);
    }

    /// Refuses updates from now on, and starts no other work.
    pub(super) fn begin_close(&mut self) {
        self.is_closing = true;
        self.is_paused = true;
    }

    /// Starts no work until [`Gate::resume`].
    pub(super) fn pause(&mut self) {
        self.is_paused = true;
    }

    pub(super) fn resume(&mut self) {
        debug_assert!(!self.is_closing, "a closing store starts no work");
        self.is_paused = false;
    }

    /// Why the store accepts no more updates, if it does not.
    pub(super) fn closed(&self) -> Option<&ClosedError> {
        self.closed.as_ref()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_counts_and_pausing_refuses_nobody() {
        let mut gate = Gate::default();
        gate.pause();
        assert!(gate.is_paused() && gate.check_open().is_ok());
        gate.resume();
        gate.begin_close();
        assert!(gate.is_paused() && gate.is_closing() && !gate.is_closed());
        assert_eq!(gate.check_open(), Err(ClosedError::Closed.into()));
        gate.close(ClosedError::Forked);
        gate.close(ClosedError::Closed);
        assert_eq!(gate.closed(), Some(&ClosedError::Forked));
        assert_eq!(gate.check_open(), Err(ClosedError::Forked.into()));
    }
}
