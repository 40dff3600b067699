//! Each rule at its edges.

use proptest::prelude::*;

use super::*;
use crate::engine::policy::STEADY_FILL;
use crate::engine::policy::tests::{FULL, gauge, idle};

#[test]
fn whoever_waits_presses_the_sweep_if_nothing_else_makes_that_room() {
    let shortages = [Shortage::Memory, Shortage::Log, Shortage::Device];
    let pace_of = |figures: Figures| {
        shortages.map(|shortage| Figures { shortage: Some(shortage), ..figures }.pace())
    };
    assert_eq!(idle().pace(), 0.0);
    // A checkpoint or a spill releases the log; memory and space on devices are the sweep's.
    assert_eq!(pace_of(idle()), [FULL, 0.0, FULL]);
    let held = Figures { is_log_held_by_queues: true, ..idle() };
    assert_eq!(pace_of(held), [FULL, 0.0, FULL]);
    assert_eq!(pace_of(Figures { can_spill: false, ..held }), [FULL, FULL, FULL]);
    let spills = Figures { spills_for_memory: true, ..idle() };
    assert_eq!(pace_of(spills), [0.0, 0.0, FULL], "the next spill makes room in memory");
    assert_eq!(pace_of(Figures { can_spill: false, ..spills }), [FULL, 0.0, FULL]);
    assert_eq!(pace_of(Figures { can_grow: true, ..idle() }), [FULL, 0.0, 0.0]);
}

#[test]
fn queries_earn_what_a_sweep_of_as_many_bytes_applies() {
    let mib = 1 << 20;
    let earned = |passed| earned_by_queries(passed, 1000.0, 199 * mib);
    assert_eq!([0, mib, 10 * mib, 200 * mib].map(earned), [0.0, 5.0, 50.0, 1000.0]);
    assert_eq!(earned(u64::MAX), 1000.0, "no more than waits");
    assert_eq!(earned_by_queries(mib, 0.0, 199 * mib), 0.0);
    assert_eq!(earned_by_queries(mib / 2, 10.0, 0), 5.0, "an empty store has costs too");
}

#[test]
fn the_sweep_keeps_up_half_way_between_its_start_and_full_speed() {
    let pace_of = |queues: u64| Figures { queues: gauge(queues), ..idle() }.pace();
    for (percent, pace) in [(0, 0.0), (50, 0.0), (60, 0.4), (75, 2.5), (84, 34.0), (85, FULL)] {
        assert_eq!(pace_of(percent), pace, "{percent}");
        let spilled = Figures { spilled: gauge(percent), ..idle() };
        assert_eq!(spilled.pace(), pace, "{percent}");
        let worth = Figures { spilled_worth: gauge(percent), ..idle() };
        assert_eq!(worth.pace(), pace, "{percent}");
    }
    let half = Gauge { used: 675, limit: 1000 };
    assert!((Figures { queues: half, ..idle() }.pace() - 1.0).abs() < 1e-9);
    assert!(f64::from(START_PERCENT + FULL_PERCENT) / 200.0 == STEADY_FILL);
}

#[test]
fn what_is_relieved_late_is_relieved_before_it_is_nearly_full() {
    // Levels that the sweep removes, and the log that spills release.
    let levels = |percent: f64| {
        let used = (percent * 1000.0) as u64;
        Figures { levels: Gauge { used, limit: 100_000 }, ..idle() }.pace()
    };
    let log = |percent: f64| {
        let log = Gauge { used: (percent * 1000.0) as u64, limit: 100_000 };
        Figures { log, is_log_held_by_queues: true, ..idle() }.spill_pace()
    };
    let paces: [&dyn Fn(f64) -> f64; 2] = [&levels, &log];
    for pace_of in paces {
        assert_eq!((pace_of(35.9), pace_of(50.0), pace_of(85.0)), (0.0, 1.0, FULL));
        // All blocks have waited equally long. A visit relieves one of everything that it has, the
        // average amount, while others get more.
        let (mut percent, mut done) = (36.1, 0.0);
        while done < 1.0 {
            percent += 0.01;
            assert!(percent < 85.0, "{done} is done");
            done += 0.01 * pace_of(percent) / percent;
        }
        assert!(percent > 70.0, "{percent}");
    }
}

#[test]
fn what_spills_relieve_does_not_press_the_sweep_before_they_fail() {
    let spills = Figures { spills_for_memory: true, ..idle() };
    for (percent, expected) in [(50, 0.0), (94, 0.0), (95, FULL), (100, FULL)] {
        assert_eq!(Figures { queues: gauge(percent), ..spills }.pace(), expected);
    }
    let log = Figures { log: gauge(99), is_log_held_by_queues: true, ..idle() };
    assert_eq!(log.pace(), 0.0, "spills release the log");
    assert!(Figures { spilled: gauge(51), ..log }.pace() > 0.0, "and press by themselves");
    let many = Figures { spilled_worth: gauge(100), ..log };
    assert!(!many.is_cycle_for_log(), "there is room for more than is worth having");
    assert!(Figures { queues: gauge(51), ..log }.pace() > 0.0, "memory is not spilled");
}

