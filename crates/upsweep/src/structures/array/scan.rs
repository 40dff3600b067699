//! Scans of an array: the nonzero cells, in index order, from both ends.
//!
//! A scan goes over the existing [blocks](crate::runtime::Blocks) of its range from both ends and
//! holds, per end, the rest of one block. Like a scan of a table it is not a snapshot: every block
//! is as it was when the scan read it.

use std::collections::VecDeque;
use std::ops::Range;

use super::block::ArrayFormat;
use super::body_format::{BlockPlace, Body, block_key};
use super::cell_format::{Cell, CellKind};
use super::handle::Array;
use crate::engine::block_format::{ApplyError, ApplyInput, BlockFormat};
use crate::engine::registry::Modifiers;
use crate::error::Error;
use crate::runtime::{Blocks, View};
use crate::structures::batch::Structure;
use crate::structures::of_structure;

/// An iterator over the nonzero cells of an array. Ends after the first error.
pub struct ArrayScan<T: Cell> {
    array: Array<T>,
    range: Range<u64>,
    blocks: Blocks,
    front: VecDeque<(u64, T)>,
    back: VecDeque<(u64, T)>,
    done: bool,
}

impl<T: Cell> ArrayScan<T> {
    pub(super) fn new(array: Array<T>, range: Range<u64>) -> Self {
        let from = block_key(T::KIND.block_of(range.start));
        let to =
            range.end.checked_sub(1).map_or(from, |last| block_key(T::KIND.block_of(last) + 1));
        let blocks = array.blocks().blocks(array.space(), &from, Some(&to));
        let done = range.is_empty();
        let (front, back) = (VecDeque::new(), VecDeque::new());
        Self { array, range, blocks, front, back, done }
    }

    /// Takes the cells of the next block from the low end.
    fn fill_front(&mut self) -> Result<(), Error> {
        match self.blocks.next() {
            Some(view) => self.front = self.cells_of(view)?,
            None => self.done = true,
        }
        Ok(())
    }

    /// Takes the cells of the next block from the high end.
    fn fill_back(&mut self) -> Result<(), Error> {
        match self.blocks.next_back() {
            Some(view) => self.back = self.cells_of(view)?,
            None => self.done = true,
        }
        Ok(())
    }

    fn cells_of(&self, view: Result<View, Error>) -> Result<VecDeque<(u64, T)>, Error> {
        let view = view.map_err(|error| of_structure(error, self.array.name()))?;
        match T::KIND.place_of(&view.low) {
            Some(place) => self.cells(&view, place),
            None => Ok(VecDeque::new()),
        }
    }

    /// The nonzero cells of a block that are in the range.
    fn cells(&self, view: &View, place: BlockPlace) -> Result<VecDeque<(u64, T)>, Error> {
        let damage = |reason| self.array.damage(view, place.first, reason);
        let body = body_of(T::KIND, self.array.modifiers(), view).map_err(damage)?;
        let body = Body::parse(T::KIND, &body).map_err(damage)?;
        let indexed = |(offset, cell)| Some((place.first + offset as u64, T::decode(cell)?));
        let cells = body.iter().filter_map(indexed);
        Ok(cells.filter(|(index, _)| self.range.contains(index)).collect())
    }

    fn fail(&mut self, error: Error) -> Option<Result<(u64, T), Error>> {
        self.done = true;
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
            if self.done {
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
            if self.done {
                return self.front.pop_back().map(Ok);
            }
            if let Err(error) = self.fill_back() {
                return self.fail(error);
            }
        }
    }
}
