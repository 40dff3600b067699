//! Rotating drives in virtual time: geometry, seeks, rotation, command overhead, bus and queue.
//!
//! A [`DriveDescription`] is a drive as data. A [`Drive`] serves commands: it chooses the next one
//! of those in its queue (`queue.rs`), which then passes through processing, positioning, the media
//! and the bus (`command.rs`), over the tracks on which its sectors lie (`layout.rs`), at the pace
//! of seeks and rotation (`mechanics.rs`, `seek.rs`).
//!
//! The rules are those of `crates/lab/drives/README.md`.

mod command;
mod description;
mod layout;
mod mechanics;
mod queue;
mod seek;

pub(super) use description::ensure;

pub use command::{Command, Detail, Served};
pub use description::{
    BadDrive, Bus, Cache, Capacity, DriveDescription, Host, LayoutRules, Mechanics, Overheads,
    Queue, ReadAhead, Scheduler, SeekCurve, SkewUnit, Source, Spares, Start, Status, SurfaceOrder,
    Watermark, WriteBack, Zone,
};
pub use layout::{Layout, Piece};
pub use mechanics::{Direction, Head, Mechanism, Pass};
pub use queue::Drive;
