//! Tails: common endings of many keys, so that an entry need not repeat them.
//!
//! Keys with a common beginning are neighbours, and share the beginning of their block's key. Keys
//! with a common ending are everywhere: padded ones, `<id>:count`, an id and the type of the
//! object. So the arena learns a few tails from the pushed keys, and entries refer to them (see
//! `entry`).
//!
//! If a key ends in the same 8 bytes as one of the last few keys, its last 255 bytes at most become
//! a tail. Keys with random endings make no tails, because two of them rarely end alike; nor does a
//! key that is updated repeatedly, because a tail requires two different keys.
//!
//! Invariants: tails are only added, so a number keeps its meaning for the life of the arena, also
//! for frozen copies that have an older table; a table has at most [`TAILS_MAX`] tails; what is
//! learned depends only on the keys and their order.
//!
//! A table has the same layout in memory as in a spill segment: the number of tails (1 byte), the
//! length of each (1 byte), and the concatenated tails.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::engine::format::codec_format::{Malformed, Reader};

/// Most tails of an arena.
pub const TAILS_MAX: usize = 15;
/// Longest tail, in bytes.
pub(super) const TAIL_BYTES_MAX: usize = 255;
/// An entry takes two bytes to refer to a tail: with fewer shared bytes it gains little.
pub(super) const SHARED_BYTES_MIN: usize = 4;
/// Shorter keys are ignored.
const KEY_BYTES_MIN: usize = 16;
/// Number of recent keys without a tail that a key is compared with.
const SEEN: usize = 16;
/// Keys that share a part of a word with a tail may add tails up to this number. A separate tail
/// gains them less, and there may be many: `<number>:count` with each last digit.
const TAILS_OF_SIMILAR_MAX: usize = 8;

/// The tails that an arena has learned, and the state for learning more.
#[derive(Debug, Default)]
pub(super) struct Tails {
    learned: Vec<Tail>,
    /// The last keys without a tail: their last word, and a hash that distinguishes them.
    seen: [(u64, u64); SEEN],
    /// Number of keys without a tail that were examined.
    unmatched: usize,
    /// As [`TailTable::encode`] writes it, or empty if nothing was learned yet.
    table: Arc<[u8]>,
}

#[derive(Debug)]
struct Tail {
    /// Its last 8 bytes, the last one highest.
    word: u64,
    bytes: Box<[u8]>,
}

impl Tails {
    /// The present table.
    pub(super) fn table(&self) -> Arc<[u8]> {
        Arc::clone(&self.table)
    }

    /// The tail that a key shares most with, and its number, if it shares enough.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<(u8, &[u8])> {
        if self.learned.is_empty() || key.len() < KEY_BYTES_MIN {
            return None;
        }
        let (difference, index) = self.nearest(last_word(key));
        (shared_of_word(difference) >= SHARED_BYTES_MIN)
            .then(|| (index as u8, &*self.learned[index].bytes))
    }

    /// As [`Tails::find`], for a key that is pushed: it may become a tail.
    #[inline]
    pub(super) fn find_or_learn(&mut self, key: &[u8]) -> Option<(u8, &[u8])> {
        if key.len() >= KEY_BYTES_MIN && self.learned.len() < TAILS_MAX {
            self.learn(key);
        }
        self.find(key)
    }

    /// The difference of the nearest tail from a word, and its number. There has to be one.
    fn nearest(&self, word: u64) -> (u64, usize) {
        let words = self.learned.iter().enumerate();
        words.map(|(index, tail)| (tail.word ^ word, index)).min().unwrap_or((u64::MAX, 0))
    }

    fn learn(&mut self, key: &[u8]) {
        let word = last_word(key);
        let (difference, _) = self.nearest(word);
        let is_similar = shared_of_word(difference) >= SHARED_BYTES_MIN;
        if difference == 0 || (is_similar && self.learned.len() >= TAILS_OF_SIMILAR_MAX) {
            return;
        }
        let hash = xxh3_64(key);
        let seen = &self.seen[..self.unmatched.min(SEEN)];
        if seen.iter().any(|(other, of)| *other == word && *of != hash) {
            self.add(word, key);
        } else {
            self.seen[self.unmatched % SEEN] = (word, hash);
            self.unmatched += 1;
        }
    }

    fn add(&mut self, word: u64, key: &[u8]) {
        let bytes = key[key.len().saturating_sub(TAIL_BYTES_MAX)..].into();
        self.learned.push(Tail { word, bytes });
        let mut table = vec![self.learned.len() as u8];
        table.extend(self.learned.iter().map(|tail| tail.bytes.len() as u8));
        self.learned.iter().for_each(|tail| table.extend_from_slice(&tail.bytes));
        self.table = table.into();
    }
}

