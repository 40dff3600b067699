//! Errors, grouped by what the caller should do next; each group contains the precise reason.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

use crate::device::{DeviceError, DeviceId};

/// Any failure of the library. Match on the group to decide what to do, on the content to explain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call itself is wrong: fix it. The store is unchanged and remains usable.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A temporary condition: resolve what the content says, then try again.
    #[error(transparent)]
    Retry(#[from] RetryError),
    /// The store takes no more updates in this process: close it, fix the cause, open it again.
    #[error(transparent)]
    Closed(#[from] ClosedError),
    /// Bytes on a device are not those that were written there: restore or repair them. Other data
    /// in the store stays readable.
    #[error("damaged: {0}")]
    Damaged(#[from] Damage),
}

/// The ways in which a call can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// No store at this path.
    #[error("no store at {}; `upsweep create` makes one", .0.display())]
    NoStore(PathBuf),
    /// Creation refused: something is at this path already.
    #[error("{} exists already; nothing was changed", .0.display())]
    AlreadyExists(PathBuf),
    /// A file, folder or device of the store could not be opened or made.
    #[error("{}: {reason}", .path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// What the operating system said.
        reason: String,
    },
    /// No table of this name.
    #[error("no table {0:?} in this store")]
    NoTable(String),
    /// A bulk load into a table that has records: load into a new one, or delete them first.
    #[error("table {0:?} has records; a load needs a table that is new or empty")]
    NotEmpty(String),
    /// A bulk load found a record that it cannot accept; nothing was loaded.
    #[error("record {number}: {reason}")]
    BadRecord {
        /// Number of the record, counted from 1.
        number: u64,
        /// Why it was not accepted.
        reason: String,
    },
    /// No update with this id, in hexadecimal digits, is in the quarantine.
    #[error("no update {0:?} in quarantine")]
    NoQuarantined(String),
    /// A structure of this name exists, of a different kind or type.
    #[error("table {table:?} is {found}, not {wanted}")]
    TableMismatch {
        /// Name of the table.
        table: String,
        /// Its kind.
        found: String,
        /// The kind that the call expects.
        wanted: String,
    },
    /// A table name that is empty, too long (255 bytes) or not allowed.
    #[error("table name {0:?} must have 1 to 255 bytes and no control characters")]
    BadTableName(String),
    /// A batch or call was given a table or snapshot that belongs to a different store.
    #[error("table {table:?} belongs to a different store; nothing was changed")]
    WrongStore {
        /// Name of the table.
        table: String,
    },
    /// The index of a cell is above the limit.
    #[error("index {index}; the largest of an array is {limit}")]
    IndexTooLarge {
        /// The index.
        index: u64,
        /// The largest valid index.
        limit: u64,
    },
    /// A key above the limit, in bytes.
    #[error("key of {bytes} bytes; the limit is {limit}")]
    KeyTooLong {
        /// Length of the key in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A value or operand above the limit, in bytes.
    #[error("value of {bytes} bytes; the limit is {limit}")]
    ValueTooLong {
        /// Length in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A batch, or a single update, whose log record exceeds what one log segment or the memory
    /// budget holds.
    #[error(
        "record of {bytes} bytes; the limit of this store is {limit}: split a batch; a single \
         update needs a store with a larger log, or more memory"
    )]
    BatchTooLong {
        /// Length of the record in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The modifier refuses this operand, before anything was logged.
    #[error("operand of {modifier:?} refused: {reason}")]
    BadOperand {
        /// Name of the modifier.
        modifier: String,
        /// Why.
        reason: String,
    },
    /// A modifier refuses the current value, before anything was logged. Only updates that return a
    /// value fail with this; others go to the quarantine.
    #[error("update by {modifier:?} refused: {reason}")]
    Refused {
        /// Name of the modifier.
        modifier: String,
        /// Why.
        reason: String,
    },
    /// The name of a modifier is empty, too long (64 bytes) or has control characters.
    #[error(
        "modifier name {:?} of {} bytes: it must have 1 to 64 bytes and no control characters",
        .0.chars().take(64).collect::<String>(), .0.len()
    )]
    BadModifierName(String),
    /// The log or a table needs a modifier that is not registered: register it and open again.
    #[error(
        "the store needs modifier {name:?} version {version}, which is not registered: register it \
         before opening"
    )]
    UnknownModifier {
        /// Its stable name.
        name: String,
        /// Its version.
        version: u16,
    },
    /// The call needs a kind of structure, or a block format, that is not registered: register it
    /// and open again. The text is its name, with parameters. Opening needs a kind if updates are
    /// pending for a structure of it, except when opening for reading or upkeep; and in every mode
    /// if the store was not closed after such a structure was made or updated.
    #[error(
        "the kind or block format {0:?} is not registered with the store: register it before \
         opening"
    )]
    UnknownFormat(String),
    /// The space cannot be changed: it belongs to a snapshot, or to the store itself. Clone the
    /// table of the snapshot and change the clone.
    #[error(
        "{0:?} never changes: it belongs to a snapshot or to the store itself; clone it and change \
         the clone"
    )]
    ReadOnly(String),
    /// An extent that no device can have.
    #[error("an extent of {bytes} bytes; ask for a multiple of 4,096, and for some")]
    ExtentLength {
        /// Length in bytes.
        bytes: u32,
    },
    /// No extent of the space is reserved here, or it is being given back.
    #[error("no extent is reserved on {0}")]
    NoExtent(Location),
    /// A range that is not inside its extent, or not in whole units of 4,096 bytes.
    #[error(
        "{bytes} bytes at {offset} of an extent of {extent_bytes} bytes; ask for a part of it in \
         multiples of 4,096"
    )]
    OutsideExtent {
        /// Offset within the extent in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: usize,
        /// Length of the extent in bytes.
        extent_bytes: u32,
    },
    /// A space whose reserved extents are in use cannot be dropped.
    #[error("reserved extents of {0:?} are in use; drop their handles first")]
    ExtentsInUse(String),
    /// The space does not keep its records in key order, so there are no ranges of keys.
    #[error("{0:?} does not keep its records in key order, so it has no ranges of keys")]
    NotOrdered(String),
    /// A modifier or visitor called the store that is running it, which would deadlock.
    #[error("a modifier or visitor called the store that is running it, which would deadlock")]
    FromWithin,
    /// There is no snapshot of this name or number.
    #[error("{0:?} is not the name of a snapshot of this store")]
    NoSnapshot(String),
    /// There is a snapshot of this name already: drop it first or choose another name.
    #[error("{0:?} names a snapshot already: drop it first or choose another name")]
    SnapshotExists(String),
    /// The name of a snapshot is empty, too long (255 bytes) or has control characters.
    #[error("{0:?} cannot name a snapshot: give 1 to 255 bytes without control characters")]
    BadSnapshotName(String),
    /// The folder is not a backup, or not one that the call can use; nothing was changed.
    #[error("backup {}: {reason}", .path.display())]
    BadBackup {
        /// The folder.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file of a backup does not have its original content: use another copy of it. Nothing was
    /// restored.
    #[error("damaged: {} at offset {offset}: {reason}", .file.display())]
    BackupDamaged {
        /// The file.
        file: PathBuf,
        /// Offset in bytes.
        offset: u64,
        /// How it differs.
        reason: String,
    },
    /// The block format does not have these parameters.
    #[error("block format {format:?}: {reason}")]
    BadFormat {
        /// The name with its parameters, as given.
        format: String,
        /// The problem, and the valid parameters.
        reason: String,
    },
    /// Two modifiers or formats are registered under the same name and version.
    #[error("{0:?} is registered twice")]
    RegisteredTwice(String),
    /// A configuration value outside its range.
    #[error("{setting}: {reason}")]
    BadConfig {
        /// Name of the setting.
        setting: &'static str,
        /// The value given, the range, and what to do.
        reason: String,
    },
    /// The value does not have the type that the call expects.
    #[error("expected {wanted}, found {found}")]
    TypeMismatch {
        /// What the call expects.
        wanted: &'static str,
        /// What is stored.
        found: String,
    },
}

