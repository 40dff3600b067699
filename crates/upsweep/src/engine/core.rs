//! The engine's core: a synchronous state machine without threads, clocks, files or randomness.
//!
//! Events go in (a call, a completion, a finished job, the time), [`Actions`] come out (submit this
//! request, run this job, answer this view). Steps of an update: [`Core::modify`] appends it to the
//! log and to the queue of its block; [`Core::pump`] moves batches, runs and the checkpoint on;
//! [`Core::complete`] takes what devices have done, and *publishes* in log order what has become
//! durable: only then does the directory change (see `publish.rs`).
//!
//! Invariants: what is published is durable; what is free is referenced by nothing durable; a
//! pinned block is neither split nor moved by anyone but its run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::block_format::BlockFormat;
use super::cache::Cache;
use super::checkpoint::CheckpointState;
use super::config::Config;
use super::directory::{BlockId, Directory, Target};
use super::format::checkpoint_format::{CarriedPut, Superblock};
use super::format::record_format::{ModifierRecord, RangeRecord, SpaceRecord};
use super::growth::Growth;
use super::held::Held;
use super::key::Key;
use super::log_growth::LogGrowth;
use super::measure::{Measured, TreeCounters};
use super::policy::Shortage;
use super::publish::Event;
use super::queue::Arena;
use super::registry::Modifiers;
use super::spill_segments::SpillSegments;
use super::sweep::{Job, RunId, SpillId, Sweep};
use super::view::{View, ViewId, Views};
use super::visitor::Visitors;
use crate::device::{Buffer, Class, Completion, DeviceId, Hint, Operation, Request, Token};
use crate::error::{ClosedError, Error};
use crate::log::{AppendError, Log, StreamId, Urgency};
use crate::metrics::Metrics;
use crate::placement::{Extent, SpaceMap};

/// What the caller of the core has to do.
#[derive(Default)]
pub struct Actions {
    /// Requests to submit.
    pub requests: Vec<Request>,
    /// Jobs to run, on any thread; hand each result to [`Core::job_done`].
    pub jobs: Vec<Job>,
    /// Views that were pending and are answered now.
    pub views: Vec<(ViewId, Result<View, Error>)>,
}

/// What the completion of a request moves on; the log keeps its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IoKind {
    RunRead(RunId),
    RunWrite(RunId),
    ValueRead(RunId, usize),
    SpillSegmentRead,
    BlockRead(RunId, usize),
    SpillWrite(SpillId),
    Flush,
    View,
    CheckpointWrite,
    Superblock,
    FileSpace,
    LogGrowth,
}

impl IoKind {
    fn class(self) -> Class {
        match self {
            Self::RunRead(_)
            | Self::BlockRead(..)
            | Self::ValueRead(..)
            | Self::SpillSegmentRead => Class::SweepRead,
            Self::RunWrite(_) => Class::SweepWrite,
            Self::SpillWrite(_) => Class::Spill,
            Self::Flush => Class::Flush,
            Self::View => Class::ForegroundRead,
            Self::CheckpointWrite | Self::Superblock => Class::Checkpoint,
            Self::FileSpace | Self::LogGrowth => Class::FileSpace,
        }
    }
}

/// What becomes of the space that a change leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// It is free: the change is in the log.
    Now,
    /// It is free when the next checkpoint is complete, which will hold the change.
    AfterCheckpoint,
    /// Nothing: in replay the map of free space is not kept, and queues are empty.
    Never,
}

/// What takes effect when a log record is durable.
pub(super) enum Publish {
    Run(RunId),
    Spill(SpillId),
    Event(Event),
    Nothing,
}

