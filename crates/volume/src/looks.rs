//! Who looks at what: volumes, snapshots, histories, clones, and what is being sent and received.
//!
//! Everything that somebody may see is a range of moments of a branch, and all of these ranges are
//! listed here. What is in none of them is trimmed.

use std::collections::BTreeMap;

use crate::address::{Branch, Stamp};
use crate::error::Error;
use crate::rows::{BranchRow, Key, MomentRow, SnapshotRow, VolumeRow, decode, malformed};
use crate::stream::{Header, Identity};
use crate::trim::BranchNeeds;
use crate::versions::Kept;

/// What somebody looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// A branch.
    pub branch: Branch,
    /// A moment of it.
    pub at: Stamp,
    /// The size of the volume then, in bytes.
    pub bytes: u64,
}

impl SnapshotRow {
    /// What it shows.
    pub fn look(&self) -> Look {
        Look { branch: Branch(self.branch), at: Stamp(self.stamp), bytes: self.bytes }
    }
}

/// The rows that say who looks at what.
#[derive(Clone, Default)]
pub struct Rows {
    /// By number, which nothing changes.
    pub volumes: BTreeMap<u32, VolumeRow>,
    pub branches: BTreeMap<Branch, BranchRow>,
    /// By number of the volume, and name.
    pub snapshots: BTreeMap<(u32, String), SnapshotRow>,
    /// By number of the volume, and moment.
    pub moments: BTreeMap<(u32, Stamp), MomentRow>,
    /// Branches that are walked to trim what no one looks at any more, each with the next chunk.
    pub walks: BTreeMap<Branch, u64>,
    /// Volumes that are being received, by number.
    pub receiving: BTreeMap<u32, Header>,
    /// What snapshots were received as, by number of the volume, and name.
    pub origins: BTreeMap<(u32, String), Identity>,
    /// Moments that are being sent, and how often. They are in memory only.
    pub holds: BTreeMap<(Branch, Stamp), usize>,
}

