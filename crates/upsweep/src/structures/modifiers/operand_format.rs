//! The bytes of numbers and of operands with several parts.
//!
//! A number is 8 bytes, little-endian. A value operand is one kind byte, then the value. A patch
//! operand is the offset (4 bytes, little-endian), then the bytes that go there.

use std::cmp::Ordering;

use super::{check_stored, check_value};
use crate::engine::modifier::{Refusal, ValueKind};

/// The operand of `put` and `insert_if_absent`: the kind of the value, then the value.
#[must_use]
pub fn value_operand(kind: ValueKind, bytes: &[u8]) -> Vec<u8> {
    let mut operand = Vec::with_capacity(1 + bytes.len());
    operand.push(kind as u8);
    operand.extend_from_slice(bytes);
    operand
}

/// The operand of `byte_patch`: `bytes` go to `offset` (bytes) of the value.
#[must_use]
pub fn patch_operand(offset: u32, bytes: &[u8]) -> Vec<u8> {
    let mut operand = Vec::with_capacity(4 + bytes.len());
    operand.extend_from_slice(&offset.to_le_bytes());
    operand.extend_from_slice(bytes);
    operand
}

/// Offset and bytes of the operand of `byte_patch`; `None` if it is too short to hold an offset.
pub(super) fn split_patch(operand: &[u8]) -> Option<(usize, &[u8])> {
    let (offset, bytes) = operand.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*offset) as usize, bytes))
}

/// Kind and bytes of the operand of `put` and `insert_if_absent`.
pub(super) fn split_value(operand: &[u8]) -> Result<(ValueKind, &[u8]), Refusal> {
    let (kind, bytes) = split_stored(operand)?;
    check_value(kind, bytes)?;
    Ok((kind, bytes))
}

/// The same for a `put` that may be the engine's own, whose values may be longer.
pub(super) fn split_stored(operand: &[u8]) -> Result<(ValueKind, &[u8]), Refusal> {
    let (number, bytes) = operand.split_first().ok_or_else(|| {
        Refusal("the operand is empty; it is one kind byte and the value".to_owned())
    })?;
    let kind = ValueKind::from_number(*number).ok_or_else(|| {
        Refusal(format!("the operand begins with {number}, which is no value kind (0 to 3)"))
    })?;
    check_stored(kind, bytes.len())?;
    Ok((kind, bytes))
}

/// A number as the built-in modifiers compute with it.
pub(super) trait Arithmetic: Copy + Send + Sync + 'static {
    const KIND: ValueKind;
    /// Whether addition is associative, so that operands may be summed up beforehand.
    const SUMS_FOLD: bool;
    const ZERO: Self;
    fn decode(bytes: [u8; 8]) -> Self;
    fn encode(self) -> [u8; 8];
    fn sum(self, other: Self) -> Self;
    fn order(self, other: Self) -> Ordering;
    fn is_operand(self) -> bool {
        true
    }
}

impl Arithmetic for i64 {
    const KIND: ValueKind = ValueKind::I64;
    const SUMS_FOLD: bool = true;
    const ZERO: Self = 0;
    fn decode(bytes: [u8; 8]) -> Self {
        Self::from_le_bytes(bytes)
    }
    fn encode(self) -> [u8; 8] {
        self.to_le_bytes()
    }
    fn sum(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn order(self, other: Self) -> Ordering {
        self.cmp(&other)
    }
}

impl Arithmetic for u64 {
    const KIND: ValueKind = ValueKind::U64;
    const SUMS_FOLD: bool = true;
    const ZERO: Self = 0;
    fn decode(bytes: [u8; 8]) -> Self {
        Self::from_le_bytes(bytes)
    }
    fn encode(self) -> [u8; 8] {
        self.to_le_bytes()
    }
    fn sum(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn order(self, other: Self) -> Ordering {
        self.cmp(&other)
    }
}

impl Arithmetic for f64 {
    const KIND: ValueKind = ValueKind::F64;
    const SUMS_FOLD: bool = false;
    const ZERO: Self = 0.0;
    fn decode(bytes: [u8; 8]) -> Self {
        Self::from_le_bytes(bytes)
    }
    fn encode(self) -> [u8; 8] {
        self.to_le_bytes()
    }
    fn sum(self, other: Self) -> Self {
        let sum = self + other;
        if sum.is_nan() { Self::from_bits(0x7ff8 << 48) } else { sum }
    }
    fn order(self, other: Self) -> Ordering {
        self.total_cmp(&other)
    }
    fn is_operand(self) -> bool {
        !self.is_nan()
    }
}
