//! The versions of one chunk in one branch: which one a reader sees, and which ones no one needs.
//!
//! Both are functions of the entries alone. A version is seen from its own stamp until that of the
//! next one of the same block. Entries that cover a chunk and entries of its blocks are versions of
//! the same blocks, and so are long spans of zeros.

use std::sync::Arc;

use crate::address::{CHUNK_BLOCKS, Physical, Span, Stamp};
use crate::entry::{Content, Entry};

/// Blocks of a chunk.
const BLOCKS: usize = CHUNK_BLOCKS as usize;

/// What a block is at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing in this branch: it is what it is in the parent.
    Absent,
    /// All bytes are zero.
    Zero,
    /// In this slot, with this CRC-32C.
    Slot(Physical, u32),
}

/// The moments of a branch that someone may look at. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Ranges in order, apart from each other.
    ranges: Arc<[(Stamp, Stamp)]>,
    /// Every moment from here on besides.
    from: Option<Stamp>,
}

impl Kept {
    /// Those of ranges that may touch, in any order, from the first to the last moment of each. The
    /// present is at [`Stamp::NOW`].
    pub fn new(mut ranges: Vec<(Stamp, Stamp)>) -> Self {
        ranges.sort_unstable();
        let mut kept: Vec<(Stamp, Stamp)> = Vec::with_capacity(ranges.len());
        for (from, to) in ranges {
            match kept.last_mut() {
                Some((_, end)) if from <= *end => *end = to.max(*end),
                _ => kept.push((from, to)),
            }
        }
        Self { ranges: kept.into(), from: None }
    }

    /// These, and every moment from `from` on. Cost: none, however many there are.
    #[must_use]
    pub fn and_from(&self, from: Stamp) -> Self {
        let from = self.from.map_or(from, |before| from.min(before));
        Self { ranges: Arc::clone(&self.ranges), from: Some(from) }
    }

    /// Whether one of them is at or after `from` and before `until` (`None`: there is no end).
    #[must_use]
    pub fn is_any_in(&self, from: Stamp, until: Option<Stamp>) -> bool {
        let is_before_end = |moment: Stamp| until.is_none_or(|until| moment < until);
        let first = self.ranges.partition_point(|(_, to)| *to < from);
        let start = self.ranges.get(first).map(|(start, _)| *start);
        start.into_iter().chain(self.from).any(|start| is_before_end(from.max(start)))
    }
}

/// The entries of one chunk in one branch, in any order, and the stamps of the long spans of zeros
/// over it.
#[derive(Clone, Copy, Debug)]
pub struct Versions<'a> {
    /// Its number.
    pub chunk: u64,
    /// Entries of the chunk and its blocks.
    pub entries: &'a [Entry],
    /// Stamps of longer spans, all of which are zeros, in any order.
    pub long_zeros: &'a [Stamp],
}

/// What can be deleted of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// Of the entry.
    pub span: Span,
    /// Of the entry.
    pub stamp: Stamp,
    /// No one needs it: otherwise it stays.
    pub is_gone: bool,
    /// Its first slot.
    first: Option<Physical>,
    /// Its slots that no one needs, as bits.
    dead: u16,
}

impl Trim {
    /// Whether nothing can be deleted.
    #[must_use]
    pub fn is_none(&self) -> bool {
        !self.is_gone && self.dead == 0
    }

    /// Its slots that no one needs: all of them if it is gone. Some may be known to be dead.
    pub fn dead(&self) -> impl Iterator<Item = Physical> + use<> {
        let dead = self.dead;
        let numbers = move || (0..BLOCKS as u16).filter(move |nth| dead & 1 << nth != 0);
        self.first.into_iter().flat_map(move |first| numbers().map(move |nth| first.plus(nth)))
    }
}

/// The blocks of a chunk that are in a span, as numbers in the chunk.
fn blocks_in(span: Span, chunk: u64) -> std::ops::Range<usize> {
    let (start, range) = (chunk * CHUNK_BLOCKS, span.blocks());
    (range.start - start) as usize..(range.end - start) as usize
}

