//! Nodes, pages of the block table, the checkpoint root and the superblock.
//!
//! A *node* (body of a node image) is its level, a count, and that many children; above level 0
//! each with its key. A *page* of the block table is a count and that many blocks: number, birth,
//! key, placement. A *root* (body of the root image) lists the spaces and the node that is the root
//! of each, the snapshots, the modifiers, all nodes and pages (number, image sequence, extent),
//! nodes that are still to be dropped, deferred reference counts, the clones (source, clone,
//! sequence), the quarantined updates that no log record holds (barrier, key, operand), and the
//! spill segments of spilled updates, each with the sequence of its log record, and the reserved
//! extents, each with its space. Roots from versions without spill segments end before that list,
//! and those without reserved extents after it. Everything except spill segments is written by
//! checkpoints; a node or page that did not change since the last one stays in place. Together they
//! are the directory as it was at one log sequence.
//!
//! The *superblock* is written to one of two slots in turn, so that a torn write leaves the other:
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | magic `UPSS` |
//! | 4..8 | crc32c over bytes 8..end of the slot's content |
//! | 8..24 | store id |
//! | 24..28 | version: 3, or 2, which ends without the last field |
//! | 28..32 | length of the content |
//! | 32..40 | generation: the valid slot with the higher one counts |
//! | 40..48 | epoch: raised at every open, before anything is logged |
//! | 48..56 | replay from this log sequence |
//! | 56..64 | sequence of the root |
//! | 64..68 | first space number never used so far |
//! | 68.. | extent of the root as in the record format |
//! | last 8 | the log was on stable media up to this sequence |

use super::codec_format::{Malformed, Reader, put_bytes, put_u32, put_u64, put_varint};
use super::record_format::{
    BlockRef, ModifierRecord, Placement, SnapshotRecord, SpaceRecord, put_extent, put_modifier,
    put_placement, put_snapshot, put_space, read_extent, read_modifier, read_placement,
    read_snapshot, read_some_extent, read_space,
};
use super::spill_segment_format::{SpillSegmentRecord, put_spill_segment, read_spill_segment};
use crate::engine::ids::SpaceId;
use crate::log::Seq;
use crate::placement::Extent;

/// Bytes of one superblock slot on the device.
pub const SLOT_BYTES: usize = 4096;
const MAGIC: [u8; 4] = *b"UPSS";
const VERSION: u32 = 3;
/// The version whose superblocks do not record how much of the log was stable.
const VERSION_WITHOUT_DURABLE: u32 = 2;

/// The starting point of recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the store.
    pub store: [u8; 16],
    /// Counts the superblocks that were written.
    pub generation: u64,
    /// Counts the times that the store was opened.
    pub epoch: u64,
    /// The first log sequence that replay needs.
    pub replay_from: Seq,
    /// Image sequence of the root.
    pub root_seq: Seq,
    /// The first space number that was never used.
    pub next_space: SpaceId,
    /// The place of the root; `None` before the first checkpoint.
    pub root: Option<Extent>,
    /// Every record of the log up to this sequence was on stable media when this was written: a log
    /// that ends earlier has lost acknowledged records. [`Seq::NONE`] if that is not known.
    pub durable: Seq,
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
    put_u64(&mut rest, superblock.replay_from.get());
    put_u64(&mut rest, superblock.root_seq.get());
    put_u32(&mut rest, superblock.next_space.get());
    put_extent(superblock.root, &mut rest);
    put_u64(&mut rest, superblock.durable.get());
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
    let version = reader.u32()?;
    if ![VERSION, VERSION_WITHOUT_DURABLE].contains(&version) {
        return Err(Malformed("superblock version"));
    }
    let length = reader.u32()? as usize;
    let checked = slot.get(8..length).ok_or(Malformed("superblock length"))?;
    if crc32c::crc32c(checked) != checksum {
        return Err(Malformed("superblock checksum"));
    }
    // Only bytes covered by the checksum are read; store, version and length are known by now.
    let mut reader = Reader::new(checked.get(24..).ok_or(Malformed("superblock length"))?);
    Ok(Superblock {
        store,
        generation: reader.u64()?,
        epoch: reader.u64()?,
        replay_from: Seq::new(reader.u64()?),
        root_seq: Seq::new(reader.u64()?),
        next_space: SpaceId::new(reader.u32()?),
        root: read_extent(&mut reader)?,
        durable: if version == VERSION { Seq::new(reader.u64()?) } else { Seq::NONE },
    })
}

