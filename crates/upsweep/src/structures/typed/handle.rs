//! The handle of a typed table.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use super::counters::Counters;
use super::key_format::{Key, KeyPrefix, bytes_of};
use super::scan::TypedScan;
use super::value_format::{Appends, Bits, ByteString, ModifierOf, Number, Value};
use crate::engine::ids::SpaceId;
use crate::engine::modifier::ValueRef;
use crate::engine::registry::{FIRST_USER_ID, ModifierId};
use crate::error::{Error, RequestError};
use crate::runtime::{BlockStore, Durability, LoadSummary, Ticket};
use crate::structures::batch::{Batch, Structure, Sums};
use crate::structures::modifiers as builtin;
use crate::structures::table::{
    self, AsValue, ByKey, Compared, LoadOptions, Order, Table, Updated,
};

/// A table with typed keys and values, ordered by key unless it is a
/// [`TypedHashTable`](crate::TypedHashTable). Cheap to clone; usable from any thread.
///
/// It has only updates that preserve the type of its values, so none is refused when it is applied:
/// text cannot be added to, and only numbers are put where numbers are added. That holds as long as
/// the table is not changed under another definition, or as bytes through [`TypedTable::raw`].
///
/// Keys and values are passed in their natural form: text as `&str`, numbers by value, tuples as
/// tuples of those. See [`key_format`](super::key_format) and [`value_format`](super::value_format)
/// for all types, and how they are stored.
///
/// ```
/// use upsweep::{Store, TableDefinition};
///
/// /// Hits by page and day.
/// const HITS: TableDefinition<(String, u32), u64> = TableDefinition::new("hits by day");
///
/// # fn main() -> Result<(), upsweep::Error> {
/// let store = Store::in_memory()?;
/// let hits = store.typed(HITS)?;
/// hits.add(("/index.html", 20_000), 3)?;
/// hits.add(("/index.html", 20_001), 4)?;
/// hits.add(("/about.html", 20_001), 1)?;
/// let mut total = 0;
/// for record in hits.prefix(("/index.html",)) {
///     let ((_page, _day), count) = record?;
///     total += count;
/// }
/// assert_eq!(total, 7);
/// # Ok(())
/// # }
/// ```
///
/// Updates that do not fit do not compile:
///
/// ```compile_fail,E0277
/// # fn main() -> Result<(), upsweep::Error> {
/// use upsweep::{Store, TableDefinition};
///
/// const NAMES: TableDefinition<u32, str> = TableDefinition::new("names");
///
/// let names = Store::in_memory()?.typed(NAMES)?;
/// names.add(7, "to a text")?;
/// # Ok(())
/// # }
/// ```
pub struct TypedTable<K: ?Sized, V: ?Sized, O: Order = ByKey> {
    table: Table<O>,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized, O: Order> Clone for TypedTable<K, V, O> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), types: PhantomData }
    }
}

