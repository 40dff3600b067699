//! The space of a structure: the base of every handle, and all that structures of other crates need
//! of a store.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use super::array::{Array, Cell};
use super::kind::Record;
use super::modifiers::{DELETE, PUT, value_operand};
use super::of_structure;
use super::table::{Order, Table, Value};
use crate::engine::block_format::BlockFormat;
use crate::engine::ids::SpaceId;
use crate::engine::modifier::ValueRef;
use crate::engine::registry::ModifierId;
use crate::error::Error;
use crate::runtime::{
    BlockStore, BlockVisitor, Blocks, Durability, LoggedUpdate, PendingView, SpaceRecord, Ticket,
    View, Wanted,
};

/// Maximum number of updates in a log record of a restore.
const UPDATES_MAX: usize = 1024;
/// Bytes of updates at which such a log record is full.
const UPDATES_BYTES_FULL: usize = 64 << 10;

/// The space of a structure in an open store, or in a snapshot of it. Cheap to clone; usable from
/// any thread.
///
/// Made by [`Store::space`](crate::Store::space), [`Store::existing_space`] and
/// [`Snapshot::space`](crate::Snapshot::space). Errors of its calls name the structure.
///
/// [`Store::existing_space`]: crate::Store::existing_space
#[derive(Clone)]
pub struct OpenSpace {
    blocks: BlockStore,
    record: SpaceRecord,
}

impl Debug for OpenSpace {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("OpenSpace").field(&self.record.name).finish()
    }
}

/// A block with everything that waits for it applied.
#[derive(Clone, Debug)]
pub struct WholeBlock {
    /// The view it was made from. Its key is [`View::low`].
    pub view: View,
    /// Its body, in the layout of the format of its space; empty if it has no records.
    pub body: Vec<u8>,
}

impl OpenSpace {
    pub(crate) fn new(blocks: BlockStore, record: SpaceRecord) -> Self {
        Self { blocks, record }
    }

    /// Its table, which must be of this order.
    pub(crate) fn table<O: Order>(&self) -> Table<O> {
        Table::new(self.blocks.clone(), self.record.clone())
    }

    /// Its array, which must have such cells.
    pub(crate) fn array<T: Cell>(&self) -> Array<T> {
        Array::new(self.blocks.clone(), self.record.clone())
    }

    /// The name of the structure.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// Its number in the block API.
    #[must_use]
    pub fn number(&self) -> SpaceId {
        self.record.space
    }

    /// Its record in the catalog of the store.
    #[must_use]
    pub fn record(&self) -> &SpaceRecord {
        &self.record
    }

    /// The store.
    #[must_use]
    pub fn blocks(&self) -> &BlockStore {
        &self.blocks
    }

    /// The parameters of its block format; empty if there are none.
    #[must_use]
    pub fn parameters(&self) -> &str {
        self.record.format.split_once(':').map_or("", |(_, parameters)| parameters)
    }

    /// Declares one update, by the number of its modifier. To declare several together, also of
    /// several structures, use a [`Batch`](crate::Batch). Never reads the device.
    ///
    /// # Errors
    /// As [`Table::modify`](crate::Table::modify).
    pub fn update(
        &self,
        key: &[u8],
        modifier: ModifierId,
        operand: &[u8],
        durability: Durability,
    ) -> Result<Ticket, Error> {
        let update = LoggedUpdate { space: self.record.space, modifier, key, operand };
        self.named(self.blocks.modify(&[update], durability))
    }

    /// A view of a block: image and waiting updates. At most one device read; none if the block is
    /// cached or, for [`Wanted::Point`], waiting updates determine the value.
    ///
    /// # Errors
    /// [`RequestError::NoTable`](crate::RequestError::NoTable) if the structure was dropped;
    /// [`Error::Damaged`] if the block is.
    pub fn view(&self, wanted: Wanted) -> Result<View, Error> {
        self.named(self.blocks.view(self.record.space, wanted))
    }

    /// As [`OpenSpace::view`], without blocking the thread: a future.
    pub fn view_async(&self, wanted: Wanted) -> PendingView {
        self.blocks.view_async(self.record.space, wanted)
    }

    /// The existing blocks of the structure in key order, from the first one at or above `from`.
    /// Each is read as it is when the iterator reaches it; in a snapshot, as it was. Cost: as
    /// [`BlockStore::blocks`].
    #[must_use]
    pub fn scan(&self, from: &[u8]) -> BlockScan {
        let blocks = self.blocks.blocks(self.record.space, from, None);
        BlockScan { space: self.clone(), format: None, from: from.into(), blocks: Some(blocks) }
    }

    /// The records that the format shows of each block; large values are omitted.
    pub(crate) fn records(&self) -> impl Iterator<Item = Result<Record, Error>> + use<> {
        let mut scan = self.scan(&[]);
        std::iter::from_fn(move || scan.next_records()).flat_map(|records| {
            let (records, error) = match records {
                Ok(records) => (records, None),
                Err(error) => (Vec::new(), Some(Err(error))),
            };
            records.into_iter().map(Ok).chain(error)
        })
    }