/// The last 8 bytes, the last one highest.
#[inline]
fn last_word(key: &[u8]) -> u64 {
    u64::from_le_bytes(*key.last_chunk().expect("only keys of 16 bytes and more are looked at"))
}

/// The number of bytes that two words have in common at their end.
#[inline]
fn shared_of_word(difference: u64) -> usize {
    difference.leading_zeros() as usize / 8
}

/// The number of bytes that two strings have in common at their end.
pub(super) fn shared_end(left: &[u8], right: &[u8]) -> usize {
    let mut shared = 0;
    for (left, right) in left.rchunks_exact(8).zip(right.rchunks_exact(8)) {
        let difference = last_word(left) ^ last_word(right);
        if difference != 0 {
            return shared + shared_of_word(difference);
        }
        shared += 8;
    }
    let rest = |bytes: &[u8]| bytes.len() - shared;
    let (left, right) = (&left[..rest(left)], &right[..rest(right)]);
    let more = left.iter().rev().zip(right.iter().rev());
    shared + more.take_while(|(left, right)| left == right).count()
}

/// A borrowed table of tails.
#[derive(Clone, Copy, Debug, Default)]
pub struct TailTable<'a> {
    lengths: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> TailTable<'a> {
    /// Reads what [`TailTable::encode`] wrote.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not a table.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count = usize::from(reader.byte()?);
        if count > TAILS_MAX {
            return Err(Malformed("number of tails"));
        }
        let lengths = reader.take(count)?;
        let total = lengths.iter().map(|length| usize::from(*length)).sum();
        Ok(Self { lengths, bytes: reader.take(total)? })
    }

    /// The table of an arena.
    pub(super) fn of(table: &'a [u8]) -> Self {
        if table.is_empty() {
            return Self::default();
        }
        Self::read(&mut Reader::new(table)).expect("it was encoded by the arena")
    }

    /// Appends it to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.lengths.len() as u8);
        out.extend_from_slice(self.lengths);
        out.extend_from_slice(self.bytes);
    }

    /// Number of tails.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lengths.len()
    }

    /// Whether this table is a prefix of the other.
    #[must_use]
    pub fn begins(&self, other: &Self) -> bool {
        other.lengths.starts_with(self.lengths) && other.bytes.starts_with(self.bytes)
    }

    /// The last bytes of a tail.
    ///
    /// # Errors
    /// [`Malformed`] when there is no such tail, or it is not that long.
    #[inline]
    pub fn end_of(&self, index: u8, bytes: u8) -> Result<&'a [u8], Malformed> {
        let (index, bytes) = (usize::from(index), usize::from(bytes));
        let length = self.lengths.get(index).ok_or(Malformed("number of a tail"))?;
        if bytes > usize::from(*length) {
            return Err(Malformed("length of a tail"));
        }
        let end: usize = self.lengths[..=index].iter().map(|length| usize::from(*length)).sum();
        Ok(&self.bytes[end - bytes..end])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(id: u64, tail: &[u8]) -> Vec<u8> {
        // Scattered, as hashes are.
        [&id.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[..], tail].concat()
    }

    #[test]
    fn two_keys_that_end_alike_make_a_tail() {
        let mut tails = Tails::default();
        assert!(tails.find_or_learn(&key(1, b": a counter")).is_none());
        let second = key(2, b": a counter");
        assert_eq!(tails.find_or_learn(&second), Some((0, &*second)));
        assert_eq!(tails.find(&key(3, b": a counter")), Some((0, &*second)));
        assert_eq!(tails.find(&key(3, b": no counter")), Some((0, &*second)), "8 bytes are enough");
        assert!(tails.find(&key(3, b": something else")).is_none());
        let table = tails.table();
        let end = TailTable::of(&table).end_of(0, 7);
        assert_eq!(end, Ok(&b"counter"[..]));
    }

    #[test]
    fn random_keys_and_hot_ones_teach_nothing() {
        let mut tails = Tails::default();
        let mut word = 7u64;
        for round in 0..100_000u64 {
            let mut random = || {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round | 1);
                (word ^ (word >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_be_bytes()
            };
            let random = [random(), random(), random()].concat();
            assert!(tails.find_or_learn(&random).is_none());
            assert!(tails.find_or_learn(b"one key, again and again").is_none());
            assert!(tails.find_or_learn(b"short").is_none());
        }
        assert!(tails.table().is_empty());
    }

    #[test]
    fn a_table_is_full_with_fifteen_and_numbers_stay() {
        let mut tails = Tails::default();
        for end in 0..100u64 {
            for id in 0..3 {
                let end = end.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
                tails.find_or_learn(&[&key(id, b"")[..], &end].concat());
            }
            let before = tails.table();
            tails.find_or_learn(&[7; 300]);
            assert!(TailTable::of(&before).begins(&TailTable::of(&tails.table())));
        }
        assert_eq!(TailTable::of(&tails.table()).count(), TAILS_MAX);
        assert!(tails.table().len() <= 1 + TAILS_MAX * (1 + TAIL_BYTES_MAX));
    }

    #[test]
    fn similar_tails_leave_room_for_others() {
        let mut tails = Tails::default();
        for id in 0..1000u64 {
            tails.find_or_learn(format!("{:020}:{}:count", id * id, id / 2 % 50).as_bytes());
        }
        assert_eq!(TailTable::of(&tails.table()).count(), TAILS_OF_SIMILAR_MAX);
        (0..2).for_each(|id| {
            tails.find_or_learn(&key(id, b" another tail"));
        });
        assert!(tails.find(&key(9, b" another tail")).is_some());
    }

    #[test]
    fn of_long_keys_the_last_bytes_are_a_tail() {
        let mut tails = Tails::default();
        let long = |first: u8| [vec![first; 100], vec![1; 300]].concat();
        tails.find_or_learn(&long(1));
        let (_, tail) = tails.find_or_learn(&long(2)).expect("it was learned");
        assert_eq!(tail, [1; TAIL_BYTES_MAX]);
    }

    proptest! {
        #[test]
        fn shared_ends_are_found(
            left in prop::collection::vec(0..2u8, 0..30),
            right in prop::collection::vec(0..2u8, 0..30),
            end in prop::collection::vec(0..2u8, 0..30),
        ) {
            let (left, right) = ([left, end.clone()].concat(), [right, end].concat());
            let pairs = left.iter().rev().zip(right.iter().rev());
            let expected = pairs.take_while(|(left, right)| left == right).count();
            prop_assert_eq!(shared_end(&left, &right), expected);
        }

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, index: u8, length: u8) {
            let Ok(table) = TailTable::read(&mut Reader::new(&bytes)) else { return Ok(()) };
            let _ = table.end_of(index, length);
            let mut again = Vec::new();
            table.encode(&mut again);
            prop_assert!(bytes.starts_with(&again));
        }

        #[test]
        fn any_keys_are_survived(keys in prop::collection::vec(
            prop::collection::vec(0..2u8, 0..40), 0..200,
        )) {
            let mut tails = Tails::default();
            for key in &keys {
                let found = tails.find_or_learn(key).map(|(index, tail)| (index, tail.to_vec()));
                if let Some((index, tail)) = found {
                    let table = tails.table();
                    let table = TailTable::of(&table);
                    prop_assert_eq!(table.end_of(index, tail.len() as u8), Ok(&tail[..]));
                    prop_assert!(shared_end(key, &tail) >= SHARED_BYTES_MIN);
                }
            }
        }
    }
}
