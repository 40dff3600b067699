//! The catalog: volumes, their snapshots and histories, and the branches that all of them look at.
//!
//! It is a table, and small, so all of it is also in memory. A *branch* is a line of versions. A
//! volume looks at the present of its branch, a snapshot at a moment of one. A clone has a branch
//! of its own, and sees through it what its source was at that moment; so does a volume that was
//! rolled back.
//!
//! Invariant: a branch is there as long as a volume, a snapshot or a child looks at it, and until
//! its entries are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use upsweep::{Batch, Durability, Store, Table, Ticket};

use crate::address::{BLOCK_BYTES, BLOCKS_MAX, Branch, Stamp};
use crate::error::Error;
use crate::looks::{Look, Rows};
use crate::quota::{self, Used};
use crate::rows::{
    BlockSize, BranchRow, Epoch, FormatRow, History, Key, MomentKind, MomentRow, RowChange,
    SettledRow, SnapshotRow, VolumeRow, VolumeSettings, decode,
};
use crate::scrub::ScrubPass;
use crate::stream::Header;

const TABLE: &str = "volumes/catalog";
const NAME_BYTES_MAX: usize = 128;
const FORMAT: u32 = 4;

/// The catalog in memory, and its table.
pub struct Catalog {
    pub store: Store,
    /// The identity of the store.
    pub store_id: u128,
    table: Table,
    pub format: FormatRow,
    pub settled: SettledRow,
    pub scrub_pass: ScrubPass,
    pub rows: Rows,
    /// How often they have changed.
    pub changes: u64,
    /// How often the walk of a branch has been begun, or begun anew.
    pub walks_begun: BTreeMap<Branch, u64>,
    names: BTreeMap<String, u32>,
    /// By volume.
    pub activities: BTreeMap<u32, Arc<Activity>>,
    next_volume: u32,
    next_branch: u32,
}

/// What has been written to a volume.
pub struct Activity {
    /// The stamp of the last change.
    pub last: AtomicU64,
    /// The bytes of all.
    pub written: AtomicU64,
    /// What of it is kept.
    pub used: Used,
    /// Held alone by who reads a block to write a part of it, and with others by who writes whole
    /// blocks, which the former must not undo.
    pub partial: RwLock<()>,
}

impl Activity {
    pub fn new(last: Stamp, written: u64, used: Used) -> Self {
        let (last, written) = (AtomicU64::new(last.0), AtomicU64::new(written));
        Self { last, written, used, partial: RwLock::default() }
    }

