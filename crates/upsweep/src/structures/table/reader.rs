//! Answers from one block: its body with the updates that wait for it applied on the fly.
//!
//! Pure functions over borrowed bytes, for use outside of any lock. Values are borrowed from the
//! body or an operand where possible. Updates that a modifier refuses are skipped: the sweep will
//! report them. (Bosc paper, section 4.4.)

use std::borrow::Cow;
use std::ops::Range;

use super::leaf::{large_value, resolved_value};
use super::leaf_format::{Leaf, Stored};
use super::order::Order;
use super::{ranges, raw_format};
use crate::engine::block_format::UpdateRef;
use crate::engine::modifier::{ValueKind, ValueRef};
use crate::engine::registry::Modifiers;
use crate::structures::modifiers::{is_decided, resolve};

/// The result of looking up a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// A value.
    Value {
        /// The kind of the bytes.
        kind: ValueKind,
        /// The bytes.
        bytes: Cow<'a, [u8]>,
    },
    /// No value.
    Absent,
    /// A value that needs the body of the key's block in the companion space: load it and call
    /// [`get`] again with it and the same updates.
    NeedLarge {
        /// Length of that body in bytes: one more than the value stored there.
        bytes: u32,
        /// Crc32c of that body.
        crc: u32,
    },
}

impl Lookup<'_> {
    /// The same, with owned bytes.
    #[must_use]
    pub fn into_owned(self) -> Lookup<'static> {
        match self {
            Self::Value { kind, bytes } => {
                Lookup::Value { kind, bytes: Cow::Owned(bytes.into_owned()) }
            }
            Self::Absent => Lookup::Absent,
            Self::NeedLarge { bytes, crc } => Lookup::NeedLarge { bytes, crc },
        }
    }
}

/// The value of `key` in a table's block with this `body` (`None`: it has no image, or the updates
/// determine the value alone), with `waiting` (sorted by key, then sequence, whatever the order of
/// the table) applied.
///
/// `loaded` is the body of the key's block in the companion space, if a first call asked for it.
/// Cost: two binary searches and one call of a modifier per update of the key.
///
/// # Errors
/// A description of the damage to the body or the loaded value: report it as damage.
pub fn get<'a, O: Order>(
    body: Option<&'a [u8]>,
    waiting: &[UpdateRef<'a>],
    modifiers: &Modifiers,
    key: &[u8],
    loaded: Option<&'a [u8]>,
) -> Result<Lookup<'a>, String> {
    let start = waiting.partition_point(|update| update.key < key);
    let count = waiting[start..].iter().take_while(|update| update.key == key).count();
    let updates = &waiting[start..start + count];
    let rank = O::rank(key);
    let leaf = Leaf::parse(body.unwrap_or_default())?;
    let stored = leaf.find(|found| O::compare(found, rank, key))?;
    look_up(stored, updates, modifiers, key, loaded)
}

/// The value of a block of [`RawFormat`](super::RawFormat) with its `waiting` updates applied;
/// never [`Lookup::NeedLarge`].
///
/// # Errors
/// A description of the damage to the body: report it as damage.
pub fn get_block<'a>(
    body: Option<&'a [u8]>,
    waiting: &[UpdateRef<'a>],
    modifiers: &Modifiers,
    key: &[u8],
) -> Result<Lookup<'a>, String> {
    let current = raw_format::decode(body.unwrap_or_default())?;
    Ok(answer(current, waiting, modifiers, key))
}

fn look_up<'a>(
    stored: Option<Stored<'a>>,
    updates: &[UpdateRef<'a>],
    modifiers: &Modifiers,
    key: &[u8],
    loaded: Option<&'a [u8]>,
) -> Result<Lookup<'a>, String> {
    let current = match stored {
        None => None,
        Some(Stored::Inline(value)) => Some(value),
        Some(Stored::Large { .. }) if is_decided(modifiers, key, updates) => None,
        Some(Stored::Large { kind, bytes, crc, .. }) => match loaded {
            Some(body) => Some(large_value(body, kind, bytes, crc)?),
            None => return Ok(Lookup::NeedLarge { bytes, crc }),
        },
    };
    Ok(answer(current, updates, modifiers, key))
}

fn answer<'a>(
    current: Option<ValueRef<'a>>,
    updates: &[UpdateRef<'a>],
    modifiers: &Modifiers,
    key: &[u8],
) -> Lookup<'a> {
    let resolved = resolve(modifiers, key, current, updates, &mut |_, _| {});
    match resolved_value(resolved, current) {
        Some((kind, bytes)) => Lookup::Value { kind, bytes },
        None => Lookup::Absent,
    }
}

/// One record of a [`Page`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value; never [`Lookup::Absent`]. A record that needs its large value may turn out to be
    /// absent once that is loaded and the waiting updates are applied.
    pub value: Lookup<'a>,
}

/// Which records of a block are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest<'a> {
    /// Smallest position; of an ordered table, a position is a key.
    pub from: &'a [u8],
    /// First position beyond; `None` for no bound.
    pub to: Option<&'a [u8]>,
    /// Descending from the largest position instead of ascending from the smallest.
    pub reverse: bool,
    /// At most this many records, but at least 1.
    pub records_max: usize,
    /// No further record once keys and values (large ones included) have reached this many bytes.
    pub bytes_max: usize,
}

