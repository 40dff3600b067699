//! The map of free and used space of the data devices.
//!
//! Invariants: free extents of a device are disjoint, not adjacent, inside the device, and together
//! with the used ones and the holes cover it exactly; all are multiples of [`UNIT_BYTES`]. The map
//! is derived: it is rebuilt from the directory at open, so that it can never disagree with the
//! directory on disk.
//!
//! A *hole* is a range of a file that the file system need not have allocated. It is neither used
//! nor free: nothing is placed there until it has been allocated. Holes are whole *granules*,
//! aligned by offset, so that a granule with anything used or free in it is fully allocated.
//!
//! Runs are placed *next fit* after a cursor that follows the sweep: the sweep reads in physical
//! order and frees the space behind it, the cursor fills that space, so runs stay in the order in
//! which they were visited and the next sweep, which begins at the cursor, reads sequentially
//! again. (After a restart both begin at the start of the device.) Where a device has boundaries,
//! such as tracks, an image lies between two of them, and a later image of a run may fill the end
//! of a track. Pages of the directory and large values, which live longer, go to the other end of
//! the device. (Bosc paper, section 4.2; Lachesis paper, section 4.)

use super::boundaries::Boundaries;
use super::device_space::{DeviceSpace, whole_granules};
use super::ranges::Ranges;
use crate::device::DeviceId;
use crate::error::Location;

/// Allocation unit in bytes: the largest sector of the devices that Upsweep supports.
pub const UNIT_BYTES: u64 = 4096;

/// Most data devices.
pub const DEVICES_MAX: u16 = 1 << 10;

