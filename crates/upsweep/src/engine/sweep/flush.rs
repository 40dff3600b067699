//! Flushes of the data devices: one serves all runs, spills and checkpoint writes that wait for it.

use super::Flushing;
use super::run::Phase;
use crate::device::{Completion, DeviceId, Operation};
use crate::engine::core::{Actions, Core, IoKind};
use crate::engine::measure::Timed;

impl Core {
    /// Starts a flush for everyone who waits, unless one is in flight.
    pub(in crate::engine) fn pump_flush(&mut self, actions: &mut Actions) {
        if self.sweep.flush.in_flight > 0 || self.sweep.flush.waiting.is_empty() {
            return;
        }
        self.sweep.flush.began_us = self.now_us;
        self.sweep.flush.covered = std::mem::take(&mut self.sweep.flush.waiting);
        for device in 0..self.config.data_devices {
            let flush = self.request(IoKind::Flush, None, DeviceId(device), Operation::Flush);
            actions.requests.push(flush);
            self.sweep.flush.in_flight += 1;
        }
    }

    pub(in crate::engine) fn flush_done(&mut self, completion: &Completion) {
        self.sweep.flush.in_flight -= 1;
        if completion.result.is_err() {
            self.fail_write(completion, 0);
            return;
        }
        if self.sweep.flush.in_flight > 0 {
            return;
        }
        self.note_ended(Timed::Flush, self.sweep.flush.began_us);
        for covered in std::mem::take(&mut self.sweep.flush.covered) {
            match covered {
                Flushing::Run(id) => {
                    self.run_mut(id).phase = Phase::Logging { refused: false };
                    self.log_run(id);
                }
                Flushing::Spill(id) => self.spill_flushed(id),
                Flushing::Checkpoint => self.checkpoint_flushed(),
            }
        }
    }
}
