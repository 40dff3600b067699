//! A bank in virtual time for a store without threads, so that a service on the store can be
//! measured through its public interface.
//!
//! Calls of such a store do its work while they wait. Here the same goes for a caller that performs
//! a request of its own, such as a write to a reserved extent: until that has ended, the log and
//! the sweep go on, as they would with threads. (`ThreadedDevices::in_virtual_time` lets only the
//! devices go on.)

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use upsweep::layers::device::{
    Bank, Completion, DeviceDescription, DeviceId, Devices, Geometry, Performer, Profile, Request,
    Simulated, Token, VirtualClock, Waiter, Waker,
};
use upsweep::layers::runtime::BlockStore;

use super::Traffic;
use super::compressed::Compressed;

/// The bank. A clone is another handle of the same one.
#[derive(Clone)]
pub(crate) struct Threadless(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// The store whose work goes on while a caller performs a request.
    store: Mutex<Option<BlockStore>>,
}

struct State {
    devices: Compressed,
    traffic: Traffic,
    /// Up to when time may pass.
    until_us: u64,
    /// Requests that callers perform, and what became of them.
    performed: BTreeMap<(DeviceId, Token), Option<Completion>>,
    /// Other requests that have ended.
    ended: Vec<Completion>,
}

impl State {
    fn submit(&mut self, request: Request) {
        self.traffic.add(&request.operation);
        self.devices.submit(request);
    }

    /// Passes time to the next event, but not beyond `us`.
    fn pass_until(&mut self, us: u64) {
        let next_us = self.devices.next_event_us().unwrap_or(u64::MAX);
        let until_us = next_us.min(us).min(self.until_us);
        if until_us < u64::MAX {
            self.devices.advance_to(until_us);
        }
        self.sort_ended();
    }

    fn sort_ended(&mut self) {
        let mut ended = Vec::new();
        self.devices.reap(&mut ended);
        for completion in ended {
            match self.performed.get_mut(&(completion.device, completion.token)) {
                Some(performed) => *performed = Some(completion),
                None => self.ended.push(completion),
            }
        }
    }
}

impl Threadless {
    /// A bank whose devices take their time as these do, which are zero.
    pub(crate) fn new(devices: Box<dyn Simulated>) -> Self {
        let state = State {
            devices: Compressed::new(devices),
            traffic: Traffic::default(),
            until_us: u64::MAX,
            performed: BTreeMap::new(),
            ended: Vec::new(),
        };
        Self(Arc::new(Shared { state: Mutex::new(state), store: Mutex::default() }))
    }

    /// The store on this bank. It is kept open until [`Threadless::let_go`].
    pub(crate) fn set_store(&self, store: BlockStore) {
        *self.store() = Some(store);
    }

    /// Forgets the store, so that it can close.
    pub(crate) fn let_go(&self) {
        let store = self.store().take();
        drop(store);
    }

    /// The virtual time.
    pub(crate) fn now_us(&self) -> u64 {
        self.state().devices.now_us()
    }

    /// A clock of it.
    pub(crate) fn clock(&self) -> VirtualClock {
        self.state().devices.clock()
    }

    /// Requests to the devices so far.
    pub(crate) fn traffic(&self) -> Traffic {
        self.state().traffic
    }

    /// Passes time to `us`, while the store works.
    pub(crate) fn pass_until(&self, us: u64) {
        self.state().until_us = us;
        while self.now_us() < us {
            self.work(us);
        }
        self.state().until_us = u64::MAX;
    }

