//! Where the head of a rotating drive will be, so that a lone batch can be put there (Trail: BOSC,
//! section 4.1; the sentinels of thesis 6.2.5).
//!
//! When a write completes, its end has just passed the head. From there the surface moves on
//! evenly, so at any later time the place under the head follows from the length of a turn and of
//! a track: the drive's [`Motion`]. A batch goes a *look-ahead* behind that place, the time from
//! its submission until the drive can write. If the head arrives first, the write takes a turn more
//! (a *miss*), so the look-ahead is found as `least.rs` says. Where a track ends between the last
//! write and the next, the surface seems to jump back by the skew: then the head arrives later by
//! that, which is less than a turn and no miss.
//!
//! A batch that is submitted while another is being written goes behind that, at a *distance*: see
//! `distance.rs`.
//!
//! Nobody says how a drive moves, so it is measured with single pages, one at a time: lone batches,
//! or batches without records where none arrive. Each is submitted soon after the one before is
//! complete, and:
//! - is right behind that: it takes a turn more, because its place has just passed;
//! - is a gap behind that: what it takes more than a turn, or takes instead, is the time that the
//!   gap needs to pass;
//! - with ever shorter gaps, until they are missed: the first look-ahead.
//!
//! Most times of a measurement have to agree. Where they do not, or are no time of a turn (a
//! solid-state device; a drive that confirms writes early, or holds them back), nothing is
//! predicted, and the log is as in [`LogMode::Idle`](crate::log::LogMode::Idle). It is measured
//! again where predictions fail with any look-ahead, and 8 GiB further on, because tracks become
//! shorter.

use super::distance::Distance;
use super::least::Least;
use crate::log::Motion;
use crate::log::format::SKIP_BYTES_MAX;

/// Times of one measurement.
const SAMPLES: usize = 24;
/// Times with one gap while gaps become shorter.
const SAMPLES_OF_GAP: usize = 4;
/// A gap in the measurement of the rate, in bytes. If the times do not agree, a larger one is
/// tried.
const GAP_BYTES: u64 = 128 << 10;
/// Turns of drives, in microseconds: from 20,000 to 3,000 rpm.
const TURN_US: std::ops::RangeInclusive<f64> = 3000.0..=20_000.0;
/// Tracks, in bytes: a batch can be so far behind the cursor.
const TRACK_BYTES: std::ops::RangeInclusive<f64> = 4096.0..=SKIP_BYTES_MAX as f64;
/// Times agree if they differ by less than this part of a turn.
const AGREE_PART: f64 = 50.0;
/// Unit of the look-ahead, in microseconds.
const AHEAD_UNIT_US: u64 = 10;
/// Time without records after which a page of a measurement has none.
const PAUSE_US: u64 = 200;
/// A page of a measurement is submitted within this time after the completion of the one before.
const SOON_US: u64 = 1000;
/// So many predictions in succession may fail with the longest look-ahead.
const MISSES_MAX: u32 = 8;
/// Batches in which a measurement has to succeed: ten times what it needs.
const BATCHES_MAX: u32 = 1000;
/// So often it is measured in vain before nothing is predicted any more.
const ATTEMPTS_MAX: u32 = 3;
/// Distance after which it is measured again.
const MEASURED_FOR_BYTES: u64 = 8 << 30;

#[derive(Clone, Debug)]
enum State {
    Measuring { what: Measured, gap: u64, times_us: Vec<u64> },
    Known { motion: Motion, ahead_us: Least, distance: Distance },
    Unpredictable,
}

#[derive(Clone, Copy, Debug)]
enum Measured {
    Turn,
    Rate {
        turn_us: f64,
    },
    /// With the shortest one so far that was not missed.
    Ahead {
        motion: Motion,
        found_us: Option<u64>,
    },
}

/// A batch of which the write has completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// Where it is in its ring, in bytes.
    pub(super) place: u64,
    pub(super) bytes: u64,
    /// When it was dispatched.
    pub(super) began_us: u64,
    /// How long that was expected to take, if anything was.
    pub(super) expected: Option<Expected>,
}

/// How long the write of a batch should take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    us: u64,
    /// From the end of the write before it, which ends at this place; else from when it was
    /// dispatched.
    behind: Option<u64>,
    bound: Bound,
}

/// What a batch could not be any closer for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Ahead,
    Distance,
}

/// What there is when a batch is dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    /// No other is being written.
    None,
    /// Another is being written, up to the cursor.
    Written,
    /// That, and more wait to be: this one was dispatched as soon as it could be, early enough.
    Queued,
}

