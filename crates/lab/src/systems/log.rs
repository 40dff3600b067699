//! Upsweep's log on drives that have nothing else to do, and the host that feeds it.
//!
//! The log is the product's own. The host has one processor: it takes a completion to the log and
//! submits what the log dispatches then, before it appends records that have arrived. Appending a
//! record, and submitting a write, take time on it.
//!
//! The devices get zeros of the same length instead of the content of a write, so that a long run
//! takes little memory.

use std::collections::VecDeque;
use std::mem;

use upsweep::layers::device::{
    Buffer, Completion, DeviceId, Devices, Operation, Request, Simulated,
};
use upsweep::layers::log::format::{BATCH_HEADER_BYTES, RECORD_HEADER_BYTES};
use upsweep::layers::log::{
    AppendError, LOG_TOKEN_BIT, Log, LogConfig, LogMode, LogRegion, Quota, Seq, StreamId, Urgency,
    recover,
};
use upsweep_sim::random::Random;

use super::{Finished, System, Traffic};
use crate::problem::Problem;

/// Bytes of the header of a record, which counts as a part of it.
pub(crate) const HEADER_BYTES: u64 = RECORD_HEADER_BYTES as u64;

/// Segments of the ring on a drive: as many as 16 writes in flight need.
const SEGMENTS: u64 = 18;

/// How the log is laid out and fed to its drives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Drives, each with a ring.
    pub(crate) drives: u16,
    /// Where the ring begins on a drive, in bytes.
    pub(crate) offset: u64,
    /// Capacity of a batch: a multiple of 4096.
    pub(crate) batch_bytes: u32,
    /// Length of a segment, about: it is made a whole number of batches.
    pub(crate) segment_bytes: u32,
    /// Writes in flight on each drive.
    pub(crate) depth: u8,
    /// What it writes while there are no records.
    pub(crate) mode: LogMode,
}

impl Layout {
    fn config(&self) -> LogConfig {
        let segment_bytes = self.segment_bytes / self.batch_bytes * self.batch_bytes;
        let (offset, bytes) = (self.offset / 4096 * 4096, SEGMENTS * u64::from(segment_bytes));
        let region = |device| LogRegion { device: DeviceId(device), offset, bytes };
        let regions = (0..self.drives).map(region).collect();
        let config = LogConfig::new(*b"a log in the lab", 1, regions, segment_bytes);
        let (batch_bytes, depth, mode) = (self.batch_bytes, self.depth, self.mode);
        LogConfig { batch_bytes, depth, mode, ..config }
    }

    /// Records of so many bytes, headers included, that fill a batch.
    pub(crate) fn records_per_batch(&self, record_bytes: u64) -> u64 {
        (u64::from(self.batch_bytes) - BATCH_HEADER_BYTES as u64) / record_bytes
    }
}

/// What the host's processor needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    /// To append a record, in nanoseconds.
    pub(crate) append_ns: u64,
    /// From when a completion is known until the write that follows it has been submitted, in
    /// nanoseconds; also for the first writes.
    pub(crate) submit_ns: u64,
    /// Up to so much longer for each submission, at random, in nanoseconds.
    pub(crate) jitter_ns: u64,
}

/// A record to append.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Append {
    /// Its bytes in the log, with the header of the log.
    pub(crate) bytes: u64,
}

/// A record that has arrived.
#[derive(Clone, Copy, Debug)]
struct Record {
    number: u64,
    bytes: u64,
    arrived_us: u64,
    appended_us: u64,
    /// Once it is in the log.
    seq: Seq,
}

/// A batch that was dispatched.
struct Batch {
    token: u64,
    /// Its content, while the devices have zeros.
    content: Buffer,
    records: Vec<Record>,
    dispatched_us: u64,
    submitted_ns: u64,
    completed_us: Option<u64>,
}

