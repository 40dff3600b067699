//! Room on the data devices: the reserve for waiting updates, and growth of the devices.
//!
//! An update is accepted only if the devices have room for the blocks that a sweep will make of it.
//! So no sweep fails for lack of space, however late the device reports that it is full, and the
//! log can always be released. (This resembles delayed allocation in file systems, which reserve at
//! the write what they place at the flush.) Deletions reserve nothing: they are the way out of full
//! devices.
//!
//! A file grows by its holes, the lowest first, and at its end when it has no more. After an open
//! some presumed holes may be allocated, and the file system grants these even when it is full: so
//! when the shortest step into a hole is refused, the next hole is tried.
//!
//! Invariant: the free bytes are at least [`Growth::reserved_bytes`] when an update that may grow
//! its block is accepted. Its terms are upper estimates; should they ever be too low, the run that
//! finds no room is cancelled, its updates wait again, and the store counts as full.

mod holes;

use holes::Punching;

use super::base::Base;
use super::format::record_format::LoggedUpdate;
use super::io::IoKind;
use super::measure::Timed;
use super::policy::{self, ANY_STEP, HOLES_REFUSED_MAX, REFUSAL_US};
use crate::broken::{self, Fault};
use crate::device::{Completion, DeviceError, DeviceId, Operation};
use crate::metrics::GrowthOf;
use crate::placement::SpaceMap;

/// Whether and how the devices are to grow.
pub(super) struct Growth {
    devices: Vec<DeviceGrowth>,
    /// The request to a device. One at a time: so no hole is punched where space is being
    /// allocated.
    asked: Option<Asked>,
    /// When it was made.
    began_us: u64,
    /// Bytes that the last update was short of; 0 if it had room.
    wanted: u64,
    /// No device could grow: do not ask again before this time.
    refused_until: Option<u64>,
    /// How often a hole was refused since all of them were last retried.
    holes_refused: u32,
    /// Bytes that no waiting update may count on: see [`Growth::reserved_bytes`].
    kept: u64,
    /// The return of space to the file systems.
    punching: Punching,
}

/// A request for more or less space.
pub(super) enum Asked {
    Allocation(Allocation),
    Hole,
}

/// A range to be allocated, and the resulting gain in free bytes.
#[derive(Clone, Copy)]
pub(super) struct Allocation {
    offset: u64,
    bytes: u64,
    gain: u64,
}

/// Growth of one device.
struct DeviceGrowth {
    is_growable: bool,
    /// The longest step at its end that was not refused yet, in bytes.
    step_max: u64,
    /// The longest step into its holes that was not refused yet, in bytes.
    hole_step_max: u64,
    /// Holes below this offset were refused.
    holes_from: u64,
}

impl Growth {
    pub(super) fn new(growable: &[bool]) -> Self {
        let device = |is_growable: &bool| DeviceGrowth {
            is_growable: *is_growable,
            step_max: ANY_STEP,
            hole_step_max: ANY_STEP,
            holes_from: 0,
        };
        Self {
            devices: growable.iter().map(device).collect(),
            asked: None,
            began_us: 0,
            wanted: 0,
            refused_until: None,
            holes_refused: 0,
            kept: 0,
            punching: Punching::new(growable),
        }
    }

    /// Whether a device is being asked for more or less space.
    pub(super) fn is_under_way(&self) -> bool {
        self.asked.is_some()
    }

    /// Asks all devices again from now on: space may have become available.
    pub(super) fn forget_refusals(&mut self) {
        for device in &mut self.devices {
            (device.step_max, device.hole_step_max) = (ANY_STEP, ANY_STEP);
        }
    }

    /// The same some time after everything was refused. Holes are tried cyclically, starting after
    /// the last ones tried.
    fn try_anew(&mut self, map: &SpaceMap) {
        self.forget_refusals();
        self.holes_refused = 0;
        for (device, growth) in (0..).map(DeviceId).zip(&mut self.devices) {
            if map.holes_from(device, growth.holes_from, 1).is_none() {
                growth.holes_from = 0;
            }
        }
    }

