//! A hostile bank: injects every fault that the engine must survive into a simulated bank.
//!
//! # The fault model
//!
//! This is what a device may do, stated without regard to the engine. The engine is correct if it
//! keeps its promises whatever of this happens. One seed decides everything.
//!
//! **What a correct device does, which the engine must always expect:**
//!
//! - *Volatile writes.* A `Cached` write is visible to reads once it has completed, and is stable
//!   once a flush that was submitted after its completion has succeeded. A `Stable` write is
//!   stable when it completes, and so is space that was allocated.
//! - *Power cut* ([`HostileDevices::power_cut`]). Every write that is in flight, or has completed
//!   and is not stable, is kept, lost or torn, with equal probability. Any subset of the 512-byte
//!   sectors of a torn write survives. A sector is never torn: it holds its last stable content or
//!   that of one write at risk. An allocation in flight happens or not. All requests in flight
//!   vanish.
//! - *Reordering.* Requests, even writes in flight to the same bytes, complete in any order that
//!   the latency model of the underlying bank permits.
//! - *Discard* leaves arbitrary content: the old bytes, zeros, or garbage. It needs no flush. A
//!   growable device frees the space. A power cut leaves any part of a discard in flight done.
//!
//! **What a device does when it breaks and reports it:**
//!
//! - *I/O errors*: operations fail with `EIO`, at random, or all of a kind after a number of
//!   operations. Any subset of the sectors of a failed write is visible, and none of them ever
//!   becomes certain. The writes that a failed flush should have covered stay visible, but no later
//!   flush makes them stable, because an operating system may have dropped them.
//! - *Latent sector errors*: a sector cannot be read (`EIO`) until it is written again.
//! - *Full device*: an allocation that would exceed a capacity, or every write, fails with
//!   `NoSpace` and has no effect.
//!
//! **What a device does when it breaks silently** (the engine must detect it by its checksums and
//! report it; it cannot always repair it):
//!
//! - *Bit flips at rest*: one bit of a sector differs, both on stable media and in the cache.
//! - *Misdirected writes*: the bytes land at another aligned place of the same device, the intended
//!   place keeps its content, and the write reports success.
//! - *Lost writes*: a write, `Stable` or not, reports success but never happens. No checksum within
//!   the block itself can detect this, because the old block is valid.
//!
//! Not in the model: a sector that mixes two writes, bytes that change on their way to memory, and
//! a device that answers for a different one.
//!
//! # Use
//!
//! [`Faults`] has the probabilities, which apply to each submitted operation; explicit faults have
//! methods. Invariant: with no fault chosen and no power cut, the bank behaves exactly like the
//! underlying one, to the byte and the microsecond.

use std::collections::{BTreeMap, BTreeSet};

use super::volatile::{PowerCut, SECTOR_BYTES, Volatile, Write};
use super::{LatencyModel, MemoryDevices, Simulated, VirtualClock};
use crate::device::random::SplitMix64;
use crate::device::{
    Buffer, Class, Completion, DeviceError, DeviceId, Devices, Geometry, Operation, Request, Token,
    WriteMode,
};

/// `EIO`: the error of a broken device.
const EIO: i32 = 5;

/// Probabilities of faults, in parts per million of the operations that each can hit; 0 is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A read fails with `EIO`, once.
    pub read_errors: u32,
    /// A write, flush, discard or allocation fails with `EIO`, once.
    pub write_errors: u32,
    /// A write lands at another aligned place of its device.
    pub misdirected_writes: u32,
    /// A write is acknowledged but never happens. Checksums within a block cannot detect this.
    pub lost_writes: u32,
    /// On any operation, one bit flips in [`Faults::range`].
    pub bit_flips: u32,
    /// On any operation, one sector in [`Faults::range`] becomes unreadable.
    pub latent_errors: u32,
    /// Where bits flip and sectors become unreadable; `None`: anywhere on the device of the
    /// operation.
    pub range: Option<FaultRange>,
}

/// A range of bytes of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRange {
    /// The device.
    pub device: DeviceId,
    /// First byte.
    pub offset: u64,
    /// Length in bytes, at least 1.
    pub bytes: u64,
}

/// Which operations fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Reads.
    Reads,
    /// Writes, flushes, discards and allocations.
    Writes,
    /// All operations.
    All,
}

