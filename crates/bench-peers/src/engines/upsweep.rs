//! Upsweep: increments are declared with a modifier of the application, and nothing is read.
//!
//! Configuration, and why:
//! - three quarters of the limit as its memory budget: its files are opened for direct I/O, so the
//!   page cache needs nothing, but the heap takes more than the budget counts, and threads, the
//!   program and this driver take some MiB; more than the limit is death;
//! - increments fold: a record that is hit again while it waits costs one queue entry;
//! - durable updates wait for the log; relaxed ones are on their way within 5 ms;
//! - nothing else is set.

use std::collections::BTreeMap;
use std::path::Path;

use upsweep::layers::engine::LoggedUpdate;
use upsweep::layers::engine::registry::ModifierId;
use upsweep::layers::structures::modifiers::{DELETE, PUT, value_operand};
use upsweep::{
    AsValue, CreateOptions, LoadOptions, Modifier, Outcome, Refusal, Store, Table, ValueKind,
    ValueRef,
};

use super::Entry;
use crate::engine::{
    Change, Config, Durability, Engine, Records, Scanned, Turns, Update, Value, add, counter,
    incremented_from_nothing, value,
};
use crate::failure::Failure;

pub(super) const ENTRY: Entry = Entry {
    name: "upsweep",
    open,
    room_factor: 2.5,
    configuration: "three quarters of the limit as memory budget, because the heap takes more than \
                    the budget counts; all else at its defaults (blocks of 16 KiB at least, a log \
                    of 512 MiB, direct I/O); increments as a folding modifier",
};

/// Cycles of the sweep after which the state is steady.
const CYCLES: f64 = 3.0;
/// An operand: how much is added.
const ONE: [u8; 8] = 1u64.to_le_bytes();

/// Adds its operand to the counter at the start of a value.
struct Count;

impl Modifier for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(
        &self,
        _key: &[u8],
        current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        let amount = counter(operand);
        let value = match current {
            Some(current) => {
                let mut value = current.bytes.to_vec();
                add(&mut value, amount);
                value
            }
            None => {
                let mut value = incremented_from_nothing();
                add(&mut value, amount.wrapping_sub(1));
                value.to_vec()
            }
        };
        Ok(Outcome::Put(ValueKind::Bytes, value))
    }

    fn fold(&self, earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        Some(counter(earlier).wrapping_add(counter(later)).to_le_bytes().to_vec())
    }
}

/// A value of bytes.
struct Bytes(Value);

impl AsValue for Bytes {
    fn as_value(&self) -> ValueRef<'_> {
        ValueRef { kind: ValueKind::Bytes, bytes: &self.0 }
    }
}

struct Upsweep {
    store: Store,
    table: Table,
    count: ModifierId,
}

fn open(folder: &Path, config: &Config) -> Result<Box<dyn Engine>, Failure> {
    let budget_bytes = usize::try_from(config.memory_bytes / 4 * 3).unwrap_or(usize::MAX);
    let builder = Store::builder().memory_bytes(budget_bytes).modifier(Count);
    let path = folder.join("store");
    let created = CreateOptions::default();
    let store = if path.exists() { builder.open(&path) } else { builder.create(&path, &created) };
    let store = store.map_err(Failure::engine)?;
    let table = store.table("records").map_err(Failure::engine)?;
    let count = store.blocks().modifier_id(&Count).map_err(Failure::engine)?;
    Ok(Box::new(Upsweep { store, table, count }))
}

impl Upsweep {
    fn logged<'a>(&self, update: &Update<'a>, put: &'a [u8]) -> LoggedUpdate<'a> {
        let (modifier, operand): (ModifierId, &[u8]) = match update.change {
            Change::Increment => (self.count, &ONE),
            Change::Put(_) => (PUT, put),
            Change::Delete => (DELETE, &[]),
        };
        let space = self.table.space();
        LoggedUpdate { space, modifier, key: update.key, operand }
    }
}

impl Engine for Upsweep {
    fn load(&self, records: Records<'_>) -> Result<(), Failure> {
        let records = records.map(|(key, value)| Ok((key, Bytes(value))));
        self.table.load(records, LoadOptions::default()).map_err(Failure::engine)?;
        Ok(())
    }

    fn apply(&self, updates: &[Update<'_>], durability: Durability) -> Result<(), Failure> {
        let puts: Vec<Vec<u8>> = updates
            .iter()
            .map(|update| match update.change {
                Change::Put(stamp) => value_operand(ValueKind::Bytes, &value(stamp)),
                Change::Increment | Change::Delete => Vec::new(),
            })
            .collect();
        let logged: Vec<LoggedUpdate<'_>> =
            updates.iter().zip(&puts).map(|(update, put)| self.logged(update, put)).collect();
        let durability = match durability {
            Durability::Durable => upsweep::Durability::Wait,
            Durability::Relaxed => upsweep::Durability::Relaxed,
        };
        // A durable ticket has been waited on; nobody waits for a relaxed one.
        self.store.blocks().modify(&logged, durability).map(drop).map_err(Failure::engine)
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>, Failure> {
        let value = self.table.get(key).map_err(Failure::engine)?;
        Ok(value.map(|value| counter(&value.bytes)))
    }

    fn scan(&self, from: &[u8], count: u64) -> Result<Scanned, Failure> {
        let mut scanned = Scanned::default();
        let records = self.table.scan(from..);
        for record in records.take(usize::try_from(count).unwrap_or(usize::MAX)) {
            scanned.add(&record.map_err(Failure::engine)?.1.bytes);
        }
        Ok(scanned)
    }

    fn quiesce(&self) -> Result<(), Failure> {
        self.store.sweep().map_err(Failure::engine)?;
        self.store.blocks().checkpoint().map_err(Failure::engine)
    }

    fn turns(&self, _increments: u64) -> Option<Turns> {
        let pulse = self.store.blocks().pulse();
        let cycles = pulse.metrics.sweep_cycles_total as f64;
        let done = cycles + pulse.sweep.progress.unwrap_or(0.0);
        Some(Turns { done, enough: CYCLES })
    }

    fn statistics(&self) -> BTreeMap<String, f64> {
        let status = self.store.status();
        let waits = status.metrics.admission_wait_seconds.values();
        let stall_us_max = waits.map(|wait| wait.longest * 1e6).fold(0.0, f64::max);
        let numbers = [
            ("log_used_bytes", status.log.used_bytes as f64),
            ("batching_degree", status.sweep.batching_degree),
            ("cycles", status.metrics.sweep_cycles_total as f64),
            ("stall_us_max", stall_us_max),
            ("quarantined", status.quarantined as f64),
            ("bound_log", status.bound.log),
            ("bound_sweep", status.bound.sweep),
            ("bound_cpu", status.bound.cpu),
            ("bound_core", status.bound.core),
        ];
        numbers.into_iter().map(|(name, number)| (name.to_owned(), number)).collect()
    }
}
