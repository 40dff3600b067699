//! One whole history: from an empty bank to the verdict.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::modifiers::EXPECTED_PANIC;
use crate::plan::Plan;
use crate::reopen::DAMAGED;
use crate::world::{Tally, Verdict, World};

/// What came of one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The reason, if it failed.
    pub failure: Option<String>,
    /// Hash of everything that happened.
    pub history: u64,
    /// Hash of all devices at the end.
    pub digest: u64,
    /// Records that the store accepted.
    pub accepted: u64,
    /// Counters.
    pub tally: Tally,
}

/// Runs the history of a seed.
#[must_use]
pub fn run(seed: u64, steps: u64) -> Outcome {
    let mut world = World::new(Plan::new(seed));
    let verdict = catch_unwind(AssertUnwindSafe(|| live(&mut world, steps)));
    let trouble = world.plan.trouble;
    let failure = match verdict {
        Ok(Ok(())) => None,
        Ok(Err(reason)) if reason == DAMAGED && world.damaged => None,
        Ok(Err(reason)) => Some(format!("{trouble:?}: {reason}")),
        Err(_) => Some(format!("{trouble:?}: panic: {}", PANIC.with_borrow(Clone::clone))),
    };
    world.tally.refused = world.oracle.refusals.count() as u64;
    Outcome {
        seed,
        failure,
        history: world.history.0,
        digest: world.bank.digest(),
        accepted: world.oracle.accepted,
        tally: world.tally,
    }
}

fn live(world: &mut World, steps: u64) -> Verdict {
    world.create()?;
    world.create_table()?;
    for _ in 0..steps {
        world.step()?;
    }
    world.finish()
}

thread_local! {
    /// The last panic that was no expected one: its message and its place.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Silences panics: those that modifiers make on purpose are none of our business, and all others
/// become the verdict of their history. With `show`, the latter are shown as well.
pub fn catch_panics(show: bool) {
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() == Some(&EXPECTED_PANIC) {
            return;
        }
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let message = info.payload_as_str().unwrap_or("no message");
        PANIC.set(format!("{message} at {place}"));
        if show {
            shown(info);
        }
    }));
}
