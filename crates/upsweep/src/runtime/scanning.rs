//! A scan over successive blocks of a space in one direction, without threads and locks: the
//! runtime and the simulator share it.
//!
//! Steps, for each block: take the view that was [gathered](Scan::take_gathered) with that of an
//! earlier block, if it still is the state of its block; else [prepare](Scan::prepare) the image
//! that was read ahead, which checks it and needs no lock; if it is still being read, wait until
//! the core tells of the scan, and [take](Scan::take_arrived) what has arrived; ask for the
//! [view](Scan::view), which offers the image to the core and requests what comes next, and
//! [gather](Scan::gather_more) those of the next blocks, which saves taking the core for each;
//! [note](Scan::note) the view. At its end a scan must [end](Scan::end).
//!
//! Reading ahead begins with the third block, so who wants a few records reads no more than these;
//! where devices rotate and the scan ends at a bound, with the first. It begins with a few blocks,
//! or where devices rotate with long requests, and goes twice as far each time that the scan has to
//! wait for the device, up to the limit. So a scan is as far ahead as it has to be to find its
//! blocks read, and no further: where its caller is slower than the device, most of the device is
//! left to others.
//!
//! Invariants: a view is the state of its block when the scan gets there; the order in which blocks
//! are shown does not depend on what is read ahead; what has been read of a block is released when
//! the scan is past it; an image is used only where the core says that it still is the block's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::broken::{self, Fault};
use crate::device::{Buffer, Token};
use crate::engine::{
    AheadImage, AheadOf, AheadPart, AheadRequest, Core, ScanId, SpaceId, Versions, View, ViewPoll,
    Wanted,
};
use crate::error::Error;

/// Blocks that a scan goes over before it reads ahead, unless it is known where it ends and a long
/// request takes little longer than one more short one.
const BLOCKS_BEFORE: u32 = 2;
/// Blocks that it first reads ahead.
const BLOCKS_FIRST: usize = 4;
/// Views of further blocks that are gathered at a time: enough that it matters little how long a
/// scan waits for the core, and few enough that most are current when the scan gets there.
const GATHERED_MAX: usize = 16;

/// A block that is read ahead.
struct Part {
    part: AheadPart,
    state: PartState,
    is_used: bool,
}

enum PartState {
    InFlight,
    Here(Arc<Buffer>),
    Checked(AheadImage),
    /// Not readable, or not what was expected there.
    Lost,
}

/// A request of which the scan is not past everything, or that is in flight.
struct Held {
    bytes: usize,
    used_bytes: usize,
    /// Blocks in it that the scan is not past.
    parts: usize,
    has_arrived: bool,
}

/// A scan in one direction. Blocks are asked for one after another in that direction; the same may
/// be asked for again.
pub struct Scan {
    space: SpaceId,
    reverse: bool,
    /// The block shown last, and the number of different ones before it.
    last: Option<Box<[u8]>>,
    passed: u32,
    /// Once it reads ahead.
    id: Option<ScanId>,
    window_bytes: usize,
    /// The last block that was requested, or need not be.
    through: Option<Box<[u8]>>,
    is_over: bool,
    parts: VecDeque<Part>,
    /// Views of the next blocks, and what was wanted.
    gathered: VecDeque<(Wanted, View)>,
    versions: Option<Arc<Versions>>,
    requests: BTreeMap<Token, Held>,
    released_bytes: usize,
    unused_bytes: usize,
}

impl Scan {
    /// A scan that has not begun.
    #[must_use]
    pub fn new(space: SpaceId, reverse: bool) -> Self {
        Self {
            space,
            reverse,
            last: None,
            passed: 0,
            id: None,
            window_bytes: 0,
            through: None,
            is_over: false,
            parts: VecDeque::new(),
            gathered: VecDeque::new(),
            versions: None,
            requests: BTreeMap::new(),
            released_bytes: 0,
            unused_bytes: 0,
        }
    }

    /// Its number in the core, once it reads ahead.
    #[must_use]
    pub fn id(&self) -> Option<ScanId> {
        self.id
    }

    /// The view that was gathered with that of an earlier block, unless something has changed that
    /// it shows. Needs no lock.
    pub fn take_gathered(&mut self, wanted: &Wanted) -> Option<View> {
        let (of, view) = self.gathered.pop_front()?;
        let is_current = |versions: &Arc<Versions>| versions.is_current(view.version);
        let is_current = self.versions.as_ref().is_some_and(is_current);
        if of == *wanted && (is_current || broken::is(Fault::StaleScan)) {
            return Some(view);
        }
        self.gathered.clear();
        None
    }

