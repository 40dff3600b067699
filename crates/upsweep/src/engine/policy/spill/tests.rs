//! Each rule at its edges.

use proptest::prelude::*;

use super::*;

/// 1 GiB of images of 16 KiB, entries of 12 bytes, a log of 448 MiB with 28 bytes per entry.
fn costs(waiting_bytes: u64) -> Costs {
    Costs {
        blocks: 65_536,
        image_bytes: 1 << 30,
        waiting_bytes,
        entry_bytes: 12.0,
        spilled_entry_bytes: 1.25,
        log_bytes: 448 << 20,
        log_bytes_per_entry: 28.0,
    }
}

#[test]
fn spilling_pays_where_few_updates_wait_for_a_visit() {
    let pays = |costs: Costs| costs.spilling_pays(false);
    assert!(pays(costs(32 << 20)), "data is 32 times the memory");
    let large_log = Costs { log_bytes: 4 << 30, ..costs(512 << 20) };
    assert!(!pays(large_log), "data is twice the memory");
    assert!(!pays(Costs {
        entry_bytes: 12.0,
        blocks: 63,
        image_bytes: 63 << 14,
        ..costs(1 << 20)
    }));
    // One caller fills a page of the log with each update.
    assert!(pays(Costs { log_bytes_per_entry: 4096.0, ..costs(512 << 20) }));
}

#[test]
fn spilling_goes_on_where_it_would_not_begin_and_ends_where_it_gains_little() {
    let mut answers = Vec::new();
    for waiting_bytes in (4..400).map(|mib| mib << 20) {
        let costs = Costs { log_bytes: 4 << 30, ..costs(waiting_bytes) };
        assert!(!costs.spilling_pays(false) || costs.spilling_pays(true), "{costs:?}");
        answers.push((costs.spilling_pays(false), costs.spilling_pays(true)));
    }
    assert_eq!(answers.first(), Some(&(true, true)));
    assert!(answers.contains(&(false, true)), "a range in which it stays as it is");
    assert_eq!(answers.last(), Some(&(false, false)));
}

#[test]
fn a_visit_applies_what_memory_or_log_hold_for_a_cycle() {
    let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.01;
    let of_memory = costs(64 << 20).entries_per_visit(false);
    assert!(
        close(of_memory, STEADY_FILL * 2.0 * f64::from(64 << 20) / 12.0 / 65_536.0),
        "{of_memory}"
    );
    let of_log = costs(1 << 30).entries_per_visit(false);
    assert!(close(of_log, STEADY_FILL * f64::from(448 << 20) / 28.0 / 65_536.0), "{of_log}");
    let moved = costs(64 << 20).moved_bytes_per_entry(false);
    assert!(close(moved, 16_384.0 / of_memory), "{moved}");
}

#[test]
fn spill_segments_are_worth_having_until_blocks_are_a_part_of_what_is_written() {
    let waits = |waiting_bytes: u64| {
        let costs = costs(waiting_bytes);
        let spill_segments = SPILL_SEGMENT_OVERHEAD * costs.entry_bytes;
        let blocks = costs.moved_bytes_per_entry(true) - spill_segments;
        let part = blocks / (costs.log_bytes_per_entry + spill_segments);
        (costs.spill_segments_worth_bytes() / waiting_bytes as f64, part)
    };
    // The maximum is half of the memory, which is not enough here.
    let (of_memory, part) = waits(32 << 20);
    assert!(of_memory > 0.5 && part > BLOCKS_PART, "{of_memory}, {part}");
    let (of_memory, part) = waits(256 << 20);
    assert!(of_memory < 0.5, "{of_memory}");
    assert!((part - BLOCKS_PART).abs() < 1e-9, "{part}");
    // Two rounds of spills bring more.
    let few = Costs { blocks: 64, image_bytes: 64 << 14, ..costs(32 << 20) };
    let of_rounds = ROUNDS_MIN * few.entries_per_round() / 64.0;
    assert!((few.entries_per_visit(true) / of_rounds - 1.0).abs() < 1e-9);
    assert!(of_rounds > 16_384.0 / BLOCKS_PART / 28.0);
}

#[test]
fn costs_count_once_they_were_measured() {
    let measured = Measured {
        updates: 4095,
        entries: 10,
        log_bytes: 500,
        queue_entries: 4095,
        queue_bytes: 9,
    };
    assert_eq!((measured.entry_bytes(), measured.log_bytes_per_entry()), (16.0, 64.0));
    let measured = Measured { updates: 4096, queue_entries: 4096, queue_bytes: 8192, ..measured };
    assert_eq!((measured.entry_bytes(), measured.log_bytes_per_entry()), (2.0, 50.0));
    let none = Measured { updates: u64::MAX, ..Measured::default() };
    assert_eq!(none.log_bytes_per_entry(), 0.0);

    let spills =
        |spilling, updates, spills| spills_for_memory(spilling, updates, &costs(32 << 20), spills);
    for before in [false, true] {
        assert!(!spills(Spilling::Never, u64::MAX, before));
        assert!(spills(Spilling::Always, 0, before));
        assert_eq!(spills(Spilling::WhenItPays, 4095, before), before, "as it was");
        assert!(spills(Spilling::WhenItPays, 4096, before), "it pays");
    }
    let few = Costs { blocks: 63, ..costs(32 << 20) };
    assert!(!spills_for_memory(Spilling::WhenItPays, 4096, &few, true));
}

