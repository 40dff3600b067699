//! Spaces whose block format is not registered in this process.
//!
//! Such a space is there, with its name and its format, and can be listed, cloned, kept in
//! snapshots, verified as far as checksums go, and dropped. None of that looks into a block.
//! Whatever would is refused with the name of the format.
//!
//! Nobody knows which block covers a key of it. So a store in which updates wait for such a space
//! opens for reading and for upkeep only; then they keep the log, as those of unregistered
//! modifiers do, and each waits at a block that is held. If the log since the last checkpoint may
//! have made blocks of such a space, nobody can tell the numbers of blocks: the store does not
//! open. Closing a store leaves a checkpoint.
//!
//! Invariant: all blocks of such spaces are pinned from the open on, so that no run, spill or
//! compaction takes one.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::block_format::{
    Applied, ApplyError, ApplyInput, BlockFormat, Checked, Routing, UpdateRef,
};
use super::catalog::Space;
use super::core::Core;
use super::directory::BlockId;
use super::format::record_format::{LoggedUpdate, RangeRecord};
use super::modifier::ValueRef;
use super::recovery::Access;
use crate::error::{Error, RequestError};

/// Stands for a block format that is not registered. No registered one is without a name.
pub(super) struct Unregistered;

impl Unregistered {
    fn unknown<T>() -> Result<T, String> {
        Err("its block format is not registered".to_owned())
    }
}

impl BlockFormat for Unregistered {
    fn name(&self) -> &'static str {
        ""
    }

    fn routing(&self) -> Routing {
        Routing::Ordered
    }

    fn position<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(key)
    }

    fn apply<'a>(&self, _: &ApplyInput<'_, 'a>) -> Result<Applied<'a>, ApplyError> {
        Self::unknown().map_err(ApplyError::Corrupt)
    }

    fn for_each(
        &self,
        _: &[u8],
        _: &[u8],
        _: &mut dyn FnMut(&[u8], ValueRef<'_>),
    ) -> Result<(), String> {
        Self::unknown()
    }

    fn check(&self, _: &[u8], _: &[u8], _: Option<&[u8]>) -> Result<Checked, String> {
        Self::unknown()
    }
}

impl Space {
    /// Whether its block format is registered.
    pub(super) fn is_registered(&self) -> bool {
        !self.format.name().is_empty()
    }

    /// # Errors
    /// [`RequestError::UnknownFormat`] if its block format is not registered.
    pub(super) fn check_format(&self) -> Result<(), Error> {
        if self.is_registered() {
            return Ok(());
        }
        Err(RequestError::UnknownFormat(self.record.format.clone()).into())
    }
}

impl Core {
    /// The format of a space that the checkpoint names.
    ///
    /// # Errors
    /// [`RequestError::BadFormat`] for parameters that the format does not have.
    pub(super) fn format_or_stand_in(&self, name: &str) -> Result<Arc<dyn BlockFormat>, Error> {
        match self.format_named(name) {
            Err(Error::Request(RequestError::UnknownFormat(_))) => Ok(Arc::new(Unregistered)),
            found => found,
        }
    }

    /// Pins all blocks of spaces whose formats are not registered.
    pub(super) fn pin_unregistered(&mut self) {
        let all = self.directory.spaces();
        let unregistered: Vec<&Space> = all.filter(|space| !space.is_registered()).collect();
        let has_any = !unregistered.is_empty();
        let blocks = unregistered.into_iter().flat_map(|space| self.directory.blocks_of(space));
        let blocks: Vec<BlockId> = blocks.collect();
        self.has_unregistered = has_any;
        blocks.into_iter().for_each(|id| self.directory.block_mut(id).pinned = true);
    }

    /// The error that names a format that is not registered; `None` if there is no such space.
    pub(super) fn missing_format(&self) -> Option<Error> {
        if !self.has_unregistered {
            return None;
        }
        self.directory.spaces().find_map(|space| space.check_format().err())
    }

    /// The error that names the format of those that have what was accepted for a space at this
    /// sequence, if it is not registered.
    pub(super) fn missing_format_of(&self, space: u32, seq: u64) -> Option<Error> {
        let holders = self.directory.clones.holders(space, seq);
        let mut found = holders.iter().filter_map(|space| self.directory.space(*space));
        found.find_map(|space| space.check_format().err())
    }

    /// Replays an update of a space whose format is not registered: it may be inside an image
    /// already, but nobody can tell, so it waits again. It keeps the log from wherever it waits.
    ///
    /// # Errors
    /// [`RequestError::UnknownFormat`] in a store that is open for more than upkeep.
    pub(super) fn replay_unregistered(
        &mut self,
        seq: u64,
        update: &LoggedUpdate<'_>,
        access: Access,
    ) -> Result<(), Error> {
        let mut told: Vec<BlockId> = Vec::new();
        for number in self.directory.clones.holders(update.space, seq) {
            let Some(space) = self.directory.space(number) else { continue };
            let first = || self.directory.blocks_of(space).next();
            // Without any block there is none for which it could wait.
            let found = self.directory.covering(number, update.key).or_else(first);
            let Some(id) = found else { continue };
            if access == Access::ReadWrite {
                space.check_format()?;
            }
            if told.contains(&id) {
                continue;
            }
            told.push(id);
            self.hold(id);
            let LoggedUpdate { modifier, key, operand, .. } = *update;
            self.push(id, &UpdateRef { seq, modifier, key, operand });
        }
        Ok(())
    }

    /// Replays the removal of a range of a space whose format is not registered. Where ranges can
    /// be removed a key is its own position, so any process knows the blocks for which it waits.
    ///
    /// # Errors
    /// As [`Core::replay_unregistered`].
    pub(super) fn hold_range(
        &mut self,
        seq: u64,
        range: &RangeRecord,
        told: BTreeSet<BlockId>,
        access: Access,
    ) -> Result<(), Error> {
        let is_any = self.has_unregistered && !told.is_empty();
        let Some(missing) = is_any.then(|| self.missing_format_of(range.space, seq)).flatten()
        else {
            return Ok(());
        };
        if access == Access::ReadWrite {
            return Err(missing);
        }
        told.into_iter().for_each(|id| self.hold(id));
        Ok(())
    }
}
