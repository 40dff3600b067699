//! Typed tables: keys and values of Rust types over the bytes of a [`Table`].
//!
//! Keys keep their order: integers are big-endian with the sign bit turned, text and bytes are
//! themselves, a pair is the first part with its zeros escaped and ended, then the second. Numbers
//! as values are those that the numeric modifiers work on.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use super::modifiers as builtin;
use super::table::{ByKey, Order, Scan, Table};
use crate::engine::modifier::ValueKind;
use crate::engine::registry::ModifierId;
use crate::error::{Error, RequestError};
use crate::runtime::{BlockStore, Durability, Ticket};
use crate::structures::batch::{Structure, Sums};
use crate::structures::sealed::Sealed;

/// A type that can be the key of a table.
pub trait Key {
    /// What a scan gives back.
    type Owned;

    /// Appends the key so that bytes sort as keys do.
    fn encode(&self, out: &mut Vec<u8>);

    /// The key that [`Key::encode`] wrote; `None` if these are other bytes.
    fn decode(bytes: &[u8]) -> Option<Self::Owned>;
}

/// A type that can be the value of a table.
pub trait Value {
    /// What a query gives back.
    type Owned;
    /// What the stored bytes are.
    const KIND: ValueKind;
    /// Name of the type for error messages.
    const NAME: &'static str;

    /// Appends the bytes of the value.
    fn encode(&self, out: &mut Vec<u8>);

    /// The value that [`Value::encode`] or a modifier wrote; `None` if these are other bytes.
    fn decode(bytes: &[u8]) -> Option<Self::Owned>;
}

impl Key for [u8] {
    type Owned = Vec<u8>;
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }
}

impl Key for str {
    type Owned = String;
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
    fn decode(bytes: &[u8]) -> Option<String> {
        String::from_utf8(bytes.to_vec()).ok()
    }
}

macro_rules! integer_key {
    ($type:ty, $flip:expr) => {
        impl Key for $type {
            type Owned = $type;
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&(*self ^ $flip).to_be_bytes());
            }
            fn decode(bytes: &[u8]) -> Option<$type> {
                Some(<$type>::from_be_bytes(bytes.try_into().ok()?) ^ $flip)
            }
        }
    };
}

integer_key!(u8, 0);
integer_key!(u16, 0);
integer_key!(u32, 0);
integer_key!(u64, 0);
integer_key!(u128, 0);
integer_key!(i32, i32::MIN);
integer_key!(i64, i64::MIN);

impl<A: Key<Owned = A>, B: Key<Owned = B>> Key for (A, B) {
    type Owned = (A, B);
    fn encode(&self, out: &mut Vec<u8>) {
        let mut first = Vec::new();
        self.0.encode(&mut first);
        for byte in first {
            out.push(byte);
            if byte == 0 {
                out.push(0xff);
            }
        }
        out.extend_from_slice(&[0, 0]);
        self.1.encode(out);
    }
    fn decode(bytes: &[u8]) -> Option<(A, B)> {
        let mut first = Vec::new();
        let mut rest = bytes;
        loop {
            match rest {
                [0, 0xff, tail @ ..] => {
                    first.push(0);
                    rest = tail;
                }
                [0, 0, tail @ ..] => return Some((A::decode(&first)?, B::decode(tail)?)),
                [0, ..] | [] => return None,
                [byte, tail @ ..] => {
                    first.push(*byte);
                    rest = tail;
                }
            }
        }
    }
}

impl Value for [u8] {
    type Owned = Vec<u8>;
    const KIND: ValueKind = ValueKind::Bytes;
    const NAME: &'static str = "bytes";
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }
}

impl Value for str {
    type Owned = String;
    const KIND: ValueKind = ValueKind::Bytes;
    const NAME: &'static str = "text";
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
    fn decode(bytes: &[u8]) -> Option<String> {
        String::from_utf8(bytes.to_vec()).ok()
    }
}

/// A number that modifiers can add and compare.
pub trait Number: Value + Copy {
    /// The built-in modifier that adds.
    const ADD: ModifierId;
    /// The built-in modifier that keeps the larger.
    const MAX: ModifierId;
    /// The built-in modifier that keeps the smaller.
    const MIN: ModifierId;
}

