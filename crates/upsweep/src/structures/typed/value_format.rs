//! The encoding of values of Rust types as bytes, and the modifiers that preserve each type.
//!
//! | type | kind | bytes | modifiers besides `put`, `insert_if_absent` and `delete` |
//! |---|---|---|---|
//! | `i64`, `u64`, `f64` | of its number | 8, little-endian | `add`, `max`, `min` |
//! | `str`, `String` | `Bytes` | UTF-8 | `append` |
//! | `[u8]`, `Vec<u8>` | `Bytes` | themselves | `append`, `byte_patch`, `bit_or` |
//! | `[u8; N]` | `Bytes` | themselves | `bit_or` |
//! | `()` | `Bytes` | none | none |
//! | a struct that derives [`Counters`](super::Counters) | `Bytes` | 8 per field | `counters` |
//! | `Postcard` of `T` (feature `postcard`) | `Bytes` | those of postcard | none |

use crate::engine::modifier::{Modifier, ValueKind};
use crate::engine::registry::ModifierId;
use crate::structures::modifiers as builtin;

/// A type that can be the value of a [`TypedTable`](super::TypedTable).
pub trait Value: 'static {
    /// How a value is given in a call: `&str` for text, a number for numbers.
    type Ref<'v>: Copy;
    /// The type that a query returns.
    type Owned;
    /// The kind of the stored bytes.
    const KIND: ValueKind;
    /// Name of the type for error messages, with its article.
    const NAME: &'static str;
    /// The built-in modifiers, besides `put`, `insert_if_absent` and `delete`, that turn every
    /// value of the type, and an absent value, into a value of the type.
    const MODIFIERS: &'static [ModifierId];

    /// This value in the form in which calls take it.
    fn to_ref(&self) -> Self::Ref<'_>;

    /// Appends the bytes of the value.
    ///
    /// # Errors
    /// The reason if the value cannot be encoded, as text for people.
    fn encode(value: Self::Ref<'_>, out: &mut Vec<u8>) -> Result<(), String>;

    /// The value that [`Value::encode`] or a modifier wrote; `None` if these are other bytes.
    fn decode(bytes: &[u8]) -> Option<Self::Owned>;
}

/// A number that modifiers can add and compare: `i64`, `u64`, `f64`.
pub trait Number: for<'v> Value<Ref<'v> = Self, Owned = Self> + Copy + Default {
    /// The built-in modifier that adds.
    const ADD: ModifierId;
    /// The built-in modifier that keeps the larger.
    const MAX: ModifierId;
    /// The built-in modifier that keeps the smaller.
    const MIN: ModifierId;
}

/// A value to which something can be appended: text or bytes.
pub trait Appends: Value {
    /// What is appended.
    type Piece: AsRef<[u8]> + ?Sized;
}

/// Bytes of any length, which can be overwritten in part.
pub trait ByteString: Value {}

/// Bytes in which bits can be set.
pub trait Bits: Value {
    /// The bits: as many bytes as the value has.
    type Mask: AsRef<[u8]> + ?Sized;
}

/// A promise of a modifier of the application: it turns each value of type `V`, and an absent
/// value, into a value of type `V`, or refuses. So it may be used on tables of such values.
pub trait ModifierOf<V: ?Sized>: Modifier {}

macro_rules! number_value {
    ($type:ty, $kind:expr, $name:literal, $add:ident, $max:ident, $min:ident) => {
        impl Value for $type {
            type Ref<'v> = $type;
            type Owned = $type;
            const KIND: ValueKind = $kind;
            const NAME: &'static str = $name;
            const MODIFIERS: &'static [ModifierId] = &[builtin::$add, builtin::$max, builtin::$min];
            fn to_ref(&self) -> $type {
                *self
            }
            fn encode(value: $type, out: &mut Vec<u8>) -> Result<(), String> {
                out.extend_from_slice(&value.to_le_bytes());
                Ok(())
            }
            fn decode(bytes: &[u8]) -> Option<$type> {
                Some(<$type>::from_le_bytes(bytes.try_into().ok()?))
            }
        }
        impl Number for $type {
            const ADD: ModifierId = builtin::$add;
            const MAX: ModifierId = builtin::$max;
            const MIN: ModifierId = builtin::$min;
        }
    };
}

number_value!(i64, ValueKind::I64, "an i64", ADD_I64, MAX_I64, MIN_I64);
number_value!(u64, ValueKind::U64, "a u64", ADD_U64, MAX_U64, MIN_U64);
number_value!(f64, ValueKind::F64, "an f64", ADD_F64, MAX_F64, MIN_F64);

macro_rules! text_value {
    ($($type:ty),+) => {$(
        impl Value for $type {
            type Ref<'v> = &'v str;
            type Owned = String;
            const KIND: ValueKind = ValueKind::Bytes;
            const NAME: &'static str = "text";
            const MODIFIERS: &'static [ModifierId] = &[builtin::APPEND];
            fn to_ref(&self) -> &str {
                self
            }
            fn encode(value: &str, out: &mut Vec<u8>) -> Result<(), String> {
                out.extend_from_slice(value.as_bytes());
                Ok(())
            }
            fn decode(bytes: &[u8]) -> Option<String> {
                String::from_utf8(bytes.to_vec()).ok()
            }
        }
        impl Appends for $type {
            type Piece = str;
        }
    )+};
}

text_value!(str, String);

macro_rules! bytes_value {
    ($($type:ty),+) => {$(
        impl Value for $type {
            type Ref<'v> = &'v [u8];
            type Owned = Vec<u8>;
            const KIND: ValueKind = ValueKind::Bytes;
            const NAME: &'static str = "bytes";
            const MODIFIERS: &'static [ModifierId] =
                &[builtin::APPEND, builtin::BYTE_PATCH, builtin::BIT_OR];
            fn to_ref(&self) -> &[u8] {
                self
            }
            fn encode(value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
                out.extend_from_slice(value);
                Ok(())
            }
            fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
                Some(bytes.to_vec())
            }
        }
        impl Appends for $type {
            type Piece = [u8];
        }
        impl ByteString for $type {}
        impl Bits for $type {
            type Mask = [u8];
        }
    )+};
}

bytes_value!([u8], Vec<u8>);

impl<const N: usize> Value for [u8; N] {
    type Ref<'v> = &'v [u8; N];
    type Owned = [u8; N];
    const KIND: ValueKind = ValueKind::Bytes;
    const NAME: &'static str = "bytes of a fixed number";
    const MODIFIERS: &'static [ModifierId] = &[builtin::BIT_OR];
    fn to_ref(&self) -> &[u8; N] {
        self
    }
    fn encode(value: &[u8; N], out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(value);
        Ok(())
    }
    fn decode(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }
}

impl<const N: usize> Bits for [u8; N] {
    type Mask = [u8; N];
}

/// Nothing: a table with such values is a set of keys.
impl Value for () {
    type Ref<'v> = ();
    type Owned = ();
    const KIND: ValueKind = ValueKind::Bytes;
    const NAME: &'static str = "nothing";
    const MODIFIERS: &'static [ModifierId] = &[];
    fn to_ref(&self) {}
    fn encode((): (), _: &mut Vec<u8>) -> Result<(), String> {
        Ok(())
    }
    fn decode(bytes: &[u8]) -> Option<()> {
        bytes.is_empty().then_some(())
    }
}
