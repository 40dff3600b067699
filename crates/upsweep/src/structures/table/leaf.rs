//! How a leaf applies its updates, splits, and joins its neighbour, in any [`Order`]; and the table
//! as a block format.
//!
//! Steps of `apply`:
//! 1. Bring the updates into the order of the records. Walk them key by key; between two keys that
//!    change, copy the old records as one stretch; resolve each key's updates and append the
//!    resulting record. Where records expire, expired ones are omitted from both.
//! 2. If the leaf is above its limit, cut it into pieces and name each by the shortest separator of
//!    positions.
//!
//! Invariants: records stay strictly ascending; a large value is written to or freed from the
//! companion space exactly when its record changes; equal inputs give equal bytes.

use std::borrow::Cow;
use std::ops::Range;

use super::leaf_format::{Leaf, LeafBuilder, RECORD_OVERHEAD_BYTES_MAX, Stored};
use super::order::{ByKey, Order, is_below};
use super::{ranges, raw_format};
use crate::engine::block_format::{
    Applied, ApplyError, ApplyInput, BlockFormat, Checked, Piece, Refused, Routing, UpdateRef,
    ValueBody,
};
use crate::engine::modifier::{ValueKind, ValueRef};
use crate::structures::modifiers::{
    KEY_BYTES_MAX, Resolved, check_stored, expires_us_of, is_decided, resolve,
};

/// Limit for the large values of one leaf together, in bytes, unless it holds a single record: a
/// visit may have to hold them in memory.
pub(super) const VALUES_BYTES_MAX: usize = 1 << 20;

/// Name of the block format of ordered tables.
pub const TABLE_FORMAT: &str = "table";

/// Name of the block format of tables of expiring records.
pub const EXPIRING_FORMAT: &str = "expiring";

/// The lifetime of the records of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifetime {
    /// Until they are deleted.
    #[default]
    Endless,
    /// Until they expire, at the time at the beginning of their values.
    Limited,
}

/// The leaf of an ordered table. Name: `table`, or `expiring` if the lifetime of its records is
/// limited.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableFormat(pub Lifetime);

impl BlockFormat for TableFormat {
    fn name(&self) -> &'static str {
        match self.0 {
            Lifetime::Endless => TABLE_FORMAT,
            Lifetime::Limited => EXPIRING_FORMAT,
        }
    }

    fn routing(&self) -> Routing {
        Routing::Ordered
    }

    fn keeps_key_order(&self) -> bool {
        true
    }

    fn apply<'a>(&self, input: &ApplyInput<'_, 'a>) -> Result<Applied<'a>, ApplyError> {
        let leaf = Leaf::parse(input.body.unwrap_or_default()).map_err(ApplyError::Corrupt)?;
        let expanded = ranges::expand(&leaf, input.updates).map_err(ApplyError::Corrupt)?;
        let of_keys = ApplyInput { updates: &expanded.updates, ..*input };
        let mut applied = apply::<ByKey>(&of_keys, self.0)?;
        for refused in &mut applied.refused {
            refused.index = expanded.position(refused.index);
        }
        Ok(applied)
    }

    fn for_each(
        &self,
        _low: &[u8],
        body: &[u8],
        visit: &mut dyn FnMut(&[u8], ValueRef<'_>),
    ) -> Result<(), String> {
        for_each(body, visit)
    }

    fn merge(&self, left: &[u8], right: &[u8], body_bytes_max: usize) -> Option<Vec<u8>> {
        merge::<ByKey>(left, right, body_bytes_max)
    }

    fn check(&self, body: &[u8], low: &[u8], high: Option<&[u8]>) -> Result<Checked, String> {
        check::<ByKey>(body, low, high, self.0)
    }
}

