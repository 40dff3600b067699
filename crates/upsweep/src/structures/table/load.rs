//! Bulk loading: from records in key order to whole leaves.
//!
//! Steps of [`TableLoader`], per record: check it; if the open leaf would exceed its fill, hand it
//! on and open the next, named by the shortest separator; append the record, a large value
//! separately from its leaf. Leaf names, the limit for large values and the length of bodies are as
//! in a sweep, so a loaded table is indistinguishable from one that grew.
//!
//! Invariants: keys ascend strictly, or the load ends with an error; one leaf is in memory, with
//! its large values.
//!
//! (Shadowed B-trees, section 7.4: append-only building.)

use super::handle::{AsValue, Table};
use super::leaf::{Lifetime, separator, stored_apart, weight};
use super::leaf_format::{LeafBuilder, Stored};
use super::order::is_below;
use super::raw_format;
use crate::engine::modifier::ValueRef;
use crate::error::{Error, RequestError};
use crate::runtime::{BlockLimits, LoadSummary, LoadedBlock};
use crate::structures::batch::Structure;
use crate::structures::modifiers::{KEY_BYTES_MAX, check_value};

/// How to load a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadOptions {
    /// How full the blocks are made, in per cent of the longest body (50 to 100). Full blocks take
    /// the least space; blocks with free space do not split at the first insertions.
    pub fill_percent: u32,
}

impl LoadOptions {
    /// Sets [`LoadOptions::fill_percent`].
    #[must_use]
    pub fn fill_percent(mut self, percent: u32) -> Self {
        self.fill_percent = percent;
        self
    }
}

impl Default for LoadOptions {
    /// Blocks filled to 90 %, as in a table that is only appended to.
    fn default() -> Self {
        Self { fill_percent: 90 }
    }
}

impl Table {
    /// Fills this table, which must be empty, with `records` in strictly ascending order of their
    /// keys: all of them, or none if this returns an error. An error among the records ends the
    /// load and is returned. When this returns, everything is on stable media. The table must not
    /// be changed meanwhile.
    ///
    /// Keys and values may be owned or borrowed; values keep their kind. Keys have up to 4096
    /// bytes, values up to 1 MiB. Cost: memory for one block and up to 1 MiB of large values,
    /// besides that of [`BlockStore::load`](crate::runtime::BlockStore::load), and its writes.
    ///
    /// # Errors
    /// [`RequestError::NotEmpty`]; [`RequestError::BadRecord`] for a key that is not above the
    /// previous one, or a key or value that is too long; [`RequestError::BadConfig`] for a fill
    /// outside its range; [`Error::Retry`] when the devices are full; [`Error::Closed`]: see
    /// [`BlockStore::load`](crate::runtime::BlockStore::load) for the state then.
    pub fn load<K, V>(
        &self,
        records: impl IntoIterator<Item = Result<(K, V), Error>>,
        options: LoadOptions,
    ) -> Result<LoadSummary, Error>
    where
        K: AsRef<[u8]>,
        V: AsValue,
    {
        self.load_records(records, options, Lifetime::Endless)
    }

    /// As [`Table::load`], of records with this lifetime.
    pub(in crate::structures) fn load_records<K, V>(
        &self,
        records: impl IntoIterator<Item = Result<(K, V), Error>>,
        options: LoadOptions,
        lifetime: Lifetime,
    ) -> Result<LoadSummary, Error>
    where
        K: AsRef<[u8]>,
        V: AsValue,
    {
        let limits = self.blocks().limits();
        let loader = TableLoader::new(records.into_iter(), limits, options)?;
        self.blocks().load(self.space(), &mut loader.lifetime(lifetime))
    }
}

/// Packs records in ascending key order into leaves; an iterator over the blocks of the table.
/// Ends after the first error.
pub struct TableLoader<I> {
    records: I,
    limits: BlockLimits,
    fill_percent: usize,
    lifetime: Lifetime,
    /// Records taken so far.
    taken: u64,
    /// Bytes of the leaves before the open one, without large values.
    closed_bytes: u64,
    open: OpenLeaf,
    has_ended: bool,
}

/// The leaf that is being filled.
struct OpenLeaf {
    key: Vec<u8>,
    /// The fill limit, unless it holds a single record; see [`weight`].
    body_bytes_max: usize,
    builder: LeafBuilder,
    values: Vec<(Vec<u8>, Vec<u8>)>,
    values_bytes: usize,
}

/// The fill limit of the leaf with this key, unless it holds a single record, with `closed_bytes`
/// of leaves before it: length of its body in bytes, if it has no large values.
fn filled_bytes(
    limits: &BlockLimits,
    fill_percent: usize,
    block_key: &[u8],
    closed_bytes: u64,
) -> usize {
    limits.body_bytes(block_key, closed_bytes) * fill_percent / 100
}

