//! From a chain of backups to a new store.
//!
//! Steps: read the manifests, from the one given back to one that stands by itself, and check that
//! each is the one that the next stands on; check that all files are there; make the store under
//! another name; fill one structure after the other, from all records to the last increment; close
//! the store, and give it its name.
//!
//! All records of an ordered table are loaded in bulk. Increments, hash tables and arrays are
//! declared as updates, many to a log record.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use super::folder::{
    FrameReader, Unfinished, check_is_free, check_length, damaged, parent_of, path_error,
    read_manifest, rename,
};
use super::frame_format::Entry;
use super::manifest::{Content, MANIFEST, Manifest, Part};
use super::{CopyProgress, RestoreOptions, RestoreSummary};
use crate::error::{Error, RequestError};
use crate::runtime::{BlockStore, CreateOptions, Durability, LoggedUpdate};
use crate::structures::array::check_cell;
use crate::structures::kind::Kind;
use crate::structures::modifiers::{DELETE, PUT, value_operand};
use crate::structures::table::{LoadOptions, Table};

/// Most updates of a log record.
const UPDATES_MAX: usize = 1024;
/// Bytes of updates after which a log record takes no more.
const UPDATES_BYTES_FULL: usize = 64 << 10;

/// A backup and those on which it stands, checked but for their files.
pub(crate) struct Chain {
    /// Folder and manifest, the one that was given first, the one that stands by itself last.
    backups: Vec<(PathBuf, Manifest)>,
}

/// Where the records of a structure are: folder and part, all records first, then increments.
type Sources<'a> = Vec<(&'a Path, &'a Part)>;

impl Chain {
    /// Reads the manifests.
    ///
    /// # Errors
    /// [`RequestError::BadBackup`] for a folder that is none, or whose parent is missing or
    /// another;
    /// [`RequestError::BackupDamaged`].
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
                // So a chain ends.
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
                sources.first().is_none_or(|(_, newest): &(_, &Part)| part.kind == newest.kind)
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

    /// How the new store is to be, by default as the one that was backed up.
    pub(crate) fn create_options(&self, given: &CreateOptions) -> CreateOptions {
        let Manifest { block_bytes, log_bytes, .. } = self.newest();
        CreateOptions {
            block_bytes: given.block_bytes.or(Some(*block_bytes)),
            log_bytes: given.log_bytes.or(Some(*log_bytes)),
            ..given.clone()
        }
    }
}

/// Makes a store of the chain in `folder`, which must not be there. `open` makes an empty store in
/// the folder that it is given, and opens it.
///
/// # Errors
/// [`RequestError::AlreadyExists`]; [`RequestError::BackupDamaged`]; those of `open`.
pub(crate) fn restore(
    chain: &Chain,
    folder: &Path,
    options: &RestoreOptions<'_>,
    open: impl FnOnce(&Path) -> Result<BlockStore, Error>,
) -> Result<RestoreSummary, Error> {
    check_is_free(folder)?;
    let mut structures = Vec::new();
    for part in &chain.newest().structures {
        let sources = chain.sources(&part.name)?;
        sources.iter().try_for_each(|(folder, part)| check_length(folder, part))?;
        structures.push((part, sources));
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
    // Devices that were there stay, whatever happens. Paths are what creation takes them for.
    let mut devices = Vec::new();
    for path in create.data.iter().chain(&create.log) {
        let path = std::path::absolute(path).map_err(|error| path_error(path, error))?;
        if check_is_free(&path).is_ok() {
            devices.push(Unfinished::of(&path));
        }
    }
    let blocks = open(&place)?;
    // Nobody takes it for a store until it is whole.
    let [named, hidden] = ["store.json", "store.json.restoring"].map(|name| place.join(name));
    rename(&named, &hidden)?;
    let so_far = Cell::new(CopyProgress { bytes_total: Some(bytes), ..CopyProgress::default() });
    let on_frame = |records, bytes| {
        let CopyProgress { records: all, bytes: sum, bytes_total } = so_far.get();
        so_far.set(CopyProgress { records: all + records, bytes: sum + bytes, bytes_total });
        options.progress.iter().for_each(|progress| progress(so_far.get()));
    };
    for (part, sources) in &structures {
        fill(&blocks, part, sources, &on_frame)?;
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
    part: &Part,
    sources: &[(&Path, &Part)],
    on_frame: &dyn Fn(u64, u64),
) -> Result<(), Error> {
    let kind = part.kind().ok_or_else(|| {
        let reason = format!("{:?} is {:?}, a kind that is unknown here", part.name, part.kind);
        damaged(&sources[0].0.join(MANIFEST), 0, reason)
    })?;
    let has_large_values = !matches!(kind, Kind::Array(_));
    let space = blocks.create_space(&part.name, &part.kind, has_large_values)?;
    let number = space.space;
    for (folder, part) in sources {
        let mut reader = FrameReader::open(folder, part, on_frame)?;
        if kind == Kind::Table && part.content == Content::Full {
            let path = reader.path().to_owned();
            let records = reader.by_ref().map(|entry| {
                let (key, value) = entry?;
                let gone = || damaged(&path, 0, "a deletion among all records");
                Ok((key, value.ok_or_else(gone)?))
            });
            let table = Table::new(blocks.clone(), space.clone());
            table.load(records, LoadOptions::default()).map_err(|error| match error {
                // Its checksum is right, so it was written like this.
                Error::Request(RequestError::BadRecord { number, reason }) => {
                    damaged(&path, 0, format!("record {number}: {reason}"))
                }
                error => error,
            })?;
            continue;
        }
        let mut updates = Updates { blocks, space: number, waiting: Vec::new(), bytes: 0 };
        while let Some(entry) = reader.next() {
            let (key, value) = entry?;
            if let Kind::Array(cells) = kind {
                let checked = check_cell(cells, &key, value.as_ref());
                checked.map_err(|reason| reader.damage(reason))?;
            }
            updates.push((key, value))?;
        }
        updates.declare()?;
    }
    Ok(())
}

/// Updates on their way into a space, many to a log record.
struct Updates<'a> {
    blocks: &'a BlockStore,
    space: u32,
    /// Key and, unless it is a deletion, the operand of a put.
    waiting: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    bytes: usize,
}

impl Updates<'_> {
    fn push(&mut self, (key, value): Entry) -> Result<(), Error> {
        let operand = value.map(|value| value_operand(value.kind, &value.bytes));
        let bytes = key.len() + operand.as_ref().map_or(0, Vec::len);
        let is_full = self.waiting.len() == UPDATES_MAX || self.bytes + bytes > UPDATES_BYTES_FULL;
        if is_full && !self.waiting.is_empty() {
            self.declare()?;
        }
        self.bytes += bytes;
        self.waiting.push((key, operand));
        Ok(())
    }

    fn declare(&mut self) -> Result<(), Error> {
        let updates: Vec<LoggedUpdate<'_>> = self
            .waiting
            .iter()
            .map(|(key, operand)| LoggedUpdate {
                space: self.space,
                modifier: if operand.is_some() { PUT } else { DELETE },
                key,
                operand: operand.as_deref().unwrap_or_default(),
            })
            .collect();
        if !updates.is_empty() {
            // Closing the store makes all of them durable.
            let _ticket = self.blocks.modify(&updates, Durability::Relaxed)?;
        }
        self.waiting.clear();
        self.bytes = 0;
        Ok(())
    }
}
