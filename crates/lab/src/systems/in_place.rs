//! A store that is updated in place, through a cache of pages of which the least recently used one
//! leaves: the vanilla tree and the vanilla hash table.
//!
//! 1. An operation looks for its page; if that is not in the cache, it reads it, and first makes
//!    room: the least recently used page leaves, and is written if it was changed.
//! 2. It reads or changes the page in memory, and has ended. A change is not logged, so that it is
//!    not durable until its page leaves: all costs of durability are spared.
//! 3. If the page is full, the shape grows by a page, which also needs room.
//!
//! An operation that has to wait looks anew when what it waited for has come. Operations on a page
//! wait in the order of their arrival, and so do those that wait for room. At most so many are
//! under way that two pages are nobody's: an operation holds at most one page, which it waits for
//! or which it cannot grow for want of room, and that page stays, so that each one ends.

use std::collections::{BTreeMap, VecDeque};

use upsweep::layers::device::Token;

use super::pages::{Page, Shape};
use super::{Finished, Io, Model};

/// A value that nobody looks at, and what longer values consist of. None of its bytes is zero:
/// queues leave out zeros at the end of a value, and most real values have none. All are the same,
/// because simulated devices keep their content compressed.
pub(crate) const ANY_VALUE: u64 = u64::from_le_bytes([0xA5; 8]);

/// What callers ask of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    /// Sets the value of a key.
    Put(u64, u64),
    /// Looks for the value of a key.
    Get(u64),
    /// Adds 1 to the values of so many neighbouring keys, from this one on. All are in one page,
    /// and all but the first have to be there.
    Count(u64, u64),
    /// Removes a key.
    Remove(u64),
    /// Looks for the records from one key to below another, and finds how many there are.
    Scan(u64, u64),
    /// Removes the records from one key to below another.
    RemoveRange(u64, u64),
}

impl Access {
    /// The key.
    pub(crate) fn key(self) -> u64 {
        match self {
            Self::Put(key, _)
            | Self::Get(key)
            | Self::Count(key, _)
            | Self::Remove(key)
            | Self::Scan(key, _)
            | Self::RemoveRange(key, _) => key,
        }
    }
}

/// Sizes of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes of a page.
    pub(crate) page_bytes: u64,
    /// Records that fit into a page, at least 2.
    pub(crate) records_max: u64,
    /// Pages in the cache; at least [`FRAMES_MIN`] are taken.
    pub(crate) frames: usize,
    /// Devices, among which pages go round.
    pub(crate) devices: u16,
}

/// Pages that a cache has at least.
const FRAMES_MIN: usize = 4;
/// Pages that no operation holds.
const NOBODYS: usize = 2;

/// An operation that has not ended.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    number: u64,
    begun_us: u64,
    access: Access,
    /// The page that it has come to, if that is not the first.
    followed: Option<u64>,
    /// Records of a range that were found in other pages.
    counted: u64,
}

impl Waiting {
    fn end(self, found: Option<u64>) -> Finished {
        Finished { number: self.number, begun_us: self.begun_us, found }
    }
}

/// What becomes of an operation at a page.
enum Step {
    /// It has ended, and found this.
    Ends(Option<u64>),
    /// It goes on at the page that follows.
    Follows(u64),
    /// It goes on at the page of this key.
    GoesOnAt(u64),
    /// The page has to grow first.
    NeedsRoom,
}

impl Waiting {
    /// Does what it does at a page that it has come to and that holds so many records at most, up
    /// to a key that another page begins with; also returns whether it changed the page.
    fn act(&mut self, page: &mut Page, records_max: u64, end: Option<u64>) -> (Step, bool) {
        let key = self.access.key();
        let is_there = page.get(key).is_some();
        let takes_it = is_there || page.next.is_none() && page.records() < records_max;
        match (self.access, page.next) {
            (Access::Get(_), next) if is_there || next.is_none() => {
                (Step::Ends(page.get(key)), false)
            }
            (Access::Remove(_), next) if is_there || next.is_none() => {
                (Step::Ends(None), page.remove(key))
            }
            (Access::Put(_, value), _) if takes_it => {
                page.put(key, value);
                (Step::Ends(None), true)
            }
            (Access::Count(first, count), _) if takes_it => {
                for key in first..first + count {
                    page.put(key, page.get(key).unwrap_or(0).wrapping_add(1));
                }
                (Step::Ends(None), true)
            }
            (Access::Scan(from, to), None) => {
                self.counted += page.keys_in(from, to).len() as u64;
                let next = end.filter(|end| *end < to);
                self.access = Access::Scan(next.unwrap_or(to), to);
                (next.map_or(Step::Ends(Some(self.counted)), Step::GoesOnAt), false)
            }
            (Access::RemoveRange(from, to), None) => {
                let keys = page.keys_in(from, to);
                for key in &keys {
                    page.remove(*key);
                }
                let next = end.filter(|end| *end < to);
                self.access = Access::RemoveRange(next.unwrap_or(to), to);
                (next.map_or(Step::Ends(None), Step::GoesOnAt), !keys.is_empty())
            }
            (_, Some(next)) => (Step::Follows(next), false),
            (_, None) => (Step::NeedsRoom, false),
        }
    }
}