    /// The devices that can grow.
    pub(super) fn growable(&self) -> impl Iterator<Item = DeviceId> + Clone {
        let devices = (0..).map(DeviceId).zip(&self.devices);
        devices.filter(|(_, growth)| growth.is_growable).map(|(device, _)| device)
    }

    fn of(&mut self, device: DeviceId) -> &mut DeviceGrowth {
        &mut self.devices[usize::from(device.0)]
    }
}

impl Growth {
    /// Whether there is room for the blocks that a sweep will make of these updates, besides
    /// everything that waits. If not, requests growth. `copies` are bytes of images that become
    /// separate ones.
    pub(super) fn has_room_for(
        &mut self,
        base: &Base,
        updates: &[LoggedUpdate<'_>],
        bytes: u64,
        copies: u64,
    ) -> bool {
        let deletes = |u: &LoggedUpdate<'_>| {
            base.index.bindings.modifiers().is_deletion(u.modifier, u.operand)
        };
        let free = base.index.space_map.free_bytes();
        let reserved = self.reserved_bytes(base, bytes, updates.len()) + copies;
        let fits = reserved <= free || (copies == 0 && updates.iter().all(deletes));
        self.wanted = if fits { 0 } else { reserved - free };
        fits
    }

    /// Whether the last update lacked room that growth may make.
    pub(super) fn grows_for_room(&self, base: &Base) -> bool {
        self.wanted > 0
            && self.refused_until.is_none()
            && self.is_growable()
            && !base.gate.is_paused()
    }

    /// Whether the last update lacked room that neither growth nor a sweep will make: `is_swept`
    /// states that nothing waits for one.
    pub(super) fn is_out_of_room(&self, base: &Base, is_swept: bool) -> bool {
        let refused = self.refused_until.is_some_and(|until| base.now_us < until);
        self.wanted > 0 && refused && (base.index.is_full() || is_swept)
    }

    /// Bytes that have to stay free for what waits, for `more` bytes of updates of this many
    /// blocks, and for checkpoints and runs.
    pub(super) fn reserved_bytes(&self, base: &Base, more: u64, blocks: usize) -> u64 {
        policy::reserved_bytes(&base.demand(more, blocks, self.kept))
    }

    /// Grows devices when an update lacked room, or soon will; and returns space in excess.
    pub(super) fn pump(&mut self, base: &mut Base) {
        self.kept = policy::kept_bytes(base.checkpoint_bytes(), base.shadow_bytes());
        if self.refused_until.is_some_and(|until| until <= base.now_us) {
            self.refused_until = None;
            self.try_anew(&base.index.space_map);
        }
        let reserved = self.reserved_bytes(base, 0, 0);
        let ahead = policy::ahead_bytes(reserved, &base.config.file_space);
        let free = base.index.space_map.free_bytes();
        let wanted = policy::growth_wanted(self.wanted, free, ahead, self.is_growable());
        if wanted == 0 {
            return self.pump_punching(base, free.saturating_sub(ahead));
        }
        self.punching.begin_window(base.now_us);
        if self.refused_until.is_some() || base.gate.is_paused() {
            self.punching.stop();
            return;
        }
        if !self.begin(base, wanted) {
            self.refused_until = Some(base.now_us + REFUSAL_US);
            base.waiters.tell();
        }
    }

    fn is_growable(&self) -> bool {
        self.growable().next().is_some()
    }

