//! The mapping: which place holds a unit.
//!
//! It has an entry for the units that were written, copied or discarded since time 0, in groups of
//! 64; the others are where they were at the start. Groups hang in a tree of two levels, which
//! grows where it is used.

use super::filled::Filled;

const GROUP_UNITS: usize = 64;
const BRANCH_GROUPS: usize = 256;
const BRANCH_UNITS: usize = GROUP_UNITS * BRANCH_GROUPS;
/// The entry of a unit that is as at the start.
const AS_FILLED: u32 = u32::MAX;
/// The entry of a unit that has no place any more.
const NOWHERE: u32 = u32::MAX - 1;

type Group = Option<Box<[u32; GROUP_UNITS]>>;

/// The mapping.
#[derive(Clone, Debug)]
pub(super) struct Map {
    branches: Vec<Branch>,
    filled: Filled,
}

#[derive(Clone, Debug, Default)]
struct Branch {
    /// None or [`BRANCH_GROUPS`].
    groups: Vec<Group>,
    /// How many of them there are.
    used: usize,
}

/// The branch of a unit, the group in that, and the entry in that.
fn path(unit: u32) -> (usize, usize, usize) {
    let unit = unit as usize;
    (unit / BRANCH_UNITS, unit % BRANCH_UNITS / GROUP_UNITS, unit % GROUP_UNITS)
}

impl Map {
    pub(super) fn new(filled: Filled) -> Self {
        Self { branches: Vec::new(), filled }
    }

    /// The content at time 0.
    pub(super) fn filled(&self) -> &Filled {
        &self.filled
    }

    fn entry(&self, unit: u32) -> u32 {
        let (branch, group, entry) = path(unit);
        let branch = self.branches.get(branch);
        let group = branch.and_then(|branch| branch.groups.get(group)?.as_ref());
        group.map_or(AS_FILLED, |group| group[entry])
    }

    fn meaning(&self, unit: u32, entry: u32) -> Option<u32> {
        match entry {
            AS_FILLED => self.filled.place(unit),
            NOWHERE => None,
            place => Some(place),
        }
    }

    /// Where a unit is.
    pub(super) fn place(&self, unit: u32) -> Option<u32> {
        self.meaning(unit, self.entry(unit))
    }

    /// Whether a unit is where it was at the start, or was nowhere and is.
    pub(super) fn is_as_filled(&self, unit: u32) -> bool {
        self.entry(unit) == AS_FILLED
    }

    /// Moves a unit, or removes it; returns where it was.
    pub(super) fn put(&mut self, unit: u32, place: Option<u32>) -> Option<u32> {
        let (branch, group, entry) = path(unit);
        if self.branches.len() <= branch {
            self.branches.resize_with(branch + 1, Branch::default);
        }
        let gone = if unit < self.filled.units() { NOWHERE } else { AS_FILLED };
        let branch = &mut self.branches[branch];
        if branch.groups.is_empty() {
            branch.groups.resize_with(BRANCH_GROUPS, || None);
        }
        let found = &mut branch.groups[group];
        branch.used += usize::from(found.is_none());
        let entries = found.get_or_insert_with(|| Box::new([AS_FILLED; GROUP_UNITS]));
        let before = std::mem::replace(&mut entries[entry], place.unwrap_or(gone));
        if place.is_none() && entries.iter().all(|entry| *entry == AS_FILLED) {
            *found = None;
            branch.used -= 1;
            if branch.used == 0 {
                branch.groups = Vec::new();
            }
        }
        self.meaning(unit, before)
    }

    /// The units from `first` up to `end` that have a place. Costs time for those in groups with an
    /// entry, and for those that had a place at the start.
    pub(super) fn mapped(&self, first: u32, end: u32) -> Vec<u32> {
        let has_place = |unit: &u32| self.place(*unit).is_some();
        let mut units: Vec<u32> = (first..end.min(self.filled.units())).filter(has_place).collect();
        let mut next = first.max(self.filled.units());
        while next < end {
            let (branch, group, entry) = path(next);
            let groups = self.branches.get(branch).map_or(&[][..], |branch| &branch.groups);
            // The rest of what has no entries is passed over.
            let step = match groups.get(group) {
                None => BRANCH_UNITS - (next as usize % BRANCH_UNITS),
                Some(None) => GROUP_UNITS - entry,
                Some(Some(_)) => {
                    units.extend(Some(next).filter(has_place));
                    1
                }
            };
            next = next.saturating_add(step as u32);
        }
        units
    }

    /// Groups with an entry.
    #[cfg(test)]
    pub(super) fn groups(&self) -> usize {
        self.branches.iter().map(|branch| branch.used).sum()
    }
}
