//! Histories: which moments of its past a volume keeps, and how they are let go.
//!
//! With a history, trimming leaves what any moment from the *horizon* on shows. The horizon moves
//! forward with time, or as more is written; what it passes is trimmed by the next sweep, or by a
//! walk once that is a fair share of what is kept. (Mariner: BOSC paper, section 6.6.1.)
//!
//! Now and then a moment is recorded, with the bytes that had been written until then: those that
//! are worth a return, and the only ones at which the bytes of a history are known. The older they
//! are, the fewer stay, so a list of them is short however long the history is.
//!
//! A clock that is wrong must not make histories forget everything: the horizon follows the time of
//! day only so fast. While the clock is behind the last change, times do not tell changes apart,
//! and only a limit in bytes lets go of any.
//!
//! Invariant: the horizon is recorded before anything is trimmed by it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use upsweep::Durability;

use crate::address::{BLOCK_BYTES, Branch, Stamp};
use crate::catalog::Catalog;
use crate::error::Error;
use crate::rows::{History, Key, MomentKind, MomentRow, RowChange, VolumeRow};
use crate::volumes::Inner;

/// After so long without a write, in microseconds, the last moment was a quiet one.
const QUIET_US: u64 = 2_000_000;
/// Flushes are recorded so often in a history, and not more often than once a second; quiet moments
/// always.
const MOMENTS_PER_HISTORY: u64 = 1000;
const BETWEEN_MOMENTS_US: u64 = 1_000_000;
/// Of moments that are at least so old one is kept in an interval of this length, both in
/// microseconds: one a second, one a minute after an hour, one an hour after a day.
const INTERVALS_US: [(u64, u64); 3] =
    [(24 * 3_600_000_000, 3_600_000_000), (3_600_000_000, 60_000_000), (0, 1_000_000)];
/// The horizon moves in steps of a share of the history.
const STEPS_PER_HISTORY: u64 = 64;
/// The horizon follows the time of day so many times as fast as time passes at most: in an hour, a
/// history forgets a day.
const PACE_MAX: u64 = 24;
/// A branch is walked when what was written before the horizon, since the last walk, is at least
/// this share of what was written after it.
const WALK_SHARE: u64 = 4;

/// Up to where the horizon of one volume may follow the time of day.
pub struct Pace {
    /// The window of the history.
    window: Option<Duration>,
    /// A horizon that was right, in microseconds since the Unix epoch.
    horizon_us: u64,
    /// When it was, since the store was opened.
    elapsed: Duration,
}

/// How far the horizon of one volume moves.
struct Advance {
    volume: u32,
    horizon: Stamp,
    /// Whether its branches are walked.
    has_walk: bool,
}

impl VolumeRow {
    /// Whether it is time to record a flush at `stamp`, with so many bytes written, after `last`.
    fn is_moment_due(
        &self,
        stamp: Stamp,
        written: u64,
        last: Option<(Stamp, u64)>,
        now_us: u64,
    ) -> bool {
        let (last, last_written) = last.unwrap_or((Stamp(self.horizon), 0));
        let since_us = stamp.0.saturating_sub(last.0);
        let window_us = self.history.window.map(|window| window.as_micros() as u64);
        let is_time = window_us.is_some_and(|window| since_us >= window / MOMENTS_PER_HISTORY);
        let bytes = written.saturating_sub(last_written);
        let is_much = self.history.bytes.is_some_and(|most| bytes >= most / MOMENTS_PER_HISTORY);
        // Stamps that are ahead of the clock say nothing about how long ago they were.
        let is_ahead = stamp.0 > now_us.saturating_add(BETWEEN_MOMENTS_US);
        (since_us >= BETWEEN_MOMENTS_US && (is_time || is_much)) || (is_ahead && is_much)
    }
}

/// The moments that can go because others near them stay: of those in one interval the last quiet
/// one does, or the last one if none was quiet, and all marks. A history that is limited in bytes
/// is let go moment by moment, so it also keeps one for each of its thousandths.
fn thinned<'a>(
    moments: impl Iterator<Item = (Stamp, &'a MomentRow)>,
    history: History,
    now_us: u64,
) -> Vec<Stamp> {
    let share = history.bytes.map_or(u64::MAX, |most| (most / MOMENTS_PER_HISTORY).max(1));
    let place = |stamp: Stamp, row: &MomentRow| {
        let age_us = now_us.saturating_sub(stamp.0);
        let is_reached = |(least_us, _): &&(u64, u64)| *least_us <= age_us;
        let (_, interval_us) = INTERVALS_US.iter().find(is_reached).expect("the last one is");
        (*interval_us, stamp.0 / interval_us, row.written / share)
    };
    let (mut gone, mut last) = (Vec::new(), None);
    for (stamp, row) in moments.filter(|(_, row)| !matches!(row.kind, MomentKind::Mark(_))) {
        let (place, is_quiet) = (place(stamp, row), row.kind == MomentKind::Quiet);
        match last {
            Some((known, _, is_better)) if known == place && is_better && !is_quiet => {
                gone.push(stamp);
                continue;
            }
            Some((known, other, _)) if known == place => gone.push(other),
            _ => {}
        }
        last = Some((place, stamp, is_quiet));
    }
    gone
}

