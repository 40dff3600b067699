//! Views: what a query needs of one block, gathered without holding anything up.
//!
//! A view is the block's checked image and a copy of the updates that wait for it; applying them is
//! the caller's work, outside of any lock. The device is not touched where the waiting updates of a
//! key decide alone, or the cache has the image. (Bosc paper, section 4.4.)
//!
//! Invariant: image and waiting updates of a view belong together. A read that comes back after its
//! block has moved is thrown away and the view starts again, so nothing has to be pinned.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::block_format::Routing;
use super::cache::Image;
use super::core::{Actions, Core, Purpose};
use super::directory::BlockId;
use super::format::image_format::{self, Identity, ImageKind};
use super::modifier::Modifier;
use super::queue::Waiting;
use crate::device::{Buffer, Completion, DeviceId, Operation, Request, Token};
use crate::error::{Damage, Error, RequestError};
use crate::placement::Extent;

/// Number of a view within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ViewId(pub u64);

/// Which block is wanted, and what for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// What concerns this one key.
    Point(Vec<u8>),
    /// The whole block that covers this position (of a table, a position is a key).
    Covering(Vec<u8>),
    /// The whole last block with positions below this one (`None`: the last of the space).
    Below(Option<Vec<u8>>),
    /// The whole first block whose key is at or above this position.
    AtOrAbove(Vec<u8>),
}

/// What is known of a block.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The block's key.
    pub low: Box<[u8]>,
    /// The next block's key; `None` if there is none. Meaningless for exact routing.
    pub high: Option<Box<[u8]>>,
    /// Where its image is, if it has one.
    pub extent: Option<Extent>,
    /// Its image; `None` if it has none, or if the waiting updates decide without it.
    pub image: Option<Arc<Image>>,
    /// Waiting updates, older ones first; for a point view those of its key only.
    pub waiting: Vec<Arc<Waiting>>,
}

impl View {
    /// The error that says that `what` in this block is not what was written there.
    #[must_use]
    pub fn damage(&self, what: String, reason: String) -> Error {
        let (device, offset) =
            self.extent.map_or((DeviceId(0), 0), |extent| (extent.device, extent.offset));
        Damage { device, offset, what, reason }.into()
    }
}

/// The answer to a request for a view.
#[derive(Debug)]
pub enum ViewPoll {
    /// Here it is.
    Ready(View),
    /// A read is on its way; the view will be among [`Actions::views`].
    Pending(ViewId),
}

struct PendingView {
    space: u32,
    wanted: Wanted,
}

struct PendingRead {
    block: BlockId,
    extent: Extent,
    image_seq: u64,
    waiters: Vec<ViewId>,
}

/// Views that wait for reads.
#[derive(Default)]
pub(super) struct Views {
    next: u64,
    pending: BTreeMap<ViewId, PendingView>,
    reads: BTreeMap<Token, PendingRead>,
    by_extent: BTreeMap<Extent, Token>,
    /// Reads to submit at the next pump.
    wanted: Vec<(BlockId, Extent, ViewId)>,
    answered: Vec<(ViewId, Result<View, Error>)>,
}

enum Gathered {
    Complete(View),
    NeedsRead(BlockId, Extent),
}

impl Core {
    /// Gathers what a query needs. Cost: a search of the directory and a copy of the queue; at most
    /// one read, at the next pump.
    ///
    /// # Errors
    /// [`RequestError::NoTable`] if the space does not exist; [`Error::Damaged`] if the block could
    /// not be read when it was swept.
    pub fn view(&mut self, space: u32, wanted: Wanted) -> Result<ViewPoll, Error> {
        match self.gather(space, &wanted)? {
            Gathered::Complete(view) => Ok(ViewPoll::Ready(view)),
            Gathered::NeedsRead(block, extent) => {
                self.views.next += 1;
                let id = ViewId(self.views.next);
                self.views.pending.insert(id, PendingView { space, wanted });
                self.views.wanted.push((block, extent, id));
                Ok(ViewPoll::Pending(id))
            }
        }
    }

    fn gather(&mut self, space: u32, wanted: &Wanted) -> Result<Gathered, Error> {
        let no_table = || RequestError::NoTable(format!("number {space}"));
        let routing = self.directory.space(space).ok_or_else(no_table)?;
        let covering = |position: &[u8]| match routing.format.routing() {
            Routing::Ordered => self.directory.floor(space, position),
            Routing::Exact => self.directory.exact(space, position),
        };
        let found = match wanted {
            Wanted::Point(key) => covering(&routing.format.position(key)),
            Wanted::Covering(position) => covering(position),
            Wanted::Below(position) => self.directory.below(space, position.as_deref()),
            Wanted::AtOrAbove(position) => {
                let exact = self.directory.exact(space, position);
                exact.or_else(|| self.directory.above(space, position))
            }
        };
        let Some(id) = found else { return Ok(Gathered::Complete(View::default())) };
        let block = self.directory.block(id);
        let mut waiting = Vec::with_capacity(2);
        match wanted {
            Wanted::Point(key) => {
                let of_key = block.frozen.as_ref().map(|frozen| frozen.of_key(key));
                waiting.extend(of_key.filter(|updates| updates.count() > 0).map(Arc::new));
                let live = self.arena.snapshot(&block.queue).of_key(key);
                waiting.extend((live.count() > 0).then(|| Arc::new(live)));
            }
            _ => {
                waiting.extend(block.frozen.clone());
                waiting.extend(block.waits().then(|| Arc::new(self.arena.snapshot(&block.queue))));
            }
        }
        if block.extent.is_some() && block.frontier != block.image_seq {
            return Err(self.set_aside(id).into());
        }
        let above = self.directory.above(space, &block.key);
        let high = above.map(|above| self.directory.block(above).key.clone());
        let low = block.key.clone();
        let extent = block.extent;
        let decided = matches!(wanted, Wanted::Point(_)) && self.is_decided(&waiting);
        let image = match extent.filter(|_| !decided) {
            None => None,
            Some(extent) => match self.cache.get(id, extent) {
                Some(image) => Some(image),
                None => return Ok(Gathered::NeedsRead(id, extent)),
            },
        };
        Ok(Gathered::Complete(View { low, high, extent, image, waiting }))
    }

