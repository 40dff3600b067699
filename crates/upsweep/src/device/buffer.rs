//! Aligned, owned memory for direct I/O.
//!
//! Invariant: the memory of a [`Buffer`] starts at a multiple of [`ALIGNMENT`] and holds `capacity`
//! initialised bytes, of which the first `len` are visible. A buffer moves into a request and
//! returns with its completion, so nobody can touch memory that a device is reading or writing.
//!
//! The memory comes from [`Chunks`], which the system backs by huge pages where it can. Large
//! buffers have separate chunks: small buffers may live long and would fragment the memory, leaving
//! holes too small for large ones.

#![expect(
    clippy::disallowed_types,
    reason = "buffers end on any thread, and others take them over"
)]

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::chunks::{Chunks, Holes, UNIT_BYTES};

/// Alignment in bytes of every buffer: enough for direct I/O on devices with sectors of up to
/// 4 KiB.
pub const ALIGNMENT: usize = 4096;

/// Buffers of at least this many bytes are large.
pub(crate) const LARGE_BYTES_MIN: usize = 128 << 10;

/// Memory of small buffers: single blocks, and pages of the directory.
static SMALL: Mutex<Chunks> = Mutex::new(Chunks::new(2 << 20, Holes::GoBack));
/// Memory of large buffers. Spare chunks were part of the memory budget of their last owner, which
/// will need as much again.
static LARGE: Mutex<Chunks> = Mutex::new(Chunks::new(8 << 20, Holes::Stay));

/// Owned bytes, aligned for direct I/O. Moved, never copied. Cost of making one: a search for free
/// memory under a lock.
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
}

// SAFETY: a `Buffer` owns its allocation exclusively, as a `Box<[u8]>` does.
unsafe impl Send for Buffer {}
// SAFETY: shared access only reads plain bytes, as with a `Box<[u8]>`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` bytes, all zero. `len` may be 0; direct I/O needs a multiple of the sector size.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let (mut buffer, is_zero) = Self::of_any_age(len);
        if !is_zero {
            buffer.fill(0);
        }
        buffer
    }

    /// `len` bytes of arbitrary content, for callers that overwrite all of them.
    #[must_use]
    pub fn recycled(len: usize) -> Self {
        Self::of_any_age(len).0
    }

    /// `len` bytes of arbitrary content, and whether they are known to be zero.
    fn of_any_age(len: usize) -> (Self, bool) {
        let units = len.div_ceil(UNIT_BYTES);
        if units == 0 {
            let nowhere = std::ptr::without_provenance_mut(ALIGNMENT);
            let start = NonNull::new(nowhere).expect("not null");
            return (Self { start, len, capacity: len }, true);
        }
        let mut unneeded = Vec::new();
        let taken = Self::chunks(len).take(units, &mut unneeded);
        drop(unneeded);
        let Some((start, is_zero)) = taken else {
            let layout = Layout::from_size_align(len, ALIGNMENT);
            handle_alloc_error(layout.expect("a buffer below isize::MAX bytes"))
        };
        (Self { start, len, capacity: len }, is_zero)
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::recycled(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Makes only the first `len` bytes visible, such as those that a device is to write. Cost:
    /// none.
    ///
    /// # Panics
    /// If fewer are visible already.
    pub fn shorten(&mut self, len: usize) {
        assert!(len <= self.len, "cannot shorten a buffer of {} bytes to {len}", self.len);
        self.len = len;
    }

    /// Makes all bytes visible again. Those that were hidden have kept their content.
    pub fn restore(&mut self) {
        self.len = self.capacity;
    }

    /// The chunks that provide the memory of buffers of this length.
    fn chunks(len: usize) -> MutexGuard<'static, Chunks> {
        let chunks = if len < LARGE_BYTES_MIN { &SMALL } else { &LARGE };
        chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let units = self.capacity.div_ceil(UNIT_BYTES);
        if units > 0 {
            let unneeded = Self::chunks(self.capacity).give_back(self.start, units);
            drop(unneeded);
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to at least `len` initialised bytes that `self` owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Buffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::Buffer;

    #[test]
    fn a_shortened_buffer_has_all_of_its_bytes_again_when_it_is_restored() {
        let mut buffer = Buffer::copy_of(&[7; 8192]);
        buffer.shorten(4096);
        buffer.fill(1);
        assert_eq!(*buffer, [1; 4096]);
        buffer.restore();
        assert_eq!((&buffer[..4096], &buffer[4096..]), (&[1; 4096][..], &[7; 4096][..]));
    }
}
