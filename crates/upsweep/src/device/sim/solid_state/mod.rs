//! Solid-state devices in virtual time: flash with its channels, the mapping, cleaning, the buffer.
//!
//! A [`SolidStateDescription`] is a device as data. A [`SolidState`] serves commands (`device.rs`):
//! writes gather in pages of its buffer (`write.rs`), which go to the dies in turn. Each die has a
//! log of blocks (`space.rs`), and cleans blocks when few are free (`clean.rs`). Dies and channels
//! take their time (`flash.rs`), in the order of events (`events.rs`). The mapping (`map.rs`) has
//! an entry for what was written; a device that begins full has its first content as a function
//! (`filled.rs`). `timing.rs` puts it under a bank.
//!
//! The rules are those of `crates/lab/drives/solid-state/README.md`.
//!
//! Invariants: every mapped unit has one place, which knows the unit, and no place belongs to two;
//! a die always has a free block to clean into; what happened up to a moment does not depend on
//! when the caller asks. Times are whole nanoseconds; equal calls give equal results everywhere.

mod clean;
mod description;
mod device;
mod events;
mod filled;
mod flash;
mod map;
mod space;
mod timing;
mod write;

pub use description::{
    Capacity, Cleaning, FillOrder, Flash, Host, Mapping, SolidStateDescription, Start, WriteBuffer,
};
pub use device::{Counters, Demand, SolidState};

#[cfg(test)]
pub(in crate::device) mod tests;
