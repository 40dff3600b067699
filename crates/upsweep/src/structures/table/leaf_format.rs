//! The bytes of a leaf: records in their [`Order`](super::Order), then their offsets for binary
//! search.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | number of records, at least 1 |
//! | 4..8 | end of the records |
//! | 8.. | records, without gaps, strictly ascending: by key, or by hash and key |
//! | end.. | offset of each record: 2 bytes if the records end at or below 65535, else 4 |
//!
//! | bytes of a record | content |
//! |---|---|
//! | 0 | bits 0 and 1 value kind; bit 7 large value; all others 0 |
//! | 1 | length of the key; from 128 on 2 bytes: low 7 bits with bit 7 set, then the rest |
//! | then | key |
//! | to its end | the value; or, if large, length (4) and crc32c (4) of the companion body |
//!
//! Where records expire, a value begins with its time (8), and the length and checksum of a large
//! one follow its time too, so that the leaf alone shows what has expired.
//!
//! A record ends where the next one begins, so a value needs no length, and gaps and overlaps
//! cannot be expressed. All integers are little-endian. A leaf without records is an empty body.
//!
//! Invariants: readers return an error, or wrong content, but never panic, on any bytes; every
//! record that is neither examined nor changed is copied as part of a whole stretch.

use std::cmp::Ordering;
use std::ops::Range;

use crate::engine::modifier::{ValueKind, ValueRef};
use crate::structures::modifiers::expires_us_of;

/// Bytes before the first record.
pub const HEADER_BYTES: usize = 8;
/// Maximum number of bytes of a record besides its key and value.
pub const RECORD_OVERHEAD_BYTES_MAX: usize = 3;
const LARGE: u8 = 0x80;
const LARGE_BYTES: usize = 8;
const TIME_BYTES: usize = 8;
const SHORT_KEY_BYTES_MAX: usize = 127;
/// Longest key that the layout can hold.
const KEY_BYTES_MAX: usize = (1 << 15) - 1;
const NARROW_END_MAX: usize = u16::MAX as usize;

/// A value as a leaf stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    /// In the leaf.
    Inline(ValueRef<'a>),
    /// In the companion space.
    Large {
        /// The kind of the value.
        kind: ValueKind,
        /// Length in bytes of the body of the companion block.
        bytes: u32,
        /// Crc32c of that body.
        crc: u32,
        /// When the record expires, if it does, in microseconds since the Unix epoch.
        expires_us: Option<u64>,
    },
}

impl Stored<'_> {
    /// When the record expires, in a leaf of such records.
    #[must_use]
    pub fn expires_us(&self) -> u64 {
        match self {
            Self::Inline(value) => expires_us_of(value.bytes),
            Self::Large { expires_us, .. } => expires_us.unwrap_or(u64::MAX),
        }
    }

    /// Bytes that it takes in a leaf.
    fn bytes(&self) -> usize {
        match self {
            Self::Inline(value) => value.bytes.len(),
            Self::Large { expires_us: None, .. } => LARGE_BYTES,
            Self::Large { expires_us: Some(_), .. } => TIME_BYTES + LARGE_BYTES,
        }
    }
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafRecord<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: Stored<'a>,
}

/// Bytes of a body with `count` records that take `record_bytes` together.
#[must_use]
pub fn body_bytes(record_bytes: usize, count: usize) -> usize {
    if count == 0 {
        return 0;
    }
    let end = HEADER_BYTES + record_bytes;
    end + count * slot_bytes(end)
}

fn slot_bytes(end: usize) -> usize {
    if end <= NARROW_END_MAX { 2 } else { 4 }
}

/// A leaf's body, read in place. Parsing is O(1) and allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'a> {
    /// Header and records.
    records: &'a [u8],
    slots: &'a [u8],
    count: usize,
}

