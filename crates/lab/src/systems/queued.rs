//! Trees whose updates are logged and wait in memory for their pages, as section 6.2 of the BOSC
//! paper compares them: one queue for all updates, or one for each page.
//!
//! 1. An update waits for room among the waiting ones, and is logged. One write of the log is under
//!    way at a time; what comes meanwhile is written together after it.
//! 2. When it is logged, the update has ended, and goes to its queue.
//! 3. With one queue, so many updates are taken from its head, their pages are read in the order of
//!    their addresses, changed and written, before the next ones are taken. Nothing of a page stays
//!    in memory.
//! 4. With a queue for each page, every disk is swept from its beginning to its end, again and
//!    again, run by run. A run has so many pages at most, so many of a hundred have updates, and
//!    the first and the last one do. While one run is read, another is written, at its old place.
//!
//! A page that is full is split in halves; the new page is written at the end of the tree.
//!
//! Device 0 of the bank has the log, the others the pages, which go round them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use upsweep::layers::device::Token;

use super::loggers::Append;
use super::pages::{Page, Shape};
use super::{Finished, Io, Model};

/// Sizes of such a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes of a page.
    pub(crate) page_bytes: u64,
    /// Records that fit into a page, at least 2.
    pub(crate) records_max: u64,
    /// Disks with pages.
    pub(crate) data_disks: u16,
    /// Bytes of an update in the log.
    pub(crate) logged_bytes: u64,
    /// Updates that may wait, in all.
    pub(crate) waiting_max: u64,
}

/// How waiting updates get to their pages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Queues {
    /// One queue.
    One {
        /// Updates that are taken at a time.
        batch: usize,
    },
    /// A queue for each page.
    PerPage {
        /// Pages of a run, at most.
        run_pages: u64,
        /// How many of a hundred have updates, at least.
        density_percent: u64,
    },
}

/// The paper's runs: up to 32 pages, half of them with updates.
pub(crate) const PER_PAGE: Queues = Queues::PerPage { run_pages: 32, density_percent: 50 };

/// Most bytes of a write of the log.
const LOG_WRITE_BYTES: u64 = 64 << 10;

/// Sets the value of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update {
    /// The key.
    pub(crate) key: u64,
    /// The value.
    pub(crate) value: u64,
}

/// The pages.
struct Tree<S> {
    shape: S,
    sizes: Sizes,
    pages: u64,
    /// Pages that differ from their initial content.
    changed: BTreeMap<u64, Page>,
}

impl<S: Shape> Tree<S> {
    fn disks(&self) -> u64 {
        u64::from(self.sizes.data_disks)
    }

    /// Where a page is: device, and page of it.
    fn place(&self, page: u64) -> (u16, u64) {
        (1 + (page % self.disks()) as u16, page / self.disks())
    }

    fn read(&self, (device, first): (u16, u64), pages: u64, io: &mut Io) -> Token {
        io.read(device, first * self.sizes.page_bytes, pages * self.sizes.page_bytes)
    }

    fn write(&self, (device, first): (u16, u64), pages: u64, io: &mut Io) -> Token {
        io.write(device, first * self.sizes.page_bytes, pages * self.sizes.page_bytes)
    }

    fn take(&mut self, page: u64) -> Page {
        self.changed.remove(&page).unwrap_or_else(|| self.shape.initial(page))
    }

    /// Applies updates to a page that is in memory; the pages that it was split into.
    fn apply(&mut self, page: u64, updates: &[Update]) -> Vec<u64> {
        let mut at_hand = BTreeMap::from([(page, self.take(page))]);
        let mut new = Vec::new();
        for Update { key, value } in updates {
            loop {
                let number = self.shape.first_page(*key);
                let found = at_hand.entry(number).or_insert_with(|| self.take(number));
                if found.get(*key).is_some() || found.records() < self.sizes.records_max {
                    found.put(*key, *value);
                    break;
                }
                let added = self.shape.grow(found, self.pages);
                at_hand.insert(self.pages, added);
                new.push(self.pages);
                self.pages += 1;
            }
        }
        self.changed.append(&mut at_hand);
        new
    }
}

/// One queue, and what was taken from it.
#[derive(Default)]
struct OneQueue {
    batch: usize,
    waiting: VecDeque<Update>,
    /// By page.
    taken: BTreeMap<u64, Vec<Update>>,
    taken_count: u64,
    reads: BTreeMap<Token, u64>,
    writes: BTreeSet<Token>,
}

