//! Cells: the memory of all queues, in chains of fixed parts.
//!
//! A cell is a line of the processor's cache: a link to the next one of its chain, and data. Cells
//! are scattered in memory, so what costs is each first access to one. Two measures save accesses:
//! a free cell lists others, so that a cell is taken without reading it; and pages are as large as
//! the huge pages with which the system may back them, so that translating an address rarely needs
//! memory itself.
//!
//! Invariant: a cell that was used before is in one chain, or it is a list of free cells, or in one
//! list.

use crate::device::Buffer;

/// Bytes of a cell, its link included.
pub const CELL_BYTES: usize = 64;
const LINK_BYTES: usize = 4;
/// Bytes of data in a cell.
pub(super) const DATA_BYTES: usize = CELL_BYTES - LINK_BYTES;
/// Bytes of a page of cells: a huge page.
const PAGE_BYTES: usize = 2 << 20;
const CELLS_PER_PAGE: usize = PAGE_BYTES / CELL_BYTES;
/// Free cells that one lists, besides itself.
const LISTED_MAX: usize = DATA_BYTES / size_of::<u32>();
/// No cell.
pub(super) const NONE: u32 = u32::MAX;

/// All cells.
#[derive(Default)]
pub(super) struct Cells {
    pages: Vec<Buffer>,
    /// Cells below this one were used before.
    next_unused: u32,
    /// The list of free cells that is filled and emptied, which links to a full one; none if no
    /// cell is free.
    list: Option<u32>,
    /// Number of cells that it lists.
    listed: usize,
    used: usize,
}

impl Cells {
    /// Number of cells in chains.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// The cell with this number.
    #[inline]
    fn get(&self, cell: u32) -> &[u8; CELL_BYTES] {
        let (page, at) = (cell as usize / CELLS_PER_PAGE, cell as usize % CELLS_PER_PAGE);
        &self.pages[page].as_chunks().0[at]
    }

    #[inline]
    fn get_mut(&mut self, cell: u32) -> &mut [u8; CELL_BYTES] {
        let (page, at) = (cell as usize / CELLS_PER_PAGE, cell as usize % CELLS_PER_PAGE);
        &mut self.pages[page].as_chunks_mut().0[at]
    }

    /// The number that follows the link of a cell, or is at one of the places of a list behind it.
    #[inline]
    fn number(&self, cell: u32, place: usize) -> u32 {
        u32::from_ne_bytes(self.get(cell).as_chunks().0[place])
    }

    #[inline]
    fn set_number(&mut self, cell: u32, place: usize, number: u32) {
        self.get_mut(cell).as_chunks_mut().0[place] = number.to_ne_bytes();
    }

    /// The next cell of a chain; [`NONE`] at its end.
    #[inline]
    pub(super) fn link(&self, cell: u32) -> u32 {
        self.number(cell, 0)
    }

    /// Continues a chain with the cell `next`.
    #[inline]
    pub(super) fn set_link(&mut self, cell: u32, next: u32) {
        self.set_number(cell, 0, next);
    }

    /// The data of a cell.
    #[inline]
    pub(super) fn data(&self, cell: u32) -> &[u8] {
        &self.get(cell)[LINK_BYTES..]
    }

    /// The data of a cell, to be written.
    #[inline]
    pub(super) fn data_mut(&mut self, cell: u32) -> &mut [u8] {
        &mut self.get_mut(cell)[LINK_BYTES..]
    }

    /// Reads a byte of a cell, if there is such a cell, so that it is in the processor's cache.
    #[inline]
    pub(super) fn touch(&self, cell: u32) -> u32 {
        let cells = self.pages.get(cell as usize / CELLS_PER_PAGE);
        let cell = cells.and_then(|page| page.get(cell as usize % CELLS_PER_PAGE * CELL_BYTES));
        cell.map_or(0, |byte| u32::from(*byte))
    }

    /// A chain of one cell, whose data is arbitrary.
    #[inline]
    pub(super) fn take(&mut self) -> u32 {
        self.used += 1;
        let cell = self.take_free().unwrap_or_else(|| self.take_unused());
        self.set_link(cell, NONE);
        cell
    }

    #[inline]
    fn take_free(&mut self) -> Option<u32> {
        let list = self.list?;
        if let Some(last) = self.listed.checked_sub(1) {
            self.listed = last;
            return Some(self.number(list, 1 + last));
        }
        // It is empty, and a free cell itself.
        let next = self.link(list);
        (self.list, self.listed) = if next == NONE { (None, 0) } else { (Some(next), LISTED_MAX) };
        Some(list)
    }

    #[cold]
    fn take_unused(&mut self) -> u32 {
        let cell = self.next_unused;
        if cell as usize == self.pages.len() * CELLS_PER_PAGE {
            self.pages.push(Buffer::recycled(PAGE_BYTES));
        }
        self.next_unused += 1;
        cell
    }

    /// Frees a chain from `first` on; [`NONE`] is an empty one. Cost: reads its cells.
    pub(super) fn give(&mut self, first: u32) {
        let mut cell = first;
        while cell != NONE {
            let next = self.link(cell);
            self.used -= 1;
            match self.list.filter(|_| self.listed < LISTED_MAX) {
                Some(list) => {
                    self.listed += 1;
                    self.set_number(list, self.listed, cell);
                }
                None => {
                    self.set_link(cell, self.list.unwrap_or(NONE));
                    (self.list, self.listed) = (Some(cell), 0);
                }
            }
            cell = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// A chain of `count` cells, each of which holds its number; returns its first.
    fn chain(cells: &mut Cells, count: u32) -> u32 {
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

    fn walk(cells: &Cells, first: u32) -> Vec<u32> {
        let cell = |number| (number != NONE).then_some(number);
        std::iter::successors(cell(first), |at| cell(cells.link(*at))).collect()
    }

    proptest! {
        #[test]
        fn no_cell_is_in_two_chains_and_free_ones_are_used_again(
            steps in prop::collection::vec((0..40u32, any::<prop::sample::Index>()), 1..60),
        ) {
            let mut cells = Cells::default();
            let (mut chains, mut most): (Vec<(u32, u32)>, usize) = (Vec::new(), 0);
            for (count, which) in steps {
                if count < 20 && !chains.is_empty() {
                    let (first, _) = chains.swap_remove(which.index(chains.len()));
                    cells.give(first);
                } else {
                    let first = chain(&mut cells, count);
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
                most = most.max(seen.len());
                prop_assert_eq!(cells.next_unused as usize, most, "a free cell was not found");
            }
        }
    }

    #[test]
    fn cells_of_all_pages_hold_what_is_written() {
        let mut cells = Cells::default();
        let count = CELLS_PER_PAGE as u32 + 100;
        let first = chain(&mut cells, count);
        let chain = walk(&cells, first);
        assert_eq!(chain.len(), count as usize);
        assert!(chain.iter().all(|cell| cells.data(*cell)[..4] == cell.to_ne_bytes()));
        assert_eq!(cells.touch(NONE), 0, "there is no such cell");
    }
}