/// The place of the image of a node or of a page of the block table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageRecord {
    /// Number of the node or page.
    pub number: u32,
    /// Begin of the checkpoint that wrote it.
    pub image_seq: Seq,
    /// Its place.
    pub extent: Extent,
}

/// The content of a node image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRecord {
    /// Distance from the leaves.
    pub level: u8,
    /// Lower bounds of the children; empty at level 0.
    pub keys: Vec<Box<[u8]>>,
    /// Numbers of nodes or, at level 0, of blocks.
    pub children: Vec<u32>,
}

/// An entry of the block table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    /// Its number and birth.
    pub block: BlockRef,
    /// Its key.
    pub key: Box<[u8]>,
    /// Its place.
    pub placement: Placement,
}

/// A space was cloned from another at this sequence: updates up to it concern both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloneEvent {
    /// The source of the clone.
    pub source: SpaceId,
    /// The clone.
    pub clone: SpaceId,
    /// Sequence of the log record.
    pub seq: Seq,
}

/// A quarantined update that only checkpoints hold, because the log had no room for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedPut {
    /// It is inside its block if and only if the block's frontier is above this sequence, or equal,
    /// in which case putting it again changes nothing.
    pub barrier: Seq,
    /// Key in the quarantine table.
    pub key: Vec<u8>,
    /// Operand of the put.
    pub operand: Vec<u8>,
}

/// The content of a checkpoint root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// All spaces at the begin of the checkpoint, and the number of the root node of each.
    pub spaces: Vec<(SpaceRecord, u32)>,
    /// All snapshots, with the sequence that each of them shows.
    pub snapshots: Vec<(SnapshotRecord, Seq)>,
    /// All modifiers of the application that have a number.
    pub modifiers: Vec<ModifierRecord>,
    /// All nodes, by number.
    pub nodes: Vec<ImageRecord>,
    /// All pages of the block table, by number.
    pub pages: Vec<ImageRecord>,
    /// Nodes to which a reference is still to be dropped, the next one last.
    pub condemned: Vec<u32>,
    /// Deferred reference counts: amounts by cell of the reference array.
    pub deferred: Vec<(u64, i64)>,
    /// Clones that updates in the log may still concern.
    pub clones: Vec<CloneEvent>,
    /// Quarantined updates that are in no log record.
    pub carried: Vec<CarriedPut>,
    /// Spill segments of spilled updates.
    pub spill_segments: SpillSegmentList,
    /// Reserved extents, by place.
    pub reserved: Vec<(SpaceId, Extent)>,
}

/// Spill segments of spilled updates, each with the sequence of its log record, in the form of a
/// root: there may be a hundred thousand, and they are added to a root a few at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpillSegmentList {
    count: u64,
    bytes: Vec<u8>,
}

impl SpillSegmentList {
    /// Appends a spill segment and the sequence of its log record.
    pub fn push(&mut self, seq: Seq, segment: &SpillSegmentRecord) {
        put_varint(&mut self.bytes, seq.get());
        put_spill_segment(segment, &mut self.bytes);
        self.count += 1;
    }

    /// The spill segments, each with the sequence of its log record.
    pub fn iter(&self) -> impl Iterator<Item = (Seq, SpillSegmentRecord)> {
        let mut reader = Reader::new(&self.bytes);
        (0..self.count).map(move |_| Self::read_one(&mut reader).expect("it was encoded here"))
    }

    fn read_one(reader: &mut Reader<'_>) -> Result<(Seq, SpillSegmentRecord), Malformed> {
        Ok((reader.seq()?, read_spill_segment(reader)?))
    }

