//! Work for worker threads. A job owns all it needs, runs on any thread, and is deterministic.

mod run_job;
mod spill_job;

pub(super) use run_job::{
    JobBlock, JobDone, JobResult, JobSpillSegments, NewBlock, Quarantined, RunJob, RunOutput,
};
pub(super) use spill_job::{Encoded, NewSpillSegment, SpillJob, SpillOutput};

/// Work for a worker thread: [`Job::run`] does it.
pub enum Job {
    /// Updates are applied to the blocks of a run.
    Run(RunJob),
    /// The spill segments of a spill are encoded.
    Spill(SpillJob),
}

/// What came of a [`Job`]; goes back to the core.
pub enum JobOutput {
    /// Of a run.
    Run(RunOutput),
    /// Of a spill.
    Spill(SpillOutput),
}

impl Job {
    /// Bytes that it works on, for those who model its time.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Run(job) => job.bytes(),
            Self::Spill(job) => job.bytes(),
        }
    }

    /// Does the work. Pure CPU work: milliseconds for a run of 32 blocks, less for a spill. Between
    /// its parts, none of more than one block, it calls `give_way`, so that a worker can let
    /// threads run that somebody waits for (docs/decisions/0027).
    #[must_use]
    pub fn run(self, give_way: fn()) -> JobOutput {
        match self {
            Self::Run(job) => JobOutput::Run(job.work_off(give_way)),
            Self::Spill(job) => JobOutput::Spill(job.work_off(give_way)),
        }
    }
}