/// Where the time of records went, by the batches that they were in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stages {
    /// Records.
    pub(crate) records: u64,
    /// Bytes of their payloads.
    pub(crate) payload_bytes: u64,
    /// Batches.
    pub(crate) batches: u64,
    /// Batches that took the time of a revolution or more from submission to completion.
    pub(crate) late_batches: u64,
    aggregation_us: u64,
    submission_ns: u64,
    device_ns: u64,
    order_us: u64,
    first_us: u64,
    last_us: u64,
}

impl Stages {
    fn add(&mut self, batch: &Batch, completed_us: u64, durable_us: u64, revolution_us: f64) {
        let records = batch.records.len() as u64;
        let waited = batch.records.iter().map(|record| batch.dispatched_us - record.arrived_us);
        let device_ns = (completed_us * 1000).saturating_sub(batch.submitted_ns);
        if self.batches == 0 {
            self.first_us = batch.dispatched_us;
        }
        let payloads = batch.records.iter().map(|record| record.bytes);
        self.last_us = batch.dispatched_us;
        self.records += records;
        self.payload_bytes += payloads.sum::<u64>() - records * HEADER_BYTES;
        self.batches += 1;
        self.late_batches += u64::from(device_ns as f64 >= revolution_us * 1e3);
        self.aggregation_us += waited.sum::<u64>();
        self.submission_ns += records * (batch.submitted_ns - batch.dispatched_us * 1000);
        self.device_ns += records * device_ns;
        self.order_us += records * (durable_us - completed_us);
    }

    /// Mean time from the arrival of a record until its batch is dispatched, in microseconds.
    pub(crate) fn aggregation_us(&self) -> f64 {
        self.aggregation_us as f64 / self.records as f64
    }

    /// Mean time from then until the write was submitted, in microseconds.
    pub(crate) fn submission_us(&self) -> f64 {
        self.submission_ns as f64 / 1e3 / self.records as f64
    }

    /// Mean time from then until the host knows that it has completed, in microseconds.
    pub(crate) fn device_us(&self) -> f64 {
        self.device_ns as f64 / 1e3 / self.records as f64
    }

    /// Mean time from then until all batches before it have completed as well, in microseconds.
    pub(crate) fn order_us(&self) -> f64 {
        self.order_us as f64 / self.records as f64
    }

    /// Mean time from the dispatch of one batch to that of the next, in microseconds.
    pub(crate) fn cycle_us(&self) -> f64 {
        (self.last_us - self.first_us) as f64 / (self.batches - 1) as f64
    }

    /// Late batches in a hundred.
    pub(crate) fn late_percent(&self) -> f64 {
        100.0 * self.late_batches as f64 / self.batches as f64
    }
}

/// The log with its drives and its host.
pub(crate) struct UpsweepLog {
    /// Of the records from this number on.
    pub(crate) stages: Stages,
    measured_from: u64,
    revolution_us: f64,
    devices: Box<dyn Simulated>,
    log: Log,
    stream: StreamId,
    host: Host,
    random: Random,
    /// Until when the processor has something to do.
    busy_until_ns: u64,
    completions: VecDeque<Completion>,
    arrived: VecDeque<Record>,
    /// The log took no record since the last completion.
    is_full: bool,
    /// Records in the log whose batch was not dispatched.
    waiting: VecDeque<Record>,
    /// Writes on their way to the devices, and when they get there.
    submitting: VecDeque<(u64, Request)>,
    /// In order of dispatch, up to the last one that is not durable.
    batches: VecDeque<Batch>,
    traffic: Traffic,
}