/// What takes a place in the cache.
enum Frame {
    /// The page is being read.
    Coming,
    /// The page, when it was last used, and whether it was changed.
    Here { page: Page, used: u64, is_changed: bool },
    /// The page is being written, and leaves then.
    Leaving(Page),
}

/// The store.
pub(crate) struct InPlace<S> {
    shape: S,
    sizes: Sizes,
    pages: u64,
    frames: BTreeMap<u64, Frame>,
    /// The pages that are here, by when they were last used.
    by_use: BTreeMap<u64, u64>,
    uses: u64,
    leaving: usize,
    /// Pages as they are on the devices, if they differ from their initial content.
    stored: BTreeMap<u64, Page>,
    /// The pages of requests under way.
    requests: BTreeMap<Token, u64>,
    /// Operations that have begun and not ended.
    under_way: usize,
    waiting_to_begin: VecDeque<Waiting>,
    waiting_for_page: BTreeMap<u64, Vec<Waiting>>,
    waiting_for_room: VecDeque<Waiting>,
}

impl<S: Shape> InPlace<S> {
    /// A store of this shape, with nothing in its cache.
    pub(crate) fn new(shape: S, sizes: Sizes) -> Self {
        Self {
            pages: shape.pages(),
            shape,
            sizes: Sizes { frames: sizes.frames.max(FRAMES_MIN), ..sizes },
            frames: BTreeMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            leaving: 0,
            stored: BTreeMap::new(),
            requests: BTreeMap::new(),
            under_way: 0,
            waiting_to_begin: VecDeque::new(),
            waiting_for_page: BTreeMap::new(),
            waiting_for_room: VecDeque::new(),
        }
    }

    /// Fills the cache with pages as they are on the devices, in no time. With `are_changed` they
    /// will be written when they leave, as after a long run of random updates.
    pub(crate) fn fill(&mut self, numbers: impl Iterator<Item = u64>, are_changed: bool) {
        for number in numbers {
            if !self.has_room() {
                return;
            }
            if !self.frames.contains_key(&number) {
                let page = self.shape.initial(number);
                self.add(number, page, are_changed);
            }
        }
    }

    /// Puts a page into the cache, as the one that was used last.
    fn add(&mut self, number: u64, page: Page, is_changed: bool) {
        self.uses += 1;
        self.by_use.insert(self.uses, number);
        self.frames.insert(number, Frame::Here { page, used: self.uses, is_changed });
    }

    /// Where a page is: device and offset.
    fn place(&self, page: u64) -> (u16, u64) {
        let devices = u64::from(self.sizes.devices);
        ((page % devices) as u16, page / devices * self.sizes.page_bytes)
    }

    /// Goes on with an operation until it ends or has to wait.
    fn attempt(&mut self, mut operation: Waiting, io: &mut Io) {
        let first = self.shape.first_page(operation.access.key());
        let mut number = operation.followed.unwrap_or(first);
        loop {
            let has_room = self.has_room();
            match self.frames.get_mut(&number) {
                Some(Frame::Here { page, used, is_changed }) => {
                    self.by_use.remove(used);
                    self.uses += 1;
                    *used = self.uses;
                    self.by_use.insert(self.uses, number);
                    let end = self.shape.end(operation.access.key());
                    let (step, changes) = operation.act(page, self.sizes.records_max, end);
                    *is_changed |= changes;
                    match step {
                        Step::Ends(found) => {
                            self.under_way -= 1;
                            return io.finish(operation.end(found));
                        }
                        Step::Follows(next) => {
                            operation.followed = Some(next);
                            number = next;
                        }
                        Step::GoesOnAt(key) => number = self.shape.first_page(key),
                        Step::NeedsRoom => {
                            if !self.grow(number) {
                                // It stays until the operation goes on.
                                self.by_use.remove(&self.uses);
                                return self.waiting_for_room.push_back(operation);
                            }
                            let first = || self.shape.first_page(operation.access.key());
                            number = operation.followed.unwrap_or_else(first);
                        }
                    }
                }
                Some(Frame::Coming | Frame::Leaving(_)) => {
                    return self.wait_for_page(number, operation);
                }
                None if has_room => {
                    self.frames.insert(number, Frame::Coming);
                    let (device, offset) = self.place(number);
                    let token = io.read(device, offset, self.sizes.page_bytes);
                    self.requests.insert(token, number);
                    return self.wait_for_page(number, operation);
                }
                None => return self.waiting_for_room.push_back(operation),
            }
        }
    }

