//! Structures over the engine's blocks: the built-in modifiers and the ordered table.
//!
//! Everything here is pure: no I/O, no threads, no clocks.

pub mod modifiers;
pub mod table;
