//! Spaces come and go: creation, lookup by name, dropping in the background, and modifiers that get
//! their numbers.

use std::sync::Arc;

use super::block_format::BlockFormat;
use super::core::{Core, Publish};
use super::directory::{Page, Space};
use super::format::record_format::{
    ModifierRecord, SpaceRecord, encode_create_space, encode_drop_space, encode_modifier,
};
use super::modifier::{Modifier, check_name};
use super::registry::{FIRST_USER_ID, ModifierId};
use super::visitor::BlockVisitor;
use crate::error::{Error, RequestError, RetryError};

/// Longest name of a space, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Blocks of dropped spaces that one pump gives back.
const DROPPED_PER_PUMP: usize = 256;
/// Name of the format of spaces that hold large values.
pub const LARGE_VALUE_FORMAT: &str = "raw";

impl Core {
    /// The space of this name, if it is there.
    #[must_use]
    pub fn space_named(&self, name: &str) -> Option<&SpaceRecord> {
        self.spaces().find(|record| record.name == name)
    }

    /// How the blocks of a space are laid out.
    #[must_use]
    pub fn format_of(&self, space: u32) -> Option<Arc<dyn BlockFormat>> {
        self.directory.space(space).map(|space| Arc::clone(&space.format))
    }

    /// All spaces of the application: number, name, format.
    pub fn spaces(&self) -> impl Iterator<Item = &SpaceRecord> {
        let companions = |space: &&SpaceRecord| !space.name.is_empty();
        self.directory.spaces().map(|space| &space.record).filter(companions)
    }

    /// Records in published images, and updates that wait, of one space.
    #[must_use]
    pub fn space_size(&self, space: u32) -> SpaceSize {
        let mut size = SpaceSize::default();
        let Some(found) = self.directory.space(space) else { return size };
        for id in found.pages.iter().flat_map(Page::blocks) {
            let block = self.directory.block(*id);
            size.blocks += 1;
            size.records += u64::from(block.records);
            size.bytes += block.extent.map_or(0, |extent| u64::from(extent.bytes));
            let frozen = block.frozen.as_ref().map_or(0, |frozen| frozen.count());
            size.waiting += u64::from(block.queue.count() + frozen);
        }
        size
    }

