//! The blocks of a space one after another, from both ends.
//!
//! All scans of structures go over their blocks with this, so all of them read ahead: see
//! [`scanning`](super::scanning). A scan pins nothing and is no snapshot: it shows every block as
//! it is when it gets there.

#![expect(clippy::disallowed_methods, reason = "the runtime is where threads meet")]

use super::block_store::BlockStore;
use super::scanning::Scan;
use super::shared::Shared;
use crate::engine::block_format::Routing;
use crate::engine::{SpaceId, View, ViewPoll, Wanted};
use crate::error::{ClosedError, Error};
use crate::metrics::LockCause;

/// An iterator over the blocks of a space: see [`BlockStore::blocks`]. Ends after the first error.
pub struct Blocks {
    blocks: BlockStore,
    space: SpaceId,
    /// Known once the first block was looked up.
    routing: Option<Routing>,
    /// What comes next is the first block of the range, which may be a part of one.
    is_first: bool,
    /// Its view, if that was asked for with those of others.
    first: Option<View>,
    /// The first position that was not shown.
    from: Vec<u8>,
    /// The first position behind those; `None` if unbounded.
    to: Option<Vec<u8>>,
    is_over: bool,
    front: Scan,
    back: Scan,
}

impl Blocks {
    pub(super) fn new(
        blocks: BlockStore,
        space: SpaceId,
        from: Vec<u8>,
        to: Option<Vec<u8>>,
    ) -> Self {
        let is_over = to.as_ref().is_some_and(|to| *to <= from);
        let (front, back) = (Scan::new(space, false), Scan::new(space, true));
        let (routing, first) = (None, None);
        Self { blocks, space, routing, is_first: true, first, from, to, is_over, front, back }
    }

    /// The same, for a caller who knows how blocks of the space are found: the core need not be
    /// asked.
    pub(crate) fn routed(mut self, routing: Routing) -> Self {
        self.routing = Some(routing);
        self
    }

    /// A view of any block on behalf of this scan: as [`BlockStore::view`], but once the scan reads
    /// ahead the block does not enter the cache.
    ///
    /// # Errors
    /// As [`BlockStore::view`].
    pub fn view(&self, space: SpaceId, wanted: Wanted) -> Result<View, Error> {
        let passes_cache = self.front.id().is_some() || self.back.id().is_some();
        self.blocks.inner.shared.view_with(LockCause::Query, |core| match passes_cache {
            true => core.view_for_scan(space, wanted, None),
            false => core.view(space, wanted),
        })
    }

    /// Passes over all blocks below a position.
    pub fn skip_to(&mut self, position: &[u8]) {
        if *self.from < *position {
            self.from = position.to_vec();
            (self.is_first, self.first) = (true, None);
            self.is_over |= self.to.as_deref().is_some_and(|to| to <= position);
        }
    }

    fn routing(&mut self) -> Result<Routing, Error> {
        if let Some(routing) = self.routing {
            return Ok(routing);
        }
        let format = self.blocks.format_of(self.space)?;
        Ok(*self.routing.insert(format.routing()))
    }

