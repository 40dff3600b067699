//! Typed tables: keys and values of Rust types over the bytes of a [`Table`].
//!
//! | module | content |
//! |---|---|
//! | [`key_format`] | [`Key`]: the bytes of keys, and their order |
//! | [`value_format`] | [`Value`]: the bytes of values, and the modifiers that fit |
//! | `counters` | [`Counters`]: structs of numbers, each with its rule |
//! | `postcard_format` | `Postcard`: values of any type with `serde` |
//! | [`TypedTable`], [`TypedScan`] | the table, over a table of bytes |
//!
//! A table does not store its types: its [`TableDefinition`] has them, and must be the same in
//! every program that uses the table.
//!
//! [`Table`]: crate::Table

mod counters;
mod handle;
pub mod key_format;
#[cfg(feature = "postcard")]
mod postcard_format;
mod scan;
#[cfg(test)]
mod tests;
pub mod value_format;

use std::marker::PhantomData;

pub use super::modifiers::CounterRule;
pub use counters::{CounterField, Counters};
pub use handle::TypedTable;
pub(super) use handle::{decode_value, encode_value};
pub(super) use key_format::bytes_of;
pub use key_format::{Key, KeyPrefix};
#[cfg(feature = "postcard")]
pub use postcard_format::Postcard;
pub use scan::TypedScan;
pub(super) use scan::decode_key;
pub use value_format::{Appends, Bits, ByteString, ModifierOf, Number, Value};

/// Names used by the code derived for [`Counters`].
#[doc(hidden)]
pub mod derived {
    pub use crate::engine::modifier::ValueKind;
    pub use crate::engine::registry::ModifierId;
    pub use crate::structures::modifiers::{COUNTERS, decode_words, encode_words};
}

/// Name and types of a table; a constant of the application.
///
/// ```
/// use upsweep::TableDefinition;
/// const HITS: TableDefinition<str, i64> = TableDefinition::new("hits");
/// ```
pub struct TableDefinition<K: ?Sized, V: ?Sized> {
    name: &'static str,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized> Clone for TableDefinition<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized, V: ?Sized> Copy for TableDefinition<K, V> {}

impl<K: ?Sized, V: ?Sized> std::fmt::Debug for TableDefinition<K, V> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("TableDefinition").field(&self.name).finish()
    }
}

impl<K: ?Sized, V: ?Sized> TableDefinition<K, V> {
    /// A table called `name` (1 to 255 bytes without control characters) with these types.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, types: PhantomData }
    }

    /// The table's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}
