//! A bank of devices in memory and in virtual time: deterministic, without clock or threads.
//!
//! Time advances only in [`Devices::wait`], which moves it to the next completion, and in
//! [`MemoryDevices::advance_to`]. A device takes its time as a [`LatencyModel`] says, one request
//! after another, or as a simulated [`Drive`] or [`SolidState`] does.
//!
//! Invariants: a request takes effect when it completes and not before; completions are delivered
//! in order of time, and at equal times in order of submission; equal seeds and equal calls give
//! equal completions and equal content. Every write is stable once it has completed;
//! [`HostileDevices`](super::HostileDevices) adds faults. A write into a hole of a growable device,
//! or into a range with a discard in flight, panics: it is a bug of the caller, because a real
//! device might have no space for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::drive::{Drive, Rotating};
use super::holes::Holes;
use super::pages::Pages;
use super::solid_state::SolidState;
use super::timing::{Latency, Scheduled, Timing, demand_of};
use crate::device::random::SplitMix64;
use crate::device::{Completion, DeviceError, DeviceId, Devices, Geometry, Operation, Request};

/// How long a request takes: the transfers of earlier requests and its own, plus `base_us`, plus up
/// to `jitter_us`; with a jitter above zero, requests can overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyModel {
    /// Latency of every request, in microseconds.
    pub base_us: u64,
    /// Bandwidth in bytes per microsecond (that is, in MB/s); at least 1.
    pub bytes_per_us: u64,
    /// Maximum (inclusive) of the random additional latency, in microseconds.
    pub jitter_us: u64,
}

impl Default for LatencyModel {
    /// Like a solid-state disk: 80 to 100 microseconds, 1 GB/s.
    fn default() -> Self {
        Self { base_us: 80, bytes_per_us: 1000, jitter_us: 20 }
    }
}

/// A bank whose content and time a simulator can access. A hostile bank wraps one.
pub trait Simulated: Devices {
    /// The current virtual time in microseconds.
    fn now_us(&self) -> u64;

    /// A clock that shows the virtual time of this bank while the bank is borrowed elsewhere.
    fn clock(&self) -> VirtualClock;

    /// The next time at which something happens in the devices, in microseconds: no request
    /// completes before. `None` if none is in flight.
    fn next_event_us(&self) -> Option<u64>;

    /// Moves the time forward to `us`; does nothing if that is in the past. The next
    /// [`Devices::reap`] delivers the requests that are due by then.
    fn advance_to(&mut self, us: u64);

    /// Copies the current content at `offset` into `into`, in no time.
    ///
    /// # Panics
    /// If the range is outside the device.
    fn peek_into(&self, device: DeviceId, offset: u64, into: &mut [u8]);

    /// Replaces the current content at `offset`, in no time.
    ///
    /// # Panics
    /// If the range is outside the device.
    fn poke(&mut self, device: DeviceId, offset: u64, bytes: &[u8]);

    /// Allocates space for the range, and extends the device to its end if it is shorter, in no
    /// time.
    fn allocate_now(&mut self, device: DeviceId, offset: u64, bytes: u64);

    /// Makes the range of a growable device a hole, in no time. Its content does not change.
    fn punch_now(&mut self, device: DeviceId, offset: u64, bytes: u64);

    /// Bytes of the range without allocated space: in holes, or beyond the end of the device.
    fn unallocated_bytes(&self, device: DeviceId, offset: u64, bytes: u64) -> u64;

    /// Drops every request in flight, without effect and without completion.
    fn forget_requests(&mut self);

    /// A hash of the sizes and the content of all devices, stable across runs and platforms. Equal
    /// content gives an equal digest. Cost: reads everything that was ever written.
    fn digest(&self) -> u64;

    /// The current content of `bytes` bytes at `offset`.
    ///
    /// # Panics
    /// If the range is outside the device.
    fn peek(&self, device: DeviceId, offset: u64, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        self.peek_into(device, offset, &mut content);
        content
    }
}

