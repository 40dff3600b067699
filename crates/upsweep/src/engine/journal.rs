//! The journal: the log with its two streams, and what takes effect when its records are durable.
//!
//! Every change of the directory takes effect in log order, when its record is durable. Until then
//! it waits in a queue here. Records that contain only updates are not queued here: they reach the
//! queues of blocks at once.
//!
//! While a checkpoint *carries* changes, the directory is ahead of the log: no other record of the
//! engine is appended until that checkpoint is complete, because it might build on a carried
//! change.
//!
//! Invariant: sequences in the queue ascend, and everything up to `published` has taken effect.

use std::collections::VecDeque;

use super::event::Event;
use super::io::{RunId, SpillId};
use crate::broken::{self, Fault};
use crate::device::{Completion, Request};
use crate::error::RequestError;
use crate::log::{AppendError, Log, LogFailure, Quota, Seq, StreamId, Urgency};

/// Name of the log stream of updates.
const UPDATE_STREAM: &str = "updates";
/// Name of the log stream of changes: directory, spaces, modifiers.
const CHANGE_STREAM: &str = "changes";

/// What takes effect when a log record is durable.
pub(super) enum Publish {
    Run(RunId),
    Spill(SpillId),
    Event(Event),
    Nothing,
}

/// The log and what depends on it.
pub(super) struct Journal {
    log: Log,
    updates: StreamId,
    changes: StreamId,
    /// Changes that are not in effect yet, by the sequence of their record.
    waiting: VecDeque<(Seq, Publish)>,
    published: Seq,
    /// The last record when a checkpoint began to carry changes, until that is complete.
    carried_at: Option<Seq>,
    is_left_to_callers: bool,
}