macro_rules! number_value {
    ($type:ty, $kind:expr, $name:literal, $add:ident, $max:ident, $min:ident) => {
        impl Value for $type {
            type Owned = $type;
            const KIND: ValueKind = $kind;
            const NAME: &'static str = $name;
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn decode(bytes: &[u8]) -> Option<$type> {
                Some(<$type>::from_le_bytes(bytes.try_into().ok()?))
            }
        }
        impl Number for $type {
            const ADD: ModifierId = builtin::$add;
            const MAX: ModifierId = builtin::$max;
            const MIN: ModifierId = builtin::$min;
        }
    };
}

number_value!(i64, ValueKind::I64, "an i64", ADD_I64, MAX_I64, MIN_I64);
number_value!(u64, ValueKind::U64, "a u64", ADD_U64, MAX_U64, MIN_U64);
number_value!(f64, ValueKind::F64, "an f64", ADD_F64, MAX_F64, MIN_F64);

/// Name and types of a table; a constant of the application.
///
/// ```
/// use upsweep::TableDefinition;
/// const HITS: TableDefinition<str, i64> = TableDefinition::new("hits");
/// ```
pub struct TableDefinition<K: ?Sized, V: ?Sized> {
    name: &'static str,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized> Clone for TableDefinition<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized, V: ?Sized> Copy for TableDefinition<K, V> {}

impl<K: ?Sized, V: ?Sized> std::fmt::Debug for TableDefinition<K, V> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("TableDefinition").field(&self.name).finish()
    }
}

impl<K: ?Sized, V: ?Sized> TableDefinition<K, V> {
    /// A table called `name` (1 to 255 bytes) with these types.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, types: PhantomData }
    }

    /// The table's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// A table with typed keys and values, ordered by key unless it is a
/// [`TypedHashTable`](crate::TypedHashTable).
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

fn bytes_of<K: Key + ?Sized>(key: &K) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    bytes
}

impl<K: Key + ?Sized, V: Value + ?Sized, O: Order> TypedTable<K, V, O> {
    pub(crate) fn new(table: Table<O>) -> Self {
        Self { table, types: PhantomData }
    }

    /// The table as bytes.
    #[must_use]
    pub fn raw(&self) -> &Table<O> {
        &self.table
    }

    /// The same table with another moment at which changes return.
    #[must_use]
    pub fn with_durability(&self, durability: Durability) -> Self {
        Self::new(self.table.with_durability(durability))
    }

    /// The value of `key`. Cost and errors as [`Table::get`].
    ///
    /// # Errors
    /// As [`Table::get`]; [`RequestError::TypeMismatch`] if the stored value is of another type.
    pub fn get(&self, key: &K) -> Result<Option<V::Owned>, Error> {
        self.table.get(&bytes_of(key))?.map(|value| decode_value::<V>(&value)).transpose()
    }

    /// As [`TypedTable::get`], without blocking the thread; of no particular executor.
    ///
    /// # Errors
    /// As [`TypedTable::get`]; [`Error::Closed`] if the store closes meanwhile.
    pub async fn get_async(&self, key: &K) -> Result<Option<V::Owned>, Error> {
        let found = self.table.get_async(&bytes_of(key)).await?;
        found.map(|value| decode_value::<V>(&value)).transpose()
    }

    /// Gives `key` this value.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn put(&self, key: &K, value: &V) -> Result<Ticket, Error> {
        self.table.update(&bytes_of(key), builtin::PUT, &Self::put_operand(value))
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// As [`Table::delete`].
    pub fn delete(&self, key: &K) -> Result<Ticket, Error> {
        self.table.delete(&bytes_of(key))
    }