    /// Notes a change.
    pub fn note(&self, stamp: Stamp, bytes: u64) {
        self.last.fetch_max(stamp.0, Ordering::Relaxed);
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Who writes to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Its users, who see it.
    User,
    /// What arrives in a stream, and is seen once all of it is there.
    Receiver,
    /// A change of the size, which neither the quota nor a setting to read only holds up.
    Resize,
}

/// A moment in the past of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past<'a> {
    /// That of a snapshot.
    Snapshot(&'a str),
    /// That of a mark in its history.
    Mark(&'a str),
    /// Any moment of its history, in microseconds since the Unix epoch.
    At(u64),
}

/// Checks the name of a volume or snapshot.
pub fn check_name(name: &str) -> Result<(), Error> {
    let is_allowed = |letter: char| !letter.is_control() && letter != '/' && letter != '@';
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if fits && name.chars().all(is_allowed) { Ok(()) } else { Err(Error::BadName(name.to_owned())) }
}

/// Checks the size of a volume.
pub fn check_size(bytes: u64, block_size: BlockSize) -> Result<(), Error> {
    let block_bytes = block_size.bytes();
    let is_possible = (1..=BLOCKS_MAX * BLOCK_BYTES).contains(&bytes);
    let fits = is_possible && bytes.is_multiple_of(u64::from(block_bytes));
    if fits { Ok(()) } else { Err(Error::BadSize { bytes, block_bytes }) }
}

/// The blocks of the map that a range covers in whole or in part; those of a volume, from 0 to its
/// size. The rest of its last one is not part of the volume, and may have any content.
pub fn blocks_of(offset: u64, bytes: u64) -> Range<u64> {
    offset / BLOCK_BYTES..(offset + bytes).div_ceil(BLOCK_BYTES)
}

impl Catalog {
    /// Reads the catalog of a store; makes an empty one if there is none.
    pub fn open(store: &Store, slots_per_home: u16) -> Result<Self, Error> {
        let table = store.table(TABLE)?;
        let id = store.status().store;
        let no_id = |_| Error::Tables(format!("the store has the identity {id:?}"));
        let mut catalog = Self {
            store: store.clone(),
            store_id: u128::from_str_radix(&id, 16).map_err(no_id)?,
            table,
            format: FormatRow { version: FORMAT, slots_per_home },
            settled: SettledRow { home: 1, ..SettledRow::default() },
            scrub_pass: ScrubPass::default(),
            rows: Rows::default(),
            changes: 0,
            walks_begun: BTreeMap::new(),
            names: BTreeMap::new(),
            activities: BTreeMap::new(),
            next_volume: 1,
            next_branch: 1,
        };
        let format_key = Key::Format.bytes();
        match catalog.table.get(&format_key)? {
            Some(found) => catalog.format = decode(&format_key, &found)?,
            None => drop(catalog.commit(vec![Key::Format.put(&catalog.format)])?),
        }
        if catalog.format.version != FORMAT {
            let version = catalog.format.version;
            return Err(Error::Tables(format!("they are of version {version}, not {FORMAT}")));
        }
        let settled_key = Key::Settled.bytes();
        if let Some(found) = catalog.table.get(&settled_key)? {
            catalog.settled = decode(&settled_key, &found)?;
        }
        let scrub_key = Key::Scrub.bytes();
        if let Some(found) = catalog.table.get(&scrub_key)? {
            catalog.scrub_pass = decode(&scrub_key, &found)?;
        }
        let mut counts = Vec::new();
        for record in catalog.table.clone().iter() {
            let (key, value) = record?;
            catalog.rows.load(&key, &value)?;
            if let Some(Key::Used(number)) = Key::of(&key) {
                counts.push((number, key, value));
            }
        }
        let mut used = BTreeMap::new();
        for (number, key, value) in counts {
            // That of a volume which has been deleted may say anything.
            if catalog.rows.volumes.contains_key(&number) {
                used.insert(number, quota::decode(&key, &value)?);
            }
        }
        catalog.check()?;
        catalog.take_over(&used);
        Ok(catalog)
    }

    /// Derives what is in memory only.
    fn take_over(&mut self, used: &BTreeMap<u32, u64>) {
        let rows = &self.rows;
        // That of a volume which is gone may still be in its branches.
        let owners = rows.branches.values().map(|row| &row.volume);
        let numbers = rows.volumes.keys().chain(owners);
        self.next_volume = 1 + numbers.max().copied().unwrap_or(0);
        self.next_branch = 1 + rows.branches.keys().map(|branch| branch.0).max().unwrap_or(0);
        for (number, row) in &rows.volumes {
            self.names.insert(row.name.clone(), *number);
            let last = rows.moments_of(*number).next_back();
            let (last, written) = last.map_or((Stamp(0), 0), |(stamp, row)| (stamp, row.written));
            let blocks = used.get(number).copied().unwrap_or(0);
            let used = Used::new(self.table.clone(), *number, blocks);
            self.activities.insert(*number, Arc::new(Activity::new(last, written, used)));
        }
    }

    /// The number of the volume of this name.
    pub fn number(&self, name: &str) -> Result<u32, Error> {
        self.names.get(name).copied().ok_or_else(|| Error::NoVolume(name.to_owned()))
    }

    /// Checks that the volume of this name is the one of this number: it may have been renamed
    /// since that was looked up.
    pub fn check_number(&self, name: &str, number: u32) -> Result<(), Error> {
        let is_it = self.number(name)? == number;
        if is_it { Ok(()) } else { Err(Error::NoVolume(name.to_owned())) }
    }

    /// What clones and views of a volume have of it beside its content: they are for the same
    /// clients, who see the same.
    pub fn inherited(&self, name: &str) -> Result<Properties, Error> {
        let VolumeRow { block_size, settings, .. } = &self.rows.volumes[&self.number(name)?];
        let clients = settings.clients.clone();
        let settings = VolumeSettings { clients, ..VolumeSettings::default() };
        Ok(Properties { block_size: *block_size, settings })
    }

    /// Changes the settings of a volume; returns what they are then.
    pub fn change_settings(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut VolumeSettings),
    ) -> Result<VolumeSettings, Error> {
        let number = self.number(name)?;
        let mut row = self.rows.volumes[&number].clone();
        change(&mut row.settings);
        self.change(vec![Key::Volume(number).put(&row)])?;
        Ok(row.settings)
    }

    /// The volume of this name, which can be written.
    pub fn writable(&self, name: &str) -> Result<(u32, VolumeRow), Error> {
        let number = self.number(name)?;
        let row = self.rows.volumes[&number].clone();
        match row.fixed_at {
            None => Ok((number, row)),
            Some(_) => Err(Error::ReadOnly(name.to_owned())),
        }
    }

    /// The row of the volume of this number.
    pub fn row(&self, number: u32) -> Result<&VolumeRow, Error> {
        self.rows.volumes.get(&number).ok_or(Error::Deleted)
    }

    /// What a volume of this number shows now.
    pub fn shown(&self, number: u32) -> Result<Look, Error> {
        let row = self.row(number)?;
        if self.rows.receiving.get(&number).is_some_and(|header| header.base.is_none()) {
            return Err(Error::Incomplete(row.name.clone()));
        }
        let Epoch { branch, bytes, .. } = *row.now();
        Ok(Look { branch: Branch(branch), at: row.fixed_at.map_or(Stamp::NOW, Stamp), bytes })
    }

    /// What a volume shows at `now`, which is a moment between changes.
    pub fn present(&self, volume: &str, now: Stamp) -> Result<Look, Error> {
        let shown = self.shown(self.number(volume)?)?;
        Ok(Look { at: shown.at.min(now), ..shown })
    }

    /// What is written to a volume of this number becomes a part of.
    pub fn written(&self, number: u32, writer: Writer) -> Result<Look, Error> {
        let row = self.row(number)?;
        let Epoch { branch, bytes, .. } = *row.now();
        let bytes = match (writer, self.rows.receiving.get(&number)) {
            (Writer::User, _) if row.fixed_at.is_some() || row.settings.read_only => {
                return Err(Error::ReadOnly(row.name.clone()));
            }
            (Writer::User | Writer::Resize, _) => bytes,
            // It gets whole blocks.
            (Writer::Receiver, Some(header)) => {
                bytes.next_multiple_of(BLOCK_BYTES).max(header.whole_bytes())
            }
            (Writer::Receiver, None) => return Err(Error::NotReceived(row.name.clone())),
        };
        Ok(Look { branch: Branch(branch), at: Stamp::NOW, bytes })
    }

    /// A snapshot, by the number of its volume and its name.
    pub fn snapshot(&self, key: &(u32, String)) -> Result<SnapshotRow, Error> {
        let (number, snapshot) = key;
        let volume = &self.row(*number)?.name;
        let missing = || Error::NoSnapshot { volume: volume.clone(), snapshot: snapshot.clone() };
        self.rows.snapshots.get(key).copied().ok_or_else(missing)
    }

    /// What a volume was in the past. `now` is a moment between changes.
    pub fn past(&self, volume: &str, past: Past<'_>, now: Stamp) -> Result<Look, Error> {
        let number = self.number(volume)?;
        let at = match past {
            Past::Snapshot(name) => return Ok(self.snapshot(&(number, name.to_owned()))?.look()),
            Past::Mark(name) => {
                let missing = || Error::NoMark { volume: volume.to_owned(), mark: name.to_owned() };
                self.mark_of(number, name).ok_or_else(missing)?
            }
            Past::At(stamp) => Stamp(stamp),
        };
        let row = &self.rows.volumes[&number];
        let epoch = row.then(at).filter(|_| at <= now).ok_or_else(|| {
            let (volume, stamp, first) = (volume.to_owned(), at.0, row.horizon);
            match row.history.is_on() {
                true => Error::NoMoment { volume, stamp, first, last: now.0 },
                false => Error::NoHistory(volume),
            }
        })?;
        Ok(Look { branch: Branch(epoch.branch), at, bytes: epoch.bytes })
    }

    fn mark_of(&self, volume: u32, name: &str) -> Option<Stamp> {
        let is_it = |row: &MomentRow| matches!(&row.kind, MomentKind::Mark(mark) if mark == name);
        self.rows.moments_of(volume).find(|(_, row)| is_it(row)).map(|(stamp, _)| stamp)
    }

    /// Changes some rows together, and waits until that is durable.
    fn commit(&self, changes: Vec<RowChange>) -> Result<Ticket, Error> {
        self.commit_with(self.store.batch(), changes, Durability::Wait)
    }

    /// Adds changes of rows to a batch and commits it.
    pub fn commit_with(
        &self,
        mut batch: Batch,
        changes: Vec<RowChange>,
        durability: Durability,
    ) -> Result<Ticket, Error> {
        for RowChange { key, value } in changes {
            match value {
                Some(value) => batch.put(&self.table, &key.bytes(), &value),
                None => batch.delete(&self.table, &key.bytes()),
            };
        }
        Ok(batch.commit(durability)?)
    }

    fn check_is_free(&self, name: &str) -> Result<(), Error> {
        check_name(name)?;
        match self.names.contains_key(name) {
            true => Err(Error::VolumeExists(name.to_owned())),
            false => Ok(()),
        }
    }

    /// Adds a volume on a branch of its own, which continues `parent`, or one that always shows
    /// what `fixed` says. Returns its number.
    pub fn add_volume(
        &mut self,
        name: &str,
        properties: Properties,
        begins_as: Beginning<'_>,
    ) -> Result<u32, Error> {
        let Properties { block_size, settings } = properties;
        self.check_is_free(name)?;
        let (since, bytes) = (begins_as.since().0, begins_as.bytes());
        check_size(bytes, block_size)?;
        let number = self.next_volume;
        let mut changes = Vec::new();
        let (branch, fixed_at) = match begins_as {
            Beginning::View(look) => (look.branch, Some(look.at.0)),
            Beginning::Empty { .. } => (self.new_branch(number, None, &mut changes), None),
            Beginning::Clone { of, .. } => (self.new_branch(number, Some(of), &mut changes), None),
            Beginning::Received { header, since } => {
                changes.push(Key::Receiving(number).put(header));
                (self.new_branch(number, None, &mut changes), Some(since.0))
            }
        };
        let epochs = vec![Epoch { since, branch: branch.0, bytes }];
        let name = name.to_owned();
        let row = VolumeRow {
            name: name.clone(),
            block_size,
            settings,
            epochs,
            fixed_at,
            history: History::OFF,
            horizon: 0,
        };
        changes.push(Key::Volume(number).put(&row));
        // Of one that is gone, and had this number, payload may have died since.
        changes.push(Key::Used(number).remove());
        self.change(changes)?;
        self.names.insert(name, number);
        let used = Used::new(self.table.clone(), number, 0);
        self.activities.insert(number, Arc::new(Activity::new(Stamp(0), 0, used)));
        self.next_volume += 1;
        Ok(number)
    }

    /// A new branch for a volume, and the change that records it.
    fn new_branch(
        &mut self,
        volume: u32,
        parent: Option<Look>,
        changes: &mut Vec<RowChange>,
    ) -> Branch {
        let branch = Branch(self.next_branch);
        self.next_branch += 1;
        let row = BranchRow { volume, parent: parent.map(|look| (look.branch.0, look.at.0)) };
        changes.push(Key::Branch(branch).put(&row));
        branch
    }

    /// Changes rows, on the devices and then here.
    pub fn change(&mut self, changes: Vec<RowChange>) -> Result<(), Error> {
        self.change_with(self.store.batch(), changes, Durability::Wait).map(drop)
    }

    /// Changes rows together with what is in a batch.
    pub fn change_with(
        &mut self,
        batch: Batch,
        mut changes: Vec<RowChange>,
        durability: Durability,
    ) -> Result<Ticket, Error> {
        self.go_on_with_walks(&mut changes);
        let known: Vec<_> = changes.iter().map(|of| (of.key.clone(), of.value.clone())).collect();
        let ticket = self.commit_with(batch, changes, durability)?;
        self.changes += 1;
        for (key, value) in known {
            match value {
                Some(value) => self.rows.load(&key.bytes(), &value)?,
                None => self.rows.remove(&key),
            }
            match key {
                Key::Walk(branch) if self.rows.walks.get(&branch) == Some(&0) => {
                    *self.walks_begun.entry(branch).or_default() += 1;
                }
                Key::Branch(branch) if !self.rows.branches.contains_key(&branch) => {
                    self.walks_begun.remove(&branch);
                }
                _ => {}
            }
        }
        Ok(ticket)
    }

    /// Gives a volume another name.
    pub fn rename(&mut self, name: &str, to: &str) -> Result<(), Error> {
        let number = self.number(name)?;
        self.check_is_free(to)?;
        let row = VolumeRow { name: to.to_owned(), ..self.rows.volumes[&number].clone() };
        self.change(vec![Key::Volume(number).put(&row)])?;
        self.names.remove(name);
        self.names.insert(to.to_owned(), number);
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
        let mut changes = Vec::new();
        for name in volumes {
            let number = self.number(name)?;
            let Look { branch, at, bytes } = self.shown(number)?;
            if self.rows.snapshots.contains_key(&(number, snapshot.to_owned())) {
                let (volume, snapshot) = ((*name).to_owned(), snapshot.to_owned());
                return Err(Error::SnapshotExists { volume, snapshot });
            }
            let row = SnapshotRow { branch: branch.0, stamp: at.min(stamp).0, bytes };
            changes.push(Key::Snapshot(number, snapshot.to_owned()).put(&row));
        }
        self.change(changes)
    }

    /// Removes a snapshot.
    pub fn remove_snapshot(&mut self, volume: &str, snapshot: &str) -> Result<(), Error> {
        let branch = self.past(volume, Past::Snapshot(snapshot), Stamp::NOW)?.branch;
        let number = self.number(volume)?;
        self.change(vec![
            Key::Snapshot(number, snapshot.to_owned()).remove(),
            Key::Origin(number, snapshot.to_owned()).remove(),
            Key::Walk(branch).put(&0_u64),
        ])
    }

    /// Removes a volume with its snapshots and its history.
    pub fn remove_volume(&mut self, name: &str) -> Result<(), Error> {
        let number = self.number(name)?;
        let snapshots = self.rows.snapshots_of(number).map(|(_, row)| row.branch);
        let row = &self.rows.volumes[&number];
        let looked_at: BTreeSet<u32> =
            snapshots.chain(row.epochs.iter().map(|epoch| epoch.branch)).collect();
        let of_it = [Key::Volume(number), Key::Receiving(number), Key::Used(number)];
        let mut changes: Vec<RowChange> = of_it.map(Key::remove).into();
        for (name, _) in self.rows.snapshots_of(number) {
            changes.push(Key::Snapshot(number, name.to_owned()).remove());
            changes.push(Key::Origin(number, name.to_owned()).remove());
        }
        changes.extend(
            self.rows.moments_of(number).map(|(stamp, _)| Key::Moment(number, stamp).remove()),
        );
        changes.extend(looked_at.iter().map(|branch| Key::Walk(Branch(*branch)).put(&0_u64)));
        self.change(changes)?;
        self.names.remove(name);
        self.activities.remove(&number);
        Ok(())
    }

    /// Lets a volume look at what something was, from `stamp` on, on a new branch. What it is
    /// receiving is given up.
    pub fn roll_back(&mut self, name: &str, to: Look, stamp: Stamp) -> Result<(), Error> {
        let number = self.number(name)?;
        let mut changes = Vec::new();
        let mut row = if self.rows.receiving.contains_key(&number) {
            changes.push(Key::Receiving(number).remove());
            VolumeRow { fixed_at: None, ..self.rows.volumes[&number].clone() }
        } else {
            self.writable(name)?.1
        };
        let branch = self.new_branch(number, Some(to), &mut changes);
        changes.extend(row.begin(Epoch { since: stamp.0, branch: branch.0, bytes: to.bytes }));
        changes.push(Key::Volume(number).put(&row));
        self.change(changes)
    }

    /// Gives a volume another size, from `stamp` on, together with what is in a batch.
    pub fn resize(
        &mut self,
        name: &str,
        bytes: u64,
        stamp: Stamp,
        batch: Batch,
    ) -> Result<Ticket, Error> {
        let (number, mut row) = self.writable(name)?;
        check_size(bytes, row.block_size)?;
        let branch = row.now().branch;
        let mut changes: Vec<RowChange> =
            row.begin(Epoch { since: stamp.0, branch, bytes }).into_iter().collect();
        changes.push(Key::Volume(number).put(&row));
        self.change_with(batch, changes, Durability::Wait)
    }

    /// Lets a volume keep another part of its past; `stamp` is now.
    pub fn set_history(&mut self, name: &str, history: History, stamp: Stamp) -> Result<(), Error> {
        let (number, mut row) = self.writable(name)?;
        let mut changes = Vec::new();
        if !row.history.is_on() {
            row.horizon = stamp.0;
        }
        row.history = history;
        if !history.is_on() {
            changes.extend(row.epochs.iter().map(|of| Key::Walk(Branch(of.branch)).put(&0_u64)));
            let moments = self.rows.moments_of(number);
            changes.extend(moments.map(|(stamp, _)| Key::Moment(number, stamp).remove()));
            row.epochs.drain(..row.epochs.len() - 1);
        }
        changes.push(Key::Volume(number).put(&row));
        self.change(changes)
    }

    /// Names a moment.
    pub fn add_mark(&mut self, volume: &str, mark: &str, stamp: Stamp) -> Result<(), Error> {
        check_name(mark)?;
        let number = self.number(volume)?;
        if !self.rows.volumes[&number].history.is_on() {
            return Err(Error::NoHistory(volume.to_owned()));
        }
        if self.mark_of(number, mark).is_some() {
            let (volume, mark) = (volume.to_owned(), mark.to_owned());
            return Err(Error::MarkExists { volume, mark });
        }
        let written = self.activities[&number].written.load(Ordering::Relaxed);
        let row = MomentRow { written, kind: MomentKind::Mark(mark.to_owned()) };
        self.change(vec![Key::Moment(number, stamp).put(&row)])
    }

    /// Records what is stable, without waiting for that to be durable.
    pub fn settle(&mut self, settled: SettledRow) -> Result<(), Error> {
        let changes = vec![Key::Settled.put(&settled)];
        self.commit_with(self.store.batch(), changes, Durability::Relaxed)?;
        self.settled = settled;
        Ok(())
    }
}

/// What a new volume has beside its content.
#[derive(Default)]
pub struct Properties {
    pub block_size: BlockSize,
    pub settings: VolumeSettings,
}

/// How a new volume begins.
#[derive(Clone, Copy, Debug)]
pub enum Beginning<'a> {
    /// All zeros, of so many bytes.
    Empty { bytes: u64, since: Stamp },
    /// As something else is or was.
    Clone { of: Look, since: Stamp },
    /// It always shows this.
    View(Look),
    /// All zeros, until what this stream has is there.
    Received { header: &'a Header, since: Stamp },
}

impl Beginning<'_> {
    fn since(&self) -> Stamp {
        match self {
            Self::Empty { since, .. }
            | Self::Clone { since, .. }
            | Self::Received { since, .. } => *since,
            Self::View(look) => look.at,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Empty { bytes, .. } => *bytes,
            Self::Clone { of, .. } | Self::View(of) => of.bytes,
            Self::Received { header, .. } => header.bytes,
        }
    }
}
