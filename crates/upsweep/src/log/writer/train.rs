//! The train (thesis 6.2.5): batches without records, *dummies*, that keep every device of the log
//! writing, so that the head of a drive is always over the cursor of its ring, and a record that
//! arrives is written where the head is about to be.
//!
//! In [`LogMode::Full`], while the train runs, each free place in the pipeline is used at once, by
//! the records that wait or by a dummy, and a batch takes at least the length that `stride.rs`
//! finds for its device. So a drive never runs out of writes, and each of them takes as long as the
//! next one needs to arrive.
//!
//! In [`LogMode::Sentinel`] a dummy is a single page, and one of them is on its way at a time. It
//! goes where the head is expected (`head.rs`), so its completion says where the head is, and it is
//! a look-ahead away from the one before. Records go where the head is expected, too: behind the
//! sentinel that is on its way if there is time enough, else further on. In [`LogMode::Predict`]
//! there are such batches only while the motion of a drive is measured.
//!
//! Invariants:
//! - A dummy is dispatched only while no record waits. So it takes nothing that was promised to a
//!   record ([`Quota`](crate::log::Quota)), and the number of the batch that a record will be in
//!   does not change ([`Log::batch_of`]).
//! - The train runs only while more than half of all segments are free, and more than the reserve
//!   that [`Quota::User`](crate::log::Quota::User) leaves and two others. A dummy is needed until
//!   the record after the next one is durable: there is room for both of these, whatever the train
//!   has taken. Without records it stops after about half a lap, and it goes on once the log was
//!   released.
//! - Batches skip only while more than a fourth of all segments is free, and so much besides the
//!   reserve that each of the others that wait, whose space was promised, could have a segment of
//!   its own.
//! - Dummies are no records: they wake nobody, have no sequence, and nothing waits for their end.

use super::head::{Expected, Head, Others};
use super::{Assembly, Log, SKIP_BYTES_MAX, Stride, reserve_of};
use crate::device::Request;
use crate::log::LogMode;

/// The train runs while more than one of so many parts of all segments is free: what it takes by
/// itself does not make anybody release the log earlier.
const TRAIN_FREE_PART: u64 = 2;
/// Batches skip while more than one of so many parts is: a store under load that has a log to hold
/// lets it become three fourths full.
const SKIP_FREE_PART: u64 = 4;

impl Log {
    /// Lets the train run, from the next [`Log::dispatch`] on, if the configuration has one.
    pub fn start_train(&mut self) {
        self.has_train = self.config.mode != LogMode::Idle;
    }

    /// Stops it. Batches without records that are in flight complete as others do.
    pub fn stop_train(&mut self) {
        self.has_train = false;
    }

    /// Distance in bytes from a batch without records to the next one, on the device where it is
    /// longest; 0 if there is no train.
    #[must_use]
    pub fn train_stride_bytes(&self) -> u64 {
        let longest = match self.config.mode {
            LogMode::Idle | LogMode::Predict => None,
            LogMode::Full => self.strides.iter().map(Stride::bytes).max(),
            LogMode::Sentinel => self.heads.iter().map(Head::ahead_bytes).max(),
        };
        longest.filter(|_| self.has_train).unwrap_or(0)
    }

    /// Devices on which the place of the head is known, so that batches go there.
    #[must_use]
    pub fn known_heads(&self) -> usize {
        let known = self.heads.iter().filter(|head| head.is_known()).count();
        if self.has_train && self.config.mode.skips() { known } else { 0 }
    }

    /// Capacity of the next batch: with a train no more than a stride, which is as fast, and what
    /// is in it is durable sooner (thesis 6.2.2); a page while a drive is being measured.
    pub(super) fn batch_bytes_now(&self) -> u64 {
        let page = u64::from(self.config.page_bytes);
        if (0..).zip(&self.rings).any(|(device, _)| self.measures_with(device, page)) {
            return page;
        }
        let stride = self.strides.iter().map(Stride::bytes).max();
        let is_limited = self.has_train && self.config.mode == LogMode::Full;
        stride.filter(|_| is_limited).unwrap_or(u64::from(self.config.batch_bytes))
    }

    /// Whether the train runs: a dummy is dispatched when nothing else is.
    #[inline]
    pub(super) fn train_runs(&self) -> bool {
        self.has_train && !self.failed && self.has_room_for_train()
    }

    fn has_room_for_train(&self) -> bool {
        self.has_free(TRAIN_FREE_PART, 0)
    }

    /// Whether more than one of so many parts of all segments is free, and more than the reserve,
    /// two others, and one for each of so many batches.
    fn has_free(&self, part: u64, batches: usize) -> bool {
        let segments: u64 = self.rings.iter().map(|ring| u64::from(ring.segments())).sum();
        let least = reserve_of(segments) + 2 + batches as u64;
        self.free_segments() > segments.div_ceil(part).max(least)
    }

    /// Batches with records that are not dispatched.
    fn waiting(&self) -> usize {
        self.sealed.len() + usize::from(self.open.is_some())
    }

    /// Fills every free place, or sends a sentinel to every idle device.
    pub(super) fn dispatch_train(&mut self, now_us: u64, requests: &mut Vec<Request>) {
        match self.config.mode {
            LogMode::Idle => {}
            LogMode::Full => self.fill_places(now_us, requests),
            LogMode::Sentinel | LogMode::Predict => self.send_pages(now_us, requests),
        }
    }