#[test]
fn spills_are_pressed_by_what_they_relieve() {
    let memory = Figures { spills_for_memory: true, ..idle() };
    let log = Figures { is_log_held_by_queues: true, ..idle() };
    assert_eq!(idle().spill_pace(), 0.0);
    for (percent, of_memory, of_log) in
        [(0, 0.0, 0.0), (35, 0.0, 0.0), (50, 0.0, 1.0), (60, 0.4, 1.44), (85, FULL, FULL)]
    {
        let queues = Figures { queues: gauge(percent), ..memory };
        assert_eq!(queues.spill_pace(), of_memory, "{percent}");
        assert_eq!(Figures { spills_for_memory: false, ..queues }.spill_pace(), 0.0);
        assert_eq!(Figures { can_spill: false, ..queues }.spill_pace(), 0.0);
        let held = Figures { log: gauge(percent), ..log };
        assert_eq!(held.spill_pace(), of_log, "{percent}");
        let released = Figures { is_log_held_by_queues: false, ..held };
        assert_eq!(released.spill_pace(), 0.0, "a checkpoint will release it");
    }
    let waiting = |figures, shortage| Figures { shortage: Some(shortage), ..figures };
    assert_eq!(waiting(memory, Shortage::Memory).spill_pace(), FULL);
    assert_eq!(waiting(memory, Shortage::Log).spill_pace(), 0.0);
    assert_eq!(waiting(log, Shortage::Log).spill_pace(), FULL);
    assert_eq!(waiting(log, Shortage::Memory).spill_pace(), 0.0);
    assert_eq!(Figures { spill_percent: 0, ..memory }.spill_pace(), FULL, "all at once");
}

#[test]
fn blocks_are_swept_out_of_turn_that_hold_much_of_the_log() {
    for (held, in_all, expected) in
        [(0, 0, false), (0, 9, false), (1, 4, true), (1, 5, false), (9, 9, true), (9, 37, false)]
    {
        assert_eq!(are_worth_a_visit(held, in_all), expected, "{held} of {in_all}");
    }
    let waited_for =
        |figures| Figures { shortage: Some(Shortage::Log), ..figures }.is_cycle_waited_for_log();
    let held = Figures { is_log_held_by_queues: true, can_spill: false, ..idle() };
    assert!(waited_for(held) && !held.is_cycle_waited_for_log());
    assert!(!waited_for(Figures { can_spill: true, ..held }));
    assert!(!waited_for(Figures { is_log_held_by_queues: false, ..held }));
}

#[test]
fn the_log_is_released_from_a_fill_on_or_when_somebody_waits_for_it() {
    for (percent, due) in [(24, false), (25, true)] {
        assert_eq!(Figures { log: gauge(percent), ..idle() }.is_release_due(25), due);
    }
    let waiting = |shortage| Figures { shortage: Some(shortage), ..idle() }.is_release_due(25);
    assert!(waiting(Shortage::Log));
    assert!(!waiting(Shortage::Memory));
}

#[test]
fn a_sweep_that_is_asked_for_never_rests_and_what_is_held_needs_none() {
    assert_eq!(cycle_pace(true, true, 0.0), FULL);
    assert_eq!(cycle_pace(true, false, 0.5), FULL);
    assert_eq!(cycle_pace(false, true, FULL), 0.0);
    assert_eq!(cycle_pace(false, false, 0.5), 0.5);
}

#[test]
fn of_credit_no_more_is_saved_up_than_one_run() {
    assert_eq!(credit(0.0, 10.0, 4.0, 0.5), 2.0);
    assert_eq!(credit(10.0, 10.0, 0.0, 1.0), 10.0);
    assert_eq!(credit(11.0, 10.0, 0.0, 1.0), 10.0, "no more than the last run had");
    assert_eq!(credit(-100.0, 10.0, 30.0, 2.0), -40.0, "a debt is paid off");
    assert_eq!(credit(5.0, 10.0, 0.0, FULL), FULL);
    assert_eq!(credit(FULL, 10.0, 100.0, 1.0), 0.0, "as if it had just begun");
}

#[test]
fn a_checkpoint_is_due_at_a_fifth_of_the_log() {
    for (since, prospect, due) in [
        (0, 1, false),
        (0, 0, true),
        (19, 100, false),
        (20, 100, true),
        (u64::MAX, u64::MAX, true),
        (u64::MAX / 6, u64::MAX, false),
    ] {
        assert_eq!(is_checkpoint_worth(since, prospect), due, "{since} of {prospect}");
    }
    assert_eq!(checkpoint_pages_in_flight(None), PAGES_IN_FLIGHT);
    assert_eq!(checkpoint_pages_in_flight(Some(Shortage::Memory)), PAGES_IN_FLIGHT);
    assert_eq!(checkpoint_pages_in_flight(Some(Shortage::Log)), PAGES_IN_FLIGHT_MAX);
    const { assert!(PAGES_IN_FLIGHT_MAX < CHECKPOINT_WRITES_MAX, "or it would wait for itself") };
}

#[test]
fn deferred_counts_wait_where_queues_are_filled() {
    let may = [0, 74, 75, 100].map(may_add_deferred_counts);
    assert_eq!(may, [true, true, false, false]);
}

proptest! {
    #[test]
    fn a_pace_grows_with_the_fill(
        percent in 0.0..200.0f64,
        more in 0.0..200.0f64,
        start in 0u32..200,
    ) {
        let start = f64::from(start);
        for pace_at in [pace_at, late_pace_at] {
            prop_assert!(pace_at(percent, start) >= 0.0);
            prop_assert!(pace_at(percent + more, start) >= pace_at(percent, start));
        }
    }

    #[test]
    fn visits_never_overflow(held: u64, in_all: u64) {
        prop_assert!(!are_worth_a_visit(0, in_all));
        prop_assert!(held == 0 || are_worth_a_visit(held, held));
    }
}
