//! Errors of volumes, named for what the caller should do.

/// Any failure of a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No volume of this name.
    #[error("no volume {0:?}; `upsweep volume list` shows what there is")]
    NoVolume(String),
    /// The volume was deleted after it had been opened.
    #[error("the volume has been deleted")]
    Deleted,
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
    #[error(
        "{bytes} bytes; the size of a volume with blocks of {block_bytes} bytes is a multiple of \
         that, up to 16 PiB, and not 0"
    )]
    BadSize {
        /// The size in bytes.
        bytes: u64,
        /// The logical block size in bytes.
        block_bytes: u32,
    },
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
    /// The volume uses as much as it may: discard something, delete snapshots, keep less history,
    /// or raise the quota.
    #[error(
        "volume {volume:?} has reached its quota of {quota_bytes} bytes; discard something in it, \
         delete snapshots, keep a shorter history, or raise the quota (`upsweep volume set \
         --quota`)"
    )]
    QuotaReached {
        /// The volume.
        volume: String,
        /// The quota in bytes.
        quota_bytes: u64,
    },
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
    /// The volume does not have all that it is to have: go on receiving it, or delete it.
    #[error(
        "volume {0:?} is not complete; go on with `upsweep volume receive`, or delete the volume"
    )]
    Incomplete(String),
    /// The volume is being received by another call: wait until that ends.
    #[error("volume {0:?} is just being received by another command; wait until that ends")]
    ReceivedNow(String),
    /// There is nothing to go on with: it never began, was completed, or has been given up.
    #[error("volume {0:?} is not being received; receive a stream from its beginning")]
    NotReceived(String),
    /// The volume is being received from another stream: go on with that, or give it up.
    #[error(
        "volume {volume:?} is receiving {snapshot:?} from another stream; go on with that one \
         (`upsweep volume receive --resume-token`), or give it up: roll back to a snapshot, or \
         delete the volume if it has none"
    )]
    ReceivesOther {
        /// The volume.
        volume: String,
        /// The name of the snapshot that it will have.
        snapshot: String,
    },
    /// The stream begins behind what has been received: send it again from there.
    #[error(
        "the stream begins at byte {start} of volume {volume:?}, which has been received up to \
         byte {received} only; send it again from there (`--resume`)"
    )]
    BeginsLater {
        /// The volume.
        volume: String,
        /// Where the stream begins, in bytes.
        start: u64,
        /// Up to where the volume has been received, in bytes.
        received: u64,
    },
    /// The token belongs to another moment: send the one with which the stream began.
    #[error("the token is for another moment than that of volume {0:?} which is to be sent")]
    OtherMoment(String),
    /// The volume has not got what the stream continues: send from a moment that both have.
    #[error(
        "volume {volume:?} has no snapshot that is what the stream continues, {base:?} at its \
         sender; send from a snapshot that both have, or send everything to a new volume"
    )]
    NoBase {
        /// The volume.
        volume: String,
        /// The name at the sender.
        base: String,
    },
    /// The volume is not what the stream continues any longer: roll it back.
    #[error(
        "volume {volume:?} has been changed since snapshot {snapshot:?}, which the stream \
         continues; `upsweep volume rollback` returns to the snapshot"
    )]
    ChangedSince {
        /// The volume.
        volume: String,
        /// The snapshot.
        snapshot: String,
    },
    /// The volume keeps a history, and what is half received must not be part of one.
    #[error(
        "volume {0:?} keeps a history, which would have what is half received; \
         `upsweep volume history --keep off` ends it"
    )]
    KeepsHistory(String),
    /// What is to be received is damaged, cut off, or no stream: send it again.
    #[error("the stream is refused at byte {at}: {reason}")]
    BadStream {
        /// Offset in the stream, in bytes.
        at: u64,
        /// What is wrong.
        reason: String,
    },
    /// The stream cannot be read, or written.
    #[error("the stream fails at byte {at}: {reason}")]
    Transfer {
        /// Offset in the stream, in bytes.
        at: u64,
        /// The kind of the failure.
        kind: std::io::ErrorKind,
        /// What the system says.
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
