//! I/O with nothing else in flight: creation, recovery and verification wait for what they ask for.

use std::collections::VecDeque;

use super::{Buffer, Class, DeviceError, DeviceId, Devices, Operation, Request, Token, WriteMode};

/// Ranges that [`read_in_order`] reads at a time.
const READS_IN_FLIGHT_MAX: usize = 64;
/// Bytes that [`read_in_order`] holds, unless a single range is longer.
const READ_AHEAD_BYTES_MAX: usize = 4 << 20;

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
/// calls `take` with the index and the content of each, in their order. Several are read at a time:
/// up to 64, and up to 4 MiB unless one alone is longer.
///
/// # Errors
/// The first error that `take` returns; it is not called again then.
pub fn read_in_order<E>(
    devices: &mut dyn Devices,
    ranges: &[(DeviceId, u64, usize)],
    mut take: impl FnMut(usize, Result<Buffer, DeviceError>) -> Result<(), E>,
) -> Result<(), E> {
    let mut outcome = Ok(());
    let mut completions = Vec::new();
    // The reads from `taken` on that were submitted, with what is there of them.
    let mut reads: VecDeque<Option<Result<Buffer, DeviceError>>> = VecDeque::new();
    let (mut taken, mut bytes) = (0, 0);
    loop {
        while outcome.is_ok()
            && reads.len() < READS_IN_FLIGHT_MAX
            && let Some(&(device, offset, length)) = ranges.get(taken + reads.len())
            && (reads.is_empty() || bytes + length <= READ_AHEAD_BYTES_MAX)
        {
            let token = Token((taken + reads.len()) as u64);
            let operation = Operation::Read { offset, buffer: Buffer::zeroed(length) };
            devices.submit(Request { device, token, hint: Class::Upkeep.into(), operation });
            reads.push_back(None);
            bytes += length;
        }
        if reads.is_empty() {
            return outcome;
        }
        devices.wait(&mut completions);
        for done in completions.drain(..) {
            let read = done.result.map(|()| done.buffer.expect("a read gives its buffer back"));
            reads[done.token.0 as usize - taken] = Some(read);
        }
        while let Some(read) = reads.pop_front_if(|read| read.is_some()).flatten() {
            if outcome.is_ok() {
                outcome = take(taken, read);
            }
            bytes -= ranges[taken].2;
            taken += 1;
        }
    }
}
