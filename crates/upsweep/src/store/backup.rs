//! Backups of a store, and stores made of backups.

use std::path::Path;

use super::{Store, StoreBuilder};
use crate::error::Error;
#[cfg(doc)]
use crate::error::RequestError;
use crate::structures::backup::{self, Backup, BackupOptions, BackupSummary, Chain, Earlier};
use crate::structures::backup::{RestoreOptions, RestoreSummary};

impl Store {
    /// Copies all structures, as they are at one moment, into a new folder; the store goes on
    /// meanwhile. [`Store::restore`] makes a store of it again. Updates in quarantine are not in
    /// it, nor are structures of kinds that are not registered: [`BackupSummary::left_out`] names
    /// them.
    ///
    /// A backup on which an increment is to stand keeps its snapshot: see
    /// [`BackupOptions::snapshot`]. It takes the room of what changes later, until an increment
    /// that keeps its own drops it, or [`Store::drop_snapshot`] does. If the process ends in the
    /// middle, a folder without manifest is left, and a named snapshot too: remove both.
    ///
    /// When it returns, all of it is on stable media. Cost: reads all structures once, or, of the
    /// ordered tables in an increment, what differs; memory for some blocks, a megabyte of records
    /// and one record more; twice that in an increment.
    ///
    /// # Errors
    /// [`RequestError::AlreadyExists`] if something is at `folder`; [`RequestError::Path`];
    /// [`RequestError::BadBackup`] if no increment can stand on [`BackupOptions::since`]: make one
    /// of all records; [`RequestError::BackupDamaged`] if its manifest is damaged;
    /// [`RequestError::SnapshotExists`]; [`RequestError::BadSnapshotName`]; [`Error::Damaged`];
    /// [`Error::Closed`]. Folder and snapshot are gone then, unless it was the dropping of the old
    /// snapshot that failed.
    pub fn backup(
        &self,
        folder: impl AsRef<Path>,
        options: &BackupOptions<'_>,
    ) -> Result<BackupSummary, Error> {
        let find = |since| Earlier::find(&self.blocks, self.snapshots(), since);
        let earlier = options.since.map(find).transpose()?;
        let snapshot = match options.snapshot {
            Some(name) => self.create_snapshot(name)?,
            None => self.snapshot()?,
        };
        let (blocks, progress) = (&self.blocks, options.progress);
        let made = Backup { blocks, snapshot: &snapshot, earlier: earlier.as_ref(), progress };
        let made = backup::backup(&made, folder.as_ref());
        let Ok(mut summary) = made else {
            if let Some(name) = options.snapshot {
                // The failure of the backup is what the caller has to know.
                drop(self.drop_snapshot(name));
            }
            return made;
        };
        let old = earlier.as_ref().and_then(Earlier::snapshot);
        if let Some(old) = old.filter(|_| options.snapshot.is_some()) {
            self.drop_snapshot(old)?;
            summary.dropped_snapshot = Some(old.to_owned());
        }
        Ok(summary)
    }

    /// Makes a store of a backup with default settings: see [`StoreBuilder::restore`].
    ///
    /// # Errors
    /// As [`StoreBuilder::restore`].
    pub fn restore(
        backup: impl AsRef<Path>,
        folder: impl AsRef<Path>,
    ) -> Result<RestoreSummary, Error> {
        Self::builder().restore(backup, folder, &RestoreOptions::default())
    }
}

impl StoreBuilder {
    /// Makes a store in `folder`, which must not be there, of the backup in the folder `backup` and
    /// those on which it stands. It has the structures with their names, kinds and records, and an
    /// identity and a history of its own; a backup of the old store is none of the new one.
    ///
    /// The store is made beside, as `folder` with `.restoring` behind, and gets its name when it is
    /// whole. If this fails that is removed; if the process ends in the middle it stays, and has to
    /// be removed by hand.
    ///
    /// Cost: reads all files once and checks every byte; ordered tables are loaded in bulk, all
    /// else is declared as updates.
    ///
    /// # Errors
    /// [`RequestError::AlreadyExists`]; [`RequestError::BadBackup`] for a folder that is no backup,
    /// or one whose parent is missing or another; [`RequestError::BackupDamaged`], which names file
    /// and offset; [`RequestError::UnknownFormat`] for a structure whose kind is not registered; as
    /// [`StoreBuilder::create`].
    pub fn restore(
        self,
        backup: impl AsRef<Path>,
        folder: impl AsRef<Path>,
        options: &RestoreOptions<'_>,
    ) -> Result<RestoreSummary, Error> {
        let chain = Chain::read(backup.as_ref())?;
        let create = chain.create_options(&options.create);
        let kinds = self.kinds();
        let open = |place: &Path| Ok(self.create(place, &create)?.blocks);
        backup::restore(&chain, &kinds, folder.as_ref(), options, open)
    }
}
