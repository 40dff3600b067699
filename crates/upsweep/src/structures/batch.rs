//! Batches: changes of several structures of a store that take effect together or not at all.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::{modifiers as builtin, of_structure};
use crate::engine::ids::SpaceId;
use crate::engine::modifier::Modifier;
use crate::engine::registry::ModifierId;
use crate::error::{Error, RequestError};
use crate::runtime::{BlockStore, Durability, Moment, OwnedUpdate, PendingChange, Ticket};

/// A named part of a store that takes updates of its records: a [`Table`](crate::Table), a
/// [`HashTable`](crate::HashTable), an [`Array`](crate::Array) or a structure of another crate. Its
/// `_async` methods change a record without blocking the thread, even while there is no room.
pub trait Structure {
    /// The key of a record: bytes in a table, an index in an array.
    type Key: ?Sized;
    /// The value of a record. [`Infallible`](std::convert::Infallible) if records are not put.
    type Value: ?Sized;

    /// Its name.
    fn name(&self) -> &str;

    /// The number of its space in the block API.
    fn space(&self) -> SpaceId;

    /// The store that it belongs to.
    fn blocks(&self) -> &BlockStore;

    /// When its changes return.
    fn durability(&self) -> Durability;

    /// The key of a record as its block format takes it.
    fn key_bytes(key: &Self::Key) -> Vec<u8>;

    /// The operand with which the built-in modifier `put` sets a record to this value: see
    /// [`value_operand`](crate::structures::modifiers::value_operand).
    fn put_operand(value: &Self::Value) -> Vec<u8>;

    /// Refuses an update that the structure can never accept. Others are declared, and go to the
    /// quarantine if the block format refuses them.
    ///
    /// # Errors
    /// A [`RequestError`] that says why; [`Batch::commit`] returns it.
    fn check(&self, key: &Self::Key, modifier: ModifierId, operand: &[u8]) -> Result<(), Error> {
        let _ = (key, modifier, operand);
        Ok(())
    }

    /// Declares an update by the number of its modifier, without blocking the thread. It resolves
    /// to a ticket when a blocking call would return one: when the update is durable or, with
    /// another [`Durability`] of the handle, once there was room for it. See [`PendingCommit`].
    fn update_async(&self, key: &Self::Key, modifier: ModifierId, operand: &[u8]) -> PendingCommit
    where
        Self: Sized,
    {
        let mut batch = Batch::new(self.blocks().clone());
        batch.update(self, key, modifier, operand);
        batch.commit_async(self.durability())
    }

    /// As [`Structure::update_async`], by the modifier itself. It resolves to
    /// [`RequestError::UnknownModifier`] if that is not registered with the store.
    fn modify_async(
        &self,
        key: &Self::Key,
        modifier: &dyn Modifier,
        operand: &[u8],
    ) -> PendingCommit
    where
        Self: Sized,
    {
        let mut batch = Batch::new(self.blocks().clone());
        if let Err(error) = batch.modify(self, key, modifier, operand).map(drop) {
            batch.refuse(error);
        }
        batch.commit_async(self.durability())
    }

    /// Sets a record to this value, as [`Table::put`](crate::Table::put) and
    /// [`Array::set`](crate::Array::set), without blocking the thread: see
    /// [`Structure::update_async`].
    fn put_async(&self, key: &Self::Key, value: &Self::Value) -> PendingCommit
    where
        Self: Sized,
    {
        let mut batch = Batch::new(self.blocks().clone());
        batch.put(self, key, value);
        batch.commit_async(self.durability())
    }

    /// Removes a record, as [`Table::delete`](crate::Table::delete) and
    /// [`Array::clear`](crate::Array::clear), without blocking the thread: see
    /// [`Structure::update_async`].
    fn delete_async(&self, key: &Self::Key) -> PendingCommit
    where
        Self: Sized,
    {
        self.update_async(key, builtin::DELETE, &[])
    }
}

/// A [`Structure`] whose records can be numbers.
pub trait Sums: Structure {
    /// What can be added to a record.
    type Amount;

    /// Modifier and operand that add this amount.
    fn sum(amount: Self::Amount) -> (ModifierId, Vec<u8>);

