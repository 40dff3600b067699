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

use super::core::{Actions, Core, IoKind};
use super::measure::Timed;
use crate::device::{Buffer, Completion, DeviceError, Durability, Operation};
use crate::metrics::GrowthOf;

/// How long after a refusal the log is not made longer, in microseconds.
const REFUSAL_US: u64 = 1_000_000;

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

impl Core {
    /// Takes the next step.
    pub(super) fn pump_log_growth(&mut self, actions: &mut Actions) {
        self.want_log();
        if self.log_growth.is_under_way || self.paused {
            return;
        }
        let (device, operation) = if let Some((device, offset, bytes)) = self.log.blank() {
            let (buffer, durability) = (Buffer::zeroed(bytes as usize), Durability::Stable);
            (device, Operation::Write { offset, buffer, durability })
        } else if let Some((device, offset, bytes)) = self.log.begin_growth() {
            self.log_growth.began_us = self.now_us;
            (device, Operation::Allocate { offset, bytes })
        } else {
            return;
        };
        actions.requests.push(self.request(IoKind::LogGrowth, None, device, operation));
        self.log_growth.is_under_way = true;
    }

    /// Bytes that the log may come to have.
    #[must_use]
    pub fn log_bytes_max(&self) -> u64 {
        let segment_bytes = u64::from(self.config.log_segment_bytes);
        let whole = |bytes: u64| bytes - bytes % segment_bytes;
        self.config.log_regions.iter().map(|region| whole(region.bytes)).sum()
    }

    /// Tells the log how long it is to be.
    fn want_log(&mut self) {
        let waiting = self.arena.growth_bytes() + self.sweep.frozen_growth_bytes;
        let data = self.space_map.used_bytes() + waiting + self.spill_segments.growth_bytes();
        let log = data.saturating_mul(u64::from(self.config.log_times_data));
        let each = log / self.config.log_regions.len() as u64;
        let is_refused = self.now_us < self.log_growth.refused_until;
        for (index, region) in self.config.log_regions.iter().enumerate() {
            let can_grow = self.log_growth.growable[index] && !is_refused;
            self.log.want(index, if can_grow { each.min(region.bytes) } else { 0 });
        }
    }

    pub(super) fn log_growth_done(&mut self, completion: &Completion) {
        self.log_growth.is_under_way = false;
        self.room_events += 1;
        let extends = self.log.blank().is_none();
        match completion.result {
            Ok(()) if extends => self.log.extended(true),
            Ok(()) => self.log.blanked(),
            Err(DeviceError::NoSpace) if extends => {
                self.log.extended(false);
                self.log_growth.refused_until = self.now_us + REFUSAL_US;
            }
            // It has the space, so its device is broken; or nobody knows how long it is.
            Err(_) => self.fail_write(completion, 0),
        }
        if !self.log.is_growing() {
            self.note_ended(Timed::Growth(GrowthOf::Log), self.log_growth.began_us);
        }
    }
}
