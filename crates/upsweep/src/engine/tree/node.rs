//! One node of a tree: its entries, its search, and its image on a device.
//!
//! A search compares 8-byte prefixes of keys first, which are dense in memory, and examines whole
//! keys only where prefixes are equal. It examines one prefix of every stretch of [`STRETCH`] and
//! then one stretch: more comparisons than binary search needs, but all memory accesses are issued
//! at once, while each step of a binary search waits for the previous one. Nodes of level 0 hold no
//! keys: these belong to their items.

use super::Items;
use crate::engine::format::checkpoint_format::{NodeRecord, encode_node};

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Distance from the leaves; at level 0 children are items.
    pub(super) level: u8,
    /// Parents, roots and condemned entries that name it.
    pub(super) refs: u32,
    pub(super) prefixes: Vec<u64>,
    /// Lower bounds of the children; empty at level 0.
    pub(super) keys: Vec<Box<[u8]>>,
    pub(super) children: Vec<u32>,
}

/// Prefixes per line of the processor's cache.
const STRETCH: usize = 8;

/// The number of `sorted` prefixes below `wanted`.
#[inline]
fn lower(sorted: &[u64], wanted: u64) -> usize {
    let (stretches, _) = sorted.as_chunks::<STRETCH>();
    let whole: usize = stretches.iter().map(|part| usize::from(part[STRETCH - 1] < wanted)).sum();
    let rest = sorted[whole * STRETCH..].iter().take(STRETCH);
    whole * STRETCH + rest.map(|prefix| usize::from(*prefix < wanted)).sum::<usize>()
}

/// The first 8 bytes of a key as a number of the same order.
pub(super) fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = key.len().min(8);
    bytes[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(bytes)
}

impl Node {
    pub(super) fn new(level: u8) -> Self {
        Self { level, refs: 0, prefixes: Vec::new(), keys: Vec::new(), children: Vec::new() }
    }

    /// The node of this image; `items` gives the keys of its children if it is of level 0.
    pub fn restored(record: NodeRecord, items: &impl Items) -> Self {
        let NodeRecord { level, keys, children } = record;
        let prefixes = if level == 0 {
            children.iter().map(|item| prefix(items.key(*item))).collect()
        } else {
            keys.iter().map(|key| prefix(key)).collect()
        };
        Self { level, refs: 0, prefixes, keys, children }
    }

    /// Distance from the leaves; at level 0 children are items.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Nodes or, at level 0, items below this one, in key order.
    #[must_use]
    pub fn children(&self) -> &[u32] {
        &self.children
    }

    /// The body of its image.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode_node(self.level, &self.keys, &self.children)
    }

    pub(super) fn key<'a>(&'a self, items: &'a impl Items, slot: usize) -> &'a [u8] {
        if self.level == 0 { items.key(self.children[slot]) } else { &self.keys[slot] }
    }

    /// The number of children whose key is at most `key`.
    #[inline]
    pub(super) fn upper(&self, items: &impl Items, key: &[u8]) -> usize {
        self.position(items, key, |child, key| child <= key)
    }

    /// The number of children whose key is below `key`.
    pub(super) fn lower(&self, items: &impl Items, key: &[u8]) -> usize {
        self.position(items, key, |child, key| child < key)
    }

    #[inline]
    fn position(
        &self,
        items: &impl Items,
        key: &[u8],
        is_before: impl Fn(&[u8], &[u8]) -> bool,
    ) -> usize {
        let wanted = prefix(key);
        let mut slot = lower(&self.prefixes, wanted);
        if self.prefixes.get(slot) == Some(&wanted) {
            let equal = self.prefixes[slot..].partition_point(|&prefix| prefix == wanted);
            let (mut low, mut high) = (slot, slot + equal);
            while low < high {
                let middle = low.midpoint(high);
                if is_before(self.key(items, middle), key) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            slot = low;
        }
        slot
    }

    pub(super) fn insert(&mut self, slot: usize, key: &[u8], child: u32) {
        self.prefixes.insert(slot, prefix(key));
        if self.level > 0 {
            self.keys.insert(slot, key.into());
        }
        self.children.insert(slot, child);
    }

    pub(super) fn remove(&mut self, slot: usize) -> u32 {
        self.prefixes.remove(slot);
        if self.level > 0 {
            self.keys.remove(slot);
        }
        self.children.remove(slot)
    }

    /// Lowers the lower bound of a child.
    pub(super) fn set_key(&mut self, slot: usize, key: &[u8]) {
        self.prefixes[slot] = prefix(key);
        self.keys[slot] = key.into();
    }

    /// Splits the node at `slot`; the right part is returned.
    pub(super) fn split_off(&mut self, slot: usize) -> Self {
        let right = Self {
            level: self.level,
            refs: 0,
            prefixes: self.prefixes.split_off(slot),
            keys: if self.level > 0 { self.keys.split_off(slot) } else { Vec::new() },
            children: self.children.split_off(slot),
        };
        // If keys arrive in order, nothing is ever inserted into the left part again.
        self.prefixes.shrink_to_fit();
        self.keys.shrink_to_fit();
        self.children.shrink_to_fit();
        right
    }

    /// Appends the entries of the right neighbour.
    pub(super) fn append(&mut self, mut right: Self) {
        self.prefixes.append(&mut right.prefixes);
        self.keys.append(&mut right.keys);
        self.children.append(&mut right.children);
    }
}

#[cfg(test)]
mod tests {
    use super::lower;

    #[test]
    fn prefixes_below_are_counted_wherever_they_lie() {
        for count in 0..200u64 {
            let sorted: Vec<u64> = (0..count).map(|number| number / 3 * 2).collect();
            for wanted in 0..count + 3 {
                let expected = sorted.partition_point(|prefix| *prefix < wanted);
                assert_eq!(lower(&sorted, wanted), expected, "{count} prefixes, {wanted}");
            }
        }
    }
}
