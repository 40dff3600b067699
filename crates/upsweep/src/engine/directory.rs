//! The ordered directory of blocks, resident in memory.
//!
//! Two levels: a space is a sorted list of *pages*, a page a sorted list of blocks. A page is also
//! the unit of the checkpoint: it knows whether it changed and where its image is. Searching
//! compares 8-byte prefixes of the keys first, which lie densely in memory, and looks at whole keys
//! only where prefixes are equal.
//!
//! Invariants: pages of a space cover all keys without gap or overlap, the first from the empty
//! key; blocks in a page are in strict key order and inside the page's range; while a checkpoint
//! runs no page is split, so that the ranges on disk and in memory agree.
//! Cost of a search: two binary searches, O(log n) prefix comparisons.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::block_format::{BlockFormat, Routing};
use super::format::record_format::SpaceRecord;
use super::queue::{Queue, Waiting};
use crate::placement::Extent;

/// Index of a block in [`Directory::block`]; reused after the block is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(u32);

/// A page is split when it holds more blocks than this.
const PAGE_BLOCKS_MAX: usize = 128;

/// What an allocator adds to a short key.
const KEY_OVERHEAD_BYTES: usize = 24;

/// Everything that is known of one block.
#[derive(Debug)]
pub struct Block {
    /// Its space.
    pub space: u32,
    /// Its key: the lower bound of what it covers, or its exact key.
    pub key: Box<[u8]>,
    /// Where its image is; `None` while it has none.
    pub extent: Option<Extent>,
    /// Updates through this sequence are inside the image, or in the quarantine.
    pub frontier: u64,
    /// The frontier when the image was written; the image names itself by it.
    pub image_seq: u64,
    /// Records in the image.
    pub records: u32,
    /// Updates that wait.
    pub queue: Queue,
    /// Updates that a running sweep is applying; older than those in `queue`.
    pub frozen: Option<Arc<Waiting>>,
    /// Whether a sweep or split has the block in hand.
    pub busy: bool,
}

impl Block {
    fn new(space: u32, key: Box<[u8]>) -> Self {
        Self {
            space,
            key,
            extent: None,
            frontier: 0,
            image_seq: 0,
            records: 0,
            queue: Queue::default(),
            frozen: None,
            busy: false,
        }
    }

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
}

/// A page of the directory.
#[derive(Debug)]
pub struct Page {
    /// Lower bound of its keys.
    pub low: Box<[u8]>,
    low_prefix: u64,
    prefixes: Vec<u64>,
    blocks: Vec<BlockId>,
    /// Whether it differs from its image.
    pub dirty: bool,
    /// Where its image is.
    pub image: Option<Extent>,
    /// Directory changes through this log sequence are inside the image.
    pub image_seq: u64,
}

impl Page {
    fn new(low: Box<[u8]>) -> Self {
        Self {
            low_prefix: prefix(&low),
            low,
            prefixes: Vec::new(),
            blocks: Vec::new(),
            dirty: true,
            image: None,
            image_seq: 0,
        }
    }

    /// An empty page that has an image.
    #[must_use]
    pub fn restored(low: Box<[u8]>, image: Extent, image_seq: u64) -> Self {
        Self { image: Some(image), image_seq, dirty: false, ..Self::new(low) }
    }

    /// The blocks in key order.
    #[must_use]
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }
}

/// One space: a table, the large values of one, or an application's own blocks.
pub struct Space {
    /// What the log says of it.
    pub record: SpaceRecord,
    /// How its blocks are laid out.
    pub format: Arc<dyn BlockFormat>,
    /// Its pages, in key order; never empty.
    pub pages: Vec<Page>,
}

/// A place in a space: page and position within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    page: usize,
    slot: usize,
}

/// The blocks of all spaces.
#[derive(Default)]
pub struct Directory {
    spaces: BTreeMap<u32, Space>,
    blocks: Vec<Block>,
    unused: Vec<BlockId>,
    key_bytes: usize,
}

fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = key.len().min(8);
    bytes[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(bytes)
}

impl Directory {
    /// Adds an empty space. An ordered space starts with one empty block that covers all keys.
    pub fn add_space(&mut self, record: SpaceRecord, format: Arc<dyn BlockFormat>) {
        let number = record.space;
        let ordered = format.routing() == Routing::Ordered;
        self.restore_space(record, format, vec![Page::new(Box::default())]);
        if ordered {
            self.insert(number, Box::default());
        }
    }

