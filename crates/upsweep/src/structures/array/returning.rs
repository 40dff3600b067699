//! Updates that return the old or new cell.
//!
//! The new cell is logged, not the update that led to it: updates that wait together may be refused
//! as one if they would overflow a cell, and one whose result was returned must never be. See
//! [`BlockStore::modify_if`](crate::runtime::BlockStore::modify_if).

use super::block::updated;
use super::body_format::key_of;
use super::cell_format::{Cell, NumberCell};
use super::handle::{Array, put_operand};
use crate::engine::block_format::UpdateRef;
use crate::engine::ids::Seq;
use crate::engine::modifier::Modifier;
use crate::engine::registry::ModifierId;
use crate::error::Error;
use crate::runtime::{LoggedUpdate, Seen, Ticket, View, Wanted};
use crate::structures::batch::{Structure, Sums};
use crate::structures::modifiers as builtin;
use crate::structures::table::Compared;
use crate::structures::{of_structure, refused};

impl<T: Cell> Array<T> {
    /// Applies `modifier` to the cell at `index` (below 2^48) with `operand`, and returns the
    /// resulting cell. This is atomic: each of several concurrent callers gets the result of its
    /// own update.
    ///
    /// Only with [`Durability::Wait`](crate::Durability::Wait) is the returned cell durable;
    /// otherwise a crash may lose the update, and another caller may then get the same cell.
    ///
    /// Unlike [`Array::modify`] this needs the current cell: cost as [`Array::get`], one device
    /// read for a block that is not in memory, then as [`Array::set`]. Callers that change the same
    /// cell concurrently retry, in memory, once for each that precedes them.
    ///
    /// # Errors
    /// As [`Array::get`] and [`Array::modify`]; [`RequestError::Refused`] if the modifier refuses
    /// the current cell, or its result does not fit the cell; all with nothing changed.
    ///
    /// [`RequestError::Refused`]: crate::RequestError::Refused
    pub fn modify_and_get(
        &self,
        index: u64,
        modifier: &dyn Modifier,
        operand: &[u8],
    ) -> Result<(T, Ticket), Error> {
        self.update_and_get(index, self.blocks().modifier_id(modifier)?, operand)
    }

    /// As [`Array::modify_and_get`], by the number of the modifier in this store.
    ///
    /// # Errors
    /// As [`Array::modify_and_get`].
    pub fn update_and_get(
        &self,
        index: u64,
        modifier: ModifierId,
        operand: &[u8],
    ) -> Result<(T, Ticket), Error> {
        let (_, after, ticket) = self.update_seen(index, modifier, operand)?;
        Ok((after, ticket))
    }

    /// Sets the cell at `index` (below 2^48) to `cell` if it is `expected`, byte for byte. Cost as
    /// [`Array::modify_and_get`]; nothing is logged if it differs.
    ///
    /// # Errors
    /// As [`Array::get`] and [`Array::set`].
    pub fn compare_and_set(&self, index: u64, expected: T, cell: T) -> Result<Compared<T>, Error> {
        let expected = expected.encode();
        loop {
            let (wanted, view, found) = self.see(index)?;
            if found.encode() != expected {
                return Ok(Compared::Differs(found));
            }
            if let Some(ticket) = self.set_if(index, (&wanted, &view), cell)? {
                return Ok(Compared::Done(ticket));
            }
        }
    }

    /// Applies an update, and returns the cell before and after.
    fn update_seen(
        &self,
        index: u64,
        modifier: ModifierId,
        operand: &[u8],
    ) -> Result<(T, T, Ticket), Error> {
        self.check(&index, modifier, operand)?;
        let key = key_of(index);
        loop {
            let (wanted, view, before) = self.see(index)?;
            let update = UpdateRef { seq: Seq::NONE, modifier, key: &key, operand };
            let after = updated(T::KIND, self.modifiers(), before.encode(), &update)
                .map_err(|reason| refused(self.modifiers(), modifier, reason))?;
            let after = T::decode(&after).expect("a cell keeps its length");
            if let Some(ticket) = self.set_if(index, (&wanted, &view), after)? {
                return Ok((before, after, ticket));
            }
        }
    }

    /// Sets the cell if it has not changed since its block was read.
    fn set_if(
        &self,
        index: u64,
        (wanted, view): (&Wanted, &View),
        cell: T,
    ) -> Result<Option<Ticket>, Error> {
        let (space, key, operand) = (self.space(), key_of(index), put_operand(cell));
        let seen = Seen { space, wanted, view };
        let update = LoggedUpdate { space, modifier: builtin::PUT, key: &key, operand: &operand };
        let ticket = self.blocks().modify_if(&[seen], &[update], self.durability());
        ticket.map_err(|error| of_structure(error, self.name()))
    }
}

impl<T: NumberCell> Array<T> {
    /// Adds to the cell at `index` (below 2^48), and returns the sum. 64-bit integers wrap around
    /// at the ends of their range. Cost as [`Array::modify_and_get`].
    ///
    /// # Errors
    /// As [`Array::modify_and_get`]: a sum that does not fit a narrower cell is refused at once.
    pub fn add_and_get(&self, index: u64, amount: T) -> Result<(T, Ticket), Error> {
        let (modifier, operand) = Self::sum(amount);
        self.update_and_get(index, modifier, &operand)
    }

    /// As [`Array::add_and_get`], but returns the cell before.
    ///
    /// # Errors
    /// As [`Array::add_and_get`].
    pub fn fetch_add(&self, index: u64, amount: T) -> Result<(T, Ticket), Error> {
        let (modifier, operand) = Self::sum(amount);
        let (before, _, ticket) = self.update_seen(index, modifier, &operand)?;
        Ok((before, ticket))
    }
}
