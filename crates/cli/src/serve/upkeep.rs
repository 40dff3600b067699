//! Work in the background of a server: volumes are trimmed, cleaned, flushed and scrubbed.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use upsweep::Seq;
use upsweep_volume::Volumes;

use super::Period;
use super::calls::Bell;
use super::scrub::Scrub;
use crate::context::Context;
use crate::failure::Failure;
use crate::open_store::OpenStore;

/// Pause when nothing is to be done.
const REST: Duration = Duration::from_secs(1);
/// Pause after a failure that may pass.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(10);
/// How much time passes between flushes of volumes at least: an open after a crash reads what was
/// written since the last one.
const FLUSH_EVERY: Duration = Duration::from_secs(10);

/// The thread that works; [`Upkeep::end`] ends it.
pub(super) struct Upkeep {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_over: bool,
    /// Something should not wait until the end of the pause.
    is_due: bool,
    /// Why the store cannot be used any more.
    failure: Option<Failure>,
}

/// What the thread has done.
struct Worker {
    context: Context,
    served: Arc<OpenStore>,
    shared: Arc<Shared>,
    /// Whether the volumes know whom to wake.
    is_known: bool,
    flushed_at: Instant,
    /// The last record of the log after the last flush.
    flushed: Option<Seq>,
    /// The last failure that was told.
    told: Option<String>,
    scrub: Scrub,
}

impl Upkeep {
    /// Starts it. It rings the bell if the store fails.
    pub(super) fn start(
        context: &Context,
        served: &Arc<OpenStore>,
        scrub: Period,
        bell: Arc<Bell>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut worker = Worker {
            context: context.clone(),
            served: Arc::clone(served),
            shared: Arc::clone(&shared),
            is_known: false,
            flushed_at: Instant::now(),
            flushed: None,
            told: None,
            scrub: Scrub::every(scrub),
        };
        let its = Arc::clone(&shared);
        let run = move || {
            if let Err(error) = worker.run() {
                its.lock().failure = Some(error.into());
                bell.ring();
            }
        };
        let thread = std::thread::Builder::new().name("upkeep".to_owned()).spawn(run)?;
        Ok(Self { shared, thread })
    }

    /// Whether the store has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.shared.lock().failure.is_some()
    }

    /// Ends it; returns why the store failed, if it did.
    pub(super) fn end(self) -> Result<(), Failure> {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        let ended = self.thread.join();
        ended.map_err(|_| Failure::Refused("the work in the background panicked".to_owned()))?;
        self.shared.lock().failure.take().map_or(Ok(()), Err)
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, but not for something that is due; returns whether it is over.
    fn rest(&self, pause: Duration) -> bool {
        self.wait(pause, |state| !state.is_over && !state.is_due)
    }

    /// Waits, whatever is due; returns whether it is over.
    fn rest_after_failure(&self) -> bool {
        self.wait(REST_AFTER_FAILURE, |state| !state.is_over)
    }

    fn wait(&self, pause: Duration, rests: impl FnMut(&mut State) -> bool) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), pause, rests);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.is_due = false;
        state.is_over
    }

    /// Ends a pause.
    fn wake(&self) {
        self.lock().is_due = true;
        self.changed.notify_all();
    }
}

impl Worker {
    /// Works until it is over, or the store is closed by a failure.
    fn run(&mut self) -> Result<(), upsweep_volume::Error> {
        use upsweep::Error::Closed;
        use upsweep_volume::Error::Store;
        loop {
            let is_over = match self.step() {
                Ok(true) => self.shared.rest(Duration::ZERO),
                Ok(false) => self.shared.rest(REST),
                Err(error @ Store(Closed(_))) => return Err(error),
                Err(error) => {
                    self.tell(error.to_string());
                    self.shared.rest_after_failure()
                }
            };
            if is_over {
                return Ok(());
            }
        }
    }

    /// Does a part of what there is to do; returns whether there may be more.
    fn step(&mut self) -> Result<bool, upsweep_volume::Error> {
        // Fails if the store has.
        self.served.store().flush()?;
        let Some(volumes) = self.served.existing_volumes()? else { return Ok(false) };
        if !self.is_known {
            let shared = Arc::clone(&self.shared);
            volumes.wake_when_due(move || shared.wake());
            self.is_known = true;
        }
        // A failure of one, such as damage in the way of cleaning, does not keep the others back.
        let worked = volumes.work();
        let scrubbed = self.scrub.step(&self.context, &volumes);
        if self.flushed_at.elapsed() >= FLUSH_EVERY {
            self.flush(&volumes)?;
        }
        Ok(worked? | scrubbed?)
    }

    /// Flushes the volumes unless nothing has changed.
    fn flush(&mut self, volumes: &Volumes) -> Result<(), upsweep_volume::Error> {
        let last = || self.served.store().status().log.last;
        if self.flushed != Some(last()) {
            volumes.flush()?;
            self.flushed = Some(last());
        }
        self.flushed_at = Instant::now();
        Ok(())
    }

    /// Tells of a failure, once for as long as it is the same.
    fn tell(&mut self, failure: String) {
        if self.told.as_ref() != Some(&failure) {
            self.context.note(&format!("upsweep: upkeep of volumes: {failure}"));
            self.told = Some(failure);
        }
    }
}