/// Most bytes used of a data device: 64 TiB.
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

    /// Its first byte.
    #[must_use]
    pub fn location(self) -> Location {
        Location { device: self.device, offset: self.offset }
    }

    /// Device, offset and length in bytes, as reads take them.
    #[must_use]
    pub fn range(self) -> (DeviceId, u64, usize) {
        (self.device, self.offset, self.bytes as usize)
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

/// Free and used space of all data devices.
#[derive(Clone)]
pub struct SpaceMap {
    devices: Vec<DeviceSpace>,
}

impl SpaceMap {
    /// A map with all of `start..end` (in bytes, whole units) of each device free; device `i` is
    /// number `i`.
    #[must_use]
    pub fn new(ranges: &[(u64, u64)]) -> Self {
        let devices = ranges.iter().map(|&(start, end)| {
            assert!(
                start.is_multiple_of(UNIT_BYTES) && end >= start,
                "a device range in whole units"
            );
            DeviceSpace::new(start, end - end % UNIT_BYTES)
        });
        Self { devices: devices.collect() }
    }

    /// Sets the boundaries that images do not straddle from now on, of each device in order;
    /// further devices have none.
    pub fn set_boundaries(&mut self, boundaries: &[Boundaries]) {
        for (space, boundaries) in self.devices.iter_mut().zip(boundaries) {
            space.boundaries = boundaries.clone();
        }
    }

    /// The unit between boundaries of a device that a byte is in: see [`Boundaries::unit_of`].
    #[must_use]
    pub fn unit_of(&self, device: DeviceId, offset: u64) -> (u64, u64) {
        self.devices[usize::from(device.0)].boundaries.unit_of(offset)
    }

    /// Where an access to a device should end: see [`Boundaries::end_of_access`].
    #[must_use]
    pub fn end_of_access(&self, device: DeviceId, start: u64, bytes_max: u64) -> u64 {
        self.devices[usize::from(device.0)].boundaries.end_of_access(start, bytes_max)
    }

    /// Bytes that are free, but at the end of a unit between boundaries, behind an image: lost
    /// unless something short comes. Cost: O(free extents).
    #[must_use]
    pub fn remainder_bytes(&self) -> u64 {
        self.devices.iter().map(DeviceSpace::remainder_bytes).sum()
    }

    /// Bytes that are used or free, that is, all except holes.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        (0..self.devices.len()).map(|index| self.capacity_bytes_of(device_id(index))).sum()
    }

    /// The same of one device.
    #[must_use]
    pub fn capacity_bytes_of(&self, device: DeviceId) -> u64 {
        let space = &self.devices[usize::from(device.0)];
        space.end - space.start - space.holes.bytes
    }

    /// Bytes that are free.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.devices.iter().map(|device| device.free.bytes).sum()
    }

    /// Bytes in holes.
    #[must_use]
    pub fn hole_bytes(&self) -> u64 {
        self.devices.iter().map(|device| device.holes.bytes).sum()
    }

    /// Bytes that are used.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.capacity_bytes() - self.free_bytes()
    }

    /// Memory that the map takes, in bytes (estimate of the tree's nodes).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let ranges =
            |device: &DeviceSpace| device.free.by_start.len() + device.holes.by_start.len();
        self.devices.iter().map(|device| ranges(device) * 24).sum()
    }

    /// Whether no byte of this place is free or in a hole.
    #[must_use]
    pub fn is_used(&self, extent: Extent) -> bool {
        let DeviceSpace { free, holes, .. } = &self.devices[usize::from(extent.device.0)];
        let touches = |ranges: &Ranges| {
            let last = ranges.by_start.range(..extent.end()).next_back();
            last.is_some_and(|(start, length)| start + length > extent.offset)
        };
        !touches(free) && !touches(holes)
    }

    /// The free extents of one device, in order, as (offset, bytes).
    pub fn free_extents(&self, device: DeviceId) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.devices[usize::from(device.0)].free.starting_at(0)
    }

    /// The holes of one device, in order, as (offset, bytes).
    pub fn holes(&self, device: DeviceId) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.devices[usize::from(device.0)].holes.starting_at(0)
    }

    /// Turns all free granules of `granule` bytes (whole units) into holes: for use at open, when
    /// it is unknown whether they are allocated. Cost: O(free extents).
    pub fn take_for_holes(&mut self, device: DeviceId, granule: u64) {
        let free: Vec<(u64, u64)> = self.free_extents(device).collect();
        for (offset, bytes) in free.into_iter().filter_map(|range| whole_granules(range, granule)) {
            self.punch(device, offset, bytes);
        }
    }

    fn punch(&mut self, device: DeviceId, offset: u64, bytes: u64) {
        let space = &mut self.devices[usize::from(device.0)];
        let taken = space.free.take(offset, bytes);
        assert!(taken, "a hole is made of free space");
        space.holes.give(offset, bytes);
    }

    /// Turns at most `bytes` of free space in whole granules into a hole, and returns it as
    /// (offset, bytes): high on the device that has most free space, away from the place of the
    /// next run. Only devices for which `allows` holds are considered. `None` if no granule is
    /// free. Cost: O(free extents) at worst.
    pub fn punch_high(
        &mut self,
        granule: u64,
        bytes: u64,
        allows: impl Fn(DeviceId) -> bool,
    ) -> Option<(DeviceId, u64, u64)> {
        let most = bytes - bytes % granule;
        let devices = (0..).map(DeviceId).zip(&self.devices);
        let allowed = devices.filter(|(device, _)| most > 0 && allows(*device));
        let found = allowed
            .filter_map(|(device, space)| Some((device, space, space.highest_free(granule)?)));
        let (device, _, (start, length)) = found.max_by_key(|(_, space, _)| space.free.bytes)?;
        let bytes = length.min(most);
        let offset = start + length - bytes;
        self.punch(device, offset, bytes);
        Some((device, offset, bytes))
    }

    /// The highest hole of a device below `to`, its last `bytes` at most, as (offset, bytes).
    #[must_use]
    pub fn hole_below(&self, device: DeviceId, to: u64, bytes: u64) -> Option<(u64, u64)> {
        let (start, length) = self.devices[usize::from(device.0)].holes.below(to).next()?;
        let bytes = length.min(bytes);
        Some((start + length - bytes, bytes))
    }

    /// The shortest range that begins with the first hole of a device at or after `from` and has
    /// `bytes` of holes, or all that exist; as (offset, bytes, bytes of holes in it).
    #[must_use]
    pub fn holes_from(&self, device: DeviceId, from: u64, bytes: u64) -> Option<(u64, u64, u64)> {
        let (mut found, mut end) = (0, 0);
        let mut first = None;
        for (start, length) in self.devices[usize::from(device.0)].holes.starting_at(from) {
            let part = length.min(bytes - found);
            first.get_or_insert(start);
            (found, end) = (found + part, start + part);
            if found == bytes {
                break;
            }
        }
        first.map(|first| (first, end - first, found))
    }

    /// Turns the holes in a range, which has been allocated, into free space.
    pub fn fill_holes(&mut self, device: DeviceId, offset: u64, bytes: u64) {
        let (space, end) = (&mut self.devices[usize::from(device.0)], offset + bytes);
        let holes: Vec<(u64, u64)> =
            space.holes.starting_at(offset).take_while(|(start, _)| *start < end).collect();
        for (start, length) in holes {
            let length = length.min(end - start);
            let taken = space.holes.take(start, length);
            assert!(taken, "just found");
            space.free.give(start, length);
        }
    }

    /// Moves the end of `device` to `end` bytes.
    pub fn grow(&mut self, device: DeviceId, end: u64) {
        let space = &mut self.devices[usize::from(device.0)];
        let end = end - end % UNIT_BYTES;
        if end > space.end {
            let old = space.end;
            space.end = end;
            space.free.give(old, end - old);
        }
    }

    /// End of the managed range of `device`, in bytes.
    #[must_use]
    pub fn end(&self, device: DeviceId) -> u64 {
        self.devices[usize::from(device.0)].end
    }

    /// Marks a free extent as used, to rebuild the map at open.
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
        if whole_units && space.free.take(extent.offset, u64::from(extent.bytes)) {
            Ok(())
        } else {
            Err(Overlap(extent))
        }
    }

    /// The place of the next run on `device`, if there is room: after the last one.
    #[must_use]
    pub fn next_place(&self, device: DeviceId) -> u64 {
        self.devices[usize::from(device.0)].cursor
    }

    /// Places images of these lengths (bytes, whole units) consecutively in as few pieces as free
    /// space allows, on the device with most free space; between boundaries, where there are some.
    /// `None`, with nothing allocated, if there is no room. Cost: O(free extents) at worst.
    pub fn allocate_run(&mut self, lengths: &[u32]) -> Option<Vec<Extent>> {
        let device = (0..self.devices.len()).max_by_key(|&index| self.devices[index].free.bytes)?;
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
        if let Some((places, end)) = space.next_fit(lengths) {
            space.cursor = end;
            self.take_all(device, &places, lengths, extents);
            return true;
        }
        if lengths.len() == 1 {
            let other = (0..self.devices.len()).find_map(|index| {
                self.devices[index].next_fit(lengths).map(|(places, _)| (index, places))
            });
            let Some((index, places)) = other else { return false };
            self.take_all(index, &places, lengths, extents);
            return true;
        }
        let (left, right) = lengths.split_at(lengths.len() / 2);
        self.place(device, left, extents) && self.place(device, right, extents)
    }

    /// Marks the places that were found for images of these lengths as used.
    fn take_all(
        &mut self,
        device: usize,
        places: &[u64],
        lengths: &[u32],
        extents: &mut Vec<Extent>,
    ) {
        for (&offset, &bytes) in places.iter().zip(lengths) {
            let taken = self.devices[device].free.take(offset, u64::from(bytes));
            assert!(taken, "next fit found room");
            extents.push(Extent { device: device_id(device), offset, bytes });
        }
    }

    /// Places one long-lived image of `bytes` (whole units) as high as possible.
    pub fn allocate_high(&mut self, bytes: u32) -> Option<Extent> {
        let (index, offset) = (0..self.devices.len())
            .filter_map(|index| Some((index, self.devices[index].last_fit(u64::from(bytes))?)))
            .max_by_key(|&(index, _)| self.devices[index].free.bytes)?;
        let taken = self.devices[index].free.take(offset, u64::from(bytes));
        assert!(taken, "last fit found room");
        Some(Extent { device: device_id(index), offset, bytes })
    }

    /// Reserves `bytes` (whole units) that are no image, as high as possible on the device with
    /// most free space that has them in one piece; boundaries do not matter.
    pub fn reserve(&mut self, bytes: u32) -> Option<Extent> {
        let wanted = u64::from(bytes);
        let highest = |space: &DeviceSpace| {
            let mut ranges = space.free.below(space.end);
            let (start, length) = ranges.find(|(_, length)| *length >= wanted)?;
            Some(start + length - wanted)
        };
        let fits = self.devices.iter().enumerate();
        let fits = fits.filter_map(|(index, space)| Some((index, highest(space)?)));
        let (index, offset) = fits.max_by_key(|(index, _)| self.devices[*index].free.bytes)?;
        let taken = self.devices[index].free.take(offset, wanted);
        assert!(taken, "just found");
        Some(Extent { device: device_id(index), offset, bytes })
    }

    /// Frees an extent.
    ///
    /// # Panics
    /// When any of it is free or in a hole already: a double free is a bug of the engine.
    pub fn free(&mut self, extent: Extent) {
        let space = &mut self.devices[usize::from(extent.device.0)];
        let hole = space.holes.starting_at(extent.offset).next();
        assert!(hole.is_none_or(|(start, _)| start >= extent.end()), "a hole is freed");
        space.free.give(extent.offset, u64::from(extent.bytes));
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
    fn what_is_left_of_a_track_behind_an_image_is_counted() {
        let mut map = map(40);
        assert_eq!(map.remainder_bytes(), 0);
        // Tracks of five pages and a half, from the start of the device: the first page of the map
        // is the second one of a track.
        let tracks = Boundaries::new([(0, 11 * UNIT_BYTES / 2, 7)]).expect("in order");
        map.set_boundaries(&[tracks]);
        let first = map.allocate_run(&[3 * UNIT, 4 * UNIT]).expect("room");
        assert_eq!(first.iter().map(|at| at.offset / UNIT_BYTES).collect::<Vec<_>>(), [1, 6]);
        // A page of the first track, and the one that the boundary cuts.
        assert_eq!(map.remainder_bytes(), 2 * UNIT_BYTES);
        map.free(first[0]);
        assert_eq!(map.remainder_bytes(), 5 * UNIT_BYTES, "with what was before it");
        map.free(first[1]);
        assert_eq!(map.remainder_bytes(), 0);
    }

    #[test]
    fn a_reservation_is_one_piece_wherever_boundaries_are() {
        let mut map = map(40);
        map.set_boundaries(&[Boundaries::new([(0, 8 * UNIT_BYTES, 7)]).expect("in order")]);
        let low = map.allocate_run(&[UNIT]).expect("room");
        let reserved = map.reserve(20 * UNIT).expect("room");
        assert_eq!((reserved.end(), reserved.bytes), (41 * UNIT_BYTES, 20 * UNIT));
        assert_eq!(map.reserve(20 * UNIT), None, "19 are left");
        assert_eq!(map.free_bytes(), 19 * UNIT_BYTES);
        assert!(map.is_used(reserved) && map.is_used(low[0]));
        map.free(reserved);
        assert_eq!(map.reserve(39 * UNIT).map(|extent| extent.offset), Some(2 * UNIT_BYTES));
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

    #[test]
    fn holes_are_whole_granules_and_nothing_is_placed_in_them() {
        let mut map = map(15);
        let device = DeviceId(0);
        let used = Extent { device, offset: 9 * UNIT_BYTES, bytes: UNIT };
        map.claim(used).expect("free");
        map.take_for_holes(device, 4 * UNIT_BYTES);
        // Units 1 to 3 are not a whole granule, and 8 to 11 have a used unit.
        let units = |units: u64| units * UNIT_BYTES;
        assert_eq!(
            map.holes(device).collect::<Vec<_>>(),
            [(units(4), units(4)), (units(12), units(4))]
        );
        assert_eq!((map.used_bytes(), map.hole_bytes()), (units(1), units(8)));
        assert_eq!((map.capacity_bytes(), map.free_bytes()), (units(7), units(6)));
        assert!(map.allocate_run(&[4 * UNIT]).is_none());
        // The requested space may be in two holes, with used space between.
        assert_eq!(map.holes_from(device, 0, units(6)), Some((units(4), units(10), units(6))));
        assert_eq!(
            map.holes_from(device, units(8), units(6)),
            Some((units(12), units(4), units(4)))
        );
        assert_eq!(map.hole_below(device, u64::MAX, units(2)), Some((units(14), units(2))));
        map.fill_holes(device, units(4), units(10));
        assert_eq!((map.hole_bytes(), map.free_bytes()), (units(2), units(12)));
        assert!(map.allocate_run(&[4 * UNIT]).is_some());
    }

    #[test]
    fn holes_are_punched_high_and_last_where_the_next_run_goes() {
        let mut map = map(31);
        let device = DeviceId(0);
        let granule = 4 * UNIT_BYTES;
        let runs = map.allocate_run(&[16 * UNIT, UNIT]).expect("room");
        map.free(runs[0]);
        // Free are units 1 to 16 and, where the next run goes, 18 to 31.
        let mut punch = |bytes| map.punch_high(granule, bytes, |_| true);
        let units = |units: u64| units * UNIT_BYTES;
        assert_eq!(punch(granule - 1), None);
        assert_eq!(punch(units(9)), Some((device, units(8), units(8))));
        assert_eq!(punch(units(100)), Some((device, units(4), units(4))));
        assert_eq!(punch(granule), Some((device, units(28), granule)));
        assert_eq!(map.punch_high(granule, granule, |_| false), None);
    }

    #[test]
    #[should_panic(expected = "a hole is freed")]
    fn a_hole_is_not_freed() {
        let mut map = map(7);
        map.take_for_holes(DeviceId(0), UNIT_BYTES);
        map.free(Extent { device: DeviceId(0), offset: UNIT_BYTES, bytes: UNIT });
    }

    /// The units of a device that are neither used nor free, found by checking every one.
    fn rest(map: &SpaceMap, device: DeviceId, used: &[Extent], end: u64) -> Vec<u64> {
        let free: Vec<(u64, u64)> = map.free_extents(device).collect();
        let of = |unit: u64, ranges: &[(u64, u64)]| {
            let at = unit * UNIT_BYTES;
            ranges.iter().filter(|(start, bytes)| (*start..start + bytes).contains(&at)).count()
        };
        let used: Vec<(u64, u64)> = used
            .iter()
            .filter(|extent| extent.device == device)
            .map(|extent| (extent.offset, u64::from(extent.bytes)))
            .collect();
        let holes: Vec<(u64, u64)> = map.holes(device).collect();
        for unit in 1..end {
            let times = of(unit, &free) + of(unit, &used) + of(unit, &holes);
            assert_eq!(times, 1, "unit {unit} is used, free or in a hole, and one of them");
        }
        (1..end).filter(|unit| of(*unit, &holes) > 0).collect()
    }

    proptest! {
        #[test]
        fn all_is_used_or_free_or_a_hole(
            granule in 1u64..5,
            steps in prop::collection::vec((0u8..6, 1u32..9), 1..200),
        ) {
            let (end, device) = (50, DeviceId(0));
            let mut map = SpaceMap::new(&[(UNIT_BYTES, end * UNIT_BYTES)]);
            let mut used: Vec<Extent> = Vec::new();
            map.take_for_holes(device, granule * UNIT_BYTES);
            for (step, size) in steps {
                let bytes = u64::from(size) * UNIT_BYTES;
                match step {
                    0 => used.extend(map.allocate_run(&[UNIT; 8][..size as usize])
                        .unwrap_or_default()),
                    1 => used.extend(map.allocate_high(size * UNIT)),
                    2 => drop(map.punch_high(granule * UNIT_BYTES, bytes, |_| true)),
                    3 => {
                        let (from, wanted) = (granule * (bytes - UNIT_BYTES), granule * bytes);
                        let found = map.holes_from(device, from, wanted);
                        let (offset, bytes, gain) = found.unwrap_or_default();
                        let before = map.free_bytes();
                        map.fill_holes(device, offset, bytes);
                        prop_assert_eq!(map.free_bytes(), before + gain);
                    }
                    _ if used.is_empty() => {}
                    _ => map.free(used.swap_remove(size as usize % used.len())),
                }
                let holes = rest(&map, device, &used, end);
                prop_assert_eq!(map.hole_bytes(), holes.len() as u64 * UNIT_BYTES);
                prop_assert_eq!(
                    map.used_bytes() + map.free_bytes(), map.capacity_bytes());
                for unit in &holes {
                    let first = unit / granule * granule;
                    prop_assert!((first..first + granule).all(|unit| holes.contains(&unit)));
                }
            }
        }

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
