//! Backups of a store, and stores restored from them.

use std::path::Path;

use super::{Store, StoreBuilder};
use crate::error::Error;
#[cfg(doc)]
use crate::error::RequestError;
use crate::structures::backup::{self, Backup, BackupOptions, BackupSummary, Chain, Earlier};
use crate::structures::backup::{RestoreOptions, RestoreSummary};

impl Store {
    /// Copies all structures, as of one moment, into a new folder; the store remains in use
    /// meanwhile. [`Store::restore`] makes a store from it. Updates in quarantine are not included,
    /// nor are structures of unregistered kinds: [`BackupSummary::left_out`] names them.
    ///
    /// A backup that is to be the base of an increment keeps its snapshot: see
    /// [`BackupOptions::snapshot`]. The snapshot takes space for what changes later, until an
    /// increment that keeps its own drops it, or [`Store::drop_snapshot`] does. If the process ends
    /// during a backup, a folder without manifest and a named snapshot may remain: remove both.
    ///
    /// When this returns, the backup is on stable media. Cost: reads all structures once, or, of
    /// the ordered tables in an increment, what differs; memory for some blocks, a megabyte of
    /// records and one more record; twice that for an increment.
    ///
    /// # Errors
    /// [`RequestError::AlreadyExists`] if something is at `folder`; [`RequestError::Path`];
    /// [`RequestError::BadBackup`] if [`BackupOptions::since`] cannot be the base of an increment:
    /// make a full backup; [`RequestError::BackupDamaged`] if its manifest is damaged;
    /// [`RequestError::SnapshotExists`]; [`RequestError::BadSnapshotName`]; [`Error::Damaged`];
    /// [`Error::Closed`]. Folder and snapshot are removed then, unless the failure was in dropping
    /// the old snapshot.
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
                // Report the failure of the backup, not one of the cleanup.
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

    /// Makes a store from a backup with default settings: see [`StoreBuilder::restore`].
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
    /// Makes a store in `folder`, which must not exist, from the backup in the folder `backup` and
    /// its bases. It has the same structures with their names, kinds and records, but a new
    /// identity and history: a backup of the old store cannot be the base of one of the new store.
    ///
    /// The store is built in `folder` with `.restoring` appended, and renamed when it is complete.
    /// If this fails, that folder is removed; if the process ends during it, the folder remains and
    /// has to be removed by hand.
    ///
    /// Cost: reads all files once and checks every byte; ordered tables are loaded in bulk,
    /// everything else is declared as updates.
    ///
    /// # Errors
    /// [`RequestError::AlreadyExists`]; [`RequestError::BadBackup`] for a folder that is not a
    /// backup, or whose base is missing or the wrong one; [`RequestError::BackupDamaged`], which
    /// names file and offset; [`RequestError::UnknownFormat`] for a structure whose kind is not
    /// registered; as [`StoreBuilder::create`].
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
