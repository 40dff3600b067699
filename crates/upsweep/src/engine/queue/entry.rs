//! How an entry of a queue lies in memory: as few bytes as a few instructions can make it.
//!
//! An entry is the distance of its sequence from the queue's first, the modifier and whether there
//! is a tail, the key, the operand. Of the key only the middle is kept: its beginning is that of
//! the key of its block, its end that of one of the [`tails`](super::tails), if it shares enough
//! with one. Operands lose the zeros at their end, of which small little-endian numbers have many.
//! Both begin with a byte that holds two lengths of 4 bits; a length of 15 or more goes on in a
//! varint behind it. A tail is two bytes behind the lengths of the key: its number, and how many
//! bytes of its end are the key's. A counter of 8 bytes under a key of 8 so takes 8 to 10 bytes
//! instead of 20 to 22, under a longer key that ends as others do two more, and as many more
//! updates wait for each visit of their block.

use super::tails::{SHARED_BYTES_MIN, TailTable, shared_end};
use crate::engine::block_format::UpdateRef;
use crate::engine::config::{KEY_BYTES_MAX, OPERAND_BYTES_MAX};
use crate::engine::format::codec_format::{Malformed, Reader, put_varint};
use crate::engine::registry::ModifierId;
use crate::log::Seq;

/// The largest length of 4 bits; it says that the rest of the length follows.
const LONG: usize = 15;

/// Appends an entry to `out`; `low` is the key of its block, `tail` the number and the bytes of the
/// tail that its key shares most with. An operand that is long is left out at the end and returned:
/// so it is copied once.
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

    /// Checks what the reader of an entry has to take on trust; `low` is the key of its block.
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

    /// The operand, if it lies here as it is.
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
