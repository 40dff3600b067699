//! The block table: everything that is known about every block, by number.
//!
//! Trees refer to blocks by number and this table holds their places, so a block that moves changes
//! its page of the table and no tree. A page is the unit of the checkpoint.
//!
//! Invariants: the lowest free number is assigned first, so that equal histories give equal
//! numbers; a reused number has another birth.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::format::checkpoint_format::{BlockRecord, encode_page};
use super::format::record_format::{BlockRef, Placement};
use super::ids::SpaceId;
use super::key::BlockKey;
use super::queue::{Packed, Queue};
use super::tree::{Changes, Items};
use super::versions::Versions;
use crate::device::DeviceId;
use crate::log::Seq;
use crate::placement::{DEVICE_BYTES_MAX, DEVICES_MAX, Extent, UNIT_BYTES};

/// Number of a block; reused after the block is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub(super) u32);

/// Blocks of a page of the table.
const PAGE_BLOCKS: u32 = 64;

/// Everything that is known about one block.
#[derive(Debug, Default)]
pub struct Block {
    /// Sequence at which it got its number; [`Seq::NONE`] if the number is not in use.
    pub birth: Seq,
    /// A space that has it, as far as is known: others may share it, and this one may be gone.
    pub space: SpaceId,
    /// Its key: the lower bound of what it covers, or its exact key.
    pub key: BlockKey,
    place: Place,
    /// Waiting updates, for all spaces that share it.
    pub queue: Queue,
    /// Updates that a running sweep is applying; older than those in `queue`.
    pub frozen: Option<Arc<Packed>>,
    /// Whether a run is working on it.
    pub pinned: bool,
    /// Bytes of its image if that was copied from another block and is still shared with it.
    pub copied_bytes: u32,
    /// Number of its updates in spill segments.
    pub spilled: u32,
}

const _: () = assert!(size_of::<Block>() == 112, "a directory has many blocks");

impl Block {
    /// Its place, and figures of its content.
    #[must_use]
    #[inline]
    pub fn placement(&self) -> Placement {
        self.place.unpack()
    }

    /// The place of its image, if it has one.
    #[must_use]
    #[inline]
    pub fn extent(&self) -> Option<Extent> {
        unpack_extent(self.place.extent)
    }

    /// Whether any update waits for a sweep that has not begun.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    fn record(&self, number: u32) -> BlockRecord {
        let block = BlockRef { number, birth: self.birth };
        BlockRecord { block, key: (*self.key).into(), placement: self.placement() }
    }
}

/// A [`Placement`] in half the bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    frontier: Seq,
    image_seq: Seq,
    /// See [`pack_extent`].
    extent: u64,
    image_space: SpaceId,
    records: u32,
}

impl Place {
    fn pack(placement: Placement) -> Self {
        let Placement { frontier, image_seq, image_space, records, extent } = placement;
        Self { frontier, image_seq, extent: pack_extent(extent), image_space, records }
    }

    fn unpack(self) -> Placement {
        let Self { frontier, image_seq, extent, image_space, records } = self;
        Placement { frontier, image_seq, image_space, records, extent: unpack_extent(extent) }
    }
}

/// Bits of the length of an extent in units, and of the number of its device; the other 34 are the
/// offset in units.
const LENGTH_BITS: u32 = 20;
const DEVICE_BITS: u32 = DEVICES_MAX.ilog2();
const _: () = assert!(
    u32::MAX as u64 / UNIT_BYTES < 1 << LENGTH_BITS
        && DEVICE_BYTES_MAX / UNIT_BYTES <= 1 << (u64::BITS - LENGTH_BITS - DEVICE_BITS),
    "every extent has its own number"
);

/// An extent in 8 bytes; 0 is none, because no image is empty.
fn pack_extent(extent: Option<Extent>) -> u64 {
    let Some(extent) = extent else { return 0 };
    assert!(extent.is_in_bounds(), "the map of free space and the decoders have no others");
    let Extent { device, offset, bytes } = extent;
    let length = u64::from(bytes) / UNIT_BYTES;
    (offset / UNIT_BYTES) << (DEVICE_BITS + LENGTH_BITS)
        | u64::from(device.0) << LENGTH_BITS
        | length
}

