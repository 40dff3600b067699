//! Directory pages, the checkpoint root and the superblock.
//!
//! A *page* (body of a page image) is a count and that many placed blocks, in key order. A *root*
//! (body of the root image) lists the spaces, the modifiers, and every page by space, lower bound,
//! image sequence and extent, and the quarantined updates that no log record holds: barrier, key,
//! operand. Both are written by one checkpoint; a page that did not change since
//! the last one stays where it is.
//!
//! The *superblock* is written to one of two slots in turn, so that a torn write leaves the other:
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | magic `UPSS` |
//! | 4..8 | crc32c over bytes 8..end of the slot's content |
//! | 8..24 | store id |
//! | 24..28 | version, 1 |
//! | 28..32 | length of the content |
//! | 32..40 | generation: the valid slot with the higher one counts |
//! | 40..48 | epoch: raised at every open, before anything is logged |
//! | 48..56 | replay from this log sequence |
//! | 56..64 | sequence of the root |
//! | 64..68 | first space number never used so far |
//! | 68.. | extent of the root as in the record format |

use super::codec_format::{Malformed, Reader, put_bytes, put_u32, put_u64, put_varint};
use super::record_format::{
    ModifierRecord, Placed, SpaceRecord, put_extent, put_modifier, put_placed, put_space,
    read_extent, read_modifier, read_placed, read_space,
};
use crate::placement::Extent;

/// Bytes of one superblock slot on the device.
pub const SLOT_BYTES: usize = 4096;
const MAGIC: [u8; 4] = *b"UPSS";
const VERSION: u32 = 1;

/// Where recovery starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Which store.
    pub store: [u8; 16],
    /// Counts the superblocks that were written.
    pub generation: u64,
    /// Counts the times that the store was opened.
    pub epoch: u64,
    /// The first log sequence that replay needs.
    pub replay_from: u64,
    /// Image sequence of the root.
    pub root_seq: u64,
    /// The first space number that was never used.
    pub next_space: u32,
    /// Where the root is; `None` before the first checkpoint.
    pub root: Option<Extent>,
}

/// Encodes a superblock; at most [`SLOT_BYTES`].
#[must_use]
pub fn encode_superblock(superblock: &Superblock) -> Vec<u8> {
    let mut rest = Vec::with_capacity(96);
    rest.extend_from_slice(&superblock.store);
    put_u32(&mut rest, VERSION);
    let length_at = rest.len();
    put_u32(&mut rest, 0);
    put_u64(&mut rest, superblock.generation);
    put_u64(&mut rest, superblock.epoch);
    put_u64(&mut rest, superblock.replay_from);
    put_u64(&mut rest, superblock.root_seq);
    put_u32(&mut rest, superblock.next_space);
    put_extent(superblock.root, &mut rest);
    let length = u32::try_from(rest.len() + 8).expect("a superblock is below 4 KiB");
    rest[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    let mut out = Vec::with_capacity(SLOT_BYTES);
    out.extend_from_slice(&MAGIC);
    put_u32(&mut out, crc32c::crc32c(&rest));
    out.extend_from_slice(&rest);
    out
}

/// Decodes one superblock slot.
///
/// # Errors
/// [`Malformed`] when the slot was never written, torn or damaged.
pub fn decode_superblock(slot: &[u8]) -> Result<Superblock, Malformed> {
    let mut reader = Reader::new(slot);
    if reader.array()? != MAGIC {
        return Err(Malformed("superblock magic number"));
    }
    let checksum = reader.u32()?;
    let store = reader.array()?;
    if reader.u32()? != VERSION {
        return Err(Malformed("superblock version"));
    }
    let length = reader.u32()? as usize;
    let checked = slot.get(8..length).ok_or(Malformed("superblock length"))?;
    if crc32c::crc32c(checked) != checksum {
        return Err(Malformed("superblock checksum"));
    }
    // Only what the checksum covers is looked at; store, version and length are known by now.
    let mut reader = Reader::new(checked.get(24..).ok_or(Malformed("superblock length"))?);
    Ok(Superblock {
        store,
        generation: reader.u64()?,
        epoch: reader.u64()?,
        replay_from: reader.u64()?,
        root_seq: reader.u64()?,
        next_space: reader.u32()?,
        root: read_extent(&mut reader)?,
    })
}

/// Where one page of the directory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRecord {
    /// The space.
    pub space: u32,
    /// Lower bound of the block keys in the page.
    pub low: Box<[u8]>,
    /// Directory changes through this log sequence are inside the page.
    pub image_seq: u64,
    /// Where the page is.
    pub extent: Extent,
}

