//! How an entry of a queue lies in memory: as few bytes as a few instructions can make it.
//!
//! An entry is the distance of its sequence from the queue's first, the modifier, the key, the
//! operand. Of the key only what it does not share with the key of its block is kept, and operands
//! lose the zeros at their end, of which small little-endian numbers have many. Both begin with a
//! byte that holds two lengths of 4 bits; a length of 15 or more goes on in a varint behind it. A
//! counter of 8 bytes under a key of 8 so takes 8 to 10 bytes instead of 20 to 22, and as many more
//! updates wait for each visit of their block.

use crate::engine::block_format::UpdateRef;
use crate::engine::config::{KEY_BYTES_MAX, OPERAND_BYTES_MAX};
use crate::engine::format::codec_format::{Malformed, Reader, put_varint};
use crate::engine::registry::ModifierId;

/// The largest length of 4 bits; it says that the rest of the length follows.
const LONG: usize = 15;

/// Appends an entry to `out`; `low` is the key of its block.
pub(super) fn encode(update: &UpdateRef<'_>, low: &[u8], first_seq: u64, out: &mut Vec<u8>) {
    let distance = update.seq.checked_sub(first_seq);
    put_varint(out, distance.expect("updates are pushed in the order of their sequences"));
    put_varint(out, u64::from(update.modifier.0));
    let shared = low.iter().zip(update.key).take_while(|(left, right)| left == right).count();
    put_lengths(shared, update.key.len() - shared, out);
    out.extend_from_slice(&update.key[shared..]);
    let operand = update.operand;
    let zeros = operand.iter().rev().take_while(|byte| **byte == 0).count();
    put_lengths(zeros, operand.len() - zeros, out);
    out.extend_from_slice(&operand[..operand.len() - zeros]);
}

/// An entry whose key and operand are still in two parts each.
pub(super) struct Entry<'a> {
    pub(super) seq: u64,
    pub(super) modifier: ModifierId,
    shared: usize,
    suffix: &'a [u8],
    operand: &'a [u8],
    zeros: usize,
}

impl<'a> Entry<'a> {
    /// Reads what [`encode`] wrote.
    pub(super) fn read(reader: &mut Reader<'a>, first_seq: u64) -> Result<Self, Malformed> {
        let seq = first_seq.checked_add(reader.varint()?).ok_or(Malformed("sequence"))?;
        let modifier = ModifierId(reader.narrow()?);
        let (shared, length) = read_lengths(reader)?;
        let suffix = reader.take(length)?;
        let (zeros, length) = read_lengths(reader)?;
        Ok(Self { seq, modifier, shared, suffix, operand: reader.take(length)?, zeros })
    }

    /// Checks what the reader of an entry has to take on trust; `low` is the key of its block.
    pub(super) fn check(&self, low: &[u8]) -> Result<(), Malformed> {
        let key_bytes = self.shared.min(KEY_BYTES_MAX + 1).saturating_add(self.suffix.len());
        let fits = self.shared <= low.len()
            && key_bytes <= KEY_BYTES_MAX
            && self.zeros <= OPERAND_BYTES_MAX;
        if fits { Ok(()) } else { Err(Malformed("waiting update")) }
    }

    /// Whether this is its key.
    pub(super) fn has_key(&self, low: &[u8], key: &[u8]) -> bool {
        key.strip_prefix(&low[..self.shared]) == Some(self.suffix)
    }

    /// Appends the key; returns its length.
    pub(super) fn put_key(&self, low: &[u8], out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(&low[..self.shared]);
        out.extend_from_slice(self.suffix);
        self.shared + self.suffix.len()
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
