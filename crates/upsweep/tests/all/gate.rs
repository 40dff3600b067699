//! A store whose log, or whose reading ahead, can be held up.

#![expect(clippy::disallowed_types, reason = "threads meet here")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use upsweep::layers::device::{
    Bank, Class, Completion, DeviceDescription, DeviceId, Devices, Geometry, MemoryDevices,
    Performer, Profile, Request, ThreadedDevices, Waiter, Waker,
};
use upsweep::{CreateOptions, Store};

/// A bank that does not tell of completed requests of one class while it is shut.
struct Gate {
    bank: ThreadedDevices<MemoryDevices>,
    class: Class,
    is_shut: Arc<AtomicBool>,
}

impl Devices for Gate {
    fn count(&self) -> u16 {
        self.bank.count()
    }
    fn geometry(&self, device: DeviceId) -> Geometry {
        self.bank.geometry(device)
    }
    fn submit(&mut self, request: Request) {
        self.bank.submit(request);
    }
    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.bank.reap(completions);
    }
    fn wait(&mut self, completions: &mut Vec<Completion>) {
        self.bank.wait(completions);
    }
}

impl Bank for Gate {
    fn waiter(&self) -> Box<dyn Waiter> {
        let (waiter, is_shut) = (self.bank.waiter(), Arc::clone(&self.is_shut));
        Box::new(GateWaiter { waiter, class: self.class, is_shut, kept: Mutex::default() })
    }
    fn waker(&self) -> Box<dyn Waker> {
        self.bank.waker()
    }
    fn performer(&self) -> Box<dyn Performer> {
        self.bank.performer()
    }
    fn description(&self, device: DeviceId) -> DeviceDescription {
        self.bank.description(device)
    }
    fn profile(&self, device: DeviceId) -> Option<Profile> {
        self.bank.profile(device)
    }
    fn allocated_bytes(&self, device: DeviceId) -> u64 {
        self.bank.allocated_bytes(device)
    }
}

struct GateWaiter {
    waiter: Box<dyn Waiter>,
    class: Class,
    is_shut: Arc<AtomicBool>,
    kept: Mutex<Vec<Completion>>,
}

impl Waiter for GateWaiter {
    fn wait(&self, timeout: Option<Duration>, completions: &mut Vec<Completion>) {
        let mut kept = self.kept.lock().expect("no panic");
        let first = completions.len();
        self.waiter.wait(timeout, completions);
        if self.is_shut.load(Ordering::Acquire) {
            kept.extend(completions.extract_if(first.., |done| done.class == self.class));
        } else {
            completions.append(&mut kept);
        }
    }
}

/// A store of two devices in memory, and what shuts its gate for requests of this class.
pub(crate) fn gated(class: Class) -> (Store, Arc<AtomicBool>) {
    let is_shut = Arc::new(AtomicBool::new(false));
    let bank = ThreadedDevices::new(MemoryDevices::with_sizes(&[0, 0], 1));
    let gate = Gate { bank, class, is_shut: Arc::clone(&is_shut) };
    let options = CreateOptions::default().log_bytes(32 << 20);
    (Store::builder().create_on(gate, 1, &options).expect("made"), is_shut)
}