impl<'a> Leaf<'a> {
    /// Checks the outer lengths of `body`; records are checked when they are read.
    ///
    /// # Errors
    /// A description of the damage if the lengths contradict each other.
    pub fn parse(body: &'a [u8]) -> Result<Self, String> {
        if body.is_empty() {
            return Ok(Self { records: &[], slots: &[], count: 0 });
        }
        let (Some(count), Some(end)) = (read_u32(body, 0), read_u32(body, 4)) else {
            return Err(format!("leaf of {} bytes is shorter than its header", body.len()));
        };
        let (count, end) = (count as usize, end as usize);
        let expected = count.checked_mul(slot_bytes(end)).and_then(|slots| slots.checked_add(end));
        if count == 0 || end < HEADER_BYTES || expected != Some(body.len()) {
            let length = body.len();
            return Err(format!("leaf of {length} bytes has {count} records that end at {end}"));
        }
        let (records, slots) = body.split_at(end);
        let leaf = Self { records, slots, count };
        if leaf.offset(0) != HEADER_BYTES { Err(leaf.bad(0)) } else { Ok(leaf) }
    }

    /// Number of records.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Where record `index` begins, as stored; the end of the records for `count`.
    #[inline]
    fn offset(&self, index: usize) -> usize {
        let found = if self.records.len() <= NARROW_END_MAX {
            let slot = self.slots.get(index * 2..).and_then(<[u8]>::first_chunk);
            slot.map(|slot| usize::from(u16::from_le_bytes(*slot)))
        } else {
            read_u32(self.slots, index * 4).map(|slot| slot as usize)
        };
        found.unwrap_or(self.records.len())
    }

    /// The first of these records that has expired by `expired_us`, in a leaf of records that
    /// expire; the end of `range` if there is none. Cost: a step per record.
    ///
    /// # Errors
    /// A description of the damage if a record that is read is malformed.
    pub fn first_expired(&self, range: Range<usize>, expired_us: u64) -> Result<usize, String> {
        let end = range.end;
        for index in range {
            let (_, _, value) = self.split(index).ok_or_else(|| self.bad(index))?;
            // The time comes first for a large value too.
            if expires_us_of(value) <= expired_us {
                return Ok(index);
            }
        }
        Ok(end)
    }

    /// Bytes of a leaf with only the records of `range`.
    #[must_use]
    pub fn body_bytes_of(&self, range: &Range<usize>) -> usize {
        let bytes = self.offset(range.end).saturating_sub(self.offset(range.start));
        body_bytes(bytes, range.len())
    }

    /// Whether a value of it is in the companion space; damaged records are ignored.
    #[must_use]
    pub fn has_large_values(&self) -> bool {
        let flags = |index| self.records.get(self.offset(index)).copied();
        (0..self.count).filter_map(flags).any(|flags| flags & LARGE != 0)
    }

