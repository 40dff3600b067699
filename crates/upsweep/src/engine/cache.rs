//! Images of blocks that were read, kept while there is room: CLOCK with a second chance.
//!
//! Invariants: an image is kept by the extent that it was read from, until that is given back;
//! blocks that share an image share it here too. The bytes of all images stay within the limit.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

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

struct CacheEntry {
    image: Arc<Image>,
    used: bool,
}

/// The cache of one store.
pub struct Cache {
    entries: BTreeMap<Extent, CacheEntry>,
    ring: VecDeque<Extent>,
    bytes: usize,
    limit_bytes: usize,
}

impl Cache {
    /// A cache of at most `limit_bytes` of images; 0 keeps nothing.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self { entries: BTreeMap::new(), ring: VecDeque::new(), bytes: 0, limit_bytes }
    }

    /// Bytes of the images it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The image at `extent`, if it is here.
    pub fn get(&mut self, extent: Extent) -> Option<Arc<Image>> {
        let entry = self.entries.get_mut(&extent)?;
        entry.used = true;
        Some(Arc::clone(&entry.image))
    }

    /// Keeps an image, and drops others to make room.
    pub fn put(&mut self, extent: Extent, image: Arc<Image>) {
        let bytes = extent.bytes as usize;
        self.remove(extent);
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
        if self.entries.insert(extent, CacheEntry { image, used: false }).is_none() {
            self.ring.push_back(extent);
        }
        self.bytes += bytes;
    }

    /// Drops the image of an extent that is given back.
    pub fn remove(&mut self, extent: Extent) {
        if self.entries.remove(&extent).is_some() {
            self.bytes -= extent.bytes as usize;
        }
        if self.ring.len() > 2 * self.entries.len() + 16 {
            let entries = &self.entries;
            self.ring.retain(|extent| entries.contains_key(extent));
        }
    }
}
