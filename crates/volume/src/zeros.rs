//! Long spans of zeros: those of discards of more than a chunk. They are few, and in memory.

use std::collections::BTreeMap;

use crate::address::{Branch, CHUNK_LEVEL, LEVEL_MAX, Span, Stamp};

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
}
