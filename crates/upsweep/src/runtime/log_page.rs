//! How large the pages of a new log are: a logical block of its devices where durable writes of
//! that are as fast as those of 4 KiB, else 4096 bytes.
//!
//! A lone update takes a page of the log, so small pages make the log last longer and wear devices
//! less. Where a physical block is larger, the device has to read what it does not write of it;
//! some keep what they need for that at hand, and others take twice the time. So it is measured.

use std::time::Duration;

use super::description::Description;
use crate::device::{BlockWrites, DeviceError, DeviceId, Devices, Range, probe_block_writes};
use crate::engine::policy;
use crate::log::format::PAGE_BYTES_MAX;

/// The page of descriptions of before there was a choice.
pub(super) const fn page_bytes_before() -> u32 {
    PAGE_BYTES_MAX
}

/// What a new log has, and how it was found.
pub(super) struct Choice {
    /// Bytes of a page.
    pub(super) page_bytes: u32,
    /// Writes of a logical block on each log device, if they were compared.
    pub(super) writes: Vec<(DeviceId, BlockWrites)>,
}

/// Chooses for the log devices from `first` on, with rings of so many bytes; may write to the
/// scratch range of each, which follows from its size. An error comes with its device.
pub(super) fn choose(
    devices: &mut dyn Devices,
    first: DeviceId,
    rings: &[u64],
    scratch: impl Fn(u64) -> Range,
    now: impl Fn() -> Duration,
) -> Result<Choice, (DeviceId, DeviceError)> {
    let logs: Vec<DeviceId> = (first.0..).map(DeviceId).take(rings.len()).collect();
    let block = |device: &DeviceId| devices.geometry(*device).logical_block_bytes;
    let blocks: Vec<u32> = logs.iter().map(block).collect();
    let Some(page_bytes) = policy::log_page_to_try(&blocks, rings) else {
        return Ok(Choice { page_bytes: PAGE_BYTES_MAX, writes: Vec::new() });
    };
    let mut writes = Vec::new();
    for device in &logs {
        let scratch = scratch(devices.geometry(*device).size_bytes);
        let of_device = probe_block_writes(devices, *device, page_bytes, scratch, &now)
            .map_err(|error| (*device, error))?;
        writes.push(of_device);
    }
    let page_bytes = policy::log_page_bytes(page_bytes, &writes);
    Ok(Choice { page_bytes, writes: logs.into_iter().zip(writes).collect() })
}

/// By how much longer a write of a block takes than one of 4 KiB.
pub(super) fn slower(left: &BlockWrites, right: &BlockWrites) -> std::cmp::Ordering {
    (left.block_us * right.unit_us).cmp(&(right.block_us * left.unit_us))
}

/// Why the pages of a log are as they are, for people.
pub(super) fn reason(description: &Description) -> String {
    let page = description.log_page_bytes;
    let worst = description.log_profiles().filter_map(|profile| profile.block_writes);
    match worst.max_by(slower) {
        Some(BlockWrites { block_bytes, block_us, unit_us }) => format!(
            "{page} bytes: a durable write of {block_bytes} bytes takes {block_us} us, one of \
             4 KiB {unit_us} us"
        ),
        None if description.log_profiles().any(|profile| profile.rotational) => {
            format!("{page} bytes: the log device rotates")
        }
        None => {
            let rings = &description.log_ring_bytes;
            let is_large = rings.iter().any(|ring| !policy::are_pages_numbered(*ring, 512));
            let reason = if is_large { "the log is large" } else { "smaller ones were not tried" };
            format!("{page} bytes: {reason}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Geometry, LatencyModel, MemoryDevices, Simulated};

    /// What is chosen for log devices with these logical blocks and rings, behind a data device,
    /// and whether anything was written.
    fn chosen(blocks: &[u32], ring: u64, bytes_per_us: u64) -> (Choice, bool) {
        let geometry = |logical_block_bytes: &u32| Geometry {
            size_bytes: 4 << 20,
            logical_block_bytes: *logical_block_bytes,
            physical_block_bytes: 4096,
            rotational: false,
            growable: false,
        };
        let geometries = [4096].iter().chain(blocks).map(geometry).collect();
        let mut bank = MemoryDevices::new(geometries, 1);
        bank.set_latency(LatencyModel { base_us: 100, bytes_per_us, jitter_us: 0 });
        let clock = bank.clock();
        let now = || Duration::from_micros(clock.now_us());
        let scratch = |bytes| Range { offset: 0, bytes };
        let rings = vec![ring; blocks.len()];
        let before = bank.digest();
        let choice = choose(&mut bank, DeviceId(1), &rings, scratch, now).expect("no device fails");
        (choice, bank.digest() != before)
    }

    #[test]
    fn a_page_is_the_largest_logical_block_if_writes_of_it_are_fast() {
        let (choice, _) = chosen(&[512], 1 << 20, 100);
        assert_eq!(choice.page_bytes, 512);
        let writes = BlockWrites { block_bytes: 512, block_us: 105, unit_us: 140 };
        assert_eq!(choice.writes, [(DeviceId(1), writes)]);
        assert_eq!(chosen(&[512, 1024, 512], 1 << 20, 100).0.page_bytes, 1024);
    }

    #[test]
    fn nothing_is_tried_where_only_4096_bytes_will_do() {
        for (blocks, ring) in [(&[4096][..], 1 << 20), (&[512, 4096], 1 << 20), (&[512], 2 << 40)] {
            let (choice, was_written) = chosen(blocks, ring, 100);
            assert_eq!((choice.page_bytes, was_written), (4096, false));
            assert_eq!(choice.writes, []);
        }
        assert_eq!(chosen(&[1024], 2 << 40, 100).0.page_bytes, 1024, "fewer pages");
    }

    #[test]
    fn of_several_devices_the_one_counts_that_is_worst_at_small_writes() {
        let of = |block_us, unit_us| BlockWrites { block_bytes: 512, block_us, unit_us };
        let all = [of(100, 100), of(200, 100), of(300, 290)];
        assert_eq!(all.into_iter().max_by(slower), Some(all[1]));
    }
}
