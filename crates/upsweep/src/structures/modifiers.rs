//! The built-in modifiers, their numbers, limits and operands.
//!
//! | modifier | operand | absent value | current value | folds |
//! |---|---|---|---|---|
//! | `put` | kind byte, bytes | put | replaced | blind |
//! | `delete` | empty | keep | deleted | blind |
//! | `add_*` | 8 bytes | starts from 0 | sum; integers wrap | integers |
//! | `max_*`, `min_*` | 8 bytes | operand | the larger, the smaller | yes |
//! | `bit_or` | bytes | operand | bitwise or; equal lengths only | equal lengths |
//! | `append` | bytes | operand | concatenation | no |
//! | `byte_patch` | offset (4), bytes | as if empty | overwritten, may extend | if joined |
//! | `insert_if_absent` | kind byte, bytes | put | keep | yes, to the earlier |
//! | `counters` | per field a rule and a number | each rule's first | by the rules | integers |
//! | `expires_at` | moment, record | put | keep, if not expired | if one is put in any case |
//! | `expires_at` | moment, time | keep | expires then, if not expired | yes |
//!
//! Rules:
//! - Numbers are 8 bytes, little-endian. A modifier accepts values of its own kind only: those of
//!   numbers their kind of number, `bit_or`, `append` and `byte_patch` the kind `Bytes`. Only the
//!   kind counts, not the length: a text of 8 bytes is not a number.
//! - Floats: an operand that is not a number is refused; `max` and `min` use the IEEE total order
//!   (-0 below +0); a sum that is not a number is stored as the one quiet NaN `0x7ff8 << 48`,
//!   because its bits would otherwise differ from machine to machine.
//! - A patch that begins beyond the end of the value is refused.
//! - Every modifier refuses a malformed operand, at the call and again when it is applied.
//! - Folding is exact for every current value, refusals included. `append` therefore does not
//!   fold: near [`VALUE_BYTES_MAX`] the first of two may fit while both together do not. Nor does
//!   `add_f64`: rounding depends on the order.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::engine::modifier::{Modifier, Outcome, Refusal, ValueRef};
use crate::engine::registry::{ModifierId, Modifiers};

mod bytes;
mod counters_format;
mod expires_at_format;
mod operand_format;
mod resolve;
#[cfg(test)]
mod tests;

pub use counters_format::{CounterRule, counters_operand};
pub use counters_format::{decode_words, encode_words};
pub use expires_at_format::{EXPIRING_VALUE_BYTES_MAX, Expiring, encode_head, expires_us_of};
pub use expires_at_format::{insert_operand, record_of, set_moment, touch_operand};
use operand_format::Arithmetic;
pub use operand_format::{patch_operand, value_operand};
pub use resolve::{Resolved, is_decided, resolve};

pub use crate::engine::config::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use crate::engine::modifier::{check_length, check_stored, check_value};

/// Number of `put`.
pub const PUT: ModifierId = ModifierId(0);
/// Number of `delete`.
pub const DELETE: ModifierId = ModifierId(1);
/// Number of `add_i64`.
pub const ADD_I64: ModifierId = ModifierId(2);
/// Number of `add_u64`.
pub const ADD_U64: ModifierId = ModifierId(3);
/// Number of `add_f64`.
pub const ADD_F64: ModifierId = ModifierId(4);
/// Number of `max_i64`.
pub const MAX_I64: ModifierId = ModifierId(5);
/// Number of `min_i64`.
pub const MIN_I64: ModifierId = ModifierId(6);
/// Number of `max_u64`.
pub const MAX_U64: ModifierId = ModifierId(7);
/// Number of `min_u64`.
pub const MIN_U64: ModifierId = ModifierId(8);
/// Number of `max_f64`.
pub const MAX_F64: ModifierId = ModifierId(9);
/// Number of `min_f64`.
pub const MIN_F64: ModifierId = ModifierId(10);
/// Number of `bit_or`.
pub const BIT_OR: ModifierId = ModifierId(11);
/// Number of `append`.
pub const APPEND: ModifierId = ModifierId(12);
/// Number of `byte_patch`.
pub const BYTE_PATCH: ModifierId = ModifierId(13);
/// Number of `insert_if_absent`.
pub const INSERT_IF_ABSENT: ModifierId = ModifierId(14);

/// Number of `counters`; 15 is that of the removal of a range, which is not a modifier.
pub const COUNTERS: ModifierId = ModifierId(16);

/// Number of `expires_at`.
pub const EXPIRES_AT: ModifierId = ModifierId(17);

