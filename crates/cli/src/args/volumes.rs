//! The command line of `volume`.

use std::str::FromStr;

use clap::{ArgGroup, Args, Subcommand};
use upsweep_volume::BlockSize;
use upsweep_volume::stream::ResumeToken;

use super::{OpenArgs, ShowArgs};
use crate::serve::{Clients, Rate};
use crate::text::Size;
use crate::when::{Keep, When};

pub(super) const EXAMPLES: &str = "\
Examples:
  upsweep volume create disks.upsweep disk 10GiB
  upsweep volume snapshot disks.upsweep disk monday
  upsweep volume clone disks.upsweep disk@monday trial
  upsweep volume list disks.upsweep
  upsweep volume history disks.upsweep disk --keep 24h
  upsweep volume mark disks.upsweep disk before-upgrade
  upsweep volume at disks.upsweep disk '10 minutes ago' was
  upsweep volume rollback disks.upsweep disk mark:before-upgrade
  upsweep volume df disks.upsweep
  upsweep volume send disks.upsweep disk@monday | upsweep volume receive copy.upsweep disk
  upsweep volume set disks.upsweep disk --iops 500 --allow 10.0.0.0/8
  upsweep volume scrub disks.upsweep
  upsweep volume delete disks.upsweep trial
  upsweep volume delete disks.upsweep disk@monday

Wherever a moment is to be given, it is one of these:
  @monday                       that of a snapshot
  mark:before-upgrade           that of a mark in the history of the volume
  2026-11-27T18:03:00.5Z        a time as in RFC 3339; without an offset it is UTC
  -10s, '10 minutes ago'        a time before now; a day has 24 hours
  1795802580500000              microseconds since the beginning of 1970, UTC";

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

/// The logical block size of a volume, as it is written on the command line.
#[derive(Clone, Copy)]
pub(crate) struct BlockBytes(pub(crate) BlockSize);

impl FromStr for BlockBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = text.parse::<Size>().map_or(0, |Size(bytes)| bytes);
        let known = [BlockSize::Bytes512, BlockSize::Bytes4096];
        let found = known.into_iter().find(|known| u64::from(known.bytes()) == bytes);
        found.map(Self).ok_or_else(|| "give 512 or 4096".to_owned())
    }
}

#[derive(Subcommand)]
pub(crate) enum VolumeCommand {
    Create(VolumeCreateArgs),
    /// Print every volume: its name, its size, its block size, whether it can be written, what it
    /// keeps of its past, its settings, and its snapshots
    #[command(after_help = "\
Examples:
  upsweep volume list disks.upsweep
  upsweep volume list disks.upsweep --json")]
    List(ShowArgs),
    Snapshot(VolumeSnapshotArgs),
    Clone(VolumeCloneArgs),
    At(VolumeAtArgs),
    Rollback(VolumeRollbackArgs),
    Resize(VolumeResizeArgs),
    Rename(VolumeRenameArgs),
    Set(VolumeSetArgs),
    Mark(VolumeMarkArgs),
    History(VolumeHistoryArgs),
    Diff(VolumeDiffArgs),
    /// Show how much space volumes take, and how much would be free without them
    ///
    /// OWN is what is free once a volume is deleted with its snapshots and its history, HISTORY
    /// what of that is free if only these are deleted, and SHARED what the volume shows now and
    /// others need, too. USED is what was written to it and is kept, for whomever, which its QUOTA
    /// limits; it has what was overwritten since the last sweep, too. All are payload, without the
    /// map of a volume, which takes about 1 % of it.
    /// RECLAIMABLE is what the devices hold beyond what anybody needs: most of it becomes free in
    /// the background. The command reads the maps of all volumes.
    #[command(after_help = "\
Examples:
  upsweep volume df disks.upsweep
  upsweep volume df disks.upsweep --json")]
    Df(ShowArgs),
    Send(VolumeSendArgs),
    Receive(VolumeReceiveArgs),
    Scrub(VolumeScrubArgs),
    Delete(VolumeDeleteArgs),
}

