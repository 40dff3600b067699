//! Each rule at its edges.

use proptest::prelude::*;

use super::*;
use crate::device::DeviceId;
use crate::engine::policy::{block_bytes, log_segment_bytes};

const MIB: usize = 1 << 20;

/// A store as created with all defaults.
pub(in crate::engine::policy) fn shape() -> Shape {
    let log_regions = vec![LogRegion { device: DeviceId(1), offset: 4096, bytes: 512 << 20 }];
    Shape {
        store: *b"a store of tests",
        data_devices: 1,
        rotates: false,
        log_regions,
        block_bytes: block_bytes(false, None, &Scale::FULL),
        log_segment_bytes: log_segment_bytes(&[512 << 20], &Scale::FULL),
        log_page_bytes: 4096,
        suited: Suited::default(),
        boundaries: Vec::new(),
    }
}

fn with_memory(memory_bytes: usize) -> Options {
    Options { memory_bytes, ..Options::default() }
}

/// Its configuration with this memory.
pub(in crate::engine::policy) fn configured(memory_bytes: usize) -> Config {
    configure(&shape(), &with_memory(memory_bytes), &Scale::FULL)
}

#[test]
fn a_store_that_is_opened_with_defaults_has_what_the_documents_say() {
    let config = configure(&shape(), &Options::default(), &Scale::FULL);
    assert_eq!(config.memory_bytes, 256 * MIB);
    assert_eq!((config.cache_bytes, config.run_bytes_max), (32 * MIB, 8 * MIB));
    assert_eq!((config.block_bytes, config.run_blocks_max), (16 << 10, 32));
    assert_eq!((config.log_segment_bytes, config.log_batch_bytes), (8 << 20, 128 << 10));
    assert_eq!((config.log_depth, config.log_delay_us_max, config.log_times_data), (2, 5000, 4));
    assert_eq!((config.directory_percent, config.run_density_percent_min), (20, 50));
    assert_eq!((config.fold_bytes_min, config.fanout_min), (4096, 64));
    assert_eq!((config.spilling, config.spill_fill_percent), (Spilling::WhenItPays, 50));
    assert_eq!((config.spill_segment_bytes, config.runs_in_flight_max), (16 << 10, 4));
    assert_eq!(config.bulk, Bulk::default());
    assert_eq!((config.sweep_when_idle, config.sweep_for_queries), (false, true));
    let space = FileSpace {
        step_bytes_min: 16 << 20,
        granule_bytes: 256 << 10,
        kept_bytes_min: 64 << 20,
        window_us: 10_000_000,
    };
    assert_eq!(config.file_space, space);
    assert_eq!(config.check(), Ok(()));
    let rotates = Shape { rotates: true, ..shape() };
    let rotating = configure(&rotates, &Options::default(), &Scale::FULL);
    assert_eq!((rotating.sweep_when_idle, rotating.sweep_for_queries), (true, false));
    assert_eq!(rotating.spill_segment_bytes, 64 << 10);
}

#[test]
fn a_short_log_has_fewer_batches_in_flight() {
    let depth = |segments: u64, log_depth| {
        let mut shape = shape();
        let long = shape.log_regions[0];
        let bytes = segments * u64::from(shape.log_segment_bytes);
        shape.log_regions = vec![long, LogRegion { device: DeviceId(2), bytes, ..long }];
        let options = Options { log_depth, ..Options::default() };
        configure(&shape, &options, &Scale::FULL).log_depth
    };
    assert_eq!((depth(8, 6), depth(8, 7), depth(8, 16)), (6, 6, 6));
    assert_eq!((depth(18, 16), depth(17, 16)), (16, 15));
    assert_eq!((depth(4, 1), depth(4, 3), depth(0, 3)), (1, 2, 2));
    assert_eq!((depth(8, 0), depth(8, 17)), (0, 17), "not for this function to mend");
}

