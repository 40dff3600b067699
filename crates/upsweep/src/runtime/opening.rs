//! From devices to an open store: recovery, and threads if there are to be any.

#![expect(clippy::disallowed_methods, reason = "the runtime is where channels are made")]
#![expect(clippy::disallowed_types, reason = "the runtime is where threads meet")]

use std::sync::Arc;

use super::block_store::{BlockStore, Inner};
use super::boundaries;
use super::clock::{Clock, TimeOfDay};
use super::description::Described;
use super::hands::Hands;
use super::layout::Folder;
use super::options::OpenOptions;
use super::shared::Shared;
use super::threads::{Threads, join_notifier};
use crate::device::{self, Bank};
use crate::engine::policy;
use crate::engine::{self, Access, Registry};
use crate::error::{ClosedError, Error, RetryError};
use crate::events::event;

impl BlockStore {
    /// Opens what was found, and starts the threads of the store.
    pub(super) fn start(
        folder: Option<Folder>,
        described: Described,
        mut devices: Box<dyn Bank>,
        options: &OpenOptions,
        registry: &Registry,
        access: Access,
    ) -> Result<Self, Error> {
        let clock = Clock::start();
        let is_read_only = access == Access::ReadOnly;
        let checked = boundaries::check(&mut *devices, &described, &clock, is_read_only);
        let config = options.config(&checked.shape(&described))?;
        if access != Access::ReadOnly {
            options.check_devices(&described.description)?;
        }
        let mut core = engine::open(&mut *devices, config, registry, access)?;
        let took = clock.elapsed();
        core.metrics().open_seconds.set(took.as_secs_f64());
        event!(info, seconds = took.as_secs_f64(), last = core.last().get(), "the store is open");
        if access == Access::ReadOnly {
            core.close(ClosedError::ReadOnly);
        }
        let waiter = devices.waiter();
        let (job_sender, jobs) = std::sync::mpsc::channel();
        let (call_sender, calls) = std::sync::mpsc::channel();
        let time_of_day = TimeOfDay::new(options.wall_clock.clone());
        let (mut hands, mut owned) = (None, Some(Hands { waiter, jobs, calls }));
        if !options.has_threads {
            std::mem::swap(&mut hands, &mut owned);
        }
        let shared = Shared::new(core, devices, job_sender, call_sender, time_of_day, hands);
        let shared = Arc::new(shared);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = policy::workers(options.workers, processors);
        let threads = match owned {
            None => Threads::none(),
            Some(owned) => start_threads(&shared, owned, workers)?,
        };
        let inner = Inner {
            shared,
            threads: std::sync::Mutex::new(threads),
            folder,
            described,
            known_boundaries: checked.known,
            cpu_at_open: device::process_cpu(),
            memory_bytes: options.memory_bytes,
            workers,
            access,
        };
        let store = Self { inner: Arc::new(inner), kept: None };
        if access != Access::ReadOnly {
            store.end_what_was_left()?;
        }
        Ok(store)
    }

    /// Drops leftovers of the last process that can no longer be used.
    fn end_what_was_left(&self) -> Result<(), Error> {
        for snapshot in self.snapshots().into_iter().filter(|found| found.name.is_none()) {
            self.drop_snapshot(snapshot.number)?;
        }
        let loads = self.inner.shared.lock().core.abandoned_loads();
        for space in loads {
            self.structural(|core| core.abandon_load(space))?;
        }
        Ok(())
    }
}

fn start_threads(shared: &Arc<Shared>, hands: Hands, workers: usize) -> Result<Threads, Error> {
    let mut threads = Threads::default();
    if let Err(error) = threads.start(shared, hands, workers) {
        threads.stop(shared);
        shared.end();
        join_notifier(threads.take_notifier());
        return Err(RetryError::NoThread(error.to_string()).into());
    }
    Ok(threads)
}
