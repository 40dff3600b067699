//! Views: what a query needs of one block, gathered without holding anything up.
//!
//! A view is the block's checked image and a copy of the updates that wait for it; applying them is
//! the caller's work, outside of any lock. The device is not touched where the waiting updates of a
//! key decide alone, or the cache has the image. Of spilled updates, the spill segments are read
//! whose filters have the key. (Bosc paper, section 4.4.)
//!
//! Invariant: image and waiting updates of a view belong together. A view gathers again after each
//! read, and what was read for it and is at its place no more is not used, so nothing has to be
//! pinned.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::block_format::{Routing, UpdateRef};
use super::cache::Image;
use super::core::{Actions, Core, IoKind};
use super::directory::{BlockId, Space};
use super::format::image_format::{self, Identity, ImageKind};
use super::format::record_format::{LOST_UPDATES, Placement};
use super::format::spill_segment_format::SpillSegmentRecord;
use super::modifier::Modifier;
use super::queue::Waiting;
use super::registry::DELETE_RANGE;
use super::spill_segments::{self, SpillSegment};
use crate::device::{Completion, DeviceId, Request, Token};
use crate::error::{Damage, Error, RequestError};
use crate::metrics::Finder;
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
    /// The next block's key; `None` if there is none. Meaningless for exact routing and for a
    /// point view.
    pub high: Option<Box<[u8]>>,
    /// Where its image is, if it has one.
    pub extent: Option<Extent>,
    /// Its image; `None` if it has none, or if the waiting updates decide without it.
    pub image: Option<Arc<Image>>,
    /// Waiting updates, older ones first; for a point view those of its key only.
    pub waiting: Vec<Waiting<'static>>,
}

impl View {
    /// The waiting updates, older ones first.
    #[must_use]
    pub fn updates(&self) -> Vec<UpdateRef<'_>> {
        self.waiting.iter().flat_map(Waiting::updates).collect()
    }

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
    /// What was read for it, with the sequence that it names.
    images: Vec<(Extent, u64, Arc<Image>)>,
}

/// What is to be read.
#[derive(Clone)]
enum Part {
    /// The image of a block.
    Block(BlockId),
    SpillSegment(Arc<SpillSegment>),
}

struct PendingRead {
    part: Part,
    extent: Extent,
    expected: Arc<Expected>,
    waiters: Vec<ViewId>,
}

/// What an image has to say of itself to be the one that a view needs.
#[derive(Debug)]
struct Expected {
    store: [u8; 16],
    kind: ImageKind,
    space: u32,
    key: Box<[u8]>,
    seq: u64,
}

impl Expected {
    fn check(&self, completion: Completion) -> CheckedRead {
        let &Self { store, kind, space, ref key, seq } = self;
        let identity = Identity { store, kind, space, seq, key };
        let image = match (completion.result, completion.buffer) {
            (Ok(()), Some(buffer)) => image_format::decode(&buffer, &identity)
                .map(|body| Arc::new(Image::new(Arc::new(buffer), body))),
            (Err(error), _) => Err(error.to_string()),
            (Ok(()), None) => Err("no buffer came back".to_owned()),
        };
        CheckedRead { token: completion.token, image }
    }
}

/// A read that a view waits for, to be done by the caller of the view.
#[derive(Debug)]
pub struct ViewRead {
    request: Request,
    expected: Arc<Expected>,
}

impl ViewRead {
    /// Has `perform` do the read, and checks what came. Pure work apart from that, to be done
    /// without any lock.
    #[must_use]
    pub fn run(self, perform: impl FnOnce(Request) -> Completion) -> CheckedRead {
        self.expected.check(perform(self.request))
    }
}

/// What came of a [`ViewRead`].
#[derive(Debug)]
pub struct CheckedRead {
    token: Token,
    /// The image, or what is wrong with it.
    image: Result<Arc<Image>, String>,
}

/// Views that wait for reads.
#[derive(Default)]
pub(super) struct Views {
    next: u64,
    pending: BTreeMap<ViewId, PendingView>,
    reads: BTreeMap<Token, PendingRead>,
    by_extent: BTreeMap<Extent, Token>,
    /// Reads to submit at the next pump.
    wanted: Vec<(Part, Extent, ViewId)>,
    answered: Vec<(ViewId, Result<View, Error>)>,
}

