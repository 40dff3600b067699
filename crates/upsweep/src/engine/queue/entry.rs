//! The memory layout of a queue entry: compact, and cheap to decode.
//!
//! An entry is the distance of its sequence from the queue's first, the modifier and whether there
//! is a tail, the key, the operand. Of the key only the middle is kept: its beginning is that of
//! the key of its block, its end that of one of the [`tails`](super::tails), if it shares enough
//! with one. Operands lose their trailing zeros, of which small little-endian numbers have many.
//! Both begin with a byte that holds two lengths of 4 bits; a length of 15 or more continues in a
//! varint after it. A tail is two bytes after the lengths of the key: its number, and how many
//! bytes of its end belong to the key. A counter of 8 bytes under a key of 8 so takes 8 to 10 bytes
//! instead of 20 to 22, under a longer key with a common ending two more, and correspondingly more
//! updates wait for each visit of their block.

use super::tails::{SHARED_BYTES_MIN, TailTable, shared_end};
use crate::engine::block_format::UpdateRef;
use crate::engine::config::{KEY_BYTES_MAX, OPERAND_BYTES_MAX};
use crate::engine::format::codec_format::{Malformed, Reader, put_varint};
use crate::engine::registry::ModifierId;
use crate::log::Seq;

/// The largest length of 4 bits; it means that the rest of the length follows.
const LONG: usize = 15;

/// Appends an entry to `out`; `low` is the key of its block, `tail` the number and the bytes of the
/// tail that its key shares most with. A long operand is omitted and returned instead, so that it
/// is copied only once.
pub(super) fn encode<'a>(
    update: &UpdateRef<'a>,
    low: &[u8],
    tail: Option<(u8, &[u8])>,
    first_seq: Seq,
    out: &mut Vec<u8>,
) -> &'a [u8] {
    let distance = update.seq.checked_since(first_seq);
    put_varint(out, distance.expect("updates are pushed in the order of their sequences"));
    let shared = low.iter().zip(update.key).take_while(|(left, right)| left == right).count();
    let rest = &update.key[shared..];
    let tail = tail.map(|(index, tail)| (index, shared_end(rest, tail)));
    let tail = tail.filter(|(_, bytes)| *bytes >= SHARED_BYTES_MIN);
    put_varint(out, u64::from(update.modifier.0) << 1 | u64::from(tail.is_some()));
    let middle = &rest[..rest.len() - tail.map_or(0, |(_, bytes)| bytes)];
    put_lengths(shared, middle.len(), out);
    if let Some((index, bytes)) = tail {
        out.extend_from_slice(&[index, u8::try_from(bytes).expect("a tail is below 256 bytes")]);
    }
    out.extend_from_slice(middle);
    let operand = update.operand;
    let zeros = operand.iter().rev().take_while(|byte| **byte == 0).count();
    put_lengths(zeros, operand.len() - zeros, out);
    let operand = &operand[..operand.len() - zeros];
    if operand.len() > SHORT {
        return operand;
    }
    out.extend_from_slice(operand);
    &[]
}

/// Longest operand that is copied with the rest of its entry, in bytes.
const SHORT: usize = 256;

/// An entry whose key and operand are still in parts.
pub(super) struct QueueEntry<'a> {
    pub(super) seq: Seq,
    pub(super) modifier: ModifierId,
    shared: usize,
    middle: &'a [u8],
    end: &'a [u8],
    operand: &'a [u8],
    zeros: usize,
}

impl<'a> QueueEntry<'a> {
    /// Reads what [`encode`] wrote.
    pub(super) fn read(
        reader: &mut Reader<'a>,
        tails: &TailTable<'a>,
        first_seq: Seq,
    ) -> Result<Self, Malformed> {
        let seq = first_seq.checked_plus(reader.varint()?).ok_or(Malformed("sequence"))?;
        let both: u32 = reader.narrow()?;
        let modifier = u16::try_from(both >> 1).map_err(|_| Malformed("modifier"))?;
        let (shared, length) = read_lengths(reader)?;
        let end = if both & 1 == 0 { &[] } else { tails.end_of(reader.byte()?, reader.byte()?)? };
        let middle = reader.take(length)?;
        let (zeros, length) = read_lengths(reader)?;
        let (modifier, operand) = (ModifierId(modifier), reader.take(length)?);
        Ok(Self { seq, modifier, shared, middle, end, operand, zeros })
    }

    /// Checks what readers of an entry rely on; `low` is the key of its block.
    pub(super) fn check(&self, low: &[u8]) -> Result<(), Malformed> {
        let known = self.shared.min(KEY_BYTES_MAX + 1) + self.end.len();
        let key_bytes = known.saturating_add(self.middle.len());
        let fits = self.shared <= low.len()
            && key_bytes <= KEY_BYTES_MAX
            && self.zeros <= OPERAND_BYTES_MAX;
        if fits { Ok(()) } else { Err(Malformed("waiting update")) }
    }

    /// Whether this is its key.
    pub(super) fn has_key(&self, low: &[u8], key: &[u8]) -> bool {
        let rest = key.strip_prefix(&low[..self.shared]);
        rest.and_then(|rest| rest.strip_suffix(self.end)) == Some(self.middle)
    }

