//! The runtime: threads, clock and files around the deterministic core, and the block API.
//!
//! One mutex guards the core, another the submitting side of the devices, where system calls take
//! long. Callers hold the first for the short time of a call; one *driver* thread waits for
//! completions without it; *worker* threads run jobs without it. No thread holds it while waiting
//! for a device, so reads do not block behind the sweep. A store may also have no threads: then the
//! callers that wait do all of this.
//!
//! A store is a folder with a description (`store.json`), a lock file, and by default its data and
//! log files; see [`layout`].

mod block_store;
mod blocks;
mod boundaries;
pub mod callers;
mod choices;
mod clock;
mod commit;
mod conditional;
pub mod description;
mod extents;
mod hands;
pub mod layout;
mod load;
mod log_page;
mod new_devices;
mod opening;
mod options;
mod parked;
mod profiles;
mod profiling;
mod pulse;
mod repair;
pub mod scanning;
mod searching;
mod shared;
mod spaces;
mod stall;
mod status;
mod threads;
mod ticket;
mod views;

pub(crate) use crate::device::sync_folder;
pub use crate::engine::{
    BlockSizes, BlockVisitor, CompactionProgress, Differing, Image, LoadedBlock, LoggedUpdate,
    Seen, SpaceRecord, SpaceSize, View, VisitedBlock, Waiting, Wanted,
};
pub use block_store::BlockStore;
pub use blocks::Blocks;
pub use boundaries::BoundariesStatus;
pub use choices::Choice;
pub use clock::{Moment, WallClock, unix_us};
pub use extents::{ExtentRead, ReservedExtent};
pub use layout::CreateOptions;
pub use load::{BlockLimits, LoadSummary};
pub use options::{Durability, OpenOptions};
pub use parked::{OwnedUpdate, PendingChange};
pub use profiles::{profiles_from_toml, profiles_to_toml, read_profiles};
pub use profiling::{Measurable, MeasureOptions, measurable, measure_path, measure_store};
pub use pulse::Pulse;
pub use shared::PartlyAccepted;
pub use spaces::SnapshotInfo;
pub use status::{
    Bound, DeviceStatus, LastSession, LogStatus, MemoryStatus, Session, SpillStatus, Status,
    SweepStatus, TreeStatus,
};
pub use ticket::Ticket;
pub use views::PendingView;