/// What to wait for before trying again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RetryError {
    /// Another process (its process id, if known) has the store open: wait for it to end.
    #[error("{} is in use by {}", .path.display(), holder(*.pid))]
    InUse {
        /// The store.
        path: PathBuf,
        /// Id of the process that holds the lock, if it wrote one.
        pid: Option<u32>,
    },
    /// This process has the store open already: use that handle, or close it first.
    #[error("{} is already open in this process: use that handle, or close it first", .0.display())]
    OpenHere(PathBuf),
    /// The data devices are full: add space or delete, then try again. Reads still work.
    #[error("the data devices ({capacity_bytes} bytes) are full: add space or delete data")]
    Full {
        /// Size of the data devices in bytes, except holes for which their file system has no
        /// space.
        capacity_bytes: u64,
    },
    /// The directory leaves no room for pending updates in the memory budget: open the store with a
    /// larger budget, then try again. Reads and the sweep still work.
    #[error(
        "the memory budget of {budget_bytes} bytes is too small for the directory of this store: \
         open it with well above {needed_bytes} bytes; reads still work"
    )]
    Memory {
        /// The budget in bytes.
        budget_bytes: usize,
        /// The smallest budget, in bytes, with which the store would take updates now. The
        /// directory grows with the data, so choose more.
        needed_bytes: usize,
    },
    /// A bounded internal queue is full: call again once completions have arrived.
    #[error("busy: a bounded queue is full; try again once requests have completed")]
    Busy,
    /// The operating system does not start another thread, and why: let others end, or raise the
    /// limit, then try again.
    #[error("the system cannot start a thread ({0}): try again once others have ended")]
    NoThread(String),
}

