//! A bank behind a lock, shared by threads. It is for banks that never block, such as those in
//! virtual time.
//!
//! Requests stay in flight until the driver waits: the underlying bank then advances its time to
//! the next completion, and its latency model decides their order. This includes requests that a
//! thread performs itself.

#![expect(clippy::disallowed_types, reason = "threads meet here")]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::memory::VirtualClock;
use crate::device::bank::{Bank, DeviceDescription, Performer, Waiter, Waker};
use crate::device::completions::Completions;
use crate::device::{
    Completion, DeviceError, DeviceId, Devices, Effort, Geometry, HostileDevices, Profile, Reads,
    Request, Simulated, Token, Writes,
};

/// Approximate bandwidth of copies to and from memory.
const MEMORY_BYTES_PER_SECOND: u64 = 5_000_000_000;
/// Bytes from which on a longer request is no faster.
const MEMORY_REQUEST_BYTES: u64 = 128 << 10;

/// Lets threads share a bank whose [`Devices::wait`] takes no time. A clone is another bank over
/// the same devices, which live as long as any of the clones; only one of them at a time may have
/// requests in flight. Cost of every request: a lock.
#[derive(Debug)]
pub struct ThreadedDevices<D: Devices + 'static> {
    session: Arc<Session<D>>,
}

/// The state that one bank shares with its waiters.
#[derive(Debug)]
struct Session<D> {
    devices: Arc<Mutex<D>>,
    /// How a waiter passes virtual time, if it does.
    pass: Option<Pass<D>>,
    completions: Arc<Completions>,
    /// Requests that threads perform themselves, and their completions. Its lock is taken under
    /// that of the devices.
    performed: Mutex<BTreeMap<Token, Option<Completion>>>,
    is_over: AtomicBool,
}

/// Waits for the next completion, or until this time has passed.
type Pass<D> = fn(&mut D, Duration, &mut Vec<Completion>);

impl<D: Devices> Session<D> {
    fn over(devices: Arc<Mutex<D>>, pass: Option<Pass<D>>) -> Arc<Self> {
        let (completions, is_over) = (Arc::default(), AtomicBool::new(false));
        Arc::new(Self { devices, pass, completions, performed: Mutex::default(), is_over })
    }

    fn lock(&self) -> MutexGuard<'_, D> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn performed(&self) -> MutexGuard<'_, BTreeMap<Token, Option<Completion>>> {
        self.performed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the devices, and hands on what completes.
    fn advance_by(&self, act: impl FnOnce(&mut D, &mut Vec<Completion>)) {
        let (mut devices, mut completions) = (self.lock(), Vec::new());
        act(&mut devices, &mut completions);
        let mut performed = self.performed();
        for completion in completions {
            match performed.get_mut(&completion.token) {
                Some(own) => *own = Some(completion),
                None => self.completions.add(completion),
            }
        }
    }

    /// Advances the devices to the next completion, if anything is in flight.
    fn advance(&self) {
        self.advance_by(Devices::wait);
    }
}

impl<D: Devices + 'static> ThreadedDevices<D> {
    /// Shares the bank `devices`, which has nothing in flight.
    #[must_use]
    pub fn new(devices: D) -> Self {
        Self { session: Session::over(Arc::new(Mutex::new(devices)), None) }
    }

    /// Gives access to the underlying bank, for example to inject faults.
    pub fn with<R>(&self, look: impl FnOnce(&mut D) -> R) -> R {
        look(&mut self.session.lock())
    }
}

impl<B: Simulated + 'static> ThreadedDevices<HostileDevices<B>> {
    /// As [`ThreadedDevices::new`], in virtual time: where the waiter would wait for requests or
    /// for its timeout, the time of the devices passes instead. For stores without threads.
    #[must_use]
    pub fn in_virtual_time(devices: HostileDevices<B>) -> Self {
        let pass: Pass<HostileDevices<B>> = |devices, timeout, completions| {
            let bank = devices.bank_mut();
            let until_us = bank.now_us() + u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
            let is_due = bank.next_event_us().is_some_and(|event_us| event_us <= until_us);
            if is_due {
                devices.wait(completions);
            } else {
                bank.advance_to(until_us);
            }
        };
        Self { session: Session::over(Arc::new(Mutex::new(devices)), Some(pass)) }
    }
}