impl Inner {
    /// Records moments of all volumes that keep a history: the last flush, and quiet ones.
    pub fn record_moments(&self) -> Result<(), Error> {
        let now_us = self.now_us();
        let flushed = Stamp(self.flushed.load(Ordering::Acquire));
        let complete = self.stamps.written(self.last_seq()).stamp;
        let mut catalog = self.catalog.write();
        let mut changes = Vec::new();
        for (number, row) in catalog.rows.volumes.iter().filter(|(_, row)| row.history.is_on()) {
            let activity = &catalog.activities[number];
            let last = Stamp(activity.last.load(Ordering::Relaxed));
            let written = activity.written.load(Ordering::Relaxed);
            let known = catalog.rows.moments_of(*number).next_back();
            let known = known.map(|(stamp, row)| (stamp, row.written));
            // What comes after the last moment only; there is none without a change.
            if known.is_some_and(|(stamp, _)| last <= stamp) {
                continue;
            }
            let is_quiet = last <= complete && now_us.saturating_sub(last.0) >= QUIET_US;
            let (stamp, kind) = match is_quiet {
                true => (last, MomentKind::Quiet),
                false => (flushed.min(complete), MomentKind::Flush),
            };
            let is_new = known.is_none_or(|(known, _)| known < stamp) && stamp.0 >= row.horizon;
            if is_new && (is_quiet || row.is_moment_due(stamp, written, known, now_us)) {
                let new = MomentRow { written, kind };
                let kept = catalog.rows.moments_of(*number);
                let kept = kept.filter(|(stamp, _)| row.horizon <= stamp.0);
                let gone = thinned(kept.chain([(stamp, &new)]), row.history, now_us);
                changes.extend(gone.into_iter().map(|gone| Key::Moment(*number, gone).remove()));
                changes.push(Key::Moment(*number, stamp).put(&new));
            }
        }
        if !changes.is_empty() {
            catalog.change_with(self.store.batch(), changes, Durability::Relaxed)?;
        }
        Ok(())
    }

    /// Moves the horizons of all volumes; returns whether any has moved.
    pub fn advance_histories(&self) -> Result<bool, Error> {
        let now_us = self.now_us();
        let mut catalog = self.catalog.write();
        let numbers: Vec<u32> = catalog.rows.volumes.keys().copied().collect();
        let advances: Vec<Advance> = numbers
            .into_iter()
            .filter_map(|number| self.advance(&catalog, number, now_us))
            .collect();
        for advance in &advances {
            let changes = advance.changes(&catalog);
            catalog.change_with(self.store.batch(), changes, Durability::Relaxed)?;
        }
        drop(catalog);
        if !advances.is_empty() {
            self.publish_needs(None);
        }
        Ok(!advances.is_empty())
    }

    /// Up to where the horizon of a volume may follow the time of day now.
    fn horizon_max(&self, number: u32, row: &VolumeRow, now_us: u64) -> u64 {
        let (window, elapsed) = (row.history.window, self.store.blocks().elapsed());
        let mut paces = self.paces.lock();
        let since = |horizon_us| Pace { window, horizon_us, elapsed };
        let pace = paces.entry(number).or_insert_with(|| since(row.horizon));
        if pace.window != window {
            // Whoever chose another window has looked at the clock.
            let window_us = window.map_or(0, |window| window.as_micros() as u64);
            *pace = since(now_us.saturating_sub(window_us));
        }
        let passed = elapsed.saturating_sub(pace.elapsed).as_micros() as u64;
        pace.horizon_us.saturating_add(passed.saturating_mul(PACE_MAX))
    }

    /// How far the horizon of a volume moves now, if it does.
    fn advance(&self, catalog: &Catalog, number: u32, now_us: u64) -> Option<Advance> {
        let row = &catalog.rows.volumes[&number];
        let written = catalog.activities[&number].written.load(Ordering::Relaxed);
        let horizon_max = self.horizon_max(number, row, now_us);
        let by_time = row.history.window.and_then(|window| {
            let window_us = window.as_micros() as u64;
            let horizon = now_us.saturating_sub(window_us).min(horizon_max);
            let is_step = horizon > row.horizon.saturating_add(window_us / STEPS_PER_HISTORY);
            is_step.then_some(Stamp(horizon))
        });
        let by_bytes = row.history.bytes.and_then(|most| {
            let is_beyond = |row: &MomentRow| written - row.written.min(written) > most;
            let mut moments = catalog.rows.moments_of(number).rev();
            moments.find(|(_, row)| is_beyond(row)).map(|(stamp, _)| stamp)
        });
        let horizon = by_time.max(by_bytes).filter(|horizon| horizon.0 > row.horizon)?;
        let passed = catalog.rows.moments_of(number).rev().find(|(stamp, _)| *stamp <= horizon);
        let before = passed.map_or(0, |(_, row)| row.written);
        let mut walked = self.walked.lock();
        let last = walked.entry(number).or_insert(0);
        // A home is the least that a walk can give back.
        let least = u64::from(self.payload.slots_per_home) * BLOCK_BYTES;
        let worth = (written.saturating_sub(before) / WALK_SHARE).max(least);
        let has_walk = before.saturating_sub(*last) >= worth;
        *last = if has_walk { before } else { *last };
        Some(Advance { volume: number, horizon, has_walk })
    }
}

