//! Operations on spaces: creation, clones and snapshots, lookup by name, dropping in the
//! background, removal of ranges, and registration of modifiers.
//!
//! Each is one log record, and takes effect when that is durable: see `index/publish.rs`.

use std::sync::Arc;

use super::Core;
use crate::engine::block_format::BlockFormat;
use crate::engine::catalog::FIRST_USER_SPACE;
use crate::engine::config::KEY_BYTES_MAX;
use crate::engine::event::Event;
use crate::engine::format::record_format::{
    CloneRecord, ModifierRecord, RangeRecord, SnapshotRecord, SpaceRecord, encode_clone,
    encode_create_space, encode_drop_snapshot, encode_drop_space, encode_modifier,
    encode_remove_range,
};
use crate::engine::ids::{SnapshotId, SpaceId};
use crate::engine::journal::Publish;
use crate::engine::modifier::{Modifier, check_name};
use crate::engine::registry::ModifierId;
use crate::engine::tree::Differing;
use crate::engine::visitor::BlockVisitor;
use crate::error::{Error, RequestError, RetryError};
use crate::log::Seq;

/// Longest name of a space, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;

impl Core {
    /// The space of this name, if it exists.
    #[must_use]
    pub fn space_named(&self, name: &str) -> Option<&SpaceRecord> {
        self.base.index.directory().space_named(name).map(|space| &space.record)
    }

    /// The format of the blocks of a space.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::UnknownFormat`] if it is not registered.
    pub fn format_of(&self, space: SpaceId) -> Result<Arc<dyn BlockFormat>, Error> {
        let no_table = || RequestError::NoTable(format!("number {space}"));
        let space = self.base.index.directory().space(space).ok_or_else(no_table)?;
        space.check_format()?;
        Ok(Arc::clone(&space.format))
    }

    /// All spaces of the application, those of snapshots included: number, name, format.
    pub fn spaces(&self) -> impl Iterator<Item = &SpaceRecord> {
        let companions = |space: &&SpaceRecord| !space.name.is_empty();
        self.base.index.directory().spaces().map(|space| &space.record).filter(companions)
    }

    /// Records in published images, and waiting updates, of one space.
    #[must_use]
    pub fn space_size(&self, space: SpaceId) -> SpaceSize {
        let mut size = SpaceSize::default();
        let Some(found) = self.base.index.directory().space(space) else { return size };
        for id in self.base.index.directory().blocks_of(found) {
            let block = self.base.index.directory().block(id);
            size.blocks += 1;
            size.records += u64::from(block.placement().records);
            size.bytes += block.extent().map_or(0, |extent| u64::from(extent.bytes));
            let frozen = block.frozen.as_ref().map_or(0, |frozen| frozen.count());
            size.waiting += u64::from(block.queue.count() + frozen + block.spilled);
        }
        size.waiting += found.pending.len() as u64;
        size
    }

