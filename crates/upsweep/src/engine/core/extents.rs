//! Reserved extents: space of the data devices for the owner of a space: see `reserved.rs`.
//!
//! Each change is one log record, and takes effect when that is durable.

use std::collections::BTreeSet;

use super::Core;
use crate::broken::{self, Fault};
use crate::engine::catalog::FIRST_USER_SPACE;
use crate::engine::event::Event;
use crate::engine::foreground::ForegroundRequests;
use crate::engine::format::record_format::{encode_give_back, encode_reserve};
use crate::engine::ids::{SnapshotId, SpaceId};
use crate::engine::journal::Publish;
use crate::engine::policy;
use crate::error::{Error, RequestError, RetryError};
use crate::log::Seq;
use crate::placement::{Extent, UNIT_BYTES};

impl Core {
    /// Reserves `bytes` of a data device in one piece for the owner of a space: a multiple of
    /// [`UNIT_BYTES`], not 0. It belongs to the space once the returned sequence is durable. What
    /// it contains is unknown. A device that can grow does, if necessary. Cost: a log record, and
    /// O(free extents).
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::ReadOnly`] for a space of a snapshot;
    /// [`RequestError::ExtentLength`]; [`RetryError::Busy`] while a device grows, or when the log
    /// has no room; [`RetryError::Full`] if no device has so much in one piece besides what waiting
    /// updates need, and a margin for others (`policy::extent_margin_bytes`): ask for less, or give
    /// some back.
    pub fn reserve_extent(&mut self, space: SpaceId, bytes: u32) -> Result<(Extent, Seq), Error> {
        self.base.gate.check_open()?;
        let record = self.base.index.check_space(space)?;
        if record.snapshot != SnapshotId::NONE || space < FIRST_USER_SPACE {
            return Err(RequestError::ReadOnly(record.name.clone()).into());
        }
        if bytes == 0 || !u64::from(bytes).is_multiple_of(UNIT_BYTES) {
            return Err(RequestError::ExtentLength { bytes }.into());
        }
        let margin = policy::extent_margin_bytes(self.base.index.space_map.capacity_bytes());
        let wanted = u64::from(bytes) + margin;
        let kept = self.growth.reserved_bytes(&self.base, 0, 0);
        let has_room = self.base.index.space_map.free_bytes() >= kept + wanted;
        let found = has_room.then(|| self.base.index.space_map.reserve(bytes)).flatten();
        let Some(extent) = found else {
            let grows = self.growth.begin(&mut self.base, wanted);
            return Err(if grows { RetryError::Busy.into() } else { self.full_error() });
        };
        let mut payload = Vec::new();
        encode_reserve(space, extent, &mut payload);
        let publish = Publish::Event(Event::Reserve(space, extent));
        let appended = self.base.append_or_make_room(&payload, publish);
        if appended.is_err() {
            self.base.index.space_map.free(extent);
        }
        appended.map(|seq| (extent, seq))
    }

    /// Gives back an extent of a space; it is free once the returned sequence is durable. Whoever
    /// reads or writes it from now on may meet images of blocks.
    ///
    /// # Errors
    /// [`RequestError::NoExtent`] if it does not belong to the space, or is being given back;
    /// [`RetryError::Busy`] when the log has no room.
    pub fn give_extent_back(&mut self, space: SpaceId, extent: Extent) -> Result<Seq, Error> {
        self.base.gate.check_open()?;
        if !self.extents_of(space).any(|of| of == extent) {
            return Err(RequestError::NoExtent(extent.location()).into());
        }
        let mut payload = Vec::new();
        encode_give_back(extent, &mut payload);
        if broken::is(Fault::EarlyGiveBack) && self.base.index.reserved.remove(extent) {
            self.base.index.space_map.free(extent);
        }
        self.base.append_or_make_room(&payload, Publish::Event(Event::GiveBack(extent)))
    }

    /// The extents that belong to a space, by place, without those that are about to be given back;
    /// those of which the record is not durable yet are missing. Cost: O(reserved extents).
    pub fn extents_of(&self, space: SpaceId) -> impl Iterator<Item = Extent> {
        let events = || self.base.journal.events();
        let is_dropped = events().any(|event| matches!(event, Event::Drop(of) if *of == space));
        let given_back: BTreeSet<Extent> = events()
            .filter_map(|event| match event {
                Event::GiveBack(extent) => Some(*extent),
                _ => None,
            })
            .collect();
        let all = self.base.index.reserved.of(space);
        all.filter(move |extent| !is_dropped && !given_back.contains(extent))
    }

    /// Bytes that [`Core::reserve_extent`] still has, in any number of pieces; `None` if a device
    /// can grow.
    #[must_use]
    pub fn reservable_bytes(&self) -> Option<u64> {
        if self.growth.growable().next().is_some() {
            return None;
        }
        let map = &self.base.index.space_map;
        let kept = self.growth.reserved_bytes(&self.base, 0, 0);
        let margin = policy::extent_margin_bytes(map.capacity_bytes());
        Some(map.free_bytes().saturating_sub(kept + margin))
    }

    /// Takes note of the requests to reserved extents for which callers wait: the sweep of a drive
    /// that rotates gives way to them, as it does to queries.
    pub fn note_extent_requests(&mut self, requests: ForegroundRequests) {
        self.extent_requests = requests;
    }

    /// Bytes of all reserved extents.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.base.index.reserved.bytes()
    }
}
