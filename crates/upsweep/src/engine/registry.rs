//! What is registered with one open store: block formats by name, modifiers by number and by name.
//!
//! On the log a modifier is a small number. Numbers below [`FIRST_USER_ID`] belong to the built-in
//! modifiers for ever; others are given out by the store, which records (number, name, version)
//! before their first use.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::block_format::{BlockFormat, UpdateRef};
use super::config::OPERAND_BYTES_MAX;
use super::modifier::{Modifier, Outcome, Refusal, check_value};

/// Number of a modifier within a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModifierId(pub u16);

/// Number of the built-in modifier that puts a value.
pub const PUT: ModifierId = ModifierId(0);
/// Number of the built-in modifier that deletes a record.
pub const DELETE: ModifierId = ModifierId(1);
/// Number of the built-in modifier that adds to a signed integer.
pub const ADD_I64: ModifierId = ModifierId(2);
/// Number of what removes a range of keys. It is no modifier, for it concerns many records: the
/// engine makes such updates, callers cannot.
pub const DELETE_RANGE: ModifierId = ModifierId(15);

/// The keys that an update with [`DELETE_RANGE`] removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange<'a> {
    /// The first one.
    pub from: &'a [u8],
    /// The first one beyond; `None` for no bound.
    pub to: Option<&'a [u8]>,
}

impl<'a> KeyRange<'a> {
    /// The range that an update removes, if it does.
    #[must_use]
    #[inline]
    pub fn of(update: &UpdateRef<'a>) -> Option<Self> {
        if update.modifier != DELETE_RANGE {
            return None;
        }
        let to = update.operand.split_first().map(|(_, to)| to);
        Some(Self { from: update.key, to })
    }

    /// The operand of an update that removes the range; its key is the first one.
    #[must_use]
    pub fn operand(&self) -> Vec<u8> {
        self.to.map(|to| [&[1], to].concat()).unwrap_or_default()
    }

    /// Whether the range has this key.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.from && self.to.is_none_or(|to| key < to)
    }
}

/// First number that is given to modifiers of the application.
pub const FIRST_USER_ID: u16 = 256;

/// The block formats of the spaces that the store keeps for itself, parameters included. They are
/// for whoever lays out blocks to choose; each has to be registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnFormats {
    /// Of the quarantine: records by key, with values of any length.
    pub quarantine: String,
    /// Of the reference array: a signed integer of 8 bytes for each key of 8 bytes, 0 at first.
    pub references: String,
}

/// What the layers above bring to a store: formats and modifiers.
#[derive(Clone, Default)]
pub struct Registry {
    /// The formats of the store's own spaces.
    pub own: OwnFormats,
    /// Block formats by name.
    pub formats: BTreeMap<String, Arc<dyn BlockFormat>>,
    /// Built-in modifiers under their numbers.
    pub builtins: Modifiers,
    /// Modifiers of the application.
    pub modifiers: Vec<Arc<dyn Modifier>>,
}

/// The modifiers that this process knows under their numbers in this store.
#[derive(Clone, Default)]
pub struct Modifiers {
    by_id: Vec<Option<Arc<dyn Modifier>>>,
}

impl Modifiers {
    /// Binds `id` to `modifier`, replacing what was bound before.
    pub fn bind(&mut self, id: ModifierId, modifier: Arc<dyn Modifier>) {
        let index = usize::from(id.0);
        if self.by_id.len() <= index {
            self.by_id.resize_with(index + 1, || None);
        }
        self.by_id[index] = Some(modifier);
    }

    /// The modifier with this number, if it is bound.
    #[must_use]
    pub fn get(&self, id: ModifierId) -> Option<&dyn Modifier> {
        self.by_id.get(usize::from(id.0))?.as_deref()
    }

    /// Two operands of the modifier with this number as one, if it folds them: see
    /// [`Modifier::fold`]. One that panics, or makes an operand of more than [`OPERAND_BYTES_MAX`],
    /// does not fold.
    #[must_use]
    pub fn fold(&self, id: ModifierId, earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        let modifier = self.get(id)?;
        let folded = catch_unwind(AssertUnwindSafe(|| modifier.fold(earlier, later)));
        folded.unwrap_or_default().filter(|operand| operand.len() <= OPERAND_BYTES_MAX)
    }

    /// Whether an update can only make its block smaller: it is blind and puts nothing.
    #[must_use]
    pub fn is_deletion(&self, id: ModifierId, operand: &[u8]) -> bool {
        operand.is_empty() && self.get(id).is_some_and(Modifier::blind)
    }

    /// The number of the modifier with this name and version, if it is bound.
    #[must_use]
    pub fn id_of(&self, name: &str, version: u16) -> Option<ModifierId> {
        let matches = |slot: &Option<Arc<dyn Modifier>>| {
            slot.as_ref().is_some_and(|found| found.name() == name && found.version() == version)
        };
        let index = self.by_id.iter().position(matches)?;
        u16::try_from(index).ok().map(ModifierId)
    }

    /// Checks an operand before its update is logged. A blind modifier of the application is tried
    /// out: an update that supersedes others in the queue must not be refused later.
    ///
    /// # Errors
    /// [`Refusal`] with what is wrong: fix the call. An unknown number is refused too.
    pub fn admit(&self, id: ModifierId, key: &[u8], operand: &[u8]) -> Result<(), Refusal> {
        let unknown = || Refusal(format!("modifier number {} is not registered", id.0));
        let modifier = self.get(id).ok_or_else(unknown)?;
        let checked = catch_unwind(AssertUnwindSafe(|| {
            modifier.check_operand(operand)?;
            if id.0 < FIRST_USER_ID || !modifier.blind() {
                return Ok(());
            }
            match modifier.apply(key, None, operand)? {
                Outcome::Put(kind, bytes) => check_value(kind, &bytes),
                Outcome::Delete => Ok(()),
                Outcome::Keep => Err(Refusal("a blind modifier has to put or delete".to_owned())),
            }
        }));
        checked.unwrap_or_else(|_| Err(Refusal("the modifier panicked".to_owned())))
    }
}
