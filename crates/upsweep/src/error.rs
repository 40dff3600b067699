//! Errors, grouped by what the caller does next; the precise reason is within.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

use crate::device::{DeviceError, DeviceId};

/// Any failure of the library. Match on the group to decide, on the content to explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The call itself is wrong: fix it; the store is untouched and goes on working.
    Request(RequestError),
    /// Nothing is wrong for good: try again after what the content says.
    Retry(RetryError),
    /// The store takes no more updates in this process: close it, mend the cause, open it again.
    Closed(ClosedError),
    /// Bytes on a device are not what was written there: restore or repair them. Other data of
    /// the store stays readable.
    Damaged(Damage),
}

/// What is wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// No store at this path.
    NoStore(PathBuf),
    /// Creation refused: something is at this path already.
    AlreadyExists(PathBuf),
    /// A file, folder or device of the store could not be opened or made.
    Path {
        /// The path.
        path: PathBuf,
        /// What the operating system said.
        reason: String,
    },
    /// No table of this name.
    NoTable(String),
    /// A bulk load into a table that has records: load into a new one, or delete them first.
    NotEmpty(String),
    /// A bulk load met a record that it cannot take; nothing was loaded.
    BadRecord {
        /// Which record, counted from 1.
        number: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// No update with this id, in hexadecimal digits, is in the quarantine.
    NoQuarantined(String),
    /// A table or array of this name exists, with another kind or typing.
    TableMismatch {
        /// Name of the table.
        table: String,
        /// What it is.
        found: String,
        /// What the call took it for.
        wanted: String,
    },
    /// A table name that is empty, too long (255 bytes) or not allowed.
    BadTableName(String),
    /// A table or snapshot of another store was given to a batch or a call, which is of one store.
    WrongStore {
        /// Name of the table.
        table: String,
    },
    /// The index of a cell above the limit.
    IndexTooLarge {
        /// The index.
        index: u64,
        /// The largest one that there is.
        limit: u64,
    },
    /// A key above the limit, in bytes.
    KeyTooLong {
        /// Length of the key in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A value or operand above the limit, in bytes.
    ValueTooLong {
        /// Length in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A batch, or a single update, whose log record exceeds what one log segment or the memory
    /// budget holds.
    BatchTooLong {
        /// Length of the record in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The modifier refuses this operand, before anything was logged.
    BadOperand {
        /// Name of the modifier.
        modifier: String,
        /// Why.
        reason: String,
    },
    /// A modifier refuses the value that is there, before anything was logged: only updates that
    /// return what they make are told at once. Others go to the quarantine.
    Refused {
        /// Name of the modifier.
        modifier: String,
        /// Why.
        reason: String,
    },
    /// The name of a modifier is empty, too long (64 bytes) or has control characters.
    BadModifierName(String),
    /// The log or a table needs a modifier that is not registered: register it and open again.
    UnknownModifier {
        /// Its stable name.
        name: String,
        /// Its version.
        version: u16,
    },
    /// The store uses a block format that is not registered: register it and open again.
    UnknownFormat(String),
    /// The space never changes: it belongs to a snapshot, or to the store itself. Clone the table
    /// of the snapshot and change the clone.
    ReadOnly(String),
    /// The space does not keep its records in key order, so there are no ranges of keys.
    NotOrdered(String),
    /// A modifier or a visitor has called the store that calls it, which would wait for itself.
    FromWithin,
    /// There is no snapshot of this name or number.
    NoSnapshot(String),
    /// There is a snapshot of this name already: drop it first or choose another name.
    SnapshotExists(String),
    /// The name of a snapshot is empty, too long (255 bytes) or has control characters.
    BadSnapshotName(String),
    /// A folder is not a backup, or not one that the call can use; nothing was changed.
    BadBackup {
        /// The folder.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A file of a backup is not what was written there: use another copy of it. Nothing was
    /// restored.
    BackupDamaged {
        /// The file.
        file: PathBuf,
        /// Offset in bytes.
        offset: u64,
        /// How it differs.
        reason: String,
    },
    /// The parameters of a block format are not ones that it has.
    BadFormat {
        /// The name with its parameters, as it was given.
        format: String,
        /// What is wrong, and which there are.
        reason: String,
    },
    /// Two modifiers or formats registered under one name and version.
    RegisteredTwice(String),
    /// A configuration value outside its range.
    BadConfig {
        /// Name of the setting.
        setting: &'static str,
        /// The value given, the range, and what to do.
        reason: String,
    },
    /// The value does not have the type that the call expects.
    TypeMismatch {
        /// What the call expects.
        wanted: &'static str,
        /// What is stored.
        found: String,
    },
}

/// What to wait for before trying again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryError {
    /// Another process (its number if known) has the store open: wait for it to end.
    InUse {
        /// The store.
        path: PathBuf,
        /// The process that holds the lock, if it wrote its number.
        pid: Option<u32>,
    },
    /// This process has the store open already: use that handle, or close it first.
    OpenHere(PathBuf),
    /// The data devices are full: add space or delete, then try again. Reads go on.
    Full {
        /// Size of the data devices in bytes, without holes for which their file system has no
        /// space.
        capacity_bytes: u64,
    },
    /// The directory leaves no room for waiting updates in the memory budget: open the store with a
    /// larger one, then try again. Reads and the sweep go on.
    Memory {
        /// The budget in bytes.
        budget_bytes: usize,
        /// The least budget, in bytes, with which the store would take updates now. The directory
        /// grows with the data: give more.
        needed_bytes: usize,
    },
    /// A bounded internal queue is full at this moment: call again once completions have arrived.
    Busy,
    /// The operating system starts no more threads for this process, and why: let others end, or
    /// raise the limit, then try again.
    NoThread(String),
}

/// Why the store refuses updates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClosedError {
    /// The store was closed by its owner.
    Closed,
    /// A write that had to be durable failed. What was acknowledged before is safe; what was not
    /// yet acknowledged may or may not be there after the next open.
    WriteFailed {
        /// The device.
        device: DeviceId,
        /// Offset in bytes.
        offset: u64,
        /// What the device reported.
        error: DeviceError,
    },
    /// A thread of the store panicked; the message of the panic.
    Panicked(String),
    /// The store was opened for reading only.
    ReadOnly,
    /// The process is a fork of the one that opened the store, and has none of its threads: open
    /// it in the child, once the parent has closed it.
    Forked,
}

/// One place on a device whose content is not what was written, or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The device.
    pub device: DeviceId,
    /// Offset in bytes.
    pub offset: u64,
    /// What was expected there, such as `block "k17" of space 3` or `log batch 42`.
    pub what: String,
    /// How it differs, such as `checksum mismatch`.
    pub reason: String,
}

impl Display for Damage {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { device, offset, what, reason } = self;
        write!(formatter, "{what} on device {} at offset {offset}: {reason}", device.0)
    }
}

