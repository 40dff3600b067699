//! Updates that return the old or new value: read, compute, and declare if nothing changed in
//! between.
//!
//! The requested update is logged, not its result. That is exact, because it is accepted only if
//! the value is still the one that was read: see
//! [`BlockStore::modify_if`](crate::runtime::BlockStore::modify_if).

use super::handle::{AsValue, Table, Value};
use super::order::Order;
use crate::engine::block_format::UpdateRef;
use crate::engine::ids::Seq;
use crate::engine::modifier::{Modifier, ValueKind, ValueRef};
use crate::engine::registry::ModifierId;
use crate::error::Error;
use crate::runtime::{LoggedUpdate, Seen, Ticket, View, Wanted};
use crate::structures::batch::{Structure, Sums};
use crate::structures::modifiers::{self as builtin, Resolved, resolve};
use crate::structures::{of_structure, refused};

/// The outcome of a change conditional on an expected value.
#[derive(Clone, Debug)]
#[must_use = "the change may not have been made"]
pub enum Compared<V> {
    /// The value was as expected, and was changed.
    Done(Ticket),
    /// The value is this one instead, and was not changed.
    Differs(V),
}

impl<V> Compared<V> {
    /// Whether the value was as expected.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

/// The value before and after an update.
pub(crate) struct Updated<V> {
    pub(crate) before: V,
    pub(crate) after: V,
    pub(crate) ticket: Ticket,
}

impl<O: Order> Table<O> {
    /// Applies `modifier` to `key` with `operand`, and returns the resulting value; `None` if the
    /// key then has none. This is atomic: each of several concurrent callers gets the result of its
    /// own update.
    ///
    /// With [`Durability::Wait`](crate::Durability::Wait) the returned value is durable. With
    /// another durability it may not be yet: a crash may lose the update, and another caller may
    /// then get the same value.
    ///
    /// Unlike [`Table::modify`] this needs the current value: cost as [`Table::get`], one device
    /// read for a key that is not in memory, then as [`Table::modify`]. Callers that change the
    /// same key concurrently retry, in memory, once for each that precedes them.
    ///
    /// # Errors
    /// As [`Table::get`] and [`Table::modify`]; [`RequestError::Refused`] if the modifier refuses
    /// the current value; all with nothing changed.
    ///
    /// [`RequestError::Refused`]: crate::RequestError::Refused
    pub fn modify_and_get(
        &self,
        key: &[u8],
        modifier: &dyn Modifier,
        operand: &[u8],
    ) -> Result<(Option<Value>, Ticket), Error> {
        self.update_and_get(key, self.blocks().modifier_id(modifier)?, operand)
    }

    /// As [`Table::modify_and_get`], by the number of the modifier in this store.
    ///
    /// # Errors
    /// As [`Table::modify_and_get`].
    pub fn update_and_get(
        &self,
        key: &[u8],
        modifier: ModifierId,
        operand: &[u8],
    ) -> Result<(Option<Value>, Ticket), Error> {
        let Updated { after, ticket, .. } = self.update_seen(key, modifier, operand)?;
        Ok((after, ticket))
    }

    /// Adds to a signed integer, from 0 if there is none, and returns the sum. It wraps around at
    /// the ends of its range. Cost as [`Table::modify_and_get`].
    ///
    /// # Errors
    /// As [`Table::modify_and_get`].
    pub fn add_and_get(&self, key: &[u8], amount: i64) -> Result<(i64, Ticket), Error> {
        let (before, ticket) = self.fetch_add(key, amount)?;
        Ok((before.wrapping_add(amount), ticket))
    }

    /// Adds to a signed integer, and returns its value before, 0 if there was none. Concurrent
    /// callers get different numbers. Cost as [`Table::modify_and_get`].
    ///
    /// # Errors
    /// As [`Table::modify_and_get`].
    pub fn fetch_add(&self, key: &[u8], amount: i64) -> Result<(i64, Ticket), Error> {
        let (modifier, operand) = Self::sum(amount);
        let Updated { before, ticket, .. } = self.update_seen(key, modifier, &operand)?;
        // Anything but an integer was refused.
        Ok((before.and_then(|value| value.as_i64()).unwrap_or(0), ticket))
    }

