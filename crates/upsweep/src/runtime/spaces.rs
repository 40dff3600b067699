//! The block API for whole spaces: creation, clones, snapshots, ranges of keys, drops.
//!
//! Each is one log record, whatever the size of the space, and has taken effect when the call
//! returns.

use super::block_store::BlockStore;
use super::description;
use crate::engine::{CompactionProgress, Core, Differing, SnapshotId, SpaceId, SpaceRecord};
use crate::error::{Error, RequestError, RetryError};
use crate::log::Seq;

/// Blocks that are looked at under the lock at a time.
const BLOCKS_AT_A_TIME: usize = 1000;

/// A snapshot of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotInfo {
    /// Its number.
    pub number: SnapshotId,
    /// Its name; `None` if it is temporary.
    pub name: Option<String>,
    /// Unique among all snapshots, those of copies of the store included; zero for one made before
    /// snapshots had identities.
    pub identity: [u8; 16],
    /// It contains everything accepted before this sequence.
    pub sequence: Seq,
    /// The spaces in it.
    pub spaces: Vec<SpaceRecord>,
}

impl BlockStore {
    /// Creates a space and waits until it is durable. `large_values` gives it a companion space.
    ///
    /// # Errors
    /// [`RequestError::BadTableName`]; [`RequestError::TableMismatch`] if the name is taken: choose
    /// another; [`RequestError::UnknownFormat`]: register the format when opening the store;
    /// [`Error::Closed`].
    pub fn create_space(
        &self,
        name: &str,
        format: &str,
        large: bool,
    ) -> Result<SpaceRecord, Error> {
        let (space, seq) = self.structural(|core| core.create_space(name, format, large))?;
        self.made(space, name, seq)
    }

    /// The record of a space that was made, once it is durable.
    fn made(&self, space: SpaceId, name: &str, seq: Seq) -> Result<SpaceRecord, Error> {
        self.wait_published(seq)?;
        // Another caller may have dropped it already.
        let gone = || RequestError::NoTable(name.to_owned()).into();
        self.inner.shared.lock().core.space_record(space).ok_or_else(gone)
    }

    /// Appends a record of the engine, waiting while the log has no room for it.
    pub(super) fn structural<T>(
        &self,
        mut attempt: impl FnMut(&mut Core) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.inner.shared.wait_until(|core| match attempt(core) {
            Err(Error::Retry(RetryError::Busy)) => None,
            other => Some(other),
        })?
    }

    /// Waits until the record of this sequence has taken effect, which is when it is durable.
    pub(super) fn wait_published(&self, seq: Seq) -> Result<(), Error> {
        self.inner.shared.wait_until(|core| (core.published() >= seq).then_some(()))
    }

    /// Drops a space with its reserved extents and waits until that is durable; its space is freed
    /// in the background, and returned to the file system if it stays unused for a while.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::ReadOnly`] for a space of a snapshot;
    /// [`RequestError::ExtentsInUse`]: drop the handles of its extents first; [`Error::Closed`].
    pub fn drop_space(&self, space: SpaceId) -> Result<(), Error> {
        let seq = self.structural(|core| {
            if let Some(found) = core.space_record(space)
                && self.inner.shared.extents.has_any_of(space)
            {
                return Err(RequestError::ExtentsInUse(found.name).into());
            }
            core.drop_space(space)
        })?;
        self.wait_published(seq)
    }

    /// Makes a clone of a space and waits until it is durable: one log record, whatever the size.
    /// `source` may belong to a snapshot.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::BadTableName`]; [`RequestError::TableMismatch`]
    /// if the name is taken: choose another; [`Error::Closed`].
    pub fn clone_space(&self, source: SpaceId, name: &str) -> Result<SpaceRecord, Error> {
        let (space, seq) = self.structural(|core| core.clone_space(source, name))?;
        self.made(space, name, seq)
    }

    /// Takes a snapshot of some spaces (`None`: all), and waits until that is durable: one log
    /// record, whatever their size. Without a name the snapshot ends with this process at the
    /// latest.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::BadSnapshotName`];
    /// [`RequestError::SnapshotExists`]: choose another name; [`Error::Closed`].
    pub fn create_snapshot(
        &self,
        name: Option<&str>,
        spaces: Option<&[SpaceId]>,
    ) -> Result<SnapshotInfo, Error> {
        let identity = description::random_id()?;
        let made = self.structural(|core| core.create_snapshot(name, spaces, identity))?;
        self.wait_published(made.seq)?;
        // Another caller may have dropped it already.
        let missing = || RequestError::NoSnapshot(name.unwrap_or_default().to_owned()).into();
        snapshot_info(&self.inner.shared.lock().core, made.number).ok_or_else(missing)
    }