/// A bank that fails on demand. Cost: a copy of every write, and of the sectors at risk.
#[derive(Debug)]
pub struct HostileDevices<D: Simulated = MemoryDevices> {
    bank: D,
    random: SplitMix64,
    faults: Faults,
    volatile: Volatile,
    tickets: u64,
    in_flight: BTreeMap<u64, InFlight>,
    unreadable: BTreeSet<(DeviceId, u64)>,
    /// Which operations fail, and how many of them succeed before that.
    failing: Option<(FailureKind, u64)>,
    capacity_bytes: BTreeMap<DeviceId, u64>,
    refusing_writes: BTreeSet<DeviceId>,
    next_write: BTreeMap<DeviceId, WriteFault>,
}

/// A request that is in flight in the underlying bank.
#[derive(Debug)]
struct InFlight {
    device: DeviceId,
    token: Token,
    class: Class,
    action: Action,
}

/// What to do when the underlying bank completes a request.
#[derive(Debug)]
enum Action {
    Read {
        offset: u64,
        bytes: usize,
    },
    Write(Write),
    Flush {
        mark: u64,
    },
    Discard {
        offset: u64,
        bytes: u64,
    },
    Allocate {
        offset: u64,
        bytes: u64,
    },
    /// A bug of the caller, which the underlying bank reports.
    Invalid,
    /// The underlying bank runs a flush instead, so that the request takes time.
    Replaced {
        buffer: Option<Buffer>,
        result: Result<(), DeviceError>,
        fails: Option<Failure>,
    },
}

/// An operation whose failure has an effect on the content.
#[derive(Debug)]
enum Failure {
    Write(Write),
    Flush { mark: u64 },
}

/// A fault of a write that nevertheless reports success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteFault {
    Misdirected { to: u64 },
    Lost,
}

impl HostileDevices<MemoryDevices> {
    /// A hostile bank in memory, with jitter, so that requests overtake each other.
    #[must_use]
    pub fn in_memory(geometries: Vec<Geometry>, seed: u64) -> Self {
        let mut bank = MemoryDevices::new(geometries, seed);
        bank.set_latency(LatencyModel { base_us: 20, bytes_per_us: 1000, jitter_us: 500 });
        Self::new(bank, seed)
    }

    /// A copy of the devices as a power cut at this moment would leave them; these devices do not
    /// change. `seed` decides what survives. The copy has the same unreadable sectors and
    /// capacities, and no other faults. Cost: a copy of everything that was ever written.
    #[must_use]
    pub fn copy_after_power_cut(&self, seed: u64) -> Self {
        let mut copy = Self::new(self.bank.copy(), seed);
        copy.volatile = self.volatile.clone();
        copy.tickets = self.tickets;
        copy.unreadable.clone_from(&self.unreadable);
        copy.capacity_bytes.clone_from(&self.capacity_bytes);
        let in_flight = self.in_flight.iter();
        copy.in_flight = in_flight.filter_map(|(at, one)| Some((*at, one.at_risk()?))).collect();
        copy.power_cut();
        copy
    }
}

impl InFlight {
    /// The part of the request that a power cut may leave done; `None` if it has no effect.
    fn at_risk(&self) -> Option<Self> {
        let &Self { device, token, class, ref action } = self;
        let action = match *action {
            Action::Write(ref write)
            | Action::Replaced { fails: Some(Failure::Write(ref write)), .. } => {
                Action::Write(write.clone())
            }
            Action::Discard { offset, bytes } => Action::Discard { offset, bytes },
            Action::Allocate { offset, bytes } => Action::Allocate { offset, bytes },
            _ => return None,
        };
        Some(Self { device, token, class, action })
    }
}

impl<D: Simulated> HostileDevices<D> {
    /// Wraps `bank`, with no faults chosen. `seed` decides all random choices here; the bank has
    /// its own seed.
    pub fn new(bank: D, seed: u64) -> Self {
        Self {
            bank,
            // A different sequence even if the underlying bank has the same seed.
            random: SplitMix64::new(crate::device::random::mix(seed ^ 0x686f_7374_696c_6521)),
            faults: Faults::default(),
            volatile: Volatile::default(),
            tickets: 0,
            in_flight: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            failing: None,
            capacity_bytes: BTreeMap::new(),
            refusing_writes: BTreeSet::new(),
            next_write: BTreeMap::new(),
        }
    }

    /// The underlying bank, to read its time and content.
    pub fn bank(&self) -> &D {
        &self.bank
    }

    /// The underlying bank, to change its latency. Content written through it is stable at once.
    pub fn bank_mut(&mut self) -> &mut D {
        &mut self.bank
    }

