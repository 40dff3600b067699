//! The folder of a backup on the file system: files of frames, and the manifest.
//!
//! A writer only makes new files, and everything in a finished folder is on stable media. A reader
//! checks every byte, and names file and offset of damage.

#![expect(clippy::disallowed_methods, reason = "a backup is files outside of the store")]

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Component, Path, PathBuf};

use super::frame_format::{self as frames, BackupRecord, FrameBuilder, HEADER_BYTES};
use super::manifest::{MANIFEST, Manifest, StructureFile, checksum_text};
use crate::error::{Error, RequestError};
use crate::structures::table::Value;

/// Longest manifest that is read, in bytes.
const MANIFEST_BYTES_MAX: u64 = 256 << 20;

pub(super) fn path_error(path: &Path, error: impl std::fmt::Display) -> Error {
    RequestError::Path { path: path.to_owned(), reason: error.to_string() }.into()
}

pub(super) fn damaged(file: &Path, offset: u64, reason: impl Into<String>) -> Error {
    let (file, reason) = (file.to_owned(), reason.into());
    RequestError::BackupDamaged { file, offset, reason }.into()
}

fn sync_folder(path: &Path) -> Result<(), Error> {
    crate::runtime::sync_folder(path).map_err(|error| path_error(path, error))
}

/// The folder that `path` lies in.
pub(super) fn parent_of(path: &Path) -> &Path {
    let parent = path.parent().unwrap_or(Path::new("/"));
    if parent.as_os_str().is_empty() { Path::new(".") } else { parent }
}

/// A folder or file that is removed with its content, unless it was finished.
pub(super) struct Unfinished {
    path: PathBuf,
    is_finished: bool,
}

impl Unfinished {
    /// Makes a folder, which must not exist.
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        fs::create_dir(path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => RequestError::AlreadyExists(path.to_owned()).into(),
            ErrorKind::NotFound => path_error(parent_of(path), "no such folder; make it first"),
            _ => path_error(path, error),
        })?;
        Ok(Self::of(path))
    }

    /// Takes charge of what is about to be made there.
    pub(super) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), is_finished: false }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps it: it, and its name, are on stable media.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        sync_folder(&self.path)?;
        sync_folder(parent_of(&self.path))?;
        self.is_finished = true;
        Ok(())
    }

    /// Keeps it as it is.
    pub(super) fn keep(mut self) {
        self.is_finished = true;
    }

    /// Keeps it under another name, which must be free.
    pub(super) fn finish_as(mut self, path: &Path) -> Result<(), Error> {
        check_is_free(path)?;
        fs::rename(&self.path, path).map_err(|error| path_error(path, error))?;
        self.is_finished = true;
        sync_folder(parent_of(path))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_finished {
            // Best effort: report the failure that led here instead.
            let removed = if self.path.is_file() { fs::remove_file } else { remove_all };
            drop(removed(&self.path));
        }
    }
}

fn remove_all(path: &PathBuf) -> std::io::Result<()> {
    fs::remove_dir_all(path)
}

/// Whether something is at `path`, a broken link included.
///
/// # Errors
/// [`RequestError::AlreadyExists`].
pub(super) fn check_is_free(path: &Path) -> Result<(), Error> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(path_error(path, error)),
        Ok(_) => Err(RequestError::AlreadyExists(path.to_owned()).into()),
    }
}

/// Renames a file.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(|error| path_error(from, error))
}

/// The path from the folder `from` to the folder `to`: relative if they have more in common than
/// the root of the file system, so that both can be moved together.
pub(super) fn way(from: &Path, to: &Path) -> Result<PathBuf, Error> {
    let absolute = |path: &Path| fs::canonicalize(path).map_err(|error| path_error(path, error));
    let (from, to) = (absolute(from)?, absolute(to)?);
    let pairs = from.components().zip(to.components());
    let common = pairs.take_while(|(left, right)| left == right).count();
    if common < 2 {
        return Ok(to);
    }
    let up = from.components().skip(common).map(|_| Component::ParentDir);
    Ok(up.chain(to.components().skip(common)).collect())
}