impl VolumeCommand {
    pub(super) fn open(&self) -> &OpenArgs {
        match self {
            Self::Create(args) => &args.open,
            Self::List(args) | Self::Df(args) => &args.open,
            Self::Snapshot(args) => &args.open,
            Self::Clone(args) => &args.open,
            Self::At(args) => &args.open,
            Self::Rollback(args) => &args.open,
            Self::Resize(args) => &args.open,
            Self::Rename(args) => &args.open,
            Self::Set(args) => &args.open,
            Self::Mark(args) => &args.open,
            Self::History(args) => &args.show.open,
            Self::Diff(args) => &args.open,
            Self::Send(args) => &args.open,
            Self::Receive(args) => &args.open,
            Self::Scrub(args) => &args.show.open,
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
Examples:
  upsweep volume create disks.upsweep disk 10GiB
  upsweep volume create disks.upsweep disk 10GiB --history 24h,100GiB
  upsweep volume create disks.upsweep disk 10GiB --block-size 4096")]
pub(crate) struct VolumeCreateArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the volume: 1 to 128 bytes without control characters, / and @
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Size of the volume, a multiple of its block size up to 16PiB
    #[arg(value_name = "SIZE")]
    pub(crate) size: Size,
    /// Keep its past, for a time, up to a number of bytes, or both: 24h, 100GiB, or 24h,100GiB. By
    /// default it keeps its snapshots only; `upsweep volume history` changes that later
    #[arg(long, value_name = "HISTORY")]
    pub(crate) history: Option<Keep>,
    /// Logical block size, 512 or 4096: what clients keep their requests to. Writes of less than 4
    /// KiB read a block first. 512 suits every client; with 4096 those who look at it write whole
    /// blocks. Clones and views have the same, and nothing changes it
    #[arg(long, value_name = "BYTES", default_value = "512")]
    pub(crate) block_size: BlockBytes,
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

/// Make a volume that begins as another one is, or as it was
///
/// Both have the same content and change independently from then on. A clone takes one log record,
/// whatever the size, and space only for what is written to it later.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep volume clone disks.upsweep disk copy
  upsweep volume clone disks.upsweep disk@monday trial
  upsweep volume clone disks.upsweep disk trial --at '10 minutes ago'")]
pub(crate) struct VolumeCloneArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Volume to clone, or a snapshot of it
    #[arg(value_name = "VOLUME[@SNAPSHOT]")]
    pub(crate) source: VolumeName,
    /// Name of the new volume
    #[arg(value_name = "NEW")]
    pub(crate) name: String,
    /// Moment that it begins with, in place of the present: see `upsweep volume --help`
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub(crate) at: Option<When>,
}

/// Make a volume that shows what another one was at a moment
///
/// It can only be read, and keeps what it shows as long as it exists; with --writable it is a
/// clone. Both take one log record, whatever the size. The moment is that of a snapshot, or any one
/// in the history of the volume.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep volume at disks.upsweep disk -10s was
  upsweep volume at disks.upsweep disk '10 minutes ago' was
  upsweep volume at disks.upsweep disk 2026-11-27T18:03:00Z was
  upsweep volume at disks.upsweep disk mark:before-upgrade trial --writable")]
pub(crate) struct VolumeAtArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the volume
    #[arg(value_name = "VOLUME")]
    pub(crate) volume: String,
    /// Moment to show: see `upsweep volume --help`
    #[arg(value_name = "MOMENT", allow_hyphen_values = true)]
    pub(crate) moment: When,
    /// Name of the new volume
    #[arg(value_name = "NEW")]
    pub(crate) name: String,
    /// Make a clone, which can be written
    #[arg(long)]
    pub(crate) writable: bool,
}

/// Make a volume again what it was at a moment
///
/// It has the content and the size that it had then; its snapshots stay. What it is now is gone,
/// unless a snapshot has it, or its history, to which the rollback itself belongs: it can be undone
/// by another one to a moment before. Clients of a server that use the volume meanwhile see the
/// change at once, so let them go first, such as by an unmount.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep volume rollback disks.upsweep disk @monday
  upsweep volume rollback disks.upsweep disk mark:before-upgrade
  upsweep volume rollback disks.upsweep disk '1 hour ago'")]
pub(crate) struct VolumeRollbackArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the volume
    #[arg(value_name = "VOLUME")]
    pub(crate) volume: String,
    /// Moment to return to: see `upsweep volume --help`
    #[arg(value_name = "MOMENT", allow_hyphen_values = true)]
    pub(crate) moment: When,
}

/// Give a volume another size
///
/// What a larger one gains reads as zeros. What is beyond the end of a smaller one is gone, unless
/// a snapshot or the history has it. Clients of a server see the new size when they connect again.
#[derive(Args)]
#[command(after_help = "\
Example:
  upsweep volume resize disks.upsweep disk 20GiB")]
pub(crate) struct VolumeResizeArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the volume
    #[arg(value_name = "VOLUME")]
    pub(crate) volume: String,
    /// Its new size, a multiple of its block size up to 16PiB
    #[arg(value_name = "SIZE")]
    pub(crate) size: Size,
}