    /// Reads such a list, and checks every spill segment.
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = reader.count(10)?;
        let mut ahead = *reader;
        for _ in 0..count {
            Self::read_one(&mut ahead)?;
        }
        let bytes = reader.take(reader.remaining() - ahead.remaining())?;
        Ok(Self { count: count as u64, bytes: bytes.to_vec() })
    }
}

/// Encodes the body of a root.
#[must_use]
pub fn encode_root(root: &Root) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, root.spaces.len() as u64);
    for (space, node) in &root.spaces {
        put_space(space, &mut out);
        put_varint(&mut out, u64::from(*node));
    }
    put_varint(&mut out, root.snapshots.len() as u64);
    for (snapshot, seq) in &root.snapshots {
        put_snapshot(snapshot, &mut out);
        put_varint(&mut out, seq.get());
    }
    put_varint(&mut out, root.modifiers.len() as u64);
    root.modifiers.iter().for_each(|modifier| put_modifier(modifier, &mut out));
    for images in [&root.nodes, &root.pages] {
        put_varint(&mut out, images.len() as u64);
        for image in images {
            put_varint(&mut out, u64::from(image.number));
            put_varint(&mut out, image.image_seq.get());
            put_extent(Some(image.extent), &mut out);
        }
    }
    put_varint(&mut out, root.condemned.len() as u64);
    root.condemned.iter().for_each(|node| put_varint(&mut out, u64::from(*node)));
    put_varint(&mut out, root.deferred.len() as u64);
    for (index, amount) in &root.deferred {
        put_varint(&mut out, *index);
        put_u64(&mut out, amount.cast_unsigned());
    }
    put_varint(&mut out, root.clones.len() as u64);
    for event in &root.clones {
        put_varint(&mut out, u64::from(event.source.get()));
        put_varint(&mut out, u64::from(event.clone.get()));
        put_varint(&mut out, event.seq.get());
    }
    put_varint(&mut out, root.carried.len() as u64);
    for put in &root.carried {
        put_varint(&mut out, put.barrier.get());
        put_bytes(&mut out, &put.key);
        put_bytes(&mut out, &put.operand);
    }
    put_varint(&mut out, root.spill_segments.count);
    out.extend_from_slice(&root.spill_segments.bytes);
    if !root.reserved.is_empty() {
        put_varint(&mut out, root.reserved.len() as u64);
        for (space, extent) in &root.reserved {
            put_varint(&mut out, u64::from(space.get()));
            put_extent(Some(*extent), &mut out);
        }
    }
    out
}

fn read_images(reader: &mut Reader<'_>) -> Result<Vec<ImageRecord>, Malformed> {
    let mut images = Vec::new();
    for _ in 0..reader.count(5)? {
        images.push(ImageRecord {
            number: reader.narrow()?,
            image_seq: reader.seq()?,
            extent: read_extent(reader)?.ok_or(Malformed("image extent"))?,
        });
    }
    Ok(images)
}

/// Decodes the body of a root.
///
/// # Errors
/// [`Malformed`] when the bytes are not a root.
pub fn decode_root(body: &[u8]) -> Result<Root, Malformed> {
    let mut reader = Reader::new(body);
    let mut root = Root::default();
    for _ in 0..reader.count(6)? {
        root.spaces.push((read_space(&mut reader)?, reader.narrow()?));
    }
    for _ in 0..reader.count(4)? {
        root.snapshots.push((read_snapshot(&mut reader)?, reader.seq()?));
    }
    for _ in 0..reader.count(3)? {
        root.modifiers.push(read_modifier(&mut reader)?);
    }
    root.nodes = read_images(&mut reader)?;
    root.pages = read_images(&mut reader)?;
    for _ in 0..reader.count(1)? {
        root.condemned.push(reader.narrow()?);
    }
    for _ in 0..reader.count(9)? {
        root.deferred.push((reader.varint()?, reader.u64()?.cast_signed()));
    }
    for _ in 0..reader.count(3)? {
        let (source, clone) = (reader.space()?, reader.space()?);
        root.clones.push(CloneEvent { source, clone, seq: reader.seq()? });
    }
    for _ in 0..reader.count(3)? {
        root.carried.push(CarriedPut {
            barrier: reader.seq()?,
            key: reader.bytes()?.to_vec(),
            operand: reader.bytes()?.to_vec(),
        });
    }
    if !reader.is_empty() {
        root.spill_segments = SpillSegmentList::read(&mut reader)?;
    }
    if !reader.is_empty() {
        for _ in 0..reader.count(4)? {
            root.reserved.push((reader.space()?, read_some_extent(&mut reader)?));
        }
    }
    if reader.is_empty() { Ok(root) } else { Err(Malformed("root end")) }
}

