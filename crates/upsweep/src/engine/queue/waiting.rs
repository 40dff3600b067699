//! Copies of waiting updates: packed as in their queue, or unpacked for reading.
//!
//! Long operands are not copied when updates are unpacked: a queue of large values is in memory
//! once, not twice, while its block is swept.

use std::borrow::Cow;
use std::sync::Arc;

use super::copied::Copied;
use super::entry::QueueEntry;
use super::tails::TailTable;
use crate::engine::block_format::UpdateRef;
use crate::engine::format::codec_format::{Malformed, Reader, put_bytes, put_varint, varint_len};
use crate::engine::registry::{DELETE, DELETE_RANGE, KeyRange, ModifierId};
use crate::log::Seq;

/// A copy of the updates of one queue, in the same compact form.
#[derive(Debug, Default)]
pub struct Packed {
    /// The table of tails at the time of the copy.
    pub(super) tails: Arc<[u8]>,
    pub(super) low: Box<[u8]>,
    pub(super) bytes: Copied,
    pub(super) growth_bytes: u32,
    pub(super) count: u32,
    pub(super) first_seq: Seq,
}

impl Packed {
    /// Memory that it takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.memory_bytes() + self.low.len()
    }

    /// Approximately how much the block grows if every update makes a new record.
    #[must_use]
    pub fn growth_bytes(&self) -> u32 {
        self.growth_bytes
    }

    /// Number of updates.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The updates, to be read in place.
    #[must_use]
    pub fn as_section(&self) -> Section<'_> {
        let Self { tails, low, bytes, growth_bytes, count, first_seq } = self;
        let (growth_bytes, count, first_seq) = (*growth_bytes, *count, *first_seq);
        Section { tails: TailTable::of(tails), low, bytes, growth_bytes, count, first_seq }
    }

    /// The updates, in the order of their arrival (after folding: by key, then arrival).
    #[must_use]
    pub fn unpack(&self) -> Waiting<'_> {
        self.as_section().unpack()
    }

    /// The updates of one key; the removal of a range that covers it appears as a deletion of the
    /// key.
    #[must_use]
    pub fn of_key(&self, key: &[u8]) -> Waiting<'_> {
        self.as_section().of_key(key)
    }

    /// The updates of wanted keys, and all removals of ranges.
    #[must_use]
    pub fn with_keys(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Waiting<'_> {
        let found = self.as_section().with_keys(is_wanted);
        found.expect("a queue holds what was encoded for it")
    }
}

