//! The running log: append, dispatch, complete, release.
//!
//! Invariants: `flights[i]` is batch `durable_batch + 1 + i`; the open batch has at least one
//! record; sealed batches and then the open one hold the sequences after `dispatched`, in order; no
//! batch without records is dispatched while one of them waits.

mod distance;
mod growth;
mod head;
mod least;
mod room;
mod stride;
mod train;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use self::head::{Ended, Head};
pub use self::room::LogRoom;
use self::room::reserve_of;
use self::stride::Stride;
use super::assembly::{Assembly, Pool};
use super::format::{
    self, BatchHeader, DEVICES_MAX, NO_DEVICE, RECORD_HEADER_BYTES, SKIP_BYTES_MAX,
};
use super::ring::Ring;
use super::{
    AppendError, LOG_TOKEN_BIT, LogConfig, LogFailure, LogRegion, Quota, Seq, StreamId, UNIT_BYTES,
    Urgency,
};
use crate::broken::{self, Fault};
use crate::device::{
    self, Buffer, Class, Completion, Devices, Hint, Operation, Request, Token, WriteMode,
};
use crate::error::{ClosedError, Error, RequestError};
use crate::metrics::{LogRefusal, Metrics};

/// A batch being written to a device.
#[derive(Debug)]
struct Flight {
    offset: u64,
    last_seq: Seq,
    what: Written,
    done: bool,
}

/// What is measured of a batch.
#[derive(Clone, Copy, Debug)]
struct Written {
    device: u16,
    has_records: bool,
    ended: Ended,
}

/// The place of the youngest batch, to which the next one points back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) device: u16,
    pub(super) page: u32,
    pub(super) epoch: u64,
}

impl Link {
    /// The link of the very first batch.
    pub(super) const NONE: Self = Self { device: NO_DEVICE, page: 0, epoch: 0 };
}

/// An open log. Every call except [`Log::format`] works on memory only.
#[derive(Debug)]
pub struct Log {
    config: LogConfig,
    seed: u32,
    streams: BTreeMap<StreamId, String>,
    rings: Vec<Ring>,
    open: Option<Assembly>,
    sealed: VecDeque<Assembly>,
    sealed_bytes: u64,
    flights: VecDeque<Flight>,
    /// Free places in the devices' pipelines, in the order in which they were freed.
    places: VecDeque<u16>,
    durable_batch: u64,
    /// The first batch number of this run.
    run_first: u64,
    previous: Link,
    last: Seq,
    dispatched: Seq,
    durable: Seq,
    /// Largest number of records that recently waited concurrently; decays with every batch.
    waiting_max: u64,
    /// The sequence released by the owner; the rings see at most `durable` of it.
    released: Seq,
    /// An append was refused for lack of space since the last growth of a ring began.
    pub(super) has_refused: bool,
    failed: bool,
    /// Whether the train may run: see `writer/train.rs`.
    has_train: bool,
    pool: Pool,
    /// Devices that have completed a write since the log was opened.
    proven: Vec<bool>,
    /// The batches that have completed since the last dispatch.
    ended: Vec<Written>,
    /// Per device: how long the batches of its train are.
    strides: Vec<Stride>,
    /// Per device: where its head will be.
    heads: Vec<Head>,
    metrics: Arc<Metrics>,
}

impl Log {
    /// Creates a log: writes every ring once in full with zeros, one request at a time, so that
    /// later writes never hit space that a file system has yet to allocate.
    ///
    /// # Errors
    /// [`RequestError::BadConfig`], or [`ClosedError::WriteFailed`]: repair the device, try again.
    pub fn format(devices: &mut dyn Devices, config: &LogConfig) -> Result<(), Error> {
        config.check()?;
        config.check_devices(devices)?;
        for region in &config.regions {
            let device = region.device;
            let mut done = 0;
            while done < region.bytes {
                let bytes = u64::from(config.bulk.request_bytes).min(region.bytes - done);
                let offset = region.offset + done;
                device::write_alone(devices, device, offset, Buffer::zeroed(bytes as usize))
                    .map_err(|error| ClosedError::WriteFailed {
                        device,
                        offset: Some(offset),
                        error,
                    })?;
                done += bytes;
            }
        }
        Ok(())
    }

