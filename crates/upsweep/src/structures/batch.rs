//! Batches: changes of several structures of a store that take effect together or not at all.

use std::collections::BTreeMap;

use super::{modifiers as builtin, of_structure};
use crate::engine::modifier::Modifier;
use crate::engine::registry::ModifierId;
use crate::error::{Error, RequestError};
use crate::runtime::{BlockStore, Durability, LoggedUpdate, Ticket};

/// A named part of a store that takes updates of its records: a [`Table`](crate::Table), a
/// [`HashTable`](crate::HashTable), an [`Array`](crate::Array) or a structure of another crate.
pub trait Structure {
    /// What names a record: bytes in a table, an index in an array.
    type Key: ?Sized;
    /// What a record holds. [`Infallible`](std::convert::Infallible) if records are not put.
    type Value: ?Sized;

    /// Its name.
    fn name(&self) -> &str;

    /// The number of its space in the block API.
    fn space(&self) -> u32;

    /// The store that it is part of.
    fn blocks(&self) -> &BlockStore;

    /// The key of a record as its block format takes it.
    fn key_bytes(key: &Self::Key) -> Vec<u8>;

    /// The operand with which the built-in modifier `put` gives a record this value: see
    /// [`value_operand`](crate::structures::modifiers::value_operand).
    fn put_operand(value: &Self::Value) -> Vec<u8>;

    /// Refuses an update that the structure can never take. What is not refused is declared, and
    /// goes to the quarantine if the block format refuses it.
    ///
    /// # Errors
    /// A [`RequestError`] that says why; [`Batch::commit`] returns it.
    fn check(&self, key: &Self::Key, modifier: ModifierId, operand: &[u8]) -> Result<(), Error> {
        let _ = (key, modifier, operand);
        Ok(())
    }
}

/// A [`Structure`] whose records can be numbers.
pub trait Sums: Structure {
    /// What can be added to a record.
    type Amount;

    /// Modifier and operand that add so much.
    fn sum(amount: Self::Amount) -> (ModifierId, Vec<u8>);
}

/// Several changes, of one or more structures of a store, that take effect together or not at all.
#[derive(Debug)]
pub struct Batch {
    blocks: BlockStore,
    updates: Vec<OwnedUpdate>,
    /// The names of the structures, by the numbers of their spaces.
    names: BTreeMap<u32, String>,
    /// What is wrong with the first update that is.
    fault: Option<Error>,
}

#[derive(Debug)]
struct OwnedUpdate {
    space: u32,
    modifier: ModifierId,
    key: Vec<u8>,
    operand: Vec<u8>,
}

impl Batch {
    pub(crate) fn new(blocks: BlockStore) -> Self {
        Self { blocks, updates: Vec::new(), names: BTreeMap::new(), fault: None }
    }

    /// Adds an update by the number of its modifier. [`Batch::commit`] refuses the batch if
    /// `structure` is of another store, or can never take the update.
    pub fn update<S: Structure>(
        &mut self,
        structure: &S,
        key: &S::Key,
        modifier: ModifierId,
        operand: &[u8],
    ) -> &mut Self {
        let checked = if self.blocks.is_same(structure.blocks()) {
            structure.check(key, modifier, operand)
        } else {
            Err(RequestError::WrongStore { table: structure.name().to_owned() }.into())
        };
        if let Err(error) = checked {
            self.fault.get_or_insert(error);
        }
        let (space, key, operand) = (structure.space(), S::key_bytes(key), operand.to_vec());
        self.names.entry(space).or_insert_with(|| structure.name().to_owned());
        self.updates.push(OwnedUpdate { space, modifier, key, operand });
        self
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
        self.update(structure, key, builtin::PUT, &S::put_operand(value))
    }

    /// Adds a [`Table::delete`](crate::Table::delete) or [`Array::clear`](crate::Array::clear).
    pub fn delete<S: Structure>(&mut self, structure: &S, key: &S::Key) -> &mut Self {
        self.update(structure, key, builtin::DELETE, &[])
    }

    /// Adds a [`Table::add`](crate::Table::add) or [`Array::add`](crate::Array::add).
    pub fn add<S: Sums>(&mut self, structure: &S, key: &S::Key, amount: S::Amount) -> &mut Self {
        let (modifier, operand) = S::sum(amount);
        self.update(structure, key, modifier, &operand)
    }

    /// Number of updates so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.updates.len()
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    /// Declares all of it, as one log record. An empty batch changes nothing; its ticket is that of
    /// everything before it.
    ///
    /// # Errors
    /// As [`Table::modify`](crate::Table::modify); [`RequestError::BatchTooLong`] when the record
    /// exceeds a log segment: split the batch; [`RequestError::WrongStore`] if a structure is of
    /// another store; what an [`Array`](crate::Array) refuses; all with nothing changed.
    pub fn commit(self, durability: Durability) -> Result<Ticket, Error> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let updates: Vec<LoggedUpdate<'_>> = self
            .updates
            .iter()
            .map(|update| LoggedUpdate {
                space: update.space,
                modifier: update.modifier,
                key: &update.key,
                operand: &update.operand,
            })
            .collect();
        self.blocks.modify(&updates, durability).map_err(|error| {
            let gone = |space: &u32| self.blocks.space_numbered(*space).is_none();
            match self.names.iter().find(|(space, _)| gone(space)) {
                Some((_, name)) => of_structure(error, name),
                None => error,
            }
        })
    }
}
