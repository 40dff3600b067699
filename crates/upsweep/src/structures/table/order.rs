//! The order of the records of a table, in a leaf and among leaves.
//!
//! Leaves, their updates and their readers are the same for every order: records ascend by rank,
//! then by key. Ordered tables have no rank, so only keys are compared; the rank of a hash table is
//! the hash of the key.
//!
//! Invariant: positions, compared as bytes, are in the order of (rank, key), and distinct keys have
//! distinct positions. So a leaf can be cut between any two records.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::structures::sealed::Sealed;

/// How a [`Table`](super::Table) orders its records. Sealed: the orders are part of the on-disk
/// format.
pub trait Order: Sealed + Copy + Send + Sync + 'static {
    /// The rank, which is compared before keys.
    type Rank: Ord + Copy;
    /// Whether this is the order of the keys, which need not be sorted then, and may come in
    /// ascending order.
    const OF_KEYS: bool;

    /// The rank of a key.
    fn rank(key: &[u8]) -> Self::Rank;

    /// The position of a key among the blocks of its space.
    fn position(key: &[u8]) -> Cow<'_, [u8]>;

    /// How `found` compares with the key of this `rank`.
    #[inline]
    fn compare(found: &[u8], rank: Self::Rank, key: &[u8]) -> Ordering {
        Self::rank(found).cmp(&rank).then_with(|| found.cmp(key))
    }
}

/// Whether `left` comes before `right`, byte by byte. Most keys differ within their first eight
/// bytes, and then this costs a fraction of a call that compares memory.
#[inline]
pub fn is_below(left: &[u8], right: &[u8]) -> bool {
    let first = |key: &[u8]| key.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    match (first(left), first(right)) {
        (Some(first), Some(second)) if first != second => first < second,
        _ => left < right,
    }
}

/// Records in key order: the order of a [`Table`](super::Table).
#[derive(Clone, Copy, Debug)]
pub struct ByKey;

impl Order for ByKey {
    type Rank = ();
    const OF_KEYS: bool = true;

    #[inline]
    fn rank(_: &[u8]) {}

    fn position(key: &[u8]) -> Cow<'_, [u8]> {
        Cow::Borrowed(key)
    }
}

impl Sealed for ByKey {}
