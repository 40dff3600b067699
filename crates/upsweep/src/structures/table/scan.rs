//! Scans: records in the order of their table, forward, in reverse, or from both ends.
//!
//! A scan goes over the [blocks](crate::runtime::Blocks) of its range from both ends and holds, per
//! end, the rest of one block. It pins nothing, so it neither blocks the sweep nor is a snapshot:
//! every block is as it was when the scan read it. Of the block at which it begins, or to which it
//! has skipped, it takes a few records first: many scans need no more.

use std::collections::VecDeque;

use super::handle::{Table, Value};
use super::order::{ByKey, Order};
use super::reader::{self, Lookup, PageRequest};
use crate::engine::block_format::{Routing, UpdateRef};
use crate::engine::registry::DELETE_RANGE;
use crate::error::Error;
use crate::runtime::{Blocks, View, Wanted};
use crate::structures::batch::Structure;

/// The smallest position greater than `position`; of an ordered table, a position is a key.
pub(super) fn successor(position: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(position.len() + 1);
    next.extend_from_slice(position);
    next.push(0);
    next
}

/// Records that a scan takes first of the block at which it begins; then it takes eight times as
/// many each time.
const RECORDS_FIRST: usize = 8;

/// A record: key and value.
pub type Record = (Vec<u8>, Value);

/// An iterator over the records of a table, or those in a range of keys. Ends after the first
/// error.
pub struct Scan<O: Order = ByKey> {
    table: Table<O>,
    /// Smallest position that was not taken from the low end, and the first one beyond; `None` if
    /// unbounded.
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    blocks: Blocks,
    front: VecDeque<Record>,
    /// The block of which the first records were taken.
    rest: Option<View>,
    /// How many records to take next from the low end.
    records_max: usize,
    back: VecDeque<Record>,
    done: bool,
}

impl<O: Order> Scan<O> {
    pub(super) fn new(table: Table<O>, from: Vec<u8>, to: Option<Vec<u8>>) -> Self {
        let blocks = table.blocks().blocks(table.space(), &from, to.as_deref());
        let blocks = blocks.routed(Routing::Ordered);
        let (front, back) = (VecDeque::new(), VecDeque::new());
        let (rest, records_max) = (None, RECORDS_FIRST);
        Self { table, from, to, blocks, front, rest, records_max, back, done: false }
    }

    /// Takes the next records from the low end: those of a block, or the first ones.
    fn fill_front(&mut self) -> Result<(), Error> {
        let next = match self.rest.take() {
            Some(rest) => Some(rest),
            None => self.blocks.next().transpose()?,
        };
        let Some(view) = next else {
            self.done = true;
            return Ok(());
        };
        let records_max = self.records_max;
        self.records_max = records_max.saturating_mul(8);
        let mut records = std::mem::take(&mut self.front);
        let is_complete = self.add(&view, false, records_max, &mut records)?;
        self.front = records;
        if let Some((key, _)) = self.front.back().filter(|_| !is_complete) {
            self.from = successor(&O::position(key));
            self.rest = Some(view);
        }
        Ok(())
    }

    /// Takes the records of the next block from the high end.
    fn fill_back(&mut self) -> Result<(), Error> {
        match self.blocks.next_back().transpose()? {
            Some(view) => {
                let mut records = std::mem::take(&mut self.back);
                self.add(&view, true, usize::MAX, &mut records)?;
                self.back = records;
            }
            // What is left of the first block is the last one.
            None if self.rest.is_some() => self.fill_front()?,
            None => self.done = true,
        }
        Ok(())
    }

    /// Adds the records of a block that are in the range, at most so many; returns whether these
    /// are all.
    fn add(
        &self,
        view: &View,
        reverse: bool,
        records_max: usize,
        records: &mut VecDeque<Record>,
    ) -> Result<bool, Error> {
        let end = records.len().saturating_add(records_max);
        let body = view.image.as_ref().map(|image| image.body());
        let mut updates = view.updates();
        reader::sort::<O>(&mut updates);
        let (from, to) = (&*self.from, self.to.as_deref());
        let all = usize::MAX;
        let request = PageRequest { from, to, reverse, records_max: all, bytes_max: all };
        let modifiers = self.table.blocks().modifiers();
        let mut failed = None;
        let shown = reader::each::<O>(body, &updates, &modifiers, &request, |record| {
            if records.len() >= end {
                return false;
            }
            let value = match record.value {
                Lookup::Value { kind, bytes } => Some(Value { kind, bytes: bytes.into_owned() }),
                Lookup::Absent => None,
                Lookup::NeedLarge { .. } => match self.large(body, &updates, record.key) {
                    Ok(value) => value,
                    Err(error) => {
                        failed = Some(error);
                        return false;
                    }
                },
            };
            if let Some(value) = value {
                records.push_back((record.key.to_vec(), value));
            }
            true
        });
        let is_complete = shown.map_err(|reason| self.table.damage(view, &view.low, reason))?;
        failed.map_or(Ok(is_complete), Err)
    }

    /// A value that lies outside of its block.
    fn large(
        &self,
        body: Option<&[u8]>,
        updates: &[UpdateRef<'_>],
        key: &[u8],
    ) -> Result<Option<Value>, Error> {
        let large = self.blocks.view(self.table.companion(), Wanted::Point(key.to_vec()))?;
        // A removal of a range that covered the key would have decided its value.
        let is_its = |update: &&UpdateRef<'_>| update.key == key && update.modifier != DELETE_RANGE;
        let updates: Vec<_> = updates.iter().filter(is_its).copied().collect();
        let modifiers = self.table.blocks().modifiers();
        let loaded = large.image.as_ref().map(|image| image.body());
        match loaded.map(|loaded| reader::get::<O>(body, &updates, &modifiers, key, Some(loaded))) {
            Some(Ok(Lookup::Value { kind, bytes })) => {
                Ok(Some(Value { kind, bytes: bytes.into_owned() }))
            }
            Some(Ok(Lookup::Absent)) => Ok(None),
            // It was swept between the two reads and does not fit any more, or is damaged.
            _ => self.table.get(key),
        }
    }

    fn fail(&mut self, error: Error) -> Option<Result<Record, Error>> {
        self.done = true;
        self.rest = None;
        self.front.clear();
        self.back.clear();
        Some(Err(error))
    }
}

impl Scan {
    /// Asks for the first blocks of these together.
    pub(super) fn begin_all(scans: &mut [Self]) {
        Blocks::begin_all(scans.iter_mut().map(|scan| &mut scan.blocks));
    }

    /// Goes on at the first record whose key is not below `key`. Cost: that of a new scan from
    /// there, if the scan has not read that far; blocks between are not read.
    pub fn skip_to(&mut self, key: &[u8]) {
        let passed = self.front.partition_point(|(front, _)| &**front < key);
        self.front.drain(..passed);
        let left = self.back.partition_point(|(back, _)| &**back >= key);
        self.back.truncate(left);
        if *self.from < *key {
            self.from = key.to_vec();
        }
        self.blocks.skip_to(key);
        self.rest.take_if(|rest| rest.high.as_deref().is_some_and(|high| high <= key));
        if self.front.is_empty() {
            self.records_max = RECORDS_FIRST;
        }
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
