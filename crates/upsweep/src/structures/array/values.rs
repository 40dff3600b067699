//! The cells of an array of any kind as records: for copies, which know no type for the cells.

use std::collections::VecDeque;
use std::sync::Arc;

use super::block::ArrayFormat;
use super::body_format::{block_key, index_of};
use super::cell_format::CellKind;
use super::scan::body_of;
use crate::engine::block_format::BlockFormat;
use crate::engine::modifier::ValueRef;
use crate::engine::registry::Modifiers;
use crate::error::Error;
use crate::runtime::{BlockStore, SpaceRecord, Wanted};
use crate::structures::table::Value;

/// An iterator over the cells that are not zero, in the order of their indices: the keys of their
/// records, and the values that modifiers see. Ends after the first error.
pub(crate) struct CellValues {
    blocks: BlockStore,
    space: u32,
    name: String,
    kind: CellKind,
    modifiers: Arc<Modifiers>,
    /// Number of the first block that was not looked at yet; `None` at the end.
    next: Option<u64>,
    found: VecDeque<(Vec<u8>, Value)>,
}

impl CellValues {
    pub(crate) fn new(blocks: BlockStore, record: &SpaceRecord, kind: CellKind) -> Self {
        let (space, name, modifiers) = (record.space, record.name.clone(), blocks.modifiers());
        let (next, found) = (Some(0), VecDeque::new());
        Self { blocks, space, name, kind, modifiers, next, found }
    }

    /// Takes the cells of the next block.
    fn fill(&mut self, number: u64) -> Result<(), Error> {
        let wanted = Wanted::AtOrAbove(block_key(number).to_vec());
        let view = self.blocks.view(self.space, wanted)?;
        let Some(place) = self.kind.place_of(&view.low) else { return Ok(()) };
        let what = || format!("block of cell {} of array {:?}", place.first, self.name);
        let damage = |reason| view.damage(what(), reason);
        let body = body_of(self.kind, &self.modifiers, &view).map_err(damage)?;
        let found = &mut self.found;
        let visited = ArrayFormat::new(self.kind).for_each(&view.low, &body, &mut |key, value| {
            found
                .push_back((key.to_vec(), Value { kind: value.kind, bytes: value.bytes.to_vec() }));
        });
        visited.map_err(damage)?;
        self.next = Some(place.number + 1);
        Ok(())
    }
}

impl Iterator for CellValues {
    type Item = Result<(Vec<u8>, Value), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(cell) = self.found.pop_front() {
                return Some(Ok(cell));
            }
            let number = self.next.take()?;
            if let Err(error) = self.fill(number) {
                self.found.clear();
                return Some(Err(error));
            }
        }
    }
}

/// Whether a record is a cell of an array with such cells.
///
/// # Errors
/// Why not.
pub(crate) fn check_cell(kind: CellKind, key: &[u8], value: Option<&Value>) -> Result<(), String> {
    index_of(key).ok_or_else(|| format!("a key of {} bytes that is no index", key.len()))?;
    let value = value.ok_or("a deletion among all cells")?;
    kind.cell_of(ValueRef { kind: value.kind, bytes: &value.bytes }).map(drop)
}
