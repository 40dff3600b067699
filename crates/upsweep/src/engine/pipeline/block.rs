//! A block of a run: what was read of it, and why it cannot be used, if so.

use std::sync::Arc;

use crate::device::Buffer;
use crate::engine::cache::Image;
use crate::engine::catalog::QUARANTINE_SPACE;
use crate::engine::directory::{BlockId, BlockTable};
use crate::engine::format::image_format::{self, Identity, ImageKind};
use crate::engine::format::record_format::{BlockRef, LOST_UPDATES, Placement};
use crate::engine::ids::SpaceId;
use crate::log::Seq;
use crate::placement::Extent;

/// A block of a run.
pub(super) struct RunBlock {
    pub(super) id: BlockId,
    birth: Seq,
    /// Where it was when the run began; it moves by no other way than this run.
    placement: Placement,
    /// The space through which the run sees it, from the time at which its updates are frozen.
    pub(super) owner: SpaceId,
    /// No space has it any more.
    pub(super) is_gone: bool,
    image: Option<Arc<Image>>,
    /// Why the block cannot be used, if so.
    pub(super) damage: Option<String>,
    /// Updates of it were in a spill segment that cannot be read.
    pub(super) has_lost_updates: bool,
    /// A damaged block of the quarantine table cannot send its updates to the quarantine, which is
    /// itself: they go to a new image, and what was in the old one is lost with it.
    starts_anew: bool,
}

impl RunBlock {
    /// A block that a run begins with, as it is now.
    pub(super) fn new(id: BlockId, table: &BlockTable) -> Self {
        let block = table.get(id);
        Self {
            id,
            birth: block.birth,
            placement: block.placement(),
            owner: block.space,
            is_gone: false,
            image: None,
            damage: None,
            has_lost_updates: false,
            starts_anew: block.space == QUARANTINE_SPACE,
        }
    }

    /// Its image, once that was read, and until what comes of it has a place.
    pub(super) fn image(&self) -> Option<&Arc<Image>> {
        self.image.as_ref()
    }

    /// Leaves the block out of the next attempt.
    pub(super) fn condemn(&mut self, reason: String) {
        self.damage = Some(reason);
        self.image = None;
    }

    /// What names the block for ever.
    pub(super) fn reference(&self) -> BlockRef {
        BlockRef { number: self.id.0, birth: self.birth }
    }

    /// Where its image is.
    pub(super) fn extent(&self) -> Option<Extent> {
        self.placement.extent
    }

    /// Whether the run can do something with it.
    pub(super) fn is_sound(&self) -> bool {
        !self.is_gone && !self.is_set_aside()
    }

    /// Whether the block keeps its image, and its updates go to the quarantine.
    pub(super) fn is_set_aside(&self) -> bool {
        self.damage.is_some() && !self.starts_anew && !self.is_gone
    }

    /// Gives the bytes back that were read: what comes of them has a place.
    pub(super) fn forget_image(&mut self) {
        self.image = None;
    }

    /// Takes what was read for the block, at this place of the buffer, if it is its image.
    pub(super) fn check_image(
        &mut self,
        buffer: &Arc<Buffer>,
        at: usize,
        table: &BlockTable,
        store: [u8; 16],
    ) {
        let Some(extent) = self.extent() else { return };
        if table.find(self.reference()).is_none() {
            self.is_gone = true;
            return;
        }
        if self.placement.has_lost_updates() {
            self.damage = Some(LOST_UPDATES.to_owned());
            return;
        }
        let end = at + extent.bytes as usize;
        let identity = Identity {
            store,
            kind: ImageKind::Block,
            number: self.placement.image_space.get(),
            seq: self.placement.image_seq,
            key: &table.get(self.id).key,
        };
        match image_format::decode(&buffer[at..end], &identity) {
            Ok(body) => {
                let body = at + body.start..at + body.end;
                self.image = Some(Arc::new(Image::new(Arc::clone(buffer), body)));
            }
            Err(reason) => self.damage = Some(reason),
        }
    }
}