/// Why the store refuses updates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClosedError {
    /// The store was closed by its owner.
    #[error("the store is closed")]
    Closed,
    /// A write that had to be durable, or a flush, failed. Acknowledged updates are safe; updates
    /// not yet acknowledged may or may not exist after the next open.
    #[error(
        "{} ({error}); the store takes no more updates: open it again once the cause is gone",
        failed_write(*.device, *.offset)
    )]
    WriteFailed {
        /// The device.
        device: DeviceId,
        /// Offset in bytes; `None` if a flush failed.
        offset: Option<u64>,
        /// What the device reported.
        #[source]
        error: DeviceError,
    },
    /// A thread of the store panicked; the message of the panic.
    #[error("a thread of the store panicked: {0}")]
    Panicked(String),
    /// The store was opened for reading only.
    #[error("the store was opened for reading only")]
    ReadOnly,
    /// This process is a fork of the one that opened the store, and has none of its threads: open
    /// the store in the child once the parent has closed it.
    #[error(
        "this process is a fork of the one that opened the store: open it here once the other has \
         closed it"
    )]
    Forked,
}

/// A position on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The device.
    pub device: DeviceId,
    /// Offset in bytes.
    pub offset: u64,
}

impl Display for Location {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "device {} at offset {}", self.device.0, self.offset)
    }
}

/// Data that differs from what was written, or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}{}: {reason}", .location.map_or(String::new(), |found| format!(" on {found}")))]
pub struct Damage {
    /// Where it begins; `None` if it has no location on a device, such as a block without an image.
    pub location: Option<Location>,
    /// What was expected there, such as `block "k17" of space 3` or `log batch 42`.
    pub what: String,
    /// How it differs, such as `checksum mismatch`.
    pub reason: String,
}

/// Describes a failed write or flush and its location.
fn failed_write(device: DeviceId, offset: Option<u64>) -> String {
    match offset {
        Some(offset) => format!("a durable write failed on {}", Location { device, offset }),
        None => format!("a flush failed on device {}", device.0),
    }
}

/// Describes the holder of the lock of a store.
fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl Error {
    /// A stable code of the failure, such as `request.no-store` or `damaged`: its group, then its
    /// name. It is meant for scripts and bindings for other languages: unlike texts and the names
    /// of variants, a code never changes.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Request(error) => error.code(),
            Self::Retry(error) => error.code(),
            Self::Closed(error) => error.code(),
            Self::Damaged(_) => "damaged",
        }
    }
}