    /// Lets the store work up to the next event.
    fn work(&self, until_us: u64) {
        let store = self.store().clone();
        match store {
            Some(store) => store.work(),
            None => self.state().pass_until(until_us),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self) -> MutexGuard<'_, Option<BlockStore>> {
        self.0.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Devices for Threadless {
    fn count(&self) -> u16 {
        self.state().devices.count()
    }

    fn geometry(&self, device: DeviceId) -> Geometry {
        self.state().devices.geometry(device)
    }

    fn clock_of(&self, _device: DeviceId) -> Option<VirtualClock> {
        Some(self.clock())
    }

    fn submit(&mut self, request: Request) {
        self.state().submit(request);
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let mut state = self.state();
        state.sort_ended();
        completions.append(&mut state.ended);
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        let mut state = self.state();
        while state.ended.is_empty() && state.devices.next_event_us().is_some() {
            state.pass_until(u64::MAX);
        }
        completions.append(&mut state.ended);
    }
}

impl Bank for Threadless {
    fn waiter(&self) -> Box<dyn Waiter> {
        Box::new(self.clone())
    }

    fn waker(&self) -> Box<dyn Waker> {
        Box::new(Awake)
    }

    fn performer(&self) -> Box<dyn Performer> {
        Box::new(self.clone())
    }

    fn description(&self, device: DeviceId) -> DeviceDescription {
        let (name, reasons) = (format!("simulated-{}", device.0), Vec::new());
        DeviceDescription { name, engine: "memory", direct: true, reasons }
    }

    /// It is not measured: what suits drives of which nothing is known.
    fn profile(&self, _device: DeviceId) -> Option<Profile> {
        None
    }

    fn allocated_bytes(&self, device: DeviceId) -> u64 {
        self.geometry(device).size_bytes
    }
}

impl Waiter for Threadless {
    fn wait(&self, timeout: Option<Duration>, completions: &mut Vec<Completion>) {
        let mut state = self.state();
        if state.ended.is_empty() {
            let timeout_us = timeout.map_or(u128::MAX, |timeout| timeout.as_micros());
            let us = u64::try_from(timeout_us).unwrap_or(u64::MAX);
            let now_us = state.devices.now_us();
            state.pass_until(now_us.saturating_add(us));
        }
        completions.append(&mut state.ended);
    }
}

impl Performer for Threadless {
    fn perform(&self, request: Request) -> Completion {
        let key = (request.device, request.token);
        let mut state = self.state();
        state.performed.insert(key, None);
        state.submit(request);
        drop(state);
        loop {
            let done = self.state().performed.get_mut(&key).and_then(Option::take);
            if let Some(done) = done {
                self.state().performed.remove(&key);
                return done;
            }
            self.work(u64::MAX);
        }
    }
}

/// Nobody waits while something else happens.
struct Awake;

impl Waker for Awake {
    fn wake(&self) {}
}

#[cfg(test)]
mod tests {
    use upsweep::layers::device::{Buffer, Class, WriteMode};
    use upsweep::{CreateOptions, Durability, OpenOptions, Store};

    use super::super::banks;
    use super::*;

    fn store() -> (Threadless, Store) {
        let drives = banks::drives_and_log("dtla307030", 1, 64 << 20, None, 1).expect("drives");
        let bank = Threadless::new(drives);
        let options = OpenOptions::default().memory_bytes(16 << 20).without_threads();
        let builder = Store::builder().options(options);
        let store = builder.create_on(bank.clone(), 1, &CreateOptions::default()).expect("made");
        (bank, store)
    }

    #[test]
    fn the_store_works_while_a_caller_performs_a_request() {
        for is_set in [false, true] {
            let (bank, store) = store();
            let table = store.table("table").expect("made").with_durability(Durability::Relaxed);
            let extent = store.blocks().reserve_extent(table.space(), 4 << 20).expect("reserved");
            if is_set {
                bank.set_store(store.blocks().clone());
            }
            let ticket = table.put(b"key", b"value").expect("there is room");
            let buffer = Buffer::zeroed(4 << 20);
            let (from_us, stable) = (bank.now_us(), WriteMode::Stable);
            extent.write(0, buffer, stable, Class::ForegroundWrite).expect("it is written");
            assert!(bank.now_us() - from_us > 100_000, "4 MiB take a while");
            assert_eq!(store.blocks().durable() >= ticket.sequence(), is_set);
            bank.let_go();
        }
    }

    #[test]
    fn time_passes_exactly_to_where_it_should() {
        let (bank, store) = store();
        bank.set_store(store.blocks().clone());
        for us in [1, 10, 777, 1_234_567] {
            let until_us = bank.now_us() + us;
            bank.pass_until(until_us);
            assert_eq!(bank.now_us(), until_us);
        }
        bank.let_go();
    }
}