/// [`BlockFormat::apply`] for leaves, for updates of single keys.
pub(in crate::structures) fn apply<'a, O: Order>(
    input: &ApplyInput<'_, 'a>,
    lifetime: Lifetime,
) -> Result<Applied<'a>, ApplyError> {
    let leaf = Leaf::parse(input.body.unwrap_or_default()).map_err(ApplyError::Corrupt)?;
    let mut merge = Merge::new(input, leaf, lifetime);
    merge.run::<O>().map_err(ApplyError::Corrupt)?;
    let Merge { builder, mut values, refused, mut needed, .. } = merge;
    // The engine names large values by key only, whatever the order here.
    if !needed.is_empty() {
        needed.sort_unstable();
        return Err(ApplyError::NeedValues(needed));
    }
    values.sort_unstable_by(|left, right| left.0.cmp(&right.0));
    let count = builder.count();
    let body = builder.finish();
    let weights = Weights::of(&body, input.body_bytes_max).map_err(ApplyError::Corrupt)?;
    let pieces = if weights.total() <= input.body_bytes_max {
        vec![piece(None, body, count)]
    } else {
        let fill = Fill::of::<O>(&leaf, input.updates).map_err(ApplyError::Corrupt)?;
        split::<O>(&weights, fill).map_err(ApplyError::Corrupt)?
    };
    Ok(Applied { pieces, values, refused })
}

/// [`BlockFormat::for_each`] for leaves.
pub(in crate::structures) fn for_each(
    body: &[u8],
    visit: &mut dyn FnMut(&[u8], ValueRef<'_>),
) -> Result<(), String> {
    let leaf = Leaf::parse(body)?;
    for index in 0..leaf.count() {
        let record = leaf.record(index)?;
        if let Stored::Inline(value) = record.value {
            visit(record.key, value);
        }
    }
    Ok(())
}

/// [`BlockFormat::merge`] for leaves: joins neighbours that are together at most 60 % full, and any
/// leaf with an empty neighbour.
pub(in crate::structures) fn merge<O: Order>(
    left: &[u8],
    right: &[u8],
    body_bytes_max: usize,
) -> Option<Vec<u8>> {
    if left.is_empty() || right.is_empty() {
        return Some([left, right].concat());
    }
    let total = left.len() + right.len();
    let most = body_bytes_max.saturating_mul(3) / 5;
    let weight = |body| Weights::of(body, body_bytes_max).map(|weights| weights.total());
    if total > most || weight(left).ok()? + weight(right).ok()? > most {
        return None;
    }
    let (left, right) = (Leaf::parse(left).ok()?, Leaf::parse(right).ok()?);
    let (last, first) = (left.key(left.count() - 1).ok()?, right.key(0).ok()?);
    if O::compare(last, O::rank(first), first).is_ge() {
        return None;
    }
    let mut builder = LeafBuilder::with_capacity(total, left.count() + right.count());
    builder.copy(&left, 0..left.count()).ok()?;
    builder.copy(&right, 0..right.count()).ok()?;
    Some(builder.finish()).filter(|body| body.len() <= body_bytes_max)
}

/// [`BlockFormat::check`] for leaves.
pub(in crate::structures) fn check<O: Order>(
    body: &[u8],
    low: &[u8],
    high: Option<&[u8]>,
    lifetime: Lifetime,
) -> Result<Checked, String> {
    let leaf = Leaf::parse(body)?;
    let mut checked = Checked::default();
    let mut previous: Option<Cow<'_, [u8]>> = None;
    let last = leaf.count().saturating_sub(1);
    for index in 0..leaf.count() {
        let record = leaf.record(index)?;
        let key = record.key;
        let bad = |reason: &str| {
            let shown = String::from_utf8_lossy(&key[..key.len().min(64)]);
            format!("record {index}, key {shown:?}, {reason}")
        };
        if key.len() > KEY_BYTES_MAX {
            return Err(format!("record {index} has a key of {} bytes", key.len()));
        }
        let position = O::position(key);
        if previous.is_some_and(|previous| !is_below(&previous, &position)) {
            return Err(bad("is out of order"));
        }
        // Between the first and the last, order is enough.
        let is_before = index == 0 && *position < *low;
        let is_behind = index == last && high.is_some_and(|high| *high <= *position);
        if is_before || is_behind {
            return Err(bad("belongs to another block"));
        }
        check_record_value(&record.value)
            .map_err(|reason| bad(&format!("is malformed: {reason}")))?;
        if let Stored::Large { bytes, expires_us, .. } = record.value {
            if expires_us.is_some() != (lifetime == Lifetime::Limited) {
                return Err(bad("has a large value with a time where none belongs, or without"));
            }
            checked.values.push((key.to_vec(), bytes));
        }
        previous = Some(position);
        checked.records += 1;
    }
    Ok(checked)
}

#[inline]
fn check_record_value(value: &Stored<'_>) -> Result<(), String> {
    let (kind, length) = match value {
        Stored::Inline(value) => (value.kind, Some(value.bytes.len())),
        // The body of its companion block begins with the kind.
        Stored::Large { kind, bytes, .. } => (*kind, (*bytes as usize).checked_sub(1)),
    };
    let length = length.ok_or("a large value without its kind")?;
    check_stored(kind, length).map_err(|refusal| refusal.0)
}

/// What a leaf stores of a large value: length and checksum are those of the body of its companion
/// block.
pub(super) fn stored_apart(kind: ValueKind, bytes: &[u8], lifetime: Lifetime) -> Stored<'static> {
    let length = u32::try_from(1 + bytes.len()).expect("values are far below 4 GiB");
    let crc = crc32c::crc32c_append(crc32c::crc32c(&[kind as u8]), bytes);
    let expires_us = (lifetime == Lifetime::Limited).then(|| expires_us_of(bytes));
    Stored::Large { kind, bytes: length, crc, expires_us }
}

