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
    /// Name of the table, hash table or array to read
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub(crate) table: String,
    /// Read it as of this snapshot; by default, as it is now
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) at: Option<String>,
}

#[derive(Subcommand)]
pub(crate) enum SnapshotCommand {
    Create(SnapshotCreateArgs),
    /// Print every snapshot: its name, its sequence, and the tables in it
    ///
    /// A snapshot shows all updates with a lower sequence than its own, and no others.
    #[command(after_help = "\
Examples:
  upsweep snapshot list hits.upsweep
  upsweep snapshot list hits.upsweep --json")]
    List(ShowArgs),
    Drop(SnapshotDropArgs),
}

/// Take a snapshot of tables, hash tables and arrays
///
/// All of them show the same moment, with every update that was durable before. A snapshot takes
/// one log record, whatever their size: blocks are shared until an update changes them. Blocks that
/// only the snapshot still refers to take space until `upsweep snapshot drop`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep snapshot create hits.upsweep monday
  upsweep snapshot create hits.upsweep before-import --table main --table archive")]
pub(crate) struct SnapshotCreateArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the snapshot, unique in the store: 1 to 255 bytes without control characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Include only this table, hash table or array; several may be given. By default, all
    #[arg(long = "table", value_name = "NAME")]
    pub(crate) tables: Vec<String>,
}

/// Drop a snapshot
///
/// The tables themselves, and clones made from the snapshot, stay as they are. When the command
/// ends, the space that only the snapshot used is free; what tables, clones or other snapshots
/// still refer to stays.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep snapshot drop hits.upsweep monday")]
pub(crate) struct SnapshotDropArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the snapshot
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Print the records of a table that differ between two snapshots, in key order
///
/// A line is KEY<TAB>BEFORE<TAB>AFTER: the values in the earlier snapshot and in the later one.
/// \absent stands for no value, and a text of these letters is printed as \\absent; in JSON, no
/// value is null. A table that is missing from one of the snapshots counts as empty there.
///
/// The time depends on how much has changed, not on the size of the table. Hash tables and arrays
/// cannot be compared.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep changes hits.upsweep monday tuesday
  upsweep changes hits.upsweep monday tuesday --table archive --json")]
pub(crate) struct ChangesArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// The earlier snapshot
    #[arg(value_name = "EARLIER")]
    pub(crate) earlier: String,
    /// The later snapshot
    #[arg(value_name = "LATER")]
    pub(crate) later: String,
    /// Table to compare
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub(crate) table: String,
    #[command(flatten)]
    pub(crate) print: PrintArgs,
}