impl UpsweepLog {
    /// An empty log on drives at rest; the stages are those of the records from number
    /// `measured_from` on, and a batch is late after `revolution_us`.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if the log cannot be opened.
    pub(crate) fn new(
        mut devices: Box<dyn Simulated>,
        layout: Layout,
        host: Host,
        (measured_from, revolution_us): (u64, f64),
        seed: u64,
    ) -> Result<Self, Problem> {
        let config = layout.config();
        let wrong = |error: &dyn std::fmt::Display| Problem::Simulation(error.to_string());
        let bank: &mut dyn Devices = &mut *devices;
        let mut found = recover(bank, &config, Seq::FIRST).map_err(|error| wrong(&error))?;
        let mut log = found.to_log(bank, config).map_err(|error| wrong(&error))?;
        let stream = log.open("lab").map_err(|error| wrong(&error))?;
        log.start_train();
        let mut system = Self {
            stages: Stages::default(),
            measured_from,
            revolution_us,
            busy_until_ns: devices.now_us() * 1000,
            devices,
            log,
            stream,
            host,
            random: Random::new(seed, "jitter of the host"),
            completions: VecDeque::new(),
            arrived: VecDeque::new(),
            is_full: false,
            waiting: VecDeque::new(),
            submitting: VecDeque::new(),
            batches: VecDeque::new(),
            traffic: Traffic::default(),
        };
        system.dispatch();
        Ok(system)
    }

    /// The processor works for so long from now on, or from when it is free.
    fn work(&mut self, ns: u64) {
        self.busy_until_ns = self.busy_until_ns.max(self.now_us() * 1000) + ns;
    }

    /// Records that have arrived and were not dispatched.
    pub(crate) fn waiting(&self) -> usize {
        self.arrived.len() + self.waiting.len()
    }

    /// From the beginning of a batch without records to that of the next, in bytes.
    pub(crate) fn train_stride_bytes(&self) -> u64 {
        self.log.train_stride_bytes()
    }

    /// Bytes of batches without records that it has written.
    pub(crate) fn dummy_bytes(&self) -> u64 {
        self.log.metrics().log_dummy_written_bytes_total.get()
    }

    fn has_work(&self) -> bool {
        !self.completions.is_empty() || !self.arrived.is_empty() && !self.is_full
    }

    /// Gives the log a completion, and sends what it dispatches then.
    fn complete(
        &mut self,
        mut completion: Completion,
        finished: &mut Vec<Finished>,
    ) -> Result<(), Problem> {
        let (now_us, token) = (self.now_us(), completion.token.0);
        if let Some(batch) = self.batches.iter_mut().find(|batch| batch.token == token) {
            completion.buffer = Some(mem::replace(&mut batch.content, Buffer::zeroed(0)));
            batch.completed_us = Some(now_us);
        }
        self.log.complete(completion).map_err(|failure| {
            Problem::Simulation(format!("device {}: {}", failure.device.0, failure.error))
        })?;
        self.is_full = false;
        self.release();
        self.dispatch();
        let durable = self.log.durable();
        let is_durable =
            |batch: &mut Batch| batch.records.last().is_none_or(|record| record.seq <= durable);
        while let Some(batch) = self.batches.pop_front_if(is_durable) {
            let completed_us = batch.completed_us.unwrap_or(now_us);
            if batch.records.first().is_some_and(|first| first.number >= self.measured_from) {
                self.stages.add(&batch, completed_us, now_us, self.revolution_us);
            }
            finished.extend(batch.records.iter().map(|record| Finished {
                number: record.number,
                begun_us: record.appended_us,
                found: None,
            }));
        }
        Ok(())
    }

    /// Keeps half of the ring: what is older is not needed any more.
    fn release(&mut self) {
        let room = self.log.room();
        if room.used_bytes > room.limit_bytes / 2
            && let Some(last) = self.log.oldest_segment_last_seq()
        {
            self.log.release(last.next());
        }
    }

    fn dispatch(&mut self) {
        let (now_us, mut requests) = (self.now_us(), Vec::new());
        self.log.dispatch(now_us, &mut requests);
        for mut request in requests {
            let jitter_ns = self.random.below(self.host.jitter_ns + 1);
            self.work(self.host.submit_ns + jitter_ns);
            let token = request.token.0;
            let mut content = Buffer::zeroed(0);
            if let Operation::Write { buffer, .. } = &mut request.operation {
                let zeros = Buffer::zeroed(buffer.len());
                content = mem::replace(buffer, zeros);
            }
            let is_in =
                |record: &mut Record| self.log.batch_of(record.seq) == token & !LOG_TOKEN_BIT;
            let mut records = Vec::new();
            while let Some(record) = self.waiting.pop_front_if(is_in) {
                records.push(record);
            }
            let (submitted_ns, completed_us) = (self.busy_until_ns, None);
            let dispatched_us = now_us;
            self.batches.push_back(Batch {
                token,
                content,
                records,
                dispatched_us,
                submitted_ns,
                completed_us,
            });
            self.submitting.push_back((submitted_ns.div_ceil(1000), request));
        }
    }