/// Encodes the body of a node.
#[must_use]
pub fn encode_node(level: u8, keys: &[Box<[u8]>], children: &[u32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + 12 * children.len());
    out.push(level);
    put_varint(&mut out, children.len() as u64);
    for (slot, child) in children.iter().enumerate() {
        put_varint(&mut out, u64::from(*child));
        keys.get(slot).iter().for_each(|key| put_bytes(&mut out, key));
    }
    out
}

/// Decodes the body of a node.
///
/// # Errors
/// [`Malformed`] when the bytes are not a node.
pub fn decode_node(body: &[u8]) -> Result<NodeRecord, Malformed> {
    let mut reader = Reader::new(body);
    let mut node = NodeRecord { level: reader.byte()?, ..NodeRecord::default() };
    for _ in 0..reader.count(1)? {
        node.children.push(reader.narrow()?);
        if node.level > 0 {
            node.keys.push(reader.bytes()?.into());
        }
    }
    if reader.is_empty() { Ok(node) } else { Err(Malformed("node end")) }
}

/// Encodes the body of a page of the block table.
#[must_use]
pub fn encode_page(blocks: &[BlockRecord]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + 48 * blocks.len());
    put_varint(&mut out, blocks.len() as u64);
    for block in blocks {
        put_varint(&mut out, u64::from(block.block.number));
        put_varint(&mut out, block.block.birth.get());
        put_bytes(&mut out, &block.key);
        put_placement(&block.placement, &mut out);
    }
    out
}

/// Decodes the body of a page of the block table.
///
/// # Errors
/// [`Malformed`] when the bytes are not a page.
pub fn decode_page(body: &[u8]) -> Result<Vec<BlockRecord>, Malformed> {
    let mut reader = Reader::new(body);
    let mut blocks = Vec::new();
    for _ in 0..reader.count(8)? {
        let block = BlockRef { number: reader.narrow()?, birth: reader.seq()? };
        let key = reader.bytes()?.into();
        blocks.push(BlockRecord { block, key, placement: read_placement(&mut reader)? });
    }
    if reader.is_empty() { Ok(blocks) } else { Err(Malformed("page end")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUPERBLOCK: Superblock = Superblock {
        store: [7; 16],
        generation: 9,
        epoch: 3,
        replay_from: Seq::new(1000),
        root_seq: Seq::new(900),
        next_space: SpaceId::new(5),
        root: None,
        durable: Seq::new(1234),
    };

    #[test]
    fn a_superblock_is_not_read_beyond_its_checksum() {
        let superblock = SUPERBLOCK;
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

    #[test]
    fn a_superblock_of_before_does_not_say_how_much_was_durable() {
        let superblock = SUPERBLOCK;
        let mut slot = encode_superblock(&superblock);
        let length = slot.len() - 8;
        slot.truncate(length);
        slot[24..28].copy_from_slice(&VERSION_WITHOUT_DURABLE.to_le_bytes());
        slot[28..32].copy_from_slice(&(length as u32).to_le_bytes());
        let crc = crc32c::crc32c(&slot[8..]);
        slot[4..8].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode_superblock(&slot), Ok(Superblock { durable: Seq::NONE, ..superblock }));
    }
}
