//! Removal of key ranges: expands one update of a block to one deletion per key.
//!
//! A removal applies to the records of the block in the range, and to older updates that wait for
//! keys in it. As deletions at its own sequence it is in order with all of them, and no other code
//! has to know of ranges. Cost: O(records in the range + updates).
//!
//! Ranges are removed only from tables in key order; updates of others are unchanged.

use std::borrow::Cow;

use super::leaf_format::Leaf;
use crate::engine::block_format::UpdateRef;
use crate::engine::registry::{DELETE, KeyRange};

/// Updates without removals of ranges, sorted by key and sequence.
pub(super) struct Expanded<'w, 'a> {
    /// The updates.
    pub(super) updates: Cow<'w, [UpdateRef<'a>]>,
    /// Per update, the position of its original; empty if nothing was expanded.
    positions: Vec<usize>,
}

impl Expanded<'_, '_> {
    /// The position of the original of update `index`.
    pub(super) fn position(&self, index: usize) -> usize {
        self.positions.get(index).copied().unwrap_or(index)
    }
}

/// Expands the removals of ranges among `updates`, which are sorted by key and sequence, for a
/// block with the records of `leaf`. Without removals, the updates are unchanged, in any order.
///
/// # Errors
/// A description of the damage to the leaf.
pub(super) fn expand<'w, 'a>(
    leaf: &Leaf<'a>,
    updates: &'w [UpdateRef<'a>],
) -> Result<Expanded<'w, 'a>, String> {
    let is_range = |update: &UpdateRef<'a>| KeyRange::of(update).is_some();
    if !updates.iter().any(is_range) {
        return Ok(Expanded { updates: Cow::Borrowed(updates), positions: Vec::new() });
    }
    let others = || updates.iter().enumerate().filter(|(_, update)| !is_range(update));
    let mut all: Vec<(UpdateRef<'a>, usize)> =
        others().map(|(position, update)| (*update, position)).collect();
    let record_at = |from, bound: &[u8]| -> Result<usize, String> {
        Ok(leaf.lower_bound(from, |key| key.cmp(bound))?.0)
    };
    for (position, update) in updates.iter().enumerate() {
        let Some(range) = KeyRange::of(update) else { continue };
        let deletion = |key| {
            let modifier = DELETE;
            (UpdateRef { modifier, key, operand: &[], ..*update }, position)
        };
        let first = record_at(0, range.from)?;
        let end = range.to.map_or(Ok(leaf.count()), |to| record_at(first, to))?;
        for record in first..end {
            all.push(deletion(leaf.key(record)?));
        }
        let older = others().filter(|(_, other)| other.seq < update.seq);
        let keys = older.map(|(_, other)| other.key).filter(|key| range.contains(key));
        all.extend(keys.map(deletion));
    }
    all.sort_by(|(left, _), (right, _)| (left.key, left.seq).cmp(&(right.key, right.seq)));
    let (updates, positions) = all.into_iter().unzip();
    Ok(Expanded { updates: Cow::Owned(updates), positions })
}
