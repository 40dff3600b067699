//! The command line of `upsweep bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::text::Size;

/// Measure the engine in a temporary store
///
/// Loads a table and increments random counters in it until the sweep has gone over all data three
/// times: the rate settles only then, because memory and log are empty at first. Prints what each
/// second was like, how near the rate came to the bound that `upsweep stat` computes, and what the
/// machine itself did meanwhile. Then reads records at random for 5 seconds.
///
/// The store is made in a new folder inside DIR and removed at the end; if the command is killed,
/// remove DIR/upsweep-bench-* yourself.
#[derive(Args)]
#[command(
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_value_name = "WORKLOADS",
    subcommand_help_heading = "Workloads, in place of the above",
    after_help = "\
Examples:
  upsweep bench /var/tmp
  upsweep bench /mnt/disk --records 100000000 --memory 512MiB --series seconds.csv
  upsweep bench /mnt/disk --callers 1 --batch 1         one update at a time
  upsweep bench /mnt/disk --callers 64 --batch 1 --rate 50000
  upsweep bench /mnt/disk --log-only
  upsweep bench rodeh /mnt/disk
  upsweep bench structures /mnt/disk
  upsweep bench scan /mnt/disk
  upsweep bench grid /mnt/disk"
)]
pub(crate) struct BenchCommand {
    #[command(flatten)]
    pub(crate) own: Option<BenchArgs>,
    #[command(subcommand)]
    pub(crate) workload: Option<Workload>,
}

/// Other workloads.
#[derive(Subcommand)]
pub(crate) enum Workload {
    Rodeh(RodehArgs),
    Structures(StructuresArgs),
    Scan(ScanBenchArgs),
    Grid(GridArgs),
}

/// The workloads of Rodeh's shadowed B-trees, beside what the paper reports
///
/// On two trees, with a cache and queues of 5 % of their bytes together, or the least that a store
/// takes: throughput of the workloads Search-100, Search-80, Modify and Insert with one caller and
/// with ten, and latency of single operations. Updates are durable before they return. Extra lines
/// show relaxed updates, where the run ends when all are durable, and the time until a sweep has
/// written them into the tree. The tree is restored after every run.
///
/// (O. Rodeh, "B-trees, Shadowing, and Range-operations", section 7.)
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep bench rodeh /mnt/disk
  upsweep bench rodeh /var/tmp --scale 0.01 --operations 1000 --runs 3")]
pub(crate) struct RodehArgs {
    /// Folder on the device to measure
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Size of the trees, as a fraction of those in the paper
    #[arg(long, value_name = "FRACTION", default_value_t = 1.0, value_parser = fraction)]
    pub(crate) scale: f64,
    /// Operations of a run
    #[arg(long, value_name = "N", default_value_t = 12_000,
          value_parser = clap::value_parser!(u64).range(10..))]
    pub(crate) operations: u64,
    /// Runs of each measurement, of which the median is shown
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
    /// Size of the log; much more than a run writes, so that no run waits for its release
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    pub(crate) log_size: Size,
    /// Seed of the random keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Clones, snapshots, removed ranges, drops, bulk loads, and structures beside each other
///
/// Makes stores in a new folder inside DIR, which is removed at the end. Measures, in one run: how
/// long clones, snapshots and the first update after a clone take by the size of the table; how
/// long the removal of a part of a table takes and how many nodes of the directory it changes; how
/// fast the space of dropped tables becomes free, and how long an update waits meanwhile; bulk
/// loads beside dd on the same file system; additions to an ordered table, a hash table and an
/// array.
///
/// Records have keys of 8 bytes and counters of 8 bytes. Every number is a median with the lowest
/// and the highest.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep bench structures /mnt/disk
  upsweep bench structures /var/tmp --records 100000 --updates 100000")]
pub(crate) struct StructuresArgs {
    /// Folder on the device to measure
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Sizes of the tables that are cloned, in records; the largest is also loaded and dropped
    #[arg(long, value_name = "N,N", value_delimiter = ',',
          default_values_t = [10_000, 1_000_000, 64_000_000],
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) sizes: Vec<u64>,
    /// Most records of any table, whatever the sizes
    #[arg(long, value_name = "N", default_value_t = 64_000_000,
          value_parser = clap::value_parser!(u64).range(100..))]
    pub(crate) records: u64,
    /// Clones of each table, snapshots, and removals of each part
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clones: u32,
    /// Loads, drops, and runs of additions
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
    /// Random additions to each structure in a run
    #[arg(long, value_name = "N", default_value_t = 4_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) updates: u64,
    /// Memory of the store
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) memory: Size,
    /// Size of the log
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    pub(crate) log_size: Size,
    /// Size of a block, in place of the one that suits the device
    #[arg(long, value_name = "SIZE")]
    pub(crate) block_size: Option<Size>,
    /// Seed of the random keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Scans of a whole table, alone and beside queries and updates
///
/// Loads a table larger than the memory, reads the device in sequence, and then measures one phase
/// after another: a scan, queries, a scan beside queries, updates, a scan beside updates. Nine of
/// ten queries are of a part of the table as large as a 16th of the memory; updates replace random
/// values, 64 in an atomic batch, and need not be durable when they return.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep bench scan /mnt/disk
  upsweep bench scan /var/tmp --records 40000000 --seconds 30 --json")]
