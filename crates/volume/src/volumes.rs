//! All volumes of a store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use upsweep::layers::device::{Buffer, Class};
use upsweep::{Durability, Seq, Store, Table, Ticket};

use crate::address::{BLOCK_BYTES, BLOCKS_MAX, Branch, CHUNK_BLOCKS, Physical, Span, Stamp};
use crate::catalog::{Catalog, SettledRow, VolumeRow};
use crate::entry::{self, Content, Entry};
use crate::error::Error;
use crate::payload::Payload;
use crate::stamps::Stamps;
use crate::trim::{self, Trimmer, Trims, Visitor};
use crate::versions::Kept;
use crate::volume::Volume;

/// The table of the map.
const MAP: &str = "volumes/map";
/// Chunks whose versions are trimmed in one record.
const TRIMS_PER_RECORD: usize = 64;
/// Chunks that a step of a walk looks at.
const CHUNKS_PER_STEP: usize = 1000;
/// Chunks of the largest volume.
const CHUNKS_MAX: u64 = BLOCKS_MAX / CHUNK_BLOCKS;
/// Slots of a home: 4 MiB.
pub const SLOTS_PER_HOME: u16 = 1024;

/// The volumes of one open store. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Volumes {
    pub(crate) inner: Arc<Inner>,
}

/// What all handles share.
pub struct Inner {
    pub store: Store,
    pub map: Table,
    pub payload: Payload,
    pub stamps: Stamps,
    pub trimming: Arc<trim::Shared>,
    pub catalog: RwLock<Catalog>,
    /// Held by what works in the background.
    working: Mutex<()>,
    /// Held by writes of parts of blocks, which read the rest first.
    pub partial: Mutex<()>,
    /// The sequence of the last record that was declared here.
    last_seq: AtomicU64,
}

/// What there is of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeInfo {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The moment that it shows, in microseconds since the Unix epoch; `None`: the present.
    pub fixed_at: Option<u64>,
    /// Its snapshots, by name, with their moments in microseconds since the Unix epoch.
    pub snapshots: Vec<(String, u64)>,
}

impl Volumes {
    /// Opens the volumes of a store. After a crash, changes of which the payload did not arrive are
    /// dropped: none of them was acknowledged as durable.
    ///
    /// # Errors
    /// [`Error::Tables`]; [`Error::Store`].
    pub fn open(store: &Store) -> Result<Self, Error> {
        Self::open_with(store, SLOTS_PER_HOME)
    }

    /// As [`Volumes::open`]; a store that has no volumes yet gets homes of so many blocks (a
    /// multiple of 16, up to 32,768), which is for tests.
    ///
    /// # Errors
    /// As [`Volumes::open`].
    pub fn open_with(store: &Store, slots_per_home: u16) -> Result<Self, Error> {
        let catalog = Catalog::open(store, slots_per_home)?;
        let slots_per_home = catalog.format.slots_per_home;
        let payload = Payload::open(store, slots_per_home, catalog.settled.home)?;
        let map = store.table(MAP)?;
        let last = Stamp(catalog.settled.stamp);
        let inner = Inner {
            store: store.clone(),
            map,
            payload,
            stamps: Stamps::after(last),
            trimming: Arc::default(),
            catalog: RwLock::new(catalog),
            working: Mutex::new(()),
            partial: Mutex::new(()),
            last_seq: AtomicU64::new(0),
        };
        let volumes = Self { inner: Arc::new(inner) };
        volumes.inner.recover()?;
        volumes.inner.watch_sweeps()?;
        Ok(volumes)
    }

    /// The volume of this name.
    ///
    /// # Errors
    /// [`Error::NoVolume`].
    pub fn volume(&self, name: &str) -> Result<Volume, Error> {
        let number = self.inner.catalog.read().number(name)?;
        Ok(Volume { inner: Arc::clone(&self.inner), number })
    }

    /// All volumes, by name.
    #[must_use]
    pub fn list(&self) -> Vec<VolumeInfo> {
        let catalog = self.inner.catalog.read();
        let info = |(number, row): (&u32, &VolumeRow)| VolumeInfo {
            name: row.name.clone(),
            bytes: row.bytes,
            fixed_at: row.fixed_at,
            snapshots: catalog
                .snapshots
                .iter()
                .filter(|((volume, _), _)| volume == number)
                .map(|((_, name), snapshot)| (name.clone(), snapshot.stamp))
                .collect(),
        };
        let mut list: Vec<VolumeInfo> = catalog.volumes.iter().map(info).collect();
        list.sort_by(|left, right| left.name.cmp(&right.name));
        list
    }

