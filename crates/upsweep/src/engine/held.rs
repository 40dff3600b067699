//! Updates that nobody can apply, in a store that is open for upkeep: their modifier or the format
//! of their space is not registered.
//!
//! A block for which one waits is *held*: it counts as pinned
//! while the store is open, so that no run, spill or compaction takes it. What waits for it stays
//! in the log and in spill segments, for the application that has both. All other blocks are swept.
//!
//! Held blocks keep the log, so the application's updates are refused: nobody waits for room that
//! only a held block could make.

use std::collections::BTreeSet;

use super::core::Core;
use super::directory::BlockId;
use super::format::record_format::{BlockRef, LoggedUpdate};
use super::quarantine::QUARANTINE_SPACE;
use super::recovery::Access;
use super::registry::{DELETE_RANGE, ModifierId};
use crate::error::Error;

/// What is held.
#[derive(Default)]
pub(super) struct Held {
    blocks: BTreeSet<BlockRef>,
    /// Everything up to this sequence is inside published images, but for what is held.
    swept: u64,
}

impl Core {
    /// Takes note at open that an update waits for a block. If its modifier is not registered, the
    /// block is held in a store that is open for upkeep. Who only looks applies nothing.
    ///
    /// # Errors
    /// [`RequestError::UnknownModifier`](crate::RequestError::UnknownModifier) in a store that is
    /// open for anything else.
    pub(super) fn note_waiting(
        &mut self,
        id: BlockId,
        modifier: ModifierId,
        access: Access,
    ) -> Result<(), Error> {
        let is_known = modifier == DELETE_RANGE || self.modifiers.get(modifier).is_some();
        match (&mut self.held, access) {
            _ if is_known => {}
            (_, Access::ReadWrite) => return Err(self.unknown_modifier(modifier)),
            (Some(_), _) if !self.directory.block(id).pinned => self.hold(id),
            _ => {}
        }
        Ok(())
    }

    /// Holds a block in a store that is open for upkeep.
    pub(super) fn hold(&mut self, id: BlockId) {
        if let Some(held) = &mut self.held {
            held.blocks.insert(self.directory.table.reference(id));
            self.directory.block_mut(id).pinned = true;
        }
    }

    /// Blocks that are held: updates of modifiers that are not registered wait for them.
    #[must_use]
    pub fn held_blocks(&self) -> u64 {
        let blocks = self.held.iter().flat_map(|held| &held.blocks);
        blocks.filter(|block| self.directory.table.find(**block).is_some()).count() as u64
    }

    /// The error that names a missing modifier, in a store that is open for upkeep.
    pub(super) fn missing_modifier(&self) -> Option<Error> {
        self.held.as_ref()?;
        let is_missing = |id: ModifierId| self.modifiers.get(id).is_none();
        let missing = self.modifier_records.iter().find(|record| is_missing(record.id))?;
        Some(self.unknown_modifier(missing.id))
    }

    /// Refuses updates of the application while a modifier or a format is missing.
    pub(super) fn check_upkeep(&self, updates: &[LoggedUpdate<'_>]) -> Result<(), Error> {
        if updates.iter().all(|update| update.space == QUARANTINE_SPACE) {
            return Ok(());
        }
        let format = self.held.as_ref().and_then(|_| self.missing_format());
        format.or_else(|| self.missing_modifier()).map_or(Ok(()), Err)
    }

    /// Everything up to this sequence is inside published images, but for what is held.
    pub(super) fn swept_but_held(&self) -> u64 {
        let swept = self.held.as_ref().map_or(0, |held| held.swept);
        self.sweep_frontier().max(swept)
    }

    /// Takes note at the end of a cycle if nothing waits any more but for held blocks.
    pub(super) fn note_what_is_held(&mut self) {
        if self.held.is_none() || self.sweep.is_on_its_way() || !self.publishes.is_empty() {
            return;
        }
        let waits = |id: BlockId| {
            let block = self.directory.block(id);
            !block.pinned && (block.waits() || block.spilled > 0)
        };
        let placed = self.physical.iter().map(|(_, _, id)| *id);
        let unplaced = self.unplaced.iter().map(|(_, _, id)| *id);
        if !placed.chain(unplaced).any(waits)
            && let Some(held) = &mut self.held
        {
            held.swept = self.accepted;
        }
    }
}
