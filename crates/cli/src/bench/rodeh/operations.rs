//! Operations on a base tree: performed by one or more callers, timed, and undone.
//!
//! Steps of [`Base::run`]: age the tree if the mix updates it; perform the operations and wait
//! until they are durable; sweep; undo everything and sweep again, so that the next run meets the
//! same tree. A mix that removes ranges has a clone of the tree, which is dropped at the end. (The
//! paper always throws a generation of the tree away.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use upsweep::{Durability, Store, Table};

use super::paper::{AGING_OPERATIONS, Mix, RANGE_KEYS};
use crate::bench::Random;
use crate::failure::Failure;

/// One operation. Keys are random but for appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Reads a key that was there at first.
    Lookup,
    /// Puts a key that was not there at first.
    Insert,
    /// Declares that a key that was not there at first has a value unless it has one already.
    InsertIfAbsent,
    /// Deletes a key that was there at first.
    Remove,
    /// Puts the key behind the last one.
    Append,
    /// Reads [`RANGE_KEYS`] keys that follow each other.
    LookupRange,
    /// Removes the range of [`RANGE_KEYS`] keys; always durable when it returns.
    RemoveRange,
}

impl Operation {
    /// Whether it changes the tree.
    pub(super) fn updates(self) -> bool {
        !matches!(self, Self::Lookup | Self::LookupRange)
    }
}

/// A base tree: the even numbers as keys.
pub(super) struct Base {
    pub(super) store: Store,
    pub(super) table: Table,
    pub(super) keys: u64,
    pub(super) value_bytes: usize,
}

/// Name of the clone that a run removes ranges from.
const GENERATION: &str = "generation";

/// How a run goes.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) mix: Mix,
    pub(super) operations: u64,
    /// Callers at one time, among whom the operations are divided.
    pub(super) callers: usize,
    pub(super) durability: Durability,
    pub(super) seed: u64,
}

/// How long a run took.
#[derive(Clone, Copy)]
pub(super) struct Seconds {
    /// Until all of it was durable.
    pub(super) durable: f64,
    /// Until all of it was inside the tree.
    pub(super) swept: f64,
}

/// The key of a number, in the order of numbers.
pub(super) fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The value of a key.
pub(super) fn value(number: u64, value_bytes: usize) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(value_bytes, 0);
    value
}

impl Base {
    /// Performs a run and brings the tree back to what it was.
    pub(super) fn run(&self, run: Run) -> Result<Seconds, Failure> {
        let updates = run.mix.iter().any(|(operation, _)| operation.updates());
        let has = |wanted| run.mix.iter().any(|(operation, _)| *operation == wanted);
        let (removes, removes_ranges) = (has(Operation::Remove), has(Operation::RemoveRange));
        let table = if removes_ranges {
            self.store.clone_table(self.table.name(), GENERATION)?
        } else {
            self.table.clone()
        };
        let appended = AtomicU64::new(0);
        let caller = |seed, durability| Caller {
            base: self,
            table: table.with_durability(durability),
            random: Random::new(seed),
            appended: &appended,
            changed: Vec::new(),
            absent: 0,
        };
        let mut changed = Vec::new();
        if updates {
            let mut aging = caller(!run.seed, Durability::Relaxed);
            aging.perform_all(&AGING, AGING_OPERATIONS)?;
            changed.append(&mut aging.changed);
            self.store.sweep()?;
        }
        let callers = (0..run.callers as u64)
            .map(|number| caller(run.seed.wrapping_mul(1000).wrapping_add(number), run.durability));
        let share = run.operations / run.callers as u64;
        let began = Instant::now();
        let callers = perform_at_once(callers.collect(), run.mix, share)?;
        self.store.flush()?;
        let durable = began.elapsed().as_secs_f64();
        if updates {
            self.store.sweep()?;
        }
        let swept = began.elapsed().as_secs_f64();
        if !removes && !removes_ranges && callers.iter().any(|caller| caller.absent > 0) {
            return Err(Failure::Damage(Some("a key of the base tree is gone".to_owned())));
        }
        if removes_ranges {
            self.store.drop_table(GENERATION)?;
            self.store.reclaim()?;
        } else {
            changed.extend(callers.into_iter().flat_map(|caller| caller.changed));
            self.undo(&changed)?;
        }
        Ok(Seconds { durable, swept })
    }