    /// Shows every block that is swept from now on to `visitor`: see [`BlockStore::set_visitor`].
    /// Visitors are not part of the store: set them after every open.
    ///
    /// # Errors
    /// [`RequestError::NoTable`](crate::RequestError::NoTable) if the structure was dropped.
    pub fn set_visitor(&self, visitor: Option<Arc<dyn BlockVisitor>>) -> Result<(), Error> {
        self.named(self.blocks.set_visitor(self.record.space, visitor))
    }

    /// The error for a damaged block of this structure.
    #[must_use]
    pub fn damage(&self, view: &View, reason: String) -> Error {
        let (key, name) = (String::from_utf8_lossy(&view.low), self.name());
        view.damage(format!("block {key:?} of {name:?}"), reason)
    }

    /// Errors of the block API know spaces by number only.
    fn named<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| of_structure(error, self.name()))
    }
}

/// An iterator over the blocks of a structure. Ends after the first error.
pub struct BlockScan {
    space: OpenSpace,
    /// Known once the first block was looked up.
    format: Option<Arc<dyn BlockFormat>>,
    from: Box<[u8]>,
    /// None after an error.
    blocks: Option<Blocks>,
}

impl BlockScan {
    fn whole(&mut self, view: View) -> Result<WholeBlock, Error> {
        let mut body = Vec::new();
        if view.image.is_some() || !view.waiting.is_empty() {
            let format = self.format()?;
            let whole = self.space.blocks.body_of(&*format, &view);
            body = whole.map_err(|reason| self.space.damage(&view, reason))?;
        }
        Ok(WholeBlock { view, body })
    }

    fn format(&mut self) -> Result<Arc<dyn BlockFormat>, Error> {
        if let Some(format) = &self.format {
            return Ok(Arc::clone(format));
        }
        let format = self.space.named(self.space.blocks.format_of(self.space.number()))?;
        Ok(Arc::clone(self.format.insert(format)))
    }

    /// The records of the next block, as its format shows them.
    fn next_records(&mut self) -> Option<Result<Vec<Record>, Error>> {
        let block = match self.next()? {
            Ok(block) => block,
            Err(error) => return Some(Err(error)),
        };
        let mut records = Vec::new();
        if block.body.is_empty() {
            return Some(Ok(records));
        }
        let format = self.format();
        let shown = format.and_then(|format| {
            let mut visit = |key: &[u8], value: ValueRef<'_>| {
                let value = Value { kind: value.kind, bytes: value.bytes.to_vec() };
                records.push((key.to_vec(), value));
            };
            let shown = format.for_each(&block.view.low, &block.body, &mut visit);
            shown.map_err(|reason| self.space.damage(&block.view, reason))
        });
        if shown.is_err() {
            self.blocks = None;
        }
        Some(shown.map(|()| records))
    }
}

impl Iterator for BlockScan {
    type Item = Result<WholeBlock, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let from = &self.from;
        let is_before =
            |found: &Result<View, Error>| found.as_ref().is_ok_and(|view| *view.low < **from);
        let found = self.blocks.as_mut()?.find(|found| !is_before(found))?;
        let whole = self.space.named(found).and_then(|view| self.whole(view));
        if whole.is_err() {
            self.blocks = None;
        }
        Some(whole)
    }
}

/// Puts and deletions for a structure, many per log record.
pub(crate) struct Updates<'a> {
    space: &'a OpenSpace,
    /// Key and, unless it is a deletion, the operand of a put.
    waiting: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    bytes: usize,
}

impl<'a> Updates<'a> {
    pub(crate) fn new(space: &'a OpenSpace) -> Self {
        Self { space, waiting: Vec::new(), bytes: 0 }
    }

    /// Adds one; without a value it is a deletion.
    ///
    /// # Errors
    /// As [`Updates::declare`].
    pub(crate) fn push(&mut self, key: Vec<u8>, value: Option<Value>) -> Result<(), Error> {
        let operand = value.map(|value| value_operand(value.kind, &value.bytes));
        let bytes = key.len() + operand.as_ref().map_or(0, Vec::len);
        let is_full = self.waiting.len() == UPDATES_MAX || self.bytes + bytes > UPDATES_BYTES_FULL;
        if is_full && !self.waiting.is_empty() {
            self.declare()?;
        }
        self.bytes += bytes;
        self.waiting.push((key, operand));
        Ok(())
    }

    /// Declares those that were added. Closing the store makes them durable.
    ///
    /// # Errors
    /// As [`BlockStore::modify`].
    pub(crate) fn declare(&mut self) -> Result<(), Error> {
        let updates: Vec<LoggedUpdate<'_>> = self
            .waiting
            .iter()
            .map(|(key, operand)| LoggedUpdate {
                space: self.space.number(),
                modifier: if operand.is_some() { PUT } else { DELETE },
                key,
                operand: operand.as_deref().unwrap_or_default(),
            })
            .collect();
        if !updates.is_empty() {
            let _ticket = self.space.blocks.modify(&updates, Durability::Relaxed)?;
        }
        self.waiting.clear();
        self.bytes = 0;
        Ok(())
    }
}
