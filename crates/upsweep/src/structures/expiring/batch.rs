//! Updates of expiring records in batches, and without blocking the thread.

use std::time::SystemTime;

use super::handle::{ExpiringTable, append_record, put_operand};
use crate::engine::registry::ModifierId;
use crate::error::Error;
use crate::runtime::unix_us;
use crate::structures::batch::{Batch, PendingCommit, Structure};
use crate::structures::modifiers::{EXPIRES_AT, PUT, insert_operand, touch_operand};
use crate::structures::typed::{Key, Value};

impl Batch {
    /// Adds an [`ExpiringTable::put`].
    pub fn put_expiring<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &ExpiringTable<K, V>,
        key: &K,
        value: &V,
        expires_at: SystemTime,
    ) -> &mut Self {
        self.push_record(table, key, PUT, put_operand::<V>(value.to_ref(), expires_at))
    }

    /// Adds an [`ExpiringTable::insert_if_absent`], as of the time at which the batch is committed.
    pub fn insert_expiring<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &ExpiringTable<K, V>,
        key: &K,
        value: &V,
        expires_at: SystemTime,
    ) -> &mut Self {
        let operand = append_record::<V>(insert_operand(0), value.to_ref(), expires_at);
        self.push_record(table, key, EXPIRES_AT, operand)
    }

    /// Adds an [`ExpiringTable::touch`], as of the time at which the batch is committed.
    pub fn touch<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &ExpiringTable<K, V>,
        key: &K,
        expires_at: SystemTime,
    ) -> &mut Self {
        self.push(table, key, EXPIRES_AT, touch_operand(0, unix_us(expires_at)))
    }
    /// Adds an update that puts a record; refuses the batch if the record cannot be encoded.
    fn push_record<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &ExpiringTable<K, V>,
        key: &K,
        modifier: ModifierId,
        operand: Result<Vec<u8>, Error>,
    ) -> &mut Self {
        match operand {
            Ok(operand) => self.push(table, key, modifier, operand),
            Err(error) => {
                self.refuse(error);
                self
            }
        }
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> ExpiringTable<K, V> {
    /// As [`ExpiringTable::put`], without blocking the thread: see [`PendingCommit`].
    pub fn put_async(&self, key: &K, value: &V, expires_at: SystemTime) -> PendingCommit {
        self.alone(|batch| batch.put_expiring(self, key, value, expires_at))
    }

    /// As [`ExpiringTable::insert_if_absent`], without blocking the thread: see [`PendingCommit`].
    pub fn insert_if_absent_async(
        &self,
        key: &K,
        value: &V,
        expires_at: SystemTime,
    ) -> PendingCommit {
        self.alone(|batch| batch.insert_expiring(self, key, value, expires_at))
    }

    /// As [`ExpiringTable::touch`], without blocking the thread: see [`PendingCommit`].
    pub fn touch_async(&self, key: &K, expires_at: SystemTime) -> PendingCommit {
        self.alone(|batch| batch.touch(self, key, expires_at))
    }

    fn alone(&self, add: impl FnOnce(&mut Batch) -> &mut Batch) -> PendingCommit {
        let mut batch = Batch::new(self.blocks().clone());
        add(&mut batch);
        batch.commit_async(self.durability())
    }
}
