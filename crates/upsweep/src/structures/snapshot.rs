//! Snapshots: all structures of a store, or some, as of one moment.
//!
//! A snapshot shares every block with the structures that it was taken of; later changes are
//! written elsewhere, and what only the snapshot has is freed when it is dropped. So taking and
//! dropping one costs a log record each, whatever its size. (Rodeh, section 1.)

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use super::array::{Array, Cell};
use super::batch::Structure;
use super::expiring::ExpiringTable;
use super::hash::HashTable;
use super::kind::{Kind, Kinds};
use super::space::OpenSpace;
use super::table::{Scan, Table, Value};
use crate::engine::ids::{Seq, SnapshotId};
use crate::error::{Error, RequestError};
use crate::runtime::{BlockStore, Differing, SnapshotInfo, SpaceRecord};

/// Ranges of a difference that are looked up at once.
const RANGES_PER_STEP: usize = 64;

/// The state of a store at one moment. Cheap to clone; usable from any thread. One without a name
/// ends when the last clone of it, and of the structures that were opened from it, is dropped.
#[derive(Clone, Debug)]
pub struct Snapshot {
    blocks: BlockStore,
    kinds: Arc<Kinds>,
    info: SnapshotInfo,
}

impl Snapshot {
    pub(crate) fn new(blocks: &BlockStore, kinds: &Arc<Kinds>, info: SnapshotInfo) -> Self {
        let blocks = if info.name.is_none() { blocks.keeping(info.number) } else { blocks.clone() };
        Self { blocks, kinds: Arc::clone(kinds), info }
    }

    /// Its name; `None` if it ends with its handles.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.info.name.as_deref()
    }

    /// Its position in the store's history: it shows every change with a lower sequence.
    #[must_use]
    pub fn sequence(&self) -> Seq {
        self.info.sequence
    }

    /// An identity that is unique among all snapshots, those of copies of the store included, as
    /// text; `None` for a snapshot made before they had one.
    pub(crate) fn identity(&self) -> Option<String> {
        let identity = self.info.identity;
        let digits = || identity.iter().map(|byte| format!("{byte:02x}")).collect();
        (identity != [0; 16]).then(digits)
    }

    pub(crate) fn number(&self) -> SnapshotId {
        self.info.number
    }

    /// Names and kinds of the structures in it, in order of creation.
    #[must_use]
    pub fn structures(&self) -> Vec<(String, Kind)> {
        let kind = |space: &SpaceRecord| self.kinds.of_format(&space.format);
        self.info.spaces.iter().map(|space| (space.name.clone(), kind(space))).collect()
    }

    /// The kind of the structure of this name; `None` if it has none.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<Kind> {
        self.record(name).ok().map(|space| self.kinds.of_format(&space.format))
    }

    /// The ordered table of this name, as of the snapshot. It cannot be changed; a clone of it can,
    /// see [`Store::clone_structure`](crate::Store::clone_structure).
    ///
    /// # Errors
    /// [`RequestError::NoTable`]; [`RequestError::TableMismatch`] for a structure of another kind.
    pub fn table(&self, name: &str) -> Result<Table, Error> {
        Ok(self.space(name, &Kind::table())?.table())
    }

    /// The table of expiring records of this name, as of the snapshot, without the records that
    /// have expired by the time of the query.
    ///
    /// # Errors
    /// As [`Snapshot::table`].
    pub fn expiring_table(&self, name: &str) -> Result<ExpiringTable, Error> {
        Ok(ExpiringTable::new(self.space(name, &Kind::expiring_table())?.table()))
    }

    /// The hash table of this name, as of the snapshot.
    ///
    /// # Errors
    /// As [`Snapshot::table`].
    pub fn hash_table(&self, name: &str) -> Result<HashTable, Error> {
        Ok(self.space(name, &Kind::hash_table())?.table())
    }

    /// The array of this name, as of the snapshot.
    ///
    /// # Errors
    /// As [`Snapshot::table`].
    pub fn array<T: Cell>(&self, name: &str) -> Result<Array<T>, Error> {
        Ok(self.space(name, &Kind::array(T::KIND))?.array())
    }

    /// The space of a structure of any kind, as of the snapshot, to build a handle on.
    ///
    /// # Errors
    /// As [`Snapshot::table`]; [`RequestError::UnknownFormat`] if the kind is not registered.
    pub fn space(&self, name: &str, kind: &Kind) -> Result<OpenSpace, Error> {
        let record = self.record(name)?;
        let found = self.kinds.of_format(&record.format);
        kind.open(&self.blocks, record.clone(), &found)
    }

    /// Whether it belongs to this store.
    pub(crate) fn is_of(&self, blocks: &BlockStore) -> bool {
        self.blocks.is_same(blocks)
    }

    /// The catalog record of a structure, as of the snapshot.
    ///
    /// # Errors
    /// [`RequestError::NoTable`].
    pub(crate) fn record(&self, name: &str) -> Result<&SpaceRecord, Error> {
        let missing = || RequestError::NoTable(name.to_owned()).into();
        self.info.spaces.iter().find(|space| space.name == name).ok_or_else(missing)
    }

    /// The records of an ordered table that differ between an `earlier` snapshot and this one, in
    /// key order. A table that one of them does not have counts as empty there.
    ///
    /// Cost: in proportion to the blocks that the two do not share; shared blocks are skipped.
    ///
    /// # Errors
    /// [`RequestError::TableMismatch`] for a structure that is not an ordered table;
    /// [`RequestError::WrongStore`] if the other snapshot belongs to a different store.
    pub fn changed_since(&self, earlier: &Self, table: &str) -> Result<Changes, Error> {
        if !earlier.is_of(&self.blocks) {
            return Err(RequestError::WrongStore { table: table.to_owned() }.into());
        }
        let of = |snapshot: &Self| match snapshot.table(table) {
            Err(Error::Request(RequestError::NoTable(_))) => Ok(None),
            other => other.map(Some),
        };
        let (before, after) = (of(earlier)?, of(self)?);
        Ok(Changes::new(before, after))
    }
}