impl<I> TableLoader<I> {
    /// A loader for a store with these `limits`.
    ///
    /// # Errors
    /// [`RequestError::BadConfig`] for a fill outside its range.
    pub fn new(records: I, limits: BlockLimits, options: LoadOptions) -> Result<Self, Error> {
        let LoadOptions { fill_percent } = options;
        if !(50..=100).contains(&fill_percent) {
            let reason = format!("{fill_percent} per cent; give 50 to 100");
            return Err(RequestError::BadConfig { setting: "fill", reason }.into());
        }
        let fill_percent = fill_percent as usize;
        let open = OpenLeaf::new(Vec::new(), filled_bytes(&limits, fill_percent, &[], 0), 0);
        Ok(Self {
            records,
            limits,
            fill_percent,
            lifetime: Lifetime::Endless,
            taken: 0,
            closed_bytes: 0,
            open,
            has_ended: false,
        })
    }

    /// The same for records with this lifetime.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Takes one record that may come next; returns the leaf that it closes, if any.
    fn take(&mut self, key: &[u8], value: ValueRef<'_>) -> Option<LoadedBlock> {
        let is_large = value.bytes.len() > self.limits.inline_value_bytes_max;
        let (stored, apart) = if is_large {
            let body = raw_format::encode(value.kind, value.bytes);
            (stored_apart(value.kind, value.bytes, self.lifetime), Some(body))
        } else {
            (Stored::Inline(value), None)
        };
        let mut closed = None;
        if self.open.is_full_for(key, &stored) {
            let last_key = self.open.builder.last_key().unwrap_or_default();
            let block_key = separator(last_key, key).to_vec();
            let records = self.open.builder.count();
            let body_bytes_max =
                filled_bytes(&self.limits, self.fill_percent, &block_key, self.closed_bytes);
            let next = OpenLeaf::new(block_key, body_bytes_max, records);
            let leaf = std::mem::replace(&mut self.open, next).close();
            self.closed_bytes += leaf.body.len() as u64;
            closed = Some(leaf);
        }
        self.open.push(key, &stored, apart);
        closed
    }

    /// Why the record cannot come next.
    fn check(&self, key: &[u8], value: ValueRef<'_>) -> Result<(), String> {
        if key.len() > KEY_BYTES_MAX {
            return Err(format!("key of {} bytes; the limit is {KEY_BYTES_MAX}", key.len()));
        }
        // The open leaf has the record before this one, unless this is the first.
        let last_key = self.open.builder.last_key();
        if let Some(last_key) = last_key.filter(|last_key| !is_below(last_key, key)) {
            let how = if key == last_key { "equal to" } else { "below" };
            return Err(format!("the key is {how} the one before it; keys must ascend"));
        }
        check_value(value.kind, value.bytes).map_err(|refusal| refusal.0)
    }
}

impl<I, K, V> Iterator for TableLoader<I>
where
    I: Iterator<Item = Result<(K, V), Error>>,
    K: AsRef<[u8]>,
    V: AsValue,
{
    type Item = Result<LoadedBlock, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.has_ended {
            let (key, value) = match self.records.next() {
                Some(Ok(record)) => record,
                Some(Err(error)) => {
                    self.has_ended = true;
                    return Some(Err(error));
                }
                None => {
                    self.has_ended = true;
                    let rest = OpenLeaf::new(Vec::new(), 0, 0);
                    let last = std::mem::replace(&mut self.open, rest).close();
                    return (last.records > 0).then_some(Ok(last));
                }
            };
            let (key, value) = (key.as_ref(), value.as_value());
            self.taken += 1;
            if let Err(reason) = self.check(key, value) {
                self.has_ended = true;
                return Some(Err(RequestError::BadRecord { number: self.taken, reason }.into()));
            }
            // Not wrapped in a `Result`: moving one per record costs more than the record.
            let closed = self.take(key, value);
            if closed.is_some() {
                return closed.map(Ok);
            }
        }
        None
    }
}

impl OpenLeaf {
    /// A leaf with room for about this many records.
    fn new(key: Vec<u8>, body_bytes_max: usize, records: usize) -> Self {
        let builder = LeafBuilder::with_capacity(body_bytes_max, records);
        Self { key, body_bytes_max, builder, values: Vec::new(), values_bytes: 0 }
    }