impl<K: ?Sized, V: ?Sized, O: Order> std::fmt::Debug for TypedTable<K, V, O> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("TypedTable").field(&self.table.name()).finish()
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, O: Order> TypedTable<K, V, O> {
    pub(crate) fn new(table: Table<O>) -> Self {
        Self { table, types: PhantomData }
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.table.name()
    }

    /// The table as bytes. Changes made there are not checked against the types.
    #[must_use]
    pub fn raw(&self) -> &Table<O> {
        &self.table
    }

    /// The same table with another durability, which decides when changes return; the default is
    /// [`Durability::Wait`].
    #[must_use]
    pub fn with_durability(&self, durability: Durability) -> Self {
        Self::new(self.table.with_durability(durability))
    }

    /// The value of `key`. Cost as [`Table::get`].
    ///
    /// # Errors
    /// As [`Table::get`]; [`RequestError::TypeMismatch`] if the stored value is of another type.
    pub fn get(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>, Error> {
        decode_found::<V>(self.table.get(&bytes_of::<K>(key))?)
    }

    /// As [`TypedTable::get`], without blocking the thread; any executor will do.
    ///
    /// # Errors
    /// As [`TypedTable::get`]; [`Error::Closed`] if the store closes meanwhile.
    pub async fn get_async(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>, Error> {
        let key = bytes_of::<K>(key);
        decode_found::<V>(self.table.get_async(&key).await?)
    }

    /// Whether the table has a value for `key`. Cost as [`Table::get`].
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn contains(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        self.table.contains(&bytes_of::<K>(key))
    }

    /// Sets `key` to this value.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn put(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<Ticket, Error> {
        self.update(key, builtin::PUT, &put_operand::<V>(value)?)
    }

    /// Sets `key` to this value if it has none when the update takes effect.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn insert_if_absent(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<Ticket, Error> {
        self.update(key, builtin::INSERT_IF_ABSENT, &put_operand::<V>(value)?)
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// As [`Table::delete`].
    pub fn delete(&self, key: K::Ref<'_>) -> Result<Ticket, Error> {
        self.update(key, builtin::DELETE, &[])
    }

    /// Applies a modifier of the application that preserves the type of values.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn modify(
        &self,
        key: K::Ref<'_>,
        modifier: &impl ModifierOf<V>,
        operand: &[u8],
    ) -> Result<Ticket, Error> {
        self.table.modify(&bytes_of::<K>(key), modifier, operand)
    }

    /// As [`TypedTable::modify`], and returns the resulting value. Cost as
    /// [`Table::modify_and_get`].
    ///
    /// # Errors
    /// As [`Table::modify_and_get`]; [`RequestError::TypeMismatch`] if the result is of another
    /// type: the update takes effect nevertheless.
    pub fn modify_and_get(
        &self,
        key: K::Ref<'_>,
        modifier: &impl ModifierOf<V>,
        operand: &[u8],
    ) -> Result<(Option<V::Owned>, Ticket), Error> {
        let (made, ticket) = self.table.modify_and_get(&bytes_of::<K>(key), modifier, operand)?;
        Ok((decode_found::<V>(made)?, ticket))
    }

    /// Sets `key` to `value` if its current value is `expected` (`None`: no value), byte for byte.
    /// Cost as [`Table::compare_and_put`].
    ///
    /// ```
    /// use upsweep::{Compared, Store, TableDefinition};
    ///
    /// const OWNERS: TableDefinition<str, u64> = TableDefinition::new("owners of locks");
    ///
    /// # fn main() -> Result<(), upsweep::Error> {
    /// let store = Store::in_memory()?;
    /// let owners = store.typed(OWNERS)?;
    /// assert!(owners.compare_and_put("door", None, 7)?.is_done());
    /// match owners.compare_and_put("door", None, 8)? {
    ///     Compared::Done(_ticket) => unreachable!("7 has it"),
    ///     Compared::Differs(owner) => assert_eq!(owner, Some(7)),
    /// }
    /// assert!(owners.compare_and_delete("door", 7)?.is_done());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`TypedTable::get`] and [`Table::put`].
    pub fn compare_and_put(
        &self,
        key: K::Ref<'_>,
        expected: Option<V::Ref<'_>>,
        value: V::Ref<'_>,
    ) -> Result<Compared<Option<V::Owned>>, Error> {
        self.compare_and_update(key, expected, builtin::PUT, &put_operand::<V>(value)?)
    }

    /// Removes `key` if its current value is `expected`. Cost as [`Table::compare_and_put`].
    ///
    /// # Errors
    /// As [`TypedTable::compare_and_put`].
    pub fn compare_and_delete(
        &self,
        key: K::Ref<'_>,
        expected: V::Ref<'_>,
    ) -> Result<Compared<Option<V::Owned>>, Error> {
        self.compare_and_update(key, Some(expected), builtin::DELETE, &[])
    }

    /// All records, in the order of the table and reversible; see [`Table::iter`].
    pub fn iter(&self) -> TypedScan<K, V, O> {
        TypedScan::new(self.table.iter())
    }

    fn update(
        &self,
        key: K::Ref<'_>,
        modifier: ModifierId,
        operand: &[u8],
    ) -> Result<Ticket, Error> {
        self.table.update(&bytes_of::<K>(key), modifier, operand)
    }

    /// Applies an update, and returns the value before and after.
    fn update_seen(
        &self,
        key: K::Ref<'_>,
        modifier: ModifierId,
        operand: &[u8],
    ) -> Result<Updated<Option<V::Owned>>, Error> {
        let Updated { before, after, ticket } =
            self.table.update_seen(&bytes_of::<K>(key), modifier, operand)?;
        let (before, after) = (decode_found::<V>(before)?, decode_found::<V>(after)?);
        Ok(Updated { before, after, ticket })
    }

    fn compare_and_update(
        &self,
        key: K::Ref<'_>,
        expected: Option<V::Ref<'_>>,
        modifier: ModifierId,
        operand: &[u8],
    ) -> Result<Compared<Option<V::Owned>>, Error> {
        let expected = expected.map(value_bytes::<V>).transpose()?;
        let expected = expected.as_deref().map(|bytes| ValueRef { kind: V::KIND, bytes });
        let key = bytes_of::<K>(key);
        Ok(match self.table.compare_and_update(&key, expected, modifier, operand)? {
            Compared::Done(ticket) => Compared::Done(ticket),
            Compared::Differs(found) => Compared::Differs(decode_found::<V>(found)?),
        })
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> TypedTable<K, V> {
    /// The records with keys in `range`, in key order and reversible; see [`Table::scan`].
    pub fn range<'k>(&self, range: impl RangeBounds<K::Ref<'k>>) -> TypedScan<K, V> {
        let bytes = |bound: Bound<&K::Ref<'k>>| bound.map(|key| bytes_of::<K>(*key));
        let bounds = (bytes(range.start_bound()), bytes(range.end_bound()));
        TypedScan::new(self.table.scan::<Vec<u8>>(bounds))
    }

    /// The records whose keys begin with `prefix`, in key order and reversible: the beginning of a
    /// text or byte key, or the first parts of a tuple key. See [`Table::scan_prefix`].
    pub fn prefix<'p>(&self, prefix: impl KeyPrefix<'p, K>) -> TypedScan<K, V> {
        let mut bytes = Vec::new();
        prefix.encode_prefix(&mut bytes);
        TypedScan::new(self.table.scan_prefix(&bytes))
    }

    /// Removes all records with keys from `from` to below `to` (`None`: to the end), and waits
    /// until that is durable. Cost as [`Table::remove_range`].
    ///
    /// # Errors
    /// As [`Table::remove_range`].
    pub fn remove_range(&self, from: K::Ref<'_>, to: Option<K::Ref<'_>>) -> Result<(), Error> {
        self.table.remove_range(&bytes_of::<K>(from), to.map(bytes_of::<K>).as_deref())
    }

    /// Fills this table, which must be empty, with `records` in strictly ascending order of their
    /// keys: all of them, or none if this returns an error. See [`Table::load`].
    ///
    /// # Errors
    /// As [`Table::load`].
    pub fn load<A, B>(
        &self,
        records: impl IntoIterator<Item = Result<(A, B), Error>>,
        options: LoadOptions,
    ) -> Result<LoadSummary, Error>
    where
        A: std::borrow::Borrow<K>,
        B: std::borrow::Borrow<V>,
    {
        let records = records.into_iter().map(|record| {
            let (key, value) = record?;
            let bytes = value_bytes::<V>(value.borrow().to_ref())?;
            let value = table::Value { kind: V::KIND, bytes };
            Ok((bytes_of::<K>(key.borrow().to_ref()), value))
        });
        self.table.load(records, options)
    }
}

