//! Accepting updates: admission, routing, the log record and the queues.
//!
//! Invariants: an update is in its queue, or pending for it, if and only if its record is in the
//! log; memory stays in the budget because an update that does not fit waits outside; updates of
//! one record are accepted together. (Bosc paper, section 4.2.)

use super::block_format::UpdateRef;
use super::config::{KEY_BYTES_MAX, OPERAND_BYTES_MAX, VALUE_BYTES_MAX};
use super::core::{Core, Publish};
use super::directory::{BlockId, Target};
use super::format::record_format::{LoggedUpdate, encode_updates, update_len};
use super::pending::Pending;
use super::policy::{Figures, Gauge, Shortage};
use super::publish::Event;
use super::quarantine::REFERENCES_SPACE;
use super::queue::{CELL_BYTES, Packed};
use crate::error::{Error, RequestError, RetryError};
use crate::log::{AppendError, Space, Urgency};
use crate::metrics::WaitCause;

/// The answer to an offered record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// It is in the queues, and durable once [`Core::durable`] reaches this sequence.
    Accepted(u64),
    /// There is no room at this moment: offer it again after the next publication.
    Wait,
}

/// What a block takes that becomes one of its own: memory of its queue, room of its image.
#[derive(Default)]
struct Copy {
    queue_bytes: usize,
    growth_bytes: u64,
    image_bytes: u64,
}

impl Copy {
    fn add(&mut self, other: &Self) {
        self.queue_bytes += other.queue_bytes;
        self.growth_bytes += other.growth_bytes;
        self.image_bytes += other.image_bytes;
    }
}

/// What the change of one block takes in the log, about, besides a page for its run.
const CHANGE_BYTES: u64 = 48;
/// Queue memory that admission keeps in any case.
const QUEUE_BYTES_KEPT: usize = 4096;
/// Bytes of a record of updates before the first of them, at most: its kind and their number.
const RECORD_HEAD_BYTES: usize = 6;

/// What of a limit of queue memory admission gives out.
fn kept_from(limit: usize) -> usize {
    limit.saturating_sub(limit / 32 + QUEUE_BYTES_KEPT)
}

/// Queue memory that the updates of a record of so many bytes take, at most.
fn queue_bytes_of(bytes: usize) -> usize {
    bytes + bytes / 8 + CELL_BYTES
}

