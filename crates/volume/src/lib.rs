//! Block volumes in an Upsweep store: thin, with snapshots and clones.
//!
//! A volume is an array of blocks. Any number of them share a store, its devices and its free
//! space. Payload is written once, in sequence, to extents that the store reserves; where a block
//! is, is an update of a table, so a random write costs one sequential write and its share of a
//! sweep, and reads nothing. A snapshot or a clone is one log record.
//!
//! ```
//! use upsweep::Store;
//! use upsweep_volume::{Acknowledge, Past, Volumes};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Store::in_memory()?;
//! let volumes = Volumes::open(&store)?;
//! let disk = volumes.create("disk", 1 << 40)?;
//! disk.write(4096, b"hello", Acknowledge::Durable)?;
//! volumes.snapshot(&["disk"], "before")?;
//! disk.zero(0, 1 << 40, Acknowledge::Written)?;
//!
//! let was = volumes.view("disk", Past::Snapshot("before"), "was")?;
//! let mut found = [0; 5];
//! was.read(4096, &mut found)?;
//! assert_eq!(&found, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! Volumes do background work when they are told to: see [`Volumes::work`].
//!
//! | module | content |
//! |---|---|
//! | `address` | blocks, spans, branches, stamps |
//! | `entry` | the map: its keys and values |
//! | `versions` | which version of a block is seen, and which are needed |
//! | `zeros` | long spans of zeros |
//! | `stamps` | the order of changes |
//! | `history` | which moments of its past a volume keeps |
//! | `changes` | what has changed between two moments |
//! | `sight` | what somebody sees through several branches |
//! | `rows`, `looks`, `catalog`, `checks` | volumes, snapshots, histories, branches |
//! | `slots`, `homes`, `home_rows` | where payload is |
//! | `payload`, `buffer` | its writes, and what waits to be written |
//! | `cleaning` | moving what is needed out of segments in which little is |
//! | `room` | how much room there is for payload, and when it is made |
//! | `trim` | what the sweep shows can be deleted |
//! | `unsettled` | what the sweep has shown too early |
//! | `stream` | the format of a stream of what a volume was, or of what has changed |
//! | `send`, `receive` | volumes to streams, and streams to volumes |
//! | `size` | the size of a volume, and what is beyond its end |
//! | `settings` | what the store keeps for those who serve volumes |
//! | `recovery` | what an open drops after a crash |
//! | `scrub` | damage of payload |
//! | `verify` | the tables and all payload |
//! | `usage` | how much space volumes take |
//! | `volumes`, `volume` | the interface: all volumes, and one |
//!
//! The design and its reasons are in `docs/decisions/0054-volumes-are-one-versioned-map.md`.

mod address;
mod ahead;
mod buffer;
mod catalog;
mod changes;
mod checks;
mod cleaning;
mod entry;
mod error;
mod history;
mod home_rows;
mod homes;
mod looks;
mod payload;
mod quota;
mod receive;
mod recovery;
mod room;
mod rounds;
mod rows;
mod scrub;
mod send;
mod settings;
mod sight;
mod size;
mod slots;
mod stamps;
pub mod stream;
mod trim;
mod unsettled;
mod usage;
mod verify;
mod versions;
mod volume;
mod volumes;
mod walks;
mod zeros;

pub use address::BLOCK_BYTES;
pub use catalog::Past;
pub use changes::Changes;
pub use error::Error;
pub use payload::BUFFERED_BYTES_MAX;
pub use receive::{Received, Receiving};
pub use rows::{BlockSize, History, MomentKind, VolumeSettings};
pub use scrub::{DamagedRange, Fault, ScrubPass, ScrubPosition, Scrubbed, SeenIn};
pub use send::Sending;
pub use usage::{Traffic, Usage, VolumeUsage};
pub use verify::VolumesReport;
pub use volume::{Acknowledge, Extent, ExtentKind, Volume};
pub use volumes::{MomentInfo, TABLES, VolumeInfo, Volumes};
