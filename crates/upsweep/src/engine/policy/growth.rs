//! Room on the devices: the reserve for waiting updates, the growth of data devices and the log,
//! and the free space to return.

use crate::engine::config::FileSpace;
use crate::placement::{DEVICE_BYTES_MAX, UNIT_BYTES};

/// Time after a refusal during which no device is asked to grow again, in microseconds.
pub(in crate::engine) const REFUSAL_US: u64 = 1_000_000;
/// After this many refusals no hole is tried until that time is over: each costs a system call.
pub(in crate::engine) const HOLES_REFUSED_MAX: u32 = 1024;
/// The longest step if none was refused.
pub(in crate::engine) const ANY_STEP: u64 = u64::MAX >> 1;
/// Longest hole that is punched at a time, in bytes: a few extents of a file system.
pub(in crate::engine) const PUNCH_BYTES_MAX: u64 = 16 << 20;
/// Divisor of its capacity that gives the growth step of a device, so that it grows a few times per
/// doubling.
const STEP_PART: u64 = 8;
/// A step is this many times what is lacking, or the next update would ask again.
const STEP_TIMES_LACKING: u64 = 4;
/// Divisor of the used space that gives the free space kept beyond what is reserved: twice what a
/// step of growth adds, so that growth never makes an excess.
const KEPT_PART: u64 = 4;
/// Divisor of the devices that limits the space assumed for shadowing a run: on small ones a run
/// can never have more.
const SHADOW_PART: u64 = 16;
/// Divisor of the devices that gives what reserved extents leave free for updates to come: without
/// these the owner could not even record what it does not need any more.
const EXTENT_MARGIN_PART: u64 = 128;
/// The same in bytes, at least and at most: for 4 and 512 MiB of updates, which need twice as much.
const EXTENT_MARGIN_MIN: u64 = 8 << 20;
const EXTENT_MARGIN_MAX: u64 = 1 << 30;
/// The divisor for devices of which the least would be too much.
const EXTENT_MARGIN_PART_OF_SMALL: u64 = 32;
/// Bytes of a checkpoint per block: its entry in a page of the block table and in a leaf.
const CHECKPOINT_BYTES_PER_BLOCK: u64 = 64;

/// Smallest step in which a data file grows, in bytes.
pub(super) const STEP_BYTES_MIN: u64 = 16 << 20;
/// A run of the usual length leaves holes of 512 KiB, which contain a whole granule of this length;
/// smaller ones would fragment files more.
pub(super) const GRANULE_BYTES: u64 = 256 << 10;
/// Four of the smallest steps are kept, so that small stores do not alternate between returning and
/// allocating space.
pub(super) const KEPT_BYTES_MIN: u64 = 4 * STEP_BYTES_MIN;
/// Longer than runs and checkpoints use space temporarily; in microseconds.
pub(super) const WINDOW_US: u64 = 10_000_000;

/// Demand for space on the data devices that is not written yet.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Demand {
    /// Bytes of waiting updates, by which blocks may grow.
    pub(in crate::engine) waiting_bytes: u64,
    /// Blocks that have waiting updates.
    pub(in crate::engine) blocks: u64,
    /// Bytes of images that blocks still share with others, and will need separately.
    pub(in crate::engine) copied_bytes: u64,
    /// Space that no waiting update may count on: [`kept_bytes`].
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

/// Approximate size of a checkpoint of a directory with this many nodes and pages, blocks, and
/// bytes of keys. No run may use that space: without checkpoints the log would not be released.
pub(in crate::engine) fn checkpoint_bytes(images: u64, blocks: u64, key_bytes: u64) -> u64 {
    let of_images = images.saturating_add(2).saturating_mul(UNIT_BYTES);
    let of_blocks = blocks.saturating_mul(CHECKPOINT_BYTES_PER_BLOCK);
    of_images.saturating_add(of_blocks).saturating_add(key_bytes.saturating_mul(2))
}

/// Space for the new images of a run while its old ones are still there.
pub(in crate::engine) fn shadow_bytes(run_bytes: u64, capacity_bytes: u64) -> u64 {
    run_bytes.min(capacity_bytes / SHADOW_PART)
}

/// Bytes that reserved extents leave free beside what waiting updates need.
pub(in crate::engine) fn extent_margin_bytes(capacity_bytes: u64) -> u64 {
    let margin = capacity_bytes / EXTENT_MARGIN_PART;
    let of_small = capacity_bytes / EXTENT_MARGIN_PART_OF_SMALL;
    margin.clamp(EXTENT_MARGIN_MIN, EXTENT_MARGIN_MAX).min(of_small)
}

/// Bytes that no waiting update may count on: for a checkpoint, and for two runs, one being written
/// and one whose old images are not free yet.
pub(in crate::engine) fn kept_bytes(checkpoint_bytes: u64, shadow_bytes: u64) -> u64 {
    checkpoint_bytes.saturating_add(shadow_bytes.saturating_mul(2))
}

/// Free bytes below which devices grow before any caller has to wait for that.
pub(in crate::engine) fn ahead_bytes(reserved: u64, space: &FileSpace) -> u64 {
    reserved.saturating_add(space.step_bytes_min / 2)
}

/// Bytes by which the devices are to grow: what the last update lacked, and what will soon be
/// lacking, if any device can grow; 0 for not at all.
pub(in crate::engine) fn growth_wanted(short: u64, free: u64, ahead: u64, can_grow: bool) -> u64 {
    let soon = if can_grow { ahead.saturating_sub(free) } else { 0 };
    short.max(soon)
}

fn whole_granules(bytes: u64, space: &FileSpace) -> u64 {
    let granule = space.granule_bytes.max(1);
    bytes.div_ceil(granule).saturating_mul(granule)
}

/// The growth step of a device with this capacity that lacks `bytes`: whole granules.
pub(in crate::engine) fn step_bytes(capacity: u64, bytes: u64, space: &FileSpace) -> u64 {
    let lacking = bytes.saturating_mul(STEP_TIMES_LACKING);
    whole_granules((capacity / STEP_PART).max(space.step_bytes_min).max(lacking), space)
}

/// By how much the end of a device at `end` is to move if `bytes` are lacking: `step`, or as much
/// of it as is below `step_max`, the longest step that was not refused. `None` if it cannot make as
/// much room.
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

/// The longest step to try after one that would have gained this much was refused: half, in whole
/// granules. 0 if that was the shortest.
pub(in crate::engine) fn half_step(gain: u64, space: &FileSpace) -> u64 {
    let granule = space.granule_bytes.max(1);
    gain / 2 / granule * granule
}

/// The longest step to try after one limited by `step_max` succeeded.
pub(in crate::engine) fn doubled_step(step_max: u64) -> u64 {
    step_max.saturating_mul(2).min(ANY_STEP)
}

/// The part of this many free, unreserved bytes that goes back to the file systems.
pub(in crate::engine) fn excess_bytes(spare: u64, used: u64, space: &FileSpace) -> u64 {
    spare.saturating_sub((used / KEPT_PART).max(space.kept_bytes_min))
}

/// The target length of each of this many log rings, for this much data.
pub(in crate::engine) fn log_bytes_wanted(data_bytes: u64, times_data: u32, devices: usize) -> u64 {
    data_bytes.saturating_mul(u64::from(times_data)) / (devices as u64).max(1)
}

impl Default for FileSpace {
    /// The settings of stores on files.
    fn default() -> Self {
        super::configure::file_space(&super::Scale::FULL)
    }
}

#[cfg(test)]
mod tests;
