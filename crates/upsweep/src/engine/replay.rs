//! Replay: two passes over the log, through the same functions that processed it originally.
//!
//! First pass: events change the directory, as they did when their records became durable. Second
//! pass: updates that no image holds go to the queues, including those of clones made of their
//! space later. Between the two passes the places of all blocks are indexed and claimed.

use std::collections::BTreeSet;

use super::block_format::{Routing, UpdateRef};
use super::blocks::BlockId;
use super::core::Core;
use super::directory::Target;
use super::drive;
use super::event::Event;
use super::format::codec_format::Malformed;
use super::format::image_format;
use super::format::record_format::{self, LoggedUpdate, Payload, RangeRecord, Updates};
use super::format::reference_format::decode_cell;
use super::format::spill_segment_format::SpillSegmentRecord;
use super::gate::Access;
use super::ids::SpaceId;
use super::index::Release;
use super::queue::Waiting;
use super::spill_segments::{self, Filter, SpillSegment};
use crate::broken::{self, Fault};
use crate::device::{self, Devices};
use crate::error::{Damage, Error, Location};
use crate::log::{BatchRecords, LogReader, RecordRef, Seq};

/// Replay looks updates up together once it has gathered this many, or a batch ends.
const GROUP_UPDATES: usize = 64;

impl Core {
    /// First pass: everything that changes the directory.
    pub(super) fn replay_changes(
        &mut self,
        devices: &mut dyn Devices,
        reader: &mut LogReader,
    ) -> Result<(), Error> {
        self.leave_memory(reader);
        while let Some(batch) = reader.next_batch(devices)? {
            let BatchRecords { location, records } = batch;
            records.iter().try_for_each(|record| self.replay_change(location, record))?;
        }
        reader.rewind();
        self.base.index.index_places();
        Ok(())
    }

    fn replay_change(&mut self, batch: Location, record: &RecordRef<'_>) -> Result<(), Error> {
        let (seq, begin) = (record.seq, self.checkpointer.superblock().root_seq);
        if seq <= begin && !self.base.journal.is_of_changes(record.stream) {
            return Ok(());
        }
        let payload = record_format::decode(record.payload)
            .map_err(|malformed| malformed_record(batch, seq, malformed))?;
        if let Payload::RemoveRange(range) = &payload {
            self.base.index.will_remove(seq, range.clone());
        }
        if seq <= begin {
            return Ok(());
        }
        let event = match payload {
            Payload::Change(change, _) => {
                self.base.index.apply_change(seq, &change, Release::Never);
                return Ok(());
            }
            Payload::Modifier(record) => {
                self.base.index.bindings.bind(record);
                return Ok(());
            }
            Payload::Updates(updates) => self.blocks_for(batch, seq, updates)?,
            Payload::DeferredCounts(updates) => {
                let blocks = self.blocks_for(batch, seq, updates.clone())?;
                self.base.index.apply_event(seq, blocks, Release::Never);
                Event::DeferredCounts(deferred_counts(batch, seq, updates)?)
            }
            Payload::CreateSpace(record) => {
                self.base.index.bindings.format(&record.format)?;
                Event::Create(record)
            }
            Payload::DropSpace(space) => Event::Drop(space),
            Payload::Clone(clone) => Event::Clone(clone),
            Payload::DropSnapshot(snapshot) => Event::DropSnapshot(snapshot),
            Payload::RemoveRange(range) => {
                self.base.index.missing_format_of(range.space, seq).map_or(Ok(()), Err)?;
                Event::RemoveRange(range)
            }
            Payload::Adopt(space, source) => Event::Adopt { space, source },
            Payload::Release(portion) => Event::Release(portion),
            Payload::Reserve(space, extent) => Event::Reserve(space, extent),
            Payload::GiveBack(extent) => Event::GiveBack(extent),
            Payload::Spill(spill_segments) => {
                for spilled in &spill_segments {
                    self.base.index.add_spill_segment(seq, spilled, None, Release::Never);
                }
                return Ok(());
            }
        };
        self.base.index.apply_event(seq, event, Release::Never);
        Ok(())
    }

    /// The blocks that updates needed when they were accepted.
    fn blocks_for(
        &self,
        batch: Location,
        seq: Seq,
        mut updates: Updates<'_>,
    ) -> Result<Event, Error> {
        let mut wanted = Vec::new();
        let has_sharing = self.base.index.directory().trees.has_sharing();
        loop {
            let next = updates
                .next_update()
                .map_err(|malformed| malformed_record(batch, seq, malformed))?;
            let Some(update) = next else { return Ok(Event::Blocks(wanted, 0)) };
            let Some(space) = self.base.index.directory().space(update.space) else { continue };
            space.check_format()?;
            if has_sharing || space.format.routing() == Routing::Exact {
                let position = space.format.position(update.key);
                wanted.push((update.space, Box::from(&*position)));
            }
        }
    }

