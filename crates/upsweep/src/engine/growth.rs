//! Room on the data devices: what is kept for updates that wait, and how the devices grow.
//!
//! An update is accepted only if the devices have room for what a sweep will make of it. So no
//! sweep fails for lack of space, however late the device says that it is full, and the log can
//! always be released. (In the manner of delayed allocation in file systems, which reserve at the
//! write what they place at the flush.) Deletions reserve nothing: they are the way out of full
//! devices.
//!
//! Invariant: the free bytes are at least [`Core::reserved_bytes`] when an update that may grow its
//! block is accepted. Its terms are estimates from above; should they ever be too low, the run that
//! finds no room is cancelled, its updates wait again, and the store counts as full.

use super::block_format::UpdateRef;
use super::core::{Actions, Core, Purpose};
use super::format::record_format::LoggedUpdate;
use super::pending::Pending;
use crate::device::{Completion, DeviceId, Operation, Request};
use crate::placement::{DEVICE_BYTES_MAX, UNIT_BYTES};

/// Smallest step in which a data file grows, unless its file system has less.
const GROWTH_BYTES_MIN: u64 = 16 << 20;
/// All steps are multiples of this; where not even one fits, the device is full.
const GROWTH_UNIT_BYTES: u64 = 1 << 20;

/// How long after a refusal no device is asked to grow again, in microseconds.
const REFUSAL_US: u64 = 1_000_000;

/// Whether and how the devices are to grow.
pub(super) struct Growth {
    growable: Vec<bool>,
    /// Per device, the longest step that was not refused yet, in bytes.
    steps_max: Vec<u64>,
    /// What a device is growing to, in bytes, while it does.
    target: Option<u64>,
    /// Bytes that the last update was short of; 0 if it had room.
    wanted: u64,
    /// Nobody could grow: not to be asked again before this time.
    refused_until: Option<u64>,
    /// Bytes that no waiting update may count on: see [`Core::kept_bytes`].
    kept: u64,
}

impl Growth {
    pub(super) fn new(growable: Vec<bool>) -> Self {
        let steps_max = steps_max(&growable);
        Self { growable, steps_max, target: None, wanted: 0, refused_until: None, kept: 0 }
    }

    /// Whether a device is on its way to another size.
    pub(super) fn is_under_way(&self) -> bool {
        self.target.is_some()
    }

    /// Asks all devices again from now on: somebody may have made room.
    pub(super) fn forget_refusals(&mut self) {
        self.steps_max = steps_max(&self.growable);
    }
}

fn steps_max(growable: &[bool]) -> Vec<u64> {
    growable.iter().map(|growable| if *growable { u64::MAX >> 1 } else { 0 }).collect()
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
            || !self.bundles.is_empty();
        self.growth.wanted > 0 && refused && (self.full || !waits)
    }

    /// Bytes that have to stay free for what waits, and for `more` bytes of updates of so many
    /// blocks. A leaf that splits is half full, hence twice; an image is rounded to whole units.
    /// The images that blocks still share with others will be separate ones.
    pub(super) fn reserved_bytes(&self, more: u64, blocks: usize) -> u64 {
        let queued = self.arena.growth_bytes() + self.sweep.frozen_growth_bytes;
        let waiting = queued + self.bundles.growth_bytes() + self.pending_bytes as u64 + more;
        let spilled = if self.bundles.is_empty() { 0 } else { self.directory.len() };
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

    /// Has devices grown when an update was short of room, or soon will be.
    pub(super) fn pump_growth(&mut self, actions: &mut Actions) {
        self.growth.kept = self.checkpoint_bytes() + 2 * self.shadow_bytes();
        if self.growth.refused_until.is_some_and(|until| until <= self.now_us) {
            self.growth.refused_until = None;
            self.growth.forget_refusals();
        }
        let ahead = self.reserved_bytes(0, 0) + GROWTH_BYTES_MIN / 2;
        let soon = ahead.saturating_sub(self.space_map.free_bytes());
        let wanted = self.growth.wanted.max(if self.is_growable() { soon } else { 0 });
        if wanted == 0 || self.growth.refused_until.is_some() || self.paused {
            return;
        }
        if !self.begin_growth(wanted, actions) {
            self.growth.refused_until = Some(self.now_us + REFUSAL_US);
            self.room_events += 1;
        }
    }

    fn is_growable(&self) -> bool {
        self.growth.growable.contains(&true)
    }

    /// Has a growable data device extended for `bytes` more; `false` if none can be.
    pub(super) fn begin_growth(&mut self, bytes: u64, actions: &mut Actions) -> bool {
        if self.growth.is_under_way() || self.paused {
            return self.growth.is_under_way();
        }
        let needed = bytes.max(1).next_multiple_of(GROWTH_UNIT_BYTES);
        let steps_max = (0..).map(DeviceId).zip(&self.growth.steps_max);
        let mut steps_max = steps_max.map(|(device, most)| {
            let end = self.space_map.end(device);
            (device, end, (*most).min(DEVICE_BYTES_MAX.saturating_sub(end)))
        });
        let Some((device, end, most)) = steps_max.find(|(.., most)| *most >= needed) else {
            return false;
        };
        let step = (end / 8).max(GROWTH_BYTES_MIN).max(4 * bytes).min(most);
        let step = step.next_multiple_of(GROWTH_UNIT_BYTES);
        let token = self.token(Purpose::Grow);
        let operation = Operation::Grow { bytes: end + step };
        actions.requests.push(Request { device, token, operation });
        self.growth.target = Some(end + step);
        true
    }

    pub(super) fn grow_done(&mut self, completion: &Completion) {
        self.room_events += 1;
        let target = self.growth.target.take().expect("one device grows at a time");
        let device = usize::from(completion.device.0);
        let step = target - self.space_map.end(completion.device);
        match completion.result {
            Ok(()) => {
                self.space_map.grow(completion.device, target);
                self.growth.wanted = 0;
            }
            Err(_) => {
                self.growth.steps_max[device] = step / 2 / GROWTH_UNIT_BYTES * GROWTH_UNIT_BYTES;
            }
        }
    }
}
