//! Sentinels on one drive, and records that are to merge with them, as section 6.2.5 of the
//! dissertation describes the low-power mode of Beluga.
//!
//! Sentinels are writes of 4 KB at equal distances. When the Nth has completed, the one after the
//! next is submitted, so that two are at the drive. Between two of them a record is submitted, for
//! the sectors right behind the next sentinel: at once, or when the head has come as near to that
//! as the margin. The host knows where the head is from when the last sentinel has completed.

use upsweep::layers::device::{
    Buffer, Class, Completion, DeviceId, Operation, Request, Simulated, Token, WriteMode,
};

use crate::problem::Problem;

/// Sectors of a sentinel, and of a record: the smallest write that a drive merges.
const SECTORS: u64 = 8;
const DEVICE: DeviceId = DeviceId(0);
const SECTOR_BYTES: u64 = 512;

/// When a record is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dispatch {
    /// As soon as the sentinel before it has completed.
    AtOnce,
    /// When the head is so many sectors before the sentinel that it is to merge with.
    Margin(u64),
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sentinels {
    /// Sectors from one sentinel to the next.
    pub(crate) distance: u64,
    /// When records are submitted.
    pub(crate) dispatch: Dispatch,
    /// Whether a sentinel is submitted before the record, where both are at once.
    pub(crate) sentinel_first: bool,
    /// Time in which a sector passes the head.
    pub(crate) sector_us: f64,
    /// Time from the end of a write until the host knows of it.
    pub(crate) notice_us: f64,
}

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Mean time from the submission of a record to its completion, in microseconds.
    pub(crate) latency_us: f64,
    /// Sentinels that completed after a later one, in per cent.
    pub(crate) reordered_percent: f64,
}

impl Sentinels {
    /// Measures so many records.
    ///
    /// # Errors
    /// [`Problem::Simulation`] if a write fails, or nothing happens any more.
    pub(crate) fn run(&self, devices: &mut dyn Simulated, records: u64) -> Result<Seen, Problem> {
        let mut run = Run { sentinels: *self, devices, submitted: 0, record: None };
        run.submit_sentinel();
        run.submit_sentinel();
        let (mut completed, mut latest, mut late) = (0_u64, None, 0);
        let (mut ended, mut latency_us, mut since_us) = (0, 0, Vec::new());
        let mut completions = Vec::new();
        while ended < records {
            let record_us = run.record.map(|(us, _)| us);
            let next_us = [record_us, run.devices.next_event_us()].into_iter().flatten().min();
            let stopped = || Problem::Simulation("no sentinel completes any more".into());
            let us = next_us.ok_or_else(stopped)?;
            run.devices.advance_to(us);
            run.devices.reap(&mut completions);
            for Completion { token, result, .. } in completions.drain(..) {
                result.map_err(|error| Problem::Simulation(format!("a write: {error}")))?;
                let (number, is_record) = (token.0 / 2, token.0 % 2 == 1);
                if is_record {
                    ended += 1;
                    latency_us += us - since_us[number as usize];
                    continue;
                }
                completed += 1;
                late += u64::from(latest.is_some_and(|latest| latest > number));
                latest = latest.max(Some(number));
                if self.sentinel_first {
                    run.submit_sentinel();
                }
                run.plan_record(number);
                run.submit_record(us, &mut since_us);
                if !self.sentinel_first {
                    run.submit_sentinel();
                }
            }
            run.submit_record(us, &mut since_us);
        }
        Ok(Seen {
            latency_us: latency_us as f64 / ended as f64,
            reordered_percent: 100.0 * late as f64 / completed as f64,
        })
    }
}

struct Run<'a> {
    sentinels: Sentinels,
    devices: &'a mut dyn Simulated,
    /// Sentinels so far.
    submitted: u64,
    /// The record that is to be submitted, and when.
    record: Option<(u64, u64)>,
}

impl Run<'_> {
    fn submit(&mut self, number: u64, is_record: bool) {
        let behind = if is_record { SECTORS } else { 0 };
        let offset = (number * self.sentinels.distance + behind) * SECTOR_BYTES;
        let buffer = Buffer::zeroed((SECTORS * SECTOR_BYTES) as usize);
        let operation = Operation::Write { offset, buffer, mode: WriteMode::Stable };
        let token = Token(2 * number + u64::from(is_record));
        self.devices.submit(Request { device: DEVICE, token, hint: Class::Log.into(), operation });
    }

    fn submit_sentinel(&mut self) {
        self.submit(self.submitted, false);
        self.submitted += 1;
    }

    /// Sentinel `number` has completed: when the record for the next one is submitted.
    fn plan_record(&mut self, number: u64) {
        let Sentinels { distance, dispatch, sector_us, notice_us, .. } = self.sentinels;
        let wait_us = match dispatch {
            Dispatch::AtOnce => 0.0,
            Dispatch::Margin(margin) => {
                let sectors = distance.saturating_sub(SECTORS + margin) as f64;
                (sectors * sector_us - notice_us).max(0.0)
            }
        };
        self.record = Some((self.devices.now_us() + wait_us as u64, number + 1));
    }

    /// Submits the record if it is due.
    fn submit_record(&mut self, now_us: u64, since_us: &mut Vec<u64>) {
        let Some((_, number)) = self.record.filter(|(due_us, _)| *due_us <= now_us) else { return };
        self.record = None;
        since_us.resize(since_us.len().max(number as usize + 1), 0);
        // One that a late sentinel has already had would be written twice.
        if since_us[number as usize] == 0 {
            since_us[number as usize] = now_us;
            self.submit(number, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use upsweep::layers::device::drive::Scheduler;

    use super::super::banks::{self, Ordering};
    use super::*;

    fn seen(distance: u64, dispatch: Dispatch) -> Seen {
        let ordering = Ordering { depth: 4, scheduler: Scheduler::Sptf };
        let mut devices =
            banks::full_drives("caviar-black-1tb", 1, Some(ordering), 1).expect("a drive");
        let (sector_us, notice_us, sentinel_first) = (4.12, 100.0, false);
        let sentinels = Sentinels { distance, dispatch, sentinel_first, sector_us, notice_us };
        sentinels.run(&mut *devices, 500).expect("no write fails")
    }

    #[test]
    fn sentinels_that_are_far_apart_keep_their_order_and_a_record_waits_for_the_next() {
        let seen = seen(600, Dispatch::AtOnce);
        assert!(seen.reordered_percent < 5.0, "{seen:?}");
        // Nearly 600 sectors pass, 4.1 us each.
        assert!((1500.0..4500.0).contains(&seen.latency_us), "{seen:?}");
    }

    #[test]
    fn a_record_that_is_submitted_later_waits_less() {
        let (at_once, later) = (seen(600, Dispatch::AtOnce), seen(600, Dispatch::Margin(300)));
        assert!(later.latency_us < at_once.latency_us - 500.0, "{at_once:?} {later:?}");
    }
}
