//! The manifest of a backup: `manifest.json`, for people and for the restore.
//!
//! It is written last, so a folder without one is not a backup. Its text is exactly what
//! [`Manifest::encode`] returns for its content, and has the checksum of that content, so any
//! changed byte is detected.

use crate::engine::ids::Seq;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Name of the manifest in the folder of a backup.
pub(super) const MANIFEST: &str = "manifest.json";
/// The version of the format of backups.
const FORMAT: u32 = 1;

/// The content of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    /// Version of the format of the backup.
    pub(super) format: u32,
    /// Identity of the store.
    pub(super) store: String,
    /// It contains every change with a lower sequence.
    pub(super) sequence: Seq,
    /// The snapshot that the store keeps, for increments.
    pub(super) snapshot: Option<String>,
    /// An identity of that snapshot that is unique, also among copies of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) snapshot_identity: Option<String>,
    /// Target size of a block of the store, in bytes.
    pub(super) block_bytes: u32,
    /// Size of a log device for the restored store, in bytes.
    pub(super) log_bytes: u64,
    /// The base of this backup, if it is an increment.
    pub(super) parent: Option<Parent>,
    /// The structures, in order of creation.
    pub(super) structures: Vec<StructureFile>,
    /// Names of structures that are not in the backup because their kinds were not registered.
    pub(super) left_out: Vec<String>,
}

/// The base of an increment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parent {
    /// Its folder; a relative path is relative to that of the increment.
    pub(super) folder: PathBuf,
    /// Its sequence.
    pub(super) sequence: Seq,
    /// Checksum of its manifest.
    pub(super) checksum: String,
}

/// One structure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StructureFile {
    /// Its name.
    pub(super) name: String,
    /// Its block format, parameters included.
    pub(super) kind: String,
    /// What its file holds.
    pub(super) content: Content,
    /// Records that the structure has.
    pub(super) records: u64,
    /// Number of puts in the file.
    pub(super) puts: u64,
    /// Number of deletions in the file.
    pub(super) deletions: u64,
    /// Its file, in the folder of the backup.
    pub(super) file: String,
    /// Length of the file in bytes.
    pub(super) bytes: u64,
    /// Checksum of the file.
    pub(super) checksum: String,
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Content {
    /// All records.
    Full,
    /// What differs from the parent.
    Changes,
}

/// The text of a manifest file, as JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    backup: Manifest,
    /// Of the content of `backup`, in the fewest bytes.
    checksum: String,
}

/// Only this part of a manifest is read of one that a later program wrote.
#[derive(Deserialize)]
struct Versioned {
    backup: Version,
}

#[derive(Deserialize)]
struct Version {
    format: u32,
}

/// A checksum as it stands in a manifest: eight hexadecimal digits.
pub(super) fn checksum_text(crc: u32) -> String {
    format!("{crc:08x}")
}

impl Manifest {
    /// A manifest without structures.
    pub(super) fn new(store: String, sequence: Seq, snapshot: Option<String>) -> Self {
        Self {
            format: FORMAT,
            store,
            sequence,
            snapshot,
            snapshot_identity: None,
            block_bytes: 0,
            log_bytes: 0,
            parent: None,
            structures: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// The structure of this name.
    pub(super) fn part(&self, name: &str) -> Option<&StructureFile> {
        self.structures.iter().find(|part| part.name == name)
    }

    /// The text of its file.
    ///
    /// # Errors
    /// The reason if it cannot be written, such as a path that is not UTF-8.
    pub(super) fn encode(&self) -> Result<Vec<u8>, String> {
        let failed = |error: serde_json::Error| error.to_string();
        let content = serde_json::to_vec(self).map_err(failed)?;
        let checksum = checksum_text(crc32c::crc32c(&content));
        let mut text = serde_json::to_vec_pretty(&Sealed { backup: self.clone(), checksum })
            .map_err(failed)?;
        text.push(b'\n');
        Ok(text)
    }

    /// The manifest of a text.
    ///
    /// # Errors
    /// The offset of the problem in bytes, and its description: report the file as damaged.
    pub(super) fn decode(text: &[u8]) -> Result<Self, (u64, String)> {
        let malformed = |error: serde_json::Error| {
            let before: usize = text
                .split_inclusive(|byte| *byte == b'\n')
                .take(error.line() - 1)
                .map(<[u8]>::len)
                .sum();
            ((before + error.column().saturating_sub(1)) as u64, error.to_string())
        };
        if let Ok(Versioned { backup: Version { format } }) = serde_json::from_slice(text)
            && format != FORMAT
        {
            return Err((0, format!("a backup of format {format}; this program knows {FORMAT}")));
        }
        let Sealed { backup, checksum } = serde_json::from_slice(text).map_err(malformed)?;
        let written = backup.encode().map_err(|reason| (0, reason))?;
        if let Some(at) = written.iter().zip(text).position(|(wanted, found)| wanted != found) {
            // A changed value changes the checksum that is expected, and not the one that is there.
            return Err((at as u64, format!("checksum mismatch: it says {checksum}")));
        }
        if written.len() != text.len() {
            let end = written.len().min(text.len());
            return Err((end as u64, "its length is not what was written".to_owned()));
        }
        Ok(backup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let part = StructureFile {
            name: "main".to_owned(),
            kind: "table".to_owned(),
            content: Content::Full,
            records: 3,
            puts: 3,
            deletions: 0,
            file: "0001.frames".to_owned(),
            bytes: 300,
            checksum: checksum_text(77),
        };
        let folder = "../monday \u{fc}".into();
        let parent = Some(Parent { folder, sequence: Seq::new(5), checksum: checksum_text(1) });
        let new = Manifest::new("ab".to_owned(), Seq::new(17), Some("backup".to_owned()));
        Manifest { parent, structures: vec![part], left_out: vec!["raw".to_owned()], ..new }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let manifest = manifest();
        let text = manifest.encode().expect("text");
        assert_eq!(Manifest::decode(&text), Ok(manifest));
        for at in 0..text.len() {
            for change in [1, 2, 0x20, 0x80] {
                let mut damaged = text.clone();
                damaged[at] ^= change;
                assert!(Manifest::decode(&damaged).is_err(), "byte {at} ^ {change}");
            }
            assert!(Manifest::decode(&text[..at]).is_err(), "cut at {at}");
        }
        assert!(Manifest::decode(&[&text[..], b"\n"].concat()).is_err());
    }

    #[test]
    fn a_later_format_is_named() {
        let later = br#"{"backup":{"format":2,"news":true},"checksum":"0"}"#;
        let (_, reason) = Manifest::decode(later).expect_err("refused");
        assert_eq!(reason, "a backup of format 2; this program knows 1");
    }
}