/// A limit, or that there is none.
#[derive(Clone, Copy)]
pub(crate) struct Limited(pub(crate) Option<Rate>);

impl FromStr for Limited {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            rate => {
                rate.parse().map(|rate| Self(Some(rate))).map_err(|why| format!("{why}, or none"))
            }
        }
    }
}

/// Clients as they are written on the command line, one by one; none if all may.
#[derive(Clone)]
pub(crate) struct Allowed(pub(crate) Vec<String>);

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self(Vec::new()));
        }
        text.parse::<Clients>()?;
        Ok(Self(text.split(',').map(str::to_owned).collect()))
    }
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("give yes or no".to_owned()),
    }
}

/// Set who may use a volume through a server, and how much; and its quota
///
/// The settings are kept in the store. A server that runs heeds them at once: limits, --quota and
/// --read-only also for clients that are connected, --allow for those that connect from now on.
/// Requests that wait because of a limit keep their time. What `upsweep serve` is given for this
/// volume, as in --iops VOLUME=N, comes before its settings, and what it is given for all volumes
/// after them. Snapshots have those of their volume. Clones and views are for the same clients at
/// first, without limits and quotas. `upsweep volume list` shows all settings.
#[derive(Args)]
#[group(skip)]
#[command(
    group = ArgGroup::new("settings").required(true).multiple(true).args(
        ["iops", "bytes_per_second", "quota", "allow", "read_only"]
    ),
    after_help = "\
Examples:
  upsweep volume set disks.upsweep disk --iops 500 --bytes-per-second 100MiB
  upsweep volume set disks.upsweep disk --iops none --quota 200GiB
  upsweep volume set disks.upsweep disk --allow 10.0.0.0/8,uid:33
  upsweep volume set disks.upsweep disk --allow all --read-only yes"
)]
pub(crate) struct VolumeSetArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the volume
    #[arg(value_name = "VOLUME")]
    pub(crate) volume: String,
    /// Most requests of all its clients that are performed in a second; further ones wait
    #[arg(long, value_name = "N|none")]
    pub(crate) iops: Option<Limited>,
    /// Most bytes that all its clients read and write in a second, such as 100MiB
    #[arg(long, value_name = "SIZE|none")]
    pub(crate) bytes_per_second: Option<Limited>,
    /// Most bytes of what was written to it that are kept, such as 100GiB: for what it shows, its
    /// snapshots and its history, and for clones of it. Then writes fail for lack of space, until
    /// something is discarded or deleted. `upsweep volume df` shows what is USED of it
    #[arg(long, value_name = "SIZE|none")]
    pub(crate) quota: Option<Limited>,
    /// The only clients that may use it: addresses, networks such as 10.0.0.0/8, uid:NUMBER for a
    /// user on a Unix socket, name:DNS-NAME for a name in the certificate of a client, with commas
    /// between them; several may be given. They take the place of those before
    #[arg(long, value_name = "CLIENTS|all")]
    pub(crate) allow: Vec<Allowed>,
    /// Whether it refuses writes. It can be rolled back and resized all the same
    #[arg(long, value_name = "yes|no", value_parser = yes_or_no)]
    pub(crate) read_only: Option<bool>,
}

/// Name the present of a volume, to return to it
///
/// A mark is a moment in the history of the volume and leaves with it; a snapshot stays.
#[derive(Args)]
#[command(after_help = "\
Example:
  upsweep volume mark disks.upsweep disk before-upgrade")]
pub(crate) struct VolumeMarkArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the volume
    #[arg(value_name = "VOLUME")]
    pub(crate) volume: String,
    /// Name of the mark, unique for each volume: 1 to 128 bytes without control characters, / and @
    #[arg(value_name = "MARK")]
    pub(crate) mark: String,
}

/// Show what a volume keeps of its past, or change that
///
/// With a history, every moment of its time can be returned to. The command lists those that are
/// worth it: snapshots, marks, quiet moments, after which nothing was written for a while, and
/// flushes. Times are in UTC. `written` is how much had been written to the volume until then,
/// since its history began.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep volume history disks.upsweep disk
  upsweep volume history disks.upsweep disk --keep 24h
  upsweep volume history disks.upsweep disk --keep 7d,100GiB
  upsweep volume history disks.upsweep disk --keep off")]
