//! Accepting updates: admission, routing, the log record and the queues.
//!
//! Invariants: an update is in its queue, or pending for it, if and only if its record is in the
//! log; memory stays in the budget because an update that does not fit waits outside; updates of
//! one record are accepted together. (Bosc paper, section 4.2; design document, "Accept".)

use super::block_format::UpdateRef;
use super::config::{KEY_BYTES_MAX, OPERAND_BYTES_MAX, VALUE_BYTES_MAX};
use super::core::{Core, Publish};
use super::directory::{BlockId, Target};
use super::format::record_format::{LoggedUpdate, encode_updates, update_len};
use super::pending::Pending;
use super::publish::Event;
use super::quarantine::REFERENCES_SPACE;
use super::queue::{CELL_BYTES, Packed};
use crate::error::{Error, RequestError, RetryError};
use crate::log::{AppendError, Space, Urgency};

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

/// What the change of one block takes in the log, in a run of usual length.
const CHANGE_BYTES: u64 = 256;
/// Queue memory that admission keeps in any case.
const QUEUE_BYTES_KEPT: usize = 4096;

impl Core {
    /// Accepts the updates of one record: all take effect, or none. They are visible to queries at
    /// once. Cost: no I/O; a search of the directory and two copies per update.
    ///
    /// # Errors
    /// A request error with nothing accepted; [`RetryError::Full`] when the data devices have no
    /// room for what may grow, and neither growth nor a sweep makes any;
    /// [`RetryError::Memory`] when the directory has outgrown the budget; the closing reason after
    /// a failed write.
    pub fn modify(
        &mut self,
        updates: &[LoggedUpdate<'_>],
        urgency: Urgency,
        now_us: u64,
    ) -> Result<Accept, Error> {
        if let Some(closed) = &self.closed {
            return Err(closed.clone().into());
        }
        let (mut bytes, mut copies) = (0, Copy::default());
        for update in updates {
            self.check_update(update)?;
            bytes += update_len(update);
            copies.add(&self.copy_for(update));
        }
        let admitted = self.admit(bytes, &copies, updates.len())?;
        let growth_bytes = bytes as u64 + copies.growth_bytes;
        if !self.has_room_for(updates, growth_bytes, copies.image_bytes) || !admitted {
            if self.is_out_of_room() {
                return Err(self.full_error());
            }
            self.statistics.waits_for_room += 1;
            self.make_room();
            return Ok(Accept::Wait);
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
                self.statistics.updates += updates.len() as u64;
                Ok(Accept::Accepted(seq))
            }
            Err(AppendError::Busy) => {
                self.waits_for_log = true;
                Ok(Accept::Wait)
            }
            Err(AppendError::Full) => {
                self.statistics.waits_for_log += 1;
                self.make_room();
                if self.full { Err(self.full_error()) } else { Ok(Accept::Wait) }
            }
            Err(AppendError::TooLong { limit }) => {
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
            RequestError::BadOperand { modifier, reason: refusal.0 }.into()
        })
    }

    /// Whether a record of `bytes` with this many updates may enter now.
    fn admit(&self, bytes: usize, copies: &Copy, updates: usize) -> Result<bool, Error> {
        let needed = bytes + bytes / 8 + CELL_BYTES;
        let resident = self.resident_bytes();
        let limit = self.queue_limit_beside(resident);
        let budget_bytes = self.config.memory_bytes;
        let needed_bytes = resident + self.config.queue_bytes_min();
        if needed_bytes > budget_bytes {
            return Err(RetryError::Memory { budget_bytes, needed_bytes }.into());
        }
        // A part is kept for what moves: queues that split take more cells, and new blocks take
        // directory memory from the queues.
        let kept = limit / 32 + QUEUE_BYTES_KEPT;
        if needed + kept > limit {
            let limit = (limit - kept) * 7 / 8;
            return Err(RequestError::BatchTooLong { bytes, limit }.into());
        }
        // A sweep leaves less to copy, so copies never ask for too much for good.
        let fits = self.queue_bytes() + needed + copies.queue_bytes + kept <= limit
            && self.log_claim_percent(updates) < self.sweep.log_fill_allowed_percent();
        // On full devices no sweep makes room, neither in the queues nor in the log.
        if !fits && self.full { Err(self.full_error()) } else { Ok(fits) }
    }

    /// Somebody waits, whatever the fill: a long record may not fit though the thresholds at which
    /// sweeps and checkpoints start by themselves are far.
    pub(super) fn make_room(&mut self) {
        if !self.sweep.is_active() && !self.checkpoint.is_active() && !self.grows_for_room() {
            self.request_sweep();
            if self.published > self.checkpoint.root_begin {
                self.request_checkpoint();
            }
        } else {
            self.sweep.is_room_wanted = true;
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
        if block.queue.growth_bytes() as usize >= self.config.fat_queue_bytes() {
            self.sweep.mark_fat(id);
        }
    }

    /// Memory that waiting updates take, those of running sweeps included.
    #[must_use]
    pub fn queue_bytes(&self) -> usize {
        self.arena.used_bytes() + self.frozen_bytes + self.pending_bytes
    }

    /// Memory that is in use whether updates wait in queues or not: buffers, cache, directory,
    /// space map, filters of bundles.
    pub(super) fn resident_bytes(&self) -> usize {
        self.config.fixed_bytes()
            + self.config.cache_bytes
            + self.directory.memory_bytes()
            + self.physical.len() * 32
            + self.space_map.memory_bytes()
            + self.bundles.memory_bytes()
    }

    /// Memory that waiting updates may take: the budget less everything else. What waits already
    /// keeps a minimum also when the directory has outgrown the budget, and no update is accepted.
    #[must_use]
    pub fn queue_limit_bytes(&self) -> usize {
        self.queue_limit_beside(self.resident_bytes())
    }

    fn queue_limit_beside(&self, resident: usize) -> usize {
        let least = self.config.queue_bytes_min();
        let limit = self.config.memory_bytes.saturating_sub(resident).max(least);
        // The other half is for the filters of bundles, also before they are there: memory of
        // queues that is not used any more is not given back.
        if self.spill_pays_beside(resident) {
            limit.min(self.waiting_limit_beside(resident) / 2).max(least)
        } else {
            limit
        }
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

    /// How full the log is, in per cent.
    #[must_use]
    pub fn log_fill_percent(&self) -> u32 {
        percent(self.log.used_bytes(), self.log.capacity_bytes())
    }

    /// How full the log will be, in per cent, when everything has been swept that waits, and
    /// `more` updates with it.
    ///
    /// A sweep has to log its changes before it can release anything. If they find no room,
    /// checkpoints carry them, which costs more.
    #[must_use]
    pub fn log_claim_percent(&self, more: usize) -> u32 {
        let regions = self.config.log_regions.len() as u64;
        let cut_off = regions * u64::from(self.config.log_segment_bytes);
        let usable = self.log.capacity_bytes().saturating_sub(cut_off);
        let more = (more as u64 * CHANGE_BYTES).min(usable / 8);
        let waiting = self.arena.queues() + self.sweep.unlogged_blocks;
        percent(self.log.used_bytes() + waiting as u64 * CHANGE_BYTES + more, usable)
    }

    /// How full the queue memory is, in per cent.
    #[must_use]
    pub fn queue_fill_percent(&self) -> u32 {
        percent(self.queue_bytes() as u64, self.queue_limit_bytes() as u64)
    }
}

fn percent(part: u64, whole: u64) -> u32 {
    u32::try_from((part.saturating_mul(100) / whole.max(1)).min(100)).unwrap_or(100)
}
