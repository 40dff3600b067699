//! Errors of volumes, named for what the caller should do.

/// Any failure of a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No volume of this name.
    #[error("no volume {0:?}; `upsweep volume list` shows what there is")]
    NoVolume(String),
    /// The name is taken: choose another.
    #[error("volume {0:?} exists already; nothing was changed")]
    VolumeExists(String),
    /// No snapshot of this name, of this volume.
    #[error("volume {volume:?} has no snapshot {snapshot:?}")]
    NoSnapshot {
        /// The volume.
        volume: String,
        /// The snapshot.
        snapshot: String,
    },
    /// The name of a snapshot is taken: choose another.
    #[error("volume {volume:?} has a snapshot {snapshot:?} already; nothing was changed")]
    SnapshotExists {
        /// The volume.
        volume: String,
        /// The snapshot.
        snapshot: String,
    },
    /// A name that is empty, too long (128 bytes), or has characters of another meaning.
    #[error("{0:?} must have 1 to 128 bytes, no control characters, and neither '/' nor '@'")]
    BadName(String),
    /// A size that no volume can have.
    #[error("{0} bytes; the size of a volume is a multiple of 4,096 up to 16 PiB, and not 0")]
    BadSize(u64),
    /// A range that is not inside the volume.
    #[error("{bytes} bytes at {offset} are not inside the volume of {volume_bytes} bytes")]
    OutOfRange {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
        /// Size of the volume in bytes.
        volume_bytes: u64,
    },
    /// A moment that has yet to come, or has left the history.
    #[error(
        "{stamp} us after 1970 is not in the history of volume {volume:?}, which is from {first} \
         to {last}"
    )]
    NoMoment {
        /// The volume.
        volume: String,
        /// The moment.
        stamp: u64,
        /// The first one that is kept.
        first: u64,
        /// The last one: now.
        last: u64,
    },
    /// The volume keeps nothing of its past but snapshots: let it keep a history first.
    #[error("volume {0:?} keeps no history; `upsweep volume history` lets it keep one from now on")]
    NoHistory(String),
    /// What is compared has been deleted, or has left the history: begin again with another moment.
    #[error("a moment of volume {0:?} that is compared has been deleted, or has left the history")]
    Forgotten(String),
    /// No mark of this name, in the history of this volume.
    #[error("volume {volume:?} has no mark {mark:?} in its history")]
    NoMark {
        /// The volume.
        volume: String,
        /// The mark.
        mark: String,
    },
    /// The name of a mark is taken: choose another.
    #[error("volume {volume:?} has a mark {mark:?} already; nothing was changed")]
    MarkExists {
        /// The volume.
        volume: String,
        /// The mark.
        mark: String,
    },
    /// The volume can only be read.
    #[error("volume {0:?} can only be read; make a clone of it to write")]
    ReadOnly(String),
    /// What was read is not what was written: restore it from a copy.
    #[error("block {block} of branch {branch} is damaged: {reason}")]
    Damaged {
        /// The branch of the volume.
        branch: u32,
        /// The block, of 4 KiB.
        block: u64,
        /// What is wrong.
        reason: String,
    },
    /// The tables of the volumes are from a later version, or damaged.
    #[error("the tables of the volumes cannot be read: {0}")]
    Tables(String),
    /// The store refused; the error says what to do.
    #[error(transparent)]
    Store(#[from] upsweep::Error),
}

impl Error {
    /// Whether the devices are full.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Store(upsweep::Error::Retry(upsweep::RetryError::Full { .. })))
    }
}
