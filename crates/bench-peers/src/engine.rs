//! What the driver needs of an engine: an ordered map of keys to values of 56 bytes, whose first 8
//! bytes are a counter.
//!
//! Invariants: an increment of an absent key makes it, with a counter of 1; the updates of one call
//! take effect all or none; what [`Engine::apply`] acknowledged as [`Durability::Durable`] survives
//! a crash of process and machine.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::workload::random::scramble;

/// Bytes of the counter at the start of a value, little-endian.
pub(crate) const COUNTER_BYTES: usize = 8;
/// Bytes of a value.
pub(crate) const VALUE_BYTES: usize = 56;
/// Bytes of the shortest key of a data set: a number.
pub(crate) const KEY_BYTES_MIN: u8 = 8;
/// Bytes of the longest key.
pub(crate) const KEY_BYTES_MAX: u8 = 200;

/// Bytes of a record with a key of this length.
pub(crate) fn record_bytes(key_bytes: u8) -> u64 {
    u64::from(key_bytes) + VALUE_BYTES as u64
}

/// The value of a record.
pub(crate) type Value = [u8; VALUE_BYTES];

/// Bytes of the longest key that is a text.
pub(crate) const TEXT_BYTES_MAX: usize = 47;

/// A key, without an allocation of its own. Its bytes are made where they are needed, for most keys
/// are much shorter than the longest, and would be copied at its length.
#[derive(Clone, Copy)]
pub(crate) enum Key {
    /// The key of so many bytes (8 to [`KEY_BYTES_MAX`]) that sorts as the number does. What is
    /// behind the number follows from it, does not compress, and has nothing in common with the
    /// keys beside it.
    Number(u64, u8),
    /// So many of these bytes.
    Text(u8, [u8; TEXT_BYTES_MAX]),
}

impl Key {
    /// The first [`TEXT_BYTES_MAX`] bytes of `text`.
    pub(crate) fn text(text: &[u8]) -> Self {
        let length = text.len().min(TEXT_BYTES_MAX);
        let mut bytes = [0; TEXT_BYTES_MAX];
        bytes[..length].copy_from_slice(&text[..length]);
        Self::Text(length as u8, bytes)
    }

    /// Appends its bytes.
    pub(crate) fn push_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Number(number, length) => {
                let end = out.len() + usize::from(*length);
                out.extend_from_slice(&number.to_be_bytes());
                let mut place = scramble(*number);
                while out.len() < end {
                    place = place.wrapping_add(1);
                    let part = (end - out.len()).min(8);
                    out.extend_from_slice(&scramble(place).to_le_bytes()[..part]);
                }
            }
            Self::Text(length, bytes) => out.extend_from_slice(&bytes[..usize::from(*length)]),
        }
    }

    /// Its bytes.
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.push_to(&mut bytes);
        bytes
    }
}

/// What happens to a record.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    /// Its counter grows by 1.
    Increment,
    /// It has the value that [`value`] makes of this stamp.
    Put(u64),
    /// It is gone.
    Delete,
}

/// A change of one record.
#[derive(Clone, Copy)]
pub(crate) struct Update<'a> {
    /// Its key.
    pub(crate) key: &'a [u8],
    /// What happens to it.
    pub(crate) change: Change,
}

/// Updates that are gathered before they are handed over, their keys one behind the other.
#[derive(Default)]
pub(crate) struct Batch {
    keys: Vec<u8>,
    /// Where each key ends, and what happens to its record.
    changes: Vec<(usize, Change)>,
}

impl Batch {
    /// Adds an update.
    pub(crate) fn push(&mut self, key: &Key, change: Change) {
        key.push_to(&mut self.keys);
        self.changes.push((self.keys.len(), change));
    }

    /// Adds updates.
    #[cfg(any(feature = "lmdb", feature = "redb", feature = "sqlite"))]
    pub(crate) fn extend(&mut self, updates: &[Update<'_>]) {
        for update in updates {
            self.keys.extend_from_slice(update.key);
            self.changes.push((self.keys.len(), update.change));
        }
    }

    /// Takes all updates out, and keeps the room that they had.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.changes.clear();
    }

    /// The updates in the order in which they were added.
    pub(crate) fn updates(&self) -> Vec<Update<'_>> {
        let mut start = 0;
        let update = |(end, change): &(usize, Change)| {
            let key = &self.keys[start..*end];
            start = *end;
            Update { key, change: *change }
        };
        self.changes.iter().map(update).collect()
    }
}

/// A value whose counter is 0 and whose rest does not compress.
pub(crate) fn value(stamp: u64) -> Value {
    let mut value = [0; VALUE_BYTES];
    for (place, part) in (1..).zip(value[COUNTER_BYTES..].chunks_exact_mut(8)) {
        let number = stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(place << 56);
        part.copy_from_slice(&(number ^ (number >> 29)).to_le_bytes());
    }
    value
}

/// The value of a record that an increment has made.
pub(crate) fn incremented_from_nothing() -> Value {
    let mut value = [0; VALUE_BYTES];
    value[0] = 1;
    value
}