    /// Appends the record that arrived first.
    fn append(&mut self) -> Result<(), Problem> {
        let Some(mut record) = self.arrived.pop_front() else { return Ok(()) };
        let payload = record.bytes.saturating_sub(HEADER_BYTES) as usize;
        let number = record.number;
        let fill = |room: &mut [u8]| room.fill(number as u8);
        let (urgency, quota, now_us) = (Urgency::Now, Quota::User, self.now_us());
        match self.log.append(self.stream, payload, fill, urgency, quota, now_us) {
            Ok(seq) => {
                self.work(self.host.append_ns);
                (record.seq, record.appended_us) = (seq, now_us);
                self.waiting.push_back(record);
                self.dispatch();
                Ok(())
            }
            Err(AppendError::Busy | AppendError::Full) => {
                self.arrived.push_front(record);
                self.is_full = true;
                Ok(())
            }
            Err(error) => Err(Problem::Simulation(format!("an append: {error:?}"))),
        }
    }
}

impl System for UpsweepLog {
    type Operation = Append;

    fn now_us(&self) -> u64 {
        self.devices.now_us()
    }

    fn submit(&mut self, number: u64, Append { bytes }: Append) {
        let (arrived_us, seq) = (self.now_us(), Seq::NONE);
        self.arrived.push_back(Record { number, bytes, arrived_us, appended_us: arrived_us, seq });
    }

    fn next_event_us(&self) -> Option<u64> {
        let free_us = (self.busy_until_ns / 1000).max(self.now_us());
        let submission_us = self.submitting.front().map(|(us, _)| *us);
        let work_us = self.has_work().then_some(free_us);
        let deadline_us = self.log.deadline_us().map(|us| us.max(free_us));
        let device_us = self.devices.next_event_us();
        [submission_us, work_us, deadline_us, device_us].into_iter().flatten().min()
    }

    fn advance_to(&mut self, us: u64, finished: &mut Vec<Finished>) -> Result<(), Problem> {
        self.devices.advance_to(us);
        let mut completions = Vec::new();
        self.devices.reap(&mut completions);
        self.completions.extend(completions);
        // Everything that the processor begins within this microsecond.
        while self.busy_until_ns / 1000 <= us {
            if let Some(completion) = self.completions.pop_front() {
                self.complete(completion, finished)?;
            } else if self.has_work() {
                self.append()?;
            } else {
                self.dispatch();
                break;
            }
        }
        while let Some((_, request)) = self.submitting.pop_front_if(|(due_us, _)| *due_us <= us) {
            self.traffic.add(&request.operation);
            self.devices.submit(request);
        }
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }
}

#[cfg(test)]
mod tests {
    use upsweep::layers::device::{LatencyModel, MemoryDevices};

    use super::super::banks;
    use super::super::load::{Load, Seen};
    use super::*;

    const DRIVE: &str = "caviar-black-1tb";
    const QUICK: Host = Host { append_ns: 100, submit_ns: 2000, jitter_ns: 0 };

    /// Appends so many records of so many bytes, with full batches waiting all the time.
    fn run(
        devices: Box<dyn Simulated>,
        layout: Layout,
        host: Host,
        (bytes, records): (u64, u64),
    ) -> (UpsweepLog, Seen) {
        let revolution_us = banks::revolution_us(DRIVE).expect("it is described");
        let warm_up = records / 4;
        let mut system = UpsweepLog::new(devices, layout, host, (warm_up, revolution_us), 1)
            .expect("the log opens");
        let load = Load { callers: 0, warm_up, measured: records };
        let waiting = layout.records_per_batch(bytes) as usize * usize::from(layout.drives);
        let next = || Append { bytes };
        let seen = load.run_while(&mut system, next, |system, _| system.waiting() < waiting);
        (system, seen.expect("every record ends"))
    }