/// The value in the companion block `body` to which a leaf refers by kind, length and checksum.
///
/// # Errors
/// A description of the damage if length, checksum or kind differ from those in the leaf.
pub(super) fn large_value<'a>(
    body: &'a [u8],
    kind: ValueKind,
    bytes: u32,
    crc: u32,
) -> Result<ValueRef<'a>, String> {
    let found = body.len();
    if found != bytes as usize {
        return Err(format!("a large value has {found} bytes where its leaf says {bytes}"));
    }
    if crc32c::crc32c(body) != crc {
        return Err(format!("a large value of {bytes} bytes fails its leaf's checksum"));
    }
    let value = raw_format::decode(body)?.filter(|value| value.kind == kind);
    value.ok_or_else(|| format!("a large value is not of kind {kind:?} as its leaf says"))
}

fn piece(key: Option<Vec<u8>>, body: Vec<u8>, records: usize) -> Piece {
    let records = u32::try_from(records).expect("a leaf has fewer records than bytes");
    Piece { key, body, records }
}

/// The updates of one key.
struct Group<'i, 'a, R> {
    rank: R,
    /// Position of the first of them in the input.
    first: usize,
    updates: &'i [UpdateRef<'a>],
}

/// The walk over old records and updates.
struct Merge<'i, 'a> {
    input: &'i ApplyInput<'i, 'a>,
    leaf: Leaf<'a>,
    lifetime: Lifetime,
    /// Old records below this one have been handled.
    next: usize,
    builder: LeafBuilder,
    values: Vec<(Vec<u8>, Option<ValueBody<'a>>)>,
    refused: Vec<Refused>,
    needed: Vec<Vec<u8>>,
}

impl<'i, 'a> Merge<'i, 'a> {
    fn new(input: &'i ApplyInput<'i, 'a>, leaf: Leaf<'a>, lifetime: Lifetime) -> Self {
        let (updates, inline_max) = (input.updates, input.inline_value_bytes_max);
        let added = |update: &UpdateRef<'_>| {
            // The slot is 4 bytes while it grows.
            update.key.len() + update.operand.len().min(inline_max) + RECORD_OVERHEAD_BYTES_MAX + 4
        };
        let bytes = input.body.map_or(0, <[u8]>::len) + updates.iter().map(added).sum::<usize>();
        Self {
            input,
            leaf,
            lifetime,
            next: 0,
            builder: LeafBuilder::with_capacity(bytes, leaf.count() + updates.len()),
            values: Vec::new(),
            refused: Vec::new(),
            needed: Vec::new(),
        }
    }

    fn run<O: Order>(&mut self) -> Result<(), String> {
        let mut first = 0;
        let by_key = self.input.updates.chunk_by(|left, right| left.key == right.key);
        let mut groups = by_key.map(|updates| {
            let group = Group { rank: O::rank(updates[0].key), first, updates };
            first += updates.len();
            group
        });
        if O::OF_KEYS {
            groups.try_for_each(|group| self.update::<O>(&group))?;
        } else {
            let mut groups: Vec<_> = groups.collect();
            // Stable, so keys of equal rank stay sorted.
            groups.sort_by_key(|group| group.rank);
            groups.iter().try_for_each(|group| self.update::<O>(group))?;
        }
        self.copy(self.next..self.leaf.count())
    }