    /// Drops a snapshot and waits until that is durable; space that only it used is freed in the
    /// background.
    ///
    /// # Errors
    /// [`RequestError::NoSnapshot`]; [`Error::Closed`].
    pub fn drop_snapshot(&self, snapshot: SnapshotId) -> Result<(), Error> {
        let seq = self.structural(|core| core.drop_snapshot(snapshot))?;
        self.wait_published(seq)
    }

    /// Moves the blocks of a space into key order on the devices, waits for completion, and returns
    /// what was done; `progress` is called now and then. The sweep and callers have priority, so
    /// this may be slow. If the process ends during it, blocks already moved stay in order.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RetryError::Full`] when there is no room to move blocks;
    /// [`Error::Closed`].
    pub fn compact(
        &self,
        space: SpaceId,
        mut progress: impl FnMut(CompactionProgress),
    ) -> Result<CompactionProgress, Error> {
        let id = self.structural(|core| core.request_compaction(space))?;
        let mut last = CompactionProgress::default();
        loop {
            let (now, ended) = self.inner.shared.wait_until(|core| {
                let ended = core.compaction_ended(id);
                let now = core.compaction(id).unwrap_or(last);
                (ended.is_some() || now != last).then_some((now, ended))
            })?;
            // The callback may call the store, or be slow.
            if now != last {
                last = now;
                progress(now);
            }
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    /// Waits until the space of everything dropped so far is free, and free space of files beyond
    /// their reserve has been returned to their file systems. The reserve is 72 MiB or more: what
    /// waiting updates and the next checkpoint may need, 8 MiB, and a quarter of the used space, at
    /// least 64 MiB. Cost: log records in proportion to what was dropped, and one request for every
    /// 16 MiB of holes.
    ///
    /// # Errors
    /// [`Error::Closed`]. It is not an error if the file system cannot punch holes: nothing is
    /// returned to it then.
    pub fn reclaim(&self) -> Result<(), Error> {
        self.inner.shared.wait_until(|core| {
            let released = !core.is_releasing();
            released.then(|| core.request_punching())
        })?;
        self.inner.shared.wait_until(|core| (!core.is_punching()).then_some(()))
    }

    /// All snapshots, temporary ones included, by number. Cost: in proportion to their number.
    #[must_use]
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        let state = self.inner.shared.lock();
        let core = &state.core;
        let numbers = core.snapshots().map(|(record, _)| record.number);
        numbers.filter_map(|number| snapshot_info(core, number)).collect()
    }

    /// The snapshot of this name.
    #[must_use]
    pub fn snapshot_named(&self, name: &str) -> Option<SnapshotInfo> {
        let state = self.inner.shared.lock();
        snapshot_info(&state.core, state.core.snapshot_named(name)?)
    }

    /// Removes all records of an ordered space with keys from `from` to below `to` (`None`: to the
    /// end) and waits until that is durable: one log record, and a few nodes of the directory.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::NotOrdered`]; [`RequestError::ReadOnly`];
    /// [`Error::Closed`].
    pub fn remove_range(
        &self,
        space: SpaceId,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<(), Error> {
        let seq = self.structural(|core| core.remove_range(space, from, to))?;
        self.wait_published(seq)
    }

    /// Ranges of positions, from `from` on, in which two spaces have different blocks: at most
    /// `count`. Cost: in proportion to what they do not share; no device read.
    ///
    /// # Errors
    /// [`RequestError::NoTable`].
    pub fn differences(
        &self,
        left: SpaceId,
        right: SpaceId,
        from: &[u8],
        count: usize,
    ) -> Result<Vec<Differing>, Error> {
        self.inner.shared.lock().core.differences(left, right, from, count)
    }

    /// Ranges of positions of a space with ordered routing in which there may be updates after this
    /// sequence, in order: all blocks without such updates are left out. Cost: a look at each block
    /// of the space in memory, and at what waits for it; no device read.
    ///
    /// # Errors
    /// [`RequestError::NoTable`].
    pub fn updated_after(&self, space: SpaceId, after: Seq) -> Result<Vec<Differing>, Error> {
        let (mut ranges, mut next) = (Vec::new(), Some(Box::default()));
        while let Some(from) = next {
            let core = &self.inner.shared.lock().core;
            next = core.updated_after(space, after, &from, BLOCKS_AT_A_TIME, &mut ranges)?;
        }
        Ok(ranges)
    }
}

fn snapshot_info(core: &Core, number: SnapshotId) -> Option<SnapshotInfo> {
    let (record, sequence) = core.snapshot(number)?;
    Some(SnapshotInfo {
        number,
        name: (!record.temporary).then(|| record.name.clone()),
        identity: record.identity,
        sequence,
        spaces: core.spaces_of(number).cloned().collect(),
    })
}
