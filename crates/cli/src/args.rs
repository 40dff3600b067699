//! The command line: commands, flags and their help.

mod backup;
mod bench;
mod device;
mod lines;
mod serve;
mod snapshots;
mod structures;
mod volumes;

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

use crate::text::{Bytes, Size};
pub(crate) use backup::{BackupArgs, RestoreArgs};
pub(crate) use bench::{
    BenchArgs, BenchCommand, CallReturns, GridArgs, RodehArgs, ScanBenchArgs, StructuresArgs,
    TableArgs, Workload,
};
pub(crate) use device::{DeviceCommand, ProfileArgs, ProfileForm, ShowProfileArgs};
pub(crate) use lines::{DumpArgs, LoadArgs, RecordFormat};
pub(crate) use serve::ServeArgs;
pub(crate) use snapshots::{
    ChangesArgs, SnapshotCommand, SnapshotCreateArgs, SnapshotDropArgs, SourceArgs,
};
pub(crate) use structures::{
    CloneArgs, CompactArgs, CreateTableArgs, DropTableArgs, KindChoice, RemoveRangeArgs,
};
pub(crate) use volumes::{
    Allowed, Limited, VolumeAtArgs, VolumeCloneArgs, VolumeCommand, VolumeCreateArgs,
    VolumeDeleteArgs, VolumeDiffArgs, VolumeHistoryArgs, VolumeMarkArgs, VolumeName,
    VolumeReceiveArgs, VolumeRenameArgs, VolumeResizeArgs, VolumeRollbackArgs, VolumeScrubArgs,
    VolumeSendArgs, VolumeSetArgs, VolumeSnapshotArgs,
};

const EXAMPLES: &str = "\
Examples:
  upsweep create hits.upsweep
  printf 'add\\t/index.html\\t1\\n' | upsweep apply hits.upsweep
  upsweep get hits.upsweep /index.html
  upsweep scan hits.upsweep --prefix / --limit 20
  upsweep stat hits.upsweep

Exit status:
  0  success
  1  damage was found, or the key does not exist
  2  bad input, bad usage, or a store that cannot be used at the moment
130  the command was interrupted; `apply` has printed how far it came

While `upsweep serve STORE` runs, it has the store open and runs the commands on it.";

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
    /// Records and bytes count what is in blocks; updates count once a sweep has applied them.
    Tables(ShowArgs),
    CreateTable(CreateTableArgs),
    DropTable(DropTableArgs),
    Clone(CloneArgs),
    /// Create, list and drop snapshots
    #[command(after_help = snapshots::EXAMPLES)]
    Snapshot {
        #[command(subcommand)]
        command: SnapshotCommand,
    },
    Changes(ChangesArgs),
    /// Create, list, snapshot, clone, send and delete volumes, and return to their past
    #[command(after_help = volumes::EXAMPLES)]
    Volume {
        #[command(subcommand)]
        command: VolumeCommand,
    },
    /// Show the settings of the store and why they were chosen, its state, and what limits its
    /// speed
    #[command(after_help = STAT_NOTES)]
    Stat(StatArgs),
    Verify(VerifyArgs),
    Repair(RepairArgs),
    /// Apply all waiting updates and write the result to the data devices
    Sweep(ShowArgs),
    /// List, retry and discard refused updates
    #[command(after_help = QUARANTINE_EXAMPLES)]
    Quarantine {
        #[command(subcommand)]
        command: QuarantineCommand,
    },
    /// Measure devices, and show what was measured
    #[command(after_help = device::EXAMPLES)]
    Device {
        #[command(subcommand)]
        command: DeviceCommand,
    },
    Serve(ServeArgs),
    Bench(BenchCommand),
}

