//! The engine: directory, queues, sweep, recovery, cache.
//!
//! One mechanism: an ordered directory of blocks, and a queue of waiting updates beside every
//! block. [`Core`] is the state machine that ties the parts together; `docs/architecture.md` tells
//! how.

mod accept;
pub mod block_format;
mod blocks;
mod cache;
mod catalog;
mod checkpoint;
pub mod config;
mod core;
mod directory;
pub mod drive;
pub mod format;
mod growth;
mod held;
mod holes;
mod key;
mod log_growth;
mod measure;
pub mod modifier;
mod pending;
mod policy;
mod publish;
pub mod quarantine;
mod queue;
mod recovery;
pub mod registry;
mod replay;
mod spaces;
mod spill_segments;
mod sweep;
mod tree;
mod verify;
mod view;
mod visitor;

pub use accept::Accept;
pub use cache::Image;
pub use config::{Config, DATA_START, FANOUT_MIN, FileSpace, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use core::{Actions, Core};
pub use format::record_format::{LoggedUpdate, SpaceRecord};
pub use measure::TreeCounters;
pub use policy::{BlockSizes, Costs, Gauge, Spilling};
pub use queue::Waiting;
pub use recovery::{Access, Registry, create, open};
pub use spaces::{NewSnapshot, SpaceSize};
pub use sweep::{
    Chunk, CompactionId, CompactionProgress, Job, JobOutput, LOADING, LoadTarget, LoadedBlock,
    RunId,
};
pub use tree::Differing;
pub use verify::{Report, verify};
pub use view::{CheckedRead, View, ViewId, ViewPoll, ViewRead, Wanted};
pub use visitor::{BlockVisitor, VisitedBlock};