impl<K: Key + ?Sized, V: Number, O: Order> TypedTable<K, V, O> {
    /// Adds to the number of `key`, from 0 if there is none; integers wrap around.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn add(&self, key: K::Ref<'_>, amount: V) -> Result<Ticket, Error> {
        self.update(key, V::ADD, &value_bytes::<V>(amount)?)
    }

    /// Raises the number of `key` to at least `floor`.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn max(&self, key: K::Ref<'_>, floor: V) -> Result<Ticket, Error> {
        self.update(key, V::MAX, &value_bytes::<V>(floor)?)
    }

    /// Lowers the number of `key` to at most `ceiling`.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn min(&self, key: K::Ref<'_>, ceiling: V) -> Result<Ticket, Error> {
        self.update(key, V::MIN, &value_bytes::<V>(ceiling)?)
    }

    /// As [`TypedTable::add`], and returns the sum. Cost as [`Table::modify_and_get`]: unlike an
    /// addition, this reads.
    ///
    /// # Errors
    /// As [`Table::modify_and_get`].
    pub fn add_and_get(&self, key: K::Ref<'_>, amount: V) -> Result<(V, Ticket), Error> {
        let updated = self.update_seen(key, V::ADD, &value_bytes::<V>(amount)?)?;
        Ok((updated.after.unwrap_or_default(), updated.ticket))
    }

    /// As [`TypedTable::add`], and returns the number before, 0 if there was none. Concurrent
    /// callers get different numbers. Cost as [`Table::modify_and_get`].
    ///
    /// # Errors
    /// As [`Table::modify_and_get`].
    pub fn fetch_add(&self, key: K::Ref<'_>, amount: V) -> Result<(V, Ticket), Error> {
        let updated = self.update_seen(key, V::ADD, &value_bytes::<V>(amount)?)?;
        Ok((updated.before.unwrap_or_default(), updated.ticket))
    }
}