    /// Checks that a space may get this name.
    fn check_new_name(&self, name: &str) -> Result<(), Error> {
        let bad_name =
            name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control);
        if bad_name {
            return Err(RequestError::BadTableName(name.to_owned()).into());
        }
        if let Some(taken) = self.space_named(name) {
            let (table, found) =
                (name.to_owned(), format!("there, with format {:?}", taken.format));
            let wanted = "a new one".to_owned();
            return Err(RequestError::TableMismatch { table, found, wanted }.into());
        }
        let takes =
            |record: &SpaceRecord| record.snapshot == SnapshotId::NONE && record.name == name;
        let waiting = self.base.journal.events().any(|event| match event {
            Event::Create(record) => takes(record),
            Event::Clone(clone) => clone.pairs.iter().any(|(_, record)| takes(record)),
            _ => false,
        });
        if waiting { Err(RetryError::Busy.into()) } else { Ok(()) }
    }

    /// Creates a space for application blocks of the registered format `format`, with a companion
    /// for large values if `large_values`. It exists once the returned sequence is durable.
    ///
    /// # Errors
    /// [`RequestError::BadTableName`]; [`RequestError::TableMismatch`] if the name is taken;
    /// [`RequestError::UnknownFormat`]; [`RetryError::Busy`] when the log has no room, or another
    /// structure of this name is being created.
    pub fn create_space(
        &mut self,
        name: &str,
        format: &str,
        large_values: bool,
    ) -> Result<(SpaceId, Seq), Error> {
        self.base.gate.check_open()?;
        self.base.index.bindings.format(format)?;
        self.check_new_name(name)?;
        let space = self.base.index.next_space();
        let companion = if large_values { space.next() } else { SpaceId::NONE };
        let (format, name) = (format.to_owned(), name.to_owned());
        let record = SpaceRecord { space, companion, snapshot: SnapshotId::NONE, format, name };
        let mut payload = Vec::new();
        encode_create_space(&record, &mut payload);
        let publish = Publish::Event(Event::Create(record));
        let seq = self.base.append_or_make_room(&payload, publish)?;
        self.base.index.take_spaces(1);
        Ok((space, seq))
    }

    /// Drops a space with all its content, once the returned sequence is durable; its memory and
    /// room on the devices are released in the background. One log record, whatever the size.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::ReadOnly`] for a space of a snapshot, which is
    /// dropped with the snapshot; [`RetryError::Busy`] when the log has no room.
    pub fn drop_space(&mut self, space: SpaceId) -> Result<Seq, Error> {
        self.base.gate.check_open()?;
        let record = self.base.index.check_space(space)?;
        if record.snapshot != SnapshotId::NONE || space < FIRST_USER_SPACE {
            return Err(RequestError::ReadOnly(record.name.clone()).into());
        }
        let mut payload = Vec::new();
        encode_drop_space(space, &mut payload);
        self.base.append_or_make_room(&payload, Publish::Event(Event::Drop(space)))
    }

    /// Makes `name` a clone of the space `source`, which may be one of a snapshot: both have all
    /// that was accepted so far, and diverge from then on. The clone exists once the returned
    /// sequence is durable. One log record and no other write, whatever the size; memory: only the
    /// name. (Rodeh, section 1: several roots share their pages.)
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::BadTableName`]; [`RequestError::TableMismatch`]
    /// if the name is taken; [`RetryError::Busy`] when the log has no room, or another structure of
    /// this name is being created.
    pub fn clone_space(&mut self, source: SpaceId, name: &str) -> Result<(SpaceId, Seq), Error> {
        self.base.gate.check_open()?;
        self.check_new_name(name)?;
        let record = SpaceRecord {
            name: name.to_owned(),
            ..self.new_clone_of(source, SnapshotId::NONE, 0)?
        };
        let space = record.space;
        let clone = CloneRecord { snapshot: None, pairs: vec![(source, record)] };
        Ok((space, self.append_clone(clone)?))
    }

    /// Preserves spaces in their current state: those given, or all of the application. The
    /// snapshot exists once its sequence is durable. `identity` distinguishes it from every other
    /// one, in copies of the store as well: random bytes. Cost: as [`Core::clone_space`], per
    /// space.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::BadSnapshotName`];
    /// [`RequestError::SnapshotExists`]; [`RetryError::Busy`] when the log has no room.
    pub fn create_snapshot(
        &mut self,
        name: Option<&str>,
        spaces: Option<&[SpaceId]>,
        identity: [u8; 16],
    ) -> Result<NewSnapshot, Error> {
        self.base.gate.check_open()?;
        if let Some(name) = name {
            self.check_snapshot_name(name)?;
        }
        let number = self.base.index.next_snapshot();
        let all = self.spaces_of(SnapshotId::NONE).map(|record| record.space);
        let all = all.filter(|space| *space >= FIRST_USER_SPACE);
        let sources = spaces.map_or_else(|| all.collect(), <[SpaceId]>::to_vec);
        let mut pairs = Vec::with_capacity(sources.len());
        for (position, source) in (1..).zip(sources) {
            pairs.push((source, self.new_clone_of(source, number, position)?));
        }
        let temporary = name.is_none();
        let name = name.unwrap_or_default().to_owned();
        let snapshot = Some(SnapshotRecord { number, temporary, identity, name });
        let clones = pairs.iter().map(|(source, clone)| (*source, clone.space)).collect();
        let seq = self.append_clone(CloneRecord { snapshot, pairs })?;
        Ok(NewSnapshot { number, seq, clones })
    }

    fn check_snapshot_name(&self, name: &str) -> Result<(), Error> {
        let bad =
            name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control);
        if bad {
            return Err(RequestError::BadSnapshotName(name.to_owned()).into());
        }
        let on_its_way = |event: &Event| match event {
            Event::Clone(clone) => {
                clone.snapshot.as_ref().is_some_and(|snapshot| snapshot.name == name)
            }
            _ => false,
        };
        let taken = self.base.index.directory().snapshots.named(name).is_some();
        if taken || self.base.journal.events().any(on_its_way) {
            return Err(RequestError::SnapshotExists(name.to_owned()).into());
        }
        Ok(())
    }

    /// The record of the `position`-th new clone, which has the name of its source.
    fn new_clone_of(
        &self,
        source: SpaceId,
        snapshot: SnapshotId,
        position: u32,
    ) -> Result<SpaceRecord, Error> {
        let found = self.base.index.check_space(source)?;
        if source < FIRST_USER_SPACE {
            return Err(RequestError::NoTable(found.name.clone()).into());
        }
        let space = self.base.index.next_space().plus(2 * position);
        let companion = if found.companion == SpaceId::NONE { SpaceId::NONE } else { space.next() };
        let (format, name) = (found.format.clone(), found.name.clone());
        Ok(SpaceRecord { space, companion, snapshot, format, name })
    }

    fn append_clone(&mut self, clone: CloneRecord) -> Result<Seq, Error> {
        let mut payload = Vec::new();
        encode_clone(&clone, &mut payload);
        let sources: Vec<SpaceId> = clone.pairs.iter().map(|(source, _)| *source).collect();
        let snapshots = usize::from(clone.snapshot.is_some());
        let count = u32::try_from(sources.len() + snapshots).expect("spaces are few");
        let seq = self.base.append_or_make_room(&payload, Publish::Event(Event::Clone(clone)))?;
        self.base.index.take_spaces(count);
        sources.into_iter().for_each(|source| self.base.index.raise_fence(source, seq));
        Ok(seq)
    }

    /// All snapshots, with the sequence that each of them shows.
    pub fn snapshots(&self) -> impl Iterator<Item = (&SnapshotRecord, Seq)> {
        self.base.index.directory().snapshots.iter().map(|(record, seq)| (record, *seq))
    }

    /// The snapshot with this number, and the sequence that it shows.
    #[must_use]
    pub fn snapshot(&self, number: SnapshotId) -> Option<(&SnapshotRecord, Seq)> {
        self.base.index.directory().snapshots.get(number).map(|(record, seq)| (record, *seq))
    }

    /// The number of the snapshot of this name.
    #[must_use]
    pub fn snapshot_named(&self, name: &str) -> Option<SnapshotId> {
        self.base.index.directory().snapshots.named(name)
    }

    /// The spaces of a snapshot; [`SnapshotId::NONE`]: those in no snapshot, which can be changed.
    pub fn spaces_of(&self, snapshot: SnapshotId) -> impl Iterator<Item = &SpaceRecord> {
        let records = self.base.index.directory().spaces_of(snapshot).map(|space| &space.record);
        records.filter(|record| !record.name.is_empty())
    }

    /// Ranges of positions, from `from` on, in which two spaces have different blocks: at most
    /// `count` of them, in order. Outside of them both hold the same. Cost: proportional to what
    /// the two do not share, and to the depth of their trees; reads nothing.
    ///
    /// # Errors
    /// [`RequestError::NoTable`].
    pub fn differences(
        &self,
        left: SpaceId,
        right: SpaceId,
        from: &[u8],
        count: usize,
    ) -> Result<Vec<Differing>, Error> {
        let space = |number| {
            let no_table = || RequestError::NoTable(format!("number {number}"));
            self.base.index.directory().space(number).ok_or_else(no_table)
        };
        let (left, right) = (space(left)?, space(right)?);
        let (trees, table) =
            (&self.base.index.directory().trees, &self.base.index.directory().table);
        Ok(trees.difference(table, left.root, right.root, from).take(count).collect())
    }

    /// Adds ranges of positions of an ordered space, from `from` on, in which there may be updates
    /// after this sequence; returns the position from which on to look for more, `None` at the end.
    /// Cost: in proportion to the blocks looked at, of which there are at most so many, and to what
    /// waits for them; reads nothing.
    ///
    /// # Errors
    /// [`RequestError::NoTable`].
    pub fn updated_after(
        &self,
        space: SpaceId,
        after: Seq,
        from: &[u8],
        blocks_max: usize,
        ranges: &mut Vec<Differing>,
    ) -> Result<Option<Box<[u8]>>, Error> {
        let index = &self.base.index;
        let no_table = || RequestError::NoTable(format!("number {space}"));
        let pending = &index.directory().space(space).ok_or_else(no_table)?.pending;
        let mut next = Some(Box::from(from));
        for _ in 0..blocks_max {
            let Some(low) = next.take() else { break };
            let Some(id) = index.directory().covering(space, &low) else {
                ranges.push(Differing { low, high: None });
                break;
            };
            let high = index.high_of(space, &low);
            let waiting = pending.in_range(&low, high.as_deref(), |_| true);
            next.clone_from(&high);
            if !(index.is_updated_after(space, id, after) || waiting.has_after(after)) {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.high.as_ref() == Some(&low) => last.high = high,
                _ => ranges.push(Differing { low, high }),
            }
        }
        Ok(next)
    }

    /// Drops a snapshot, once the returned sequence is durable; what only the snapshot had is
    /// released in the background.
    ///
    /// # Errors
    /// [`RequestError::NoSnapshot`]; [`RetryError::Busy`] when the log has no room.
    pub fn drop_snapshot(&mut self, snapshot: SnapshotId) -> Result<Seq, Error> {
        self.base.gate.check_open()?;
        if self.base.index.directory().snapshots.get(snapshot).is_none() {
            return Err(RequestError::NoSnapshot(format!("number {snapshot}")).into());
        }
        let mut payload = Vec::new();
        encode_drop_snapshot(snapshot, &mut payload);
        self.base.append_or_make_room(&payload, Publish::Event(Event::DropSnapshot(snapshot)))
    }

    /// Removes all records with keys from `from` to below `to` (`None`: to the end), including
    /// those that updates still wait for, once the returned sequence is durable. Later updates come
    /// after it. One log record; changes at most `4 x depth` nodes, reads nothing. (Rodeh, section
    /// 5.7.)
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::ReadOnly`]; [`RequestError::NotOrdered`] if the
    /// space does not keep its records in key order; [`RequestError::KeyTooLong`] for a bound that
    /// is longer than any key; [`RetryError::Busy`] when the log has no room.
    pub fn remove_range(
        &mut self,
        space: SpaceId,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<Seq, Error> {
        self.base.gate.check_open()?;
        let record = self.base.index.check_space(space)?;
        if record.snapshot != SnapshotId::NONE || space < FIRST_USER_SPACE {
            return Err(RequestError::ReadOnly(record.name.clone()).into());
        }
        if !self.format_of(space)?.keeps_key_order() {
            return Err(RequestError::NotOrdered(record.name.clone()).into());
        }
        let (bytes, limit) = (from.len().max(to.map_or(0, <[u8]>::len)), KEY_BYTES_MAX);
        if bytes > limit {
            return Err(RequestError::KeyTooLong { bytes, limit }.into());
        }
        let (from, to) = (from.to_vec(), to.map(<[u8]>::to_vec));
        let range = RangeRecord { space, from, to };
        let mut payload = Vec::new();
        encode_remove_range(&range, &mut payload);
        let publish = Publish::Event(Event::RemoveRange(range));
        let seq = self.base.append_or_make_room(&payload, publish)?;
        self.sweep.note_change(space);
        self.base.index.accept_through(seq);
        self.base.index.raise_fence(space, seq);
        Ok(seq)
    }

    /// Shows every block of a space that is swept from now on to `visitor`, which replaces the
    /// previous one; `None` stops this. A block that a space shares with others is shown to the
    /// visitor of one of them.
    ///
    /// # Errors
    /// [`RequestError::NoTable`].
    pub fn set_visitor(
        &mut self,
        space: SpaceId,
        visitor: Option<Arc<dyn BlockVisitor>>,
    ) -> Result<(), Error> {
        self.base.index.check_space(space)?;
        self.base.index.set_visitor(space, visitor);
        Ok(())
    }

    /// The message of the panic that stopped the visitor of a space, if one did.
    #[must_use]
    pub fn visitor_panic(&self, space: SpaceId) -> Option<String> {
        self.base.index.visitors().panic(space).map(str::to_owned)
    }

    /// Gives a number to a modifier of the application that has none in this store yet.
    ///
    /// # Errors
    /// [`RequestError::BadModifierName`]; [`RetryError::Busy`] when the log has no room.
    pub fn register_modifier(&mut self, modifier: Arc<dyn Modifier>) -> Result<ModifierId, Error> {
        if let Some(known) =
            self.base.index.bindings.modifiers().id_of(modifier.name(), modifier.version())
        {
            return Ok(known);
        }
        check_name(modifier.name())?;
        let id = self.base.index.bindings.next_id();
        let (name, version) = (modifier.name().to_owned(), modifier.version());
        let record = ModifierRecord { id, version, name };
        let mut payload = Vec::new();
        encode_modifier(&record, &mut payload);
        self.base.append_or_make_room(&payload, Publish::Nothing)?;
        self.base.index.bindings.bind_new(record, modifier);
        Ok(id)
    }
}

/// A snapshot that is being created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSnapshot {
    /// Its number.
    pub number: SnapshotId,
    /// It exists once this sequence is durable, and shows everything that was accepted before.
    pub seq: Seq,
    /// The spaces that it keeps, each with its number in the snapshot.
    pub clones: Vec<(SpaceId, SpaceId)>,
}

/// The size of a space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceSize {
    /// Blocks in the directory.
    pub blocks: u64,
    /// Records in their images.
    pub records: u64,
    /// Bytes of their images on the devices.
    pub bytes: u64,
    /// Updates that wait for them.
    pub waiting: u64,
}
