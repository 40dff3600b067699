//! Copies of waiting updates: packed as they lay in their queue, or unpacked to be looked at.

use super::entry::Entry;
use crate::engine::block_format::UpdateRef;
use crate::engine::format::codec_format::Reader;
use crate::engine::registry::{DELETE, DELETE_RANGE, KeyRange, ModifierId};

/// A copy of the updates of one queue, as short as they were there.
#[derive(Debug, Default)]
pub struct Packed {
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

    /// Sequence of the oldest update.
    #[must_use]
    pub fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// The updates, in the order of their arrival (after folding: by key, then arrival).
    #[must_use]
    pub fn unpack(&self) -> Waiting {
        let mut waiting = Waiting {
            bytes: Vec::with_capacity(2 * self.bytes.len()),
            spans: Vec::with_capacity(self.count as usize),
        };
        self.for_each(|entry| waiting.push_entry(&entry, &self.low));
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
                scratch.push_entry(&entry, &self.low);
                let range = scratch
                    .get(0)
                    .filter(|update| KeyRange::of(update).is_some_and(|range| range.contains(key)));
                if let Some(update) = range {
                    found.push(&UpdateRef { modifier: DELETE, key, operand: &[], ..update });
                }
            } else if entry.has_key(&self.low, key) {
                found.push_entry(&entry, &self.low);
            }
        });
        found
    }

    fn for_each<'a>(&'a self, mut visit: impl FnMut(Entry<'a>)) {
        let mut reader = Reader::new(&self.bytes);
        for _ in 0..self.count {
            let entry = Entry::read(&mut reader, self.first_seq);
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

    fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }
}
