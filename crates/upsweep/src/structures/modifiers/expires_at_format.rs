//! The built-in modifier of expiring records, and the bytes of their values.
//!
//! The value of an expiring record is of kind `Bytes`:
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | expiry time, in microseconds since the Unix epoch |
//! | 8 | kind of the application's value |
//! | 9.. | that value |
//!
//! The operand of `expires_at`:
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | the time at which it is declared |
//! | 8.. | a record, whole or only its time |
//!
//! A whole record is put if there is none; a time alone is set in an existing record. A record that
//! has expired by the time of the update does not count, so the result does not depend on whether a
//! sweep has dropped it. All integers are little-endian.

use super::check_length;
use super::operand_format::{split_stored, split_value};
use crate::engine::config::VALUE_BYTES_MAX;
use crate::engine::modifier::{Modifier, Outcome, Refusal, ValueKind, ValueRef};

const TIME_BYTES: usize = 8;
const HEAD_BYTES: usize = TIME_BYTES + 1;
/// Longest value of an expiring record, in bytes.
pub const EXPIRING_VALUE_BYTES_MAX: usize = VALUE_BYTES_MAX - HEAD_BYTES;

/// An expiring record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiring<'a> {
    /// Expiry time, in microseconds since the Unix epoch.
    pub expires_us: u64,
    /// The application's value.
    pub value: ValueRef<'a>,
}

impl<'a> Expiring<'a> {
    /// The record that is stored as these bytes; `None` if it is not an expiring one.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (time, value) = bytes.split_first_chunk()?;
        let (kind, bytes) = split_stored(value).ok()?;
        Some(Self { expires_us: u64::from_le_bytes(*time), value: ValueRef { kind, bytes } })
    }

    /// Appends its stored bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(HEAD_BYTES + self.value.bytes.len());
        encode_head(self.expires_us, self.value.kind, out);
        out.extend_from_slice(self.value.bytes);
    }
}

/// Appends the header before the application's value.
pub fn encode_head(expires_us: u64, kind: ValueKind, out: &mut Vec<u8>) {
    out.extend_from_slice(&expires_us.to_le_bytes());
    out.push(kind as u8);
}

/// The expiry time of a record that is stored as these bytes, or whose bytes begin so: never, if it
/// is not an expiring one.
#[must_use]
pub fn expires_us_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(u64::MAX, |time| u64::from_le_bytes(*time))
}

/// The operand of `expires_at` that makes the record existing at `moment_us` expire at
/// `expires_us`.
#[must_use]
pub fn touch_operand(moment_us: u64, expires_us: u64) -> Vec<u8> {
    [moment_us.to_le_bytes(), expires_us.to_le_bytes()].concat()
}

/// The operand of `expires_at` without its record, which the caller appends: it is put if there is
/// none at `moment_us`.
#[must_use]
pub fn insert_operand(moment_us: u64) -> Vec<u8> {
    moment_us.to_le_bytes().to_vec()
}

/// The record in an operand of `expires_at`; empty but for its time if it has only that.
#[must_use]
pub fn record_of(operand: &[u8]) -> &[u8] {
    operand.get(TIME_BYTES..).unwrap_or_default()
}

/// Sets the time at which the operand is declared.
pub fn set_moment(operand: &mut [u8], moment_us: u64) {
    if let Some(time) = operand.first_chunk_mut() {
        *time = moment_us.to_le_bytes();
    }
}

/// An operand of `expires_at`.
#[derive(Clone, Copy)]
struct Change<'a> {
    moment_us: u64,
    expires_us: u64,
    /// A whole record, or a time.
    bytes: &'a [u8],
}

impl<'a> Change<'a> {
    fn decode(operand: &'a [u8]) -> Result<Self, Refusal> {
        let found = operand.split_first_chunk().and_then(|(moment, bytes)| {
            Some((u64::from_le_bytes(*moment), bytes.split_first_chunk::<TIME_BYTES>()?, bytes))
        });
        let (moment_us, (time, value), bytes) = found.ok_or_else(|| {
            let length = operand.len();
            Refusal(format!("expires_at takes an operand of 16 bytes or more, not {length}"))
        })?;
        if !value.is_empty() {
            split_value(value)?;
            check_length(bytes.len())?;
        }
        Ok(Self { moment_us, expires_us: u64::from_le_bytes(*time), bytes })
    }

    /// Whether it puts a record, rather than only setting a time.
    fn inserts(&self) -> bool {
        self.bytes.len() > TIME_BYTES
    }

    /// Whether it sees a record that expires at this time.
    fn sees(&self, expires_us: u64) -> bool {
        expires_us > self.moment_us
    }

    /// The operand of the change as of this time.
    fn at(&self, moment_us: u64) -> Vec<u8> {
        [&moment_us.to_le_bytes(), self.bytes].concat()
    }
}

pub(super) struct ExpiresAt;

impl Modifier for ExpiresAt {
    fn name(&self) -> &'static str {
        "expires_at"
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
        let change = Change::decode(operand)?;
        let mut seen = None;
        if let Some(current) = current {
            let record = Expiring::decode(current.bytes);
            let record = record.filter(|_| current.kind == ValueKind::Bytes).ok_or_else(|| {
                let (length, kind) = (current.bytes.len(), current.kind);
                Refusal(format!(
                    "expires_at needs a record that expires; the value has kind {kind:?} and \
                     {length} bytes, and none of them is such a time"
                ))
            })?;
            seen = Some(record).filter(|record| change.sees(record.expires_us));
        }
        Ok(match seen {
            None if change.inserts() => Outcome::Put(ValueKind::Bytes, change.bytes.to_vec()),
            Some(record) if !change.inserts() && record.expires_us != change.expires_us => {
                let mut bytes = Vec::new();
                Expiring { expires_us: change.expires_us, ..record }.encode(&mut bytes);
                Outcome::Put(ValueKind::Bytes, bytes)
            }
            _ => Outcome::Keep,
        })
    }

    /// Two times fold into one, and so do two records unless the current value decides which of
    /// them is put. A record and a time never fold: the time may be for another record.
    fn fold(&self, earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        let (earlier, later) = (Change::decode(earlier).ok()?, Change::decode(later).ok()?);
        let is_ordered = earlier.moment_us <= later.moment_us;
        // Whether the later one sees the result of the earlier one.
        let sees = later.sees(earlier.expires_us);
        match (earlier.inserts(), later.inserts(), sees) {
            (false, false, true) => Some(later.at(earlier.moment_us.min(later.moment_us))),
            (false, false, false) => is_ordered.then(|| earlier.at(earlier.moment_us)),
            (true, true, true) => {
                let is_only = later.moment_us <= earlier.moment_us;
                is_only.then(|| earlier.at(earlier.moment_us))
            }
            (true, true, false) => Some(later.at(earlier.moment_us.max(later.moment_us))),
            (true, false, _) | (false, true, _) => None,
        }
    }

    fn check_operand(&self, operand: &[u8]) -> Result<(), Refusal> {
        Change::decode(operand).map(|_| ())
    }
}
