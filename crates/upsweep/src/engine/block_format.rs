//! Block formats: how a structure lays records out in a block and applies updates to it.
//!
//! The engine knows blocks, queues and places; a format knows what is inside a block. Tables, hash
//! tables and arrays are formats over one mechanism. A format is pure: no clock, no I/O, no store;
//! equal inputs give equal bytes on every machine. It runs on worker threads on owned memory, and
//! must never panic on any bytes. (Bosc paper, sections 3 and 4.)

use std::borrow::Cow;
use std::sync::Arc;

use super::modifier::ValueRef;
use super::registry::{ModifierId, Modifiers};
use crate::log::Seq;

/// One waiting update, as a format sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateRef<'a> {
    /// Sequence number of its log record; after folding, that of the earliest folded one.
    pub seq: Seq,
    /// The modifier.
    pub modifier: ModifierId,
    /// Key of the record that it targets.
    pub key: &'a [u8],
    /// The modifier's operand.
    pub operand: &'a [u8],
}

/// How the directory finds the block of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// A block covers all positions from its block key up to the next block's; the first block of
    /// a space has the empty key. Blocks of such a format may split and merge.
    Ordered,
    /// A block holds exactly the keys whose position is its block key, and comes into being with
    /// its first update.
    Exact,
}

/// The content of one block when its updates are applied.
#[derive(Clone, Copy)]
pub struct ApplyInput<'i, 'a> {
    /// The current body; `None` if the block has no image yet.
    pub body: Option<&'a [u8]>,
    /// Waiting updates, sorted by key, and by `seq` (then position) within a key.
    pub updates: &'i [UpdateRef<'a>],
    /// The registered modifiers.
    pub modifiers: &'i Modifiers,
    /// Large values of this block that the engine has loaded, sorted by key.
    pub values: &'i [(Vec<u8>, Vec<u8>)],
    /// A body above this many bytes is split, unless it holds a single record.
    pub body_bytes_max: usize,
    /// Values above this many bytes are stored outside the block.
    pub inline_value_bytes_max: usize,
    /// Records that expire at this time or before are absent for every later query and update, and
    /// a format that supports expiry may omit them. Microseconds since the Unix epoch; 0: none are.
    pub expired_us: u64,
}

/// One block of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Lower bound of its keys; `None` for the first piece, which keeps the block's key.
    pub key: Option<Vec<u8>>,
    /// The new body; empty if the piece holds no records, and then it needs no space.
    pub body: Vec<u8>,
    /// Records in the body.
    pub records: u32,
}

/// An update that its modifier refused, or that made it panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Position in [`ApplyInput::updates`].
    pub index: usize,
    /// The reason, as readable text.
    pub reason: String,
}

/// The body of a large value: a byte, then bytes that are borrowed from an operand without a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueBody<'a> {
    /// The first byte.
    pub head: u8,
    /// The remaining bytes.
    pub rest: Cow<'a, [u8]>,
}

/// The result of applying updates to one block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied<'a> {
    /// At least one piece, in key order.
    pub pieces: Vec<Piece>,
    /// Large values to write (`Some`) or to free (`None`), sorted by key.
    pub values: Vec<(Vec<u8>, Option<ValueBody<'a>>)>,
    /// Updates that were refused; all others took effect.
    pub refused: Vec<Refused>,
}

/// The reason why updates could not be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// Large values of these keys are needed: load them and call again.
    NeedValues(Vec<Vec<u8>>),
    /// The body was not written by this format; the text says where and how.
    Corrupt(String),
}

/// A registered way of laying out a block.
pub trait BlockFormat: Send + Sync {
    /// Stable name, 1 to 64 bytes; written to the store.
    fn name(&self) -> &str;

    /// How keys find their block.
    fn routing(&self) -> Routing;

    /// The same format with these parameters, which follow its name and a colon in the record of a
    /// space (as in `array:u32`).
    ///
    /// # Errors
    /// A description of the valid parameters, as text for people, if these are not.
    fn configure(&self, parameters: &str) -> Result<Arc<dyn BlockFormat>, String> {
        Err(format!("format {:?} takes no parameters, but {parameters:?} is given", self.name()))
    }

    /// The position of `key` among the blocks of its space: what [`Routing`] compares with block
    /// keys. The key itself, unless the format overrides this.
    fn position<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(key)
    }

    /// Whether blocks cover ranges of keys, so that a range of keys can be removed: position and
    /// key are the same, and [`BlockFormat::apply`] takes updates that remove ranges.
    fn keeps_key_order(&self) -> bool {
        false
    }

    /// Applies all `updates` to the body. Cost: one pass over the body and the updates.
    ///
    /// # Errors
    /// [`ApplyError::NeedValues`]: load these values and call again; [`ApplyError::Corrupt`]:
    /// report the damage.
    fn apply<'a>(&self, input: &ApplyInput<'_, 'a>) -> Result<Applied<'a>, ApplyError>;

    /// The whole block with its updates applied, as a caller of the block API reads it: the body,
    /// unless the format overrides this. `input.body_bytes_max` is unlimited.
    ///
    /// # Errors
    /// As [`BlockFormat::apply`].
    fn read(&self, input: &ApplyInput<'_, '_>) -> Result<Vec<u8>, ApplyError> {
        let pieces = self.apply(input)?.pieces;
        Ok(pieces.into_iter().next().map(|piece| piece.body).unwrap_or_default())
    }

    /// Calls `visit` for each record of a body with its key and value, in stored order. Large
    /// values are skipped.
    ///
    /// # Errors
    /// A description of the damage to the body, as text for people.
    fn for_each(
        &self,
        low: &[u8],
        body: &[u8],
        visit: &mut dyn FnMut(&[u8], ValueRef<'_>),
    ) -> Result<(), String>;

    /// Joins two neighbouring bodies, `left` below `right`, either of which may be empty, if
    /// together they are small enough for one block of at most `body_bytes_max`; `None` if not.
    fn merge(&self, left: &[u8], right: &[u8], body_bytes_max: usize) -> Option<Vec<u8>> {
        let _ = (left, right, body_bytes_max);
        None
    }

    /// Checks every invariant of a body whose keys must lie in `low..high` (`None`: unbounded),
    /// and returns its number of records and the keys of its large values with their lengths.
    ///
    /// # Errors
    /// A description of the damage and its location, as text for people.
    fn check(&self, body: &[u8], low: &[u8], high: Option<&[u8]>) -> Result<Checked, String>;
}

/// What [`BlockFormat::check`] found in a sound body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Number of records.
    pub records: u32,
    /// Keys of the large values that it refers to, with their lengths in bytes.
    pub values: Vec<(Vec<u8>, u32)>,
}
