//! The built-in modifiers of whole values and byte strings; their rules are in the parent module.

use super::operand_format::{patch_operand, split_patch, split_stored, split_value};
use super::{VALUE_BYTES_MAX, check_length};
use crate::engine::modifier::{Modifier, Outcome, Refusal, ValueKind, ValueRef};

/// Patches are folded up to this many bytes, so that folding n of them costs O(n).
const FOLDED_PATCH_BYTES_MAX: usize = 4 << 10;

/// The current value as a byte string: empty if absent, refused if it is a number.
fn byte_string<'a>(name: &str, current: Option<ValueRef<'a>>) -> Result<&'a [u8], Refusal> {
    match current {
        None => Ok(&[]),
        Some(ValueRef { kind: ValueKind::Bytes, bytes }) => Ok(bytes),
        Some(ValueRef { kind, .. }) => {
            Err(Refusal(format!("{name} needs a value of kind Bytes; the value has kind {kind:?}")))
        }
    }
}

pub(super) struct Put;

impl Modifier for Put {
    fn name(&self) -> &'static str {
        "put"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(
        &self,
        _key: &[u8],
        _current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        let (kind, bytes) = split_stored(operand)?;
        Ok(Outcome::Put(kind, bytes.to_vec()))
    }

    fn blind(&self) -> bool {
        true
    }

    fn check_operand(&self, operand: &[u8]) -> Result<(), Refusal> {
        split_value(operand).map(|_| ())
    }
}

pub(super) struct Delete;

impl Modifier for Delete {
    fn name(&self) -> &'static str {
        "delete"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(
        &self,
        _key: &[u8],
        _current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        self.check_operand(operand)?;
        Ok(Outcome::Delete)
    }

    fn blind(&self) -> bool {
        true
    }

    fn check_operand(&self, operand: &[u8]) -> Result<(), Refusal> {
        if operand.is_empty() {
            return Ok(());
        }
        Err(Refusal(format!("delete takes no operand; {} bytes were given", operand.len())))
    }
}

pub(super) struct InsertIfAbsent;

impl Modifier for InsertIfAbsent {
    fn name(&self) -> &'static str {
        "insert_if_absent"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(
        &self,
        _key: &[u8],
        current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        let (kind, bytes) = split_value(operand)?;
        Ok(if current.is_some() { Outcome::Keep } else { Outcome::Put(kind, bytes.to_vec()) })
    }

    fn fold(&self, earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        split_value(earlier).ok()?;
        split_value(later).ok()?;
        Some(earlier.to_vec())
    }

    fn check_operand(&self, operand: &[u8]) -> Result<(), Refusal> {
        split_value(operand).map(|_| ())
    }
}

/// For byte strings only. The operand has no kind, so the value that it creates is of kind `Bytes`:
/// an unsigned integer whose bits were set before it was put would not be a number.
pub(super) struct BitOr;

impl Modifier for BitOr {
    fn name(&self) -> &'static str {
        "bit_or"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(
        &self,
        _key: &[u8],
        current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        check_length(operand.len())?;
        let bytes = byte_string("bit_or", current)?;
        if current.is_some() && bytes.len() != operand.len() {
            let (length, wanted) = (bytes.len(), operand.len());
            return Err(Refusal(format!(
                "bit_or needs a value as long as the operand, {wanted} bytes; the value has \
                 {length} bytes"
            )));
        }
        let result = if current.is_some() { or(bytes, operand) } else { operand.to_vec() };
        Ok(Outcome::Put(ValueKind::Bytes, result))
    }

    fn fold(&self, earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        let is_exact = earlier.len() == later.len() && later.len() <= VALUE_BYTES_MAX;
        is_exact.then(|| or(earlier, later))
    }

    fn check_operand(&self, operand: &[u8]) -> Result<(), Refusal> {
        check_length(operand.len())
    }
}

fn or(left: &[u8], right: &[u8]) -> Vec<u8> {
    left.iter().zip(right).map(|(left, right)| left | right).collect()
}

pub(super) struct Append;

impl Modifier for Append {
    fn name(&self) -> &'static str {
        "append"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(
        &self,
        _key: &[u8],
        current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        let bytes = byte_string("append", current)?;
        check_length(bytes.len().saturating_add(operand.len()))?;
        Ok(Outcome::Put(ValueKind::Bytes, [bytes, operand].concat()))
    }

    fn check_operand(&self, operand: &[u8]) -> Result<(), Refusal> {
        check_length(operand.len())
    }
}

pub(super) struct BytePatch;

impl BytePatch {
    fn operand(operand: &[u8]) -> Result<(usize, &[u8]), Refusal> {
        let (offset, bytes) = split_patch(operand).ok_or_else(|| {
            let length = operand.len();
            Refusal(format!(
                "byte_patch takes an offset of 4 bytes, little-endian, then bytes; the operand \
                 has {length} bytes"
            ))
        })?;
        check_length(offset.saturating_add(bytes.len()))?;
        Ok((offset, bytes))
    }
}

/// `base` with `bytes` at `offset`, which is at most its length.
fn patched(base: &[u8], offset: usize, bytes: &[u8]) -> Vec<u8> {
    let tail = base.get(offset + bytes.len()..).unwrap_or(&[]);
    [&base[..offset], bytes, tail].concat()
}

impl Modifier for BytePatch {
    fn name(&self) -> &'static str {
        "byte_patch"
    }

    fn version(&self) -> u16 {
        1
    }

    fn apply(
        &self,
        _key: &[u8],
        current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal> {
        let (offset, bytes) = Self::operand(operand)?;
        let base = byte_string("byte_patch", current)?;
        if offset > base.len() {
            let length = base.len();
            return Err(Refusal(format!(
                "the patch begins at byte {offset}, beyond the end of the value of {length} bytes"
            )));
        }
        Ok(Outcome::Put(ValueKind::Bytes, patched(base, offset, bytes)))
    }

    /// A later patch that begins inside or at the end of the earlier one joins it. Exact, because
    /// whether a patch is refused depends only on its offset: if the earlier one is refused, so is
    /// the later; if not, the value then reaches the offset of the later one.
    fn fold(&self, earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        let (earlier_offset, earlier) = Self::operand(earlier).ok()?;
        let (later_offset, later) = Self::operand(later).ok()?;
        let within = later_offset.checked_sub(earlier_offset)?;
        if within > earlier.len() || earlier.len() + later.len() > FOLDED_PATCH_BYTES_MAX {
            return None;
        }
        let offset = u32::try_from(earlier_offset).ok()?;
        Some(patch_operand(offset, &patched(earlier, within, later)))
    }

    fn check_operand(&self, operand: &[u8]) -> Result<(), Refusal> {
        Self::operand(operand).map(|_| ())
    }
}
