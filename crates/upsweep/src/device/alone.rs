//! I/O with nothing else in flight: creation, recovery and verification wait for what they ask for.

use std::collections::{BTreeMap, VecDeque};

use super::{
    Buffer, Class, Completion, DeviceError, DeviceId, Devices, Operation, Request, Token, WriteMode,
};

/// Requests that [`read_in_order`] has under way at a time.
const READS_IN_FLIGHT_MAX: usize = 64;
/// Bytes that [`read_in_order`] holds, unless a single range is longer or there are more devices
/// than this has joints.
pub(crate) const READ_AHEAD_BYTES_MAX: usize = 8 << 20;
/// Longest request that [`read_in_order`] makes of several ranges.
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

/// Reads ranges, given as device, offset and length in bytes, at the same time and with nothing
/// else in flight. Returns their contents in the order of the ranges.
pub fn read_together(
    devices: &mut dyn Devices,
    ranges: &[(DeviceId, u64, usize)],
) -> Vec<Result<Buffer, DeviceError>> {
    let mut reads: Vec<_> = ranges.iter().map(|_| None).collect();
    for (number, (device, offset, bytes)) in ranges.iter().enumerate() {
        submit_read(devices, number, *device, *offset, *bytes);
    }
    let mut completions = Vec::new();
    while reads.iter().any(Option::is_none) {
        devices.wait(&mut completions);
        for done in completions.drain(..) {
            let read = reads.get_mut(done.token.0 as usize);
            *read.expect("read_together is used with nothing else in flight") = Some(content(done));
        }
    }
    reads.into_iter().flatten().collect()
}

/// Reads ranges, given as device, offset and length in bytes, with nothing else in flight, and
/// calls `take` with the index and the content of each, in their order.
///
/// Several are read at a time: up to 64 requests and 8 MiB, unless one alone is longer. Ranges that
/// are close together on a device, and follow one another in the list except for ranges of other
/// devices, are read by one request of up to 1 MiB: a rotating device would lose a turn between
/// two of them. On such a device they may be up to 256 KiB apart, on another they touch. If that
/// request fails, each of its ranges is read individually. Memory: also a few words for each range,
/// and one request for each device if these are more than 8.
///
/// # Errors
/// The first error that `take` returns; it is not called again then.
pub fn read_in_order<E>(
    devices: &mut dyn Devices,
    ranges: &[(DeviceId, u64, usize)],
    mut take: impl FnMut(usize, Result<&[u8], DeviceError>) -> Result<(), E>,
) -> Result<(), E> {
    let mut reading = Reading::new(devices, ranges);
    let taken = ranges.iter().enumerate().try_for_each(|(index, range)| {
        let joint = reading.joint_of[index];
        reading.wait_for(joint);
        match reading.part(joint, range) {
            Err(_) if reading.joints[joint].is_of_several() => {
                let read = reading.read_alone(range);
                take(index, read.as_deref().map_err(Clone::clone))?;
            }
            read => take(index, read)?,
        }
        reading.has_taken(index);
        Ok(())
    });
    reading.finish();
    taken
}

/// Starts to read; the token is the number.
fn submit_read(
    devices: &mut dyn Devices,
    number: usize,
    device: DeviceId,
    offset: u64,
    bytes: usize,
) {
    let operation = Operation::Read { offset, buffer: Buffer::zeroed(bytes) };
    let token = Token(number as u64);
    devices.submit(Request { device, token, hint: Class::Upkeep.into(), operation });
}

/// What a read has read.
fn content(done: Completion) -> Result<Buffer, DeviceError> {
    done.result.map(|()| done.buffer.expect("a read gives its buffer back"))
}

/// A request for one range, or for several that are close together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Joint {
    device: DeviceId,
    start: u64,
    end: u64,
    /// Index of its first range.
    first: usize,
    /// Index of its last one.
    last: usize,
}

impl Joint {
    /// One request for these bytes as well, if they are close enough.
    fn with(self, start: u64, end: u64, index: usize, gap_bytes_max: u64) -> Option<Self> {
        let is_close = start <= self.end + gap_bytes_max && self.start <= end + gap_bytes_max;
        let (start, end) = (start.min(self.start), end.max(self.end));
        let is_short = end - start <= JOINT_BYTES_MAX;
        (is_close && is_short).then_some(Self { start, end, last: index, ..self })
    }

    fn bytes(&self) -> usize {
        (self.end - self.start) as usize
    }

    fn is_of_several(&self) -> bool {
        self.first != self.last
    }
}

/// The requests for these ranges, in the order of their first ones, and the request of each range.
fn joints_of(devices: &dyn Devices, ranges: &[(DeviceId, u64, usize)]) -> (Vec<Joint>, Vec<usize>) {
    let (mut joints, mut joint_of) = (Vec::<Joint>::new(), Vec::with_capacity(ranges.len()));
    // For each device the last request, and the gap that it may have.
    let mut open: BTreeMap<DeviceId, (usize, u64)> = BTreeMap::new();
    for (index, (device, start, bytes)) in ranges.iter().enumerate() {
        let (device, start, end) = (*device, *start, start + *bytes as u64);
        let last = open.get(&device).copied();
        let joined = last.and_then(|(joint, gap)| joints[joint].with(start, end, index, gap));
        match (last, joined) {
            (Some((joint, _)), Some(joined)) => {
                joints[joint] = joined;
                joint_of.push(joint);
            }
            _ => {
                let rotates = || devices.geometry(device).rotational;
                let gap = || if rotates() { GAP_BYTES_MAX } else { 0 };
                open.insert(device, (joints.len(), last.map_or_else(gap, |(_, gap)| gap)));
                joint_of.push(joints.len());
                joints.push(Joint { device, start, end, first: index, last: index });
            }
        }
    }
    (joints, joint_of)
}

