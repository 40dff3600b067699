//! Room on the devices: the reserve for what waits, how data devices and the log grow, and what of
//! free space goes back.

use crate::engine::config::FileSpace;
use crate::placement::{DEVICE_BYTES_MAX, UNIT_BYTES};

/// How long after a refusal no device is asked to grow again, in microseconds.
pub(in crate::engine) const REFUSAL_US: u64 = 1_000_000;
/// After so many refusals no hole is tried until that time is over: each costs a system call.
pub(in crate::engine) const HOLES_REFUSED_MAX: u32 = 1024;
/// No step was refused.
pub(in crate::engine) const ANY_STEP: u64 = u64::MAX >> 1;
/// Longest hole that is punched at a time, in bytes: a few extents of a file system.
pub(in crate::engine) const PUNCH_BYTES_MAX: u64 = 16 << 20;
/// A device grows by one part in so many of what it has, so that it grows a few times for each
/// doubling.
const STEP_PART: u64 = 8;
/// A step is so many times what is lacking, or the next update would ask again.
const STEP_TIMES_LACKING: u64 = 4;
/// One part in so many of what is used is kept free beyond what is reserved: twice what a step of
/// growth adds, so that growth never makes an excess.
const KEPT_PART: u64 = 4;
/// A run is taken to shadow one part in so many of the devices at most: of small ones it could
/// never have more.
const SHADOW_PART: u64 = 16;
/// Of a checkpoint, bytes for each block: its entry in a page of the block table and in a leaf.
const CHECKPOINT_BYTES_PER_BLOCK: u64 = 64;

/// Smallest step in which a data file grows, in bytes.
pub(super) const STEP_BYTES_MIN: u64 = 16 << 20;
/// What a run leaves behind is 512 KiB long or more, and so has a whole granule of this length;
/// with smaller ones a file would lie in more pieces.
pub(super) const GRANULE_BYTES: u64 = 256 << 10;
/// Four of the smallest steps are kept, so that small stores do not give back and allocate by
/// turns.
pub(super) const KEPT_BYTES_MIN: u64 = 4 * STEP_BYTES_MIN;
/// Longer than runs and checkpoints take, which use space for a while; in microseconds.
pub(super) const WINDOW_US: u64 = 10_000_000;

/// What space on the data devices is for that is not written yet.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Demand {
    /// Bytes of waiting updates, by which blocks may grow.
    pub(in crate::engine) waiting_bytes: u64,
    /// Blocks for which they wait.
    pub(in crate::engine) blocks: u64,
    /// Bytes of images that blocks still share with others, and will have for themselves.
    pub(in crate::engine) copied_bytes: u64,
    /// What no waiting update may count on: [`kept_bytes`].
    pub(in crate::engine) kept_bytes: u64,
}

/// Bytes that have to stay free. A leaf that splits is half full, hence twice; an image is rounded
/// to whole units.
pub(in crate::engine) fn reserved_bytes(demand: &Demand) -> u64 {
    let of_waiting = demand.waiting_bytes.saturating_mul(2);
    let of_units = demand.blocks.saturating_mul(UNIT_BYTES);
    let kept = demand.copied_bytes.saturating_add(demand.kept_bytes);
    of_waiting.saturating_add(of_units).saturating_add(kept)
}

/// What a checkpoint takes, about, of a directory with so many nodes and pages, blocks, and bytes
/// of keys. No run may use that space: without checkpoints the log would not be released.
pub(in crate::engine) fn checkpoint_bytes(images: u64, blocks: u64, key_bytes: u64) -> u64 {
    let of_images = images.saturating_add(2).saturating_mul(UNIT_BYTES);
    let of_blocks = blocks.saturating_mul(CHECKPOINT_BYTES_PER_BLOCK);
    of_images.saturating_add(of_blocks).saturating_add(key_bytes.saturating_mul(2))
}

/// Space for the new images of a run while its old ones are still there.
pub(in crate::engine) fn shadow_bytes(run_bytes: u64, capacity_bytes: u64) -> u64 {
    run_bytes.min(capacity_bytes / SHADOW_PART)
}

/// Bytes that no waiting update may count on: for a checkpoint, and for two runs, one that is
/// written and one whose old images are not free yet.
pub(in crate::engine) fn kept_bytes(checkpoint_bytes: u64, shadow_bytes: u64) -> u64 {
    checkpoint_bytes.saturating_add(shadow_bytes.saturating_mul(2))
}

/// Free bytes below which devices grow before anybody has to wait for it.
pub(in crate::engine) fn ahead_bytes(reserved: u64, space: &FileSpace) -> u64 {
    reserved.saturating_add(space.step_bytes_min / 2)
}

/// Bytes by which the devices are to grow: what the last update was short of, and what will be
/// short soon, if any device can grow; 0 for not at all.
pub(in crate::engine) fn growth_wanted(short: u64, free: u64, ahead: u64, can_grow: bool) -> u64 {
    let soon = if can_grow { ahead.saturating_sub(free) } else { 0 };
    short.max(soon)
}

fn whole_granules(bytes: u64, space: &FileSpace) -> u64 {
    let granule = space.granule_bytes.max(1);
    bytes.div_ceil(granule).saturating_mul(granule)
}

/// In what step a device with this capacity is to grow that is short of `bytes`: whole granules.
pub(in crate::engine) fn step_bytes(capacity: u64, bytes: u64, space: &FileSpace) -> u64 {
    let lacking = bytes.saturating_mul(STEP_TIMES_LACKING);
    whole_granules((capacity / STEP_PART).max(space.step_bytes_min).max(lacking), space)
}

/// By how much the end of a device is to move, which is at `end`, for `bytes` that are lacking:
/// `step`, or what of that is left below `step_max`, the longest step that was not refused. `None`
/// if it cannot make as much room.
pub(in crate::engine) fn extension_bytes(
    end: u64,
    bytes: u64,
    step: u64,
    step_max: u64,
    space: &FileSpace,
) -> Option<u64> {
    let granule = space.granule_bytes.max(1);
    let most = step_max.min(DEVICE_BYTES_MAX.saturating_sub(end)) / granule * granule;
    (most >= whole_granules(bytes.max(1), space)).then(|| step.min(most))
}

/// The longest step that is tried after one was refused that would have gained so much: half, in
/// whole granules. 0 if that was the shortest.
pub(in crate::engine) fn half_step(gain: u64, space: &FileSpace) -> u64 {
    let granule = space.granule_bytes.max(1);
    gain / 2 / granule * granule
}

/// The longest step that is tried after one was taken that had `step_max` for its limit.
pub(in crate::engine) fn doubled_step(step_max: u64) -> u64 {
    step_max.saturating_mul(2).min(ANY_STEP)
}

/// Of so many free bytes that are not reserved, those that go back to the file systems.
pub(in crate::engine) fn excess_bytes(spare: u64, used: u64, space: &FileSpace) -> u64 {
    spare.saturating_sub((used / KEPT_PART).max(space.kept_bytes_min))
}

/// How long the ring of a log device is to be, of so many, for this much data.
pub(in crate::engine) fn log_bytes_wanted(data_bytes: u64, times_data: u32, devices: usize) -> u64 {
    data_bytes.saturating_mul(u64::from(times_data)) / (devices as u64).max(1)
}

impl Default for FileSpace {
    /// What stores on files have.
    fn default() -> Self {
        super::configure::file_space(&super::Scale::FULL)
    }
}

#[cfg(test)]
mod tests;