    /// Sets `key` to the bytes `value` if its current value is `expected` (`None`: no value). Cost
    /// as [`Table::modify_and_get`]; nothing is logged if it differs.
    ///
    /// # Errors
    /// As [`Table::get`] and [`Table::put`].
    pub fn compare_and_put(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<Compared<Option<Value>>, Error> {
        let expected = expected.map(|bytes| ValueRef { kind: ValueKind::Bytes, bytes });
        let operand = builtin::value_operand(ValueKind::Bytes, value);
        self.compare_and_update(key, expected, builtin::PUT, &operand)
    }

    /// Removes `key` if its current value is `expected`. Cost as [`Table::compare_and_put`].
    ///
    /// # Errors
    /// As [`Table::get`] and [`Table::delete`].
    pub fn compare_and_delete(
        &self,
        key: &[u8],
        expected: &[u8],
    ) -> Result<Compared<Option<Value>>, Error> {
        let expected = ValueRef { kind: ValueKind::Bytes, bytes: expected };
        self.compare_and_update(key, Some(expected), builtin::DELETE, &[])
    }

    /// Applies an update, if the value is the expected one.
    pub(crate) fn compare_and_update(
        &self,
        key: &[u8],
        expected: Option<ValueRef<'_>>,
        modifier: ModifierId,
        operand: &[u8],
    ) -> Result<Compared<Option<Value>>, Error> {
        loop {
            let (leaf, found) = self.see(key)?;
            if found.as_ref().map(AsValue::as_value) != expected {
                return Ok(Compared::Differs(found));
            }
            if let Some(ticket) = self.update_if(key, &leaf, modifier, operand)? {
                return Ok(Compared::Done(ticket));
            }
        }
    }

    /// Applies an update, and returns the value before and after.
    pub(crate) fn update_seen(
        &self,
        key: &[u8],
        modifier: ModifierId,
        operand: &[u8],
    ) -> Result<Updated<Option<Value>>, Error> {
        loop {
            let (leaf, before) = self.see(key)?;
            let after = self.outcome(key, before.as_ref(), modifier, operand)?;
            if let Some(ticket) = self.update_if(key, &leaf, modifier, operand)? {
                return Ok(Updated { before, after, ticket });
            }
        }
    }

    /// Declares an update if `key` has not changed since its leaf was read.
    fn update_if(
        &self,
        key: &[u8],
        leaf: &View,
        modifier: ModifierId,
        operand: &[u8],
    ) -> Result<Option<Ticket>, Error> {
        let wanted = Wanted::Point(key.to_vec());
        let seen = Seen { space: self.space(), wanted: &wanted, view: leaf };
        let update = LoggedUpdate { space: self.space(), modifier, key, operand };
        let ticket = self.blocks().modify_if(&[seen], &[update], self.durability());
        ticket.map_err(|error| of_structure(error, self.name()))
    }

    /// The result of applying an update to the value of `key`.
    fn outcome(
        &self,
        key: &[u8],
        before: Option<&Value>,
        modifier: ModifierId,
        operand: &[u8],
    ) -> Result<Option<Value>, Error> {
        let modifiers = self.blocks().modifiers();
        let update = UpdateRef { seq: Seq::NONE, modifier, key, operand };
        let current = before.map(AsValue::as_value);
        let mut reason = None;
        let mut refuse = |_, given| reason = Some(given);
        let resolved = resolve(&modifiers, key, current, &[update], &mut refuse);
        if let Some(reason) = reason {
            return Err(refused(&modifiers, modifier, reason));
        }
        Ok(match resolved {
            Resolved::Unchanged => before.cloned(),
            Resolved::Put(kind, bytes) => Some(Value { kind, bytes: bytes.into_owned() }),
            Resolved::Delete => None,
        })
    }
}
