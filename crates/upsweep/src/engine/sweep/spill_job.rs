//! The work of a spill that needs no engine state: encode its bundles, and note their keys.

use std::sync::Arc;

use super::SpillId;
use crate::device::Buffer;
use crate::engine::bundles::{self, Filter};
use crate::engine::format::bundle_format::{BundleRecord, Spilled, encode_bundle};
use crate::engine::format::image_format;
use crate::engine::format::record_format::BlockRef;
use crate::engine::queue::{Packed, Waiting};
use crate::placement::{Extent, UNIT_BYTES};

/// A bundle that has no place yet: all that waits for some neighbouring blocks. The fields are
/// those of a [`BundleRecord`].
pub(super) struct NewBundle {
    pub(super) space: u32,
    pub(super) low: Box<[u8]>,
    pub(super) high: Option<Box<[u8]>>,
    pub(super) first_seq: u64,
    pub(super) through: u64,
    /// The blocks whose queues are in it.
    pub(super) blocks: Vec<BlockRef>,
    /// Their updates, which the blocks keep meanwhile.
    pub(super) frozen: Vec<Arc<Packed>>,
}

impl NewBundle {
    pub(super) fn updates(&self) -> u32 {
        self.frozen.iter().map(|packed| packed.count()).sum()
    }

    pub(super) fn growth_bytes(&self) -> u64 {
        self.frozen.iter().map(|packed| u64::from(packed.growth_bytes())).sum()
    }

    /// Memory of the updates, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.frozen.iter().map(|packed| packed.memory_bytes()).sum()
    }

    /// Memory that the bundle will take, in bytes.
    pub(super) fn bundle_memory_bytes(&self) -> usize {
        bundles::memory_bytes_with(&self.low, self.high.as_deref(), self.updates())
    }

    /// The bundle, which now has a place.
    pub(super) fn placed(self, extent: Extent) -> Spilled {
        let (updates, growth_bytes) = (self.updates(), self.growth_bytes());
        let Self { space, low, high, first_seq, through, blocks, .. } = self;
        let record =
            BundleRecord { space, low, high, first_seq, through, updates, growth_bytes, extent };
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
    pub(super) spill: SpillId,
    pub(super) store: [u8; 16],
    pub(super) bundles: Vec<NewBundle>,
}

/// A bundle that is encoded.
pub(super) struct Encoded {
    pub(super) bundle: NewBundle,
    pub(super) filter: Filter,
    /// Length of its image, in whole units.
    pub(super) bytes: u32,
}

/// What came of a [`SpillJob`].
pub struct SpillOutput {
    pub(super) spill: SpillId,
    pub(super) bundles: Vec<Encoded>,
    /// Their images one after another.
    pub(super) buffer: Buffer,
}

impl SpillJob {
    /// Bytes of the updates.
    pub(super) fn bytes(&self) -> usize {
        self.bundles.iter().map(NewBundle::memory_bytes).sum()
    }

    /// Does the work. Gives way before each bundle.
    pub(super) fn work_off(self, give_way: fn()) -> SpillOutput {
        let mut bodies = Vec::with_capacity(self.bundles.len());
        let mut bundles = Vec::with_capacity(self.bundles.len());
        for bundle in self.bundles {
            give_way();
            let body = encode_bundle(bundle.frozen.iter().map(|packed| packed.as_section()));
            let bytes = image_format::image_bytes(&bundle.low, body.len());
            let bytes = bytes.next_multiple_of(UNIT_BYTES as usize);
            let bytes = u32::try_from(bytes).expect("a bundle is below 4 GiB");
            let filter = bundle.filter();
            bodies.push(body);
            bundles.push(Encoded { bundle, filter, bytes });
        }
        let total = bundles.iter().map(|bundle| bundle.bytes as usize).sum();
        let mut buffer = Buffer::recycled(total);
        let mut at = 0;
        for (Encoded { bundle, bytes, .. }, body) in bundles.iter().zip(&bodies) {
            let NewBundle { space, low, through, .. } = bundle;
            let identity = bundles::identity_of(self.store, *space, low, *through);
            let end = at + *bytes as usize;
            image_format::encode(&identity, body, &mut buffer[at..end]);
            at = end;
        }
        SpillOutput { spill: self.spill, bundles, buffer }
    }
}
