//! Rotating drives in virtual time: geometry, seeks, rotation, command overhead, bus, queue and
//! buffer.
//!
//! A [`DriveDescription`] is a drive as data. A [`Drive`] serves commands: it chooses the next one
//! of those in its queue (`queue.rs`), which then passes through processing, positioning, the media
//! and the bus (`command.rs`, `bus.rs`), over the tracks on which its sectors lie (`layout.rs`), at
//! the pace of seeks and rotation (`mechanics.rs`, `seek.rs`).
//!
//! In full detail a drive works on several commands at a time (`pipeline/`), with segments that
//! keep what was read and written (`cache.rs`), reading ahead (`reading.rs`), and writes that are
//! held and merged (`hold.rs`).
//!
//! `rotating.rs` puts a drive under a bank.
//!
//! The rules are those of `crates/lab/drives/README.md`.

mod bus;
mod cache;
mod command;
mod description;
mod hold;
mod layout;
mod mechanics;
mod pipeline;
mod plain;
mod queue;
mod reading;
mod rotating;
mod seek;

pub(super) use description::ensure;

pub use command::{Command, Detail, Operation, Served};
pub use description::{
    BadDrive, Bus, Cache, Capacity, DriveDescription, Host, LayoutRules, Mechanics, Overheads,
    Queue, ReadAhead, Scheduler, SeekCurve, SkewUnit, Source, Spares, Start, Status, SurfaceOrder,
    Watermark, WriteBack, Zone,
};
pub use layout::{Layout, Piece};
pub use mechanics::{Direction, Head, Mechanism, Pass};
pub use queue::Drive;
pub(super) use rotating::Rotating;
