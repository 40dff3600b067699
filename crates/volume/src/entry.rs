//! Entries of the map, and their form in its table.
//!
//! | key | length | content |
//! |---|---|---|
//! | branch | 4 | big endian |
//! | part | 1 | 0: spans up to a chunk, 1: longer spans |
//! | place, part 0 | 7 | the chunk (6 bytes, big endian), and 0 to 15 for a block, 16 for all |
//! | place, part 1 | 7 | the level, and the index of the span (6 bytes, big endian) |
//! | stamp | 8 | big endian, all bits inverted: later entries of a span come first |
//!
//! The value is empty if the blocks are zero. Otherwise it is the home (8 bytes) and the slot (2
//! bytes) of the first block, and the CRC-32C of each block (4 bytes), all little endian. Blocks of
//! a chunk lie one after another.

use std::ops::RangeInclusive;

use crate::address::{Branch, CHUNK_BLOCKS, CHUNK_LEVEL, Physical, Span, Stamp, chunk_of};

/// Length of a key in bytes.
pub const KEY_BYTES: usize = 20;
const CHUNK_PART: u8 = 0;
const LONG_PART: u8 = 1;
/// Stands for all blocks of a chunk.
const WHOLE: u8 = CHUNK_BLOCKS as u8;

/// What the blocks of a span are from some moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where.
    pub span: Span,
    /// Since when.
    pub stamp: Stamp,
    /// What they are.
    pub content: Content,
}

impl Entry {
    /// How many slots it has.
    #[must_use]
    pub fn slots(&self) -> u64 {
        match &self.content {
            Content::Zero => 0,
            Content::Payload { checksums, .. } => checksums.len() as u64,
        }
    }
}

/// The content of the blocks of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// All bytes are zero.
    Zero,
    /// In the slots from `first` on; `checksums` has the CRC-32C of each block of the span, which
    /// is a block or a chunk.
    Payload {
        /// The slot of the first block.
        first: Physical,
        /// Of each block.
        checksums: Vec<u32>,
    },
}

/// A key or value that is none of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

fn put_index(index: u64, key: &mut [u8]) {
    key.copy_from_slice(&index.to_be_bytes()[2..]);
}

fn index_of(key: &[u8]) -> u64 {
    key.iter().fold(0, |index, byte| index << 8 | u64::from(*byte))
}

/// The key of an entry.
#[must_use]
pub fn key(branch: Branch, span: Span, stamp: Stamp) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..4].copy_from_slice(&branch.0.to_be_bytes());
    if span.level > CHUNK_LEVEL {
        (key[4], key[5]) = (LONG_PART, span.level);
        put_index(span.index, &mut key[6..12]);
    } else {
        let chunk = span.at(CHUNK_LEVEL).index;
        let is_whole = span.level == CHUNK_LEVEL;
        put_index(chunk, &mut key[5..11]);
        key[11] = if is_whole { WHOLE } else { (span.index % CHUNK_BLOCKS) as u8 };
    }
    key[12..].copy_from_slice(&(!stamp.0).to_be_bytes());
    key
}

/// The first key behind all entries of a span.
#[must_use]
pub fn end_of(branch: Branch, span: Span) -> Vec<u8> {
    let mut end = key(branch, span, Stamp(0)).to_vec();
    end.push(0);
    end
}

/// The keys of all entries of a branch about these chunks, longer spans excepted: from the first
/// key to below the second one.
#[must_use]
pub fn keys_of_chunks(branch: Branch, chunks: RangeInclusive<u64>) -> [[u8; KEY_BYTES]; 2] {
    let first = Span::block(chunks.start() * CHUNK_BLOCKS);
    let mut end = key(branch, Span::chunk(*chunks.end()), Stamp(0));
    end[11] = WHOLE + 1;
    [key(branch, first, Stamp::NOW), end]
}

/// The keys of all entries of a branch about spans that are longer than a chunk: from the first key
/// to below the second one.
#[must_use]
pub fn keys_of_long_spans(branch: Branch) -> [[u8; KEY_BYTES]; 2] {
    [LONG_PART, LONG_PART + 1].map(|part| {
        let mut key = [0; KEY_BYTES];
        key[..4].copy_from_slice(&branch.0.to_be_bytes());
        key[4] = part;
        key
    })
}

/// The value of an entry.
#[must_use]
pub fn value(content: &Content) -> Vec<u8> {
    let Content::Payload { first, checksums } = content else { return Vec::new() };
    let mut value = Vec::with_capacity(10 + 4 * checksums.len());
    value.extend_from_slice(&first.home.to_le_bytes());
    value.extend_from_slice(&first.slot.to_le_bytes());
    checksums.iter().for_each(|checksum| value.extend_from_slice(&checksum.to_le_bytes()));
    value
}