impl OneQueue {
    fn start<S: Shape>(&mut self, tree: &Tree<S>, io: &mut Io) {
        if !self.reads.is_empty() || !self.writes.is_empty() {
            return;
        }
        self.taken_count = self.batch.min(self.waiting.len()) as u64;
        for update in self.waiting.drain(..self.taken_count as usize) {
            self.taken.entry(tree.shape.first_page(update.key)).or_default().push(update);
        }
        for page in self.taken.keys() {
            self.reads.insert(tree.read(tree.place(*page), 1, io), *page);
        }
    }

    /// A request has ended: how many updates are on the disks now; `None` if it is not its own.
    fn ended<S: Shape>(&mut self, token: Token, tree: &mut Tree<S>, io: &mut Io) -> Option<u64> {
        if let Some(page) = self.reads.remove(&token) {
            let updates = self.taken.remove(&page).unwrap_or_default();
            for page in tree.apply(page, &updates).into_iter().chain([page]) {
                self.writes.insert(tree.write(tree.place(page), 1, io));
            }
        } else if !self.writes.remove(&token) {
            return None;
        }
        if !self.reads.is_empty() || !self.writes.is_empty() {
            return Some(0);
        }
        let committed = self.taken_count;
        self.start(tree, io);
        Some(committed)
    }
}

/// Pages that are read or written together.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    pages: u64,
    /// Updates that were applied to it.
    updates: u64,
}

/// A disk that is swept.
#[derive(Default)]
struct Disk {
    /// By page of the disk.
    waiting: BTreeMap<u64, Vec<Update>>,
    /// The page from which the sweep goes on.
    next: u64,
    reading: Option<(Token, Run)>,
    applied: Option<Run>,
    writing: Option<(Token, Run)>,
}

impl Disk {
    /// The next run.
    fn gather(&self, run_pages: u64, density_percent: u64) -> Option<Run> {
        let from_here = self.waiting.range(self.next..).map(|(page, _)| *page);
        let mut pages = from_here.chain(self.waiting.keys().copied());
        let first = pages.next()?;
        let (mut end, mut with_updates) = (first + 1, 1);
        for page in pages {
            let length = (page + 1).saturating_sub(first);
            let is_too_sparse = (with_updates + 1) * 100 < length * density_percent;
            // Beyond the last page comes the first one again.
            if page < end || length > run_pages || is_too_sparse {
                break;
            }
            (end, with_updates) = (page + 1, with_updates + 1);
        }
        Some(Run { first, pages: end - first, updates: 0 })
    }
}

/// A queue for each page.
struct PerPage {
    run_pages: u64,
    density_percent: u64,
    disks: Vec<Disk>,
    /// Writes of pages that came from splits.
    new_pages: BTreeSet<Token>,
}

impl PerPage {
    fn add<S: Shape>(&mut self, update: Update, tree: &Tree<S>) {
        let (device, page) = tree.place(tree.shape.first_page(update.key));
        let disk = &mut self.disks[usize::from(device - 1)];
        disk.waiting.entry(page).or_default().push(update);
    }

    fn start<S: Shape>(&mut self, tree: &Tree<S>, io: &mut Io) {
        for (device, disk) in (1..).zip(&mut self.disks) {
            if disk.writing.is_none()
                && let Some(run) = disk.applied.take()
            {
                let token = tree.write((device, run.first), run.pages, io);
                disk.writing = Some((token, run));
            }
            if disk.reading.is_none()
                && disk.applied.is_none()
                && let Some(run) = disk.gather(self.run_pages, self.density_percent)
            {
                disk.next = run.first + run.pages;
                let token = tree.read((device, run.first), run.pages, io);
                disk.reading = Some((token, run));
            }
        }
    }

    /// As [`OneQueue::ended`].
    fn ended<S: Shape>(&mut self, token: Token, tree: &mut Tree<S>, io: &mut Io) -> Option<u64> {
        if self.new_pages.remove(&token) {
            return Some(0);
        }
        let is_it = |slot: &Option<(Token, Run)>| slot.is_some_and(|(one, _)| one == token);
        let found =
            self.disks.iter().position(|disk| is_it(&disk.reading) || is_it(&disk.writing))?;
        let disk = &mut self.disks[found];
        let mut committed = 0;
        if is_it(&disk.writing) {
            committed = disk.writing.take().map_or(0, |(_, run)| run.updates);
        } else if let Some((_, mut run)) = disk.reading.take() {
            for page in run.first..run.first + run.pages {
                let Some(updates) = disk.waiting.remove(&page) else { continue };
                run.updates += updates.len() as u64;
                for new in tree.apply(page * tree.disks() + found as u64, &updates) {
                    self.new_pages.insert(tree.write(tree.place(new), 1, io));
                }
            }
            disk.applied = Some(run);
        }
        self.start(tree, io);
        Some(committed)
    }
}