    /// Asks for the first block of each of these, all of one store and space: what has to be read
    /// for them is in flight at the same time, where the host can. A block for which that fails is
    /// asked for again when it is its turn, and so is the only one.
    pub(crate) fn begin_all<'a>(all: impl Iterator<Item = &'a mut Self>) {
        let of = |each: &'a mut Self| each.wanted().ok().map(|wanted| (each, wanted));
        let begun = all.filter(|each| each.is_first && !each.is_over).filter_map(of);
        let (begun, wanted): (Vec<_>, Vec<_>) = begun.unzip();
        let [first, _, ..] = &begun[..] else { return };
        let views = first.blocks.views(first.space, wanted);
        for (each, view) in begun.into_iter().zip(views) {
            each.first = view.ok();
        }
    }

    /// What to ask for as the next block from the low end.
    fn wanted(&mut self) -> Result<Wanted, Error> {
        let is_ordered = self.routing()? == Routing::Ordered;
        let from = self.from.clone();
        Ok(match &self.to {
            _ if !is_ordered => Wanted::AtOrAbove(from),
            // Most narrow ranges are in one block.
            Some(to) if self.is_first => Wanted::Range { from, to: to.clone() },
            _ => Wanted::Covering(from),
        })
    }

    /// The next block from the low end.
    fn first(&mut self) -> Result<Option<View>, Error> {
        let wanted = self.wanted()?;
        self.is_first = false;
        let shared = &self.blocks.inner.shared;
        let view = match self.first.take() {
            Some(view) => {
                self.front.note(&wanted, &view);
                view
            }
            None => shared.scan_view(&mut self.front, &wanted, self.to.as_deref())?,
        };
        match &view.high {
            Some(high) if self.to.as_ref().is_none_or(|to| **high < **to) => {
                self.from = high.to_vec();
            }
            _ => self.is_over = true,
        }
        let is_beyond = self.to.as_ref().is_some_and(|to| *view.low >= **to);
        let exists = self.routing()? == Routing::Ordered || view.high.is_some() && !is_beyond;
        Ok(exists.then_some(view))
    }

    /// The next block from the high end.
    fn last(&mut self) -> Result<Option<View>, Error> {
        let is_ordered = self.routing()? == Routing::Ordered;
        let wanted = Wanted::Below(self.to.clone());
        let shared = &self.blocks.inner.shared;
        let view = shared.scan_view(&mut self.back, &wanted, Some(&self.from))?;
        let exists = is_ordered || view.high.is_some() && *view.low >= *self.from;
        if exists && *view.low > *self.from {
            self.to = Some(view.low.to_vec());
        } else {
            self.is_over = true;
        }
        Ok(exists.then_some(view))
    }

    fn step(
        &mut self,
        step: fn(&mut Self) -> Result<Option<View>, Error>,
    ) -> Option<Result<View, Error>> {
        if self.is_over {
            return None;
        }
        let found = step(self);
        self.is_over |= !matches!(found, Ok(Some(_)));
        found.transpose()
    }
}

impl Iterator for Blocks {
    type Item = Result<View, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Self::first)
    }
}

impl DoubleEndedIterator for Blocks {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Self::last)
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let shared = &self.blocks.inner.shared;
        for scan in [&mut self.front, &mut self.back] {
            // Code that the core calls cannot get there; what the scan holds then counts for ever.
            if scan.id().is_some() && shared.check_caller().is_ok() {
                scan.end(&mut shared.lock_for(LockCause::Scan).core);
            }
        }
    }
}

impl Shared {
    /// The view of the next block of a scan, waiting for the device if necessary.
    fn scan_view(
        &self,
        scan: &mut Scan,
        wanted: &Wanted,
        bound: Option<&[u8]>,
    ) -> Result<View, Error> {
        self.check_caller()?;
        let view = match scan.take_gathered(wanted).filter(|_| !self.has_ended()) {
            Some(view) => view,
            None => self.next_view(scan, wanted, bound)?,
        };
        scan.note(wanted, &view);
        Ok(view)
    }

    /// The view of the next block of a scan from the core, which also gathers those behind it.
    fn next_view(
        &self,
        scan: &mut Scan,
        wanted: &Wanted,
        bound: Option<&[u8]>,
    ) -> Result<View, Error> {
        while !scan.prepare(wanted) {
            self.wait_for_scan(scan, wanted)?;
        }
        self.view_with(LockCause::Scan, |core| {
            let polled = scan.view(core, wanted.clone(), bound)?;
            if let ViewPoll::Ready(view) = &polled {
                scan.gather_more(core, wanted, view, bound);
            }
            Ok(polled)
        })
    }

    /// Waits until what a scan has requested for this view has arrived.
    fn wait_for_scan(&self, scan: &mut Scan, wanted: &Wanted) -> Result<(), Error> {
        let Some(id) = scan.id() else { return Ok(()) };
        for looks in 0.. {
            let mut guard = self.lock_for(LockCause::Scan);
            scan.take_arrived(&mut guard.core);
            if !scan.is_awaiting(wanted) {
                break;
            }
            if self.has_ended() {
                return Err(ClosedError::Closed.into());
            }
            if looks == 0 {
                scan.note_wait();
            }
            guard.scan_waiters.insert(id, std::thread::current());
            drop(guard);
            if !self.lend_hands() {
                std::thread::park();
            }
        }
        Ok(())
    }
}
