//! From records to whole buckets of a hash table, which can be written as they are: a hash table
//! that is filled by inserts would take longer to make than to measure.
//!
//! Records are put in the order of their positions, that is of the hashes of their keys. A bucket
//! that would exceed its fill is closed, and the next one is named by the shortest beginning of a
//! position that tells it from the last one before it, as when a bucket is split.

use std::vec::IntoIter;

use upsweep::ValueRef;
use upsweep::layers::engine::LoadedBlock;
use upsweep::layers::runtime::BlockLimits;
use upsweep::layers::structures::hash::bucket_format::{hash, position};
use upsweep::layers::structures::table::leaf_format::{LeafBuilder, Stored};

/// A key that is a number.
type Key = [u8; 8];

/// Packs records into buckets; an iterator over them.
pub(super) struct BucketLoader<'a> {
    /// Hashes and keys, in ascending order.
    records: IntoIter<(u64, Key)>,
    value: ValueRef<'a>,
    limits: BlockLimits,
    fill_percent: usize,
    /// The record that did not fit into the bucket before.
    first: Option<(u64, Key)>,
    /// Name of the bucket that it begins.
    name: Vec<u8>,
    /// Bytes of the buckets before.
    closed_bytes: u64,
}

impl<'a> BucketLoader<'a> {
    /// A loader of records with these distinct keys and one value.
    pub(super) fn new(
        keys: impl Iterator<Item = Key>,
        value: ValueRef<'a>,
        limits: BlockLimits,
        fill_percent: u32,
    ) -> Self {
        let mut records: Vec<(u64, Key)> = keys.map(|key| (hash(&key), key)).collect();
        records.sort_unstable();
        let mut records = records.into_iter();
        let first = records.next();
        let fill_percent = fill_percent as usize;
        Self { records, value, limits, fill_percent, first, name: Vec::new(), closed_bytes: 0 }
    }
}

impl Iterator for BucketLoader<'_> {
    type Item = LoadedBlock;

    fn next(&mut self) -> Option<LoadedBlock> {
        let mut last = self.first.take()?;
        let filled =
            self.limits.body_bytes(&self.name, self.closed_bytes) * self.fill_percent / 100;
        let mut builder = LeafBuilder::with_capacity(filled, 0);
        let value = Stored::Inline(self.value);
        builder.push(&last.1, &value);
        let key = std::mem::take(&mut self.name);
        for record in self.records.by_ref() {
            if builder.body_bytes_with(&record.1, &value) > filled {
                self.name = separator(last, record);
                self.first = Some(record);
                break;
            }
            builder.push(&record.1, &value);
            last = record;
        }
        let records = builder.count() as u32;
        let body = builder.finish();
        self.closed_bytes += body.len() as u64;
        Some(LoadedBlock { key, body, records, values: Vec::new() })
    }
}

/// The shortest beginning of the position of `right` that is above the position of `left`.
fn separator(left: (u64, Key), right: (u64, Key)) -> Vec<u8> {
    let [left, mut right] = [left, right].map(|(hash, key)| position(hash, &key));
    let common = left.iter().zip(&right).take_while(|(left, right)| left == right).count();
    right.truncate(common + 1);
    right
}

#[cfg(test)]
mod tests {
    use upsweep::ValueKind;
    use upsweep::layers::engine::block_format::BlockFormat;
    use upsweep::layers::runtime::BlockSizes;
    use upsweep::layers::structures::hash::HashFormat;

    use super::*;

    #[test]
    fn buckets_are_sound_and_full_and_hold_all() {
        let block_sizes = BlockSizes { least: 4096, most: 16_384, directory_bytes: 1 << 20 };
        let limits = BlockLimits { block_sizes, image_bytes: 0, inline_value_bytes_max: 1024 };
        let value = ValueRef { kind: ValueKind::Bytes, bytes: &[0; 8] };
        let keys = (0..10_000_u64).map(|number| (number * 1000).to_be_bytes());
        let buckets: Vec<LoadedBlock> = BucketLoader::new(keys, value, limits, 50).collect();
        let mut keys = Vec::new();
        for (place, bucket) in buckets.iter().enumerate() {
            let high = buckets.get(place + 1).map(|next| next.key.as_slice());
            let checked = HashFormat.check(&bucket.body, &bucket.key, high).expect("it is sound");
            assert_eq!(checked.records, bucket.records);
            let mut take = |key: &[u8], _: ValueRef<'_>| keys.push(key.to_vec());
            HashFormat.for_each(&bucket.key, &bucket.body, &mut take).expect("it can be read");
            assert!(bucket.body.len() <= 2048 && (bucket.body.len() > 1900 || high.is_none()));
        }
        keys.sort_unstable();
        let all = (0..10_000_u64).map(|number| (number * 1000).to_be_bytes().to_vec());
        assert!(keys.into_iter().eq(all));
    }
}
