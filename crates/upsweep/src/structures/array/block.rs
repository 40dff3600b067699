//! The array as a block format: how a block applies its updates.
//!
//! Every cell exists: a modifier sees a cell that was never set as zero, not as absent. An update
//! whose result does not fit its cell is refused, and the cell is unchanged. As everywhere, a blind
//! update that succeeds supersedes those before it, which are then not evaluated.
//!
//! Operands are folded before the format sees them. So additions to a cell of less than 8 bytes
//! that wait together may be refused as one if they would overflow it.

use std::borrow::Cow;
use std::sync::Arc;

use super::body_format::{Body, BodyEditor, index_of, key_of};
use super::cell_format::CellKind;
use crate::engine::block_format::{
    Applied, ApplyError, ApplyInput, BlockFormat, Checked, Piece, Refused, Routing, UpdateRef,
};
use crate::engine::modifier::ValueRef;
use crate::engine::registry::Modifiers;
use crate::structures::modifiers::{Resolved, is_decided, resolve};

/// Name of the block format of arrays; a colon and the kind of the cells follow.
pub const ARRAY_FORMAT: &str = "array";

/// Blocks of an array. Name: `array`, with the kind of its cells as parameter: `array:u32`.
#[derive(Clone, Copy, Debug)]
pub struct ArrayFormat {
    kind: CellKind,
}

impl ArrayFormat {
    /// The format of arrays with cells of this kind.
    #[must_use]
    pub const fn new(kind: CellKind) -> Self {
        Self { kind }
    }
}

impl Default for ArrayFormat {
    /// Without parameter, cells are `u64`.
    fn default() -> Self {
        Self::new(CellKind::U64)
    }
}

impl BlockFormat for ArrayFormat {
    fn name(&self) -> &'static str {
        ARRAY_FORMAT
    }

    fn routing(&self) -> Routing {
        Routing::Exact
    }

    fn configure(&self, parameters: &str) -> Result<Arc<dyn BlockFormat>, String> {
        Ok(Arc::new(Self::new(parameters.parse()?)))
    }

    fn position<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Owned(self.kind.position_of(key).to_vec())
    }

    fn apply<'a>(&self, input: &ApplyInput<'_, 'a>) -> Result<Applied<'a>, ApplyError> {
        let old = Body::parse(self.kind, input.body.unwrap_or_default());
        let old = old.map_err(ApplyError::Corrupt)?;
        let mut editor = BodyEditor::new(old, input.updates.len());
        let mut cell = vec![0; self.kind.cell_bytes()];
        let mut refused = Vec::new();
        let mut first = 0;
        let block = input.updates.first().map(|update| self.kind.position_of(update.key));
        for group in input.updates.chunk_by(|left, right| left.key == right.key) {
            let mut on_refused =
                |position, reason| refused.push(Refused { index: first + position, reason });
            let is_here = Some(self.kind.position_of(group[0].key)) == block;
            if let Some(index) = index_of(group[0].key).filter(|_| is_here) {
                let offset = (index % self.kind.cells_per_block() as u64) as usize;
                set_cell(&mut cell, old.get(offset));
                update_cell(self.kind, input.modifiers, &mut cell, group, &mut on_refused);
                editor.set(offset, &cell);
            } else {
                let reason = "the key is no index of this block: 8 bytes, big-endian, below 2^48";
                (0..group.len()).for_each(|position| on_refused(position, reason.to_owned()));
            }
            first += group.len();
        }
        let (body, count) = editor.finish();
        let records = u32::try_from(count).expect("a block has fewer cells than bytes");
        Ok(Applied { pieces: vec![Piece { key: None, body, records }], refused, values: vec![] })
    }

    fn for_each(
        &self,
        low: &[u8],
        body: &[u8],
        visit: &mut dyn FnMut(&[u8], ValueRef<'_>),
    ) -> Result<(), String> {
        let first = self.kind.place_of(low).map_or(0, |place| place.first);
        for (offset, cell) in Body::parse(self.kind, body)?.iter() {
            let mut wide = [0; 8];
            visit(&key_of(first + offset as u64), self.kind.value(cell, &mut wide));
        }
        Ok(())
    }

    fn check(&self, body: &[u8], low: &[u8], _high: Option<&[u8]>) -> Result<Checked, String> {
        let place = self.kind.place_of(low);
        let cells = place.map_or(0, |place| place.cells);
        let body = Body::parse(self.kind, body)?;
        for (offset, cell) in body.iter() {
            if offset >= cells {
                return Err(format!("cell {offset} of the block {low:?} lies beyond the array"));
            }
            if cell.iter().all(|byte| *byte == 0) {
                return Err(format!("cell {offset} is zero, and stored"));
            }
        }
        let records = u32::try_from(body.count()).expect("a block has fewer cells than bytes");
        Ok(Checked { records, values: Vec::new() })
    }
}