    /// An empty log after `last`; `config` is checked.
    pub(super) fn new(config: LogConfig, number: u64, previous: Link, last: Seq) -> Self {
        let segment_bytes = u64::from(config.segment_bytes);
        let page_bytes = u64::from(config.page_bytes);
        let ring = |region: &LogRegion| Ring::new(*region, segment_bytes, page_bytes);
        let rings: Vec<_> = config.regions.iter().map(ring).collect();
        let places_max = rings.len() * usize::from(config.depth);
        let stride = Stride::new(u64::from(config.batch_bytes), UNIT_BYTES);
        let head = Head::new(page_bytes, skip_max(segment_bytes, page_bytes) / 2, config.motion);
        Self {
            seed: format::record_seed(&config.store, config.epoch),
            streams: BTreeMap::new(),
            open: None,
            sealed: VecDeque::new(),
            sealed_bytes: 0,
            flights: VecDeque::new(),
            places: (0..rings.len() as u16).collect(),
            durable_batch: number,
            run_first: number + 1,
            previous,
            last,
            dispatched: last,
            durable: last,
            waiting_max: 0,
            released: Seq::FIRST,
            has_refused: false,
            failed: false,
            has_train: false,
            pool: Pool::new(config.batch_bytes as usize, 2 * places_max),
            proven: vec![false; rings.len()],
            ended: Vec::new(),
            strides: vec![stride; rings.len()],
            heads: vec![head; rings.len()],
            metrics: Arc::default(),
            rings,
            config,
        }
    }

    pub(super) fn resume_ring(
        &mut self,
        device: usize,
        cursor_page: u32,
        last_seqs: &[Seq],
        lap_start: Option<Seq>,
    ) {
        let released = self.reclaimable();
        self.rings[device].resume(cursor_page, last_seqs, lap_start, released);
    }

    /// The identity of the stream called `name`.
    ///
    /// # Errors
    /// [`RequestError::BadConfig`] if another name opened in this run has the same identity: pick
    /// another name.
    pub fn open(&mut self, name: &str) -> Result<StreamId, RequestError> {
        let id = StreamId::of(name);
        let known = self.streams.entry(id).or_insert_with(|| name.to_owned());
        if known == name {
            return Ok(id);
        }
        let reason = format!("{name:?} has the same identity as {known:?}: pick another name");
        Err(RequestError::BadConfig { setting: "stream", reason })
    }

