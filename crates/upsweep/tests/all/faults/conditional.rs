//! Updates on the condition that what was seen still holds: each that is accepted follows upon what
//! the model has at that moment, whatever came between.

use crate::support::{KEYS, World};
use upsweep::layers::engine::{Accept, Conditional};

fn is_accepted(answer: Conditional) -> bool {
    matches!(answer, Conditional::Holds(Accept::Accepted(_)))
}

#[test]
fn what_was_seen_holds_until_something_comes_between() {
    let mut world = World::swept(71);
    let (view, _) = world.see(7).expect("readable");
    assert!(view.image.is_some(), "nothing waits, so the image was needed");
    world.add(8).expect("accepted");
    assert!(is_accepted(world.add_if(7, &view).expect("accepted")), "8 is another key");
    assert_eq!(world.add_if(7, &view).expect("answered"), Conditional::Changed);
    let (view, _) = world.see(7).expect("readable");
    world.add(7).expect("accepted");
    assert_eq!(world.add_if(7, &view).expect("answered"), Conditional::Changed);
    let (view, _) = world.see(7).expect("readable");
    world.sweep().expect("swept");
    assert_eq!(world.add_if(7, &view).expect("answered"), Conditional::Changed);
    world.check();
}

#[test]
fn a_range_that_is_being_removed_takes_what_was_seen_along() {
    let mut world = World::swept(72);
    let (view, found) = world.see(7).expect("readable");
    assert!(found > 0);
    let removed = world.remove_range(5, 9).expect("on its way");
    // The view shows the key still, for the removal has not taken effect.
    assert_eq!(world.see(7).expect("readable").1, found);
    assert_eq!(world.add_if(7, &view).expect("answered"), Conditional::Unsettled);
    world.until(|core| core.published() >= removed).expect("removed");
    assert_eq!(world.add_if(7, &view).expect("answered"), Conditional::Changed);
    let (view, found) = world.see(7).expect("readable");
    assert_eq!(found, 0);
    assert!(is_accepted(world.add_if(7, &view).expect("accepted")));
    world.check();
}

#[test]
fn spilled_updates_are_part_of_what_was_seen() {
    let mut world = World::spilling(73);
    world.add_all(1).expect("accepted");
    let (view, _) = world.see(7).expect("readable");
    world.spill().expect("spilled");
    assert_eq!(world.add_if(7, &view).expect("answered"), Conditional::Changed);
    for number in 0..KEYS {
        let (view, found) = world.see(number).expect("readable");
        assert_eq!(found, world.expected(number));
        // Whatever else is read drives its images out of the cache.
        world.see((number + KEYS / 2) % KEYS).expect("readable");
        assert!(is_accepted(world.add_if(number, &view).expect("accepted")), "{number}");
    }
    world.sweep().expect("swept");
    world.check();
}

#[test]
fn every_accepted_update_follows_upon_what_was_seen() {
    for (seed, mut world) in [(1, World::swept(74)), (2, World::spilling(75))] {
        let (mut accepted, mut changed) = (0, 0);
        // Any numbers, the same in every run.
        let mut state: u64 = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for round in 0..4000 {
            let number = random(u64::from(KEYS).min(6)) as u32;
            let (view, found) = world.see(number).expect("readable");
            match random(8) {
                0 => world.add(number).expect("accepted"),
                1 => world.add((number + 1) % KEYS).expect("accepted"),
                2 => world.delete(number).expect("accepted"),
                3 => drop(world.remove_range(number, number + 2).expect("on its way")),
                4 => world.core().request_sweep(),
                _ => {}
            }
            for _ in 0..random(6) {
                world.step();
            }
            let expected = world.expected(number);
            match world.add_if(number, &view).expect("answered") {
                Conditional::Holds(Accept::Accepted(_)) => {
                    assert_eq!(found, expected, "seed {seed}, round {round}");
                    accepted += 1;
                }
                Conditional::Holds(Accept::Wait) => drop(world.step()),
                Conditional::Changed => changed += 1,
                Conditional::Unsettled => world.flush().expect("durable"),
            }
        }
        assert!(accepted > 500 && changed > 200, "{accepted} accepted, {changed} changed");
        world.flush().expect("durable");
        world.check();
    }
}