impl Display for Error {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => error.fmt(formatter),
            Self::Retry(error) => error.fmt(formatter),
            Self::Closed(error) => error.fmt(formatter),
            Self::Damaged(damage) => write!(formatter, "damaged: {damage}"),
        }
    }
}

impl Display for RequestError {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStore(_)
            | Self::AlreadyExists(_)
            | Self::Path { .. }
            | Self::BadBackup { .. }
            | Self::BackupDamaged { .. } => self.fmt_of_path(formatter),
            Self::NoTable(table) => write!(formatter, "no table {table:?} in this store"),
            Self::NotEmpty(table) => write!(
                formatter,
                "table {table:?} has records; a load needs a table that is new or empty"
            ),
            Self::BadRecord { number, reason } => write!(formatter, "record {number}: {reason}"),
            Self::NoQuarantined(id) => write!(formatter, "no update {id:?} in quarantine"),
            Self::TableMismatch { table, found, wanted } => {
                write!(formatter, "table {table:?} is {found}, not {wanted}")
            }
            Self::BadTableName(name) => write!(
                formatter,
                "table name {name:?} must have 1 to 255 bytes and no control characters"
            ),
            Self::WrongStore { table } => write!(
                formatter,
                "table {table:?} belongs to a different store; nothing was changed"
            ),
            Self::IndexTooLarge { .. }
            | Self::KeyTooLong { .. }
            | Self::ValueTooLong { .. }
            | Self::BatchTooLong { .. } => self.fmt_of_size(formatter),
            Self::BadOperand { .. } | Self::Refused { .. } => self.fmt_of_update(formatter),
            Self::BadModifierName(name) => {
                let (start, bytes) = (name.chars().take(64).collect::<String>(), name.len());
                write!(
                    formatter,
                    "modifier name {start:?} of {bytes} bytes: it must have 1 to 64 bytes and no \
                     control characters"
                )
            }
            Self::UnknownModifier { name, version } => write!(
                formatter,
                "the store needs modifier {name:?} version {version}, which is not registered: \
                 register it before opening"
            ),
            Self::ReadOnly(_)
            | Self::NotOrdered(_)
            | Self::NoSnapshot(_)
            | Self::SnapshotExists(_)
            | Self::BadSnapshotName(_) => self.fmt_of_name(formatter),
            Self::BadFormat { format, reason } => {
                write!(formatter, "block format {format:?}: {reason}")
            }
            Self::UnknownFormat(name) => write!(
                formatter,
                "the store needs block format {name:?}, which is not registered: register it \
                 before opening"
            ),
            Self::FromWithin => write!(
                formatter,
                "a modifier or visitor has called the store that calls it: it has to do without"
            ),
            Self::RegisteredTwice(name) => write!(formatter, "{name:?} is registered twice"),
            Self::BadConfig { setting, reason } => write!(formatter, "{setting}: {reason}"),
            Self::TypeMismatch { wanted, found } => {
                write!(formatter, "expected {wanted}, found {found}")
            }
        }
    }
}