/// Reads the virtual time of a bank from outside the bank, for example for
/// [`measure`](crate::device::measure).
#[derive(Clone, Debug)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    /// The current virtual time of the bank in microseconds.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Devices in memory. Cost: memory for the pages of 64 KiB that were written, and one ordered-map
/// operation per request.
#[derive(Debug)]
pub struct MemoryDevices {
    devices: Vec<MemoryDevice>,
    random: SplitMix64,
    /// Only the bank writes it.
    clock: VirtualClock,
    submitted: u64,
    /// By number of submission.
    in_flight: BTreeMap<u64, InFlight>,
    /// Those that no device times any more: invalid ones, and those of a device whose timing was
    /// replaced.
    scheduled: Scheduled,
}

#[derive(Debug)]
struct MemoryDevice {
    geometry: Geometry,
    pages: Pages,
    holes: Holes,
    timing: Box<dyn Timing>,
    /// It cannot be extended beyond this.
    capacity_bytes: u64,
}

#[derive(Debug)]
struct InFlight {
    request: Request,
    check: Result<(), DeviceError>,
}

impl MemoryDevices {
    /// A bank with one device per geometry, all zero, at time 0, with the default [`LatencyModel`].
    /// `seed` decides the jitter and the content of discarded space.
    ///
    /// # Panics
    /// If there are more than 65535 devices.
    #[must_use]
    pub fn new(geometries: Vec<Geometry>, seed: u64) -> Self {
        assert!(geometries.len() <= usize::from(u16::MAX), "device numbers have 16 bits");
        let device = |geometry| MemoryDevice {
            geometry,
            pages: Pages::default(),
            holes: Holes::default(),
            timing: Box::new(Latency::new(LatencyModel::default())),
            capacity_bytes: u64::MAX,
        };
        Self {
            devices: geometries.into_iter().map(device).collect(),
            random: SplitMix64::new(seed),
            clock: VirtualClock(Arc::default()),
            submitted: 0,
            in_flight: BTreeMap::new(),
            scheduled: Scheduled::default(),
        }
    }

    /// A bank of growable solid-state devices of these sizes, with blocks of 4 KiB. Sizes are in
    /// bytes and multiples of 4096.
    #[must_use]
    pub fn with_sizes(sizes: &[u64], seed: u64) -> Self {
        let geometry = |size_bytes: &u64| Geometry {
            size_bytes: *size_bytes,
            logical_block_bytes: 4096,
            physical_block_bytes: 4096,
            rotational: false,
            growable: true,
        };
        Self::new(sizes.iter().map(geometry).collect(), seed)
    }

    /// As [`MemoryDevices::with_sizes`], of devices that cannot grow.
    #[must_use]
    pub fn with_fixed_sizes(sizes: &[u64], seed: u64) -> Self {
        let mut bank = Self::with_sizes(sizes, seed);
        bank.devices.iter_mut().for_each(|device| device.geometry.growable = false);
        bank
    }

    /// A bank with the same content and time, and nothing in flight. Cost: a copy of everything
    /// that was ever written.
    #[must_use]
    pub fn copy(&self) -> Self {
        let now_us = self.now_us();
        let device = |device: &MemoryDevice| MemoryDevice {
            geometry: device.geometry.clone(),
            pages: device.pages.clone(),
            holes: device.holes.clone(),
            timing: device.timing.copy(now_us),
            capacity_bytes: device.capacity_bytes,
        };
        Self {
            devices: self.devices.iter().map(device).collect(),
            random: self.random.clone(),
            clock: VirtualClock(Arc::new(AtomicU64::new(now_us))),
            submitted: self.submitted,
            in_flight: BTreeMap::new(),
            scheduled: Scheduled::default(),
        }
    }

    /// Gives every device this latency model, whatever it was before. Requests in flight keep their
    /// times.
    pub fn set_latency(&mut self, latency: LatencyModel) {
        for device in 0..self.devices.len() {
            self.set_timing(device, Box::new(Latency::new(latency)), u64::MAX);
        }
    }

