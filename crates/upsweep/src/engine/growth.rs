//! Room on the data devices: what is kept for updates that wait, and how the devices grow.
//!
//! An update is accepted only if the devices have room for what a sweep will make of it. So no
//! sweep fails for lack of space, however late the device says that it is full, and the log can
//! always be released. (In the manner of delayed allocation in file systems, which reserve at the
//! write what they place at the flush.) Deletions reserve nothing: they are the way out of full
//! devices.
//!
//! A file grows by its holes, the lowest first, and at its end when it has no more. After an open
//! some holes may have space in truth, which the file system gives even when it is full: so when
//! the shortest step into a hole is refused, the next hole is tried.
//!
//! Invariant: the free bytes are at least [`Core::reserved_bytes`] when an update that may grow its
//! block is accepted. Its terms are estimates from above; should they ever be too low, the run that
//! finds no room is cancelled, its updates wait again, and the store counts as full.

use super::block_format::UpdateRef;
use super::core::{Actions, Core, IoKind};
use super::format::record_format::LoggedUpdate;
use super::holes::Punching;
use super::measure::Timed;
use super::pending::Pending;
use crate::device::{Completion, DeviceId, Operation};
use crate::metrics::GrowthOf;
use crate::placement::{DEVICE_BYTES_MAX, SpaceMap, UNIT_BYTES};

/// How long after a refusal no device is asked to grow again, in microseconds.
const REFUSAL_US: u64 = 1_000_000;
/// After so many refusals no hole is tried until that time is over: each costs a system call.
const HOLES_REFUSED_MAX: u32 = 1024;
/// No step was refused.
const ANY_STEP: u64 = u64::MAX >> 1;

/// Whether and how the devices are to grow.
pub(super) struct Growth {
    devices: Vec<DeviceGrowth>,
    /// What a device is asked for. One request at a time: so no hole is punched where space is
    /// being allocated.
    pub(super) asked: Option<Asked>,
    /// When it was asked.
    began_us: u64,
    /// Bytes that the last update was short of; 0 if it had room.
    wanted: u64,
    /// Nobody could grow: not to be asked again before this time.
    refused_until: Option<u64>,
    /// How often a hole was refused since they were all tried anew.
    holes_refused: u32,
    /// Bytes that no waiting update may count on: see [`Core::kept_bytes`].
    kept: u64,
    /// What goes back to the file systems.
    pub(super) punching: Punching,
}

/// A request for more or less space.
pub(super) enum Asked {
    Allocation(Allocation),
    Hole,
}

/// A range to be allocated, and how many bytes more will be free.
#[derive(Clone, Copy)]
pub(super) struct Allocation {
    offset: u64,
    bytes: u64,
    gain: u64,
}

/// How one device grows.
struct DeviceGrowth {
    is_growable: bool,
    /// The longest step of its end that was not refused yet, in bytes.
    step_max: u64,
    /// The longest step into its holes that was not refused yet, in bytes.
    hole_step_max: u64,
    /// Holes below were refused.
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

    /// Whether a device is on its way to more or less space.
    pub(super) fn is_under_way(&self) -> bool {
        self.asked.is_some()
    }

    /// Asks all devices again from now on: somebody may have made room.
    pub(super) fn forget_refusals(&mut self) {
        for device in &mut self.devices {
            (device.step_max, device.hole_step_max) = (ANY_STEP, ANY_STEP);
        }
    }

