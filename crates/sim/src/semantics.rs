//! The semantics of modifiers, implemented a second time: the oracle does not call the engine's.
//!
//! The rules are those that `upsweep::modifiers` documents, in the simplest form: one update after
//! the other, each on the result of the previous one.

/// Kinds of values, as on disk.
pub mod kind {
    /// Plain bytes.
    pub const BYTES: u8 = 0;
    /// Signed integer.
    pub const I64: u8 = 1;
    /// Unsigned integer.
    pub const U64: u8 = 2;
    /// Floating-point number.
    pub const F64: u8 = 3;
}

const VALUE_BYTES_MAX: usize = 1 << 20;

/// A value of the model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value {
    /// One of [`kind`].
    pub kind: u8,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Value {
    fn plain(bytes: Vec<u8>) -> Self {
        Self { kind: kind::BYTES, bytes }
    }
}

/// A modifier. Those up to `InsertIfAbsent` are built in, in the order of their numbers; the
/// others are the application's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are those of the modifiers")]
pub enum Op {
    Put,
    Delete,
    AddI64,
    AddU64,
    AddF64,
    MaxI64,
    MinI64,
    MaxU64,
    MinU64,
    MaxF64,
    MinF64,
    BitOr,
    Append,
    BytePatch,
    InsertIfAbsent,
    /// State-dependent: the result depends on every byte of value and operand.
    Stir,
    /// Refuses when the value and the operand disagree.
    Fussy,
    /// Panics when the value and the operand disagree.
    Bomb,
}

/// The built-in modifiers in the order of their numbers.
pub const BUILTINS: [Op; 15] = [
    Op::Put,
    Op::Delete,
    Op::AddI64,
    Op::AddU64,
    Op::AddF64,
    Op::MaxI64,
    Op::MinI64,
    Op::MaxU64,
    Op::MinU64,
    Op::MaxF64,
    Op::MinF64,
    Op::BitOr,
    Op::Append,
    Op::BytePatch,
    Op::InsertIfAbsent,
];

impl Op {
    /// Whether the outcome does not depend on the current value.
    #[must_use]
    pub fn blind(self) -> bool {
        matches!(self, Self::Put | Self::Delete)
    }

    /// Whether a refused update is always refused alone, never folded with another.
    #[must_use]
    pub fn keeps_apart(self) -> bool {
        matches!(self, Self::Stir | Self::Fussy | Self::Bomb | Self::Append | Self::AddF64)
    }
}

/// The update was refused: the value stays as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// The value of a key after one update; `None` if the key is absent.
///
/// # Errors
/// [`Refused`]: nothing changes, and the update goes to the quarantine.
pub fn apply(op: Op, current: Option<&Value>, operand: &[u8]) -> Result<Option<Value>, Refused> {
    match op {
        Op::Put => value_of(operand).map(Some),
        Op::Delete => Ok(None),
        Op::InsertIfAbsent => match current {
            Some(value) => Ok(Some(value.clone())),
            None => value_of(operand).map(Some),
        },
        Op::BitOr => bit_or(current, operand).map(Some),
        Op::Append => {
            let mut bytes = plain_bytes(current)?.to_vec();
            bytes.extend_from_slice(operand);
            within_limit(bytes).map(Some)
        }
        Op::BytePatch => patch(plain_bytes(current)?, operand).map(Some),
        Op::Stir => Ok(stir(current, operand)),
        Op::Fussy if disagree(current, operand) => Err(Refused),
        Op::Bomb if disagree(current, operand) => Err(Refused),
        Op::Fussy | Op::Bomb => Ok(Some(Value::plain(operand.to_vec()))),
        _ => numeric(op, current, operand).map(Some),
    }
}

/// The value of a cell of an array of signed integers after one update; `None` if it is zero.
///
/// # Errors
/// [`Refused`]: nothing changes, and the update goes to the quarantine.
pub fn apply_to_cell(
    op: Op,
    current: Option<&Value>,
    operand: &[u8],
) -> Result<Option<Value>, Refused> {
    let zero = Value { kind: kind::I64, bytes: vec![0; 8] };
    let value = apply(op, Some(current.unwrap_or(&zero)), operand)?;
    match value.filter(|value| *value != zero) {
        Some(value) if value.kind != kind::I64 => Err(Refused),
        value => Ok(value),
    }
}

/// Whether the fussy modifiers refuse.
#[must_use]
pub fn disagree(current: Option<&Value>, operand: &[u8]) -> bool {
    let length = current.map_or(0, |value| value.bytes.len());
    (length + operand.len()).is_multiple_of(3)
}

