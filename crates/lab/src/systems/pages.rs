//! Pages of records, most of which nobody has written: their records are computed.
//!
//! A record is a key and a value, both numbers, whatever the bytes that it counts for. Initially
//! the records `r` in `0..records` have the keys `r * stride`. A [`Shape`] says in which page a key
//! belongs, and what happens when a page is full: it is a tree ([`Leaves`]) or a hash table
//! ([`Buckets`]). A page holds what it had initially as a progression of record numbers, so that
//! an untouched page takes no memory and a touched one only that of its changes.

use std::collections::BTreeMap;

use upsweep_sim::random::mix;

/// Record numbers at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progression {
    first: u64,
    /// At least 1.
    step: u64,
    count: u64,
}

impl Progression {
    const NONE: Self = Self { first: 0, step: 1, count: 0 };

    fn contains(self, record: u64) -> bool {
        record >= self.first
            && (record - self.first).is_multiple_of(self.step)
            && (record - self.first) / self.step < self.count
    }

    /// Divides it: those below `record`, and the others.
    fn split(self, record: u64) -> (Self, Self) {
        let below = record.saturating_sub(self.first).div_ceil(self.step).min(self.count);
        let first = self.first + below * self.step;
        let others = Self { first, step: self.step, count: self.count - below };
        (Self { count: below, ..self }, others)
    }
}

/// The value that a record has initially.
pub(crate) fn initial_value(record: u64) -> u64 {
    mix(record)
}

/// The content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    initial: Progression,
    stride: u64,
    /// What differs from the initial content, by key: a value, or that it was removed.
    changed: BTreeMap<u64, Option<u64>>,
    /// Records in it.
    records: u64,
    /// The page in which the search for a key goes on.
    pub(crate) next: Option<u64>,
}

impl Page {
    fn new(initial: Progression, stride: u64) -> Self {
        Self { initial, stride, changed: BTreeMap::new(), records: initial.count, next: None }
    }

    /// Records in it.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    fn is_initial(&self, key: u64) -> bool {
        key.is_multiple_of(self.stride) && self.initial.contains(key / self.stride)
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: u64) -> Option<u64> {
        let initial = || self.is_initial(key).then(|| initial_value(key / self.stride));
        self.changed.get(&key).copied().unwrap_or_else(initial)
    }

    /// Sets the value of a key.
    pub(crate) fn put(&mut self, key: u64, value: u64) {
        self.records += u64::from(self.get(key).is_none());
        self.changed.insert(key, Some(value));
    }

    /// Removes a key; returns whether it was there.
    pub(crate) fn remove(&mut self, key: u64) -> bool {
        let was_there = self.get(key).is_some();
        self.records -= u64::from(was_there);
        if self.is_initial(key) {
            self.changed.insert(key, None);
        } else {
            self.changed.remove(&key);
        }
        was_there
    }

    /// The keys of its records, in order.
    fn keys(&self) -> Vec<u64> {
        let initial =
            (0..self.initial.count).map(|place| self.initial.first + place * self.initial.step);
        let mut keys: Vec<u64> = initial.map(|record| record * self.stride).collect();
        keys.retain(|key| self.changed.get(key) != Some(&None));
        keys.extend(self.changed.keys().filter(|key| !self.is_initial(**key)));
        keys.sort_unstable();
        keys
    }

    /// The keys of its records from one key to below another.
    pub(crate) fn keys_in(&self, from: u64, to: u64) -> Vec<u64> {
        self.keys().into_iter().filter(|key| (from..to).contains(key)).collect()
    }

    /// Takes out the upper half of the records; the first key of it.
    fn split(&mut self) -> (u64, Self) {
        let keys = self.keys();
        let middle = keys[keys.len() / 2];
        let (low, high) = self.initial.split(middle.div_ceil(self.stride));
        let mut upper = Self::new(high, self.stride);
        upper.changed = self.changed.split_off(&middle);
        upper.records = (keys.len() - keys.len() / 2) as u64;
        (self.initial, self.records) = (low, (keys.len() / 2) as u64);
        (middle, upper)
    }
}

/// Where keys belong.
pub(crate) trait Shape {
    /// Pages that there are initially, numbered from 0.
    fn pages(&self) -> u64;

    /// What a page holds initially.
    fn initial(&self, number: u64) -> Page;

    /// The page in which the search for a key begins.
    fn first_page(&self, key: u64) -> u64;

    /// The first key beyond those of the page that a key belongs in; `None` if there is none, or
    /// keys are in no order.
    fn end(&self, key: u64) -> Option<u64>;

    /// Makes room beside or behind a full page that a key belongs in, with a page of the number
    /// `new`, whose content it returns.
    fn grow(&mut self, page: &mut Page, new: u64) -> Page;
}

/// The records that a store holds initially.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Records {
    /// How many.
    pub(crate) count: u64,
    /// The distance between two keys, at least 1.
    pub(crate) stride: u64,
}

/// The leaves of a tree whose inner nodes are in memory: a full leaf is split in halves.
pub(crate) struct Leaves {
    records: Records,
    per_leaf: u64,
    /// First keys and numbers of the leaves that came from splits.
    splits: BTreeMap<u64, u64>,
}

