//! Kinds of structures: what a store has to know of a structure to list, back up and restore it.
//!
//! The block format of a space, parameters included, determines its structure: `array:u32` is of
//! the kind `array`. A kind is a [`StructureKind`] that is registered under the name of its format.
//! The built-in ones are registered like those of other crates. A structure whose kind is not
//! registered can still be listed, cloned and dropped; its [`Kind`] then knows only its format.

mod builtin;

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::array::CellKind;
use super::snapshot::Change;
use super::space::{OpenSpace, Updates};
use super::table::{Lifetime, Value};
use crate::engine::block_format::BlockFormat;
use crate::engine::modifier::Modifier;
use crate::error::{Error, RequestError};
use crate::runtime::{BlockStore, SpaceRecord};

/// A record of a structure, as backups copy it: key and value.
pub type Record = (Vec<u8>, Value);

/// An iterator over the records of a structure. Ends after the first error.
pub type Records = Box<dyn Iterator<Item = Result<Record, Error>>>;

/// An iterator over the records that differ between two states of a structure. Ends after the first
/// error.
pub type RecordChanges = Box<dyn Iterator<Item = Result<Change, Error>>>;

/// A kind of structures, which is registered with
/// [`StoreBuilder::kind`](crate::StoreBuilder::kind).
///
/// A backup copies the records of a structure, and a restore puts them again. If putting the
/// records that [`BlockFormat::for_each`] shows recreates the block, only the format and a
/// description have to be implemented.
pub trait StructureKind: Send + Sync {
    /// The layout of the blocks. Its name is that of the kind.
    fn format(&self) -> Arc<dyn BlockFormat>;

    /// A description of a structure with these parameters, with its article: `an array of u32`.
    fn describe(&self, parameters: &str) -> String;

    /// The additional modifiers that its updates need. They are registered with the kind.
    fn modifiers(&self) -> Vec<Arc<dyn Modifier>> {
        Vec::new()
    }

    /// Whether its structures keep values that are too large for a block in a companion space.
    fn has_large_values(&self) -> bool {
        false
    }

    /// All records of a structure, for a backup. By default those that the format shows of each
    /// block, without large values.
    fn records(&self, space: &OpenSpace) -> Records {
        Box::new(space.records())
    }

    /// The records that differ between two states of a structure, if they can be found with less
    /// than a pass over all records; an increment then has only these.
    fn changes(&self, earlier: &OpenSpace, later: &OpenSpace) -> Option<RecordChanges> {
        let _ = (earlier, later);
        None
    }

    /// Checks a record of a backup before it is restored to a structure with these parameters.
    ///
    /// # Errors
    /// The reason if the record is invalid; the restore then fails with it.
    fn check_record(&self, parameters: &str, key: &[u8], value: &Value) -> Result<(), String> {
        let _ = (parameters, key, value);
        Ok(())
    }

    /// Fills a new structure with all records of a backup. By default puts each.
    ///
    /// # Errors
    /// The error of reading a record, or of the store when it is put.
    fn restore(
        &self,
        space: &OpenSpace,
        records: &mut dyn Iterator<Item = Result<Record, Error>>,
    ) -> Result<(), Error> {
        let mut updates = Updates::new(space);
        for record in records {
            let (key, value) = record?;
            updates.push(key, Some(value))?;
        }
        updates.declare()
    }
}

/// The kind of one structure, with parameters. Equal if the formats are.
#[derive(Clone)]
pub struct Kind {
    format: String,
    registered: Option<Arc<dyn StructureKind>>,
}

impl Kind {
    /// The ordered [`Table`](crate::Table).
    #[must_use]
    pub fn table() -> Self {
        Self::new(builtin::TableKind(Lifetime::Endless), "")
    }

    /// The [`ExpiringTable`](crate::ExpiringTable).
    #[must_use]
    pub fn expiring_table() -> Self {
        Self::new(builtin::TableKind(Lifetime::Limited), "")
    }

    /// The [`HashTable`](crate::HashTable).
    #[must_use]
    pub fn hash_table() -> Self {
        Self::new(builtin::HashKind, "")
    }

