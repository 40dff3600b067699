//! Modifiers: the named, deterministic, pure functions that updates are made of.
//!
//! Invariants: a modifier is logged by [`Modifier::name`] and [`Modifier::version`], never by
//! address; equal inputs give equal outputs on every machine, permanently; a modifier has no access
//! to the store. (Bosc paper, section 3.1.)

use super::config::{REASON_BYTES_MAX, STORED_BYTES_MAX, VALUE_BYTES_MAX};
use crate::error::RequestError;

/// The type of the bytes of a value, as far as the engine knows: chosen by the modifier that made
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ValueKind {
    /// Bytes without further meaning.
    Bytes = 0,
    /// A signed integer, 8 bytes, little-endian.
    I64 = 1,
    /// An unsigned integer, 8 bytes, little-endian.
    U64 = 2,
    /// A floating-point number, 8 bytes, little-endian IEEE 754.
    F64 = 3,
}

impl ValueKind {
    /// The kind with this number on disk.
    #[inline]
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Bytes, Self::I64, Self::U64, Self::F64]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// A value as a modifier sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueRef<'a> {
    /// The type of the bytes.
    pub kind: ValueKind,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// The result of a modifier for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key has this value from now on.
    Put(ValueKind, Vec<u8>),
    /// Nothing changes.
    Keep,
    /// The key is gone from now on.
    Delete,
}

/// The reason why a modifier refuses an update, shown in the quarantine list. Texts of more than
/// 256 bytes are truncated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl Refusal {
    /// The text, truncated to [`REASON_BYTES_MAX`]: one that a modifier builds from its input may
    /// have any length, and is kept with each update that it refuses.
    #[must_use]
    pub fn into_reason(self) -> String {
        let bytes = self.0.len();
        if bytes <= REASON_BYTES_MAX {
            return self.0;
        }
        let note = format!("... ({bytes} bytes in all)");
        let start = self.0.floor_char_boundary(REASON_BYTES_MAX - note.len());
        format!("{}{note}", &self.0[..start])
    }
}

/// A named, deterministic, pure function from (key, current value, operand) to an [`Outcome`].
///
/// A modifier that returns [`Refusal`] or panics sends its update to the quarantine; all other
/// updates of the block proceed.
pub trait Modifier: Send + Sync {
    /// Stable name, 1 to 64 bytes without control characters; written to the log. Opening a store
    /// refuses others. It must not change during the life of the modifier, which may own the
    /// string, as one from another language does.
    fn name(&self) -> &str;

    /// Version of the behaviour; raise it whenever equal inputs give other outputs than before.
    fn version(&self) -> u16;

    /// Computes the new state of `key`. Pure: no clock, no randomness, no I/O, no store.
    ///
    /// # Errors
    /// [`Refusal`] when the update makes no sense for the current value.
    fn apply(
        &self,
        key: &[u8],
        current: Option<ValueRef<'_>>,
        operand: &[u8],
    ) -> Result<Outcome, Refusal>;

    /// Combines two operands of this modifier for one key, `earlier` before `later`, into one that
    /// has the same effect on every value, refusals included; `None` if that is impossible.
    fn fold(&self, earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        let _ = (earlier, later);
        None
    }

    /// Whether the outcome is independent of the current value (a put, a delete). Such an update
    /// answers queries without the device, and makes earlier ones for its key superfluous.
    fn blind(&self) -> bool {
        false
    }

    /// Refuses a malformed operand at the call, before anything is logged.
    ///
    /// # Errors
    /// [`Refusal`] with the problem and what would be correct.
    fn check_operand(&self, operand: &[u8]) -> Result<(), Refusal> {
        let _ = operand;
        Ok(())
    }
}

/// Checks the name of a modifier against the rule of [`Modifier::name`]: it appears in the log and
/// in messages.
///
/// # Errors
/// [`RequestError::BadModifierName`].
pub(crate) fn check_name(name: &str) -> Result<(), RequestError> {
    if !(1..=64).contains(&name.len()) || name.chars().any(char::is_control) {
        return Err(RequestError::BadModifierName(name.to_owned()));
    }
    Ok(())
}

