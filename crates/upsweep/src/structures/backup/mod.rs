//! Backups: all structures of a store at one sequence, as files of records, and back.
//!
//! A backup is taken from a [`Snapshot`](crate::Snapshot), so the store remains in use meanwhile.
//! It is a folder with a manifest and a file of frames for each structure, and can be read without
//! the store. A full backup is self-contained. An increment has, of ordered tables, only what
//! differs from an earlier backup; hash tables and arrays are complete in every backup.
//!
//! | module | content |
//! |---|---|
//! | [`frame_format`] | the bytes of the files of records |
//! | `manifest` | `manifest.json`: the content of the backup, and its base |
//! | `folder` | the folder: writes files, and reads and checks them |
//! | `write` | from a snapshot to a folder |
//! | `restore` | from a chain of folders to a new store |
//!
//! Snapshots: an increment needs the snapshot of its base. So a backup that is to be a base keeps
//! its own under the name in [`BackupOptions::snapshot`]. An increment that keeps a snapshot drops
//! that of its base, because it will be the next base; one that keeps none leaves it for others.
//!
//! Invariants: the manifest is written last, so a folder without one is not a backup; a restore
//! makes the store under another name, so there is a complete one or none, whatever happens.

mod folder;
pub mod frame_format;
mod manifest;
mod restore;
mod write;

use std::path::Path;

use serde::Serialize;

pub(crate) use restore::{Chain, restore};
pub(crate) use write::{Backup, Earlier, backup};

use crate::engine::ids::Seq;
use crate::runtime::CreateOptions;

/// Progress of a backup or a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyProgress {
    /// Records so far.
    pub records: u64,
    /// Bytes of the files so far.
    pub bytes: u64,
    /// Total bytes to read; `None` in a backup, where it is unknown.
    pub bytes_total: Option<u64>,
}

/// Options of a backup.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct BackupOptions<'a> {
    /// The folder of an earlier backup of this store: only what has changed since is written. Its
    /// snapshot must still exist.
    pub since: Option<&'a Path>,
    /// Keep the snapshot under this name, which must be free, so that a later backup can be an
    /// increment on this one. None: it is dropped at the end.
    pub snapshot: Option<&'a str>,
    /// Called with the progress of the backup, about four times per megabyte.
    pub progress: Option<&'a dyn Fn(CopyProgress)>,
}

impl<'a> BackupOptions<'a> {
    /// Sets [`BackupOptions::since`].
    #[must_use]
    pub fn since(mut self, folder: &'a Path) -> Self {
        self.since = Some(folder);
        self
    }

    /// Sets [`BackupOptions::snapshot`].
    #[must_use]
    pub fn snapshot(mut self, name: &'a str) -> Self {
        self.snapshot = Some(name);
        self
    }

    /// Sets [`BackupOptions::progress`].
    #[must_use]
    pub fn progress(mut self, tell: &'a dyn Fn(CopyProgress)) -> Self {
        self.progress = Some(tell);
        self
    }
}

/// Options of a restore.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct RestoreOptions<'a> {
    /// Devices and sizes of the new store. None: blocks as large as those of the store that was
    /// backed up, and a log like its own, but of 16 to 512 MiB.
    pub create: CreateOptions,
    /// Called with the progress of the restore, about four times per megabyte.
    pub progress: Option<&'a dyn Fn(CopyProgress)>,
}

impl<'a> RestoreOptions<'a> {
    /// Sets [`RestoreOptions::create`].
    #[must_use]
    pub fn create(mut self, options: CreateOptions) -> Self {
        self.create = options;
        self
    }

    /// Sets [`RestoreOptions::progress`].
    #[must_use]
    pub fn progress(mut self, tell: &'a dyn Fn(CopyProgress)) -> Self {
        self.progress = Some(tell);
        self
    }
}

/// Summary of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BackupSummary {
    /// It contains every change with a lower sequence.
    pub sequence: Seq,
    /// Number of structures in it.
    pub structures: u64,
    /// Total number of records of the structures.
    pub records: u64,
    /// Records that were written.
    pub puts: u64,
    /// Deletions that were written.
    pub deletions: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// The snapshot that is kept for increments on this backup.
    pub snapshot: Option<String>,
    /// The snapshot of the earlier backup, if it was dropped.
    pub dropped_snapshot: Option<String>,
    /// Names of structures that are not in the backup because their kinds are not registered: back
    /// up with a program that has these kinds.
    pub left_out: Vec<String>,
}

/// Summary of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RestoreSummary {
    /// The sequence of the backup, in the store that it was taken from.
    pub sequence: Seq,
    /// Backups that were read: the given one, and its bases.
    pub backups: u64,
    /// Structures that were made.
    pub structures: u64,
    /// Their total number of records.
    pub records: u64,
    /// Bytes that were read.
    pub bytes: u64,
}
