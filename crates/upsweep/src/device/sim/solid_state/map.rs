//! The mapping: which place holds a unit.
//!
//! It has an entry for the units that were written or discarded since time 0, in groups of 64; the
//! others are where they were at the start.

use std::collections::BTreeMap;

use super::filled::Filled;

const GROUP_UNITS: u32 = 64;
/// The entry of a unit that is as at the start.
const AS_FILLED: u32 = u32::MAX;
/// The entry of a unit that has no place any more.
const NOWHERE: u32 = u32::MAX - 1;

/// The mapping.
#[derive(Clone, Debug)]
pub(super) struct Map {
    groups: BTreeMap<u32, Box<[u32; GROUP_UNITS as usize]>>,
    filled: Filled,
}

impl Map {
    pub(super) fn new(filled: Filled) -> Self {
        Self { groups: BTreeMap::new(), filled }
    }

    /// The content at time 0.
    pub(super) fn filled(&self) -> &Filled {
        &self.filled
    }

    /// Where a unit is.
    pub(super) fn place(&self, unit: u32) -> Option<u32> {
        let group = self.groups.get(&(unit / GROUP_UNITS));
        match group.map_or(AS_FILLED, |group| group[(unit % GROUP_UNITS) as usize]) {
            AS_FILLED => self.filled.place(unit),
            NOWHERE => None,
            place => Some(place),
        }
    }

    /// Moves a unit, or removes it; returns where it was.
    pub(super) fn put(&mut self, unit: u32, place: Option<u32>) -> Option<u32> {
        let number = unit / GROUP_UNITS;
        let gone = if unit < self.filled.units() { NOWHERE } else { AS_FILLED };
        let group = self.groups.entry(number).or_insert_with(|| Box::new([AS_FILLED; _]));
        let entry = &mut group[(unit % GROUP_UNITS) as usize];
        let before = std::mem::replace(entry, place.unwrap_or(gone));
        if place.is_none() && group.iter().all(|entry| *entry == AS_FILLED) {
            self.groups.remove(&number);
        }
        match before {
            AS_FILLED => self.filled.place(unit),
            NOWHERE => None,
            place => Some(place),
        }
    }

    /// The units from `first` up to `end` that have a place. Costs time for those in groups with an
    /// entry, and for those that had a place at the start.
    pub(super) fn mapped(&self, first: u32, end: u32) -> Vec<u32> {
        let has_place = |unit: &u32| self.place(*unit).is_some();
        let mut units: Vec<u32> = (first..end.min(self.filled.units())).filter(has_place).collect();
        let others = first.max(self.filled.units());
        if others < end {
            let groups = self.groups.range(others / GROUP_UNITS..=(end - 1) / GROUP_UNITS);
            for number in groups.map(|(number, _)| *number) {
                let from = number * GROUP_UNITS;
                let inside = from.max(others)..(from.saturating_add(GROUP_UNITS)).min(end);
                units.extend(inside.filter(has_place));
            }
        }
        units
    }

    /// Groups with an entry.
    #[cfg(test)]
    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }
}
