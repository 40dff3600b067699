//! The built-in modifier of structs of counters: changes any fields, each by its rule, in one
//! update.
//!
//! The value is 8 bytes per field, little-endian, of kind `Bytes`. The operand has an entry for
//! every field, in order: a byte with the rule, and 8 bytes with the number, little-endian; or, if
//! the highest bit of the byte is set, only the rule, and the field is unchanged.
//!
//! | rule | number | absent value |
//! |---|---|---|
//! | 0 | adds, `u64` | 0 |
//! | 1, 2 | the larger, the smaller, `u64` | 0, the largest |
//! | 3 | adds, `i64` | 0 |
//! | 4, 5 | the larger, the smaller, `i64` | the smallest, the largest |
//! | 6 | adds, `f64` | 0 |
//! | 7, 8 | the larger, the smaller, `f64` | minus infinity, infinity |
//! | 9 | the new one, whatever it is | 0 |
//!
//! Whether an update is refused depends only on the number of fields, so folding is exact. Sums of
//! floats do not fold: rounding depends on the order.

use super::check_length;
use super::operand_format::Arithmetic;
use crate::engine::modifier::{Modifier, Outcome, Refusal, ValueKind, ValueRef};

/// How a change computes a new field from an old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CounterRule {
    /// The sum of unsigned integers; it wraps around.
    AddU64 = 0,
    /// The larger unsigned integer.
    MaxU64 = 1,
    /// The smaller unsigned integer.
    MinU64 = 2,
    /// The sum of signed integers; it wraps around.
    AddI64 = 3,
    /// The larger signed integer.
    MaxI64 = 4,
    /// The smaller signed integer.
    MinI64 = 5,
    /// The sum of floats.
    AddF64 = 6,
    /// The larger float, by the IEEE total order.
    MaxF64 = 7,
    /// The smaller float, by the IEEE total order.
    MinF64 = 8,
    /// The new one.
    Set = 9,
}

/// Set in the byte of a rule whose field is unchanged.
const STAYS: u8 = 0x80;
const WORD_BYTES: usize = 8;

impl CounterRule {
    const ALL: [Self; 10] = [
        Self::AddU64,
        Self::MaxU64,
        Self::MinU64,
        Self::AddI64,
        Self::MaxI64,
        Self::MinI64,
        Self::AddF64,
        Self::MaxF64,
        Self::MinF64,
        Self::Set,
    ];

    fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| *rule as u8 == number)
    }

    /// A field that was never changed.
    fn initial(self) -> u64 {
        match self {
            Self::AddU64 | Self::MaxU64 | Self::AddI64 | Self::AddF64 | Self::Set => 0,
            Self::MinU64 => u64::MAX,
            Self::MaxI64 => i64::MIN.cast_unsigned(),
            Self::MinI64 => i64::MAX.cast_unsigned(),
            Self::MaxF64 => f64::NEG_INFINITY.to_bits(),
            Self::MinF64 => f64::INFINITY.to_bits(),
        }
    }

    fn combine(self, earlier: u64, later: u64) -> u64 {
        match self {
            Self::AddU64 => sum::<u64>(earlier, later),
            Self::AddI64 => sum::<i64>(earlier, later),
            Self::AddF64 => sum::<f64>(earlier, later),
            Self::MaxU64 => larger::<u64>(earlier, later),
            Self::MinU64 => smaller::<u64>(earlier, later),
            Self::MaxI64 => larger::<i64>(earlier, later),
            Self::MinI64 => smaller::<i64>(earlier, later),
            Self::MaxF64 => larger::<f64>(earlier, later),
            Self::MinF64 => smaller::<f64>(earlier, later),
            Self::Set => later,
        }
    }

    /// Whether the number is valid in an operand.
    fn takes(self, word: u64) -> bool {
        let is_float = matches!(self, Self::AddF64 | Self::MaxF64 | Self::MinF64);
        !is_float || f64::decode(word.to_le_bytes()).is_operand()
    }
}

fn number<N: Arithmetic>(word: u64) -> N {
    N::decode(word.to_le_bytes())
}

fn word<N: Arithmetic>(number: N) -> u64 {
    u64::from_le_bytes(number.encode())
}

fn sum<N: Arithmetic>(earlier: u64, later: u64) -> u64 {
    word(number::<N>(earlier).sum(number(later)))
}

