//! The arguments of `backup` and `restore`.

use std::path::PathBuf;

use clap::Args;

use super::OpenArgs;
use crate::text::Size;

/// Copy all tables and arrays, as they are at one moment, into a new folder
///
/// A store is open in one process at a time, so no other command can use it until the backup is
/// made. Applications that hold the store open make backups while writes go on, by the library.
///
/// The folder gets a manifest and a file of records for each table, hash table and array, with
/// checksums over every byte; `upsweep restore` makes a store of it. Updates in quarantine are not
/// in it.
///
/// With --snapshot the store keeps that moment under a name, so that a later backup can be an
/// increment: with --since, only what differs from an earlier backup is written of tables (hash
/// tables and arrays are always written whole). An increment needs the backups before it when it is
/// restored. If it keeps a snapshot itself, that of the earlier backup is dropped, for the next
/// increment stands on this one; if not, that stays, for more increments on the earlier one.
///
/// A kept snapshot takes the room of what changes later. A backup that fails leaves nothing; one
/// that was killed leaves a folder without manifest, and the snapshot: remove the one and drop the
/// other, then try again.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep backup hits.upsweep monday --snapshot monday
  upsweep backup hits.upsweep tuesday --since monday --snapshot tuesday
  upsweep restore tuesday copy.upsweep")]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Folder to make
    #[arg(value_name = "DEST")]
    pub(crate) folder: PathBuf,
    /// Folder of an earlier backup of this store: write only what has changed since
    #[arg(long, value_name = "BACKUP")]
    pub(crate) since: Option<PathBuf>,
    /// Keep the snapshot under this name, for increments on this backup
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make a new store of a backup
///
/// Every byte of the backup, and of those on which it stands, is checked. If one is not what was
/// written, the file and the place in it are named, the command ends with status 1, and no store is
/// left. The store is made as STORE.restoring, and gets its name when it is whole.
///
/// The blocks are as large as in the store that was backed up, and the log too, but of 16MiB to
/// 512MiB. The store has an identity of its own: increments on this backup are none of it.
#[derive(Args)]
#[command(after_help = "\
Example:
  upsweep restore tuesday copy.upsweep")]
pub(crate) struct RestoreArgs {
    /// Folder of the backup
    #[arg(value_name = "BACKUP")]
    pub(crate) backup: PathBuf,
    /// Folder to make; nothing may be there
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// Memory for the work
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) memory: Size,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
