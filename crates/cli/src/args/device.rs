//! Flags of `upsweep device`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) const EXAMPLES: &str = "\
Examples:
  upsweep device profile hits.upsweep
  upsweep device profile /mnt/fast --output fast.toml --svg fast.svg
  upsweep device profile /dev/sdb --read-only
  upsweep device profile /dev/sdb --read-only --tracks --output sdb.toml
  upsweep create hits.upsweep --profile fast.toml
  upsweep device show hits.upsweep/profile.toml";

#[derive(Subcommand)]
pub(crate) enum DeviceCommand {
    Profile(ProfileArgs),
    Show(ShowProfileArgs),
}

/// Measure what a device does: how fast it is by the size of requests and by how many are in
/// flight, and what makes writes durable
///
/// Takes about a minute on a solid-state device and some ten on a rotating drive, on which nothing
/// else should happen meanwhile. Of a store, which must not be open, the devices are
/// measured, and the store uses the profile from then on. A folder, and the devices of a store that
/// are files, are measured in a file of 1GiB that has no name. Nothing with content is written
/// unless you agree.
#[derive(Args)]
pub(crate) struct ProfileArgs {
    /// A store, a folder, a file or a raw block device
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Measure what reads can tell, and write nothing
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Do not ask: overwrite the file or block device at PATH
    #[arg(long, conflicts_with = "read_only")]
    pub(crate) overwrite: bool,
    /// Measure in some seconds what settings follow from, as `create` does
    #[arg(long)]
    pub(crate) short: bool,
    /// Search raw devices, of a store those for data, for the tracks of a rotating drive, by reads
    /// only
    ///
    /// Takes half an hour for a drive of 36GB, longer for larger ones. The search is kept in a file
    /// beside the profile, such as `profile.tracks`: if it is interrupted, the same command goes on
    /// where it was. The file is replaced every 30 seconds or so, and removed once the profile is
    /// written.
    #[arg(long)]
    pub(crate) tracks: bool,
    /// File to write the profile to; by default that of the store, and for anything else
    /// `profile.toml` in the current folder, unless there is one
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) form: ProfileForm,
}

/// Show a profile that was measured before
#[derive(Args)]
pub(crate) struct ShowProfileArgs {
    /// File with the profile, such as `profile.toml` in a store
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) form: ProfileForm,
}

/// How a profile is shown.
#[derive(Args)]
pub(crate) struct ProfileForm {
    /// Print the profile as JSON, with all curves
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the curves into this file, as SVG; with several profiles, those of the first
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}