    /// Lets `device` take its time as `drive` does, which has nothing to do and whose time has not
    /// passed the present. Requests in flight keep their times.
    ///
    /// # Panics
    /// If there is no such device, or it is larger than the drive or has smaller blocks.
    pub fn set_drive(&mut self, device: DeviceId, drive: Drive) {
        let geometry = &self.device(device).geometry;
        let block = u64::from(geometry.logical_block_bytes);
        let fits = geometry.size_bytes <= drive.bytes()
            && block.is_multiple_of(u64::from(drive.sector_bytes()));
        assert!(fits, "{geometry:?} on a drive of {} bytes", drive.bytes());
        let (device, capacity_bytes) = (usize::from(device.0), drive.bytes());
        self.set_timing(device, Box::new(Rotating::new(drive)), capacity_bytes);
    }

    /// Lets `device` take its time as `flash` does, which has nothing to do and whose time has not
    /// passed the present. Requests in flight keep their times.
    ///
    /// # Panics
    /// If there is no such device, or it is larger.
    pub fn set_solid_state(&mut self, device: DeviceId, flash: SolidState) {
        let geometry = &self.device(device).geometry;
        let capacity_bytes = flash.bytes();
        let fits = geometry.size_bytes <= capacity_bytes;
        assert!(fits, "{geometry:?} on flash of {capacity_bytes} bytes");
        self.set_timing(usize::from(device.0), Box::new(flash), capacity_bytes);
    }

    fn set_timing(&mut self, device: usize, timing: Box<dyn Timing>, capacity_bytes: u64) {
        self.devices[device].capacity_bytes = capacity_bytes;
        let mut before = std::mem::replace(&mut self.devices[device].timing, timing);
        let mut known = Vec::new();
        before.advance(u64::MAX, &mut known);
        known.into_iter().for_each(|(us, number)| self.scheduled.add(us, number));
    }

    /// Number of requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn device(&self, device: DeviceId) -> &MemoryDevice {
        &self.devices[usize::from(device.0)]
    }

    fn assert_inside(&self, device: DeviceId, offset: u64, bytes: usize) {
        let size = self.device(device).geometry.size_bytes;
        let inside = offset.checked_add(bytes as u64).is_some_and(|end| end <= size);
        assert!(inside, "the device does not contain {bytes} bytes at {offset}");
    }

    /// Asserts the rule that a valid write goes to allocated space.
    fn assert_allocated(&self, request: &Request) {
        let device = self.device(request.device);
        let Operation::Write { offset, buffer, .. } = &request.operation else { return };
        let end = offset + buffer.len() as u64;
        let is_hole = device.holes.bytes_in(*offset, end) > 0;
        let is_discarded = |InFlight { request: other, .. }: &InFlight| match other.operation {
            Operation::Discard { offset: from, bytes } => {
                device.geometry.growable
                    && other.device == request.device
                    && *offset < from + bytes
                    && from < end
            }
            _ => false,
        };
        let is_hole = is_hole || self.in_flight.values().any(is_discarded);
        assert!(!is_hole, "a write to {offset}..{end}: a part is a hole");
    }

    fn finish(&mut self, InFlight { mut request, check }: InFlight) -> Completion {
        if check.is_ok() {
            self.apply(&mut request);
        }
        request.end(check)
    }

    fn apply(&mut self, request: &mut Request) {
        let device = &mut self.devices[usize::from(request.device.0)];
        match &mut request.operation {
            Operation::Read { offset, buffer } => device.pages.read(*offset, buffer),
            Operation::Write { offset, buffer, .. } => device.pages.write(*offset, buffer),
            Operation::Flush => {}
            Operation::Discard { offset, bytes } => {
                device.pages.discard(*offset, *bytes, &mut self.random);
                device.punch(*offset, *bytes);
            }
            Operation::Allocate { offset, bytes } => device.allocate(*offset, *bytes),
        }
    }
}

impl MemoryDevice {
    fn check(&self, operation: &Operation) -> Result<(), DeviceError> {
        operation.check(&self.geometry)?;
        match operation {
            Operation::Allocate { offset, bytes } if offset + bytes > self.capacity_bytes => {
                Err(DeviceError::NoSpace)
            }
            _ => Ok(()),
        }
    }

    fn allocate(&mut self, offset: u64, bytes: u64) {
        let end = offset + bytes;
        self.holes.fill(offset, end);
        // Two extensions in flight may complete in any order.
        self.geometry.size_bytes = self.geometry.size_bytes.max(end);
    }

