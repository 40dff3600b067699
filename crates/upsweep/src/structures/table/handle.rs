//! A table: a map from keys to values, changed by declared updates.
//!
//! Built only on the public block API. A block is a leaf, its key the lower bound of the leaf's
//! positions, so the directory is the tree above the leaves. (Bosc paper, section 5.)

use std::future::ready;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};

use super::order::{ByKey, Order};
use super::reader::{self, Lookup};
use super::scan::{Scan, successor};
use crate::engine::ids::SpaceId;
use crate::engine::modifier::{Modifier, ValueKind, ValueRef};
use crate::engine::registry::ModifierId;
use crate::error::Error;
use crate::runtime::{BlockStore, Durability, LoggedUpdate, SpaceRecord, Ticket, View, Wanted};
use crate::structures::batch::{Structure, Sums};
use crate::structures::modifiers as builtin;
use crate::structures::{at_once, of_structure};

/// How often a query restarts because a large value moved, before that counts as damage.
const ATTEMPTS_MAX: u32 = 1000;

/// A value: bytes and their kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The kind of the bytes.
    pub kind: ValueKind,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl std::ops::Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Value {
    /// The value as a signed integer, if it is one.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        let fits = self.kind == ValueKind::I64;
        <[u8; 8]>::try_from(&*self.bytes).ok().filter(|_| fits).map(i64::from_le_bytes)
    }
}

/// A type from which a value can be taken without a copy.
pub trait AsValue {
    /// The value.
    fn as_value(&self) -> ValueRef<'_>;
}

impl AsValue for Value {
    fn as_value(&self) -> ValueRef<'_> {
        ValueRef { kind: self.kind, bytes: &self.bytes }
    }
}

impl AsValue for ValueRef<'_> {
    fn as_value(&self) -> ValueRef<'_> {
        *self
    }
}

/// A table of an open store: a map from keys to values. Cheap to clone; usable from any thread.
///
/// Its records are ordered by key, unless it is a [`HashTable`](crate::HashTable). All tables have
/// the same updates and point queries; ranges of keys need the order of keys.
#[derive(Clone)]
pub struct Table<O: Order = ByKey> {
    blocks: BlockStore,
    space: SpaceId,
    companion: SpaceId,
    name: String,
    durability: Durability,
    order: PhantomData<O>,
}

impl<O: Order> std::fmt::Debug for Table<O> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Table").field(&self.name).finish()
    }
}

impl<O: Order> Structure for Table<O> {
    type Key = [u8];
    type Value = [u8];

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

    fn key_bytes(key: &[u8]) -> Vec<u8> {
        key.to_vec()
    }

    fn put_operand(value: &[u8]) -> Vec<u8> {
        builtin::value_operand(ValueKind::Bytes, value)
    }
}

impl<O: Order> Sums for Table<O> {
    type Amount = i64;

    fn sum(amount: i64) -> (ModifierId, Vec<u8>) {
        (builtin::ADD_I64, amount.to_le_bytes().to_vec())
    }
}

impl<O: Order> Table<O> {
    pub(crate) fn new(blocks: BlockStore, record: SpaceRecord) -> Self {
        let SpaceRecord { space, companion, name, .. } = record;
        Self { blocks, space, companion, name, durability: Durability::Wait, order: PhantomData }
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of the table's space in the block API.
    #[must_use]
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// The same table with another durability, which decides when changes return; the default is
    /// [`Durability::Wait`].
    #[must_use]
    pub fn with_durability(&self, durability: Durability) -> Self {
        Self { durability, ..self.clone() }
    }

    /// The value of `key`. Cost: memory accesses only if waiting updates determine the value or the
    /// block is cached, otherwise one read of a block, which is in memory meanwhile; two if the
    /// value is large. The directory is in memory.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the key's block is: restore it from a backup;
    /// [`RequestError::NoTable`](crate::RequestError::NoTable) if the table was dropped.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, Error> {
        Ok(self.see(key)?.1)
    }

    /// The view of the leaf of `key`, and the value that follows from it.
    pub(super) fn see(&self, key: &[u8]) -> Result<(View, Option<Value>), Error> {
        at_once(self.find(key, |space, wanted| ready(self.blocks.view(space, wanted))))
    }

    /// As [`Table::get`], without blocking the thread; any executor will do.
    ///
    /// # Errors
    /// As [`Table::get`]; [`Error::Closed`] if the store closes meanwhile.
    pub async fn get_async(&self, key: &[u8]) -> Result<Option<Value>, Error> {
        Ok(self.find(key, |space, wanted| self.blocks.view_async(space, wanted)).await?.1)
    }

