//! The engine's core: a synchronous state machine without threads, clocks, files or randomness.
//!
//! Events go in (a call, a completion, a finished job, the time), [`Actions`] come out (submit this
//! request, run this job, answer this view, wake who waits for room). The core is the conductor: it
//! owns the parts, hands each event to the part that it concerns, and moves all of them on. What a
//! part knows is in the part; what several of them have to agree on is in the [base](Base) that all
//! stand on. The order of the parts, from the lowest to the highest, is in `docs/architecture.md`.
//!
//! Steps of an update: [`Core::modify`] appends it to the log and to the queue of its block;
//! [`Core::pump`] moves batches, runs and the checkpoint on; [`Core::complete`] takes what devices
//! have done; [`Core::publish_durable`] puts into effect, in log order, what has become durable:
//! only then does the directory change (see `index/publish.rs`).
//!
//! Invariants: what is published is durable; what is free is referenced by nothing durable; a
//! pinned block is neither split nor moved by anyone but its run.

mod calls;
mod figures;
mod inspect;
mod levels;
mod spaces;

pub use spaces::{NewSnapshot, SpaceSize};

use super::accept::{self, Accept, Admission};
use super::base::Base;
use super::checkpoint::Checkpointer;
use super::flush::Flushing;
use super::format::record_format::LoggedUpdate;
use super::growth::Growth;
use super::index::Release;
use super::io::{InFlight, IoKind};
use super::jobs::{Job, JobOutput};
use super::journal::Publish;
use super::log_growth::LogGrowth;
use super::measure::Timed;
use super::pipeline::Pipeline;
use super::policy::Shortage;
use super::reclaim::Reclaimer;
use super::spiller::Spiller;
use super::sweep::Sweep;
use super::view::{View, ViewId, Views};
use crate::broken::{self, Fault};
use crate::device::{Class, Completion, Request};
use crate::error::{ClosedError, Error, RequestError, RetryError};
use crate::log::{AppendError, Urgency};

/// What the caller of the core has to do.
#[derive(Default)]
pub struct Actions {
    /// Requests to submit.
    pub requests: Vec<Request>,
    /// Jobs to run, on any thread; hand each result to [`Core::job_done`].
    pub jobs: Vec<Job>,
    /// Views that were pending and are answered now.
    pub views: Vec<(ViewId, Result<View, Error>)>,
    /// Whoever was told to [wait](Accept::Wait) is to offer its updates again: there may be room,
    /// or a reason to refuse them for good.
    pub room: bool,
}

/// The state machine of one open store.
pub struct Core {
    pub(super) base: Base,
    pub(super) admission: Admission,
    pub(super) views: Views,
    pub(super) growth: Growth,
    pub(super) log_growth: LogGrowth,
    pub(super) reclaimer: Reclaimer,
    pub(super) checkpointer: Checkpointer,
    pub(super) pipeline: Pipeline,
    pub(super) spiller: Spiller,
    pub(super) sweep: Sweep,
    /// When levels are written next.
    levels_due_us: u64,
}

impl Core {
    /// A core in which nothing is on its way.
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
    /// A request error with nothing accepted; [`RetryError::Full`] when the data devices have no
    /// room for what may grow, and neither growth nor a sweep makes any;
    /// [`RequestError::UnknownModifier`] in a store that is open for upkeep;
    /// [`RetryError::Memory`] when the directory has outgrown the budget; the closing reason after
    /// a failed write.
    pub fn modify(
        &mut self,
        updates: &[LoggedUpdate<'_>],
        urgency: Urgency,
        now_us: u64,
    ) -> Result<Accept, Error> {
        let Self { base, admission, growth, sweep, .. } = self;
        base.gate.check_open()?;
        base.check_upkeep(updates)?;
        let offer = accept::check(&base.index, updates)?;
        if let Some(shortage) = admission.shortage(base, growth, updates, &offer)? {
            return if self.is_out_of_room() {
                Err(self.full_error())
            } else {
                self.wait(shortage)
            };
        }
        match admission.append(base, updates, &offer, urgency, now_us) {
            Ok(seq) => {
                updates.iter().for_each(|update| sweep.note_change(update.space));
                Ok(Accept::Accepted(seq))
            }
            Err(AppendError::Busy) => {
                base.refuse_for_pipeline();
                Ok(Accept::Wait)
            }
            Err(AppendError::Full) => {
                let refused = self.wait(Shortage::Log);
                if self.base.index.is_full() { Err(self.full_error()) } else { refused }
            }
            Err(AppendError::TooLong { .. }) => {
                let (bytes, limit) = (offer.bytes, accept::record_bytes_max(base));
                Err(RequestError::BatchTooLong { bytes, limit }.into())
            }
            Err(AppendError::Failed) => {
                Err(base.gate.closed().cloned().map_or(RetryError::Busy.into(), Error::from))
            }
        }
    }

    /// Has the caller wait for room, unless that may be where nobody can make any.
    fn wait(&mut self, shortage: Shortage) -> Result<Accept, Error> {
        if let Some(missing) = self.base.missing_modifier() {
            return Err(missing);
        }
        self.base.refuse(shortage);
        Ok(Accept::Wait)
    }

    /// Looks up where updates go, so that their acceptance finds it in the processor's cache: the
    /// look-ups of many keys overlap, where those of one acceptance after another wait for memory
    /// one by one.
    pub fn anticipate<'a>(&mut self, updates: impl Iterator<Item = &'a LoggedUpdate<'a>>) {
        self.base.index.anticipate(updates);
    }

