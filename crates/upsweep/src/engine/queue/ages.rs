//! Ages of waiting updates: the sequence below which nothing waits any more, without examining
//! every block.
//!
//! Sequences are divided into stretches, and each stretch counts the queues and frozen copies of
//! queues whose oldest update is in it. Invariant: every nonempty queue, and every frozen copy of
//! one, is counted once, in the stretch of its oldest sequence. So the oldest stretch with a count
//! is a lower bound of what waits. Cost of a change: a binary search among a few thousand
//! stretches, and only when a queue becomes nonempty or empty, not for each update.

use crate::log::Seq;
use std::collections::VecDeque;

/// Shortest stretch, in sequences.
const SPAN_MIN: u64 = 64;
/// A new stretch is this fraction of everything that waits.
const SPAN_PART: u64 = 512;

/// The counts, by stretch.
#[derive(Debug, Default)]
pub struct Ages {
    /// First sequence, and count. A stretch ends where the next one begins.
    stretches: VecDeque<(Seq, u32)>,
    /// The highest sequence that was ever noted: no stretch begins at or below it any more, because
    /// what is counted stays in its stretch.
    newest: Seq,
}

impl Ages {
    /// Counts a queue whose oldest update has this sequence.
    pub fn note(&mut self, seq: Seq) {
        match self.stretches.back() {
            Some((start, _)) if seq >= *start => {
                let first = self.stretches.front().map_or(seq, |(first, _)| *first);
                let is_long = seq.since(*start) >= SPAN_MIN.max(seq.since(first) / SPAN_PART);
                if is_long && seq > self.newest {
                    self.stretches.push_back((seq, 0));
                }
            }
            Some(_) if seq < self.stretches[0].0 => self.stretches.push_front((seq, 0)),
            Some(_) => {}
            None => self.stretches.push_back((seq, 0)),
        }
        self.newest = self.newest.max(seq);
        self.count_of(seq).1 += 1;
    }

    /// A counted queue waits no more.
    pub fn forget(&mut self, seq: Seq) {
        let (_, count) = self.count_of(seq);
        *count = count.checked_sub(1).expect("only counted queues are forgotten");
    }

    fn count_of(&mut self, seq: Seq) -> &mut (Seq, u32) {
        let after = self.stretches.partition_point(|(start, _)| *start <= seq);
        let found = after.checked_sub(1).and_then(|index| self.stretches.get_mut(index));
        found.expect("every waiting queue is inside a stretch")
    }

    /// A stretch begins here, so that anything older is distinguished exactly.
    pub fn mark(&mut self, seq: Seq) {
        if seq > self.newest && self.stretches.back().is_none_or(|(start, _)| *start < seq) {
            self.stretches.push_back((seq, 0));
        }
    }

    /// Nothing older than this waits; `None` if nothing waits.
    pub fn oldest(&mut self) -> Option<Seq> {
        while self.stretches.len() > 1 && self.stretches[0].1 == 0 {
            self.stretches.pop_front();
        }
        self.stretches.front().filter(|(_, count)| *count > 0).map(|(start, _)| *start)
    }

    /// The end of the longest prefix of stretches that together count at most this many.
    #[must_use]
    pub fn below_which_are(&self, most: u64) -> Seq {
        let mut count = 0;
        let is_beyond = |(_, more): &&(Seq, u32)| {
            count += u64::from(*more);
            count > most
        };
        self.stretches.iter().find(is_beyond).map_or(Seq::MAX, |(start, _)| *start)
    }

    /// The total count.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.stretches.iter().map(|(_, count)| u64::from(*count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_mark_tells_exactly_what_is_older() {
        let mut ages = Ages::default();
        assert_eq!(ages.oldest(), None);
        (10..20).for_each(|seq| ages.note(Seq::new(seq)));
        ages.mark(Seq::new(20));
        (20..30).for_each(|seq| ages.note(Seq::new(seq)));
        assert_eq!(ages.oldest(), Some(Seq::new(10)));
        (10..20).for_each(|seq| ages.forget(Seq::new(seq)));
        assert_eq!((ages.oldest(), ages.count()), (Some(Seq::new(20)), 10));
        ages.note(Seq::new(7));
        assert_eq!(ages.oldest(), Some(Seq::new(7)), "what is older may come back");
        ages.forget(Seq::new(7));
        (20..30).for_each(|seq| ages.forget(Seq::new(seq)));
        assert_eq!((ages.oldest(), ages.count()), (None, 0));
    }

    #[test]
    fn the_oldest_few_are_told_from_the_others() {
        let mut ages = Ages::default();
        assert_eq!(ages.below_which_are(0), Seq::MAX);
        for seq in [10, 1000, 1001, 2000] {
            ages.mark(Seq::new(seq));
            ages.note(Seq::new(seq));
        }
        assert_eq!(
            [0, 1, 2, 3].map(|most| ages.below_which_are(most)),
            [10, 1000, 1001, 2000].map(Seq::new)
        );
        assert_eq!(ages.below_which_are(4), Seq::MAX);
    }

    #[test]
    fn what_is_noted_twice_stays_in_one_stretch_though_stretches_become_shorter() {
        let mut ages = Ages::default();
        ages.note(Seq::FIRST);
        (0..).map(|index| 100_000 + 64 * index).take(10).for_each(|seq| ages.note(Seq::new(seq)));
        let seq = 100_000 + 64 * 9 + 100;
        ages.note(Seq::new(seq));
        ages.forget(Seq::FIRST);
        assert_eq!(ages.oldest(), Some(Seq::new(100_000)));
        ages.note(Seq::new(seq));
        ages.mark(Seq::new(seq));
        ages.forget(Seq::new(seq));
        ages.forget(Seq::new(seq));
        assert_eq!(ages.count(), 10);
    }

    proptest! {
        #[test]
        fn the_oldest_is_never_younger_than_what_waits_and_all_is_counted_once(
            gaps in prop::collection::vec((0..200u64, 0..40usize), 1..400),
        ) {
            let (mut ages, mut waiting, mut seq) = (Ages::default(), Vec::new(), 1u64);
            for (gap, gone) in gaps {
                // Some are of one sequence, some older than others that were there before.
                let at = if gap % 7 == 0 { seq.saturating_sub(gap).max(1) } else { seq + gap };
                seq = seq.max(at);
                ages.note(Seq::new(at));
                waiting.push(at);
                if gap % 5 == 0 {
                    ages.mark(Seq::new(seq + 1));
                }
                if gone < waiting.len() {
                    ages.forget(Seq::new(waiting.remove(gone)));
                }
                let oldest = waiting.iter().min().copied().map(Seq::new);
                let found = ages.oldest();
                prop_assert_eq!(found.is_some(), oldest.is_some());
                let (Some(found), Some(oldest)) = (found, oldest) else { continue };
                prop_assert!(found <= oldest);
            }
            prop_assert_eq!(ages.count(), waiting.len() as u64);
        }
    }
}