    fn is_full_for(&self, key: &[u8], stored: &Stored<'_>) -> bool {
        let values = match stored {
            Stored::Inline(_) => self.values_bytes,
            Stored::Large { bytes, .. } => self.values_bytes + *bytes as usize,
        };
        let body = self.builder.body_bytes_with(key, stored);
        self.builder.count() > 0 && weight(body, values, self.body_bytes_max) > self.body_bytes_max
    }

    fn push(&mut self, key: &[u8], stored: &Stored<'_>, apart: Option<Vec<u8>>) {
        self.builder.push(key, stored);
        if let Some(body) = apart {
            self.values_bytes += body.len();
            self.values.push((key.to_vec(), body));
        }
    }

    fn close(self) -> LoadedBlock {
        let records = u32::try_from(self.builder.count()).expect("fewer records than bytes");
        let body = self.builder.finish();
        LoadedBlock { key: self.key, body, records, values: self.values }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;
    use crate::engine::block_format::BlockFormat;
    use crate::engine::modifier::ValueKind;
    use crate::runtime::BlockSizes;
    use crate::structures::table::leaf_format::{HEADER_BYTES, Leaf};
    use crate::structures::table::{TableFormat, Value, raw_format};

    type Content = BTreeMap<Vec<u8>, Value>;

    const LIMITS: BlockLimits = BlockLimits {
        block_sizes: BlockSizes { least: 4096, most: 16_384, directory_bytes: 1 << 20 },
        image_bytes: 0,
        inline_value_bytes_max: 1024,
    };

    fn bytes(bytes: &[u8]) -> Value {
        Value { kind: ValueKind::Bytes, bytes: bytes.to_vec() }
    }

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            6 => vec(any::<u8>(), 0..20),
            3 => (0u16..2000).prop_map(|number| format!("shared/prefix/{number}").into_bytes()),
            1 => vec(97u8..99, 120..140),
            1 => vec(any::<u8>(), 4000..=4096),
        ]
    }

    fn values() -> impl Strategy<Value = Value> {
        let numbers = prop_oneof![Just(ValueKind::I64), Just(ValueKind::U64), Just(ValueKind::F64)];
        prop_oneof![
            6 => vec(any::<u8>(), 0..60).prop_map(|value| bytes(&value)),
            2 => (numbers, vec(any::<u8>(), 8)).prop_map(|(kind, bytes)| Value { kind, bytes }),
            1 => (900usize..1200).prop_map(|length| bytes(&vec![7; length])),
        ]
    }

    fn load(content: &Content, fill_percent: u32) -> Vec<LoadedBlock> {
        let records = content.iter().map(|(key, value)| Ok((key.clone(), value.clone())));
        let loader = TableLoader::new(records, LIMITS, LoadOptions { fill_percent });
        loader.expect("a fill in its range").collect::<Result<_, _>>().expect("sound records")
    }

    /// What the blocks hold; checks each of them by itself.
    fn content_of(blocks: &[LoadedBlock]) -> Content {
        let mut content = Content::new();
        for (index, block) in blocks.iter().enumerate() {
            let high = blocks.get(index + 1).map(|next| next.key.as_slice());
            let checked =
                TableFormat::default().check(&block.body, &block.key, high).expect("a sound body");
            assert_eq!(checked.records, block.records);
            let apart = block.values.iter().map(|(key, body)| (key.clone(), body.len() as u32));
            assert_eq!(checked.values, apart.collect::<Vec<_>>());
            let large: BTreeMap<_, _> = block.values.iter().cloned().collect();
            let leaf = Leaf::parse(&block.body).expect("a sound body");
            for index in 0..leaf.count() {
                let record = leaf.record(index).expect("a sound record");
                let value = match record.value {
                    Stored::Inline(value) => value,
                    Stored::Large { crc, .. } => {
                        let body = &large[record.key];
                        assert_eq!(crc32c::crc32c(body), crc);
                        raw_format::decode(body).expect("a sound body").expect("a value")
                    }
                };
                let value = Value { kind: value.kind, bytes: value.bytes.to_vec() };
                content.insert(record.key.to_vec(), value);
            }
        }
        content
    }

    proptest! {
        #[test]
        fn blocks_are_sound_and_full_and_hold_all(
            content in btree_map(keys(), values(), 0..300),
            fill_percent in 50u32..=100,
        ) {
            let blocks = load(&content, fill_percent);
            prop_assert_eq!(content_of(&blocks), content);
            prop_assert!(blocks.first().is_none_or(|first| first.key.is_empty()));
            let limit = |block: &LoadedBlock| {
                filled_bytes(&LIMITS, fill_percent as usize, &block.key, 0)
            };
            let values = |block: &LoadedBlock| -> usize {
                block.values.iter().map(|(_, body)| body.len()).sum()
            };
            let is_within = |block: &LoadedBlock| {
                weight(block.body.len(), values(block), limit(block)) <= limit(block)
            };
            prop_assert!(blocks.iter().all(|block| block.records == 1 || is_within(block)));
            for pair in blocks.windows(2) {
                let [left, right] = pair else { unreachable!("windows of two") };
                let leaf = Leaf::parse(&left.body).expect("a sound body");
                let next = Leaf::parse(&right.body).expect("a sound body");
                // The next record would have been too much.
                let bytes = left.body.len() + next.body_bytes_of(&(0..1)) - HEADER_BYTES;
                let first = next.record(0).expect("a sound body").value;
                let more = if let Stored::Large { bytes, .. } = first { bytes as usize } else { 0 };
                let bytes = weight(bytes, values(left) + more, limit(left));
                prop_assert!(bytes > limit(left), "{} bytes would have fitted", bytes);
                // The name is the shortest that separates.
                let key = |leaf: &Leaf<'_>, index| leaf.key(index).expect("sound").to_vec();
                let (last, first) = (key(&leaf, leaf.count() - 1), key(&next, 0));
                prop_assert!(first.starts_with(&right.key) && right.key > last);
                prop_assert!(&right.key[..right.key.len() - 1] <= last.as_slice());
            }
        }
    }

    #[test]
    fn the_more_is_loaded_the_larger_are_leaves() {
        let content: Content =
            (0..3000u32).map(|key| (key.to_be_bytes().to_vec(), bytes(&[7; 200]))).collect();
        // Room for 48 full leaves: 24 of 4 KiB and, as that much again may come, 12 of each larger
        // size; some more as they are not quite full.
        let limits = BlockLimits {
            block_sizes: BlockSizes { directory_bytes: 48 * 170, ..LIMITS.block_sizes },
            ..LIMITS
        };
        let records = content.iter().map(|(key, value)| Ok((key.clone(), value.clone())));
        let loader = TableLoader::new(records, limits, LoadOptions::default());
        let blocks: Result<Vec<_>, _> = loader.expect("the default fill").collect();
        let blocks = blocks.expect("sound records");
        assert_eq!(content_of(&blocks), content);
        let sizes: Vec<_> = blocks.iter().map(|b| b.body.len().next_power_of_two()).collect();
        assert!(sizes.is_sorted(), "{sizes:?}");
        let count = |size| sizes.iter().filter(|&&found| found == size).count();
        assert!((24..=32).contains(&count(4096)), "{sizes:?}");
        assert!((12..=16).contains(&count(8192)), "{sizes:?}");
        assert_eq!(sizes.last(), Some(&16_384));
    }

    #[test]
    fn large_values_in_memory_are_bounded() {
        let content: Content =
            (0..40u8).map(|number| (vec![number], bytes(&vec![number; 300_000]))).collect();
        let blocks = load(&content, 100);
        assert!(blocks.iter().all(|block| block.values.len() <= 3), "more than 1 MiB");
        assert_eq!(content_of(&blocks), content);
    }

    /// What the loader says to the second of two records.
    fn refusal(first: &[u8], key: &[u8], value: Value) -> String {
        let records = [Ok((first.to_vec(), bytes(b"1"))), Ok((key.to_vec(), value))];
        let loader = TableLoader::new(records.into_iter(), LIMITS, LoadOptions::default());
        let mut loader = loader.expect("the default fill");
        let refused = loader.next().expect("an answer").expect_err("a refusal");
        assert!(loader.next().is_none(), "an error is the end");
        refused.to_string()
    }

    #[test]
    fn what_cannot_be_loaded_is_named() {
        assert!(refusal(b"b", b"a", bytes(b"")).starts_with("record 2: the key is below the one"));
        assert!(refusal(b"b", b"b", bytes(b"")).contains("the key is equal to the one"));
        assert!(refusal(b"", b"", bytes(b"")).contains("the key is equal to the one"));
        let long = refusal(b"", &[b'k'; 4097], bytes(b""));
        assert_eq!(long, "record 2: key of 4097 bytes; the limit is 4096");
        assert!(refusal(b"", b"k", bytes(&vec![0; (1 << 20) + 1])).contains("above the limit"));
        let short = Value { kind: ValueKind::I64, bytes: vec![0; 7] };
        assert!(refusal(b"", b"k", short).contains("has 8 bytes, not 7"));
        for fill_percent in [49, 101] {
            let options = LoadOptions { fill_percent };
            let none = std::iter::empty::<()>();
            let refused = TableLoader::new(none, LIMITS, options).map(drop);
            let message = refused.expect_err("outside of the range").to_string();
            assert_eq!(message, format!("fill: {fill_percent} per cent; give 50 to 100"));
        }
    }
}
