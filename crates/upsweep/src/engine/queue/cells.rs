//! Cells: the memory of all queues, in chains of fixed parts.
//!
//! A cell is a line of the processor's cache: a link to the next one of its chain, and data. Cells
//! are scattered in memory, so what costs is each first access to one. Two measures save accesses:
//! a free cell lists others, so that a cell is taken without reading it; and pages are as large as
//! the huge pages with which the system may back them, so that translating an address rarely needs
//! memory itself.
//!
//! A cell is taken from the first page that has a free one. Those of the last pages come free as
//! chains end and are not taken again, and a page without a used cell gives its memory back: the
//! memory of queues that were long once is not theirs for ever.
//!
//! Invariant: a cell of a page was never used before, or is in one chain, or is a list of free
//! cells of its page, or in one list.

use crate::device::Buffer;

/// Bytes of a cell, its link included.
pub const CELL_BYTES: usize = 64;
const LINK_BYTES: usize = 4;
/// Bytes of data in a cell.
pub(super) const DATA_BYTES: usize = CELL_BYTES - LINK_BYTES;
/// Bytes of a page of cells: a huge page.
const HUGE_BYTES: usize = 2 << 20;
/// Free cells that one lists, besides itself.
const LISTED_MAX: u32 = (DATA_BYTES / size_of::<u32>()) as u32;
/// No cell.
pub(super) const NONE: u32 = u32::MAX;

/// All cells, in pages of so many bytes.
#[derive(Default)]
pub(super) struct Cells<const PAGE_BYTES: usize = HUGE_BYTES> {
    pages: Vec<Page>,
    /// One bit per page: set if it has a free cell.
    with_room: Vec<u64>,
    used: usize,
    /// Bytes of the pages that have memory.
    memory_bytes: usize,
}

/// A page. Its cells are numbered from 0.
struct Page {
    /// Empty while no cell is used.
    memory: Buffer,
    used: u32,
    /// Cells from this one on were never used since it has its memory.
    next_unused: u32,
    /// The list of free cells that is filled and emptied, which links to a full one; [`NONE`] if
    /// all cells that were used before are in chains.
    list: u32,
    /// Number of cells that it lists.
    listed: u32,
}

impl Page {
    fn new() -> Self {
        Self { memory: Buffer::recycled(0), used: 0, next_unused: 0, list: NONE, listed: 0 }
    }

    #[inline]
    fn cell(&self, at: u32) -> &[u8; CELL_BYTES] {
        &self.memory.as_chunks().0[at as usize]
    }

    #[inline]
    fn cell_mut(&mut self, at: u32) -> &mut [u8; CELL_BYTES] {
        &mut self.memory.as_chunks_mut().0[at as usize]
    }

    /// The number that follows the link of a cell, or is at one of the places of a list behind it.
    #[inline]
    fn number(&self, at: u32, place: u32) -> u32 {
        u32::from_ne_bytes(self.cell(at).as_chunks().0[place as usize])
    }

    #[inline]
    fn set_number(&mut self, at: u32, place: u32, number: u32) {
        self.cell_mut(at).as_chunks_mut().0[place as usize] = number.to_ne_bytes();
    }

    /// A free cell, of which there is one.
    #[inline]
    fn take(&mut self) -> u32 {
        self.used += 1;
        let list = self.list;
        if list == NONE {
            self.next_unused += 1;
            return self.next_unused - 1;
        }
        if let Some(last) = self.listed.checked_sub(1) {
            self.listed = last;
            return self.number(list, 1 + last);
        }
        // It is empty, and a free cell itself.
        self.list = self.number(list, 0);
        self.listed = if self.list == NONE { 0 } else { LISTED_MAX };
        list
    }

    /// Frees a cell.
    #[inline]
    fn give(&mut self, at: u32) {
        self.used -= 1;
        if self.list != NONE && self.listed < LISTED_MAX {
            self.listed += 1;
            self.set_number(self.list, self.listed, at);
        } else {
            self.set_number(at, 0, self.list);
            (self.list, self.listed) = (at, 0);
        }
    }
}

impl<const PAGE_BYTES: usize> Cells<PAGE_BYTES> {
    const PER_PAGE: u32 = (PAGE_BYTES / CELL_BYTES) as u32;

    /// Number of cells in chains.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Bytes of memory: of all pages that have a cell in a chain.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The page of a cell, and its number there.
    #[inline]
    fn place(cell: u32) -> (usize, u32) {
        ((cell / Self::PER_PAGE) as usize, cell % Self::PER_PAGE)
    }

    /// The next cell of a chain; [`NONE`] at its end.
    #[inline]
    pub(super) fn link(&self, cell: u32) -> u32 {
        let (page, at) = Self::place(cell);
        self.pages[page].number(at, 0)
    }

    /// Continues a chain with the cell `next`.
    #[inline]
    pub(super) fn set_link(&mut self, cell: u32, next: u32) {
        let (page, at) = Self::place(cell);
        self.pages[page].set_number(at, 0, next);
    }

    /// The data of a cell.
    #[inline]
    pub(super) fn data(&self, cell: u32) -> &[u8] {
        let (page, at) = Self::place(cell);
        &self.pages[page].cell(at)[LINK_BYTES..]
    }

    /// The data of a cell, to be written.
    #[inline]
    pub(super) fn data_mut(&mut self, cell: u32) -> &mut [u8] {
        let (page, at) = Self::place(cell);
        &mut self.pages[page].cell_mut(at)[LINK_BYTES..]
    }