/// The counter in a value or an operand; 0 if it is too short to have one.
pub(crate) fn counter(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Adds to the counter of a value.
pub(crate) fn add(value: &mut [u8], amount: u64) {
    let sum = counter(value).wrapping_add(amount);
    if let Some(bytes) = value.first_chunk_mut() {
        *bytes = sum.to_le_bytes();
    }
}

/// When an update is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// When it is on stable media.
    Durable,
    /// Before that; it follows soon without a further call.
    Relaxed,
}

/// What an engine may use and has to expect.
#[derive(Clone, Copy)]
pub(crate) struct Config {
    /// The limit of the process, page cache included, in bytes. Every engine takes its part.
    pub(crate) memory_bytes: u64,
    /// Bytes of the records that are loaded.
    pub(crate) data_bytes: u64,
    /// Bytes of their keys.
    #[cfg_attr(
        not(any(feature = "rocksdb", feature = "fjall")),
        expect(dead_code, reason = "only LSM trees ask for it")
    )]
    pub(crate) key_bytes: u8,
    /// How all updates will be acknowledged; some engines are opened differently for that.
    #[cfg_attr(
        not(any(feature = "lmdb", feature = "redb", feature = "sqlite")),
        expect(dead_code, reason = "only engines with one writer ask for it")
    )]
    pub(crate) durability: Durability,
}

/// What a scan has met.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// Number of records.
    pub(crate) records: u64,
    /// Sum of their counters, modulo 2^64.
    pub(crate) counters: u64,
}

impl Scanned {
    /// Counts one more record.
    pub(crate) fn add(&mut self, value: &[u8]) {
        self.records += 1;
        self.counters = self.counters.wrapping_add(counter(value));
    }
}

/// How often what an engine holds back of updates, in memory or elsewhere, has been replaced by
/// newer ones since a run began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Turns {
    /// So often.
    pub(crate) done: f64,
    /// From so often on the engine's state is steady.
    pub(crate) enough: f64,
}

impl Turns {
    /// Whether the state is steady.
    pub(crate) fn are_enough(&self) -> bool {
        self.done >= self.enough
    }
}

/// Records in ascending order of their keys.
pub(crate) type Records<'a> = &'a mut dyn Iterator<Item = (Vec<u8>, Value)>;

/// A store under measurement. All calls may come from many threads at once.
pub(crate) trait Engine: Send + Sync {
    /// Fills the empty store and makes that durable, the fastest way the engine has.
    fn load(&self, records: Records<'_>) -> Result<(), Failure>;

    /// Applies updates, all or none, and returns when they are acknowledged.
    fn apply(&self, updates: &[Update<'_>], durability: Durability) -> Result<(), Failure>;

    /// The counter of `key`, if it is there.
    fn get(&self, key: &[u8]) -> Result<Option<u64>, Failure>;

    /// Reads up to `count` records in key order, from `from` on.
    fn scan(&self, from: &[u8], count: u64) -> Result<Scanned, Failure>;

    /// Returns when everything is durable and all deferred work is done.
    fn quiesce(&self) -> Result<(), Failure>;

    /// How often what it holds back has been replaced since it was opened, after so many
    /// increments; none if it holds back nothing beyond a transaction. It costs next to nothing.
    fn turns(&self, _increments: u64) -> Option<Turns> {
        None
    }

    /// Numbers of its own, by name.
    fn statistics(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }
}

/// Opens the store in a folder, or makes it there.
pub(crate) type Open = fn(&Path, &Config) -> Result<Box<dyn Engine>, Failure>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_length_sort_as_their_numbers_and_share_nothing_behind_them() {
        for key_bytes in [8, 9, 24, 56, 200] {
            let key = |number| Key::Number(number, key_bytes).to_vec();
            let (one, two) = (key(1), key(2));
            assert_eq!((one.len(), &one[..8]), (key_bytes.into(), &1u64.to_be_bytes()[..]));
            assert!(one < two && key(255) < key(256), "{key_bytes}");
            assert_eq!(one, key(1));
            let (same, all) = (1..1000u64).fold((0, 0), |(same, all), number| {
                let (tail, next) = (key(number), key(number + 1));
                let pairs = tail[8..].iter().zip(&next[8..]);
                (same + pairs.filter(|(a, b)| a == b).count(), all + usize::from(key_bytes) - 8)
            });
            // Of random bytes, one in 256 is that of the key beside it.
            assert!(same * 128 <= all, "{same} of {all} bytes are equal");
        }
    }

    #[test]
    fn a_batch_has_the_updates_that_were_added_since_it_was_cleared() {
        let mut batch = Batch::default();
        batch.push(&Key::text(b"old"), Change::Delete);
        batch.clear();
        assert!(batch.updates().is_empty());
        batch.push(&Key::text(b"a"), Change::Increment);
        batch.push(&Key::text(b""), Change::Put(7));
        batch.push(&Key::text(&[b'x'; 99]), Change::Delete);
        let updates = batch.updates();
        let keys: Vec<&[u8]> = updates.iter().map(|update| update.key).collect();
        assert_eq!(keys, [&b"a"[..], b"", &[b'x'; TEXT_BYTES_MAX]]);
        assert!(matches!(updates[1].change, Change::Put(7)));
    }
}