    /// Makes the keys with these numbers what they were at first.
    fn undo(&self, changed: &[u64]) -> Result<(), Failure> {
        let table = self.table.with_durability(Durability::Relaxed);
        for number in changed {
            let is_of_base = number % 2 == 0 && *number < 2 * self.keys;
            drop(if is_of_base {
                table.put(&key(*number), &value(*number, self.value_bytes))?
            } else {
                table.delete(&key(*number))?
            });
        }
        if !changed.is_empty() {
            self.store.sweep()?;
        }
        Ok(())
    }
}

/// What ages a tree.
const AGING: [(Operation, u64); 2] = [(Operation::Insert, 50), (Operation::Remove, 50)];

/// Has every caller perform `operations` operations, all callers at the same time.
fn perform_at_once<'a>(
    callers: Vec<Caller<'a>>,
    mix: Mix,
    operations: u64,
) -> Result<Vec<Caller<'a>>, Failure> {
    let work = |mut caller: Caller<'a>| caller.perform_all(mix, operations).map(|()| caller);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            callers.into_iter().map(|caller| scope.spawn(move || work(caller))).collect();
        let panicked = |_| Failure::Refused("a caller panicked".to_owned());
        threads.into_iter().map(|thread| thread.join().map_err(panicked)?).collect()
    })
}

/// One who calls, and waits for each call to return.
struct Caller<'a> {
    base: &'a Base,
    table: Table,
    random: Random,
    /// Keys that all callers have appended.
    appended: &'a AtomicU64,
    /// Numbers of the keys that were put or deleted.
    changed: Vec<u64>,
    /// Keys that were not found as they should.
    absent: u64,
}

impl Caller<'_> {
    fn perform_all(&mut self, mix: &[(Operation, u64)], operations: u64) -> Result<(), Failure> {
        (0..operations).try_for_each(|_| {
            let operation = self.choose(mix);
            self.perform(operation)
        })
    }

    fn choose(&mut self, mix: &[(Operation, u64)]) -> Operation {
        let mut at = self.random.below(100);
        let chosen = mix.iter().find(|(_, percent)| {
            let is_here = at < *percent;
            at = at.saturating_sub(*percent);
            is_here
        });
        chosen.map(|(operation, _)| *operation).expect("a mix adds up to 100 per cent")
    }

    fn perform(&mut self, operation: Operation) -> Result<(), Failure> {
        let Base { keys, value_bytes, .. } = *self.base;
        match operation {
            Operation::Lookup => {
                let number = 2 * self.random.below(keys);
                self.absent += u64::from(self.table.get(&key(number))?.is_none());
            }
            Operation::LookupRange => {
                let number = 2 * self.random.below(keys - RANGE_KEYS);
                let range = key(number)..key(number + 2 * RANGE_KEYS);
                let mut found = 0;
                for record in self.table.scan(range) {
                    drop(record?);
                    found += 1;
                }
                self.absent += RANGE_KEYS.abs_diff(found);
            }
            Operation::RemoveRange => {
                let number = 2 * self.random.below(keys - RANGE_KEYS);
                self.table.remove_range(&key(number), Some(&key(number + 2 * RANGE_KEYS)))?;
            }
            Operation::InsertIfAbsent => {
                let number = 2 * self.random.below(keys) + 1;
                self.changed.push(number);
                // Whoever wants to wait has waited in the call.
                drop(self.table.insert_if_absent(&key(number), &value(number, value_bytes))?);
            }
            Operation::Insert => {
                let number = 2 * self.random.below(keys) + 1;
                self.change(number, Some(value_bytes))?;
            }
            Operation::Remove => {
                let number = 2 * self.random.below(keys);
                self.change(number, None)?;
            }
            Operation::Append => {
                let number = 2 * (keys + self.appended.fetch_add(1, Ordering::Relaxed));
                self.change(number, Some(value_bytes))?;
            }
        }
        Ok(())
    }

    /// Puts a value of this length, or deletes the key.
    fn change(&mut self, number: u64, value_bytes: Option<usize>) -> Result<(), Failure> {
        self.changed.push(number);
        let ticket = match value_bytes {
            Some(value_bytes) => self.table.put(&key(number), &value(number, value_bytes))?,
            None => self.table.delete(&key(number))?,
        };
        // Whoever wants to wait has waited in the call.
        drop(ticket);
        Ok(())
    }
}
