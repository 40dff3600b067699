//! All volumes of a store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use upsweep::{Batch, Durability, Seq, Store, Table, Ticket};

use crate::address::{BLOCKS_MAX, Branch, CHUNK_BLOCKS, Physical, Stamp};
use crate::catalog::{Activity, Beginning, Catalog, Past, Properties, Writer};
use crate::entry::{self, Entry};
use crate::error::Error;
use crate::history::Pace;
use crate::looks::Look;
use crate::payload::Payload;
use crate::receive::Receiving;
use crate::rounds::Rounds;
use crate::rows::{
    BlockSize, History, MomentKind, MomentRow, SettledRow, VolumeRow, VolumeSettings,
};
use crate::stamps::Stamps;
use crate::trim::{self, Needs, Visitor};
use crate::volume::{OfSnapshot, Volume};
use crate::walks::ZeroWalk;

/// What the names of all tables of volumes begin with.
pub const TABLES: &str = "volumes/";
/// The table of the map.
pub const MAP: &str = "volumes/map";
/// How often room is made for one change: whatever it lacks then is something else, or others take
/// all of it.
const ROOMS_MAX: usize = 64;
/// Chunks of the largest volume.
pub const CHUNKS_MAX: u64 = BLOCKS_MAX / CHUNK_BLOCKS;
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
    pub stamps: Arc<Stamps>,
    pub trimming: Arc<trim::Shared>,
    pub catalog: RwLock<Catalog>,
    /// Up to where all was flushed by the last flush.
    pub flushed: AtomicU64,
    /// What had been written to a volume before the horizon of its history when that was last
    /// walked, by volume.
    pub walked: Mutex<BTreeMap<u32, u64>>,
    /// How fast the horizons of histories may move, by volume.
    pub paces: Mutex<BTreeMap<u32, Pace>>,
    /// The branch of which a part was walked last.
    pub last_walk: Mutex<Branch>,
    /// Branches at which nobody looks any more, and when that was seen.
    pub abandoned: Mutex<BTreeMap<Branch, Stamp>>,
    /// Long spans of zeros under which there may be something to trim.
    pub zero_walks: Mutex<VecDeque<ZeroWalk>>,
    flushes: Rounds,
    /// Sweeps that show what is superseded, for which writers wait.
    pub shows: Rounds,
    /// Volumes that are being received just now, by number.
    pub receivers: Mutex<BTreeSet<u32>>,
    /// Held by what works in the background.
    pub working: Mutex<()>,
    /// How often the work in the background has made room.
    rooms_made: AtomicU64,
    /// The sequence of the last record that was declared here.
    last_seq: AtomicU64,
    /// How often settings have changed.
    pub settings_changes: AtomicU64,
    /// Whether what was lost in a crash has been dropped.
    pub is_recovered: AtomicBool,
}

/// What there is of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeInfo {
    /// Its name.
    pub name: String,
    /// Its number: see [`Volume::number`].
    pub number: u32,
    /// Its logical block size.
    pub block_size: BlockSize,
    /// Its settings.
    pub settings: VolumeSettings,
    /// Its size in bytes.
    pub bytes: u64,
    /// The moment that it shows, in microseconds since the Unix epoch; `None`: the present.
    pub fixed_at: Option<u64>,
    /// Its snapshots, by name, with their moments in microseconds since the Unix epoch.
    pub snapshots: Vec<(String, u64)>,
    /// What it keeps of its past beside them.
    pub history: History,
    /// The first moment of its history, in microseconds since the Unix epoch.
    pub history_since: Option<u64>,
    /// What it is receiving, or would go on to receive. Until that is complete it can only be read
    /// and shows what it was before, or cannot be used at all if it is new.
    pub receiving: Option<Receiving>,
}

impl VolumeInfo {
    /// Whether it is being received for the first time, so that it cannot be used yet.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.receiving.as_ref().is_some_and(|receiving| receiving.base.is_none())
    }
}

