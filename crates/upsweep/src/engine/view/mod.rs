//! Views: what a query needs of one block, gathered without blocking anything.
//!
//! A view is the block's checked image and a copy of the updates that wait for it; applying them is
//! done by the caller, outside of any lock. The device is not accessed if the waiting updates of a
//! key decide alone, or the cache has the image. Of the spill segments, those whose filters match
//! the key are read. (Bosc paper, section 4.4.)
//!
//! Invariant: image and waiting updates of a view belong together. A view gathers again after each
//! read, and discards images that were read for it but are no longer at their place, so nothing has
//! to be pinned.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

mod ahead;
mod gather;
mod turns;

pub(super) use ahead::Scans;
pub use ahead::{AheadImage, AheadOf, AheadPart, AheadRequest, Arrived, Planned, ScanId};
pub(super) use gather::gather;

use super::base::Base;
use super::block_format::UpdateRef;
use super::cache::Image;
use super::directory::BlockId;
use super::foreground::ForegroundRequests;
use super::format::image_format::{self, Identity, ImageKind};
use super::format::record_format::Placement;
use super::io::IoKind;
use super::queue::Waiting;
use super::spill_segments::{self, SpillSegment};
use super::versions::Version;
use crate::broken::{self, Fault};
use crate::device::{Completion, Request, Token};
use crate::engine::ids::SpaceId;
use crate::error::{Damage, Error};
use crate::log::Seq;
use crate::metrics::Finder;
use crate::placement::Extent;

/// Reads for views in flight up to which spill segments are read ahead.
const READS_AHEAD_MAX: usize = 16;

/// Number of a view within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ViewId(pub u64);

/// The block that is wanted, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Everything that concerns this one key.
    Point(Vec<u8>),
    /// The whole block that covers this position (of a table, a position is a key).
    Covering(Vec<u8>),
    /// The block that covers the first of these positions, and of what waits for it what may
    /// concern positions from `from` up to but not including `to`. Cheaper than the whole block if
    /// much waits.
    Range {
        /// The first position.
        from: Vec<u8>,
        /// The first one behind the range.
        to: Vec<u8>,
    },
    /// The whole last block with positions below this one (`None`: the last of the space).
    Below(Option<Vec<u8>>),
    /// The whole first block whose key is at or above this position.
    AtOrAbove(Vec<u8>),
}

/// The state of a block.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The block's key.
    pub low: Box<[u8]>,
    /// The earliest key at which the next block can begin: for ordered routing its key, for exact
    /// routing the successor of this block's key; `None` if there is none. Meaningless for a point
    /// view.
    pub high: Option<Box<[u8]>>,
    /// The place of its image, if it has one.
    pub extent: Option<Extent>,
    /// The sequence that names its image; [`Seq::NONE`] if it has none.
    pub image_seq: Seq,
    /// Its image; `None` if it has none, or if the waiting updates decide without it.
    pub image: Option<Arc<Image>>,
    /// Waiting updates, older ones first; of a point or a range only what may concern it.
    pub waiting: Vec<Waiting<'static>>,
    /// The spill segments that were read for it.
    pub(super) segments: Vec<ReadImage>,
    /// Tells whether it still is the state of the block.
    pub version: Version,
}

/// What was read for a view: the place, the sequence that it names, and the image.
pub(super) type ReadImage = (Extent, Seq, Arc<Image>);

impl View {
    /// The waiting updates, older ones first.
    #[must_use]
    pub fn updates(&self) -> Vec<UpdateRef<'_>> {
        self.waiting.iter().flat_map(Waiting::updates).collect()
    }

    /// The error that `what` in this block is not what was written there.
    #[must_use]
    pub fn damage(&self, what: String, reason: String) -> Error {
        Damage { location: self.extent.map(Extent::location), what, reason }.into()
    }
}

/// The answer to a request for a view.
#[derive(Debug)]
pub enum ViewPoll {
    /// The view.
    Ready(View),
    /// A read is in flight; the view will be among [`Actions::views`](super::Actions::views).
    Pending(ViewId),
}

/// The outcome of a pending view.
pub(super) type ViewAnswer = Result<View, Error>;

pub(super) struct PendingView {
    pub(super) space: SpaceId,
    pub(super) wanted: Wanted,
    /// What was read for it.
    pub(super) images: Vec<ReadImage>,
    /// Whether it leaves the cache as it is: it is one of many views of a scan, which will not look
    /// at this block again.
    pub(super) passes_cache: bool,
}

/// The target of a read.
#[derive(Clone)]
pub(super) enum ReadTarget {
    /// The image of a block.
    Block(BlockId),
    SpillSegment(Arc<SpillSegment>),
}