/// Where to put a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aim {
    /// How far behind the cursor, in bytes.
    pub(super) skip: u64,
    pub(super) expected: Expected,
}

/// What is known of the head of one device.
#[derive(Clone, Debug)]
pub(super) struct Head {
    state: State,
    /// When the end of the last batch had passed, and where that is in the ring.
    passed: Option<(u64, u64)>,
    page_bytes: u64,
    /// Longest gap of a measurement.
    gap_max: u64,
    /// The longest time from a completion to the next submission in this step of a measurement.
    latest_us: u64,
    /// Where it was measured.
    measured_at: Option<u64>,
    attempts: u32,
    /// Batches since this measurement began.
    batches: u32,
    misses_in_succession: u32,
}

impl Head {
    /// Nothing is known but, perhaps, the motion. A gap can have up to `gap_max` bytes.
    pub(super) fn new(page_bytes: u64, gap_max: u64, motion: Option<Motion>) -> Self {
        Self {
            state: motion.map_or_else(measuring, |motion| known(motion, None)),
            passed: None,
            page_bytes,
            gap_max,
            latest_us: 0,
            measured_at: None,
            attempts: 0,
            batches: 0,
            misses_in_succession: 0,
        }
    }

    /// How far behind the cursor the next batch of a measurement has to be, if one is going on.
    pub(super) fn gap(&self) -> Option<u64> {
        match self.state {
            State::Measuring { gap, .. } => Some(gap),
            State::Known { .. } | State::Unpredictable => None,
        }
    }

    /// When to go on with a measurement with a batch without records, if no others come.
    pub(super) fn measures_at_us(&self) -> Option<u64> {
        self.gap()?;
        Some(self.passed.map_or(0, |(at_us, _)| at_us + PAUSE_US))
    }

    pub(super) fn is_known(&self) -> bool {
        matches!(self.state, State::Known { .. })
    }

    /// The look-ahead in bytes of the ring; 0 if nothing is known.
    pub(super) fn ahead_bytes(&self) -> u64 {
        match &self.state {
            State::Known { motion, ahead_us, .. } => motion.bytes_in(ahead_us.value() * 1000),
            State::Measuring { .. } | State::Unpredictable => 0,
        }
    }

    /// The first place for so many bytes, at or behind `cursor`, that is neither too close to the
    /// head nor to the batch before.
    pub(super) fn aim(&self, cursor: u64, bytes: u64, now_us: u64, others: Others) -> Option<Aim> {
        let (State::Known { motion, ahead_us, distance }, Some((at_us, end))) =
            (&self.state, self.passed)
        else {
            return None;
        };
        let from_end = cursor.checked_sub(end).filter(|bytes| *bytes <= motion.turn_bytes)?;
        let ns = (now_us.saturating_sub(at_us) + ahead_us.value()) * 1000 % motion.turn_ns;
        let met = motion.bytes_in(ns);
        let pages = |bytes: u64| bytes.next_multiple_of(self.page_bytes);
        let by_ahead = pages(met.saturating_sub(from_end));
        let by_distance = pages(motion.bytes_in(distance.us() * 1000));
        let (skip, bound) = match others {
            Others::Queued => (by_distance, Bound::Distance),
            Others::Written if by_distance >= by_ahead => (by_distance, Bound::Distance),
            Others::None | Others::Written => (by_ahead, Bound::Ahead),
        };
        let expected = match others {
            Others::None => {
                let wait_ns = motion.ns_for((from_end + skip).saturating_sub(met));
                let us = ahead_us.value() + (wait_ns + motion.ns_for(bytes)) / 1000;
                Expected { us, behind: None, bound }
            }
            Others::Written | Others::Queued => {
                let us = motion.ns_for(skip + bytes) / 1000;
                Expected { us, behind: Some(cursor), bound }
            }
        };
        Some(Aim { skip, expected })
    }

