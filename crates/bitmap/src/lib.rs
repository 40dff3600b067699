//! Sets of 64-bit integers in an Upsweep store.
//!
//! A [`Bitmap`] is a structure of the kind [`BitmapKind`], which has its own block format and
//! modifier, outside the crate `upsweep`. This crate is an example of how to add a structure; its
//! tests show that a store treats it like the built-in ones.
//!
//! | module | content |
//! |---|---|
//! | `block` | the block format, and how updates are applied |
//! | `edit` | the modifier, which adds and removes members |
//! | `handle` | the handle of a set in an open store |
//!
//! A record is a *word*: 64 neighbouring integers, one bit each. A block holds a fixed number of
//! neighbouring words, so a division gives its key and it never splits, and only words with members
//! take space. Waiting changes of the same word are folded into one queue entry.
//!
//! ```
//! use upsweep::{Durability, Store};
//! use upsweep_bitmap::{Bitmap, BitmapKind};
//!
//! # fn main() -> Result<(), upsweep::Error> {
//! let store = Store::builder().kind(BitmapKind).in_memory()?;
//! let seen = Bitmap::open(&store, "seen")?;
//! seen.insert(17)?;
//!
//! // The table and the set change together, or neither does.
//! let names = store.table("names")?;
//! let mut batch = store.batch();
//! batch.put(&names, b"eve", b"1000000");
//! seen.insert_in(&mut batch, 1_000_000);
//! batch.commit(Durability::Wait)?.wait()?;
//!
//! assert!(seen.contains(17)? && !seen.contains(18)?);
//! assert_eq!(seen.count(..)?, 2);
//! # Ok(())
//! # }
//! ```

mod block;
mod edit;
mod handle;

use std::sync::Arc;

pub use block::{BITS_DEFAULT, BITS_MAX, BITS_MIN};
pub use handle::{Bitmap, Members};
use upsweep::layers::engine::block_format::BlockFormat;
use upsweep::layers::engine::modifier::Modifier;
use upsweep::{Kind, StructureKind, Value, ValueRef};

use block::{BitmapFormat, word_of_key, word_of_value};
use edit::Edit;

/// The kind of sets of integers. Its only parameter is the binary logarithm of the number of
/// integers in a block, as in `bitmap:15`.
#[derive(Clone, Copy, Debug)]
pub struct BitmapKind;

impl BitmapKind {
    /// Sets with 2 to the power of `bits` ([`BITS_MIN`] to [`BITS_MAX`]) integers in a block.
    #[must_use]
    pub fn with_bits(bits: u32) -> Kind {
        Kind::new(Self, &bits.to_string())
    }
}

impl StructureKind for BitmapKind {
    fn format(&self) -> Arc<dyn BlockFormat> {
        Arc::new(BitmapFormat::default())
    }

    fn describe(&self, parameters: &str) -> String {
        format!("a bitmap with 2^{parameters} integers in a block")
    }

    fn modifiers(&self) -> Vec<Arc<dyn Modifier>> {
        vec![Arc::new(Edit)]
    }

    fn check_record(&self, _parameters: &str, key: &[u8], value: &Value) -> Result<(), String> {
        word_of_key(key)
            .ok_or_else(|| format!("a key of {} bytes that is not a word number", key.len()))?;
        match word_of_value(ValueRef { kind: value.kind, bytes: &value.bytes })? {
            0 => Err("a word without members".to_owned()),
            _ => Ok(()),
        }
    }
}
