//! The command line of making, cloning and dropping tables, and of removing ranges of them.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use clap::{ArgGroup, Args};
use upsweep::CellKind;

use super::OpenArgs;
use crate::structure::KnownKind;
use crate::text::Bytes;

/// A kind of structure, as it is written on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KindChoice(pub(crate) KnownKind);

impl FromStr for KindChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, cells) = text.split_once(':').map_or((text, None), |(a, b)| (a, Some(b)));
        Ok(Self(match (name, cells) {
            ("ordered", None) => KnownKind::Table,
            ("expiring", None) => KnownKind::ExpiringTable,
            ("hash", None) => KnownKind::HashTable,
            ("array", cells) => {
                let cells = cells.unwrap_or("u64");
                let found = cells.parse().ok().filter(|found| !matches!(found, CellKind::Bytes(_)));
                KnownKind::Array(found.ok_or_else(|| {
                    format!("{cells:?} is not a cell type: give u8, u16, u32, u64, i64 or f64")
                })?)
            }
            _ => return Err("give ordered, expiring, hash, array, or array:TYPE".to_owned()),
        }))
    }
}

/// As it is given to `--kind`.
impl Display for KindChoice {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            KnownKind::Table => formatter.write_str("ordered"),
            KnownKind::ExpiringTable => formatter.write_str("expiring"),
            KnownKind::HashTable => formatter.write_str("hash"),
            KnownKind::Array(cells) => write!(formatter, "array:{cells}"),
        }
    }
}

/// Create an empty table, hash table or array
///
/// An ordered table keeps its records in key order, so ranges of keys can be printed and removed. A
/// table of expiring records does so too, and each record is gone after a time of its own, which
/// only applications set. A hash table spreads records evenly whatever the keys are, for queries
/// and updates of single keys. An array has a number at every index from 0 to 2^48-1, which is 0
/// until it is changed; only numbers that are not 0 take space. In cells of 8 to 32 bits, an
/// addition whose sum does not fit goes to the quarantine and the cell keeps its value; in cells of
/// 64 bits, sums wrap around.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep create-table hits.upsweep archive
  upsweep create-table hits.upsweep sessions --kind hash
  upsweep create-table hits.upsweep counts --kind array:u32")]
pub(crate) struct CreateTableArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Its name, unique in the store: 1 to 255 bytes without control characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// What to create: ordered, hash, array:TYPE with cells of type u8, u16, u32, u64, i64 or f64,
    /// or array, which is array:u64
    #[arg(long, value_name = "KIND", default_value = "ordered")]
    pub(crate) kind: KindChoice,
}

/// Drop a table, hash table or array with all its records
///
/// Snapshots and clones of it stay as they are. When the command ends, its space is free, except
/// for what a snapshot or clone still refers to.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep drop-table hits.upsweep archive")]
pub(crate) struct DropTableArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the table, hash table or array
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Make an independent copy of a table, hash table or array
///
/// A clone takes one log record, whatever the size: blocks are shared until an update of either
/// changes them.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep clone hits.upsweep main experiment
  upsweep clone hits.upsweep main restored --at monday")]
pub(crate) struct CloneArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Name of the table, hash table or array to clone
    #[arg(value_name = "SOURCE")]
    pub(crate) source: String,
    /// Name of the clone, unique in the store: 1 to 255 bytes without control characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Clone it as of this snapshot; by default, as it is now
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) at: Option<String>,
}

/// Remove all records of a range of keys from a table
///
/// A removal takes one log record and reads nothing, however many records there are. When the
/// command ends, it is durable and the space is free, except for what a snapshot or clone still
/// refers to. Hash tables and arrays have no ranges of keys.
#[derive(Args)]
#[command(
    group = ArgGroup::new("range").args(["from", "to", "all"]).required(true).multiple(true),
    after_help = "\
Examples:
  upsweep remove-range hits.upsweep --from 2024- --to 2025-
  upsweep remove-range hits.upsweep --table archive --to 2020-
  upsweep remove-range hits.upsweep --table archive --all"
)]
pub(crate) struct RemoveRangeArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Table to remove from
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub(crate) table: String,
    /// First key of the range; by default, the first of the table
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) from: Option<Bytes>,
    /// End of the range; this key itself stays. By default, the end of the table
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) to: Option<Bytes>,
    /// Remove all records
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub(crate) all: bool,
}

/// Put the blocks of a table back into key order on the devices
///
/// For a hash table, that is the order of the hashes of keys; for an array, the order of indexes.
/// Updates scatter neighbouring blocks over the devices, so that a scan of a rotating device has to
/// seek. Blocks that are in order stay where they are, as do those shared with a clone or snapshot.
/// Sweeps have priority, so this can take long; an interrupted compaction keeps what it has done.
#[derive(Args)]
#[command(after_help = "\
Examples:
  upsweep compact hits.upsweep
  upsweep compact hits.upsweep --table archive --json")]
pub(crate) struct CompactArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Table, hash table or array to compact
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub(crate) table: String,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
