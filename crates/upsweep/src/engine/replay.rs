//! Replay: the log a second and a third time, through the functions that it went through at first.
//!
//! First pass: events change the directory, as they did when their records became durable. Second
//! pass: updates that no image holds go to the queues, those of a space also to the clones that
//! were made of it later. Between the two the places of all blocks are indexed and claimed.

use std::collections::BTreeSet;

use super::block_format::{Routing, UpdateRef};
use super::blocks::BlockId;
use super::config::Config;
use super::core::{Core, Release};
use super::directory::Target;
use super::drive;
use super::format::codec_format::Malformed;
use super::format::image_format;
use super::format::record_format::{self, LoggedUpdate, Payload, RangeRecord, Updates};
use super::format::reference_format::decode_cell;
use super::format::spill_segment_format::SpillSegmentRecord;
use super::publish::Event;
use super::queue::Waiting;
use super::recovery::Access;
use super::registry::ModifierId;
use super::spill_segments::{self, Filter, SpillSegment};
use crate::device::{self, Devices};
use crate::error::{Damage, Error, RequestError};
use crate::log::{LogReader, RecordRef};
use crate::placement::Extent;

/// Replay looks updates up together once it has gathered so many, or a batch ends.
const GROUP_UPDATES: usize = 64;

impl Core {
    /// First pass: everything that changes the directory.
    pub(super) fn replay_changes(
        &mut self,
        devices: &mut dyn Devices,
        reader: &mut LogReader,
    ) -> Result<(), Error> {
        while let Some(batch) = reader.next_batch(devices)? {
            batch.iter().try_for_each(|record| self.replay_change(record))?;
        }
        reader.rewind();
        self.index_places();
        Ok(())
    }

    fn replay_change(&mut self, record: &RecordRef<'_>) -> Result<(), Error> {
        let (seq, begin) = (record.seq, self.superblock.root_seq);
        if seq <= begin && record.stream != self.change_stream {
            return Ok(());
        }
        let payload = record_format::decode(record.payload)
            .map_err(|malformed| malformed_record(&self.config, seq, malformed))?;
        if let Payload::RemoveRange(range) = &payload {
            self.removed_ranges.push((seq, range.clone()));
        }
        if seq <= begin {
            return Ok(());
        }
        let event = match payload {
            Payload::Change(change, _) => {
                self.apply_change(seq, &change, Release::Never);
                return Ok(());
            }
            Payload::Modifier(record) => {
                self.bind_modifier(record);
                return Ok(());
            }
            Payload::Updates(updates) => self.blocks_for(seq, updates)?,
            Payload::DeferredCounts(updates) => {
                let blocks = self.blocks_for(seq, updates.clone())?;
                self.apply_event(seq, blocks, Release::Never);
                Event::DeferredCounts(deferred_counts(&self.config, seq, updates)?)
            }
            Payload::CreateSpace(record) => {
                self.format_named(&record.format)?;
                Event::Create(record)
            }
            Payload::DropSpace(space) => Event::Drop(space),
            Payload::Clone(clone) => Event::Clone(clone),
            Payload::DropSnapshot(snapshot) => Event::DropSnapshot(snapshot),
            Payload::RemoveRange(range) => Event::RemoveRange(range),
            Payload::Adopt(space, source) => Event::Adopt { space, source },
            Payload::Release(portion) => Event::Release(portion),
            Payload::Spill(spill_segments) => {
                for spilled in &spill_segments {
                    self.add_spill_segment(seq, spilled, None, Release::Never);
                }
                return Ok(());
            }
        };
        self.apply_event(seq, event, Release::Never);
        Ok(())
    }

    /// The blocks that updates needed when they were accepted.
    fn blocks_for(&self, seq: u64, mut updates: Updates<'_>) -> Result<Event, Error> {
        let mut wanted = Vec::new();
        let has_sharing = self.directory.trees.has_sharing();
        loop {
            let next = updates
                .next_update()
                .map_err(|malformed| malformed_record(&self.config, seq, malformed))?;
            let Some(update) = next else { return Ok(Event::Blocks(wanted)) };
            let Some(space) = self.directory.space(update.space) else { continue };
            if has_sharing || space.format.routing() == Routing::Exact {
                let position = space.format.position(update.key);
                wanted.push((update.space, Box::from(&*position)));
            }
        }
    }