/// The state machine of one open store.
pub struct Core {
    pub(super) config: Config,
    pub(super) formats: BTreeMap<&'static str, Arc<dyn BlockFormat>>,
    pub(super) modifiers: Arc<Modifiers>,
    pub(super) modifier_records: Vec<ModifierRecord>,
    pub(super) log: Log,
    pub(super) update_stream: StreamId,
    pub(super) change_stream: StreamId,
    pub(super) directory: Directory,
    pub(super) arena: Arena,
    pub(super) space_map: SpaceMap,
    /// Which blocks are where; several may share a place.
    pub(super) physical: BTreeSet<(DeviceId, u64, BlockId)>,
    /// Blocks without image for which something waits: space, key.
    pub(super) unplaced: BTreeSet<(u32, Key, BlockId)>,
    pub(super) spill_segments: SpillSegments,
    pub(super) sweep: Sweep,
    pub(super) checkpoint: CheckpointState,
    pub(super) superblock: Superblock,
    pub(super) publishes: VecDeque<(u64, Publish)>,
    /// Every change up to this log sequence is in the directory.
    pub(super) published: u64,
    /// The last update that is in the queues.
    pub(super) accepted: u64,
    pub(super) views: Views,
    pub(super) visitors: Arc<Visitors>,
    pub(super) cache: Cache,
    pub(super) frozen_bytes: usize,
    /// Memory of updates that wait for their record: see `pending.rs`.
    pub(super) pending_bytes: usize,
    /// Bytes of images that blocks which wait share with others: their next images are separate.
    pub(super) copy_bytes: u64,
    /// A portion of what was dropped is on its way to be given back.
    pub(super) release_in_flight: bool,
    /// Deferred reference counts are on their way to the reference array.
    pub(super) deferred_counts_in_flight: bool,
    /// Space and key from which on empty blocks are looked for next.
    pub(super) forget_from: (u32, Box<[u8]>),
    pub(super) growth: Growth,
    pub(super) log_growth: LogGrowth,
    /// What is held; `None` unless the store is open for upkeep.
    pub(super) held: Option<Held>,
    /// The data devices had no room for the last run.
    pub(super) full: bool,
    pub(super) room_events: u64,
    /// What the last refused update was refused for, and what `room_events` was then.
    pub(super) refused: Option<(Shortage, u64)>,
    /// Spilling is what relieves memory, as of the last pump.
    pub(super) spills_for_memory: bool,
    /// Target size of a block, as of the last pump.
    pub(super) block_bytes: u32,
    /// Memory of spill segments that is worth having, as of the last pump.
    pub(super) spill_segments_worth_bytes: u64,
    /// An update had to wait for the pipeline of the log.
    pub(super) waits_for_log: bool,
    pub(super) closed: Option<ClosedError>,
    /// It is about to be closed: updates are refused.
    pub(super) closing: bool,
    pub(super) in_flight: BTreeMap<Token, IoKind>,
    pub(super) next_token: u64,
    pub(super) now_us: u64,
    pub(super) scratch: Vec<u8>,
    /// Memory for where the updates of a record go.
    pub(super) targets: Vec<Option<Target>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) measured: Measured,
    pub(super) application_modifiers: Vec<Arc<dyn super::modifier::Modifier>>,
    /// The second pass of recovery is on: updates arrive with the sequences of the log.
    pub(super) replaying: bool,
    /// Ranges of keys whose removal replay will come to: sequence and range.
    pub(super) removed_ranges: Vec<(u64, RangeRecord)>,
    /// What quarantined updates have added to the queues since they were last inside their limit.
    pub(super) overdraft_bytes: usize,
    /// Quarantined updates that only checkpoints hold.
    pub(super) carried: Vec<CarriedPut>,
    /// Those of the checkpoint that replay has not come to yet, by barrier.
    pub(super) carried_replay: VecDeque<CarriedPut>,
    /// Nothing new begins, no run, checkpoint or growth; what is on its way comes to its end.
    pub(super) paused: bool,
    /// Quarantined updates of sweeps during replay: sequence, key, operand.
    pub(super) deferred: Vec<(u64, Vec<u8>, Vec<u8>)>,
}