impl<K: Key + ?Sized, V: Appends + ?Sized, O: Order> TypedTable<K, V, O> {
    /// Appends to the value of `key`, from nothing if there is none. A value that would exceed 1
    /// MiB is unchanged, and the update goes to the quarantine.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn append(&self, key: K::Ref<'_>, piece: &V::Piece) -> Result<Ticket, Error> {
        self.update(key, builtin::APPEND, piece.as_ref())
    }
}

impl<K: Key + ?Sized, V: ByteString + ?Sized, O: Order> TypedTable<K, V, O> {
    /// Overwrites bytes of the value of `key` from `offset` on. A patch that begins beyond the end
    /// of the value goes to the quarantine.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn patch(&self, key: K::Ref<'_>, offset: u32, bytes: &[u8]) -> Result<Ticket, Error> {
        self.update(key, builtin::BYTE_PATCH, &builtin::patch_operand(offset, bytes))
    }
}

impl<K: Key + ?Sized, V: Bits + ?Sized, O: Order> TypedTable<K, V, O> {
    /// Sets bits: the value of `key` becomes the bitwise or with `mask`, or `mask` if there is
    /// none. For bytes of variable length, a value of another length is unchanged, and the update
    /// goes to the quarantine.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn bit_or(&self, key: K::Ref<'_>, mask: &V::Mask) -> Result<Ticket, Error> {
        self.update(key, builtin::BIT_OR, mask.as_ref())
    }
}

impl<K: Key + ?Sized, V: Counters + Value<Owned = V>, O: Order> TypedTable<K, V, O> {
    /// Changes any fields of the struct of `key`, each by its rule, in one update. If there is
    /// none, each field starts with the neutral value of its rule: see [`Counters`].
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn change(&self, key: K::Ref<'_>, change: V::Change) -> Result<Ticket, Error> {
        self.update(key, builtin::COUNTERS, &V::operand(change))
    }

    /// As [`TypedTable::change`], and returns the resulting struct. Cost as
    /// [`Table::modify_and_get`].
    ///
    /// # Errors
    /// As [`Table::modify_and_get`].
    pub fn change_and_get(&self, key: K::Ref<'_>, change: V::Change) -> Result<(V, Ticket), Error> {
        let updated = self.update_seen(key, builtin::COUNTERS, &V::operand(change))?;
        let made = updated.after.expect("a change of fields makes a struct");
        Ok((made, updated.ticket))
    }
}

