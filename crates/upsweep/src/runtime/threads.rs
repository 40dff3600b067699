//! The driver, which waits for devices and time; the workers, which run jobs; and the notifier,
//! which makes the calls registered for durability.

#![expect(clippy::disallowed_types, reason = "the runtime is where threads live")]
#![expect(clippy::disallowed_methods, reason = "the runtime is where threads live")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::commit::Call;
use super::hands::Hands;
use super::shared::Shared;
use crate::device::{Completion, Waiter};
use crate::engine::Job;
use crate::error::ClosedError;
use crate::metrics::LockCause;

/// Longest time between two checks of the core by the driver.
const DRIVER_IDLE: Duration = Duration::from_millis(100);

/// The threads of one open store; none once it has ended.
#[derive(Default)]
pub(super) struct Threads {
    is_open: bool,
    driver: Option<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    notifier: Option<JoinHandle<()>>,
}

impl Threads {
    /// None, of a store that is open.
    pub(super) fn none() -> Self {
        Self { is_open: true, ..Self::default() }
    }

    /// Starts all of them. After an error, those that were started must be stopped.
    pub(super) fn start(
        &mut self,
        shared: &Arc<Shared>,
        hands: Hands,
        workers: usize,
    ) -> std::io::Result<()> {
        let Hands { waiter, jobs, calls } = hands;
        self.is_open = true;
        let jobs = Arc::new(Mutex::new(jobs));
        let builder = Builder::new().name("upsweep-notify".to_owned());
        self.notifier = Some(builder.spawn(move || notify(&calls))?);
        for number in 0..workers.max(1) {
            let (shared, jobs) = (Arc::clone(shared), Arc::clone(&jobs));
            let builder = Builder::new().name(format!("upsweep-apply-{number}"));
            self.workers.push(builder.spawn(move || work(&shared, &jobs))?);
        }
        let shared = Arc::clone(shared);
        let builder = Builder::new().name("upsweep-driver".to_owned());
        self.driver = Some(builder.spawn(move || drive(&shared, &*waiter))?);
        Ok(())
    }

    /// The thread that makes calls, which ends with [`Shared::end`].
    pub(super) fn take_notifier(&mut self) -> Option<JoinHandle<()>> {
        self.notifier.take()
    }

    /// Whether they were stopped.
    pub(super) fn have_ended(&self) -> bool {
        !self.is_open
    }

    /// Ends all threads except the notifier, and waits for them. Requests still in flight complete
    /// without notice.
    pub(super) fn stop(&mut self, shared: &Shared) {
        self.is_open = false;
        shared.stopping.store(true, Ordering::Release);
        shared.end_jobs();
        shared.wake_driver();
        for thread in self.driver.take().into_iter().chain(self.workers.drain(..)) {
            // A thread that panicked has already closed the store with its message.
            drop(thread.join());
        }
    }
}

/// Waits for the remaining calls, unless this is one of them.
pub(super) fn join_notifier(notifier: Option<JoinHandle<()>>) {
    let current = std::thread::current().id();
    let other = notifier.filter(|notifier| notifier.thread().id() != current);
    // It catches panics.
    other.into_iter().for_each(|notifier| drop(notifier.join()));
}

fn notify(calls: &Receiver<Call>) {
    calls.iter().for_each(make_call);
}

pub(super) fn make_call(call: Call) {
    // There is nobody to tell; the hook has reported it.
    drop(catch_unwind(AssertUnwindSafe(call)));
}

fn drive(shared: &Shared, waiter: &dyn Waiter) {
    let mut completions = Vec::new();
    while !shared.stopping.load(Ordering::Acquire) {
        drive_once(shared, waiter, &mut completions);
    }
}

/// Waits for devices or time, and gives the core what has come; `completions` is empty.
pub(super) fn drive_once(shared: &Shared, waiter: &dyn Waiter, completions: &mut Vec<Completion>) {
    let (timeout, idle_us) = {
        let mut state = shared.lock_for(LockCause::Completion);
        let now = shared.clock.now_us();
        let idle = now + u64::try_from(DRIVER_IDLE.as_micros()).unwrap_or(u64::MAX);
        let deadline = state.core.deadline_us().unwrap_or(u64::MAX).min(idle);
        state.driver_deadline_us = deadline;
        (Duration::from_micros(deadline.saturating_sub(now)), idle)
    };
    waiter.wait(Some(timeout), completions);
    let had_nothing = completions.is_empty() && shared.clock.now_us() >= idle_us;
    // Asked to or not, it offers what is parked when it has nothing else to do.
    let is_asked = shared.is_asked_to_admit();
    let admits = is_asked || completions.is_empty();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut state = shared.lock_for(LockCause::Completion);
        let is_idle = had_nothing && state.driver_deadline_us == idle_us;
        for completion in completions.drain(..) {
            state.core.complete(completion);
        }
        let admits = admits && !state.parked.is_empty();
        shared.pump(state);
        if admits {
            shared.admit(is_asked || !is_idle);
        }
    }));
    if let Err(panic) = result {
        close_after_panic(shared, panic.as_ref());
    }
}

fn work(shared: &Shared, jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        run_job(shared, job);
    }
}

pub(super) fn run_job(shared: &Shared, job: Job) {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let output = shared.inside(|| job.run(std::thread::yield_now));
        let mut state = shared.lock_for(LockCause::Job);
        state.core.job_done(output);
        shared.pump(state);
    }));
    if let Err(panic) = result {
        close_after_panic(shared, panic.as_ref());
    }
}

fn close_after_panic(shared: &Shared, panic: &(dyn std::any::Any + Send)) {
    let message = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "without a message".to_owned());
    let mut state = shared.lock();
    state.core.close(ClosedError::Panicked(message));
    shared.pump(state);
}