    /// Copies old records, except those that have expired.
    fn copy(&mut self, range: Range<usize>) -> Result<(), String> {
        let Range { mut start, end } = range;
        if self.lifetime == Lifetime::Limited && self.input.expired_us > 0 {
            while start < end {
                let expired = self.leaf.first_expired(start..end, self.input.expired_us)?;
                self.builder.copy(&self.leaf, start..expired)?;
                start = expired + 1;
                if expired < end {
                    let record = self.leaf.record(expired)?;
                    self.free(record.key, matches!(record.value, Stored::Large { .. }));
                }
            }
            return Ok(());
        }
        self.builder.copy(&self.leaf, start..end)
    }

    fn update<O: Order>(&mut self, group: &Group<'i, 'a, O::Rank>) -> Result<(), String> {
        let Group { rank, first, updates } = *group;
        let key = updates[0].key;
        let compare = |found: &[u8]| O::compare(found, rank, key);
        let (position, is_found) = self.leaf.lower_bound(self.next, compare)?;
        let old = if is_found { Some(self.leaf.record(position)?.value) } else { None };
        let current = match old {
            None => None,
            Some(Stored::Inline(value)) => Some(value),
            Some(Stored::Large { kind, bytes, crc, .. }) => match self.loaded(key) {
                Some(body) => Some(large_value(body, kind, bytes, crc)?),
                None if is_decided(self.input.modifiers, key, updates) => None,
                None => {
                    self.needed.push(key.to_vec());
                    return Ok(());
                }
            },
        };
        let refused = &mut self.refused;
        let mut on_refused =
            |position, reason| refused.push(Refused { index: first + position, reason });
        let resolved = resolve(self.input.modifiers, key, current, updates, &mut on_refused);
        if resolved == Resolved::Unchanged {
            return Ok(());
        }
        self.copy(self.next..position)?;
        self.next = position + usize::from(is_found);
        let was_large = matches!(old, Some(Stored::Large { .. }));
        match resolved {
            Resolved::Put(_, bytes) if self.has_expired(&bytes) => self.free(key, was_large),
            Resolved::Put(kind, bytes) => self.put(key, kind, bytes, was_large),
            Resolved::Delete | Resolved::Unchanged => self.free(key, was_large),
        }
        Ok(())
    }

    /// Whether a record with this value has expired and must be dropped.
    fn has_expired(&self, value: &[u8]) -> bool {
        self.lifetime == Lifetime::Limited && expires_us_of(value) <= self.input.expired_us
    }

    fn loaded(&self, key: &[u8]) -> Option<&'i [u8]> {
        let values = self.input.values;
        let found = values.binary_search_by(|(loaded, _)| loaded.as_slice().cmp(key)).ok()?;
        Some(&values[found].1)
    }

    fn put(&mut self, key: &[u8], kind: ValueKind, bytes: Cow<'a, [u8]>, was_large: bool) {
        if bytes.len() <= self.input.inline_value_bytes_max {
            self.builder.push(key, &Stored::Inline(ValueRef { kind, bytes: &bytes }));
            self.free(key, was_large);
            return;
        }
        self.builder.push(key, &stored_apart(kind, &bytes, self.lifetime));
        self.values.push((key.to_vec(), Some(ValueBody { head: kind as u8, rest: bytes })));
    }

    fn free(&mut self, key: &[u8], was_large: bool) {
        if was_large {
            self.values.push((key.to_vec(), None));
        }
    }
}

/// How full the pieces of a split are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    /// Evenly, about 3/4: any piece may grow.
    Even,
    /// About 90 %, with the rest in the last: new keys come only at the end.
    Append,
}

impl Fill {
    /// Keys that arrive in ascending order after the old end suggest an append-only table. In a
    /// leaf without old records only the order of arrival decides. In any order other than that of
    /// keys this would be chance.
    fn of<O: Order>(leaf: &Leaf<'_>, updates: &[UpdateRef<'_>]) -> Result<Self, String> {
        let is_append = match (leaf.count().checked_sub(1), updates.first()) {
            _ if !O::OF_KEYS => false,
            (_, None) => false,
            (None, Some(_)) => updates.is_sorted_by_key(|update| update.seq),
            (Some(last), Some(first)) => leaf.key(last)? < first.key,
        };
        Ok(if is_append { Self::Append } else { Self::Even })
    }
}

/// How much of `body_bytes_max` a leaf uses, with a body of `body_bytes`: large values of
/// `values_bytes` use the same fraction of it as of [`VALUES_BYTES_MAX`].
pub(super) fn weight(body_bytes: usize, values_bytes: usize, body_bytes_max: usize) -> usize {
    body_bytes + values_bytes.saturating_mul(body_bytes_max) / VALUES_BYTES_MAX
}

