//! The bytes of a cell, in the array and as a modifier sees them.
//!
//! | cell | bytes | a modifier sees |
//! |---|---|---|
//! | `u8`, `u16`, `u32`, `u64` | little-endian | an unsigned integer of 8 bytes |
//! | `i64` | little-endian two's complement | a signed integer |
//! | `f64` | little-endian IEEE 754 | a float |
//! | `bytesN`, N from 1 to 1024 | as the application gives them | N bytes |
//!
//! A cell is zero if all its bytes are. So the float -0 is not a zero cell.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::engine::modifier::{ValueKind, ValueRef};

/// Maximum size of a cell, in bytes.
pub const CELL_BYTES_MAX: usize = 1024;

/// The kind of the cells of an array. Its text, such as `u32` or `bytes16`, is the parameter of the
/// block format `array`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CellKind {
    /// An unsigned integer of 1 byte.
    U8,
    /// An unsigned integer of 2 bytes.
    U16,
    /// An unsigned integer of 4 bytes.
    U32,
    /// An unsigned integer of 8 bytes.
    U64,
    /// A signed integer of 8 bytes.
    I64,
    /// A floating-point number of 8 bytes.
    F64,
    /// So many bytes (1 to 1024) without further meaning.
    Bytes(u16),
}

/// The kinds that are numbers, with their names; the position is the number on disk, less 1.
const NUMBERS: [(CellKind, &str); 6] = [
    (CellKind::U8, "u8"),
    (CellKind::U16, "u16"),
    (CellKind::U32, "u32"),
    (CellKind::U64, "u64"),
    (CellKind::I64, "i64"),
    (CellKind::F64, "f64"),
];

impl CellKind {
    /// Cells of `bytes` bytes without further meaning.
    ///
    /// # Panics
    /// If it is not 1 to 1024, at compile time where it is a constant.
    #[must_use]
    pub const fn of_bytes(bytes: usize) -> Self {
        assert!(bytes >= 1 && bytes <= CELL_BYTES_MAX, "a cell has 1 to 1024 bytes");
        Self::Bytes(bytes as u16)
    }

    /// Bytes of a cell.
    #[must_use]
    pub const fn cell_bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
            Self::Bytes(bytes) => bytes as usize,
        }
    }

    /// What a cell is to a modifier.
    #[must_use]
    pub const fn value_kind(self) -> ValueKind {
        match self {
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => ValueKind::U64,
            Self::I64 => ValueKind::I64,
            Self::F64 => ValueKind::F64,
            Self::Bytes(_) => ValueKind::Bytes,
        }
    }

    /// The number of the kind on disk; 0 for bytes.
    pub(super) fn number(self) -> u8 {
        let position = NUMBERS.iter().position(|(kind, _)| *kind == self);
        position.map_or(0, |position| position as u8 + 1)
    }

    /// A cell as a modifier sees it; `wide` is room for the bytes of a number.
    pub(super) fn value<'a>(self, cell: &'a [u8], wide: &'a mut [u8; 8]) -> ValueRef<'a> {
        let kind = self.value_kind();
        if kind == ValueKind::Bytes {
            return ValueRef { kind, bytes: cell };
        }
        *wide = [0; 8];
        wide[..cell.len()].copy_from_slice(cell);
        ValueRef { kind, bytes: wide }
    }

    /// The cell for a value.
    ///
    /// # Errors
    /// The reason if the value does not fit, as text for people.
    pub(crate) fn cell_of(self, value: ValueRef<'_>) -> Result<&[u8], String> {
        let (kind, bytes, cell_bytes) = (value.kind, value.bytes, self.cell_bytes());
        let is_number = kind != ValueKind::Bytes;
        if kind != self.value_kind() || bytes.len() != if is_number { 8 } else { cell_bytes } {
            let length = bytes.len();
            return Err(format!("a value of kind {kind:?} and {length} bytes is no {self}"));
        }
        let (cell, rest) = bytes.split_at(cell_bytes);
        if rest.iter().any(|byte| *byte != 0) {
            let number = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            // Sums below 0 have wrapped around.
            let taken = number.wrapping_neg();
            let below = match i64::try_from(number) {
                Ok(_) => String::new(),
                Err(_) => format!(" (-{taken}, if something was taken away)"),
            };
            return Err(format!("{number}{below} does not fit a cell of {self}"));
        }
        Ok(cell)
    }
}

impl Display for CellKind {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match (self, NUMBERS.iter().find(|(kind, _)| kind == self)) {
            (Self::Bytes(bytes), _) => write!(formatter, "bytes{bytes}"),
            (_, found) => formatter.write_str(found.map_or("", |(_, name)| name)),
        }
    }
}

impl FromStr for CellKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((kind, _)) = NUMBERS.iter().find(|(_, name)| *name == text) {
            return Ok(*kind);
        }
        let bytes = text.strip_prefix("bytes").and_then(|bytes| bytes.parse().ok());
        // Only the canonical text, so that equal kinds are equal formats.
        let kind = bytes.filter(|bytes| (1..=CELL_BYTES_MAX).contains(bytes)).map(Self::of_bytes);
        kind.filter(|kind| kind.to_string() == text).ok_or_else(|| {
            format!(
                "{text:?} is no kind of cell: u8, u16, u32, u64, i64, f64, or bytes1 to bytes1024"
            )
        })
    }
}

/// A type that can be the cell of an [`Array`](super::Array): `u8`, `u16`, `u32`, `u64`, `i64`,
/// `f64`, and each type of 1 to 1024 bytes that says so.
///
/// ```
/// use upsweep::Cell;
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
/// use zerocopy::little_endian::U32;
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Place {
///     device: U32,
///     page: U32,
/// }
///
/// impl Cell for Place {}
/// ```
///
/// Such a type is stored as it lies in memory. Fields of the types in `zerocopy::little_endian`
/// mean the same on every machine; others have the byte order of the machine that wrote them.
pub trait Cell: FromBytes + IntoBytes + Immutable + Copy + Send + Sync + 'static {
    /// What such a cell is to a modifier: bytes, unless it is a number.
    const KIND: CellKind = CellKind::of_bytes(size_of::<Self>());

    /// The bytes of the cell.
    #[must_use]
    fn encode(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    /// The cell of these bytes; `None` if it has another number of bytes.
    #[must_use]
    fn decode(bytes: &[u8]) -> Option<Self> {
        Self::read_from_bytes(bytes).ok()
    }
}

/// A [`Cell`] that is a number, which modifiers can add and compare.
pub trait NumberCell: Cell {}

macro_rules! number_cell {
    ($type:ty, $kind:expr) => {
        impl Cell for $type {
            const KIND: CellKind = $kind;
            fn encode(&self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
            fn decode(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_le_bytes(bytes.try_into().ok()?))
            }
        }
        impl NumberCell for $type {}
    };
}

number_cell!(u8, CellKind::U8);
number_cell!(u16, CellKind::U16);
number_cell!(u32, CellKind::U32);
number_cell!(u64, CellKind::U64);
number_cell!(i64, CellKind::I64);
number_cell!(f64, CellKind::F64);
