//! An array: cells by index, changed by declared updates.
//!
//! Built only on the public block API. The record key is the index of a cell, the block key the
//! number of a block.

use std::future::ready;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use super::block::{cell, is_decisive};
use super::body_format::{INDEX_MAX, key_of};
use super::cell_format::{Cell, CellKind, NumberCell};
use super::scan::ArrayScan;
use super::visit::{BlockCells, CellVisitor};
use crate::engine::block_format::UpdateRef;
use crate::engine::ids::{Seq, SpaceId};
use crate::engine::modifier::{Modifier, ValueKind};
use crate::engine::registry::{ModifierId, Modifiers};
use crate::error::{Error, RequestError};
use crate::runtime::{BlockStore, Durability, LoggedUpdate, SpaceRecord, Ticket, View, Wanted};
use crate::structures::batch::{Structure, Sums};
use crate::structures::modifiers as builtin;
use crate::structures::{at_once, of_structure};

/// An array of an open store: a cell of type `T` for each index below 2^48. All cells start at
/// zero; only nonzero cells take space. Cheap to clone; usable from any thread.
///
/// ```
/// # use upsweep::{CreateOptions, Store};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let small = CreateOptions::default().log_bytes(1 << 20);
/// # let builder = Store::builder().memory_bytes(64 << 20);
/// # let store = builder.create(folder.path().join("store"), &small)?;
/// let counts = store.array::<i64>("reference counts")?;
/// counts.add(1_000_000_000_000, 2)?;
/// counts.add(7, 1)?;
/// counts.add(1_000_000_000_000, -1)?;
/// assert_eq!(counts.get(1_000_000_000_000)?, 1);
/// assert_eq!(counts.get(8)?, 0);
/// let cells: Result<Vec<(u64, i64)>, _> = counts.iter(..).collect();
/// assert_eq!(cells?, [(7, 1), (1_000_000_000_000, 1)]);
/// # Ok(())
/// # }
/// ```
pub struct Array<T> {
    blocks: BlockStore,
    space: SpaceId,
    name: String,
    durability: Durability,
    /// All modifiers of the store: none is added while it is open.
    modifiers: Arc<Modifiers>,
    cells: PhantomData<fn() -> T>,
}

impl<T> std::fmt::Debug for Array<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Array").field(&self.name).finish()
    }
}

impl<T> Clone for Array<T> {
    fn clone(&self) -> Self {
        Self {
            blocks: self.blocks.clone(),
            space: self.space,
            name: self.name.clone(),
            durability: self.durability,
            modifiers: Arc::clone(&self.modifiers),
            cells: PhantomData,
        }
    }
}

impl<T: Cell> Array<T> {
    pub(crate) fn new(blocks: BlockStore, record: SpaceRecord) -> Self {
        const { assert!(T::KIND.cell_bytes() == size_of::<T>(), "a kind of the cell's size") };
        let SpaceRecord { space, name, .. } = record;
        let (modifiers, durability) = (blocks.modifiers(), Durability::Wait);
        Self { blocks, space, name, durability, modifiers, cells: PhantomData }
    }

    /// The array's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of the array's space in the block API.
    #[must_use]
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// The same array with another durability, which decides when changes return; the default is
    /// [`Durability::Wait`].
    #[must_use]
    pub fn with_durability(&self, durability: Durability) -> Self {
        Self { durability, ..self.clone() }
    }

    /// The cell at `index` (below 2^48). Cost: memory accesses only if waiting updates determine
    /// the cell or the block is cached, otherwise one read.
    ///
    /// # Errors
    /// [`RequestError::IndexTooLarge`]; [`Error::Damaged`] if the cell's block is;
    /// [`RequestError::NoTable`] if the array was dropped.
    pub fn get(&self, index: u64) -> Result<T, Error> {
        Ok(self.see(index)?.2)
    }

    /// The view that determined the cell at `index`, and the cell.
    pub(super) fn see(&self, index: u64) -> Result<(Wanted, View, T), Error> {
        at_once(self.find(index, |wanted| ready(self.blocks.view(self.space, wanted))))
    }

    /// As [`Array::get`], without blocking the thread; any executor will do.
    ///
    /// # Errors
    /// As [`Array::get`]; [`Error::Closed`] if the store closes meanwhile.
    pub async fn get_async(&self, index: u64) -> Result<T, Error> {
        Ok(self.find(index, |wanted| self.blocks.view_async(self.space, wanted)).await?.2)
    }