/// The updates of one queue, packed, in borrowed memory: in a spill segment, for example.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    tails: TailTable<'a>,
    low: &'a [u8],
    bytes: &'a [u8],
    growth_bytes: u32,
    count: u32,
    first_seq: Seq,
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

    /// Appends it to `out`, without the tails: several sections share one table.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.low);
        put_varint(out, self.first_seq.get());
        put_varint(out, u64::from(self.count));
        put_varint(out, u64::from(self.growth_bytes));
        put_bytes(out, self.bytes);
    }

    /// Bytes that [`Section::encode`] appends.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        let of = |bytes: &[u8]| varint_len(bytes.len() as u64) + bytes.len();
        let numbers = [self.first_seq.get(), u64::from(self.count), u64::from(self.growth_bytes)];
        of(self.low) + numbers.into_iter().map(varint_len).sum::<usize>() + of(self.bytes)
    }

    /// Reads what [`Section::encode`] wrote; its updates may refer to `tails`. They are not
    /// examined: see [`Section::check`].
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not a section.
    pub fn read(reader: &mut Reader<'a>, tails: TailTable<'a>) -> Result<Self, Malformed> {
        let low = reader.bytes()?;
        let (first_seq, count, growth_bytes) = (reader.seq()?, reader.narrow()?, reader.narrow()?);
        Ok(Self { tails, low, bytes: reader.bytes()?, growth_bytes, count, first_seq })
    }

    /// Checks every update, so that the functions below may read them.
    ///
    /// # Errors
    /// [`Malformed`] when one of them is not valid.
    pub fn check(self) -> Result<Self, Malformed> {
        self.try_each(|entry| entry.check(self.low))?;
        Ok(self)
    }

    /// The updates, in the order of their arrival (after folding: by key, then arrival).
    #[must_use]
    pub fn unpack(&self) -> Waiting<'a> {
        let mean_bytes = self.bytes.len() / (self.count as usize).max(1);
        let copied = if mean_bytes < LONG_BYTES_MIN { 2 * self.bytes.len() } else { 0 };
        let mut waiting = Waiting {
            bytes: Vec::with_capacity(copied),
            spans: Vec::with_capacity(self.count as usize),
            long: Vec::new(),
        };
        self.for_each(|entry| waiting.push_entry(&entry, self.low));
        waiting
    }

    /// The updates of one key; the removal of a range that covers it appears as a deletion of the
    /// key.
    #[must_use]
    pub fn of_key(&self, key: &[u8]) -> Waiting<'a> {
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

    /// The updates of wanted keys, and all removals of ranges; checks every update on the way.
    ///
    /// # Errors
    /// [`Malformed`] when an update is not valid.
    pub fn with_keys(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Result<Waiting<'a>, Malformed> {
        let (mut found, mut key) = (Waiting::default(), Vec::new());
        self.try_each(|entry| {
            entry.check(self.low)?;
            key.clear();
            entry.put_key(self.low, &mut key);
            if entry.modifier == DELETE_RANGE || is_wanted(&key) {
                found.push_entry(&entry, self.low);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Shows all entries to `visit`.
    fn try_each(
        &self,
        mut visit: impl FnMut(QueueEntry<'a>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let mut reader = Reader::new(self.bytes);
        for _ in 0..self.count {
            visit(QueueEntry::read(&mut reader, &self.tails, self.first_seq)?)?;
        }
        if reader.is_empty() { Ok(()) } else { Err(Malformed("section end")) }
    }

    /// Shows all entries of a section that is known to be valid to `visit`.
    fn for_each(&self, mut visit: impl FnMut(QueueEntry<'a>)) {
        let visited = self.try_each(|entry| {
            visit(entry);
            Ok(())
        });
        visited.expect("a queue holds what was encoded for it");
    }
}

/// Operands of at least this length are not copied.
const LONG_BYTES_MIN: usize = 4096;

/// The position of an update: its key, followed by its operand.
#[derive(Clone, Copy, Debug)]
struct Span {
    seq: Seq,
    modifier: ModifierId,
    /// Whether the operand is a long one, and `operand_bytes` its number.
    is_long: bool,
    start: u32,
    key_bytes: u32,
    operand_bytes: u32,
}

/// Waiting updates in the order of their arrival (after folding: by key, then arrival). They own
/// all but long operands, which may be borrowed from the source of the updates.
#[derive(Clone, Debug, Default)]
pub struct Waiting<'a> {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    long: Vec<Cow<'a, [u8]>>,
}

impl<'a> Waiting<'a> {
    /// Number of updates.
    #[must_use]
    pub fn count(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is one after this sequence.
    #[must_use]
    pub fn has_after(&self, seq: Seq) -> bool {
        self.spans.iter().any(|span| span.seq > seq)
    }

    /// The updates.
    pub fn updates(&self) -> impl Iterator<Item = UpdateRef<'_>> {
        (0..self.spans.len()).filter_map(|index| self.get(index))
    }

    /// Appends a copy of one update.
    pub fn push(&mut self, update: &UpdateRef<'_>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(update.key);
        self.bytes.extend_from_slice(update.operand);
        self.note(update.seq, update.modifier, start, update.key.len(), update.operand.len());
    }

    fn push_entry(&mut self, entry: &QueueEntry<'a>, low: &[u8]) {
        let start = self.bytes.len();
        let key_bytes = entry.put_key(low, &mut self.bytes);
        let long = entry.whole_operand().filter(|operand| operand.len() >= LONG_BYTES_MIN);
        let operand_bytes = match long {
            Some(operand) => {
                self.long.push(Cow::Borrowed(operand));
                self.long.len() - 1
            }
            None => entry.put_operand(&mut self.bytes),
        };
        self.note(entry.seq, entry.modifier, start, key_bytes, operand_bytes);
        if let (Some(_), Some(span)) = (long, self.spans.last_mut()) {
            span.is_long = true;
        }
    }

    fn note(
        &mut self,
        seq: Seq,
        modifier: ModifierId,
        start: usize,
        key_bytes: usize,
        operand_bytes: usize,
    ) {
        let narrow = |bytes| u32::try_from(bytes).expect("what waits for a block is below 4 GiB");
        let (start, key_bytes) = (narrow(start), narrow(key_bytes));
        let operand_bytes = narrow(operand_bytes);
        self.spans.push(Span { seq, modifier, is_long: false, start, key_bytes, operand_bytes });
    }

    fn get(&self, index: usize) -> Option<UpdateRef<'_>> {
        let Span { seq, modifier, is_long, start, key_bytes, operand_bytes } =
            *self.spans.get(index)?;
        let (key, rest) = self.bytes.get(start as usize..)?.split_at(key_bytes as usize);
        let operand = if is_long {
            &self.long[operand_bytes as usize]
        } else {
            &rest[..operand_bytes as usize]
        };
        Some(UpdateRef { seq, modifier, key, operand })
    }

    /// The same with copies of the long operands.
    #[must_use]
    pub fn into_owned(self) -> Waiting<'static> {
        let Self { bytes, spans, long } = self;
        let long = long.into_iter().map(|operand| Cow::Owned(operand.into_owned())).collect();
        Waiting { bytes, spans, long }
    }

    /// All updates except those whose key is in one of the ranges and that are older than its
    /// sequence.
    #[must_use]
    pub fn without_removed(self, ranges: &[(Seq, KeyRange<'_>)]) -> Self {
        self.only(|update| {
            !ranges.iter().any(|(seq, range)| *seq > update.seq && range.contains(update.key))
        })
    }

    /// The wanted updates.
    #[must_use]
    pub fn only(mut self, is_wanted: impl Fn(&UpdateRef<'_>) -> bool) -> Self {
        let is_wanted_at: Vec<bool> = self.updates().map(|update| is_wanted(&update)).collect();
        let mut kept = is_wanted_at.into_iter();
        self.spans.retain(|_| kept.next().unwrap_or(false));
        self
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.long.clear();
    }
}

impl PartialEq for Waiting<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.updates().eq(other.updates())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::queue::{Arena, Queue};
    use crate::engine::registry::{Modifiers, PUT};

    fn update<'a>(seq: u64, key: &'a [u8], operand: &'a [u8]) -> UpdateRef<'a> {
        UpdateRef { seq: Seq::new(seq), modifier: PUT, key, operand }
    }

    /// The updates as a queue of the block at `low` has them.
    fn packed(low: &[u8], updates: &[UpdateRef<'_>]) -> Packed {
        let (mut arena, mut queue) = (Arena::new(1 << 20, 1 << 20), Queue::default());
        for update in updates {
            arena.push(&mut queue, low, update, &Modifiers::default());
        }
        arena.snapshot(&queue, low)
    }

    #[test]
    fn a_section_comes_back_and_a_cut_one_is_refused_before_its_updates_are_read() {
        let long = vec![7; LONG_BYTES_MIN + 1];
        let updates = [update(5, b"low key", &long), update(9, b"low", b""), update(9, b"z", b"1")];
        let packed = packed(b"low", &updates);
        let (section, mut encoded) = (packed.as_section(), Vec::new());
        section.encode(&mut encoded);
        assert_eq!(encoded.len(), section.encoded_bytes());
        let read = Section::read(&mut Reader::new(&encoded), section.tails()).expect("as encoded");
        assert_eq!((read.low(), read.count()), (&b"low"[..], 3));
        let found = read.check().expect("as encoded").unpack();
        assert_eq!(found.updates().collect::<Vec<_>>(), updates);
        let missing = Section { count: 2, ..section };
        assert!(missing.check().is_err(), "bytes are left over");
        let cut = Section { bytes: &section.bytes[..section.bytes.len() - 1], ..section };
        assert!(cut.check().is_err());
        let elsewhere = Section { low: b"l", ..section };
        assert!(elsewhere.check().is_err(), "its keys share more than the block has");
    }

    #[test]
    fn the_updates_of_a_key_are_its_own_and_the_removals_that_cover_it() {
        let range = KeyRange { from: b"b", to: Some(b"d") };
        let operand = range.operand();
        let removal =
            UpdateRef { seq: Seq::new(2), modifier: DELETE_RANGE, key: b"b", operand: &operand };
        let updates =
            [update(1, b"x", b"1"), removal, update(3, b"c", b"2"), update(4, b"d", b"3")];
        let packed = packed(b"", &updates);
        let of = |key: &[u8]| -> Vec<(Seq, ModifierId)> {
            packed.of_key(key).updates().map(|update| (update.seq, update.modifier)).collect()
        };
        assert_eq!(of(b"c"), [(Seq::new(2), DELETE), (Seq::new(3), PUT)]);
        assert_eq!(of(b"b"), [(Seq::new(2), DELETE)]);
        assert_eq!(of(b"d"), [(Seq::new(4), PUT)], "the end is not in the range");
        assert_eq!(of(b"cc"), [(Seq::new(2), DELETE)]);
        assert_eq!(of(b"a"), []);
    }

    #[test]
    fn the_updates_of_wanted_keys_come_with_all_removals_of_ranges() {
        let range = KeyRange { from: b"a", to: Some(b"d") };
        let operand = range.operand();
        let removal =
            UpdateRef { seq: Seq::new(2), modifier: DELETE_RANGE, key: b"a", operand: &operand };
        let long = vec![7; LONG_BYTES_MIN];
        let updates =
            [update(1, b"x", b"1"), removal, update(3, b"c", &long), update(4, b"c", b"")];
        let packed = packed(b"", &updates);
        let found = packed.with_keys(|key| key == b"c");
        assert_eq!(found.updates().collect::<Vec<_>>(), updates[1..]);
    }

    #[test]
    fn long_operands_stay_where_they_lie_until_somebody_owns_them() {
        let long = vec![7; LONG_BYTES_MIN];
        let packed = packed(b"", &[update(1, b"a", &long), update(2, b"b", b"short")]);
        let unpacked = packed.unpack();
        assert!(matches!(unpacked.long[..], [Cow::Borrowed(_)]));
        let owned = unpacked.clone().into_owned();
        assert!(matches!(owned.long[..], [Cow::Owned(_)]));
        assert_eq!(owned, unpacked);
    }

    #[test]
    fn what_a_younger_removal_covers_is_left_out_and_nothing_else() {
        let mut waiting = Waiting::default();
        for seq in 1..=3 {
            waiting.push(&update(seq, b"in", b""));
            waiting.push(&update(seq, b"out", b""));
        }
        let range = KeyRange { from: b"i", to: Some(b"j") };
        let left = waiting.without_removed(&[(Seq::new(3), range)]);
        let found: Vec<(Seq, &[u8])> =
            left.updates().map(|update| (update.seq, update.key)).collect();
        assert_eq!(
            found,
            [(1, &b"out"[..]), (2, b"out"), (3, b"in"), (3, b"out")]
                .map(|(seq, key)| (Seq::new(seq), key))
        );
        assert_eq!(left.only(|update| update.key == b"in").count(), 1);
    }
}