/// Records of one block, in the order asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page<'a> {
    /// The records.
    pub records: Vec<Record<'a>>,
    /// Whether the block has no more records in the range. If it has, continue after the last
    /// record's position: with `from` right above it, or in reverse with `to` equal to it.
    pub is_complete: bool,
}

/// Sorts updates as [`page`] requires: in the order of the table, then by sequence.
pub fn sort<O: Order>(waiting: &mut [UpdateRef<'_>]) {
    waiting.sort_by(|left, right| {
        let order = O::compare(left.key, O::rank(right.key), right.key);
        order.then(left.seq.cmp(&right.seq))
    });
}

/// The records of one table's block in a range of positions; `body` as for [`get`], `waiting` as
/// [`sort`] leaves it.
///
/// Cost: a search, then one step per record of the range up to the limits.
///
/// # Errors
/// A description of the damage to the body: report it as damage.
pub fn page<'a, O: Order>(
    body: Option<&'a [u8]>,
    waiting: &[UpdateRef<'a>],
    modifiers: &Modifiers,
    request: &PageRequest<'_>,
) -> Result<Page<'a>, String> {
    let mut records = Vec::new();
    let mut bytes = 0usize;
    let is_complete = each::<O>(body, waiting, modifiers, request, |record| {
        let value_bytes = match &record.value {
            Lookup::Absent => 0,
            Lookup::Value { bytes, .. } => bytes.len(),
            Lookup::NeedLarge { bytes, .. } => *bytes as usize,
        };
        let is_full = records.len() >= request.records_max || bytes >= request.bytes_max;
        if is_full && !records.is_empty() {
            return false;
        }
        bytes = bytes.saturating_add(record.key.len()).saturating_add(value_bytes);
        records.push(record);
        true
    })?;
    Ok(Page { records, is_complete })
}

/// Shows the records of [`page`] without limits to `visit`, which says whether to go on; returns
/// whether all were shown.
///
/// # Errors
/// As [`page`].
pub(super) fn each<'a, O: Order>(
    body: Option<&'a [u8]>,
    waiting: &[UpdateRef<'a>],
    modifiers: &Modifiers,
    request: &PageRequest<'_>,
    mut visit: impl FnMut(Record<'a>) -> bool,
) -> Result<bool, String> {
    let leaf = Leaf::parse(body.unwrap_or_default())?;
    // Ranges are removed only from tables in key order.
    let expanded = ranges::expand(&leaf, waiting)?;
    let mut walk = Walk::new::<O>(leaf, &expanded.updates, request)?;
    while let Some((key, stored, updates)) = walk.next::<O>()? {
        let value = look_up(stored, updates, modifiers, key, None)?;
        if value != Lookup::Absent && !visit(Record { key, value }) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The keys of records and updates in a range, from both ends inwards.
struct Walk<'w, 'a> {
    leaf: Leaf<'a>,
    records: Range<usize>,
    updates: &'w [UpdateRef<'a>],
    reverse: bool,
}

/// A key, its value in the body, and the updates that wait for it.
type Step<'w, 'a> = (&'a [u8], Option<Stored<'a>>, &'w [UpdateRef<'a>]);

impl<'w, 'a> Walk<'w, 'a> {
    fn new<O: Order>(
        leaf: Leaf<'a>,
        waiting: &'w [UpdateRef<'a>],
        request: &PageRequest<'_>,
    ) -> Result<Self, String> {
        let below =
            |bound: &[u8]| waiting.partition_point(|update| *O::position(update.key) < *bound);
        let record_at = |from, bound: &[u8]| -> Result<usize, String> {
            Ok(leaf.lower_bound(from, |key| (*O::position(key)).cmp(bound))?.0)
        };
        let (first, first_update) = (record_at(0, request.from)?, below(request.from));
        let (end, end_update) = match request.to {
            Some(to) => (record_at(first, to)?, below(to).max(first_update)),
            None => (leaf.count(), waiting.len()),
        };
        let updates = &waiting[first_update..end_update];
        Ok(Self { leaf, records: first..end, updates, reverse: request.reverse })
    }

    fn next<O: Order>(&mut self) -> Result<Option<Step<'w, 'a>>, String> {
        let at = if self.reverse { self.records.end.wrapping_sub(1) } else { self.records.start };
        let record = if self.records.is_empty() { None } else { Some(self.leaf.record(at)?) };
        let update = if self.reverse { self.updates.last() } else { self.updates.first() };
        let key = match (record.map(|record| record.key), update.map(|update| update.key)) {
            (None, None) => return Ok(None),
            (Some(key), None) | (None, Some(key)) => key,
            (Some(left), Some(right)) => {
                let is_right_first = O::compare(left, O::rank(right), right).is_gt();
                if is_right_first == self.reverse { left } else { right }
            }
        };
        let record = record.filter(|record| record.key == key);
        if record.is_some() && self.reverse {
            self.records.end -= 1;
        } else if record.is_some() {
            self.records.start += 1;
        }
        let updates = self.take_updates(key);
        Ok(Some((key, record.map(|record| record.value), updates)))
    }

    fn take_updates(&mut self, key: &[u8]) -> &'w [UpdateRef<'a>] {
        if self.reverse {
            let others = self.updates.iter().rev().take_while(|update| update.key == key).count();
            let (rest, taken) = self.updates.split_at(self.updates.len() - others);
            self.updates = rest;
            return taken;
        }
        let count = self.updates.iter().take_while(|update| update.key == key).count();
        let (taken, rest) = self.updates.split_at(count);
        self.updates = rest;
        taken
    }
}
