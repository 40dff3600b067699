//! Bytes that are copied piece by piece, up to a length known in advance.

use std::ops::Deref;

use crate::device::{Buffer, LARGE_BYTES_MIN};

/// The bytes that have been copied. Large ones are in a [`Buffer`], whose memory goes back to the
/// system: the general allocator would keep it for the thread that used it.
#[derive(Debug)]
pub(super) enum Copied {
    Few(Vec<u8>),
    Many { buffer: Buffer, filled: usize },
}

impl Copied {
    /// Empty, with room for `bytes`.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        if bytes < LARGE_BYTES_MIN {
            return Self::Few(Vec::with_capacity(bytes));
        }
        Self::Many { buffer: Buffer::recycled(bytes), filled: 0 }
    }

    /// Appends `more`, for which there is room.
    #[inline]
    pub(super) fn extend(&mut self, more: &[u8]) {
        match self {
            Self::Few(bytes) => bytes.extend_from_slice(more),
            Self::Many { buffer, filled } => {
                buffer[*filled..*filled + more.len()].copy_from_slice(more);
                *filled += more.len();
            }
        }
    }

    /// Memory that they take, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Few(bytes) => bytes.capacity(),
            Self::Many { buffer, .. } => buffer.len(),
        }
    }
}

impl Default for Copied {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Deref for Copied {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Few(bytes) => bytes,
            Self::Many { buffer, filled } => &buffer[..*filled],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bytes_and_many_are_what_was_appended() {
        for bytes in [0, 1, LARGE_BYTES_MIN - 1, LARGE_BYTES_MIN, LARGE_BYTES_MIN + 100] {
            let mut copied = Copied::with_capacity(bytes);
            let all: Vec<u8> = (0..bytes).map(|index| index as u8).collect();
            all.chunks(1000).for_each(|part| copied.extend(part));
            assert_eq!(&*copied, all, "{bytes} bytes");
            assert!(copied.memory_bytes() >= bytes);
            assert_eq!(matches!(copied, Copied::Many { .. }), bytes >= LARGE_BYTES_MIN);
        }
    }

    #[test]
    fn room_that_is_not_filled_is_no_content() {
        let mut copied = Copied::with_capacity(LARGE_BYTES_MIN);
        copied.extend(b"abc");
        assert_eq!(&*copied, b"abc");
        assert_eq!(&*Copied::default(), b"");
    }
}