impl<D: Devices + 'static> Clone for ThreadedDevices<D> {
    fn clone(&self) -> Self {
        Self { session: Session::over(Arc::clone(&self.session.devices), self.session.pass) }
    }
}

impl<D: Devices + 'static> Drop for ThreadedDevices<D> {
    fn drop(&mut self) {
        self.session.is_over.store(true, Ordering::Release);
        let mut is_idle = false;
        while !is_idle {
            self.session.advance_by(|devices, completions| {
                devices.wait(completions);
                is_idle = completions.is_empty();
            });
        }
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

    fn clock_of(&self, device: DeviceId) -> Option<VirtualClock> {
        self.session.lock().clock_of(device)
    }

    fn submit(&mut self, request: Request) {
        self.session.completions.expect();
        self.session.lock().submit(request);
        // The waiter advances the devices.
        self.session.completions.end_wait();
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.session.advance_by(Devices::reap);
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
        let reasons = vec!["in memory: lost when the process ends".to_owned()];
        DeviceDescription { name, engine: "memory", direct: true, reasons }
    }

    /// Approximately that of memory.
    fn profile(&self, device: DeviceId) -> Option<Profile> {
        let geometry = self.geometry(device);
        let reads = Reads {
            streaming_bytes_per_second: MEMORY_BYTES_PER_SECOND,
            streaming_request_bytes: MEMORY_REQUEST_BYTES,
            requests_in_flight: 1,
            small_us: 1,
            small_p99_us: 1,
        };
        let writes = Writes {
            streaming_bytes_per_second: MEMORY_BYTES_PER_SECOND,
            streaming_request_bytes: MEMORY_REQUEST_BYTES,
            mixed_bytes_per_second: MEMORY_BYTES_PER_SECOND,
            mixed_request_bytes: MEMORY_REQUEST_BYTES,
            random_request_bytes: None,
            small_durable_us: 1,
            small_durable_p99_us: 1,
            durable_beside_stream_us: 1,
            flush_us: 1,
            log_batch_bytes: MEMORY_REQUEST_BYTES,
            block_writes: None,
        };
        Some(Profile {
            name: "memory".to_owned(),
            devices: Vec::new(),
            effort: Effort::Short,
            size_bytes: geometry.size_bytes,
            logical_block_bytes: geometry.logical_block_bytes,
            physical_block_bytes: geometry.physical_block_bytes,
            rotational: geometry.rotational,
            reason: "memory".to_owned(),
            reads,
            writes: Some(writes),
            parallelism: None,
            tracks: None,
            regions: Vec::new(),
            curves: Vec::new(),
        })
    }

    fn allocated_bytes(&self, device: DeviceId) -> u64 {
        self.geometry(device).size_bytes
    }
}

struct ThreadedWaiter<D>(Arc<Session<D>>);

impl<D: Devices> Waiter for ThreadedWaiter<D> {
    fn wait(&self, timeout: Option<Duration>, completions: &mut Vec<Completion>) {
        let session = &self.0;
        let timeout = match session.pass {
            _ if session.is_over.load(Ordering::Acquire) => timeout,
            None => {
                session.advance();
                timeout
            }
            Some(pass) => {
                let timeout = timeout.unwrap_or_default();
                session.advance_by(|devices, ended| pass(devices, timeout, ended));
                Some(Duration::ZERO)
            }
        };
        session.completions.await_some(timeout, false, completions);
    }
}

struct ThreadedPerformer<D>(Weak<Session<D>>);

impl<D: Devices> Performer for ThreadedPerformer<D> {
    fn perform(&self, request: Request) -> Completion {
        self.perform_beside(request, &mut || ())
    }

    fn perform_beside(&self, request: Request, meanwhile: &mut dyn FnMut()) -> Completion {
        let session = self.0.upgrade();
        let Some(session) = session.filter(|found| !found.is_over.load(Ordering::Acquire)) else {
            meanwhile();
            return request.end(Err(DeviceError::gone()));
        };
        let token = request.token;
        let mut devices = session.lock();
        session.performed().insert(token, None);
        devices.submit(request);
        drop(devices);
        meanwhile();
        loop {
            match session.performed().entry(token) {
                Entry::Occupied(entry) if entry.get().is_some() => {
                    return entry.remove().expect("just seen");
                }
                _ => {}
            }
            session.advance();
        }
    }
}