    /// The same some time after everything was refused. Holes are tried behind those that were
    /// tried last, and all of them in turn.
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

impl Core {
    /// Whether there is room for what a sweep will make of these updates, besides all that waits.
    /// If not, growth is asked for.
    /// `copies` are bytes of images that become separate ones.
    pub(super) fn has_room_for(
        &mut self,
        updates: &[LoggedUpdate<'_>],
        bytes: u64,
        copies: u64,
    ) -> bool {
        let deletes = |u: &LoggedUpdate<'_>| self.modifiers.is_deletion(u.modifier, u.operand);
        let free = self.space_map.free_bytes();
        let reserved = self.reserved_bytes(bytes, updates.len()) + copies;
        let fits = reserved <= free || (copies == 0 && updates.iter().all(deletes));
        self.growth.wanted = if fits { 0 } else { reserved - free };
        fits
    }

    /// Whether the last update was short of room that growth may make.
    pub(super) fn grows_for_room(&self) -> bool {
        self.growth.wanted > 0
            && self.growth.refused_until.is_none()
            && self.is_growable()
            && !self.paused
    }

    /// Whether the last update was short of room that neither growth nor a sweep will make.
    pub(super) fn is_out_of_room(&self) -> bool {
        let refused = self.growth.refused_until.is_some_and(|until| self.now_us < until);
        let waits = self.arena.queues() > 0
            || !self.sweep.runs.is_empty()
            || !self.sweep.spills.is_empty()
            || !self.spill_segments.is_empty();
        self.growth.wanted > 0 && refused && (self.full || !waits)
    }

    /// Bytes that have to stay free for what waits, and for `more` bytes of updates of so many
    /// blocks. A leaf that splits is half full, hence twice; an image is rounded to whole units.
    /// The images that blocks still share with others will be separate ones.
    pub(super) fn reserved_bytes(&self, more: u64, blocks: usize) -> u64 {
        let queued = self.arena.growth_bytes() + self.sweep.frozen_growth_bytes;
        let waiting =
            queued + self.spill_segments.growth_bytes() + self.pending_bytes as u64 + more;
        let spilled = if self.spill_segments.is_empty() { 0 } else { self.directory.len() };
        let blocks = self.arena.queues().max(spilled) + self.sweep.unlogged_blocks + blocks;
        let copies = self.copy_bytes + self.pending_images_bytes();
        2 * waiting + UNIT_BYTES * blocks as u64 + copies + self.growth.kept
    }

    /// Images that blocks will have of which updates are pending, at most.
    fn pending_images_bytes(&self) -> u64 {
        let updates = self.pending_bytes / Pending::bytes_of(&[], &UpdateRef::default());
        updates as u64 * u64::from(self.block_bytes)
    }

    /// Space that no run may use: a checkpoint needs about this much, and without checkpoints the
    /// log would not be released.
    pub(super) fn checkpoint_bytes(&self) -> u64 {
        let pages = self.directory.table.pages() + self.directory.trees.node_count();
        let blocks = 64 * self.directory.len() + 2 * self.directory.table.key_bytes();
        UNIT_BYTES * (pages as u64 + 2) + blocks as u64
    }

    /// Space for the new images of a run while its old ones are still there.
    pub(super) fn shadow_bytes(&self) -> u64 {
        let run = self.config.run_blocks_max as u64 * u64::from(self.config.block_bytes);
        run.min(self.space_map.capacity_bytes() / 16)
    }

    /// Has devices grown when an update was short of room, or soon will be; and has what is in
    /// excess go back.
    pub(super) fn pump_growth(&mut self, actions: &mut Actions) {
        self.growth.kept = self.checkpoint_bytes() + 2 * self.shadow_bytes();
        if self.growth.refused_until.is_some_and(|until| until <= self.now_us) {
            self.growth.refused_until = None;
            self.growth.try_anew(&self.space_map);
        }
        let ahead = self.reserved_bytes(0, 0) + self.config.file_space.step_bytes_min / 2;
        let free = self.space_map.free_bytes();
        let soon = ahead.saturating_sub(free);
        let wanted = self.growth.wanted.max(if self.is_growable() { soon } else { 0 });
        if wanted == 0 {
            return self.pump_punching(free.saturating_sub(ahead), actions);
        }
        self.growth.punching.begin_window(self.now_us);
        if self.growth.refused_until.is_some() || self.paused {
            self.growth.punching.stop();
            return;
        }
        if !self.begin_growth(wanted, actions) {
            self.growth.refused_until = Some(self.now_us + REFUSAL_US);
            self.room_events += 1;
        }
    }

    fn is_growable(&self) -> bool {
        self.growth.growable().next().is_some()
    }

    /// Has a growable data device allocate `bytes` more, or a part of that; `false` if none can.
    pub(super) fn begin_growth(&mut self, bytes: u64, actions: &mut Actions) -> bool {
        if self.growth.is_under_way() || self.paused {
            return self.growth.is_under_way();
        }
        let holes = self.next_holes(bytes);
        let is_broken = cfg!(feature = "broken-hole") && holes.is_some();
        let Some((device, allocation)) = holes.or_else(|| self.next_extension(bytes)) else {
            return false;
        };
        let Allocation { offset, bytes, .. } = allocation;
        let operation =
            if is_broken { Operation::Flush } else { Operation::Allocate { offset, bytes } };
        actions.requests.push(self.request(IoKind::FileSpace, None, device, operation));
        self.growth.asked = Some(Asked::Allocation(allocation));
        self.growth.began_us = self.now_us;
        true
    }

    /// In what step a device is to grow that is short of `bytes`.
    fn growth_step(&self, device: DeviceId, bytes: u64) -> u64 {
        let space = self.config.file_space;
        let eighth = self.space_map.capacity_bytes_of(device) / 8;
        eighth.max(space.step_bytes_min).max(4 * bytes).next_multiple_of(space.granule_bytes)
    }

    /// The next holes to be allocated for `bytes`, if there are any that were not refused.
    fn next_holes(&self, bytes: u64) -> Option<(DeviceId, Allocation)> {
        if self.growth.holes_refused >= HOLES_REFUSED_MAX {
            return None;
        }
        self.growth.growable().find_map(|device| {
            let growth = &self.growth.devices[usize::from(device.0)];
            let step = self.growth_step(device, bytes).min(growth.hole_step_max);
            let found = self.space_map.holes_from(device, growth.holes_from, step);
            found.map(|(offset, bytes, gain)| (device, Allocation { offset, bytes, gain }))
        })
    }

    /// How the end of a device is to move for `bytes`, if one can make as much room.
    fn next_extension(&self, bytes: u64) -> Option<(DeviceId, Allocation)> {
        let granule = self.config.file_space.granule_bytes;
        let needed = bytes.max(1).next_multiple_of(granule);
        self.growth.growable().find_map(|device| {
            let offset = self.space_map.end(device);
            let most = self.growth.devices[usize::from(device.0)].step_max;
            let most = most.min(DEVICE_BYTES_MAX.saturating_sub(offset)) / granule * granule;
            let bytes = self.growth_step(device, bytes).min(most);
            (most >= needed).then_some((device, Allocation { offset, bytes, gain: bytes }))
        })
    }

    pub(super) fn file_space_done(&mut self, completion: &Completion) {
        self.room_events += 1;
        let (device, is_done) = (completion.device, completion.result.is_ok());
        match self.growth.asked.take().expect("one request is on its way") {
            Asked::Allocation(allocation) => self.allocated(device, allocation, is_done),
            Asked::Hole if is_done => {}
            Asked::Hole => self.growth.punching.refused(device),
        }
    }

    fn allocated(&mut self, device: DeviceId, allocation: Allocation, is_done: bool) {
        self.note_ended(Timed::Growth(GrowthOf::Data), self.growth.began_us);
        let Allocation { offset, bytes, gain } = allocation;
        let granule = self.config.file_space.granule_bytes;
        let half = gain / 2 / granule * granule;
        let are_holes = offset < self.space_map.end(device);
        if is_done {
            self.growth.wanted = 0;
        }
        match (are_holes, is_done) {
            (true, true) => {
                self.space_map.fill_holes(device, offset, bytes);
                self.metrics.holes_filled_total.add(1);
                let growth = self.growth.of(device);
                growth.hole_step_max = growth.hole_step_max.saturating_mul(2).min(ANY_STEP);
            }
            (true, false) => {
                self.growth.holes_refused += 1;
                let growth = self.growth.of(device);
                if half > 0 {
                    growth.hole_step_max = half;
                } else {
                    growth.holes_from = offset + bytes;
                }
            }
            (false, true) => {
                self.space_map.grow(device, offset + bytes);
                // There is space now, for holes too.
                self.growth.of(device).holes_from = 0;
            }
            (false, false) => self.growth.of(device).step_max = half,
        }
    }
}
