//! The common base of all parts: settings, time, devices, log and index.
//!
//! A part of the engine, such as the sweep or the checkpointer, has its own state and works on the
//! base passed to it. A part may use only those below it; the order is a list in
//! `xtask/src/tidy/parts.rs`, which a test checks.

mod budget;

use std::sync::Arc;

use budget::FixedFigures;

use super::config::Config;
use super::directory::BlockId;
use super::flush::Flushes;
use super::gate::Gate;
use super::held::{self, Held};
use super::ids::SpaceId;
use super::index::Index;
use super::io::{Io, IoKind};
use super::journal::{Journal, Publish};
use super::measure::Measured;
use super::policy::Shortage;
use super::quarantine::Quarantine;
use super::registry::ModifierId;
use super::spill_segments::SpillSegment;
use super::waiters::Waiters;
use crate::device::{Completion, Token};
use crate::error::{ClosedError, Error, RequestError, RetryError};
use crate::log::{AppendError, LogFailure, Seq};
use crate::metrics::{Metrics, WaitCause};
use crate::placement::Extent;

/// What runs and spills are processing, as of the last pump; every admission needs it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InHand {
    /// Blocks of runs whose change is still to be logged.
    pub(super) unlogged_blocks: usize,
    /// How much blocks may grow by what is frozen, in bytes.
    pub(super) growth_bytes: u64,
    /// Memory for large values and long queues, in bytes.
    pub(super) values_bytes: usize,
}

/// The base of all parts. Each field keeps its state private.
pub(super) struct Base {
    pub(super) config: Config,
    pub(super) fixed: FixedFigures,
    pub(super) io: Io,
    pub(super) journal: Journal,
    pub(super) flushes: Flushes,
    pub(super) index: Index,
    pub(super) quarantine: Quarantine,
    /// What is held; `None` unless the store is open for upkeep.
    pub(super) held: Option<Held>,
    pub(super) waiters: Waiters,
    pub(super) gate: Gate,
    pub(super) in_hand: InHand,
    /// The metrics, including those of the log, which created them.
    pub(super) metrics: Arc<Metrics>,
    pub(super) measured: Measured,
    pub(super) now_us: u64,
    /// Everything that expires up to this time of day has expired: see
    /// [`ApplyInput::expired_us`](super::block_format::ApplyInput).
    pub(super) expired_us: u64,
    /// Target size of a block, in bytes, as of the last pump.
    pub(super) block_bytes: u32,
}

impl Base {
    /// The base of a store with nothing in progress.
    pub(super) fn new(config: Config, journal: Journal, index: Index) -> Self {
        let fixed = FixedFigures::new(&config, journal.log());
        Self {
            io: Io::default(),
            flushes: Flushes::default(),
            index,
            quarantine: Quarantine::default(),
            held: None,
            waiters: Waiters::default(),
            gate: Gate::default(),
            in_hand: InHand::default(),
            measured: Measured::new(Arc::clone(journal.log().metrics())),
            metrics: Arc::clone(journal.log().metrics()),
            journal,
            now_us: 0,
            expired_us: 0,
            block_bytes: config.block_bytes,
            fixed,
            config,
        }
    }

    /// Reads one image for the sweep; returns the token of the request.
    pub(super) fn read_for_sweep(
        &mut self,
        kind: IoKind,
        owner: Option<SpaceId>,
        extent: Extent,
    ) -> Token {
        self.metrics.sweep_read_bytes_total.add(extent.bytes.into());
        self.io.read(kind, owner, extent)
    }

    /// Seals and writes batches of the log that are due.
    pub(super) fn dispatch_log(&mut self) {
        let requests = self.io.outgoing();
        let before = requests.len();
        self.journal.dispatch(self.now_us, requests);
        if requests.len() > before {
            self.waiters.pipeline_moved();
        }
    }

    /// Handles a completion of the log.
    pub(super) fn complete_log(&mut self, completion: Completion) {
        if let Err(failure) = self.journal.complete(completion) {
            let LogFailure { device, offset, error } = failure;
            let offset = Some(offset);
            self.close(ClosedError::WriteFailed { device, offset, error });
        }
    }

    /// Moves the global frontier.
    pub(super) fn find_frontier(&mut self) {
        self.index.find_frontier(self.journal.next_waiting(), self.journal.last());
    }

    /// Ends an overdraft once the queues are within their limit.
    pub(super) fn settle_overdraft(&mut self) {
        let has_overdrawn = self.quarantine.overdraft_bytes() > 0;
        if has_overdrawn && self.index.queue_bytes() <= self.queue_limit_bytes() {
            self.quarantine.set_overdraft(0);
        }
    }

    /// Refuses everything from now on, for this reason (the first one counts).
    pub(super) fn close(&mut self, reason: ClosedError) {
        self.gate.close(reason);
        self.waiters.tell();
    }