    /// Makes a growable data device allocate `bytes` more, or a part of that; `false` if none can.
    pub(super) fn begin(&mut self, base: &mut Base, bytes: u64) -> bool {
        if self.is_under_way() || base.gate.is_paused() {
            return self.is_under_way();
        }
        let holes = self.next_holes(base, bytes);
        let is_broken = broken::is(Fault::UnallocatedHole) && holes.is_some();
        let Some((device, allocation)) = holes.or_else(|| self.next_extension(base, bytes)) else {
            return false;
        };
        let Allocation { offset, bytes, .. } = allocation;
        let operation =
            if is_broken { Operation::Flush } else { Operation::Allocate { offset, bytes } };
        base.io.submit(IoKind::FileSpace, None, device, operation);
        self.asked = Some(Asked::Allocation(allocation));
        self.began_us = base.now_us;
        true
    }

    /// The growth step of a device that lacks `bytes`.
    fn step(&self, base: &Base, device: DeviceId, bytes: u64) -> u64 {
        let capacity = base.index.space_map.capacity_bytes_of(device);
        policy::step_bytes(capacity, bytes, &base.config.file_space)
    }

    /// The next holes to allocate for `bytes`, if there are any that were not refused.
    fn next_holes(&self, base: &Base, bytes: u64) -> Option<(DeviceId, Allocation)> {
        if self.holes_refused >= HOLES_REFUSED_MAX {
            return None;
        }
        self.growable().find_map(|device| {
            let growth = &self.devices[usize::from(device.0)];
            let step = self.step(base, device, bytes).min(growth.hole_step_max);
            let found = base.index.space_map.holes_from(device, growth.holes_from, step);
            found.map(|(offset, bytes, gain)| (device, Allocation { offset, bytes, gain }))
        })
    }

    /// The extension of a device at its end for `bytes`, if one can make as much room.
    fn next_extension(&self, base: &Base, bytes: u64) -> Option<(DeviceId, Allocation)> {
        let space = &base.config.file_space;
        self.growable().find_map(|device| {
            let offset = base.index.space_map.end(device);
            let most = self.devices[usize::from(device.0)].step_max;
            let step = self.step(base, device, bytes);
            let bytes = policy::extension_bytes(offset, bytes, step, most, space)?;
            Some((device, Allocation { offset, bytes, gain: bytes }))
        })
    }

    pub(super) fn file_space_done(&mut self, base: &mut Base, completion: &Completion) {
        base.waiters.tell();
        let (device, is_done) = (completion.device, completion.result.is_ok());
        match self.asked.take().expect("one request is in flight") {
            Asked::Allocation(allocation) => {
                // The sync of its length may have been that of images, of which a later one would
                // not know that they are lost.
                if !matches!(completion.result, Err(DeviceError::NoSpace)) {
                    base.close_if_failed(completion, Some(allocation.offset));
                }
                self.allocated(base, device, allocation, is_done);
            }
            Asked::Hole if is_done => {}
            Asked::Hole => self.punching.refused(device),
        }
    }

    fn allocated(
        &mut self,
        base: &mut Base,
        device: DeviceId,
        allocation: Allocation,
        is_done: bool,
    ) {
        base.measured.note_ended(Timed::Growth(GrowthOf::Data), self.began_us);
        let Allocation { offset, bytes, gain } = allocation;
        let half = policy::half_step(gain, &base.config.file_space);
        let are_holes = offset < base.index.space_map.end(device);
        if is_done {
            self.wanted = 0;
        }
        match (are_holes, is_done) {
            (true, true) => {
                base.index.space_map.fill_holes(device, offset, bytes);
                base.metrics.holes_filled_total.add(1);
                let growth = self.of(device);
                growth.hole_step_max = policy::doubled_step(growth.hole_step_max);
            }
            (true, false) => {
                self.holes_refused += 1;
                let growth = self.of(device);
                if half > 0 {
                    growth.hole_step_max = half;
                } else {
                    growth.holes_from = offset + bytes;
                }
            }
            (false, true) => {
                base.index.space_map.grow(device, offset + bytes);
                // There is space now, for holes too.
                self.of(device).holes_from = 0;
            }
            (false, false) => self.of(device).step_max = half,
        }
    }
}