impl Versions<'_> {
    /// What each block of the chunk is at a moment.
    #[must_use]
    pub fn at(&self, moment: Stamp) -> [Seen; BLOCKS] {
        let zeros = self.long_zeros.iter().filter(|stamp| **stamp <= moment).max();
        let first = zeros.map_or((None, Seen::Absent), |stamp| (Some(*stamp), Seen::Zero));
        let mut seen = [first; BLOCKS];
        for entry in self.entries.iter().filter(|entry| entry.stamp <= moment) {
            for (nth, block) in blocks_in(entry.span, self.chunk).enumerate() {
                if seen[block].0.is_none_or(|stamp| stamp < entry.stamp) {
                    seen[block] = (Some(entry.stamp), seen_in(entry, nth));
                }
            }
        }
        seen.map(|(_, seen)| seen)
    }

    /// What can be deleted of each entry without a change at any moment that is kept. Entries after
    /// `settled` supersede nothing yet, and stay. `has_parent`: whether a block without versions is
    /// that of a parent, instead of zero.
    #[must_use]
    pub fn trim(&self, kept: &Kept, settled: Stamp, has_parent: bool) -> Vec<Trim> {
        let mut needed: Vec<u16> = vec![0; self.entries.len()];
        for block in 0..BLOCKS {
            let covers = |entry: &&Entry| blocks_in(entry.span, self.chunk).contains(&block);
            let stamps = self.entries.iter().filter(covers).map(|entry| entry.stamp);
            let mut stamps: Vec<Stamp> = stamps.chain(self.long_zeros.iter().copied()).collect();
            stamps.retain(|stamp| *stamp <= settled);
            stamps.sort_unstable();
            for (entry, needed) in self.entries.iter().zip(&mut needed) {
                if covers(&entry) {
                    let next = stamps.partition_point(|stamp| *stamp <= entry.stamp);
                    let is_needed = entry.stamp > settled
                        || kept.is_any_in(entry.stamp, stamps.get(next).copied());
                    *needed |= u16::from(is_needed) << block;
                }
            }
        }
        if !has_parent {
            self.drop_first_zeros(settled, &mut needed);
        }
        let trim = |(entry, needed): (&Entry, u16)| {
            let Entry { span, stamp, .. } = *entry;
            let (is_gone, mut dead, mut first) = (needed == 0, 0, None);
            if let Content::Payload { first: slot, .. } = &entry.content {
                let blocks = blocks_in(span, self.chunk).enumerate();
                let unneeded = blocks.filter(|(_, block)| needed & 1 << block == 0);
                dead = unneeded.fold(0, |dead, (nth, _)| dead | 1 << nth);
                first = Some(*slot);
            }
            Trim { span, stamp, is_gone, first, dead }
        };
        self.entries.iter().zip(needed).map(trim).collect()
    }

    /// Zeros before which there is no payload that stays need not be said.
    fn drop_first_zeros(&self, settled: Stamp, needed: &mut [u16]) {
        let is_payload = |entry: &Entry| matches!(entry.content, Content::Payload { .. });
        for index in 0..self.entries.len() {
            let zero = &self.entries[index];
            if is_payload(zero) || zero.stamp > settled {
                continue;
            }
            let before = self.entries.iter().zip(needed.iter());
            let before = before.filter(|(entry, needed)| {
                **needed != 0 && entry.stamp < zero.stamp && is_payload(entry)
            });
            let mask =
                |span| blocks_in(span, self.chunk).fold(0_u16, |mask, block| mask | 1 << block);
            let hidden = before.fold(0, |hidden, (entry, _)| hidden | mask(entry.span));
            needed[index] &= hidden;
        }
    }
}