    /// Moves everything on that can move at `now_us`, and says what to do. Call it after every
    /// other call, and at [`Core::deadline_us`]. Cost: bounded by the runs in flight.
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
        }
        self.views.pump(&mut self.base, &mut actions.views);
        actions.requests.append(self.base.io.outgoing());
        actions.room |= self.base.waiters.take_news();
        debug_assert!(!self.rests_while_somebody_waits(), "nothing makes the room that is wanted");
    }

    /// Moves the spills on, and starts another one if it is due.
    fn pump_spills(&mut self, jobs: &mut Vec<Job>) {
        if self.spiller.pump(&mut self.base, &self.growth, jobs) {
            let figures = self.figures();
            self.spiller.start_if_due(&mut self.base, &self.growth, figures, jobs);
        }
    }

    /// Has the sweep start runs, and moves those on that are on their way.
    fn pump_sweep(&mut self, jobs: &mut Vec<Job>) {
        self.sweep.look_at_suspects(&mut self.base);
        if !self.base.gate.is_paused() {
            let mut figures = self.figures();
            figures.log_at_start = self.sweep.note_log(&figures);
            self.admission.refuse_from(figures.log_percent_refused());
            let only_a_cycle_helps = figures.is_cycle_for_log() && !self.base.index.is_full();
            let is_left_to_callers = only_a_cycle_helps && self.base.is_log_short_of_changes();
            self.base.journal.leave_to_callers(is_left_to_callers);
            self.sweep.pump(&mut self.base, &mut self.pipeline, &self.spiller, &figures);
        }
        let in_spills = self.spiller.growth_bytes();
        self.pipeline.pump(&mut self.base, &mut self.growth, in_spills, jobs);
        if self.pipeline.take_no_room() {
            self.sweep.rest(self.base.now_us);
        }
    }

    /// Begins a checkpoint or writes a superblock, if one is due, and moves a checkpoint on.
    fn pump_checkpoint(&mut self) {
        if self.checkpointer.is_idle() && !self.checkpointer.attest(&mut self.base) {
            let carries = self.pipeline.waits_for_log() || self.spiller.waits_for_log();
            if carries {
                self.carry_changes();
            }
            let figures = self.figures();
            let is_due = || self.checkpointer.is_due(&self.base, &figures);
            if carries || !self.base.gate.is_paused() && is_due() {
                let replay_from = self.checkpointer.superblock().replay_from;
                self.reclaimer.forget_empty_blocks(&mut self.base, replay_from);
                self.checkpointer.begin(&mut self.base);
            } else if !self.base.gate.is_paused() {
                self.checkpointer.move_frontier(&mut self.base, &figures);
            }
        }
        self.checkpointer.pump(&mut self.base, &mut self.growth);
    }

    /// Takes one completion of a device.
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
            IoKind::CheckpointWrite => checkpointer.write_done(base, &completion),
            IoKind::Superblock => checkpointer.superblock_done(base, &completion),
            IoKind::FileSpace => growth.file_space_done(base, &completion),
            IoKind::LogGrowth => self.log_growth.step_done(base, &completion, offset),
        }
    }

    /// One device has flushed: who waited for that goes on when all have.
    fn flush_done(&mut self, completion: &Completion) {
        let covered = self.base.flushes.device_done(completion.result.is_ok());
        if !covered.is_empty() {
            self.base.measured.note_ended(Timed::Flush, self.base.flushes.began_us());
        }
        for who in covered {
            match who {
                Flushing::Run(run) => self.pipeline.flushed(&mut self.base, run),
                Flushing::Spill(spill) => self.spiller.flushed(&mut self.base, spill),
                Flushing::Checkpoint => self.checkpointer.flushed(),
            }
        }
    }

    /// Takes a finished job.
    pub fn job_done(&mut self, output: JobOutput) {
        match output {
            JobOutput::Run(output) => self.pipeline.applied(output),
            JobOutput::Spill(output) => self.spiller.encoded(output),
        }
    }

    /// Puts what has become durable into effect, in log order. What the running checkpoint still
    /// has to write of what changes is written first, so this waits while many such writes are
    /// under way.
    fn publish_durable(&mut self) {
        while !self.checkpointer.is_behind()
            && let Some((seq, publish)) = self.base.journal.next_durable()
        {
            self.publish(seq, publish);
        }
        self.base.journal.pass_updates();
    }

    fn publish(&mut self, seq: u64, publish: Publish) {
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

    /// Publishes the runs and spills for whose records the log has no room. The checkpoint that
    /// begins now makes them durable; until it is complete no other is logged, because it might
    /// build on one of these, and the space they leave behind is not reused. So the sweep can
    /// always go on and release log space, however full the log is.
    fn carry_changes(&mut self) {
        for run in self.pipeline.waiting_for_log() {
            // Blocks that come into being here are born at a sequence that no record has.
            let birth = 1 << 63 | self.checkpointer.superblock().generation;
            self.pipeline.publish(&mut self.base, run, birth, Release::AfterCheckpoint);
        }
        for spill in self.spiller.waiting_for_log() {
            // Behind all that the checkpoint has, and before all that replay comes to.
            let seq = self.base.journal.published();
            self.base.metrics.spills_carried_total.add(1);
            self.spiller.publish(&mut self.base, spill, seq, Release::AfterCheckpoint);
        }
        self.base.journal.run_ahead();
    }

    /// When [`Core::pump`] wants to be called even if nothing happens, in microseconds.
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        let Self { base, sweep, .. } = self;
        let is_alone = self.pipeline.is_empty() && self.spiller.is_empty();
        let is_idle = !self.is_sweep_active() && base.journal.is_published();
        // A cycle may have passed by what was pinned, or somebody may wait for another one.
        let is_needed = || sweep.is_needed(base) || self.figures().is_sweep_waited_for();
        let is_due =
            self.checkpointer.is_ready(base) || is_idle && !base.gate.is_paused() && is_needed();
        let again = is_due.then_some(0);
        let spills = self.spiller.goes_on().then_some(0);
        let of_sweep = spills.or_else(|| sweep.deadline_us(is_alone));
        let of_sweep = of_sweep.filter(|_| !base.gate.is_closed());
        [base.journal.log().deadline_us(), of_sweep, again].into_iter().flatten().min()
    }

    fn is_sweep_active(&self) -> bool {
        !self.pipeline.is_empty() || !self.spiller.is_empty() || self.sweep.is_active(&self.base)
    }

    /// Whether anything is in flight or about to be: `false` means that, without new calls, nothing
    /// will happen any more.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.is_writing()
            || self.is_sweep_active()
            || self.sweep.is_needed(&self.base)
            || self.checkpointer.is_active()
            || self.base.journal.is_ahead()
            || !self.base.journal.is_published()
    }

    /// Whether any record or checkpoint is on its way to a device.
    pub(super) fn is_writing(&self) -> bool {
        !self.base.journal.is_idle() || !self.base.io.is_idle()
    }

    /// Whether no request is in flight and no run on its way.
    pub(super) fn is_quiet(&self) -> bool {
        self.pipeline.is_empty() && self.spiller.is_empty() && !self.is_writing()
    }

    /// Whether somebody waits for room and nothing is on its way, nor will be: this must never be.
    fn rests_while_somebody_waits(&self) -> bool {
        let is_at_rest = || !self.is_active() && self.deadline_us().is_none();
        let Base { gate, waiters, .. } = &self.base;
        !gate.is_closed() && !gate.is_paused() && waiters.shortage().is_some() && is_at_rest()
    }

    /// Refuses updates from now on, and begins nothing else. What was accepted becomes durable, and
    /// then a superblock says so: see [`Core::is_attested`].
    pub fn begin_close(&mut self) {
        self.base.gate.begin_close();
        self.base.waiters.tell();
    }

    /// Refuses updates from now on, for this reason (the first one counts).
    pub fn close(&mut self, reason: ClosedError) {
        self.base.close(reason);
    }
}
