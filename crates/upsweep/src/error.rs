//! Errors, grouped by what the caller does next; the precise reason is within.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

use crate::device::{DeviceError, DeviceId};

/// Any failure of the library. Match on the group to decide, on the content to explain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call itself is wrong: fix it; the store is untouched and goes on working.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Nothing is wrong for good: try again after what the content says.
    #[error(transparent)]
    Retry(#[from] RetryError),
    /// The store takes no more updates in this process: close it, mend the cause, open it again.
    #[error(transparent)]
    Closed(#[from] ClosedError),
    /// Bytes on a device are not what was written there: restore or repair them. Other data of
    /// the store stays readable.
    #[error("damaged: {0}")]
    Damaged(#[from] Damage),
}

/// What is wrong with a call.
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
    /// A bulk load met a record that it cannot take; nothing was loaded.
    #[error("record {number}: {reason}")]
    BadRecord {
        /// Which record, counted from 1.
        number: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// No update with this id, in hexadecimal digits, is in the quarantine.
    #[error("no update {0:?} in quarantine")]
    NoQuarantined(String),
    /// A table or array of this name exists, with another kind or typing.
    #[error("table {table:?} is {found}, not {wanted}")]
    TableMismatch {
        /// Name of the table.
        table: String,
        /// What it is.
        found: String,
        /// What the call took it for.
        wanted: String,
    },
    /// A table name that is empty, too long (255 bytes) or not allowed.
    #[error("table name {0:?} must have 1 to 255 bytes and no control characters")]
    BadTableName(String),
    /// A table or snapshot of another store was given to a batch or a call, which is of one store.
    #[error("table {table:?} belongs to a different store; nothing was changed")]
    WrongStore {
        /// Name of the table.
        table: String,
    },
    /// The index of a cell above the limit.
    #[error("index {index}; the largest of an array is {limit}")]
    IndexTooLarge {
        /// The index.
        index: u64,
        /// The largest one that there is.
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
    /// A modifier refuses the value that is there, before anything was logged: only updates that
    /// return what they make are told at once. Others go to the quarantine.
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
    /// The call needs a kind of structures, or a block format, that is not registered: register it
    /// and open again. The text is its name, with parameters. An open needs a kind if updates wait
    /// for a structure of it, unless it is for reading or upkeep; and, whatever it is for, if the
    /// store was not closed after such a structure was made or updated.
    #[error(
        "the kind or block format {0:?} is not registered with the store: register it before \
         opening"
    )]
    UnknownFormat(String),
    /// The space never changes: it belongs to a snapshot, or to the store itself. Clone the table
    /// of the snapshot and change the clone.
    #[error(
        "{0:?} never changes: it belongs to a snapshot or to the store itself; clone it and change \
         the clone"
    )]
    ReadOnly(String),
    /// The space does not keep its records in key order, so there are no ranges of keys.
    #[error("{0:?} does not keep its records in key order, so it has no ranges of keys")]
    NotOrdered(String),
    /// A modifier or a visitor has called the store that calls it, which would wait for itself.
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
    /// A folder is not a backup, or not one that the call can use; nothing was changed.
    #[error("backup {}: {reason}", .path.display())]
    BadBackup {
        /// The folder.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A file of a backup is not what was written there: use another copy of it. Nothing was
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
    /// The parameters of a block format are not ones that it has.
    #[error("block format {format:?}: {reason}")]
    BadFormat {
        /// The name with its parameters, as it was given.
        format: String,
        /// What is wrong, and which there are.
        reason: String,
    },
    /// Two modifiers or formats registered under one name and version.
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
    /// Another process (its number if known) has the store open: wait for it to end.
    #[error("{} is in use by {}", .path.display(), holder(*.pid))]
    InUse {
        /// The store.
        path: PathBuf,
        /// The process that holds the lock, if it wrote its number.
        pid: Option<u32>,
    },
    /// This process has the store open already: use that handle, or close it first.
    #[error("{} is already open in this process: use that handle, or close it first", .0.display())]
    OpenHere(PathBuf),
    /// The data devices are full: add space or delete, then try again. Reads go on.
    #[error("the data devices ({capacity_bytes} bytes) are full: add space or delete data")]
    Full {
        /// Size of the data devices in bytes, without holes for which their file system has no
        /// space.
        capacity_bytes: u64,
    },
    /// The directory leaves no room for waiting updates in the memory budget: open the store with a
    /// larger one, then try again. Reads and the sweep go on.
    #[error(
        "the memory budget of {budget_bytes} bytes is too small for the directory of this store: \
         open it with well above {needed_bytes} bytes; reads still work"
    )]
    Memory {
        /// The budget in bytes.
        budget_bytes: usize,
        /// The least budget, in bytes, with which the store would take updates now. The directory
        /// grows with the data: give more.
        needed_bytes: usize,
    },
    /// A bounded internal queue is full at this moment: call again once completions have arrived.
    #[error("busy: a bounded queue is full; try again once requests have completed")]
    Busy,
    /// The operating system starts no more threads for this process, and why: let others end, or
    /// raise the limit, then try again.
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
    /// A write that had to be durable, or a flush, failed. What was acknowledged before is safe;
    /// what was not yet acknowledged may or may not be there after the next open.
    #[error(
        "{} ({error}); the store takes no more updates: open it again once the cause is gone",
        failed_write(*.device, *.offset)
    )]
    WriteFailed {
        /// The device.
        device: DeviceId,
        /// Offset in bytes; `None` if what failed is a flush.
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
    /// The process is a fork of the one that opened the store, and has none of its threads: open
    /// it in the child, once the parent has closed it.
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

/// Something whose content is not what was written, or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}{}: {reason}", .location.map_or(String::new(), |found| format!(" on {found}")))]
pub struct Damage {
    /// Where it begins; `None` if it has no place on a device, such as a block without an image.
    pub location: Option<Location>,
    /// What was expected there, such as `block "k17" of space 3` or `log batch 42`.
    pub what: String,
    /// How it differs, such as `checksum mismatch`.
    pub reason: String,
}

/// What has failed, and where.
fn failed_write(device: DeviceId, offset: Option<u64>) -> String {
    match offset {
        Some(offset) => format!("a durable write failed on {}", Location { device, offset }),
        None => format!("a flush failed on device {}", device.0),
    }
}

/// Who holds the lock of a store.
fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl Error {
    /// A stable code of the failure, such as `request.no-store` or `damaged`: its group, then what
    /// it is. Bindings for other languages and scripts go by it; unlike texts and the names of
    /// variants, a code never changes.
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
