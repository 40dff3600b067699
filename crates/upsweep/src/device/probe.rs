//! Measures a device, because virtual disks and drives behind controllers often misreport their
//! properties.
//!
//! Steps of [`probe`]: write the scratch range sequentially, read it back sequentially, read single
//! blocks of it at random places, write single blocks of it synchronously at random places.
//! [`probe_block_writes`] is separate: it alternates synchronous writes of small blocks and of
//! 4 KiB. Invariants: only the scratch range is written, and its content is lost; at most [`DEPTH`]
//! requests are in flight. The clock is a parameter: in simulation it is virtual.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::random::SplitMix64;
use super::{Buffer, Class, DeviceError, DeviceId, Devices, Operation, Request, Token, WriteMode};

/// Bytes of a sequential request.
const SEQUENTIAL_BYTES: u64 = 1 << 20;
/// Sequential requests in flight.
const DEPTH: u64 = 4;
/// Most bytes that are written and read sequentially.
const SEQUENTIAL_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a random request.
const RANDOM_BYTES: u64 = 4096;
/// Random reads, and synchronous writes, to time.
const SAMPLES: usize = 128;
/// Sampling stops early after this many samples if it takes longer than [`SAMPLING_TIME`].
const SAMPLES_MIN: usize = 16;
const SAMPLING_TIME: Duration = Duration::from_millis(500);
/// A device that serves a quarter of the random reads in less than this has no moving head: at
/// 15,000 turns a minute, a quarter of a turn alone takes 1000 us, without the seek. The median is
/// a worse criterion, because other load delays the reads of a solid-state disk.
const SOLID_STATE_US: u64 = 1000;
/// Durable writes of each size to compare.
const PAIRS: u64 = 30;
/// Comparing stops early after this many pairs if it takes longer than [`COMPARING_TIME`].
const PAIRS_MIN: usize = 8;
const COMPARING_TIME: Duration = Duration::from_millis(500);
/// Most rounds of a measurement that decides something; the first that shows a fast device ends it.
/// Other load may slow one round, but a property of the device slows all of them.
const ROUNDS: usize = 3;
/// Bytes of the scratch range reserved for comparing durable writes.
const COMPARING_BYTES: u64 = 256 << 10;

const _: () = assert!(2 * PAIRS * RANDOM_BYTES <= COMPARING_BYTES);

/// The measured properties of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// Bandwidth of sequential reads in bytes per second.
    pub sequential_read_bytes_per_second: u64,
    /// Bandwidth of sequential writes, including the flush at the end, in bytes per second.
    pub sequential_write_bytes_per_second: u64,
    /// Median latency of a read of 4 KiB at a random place, in microseconds.
    pub random_read_us: u64,
    /// Median latency of a stable write of 4 KiB at a random place, in microseconds.
    pub sync_write_us: u64,
    /// Whether access time depends on distance.
    pub rotational: bool,
    /// Why it counts as rotational or not, for people.
    pub reason: String,
    /// Latency of small durable writes compared with those of 4 KiB, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_writes: Option<BlockWrites>,
}

/// Latency of durable writes to consecutive places, like those of a log. Times are medians in
/// microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockWrites {
    /// Size of a small write, in bytes.
    pub block_bytes: u32,
    /// Latency of a write of `block_bytes`, in microseconds.
    pub block_us: u64,
    /// Latency of a write of 4 KiB, in microseconds.
    pub unit_us: u64,
}

impl BlockWrites {
    /// Whether a small write takes at most 1.25 times as long as one of 4 KiB. It takes longer
    /// where the device has to read the rest of a physical block first.
    #[must_use]
    pub fn are_fast(&self) -> bool {
        4 * self.block_us <= 5 * self.unit_us
    }
}

/// A range of a device whose content may be destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScratchRange {
    /// First byte, a multiple of 4096.
    pub offset: u64,
    /// Length in bytes; at least 1 MiB, and 256 MiB or more for a good measurement.
    pub bytes: u64,
}