/// The [`weight`] of any range of a leaf's records.
struct Weights<'a> {
    leaf: Leaf<'a>,
    body_bytes_max: usize,
    /// Bytes of the large values before each record, and of all; empty if there are none.
    values: Vec<usize>,
}

impl<'a> Weights<'a> {
    /// Cost: O(records), and no allocation for a leaf without large values.
    fn of(body: &'a [u8], body_bytes_max: usize) -> Result<Self, String> {
        let leaf = Leaf::parse(body)?;
        let mut weights = Self { leaf, body_bytes_max, values: Vec::new() };
        if body_bytes_max == usize::MAX || !leaf.has_large_values() {
            return Ok(weights);
        }
        let mut sum = 0;
        weights.values.push(sum);
        for index in 0..leaf.count() {
            if let Stored::Large { bytes, .. } = leaf.record(index)?.value {
                sum += bytes as usize;
            }
            weights.values.push(sum);
        }
        Ok(weights)
    }

    fn total(&self) -> usize {
        self.of_range(&(0..self.leaf.count()))
    }

    fn of_range(&self, range: &Range<usize>) -> usize {
        let values = match (self.values.get(range.start), self.values.get(range.end)) {
            (Some(before), Some(through)) => through - before,
            _ => 0,
        };
        weight(self.leaf.body_bytes_of(range), values, self.body_bytes_max)
    }
}

/// Cuts a leaf that is above its limit into pieces that are not, except for single records.
fn split<O: Order>(weights: &Weights<'_>, fill: Fill) -> Result<Vec<Piece>, String> {
    let leaf = &weights.leaf;
    let ranges = cut(weights, fill);
    let mut pieces = Vec::with_capacity(ranges.len());
    for range in ranges {
        let key = match range.start.checked_sub(1) {
            None => None,
            Some(left) => {
                let (left, right) = (leaf.key(left)?, leaf.key(range.start)?);
                Some(separator(&O::position(left), &O::position(right)).to_vec())
            }
        };
        let count = range.len();
        let mut builder = LeafBuilder::with_capacity(leaf.body_bytes_of(&range), count);
        builder.copy(leaf, range)?;
        pieces.push(piece(key, builder.finish(), count));
    }
    Ok(pieces)
}

/// Ranges of records, one per piece. Cost: O(records).
fn cut(weights: &Weights<'_>, fill: Fill) -> Vec<Range<usize>> {
    let count = weights.leaf.count();
    let most = weights.body_bytes_max.max(1);
    let three_quarters = (most / 4 * 3).max(1);
    let mut pieces_left = weights.total().div_ceil(three_quarters);
    let mut ranges = Vec::with_capacity(pieces_left.min(count));
    let mut start = 0;
    while start < count {
        let rest = weights.of_range(&(start..count));
        pieces_left = pieces_left.max(rest.div_ceil(most));
        let target = match fill {
            Fill::Even => rest / pieces_left,
            Fill::Append => most / 10 * 9,
        };
        let mut end = start + 1;
        let mut bytes = weights.of_range(&(start..end));
        while end < count {
            let more = weights.of_range(&(start..end + 1));
            let is_nearer = fill == Fill::Even && more.abs_diff(target) < bytes.abs_diff(target);
            if more > most || (more > target && !is_nearer) {
                break;
            }
            bytes = more;
            end += 1;
        }
        ranges.push(start..end);
        start = end;
        pieces_left = pieces_left.saturating_sub(1).max(1);
    }
    ranges
}

/// The shortest prefix of `right` that is above `left`; `left` is below `right`.
pub(super) fn separator<'a>(left: &[u8], right: &'a [u8]) -> &'a [u8] {
    let common = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    right.get(..=common).unwrap_or(right)
}

/// A value to return: the stored one, or what is needed to determine it.
pub(super) fn resolved_value<'a>(
    resolved: Resolved<'a>,
    current: Option<ValueRef<'a>>,
) -> Option<(ValueKind, Cow<'a, [u8]>)> {
    match resolved {
        Resolved::Unchanged => current.map(|value| (value.kind, Cow::Borrowed(value.bytes))),
        Resolved::Put(kind, bytes) => Some((kind, bytes)),
        Resolved::Delete => None,
    }
}
