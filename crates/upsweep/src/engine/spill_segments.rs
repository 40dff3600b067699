//! Spill segments: waiting updates on the data devices, for when memory or the log holds too few of
//! them per visit of their block.
//!
//! A *spill segment* holds the queues of neighbouring blocks of one space as they were at one time,
//! written consecutively. It is a sorted part of the log: its content is durable, so the log may be
//! released, and each update keeps its sequence. It never changes, whatever happens to the blocks.
//! A block *has* an update of a spill segment if its key is the block's and the frontier of the
//! block is below the end of the spill segment; so an image that holds an update is never given it
//! again, and splits, merges, clones and removals need not consider spill segments.
//!
//! Invariants: a spill segment concerns its space and clones made of it after the creation of the
//! spill segment, because its blocks belonged to that space alone at the time; all updates of its
//! keys up to its end are in it, in an older spill segment, or in an image; its space on the device
//! is released only after a checkpoint that does not list it.
//!
//! Spill segments may overlap. In memory they are arranged in levels within which they do not, and
//! each has a filter of its keys, so that a query rarely reads one that has nothing for it. (One
//! level of a buffer tree: Arge, 1995; Bloom, 1970.)

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use fastbloom::BloomFilter;
use xxhash_rust::xxh3::xxh3_64;

use super::block_format::{BlockFormat, UpdateRef};
use super::format::checkpoint_format::SpillSegmentList;
use super::format::codec_format::Malformed;
use super::format::image_format::{Identity, ImageKind};
use super::format::spill_segment_format::{Sections, SpillSegmentRecord};
use super::ids::SpaceId;
use super::queue::Waiting;
use super::registry::DELETE_RANGE;
use crate::log::Seq;

/// Bits of a filter for each update: a false-positive rate of 2 % by Bloom's formula.
const FILTER_BITS: usize = 8;

/// Approximate memory of an update in a spill segment: its share of the filter and of everything
/// else.
pub const MEMORY_BYTES_PER_UPDATE: f64 = 1.25;

/// Which keys a spill segment may have.
pub struct Filter(BloomFilter);

impl Filter {
    /// The filter of these keys, of which there are about `count`.
    pub fn new<'a>(count: usize, keys: impl Iterator<Item = &'a [u8]>) -> Self {
        let bits = BloomFilter::with_num_bits((count * FILTER_BITS).max(64)).seed(&0);
        let mut filter = bits.expected_items(count);
        keys.for_each(|key| {
            filter.insert_hash(xxh3_64(key));
        });
        Self(filter)
    }

    fn memory_bytes(&self) -> usize {
        self.0.num_bits() / 8
    }
}

/// An existing spill segment.
pub struct SpillSegment {
    /// Its record in the log.
    pub record: SpillSegmentRecord,
    /// Sequence of the log record.
    pub seq: Seq,
    /// `None`: it could not be read when the store was opened, and may have any key.
    pub filter: Option<Filter>,
}

impl SpillSegment {
    /// Whether it may have updates of this key.
    #[must_use]
    pub fn may_have(&self, key: &[u8]) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.0.contains_hash(xxh3_64(key)))
    }

    fn begins_below(&self, high: Option<&[u8]>) -> bool {
        high.is_none_or(|high| *self.record.low < *high)
    }

    fn ends_above(&self, low: &[u8]) -> bool {
        self.record.high.as_ref().is_none_or(|high| **high > *low)
    }

    fn memory_bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, Filter::memory_bytes);
        memory_bytes(&self.record.low, self.record.high.as_deref(), filter)
    }
}

/// Memory of a spill segment between these keys with a filter of this many bytes.
fn memory_bytes(low: &[u8], high: Option<&[u8]>, filter_bytes: usize) -> usize {
    let keys = 2 * low.len() + high.map_or(0, <[u8]>::len);
    // Twice the pointer and the key in the tree, which is half full at worst.
    size_of::<SpillSegment>() + filter_bytes + keys + 64
}

/// Memory that a spill segment between these keys with this many updates will take, in bytes.
#[must_use]
pub fn memory_bytes_with(low: &[u8], high: Option<&[u8]>, updates: u32) -> usize {
    memory_bytes(low, high, updates as usize * FILTER_BITS / 8)
}

