//! The public block API: an open store as spaces of blocks with queues.
//!
//! Tables are built only on this; other structures can be built on it the same way. (Bosc paper,
//! section 3: `modify`; section 4.4: `query`.)

#![expect(clippy::disallowed_types, reason = "the runtime is where threads meet")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::blocks::Blocks;
use super::boundaries::BoundariesStatus;
use super::description::{self, Described, Names};
use super::layout::{self, CreateOptions, Folder};
use super::load::BlockLimits;
use super::new_devices;
use super::options::{Durability, OpenOptions};
use super::parked::{OwnedUpdate, PendingChange};
use super::profiles;
use super::repair;
use super::shared::{PartlyAccepted, Shared};
use super::status::{self, Status};
use super::threads::{Threads, join_notifier};
use super::ticket::Ticket;
use super::views::PendingView;
use crate::device::{self, Bank, DeviceId};
use crate::engine::block_format::{ApplyError, ApplyInput, BlockFormat};
use crate::engine::modifier::{Modifier, ValueKind};
use crate::engine::registry::{ModifierId, Modifiers, PUT};
use crate::engine::{
    self, Access, BlockVisitor, Core, LoggedUpdate, Registry, Report, SnapshotId, SpaceId,
    SpaceRecord, SpaceSize, View, Wanted,
};
use crate::error::{ClosedError, Error, RequestError, RetryError};
use crate::log::Seq;
use crate::metrics::Readings;

pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) threads: std::sync::Mutex<Threads>,
    /// None if it was opened on a bank.
    pub(super) folder: Option<Folder>,
    pub(super) described: Described,
    /// Of each data device.
    pub(super) known_boundaries: Vec<Option<BoundariesStatus>>,
    pub(super) cpu_at_open: std::time::Duration,
    pub(super) memory_bytes: usize,
    pub(super) workers: usize,
    pub(super) access: Access,
}

/// An open store. Cheap to clone; all clones are the same store, from any thread. The store closes
/// when the last clone is dropped: everything accepted is made durable first.
#[derive(Clone)]
pub struct BlockStore {
    pub(super) inner: Arc<Inner>,
    /// A temporary snapshot that lives as long as this handle and its clones.
    #[expect(dead_code, reason = "it is there to be dropped")]
    pub(super) kept: Option<Arc<KeptSnapshot>>,
}

impl std::fmt::Debug for BlockStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.inner.folder.as_ref().map(|folder| &folder.path);
        formatter.debug_tuple("BlockStore").field(&path).finish()
    }
}

/// Drops a temporary snapshot at its end.
pub(super) struct KeptSnapshot {
    blocks: BlockStore,
    number: SnapshotId,
}

impl Drop for KeptSnapshot {
    fn drop(&mut self) {
        // If it fails the store is closed, and the next open drops the snapshot.
        drop(self.blocks.drop_snapshot(self.number));
    }
}

impl BlockStore {
    /// Makes an empty store in `folder`, which must be empty or not exist. Cost: writes every log
    /// device once in full.
    ///
    /// # Errors
    /// [`Error::Request`] that names the invalid path or setting; [`Error::Closed`] if a write
    /// failed. A partly created store is removed.
    pub fn create(folder: &Path, options: &CreateOptions) -> Result<(), Error> {
        layout::create(folder, options).map(drop)
    }

    /// Makes an empty store in `folder` and opens it. If it cannot be opened, it is removed.
    ///
    /// # Errors
    /// As [`BlockStore::create`] and [`BlockStore::open`].
    pub fn create_and_open(
        folder: &Path,
        create: &CreateOptions,
        open: &OpenOptions,
        registry: &Registry,
    ) -> Result<Self, Error> {
        let made = layout::create(folder, create)?;
        Self::open(folder, open, registry).inspect_err(|_| made.remove())
    }

    /// Makes an empty store on `devices`, the first `data_devices` of which are for data and the
    /// others for the log. Their content is lost. A device that is empty and can grow starts with a
    /// few MiB. Paths in `options` are ignored.
    ///
    /// # Errors
    /// [`Error::Request`] that names the invalid device or setting; [`Error::Closed`] if a write
    /// failed.
    pub fn create_on(
        devices: &mut dyn Bank,
        data_devices: u16,
        options: &CreateOptions,
    ) -> Result<(), Error> {
        let log_devices = devices.count().saturating_sub(data_devices);
        if data_devices == 0 || log_devices == 0 {
            let reason = format!(
                "{data_devices} of {}; give at least one to data and one to the log",
                devices.count()
            );
            return Err(RequestError::BadConfig { setting: "data devices", reason }.into());
        }
        let log_bytes = new_devices::log_bytes(options, usize::from(log_devices))?;
        let rings = new_devices::size(devices, usize::from(data_devices), log_bytes)?;
        let name = |device| PathBuf::from(devices.description(DeviceId(device)).name);
        let names = Names {
            data: (0..data_devices).map(name).collect(),
            log: (data_devices..devices.count()).map(name).collect(),
        };
        let places = vec![None; usize::from(devices.count())];
        description::format(devices, options, names, rings, &places).map(drop)
    }