    /// The damage of a block that could not be read when it was swept. Its updates went to the
    /// quarantine, so its image is not the answer even if it can be read by now.
    fn set_aside(&self, id: BlockId) -> Damage {
        let block = self.directory.block(id);
        let key = String::from_utf8_lossy(&block.key);
        let what = format!("block {key:?} of space {}", block.space);
        let (device, offset) =
            block.extent.map_or((DeviceId(0), 0), |extent| (extent.device, extent.offset));
        let reason = "it could not be read when it was swept, and updates of it are in the \
                      quarantine: retry them"
            .to_owned();
        Damage { device, offset, what, reason }
    }

    /// Whether the updates of one key give its value without knowing the one before.
    fn is_decided(&self, waiting: &[Arc<Waiting>]) -> bool {
        let mut decided = false;
        for part in waiting {
            part.for_each(|update| {
                decided |= self.modifiers.get(update.modifier).is_some_and(Modifier::blind);
            });
        }
        decided
    }

    /// Submits the reads that views need, one per block, and hands out the answers.
    pub(super) fn pump_views(&mut self, actions: &mut Actions) {
        for (block, extent, id) in std::mem::take(&mut self.views.wanted) {
            if let Some(token) = self.views.by_extent.get(&extent) {
                let read = self.views.reads.get_mut(token).expect("reads are listed twice");
                read.waiters.push(id);
                continue;
            }
            let image_seq = self.directory.block(block).image_seq;
            let token = self.token(Purpose::View);
            let buffer = Buffer::zeroed(extent.bytes as usize);
            let operation = Operation::Read { offset: extent.offset, buffer };
            actions.requests.push(Request { device: extent.device, token, operation });
            self.views.by_extent.insert(extent, token);
            self.views
                .reads
                .insert(token, PendingRead { block, extent, image_seq, waiters: vec![id] });
            self.statistics.view_reads += 1;
        }
        actions.views.append(&mut self.views.answered);
    }

    pub(super) fn view_read_done(&mut self, completion: Completion) {
        let read = self.views.reads.remove(&completion.token).expect("a view read is listed");
        self.views.by_extent.remove(&read.extent);
        let block = self.directory.block(read.block);
        let moved = (block.extent, block.image_seq) != (Some(read.extent), read.image_seq);
        let mut damage = None;
        if !moved {
            let identity = Identity {
                store: self.config.store,
                kind: ImageKind::Block,
                space: block.space,
                seq: block.image_seq,
                key: &block.key,
            };
            let checked = match (&completion.result, completion.buffer) {
                (Ok(()), Some(buffer)) => {
                    image_format::decode(&buffer, &identity).map(|body| (buffer, body))
                }
                (Err(error), _) => Err(error.to_string()),
                (Ok(()), None) => Err("no buffer came back".to_owned()),
            };
            match checked {
                Ok((buffer, body)) => {
                    let image = Arc::new(Image::new(Arc::new(buffer), body));
                    self.cache.hold(read.block, read.extent, image);
                }
                Err(reason) => {
                    let key = String::from_utf8_lossy(&block.key);
                    let what = format!("block {key:?} of space {}", block.space);
                    let (device, offset) = (read.extent.device, read.extent.offset);
                    damage = Some(Damage { device, offset, what, reason });
                }
            }
        }
        for id in read.waiters {
            self.answer(id, damage.as_ref());
        }
        self.cache.release();
    }

    fn answer(&mut self, id: ViewId, damage: Option<&Damage>) {
        let Some(pending) = self.views.pending.remove(&id) else { return };
        let answer = match damage {
            Some(damage) => Err(damage.clone().into()),
            None => match self.gather(pending.space, &pending.wanted) {
                Ok(Gathered::Complete(view)) => Ok(view),
                Ok(Gathered::NeedsRead(block, extent)) => {
                    self.views.wanted.push((block, extent, id));
                    self.views.pending.insert(id, pending);
                    return;
                }
                Err(error) => Err(error),
            },
        };
        self.views.answered.push((id, answer));
    }

    /// Forgets a view whose caller has gone.
    pub fn forget_view(&mut self, id: ViewId) {
        self.views.pending.remove(&id);
    }
}
