//! One whole history: from an empty bank to the verdict.

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
    let failure = match verdict {
        Ok(Ok(())) => None,
        Ok(Err(reason)) if reason == DAMAGED && world.damaged => None,
        Ok(Err(reason)) => Some(reason),
        Err(payload) => Some(format!("panic: {}", panic_text(payload.as_ref()))),
    };
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

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".to_owned())
}

/// Silences the panics that modifiers make on purpose; all others are shown with their place.
pub fn silence_expected_panics() {
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&EXPECTED_PANIC) {
            shown(info);
        }
    }));
}
