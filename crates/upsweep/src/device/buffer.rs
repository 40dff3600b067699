//! Aligned, owned memory for direct I/O.
//!
//! Invariant: the memory of a [`Buffer`] starts at a multiple of [`ALIGNMENT`] and holds `capacity`
//! initialised bytes, the first `len` of which it shows. A buffer is moved into a request and comes
//! back with its completion, so that no one can touch memory that a device is reading or writing.
//!
//! The memory comes from [`Chunks`], which the system backs by huge pages where it can. What is
//! large has chunks of its own: small buffers, which may live long, would leave holes there that
//! nothing large fits in.

#![expect(
    clippy::disallowed_types,
    reason = "buffers end on any thread, and others take them over"
)]

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::chunks::{Chunks, UNIT_BYTES};

/// Alignment in bytes of every buffer: satisfies direct I/O on devices of up to 4 KiB sectors.
pub const ALIGNMENT: usize = 4096;

/// Buffers from this size on are large.
pub(crate) const LARGE_BYTES_MIN: usize = 128 << 10;

/// Memory of small buffers: single blocks, and pages of the directory.
static SMALL: Mutex<Chunks> = Mutex::new(Chunks::new(2 << 20));
/// Memory of large buffers. What is kept was part of the budget of whoever had it, which will need
/// as much again.
static LARGE: Mutex<Chunks> = Mutex::new(Chunks::new(8 << 20));

/// Owned bytes, aligned for direct I/O. Cost: a search for free memory under a lock; moved, never
/// copied.
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
    /// `len` bytes, all zero. `len` may be 0; direct I/O wants a multiple of the sector size.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let (mut buffer, is_zero) = Self::of_any_age(len);
        if !is_zero {
            buffer.fill(0);
        }
        buffer
    }

    /// `len` bytes of any content, for what is overwritten as a whole.
    #[must_use]
    pub fn recycled(len: usize) -> Self {
        Self::of_any_age(len).0
    }

    /// `len` bytes, and whether they are known to be zero.
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

    /// Shows only the first `len` bytes from now on: what a device is to write. Cost: none.
    ///
    /// # Panics
    /// If it shows fewer.
    pub fn shorten(&mut self, len: usize) {
        assert!(len <= self.len, "a buffer of {} bytes does not show {len}", self.len);
        self.len = len;
    }

    /// Shows all of its bytes again, those that were not shown as they were.
    pub fn restore(&mut self) {
        self.len = self.capacity;
    }

    /// Where buffers of this length have their memory.
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
