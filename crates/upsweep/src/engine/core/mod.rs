//! The engine's core: a synchronous state machine without threads, clocks, files or randomness.
//!
//! Events go in (a call, a completion, a finished job, the time), [`Actions`] come out (submit this
//! request, run this job, answer this view, wake callers that wait for room). The core owns the
//! parts, passes each event to the part that it concerns, and advances all of them. The state of a
//! part is in the part; shared state is in the [base](Base) that all parts use. The order of the
//! parts, from the lowest to the highest, is in `docs/architecture.md`.
//!
//! Steps of an update: [`Core::modify`] appends it to the log and to the queue of its block;
//! [`Core::pump`] advances batches, runs and the checkpoint; [`Core::complete`] handles completions
//! of devices; [`Core::publish_durable`] puts into effect, in log order, what has become durable:
//! only then does the directory change (see `index/publish.rs`).
//!
//! Invariants: what is published is durable; what is free is referenced by nothing durable; a
//! pinned block is split or moved only by its run.

mod calls;
mod extents;
mod figures;
mod inspect;
mod levels;
mod refusals;
mod rest;
mod scans;
mod spaces;
mod steps;

pub use spaces::{NewSnapshot, SpaceSize};

use super::accept::{self, Accept, Admission};
use super::base::Base;
use super::checkpoint::Checkpointer;
use super::foreground::ForegroundRequests;
use super::format::record_format::LoggedUpdate;
use super::growth::Growth;
use super::index::Release;
use super::io::{InFlight, IoKind};
use super::jobs::{Job, JobOutput};
use super::journal::Publish;
use super::log_growth::LogGrowth;
use super::pipeline::Pipeline;
use super::reclaim::Reclaimer;
use super::spiller::Spiller;
use super::sweep::Sweep;
use super::view::{ScanId, Scans, View, ViewId, Views};
use crate::broken::{self, Fault};
use crate::device::{Class, Completion, Request};
use crate::error::Error;
use crate::log::{Seq, Urgency};

/// What the caller of the core has to do.
#[derive(Default)]
pub struct Actions {
    /// Requests to submit.
    pub requests: Vec<Request>,
    /// Jobs to run, on any thread; pass each result to [`Core::job_done`].
    pub jobs: Vec<Job>,
    /// Pending views that are answered now.
    pub views: Vec<(ViewId, Result<View, Error>)>,
    /// Scans for which something that they have requested has arrived, or has failed.
    pub scans: Vec<ScanId>,
    /// Callers that were told to [wait](Accept::Wait) should retry: there may be room, or a reason
    /// for permanent refusal.
    pub room: bool,
}

/// The state machine of one open store.
pub struct Core {
    pub(super) base: Base,
    pub(super) admission: Admission,
    pub(super) views: Views,
    pub(super) scans: Scans,
    /// Requests of callers to reserved extents.
    pub(super) extent_requests: ForegroundRequests,
    pub(super) growth: Growth,
    pub(super) log_growth: LogGrowth,
    pub(super) reclaimer: Reclaimer,
    pub(super) checkpointer: Checkpointer,
    pub(super) pipeline: Pipeline,
    pub(super) spiller: Spiller,
    pub(super) sweep: Sweep,
    /// When levels are next written.
    levels_due_us: u64,
}

impl Core {
    /// A core with nothing in progress.
    pub(super) fn new(
        base: Base,
        checkpointer: Checkpointer,
        growth: Growth,
        log_growth: LogGrowth,
    ) -> Self {
        Self {
            base,
            admission: Admission::new(),
            views: Views::default(),
            scans: Scans::default(),
            extent_requests: ForegroundRequests::default(),
            growth,
            log_growth,
            reclaimer: Reclaimer::default(),
            checkpointer,
            pipeline: Pipeline::default(),
            spiller: Spiller::default(),
            sweep: Sweep::default(),
            levels_due_us: 0,
        }
    }