    /// Makes an empty volume, all of which reads as zeros. Cost: a log record.
    ///
    /// # Errors
    /// [`Error::BadName`]; [`Error::BadSize`]; [`Error::VolumeExists`]; [`Error::Store`].
    pub fn create(&self, name: &str, bytes: u64) -> Result<Volume, Error> {
        self.inner.catalog.write().add_volume(name, bytes, None)?;
        self.volume(name)
    }

    /// Takes a snapshot of each of these volumes, all of the same moment. Cost: a log record,
    /// whatever their size.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::BadName`]; [`Error::SnapshotExists`]; [`Error::Store`]; in all
    /// cases nothing is changed.
    pub fn snapshot(&self, volumes: &[&str], snapshot: &str) -> Result<(), Error> {
        let inner = &self.inner;
        inner.between(|stamp| inner.catalog.write().add_snapshots(volumes, snapshot, stamp))
    }

    /// Removes a snapshot.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::NoSnapshot`]; [`Error::Store`].
    pub fn delete_snapshot(&self, volume: &str, snapshot: &str) -> Result<(), Error> {
        self.inner.catalog.write().remove_snapshot(volume, snapshot)?;
        self.inner.publish_needs(None);
        Ok(())
    }

    /// Makes a volume that begins as another one is now, or as it was in a snapshot. Cost: a log
    /// record, whatever their size.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::NoSnapshot`]; [`Error::BadName`]; [`Error::VolumeExists`];
    /// [`Error::Store`].
    pub fn clone_volume(
        &self,
        volume: &str,
        snapshot: Option<&str>,
        name: &str,
    ) -> Result<Volume, Error> {
        let inner = &self.inner;
        inner.between(|stamp| {
            let mut catalog = inner.catalog.write();
            let source = catalog.volume(volume)?;
            let (branch, at, bytes) = match snapshot {
                Some(snapshot) => {
                    let found = catalog.snapshot(volume, snapshot)?;
                    (found.branch, found.stamp, found.bytes)
                }
                None => (source.branch, source.fixed_at.unwrap_or(stamp.0), source.bytes),
            };
            catalog.add_volume(name, bytes, Some((Branch(branch), Stamp(at))))
        })?;
        self.volume(name)
    }

    /// Gives a volume another name.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::BadName`]; [`Error::VolumeExists`]; [`Error::Store`].
    pub fn rename(&self, name: &str, to: &str) -> Result<(), Error> {
        self.inner.catalog.write().rename(name, to)
    }

    /// Removes a volume and its snapshots. Clones of it stay.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::Store`].
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        // Between changes, so that none comes to its branch later.
        self.inner.between(|_| self.inner.catalog.write().remove_volume(name))?;
        self.inner.publish_needs(None);
        Ok(())
    }

    /// Does a part of what waits in the background: trims versions that nobody can see any more,
    /// gives back segments in which nothing is needed, and cleans one in which little is. Returns
    /// whether there may be more to do.
    ///
    /// # Errors
    /// [`Error::Tables`]; [`Error::Store`].
    pub fn work(&self) -> Result<bool, Error> {
        let inner = &self.inner;
        let _one_at_a_time = inner.working.lock();
        let found = std::mem::take(&mut *inner.trimming.found.lock());
        let was_any = !found.is_empty();
        inner.trim(found)?;
        let has_walked = inner.walk()?;
        let has_cleaned = inner.payload.clean()?;
        let has_reclaimed = inner.payload.reclaim()? > 0;
        Ok(was_any | has_walked | has_cleaned | has_reclaimed)
    }

    /// Makes everything durable that was acknowledged before the call.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn flush(&self) -> Result<(), Error> {
        self.inner.flush()
    }
}

impl Inner {
    /// The time of day in microseconds since the Unix epoch.
    pub fn now_us(&self) -> u64 {
        self.store.blocks().time_of_day_us()
    }

