//! Bundles: waiting updates that were spilled to a data device, and the records that tell of them.
//!
//! The body of a bundle is the number of its *sections* (4 bytes), where each of them begins in the
//! body (4 bytes), and the sections, in the order of their keys. A section is the queue of one
//! block as it was in memory: the key of the block, the first sequence, the number of updates, how
//! much the block grows if each makes a record, and the packed updates (see `queue/entry.rs`).
//!
//! A *bundle record*, in the log and in the checkpoint root, is a space, the first key, 0, or 1 and
//! the first key beyond, the sequence of the oldest update, the distance from there to the sequence
//! through which the bundle has them all, the number of updates, the sum of growth, and the extent.

use super::codec_format::{Malformed, Reader, put_bytes, put_varint};
use super::record_format::{BlockRef, put_block_ref, put_extent, read_block_ref, read_extent};
use crate::engine::queue::Section;
use crate::placement::Extent;

/// What the log and the checkpoint say of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleRecord {
    /// The space whose updates they are.
    pub space: u32,
    /// Where the keys begin that it covers.
    pub low: Box<[u8]>,
    /// Where they end; `None` for no bound.
    pub high: Option<Box<[u8]>>,
    /// Sequence of its oldest update.
    pub first_seq: u64,
    /// Every update of its keys up to this sequence is in it, in an older one, or in an image.
    pub through: u64,
    /// Number of updates.
    pub updates: u32,
    /// How much the blocks grow if every update makes a record, about.
    pub growth_bytes: u64,
    /// Where it is.
    pub extent: Extent,
}

/// A bundle that comes into being, and the blocks whose queues are in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spilled {
    /// The bundle.
    pub record: BundleRecord,
    /// The blocks.
    pub blocks: Vec<BlockRef>,
}

pub(super) fn put_bundle(record: &BundleRecord, out: &mut Vec<u8>) {
    put_varint(out, u64::from(record.space));
    put_bytes(out, &record.low);
    out.push(u8::from(record.high.is_some()));
    record.high.iter().for_each(|high| put_bytes(out, high));
    put_varint(out, record.first_seq);
    put_varint(out, record.through - record.first_seq);
    put_varint(out, u64::from(record.updates));
    put_varint(out, record.growth_bytes);
    put_extent(Some(record.extent), out);
}

pub(super) fn read_bundle(reader: &mut Reader<'_>) -> Result<BundleRecord, Malformed> {
    let (space, low) = (reader.narrow()?, reader.bytes()?.into());
    let high = match reader.byte()? {
        0 => None,
        1 => Some(reader.bytes()?.into()),
        _ => return Err(Malformed("bundle")),
    };
    let first_seq = reader.varint()?;
    let through = first_seq.checked_add(reader.varint()?).ok_or(Malformed("bundle sequence"))?;
    let (updates, growth_bytes) = (reader.narrow()?, reader.varint()?);
    let extent = read_extent(reader)?.ok_or(Malformed("bundle extent"))?;
    Ok(BundleRecord { space, low, high, first_seq, through, updates, growth_bytes, extent })
}

pub(super) fn put_spilled(spilled: &Spilled, out: &mut Vec<u8>) {
    put_bundle(&spilled.record, out);
    put_varint(out, spilled.blocks.len() as u64);
    spilled.blocks.iter().for_each(|block| put_block_ref(*block, out));
}

pub(super) fn read_spilled(reader: &mut Reader<'_>) -> Result<Spilled, Malformed> {
    let record = read_bundle(reader)?;
    let mut blocks = Vec::new();
    for _ in 0..reader.count(2)? {
        blocks.push(read_block_ref(reader)?);
    }
    Ok(Spilled { record, blocks })
}

/// Encodes the body of a bundle.
pub fn encode_bundle<'a>(sections: impl ExactSizeIterator<Item = Section<'a>>) -> Vec<u8> {
    let count = sections.len();
    let narrow = |number: usize| u32::try_from(number).expect("a bundle is below 4 GiB");
    let mut out = vec![0; OFFSET_BYTES * (count + 1)];
    out[..OFFSET_BYTES].copy_from_slice(&narrow(count).to_le_bytes());
    for (index, section) in sections.enumerate() {
        let offset = narrow(out.len()).to_le_bytes();
        out[OFFSET_BYTES * (index + 1)..][..OFFSET_BYTES].copy_from_slice(&offset);
        section.encode(&mut out);
    }
    out
}

const OFFSET_BYTES: usize = 4;

/// The sections of a bundle. Only those that are asked for are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Sections<'a> {
    body: &'a [u8],
    count: usize,
}

impl<'a> Sections<'a> {
    /// The sections in the body of a bundle.
    ///
    /// # Errors
    /// [`Malformed`] when the body is too short for its number of sections.
    pub fn of(body: &'a [u8]) -> Result<Self, Malformed> {
        let count = Reader::new(body).u32()? as usize;
        let is_there = body.len() / OFFSET_BYTES > count;
        if is_there { Ok(Self { body, count }) } else { Err(Malformed("number of sections")) }
    }

    /// Number of sections.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// One section; its updates are not looked at.
    ///
    /// # Errors
    /// [`Malformed`] when there is none.
    pub fn get(&self, index: usize) -> Result<Section<'a>, Malformed> {
        let mut offsets = Reader::new(self.body);
        offsets.take(OFFSET_BYTES * (index + 1))?;
        let rest = self.body.get(offsets.u32()? as usize..).ok_or(Malformed("section offset"))?;
        Section::read(&mut Reader::new(rest))
    }

    /// How many sections begin at or below this key.
    ///
    /// # Errors
    /// [`Malformed`] when one of those that are looked at is none.
    pub fn begin_at_or_below(&self, key: &[u8]) -> Result<usize, Malformed> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle)?.low() <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}
