//! The map of free and used space of the data devices.
//!
//! Invariants: free extents of a device are disjoint, not adjacent, inside the device, and together
//! with the used ones cover it exactly; all are multiples of [`UNIT_BYTES`]. The map is derived: it
//! is rebuilt from the directory at open, so that it can never disagree with it on disk.
//!
//! Runs are placed *next fit* behind a cursor that chases the sweep: the sweep reads in physical
//! order and frees space behind itself, the cursor fills that space, so runs stay in the order in
//! which they were visited and the next sweep, which begins behind the cursor, reads sequentially
//! again. (After a restart both begin at the start of the device.) Pages of the directory and large
//! values, which live longer, go to the other end of the device.
//! (Bosc paper, section 4.2; design document, "Shadow".)

use std::collections::BTreeMap;

use crate::device::DeviceId;

/// Allocation unit in bytes: the largest sector of the devices that Upsweep supports.
pub const UNIT_BYTES: u64 = 4096;

/// Most data devices.
pub const DEVICES_MAX: u16 = 1 << 10;

/// What is used of a data device at most: 64 TiB.
pub const DEVICE_BYTES_MAX: u64 = 1 << 46;

/// A range of bytes on a data device, in whole units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// The device.
    pub device: DeviceId,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
}

impl Extent {
    /// Whether it is on one of [`DEVICES_MAX`] devices, within its first [`DEVICE_BYTES_MAX`].
    #[must_use]
    pub fn is_in_bounds(&self) -> bool {
        self.device.0 < DEVICES_MAX && self.end() <= DEVICE_BYTES_MAX
    }

    /// The byte after the last.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.bytes)
    }
}

/// An extent that is claimed twice, or lies outside its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap(pub Extent);

#[derive(Clone)]
struct DeviceSpace {
    start: u64,
    end: u64,
    free: BTreeMap<u64, u64>,
    free_bytes: u64,
    cursor: u64,
}

impl DeviceSpace {
    fn take(&mut self, offset: u64, bytes: u64) -> bool {
        let Some((&start, &length)) = self.free.range(..=offset).next_back() else {
            return false;
        };
        let (end, taken_end) = (start + length, offset.saturating_add(bytes));
        if taken_end > end {
            return false;
        }
        self.free.remove(&start);
        if offset > start {
            self.free.insert(start, offset - start);
        }
        if end > taken_end {
            self.free.insert(taken_end, end - taken_end);
        }
        self.free_bytes -= bytes;
        true
    }

    fn give(&mut self, offset: u64, bytes: u64) {
        let (mut start, mut end) = (offset, offset + bytes);
        if let Some((&before, &length)) = self.free.range(..offset).next_back() {
            assert!(before + length <= offset, "extent at {offset} freed twice");
            if before + length == offset {
                self.free.remove(&before);
                start = before;
            }
        }
        if let Some((&after, &length)) = self.free.range(offset..).next() {
            assert!(end <= after, "extent at {offset} freed twice");
            if end == after {
                self.free.remove(&after);
                end = after + length;
            }
        }
        self.free.insert(start, end - start);
        self.free_bytes += bytes;
    }

    /// The first gap behind the cursor that holds `bytes`, wrapping once.
    fn next_fit(&self, bytes: u64) -> Option<u64> {
        if let Some((&start, &length)) = self.free.range(..=self.cursor).next_back()
            && start + length >= self.cursor + bytes
        {
            return Some(self.cursor);
        }
        let fits = |(&start, &length): (&u64, &u64)| (length >= bytes).then_some(start);
        self.free
            .range(self.cursor..)
            .find_map(fits)
            .or_else(|| self.free.range(..self.cursor).find_map(fits))
    }

    /// The highest place that holds `bytes`.
    fn last_fit(&self, bytes: u64) -> Option<u64> {
        let fits =
            |(&start, &length): (&u64, &u64)| (length >= bytes).then(|| start + length - bytes);
        self.free.iter().rev().find_map(fits)
    }
}

/// Free and used space of all data devices.
#[derive(Clone)]
pub struct SpaceMap {
    devices: Vec<DeviceSpace>,
}