/// Checks a value for its kind: numbers have 8 bytes, nothing exceeds [`VALUE_BYTES_MAX`].
///
/// # Errors
/// [`Refusal`] with the problem.
#[inline]
pub fn check_value(kind: ValueKind, bytes: &[u8]) -> Result<(), Refusal> {
    check_stored(kind, bytes.len())?;
    check_length(bytes.len())
}

/// Checks the length of a value that is stored, in bytes, for its kind: numbers have 8, and nothing
/// exceeds [`STORED_BYTES_MAX`].
///
/// # Errors
/// [`Refusal`] with the problem.
#[inline]
pub fn check_stored(kind: ValueKind, length: usize) -> Result<(), Refusal> {
    if kind != ValueKind::Bytes && length != 8 {
        return Err(Refusal(format!("a value of kind {kind:?} has 8 bytes, not {length}")));
    }
    check_below(length, STORED_BYTES_MAX)
}

/// Checks the length of a value of the application, in bytes.
///
/// # Errors
/// [`Refusal`] if it is above [`VALUE_BYTES_MAX`].
#[inline]
pub fn check_length(length: usize) -> Result<(), Refusal> {
    check_below(length, VALUE_BYTES_MAX)
}

#[inline]
fn check_below(length: usize, limit: usize) -> Result<(), Refusal> {
    if length > limit {
        return Err(Refusal(format!(
            "a value of {length} bytes is above the limit of {limit} bytes"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters_and_says_how_long_it_was() {
        let short = "x".repeat(REASON_BYTES_MAX);
        assert_eq!(Refusal(short.clone()).into_reason(), short);
        for long in ["y".repeat(REASON_BYTES_MAX + 1), "\u{e4}\u{20ac}".repeat(1000)] {
            let (bytes, cut) = (long.len(), Refusal(long.clone()).into_reason());
            assert!(cut.len() <= REASON_BYTES_MAX, "{} bytes", cut.len());
            assert!(cut.ends_with(&format!("... ({bytes} bytes in all)")), "{cut}");
            let kept = cut.split("...").next().expect("the beginning");
            assert!(long.starts_with(kept) && kept.len() > REASON_BYTES_MAX / 2);
        }
    }

    #[test]
    fn a_name_has_1_to_64_bytes_and_no_control_characters() {
        for sound in ["a", &"n".repeat(64), "with space", "\u{e4}"] {
            assert_eq!(check_name(sound), Ok(()), "{sound:?}");
        }
        for bad in ["", &"n".repeat(65), "line\nfeed", "\u{7f}"] {
            let refused = check_name(bad);
            assert_eq!(refused, Err(RequestError::BadModifierName(bad.to_owned())));
        }
    }

    #[test]
    fn numbers_have_8_bytes_and_values_a_limit() {
        for kind in [ValueKind::I64, ValueKind::U64, ValueKind::F64] {
            assert_eq!(check_value(kind, &[0; 8]), Ok(()));
            assert!(check_value(kind, &[0; 7]).is_err());
            assert!(check_value(kind, &[0; 9]).is_err());
        }
        assert_eq!(check_value(ValueKind::Bytes, &[]), Ok(()));
        assert_eq!(check_length(VALUE_BYTES_MAX), Ok(()));
        assert!(check_length(VALUE_BYTES_MAX + 1).is_err());
        assert_eq!(check_stored(ValueKind::Bytes, STORED_BYTES_MAX), Ok(()), "the quarantine's");
        assert!(check_stored(ValueKind::Bytes, STORED_BYTES_MAX + 1).is_err());
    }

    #[test]
    fn a_kind_is_found_by_its_number_on_disk_and_other_numbers_are_none() {
        for kind in [ValueKind::Bytes, ValueKind::I64, ValueKind::U64, ValueKind::F64] {
            assert_eq!(ValueKind::from_number(kind as u8), Some(kind));
        }
        assert_eq!(ValueKind::from_number(4), None);
    }
}