    /// Sets the probabilities of faults for operations submitted from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Cuts the power: see the fault model. Afterwards nothing is in flight, all content is
    /// stable, errors set by [`Self::fail_after`] have ended, and the bank accepts requests again.
    /// Unreadable sectors, capacities and [`Faults`] remain.
    pub fn power_cut(&mut self) -> PowerCut {
        let requests_in_flight = self.in_flight.len();
        self.bank.forget_requests();
        let mut writes = Vec::new();
        for (_, InFlight { device, action, .. }) in std::mem::take(&mut self.in_flight) {
            match action {
                Action::Write(write)
                | Action::Replaced { fails: Some(Failure::Write(write)), .. } => writes.push(write),
                Action::Allocate { offset, bytes } if self.random.coin() => {
                    self.bank.allocate_now(device, offset, bytes);
                }
                Action::Discard { offset, bytes } if self.random.coin() => {
                    self.discard_in_part(device, offset, bytes);
                }
                _ => {}
            }
        }
        self.failing = None;
        self.next_write.clear();
        let cut = self.volatile.power_cut(writes, &mut self.bank, &mut self.random);
        PowerCut { requests_in_flight, ..cut }
    }

    /// Does part of a discard that a power cut interrupts: a few sectors become garbage, and some
    /// of the space is freed.
    fn discard_in_part(&mut self, device: DeviceId, offset: u64, bytes: u64) {
        let sectors = bytes / SECTOR_BYTES as u64;
        for _ in 0..sectors.min(32) {
            let at = offset + self.random.below(sectors) * SECTOR_BYTES as u64;
            let mut garbage = [0; SECTOR_BYTES];
            self.random.fill(&mut garbage);
            self.bank.poke(device, at, &garbage);
            self.volatile.discarded(device, at, SECTOR_BYTES as u64, &self.bank);
        }
        let gone = self.random.below(sectors + 1) * SECTOR_BYTES as u64;
        self.bank.punch_now(device, offset, gone);
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset`, on stable media and in the cache.
    ///
    /// # Panics
    /// If the byte is outside the device or the bit above 7.
    pub fn flip_bit(&mut self, device: DeviceId, offset: u64, bit: u8) {
        assert!(bit < 8, "a byte has bits 0 to 7");
        let byte = self.bank.peek(device, offset, 1)[0];
        self.bank.poke(device, offset, &[byte ^ (1 << bit)]);
        self.volatile.flip(device, offset, bit);
    }

    /// Makes reads of every sector that the range touches fail with `EIO` until it is written.
    pub fn make_unreadable(&mut self, device: DeviceId, offset: u64, bytes: u64) {
        self.unreadable.extend(sector_numbers(offset, bytes).map(|number| (device, number)));
    }

    /// After `operations` more operations of this kind, makes every further one fail with `EIO`,
    /// until [`Self::stop_failing`] or a power cut. Replaces an earlier call.
    pub fn fail_after(&mut self, operations: u64, kind: FailureKind) {
        self.failing = Some((kind, operations));
    }

    /// Ends the effect of [`Self::fail_after`].
    pub fn stop_failing(&mut self) {
        self.failing = None;
    }

    /// Makes allocations fail with `NoSpace` if the device would then have more than this many
    /// bytes allocated; `u64::MAX` for no limit.
    pub fn set_capacity(&mut self, device: DeviceId, bytes: u64) {
        self.capacity_bytes.insert(device, bytes);
    }

    /// Sets whether every write fails with `NoSpace`, as on a sparse file in a full file system.
    pub fn set_refusing_writes(&mut self, device: DeviceId, refusing: bool) {
        if refusing {
            self.refusing_writes.insert(device);
        } else {
            self.refusing_writes.remove(&device);
        }
    }

    /// Makes the next valid write to `device` land at `to` instead, if that range is allocated.
    /// `to` is in bytes and a multiple of the logical block.
    pub fn misdirect_next_write(&mut self, device: DeviceId, to: u64) {
        self.next_write.insert(device, WriteFault::Misdirected { to });
    }

    /// Makes the next valid write to `device` succeed without any effect.
    pub fn lose_next_write(&mut self, device: DeviceId) {
        self.next_write.insert(device, WriteFault::Lost);
    }

    /// Whether this operation fails, because of [`Self::fail_after`] or at random.
    fn fails(&mut self, operation: &Operation) -> bool {
        let reads = matches!(operation, Operation::Read { .. });
        if let Some((kind, left)) = &mut self.failing {
            let hit = match kind {
                FailureKind::Reads => reads,
                FailureKind::Writes => !reads,
                FailureKind::All => true,
            };
            if hit && *left == 0 {
                return true;
            }
            *left -= u64::from(hit);
        }
        self.random.chance(if reads { self.faults.read_errors } else { self.faults.write_errors })
    }

    /// Whether this operation fails for lack of space.
    fn is_full(&self, device: DeviceId, operation: &Operation) -> bool {
        match operation {
            Operation::Write { .. } => self.refusing_writes.contains(&device),
            Operation::Allocate { offset, bytes } => {
                let size = self.bank.geometry(device).size_bytes;
                let present = size - self.bank.unallocated_bytes(device, 0, size);
                let more = self.bank.unallocated_bytes(device, *offset, *bytes);
                let capacity = self.capacity_bytes.get(&device).copied().unwrap_or(u64::MAX);
                more > 0 && present + more > capacity
            }
            Operation::Read { .. } | Operation::Flush | Operation::Discard { .. } => false,
        }
    }

    /// Injects random faults at rest, on an operation on `device`.
    fn decay(&mut self, device: DeviceId) {
        for latent in [false, true] {
            let chance = if latent { self.faults.latent_errors } else { self.faults.bit_flips };
            if !self.random.chance(chance) {
                continue;
            }
            let range = self.faults.range.unwrap_or_else(|| {
                let bytes = self.bank.geometry(device).size_bytes;
                FaultRange { device, offset: 0, bytes }
            });
            let offset = range.offset + self.random.below(range.bytes);
            if latent {
                self.make_unreadable(range.device, offset, 1);
            } else {
                let bit = self.random.below(8) as u8;
                self.flip_bit(range.device, offset, bit);
            }
        }
    }

    /// The silent fault of a write of `bytes` bytes, if it has one.
    fn write_fault(&mut self, device: DeviceId, bytes: u64) -> Option<WriteFault> {
        let geometry = self.bank.geometry(device);
        if let Some(fault) = self.next_write.remove(&device) {
            return Some(fault);
        }
        if self.random.chance(self.faults.lost_writes) {
            return Some(WriteFault::Lost);
        }
        if self.random.chance(self.faults.misdirected_writes) {
            let block = u64::from(geometry.logical_block_bytes);
            let places = (geometry.size_bytes - bytes) / block + 1;
            return Some(WriteFault::Misdirected { to: self.random.below(places) * block });
        }
        None
    }

    /// Decides what happens to a valid request: the operation that the underlying bank performs,
    /// and what to do when it completes.
    fn plan(&mut self, ticket: u64, device: DeviceId, operation: Operation) -> (Operation, Action) {
        let full = self.is_full(device, &operation);
        if full || self.fails(&operation) {
            return self.plan_failure(ticket, device, operation, full);
        }
        let action = match operation {
            Operation::Read { offset, ref buffer } => Action::Read { offset, bytes: buffer.len() },
            Operation::Write { offset, buffer, mode } => {
                return self.plan_write(ticket, device, offset, buffer, mode);
            }
            Operation::Flush => Action::Flush { mark: self.volatile.mark() },
            Operation::Discard { offset, bytes } => Action::Discard { offset, bytes },
            Operation::Allocate { offset, bytes } => Action::Allocate { offset, bytes },
        };
        (operation, action)
    }

    fn plan_write(
        &mut self,
        ticket: u64,
        device: DeviceId,
        offset: u64,
        buffer: Buffer,
        mode: WriteMode,
    ) -> (Operation, Action) {
        let bytes = buffer.len() as u64;
        let fault = self.write_fault(device, bytes);
        let has_space = |at| self.bank.unallocated_bytes(device, at, bytes) == 0;
        let offset = match fault {
            Some(WriteFault::Lost) => {
                let buffer = Some(buffer);
                let action = Action::Replaced { buffer, result: Ok(()), fails: None };
                return (Operation::Flush, action);
            }
            Some(WriteFault::Misdirected { to }) if has_space(to) => to,
            Some(WriteFault::Misdirected { .. }) | None => offset,
        };
        let write = Write { ticket, device, offset, bytes: buffer.to_vec(), mode };
        self.volatile.begin(&write, &self.bank);
        (Operation::Write { offset, buffer, mode }, Action::Write(write))
    }

    fn plan_failure(
        &mut self,
        ticket: u64,
        device: DeviceId,
        operation: Operation,
        full: bool,
    ) -> (Operation, Action) {
        let error = if full { DeviceError::NoSpace } else { DeviceError::Failed { errno: EIO } };
        let (buffer, fails) = match operation {
            Operation::Write { offset, buffer, mode } if !full => {
                let write = Write { ticket, device, offset, bytes: buffer.to_vec(), mode };
                self.volatile.begin(&write, &self.bank);
                (Some(buffer), Some(Failure::Write(write)))
            }
            Operation::Read { buffer, .. } | Operation::Write { buffer, .. } => {
                (Some(buffer), None)
            }
            // What fails of an allocation may be the sync at its end.
            Operation::Allocate { .. } if !full => {
                (None, Some(Failure::Flush { mark: self.volatile.mark() }))
            }
            Operation::Flush => (None, Some(Failure::Flush { mark: self.volatile.mark() })),
            Operation::Discard { .. } | Operation::Allocate { .. } => (None, None),
        };
        (Operation::Flush, Action::Replaced { buffer, result: Err(error), fails })
    }

    /// Translates a completion of the underlying bank into ours, and applies its effects.
    fn finish(&mut self, below: Completion) -> Completion {
        let InFlight { device, token, class, action } =
            self.in_flight.remove(&below.token.0).expect("a bank completes each request once");
        let Completion { mut buffer, mut result, .. } = below;
        match action {
            Action::Read { offset, bytes } => {
                let mut sectors = sector_numbers(offset, bytes as u64);
                if sectors.any(|number| self.unreadable.contains(&(device, number))) {
                    result = Err(DeviceError::Failed { errno: EIO });
                }
            }
            Action::Write(write) if result.is_ok() => self.written(&write),
            Action::Write(write) => self.volatile.abandon(&write),
            Action::Flush { mark } if result.is_ok() => self.volatile.flushed(device, mark),
            Action::Flush { mark } => self.volatile.flush_failed(device, mark),
            Action::Discard { offset, bytes } => {
                self.volatile.discarded(device, offset, bytes, &self.bank);
            }
            Action::Allocate { .. } | Action::Invalid => {}
            Action::Replaced { buffer: ours, result: decided, fails } => {
                (buffer, result) = (ours, decided);
                match fails {
                    Some(Failure::Write(write)) => {
                        self.volatile.fail(&write, &mut self.bank, &mut self.random);
                    }
                    Some(Failure::Flush { mark }) => self.volatile.flush_failed(device, mark),
                    None => {}
                }
            }
        }
        Completion { device, token, class, buffer, result }
    }

    fn written(&mut self, write: &Write) {
        self.volatile.complete(write);
        if !self.unreadable.is_empty() {
            for number in sector_numbers(write.offset, write.bytes.len() as u64) {
                self.unreadable.remove(&(write.device, number));
            }
        }
    }

    fn finish_all(&mut self, below: Vec<Completion>, completions: &mut Vec<Completion>) {
        completions.extend(below.into_iter().map(|completion| self.finish(completion)));
    }
}

/// The numbers of the sectors that a range touches.
fn sector_numbers(offset: u64, bytes: u64) -> std::ops::Range<u64> {
    offset / SECTOR_BYTES as u64..(offset + bytes).div_ceil(SECTOR_BYTES as u64)
}

impl<D: Simulated> Devices for HostileDevices<D> {
    fn count(&self) -> u16 {
        self.bank.count()
    }

    fn geometry(&self, device: DeviceId) -> Geometry {
        self.bank.geometry(device)
    }

    fn clock_of(&self, device: DeviceId) -> Option<VirtualClock> {
        self.bank.clock_of(device)
    }

    fn submit(&mut self, request: Request) {
        let Request { device, token, hint, operation } = request;
        self.tickets += 1;
        let ticket = self.tickets;
        let known = device.0 < self.bank.count();
        let (operation, action) = if known && operation.check(&self.geometry(device)).is_ok() {
            self.decay(device);
            self.plan(ticket, device, operation)
        } else {
            (operation, Action::Invalid)
        };
        let class = hint.class;
        self.in_flight.insert(ticket, InFlight { device, token, class, action });
        self.bank.submit(Request { device, token: Token(ticket), hint, operation });
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let mut below = Vec::new();
        self.bank.reap(&mut below);
        self.finish_all(below, completions);
    }

    fn wait(&mut self, completions: &mut Vec<Completion>) {
        let mut below = Vec::new();
        self.bank.wait(&mut below);
        self.finish_all(below, completions);
    }
}