    /// Appends the key; returns its length.
    pub(super) fn put_key(&self, low: &[u8], out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(&low[..self.shared]);
        out.extend_from_slice(self.middle);
        out.extend_from_slice(self.end);
        self.shared + self.middle.len() + self.end.len()
    }

    /// The operand, if it is stored here unmodified.
    pub(super) fn whole_operand(&self) -> Option<&'a [u8]> {
        (self.zeros == 0).then_some(self.operand)
    }

    /// Appends the operand; returns its length.
    pub(super) fn put_operand(&self, out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(self.operand);
        out.resize(out.len() + self.zeros, 0);
        self.operand.len() + self.zeros
    }
}

#[inline]
fn put_lengths(high: usize, low: usize, out: &mut Vec<u8>) {
    out.push((high.min(LONG) << 4 | low.min(LONG)) as u8);
    for length in [high, low].into_iter().filter(|length| *length >= LONG) {
        put_varint(out, (length - LONG) as u64);
    }
}

fn read_lengths(reader: &mut Reader<'_>) -> Result<(usize, usize), Malformed> {
    let both = usize::from(reader.byte()?);
    let mut whole = |length: usize| {
        if length < LONG {
            Ok(length)
        } else {
            reader.narrow::<u32>().map(|more| length + more as usize)
        }
    };
    Ok((whole(both >> 4)?, whole(both & LONG)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::registry::{ADD_I64, PUT};
    use proptest::prelude::*;

    /// The bytes of an entry with its operand, of a queue whose first sequence is 100.
    fn encoded(update: &UpdateRef<'_>, low: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let left_out = encode(update, low, None, Seq::new(100), &mut out);
        out.extend_from_slice(left_out);
        out
    }

    fn decoded(bytes: &[u8], low: &[u8]) -> Result<(Seq, Vec<u8>, Vec<u8>), Malformed> {
        let mut reader = Reader::new(bytes);
        let entry = QueueEntry::read(&mut reader, &TailTable::of(&[]), Seq::new(100))?;
        entry.check(low)?;
        let (mut key, mut operand) = (Vec::new(), Vec::new());
        entry.put_key(low, &mut key);
        entry.put_operand(&mut operand);
        assert!(entry.has_key(low, &key));
        Ok((entry.seq, key, operand))
    }

    #[test]
    fn a_small_counter_under_a_short_key_takes_few_bytes() {
        let operand = [1, 0, 0, 0, 0, 0, 0, 0];
        let update = UpdateRef {
            seq: Seq::new(101),
            modifier: ADD_I64,
            key: b"low+1234",
            operand: &operand,
        };
        assert!(encoded(&update, b"low+").len() <= 10);
    }

    #[test]
    fn only_an_operand_that_is_short_is_copied_with_its_entry() {
        for (bytes, is_copied) in [(0, true), (SHORT, true), (SHORT + 1, false)] {
            let operand = vec![1; bytes];
            let update =
                UpdateRef { seq: Seq::new(100), modifier: PUT, key: b"k", operand: &operand };
            let left_out = encode(&update, b"", None, Seq::new(100), &mut Vec::new()).len();
            assert_eq!(left_out, if is_copied { 0 } else { bytes });
        }
    }

    #[test]
    fn an_entry_that_no_queue_writes_is_refused() {
        let long = vec![b'k'; KEY_BYTES_MAX];
        let update = |key| UpdateRef { seq: Seq::new(100), modifier: PUT, key, operand: b"" };
        let of_block = encoded(&update(&long), &long[..100]);
        assert!(decoded(&of_block, &long[..100]).is_ok());
        assert!(decoded(&of_block, &long[..99]).is_err(), "it shares more than the block has");
        let too_long = [&long[..], b"k"].concat();
        assert!(decoded(&encoded(&update(&too_long), b""), b"").is_err());
        let zeros = vec![0; OPERAND_BYTES_MAX + 1];
        let of_zeros = UpdateRef { operand: &zeros, ..update(b"k") };
        assert!(decoded(&encoded(&of_zeros, b""), b"").is_err());
    }

    #[test]
    #[should_panic(expected = "in the order of their sequences")]
    fn an_update_that_is_older_than_its_queue_is_a_bug() {
        let update = UpdateRef { seq: Seq::new(99), modifier: PUT, key: b"k", operand: b"" };
        let _ = encoded(&update, b"");
    }

    proptest! {
        #[test]
        fn entries_come_back_whatever_they_share_with_their_block(
            low in prop::collection::vec(0..2u8, 0..40),
            key in prop::collection::vec(0..2u8, 0..40),
            operand in prop::collection::vec(0..2u8, 0..600),
            distance: u32,
        ) {
            let before = Seq::new(100);
            let seq = before.plus(distance.into());
            let update = UpdateRef { seq, modifier: PUT, key: &key, operand: &operand };
            let bytes = encoded(&update, &low);
            prop_assert_eq!(decoded(&bytes, &low), Ok((seq, key, operand)));
            for end in 0..bytes.len() {
                let mut reader = Reader::new(&bytes[..end]);
                let cut = QueueEntry::read(&mut reader, &TailTable::of(&[]), before);
                prop_assert!(cut.is_err(), "{} bytes", end);
            }
        }
    }
}