    /// The view that determined the cell at `index`, and the cell, from the views that `view`
    /// returns.
    async fn find<F>(
        &self,
        index: u64,
        view: impl Fn(Wanted) -> F,
    ) -> Result<(Wanted, View, T), Error>
    where
        F: Future<Output = Result<View, Error>>,
    {
        check_index(index)?;
        let key = key_of(index);
        let named = |error| of_structure(error, &self.name);
        let mut wanted = Wanted::Point(key.to_vec());
        let mut found = view(wanted.clone()).await.map_err(named)?;
        if found.extent.is_some()
            && found.image.is_none()
            && !is_decisive(T::KIND, &self.modifiers, &updates_of(&found, &key))
        {
            // The result of a waiting blind update does not fit a cell: it came through the block
            // API.
            wanted = Wanted::Covering(T::KIND.position_of(&key).to_vec());
            found = view(wanted.clone()).await.map_err(named)?;
        }
        let body = found.image.as_ref().map(|image| image.body());
        let bytes = cell(T::KIND, body, &self.modifiers, index, &updates_of(&found, &key));
        let damage = |reason| self.damage(&found, index, reason);
        let cell = T::decode(&bytes.map_err(damage)?)
            .ok_or_else(|| damage("a cell of another size".to_owned()))?;
        Ok((wanted, found, cell))
    }

    /// Sets the cell at `index` (below 2^48).
    ///
    /// # Errors
    /// As [`Array::modify`].
    pub fn set(&self, index: u64, cell: T) -> Result<Ticket, Error> {
        self.update(index, builtin::PUT, &put_operand(cell))
    }

    /// Sets the cell at `index` (below 2^48) to zero. This works on full devices too.
    ///
    /// # Errors
    /// As [`Array::modify`].
    pub fn clear(&self, index: u64) -> Result<Ticket, Error> {
        self.update(index, builtin::DELETE, &[])
    }

    /// Declares an update: `modifier`, applied to the cell at `index` (below 2^48) with `operand`.
    /// Never reads the device. The modifier sees a cell of `u8` to `u64` as a value of kind `U64`,
    /// other numbers as their own kind, and structs as their bytes. If its result does not fit the
    /// cell, the update goes to the quarantine.
    ///
    /// # Errors
    /// [`Error::Request`] for a bad index or operand or an unregistered modifier, or if the
    /// modifier is blind and its result does not fit a cell, with nothing changed; [`Error::Retry`]
    /// when the devices are full; [`Error::Closed`].
    pub fn modify(
        &self,
        index: u64,
        modifier: &dyn Modifier,
        operand: &[u8],
    ) -> Result<Ticket, Error> {
        self.update(index, self.blocks.modifier_id(modifier)?, operand)
    }

    /// As [`Array::modify`], by the number of the modifier in this store.
    ///
    /// # Errors
    /// As [`Array::modify`].
    pub fn update(
        &self,
        index: u64,
        modifier: ModifierId,
        operand: &[u8],
    ) -> Result<Ticket, Error> {
        self.check(&index, modifier, operand)?;
        let update = LoggedUpdate { space: self.space, modifier, key: &key_of(index), operand };
        let ticket = self.blocks.modify(&[update], self.durability);
        ticket.map_err(|error| of_structure(error, &self.name))
    }

    /// The nonzero cells of `range`, in index order; reversible, and usable from both ends at once.
    /// Each block is read as it is when the scan reaches it: a scan is not a snapshot. Cost: as
    /// [`BlockStore::blocks`].
    pub fn iter(&self, range: impl RangeBounds<u64>) -> ArrayScan<T> {
        ArrayScan::new(self.clone(), indices(&range))
    }

    /// Shows each block that is swept from now on to `visitor`, which replaces any previous one: it
    /// gets the index of the first cell of the block, and the values of all its cells. Visitors are
    /// not part of the store: register them after every open.
    ///
    /// A block that the array shares with clones or snapshots is shown to the visitor of only one
    /// of them, until one of them changes it.
    ///
    /// A visit should take microseconds and must not wait for the store. The block is not durable
    /// yet, and may be visited again without a change: see [`BlockVisitor::visit`]. A visitor that
    /// panics is not called again; see [`Array::visitor_panic`].
    ///
    /// # Errors
    /// [`RequestError::NoTable`] if the array was dropped.
    ///
    /// [`BlockVisitor::visit`]: crate::runtime::BlockVisitor::visit
    pub fn set_visitor(
        &self,
        visitor: impl Fn(u64, BlockCells<'_, T>) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let visitor = CellVisitor::<T, _>::new(visitor);
        let set = self.blocks.set_visitor(self.space, Some(Arc::new(visitor)));
        set.map_err(|error| of_structure(error, &self.name))
    }

    /// Undoes [`Array::set_visitor`]; a visit in progress may end after this call.
    ///
    /// # Errors
    /// [`RequestError::NoTable`] if the array was dropped.
    pub fn remove_visitor(&self) -> Result<(), Error> {
        let set = self.blocks.set_visitor(self.space, None);
        set.map_err(|error| of_structure(error, &self.name))
    }

    /// The message of the panic that ended the visitor; `None` if it did not panic, or there is
    /// none.
    #[must_use]
    pub fn visitor_panic(&self) -> Option<String> {
        self.blocks.visitor_panic(self.space)
    }

    pub(super) fn durability(&self) -> Durability {
        self.durability
    }

    pub(super) fn modifiers(&self) -> &Modifiers {
        &self.modifiers
    }

    pub(super) fn damage(&self, view: &View, index: u64, reason: String) -> Error {
        view.damage(format!("block of cell {index} of array {:?}", self.name), reason)
    }
}

impl<T: NumberCell> Array<T> {
    /// Adds to the cell at `index` (below 2^48). 64-bit integers wrap around at the ends of their
    /// range. A sum that does not fit a narrower cell is refused: the update goes to the
    /// quarantine, with waiting updates of the same cell that were folded with it.
    ///
    /// # Errors
    /// As [`Array::modify`].
    pub fn add(&self, index: u64, amount: T) -> Result<Ticket, Error> {
        let (modifier, operand) = Self::sum(amount);
        self.update(index, modifier, &operand)
    }