impl SpaceMap {
    /// All of `start..end` (in bytes, whole units) of each device free; device `i` is number `i`.
    #[must_use]
    pub fn new(ranges: &[(u64, u64)]) -> Self {
        let devices = ranges.iter().map(|&(start, end)| {
            assert!(
                start.is_multiple_of(UNIT_BYTES) && end >= start,
                "a device range in whole units"
            );
            let end = end - end % UNIT_BYTES;
            let mut space =
                DeviceSpace { start, end, free: BTreeMap::new(), free_bytes: 0, cursor: start };
            if end > start {
                space.give(start, end - start);
            }
            space
        });
        Self { devices: devices.collect() }
    }

    /// Bytes that are managed, used or not.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.devices.iter().map(|device| device.end - device.start).sum()
    }

    /// Bytes that are free.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.devices.iter().map(|device| device.free_bytes).sum()
    }

    /// Bytes that are used.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.capacity_bytes() - self.free_bytes()
    }

    /// Memory that the map takes, in bytes (estimate of the tree's nodes).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.devices.iter().map(|device| device.free.len() * 24).sum()
    }

    /// The free extents of one device, in order, as (offset, bytes).
    pub fn free_extents(&self, device: DeviceId) -> impl Iterator<Item = (u64, u64)> + '_ {
        let space = &self.devices[usize::from(device.0)];
        space.free.iter().map(|(&start, &bytes)| (start, bytes))
    }

    /// Makes `device` end at `end` bytes.
    pub fn grow(&mut self, device: DeviceId, end: u64) {
        let space = &mut self.devices[usize::from(device.0)];
        let end = end - end % UNIT_BYTES;
        if end > space.end {
            let old = space.end;
            space.end = end;
            space.give(old, end - old);
        }
    }

    /// End of the managed range of `device`, in bytes.
    #[must_use]
    pub fn end(&self, device: DeviceId) -> u64 {
        self.devices[usize::from(device.0)].end
    }

    /// Marks an extent as used, which must be free: how the map is rebuilt at open.
    ///
    /// # Errors
    /// [`Overlap`] if any of it is used already or outside the device.
    pub fn claim(&mut self, extent: Extent) -> Result<(), Overlap> {
        let Some(space) = self.devices.get_mut(usize::from(extent.device.0)) else {
            return Err(Overlap(extent));
        };
        let whole_units = extent.offset.is_multiple_of(UNIT_BYTES)
            && u64::from(extent.bytes).is_multiple_of(UNIT_BYTES)
            && extent.bytes > 0;
        if whole_units && space.take(extent.offset, u64::from(extent.bytes)) {
            Ok(())
        } else {
            Err(Overlap(extent))
        }
    }

    /// Where the next run is placed on `device`, if there is room: behind the last one.
    #[must_use]
    pub fn next_place(&self, device: DeviceId) -> u64 {
        self.devices[usize::from(device.0)].cursor
    }

    /// Places images of these lengths (bytes, whole units) one after another in as few pieces as
    /// free space allows, on the device with most free space. `None`, and nothing taken, if there
    /// is no room. Cost: O(free extents) at worst.
    pub fn allocate_run(&mut self, lengths: &[u32]) -> Option<Vec<Extent>> {
        let device = (0..self.devices.len()).max_by_key(|&index| self.devices[index].free_bytes)?;
        let mut extents = Vec::with_capacity(lengths.len());
        if self.place(device, lengths, &mut extents) {
            return Some(extents);
        }
        for extent in extents {
            self.free(extent);
        }
        None
    }

    fn place(&mut self, device: usize, lengths: &[u32], extents: &mut Vec<Extent>) -> bool {
        let total: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        if total == 0 {
            return lengths.is_empty();
        }
        let space = &mut self.devices[device];
        if let Some(mut offset) = space.next_fit(total) {
            let taken = space.take(offset, total);
            assert!(taken, "next fit found room");
            space.cursor = offset + total;
            for &bytes in lengths {
                extents.push(Extent { device: device_id(device), offset, bytes });
                offset += u64::from(bytes);
            }
            return true;
        }
        if lengths.len() == 1 {
            let other = (0..self.devices.len()).find_map(|index| {
                self.devices[index].next_fit(total).map(|offset| (index, offset))
            });
            let Some((index, offset)) = other else { return false };
            let taken = self.devices[index].take(offset, total);
            assert!(taken, "next fit found room");
            extents.push(Extent { device: device_id(index), offset, bytes: lengths[0] });
            return true;
        }
        let (left, right) = lengths.split_at(lengths.len() / 2);
        self.place(device, left, extents) && self.place(device, right, extents)
    }

    /// Places one long-lived image of `bytes` (whole units) as high as possible.
    pub fn allocate_high(&mut self, bytes: u32) -> Option<Extent> {
        let (index, offset) = (0..self.devices.len())
            .filter_map(|index| Some((index, self.devices[index].last_fit(u64::from(bytes))?)))
            .max_by_key(|&(index, _)| self.devices[index].free_bytes)?;
        let taken = self.devices[index].take(offset, u64::from(bytes));
        assert!(taken, "last fit found room");
        Some(Extent { device: device_id(index), offset, bytes })
    }

    /// Gives an extent back.
    ///
    /// # Panics
    /// When any of it is free already: a double free is a bug of the engine.
    pub fn free(&mut self, extent: Extent) {
        self.devices[usize::from(extent.device.0)].give(extent.offset, u64::from(extent.bytes));
    }
}

