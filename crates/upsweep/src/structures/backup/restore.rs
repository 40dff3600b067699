//! From a chain of backups to a new store.
//!
//! Steps: read the manifests, from the given one back to a full backup, and check that each is the
//! base of the next; check that all files exist; make the store under another name; fill the
//! structures one by one, from the full backup to the last increment; close the store, and rename
//! it.
//!
//! The kind of a structure decides how it takes all its records: an ordered table loads them in
//! bulk. Everything else, increments included, is declared as updates, many per log record.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use super::folder::{
    FrameReader, Unfinished, check_is_free, check_length, damaged, parent_of, path_error,
    read_manifest, rename,
};
use super::manifest::{Content, MANIFEST, Manifest, StructureFile};
use super::{CopyProgress, RestoreOptions, RestoreSummary};
use crate::error::{Error, RequestError};
use crate::runtime::{BlockStore, CreateOptions};
use crate::structures::kind::{Kind, Kinds};
use crate::structures::space::{OpenSpace, Updates};

/// A backup and its bases, checked except for their files.
pub(crate) struct Chain {
    /// Folders and manifests, the given one first, the full backup last.
    backups: Vec<(PathBuf, Manifest)>,
}

/// Where the records of a structure are: folder and part, the full backup first, then increments.
type Sources<'a> = Vec<(&'a Path, &'a StructureFile)>;

impl Chain {
    /// Reads the manifests.
    ///
    /// # Errors
    /// [`RequestError::BadBackup`] for a folder that is not a backup, or whose base is missing or
    /// the wrong one; [`RequestError::BackupDamaged`].
    pub(crate) fn read(folder: &Path) -> Result<Self, Error> {
        let mut backups = vec![(folder.to_owned(), read_manifest(folder)?.0)];
        while let Some((child, Manifest { parent: Some(parent), store, sequence, .. })) =
            backups.last()
        {
            let path = child.join(&parent.folder);
            let bad = |reason| RequestError::BadBackup { path: path.clone(), reason };
            let child = child.display();
            let (manifest, checksum) = read_manifest(&path).map_err(|error| match error {
                Error::Request(RequestError::BadBackup { reason, .. }) => {
                    bad(format!("{reason}; {child} is an increment on it")).into()
                }
                error => error,
            })?;
            let is_it = checksum == parent.checksum
                && manifest.sequence == parent.sequence
                && manifest.store == *store
                // This makes every chain end.
                && manifest.sequence < *sequence;
            if !is_it {
                let reason = format!("it is not the backup on which {child} stands");
                return Err(bad(reason).into());
            }
            backups.push((path, manifest));
        }
        Ok(Self { backups })
    }

    fn newest(&self) -> &Manifest {
        &self.backups[0].1
    }

    /// Where the records of a structure of the newest backup are.
    fn sources(&self, name: &str) -> Result<Sources<'_>, Error> {
        let mut sources = Vec::new();
        for (folder, manifest) in &self.backups {
            let part = manifest.part(name).filter(|part| {
                sources
                    .first()
                    .is_none_or(|(_, newest): &(_, &StructureFile)| part.kind == newest.kind)
            });
            let Some(part) = part else { break };
            sources.push((&**folder, part));
            if part.content == Content::Full {
                sources.reverse();
                return Ok(sources);
            }
        }
        let last = sources.last().map_or(&*self.backups[0].0, |(folder, _)| folder);
        let reason = format!("{name:?} has changes only, and no earlier backup has all of it");
        Err(damaged(&last.join(MANIFEST), 0, reason))
    }

    /// Options of the new store, by default as in the one that was backed up.
    pub(crate) fn create_options(&self, given: &CreateOptions) -> CreateOptions {
        let Manifest { block_bytes, log_bytes, .. } = self.newest();
        CreateOptions {
            block_bytes: given.block_bytes.or(Some(*block_bytes)),
            log_bytes: given.log_bytes.or(Some(*log_bytes)),
            ..given.clone()
        }
    }
}