/// A file of frames that is being written.
pub(super) struct FrameWriter {
    path: PathBuf,
    out: BufWriter<File>,
    frame: FrameBuilder,
    frames: u64,
    pub(super) puts: u64,
    pub(super) deletions: u64,
    pub(super) bytes: u64,
    crc: u32,
}

impl FrameWriter {
    pub(super) fn create(path: PathBuf) -> Result<Self, Error> {
        let file = File::create_new(&path).map_err(|error| path_error(&path, error))?;
        let (out, frame) = (BufWriter::new(file), FrameBuilder::default());
        Ok(Self { path, out, frame, frames: 0, puts: 0, deletions: 0, bytes: 0, crc: 0 })
    }

    /// Appends a record; `None` is a deletion. Returns whether a frame was written.
    pub(super) fn push(&mut self, key: &[u8], value: Option<&Value>) -> Result<bool, Error> {
        self.frame.push(key, value);
        match value {
            Some(_) => self.puts += 1,
            None => self.deletions += 1,
        }
        let is_full = self.frame.is_full();
        if is_full {
            self.write()?;
        }
        Ok(is_full)
    }

    fn write(&mut self) -> Result<(), Error> {
        let frame = self.frame.finish(self.frames);
        self.out.write_all(&frame).map_err(|error| path_error(&self.path, error))?;
        self.frames += 1;
        self.bytes += frame.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, &frame);
        Ok(())
    }

    /// Writes the rest, syncs the file to stable media, and returns its checksum.
    pub(super) fn finish(&mut self) -> Result<String, Error> {
        if !self.frame.is_empty() {
            self.write()?;
        }
        let synced = self.out.flush().and_then(|()| self.out.get_ref().sync_all());
        synced.map_err(|error| path_error(&self.path, error))?;
        Ok(checksum_text(self.crc))
    }
}

/// The records of a file, in its order. Ends after the first error.
pub(super) struct FrameReader<'a> {
    path: PathBuf,
    part: &'a StructureFile,
    file: BufReader<File>,
    entries: std::vec::IntoIter<BackupRecord>,
    frames: u64,
    /// Bytes that were read.
    offset: u64,
    counts: [u64; 2],
    crc: u32,
    has_ended: bool,
    on_frame: &'a dyn Fn(u64, u64),
}

impl<'a> FrameReader<'a> {
    /// Opens the file of `part` in `folder`. `on_frame` gets the records and bytes of each frame.
    pub(super) fn open(
        folder: &Path,
        part: &'a StructureFile,
        on_frame: &'a dyn Fn(u64, u64),
    ) -> Result<Self, Error> {
        let path = part_path(folder, part)?;
        let file = File::open(&path).map_err(|error| path_error(&path, error))?;
        let (file, entries) = (BufReader::new(file), Vec::new().into_iter());
        let (frames, offset, counts, crc, has_ended) = (0, 0, [0; 2], 0, false);
        Ok(Self { path, part, file, entries, frames, offset, counts, crc, has_ended, on_frame })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The error for damage in the frame that was read last.
    pub(super) fn damage(&self, reason: impl Into<String>) -> Error {
        damaged(&self.path, self.offset, reason)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.file.read_exact(bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => self.damage("the file is cut short within this frame"),
            _ => path_error(&self.path, error),
        })
    }

    /// Reads the next frame; `false` at the end.
    fn next_frame(&mut self) -> Result<bool, Error> {
        if self.offset == self.part.bytes {
            self.check_end()?;
            return Ok(false);
        }
        let mut header = [0; HEADER_BYTES];
        self.read(&mut header)?;
        let decoded = frames::decode_header(&header).map_err(|reason| self.damage(reason))?;
        let mut records = vec![0; decoded.records_bytes];
        self.read(&mut records)?;
        let entries = frames::decode_records(self.frames, &decoded, &records);
        let entries = entries.map_err(|reason| self.damage(reason))?;
        let bytes = (HEADER_BYTES + records.len()) as u64;
        if self.offset + bytes > self.part.bytes {
            let wanted = self.part.bytes;
            return Err(self.damage(format!("a frame beyond the end of the file at {wanted}")));
        }
        self.crc = crc32c::crc32c_append(crc32c::crc32c_append(self.crc, &header), &records);
        let deletions = entries.iter().filter(|(_, value)| value.is_none()).count() as u64;
        self.counts[0] += entries.len() as u64 - deletions;
        self.counts[1] += deletions;
        self.frames += 1;
        self.offset += bytes;
        (self.on_frame)(entries.len() as u64, bytes);
        self.entries = entries.into_iter();
        Ok(true)
    }