    /// The write of a batch has completed. Returns whether it took as long as expected, if anything
    /// was expected.
    pub(super) fn ended(&mut self, ended: &Ended, now_us: u64) -> Option<bool> {
        let before = self.passed.replace((now_us, ended.place + ended.bytes));
        match (&mut self.state, before) {
            (State::Measuring { times_us, gap, .. }, Some((at_us, end)))
                if (at_us..=at_us + SOON_US).contains(&ended.began_us)
                    && ended.place == end + *gap
                    && ended.bytes == self.page_bytes =>
            {
                times_us.push(now_us.saturating_sub(at_us));
                self.latest_us = self.latest_us.max(ended.began_us - at_us);
                self.measure(ended.place);
                self.count();
                None
            }
            (State::Measuring { .. }, _) => {
                self.count();
                None
            }
            (State::Known { motion, ahead_us, distance }, before) => {
                let Expected { us, behind, bound } = ended.expected?;
                let took_us = match (behind, before) {
                    (None, _) => now_us.saturating_sub(ended.began_us),
                    (Some(place), Some((at_us, end))) if place == end => {
                        now_us.saturating_sub(at_us)
                    }
                    // The drive had another order.
                    (Some(_), _) => return None,
                };
                let is_miss = took_us > us + motion.turn_ns / 2000;
                let fails = match bound {
                    Bound::Ahead => ahead_us.fails(is_miss),
                    Bound::Distance => distance.tried(is_miss, ahead_us),
                };
                self.judge(fails, ended.place);
                Some(!is_miss)
            }
            (State::Unpredictable, _) => None,
        }
    }

    /// Gives up a measurement that does not come to an end.
    fn count(&mut self) {
        self.batches = if self.gap().is_some() { self.batches + 1 } else { 0 };
        if self.batches > BATCHES_MAX {
            self.try_again();
        }
    }

    /// A prediction failed with the longest look-ahead, or did not.
    fn judge(&mut self, fails: bool, place: u64) {
        self.misses_in_succession = if fails { self.misses_in_succession + 1 } else { 0 };
        if self.misses_in_succession >= MISSES_MAX {
            self.try_again();
        }
        let measured_at = *self.measured_at.get_or_insert(place);
        if place.abs_diff(measured_at) > MEASURED_FOR_BYTES {
            self.state = measuring(); // It was right here, so this is no attempt in vain.
        }
    }

    fn try_again(&mut self) {
        self.attempts += 1;
        (self.batches, self.misses_in_succession) = (0, 0);
        let is_last = self.attempts >= ATTEMPTS_MAX;
        self.state = if is_last { State::Unpredictable } else { measuring() };
    }

    /// Goes on with the measurement if there are enough times.
    fn measure(&mut self, place: u64) {
        let page = self.page_bytes as f64;
        let State::Measuring { what, gap, times_us } = &mut self.state else { return };
        let gap_bytes = *gap as f64;
        match *what {
            Measured::Turn if times_us.len() == SAMPLES => {
                let turn_us = agreed(times_us, None).filter(|us| TURN_US.contains(us));
                let turn_us = turn_us.filter(|_| GAP_BYTES <= self.gap_max);
                let Some(turn_us) = turn_us else { return self.state = State::Unpredictable };
                self.state = State::Measuring {
                    what: Measured::Rate { turn_us },
                    gap: GAP_BYTES,
                    times_us: Vec::new(),
                };
            }
            Measured::Rate { turn_us } if times_us.len() == SAMPLES => {
                let Some(us) = agreed(times_us, Some(turn_us)) else {
                    times_us.clear();
                    *gap *= 2;
                    if *gap > self.gap_max {
                        self.try_again();
                    }
                    return;
                };
                let bytes_per_us =
                    if us > turn_us { gap_bytes / (us - turn_us) } else { (gap_bytes + page) / us };
                let turn_us = turn_us - page / bytes_per_us;
                let turn_bytes = turn_us * bytes_per_us;
                if !TRACK_BYTES.contains(&turn_bytes) {
                    return self.try_again();
                }
                let (turn_ns, turn_bytes) = ((turn_us * 1000.0) as u64, turn_bytes as u64);
                let motion = Motion { turn_ns, turn_bytes };
                self.measure_ahead(motion, self.gap_max.min(turn_bytes / 2), None);
            }
            Measured::Ahead { motion, found_us } if times_us.len() == SAMPLES_OF_GAP => {
                let passes_us = motion.ns_for(*gap) / 1000;
                let most_us = passes_us + motion.turn_ns / 2000;
                let ahead_us = passes_us.saturating_sub(std::mem::take(&mut self.latest_us));
                let hits = times_us.iter().filter(|us| **us < most_us).count();
                let is_hit = 2 * hits > SAMPLES_OF_GAP;
                let shorter = *gap * 4 / 5;
                let found_us = if is_hit { Some(ahead_us) } else { found_us };
                if is_hit && shorter >= self.page_bytes {
                    return self.measure_ahead(motion, shorter, found_us);
                }
                let Some(found_us) = found_us else { return self.try_again() };
                self.state = known(motion, Some(found_us * 5 / 4));
                self.measured_at = Some(place);
            }
            _ => {}
        }
    }