    /// Second pass: updates that are not inside an image go to the queues.
    pub(super) fn replay_updates(
        &mut self,
        devices: &mut dyn Devices,
        reader: &mut LogReader,
        access: Access,
    ) -> Result<(), Error> {
        self.base.index.begin_replay();
        let mut told = self.accepted();
        self.leave_memory(reader);
        while let Some(batch) = reader.next_batch(devices)? {
            let BatchRecords { location: batch, records } = batch;
            let mut group = Vec::new();
            for RecordRef { seq, payload, .. } in records {
                if group.len() >= GROUP_UPDATES || self.base.quarantine.has_to_replay() {
                    self.replay_group(devices, &mut group, access)?;
                    self.base.replay_carried(seq);
                }
                let payload = record_format::decode(payload)
                    .map_err(|malformed| malformed_record(batch, seq, malformed))?;
                match payload {
                    Payload::Updates(updates)
                    | Payload::Change(_, updates)
                    | Payload::DeferredCounts(updates) => {
                        gather(batch, seq, updates, &mut group)?;
                    }
                    Payload::RemoveRange(range) => {
                        self.replay_group(devices, &mut group, access)?;
                        self.replay_range(seq, &range, access)?;
                        self.base.index.accept_through(seq);
                    }
                    _ => {}
                }
            }
            self.replay_group(devices, &mut group, access)?;
            self.note_replayed(&mut told);
            self.leave_memory(reader);
        }
        self.base.replay_carried(Seq::MAX);
        if access == Access::ReadWrite {
            // Runs that replay has started must not be in flight when callers arrive: their
            // requests belong to this function's use of the devices.
            self.come_to_rest(devices);
        }
        self.base.index.end_replay();
        self.base.enqueue_deferred();
        let limit = self.base.queue_limit_bytes();
        self.base.quarantine.set_overdraft(self.base.index.queue_bytes().saturating_sub(limit));
        Ok(())
    }

    /// Lets the reader keep of the log what fits into the memory of the cache and of the queues.
    fn leave_memory(&self, reader: &mut LogReader) {
        let free = self.base.queue_limit_bytes().saturating_sub(self.base.index.queue_bytes());
        reader.keep_at_most(self.base.config.cache_bytes + free);
    }

    /// Finishes everything in flight, so that no other completions interleave.
    fn come_to_rest(&mut self, devices: &mut dyn Devices) {
        self.base.gate.pause();
        drive::until(self, devices, |core| core.is_quiet() || core.base.gate.is_closed());
        self.base.gate.resume();
    }