    /// Builds the index of places, which replay does not keep.
    fn index_places(&mut self) {
        self.physical.clear();
        for id in self.directory.table.ids() {
            if let Some(extent) = self.directory.block(id).extent() {
                self.physical.insert((extent.device, extent.offset, id));
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
        self.replaying = true;
        let mut told = self.accepted;
        while let Some(batch) = reader.next_batch(devices)? {
            let mut group = Vec::new();
            for RecordRef { seq, payload, .. } in batch {
                if group.len() >= GROUP_UPDATES || !self.carried_replay.is_empty() {
                    self.replay_group(devices, &mut group, access)?;
                    self.replay_carried(seq);
                }
                let payload = record_format::decode(payload)
                    .map_err(|malformed| malformed_record(&self.config, seq, malformed))?;
                match payload {
                    Payload::Updates(updates)
                    | Payload::Change(_, updates)
                    | Payload::DeferredCounts(updates) => {
                        gather(&self.config, seq, updates, &mut group)?;
                    }
                    Payload::RemoveRange(range) => {
                        self.replay_group(devices, &mut group, access)?;
                        self.replay_range(seq, &range);
                        self.accepted = seq;
                    }
                    _ => {}
                }
            }
            self.replay_group(devices, &mut group, access)?;
            self.note_replayed(&mut told);
        }
        self.replay_carried(u64::MAX);
        if access == Access::ReadWrite {
            // Runs that replay has started must not be in flight when callers come in: their
            // requests belong to this function's use of the devices.
            self.come_to_rest(devices);
        }
        self.replaying = false;
        self.removed_ranges.clear();
        self.enqueue_deferred();
        self.overdraft_bytes = self.queue_bytes().saturating_sub(self.queue_limit_bytes());
        Ok(())
    }

    /// Ends all that is on its way, so that nobody else's completions come in between.
    fn come_to_rest(&mut self, devices: &mut dyn Devices) {
        self.paused = true;
        drive::until(self, devices, |core| core.is_quiet() || core.closed.is_some());
        self.paused = false;
    }

    /// Updates of records that follow each other, each with its sequence; takes them out.
    fn replay_group(
        &mut self,
        devices: &mut dyn Devices,
        group: &mut Vec<(u64, LoggedUpdate<'_>)>,
        access: Access,
    ) -> Result<(), Error> {
        let Some((last, _)) = group.last() else { return Ok(()) };
        self.accepted = *last;
        for (target, (seq, update)) in self.targets_of(group).into_iter().zip(group.drain(..)) {
            match target {
                None => {}
                Some(Target::Block(id)) => self.replay_update(seq, &update, id, access)?,
                Some(Target::Later(_)) => self.replay_for_holders(seq, &update, access)?,
            }
        }
        if access == Access::ReadWrite && self.queue_bytes() > self.queue_limit_bytes() {
            // The log is read with nothing else in flight. A full store is opened all the same,
            // with more memory than it was given: else nothing could be deleted from it.
            drive::until(self, devices, |core| {
                let fits = core.queue_bytes() <= core.queue_limit_bytes() / 2;
                fits || core.full || core.closed.is_some()
            });
            self.come_to_rest(devices);
            if let Some(closed) = &self.closed {
                return Err(closed.clone().into());
            }
        }
        Ok(())
    }

    /// The blocks for which updates have to wait again; `Later` if that may be several, or others
    /// than the one that covers the key. In steps over all updates, so that these wait for memory
    /// together and not one by one.
    fn targets_of(&mut self, group: &[(u64, LoggedUpdate<'_>)]) -> Vec<Option<Target>> {
        if !self.directory.clones.is_empty() {
            return vec![Some(Target::Later(None)); group.len()];
        }
        let routed = self.route(group.iter().map(|(_, update)| update));
        let missing = |((seq, update), target): (&(u64, LoggedUpdate<'_>), &Option<Target>)| {
            target.filter(|target| match target {
                Target::Block(id) => self.is_missing(*seq, update, update.space, *id),
                Target::Later(_) => true,
            })
        };
        let targets: Vec<_> = group.iter().zip(&routed).map(missing).collect();
        self.targets = routed;
        self.touch_queues(&targets);
        targets
    }

    /// An update for its space, and for the clones that were made of that later.
    fn replay_for_holders(
        &mut self,
        seq: u64,
        update: &LoggedUpdate<'_>,
        access: Access,
    ) -> Result<(), Error> {
        let mut told: Vec<BlockId> = Vec::new();
        for space in self.directory.clones.holders(update.space, seq) {
            let Some(found) = self.directory.space(space) else { continue };
            let position = found.format.position(update.key);
            let Some(id) = self.directory.covering(space, &position) else { continue };
            if !told.contains(&id) && self.is_missing(seq, update, space, id) {
                told.push(id);
                self.replay_update(seq, update, id, access)?;
            }
        }
        Ok(())
    }

    fn replay_update(
        &mut self,
        seq: u64,
        update: &LoggedUpdate<'_>,
        id: BlockId,
        access: Access,
    ) -> Result<(), Error> {
        self.note_waiting(id, update.modifier, access)?;
        let LoggedUpdate { modifier, key, operand, .. } = *update;
        self.push(id, &UpdateRef { seq, modifier, key, operand });
        Ok(())
    }

    /// Whether an update for this block of a space has to wait for it again: it is neither inside
    /// its image nor in a spill segment, and nothing that comes later removes it.
    fn is_missing(&self, seq: u64, update: &LoggedUpdate<'_>, space: u32, id: BlockId) -> bool {
        let inside = self.directory.block(id).placement().frontier >= seq
            || self.is_in_spill_segment(space, seq, update.key);
        (!inside || cfg!(feature = "broken-frontier")) && !self.is_removed(space, seq, update.key)
    }

    /// Whether a spill segment has what was accepted for a key up to this sequence.
    fn is_in_spill_segment(&self, space: u32, seq: u64, key: &[u8]) -> bool {
        if self.spill_segments.is_empty() || cfg!(feature = "broken-spill") {
            return false;
        }
        let Some(found) = self.directory.space(space) else { return false };
        self.spill_segments.hold(
            &self.directory.clones.sources(space),
            &found.format.position(key),
            seq,
        )
    }

    /// Reads every spill segment, for the filter of its keys and to tell the blocks for which it
    /// has updates. One that cannot be read may have any key, and concerns every block that it
    /// covers: queries and sweeps of these will say what is wrong.
    ///
    /// # Errors
    /// As [`Core::note_waiting`].
    pub(super) fn load_spill_segments(
        &mut self,
        devices: &mut dyn Devices,
        access: Access,
    ) -> Result<(), Error> {
        for segment in self.spill_segments.take() {
            let SpillSegment { record, seq, .. } = &*segment;
            let (record, seq) = (record.clone(), *seq);
            let Extent { device, offset, bytes } = record.extent;
            let identity = spill_segments::identity(self.config.store, &record);
            let read = device::read_alone(devices, device, offset, bytes as usize);
            let image = read.map_err(|error| error.to_string()).and_then(|buffer| {
                let body = image_format::decode(&buffer, &identity)?;
                Ok((buffer, body))
            });
            let waiting = image.as_ref().map_err(Clone::clone).and_then(|(buffer, body)| {
                spill_segments::waiting_all(&buffer[body.clone()])
                    .map_err(|error| error.to_string())
            });
            let filter = match waiting {
                Ok(waiting) => {
                    self.count_spilled(&record, seq, &waiting, access)?;
                    let keys = waiting.iter().flat_map(Waiting::updates).map(|update| update.key);
                    let count = waiting.iter().map(Waiting::count).sum();
                    Some(Filter::new(count, keys))
                }
                Err(_) => {
                    self.mark_spilled(&record, seq);
                    None
                }
            };
            self.spill_segments.insert(SpillSegment { record, seq, filter });
        }
        Ok(())
    }

    /// Tells blocks how many updates a spill segment has for them.
    fn count_spilled(
        &mut self,
        record: &SpillSegmentRecord,
        seq: u64,
        waiting: &[Waiting<'_>],
        access: Access,
    ) -> Result<(), Error> {
        let mut told = Vec::new();
        let holders = self.directory.clones.holders(record.space, seq);
        for update in waiting.iter().flat_map(Waiting::updates) {
            told.clear();
            for space in &holders {
                let Some(found) = self.directory.space(*space) else { continue };
                let position = found.format.position(update.key);
                let Some(id) = self.directory.covering(*space, &position) else { continue };
                let block = self.directory.block_mut(id);
                if block.placement().frontier < record.through && !told.contains(&id) {
                    block.spilled += 1;
                    told.push(id);
                    self.note_waiting(id, update.modifier, access)?;
                }
            }
        }
        Ok(())
    }

    /// Has every block believe in an update in a spill segment that covers its keys.
    fn mark_spilled(&mut self, record: &SpillSegmentRecord, seq: u64) {
        for space in self.directory.clones.holders(record.space, seq) {
            let mut covering = self.directory.covering(space, &record.low);
            while let Some(id) = covering {
                let key = self.directory.block(id).key.clone();
                if record.high.as_ref().is_some_and(|high| **high <= *key) {
                    break;
                }
                let block = self.directory.block_mut(id);
                if block.placement().frontier < record.through {
                    block.spilled = block.spilled.max(1);
                }
                covering = self.directory.above(space, &key);
            }
        }
    }

    /// Whether a range is removed later on that has the key. Then the block that covers the key now
    /// may never have had it: the update must not even be tried.
    fn is_removed(&self, space: u32, seq: u64, key: &[u8]) -> bool {
        self.removed_ranges.iter().any(|(at, record)| {
            *at > seq
                && record.range().contains(key)
                && self.directory.clones.concerns(record.space, *at, space)
        })
    }

    /// The error that names a modifier that is not registered.
    pub(super) fn unknown_modifier(&self, id: ModifierId) -> Error {
        let known = self.modifier_records.iter().find(|known| known.id == id);
        let (name, version) = known.map_or_else(
            || (format!("number {}", id.0), 0),
            |known| (known.name.clone(), known.version),
        );
        RequestError::UnknownModifier { name, version }.into()
    }

    /// The removal of a range, for all that share what it concerns.
    fn replay_range(&mut self, seq: u64, record: &RangeRecord) {
        let range = record.range();
        let mut told = BTreeSet::new();
        for space in self.directory.clones.holders(record.space, seq) {
            self.push_range(seq, space, &range, &mut told);
        }
    }
}

/// Adds the updates of a record to a group.
fn gather<'a>(
    config: &Config,
    seq: u64,
    mut updates: Updates<'a>,
    group: &mut Vec<(u64, LoggedUpdate<'a>)>,
) -> Result<(), Error> {
    let malformed = |malformed| malformed_record(config, seq, malformed);
    while let Some(update) = updates.next_update().map_err(malformed)? {
        group.push((seq, update));
    }
    Ok(())
}

/// What cells of the reference array a record tells, and how much.
fn deferred_counts(
    config: &Config,
    seq: u64,
    mut updates: Updates<'_>,
) -> Result<Vec<(u64, i64)>, Error> {
    let mut cells = Vec::new();
    let malformed = |malformed| malformed_record(config, seq, malformed);
    while let Some(update) = updates.next_update().map_err(malformed)? {
        let cell = decode_cell(update.key, update.operand);
        cells.push(cell.ok_or_else(|| malformed(Malformed("cell of the reference array")))?);
    }
    Ok(cells)
}

fn malformed_record(config: &Config, seq: u64, malformed: Malformed) -> Error {
    let region = config.log_regions[0];
    let what = format!("log record {seq}");
    let reason = format!("checksum holds, but the content is not known here: {malformed}");
    Damage { device: region.device, offset: region.offset, what, reason }.into()
}
