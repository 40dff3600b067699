//! Scans of typed tables.

use std::marker::PhantomData;

use super::handle::decode_value;
use super::key_format::Key;
use super::value_format::Value;
use crate::error::{Error, RequestError};
use crate::structures::table::{self, AsValue, ByKey, Order, Scan};

/// An iterator over the records of a typed table, from both ends. An item is an error if a block
/// cannot be read, or [`RequestError::TypeMismatch`] if a record is not of the types of the table.
pub struct TypedScan<K: ?Sized, V: ?Sized, O: Order = ByKey> {
    scan: Scan<O>,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: Key + ?Sized, V: Value + ?Sized, O: Order> TypedScan<K, V, O> {
    pub(super) fn new(scan: Scan<O>) -> Self {
        Self { scan, types: PhantomData }
    }

    fn decode(
        record: Result<(Vec<u8>, table::Value), Error>,
    ) -> Result<(K::Owned, V::Owned), Error> {
        let (key, value) = record?;
        Ok((decode_key::<K>(&key)?, decode_value::<V>(value.as_value())?))
    }
}

/// The key of these bytes.
pub(in crate::structures) fn decode_key<K: Key + ?Sized>(key: &[u8]) -> Result<K::Owned, Error> {
    K::decode(key).ok_or_else(|| {
        let found = format!("a key of {} bytes", key.len());
        RequestError::TypeMismatch { wanted: "the key type of the table", found }.into()
    })
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
