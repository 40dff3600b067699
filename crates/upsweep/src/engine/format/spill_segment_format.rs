//! Spill segments: waiting updates that were spilled to a data device, and the records that
//! describe them.
//!
//! The body of a spill segment is the tails of keys that its updates refer to (see
//! `queue/tails.rs`), the number of its *sections* (4 bytes), the offset of each of them in the
//! body (4 bytes), and the sections, in key order. A section is the queue of one block as it was in
//! memory: the key of the block, the first sequence, the number of updates, how much the block
//! grows if each makes a record, and the packed updates (see `queue/entry.rs`).
//!
//! A *spill segment record*, in the log and in the checkpoint root, is the form of the spill
//! segment, a space, the first key, 0, or 1 and the first key beyond, the sequence of the oldest
//! update, the distance from there to the sequence up to which the spill segment is complete, the
//! number of updates, the sum of growth, and the extent. The form is in the record, not in the
//! spill segment, so that a store with spill segments of an unknown form does not open: they are
//! not damaged.

use super::FIRST_USER_SPACE;
use super::codec_format::{Malformed, Reader, put_bytes, put_u32, put_varint};
use super::record_format::{BlockRef, put_block_ref, put_extent, read_block_ref, read_extent};
use crate::engine::ids::SpaceId;
use crate::engine::queue::{Section, TailTable};
use crate::log::Seq;
use crate::placement::Extent;

/// The form of spill segments. Records from before tails existed begin with their space, whose
/// number is greater.
const FORM: u8 = 2;
const _: () =
    assert!((FORM as u32) < FIRST_USER_SPACE.get(), "spill segments have updates of users' spaces");

/// The record of a spill segment in the log and the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillSegmentRecord {
    /// The space of the updates.
    pub space: SpaceId,
    /// The first key that it covers.
    pub low: Box<[u8]>,
    /// The first key beyond; `None` for no bound.
    pub high: Option<Box<[u8]>>,
    /// Sequence of its oldest update.
    pub first_seq: Seq,
    /// Every update of its keys up to this sequence is in it, in an older one, or in an image.
    pub through: Seq,
    /// Number of updates.
    pub updates: u32,
    /// Approximately how much the blocks grow if every update makes a record.
    pub growth_bytes: u64,
    /// Its place.
    pub extent: Extent,
}

/// A new spill segment, and the blocks whose queues are in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spilled {
    /// The spill segment.
    pub record: SpillSegmentRecord,
    /// The blocks.
    pub blocks: Vec<BlockRef>,
}

pub(super) fn put_spill_segment(record: &SpillSegmentRecord, out: &mut Vec<u8>) {
    out.push(FORM);
    put_varint(out, u64::from(record.space.get()));
    put_bytes(out, &record.low);
    out.push(u8::from(record.high.is_some()));
    record.high.iter().for_each(|high| put_bytes(out, high));
    put_varint(out, record.first_seq.get());
    put_varint(out, record.through.since(record.first_seq));
    put_varint(out, u64::from(record.updates));
    put_varint(out, record.growth_bytes);
    put_extent(Some(record.extent), out);
}

pub(super) fn read_spill_segment(reader: &mut Reader<'_>) -> Result<SpillSegmentRecord, Malformed> {
    if reader.byte()? != FORM {
        return Err(Malformed("form of a spill segment"));
    }
    let (space, low) = (reader.space()?, reader.bytes()?.into());
    let high = match reader.byte()? {
        0 => None,
        1 => Some(reader.bytes()?.into()),
        _ => return Err(Malformed("spill segment")),
    };
    let first_seq = reader.seq()?;
    let through =
        first_seq.checked_plus(reader.varint()?).ok_or(Malformed("spill segment sequence"))?;
    let (updates, growth_bytes) = (reader.narrow()?, reader.varint()?);
    let extent = read_extent(reader)?.ok_or(Malformed("spill segment extent"))?;
    Ok(SpillSegmentRecord { space, low, high, first_seq, through, updates, growth_bytes, extent })
}

pub(super) fn put_spilled(spilled: &Spilled, out: &mut Vec<u8>) {
    put_spill_segment(&spilled.record, out);
    put_varint(out, spilled.blocks.len() as u64);
    spilled.blocks.iter().for_each(|block| put_block_ref(*block, out));
}

pub(super) fn read_spilled(reader: &mut Reader<'_>) -> Result<Spilled, Malformed> {
    let record = read_spill_segment(reader)?;
    let mut blocks = Vec::new();
    for _ in 0..reader.count(2)? {
        blocks.push(read_block_ref(reader)?);
    }
    Ok(Spilled { record, blocks })
}

/// Encodes the body of a spill segment. The sections are of one arena, or of one spill segment: the
/// tails of one are a prefix of those of another.
pub fn encode_spill_segment<'a>(
    sections: impl ExactSizeIterator<Item = Section<'a>> + Clone,
) -> Vec<u8> {
    let count = sections.len();
    let narrow = |number: usize| u32::try_from(number).expect("a spill segment is below 4 GiB");
    let all = sections.clone().map(|section| section.tails());
    let tails = all.max_by_key(TailTable::count).unwrap_or_default();
    let bytes: usize = sections.clone().map(|section| section.encoded_bytes()).sum();
    let mut out = Vec::new();
    tails.encode(&mut out);
    let body_bytes = out.len() + size_of::<u32>() + OFFSET_BYTES * count + bytes;
    out.reserve_exact(body_bytes - out.len());
    put_u32(&mut out, narrow(count));
    let mut offset_at = out.len();
    out.resize(offset_at + OFFSET_BYTES * count, 0);
    for section in sections {
        debug_assert!(section.tails().begins(&tails), "a section of another arena");
        let offset = narrow(out.len()).to_le_bytes();
        out[offset_at..][..OFFSET_BYTES].copy_from_slice(&offset);
        offset_at += OFFSET_BYTES;
        section.encode(&mut out);
    }
    debug_assert_eq!(out.len(), body_bytes, "it has its length from the beginning");
    out
}

