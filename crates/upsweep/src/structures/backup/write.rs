//! From a snapshot to the folder of a backup.
//!
//! Steps: check the base, if there is one; make the folder; copy the structures one by one, each
//! into its own file; write the manifest. If anything fails, the folder is removed.

use std::path::Path;

use super::folder::{FrameWriter, Unfinished, read_manifest, way, write_manifest};
use super::manifest::{Content, Manifest, Parent, StructureFile};
use super::{BackupSummary, CopyProgress};
use crate::error::{Error, RequestError};
use crate::runtime::BlockStore;
use crate::runtime::layout::LOG_BYTES_DEFAULT;
use crate::structures::kind::{Kind, RecordChanges};
use crate::structures::snapshot::{Change, Snapshot};
use crate::structures::table::Value;

/// The minimum log size of a restored store: the largest values fit.
const LOG_BYTES_MIN: u64 = 16 << 20;

/// An earlier backup that can be the base of another.
pub(crate) struct Earlier<'a> {
    folder: &'a Path,
    manifest: Manifest,
    checksum: String,
    snapshot: Snapshot,
}

impl<'a> Earlier<'a> {
    /// Reads the backup in `folder`; it must be of this store, and its snapshot must exist.
    ///
    /// # Errors
    /// [`RequestError::BadBackup`]; [`RequestError::BackupDamaged`] for a damaged manifest.
    pub(crate) fn find(
        blocks: &BlockStore,
        snapshots: Vec<Snapshot>,
        folder: &'a Path,
    ) -> Result<Self, Error> {
        let (manifest, checksum) = read_manifest(folder)?;
        let bad = |reason| RequestError::BadBackup { path: folder.to_owned(), reason };
        if manifest.store != blocks.status().store {
            return Err(bad("it is a backup of another store".to_owned()).into());
        }
        let Some(name) = &manifest.snapshot else {
            let reason = "no snapshot was kept for it, so no increment can stand on it";
            return Err(bad(reason.to_owned()).into());
        };
        let is_same = |found: &Snapshot| {
            let is_identity = found.identity() == manifest.snapshot_identity;
            is_identity && found.name() == Some(name) && found.sequence() == manifest.sequence
        };
        let is_another = snapshots.iter().any(|found| found.name() == Some(name));
        let Some(snapshot) = snapshots.into_iter().find(is_same) else {
            let reason = if is_another {
                format!(
                    "the snapshot {name:?} of this store is not the one that was kept for it: it \
                     was made later, or in another copy of the store; make a full backup"
                )
            } else {
                format!(
                    "its snapshot {name:?} is no longer in the store: make a full backup, or one \
                     since the backup that took over"
                )
            };
            return Err(bad(reason).into());
        };
        Ok(Self { folder, manifest, checksum, snapshot })
    }

    /// The name of its snapshot.
    pub(crate) fn snapshot(&self) -> Option<&str> {
        self.snapshot.name()
    }
}

/// A backup that is being written.
pub(crate) struct Backup<'a> {
    /// The store.
    pub(crate) blocks: &'a BlockStore,
    /// What it copies.
    pub(crate) snapshot: &'a Snapshot,
    /// Its base.
    pub(crate) earlier: Option<&'a Earlier<'a>>,
    /// Called with its progress.
    pub(crate) progress: Option<&'a dyn Fn(CopyProgress)>,
}