#[test]
fn a_run_is_a_part_of_the_memory_within_bounds() {
    let blocks = |block_bytes: u32, memory_bytes| {
        configure(&Shape { block_bytes, ..shape() }, &with_memory(memory_bytes), &Scale::FULL)
            .run_blocks_max
    };
    for (block_bytes, memory_bytes, expected) in [
        (16 << 10, 0, 32),
        (16 << 10, usize::MAX, 32),
        (64 << 10, 0, 8),
        (64 << 10, 64 * MIB, 8),
        (64 << 10, 72 * MIB, 9),
        (64 << 10, 256 * MIB, 32),
        (1 << 20, 0, 1),
        (1 << 20, 511 * MIB, 3),
        (1 << 20, usize::MAX, 4),
        (0, 0, 32),
        (u32::MAX, usize::MAX, 1),
    ] {
        assert_eq!(blocks(block_bytes, memory_bytes), expected, "{block_bytes} {memory_bytes}");
    }
    let on = |run_bytes: u64, memory_bytes| {
        let suited = Suited { run_bytes, ..Suited::default() };
        let shape = Shape { block_bytes: 64 << 10, suited, ..shape() };
        configure(&shape, &with_memory(memory_bytes), &Scale::FULL).run_blocks_max
    };
    // A drive on which longer runs are better has them where there is memory for them.
    assert_eq!(
        [0, 64 * MIB, 128 * MIB, 256 * MIB].map(|memory| on(4 << 20, memory)),
        [8, 16, 32, 32]
    );
    assert_eq!(
        [0, 64 * MIB, 128 * MIB, usize::MAX].map(|memory| on(128 << 10, memory)),
        [2, 8, 16, 16]
    );
    let asked = Options { run_blocks_max: Some(1000), ..Options::default() };
    assert_eq!(configure(&shape(), &asked, &Scale::FULL).run_blocks_max, 1000);
}

#[test]
fn a_scan_of_a_drive_reads_whole_tracks_and_of_an_array_keeps_all_drives_busy() {
    const KIB: u64 = 1 << 10;
    let of = |rotates, unit_bytes: Option<u64>, stripe_bytes| {
        let units = unit_bytes.map(|bytes| Boundaries::new([(0, bytes, 10)]).expect("in order"));
        let suited = Suited { scan_request_bytes: 512 * KIB, stripe_bytes, ..Suited::default() };
        let shape = Shape { rotates, suited, boundaries: units.into_iter().collect(), ..shape() };
        let config = configure(&shape, &Options::default(), &Scale::FULL);
        assert_eq!(config.check(), Ok(()));
        assert_eq!(config.scans_take_turns, rotates && stripe_bytes == 0, "one head serves all");
        let kib = |bytes| u64::from(bytes) / KIB;
        let alone = (kib(config.scan_request_bytes), config.scan_requests_in_flight);
        let beside = kib(config.scan_request_bytes_beside_queries);
        (alone, (beside, config.scan_requests_beside_queries))
    };
    assert_eq!(of(true, None, 0), ((512, 2), (512, 1)));
    assert_eq!(of(false, None, 0), ((512, 4), (2048, 1)));
    // Four tracks and one and a half of 686 sectors, in whole pages; of short ones several, of a
    // longest one a part.
    assert_eq!(of(true, Some(343 * KIB), 0), ((1372, 2), (516, 1)));
    assert_eq!(of(true, Some(24 * KIB), 0), ((128, 2), (128, 1)));
    assert_eq!(of(true, Some(1500 * KIB), 0), ((4096, 2), (2252, 1)));
    assert_eq!(of(true, Some(u64::MAX / 10), 0), ((4096, 2), (4096, 1)));
    // Four drives, with units of 256 KiB, and of 64 KiB; of drives that do not rotate.
    assert_eq!(of(true, Some(256 * KIB), 1024 * KIB), ((256, 8), (256, 4)));
    assert_eq!(of(true, Some(64 * KIB), 256 * KIB), ((128, 4), (128, 2)));
    assert_eq!(of(true, None, 256 * KIB), ((512, 2), (512, 1)));
    assert_eq!(of(false, Some(64 * KIB), 256 * KIB), ((512, 4), (2048, 1)));
    assert_eq!(of(false, Some(512 * KIB), 2048 * KIB), ((512, 16), (2048, 4)));
    assert_eq!(of(false, Some(512 * KIB), u64::MAX), ((512, 64), (2048, 16)));
}