fn set_cell(cell: &mut [u8], bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => cell.copy_from_slice(bytes),
        None => cell.fill(0),
    }
}

/// The bytes of one cell with its `updates` applied in order; `body` is the block's, if known.
/// Refused updates change nothing: the sweep will report them.
///
/// # Errors
/// A description of the damage to the body: report it as damage.
pub fn cell(
    kind: CellKind,
    body: Option<&[u8]>,
    modifiers: &Modifiers,
    index: u64,
    updates: &[UpdateRef<'_>],
) -> Result<Vec<u8>, String> {
    let body = Body::parse(kind, body.unwrap_or_default())?;
    let mut cell = vec![0; kind.cell_bytes()];
    set_cell(&mut cell, body.get((index % kind.cells_per_block() as u64) as usize));
    update_cell(kind, modifiers, &mut cell, updates, &mut |_, _| {});
    Ok(cell)
}

/// The bytes of a cell with one update applied.
///
/// # Errors
/// The reason if the update is refused.
pub(super) fn updated(
    kind: CellKind,
    modifiers: &Modifiers,
    mut cell: Vec<u8>,
    update: &UpdateRef<'_>,
) -> Result<Vec<u8>, String> {
    let mut refused = None;
    let updates = std::slice::from_ref(update);
    update_cell(kind, modifiers, &mut cell, updates, &mut |_, reason| refused = Some(reason));
    refused.map_or(Ok(cell), Err)
}

/// Whether `updates`, all of one cell and in order, determine it regardless of its value before.
#[must_use]
pub fn is_decisive(kind: CellKind, modifiers: &Modifiers, updates: &[UpdateRef<'_>]) -> bool {
    updates.iter().any(|update| supersedes(kind, modifiers, update))
}

/// Whether an update is blind and its result fits the cell.
fn supersedes(kind: CellKind, modifiers: &Modifiers, update: &UpdateRef<'_>) -> bool {
    let updates = std::slice::from_ref(update);
    is_decided(modifiers, update.key, updates)
        && match resolve(modifiers, update.key, None, updates, &mut |_, _| {}) {
            Resolved::Put(value, bytes) => {
                kind.cell_of(ValueRef { kind: value, bytes: &bytes }).is_ok()
            }
            Resolved::Delete | Resolved::Unchanged => true,
        }
}

/// Applies updates, all of one cell and in order. `on_refused` gets position and reason of refused
/// ones.
fn update_cell(
    kind: CellKind,
    modifiers: &Modifiers,
    cell: &mut [u8],
    updates: &[UpdateRef<'_>],
    on_refused: &mut dyn FnMut(usize, String),
) {
    let last = updates.iter().rposition(|update| supersedes(kind, modifiers, update));
    for (position, update) in updates.iter().enumerate().skip(last.unwrap_or(0)) {
        let mut wide = [0; 8];
        let current = kind.value(cell, &mut wide);
        let update = std::slice::from_ref(update);
        let mut refuse = |_, reason| on_refused(position, reason);
        match resolve(modifiers, update[0].key, Some(current), update, &mut refuse) {
            Resolved::Unchanged => {}
            Resolved::Delete => cell.fill(0),
            Resolved::Put(value, bytes) => {
                match kind.cell_of(ValueRef { kind: value, bytes: &bytes }) {
                    Ok(bytes) => cell.copy_from_slice(bytes),
                    Err(reason) => on_refused(position, reason),
                }
            }
        }
    }
}
