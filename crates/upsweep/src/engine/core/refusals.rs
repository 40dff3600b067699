//! Answers to updates that are not accepted: the caller waits, or gets the reason for permanent
//! refusal.

use super::Core;
use crate::engine::accept::{Accept, Offer};
use crate::engine::policy::Shortage;
use crate::error::{Error, RequestError, RetryError};
use crate::log::AppendError;

impl Core {
    /// Makes the caller wait for what is short, unless nothing will ever make more of it.
    pub(super) fn refuse_for(&mut self, shortage: Shortage) -> Result<Accept, Error> {
        if self.is_out_of_room() {
            return Err(self.full_error());
        }
        if shortage == Shortage::Log {
            self.base.waiters.refuse_for_log_fill();
        }
        self.wait(shortage)
    }

    /// Answers the caller whose record the log did not take.
    pub(super) fn refuse_after(
        &mut self,
        error: &AppendError,
        offer: &Offer,
    ) -> Result<Accept, Error> {
        match error {
            AppendError::Busy => {
                self.base.refuse_for_pipeline();
                Ok(Accept::Wait)
            }
            AppendError::Full => {
                // Batches that wait may need less room than was reserved for them.
                self.base.waiters.refuse_for_pipeline();
                let refused = self.wait(Shortage::Log);
                if self.base.index.is_full() { Err(self.full_error()) } else { refused }
            }
            AppendError::TooLong { .. } => {
                let (bytes, limit) = (offer.bytes, self.base.fixed.record_bytes_max);
                Err(RequestError::BatchTooLong { bytes, limit }.into())
            }
            AppendError::Failed => {
                let closed = self.base.gate.closed().cloned();
                Err(closed.map_or(RetryError::Busy.into(), Error::from))
            }
        }
    }

    /// Makes the caller wait for room, unless a missing modifier may prevent it from being made.
    fn wait(&mut self, shortage: Shortage) -> Result<Accept, Error> {
        if let Some(missing) = self.base.missing_modifier() {
            return Err(missing);
        }
        self.base.refuse(shortage);
        Ok(Accept::Wait)
    }
}