/// The identity in the image of a spill segment.
#[must_use]
pub fn identity(store: [u8; 16], record: &SpillSegmentRecord) -> Identity<'_> {
    identity_of(store, record.space, &record.low, record.through)
}

/// As [`identity`], for a spill segment without a record yet.
#[must_use]
pub fn identity_of(store: [u8; 16], space: SpaceId, low: &[u8], through: Seq) -> Identity<'_> {
    Identity { store, kind: ImageKind::SpillSegment, number: space.get(), seq: through, key: low }
}

/// All updates in the body of a spill segment.
///
/// # Errors
/// [`Malformed`] when it is not the body of a spill segment.
pub fn waiting_all(body: &[u8]) -> Result<Vec<Waiting<'_>>, Malformed> {
    let sections = Sections::of(body)?;
    (0..sections.count()).map(|index| Ok(sections.get(index)?.check()?.unpack())).collect()
}

/// The updates in the body of a spill segment for positions from `low` to below `high`, of which
/// `is_wanted` says which ones it wants, of a space with this format; and all removals of ranges
/// that begin there.
///
/// # Errors
/// [`Malformed`] when it is not the body of a spill segment.
pub fn waiting_in<'a>(
    body: &'a [u8],
    low: &[u8],
    high: Option<&[u8]>,
    format: &dyn BlockFormat,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Result<Vec<Waiting<'a>>, Malformed> {
    let mut found = Vec::new();
    let sections = Sections::of(body)?;
    let below = |position: &[u8]| high.is_none_or(|high| position < high);
    let is_inside = |position: &[u8]| *position >= *low && below(position);
    let is_wanted = |key: &[u8]| {
        let position = format.position(key);
        is_inside(&position) && is_wanted(&position)
    };
    let begins_inside = |update: &UpdateRef<'_>| {
        update.modifier != DELETE_RANGE || is_inside(&format.position(update.key))
    };
    // The last section that begins at or below `low` may have positions from there on.
    let first = sections.begin_at_or_below(low)?.saturating_sub(1);
    for index in first..sections.count() {
        let section = sections.get(index)?;
        if !below(section.low()) {
            break;
        }
        found.push(section.with_keys(is_wanted)?.only(begins_inside));
    }
    Ok(found)
}

/// The updates in the body of a spill segment for one key, which is at this position.
///
/// # Errors
/// [`Malformed`] when it is not the body of a spill segment.
pub fn waiting_of<'a>(
    body: &'a [u8],
    key: &[u8],
    position: &[u8],
) -> Result<Waiting<'a>, Malformed> {
    let sections = Sections::of(body)?;
    let Some(last) = sections.begin_at_or_below(position)?.checked_sub(1) else {
        return Ok(Waiting::default());
    };
    Ok(sections.get(last)?.check()?.of_key(key))
}

/// Spill segments of a space that do not overlap, by their first position.
#[derive(Default)]
struct Level {
    spill_segments: BTreeMap<Box<[u8]>, Arc<SpillSegment>>,
    /// No spill segment that was ever in it reaches beyond this sequence.
    through_max: Seq,
}

impl Level {
    /// The spill segment that covers a position.
    fn at(&self, position: &[u8]) -> Option<&Arc<SpillSegment>> {
        let to_position = (Bound::Unbounded, Bound::Included(position));
        let (_, segment) = self.spill_segments.range::<[u8], _>(to_position).next_back()?;
        Some(segment).filter(|segment| segment.ends_above(position))
    }

    /// The spill segments that cover positions from `low` to below `high`.
    fn overlapping<'a>(
        &'a self,
        low: &'a [u8],
        high: Option<&'a [u8]>,
    ) -> impl Iterator<Item = &'a Arc<SpillSegment>> {
        let to_low = (Bound::Unbounded, Bound::Excluded(low));
        let before =
            self.spill_segments.range::<[u8], _>(to_low).next_back().map(|(_, segment)| segment);
        let before = before.filter(|segment| segment.ends_above(low));
        let from_low =
            self.spill_segments.range::<[u8], _>((Bound::Included(low), Bound::Unbounded));
        let inside = from_low.map(|(_, segment)| segment);
        before.into_iter().chain(inside.take_while(move |segment| segment.begins_below(high)))
    }
}