impl Core {
    /// Accepts the updates of one record: all take effect, or none. They are visible to queries at
    /// once. Cost: no I/O; a search of the directory and two copies per update.
    ///
    /// # Errors
    /// A request error with nothing accepted; [`RetryError::Full`] when the data devices have no
    /// room for what may grow, and neither growth nor a sweep makes any;
    /// [`RequestError::UnknownModifier`] in a store that is open for upkeep;
    /// [`RetryError::Memory`] when the directory has outgrown the budget; the closing reason after
    /// a failed write.
    pub fn modify(
        &mut self,
        updates: &[LoggedUpdate<'_>],
        urgency: Urgency,
        now_us: u64,
    ) -> Result<Accept, Error> {
        self.check_open()?;
        self.check_upkeep(updates)?;
        let (mut bytes, mut copies) = (0, Copy::default());
        for update in updates {
            self.check_update(update)?;
            bytes += update_len(update);
            copies.add(&self.copy_for(update));
        }
        let shortage = self.shortage_for(bytes, &copies)?;
        let growth_bytes = bytes as u64 + copies.growth_bytes;
        let has_room = self.has_room_for(updates, growth_bytes, copies.image_bytes);
        if let Some(shortage) = (!has_room).then_some(Shortage::Device).or(shortage) {
            if self.is_out_of_room() {
                return Err(self.full_error());
            }
            return self.refuse_for(shortage);
        }
        let targets = self.route(updates);
        if updates.len() > 1 {
            self.touch_queues(&targets);
        }
        let mut payload = std::mem::take(&mut self.scratch);
        payload.clear();
        encode_updates(updates, &mut payload);
        let stream = self.update_stream;
        let appended = self.log.append_parts(stream, &[&payload], urgency, Space::User, now_us);
        self.scratch = payload;
        match appended {
            Ok(seq) => {
                self.accepted = seq;
                updates.iter().for_each(|update| self.sweep.loads.note_change(update.space));
                self.enqueue_at(seq, updates, &targets);
                self.targets = targets;
                self.metrics.updates_total.add(updates.len() as u64);
                Ok(Accept::Accepted(seq))
            }
            Err(AppendError::Busy) => {
                self.waits_for_log = true;
                self.note_refusal(WaitCause::Pipeline);
                Ok(Accept::Wait)
            }
            Err(AppendError::Full) => {
                let refused = self.refuse_for(Shortage::Log);
                if self.full { Err(self.full_error()) } else { refused }
            }
            Err(AppendError::TooLong { .. }) => {
                let limit = self.record_bytes_max();
                Err(RequestError::BatchTooLong { bytes, limit }.into())
            }
            Err(AppendError::Failed) => {
                Err(self.closed.clone().map_or(RetryError::Busy.into(), Error::from))
            }
        }
    }

    /// Where updates go; `None` if their space is not there. Updates of one record that go to one
    /// block all wait for it or none does, so this is known before any is on its way.
    pub(super) fn route<'a>(
        &mut self,
        updates: impl IntoIterator<Item = &'a LoggedUpdate<'a>>,
    ) -> Vec<Option<Target>> {
        let mut targets = std::mem::take(&mut self.targets);
        let target = |update: &LoggedUpdate<'_>| {
            let space = self.directory.space(update.space)?;
            Some(self.directory.target(space, &space.format.position(update.key)))
        };
        targets.clear();
        targets.extend(updates.into_iter().map(target));
        targets
    }

    /// Looks up where updates go, so that their acceptance finds it in the processor's cache: the
    /// look-ups of many keys overlap, where those of one acceptance after another wait for memory
    /// one by one.
    pub fn anticipate<'a>(&mut self, updates: impl Iterator<Item = &'a LoggedUpdate<'a>>) {
        let targets = self.route(updates);
        self.touch_queues(&targets);
        self.targets = targets;
    }

    pub(super) fn touch_queues(&self, targets: &[Option<Target>]) {
        let end = |target: &Option<Target>| match target {
            Some(Target::Block(id)) => Some(self.directory.block(*id).queue.end()),
            _ => None,
        };
        // Two passes, because the second waits for what the first has asked for.
        let ends: Vec<_> = targets.iter().filter_map(end).collect();
        let touched = ends.iter().fold(0, |sum: u32, end| sum.wrapping_add(self.arena.touch(*end)));
        std::hint::black_box(touched);
    }

    fn check_update(&self, update: &LoggedUpdate<'_>) -> Result<(), Error> {
        let (bytes, limit) = (update.key.len(), KEY_BYTES_MAX);
        if bytes > limit {
            return Err(RequestError::KeyTooLong { bytes, limit }.into());
        }
        let bytes = update.operand.len();
        if bytes > OPERAND_BYTES_MAX {
            return Err(RequestError::ValueTooLong { bytes, limit: VALUE_BYTES_MAX }.into());
        }
        let Some(space) = self.directory.space(update.space) else {
            return Err(RequestError::NoTable(format!("number {}", update.space)).into());
        };
        if space.record.snapshot != 0 || update.space == REFERENCES_SPACE {
            return Err(RequestError::ReadOnly(space.record.name.clone()).into());
        }
        self.modifiers.admit(update.modifier, update.key, update.operand).map_err(|refusal| {
            let found = self.modifiers.get(update.modifier);
            let number = || format!("number {}", update.modifier.0);
            let modifier = found.map_or_else(number, |found| found.name().to_owned());
            RequestError::BadOperand { modifier, reason: refusal.into_reason() }.into()
        })
    }

    /// What there is too little of for a record of `bytes`, but for room on the data devices.
    fn shortage_for(&self, bytes: usize, copies: &Copy) -> Result<Option<Shortage>, Error> {
        let limit = self.record_bytes_max();
        if bytes > limit {
            return Err(RequestError::BatchTooLong { bytes, limit }.into());
        }
        let needed = queue_bytes_of(bytes);
        let resident = self.resident_bytes();
        let budget_bytes = self.config.memory_bytes;
        let lasting = self.lasting_bytes();
        let needed_bytes = lasting + self.config.queue_bytes_min();
        if needed_bytes > budget_bytes {
            return Err(RetryError::Memory { budget_bytes, needed_bytes }.into());
        }
        let most = self.queues_gauge(lasting).limit;
        if needed as u64 > most {
            let needed_bytes = budget_bytes + needed - most as usize;
            return Err(RetryError::Memory { budget_bytes, needed_bytes }.into());
        }
        let queues = self.queues_gauge(resident);
        // A sweep leaves less to copy, so copies never ask for too much for good.
        let wanted = queues.used + (needed + copies.queue_bytes) as u64;
        let shortage = if wanted > queues.limit {
            Some(Shortage::Memory)
        } else {
            (self.log_gauge().exact_percent() >= self.sweep.log_percent_refused)
                .then_some(Shortage::Log)
        };
        // On full devices no sweep makes room, neither in the queues nor in the log.
        if shortage.is_some() && self.full { Err(self.full_error()) } else { Ok(shortage) }
    }

    /// Longest record of updates, in bytes, that the store takes as it was opened: what the log
    /// takes, and what the queues of an empty store do.
    fn record_bytes_max(&self) -> usize {
        let queues = kept_from(self.config.queue_bytes_max()) - CELL_BYTES;
        // The count of updates comes before them.
        let log = self.log.record_bytes_max().saturating_sub(RECORD_HEAD_BYTES);
        log.min(queues / 9 * 8)
    }

    /// Somebody waits, whatever the fill: a long record may not fit though the thresholds at which
    /// sweeps, spills and checkpoints start by themselves are far. Until `room_events` changes,
    /// whatever can help works at full speed.
    pub(super) fn refuse(&mut self, shortage: Shortage) {
        self.refused = Some((shortage, self.room_events));
        self.note_refusal(match shortage {
            Shortage::Log => WaitCause::Log,
            Shortage::Memory => WaitCause::Memory,
            Shortage::Device => WaitCause::Device,
        });
    }

    /// Has the caller wait for room, unless that may be where nobody can make any.
    fn refuse_for(&mut self, shortage: Shortage) -> Result<Accept, Error> {
        if let Some(missing) = self.missing_modifier() {
            return Err(missing);
        }
        self.refuse(shortage);
        Ok(Accept::Wait)
    }

    /// What somebody waits for who was refused and not told since that there may be room.
    pub(super) fn shortage(&self) -> Option<Shortage> {
        let (shortage, room_events) = self.refused?;
        let is_waiting = room_events == self.room_events && !cfg!(feature = "broken-rest");
        is_waiting.then_some(shortage)
    }

    /// Memory of waiting updates. Long queues count three times: while a run has one, there are the
    /// cells, the copy, and what the worker makes of it. A part is kept for what moves: queues that
    /// split take more cells, and new blocks take directory memory from the queues.
    fn queues_gauge(&self, resident: usize) -> Gauge {
        let limit = kept_from(self.queue_limit_beside(resident));
        let used = self.queue_bytes() + 2 * self.arena.excess_bytes();
        Gauge { used: used as u64, limit: limit as u64 }
    }

    /// Log space that updates have taken, and may take. The log's reserve is for the changes of
    /// what waits; where that is too little for so many blocks, more is kept, for checkpoints would
    /// have to carry the changes, a few runs at a time.
    pub(super) fn log_gauge(&self) -> Gauge {
        let (used, limit) = self.log.user_bytes();
        let reserve = self.log.prospect_bytes() - limit;
        let kept = self.change_bytes().saturating_sub(reserve / 2).min(limit / 4);
        Gauge { used, limit: limit - kept }
    }

    /// What the changes of a sweep of all that waits take of the log, about.
    fn change_bytes(&self) -> u64 {
        let waiting = self.arena.queues() + self.sweep.unlogged_blocks;
        let runs = waiting.div_ceil(self.config.run_blocks_max) as u64;
        waiting as u64 * CHANGE_BYTES + runs * u64::from(self.config.log_page_bytes)
    }

    /// Whether the log has no room for the changes of a sweep of all that waits.
    pub(super) fn is_log_short_of_changes(&self) -> bool {
        self.change_bytes() > self.log.prospect_bytes().saturating_sub(self.log.used_bytes())
    }

    /// All that policy decides by.
    pub(super) fn figures(&self) -> Figures {
        let spilled = self.spilled_gauge();
        Figures {
            queues: self.queues_gauge(self.resident_bytes()),
            log: self.log_gauge(),
            spilled,
            spilled_worth: Gauge { limit: self.spill_segments_worth_bytes, ..spilled },
            levels: self.levels_gauge(),
            spills_for_memory: self.spills_for_memory,
            spill_percent: self.config.spill_fill_percent,
            can_spill: self.can_spill(),
            is_spilling: !self.sweep.spills.is_empty(),
            is_log_held_by_queues: self.is_log_held_by_queues(),
            can_grow: self.grows_for_room(),
            progress: self.sweep_progress(),
            log_at_start: self.sweep.log_at_start.unwrap_or_default(),
            round: self.round(),
            shortage: self.shortage(),
        }
    }

    /// The error that says that the data devices are full.
    #[must_use]
    pub fn full_error(&self) -> Error {
        RetryError::Full { capacity_bytes: self.space_map.capacity_bytes() }.into()
    }

    /// What has to be copied for an update that needs a block of its own.
    fn copy_for(&self, update: &LoggedUpdate<'_>) -> Copy {
        if !self.directory.trees.has_sharing() {
            return Copy::default();
        }
        let Some(space) = self.directory.space(update.space) else { return Copy::default() };
        match self.directory.target(space, &space.format.position(update.key)) {
            Target::Later(Some(id)) => {
                let block = self.directory.block(id);
                let (queue, frozen) = (&block.queue, block.frozen.as_deref());
                Copy {
                    queue_bytes: queue.bytes() as usize + frozen.map_or(0, Packed::memory_bytes),
                    growth_bytes: u64::from(queue.growth_bytes())
                        + u64::from(frozen.map_or(0, Packed::growth_bytes)),
                    image_bytes: block.extent().map_or(0, |extent| u64::from(extent.bytes)),
                }
            }
            _ => Copy::default(),
        }
    }

    /// Puts the updates of a record on the queues of their blocks, or on the way there.
    pub(super) fn enqueue_all(&mut self, seq: u64, updates: &[LoggedUpdate<'_>]) {
        let targets = self.route(updates);
        self.enqueue_at(seq, updates, &targets);
        self.targets = targets;
    }

    /// [`Core::enqueue_all`] for updates whose targets are known.
    fn enqueue_at(&mut self, seq: u64, updates: &[LoggedUpdate<'_>], targets: &[Option<Target>]) {
        let mut later = Vec::new();
        for ((order, update), target) in (0..).zip(updates).zip(targets) {
            let LoggedUpdate { space, modifier, key, operand } = *update;
            let update = UpdateRef { seq, modifier, key, operand };
            match target {
                None => {}
                Some(Target::Block(id)) => self.push(*id, &update),
                Some(Target::Later(_)) => {
                    let Some(found) = self.directory.space(space) else { continue };
                    let position = found.format.position(key);
                    later.push((space, Box::from(&*position)));
                    self.pending_bytes += Pending::bytes_of(&position, &update);
                    if let Some(found) = self.directory.space_mut(space) {
                        found.pending.push(&position, order, &update);
                    }
                }
            }
        }
        if !later.is_empty() {
            self.publishes.push_back((seq, Publish::Event(Event::Blocks(later))));
        }
    }

    /// Puts one update on the queue of this block.
    pub(super) fn push(&mut self, id: BlockId, update: &UpdateRef<'_>) {
        let block = self.directory.block_mut(id);
        let first = block.queue.is_empty();
        self.arena.push(&mut block.queue, &block.key, update, &self.modifiers);
        if first && block.extent().is_none() {
            self.unplaced.insert((block.space, block.key.clone(), id));
        }
        if self.config.is_oversized(&block.queue) {
            self.sweep.sweep_out_of_turn(id);
        }
    }

    /// Memory that waiting updates take, those of running sweeps included.
    #[must_use]
    pub fn queue_bytes(&self) -> usize {
        self.arena.used_bytes() + self.frozen_bytes + self.pending_bytes
    }

    /// Memory that is in use whether updates wait in queues or not.
    pub(super) fn resident_bytes(&self) -> usize {
        self.lasting_bytes() + self.spill_segments.memory_bytes() + self.sweep.values_bytes
    }

    /// The part of it that a sweep does not give back, as it does the filters of spill segments and
    /// the large values on their way: buffers, cache, directory, space map.
    fn lasting_bytes(&self) -> usize {
        self.config.fixed_bytes()
            + self.config.cache_bytes
            + self.directory.memory_bytes()
            + self.physical.len() * 32
            + self.space_map.memory_bytes()
    }

    /// Memory that waiting updates may take: the budget less everything else. What waits already
    /// keeps a minimum also when the directory has outgrown the budget, and no update is accepted.
    #[must_use]
    pub fn queue_limit_bytes(&self) -> usize {
        self.queue_limit_beside(self.resident_bytes())
    }

    fn queue_limit_beside(&self, resident: usize) -> usize {
        let least = self.config.queue_bytes_min();
        self.config.memory_bytes.saturating_sub(resident).max(least)
    }

    /// Queue entries that wait, those of running sweeps included.
    #[must_use]
    pub fn waiting_entries(&self) -> u64 {
        let of_block = |block: &super::directory::Block| {
            let frozen = block.frozen.as_ref().map_or(0, |frozen| frozen.count());
            u64::from(frozen) + u64::from(block.queue.count())
        };
        let pending: usize = self.directory.spaces().map(|space| space.pending.len()).sum();
        self.directory.table.from(0).map(of_block).sum::<u64>() + pending as u64
    }

    /// Memory that one waiting entry takes on average, in bytes.
    #[must_use]
    pub fn queue_bytes_per_entry(&self) -> f64 {
        let entries = self.waiting_entries();
        if entries == 0 { CELL_BYTES as f64 } else { self.queue_bytes() as f64 / entries as f64 }
    }

    /// How full the log is for updates, in per cent: at 100 they are refused.
    #[must_use]
    pub fn log_fill_percent(&self) -> u32 {
        self.log_gauge().percent()
    }

    /// How full the queue memory is, in per cent: at 100 updates are refused.
    #[must_use]
    pub fn queue_fill_percent(&self) -> u32 {
        self.queues_gauge(self.resident_bytes()).percent()
    }
}