    /// The record with this index.
    ///
    /// # Errors
    /// A description of the damage if the record is malformed or does not exist.
    #[inline]
    pub fn record(&self, index: usize) -> Result<LeafRecord<'a>, String> {
        let (flags, key, value) = self.split(index).ok_or_else(|| self.bad(index))?;
        let kind = ValueKind::from_number(flags & !LARGE).ok_or_else(|| self.bad(index))?;
        if flags & LARGE == 0 {
            let value = Stored::Inline(ValueRef { kind, bytes: value });
            return Ok(LeafRecord { key, value });
        }
        let (expires_us, value) = match value.split_first_chunk() {
            Some((time, rest)) if rest.len() == LARGE_BYTES => {
                (Some(u64::from_le_bytes(*time)), rest)
            }
            _ => (None, value),
        };
        match (value.len(), read_u32(value, 0), read_u32(value, 4)) {
            (LARGE_BYTES, Some(bytes), Some(crc)) => {
                Ok(LeafRecord { key, value: Stored::Large { kind, bytes, crc, expires_us } })
            }
            _ => Err(self.bad(index)),
        }
    }

    /// The key of the record with this index.
    ///
    /// # Errors
    /// A description of the damage if the record is malformed or does not exist.
    #[inline]
    pub fn key(&self, index: usize) -> Result<&'a [u8], String> {
        self.split(index).map(|(_, key, _)| key).ok_or_else(|| self.bad(index))
    }

    /// [`split`] of a record.
    #[inline]
    fn split(&self, index: usize) -> Option<(u8, &'a [u8], &'a [u8])> {
        split(self.records.get(self.offset(index)..self.offset(index + 1))?)
    }

    fn bad(&self, index: usize) -> String {
        let (count, offset) = (self.count, self.offset(index));
        format!("record {index} of {count} at byte {offset} is malformed")
    }

    /// Index of the first record from `from` on whose key is not below a wanted position, and
    /// whether it is equal to it. `compare` compares a key with that position; it must agree with
    /// the order of the records. Cost: O(log d) comparisons where d is the distance from `from`.
    ///
    /// # Errors
    /// A description of the damage if a record that is read is malformed.
    pub fn lower_bound(
        &self,
        from: usize,
        compare: impl Fn(&'a [u8]) -> Ordering,
    ) -> Result<(usize, bool), String> {
        let (mut low, mut high, mut step) = (from, from, 1);
        let mut is_found = false;
        while high < self.count {
            let order = compare(self.key(high)?);
            if order.is_ge() {
                is_found = order.is_eq();
                break;
            }
            low = high + 1;
            high = high.saturating_add(step);
            step *= 2;
        }
        high = high.min(self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let order = compare(self.key(middle)?);
            if order.is_lt() {
                low = middle + 1;
            } else {
                is_found = order.is_eq();
                high = middle;
            }
        }
        Ok((low, is_found))
    }

    /// The record that [`Leaf::lower_bound`] finds equal.
    ///
    /// # Errors
    /// A description of the damage if a record that is read is malformed.
    pub fn find(
        &self,
        compare: impl Fn(&'a [u8]) -> Ordering,
    ) -> Result<Option<Stored<'a>>, String> {
        match self.lower_bound(0, compare)? {
            (index, true) => Ok(Some(self.record(index)?.value)),
            (_, false) => Ok(None),
        }
    }
}

/// Flags, key and the rest of a record; `None` if its key is not encoded canonically.
#[inline]
fn split(record: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[flags, low], rest) = record.split_first_chunk::<2>()?;
    let (length, rest) = if usize::from(low) <= SHORT_KEY_BYTES_MAX {
        (usize::from(low), rest)
    } else {
        let (&high, rest) = rest.split_first()?;
        let length = usize::from(low & 0x7f) | usize::from(high) << 7;
        if length <= SHORT_KEY_BYTES_MAX {
            return None;
        }
        (length, rest)
    };
    let (key, value) = rest.split_at_checked(length)?;
    Some((flags, key, value))
}

fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|chunk| u32::from_le_bytes(*chunk))
}

/// Builds a leaf from records in their order.
#[derive(Debug)]
pub struct LeafBuilder {
    /// Room for the header, then records.
    body: Vec<u8>,
    offsets: Vec<u32>,
}

impl LeafBuilder {
    /// An empty leaf, with room for bodies of about this size.
    #[must_use]
    pub fn with_capacity(body_bytes: usize, records: usize) -> Self {
        let mut body = Vec::with_capacity(body_bytes.max(HEADER_BYTES));
        body.extend_from_slice(&[0; HEADER_BYTES]);
        Self { body, offsets: Vec::with_capacity(records) }
    }

    /// Number of records.
    #[must_use]
    pub fn count(&self) -> usize {
        self.offsets.len()
    }

    /// The key of the last record.
    #[must_use]
    pub fn last_key(&self) -> Option<&[u8]> {
        let (_, key, _) = split(self.body.get(*self.offsets.last()? as usize..)?)?;
        Some(key)
    }