    fn drives(count: u16) -> Box<dyn Simulated> {
        banks::full_drives(DRIVE, count, None, 1).expect("it is described")
    }

    fn layout(drives: u16, batch_kb: u32) -> Layout {
        let (batch_bytes, mode) = (batch_kb << 10, LogMode::Idle);
        Layout { drives, offset: 0, batch_bytes, segment_bytes: 64 << 20, depth: 2, mode }
    }

    /// A device on which every request takes as long, whatever its length.
    fn even(base_us: u64) -> Box<dyn Simulated> {
        let mut devices = MemoryDevices::with_sizes(&[2 << 30], 1);
        devices.set_latency(LatencyModel { base_us, bytes_per_us: 1 << 40, jitter_us: 0 });
        Box::new(devices)
    }

    #[test]
    fn the_stages_add_up_to_the_latency() {
        for count in [1, 3] {
            let (system, seen) = run(drives(count), layout(count, 32), QUICK, (256, 40_000));
            let stages = &system.stages;
            let parts = [stages.aggregation_us(), stages.submission_us(), stages.device_us()];
            let sum = parts.iter().sum::<f64>() + stages.order_us();
            let latency_us = seen.latency_ms * 1e3;
            assert!((sum - latency_us).abs() < 0.01 * latency_us, "{sum} of {latency_us}");
            assert_eq!(stages.order_us() > 0.0, count > 1, "{stages:?}");
            let per_batch = stages.records as f64 / stages.batches as f64;
            assert!((per_batch - 127.0).abs() < 0.5 && stages.late_batches == 0, "{stages:?}");
        }
    }

    #[test]
    fn a_host_that_is_late_by_more_than_a_transfer_loses_revolutions() {
        for (submit_ns, is_late) in [(2000, false), (100_000, true)] {
            let host = Host { submit_ns, ..QUICK };
            let (system, _) = run(drives(1), layout(1, 32), host, (256, 20_000));
            assert_eq!(system.stages.late_percent() > 90.0, is_late, "{:?}", system.stages);
            assert_eq!(system.stages.late_batches == 0, !is_late, "{:?}", system.stages);
        }
        let host = Host { jitter_ns: 100_000, ..QUICK };
        let (system, _) = run(drives(1), layout(1, 32), host, (256, 20_000));
        let late = system.stages.late_percent();
        assert!((10.0..90.0).contains(&late), "{late}");
    }

    #[test]
    fn appending_takes_the_processor() {
        let host = Host { append_ns: 500, submit_ns: 0, jitter_ns: 0 };
        let (_, seen) = run(even(20), layout(1, 32), host, (256, 20_000));
        assert!((seen.per_second - 2e6).abs() < 1e5, "{}", seen.per_second);
        let host = Host { append_ns: 100, ..host };
        let (_, seen) = run(even(1000), layout(1, 32), host, (256, 20_000));
        // Two batches of 127 records in a millisecond.
        assert!((seen.per_second - 254_000.0).abs() < 3000.0, "{}", seen.per_second);
    }

    #[test]
    fn a_ring_that_is_released_as_it_fills_never_refuses_for_long() {
        let layout = Layout { segment_bytes: 1 << 20, ..layout(1, 64) };
        let ring_bytes: u64 = layout.config().regions.iter().map(|region| region.bytes).sum();
        let (system, _) = run(even(1000), layout, QUICK, (32 << 10, ring_bytes >> 14));
        let written = system.stages.batches * u64::from(layout.batch_bytes);
        assert!(written > ring_bytes && system.log.kept_from() > Seq::FIRST, "{written}");
    }
}