/// Binds all built-in modifiers to their numbers. Every store does so before anything else.
pub fn bind_builtins(modifiers: &mut Modifiers) {
    modifiers.bind(PUT, Arc::new(bytes::Put));
    modifiers.bind(DELETE, Arc::new(bytes::Delete));
    modifiers.bind(ADD_I64, Numeric::<i64>::shared("add_i64", Rule::Add));
    modifiers.bind(ADD_U64, Numeric::<u64>::shared("add_u64", Rule::Add));
    modifiers.bind(ADD_F64, Numeric::<f64>::shared("add_f64", Rule::Add));
    modifiers.bind(MAX_I64, Numeric::<i64>::shared("max_i64", Rule::Max));
    modifiers.bind(MIN_I64, Numeric::<i64>::shared("min_i64", Rule::Min));
    modifiers.bind(MAX_U64, Numeric::<u64>::shared("max_u64", Rule::Max));
    modifiers.bind(MIN_U64, Numeric::<u64>::shared("min_u64", Rule::Min));
    modifiers.bind(MAX_F64, Numeric::<f64>::shared("max_f64", Rule::Max));
    modifiers.bind(MIN_F64, Numeric::<f64>::shared("min_f64", Rule::Min));
    modifiers.bind(BIT_OR, Arc::new(bytes::BitOr));
    modifiers.bind(APPEND, Arc::new(bytes::Append));
    modifiers.bind(BYTE_PATCH, Arc::new(bytes::BytePatch));
    modifiers.bind(INSERT_IF_ABSENT, Arc::new(bytes::InsertIfAbsent));
    modifiers.bind(COUNTERS, Arc::new(counters_format::Counters));
    modifiers.bind(EXPIRES_AT, Arc::new(expires_at_format::ExpiresAt));
}

#[derive(Clone, Copy)]
enum Rule {
    Add,
    Max,
    Min,
}

/// `add_*`, `max_*` and `min_*` for one kind of number.
struct Numeric<N> {
    name: &'static str,
    rule: Rule,
    number: PhantomData<N>,
}

impl<N: Arithmetic> Numeric<N> {
    fn shared(name: &'static str, rule: Rule) -> Arc<Self> {
        Arc::new(Self { name, rule, number: PhantomData })
    }

    fn operand(&self, operand: &[u8]) -> Result<N, Refusal> {
        let bytes = <[u8; 8]>::try_from(operand).map_err(|_| {
            let (name, length) = (self.name, operand.len());
            Refusal(format!("{name} takes an operand of 8 bytes, little-endian, not {length}"))
        })?;
        let number = N::decode(bytes);
        if !number.is_operand() {
            return Err(Refusal(format!("{} takes a number, not a NaN", self.name)));
        }
        Ok(number)
    }

    fn current(&self, value: ValueRef<'_>) -> Result<N, Refusal> {
        let bytes = <[u8; 8]>::try_from(value.bytes).ok();
        bytes.filter(|_| value.kind == N::KIND).map(N::decode).ok_or_else(|| {
            let (name, kind, length) = (self.name, value.kind, value.bytes.len());
            let wanted = N::KIND;
            Refusal(format!(
                "{name} needs a value of kind {wanted:?}; the value has kind {kind:?} and {length} \
                 bytes"
            ))
        })
    }

    fn combine(&self, earlier: N, later: N) -> N {
        match self.rule {
            Rule::Add => earlier.sum(later),
            Rule::Max if later.order(earlier).is_gt() => later,
            Rule::Min if later.order(earlier).is_lt() => later,
            Rule::Max | Rule::Min => earlier,
        }
    }
}

impl<N: Arithmetic> Modifier for Numeric<N> {
    fn name(&self) -> &'static str {
        self.name
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
        let operand = self.operand(operand)?;
        let result = match (current, self.rule) {
            (Some(value), _) => self.combine(self.current(value)?, operand),
            (None, Rule::Add) => N::ZERO.sum(operand),
            (None, Rule::Max | Rule::Min) => operand,
        };
        let bytes = result.encode();
        let is_same = ValueRef { kind: N::KIND, bytes: &bytes };
        if current == Some(is_same) {
            return Ok(Outcome::Keep);
        }
        Ok(Outcome::Put(N::KIND, bytes.to_vec()))
    }

    fn fold(&self, earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        if matches!(self.rule, Rule::Add) && !N::SUMS_FOLD {
            return None;
        }
        let (earlier, later) = (self.operand(earlier).ok()?, self.operand(later).ok()?);
        Some(self.combine(earlier, later).encode().to_vec())
    }

    fn check_operand(&self, operand: &[u8]) -> Result<(), Refusal> {
        self.operand(operand).map(|_| ())
    }
}
