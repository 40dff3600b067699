//! The catalog: the existing spaces and snapshots, by number and by name, and the ancestry of
//! clones.
//!
//! There may be a hundred thousand snapshots, each with the spaces of a store, so nothing that
//! callers or runs wait for iterates over all of them: every query has an index.
//!
//! Invariant: the indexes agree with the spaces and snapshots themselves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::block_format::BlockFormat;
use super::format::checkpoint_format::CloneEvent;
use super::format::record_format::{SnapshotRecord, SpaceRecord};
pub use super::format::{
    FIRST_USER_SPACE, QUARANTINE_COMPANION, QUARANTINE_SPACE, REFERENCES_SPACE,
};
use super::ids::{SnapshotId, SpaceId};
use super::pending::Pending;
use super::tree::NodeId;
use crate::error::{Error, RequestError};
use crate::log::Seq;

/// Name of the format of spaces that hold large values.
pub const LARGE_VALUE_FORMAT: &str = "raw";

/// A space: a table, the large values of one, or an application's own blocks.
pub struct Space {
    /// Its record in the log.
    pub record: SpaceRecord,
    /// How its blocks are laid out.
    pub format: Arc<dyn BlockFormat>,
    /// Its tree.
    pub root: NodeId,
    /// Updates that are accepted and wait for their record to be durable, because their block is
    /// shared with another space or does not exist.
    pub pending: Pending,
    /// Sequences of records in progress that will change the space as a whole.
    pub fences: VecDeque<Seq>,
}

/// All spaces, by number.
#[derive(Default)]
pub struct Spaces {
    by_number: BTreeMap<SpaceId, Space>,
    /// Those that belong to no snapshot and have a name.
    by_name: BTreeMap<String, SpaceId>,
    /// The number of the snapshot that each belongs to, if any, and its own.
    by_snapshot: BTreeSet<(SnapshotId, SpaceId)>,
}

impl Spaces {
    /// Adds a space with this tree, replacing one with the same number.
    pub fn add(&mut self, record: SpaceRecord, format: Arc<dyn BlockFormat>, root: NodeId) {
        let (number, snapshot) = (record.space, record.snapshot);
        drop(self.remove(number));
        if snapshot == SnapshotId::NONE && !record.name.is_empty() {
            self.by_name.insert(record.name.clone(), number);
        }
        self.by_snapshot.insert((snapshot, number));
        let (pending, fences) = (Pending::default(), VecDeque::new());
        self.by_number.insert(number, Space { record, format, root, pending, fences });
    }

    /// Removes a space.
    pub fn remove(&mut self, number: SpaceId) -> Option<Space> {
        let space = self.by_number.remove(&number)?;
        self.by_snapshot.remove(&(space.record.snapshot, number));
        if self.by_name.get(&space.record.name) == Some(&number) {
            self.by_name.remove(&space.record.name);
        }
        Some(space)
    }

    /// The space with this number.
    #[must_use]
    pub fn get(&self, number: SpaceId) -> Option<&Space> {
        self.by_number.get(&number)
    }

    /// The space with this number; its record must not change.
    pub fn get_mut(&mut self, number: SpaceId) -> Option<&mut Space> {
        self.by_number.get_mut(&number)
    }

    /// The space of this name that belongs to no snapshot.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Space> {
        self.get(*self.by_name.get(name)?)
    }

    /// All, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Space> {
        self.by_number.values()
    }

    /// Those that belong to this snapshot, companions included, by number; [`SnapshotId::NONE`]:
    /// those that belong to none.
    pub fn of_snapshot(&self, snapshot: SnapshotId) -> impl Iterator<Item = &Space> {
        let numbers = self.by_snapshot.range((snapshot, SpaceId::NONE)..=(snapshot, SpaceId::MAX));
        numbers.map(|(_, number)| &self.by_number[number])
    }
}