/// The branch and the entry of a key and its value.
///
/// # Errors
/// [`Malformed`] if they are none.
pub fn decode(key: &[u8], value: &[u8]) -> Result<(Branch, Entry), Malformed> {
    let key: &[u8; KEY_BYTES] = key.try_into().map_err(|_| Malformed("length of the key"))?;
    let branch = Branch(index_of(&key[..4]) as u32);
    let span = match (key[4], key[11]) {
        (CHUNK_PART, WHOLE) => Span::chunk(index_of(&key[5..11])),
        (CHUNK_PART, block @ 0..WHOLE) => {
            Span::block(index_of(&key[5..11]) * CHUNK_BLOCKS + u64::from(block))
        }
        (LONG_PART, _) => Span { level: key[5], index: index_of(&key[6..12]) },
        _ => return Err(Malformed("place in the key")),
    };
    if (key[4] == LONG_PART) != (span.level > CHUNK_LEVEL) || !span.is_in_bounds() {
        return Err(Malformed("span in the key"));
    }
    let stamp = Stamp(!u64::from_be_bytes(*key.last_chunk().expect("it has 20 bytes")));
    if !stamp.is_of_a_change() {
        return Err(Malformed("moment in the key"));
    }
    let content = if value.is_empty() { Content::Zero } else { payload(span, value)? };
    Ok((branch, Entry { span, stamp, content }))
}

fn payload(span: Span, value: &[u8]) -> Result<Content, Malformed> {
    let short = || Malformed("length of the value");
    let (home, rest) = value.split_first_chunk().ok_or_else(short)?;
    let (slot, rest) = rest.split_first_chunk().ok_or_else(short)?;
    let (checksums, rest) = rest.as_chunks();
    let blocks = checksums.len() as u64;
    let fits = span.level <= CHUNK_LEVEL && rest.is_empty();
    let slot = u16::from_le_bytes(*slot);
    let last = u64::from(slot) + blocks;
    if !fits || last > 1 + u64::from(u16::MAX) {
        return Err(short());
    }
    let range = span.blocks();
    if blocks != range.end - range.start {
        return Err(short());
    }
    let first = Physical { home: u64::from_le_bytes(*home), slot };
    let checksums = checksums.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    Ok(Content::Payload { first, checksums })
}

/// The chunk that an entry is about; none if it is longer.
#[must_use]
pub fn chunk_of_span(span: Span) -> Option<u64> {
    (span.level <= CHUNK_LEVEL).then(|| chunk_of(span.blocks().start))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::address::{BLOCKS_MAX, LEVEL_MAX};

    fn any_span() -> impl Strategy<Value = Span> {
        let block = 0..BLOCKS_MAX;
        (0..=LEVEL_MAX, block).prop_map(|(level, block)| Span::block(block).at(level))
    }

    /// Keys of which many are right but for some bytes.
    fn any_key() -> impl Strategy<Value = Vec<u8>> {
        let bytes = prop::collection::vec(any::<u8>(), KEY_BYTES);
        let near = (any::<u32>(), any_span(), any_stamp())
            .prop_map(|(branch, span, stamp)| key(Branch(branch), span, Stamp(stamp)).to_vec());
        let changed = (near, 0..KEY_BYTES, any::<u8>()).prop_map(|(mut key, at, bits)| {
            key[at] ^= bits;
            key
        });
        prop_oneof![prop::collection::vec(any::<u8>(), 0..24), bytes, changed]
    }

    fn any_stamp() -> impl Strategy<Value = u64> {
        0..=u64::MAX / 2
    }

    fn any_entry() -> impl Strategy<Value = Entry> {
        (any_span(), any_stamp(), any::<u64>(), 0..65_000_u16, any::<u32>()).prop_map(
            |(span, stamp, home, slot, checksum)| {
                let blocks = span.blocks();
                let content = if span.level > CHUNK_LEVEL || checksum % 3 == 0 {
                    Content::Zero
                } else {
                    let checksums = blocks.map(|block| checksum ^ block as u32).collect();
                    Content::Payload { first: Physical { home, slot }, checksums }
                };
                Entry { span, stamp: Stamp(stamp), content }
            },
        )
    }

    proptest! {
        #[test]
        fn an_entry_is_what_was_encoded(branch in any::<u32>(), entry in any_entry()) {
            let key = key(Branch(branch), entry.span, entry.stamp);
            prop_assert_eq!(decode(&key, &value(&entry.content)), Ok((Branch(branch), entry)));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(
            key in any_key(),
            value in prop_oneof![
                Just(Vec::new()),
                prop::collection::vec(any::<u8>(), 14),
                prop::collection::vec(any::<u8>(), 0..90),
            ],
        ) {
            if let Ok((branch, entry)) = decode(&key, &value) {
                prop_assert!(entry.span.blocks().end <= BLOCKS_MAX);
                prop_assert!(entry.slots() <= CHUNK_BLOCKS);
                prop_assert_eq!(&super::key(branch, entry.span, entry.stamp)[..], &key[..]);
                prop_assert_eq!(super::value(&entry.content), value);
            }
        }

        #[test]
        fn keys_of_a_chunk_are_together_and_later_ones_come_first(
            chunk in 0..BLOCKS_MAX / 16, block in 0..16_u64, stamp in 1..u64::MAX,
        ) {
            let branch = Branch(7);
            let [from, to] = keys_of_chunks(branch, chunk..=chunk);
            for span in [Span::chunk(chunk), Span::block(chunk * 16 + block)] {
                let (now, before) =
                    (key(branch, span, Stamp(stamp)), key(branch, span, Stamp(stamp - 1)));
                prop_assert!(from <= now && now < before && before < to);
            }
            for other in [chunk.wrapping_sub(1) & ((1 << 44) - 1), chunk + 1] {
                let key = key(branch, Span::block(other * 16 + block), Stamp(stamp));
                prop_assert!(key < from || key >= to);
            }
        }
    }
}