/// Which store a command uses, and how.
pub(crate) enum StoreUse<'a> {
    /// None that another process could have open.
    None,
    /// It opens this one, or lets the server run it that has the store open.
    Open(&'a Path),
    /// It needs this one for itself.
    Alone(&'a Path),
}

impl Command {
    pub(crate) fn store_use(&self) -> StoreUse<'_> {
        use SnapshotCommand as Snapshot;
        let open = match self {
            Self::Apply(args) => &args.open,
            Self::Get(args) => &args.open,
            Self::Scan(args) => &args.open,
            Self::Dump(args) => &args.open,
            Self::Load(args) => &args.open,
            Self::RemoveRange(args) => &args.open,
            Self::Compact(args) => &args.open,
            Self::Backup(args) => &args.open,
            Self::Tables(args) | Self::Sweep(args) => &args.open,
            Self::CreateTable(args) => &args.open,
            Self::DropTable(args) => &args.open,
            Self::Clone(args) => &args.open,
            Self::Snapshot { command: Snapshot::Create(args) } => &args.open,
            Self::Snapshot { command: Snapshot::List(args) } => &args.open,
            Self::Snapshot { command: Snapshot::Drop(args) } => &args.open,
            Self::Changes(args) => &args.open,
            Self::Volume { command } => command.open(),
            Self::Stat(args) => &args.show.open,
            Self::Quarantine { command: QuarantineCommand::List(args) } => &args.open,
            Self::Quarantine { command: QuarantineCommand::Retry(args) } => &args.open,
            Self::Quarantine { command: QuarantineCommand::Discard(args) } => &args.open,
            Self::Verify(args) => return StoreUse::Alone(&args.store),
            Self::Repair(args) => return StoreUse::Alone(&args.store),
            Self::Serve(args) => return StoreUse::Alone(&args.open.store),
            Self::Device { command: DeviceCommand::Profile(args) } => {
                return StoreUse::Alone(&args.path);
            }
            // What is there already is refused, open or not.
            Self::Create(_) | Self::Restore(_) => return StoreUse::None,
            Self::Device { command: DeviceCommand::Show(_) } | Self::Bench(_) => {
                return StoreUse::None;
            }
        };
        StoreUse::Open(&open.store)
    }
}

/// Create an empty store
///
/// The store is a new folder; its parent must exist. Data and log are files inside it, unless you
/// name other files or raw block devices, whose content is lost. With the log on a device of its
/// own, updates and sweeps do not slow each other down. A raw log device is written once in full.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep create hits.upsweep
  upsweep create hits.upsweep --log-size 2GiB
  upsweep create hits.upsweep --data /dev/sdb --data /dev/sdc --log /dev/nvme0n1p3")]
pub(crate) struct CreateArgs {
    /// Folder to create; it must be empty or not exist
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// Data device: a file to create, or an existing raw block device of at least 16MiB; several
    /// may be given
    #[arg(long, value_name = "PATH")]
    pub(crate) data: Vec<PathBuf>,
    /// Log device: a file to create, or an existing raw block device; up to 8 may be given
    #[arg(long, value_name = "PATH")]
    pub(crate) log: Vec<PathBuf>,
    /// Minimum target size of a block, 4KiB to 1MiB; by default, what suits the data device. The
    /// directory has an entry for each block; if it takes too much memory, blocks are made larger
    #[arg(long, value_name = "SIZE")]
    pub(crate) block_size: Option<Size>,
    /// Maximum size of each log file, from 1MiB to just below 16TiB; by default 512MiB. A log file
    /// begins with an eighth of that, but at least 16MiB, and grows up to four times the data. A
    /// raw log device is used in full. An update can be as long as an eighth of the smallest log
    /// device: with 16MiB or more, any value up to 1MiB fits
    #[arg(long, value_name = "SIZE")]
    pub(crate) log_size: Option<Size>,
    /// What the devices do, in place of a measurement of some seconds: a file that `upsweep device
    /// profile` has written
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// Print what was created as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Memory to open a store with, unless another size is given.
const MEMORY_BYTES: usize = 256 << 20;

/// The store and the memory to open it with.
#[derive(Args)]
pub(crate) struct OpenArgs {
    /// Folder of the store
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// Memory for waiting updates, directory, cache and buffers together. With more memory, each
    /// visit of a block applies more updates. By default 256MiB; no effect, but a note, if a server
    /// has the store open
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,
}

impl OpenArgs {
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.map_or(MEMORY_BYTES, Size::in_memory)
    }
}

/// When an update counts as done.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityChoice {
    /// Each line is durable before the next one is read
    Each,
    /// Lines share log writes, which follow each other without pause
    Group,
    /// As group, but a line may wait 5 ms for others, so that log writes are larger
    Relaxed,
}

