//! The block table: everything that is known of every block, by number.
//!
//! Trees name blocks by number and this table says where they are, so that a block that moves
//! changes its page of the table and no tree. A page is the unit of the checkpoint.
//!
//! Invariants: a number is given out lowest first, so that equal histories give equal numbers; a
//! number that is used again has another birth.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::format::checkpoint_format::{BlockRecord, encode_page};
use super::format::record_format::{BlockRef, Placement};
use super::queue::{Queue, Waiting};
use super::tree::{Changes, Items};

/// Number of a block; reused after the block is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub(super) u32);

/// Blocks of a page of the table.
const PAGE_BLOCKS: u32 = 64;

/// What an allocator adds to a short key.
const KEY_OVERHEAD_BYTES: usize = 24;

/// Everything that is known of one block.
#[derive(Debug, Default)]
pub struct Block {
    /// Sequence at which it got its number; 0 if the number is not in use.
    pub birth: u64,
    /// A space that has it, as far as is known: others may share it, and this one may have gone.
    pub space: u32,
    /// Its key: the lower bound of what it covers, or its exact key.
    pub key: Box<[u8]>,
    /// Where it is, and what is in it.
    pub placement: Placement,
    /// Updates that wait, for all spaces that share it.
    pub queue: Queue,
    /// Updates that a running sweep is applying; older than those in `queue`.
    pub frozen: Option<Arc<Waiting>>,
    /// Whether a run has it in hand.
    pub busy: bool,
    /// Bytes of its image if that was copied from another block and is still shared with it.
    pub copied_bytes: u32,
}

impl Block {
    /// Whether any update waits for a sweep that has not begun.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Sequence of the oldest update that is not inside a published image; `None` if there is none.
    #[must_use]
    pub fn oldest_waiting(&self) -> Option<u64> {
        let frozen = self.frozen.as_ref().filter(|frozen| frozen.count() > 0);
        match frozen {
            Some(frozen) => Some(frozen.first_seq()),
            None => self.waits().then(|| self.queue.first_seq()),
        }
    }

    fn record(&self, number: u32) -> BlockRecord {
        let block = BlockRef { number, birth: self.birth };
        BlockRecord { block, key: self.key.clone(), placement: self.placement }
    }
}

/// All blocks.
#[derive(Default)]
pub struct BlockTable {
    blocks: Vec<Block>,
    unused: BTreeSet<u32>,
    key_bytes: usize,
    changes: Changes,
}

impl Items for BlockTable {
    fn key(&self, item: u32) -> &[u8] {
        &self.blocks[item as usize].key
    }
}

impl BlockTable {
    /// The block with this number.
    #[must_use]
    pub fn get(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }

    /// The block with this number; for its queue only. Its placement changes in
    /// [`BlockTable::place`].
    pub fn get_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.0 as usize]
    }

    /// What names the block for ever.
    #[must_use]
    pub fn reference(&self, id: BlockId) -> BlockRef {
        BlockRef { number: id.0, birth: self.get(id).birth }
    }

    /// The block that is meant, if it is still there.
    #[must_use]
    pub fn find(&self, block: BlockRef) -> Option<BlockId> {
        let found = self.blocks.get(block.number as usize)?;
        (found.birth == block.birth).then_some(BlockId(block.number))
    }

    /// All blocks in the order of their numbers from `start` on, unused numbers included.
    pub fn from(&self, start: usize) -> impl Iterator<Item = &Block> {
        self.blocks[start.min(self.blocks.len())..].iter()
    }

    /// All numbers that are in use.
    pub fn ids(&self) -> impl Iterator<Item = BlockId> + '_ {
        let numbers = (0..).zip(&self.blocks);
        numbers.filter(|(_, block)| block.birth > 0).map(|(number, _)| BlockId(number))
    }

    /// Number of blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len() - self.unused.len()
    }

    /// Number of pages, whether anything is in them or not.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.blocks.len().div_ceil(PAGE_BLOCKS as usize)
    }

    /// Bytes of the keys of all blocks.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
            + self.len() * KEY_OVERHEAD_BYTES
            + self.key_bytes
    }

    /// Which pages differ from their images.
    pub fn changes(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// Adds a block that no tree has yet.
    pub fn add(&mut self, space: u32, key: Box<[u8]>, birth: u64, placement: Placement) -> BlockId {
        let number = match self.unused.first() {
            Some(number) => *number,
            None => u32::try_from(self.blocks.len()).expect("fewer than 2^32 blocks"),
        };
        self.put(number, Block { birth, space, key, placement, ..Block::default() })
    }

    /// Puts a block back that a checkpoint holds.
    pub fn restore(&mut self, record: BlockRecord) -> BlockId {
        let BlockRecord { block, key, placement } = record;
        let found = Block { birth: block.birth, key, placement, ..Block::default() };
        self.put(block.number, found)
    }

    fn put(&mut self, number: u32, block: Block) -> BlockId {
        while self.blocks.len() <= number as usize {
            let unused = u32::try_from(self.blocks.len()).expect("fewer than 2^32 blocks");
            self.unused.insert(unused);
            self.blocks.push(Block::default());
        }
        let id = BlockId(number);
        self.touch(id);
        self.unused.remove(&number);
        self.key_bytes += block.key.len();
        self.blocks[number as usize] = block;
        id
    }

    /// Frees a number, and returns what the block was.
    pub fn remove(&mut self, id: BlockId) -> Block {
        self.touch(id);
        let block = std::mem::take(&mut self.blocks[id.0 as usize]);
        self.key_bytes -= block.key.len();
        self.unused.insert(id.0);
        block
    }

    /// Says where a block is from now on, and returns where it was.
    pub fn place(&mut self, id: BlockId, placement: Placement) -> Placement {
        self.touch(id);
        std::mem::replace(&mut self.get_mut(id).placement, placement)
    }

    fn touch(&mut self, id: BlockId) {
        let page = id.0 / PAGE_BLOCKS;
        let blocks = &self.blocks;
        self.changes.touch(page, || encode_page(&records(blocks, page)));
    }

    /// The body of the image of a page.
    #[must_use]
    pub fn encode_page(&self, page: u32) -> Vec<u8> {
        encode_page(&records(&self.blocks, page))
    }
}

fn records(blocks: &[Block], page: u32) -> Vec<BlockRecord> {
    let start = page * PAGE_BLOCKS;
    let end = (start + PAGE_BLOCKS).min(u32::try_from(blocks.len()).expect("fewer than 2^32"));
    let in_use = (start..end).filter(|number| blocks[*number as usize].birth > 0);
    in_use.map(|number| blocks[number as usize].record(number)).collect()
}
