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
        Self { blocks, space, routing: None, is_first: true, from, to, is_over, front, back }
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
            self.is_first = true;
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

    /// The next block from the low end.
    fn first(&mut self) -> Result<Option<View>, Error> {
        let is_first = std::mem::take(&mut self.is_first);
        let is_ordered = self.routing()? == Routing::Ordered;
        let from = self.from.clone();
        let wanted = match &self.to {
            _ if !is_ordered => Wanted::AtOrAbove(from),
            // Most narrow ranges are in one block.
            Some(to) if is_first => Wanted::Range { from, to: to.clone() },
            _ => Wanted::Covering(from),
        };
        let shared = &self.blocks.inner.shared;
        let view = shared.scan_view(&mut self.front, &wanted, self.to.as_deref())?;
        match &view.high {
            Some(high) if self.to.as_ref().is_none_or(|to| **high < **to) => {
                self.from = high.to_vec();
            }
            _ => self.is_over = true,
        }
        let is_beyond = self.to.as_ref().is_some_and(|to| *view.low >= **to);
        let exists = is_ordered || view.high.is_some() && !is_beyond;
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
