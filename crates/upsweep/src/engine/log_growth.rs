//! How the log becomes longer: it begins short, so that a small store takes little space, and is
//! made longer while its data is large for it.
//!
//! What a longer log buys is fewer sweeps. All data is written once for each log that fills, so a
//! log of four times the data makes sweeps write a quarter of what the log does, or less; longer
//! than that ([`Config::log_times_data`](super::config::Config::log_times_data)) it hardly buys
//! anything. Policy goes by the length that the log will have before anything must be released,
//! so nothing is swept for lack of space that growth will make.
//!
//! Steps: the device is extended; zeros are written to the new part, one request at a time; the log
//! goes on there. Invariant: at most one such request is in flight.

use super::base::Base;
use super::io::IoKind;
use super::measure::Timed;
use super::policy::{self, REFUSAL_US};
use crate::device::{Buffer, Completion, DeviceError, Operation, WriteMode};
use crate::metrics::GrowthOf;

/// Whether and how the log is to become longer.
pub(super) struct LogGrowth {
    /// Per log device.
    growable: Vec<bool>,
    is_under_way: bool,
    /// When the log began to become longer.
    began_us: u64,
    /// A device had no room: not to be asked again before this time.
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

    /// Tells the log how long it is to be.
    fn want(&self, base: &mut Base) {
        let waiting = base.index.arena().growth_bytes() + base.in_hand.growth_bytes;
        let data =
            base.index.space_map.used_bytes() + waiting + base.index.spill_segments.growth_bytes();
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
            // It has the space, so its device is broken; or nobody knows how long it is.
            Err(_) => base.close_if_failed(completion, offset),
        }
        if !base.journal.log().is_growing() {
            base.measured.note_ended(Timed::Growth(GrowthOf::Log), self.began_us);
        }
    }
}