    /// Opens the store in `folder` and recovers it. Cost: reads the directory and the log since the
    /// last checkpoint.
    ///
    /// # Errors
    /// [`RequestError::NoStore`]; [`RetryError::InUse`](crate::RetryError::InUse) while another
    /// process has it open; [`RetryError::NoThread`]; unregistered formats or modifiers;
    /// [`Error::Damaged`].
    pub fn open(folder: &Path, options: &OpenOptions, registry: &Registry) -> Result<Self, Error> {
        Self::open_as(folder, options, registry, Access::ReadWrite)
    }

    /// Opens the store in `folder` for reading: nothing is written, so it may be on read-only
    /// media; every change is refused. Modifiers of the application may be missing: records with
    /// pending updates of those cannot be read. Memory may exceed its budget, because nothing is
    /// swept. Cost: as [`BlockStore::open`].
    ///
    /// # Errors
    /// As [`BlockStore::open`], but for unregistered modifiers; calls that need an update of one
    /// fail with [`RequestError::UnknownModifier`].
    pub fn open_read_only(
        folder: &Path,
        options: &OpenOptions,
        registry: &Registry,
    ) -> Result<Self, Error> {
        Self::open_as(folder, options, registry, Access::ReadOnly)
    }

    /// Opens the store in `folder` without all modifiers of the application: as
    /// [`BlockStore::open`], but blocks with waiting updates of missing modifiers are not swept
    /// (see [`Status::held_blocks`]), and while any modifier is missing, updates are refused. Those
    /// waiting updates are kept, and memory may exceed its budget by them.
    ///
    /// # Errors
    /// As [`BlockStore::open`], but for unregistered modifiers; updates, and calls that need an
    /// update of such a modifier, fail with [`RequestError::UnknownModifier`].
    pub fn open_for_upkeep(
        folder: &Path,
        options: &OpenOptions,
        registry: &Registry,
    ) -> Result<Self, Error> {
        Self::open_as(folder, options, registry, Access::Upkeep)
    }

    fn open_as(
        folder: &Path,
        options: &OpenOptions,
        registry: &Registry,
        access: Access,
    ) -> Result<Self, Error> {
        let (folder, description, devices) = layout::open(folder, access)?;
        let profiles = folder.read_profiles()?;
        let described = Described { description, profiles };
        Self::start(Some(folder), described, Box::new(devices), options, registry, access)
    }

    /// Opens the store on `devices` and recovers it. They are dropped when it closes.
    ///
    /// # Errors
    /// [`RequestError::Path`] with the name of the first device if it has no store label; as
    /// [`BlockStore::open`].
    pub fn open_on(
        mut devices: Box<dyn Bank>,
        options: &OpenOptions,
        registry: &Registry,
    ) -> Result<Self, Error> {
        let description = description::of_bank(&mut *devices)?;
        description::check_labels(&mut *devices, &description)?;
        let profiles = profiles::of_bank(&*devices);
        let described = Described { description, profiles };
        Self::start(None, described, devices, options, registry, Access::ReadWrite)
    }

    /// Reads everything in the store in `folder` and checks every checksum and invariant. Nothing
    /// is written. Needs no modifier of the application.
    ///
    /// # Errors
    /// As [`BlockStore::open`], but for unregistered modifiers; damage is in the report.
    pub fn verify(folder: &Path, registry: &Registry) -> Result<Report, Error> {
        let (folder, description, mut devices) = layout::open(folder, Access::ReadOnly)?;
        // One that cannot be read must not keep anyone from verifying.
        let profiles = folder.read_profiles().unwrap_or_default();
        let described = Described { description, profiles };
        engine::verify(&mut devices, described.config_with_any_memory(), registry)
    }