    /// Acts at a moment between changes.
    fn between<T>(&self, act: impl FnOnce(Stamp) -> Result<T, Error>) -> Result<T, Error> {
        self.stamps.between(self.now_us(), act)
    }

    /// The sequence of the last record that was declared here.
    pub fn last_seq(&self) -> Seq {
        Seq::new(self.last_seq.load(Ordering::Acquire))
    }

    /// Declares entries of a branch, together.
    pub fn declare(
        &self,
        branch: Branch,
        entries: &[Entry],
        durability: Durability,
    ) -> Result<Ticket, Error> {
        let mut batch = self.store.batch();
        for Entry { span, stamp, content } in entries {
            let key = entry::key(branch, *span, *stamp);
            batch.put(&self.map, &key, &entry::value(content));
        }
        let ticket = batch.commit(durability)?;
        self.last_seq.fetch_max(ticket.sequence().get(), Ordering::AcqRel);
        Ok(ticket)
    }

    /// Makes everything stable that has been written.
    pub fn flush(&self) -> Result<(), Error> {
        // In this order: slots that are taken after the first line are not below it.
        let next = self.payload.next_slot();
        let written = self.stamps.written(self.last_seq());
        self.payload.flush()?;
        self.store.flush()?;
        let Physical { home, slot } = written.first.map_or(next, |first| first.min(next));
        let (stamp, seq) = (written.stamp.0, written.seq.get());
        self.catalog.write().settle(SettledRow { stamp, seq, home, slot })?;
        self.publish_needs(Some(written.stamp));
        Ok(())
    }

    /// Lets trimming know what is needed, and, with `until`, up to which moment: all moments that
    /// are kept before it are in the catalog.
    fn publish_needs(&self, until: Option<Stamp>) {
        let catalog = self.catalog.read();
        let mut needs = self.trimming.needs.lock();
        let until = until.map_or(needs.until, |until| until.max(needs.until));
        *needs = Arc::new(catalog.needs(until));
    }

    /// Lets the sweep show what it writes.
    fn watch_sweeps(&self) -> Result<(), Error> {
        let (blocks, space) = (self.store.blocks(), self.map.space());
        let (format, shared) = (blocks.format_of(space)?, Arc::clone(&self.trimming));
        Ok(blocks.set_visitor(space, Some(Arc::new(Visitor { format, shared })))?)
    }

    /// Trims what has been found.
    fn trim(&self, trims: Trims) -> Result<(), Error> {
        let mut trims = trims.into_iter().peekable();
        while trims.peek().is_some() {
            let mut batch = self.store.batch();
            let mut is_needed = false;
            for (branch, trim) in trims.by_ref().take(TRIMS_PER_RECORD) {
                for (span, stamp) in &trim.entries {
                    batch.delete(&self.map, &entry::key(branch, *span, *stamp));
                }
                let died = self.payload.bury(&trim.dead, &mut batch);
                is_needed |= died > 0 || !trim.entries.is_empty();
            }
            if is_needed {
                let ticket = batch.commit(Durability::Relaxed)?;
                self.last_seq.fetch_max(ticket.sequence().get(), Ordering::AcqRel);
            }
        }
        Ok(())
    }

    /// Walks a part of the next branch that has something to trim; returns whether there is one.
    fn walk(&self) -> Result<bool, Error> {
        let walk = self.catalog.read().walks.first_key_value().map(|(of, next)| (*of, *next));
        let Some((branch, next)) = walk else { return Ok(false) };
        if next == 0 {
            // What was written last can be trimmed, too.
            self.flush()?;
        }
        let needs = Arc::clone(&self.trimming.needs.lock());
        let [from, to] = entry::keys_of_chunks(branch, next..=CHUNKS_MAX);
        let (mut records, mut chunks, mut end) = (Vec::new(), BTreeSet::new(), None);
        for record in self.map.scan(from..to) {
            let (key, value) = record?;
            let (_, entry) = entry::decode(&key, &value).map_err(malformed)?;
            let chunk = entry::chunk_of_span(entry.span).unwrap_or(CHUNKS_MAX);
            if chunks.insert(chunk) && chunks.len() > CHUNKS_PER_STEP {
                end = Some(chunk);
                break;
            }
            records.push((key, value));
        }
        let zeros = self.trimming.zeros.read();
        let mut trimmer = Trimmer::whole(&needs, &zeros);
        records.iter().for_each(|(key, value)| trimmer.see(key, value));
        let trims = trimmer.end();
        drop(zeros);
        self.trim(trims)?;
        match end {
            Some(chunk) => self.catalog.write().note_walk(branch, chunk)?,
            None => self.end_walk(branch)?,
        }
        Ok(true)
    }

