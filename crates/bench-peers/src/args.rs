//! The command line.

use std::path::PathBuf;

use bytesize::ByteSize;
use clap::{Args, Parser, Subcommand};

use crate::workload::{Class, Workload};

/// Measure Upsweep and its peers: the same workloads, in the same memory, on the same file system
///
/// Every measurement runs in a process of its own whose memory, page cache included, is limited by
/// a cgroup; so this program has to run as root. Stores are made in a new folder inside DIR, which
/// is removed at the end; after a kill, remove DIR/bench-peers-* yourself. Results are kept as they
/// come: results.json, report.md and plots in the folder of results.
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
    /// Engines, by name [default: all that are built in]
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub(crate) engines: Vec<String>,
    /// Workloads [default: all; with --quick: a choice]
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', value_enum)]
    pub(crate) workloads: Vec<Workload>,
    /// Classes of durability [default: all for increments, and one that suits for others]
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', value_enum)]
    pub(crate) classes: Vec<Class>,
    /// Run other workloads than increments at every ratio, not only at the one nearest to 8
    #[arg(long)]
    pub(crate) every_ratio: bool,
    /// Length of a run in seconds [default: 5; with --quick: 2]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Runs of each cell, of which the median is shown [default: 3 of increments, 1 of others; with
    /// --quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeats: Option<u32>,
    /// Seed of keys and operations
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Text whose sequences of words are counted [default: the licences of installed packages]
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Option<PathBuf>,
    /// Small and short: under ten minutes
    #[arg(long)]
    pub(crate) quick: bool,
    /// Do not limit memory; the results say so, and compare nothing
    #[arg(long)]
    pub(crate) no_limit: bool,
    /// New folder for results
    #[arg(long, value_name = "FOLDER", default_value = "bench-peers-results")]
    pub(crate) out: PathBuf,
}

fn seconds(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    found.ok_or_else(|| "give a number of seconds from 0.1 to 86400".to_owned())
}
