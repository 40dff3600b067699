//! The command line of `volume`.

use std::str::FromStr;

use clap::{Args, Subcommand};

use super::{OpenArgs, ShowArgs};
use crate::text::Size;

pub(super) const EXAMPLES: &str = "\
Examples:
  upsweep volume create disks.upsweep disk 10GiB
  upsweep volume snapshot disks.upsweep disk monday
  upsweep volume clone disks.upsweep disk@monday trial
  upsweep volume list disks.upsweep
  upsweep volume delete disks.upsweep trial
  upsweep volume delete disks.upsweep disk@monday";

/// A volume, or a snapshot of it, as it is written on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeName {
    pub(crate) volume: String,
    pub(crate) snapshot: Option<String>,
}

impl FromStr for VolumeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (volume, snapshot) = match text.split_once('@') {
            Some((volume, snapshot)) => (volume, Some(snapshot.to_owned())),
            None => (text, None),
        };
        if volume.is_empty() || snapshot.as_ref().is_some_and(String::is_empty) {
            return Err("give VOLUME or VOLUME@SNAPSHOT".to_owned());
        }
        Ok(Self { volume: volume.to_owned(), snapshot })
    }
}

#[derive(Subcommand)]
pub(crate) enum VolumeCommand {
    Create(VolumeCreateArgs),
    /// Print every volume: its name, its size, whether it can be written, and its snapshots
    #[command(after_help = "\
Examples:
  upsweep volume list disks.upsweep
  upsweep volume list disks.upsweep --json")]
    List(ShowArgs),
    Snapshot(VolumeSnapshotArgs),
    Clone(VolumeCloneArgs),
    Rename(VolumeRenameArgs),
    Delete(VolumeDeleteArgs),
}

impl VolumeCommand {
    pub(super) fn open(&self) -> &OpenArgs {
        match self {
            Self::Create(args) => &args.open,
            Self::List(args) => &args.open,
            Self::Snapshot(args) => &args.open,
            Self::Clone(args) => &args.open,
            Self::Rename(args) => &args.open,
            Self::Delete(args) => &args.open,
        }
    }
}

/// Create a volume that reads as zeros
///
/// It takes space only for what is written to it. All volumes of a store share its free space, so
/// their sizes together may exceed that of the devices.
#[derive(Args)]
#[command(after_help = "\
Example:
  upsweep volume create disks.upsweep disk 10GiB")]
pub(crate) struct VolumeCreateArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the volume: 1 to 128 bytes without control characters, / and @
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Size of the volume, a multiple of 4KiB up to 16PiB
    #[arg(value_name = "SIZE")]
    pub(crate) size: Size,
}

/// Take a snapshot of a volume, or of several at the same moment
///
/// It has what was written before, also what is not durable yet. A snapshot takes one log record,
/// whatever the size; it cannot be written, but a clone of it can.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep volume snapshot disks.upsweep disk monday
  upsweep volume snapshot disks.upsweep database monday --with journal --with config")]
pub(crate) struct VolumeSnapshotArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the volume
    #[arg(value_name = "VOLUME")]
    pub(crate) volume: String,
    /// Name of the snapshot, unique for each volume: 1 to 128 bytes without control characters, /
    /// and @
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: String,
    /// Take it of this volume, too, at the same moment; several may be given
    #[arg(long = "with", value_name = "VOLUME")]
    pub(crate) others: Vec<String>,
}

/// Make a volume that begins as another one is, or as one of its snapshots
///
/// Both have the same content and change independently from then on. A clone takes one log record,
/// whatever the size, and space only for what is written to it later.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep volume clone disks.upsweep disk copy
  upsweep volume clone disks.upsweep disk@monday trial")]
pub(crate) struct VolumeCloneArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Volume to clone, or a snapshot of it
    #[arg(value_name = "VOLUME[@SNAPSHOT]")]
    pub(crate) source: VolumeName,
    /// Name of the new volume
    #[arg(value_name = "NEW")]
    pub(crate) name: String,
}

/// Give a volume another name
///
/// Its snapshots stay with it.
#[derive(Args)]
#[command(after_help = "\
Example:
  upsweep volume rename disks.upsweep trial disk")]
pub(crate) struct VolumeRenameArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the volume
    #[arg(value_name = "VOLUME")]
    pub(crate) volume: String,
    /// Its new name
    #[arg(value_name = "NEW")]
    pub(crate) name: String,
}

/// Delete a volume with its snapshots, or one snapshot
///
/// Clones stay as they are. The space of what nothing else refers to is given back by the server in
/// the background; without a server the command waits for that, and if it is interrupted, the next
/// one that runs goes on with it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep volume delete disks.upsweep trial
  upsweep volume delete disks.upsweep disk@monday")]
pub(crate) struct VolumeDeleteArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Volume to delete, or a snapshot of it
    #[arg(value_name = "VOLUME[@SNAPSHOT]")]
    pub(crate) what: VolumeName,
}
