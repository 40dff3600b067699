//! Updates that are accepted only if what a view has shown still holds.
//!
//! What a key has follows from the image of its block, the spill segments that may have it, and the
//! updates that wait for it. So a view that would come out the same again shows the same, and
//! nothing has to be counted or remembered for it while updates are accepted: those who never ask
//! pay nothing. A sweep of the block between the two makes them differ though the value is the
//! same; that costs another look.
//!
//! Invariant: between the comparison and the acceptance nothing is accepted.

use super::Accept;
use super::core::Core;
use super::format::record_format::LoggedUpdate;
use super::ids::SpaceId;
use super::view::{Gathered, PendingView, View, Wanted, gather};
use crate::error::Error;
use crate::log::Urgency;

/// A view, and what was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The space.
    pub space: SpaceId,
    /// Which block, and what of it: of a [`Wanted::Point`] only what concerns the key counts.
    pub wanted: &'a Wanted,
    /// What was shown.
    pub view: &'a View,
}

/// The answer to a record that was offered on a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditional {
    /// What was seen still holds, and this is the answer to the record.
    Holds(Accept),
    /// Something has changed: look again. Nothing was accepted.
    Changed,
    /// A change of the whole space is on its way, such as the removal of a range: look again once
    /// [`Core::is_settled`]. Nothing was accepted.
    Unsettled,
}

impl Core {
    /// Accepts the updates of one record as [`Core::modify`] does, if each view would show now
    /// what was seen. Cost: that of the views, without a read of the device.
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

    /// Whether no change of a space as a whole is on its way.
    #[must_use]
    pub fn is_settled(&self, space: SpaceId) -> bool {
        self.base.index.directory().space(space).is_none_or(|space| space.fences.is_empty())
    }

    fn still_shows(&mut self, seen: &Seen<'_>) -> Result<bool, Error> {
        let before = seen.view;
        let image = before.extent.zip(before.image.clone());
        let mut images = before.segments.clone();
        images.extend(image.map(|(extent, image)| (extent, before.image_seq, image)));
        let again = PendingView { space: seen.space, wanted: seen.wanted.clone(), images };
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