struct PendingRead {
    target: ReadTarget,
    extent: Extent,
    expected: Arc<Expected>,
    waiters: Vec<ViewId>,
}

/// The identity that an image must have to be the one that a view needs.
#[derive(Debug)]
struct Expected {
    store: [u8; 16],
    kind: ImageKind,
    number: u32,
    key: Box<[u8]>,
    seq: Seq,
}

impl Expected {
    /// Of the image of this block.
    fn of_block(base: &Base, id: BlockId) -> Self {
        let block = base.index.directory().block(id);
        let Placement { image_space, image_seq: seq, .. } = block.placement();
        let (store, number, key) = (base.config.store, image_space.get(), Box::from(&*block.key));
        Self { store, kind: ImageKind::Block, number, key, seq }
    }

    /// The range of the body in an image.
    fn check(&self, image: &[u8]) -> Result<Range<usize>, String> {
        let &Self { store, kind, number, ref key, seq } = self;
        image_format::decode(image, &Identity { store, kind, number, seq, key })
    }

    fn check_read(&self, completion: Completion) -> CheckedRead {
        let image = match (completion.result, completion.buffer) {
            (Ok(()), Some(buffer)) => {
                self.check(&buffer).map(|body| Arc::new(Image::new(Arc::new(buffer), body)))
            }
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
    /// Performs the read with `perform`, and checks the result. Pure work apart from that, to be
    /// done without any lock.
    #[must_use]
    pub fn run(self, perform: impl FnOnce(Request) -> Completion) -> CheckedRead {
        self.expected.check_read(perform(self.request))
    }

    /// As [`ViewRead::run`], of several reads: their outcomes, in the same order.
    #[must_use]
    pub fn run_all(
        reads: Vec<Self>,
        perform_all: impl FnOnce(Vec<Request>) -> Vec<Completion>,
    ) -> Vec<CheckedRead> {
        let split = |read: Self| ((read.request.token, read.expected), read.request);
        let (expected, requests): (Vec<_>, Vec<_>) = reads.into_iter().map(split).unzip();
        let completions = perform_all(requests).into_iter();
        let mut completions: BTreeMap<Token, Completion> =
            completions.map(|completion| (completion.token, completion)).collect();
        let check = |(token, expected): (Token, Arc<Expected>)| {
            let completion = completions.remove(&token);
            expected.check_read(completion.expect("each request has a completion"))
        };
        expected.into_iter().map(check).collect()
    }
}

/// The outcome of a [`ViewRead`].
#[derive(Debug)]
pub struct CheckedRead {
    token: Token,
    /// The image, or a description of the problem.
    image: Result<Arc<Image>, String>,
}

/// Views that wait for reads.
#[derive(Default)]
pub(super) struct Views {
    next: u64,
    /// Reads of queries so far.
    queries: u64,
    pending: BTreeMap<ViewId, PendingView>,
    reads: BTreeMap<Token, PendingRead>,
    by_extent: BTreeMap<Extent, Token>,
    /// Reads to submit at the next pump.
    wanted: Vec<(ReadTarget, Extent, ViewId)>,
    answered: Vec<(ViewId, ViewAnswer)>,
}

pub(super) enum Gathered {
    Complete(View),
    NeedsRead(ReadTarget, Extent),
}

impl Views {
    /// Gathers what a query needs. Cost: a search of the directory and a copy of the queue; at most
    /// one read, and one for each spill segment that seems to have the key, at the next pumps.
    ///
    /// # Errors
    /// [`RequestError::NoTable`] if the space does not exist; [`Error::Damaged`] if the block could
    /// not be read when it was swept.
    pub(super) fn view(
        &mut self,
        base: &mut Base,
        space: SpaceId,
        wanted: Wanted,
    ) -> Result<ViewPoll, Error> {
        let view = PendingView { space, wanted, images: Vec::new(), passes_cache: false };
        self.begin(base, view)
    }

    /// As [`Views::view`], for a scan that has read this image ahead: it is used if it is still the
    /// image of the block. Blocks that are read for this view do not enter the cache.
    pub(super) fn view_for_scan(
        &mut self,
        base: &mut Base,
        space: SpaceId,
        wanted: Wanted,
        ahead: Option<AheadImage>,
    ) -> Result<ViewPoll, Error> {
        let mut images: Vec<_> = ahead.into_iter().map(ReadImage::from).collect();
        if broken::is(Fault::ScanOfMoved)
            && let Some(id) = base
                .index
                .directory()
                .space(space)
                .and_then(|space| gather::wanted_block(base, space, &wanted))
        {
            let Placement { extent, image_seq, .. } = base.index.directory().block(id).placement();
            images.retain_mut(|image| {
                (image.0, image.1) = (extent.unwrap_or(image.0), image_seq);
                true
            });
        }
        self.begin(base, PendingView { space, wanted, images, passes_cache: true })
    }

    /// As [`Views::view_for_scan`], but `None` if anything has to be read for it.
    pub(super) fn view_if_here(
        base: &mut Base,
        space: SpaceId,
        wanted: Wanted,
        ahead: Option<AheadImage>,
    ) -> Result<Option<View>, Error> {
        let images = ahead.into_iter().map(ReadImage::from).collect();
        match gather(base, &PendingView { space, wanted, images, passes_cache: true })? {
            Gathered::Complete(view) => Ok(Some(view)),
            Gathered::NeedsRead(..) => Ok(None),
        }
    }

    fn begin(&mut self, base: &mut Base, view: PendingView) -> Result<ViewPoll, Error> {
        match gather(base, &view)? {
            Gathered::Complete(view) => Ok(ViewPoll::Ready(view)),
            Gathered::NeedsRead(target, extent) => {
                self.queries += u64::from(!view.passes_cache);
                self.next += 1;
                let id = ViewId(self.next);
                self.pending.insert(id, view);
                self.wanted.push((target, extent, id));
                Ok(ViewPoll::Pending(id))
            }
        }
    }

    /// Submits the reads that views need, one per block, and hands out the answers.
    pub(super) fn pump(&mut self, base: &mut Base, answers: &mut Vec<(ViewId, ViewAnswer)>) {
        for (target, extent, id) in std::mem::take(&mut self.wanted) {
            if let Some(read) = self.begin_read(base, target, extent, id) {
                base.io.send(read.request);
            }
        }
        answers.append(&mut self.answered);
    }

    /// The read that a pending view needs, for its caller to perform and pass to
    /// [`Views::complete_read`]; `None` if that read is already in flight.
    pub(super) fn take_read(&mut self, base: &mut Base, id: ViewId) -> Option<ViewRead> {
        let position = self.wanted.iter().position(|wanted| wanted.2 == id)?;
        let (target, extent, id) = self.wanted.remove(position);
        self.begin_read(base, target, extent, id)
    }

    /// Takes the outcome of a read, and answers the view that it was done for; `None` if it needs
    /// another read: of a spill segment, or because the block has moved in the meantime.
    pub(super) fn complete_read(
        &mut self,
        base: &mut Base,
        id: ViewId,
        checked: CheckedRead,
    ) -> Option<ViewAnswer> {
        base.io.completed(checked.token);
        if broken::is(Fault::LostReaders)
            && let Some(read) = self.reads.get_mut(&checked.token)
        {
            read.waiters.retain(|waiter| *waiter == id);
        }
        self.end_read(base, checked);
        let position = self.answered.iter().position(|answered| answered.0 == id)?;
        Some(self.answered.swap_remove(position).1)
    }

    /// Reads for views of queries, not of scans. Cost: O(views of scans that wait).
    pub(super) fn queries(&self) -> ForegroundRequests {
        let are_waiting = self.pending.values().any(|view| !view.passes_cache);
        ForegroundRequests { begun: self.queries, are_waiting }
    }

    /// Whether the next [`Views::pump`] has something to do for views.
    pub(super) fn has_some_to_pump(&self) -> bool {
        !self.wanted.is_empty() || !self.answered.is_empty()
    }

    /// Makes a view wait for `extent`; returns the read, unless it is already in flight.
    fn begin_read(
        &mut self,
        base: &mut Base,
        target: ReadTarget,
        extent: Extent,
        id: ViewId,
    ) -> Option<ViewRead> {
        if let Some(token) = self.by_extent.get(&extent) {
            let read = self.reads.get_mut(token).expect("reads are listed twice");
            read.waiters.push(id);
            return None;
        }
        Some(self.read(base, target, extent, vec![id]))
    }

    /// Reads the spill segments with updates of the blocks with these keys into the cache, as far
    /// as they are not there: a scan gets to these blocks soon, and would have to wait for each.
    pub(super) fn read_segments_ahead<'a>(
        &mut self,
        base: &mut Base,
        space: SpaceId,
        keys: impl Iterator<Item = &'a [u8]>,
    ) {
        for key in keys {
            let Some(id) = base.index.directory().exact(space, key) else { continue };
            for segment in base.index.spill_segments_of(space, id) {
                let extent = segment.record.extent;
                let is_read = base.index.cache.has(extent) || self.by_extent.contains_key(&extent);
                if !is_read && self.reads.len() < READS_AHEAD_MAX {
                    let target = ReadTarget::SpillSegment(segment);
                    let read = self.read(base, target, extent, Vec::new());
                    base.io.send(read.request);
                }
            }
        }
    }

    fn read(
        &mut self,
        base: &mut Base,
        target: ReadTarget,
        extent: Extent,
        waiters: Vec<ViewId>,
    ) -> ViewRead {
        let store = base.config.store;
        let (owner, expected) = match &target {
            ReadTarget::Block(block) => {
                let placement = base.index.directory().block(*block).placement();
                (placement.image_space, Expected::of_block(base, *block))
            }
            ReadTarget::SpillSegment(segment) => {
                base.metrics.query_waiting_bytes_total.add(u64::from(extent.bytes));
                let Identity { kind, number, seq, key, .. } =
                    spill_segments::identity(store, &segment.record);
                let key = key.into();
                (segment.record.space, Expected { store, kind, number, key, seq })
            }
        };
        let expected = Arc::new(expected);
        let request = base.io.read_request(IoKind::View, Some(owner), extent);
        self.by_extent.insert(extent, request.token);
        let check = Arc::clone(&expected);
        let read = PendingRead { target, extent, expected: check, waiters };
        self.reads.insert(request.token, read);
        base.metrics.query_reads_total.add(1);
        ViewRead { request, expected }
    }

    pub(super) fn read_done(&mut self, base: &mut Base, completion: Completion) {
        let read = self.reads.get(&completion.token).expect("a view read is listed");
        let checked = read.expected.check_read(completion);
        self.end_read(base, checked);
    }

    /// Caches an image that was read, and answers the views that wait for it.
    fn end_read(&mut self, base: &mut Base, checked: CheckedRead) {
        let read = self.reads.remove(&checked.token).expect("a view read is listed");
        self.by_extent.remove(&read.extent);
        let Expected { number, ref key, seq, .. } = *read.expected;
        let is_there = |id: BlockId| {
            let block = base.index.directory().block(id);
            let Placement { image_space, image_seq, extent, .. } = block.placement();
            let found = (image_space.get(), &*block.key, image_seq, extent);
            found == (number, &**key, seq, Some(read.extent))
        };
        let (name, stayed) = match &read.target {
            // When the requested block has moved, another block that shares the image may still be
            // there.
            ReadTarget::Block(block) => {
                ("block", is_there(*block) || base.index.blocks_at(read.extent).any(is_there))
            }
            ReadTarget::SpillSegment(segment) => {
                ("spill segment", base.index.spill_segments.has(&segment.record))
            }
        };
        let mut damage = None;
        match checked.image {
            _ if !stayed && !broken::is(Fault::ReadOfMoved) => {}
            Ok(image) => {
                let place = match &read.target {
                    ReadTarget::Block(block) if broken::is(Fault::ReadOfMoved) => {
                        let Placement { extent, image_seq, .. } =
                            base.index.directory().block(*block).placement();
                        (extent.unwrap_or(read.extent), image_seq)
                    }
                    _ => (read.extent, seq),
                };
                // Many blocks have updates in one spill segment.
                let mut passes_cache = matches!(read.target, ReadTarget::Block(_));
                for id in &read.waiters {
                    let view = self.pending.get_mut(id);
                    passes_cache &= view.as_ref().is_some_and(|view| view.passes_cache);
                    if let Some(view) = view {
                        view.images.push((place.0, place.1, Arc::clone(&image)));
                    }
                }
                if !passes_cache {
                    base.index.cache.put(read.extent, image);
                }
            }
            Err(reason) => {
                let key = String::from_utf8_lossy(key);
                let what = format!("{name} {key:?} of space {number}");
                let location = Some(read.extent.location());
                let (extent, met) = (Some(read.extent), format!("{what}: {reason}"));
                base.measured.note_damage(Finder::Query, extent, &met);
                damage = Some(Damage { location, what, reason });
            }
        }
        for id in read.waiters {
            self.answer(base, id, damage.as_ref());
        }
    }

    fn answer(&mut self, base: &mut Base, id: ViewId, damage: Option<&Damage>) {
        let Some(pending) = self.pending.remove(&id) else { return };
        let answer = match damage {
            Some(damage) => Err(damage.clone().into()),
            None => match gather(base, &pending) {
                Ok(Gathered::Complete(view)) => Ok(view),
                Ok(Gathered::NeedsRead(target, extent)) => {
                    self.wanted.push((target, extent, id));
                    self.pending.insert(id, pending);
                    return;
                }
                Err(error) => Err(error),
            },
        };
        self.answered.push((id, answer));
    }

    /// Forgets a view whose caller has gone.
    pub(super) fn forget(&mut self, id: ViewId) {
        self.pending.remove(&id);
    }
}