impl RequestError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoStore(_) => "request.no-store",
            Self::AlreadyExists(_) => "request.already-exists",
            Self::Path { .. } => "request.path",
            Self::NoTable(_) => "request.no-table",
            Self::NotEmpty(_) => "request.not-empty",
            Self::BadRecord { .. } => "request.bad-record",
            Self::NoQuarantined(_) => "request.no-quarantined",
            Self::TableMismatch { .. } => "request.table-mismatch",
            Self::BadTableName(_) => "request.bad-table-name",
            Self::WrongStore { .. } => "request.wrong-store",
            Self::IndexTooLarge { .. } => "request.index-too-large",
            Self::KeyTooLong { .. } => "request.key-too-long",
            Self::ValueTooLong { .. } => "request.value-too-long",
            Self::BatchTooLong { .. } => "request.batch-too-long",
            Self::BadOperand { .. } => "request.bad-operand",
            Self::Refused { .. } => "request.refused",
            Self::BadModifierName(_) => "request.bad-modifier-name",
            Self::UnknownModifier { .. } => "request.unknown-modifier",
            Self::UnknownFormat(_) => "request.unknown-format",
            Self::ReadOnly(_) => "request.read-only",
            Self::ExtentLength { .. } => "request.extent-length",
            Self::NoExtent(_) => "request.no-extent",
            Self::OutsideExtent { .. } => "request.outside-extent",
            Self::ExtentsInUse(_) => "request.extents-in-use",
            Self::NotOrdered(_) => "request.not-ordered",
            Self::FromWithin => "request.from-within",
            Self::NoSnapshot(_) => "request.no-snapshot",
            Self::SnapshotExists(_) => "request.snapshot-exists",
            Self::BadSnapshotName(_) => "request.bad-snapshot-name",
            Self::BadBackup { .. } => "request.bad-backup",
            Self::BackupDamaged { .. } => "request.backup-damaged",
            Self::BadFormat { .. } => "request.bad-format",
            Self::RegisteredTwice(_) => "request.registered-twice",
            Self::BadConfig { .. } => "request.bad-config",
            Self::TypeMismatch { .. } => "request.type-mismatch",
        }
    }
}

impl RetryError {
    fn code(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "retry.in-use",
            Self::OpenHere(_) => "retry.open-here",
            Self::Full { .. } => "retry.full",
            Self::Memory { .. } => "retry.memory",
            Self::Busy => "retry.busy",
            Self::NoThread(_) => "retry.no-thread",
        }
    }
}

impl ClosedError {
    fn code(&self) -> &'static str {
        match self {
            Self::Closed => "closed.by-owner",
            Self::WriteFailed { .. } => "closed.write-failed",
            Self::Panicked(_) => "closed.panicked",
            Self::ReadOnly => "closed.read-only",
            Self::Forked => "closed.forked",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn the_cause_of_a_failed_write_is_its_source() {
        let error = DeviceError::Failed { errno: 5 };
        let failed = ClosedError::WriteFailed { device: DeviceId(1), offset: Some(4096), error };
        let failed = Error::from(failed);
        let source = failed.source().and_then(|source| source.downcast_ref::<DeviceError>());
        assert_eq!(source, Some(&DeviceError::Failed { errno: 5 }));
        assert_eq!(failed.code(), "closed.write-failed");
        assert!(failed.to_string().contains("device 1 at offset 4096 (Input/output error"));
    }

    #[test]
    fn damage_is_the_source_of_its_error() {
        let (what, reason) = ("block \"k17\"".to_owned(), "checksum mismatch".to_owned());
        let damage = Damage {
            location: Some(Location { device: DeviceId(2), offset: 16384 }),
            what,
            reason,
        };
        let error = Error::from(damage.clone());
        let text = "block \"k17\" on device 2 at offset 16384: checksum mismatch";
        assert_eq!(error.to_string(), format!("damaged: {text}"));
        let source = error.source().and_then(|source| source.downcast_ref::<Damage>());
        assert_eq!((source, error.code()), (Some(&damage), "damaged"));
        let nowhere = Damage { location: None, ..damage };
        assert_eq!(nowhere.to_string(), "block \"k17\": checksum mismatch");
    }
}