    /// Raises the cell at `index` (below 2^48) to at least `floor`.
    ///
    /// # Errors
    /// As [`Array::modify`].
    pub fn max(&self, index: u64, floor: T) -> Result<Ticket, Error> {
        let of_kind = [builtin::MAX_U64, builtin::MAX_I64, builtin::MAX_F64];
        self.update(index, by_kind(T::KIND, of_kind), &value_bytes(floor))
    }

    /// Lowers the cell at `index` (below 2^48) to at most `ceiling`.
    ///
    /// # Errors
    /// As [`Array::modify`].
    pub fn min(&self, index: u64, ceiling: T) -> Result<Ticket, Error> {
        let of_kind = [builtin::MIN_U64, builtin::MIN_I64, builtin::MIN_F64];
        self.update(index, by_kind(T::KIND, of_kind), &value_bytes(ceiling))
    }
}

impl<T: Cell> Structure for Array<T> {
    type Key = u64;
    type Value = T;

    fn name(&self) -> &str {
        &self.name
    }

    fn space(&self) -> SpaceId {
        self.space
    }

    fn blocks(&self) -> &BlockStore {
        &self.blocks
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn key_bytes(index: &u64) -> Vec<u8> {
        key_of(*index).to_vec()
    }

    fn put_operand(cell: &T) -> Vec<u8> {
        put_operand(*cell)
    }

    fn check(&self, index: &u64, modifier: ModifierId, operand: &[u8]) -> Result<(), Error> {
        check_index(*index)?;
        // An update that supersedes others must not be refused later: they may be gone by then.
        let Some(found) = self.modifiers.get(modifier).filter(|found| found.blind()) else {
            return Ok(());
        };
        let update = UpdateRef { seq: Seq::NONE, modifier, key: &key_of(*index), operand };
        if is_decisive(T::KIND, &self.modifiers, &[update]) {
            return Ok(());
        }
        let (modifier, kind) = (found.name().to_owned(), T::KIND);
        let reason = format!("what it puts is no cell of {kind}");
        Err(RequestError::BadOperand { modifier, reason }.into())
    }
}

impl<T: NumberCell> Sums for Array<T> {
    type Amount = T;

    fn sum(amount: T) -> (ModifierId, Vec<u8>) {
        let of_kind = [builtin::ADD_U64, builtin::ADD_I64, builtin::ADD_F64];
        (by_kind(T::KIND, of_kind), value_bytes(amount))
    }
}

/// The modifier for unsigned integers, signed integers or floats, by the kind of the cells.
fn by_kind(kind: CellKind, [unsigned, signed, float]: [ModifierId; 3]) -> ModifierId {
    match kind.value_kind() {
        ValueKind::I64 => signed,
        ValueKind::F64 => float,
        ValueKind::U64 | ValueKind::Bytes => unsigned,
    }
}

/// A cell as modifiers see it.
fn value_bytes<T: Cell>(cell: T) -> Vec<u8> {
    T::KIND.value(&cell.encode(), &mut [0; 8]).bytes.to_vec()
}

pub(super) fn put_operand<T: Cell>(cell: T) -> Vec<u8> {
    builtin::value_operand(T::KIND.value_kind(), &value_bytes(cell))
}

fn check_index(index: u64) -> Result<(), Error> {
    if index > INDEX_MAX {
        return Err(RequestError::IndexTooLarge { index, limit: INDEX_MAX }.into());
    }
    Ok(())
}

/// The updates of the cell with this key, in order.
fn updates_of<'a>(view: &'a View, key: &[u8]) -> Vec<UpdateRef<'a>> {
    let mut updates = view.updates();
    updates.retain(|update| update.key == key);
    updates
}

/// The indices of a range, with bounds.
fn indices(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(index) => *index,
        Bound::Excluded(index) => index.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(index) => index.saturating_add(1),
        Bound::Excluded(index) => *index,
        Bound::Unbounded => INDEX_MAX + 1,
    };
    start..end.min(INDEX_MAX + 1)
}