    /// The leaf of `key` and its value, by the views that `view` gives of the table's spaces.
    async fn find<F>(
        &self,
        key: &[u8],
        view: impl Fn(SpaceId, Wanted) -> F,
    ) -> Result<(View, Option<Value>), Error>
    where
        F: Future<Output = Result<View, Error>>,
    {
        let modifiers = self.blocks.modifiers();
        let named = |error| of_structure(error, &self.name);
        let mut large: Option<View> = None;
        for attempt in 0.. {
            let leaf = view(self.space, Wanted::Point(key.to_vec())).await.map_err(named)?;
            let body = leaf.image.as_ref().map(|image| image.body());
            let loaded = large.as_ref().and_then(|large| large.image.as_ref());
            let loaded = loaded.map(|image| image.body());
            let found = reader::get::<O>(body, &leaf.updates(), &modifiers, key, loaded);
            let has_large = loaded.is_some();
            match found.map(Lookup::into_owned) {
                Ok(Lookup::Absent) => return Ok((leaf, None)),
                Ok(Lookup::Value { kind, bytes }) => {
                    return Ok((leaf, Some(Value { kind, bytes: bytes.into_owned() })));
                }
                Ok(Lookup::NeedLarge { .. }) => {
                    let wanted = Wanted::Point(key.to_vec());
                    large = Some(view(self.companion, wanted).await.map_err(named)?);
                }
                // A large value that was swept between the two reads no longer fits the leaf.
                Err(_) if has_large && attempt < ATTEMPTS_MAX => large = None,
                Err(reason) => return Err(self.damage(&leaf, key, reason)),
            }
            if attempt >= ATTEMPTS_MAX {
                return Err(self.damage(&leaf, key, "its large value is missing".to_owned()));
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// The space of values that lie outside of their blocks.
    pub(super) fn companion(&self) -> SpaceId {
        self.companion
    }

    pub(super) fn durability(&self) -> Durability {
        self.durability
    }

    pub(super) fn damage(&self, view: &View, key: &[u8], reason: String) -> Error {
        let key = String::from_utf8_lossy(key);
        view.damage(format!("record {key:?} of table {:?}", self.name), reason)
    }

    /// Whether the table has a value for `key`. Cost: as [`Table::get`].
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn contains(&self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.get(key)?.is_some())
    }

    /// Declares an update: `modifier`, applied to `key` with `operand`.
    ///
    /// Cost: a part of a log batch; memory for key, operand and a few bytes more until it is swept.
    /// Never reads the device. The sweep reads and writes the block once for all updates that wait
    /// for it; each block that it splits off changes at most `2 x depth + 1` nodes of the
    /// directory. If the block is shared with a clone or snapshot, the first update copies at most
    /// `depth` nodes. (Rodeh, section 5.8.)
    ///
    /// # Errors
    /// [`Error::Request`] for a bad operand or key or an unregistered modifier, with nothing
    /// changed; [`Error::Retry`] when the devices are full; [`Error::Closed`].
    pub fn modify(
        &self,
        key: &[u8],
        modifier: &dyn Modifier,
        operand: &[u8],
    ) -> Result<Ticket, Error> {
        self.update(key, self.blocks.modifier_id(modifier)?, operand)
    }

    /// As [`Table::modify`], by the number of the modifier in this store.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn update(
        &self,
        key: &[u8],
        modifier: ModifierId,
        operand: &[u8],
    ) -> Result<Ticket, Error> {
        let update = LoggedUpdate { space: self.space, modifier, key, operand };
        let ticket = self.blocks.modify(&[update], self.durability);
        ticket.map_err(|error| of_structure(error, &self.name))
    }

    /// Sets `key` to these bytes (at most 1 MiB). They are not a number, whatever their length:
    /// numbers are put by a [`TypedTable`](crate::TypedTable), or created by adding to an absent
    /// key.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<Ticket, Error> {
        self.update(key, builtin::PUT, &builtin::value_operand(ValueKind::Bytes, value))
    }

    /// Sets `key` to this value if it has none when the update takes effect.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn insert_if_absent(&self, key: &[u8], value: &[u8]) -> Result<Ticket, Error> {
        let operand = builtin::value_operand(ValueKind::Bytes, value);
        self.update(key, builtin::INSERT_IF_ABSENT, &operand)
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn delete(&self, key: &[u8]) -> Result<Ticket, Error> {
        self.update(key, builtin::DELETE, &[])
    }

