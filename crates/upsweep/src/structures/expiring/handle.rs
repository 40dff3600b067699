//! The handle of a table of expiring records.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::time::{Duration, SystemTime};

use super::scan::ExpiringScan;
use crate::engine::ids::SpaceId;
use crate::engine::modifier::ValueKind;
use crate::engine::registry::ModifierId;
use crate::error::{Error, RequestError};
use crate::runtime::{BlockStore, Durability, LoadSummary, Ticket, unix_us};
use crate::structures::batch::Structure;
use crate::structures::modifiers::{
    DELETE, EXPIRES_AT, EXPIRING_VALUE_BYTES_MAX, Expiring, PUT, encode_head, insert_operand,
    record_of, touch_operand,
};
use crate::structures::table::{self, Lifetime, LoadOptions, Table};
use crate::structures::typed::{Key, KeyPrefix, Value, bytes_of, decode_value, encode_value};

/// A table of records, each with its own expiry time, ordered by key. From that time on the record
/// is absent. Cheap to clone; usable from any thread. Made by
/// [`Store::expiring_table`](crate::Store::expiring_table), or with typed keys and values by
/// [`Store::typed_expiring_table`](crate::Store::typed_expiring_table).
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use upsweep::{Store, TableDefinition};
///
/// const SESSIONS: TableDefinition<str, u64> = TableDefinition::new("users by session");
///
/// # fn main() -> Result<(), upsweep::Error> {
/// let store = Store::in_memory()?;
/// let sessions = store.typed_expiring_table(SESSIONS)?;
/// let now = SystemTime::now();
/// sessions.put("c0ffee", 7, now + Duration::from_secs(600))?;
/// sessions.put("old", 8, now)?;
/// assert_eq!(sessions.get("c0ffee")?, Some(7));
/// assert_eq!(sessions.get("old")?, None);
/// sessions.touch("c0ffee", now + Duration::from_secs(1200))?; // seen again; nothing was read
/// assert_eq!(sessions.iter().count(), 1);
/// # Ok(())
/// # }
/// ```
///
/// No work is done when a record expires: queries just no longer show it. Its space is freed when
/// the sweep writes its block because updates wait for it or for neighbouring blocks, so this costs
/// no extra read. A block that a clone or snapshot shares keeps its records until it is no longer
/// shared. The counts of [`Store::structures`](crate::Store::structures) include expired records
/// that have not been dropped yet.
///
/// Times are kept in microseconds since the Unix epoch, rounded down. A time before the epoch has
/// passed; one more than 584,000 years after it never comes. Expiry is determined by the system
/// clock, or by [`StoreBuilder::wall_clock`](crate::StoreBuilder::wall_clock). That holds for a
/// snapshot too: it shows those of its records that have not expired by now.
///
/// While the store is open its time does not go back, even if the clock does. If the clock is set
/// back while the store is closed, expired records reappear, unless the sweep has dropped them.
///
/// A value longer than a quarter of a block is stored in a block of its own. A query reads it even
/// if it has expired, until it is dropped, and a touch makes the sweep read and write it.
pub struct ExpiringTable<K: ?Sized = [u8], V: ?Sized = [u8]> {
    table: Table,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized> Clone for ExpiringTable<K, V> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), types: PhantomData }
    }
}

