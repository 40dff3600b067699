//! Updates that cannot be applied, in a store that is open for upkeep: their modifier or the format
//! of their space is not registered.
//!
//! A block with such an update waiting is *held*: it counts as pinned while the store is open, so
//! that no run, spill or compaction takes it. Its waiting updates stay in the log and in spill
//! segments, for the application that has both. All other blocks are swept.
//!
//! Held blocks keep the log from being released, so the application's updates are refused: no
//! caller waits for room that only a held block could make.

use std::collections::BTreeSet;

use super::directory::BlockId;
use super::format::record_format::{BlockRef, LoggedUpdate};
use super::index::Index;
use super::quarantine::QUARANTINE_SPACE;
use super::registry::{DELETE_RANGE, ModifierId};
use crate::error::Error;
use crate::log::Seq;

/// The held blocks.
#[derive(Default)]
pub(super) struct Held {
    blocks: BTreeSet<BlockRef>,
    /// Everything up to this sequence is inside published images, except what is held.
    swept: Seq,
}

impl Held {
    /// Holds a block.
    pub(super) fn hold(&mut self, id: BlockId, index: &mut Index) {
        self.blocks.insert(index.directory().table.reference(id));
        if !index.directory().block(id).pinned {
            index.pin(id);
        }
    }

    /// Blocks that are held: updates of modifiers that are not registered wait for them.
    pub(super) fn blocks(&self, index: &Index) -> u64 {
        let is_there = |block: &&BlockRef| index.directory().table.find(**block).is_some();
        self.blocks.iter().filter(is_there).count() as u64
    }

    /// Everything up to this sequence is inside published images, except what is held.
    pub(super) fn swept(&self) -> Seq {
        self.swept
    }

    /// Records, at the end of a cycle, whether only updates of held blocks still wait.
    pub(super) fn note_swept(&mut self, index: &Index) {
        let waits = |id: BlockId| {
            let block = index.directory().block(id);
            !block.pinned && (block.waits() || block.spilled > 0)
        };
        let placed = index.placed().iter().map(|(_, _, id)| *id);
        let unplaced = index.unplaced().iter().map(|(_, _, id)| *id);
        if !placed.chain(unplaced).any(waits) {
            self.swept = index.accepted();
        }
    }
}

/// Whether updates of a modifier can be applied.
pub(super) fn is_known(modifier: ModifierId, index: &Index) -> bool {
    modifier == DELETE_RANGE || index.bindings.modifiers().get(modifier).is_some()
}

/// Refuses updates of the application while a modifier or a format is missing.
///
/// # Errors
/// [`UnknownFormat`](crate::RequestError::UnknownFormat);
/// [`UnknownModifier`](crate::RequestError::UnknownModifier).
pub(super) fn check_upkeep(updates: &[LoggedUpdate<'_>], index: &Index) -> Result<(), Error> {
    if updates.iter().all(|update| update.space == QUARANTINE_SPACE) {
        return Ok(());
    }
    let modifier = || index.bindings.missing().map(|missing| index.bindings.unknown(missing));
    index.missing_format().or_else(modifier).map_or(Ok(()), Err)
}
