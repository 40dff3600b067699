//! The hash table: a table whose records are ordered by the hashes of their keys.
//!
//! A bucket is a block and covers a range of hashes; the engine's directory is the directory of
//! extendible hashing. A full bucket splits when the sweep holds it, sparse neighbours join, and no
//! other bucket is involved: there is no pause to rehash. The directory distinguishes buckets by as
//! many bytes of hash as needed, so they need not split at powers of two.
//!
//! Everything but the order is shared with the table: leaves, updates, readers, handles. A hash is
//! not stored, but computed when a search examines a key: per search at most about twice the binary
//! logarithm of the number of records. Storing it would lengthen every record, and save the smaller
//! part of the time that applying an update takes.
//!
//! Compared with an ordered table, updates spread evenly over all blocks whatever the keys are. So
//! ascending keys dirty every block, not only the last one; in return no block is hotter than the
//! others.
//!
//! The hash has no secret. Keys deliberately chosen to have equal hashes make block keys longer,
//! and are stored as in an ordered table; nothing grows beyond its bounds.
//!
//! (Fagin, Nievergelt, Pippenger, Strong: Extendible hashing, 1979; Bosc paper, section 5.)

use std::borrow::Cow;

use super::sealed::Sealed;
use super::table::{Lifetime, Order, Table, leaf};
use super::typed::TypedTable;
use crate::engine::block_format::{Applied, ApplyError, ApplyInput, BlockFormat, Checked, Routing};
use crate::engine::modifier::ValueRef;

pub mod bucket_format;
#[cfg(test)]
mod tests;

/// A hash table of an open store: a map from keys to values, for queries and updates of single
/// keys. Cheap to clone; usable from any thread.
///
/// It has the updates and queries of an ordered [`Table`], but no ranges of keys. Made by
/// [`Store::hash_table`](crate::Store::hash_table). [`Table::iter`] shows the records in the order
/// of the hashes of their keys, which is meaningless to applications: it is for dumps and checks.
pub type HashTable = Table<ByHash>;

/// A hash table with typed keys and values. Made by
/// [`Store::typed_hash_table`](crate::Store::typed_hash_table).
pub type TypedHashTable<K, V> = TypedTable<K, V, ByHash>;

/// Records ordered by the hashes of their keys, then by the keys: the order of a [`HashTable`].
#[derive(Clone, Copy, Debug)]
pub struct ByHash;

impl Order for ByHash {
    type Rank = u64;
    const OF_KEYS: bool = false;

    #[inline]
    fn rank(key: &[u8]) -> u64 {
        bucket_format::hash(key)
    }

    fn position(key: &[u8]) -> Cow<'_, [u8]> {
        Cow::Owned(bucket_format::position(Self::rank(key), key))
    }
}

impl Sealed for ByHash {}

/// Name of the block format of hash tables.
pub const HASH_FORMAT: &str = "hash";

/// The bucket of a hash table. Name: `hash`.
#[derive(Clone, Copy, Debug, Default)]
pub struct HashFormat;

impl BlockFormat for HashFormat {
    fn name(&self) -> &'static str {
        HASH_FORMAT
    }

    fn routing(&self) -> Routing {
        Routing::Ordered
    }

    fn position<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        ByHash::position(key)
    }

    fn apply<'a>(&self, input: &ApplyInput<'_, 'a>) -> Result<Applied<'a>, ApplyError> {
        leaf::apply::<ByHash>(input, Lifetime::Endless)
    }

    fn for_each(
        &self,
        _low: &[u8],
        body: &[u8],
        visit: &mut dyn FnMut(&[u8], ValueRef<'_>),
    ) -> Result<(), String> {
        leaf::for_each(body, visit)
    }

    fn merge(&self, left: &[u8], right: &[u8], body_bytes_max: usize) -> Option<Vec<u8>> {
        leaf::merge::<ByHash>(left, right, body_bytes_max)
    }

    fn check(&self, body: &[u8], low: &[u8], high: Option<&[u8]>) -> Result<Checked, String> {
        leaf::check::<ByHash>(body, low, high, Lifetime::Endless)
    }
}