    fn end_walk(&self, branch: Branch) -> Result<(), Error> {
        let is_over = self.catalog.read().kept(branch) == Kept::default();
        if is_over {
            let zeros = self.trimming.zeros.write().forget(branch);
            let mut batch = self.store.batch();
            for (span, stamp) in zeros {
                batch.delete(&self.map, &entry::key(branch, span, stamp));
            }
            batch.commit(Durability::Relaxed)?;
        }
        self.catalog.write().end_walk(branch)?;
        self.publish_needs(None);
        Ok(())
    }

    /// Takes in what the map says at an open, and drops what is not stable of it.
    fn recover(&self) -> Result<(), Error> {
        let from = self.catalog.read().settled.first();
        let mut last = self.stamps.last();
        let (mut lost, mut referred) = (Vec::new(), BTreeSet::new());
        for record in self.map.iter() {
            let (key, value) = record?;
            let (branch, entry) = entry::decode(&key, &value).map_err(malformed)?;
            last = last.max(entry.stamp);
            if entry::chunk_of_span(entry.span).is_none() {
                self.trimming.zeros.write().add(branch, entry.span, entry.stamp);
                continue;
            }
            let Content::Payload { first, checksums } = &entry.content else { continue };
            if *first < from {
                continue;
            }
            let arrived = self.arrived(&entry)?;
            let slots = (0..checksums.len()).map(|nth| first.plus(nth as u16));
            let there = slots.zip(&arrived).filter(|(_, arrived)| **arrived);
            referred.extend(there.map(|(slot, _)| slot));
            if arrived.contains(&false) {
                lost.push((branch, entry, arrived));
            }
        }
        self.stamps.advance(last);
        for (branch, entry, arrived) in lost {
            self.keep_what_arrived(branch, &entry, &arrived)?;
        }
        self.payload.bury_others(from, &referred)?;
        self.flush()
    }

    /// Which blocks of an entry are what was written.
    fn arrived(&self, entry: &Entry) -> Result<Vec<bool>, Error> {
        let Content::Payload { first, checksums } = &entry.content else { return Ok(Vec::new()) };
        let is_right = |(nth, checksum): (usize, &u32)| {
            let Some(place) = self.payload.find(first.plus(nth as u16), 1) else {
                return Ok(false);
            };
            let buffer = Buffer::zeroed(BLOCK_BYTES as usize);
            let read = place.segment.read(place.offset, buffer, Class::SweepRead);
            match read {
                Ok(read) => Ok(crc32c::crc32c(&read) == *checksum),
                Err(upsweep::Error::Damaged(_)) => Ok(false),
                Err(error) => Err(error.into()),
            }
        };
        checksums.iter().enumerate().map(is_right).collect()
    }

    /// Replaces an entry by entries for those of its blocks that have arrived.
    fn keep_what_arrived(
        &self,
        branch: Branch,
        entry: &Entry,
        arrived: &[bool],
    ) -> Result<(), Error> {
        let Content::Payload { first, checksums } = &entry.content else { return Ok(()) };
        let mut batch = self.store.batch();
        batch.delete(&self.map, &entry::key(branch, entry.span, entry.stamp));
        let blocks = entry.span.blocks().zip(checksums).zip(arrived).enumerate();
        for (nth, ((block, checksum), _)) in blocks.filter(|(_, (_, arrived))| **arrived) {
            let (span, checksums) = (Span::block(block), vec![*checksum]);
            let content = Content::Payload { first: first.plus(nth as u16), checksums };
            batch.put(&self.map, &entry::key(branch, span, entry.stamp), &entry::value(&content));
        }
        let ticket = batch.commit(Durability::Wait)?;
        self.last_seq.fetch_max(ticket.sequence().get(), Ordering::AcqRel);
        Ok(())
    }
}

/// A record of the map that is none of this version.
pub fn malformed(what: entry::Malformed) -> Error {
    Error::Tables(format!("{} of the map", what.0))
}