impl Leaves {
    /// A tree with these records, so many in each leaf, at least 1.
    pub(crate) fn new(records: Records, per_leaf: u64) -> Self {
        Self { records, per_leaf, splits: BTreeMap::new() }
    }
}

impl Shape for Leaves {
    fn pages(&self) -> u64 {
        self.records.count.div_ceil(self.per_leaf).max(1)
    }

    fn initial(&self, number: u64) -> Page {
        let first = number * self.per_leaf;
        let count = self.records.count.saturating_sub(first).min(self.per_leaf);
        Page::new(Progression { first, step: 1, count }, self.records.stride)
    }

    fn first_page(&self, key: u64) -> u64 {
        let keys_in_leaf = self.per_leaf * self.records.stride;
        let leaf = (key / keys_in_leaf).min(self.pages() - 1);
        let mut splits = self.splits.range(leaf * keys_in_leaf..=key);
        splits.next_back().map_or(leaf, |(_, number)| *number)
    }

    fn end(&self, key: u64) -> Option<u64> {
        let keys_in_leaf = self.per_leaf * self.records.stride;
        let leaf = (key / keys_in_leaf).min(self.pages() - 1);
        let next = (leaf + 1 < self.pages()).then_some((leaf + 1) * keys_in_leaf);
        let mut splits = self.splits.range(key + 1..next.unwrap_or(u64::MAX));
        splits.next().map(|(first, _)| *first).or(next)
    }

    fn grow(&mut self, page: &mut Page, new: u64) -> Page {
        let (first, upper) = page.split();
        self.splits.insert(first, new);
        upper
    }
}

/// The buckets of a hash table: a full page is followed by another.
///
/// The hash of a key is chosen so that what a page holds initially is a progression: the number of
/// the record before the key, and for keys between records a number that looks random.
pub(crate) struct Buckets {
    records: Records,
    pages: u64,
}

impl Buckets {
    /// A table with these records in so many pages, at least 1.
    pub(crate) fn new(records: Records, pages: u64) -> Self {
        Self { records, pages }
    }
}

impl Shape for Buckets {
    fn pages(&self) -> u64 {
        self.pages
    }

    fn initial(&self, number: u64) -> Page {
        let count = self.records.count.saturating_sub(number).div_ceil(self.pages);
        let initial = Progression { first: number, step: self.pages, count };
        Page::new(initial, self.records.stride)
    }

    fn first_page(&self, key: u64) -> u64 {
        let (record, between) = (key / self.records.stride, key % self.records.stride);
        let scatter = if between == 0 { 0 } else { mix(between) };
        (record % self.pages + scatter % self.pages) % self.pages
    }

    fn end(&self, _key: u64) -> Option<u64> {
        None
    }

    fn grow(&mut self, page: &mut Page, new: u64) -> Page {
        page.next = Some(new);
        Page::new(Progression::NONE, self.records.stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_keys(page: &Page, keys: u64) -> Vec<u64> {
        (0..keys).filter(|key| page.get(*key).is_some()).collect()
    }

    #[test]
    fn every_initial_record_is_in_the_page_that_a_search_begins_in_and_in_no_other() {
        let records = Records { count: 23, stride: 7 };
        let shapes: [&dyn Shape; 2] = [&Leaves::new(records, 5), &Buckets::new(records, 5)];
        for shape in shapes {
            let pages: Vec<Page> = (0..shape.pages()).map(|number| shape.initial(number)).collect();
            assert_eq!(pages.iter().map(Page::records).sum::<u64>(), 23);
            for key in 0..200 {
                let holders: Vec<u64> = (0..)
                    .zip(&pages)
                    .filter(|(_, page)| page.get(key).is_some())
                    .map(|of| of.0)
                    .collect();
                let is_record = key % 7 == 0 && key / 7 < 23;
                let expected = if is_record { vec![shape.first_page(key)] } else { vec![] };
                assert_eq!(holders, expected, "{key}");
                assert!(shape.first_page(key) < shape.pages());
            }
        }
    }

    #[test]
    fn a_split_divides_initial_and_added_records_in_halves() {
        let mut leaves = Leaves::new(Records { count: 20, stride: 10 }, 10);
        let mut page = leaves.initial(1);
        for key in [103, 104, 151, 190] {
            page.put(key, key);
        }
        // One that was there, one that came later, and one that is not there.
        assert_eq!([110, 104, 105].map(|key| page.remove(key)), [true, true, false]);
        page.put(105, 105);
        page.put(160, 1);
        assert_eq!(page.records(), 12);
        assert_eq!(page.keys_in(100, 121), [100, 103, 105, 120]);
        let before = all_keys(&page, 300);
        let upper = leaves.grow(&mut page, 2);
        assert_eq!((page.records(), upper.records()), (6, 6));
        let both = [all_keys(&page, 300), all_keys(&upper, 300)];
        assert_eq!(both.concat(), before);
        for (key, number, end) in [
            (99, 0, Some(100)),
            (100, 1, Some(150)),
            (149, 1, Some(150)),
            (150, 2, None),
            (199, 2, None),
            (1000, 2, None),
        ] {
            assert_eq!((leaves.first_page(key), leaves.end(key)), (number, end), "{key}");
        }
        assert_eq!((upper.get(190), upper.get(180)), (Some(190), Some(initial_value(18))));
    }
}
