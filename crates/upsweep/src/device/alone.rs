//! I/O with nothing else in flight: creation, recovery and verification wait for what they ask for.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::{Buffer, Class, DeviceError, DeviceId, Devices, Operation, Request, Token, WriteMode};

/// Requests that [`read_all`] has under way at a time.
const READS_IN_FLIGHT_MAX: usize = 64;
/// Bytes of them, unless a single one is longer.
const READ_AHEAD_BYTES_MAX: usize = 8 << 20;
/// Longest request that [`read_all`] makes of several ranges.
const JOINT_BYTES_MAX: u64 = 1 << 20;
/// Longest gap that it reads over on a rotating device: less than passes under the head in a turn.
const GAP_BYTES_MAX: u64 = 256 << 10;

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
    let (order, mut waiting) = join(devices, ranges);
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

/// A request for one range, or for several that are close together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Joint {
    device: DeviceId,
    start: u64,
    end: u64,
    /// The positions of its ranges in their order on the device.
    parts: Range<usize>,
}

impl Joint {
    /// A request for the range at this position.
    fn of((device, start, length): (DeviceId, u64, usize), position: usize) -> Self {
        Self { device, start, end: start + length as u64, parts: position..position + 1 }
    }

    /// One request for this one and `next` behind it, if they are close enough.
    fn with(&self, next: &Self, gap_bytes_max: u64) -> Option<Self> {
        let end = self.end.max(next.end);
        let fits = self.device == next.device
            && next.start <= self.end + gap_bytes_max
            && end - self.start <= JOINT_BYTES_MAX;
        fits.then_some(Self { end, parts: self.parts.start..next.parts.end, ..*self })
    }

    fn bytes(&self) -> usize {
        (self.end - self.start) as usize
    }
}

/// The indices of ranges in the order of their places, and requests for all of them. These are in
/// the order of their offsets, so that they spread over the devices.
fn join(devices: &dyn Devices, ranges: &[(DeviceId, u64, usize)]) -> (Vec<usize>, VecDeque<Joint>) {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|index| (ranges[*index].0, ranges[*index].1));
    let mut joints: Vec<Joint> = Vec::new();
    for (position, index) in order.iter().enumerate() {
        let next = Joint::of(ranges[*index], position);
        let rotates = devices.geometry(next.device).rotational;
        let gap_bytes_max = if rotates { GAP_BYTES_MAX } else { 0 };
        match joints.last_mut().and_then(|last| Some((last.with(&next, gap_bytes_max)?, last))) {
            Some((joined, last)) => *last = joined,
            None => joints.push(next),
        }
    }
    joints.sort_by_key(|joint| joint.start);
    (order, joints.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Geometry, MemoryDevices};

    const PAGE: usize = 4096;

    /// Requests, as device, start and end in pages, for ranges of a page each, given as device and
    /// page.
    fn requests(rotational: bool, ranges: &[(u16, u64)]) -> Vec<(u16, u64, u64)> {
        let geometry = Geometry {
            size_bytes: 1 << 30,
            logical_block_bytes: 4096,
            physical_block_bytes: 4096,
            rotational,
            growable: false,
        };
        let devices = MemoryDevices::new(vec![geometry; 2], 1);
        let range = |(device, page): &(u16, u64)| (DeviceId(*device), page * PAGE as u64, PAGE);
        let ranges: Vec<_> = ranges.iter().map(range).collect();
        let (order, joints) = join(&devices, &ranges);
        for joint in &joints {
            for (device, start, length) in order[joint.parts.clone()].iter().map(|at| ranges[*at]) {
                assert!(joint.device == device && joint.start <= start);
                assert!(joint.end >= start + length as u64);
            }
        }
        let pages = |bytes: u64| bytes / PAGE as u64;
        joints.iter().map(|joint| (joint.device.0, pages(joint.start), pages(joint.end))).collect()
    }

    #[test]
    fn ranges_that_touch_are_read_by_one_request() {
        let ranges = [(0, 5), (1, 1), (0, 4), (0, 7), (1, 0), (0, 6)];
        assert_eq!(requests(false, &ranges), [(1, 0, 2), (0, 4, 8)]);
        assert_eq!(requests(false, &[(0, 4), (0, 6), (0, 4)]), [(0, 4, 5), (0, 6, 7)]);
        assert_eq!(requests(true, &[]), []);
    }

    #[test]
    fn a_rotating_device_reads_over_short_gaps_in_requests_of_bounded_length() {
        assert_eq!(requests(true, &[(0, 70), (0, 5), (1, 65)]), [(0, 5, 71), (1, 65, 66)]);
        assert_eq!(requests(true, &[(0, 5), (0, 71)]), [(0, 5, 6), (0, 71, 72)]);
        let many: Vec<_> = (0..300).map(|page| (0, page)).collect();
        assert_eq!(requests(false, &many), [(0, 0, 256), (0, 256, 300)]);
    }
}
