//! Combined effects of several rules, at their edges; and helpers of their tests.

use super::*;

/// The sweep never rests.
pub(super) const FULL: f64 = f64::INFINITY;

pub(super) fn gauge(percent: u64) -> Gauge {
    Gauge { used: percent, limit: 100 }
}

/// Nothing is used, everything could be spilled, and no caller waits.
pub(super) fn idle() -> Figures {
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
    // The log at the fill that a cycle permits, at its start, in the middle and at its end; and for
    // a cycle that becomes the only means to release it while it is fuller or in the middle.
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

/// Gauges with any figures, and every decision that follows from them.
mod of_any_figures {
    use proptest::prelude::*;

    use super::*;

    fn any_gauge() -> impl Strategy<Value = Gauge> {
        let number = prop_oneof![Just(0), Just(1), 0u64..1000, Just(u64::MAX), any::<u64>()];
        (number.clone(), number).prop_map(|(used, limit)| Gauge { used, limit })
    }

    fn any_part() -> impl Strategy<Value = f64> {
        prop_oneof![Just(0.0), Just(1.0), -1.0..2.0f64, Just(f64::MAX)]
    }

    fn any_shortage() -> impl Strategy<Value = Option<Shortage>> {
        let some = [Shortage::Memory, Shortage::Log, Shortage::Device];
        prop::option::of(prop::sample::select(some.to_vec()))
    }

    prop_compose! {
        fn any_figures()(
            gauges in (any_gauge(), any_gauge(), any_gauge(), any_gauge(), any_gauge()),
            flags in prop::array::uniform5(any::<bool>()),
            spill_percent in prop_oneof![Just(0), 0u32..200, Just(u32::MAX)],
            progress in prop::option::of(any_part()),
            log_at_start in (any_part(), any_part()),
            round in prop::option::of((any_part(), any_part())),
            shortage in any_shortage(),
        ) -> Figures {
            Figures {
                queues: gauges.0,
                log: gauges.1,
                spilled: gauges.2,
                spilled_worth: gauges.3,
                levels: gauges.4,
                spills_for_memory: flags[0],
                can_spill: flags[1],
                is_spilling: flags[2],
                is_log_held_by_queues: flags[3],
                can_grow: flags[4],
                spill_percent,
                progress,
                log_at_start,
                round: round.map(|(done, percent)| Round { done, log_percent_at_start: percent }),
                shortage,
            }
        }
    }

    proptest! {
        #[test]
        fn a_pace_is_never_negative_and_the_log_opens_between_its_bounds(figures in any_figures()) {
            prop_assert!(figures.pace() >= 0.0, "{}", figures.pace());
            prop_assert!(figures.spill_pace() >= 0.0, "{}", figures.spill_pace());
            let refused = figures.log_percent_refused();
            prop_assert!((60.0..=100.0).contains(&refused), "{refused}");
            prop_assert!(figures.queues.percent() <= 100);
        }

        #[test]
        fn a_fuller_resource_never_slows_the_sweep_down(
            figures in any_figures(),
            which in 0usize..4,
            more in any::<u64>(),
        ) {
            let mut fuller = figures;
            let gauge = match which {
                0 => &mut fuller.queues,
                1 => &mut fuller.log,
                2 => &mut fuller.spilled_worth,
                _ => &mut fuller.levels,
            };
            gauge.used = gauge.used.saturating_add(more);
            prop_assert!(fuller.pace() >= figures.pace());
        }
    }
}
