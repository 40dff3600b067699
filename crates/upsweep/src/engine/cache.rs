//! Images of blocks that were read, kept while there is room: CLOCK with a second chance.
//!
//! Invariant: an image is handed out only for the extent that it was read from; a block that moved
//! misses. The bytes of all images stay within the limit.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::directory::BlockId;
use crate::device::Buffer;
use crate::placement::Extent;

/// One block as it is on the device, checked.
#[derive(Debug)]
pub struct Image {
    buffer: Arc<Buffer>,
    body: Range<usize>,
}

impl Image {
    /// Wraps a checked image whose body lies at `body`.
    #[must_use]
    pub fn new(buffer: Arc<Buffer>, body: Range<usize>) -> Self {
        Self { buffer, body }
    }

    /// The body, in the layout of the block's format.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.buffer[self.body.clone()]
    }
}

struct Entry {
    extent: Extent,
    image: Arc<Image>,
    used: bool,
}

/// The cache of one store.
pub struct Cache {
    entries: BTreeMap<BlockId, Entry>,
    ring: VecDeque<BlockId>,
    bytes: usize,
    limit_bytes: usize,
    held: Option<(BlockId, Extent, Arc<Image>)>,
}

impl Cache {
    /// A cache of at most `limit_bytes` of images; 0 keeps nothing.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self { entries: BTreeMap::new(), ring: VecDeque::new(), bytes: 0, limit_bytes, held: None }
    }

    /// Bytes of the images it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The image of `block` at `extent`, if it is here.
    pub fn get(&mut self, block: BlockId, extent: Extent) -> Option<Arc<Image>> {
        if let Some((held, at, image)) = &self.held
            && (*held, *at) == (block, extent)
        {
            return Some(Arc::clone(image));
        }
        let entry = self.entries.get_mut(&block)?;
        if entry.extent != extent {
            self.remove(block);
            return None;
        }
        entry.used = true;
        Some(Arc::clone(&entry.image))
    }

    /// Has an image at hand until [`Cache::release`], whatever the limit, and then puts it.
    pub fn hold(&mut self, block: BlockId, extent: Extent, image: Arc<Image>) {
        self.held = Some((block, extent, image));
    }

    /// Ends [`Cache::hold`].
    pub fn release(&mut self) {
        if let Some((block, extent, image)) = self.held.take() {
            self.put(block, extent, image);
        }
    }

    /// Keeps an image, and drops others to make room.
    fn put(&mut self, block: BlockId, extent: Extent, image: Arc<Image>) {
        let bytes = extent.bytes as usize;
        self.remove(block);
        if bytes > self.limit_bytes {
            return;
        }
        while self.bytes + bytes > self.limit_bytes {
            let Some(candidate) = self.ring.pop_front() else { break };
            match self.entries.get_mut(&candidate) {
                Some(entry) if entry.used => {
                    entry.used = false;
                    self.ring.push_back(candidate);
                }
                Some(_) => self.remove(candidate),
                None => {}
            }
        }
        if self.entries.insert(block, Entry { extent, image, used: false }).is_none() {
            self.ring.push_back(block);
        }
        self.bytes += bytes;
    }

    /// Drops the image of a block that has moved or is no more.
    pub fn remove(&mut self, block: BlockId) {
        if let Some(entry) = self.entries.remove(&block) {
            self.bytes -= entry.extent.bytes as usize;
        }
        if self.ring.len() > 2 * self.entries.len() + 16 {
            let entries = &self.entries;
            self.ring.retain(|block| entries.contains_key(block));
        }
    }
}
