//! Updates that are accepted only if what a view has shown still holds.
//!
//! The value of a key follows from the image of its block, the spill segments that may have it, and
//! the updates that wait for it. So if a repeated view would find the same ones, its result is the
//! same, and nothing has to be counted or remembered for it while updates are accepted: callers
//! that never use conditions pay nothing. A sweep of the block in between makes the views differ
//! although the value is unchanged; that costs another look.
//!
//! Invariant: nothing is accepted between the comparison and the acceptance.

use super::Accept;
use super::core::Core;
use super::format::record_format::LoggedUpdate;
use super::ids::SpaceId;
use super::view::{Gathered, PendingView, View, Wanted, gather};
use crate::error::Error;
use crate::log::Urgency;

/// A view, and the request that it answered.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The space.
    pub space: SpaceId,
    /// Which block, and what of it: of a [`Wanted::Point`] only what concerns the key counts.
    pub wanted: &'a Wanted,
    /// The result that was shown.
    pub view: &'a View,
}

/// The answer to a record that was offered on a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditional {
    /// What was seen still holds, and this is the answer to the record.
    Holds(Accept),
    /// Something has changed: look again. Nothing was accepted.
    Changed,
    /// A change of the whole space is in progress, such as the removal of a range: look again once
    /// [`Core::is_settled`]. Nothing was accepted.
    Unsettled,
}

impl Core {
    /// Accepts the updates of one record as [`Core::modify`] does, if each view would now show what
    /// was seen. Cost: that of the views, without device reads.
    ///
    /// # Errors
    /// As [`Core::modify`] and [`Core::view`], with nothing accepted.
    pub fn modify_if(
        &mut self,
        seen: &[Seen<'_>],
        updates: &[LoggedUpdate<'_>],
        urgency: Urgency,
        now_us: u64,
    ) -> Result<Conditional, Error> {
        self.base.gate.check_open()?;
        for seen in seen {
            if !self.is_settled(seen.space) {
                return Ok(Conditional::Unsettled);
            }
            if !self.still_shows(seen)? {
                return Ok(Conditional::Changed);
            }
        }
        self.modify(updates, urgency, now_us).map(Conditional::Holds)
    }

    /// Whether no change of a whole space is in progress.
    #[must_use]
    pub fn is_settled(&self, space: SpaceId) -> bool {
        self.base.index.directory().space(space).is_none_or(|space| space.fences.is_empty())
    }

    fn still_shows(&mut self, seen: &Seen<'_>) -> Result<bool, Error> {
        let before = seen.view;
        let image = before.extent.zip(before.image.clone());
        let mut images = before.segments.clone();
        images.extend(image.map(|(extent, image)| (extent, before.image_seq, image)));
        let (space, wanted) = (seen.space, seen.wanted.clone());
        let again = PendingView { space, wanted, images, passes_cache: false };
        let Gathered::Complete(now) = gather(&mut self.base, &again)? else { return Ok(false) };
        let place = |view: &View| (view.extent, view.image_seq);
        let segments = |view: &View| -> Vec<_> {
            view.segments.iter().map(|(extent, seq, _)| (*extent, *seq)).collect()
        };
        Ok(place(&now) == place(before)
            && segments(&now) == segments(before)
            && now.updates() == before.updates())
    }
}
