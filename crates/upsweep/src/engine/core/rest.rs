//! Whether the core is at rest, when it has to be pumped again, and how it is closed.

use super::Core;
use crate::engine::base::Base;
use crate::error::ClosedError;

impl Core {
    /// When [`Core::pump`] wants to be called even if nothing happens, in microseconds.
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        let Self { base, sweep, .. } = self;
        let is_alone = self.pipeline.is_empty() && self.spiller.is_empty();
        let is_idle = !self.is_sweep_active() && base.journal.is_published();
        // A cycle may have skipped pinned blocks, or a caller may wait for another cycle.
        let is_needed = || sweep.is_needed(base) || self.figures().is_sweep_waited_for();
        let is_due =
            self.checkpointer.is_ready(base) || is_idle && !base.gate.is_paused() && is_needed();
        let again = is_due.then_some(0);
        let spills = self.spiller.goes_on().then_some(0);
        let of_sweep = spills.or_else(|| sweep.deadline_us(base, is_alone));
        let of_sweep = of_sweep.filter(|_| !base.gate.is_closed());
        let of_scans = self.scans.deadline_us();
        [base.journal.log().deadline_us(), of_sweep, of_scans, again].into_iter().flatten().min()
    }

    fn is_sweep_active(&self) -> bool {
        !self.pipeline.is_empty() || !self.spiller.is_empty() || self.sweep.is_active(&self.base)
    }

    /// Whether anything is in flight or about to be: `false` means that nothing more will happen
    /// without new calls, except for the train of the log.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.is_writing()
            || self.is_sweep_active()
            || self.sweep.is_needed(&self.base)
            || self.checkpointer.is_active()
            || self.base.journal.is_ahead()
            || !self.base.journal.is_published()
    }

    /// The latest time that it knows, in microseconds; after an open, that at which recovery ended.
    /// An earlier time in a later call counts as this one, so begin with it.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.base.now_us
    }

    /// Whether any record or checkpoint is being written.
    pub(in crate::engine) fn is_writing(&self) -> bool {
        !self.base.journal.is_idle() || !self.base.io.is_idle()
    }

    /// Whether no request is in flight and no run in progress.
    pub(in crate::engine) fn is_quiet(&self) -> bool {
        self.pipeline.is_empty() && self.spiller.is_empty() && !self.is_writing()
    }

    /// Whether a caller waits for room while nothing is in progress, nor will be: must never be
    /// true.
    pub(super) fn rests_while_somebody_waits(&self) -> bool {
        let is_at_rest = || !self.is_active() && self.deadline_us().is_none();
        let Base { gate, waiters, .. } = &self.base;
        !gate.is_closed() && !gate.is_paused() && waiters.shortage().is_some() && is_at_rest()
    }

    /// Stops the train of the log until the next open, so that its devices come to rest when
    /// nothing is written: see [`LogMode::Full`](crate::log::LogMode::Full).
    pub fn stop_train(&mut self) {
        self.base.journal.log_mut().stop_train();
    }

    /// Refuses updates from now on, and starts no other work. What was accepted becomes durable,
    /// and then a superblock records this: see [`Core::is_attested`].
    pub fn begin_close(&mut self) {
        self.stop_train();
        self.base.gate.begin_close();
        self.base.waiters.tell();
    }

    /// Refuses updates from now on, for this reason (the first one counts).
    pub fn close(&mut self, reason: ClosedError) {
        self.base.close(reason);
    }
}