/// Measures `device`, with nothing else in flight on the bank, and overwrites `scratch`. `now`
/// returns the time since any fixed moment. The random reads hit data that was just written: where
/// that matters, use a scratch range larger than the write cache of the device. Cost: at most
/// 256 MiB written and read, and about a second on a solid-state disk, one more where random reads
/// are slow.
///
/// # Errors
/// [`DeviceError::InvalidRange`] if the range is below 1 MiB or outside the device; otherwise the
/// error that the device reports.
pub fn probe(
    devices: &mut dyn Devices,
    device: DeviceId,
    scratch: ScratchRange,
    now: impl Fn() -> Duration,
) -> Result<DeviceProfile, DeviceError> {
    if scratch.bytes < SEQUENTIAL_BYTES {
        return Err(DeviceError::InvalidRange);
    }
    let mut run = Probe { devices, device, scratch, random: SplitMix64::new(1), now };
    let sequential_write = run.sequential(true)?;
    let sequential_read = run.sequential(false)?;
    let mut random_reads = run.random(false)?;
    for _ in 1..ROUNDS {
        if random_reads.quarter_us < SOLID_STATE_US {
            break;
        }
        random_reads = run.random(false)?;
    }
    let sync_writes = run.random(true)?;
    let claimed = run.devices.geometry(device).rotational;
    let rotational = random_reads.quarter_us >= SOLID_STATE_US;
    Ok(DeviceProfile {
        sequential_read_bytes_per_second: sequential_read,
        sequential_write_bytes_per_second: sequential_write,
        random_read_us: random_reads.median_us,
        sync_write_us: sync_writes.median_us,
        rotational,
        reason: reason(random_reads.quarter_us, rotational, claimed),
        block_writes: None,
    })
}

/// Compares durable writes of `block_bytes` to `device` with those of 4 KiB, alternating between
/// the two, with nothing else in flight on the bank. `block_bytes` is a multiple of the logical
/// block of the device, at most 4096. Overwrites the first 256 KiB of `scratch`, which must be
/// allocated. `now` returns the time since any fixed moment. Cost: 60 writes, a few milliseconds
/// on a solid-state disk; three times as many if small writes seem slow.
///
/// # Errors
/// [`DeviceError::InvalidRange`] if the range is below 256 KiB or outside the device, or if
/// `block_bytes` is not a multiple of its logical block; otherwise the error that the device
/// reports.
pub fn probe_block_writes(
    devices: &mut dyn Devices,
    device: DeviceId,
    block_bytes: u32,
    scratch: ScratchRange,
    now: impl Fn() -> Duration,
) -> Result<BlockWrites, DeviceError> {
    if scratch.bytes < COMPARING_BYTES {
        return Err(DeviceError::InvalidRange);
    }
    let mut random = SplitMix64::new(2);
    let mut round = || compare_writes(devices, device, block_bytes, scratch, &mut random, &now);
    let mut found = round()?;
    for _ in 1..ROUNDS {
        if found.are_fast() {
            break;
        }
        found = round()?;
    }
    Ok(found)
}

/// One round of [`probe_block_writes`].
fn compare_writes(
    devices: &mut dyn Devices,
    device: DeviceId,
    block_bytes: u32,
    scratch: ScratchRange,
    random: &mut SplitMix64,
    now: &impl Fn() -> Duration,
) -> Result<BlockWrites, DeviceError> {
    let sizes = [u64::from(block_bytes), RANDOM_BYTES];
    // The writes of one size are consecutive, and the two sizes have separate ranges.
    let starts = [0, PAIRS * RANDOM_BYTES].map(|start| scratch.offset + start);
    let mut samples = [Vec::new(), Vec::new()];
    let begin = now();
    for pair in 0..PAIRS {
        for ((bytes, start), samples) in sizes.into_iter().zip(starts).zip(&mut samples) {
            let mut buffer = Buffer::zeroed(bytes as usize);
            random.fill(&mut buffer);
            let before = now();
            super::write_alone(devices, device, start + pair * bytes, buffer)?;
            samples.push(now() - before);
        }
        if samples[0].len() >= PAIRS_MIN && now() - begin > COMPARING_TIME {
            break;
        }
    }
    let [block_us, unit_us] = samples.map(|mut samples| {
        samples.sort_unstable();
        samples[samples.len() / 2].as_micros() as u64
    });
    Ok(BlockWrites { block_bytes, block_us, unit_us })
}