    /// Makes the range a hole; a raw device always keeps its space.
    fn punch(&mut self, offset: u64, bytes: u64) {
        if self.geometry.growable {
            self.holes.punch(offset, offset + bytes);
        }
    }
}

impl Devices for MemoryDevices {
    fn count(&self) -> u16 {
        self.devices.len() as u16
    }

    fn geometry(&self, device: DeviceId) -> Geometry {
        self.device(device).geometry.clone()
    }

    fn clock_of(&self, _device: DeviceId) -> Option<VirtualClock> {
        Some(self.clock.clone())
    }

    fn submit(&mut self, request: Request) {
        let check = match self.devices.get(usize::from(request.device.0)) {
            Some(device) => device.check(&request.operation),
            None => Err(DeviceError::InvalidRange),
        };
        if check.is_ok() {
            self.assert_allocated(&request);
        }
        self.submitted += 1;
        let (number, now_us) = (self.submitted, self.now_us());
        let device = self.devices.get_mut(usize::from(request.device.0));
        match device.filter(|_| check.is_ok()) {
            Some(device) => {
                let demand = demand_of(&request.operation);
                device.timing.arrive(number, demand, now_us, &mut self.random);
            }
            _ => self.scheduled.add(now_us, number),
        }
        self.in_flight.insert(number, InFlight { request, check });
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let (now_us, mut due) = (self.now_us(), Vec::new());
        self.scheduled.take_due(now_us, &mut due);
        self.devices.iter_mut().for_each(|device| device.timing.advance(now_us, &mut due));
        due.sort_unstable();
        for (_, number) in due {
            let done = self.in_flight.remove(&number).expect("a device completes a request once");
            completions.push(self.finish(done));
        }
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.reap(completions);
        while completions.len() == before
            && let Some(us) = self.next_event_us()
        {
            self.advance_to(us);
            self.reap(completions);
        }
    }
}

impl Simulated for MemoryDevices {
    fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    fn clock(&self) -> VirtualClock {
        self.clock.clone()
    }

    fn next_event_us(&self) -> Option<u64> {
        // A device may have work of its own when nothing is in flight.
        self.in_flight.first_key_value()?;
        let devices = self.devices.iter().filter_map(|device| device.timing.next_us());
        devices.chain(self.scheduled.next_us()).min()
    }

    fn advance_to(&mut self, us: u64) {
        self.clock.0.fetch_max(us, Ordering::Relaxed);
    }

    fn peek_into(&self, device: DeviceId, offset: u64, into: &mut [u8]) {
        self.assert_inside(device, offset, into.len());
        self.device(device).pages.read(offset, into);
    }

    fn poke(&mut self, device: DeviceId, offset: u64, bytes: &[u8]) {
        self.assert_inside(device, offset, bytes.len());
        self.devices[usize::from(device.0)].pages.write(offset, bytes);
    }

    fn allocate_now(&mut self, device: DeviceId, offset: u64, bytes: u64) {
        self.devices[usize::from(device.0)].allocate(offset, bytes);
    }

    fn punch_now(&mut self, device: DeviceId, offset: u64, bytes: u64) {
        self.devices[usize::from(device.0)].punch(offset, bytes);
    }

    fn unallocated_bytes(&self, device: DeviceId, offset: u64, bytes: u64) -> u64 {
        let device = self.device(device);
        let (size, end) = (device.geometry.size_bytes, offset + bytes);
        device.holes.bytes_in(offset, end.min(size)) + end.saturating_sub(offset.max(size))
    }

    fn forget_requests(&mut self) {
        self.in_flight.clear();
        self.scheduled.clear();
        let now_us = self.now_us();
        self.devices.iter_mut().for_each(|device| device.timing.forget(now_us));
    }

    fn digest(&self) -> u64 {
        self.devices.iter().fold(0, |digest, device| {
            let size = crate::device::random::mix(digest ^ device.geometry.size_bytes);
            crate::device::random::mix(size ^ device.pages.digest())
        })
    }
}