/// Makes the folder of a backup, which must not exist, and writes it.
///
/// # Errors
/// [`RequestError::AlreadyExists`]; [`RequestError::Path`]; [`Error::Damaged`] for records that
/// cannot be read; [`Error::Closed`].
pub(crate) fn backup(backup: &Backup<'_>, folder: &Path) -> Result<BackupSummary, Error> {
    let made = Unfinished::create(folder)?;
    let Backup { blocks, snapshot, earlier, .. } = *backup;
    let status = blocks.status();
    let logs = status.devices.iter().filter(|device| device.role == "log").count().max(1) as u64;
    let kept = snapshot.name().map(str::to_owned);
    let all = snapshot.structures().into_iter();
    let (structures, left_out): (Vec<_>, Vec<_>) = all.partition(|(_, kind)| kind.is_registered());
    let mut manifest = Manifest {
        block_bytes: status.block_bytes,
        log_bytes: (status.log.capacity_bytes_max / logs).clamp(LOG_BYTES_MIN, LOG_BYTES_DEFAULT),
        left_out: left_out.into_iter().map(|(name, _)| name).collect(),
        snapshot_identity: snapshot.name().and_then(|_| snapshot.identity()),
        ..Manifest::new(status.store, snapshot.sequence(), kept.clone())
    };
    if let Some(Earlier { folder, manifest: earlier, checksum, .. }) = earlier {
        let (folder, checksum) = (way(made.path(), folder)?, checksum.clone());
        manifest.parent = Some(Parent { folder, sequence: earlier.sequence, checksum });
    }
    let mut summary = BackupSummary {
        sequence: manifest.sequence,
        snapshot: kept,
        left_out: manifest.left_out.clone(),
        ..BackupSummary::default()
    };
    for (number, (name, kind)) in (1..).zip(structures) {
        let file = format!("{number:04}.frames");
        let part = backup.copy(made.path(), file, name, &kind, &summary)?;
        summary.structures += 1;
        summary.records += part.records;
        summary.puts += part.puts;
        summary.deletions += part.deletions;
        summary.bytes += part.bytes;
        manifest.structures.push(part);
    }
    summary.bytes += write_manifest(made.path(), &manifest)?;
    made.finish()?;
    Ok(summary)
}

impl Backup<'_> {
    /// Writes the file of one structure; `before` is the total written before it.
    fn copy(
        &self,
        folder: &Path,
        file: String,
        name: String,
        kind: &Kind,
        before: &BackupSummary,
    ) -> Result<StructureFile, Error> {
        let writer = FrameWriter::create(folder.join(&file))?;
        let mut copy = Copy { writer, before, progress: self.progress };
        let mut content = Content::Full;
        let (registered, space) = (kind.registered()?, self.snapshot.space(&name, kind)?);
        // What an increment stands on: what differs from the snapshot, and the number of records
        // then.
        let changes = self.earlier.and_then(|Earlier { manifest, snapshot, .. }| {
            let part = manifest.part(&name).filter(|part| part.kind == kind.format())?;
            let earlier = snapshot.space(&name, kind).ok()?;
            Some((registered.changes(&earlier, &space)?, part.records))
        });
        let records = match changes {
            Some((changes, records)) => {
                content = Content::Changes;
                copy.changes(changes, records)?
            }
            None => copy.all(registered.records(&space))?,
        };
        let checksum = copy.writer.finish()?;
        copy.tell();
        let FrameWriter { puts, deletions, bytes, .. } = copy.writer;
        let kind = kind.format().to_owned();
        Ok(StructureFile { name, kind, content, records, puts, deletions, file, bytes, checksum })
    }
}

/// Copies records into a file.
struct Copy<'a> {
    writer: FrameWriter,
    before: &'a BackupSummary,
    progress: Option<&'a dyn Fn(CopyProgress)>,
}

impl Copy<'_> {
    /// Writes all records; returns how many there are.
    fn all(
        &mut self,
        records: impl Iterator<Item = Result<(Vec<u8>, Value), Error>>,
    ) -> Result<u64, Error> {
        for record in records {
            let (key, value) = record?;
            self.push(&key, Some(&value))?;
        }
        Ok(self.writer.puts)
    }

    /// Writes changes of a table that had this many `records`; returns how many it has now.
    fn changes(&mut self, changes: RecordChanges, mut records: u64) -> Result<u64, Error> {
        for change in changes {
            let Change { key, before, after } = change?;
            self.push(&key, after.as_ref())?;
            records += u64::from(after.is_some());
            records = records.saturating_sub(u64::from(before.is_some()));
        }
        Ok(records)
    }

    fn push(&mut self, key: &[u8], value: Option<&Value>) -> Result<(), Error> {
        if self.writer.push(key, value)? {
            self.tell();
        }
        Ok(())
    }

    fn tell(&self) {
        let Some(progress) = self.progress else { return };
        let (before, writer) = (self.before, &self.writer);
        let records = before.puts + before.deletions + writer.puts + writer.deletions;
        progress(CopyProgress { records, bytes: before.bytes + writer.bytes, bytes_total: None });
    }
}
