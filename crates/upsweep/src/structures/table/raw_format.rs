//! Blocks that are one value: the public block API, and the companion space of large values.
//!
//! Body: one byte value kind, then the value. An absent value is an empty body.

use crate::engine::block_format::{
    Applied, ApplyError, ApplyInput, BlockFormat, Checked, Piece, Refused, Routing,
};
use crate::engine::modifier::{ValueKind, ValueRef};
use crate::structures::modifiers::{Resolved, check_stored, resolve};

/// One block, one value; the block key is the key. Name: `raw`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawFormat;

/// The value of a body; `None` if it is empty.
///
/// # Errors
/// A description of the damage to the body: report it as damage.
pub fn decode(body: &[u8]) -> Result<Option<ValueRef<'_>>, String> {
    let Some((number, bytes)) = body.split_first() else { return Ok(None) };
    let kind = ValueKind::from_number(*number)
        .ok_or_else(|| format!("a value of unknown kind {number}"))?;
    check_stored(kind, bytes.len()).map_err(|refusal| refusal.0)?;
    Ok(Some(ValueRef { kind, bytes }))
}

/// The body of a value.
#[must_use]
pub fn encode(kind: ValueKind, bytes: &[u8]) -> Vec<u8> {
    crate::structures::modifiers::value_operand(kind, bytes)
}

impl BlockFormat for RawFormat {
    fn name(&self) -> &'static str {
        "raw"
    }

    fn routing(&self) -> Routing {
        Routing::Exact
    }

    fn apply<'a>(&self, input: &ApplyInput<'_, 'a>) -> Result<Applied<'a>, ApplyError> {
        let body = input.body.unwrap_or_default();
        let current = decode(body).map_err(ApplyError::Corrupt)?;
        let key = input.updates.first().map_or(&[][..], |update| update.key);
        let mut refused = Vec::new();
        let mut on_refused = |index, reason| refused.push(Refused { index, reason });
        let resolved = resolve(input.modifiers, key, current, input.updates, &mut on_refused);
        let body = match resolved {
            Resolved::Unchanged => body.to_vec(),
            Resolved::Put(kind, bytes) => encode(kind, &bytes),
            Resolved::Delete => Vec::new(),
        };
        let records = u32::from(!body.is_empty());
        Ok(Applied { pieces: vec![Piece { key: None, body, records }], refused, values: vec![] })
    }

    /// The value without its kind.
    fn read(&self, input: &ApplyInput<'_, '_>) -> Result<Vec<u8>, ApplyError> {
        let pieces = self.apply(input)?.pieces;
        let body = pieces.first().map_or(&[][..], |piece| &piece.body);
        let value = decode(body).map_err(ApplyError::Corrupt)?;
        Ok(value.map(|value| value.bytes.to_vec()).unwrap_or_default())
    }

    fn for_each(
        &self,
        low: &[u8],
        body: &[u8],
        visit: &mut dyn FnMut(&[u8], ValueRef<'_>),
    ) -> Result<(), String> {
        decode(body)?.into_iter().for_each(|value| visit(low, value));
        Ok(())
    }

    fn check(&self, body: &[u8], _low: &[u8], _high: Option<&[u8]>) -> Result<Checked, String> {
        let records = u32::from(decode(body)?.is_some());
        Ok(Checked { records, values: Vec::new() })
    }
}
