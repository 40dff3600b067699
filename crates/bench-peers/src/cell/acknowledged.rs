//! A file in which callers note, around every call, how many updates they have handed over and how
//! many were acknowledged. It is in the page cache, so it survives a kill of the process.
//!
//! Format: the sum of all counters before the run, then for each caller the updates handed over and
//! those acknowledged; all are 8 bytes, little-endian.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::failure::Failure;

/// The file, while callers write to it.
pub(crate) struct Acknowledged(File);

/// What the file said after the kill.
pub(crate) struct Noted {
    /// Sum of all counters before the run.
    pub(crate) counters: u64,
    /// Updates that were handed over.
    pub(crate) issued: u64,
    /// Updates that were acknowledged.
    pub(crate) acknowledged: u64,
}

impl Acknowledged {
    /// Makes the file.
    ///
    /// # Errors
    /// [`Failure::File`].
    pub(crate) fn create(path: &Path, counters: u64) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| Failure::file(path, error))?;
        let noted = Self(file);
        noted.write(0, counters)?;
        Ok(noted)
    }

    /// Caller `caller` is about to have handed over so many in all.
    ///
    /// # Errors
    /// [`Failure::Refused`] if the file cannot be written.
    pub(crate) fn issue(&self, caller: usize, updates: u64) -> Result<(), Failure> {
        self.write(8 + 16 * caller as u64, updates)
    }

    /// So many in all of what caller `caller` has handed over are acknowledged.
    ///
    /// # Errors
    /// [`Failure::Refused`] if the file cannot be written.
    pub(crate) fn acknowledge(&self, caller: usize, updates: u64) -> Result<(), Failure> {
        self.write(16 + 16 * caller as u64, updates)
    }

    fn write(&self, offset: u64, number: u64) -> Result<(), Failure> {
        let refused = |error| Failure::Refused(format!("cannot note what is durable: {error}"));
        self.0.write_all_at(&number.to_le_bytes(), offset).map_err(refused)
    }
}

/// Reads the file; `None` if no caller has noted anything.
pub(crate) fn read(path: &Path) -> Option<Noted> {
    let bytes = fs::read(path).ok()?;
    let (numbers, _) = bytes.as_chunks::<8>();
    let mut numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let mut noted = Noted { counters: numbers.next()?, issued: 0, acknowledged: 0 };
    while let Some(issued) = numbers.next() {
        noted.issued += issued;
        noted.acknowledged += numbers.next().unwrap_or(0);
    }
    (noted.acknowledged > 0).then_some(noted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_callers_noted_is_added_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("acknowledged");
        let noted = Acknowledged::create(&path, 100).expect("made");
        assert!(read(&path).is_none());
        noted.issue(0, 64).expect("noted");
        noted.acknowledge(0, 64).expect("noted");
        noted.issue(2, 7).expect("noted");
        let found = read(&path).expect("something");
        assert_eq!((found.counters, found.issued, found.acknowledged), (100, 71, 64));
    }
}