/// A quarantined update that only checkpoints hold, because the log had no room for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedPut {
    /// It is inside its block if and only if the block's frontier is above this sequence, or equal
    /// and then putting it again changes nothing.
    pub barrier: u64,
    /// Key in the quarantine table.
    pub key: Vec<u8>,
    /// Operand of the put.
    pub operand: Vec<u8>,
}

/// The content of a checkpoint root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// All spaces at the begin of the checkpoint.
    pub spaces: Vec<SpaceRecord>,
    /// All modifiers of the application that were given a number.
    pub modifiers: Vec<ModifierRecord>,
    /// All pages, by space and lower bound.
    pub pages: Vec<PageRecord>,
    /// Quarantined updates that are in no log record.
    pub carried: Vec<CarriedPut>,
}

/// Encodes the body of a root.
#[must_use]
pub fn encode_root(root: &Root) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, root.spaces.len() as u64);
    root.spaces.iter().for_each(|space| put_space(space, &mut out));
    put_varint(&mut out, root.modifiers.len() as u64);
    root.modifiers.iter().for_each(|modifier| put_modifier(modifier, &mut out));
    put_varint(&mut out, root.pages.len() as u64);
    for page in &root.pages {
        put_varint(&mut out, u64::from(page.space));
        put_bytes(&mut out, &page.low);
        put_varint(&mut out, page.image_seq);
        put_extent(Some(page.extent), &mut out);
    }
    put_varint(&mut out, root.carried.len() as u64);
    for put in &root.carried {
        put_varint(&mut out, put.barrier);
        put_bytes(&mut out, &put.key);
        put_bytes(&mut out, &put.operand);
    }
    out
}

/// Decodes the body of a root.
///
/// # Errors
/// [`Malformed`] when the bytes are not a root.
pub fn decode_root(body: &[u8]) -> Result<Root, Malformed> {
    let mut reader = Reader::new(body);
    let mut root = Root::default();
    for _ in 0..reader.count(4)? {
        root.spaces.push(read_space(&mut reader)?);
    }
    for _ in 0..reader.count(3)? {
        root.modifiers.push(read_modifier(&mut reader)?);
    }
    for _ in 0..reader.count(6)? {
        root.pages.push(PageRecord {
            space: reader.narrow()?,
            low: reader.bytes()?.into(),
            image_seq: reader.varint()?,
            extent: read_extent(&mut reader)?.ok_or(Malformed("page extent"))?,
        });
    }
    for _ in 0..reader.count(3)? {
        root.carried.push(CarriedPut {
            barrier: reader.varint()?,
            key: reader.bytes()?.to_vec(),
            operand: reader.bytes()?.to_vec(),
        });
    }
    if reader.is_empty() { Ok(root) } else { Err(Malformed("root end")) }
}

/// Encodes the body of a page.
#[must_use]
pub fn encode_page<'a>(blocks: impl ExactSizeIterator<Item = &'a Placed>) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, blocks.len() as u64);
    blocks.for_each(|placed| put_placed(placed, &mut out));
    out
}

/// Decodes the body of a page of `space`.
///
/// # Errors
/// [`Malformed`] when the bytes are not a page.
pub fn decode_page(body: &[u8], space: u32) -> Result<Vec<Placed>, Malformed> {
    let mut reader = Reader::new(body);
    let count = reader.count(4)?;
    let blocks = (0..count).map(|_| read_placed(&mut reader, space)).collect::<Result<_, _>>()?;
    if reader.is_empty() { Ok(blocks) } else { Err(Malformed("page end")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_is_not_read_beyond_its_checksum() {
        let superblock = Superblock {
            store: [7; 16],
            generation: 9,
            epoch: 3,
            replay_from: 1000,
            root_seq: 900,
            next_space: 5,
            root: None,
        };
        let whole = encode_superblock(&superblock);
        assert_eq!(decode_superblock(&whole), Ok(superblock));
        for length in 0..whole.len() {
            let mut slot = whole.clone();
            slot[28..32].copy_from_slice(&(length as u32).to_le_bytes());
            let crc = slot.get(8..length).map_or(0, crc32c::crc32c);
            slot[4..8].copy_from_slice(&crc.to_le_bytes());
            assert!(decode_superblock(&slot).is_err(), "length {length}");
        }
    }
}
