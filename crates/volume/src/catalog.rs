//! The catalog: volumes, their snapshots, and the branches that both look at.
//!
//! It is a table, and small, so all of it is also in memory. A *branch* is a line of versions. A
//! volume looks at the present of its branch, a snapshot at a moment of one. A clone has a branch
//! of its own, and sees through it what its source was at that moment; so does a volume that was
//! rolled back.
//!
//! Invariant: a branch is there as long as a volume, a snapshot or a child looks at it, and until
//! its entries are gone.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use upsweep::{Durability, Store, Table};

use crate::address::{BLOCK_BYTES, BLOCKS_MAX, Branch, Physical, Stamp};
use crate::error::Error;
use crate::trim::{BranchNeeds, Needs};
use crate::versions::Kept;

const TABLE: &str = "volumes/catalog";
const NAME_BYTES_MAX: usize = 128;
const FORMAT: u32 = 1;

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRow {
    /// Its name.
    pub name: String,
    /// The branch that it looks at.
    pub branch: u32,
    /// Its size in bytes.
    pub bytes: u64,
    /// The moment that it shows; `None`: the present, which can be written.
    pub fixed_at: Option<u64>,
}

/// A branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchRow {
    /// What it continues: a branch, and the last moment of it that is part of this one.
    pub parent: Option<(u32, u64)>,
}

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRow {
    /// The branch and the moment that it looks at.
    pub branch: u32,
    /// The moment.
    pub stamp: u64,
    /// The size of the volume then, in bytes.
    pub bytes: u64,
}

/// What is stable, as of some time ago: recovery looks at the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledRow {
    /// Changes up to this stamp are on stable media.
    pub stamp: u64,
    /// The records of all others have higher sequences of the store.
    pub seq: u64,
    /// The payload of all others is from this slot on.
    pub home: u64,
    /// The slot in that home.
    pub slot: u16,
}

impl SettledRow {
    /// Its first slot.
    pub fn first(&self) -> Physical {
        Physical { home: self.home, slot: self.slot }
    }
}

/// What the tables of volumes were made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatRow {
    version: u32,
    /// Slots of a home.
    pub slots_per_home: u16,
}

/// The catalog in memory, and its table.
pub struct Catalog {
    store: Store,
    table: Table,
    pub format: FormatRow,
    pub settled: SettledRow,
    /// By number, which nothing changes.
    pub volumes: BTreeMap<u32, VolumeRow>,
    names: BTreeMap<String, u32>,
    pub branches: BTreeMap<Branch, BranchRow>,
    /// By number of the volume, and name.
    pub snapshots: BTreeMap<(u32, String), SnapshotRow>,
    /// Branches that are walked to trim what no one looks at any more, each with the next chunk.
    pub walks: BTreeMap<Branch, u64>,
    next_volume: u32,
    next_branch: u32,
}

const FORMAT_KEY: &[u8] = b"format";
const SETTLED_KEY: &[u8] = b"settled";

fn volume_key(volume: u32) -> Vec<u8> {
    [&b"volume/"[..], &volume.to_be_bytes()].concat()
}

fn branch_key(branch: Branch) -> Vec<u8> {
    [&b"branch/"[..], &branch.0.to_be_bytes()].concat()
}

fn walk_key(branch: Branch) -> Vec<u8> {
    [&b"walk/"[..], &branch.0.to_be_bytes()].concat()
}

fn snapshot_key(volume: u32, name: &str) -> Vec<u8> {
    [&b"snapshot/"[..], &volume.to_be_bytes(), name.as_bytes()].concat()
}

fn encode(row: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(row).expect("it is encoded to memory")
}

fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, Error> {
    postcard::from_bytes(value).map_err(|_| malformed(key))
}

fn malformed(key: &[u8]) -> Error {
    Error::Tables(format!("{:?} in the catalog", String::from_utf8_lossy(key)))
}

/// Checks the name of a volume or snapshot.
pub fn check_name(name: &str) -> Result<(), Error> {
    let is_allowed = |letter: char| !letter.is_control() && letter != '/' && letter != '@';
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if fits && name.chars().all(is_allowed) { Ok(()) } else { Err(Error::BadName(name.to_owned())) }
}

