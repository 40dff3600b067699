//! Batches: changes of several structures of a store as one change.

use super::modifiers as builtin;
use super::sealed::Sealed;
use crate::engine::modifier::{Modifier, ValueKind};
use crate::engine::registry::ModifierId;
use crate::error::{Error, RequestError};
use crate::runtime::{BlockStore, Durability, LoggedUpdate, Ticket};

/// A named part of a store that takes updates of its keys: a table, a hash table. Sealed.
pub trait Structure: Sealed {
    /// Its name.
    fn name(&self) -> &str;

    /// The number of its space in the block API.
    fn space(&self) -> u32;

    /// The store that it is part of.
    fn blocks(&self) -> &BlockStore;
}

/// Several changes, of one or more structures of a store, that take effect together or not at all.
pub struct Batch {
    blocks: BlockStore,
    updates: Vec<OwnedUpdate>,
    /// The first structure of another store that was given: its number means another one here.
    foreign: Option<String>,
}

struct OwnedUpdate {
    space: u32,
    modifier: ModifierId,
    key: Vec<u8>,
    operand: Vec<u8>,
}

impl Batch {
    pub(crate) fn new(blocks: BlockStore) -> Self {
        Self { blocks, updates: Vec::new(), foreign: None }
    }

    /// Adds an update by the number of its modifier. [`Batch::commit`] refuses the batch if the
    /// structure is of another store.
    pub fn update(
        &mut self,
        structure: &impl Structure,
        key: &[u8],
        modifier: ModifierId,
        operand: &[u8],
    ) -> &mut Self {
        if !self.blocks.is_same(structure.blocks()) {
            self.foreign.get_or_insert_with(|| structure.name().to_owned());
        }
        let (key, operand) = (key.to_vec(), operand.to_vec());
        self.updates.push(OwnedUpdate { space: structure.space(), modifier, key, operand });
        self
    }

    /// Adds an update by its modifier.
    ///
    /// # Errors
    /// [`RequestError::UnknownModifier`] if it is not registered with the store.
    pub fn modify(
        &mut self,
        structure: &impl Structure,
        key: &[u8],
        modifier: &dyn Modifier,
        operand: &[u8],
    ) -> Result<&mut Self, Error> {
        let id = self.blocks.modifier_id(modifier)?;
        Ok(self.update(structure, key, id, operand))
    }

    /// Adds a put, as [`Table::put`](crate::Table::put).
    pub fn put(&mut self, structure: &impl Structure, key: &[u8], value: &[u8]) -> &mut Self {
        let operand = builtin::value_operand(ValueKind::Bytes, value);
        self.update(structure, key, builtin::PUT, &operand)
    }

    /// Adds a deletion, as [`Table::delete`](crate::Table::delete).
    pub fn delete(&mut self, structure: &impl Structure, key: &[u8]) -> &mut Self {
        self.update(structure, key, builtin::DELETE, &[])
    }

    /// Adds an addition, as [`Table::add`](crate::Table::add).
    pub fn add(&mut self, structure: &impl Structure, key: &[u8], amount: i64) -> &mut Self {
        self.update(structure, key, builtin::ADD_I64, &amount.to_le_bytes())
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

    /// Declares all of it, as one log record.
    ///
    /// # Errors
    /// As [`Table::modify`](crate::Table::modify); [`RequestError::BatchTooLong`] when the record
    /// exceeds a log segment: split the batch; [`RequestError::WrongStore`] if a structure is of
    /// another store, with nothing changed.
    pub fn commit(self, durability: Durability) -> Result<Ticket, Error> {
        if let Some(table) = self.foreign {
            return Err(RequestError::WrongStore { table }.into());
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
        if updates.is_empty() {
            let reason = "an empty batch changes nothing: add updates to it".to_owned();
            return Err(RequestError::BadConfig { setting: "batch", reason }.into());
        }
        self.blocks.modify(&updates, durability)
    }
}
