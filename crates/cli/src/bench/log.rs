//! The benchmark of the log by itself, to be compared with what `fio` reaches on the same file.
//!
//! One thread appends records, dispatches batches and takes completions; what is durable is
//! released at once. At saturation first with records of 4 KiB, for bandwidth, then of 64 bytes,
//! for their rate; last with one outstanding record of 64 bytes.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use upsweep::layers::device::{Bank, Devices, HostDevices, HostOptions, HostPath};
use upsweep::layers::log::{AppendError, Log, LogConfig, LogRegion, Quota, Seq, StreamId, Urgency};

use super::{Latencies, Random};
use crate::args::BenchArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// Bytes of a small record's payload.
const RECORD_BYTES: usize = 64;
/// Bytes of a record that costs the processor little for its size.
const LARGE_RECORD_BYTES: usize = 4096;
/// Records that are appended between two looks at the device.
const RECORDS_PER_TURN: usize = 256;
/// Bytes of a batch.
const BATCH_BYTES: u32 = 128 << 10;
/// Batches in flight.
const DEPTH: u8 = 2;
const LOG_BYTES_DEFAULT: u64 = 512 << 20;
/// Seconds of each measurement.
const SECONDS_DEFAULT: u64 = 10;

/// What was measured.
#[derive(Serialize)]
struct Outcome {
    record_bytes: usize,
    batch_bytes: u32,
    depth: u8,
    records_per_second: f64,
    /// Whole batches of large records, as they went to the device.
    device_bytes_per_second: f64,
    batch_fill: f64,
    ack_latency: Latencies,
    device: Vec<String>,
}

/// What the log took at saturation.
struct Saturation {
    seconds: f64,
    records: f64,
    bytes: f64,
    used_bytes: f64,
}

/// A log with its device, driven by hand.
struct Bench {
    devices: HostDevices,
    log: Log,
    stream: StreamId,
    started: Instant,
    requests: Vec<upsweep::layers::device::Request>,
    completions: Vec<upsweep::layers::device::Completion>,
}

pub(super) fn run(context: &Context, args: &BenchArgs, folder: &Path) -> Result<(), Failure> {
    let mut bench = Bench::new(args, folder)?;
    let duration = Duration::from_secs(args.seconds.unwrap_or(SECONDS_DEFAULT));
    let large = bench.saturate(duration, args.seed, LARGE_RECORD_BYTES)?;
    let small = bench.saturate(duration, args.seed, RECORD_BYTES)?;
    let mut record = [0; RECORD_BYTES];
    let mut random = Random::new(args.seed);
    let ack_latency = Latencies::measure(duration, || {
        fill(&mut random, &mut record);
        bench.append_and_wait(&record)
    })?;
    let about = bench.devices.description(upsweep::layers::device::DeviceId(0));
    let outcome = Outcome {
        record_bytes: RECORD_BYTES,
        batch_bytes: BATCH_BYTES,
        depth: DEPTH,
        records_per_second: small.records / small.seconds,
        device_bytes_per_second: large.bytes / large.seconds,
        batch_fill: small.used_bytes / small.bytes.max(1.0),
        ack_latency,
        device: about.reasons,
    };
    if args.json {
        return context.json(&outcome);
    }
    context.line(&format!(
        "large records    {}/s to the device\nsmall records    {}/s of {RECORD_BYTES} bytes, \
         batches {:.0} % full\none at a time    {}",
        text::size(outcome.device_bytes_per_second as u64),
        text::rate(outcome.records_per_second),
        100.0 * outcome.batch_fill,
        outcome.ack_latency.text()
    ))
}

/// New content, so that no device can take it for the last one.
fn fill(random: &mut Random, record: &mut [u8]) {
    for word in record.chunks_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes());
    }
}