/// What is there of a request.
#[derive(Debug)]
enum Read {
    UnderWay,
    Here(Result<Buffer, DeviceError>),
    Taken,
}

/// The state of [`read_in_order`].
struct Reading<'a> {
    devices: &'a mut dyn Devices,
    joints: Vec<Joint>,
    joint_of: Vec<usize>,
    /// Those from `taken` on that were submitted.
    reads: VecDeque<Read>,
    /// All before are taken.
    taken: usize,
    /// Bytes of requests that were submitted and are not taken.
    bytes: usize,
    /// A range that is read individually, which has the number after those of the joints.
    alone: Option<Result<Buffer, DeviceError>>,
}

impl<'a> Reading<'a> {
    fn new(devices: &'a mut dyn Devices, ranges: &[(DeviceId, u64, usize)]) -> Self {
        let (joints, joint_of) = joints_of(devices, ranges);
        let (reads, taken, bytes, alone) = (VecDeque::new(), 0, 0, None);
        Self { devices, joints, joint_of, reads, taken, bytes, alone }
    }

    /// Waits until this request has ended, with others under way.
    fn wait_for(&mut self, joint: usize) {
        while let Some(next) = self.joints.get(self.taken + self.reads.len())
            && (self.taken + self.reads.len() <= joint
                || self.reads.len() < READS_IN_FLIGHT_MAX
                    && self.bytes + next.bytes() <= READ_AHEAD_BYTES_MAX)
        {
            let number = self.taken + self.reads.len();
            self.bytes += next.bytes();
            submit_read(self.devices, number, next.device, next.start, next.bytes());
            self.reads.push_back(Read::UnderWay);
        }
        while matches!(self.reads[joint - self.taken], Read::UnderWay) {
            self.reap();
        }
    }

    fn reap(&mut self) {
        let mut completions = Vec::new();
        self.devices.wait(&mut completions);
        for done in completions {
            let number = done.token.0 as usize;
            match self.joints.get(number) {
                Some(_) => self.reads[number - self.taken] = Read::Here(content(done)),
                None => self.alone = Some(content(done)),
            }
        }
    }

    /// The content of a range, whose request has ended.
    fn part(
        &self,
        joint: usize,
        (_, offset, bytes): &(DeviceId, u64, usize),
    ) -> Result<&[u8], DeviceError> {
        let Read::Here(read) = &self.reads[joint - self.taken] else {
            unreachable!("it has ended and is not taken before the last of its ranges")
        };
        let from = (offset - self.joints[joint].start) as usize;
        read.as_ref().map(|buffer| &buffer[from..from + bytes]).map_err(Clone::clone)
    }

    fn read_alone(
        &mut self,
        (device, offset, bytes): &(DeviceId, u64, usize),
    ) -> Result<Buffer, DeviceError> {
        submit_read(self.devices, self.joints.len(), *device, *offset, *bytes);
        loop {
            if let Some(read) = self.alone.take() {
                return read;
            }
            self.reap();
        }
    }

    /// Gives back the memory of what is no longer needed after the range of this index.
    fn has_taken(&mut self, index: usize) {
        let joint = self.joint_of[index];
        if self.joints[joint].last == index {
            self.reads[joint - self.taken] = Read::Taken;
            self.bytes -= self.joints[joint].bytes();
        }
        while self.reads.pop_front_if(|read| matches!(read, Read::Taken)).is_some() {
            self.taken += 1;
        }
    }

    /// Waits until nothing is in flight.
    fn finish(&mut self) {
        while self.reads.iter().any(|read| matches!(read, Read::UnderWay)) {
            self.reap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Geometry, MemoryDevices};

    const PAGE: usize = 4096;

    /// Requests, as start and end in pages, for ranges of a page each, given as device and page.
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
        let (joints, joint_of) = joints_of(&devices, &ranges);
        for ((device, start, bytes), joint) in ranges.iter().zip(joint_of) {
            let joint = &joints[joint];
            assert!(joint.device == *device && joint.start <= *start);
            assert!(joint.end >= start + *bytes as u64);
        }
        let pages = |bytes: u64| bytes / PAGE as u64;
        joints.iter().map(|joint| (joint.device.0, pages(joint.start), pages(joint.end))).collect()
    }

    #[test]
    fn neighbours_are_read_by_one_request_in_whatever_direction() {
        for rotational in [false, true] {
            assert_eq!(requests(rotational, &[(0, 5), (0, 6), (0, 7)]), [(0, 5, 8)]);
            assert_eq!(requests(rotational, &[(0, 7), (0, 6), (0, 5)]), [(0, 5, 8)]);
            let two = [(0, 7), (1, 3), (0, 6), (1, 4)];
            assert_eq!(requests(rotational, &two), [(0, 6, 8), (1, 3, 5)]);
        }
    }

    #[test]
    fn only_on_rotating_devices_gaps_are_read() {
        let ranges = [(0, 5), (0, 7), (0, 7 + 65), (0, 72 + 66)];
        assert_eq!(requests(true, &ranges), [(0, 5, 73), (0, 138, 139)]);
        assert_eq!(requests(false, &ranges).len(), 4);
    }

    #[test]
    fn a_request_for_many_ranges_is_short() {
        let ranges: Vec<_> = (0..300).map(|page| (0, page)).collect();
        assert_eq!(requests(false, &ranges), [(0, 0, 256), (0, 256, 300)]);
    }
}
