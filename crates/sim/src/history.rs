//! One whole history: from an empty bank to the verdict; and the load history of the same seed.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::load::{self, LoadOutcome};
use crate::modifiers::EXPECTED_PANIC;
use crate::plan::Plan;
use crate::random::mix;
use crate::reopen::DAMAGED;
use crate::world::{Tally, Verdict, World};

/// The outcome of one seed.
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
    /// Description of the load history.
    pub load: String,
}

/// Runs both histories of a seed: the one on hostile devices, and the one under load.
#[must_use]
pub fn run(seed: u64, steps: u64) -> Outcome {
    let mut outcome = run_hostile(seed, steps);
    let load = run_load(seed);
    let failures: Vec<String> = outcome.failure.into_iter().chain(load.failure).collect();
    outcome.failure = (!failures.is_empty()).then(|| failures.join("; and "));
    outcome.history = mix(outcome.history ^ mix(load.history));
    outcome.tally.load = load.tally;
    outcome.load = load.about;
    outcome
}

/// The outcome of a seed of which only the load history was run.
#[must_use]
pub fn of_load(seed: u64, load: LoadOutcome) -> Outcome {
    let mut tally = Tally::default();
    tally.load = load.tally;
    let (failure, history) = (load.failure, mix(load.history));
    Outcome { seed, failure, history, digest: 0, accepted: 0, tally, load: load.about }
}

/// Runs the load history of a seed.
#[must_use]
pub fn run_load(seed: u64) -> LoadOutcome {
    let outcome = catch_unwind(|| load::run(seed));
    outcome.unwrap_or_else(|_| LoadOutcome {
        failure: Some(format!("Load: panic: {}", PANIC.with_borrow(Clone::clone))),
        ..LoadOutcome::default()
    })
}

/// Runs the history of a seed on hostile devices.
#[must_use]
pub fn run_hostile(seed: u64, steps: u64) -> Outcome {
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
        load: String::new(),
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
    /// The last unexpected panic: its message and its place.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Silences panics: intentional panics of modifiers are ignored, and all others become the verdict
/// of their history. With `show`, the latter are shown as well.
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