    /// Takes out updates of consecutive records, each with its sequence, and replays them.
    fn replay_group(
        &mut self,
        devices: &mut dyn Devices,
        group: &mut Vec<(Seq, LoggedUpdate<'_>)>,
        access: Access,
    ) -> Result<(), Error> {
        let Some((last, _)) = group.last() else { return Ok(()) };
        self.base.index.accept_through(*last);
        if self.base.index.has_unregistered() {
            let missing = |(seq, update): &mut (Seq, LoggedUpdate<'_>)| {
                self.base.index.missing_format_of(update.space, *seq).is_some()
            };
            let unregistered: Vec<_> = group.extract_if(.., missing).collect();
            for (seq, update) in unregistered {
                self.replay_unregistered(seq, &update, access)?;
            }
        }
        for (target, (seq, update)) in self.targets_of(group).into_iter().zip(group.drain(..)) {
            match target {
                None => {}
                Some(Target::Block(id)) => self.replay_update(seq, &update, id, access)?,
                Some(Target::Later(_)) => self.replay_for_holders(seq, &update, access)?,
            }
        }
        if access == Access::ReadWrite
            && self.base.index.queue_bytes() > self.base.queue_limit_bytes()
        {
            // The log is read with nothing else in flight. A full store is opened nevertheless,
            // with more memory than it was given: otherwise nothing could be deleted from it.
            self.sweep.request(&mut self.base);
            drive::until(self, devices, |core| {
                let fits = core.base.index.queue_bytes() <= core.base.queue_limit_bytes() / 2;
                fits || !core.sweep.is_needed(&core.base)
            });
            self.sweep.withdraw();
            self.come_to_rest(devices);
            if let Some(closed) = self.base.gate.closed() {
                return Err(closed.clone().into());
            }
        }
        Ok(())
    }

    /// The blocks for which updates have to wait again; `Later` if there may be several, or other
    /// ones than the block that covers the key. Each step covers all updates, so that their memory
    /// accesses overlap.
    fn targets_of(&mut self, group: &[(Seq, LoggedUpdate<'_>)]) -> Vec<Option<Target>> {
        if !self.base.index.directory().clones.is_empty() {
            return vec![Some(Target::Later(None)); group.len()];
        }
        let routed = self.base.index.route(group.iter().map(|(_, update)| update));
        let missing = |((seq, update), target): (&(Seq, LoggedUpdate<'_>), &Option<Target>)| {
            target.filter(|target| match target {
                Target::Block(id) => self.is_missing(*seq, update, update.space, *id),
                Target::Later(_) => true,
            })
        };
        let targets: Vec<_> = group.iter().zip(&routed).map(missing).collect();
        self.base.index.keep_targets(routed);
        self.base.index.touch_queues(&targets);
        targets
    }

    /// Replays an update for its space, and for clones made of that later.
    fn replay_for_holders(
        &mut self,
        seq: Seq,
        update: &LoggedUpdate<'_>,
        access: Access,
    ) -> Result<(), Error> {
        let mut told: Vec<BlockId> = Vec::new();
        for space in self.base.index.directory().clones.holders(update.space, seq) {
            let Some(found) = self.base.index.directory().space(space) else { continue };
            let position = found.format.position(update.key);
            let Some(id) = self.base.index.directory().covering(space, &position) else { continue };
            if !told.contains(&id) && self.is_missing(seq, update, space, id) {
                told.push(id);
                self.replay_update(seq, update, id, access)?;
            }
        }
        Ok(())
    }

    fn replay_update(
        &mut self,
        seq: Seq,
        update: &LoggedUpdate<'_>,
        id: BlockId,
        access: Access,
    ) -> Result<(), Error> {
        self.base.note_waiting(id, update.modifier, access == Access::ReadWrite)?;
        let LoggedUpdate { modifier, key, operand, .. } = *update;
        self.base.index.push(id, &UpdateRef { seq, modifier, key, operand });
        Ok(())
    }

    /// Replays an update of a space whose format is not registered. Whether it is inside an image
    /// cannot be determined, so it waits again. It keeps the log from the place where it waits.
    ///
    /// # Errors
    /// [`UnknownFormat`](crate::RequestError::UnknownFormat) in a store that is open for more than
    /// upkeep.
    fn replay_unregistered(
        &mut self,
        seq: Seq,
        update: &LoggedUpdate<'_>,
        access: Access,
    ) -> Result<(), Error> {
        let mut told: Vec<BlockId> = Vec::new();
        for number in self.base.index.directory().clones.holders(update.space, seq) {
            let directory = self.base.index.directory();
            let Some(space) = directory.space(number) else { continue };
            let first = || directory.blocks_of(space).next();
            // Without any block there is none that it could wait for.
            let found = directory.covering(number, update.key).or_else(first);
            let Some(id) = found else { continue };
            if access == Access::ReadWrite {
                space.check_format()?;
            }
            if told.contains(&id) {
                continue;
            }
            told.push(id);
            self.base.hold(id);
            let LoggedUpdate { modifier, key, operand, .. } = *update;
            self.base.index.push(id, &UpdateRef { seq, modifier, key, operand });
        }
        Ok(())
    }

    /// Whether an update for this block of a space has to wait for it again: it is neither inside
    /// the image nor in a spill segment, and nothing later removes it.
    fn is_missing(&self, seq: Seq, update: &LoggedUpdate<'_>, space: SpaceId, id: BlockId) -> bool {
        let frontier = self.base.index.directory().block(id).placement().frontier;
        let inside = frontier >= seq || self.base.index.is_in_spill_segment(space, seq, update.key);
        let again = broken::is(Fault::ReplayIgnoresFrontier)
            || broken::is(Fault::ReplayFromFrontier) && frontier == seq;
        (!inside || again) && !self.base.index.is_removed(space, seq, update.key)
    }

    /// Reads every spill segment, to build the filter of its keys and to count its updates in their
    /// blocks. One that cannot be read may have any key, and concerns every block that it covers:
    /// queries and sweeps of these will report the error.
    ///
    /// # Errors
    /// As `Base::note_waiting`.
    pub(super) fn load_spill_segments(
        &mut self,
        devices: &mut dyn Devices,
        access: Access,
    ) -> Result<(), Error> {
        let segments = self.base.index.spill_segments.take();
        let ranges: Vec<_> = segments.iter().map(|segment| segment.record.extent.range()).collect();
        let mut filters: Vec<_> = segments.iter().map(|_| None).collect();
        let bulk = self.base.config.bulk;
        device::read_all(devices, &ranges, &bulk, |index, read| -> Result<(), Error> {
            let SpillSegment { record, seq, .. } = &*segments[index];
            let identity = spill_segments::identity(self.base.config.store, record);
            let body = read.ok().and_then(|image| {
                let body = image_format::decode(image, &identity).ok()?;
                image.get(body)
            });
            filters[index] = self.load_spill_segment(record, *seq, body, access)?;
            Ok(())
        })?;
        for (segment, filter) in segments.iter().zip(filters) {
            let (record, seq) = (segment.record.clone(), segment.seq);
            self.base.index.spill_segments.insert(SpillSegment { record, seq, filter });
        }
        Ok(())
    }

    /// Counts the updates of a spill segment, and returns the filter of its keys; none if its
    /// `body` could not be read.
    fn load_spill_segment(
        &mut self,
        record: &SpillSegmentRecord,
        seq: Seq,
        body: Option<&[u8]>,
        access: Access,
    ) -> Result<Option<Filter>, Error> {
        let waiting = body.and_then(|body| spill_segments::waiting_all(body).ok());
        match (self.base.index.missing_format_of(record.space, seq), waiting) {
            // The blocks that cover its keys cannot be determined.
            (Some(missing), _) if access == Access::ReadWrite => Err(missing),
            (None, Some(waiting)) => {
                self.count_spilled(record, seq, &waiting, access)?;
                let keys = waiting.iter().flat_map(Waiting::updates).map(|update| update.key);
                let count = waiting.iter().map(Waiting::count).sum();
                Ok(Some(Filter::new(count, keys)))
            }
            _ => {
                self.base.index.mark_spilled(record, seq);
                Ok(None)
            }
        }
    }

    /// Adds the updates of a spill segment to the counts of their blocks.
    fn count_spilled(
        &mut self,
        record: &SpillSegmentRecord,
        seq: Seq,
        waiting: &[Waiting<'_>],
        access: Access,
    ) -> Result<(), Error> {
        let mut told = Vec::new();
        let holders = self.base.index.directory().clones.holders(record.space, seq);
        for update in waiting.iter().flat_map(Waiting::updates) {
            told.clear();
            for space in &holders {
                let Some(found) = self.base.index.directory().space(*space) else { continue };
                let position = found.format.position(update.key);
                let Some(id) = self.base.index.directory().covering(*space, &position) else {
                    continue;
                };
                if !told.contains(&id) && self.base.index.count_spilled(id, record.through) {
                    told.push(id);
                    self.base.note_waiting(id, update.modifier, access == Access::ReadWrite)?;
                }
            }
        }
        Ok(())
    }

    /// Replays the removal of a range, for all spaces that share its blocks.
    fn replay_range(
        &mut self,
        seq: Seq,
        record: &RangeRecord,
        access: Access,
    ) -> Result<(), Error> {
        let range = record.range();
        let mut told = BTreeSet::new();
        for space in self.base.index.directory().clones.holders(record.space, seq) {
            self.base.index.push_range(seq, space, &range, &mut told);
        }
        self.hold_range(seq, record, told, access)
    }

    /// Makes the removal of a range wait in a space whose format is not registered. Where ranges
    /// can be removed a key is its own position, so the blocks for which it waits are known to any
    /// process.
    ///
    /// # Errors
    /// As [`Core::replay_unregistered`].
    fn hold_range(
        &mut self,
        seq: Seq,
        range: &RangeRecord,
        told: BTreeSet<BlockId>,
        access: Access,
    ) -> Result<(), Error> {
        let index = &self.base.index;
        let is_any = index.has_unregistered() && !told.is_empty();
        let Some(missing) = is_any.then(|| index.missing_format_of(range.space, seq)).flatten()
        else {
            return Ok(());
        };
        if access == Access::ReadWrite {
            return Err(missing);
        }
        told.into_iter().for_each(|id| self.base.hold(id));
        Ok(())
    }
}

/// Adds the updates of a record to a group.
fn gather<'a>(
    batch: Location,
    seq: Seq,
    mut updates: Updates<'a>,
    group: &mut Vec<(Seq, LoggedUpdate<'a>)>,
) -> Result<(), Error> {
    let malformed = |malformed| malformed_record(batch, seq, malformed);
    while let Some(update) = updates.next_update().map_err(malformed)? {
        group.push((seq, update));
    }
    Ok(())
}

/// The cells of the reference array that a record changes, and by how much.
fn deferred_counts(
    batch: Location,
    seq: Seq,
    mut updates: Updates<'_>,
) -> Result<Vec<(u64, i64)>, Error> {
    let mut cells = Vec::new();
    let malformed = |malformed| malformed_record(batch, seq, malformed);
    while let Some(update) = updates.next_update().map_err(malformed)? {
        let cell = decode_cell(update.key, update.operand);
        cells.push(cell.ok_or_else(|| malformed(Malformed("cell of the reference array")))?);
    }
    Ok(cells)
}

/// A record whose batch is intact, but whose content this version does not know.
fn malformed_record(batch: Location, seq: Seq, malformed: Malformed) -> Error {
    let what = format!("log record {seq}");
    let reason = format!("checksum holds, but the content is not known here: {malformed}");
    Damage { location: Some(batch), what, reason }.into()
}