fn seen_in(entry: &Entry, nth: usize) -> Seen {
    match &entry.content {
        Content::Zero => Seen::Zero,
        Content::Payload { first, checksums } => Seen::Slot(first.plus(nth as u16), checksums[nth]),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const CHUNK: u64 = 5;

    /// Spans of the chunk: 0 to 15 its blocks, 16 all of it.
    fn span(place: u64) -> Span {
        if place < CHUNK_BLOCKS {
            Span::block(CHUNK * CHUNK_BLOCKS + place)
        } else {
            Span::chunk(CHUNK)
        }
    }

    fn entry(stamp: u64, place: u64, is_zero: bool) -> Entry {
        let blocks = if place < CHUNK_BLOCKS { 1 } else { BLOCKS };
        let first = Physical { home: stamp, slot: 0 };
        let checksums = (0..blocks).map(|block| block as u32).collect();
        let content = if is_zero { Content::Zero } else { Content::Payload { first, checksums } };
        Entry { span: span(place), stamp: Stamp(stamp), content }
    }

    fn gone(trims: &[Trim]) -> Vec<(Span, Stamp)> {
        let gone = trims.iter().filter(|trim| trim.is_gone);
        gone.map(|trim| (trim.span, trim.stamp)).collect()
    }

    fn all_dead(trims: &[Trim]) -> Vec<Physical> {
        trims.iter().flat_map(Trim::dead).collect()
    }

    /// Entries with different stamps, and some long zeros between.
    fn any_versions() -> impl Strategy<Value = (Vec<Entry>, Vec<Stamp>)> {
        let one = (prop_oneof![0..4_u64, Just(16)], 0..4_u8);
        prop::collection::vec(one, 0..14).prop_map(|all| {
            let (mut entries, mut zeros) = (Vec::new(), Vec::new());
            for (number, (place, kind)) in all.into_iter().enumerate() {
                let stamp = 10 * (number as u64 + 1);
                match kind {
                    0 => zeros.push(Stamp(stamp)),
                    _ => entries.push(entry(stamp, place, kind == 1)),
                }
            }
            (entries, zeros)
        })
    }

    fn any_kept() -> impl Strategy<Value = Kept> {
        let ranges = prop::collection::vec((0..160_u64, prop_oneof![Just(0), 0..60_u64]), 0..4);
        let since = prop_oneof![Just(160), Just(u64::MAX), 0..160_u64];
        (ranges, since, any::<bool>()).prop_map(|(ranges, since, has_present)| {
            let mut all: Vec<(u64, u64)> =
                ranges.into_iter().map(|(from, more)| (from, from + more)).collect();
            all.extend(has_present.then_some((since, u64::MAX)));
            kept(&all)
        })
    }

    fn kept(ranges: &[(u64, u64)]) -> Kept {
        Kept::new(ranges.iter().map(|(from, to)| (Stamp(*from), Stamp(*to))).collect())
    }

    const NOW: (u64, u64) = (u64::MAX, u64::MAX);

    /// All moments that are kept, as far as they can differ.
    fn looked_at(kept: &Kept) -> Vec<Stamp> {
        let ends = (0..230).map(Stamp).chain([Stamp::NOW]);
        ends.filter(|at| kept.ranges.iter().any(|(from, to)| (from..=to).contains(&at))).collect()
    }

    fn or_zero(seen: [Seen; BLOCKS], has_parent: bool) -> [Seen; BLOCKS] {
        seen.map(|seen| if seen == Seen::Absent && !has_parent { Seen::Zero } else { seen })
    }

    #[test]
    fn the_last_version_at_or_before_a_moment_is_seen() {
        let entries =
            [entry(10, 16, false), entry(20, 3, false), entry(30, 16, true), entry(40, 3, false)];
        let versions = Versions { chunk: CHUNK, entries: &entries, long_zeros: &[Stamp(25)] };
        let at = |moment, block: usize| versions.at(Stamp(moment))[block];
        let slot = |home, slot, checksum| Seen::Slot(Physical { home, slot }, checksum);
        assert_eq!(at(9, 3), Seen::Absent);
        assert_eq!((at(10, 3), at(19, 4)), (slot(10, 3, 3), slot(10, 4, 4)));
        assert_eq!((at(20, 3), at(24, 4)), (slot(20, 0, 0), slot(10, 4, 4)));
        assert_eq!((at(25, 3), at(30, 4)), (Seen::Zero, Seen::Zero));
        assert_eq!((at(40, 3), at(u64::MAX, 4)), (slot(40, 0, 0), Seen::Zero));
    }

    #[test]
    fn a_version_goes_when_the_next_one_is_settled_and_no_one_looks_in_between() {
        let entries = [entry(10, 3, false), entry(20, 3, false)];
        let versions = Versions { chunk: CHUNK, entries: &entries, long_zeros: &[] };
        let trim = |moments: &[u64], settled| {
            let moments = moments.iter().map(|moment| (*moment, *moment)).chain([NOW]);
            let kept = kept(&moments.collect::<Vec<_>>());
            gone(&versions.trim(&kept, Stamp(settled), false))
        };
        assert_eq!(trim(&[], 30), [(span(3), Stamp(10))]);
        assert_eq!(trim(&[9, 20], 30), [(span(3), Stamp(10))]);
        assert_eq!(trim(&[10], 30), []);
        assert_eq!(trim(&[19], 30), []);
        assert_eq!(trim(&[], 19), [], "the next one may be lost in a power cut");
        let unseen = kept(&[(15, 15)]);
        assert_eq!(gone(&versions.trim(&unseen, Stamp(30), false)), [(span(3), Stamp(20))]);
    }

    #[test]
    fn a_chunk_of_which_some_blocks_are_needed_stays_without_the_others() {
        let entries = [entry(10, 16, false), entry(20, 3, false), entry(30, 5, true)];
        let versions = Versions { chunk: CHUNK, entries: &entries, long_zeros: &[] };
        let trim = versions.trim(&kept(&[NOW]), Stamp(30), false);
        let dead = |slot| Physical { home: 10, slot };
        assert_eq!((gone(&trim), all_dead(&trim)), (Vec::new(), vec![dead(3), dead(5)]));
    }

    proptest! {
        #[test]
        fn moments_from_one_on_are_kept_besides_as_if_they_were_one_more_range(
            ranges in prop::collection::vec((0..160_u64, 0..60_u64), 0..4),
            looks in prop::collection::vec(0..160_u64, 1..3),
            from in 0..200_u64,
            until in prop_oneof![Just(None), (0..200_u64).prop_map(|until| Some(Stamp(until)))],
        ) {
            let mut all: Vec<_> = ranges.iter().map(|(from, more)| (*from, from + more)).collect();
            let added = looks.iter().fold(kept(&all), |kept, look| kept.and_from(Stamp(*look)));
            all.extend(looks.iter().map(|look| (*look, u64::MAX)));
            let as_one = kept(&all).is_any_in(Stamp(from), until);
            prop_assert_eq!(added.is_any_in(Stamp(from), until), as_one);
        }

        #[test]
        fn what_is_trimmed_is_missed_at_no_moment_that_is_kept(
            (entries, long_zeros) in any_versions(),
            kept in any_kept(),
            settled in 0..170_u64,
            has_parent in any::<bool>(),
        ) {
            let versions = Versions { chunk: CHUNK, entries: &entries, long_zeros: &long_zeros };
            let trim = versions.trim(&kept, Stamp(settled), has_parent);
            let dead = all_dead(&trim);
            let left = entries.iter().zip(&trim).filter(|(_, trim)| !trim.is_gone);
            let left: Vec<Entry> = left.map(|(entry, _)| entry).cloned().collect();
            let after = Versions { chunk: CHUNK, entries: &left, long_zeros: &long_zeros };
            for moment in looked_at(&kept) {
                let (was, is) = (versions.at(moment), after.at(moment));
                prop_assert_eq!(or_zero(was, has_parent), or_zero(is, has_parent), "at {}", moment);
                for seen in is {
                    if let Seen::Slot(slot, _) = seen {
                        prop_assert!(!dead.contains(&slot), "{:?} at {}", slot, moment);
                    }
                }
            }
            // The same again, if everything after `settled` is lost in a power cut.
            let lost = |entries: &[Entry]| -> Vec<Entry> {
                entries.iter().filter(|entry| entry.stamp.0 <= settled).cloned().collect()
            };
            let zeros: Vec<Stamp> =
                long_zeros.iter().copied().filter(|stamp| stamp.0 <= settled).collect();
            let (before, after) = (lost(&entries), lost(&left));
            let before = Versions { chunk: CHUNK, entries: &before, long_zeros: &zeros };
            let after = Versions { chunk: CHUNK, entries: &after, long_zeros: &zeros };
            for moment in looked_at(&kept) {
                prop_assert_eq!(
                    or_zero(before.at(moment), has_parent),
                    or_zero(after.at(moment), has_parent),
                    "at {} after a power cut", moment
                );
            }
        }

        #[test]
        fn whatever_stays_is_seen_by_someone(
            (entries, _) in any_versions(),
            kept in any_kept(),
        ) {
            let versions = Versions { chunk: CHUNK, entries: &entries, long_zeros: &[] };
            let trim = versions.trim(&kept, Stamp(1000), true);
            let mut seen = BTreeSet::new();
            for moment in looked_at(&kept) {
                seen.extend(versions.at(moment).into_iter().filter_map(|seen| match seen {
                    Seen::Slot(slot, _) => Some(slot),
                    _ => None,
                }));
            }
            let dead = all_dead(&trim);
            for (entry, Trim { is_gone, .. }) in entries.iter().zip(&trim) {
                let Content::Payload { first, checksums } = &entry.content else { continue };
                for slot in (0..checksums.len()).map(|nth| first.plus(nth as u16)) {
                    prop_assert_eq!(dead.contains(&slot), !seen.contains(&slot), "{:?}", slot);
                }
                let mut slots = (0..checksums.len()).map(|nth| first.plus(nth as u16));
                let is_seen = slots.any(|slot| seen.contains(&slot));
                prop_assert_eq!(*is_gone, !is_seen);
            }
        }
    }
}
