//! The modifier of bitmaps: adds members to a word and removes others.

use upsweep::{Modifier, Outcome, Refusal, ValueKind, ValueRef};

use crate::block::{bit_of, word_of_value};

/// Bytes of an operand: the bits to set, then the bits to clear, 8 bytes each, little-endian.
const OPERAND_BYTES: usize = 16;

/// Adds members to a word and removes others.
pub(crate) struct Edit;

impl Edit {
    /// The operand that adds a member to its word.
    pub(crate) fn insert(member: u64) -> [u8; OPERAND_BYTES] {
        encode(bit_of(member), 0)
    }

    /// The operand that removes a member from its word.
    pub(crate) fn remove(member: u64) -> [u8; OPERAND_BYTES] {
        encode(0, bit_of(member))
    }
}

fn encode(comes: u64, goes: u64) -> [u8; OPERAND_BYTES] {
    (u128::from(comes) | u128::from(goes) << 64).to_le_bytes()
}

/// The bits to set and the bits to clear.
fn decode(operand: &[u8]) -> Result<(u64, u64), Refusal> {
    let bytes = <[u8; OPERAND_BYTES]>::try_from(operand).map_err(|_| {
        let length = operand.len();
        Refusal(format!("the operand of a bitmap has {OPERAND_BYTES} bytes, not {length}"))
    })?;
    let both = u128::from_le_bytes(bytes);
    Ok((both as u64, (both >> 64) as u64))
}

impl Modifier for Edit {
    fn name(&self) -> &'static str {
        "bitmap_edit"
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
        let (comes, goes) = decode(operand)?;
        let before = current.map_or(Ok(0), |value| word_of_value(value).map_err(Refusal))?;
        Ok(match before & !goes | comes {
            0 => Outcome::Delete,
            after if after == before => Outcome::Keep,
            after => Outcome::Put(ValueKind::U64, after.to_le_bytes().to_vec()),
        })
    }

    fn fold(&self, earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        let ((first, gone), (comes, goes)) = (decode(earlier).ok()?, decode(later).ok()?);
        Some(encode(first & !goes | comes, (gone | goes) & !comes).to_vec())
    }

    fn check_operand(&self, operand: &[u8]) -> Result<(), Refusal> {
        decode(operand).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of applying this operand to `before`.
    fn after(before: u64, operand: &[u8]) -> u64 {
        let bytes = before.to_le_bytes();
        let value = ValueRef { kind: ValueKind::U64, bytes: &bytes };
        match Edit.apply(&[], (before != 0).then_some(value), operand).expect("no refusal") {
            Outcome::Keep => before,
            Outcome::Delete => 0,
            Outcome::Put(_, bytes) => u64::from_le_bytes(bytes.try_into().expect("a word")),
        }
    }

    #[test]
    fn folded_edits_have_the_effect_of_both() {
        let masks = [0, 1, 2, 3];
        let edits = masks.iter().flat_map(|comes| masks.map(|goes| encode(*comes, goes)));
        let edits: Vec<_> = edits.collect();
        for (first, second) in edits.iter().flat_map(|one| edits.iter().map(move |two| (one, two)))
        {
            let folded = Edit.fold(first, second).expect("folds");
            for word in masks {
                let wanted = after(after(word, first), second);
                assert_eq!(after(word, &folded), wanted, "{word} {first:?} {second:?}");
            }
        }
        assert!(Edit.check_operand(&[0; 15]).is_err());
    }
}