    /// Adds to a record, as [`Table::add`](crate::Table::add) and
    /// [`Array::add`](crate::Array::add), without blocking the thread: see
    /// [`Structure::update_async`].
    fn add_async(&self, key: &Self::Key, amount: Self::Amount) -> PendingCommit
    where
        Self: Sized,
    {
        let mut batch = Batch::new(self.blocks().clone());
        batch.add(self, key, amount);
        batch.commit_async(self.durability())
    }
}

/// Several changes, of one or more structures of a store, that take effect together or not at all.
#[derive(Debug)]
pub struct Batch {
    blocks: BlockStore,
    updates: Vec<OwnedUpdate>,
    /// The names of the structures, ordered by the numbers of their spaces.
    names: Vec<(SpaceId, String)>,
    /// The updates that carry the time at which they are declared.
    declared: Vec<usize>,
    /// The error of the first invalid update.
    fault: Option<Error>,
}

impl Batch {
    pub(crate) fn new(blocks: BlockStore) -> Self {
        Self { blocks, updates: Vec::new(), names: Vec::new(), declared: Vec::new(), fault: None }
    }

    /// Adds an update by the number of its modifier. [`Batch::commit`] refuses the batch if
    /// `structure` belongs to a different store, or can never accept the update.
    pub fn update<S: Structure>(
        &mut self,
        structure: &S,
        key: &S::Key,
        modifier: ModifierId,
        operand: &[u8],
    ) -> &mut Self {
        self.push(structure, key, modifier, operand.to_vec())
    }

    pub(super) fn push<S: Structure>(
        &mut self,
        structure: &S,
        key: &S::Key,
        modifier: ModifierId,
        operand: Vec<u8>,
    ) -> &mut Self {
        let checked = if self.blocks.is_same(structure.blocks()) {
            structure.check(key, modifier, &operand)
        } else {
            Err(RequestError::WrongStore { table: structure.name().to_owned() }.into())
        };
        if let Err(error) = checked {
            self.refuse(error);
        }
        let (space, key) = (structure.space(), S::key_bytes(key));
        if let Err(place) = self.names.binary_search_by_key(&space, |(known, _)| *known) {
            self.names.insert(place, (space, structure.name().to_owned()));
        }
        if modifier == builtin::EXPIRES_AT {
            self.declared.push(self.updates.len());
        }
        self.updates.push(OwnedUpdate { space, modifier, key, operand });
        self
    }

    /// Declares updates that carry a time as of now; the caller holds the returned moment until
    /// they are accepted.
    fn declare(&mut self) -> Option<Moment> {
        let moment = (!self.declared.is_empty()).then(|| self.blocks.moment())?;
        for position in &self.declared {
            builtin::set_moment(&mut self.updates[*position].operand, moment.us());
        }
        Some(moment)
    }

    pub(super) fn refuse(&mut self, error: Error) {
        self.fault.get_or_insert(error);
    }

    /// Adds an update by its modifier.
    ///
    /// # Errors
    /// [`RequestError::UnknownModifier`] if it is not registered with the store.
    pub fn modify<S: Structure>(
        &mut self,
        structure: &S,
        key: &S::Key,
        modifier: &dyn Modifier,
        operand: &[u8],
    ) -> Result<&mut Self, Error> {
        let id = self.blocks.modifier_id(modifier)?;
        Ok(self.update(structure, key, id, operand))
    }

    /// Adds a [`Table::put`](crate::Table::put) or [`Array::set`](crate::Array::set).
    pub fn put<S: Structure>(
        &mut self,
        structure: &S,
        key: &S::Key,
        value: &S::Value,
    ) -> &mut Self {
        self.push(structure, key, builtin::PUT, S::put_operand(value))
    }

    /// Adds a [`Table::delete`](crate::Table::delete) or [`Array::clear`](crate::Array::clear).
    pub fn delete<S: Structure>(&mut self, structure: &S, key: &S::Key) -> &mut Self {
        self.update(structure, key, builtin::DELETE, &[])
    }