fn unpack_extent(packed: u64) -> Option<Extent> {
    let length = packed & ((1 << LENGTH_BITS) - 1);
    let device = packed >> LENGTH_BITS & ((1 << DEVICE_BITS) - 1);
    (length > 0).then(|| Extent {
        device: DeviceId(device as u16),
        offset: (packed >> (DEVICE_BITS + LENGTH_BITS)) * UNIT_BYTES,
        bytes: (length * UNIT_BYTES) as u32,
    })
}

/// All blocks.
#[derive(Default)]
pub struct BlockTable {
    /// One allocation per page of the table, so that nothing is moved and nothing is spare.
    pages: Vec<Box<[Block]>>,
    /// Numbers assigned so far.
    numbers: u32,
    unused: BTreeSet<u32>,
    key_bytes: usize,
    key_heap_bytes: usize,
    changes: Changes,
    versions: Arc<Versions>,
}

impl Items for BlockTable {
    fn key(&self, item: u32) -> &[u8] {
        &self.get(BlockId(item)).key
    }
}

impl BlockTable {
    /// The block with this number.
    #[must_use]
    #[inline]
    pub fn get(&self, id: BlockId) -> &Block {
        &self.pages[(id.0 / PAGE_BLOCKS) as usize][(id.0 % PAGE_BLOCKS) as usize]
    }

    /// The block with this number, for changes to its queue only. [`BlockTable::place`] changes its
    /// placement.
    pub fn get_mut(&mut self, id: BlockId) -> &mut Block {
        self.versions.change(id.0);
        &mut self.pages[(id.0 / PAGE_BLOCKS) as usize][(id.0 % PAGE_BLOCKS) as usize]
    }

    /// The versions of blocks, and of everything else.
    #[must_use]
    pub fn versions(&self) -> &Arc<Versions> {
        &self.versions
    }

    /// The permanent identity of the block.
    #[must_use]
    pub fn reference(&self, id: BlockId) -> BlockRef {
        BlockRef { number: id.0, birth: self.get(id).birth }
    }

    /// The identified block, if it still exists.
    #[must_use]
    pub fn find(&self, block: BlockRef) -> Option<BlockId> {
        let id = BlockId(block.number);
        (block.number < self.numbers && self.get(id).birth == block.birth).then_some(id)
    }

    /// All blocks in the order of their numbers from `start` on, unused numbers included.
    pub fn from(&self, start: u32) -> impl Iterator<Item = &Block> {
        (start..self.numbers).map(|number| self.get(BlockId(number)))
    }

    /// All numbers that are in use.
    pub fn ids(&self) -> impl Iterator<Item = BlockId> + '_ {
        (0..self.numbers).map(BlockId).filter(|id| self.get(*id).birth > Seq::NONE)
    }

    /// All numbers ever assigned are below this one.
    #[must_use]
    pub fn numbers(&self) -> u32 {
        self.numbers
    }

    /// Number of blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers as usize - self.unused.len()
    }

    /// Number of pages, empty ones included.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Bytes of the keys of all blocks.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let page = PAGE_BLOCKS as usize * size_of::<Block>() + size_of::<Box<[Block]>>();
        self.pages.len() * page + self.key_heap_bytes
    }

    /// Which pages differ from their images.
    pub fn changes(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// Adds a block that is in no tree yet.
    pub fn add(&mut self, space: SpaceId, key: &[u8], birth: Seq, placement: Placement) -> BlockId {
        let number = self.unused.first().copied().unwrap_or(self.numbers);
        let (key, place) = (BlockKey::from(key), Place::pack(placement));
        self.put(number, Block { birth, space, key, place, ..Block::default() })
    }

    /// Restores a block from a checkpoint.
    pub fn restore(&mut self, record: BlockRecord) -> BlockId {
        let BlockRecord { block, key, placement } = record;
        let (key, place) = (BlockKey::from(&*key), Place::pack(placement));
        self.put(block.number, Block { birth: block.birth, key, place, ..Block::default() })
    }

    fn put(&mut self, number: u32, block: Block) -> BlockId {
        while self.numbers <= number {
            if self.numbers.is_multiple_of(PAGE_BLOCKS) {
                self.pages.push((0..PAGE_BLOCKS).map(|_| Block::default()).collect());
            }
            self.unused.insert(self.numbers);
            self.numbers = self.numbers.checked_add(1).expect("fewer than 2^32 blocks");
        }
        let id = BlockId(number);
        self.touch(id);
        self.unused.remove(&number);
        self.key_bytes += block.key.len();
        self.key_heap_bytes += block.key.heap_bytes();
        *self.get_mut(id) = block;
        id
    }

    /// Frees a number, and returns its block.
    pub fn remove(&mut self, id: BlockId) -> Block {
        self.touch(id);
        let block = std::mem::take(self.get_mut(id));
        self.key_bytes -= block.key.len();
        self.key_heap_bytes -= block.key.heap_bytes();
        self.unused.insert(id.0);
        block
    }

    /// Sets the place of a block, and returns the previous one.
    pub fn place(&mut self, id: BlockId, placement: Placement) -> Placement {
        self.touch(id);
        std::mem::replace(&mut self.get_mut(id).place, Place::pack(placement)).unpack()
    }

    fn touch(&mut self, id: BlockId) {
        let page = id.0 / PAGE_BLOCKS;
        let pages = &self.pages;
        self.changes.touch(page, || encode_page(&records(pages, page)));
    }

    /// The body of the image of a page.
    #[must_use]
    pub fn encode_page(&self, page: u32) -> Vec<u8> {
        encode_page(&records(&self.pages, page))
    }
}

