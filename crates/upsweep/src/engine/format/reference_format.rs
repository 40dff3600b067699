//! Cells of the reference array, as updates of it and records in it have them.
//!
//! Key: index of the cell (8 bytes, big-endian), as in any array. Operand and value: a signed
//! number (8 bytes): what is added, and references beyond the first.

/// Key and operand of an addition to a cell.
#[must_use]
pub fn encode_cell(index: u64, amount: i64) -> ([u8; 8], [u8; 8]) {
    (index.to_be_bytes(), amount.to_le_bytes())
}

/// Index and number of a cell; `None` if they are none.
#[must_use]
pub fn decode_cell(key: &[u8], number: &[u8]) -> Option<(u64, i64)> {
    let (key, number) = (key.try_into().ok()?, number.try_into().ok()?);
    Some((u64::from_be_bytes(key), i64::from_le_bytes(number)))
}
