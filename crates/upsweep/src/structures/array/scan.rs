//! Scans of an array: the nonzero cells, in index order, from both ends.
//!
//! A scan holds the bounds of what it has not returned yet and, per end, the rest of one block. It
//! skips blocks that do not exist. Like a scan of a table it is not a snapshot: every block is as
//! it was when the scan read it.

use std::collections::VecDeque;
use std::ops::Range;

use super::block::ArrayFormat;
use super::body_format::{BlockPlace, Body, block_key};
use super::cell_format::{Cell, CellKind};
use super::handle::Array;
use crate::engine::block_format::{ApplyError, ApplyInput, BlockFormat};
use crate::engine::registry::Modifiers;
use crate::error::Error;
use crate::runtime::{View, Wanted};

/// An iterator over the nonzero cells of an array. Ends after the first error.
pub struct ArrayScan<T: Cell> {
    array: Array<T>,
    /// Indices not yet visited.
    rest: Range<u64>,
    front: VecDeque<(u64, T)>,
    back: VecDeque<(u64, T)>,
}

impl<T: Cell> ArrayScan<T> {
    pub(super) fn new(array: Array<T>, range: Range<u64>) -> Self {
        Self { array, rest: range, front: VecDeque::new(), back: VecDeque::new() }
    }

    /// Takes the cells of the next block from the low end.
    fn fill_front(&mut self) -> Result<(), Error> {
        let number = T::KIND.block_of(self.rest.start);
        let view = self.array.view(Wanted::AtOrAbove(block_key(number).to_vec()))?;
        let place = T::KIND.place_of(&view.low).filter(|place| place.first < self.rest.end);
        let Some(place) = place else {
            self.rest.start = self.rest.end;
            return Ok(());
        };
        self.front = self.cells(&view, place)?;
        self.rest.start = (place.first + place.cells as u64).min(self.rest.end);
        Ok(())
    }

    /// Takes the cells of the next block from the high end.
    fn fill_back(&mut self) -> Result<(), Error> {
        let number = T::KIND.block_of(self.rest.end - 1);
        let view = self.array.view(Wanted::Below(Some(block_key(number + 1).to_vec())))?;
        let ends_inside = |place: &BlockPlace| place.first + place.cells as u64 > self.rest.start;
        let Some(place) = T::KIND.place_of(&view.low).filter(ends_inside) else {
            self.rest.end = self.rest.start;
            return Ok(());
        };
        self.back = self.cells(&view, place)?;
        self.rest.end = place.first.max(self.rest.start);
        Ok(())
    }

    /// The nonzero cells of a block that are in the rest.
    fn cells(&self, view: &View, place: BlockPlace) -> Result<VecDeque<(u64, T)>, Error> {
        let damage = |reason| self.array.damage(view, place.first, reason);
        let body = body_of(T::KIND, self.array.modifiers(), view).map_err(damage)?;
        let body = Body::parse(T::KIND, &body).map_err(damage)?;
        let indexed = |(offset, cell)| Some((place.first + offset as u64, T::decode(cell)?));
        let cells = body.iter().filter_map(indexed);
        Ok(cells.filter(|(index, _)| self.rest.contains(index)).collect())
    }

    fn fail(&mut self, error: Error) -> Option<Result<(u64, T), Error>> {
        self.rest.end = self.rest.start;
        self.front.clear();
        self.back.clear();
        Some(Err(error))
    }
}

/// The body of a block with all updates that wait for it.
///
/// # Errors
/// A description of the damage to the body: report it as damage.
pub(super) fn body_of(
    kind: CellKind,
    modifiers: &Modifiers,
    view: &View,
) -> Result<Vec<u8>, String> {
    let mut updates = view.updates();
    updates.sort_by(|left, right| (left.key, left.seq).cmp(&(right.key, right.seq)));
    let input = ApplyInput {
        body: view.image.as_ref().map(|image| image.body()),
        updates: &updates,
        modifiers,
        values: &[],
        body_bytes_max: usize::MAX,
        inline_value_bytes_max: usize::MAX,
        expired_us: 0,
    };
    ArrayFormat::new(kind).read(&input).map_err(|error| match error {
        ApplyError::Corrupt(reason) => reason,
        ApplyError::NeedValues(_) => "a cell is never outside of its block".to_owned(),
    })
}

impl<T: Cell> Iterator for ArrayScan<T> {
    type Item = Result<(u64, T), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(cell) = self.front.pop_front() {
                return Some(Ok(cell));
            }
            if self.rest.is_empty() {
                return self.back.pop_front().map(Ok);
            }
            if let Err(error) = self.fill_front() {
                return self.fail(error);
            }
        }
    }
}

impl<T: Cell> DoubleEndedIterator for ArrayScan<T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(cell) = self.back.pop_back() {
                return Some(Ok(cell));
            }
            if self.rest.is_empty() {
                return self.front.pop_back().map(Ok);
            }
            if let Err(error) = self.fill_back() {
                return self.fail(error);
            }
        }
    }
}
