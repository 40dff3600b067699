//! Changes that are made only if what was seen still holds.

use super::block_store::BlockStore;
use super::options::Durability;
use super::shared::Shared;
use super::stall::Stall;
use super::ticket::Ticket;
use crate::engine::{Accept, Conditional, Core, LoggedUpdate, Seen};
use crate::error::Error;
use crate::log::{Seq, Urgency};

impl BlockStore {
    /// As [`BlockStore::modify`], if each view would show now what was seen; `None` if not, with
    /// nothing changed: view and compute anew. So what follows from what was seen is exact.
    ///
    /// Whoever gets `None` meets a change of somebody else, or a sweep of the block: of several
    /// callers for one key, one always succeeds. Cost: that of the views once more, without a read.
    ///
    /// # Errors
    /// As [`BlockStore::modify`] and [`BlockStore::view`].
    pub fn modify_if(
        &self,
        seen: &[Seen<'_>],
        updates: &[LoggedUpdate<'_>],
        durability: Durability,
    ) -> Result<Option<Ticket>, Error> {
        let waits = durability == Durability::Wait;
        let seq = self.inner.shared.submit_if(seen, updates, durability.urgency(), waits)?;
        Ok(seq.map(|seq| Ticket::new(&self.inner, seq)))
    }
}

impl Shared {
    /// As [`Shared::submit`], if what was seen still holds.
    fn submit_if(
        &self,
        seen: &[Seen<'_>],
        updates: &[LoggedUpdate<'_>],
        urgency: Urgency,
        waits: bool,
    ) -> Result<Option<Seq>, Error> {
        self.check_caller()?;
        let began_us = self.clock.now_us();
        let mut stall = Stall::none(self);
        let mut guard = self.lock();
        loop {
            let now_us = self.clock.now_us();
            match guard.core.modify_if(seen, updates, urgency, now_us)? {
                Conditional::Holds(Accept::Accepted(seq)) => {
                    guard.sample.note_accepted(seq, began_us);
                    stall.end();
                    self.pump_and_wait(guard, waits.then_some(seq))?;
                    return Ok(Some(seq));
                }
                Conditional::Holds(Accept::Wait) => guard = self.wait_for_room(guard, &mut stall),
                Conditional::Changed => return Ok(None),
                Conditional::Unsettled => {
                    drop(guard);
                    let are_settled =
                        |core: &Core| seen.iter().all(|seen| core.is_settled(seen.space));
                    return self.wait_until(|core| are_settled(core).then_some(None));
                }
            }
        }
    }
}
