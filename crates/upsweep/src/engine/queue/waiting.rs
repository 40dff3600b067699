//! Copies of waiting updates: packed as they lay in their queue, or unpacked to be looked at.

use std::sync::Arc;

use super::entry::Entry;
use super::tails::TailTable;
use crate::engine::block_format::UpdateRef;
use crate::engine::format::codec_format::{Malformed, Reader, put_bytes, put_varint};
use crate::engine::registry::{DELETE, DELETE_RANGE, KeyRange, ModifierId};

/// A copy of the updates of one queue, as short as they were there.
#[derive(Debug, Default)]
pub struct Packed {
    /// The table of tails as it was when the updates were copied.
    pub(super) tails: Arc<[u8]>,
    pub(super) low: Box<[u8]>,
    pub(super) bytes: Vec<u8>,
    pub(super) growth_bytes: u32,
    pub(super) count: u32,
    pub(super) first_seq: u64,
}

impl Packed {
    /// Memory that it takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.low.len()
    }

    /// How much the block grows if every update makes a new record, about.
    #[must_use]
    pub fn growth_bytes(&self) -> u32 {
        self.growth_bytes
    }

    /// Number of updates.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The updates, to be read where they are.
    #[must_use]
    pub fn as_section(&self) -> Section<'_> {
        let Self { tails, low, bytes, growth_bytes, count, first_seq } = self;
        let (growth_bytes, count, first_seq) = (*growth_bytes, *count, *first_seq);
        Section { tails: TailTable::of(tails), low, bytes, growth_bytes, count, first_seq }
    }

    /// The updates, in the order of their arrival (after folding: by key, then arrival).
    #[must_use]
    pub fn unpack(&self) -> Waiting {
        self.as_section().unpack()
    }

    /// The updates of one key; the removal of a range that covers it is one that deletes it.
    #[must_use]
    pub fn of_key(&self, key: &[u8]) -> Waiting {
        self.as_section().of_key(key)
    }
}

/// The updates of one queue, packed, in memory that belongs to somebody else: in a bundle, say.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    tails: TailTable<'a>,
    low: &'a [u8],
    bytes: &'a [u8],
    growth_bytes: u32,
    count: u32,
    first_seq: u64,
}

impl<'a> Section<'a> {
    /// Key of the block in whose queue they were.
    #[must_use]
    pub fn low(&self) -> &'a [u8] {
        self.low
    }

    /// The tails of keys that its updates refer to.
    #[must_use]
    pub fn tails(&self) -> TailTable<'a> {
        self.tails
    }

    /// Number of updates.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Appends it to `out`, but for the tails: those of several sections are one table.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.low);
        put_varint(out, self.first_seq);
        put_varint(out, u64::from(self.count));
        put_varint(out, u64::from(self.growth_bytes));
        put_bytes(out, self.bytes);
    }

    /// Reads what [`Section::encode`] wrote; its updates may refer to `tails`. They are not looked
    /// at: see [`Section::check`].
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are no section.
    pub fn read(reader: &mut Reader<'a>, tails: TailTable<'a>) -> Result<Self, Malformed> {
        let low = reader.bytes()?;
        let (first_seq, count, growth_bytes) =
            (reader.varint()?, reader.narrow()?, reader.narrow()?);
        Ok(Self { tails, low, bytes: reader.bytes()?, growth_bytes, count, first_seq })
    }

    /// Checks every update, so that the functions below may read them.
    ///
    /// # Errors
    /// [`Malformed`] when one of them is none.
    pub fn check(self) -> Result<Self, Malformed> {
        let mut reader = Reader::new(self.bytes);
        for _ in 0..self.count {
            Entry::read(&mut reader, &self.tails, self.first_seq)?.check(self.low)?;
        }
        if reader.is_empty() { Ok(self) } else { Err(Malformed("section end")) }
    }

    /// The updates, in the order of their arrival (after folding: by key, then arrival).
    #[must_use]
    pub fn unpack(&self) -> Waiting {
        let mut waiting = Waiting {
            bytes: Vec::with_capacity(2 * self.bytes.len()),
            spans: Vec::with_capacity(self.count as usize),
        };
        self.for_each(|entry| waiting.push_entry(&entry, self.low));
        waiting
    }

    /// The updates of one key; the removal of a range that covers it is one that deletes it.
    #[must_use]
    pub fn of_key(&self, key: &[u8]) -> Waiting {
        let mut found = Waiting::default();
        let mut scratch = Waiting::default();
        self.for_each(|entry| {
            if entry.modifier == DELETE_RANGE {
                scratch.clear();
                scratch.push_entry(&entry, self.low);
                let range = scratch
                    .get(0)
                    .filter(|update| KeyRange::of(update).is_some_and(|range| range.contains(key)));
                if let Some(update) = range {
                    found.push(&UpdateRef { modifier: DELETE, key, operand: &[], ..update });
                }
            } else if entry.has_key(self.low, key) {
                found.push_entry(&entry, self.low);
            }
        });
        found
    }

    fn for_each(&self, mut visit: impl FnMut(Entry<'a>)) {
        let mut reader = Reader::new(self.bytes);
        for _ in 0..self.count {
            let entry = Entry::read(&mut reader, &self.tails, self.first_seq);
            visit(entry.expect("a queue holds what was encoded for it"));
        }
    }
}