const OFFSET_BYTES: usize = 4;

/// The sections of a spill segment. Only requested ones are read.
#[derive(Clone, Copy, Debug)]
pub struct Sections<'a> {
    body: &'a [u8],
    tails: TailTable<'a>,
    /// Offset of each section in the body.
    offsets: &'a [u8],
}

impl<'a> Sections<'a> {
    /// The sections in the body of a spill segment.
    ///
    /// # Errors
    /// [`Malformed`] when the body has no table of tails, or is too short for its sections.
    pub fn of(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let tails = TailTable::read(&mut reader)?;
        let count = reader.u32()? as usize;
        let offsets = reader.take(count.saturating_mul(OFFSET_BYTES))?;
        Ok(Self { body, tails, offsets })
    }

    /// The tails of keys that updates refer to.
    #[must_use]
    pub fn tails(&self) -> TailTable<'a> {
        self.tails
    }

    /// Number of sections.
    #[must_use]
    pub fn count(&self) -> usize {
        self.offsets.len() / OFFSET_BYTES
    }

    /// One section; its updates are not examined.
    ///
    /// # Errors
    /// [`Malformed`] when there is none.
    pub fn get(&self, index: usize) -> Result<Section<'a>, Malformed> {
        let mut offsets = Reader::new(self.offsets);
        offsets.take(OFFSET_BYTES * index)?;
        let rest = self.body.get(offsets.u32()? as usize..).ok_or(Malformed("section offset"))?;
        Section::read(&mut Reader::new(rest), self.tails)
    }

    /// How many sections begin at or below this key.
    ///
    /// # Errors
    /// [`Malformed`] when one of those that are read is malformed.
    pub fn begin_at_or_below(&self, key: &[u8]) -> Result<usize, Malformed> {
        let (mut low, mut high) = (0, self.count());
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::block_format::UpdateRef;
    use crate::engine::queue::{Arena, Packed, Queue};
    use crate::engine::registry::{DELETE_RANGE, ModifierId, Modifiers};

    /// The queues of some blocks, whose keys have common endings.
    fn queues() -> Vec<Packed> {
        let mut arena = Arena::new(1 << 20, 1 << 20);
        let mut seq = Seq::NONE;
        let mut queue = |block: u8| {
            let mut queue = Queue::default();
            let tails = [&b" and an end"[..], b": the number of all things", &[b'.'; 300]];
            // Blocks are frozen while the arena is still learning.
            for tail in &tails[..=usize::from(block) / 2] {
                for number in 0..5u8 {
                    seq = seq.next();
                    let key = [&[block, number, number * 7, 1, 2, 3, 4, 5][..], tail].concat();
                    let (modifier, operand) = (ModifierId(2), &[number, 0, 0][..]);
                    let update = UpdateRef { seq, modifier, key: &key, operand };
                    arena.push(&mut queue, &[block], &update, &Modifiers::default());
                }
            }
            arena.snapshot(&queue, &[block])
        };
        (0..6).map(&mut queue).collect()
    }

    #[test]
    fn a_spill_segment_needs_nothing_but_itself() {
        let queues = queues();
        let body = encode_spill_segment(queues.iter().map(Packed::as_section));
        let sections = Sections::of(&body).expect("it was just encoded");
        assert_eq!(sections.count(), queues.len());
        for (index, packed) in queues.iter().enumerate() {
            let section = sections.get(index).and_then(Section::check).expect("it is sound");
            assert_eq!(section.tails().count(), 3);
            assert_eq!(section.unpack(), packed.unpack());
            for update in packed.unpack().updates() {
                assert_eq!(section.of_key(update.key).count(), 1);
            }
        }
        let text = |tail: &[u8]| body.windows(tail.len()).filter(|found| *found == tail).count();
        // In the first of the keys, and in the table.
        assert_eq!(text(b": the number of all things"), 2);
    }

    #[test]
    fn records_of_spill_segments_of_another_form_are_refused() {
        let extent = Extent { device: crate::device::DeviceId(0), offset: 1 << 14, bytes: 4096 };
        let record = SpillSegmentRecord {
            space: FIRST_USER_SPACE,
            low: b"low".as_slice().into(),
            high: None,
            first_seq: Seq::new(7),
            through: Seq::new(9),
            updates: 3,
            growth_bytes: 60,
            extent,
        };
        let mut bytes = Vec::new();
        put_spill_segment(&record, &mut bytes);
        assert_eq!(read_spill_segment(&mut Reader::new(&bytes)), Ok(record));
        let earlier = &bytes[1..];
        assert_eq!(
            read_spill_segment(&mut Reader::new(earlier)),
            Err(Malformed("form of a spill segment"))
        );
    }

    proptest! {
        #[test]
        fn a_spill_segment_that_is_changed_is_survived(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let queues = queues();
            let mut body = encode_spill_segment(queues.iter().map(Packed::as_section));
            changes.iter().for_each(|(at, byte)| *at.get_mut(&mut body) = *byte);
            let Ok(sections) = Sections::of(&body) else { return Ok(()) };
            for index in 0..sections.count().min(10) {
                let Ok(section) = sections.get(index).and_then(Section::check) else { continue };
                for update in section.unpack().updates() {
                    prop_assert!(update.key.len() <= crate::engine::config::KEY_BYTES_MAX);
                    let is_range = update.modifier == DELETE_RANGE;
                    prop_assert!(is_range || section.of_key(update.key).count() > 0);
                }
            }
        }
    }
}