/// The place of a present or former spill segment. The default precedes all of them, because no
/// spill segment is of space 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    space: SpaceId,
    level: usize,
    low: Box<[u8]>,
}

/// A list of all spill segments as they were when it was begun, made in portions.
struct Listing {
    list: SpillSegmentList,
    /// Younger spill segments were added later.
    through: Seq,
    /// The last place that was examined.
    last: Place,
    is_complete: bool,
}

impl Listing {
    fn add(&mut self, segment: &SpillSegment) {
        if segment.seq <= self.through {
            self.list.push(segment.seq, &segment.record);
        }
    }
}

/// All spill segments.
#[derive(Default)]
pub struct SpillSegments {
    spaces: BTreeMap<SpaceId, Vec<Level>>,
    /// The most levels of any space.
    levels: usize,
    count: usize,
    memory_bytes: usize,
    disk_bytes: u64,
    growth_bytes: u64,
    entries: u64,
    /// Sequences of the oldest updates of spill segments, with the number of spill segments for
    /// each.
    first_seqs: BTreeMap<Seq, u32>,
    /// Sequences of their log records, with the number of spill segments for each.
    seqs: BTreeMap<Seq, u32>,
    listing: Option<Listing>,
}

/// Notes that one more spill segment has this sequence.
fn note(seqs: &mut BTreeMap<Seq, u32>, seq: Seq) {
    *seqs.entry(seq).or_default() += 1;
}

/// Notes that one spill segment fewer has this sequence.
fn forget(seqs: &mut BTreeMap<Seq, u32>, seq: Seq) {
    if let Some(others) = seqs.get_mut(&seq) {
        *others -= 1;
        if *others == 0 {
            seqs.remove(&seq);
        }
    }
}

impl SpillSegments {
    /// Sequence of the oldest update in any spill segment.
    #[must_use]
    pub fn first_seq(&self) -> Option<Seq> {
        self.first_seqs.first_key_value().map(|(seq, _)| *seq)
    }

    /// Sequence of the log record of the oldest spill segment.
    #[must_use]
    pub fn oldest(&self) -> Option<Seq> {
        self.seqs.first_key_value().map(|(seq, _)| *seq)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of spill segments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// The number of levels with a spill segment of the space that covers positions from `low` to
    /// below `high`.
    #[must_use]
    pub fn depth(&self, space: SpaceId, low: &[u8], high: Option<&[u8]>) -> usize {
        let levels = self.spaces.get(&space).into_iter().flatten();
        levels.filter(|level| level.overlapping(low, high).next().is_some()).count()
    }

    /// The most levels of any space.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.levels
    }

    /// Memory that they take, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Bytes that they take on the devices.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// Approximately how much blocks grow if every update makes a record.
    #[must_use]
    pub fn growth_bytes(&self) -> u64 {
        self.growth_bytes
    }

    /// Queue entries that were written to them.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Adds a spill segment.
    pub fn insert(&mut self, segment: SpillSegment) {
        self.count += 1;
        self.memory_bytes += segment.memory_bytes();
        self.disk_bytes += u64::from(segment.record.extent.bytes);
        self.growth_bytes += segment.record.growth_bytes;
        self.entries += u64::from(segment.record.updates);
        note(&mut self.first_seqs, segment.record.first_seq);
        note(&mut self.seqs, segment.seq);
        let levels = self.spaces.entry(segment.record.space).or_default();
        let (low, high) = (segment.record.low.clone(), segment.record.high.as_deref());
        let is_free = |level: &Level| level.overlapping(&low, high).next().is_none();
        let level = levels.iter().position(is_free).unwrap_or(levels.len());
        if level == levels.len() {
            levels.push(Level::default());
            self.levels = self.levels.max(levels.len());
        }
        let level = &mut levels[level];
        level.through_max = level.through_max.max(segment.record.through);
        level.spill_segments.insert(low, Arc::new(segment));
    }