enum Spilled {
    /// The updates, older parts first.
    Here(Vec<Waiting<'static>>),
    NeedsRead(Arc<SpillSegment>),
}

enum Gathered {
    Complete(View),
    NeedsRead(Part, Extent),
}

impl Core {
    /// Gathers what a query needs. Cost: a search of the directory and a copy of the queue; at most
    /// one read, and one for each spill segment that seems to have the key, at the next pumps.
    ///
    /// # Errors
    /// [`RequestError::NoTable`] if the space does not exist; [`Error::Damaged`] if the block could
    /// not be read when it was swept.
    pub fn view(&mut self, space: u32, wanted: Wanted) -> Result<ViewPoll, Error> {
        let view = PendingView { space, wanted, images: Vec::new() };
        match self.gather(&view)? {
            Gathered::Complete(view) => Ok(ViewPoll::Ready(view)),
            Gathered::NeedsRead(part, extent) => {
                self.views.next += 1;
                let id = ViewId(self.views.next);
                self.views.pending.insert(id, view);
                self.views.wanted.push((part, extent, id));
                Ok(ViewPoll::Pending(id))
            }
        }
    }

    fn gather(&mut self, view: &PendingView) -> Result<Gathered, Error> {
        let PendingView { space, wanted, .. } = view;
        let space = *space;
        let no_table = || RequestError::NoTable(format!("number {space}"));
        let found_space = self.directory.space(space).ok_or_else(no_table)?;
        let found = self.wanted_block(found_space, wanted);
        if let Some(view) = self.pending_without_block(found_space, wanted, found) {
            return Ok(Gathered::Complete(view));
        }
        let Some(id) = found else { return Ok(Gathered::Complete(View::default())) };
        let mut waiting = Vec::new();
        let block = self.directory.block(id);
        let low = Box::from(&*block.key);
        let mut high = None;
        let pending = &found_space.pending;
        match wanted {
            Wanted::Point(key) => {
                waiting.extend(block.frozen.as_ref().map(|frozen| frozen.of_key(key).into_owned()));
                if block.waits() {
                    waiting.push(self.arena.snapshot(&block.queue, &low).of_key(key).into_owned());
                }
                if pending.len() > 0 {
                    let position = found_space.format.position(key);
                    let after = [&position, &[0][..]].concat();
                    waiting.push(pending.in_range(&position, Some(&after), |found| found == key));
                }
            }
            _ => {
                high = self.high_of(space, &low);
                waiting.extend(block.frozen.as_ref().map(|frozen| frozen.unpack().into_owned()));
                waiting.push(self.arena.snapshot(&block.queue, &low).unpack().into_owned());
                waiting.push(pending.in_range(&low, high.as_deref(), |_| true));
            }
        }
        waiting.retain(|part| part.count() > 0);
        let placement = block.placement();
        if placement.extent.is_some() && placement.frontier != placement.image_seq {
            return Err(self.set_aside(id).into());
        }
        let extent = placement.extent;
        let is_point = matches!(wanted, Wanted::Point(_));
        if !(is_point && self.is_decided(&waiting)) {
            match self.gather_spilled(view, id)? {
                Spilled::Here(mut spilled) => {
                    spilled.append(&mut waiting);
                    waiting = spilled;
                }
                Spilled::NeedsRead(segment) => {
                    let extent = segment.record.extent;
                    return Ok(Gathered::NeedsRead(Part::SpillSegment(segment), extent));
                }
            }
        }
        let decided = is_point && self.is_decided(&waiting);
        self.check_modifiers(&waiting)?;
        let image = match extent.filter(|_| !decided) {
            None => None,
            Some(extent) => match self.image_at(view, extent, placement.image_seq) {
                Some(image) => Some(image),
                None => return Ok(Gathered::NeedsRead(Part::Block(id), extent)),
            },
        };
        Ok(Gathered::Complete(View { low, high, extent, image, waiting }))
    }

    fn wanted_block(&self, of: &Space, wanted: &Wanted) -> Option<BlockId> {
        let space = of.record.space;
        match wanted {
            Wanted::Point(key) => self.directory.covering(space, &of.format.position(key)),
            Wanted::Covering(position) => self.directory.covering(space, position),
            Wanted::Below(position) => self.directory.below(space, position.as_deref()),
            Wanted::AtOrAbove(position) => {
                let exact = self.directory.exact(space, position);
                exact.or_else(|| self.directory.above(space, position))
            }
        }
    }

    /// What was read at this place, for the view or for others.
    fn image_at(&mut self, view: &PendingView, extent: Extent, seq: u64) -> Option<Arc<Image>> {
        let read = view.images.iter().find(|image| (image.0, image.1) == (extent, seq));
        read.map(|image| Arc::clone(&image.2)).or_else(|| self.cache.get(extent))
    }