    /// Closes the store if a write or flush that had to succeed has failed: what was acknowledged
    /// is in the log, but no more is accepted.
    pub(super) fn close_if_failed(&mut self, completion: &Completion, offset: Option<u64>) {
        if let Err(error) = &completion.result {
            let (device, error) = (completion.device, error.clone());
            self.close(ClosedError::WriteFailed { device, offset, error });
        }
    }

    /// Makes a caller wait for room: see [`Waiters::refuse`].
    pub(super) fn refuse(&mut self, shortage: Shortage) {
        self.waiters.refuse(shortage);
        self.measured.note_refusal(match shortage {
            Shortage::Log => WaitCause::Log,
            Shortage::Memory => WaitCause::Memory,
            Shortage::Device => WaitCause::Device,
        });
    }

    /// Makes a caller wait for the pipeline of the log: see [`Waiters::refuse_for_pipeline`].
    pub(super) fn refuse_for_pipeline(&mut self) {
        self.waiters.refuse_for_pipeline();
        self.measured.note_refusal(WaitCause::Pipeline);
    }

    /// Appends a record of the engine; if the log has no room, ensures that there will be some.
    ///
    /// # Errors
    /// [`RequestError::BatchTooLong`] for what will never fit; [`RetryError::Busy`].
    pub(super) fn append_or_make_room(
        &mut self,
        payload: &[u8],
        publish: Publish,
    ) -> Result<Seq, Error> {
        if self.journal.is_ahead() {
            return Err(RetryError::Busy.into());
        }
        self.journal.append(payload, publish, self.now_us).map_err(|error| match error {
            AppendError::TooLong { limit } => {
                RequestError::BatchTooLong { bytes: payload.len(), limit }.into()
            }
            AppendError::Busy | AppendError::Full | AppendError::Failed => {
                self.refuse(Shortage::Log);
                RetryError::Busy.into()
            }
        })
    }

    /// Drops a spill segment if no block has any of its updates.
    pub(super) fn drop_unless_needed(&mut self, segment: &SpillSegment) {
        if self.index.drop_unless_needed(segment) {
            self.waiters.tell();
        }
    }

    /// Everything up to this sequence is inside published images, except what is held.
    pub(super) fn swept_but_held(&self) -> Seq {
        self.index.swept().max(self.held.as_ref().map_or(Seq::NONE, Held::swept))
    }

    /// The error that names a missing modifier, in a store that is open for upkeep.
    pub(super) fn missing_modifier(&self) -> Option<Error> {
        self.held.as_ref()?;
        self.index.bindings.missing().map(|missing| self.index.bindings.unknown(missing))
    }

    /// Refuses updates of the application that cannot be applied.
    ///
    /// # Errors
    /// [`RequestError::UnknownFormat`] and [`RequestError::UnknownModifier`] in a store that is
    /// open for upkeep.
    pub(super) fn check_upkeep(&self, updates: &[super::LoggedUpdate<'_>]) -> Result<(), Error> {
        if self.held.is_none() { Ok(()) } else { held::check_upkeep(updates, &self.index) }
    }

    /// Records at open that an update waits for a block. If its modifier is not registered, the
    /// block is held in a store that is open for upkeep. A store that is open for reading only
    /// applies nothing.
    ///
    /// # Errors
    /// [`RequestError::UnknownModifier`] in a store in which it would be applied.
    pub(super) fn note_waiting(
        &mut self,
        id: BlockId,
        modifier: ModifierId,
        is_applied: bool,
    ) -> Result<(), Error> {
        if held::is_known(modifier, &self.index) {
            return Ok(());
        }
        if is_applied {
            return Err(self.index.bindings.unknown(modifier));
        }
        if !self.index.directory().block(id).pinned {
            self.hold(id);
        }
        Ok(())
    }

    /// Holds a block in a store that is open for upkeep.
    pub(super) fn hold(&mut self, id: BlockId) {
        if let Some(held) = &mut self.held {
            held.hold(id, &mut self.index);
        }
    }

    /// During replay, before the record `seq`: replays older puts that a checkpoint carried.
    pub(super) fn replay_carried(&mut self, seq: Seq) {
        self.quarantine.replay_carried(seq, &mut self.index, &mut self.journal);
    }

    /// At the end of replay: enqueues what its sweeps have sent to the quarantine.
    pub(super) fn enqueue_deferred(&mut self) {
        self.quarantine.enqueue_deferred(&mut self.index, &mut self.journal);
    }

    /// Approximate number of updates in this many queue entries: by the average number of updates
    /// folded into an entry.
    pub(super) fn updates_in(&self, entries: u64) -> f64 {
        let per_entry = self.metrics.updates_total.get() as f64 / self.entries_came() as f64;
        entries as f64 * per_entry.max(1.0)
    }

    /// Queue entries that updates became, after folding: swept ones and waiting ones.
    pub(super) fn entries_came(&self) -> u64 {
        (self.metrics.swept_entries_total.get() + self.entries_waiting()).max(1)
    }

    /// Queue entries that wait in queues and in spill segments.
    pub(super) fn entries_waiting(&self) -> u64 {
        self.index.arena().entries() + self.index.spill_segments.entries()
    }
}