impl Bench {
    fn new(args: &BenchArgs, folder: &Path) -> Result<Self, Failure> {
        let path = HostPath { path: folder.join("log"), create: true };
        let mut devices = HostDevices::open(&[path], HostOptions::default())?;
        let device = upsweep::layers::device::DeviceId(0);
        let bytes = args.log_size.map_or(LOG_BYTES_DEFAULT, |size| size.0);
        let bytes = bytes - bytes % 4096;
        let grow = upsweep::layers::device::Operation::Allocate { offset: 0, bytes };
        upsweep::layers::device::run_alone(&mut devices, device, grow)
            .map_err(|error| Failure::Refused(format!("{}: {error}", folder.display())))?;
        let region = LogRegion { device, offset: 0, bytes };
        let segment = u32::try_from((bytes / 64).clamp(1 << 20, 64 << 20)).unwrap_or(1 << 20);
        let mut config = LogConfig::new([7; 16], 1, vec![region], segment - segment % 4096);
        config.batch_bytes = BATCH_BYTES;
        config.depth = DEPTH;
        Log::format(&mut devices, &config)?;
        let mut reader = upsweep::layers::log::recover(&mut devices, &config, Seq::FIRST)?;
        let mut log = reader.to_log(&mut devices, config)?;
        let stream = log.open("bench").map_err(upsweep::Error::from)?;
        let (requests, completions) = (Vec::new(), Vec::new());
        Ok(Self { devices, log, stream, started: Instant::now(), requests, completions })
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Submits what is due and takes what has completed; waits for something if `wait`.
    fn turn(&mut self, wait: bool) -> Result<(), Failure> {
        let now_us = self.now_us();
        self.log.dispatch(now_us, &mut self.requests);
        for request in self.requests.drain(..) {
            self.devices.submit(request);
        }
        if wait {
            self.devices.wait(&mut self.completions);
        } else {
            self.devices.reap(&mut self.completions);
        }
        for completion in self.completions.drain(..) {
            self.log.complete(completion).map_err(|failure| {
                Failure::Refused(format!("a log write failed: {}", failure.error))
            })?;
        }
        self.log.release(self.log.durable().next());
        Ok(())
    }

    fn append(&mut self, record: &[u8], urgency: Urgency) -> Result<bool, Failure> {
        let now_us = self.now_us();
        let copy = |room: &mut [u8]| room.copy_from_slice(record);
        match self.log.append(self.stream, record.len(), copy, urgency, Quota::User, now_us) {
            Ok(_) => Ok(true),
            Err(AppendError::Full | AppendError::Busy) => Ok(false),
            Err(error) => Err(Failure::Refused(format!("the log refuses a record: {error:?}"))),
        }
    }

    /// Appends records of this size as fast as the log takes them.
    fn saturate(
        &mut self,
        duration: Duration,
        seed: u64,
        record_bytes: usize,
    ) -> Result<Saturation, Failure> {
        let mut record = vec![0; record_bytes];
        fill(&mut Random::new(seed), &mut record);
        let before = self.log.metrics().read();
        let started = Instant::now();
        while started.elapsed() < duration {
            let mut has_room = true;
            for _ in 0..RECORDS_PER_TURN {
                has_room = self.append(&record, Urgency::Relaxed)?;
                if !has_room {
                    break;
                }
                record[0] = record[0].wrapping_add(1);
            }
            self.turn(!has_room)?;
        }
        while self.log.durable() < self.log.last() {
            self.append(&record, Urgency::Now)?;
            while self.log.durable() < self.log.last() {
                self.turn(true)?;
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        let after = self.log.metrics().read();
        let since = |after: u64, before: u64| (after - before) as f64;
        Ok(Saturation {
            seconds,
            records: since(after.log_records_total, before.log_records_total),
            bytes: since(after.log_written_bytes_total, before.log_written_bytes_total),
            used_bytes: since(after.log_payload_bytes_total, before.log_payload_bytes_total),
        })
    }

    fn append_and_wait(&mut self, record: &[u8]) -> Result<(), Failure> {
        while !self.append(record, Urgency::Now)? {
            self.turn(true)?;
        }
        while self.log.durable() < self.log.last() {
            self.turn(true)?;
        }
        Ok(())
    }
}