    /// What spill segments have for a view of a block.
    fn gather_spilled(&mut self, view: &PendingView, id: BlockId) -> Result<Spilled, Error> {
        let mut found = Vec::new();
        for segment in self.spill_segments_of(view.space, id) {
            if matches!(&view.wanted, Wanted::Point(key) if !segment.may_have(key)) {
                continue;
            }
            let SpillSegmentRecord { extent, through, .. } = segment.record;
            let Some(image) = self.image_at(view, extent, through) else {
                return Ok(Spilled::NeedsRead(segment));
            };
            let Some(space) = self.directory.space(view.space) else { continue };
            let (format, body) = (&*space.format, image.body());
            let waiting = if let Wanted::Point(key) = &view.wanted {
                spill_segments::waiting_of(body, key, &format.position(key))
                    .map(|found| vec![found])
            } else {
                let low = &self.directory.block(id).key;
                let high = self.high_of(view.space, low);
                spill_segments::waiting_in(body, low, high.as_deref(), format)
            };
            let what =
                || format!("spill segment {:?}", String::from_utf8_lossy(&segment.record.low));
            let waiting = waiting.map_err(|malformed| {
                let (device, offset) = (extent.device, extent.offset);
                Damage { device, offset, what: what(), reason: malformed.to_string() }
            })?;
            found.extend(waiting.into_iter().map(Waiting::into_owned));
        }
        found.retain(|part| part.count() > 0);
        Ok(Spilled::Here(found))
    }

    /// The view of a block of exact routing that is wanted, is not there yet, and for which updates
    /// are pending; `found` is the block that is there.
    fn pending_without_block(
        &self,
        space: &Space,
        wanted: &Wanted,
        found: Option<BlockId>,
    ) -> Option<View> {
        let is_exact = space.format.routing() == Routing::Exact;
        if !is_exact || space.pending.len() == 0 {
            return None;
        }
        let low: Box<[u8]> = match wanted {
            Wanted::Point(_) | Wanted::Covering(_) if found.is_some() => return None,
            Wanted::Point(key) => Box::from(&*space.format.position(key)),
            Wanted::Covering(position) => position.clone().into(),
            Wanted::Below(position) => {
                let last = space.pending.last_below(position.as_deref())?;
                if found.is_some_and(|id| *self.directory.block(id).key >= *last) {
                    return None;
                }
                last.into()
            }
            Wanted::AtOrAbove(position) => {
                let first = space.pending.first_from(position)?;
                if found.is_some_and(|id| *self.directory.block(id).key <= *first) {
                    return None;
                }
                first.into()
            }
        };
        let after = [&*low, &[0]].concat();
        let is_wanted = |found: &[u8]| match wanted {
            Wanted::Point(key) => key == found,
            _ => true,
        };
        let pending = space.pending.in_range(&low, Some(&after), is_wanted);
        Some(View { low, waiting: vec![pending], ..View::default() })
    }

    /// The damage of a block that could not be read when it was swept. Its updates went to the
    /// quarantine, so its image is not the answer even if it can be read by now.
    fn set_aside(&self, id: BlockId) -> Damage {
        let block = self.directory.block(id);
        let key = String::from_utf8_lossy(&block.key);
        let what = format!("block {key:?} of space {}", block.space);
        let extent = block.extent();
        let (device, offset) =
            extent.map_or((DeviceId(0), 0), |extent| (extent.device, extent.offset));
        let set_aside = "it could not be read when it was swept, and updates of it are in the \
                         quarantine: retry them";
        let is_lost = block.placement().has_lost_updates();
        let reason = if is_lost { LOST_UPDATES } else { set_aside }.to_owned();
        Damage { device, offset, what, reason }
    }

    /// Whether all that waits can be applied. In a store that is open for reading only modifiers
    /// may be missing, and nobody can tell what such an update makes of its key.
    fn check_modifiers(&self, waiting: &[Waiting<'_>]) -> Result<(), Error> {
        if self.modifier_records.iter().all(|record| self.modifiers.get(record.id).is_some()) {
            return Ok(());
        }
        let is_missing = |update: &UpdateRef<'_>| {
            update.modifier != DELETE_RANGE && self.modifiers.get(update.modifier).is_none()
        };
        let missing = waiting.iter().flat_map(Waiting::updates).find(is_missing);
        missing.map_or(Ok(()), |update| Err(self.unknown_modifier(update.modifier)))
    }

    /// Whether the updates of one key give its value without knowing the one before.
    fn is_decided(&self, waiting: &[Waiting<'_>]) -> bool {
        let is_blind = |update: UpdateRef<'_>| {
            self.modifiers.get(update.modifier).is_some_and(Modifier::blind)
        };
        waiting.iter().flat_map(Waiting::updates).any(is_blind)
    }

    /// Submits the reads that views need, one per block, and hands out the answers.
    pub(super) fn pump_views(&mut self, actions: &mut Actions) {
        for (part, extent, id) in std::mem::take(&mut self.views.wanted) {
            let read = self.begin_view_read(part, extent, id);
            actions.requests.extend(read.map(|read| read.request));
        }
        actions.views.append(&mut self.views.answered);
    }

