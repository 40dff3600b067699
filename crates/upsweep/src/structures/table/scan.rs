//! Scans: records in the order of their table, forward, in reverse, or from both ends.
//!
//! A scan holds the bounds of what it has not returned yet and, per end, the rest of one block. It
//! reads a block when it reaches it and pins nothing, so it neither blocks the sweep nor is a
//! snapshot: every block is as it was when the scan read it.

use std::collections::VecDeque;

use super::handle::{Table, Value};
use super::order::{ByKey, Order};
use super::reader::{self, Lookup, PageRequest};
use crate::error::Error;
use crate::runtime::{View, Wanted};
use crate::structures::batch::Structure;

/// Maximum number of records that one step takes out of a block.
const RECORDS_PER_STEP: usize = 4096;
/// Bytes after which a step takes no further record.
const BYTES_PER_STEP: usize = 1 << 20;

/// The smallest position greater than `position`; of an ordered table, a position is a key.
pub(super) fn successor(position: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(position.len() + 1);
    next.extend_from_slice(position);
    next.push(0);
    next
}

/// A record: key and value.
pub type Record = (Vec<u8>, Value);

/// An iterator over the records of a table, or those in a range of keys. Ends after the first
/// error.
pub struct Scan<O: Order = ByKey> {
    table: Table<O>,
    /// Smallest position that was not yet taken from a block.
    from: Vec<u8>,
    /// First position beyond those not yet taken; `None` if unbounded.
    to: Option<Vec<u8>>,
    front: VecDeque<Record>,
    back: VecDeque<Record>,
    done: bool,
}

/// The result of one step.
struct Step {
    records: VecDeque<Record>,
    /// Where the next step continues; `None` at the end.
    next: Option<Vec<u8>>,
}

impl<O: Order> Scan<O> {
    pub(super) fn new(table: Table<O>, from: Vec<u8>, to: Option<Vec<u8>>) -> Self {
        let done = to.as_ref().is_some_and(|to| *to <= from);
        Self { table, from, to, front: VecDeque::new(), back: VecDeque::new(), done }
    }

    /// Takes the next records from the low end.
    fn fill_front(&mut self) -> Result<(), Error> {
        let view =
            self.table.blocks().view(self.table.space(), Wanted::Covering(self.from.clone()))?;
        let step = self.step(&view, false)?;
        self.front = step.records;
        match step.next {
            Some(next) if self.to.as_ref().is_none_or(|to| next < *to) => self.from = next,
            _ => self.done = true,
        }
        Ok(())
    }

    /// Takes the next records from the high end.
    fn fill_back(&mut self) -> Result<(), Error> {
        let view = self.table.blocks().view(self.table.space(), Wanted::Below(self.to.clone()))?;
        let step = self.step(&view, true)?;
        self.back = step.records;
        match step.next {
            Some(next) if next > self.from => self.to = Some(next),
            _ => self.done = true,
        }
        Ok(())
    }

    fn step(&self, view: &View, reverse: bool) -> Result<Step, Error> {
        let body = view.image.as_ref().map(|image| image.body());
        let mut updates = view.updates();
        reader::sort::<O>(&mut updates);
        let request = PageRequest {
            from: &self.from,
            to: self.to.as_deref(),
            reverse,
            records_max: RECORDS_PER_STEP,
            bytes_max: BYTES_PER_STEP,
        };
        let modifiers = self.table.blocks().modifiers();
        let page = reader::page::<O>(body, &updates, &modifiers, &request)
            .map_err(|reason| self.table.damage(view, &view.low, reason))?;
        let last = page.records.last().map(|record| O::position(record.key).into_owned());
        let next = match (page.is_complete, reverse, last) {
            (false, false, Some(last)) => Some(successor(&last)),
            (false, true, Some(last)) => Some(last),
            (_, false, _) => view.high.as_deref().map(<[u8]>::to_vec),
            (_, true, _) => (!view.low.is_empty()).then(|| view.low.to_vec()),
        };
        let mut records = VecDeque::with_capacity(page.records.len());
        for record in page.records {
            let key = record.key.to_vec();
            match record.value {
                Lookup::Value { kind, bytes } => {
                    records.push_back((key, Value { kind, bytes: bytes.into_owned() }));
                }
                Lookup::NeedLarge { .. } => {
                    if let Some(value) = self.table.get(&key)? {
                        records.push_back((key, value));
                    }
                }
                Lookup::Absent => {}
            }
        }
        Ok(Step { records, next })
    }

    fn fail(&mut self, error: Error) -> Option<Result<Record, Error>> {
        self.done = true;
        self.front.clear();
        self.back.clear();
        Some(Err(error))
    }
}

impl<O: Order> Iterator for Scan<O> {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.front.pop_front() {
                return Some(Ok(record));
            }
            if self.done {
                return self.back.pop_back().map(Ok);
            }
            if let Err(error) = self.fill_front() {
                return self.fail(error);
            }
        }
    }
}

impl<O: Order> DoubleEndedIterator for Scan<O> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.back.pop_front() {
                return Some(Ok(record));
            }
            if self.done {
                return self.front.pop_back().map(Ok);
            }
            if let Err(error) = self.fill_back() {
                return self.fail(error);
            }
        }
    }
}