#[test]
fn a_spill_takes_no_room_from_the_sweep() {
    for (free, has_room) in [(0, false), (219, false), (220, true), (u64::MAX, true)] {
        assert_eq!(has_room_to_spill(free, 100, 20), has_room, "{free}");
    }
    assert!(has_room_to_spill(0, 0, 0));
    assert!(!has_room_to_spill(u64::MAX - 1, usize::MAX, u64::MAX));
    assert_eq!([0, 1, 2, usize::MAX].map(filter_bytes_max), [0, 0, 1, usize::MAX / 2]);
}

#[test]
fn updates_hold_the_log_that_are_half_of_what_it_is_there_for() {
    let never = || -> bool { panic!("asked only where it counts") };
    assert!(!is_log_held_by_queues(0, 0, never), "nothing waits");
    assert!(is_log_held_by_queues(5, 10, never));
    assert!(is_log_held_by_queues(5, 11, never));
    assert!(!is_log_held_by_queues(4, 10, || false));
    assert!(is_log_held_by_queues(1, u64::MAX, || true), "they are all that is left");
    assert!(is_log_held_by_queues(u64::MAX, u64::MAX, never));
}

#[test]
fn a_search_that_found_nothing_is_repeated_after_a_run_or_some_updates() {
    for (runs, updates, in_vain) in
        [(0, 0, true), (0, 255, true), (0, 256, false), (1, 0, false), (u64::MAX, u64::MAX, false)]
    {
        assert_eq!(is_search_in_vain(runs, updates), in_vain, "{runs} {updates}");
    }
}

#[test]
fn a_spill_segment_is_filled_or_has_what_is_old() {
    let worth = |bytes| is_worth_a_spill_segment(bytes, 16 << 10, false);
    assert_eq!([0, 2047, 2048, usize::MAX].map(worth), [false, false, true, true]);
    assert!(is_worth_a_spill_segment(0, 16 << 10, true) && is_worth_a_spill_segment(0, 0, false));
    assert_eq!([8191, 8192].map(|bytes| may_end_early(bytes, 16 << 10)), [false, true]);
    assert_eq!([16_383, 16_384].map(|bytes| is_filled(bytes, 16 << 10, false)), [false, true]);
    assert_eq!([20_479, 20_480].map(|bytes| is_filled(bytes, 16 << 10, true)), [false, true]);
    assert!(is_filled(0, 0, true) && !is_filled(0, u32::MAX, true));
}

fn any_bytes() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(f64::MIN_POSITIVE), 0.0..5000.0f64, Just(f64::MAX)]
}

fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), 0u64..1 << 40, Just(u64::MAX)]
}

proptest! {
    #[test]
    fn costs_give_an_answer_whatever_they_are(
        counts in (any_count(), any_count(), any_count(), any_count()),
        bytes in (any_bytes(), any_bytes(), any_bytes()),
        spills: bool,
    ) {
        let costs = Costs {
            blocks: counts.0,
            image_bytes: counts.1,
            waiting_bytes: counts.2,
            log_bytes: counts.3,
            entry_bytes: bytes.0,
            spilled_entry_bytes: bytes.1,
            log_bytes_per_entry: bytes.2,
        };
        prop_assert!(costs.spill_segments_worth_bytes() >= 0.0);
        prop_assert!(costs.entries_per_visit(spills) >= 0.0);
        prop_assert!(costs.moved_bytes_per_entry(spills) >= 0.0);
        prop_assert!(!costs.spilling_pays(false) || costs.spilling_pays(true));
        prop_assert!(costs.blocks >= SPILL_BLOCKS_MIN || !costs.spilling_pays(true));
    }
}

#[test]
fn rounds_slow_down_as_levels_become_few() {
    let rounds = |levels: u64| {
        rounds_per_cycle(Gauge { used: levels * 100, limit: LEVELS_MAX as u64 * 100 })
    };
    assert_eq!(rounds(0), f64::INFINITY);
    assert_eq!(rounds(23), f64::INFINITY, "the sweep does not hurry yet");
    assert!((24..LEVELS_MAX as u64).all(|levels| rounds(levels) > rounds(levels + 1)));
    assert!(rounds(48) >= 48.0 && rounds(49) < 49.0, "made as fast as removed");
    assert_eq!(rounds(64), 0.0);
    assert_eq!(rounds(65), 0.0, "a spill in flight may add one more");
}