/// All snapshots, by number, which is the order of their creation.
#[derive(Default)]
pub struct Snapshots {
    by_number: BTreeMap<SnapshotId, (SnapshotRecord, Seq)>,
    /// Those that have a name.
    by_name: BTreeMap<String, SnapshotId>,
    /// By the sequence that each shows.
    by_seq: BTreeSet<(Seq, SnapshotId)>,
}

impl Snapshots {
    /// Adds a snapshot, and the sequence that it shows.
    pub fn add(&mut self, record: SnapshotRecord, seq: Seq) {
        let number = record.number;
        self.remove(number);
        if !record.temporary {
            self.by_name.insert(record.name.clone(), number);
        }
        self.by_seq.insert((seq, number));
        self.by_number.insert(number, (record, seq));
    }

    /// Removes a snapshot.
    pub fn remove(&mut self, number: SnapshotId) {
        let Some((record, seq)) = self.by_number.remove(&number) else { return };
        self.by_seq.remove(&(seq, number));
        if self.by_name.get(&record.name) == Some(&number) {
            self.by_name.remove(&record.name);
        }
    }

    /// The snapshot with this number, and the sequence that it shows.
    #[must_use]
    pub fn get(&self, number: SnapshotId) -> Option<&(SnapshotRecord, Seq)> {
        self.by_number.get(&number)
    }

    /// The number of the snapshot of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<SnapshotId> {
        self.by_name.get(name).copied()
    }

    /// All, by number.
    pub fn iter(&self) -> impl Iterator<Item = &(SnapshotRecord, Seq)> {
        self.by_number.values()
    }

    /// The first snapshot that shows this sequence or a later one.
    #[must_use]
    pub fn first_from(&self, seq: Seq) -> Option<SnapshotId> {
        self.by_seq.range((seq, SnapshotId::NONE)..).next().map(|(_, number)| *number)
    }
}

/// Which space was cloned from which, as long as updates in the log or in spill segments may
/// concern both.
#[derive(Default)]
pub struct Clones {
    by_clone: BTreeMap<SpaceId, CloneEvent>,
    /// Source, sequence, clone.
    by_source: BTreeSet<(SpaceId, Seq, SpaceId)>,
}

impl Clones {
    /// Records a clone; each is made once.
    pub fn add(&mut self, event: CloneEvent) {
        self.by_source.insert((event.source, event.seq, event.clone));
        self.by_clone.insert(event.clone, event);
    }

    /// Forgets those made before this sequence. Cost: a pass over all.
    pub fn forget_before(&mut self, seq: Seq) {
        self.by_clone.retain(|_, event| event.seq >= seq);
        self.by_source.retain(|(_, at, _)| *at >= seq);
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_clone.is_empty()
    }

    /// All, by the number of the clone.
    #[must_use]
    pub fn to_vec(&self) -> Vec<CloneEvent> {
        self.by_clone.values().copied().collect()
    }

    /// The spaces whose spill segments concern this one: itself, and its clone sources, each with
    /// the sequence before which those spill segments were created.
    #[must_use]
    pub fn sources(&self, space: SpaceId) -> Vec<(SpaceId, Seq)> {
        let mut sources = vec![(space, Seq::MAX)];
        while let Some(&(clone, below)) = sources.last()
            && let Some(event) = self.by_clone.get(&clone)
        {
            sources.push((event.source, below.min(event.seq)));
        }
        sources
    }

    /// Whether an update of `space` at `seq` concerns `other`, which may be `space`: see
    /// [`Clones::holders`]. Cost: that of the clones between the two.
    #[must_use]
    pub fn concerns(&self, space: SpaceId, seq: Seq, other: SpaceId) -> bool {
        self.sources(other).into_iter().any(|(source, below)| source == space && seq < below)
    }