/// A record that differs between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value in the earlier one; `None` if it had none.
    pub before: Option<Value>,
    /// Its value in the later one; `None` if it has none.
    pub after: Option<Value>,
}

type Records = Peekable<Scan>;

/// An iterator over the records that differ between two snapshots. Ends after the first error.
pub struct Changes {
    before: Option<Table>,
    after: Option<Table>,
    /// Where to look up the next ranges; `None` at the end.
    next: Option<Box<[u8]>>,
    ranges: VecDeque<Differing>,
    /// The range that is being compared.
    scans: Option<[Option<Records>; 2]>,
}

impl Changes {
    /// The records that differ between two states of a table; `None` if it did not exist.
    pub(crate) fn new(before: Option<Table>, after: Option<Table>) -> Self {
        let (next, ranges) = (Some(Box::default()), VecDeque::new());
        Self { before, after, next, ranges, scans: None }
    }

    /// Looks up the next ranges in which the tables have different blocks.
    fn find_ranges(&mut self) -> Result<(), Error> {
        let Some(from) = self.next.take() else { return Ok(()) };
        let (Some(before), Some(after)) = (&self.before, &self.after) else {
            self.ranges.push_back(Differing { low: from, high: None });
            return Ok(());
        };
        let (left, right) = (before.space(), after.space());
        let found = before.blocks().differences(left, right, &from, RANGES_PER_STEP)?;
        if found.len() == RANGES_PER_STEP {
            self.next = found.last().and_then(|last| last.high.clone());
        }
        self.ranges.extend(found.into_iter().filter_map(|range| {
            let low = range.low.max(from.clone());
            let is_empty = range.high.as_ref().is_some_and(|high| *high <= low);
            (!is_empty).then_some(Differing { low, ..range })
        }));
        Ok(())
    }

    fn begin(&mut self, range: &Differing) {
        let high = range.high.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let bounds = (Bound::Included(&*range.low), high);
        let scan = |table: &Option<Table>| Some(table.as_ref()?.scan::<&[u8]>(bounds).peekable());
        self.scans = Some([scan(&self.before), scan(&self.after)]);
    }

    /// The next differing record of the current range.
    fn in_range(&mut self) -> Option<Result<Change, Error>> {
        let [before, after] = self.scans.as_mut()?;
        loop {
            if let Some(error) = take_error(before).or_else(|| take_error(after)) {
                return Some(Err(error));
            }
            let order = match (peek(before), peek(after)) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(left), Some(right)) => left.cmp(right),
            };
            let left = if order.is_le() { take(before) } else { None };
            let right = if order.is_ge() { take(after) } else { None };
            let key = left.as_ref().or(right.as_ref())?.0.clone();
            let (before, after) = (left.map(|record| record.1), right.map(|record| record.1));
            if before != after {
                return Some(Ok(Change { key, before, after }));
            }
        }
    }
}

fn take_error(records: &mut Option<Records>) -> Option<Error> {
    records.as_mut()?.next_if(Result::is_err)?.err()
}

fn peek(records: &mut Option<Records>) -> Option<&[u8]> {
    records.as_mut()?.peek()?.as_ref().ok().map(|(key, _)| key.as_slice())
}

fn take(records: &mut Option<Records>) -> Option<(Vec<u8>, Value)> {
    records.as_mut()?.next()?.ok()
}

impl Iterator for Changes {
    type Item = Result<Change, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.in_range() {
                Some(Err(error)) => {
                    (self.scans, self.next) = (None, None);
                    self.ranges.clear();
                    return Some(Err(error));
                }
                Some(change) => return Some(change),
                None => self.scans = None,
            }
            if let Some(range) = self.ranges.pop_front() {
                self.begin(&range);
                continue;
            }
            self.next.as_ref()?;
            if let Err(error) = self.find_ranges() {
                return Some(Err(error));
            }
        }
    }
}