    /// Adds a [`Table::add`](crate::Table::add) or [`Array::add`](crate::Array::add).
    pub fn add<S: Sums>(&mut self, structure: &S, key: &S::Key, amount: S::Amount) -> &mut Self {
        let (modifier, operand) = S::sum(amount);
        self.push(structure, key, modifier, operand)
    }

    /// Number of updates so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.updates.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    /// Declares all of it, as one log record. An empty batch changes nothing; its ticket covers
    /// everything before it.
    ///
    /// # Errors
    /// As [`Table::modify`](crate::Table::modify); [`RequestError::BatchTooLong`] when the record
    /// exceeds a log segment: split the batch; [`RequestError::WrongStore`] if a structure belongs
    /// to a different store; the errors of an [`Array`](crate::Array); all with nothing changed.
    pub fn commit(mut self, durability: Durability) -> Result<Ticket, Error> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let _moment = self.declare();
        let updates: Vec<_> = self.updates.iter().map(OwnedUpdate::borrow).collect();
        let ticket = self.blocks.modify(&updates, durability);
        ticket.map_err(|error| named(error, &self.names, &self.blocks))
    }

    /// As [`Batch::commit`], without blocking the thread: see [`PendingCommit`].
    pub fn commit_async(mut self, durability: Durability) -> PendingCommit {
        let moment = self.declare();
        let change = match self.fault {
            Some(fault) => Err(Some(fault)),
            None => Ok(self.blocks.modify_async(self.updates, durability)),
        };
        PendingCommit { change, moment, names: self.names, blocks: self.blocks }
    }
}

/// Changes that are declared when this is first polled, all of them or none; a [`Future`] for any
/// executor. It resolves to what the blocking call would return: with [`Durability::Wait`] when
/// they are durable, otherwise as soon as there was room for them.
///
/// One thread can have any number of them in flight. While there is no room, changes wait in a
/// queue: they are not yet visible to queries, and take memory beyond the budget of the store, in
/// proportion to what the application lets wait. They are accepted in the order in which they are
/// first polled; a blocking call may overtake them. If this is dropped before they are accepted,
/// nothing is written; after that, they stay. It resolves to [`Error::Closed`] if the store closes
/// while they wait.
///
/// ```
/// use upsweep::{Error, Store, Structure, Sums};
///
/// # fn main() -> Result<(), Error> {
/// let store = Store::in_memory()?;
/// let hits = store.table("hits")?;
/// let pages: [&[u8]; 3] = [b"/index.html", b"/about.html", b"/index.html"];
/// let all = futures::future::try_join_all(pages.map(|page| hits.add_async(page, 1)));
/// futures::executor::block_on(all)?; // durable
/// futures::executor::block_on(hits.put_async(b"/about.html", b"gone"))?;
/// assert_eq!(hits.get(b"/index.html")?.and_then(|value| value.as_i64()), Some(2));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "changes are declared when it is first polled"]
pub struct PendingCommit {
    /// The change, or the error if there is none.
    change: Result<PendingChange, Option<Error>>,
    /// Held until they are accepted.
    moment: Option<Moment>,
    names: Vec<(SpaceId, String)>,
    blocks: BlockStore,
}

impl Future for PendingCommit {
    type Output = Result<Ticket, Error>;

    /// # Panics
    /// If it is polled after completion.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let pending = &mut *self;
        match &mut pending.change {
            Ok(change) => {
                let polled = Pin::new(change).poll(context);
                if polled.is_ready() {
                    pending.moment = None;
                }
                polled.map_err(|error| named(error, &pending.names, &pending.blocks))
            }
            Err(fault) => Poll::Ready(Err(fault.take().expect("polled before its end"))),
        }
    }
}

/// An error of the block API, with the name of the structure that does not exist.
fn named(error: Error, names: &[(SpaceId, String)], blocks: &BlockStore) -> Error {
    if !matches!(error, Error::Request(RequestError::NoTable(_))) {
        return error;
    }
    let gone = |space: &SpaceId| blocks.space_numbered(*space).is_none();
    match names.iter().find(|(space, _)| gone(space)) {
        Some((_, name)) => of_structure(error, name),
        None => error,
    }
}
