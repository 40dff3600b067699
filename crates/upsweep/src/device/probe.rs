//! Measures what a device is, as virtual disks and drives behind controllers say little that is
//! true about themselves.
//!
//! Steps: write the scratch range in sequence, read it back in sequence, read single blocks of it
//! at random places, write single blocks of it synchronously at random places. By itself: write
//! logical blocks and units of 4 KiB synchronously, by turns. Invariants: only
//! the scratch range is written, and its content is lost; requests in flight are bounded by
//! [`DEPTH`]. The clock is passed in: in simulation it is virtual.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::random::SplitMix64;
use super::{Buffer, Class, DeviceError, DeviceId, Devices, Operation, Request, Token, WriteMode};

/// Bytes of a sequential request.
const SEQUENTIAL_BYTES: u64 = 1 << 20;
/// Sequential requests in flight.
const DEPTH: u64 = 4;
/// Upper end of what is written and read in sequence, in bytes.
const SEQUENTIAL_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a random request.
const RANDOM_BYTES: u64 = 4096;
/// Random reads, and synchronous writes, that are timed.
const SAMPLES: usize = 128;
/// Fewer samples are taken once this many have been and this much time has passed.
const SAMPLES_MIN: usize = 16;
const SAMPLING_TIME: Duration = Duration::from_millis(500);
/// A device that serves a quarter of the random reads in less than this does not move a head: a
/// quarter of a turn takes 1000 us at 15,000 turns a minute, the seek aside. Its median says less,
/// as other load makes the reads of a solid-state disk wait.
const SOLID_STATE_US: u64 = 1000;
/// Durable writes of each size that are compared.
const PAIRS: u64 = 30;
/// Fewer are compared once this many have been and this much time has passed.
const PAIRS_MIN: usize = 8;
const COMPARING_TIME: Duration = Duration::from_millis(500);
/// Rounds of a measurement that decides something, until one shows that the device is fast: what
/// else the machine does may slow one round, but what the device has to do it does in each.
const ROUNDS: usize = 3;
/// Bytes that durable writes that are compared may take.
const COMPARING_BYTES: u64 = 256 << 10;

const _: () = assert!(2 * PAIRS * RANDOM_BYTES <= COMPARING_BYTES);

/// What a device was measured to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// Bandwidth of sequential reads in bytes per second.
    pub sequential_read_bytes_per_second: u64,
    /// Bandwidth of sequential writes, made stable, in bytes per second.
    pub sequential_write_bytes_per_second: u64,
    /// Median latency of a read of 4 KiB at a random place, in microseconds.
    pub random_read_us: u64,
    /// Median latency of a stable write of 4 KiB at a random place, in microseconds.
    pub sync_write_us: u64,
    /// Whether access time depends on distance.
    pub rotational: bool,
    /// Why it counts as rotational or not, for people.
    pub reason: String,
    /// Durable writes of a logical block beside those of 4 KiB, if they were compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_writes: Option<BlockWrites>,
}

/// How long durable writes take that lie one behind the other, as those of a log do: medians, in
/// microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockWrites {
    /// Bytes of such a block.
    pub block_bytes: u32,
    /// A write of a logical block.
    pub block_us: u64,
    /// A write of 4 KiB.
    pub unit_us: u64,
}

impl BlockWrites {
    /// Whether a write of a logical block takes no longer than 1.25 times one of 4 KiB. It takes
    /// longer where the device has to read what it does not write of a physical block.
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

/// Measures `device`, with nothing else in flight on the bank; overwrites `scratch`. `now` gives
/// the time since any fixed moment. The random reads hit what was just written: give a scratch
/// range above the write cache of the device where that matters. Cost: at most 256 MiB written and
/// read, and about a second on a solid-state disk, one more where random reads are slow.
///
/// # Errors
/// `InvalidRange` if the range is below 1 MiB or outside the device; otherwise what the device
/// reports.
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

/// Compares durable writes to `device` of `block_bytes`, one or more of its logical blocks and
/// at most 4096, with those of 4 KiB, by turns, with nothing else in flight on the bank;
/// overwrites the first 256 KiB of `scratch`, where the device has space already. `now` gives
/// the time since any fixed moment. Cost: 60 writes, a few milliseconds on a solid-state disk;
/// three times as many if small writes do not seem to be fast.
///
/// # Errors
/// `InvalidRange` if the range is below 256 KiB or outside the device, or if the device has larger
/// blocks; otherwise what the device reports.
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
    // The two sorts one behind the other each, apart from each other.
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
        "{verdict}: the fastest quarter of random reads takes up to {quarter_us} us, {bound} \
         {SOLID_STATE_US} us; {agreement}"
    )
}

/// How long random requests took, one after the other.
struct RandomRequests {
    /// A quarter of them took as long as this or less.
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
    /// Bandwidth, in bytes per second, of writing or reading the scratch range in sequence.
    fn sequential(&mut self, write: bool) -> Result<u64, DeviceError> {
        let requests = self.scratch.bytes.min(SEQUENTIAL_BYTES_MAX) / SEQUENTIAL_BYTES;
        let mut buffers: Vec<Buffer> = Vec::new();
        for _ in 0..DEPTH.min(requests) {
            let mut buffer = Buffer::zeroed(SEQUENTIAL_BYTES as usize);
            // Bytes that no device compresses.
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

    /// Times of random reads, or of random stable writes, of 4 KiB.
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

    /// Starts a write, or a read if there is none.
    fn submit(&mut self, offset: u64, buffer: Buffer, write: Option<WriteMode>) {
        let operation = match write {
            Some(mode) => Operation::Write { offset, buffer, mode },
            None => Operation::Read { offset, buffer },
        };
        let (token, hint) = (Token(0), Class::Upkeep.into());
        self.devices.submit(Request { device: self.device, token, hint, operation });
    }
}