    fn wait_for_page(&mut self, number: u64, operation: Waiting) {
        self.waiting_for_page.entry(number).or_default().push(operation);
    }

    fn has_room(&self) -> bool {
        self.frames.len() < self.sizes.frames
    }

    /// Grows the shape at a full page that is here; false if there is no room for the new page.
    fn grow(&mut self, number: u64) -> bool {
        if !self.has_room() {
            return false;
        }
        let Some(Frame::Here { page, is_changed, .. }) = self.frames.get_mut(&number) else {
            return false;
        };
        let new = self.shape.grow(page, self.pages);
        *is_changed = true;
        self.add(self.pages, new, true);
        self.pages += 1;
        true
    }

    /// Lets operations begin, and makes room for those that need it.
    fn go_on(&mut self, io: &mut Io) {
        loop {
            self.make_room(io);
            if self.under_way + NOBODYS >= self.sizes.frames {
                return;
            }
            let Some(operation) = self.waiting_to_begin.pop_front() else { return };
            self.under_way += 1;
            self.attempt(Waiting { begun_us: io.now_us(), ..operation }, io);
        }
    }

    /// Lets the least recently used pages leave, as long as operations wait for room; those that
    /// find room go on.
    fn make_room(&mut self, io: &mut Io) {
        loop {
            while self.has_room() {
                let Some(operation) = self.waiting_for_room.pop_front() else { return };
                self.attempt(operation, io);
            }
            if self.waiting_for_room.len() <= self.leaving {
                return;
            }
            let Some((_, number)) = self.by_use.pop_first() else { return };
            let Some(Frame::Here { page, is_changed, .. }) = self.frames.remove(&number) else {
                continue;
            };
            if is_changed {
                let (device, offset) = self.place(number);
                let token = io.write(device, offset, self.sizes.page_bytes);
                self.requests.insert(token, number);
                self.frames.insert(number, Frame::Leaving(page));
                self.leaving += 1;
            }
        }
    }
}

impl<S: Shape> Model for InPlace<S> {
    type Operation = Access;

    fn begin(&mut self, number: u64, access: Access, io: &mut Io) {
        let begun_us = io.now_us();
        let operation = Waiting { number, begun_us, access, followed: None, counted: 0 };
        self.waiting_to_begin.push_back(operation);
        self.go_on(io);
    }

