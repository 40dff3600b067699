//! The command line: commands, flags and their help.

mod backup;
mod bench;
mod lines;
mod snapshots;
mod structures;

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

use crate::text::{Bytes, Size};
pub(crate) use backup::{BackupArgs, RestoreArgs};
pub(crate) use bench::{BenchArgs, BenchCommand, CallReturns, RodehArgs, StructuresArgs, Workload};
pub(crate) use lines::{DumpArgs, LoadArgs, RecordFormat};
pub(crate) use snapshots::{
    ChangesArgs, SnapshotCommand, SnapshotCreateArgs, SnapshotDropArgs, SourceArgs,
};
pub(crate) use structures::{
    CloneArgs, CompactArgs, CreateTableArgs, DropTableArgs, KindChoice, RemoveRangeArgs,
};

const EXAMPLES: &str = "\
Examples:
  upsweep create hits.upsweep
  printf 'add\\t/index.html\\t1\\n' | upsweep apply hits.upsweep
  upsweep get hits.upsweep /index.html
  upsweep scan hits.upsweep --prefix / --limit 20
  upsweep stat hits.upsweep

Exit status:
  0  all is well
  1  damage was found, or the key is not there
  2  bad input, bad usage, or a store that cannot be used at this moment
130  `apply` was interrupted, and has said how far it came";

/// An update-aware storage engine: declare changes, have them durable at once, query at any moment.
#[derive(Parser)]
#[command(name = "upsweep", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Create(CreateArgs),
    Apply(ApplyArgs),
    Get(GetArgs),
    Scan(ScanArgs),
    Dump(DumpArgs),
    Load(LoadArgs),
    RemoveRange(RemoveRangeArgs),
    Compact(CompactArgs),
    Backup(BackupArgs),
    Restore(RestoreArgs),
    /// List the tables, hash tables and arrays with their kinds and sizes
    ///
    /// Records and bytes are those in blocks. Updates that wait are not in them until a sweep.
    Tables(ShowArgs),
    CreateTable(CreateTableArgs),
    DropTable(DropTableArgs),
    Clone(CloneArgs),
    /// Keep tables as they are, and see them as they were
    #[command(after_help = snapshots::EXAMPLES)]
    Snapshot {
        #[command(subcommand)]
        command: SnapshotCommand,
    },
    Changes(ChangesArgs),
    /// Show what the store is, what was chosen for it and why, and what bounds its speed
    #[command(after_help = STAT_NOTES)]
    Stat(StatArgs),
    Verify(VerifyArgs),
    Repair(RepairArgs),
    /// Commit everything that waits to the data devices
    Sweep(ShowArgs),
    /// See, retry and discard the updates that their modifiers have refused
    #[command(after_help = QUARANTINE_EXAMPLES)]
    Quarantine {
        #[command(subcommand)]
        command: QuarantineCommand,
    },
    Bench(BenchCommand),
}

/// Make an empty store
///
/// The store is a folder inside one that is there. Its data and its log are files inside, unless
/// you name others or raw block devices; whatever is on a named device is lost. With the log on a
/// device of its own, updates and sweeps do not disturb each other. A raw log device is written
/// once in full.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep create hits.upsweep
  upsweep create hits.upsweep --log-size 2GiB
  upsweep create hits.upsweep --data /dev/sdb --data /dev/sdc --log /dev/nvme0n1p3")]
pub(crate) struct CreateArgs {
    /// Folder to make; it must be empty or not there
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// Data device: a file to make, or an existing raw block device of at least 16MiB; several may
    /// be given
    #[arg(long, value_name = "PATH")]
    pub(crate) data: Vec<PathBuf>,
    /// Log device: a file to make, or an existing raw block device; up to 8 may be given
    #[arg(long, value_name = "PATH")]
    pub(crate) log: Vec<PathBuf>,
    /// Least target size of a block, 4KiB to 1MiB; without it, what suits the data device. Blocks
    /// are made larger where the directory, which has an entry for each, takes too much memory
    #[arg(long, value_name = "SIZE")]
    pub(crate) block_size: Option<Size>,
    /// Most that each log file takes, 1MiB to below 16TiB; without it 512MiB. It begins with an
    /// eighth of that, or 16MiB if that is more, and becomes longer up to four times the data. A
    /// raw log device is used whole. An update takes an eighth of the smallest log device at most:
    /// with 16MiB or more, any value up to 1MiB fits
    #[arg(long, value_name = "SIZE")]
    pub(crate) log_size: Option<Size>,
    /// Print what was made as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The store and the memory to open it with.
#[derive(Args)]
pub(crate) struct OpenArgs {
    /// Folder of the store
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// Memory for waiting updates, directory, cache and buffers together. The more, the more
    /// updates each visit of a block applies
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) memory: Size,
}

