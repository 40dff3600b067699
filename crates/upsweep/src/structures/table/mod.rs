//! Tables: their leaves are blocks, and the engine's directory is the inner tree.
//!
//! All of it is generic over the [`Order`] of records; the order of keys is here, that of hashes is
//! in the [hash table](super::hash).
//!
//! | module | content |
//! |---|---|
//! | [`leaf_format`] | the bytes of a leaf |
//! | [`leaf`] | applies updates to a leaf, splits and joins leaves; [`TableFormat`] |
//! | [`order`] | [`Order`]: how records and leaves are ordered |
//! | `ranges` | ranges of keys that are removed, in the order of keys |
//! | [`raw_format`] | [`RawFormat`]: a block that is one value; also the home of large values |
//! | [`reader`] | answers from a leaf and the updates that wait for it |
//! | `returning` | updates that return the old or new value |
//! | [`TableLoader`] | packs records in key order into whole leaves, for bulk loads |
//! | [`Table`], [`Scan`] | the table of an open store, over the block API |
//!
//! A value too large for a leaf lives in the table's companion space, under the same key, as a
//! block of [`RawFormat`]; the leaf keeps that block's length and checksum.
//!
//! (Bosc paper, section 5; shadowed B-trees: no leaf links, splits and joins at the sweep.)

mod handle;
pub mod leaf;
pub mod leaf_format;
mod load;
pub mod order;
mod ranges;
pub mod raw_format;
pub mod reader;
mod returning;
mod scan;
#[cfg(test)]
mod tests;

pub use handle::{AsValue, Table, Value};
pub use leaf::{EXPIRING_FORMAT, Lifetime, TABLE_FORMAT, TableFormat};
pub use load::{LoadOptions, TableLoader};
pub use order::{ByKey, Order};
pub use raw_format::RawFormat;
pub use reader::{Lookup, Page, PageRequest, Record, get, get_block, page, sort};
pub use returning::Compared;
pub(crate) use returning::Updated;
pub use scan::Scan;
