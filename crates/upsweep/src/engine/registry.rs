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
use super::format::record_format::ModifierRecord;
use super::modifier::{Modifier, Outcome, Refusal, check_value};
use super::unregistered::Unregistered;
use crate::error::{Error, RequestError};

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

/// What the application has brought, under the names and numbers that it has in one open store.
pub(super) struct Bindings {
    formats: BTreeMap<String, Arc<dyn BlockFormat>>,
    modifiers: Arc<Modifiers>,
    /// Modifiers of applications that the store knows, whether they are registered now or not.
    records: Vec<ModifierRecord>,
    application: Vec<Arc<dyn Modifier>>,
}

impl Bindings {
    /// Those of a store in which no modifier of an application has a number yet.
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            formats: registry.formats.clone(),
            modifiers: Arc::new(registry.builtins.clone()),
            records: Vec::new(),
            application: registry.modifiers.clone(),
        }
    }

    /// The format of this name, which may be followed by a colon and parameters.
    ///
    /// # Errors
    /// [`RequestError::UnknownFormat`]; [`RequestError::BadFormat`].
    pub(super) fn format(&self, name: &str) -> Result<Arc<dyn BlockFormat>, Error> {
        let unknown = || RequestError::UnknownFormat(name.to_owned());
        let (base, parameters) = name.split_once(':').unwrap_or((name, ""));
        let format = self.formats.get(base).ok_or_else(unknown)?;
        if parameters.is_empty() {
            return Ok(Arc::clone(format));
        }
        let bad = |reason| RequestError::BadFormat { format: name.to_owned(), reason };
        Ok(format.configure(parameters).map_err(bad)?)
    }

    /// The format of a space that a checkpoint names; if it is not registered, what stands for it.
    ///
    /// # Errors
    /// [`RequestError::BadFormat`] for parameters that the format does not have.
    pub(super) fn format_or_stand_in(&self, name: &str) -> Result<Arc<dyn BlockFormat>, Error> {
        match self.format(name) {
            Err(Error::Request(RequestError::UnknownFormat(_))) => Ok(Arc::new(Unregistered)),
            found => found,
        }
    }

    /// The modifiers under their numbers.
    pub(super) fn modifiers(&self) -> &Arc<Modifiers> {
        &self.modifiers
    }

    /// All modifiers of applications that have a number.
    pub(super) fn records(&self) -> &[ModifierRecord] {
        &self.records
    }

    /// The next number for a modifier of the application.
    pub(super) fn next_id(&self) -> ModifierId {
        let last = self.records.iter().map(|record| record.id.0).max();
        ModifierId(last.map_or(FIRST_USER_ID, |last| last + 1))
    }

    /// A modifier has this number, as the store says. If the application has brought it, it can be
    /// applied.
    pub(super) fn bind(&mut self, record: ModifierRecord) {
        let known = self.application.iter().find(|modifier| {
            modifier.name() == record.name && modifier.version() == record.version
        });
        if let Some(modifier) = known {
            let modifier = Arc::clone(modifier);
            Arc::make_mut(&mut self.modifiers).bind(record.id, modifier);
        }
        if self.records.iter().all(|known| known.id != record.id) {
            self.records.push(record);
        }
    }

    /// A modifier that the application has just brought has this number.
    pub(super) fn bind_new(&mut self, record: ModifierRecord, modifier: Arc<dyn Modifier>) {
        debug_assert!(self.modifiers.get(record.id).is_none(), "a number is given once");
        Arc::make_mut(&mut self.modifiers).bind(record.id, modifier);
        self.records.push(record);
    }

    /// A modifier that has a number and was not registered, if there is one.
    pub(super) fn missing(&self) -> Option<ModifierId> {
        let is_missing = |id: ModifierId| self.modifiers.get(id).is_none();
        self.records.iter().map(|record| record.id).find(|id| is_missing(*id))
    }

    /// The error that names a modifier that is not registered.
    pub(super) fn unknown(&self, id: ModifierId) -> Error {
        let known = self.records.iter().find(|known| known.id == id);
        let (name, version) = known.map_or_else(
            || (format!("number {}", id.0), 0),
            |known| (known.name.clone(), known.version),
        );
        RequestError::UnknownModifier { name, version }.into()
    }
}