    /// Checks the image that was read ahead for this view, if there is one, and those of the next
    /// blocks that are there; `false` if it is still being read. Needs no lock.
    pub fn prepare(&mut self, wanted: &Wanted) -> bool {
        if self.is_awaiting(wanted) {
            return false;
        }
        let next = self.parts.iter_mut().take(1 + GATHERED_MAX);
        for Part { part, state, .. } in next {
            if let PartState::Here(buffer) = state {
                *state = part.check(buffer).map_or(PartState::Lost, PartState::Checked);
            }
        }
        true
    }

    /// Whether the image that was requested for this view is still being read.
    pub fn is_awaiting(&mut self, wanted: &Wanted) -> bool {
        let part = self.part_for(wanted);
        part.is_some_and(|part| matches!(part.state, PartState::InFlight))
    }

    /// The scan has to wait for what it has requested: it goes further ahead from now on.
    pub fn note_wait(&mut self) {
        self.window_bytes = self.window_bytes.saturating_mul(2);
    }

    /// Takes what has been read.
    pub fn take_arrived(&mut self, core: &mut Core) {
        let Some(id) = self.id else { return };
        for arrived in core.take_arrived(id) {
            for part in self.parts.iter_mut().filter(|part| part.part.token == arrived.token) {
                let here = arrived.buffer.as_ref().map(Arc::clone);
                part.state = here.map_or(PartState::Lost, PartState::Here);
            }
            if let Some(held) = self.requests.get_mut(&arrived.token) {
                held.has_arrived = true;
            }
            self.let_go(arrived.token);
        }
    }

    /// Asks the core for the view of a block, offers what was read ahead for it, and requests what
    /// comes behind it, up to `bound`: forward no block at or above this position, in reverse none
    /// below the one that covers it.
    ///
    /// # Errors
    /// As [`Core::view`].
    pub fn view(
        &mut self,
        core: &mut Core,
        wanted: Wanted,
        bound: Option<&[u8]>,
    ) -> Result<ViewPoll, Error> {
        self.take_arrived(core);
        let reads_ahead = core.config().scan_requests_in_flight > 0;
        let is_bounded = bound.is_some() && core.config().rotates();
        let blocks_before = if is_bounded { 0 } else { BLOCKS_BEFORE };
        if self.id.is_none() && self.passed >= blocks_before && reads_ahead {
            self.id = Some(core.begin_scan());
        }
        let Some(id) = self.id else { return core.view(self.space, wanted) };
        let image = match self.part_for(&wanted).map(|part| &part.state) {
            Some(PartState::Checked(image)) => Some(image.clone()),
            _ => None,
        };
        let polled = core.view_for_scan(self.space, wanted.clone(), image)?;
        if matches!(polled, ViewPoll::Pending(_)) {
            self.note_wait();
        }
        self.read_ahead(core, id, wanted, bound);
        Ok(polled)
    }

    /// Gathers the views of the blocks behind this one whose images were read ahead and checked, up
    /// to `bound`, as [`Scan::view`]. Cost: that of a view for each, at most 16.
    pub fn gather_more(
        &mut self,
        core: &mut Core,
        wanted: &Wanted,
        view: &View,
        bound: Option<&[u8]>,
    ) {
        self.gathered.clear();
        if self.id.is_none() {
            return;
        }
        self.versions.get_or_insert_with(|| Arc::clone(core.versions()));
        let mut next = next_wanted(wanted, view, bound);
        let mut part = usize::from(self.part_for(wanted).is_some());
        while let Some(wanted) = next.take()
            && self.gathered.len() < GATHERED_MAX
            && let Some(Part { state: PartState::Checked(image), .. }) = self.parts.get(part)
            && let Ok(Some(view)) =
                core.view_if_here(self.space, wanted.clone(), Some(image.clone()))
        {
            // Another block may have its image in the cache.
            let is_of_part = view.image.as_ref().is_some_and(|of| Arc::ptr_eq(of, &image.image));
            part += usize::from(is_of_part);
            next = next_wanted(&wanted, &view, bound);
            self.gathered.push_back((wanted, view));
        }
    }