    /// Appends a record of `payload_len` bytes, which `fill` writes in place, and returns its
    /// sequence. Call [`Log::dispatch`] after one or more appends. `fill` gets exactly
    /// `payload_len` bytes of any content and must write all of them.
    ///
    /// Cost: one copy and one checksum of the record; no allocation except an occasional batch
    /// buffer.
    ///
    /// # Errors
    /// See [`AppendError`]; nothing was appended and `fill` was not called.
    #[inline]
    pub fn append(
        &mut self,
        stream: StreamId,
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]),
        urgency: Urgency,
        quota: Quota,
        now_us: u64,
    ) -> Result<Seq, AppendError> {
        let record_bytes = RECORD_HEADER_BYTES.saturating_add(payload_len);
        // Within the pages that the open batch takes anyway, nothing can be refused.
        let roomy = self.open.as_ref().is_some_and(|open| {
            open.fits(record_bytes) && open.bytes_with(record_bytes) == open.bytes()
        });
        if !roomy || self.failed {
            self.make_room(payload_len, quota, now_us)?;
        }
        let open = self.open.as_mut().expect("make_room leaves an open batch with room");
        let seq = self.last.next();
        let end = open.used + record_bytes;
        let record = &mut open.buffer[open.used..end];
        fill(&mut record[RECORD_HEADER_BYTES..]);
        format::seal_record(record, self.seed, stream, seq, true);
        open.used = end;
        open.records += 1;
        open.urgent |= urgency == Urgency::Now;
        self.last = seq;
        if end > self.config.batch_bytes as usize {
            self.seal();
        }
        Ok(seq)
    }

    /// As [`Log::append`], with a payload of several parts back to back.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn append_parts(
        &mut self,
        stream: StreamId,
        parts: &[&[u8]],
        urgency: Urgency,
        quota: Quota,
        now_us: u64,
    ) -> Result<Seq, AppendError> {
        let payload_len = parts.iter().map(|part| part.len()).sum();
        let fill = |mut room: &mut [u8]| {
            for part in parts {
                let (head, rest) = room.split_at_mut(part.len());
                head.copy_from_slice(part);
                room = rest;
            }
        };
        self.append(stream, payload_len, fill, urgency, quota, now_us)
    }

    /// Ensures that the open batch has room for the record, or refuses before anything has changed.
    #[cold]
    fn make_room(&mut self, payload: usize, quota: Quota, now_us: u64) -> Result<(), AppendError> {
        if self.failed {
            return Err(AppendError::Failed);
        }
        let limit = self.config.record_bytes_max();
        if payload > limit {
            return Err(AppendError::TooLong { limit });
        }
        let record_bytes = RECORD_HEADER_BYTES + payload;
        let open_bytes = self.open.as_ref().map_or(0, Assembly::bytes);
        let waiting = self.sealed.len() + usize::from(self.open.is_some());
        if let Some(open) = self.open.as_ref().filter(|open| open.fits(record_bytes)) {
            let bytes = self.sealed_bytes + open.bytes_with(record_bytes);
            return self.check_space(bytes, waiting, quota);
        }
        let bytes = format::batch_bytes(record_bytes, self.config.page_bytes);
        let long = bytes > u64::from(self.config.batch_bytes);
        let sealed_max = self.sealed_max();
        let queue_bytes = sealed_max as u64 * u64::from(self.config.batch_bytes);
        let queued = self.sealed_bytes + open_bytes;
        // A long record is sealed at once. Several wait until the sealed ones have gone out, which
        // they do without further appends.
        let too_many = waiting + usize::from(long) > sealed_max;
        if too_many || (long && self.sealed_bytes > 0 && queued + bytes > queue_bytes) {
            self.metrics.log_refusals_total[LogRefusal::Busy].add(1);
            return Err(AppendError::Busy);
        }
        self.check_space(queued + bytes, waiting + 1, quota)?;
        self.seal();
        let buffer = self.pool.take(bytes as usize);
        let mut open = Assembly::new(buffer, self.config.page_bytes, self.last.next(), now_us);
        open.limit_to(self.batch_bytes_now().max(bytes));
        self.open = Some(open);
        Ok(())
    }

    fn places_max(&self) -> usize {
        self.rings.len() * usize::from(self.config.depth)
    }

    fn sealed_max(&self) -> usize {
        self.places_max() + 2
    }

    fn seal(&mut self) {
        if let Some(open) = self.open.take() {
            self.sealed_bytes += open.bytes();
            self.sealed.push_back(open);
        }
    }

    /// Lets the records up to this one be written without delay, as if its caller had waited from
    /// the beginning. If it returns true, call [`Log::dispatch`] afterwards; otherwise there is
    /// nothing to do.
    pub fn hurry(&mut self, seq: Seq) -> bool {
        let delayed = self.open.as_mut().filter(|open| open.first_seq <= seq && !open.urgent);
        delayed.map(|open| open.urgent = true).is_some()
    }

    /// Appends to `requests` a write for every batch that is due: sealed ones, and the open one if
    /// a record in it is urgent or has waited `delay_us_max`, while devices have free places. An
    /// open batch that expects more records (group commit) waits for them while its device writes
    /// another. Call after appends, after completions, and at [`Log::deadline_us`].
    ///
    /// Once a train was started, batches without records follow while it has room: in
    /// [`LogMode::Full`](super::LogMode::Full) every free place is used, in
    /// [`LogMode::Sentinel`](super::LogMode::Sentinel) one on each device.
    ///
    /// Every request is of [`Class::Log`], has [`LOG_TOKEN_BIT`] in its token, and requires stable
    /// media; its deadline is immediate if a caller waits, else the time at which the batch would
    /// be written anyway.
    pub fn dispatch(&mut self, now_us: u64, requests: &mut Vec<Request>) {
        for Written { device, has_records, ended } in self.ended.drain(..) {
            if has_records {
                let took = Duration::from_micros(now_us.saturating_sub(ended.began_us));
                self.metrics.log_write_seconds.record(took);
            }
            if self.has_train && self.config.mode.skips() {
                let came_true = self.heads[usize::from(device)].ended(&ended, now_us);
                self.metrics.log_predictions_total.add(u64::from(came_true.is_some()));
                self.metrics.log_predictions_failed_total.add(u64::from(came_true == Some(false)));
            } else if self.has_train {
                self.strides[usize::from(device)].ended(ended.bytes, now_us);
            }
        }
        if self.train_runs() {
            self.dispatch_train(now_us, requests);
        } else if self.has_train {
            self.strides.iter_mut().for_each(Stride::pause);
        }
        loop {
            let due = |open: &Assembly| open.urgent || now_us >= self.due_us(open);
            let Some(batch) = self.sealed.front().or(self.open.as_ref().filter(|open| due(open)))
            else {
                break;
            };
            let bytes = batch.bytes();
            let delayed = self.sealed.is_empty() && !batch.urgent;
            let only_idle = self.sealed.is_empty() && self.expects_more(batch, now_us);
            let Some((position, place)) = self.vacancy(bytes, only_idle) else { break };
            let batch = self.next_waiting();
            self.metrics.log_delayed_batches_total.add(u64::from(delayed));
            requests.push(self.launch(batch, position, place, bytes, now_us));
        }
    }

    /// Takes out the batch of the oldest records that wait.
    fn next_waiting(&mut self) -> Assembly {
        if self.sealed.is_empty() {
            self.seal();
        }
        let batch = self.sealed.pop_front().expect("one was there or was sealed");
        self.sealed_bytes -= batch.bytes();
        batch
    }

    /// Whether the open batch should wait: some of the recently active committers have not queued
    /// again (the owner itself may be one of them), it has room for a record of theirs, and it has
    /// less than twice the records in flight. Few large batches cost processors and device less
    /// than many small ones.
    fn expects_more(&self, open: &Assembly, now_us: u64) -> bool {
        let on_the_way = self.dispatched.since(self.durable);
        now_us < self.due_us(open)
            && self.last.since(self.durable) + 1 < self.waiting_max
            && u64::from(open.records) < 2 * on_the_way
            && open.has_room()
    }

    /// The free pipeline place for a batch of `bytes`, optionally only of an idle device, and its
    /// place on that device.
    fn vacancy(&self, bytes: u64, only_idle: bool) -> Option<(usize, u64)> {
        self.vacancy_of(bytes, |device| {
            !((only_idle || self.measures_with(device, bytes)) && self.is_writing(device))
        })
    }

    fn is_writing(&self, device: u16) -> bool {
        self.flights.iter().any(|flight| flight.what.device == device && !flight.done)
    }

    /// The same of a device that suits.
    fn vacancy_of(&self, bytes: u64, suits: impl Fn(u16) -> bool) -> Option<(usize, u64)> {
        if self.failed || self.flights.len() >= 8 * self.places_max() {
            return None;
        }
        let place = |device: &u16| {
            let ring = suits(*device).then(|| &self.rings[usize::from(*device)]);
            let place = ring?.place(bytes)?;
            self.is_within_reach(*device, place).then_some(place)
        };
        self.places.iter().enumerate().find_map(|(at, device)| Some((at, place(device)?)))
    }

    fn due_us(&self, open: &Assembly) -> u64 {
        open.since_us.saturating_add(self.config.delay_us_max)
    }

    /// Binds a batch to its number, to the device of the free place at `position`, and to `place`
    /// there, or behind that where the head is expected. `bytes` are written, which may be more
    /// than it has.
    fn launch(
        &mut self,
        mut batch: Assembly,
        position: usize,
        place: u64,
        bytes: u64,
        now_us: u64,
    ) -> Request {
        let device = self.places.remove(position).expect("found at this position");
        let (last_seq, has_records) = (batch.last_seq(), batch.records > 0);
        let number = self.durable_batch + self.flights.len() as u64 + 1;
        let (place, expected) = self.place_ahead(device, place, bytes, now_us);
        let ring = &mut self.rings[usize::from(device)];
        ring.take(place, bytes, batch.needed_for());
        let (target, offset) = (ring.region.device, ring.region.offset + place);
        let wait_us = if batch.urgent { 0 } else { self.due_us(&batch).saturating_sub(now_us) };
        let mut cursors = [0; DEVICES_MAX];
        for (cursor, ring) in cursors.iter_mut().zip(&self.rings) {
            *cursor = ring.cursor_page();
        }
        let page = self.rings[usize::from(device)].page_of(place);
        let header = BatchHeader {
            device,
            skips: self.config.mode.skips(),
            store: self.config.store,
            epoch: self.config.epoch,
            number,
            first_seq: batch.first_seq,
            durable: self.durable_batch,
            previous_epoch: self.previous.epoch,
            page,
            previous_page: self.previous.page,
            previous_device: self.previous.device,
            devices: self.rings.len() as u16,
            records: batch.records,
            record_bytes: batch.record_bytes() as u32,
            cursors,
            run_first: self.run_first,
        };
        header.encode(&mut batch.buffer);
        batch.buffer[batch.used..bytes as usize].fill(0);
        batch.count(bytes, &self.metrics);
        self.previous = Link { device, page, epoch: self.config.epoch };
        self.dispatched = last_seq;
        let ended = Ended { place, bytes, began_us: now_us, expected };
        let what = Written { device, has_records, ended };
        self.flights.push_back(Flight { offset, last_seq, what, done: false });
        // A device writes the visible part of a buffer.
        batch.buffer.shorten(bytes as usize);
        let mode = WriteMode::Stable;
        let operation = Operation::Write { offset, buffer: batch.buffer, mode };
        let deadline = Some(Duration::from_micros(wait_us));
        let hint = Hint { class: Class::Log, owner: None, deadline };
        Request { device: target, token: Token(LOG_TOKEN_BIT | number), hint, operation }
    }

    /// Handles the completion of a request that [`Log::dispatch`] returned. Call `dispatch`
    /// afterwards.
    ///
    /// # Errors
    /// [`LogFailure`] if the write failed: the log is poisoned, [`Log::durable`] never passes this
    /// batch, and nothing more is dispatched.
    ///
    /// # Panics
    /// If the completion is not that of a batch in flight.
    pub fn complete(&mut self, completion: Completion) -> Result<(), LogFailure> {
        let number = completion.token.0 & !LOG_TOKEN_BIT;
        let index = number.wrapping_sub(self.durable_batch + 1);
        let flight = usize::try_from(index).ok().and_then(|index| self.flights.get_mut(index));
        let flight = flight.expect("a completion of a batch in flight");
        assert!(!flight.done, "a request completes once");
        if let Some(buffer) = completion.buffer {
            self.pool.give(buffer);
        }
        if let Err(error) = completion.result {
            self.failed = true;
            return Err(LogFailure { device: completion.device, offset: flight.offset, error });
        }
        flight.done = true;
        self.waiting_max = self.last.since(self.durable).max(self.waiting_max * 15 / 16);
        let device = flight.what.device;
        self.ended.push(flight.what);
        let is_proven = std::mem::replace(&mut self.proven[usize::from(device)], true);
        let places = if is_proven { 1 } else { usize::from(self.config.depth) };
        self.places.extend(std::iter::repeat_n(device, places));
        let before = self.durable;
        while self.flights.front().is_some_and(|flight| flight.done) {
            let flight = self.flights.pop_front().expect("just seen");
            self.durable = flight.last_seq;
            self.durable_batch += 1;
        }
        if before < self.released {
            self.reclaim();
        }
        Ok(())
    }

    /// Every record up to this sequence is on stable media. Never decreases.
    #[must_use]
    pub fn durable(&self) -> Seq {
        if broken::is(Fault::EarlyAcknowledgement) {
            return self.dispatched;
        }
        if broken::is(Fault::AcknowledgementOverGap) {
            let last_done = self.flights.iter().rfind(|flight| flight.done);
            return last_done.map_or(self.durable, |flight| flight.last_seq);
        }
        self.durable
    }

    /// The number of the batch that a record is in, or will be; of a durable one, a durable batch.
    #[must_use]
    pub fn batch_of(&self, seq: Seq) -> u64 {
        let flights = self.flights.partition_point(|flight| flight.last_seq < seq);
        let sealed = self.sealed.partition_point(|batch| batch.last_seq() < seq);
        self.durable_batch + (flights + sealed) as u64 + u64::from(seq > self.durable)
    }

    /// The sequence of the youngest record, durable or not; [`Seq::NONE`] if there is none.
    #[must_use]
    pub fn last(&self) -> Seq {
        self.last
    }

    /// When [`Log::dispatch`] must be called at the latest, if nothing else happens before: the
    /// open batch waits for more records and a device has a free place, or how a drive moves is
    /// being measured.
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        let Some(open) = self.open.as_ref() else { return self.measures_at_us() };
        let idle = self.sealed.is_empty() && self.vacancy(open.bytes(), false).is_some();
        (idle && !open.urgent).then(|| self.due_us(open))
    }

    /// Declares that no sequence below `below` is needed by any recovery from now on: the sequence
    /// to recover from is `below` or higher, and that is durable elsewhere. Lower values than
    /// before have no effect. Cost: O(segments).
    pub fn release(&mut self, below: Seq) {
        if below > self.released {
            self.released = below;
            self.reclaim();
        }
    }

    /// Everything below this sequence was released.
    #[must_use]
    pub fn kept_from(&self) -> Seq {
        self.released
    }

    fn reclaim(&mut self) {
        let released = self.reclaimable();
        self.rings.iter_mut().for_each(|ring| ring.reclaim(released));
    }

    /// The segment of the youngest durable batch stays, so that recovery always finds the end.
    fn reclaimable(&self) -> Seq {
        self.released.min(self.durable).max(Seq::FIRST)
    }

    /// The sequence up to which to [`release`](Log::release) in order to free at least one segment,
    /// once it is durable; `None` if every segment is free or being filled. Cost: O(segments).
    #[must_use]
    pub fn oldest_segment_last_seq(&self) -> Option<Seq> {
        let released = self.reclaimable();
        self.rings.iter().filter_map(|ring| ring.oldest_last_seq(released)).min()
    }

    /// Longest payload in bytes that [`Log::append`] takes.
    #[must_use]
    pub fn record_bytes_max(&self) -> usize {
        self.config.record_bytes_max()
    }

    /// Memory of all batch buffers in bytes, those lent to devices included: at most `2 * devices *
    /// depth + 3` batches, plus a segment per place in the pipeline for long records.
    #[must_use]
    pub fn buffer_bytes(&self) -> u64 {
        self.pool.bytes
    }

    /// Whether a write failed.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// The configuration of this run.
    #[must_use]
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// The metrics: the log updates them, and its owner shares them.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }
}

/// Furthest that a batch of a page can be behind a cursor, in bytes.
fn skip_max(segment_bytes: u64, page_bytes: u64) -> u64 {
    (segment_bytes - page_bytes).min(SKIP_BYTES_MAX - page_bytes)
}