pub(crate) struct VolumeHistoryArgs {
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    /// Name of the volume
    #[arg(value_name = "VOLUME")]
    pub(crate) volume: String,
    /// Keep its past from now on, for a time, up to a number of bytes that are written, or both,
    /// and then the nearer limit counts. `off` forgets all but snapshots
    #[arg(long, value_name = "HISTORY")]
    pub(crate) keep: Option<Keep>,
}

/// Print which ranges of a volume have changed between two moments
///
/// Ranges are in whole blocks of 4 KiB, and a block that was written again with the same content
/// has changed, too. If the size has changed, what only one of both has is compared with zeros.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep volume diff disks.upsweep disk @monday
  upsweep volume diff disks.upsweep disk @monday @tuesday
  upsweep volume diff disks.upsweep disk '1 hour ago' mark:before-upgrade --json")]
pub(crate) struct VolumeDiffArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the volume
    #[arg(value_name = "VOLUME")]
    pub(crate) volume: String,
    /// The first moment: see `upsweep volume --help`
    #[arg(value_name = "FROM", allow_hyphen_values = true)]
    pub(crate) from: When,
    /// The second moment; by default the present
    #[arg(value_name = "TO", allow_hyphen_values = true)]
    pub(crate) to: Option<When>,
    /// Print JSON, an object on each line: the ranges, and then their number and sum
    #[arg(long)]
    pub(crate) json: bool,
}

/// Write what a volume was at a moment, or what has changed until then, to standard output
///
/// The stream is for `upsweep volume receive`, in another store or on another machine. Zeros take
/// no part in a full one. With --from it has only what has changed since that moment, which the
/// receiver must have; the size of the volume may have changed, too. What is being sent stays until
/// the end, whatever happens to its snapshots meanwhile.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep volume send disks.upsweep disk@monday | upsweep volume receive copy.upsweep disk
  upsweep volume send disks.upsweep disk@tuesday --from @monday | zstd > tuesday.zst
  upsweep volume send disks.upsweep disk --at -10s | ssh host upsweep volume receive s.upsweep disk

When a stream was interrupted, it goes on where the receiver says:
  upsweep volume send disks.upsweep disk@tuesday --from @monday --resume TOKEN")]
pub(crate) struct VolumeSendArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Volume to send, or a snapshot of it
    #[arg(value_name = "VOLUME[@SNAPSHOT]")]
    pub(crate) source: VolumeName,
    /// Moment to send, in place of the present: see `upsweep volume --help`
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub(crate) at: Option<When>,
    /// Send only what has changed since this moment, which has been received before
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub(crate) from: Option<When>,
    /// Go on where an interrupted stream of the same moments has ended, as `upsweep volume receive
    /// --resume-token` prints it
    #[arg(long, value_name = "TOKEN")]
    pub(crate) resume: Option<ResumeToken>,
}

/// Make a volume from a stream of `upsweep volume send`, or bring one up to date
///
/// A full stream makes a new volume, and one of changes needs the volume as it was received before.
/// In the end the volume has a snapshot as at the sender, which the next stream of changes
/// continues. Until everything has arrived, the volume shows what it was and cannot be written; a
/// new one cannot be used at all. If the stream is interrupted, what has arrived stays, and a
/// stream of the same moments goes on: with `send --resume`, or from the beginning. A rollback to a
/// snapshot gives up, or the deletion of a volume that is new.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep volume send disks.upsweep disk@monday | upsweep volume receive copy.upsweep disk
  zstdcat tuesday.zst | upsweep volume receive copy.upsweep disk
  upsweep volume receive copy.upsweep disk --resume-token")]
pub(crate) struct VolumeReceiveArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the volume
    #[arg(value_name = "VOLUME")]
    pub(crate) volume: String,
    /// Receive nothing; print where `upsweep volume send --resume` has to go on after an
    /// interruption
    #[arg(long)]
    pub(crate) resume_token: bool,
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

/// Read the content of volumes and check every checksum
///
/// It checks all that can be seen of the volumes, of their snapshots and of their histories, and
/// what several of them share once. It prints each damaged range with everything in which it can be
/// seen, its device and its offset there. The exit status is 1 if there is damage. Nothing is
/// repaired. Without a server the volumes cannot be used meanwhile. A server checks all volumes by
/// itself, slowly: see `upsweep serve --scrub`. `upsweep verify` checks the tables of the volumes,
/// too, and all else in a store.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep volume scrub disks.upsweep
  upsweep volume scrub disks.upsweep disk")]
pub(crate) struct VolumeScrubArgs {
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    /// Check this volume only, with its snapshots and its history
    #[arg(value_name = "VOLUME")]
    pub(crate) volume: Option<String>,
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
