//! The command line of `upsweep bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::text::Size;

/// Measure the engine in a temporary store
///
/// Loads a table, applies random durable additions as fast as they are taken, then one at a time,
/// then reads records at random. Says how near the rate came to the bound that `upsweep stat`
/// computes. The store is made in a new folder inside DIR and removed at the end; after a kill,
/// remove DIR/upsweep-bench-* yourself.
#[derive(Args)]
#[command(
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_value_name = "WORKLOADS",
    subcommand_help_heading = "Workloads of papers, in place of the above",
    after_help = "\
Examples:
  upsweep bench /var/tmp
  upsweep bench /mnt/disk --records 100000000 --memory 512MiB --json
  upsweep bench /mnt/disk --log-only
  upsweep bench rodeh /mnt/disk"
)]
pub(crate) struct BenchCommand {
    #[command(flatten)]
    pub(crate) own: Option<BenchArgs>,
    #[command(subcommand)]
    pub(crate) of_paper: Option<PaperBench>,
}

/// Workloads of papers.
#[derive(Subcommand)]
pub(crate) enum PaperBench {
    Rodeh(RodehArgs),
}

/// The workloads of Rodeh's shadowed B-trees, beside what the paper reports
///
/// On two trees, with a cache of 5 % of their bytes: throughput of the workloads Search-100,
/// Search-80, Modify and Insert with one caller and with ten, and latency of single operations.
/// Updates are durable before they return; extra lines show them relaxed, where the end waits for
/// all, and with the time until a sweep has brought them into the tree. The tree is brought back to
/// what it was after every run.
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

fn fraction(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|fraction| *fraction > 0.0 && *fraction <= 1.0);
    found.ok_or_else(|| "give a number above 0 and up to 1".to_owned())
}

/// What is measured without a paper.
#[derive(Args)]
pub(crate) struct BenchArgs {
    /// Folder on the device to measure
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Records of the table
    #[arg(long, value_name = "N", default_value_t = 10_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) records: u64,
    /// Bytes of a record: its key, padded to this length, and its counter of 8 bytes
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(16..=4096))]
    pub(crate) record_bytes: u32,
    /// Random updates
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    pub(crate) updates: u64,
    /// Memory of the store
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) memory: Size,
    /// Size of the log
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    pub(crate) log_size: Size,
    /// Seconds for each of the measurements of latency, and for those of --log-only
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) seconds: u64,
    /// Seed of the random keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Measure the log by itself: records of 64 bytes at saturation, then one at a time
    #[arg(long)]
    pub(crate) log_only: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