    /// Accepts the updates of one record: all take effect, or none. They are visible to queries at
    /// once. Cost: no I/O; a search of the directory and two copies per update.
    ///
    /// # Errors
    /// A request error with nothing accepted; [`Full`](crate::RetryError::Full) when the data
    /// devices have no room for updates that may grow blocks, and neither growth nor a sweep makes
    /// any; [`UnknownModifier`](crate::RequestError::UnknownModifier) in a store that is open for
    /// upkeep; [`Memory`](crate::RetryError::Memory) when the directory has outgrown the budget;
    /// the closing reason after a failed write.
    pub fn modify(
        &mut self,
        updates: &[LoggedUpdate<'_>],
        urgency: Urgency,
        now_us: u64,
    ) -> Result<Accept, Error> {
        let Self { base, admission, growth, .. } = self;
        base.gate.check_open()?;
        base.check_upkeep(updates)?;
        let offer = accept::check(&base.index, updates)?;
        if let Some(shortage) = admission.shortage(base, growth, updates, &offer)? {
            return self.refuse_for(shortage);
        }
        match admission.append(base, updates, &offer, urgency, now_us) {
            Ok(seq) => {
                updates.iter().for_each(|update| self.sweep.note_change(update.space));
                Ok(Accept::Accepted(seq))
            }
            Err(error) => self.refuse_after(&error, &offer),
        }
    }

    /// Advances everything that can proceed at `now_us`, and returns what to do. Call it after
    /// every other call, and at [`Core::deadline_us`]. Cost: bounded by the runs in flight.
    pub fn pump(&mut self, now_us: u64, actions: &mut Actions) {
        self.base.now_us = self.base.now_us.max(now_us);
        self.measure();
        self.base.settle_overdraft();
        if !self.base.gate.is_closed() {
            self.weigh_costs();
            self.base.find_frontier();
            self.base.dispatch_log();
            self.publish_durable();
            self.reclaimer.pump(&mut self.base);
            self.pump_spills(&mut actions.jobs);
            self.pump_sweep(&mut actions.jobs);
            self.pump_checkpoint();
            self.publish_durable();
            self.growth.pump(&mut self.base);
            self.log_growth.pump(&mut self.base);
            let Base { flushes, config, now_us, io, .. } = &mut self.base;
            flushes.pump(config.data_devices, *now_us, io);
            self.base.dispatch_log();
            self.tell_of_open_log();
        }
        self.views.pump(&mut self.base, &mut actions.views);
        self.scans.pump(&mut self.base, self.views.queries());
        self.base.fit_cache();
        actions.scans.append(&mut self.scans.take_news());
        actions.requests.append(self.base.io.outgoing());
        actions.room |= self.base.waiters.take_news();
        debug_assert!(
            !self.rests_while_somebody_waits(),
            "nothing makes the room that a caller waits for"
        );
    }

    /// Handles one completion of a device.
    pub fn complete(&mut self, completion: Completion) {
        let Self { base, growth, checkpointer, pipeline, .. } = self;
        if completion.class == Class::Log {
            base.complete_log(completion);
            return self.publish_durable();
        }
        let InFlight { kind, offset } = base.io.completed(completion.token);
        if kind.must_succeed() {
            base.close_if_failed(&completion, offset);
        }
        match kind {
            IoKind::RunRead(run) => pipeline.read_done(base, run, completion),
            IoKind::BlockRead(run, block) => pipeline.block_read_done(base, run, block, completion),
            IoKind::SpillSegmentRead => pipeline.spill_segment_read_done(base, completion),
            IoKind::ValueRead(run, value) => pipeline.value_read_done(base, run, value, completion),
            IoKind::RunWrite(run) => pipeline.write_done(base, run, &completion),
            IoKind::SpillWrite(spill) => self.spiller.write_done(base, spill, &completion),
            IoKind::Flush => self.flush_done(&completion),
            IoKind::View => self.views.read_done(base, completion),
            IoKind::ScanRead => self.scans.read_done(base, completion),
            IoKind::CheckpointWrite => checkpointer.write_done(base, &completion),
            IoKind::Superblock => checkpointer.superblock_done(base, &completion),
            IoKind::FileSpace => growth.file_space_done(base, &completion),
            IoKind::LogGrowth => self.log_growth.step_done(base, &completion, offset),
        }
    }

    /// Handles a finished job.
    pub fn job_done(&mut self, output: JobOutput) {
        match output {
            JobOutput::Run(output) => self.pipeline.applied(output),
            JobOutput::Spill(output) => self.spiller.encoded(output),
        }
    }

    /// Puts what has become durable into effect, in log order. What the running checkpoint has yet
    /// to write of the changed parts is written first, so this waits while many such writes are
    /// under way.
    fn publish_durable(&mut self) {
        while !self.checkpointer.is_behind()
            && let Some((seq, publish)) = self.base.journal.next_durable()
        {
            self.publish(seq, publish);
        }
        self.base.journal.pass_updates();
    }

    fn publish(&mut self, seq: Seq, publish: Publish) {
        match publish {
            Publish::Run(run) => self.pipeline.publish(&mut self.base, run, seq, Release::Now),
            Publish::Spill(spill) => self.spiller.publish(&mut self.base, spill, seq, Release::Now),
            Publish::Event(event) => {
                self.reclaimer.note(&event);
                if event.makes_room() && !broken::is(Fault::LostWake) {
                    self.base.waiters.tell();
                }
                self.base.index.apply_event(seq, event, Release::Now);
            }
            Publish::Nothing => {}
        }
    }
}
