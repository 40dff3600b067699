//! Sets of 64-bit integers in an Upsweep store.
//!
//! A [`Bitmap`] is a structure of the kind [`BitmapKind`]: with a block format and a modifier of
//! its own, outside of the crate `upsweep`. It shows what such a crate consists of, and its tests
//! show that a store treats it as one of its own.
//!
//! | module | content |
//! |---|---|
//! | `block` | the block format: bytes of a block, and how it takes updates |
//! | `edit` | the modifier: members that come and go |
//! | `handle` | the set of an open store |
//!
//! A record is a *word*: 64 neighbouring integers, a bit for each. A block holds a fixed number of
//! neighbouring words, so its key is a division away and it never splits, and only words with
//! members take space. Changes of one word that wait together are one entry of the queue.
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
//! // A table changes with it, or neither does.
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

/// The kind of sets of integers. Its one parameter is the binary logarithm of how many neighbouring
/// integers a block has: `bitmap:15`.
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
        word_of_key(key).ok_or_else(|| format!("a key of {} bytes that is no word", key.len()))?;
        match word_of_value(ValueRef { kind: value.kind, bytes: &value.bytes })? {
            0 => Err("a word without members".to_owned()),
            _ => Ok(()),
        }
    }
}
