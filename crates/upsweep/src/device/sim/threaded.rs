//! Any bank, shared by threads: a lock around it, for banks that never make anybody wait, as those
//! in virtual time.
//!
//! Requests stay in flight until the driver waits: the bank below then moves its time on to the
//! next completion, and its latency model decides in which order they come. A request that a
//! thread does itself takes part in that.

#![expect(clippy::disallowed_types, reason = "threads meet here")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::device::bank::{Bank, DeviceDescription, Performer, Waiter, Waker};
use crate::device::completions::Completions;
use crate::device::{Completion, DeviceError, DeviceId, DeviceProfile, Devices, Geometry, Request};

/// What copying to and from memory takes, about.
const MEMORY_BYTES_PER_SECOND: u64 = 5_000_000_000;

/// A bank of which [`Devices::wait`] takes no time, for threads to share. A clone is another bank
/// over the same devices, which outlive each of them; one at a time may have requests in flight.
/// Cost of every request: a lock.
#[derive(Debug)]
pub struct ThreadedDevices<D: Devices + 'static> {
    session: Arc<Session<D>>,
}

/// What one bank and its waiters share.
#[derive(Debug)]
struct Session<D> {
    devices: Arc<Mutex<D>>,
    completions: Arc<Completions>,
    is_over: AtomicBool,
}

impl<D: Devices> Session<D> {
    fn over(devices: Arc<Mutex<D>>) -> Arc<Self> {
        let (completions, is_over) = (Arc::default(), AtomicBool::new(false));
        Arc::new(Self { devices, completions, is_over })
    }

    fn lock(&self) -> MutexGuard<'_, D> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the devices on to the next completion, if anything is in flight.
    fn advance(&self) {
        let mut completions = Vec::new();
        self.lock().wait(&mut completions);
        completions.into_iter().for_each(|completion| self.completions.add(completion));
    }
}

impl<D: Devices + 'static> ThreadedDevices<D> {
    /// The bank `devices`, with nothing in flight.
    #[must_use]
    pub fn new(devices: D) -> Self {
        Self { session: Session::over(Arc::new(Mutex::new(devices))) }
    }

    /// Gives access to the bank below, such as to have it fail.
    pub fn with<R>(&self, look: impl FnOnce(&mut D) -> R) -> R {
        look(&mut self.session.lock())
    }
}

impl<D: Devices + 'static> Clone for ThreadedDevices<D> {
    fn clone(&self) -> Self {
        Self { session: Session::over(Arc::clone(&self.session.devices)) }
    }
}

impl<D: Devices + 'static> Drop for ThreadedDevices<D> {
    fn drop(&mut self) {
        self.session.is_over.store(true, Ordering::Release);
        let (mut devices, mut lost) = (self.session.lock(), Vec::new());
        loop {
            devices.wait(&mut lost);
            if lost.is_empty() {
                break;
            }
            lost.clear();
        }
        drop(devices);
        self.session.completions.close();
    }
}

impl<D: Devices + 'static> Devices for ThreadedDevices<D> {
    fn count(&self) -> u16 {
        self.session.lock().count()
    }

    fn geometry(&self, device: DeviceId) -> Geometry {
        self.session.lock().geometry(device)
    }

    fn submit(&mut self, request: Request) {
        self.session.completions.expect();
        self.session.lock().submit(request);
        // Whoever waits moves the devices on.
        self.session.completions.end_wait();
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let mut found = Vec::new();
        self.session.lock().reap(&mut found);
        found.into_iter().for_each(|completion| self.session.completions.add(completion));
        self.session.completions.reap(completions);
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        self.session.advance();
        self.session.completions.await_some(None, true, completions);
    }
}

impl<D: Devices + 'static> Bank for ThreadedDevices<D> {
    fn waiter(&self) -> Box<dyn Waiter> {
        Box::new(ThreadedWaiter(Arc::clone(&self.session)))
    }

    fn waker(&self) -> Box<dyn Waker> {
        Box::new(Arc::clone(&self.session.completions))
    }

    fn performer(&self) -> Box<dyn Performer> {
        Box::new(ThreadedPerformer(Arc::downgrade(&self.session)))
    }

    fn description(&self, device: DeviceId) -> DeviceDescription {
        let name = format!("memory-{}", device.0);
        let reasons = vec!["in the memory of the process, with which it ends".to_owned()];
        DeviceDescription { name, engine: "memory", direct: true, reasons }
    }

    /// As fast as memory, about.
    fn profile(&self, device: DeviceId) -> Option<DeviceProfile> {
        Some(DeviceProfile {
            sequential_read_bytes_per_second: MEMORY_BYTES_PER_SECOND,
            random_read_us: 1,
            sequential_write_bytes_per_second: MEMORY_BYTES_PER_SECOND,
            sync_write_us: 1,
            block_writes: None,
            rotational: self.geometry(device).rotational,
            reason: "memory".to_owned(),
        })
    }

    fn allocated_bytes(&self, device: DeviceId) -> u64 {
        self.geometry(device).size_bytes
    }
}

struct ThreadedWaiter<D>(Arc<Session<D>>);

impl<D: Devices> Waiter for ThreadedWaiter<D> {
    fn wait(&self, timeout: Option<Duration>, completions: &mut Vec<Completion>) {
        if !self.0.is_over.load(Ordering::Acquire) {
            self.0.advance();
        }
        self.0.completions.await_some(timeout, false, completions);
    }
}

struct ThreadedPerformer<D>(Weak<Session<D>>);

impl<D: Devices> Performer for ThreadedPerformer<D> {
    fn perform(&self, request: Request) -> Completion {
        let session = self.0.upgrade();
        let Some(session) = session.filter(|found| !found.is_over.load(Ordering::Acquire)) else {
            return request.end(Err(DeviceError::gone()));
        };
        let (token, mut completions) = (request.token, Vec::new());
        let own = |completion: &Completion| completion.token == token;
        let mut devices = session.lock();
        devices.submit(request);
        let position = loop {
            devices.wait(&mut completions);
            if let Some(position) = completions.iter().position(own) {
                break position;
            }
        };
        drop(devices);
        let done = completions.swap_remove(position);
        completions.into_iter().for_each(|completion| session.completions.add(completion));
        done
    }
}