impl Rows {
    pub fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        match Key::of(key).ok_or_else(|| malformed(key))? {
            Key::Volume(number) => drop(self.volumes.insert(number, decode(key, value)?)),
            Key::Branch(branch) => drop(self.branches.insert(branch, decode(key, value)?)),
            Key::Walk(branch) => drop(self.walks.insert(branch, decode(key, value)?)),
            Key::Snapshot(volume, name) => {
                self.snapshots.insert((volume, name), decode(key, value)?);
            }
            Key::Moment(volume, stamp) => {
                self.moments.insert((volume, stamp), decode(key, value)?);
            }
            Key::Receiving(volume) => drop(self.receiving.insert(volume, decode(key, value)?)),
            Key::Origin(volume, name) => {
                self.origins.insert((volume, name), decode(key, value)?);
            }
            Key::Format | Key::Settled | Key::Scrub | Key::Used(_) => {}
        }
        Ok(())
    }

    pub fn remove(&mut self, key: &Key) {
        match key {
            Key::Volume(number) => drop(self.volumes.remove(number)),
            Key::Branch(branch) => drop(self.branches.remove(branch)),
            Key::Walk(branch) => drop(self.walks.remove(branch)),
            Key::Snapshot(volume, name) => drop(self.snapshots.remove(&(*volume, name.clone()))),
            Key::Moment(volume, stamp) => drop(self.moments.remove(&(*volume, *stamp))),
            Key::Receiving(volume) => drop(self.receiving.remove(volume)),
            Key::Origin(volume, name) => drop(self.origins.remove(&(*volume, name.clone()))),
            Key::Format | Key::Settled | Key::Scrub | Key::Used(_) => {}
        }
    }

    /// The branches that a look at this moment of a branch goes through, each with the moment to
    /// look at, from itself to the first. Nobody looks at a moment before the branch began.
    pub fn line(&self, branch: Branch, at: Stamp) -> Vec<(Branch, Stamp)> {
        let mut line = vec![(branch, at)];
        let mut next = self.branches.get(&branch);
        while let Some((parent, stamp)) = next.and_then(|row| row.parent) {
            line.push((Branch(parent), Stamp(stamp)));
            next = self.branches.get(&Branch(parent));
        }
        line
    }

    /// The last moment of which anything is recorded. Moments of changes to come are after it, even
    /// if the clock has been set back and not everything was stable.
    pub fn last_moment(&self) -> Stamp {
        let of_volumes = self.volumes.values().flat_map(|row| {
            let epochs = row.epochs.iter().map(|epoch| epoch.since);
            epochs.chain(row.fixed_at).chain([row.horizon])
        });
        let snapshots = self.snapshots.values().map(|row| row.stamp);
        let parents = self.branches.values().filter_map(|row| row.parent).map(|(_, at)| at);
        let moments = self.moments.keys().map(|(_, at)| at.0);
        let all = of_volumes.chain(snapshots).chain(parents).chain(moments);
        Stamp(all.max().unwrap_or(0))
    }

    /// The ranges of moments that someone may look at, by branch.
    pub fn looked_at(&self) -> impl Iterator<Item = (Branch, Stamp, Stamp)> + '_ {
        let one = |(of, stamp): (u32, u64)| (Branch(of), Stamp(stamp), Stamp(stamp));
        let volumes = self.volumes.values().flat_map(VolumeRow::kept);
        let snapshots = self.snapshots.values().map(move |row| one((row.branch, row.stamp)));
        let children = self.branches.values().filter_map(|row| row.parent).map(one);
        let holds = self.holds.keys().map(|(branch, stamp)| (*branch, *stamp, *stamp));
        // What arrives is seen once all of it is there.
        let received = self.receiving.keys().filter_map(|number| self.volumes.get(number));
        let received = received.map(move |row| one((row.now().branch, Stamp::NOW.0)));
        volumes.chain(snapshots).chain(children).chain(holds).chain(received)
    }

    /// The moments of a branch that someone may look at.
    pub fn kept(&self, branch: Branch) -> Kept {
        let of_it = self.looked_at().filter(|(of, ..)| *of == branch);
        Kept::new(of_it.map(|(_, from, to)| (from, to)).collect())
    }

    /// What can be seen of all branches.
    pub fn needs(&self) -> BTreeMap<Branch, BranchNeeds> {
        let mut ranges: BTreeMap<Branch, Vec<(Stamp, Stamp)>> = BTreeMap::new();
        for (branch, from, to) in self.looked_at() {
            ranges.entry(branch).or_default().push((from, to));
        }
        let of = |(branch, row): (&Branch, &BranchRow)| {
            let kept = Kept::new(ranges.remove(branch).unwrap_or_default());
            (*branch, BranchNeeds { kept, has_parent: row.parent.is_some() })
        };
        self.branches.iter().map(of).collect()
    }

    /// The walks that can go on: those of branches of which nothing is being sent.
    pub fn walks_now(&self) -> BTreeMap<Branch, u64> {
        let mut walks = self.walks.clone();
        walks.retain(|branch, _| self.holds.keys().all(|(held, _)| held != branch));
        walks
    }

    /// The snapshots of a volume.
    pub fn snapshots_of(&self, volume: u32) -> impl Iterator<Item = (&str, &SnapshotRow)> {
        let first = (volume, String::new());
        let of_it = self.snapshots.range(first..).take_while(move |((of, _), _)| *of == volume);
        of_it.map(|((_, name), row)| (name.as_str(), row))
    }

    /// The moments of a volume that are worth a return.
    pub fn moments_of(&self, volume: u32) -> impl DoubleEndedIterator<Item = (Stamp, &MomentRow)> {
        let all = (volume, Stamp(0))..=(volume, Stamp::NOW);
        self.moments.range(all).map(|((_, stamp), row)| (*stamp, row))
    }
}