    /// Restores `store.json` in `folder` from the copy in the label of `device`, by default the
    /// first data device. Returns whether it had to be restored; the old file is then
    /// `store.json.damaged`.
    ///
    /// # Errors
    /// [`RequestError::Path`] for a device that cannot be read or has no intact label: name another
    /// one; [`RetryError::InUse`].
    pub fn repair(folder: &Path, device: Option<&Path>) -> Result<bool, Error> {
        repair::repair(folder, device)
    }

    /// Declares changes that take effect together or not at all, also after a crash. Queries see
    /// them at once.
    ///
    /// # Errors
    /// [`Error::Request`] with nothing changed; [`RetryError::Full`](crate::RetryError::Full);
    /// [`Error::Closed`].
    pub fn modify(
        &self,
        updates: &[LoggedUpdate<'_>],
        durability: Durability,
    ) -> Result<Ticket, Error> {
        let waits = durability == Durability::Wait;
        let shared = &self.inner.shared;
        let seq = if updates.is_empty() {
            // Nothing changes; it is durable when all before it is.
            shared.check_caller()?;
            let last = shared.lock().core.last();
            if waits {
                shared.wait_durable(last)?;
            }
            last
        } else {
            shared.submit(updates, durability.urgency(), waits)?
        };
        Ok(Ticket::new(&self.inner, seq))
    }

    /// As [`BlockStore::modify`], without blocking the thread: the change is declared when the
    /// future is first polled, and resolves to a ticket when `modify` would return one.
    ///
    /// While there is no room the change waits in a queue: it is not yet visible to queries, and
    /// takes memory beyond the budget of the store. Changes of this kind are accepted in the order
    /// in which they are first polled; a blocking call may overtake them. If the future is dropped
    /// before the change is accepted, nothing is written; after that, the change stays. It resolves
    /// to the errors of `modify`, and to [`Error::Closed`] if the store closes while it waits.
    pub fn modify_async(&self, updates: Vec<OwnedUpdate>, durability: Durability) -> PendingChange {
        PendingChange::new(&self.inner, updates, durability)
    }

    /// Like one call of [`BlockStore::modify`] per record, in order, but cheaper: each record by
    /// itself is atomic. The ticket is for the last.
    ///
    /// # Errors
    /// As [`BlockStore::modify`], with the number of records accepted before the failing one.
    pub fn modify_each<'a>(
        &self,
        records: impl IntoIterator<Item = &'a [LoggedUpdate<'a>]>,
        durability: Durability,
    ) -> Result<Ticket, PartlyAccepted> {
        let mut records = records.into_iter();
        let waits = durability == Durability::Wait;
        let shared = &self.inner.shared;
        let seq = shared.submit_some(&mut records, durability.urgency(), waits)?;
        Ok(Ticket::new(&self.inner, seq))
    }

    /// A view of a block: image and waiting updates, consistent with each other. At most one device
    /// read.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`Error::Damaged`] if the block is.
    pub fn view(&self, space: SpaceId, wanted: Wanted) -> Result<View, Error> {
        self.inner.shared.view(space, wanted)
    }

    /// As [`BlockStore::view`], for several blocks; the answers are in the same order. Their device
    /// reads are in flight at the same time, where the host can.
    pub fn views(&self, space: SpaceId, wanted: Vec<Wanted>) -> Vec<Result<View, Error>> {
        self.inner.shared.views(space, wanted)
    }

    /// As [`BlockStore::view`], without blocking the thread. It resolves to [`Error::Closed`] if
    /// the store closes meanwhile.
    pub fn view_async(&self, space: SpaceId, wanted: Wanted) -> PendingView {
        PendingView::new(Arc::clone(&self.inner.shared), space, wanted)
    }

    /// The blocks of a space with positions from `from` to below `to` (`None`: to the end), in key
    /// order or, from the other end, in reverse. With ordered routing the first is the one that
    /// covers `from`; of what waits for it, some that does not concern the range may be left out.
    /// Each is shown once, as it is when the iterator gets there, with the updates that wait for
    /// it; blocks that are made meanwhile at positions already passed are not shown.
    ///
    /// Cost: at most one device read per block. From the third block on, and with `to` on a
    /// rotating device from the second, blocks are read ahead, with requests for many neighbours,
    /// and do not enter the cache. What is read ahead takes at most the share of the memory that is
    /// for scans; while that is taken, blocks are read one by one. A view keeps what was read with
    /// its block, up to 16 MiB. (Lachesis paper, sections 3.4 and 4.)
    #[must_use]
    pub fn blocks(&self, space: SpaceId, from: &[u8], to: Option<&[u8]>) -> Blocks {
        Blocks::new(self.clone(), space, from.to_vec(), to.map(<[u8]>::to_vec))
    }

    /// Answers a query of one key with `query`, which gets the image of its block, if needed, and
    /// the updates that wait for the key.
    ///
    /// # Errors
    /// As [`BlockStore::view`].
    pub fn query<R>(
        &self,
        space: SpaceId,
        key: &[u8],
        query: impl FnOnce(&View, &Modifiers) -> R,
    ) -> Result<R, Error> {
        let view = self.view(space, Wanted::Point(key.to_vec()))?;
        Ok(query(&view, &self.modifiers()))
    }

    /// The whole block that holds `key`, with everything that waits for it applied: its body in the
    /// layout of its format; for a `raw` block, the value. Empty if there is none. At most one
    /// device read.
    ///
    /// # Errors
    /// As [`BlockStore::view`]; [`Error::Damaged`] also if the block refers to large values, which
    /// only its structure can follow.
    pub fn read(&self, space: SpaceId, key: &[u8]) -> Result<Vec<u8>, Error> {
        let format = self.format_of(space)?;
        let view = self.view(space, Wanted::Covering(format.position(key).into_owned()))?;
        let what = || format!("block {:?}", String::from_utf8_lossy(key));
        let damage = |reason| view.damage(what(), reason);
        self.body_of(&*format, &view).map_err(damage)
    }

    /// A block of this format with everything that waits for it applied: its body.
    ///
    /// # Errors
    /// A description of the damage to the image, or the fact that the block refers to large values:
    /// report either as damage.
    pub fn body_of(&self, format: &dyn BlockFormat, view: &View) -> Result<Vec<u8>, String> {
        let modifiers = self.modifiers();
        let mut updates = view.updates();
        updates.sort_by(|left, right| (left.key, left.seq).cmp(&(right.key, right.seq)));
        let input = ApplyInput {
            body: view.image.as_ref().map(|image| image.body()),
            updates: &updates,
            modifiers: &modifiers,
            values: &[],
            body_bytes_max: usize::MAX,
            inline_value_bytes_max: usize::MAX,
            expired_us: 0,
        };
        format.read(&input).map_err(|error| match error {
            ApplyError::Corrupt(reason) => reason,
            ApplyError::NeedValues(_) => "it refers to large values, and none has".to_owned(),
        })
    }

    /// The format of the blocks of a space, with the parameters of the space.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::UnknownFormat`] if the format is not registered:
    /// register it when opening the store.
    pub fn format_of(&self, space: SpaceId) -> Result<Arc<dyn BlockFormat>, Error> {
        self.inner.shared.lock().core.format_of(space)
    }

    /// Replaces a block of a space of format `raw`: its value becomes `bytes` (at most 1 MiB).
    ///
    /// # Errors
    /// As [`BlockStore::modify`].
    pub fn write(
        &self,
        space: SpaceId,
        key: &[u8],
        bytes: &[u8],
        durability: Durability,
    ) -> Result<Ticket, Error> {
        let mut operand = Vec::with_capacity(1 + bytes.len());
        operand.push(ValueKind::Bytes as u8);
        operand.extend_from_slice(bytes);
        let update = LoggedUpdate { space, modifier: PUT, key, operand: &operand };
        self.modify(&[update], durability)
    }

    /// The same store, in a handle that drops a temporary snapshot when its last clone is dropped.
    pub(crate) fn keeping(&self, snapshot: SnapshotId) -> Self {
        let blocks = Self { inner: Arc::clone(&self.inner), kept: None };
        let kept = KeptSnapshot { blocks: blocks.clone(), number: snapshot };
        Self { kept: Some(Arc::new(kept)), ..blocks }
    }

    /// Whether both are the same open store.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// What fits into a block of this store.
    #[must_use]
    pub fn limits(&self) -> BlockLimits {
        BlockLimits::of(&self.inner.shared.lock().core)
    }

    /// The registered modifiers of this store.
    #[must_use]
    pub fn modifiers(&self) -> Arc<Modifiers> {
        Arc::clone(&self.inner.shared.modifiers)
    }

    /// The number of a modifier in this store.
    ///
    /// # Errors
    /// [`RequestError::UnknownModifier`]: register it when opening the store.
    pub fn modifier_id(&self, modifier: &dyn Modifier) -> Result<ModifierId, Error> {
        let (name, version) = (modifier.name(), modifier.version());
        self.modifiers()
            .id_of(name, version)
            .ok_or_else(|| RequestError::UnknownModifier { name: name.to_owned(), version }.into())
    }

    /// The space of this name.
    #[must_use]
    pub fn space(&self, name: &str) -> Option<SpaceRecord> {
        self.inner.shared.lock().core.space_named(name).cloned()
    }

    /// The space with this number, including those of snapshots.
    #[must_use]
    pub fn space_numbered(&self, space: SpaceId) -> Option<SpaceRecord> {
        self.inner.shared.lock().core.space_record(space)
    }

    /// All named spaces with their sizes, except those of snapshots. Cost: a pass over the
    /// directory.
    #[must_use]
    pub fn spaces(&self) -> Vec<(SpaceRecord, SpaceSize)> {
        let state = self.inner.shared.lock();
        let core = &state.core;
        core.spaces_of(SnapshotId::NONE)
            .map(|space| (space.clone(), core.space_size(space.space)))
            .collect()
    }

    /// Shows every block of a space that is swept from now on to `visitor`, which replaces any
    /// previous one; `None` removes it. Visitors are not part of the store: register them after
    /// every open. A visit in progress may end after this call. A visitor that panics is not called
    /// again: see [`BlockStore::visitor_panic`].
    ///
    /// # Errors
    /// [`RequestError::NoTable`] if there is no such space.
    pub fn set_visitor(
        &self,
        space: SpaceId,
        visitor: Option<Arc<dyn BlockVisitor>>,
    ) -> Result<(), Error> {
        self.inner.shared.lock().core.set_visitor(space, visitor)
    }

    /// The message of the panic that ended the visitor of a space; `None` if it did not panic, or
    /// there is none.
    #[must_use]
    pub fn visitor_panic(&self, space: SpaceId) -> Option<String> {
        self.inner.shared.lock().core.visitor_panic(space)
    }

    /// Lets everything accepted so far be written to the data devices, and does not wait for it:
    /// for owners of spaces whose visitor shows what they can give back (see
    /// [`BlockStore::set_visitor`]). Cost: that of a cycle, at full speed; none if one is running
    /// that includes all.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn request_sweep(&self) -> Result<(), Error> {
        let shared = &self.inner.shared;
        shared.check_caller()?;
        let mut state = shared.lock();
        if let Some(closed) = state.core.closed() {
            return Err(closed.clone().into());
        }
        state.core.request_sweep();
        shared.pump(state);
        Ok(())
    }

    /// Writes everything accepted so far to the data devices, waits for completion, and writes a
    /// checkpoint. Held blocks are skipped (see [`BlockStore::open_for_upkeep`]).
    ///
    /// # Errors
    /// [`Error::Closed`]; [`RetryError::Full`](crate::RetryError::Full) when the data devices have
    /// no room.
    pub fn sweep(&self) -> Result<(), Error> {
        let mut target = None;
        let time_of_day = &self.inner.shared.time_of_day;
        self.inner.shared.wait_until(move |core| {
            let target = *target.get_or_insert_with(|| {
                core.expire_through(time_of_day.expired_us());
                core.request_sweep();
                core.accepted()
            });
            if core.is_full() {
                return Some(Err(core.full_error()));
            }
            core.is_swept(target).then_some(Ok(()))
        })??;
        // The next open then need not read the log.
        self.inner.leave_checkpoint(|core| core.replay_from_next() > core.replay_from())
    }

    /// Writes the directory to the data devices, which bounds what the next open has to replay.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`RetryError::Full`](crate::RetryError::Full) when the data devices have
    /// no room for it.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.inner.checkpoint()
    }

    /// Waits until everything that was accepted so far is on stable media.
    ///
    /// # Errors
    /// [`Error::Closed`] if a log write failed.
    pub fn flush(&self) -> Result<(), Error> {
        self.inner.shared.check_caller()?;
        let last = self.inner.shared.lock().core.last();
        self.inner.shared.wait_durable(last)
    }

    /// In a store without threads: does what is due, and passes time up to the next event, at most
    /// 100 ms. Calls that wait do so themselves. Does nothing in a store with threads.
    pub fn work(&self) {
        self.inner.shared.lend_hands();
    }

    /// The sequence through which everything is on stable media.
    #[must_use]
    pub fn durable(&self) -> Seq {
        self.inner.shared.durable()
    }

    /// The configuration, activity and current bottleneck of the store.
    #[must_use]
    pub fn status(&self) -> Status {
        let inner = &self.inner;
        let cpu = device::process_cpu().saturating_sub(inner.cpu_at_open);
        status::gather(&status::Sources {
            shared: &inner.shared,
            described: &inner.described,
            known_boundaries: &inner.known_boundaries,
            folder: inner.folder.as_ref(),
            cpu,
            memory_bytes: inner.memory_bytes,
            workers: inner.workers,
        })
    }

    /// All metrics since the store was opened. Gauges are at most a tenth of a second old. It
    /// blocks nothing and is never blocked. Cost: about 10,000 reads of memory.
    #[must_use]
    pub fn metrics(&self) -> Readings {
        self.inner.shared.metrics.read()
    }

    /// The same in the text format of Prometheus (version 0.0.4), about 50 KiB.
    #[must_use]
    pub fn metrics_text(&self) -> String {
        self.inner.shared.metrics.text()
    }

    /// Makes everything durable and closes the store, also for all other handles, tickets and
    /// snapshots of it: every later call is refused, and the folder can be opened again. Does
    /// nothing if it is already closed.
    ///
    /// # Errors
    /// [`Error::Closed`] if something could not be made durable; the store is closed nevertheless.
    pub fn close(self) -> Result<(), Error> {
        self.inner.end()
    }
}