    /// Creates a space for application blocks of the registered format `format`, with a companion
    /// for large values if `large_values`. It is there once the returned sequence is durable.
    ///
    /// # Errors
    /// A bad or taken name, an unknown format; [`RetryError::Busy`] when the log has no room.
    pub fn create_space(
        &mut self,
        name: &str,
        format: &str,
        large_values: bool,
    ) -> Result<(u32, u64), Error> {
        if let Some(closed) = &self.closed {
            return Err(closed.clone().into());
        }
        let bad_name =
            name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control);
        if bad_name {
            return Err(RequestError::BadTableName(name.to_owned()).into());
        }
        self.format_named(format)?;
        if let Some(taken) = self.space_named(name) {
            let (table, found) =
                (name.to_owned(), format!("there, with format {:?}", taken.format));
            let wanted = "a new one".to_owned();
            return Err(RequestError::TableMismatch { table, found, wanted }.into());
        }
        let waiting = self.publishes.iter().any(
            |(_, publish)| matches!(publish, Publish::CreateSpace(record) if record.name == name),
        );
        if waiting {
            return Err(RetryError::Busy.into());
        }
        let space = self.superblock.next_space;
        let companion = if large_values { space + 1 } else { 0 };
        let (format, name) = (format.to_owned(), name.to_owned());
        let record = SpaceRecord { space, companion, format, name };
        let mut payload = Vec::new();
        encode_create_space(&record, &mut payload);
        let publish = Publish::CreateSpace(record);
        let seq = self.append_or_make_room(&payload, publish)?;
        self.superblock.next_space += 2;
        Ok((space, seq))
    }

    /// Appends a record of the engine; if the log has no room, sees to it that there will be some.
    fn append_or_make_room(&mut self, payload: &[u8], publish: Publish) -> Result<u64, Error> {
        self.append_internal(payload, publish).map_err(|_| {
            self.make_room();
            RetryError::Busy.into()
        })
    }

    /// Puts a space into the directory, and its companion.
    pub(super) fn add_space(&mut self, record: SpaceRecord) {
        if self.directory.space(record.space).is_some() {
            return;
        }
        self.superblock.next_space = self.superblock.next_space.max(record.space + 2);
        if record.companion != 0 {
            let large = Arc::clone(&self.formats[LARGE_VALUE_FORMAT]);
            self.directory.add_space(companion_record(record.companion), large);
        }
        if let Ok(format) = self.format_named(&record.format) {
            self.directory.add_space(record, format);
        }
    }

    /// The format of this name, which may be followed by a colon and parameters.
    pub(super) fn format_named(&self, name: &str) -> Result<Arc<dyn BlockFormat>, Error> {
        let unknown = || RequestError::UnknownFormat(name.to_owned());
        let (base, parameters) = name.split_once(':').unwrap_or((name, ""));
        let format = self.formats.get(base).ok_or_else(unknown)?;
        if parameters.is_empty() {
            return Ok(Arc::clone(format));
        }
        let bad = |reason| RequestError::BadFormat { format: name.to_owned(), reason };
        Ok(format.configure(parameters).map_err(bad)?)
    }

    /// Drops a space with all that is in it, once the returned sequence is durable; its memory and
    /// room on the devices come back in the background.
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RetryError::Busy`] when the log has no room.
    pub fn drop_space(&mut self, space: u32) -> Result<u64, Error> {
        if let Some(closed) = &self.closed {
            return Err(closed.clone().into());
        }
        if self.directory.space(space).is_none() {
            return Err(RequestError::NoTable(format!("number {space}")).into());
        }
        let mut payload = Vec::new();
        encode_drop_space(space, &mut payload);
        let publish = Publish::DropSpace(space);
        self.append_or_make_room(&payload, publish)
    }

    pub(super) fn drop_space_now(&mut self, space: u32) {
        let Some(dropped) = self.directory.remove_space(space) else { return };
        Arc::make_mut(&mut self.visitors).set(space, None);
        let companion = self.directory.remove_space(dropped.record.companion);
        for space in [Some(dropped), companion].into_iter().flatten() {
            for Space { pages, .. } in [space] {
                for page in pages {
                    self.checkpoint.outdated.extend(page.image);
                    self.dropped.extend(page.blocks());
                }
            }
        }
    }

    /// Has every block of a space that is swept from now on shown to `visitor`, in place of the
    /// one before; `None`: to nobody.
    ///
    /// # Errors
    /// [`RequestError::NoTable`].
    pub fn set_visitor(
        &mut self,
        space: u32,
        visitor: Option<Arc<dyn BlockVisitor>>,
    ) -> Result<(), Error> {
        if self.directory.space(space).is_none() {
            return Err(RequestError::NoTable(format!("number {space}")).into());
        }
        Arc::make_mut(&mut self.visitors).set(space, visitor);
        Ok(())
    }

    /// The message of the panic for which the visitor of a space is called no more, if so.
    #[must_use]
    pub fn visitor_panic(&self, space: u32) -> Option<String> {
        self.visitors.panic(space).map(str::to_owned)
    }

    /// Gives back a portion of what dropped spaces held.
    pub(super) fn pump_dropped(&mut self) {
        for _ in 0..self.dropped.len().min(DROPPED_PER_PUMP) {
            let Some(id) = self.dropped.pop_front() else { return };
            if self.directory.block(id).busy {
                self.dropped.push_back(id);
                continue;
            }
            self.sweep.unmark_fat(id);
            self.cache.remove(id);
            let mut block = self.directory.forget(id);
            self.arena.clear(&mut block.queue);
            self.unplaced.remove(&(block.space, block.key));
            if let Some(extent) = block.extent {
                self.physical.remove(&(extent.device, extent.offset));
                self.space_map.free(extent);
            }
        }
    }

    /// Gives a number to a modifier of the application that has none in this store yet.
    ///
    /// # Errors
    /// [`RequestError::BadModifierName`]; [`RetryError::Busy`] when the log has no room.
    pub fn register_modifier(&mut self, modifier: Arc<dyn Modifier>) -> Result<ModifierId, Error> {
        if let Some(known) = self.modifiers.id_of(modifier.name(), modifier.version()) {
            return Ok(known);
        }
        check_name(modifier.name())?;
        let last = self.modifier_records.iter().map(|record| record.id.0).max();
        let id = ModifierId(last.map_or(FIRST_USER_ID, |last| last + 1));
        let (name, version) = (modifier.name().to_owned(), modifier.version());
        let record = ModifierRecord { id, version, name };
        let mut payload = Vec::new();
        encode_modifier(&record, &mut payload);
        self.append_or_make_room(&payload, Publish::Nothing)?;
        self.modifier_records.push(record);
        Arc::make_mut(&mut self.modifiers).bind(id, modifier);
        Ok(id)
    }
}

/// The record of a companion space: it has no name of its own.
pub(super) fn companion_record(space: u32) -> SpaceRecord {
    let format = LARGE_VALUE_FORMAT.to_owned();
    SpaceRecord { space, companion: 0, format, name: String::new() }
}

/// How large a space is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
