//! What is checked of the catalog at an open: everything else relies on rows that agree with each
//! other.

use std::collections::BTreeSet;

use crate::address::{Branch, Stamp};
use crate::catalog::{Catalog, check_name, check_size};
use crate::error::Error;
use crate::home_rows::HOME_MAX;
use crate::looks::Rows;
use crate::rows::{Epoch, FormatRow, Key, VolumeRow, WALK_AGAIN, malformed};
use crate::volumes::CHUNKS_MAX;

impl Catalog {
    /// Checks that its rows agree with each other, as all else relies on.
    pub fn check(&self) -> Result<(), Error> {
        let FormatRow { slots_per_home, .. } = self.format;
        if !(16..=1 << 15).contains(&slots_per_home) || !slots_per_home.is_multiple_of(16) {
            return Err(Error::Tables(format!("homes of {slots_per_home} slots")));
        }
        if self.settled.home > HOME_MAX || !Stamp(self.settled.stamp).is_of_a_change() {
            return Err(malformed(&Key::Settled.bytes()));
        }
        self.rows.check().map_err(|key| malformed(&key.bytes()))
    }
}

impl Rows {
    /// Checks that they agree with each other; the error is one that does not.
    fn check(&self) -> Result<(), Key> {
        let right = |is_right, key: Key| if is_right { Ok(()) } else { Err(key) };
        let is_branch = |branch: u32| self.branches.contains_key(&Branch(branch));
        for (branch, row) in &self.branches {
            // A parent was there before, so lines of branches end.
            let is_parent = |(parent, stamp): (u32, u64)| {
                parent < branch.0 && is_branch(parent) && Stamp(stamp).is_of_a_change()
            };
            let is_right = branch.0 < u32::MAX && row.parent.is_none_or(is_parent);
            right(is_right, Key::Branch(*branch))?;
        }
        let mut names = BTreeSet::new();
        for (number, row) in &self.volumes {
            let is_size = |bytes| check_size(bytes, row.block_size).is_ok();
            let is_epoch = |epoch: &Epoch| is_branch(epoch.branch) && is_size(epoch.bytes);
            let stamps = row.epochs.iter().map(|epoch| epoch.since).chain(row.fixed_at);
            let is_right = check_name(&row.name).is_ok()
                && names.insert(&row.name)
                && !row.epochs.is_empty()
                && row.epochs.iter().all(is_epoch)
                && row.epochs.is_sorted_by(|left, right| left.since < right.since)
                && stamps.chain([row.horizon]).all(|stamp| Stamp(stamp).is_of_a_change());
            right(is_right && *number < u32::MAX, Key::Volume(*number))?;
        }
        for ((number, name), row) in &self.snapshots {
            let is_size = |of: &VolumeRow| check_size(row.bytes, of.block_size).is_ok();
            let is_right = self.volumes.get(number).is_some_and(is_size)
                && is_branch(row.branch)
                && Stamp(row.stamp).is_of_a_change();
            right(is_right, Key::Snapshot(*number, name.clone()))?;
        }
        for (number, header) in &self.receiving {
            let is_right = self.volumes.contains_key(number) && header.check().is_ok();
            right(is_right, Key::Receiving(*number))?;
        }
        for (number, stamp) in self.moments.keys() {
            let is_right = self.volumes.contains_key(number) && stamp.is_of_a_change();
            right(is_right, Key::Moment(*number, *stamp))?;
        }
        let over = self.walks.iter().find(|(_, walk)| **walk & !WALK_AGAIN > CHUNKS_MAX);
        over.map_or(Ok(()), |(branch, _)| Err(Key::Walk(*branch)))
    }
}