#[test]
fn a_scan_that_takes_turns_has_short_requests_where_the_head_is_if_these_stream() {
    let of = |rotates, following_request_bytes, stripe_bytes, options: &Options| {
        let scan_request_bytes = 512 << 10;
        let suited = Suited {
            scan_request_bytes,
            following_request_bytes,
            stripe_bytes,
            ..Suited::default()
        };
        let shape = Shape { rotates, suited, ..shape() };
        configure(&shape, options, &Scale::FULL).scan_request_bytes_following
    };
    let (short, chosen) = (Some(64 << 10), Options::default());
    assert_eq!(of(true, short, 0, &chosen), Some(64 << 10));
    assert_eq!(of(true, None, 0, &chosen), None, "nothing was measured");
    assert_eq!(of(true, Some(512 << 10), 0, &chosen), None, "shorter ones do not stream");
    assert_eq!(of(true, short, 1 << 20, &chosen), None, "an array");
    assert_eq!(of(false, short, 0, &chosen), None, "no head");
    let given = Options { scan_request_bytes: Some(256 << 10), ..chosen };
    assert_eq!(of(true, short, 0, &given), None, "all have the length that was given");
}

#[test]
fn recovery_and_loads_have_requests_that_stream_within_the_memory() {
    let of = |bulk_request_bytes: u64, memory_bytes| {
        let suited = Suited { bulk_request_bytes, ..Suited::default() };
        let config =
            configure(&Shape { suited, ..shape() }, &with_memory(memory_bytes), &Scale::FULL);
        (config.bulk.request_bytes >> 10, config.bulk.bytes_in_flight() / MIB)
    };
    assert_eq!(of(1 << 20, usize::MAX), (1024, 8));
    let on_a_drive = [0, 128 * MIB, 256 * MIB, usize::MAX].map(|memory| of(4 << 20, memory));
    assert_eq!(on_a_drive, [(1024, 8), (1024, 8), (2048, 8), (4096, 16)]);
    let given = Options { bulk_request_bytes: Some(64 << 10), ..Options::default() };
    assert_eq!(configure(&shape(), &given, &Scale::FULL).bulk.request_bytes, 64 << 10);
}

#[test]
fn a_gap_is_read_over_only_on_rotating_drives() {
    let suited = Suited { gap_bytes: 104 << 10, ..Suited::default() };
    let gap = |rotates| {
        let shape = Shape { rotates, suited, ..shape() };
        configure(&shape, &Options::default(), &Scale::FULL).bulk.gap_bytes_max
    };
    assert_eq!((gap(true), gap(false)), (104 << 10, 0));
}

#[test]
fn spill_segments_and_runs_in_flight_can_be_chosen() {
    let options =
        Options { spill_segment_bytes: Some(40_000), runs_in_flight_max: 7, ..Options::default() };
    let config = configure(&shape(), &options, &Scale::FULL);
    assert_eq!((config.spill_segment_bytes, config.runs_in_flight_max), (40_000, 7));
    assert_eq!(config.check(), Ok(()));
}