/// When an update counts as done.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityChoice {
    /// Each line is durable before the next one is read
    Each,
    /// Lines share log writes, which follow each other without pause
    Group,
    /// As group, but a line may wait 5 ms for others, which makes the log writes fuller
    Relaxed,
}

/// Apply a stream of updates, one a line
///
/// A line is OP<TAB>KEY[<TAB>OPERAND]:
///
///   put     KEY  VALUE    give KEY this value
///   append  KEY  BYTES    append to the value of KEY
///   add     KEY  NUMBER   add to the number of KEY, from 0 if there is none
///   max     KEY  NUMBER   raise the number of KEY to at least this
///   min     KEY  NUMBER   lower the number of KEY to at most this
///   delete  KEY           remove KEY
///
/// Numbers are decimal and signed, of 64 bits; sums wrap around. In keys, values and bytes, \t is a
/// tab, \n a line feed, \\ a backslash and \xHH the byte with that hexadecimal number; everything
/// else stands for itself. An empty value is written as a tab and nothing after it. Empty lines are
/// errors. Lines end in a line feed; a carriage return before it is part of the line.
///
/// In an array, KEY is the index of a cell, from 0 to 2^48-1; VALUE and NUMBER are numbers that a
/// cell can hold. All cells are there and 0 at first, which is where `max` and `min` start too.
/// `delete` makes a cell 0, `add` takes a minus also where cells have no sign, and there is no
/// `append`. `upsweep tables` shows what is an array.
///
/// Lines take effect in order. After a crash the table is as some first part of the input has left
/// it, at least as long as the last `durable COUNT` that was printed. A malformed line ends the
/// command with status 2; the lines before it are applied and durable, the ones after it are not.
///
/// An update that does not fit the value that it meets, such as `add` to a text, goes to the
/// quarantine; see `upsweep quarantine`. So does one whose result does not fit a cell of 8 to 32
/// bits. In cells of 64 bits sums wrap around, as they do in tables: 0 and `add -1` give 2^64-1 in
/// a cell of u64.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  upsweep apply hits.upsweep updates.tsv
  tail -F access.tsv | upsweep apply hits.upsweep --ack-every 1000
  upsweep apply hits.upsweep updates.tsv --table archive --memory 4GiB --json"
)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// File with the updates; - or nothing is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    /// Table, hash table or array to update. An ordered table is made if nothing has this name; it
    /// is gone again if the very first line is refused
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub(crate) table: String,
    /// When an update counts as done
    #[arg(long, value_enum, value_name = "WHEN", default_value = "group")]
    pub(crate) durability: DurabilityChoice,
    /// Print `durable COUNT` whenever another N lines are on stable media
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ack_every: Option<u64>,
    /// Print the summary as JSON, on the last line
    #[arg(long)]
    pub(crate) json: bool,
}

/// How to print values.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ValueFormat {
    /// Text, with \t, \n, \\ and \xHH for what is not printable
    #[value(name = "utf8")]
    Text,
    /// Hexadecimal digits
    Hex,
    /// A signed number of 8 bytes
    I64,
    /// An unsigned number of 8 bytes
    U64,
    /// A floating-point number of 8 bytes
    F64,
}

