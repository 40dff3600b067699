//! The engine: directory, queues, sweep, recovery, cache.
//!
//! One mechanism: an ordered directory of blocks, and a queue of waiting updates beside every
//! block. [`Core`] is the state machine that ties the parts together; `docs/architecture.md` tells
//! how.

mod accept;
mod base;
pub mod block_format;
mod blocks;
mod cache;
mod catalog;
mod checkpoint;
mod conditional;
pub mod config;
mod core;
mod directory;
pub mod drive;
mod event;
mod flow;
mod flush;
mod foreground;
pub mod format;
mod gate;
mod growth;
mod held;
pub mod ids;
mod index;
mod io;
mod jobs;
mod journal;
mod key;
mod log_growth;
mod measure;
pub mod modifier;
mod pending;
mod pipeline;
pub mod policy;
pub mod quarantine;
mod queue;
mod reclaim;
mod recovery;
pub mod registry;
mod replay;
mod reserved;
mod spill_segments;
mod spiller;
mod sweep;
#[cfg(test)]
mod tests;
mod tree;
mod unregistered;
mod verify;
mod versions;
mod view;
mod visitor;
mod waiters;

pub use accept::Accept;
pub use cache::Image;
pub use conditional::{Conditional, Seen};
pub use config::{
    Config, DATA_START, FANOUT_MIN, FileSpace, KEY_BYTES_MAX, Spilling, VALUE_BYTES_MAX,
};
pub use core::{Actions, Core, NewSnapshot, SpaceSize};
pub use foreground::ForegroundRequests;
pub use format::record_format::{LoggedUpdate, SpaceRecord};
pub use gate::Access;
pub use ids::{SnapshotId, SpaceId};
pub use io::RunId;
pub use jobs::{Job, JobOutput};
pub use measure::TreeCounters;
pub use policy::{BlockSizes, Costs, Gauge};
pub use queue::Waiting;
pub use recovery::{create, open};
pub use registry::{OwnFormats, Registry};
pub use sweep::{Chunk, CompactionId, CompactionProgress, LOADING, LoadTarget, LoadedBlock};
pub use tree::Differing;
pub use verify::{Report, verify};
pub use versions::{Version, Versions};
pub use view::{
    AheadImage, AheadOf, AheadPart, AheadRequest, Arrived, CheckedRead, Planned, ScanId, View,
    ViewId, ViewPoll, ViewRead, Wanted,
};
pub use visitor::{BlockVisitor, VisitedBlock};