#[test]
fn scans_of_rotating_devices_begin_with_long_requests() {
    let of = |rotates, requests| {
        let scan_requests_in_flight = Some(requests);
        let options = Options { scan_requests_in_flight, ..Options::default() };
        let config = configure(&Shape { rotates, ..shape() }, &options, &Scale::FULL);
        (config.scan_window_bytes_min(), config.scan_window_bytes())
    };
    let request = Suited::default().scan_request_bytes as usize;
    assert_eq!((of(true, 0), of(false, 2)), ((0, 0), (0, 3 * request)));
    assert_eq!(of(true, 1), (2 * request, 2 * request));
    assert_eq!(of(true, 2), (2 * request, 3 * request));
}

#[test]
fn scans_that_do_not_read_ahead_take_no_memory() {
    let of = |requests| {
        let scan_requests_in_flight = Some(requests);
        let options = Options { scan_requests_in_flight, ..Options::default() };
        let config = configure(&shape(), &options, &Scale::FULL);
        assert_eq!(config.scan_requests_beside_queries, requests, "a given number is that");
        config.scan_bytes_max
    };
    assert_eq!((of(0), of(1), of(3)), (0, 8 * MIB, 8 * MIB));
}

#[test]
fn a_batch_is_a_quarter_of_a_segment_or_a_page() {
    for (segment, batch) in [
        (0, 4096),
        (16 << 10, 4096),
        ((32 << 10) - 1, 4096),
        (32 << 10, 8192),
        (512 << 10, 128 << 10),
        (u32::MAX, 128 << 10),
    ] {
        let shape = Shape { log_segment_bytes: segment, ..shape() };
        for memory_bytes in [0, usize::MAX] {
            let found = log_batch_bytes(&shape, &with_memory(memory_bytes));
            assert_eq!(found, batch, "{segment} {memory_bytes}");
        }
    }
    let batch = |log_batch_bytes: u64, memory_bytes| {
        let suited = Suited { log_batch_bytes, ..Suited::default() };
        super::log_batch_bytes(&Shape { suited, ..shape() }, &with_memory(memory_bytes))
    };
    let of_memory = [0, 32 * MIB, 100 * MIB, 256 * MIB, usize::MAX].map(|all| batch(1 << 20, all));
    assert_eq!(of_memory, [128, 128, 400, 1024, 1024].map(|kib| kib << 10));
    assert_eq!(batch(64 << 10, usize::MAX), 64 << 10);
    let given = |bytes| {
        let options = Options { log_batch_bytes: Some(bytes), ..with_memory(0) };
        log_batch_bytes(&Shape { log_segment_bytes: 8 << 20, ..shape() }, &options)
    };
    // One that is not whole pages is refused later.
    assert_eq!([4096, 512 << 10, 5000, u32::MAX].map(given), [4096, 512 << 10, 5000, 2 << 20]);
}

#[test]
fn the_least_memory_is_what_a_store_opens_with() {
    let least = memory_bytes_min(&shape(), &Options::default(), &Scale::FULL);
    assert!(configured(least).check().is_ok());
    assert!(configured(least - 1).check().is_err());
    let message = |bytes| {
        let checked = check_memory(&shape(), &with_memory(bytes), &Scale::FULL);
        checked.err().map(|error| error.to_string())
    };
    assert_eq!(message(least), None);
    let mebibytes = least.div_ceil(MIB);
    let told = |bytes| format!("memory: {bytes} bytes; this store needs at least {mebibytes}MiB");
    assert_eq!(message(0), Some(told(0)));
    assert_eq!(message(least - 1), Some(told(least - 1)));
    assert_eq!(message(mebibytes * MIB), None, "what the message says is enough");
}

#[test]
fn there_is_a_worker_per_processor_but_not_many() {
    let of = |asked| [0, 1, 4, 5, usize::MAX].map(|processors| workers(asked, processors));
    assert_eq!(of(0), [1, 1, 4, 4, 4]);
    assert_eq!(of(1), [1; 5]);
    assert_eq!(of(usize::MAX), [usize::MAX; 5]);
}

