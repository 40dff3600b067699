//! The registry of one open store: block formats by name, modifiers by number and by name.
//!
//! In the log a modifier is a small number. Numbers below [`FIRST_USER_ID`] are permanently
//! reserved for the built-in modifiers; others are assigned by the store, which records (number,
//! name, version) before their first use.

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
/// Number of the removal of a range of keys. It is not a modifier, because it concerns many
/// records: the engine makes such updates, callers cannot.
pub const DELETE_RANGE: ModifierId = ModifierId(15);

/// The keys that an update with [`DELETE_RANGE`] removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange<'a> {
    /// The first key.
    pub from: &'a [u8],
    /// The first key beyond; `None` for no bound.
    pub to: Option<&'a [u8]>,
}

impl<'a> KeyRange<'a> {
    /// The range that an update removes, if it removes one.
    #[must_use]
    #[inline]
    pub fn of(update: &UpdateRef<'a>) -> Option<Self> {
        if update.modifier != DELETE_RANGE {
            return None;
        }
        let to = update.operand.split_first().map(|(_, to)| to);
        Some(Self { from: update.key, to })
    }

    /// The operand of an update that removes the range; the key of the update is the first one.
    #[must_use]
    pub fn operand(&self) -> Vec<u8> {
        self.to.map(|to| [&[1], to].concat()).unwrap_or_default()
    }

    /// Whether the range contains this key.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.from && self.to.is_none_or(|to| key < to)
    }
}

/// First number that is assigned to modifiers of the application.
pub const FIRST_USER_ID: u16 = 256;

/// The block formats of the spaces that the store keeps for itself, parameters included. The layer
/// that lays out blocks chooses them; each has to be registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnFormats {
    /// Of the quarantine: records by key, with values of any length.
    pub quarantine: String,
    /// Of the reference array: a signed integer of 8 bytes for each key of 8 bytes, initially 0.
    pub references: String,
}

/// What the layers above supply to a store: formats and modifiers.
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

/// The modifiers known to this process under their numbers in this store.
#[derive(Clone, Default)]
pub struct Modifiers {
    by_id: Vec<Option<Arc<dyn Modifier>>>,
}

impl Modifiers {
    /// Binds `id` to `modifier`, replacing a previous binding.
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

    /// Combines two operands of the modifier with this number into one, if it folds them: see
    /// [`Modifier::fold`]. A modifier that panics, or makes an operand of more than
    /// [`OPERAND_BYTES_MAX`], does not fold.
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
    /// [`Refusal`] with the problem: fix the call. An unknown number is refused too.
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

/// What the application has registered, under its names and numbers in one open store.
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

    /// The format of a space that a checkpoint names, or a stand-in if it is not registered.
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

    /// Binds a modifier to its number in the store. If it is registered, it can be applied.
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

    /// Binds a newly registered modifier to its number.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ids::Seq;
    use crate::engine::modifier::{ValueKind, ValueRef};

    /// A modifier of an application, with its behaviour.
    #[derive(Clone, Copy)]
    enum Does {
        PutItsOperand,
        PutNoNumber,
        KeepThoughBlind,
        Panic,
        FoldToo(usize),
    }

    struct Named(&'static str, u16, Does);

    impl Modifier for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn version(&self) -> u16 {
            self.1
        }

        fn apply(
            &self,
            _: &[u8],
            _: Option<ValueRef<'_>>,
            operand: &[u8],
        ) -> Result<Outcome, Refusal> {
            match self.2 {
                Does::PutNoNumber => Ok(Outcome::Put(ValueKind::I64, vec![1])),
                Does::KeepThoughBlind => Ok(Outcome::Keep),
                Does::Panic => panic!("on purpose"),
                _ => Ok(Outcome::Put(ValueKind::Bytes, operand.to_vec())),
            }
        }

        fn fold(&self, _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
            match self.2 {
                Does::Panic => panic!("on purpose"),
                Does::FoldToo(bytes) => Some(vec![0; bytes]),
                _ => None,
            }
        }

        fn blind(&self) -> bool {
            true
        }
    }

    fn named(name: &'static str, version: u16, does: Does) -> Arc<dyn Modifier> {
        Arc::new(Named(name, version, does))
    }

    fn bound(does: Does) -> Modifiers {
        let mut modifiers = Modifiers::default();
        modifiers.bind(user_id(), named("m", 1, does));
        modifiers
    }

    fn user_id() -> ModifierId {
        ModifierId(FIRST_USER_ID)
    }

    fn record(id: u16, name: &str, version: u16) -> ModifierRecord {
        ModifierRecord { id: ModifierId(id), version, name: name.to_owned() }
    }

    #[test]
    fn a_modifier_is_found_by_its_number_and_by_name_and_version_together() {
        let modifiers = bound(Does::PutItsOperand);
        assert!(modifiers.get(user_id()).is_some());
        assert!(modifiers.get(PUT).is_none(), "the numbers below are not bound");
        assert!(modifiers.get(ModifierId(u16::MAX)).is_none());
        assert_eq!(modifiers.id_of("m", 1), Some(user_id()));
        assert_eq!(modifiers.id_of("m", 2), None, "another version does something else");
        assert_eq!(modifiers.id_of("n", 1), None);
    }

