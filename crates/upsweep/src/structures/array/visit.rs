//! Visits to the blocks of an array during the sweep, decoded to cells.

use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::Range;
use std::slice::ChunksExact;

use super::body_format::Body;
use super::cell_format::Cell;
use crate::runtime::{BlockVisitor, VisitedBlock};

/// The values of all cells of one block, in the order of their indices, zeros included. Cost of a
/// step: a test of one bit, and a copy of the cell.
#[derive(Clone)]
pub struct BlockCells<'a, T> {
    body: Body<'a>,
    packed: ChunksExact<'a, u8>,
    offsets: Range<usize>,
    cells: PhantomData<T>,
}

impl<'a, T: Cell> BlockCells<'a, T> {
    /// The first `cells` cells of a body.
    fn new(body: Body<'a>, cells: usize) -> Self {
        Self { body, packed: body.packed(), offsets: 0..cells, cells: PhantomData }
    }
}

impl<T: Cell> Iterator for BlockCells<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let offset = self.offsets.next()?;
        let cell = if self.body.is_set(offset) { self.packed.next() } else { None };
        Some(cell.and_then(T::decode).unwrap_or_else(T::new_zeroed))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.offsets.size_hint()
    }
}

impl<T: Cell> ExactSizeIterator for BlockCells<'_, T> {}
impl<T: Cell> FusedIterator for BlockCells<'_, T> {}

/// A visitor of cells, as the engine calls it.
pub(super) struct CellVisitor<T, F> {
    visit: F,
    cells: PhantomData<fn(T)>,
}

impl<T, F> CellVisitor<T, F> {
    pub(super) fn new(visit: F) -> Self {
        Self { visit, cells: PhantomData }
    }
}

impl<T: Cell, F: Fn(u64, BlockCells<'_, T>) + Send + Sync> BlockVisitor for CellVisitor<T, F> {
    fn visit(&self, block: &VisitedBlock<'_>) {
        // The block of updates that name no cell has no cells.
        let Some(place) = T::KIND.place_of(block.key) else { return };
        if let Ok(body) = Body::parse(T::KIND, block.body) {
            (self.visit)(place.first, BlockCells::new(body, place.cells));
        }
    }
}
