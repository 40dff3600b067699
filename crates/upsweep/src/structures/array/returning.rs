//! Updates of cells that tell what they have found or made.
//!
//! What is logged is the new cell, not the update that led to it: updates that wait together may be
//! refused as one where they would overflow a cell, and one whose result was told must never be.
//! See [`BlockStore::modify_if`](crate::runtime::BlockStore::modify_if).

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
    /// Applies `modifier` to the cell at `index` (below 2^48) with `operand`, and returns the cell
    /// that this has made. Nobody else's change comes between: of any callers at once, each gets
    /// the cell that its own update has made.
    ///
    /// Only with [`Durability::Wait`](crate::Durability::Wait) is what is returned durable by then;
    /// otherwise a crash may take the update, and somebody else gets the same cell after it.
    ///
    /// Unlike [`Array::modify`] this has to know the cell: cost as [`Array::get`], one read of the
    /// device for a block that is in no memory, then as [`Array::set`]. Callers that change one
    /// cell at the same time start again, in memory, for each other one that comes before them.
    ///
    /// # Errors
    /// As [`Array::get`] and [`Array::modify`]; [`RequestError::Refused`] if the modifier refuses
    /// the cell that is there, or what it makes of it fits no cell; all with nothing changed.
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

    /// Sets the cell at `index` (below 2^48) to `cell`, if it is `expected`, byte for byte. Cost as
    /// [`Array::modify_and_get`]; nothing is logged if it is another.
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

    /// Applies an update, and tells the cell before and after.
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

    /// Sets the cell, if nothing about it has changed since its block was seen.
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
    /// As [`Array::modify_and_get`]: a sum that fits no narrower cell is refused at once.
    pub fn add_and_get(&self, index: u64, amount: T) -> Result<(T, Ticket), Error> {
        let (modifier, operand) = Self::sum(amount);
        self.update_and_get(index, modifier, &operand)
    }

    /// As [`Array::add_and_get`], and returns the cell as it was before.
    ///
    /// # Errors
    /// As [`Array::add_and_get`].
    pub fn fetch_add(&self, index: u64, amount: T) -> Result<(T, Ticket), Error> {
        let (modifier, operand) = Self::sum(amount);
        let (before, _, ticket) = self.update_seen(index, modifier, &operand)?;
        Ok((before, ticket))
    }
}