fn records(pages: &[Box<[Block]>], page: u32) -> Vec<BlockRecord> {
    let numbers = page * PAGE_BLOCKS..;
    let blocks = numbers.zip(&pages[page as usize]).filter(|(_, block)| block.birth > Seq::NONE);
    blocks.map(|(number, block)| block.record(number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::format::checkpoint_format::decode_page;

    #[test]
    fn extents_up_to_the_bounds_come_back() {
        let unit = UNIT_BYTES as u32;
        for device in [0, 1, DEVICES_MAX - 1].map(DeviceId) {
            for bytes in [unit, 2 * unit, u32::MAX - (unit - 1)] {
                for offset in [0, UNIT_BYTES, DEVICE_BYTES_MAX - u64::from(bytes)] {
                    let extent = Extent { device, offset, bytes };
                    assert!(extent.is_in_bounds());
                    assert_eq!(unpack_extent(pack_extent(Some(extent))), Some(extent));
                }
            }
        }
        assert_eq!(unpack_extent(pack_extent(None)), None);
    }

    #[test]
    fn the_lowest_free_number_is_given_next_and_its_birth_tells_who_has_it() {
        let mut table = BlockTable::default();
        let add = |table: &mut BlockTable, key: &[u8], birth| {
            table.add(SpaceId::new(1000), key, birth, Placement::default())
        };
        let ids = [1, 2, 3].map(|birth| add(&mut table, b"a key", Seq::new(birth)));
        assert_eq!(ids.map(|id| id.0), [0, 1, 2]);
        let gone = table.reference(ids[0]);
        assert_eq!(table.remove(ids[1]).birth, Seq::new(2));
        table.remove(ids[0]);
        assert_eq!(table.find(gone), None);
        assert_eq!(add(&mut table, b"another", Seq::new(9)), ids[0]);
        assert_eq!(table.find(gone), None, "the number is used again, the birth is not");
        assert_eq!(table.find(BlockRef { birth: Seq::new(9), ..gone }), Some(ids[0]));
        assert_eq!((table.len(), table.key_bytes()), (2, 7 + 5));
    }

    #[test]
    fn a_page_comes_back_with_all_blocks_of_it_and_is_written_again_when_one_changes() {
        let mut table = BlockTable::default();
        for birth in 1..=100u64 {
            table.add(SpaceId::new(1000), &[birth as u8], Seq::new(birth), Placement::default());
        }
        assert_eq!(table.pages(), 2);
        let pages = [0, 1].map(|page| table.encode_page(page));
        let mut restored = BlockTable::default();
        for page in &pages {
            let records = decode_page(page);
            for record in records.expect("as it was encoded") {
                restored.restore(record);
            }
        }
        assert_eq!([0, 1].map(|page| restored.encode_page(page)), pages);
        assert_eq!((restored.len(), restored.get(BlockId(70)).birth), (100, Seq::new(71)));
        table.changes().mark_clean();
        let placement =
            Placement { frontier: Seq::new(5), image_seq: Seq::new(5), ..Placement::default() };
        assert_eq!(table.place(BlockId(70), placement), Placement::default());
        table.changes().begin_checkpoint();
        assert_eq!(table.changes().next_unwritten(), Some(1), "the page of the block");
        assert_eq!(table.changes().next_unwritten(), None);
    }
}