/// Apply a stream of updates, one per line
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
/// else stands for itself. An empty value is a tab with nothing after it. Empty lines are errors.
/// Lines end in a line feed; a carriage return before it is part of the line.
///
/// In an array, KEY is the index of a cell, from 0 to 2^48-1; VALUE and NUMBER are numbers that a
/// cell can hold. All cells exist and are 0 at first; `max` and `min` start from 0, too. `delete`
/// sets a cell to 0, `add` takes negative numbers for unsigned cells, too, and there is no
/// `append`. `upsweep tables` shows which structures are arrays.
///
/// Lines take effect in order. After a crash, the table has the effect of the first N lines, where
/// N is at least the last `durable COUNT` that was printed. A malformed line ends the
/// command with status 2; the lines before it are applied and durable, the ones after it are not.
///
/// An update that does not fit the current value, such as `add` to a text, goes to the quarantine;
/// see `upsweep quarantine`. So does an update whose result does not fit a cell of 8 to 32 bits. In
/// cells of 64 bits sums wrap around, as they do in tables: 0 and `add -1` give 2^64-1 in a cell of
/// u64.
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
    /// File with the updates; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    /// Table, hash table or array to update. If it does not exist, an ordered table is created; it
    /// is dropped again if the very first line is refused
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
    /// Text, with \t, \n, \\ and \xHH for bytes that are not printable
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
    /// How to print values; by default, numbers as numbers and everything else as utf8
    #[arg(long = "as", value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<ValueFormat>,
    /// Print JSON, one object per line; keys and texts have the escapes of utf8
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the value of one key
///
/// The exit status is 1 if the key does not exist. The key of an array cell is its index; every
/// cell has a number.
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
    /// The key; \t, \n, \\ and \xHH stand for bytes that cannot be typed
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) key: Bytes,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) print: PrintArgs,
}

/// Print the records of a range of keys, in key order
///
/// A record is printed as KEY<TAB>VALUE. For an array, it is INDEX<TAB>NUMBER for each cell that is
/// not 0, and --from and --to are indexes. A hash table has no key order: all its records are
/// printed, in the order of the hashes of their keys, and ranges are not available.
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
    /// Only keys with this prefix
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    pub(crate) prefix: Option<Bytes>,
    /// At most this many records
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Print from the highest key down
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
/// Prints each damaged block with its space, device and offset. Of volumes it checks the tables and
/// all content, and prints each damaged range with everything in which it can be seen. The exit
/// status is 1 if there is damage. Nothing is written.
#[derive(Args)]
pub(crate) struct VerifyArgs {
    /// Folder of the store
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Restore store.json from the copy on the devices
///
/// store.json describes the store; the label at the start of every device has a copy of it with a
/// checksum. If the two differ, or store.json is missing or unreadable, no command opens the store.
/// This one writes the copy from the label, and keeps the old file as store.json.damaged. It does
/// not check any data.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep repair hits.upsweep
  upsweep repair hits.upsweep --device /dev/sdb")]
pub(crate) struct RepairArgs {
    /// Folder of the store
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// Device of the store to read the label from; by default, the first data device
    #[arg(long, value_name = "PATH")]
    pub(crate) device: Option<PathBuf>,
}

const STAT_NOTES: &str = "\
Examples:
  upsweep stat hits.upsweep
  upsweep stat hits.upsweep --json
  upsweep stat hits.upsweep --metrics

Only one process at a time can have a store open, and this command opens it, unless a server
(`upsweep serve`) has it open and shows its own state. With --metrics, gauges show the store as it
is now: sizes, fill, waiting updates. Counters and times begin at this open; those of the last
session are under upsweep_last_session_. An application that has the store open serves its own
metrics with Store::metrics_text.";

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
    /// \xHH for bytes that are not printable. The sweep decides whether an update is refused, so
    /// updates that still wait for a sweep are not listed; standard error says how many wait.
    List(ShowArgs),
    /// Declare refused updates again, once the cause is fixed
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
    /// The ID that `upsweep quarantine list` prints; several may be given
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// All updates that are in the quarantine now
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