    #[test]
    fn operands_that_are_too_long_or_made_in_a_panic_are_not_folded() {
        let folded = |does| bound(does).fold(user_id(), b"1", b"2").map(|operand| operand.len());
        assert_eq!(folded(Does::FoldToo(OPERAND_BYTES_MAX)), Some(OPERAND_BYTES_MAX));
        assert_eq!(folded(Does::FoldToo(OPERAND_BYTES_MAX + 1)), None);
        assert_eq!(folded(Does::Panic), None);
        assert_eq!(Modifiers::default().fold(PUT, b"1", b"2"), None);
    }

    #[test]
    fn a_blind_modifier_of_the_application_is_tried_out_before_its_update_is_logged() {
        let admitted = |does| bound(does).admit(user_id(), b"k", b"operand");
        assert_eq!(admitted(Does::PutItsOperand), Ok(()));
        for does in [Does::PutNoNumber, Does::KeepThoughBlind, Does::Panic] {
            assert!(admitted(does).is_err(), "it would be refused later");
        }
        assert!(Modifiers::default().admit(PUT, b"k", b"").is_err(), "an unknown number");
    }

    #[test]
    fn only_a_blind_update_that_puts_nothing_is_a_deletion() {
        let modifiers = bound(Does::PutItsOperand);
        assert!(modifiers.is_deletion(user_id(), b""));
        assert!(!modifiers.is_deletion(user_id(), b"v"));
        assert!(!modifiers.is_deletion(PUT, b""), "the effect of an unbound one is unknown");
    }

    #[test]
    fn a_range_comes_back_from_the_update_that_removes_it() {
        for to in [None, Some(&b""[..]), Some(b"m")] {
            let range = KeyRange { from: b"c", to };
            let operand = range.operand();
            let (modifier, key) = (DELETE_RANGE, range.from);
            let update = UpdateRef { seq: Seq::new(1), modifier, key, operand: &operand };
            assert_eq!(KeyRange::of(&update), Some(range));
            assert_eq!(KeyRange::of(&UpdateRef { modifier: DELETE, ..update }), None);
        }
        let range = KeyRange { from: b"c", to: Some(b"m") };
        let inside = ["b", "c", "lzz", "m"].map(|key| range.contains(key.as_bytes()));
        assert_eq!(inside, [false, true, true, false]);
        assert!(KeyRange { to: None, ..range }.contains(b"zzz"));
    }

    #[test]
    fn a_number_is_given_once_whether_its_modifier_is_registered_or_not() {
        let mut registry = Registry::default();
        registry.modifiers.push(named("m", 1, Does::PutItsOperand));
        let mut bindings = Bindings::new(&registry);
        assert_eq!((bindings.next_id(), bindings.missing()), (user_id(), None));
        bindings.bind(record(FIRST_USER_ID, "m", 1));
        assert_eq!(bindings.missing(), None);
        bindings.bind(record(FIRST_USER_ID + 1, "m", 2));
        assert_eq!(bindings.missing(), Some(ModifierId(FIRST_USER_ID + 1)));
        assert_eq!(bindings.next_id(), ModifierId(FIRST_USER_ID + 2));
        bindings.bind(record(FIRST_USER_ID + 1, "m", 2));
        assert_eq!(bindings.records().len(), 2, "replay may say it again");
        bindings.bind_new(record(FIRST_USER_ID + 2, "n", 1), named("n", 1, Does::Panic));
        assert!(bindings.modifiers().get(ModifierId(FIRST_USER_ID + 2)).is_some());
    }

    #[test]
    fn a_missing_modifier_is_named_as_the_store_knows_it() {
        let mut bindings = Bindings::new(&Registry::default());
        bindings.bind(record(FIRST_USER_ID, "gone", 3));
        let named = |id| match bindings.unknown(id) {
            Error::Request(RequestError::UnknownModifier { name, version }) => (name, version),
            other => panic!("{other:?}"),
        };
        assert_eq!(named(user_id()), ("gone".to_owned(), 3));
        assert_eq!(named(ModifierId(7)), ("number 7".to_owned(), 0));
    }

    #[test]
    fn a_format_that_is_not_registered_is_an_error_or_has_a_stand_in() {
        let bindings = Bindings::new(&Registry::default());
        let found = bindings.format("array:u32").err();
        assert!(
            matches!(&found, Some(Error::Request(RequestError::UnknownFormat(name)))
                if name == "array:u32"),
            "{found:?}"
        );
        let stand_in = bindings.format_or_stand_in("array:u32").expect("it is listed all the same");
        assert_eq!(stand_in.name(), "", "no registered format is without a name");
        assert!(stand_in.check(&[], &[], None).is_err(), "its blocks cannot be read");
    }
}