    /// The read that a pending view needs, for its caller to do and then to give to
    /// [`Core::complete_read`]; `None` if that read is on its way already.
    pub fn take_read(&mut self, id: ViewId) -> Option<ViewRead> {
        let position = self.views.wanted.iter().position(|wanted| wanted.2 == id)?;
        let (part, extent, id) = self.views.wanted.remove(position);
        self.begin_view_read(part, extent, id)
    }

    /// Takes the outcome of a read, and answers the view that it was done for; `None` if it needs
    /// another: of a spill segment, or because the block has moved meanwhile.
    pub fn complete_read(
        &mut self,
        id: ViewId,
        checked: CheckedRead,
    ) -> Option<Result<View, Error>> {
        self.in_flight.remove(&checked.token);
        self.end_view_read(checked);
        let position = self.views.answered.iter().position(|answered| answered.0 == id)?;
        Some(self.views.answered.swap_remove(position).1)
    }

    /// Whether the next [`Core::pump`] has something to do for views.
    #[must_use]
    pub fn has_views_to_pump(&self) -> bool {
        !self.views.wanted.is_empty() || !self.views.answered.is_empty()
    }

    /// Has a view wait for what is at `extent`; gives the read, unless it is on its way already.
    fn begin_view_read(&mut self, part: Part, extent: Extent, id: ViewId) -> Option<ViewRead> {
        if let Some(token) = self.views.by_extent.get(&extent) {
            let read = self.views.reads.get_mut(token).expect("reads are listed twice");
            read.waiters.push(id);
            return None;
        }
        let store = self.config.store;
        let expected = match &part {
            Part::Block(block) => {
                let block = self.directory.block(*block);
                let Placement { image_space: space, image_seq: seq, .. } = block.placement();
                Expected { store, kind: ImageKind::Block, space, key: Box::from(&*block.key), seq }
            }
            Part::SpillSegment(segment) => {
                let Identity { kind, space, seq, key, .. } =
                    spill_segments::identity(store, &segment.record);
                Expected { store, kind, space, key: key.into(), seq }
            }
        };
        let expected = Arc::new(expected);
        let request = self.read_request(IoKind::View, Some(expected.space), extent);
        self.views.by_extent.insert(extent, request.token);
        let (waiters, check) = (vec![id], Arc::clone(&expected));
        let read = PendingRead { part, extent, expected: check, waiters };
        self.views.reads.insert(request.token, read);
        self.metrics.query_reads_total.add(1);
        Some(ViewRead { request, expected })
    }

    pub(super) fn view_read_done(&mut self, completion: Completion) {
        let read = self.views.reads.get(&completion.token).expect("a view read is listed");
        let checked = read.expected.check(completion);
        self.end_view_read(checked);
    }

    /// Puts an image that was read into the cache, and answers the views that wait for it.
    fn end_view_read(&mut self, checked: CheckedRead) {
        let read = self.views.reads.remove(&checked.token).expect("a view read is listed");
        self.views.by_extent.remove(&read.extent);
        let Expected { space, ref key, seq, .. } = *read.expected;
        let is_there = |id: BlockId| {
            let block = self.directory.block(id);
            let Placement { image_space, image_seq, extent, .. } = block.placement();
            (image_space, &*block.key, image_seq, extent) == (space, &**key, seq, Some(read.extent))
        };
        let (name, stayed) = match &read.part {
            // A block that shares the image may be left when the one that was asked for has moved.
            Part::Block(block) => {
                ("block", is_there(*block) || self.blocks_at(read.extent).any(is_there))
            }
            Part::SpillSegment(segment) => {
                ("spill segment", self.spill_segments.has(&segment.record))
            }
        };
        let mut damage = None;
        match checked.image {
            _ if !stayed => {}
            Ok(image) => {
                for id in &read.waiters {
                    if let Some(view) = self.views.pending.get_mut(id) {
                        view.images.push((read.extent, seq, Arc::clone(&image)));
                    }
                }
                self.cache.put(read.extent, image);
            }
            Err(reason) => {
                let key = String::from_utf8_lossy(key);
                let what = format!("{name} {key:?} of space {space}");
                let (device, offset) = (read.extent.device, read.extent.offset);
                self.note_damage(Finder::Query, Some(read.extent), &format!("{what}: {reason}"));
                damage = Some(Damage { device, offset, what, reason });
            }
        }
        for id in read.waiters {
            self.answer(id, damage.as_ref());
        }
    }

    fn answer(&mut self, id: ViewId, damage: Option<&Damage>) {
        let Some(pending) = self.views.pending.remove(&id) else { return };
        let answer = match damage {
            Some(damage) => Err(damage.clone().into()),
            None => match self.gather(&pending) {
                Ok(Gathered::Complete(view)) => Ok(view),
                Ok(Gathered::NeedsRead(part, extent)) => {
                    self.views.wanted.push((part, extent, id));
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