impl Inner {
    fn checkpoint(&self) -> Result<(), Error> {
        let mut asked = None;
        self.shared.wait_until(move |core| {
            let done = core.metrics().checkpoints_total.get();
            let Some((before, replay_from, published)) = asked else {
                asked = Some((done, core.replay_from_next(), core.published()));
                core.request_checkpoint();
                return None;
            };
            // The first checkpoint that ends may have begun earlier.
            let is_recent = core.replay_from() >= replay_from && core.checkpointed() >= published;
            if done > before && is_recent {
                return Some(Ok(()));
            }
            if core.is_checkpointing() {
                return None;
            }
            // It was abandoned, or was not enough.
            if core.is_full() {
                return Some(Err(core.full_error()));
            }
            core.request_checkpoint();
            None
        })?
    }

    /// Writes a checkpoint if one `is_due`. Without room there is none, but the log has everything.
    fn leave_checkpoint(&self, is_due: impl FnOnce(&Core) -> bool) -> Result<(), Error> {
        let is_due = is_due(&self.shared.lock().core);
        if !is_due {
            return Ok(());
        }
        match self.checkpoint() {
            Err(Error::Retry(RetryError::Full { .. })) => Ok(()),
            other => other,
        }
    }

    /// Makes everything durable, and records that in a superblock. The store is then closed.
    fn attest(&self) -> Result<(), Error> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        // The next process to open the store may not have the formats of all its spaces, and then
        // cannot rebuild the directory from the log: everything accepted must be in it.
        let last = self.shared.lock().core.last();
        self.shared.wait_durable(last)?;
        self.shared.wait_until(move |core| (core.published() >= last).then_some(()))?;
        self.leave_checkpoint(|core| core.checkpointed() < core.published())?;
        let mut state = self.shared.lock();
        state.core.begin_close();
        let last = state.core.last();
        drop(state);
        self.shared.wait_durable(last)?;
        self.shared.wait_until(|core| core.is_attested().then(|| core.close(ClosedError::Closed)))
    }

    /// Closes the store, unless it is closed: afterwards everything is durable, no caller waits, no
    /// thread is left, and the folder is free.
    fn end(&self) -> Result<(), Error> {
        self.shared.check_process()?;
        let mut threads = self.threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if threads.have_ended() {
            return Ok(());
        }
        let ended = self.attest();
        let mut state = self.shared.lock();
        state.core.close(ClosedError::Closed);
        self.shared.pump(state);
        if self.access != Access::ReadOnly {
            let cpu = device::process_cpu().saturating_sub(self.cpu_at_open);
            if let Some(folder) = &self.folder
                && let Some(session) = status::session(&self.shared, cpu, folder)
            {
                folder.write_session(&session);
            }
        }
        threads.stop(&self.shared);
        self.shared.end();
        self.folder.iter().for_each(Folder::unlock);
        let notifier = threads.take_notifier();
        // A call may want to close the store too.
        drop(threads);
        join_notifier(notifier);
        self.shared.make_last_calls();
        ended
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.shared.check_process().is_err() {
            // All of it belongs to the parent: threads, requests in the kernel, locks.
            std::mem::forget(Arc::clone(&self.shared));
            let threads = self.threads.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
            std::mem::forget(std::mem::take(threads));
            self.folder.iter().for_each(Folder::forget);
            return;
        }
        // If it fails, only updates without a promise of durability are lost.
        drop(self.end());
    }
}
