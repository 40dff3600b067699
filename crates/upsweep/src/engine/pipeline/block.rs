//! A block of a run: its image as read, and its damage, if any.

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
    /// Its place when the run began; only this run can move it.
    placement: Placement,
    /// The space through which the run sees it, from the freezing of its updates on.
    pub(super) owner: SpaceId,
    /// The end of its keys when its updates were frozen, if it has any in spill segments. It may
    /// cover more keys later: what was spilled for those is not for this run.
    pub(super) high: Option<Box<[u8]>>,
    /// No space has it any more.
    pub(super) is_gone: bool,
    image: Option<Arc<Image>>,
    /// Why the block cannot be used, if it cannot.
    pub(super) damage: Option<String>,
    /// Some of its updates were in a spill segment that cannot be read.
    pub(super) has_lost_updates: bool,
    /// A damaged block of the quarantine table cannot send its updates to the quarantine, which is
    /// the table itself: they go to a new image, and the content of the old one is lost.
    starts_anew: bool,
}

impl RunBlock {
    /// A block at the start of a run, in its present state.
    pub(super) fn new(id: BlockId, table: &BlockTable) -> Self {
        let block = table.get(id);
        Self {
            id,
            birth: block.birth,
            placement: block.placement(),
            owner: block.space,
            high: None,
            is_gone: false,
            image: None,
            damage: None,
            has_lost_updates: false,
            starts_anew: block.space == QUARANTINE_SPACE,
        }
    }

    /// Its image, from the read until the result has a place.
    pub(super) fn image(&self) -> Option<&Arc<Image>> {
        self.image.as_ref()
    }

    /// Excludes the block from the next attempt.
    pub(super) fn condemn(&mut self, reason: String) {
        self.damage = Some(reason);
        self.image = None;
    }

    /// The permanent identity of the block.
    pub(super) fn reference(&self) -> BlockRef {
        BlockRef { number: self.id.0, birth: self.birth }
    }

    /// The place of its image.
    pub(super) fn extent(&self) -> Option<Extent> {
        self.placement.extent
    }

    /// Whether the run can process it.
    pub(super) fn is_sound(&self) -> bool {
        !self.is_gone && !self.is_set_aside()
    }

    /// Whether the block keeps its image, and its updates go to the quarantine.
    pub(super) fn is_set_aside(&self) -> bool {
        self.damage.is_some() && !self.starts_anew && !self.is_gone
    }

    /// Drops the bytes that were read: the result has a place.
    pub(super) fn forget_image(&mut self) {
        self.image = None;
    }

    /// Whether the run can do anything with the image of the block.
    fn needs_image(&mut self, table: &BlockTable) -> bool {
        self.is_gone = table.find(self.reference()).is_none();
        if !self.is_gone && self.placement.has_lost_updates() {
            self.damage = Some(LOST_UPDATES.to_owned());
        }
        !self.is_gone && self.damage.is_none()
    }

    /// Accepts the image of the block, which was checked when it was read.
    pub(super) fn take_image(&mut self, image: Arc<Image>, table: &BlockTable) {
        self.image = self.needs_image(table).then_some(image);
    }

    /// Accepts what was read for the block, at this place of the buffer, if it is its image.
    pub(super) fn check_image(
        &mut self,
        buffer: &Arc<Buffer>,
        at: usize,
        table: &BlockTable,
        store: [u8; 16],
    ) {
        let Some(extent) = self.extent().filter(|_| self.needs_image(table)) else { return };
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