    /// Adds a space with empty pages, as a checkpoint describes them.
    pub fn restore_space(
        &mut self,
        record: SpaceRecord,
        format: Arc<dyn BlockFormat>,
        pages: Vec<Page>,
    ) {
        self.spaces.insert(record.space, Space { record, format, pages });
    }

    /// Takes a space out; its blocks stay until [`Directory::forget`] is called for each.
    pub fn remove_space(&mut self, space: u32) -> Option<Space> {
        self.spaces.remove(&space)
    }

    /// The space with this number.
    #[must_use]
    pub fn space(&self, space: u32) -> Option<&Space> {
        self.spaces.get(&space)
    }

    /// All spaces, by number.
    pub fn spaces(&self) -> impl Iterator<Item = &Space> {
        self.spaces.values()
    }

    /// The space with this number.
    pub fn space_mut(&mut self, space: u32) -> Option<&mut Space> {
        self.spaces.get_mut(&space)
    }

    /// The block with this number.
    #[must_use]
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }

    /// The block with this number. Changes of place, frontier or records need [`Self::touch`].
    pub fn block_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.0 as usize]
    }

    /// All blocks in the order of their numbers from `start` on, unused numbers included.
    pub fn blocks_from(&self, start: usize) -> impl Iterator<Item = &Block> {
        self.blocks[start.min(self.blocks.len())..].iter()
    }

    /// Number of blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len() - self.unused.len()
    }

    /// Bytes of the keys of all blocks.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Memory of the directory in bytes: blocks, keys, page entries.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * (size_of::<Block>() + 12)
            + self.len() * KEY_OVERHEAD_BYTES
            + self.key_bytes
    }

    /// The last block whose key is at most `key`.
    #[must_use]
    pub fn floor(&self, space: u32, key: &[u8]) -> Option<BlockId> {
        let pages = &self.spaces.get(&space)?.pages;
        let place = self.upper(pages, key);
        before(pages, place).map(|place| pages[place.page].blocks[place.slot])
    }

    /// The block with exactly this key.
    #[must_use]
    pub fn exact(&self, space: u32, key: &[u8]) -> Option<BlockId> {
        self.floor(space, key).filter(|id| *self.block(*id).key == *key)
    }

    /// The first block whose key is greater than `key`.
    #[must_use]
    pub fn above(&self, space: u32, key: &[u8]) -> Option<BlockId> {
        let pages = &self.spaces.get(&space)?.pages;
        let mut place = self.upper(pages, key);
        while pages[place.page].blocks.len() <= place.slot {
            place = Place { page: place.page + 1, slot: 0 };
            if place.page == pages.len() {
                return None;
            }
        }
        Some(pages[place.page].blocks[place.slot])
    }

    /// The last block whose key is below `key` (`None`: the last of the space).
    #[must_use]
    pub fn below(&self, space: u32, key: Option<&[u8]>) -> Option<BlockId> {
        let pages = &self.spaces.get(&space)?.pages;
        let end = Place { page: pages.len() - 1, slot: pages[pages.len() - 1].blocks.len() };
        let place = before(pages, key.map_or(end, |key| self.upper(pages, key)))?;
        let id = pages[place.page].blocks[place.slot];
        if key.is_none_or(|key| *self.block(id).key < *key) {
            return Some(id);
        }
        before(pages, place).map(|place| pages[place.page].blocks[place.slot])
    }

    /// The place behind the last block whose key is at most `key`, in the page that covers `key`.
    fn upper(&self, pages: &[Page], key: &[u8]) -> Place {
        let wanted = prefix(key);
        let after = pages.partition_point(|page| {
            page.low_prefix < wanted || (page.low_prefix == wanted && *page.low <= *key)
        });
        let page = after.saturating_sub(1);
        let Page { prefixes, blocks, .. } = &pages[page];
        let mut slot = prefixes.partition_point(|&prefix| prefix < wanted);
        if prefixes.get(slot) == Some(&wanted) {
            let equal = prefixes[slot..].partition_point(|&prefix| prefix == wanted);
            slot += blocks[slot..slot + equal].partition_point(|id| *self.block(*id).key <= *key);
        }
        Place { page, slot }
    }

    /// Adds a block with no image and nothing waiting, and returns it; an existing one is returned
    /// as it is.
    ///
    /// # Panics
    /// When the space does not exist.
    pub fn insert(&mut self, space: u32, key: Box<[u8]>) -> BlockId {
        if let Some(found) = self.exact(space, &key) {
            return found;
        }
        let pages = &self.spaces.get(&space).expect("the space of a block exists").pages;
        let place = self.upper(pages, &key);
        let key_prefix = prefix(&key);
        self.key_bytes += key.len();
        let block = Block::new(space, key);
        let id = match self.unused.pop() {
            Some(id) => {
                self.blocks[id.0 as usize] = block;
                id
            }
            None => {
                self.blocks.push(block);
                BlockId(u32::try_from(self.blocks.len() - 1).expect("fewer than 2^32 blocks"))
            }
        };
        let pages = &mut self.spaces.get_mut(&space).expect("looked up above").pages;
        let page = &mut pages[place.page];
        page.prefixes.insert(place.slot, key_prefix);
        page.blocks.insert(place.slot, id);
        page.dirty = true;
        id
    }

    /// Removes a block, and returns what it was.
    ///
    /// # Panics
    /// When the block is not in the directory.
    pub fn remove(&mut self, id: BlockId) -> Block {
        let (space, key) = (self.block(id).space, self.block(id).key.clone());
        let pages = &self.spaces.get(&space).expect("the space of a block exists").pages;
        let place = before(pages, self.upper(pages, &key)).expect("the block is in its space");
        let pages = &mut self.spaces.get_mut(&space).expect("looked up above").pages;
        let page = &mut pages[place.page];
        assert_eq!(page.blocks[place.slot], id, "a block is found under its key");
        page.prefixes.remove(place.slot);
        page.blocks.remove(place.slot);
        page.dirty = true;
        self.forget(id)
    }

    /// Frees the number of a block that no page lists any more, and returns what it was.
    pub fn forget(&mut self, id: BlockId) -> Block {
        let nothing = Block::new(0, Box::default());
        let block = std::mem::replace(&mut self.blocks[id.0 as usize], nothing);
        self.key_bytes -= block.key.len();
        self.unused.push(id);
        block
    }

    /// Marks the page of a block as changed.
    pub fn touch(&mut self, id: BlockId) {
        let block = &self.blocks[id.0 as usize];
        let pages = &self.spaces.get(&block.space).expect("the space of a block exists").pages;
        let place = before(pages, self.upper(pages, &block.key)).expect("the block is there");
        let space = block.space;
        self.spaces.get_mut(&space).expect("looked up above").pages[place.page].dirty = true;
    }

    /// Marks all pages of a space as equal to their images.
    pub fn mark_clean(&mut self, space: u32) {
        let pages = self.spaces.get_mut(&space).into_iter().flat_map(|space| &mut space.pages);
        pages.for_each(|page| page.dirty = false);
    }

    /// Cuts pages that have grown too long; done between checkpoints only. Returns the images of
    /// the pages that were cut, which no longer describe one page.
    pub fn balance_pages(&mut self) -> Vec<Extent> {
        let mut outdated = Vec::new();
        let Self { spaces, blocks, .. } = self;
        for space in spaces.values_mut() {
            if space.pages.iter().all(|page| page.blocks.len() <= PAGE_BLOCKS_MAX) {
                continue;
            }
            let mut balanced = Vec::with_capacity(space.pages.len() + 8);
            for mut page in std::mem::take(&mut space.pages) {
                if page.blocks.len() <= PAGE_BLOCKS_MAX {
                    balanced.push(page);
                    continue;
                }
                outdated.extend(page.image.take());
                let parts = page.blocks.len().div_ceil(PAGE_BLOCKS_MAX / 2);
                let size = page.blocks.len().div_ceil(parts);
                for (part, ids) in page.blocks.chunks(size).enumerate() {
                    let low = match part {
                        0 => page.low.clone(),
                        _ => blocks[ids[0].0 as usize].key.clone(),
                    };
                    let mut cut = Page::new(low);
                    cut.blocks = ids.to_vec();
                    cut.prefixes =
                        ids.iter().map(|id| prefix(&blocks[id.0 as usize].key)).collect();
                    balanced.push(cut);
                }
            }
            space.pages = balanced;
        }
        outdated
    }

    /// The page that covers `key`.
    #[must_use]
    pub fn page_of(&self, space: u32, key: &[u8]) -> Option<&Page> {
        let pages = &self.spaces.get(&space)?.pages;
        Some(&pages[self.upper(pages, key).page])
    }
}

/// The place before `place`, skipping empty pages.
fn before(pages: &[Page], place: Place) -> Option<Place> {
    if place.slot > 0 {
        return Some(Place { slot: place.slot - 1, ..place });
    }
    let page = (0..place.page).rev().find(|&page| !pages[page].blocks.is_empty())?;
    Some(Place { page, slot: pages[page].blocks.len() - 1 })
}
