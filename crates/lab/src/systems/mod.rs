//! What experiments compare, under one load and in virtual time.
//!
//! A [`System`] takes operations from callers and tells when each has ended. A comparator is a
//! [`Model`]: it says what to read and write, and is told when that is done; a [`Bench`] puts it on
//! a bank of simulated devices and gives it a processor. `load.rs` plays the callers.
//!
//! | module | content |
//! |---|---|
//! | `banks` | simulated devices |
//! | `batching` | records that wait, given to a logger together |
//! | `bare` | pages of a device, with nothing in between |
//! | `buckets` | buckets of a hash table, filled in advance |
//! | `combined` | systems that are made of others |
//! | `compressed` | devices whose content takes little memory |
//! | `crowd` | a system that others use besides the callers |
//! | `fed` | a system that changes steadily while callers use it |
//! | `line` | what tests of callers use as a system |
//! | `load` | callers, and what they see |
//! | `log` | Upsweep's log, on drives of its own |
//! | `loggers` | appending through a file system, and to a raw device |
//! | `pages` | pages of records, as leaves of a tree and as buckets of a hash table |
//! | `in_place` | updating pages in place through a cache |
//! | `plan` | what a store of the product's engine is to be |
//! | `queued` | trees with a log, and with one queue or a queue for each page |
//! | `raid` | an array of drives as one device |
//! | `sentinels` | sentinels on a drive, and records that merge with them |
//! | `trail` | logging where the head is |
//! | `store` | the engine of the product |
//! | `threadless` | a bank for a store without threads |
//! | `versions` | volumes of the product, and what they would be without an index |

pub(crate) mod banks;
pub(crate) mod bare;
pub(crate) mod batching;
mod buckets;
pub(crate) mod combined;
mod compressed;
pub(crate) mod crowd;
pub(crate) mod fed;
pub(crate) mod in_place;
#[cfg(test)]
mod line;
pub(crate) mod load;
pub(crate) mod log;
pub(crate) mod loggers;
pub(crate) mod pages;
pub(crate) mod plan;
pub(crate) mod queued;
pub(crate) mod raid;
pub(crate) mod sentinels;
pub(crate) mod store;
pub(crate) mod threadless;
pub(crate) mod trail;
pub(crate) mod versions;

use std::collections::VecDeque;

use upsweep::layers::device::{
    Buffer, Class, Completion, DeviceId, Operation, Request, Simulated, Token, WriteMode,
};

use crate::problem::Problem;

/// An operation has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// The number that it was submitted with.
    pub(crate) number: u64,
    /// When the system began with it; until then it waited for others.
    pub(crate) begun_us: u64,
    /// What a look-up found.
    pub(crate) found: Option<u64>,
}

/// Requests to the devices of a system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Reads.
    pub(crate) reads: u64,
    /// Writes.
    pub(crate) writes: u64,
    /// Bytes that were read.
    pub(crate) bytes_read: u64,
    /// Bytes that were written.
    pub(crate) bytes_written: u64,
}

impl Traffic {
    /// What has come since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            bytes_read: self.bytes_read - before.bytes_read,
            bytes_written: self.bytes_written - before.bytes_written,
        }
    }

    /// This and that of other devices.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            bytes_read: self.bytes_read + other.bytes_read,
            bytes_written: self.bytes_written + other.bytes_written,
        }
    }

    /// Counts a request.
    pub(crate) fn add(&mut self, operation: &Operation) {
        match operation {
            Operation::Read { buffer, .. } => {
                self.reads += 1;
                self.bytes_read += buffer.len() as u64;
            }
            Operation::Write { buffer, .. } => {
                self.writes += 1;
                self.bytes_written += buffer.len() as u64;
            }
            Operation::Flush | Operation::Discard { .. } | Operation::Allocate { .. } => {}
        }
    }

    /// Both.
    pub(crate) fn requests(self) -> u64 {
        self.reads + self.writes
    }
}

/// Something that performs operations in virtual time.
pub(crate) trait System {
    /// What it performs.
    type Operation;

    /// The virtual time.
    fn now_us(&self) -> u64;

    /// Takes an operation; it ends in a call of [`System::advance_to`].
    fn submit(&mut self, number: u64, operation: Self::Operation);

    /// When something happens next, if nothing is submitted.
    fn next_event_us(&self) -> Option<u64>;