impl<K: ?Sized, V: ?Sized> std::fmt::Debug for ExpiringTable<K, V> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("ExpiringTable").field(&self.table.name()).finish()
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> ExpiringTable<K, V> {
    pub(crate) fn new(table: Table) -> Self {
        Self { table, types: PhantomData }
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.table.name()
    }

    /// The table as bytes, for reading: [`Expiring`](crate::modifiers::Expiring) decodes its
    /// values. It shows expired records until the sweep drops them. An update declared there must
    /// not depend on the current value.
    #[must_use]
    pub fn raw(&self) -> &Table {
        &self.table
    }

    /// The same table with another durability, which decides when changes return; the default is
    /// [`Durability::Wait`].
    #[must_use]
    pub fn with_durability(&self, durability: Durability) -> Self {
        Self::new(self.table.with_durability(durability))
    }

    /// The value of `key`, unless it has expired. Cost as [`Table::get`].
    ///
    /// # Errors
    /// As [`Table::get`]; [`RequestError::TypeMismatch`] if the stored value is of another type.
    pub fn get(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>, Error> {
        self.value_of(self.table.get(&bytes_of::<K>(key))?.as_ref())
    }

    /// As [`ExpiringTable::get`], without blocking the thread; any executor will do.
    ///
    /// # Errors
    /// As [`ExpiringTable::get`]; [`Error::Closed`] if the store closes meanwhile.
    pub async fn get_async(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>, Error> {
        let key = bytes_of::<K>(key);
        self.value_of(self.table.get_async(&key).await?.as_ref())
    }

    /// Whether there is a record for `key`. Cost as [`Table::get`].
    ///
    /// # Errors
    /// As [`ExpiringTable::get`].
    pub fn contains(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        Ok(self.expires_at(key)?.is_some())
    }

    /// When the record of `key` expires; `None` if there is none. Cost as [`Table::get`].
    ///
    /// # Errors
    /// As [`ExpiringTable::get`].
    pub fn expires_at(&self, key: K::Ref<'_>) -> Result<Option<SystemTime>, Error> {
        let found = self.table.get(&bytes_of::<K>(key))?;
        let Some(record) = found.as_ref().map(decode).transpose()? else { return Ok(None) };
        let is_there = record.expires_us > self.table.blocks().time_of_day_us();
        Ok(is_there.then(|| time_of(record.expires_us)))
    }

    /// Sets `key` to this value (at most 1 MiB less 9 bytes) until `expires_at`.
    ///
    /// # Errors
    /// As [`Table::put`]; [`RequestError::ValueTooLong`].
    pub fn put(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        expires_at: SystemTime,
    ) -> Result<Ticket, Error> {
        self.table.update(&bytes_of::<K>(key), PUT, &put_operand::<V>(value, expires_at)?)
    }

    /// Sets `key` to this value until `expires_at`, unless there is a record for `key`; one that
    /// has expired when this is called does not count.
    ///
    /// # Errors
    /// As [`ExpiringTable::put`].
    pub fn insert_if_absent(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        expires_at: SystemTime,
    ) -> Result<Ticket, Error> {
        let moment = self.table.blocks().moment();
        let operand = append_record::<V>(insert_operand(moment.us()), value, expires_at)?;
        self.table.update(&bytes_of::<K>(key), EXPIRES_AT, &operand)
    }

    /// Sets the expiry time of the record of `key` to `expires_at`, later or earlier than before.
    /// If there is none, or it has expired when this is called, nothing changes. Never reads the
    /// device.
    ///
    /// # Errors
    /// As [`Table::modify`].
    pub fn touch(&self, key: K::Ref<'_>, expires_at: SystemTime) -> Result<Ticket, Error> {
        let moment = self.table.blocks().moment();
        let operand = touch_operand(moment.us(), unix_us(expires_at));
        self.table.update(&bytes_of::<K>(key), EXPIRES_AT, &operand)
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// As [`Table::delete`].
    pub fn delete(&self, key: K::Ref<'_>) -> Result<Ticket, Error> {
        self.table.delete(&bytes_of::<K>(key))
    }

    /// All records that have not expired when the iterator reaches them, in key order and
    /// reversible; see [`Table::iter`].
    pub fn iter(&self) -> ExpiringScan<K, V> {
        ExpiringScan::new(self.table.iter(), self.table.blocks())
    }

    /// Those of them with keys in `range`; see [`Table::scan`].
    pub fn range<'k>(&self, range: impl RangeBounds<K::Ref<'k>>) -> ExpiringScan<K, V> {
        let bytes = |bound: Bound<&K::Ref<'k>>| bound.map(|key| bytes_of::<K>(*key));
        let bounds = (bytes(range.start_bound()), bytes(range.end_bound()));
        ExpiringScan::new(self.table.scan::<Vec<u8>>(bounds), self.table.blocks())
    }

    /// Those of them whose keys begin with `prefix`: the beginning of a text or byte key, or the
    /// first parts of a tuple key. See [`Table::scan_prefix`].
    pub fn prefix<'p>(&self, prefix: impl KeyPrefix<'p, K>) -> ExpiringScan<K, V> {
        let mut bytes = Vec::new();
        prefix.encode_prefix(&mut bytes);
        ExpiringScan::new(self.table.scan_prefix(&bytes), self.table.blocks())
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
    /// keys: key, value, and when it expires. All of them, or none if this returns an error. See
    /// [`Table::load`].
    ///
    /// # Errors
    /// As [`Table::load`].
    pub fn load<A, B>(
        &self,
        records: impl IntoIterator<Item = Result<(A, B, SystemTime), Error>>,
        options: LoadOptions,
    ) -> Result<LoadSummary, Error>
    where
        A: std::borrow::Borrow<K>,
        B: std::borrow::Borrow<V>,
    {
        let records = records.into_iter().map(|record| {
            let (key, value, expires_at) = record?;
            let bytes = append_record::<V>(Vec::new(), value.borrow().to_ref(), expires_at)?;
            let value = table::Value { kind: ValueKind::Bytes, bytes };
            Ok((bytes_of::<K>(key.borrow().to_ref()), value))
        });
        self.table.load_records(records, options, Lifetime::Limited)
    }

    /// The value of a record that was found, as of now.
    fn value_of(&self, found: Option<&table::Value>) -> Result<Option<V::Owned>, Error> {
        let Some(record) = found.map(decode).transpose()? else { return Ok(None) };
        // Whatever the sweep dropped before the lookup has expired by now.
        if record.expires_us <= self.table.blocks().time_of_day_us() {
            return Ok(None);
        }
        decode_value::<V>(record.value).map(Some)
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> Structure for ExpiringTable<K, V> {
    type Key = K;
    /// Records are put with a time: see [`Batch::put_expiring`](crate::Batch::put_expiring).
    type Value = Infallible;

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

    fn put_operand(value: &Infallible) -> Vec<u8> {
        match *value {}
    }

    /// Only the updates of the table are allowed: whether others see expired records would depend
    /// on the progress of the sweep.
    fn check(&self, _key: &K, modifier: ModifierId, operand: &[u8]) -> Result<(), Error> {
        let is_record = |bytes| {
            let value = Expiring::decode(bytes).map(|record| record.value);
            value.is_some_and(|value| decode_value::<V>(value).is_ok())
        };
        let fits = match modifier {
            DELETE => true,
            PUT => operand.split_first().is_some_and(|(kind, bytes)| {
                ValueKind::from_number(*kind) == Some(ValueKind::Bytes) && is_record(bytes)
            }),
            EXPIRES_AT => {
                let record = record_of(operand);
                record.len() == size_of::<u64>() || is_record(record)
            }
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let modifiers = self.table.blocks().modifiers();
        let name = modifiers.get(modifier).map_or("unknown", |found| found.name());
        let reason =
            format!("it does not make {} that expires for table {:?}", V::NAME, self.name());
        Err(RequestError::BadOperand { modifier: name.to_owned(), reason }.into())
    }
}

/// Appends a record to an operand's header.
pub(super) fn append_record<V: Value + ?Sized>(
    mut operand: Vec<u8>,
    value: V::Ref<'_>,
    expires_at: SystemTime,
) -> Result<Vec<u8>, Error> {
    encode_head(unix_us(expires_at), V::KIND, &mut operand);
    let head_bytes = operand.len();
    encode_value::<V>(value, &mut operand)?;
    let (bytes, limit) = (operand.len() - head_bytes, EXPIRING_VALUE_BYTES_MAX);
    if bytes > limit {
        return Err(RequestError::ValueTooLong { bytes, limit }.into());
    }
    Ok(operand)
}

/// The operand that puts a record.
pub(super) fn put_operand<V: Value + ?Sized>(
    value: V::Ref<'_>,
    expires_at: SystemTime,
) -> Result<Vec<u8>, Error> {
    append_record::<V>(vec![ValueKind::Bytes as u8], value, expires_at)
}

/// The record that a table has found.
pub(super) fn decode(value: &table::Value) -> Result<Expiring<'_>, Error> {
    let record = Expiring::decode(&value.bytes).filter(|_| value.kind == ValueKind::Bytes);
    record.ok_or_else(|| {
        let found = format!("{} bytes of kind {:?}", value.bytes.len(), value.kind);
        RequestError::TypeMismatch { wanted: "a record that expires", found }.into()
    })
}

/// The time this many microseconds after the Unix epoch, capped near the largest representable one.
fn time_of(us: u64) -> SystemTime {
    /// In 8,000 years: every system can represent that.
    const FAR: Duration = Duration::from_secs(1 << 38);
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(us));
    time.unwrap_or(SystemTime::UNIX_EPOCH + FAR)
}
