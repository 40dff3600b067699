//! The work of a spill that needs no engine state: encode its spill segments and build their
//! filters.

use std::sync::Arc;

use crate::device::Buffer;
use crate::engine::format::image_format;
use crate::engine::format::record_format::BlockRef;
use crate::engine::format::spill_segment_format::{
    SpillSegmentRecord, Spilled, encode_spill_segment,
};
use crate::engine::ids::SpaceId;
use crate::engine::io::SpillId;
use crate::engine::queue::{Packed, Waiting};
use crate::engine::spill_segments::{self, Filter};
use crate::log::Seq;
use crate::placement::{Extent, UNIT_BYTES};

/// A spill segment without a place yet: everything that waits for some neighbouring blocks. The
/// fields are those of a [`SpillSegmentRecord`].
pub(in crate::engine) struct NewSpillSegment {
    pub(in crate::engine) space: SpaceId,
    pub(in crate::engine) low: Box<[u8]>,
    pub(in crate::engine) high: Option<Box<[u8]>>,
    pub(in crate::engine) first_seq: Seq,
    pub(in crate::engine) through: Seq,
    /// The blocks whose queues are in it.
    pub(in crate::engine) blocks: Vec<BlockRef>,
    /// Their updates, which the blocks keep in the meantime.
    pub(in crate::engine) frozen: Vec<Arc<Packed>>,
}

impl NewSpillSegment {
    pub(in crate::engine) fn updates(&self) -> u32 {
        self.frozen.iter().map(|packed| packed.count()).sum()
    }

    pub(in crate::engine) fn growth_bytes(&self) -> u64 {
        self.frozen.iter().map(|packed| u64::from(packed.growth_bytes())).sum()
    }

    /// Memory of the updates, in bytes.
    pub(in crate::engine) fn memory_bytes(&self) -> usize {
        self.frozen.iter().map(|packed| packed.memory_bytes()).sum()
    }

    /// Memory that the spill segment will take, in bytes.
    pub(in crate::engine) fn spill_segment_memory_bytes(&self) -> usize {
        spill_segments::memory_bytes_with(&self.low, self.high.as_deref(), self.updates())
    }

    /// The spill segment, which now has a place.
    pub(in crate::engine) fn placed(self, extent: Extent) -> Spilled {
        let (updates, growth_bytes) = (self.updates(), self.growth_bytes());
        let Self { space, low, high, first_seq, through, blocks, .. } = self;
        let record = SpillSegmentRecord {
            space,
            low,
            high,
            first_seq,
            through,
            updates,
            growth_bytes,
            extent,
        };
        Spilled { record, blocks }
    }

    fn filter(&self) -> Filter {
        let waiting: Vec<_> = self.frozen.iter().map(|packed| packed.unpack()).collect();
        let updates = waiting.iter().flat_map(Waiting::updates);
        Filter::new(self.updates() as usize, updates.map(|update| update.key))
    }
}

/// The work of a spill: [`SpillJob::work_off`] does it.
pub struct SpillJob {
    pub(in crate::engine) spill: SpillId,
    pub(in crate::engine) store: [u8; 16],
    pub(in crate::engine) spill_segments: Vec<NewSpillSegment>,
}

/// An encoded spill segment.
pub(in crate::engine) struct Encoded {
    pub(in crate::engine) segment: NewSpillSegment,
    pub(in crate::engine) filter: Filter,
    /// Length of its image, in whole units.
    pub(in crate::engine) bytes: u32,
}

/// The result of a [`SpillJob`].
pub struct SpillOutput {
    pub(in crate::engine) spill: SpillId,
    pub(in crate::engine) spill_segments: Vec<Encoded>,
    /// Their images one after another.
    pub(in crate::engine) buffer: Buffer,
}

impl SpillJob {
    /// Bytes of the updates.
    pub(in crate::engine) fn bytes(&self) -> usize {
        self.spill_segments.iter().map(NewSpillSegment::memory_bytes).sum()
    }

    /// Does the work. Yields before each spill segment.
    pub(in crate::engine) fn work_off(self, give_way: fn()) -> SpillOutput {
        let mut bodies = Vec::with_capacity(self.spill_segments.len());
        let mut spill_segments = Vec::with_capacity(self.spill_segments.len());
        for segment in self.spill_segments {
            give_way();
            let body =
                encode_spill_segment(segment.frozen.iter().map(|packed| packed.as_section()));
            let bytes = image_format::image_bytes(&segment.low, body.len());
            let bytes = bytes.next_multiple_of(UNIT_BYTES as usize);
            let bytes = u32::try_from(bytes).expect("a spill segment is below 4 GiB");
            let filter = segment.filter();
            bodies.push(body);
            spill_segments.push(Encoded { segment, filter, bytes });
        }
        let total = spill_segments.iter().map(|segment| segment.bytes as usize).sum();
        let mut buffer = Buffer::recycled(total);
        let mut at = 0;
        for (Encoded { segment, bytes, .. }, body) in spill_segments.iter().zip(&bodies) {
            let NewSpillSegment { space, low, through, .. } = segment;
            let identity = spill_segments::identity_of(self.store, *space, low, *through);
            let end = at + *bytes as usize;
            image_format::encode(&identity, body, &mut buffer[at..end]);
            at = end;
        }
        SpillOutput { spill: self.spill, spill_segments, buffer }
    }
}