/// Makes a store from the chain in `folder`, which must not exist. `open` makes an empty store in
/// the given folder, and opens it.
///
/// # Errors
/// [`RequestError::AlreadyExists`]; [`RequestError::BackupDamaged`];
/// [`RequestError::UnknownFormat`] for a structure whose kind is not registered; those of `open`.
pub(crate) fn restore(
    chain: &Chain,
    kinds: &Kinds,
    folder: &Path,
    options: &RestoreOptions<'_>,
    open: impl FnOnce(&Path) -> Result<BlockStore, Error>,
) -> Result<RestoreSummary, Error> {
    check_is_free(folder)?;
    let mut structures = Vec::new();
    for part in &chain.newest().structures {
        let sources = chain.sources(&part.name)?;
        sources.iter().try_for_each(|(folder, part)| check_length(folder, part))?;
        let kind = kinds.of_format(&part.kind);
        kind.registered()?;
        structures.push((kind, sources));
    }
    let read = structures.iter().flat_map(|(_, sources)| sources);
    let bytes: u64 = read.map(|(_, part)| part.bytes).sum();
    let mut name = folder.file_name().ok_or_else(|| path_error(folder, "not a name"))?.to_owned();
    name.push(".restoring");
    let (place, create) = (parent_of(folder).join(name), &options.create);
    check_is_free(&place).map_err(|error| match error {
        Error::Request(RequestError::AlreadyExists(_)) => {
            path_error(&place, "left by a restore that was interrupted; remove it, then try again")
        }
        error => error,
    })?;
    let made = Unfinished::of(&place);
    // Existing devices are never removed. Paths are interpreted as at creation.
    let mut devices = Vec::new();
    for path in create.data.iter().chain(&create.log) {
        let path = std::path::absolute(path).map_err(|error| path_error(path, error))?;
        if check_is_free(&path).is_ok() {
            devices.push(Unfinished::of(&path));
        }
    }
    let blocks = open(&place)?;
    // It must not be taken for a store until it is complete.
    let [named, hidden] = ["store.json", "store.json.restoring"].map(|name| place.join(name));
    rename(&named, &hidden)?;
    let so_far = Cell::new(CopyProgress { bytes_total: Some(bytes), ..CopyProgress::default() });
    let on_frame = |records, bytes| {
        let CopyProgress { records: all, bytes: sum, bytes_total } = so_far.get();
        so_far.set(CopyProgress { records: all + records, bytes: sum + bytes, bytes_total });
        options.progress.iter().for_each(|progress| progress(so_far.get()));
    };
    for (kind, sources) in &structures {
        fill(&blocks, kind, sources, &on_frame)?;
    }
    blocks.close()?;
    rename(&hidden, &named)?;
    made.finish_as(folder)?;
    devices.into_iter().for_each(Unfinished::keep);
    let newest = chain.newest();
    Ok(RestoreSummary {
        sequence: newest.sequence,
        backups: chain.backups.len() as u64,
        structures: newest.structures.len() as u64,
        records: newest.structures.iter().map(|part| part.records).sum(),
        bytes,
    })
}

/// Makes a structure and fills it.
fn fill(
    blocks: &BlockStore,
    kind: &Kind,
    sources: &[(&Path, &StructureFile)],
    on_frame: &dyn Fn(u64, u64),
) -> Result<(), Error> {
    let Some((_, StructureFile { name, .. })) = sources.first() else { return Ok(()) };
    let space = kind.create(blocks, name)?;
    for (folder, part) in sources {
        let mut reader = FrameReader::open(folder, part, on_frame)?;
        match part.content {
            Content::Full => fill_with_all(kind, &space, &mut reader)?,
            Content::Changes => {
                let mut updates = Updates::new(&space);
                for entry in reader {
                    let (key, value) = entry?;
                    updates.push(key, value)?;
                }
                updates.declare()?;
            }
        }
    }
    Ok(())
}

/// Fills a new structure with all records of a file.
fn fill_with_all(
    kind: &Kind,
    space: &OpenSpace,
    reader: &mut FrameReader<'_>,
) -> Result<(), Error> {
    let (path, registered) = (reader.path().to_owned(), kind.registered()?);
    let mut records = std::iter::from_fn(|| {
        let checked = reader.next()?.and_then(|(key, value)| {
            let damage = |reason: String| reader.damage(reason);
            let gone = || damage("a deletion among all records".to_owned());
            let value = value.ok_or_else(gone)?;
            registered.check_record(kind.parameters(), &key, &value).map_err(damage)?;
            Ok((key, value))
        });
        Some(checked)
    });
    registered.restore(space, &mut records).map_err(|error| match error {
        // Its checksum is right, so it was written this way.
        Error::Request(RequestError::BadRecord { number, reason }) => {
            damaged(&path, 0, format!("record {number}: {reason}"))
        }
        error => error,
    })?;
    // The end of the file is checked when it is reached.
    reader.try_for_each(|entry| entry.map(drop))
}