    /// All records, in the order of the table and reversible; see [`Table::iter`].
    pub fn iter(&self) -> TypedScan<K, V, O> {
        TypedScan { scan: self.table.iter(), types: PhantomData }
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> TypedTable<K, V> {
    /// The records with keys in `range`, in key order and reversible; see [`Table::scan`].
    pub fn range<'k>(&self, range: impl RangeBounds<&'k K>) -> TypedScan<K, V>
    where
        K: 'k,
    {
        let own = |bound: Bound<&&K>| match bound {
            Bound::Included(key) => Bound::Included(bytes_of(*key)),
            Bound::Excluded(key) => Bound::Excluded(bytes_of(*key)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let bounds = (own(range.start_bound()), own(range.end_bound()));
        TypedScan { scan: self.table.scan::<Vec<u8>>(bounds), types: PhantomData }
    }
}

impl<K: Key + ?Sized, V: Number, O: Order> TypedTable<K, V, O> {
    /// Adds to the number of `key`, from 0 if there is none; integers wrap around.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn add(&self, key: &K, amount: V) -> Result<Ticket, Error> {
        self.apply(key, V::ADD, amount)
    }

    /// Raises the number of `key` to at least `floor`.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn max(&self, key: &K, floor: V) -> Result<Ticket, Error> {
        self.apply(key, V::MAX, floor)
    }

    /// Lowers the number of `key` to at most `ceiling`.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn min(&self, key: &K, ceiling: V) -> Result<Ticket, Error> {
        self.apply(key, V::MIN, ceiling)
    }

    fn apply(&self, key: &K, modifier: ModifierId, operand: V) -> Result<Ticket, Error> {
        self.table.update(&bytes_of(key), modifier, &number_bytes(operand))
    }
}

fn number_bytes<V: Number>(number: V) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8);
    number.encode(&mut bytes);
    bytes
}

impl<K: ?Sized, V: ?Sized, O: Order> Sealed for TypedTable<K, V, O> {}

impl<K: Key + ?Sized, V: Value + ?Sized, O: Order> Structure for TypedTable<K, V, O> {
    type Key = K;
    type Value = V;

    fn name(&self) -> &str {
        self.table.name()
    }

    fn space(&self) -> u32 {
        self.table.space()
    }

    fn blocks(&self) -> &BlockStore {
        self.table.blocks()
    }

    fn durability(&self) -> Durability {
        self.table.durability()
    }

    fn key_bytes(key: &K) -> Vec<u8> {
        bytes_of(key)
    }

    fn put_operand(value: &V) -> Vec<u8> {
        let mut operand = vec![V::KIND as u8];
        value.encode(&mut operand);
        operand
    }
}

impl<K: Key + ?Sized, V: Number, O: Order> Sums for TypedTable<K, V, O> {
    type Amount = V;

    fn sum(amount: V) -> (ModifierId, Vec<u8>) {
        (V::ADD, number_bytes(amount))
    }
}

fn decode_value<V: Value + ?Sized>(value: &super::table::Value) -> Result<V::Owned, Error> {
    let mismatch = || {
        let found = format!("{} bytes of kind {:?}", value.bytes.len(), value.kind);
        Error::from(RequestError::TypeMismatch { wanted: V::NAME, found })
    };
    let fits = value.kind == V::KIND;
    V::decode(&value.bytes).filter(|_| fits).ok_or_else(mismatch)
}

/// An iterator over the records of a typed table.
pub struct TypedScan<K: ?Sized, V: ?Sized, O: Order = ByKey> {
    scan: Scan<O>,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: Key + ?Sized, V: Value + ?Sized, O: Order> TypedScan<K, V, O> {
    fn decode(
        record: Result<(Vec<u8>, super::table::Value), Error>,
    ) -> Result<(K::Owned, V::Owned), Error> {
        let (key, value) = record?;
        let key = K::decode(&key).ok_or_else(|| {
            let found = format!("a key of {} bytes", key.len());
            Error::from(RequestError::TypeMismatch { wanted: "the key type of the table", found })
        })?;
        Ok((key, decode_value::<V>(&value)?))
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, O: Order> Iterator for TypedScan<K, V, O> {
    type Item = Result<(K::Owned, V::Owned), Error>;
    fn next(&mut self) -> Option<Self::Item> {
        self.scan.next().map(Self::decode)
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, O: Order> DoubleEndedIterator for TypedScan<K, V, O> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.scan.next_back().map(Self::decode)
    }
}
