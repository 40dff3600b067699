//! Growth of the log: it starts short, so that a small store takes little space, and is extended
//! while it is short for the amount of data.
//!
//! A longer log saves sweeps. All data is written once each time the log fills, so with a log of
//! four times the data, sweeps write at most a quarter of what the log does; growth beyond that
//! ([`Config::log_times_data`](super::config::Config::log_times_data)) gains hardly anything.
//! Policy uses the length that the log will have before anything must be released, so nothing is
//! swept for lack of space that growth will provide.
//!
//! Steps: the device is extended; zeros are written to the new part, one request at a time; the log
//! continues there. Invariant: at most one such request is in flight.

use super::base::Base;
use super::io::IoKind;
use super::measure::Timed;
use super::policy::{self, REFUSAL_US};
use crate::device::{Buffer, Completion, DeviceError, Operation, WriteMode};
use crate::metrics::GrowthOf;

/// Whether and how the log is to be extended.
pub(super) struct LogGrowth {
    /// Per log device.
    growable: Vec<bool>,
    is_under_way: bool,
    /// When the extension of the log began.
    began_us: u64,
    /// A device had no room: do not ask again before this time.
    refused_until: u64,
}

impl LogGrowth {
    pub(super) fn new(growable: Vec<bool>) -> Self {
        Self { growable, is_under_way: false, began_us: 0, refused_until: 0 }
    }
}

impl LogGrowth {
    /// Takes the next step.
    pub(super) fn pump(&mut self, base: &mut Base) {
        self.want(base);
        if self.is_under_way || base.gate.is_paused() {
            return;
        }
        let (device, operation) = if let Some((device, offset, bytes)) = base.journal.log().blank()
        {
            let (buffer, mode) = (Buffer::zeroed(bytes as usize), WriteMode::Stable);
            (device, Operation::Write { offset, buffer, mode })
        } else if let Some((device, offset, bytes)) = base.journal.log_mut().begin_growth() {
            self.began_us = base.now_us;
            (device, Operation::Allocate { offset, bytes })
        } else {
            return;
        };
        base.io.submit(IoKind::LogGrowth, None, device, operation);
        self.is_under_way = true;
    }

    /// Sets the target length of the log.
    fn want(&self, base: &mut Base) {
        let waiting = base.index.arena().growth_bytes() + base.in_hand.growth_bytes;
        let data = base.index.used_bytes() + waiting + base.index.spill_segments.growth_bytes();
        let (times, rings) = (base.config.log_times_data, base.config.log_regions.len());
        let each = policy::log_bytes_wanted(data, times, rings);
        let is_refused = base.now_us < self.refused_until;
        for (index, region) in base.config.log_regions.iter().enumerate() {
            let can_grow = self.growable[index] && !is_refused;
            base.journal.log_mut().want(index, if can_grow { each.min(region.bytes) } else { 0 });
        }
    }

    pub(super) fn step_done(
        &mut self,
        base: &mut Base,
        completion: &Completion,
        offset: Option<u64>,
    ) {
        self.is_under_way = false;
        base.waiters.tell();
        let extends = base.journal.log().blank().is_none();
        match completion.result {
            Ok(()) if extends => base.journal.log_mut().extended(true),
            Ok(()) => base.journal.log_mut().blanked(),
            Err(DeviceError::NoSpace) if extends => {
                base.journal.log_mut().extended(false);
                self.refused_until = base.now_us + REFUSAL_US;
            }
            // It has the space, so its device has failed; or its length is unknown.
            Err(_) => base.close_if_failed(completion, offset),
        }
        if !base.journal.log().is_growing() {
            base.measured.note_ended(Timed::Growth(GrowthOf::Log), self.began_us);
        }
    }
}