/// A moment in the history of a volume that is worth a return.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MomentInfo {
    /// The moment, in microseconds since the Unix epoch: see [`Past::At`].
    pub at: u64,
    /// What it is.
    pub kind: MomentKind,
    /// Bytes that had been written to the volume until then, since its history began. After a
    /// crash, what was written after the moment recorded last is not counted.
    pub written_bytes: u64,
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
        let settled = Stamp(catalog.settled.stamp);
        let volumes = Self { inner: Arc::new(Inner::new(store.clone(), map, payload, catalog)) };
        volumes.inner.recover()?;
        volumes.inner.publish_needs(Some(settled));
        volumes.inner.watch_sweeps()?;
        Ok(volumes)
    }

    /// The volume of this name.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::Incomplete`] as long as it is being received for the first
    /// time.
    pub fn volume(&self, name: &str) -> Result<Volume, Error> {
        let catalog = self.inner.catalog.read();
        let number = catalog.number(name)?;
        catalog.shown(number)?;
        let (inner, writer) = (Arc::clone(&self.inner), Writer::User);
        Ok(Volume { inner, number, writer, snapshot: None })
    }

    /// A snapshot of a volume, to be read: it has the size and the content of its moment. Once it
    /// is deleted, reads fail, also if there is another snapshot of its name. Cost: none, and
    /// nothing is made that has to be deleted.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::NoSnapshot`].
    pub fn at_snapshot(&self, volume: &str, snapshot: &str) -> Result<Volume, Error> {
        let catalog = self.inner.catalog.read();
        let number = catalog.number(volume)?;
        let key = (number, snapshot.to_owned());
        let row = catalog.snapshot(&key)?;
        let snapshot = Some(Arc::new(OfSnapshot { key, row }));
        let (inner, writer) = (Arc::clone(&self.inner), Writer::User);
        Ok(Volume { inner, number, writer, snapshot })
    }

    /// All volumes, by name.
    #[must_use]
    pub fn list(&self) -> Vec<VolumeInfo> {
        let catalog = self.inner.catalog.read();
        let info = |(number, row): (&u32, &VolumeRow)| VolumeInfo {
            name: row.name.clone(),
            number: *number,
            block_size: row.block_size,
            settings: row.settings.clone(),
            bytes: row.now().bytes,
            fixed_at: row.fixed_at,
            snapshots: catalog
                .rows
                .snapshots_of(*number)
                .map(|(name, snapshot)| (name.to_owned(), snapshot.stamp))
                .collect(),
            history: row.history,
            history_since: row.history.is_on().then_some(row.horizon),
            receiving: catalog.rows.receiving.get(number).map(Receiving::of),
        };
        let mut list: Vec<VolumeInfo> = catalog.rows.volumes.iter().map(info).collect();
        list.sort_by(|left, right| left.name.cmp(&right.name));
        list
    }

    /// Makes an empty volume of the default block size, all of which reads as zeros. Cost: a log
    /// record.
    ///
    /// # Errors
    /// [`Error::BadName`]; [`Error::BadSize`]; [`Error::VolumeExists`]; [`Error::Store`].
    pub fn create(&self, name: &str, bytes: u64) -> Result<Volume, Error> {
        self.create_with(name, bytes, BlockSize::default())
    }

    /// As [`Volumes::create`], with this logical block size, of which `bytes` is a multiple. Its
    /// clones and views have the same.
    ///
    /// # Errors
    /// As [`Volumes::create`].
    pub fn create_with(
        &self,
        name: &str,
        bytes: u64,
        block_size: BlockSize,
    ) -> Result<Volume, Error> {
        let inner = &self.inner;
        inner.between(|since| {
            let begins_as = Beginning::Empty { bytes, since };
            let properties = Properties { block_size, ..Properties::default() };
            inner.catalog.write().add_volume(name, properties, begins_as)
        })?;
        inner.publish_needs(None);
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

    /// Makes a volume that begins as another one is now (`None`), or as it was in the past. Cost: a
    /// log record, whatever their size.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::NoSnapshot`], [`Error::NoMark`], [`Error::NoMoment`] or
    /// [`Error::NoHistory`] if there is no such past; [`Error::BadName`]; [`Error::VolumeExists`];
    /// [`Error::Store`].
    pub fn clone_volume(
        &self,
        volume: &str,
        past: Option<Past<'_>>,
        name: &str,
    ) -> Result<Volume, Error> {
        let inner = &self.inner;
        inner.between(|since| {
            let mut catalog = inner.catalog.write();
            let of = match past {
                Some(past) => catalog.past(volume, past, since)?,
                None => catalog.present(volume, since)?,
            };
            let properties = catalog.inherited(volume)?;
            catalog.add_volume(name, properties, Beginning::Clone { of, since })
        })?;
        inner.publish_needs(None);
        self.volume(name)
    }

    /// Makes a volume that always shows what another one was in the past, and can only be read. It
    /// keeps that for as long as it exists. Cost: a log record.
    ///
    /// # Errors
    /// As [`Volumes::clone_volume`].
    pub fn view(&self, volume: &str, past: Past<'_>, name: &str) -> Result<Volume, Error> {
        let inner = &self.inner;
        inner.between(|now| {
            let mut catalog = inner.catalog.write();
            let look = catalog.past(volume, past, now)?;
            let properties = catalog.inherited(volume)?;
            catalog.add_volume(name, properties, Beginning::View(look))
        })?;
        self.volume(name)
    }

    /// Makes a volume again what it was in the past, with the size that it had. Its snapshots stay;
    /// what it is now is gone, unless a snapshot or the history keeps it. Cost: a log record.
    /// Writes that run meanwhile come before or after it, record by record.
    ///
    /// # Errors
    /// As [`Volumes::clone_volume`]; [`Error::ReadOnly`].
    pub fn roll_back(&self, volume: &str, to: Past<'_>) -> Result<(), Error> {
        let inner = &self.inner;
        let number = inner.catalog.read().number(volume)?;
        // A part of a block must not be put together from both sides.
        let activity = inner.activity(number)?;
        let _no_parts = activity.partial.write();
        inner.between(|now| {
            let mut catalog = inner.catalog.write();
            catalog.check_number(volume, number)?;
            let to = catalog.past(volume, to, now)?;
            catalog.roll_back(volume, to, now)
        })?;
        inner.publish_needs(None);
        Ok(())
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
        inner.work()
    }

    /// Has `wake` called, instead of an earlier one, when segments should be cleaned or superseded
    /// blocks be looked for: whoever calls [`Volumes::work`] should not rest then. Writers call it,
    /// so it must neither wait for anything nor use the volumes. Cost: a call for each 4 MiB that
    /// are written while something is due.
    pub fn wake_when_due(&self, wake: impl Fn() + Send + Sync + 'static) {
        *self.inner.payload.wake.lock() = Some(Box::new(wake));
    }

    /// Lets a volume keep its past from now on, or for another time or another number of bytes.
    /// Without a history it forgets all moments but those of its snapshots, and all marks.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::ReadOnly`]; [`Error::Store`].
    pub fn set_history(&self, volume: &str, history: History) -> Result<(), Error> {
        let inner = &self.inner;
        inner.between(|now| inner.catalog.write().set_history(volume, history, now))?;
        inner.publish_needs(None);
        Ok(())
    }

    /// Names the present of a volume, to return to it as long as its history has it. A snapshot
    /// stays longer. Cost: a log record.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::NoHistory`]; [`Error::BadName`]; [`Error::MarkExists`];
    /// [`Error::Store`].
    pub fn mark(&self, volume: &str, mark: &str) -> Result<(), Error> {
        let inner = &self.inner;
        inner.between(|now| inner.catalog.write().add_mark(volume, mark, now))
    }

    /// Moments in the history of a volume that are worth a return, in order.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; [`Error::NoHistory`].
    pub fn moments(&self, volume: &str) -> Result<Vec<MomentInfo>, Error> {
        let catalog = self.inner.catalog.read();
        let number = catalog.number(volume)?;
        let row = &catalog.rows.volumes[&number];
        if !row.history.is_on() {
            return Err(Error::NoHistory(volume.to_owned()));
        }
        let moments = catalog.rows.moments_of(number);
        let kept = moments.filter(|(stamp, _)| row.horizon <= stamp.0);
        let info = |(stamp, row): (Stamp, &MomentRow)| MomentInfo {
            at: stamp.0,
            kind: row.kind.clone(),
            written_bytes: row.written,
        };
        Ok(kept.map(info).collect())
    }

    /// A moment between changes, in microseconds since the Unix epoch: a look at it sees all that
    /// was acknowledged before the call, and nothing that begins after it.
    #[must_use]
    pub fn moment(&self) -> u64 {
        self.inner.between(|stamp| stamp.0)
    }

    /// The last moment that has been given to anything, in microseconds since the Unix epoch. If it
    /// is ahead of the clock, which was wrong then, times do not tell apart what is written until
    /// the clock has caught up.
    #[must_use]
    pub fn last_moment(&self) -> u64 {
        self.inner.stamps.last().0
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
    /// Volumes of which nothing is known that is not in the catalog.
    pub fn new(store: Store, map: Table, payload: Payload, catalog: Catalog) -> Self {
        let last = Stamp(catalog.settled.stamp).max(catalog.rows.last_moment());
        Self {
            store,
            map,
            payload,
            stamps: Arc::new(Stamps::after(last)),
            trimming: Arc::default(),
            catalog: RwLock::new(catalog),
            flushed: AtomicU64::new(0),
            walked: Mutex::default(),
            paces: Mutex::default(),
            last_walk: Mutex::new(Branch(0)),
            abandoned: Mutex::default(),
            zero_walks: Mutex::default(),
            flushes: Rounds::default(),
            shows: Rounds::default(),
            receivers: Mutex::default(),
            working: Mutex::new(()),
            rooms_made: AtomicU64::new(0),
            last_seq: AtomicU64::new(0),
            settings_changes: AtomicU64::new(0),
            is_recovered: AtomicBool::new(false),
        }
    }

    /// A step of the work in the background, of which there is one at a time.
    fn work(&self) -> Result<bool, Error> {
        self.record_moments()?;
        let mut is_any = self.advance_histories()?;
        let is_for_payload = self.payload.takes_sweep();
        if self.quotas_take_sweep() || is_for_payload {
            // Only what supersedes it stably shows that a slot is dead.
            self.flush()?;
            self.store.blocks().request_sweep()?;
        }
        // None of these keeps the others from their turn, also if it fails.
        let done = [
            self.trim_found(),
            self.trim_much_unsettled(),
            self.walk(),
            self.walk_long_zeros(),
            self.clean(),
            self.reclaim(),
        ];
        for done in done {
            is_any |= done?;
        }
        Ok(is_any)
    }

    /// Cleans some segments if that is due; returns whether it did.
    fn clean(&self) -> Result<bool, Error> {
        let moves = self.payload.begin_to_clean()?;
        let is_any = !moves.is_empty();
        if is_any {
            self.flush()?;
            self.payload.replace(moves)?;
        }
        Ok(is_any)
    }

    /// What has been written to the volume of this number.
    pub fn activity(&self, number: u32) -> Result<Arc<Activity>, Error> {
        self.catalog.read().activity(number).map(Arc::clone)
    }

    /// Gives back segments that nobody needs; returns whether there were any.
    fn reclaim(&self) -> Result<bool, Error> {
        let is_any = self.payload.reclaim()? > 0;
        self.rooms_made.fetch_add(u64::from(is_any), Ordering::AcqRel);
        Ok(is_any)
    }

    /// Acts; again as often as the devices are full and room can be made. While there is little
    /// room, or half of a file is dead, writers wait until cleaning has gained a segment for each
    /// one that they fill, so that writing gets slower before it has to stop.
    pub fn with_room<T>(&self, act: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        if self.payload.owes.load(Ordering::Acquire) {
            self.clean_for_a_home();
        }
        for _ in 1..ROOMS_MAX {
            let known = self.rooms_made.load(Ordering::Acquire);
            match act() {
                Err(error) if error.is_full() && self.make_room(known)? => {}
                done => return done,
            }
        }
        act()
    }

    /// While there is little room: works until a segment has been gained, or as long as there is
    /// something to do.
    fn clean_for_a_home(&self) {
        let _one_at_a_time = self.working.lock();
        if !self.payload.owes.swap(false, Ordering::AcqRel) {
            return;
        }
        let before = self.payload.room_now();
        let mut now = before;
        while now.is_short() && !now.is_gained(&before) {
            // Whoever works in the background reports a failure; there may be room as it is.
            if !self.work().is_ok_and(|is_any| is_any) {
                return;
            }
            now = self.payload.room_now();
        }
    }

    /// Makes room on full devices, if there is any to make: it waits for a sweep, which shows what
    /// has been superseded, and works until there is some. Returns whether room has been made since
    /// that had happened `known` times.
    fn make_room(&self, known: u64) -> Result<bool, Error> {
        let _one_at_a_time = self.working.lock();
        let is_made = || self.rooms_made.load(Ordering::Acquire) != known;
        if is_made() {
            return Ok(true);
        }
        self.flush()?;
        self.store.sweep()?;
        // What sweeps have shown too early is looked at when there is nothing else.
        while self.work()? || (!is_made() && self.trim_unsettled()?) {
            if is_made() && !self.payload.room_now().is_short() {
                break;
            }
        }
        Ok(is_made())
    }

    /// The time of day in microseconds since the Unix epoch.
    pub fn now_us(&self) -> u64 {
        self.store.blocks().time_of_day_us()
    }

    /// The branches that a look goes through.
    pub fn line(&self, look: Look) -> Vec<(Branch, Stamp)> {
        self.catalog.read().rows.line(look.branch, look.at)
    }

    /// Acts at a moment between changes.
    pub fn between<T>(&self, act: impl FnOnce(Stamp) -> T) -> T {
        self.stamps.between(self.now_us(), act)
    }

    /// The sequence of the last record that was declared here.
    pub fn last_seq(&self) -> Seq {
        Seq::new(self.last_seq.load(Ordering::Acquire))
    }

    /// Notes a record that was declared here.
    pub fn note(&self, ticket: &Ticket) {
        self.last_seq.fetch_max(ticket.sequence().get(), Ordering::AcqRel);
    }

    /// Declares entries of a branch, together with what else is in a batch.
    pub fn declare(
        &self,
        branch: Branch,
        entries: &[Entry],
        mut batch: Batch,
    ) -> Result<(), Error> {
        for Entry { span, stamp, content } in entries {
            let key = entry::key(branch, *span, *stamp);
            batch.put(&self.map, &key, &entry::value(content));
        }
        let ticket = batch.commit(Durability::Relaxed)?;
        self.note(&ticket);
        Ok(())
    }

    /// Makes everything stable that has been written; once for all who ask at the same time.
    pub fn flush(&self) -> Result<(), Error> {
        self.flushes.join(|| self.flush_now())
    }

    fn flush_now(&self) -> Result<(), Error> {
        // Together, so that the slots from there on are those of changes that are not written.
        let (written, next) =
            self.payload.with_next_slot(|next| (self.stamps.written(self.last_seq()), next));
        self.payload.flush_with_log()?;
        let Physical { home, slot } = written.first.map_or(next, |first| first.min(next));
        let (stamp, seq) = (written.stamp.0, written.seq.get());
        match self.catalog.write().settle(SettledRow { stamp, seq, home, slot }) {
            // The next open looks at more than it has to.
            Err(error) if error.is_full() => {}
            settled => settled?,
        }
        self.flushed.fetch_max(stamp, Ordering::AcqRel);
        self.publish_needs(Some(written.stamp));
        Ok(())
    }

    /// Lets trimming know what is needed, and, with `until`, up to which moment: all moments that
    /// are kept before it are in the catalog.
    pub fn publish_needs(&self, until: Option<Stamp>) {
        let catalog = self.catalog.read();
        let mut needs = self.trimming.needs.lock();
        let until = until.map_or(needs.until, |until| until.max(needs.until));
        let changes = catalog.changes;
        let branches = match needs.changes == changes && !needs.branches.is_empty() {
            true => Arc::clone(&needs.branches),
            false => Arc::new(catalog.rows.needs()),
        };
        *needs = Arc::new(Needs { until, branches, changes });
    }

    /// Lets the sweep show what it writes.
    fn watch_sweeps(&self) -> Result<(), Error> {
        let (blocks, space) = (self.store.blocks(), self.map.space());
        let (format, shared) = (blocks.format_of(space)?, Arc::clone(&self.trimming));
        let visitor = Visitor { format, shared, stamps: Arc::clone(&self.stamps) };
        Ok(blocks.set_visitor(space, Some(Arc::new(visitor)))?)
    }
}

impl Drop for Inner {
    /// What nobody has flushed need not be durable; it is, if that is possible. Before the recovery
    /// has ended, a flush would say of what was lost that it is stable.
    fn drop(&mut self) {
        if *self.is_recovered.get_mut() {
            drop(self.flush());
        }
    }
}

/// A record of the map that is none of this version.
pub fn malformed(what: entry::Malformed) -> Error {
    Error::Tables(format!("{} of the map", what.0))
}
