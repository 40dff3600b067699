//! Whether durable writes of less than 4 KiB are as fast as those of 4 KiB.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::load::Range;
use crate::device::random::SplitMix64;
use crate::device::{Buffer, DeviceError, DeviceId, Devices, write_alone};

/// Durable writes of each size to compare.
const PAIRS: u64 = 30;
/// Comparing stops early after this many pairs if it takes longer than [`COMPARING_TIME`].
const PAIRS_MIN: usize = 8;
const COMPARING_TIME: Duration = Duration::from_millis(500);
/// Most rounds; the first that shows a fast device ends it. Other load may slow one round, but a
/// property of the device slows all of them.
const ROUNDS: usize = 3;
/// Bytes of a write to compare with.
const UNIT_BYTES: u64 = 4096;
/// Bytes of the range reserved for comparing.
const COMPARING_BYTES: u64 = 256 << 10;

const _: () = assert!(2 * PAIRS * UNIT_BYTES <= COMPARING_BYTES);

/// Latency of durable writes to consecutive places, like those of a log. Times are medians in
/// microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockWrites {
    /// Size of a small write, in bytes.
    pub block_bytes: u32,
    /// Latency of a write of `block_bytes`, in microseconds.
    pub block_us: u64,
    /// Latency of a write of 4 KiB, in microseconds.
    pub unit_us: u64,
}

impl BlockWrites {
    /// Whether a small write takes at most 1.25 times as long as one of 4 KiB. It takes longer
    /// where the device has to read the rest of a physical block first.
    #[must_use]
    pub fn are_fast(&self) -> bool {
        4 * self.block_us <= 5 * self.unit_us
    }
}

/// Compares durable writes of `block_bytes` to `device` with those of 4 KiB, alternating between
/// the two, with nothing else in flight on the bank. `block_bytes` is a multiple of the logical
/// block of the device, at most 4096. Overwrites the first 256 KiB of `scratch`, which must be
/// allocated. `now` returns the time since any fixed moment. Cost: 60 writes, a few milliseconds
/// on a solid-state disk; three times as many if small writes seem slow.
///
/// # Errors
/// [`DeviceError::InvalidRange`] if the range is below 256 KiB or outside the device, or if
/// `block_bytes` is not a multiple of its logical block; otherwise the error that the device
/// reports.
pub fn probe_block_writes(
    devices: &mut dyn Devices,
    device: DeviceId,
    block_bytes: u32,
    scratch: Range,
    now: impl Fn() -> Duration,
) -> Result<BlockWrites, DeviceError> {
    if scratch.bytes < COMPARING_BYTES {
        return Err(DeviceError::InvalidRange);
    }
    let mut random = SplitMix64::new(2);
    let mut round = || compare_writes(devices, device, block_bytes, scratch, &mut random, &now);
    let mut found = round()?;
    for _ in 1..ROUNDS {
        if found.are_fast() {
            break;
        }
        found = round()?;
    }
    Ok(found)
}

/// One round of [`probe_block_writes`].
fn compare_writes(
    devices: &mut dyn Devices,
    device: DeviceId,
    block_bytes: u32,
    scratch: Range,
    random: &mut SplitMix64,
    now: &impl Fn() -> Duration,
) -> Result<BlockWrites, DeviceError> {
    let sizes = [u64::from(block_bytes), UNIT_BYTES];
    // The writes of one size are consecutive, and the two sizes have separate ranges.
    let starts = [0, PAIRS * UNIT_BYTES].map(|start| scratch.offset + start);
    let mut samples = [Vec::new(), Vec::new()];
    let begin = now();
    for pair in 0..PAIRS {
        for ((bytes, start), samples) in sizes.into_iter().zip(starts).zip(&mut samples) {
            let mut buffer = Buffer::zeroed(bytes as usize);
            random.fill(&mut buffer);
            let before = now();
            write_alone(devices, device, start + pair * bytes, buffer)?;
            samples.push(now() - before);
        }
        if samples[0].len() >= PAIRS_MIN && now() - begin > COMPARING_TIME {
            break;
        }
    }
    let [block_us, unit_us] = samples.map(|mut samples| {
        samples.sort_unstable();
        samples[samples.len() / 2].as_micros() as u64
    });
    Ok(BlockWrites { block_bytes, block_us, unit_us })
}