/// The state-dependent modifier: keeps the length of the longer of value and operand, up to 64,
/// and deletes where the result begins with a byte below 16.
#[must_use]
pub fn stir(current: Option<&Value>, operand: &[u8]) -> Option<Value> {
    let before = current.map_or(&[][..], |value| &value.bytes);
    let length = before.len().max(operand.len()).clamp(1, 64);
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for byte in before.iter().chain([&0xff]).chain(operand) {
        state = (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut bytes = Vec::with_capacity(length);
    for _ in 0..length {
        state = crate::random::mix(state.wrapping_add(1));
        bytes.push((state >> 56) as u8);
    }
    (bytes[0] >= 16).then(|| Value::plain(bytes))
}

fn value_of(operand: &[u8]) -> Result<Value, Refused> {
    let (kind, bytes) = operand.split_first().ok_or(Refused)?;
    if *kind > kind::F64 || (*kind != kind::BYTES && bytes.len() != 8) {
        return Err(Refused);
    }
    let bytes = within_limit(bytes.to_vec())?.bytes;
    Ok(Value { kind: *kind, bytes })
}

fn within_limit(bytes: Vec<u8>) -> Result<Value, Refused> {
    if bytes.len() > VALUE_BYTES_MAX { Err(Refused) } else { Ok(Value::plain(bytes)) }
}

fn plain_bytes(current: Option<&Value>) -> Result<&[u8], Refused> {
    match current {
        None => Ok(&[]),
        Some(value) if value.kind == kind::BYTES => Ok(&value.bytes),
        Some(_) => Err(Refused),
    }
}

fn bit_or(current: Option<&Value>, operand: &[u8]) -> Result<Value, Refused> {
    let Some(value) = current else { return within_limit(operand.to_vec()) };
    if value.kind != kind::BYTES || value.bytes.len() != operand.len() {
        return Err(Refused);
    }
    let bytes = value.bytes.iter().zip(operand).map(|(left, right)| left | right).collect();
    Ok(Value::plain(bytes))
}

fn patch(base: &[u8], operand: &[u8]) -> Result<Value, Refused> {
    let (offset, bytes) = operand.split_first_chunk::<4>().ok_or(Refused)?;
    let offset = u32::from_le_bytes(*offset) as usize;
    if offset > base.len() {
        return Err(Refused);
    }
    let mut value = base.to_vec();
    value.resize(value.len().max(offset + bytes.len()), 0);
    value[offset..offset + bytes.len()].copy_from_slice(bytes);
    within_limit(value)
}

fn numeric(op: Op, current: Option<&Value>, operand: &[u8]) -> Result<Value, Refused> {
    let wanted = match op {
        Op::AddI64 | Op::MaxI64 | Op::MinI64 => kind::I64,
        Op::AddU64 | Op::MaxU64 | Op::MinU64 => kind::U64,
        _ => kind::F64,
    };
    let operand = <[u8; 8]>::try_from(operand).map_err(|_| Refused)?;
    let before = match current {
        None => None,
        Some(value) if value.kind == wanted => {
            Some(<[u8; 8]>::try_from(value.bytes.as_slice()).map_err(|_| Refused)?)
        }
        Some(_) => return Err(Refused),
    };
    let result = match wanted {
        kind::I64 => i64_result(op, before.map(i64::from_le_bytes), i64::from_le_bytes(operand)),
        kind::U64 => u64_result(op, before.map(u64::from_le_bytes), u64::from_le_bytes(operand)),
        _ => f64_result(op, before.map(f64::from_le_bytes), f64::from_le_bytes(operand))?,
    };
    Ok(Value { kind: wanted, bytes: result.to_vec() })
}

fn i64_result(op: Op, before: Option<i64>, operand: i64) -> [u8; 8] {
    let result = match (op, before) {
        (_, None) => operand,
        (Op::AddI64, Some(before)) => before.wrapping_add(operand),
        (Op::MaxI64, Some(before)) => before.max(operand),
        (_, Some(before)) => before.min(operand),
    };
    result.to_le_bytes()
}

fn u64_result(op: Op, before: Option<u64>, operand: u64) -> [u8; 8] {
    let result = match (op, before) {
        (_, None) => operand,
        (Op::AddU64, Some(before)) => before.wrapping_add(operand),
        (Op::MaxU64, Some(before)) => before.max(operand),
        (_, Some(before)) => before.min(operand),
    };
    result.to_le_bytes()
}

fn f64_result(op: Op, before: Option<f64>, operand: f64) -> Result<[u8; 8], Refused> {
    if operand.is_nan() {
        return Err(Refused);
    }
    let result = match (op, before) {
        (Op::AddF64, before) => {
            let sum = before.unwrap_or(0.0) + operand;
            if sum.is_nan() { f64::from_bits(0x7ff8 << 48) } else { sum }
        }
        (_, None) => operand,
        (Op::MaxF64, Some(before)) if operand.total_cmp(&before).is_gt() => operand,
        (Op::MinF64, Some(before)) if operand.total_cmp(&before).is_lt() => operand,
        (_, Some(before)) => before,
    };
    Ok(result.to_le_bytes())
}