    /// Removes a spill segment.
    pub fn remove(&mut self, segment: &SpillSegmentRecord) {
        let Some(levels) = self.spaces.get_mut(&segment.space) else { return };
        let found = (0..).zip(levels.iter_mut()).find_map(|(index, level)| {
            let is_it = level
                .spill_segments
                .get(&segment.low)
                .is_some_and(|found| found.record == *segment);
            let (low, found) =
                is_it.then(|| level.spill_segments.remove_entry(&segment.low)).flatten()?;
            Some((Place { space: segment.space, level: index, low }, found))
        });
        let Some((place, found)) = found else { return };
        if let Some(listing) = &mut self.listing
            && listing.last < place
        {
            listing.add(&found);
        }
        let before = levels.len();
        while levels.last().is_some_and(|level| level.spill_segments.is_empty()) {
            levels.pop();
        }
        let after = levels.len();
        if after == 0 {
            self.spaces.remove(&segment.space);
        }
        if after < before && before == self.levels {
            self.levels = self.spaces.values().map(Vec::len).max().unwrap_or(0);
        }
        self.count -= 1;
        self.memory_bytes -= found.memory_bytes();
        self.disk_bytes -= u64::from(found.record.extent.bytes);
        self.growth_bytes -= found.record.growth_bytes;
        self.entries -= u64::from(found.record.updates);
        forget(&mut self.first_seqs, found.record.first_seq);
        forget(&mut self.seqs, found.seq);
    }

    /// Begins a list of all spill segments as they are now. The log records of later ones have
    /// sequences above `through`.
    pub fn begin_list(&mut self, through: Seq) {
        let (list, last) = (SpillSegmentList::default(), Place::default());
        self.listing = Some(Listing { list, through, last, is_complete: false });
    }

    /// Whether the list is unfinished.
    #[must_use]
    pub fn is_listing(&self) -> bool {
        self.listing.as_ref().is_some_and(|listing| !listing.is_complete)
    }

    /// Extends the list, if it is not complete, by at most `most` spill segments. Those that are
    /// removed before their turn are in it already.
    pub fn list_some(&mut self, most: usize) {
        let Some(mut listing) = self.listing.take() else { return };
        let portion = self.behind(&listing.last, most);
        portion.iter().for_each(|(_, segment)| listing.add(segment));
        listing.is_complete = portion.len() < most;
        if let Some((place, _)) = portion.into_iter().next_back() {
            listing.last = place;
        }
        self.listing = Some(listing);
    }

    /// The completed list.
    pub fn take_list(&mut self) -> SpillSegmentList {
        self.listing.take().map(|listing| listing.list).unwrap_or_default()
    }

    /// The next spill segments after a place, at most `most`, by place.
    #[must_use]
    pub fn behind(&self, last: &Place, most: usize) -> Vec<(Place, Arc<SpillSegment>)> {
        let mut found = Vec::new();
        for (space, levels) in self.spaces.range(last.space..) {
            let is_same_space = *space == last.space;
            let first = if is_same_space { last.level } else { 0 };
            for (level, spill_segments) in levels.iter().enumerate().skip(first) {
                let is_same_level = is_same_space && level == last.level;
                let from =
                    if is_same_level { Bound::Excluded(&*last.low) } else { Bound::Unbounded };
                let next = spill_segments.spill_segments.range::<[u8], _>((from, Bound::Unbounded));
                found.extend(next.take(most - found.len()).map(|(low, segment)| {
                    let place = Place { space: *space, level, low: low.clone() };
                    (place, Arc::clone(segment))
                }));
            }
        }
        found
    }

    /// Whether the spill segment exists.
    #[must_use]
    pub fn has(&self, segment: &SpillSegmentRecord) -> bool {
        let levels = self.spaces.get(&segment.space);
        let mut found =
            levels.into_iter().flatten().filter_map(|level| level.spill_segments.get(&segment.low));
        found.any(|found| found.record == *segment)
    }

    /// The end of the first spill segment of the lowest level that ends above this position.
    #[must_use]
    pub fn end_above<'a>(&'a self, space: SpaceId, position: &'a [u8]) -> Option<&'a [u8]> {
        let level = self.spaces.get(&space)?.first()?;
        level.overlapping(position, None).next()?.record.high.as_deref()
    }