impl Journal {
    /// A journal in which nothing waits.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub(super) fn new(mut log: Log) -> Result<Self, RequestError> {
        let (updates, changes) = (log.open(UPDATE_STREAM)?, log.open(CHANGE_STREAM)?);
        Ok(Self {
            log,
            updates,
            changes,
            waiting: VecDeque::new(),
            published: Seq::NONE,
            carried_at: None,
            is_left_to_callers: false,
        })
    }

    /// The log.
    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    /// The log, to extend it or to release a part of it.
    pub(super) fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Everything up to this sequence is on stable media.
    pub(super) fn durable(&self) -> Seq {
        self.log.durable()
    }

    /// The last sequence that was given to a record.
    pub(super) fn last(&self) -> Seq {
        self.log.last()
    }

    /// Whether no record is being written to a device.
    pub(super) fn is_idle(&self) -> bool {
        self.log.durable() == self.log.last()
    }

    /// Whether this is the stream of the engine's own records.
    pub(super) fn is_of_changes(&self, stream: StreamId) -> bool {
        stream == self.changes
    }

    /// Seals and writes batches that are due.
    pub(super) fn dispatch(&mut self, now_us: u64, requests: &mut Vec<Request>) {
        self.log.dispatch(now_us, requests);
    }

    /// Handles the completion of a request of the log.
    ///
    /// # Errors
    /// [`LogFailure`] if the write failed; see [`Log::complete`].
    pub(super) fn complete(&mut self, completion: Completion) -> Result<(), LogFailure> {
        self.log.complete(completion)
    }

    /// Appends a record of updates of this many bytes, which `fill` writes in place.
    pub(super) fn append_updates(
        &mut self,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
        urgency: Urgency,
        now_us: u64,
    ) -> Result<Seq, AppendError> {
        self.log.append(self.updates, bytes, fill, urgency, Quota::User, now_us)
    }

    /// Appends a record of the engine itself, which may use the log's reserve.
    pub(super) fn append(
        &mut self,
        payload: &[u8],
        publish: Publish,
        now_us: u64,
    ) -> Result<Seq, AppendError> {
        assert!(!self.is_ahead(), "what is carried comes before what is logged");
        let (urgency, quota) = (Urgency::Now, Quota::Internal);
        let seq = self.log.append_parts(self.changes, &[payload], urgency, quota, now_us)?;
        self.publish_at(seq, publish);
        Ok(seq)
    }

    /// As [`Journal::append`], for a run or a spill: it finds no room while the log is left to
    /// callers.
    pub(super) fn append_change(
        &mut self,
        payload: &[u8],
        publish: Publish,
        now_us: u64,
    ) -> Result<Seq, AppendError> {
        if self.is_left_to_callers {
            return Err(AppendError::Full);
        }
        self.append(payload, publish, now_us)
    }

    /// Makes something take effect when the record of this sequence is durable.
    pub(super) fn publish_at(&mut self, seq: Seq, publish: Publish) {
        assert!(seq > self.published, "what is published is over");
        assert!(self.waiting.back().is_none_or(|last| last.0 <= seq), "in log order");
        debug_assert!(seq <= self.log.last(), "it has a record");
        self.waiting.push_back((seq, publish));
    }

    /// Takes out the next change, if its record is durable.
    pub(super) fn next_durable(&mut self) -> Option<(Seq, Publish)> {
        let durable = self.takes_effect();
        let (seq, publish) = self.waiting.pop_front_if(|next| next.0 <= durable)?;
        assert!(self.published <= seq && seq <= durable, "in log order, and not too early");
        self.published = seq;
        debug_assert!(self.waiting.front().is_none_or(|next| next.0 >= seq), "in log order");
        Some((seq, publish))
    }

    /// Records up to this one may take effect.
    fn takes_effect(&self) -> Seq {
        if broken::is(Fault::EarlyPublication) { self.log.last() } else { self.log.durable() }
    }

    /// Records that have nothing to publish are published once they are durable.
    pub(super) fn pass_updates(&mut self) {
        if self.waiting.is_empty() {
            self.published = self.published.max(self.takes_effect());
        }
        debug_assert!(self.published <= self.takes_effect(), "only durable records are in effect");
    }

    /// Recovery has put everything up to this sequence into effect.
    pub(super) fn recovered_through(&mut self, seq: Seq) {
        assert!(self.waiting.is_empty(), "recovery publishes at once");
        assert!(
            self.published <= seq && seq <= self.log.durable(),
            "recovery puts into effect what it has found"
        );
        self.published = seq;
    }

    /// Every record up to this one, other than pure updates, has taken effect.
    pub(super) fn published(&self) -> Seq {
        self.published
    }

    /// Whether everything other than pure updates has taken effect.
    pub(super) fn is_published(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The sequence of the next change to take effect.
    pub(super) fn next_waiting(&self) -> Option<Seq> {
        self.waiting.front().map(|(seq, _)| *seq)
    }

    /// Changes that are logged and not in effect yet, except those of runs and spills.
    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.waiting.iter().filter_map(|(_, publish)| match publish {
            Publish::Event(event) => Some(event),
            _ => None,
        })
    }

    /// A checkpoint carries changes from now on. They may contain updates of every record so far,
    /// so what is not durable yet is written without delay.
    pub(super) fn run_ahead(&mut self) {
        assert!(!self.is_ahead(), "one checkpoint carries at a time");
        self.carried_at = Some(self.log.last());
        self.log.hurry(self.log.last());
    }

    /// See [`Log::hurry`].
    pub(super) fn hurry(&mut self, seq: Seq) -> bool {
        self.log.hurry(seq)
    }

    /// Whether every record is durable whose updates the carried changes may contain. Before that
    /// these changes may not become durable: after a crash, new records would get the sequences of
    /// those that were lost, and count as contained in the images.
    pub(super) fn covers_carried(&self) -> bool {
        self.carried_at.is_none_or(|seq| self.log.durable() >= seq)
    }

    /// What was carried is durable.
    pub(super) fn caught_up(&mut self) {
        assert!(self.covers_carried(), "an image has only updates of durable records");
        self.carried_at = None;
    }

    /// Whether the directory has changes that only the next checkpoint makes durable: until then
    /// the engine may not append a record.
    pub(super) fn is_ahead(&self) -> bool {
        self.carried_at.is_some()
    }

    /// Whether checkpoints carry all runs and spills. Only a cycle can release the log, and it
    /// frees room for callers as it proceeds; its own changes would use up all of that.
    pub(super) fn leave_to_callers(&mut self, is_left: bool) {
        self.is_left_to_callers = is_left;
    }
}