fn device_id(index: usize) -> DeviceId {
    DeviceId(u16::try_from(index).expect("a bank has at most 65,536 devices"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNIT: u32 = UNIT_BYTES as u32;

    fn map(units: u64) -> SpaceMap {
        SpaceMap::new(&[(UNIT_BYTES, (units + 1) * UNIT_BYTES)])
    }

    #[test]
    fn a_run_is_contiguous_and_follows_the_last_one() {
        let mut map = map(16);
        let first = map.allocate_run(&[UNIT, 2 * UNIT]).expect("room");
        let second = map.allocate_run(&[UNIT]).expect("room");
        assert_eq!(first[0].end(), first[1].offset);
        assert_eq!(first[1].end(), second[0].offset);
        map.free(first[0]);
        let third = map.allocate_run(&[UNIT]).expect("room");
        assert_eq!(third[0].offset, second[0].end(), "next fit does not turn back at once");
    }

    #[test]
    fn a_run_is_cut_where_space_is_scattered() {
        let mut map = map(4);
        let all = map.allocate_run(&[UNIT; 4]).expect("room");
        map.free(all[0]);
        map.free(all[2]);
        let cut = map.allocate_run(&[UNIT, UNIT]).expect("two single units");
        assert_ne!(cut[0].end(), cut[1].offset);
        assert!(map.allocate_run(&[UNIT]).is_none());
    }

    #[test]
    fn a_refused_run_takes_nothing() {
        let mut map = map(3);
        assert!(map.allocate_run(&[UNIT, UNIT, UNIT, UNIT]).is_none());
        assert_eq!(map.free_bytes(), 3 * UNIT_BYTES);
    }

    #[test]
    fn claims_are_exclusive_and_inside() {
        let mut map = map(4);
        let extent = Extent { device: DeviceId(0), offset: UNIT_BYTES, bytes: UNIT };
        assert_eq!(map.claim(extent), Ok(()));
        assert_eq!(map.claim(extent), Err(Overlap(extent)));
        let outside = Extent { offset: 64 * UNIT_BYTES, ..extent };
        assert_eq!(map.claim(outside), Err(Overlap(outside)));
        let elsewhere = Extent { device: DeviceId(7), ..extent };
        assert_eq!(map.claim(elsewhere), Err(Overlap(elsewhere)));
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_double_free_is_caught() {
        let mut map = map(4);
        let extent = map.allocate_high(UNIT).expect("room");
        map.free(extent);
        map.free(extent);
    }

    proptest! {
        #[test]
        fn used_extents_never_overlap(steps in prop::collection::vec((0u8..4, 1u32..6), 1..200)) {
            let mut map = SpaceMap::new(&[(0, 64 * UNIT_BYTES), (UNIT_BYTES, 40 * UNIT_BYTES)]);
            let mut used: Vec<Extent> = Vec::new();
            for (step, size) in steps {
                match step {
                    0 => used.extend(map.allocate_run(&[UNIT; 5][..size.min(5) as usize])
                        .unwrap_or_default()),
                    1 => used.extend(map.allocate_high(size * UNIT)),
                    _ if used.is_empty() => {}
                    _ => map.free(used.swap_remove(size as usize % used.len())),
                }
                let mut sorted = used.clone();
                sorted.sort_unstable();
                for pair in sorted.windows(2) {
                    prop_assert!(pair[0].device != pair[1].device
                        || pair[0].end() <= pair[1].offset);
                }
                let bytes: u64 = used.iter().map(|extent| u64::from(extent.bytes)).sum();
                prop_assert_eq!(map.used_bytes(), bytes);
            }
        }
    }
}
