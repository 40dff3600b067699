//! The kinds of structures, as the block format of their space tells them.

use std::fmt::{self, Display, Formatter};

use super::array::{ARRAY_FORMAT, CellKind};
use super::hash::HASH_FORMAT;
use super::table::TABLE_FORMAT;
use crate::error::{Error, RequestError};
use crate::runtime::SpaceRecord;

/// What a structure of a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An ordered table, [`Table`](crate::Table).
    Table,
    /// A hash table, [`HashTable`](crate::HashTable).
    HashTable,
    /// An array with such cells, [`Array`](crate::Array).
    Array(CellKind),
}

impl Kind {
    /// The kind of the structures in spaces with this block format, parameters included; `None` if
    /// it is a format of the application, or of no structure.
    #[must_use]
    pub fn of_format(format: &str) -> Option<Self> {
        match format.split_once(':') {
            None if format == TABLE_FORMAT => Some(Self::Table),
            None if format == HASH_FORMAT => Some(Self::HashTable),
            Some((ARRAY_FORMAT, cells)) => cells.parse().ok().map(Self::Array),
            _ => None,
        }
    }

    /// The block format of its spaces, parameters included.
    #[must_use]
    pub fn format(self) -> String {
        match self {
            Self::Table => TABLE_FORMAT.to_owned(),
            Self::HashTable => HASH_FORMAT.to_owned(),
            Self::Array(cells) => format!("{ARRAY_FORMAT}:{cells}"),
        }
    }
}

impl Kind {
    /// The space, if it is that of a structure of this kind.
    ///
    /// # Errors
    /// [`RequestError::TableMismatch`].
    pub(crate) fn expect(self, record: SpaceRecord) -> Result<SpaceRecord, Error> {
        let found = Self::of_format(&record.format);
        if found == Some(self) { Ok(record) } else { Err(mismatch(record, self.to_string())) }
    }
}

/// The error that says that a name belongs to something else.
pub(crate) fn mismatch(record: SpaceRecord, wanted: String) -> Error {
    let block_format = || format!("a space of format {:?}", record.format);
    let found = Kind::of_format(&record.format).map_or_else(block_format, |kind| kind.to_string());
    RequestError::TableMismatch { table: record.name, found, wanted }.into()
}

/// With its article: `a hash table`.
impl Display for Kind {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table => formatter.write_str("a table"),
            Self::HashTable => formatter.write_str("a hash table"),
            Self::Array(cells) => write!(formatter, "an array of {cells}"),
        }
    }
}