/// Where an update lies: its key, and behind it its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    seq: u64,
    modifier: ModifierId,
    start: u32,
    key_bytes: u32,
    operand_bytes: u32,
}

/// Waiting updates, owned, in the order of their arrival (after folding: by key, then arrival).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Waiting {
    /// Number of updates.
    #[must_use]
    pub fn count(&self) -> usize {
        self.spans.len()
    }

    /// The updates.
    pub fn updates(&self) -> impl Iterator<Item = UpdateRef<'_>> {
        (0..self.spans.len()).filter_map(|index| self.get(index))
    }

    /// Appends one update.
    pub fn push(&mut self, update: &UpdateRef<'_>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(update.key);
        self.bytes.extend_from_slice(update.operand);
        self.note(update.seq, update.modifier, start, update.key.len(), update.operand.len());
    }

    fn push_entry(&mut self, entry: &Entry<'_>, low: &[u8]) {
        let start = self.bytes.len();
        let key_bytes = entry.put_key(low, &mut self.bytes);
        let operand_bytes = entry.put_operand(&mut self.bytes);
        self.note(entry.seq, entry.modifier, start, key_bytes, operand_bytes);
    }

    fn note(
        &mut self,
        seq: u64,
        modifier: ModifierId,
        start: usize,
        key_bytes: usize,
        operand_bytes: usize,
    ) {
        let narrow = |bytes| u32::try_from(bytes).expect("what waits for a block is below 4 GiB");
        let (start, key_bytes) = (narrow(start), narrow(key_bytes));
        let operand_bytes = narrow(operand_bytes);
        self.spans.push(Span { seq, modifier, start, key_bytes, operand_bytes });
    }

    fn get(&self, index: usize) -> Option<UpdateRef<'_>> {
        let Span { seq, modifier, start, key_bytes, operand_bytes } = *self.spans.get(index)?;
        let (key, rest) = self.bytes.get(start as usize..)?.split_at(key_bytes as usize);
        Some(UpdateRef { seq, modifier, key, operand: &rest[..operand_bytes as usize] })
    }

    /// All but those whose key is in one of the ranges and that are older than its sequence.
    #[must_use]
    pub fn without_removed(self, ranges: &[(u64, KeyRange<'_>)]) -> Self {
        self.only(|update| {
            !ranges.iter().any(|(seq, range)| *seq > update.seq && range.contains(update.key))
        })
    }

    /// Those that are wanted.
    #[must_use]
    pub fn only(self, is_wanted: impl Fn(&UpdateRef<'_>) -> bool) -> Self {
        if self.updates().all(|update| is_wanted(&update)) {
            return self;
        }
        let mut left = Self::default();
        self.updates().filter(is_wanted).for_each(|update| left.push(&update));
        left
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }
}