impl Advance {
    /// The rows that change.
    fn changes(&self, catalog: &Catalog) -> Vec<RowChange> {
        let mut row = catalog.rows.volumes[&self.volume].clone();
        row.horizon = self.horizon.0;
        let branches: Vec<u32> = row.epochs.iter().map(|epoch| epoch.branch).collect();
        // The epoch of the horizon stays, and those after it.
        let passed = row.epochs.partition_point(|epoch| epoch.since <= self.horizon.0);
        row.epochs.drain(..passed.saturating_sub(1));
        let mut changes = vec![Key::Volume(self.volume).put(&row)];
        // So does the last moment before it, for what had been written until then.
        let mut past = catalog.rows.moments_of(self.volume).map(|(stamp, _)| stamp).peekable();
        while let Some(stamp) = past.next() {
            if past.peek().is_none_or(|next| *next > self.horizon) {
                break;
            }
            changes.push(Key::Moment(self.volume, stamp).remove());
        }
        for branch in branches {
            let is_left = row.epochs.iter().all(|epoch| epoch.branch != branch);
            if self.has_walk || is_left {
                changes.push(Key::Walk(Branch(branch)).put(&0_u64));
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SECOND: u64 = 1_000_000;
    const DAY: u64 = 24 * 3600 * SECOND;
    const NOW: u64 = 1_000 * DAY;

    fn moment(at: u64, written: u64, kind: MomentKind) -> (Stamp, MomentRow) {
        (Stamp(at), MomentRow { written, kind })
    }

    /// What stays of moments, in seconds before now.
    fn left(moments: &[(Stamp, MomentRow)], history: History) -> Vec<u64> {
        let gone = thinned(moments.iter().map(|(at, row)| (*at, row)), history, NOW);
        let gone: BTreeSet<Stamp> = gone.into_iter().collect();
        let stamps = moments.iter().map(|(stamp, _)| *stamp);
        stamps.filter(|at| !gone.contains(at)).map(|at| (NOW - at.0) / SECOND).collect()
    }

    #[test]
    fn fewer_moments_stay_the_older_they_are() {
        // One every 10 seconds, for 40 days.
        let all = (0..40 * 8640).map(|nth| NOW - 40 * DAY + nth * 10 * SECOND);
        let all: Vec<_> = all.map(|at| moment(at, 0, MomentKind::Quiet)).collect();
        let left = left(&all, History::OFF);
        let older = |hours: u64| left.iter().filter(|ago| **ago >= hours * 3600).count();
        // An interval that is partly older than a limit has a moment on either side of it.
        assert!((39 * 24..=39 * 24 + 1).contains(&older(24)), "{}", older(24));
        let of_the_day = older(1) - older(24);
        assert!((23 * 60..=23 * 60 + 1).contains(&of_the_day), "{of_the_day}");
        assert_eq!(left.len() - older(1), 360 - 1);
        assert!(left.windows(2).all(|pair| pair[0] - pair[1] <= 2 * 3600));
    }

    #[test]
    fn marks_stay_and_of_others_the_last_quiet_one() {
        let hour = NOW - 2 * DAY;
        let mark = || MomentKind::Mark("mark".to_owned());
        let all = [
            moment(hour, 0, MomentKind::Quiet),
            moment(hour + 10 * SECOND, 0, MomentKind::Quiet),
            moment(hour + 20 * SECOND, 0, mark()),
            moment(hour + 30 * SECOND, 0, MomentKind::Flush),
            moment(hour + 40 * SECOND, 0, mark()),
            moment(hour + 3600 * SECOND, 0, MomentKind::Flush),
            moment(hour + 3610 * SECOND, 0, MomentKind::Flush),
        ];
        let ago = |seconds: u64| 2 * DAY / SECOND - seconds;
        assert_eq!(left(&all, History::OFF), [ago(10), ago(20), ago(40), ago(3610)]);
    }

    #[test]
    fn a_history_of_bytes_keeps_a_moment_for_each_of_its_thousandths() {
        let all = (0..600).map(|nth| (NOW - 2 * DAY + nth * SECOND, nth * 100));
        let all: Vec<_> = all.map(|(at, bytes)| moment(at, bytes, MomentKind::Flush)).collect();
        let history = History { bytes: Some(1_000_000), ..History::OFF };
        assert_eq!(left(&all, history).len(), 60);
        assert_eq!(left(&all, History::OFF).len(), 1);
    }
}