fn reason(quarter_us: u64, rotational: bool, claimed: bool) -> String {
    let verdict = if rotational { "rotating" } else { "solid-state" };
    let bound = if rotational { "at or above" } else { "below" };
    let agreement = if rotational == claimed {
        "as the host says".to_owned()
    } else {
        format!("although the host reports rotational={}", u8::from(claimed))
    };
    format!(
        "{verdict}: the fastest quarter of random reads takes up to {quarter_us} us, {bound} the \
         limit of {SOLID_STATE_US} us; {agreement}"
    )
}

/// Latency of random requests, one at a time.
struct RandomRequests {
    /// The first quartile, in microseconds.
    quarter_us: u64,
    median_us: u64,
}

struct Probe<'a, Now> {
    devices: &'a mut dyn Devices,
    device: DeviceId,
    scratch: ScratchRange,
    random: SplitMix64,
    now: Now,
}

impl<Now: Fn() -> Duration> Probe<'_, Now> {
    /// Bandwidth of writing or reading the scratch range sequentially, in bytes per second.
    fn sequential(&mut self, write: bool) -> Result<u64, DeviceError> {
        let requests = self.scratch.bytes.min(SEQUENTIAL_BYTES_MAX) / SEQUENTIAL_BYTES;
        let mut buffers: Vec<Buffer> = Vec::new();
        for _ in 0..DEPTH.min(requests) {
            let mut buffer = Buffer::zeroed(SEQUENTIAL_BYTES as usize);
            // Random bytes, which no device can compress.
            self.random.fill(&mut buffer);
            buffers.push(buffer);
        }
        let start = (self.now)();
        let (mut submitted, mut completed) = (0, 0);
        let mut completions = Vec::new();
        let mut failure = None;
        while completed < submitted || (submitted < requests && failure.is_none()) {
            while submitted < requests && failure.is_none() {
                let Some(buffer) = buffers.pop() else { break };
                let offset = self.scratch.offset + submitted * SEQUENTIAL_BYTES;
                self.submit(offset, buffer, write.then_some(WriteMode::Cached));
                submitted += 1;
            }
            self.devices.wait(&mut completions);
            for done in completions.drain(..) {
                completed += 1;
                failure = failure.or(done.result.err());
                buffers.extend(done.buffer);
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        if write {
            super::run_alone(self.devices, self.device, Operation::Flush)?;
        }
        let micros = ((self.now)() - start).as_micros().max(1);
        let bytes = u128::from(requests * SEQUENTIAL_BYTES);
        Ok((bytes * 1_000_000 / micros) as u64)
    }

    /// Latency of random reads, or of random stable writes, of 4 KiB.
    fn random(&mut self, write: bool) -> Result<RandomRequests, DeviceError> {
        let places = self.scratch.bytes / RANDOM_BYTES;
        let mut samples = Vec::with_capacity(SAMPLES);
        let mut buffer = Buffer::zeroed(RANDOM_BYTES as usize);
        self.random.fill(&mut buffer);
        let begin = (self.now)();
        while samples.len() < SAMPLES {
            let offset = self.scratch.offset + self.random.below(places) * RANDOM_BYTES;
            let start = (self.now)();
            self.submit(offset, buffer, write.then_some(WriteMode::Stable));
            let mut completions = Vec::with_capacity(1);
            while completions.is_empty() {
                self.devices.wait(&mut completions);
            }
            let end = (self.now)();
            samples.push(end - start);
            let done = completions.remove(0);
            done.result?;
            buffer = done.buffer.expect("reads and writes give their buffers back");
            if samples.len() >= SAMPLES_MIN && end - begin > SAMPLING_TIME {
                break;
            }
        }
        samples.sort_unstable();
        let at = |index: usize| samples[index].as_micros() as u64;
        Ok(RandomRequests { quarter_us: at(samples.len() / 4), median_us: at(samples.len() / 2) })
    }

    /// Starts a write with this mode, or a read if `write` is `None`.
    fn submit(&mut self, offset: u64, buffer: Buffer, write: Option<WriteMode>) {
        let operation = match write {
            Some(mode) => Operation::Write { offset, buffer, mode },
            None => Operation::Read { offset, buffer },
        };
        let (token, hint) = (Token(0), Class::Upkeep.into());
        self.devices.submit(Request { device: self.device, token, hint, operation });
    }
}
