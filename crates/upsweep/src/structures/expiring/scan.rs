//! Scans of tables of expiring records.

use std::marker::PhantomData;

use super::handle::decode;
use crate::error::Error;
use crate::runtime::BlockStore;
use crate::structures::table::Scan;
use crate::structures::typed::{Key, Value, decode_key, decode_value};

/// A key and a value of these types.
type Owned<K, V> = (<K as Key>::Owned, <V as Value>::Owned);

/// An iterator over the records of a table that have not expired when it reaches them, from both
/// ends. An item is an error if a block cannot be read, or
/// [`RequestError::TypeMismatch`](crate::RequestError::TypeMismatch) if a record is not of the
/// types of the table.
pub struct ExpiringScan<K: ?Sized = [u8], V: ?Sized = [u8]> {
    scan: Scan,
    blocks: BlockStore,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: Key + ?Sized, V: Value + ?Sized> ExpiringScan<K, V> {
    pub(super) fn new(scan: Scan, blocks: &BlockStore) -> Self {
        Self { scan, blocks: blocks.clone(), types: PhantomData }
    }

    /// A record that was found, unless it has expired.
    fn decode(
        &self,
        record: Result<(Vec<u8>, crate::structures::table::Value), Error>,
    ) -> Option<Result<Owned<K, V>, Error>> {
        let decoded = record.and_then(|(key, value)| {
            let record = decode(&value)?;
            if record.expires_us <= self.blocks.time_of_day_us() {
                return Ok(None);
            }
            Ok(Some((decode_key::<K>(&key)?, decode_value::<V>(record.value)?)))
        });
        decoded.transpose()
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> Iterator for ExpiringScan<K, V> {
    type Item = Result<(K::Owned, V::Owned), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let record = self.scan.next()?;
            if let Some(item) = self.decode(record) {
                return Some(item);
            }
        }
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> DoubleEndedIterator for ExpiringScan<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            let record = self.scan.next_back()?;
            if let Some(item) = self.decode(record) {
                return Some(item);
            }
        }
    }
}