    /// The spaces that an update of `space` at `seq` concerns: itself, and what was cloned from it
    /// afterwards, to any depth.
    #[must_use]
    pub fn holders(&self, space: SpaceId, seq: Seq) -> Vec<SpaceId> {
        let mut holders = vec![space];
        let mut next = 0;
        while let Some(&source) = holders.get(next) {
            next += 1;
            let later = (
                Bound::Excluded((source, seq, SpaceId::MAX)),
                Bound::Included((source, Seq::MAX, SpaceId::MAX)),
            );
            let later = self.by_source.range(later);
            holders.extend(later.map(|(_, _, clone)| *clone));
        }
        holders
    }
}

impl Space {
    /// Whether its blocks are the large values of another space.
    #[must_use]
    pub fn has_large_values(&self) -> bool {
        self.record.name.is_empty()
    }

    /// Whether its block format is registered.
    pub(super) fn is_registered(&self) -> bool {
        !self.format.name().is_empty()
    }

    /// # Errors
    /// [`RequestError::UnknownFormat`] if its block format is not registered.
    pub(super) fn check_format(&self) -> Result<(), Error> {
        if self.is_registered() {
            return Ok(());
        }
        Err(RequestError::UnknownFormat(self.record.format.clone()).into())
    }
}

/// The record of a companion space, which has no name.
pub(super) fn companion_record(space: SpaceId, snapshot: SnapshotId) -> SpaceRecord {
    let format = LARGE_VALUE_FORMAT.to_owned();
    SpaceRecord { space, companion: SpaceId::NONE, snapshot, format, name: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_clones_hold_what_was_there_before_them() {
        let [one, two, three, four, five] = [1, 2, 3, 4, 5].map(SpaceId::new);
        let mut clones = Clones::default();
        let made = [(one, two, 10), (one, three, 20), (two, four, 30), (one, five, 40)];
        for (source, clone, seq) in made {
            clones.add(CloneEvent { source, clone, seq: Seq::new(seq) });
        }
        assert_eq!(clones.holders(one, Seq::new(9)), [one, two, three, five, four]);
        assert_eq!(clones.holders(one, Seq::new(10)), [one, three, five]);
        assert_eq!(clones.holders(two, Seq::new(10)), [two, four]);
        assert_eq!(
            clones.sources(four),
            [(four, Seq::MAX), (two, Seq::new(30)), (one, Seq::new(10))]
        );
        for (space, seq) in [(one, 9), (one, 10), (two, 10), (one, 40), (three, 1)] {
            let seq = Seq::new(seq);
            let holders = clones.holders(space, seq);
            let all = [one, two, three, four, five].into_iter();
            let found = all.filter(|other| clones.concerns(space, seq, *other));
            assert_eq!(found.collect::<BTreeSet<_>>(), holders.into_iter().collect());
        }
        clones.forget_before(Seq::new(20));
        assert_eq!(clones.sources(four), [(four, Seq::MAX), (two, Seq::new(30))]);
        assert_eq!(clones.to_vec().len(), 3);
    }

    #[test]
    fn snapshots_are_found_by_number_name_and_sequence() {
        let record = |number: u32, name: &str| SnapshotRecord {
            number: SnapshotId::new(number),
            temporary: name.is_empty(),
            identity: [number as u8; 16],
            name: name.to_owned(),
        };
        let mut snapshots = Snapshots::default();
        snapshots.add(record(5, "monday"), Seq::new(50));
        snapshots.add(record(7, ""), Seq::new(60));
        snapshots.add(record(9, "tuesday"), Seq::new(70));
        let some = |number| Some(SnapshotId::new(number));
        assert_eq!(snapshots.named("tuesday"), some(9));
        assert_eq!(snapshots.named(""), None);
        assert_eq!(
            [50, 51, 70, 71].map(|seq| snapshots.first_from(Seq::new(seq))),
            [some(5), some(7), some(9), None]
        );
        snapshots.remove(SnapshotId::new(5));
        assert_eq!((snapshots.named("monday"), snapshots.first_from(Seq::FIRST)), (None, some(7)));
    }
}
