//! I/O with nothing else in flight: creation, recovery and verification wait for what they ask for.

use std::collections::{BTreeMap, VecDeque};

use super::joint::{GAP_BYTES_MAX, Joint, join};
use super::{Buffer, Class, DeviceError, DeviceId, Devices, Operation, Request, Token, WriteMode};

/// Requests that [`read_all`] has under way at a time.
const READS_IN_FLIGHT_MAX: usize = 64;
/// Bytes of them, unless a single one is longer.
const READ_AHEAD_BYTES_MAX: usize = 8 << 20;
/// Longest request that [`read_all`] makes of several ranges.
const JOINT_BYTES_MAX: u64 = 1 << 20;

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
/// Several are read at a time: up to 64 requests and 8 MiB, unless one alone is longer. Ranges that
/// are close together on a device are read by one request of up to 1 MiB, because a rotating device
/// would lose a turn between two of them. On such a device they may be up to 256 KiB apart, on
/// another they touch. If such a request fails, each of its ranges is read individually. Memory:
/// also a few words for each range.
///
/// # Errors
/// The first error that `take` returns; it is not called again then.
pub fn read_all<E>(
    devices: &mut dyn Devices,
    ranges: &[(DeviceId, u64, usize)],
    mut take: impl FnMut(usize, Result<&[u8], DeviceError>) -> Result<(), E>,
) -> Result<(), E> {
    let gap_bytes_max = |device| {
        let rotates = devices.geometry(device).rotational;
        if rotates { GAP_BYTES_MAX } else { 0 }
    };
    let (order, joints) = join(ranges, |_, start| start + JOINT_BYTES_MAX, gap_bytes_max);
    let mut waiting = VecDeque::from(joints);
    let mut under_way: BTreeMap<u64, Joint> = BTreeMap::new();
    let (mut submitted, mut bytes, mut outcome) = (0, 0, Ok(()));
    let mut completions = Vec::new();
    loop {
        while outcome.is_ok()
            && under_way.len() < READS_IN_FLIGHT_MAX
            && let Some(next) = waiting.pop_front_if(|next| {
                under_way.is_empty() || bytes + next.bytes() <= READ_AHEAD_BYTES_MAX
            })
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