    /// Reads a byte of a cell, if there is such a cell, so that it is in the processor's cache.
    #[inline]
    pub(super) fn touch(&self, cell: u32) -> u32 {
        let (page, at) = Self::place(cell);
        let byte = self.pages.get(page).and_then(|page| page.memory.get(at as usize * CELL_BYTES));
        byte.map_or(0, |byte| u32::from(*byte))
    }

    /// A chain of one cell, whose data is arbitrary. Cost: a search for the first page with room,
    /// 64 pages at a time.
    #[inline]
    pub(super) fn take(&mut self) -> u32 {
        self.used += 1;
        let word = self.with_room.iter().position(|word| *word != 0);
        let number = match word {
            Some(word) => word as u32 * u64::BITS + self.with_room[word].trailing_zeros(),
            None => self.add_page(),
        };
        let page = &mut self.pages[number as usize];
        if page.used == 0 {
            page.memory = Buffer::recycled(PAGE_BYTES);
            self.memory_bytes += PAGE_BYTES;
        }
        let at = page.take();
        page.set_number(at, 0, NONE);
        if page.used == Self::PER_PAGE {
            self.with_room[(number / u64::BITS) as usize] &= !(1 << (number % u64::BITS));
        }
        number * Self::PER_PAGE + at
    }

    #[cold]
    fn add_page(&mut self) -> u32 {
        let number = self.pages.len() as u32;
        self.pages.push(Page::new());
        if number.is_multiple_of(u64::BITS) {
            self.with_room.push(0);
        }
        self.set_with_room(number as usize);
        number
    }

    #[inline]
    fn set_with_room(&mut self, page: usize) {
        self.with_room[page / u64::BITS as usize] |= 1 << (page % u64::BITS as usize);
    }

    /// Frees a chain from `first` on; [`NONE`] is an empty one. Cost: reads its cells.
    pub(super) fn give(&mut self, first: u32) {
        let mut cell = first;
        while cell != NONE {
            let next = self.link(cell);
            let (number, at) = Self::place(cell);
            let page = &mut self.pages[number];
            page.give(at);
            self.used -= 1;
            if page.used == 0 {
                *page = Page::new();
                self.memory_bytes -= PAGE_BYTES;
            }
            self.set_with_room(number);
            cell = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Cells in small pages.
    type Small = Cells<1024>;

    /// A chain of `count` cells, each of which holds its number; returns its first.
    fn chain<const PAGE_BYTES: usize>(cells: &mut Cells<PAGE_BYTES>, count: u32) -> u32 {
        let mut first = NONE;
        for _ in 0..count {
            let cell = cells.take();
            assert_eq!(cells.link(cell), NONE);
            cells.data_mut(cell)[..4].copy_from_slice(&cell.to_ne_bytes());
            cells.set_link(cell, first);
            first = cell;
        }
        first
    }

    fn walk<const PAGE_BYTES: usize>(cells: &Cells<PAGE_BYTES>, first: u32) -> Vec<u32> {
        let cell = |number| (number != NONE).then_some(number);
        std::iter::successors(cell(first), |at| cell(cells.link(*at))).collect()
    }

    proptest! {
        #[test]
        fn no_cell_is_in_two_chains_and_free_ones_of_the_first_pages_are_used_again(
            steps in prop::collection::vec((0..40u32, any::<prop::sample::Index>()), 1..60),
        ) {
            let mut cells = Small::default();
            let mut chains: Vec<(u32, u32)> = Vec::new();
            for (count, which) in steps {
                let mut last = NONE;
                if count < 20 && !chains.is_empty() {
                    let (first, _) = chains.swap_remove(which.index(chains.len()));
                    cells.give(first);
                } else {
                    let first = chain(&mut cells, count);
                    last = walk(&cells, first).into_iter().max().unwrap_or(NONE);
                    chains.push((first, count));
                }
                let mut seen = BTreeSet::new();
                for (first, count) in &chains {
                    let chain = walk(&cells, *first);
                    prop_assert_eq!(chain.len(), *count as usize);
                    for cell in chain {
                        prop_assert!(seen.insert(cell), "cell {} is in two chains", cell);
                        prop_assert_eq!(&cells.data(cell)[..4], &cell.to_ne_bytes());
                    }
                }
                prop_assert_eq!(cells.used(), seen.len());
                let pages: BTreeSet<u32> = seen.iter().map(|cell| cell / Small::PER_PAGE).collect();
                prop_assert_eq!(cells.memory_bytes(), pages.len() * 1024);
                if last != NONE {
                    let page = last / Small::PER_PAGE * Small::PER_PAGE;
                    prop_assert!((0..page).all(|cell| seen.contains(&cell)), "a page had room");
                }
            }
        }
    }

    #[test]
    fn cells_of_all_pages_hold_what_is_written() {
        let mut cells = Cells::<HUGE_BYTES>::default();
        let count = Cells::<HUGE_BYTES>::PER_PAGE + 100;
        let first = chain(&mut cells, count);
        let chain = walk(&cells, first);
        assert_eq!(chain.len(), count as usize);
        assert!(chain.iter().all(|cell| cells.data(*cell)[..4] == cell.to_ne_bytes()));
        assert_eq!(cells.touch(NONE), 0, "there is no such cell");
        assert_eq!(cells.memory_bytes(), 2 * HUGE_BYTES);
        cells.give(first);
        assert_eq!((cells.used(), cells.memory_bytes()), (0, 0));
    }
}