    /// All spill segments, by space.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<SpillSegment>> {
        self.spaces.values().flatten().flat_map(|level| level.spill_segments.values())
    }

    /// Removes and returns all spill segments.
    pub fn take(&mut self) -> Vec<Arc<SpillSegment>> {
        let all = self.iter().map(Arc::clone).collect();
        *self = Self::default();
        all
    }

    /// Whether one that concerns a space has what was accepted for a position up to a sequence;
    /// `sources` as in [`SpillSegments::concerning`].
    #[must_use]
    pub fn hold(&self, sources: &[(SpaceId, Seq)], position: &[u8], seq: Seq) -> bool {
        sources.iter().any(|(space, below)| {
            // Usually the last level has the youngest ones, and so the most.
            let levels = self.spaces.get(space).into_iter().flatten().rev();
            let mut late = levels.filter(|level| level.through_max >= seq);
            late.any(|level| {
                let found = level.at(position);
                found.is_some_and(|found| found.seq < *below && found.record.through >= seq)
            })
        })
    }

    /// Those that cover positions from `low` to below `high` and concern a space, in order of
    /// creation. `sources` are the space and those that it was cloned from, each with the sequence
    /// below which its spill segments concern the space.
    #[must_use]
    pub fn concerning(
        &self,
        sources: &[(SpaceId, Seq)],
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Vec<Arc<SpillSegment>> {
        let mut found = Vec::new();
        for (space, below) in sources {
            for level in self.spaces.get(space).into_iter().flatten() {
                let inside = level.overlapping(low, high).filter(|segment| segment.seq < *below);
                found.extend(inside.map(Arc::clone));
            }
        }
        // Those that a checkpoint carries share a sequence with the last record before.
        found.sort_by_key(|segment| (segment.seq, segment.record.through));
        found
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::device::DeviceId;
    use crate::placement::Extent;

    fn segment(seq: Seq, space: SpaceId, low: u8, length: u8) -> SpillSegment {
        let extent = Extent { device: DeviceId(0), offset: seq.get() << 12, bytes: 4096 };
        let (low, high) = ([low].into(), Some([low + length].into()));
        let (first_seq, through, updates, growth_bytes) = (seq, seq, 1, 0);
        let record = SpillSegmentRecord {
            space,
            low,
            high,
            first_seq,
            through,
            updates,
            growth_bytes,
            extent,
        };
        SpillSegment { record, seq, filter: None }
    }

    fn spaces() -> impl Strategy<Value = SpaceId> {
        (1..4u32).prop_map(SpaceId::new)
    }

    proptest! {
        #[test]
        fn a_list_has_what_was_there_when_it_was_begun(
            before in prop::collection::vec((spaces(), 0..200u8, 1..50u8), 0..60),
            most in 1..9usize,
            steps in prop::collection::vec(
                (0..3u8, spaces(), 0..200u8, any::<prop::sample::Index>()),
                0..60,
            ),
        ) {
            let (mut segments, mut seq) = (SpillSegments::default(), Seq::NONE);
            for (space, low, length) in before {
                seq = seq.next();
                segments.insert(segment(seq, space, low, length));
            }
            let expected: BTreeSet<Seq> = segments.iter().map(|segment| segment.seq).collect();
            segments.begin_list(seq);
            for (step, space, low, index) in steps {
                match step {
                    0 => segments.list_some(most),
                    1 => {
                        seq = seq.next();
                        segments.insert(segment(seq, space, low, 9));
                    }
                    _ => {
                        let all: Vec<_> = segments.iter().map(Arc::clone).collect();
                        if !all.is_empty() {
                            segments.remove(&index.get(&all).record);
                        }
                    }
                }
                let levels = segments.spaces.values().map(Vec::len).max();
                prop_assert_eq!(segments.levels(), levels.unwrap_or(0));
                let oldest = segments.iter().map(|segment| segment.seq).min();
                prop_assert_eq!(segments.oldest(), oldest);
            }
            while segments.is_listing() {
                segments.list_some(most);
            }
            let list = segments.take_list();
            let found: Vec<Seq> = list.iter().map(|(seq, _)| seq).collect();
            prop_assert_eq!(found.len(), expected.len());
            prop_assert_eq!(found.into_iter().collect::<BTreeSet<Seq>>(), expected);
        }
    }
}
