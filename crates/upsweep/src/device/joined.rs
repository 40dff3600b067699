//! Several banks as one: the devices of the first, then those of the second, and so on.
//!
//! One thread per bank waits for its completions and forwards them. Invariant: a request is in
//! flight in the bank that has its device, or it is in the queue of completions.

#![expect(clippy::disallowed_methods, reason = "a thread waits for each bank")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::bank::{Bank, DeviceDescription, Performer, Waiter, Waker};
use super::completions::Completions;
use super::{Completion, DeviceError, DeviceId, Devices, Geometry, Profile, Request, VirtualClock};

/// Several banks joined into one.
pub struct JoinedDevices {
    members: Vec<Member>,
    count: u16,
    shared: Arc<Shared>,
}

struct Member {
    /// Number of its first device in the joined bank.
    first: u16,
    bank: Box<dyn Bank>,
    waker: Box<dyn Waker>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    completions: Arc<Completions>,
    ends: AtomicBool,
}

impl JoinedDevices {
    /// Joins `banks`, with nothing in flight in any of them.
    ///
    /// # Errors
    /// The error of the system if it cannot start a thread.
    ///
    /// # Panics
    /// If there are more than 65535 devices.
    pub fn new(banks: Vec<Box<dyn Bank>>) -> std::io::Result<Self> {
        let mut joined = Self { members: Vec::new(), count: 0, shared: Arc::default() };
        for bank in banks {
            let first = joined.count;
            joined.count = first.checked_add(bank.count()).expect("device numbers have 16 bits");
            let (shared, waiter) = (Arc::clone(&joined.shared), bank.waiter());
            let builder = std::thread::Builder::new().name(format!("upsweep-bank-{first}"));
            let thread = Some(builder.spawn(move || shared.hand_on(&*waiter, first))?);
            let waker = bank.waker();
            joined.members.push(Member { first, bank, waker, thread });
        }
        Ok(joined)
    }

    /// The index of the bank that has a device, and the number of the device in that bank.
    fn member(&self, device: DeviceId) -> Option<(usize, DeviceId)> {
        if device.0 >= self.count {
            return None;
        }
        let index =
            self.members.partition_point(|member| member.first <= device.0).checked_sub(1)?;
        Some((index, DeviceId(device.0 - self.members[index].first)))
    }

    fn bank(&self, device: DeviceId) -> (&dyn Bank, DeviceId) {
        let (index, device) = self.member(device).expect("a device of the bank");
        (&*self.members[index].bank, device)
    }
}

impl Shared {
    /// The main loop of the thread of one bank: forwards its completions.
    fn hand_on(&self, waiter: &dyn Waiter, first: u16) {
        let mut completions = Vec::new();
        while !self.ends.load(Ordering::Acquire) {
            waiter.wait(None, &mut completions);
            for mut completion in completions.drain(..) {
                completion.device.0 += first;
                self.completions.add(completion);
            }
        }
    }
}

impl Drop for JoinedDevices {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        for mut member in self.members.drain(..) {
            member.waker.wake();
            if let Some(thread) = member.thread.take() {
                // The panic hook has reported a panic of the thread; there is nobody to tell here.
                drop(thread.join());
            }
        }
        self.shared.completions.close();
    }
}

impl Devices for JoinedDevices {
    fn count(&self) -> u16 {
        self.count
    }

    fn geometry(&self, device: DeviceId) -> Geometry {
        let (bank, device) = self.bank(device);
        bank.geometry(device)
    }

    fn clock_of(&self, device: DeviceId) -> Option<VirtualClock> {
        let (bank, device) = self.bank(device);
        bank.clock_of(device)
    }

    fn submit(&mut self, mut request: Request) {
        self.shared.completions.expect();
        let Some((index, device)) = self.member(request.device) else {
            return self.shared.completions.add(request.end(Err(DeviceError::InvalidRange)));
        };
        request.device = device;
        self.members[index].bank.submit(request);
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.shared.completions.reap(completions);
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        self.shared.completions.await_some(None, true, completions);
    }
}

impl Bank for JoinedDevices {
    fn waiter(&self) -> Box<dyn Waiter> {
        Box::new(Arc::clone(&self.shared.completions))
    }

    fn waker(&self) -> Box<dyn Waker> {
        Box::new(Arc::clone(&self.shared.completions))
    }

    fn performer(&self) -> Box<dyn Performer> {
        let of = |member: &Member| (member.first, member.bank.performer());
        Box::new(JoinedPerformer(self.members.iter().map(of).collect()))
    }

    fn description(&self, device: DeviceId) -> DeviceDescription {
        let (bank, device) = self.bank(device);
        bank.description(device)
    }

    fn profile(&self, device: DeviceId) -> Option<Profile> {
        let (bank, device) = self.bank(device);
        bank.profile(device)
    }

    fn allocated_bytes(&self, device: DeviceId) -> u64 {
        let (bank, device) = self.bank(device);
        bank.allocated_bytes(device)
    }
}

/// The performer of each bank, and the number of its first device.
struct JoinedPerformer(Vec<(u16, Box<dyn Performer>)>);

impl Performer for JoinedPerformer {
    fn perform(&self, mut request: Request) -> Completion {
        let device = request.device;
        let index = self.0.partition_point(|(first, _)| *first <= device.0);
        let Some((first, performer)) = index.checked_sub(1).map(|index| &self.0[index]) else {
            return request.end(Err(DeviceError::InvalidRange));
        };
        request.device = DeviceId(device.0 - first);
        let mut done = performer.perform(request);
        done.device = device;
        done
    }
}