impl Core {
    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Everything up to this log sequence is on stable media.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.log.durable()
    }

    /// The last sequence that was given to a record.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.log.last()
    }

    /// Every record up to this one has taken effect, where it is more than updates.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.published
    }

    /// The last update that is in the queues.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// The log, for its counters.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The map of free space.
    #[must_use]
    pub fn space_map(&self) -> &SpaceMap {
        &self.space_map
    }

    /// Number of blocks in the directory, and the memory it takes in bytes.
    #[must_use]
    pub fn directory_size(&self) -> (usize, usize) {
        (self.directory.len(), self.directory.memory_bytes())
    }

    /// Target size of the blocks that the sweep makes at present, in bytes: see
    /// [`BlockSizes`](super::BlockSizes).
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Number of nodes of the directory, and levels of its deepest tree.
    #[must_use]
    pub fn tree_size(&self) -> (usize, usize) {
        let trees = &self.directory.trees;
        let depths = self.directory.roots().into_iter().map(|root| trees.depth(root));
        (trees.node_count(), depths.max().unwrap_or(0))
    }

    /// What changes of the trees have cost since the store was opened.
    #[must_use]
    pub fn tree_counters(&self) -> TreeCounters {
        self.directory.trees.counters()
    }

    /// Bytes of images in the cache.
    #[must_use]
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// The modifiers under their numbers in this store.
    #[must_use]
    pub fn modifiers(&self) -> Arc<Modifiers> {
        Arc::clone(&self.modifiers)
    }

    /// The space with this number.
    #[must_use]
    pub fn space_record(&self, space: u32) -> Option<SpaceRecord> {
        self.directory.space(space).map(|space| space.record.clone())
    }

    /// Whether there is no room on the data devices, for an update that grows or for the last run,
    /// and they cannot grow.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full || self.is_out_of_room()
    }

    /// Changes whenever an update that had to wait may find room, or be refused for good.
    #[must_use]
    pub fn room_events(&self) -> u64 {
        self.room_events
    }

    /// Why the store takes no more updates, if it does not.
    #[must_use]
    pub fn closed(&self) -> Option<&ClosedError> {
        self.closed.as_ref()
    }

    /// Refuses updates from now on, and begins nothing else. What was accepted becomes durable, and
    /// then a superblock says so: see [`Core::is_attested`].
    pub fn begin_close(&mut self) {
        self.closing = true;
        self.paused = true;
        self.room_events += 1;
    }

    /// Whether a superblock says that the whole log is durable: if it is cut short from now on, the
    /// next open finds that out.
    #[must_use]
    pub fn is_attested(&self) -> bool {
        self.superblock.durable == self.log.last()
    }

    /// Refuses updates from now on, for this reason (the first one counts).
    pub fn close(&mut self, reason: ClosedError) {
        self.closed.get_or_insert(reason);
        self.room_events += 1;
    }

    /// When [`Core::pump`] wants to be called even if nothing happens, in microseconds.
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        let is_idle = !self.sweep.is_active() && self.publishes.is_empty();
        // A cycle may have passed by what was pinned, or somebody may wait for another one.
        let is_needed = || self.is_sweep_needed() || self.figures().is_sweep_waited_for();
        let is_due = self.is_checkpoint_ready() || is_idle && !self.paused && is_needed();
        let again = is_due.then_some(0);
        let sweep = self.sweep.deadline_us().filter(|_| self.closed.is_none());
        [self.log.deadline_us(), sweep, again].into_iter().flatten().min()
    }

    /// Whether anything is in flight or about to be: `false` means that, without new calls, nothing
    /// will happen any more.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.in_flight.is_empty()
            || self.log.durable() < self.log.last()
            || self.sweep.is_active()
            || self.is_sweep_needed()
            || self.checkpoint.is_active()
            || !self.publishes.is_empty()
    }

    /// Moves everything on that can move at `now_us`, and says what to do. Call it after every
    /// other call, and at [`Core::deadline_us`]. Cost: bounded by the runs in flight.
    pub fn pump(&mut self, now_us: u64, actions: &mut Actions) {
        self.now_us = self.now_us.max(now_us);
        self.measure();
        if self.overdraft_bytes > 0 && self.queue_bytes() <= self.queue_limit_bytes() {
            self.overdraft_bytes = 0;
        }
        if self.closed.is_none() {
            self.weigh_costs();
            self.find_frontier();
            self.log.dispatch(self.now_us, &mut actions.requests);
            self.publish_durable();
            self.pump_dropped();
            self.pump_sweep(actions);
            self.pump_checkpoint(actions);
            self.publish_durable();
            self.pump_growth(actions);
            self.pump_log_growth(actions);
            self.pump_flush(actions);
            self.log.dispatch(self.now_us, &mut actions.requests);
        }
        self.pump_views(actions);
        debug_assert!(!self.rests_while_somebody_waits(), "nothing makes the room that is wanted");
    }

    /// Whether somebody waits for room and nothing is on its way, nor will be: this must never be.
    fn rests_while_somebody_waits(&self) -> bool {
        let is_at_rest = || !self.is_active() && self.deadline_us().is_none();
        self.closed.is_none() && !self.paused && self.shortage().is_some() && is_at_rest()
    }

    /// Takes one completion of a device.
    pub fn complete(&mut self, completion: Completion) {
        if completion.class == Class::Log {
            if let Err(failure) = self.log.complete(completion) {
                self.close(ClosedError::WriteFailed {
                    device: failure.device,
                    offset: failure.offset,
                    error: failure.error,
                });
            }
            self.room_events += u64::from(std::mem::take(&mut self.waits_for_log));
            self.publish_durable();
            return;
        }
        let kind = self.in_flight.remove(&completion.token);
        match kind.expect("a completion belongs to a request") {
            IoKind::RunRead(run) => self.run_read_done(run, completion),
            IoKind::SpillSegmentRead => self.spill_segment_read_done(completion),
            IoKind::SpillWrite(spill) => self.spill_write_done(spill, &completion),
            IoKind::BlockRead(run, block) => self.block_read_done(run, block, completion),
            IoKind::ValueRead(run, value) => self.value_read_done(run, value, completion),
            IoKind::RunWrite(run) => self.run_write_done(run, &completion),
            IoKind::Flush => self.flush_done(&completion),
            IoKind::View => self.view_read_done(completion),
            IoKind::CheckpointWrite => self.checkpoint_write_done(&completion),
            IoKind::Superblock => self.superblock_done(&completion),
            IoKind::FileSpace => self.file_space_done(&completion),
            IoKind::LogGrowth => self.log_growth_done(&completion),
        }
    }

    /// Whether any record or checkpoint is on its way to a device.
    pub(super) fn is_writing(&self) -> bool {
        self.log.durable() < self.log.last() || !self.in_flight.is_empty()
    }

    /// Whether no request is in flight and no run on its way.
    pub(super) fn is_quiet(&self) -> bool {
        self.sweep.runs.is_empty() && self.sweep.spills.is_empty() && !self.is_writing()
    }

    /// A new request that reads what lies at `extent`.
    pub(super) fn read_request(
        &mut self,
        kind: IoKind,
        owner: Option<u32>,
        extent: Extent,
    ) -> Request {
        let buffer = Buffer::recycled(extent.bytes as usize);
        let operation = Operation::Read { offset: extent.offset, buffer };
        self.request(kind, owner, extent.device, operation)
    }

    /// A new request of the core, about the content of the space `owner` if that is one.
    pub(super) fn request(
        &mut self,
        kind: IoKind,
        owner: Option<u32>,
        device: DeviceId,
        operation: Operation,
    ) -> Request {
        self.next_token += 1;
        let token = Token(self.next_token);
        self.in_flight.insert(token, kind);
        let hint = Hint { owner, ..kind.class().into() };
        Request { device, token, hint, operation }
    }

    /// Puts what has become durable into effect, in log order. What the running checkpoint still
    /// has to write of what changes is written first, so this waits while many such writes are
    /// under way.
    pub(super) fn publish_durable(&mut self) {
        let durable = self.log.durable();
        while !self.checkpoint_is_behind()
            && let Some((seq, publish)) = self.publishes.pop_front_if(|next| next.0 <= durable)
        {
            self.published = seq;
            match publish {
                Publish::Run(run) => self.publish_run(run, seq, Release::Now),
                Publish::Spill(spill) => self.publish_spill(spill, seq, Release::Now),
                Publish::Event(event) => self.apply_event(seq, event, Release::Now),
                Publish::Nothing => {}
            }
        }
        if self.publishes.is_empty() {
            self.published = self.published.max(durable);
        }
    }

    /// Appends a record of the engine itself, which may use the log's reserve.
    pub(super) fn append_internal(
        &mut self,
        payload: &[u8],
        publish: Publish,
    ) -> Result<u64, AppendError> {
        let (urgency, space) = (Urgency::Now, crate::log::Space::Internal);
        let stream = self.change_stream;
        let seq = self.log.append_parts(stream, &[payload], urgency, space, self.now_us)?;
        self.publishes.push_back((seq, publish));
        Ok(seq)
    }

    /// A device write failed: what was acknowledged is in the log, but no more is taken.
    pub(super) fn fail_write(&mut self, completion: &Completion, offset: u64) {
        if let Err(error) = &completion.result {
            let (device, error) = (completion.device, error.clone());
            self.close(ClosedError::WriteFailed { device, offset, error });
        }
    }
}
