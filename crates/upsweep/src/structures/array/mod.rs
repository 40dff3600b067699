//! The array: cells of a fixed size by index, all existing from the start and zero.
//!
//! | module | content |
//! |---|---|
//! | [`cell_format`] | [`CellKind`], [`Cell`]: the bytes of a cell, and its value for modifiers |
//! | [`body_format`] | the bytes of a block, and the keys that name cells and blocks |
//! | [`block`] | [`ArrayFormat`]: applies updates to a block |
//! | `returning` | updates that return the old or new cell |
//! | [`Array`], [`ArrayScan`], [`BlockCells`] | the array of an open store, over the block API |
//!
//! A block holds a fixed number of neighbouring cells, so its number is computed by a division,
//! blocks never split or merge, and one that was never touched does not exist. Only nonzero cells
//! take space.
//!
//! (Sungem thesis, section 3.3: the P-array of reference counts, and the collector that scans it.)

pub mod block;
pub mod body_format;
pub mod cell_format;
mod handle;
mod returning;
mod scan;
#[cfg(test)]
mod tests;
mod visit;

pub use block::{ARRAY_FORMAT, ArrayFormat};
pub use body_format::{INDEX_BITS, INDEX_MAX};
pub use cell_format::{CELL_BYTES_MAX, Cell, CellKind, NumberCell};
pub use handle::Array;
pub use scan::ArrayScan;
pub use visit::BlockCells;
