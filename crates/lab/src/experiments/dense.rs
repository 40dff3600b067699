//! What the experiments with dense logging share: the testbed, and one measurement.

use upsweep::layers::device::drive::Scheduler;
use upsweep::layers::log::LogMode;

use crate::experiment::Scale;
use crate::numbers::short;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::systems::banks::{self, Ordering};
use crate::systems::load::{Load, Seen};
use crate::systems::log::{Append, Host, Layout, Stages, UpsweepLog};

pub(super) const DRIVE: &str = "caviar-black-1tb";
/// Processor time to append a record: a copy of it and a checksum.
pub(super) const APPEND_NS: u64 = 100;
/// Processor time from a completion to the write that follows it, beyond the interrupt.
pub(super) const SUBMIT_NS: u64 = 2000;
/// Length of a segment of the log, about.
pub(super) const SEGMENT_BYTES: u32 = 256 << 20;
/// Batches before what is measured begins.
const WARM_UP_BATCHES: u64 = 64;

/// Records before what is measured begins, while the log finds the length of its batches.
const SEARCH_RECORDS: u64 = 1_000_000;

/// What all of them do.
pub(super) const METHOD: &str = "\
    Upsweep's log, the code of the product, on simulated WD Caviar Blacks with nothing else on \
    them, in pages of 4 KiB. Records keep arriving: whenever fewer wait to be dispatched than \
    fill a batch for each drive, the next one arrives. So a full batch waits whenever a write \
    completes, and latency does not have a queue of any other length in it. The ring on a drive \
    has 18 segments of 256 MiB; the older half is released as it fills. The host has one \
    processor: 100 ns to append a record, and 2 us from when it knows of a completion, 100 us of \
    interrupt after it, until the next write is at the drive. A record of 256 bytes takes 256 \
    bytes of a batch, as in the paper, where 128 of them fill 32 KB: 20 of them are the log's \
    header.";

/// One case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dense {
    /// Drives.
    pub(super) drives: u16,
    /// Where the log begins on them.
    pub(super) offset_gb: u64,
    /// Capacity of a batch.
    pub(super) batch_kb: u32,
    /// With a train, a batch is no longer than the log finds that it should be.
    pub(super) mode: LogMode,
    /// Writes in flight on each drive, and commands that a drive holds.
    pub(super) depth: u8,
    /// A record, with the header of the log.
    pub(super) record_bytes: u64,
    /// How much longer than usual a submission may take.
    pub(super) jitter_us: u64,
}

/// The case that the others vary.
pub(super) const USUAL: Dense = Dense {
    drives: 1,
    offset_gb: 0,
    batch_kb: 32,
    mode: LogMode::Idle,
    depth: 2,
    record_bytes: 256,
    jitter_us: 0,
};

/// What was measured.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// By the callers.
    pub(super) seen: Seen,
    /// In the log and below.
    pub(super) stages: Stages,
    /// With a train, the length of a batch at the end.
    pub(super) batch_kb: f64,
}

impl Measured {
    /// Mean latency of a record.
    pub(super) fn latency_us(&self) -> f64 {
        self.seen.latency_ms * 1e3
    }

    /// Payload in a second.
    pub(super) fn payload_mb(&self) -> f64 {
        let per_record = self.stages.payload_bytes as f64 / self.stages.records as f64;
        self.seen.per_second * per_record / 1e6
    }
}

impl Dense {
    /// Measures so many batches on each drive.
    pub(super) fn measure(&self, batches: u64, seed: u64) -> Result<Measured, Problem> {
        let Self { drives, batch_kb, mode, depth, record_bytes, .. } = *self;
        let ordering = Ordering { depth: usize::from(depth), scheduler: Scheduler::Sptf };
        let devices = banks::full_drives(DRIVE, drives, Some(ordering), seed)?;
        let offset = self.offset_gb * 1_000_000_000;
        let (batch_bytes, segment_bytes) = (batch_kb << 10, SEGMENT_BYTES);
        let layout = Layout { drives, offset, batch_bytes, segment_bytes, depth, mode };
        let (append_ns, submit_ns, jitter_ns) = (APPEND_NS, SUBMIT_NS, self.jitter_us * 1000);
        let host = Host { append_ns, submit_ns, jitter_ns };
        let per_batch = layout.records_per_batch(record_bytes);
        let waiting = (u64::from(drives) * per_batch) as usize;
        let warm_up = match mode {
            LogMode::Full => SEARCH_RECORDS,
            _ => WARM_UP_BATCHES * u64::from(drives) * per_batch,
        };
        let load =
            Load { callers: waiting, warm_up, measured: batches * u64::from(drives) * per_batch };
        let measured_from = (warm_up, banks::revolution_us(DRIVE)?);
        let mut system = UpsweepLog::new(devices, layout, host, measured_from, seed)?;
        let next = || Append { bytes: record_bytes };
        let is_short = |system: &UpsweepLog| match system.train_stride_bytes() {
            0 => system.waiting() < waiting,
            bytes => system.waiting() < drives as usize * (bytes / record_bytes) as usize,
        };
        let seen = load.run_while(&mut system, next, |system, _| is_short(system))?;
        let batch_kb = system.train_stride_bytes() as f64 / 1024.0;
        Ok(Measured { seen, stages: system.stages, batch_kb })
    }
}

/// Batches that are measured in each case.
pub(super) fn batches(scale: &Scale) -> u64 {
    scale.pick(1000, 40_000)
}

/// What all of them say about the scale.
pub(super) const SCALING: &str = "\
    A quick run measures 1,000 batches on each drive in each case, a full run 40,000: about 5 \
    million records of 256 bytes, where the paper has 10 million.";

/// An outcome that describes the testbed.
pub(super) fn outcome(scale: &Scale) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.setup("device", "WD Caviar Black 1 TB, all of the drive's behaviour simulated");
    outcome.setup("batches measured on each drive", short(batches(scale) as f64));
    outcome.setup("processor time to append a record", format!("{APPEND_NS} ns"));
    outcome.setup("processor time to submit a write", format!("{SUBMIT_NS} ns"));
    outcome.setup("command processing of the drive", "100 us");
    outcome.setup("interrupt at a completion", "100 us");
    outcome
}

/// About the drive, where it matters.
pub(super) const ESTIMATED: &str = "\
    The rate of the outer zone (110 MB/s with all switches of tracks) and the 100 us that the \
    drive needs to process a command are estimates: neither the maker nor the paper states them.";