fn any_scale() -> impl Strategy<Value = Scale> {
    let divisor = || prop_oneof![Just(0), Just(1), 2u32..1000, Just(u32::MAX)];
    let divisors = prop::array::uniform7(divisor());
    divisors.prop_map(|[blocks, nodes, directory, log, times, spills, file_space]| Scale {
        blocks,
        nodes,
        directory,
        log,
        log_times_data: times,
        spill_segments: spills,
        file_space,
    })
}

proptest! {
    #[test]
    fn any_store_of_any_scale_opens_with_its_least_memory(
        scale in any_scale(),
        ring in 128u64 << 10..1 << 40,
        rings in 1usize..8,
        asked in prop::option::of(1u32..256),
        (run_blocks_max, runs_in_flight_max) in (prop::option::of(1usize..1024), 1usize..=16),
        rotates: bool,
        (run, batch) in (128u64..4096, 64u64..1024),
    ) {
        let ring = ring - ring % 4096;
        let region = LogRegion { device: DeviceId(1), offset: 4096, bytes: ring };
        let shape = Shape {
            rotates,
            log_regions: vec![region; rings],
            block_bytes: block_bytes(rotates, asked.map(|units| 4096 * units), &scale),
            log_segment_bytes: log_segment_bytes(&[ring], &scale),
            suited: Suited {
                run_bytes: run << 10,
                log_batch_bytes: batch << 10,
                ..Suited::default()
            },
            ..shape()
        };
        let options = Options { run_blocks_max, runs_in_flight_max, ..Options::default() };
        let memory_bytes = memory_bytes_min(&shape, &options, &scale);
        let config = configure(&shape, &Options { memory_bytes, ..options }, &scale);
        prop_assert_eq!(config.check(), Ok(()));
        prop_assert!(config.fanout_min >= 6);
        prop_assert_eq!(config.bulk.gap_bytes_max > 0, rotates);
        prop_assert!(config.spill_segment_bytes > 0);
        prop_assert!(config.log_batch_bytes <= config.log_segment_bytes);
    }

    #[test]
    fn more_than_the_least_memory_is_enough(
        scale in any_scale(),
        (units, runs_in_flight_max) in (1u32..64, 1usize..=16),
        (run, batch) in (128u64..4096, 64u64..1024),
        more in 0usize..40 << 20,
    ) {
        let block_bytes = block_bytes(false, Some(4096 * units), &scale);
        let (run_bytes, log_batch_bytes) = (run << 10, batch << 10);
        let suited = Suited { run_bytes, log_batch_bytes, ..Suited::default() };
        let shape = Shape { block_bytes, suited, ..shape() };
        let options = Options { runs_in_flight_max, ..Options::default() };
        let memory_bytes = memory_bytes_min(&shape, &options, &scale) + more;
        let config = configure(&shape, &Options { memory_bytes, ..options }, &scale);
        prop_assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn more_memory_makes_nothing_smaller(memory_bytes in 0usize..1 << 40, more in 0usize..1 << 40) {
        let (less, more) = (configured(memory_bytes), configured(memory_bytes + more));
        prop_assert!(less.cache_bytes <= more.cache_bytes);
        prop_assert!(less.run_blocks_max <= more.run_blocks_max);
        prop_assert!(less.queue_bytes_max() <= more.queue_bytes_max());
        prop_assert!(less.block_sizes().directory_bytes <= more.block_sizes().directory_bytes);
    }

    #[test]
    fn any_figures_give_a_configuration(
        scale in any_scale(),
        memory_bytes: usize,
        block_bytes: u32,
        log_segment_bytes: u32,
        run_blocks_max in prop::option::of(any::<usize>()),
    ) {
        let shape = Shape { block_bytes, log_segment_bytes, ..shape() };
        let options = Options { memory_bytes, run_blocks_max, ..Options::default() };
        let least = memory_bytes_min(&shape, &options, &scale);
        prop_assert!(least >= configure(&shape, &options, &scale).queue_bytes_min());
    }
}