pub(crate) struct ScanBenchArgs {
    /// Folder on the device to measure
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) table: TableArgs,
    /// Longest request that reads ahead for a scan [default: that of a store]
    #[arg(long, value_name = "SIZE")]
    pub(crate) request_size: Option<Size>,
    /// Requests in flight that read ahead for a scan; 0: block by block [default: that of a store]
    #[arg(long, value_name = "N")]
    pub(crate) requests: Option<usize>,
    /// Length of each phase, in seconds
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=7200))]
    pub(crate) seconds: u64,
    /// Threads with queries
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) queries: u64,
    /// Threads with updates
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) updates: u64,
    /// Seed of the random keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a store chose for its devices, beside a grid of settings by hand
///
/// Loads a table larger than the memory, and opens the store with each point of the grid, and with
/// what it chooses itself. Measures, in phases: updates, a scan beside updates, and the 99th
/// percentile of queries beside a scan. Queries and updates are those of `upsweep bench scan`. The
/// best point of each is then measured again, in turns with the choice, and the ratio printed.
///
/// The grid has two planes: lengths of runs and of batches of the log, and lengths and numbers of
/// the requests of scans. With the defaults this takes about half an hour.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep bench grid /mnt/disk
  upsweep bench grid /var/tmp --records 1000000 --runs 16,32 --batches 128KiB --seconds 2")]
pub(crate) struct GridArgs {
    /// Folder on the device to measure
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) table: TableArgs,
    /// Lengths of runs, in blocks (1 to 1024)
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [16, 32, 64, 128])]
    pub(crate) runs: Vec<usize>,
    /// Longest batches of the log
    #[arg(long, value_name = "SIZE,SIZE", value_delimiter = ',',
          default_values = ["128KiB", "512KiB"])]
    pub(crate) batches: Vec<Size>,
    /// Longest requests that read ahead for a scan
    #[arg(long, value_name = "SIZE,SIZE", value_delimiter = ',',
          default_values = ["128KiB", "256KiB", "512KiB", "1MiB"])]
    pub(crate) request_sizes: Vec<Size>,
    /// Numbers of these requests in flight
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [1, 2, 4])]
    pub(crate) requests: Vec<usize>,
    /// Length of each phase, in seconds
    #[arg(long, value_name = "N", default_value_t = 12,
          value_parser = clap::value_parser!(u64).range(1..=7200))]
    pub(crate) seconds: u64,
    /// Measurements of each point
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Measurements of the choice and of each best point, in turns
    #[arg(long, value_name = "N", default_value_t = 7,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pairs: u32,
    /// Threads with queries
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) queries: u64,
    /// Threads with updates
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) updates: u64,
    /// Seed of the random keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

// A doc comment would be the help of the commands that have these options.
#[derive(Args)]
pub(crate) struct TableArgs {
    /// Records of the table
    #[arg(long, value_name = "N", default_value_t = 10_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) records: u64,
    /// Bytes of a value (8 to 4096); its key has 8
    #[arg(long, value_name = "N", default_value_t = 92,
          value_parser = clap::value_parser!(u32).range(8..=4096))]
    pub(crate) value_bytes: u32,
    /// Memory of the store
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) memory: Size,
    /// Size of the log
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    pub(crate) log_size: Size,
}

fn fraction(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|fraction| *fraction > 0.0 && *fraction <= 1.0);
    found.ok_or_else(|| "give a number above 0 and up to 1".to_owned())
}

/// Options of the default workload.
#[derive(Args)]
pub(crate) struct BenchArgs {
    /// Folder on the device to measure
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Records of the table
    #[arg(long, value_name = "N", default_value_t = 10_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) records: u64,
    /// Bytes of a key (8 to 1024): a number of 8 bytes and padding
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(8..=1024))]
    pub(crate) key_bytes: u32,
    /// Bytes of a value (8 to 4096): a counter of 8 bytes, which updates increment, and padding
    #[arg(long, value_name = "N", default_value_t = 56,
          value_parser = clap::value_parser!(u32).range(8..=4096))]
    pub(crate) value_bytes: u32,
    /// Do not load the records first: updates make them, in a new table
    #[arg(long)]
    pub(crate) empty: bool,
    /// Memory of the store
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) memory: Size,
    /// Size of the log [default: that of a new store, 512MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) log_size: Option<Size>,
    /// Threads that hand over updates (1 to 1024)
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) callers: u64,
    /// Updates of a call (1 to 4096), one atomic batch
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) batch: u32,
    /// When a call returns
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = CallReturns::Durable)]
    pub(crate) durability: CallReturns,
    /// Updates per second of all callers together, due at random times; a call counts from when it
    /// was due [default: the next call begins when the last returns]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rate: Option<u64>,
    /// Length of the run in seconds (1 to 7200) [default: until 3 cycles of the sweep are over, but
    /// 60 to 600; with --log-only 10 for each measurement]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=7200))]
    pub(crate) seconds: Option<u64>,
    /// Seed of the random keys and times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write one line of CSV for each second of the run to this file
    #[arg(long, value_name = "FILE", conflicts_with = "log_only")]
    pub(crate) series: Option<PathBuf>,
    /// Measure the log by itself: records of 64 bytes at saturation, then one at a time
    #[arg(long)]
    pub(crate) log_only: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// When a call that hands over updates returns.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CallReturns {
    /// When its updates are on stable media
    Durable,
    /// At once; its updates are on their way to the log
    Ticket,
    /// At once; its updates may wait 5 ms for others to share their write of the log
    Relaxed,
}