    fn read_ahead(&mut self, core: &mut Core, id: ScanId, wanted: Wanted, bound: Option<&[u8]>) {
        let (released, unused) = (&mut self.released_bytes, &mut self.unused_bytes);
        core.release_read(id, std::mem::take(released), std::mem::take(unused));
        let first_bytes = BLOCKS_FIRST * core.block_bytes() as usize;
        let first_bytes = first_bytes.max(core.config().scan_window_bytes_min());
        let window_bytes_max = core.config().scan_window_bytes().max(first_bytes);
        self.window_bytes = self.window_bytes.clamp(first_bytes, window_bytes_max);
        let is_ahead = |through: &[u8]| match &wanted {
            Wanted::Below(position) => position.as_ref().is_none_or(|at| *through < **at),
            Wanted::Point(at)
            | Wanted::Covering(at)
            | Wanted::Range { from: at, .. }
            | Wanted::AtOrAbove(at) => *through >= **at,
        };
        let through = self.through.take_if(|through| is_ahead(through));
        if through.is_some() && self.is_over {
            self.through = through;
            return;
        }
        let behind = through.map_or(AheadOf::View(wanted), AheadOf::Key);
        let (space, reverse, window_bytes) = (self.space, self.reverse, self.window_bytes);
        let request = AheadRequest { space, behind: &behind, reverse, bound, window_bytes };
        let planned = core.read_ahead(id, &request);
        let before = match behind {
            AheadOf::Key(key) => Some(key),
            AheadOf::View(_) => None,
        };
        (self.through, self.is_over) = (planned.through.or(before), planned.is_over);
        for part in planned.parts {
            let bytes = part.request_bytes;
            let held = Held { bytes, used_bytes: 0, parts: 0, has_arrived: false };
            self.requests.entry(part.token).or_insert(held).parts += 1;
            self.parts.push_back(Part { part, state: PartState::InFlight, is_used: false });
        }
        // Some may have been requested before those that the scan gets to first.
        let parts = self.parts.make_contiguous();
        parts.sort_by(|one, other| one.part.key().cmp(other.part.key()));
        if reverse {
            parts.reverse();
        }
    }

    /// Notes the view that the scan has got.
    pub fn note(&mut self, wanted: &Wanted, view: &View) {
        if self.last.as_deref() != Some(&*view.low) {
            self.last = Some(view.low.clone());
            self.passed = self.passed.saturating_add(1);
        }
        let Some(image) = &view.image else { return };
        if let Some(part) = self.part_for(wanted)
            && let PartState::Checked(ahead) = &part.state
            && Arc::ptr_eq(&ahead.image, image)
            && !std::mem::replace(&mut part.is_used, true)
        {
            let (token, bytes) = (part.part.token, part.part.bytes());
            self.requests.get_mut(&token).expect("a part's request is held").used_bytes += bytes;
        }
    }

    /// Releases everything. Requests in flight complete without the scan.
    pub fn end(&mut self, core: &mut Core) {
        let Some(id) = self.id.take() else { return };
        self.parts.clear();
        self.gathered.clear();
        for held in std::mem::take(&mut self.requests).into_values().filter(|held| held.has_arrived)
        {
            self.released_bytes += held.bytes;
            self.unused_bytes += held.bytes - held.used_bytes;
        }
        core.release_read(id, self.released_bytes, self.unused_bytes);
        core.end_scan(id);
    }

    /// What was read ahead for a view; what the scan is past is dropped.
    fn part_for(&mut self, wanted: &Wanted) -> Option<&mut Part> {
        while let Some(first) = self.parts.front() {
            let is_past = match wanted {
                Wanted::Covering(at) | Wanted::Range { from: at, .. } => {
                    self.parts.get(1).is_some_and(|next| *next.part.key() <= **at)
                }
                Wanted::Point(at) | Wanted::AtOrAbove(at) => *first.part.key() < **at,
                Wanted::Below(at) => at.as_ref().is_some_and(|at| *first.part.key() >= **at),
            };
            if !is_past {
                break;
            }
            let token = first.part.token;
            self.parts.pop_front();
            self.requests.get_mut(&token).expect("a part's request is held").parts -= 1;
            self.let_go(token);
        }
        let first = self.parts.front_mut()?;
        let may_be = match wanted {
            Wanted::Covering(at) | Wanted::Range { from: at, .. } => *first.part.key() <= **at,
            _ => true,
        };
        may_be.then_some(first)
    }

    /// Releases a request that has arrived and of which the scan is past everything.
    fn let_go(&mut self, token: Token) {
        let is_over = |held: &Held| held.parts == 0 && held.has_arrived;
        if self.requests.get(&token).is_some_and(is_over)
            && let Some(held) = self.requests.remove(&token)
        {
            self.released_bytes += held.bytes;
            self.unused_bytes += held.bytes - held.used_bytes;
        }
    }
}

/// What a scan wants behind this view; `None` if nothing up to `bound`.
fn next_wanted(wanted: &Wanted, view: &View, bound: Option<&[u8]>) -> Option<Wanted> {
    let high = || view.high.as_deref().filter(|high| bound.is_none_or(|bound| *high < bound));
    match wanted {
        Wanted::Covering(_) | Wanted::Range { .. } => {
            high().map(|high| Wanted::Covering(high.to_vec()))
        }
        Wanted::AtOrAbove(_) => high().map(|high| Wanted::AtOrAbove(high.to_vec())),
        Wanted::Below(_) => {
            let is_over = view.low.is_empty() || bound.is_some_and(|bound| *view.low <= *bound);
            (!is_over).then(|| Wanted::Below(Some(view.low.to_vec())))
        }
        Wanted::Point(_) => None,
    }
}
