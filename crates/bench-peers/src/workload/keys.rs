//! Keys of records: loaded ones, which can be listed in order without sorting, and new ones.
//!
//! Loaded keys lie in the lower half of all 64-bit numbers, one at a random place of each of as
//! many equal parts as there are records. New random keys lie in the same half; sequential ones in
//! the upper half, so that they come behind all others. Text sorts after both, by its first byte.
//! Keys of more than 8 bytes go on behind the number with bytes that follow from it.

use super::random::scramble;
use crate::engine::{Key, Value, value};

/// One above the largest key of a loaded record.
const END: u64 = 1 << 63;
/// Records of a cluster that have neighbouring keys.
const CLUSTER: u64 = 64;

/// The keys of a store with so many loaded records.
#[derive(Clone, Copy)]
pub(crate) struct Keys {
    records: u64,
    seed: u64,
    key_bytes: u8,
}

impl Keys {
    /// For 1 or more records with keys of so many bytes.
    pub(crate) fn new(records: u64, seed: u64, key_bytes: u8) -> Self {
        Self { records: records.max(1), seed, key_bytes }
    }

    /// Number of loaded records.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// The key of loaded record `index`; greater indexes have greater keys.
    pub(crate) fn loaded(&self, index: u64) -> Key {
        let part = END / self.records;
        Key::Number(index * part + scramble(index ^ self.seed) % part, self.key_bytes)
    }

    /// The loaded record that is hit most often but for `rank` others.
    pub(crate) fn ranked(&self, rank: u64) -> Key {
        self.loaded(scramble(rank.wrapping_add(self.seed)) % self.records)
    }

    /// New keys, of the same length.
    pub(crate) fn new_ones(&self, salt: u64) -> NewKeys {
        NewKeys { salt, key_bytes: self.key_bytes }
    }

    /// All loaded records in order.
    pub(crate) fn all(self) -> impl Iterator<Item = (Vec<u8>, Value)> {
        (0..self.records).map(move |index| (self.loaded(index).to_vec(), value(index)))
    }
}

/// New keys of a run, by a number that counts them.
#[derive(Clone, Copy)]
pub(crate) struct NewKeys {
    /// Sets the new keys of one run apart from those of others.
    salt: u64,
    key_bytes: u8,
}

impl NewKeys {
    /// A random key.
    pub(crate) fn random(self, number: u64) -> Key {
        Key::Number(scramble(number ^ self.salt) % END, self.key_bytes)
    }

    /// A key in a cluster of neighbours.
    pub(crate) fn clustered(self, number: u64) -> Key {
        let start = scramble((number / CLUSTER) ^ self.salt) % (END / CLUSTER);
        Key::Number(start * CLUSTER + number % CLUSTER, self.key_bytes)
    }

    /// A key behind all that this run has made before; runs come one behind the other.
    pub(crate) fn sequential(self, run: u64, number: u64) -> Key {
        Key::Number(END + (run << 40) + number, self.key_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn loaded_keys_ascend_strictly_and_do_not_lie_at_equal_distances() {
        let keys: Vec<Vec<u8>> = Keys::new(10_000, 5, 8).all().map(|(key, _)| key).collect();
        assert!(keys.is_sorted_by(|first, second| first < second));
        let distances: BTreeSet<u64> = keys
            .windows(2)
            .map(|pair| {
                let number = |key: &[u8]| u64::from_be_bytes(key.try_into().expect("8 bytes"));
                number(&pair[1]) - number(&pair[0])
            })
            .collect();
        assert!(distances.len() > 9_000);
    }

    #[test]
    fn new_keys_have_the_shapes_of_their_names() {
        let keys = Keys::new(1, 1, 8).new_ones(9);
        let bytes = Key::to_vec;
        let random: BTreeSet<Vec<u8>> = (0..1000).map(|n| bytes(keys.random(n))).collect();
        assert_eq!(random.len(), 1000);
        let sequence: Vec<Vec<u8>> = (0..1000).map(|n| bytes(keys.sequential(1, n))).collect();
        assert!(sequence.is_sorted_by(|first, second| first < second));
        assert!(random.last() < sequence.first());
        assert!(bytes(keys.sequential(1, u64::MAX >> 30)) < bytes(keys.sequential(2, 0)));
        let clusters: BTreeSet<Vec<u8>> =
            (0..640).map(|n| bytes(keys.clustered(n))[..7].to_vec()).collect();
        assert!((10..=20).contains(&clusters.len()), "{}", clusters.len());
    }
}