enum Committer {
    One(OneQueue),
    PerPage(PerPage),
}

/// An update that has not ended.
#[derive(Clone, Copy, Debug)]
struct Caller {
    number: u64,
    begun_us: u64,
    update: Update,
}

/// The tree with its queues and its log.
pub(crate) struct Queued<L, S> {
    log: L,
    tree: Tree<S>,
    committer: Committer,
    /// Updates that were taken and are not on the disks.
    waiting: u64,
    /// Those that wait for room.
    refused: VecDeque<Caller>,
    /// Those that are logged next.
    to_log: VecDeque<Caller>,
    /// Those that are being logged.
    logging: Vec<Caller>,
}

impl<L: Model<Operation = Append>, S: Shape> Queued<L, S> {
    /// A tree of this shape with no updates waiting, and an empty log.
    pub(crate) fn new(log: L, shape: S, sizes: Sizes, queues: Queues) -> Self {
        let disks = || (0..sizes.data_disks).map(|_| Disk::default()).collect();
        Self {
            log,
            tree: Tree { pages: shape.pages(), shape, sizes, changed: BTreeMap::new() },
            committer: match queues {
                Queues::One { batch } => Committer::One(OneQueue { batch, ..OneQueue::default() }),
                Queues::PerPage { run_pages, density_percent } => Committer::PerPage(PerPage {
                    run_pages,
                    density_percent,
                    disks: disks(),
                    new_pages: BTreeSet::new(),
                }),
            },
            waiting: 0,
            refused: VecDeque::new(),
            to_log: VecDeque::new(),
            logging: Vec::new(),
        }
    }

    /// Takes what finds room, and logs what was taken.
    fn go_on(&mut self, io: &mut Io) {
        while self.waiting < self.tree.sizes.waiting_max
            && let Some(caller) = self.refused.pop_front()
        {
            self.waiting += 1;
            self.to_log.push_back(Caller { begun_us: io.now_us(), ..caller });
        }
        if self.logging.is_empty() && !self.to_log.is_empty() {
            let logged_bytes = self.tree.sizes.logged_bytes;
            let count = (LOG_WRITE_BYTES / logged_bytes).clamp(1, self.to_log.len() as u64);
            self.logging.extend(self.to_log.drain(..count as usize));
            self.log.begin(0, Append { bytes: count * logged_bytes }, io);
        }
        match &mut self.committer {
            Committer::One(queue) => queue.start(&self.tree, io),
            Committer::PerPage(queues) => queues.start(&self.tree, io),
        }
    }

    /// The write of the log has ended.
    fn logged(&mut self, io: &mut Io) {
        for Caller { number, begun_us, update } in self.logging.drain(..) {
            io.finish(Finished { number, begun_us, found: None });
            match &mut self.committer {
                Committer::One(queue) => queue.waiting.push_back(update),
                Committer::PerPage(queues) => queues.add(update, &self.tree),
            }
        }
    }
}

impl<L: Model<Operation = Append>, S: Shape> Model for Queued<L, S> {
    type Operation = Update;

    fn begin(&mut self, number: u64, update: Update, io: &mut Io) {
        self.refused.push_back(Caller { number, begun_us: io.now_us(), update });
        self.go_on(io);
    }

    fn ended(&mut self, token: Token, io: &mut Io) {
        let committed = match &mut self.committer {
            Committer::One(queue) => queue.ended(token, &mut self.tree, io),
            Committer::PerPage(queues) => queues.ended(token, &mut self.tree, io),
        };
        match committed {
            Some(updates) => self.waiting -= updates,
            None => {
                // The logger finishes what it was given: all that is being logged.
                let before = io.finished.len();
                self.log.ended(token, io);
                if io.finished.len() > before {
                    io.finished.truncate(before);
                    self.logged(io);
                }
            }
        }
        self.go_on(io);
    }
}

#[cfg(test)]
mod tests;
