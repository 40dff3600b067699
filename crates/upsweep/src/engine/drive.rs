//! Drives a core on a single thread: recovery, verification, tests.

use super::core::{Actions, Core};
use crate::device::Devices;

/// One step: pump, run jobs at once, submit, and wait for completions if there is nothing else to
/// do. Returns whether anything is left in flight.
pub fn step(core: &mut Core, devices: &mut dyn Devices, now_us: u64) -> bool {
    let mut actions = Actions::default();
    core.pump(now_us, &mut actions);
    let worked = !actions.jobs.is_empty() || !actions.requests.is_empty();
    for job in actions.jobs {
        core.job_done(job.run(|| {}));
    }
    for request in actions.requests {
        devices.submit(request);
    }
    let mut completions = Vec::new();
    if core.is_writing() {
        devices.wait(&mut completions);
    }
    let completed = !completions.is_empty();
    for completion in completions {
        core.complete(completion);
    }
    worked || completed
}

/// Steps until `done`, or until nothing more can happen. Sweeps run at full speed: they take their
/// time from a counter that is always late enough.
pub fn until(core: &mut Core, devices: &mut dyn Devices, done: impl Fn(&Core) -> bool) {
    let mut now_us = core.base.now_us;
    let mut idle_steps = 0;
    while !done(core) && idle_steps < IDLE_STEPS_MAX {
        now_us += STEP_US;
        let moved = step(core, devices, now_us);
        idle_steps = if moved { 0 } else { idle_steps + 1 };
    }
}

/// Simulated time between two steps: longer than any rest of the sweep or delay of the log.
const STEP_US: u64 = 1_000_000;
/// If nothing has happened in this many steps, nothing will.
const IDLE_STEPS_MAX: u32 = 64;