    fn ended(&mut self, token: Token, io: &mut Io) {
        let Some(number) = self.requests.remove(&token) else { return };
        match self.frames.remove(&number) {
            Some(Frame::Leaving(page)) => {
                self.leaving -= 1;
                self.stored.insert(number, page);
            }
            _ => {
                let stored = self.stored.get(&number).cloned();
                let page = stored.unwrap_or_else(|| self.shape.initial(number));
                self.add(number, page, false);
            }
        }
        for operation in self.waiting_for_page.remove(&number).unwrap_or_default() {
            self.attempt(operation, io);
        }
        self.go_on(io);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use upsweep::layers::device::MemoryDevices;
    use upsweep_sim::random::Random;

    use super::super::pages::{Buckets, Leaves, Records, initial_value};
    use super::super::{Bench, System};
    use super::*;

    const RECORDS: Records = Records { count: 600, stride: 100 };
    const KEYS: u64 = 70_000;

    /// Random operations by several callers, each on another key, compared with a map.
    fn compare<S: Shape>(shape: S, seed: u64) -> InPlace<S> {
        let sizes = Sizes { page_bytes: 4096, records_max: 16, frames: 6, devices: 3 };
        let devices = Box::new(MemoryDevices::with_sizes(&[1 << 30; 3], seed));
        let mut system = Bench::new(InPlace::new(shape, sizes), devices, 5);
        let mut random = Random::new(seed, "accesses");
        let initial =
            (0..RECORDS.count).map(|record| (record * RECORDS.stride, initial_value(record)));
        let mut oracle: BTreeMap<u64, u64> = initial.collect();
        let mut under_way: BTreeMap<u64, (u64, Option<u64>)> = BTreeMap::new();
        let mut busy = BTreeSet::new();
        let (mut ended, mut number) = (0, 0);
        let mut steps = 0;
        while ended < 8000 {
            steps += 1;
            assert!(steps < 200_000, "operations do not end");
            while under_way.len() < 9 && number < 8000 {
                // Few enough keys that some come back.
                let key = random.below(KEYS / 10) * 10;
                if !busy.insert(key) {
                    continue;
                }
                let access = match random.below(10) {
                    0..5 => Access::Put(key, random.word()),
                    5 => Access::Remove(key),
                    6 => Access::Count(key, 1),
                    _ => Access::Get(key),
                };
                let expected = match access {
                    Access::Put(key, value) => oracle.insert(key, value).and(None),
                    Access::Get(key) => oracle.get(&key).copied(),
                    Access::Remove(key) => oracle.remove(&key).and(None),
                    Access::Scan(..) | Access::RemoveRange(..) => unreachable!("not drawn"),
                    Access::Count(key, _) => {
                        let value = oracle.entry(key).or_insert(0);
                        *value = value.wrapping_add(1);
                        None
                    }
                };
                under_way.insert(number, (key, expected));
                system.submit(number, access);
                number += 1;
            }
            let us = system.next_event_us().expect("something is under way");
            let mut finished = Vec::new();
            system.advance_to(us, &mut finished).expect("no request fails");
            for done in finished {
                let (key, expected) = under_way.remove(&done.number).expect("it is under way");
                assert_eq!(done.found, expected, "key {key}");
                busy.remove(&key);
                ended += 1;
            }
            let model = &system.model;
            assert!(model.frames.len() <= 6);
            assert!(model.by_use.len() + model.leaving + coming(model) <= model.frames.len());
        }
        system.model
    }

    fn coming<S>(model: &InPlace<S>) -> usize {
        model.frames.values().filter(|frame| matches!(frame, Frame::Coming)).count()
    }

    #[test]
    fn a_tree_answers_as_a_map_does_while_it_splits() {
        let tree = compare(Leaves::new(RECORDS, 11), 1);
        assert!(tree.pages > 2 * tree.shape.pages(), "{} leaves", tree.pages);
    }

    #[test]
    fn a_hash_table_answers_as_a_map_does_while_pages_follow_pages() {
        let table = compare(Buckets::new(RECORDS, 55), 2);
        assert!(table.pages > 2 * 55, "{} pages", table.pages);
    }

    #[test]
    fn ranges_are_found_and_removed_across_leaves() {
        let sizes = Sizes { page_bytes: 4096, records_max: 16, frames: 6, devices: 1 };
        let store = InPlace::new(Leaves::new(RECORDS, 11), sizes);
        let devices = Box::new(MemoryDevices::with_sizes(&[1 << 30], 1));
        let mut system = Bench::new(store, devices, 5);
        let mut random = Random::new(3, "ranges");
        let mut oracle: BTreeSet<u64> = (0..RECORDS.count).map(|one| one * 100).collect();
        for number in 0..3000 {
            let (from, length) = (random.below(KEYS), random.below(5000));
            let (access, expected) = match random.below(5) {
                0 => {
                    oracle.retain(|key| !(from..from + length / 10).contains(key));
                    (Access::RemoveRange(from, from + length / 10), None)
                }
                1 => {
                    let range = oracle.range(from..from + length);
                    (Access::Scan(from, from + length), Some(range.count() as u64))
                }
                _ => {
                    oracle.insert(from);
                    (Access::Put(from, 1), None)
                }
            };
            system.submit(number, access);
            let mut finished = Vec::new();
            while let Some(us) = system.next_event_us() {
                system.advance_to(us, &mut finished).expect("no request fails");
            }
            assert_eq!((finished.len(), finished[0].found), (1, expected), "{access:?}");
        }
    }

    #[test]
    fn a_hit_needs_no_request_and_a_miss_reads_once_and_writes_what_leaves() {
        let sizes = Sizes { page_bytes: 4096, records_max: 16, frames: 10, devices: 1 };
        let mut store = InPlace::new(Leaves::new(RECORDS, 10), sizes);
        store.fill(0..10, true);
        let devices = Box::new(MemoryDevices::with_sizes(&[1 << 30], 1));
        let mut system = Bench::new(store, devices, 5);
        let mut requests = |record: u64| {
            let before = system.traffic();
            system.submit(record, Access::Put(record * RECORDS.stride, 1));
            while let Some(us) = system.next_event_us() {
                system.advance_to(us, &mut Vec::new()).expect("no request fails");
            }
            let traffic = system.traffic().since(before);
            (traffic.reads, traffic.writes)
        };
        // Page 0 becomes the one that was used last, so that page 1 leaves; then it comes back.
        assert_eq!([5, 105, 5, 15].map(&mut requests), [(0, 0), (1, 1), (0, 0), (1, 1)]);
    }
}
