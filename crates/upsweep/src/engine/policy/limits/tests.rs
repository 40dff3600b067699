//! Each rule at its edges.

use proptest::prelude::*;

use super::*;
use crate::engine::policy::configure::tests::{configured, shape};
use crate::engine::policy::{Options, Scale, configure};

#[test]
fn the_memory_of_a_store_is_divided_without_a_rest() {
    let config = configured(64 << 20);
    let run = 32 * (16 << 10) + 8 * (16 << 10);
    let scans = 2 << 20;
    assert_eq!(config.fixed_bytes(), 2 * run * 4 + scans + 7 * (128 << 10) + 8 * 8 * (16 << 10));
    assert_eq!(config.queue_bytes_min(), 16 * (16 << 10));
    let parts = config.fixed_bytes() + config.cache_bytes + DIRECTORY_BYTES_MIN;
    assert_eq!(parts + config.queue_bytes_max(), 64 << 20);
    assert_eq!(config.queue_bytes_beside(0), 64 << 20);
    assert_eq!(config.queue_bytes_beside((64 << 20) - config.queue_bytes_min() - 1), 262_145);
    for others in [(64 << 20) - config.queue_bytes_min(), 64 << 20, usize::MAX] {
        assert_eq!(config.queue_bytes_beside(others), config.queue_bytes_min(), "{others}");
    }
    let without = Config { spilling: Spilling::Never, ..config.clone() };
    assert_eq!(config.fixed_bytes() - without.fixed_bytes(), 1 << 20, "what spills write");
}

#[test]
fn queues_are_oversized_and_values_large_by_the_size_of_blocks() {
    let config = configured(64 << 20);
    for (growth, oversized) in [(0, false), ((128 << 10) - 1, false), (128 << 10, true)] {
        assert_eq!(config.is_oversized(growth), oversized, "{growth}");
    }
    assert!(config.is_oversized(u32::MAX));
    assert_eq!(config.inline_value_bytes_max(), 4096);
    assert_eq!(config.spill_bytes_max(), 128 << 10);
}

#[test]
fn blocks_may_be_half_a_run_long() {
    let sizes = configured(64 << 20).block_sizes();
    assert_eq!((sizes.least, sizes.most), (16 << 10, 256 << 10));
    assert_eq!(sizes.directory_bytes, (64 << 20) / 5);
    let of_run = |run_blocks_max, block_bytes| {
        let config = Config { run_blocks_max, block_bytes, ..configured(64 << 20) };
        config.block_sizes().most
    };
    assert_eq!(of_run(1, 16 << 10), 16 << 10, "no less than a block");
    assert_eq!(of_run(usize::MAX, 16 << 10), 1 << 20, "the largest that there are");
    assert_eq!(of_run(usize::MAX, u32::MAX), 1 << 20);
}

#[test]
fn a_configuration_is_checked_at_the_ends_of_its_ranges() {
    let refused = |change: fn(&mut Config)| {
        let mut config = configured(64 << 20);
        change(&mut config);
        config.check().err().map(|error| error.to_string())
    };
    assert_eq!(refused(|_| ()), None);
    assert_eq!(refused(|config| config.block_bytes = 4096), None);
    assert_eq!(refused(|config| config.data_devices = DEVICES_MAX), None);
    assert_eq!(refused(|config| config.spill_segment_bytes = 128 << 10), None);
    assert_eq!(refused(|config| config.bulk.request_bytes = 4 << 20), None);
    let message = refused(|config| config.runs_in_flight_max = 65);
    assert_eq!(message.as_deref(), Some("runs in flight: 65; give 1 to 64"));
    let changes: [fn(&mut Config); 18] = [
        |config| config.block_bytes = 0,
        |config| config.block_bytes = 4097,
        |config| config.block_bytes = (1 << 20) + 4096,
        |config| config.data_devices = 0,
        |config| config.data_devices = DEVICES_MAX + 1,
        |config| config.log_regions.clear(),
        |config| config.log_batch_bytes = 0,
        |config| config.log_batch_bytes = 4097,
        |config| config.run_blocks_max = 0,
        |config| config.runs_in_flight_max = 0,
        |config| config.runs_in_flight_max = 65,
        |config| config.spill_segment_bytes = 0,
        |config| config.spill_segment_bytes = (128 << 10) + 1,
        |config| config.bulk.request_bytes = 0,
        |config| config.bulk.request_bytes = 4097,
        |config| config.bulk.request_bytes = (4 << 20) + 4096,
        |config| config.file_space.granule_bytes = 0,
        |config| config.file_space.granule_bytes = 4097,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert!(refused(change).is_some(), "{number}");
    }
    let least = configured(64 << 20).memory_bytes_min();
    let with = |memory_bytes| Config { memory_bytes, ..configured(64 << 20) }.check();
    assert!(with(least).is_ok() && with(least - 1).is_err());
}

proptest! {
    #[test]
    fn limits_of_any_configuration_are_numbers(
        memory_bytes: usize,
        run_blocks_max: usize,
        block_bytes: u32,
        log_depth: u8,
    ) {
        let run_blocks_max = Some(run_blocks_max);
        let options = Options { memory_bytes, run_blocks_max, log_depth, ..Options::default() };
        let mut shape = shape();
        shape.block_bytes = block_bytes;
        let config = configure(&shape, &options, &Scale::FULL);
        prop_assert!(config.memory_bytes_min() >= config.fixed_bytes());
        prop_assert!(config.queue_bytes_max() >= config.queue_bytes_min());
        prop_assert!(config.check().is_err() || config.queue_bytes_max() < memory_bytes);
        let _any = (config.block_sizes(), config.run_limits());
    }
}
