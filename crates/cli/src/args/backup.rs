//! The arguments of `backup` and `restore`.

use std::path::PathBuf;

use clap::Args;

use super::OpenArgs;
use crate::text::Size;

/// Copy all tables and arrays, as they are at one moment, into a new folder
///
/// Only one process at a time can have a store open, so no other command can use it until the
/// backup is complete, unless `upsweep serve` has it open: then writes go on. Applications make
/// backups through the library, while writes go on.
///
/// The folder gets a manifest and a file of records for each table, hash table and array, with
/// checksums over every byte; `upsweep restore` makes a store from it. Updates in the quarantine
/// are not included.
///
/// With --snapshot the store keeps a snapshot of that moment, so that a later backup can be an
/// increment: with --since, only what differs from an earlier backup is written for tables (hash
/// tables and arrays are always written in full). Restoring an increment needs the backups before
/// it. If an increment keeps a snapshot itself, the snapshot of the earlier backup is dropped,
/// because the next increment is based on this one; otherwise that snapshot stays, for more
/// increments based on the earlier backup.
///
/// A kept snapshot takes space for everything that changes later. A backup that fails leaves
/// nothing; one that was killed leaves a folder without a manifest, and the snapshot: remove the
/// folder and drop the snapshot, then try again.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep backup hits.upsweep monday --snapshot monday
  upsweep backup hits.upsweep tuesday --since monday --snapshot tuesday
  upsweep restore tuesday copy.upsweep")]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Folder to create
    #[arg(value_name = "DEST")]
    pub(crate) folder: PathBuf,
    /// Folder of an earlier backup of this store: write only what has changed since
    #[arg(long, value_name = "BACKUP")]
    pub(crate) since: Option<PathBuf>,
    /// Keep the snapshot under this name, for increments based on this backup
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make a new store from a backup
///
/// Every byte of the backup, and of those that it is based on, is checked. If one is damaged, the
/// command names the file and the offset, ends with status 1, and leaves no store. The store is
/// made as STORE.restoring and renamed to STORE once it is complete.
///
/// Blocks and log are as large as in the store that was backed up, with a log of 16MiB to 512MiB.
/// The new store has an identity of its own, so increments based on this backup are refused for it.
#[derive(Args)]
#[command(after_help = "\
Example:
  upsweep restore tuesday copy.upsweep")]
pub(crate) struct RestoreArgs {
    /// Folder of the backup
    #[arg(value_name = "BACKUP")]
    pub(crate) backup: PathBuf,
    /// Folder to create; it must not exist
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// Memory to restore with
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) memory: Size,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
