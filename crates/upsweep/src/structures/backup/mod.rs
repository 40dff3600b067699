//! Backups: all structures of a store at one sequence, as files of records, and back.
//!
//! A backup is taken from a [`Snapshot`](crate::Snapshot), so the store goes on meanwhile. It is a
//! folder with a manifest and a file of frames for each structure, and needs nothing of the store
//! to be read again. A backup of all records stands by itself. An increment has, of ordered tables,
//! only what differs from an earlier backup; hash tables and arrays are whole in every backup.
//!
//! | module | content |
//! |---|---|
//! | [`frame_format`] | the bytes of the files of records |
//! | `manifest` | `manifest.json`: what the backup consists of, and on which it stands |
//! | `folder` | the folder: files that are written, files that are checked |
//! | `write` | from a snapshot to a folder |
//! | `restore` | from a chain of folders to a new store |
//!
//! Rule of the snapshots: an increment needs the snapshot of the backup that it is to stand on. So
//! a backup that is to be stood on keeps its own under the name that
//! [`BackupOptions::snapshot`] gives. An increment that keeps one drops that of the backup on which
//! it stands, as the next will stand on it; one that keeps none leaves it, for others.
//!
//! Invariants: the manifest comes last, so that a folder without one is no backup; a restore makes
//! the store under another name, so that there is a whole one or none, whatever happens.

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

/// How far a backup or a restore is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyProgress {
    /// Records so far.
    pub records: u64,
    /// Bytes of the files so far.
    pub bytes: u64,
    /// Bytes that there are to read; `None` in a backup, which does not know.
    pub bytes_total: Option<u64>,
}

/// What a backup is to be.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct BackupOptions<'a> {
    /// The folder of an earlier backup of this store: only what has changed since is written. Its
    /// snapshot must still be there.
    pub since: Option<&'a Path>,
    /// Keep the snapshot under this name, which must be free, so that a later backup can be an
    /// increment on this one. None: it is gone at the end.
    pub snapshot: Option<&'a str>,
    /// Is told how far the backup is, about four times per megabyte.
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

/// What a restore is to make.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct RestoreOptions<'a> {
    /// Devices and sizes of the new store. None: blocks as large as those of the store that was
    /// backed up, and a log like its own, but of 16 to 512 MiB.
    pub create: CreateOptions,
    /// Is told how far the restore is, about four times per megabyte.
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

/// What a backup has written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BackupSummary {
    /// It shows every change with a lower sequence.
    pub sequence: Seq,
    /// Structures in it.
    pub structures: u64,
    /// Records that the structures have together.
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
    /// Names of structures whose kinds are not registered, and which are not in the backup: back up
    /// with a program that has these kinds.
    pub left_out: Vec<String>,
}

/// What a restore has made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RestoreSummary {
    /// The sequence of the backup, in the store that it was taken of.
    pub sequence: Seq,
    /// Backups that were read: the one given, and those on which it stands.
    pub backups: u64,
    /// Structures that were made.
    pub structures: u64,
    /// Records that they have together.
    pub records: u64,
    /// Bytes that were read.
    pub bytes: u64,
}
