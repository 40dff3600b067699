//! What the driver needs of an engine: an ordered map of keys to values of 56 bytes, whose first 8
//! bytes are a counter.
//!
//! Invariants: an increment of an absent key makes it, with a counter of 1; the updates of one call
//! take effect all or none; what [`Engine::apply`] acknowledged as [`Durability::Durable`] survives
//! a crash of process and machine.

use std::collections::BTreeMap;
use std::path::Path;

use crate::failure::Failure;

/// Bytes of the counter at the start of a value, little-endian.
pub(crate) const COUNTER_BYTES: usize = 8;
/// Bytes of a value.
pub(crate) const VALUE_BYTES: usize = 56;
/// Bytes of a record: a key of 8 bytes and a value.
pub(crate) const RECORD_BYTES: u64 = 64;
/// Bytes of the longest key.
pub(crate) const KEY_BYTES_MAX: usize = 47;

/// The value of a record.
pub(crate) type Value = [u8; VALUE_BYTES];

/// A key of up to [`KEY_BYTES_MAX`] bytes, without an allocation of its own.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    length: u8,
    bytes: [u8; KEY_BYTES_MAX],
}

impl Key {
    /// The first [`KEY_BYTES_MAX`] bytes of `text`.
    pub(crate) fn new(text: &[u8]) -> Self {
        let length = text.len().min(KEY_BYTES_MAX);
        let mut bytes = [0; KEY_BYTES_MAX];
        bytes[..length].copy_from_slice(&text[..length]);
        Self { length: u8::try_from(length).unwrap_or(0), bytes }
    }

    /// The key of 8 bytes that sorts as the number does.
    pub(crate) fn number(number: u64) -> Self {
        Self::new(&number.to_be_bytes())
    }

    /// Its bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
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
pub(crate) struct Update {
    /// Its key.
    pub(crate) key: Key,
    /// What happens to it.
    pub(crate) change: Change,
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
    /// How all updates will be acknowledged; some engines are opened differently for that.
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

/// Records in ascending order of their keys.
pub(crate) type Records<'a> = &'a mut dyn Iterator<Item = (Key, Value)>;

/// A store under measurement. All calls may come from many threads at once.
pub(crate) trait Engine: Send + Sync {
    /// Fills the empty store and makes that durable, the fastest way the engine has.
    fn load(&self, records: Records<'_>) -> Result<(), Failure>;

    /// Applies updates, all or none, and returns when they are acknowledged.
    fn apply(&self, updates: &[Update], durability: Durability) -> Result<(), Failure>;

    /// The counter of `key`, if it is there.
    fn get(&self, key: &[u8]) -> Result<Option<u64>, Failure>;

    /// Reads up to `count` records in key order, from `from` on.
    fn scan(&self, from: &[u8], count: u64) -> Result<Scanned, Failure>;

    /// Returns when everything is durable and all deferred work is done.
    fn quiesce(&self) -> Result<(), Failure>;

    /// Numbers of its own, by name.
    fn statistics(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }
}

/// Opens the store in a folder, or makes it there.
pub(crate) type Open = fn(&Path, &Config) -> Result<Box<dyn Engine>, Failure>;
