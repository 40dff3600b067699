//! Work for worker threads. A job owns its input, runs on any thread, and is deterministic.

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

/// The result of a [`Job`]; goes back to the core.
pub enum JobOutput {
    /// Of a run.
    Run(RunOutput),
    /// Of a spill.
    Spill(SpillOutput),
}

impl Job {
    /// Bytes that it works on, for models of its time.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Run(job) => job.bytes(),
            Self::Spill(job) => job.bytes(),
        }
    }

    /// Does the work. Pure CPU work: milliseconds for a run of 32 blocks, less for a spill. Between
    /// its parts, none of more than one block, it calls `give_way`, so that a worker can yield to
    /// threads that others wait for (docs/decisions/0027).
    #[must_use]
    pub fn run(self, give_way: fn()) -> JobOutput {
        match self {
            Self::Run(job) => JobOutput::Run(job.work_off(give_way)),
            Self::Spill(job) => JobOutput::Spill(job.work_off(give_way)),
        }
    }
}
