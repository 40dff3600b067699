//! The command line.

use std::path::PathBuf;

use bytesize::ByteSize;
use clap::{Args, Parser, Subcommand};

use crate::engine::{KEY_BYTES_MAX, KEY_BYTES_MIN};
use crate::workload::{Class, Workload};

/// Measure Upsweep and its peers: the same workloads, in the same memory, on the same file system
///
/// Every measurement runs in a process of its own whose memory, page cache included, is limited by
/// a cgroup; so this program has to run as root. Stores are made in a new folder inside DIR, which
/// is removed at the end; after a kill, remove DIR/bench-peers-* yourself. Results are kept as they
/// come: results.json, report.md and plots in the folder of results. With all defaults a run takes
/// about six hours by estimate; --add lets it be done in parts.
#[derive(Parser)]
#[command(
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  bench-peers /mnt/disk --out results
  bench-peers /mnt/disk --quick
  bench-peers /mnt/disk --ratios 8 --engines upsweep,lmdb --workloads increments,reads
  bench-peers /mnt/disk --ratios 2 --workloads increments --out results --add
  bench-peers /mnt/disk --ratios 32 --workloads increments --out results --add
  bench-peers report results"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) run: Option<RunArgs>,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What else there is to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make report and plots again from results.json
    Report {
        /// Folder of results
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Do one step of a run, as a child of this program
    #[command(hide = true)]
    Child {
        /// File with the orders
        orders: PathBuf,
    },
}

/// What is measured.
#[derive(Args)]
pub(crate) struct RunArgs {
    /// Folder on the device to measure
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Memory of each process, page cache included [default: 128MiB; with --quick: 64MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<ByteSize>,
    /// Bytes of loaded records, as multiples of the memory [default: 2,8,32; with --quick: 8]
    #[arg(long, value_name = "N,N", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ratios: Vec<u64>,
    /// Bytes of keys; beyond 8 they do not compress [default: 8]
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = key_bytes)]
    pub(crate) key_bytes: Vec<u8>,
    /// Engines, by name [default: all that are built in]
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub(crate) engines: Vec<String>,
    /// Workloads [default: all; with --quick: a choice]
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', value_enum)]
    pub(crate) workloads: Vec<Workload>,
    /// Classes of durability [default: all for increments, and one that suits for others]
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', value_enum)]
    pub(crate) classes: Vec<Class>,
    /// Run other workloads than increments on every data set, not only at the ratio nearest to 8
    /// with the shortest keys
    #[arg(long)]
    pub(crate) every_set: bool,
    /// Length of a run in seconds; of increments, at least [default: 60 of increments, 5 of others;
    /// with --quick: 2]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Length at most of a run of increments, which goes on until the engine's state is steady
    /// [default: 300; with --quick: as --seconds]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds_max: Option<f64>,
    /// Runs of each cell, of which the median is shown
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeats: u32,
    /// Seed of keys and operations
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Text whose sequences of words are counted [default: the licences of installed packages]
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Option<PathBuf>,
    /// Small and short, under ten minutes, to see that everything works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Do not limit memory; the results say so, and compare nothing
    #[arg(long)]
    pub(crate) no_limit: bool,
    /// New folder for results
    #[arg(long, value_name = "FOLDER", default_value = "bench-peers-results")]
    pub(crate) out: PathBuf,
    /// Add to the results that are in the folder; what was run before is run again as further
    /// repeats
    #[arg(long)]
    pub(crate) add: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    found.ok_or_else(|| "give a number of seconds from 0.1 to 86400".to_owned())
}

fn key_bytes(text: &str) -> Result<u8, String> {
    let found = text.parse().ok().filter(|bytes| (KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(bytes));
    found.ok_or_else(|| format!("give a number of bytes from {KEY_BYTES_MIN} to {KEY_BYTES_MAX}"))
}
