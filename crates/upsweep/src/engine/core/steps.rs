//! The steps of [`Core::pump`] and [`Core::complete`] that involve several parts.

use super::Core;
use crate::device::Completion;
use crate::engine::flush::Flushing;
use crate::engine::index::Release;
use crate::engine::jobs::Job;
use crate::engine::measure::Timed;
use crate::log::Seq;

impl Core {
    /// Advances the spills, and starts another one if it is due.
    pub(super) fn pump_spills(&mut self, jobs: &mut Vec<Job>) {
        let (passed, opened) = (self.sweep.passed(), self.sweep.spilled_percent_opened());
        self.spiller.note_sweep(&self.base, passed, opened);
        if self.spiller.pump(&mut self.base, &self.growth, jobs) {
            let figures = self.figures();
            self.spiller.start_if_due(&mut self.base, &self.growth, figures, jobs);
        }
    }

    /// Lets the sweep start runs, and advances those in progress.
    pub(super) fn pump_sweep(&mut self, jobs: &mut Vec<Job>) {
        self.sweep.look_at_suspects(&mut self.base);
        if !self.base.gate.is_paused() {
            let mut figures = self.figures();
            figures.log_at_start = self.sweep.note_log(&figures);
            self.admission.refuse_from(figures.log_percent_refused());
            let only_a_cycle_helps = figures.is_cycle_for_log() && !self.base.index.is_full();
            let is_left_to_callers = only_a_cycle_helps && self.base.is_log_short_of_changes();
            self.base.journal.leave_to_callers(is_left_to_callers);
            let reads = self.views.queries().and(self.scans.reads());
            self.sweep.give_way_to(&self.base, reads.and(self.extent_requests));
            self.sweep.pump(&mut self.base, &mut self.pipeline, &self.spiller, &figures);
        }
        let in_spills = self.spiller.growth_bytes();
        self.pipeline.pump(&mut self.base, &mut self.growth, in_spills, jobs);
        if self.pipeline.take_no_room() {
            self.sweep.rest(self.base.now_us);
        }
    }

    /// Notifies callers that the fill of the log has refused, if it would refuse them no more.
    pub(super) fn tell_of_open_log(&mut self) {
        if self.base.waiters.wait_for_log_fill()
            && !self.admission.refuses_for_log(self.base.log_gauge())
        {
            self.base.waiters.tell();
        }
    }

    /// Begins a checkpoint or writes a superblock, if one is due, and advances a checkpoint.
    pub(super) fn pump_checkpoint(&mut self) {
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

    /// One device has flushed: the waiters for that flush continue when all have.
    pub(super) fn flush_done(&mut self, completion: &Completion) {
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

    /// Publishes the runs and spills for whose records the log has no room. The checkpoint that
    /// begins now makes them durable; until it is complete no other is logged, because it might
    /// build on one of these, and the space they leave behind is not reused. So the sweep can
    /// always proceed and release log space, however full the log is.
    pub(super) fn carry_changes(&mut self) {
        for run in self.pipeline.waiting_for_log() {
            // Blocks created here are born at a sequence that no record has.
            let birth = Seq::new(1 << 63 | self.checkpointer.superblock().generation);
            self.pipeline.publish(&mut self.base, run, birth, Release::AfterCheckpoint);
        }
        for spill in self.spiller.waiting_for_log() {
            // After everything in the checkpoint, and before everything that replay reaches.
            let seq = self.base.journal.published();
            self.base.metrics.spills_carried_total.add(1);
            self.spiller.publish(&mut self.base, spill, seq, Release::AfterCheckpoint);
        }
        self.base.journal.run_ahead();
    }
}