    fn measure_ahead(&mut self, motion: Motion, gap: u64, found_us: Option<u64>) {
        let gap = gap / self.page_bytes * self.page_bytes;
        let what = Measured::Ahead { motion, found_us };
        self.latest_us = 0;
        self.state = State::Measuring { what, gap, times_us: Vec::new() };
    }
}

fn measuring() -> State {
    State::Measuring { what: Measured::Turn, gap: 0, times_us: Vec::new() }
}

/// The look-ahead begins with that, or with half a turn, which is what a write waits for on average
/// if nothing is predicted.
fn known(motion: Motion, first_us: Option<u64>) -> State {
    let most_us = (motion.turn_ns / 2000).max(AHEAD_UNIT_US);
    let mut ahead_us = Least::new(most_us, AHEAD_UNIT_US);
    if let Some(first_us) = first_us {
        ahead_us.set(first_us);
    }
    State::Known { motion, distance: Distance::none(&ahead_us), ahead_us }
}

/// The mean of the times that agree with their median, if at least half of them do. They may differ
/// by a part of a turn, which is the median itself if it is not known.
fn agreed(times_us: &mut [u64], turn_us: Option<f64>) -> Option<f64> {
    times_us.sort_unstable();
    let median = times_us[times_us.len() / 2] as f64;
    let tolerance = turn_us.unwrap_or(median) / AGREE_PART;
    let agrees = |us: &&u64| (**us as f64 - median).abs() <= tolerance;
    let agreeing: Vec<&u64> = times_us.iter().filter(agrees).collect();
    let mean = agreeing.iter().map(|us| **us as f64).sum::<f64>() / agreeing.len() as f64;
    (2 * agreeing.len() >= times_us.len()).then_some(mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;
    const GAP_MAX: u64 = 1 << 20;

    /// A drive with tracks of so many bytes, a turn in so many microseconds and a skew of a tenth
    /// of it, for writes that reach it some time after they are submitted.
    struct Drive {
        turn_us: f64,
        track_bytes: u64,
        overhead_us: f64,
        skew_us: f64,
        /// Whether it begins with the next command while it writes.
        overlaps: bool,
    }

    const DRIVE: Drive = Drive {
        turn_us: 8333.3,
        track_bytes: 1_000_000,
        overhead_us: 300.0,
        skew_us: 800.0,
        overlaps: true,
    };

    impl Drive {
        /// When this place is first under the head, in microseconds.
        fn passes_us(&self, place: u64) -> f64 {
            let skew_us = (place / self.track_bytes) as f64 * self.skew_us;
            place as f64 / self.track_bytes as f64 * self.turn_us + skew_us
        }

        /// When a write is complete that is submitted at this time, and if the one before is
        /// complete at that.
        fn write(&self, place: u64, bytes: u64, now_us: u64, before_us: u64) -> u64 {
            let (now_us, before_us) = (now_us as f64, before_us as f64);
            let ready_us = if self.overlaps {
                before_us.max(now_us + self.overhead_us)
            } else {
                before_us.max(now_us) + self.overhead_us
            };
            let passes_us = self.passes_us(place);
            // What is complete at a time has passed a little before.
            let turns = ((ready_us - 1.0 - passes_us) / self.turn_us).ceil().max(0.0);
            let begins_us = passes_us + turns * self.turn_us;
            (begins_us + bytes as f64 / self.track_bytes as f64 * self.turn_us) as u64
        }
    }

    /// A log of single pages on that drive.
    struct Pages<'a> {
        drive: &'a Drive,
        head: Head,
        cursor: u64,
        now_us: u64,
    }

    impl<'a> Pages<'a> {
        fn on(drive: &'a Drive) -> Self {
            Self { drive, head: Head::new(PAGE, GAP_MAX, None), cursor: 0, now_us: 0 }
        }

        /// Submits a page where the head is expected, while others are written until then.
        fn submit(&mut self, others: Others, until_us: u64) -> (Ended, u64) {
            let (skip, expected) =
                match (self.head.gap(), self.head.aim(self.cursor, PAGE, self.now_us, others)) {
                    (Some(gap), _) => (gap, None),
                    (None, Some(aim)) => (aim.skip, Some(aim.expected)),
                    (None, None) => (0, None),
                };
            let (place, began_us) = (self.cursor + skip, self.now_us);
            self.cursor = place + PAGE;
            let ended_us = self.drive.write(place, PAGE, began_us, until_us);
            (Ended { place, bytes: PAGE, began_us, expected }, ended_us)
        }

        /// Writes a page where the head is expected; returns how long that took.
        fn write(&mut self) -> u64 {
            let (ended, us) = self.submit(Others::None, 0);
            self.now_us = us;
            self.head.ended(&ended, us);
            us - ended.began_us
        }

        /// Writes another while the first is written; returns how long the two took.
        fn write_two(&mut self, others: Others) -> u64 {
            let (first, first_us) = self.submit(Others::None, 0);
            let (second, second_us) = self.submit(others, first_us);
            self.now_us = second_us;
            self.head.ended(&first, first_us);
            self.head.ended(&second, second_us);
            second_us - first.began_us
        }

        fn measure(&mut self) -> u32 {
            let mut writes = 0;
            while self.head.gap().is_some() {
                self.write();
                writes += 1;
                assert!(writes < 1000, "a measurement ends");
            }
            writes
        }
    }

    #[test]
    fn the_motion_of_a_drive_is_measured_in_a_second() {
        for (turn_us, track_bytes) in
            [(8333.3, 1_000_000), (4000.0, 300_000), (11_111.1, 600_000), (8333.3, 2_300_000)]
        {
            let drive = Drive { turn_us, track_bytes, ..DRIVE };
            let mut pages = Pages::on(&drive);
            let writes = pages.measure();
            let State::Known { motion, ahead_us, .. } = &pages.head.state else {
                panic!("it turns")
            };
            let off = (motion.turn_ns as f64 / 1000.0 / turn_us - 1.0).abs();
            assert!(off < 0.001, "{motion:?} for {turn_us} us");
            let off = (motion.turn_bytes as f64 / track_bytes as f64 - 1.0).abs();
            assert!(off < 0.02, "{motion:?} for {track_bytes} bytes");
            assert!((300..700).contains(&ahead_us.value()), "{ahead_us:?}");
            assert!(writes < 150 && pages.now_us < 1_000_000, "{writes} in {} us", pages.now_us);
        }
    }

    #[test]
    fn lone_pages_wait_for_little_more_than_the_overhead() {
        let mut pages = Pages::on(&DRIVE);
        pages.measure();
        let (mut sum_us, mut late, count) = (0, 0, 4000);
        for number in 0..count {
            // Up to a third of a second.
            pages.now_us += number * 7919 % 333_333;
            let us = pages.write();
            sum_us += us;
            late += u64::from(us > 4000);
            pages.measure();
        }
        let mean_us = sum_us / count;
        assert!(mean_us < 900, "{mean_us} us of {} without predictions", 8333 / 2);
        assert!(late * 50 < count, "{late} of {count}");
    }

    #[test]
    fn a_drive_that_takes_one_command_at_a_time_writes_the_next_batch_at_a_distance() {
        for others in [Others::Written, Others::Queued] {
            let drive = Drive { overlaps: false, ..DRIVE };
            let mut pages = Pages::on(&drive);
            pages.measure();
            let (mut sum_us, count) = (0, 2000);
            for number in 0..count {
                pages.now_us += number * 7919 % 33_333;
                sum_us += pages.write_two(others);
                pages.measure();
            }
            let State::Known { ahead_us, distance, .. } = &pages.head.state else {
                panic!("it turns")
            };
            assert!((300..700).contains(&ahead_us.value()), "misses of others: {ahead_us:?}");
            assert!((300..500).contains(&distance.us()), "{distance:?}");
            let mean_us = sum_us / count;
            assert!(mean_us < 1600, "{mean_us}");
        }
    }

    #[test]
    fn a_drive_that_takes_more_commands_goes_on_without_a_gap() {
        let mut pages = Pages::on(&DRIVE);
        pages.measure();
        for number in 0..2000 {
            pages.now_us += number * 7919 % 33_333;
            pages.write_two(Others::Queued);
            pages.measure();
        }
        let State::Known { distance, .. } = &pages.head.state else { panic!("it turns") };
        assert_eq!(distance.us(), 0, "{distance:?}");
    }

    #[test]
    fn a_host_that_needs_longer_has_a_longer_look_ahead_soon() {
        let mut pages = Pages::on(&DRIVE);
        pages.measure();
        let slower = Drive { overhead_us: 900.0, ..DRIVE };
        pages.drive = &slower;
        for number in 0..300 {
            pages.now_us += number * 7919 % 33_333;
            pages.write();
        }
        let late = (0..1000).filter(|number| {
            pages.now_us += number * 7919 % 33_333;
            pages.write() > 4000
        });
        let late = late.count();
        assert!(late < 50, "{late} of 1000");
    }

    #[test]
    fn where_nothing_turns_nothing_is_predicted() {
        let mut head = Head::new(PAGE, GAP_MAX, None);
        let (mut cursor, mut now_us) = (0, 0);
        for number in 0..100 {
            let place = cursor + head.gap().unwrap_or(0);
            let began_us = now_us;
            now_us += 80 + number * 7919 % 20;
            cursor = place + PAGE;
            head.ended(&Ended { place, bytes: PAGE, began_us, expected: None }, now_us);
        }
        assert!(matches!(head.state, State::Unpredictable));
        let aim = head.aim(cursor, PAGE, now_us, Others::None);
        assert_eq!((head.gap(), aim), (None, None));
    }

    #[test]
    fn a_measurement_that_gets_nowhere_ends() {
        let mut head = Head::new(PAGE, GAP_MAX, None);
        let mut batches = 0;
        while head.gap().is_some() {
            batches += 1;
            let began_us = batches * 20_000;
            // Long after the one before.
            let ended = Ended { place: batches * PAGE, bytes: PAGE, began_us, expected: None };
            head.ended(&ended, began_us + 8000);
        }
        assert!((1000..4000).contains(&batches), "{batches}");
    }

    #[test]
    fn a_drive_that_is_no_longer_understood_is_measured_again_and_then_left_alone() {
        let mut pages = Pages::on(&DRIVE);
        for attempt in 1..=ATTEMPTS_MAX {
            pages.measure();
            assert!(pages.head.is_known(), "{attempt}");
            // The look-ahead becomes longer after two each, up to half a turn.
            let mut misses = 0;
            while pages.head.is_known() {
                misses += 1;
                let ended = Ended {
                    place: pages.cursor,
                    bytes: PAGE,
                    began_us: pages.now_us,
                    expected: Some(Expected { us: 500, behind: None, bound: Bound::Ahead }),
                };
                pages.now_us += 8000;
                assert_eq!(pages.head.ended(&ended, pages.now_us), Some(false));
            }
            assert!((MISSES_MAX..40).contains(&misses), "{misses}");
        }
        assert!(matches!(pages.head.state, State::Unpredictable));
    }

    #[test]
    fn it_is_measured_again_further_on() {
        let mut pages = Pages::on(&DRIVE);
        pages.measure();
        pages.cursor += MEASURED_FOR_BYTES / 2;
        pages.write();
        assert!(pages.head.is_known());
        pages.cursor += MEASURED_FOR_BYTES / 2;
        pages.write();
        // What is that far behind the last write is not predicted.
        pages.write();
        assert!(pages.head.gap().is_some());
    }

    #[test]
    fn a_batch_goes_behind_those_on_their_way_if_the_head_has_not_passed_them() {
        let motion = Motion { turn_ns: 8_000_000, turn_bytes: 800 * PAGE };
        let mut head = Head::new(PAGE, GAP_MAX, Some(motion));
        assert_eq!(head.aim(PAGE, PAGE, 0, Others::None), None, "nothing has passed yet");
        let ended = Ended { place: 0, bytes: PAGE, began_us: 0, expected: None };
        head.ended(&ended, 1000);
        // The look-ahead is half a turn, the distance none, and a page passes in 10 us.
        let aim = |cursor, now_us, others| {
            let Aim { skip, expected } = head.aim(cursor, PAGE, now_us, others).expect("known");
            (skip / PAGE, expected.us, expected.behind)
        };
        assert_eq!(aim(PAGE, 1000, Others::None), (400, 4010, None));
        assert_eq!(aim(PAGE, 3000, Others::None), (600, 4010, None));
        assert_eq!(aim(PAGE, 1000 + 8000 * 9, Others::None), (400, 4010, None), "turns later");
        let cursor = 501 * PAGE;
        assert_eq!(aim(cursor, 1000, Others::Written), (0, 10, Some(cursor)));
        assert_eq!(aim(cursor, 2500, Others::Written), (50, 510, Some(cursor)));
        assert_eq!(aim(cursor, 2500, Others::Queued), (0, 10, Some(cursor)));
    }
}