    /// Adds to a signed integer, from 0 if there is none; wraps around at the ends of its range.
    /// The kind of the current value is not checked: if it is bytes, as [`Table::put`] sets, the
    /// value stays, and the update goes to the quarantine when it is applied. A
    /// [`TypedTable`](crate::TypedTable) of numbers has only numbers.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn add(&self, key: &[u8], amount: i64) -> Result<Ticket, Error> {
        self.update(key, builtin::ADD_I64, &amount.to_le_bytes())
    }

    /// Raises a signed integer to at least `floor`.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn max(&self, key: &[u8], floor: i64) -> Result<Ticket, Error> {
        self.update(key, builtin::MAX_I64, &floor.to_le_bytes())
    }

    /// Lowers a signed integer to at most `ceiling`.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn min(&self, key: &[u8], ceiling: i64) -> Result<Ticket, Error> {
        self.update(key, builtin::MIN_I64, &ceiling.to_le_bytes())
    }

    /// Appends to the bytes of `key`, from nothing if there are none.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn append(&self, key: &[u8], bytes: &[u8]) -> Result<Ticket, Error> {
        self.update(key, builtin::APPEND, bytes)
    }

    /// Overwrites bytes of `key` from `offset` on.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn patch(&self, key: &[u8], offset: u32, bytes: &[u8]) -> Result<Ticket, Error> {
        self.update(key, builtin::BYTE_PATCH, &builtin::patch_operand(offset, bytes))
    }

    /// Sets bits: the bytes of `key` become their bitwise or with `bits`, or `bits` if there are
    /// none. Bytes of another length are not changed: when the update is applied, it goes to the
    /// quarantine.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn bit_or(&self, key: &[u8], bits: &[u8]) -> Result<Ticket, Error> {
        self.update(key, builtin::BIT_OR, bits)
    }

    /// All records, in the order of the table: by key, or by the hash of the key. Reversible, and
    /// usable from both ends at once. Each block is read as it is when the iterator reaches it: an
    /// iteration is not a snapshot. Cost: one read for each block that is not cached, and from the
    /// third on one for many neighbours; see [`BlockStore::blocks`]. The records of one block are
    /// in memory per end.
    pub fn iter(&self) -> Scan<O> {
        Scan::new(self.clone(), Vec::new(), None)
    }
}

impl Table {
    /// Removes all records with keys from `from` to below `to` (`None`: to the end), with all
    /// updates that wait for them, and waits until that is durable. Updates declared later are
    /// applied after it.
    ///
    /// Cost: one log record and at most `4 x depth` nodes of the directory, however many records
    /// there are; nothing is read. Their space is freed in the background. (Rodeh, sections 5.7 and
    /// 5.8.)
    ///
    /// # Errors
    /// [`RequestError::ReadOnly`](crate::RequestError::ReadOnly) for a table of a snapshot;
    /// [`RequestError::NoTable`](crate::RequestError::NoTable) if the table was dropped;
    /// [`Error::Closed`].
    pub fn remove_range(&self, from: &[u8], to: Option<&[u8]>) -> Result<(), Error> {
        let removed = self.blocks.remove_range(self.space, from, to);
        removed.map_err(|error| of_structure(error, &self.name))
    }

    /// The records with keys in `range`, in key order; reversible, and usable from both ends at
    /// once. Each block is read as it is when the scan reaches it: a scan is not a snapshot. Cost:
    /// as [`Table::iter`].
    pub fn scan<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Scan {
        let from = match range.start_bound() {
            Bound::Included(key) => key.as_ref().to_vec(),
            Bound::Excluded(key) => successor(key.as_ref()),
            Bound::Unbounded => Vec::new(),
        };
        let to = match range.end_bound() {
            Bound::Included(key) => Some(successor(key.as_ref())),
            Bound::Excluded(key) => Some(key.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        Scan::new(self.clone(), from, to)
    }

    /// As [`Table::scan`], for several ranges; the scans are in the same order. Where the first
    /// blocks of all of them have to be read, these reads are in flight at the same time, where the
    /// host can: for several short ranges this takes little longer than for one. These blocks are
    /// as they are now, and in memory together. An error of one comes from its scan.
    pub fn scans<K: AsRef<[u8]>>(&self, ranges: impl IntoIterator<Item = Range<K>>) -> Vec<Scan> {
        let mut scans: Vec<Scan> = ranges.into_iter().map(|range| self.scan(range)).collect();
        Scan::begin_all(&mut scans);
        scans
    }

    /// The records whose keys begin with `prefix`; see [`Table::scan`].
    pub fn scan_prefix(&self, prefix: &[u8]) -> Scan {
        let mut end = prefix.to_vec();
        while end.last() == Some(&0xff) {
            end.pop();
        }
        let to = end.last_mut().map(|last| *last += 1).map(|()| end);
        Scan::new(self.clone(), prefix.to_vec(), to)
    }
}
