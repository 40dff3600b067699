//! The records of the benchmark: their keys, their values, and how a counter in a value is counted.
//!
//! Keys are spread over all 64-bit numbers, one at a scrambled place in each of as many equal parts
//! as there are records. They ascend with their index, so a table is loaded without a sort and
//! without memory for the keys. A key is padded to its length, and so is a value behind its counter
//! of 8 bytes.

use upsweep::layers::engine::registry::ModifierId;
use upsweep::layers::structures::modifiers::ADD_I64;
use upsweep::{
    Error, LoadOptions, Modifier, Outcome, Refusal, Store, Table, Value, ValueKind, ValueRef,
};

use crate::bench::scramble;

/// Bytes of a counter, and of a number that spreads keys.
const WORD_BYTES: usize = 8;
const PADDING: u8 = b'.';

/// How many records there are, and how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Records {
    pub(super) number: u64,
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
}

impl Records {
    /// Appends the key with this index, below the number of records.
    pub(super) fn push_key(self, index: u64, out: &mut Vec<u8>) {
        let part = u64::MAX / self.number;
        let place = (u128::from(scramble(index)) * u128::from(part)) >> 64;
        let number = index * part + u64::try_from(place).unwrap_or(0);
        let start = out.len();
        out.extend_from_slice(&number.to_be_bytes());
        out.resize(start + self.key_bytes, PADDING);
    }

    /// What adds 1 to a counter: the built-in addition where the value is a counter and no more.
    pub(super) fn modifier(self, store: &Store) -> Result<ModifierId, Error> {
        if self.value_bytes == WORD_BYTES {
            return Ok(ADD_I64);
        }
        store.blocks().modifier_id(&self.count())
    }

    /// The modifier of longer values; a store must have it registered.
    pub(super) fn count(self) -> Count {
        Count { value_bytes: self.value_bytes }
    }

    /// Fills a table with all records, their counters at 0.
    pub(super) fn load(self, table: &Table) -> Result<(), Error> {
        let mut value = 0i64.to_le_bytes().to_vec();
        value.resize(self.value_bytes, PADDING);
        let is_number = self.value_bytes == WORD_BYTES;
        let kind = if is_number { ValueKind::I64 } else { ValueKind::Bytes };
        let records = (0..self.number).map(|index| {
            let mut key = Vec::with_capacity(self.key_bytes);
            self.push_key(index, &mut key);
            Ok((key, ValueRef { kind, bytes: &value }))
        });
        table.load(records, LoadOptions::default()).map(drop)
    }

    /// The counter of a value.
    pub(super) fn counter(value: &Value) -> Option<i64> {
        value.bytes.first_chunk().map(|bytes| i64::from_le_bytes(*bytes))
    }
}

/// Adds its operand to the counter at the start of a value.
pub(super) struct Count {
    value_bytes: usize,
}

fn word(bytes: &[u8]) -> Result<i64, Refusal> {
    let word = bytes.first_chunk().map(|bytes| i64::from_le_bytes(*bytes));
    word.ok_or_else(|| Refusal(format!("a counter has {WORD_BYTES} bytes, not {}", bytes.len())))
}

impl Modifier for Count {
    fn name(&self) -> &'static str {
        "bench_count"
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
        let amount = word(operand)?;
        let mut value = Vec::with_capacity(self.value_bytes);
        let counter = match current {
            Some(current) => {
                value.extend_from_slice(current.bytes);
                word(current.bytes)?
            }
            None => {
                value.resize(self.value_bytes, PADDING);
                0
            }
        };
        value[..WORD_BYTES].copy_from_slice(&counter.wrapping_add(amount).to_le_bytes());
        Ok(Outcome::Put(ValueKind::Bytes, value))
    }

    fn fold(&self, earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        let sum = word(earlier).ok()?.wrapping_add(word(later).ok()?);
        Some(sum.to_le_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ascend_and_have_their_length() {
        for number in [1, 2, 1000] {
            let records = Records { number, key_bytes: 11, value_bytes: 8 };
            let key = |index| {
                let mut key = Vec::new();
                records.push_key(index, &mut key);
                key
            };
            let keys: Vec<_> = (0..number).map(key).collect();
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{number}");
            assert!(keys.iter().all(|key| key.len() == 11 && key.ends_with(b"...")));
        }
    }

    #[test]
    fn a_counter_counts_at_the_start_of_its_value() {
        let count = Records { number: 1, key_bytes: 8, value_bytes: 12 }.count();
        let [one, two] = [1i64, 2].map(i64::to_le_bytes);
        let apply = |current: Option<&[u8]>, operand| {
            let current = current.map(|bytes| ValueRef { kind: ValueKind::Bytes, bytes });
            match count.apply(b"key", current, operand) {
                Ok(Outcome::Put(ValueKind::Bytes, value)) => value,
                other => panic!("not a value: {other:?}"),
            }
        };
        let first = apply(None, &one);
        assert_eq!(first, [&one[..], b"...."].concat());
        let folded = count.fold(&one, &one).expect("counters fold");
        assert_eq!(folded, two);
        let second = apply(Some(&first), &folded);
        assert_eq!(second, [&3i64.to_le_bytes()[..], b"...."].concat());
        assert!(
            count
                .apply(b"key", Some(ValueRef { kind: ValueKind::Bytes, bytes: b"" }), &one)
                .is_err()
        );
    }
}