    /// Moves the time forward, at most to the next event, and adds the operations that have ended.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if the system did something wrong.
    fn advance_to(&mut self, us: u64, finished: &mut Vec<Finished>) -> Result<(), Problem>;

    /// Requests to its devices so far.
    fn traffic(&self) -> Traffic;
}

/// A system without its devices and its processor.
pub(crate) trait Model {
    /// What it performs.
    type Operation;

    /// Takes an operation.
    fn begin(&mut self, number: u64, operation: Self::Operation, io: &mut Io);

    /// A request of its own has ended.
    fn ended(&mut self, token: Token, io: &mut Io);
}

/// The devices as a model sees them, and where it says that an operation has ended.
pub(crate) struct Io {
    devices: Box<dyn Simulated>,
    tokens: u64,
    traffic: Traffic,
    finished: Vec<Finished>,
}

impl Io {
    /// The virtual time.
    pub(crate) fn now_us(&self) -> u64 {
        self.devices.now_us()
    }

    /// Reads a range of a device.
    pub(crate) fn read(&mut self, device: u16, offset: u64, bytes: u64) -> Token {
        let buffer = Buffer::zeroed(bytes as usize);
        self.submit(device, Class::ForegroundRead, Operation::Read { offset, buffer })
    }

    /// Writes a range of a device to stable media. Only the time that it takes is simulated: models
    /// keep their content themselves, in a form that takes little memory.
    pub(crate) fn write(&mut self, device: u16, offset: u64, bytes: u64) -> Token {
        let (buffer, mode) = (Buffer::zeroed(bytes as usize), WriteMode::Stable);
        self.submit(device, Class::Log, Operation::Write { offset, buffer, mode })
    }

    fn submit(&mut self, device: u16, class: Class, operation: Operation) -> Token {
        self.tokens += 1;
        self.traffic.add(&operation);
        let (token, device) = (Token(self.tokens), DeviceId(device));
        self.devices.submit(Request { device, token, hint: class.into(), operation });
        token
    }

    /// An operation has ended.
    pub(crate) fn finish(&mut self, finished: Finished) {
        self.finished.push(finished);
    }
}

/// A model on devices, with one processor that each operation occupies for some time first.
pub(crate) struct Bench<M: Model> {
    /// The model.
    pub(crate) model: M,
    io: Io,
    processor_us: u64,
    processor_free_us: u64,
    /// Operations that wait for the processor or are on it, and until when.
    arriving: VecDeque<(u64, u64, M::Operation)>,
}

impl<M: Model> Bench<M> {
    /// A model on a bank at rest; an operation takes the processor for `processor_us`.
    pub(crate) fn new(model: M, devices: Box<dyn Simulated>, processor_us: u64) -> Self {
        let (traffic, finished) = (Traffic::default(), Vec::new());
        let processor_free_us = devices.now_us();
        let io = Io { devices, tokens: 0, traffic, finished };
        Self { model, io, processor_us, processor_free_us, arriving: VecDeque::new() }
    }
}

impl<M: Model> System for Bench<M> {
    type Operation = M::Operation;

    fn now_us(&self) -> u64 {
        self.io.now_us()
    }

    fn submit(&mut self, number: u64, operation: M::Operation) {
        self.processor_free_us = self.processor_free_us.max(self.now_us()) + self.processor_us;
        self.arriving.push_back((self.processor_free_us, number, operation));
    }

    fn next_event_us(&self) -> Option<u64> {
        let arrival_us = self.arriving.front().map(|(us, ..)| *us);
        [arrival_us, self.io.devices.next_event_us()].into_iter().flatten().min()
    }

    fn advance_to(&mut self, us: u64, finished: &mut Vec<Finished>) -> Result<(), Problem> {
        self.io.devices.advance_to(us);
        let mut completions = Vec::new();
        self.io.devices.reap(&mut completions);
        for Completion { token, device, result, .. } in completions {
            result.map_err(|error| {
                Problem::Simulation(format!("a request to device {}: {error}", device.0))
            })?;
            self.model.ended(token, &mut self.io);
        }
        while self.arriving.front().is_some_and(|(due_us, ..)| *due_us <= us) {
            if let Some((_, number, operation)) = self.arriving.pop_front() {
                self.model.begin(number, operation, &mut self.io);
            }
        }
        finished.append(&mut self.io.finished);
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        self.io.traffic
    }
}
