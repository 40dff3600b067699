//! The devices of a world: a hostile bank with a fuse.
//!
//! When the fuse blows, after a number of operations, nothing reaches the devices any more and
//! every request fails: this simulates a power cut in the middle of code that runs to completion,
//! such as recovery. A power cut inserts a new fuse.

use upsweep::layers::device::{
    Completion, DeviceError, DeviceId, Devices, Geometry, HostileDevices, MemoryDevices, Operation,
    PowerCut, Request, Simulated,
};
use upsweep::layers::placement::Extent;

use crate::extents::OWNERS_TOKEN;

/// The errno of requests behind a blown fuse.
const EIO: i32 = 5;

/// Hostile devices behind a fuse.
pub struct Bank {
    /// The devices.
    pub devices: HostileDevices<MemoryDevices>,
    /// Operations until the fuse blows; `None`: never.
    fuse: Option<u64>,
    dead: Vec<Completion>,
    /// Where only the owners of extents may write.
    pub kept: Vec<Extent>,
    /// The first request of anyone else to write there.
    pub trespass: Option<String>,
}

impl Bank {
    /// A bank whose fuse never blows.
    #[must_use]
    pub fn new(devices: HostileDevices<MemoryDevices>) -> Self {
        Self { devices, fuse: None, dead: Vec::new(), kept: Vec::new(), trespass: None }
    }

    /// Lets the power fail after this many operations.
    pub fn set_fuse(&mut self, operations: Option<u64>) {
        self.fuse = operations;
    }

    /// Whether the power has failed.
    #[must_use]
    pub fn is_blown(&self) -> bool {
        self.fuse == Some(0)
    }

    /// Cuts the power and inserts a new fuse.
    pub fn power_cut(&mut self) -> PowerCut {
        self.fuse = None;
        self.dead.clear();
        self.devices.power_cut()
    }

    /// The present virtual time in microseconds.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.devices.bank().now_us()
    }

    /// When the next request completes, in microseconds.
    #[must_use]
    pub fn next_event_us(&self) -> Option<u64> {
        if self.dead.is_empty() { self.devices.bank().next_event_us() } else { Some(self.now_us()) }
    }

    /// Advances the time.
    pub fn advance_to(&mut self, us: u64) {
        self.devices.bank_mut().advance_to(us);
    }

    /// Performs one request to completion, as a thread does that waits for the device. Other
    /// requests that complete in the meantime go to `others`.
    ///
    /// # Panics
    /// If the devices lose the request.
    #[must_use]
    pub fn perform(&mut self, request: Request, others: &mut Vec<Completion>) -> Completion {
        let asked = (request.hint.class, request.token);
        self.submit(request);
        loop {
            let mut completions = Vec::new();
            self.wait(&mut completions);
            assert!(!completions.is_empty(), "a request in flight completes");
            let is_asked = |one: &Completion| (one.class, one.token) == asked;
            let done = completions.iter().position(is_asked);
            let done = done.map(|position| completions.swap_remove(position));
            others.append(&mut completions);
            if let Some(done) = done {
                return done;
            }
        }
    }

    /// Notes a request that writes where only owners of extents may.
    fn watch(&mut self, request: &Request) {
        let (offset, bytes) = match &request.operation {
            Operation::Write { offset, buffer, .. } => (*offset, buffer.len() as u64),
            Operation::Discard { offset, bytes } => (*offset, *bytes),
            Operation::Read { .. } | Operation::Flush | Operation::Allocate { .. } => return,
        };
        let is_there = |kept: &&Extent| {
            kept.device == request.device && offset < kept.end() && kept.offset < offset + bytes
        };
        if request.token != OWNERS_TOKEN
            && let Some(kept) = self.kept.iter().find(is_there)
        {
            let operation = &request.operation;
            self.trespass.get_or_insert_with(|| format!("{operation:?} in the reserved {kept:?}"));
        }
    }

    /// A hash of the content of all devices.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.devices.bank().digest()
    }
}

impl Devices for Bank {
    fn count(&self) -> u16 {
        self.devices.count()
    }

    fn geometry(&self, device: DeviceId) -> Geometry {
        self.devices.geometry(device)
    }

    fn submit(&mut self, request: Request) {
        self.watch(&request);
        match &mut self.fuse {
            Some(0) => self.dead.push(request.end(Err(DeviceError::Failed { errno: EIO }))),
            Some(left) => {
                *left -= 1;
                self.devices.submit(request);
            }
            None => self.devices.submit(request),
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.dead);
        self.devices.reap(completions);
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        if self.dead.is_empty() {
            self.devices.wait(completions);
        } else {
            self.reap(completions);
        }
    }
}
