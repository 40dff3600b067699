//! The kinds of structures, as the block format of their space tells them.

use std::fmt::{self, Display, Formatter};

use super::array::{ARRAY_FORMAT, CellKind};
use super::hash::HASH_FORMAT;
use super::table::TABLE_FORMAT;

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