    /// The [`Array`](crate::Array) with cells of this type.
    #[must_use]
    pub fn array(cells: CellKind) -> Self {
        Self::new(builtin::ArrayKind, &cells.to_string())
    }

    /// A structure of this kind with these parameters, empty if there are none. A store accepts it
    /// if the kind was registered when the store was opened.
    #[must_use]
    pub fn new(kind: impl StructureKind + 'static, parameters: &str) -> Self {
        let mut format = kind.format().name().to_owned();
        if !parameters.is_empty() {
            format = format!("{format}:{parameters}");
        }
        Self { format, registered: Some(Arc::new(kind)) }
    }

    /// The block format of its space, parameters included: `array:u32`.
    #[must_use]
    pub fn format(&self) -> &str {
        &self.format
    }

    /// The name of the kind: `array`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.format.split_once(':').map_or(&self.format, |(name, _)| name)
    }

    /// Its parameters, `u32`; empty if there are none.
    #[must_use]
    pub fn parameters(&self) -> &str {
        self.format.split_once(':').map_or("", |(_, parameters)| parameters)
    }

    /// Whether the kind is registered. If not, the structure can only be listed, cloned, kept in
    /// snapshots and dropped.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.registered.is_some()
    }

    /// The kind itself.
    ///
    /// # Errors
    /// [`RequestError::UnknownFormat`] if it is not registered.
    pub(crate) fn registered(&self) -> Result<&dyn StructureKind, Error> {
        let unknown = || RequestError::UnknownFormat(self.format.clone()).into();
        self.registered.as_deref().ok_or_else(unknown)
    }

    /// Makes a structure of this kind.
    ///
    /// # Errors
    /// As [`BlockStore::create_space`].
    pub(crate) fn create(&self, blocks: &BlockStore, name: &str) -> Result<OpenSpace, Error> {
        let has_large_values = self.registered()?.has_large_values();
        let record = blocks.create_space(name, &self.format, has_large_values)?;
        Ok(OpenSpace::new(blocks.clone(), record))
    }

    /// Opens the structure in a space, if it is of this kind; `found` is its actual kind.
    ///
    /// # Errors
    /// [`RequestError::TableMismatch`]; [`RequestError::UnknownFormat`].
    pub(crate) fn open(
        &self,
        blocks: &BlockStore,
        record: SpaceRecord,
        found: &Self,
    ) -> Result<OpenSpace, Error> {
        if self != found {
            let (found, wanted) = (found.to_string(), self.to_string());
            return Err(RequestError::TableMismatch { table: record.name, found, wanted }.into());
        }
        found.registered()?;
        Ok(OpenSpace::new(blocks.clone(), record))
    }
}

/// With its article: `a hash table`.
impl Display for Kind {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match &self.registered {
            Some(kind) => formatter.write_str(&kind.describe(self.parameters())),
            None => write!(formatter, "a structure of the kind {:?}", self.format),
        }
    }
}

impl Debug for Kind {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Kind").field(&self.format).finish()
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.format == other.format
    }
}

impl Eq for Kind {}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.format.hash(state);
    }
}

/// The kinds that are registered with a store, by name.
#[derive(Clone, Default)]
pub(crate) struct Kinds(BTreeMap<String, Arc<dyn StructureKind>>);

impl Kinds {
    /// The built-in kinds.
    pub(crate) fn builtin() -> [Arc<dyn StructureKind>; 4] {
        [
            Arc::new(builtin::TableKind(Lifetime::Endless)),
            Arc::new(builtin::TableKind(Lifetime::Limited)),
            Arc::new(builtin::HashKind),
            Arc::new(builtin::ArrayKind),
        ]
    }

    /// Adds a kind, replacing one of the same name.
    pub(crate) fn add(&mut self, kind: Arc<dyn StructureKind>) {
        self.0.insert(kind.format().name().to_owned(), kind);
    }

    /// The kind of structure in a space of this format, parameters included.
    pub(crate) fn of_format(&self, format: &str) -> Kind {
        let name = format.split_once(':').map_or(format, |(name, _)| name);
        Kind { format: format.to_owned(), registered: self.0.get(name).cloned() }
    }
}

impl Debug for Kinds {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}