    /// Bytes that [`LeafBuilder::finish`] would return.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        body_bytes(self.body.len() - HEADER_BYTES, self.offsets.len())
    }

    /// Bytes that [`LeafBuilder::finish`] would return after one more [`LeafBuilder::push`].
    #[must_use]
    pub fn body_bytes_with(&self, key: &[u8], value: &Stored<'_>) -> usize {
        let overhead_bytes =
            RECORD_OVERHEAD_BYTES_MAX - usize::from(key.len() <= SHORT_KEY_BYTES_MAX);
        let records = self.body.len() - HEADER_BYTES + overhead_bytes + key.len() + value.bytes();
        body_bytes(records, self.count() + 1)
    }

    /// Appends one record, which must come after all others and have a key of at most 32767 bytes.
    pub fn push(&mut self, key: &[u8], value: &Stored<'_>) {
        debug_assert!(key.len() <= KEY_BYTES_MAX, "longer keys were refused before");
        self.offsets.push(narrow(self.body.len()));
        let (kind, flag) = match value {
            Stored::Inline(value) => (value.kind, 0),
            Stored::Large { kind, .. } => (*kind, LARGE),
        };
        let low = key.len() as u8;
        if key.len() <= SHORT_KEY_BYTES_MAX {
            self.body.extend_from_slice(&[kind as u8 | flag, low]);
        } else {
            self.body.extend_from_slice(&[kind as u8 | flag, low | 0x80, (key.len() >> 7) as u8]);
        }
        self.body.extend_from_slice(key);
        match value {
            Stored::Inline(value) => self.body.extend_from_slice(value.bytes),
            Stored::Large { bytes, crc, expires_us, .. } => {
                if let Some(time) = expires_us {
                    self.body.extend_from_slice(&time.to_le_bytes());
                }
                self.body.extend_from_slice(&bytes.to_le_bytes());
                self.body.extend_from_slice(&crc.to_le_bytes());
            }
        }
    }

    /// Appends records of `leaf` unchanged: one copy, and one addition per record.
    ///
    /// # Errors
    /// A description of the invalid offsets in `leaf`.
    pub fn copy(&mut self, leaf: &Leaf<'_>, range: Range<usize>) -> Result<(), String> {
        if range.is_empty() {
            return Ok(());
        }
        let (start, end) = (leaf.offset(range.start), leaf.offset(range.end));
        let bad = || format!("offsets of records {range:?} are out of order");
        let stretch = leaf.records.get(start..end).ok_or_else(bad)?;
        let base = self.body.len();
        let width = slot_bytes(leaf.records.len());
        let slots = leaf.slots.get(range.start * width..range.end * width).ok_or_else(bad)?;
        narrow(base + stretch.len());
        let mut is_ascending = true;
        let mut least = start;
        let mut rebase = |offset: usize| {
            is_ascending &= least <= offset && offset < end;
            least = offset + 1;
            offset.wrapping_sub(start).wrapping_add(base) as u32
        };
        if width == 2 {
            let slots = slots.chunks_exact(2);
            let offsets = slots.map(|slot| usize::from(u16::from_le_bytes([slot[0], slot[1]])));
            self.offsets.extend(offsets.map(&mut rebase));
        } else {
            let slots = slots.chunks_exact(4);
            let offsets = slots.map(|s| u32::from_le_bytes([s[0], s[1], s[2], s[3]]) as usize);
            self.offsets.extend(offsets.map(&mut rebase));
        }
        if !is_ascending {
            return Err(bad());
        }
        self.body.extend_from_slice(stretch);
        Ok(())
    }

    /// The body; empty if there are no records.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        if self.offsets.is_empty() {
            return Vec::new();
        }
        let end = self.body.len();
        self.body[0..4].copy_from_slice(&narrow(self.offsets.len()).to_le_bytes());
        self.body[4..8].copy_from_slice(&narrow(end).to_le_bytes());
        self.body.resize(end + self.offsets.len() * slot_bytes(end), 0);
        let slots = &mut self.body[end..];
        if end <= NARROW_END_MAX {
            for (slot, offset) in slots.chunks_exact_mut(2).zip(&self.offsets) {
                slot.copy_from_slice(&(*offset as u16).to_le_bytes());
            }
        } else {
            for (slot, offset) in slots.chunks_exact_mut(4).zip(&self.offsets) {
                slot.copy_from_slice(&offset.to_le_bytes());
            }
        }
        self.body
    }
}

fn narrow(value: usize) -> u32 {
    u32::try_from(value).expect("a leaf and its updates are in memory and far below 4 GiB")
}
