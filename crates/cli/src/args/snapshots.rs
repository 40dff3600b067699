//! The command line of snapshots, and of reading them.

use clap::{Args, Subcommand};

use super::{OpenArgs, PrintArgs, ShowArgs};

pub(super) const EXAMPLES: &str = "\
Examples:
  upsweep snapshot create hits.upsweep monday
  upsweep scan hits.upsweep --at monday
  upsweep snapshot list hits.upsweep
  upsweep snapshot drop hits.upsweep monday";

/// What to read, and as of when.
#[derive(Args)]
pub(crate) struct SourceArgs {
    /// What to read, as `upsweep tables` names it
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub(crate) table: String,
    /// Read it as this snapshot has it; without it, as it is now
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) at: Option<String>,
}

#[derive(Subcommand)]
pub(crate) enum SnapshotCommand {
    Create(SnapshotCreateArgs),
    /// Print every snapshot: its name, its place in the history of the store, and what it has
    ///
    /// A snapshot shows all updates with a lower sequence than its own, and no others.
    #[command(after_help = "\
Examples:
  upsweep snapshot list hits.upsweep
  upsweep snapshot list hits.upsweep --json")]
    List(ShowArgs),
    Drop(SnapshotDropArgs),
}

/// Keep tables, hash tables and arrays as they are at this moment
///
/// All of them show the same moment, with every update that was durable before. It takes one record
/// of the log, whatever their size: all blocks are shared until an update changes them. What the
/// snapshot alone still has takes room until `upsweep snapshot drop`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep snapshot create hits.upsweep monday
  upsweep snapshot create hits.upsweep before-import --table main --table archive")]
pub(crate) struct SnapshotCreateArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the snapshot, which no other has: 1 to 255 bytes without control characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Keep only this table, hash table or array; several may be given. Without it, all are kept
    #[arg(long = "table", value_name = "NAME")]
    pub(crate) tables: Vec<String>,
}

/// Drop a snapshot
///
/// The tables themselves, and clones made from the snapshot, stay as they are. When the command
/// ends, the room of what only the snapshot had has come back; what tables, clones or other
/// snapshots still have stays.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep snapshot drop hits.upsweep monday")]
pub(crate) struct SnapshotDropArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// The snapshot, as `upsweep snapshot list` names it
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Print the records of a table that differ between two snapshots, in key order
///
/// A line is KEY<TAB>BEFORE<TAB>AFTER: the values in the earlier snapshot and in the later one.
/// \absent stands for no value; a text of these letters is printed as \\absent. In JSON, it is
/// null. A table that one of the snapshots does not have counts as empty there.
///
/// The time that it takes depends on how much has changed, not on how much there is. Hash tables
/// and arrays cannot be compared.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep changes hits.upsweep monday tuesday
  upsweep changes hits.upsweep monday tuesday --table archive --json")]
pub(crate) struct ChangesArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// The snapshot to compare with
    #[arg(value_name = "EARLIER")]
    pub(crate) earlier: String,
    /// The snapshot whose records are new
    #[arg(value_name = "LATER")]
    pub(crate) later: String,
    /// Table to compare
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub(crate) table: String,
    #[command(flatten)]
    pub(crate) print: PrintArgs,
}
