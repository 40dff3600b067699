//! What a named structure of a store is: told by the block format of its space.

use std::fmt::{self, Display, Formatter};

/// What a structure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// An ordered table, [`Table`](crate::Table).
    Table,
    /// A hash table, [`HashTable`](crate::HashTable).
    HashTable,
}

impl Kind {
    /// Name of the block format of its blocks.
    #[must_use]
    pub fn format(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::HashTable => "hash",
        }
    }

    /// The structure with blocks of this format; `None` for formats of the block API.
    #[must_use]
    pub fn of_format(format: &str) -> Option<Self> {
        [Self::Table, Self::HashTable].into_iter().find(|kind| kind.format() == format)
    }
}

/// With its article: `a hash table`.
impl Display for Kind {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Table => "a table",
            Self::HashTable => "a hash table",
        })
    }
}
