//! The position of a key among the buckets of a hash table: its hash, big-endian, then the key
//! itself.
//!
//! The hash is XXH3 with 64 bits, seed 0 and the default secret, as the xxHash project has
//! permanently defined it. It is part of the on-disk format: another hash needs a block format of
//! another name.
//!
//! The key after the hash makes positions unique. So a bucket can be cut anywhere, even between
//! keys of the same hash, and block keys are still short: a few bytes of hash distinguish two
//! buckets. A bucket's body is that of a leaf: see `table/leaf_format.rs`.

/// The hash of a key.
#[inline]
#[must_use]
pub fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// The position of a key with this `rank`.
#[must_use]
pub fn position(rank: u64, key: &[u8]) -> Vec<u8> {
    [&rank.to_be_bytes()[..], key].concat()
}