/// Checks the size of a volume.
pub fn check_size(bytes: u64) -> Result<(), Error> {
    let blocks = bytes / BLOCK_BYTES;
    let fits = bytes.is_multiple_of(BLOCK_BYTES) && (1..=BLOCKS_MAX).contains(&blocks);
    if fits { Ok(()) } else { Err(Error::BadSize(bytes)) }
}

impl Catalog {
    /// Reads the catalog of a store; makes an empty one if there is none.
    pub fn open(store: &Store, slots_per_home: u16) -> Result<Self, Error> {
        let table = store.table(TABLE)?;
        let mut catalog = Self {
            store: store.clone(),
            table,
            format: FormatRow { version: FORMAT, slots_per_home },
            settled: SettledRow { home: 1, ..SettledRow::default() },
            volumes: BTreeMap::new(),
            names: BTreeMap::new(),
            branches: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            walks: BTreeMap::new(),
            next_volume: 1,
            next_branch: 1,
        };
        match catalog.table.get(FORMAT_KEY)? {
            Some(found) => catalog.format = decode(FORMAT_KEY, &found)?,
            None => drop(catalog.table.put(FORMAT_KEY, &encode(&catalog.format))?),
        }
        if catalog.format.version != FORMAT {
            let version = catalog.format.version;
            return Err(Error::Tables(format!("they are of version {version}, not {FORMAT}")));
        }
        for record in catalog.table.clone().iter() {
            let (key, value) = record?;
            catalog.load(&key, &value)?;
        }
        Ok(catalog)
    }

    fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let name_of = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| malformed(key));
        let number_of = |bytes: &[u8]| {
            let bytes = bytes.try_into().map_err(|_| malformed(key))?;
            Ok::<_, Error>(u32::from_be_bytes(bytes))
        };
        if let Some(number) = key.strip_prefix(b"volume/") {
            let (number, row): (u32, VolumeRow) = (number_of(number)?, decode(key, value)?);
            self.next_volume = self.next_volume.max(number + 1);
            self.names.insert(row.name.clone(), number);
            self.volumes.insert(number, row);
        } else if let Some(number) = key.strip_prefix(b"branch/") {
            let branch = Branch(number_of(number)?);
            self.next_branch = self.next_branch.max(branch.0 + 1);
            self.branches.insert(branch, decode(key, value)?);
        } else if let Some(number) = key.strip_prefix(b"walk/") {
            self.walks.insert(Branch(number_of(number)?), decode(key, value)?);
        } else if let Some(rest) = key.strip_prefix(b"snapshot/") {
            let (volume, name) = rest.split_first_chunk().ok_or_else(|| malformed(key))?;
            let volume = u32::from_be_bytes(*volume);
            self.next_volume = self.next_volume.max(volume + 1);
            self.snapshots.insert((volume, name_of(name)?), decode(key, value)?);
        } else if key == SETTLED_KEY {
            self.settled = decode(key, value)?;
        } else if key != FORMAT_KEY {
            return Err(malformed(key));
        }
        Ok(())
    }

    /// The number of the volume of this name.
    pub fn number(&self, name: &str) -> Result<u32, Error> {
        self.names.get(name).copied().ok_or_else(|| Error::NoVolume(name.to_owned()))
    }

    /// The volume of this name.
    pub fn volume(&self, name: &str) -> Result<&VolumeRow, Error> {
        Ok(&self.volumes[&self.number(name)?])
    }

    /// The snapshot of this name of a volume.
    pub fn snapshot(&self, volume: &str, snapshot: &str) -> Result<&SnapshotRow, Error> {
        let number = self.number(volume)?;
        let missing =
            || Error::NoSnapshot { volume: volume.to_owned(), snapshot: snapshot.to_owned() };
        self.snapshots.get(&(number, snapshot.to_owned())).ok_or_else(missing)
    }

    /// The branches that a look at this moment of a branch goes through, each with the moment to
    /// look at, from itself to the first.
    pub fn line(&self, branch: Branch, at: Stamp) -> Vec<(Branch, Stamp)> {
        let mut line = vec![(branch, at)];
        let mut next = self.branches.get(&branch);
        while let Some((parent, stamp)) = next.and_then(|row| row.parent) {
            // A look at a moment before the branch began sees what its parent was then.
            let at = Stamp(stamp).min(line.last().expect("it has one").1);
            line.push((Branch(parent), at));
            next = self.branches.get(&Branch(parent));
        }
        line
    }

    /// The moments of a branch that someone may look at.
    pub fn kept(&self, branch: Branch) -> Kept {
        let fixed = self.volumes.values().filter_map(|row| Some((row.branch, row.fixed_at?)));
        let snapshots = self.snapshots.values().map(|row| (row.branch, row.stamp));
        let children = self.branches.values().filter_map(|row| row.parent);
        let all = fixed.chain(snapshots).chain(children);
        let mut moments: Vec<Stamp> =
            all.filter(|(of, _)| *of == branch.0).map(|(_, stamp)| Stamp(stamp)).collect();
        moments.sort_unstable();
        moments.dedup();
        let is_present = |row: &VolumeRow| row.branch == branch.0 && row.fixed_at.is_none();
        let since = self.volumes.values().any(is_present).then_some(Stamp::NOW);
        Kept { moments, since }
    }

    /// What can be seen of all branches.
    pub fn needs(&self, until: Stamp) -> Needs {
        let of = |(branch, row): (&Branch, &BranchRow)| {
            let has_parent = row.parent.is_some();
            (*branch, BranchNeeds { kept: self.kept(*branch), has_parent })
        };
        Needs { until, branches: self.branches.iter().map(of).collect() }
    }

    /// Changes some rows together, and waits until that is durable.
    fn commit(&self, changes: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<(), Error> {
        let mut batch = self.store.batch();
        for (key, row) in changes {
            match row {
                Some(row) => batch.put(&self.table, key, row),
                None => batch.delete(&self.table, key),
            };
        }
        batch.commit(Durability::Wait)?;
        Ok(())
    }

    /// Adds a volume on a branch of its own, which continues `parent`.
    pub fn add_volume(
        &mut self,
        name: &str,
        bytes: u64,
        parent: Option<(Branch, Stamp)>,
    ) -> Result<(), Error> {
        check_name(name)?;
        check_size(bytes)?;
        self.check_is_free(name)?;
        let branch = Branch(self.next_branch);
        let branch_row = BranchRow { parent: parent.map(|(of, at)| (of.0, at.0)) };
        let (name, number) = (name.to_owned(), self.next_volume);
        let row = VolumeRow { name: name.clone(), branch: branch.0, bytes, fixed_at: None };
        self.commit(&[
            (branch_key(branch), Some(encode(&branch_row))),
            (volume_key(number), Some(encode(&row))),
        ])?;
        self.branches.insert(branch, branch_row);
        self.names.insert(name, number);
        self.volumes.insert(number, row);
        (self.next_branch, self.next_volume) = (self.next_branch + 1, self.next_volume + 1);
        Ok(())
    }

    fn check_is_free(&self, name: &str) -> Result<(), Error> {
        match self.names.contains_key(name) {
            true => Err(Error::VolumeExists(name.to_owned())),
            false => Ok(()),
        }
    }

    /// Gives a volume another name.
    pub fn rename(&mut self, name: &str, to: &str) -> Result<(), Error> {
        check_name(to)?;
        let number = self.number(name)?;
        self.check_is_free(to)?;
        let row = VolumeRow { name: to.to_owned(), ..self.volumes[&number].clone() };
        self.commit(&[(volume_key(number), Some(encode(&row)))])?;
        self.names.remove(name);
        self.names.insert(to.to_owned(), number);
        self.volumes.insert(number, row);
        Ok(())
    }

    /// Adds snapshots of volumes at one moment.
    pub fn add_snapshots(
        &mut self,
        volumes: &[&str],
        snapshot: &str,
        stamp: Stamp,
    ) -> Result<(), Error> {
        check_name(snapshot)?;
        let mut added = Vec::new();
        for name in volumes {
            let VolumeRow { branch, bytes, fixed_at, .. } = *self.volume(name)?;
            let key = (self.number(name)?, snapshot.to_owned());
            if self.snapshots.contains_key(&key) {
                let (volume, snapshot) = ((*name).to_owned(), snapshot.to_owned());
                return Err(Error::SnapshotExists { volume, snapshot });
            }
            let stamp = fixed_at.unwrap_or(stamp.0);
            added.push((key, SnapshotRow { branch, stamp, bytes }));
        }
        let changes = added
            .iter()
            .map(|((volume, name), row)| (snapshot_key(*volume, name), Some(encode(row))));
        self.commit(&changes.collect::<Vec<_>>())?;
        self.snapshots.extend(added);
        Ok(())
    }

    /// Removes a snapshot.
    pub fn remove_snapshot(&mut self, volume: &str, snapshot: &str) -> Result<(), Error> {
        let branch = Branch(self.snapshot(volume, snapshot)?.branch);
        let number = self.number(volume)?;
        let walk = (walk_key(branch), Some(encode(&0_u64)));
        self.commit(&[(snapshot_key(number, snapshot), None), walk])?;
        self.snapshots.remove(&(number, snapshot.to_owned()));
        self.walks.insert(branch, 0);
        Ok(())
    }

    /// Removes a volume with its snapshots.
    pub fn remove_volume(&mut self, name: &str) -> Result<(), Error> {
        let number = self.number(name)?;
        let of_it = |(volume, _): &&(u32, String)| *volume == number;
        let snapshots: Vec<_> = self.snapshots.keys().filter(of_it).cloned().collect();
        let branches = snapshots.iter().map(|key| self.snapshots[key].branch);
        let branches: BTreeSet<u32> = branches.chain([self.volumes[&number].branch]).collect();
        let walks: BTreeMap<Branch, u64> =
            branches.into_iter().map(|branch| (Branch(branch), 0)).collect();
        let mut changes = vec![(volume_key(number), None)];
        changes.extend(snapshots.iter().map(|(volume, name)| (snapshot_key(*volume, name), None)));
        changes.extend(walks.iter().map(|(of, next)| (walk_key(*of), Some(encode(next)))));
        self.commit(&changes)?;
        self.walks.extend(walks);
        self.volumes.remove(&number);
        self.names.remove(name);
        self.snapshots.retain(|(volume, _), _| *volume != number);
        Ok(())
    }

    /// Records how far a walk has come.
    pub fn note_walk(&mut self, branch: Branch, next: u64) -> Result<(), Error> {
        let table = self.table.with_durability(Durability::Relaxed);
        table.put(&walk_key(branch), &encode(&next))?;
        self.walks.insert(branch, next);
        Ok(())
    }

    /// A walk has come to the end. A branch at which nobody looks is gone, and its parent is
    /// walked: it may have been needed for this branch only.
    pub fn end_walk(&mut self, branch: Branch) -> Result<(), Error> {
        let mut changes = vec![(walk_key(branch), None)];
        let parent = self.branches.get(&branch).and_then(|row| row.parent);
        let is_over = self.kept(branch) == Kept::default();
        let next = parent.filter(|_| is_over).map(|(parent, _)| Branch(parent));
        if is_over {
            changes.push((branch_key(branch), None));
        }
        changes.extend(next.map(|parent| (walk_key(parent), Some(encode(&0_u64)))));
        self.commit(&changes)?;
        self.walks.remove(&branch);
        if is_over {
            self.branches.remove(&branch);
        }
        self.walks.extend(next.map(|parent| (parent, 0)));
        Ok(())
    }

    /// Records what is stable, without waiting for that to be durable.
    pub fn settle(&mut self, settled: SettledRow) -> Result<(), Error> {
        let table = self.table.with_durability(Durability::Relaxed);
        table.put(SETTLED_KEY, &encode(&settled))?;
        self.settled = settled;
        Ok(())
    }
}
