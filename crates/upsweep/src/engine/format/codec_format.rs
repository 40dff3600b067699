//! Integers, lengths and byte strings. Decoders return [`Malformed`], they never panic.

use crate::engine::ids::{SnapshotId, SpaceId};
use crate::log::Seq;
use std::fmt;

/// Bytes that this version of the format does not write; names the part that is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "malformed {}", self.0)
    }
}

/// Appends `value` as LEB128.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Room of a known length, which is filled front to back.
pub struct Room<'a>(pub &'a mut [u8]);

impl Room<'_> {
    /// Fills the next bytes.
    ///
    /// # Panics
    /// If fewer are left.
    #[inline]
    pub fn fill(&mut self, bytes: &[u8]) {
        let (now, later) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        now.copy_from_slice(bytes);
        self.0 = later;
    }

    /// Fills the next bytes with `value` as LEB128.
    ///
    /// # Panics
    /// If fewer are left.
    #[inline]
    pub fn fill_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.fill(&[(value as u8) | 0x80]);
            value >>= 7;
        }
        self.fill(&[value as u8]);
    }
}

/// Length in bytes of `value` as LEB128.
#[must_use]
pub fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends a length and the bytes.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends 4 bytes, little-endian.
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends 8 bytes, little-endian.
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Reads what the functions above wrote, front to back.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether everything was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// [`Malformed`] when fewer are left.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed("length"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// One byte.
    ///
    /// # Errors
    /// [`Malformed`] at the end.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    /// A LEB128 integer.
    ///
    /// # Errors
    /// [`Malformed`] when truncated or longer than 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed("integer"))
    }

    /// A LEB128 integer that fits the narrower type `T`.
    ///
    /// # Errors
    /// [`Malformed`] as for [`Reader::varint`], and when it does not fit.
    #[inline]
    pub fn narrow<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        T::try_from(self.varint()?).map_err(|_| Malformed("integer range"))
    }

    /// The number of a space, as a LEB128 integer.
    ///
    /// # Errors
    /// [`Malformed`] as for [`Reader::narrow`].
    #[inline]
    pub fn space(&mut self) -> Result<SpaceId, Malformed> {
        Ok(SpaceId::new(self.narrow()?))
    }

    /// The number of a snapshot, as a LEB128 integer.
    ///
    /// # Errors
    /// [`Malformed`] as for [`Reader::narrow`].
    pub fn snapshot(&mut self) -> Result<SnapshotId, Malformed> {
        Ok(SnapshotId::new(self.narrow()?))
    }

    /// A sequence number, as a LEB128 integer.
    ///
    /// # Errors
    /// [`Malformed`] as for [`Reader::varint`].
    #[inline]
    pub fn seq(&mut self) -> Result<Seq, Malformed> {
        Ok(Seq::new(self.varint()?))
    }

    /// A length and that many bytes.
    ///
    /// # Errors
    /// [`Malformed`] when truncated.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.narrow()?;
        self.take(count)
    }

    /// A length and that many bytes of UTF-8.
    ///
    /// # Errors
    /// [`Malformed`] when truncated or not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed("text"))
    }

    /// 4 bytes, little-endian.
    ///
    /// # Errors
    /// [`Malformed`] when truncated.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// 8 bytes, little-endian.
    ///
    /// # Errors
    /// [`Malformed`] when truncated.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Exactly `N` bytes.
    ///
    /// # Errors
    /// [`Malformed`] when truncated.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// A count of items that take at least `item_bytes` each, so that a damaged count cannot
    /// request more memory than the remaining bytes justify.
    ///
    /// # Errors
    /// [`Malformed`] when the count is impossible.
    pub fn count(&mut self, item_bytes: usize) -> Result<usize, Malformed> {
        let count: usize = self.narrow()?;
        if count.saturating_mul(item_bytes.max(1)) > self.rest.len() {
            return Err(Malformed("count"));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn integers_come_back(value: u64) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_len(value));
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while reader.varint().is_ok() {}
            let mut reader = Reader::new(&bytes);
            while reader.bytes().is_ok() && !reader.is_empty() {}
        }
    }

    #[test]
    fn an_overlong_integer_is_refused() {
        assert!(Reader::new(&[0xff; 10]).varint().is_err());
        assert!(Reader::new(&[0x80; 12]).varint().is_err());
    }
}
