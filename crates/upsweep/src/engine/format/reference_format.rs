//! Cells of the reference array, as updates of it and as records in it.
//!
//! Key: index of the cell (8 bytes, big-endian), as in any array. Operand and value: a signed
//! number (8 bytes): the amount to add, and the number of references beyond the first.

/// Key and operand of an addition to a cell.
#[must_use]
pub fn encode_cell(index: u64, amount: i64) -> ([u8; 8], [u8; 8]) {
    (index.to_be_bytes(), amount.to_le_bytes())
}

/// Index and number of a cell; `None` if the bytes are not a cell.
#[must_use]
pub fn decode_cell(key: &[u8], number: &[u8]) -> Option<(u64, i64)> {
    let (key, number) = (key.try_into().ok()?, number.try_into().ok()?);
    Some((u64::from_be_bytes(key), i64::from_le_bytes(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_come_back_and_lie_in_the_order_of_their_indexes() {
        for (index, amount) in [(0, 0), (1, -1), (u64::MAX, i64::MIN)] {
            let (key, number) = encode_cell(index, amount);
            assert_eq!(decode_cell(&key, &number), Some((index, amount)));
        }
        assert!(encode_cell(255, 0).0 < encode_cell(256, 0).0);
    }

    #[test]
    fn what_has_not_8_bytes_is_no_cell() {
        let (key, number) = encode_cell(7, 1);
        assert_eq!(decode_cell(&key[1..], &number), None);
        assert_eq!(decode_cell(&key, &[&number[..], &[0]].concat()), None);
    }
}
