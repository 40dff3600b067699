//! Reserved extents: space of the data devices that the engine leaves to others.
//!
//! The owner of a space may reserve extents for content of its own, such as the payload of which
//! the space is an index. The engine keeps them out of the space that it uses itself, across
//! crashes, and does not write there. They are given back one by one, or all when the space is
//! dropped.
//!
//! Invariants: an extent is reserved when its record is durable, and free when the record that
//! gives it back is; each belongs to one space that exists; none overlaps another one or an image.

use std::collections::BTreeMap;

use super::ids::SpaceId;
use crate::placement::Extent;

/// The reserved extents of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservedExtents {
    owners: BTreeMap<Extent, SpaceId>,
    bytes: u64,
}

impl ReservedExtents {
    /// Reserves an extent for the owner of a space. Replay may do so again.
    pub fn add(&mut self, space: SpaceId, extent: Extent) {
        if self.owners.insert(extent, space).is_none() {
            self.bytes += u64::from(extent.bytes);
        }
    }

    /// Gives an extent back; returns whether it was reserved.
    pub fn remove(&mut self, extent: Extent) -> bool {
        let is_there = self.owners.remove(&extent).is_some();
        self.bytes -= if is_there { u64::from(extent.bytes) } else { 0 };
        is_there
    }

    /// Gives back all extents of a space, and returns them.
    pub fn remove_all(&mut self, space: SpaceId) -> Vec<Extent> {
        let of_it: Vec<Extent> = self.of(space).collect();
        for extent in &of_it {
            self.remove(*extent);
        }
        of_it
    }

    /// The extents of a space, by place.
    pub fn of(&self, space: SpaceId) -> impl Iterator<Item = Extent> {
        self.iter().filter(move |(owner, _)| *owner == space).map(|(_, extent)| extent)
    }

    /// All extents with the spaces that they belong to, by place.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (SpaceId, Extent)> {
        self.owners.iter().map(|(extent, owner)| (*owner, *extent))
    }

    /// Memory that they take, in bytes (estimate of the tree's nodes).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.owners.len() * 48
    }

    /// The most bytes that they take in the root of a checkpoint.
    #[must_use]
    pub fn root_bytes(&self) -> u64 {
        self.owners.len() as u64 * 20
    }

    /// Their bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceId;
    use crate::placement::UNIT_BYTES;

    fn extent(unit: u64) -> Extent {
        Extent { device: DeviceId(0), offset: unit * UNIT_BYTES, bytes: UNIT_BYTES as u32 }
    }

    #[test]
    fn an_extent_counts_until_it_or_its_space_is_gone() {
        let [first, second] = [100, 101].map(SpaceId::new);
        let mut reserved = ReservedExtents::default();
        for (space, unit) in [(first, 5), (second, 6), (first, 7), (first, 5)] {
            reserved.add(space, extent(unit));
        }
        assert_eq!(reserved.bytes(), 3 * UNIT_BYTES);
        assert_eq!(reserved.of(first).collect::<Vec<_>>(), [extent(5), extent(7)]);
        assert_eq!(reserved.of(second).collect::<Vec<_>>(), [extent(6)]);
        assert!(reserved.remove(extent(6)) && !reserved.remove(extent(6)));
        assert_eq!(reserved.remove_all(first), [extent(5), extent(7)]);
        assert_eq!(reserved, ReservedExtents::default());
    }
}