impl RequestError {
    /// The text of those that say why an update is refused.
    fn fmt_of_update(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadOperand { modifier, reason } => {
                write!(formatter, "operand of {modifier:?} refused: {reason}")
            }
            Self::Refused { modifier, reason } => {
                write!(formatter, "update by {modifier:?} refused: {reason}")
            }
            _ => Ok(()),
        }
    }

    /// The text of those that say what is wrong with a file or folder.
    fn fmt_of_path(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStore(path) => {
                write!(formatter, "no store at {}; `upsweep create` makes one", path.display())
            }
            Self::AlreadyExists(path) => {
                write!(formatter, "{} exists already; nothing was changed", path.display())
            }
            Self::Path { path, reason } => write!(formatter, "{}: {reason}", path.display()),
            Self::BadBackup { path, reason } => {
                write!(formatter, "backup {}: {reason}", path.display())
            }
            Self::BackupDamaged { file, offset, reason } => {
                write!(formatter, "damaged: {} at offset {offset}: {reason}", file.display())
            }
            _ => Ok(()),
        }
    }

    /// The text of those that say what is too large.
    fn fmt_of_size(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::IndexTooLarge { index, limit } => {
                write!(formatter, "index {index}; the largest of an array is {limit}")
            }
            Self::KeyTooLong { bytes, limit } => {
                write!(formatter, "key of {bytes} bytes; the limit is {limit}")
            }
            Self::ValueTooLong { bytes, limit } => {
                write!(formatter, "value of {bytes} bytes; the limit is {limit}")
            }
            Self::BatchTooLong { bytes, limit } => write!(
                formatter,
                "record of {bytes} bytes; the limit of this store is {limit}: split a batch; a \
                 single update needs a store with a larger log, or more memory"
            ),
            _ => Ok(()),
        }
    }

    /// The text of those that say what a name stands for.
    fn fmt_of_name(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let (name, text) = match self {
            Self::ReadOnly(name) => (
                name,
                "never changes: it belongs to a snapshot or to the store itself; clone it and \
                 change the clone",
            ),
            Self::NotOrdered(name) => {
                (name, "does not keep its records in key order, so it has no ranges of keys")
            }
            Self::NoSnapshot(name) => (name, "is not the name of a snapshot of this store"),
            Self::SnapshotExists(name) => {
                (name, "names a snapshot already: drop it first or choose another name")
            }
            Self::BadSnapshotName(name) => {
                (name, "cannot name a snapshot: give 1 to 255 bytes without control characters")
            }
            _ => return Ok(()),
        };
        write!(formatter, "{name:?} {text}")
    }
}

impl Display for RetryError {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { path, pid: Some(pid) } => {
                write!(formatter, "{} is in use by process {pid}", path.display())
            }
            Self::InUse { path, pid: None } => {
                write!(formatter, "{} is in use by another process", path.display())
            }
            Self::OpenHere(path) => write!(
                formatter,
                "{} is open in this process already: use that handle, or close it first",
                path.display()
            ),
            Self::Full { capacity_bytes } => write!(
                formatter,
                "the data devices ({capacity_bytes} bytes) are full: add space or delete data"
            ),
            Self::Memory { budget_bytes, needed_bytes } => write!(
                formatter,
                "the memory budget of {budget_bytes} bytes is too small for the directory of this \
                 store: open it with well above {needed_bytes} bytes; it can be read meanwhile"
            ),
            Self::Busy => write!(formatter, "busy: a bounded queue is full at this moment"),
            Self::NoThread(reason) => {
                write!(
                    formatter,
                    "the system starts no thread ({reason}): try again once others end"
                )
            }
        }
    }
}

impl Display for ClosedError {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => write!(formatter, "the store is closed"),
            Self::WriteFailed { device, offset, error } => write!(
                formatter,
                "a durable write failed on device {} at offset {offset} ({error}); the store \
                 takes no more updates: open it again once the cause is gone",
                device.0
            ),
            Self::Panicked(message) => {
                write!(formatter, "a thread of the store panicked: {message}")
            }
            Self::ReadOnly => write!(formatter, "the store was opened for reading only"),
            Self::Forked => write!(
                formatter,
                "this process is a fork of the one that opened the store: open it here, once the \
                 other one has closed it"
            ),
        }
    }
}

impl std::error::Error for Error {}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

impl From<RetryError> for Error {
    fn from(error: RetryError) -> Self {
        Self::Retry(error)
    }
}

impl From<ClosedError> for Error {
    fn from(error: ClosedError) -> Self {
        Self::Closed(error)
    }
}

impl From<Damage> for Error {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}