impl Batch {
    /// Adds a [`TypedTable::change`].
    pub fn change<K: Key + ?Sized, V: Counters, O: Order>(
        &mut self,
        table: &TypedTable<K, V, O>,
        key: &K,
        change: V::Change,
    ) -> &mut Self {
        self.update(table, key, builtin::COUNTERS, &V::operand(change))
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, O: Order> Structure for TypedTable<K, V, O> {
    type Key = K;
    type Value = V;

    fn name(&self) -> &str {
        self.table.name()
    }

    fn space(&self) -> SpaceId {
        self.table.space()
    }

    fn blocks(&self) -> &BlockStore {
        self.table.blocks()
    }

    fn durability(&self) -> Durability {
        self.table.durability()
    }

    fn key_bytes(key: &K) -> Vec<u8> {
        bytes_of::<K>(key.to_ref())
    }

    /// For a value that cannot be encoded, an operand that [`Structure::check`] refuses.
    fn put_operand(value: &V) -> Vec<u8> {
        put_operand::<V>(value.to_ref()).unwrap_or_default()
    }

    /// A built-in modifier must preserve the type of values; those of the application are assumed
    /// to.
    fn check(&self, _key: &K, modifier: ModifierId, operand: &[u8]) -> Result<(), Error> {
        let fits = match modifier {
            builtin::DELETE => true,
            builtin::PUT | builtin::INSERT_IF_ABSENT => operand
                .split_first()
                .is_some_and(|(kind, bytes)| *kind == V::KIND as u8 && V::decode(bytes).is_some()),
            _ => modifier.0 >= FIRST_USER_ID || V::MODIFIERS.contains(&modifier),
        };
        if fits {
            return Ok(());
        }
        let modifiers = self.table.blocks().modifiers();
        let name = modifiers.get(modifier).map_or("unknown", |found| found.name());
        let reason = format!("it does not make {} for table {:?}", V::NAME, self.table.name());
        Err(RequestError::BadOperand { modifier: name.to_owned(), reason }.into())
    }
}

impl<K: Key + ?Sized, V: Number, O: Order> Sums for TypedTable<K, V, O> {
    type Amount = V;

    fn sum(amount: V) -> (ModifierId, Vec<u8>) {
        // A number can always be encoded.
        (V::ADD, value_bytes::<V>(amount).unwrap_or_default())
    }
}

/// The bytes of a value.
fn value_bytes<V: Value + ?Sized>(value: V::Ref<'_>) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    encode_value::<V>(value, &mut bytes)?;
    Ok(bytes)
}

/// The operand that puts a value.
fn put_operand<V: Value + ?Sized>(value: V::Ref<'_>) -> Result<Vec<u8>, Error> {
    let mut operand = vec![V::KIND as u8];
    encode_value::<V>(value, &mut operand)?;
    Ok(operand)
}

/// Appends the bytes of a value.
pub(in crate::structures) fn encode_value<V: Value + ?Sized>(
    value: V::Ref<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    V::encode(value, out).map_err(|reason| {
        let reason = format!("{} cannot be written: {reason}", V::NAME);
        RequestError::BadOperand { modifier: "put".to_owned(), reason }.into()
    })
}

fn decode_found<V: Value + ?Sized>(found: Option<table::Value>) -> Result<Option<V::Owned>, Error> {
    found.map(|value| decode_value::<V>(value.as_value())).transpose()
}

/// The value of these bytes.
pub(in crate::structures) fn decode_value<V: Value + ?Sized>(
    value: ValueRef<'_>,
) -> Result<V::Owned, Error> {
    let mismatch = || {
        let found = format!("{} bytes of kind {:?}", value.bytes.len(), value.kind);
        Error::from(RequestError::TypeMismatch { wanted: V::NAME, found })
    };
    let fits = value.kind == V::KIND;
    V::decode(value.bytes).filter(|_| fits).ok_or_else(mismatch)
}
