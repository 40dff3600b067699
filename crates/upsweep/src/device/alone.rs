//! I/O with nothing else in flight: creation, recovery and verification wait for what they ask for.

use std::collections::{BTreeMap, VecDeque};

use super::joint::{Joint, join};
use super::{Buffer, Class, DeviceError, DeviceId, Devices, Operation, Request, Token, WriteMode};

/// Bytes in flight in bulk, or more if that is less than [`STREAMING_REQUESTS`].
const BULK_BYTES: usize = 8 << 20;
/// The number of requests in flight with which profiles say what length streams.
const STREAMING_REQUESTS: usize = 4;

/// The requests of who reads or writes much and has the devices to himself: of creation and
/// recovery, and of bulk loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bulk {
    /// Length of a request in bytes, where it can be chosen: a multiple of 4 KiB.
    pub request_bytes: u32,
    /// Most requests in flight.
    pub requests_in_flight: usize,
    /// Longest gap between two ranges that one request reads over, in bytes.
    pub gap_bytes_max: u64,
}

impl Default for Bulk {
    /// What suits devices of which nothing is known: 1 MiB, 64 in flight, and no gaps.
    fn default() -> Self {
        Self { request_bytes: 1 << 20, requests_in_flight: 64, gap_bytes_max: 0 }
    }
}

impl Bulk {
    /// Most bytes in flight: 8 MiB, but four requests if these are more.
    #[must_use]
    pub fn bytes_in_flight(&self) -> usize {
        (STREAMING_REQUESTS * self.request_bytes as usize).max(BULK_BYTES)
    }
}

/// Runs one request and waits for it, with nothing else in flight. Returns the buffer of a read or
/// write.
///
/// # Errors
/// The [`DeviceError`] of the operation.
pub fn run_alone(
    devices: &mut dyn Devices,
    device: DeviceId,
    operation: Operation,
) -> Result<Option<Buffer>, DeviceError> {
    let hint = Class::Upkeep.into();
    devices.submit(Request { device, token: Token(u64::MAX), hint, operation });
    let mut completions = Vec::with_capacity(1);
    while completions.is_empty() {
        devices.wait(&mut completions);
    }
    assert_eq!(completions.len(), 1, "run_alone is used with nothing else in flight");
    let done = completions.remove(0);
    assert_eq!(done.token, Token(u64::MAX), "run_alone is used with nothing else in flight");
    done.result.map(|()| done.buffer)
}

/// Reads `bytes` at `offset` with nothing else in flight.
///
/// # Errors
/// The [`DeviceError`] of the read.
pub fn read_alone(
    devices: &mut dyn Devices,
    device: DeviceId,
    offset: u64,
    bytes: usize,
) -> Result<Buffer, DeviceError> {
    let buffer = Buffer::zeroed(bytes);
    let buffer = run_alone(devices, device, Operation::Read { offset, buffer })?;
    Ok(buffer.expect("a read gives its buffer back"))
}

/// Reads `bytes` at each of these offsets, all of them under way together, with nothing else in
/// flight. What was read is dropped: this is for who wants to know how long it takes.
///
/// # Errors
/// The first [`DeviceError`] of a read, once all have completed.
pub fn read_together(
    devices: &mut dyn Devices,
    device: DeviceId,
    offsets: &[u64],
    bytes: usize,
) -> Result<(), DeviceError> {
    for (token, offset) in (0..).map(Token).zip(offsets) {
        let operation = Operation::Read { offset: *offset, buffer: Buffer::zeroed(bytes) };
        devices.submit(Request { device, token, hint: Class::Upkeep.into(), operation });
    }
    let mut completions = Vec::with_capacity(offsets.len());
    while completions.len() < offsets.len() {
        devices.wait(&mut completions);
    }
    completions.into_iter().try_for_each(|done| done.result)
}

/// Writes `buffer` at `offset` to stable media, with nothing else in flight.
///
/// # Errors
/// The [`DeviceError`] of the write.
pub fn write_alone(
    devices: &mut dyn Devices,
    device: DeviceId,
    offset: u64,
    buffer: Buffer,
) -> Result<(), DeviceError> {
    let mode = WriteMode::Stable;
    run_alone(devices, device, Operation::Write { offset, buffer, mode }).map(|_| ())
}

/// Reads ranges, given as device, offset and length in bytes, with nothing else in flight, and
/// calls `take` with the index and the content of each, in any order.
///
/// Several are read at a time: as many requests and bytes as `bulk` says, unless one alone is
/// longer. Ranges that are no further apart than its gap are read by one request of up to its
/// length, because a rotating device would lose a turn between two of them. If such a request
/// fails, each of its ranges is read individually. Memory: also a few words for each range.
///
/// # Errors
/// The first error that `take` returns; it is not called again then.
pub fn read_all<E>(
    devices: &mut dyn Devices,
    ranges: &[(DeviceId, u64, usize)],
    bulk: &Bulk,
    mut take: impl FnMut(usize, Result<&[u8], DeviceError>) -> Result<(), E>,
) -> Result<(), E> {
    let end_max = |_, start| start + u64::from(bulk.request_bytes);
    let (order, joints) = join(ranges, end_max, bulk.gap_bytes_max);
    let bytes_max = bulk.bytes_in_flight();
    let mut waiting = VecDeque::from(joints);
    let mut under_way: BTreeMap<u64, Joint> = BTreeMap::new();
    let (mut submitted, mut bytes, mut outcome) = (0, 0, Ok(()));
    let mut completions = Vec::new();
    loop {
        while outcome.is_ok()
            && under_way.len() < bulk.requests_in_flight
            && let Some(next) = waiting
                .pop_front_if(|next| under_way.is_empty() || bytes + next.bytes() <= bytes_max)
        {
            let buffer = Buffer::zeroed(next.bytes());
            let operation = Operation::Read { offset: next.start, buffer };
            let (device, token) = (next.device, Token(submitted));
            devices.submit(Request { device, token, hint: Class::Upkeep.into(), operation });
            bytes += next.bytes();
            under_way.insert(submitted, next);
            submitted += 1;
        }
        if under_way.is_empty() {
            return outcome;
        }
        devices.wait(&mut completions);
        for done in completions.drain(..) {
            let joint = under_way.remove(&done.token.0);
            let joint = joint.expect("read_all is used with nothing else in flight");
            bytes -= joint.bytes();
            let read = done.result.map(|()| done.buffer.expect("a read gives its buffer back"));
            if read.is_err() && joint.parts.len() > 1 {
                waiting.extend(joint.parts.map(|part| Joint::of(ranges[order[part]], part)));
                continue;
            }
            for index in &order[joint.parts] {
                let (_, offset, length) = ranges[*index];
                let at = (offset - joint.start) as usize;
                let content = read.as_ref().map(|buffer| &buffer[at..at + length]);
                if outcome.is_ok() {
                    outcome = take(*index, content.map_err(Clone::clone));
                }
            }
        }
    }
}
