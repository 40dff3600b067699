//! Each rule at its edges.

use proptest::prelude::*;

use super::*;

/// The sweep never rests.
const FULL: f64 = f64::INFINITY;

fn gauge(percent: u64) -> Gauge {
    Gauge { used: percent, limit: 100 }
}

/// Nothing is used, everything could be spilled, and nobody waits.
fn idle() -> Figures {
    Figures {
        queues: gauge(0),
        log: gauge(0),
        spilled: gauge(0),
        levels: gauge(0),
        spill_percent: 50,
        can_spill: true,
        ..Figures::default()
    }
}

#[test]
fn a_gauge_is_full_exactly_where_its_limit_is() {
    assert_eq!(Gauge { used: 0, limit: 1000 }.percent(), 0);
    assert_eq!(Gauge { used: 999, limit: 1000 }.percent(), 99);
    assert_eq!(Gauge { used: 1000, limit: 1000 }.percent(), 100);
    assert_eq!(Gauge { used: u64::MAX, limit: 1000 }.percent(), 100);
    assert_eq!(Gauge { used: u64::MAX - 1, limit: u64::MAX }.percent(), 99);
    assert_eq!(Gauge::default().percent(), 100, "nothing fits where there is nothing");
}

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
    // Levels that the sweep takes away, and the log that spills release.
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
        // All blocks have waited equally long. One is relieved of all that it has, which is as much
        // as there is for each, while others get more.
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
fn whoever_waits_gets_a_spill_or_a_sweep_or_a_checkpoint_whatever_the_figures() {
    let levels = [0, 49, 50, 84, 85, 94, 95, 99, 100];
    let bools = [false, true];
    for (queues, log) in levels.iter().flat_map(|q| levels.iter().map(move |l| (*q, *l))) {
        for flags in 0..32 {
            let flag = |bit: usize| bools[flags >> bit & 1];
            let figures = Figures {
                queues: gauge(queues),
                log: gauge(log),
                spills_for_memory: flag(0),
                can_spill: flag(1),
                is_spilling: flag(2),
                is_log_held_by_queues: flag(3),
                progress: flag(4).then_some(0.5),
                ..idle()
            };
            for shortage in [Shortage::Memory, Shortage::Log, Shortage::Device] {
                let figures = Figures { shortage: Some(shortage), ..figures };
                let spills = figures.is_spilling || figures.spill_pace() == FULL;
                let releases = shortage == Shortage::Log
                    && !figures.is_log_held_by_queues
                    && figures.is_release_due(100);
                let sweeps = figures.pace() == FULL;
                assert!(spills || releases || sweeps, "{figures:?}");
            }
        }
    }
}

#[test]
fn what_is_refused_is_what_presses() {
    let cases = [
        Figures { queues: gauge(100), ..idle() },
        Figures { spilled: gauge(100), can_spill: false, spills_for_memory: true, ..idle() },
        Figures { log: gauge(100), can_spill: false, is_log_held_by_queues: true, ..idle() },
    ];
    for figures in cases {
        assert_eq!(figures.pace(), FULL, "{figures:?}");
    }
    // The log at the fill that a cycle allows, at its start, in the middle and at its end; and of a
    // cycle that becomes the only one to release it while it is fuller or in the middle.
    let cases = [
        (0.0, 60, (0.0, 0.0)),
        (0.5, 80, (60.0, 0.0)),
        (1.0, 100, (60.0, 0.0)),
        (0.0, 80, (80.0, 0.0)),
        (0.5, 90, (80.0, 0.0)),
        (0.5, 80, (80.0, 0.5)),
        (0.75, 90, (80.0, 0.5)),
        (0.0, 90, (100.0, 0.0)),
        (1.0, 100, (100.0, 1.0)),
    ];
    for (progress, refused, log_at_start) in cases {
        let progress = Some(progress);
        let held = Figures { can_spill: false, is_log_held_by_queues: true, ..idle() };
        let held = Figures { progress, log_at_start, ..held };
        let at = Figures { log: gauge(refused), ..held };
        assert_eq!(at.log_percent_refused(), refused as f64, "{progress:?}");
        assert_eq!(at.pace(), FULL, "{progress:?}");
        let settled = (refused as f64 * STEADY_FILL) as u64;
        let pace = Figures { log: gauge(settled), ..held }.pace();
        assert!((0.85..=1.0).contains(&pace), "{progress:?}: {pace}");
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

/// 1 GiB of images of 16 KiB, entries of 12 bytes, a log of 448 MiB with 28 bytes an entry.
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

/// Blocks of 16 KiB to 256, and a directory of 170 bytes a block that may have 32 MiB.
const SIZES: BlockSizes =
    BlockSizes { least: 16 << 10, most: 256 << 10, directory_bytes: 32 << 20 };

/// A directory of so many blocks of so many bytes each.
fn directory(blocks: u64, bytes: u64) -> DirectorySize {
    DirectorySize { blocks, image_bytes: blocks * bytes, memory_bytes: blocks * 170 }
}

#[test]
fn blocks_grow_where_the_directory_takes_too_much_and_only_then() {
    let full = SIZES.directory_bytes / 170;
    let target = |blocks, bytes| SIZES.target(&directory(blocks, bytes), SIZES.least);
    assert_eq!(target(0, 0), 16 << 10);
    assert_eq!(target(full, 11_469), 16 << 10, "as much as it may have");
    assert_eq!(target(full + 1, 11_469), 32 << 10);
    assert_eq!(target(full + 1, 16_384), 32 << 10, "full blocks, which updates will split");
    assert_eq!(target(3 * full, 11_469), 64 << 10);
    assert_eq!(target(1000 * full, 11_469), 256 << 10, "the largest that there are");
}

#[test]
fn blocks_shrink_only_where_that_leaves_room() {
    let full = SIZES.directory_bytes / 170;
    let target = |blocks| SIZES.target(&directory(blocks, 22_938), 32 << 10);
    assert_eq!(target(full / 2), 32 << 10, "smaller ones would take all of it");
    assert_eq!(target(full * 3 / 8 + 10), 32 << 10);
    assert_eq!(target(full * 3 / 8 - 10), 16 << 10);
    assert_eq!(SIZES.target(&directory(1, 100), 256 << 10), 16 << 10);
}

proptest! {
    #[test]
    fn the_size_of_blocks_settles(image_bytes in 1u64..1 << 42, now in 0u32..5) {
        // Once the sweep has gone round with a target, there are as many blocks as it makes.
        let mut target = SIZES.least << now;
        let mut seen = Vec::new();
        for _ in 0..8 {
            let blocks = image_bytes * 10 / 7 / u64::from(target) + 1;
            let size = DirectorySize { blocks, image_bytes, memory_bytes: blocks * 170 };
            target = SIZES.target(&size, target);
            seen.push(target);
        }
        prop_assert_eq!(seen[6], seen[7], "{:?}", seen);
    }
}

#[test]
fn a_load_makes_blocks_with_which_the_directory_stays_small() {
    for mib in [1, 100, 3000, 3200, 10_000, 100_000, 500_000u64] {
        let target = SIZES.target_for(mib << 20);
        let takes = |target| (mib << 20) / u64::from(target) * 170;
        assert!(takes(target) <= SIZES.directory_bytes || target == SIZES.most, "{mib}");
        assert!(target == SIZES.least || takes(target / 2) > SIZES.directory_bytes, "{mib}");
    }
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
    // Half of the memory is the most, and is not enough here.
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