    fn fill_places(&mut self, now_us: u64, requests: &mut Vec<Request>) {
        while self.has_room_for_train() {
            let waiting = self.waiting();
            let next = self.sealed.front().or(self.open.as_ref());
            let Some(device) = self.places.front() else { return };
            let stride = self.strides[usize::from(*device)].bytes();
            // The space of others that wait is promised to them.
            let bytes = match next {
                Some(batch) if waiting > 1 => batch.bytes(),
                Some(batch) => batch.bytes().max(stride),
                None => stride,
            };
            let Some((position, place)) = self.vacancy(bytes, false) else { return };
            let batch = if waiting > 0 { self.next_waiting() } else { self.dummy(now_us) };
            requests.push(self.launch(batch, position, place, bytes, now_us));
        }
    }

    /// Sends a sentinel, or a page of a measurement, to each idle device that wants one.
    fn send_pages(&mut self, now_us: u64, requests: &mut Vec<Request>) {
        let bytes = u64::from(self.config.page_bytes);
        let is_wanted = |log: &Self, device: u16| {
            let head = &log.heads[usize::from(device)];
            let is_sentinel = log.config.mode == LogMode::Sentinel && head.is_known();
            let measures = head.measures_at_us().is_some_and(|at_us| at_us <= now_us);
            (is_sentinel || measures) && !log.is_writing(device)
        };
        while self.waiting() == 0
            && self.has_room_for_train()
            && let Some((position, place)) =
                self.vacancy_of(bytes, |device| is_wanted(self, device))
        {
            let batch = self.dummy(now_us);
            requests.push(self.launch(batch, position, place, bytes, now_us));
        }
    }

    /// Whether a batch of so many bytes is part of a measurement of this device. Such batches are
    /// one at a time.
    pub(super) fn measures_with(&self, device: u16, bytes: u64) -> bool {
        bytes == u64::from(self.config.page_bytes)
            && self.config.mode.skips()
            && self.heads[usize::from(device)].gap().is_some()
            && self.train_runs()
    }

    /// When a measurement goes on, if no records come and nothing else happens.
    pub(super) fn measures_at_us(&self) -> Option<u64> {
        if !self.config.mode.skips() || !self.train_runs() || self.waiting() > 0 {
            return None;
        }
        let page = u64::from(self.config.page_bytes);
        let has_place = |device: u16| {
            let suits = |other| other == device && !self.is_writing(device);
            self.vacancy_of(page, suits).is_some()
        };
        let heads = (0..).zip(&self.heads);
        let due = heads.filter_map(|(device, head)| Some((device, head.measures_at_us()?)));
        due.filter(|(device, _)| has_place(*device)).map(|(_, at_us)| at_us).min()
    }

    fn dummy(&mut self, now_us: u64) -> Assembly {
        let buffer = self.pool.take(self.config.page_bytes as usize);
        Assembly::new(buffer, self.config.page_bytes, self.last.next(), now_us)
    }

    /// Where to put a batch that would be at `place`: there, or behind it where the head is
    /// expected, in the same segment, or at the start of the next one if that is too far. And how
    /// long its write should take, if that is predicted. The first batch of a run, and the first of
    /// a segment, are where recovery looks for them first. Others that wait were promised space, so
    /// there has to be room for all of them.
    pub(super) fn place_ahead(
        &self,
        device: u16,
        place: u64,
        bytes: u64,
        now_us: u64,
    ) -> (u64, Option<Expected>) {
        let segment = u64::from(self.config.segment_bytes);
        let may_skip = self.config.mode.skips()
            && self.has_train
            && self.has_free(SKIP_FREE_PART, self.waiting())
            && self.previous.epoch == self.config.epoch
            && !place.is_multiple_of(segment);
        if !may_skip {
            return (place, None);
        }
        let head = &self.heads[usize::from(device)];
        let others = match (self.is_writing(device), self.waiting()) {
            (false, _) => Others::None,
            (true, 0) => Others::Written,
            (true, _) => Others::Queued,
        };
        let measures = others == Others::None && self.measures_with(device, bytes);
        let gap = head.gap().filter(|_| measures).map(|skip| (skip, None));
        let aimed = || {
            let aim = head.aim(place, bytes, now_us, others)?;
            Some((aim.skip, Some(aim.expected)))
        };
        let Some((skip, expected)) = gap.or_else(aimed) else { return (place, None) };
        let page = u64::from(self.config.page_bytes);
        let left = segment - place % segment - bytes;
        if skip <= left.min(SKIP_BYTES_MAX - page) {
            return (place + skip, expected);
        }
        let next = self.rings[usize::from(device)].next_segment();
        (next.filter(|next| self.is_within_reach(device, *next)).unwrap_or(place), None)
    }

    /// Whether recovery would find a batch without records there, or one after such a batch, if
    /// another before it got lost: at most one segment of a ring is entered beyond the youngest
    /// durable batch.
    #[inline]
    pub(super) fn is_within_reach(&self, device: u16, place: u64) -> bool {
        if self.config.mode == LogMode::Idle {
            return true;
        }
        let ring = &self.rings[usize::from(device)];
        let segment = u64::from(self.config.segment_bytes);
        let enters = |place: u64| place.is_multiple_of(segment);
        let has_entered = || {
            let mut flights = self.flights.iter().filter(|flight| flight.what.device == device);
            flights.any(|flight| enters(flight.offset - ring.region.offset))
        };
        !enters(place) || !has_entered()
    }
}
