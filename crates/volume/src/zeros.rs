//! Long spans of zeros: those of discards of more than a chunk. They are few, and in memory.

use std::collections::BTreeMap;

use crate::address::{Branch, CHUNK_LEVEL, LEVEL_MAX, Span, Stamp};
use crate::versions::Kept;

/// The long spans of all branches.
#[derive(Debug, Default)]
pub struct LongZeros {
    stamps: BTreeMap<(Branch, Span), Vec<Stamp>>,
}

impl LongZeros {
    /// Adds a span that is longer than a chunk.
    pub fn add(&mut self, branch: Branch, span: Span, stamp: Stamp) {
        self.stamps.entry((branch, span)).or_default().push(stamp);
    }

    /// Removes some of a span.
    pub fn remove(&mut self, branch: Branch, span: Span, stamps: &[Stamp]) {
        if let Some(known) = self.stamps.get_mut(&(branch, span)) {
            known.retain(|stamp| !stamps.contains(stamp));
            if known.is_empty() {
                self.stamps.remove(&(branch, span));
            }
        }
    }

    /// The stamps of a span before `last` that nobody sees who looks at these moments: the span
    /// was zero again before.
    pub fn superseded(&self, branch: Branch, span: Span, last: Stamp, kept: &Kept) -> Vec<Stamp> {
        let mut stamps = self.stamps.get(&(branch, span)).cloned().unwrap_or_default();
        stamps.retain(|stamp| *stamp <= last);
        stamps.sort_unstable();
        let is_seen = |pair: &&[Stamp]| kept.is_any_in(pair[0], Some(pair[1]));
        stamps.windows(2).filter(|pair| !is_seen(pair)).map(|pair| pair[0]).collect()
    }

    /// Forgets those of a branch, and returns them.
    pub fn forget(&mut self, branch: Branch) -> Vec<(Span, Stamp)> {
        let of_it = self.stamps.extract_if(.., |(of, _), _| *of == branch);
        let each = of_it.map(|((_, span), stamps)| stamps.into_iter().map(move |at| (span, at)));
        each.flatten().collect()
    }

    /// The stamps of all that cover a chunk. Cost: a look-up for each level.
    pub fn over(&self, branch: Branch, chunk: u64) -> Vec<Stamp> {
        if self.stamps.is_empty() {
            return Vec::new();
        }
        let spans = (CHUNK_LEVEL + 1..=LEVEL_MAX).map(|level| Span::chunk(chunk).at(level));
        let found = spans.filter_map(|span| self.stamps.get(&(branch, span)));
        found.flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_covered_by_spans_of_every_level() {
        let mut zeros = LongZeros::default();
        let branch = Branch(3);
        for (level, stamp) in [(2, 10), (5, 20), (10, 30)] {
            zeros.add(branch, Span::chunk(1000).at(level), Stamp(stamp));
        }
        assert_eq!(zeros.over(branch, 1000), [10, 20, 30].map(Stamp));
        assert_eq!(zeros.over(branch, 1000 ^ 16), [20, 30].map(Stamp));
        assert_eq!(zeros.over(Branch(4), 1000), []);
    }

    #[test]
    fn a_span_that_was_zero_again_before_anyone_looked_is_superseded() {
        let (mut zeros, branch, span) = (LongZeros::default(), Branch(3), Span::block(0).at(2));
        for stamp in [40, 10, 20, 30] {
            zeros.add(branch, span, Stamp(stamp));
        }
        let superseded = |last, moments: &[u64]| {
            let ranges = moments.iter().map(|at| (Stamp(*at), Stamp(*at))).collect();
            zeros.superseded(branch, span, Stamp(last), &Kept::new(ranges))
        };
        assert_eq!(superseded(40, &[]), [10, 20, 30].map(Stamp));
        assert_eq!(superseded(30, &[9, 29, 50]), [10].map(Stamp));
        assert_eq!(superseded(40, &[10, 30]), [20].map(Stamp));
        assert_eq!(superseded(10, &[]), []);
        zeros.remove(branch, span, &[10, 20, 40].map(Stamp));
        assert_eq!(zeros.over(branch, 0), [Stamp(30)]);
        zeros.remove(branch, span, &[Stamp(30)]);
        assert!(zeros.stamps.is_empty());
    }
}
