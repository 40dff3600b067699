//! Images of blocks that queries have read, kept while there is room: CLOCK with a second chance.
//! When the sweep moves a block whose image is here, the new image comes here too.
//!
//! Invariants: an image is kept under the extent from which it was read, or to which it is being
//! written, until that is given back; blocks that share an image share it here too. The total bytes
//! of images stay within the limit, which follows the memory that nothing else needs.

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

    /// The image at `extent`, if cached.
    pub fn get(&mut self, extent: Extent) -> Option<Arc<Image>> {
        let entry = self.entries.get_mut(&extent)?;
        entry.used = true;
        Some(Arc::clone(&entry.image))
    }

    /// Whether the image at `extent` is cached; that does not count as a use of it.
    #[must_use]
    pub fn has(&self, extent: Extent) -> bool {
        self.entries.contains_key(&extent)
    }

    /// The image at `extent`, if cached, without a use of it.
    #[must_use]
    pub fn peek(&self, extent: Extent) -> Option<Arc<Image>> {
        self.entries.get(&extent).map(|entry| Arc::clone(&entry.image))
    }

    /// Changes the limit, and drops images beyond it.
    pub fn set_limit(&mut self, bytes: usize) {
        self.limit_bytes = bytes;
        self.make_room(0);
    }

    /// Adds an image, and drops others to make room.
    pub fn put(&mut self, extent: Extent, image: Arc<Image>) {
        let bytes = extent.bytes as usize;
        self.remove(extent);
        if bytes > self.limit_bytes {
            return;
        }
        self.make_room(bytes);
        if self.entries.insert(extent, CacheEntry { image, used: false }).is_none() {
            self.ring.push_back(extent);
        }
        self.bytes += bytes;
    }

    /// Drops images until this many bytes more are within the limit.
    fn make_room(&mut self, bytes: usize) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceId;

    fn extent(number: u64) -> Extent {
        Extent { device: DeviceId(0), offset: number * 4096, bytes: 4096 }
    }

    fn image(byte: u8) -> Arc<Image> {
        Arc::new(Image::new(Arc::new(Buffer::copy_of(&[byte; 8])), 2..4))
    }

    fn has(cache: &mut Cache, numbers: impl Iterator<Item = u64>) -> Vec<u64> {
        numbers.filter(|number| cache.entries.contains_key(&extent(*number))).collect()
    }

    #[test]
    fn images_stay_within_the_limit_and_one_that_was_used_has_a_second_chance() {
        let mut cache = Cache::new(3 * 4096);
        (0..3).for_each(|number| cache.put(extent(number), image(number as u8)));
        assert!(cache.get(extent(0)).is_some_and(|found| found.body() == [0, 0]));
        cache.put(extent(3), image(3));
        assert_eq!(has(&mut cache, 0..4), [0, 2, 3], "1 was the oldest unused one");
        assert_eq!(cache.bytes(), 3 * 4096);
        cache.put(extent(4), image(4));
        cache.put(extent(5), image(5));
        assert_eq!(has(&mut cache, 0..6), [3, 4, 5], "a second chance is not a third");
    }

    #[test]
    fn a_lower_limit_drops_what_is_beyond_it_and_a_higher_one_makes_room() {
        let mut cache = Cache::new(4 * 4096);
        (0..4).for_each(|number| cache.put(extent(number), image(number as u8)));
        assert!(cache.get(extent(0)).is_some());
        cache.set_limit(2 * 4096 + 100);
        assert_eq!(has(&mut cache, 0..4), [0, 3]);
        cache.set_limit(3 * 4096);
        cache.put(extent(4), image(4));
        assert_eq!(has(&mut cache, 0..5), [0, 3, 4]);
        cache.set_limit(0);
        assert_eq!((cache.bytes(), cache.entries.len()), (0, 0));
    }

    #[test]
    fn what_is_larger_than_the_cache_is_not_kept_nor_is_anything_without_one() {
        let mut cache = Cache::new(4096);
        cache.put(extent(0), image(0));
        let large = Extent { bytes: 8192, ..extent(1) };
        cache.put(large, image(1));
        assert!(cache.get(large).is_none() && cache.get(extent(0)).is_some());
        let mut none = Cache::new(0);
        none.put(extent(0), image(0));
        assert!(none.get(extent(0)).is_none());
        assert_eq!(none.bytes(), 0);
    }

    #[test]
    fn an_extent_that_is_given_back_has_no_image_any_more() {
        let mut cache = Cache::new(4 * 4096);
        cache.put(extent(0), image(0));
        cache.put(extent(0), image(9));
        assert_eq!(cache.bytes(), 4096, "the one in its place is counted alone");
        assert!(cache.get(extent(0)).is_some_and(|found| found.body() == [9, 9]));
        cache.remove(extent(0));
        cache.remove(extent(0));
        assert!(cache.get(extent(0)).is_none());
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn what_is_kept_of_images_that_are_gone_is_bounded() {
        let mut cache = Cache::new(4 * 4096);
        for number in 0..10_000 {
            cache.put(extent(number), image(0));
            cache.remove(extent(number));
        }
        assert!(cache.ring.len() <= 17, "{} places", cache.ring.len());
    }
}