/// How to print records.
#[derive(Args)]
pub(crate) struct PrintArgs {
    /// How to print values; without it, numbers as numbers and all else as utf8
    #[arg(long = "as", value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<ValueFormat>,
    /// Print JSON, one object a line; keys and texts with the escapes of utf8
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the value of one key
///
/// With exit status 1 if there is none. The key of a cell of an array is its index; every cell has
/// a number.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep get hits.upsweep /index.html
  upsweep get hits.upsweep 'two\\twords' --as hex
  upsweep get hits.upsweep /index.html --table archive --json
  upsweep get hits.upsweep /index.html --at monday")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// The key; \t, \n, \\ and \xHH stand for what cannot be typed
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) key: Bytes,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) print: PrintArgs,
}

/// Print the records of a range of keys, in key order
///
/// A record is KEY<TAB>VALUE. Of an array, it is INDEX<TAB>NUMBER for each cell that is not 0, and
/// --from and --to are indexes. A hash table has no order of keys: all its records are printed, in
/// the order of the hashes of their keys, and no range can be asked for.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep scan hits.upsweep --limit 10
  upsweep scan hits.upsweep --prefix /docs/ --reverse
  upsweep scan hits.upsweep --from a --to n --json
  upsweep scan hits.upsweep --table counts --from 1000 --to 2000
  upsweep scan hits.upsweep --at monday")]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// First key of the range
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) from: Option<Bytes>,
    /// End of the range; this key itself is not printed
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) to: Option<Bytes>,
    /// Only keys that begin with this
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    pub(crate) prefix: Option<Bytes>,
    /// At most this many records
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// From the highest key down
    #[arg(long)]
    pub(crate) reverse: bool,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) print: PrintArgs,
}

/// The store, and in which form to print what is known of it.
#[derive(Args)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    /// Print the metrics in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    pub(crate) metrics: bool,
}

/// The store, and whether to print JSON.
#[derive(Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Read everything and check every checksum and invariant
///
/// Prints each damage with block, space, device and offset. Exit status 1 if there is any. Nothing
/// is written.
#[derive(Args)]
pub(crate) struct VerifyArgs {
    /// Folder of the store
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Restore the description of a store from the copy that its devices have
///
/// store.json says what a store consists of, and every device begins with a label that has a copy
/// of it and a checksum. If the two differ, or store.json is gone or unreadable, no command opens
/// the store. This one writes what the label has, and keeps what was there as store.json.damaged.
/// Data is not looked at.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep repair hits.upsweep
  upsweep repair hits.upsweep --device /dev/sdb")]
pub(crate) struct RepairArgs {
    /// Folder of the store
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// Device of the store whose label to take; without it, the first data device
    #[arg(long, value_name = "PATH")]
    pub(crate) device: Option<PathBuf>,
}

const STAT_NOTES: &str = "\
Examples:
  upsweep stat hits.upsweep
  upsweep stat hits.upsweep --json
  upsweep stat hits.upsweep --metrics

A store is open in one process at a time, and this command opens it. With --metrics, gauges are
those of the store now: sizes, fill, what waits. Counters and times begin at this open; those of
the last session are there as well, under upsweep_last_session_. An application that has the
store open serves its own metrics by Store::metrics_text.";

const QUARANTINE_EXAMPLES: &str = "\
Examples:
  upsweep quarantine list hits.upsweep
  upsweep quarantine retry hits.upsweep --all
  upsweep quarantine discard hits.upsweep 000000000000002a000000050000000093ad50b0";

#[derive(Subcommand)]
pub(crate) enum QuarantineCommand {
    /// Print every update that was refused, and why
    ///
    /// A line is ID<TAB>TABLE<TAB>OPERATION<TAB>KEY<TAB>OPERAND<TAB>REASON, with \t, \n, \\ and
    /// \xHH for what is not printable. Whether an update is refused is settled by the sweep, so
    /// those that still wait for one are not in the list; standard error says how many they are.
    List(ShowArgs),
    /// Declare refused updates anew, once their cause is gone
    ///
    /// An update whose table was dropped is only removed from the quarantine.
    Retry(PickArgs),
    /// Remove refused updates for good: they never take effect
    Discard(PickArgs),
}

#[derive(Args)]
#[command(group = ArgGroup::new("which").args(["ids", "all"]).required(true))]
pub(crate) struct PickArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// The update, as `upsweep quarantine list` names it; several may be given
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// All updates that are in quarantine now
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
