//! Each rule at its edges.

use proptest::prelude::*;

use super::*;
use crate::engine::policy::Round;
use crate::engine::policy::tests::{gauge, idle};

#[test]
fn a_round_of_spills_opens_the_log_where_it_is_nearly_full() {
    let at = |log: u64, done: f64, log_percent_at_start: f64| Figures {
        log: gauge(log),
        is_log_held_by_queues: true,
        round: Some(Round { done, log_percent_at_start }),
        ..idle()
    };
    // What it releases at its end opens step by step.
    for (done, at_start, expected) in [
        (0.0, 0.0, 85.0),
        (0.0, 75.0, 85.0),
        (0.0, 80.0, 90.0),
        (0.5, 80.0, 95.0),
        (1.0, 80.0, 100.0),
        (0.0, 99.0, 95.0),
    ] {
        assert_eq!(at(50, done, at_start).log_percent_refused(), expected, "{done} {at_start}");
    }
    let released = Figures { is_log_held_by_queues: false, ..at(50, 0.0, 80.0) };
    assert_eq!(released.log_percent_refused(), 100.0);
    assert_eq!(Figures { round: None, ..at(50, 0.0, 0.0) }.log_percent_refused(), 100.0);
    let by_cycle = Figures { can_spill: false, progress: Some(0.0), ..at(50, 0.0, 80.0) };
    assert_eq!(by_cycle.log_percent_refused(), 60.0, "the cycle alone can release it");
}

#[test]
fn memory_for_spill_segments_opens_with_the_cycle() {
    for (at_start, progress, opened) in [
        (0.0, 0.0, 50.0),
        (50.0, 0.0, 50.0),
        (0.0, 0.5, 75.0),
        (80.0, 0.0, 80.0),
        (80.0, 0.5, 90.0),
        (80.0, 1.0, 100.0),
        // Where the cycle found no room, what it releases is used again.
        (100.0, 0.0, 100.0),
        (101.0, 0.5, 100.0),
    ] {
        let found = spilled_percent_opened(at_start, progress);
        assert_eq!(found, opened, "{at_start} {progress}");
    }
}

#[test]
fn queues_give_out_all_but_what_is_kept() {
    for (limit, given) in [(0, 0), (4096, 0), (4227, 0), (4228, 0), (4229, 1), (1 << 20, 1_011_712)]
    {
        assert_eq!(given_out(limit), given, "{limit}");
    }
    let gauge = queues_gauge(1 << 20, 1000, 10);
    assert_eq!(gauge, Gauge { used: 1020, limit: 1_011_712 });
    assert_eq!(queues_gauge(0, usize::MAX, usize::MAX).percent(), 100);
}

#[test]
fn a_record_takes_an_eighth_more_in_queues_and_a_cell() {
    assert_eq!(queue_bytes_of(0), CELL_BYTES);
    assert_eq!(queue_bytes_of(7), 7 + CELL_BYTES);
    assert_eq!(queue_bytes_of(8), 9 + CELL_BYTES);
    assert_eq!(queue_bytes_of(usize::MAX), usize::MAX);
    assert_eq!(record_bytes_max(0, 0), 0);
    assert_eq!(record_bytes_max(1 << 20, 1000), 994, "what the log takes, and the head of it");
}

#[test]
fn the_log_keeps_room_for_changes_that_its_reserve_has_not() {
    let gauge = |change_bytes| log_gauge(Gauge { used: 7, limit: 800 }, 1000, change_bytes);
    // Half of the reserve of 200 bytes is for changes.
    for (change_bytes, limit) in [(0, 800), (100, 800), (101, 799), (300, 600), (301, 600)] {
        assert_eq!(gauge(change_bytes), Gauge { used: 7, limit }, "{change_bytes}");
    }
    let without_reserve = log_gauge(Gauge { used: 0, limit: 100 }, 0, 10);
    assert_eq!(without_reserve.limit, 90);
    assert_eq!(log_gauge(Gauge::default(), u64::MAX, u64::MAX).limit, 0);
}

#[test]
fn changes_take_a_part_of_a_page_for_each_block_and_a_page_for_each_run() {
    assert_eq!(change_bytes(0, 32, 4096), 0);
    assert_eq!(change_bytes(32, 32, 4096), 32 * CHANGE_BYTES + 4096);
    assert_eq!(change_bytes(33, 32, 4096), 33 * CHANGE_BYTES + 2 * 4096);
    assert_eq!(change_bytes(1, 0, 4096), CHANGE_BYTES + 4096);
    assert_eq!(change_bytes(usize::MAX, 1, u32::MAX), u64::MAX);
    for (change, short) in [(0, false), (10, false), (11, true), (u64::MAX, true)] {
        assert_eq!(is_log_short_of_changes(change, 100, 90), short, "{change}");
    }
    assert!(is_log_short_of_changes(1, 0, u64::MAX));
}

#[test]
fn what_no_wait_helps_is_told_with_the_memory_that_it_needs() {
    let lacking = |bytes, needed_bytes| {
        let lasting_bytes = 900;
        budget_lacking(&Budget {
            bytes,
            lasting_bytes,
            queue_bytes_min: 100,
            queue_bytes_max: 64,
            needed_bytes,
        })
    };
    assert_eq!(lacking(999, 0), Some(1000), "the directory has outgrown the budget");
    assert_eq!(lacking(1000, 64), None);
    assert_eq!(lacking(1000, 65), Some(1001));
    assert_eq!(lacking(usize::MAX, usize::MAX), Some(usize::MAX));
}

#[test]
fn an_update_is_refused_for_what_there_is_too_little_of() {
    let queues = Gauge { used: 90, limit: 100 };
    assert_eq!(shortage(10, queues, gauge(59), 60.0), None, "both are full then");
    assert_eq!(shortage(11, queues, gauge(60), 60.0), Some(Shortage::Memory), "memory first");
    assert_eq!(shortage(10, queues, gauge(60), 60.0), Some(Shortage::Log));
    assert_eq!(shortage(u64::MAX, queues, gauge(0), 100.0), Some(Shortage::Memory));
    assert_eq!(shortage(0, Gauge::default(), Gauge::default(), 100.0), None);
}

proptest! {
    #[test]
    fn the_longest_record_finds_room_in_empty_queues(limit in 0usize..1 << 30, of_log: usize) {
        let longest = record_bytes_max(limit, of_log);
        let queues = queues_gauge(limit, 0, 0);
        let wanted = queue_bytes_of(longest) as u64;
        prop_assert!(longest == 0 || shortage(wanted, queues, gauge(0), 100.0).is_none());
    }

    #[test]
    fn a_gauge_of_the_log_keeps_three_quarters_for_updates(
        used: u64,
        limit: u64,
        prospect: u64,
        change: u64,
    ) {
        let found = log_gauge(Gauge { used, limit }, prospect, change);
        prop_assert!(found.used == used && found.limit <= limit);
        prop_assert!(found.limit >= limit - limit / 4);
    }
}