    /// Checks the file as a whole against the manifest.
    fn check_end(&mut self) -> Result<(), Error> {
        let found = checksum_text(self.crc);
        if found != self.part.checksum {
            let wanted = &self.part.checksum;
            let reason = format!("the file has checksum {found}, the manifest says {wanted}");
            return Err(damaged(&self.path, 0, reason));
        }
        if self.counts != [self.part.puts, self.part.deletions] {
            return Err(damaged(&self.path, 0, "not as many records as the manifest says"));
        }
        Ok(())
    }
}

impl Iterator for FrameReader<'_> {
    type Item = Result<BackupRecord, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Some(Ok(entry));
            }
            if self.has_ended {
                return None;
            }
            let read = self.next_frame();
            self.has_ended = !matches!(read, Ok(true));
            if let Err(error) = read {
                return Some(Err(error));
            }
        }
    }
}

/// The path of a file that a manifest names: only a plain name in its folder is accepted.
fn part_path(folder: &Path, part: &StructureFile) -> Result<PathBuf, Error> {
    let mut names = Path::new(&part.file).components();
    match (names.next(), names.next()) {
        (Some(Component::Normal(name)), None) => Ok(folder.join(name)),
        _ => {
            let reason = format!("{:?} is no name of a file", part.file);
            Err(damaged(&folder.join(MANIFEST), 0, reason))
        }
    }
}

/// Checks that the file of a part exists with the length in the manifest.
pub(super) fn check_length(folder: &Path, part: &StructureFile) -> Result<(), Error> {
    let path = part_path(folder, part)?;
    let found = match fs::metadata(&path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(damaged(&path, 0, "the file is missing"));
        }
        Err(error) => return Err(path_error(&path, error)),
    };
    if found != part.bytes {
        let (wanted, end) = (part.bytes, found.min(part.bytes));
        return Err(damaged(&path, end, format!("the file has {found} bytes, not {wanted}")));
    }
    Ok(())
}

/// Writes the manifest into a folder whose other files are on stable media.
pub(super) fn write_manifest(folder: &Path, manifest: &Manifest) -> Result<u64, Error> {
    let path = folder.join(MANIFEST);
    let text = manifest.encode().map_err(|reason| path_error(&path, reason))?;
    let written = File::create_new(&path).and_then(|mut file| {
        file.write_all(&text)?;
        file.sync_all()
    });
    written.map_err(|error| path_error(&path, error))?;
    Ok(text.len() as u64)
}

/// The manifest in a folder, and the checksum of its text.
///
/// # Errors
/// [`RequestError::BadBackup`] if the folder is not a backup; [`RequestError::BackupDamaged`].
pub(super) fn read_manifest(folder: &Path) -> Result<(Manifest, String), Error> {
    let path = folder.join(MANIFEST);
    let mut text = Vec::new();
    let read =
        File::open(&path).and_then(|file| file.take(MANIFEST_BYTES_MAX).read_to_end(&mut text));
    let bad = |reason| Error::from(RequestError::BadBackup { path: folder.to_owned(), reason });
    read.map_err(|error| match error.kind() {
        ErrorKind::NotFound if check_is_free(folder).is_ok() => {
            bad("there is no such folder".to_owned())
        }
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            bad(format!("there is no whole backup: it has no {MANIFEST}"))
        }
        _ => path_error(&path, error),
    })?;
    let decoded = Manifest::decode(&text);
    let manifest = decoded.map_err(|(offset, reason)| damaged(&path, offset, reason))?;
    Ok((manifest, checksum_text(crc32c::crc32c(&text))))
}