fn larger<N: Arithmetic>(earlier: u64, later: u64) -> u64 {
    if number::<N>(later).order(number(earlier)).is_gt() { later } else { earlier }
}

fn smaller<N: Arithmetic>(earlier: u64, later: u64) -> u64 {
    if number::<N>(later).order(number(earlier)).is_lt() { later } else { earlier }
}

/// The operand that changes fields with these rules: `None` for unchanged ones.
#[must_use]
pub fn counters_operand(rules: &[CounterRule], words: &[Option<u64>]) -> Vec<u8> {
    let mut operand = Vec::with_capacity(rules.len() * (1 + WORD_BYTES));
    for (rule, word) in rules.iter().zip(words) {
        match word {
            Some(word) => {
                operand.push(*rule as u8);
                operand.extend_from_slice(&word.to_le_bytes());
            }
            None => operand.push(*rule as u8 | STAYS),
        }
    }
    operand
}

/// The value of a struct with these fields.
#[must_use]
pub fn encode_words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The fields of a value; `None` if it does not have this many.
#[must_use]
pub fn decode_words(bytes: &[u8], fields: usize) -> Option<Vec<u64>> {
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    let fits = rest.is_empty() && words.len() == fields;
    fits.then(|| words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// Rules and numbers of an operand.
fn fields(mut operand: &[u8]) -> Result<Vec<(CounterRule, Option<u64>)>, Refusal> {
    let mut fields = Vec::new();
    while let Some((byte, rest)) = operand.split_first() {
        let rule = CounterRule::of_number(byte & !STAYS);
        let rule =
            rule.ok_or_else(|| Refusal(format!("{} is no rule of counters", byte & !STAYS)))?;
        operand = rest;
        let mut word = None;
        if byte & STAYS == 0 {
            let (bytes, rest) = operand.split_first_chunk::<WORD_BYTES>().ok_or_else(|| {
                Refusal(format!("field {} has a rule and no 8 bytes", fields.len()))
            })?;
            operand = rest;
            let given = u64::from_le_bytes(*bytes);
            if !rule.takes(given) {
                return Err(Refusal(format!("field {} takes a number, not a NaN", fields.len())));
            }
            word = Some(given);
        }
        fields.push((rule, word));
    }
    check_length(fields.len() * WORD_BYTES)?;
    if fields.is_empty() {
        return Err(Refusal("the operand is empty; it has a rule for every field".to_owned()));
    }
    Ok(fields)
}

pub(super) struct Counters;

impl Modifier for Counters {
    fn name(&self) -> &'static str {
        "counters"
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
        let fields = fields(operand)?;
        let before: Vec<u64> = match current {
            None => fields.iter().map(|(rule, _)| rule.initial()).collect(),
            Some(ValueRef { kind, bytes }) => decode_words(bytes, fields.len())
                .filter(|_| kind == ValueKind::Bytes)
                .ok_or_else(|| {
                    let (length, wanted) = (bytes.len(), WORD_BYTES * fields.len());
                    Refusal(format!(
                        "counters needs a value of kind Bytes and {wanted} bytes; the value has \
                         kind {kind:?} and {length} bytes"
                    ))
                })?,
        };
        let change = |((rule, given), before): (&(CounterRule, Option<u64>), &u64)| {
            given.map_or(*before, |given| rule.combine(*before, given))
        };
        let after: Vec<u64> = fields.iter().zip(&before).map(change).collect();
        if current.is_some() && after == before {
            return Ok(Outcome::Keep);
        }
        Ok(Outcome::Put(ValueKind::Bytes, encode_words(&after)))
    }

    fn fold(&self, earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        let (earlier, later) = (fields(earlier).ok()?, fields(later).ok()?);
        if earlier.len() != later.len() {
            return None;
        }
        let (mut rules, mut words) = (Vec::new(), Vec::new());
        for ((rule, first), (same, second)) in earlier.into_iter().zip(later) {
            let word = match (first, second) {
                _ if rule != same => return None,
                (Some(_), Some(_)) if rule == CounterRule::AddF64 => return None,
                (Some(first), Some(second)) => Some(rule.combine(first, second)),
                (one, None) | (None, one) => one,
            };
            rules.push(rule);
            words.push(word);
        }
        Some(counters_operand(&rules, &words))
    }

    fn check_operand(&self, operand: &[u8]) -> Result<(), Refusal> {
        fields(operand).map(|_| ())
    }
}
